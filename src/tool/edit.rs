//! Edits of a YAML text that leave everything else, comments included, as it was.

use crate::yaml::{Node, Value};
use std::ops::Range;

/// A replacement of a part of the text.
pub type Edit = (Range<usize>, String);

/// `text` with its edits, which do not overlap.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> String {
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

/// Whether a node is written with braces or brackets.
pub fn is_flow(text: &str, node: &Node) -> bool {
    !node.alias && text[node.span.start..].starts_with(['{', '['])
}

/// Where the text of a node really ends: the parser ends a block where the next token begins.
pub fn end_of(text: &str, node: &Node) -> usize {
    let block = !node.alias && !is_flow(text, node);
    let last = match &node.value {
        Value::Mapping(entries) if block => entries.last().map(|(_, value)| value),
        Value::Sequence(items) if block => items.last(),
        _ => None,
    };
    match last {
        Some(last) => end_of(text, last),
        None => node.span.start + text[node.span.clone()].trim_end().len(),
    }
}

/// What goes between a key and the value that replaces another: what stood there, without the tag, the anchor and the
/// `|` of the old value. `column` is that of the key.
pub fn gap(old: &str, column: usize) -> String {
    let mut new = String::new();
    for line in old.split_inclusive('\n') {
        let comment = line
            .find('#')
            .filter(|at| *at == 0 || line[..*at].ends_with([' ', '\t']))
            .unwrap_or(line.len());
        let kept: String =
            line[..comment].chars().filter(|c| c.is_whitespace() || *c == ':').collect();
        match kept.trim_end() {
            "" => new.push_str(&kept),
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
