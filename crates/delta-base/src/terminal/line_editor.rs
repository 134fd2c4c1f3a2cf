//! A line of text that a person edits, and the part of it that fits on the screen. Pure.
//!
//! A character without a width, such as an accent, belongs to the character before it.

use crate::terminal::key_decoder::Key;
use crate::text::hidden_text::misleads_anywhere;
use crate::text::text_width::char_width;

/// Joins characters to one.
const JOINER: char = '\u{200d}';
/// Shows that there is more of the line.
const CUT: char = '…';
/// The least columns in which a cut is marked.
const MIN_MARKED_COLUMNS: usize = 6;

/// A key that is not for the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditorEffect {
    /// Enter.
    Enter,
    /// Alt and Enter.
    AltEnter,
    /// Escape.
    Escape,
    /// Ctrl-D without a text.
    EndOfInput,
}

/// The text and the cursor in it.
#[derive(Debug, Default, Clone)]
pub struct LineEditor {
    text: String,
    /// The offset of the character after the cursor.
    cursor: usize,
}

/// The part of a line that is on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineWindow {
    /// What is shown, without control characters; line ends are `↵`.
    pub text: String,
    /// The column of the cursor in it, which is on the screen.
    pub cursor_column: usize,
}

impl LineEditor {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes the text, and leaves an empty line.
    pub fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Puts `text` before what is in the line, with the cursor where it was in that.
    pub fn put_before(&mut self, text: &str) {
        let text = if self.text.is_empty() { text.to_owned() } else { format!("{text}\n") };
        self.text.insert_str(0, &text);
        self.cursor += text.len();
    }

    /// Changes the line as the key says; returns what the key is for if it is not for the text.
    pub fn apply(&mut self, key: Key) -> Option<EditorEffect> {
        match key {
            Key::Enter => return Some(EditorEffect::Enter),
            Key::AltEnter => return Some(EditorEffect::AltEnter),
            Key::Escape => return Some(EditorEffect::Escape),
            Key::CtrlD if self.text.is_empty() => return Some(EditorEffect::EndOfInput),
            Key::Char(c) => self.insert(c.encode_utf8(&mut [0; 4])),
            Key::Paste(text) => self.insert(&text),
            Key::Backspace => self.erase_to(self.before(self.cursor)),
            Key::Delete | Key::CtrlD => self.erase_to(self.after(self.cursor)),
            Key::EraseWord => self.erase_to(self.word_before()),
            Key::EraseBefore => self.erase_to(0),
            Key::EraseAfter => self.erase_to(self.text.len()),
            Key::Left => self.cursor = self.before(self.cursor),
            Key::Right => self.cursor = self.after(self.cursor),
            Key::WordLeft => self.cursor = self.word_before(),
            Key::WordRight => self.cursor = self.word_after(),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = self.text.len(),
        }
        None
    }

