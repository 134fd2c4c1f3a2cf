//! The columns that text takes in a terminal, where some characters take two and some none.

use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// The distance of the tab stops.
const TAB_COLUMNS: usize = 8;

/// The column after `c` at `column`.
fn column_after(column: usize, c: char) -> usize {
    match c {
        '\t' => (column / TAB_COLUMNS + 1) * TAB_COLUMNS,
        c => column + char_width(c),
    }
}

/// The columns of a character; none for a control character.
pub(crate) fn char_width(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// `line` with spaces in place of its tabs, for text that does not start in the first column of the terminal.
pub fn expand_tabs(line: &str) -> Cow<'_, str> {
    if !line.contains('\t') {
        return Cow::Borrowed(line);
    }
    let mut column = 0;
    let mut out = String::with_capacity(line.len() + TAB_COLUMNS);
    for c in line.chars() {
        let next = column_after(column, c);
        if c == '\t' {
            out.extend(std::iter::repeat_n(' ', next - column));
        } else {
            out.push(c);
        }
        column = next;
    }
    Cow::Owned(out)
}

/// What a progress bar wrote last in a line: the text after the last carriage return that text follows.
pub fn last_overwrite(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rfind('\r').map_or(line, |at| &line[at + 1..])
}

/// The columns of a line without control sequences.
pub fn display_width(line: &str) -> usize {
    line.chars().fold(0, column_after)
}

/// The lines of a terminal of `columns` that a line takes: a terminal breaks a line that does not fit.
pub fn wrapped_height(line: &str, columns: usize) -> usize {
    let mut height = 1;
    let mut column = 0;
    for c in line.chars() {
        let next = column_after(column, c);
        if next <= columns {
            column = next;
        } else if c == '\t' {
            // A tab stops at the edge.
            column = columns;
        } else {
            height += 1;
            column = column_after(0, c);
        }
    }
    height
}

/// At most `room` columns of a line, ending in `…` if truncated.
pub fn clip_to_width(line: &str, room: usize) -> String {
    match offset_at(line, room) {
        None => line.to_owned(),
        Some(_) if room == 0 => String::new(),
        Some(_) => {
            let end = offset_at(line, room.saturating_sub(1)).unwrap_or(line.len());
            format!("{}…", &line[..end])
        }
    }
}

/// The end of a line that fits `width` columns; starts with `…` when something is left out.
pub fn clip_start_to_width(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_owned();
    }
    let boundaries = text.char_indices().map(|(index, _)| index).chain([text.len()]);
    let end = boundaries.map(|start| &text[start..]).find(|end| display_width(end) < width);
    end.map_or_else(String::new, |end| format!("…{end}"))
}

/// The offset of the first character that does not fit into `room` columns.
fn offset_at(line: &str, room: usize) -> Option<usize> {
    let mut column = 0;
    line.char_indices().find_map(|(offset, c)| {
        column = column_after(column, c);
        (column > room).then_some(offset)
    })
}

/// `line` split at spaces into pieces of at most `room` columns; a longer word stays whole.
pub fn wrap_words(line: &str, room: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some(end) = offset_at(rest, room) {
        let indent = rest.len() - rest.trim_start().len();
        let fits = rest[..end].rfind(' ').filter(|at| *at > indent);
        let blank = if rest[end..].starts_with(' ') { Some(end) } else { fits };
        let Some(at) = blank.or_else(|| rest[end..].find(' ').map(|at| end + at)) else { break };
        pieces.push(&rest[..at]);
        rest = rest[at..].trim_start();
    }
    pieces.push(rest);
    pieces
}

/// `text` in Markdown with its prose broken at spaces to at most `columns`; what continues an entry of a list is indented as
/// its text. Code in fences and tables stay as they are: a break would change what they say.
pub fn wrap_prose(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fence = None;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches('\n');
        let start = content.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        let is_code = fence.is_some() || mark.is_some();
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if is_code || start.starts_with('|') || display_width(content) <= columns {
            out.push_str(line);
            continue;
        }
        let indent = (content.len() - start.len() + list_mark_width(start)).min(columns / 2);
        let mut rows = wrap_words(content, columns).into_iter();
        out.extend(rows.next());
        let rest = rows.collect::<Vec<_>>().join(" ");
        for row in wrap_words(&rest, columns - indent).into_iter().filter(|row| !row.is_empty()) {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(row);
        }
        out.push_str(&line[content.len()..]);
    }
    out
}

