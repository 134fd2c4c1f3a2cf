//! What a person at the terminal would see: the screen that a program's output draws, and the text without control
//! sequences.

use super::ring::OutputRing;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::num::NonZeroU16;
use vt100::Callbacks;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TerminalSize {
    pub(crate) cols: NonZeroU16,
    pub(crate) rows: NonZeroU16,
}

impl TerminalSize {
    pub(crate) const DEFAULT: Self =
        Self { cols: vt100::Parser::DEFAULT_COLS, rows: vt100::Parser::DEFAULT_ROWS };
}

/// A screen as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ScreenContents {
    /// The rows, without blanks at their ends and empty rows at the end.
    pub(super) screen: String,
    /// Nothing when the cursor is hidden.
    pub(super) cursor: Option<CursorPosition>,
    /// The parts in inverse video, such as selections and status lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) highlighted: Vec<Highlight>,
    #[serde(flatten)]
    pub(super) size: TerminalSize,
}

/// A position on the screen. The first row and the first column are 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CursorPosition {
    pub(super) row: u16,
    pub(super) col: u16,
}

/// A part of a row in inverse video.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Highlight {
    pub(super) row: u16,
    pub(super) text: String,
}

/// A terminal without a window.
pub(super) struct VirtualTerminal {
    emulator: vt100::Parser<TerminalReplies>,
    text_parser: vte::Parser,
    line: TextLine,
    /// Changes whenever the screen may have changed.
    version: u64,
}

/// What another terminal shows of a screen.
pub(super) struct PaintedScreen {
    screen: vt100::Screen,
    version: u64,
}

impl VirtualTerminal {
    pub(super) fn new(size: TerminalSize) -> Self {
        Self {
            emulator: vt100::Parser::new_with_callbacks(
                size.rows,
                size.cols,
                0,
                TerminalReplies::default(),
            ),
            text_parser: vte::Parser::new(),
            line: TextLine::default(),
            version: 0,
        }
    }

    /// Draws what a program printed and adds its text to `text`. Returns the terminal's replies to the program.
    pub(super) fn process_output(&mut self, output: &[u8], text: &mut OutputRing) -> Vec<u8> {
        self.version += 1;
        // A piece begins with the only character of it that depends on where the cursor is.
        for piece in output.chunk_by(|_, next| !next.is_ascii_control()) {
            let size = self.size();
            let cursor = self.emulator.screen().cursor_position();
            let line = &mut self.line;
            self.text_parser.advance(&mut PlainTextWriter { text, line, cursor, size }, piece);
            self.emulator.process(piece);
        }
        std::mem::take(&mut self.emulator.callbacks_mut().0)
    }

    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.version += 1;
        self.emulator.set_size(size.rows, size.cols);
    }

    pub(super) fn size(&self) -> TerminalSize {
        let (rows, cols) = self.emulator.screen().size();
        TerminalSize { cols, rows }
    }

    /// Whether the program set application cursor mode.
    pub(super) fn application_cursor(&self) -> bool {
        self.emulator.screen().application_cursor()
    }

    /// The output that draws this screen on another terminal of its size, which shows `painted`.
    pub(super) fn paint(&self, painted: &mut Option<PaintedScreen>) -> Vec<u8> {
        let version = self.version;
        let screen = self.emulator.screen();
        let output = match painted {
            Some(painted) if painted.version == version => return Vec::new(),
            Some(PaintedScreen { screen: before, .. }) if before.size() == screen.size() => {
                screen.state_diff(before)
            }
            _ => screen.state_formatted(),
        };
        *painted = Some(PaintedScreen { screen: screen.clone(), version });
        output.into_bytes()
    }

    /// The text of the screen, and the same with wrapped lines joined.
    pub(super) fn searchable_texts(&self) -> [String; 2] {
        [self.text_rows().join("\n"), self.emulator.screen().contents()]
    }

    pub(super) fn contents(&self) -> ScreenContents {
        let screen = self.emulator.screen();
        let mut rows = self.text_rows();
        let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
        rows.truncate(used);
        let (row, col) = screen.cursor_position();
        let cursor = CursorPosition { row: row + 1, col: col + 1 };
        ScreenContents {
            screen: rows.join("\n"),
            cursor: (!screen.hide_cursor()).then_some(cursor),
            highlighted: self.highlighted(),
            size: self.size(),
        }
    }

    fn text_rows(&self) -> Vec<String> {
        let rows = self.emulator.screen().rows(0, self.size().cols.get());
        rows.map(|row| row.trim_end().to_owned()).collect()
    }

    fn highlighted(&self) -> Vec<Highlight> {
        let TerminalSize { cols, rows } = self.size();
        let mut highlights = Vec::new();
        for row in 0..rows.get() {
            let mut text = String::new();
            // The column after the last one ends the last part.
            for col in 0..=cols.get() {
                let cell = self.emulator.screen().cell(row, col);
                match cell.filter(|cell| cell.inverse()) {
                    Some(cell) if cell.is_wide_continuation() => {}
                    Some(cell) if cell.has_contents() => text.push_str(cell.contents()),
                    Some(_) => text.push(' '),
                    None => {
                        let part = std::mem::take(&mut text).trim().to_owned();
                        if !part.is_empty() {
                            highlights.push(Highlight { row: row + 1, text: part });
                        }
                    }
                }
            }
        }
        highlights
    }
}