    fn insert(&mut self, text: &str) {
        let text: String =
            text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Removes what is between the cursor and `other`.
    fn erase_to(&mut self, other: usize) {
        let start = self.cursor.min(other);
        self.text.drain(start..self.cursor.max(other));
        self.cursor = start;
    }

    /// The start of the character before `at`.
    fn before(&self, at: usize) -> usize {
        let mut start = at;
        while let Some(c) = self.text[..start].chars().next_back() {
            start -= c.len_utf8();
            if shown_width(c) > 0 && !self.text[..start].ends_with(JOINER) {
                break;
            }
        }
        start
    }

    /// The end of the character after `at`.
    fn after(&self, at: usize) -> usize {
        let mut end = at;
        let mut joins = true;
        while let Some(c) = self.text[end..].chars().next() {
            if !joins && shown_width(c) > 0 {
                break;
            }
            joins = c == JOINER;
            end += c.len_utf8();
        }
        end
    }

    fn word_before(&self) -> usize {
        let text = self.text[..self.cursor].trim_end();
        text.char_indices().rfind(|(_, c)| c.is_whitespace()).map_or(0, |(at, c)| at + c.len_utf8())
    }

    fn word_after(&self) -> usize {
        let rest = &self.text[self.cursor..];
        let word = rest.len() - rest.trim_start().len();
        self.cursor + rest[word..].find(char::is_whitespace).map_or(rest.len(), |at| word + at)
    }

    /// The part of the line around the cursor that takes at most `columns`, of which there is at least one. The cost depends on
    /// the columns, not on the text.
    pub fn window(&self, columns: usize) -> LineWindow {
        let is_marked = columns >= MIN_MARKED_COLUMNS;
        let (before, after) = self.text.split_at(self.cursor);
        // Of a line that does not fit, some of what follows the cursor is shown too.
        let mut width_after = 0;
        for c in after.chars() {
            if width_after + shown_width(c) > columns / 4 {
                break;
            }
            width_after += shown_width(c);
        }
        let mut room = columns.saturating_sub(1 + width_after);
        let mut start = self.cursor;
        let mut column = 0;
        for (at, c) in before.char_indices().rev() {
            if column + shown_width(c) > room {
                // The mark needs a column too.
                room = room.saturating_sub(usize::from(is_marked));
                break;
            }
            column += shown_width(c);
            start = at;
        }
        let mut part = String::new();
        for c in before[start..].chars() {
            if column > room || (start > 0 && part.is_empty() && shown_width(c) == 0) {
                column -= shown_width(c);
            } else {
                part.push(shown_char(c));
            }
        }
        if start > 0 && is_marked {
            part.insert(0, CUT);
            column += 1;
        }
        let cursor_column = column;
        for (at, c) in after.char_indices() {
            column += shown_width(c);
            // The last column is for the mark, unless the line ends there.
            let is_last = at + c.len_utf8() == after.len();
            if column + usize::from(!is_last) > columns {
                part.extend(is_marked.then_some(CUT));
                break;
            }
            part.push(shown_char(c));
        }
        LineWindow { text: part, cursor_column }
    }
}

/// The first characters of a text as a line shows them.
pub(crate) fn show_start(text: &str, count: usize) -> String {
    text.chars().take(count).map(shown_char).collect()
}

/// What is shown for a character of the text.
fn shown_char(c: char) -> char {
    match c {
        '\n' => '↵',
        '\t' => ' ',
        // They change the form of their neighbours.
        '\u{200c}' | JOINER | '\u{fe0e}' | '\u{fe0f}' => c,
        c if misleads_anywhere(c) => '·',
        c => c,
    }
}

fn shown_width(c: char) -> usize {
    char_width(shown_char(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::key_decoder::KeyDecoder;
    use crate::text::text_width::display_width;
    use proptest::prelude::*;

    fn typed(bytes: &str) -> LineEditor {
        let mut editor = LineEditor::default();
        for key in KeyDecoder::default().decode(bytes.as_bytes()) {
            editor.apply(key);
        }
        editor
    }

    fn shown(bytes: &str, columns: usize) -> (String, usize) {
        let window = typed(bytes).window(columns);
        (window.text, window.cursor_column)
    }

    #[test]
    fn c_33_17_a_line_is_edited_with_the_usual_keys() {
        for (bytes, text) in [
            ("abc\x7f\x7fd", "ad"),
            ("日本\x7f語", "日語"),
            ("one two \x17x", "one x"),
            ("one two\x15x", "x"),
            ("bc\x01a\x05d", "abcd"),
            ("abc\x1b[D\x1b[D\x0bx", "ax"),
            ("abc\x1b[D\x04", "ab"),
            ("one two\x1bb\x1bb\x1bf!", "one! two"),
            ("e\u{301}x\x7f\x7f", ""),
            ("👩\u{200d}💻\x7f", ""),
            ("👩\u{200d}💻\x1b[Dx", "x👩\u{200d}💻"),
            ("\x1b[200~a\nb\tc\x07\x1b[201~", "a\nb\tc"),
        ] {
            assert_eq!(typed(bytes).text(), text, "{bytes:?}");
        }
        let mut editor = typed("now");
        editor.put_before("first");
        assert_eq!(editor.text(), "first\nnow");
        assert_eq!(editor.apply(Key::CtrlD), None, "there is a text");
        assert_eq!(editor.take(), "first\nnow");
        assert_eq!(editor.apply(Key::CtrlD), Some(EditorEffect::EndOfInput));
    }

    #[test]
    fn c_33_17_a_long_line_scrolls_sideways() {
        let part = |text: &str, column| (text.to_owned(), column);
        assert_eq!(shown("", 20), part("", 0));
        assert_eq!(shown("0123456789", 11), part("0123456789", 10));
        assert_eq!(shown("0123456789", 10), part("…23456789", 9));
        assert_eq!(shown("0123456789\x01", 10), part("0123456789", 0));
        assert_eq!(shown("0123456789x\x01", 10), part("012345678…", 0));
        assert_eq!(shown("0123456789abcdef\x1b[D\x1b[D\x1b[D\x1b[D", 10), part("…6789abcd…", 7));
        assert_eq!(shown("日本語日本語", 10), part("…語日本語", 9));
        assert_eq!(shown("日本語日本語", 9), part("…日本語", 7));
        assert_eq!(shown("日本", 3), part("本", 2));
        assert_eq!(shown("\x1b[200~a\nb\tc\u{202e}\x1b[201~", 20), part("a↵b c·", 6));
    }

    proptest! {
        /// Whatever is typed, the cursor is in the text and on the screen, and what is shown is a part of the text.
        #[test]
        fn c_33_17_what_is_shown_is_a_window_of_the_text(
            bytes in prop::collection::vec(
                prop_oneof![any::<u8>(), prop::sample::select(b"\x1b[DC\x01\x02\x7f".to_vec())],
                0..60,
            ),
            text in "[a日\u{301}👩\u{200d}\n ]{0,40}",
            columns in 1..30_usize,
        ) {
            let mut editor = typed(&format!("\x1b[200~{text}\x1b[201~"));
            for key in KeyDecoder::default().decode(&bytes) {
                editor.apply(key);
            }
            prop_assert!(editor.text.is_char_boundary(editor.cursor));
            let window = editor.window(columns);
            prop_assert!(window.cursor_column < columns);
            prop_assert!(display_width(&window.text) <= columns, "{:?} in {columns}", window.text);
            let all: String = editor.text.chars().map(shown_char).collect();
            let part = window.text.strip_prefix(CUT).unwrap_or(&window.text);
            let part = part.strip_suffix(CUT).unwrap_or(part);
            prop_assert!(all.contains(part), "{part:?} in {all:?}");
            if display_width(&all) < columns {
                prop_assert_eq!(all, window.text);
            }
        }

        /// The part before the cursor is what is to the left of it.
        #[test]
        fn c_33_17_the_cursor_is_where_the_next_character_appears(
            before in "[ab日]{0,30}", after in "[cd語]{0,30}", columns in 3..30_usize,
        ) {
            let editor = LineEditor { cursor: before.len(), text: before.clone() + &after };
            let window = editor.window(columns);
            let mut typed = editor.clone();
            typed.apply(Key::Char('X'));
            let next = typed.window(columns);
            let at = next.text.find('X').map(|at| display_width(&next.text[..at]));
            prop_assert_eq!(at.map(|at| at + 1), Some(next.cursor_column));
            prop_assert!(window.cursor_column < columns);
        }
    }
}
