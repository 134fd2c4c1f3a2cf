//! Lines at the end of the terminal that are repainted in place. Pure: returns what to write.
//!
//! The cursor is after the last line, so that an echoed `^C` is erased with it, unless the last line is one of input.

use anstream::adapter::strip_str;
use delta_base::terminal::StderrSize;
use delta_base::text::text_width::wrapped_height;

/// The columns of an echoed `^C`.
const ECHO_COLUMNS: usize = 2;

/// The lines of the region, as they are on the screen.
#[derive(Debug, Default)]
pub(super) struct ScreenRegion {
    rows: Vec<String>,
    /// The column of the cursor in the last line, if it is not after it.
    cursor: Option<usize>,
}

impl ScreenRegion {
    /// As [`ScreenRegion::repaint`], with the cursor in a column of the last line.
    pub(super) fn repaint_with_cursor(
        &mut self,
        rows: &[String],
        cursor: Option<usize>,
        size: StderrSize,
    ) -> String {
        let mut out = String::new();
        if self.first_change(rows) < self.rows.len().max(rows.len()) {
            out = self.repaint(rows, size);
        }
        if cursor != self.cursor
            && let Some(column) = cursor
        {
            out.push('\r');
            if column > 0 {
                out.push_str(&format!("\x1b[{column}C"));
            }
        }
        self.cursor = cursor;
        out
    }

    /// The sequence that replaces the lines of the region by `rows`; empty if they are the same. Lines that have left the
    /// screen stay as they are.
    pub(super) fn repaint(&mut self, rows: &[String], size: StderrSize) -> String {
        let has_cursor = self.cursor.is_some();
        let first = self.first_change(rows);
        if first == self.rows.len() && first == rows.len() && !has_cursor {
            return String::new();
        }
        // The cursor needs a line to stay on.
        let mut first = first.min(rows.len().saturating_sub(1)).max(self.first_reachable(size));
        if has_cursor {
            // What is written starts at the cursor.
            first = first.min(self.rows.len().saturating_sub(1));
        }
        let mut out = String::new();
        if has_cursor {
            out.push_str(&self.move_to(first, size));
            out.push_str(&rows.get(first..).unwrap_or_default().join("\n"));
        } else if first == self.rows.len() {
            if !self.rows.is_empty() {
                out.push('\n');
            }
            out.push_str(&rows.get(first..).unwrap_or_default().join("\n"));
        } else if let Some(added) = self.added_to_last(first, rows) {
            out.push_str(added);
            rows[first + 1..].iter().for_each(|row| out.extend(["\n", row]));
        } else {
            out.push_str(&self.move_to(first, size));
            out.push_str(&rows.get(first..).unwrap_or_default().join("\n"));
        }
        self.rows = rows.to_vec();
        self.cursor = None;
        out
    }

    /// Forgets the lines, which another program may have moved.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// What was added to the end of the last line, if only that changes from line `first` on.
    fn added_to_last<'r>(&self, first: usize, rows: &'r [String]) -> Option<&'r str> {
        let last = self.rows.last().filter(|_| first + 1 == self.rows.len())?;
        rows.get(first)?.strip_prefix(last.as_str())
    }

    /// The sequence that leaves the lines on the screen and starts a new line; the region is empty then.
    pub(super) fn settle(&mut self) -> &'static str {
        self.cursor = None;
        if std::mem::take(&mut self.rows).is_empty() { "" } else { "\n" }
    }

    /// The sequence that writes the last line again, without an echoed `^C` after it; empty if the echo may be in the next
    /// line of the terminal.
    pub(super) fn erase_echo(&self, size: StderrSize) -> String {
        let room = StderrSize { columns: size.columns.saturating_sub(ECHO_COLUMNS), ..size };
        let last = self.rows.last().filter(|row| row_height(row, room) == 1);
        last.map_or_else(String::new, |row| format!("\r\x1b[2K{row}"))
    }

    /// Whether [`ScreenRegion::repaint`] can show exactly `rows`.
    pub(super) fn can_show(&self, rows: &[String], size: StderrSize) -> bool {
        let first = self.first_change(rows);
        first == self.rows.len() || first >= self.first_reachable(size)
    }

    /// The index of the first line that differs.
    fn first_change(&self, rows: &[String]) -> usize {
        self.rows.iter().zip(rows).take_while(|(old, new)| old == new).count()
    }

    /// The index of the first line that the cursor can reach.
    fn first_reachable(&self, size: StderrSize) -> usize {
        let mut height = 0;
        let reachable = self.rows.iter().rev().take_while(|row| {
            height += row_height(row, size);
            height <= size.lines
        });
        self.rows.len() - reachable.count()
    }

    /// The sequence that moves to the start of line `first` and erases everything after it.
    fn move_to(&self, first: usize, size: StderrSize) -> String {
        let Some((last, rows)) = self.rows[first..].split_last() else { return "\r".to_owned() };
        let height_above: usize = rows.iter().map(|row| row_height(row, size)).sum();
        let height = height_above
            + match self.cursor {
                // The line of input is broken where the terminal was made narrower.
                Some(column) => column / size.columns.max(1) + 1,
                None => row_height(last, size),
            };
        match height {
            1 if self.cursor.is_some() => "\r\x1b[J".to_owned(),
            0 | 1 => "\r\x1b[2K".to_owned(),
            height => format!("\r\x1b[{}A\x1b[J", height - 1),
        }
    }
}

