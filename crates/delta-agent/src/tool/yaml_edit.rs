//! Edits of a YAML text that preserve everything else, comments included.

pub use delta_yaml::yaml::{is_flow_node, node_end};
use std::ops::Range;

/// A byte range and its replacement.
pub type TextEdit = (Range<usize>, String);

/// Applies edits that do not overlap.
pub fn apply_edits(text: &str, mut edits: Vec<TextEdit>) -> String {
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut out = String::with_capacity(text.len() * 2);
    let mut at = 0;
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    for (range, replacement) in edits {
        out.push_str(&text[at..range.start]);
        out.push_str(&replacement.replace("\r\n", "\n").replace('\n', line_end));
        at = range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// The text between a key and its new value: the old one without the tag, the anchor and the `|` of
/// the old value. `column` is the column of the key.
pub fn key_value_gap(old: &str, column: usize) -> String {
    let mut new = String::new();
    for line in old.split_inclusive('\n') {
        let comment = line
            .find('#')
            .filter(|at| *at == 0 || line[..*at].ends_with([' ', '\t']))
            .unwrap_or(line.len());
        let separator: String =
            line[..comment].chars().filter(|c| c.is_whitespace() || *c == ':').collect();
        match separator.trim_end() {
            "" => new.push_str(&separator),
            colon => new.push_str(&format!("{colon} ")),
        }
        new.push_str(&line[comment..]);
    }
    if new.starts_with(':') && !new.contains('#') {
        return ": ".to_owned();
    }
    let last = new.rsplit('\n').next().unwrap_or_default().chars().count();
    new.push_str(&" ".repeat((column + 1).saturating_sub(last)));
    new
}
