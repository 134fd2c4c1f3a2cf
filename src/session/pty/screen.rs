//! What a person would see: the screen that a program's output draws, and its text without control sequences.

use super::ring::Ring;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;
use vt100::Callbacks;

/// The columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Size {
    pub cols: NonZeroU16,
    pub rows: NonZeroU16,
}

impl Size {
    /// That of a terminal of which nothing else is known.
    pub const USUAL: Self =
        Self { cols: vt100::Parser::DEFAULT_COLS, rows: vt100::Parser::DEFAULT_ROWS };
}

/// A screen as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its rows, without the blanks at their ends and the empty rows at its end.
    pub screen: String,
    /// Where the cursor stands; none when it is hidden.
    pub cursor: Option<Place>,
    /// The parts in inverse video: what is selected, and status lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlighted: Vec<Highlight>,
    /// Its size.
    #[serde(flatten)]
    pub size: Size,
}

/// A place on the screen; the first row and the first column are 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its row.
    pub row: u16,
    /// Its column.
    pub col: u16,
}

/// A part of a row in inverse video.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Highlight {
    /// The row.
    pub row: u16,
    /// The part.
    pub text: String,
}

/// A terminal without a window.
pub(super) struct Terminal {
    screen: vt100::Parser<Answers>,
    parser: vte::Parser,
    /// Whether the cursor was set to the beginning of its line.
    returned: bool,
    /// How often something may have changed.
    version: u64,
}

/// What another terminal shows of a screen.
pub(super) struct Painted {
    screen: vt100::Screen,
    version: u64,
}

impl Terminal {
    pub(super) fn new(size: Size) -> Self {
        let screen = vt100::Parser::new_with_callbacks(size.rows, size.cols, 0, Answers::default());
        Self { screen, parser: vte::Parser::new(), returned: false, version: 0 }
    }

    /// Draws what a program printed, and adds its text to `text`. Gives what a terminal answers.
    pub(super) fn draw(&mut self, output: &[u8], text: &mut Ring) -> Vec<u8> {
        self.version += 1;
        self.screen.process(output);
        self.parser.advance(&mut Plain { text, returned: &mut self.returned }, output);
        std::mem::take(&mut self.screen.callbacks_mut().0)
    }

    pub(super) fn resize(&mut self, size: Size) {
        self.version += 1;
        self.screen.set_size(size.rows, size.cols);
    }

    pub(super) fn size(&self) -> Size {
        let (rows, cols) = self.screen.screen().size();
        Size { cols, rows }
    }

    /// Whether the program asked for the other form of the cursor keys.
    pub(super) fn application_cursor(&self) -> bool {
        self.screen.screen().application_cursor()
    }

    /// What draws this screen on another terminal of its size, over what that shows already.
    pub(super) fn paint(&self, painted: &mut Option<Painted>) -> Vec<u8> {
        let (screen, version) = (self.screen.screen(), self.version);
        let drawn = match painted {
            Some(painted) if painted.version == version => return Vec::new(),
            Some(Painted { screen: before, .. }) if before.size() == screen.size() => {
                screen.state_diff(before)
            }
            _ => screen.state_formatted(),
        };
        *painted = Some(Painted { screen: screen.clone(), version });
        drawn.into_bytes()
    }

    /// The text of the screen, and the same with the rows joined that are one line.
    pub(super) fn texts(&self) -> [String; 2] {
        let screen = self.screen.screen();
        [self.rows().join("\n"), screen.contents()]
    }

    pub(super) fn shown(&self) -> Shown {
        let screen = self.screen.screen();
        let mut rows = self.rows();
        let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
        rows.truncate(used);
        let (row, col) = screen.cursor_position();
        Shown {
            screen: rows.join("\n"),
            cursor: (!screen.hide_cursor()).then(|| Place { row: row + 1, col: col + 1 }),
            highlighted: self.highlighted(),
            size: self.size(),
        }
    }

    fn rows(&self) -> Vec<String> {
        let Size { cols, .. } = self.size();
        let rows = self.screen.screen().rows(0, cols.get());
        rows.map(|row| row.trim_end().to_owned()).collect()
    }

    fn highlighted(&self) -> Vec<Highlight> {
        let (screen, size) = (self.screen.screen(), self.size());
        let mut found = Vec::new();
        for row in 0..size.rows.get() {
            let mut text = String::new();
            // One more than there are, which ends the last part.
            for col in 0..=size.cols.get() {
                match screen.cell(row, col).filter(|cell| cell.inverse()) {
                    Some(cell) if cell.is_wide_continuation() => {}
                    Some(cell) if cell.has_contents() => text.push_str(cell.contents()),
                    Some(_) => text.push(' '),
                    None => {
                        let part = std::mem::take(&mut text).trim().to_owned();
                        if !part.is_empty() {
                            found.push(Highlight { row: row + 1, text: part });
                        }
                    }
                }
            }
        }
        found
    }
}