/// The lines of the terminal that a line of the region takes, also after the terminal was made narrower.
pub(super) fn row_height(row: &str, size: StderrSize) -> usize {
    wrapped_height(&strip_str(row).to_string(), size.columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: StderrSize = StderrSize { columns: 10, lines: 6 };

    /// What a terminal shows after each sequence.
    struct Shown(vt100::Parser);

    impl Shown {
        fn new() -> Self {
            let size = |count: usize| u16::try_from(count).unwrap().try_into().unwrap();
            let mut parser = vt100::Parser::new(size(SIZE.lines), size(SIZE.columns), 0);
            parser.process(b"before\r\n");
            Self(parser)
        }

        fn process(&mut self, sequence: &str) {
            // As a terminal does with the output of a program.
            self.0.process(sequence.replace('\n', "\r\n").as_bytes());
        }

        fn text(&self) -> String {
            self.0.screen().contents()
        }
    }

    fn rows(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn c_25_4_growing_text_is_only_added() {
        let mut region = ScreenRegion::default();
        assert_eq!(region.repaint(&rows(&["a"]), SIZE), "a");
        assert_eq!(region.repaint(&rows(&["ab"]), SIZE), "b");
        assert_eq!(region.repaint(&rows(&["ab", "c"]), SIZE), "\nc");
        assert_eq!(region.repaint(&rows(&["ab", "c"]), SIZE), "");
        assert_eq!(region.repaint(&rows(&["ab", "x"]), SIZE), "\r\x1b[2Kx");
        assert_eq!(region.repaint(&rows(&["b"]), SIZE), "\r\x1b[1A\x1b[Jb");
        assert_eq!(region.repaint(&[], SIZE), "\r\x1b[2K");
        assert_eq!(region.settle(), "");
    }

    proptest! {
        /// However the rows change, the screen shows exactly them, after what was there before.
        #[test]
        fn c_25_4_the_screen_has_the_rows_of_the_last_repaint(
            updates in prop::collection::vec(prop::collection::vec("[a日]{0,8}", 0..3), 1..8),
        ) {
            let mut shown = Shown::new();
            let mut region = ScreenRegion::default();
            for update in &updates {
                shown.process(&region.repaint(update, SIZE));
            }
            let end = format!("{}end", region.settle());
            shown.process(&end);
            // A row of up to eight wide characters takes two lines.
            let lines = updates.last().unwrap().iter().map(String::as_str);
            let text: Vec<&str> = ["before"].into_iter().chain(lines).chain(["end"]).collect();
            prop_assert_eq!(shown.text().replace('\n', ""), text.concat());
        }
    }

    proptest! {
        /// The same with a line of input below the rows, in which the cursor is.
        #[test]
        fn c_33_17_the_cursor_is_in_the_line_of_input(
            updates in prop::collection::vec(
                (prop::collection::vec("[a日]{0,8}", 0..3), prop::option::of(("[b]{0,8}", 0..9_usize))),
                1..8,
            ),
        ) {
            let mut shown = Shown::new();
            let mut region = ScreenRegion::default();
            for (update, input) in &updates {
                let mut all = update.clone();
                all.extend(input.iter().map(|(text, _)| text.clone()));
                let cursor = input.as_ref().map(|(text, at)| text.len().min(*at));
                shown.process(&region.repaint_with_cursor(&all, cursor, SIZE));
                if let Some(cursor) = cursor {
                    let (_, column) = shown.0.screen().cursor_position();
                    prop_assert_eq!(usize::from(column), cursor);
                }
            }
            let last = &updates.last().unwrap().0;
            shown.process(&region.repaint_with_cursor(last, None, SIZE));
            let end = format!("{}end", region.settle());
            shown.process(&end);
            let lines = last.iter().map(String::as_str);
            let text: Vec<&str> = ["before"].into_iter().chain(lines).chain(["end"]).collect();
            prop_assert_eq!(shown.text().replace('\n', ""), text.concat());
        }
    }

    #[test]
    fn c_25_4_an_echoed_interrupt_is_erased() {
        for row in ["12345678", ""] {
            let mut region = ScreenRegion::default();
            let mut shown = Shown::new();
            shown.process(&region.repaint(&rows(&[row]), SIZE));
            shown.process("^C");
            shown.process(&region.erase_echo(SIZE));
            let end = format!("{}end", region.settle());
            shown.process(&end);
            assert_eq!(shown.text(), format!("before\n{row}\nend"));
        }
        let mut region = ScreenRegion::default();
        region.repaint(&rows(&["123456789"]), SIZE);
        assert_eq!(region.erase_echo(SIZE), "", "the echo is in the next line");
    }

    #[test]
    fn c_25_4_what_has_left_the_screen_is_not_repainted() {
        let mut region = ScreenRegion::default();
        let mut shown = Shown::new();
        let lines: Vec<String> = (0..9).map(|number| format!("line {number}")).collect();
        shown.process(&region.repaint(&lines, SIZE));
        let mut changed = lines.clone();
        changed[0] = "gone".to_owned();
        assert!(!region.can_show(&changed, SIZE));
        changed[0].clone_from(&lines[0]);
        changed[8] = "last".to_owned();
        assert!(region.can_show(&changed, SIZE));
        shown.process(&region.repaint(&changed, SIZE));
        assert_eq!(shown.text(), "line 3\nline 4\nline 5\nline 6\nline 7\nlast");
        shown.process(&region.repaint(&[], SIZE));
        assert_eq!(shown.text(), "");
    }
}