/// Replies to queries for the terminal's type, size and cursor position. Programs wait for them.
#[derive(Default)]
struct TerminalReplies(Vec<u8>);

impl Callbacks for TerminalReplies {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        params: &[&[u16]],
        last: char,
    ) {
        let number = params.first().and_then(|param| param.first()).copied().unwrap_or(0);
        let reply = match (first, second, last, number) {
            (None, None, 'n', 5) => "\x1b[0n".to_owned(),
            (None, None, 'n', 6) => {
                let (row, col) = screen.cursor_position();
                format!("\x1b[{};{}R", row + 1, col + 1)
            }
            // A VT220 with colours.
            (None, None, 'c', 0) => "\x1b[?62;22c".to_owned(),
            (Some(b'>'), None, 'c', 0) => "\x1b[>1;10;0c".to_owned(),
            (None, None, 't', 18) => {
                let (rows, cols) = screen.size();
                format!("\x1b[8;{rows};{cols}t")
            }
            _ => return,
        };
        self.0.extend(reply.into_bytes());
    }
}

/// Where the cursor is in the line that a program prints.
#[derive(Default)]
struct TextLine {
    /// Whether the cursor has returned to the beginning of the line.
    after_carriage_return: bool,
    /// The column after the line, if the cursor has returned to its beginning.
    end_column: u16,
    /// What the line has from the cursor on: the cursor was moved back over it.
    rest: VecDeque<char>,
    /// How many columns without a character are before the cursor. They become blanks if a character follows.
    gap: u16,
    /// The last character that was printed.
    last_printed: Option<char>,
    /// The row and column of the cursor that the program has saved.
    saved_cursor: Option<(u16, u16)>,
}

/// Writes the text of an output. Moving the cursor to another row ends a line; moving it back lets the program print over a
/// part of the line, of which the rest stays.
struct PlainTextWriter<'a> {
    text: &'a mut OutputRing,
    line: &'a mut TextLine,
    /// The row and column of the cursor before the output, from 0.
    cursor: (u16, u16),
    size: TerminalSize,
}

