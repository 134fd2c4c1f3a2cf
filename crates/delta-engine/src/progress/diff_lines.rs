//! A unified diff on stderr, for a person.

use super::{BAD, CALL, GOOD, has_colours};
use anstyle::Style;
use std::io::Write;

/// Prints a unified diff without control characters to stderr, in colour where stderr shows colours.
pub fn print_diff_to_stderr(diff: &str) {
    let has_colours = has_colours(&std::io::stderr());
    let mut text = String::with_capacity(diff.len());
    for line in diff.lines() {
        let style = if has_colours { diff_line_style(line) } else { Style::new() };
        text.push_str(&format!("{style}{line}{style:#}\n"));
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The colour of a line of a unified diff.
pub(super) fn diff_line_style(line: &str) -> Style {
    match line.as_bytes().first() {
        Some(b'+') => GOOD,
        Some(b'-') => BAD,
        Some(b'@') => CALL,
        _ => Style::new(),
    }
}
