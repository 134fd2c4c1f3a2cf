//! The colours of a unified diff at a terminal, as git has them.

use anstyle::{AnsiColor, Style};

const HEADER: Style = Style::new().bold();
const HUNK: Style = AnsiColor::Cyan.on_default();
const ADDED: Style = AnsiColor::Green.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();

/// Paints the lines of a diff, one after the other: what a `-` means depends on the lines before it.
#[derive(Debug, Default)]
pub struct DiffPainter {
    /// The lines of the current hunk that follow, of the old and of the new text.
    remaining: [usize; 2],
}

impl DiffPainter {
    /// The line with its colours.
    pub fn paint(&mut self, line: &str) -> String {
        let style = self.style_of(line);
        style.map_or_else(|| line.to_owned(), |style| format!("{style}{line}{style:#}"))
    }

    fn style_of(&mut self, line: &str) -> Option<Style> {
        let [old, new] = &mut self.remaining;
        if *old + *new > 0 {
            return match line.as_bytes().first() {
                Some(b'+') => {
                    *new = new.saturating_sub(1);
                    Some(ADDED)
                }
                Some(b'-') => {
                    *old = old.saturating_sub(1);
                    Some(REMOVED)
                }
                // "\\ No newline at end of file" belongs to the line before it.
                Some(b'\\') => None,
                _ => {
                    *old = old.saturating_sub(1);
                    *new = new.saturating_sub(1);
                    None
                }
            };
        }
        if let Some(lengths) = hunk_lengths(line) {
            self.remaining = lengths;
            return Some(HUNK);
        }
        let starts = [
            "diff --git ",
            "--- ",
            "+++ ",
            "new file mode",
            "deleted file mode",
            "old mode",
            "new mode",
        ];
        starts.iter().any(|start| line.starts_with(start)).then_some(HEADER)
    }
}

/// The numbers of lines in the heading of a hunk, `@@ -1,7 +1,6 @@`.
fn hunk_lengths(line: &str) -> Option<[usize; 2]> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let length =
        |range: &str| range.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok());
    Some([length(old)?, length(new)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_hunk_are_not_taken_for_headers() {
        let diff =
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n--- a\n-b\n+++ c\n--- d\nplain";
        let mut painter = DiffPainter::default();
        let styles: Vec<Option<Style>> = diff.lines().map(|line| painter.style_of(line)).collect();
        let header = Some(HEADER);
        let expected = [
            header,
            header,
            header,
            Some(HUNK),
            Some(REMOVED),
            Some(REMOVED),
            Some(ADDED),
            header,
            None,
        ];
        assert_eq!(styles, expected);
    }
}