impl PlainTextWriter<'_> {
    fn push(&mut self, character: char) {
        for _ in 0..std::mem::take(&mut self.line.gap) {
            self.text.push(b" ");
        }
        self.text.push(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn push_rest(&mut self) {
        while let Some(character) = self.line.rest.pop_front() {
            self.push(character);
        }
        self.line.gap = 0;
    }

    fn end_line(&mut self) {
        self.push_rest();
        if self.text.last_byte().is_some_and(|byte| byte != b'\n') {
            self.text.push(b"\n");
        }
    }

    fn return_to_beginning(&mut self) {
        if !self.line.after_carriage_return {
            let width = u16::try_from(self.line.rest.len()).unwrap_or(u16::MAX);
            self.line.end_column = self.cursor.1.saturating_add(width);
        }
        self.push_rest();
        self.line.after_carriage_return = true;
    }

    fn move_back(&mut self, count: u16) {
        let skipped = count.min(self.line.gap);
        self.line.gap -= skipped;
        for _ in 0..count - skipped {
            let Some(character) = self.text.pop_character() else { return };
            self.line.rest.push_front(character);
        }
    }

    fn move_on(&mut self, count: u16) {
        for _ in 0..count.min(MAX_ADDED) {
            match self.line.rest.pop_front() {
                Some(character) => self.push(character),
                None => self.line.gap = (self.line.gap + 1).min(MAX_ADDED),
            }
        }
    }

    /// Moves the cursor in its row.
    fn move_to_column(&mut self, column: u16) {
        if column == 0 {
            return self.return_to_beginning();
        }
        let is_at_beginning = std::mem::take(&mut self.line.after_carriage_return);
        let current = if is_at_beginning { self.line.end_column } else { self.cursor.1 };
        if column < current {
            self.move_back(current - column);
        } else {
            self.move_on(column - current);
        }
    }

    /// Moves the cursor to a row and a column, from 0.
    fn move_to(&mut self, row: u16, column: u16) {
        let TerminalSize { cols, rows } = self.size;
        if row.min(rows.get() - 1) == self.cursor.0 {
            self.move_to_column(column.min(cols.get() - 1));
        } else {
            self.line.after_carriage_return = false;
            self.end_line();
        }
    }

    fn restore_cursor(&mut self) {
        let (row, column) = self.line.saved_cursor.unwrap_or_default();
        self.move_to(row, column);
    }

    /// Erases what the line has before the cursor.
    fn erase_before(&mut self) {
        if self.line.after_carriage_return {
            return;
        }
        let mut erased = self.line.gap;
        while self.text.pop_character().is_some() {
            erased = erased.saturating_add(1);
        }
        self.line.gap = erased.min(MAX_ADDED);
        self.line.rest.iter_mut().take(1).for_each(|it| *it = ' ');
    }

    /// Erases what the line has from the cursor on.
    fn erase_after(&mut self) {
        if self.line.after_carriage_return {
            while self.text.pop_character().is_some() {}
            self.line.end_column = 0;
        }
        self.line.rest.clear();
    }
}

/// The most characters that a movement to the right or a repetition adds.
const MAX_ADDED: u16 = 1000;

impl vte::Perform for PlainTextWriter<'_> {
    fn print(&mut self, character: char) {
        // The program overwrites its line, as a progress bar does.
        if std::mem::take(&mut self.line.after_carriage_return) {
            self.end_line();
        }
        self.line.rest.pop_front();
        self.push(character);
        self.line.last_printed = Some(character);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\r' => self.return_to_beginning(),
            b'\n' => {
                self.line.after_carriage_return = false;
                self.push_rest();
                self.text.push(b"\n");
            }
            b'\t' => {
                self.push_rest();
                self.text.push(b"\t");
            }
            0x08 => self.move_back(1),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &vte::Params, first: &[u8], _ignored: bool, last: char) {
        let mut numbers = params.iter().map(|it| it.first().copied().unwrap_or(0));
        let number = numbers.next().unwrap_or(0);
        let second = numbers.next().unwrap_or(0);
        let count = number.max(1);
        let rest = &mut self.line.rest;
        match (first, last) {
            ([], 'A' | 'B' | 'E' | 'F') => self.end_line(),
            ([], 'H' | 'f') => self.move_to(count - 1, second.max(1) - 1),
            ([], 'd') => self.move_to(count - 1, self.cursor.1),
            ([], 'G' | '`') => self.move_to(self.cursor.0, count - 1),
            ([], 'C') if !self.line.after_carriage_return => self.move_on(count),
            ([], 'D') if !self.line.after_carriage_return => self.move_back(count),
            ([], 'K' | 'J') if number == 0 => self.erase_after(),
            ([], 'K') if number == 1 => self.erase_before(),
            ([], 'K') if number == 2 => {
                self.erase_after();
                self.erase_before();
            }
            ([], 'P') => drop(rest.drain(..usize::from(count).min(rest.len()))),
            ([], 'X') => rest.iter_mut().take(usize::from(count)).for_each(|it| *it = ' '),
            ([], '@') if !rest.is_empty() => {
                (0..count.min(MAX_ADDED)).for_each(|_| rest.push_front(' '));
            }
            ([], 'b') => {
                let Some(character) = self.line.last_printed else { return };
                (0..count.min(MAX_ADDED)).for_each(|_| self.print(character));
            }
            ([], 's') => self.line.saved_cursor = Some(self.cursor),
            ([], 'u') => self.restore_cursor(),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, first: &[u8], _ignored: bool, last: u8) {
        match (first, last) {
            ([], b'D' | b'E' | b'M') => self.end_line(),
            ([], b'7') => self.line.saved_cursor = Some(self.cursor),
            ([], b'8') => self.restore_cursor(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cols: u16, rows: u16) -> TerminalSize {
        TerminalSize { cols: NonZeroU16::new(cols).unwrap(), rows: NonZeroU16::new(rows).unwrap() }
    }

    fn drawn(output: &[u8]) -> (VirtualTerminal, String, String) {
        let (mut terminal, mut text) = (VirtualTerminal::new(size(10, 4)), OutputRing::default());
        let replies = terminal.process_output(output, &mut text);
        let plain = String::from_utf8(text.contents()).unwrap();
        (terminal, plain, String::from_utf8(replies).unwrap())
    }

    #[test]
    fn c_14_5_the_screen_is_what_a_person_sees() {
        let (terminal, _, _) =
            drawn(b"gone\x1b[2J\x1b[2;3H\x1b[31mred\x1b[0m\x1b[4;1H\x1b[7mbar \x1b[0m\xe4\xbd\xa0");
        let contents = terminal.contents();
        assert_eq!(contents.screen, "\n  red\n\nbar 你");
        assert_eq!(contents.cursor, Some(CursorPosition { row: 4, col: 7 }));
        assert_eq!(contents.highlighted, [Highlight { row: 4, text: "bar".to_owned() }]);
        assert_eq!(drawn(b"\x1b[?25l").0.contents().cursor, None);
        let lines = drawn(b"0123456789abc").0.searchable_texts();
        assert_eq!(lines[0].trim_end(), "0123456789\nabc");
        assert_eq!(lines[1].trim_end(), "0123456789abc");
    }

    #[test]
    fn c_14_5_the_text_of_an_output_has_no_control_sequences() {
        for (output, text) in [
            ("\x1b[1mbold\x1b[0m\r\n", "bold\n"),
            ("10%\r20%\r\n", "10%\n20%\n"),
            ("\x1b[?2004h$ ls\r\n\x1b[?2004l\rfile\r\n", "$ ls\nfile\n"),
            ("abx\x08\x1b[Kc", "abc"),
            ("x\x08 \x08y", "y"),
            ("abc\x08\x08\x08XY\n", "XYc\n"),
            ("abc\x1b[2DX\r\nd", "aXc\nd"),
            ("abc\x08\x08\x1b[Pd\n", "ad\n"),
            ("abc\x08\x08\x1b[@d\n", "adbc\n"),
            ("abc\x08\x08\x1b[Xz\n", "azc\n"),
            ("abc\x08\x08\x1b[C\x1b[Cd", "abcd"),
            ("ä\x08ö", "ö"),
            ("a\n\x08\x08b", "a\nb"),
            ("one\x1b[2;1Htwo", "one\ntwo"),
            ("\x1b]0;title\x07text\x07", "text"),
            ("a\x1b[2Cb", "a  b"),
            // As npm, ora and the readline of node erase their line.
            ("load\x1b[2K\x1b[1Gdone", "done"),
            ("load\r\x1b[2Kdone\r\n", "done\n"),
            ("load\r\x1b[Kdone\r\n", "done\n"),
            ("load\x1b[1K\rdone\r\n", "done\n"),
            ("secret\x1b[2K\r\n", "\n"),
            ("secret\x1b[2Kx", "      x"),
            ("abc\x1b[D\x1b[1Kd", "  d"),
            ("name\x1b[8Gvalue", "name   value"),
            ("name\x1b[8`v", "name   v"),
            ("abc\x1b[2GX\r\n", "aXc\n"),
            ("name\r\x1b[7Gok\r\n", "name  ok\n"),
            ("name\r\x1b[2GX\r\n", "nXme\n"),
            ("a\x1b[3bX", "aaaaX"),
            ("a\x1b7bcd\x1b8X\r\n", "aXcd\n"),
            ("a\x1b[sbcd\x1b[uX\r\n", "aXcd\n"),
            ("a\x1b7\r\nb\x1b8X", "a\nb\nX"),
            ("one\r\nPass\x1b[2;5Hword", "one\nPassword"),
            ("one\r\nab\x1b[2dc\x1b[2;9fd", "one\nabc     d"),
            ("one\x1b[9;1Htwo", "one\ntwo"),
            ("one\x1bEtwo", "one\ntwo"),
            ("a\x1b[5C\r\nb", "a\nb"),
        ] {
            assert_eq!(drawn(output.as_bytes()).1, text, "{output:?}");
        }
    }

    #[test]
    fn c_14_5_another_terminal_shows_the_same_screen() {
        let (mut terminal, mut text, mut painted) =
            (VirtualTerminal::new(size(10, 4)), OutputRing::default(), None);
        let mut other = VirtualTerminal::new(size(10, 4));
        for output in [
            &b"one\x1b]0;title\x07\x1b]52;c;YQ==\x07"[..],
            b"\r\n\x1b[7mtwo\x1b[0m",
            b"\x1b[?1049h\x1b[2Jvim\x1b[?25l",
            b"\x1b[?1049l",
            b"",
        ] {
            terminal.process_output(output, &mut text);
            let drawn = terminal.paint(&mut painted);
            assert!(!drawn.windows(2).any(|two| two == b"\x1b]"), "{drawn:?}");
            other.process_output(&drawn, &mut text);
            assert_eq!(other.contents(), terminal.contents());
            assert_eq!(terminal.paint(&mut painted), b"");
        }
        assert_eq!(terminal.contents().screen, "one\ntwo");
    }

    #[test]
    fn c_14_5_a_terminal_replies_to_queries() {
        assert_eq!(drawn(b"ab\x1b[6n\x1b[c\x1b[5n").2, "\x1b[1;3R\x1b[?62;22c\x1b[0n");
        assert_eq!(drawn(b"\x1b[18t").2, "\x1b[8;4;10t");
    }

    proptest::proptest! {
        #[test]
        fn c_14_5_no_output_is_a_panic(
            pieces: Vec<Vec<u8>>,
            codes in proptest::collection::vec("(\\PC|[\\x08-\\x0d]|\x1b\\[[0-9]{0,5}(;[0-9]{0,5})?[@-~]|\x1b[78DEMc]){0,20}", 0..6),
            cols in 1u16..5,
            rows in 1u16..5,
        ) {
            let (mut terminal, mut text) = (VirtualTerminal::new(size(80, 24)), OutputRing::default());
            let mut painted = None;
            for (piece, code) in pieces.iter().zip(&codes) {
                terminal.process_output(piece, &mut text);
                terminal.resize(size(cols, rows));
                terminal.process_output(code.as_bytes(), &mut text);
                terminal.contents();
                terminal.resize(size(7, 3));
                terminal.process_output(code.as_bytes(), &mut text);
                terminal.searchable_texts();
                terminal.paint(&mut painted);
            }
        }
    }
}