/// What a terminal answers when it is asked what it is and where its cursor stands: programs wait for it.
#[derive(Default)]
struct Answers(Vec<u8>);

impl Callbacks for Answers {
    fn unhandled_csi(
        &mut self,
        screen: &mut vt100::Screen,
        first: Option<u8>,
        second: Option<u8>,
        params: &[&[u16]],
        last: char,
    ) {
        let number = params.first().and_then(|param| param.first()).copied().unwrap_or(0);
        let answer = match (first, second, last, number) {
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
        self.0.extend(answer.into_bytes());
    }
}

/// Writes the text of an output. What moves the cursor to another row ends a line, what moves it back takes a character
/// back: it is then printed again.
struct Plain<'a> {
    text: &'a mut Ring,
    returned: &'a mut bool,
}

impl Plain<'_> {
    fn end_line(&mut self) {
        if self.text.last().is_some_and(|byte| byte != b'\n') {
            self.text.push(b"\n");
        }
    }
}

impl vte::Perform for Plain<'_> {
    fn print(&mut self, character: char) {
        // Output that begins a line anew, such as that of a progress bar.
        if std::mem::take(self.returned) {
            self.end_line();
        }
        self.text.push(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\r' => *self.returned = true,
            b'\n' => {
                *self.returned = false;
                self.text.push(b"\n");
            }
            b'\t' => self.text.push(b"\t"),
            0x08 => self.text.pop_character(),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &vte::Params, first: &[u8], _ignored: bool, last: char) {
        match (first, last) {
            ([], 'A' | 'B' | 'E' | 'F' | 'H' | 'd' | 'f') => self.end_line(),
            ([], 'C') if !*self.returned => {
                let count = params.iter().next().and_then(|it| it.first().copied()).unwrap_or(1);
                self.text.push(&vec![b' '; usize::from(count.clamp(1, 200))]);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(cols: u16, rows: u16) -> Size {
        Size { cols: NonZeroU16::new(cols).unwrap(), rows: NonZeroU16::new(rows).unwrap() }
    }

    fn drawn(output: &[u8]) -> (Terminal, String, String) {
        let (mut terminal, mut text) = (Terminal::new(size(10, 4)), Ring::default());
        let answers = terminal.draw(output, &mut text);
        let plain = String::from_utf8(text.bytes()).unwrap();
        (terminal, plain, String::from_utf8(answers).unwrap())
    }

    #[test]
    fn c_14_5_the_screen_is_what_a_person_sees() {
        let (terminal, _, _) =
            drawn(b"gone\x1b[2J\x1b[2;3H\x1b[31mred\x1b[0m\x1b[4;1H\x1b[7mbar \x1b[0m\xe4\xbd\xa0");
        let shown = terminal.shown();
        assert_eq!(shown.screen, "\n  red\n\nbar 你");
        assert_eq!(shown.cursor, Some(Place { row: 4, col: 7 }));
        assert_eq!(shown.highlighted, [Highlight { row: 4, text: "bar".to_owned() }]);
        assert_eq!(drawn(b"\x1b[?25l").0.shown().cursor, None);
        let lines = drawn(b"0123456789abc").0.texts();
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
            ("one\x1b[2;1Htwo", "one\ntwo"),
            ("\x1b]0;title\x07text\x07", "text"),
            ("a\x1b[2Cb", "a  b"),
        ] {
            assert_eq!(drawn(output.as_bytes()).1, text, "{output:?}");
        }
    }

    #[test]
    fn c_14_5_another_terminal_shows_the_same_and_no_more() {
        let (mut terminal, mut text, mut painted) =
            (Terminal::new(size(10, 4)), Ring::default(), None);
        let mut other = Terminal::new(size(10, 4));
        for output in [
            &b"one\x1b]0;title\x07\x1b]52;c;YQ==\x07"[..],
            b"\r\n\x1b[7mtwo\x1b[0m",
            b"\x1b[?1049h\x1b[2Jvim\x1b[?25l",
            b"\x1b[?1049l",
            b"",
        ] {
            terminal.draw(output, &mut text);
            let drawn = terminal.paint(&mut painted);
            assert!(!drawn.windows(2).any(|two| two == b"\x1b]"), "{drawn:?}");
            other.draw(&drawn, &mut text);
            assert_eq!(other.shown(), terminal.shown());
            assert_eq!(terminal.paint(&mut painted), b"");
        }
        assert_eq!(terminal.shown().screen, "one\ntwo");
    }

    #[test]
    fn c_14_5_a_terminal_answers() {
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
            let (mut terminal, mut text) = (Terminal::new(size(80, 24)), Ring::default());
            let mut painted = None;
            for (piece, code) in pieces.iter().zip(&codes) {
                terminal.draw(piece, &mut text);
                terminal.resize(size(cols, rows));
                terminal.draw(code.as_bytes(), &mut text);
                terminal.shown();
                terminal.resize(size(7, 3));
                terminal.draw(code.as_bytes(), &mut text);
                terminal.texts();
                terminal.paint(&mut painted);
            }
        }
    }
}