/// The columns of a list's mark and the space after it (`- `, `12. `); 0 without one.
fn list_mark_width(line: &str) -> usize {
    let Some((mark, _)) = line.split_once(' ') else { return 0 };
    let number = mark.strip_suffix(['.', ')']).unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || matches!(mark, "-" | "*" | "+") { mark.len() + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_is_wrapped() {
        let wrapped = |text| wrap_prose(text, 12);
        assert_eq!(wrapped("one two three four\n"), "one two\nthree four\n");
        assert_eq!(wrapped("- one two three four"), "- one two\n  three four");
        assert_eq!(wrapped("10. one two three"), "10. one two\n    three");
        assert_eq!(wrapped("  * one two three\nx"), "  * one two\n    three\nx");
        assert_eq!(wrapped("```\none two three four\n```\n"), "```\none two three four\n```\n");
        assert_eq!(wrapped("~~~\n```\none two three four"), "~~~\n```\none two three four");
        assert_eq!(wrapped("| one | two | three |"), "| one | two | three |");
        assert_eq!(wrapped("https://a.example/b c"), "https://a.example/b\nc");
        assert_eq!(wrapped("日本語日本語日本語"), "日本語日本語日本語");
        assert_eq!(wrapped(""), "");
        assert_eq!(wrap_prose("- a b", 1), "-\na\nb");
    }

    #[test]
    fn prose_is_cut_at_blanks() {
        assert_eq!(wrap_words("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_words("one two three", 6), ["one", "two", "three"]);
        assert_eq!(wrap_words("    indented text", 8), ["    indented", "text"]);
        assert_eq!(wrap_words("https://a.example/long x", 5), ["https://a.example/long", "x"]);
        assert_eq!(wrap_words("äöü äöü", 3), ["äöü", "äöü"]);
        assert_eq!(wrap_words("日本 日本", 5), ["日本", "日本"]);
        assert_eq!(wrap_words("", 3), [""]);
    }

    #[test]
    fn a_line_that_is_cut_ends_with_an_ellipsis() {
        assert_eq!(clip_to_width("abc", 3), "abc");
        assert_eq!(clip_to_width("äöüß", 3), "äö…");
        assert_eq!(clip_to_width("日本語", 6), "日本語");
        assert_eq!(clip_to_width("日本語", 5), "日本…");
        assert_eq!(clip_to_width("日本語", 4), "日…");
    }

    #[test]
    fn c_25_7_a_line_is_cut_to_columns_and_not_to_characters() {
        assert_eq!(display_width("aé漢字"), 6);
        assert_eq!(clip_to_width("abc", 3), "abc");
        assert_eq!(clip_to_width("abcd", 3), "ab…");
        assert_eq!(clip_to_width("漢字漢字", 6), "漢字…");
        assert_eq!(clip_to_width("漢字漢字", 5), "漢字…");
        assert_eq!(clip_to_width("漢字漢字", 4), "漢…");
        assert_eq!((&*clip_to_width("ab", 1), &*clip_to_width("ab", 0)), ("…", ""));
        assert_eq!(clip_start_to_width("a/b/W001", 8), "a/b/W001");
        assert_eq!(clip_start_to_width("a/b/W001", 6), "…/W001");
        assert_eq!(clip_start_to_width("漢字漢字", 4), "…字");
        assert_eq!(clip_start_to_width("ab", 0), "");
    }

    #[test]
    fn c_25_7_tabs_are_columns_of_the_text_and_not_of_the_terminal() {
        assert_eq!(expand_tabs("ab"), "ab");
        assert_eq!(expand_tabs("\ta\tb"), "        a       b");
        assert_eq!(expand_tabs("日本\tx"), "日本    x");
        assert_eq!(expand_tabs("12345678\tx"), "12345678        x");
    }

    #[test]
    fn a_line_that_is_written_again_has_its_last_text() {
        for (line, expected) in
            [("ab", "ab"), ("ab\r", "ab"), ("10%\r50%\r99%", "99%"), ("a\rb\r\r", "b"), ("\r", "")]
        {
            assert_eq!(last_overwrite(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_terminal_breaks_lines_that_do_not_fit() {
        assert_eq!(wrapped_height("", 4), 1);
        assert_eq!(wrapped_height("abcd", 4), 1);
        assert_eq!(wrapped_height("abcde", 4), 2);
        // A wide character is not split.
        assert_eq!(wrapped_height("a日日", 4), 2);
        assert_eq!(wrapped_height("日日", 3), 2);
        assert_eq!(wrapped_height("a\tb", 4), 2);
        assert_eq!(wrapped_height("a\tb", 16), 1);
    }
}
