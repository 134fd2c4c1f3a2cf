//! The difference of two texts, line by line.

use gix_imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::ops::Range;

/// What turns one text into another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineDiff {
    /// The hunks of a unified diff, without the two lines that name the files; empty if the texts are the same.
    pub hunks: String,
    /// Lines that only the second text has.
    pub added: usize,
    /// Lines that only the first text has.
    pub removed: usize,
}

impl LineDiff {
    /// Compares two texts, in about linear time, or if few lines occur very often, in about the time that git takes; each hunk
    /// has `context` lines before and after its changes.
    pub fn new(before: &str, after: &str, context: usize) -> Self {
        let input = InternedInput::new(before, after);
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let changes: Vec<LineChange> = diff.hunks().map(LineChange::from).collect();
        let before: Vec<&str> = before.split_inclusive('\n').collect();
        let after: Vec<&str> = after.split_inclusive('\n').collect();
        let groups =
            changes.chunk_by(|a, b| b.before.start.saturating_sub(a.before.end) <= 2 * context);
        let mut hunks = String::new();
        for group in groups {
            write_hunk(&mut hunks, group, [&before, &after], context);
        }
        Self {
            hunks,
            added: changes.iter().map(|change| change.after.len()).sum(),
            removed: changes.iter().map(|change| change.before.len()).sum(),
        }
    }

    /// A unified diff of two files with these names; empty if the texts are the same.
    pub fn with_names(&self, before: &str, after: &str) -> String {
        if self.hunks.is_empty() {
            return String::new();
        }
        format!("--- {before}\n+++ {after}\n{}", self.hunks)
    }
}

/// Lines of the first text that lines of the second one replace, counted from 0.
struct LineChange {
    before: Range<usize>,
    after: Range<usize>,
}

impl From<Hunk> for LineChange {
    fn from(hunk: Hunk) -> Self {
        let lines = |range: Range<u32>| range.start as usize..range.end as usize;
        Self { before: lines(hunk.before), after: lines(hunk.after) }
    }
}

/// Writes changes whose contexts touch, in the format of POSIX for `diff -u`.
fn write_hunk(out: &mut String, changes: &[LineChange], texts: [&[&str]; 2], context: usize) {
    let Some((first, last)) = changes.first().zip(changes.last()) else { return };
    let lead = context.min(first.before.start);
    let end = texts[0].len().min(last.before.end + context);
    let tail = end - last.before.end;
    let ranges = [first.before.start - lead..end, first.after.start - lead..last.after.end + tail];
    let [removed, added] = ranges.clone().map(describe_range);
    out.push_str(&format!("@@ -{removed} +{added} @@\n"));
    let mut next = ranges[0].start;
    for change in changes {
        write_lines(out, ' ', &texts[0][next..change.before.start]);
        write_lines(out, '-', &texts[0][change.before.clone()]);
        write_lines(out, '+', &texts[1][change.after.clone()]);
        next = change.before.end;
    }
    write_lines(out, ' ', &texts[0][next..end]);
}

/// The first line and the number of lines, which is left out if it is 1. An empty range is named by the line before it.
fn describe_range(lines: Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn write_lines(out: &mut String, sign: char, lines: &[&str]) {
    for line in lines {
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_precede_hunks_only_where_something_changes() {
        let diff = LineDiff::new("a\nb\n", "a\nc", 3);
        assert_eq!((diff.added, diff.removed), (1, 1));
        assert_eq!(
            diff.with_names("x", "y"),
            "--- x\n+++ y\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"
        );
        assert_eq!(LineDiff::new("a", "a", 3).with_names("x", "y"), "");
    }

    #[test]
    fn the_context_is_what_was_asked_for() {
        let before: String = (0..9).map(|line| format!("{line}\n")).collect();
        let after = before.replace("4\n", "four\n");
        assert_eq!(LineDiff::new(&before, &after, 1).hunks, "@@ -4,3 +4,3 @@\n 3\n-4\n+four\n 5\n");
        assert_eq!(LineDiff::new(&before, &after, 0).hunks, "@@ -5 +5 @@\n-4\n+four\n");
        // Six common lines between two changes are one hunk with three lines of context, seven are two.
        let ends = after.replace("0\n", "zero\n").replace("8\n", "eight\n");
        let hunks = |context| LineDiff::new(&before, &ends, context).hunks.matches("@@ -").count();
        assert_eq!([hunks(0), hunks(1), hunks(2)], [3, 3, 1]);
    }

    #[test]
    fn an_empty_side_is_named_by_the_line_before_it() {
        assert_eq!(LineDiff::new("", "a\n", 3).hunks, "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(LineDiff::new("a\n", "", 3).hunks, "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(LineDiff::new("a\nb\n", "a\nx\nb\n", 0).hunks, "@@ -1,0 +2 @@\n+x\n");
    }

    /// What the hunks make of `before`.
    fn apply_hunks(before: &str, hunks: &str) -> String {
        let before: Vec<&str> = before.split_inclusive('\n').collect();
        let hunks = hunks.replace("\n\\ No newline at end of file\n", "\0");
        let mut after = String::new();
        let mut next = 0;
        for line in hunks.split_inclusive(['\n', '\0']) {
            let (sign, text) = line.split_at(1);
            match sign {
                "@" => {
                    let range = text["@ -".len()..].split(' ').next().unwrap();
                    let (start, count) = range.split_once(',').unwrap_or((range, "1"));
                    let start = start.parse::<usize>().unwrap() - usize::from(count != "0");
                    after.push_str(&before[next..start].concat());
                    next = start;
                }
                "-" => next += 1,
                _ => {
                    next += usize::from(sign == " ");
                    after.push_str(text.trim_end_matches('\0'));
                }
            }
        }
        after + &before[next..].concat()
    }

    proptest! {
        #[test]
        fn the_hunks_turn_one_text_into_the_other(
            before in "([abc]{0,2}\n){0,12}[ab]?",
            after in "([abc]{0,2}\n){0,12}[ab]?",
            context in 0_usize..4,
        ) {
            let diff = LineDiff::new(&before, &after, context);
            prop_assert_eq!(apply_hunks(&before, &diff.hunks), after);
            let count = |sign| diff.hunks.lines().filter(|line| line.starts_with(sign)).count();
            prop_assert_eq!((count('+'), count('-')), (diff.added, diff.removed));
        }
    }
}
