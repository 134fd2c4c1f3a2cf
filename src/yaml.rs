//! YAML as a tree with positions, and typed reads that collect what is wrong instead of stopping at it.
//!
//! Reads the YAML 1.2 core schema: `yes` and `on` are strings, `010` is ten. A text read takes any scalar as it is
//! written, so `version: 1.10` is `1.10`. Merge keys and tags of one's own are refused.

use crate::diag::{Diagnostic, Report};
use crate::text;
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;

mod compose;
mod mistake;
pub mod shape;

pub use shape::{Fields, Mapping};

/// More mistakes than anyone reads; each costs a walk through the text.
const MAX_FAULTS: usize = 100;

/// A parsed file, and what was found wrong in it so far.
#[derive(Debug)]
pub struct Document {
    /// The file as the user knows it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its only document; null when the file is empty.
    pub root: Node,
    found: RefCell<Vec<Diagnostic>>,
}

/// One value and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its bytes in the text, of the alias where it was reached by one.
    pub span: Range<usize>,
    /// Line of its start, counted from 1.
    pub line: usize,
    /// Column of its start in characters, counted from 1.
    pub column: usize,
    /// Whether the text here is an alias (`*name`) to what stands elsewhere.
    pub alias: bool,
}

/// What a node holds.
#[derive(Debug, Clone)]
pub enum Value {
    /// A text; what it means depends on who reads it, and on whether it stood without quotes.
    Scalar {
        /// The text without quotes and escapes.
        text: String,
        /// Without quotes, so that `true` and `5` are not strings.
        plain: bool,
    },
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in the file's order.
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// Whether it is `null`, `~` or nothing at all.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar that is not null.
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// The entries of a list; empty for everything else.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::Sequence(items) => items,
            _ => &[],
        }
    }

    /// The entries of a mapping; empty for everything else.
    pub fn entries(&self) -> &[(Node, Node)] {
        match &self.value {
            Value::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// The value under `key` of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, value)| value)
    }

    /// The key and the value under `key` of a mapping.
    pub fn entry(&self, key: &str) -> Option<&(Node, Node)> {
        self.entries().iter().find(|(name, _)| name.scalar() == Some(key))
    }

    /// What kind of value it is, in a person's words.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { plain: true, text } if matches!(text.as_str(), "true" | "false") => {
                "a boolean"
            }
            Value::Scalar { plain: true, text } if plain_number(text).is_some() => "a number",
            Value::Scalar { .. } => "a text",
        }
    }
}

impl Document {
    /// Parses `text`; `name` is how messages call it.
    ///
    /// # Errors
    /// Text that is not YAML, more than one document, nesting or aliases beyond any sane size.
    pub fn parse(name: impl Into<String>, text: impl Into<String>) -> Result<Self, Diagnostic> {
        let (name, text) = (name.into(), text.into());
        let composed = compose::compose(&text);
        let null = Node {
            value: Value::Scalar { text: String::new(), plain: true },
            span: 0..0,
            line: 1,
            column: 1,
            alias: false,
        };
        let mut document = Self { name, text, root: null, found: RefCell::new(Vec::new()) };
        match composed {
            Ok(root) => document.root = root.unwrap_or(document.root),
            Err(fault) => {
                return Err(document.diagnostic(
                    fault.line,
                    fault.column,
                    1,
                    fault.message,
                    fault.help,
                ));
            }
        }
        document.check(&document.root);
        Ok(document)
    }

    /// Hands over what was found wrong, in the order of the lines.
    pub fn finish(&self, report: &mut Report) {
        let mut found = self.found.take();
        found.sort_by_key(|d| (d.file != self.name, d.line, d.column));
        found.dedup();
        report.diagnostics.append(&mut found);
    }

    /// Takes over what was found wrong in a file that this one names.
    pub fn adopt(&self, report: &mut Report) {
        self.found.borrow_mut().append(&mut report.diagnostics);
    }

    /// Says that `node` is wrong.
    pub fn fault(&self, node: &Node, message: impl Into<String>, help: impl Into<Option<String>>) {
        if self.takes_more() {
            self.push(self.at(node, message, help));
        }
    }

    /// What is to be said of `node`.
    pub fn at(
        &self,
        node: &Node,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) -> Diagnostic {
        let source = &self.text[node.span.clone()];
        let width = source.lines().next().map_or(1, |line| line.trim_end().chars().count());
        self.diagnostic(node.line, node.column, width, message.into(), help.into())
    }

    /// Says that the first `fragment` inside the text of `node` is wrong; the node itself when it does not stand there
    /// in these very characters.
    pub fn fault_in(
        &self,
        node: &Node,
        fragment: &str,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        if self.takes_more() {
            self.push(self.at_fragment(node, fragment, message, help));
        }
    }

    /// What is to be said of the first `fragment` inside the text of `node`; of the node itself when it does not stand
    /// there in these very characters.
    pub fn at_fragment(
        &self,
        node: &Node,
        fragment: &str,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) -> Diagnostic {
        let fragment = fragment.lines().next().unwrap_or_default();
        let Some(offset) =
            self.text[node.span.clone()].find(fragment).filter(|_| !fragment.is_empty())
        else {
            return self.at(node, message, help);
        };
        let before = &self.text[..node.span.start + offset];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let width = fragment.chars().count();
        self.diagnostic(line, column, width, message.into(), help.into())
    }

    fn takes_more(&self) -> bool {
        self.found.borrow().len() < MAX_FAULTS
    }

    fn push(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    fn diagnostic(
        &self,
        line: usize,
        column: usize,
        width: usize,
        message: String,
        help: Option<String>,
    ) -> Diagnostic {
        // What the parser misses at the end of a file, it misses behind the last line.
        let last = self.text.lines().count().max(1);
        let column = if line > last { usize::MAX } else { column };
        let line = line.min(last);
        let source = self.text.lines().nth(line - 1).unwrap_or_default();
        let column = column.min(source.chars().count() + 1);
        let source = text::printable(source);
        Diagnostic { file: self.name.clone(), line, column, source, width, message, help }
    }

    /// Looks for what no reader wants: keys that are no texts or stand twice, merge keys, NUL characters.
    fn check(&self, node: &Node) {
        if matches!(&node.value, Value::Scalar { text, .. } if text.contains('\0')) {
            let help = "nothing that a text is used for can carry one";
            self.fault(node, "a text holds a NUL character", Some(help.to_owned()));
        }
        for item in node.items().iter().filter(|item| !item.alias) {
            self.check(item);
        }
        let mut names = HashSet::new();
        for (key, value) in node.entries() {
            match key.scalar() {
                None => self.fault(key, "a key must be a plain text", None),
                Some("<<") => self.fault(
                    key,
                    "merge keys (`<<`) are not part of YAML 1.2 and are not read",
                    Some("write the entries out".to_owned()),
                ),
                Some(name) if !names.insert(name) => {
                    self.fault(
                        key,
                        format!("`{name}` stands twice in this mapping"),
                        Some("keep one of them".into()),
                    );
                }
                Some(_) => self.check(key),
            }
            if !value.alias {
                self.check(value);
            }
        }
    }

    /// The entries of a mapping, whatever their keys.
    pub fn mapping<'a>(&self, node: &'a Node, what: &str) -> Option<&'a [(Node, Node)]> {
        if !matches!(node.value, Value::Mapping(_)) {
            let message = format!("{what} must be a mapping (`key: value`), not {}", node.kind());
            self.fault(node, message, None);
            return None;
        }
        Some(node.entries())
    }

    /// The value under `key` of a mapping, which must be there.
    pub fn require<'a>(
        &self,
        mapping: &'a Node,
        key: &str,
        what: &str,
        example: &str,
    ) -> Option<&'a Node> {
        let value = mapping.get(key).filter(|value| !value.is_null());
        if value.is_none() {
            let entry = mapping.entry(key).or(mapping.entries().first());
            let at = entry.map_or(mapping, |(key, _)| key);
            self.fault(
                at,
                format!("{what} has no `{key}`"),
                Some(format!("write `{key}: {example}`")),
            );
        }
        value
    }

    /// A text: any scalar, as it is written.
    pub fn text<'a>(&self, node: &'a Node, what: &str) -> Option<&'a str> {
        let text = node.scalar();
        if text.is_none() {
            self.fault(node, format!("{what} must be a text, not {}", node.kind()), None);
        }
        text
    }

    /// `true` or `false`.
    pub fn boolean(&self, node: &Node, what: &str) -> Option<bool> {
        match &node.value {
            Value::Scalar { text, plain: true } if text == "true" => Some(true),
            Value::Scalar { text, plain: true } if text == "false" => Some(false),
            _ => {
                self.fault(node, format!("{what} must be `true` or `false`"), None);
                None
            }
        }
    }

    /// A whole number in `range`.
    pub fn integer(&self, node: &Node, what: &str, range: Range<u64>) -> Option<u64> {
        let number = match &node.value {
            Value::Scalar { text, plain: true } => plain_number(text).and_then(|n| n.as_u64()),
            _ => None,
        };
        let fine = number.filter(|n| range.contains(n));
        if fine.is_none() {
            let (from, to) = (range.start, range.end - 1);
            self.fault(node, format!("{what} must be a whole number from {from} to {to}"), None);
        }
        fine
    }

    /// A list whose entries are texts.
    pub fn texts(&self, node: &Node, what: &str) -> Option<Vec<String>> {
        let items = self.list(node, what)?;
        items
            .iter()
            .map(|item| self.text(item, &format!("an entry of {what}")).map(str::to_owned))
            .collect()
    }

    /// A list.
    pub fn list<'a>(&self, node: &'a Node, what: &str) -> Option<&'a [Node]> {
        if !matches!(node.value, Value::Sequence(_)) {
            self.fault(node, format!("{what} must be a list, not {}", node.kind()), None);
            return None;
        }
        Some(node.items())
    }

    /// The value as JSON, by the core schema.
    pub fn json(&self, node: &Node) -> Option<Json> {
        match &node.value {
            Value::Scalar { text, plain: false } => Some(Json::from(text.as_str())),
            Value::Scalar { .. } if node.is_null() => Some(Json::Null),
            Value::Scalar { text, .. } => match text.as_str() {
                "true" | "True" | "TRUE" => Some(Json::Bool(true)),
                "false" | "False" | "FALSE" => Some(Json::Bool(false)),
                ".inf" | "-.inf" | "+.inf" | ".nan" => {
                    self.fault(node, "JSON has no infinite numbers", None);
                    None
                }
                text => Some(plain_number(text).map_or_else(|| Json::from(text), Json::Number)),
            },
            Value::Sequence(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Mapping(entries) => {
                let entry = |(key, value): &(Node, Node)| {
                    Some((key.scalar()?.to_owned(), self.json(value)?))
                };
                entries
                    .iter()
                    .map(entry)
                    .collect::<Option<serde_json::Map<_, _>>>()
                    .map(Json::Object)
            }
        }
    }
}

/// A number of the core schema.
fn plain_number(text: &str) -> Option<serde_json::Number> {
    let radix = |prefix: &str, radix| u64::from_str_radix(text.strip_prefix(prefix)?, radix).ok();
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(number.into());
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let whole = text.strip_prefix('+').unwrap_or(text);
        let exact =
            whole.parse::<i64>().map(Into::into).or_else(|_| whole.parse::<u64>().map(Into::into));
        if let Ok(number) = exact {
            return Some(number);
        }
    }
    let shape =
        digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    let has_digit = digits.bytes().any(|b| b.is_ascii_digit());
    (shape && has_digit)
        .then(|| text.parse::<f64>().ok().and_then(serde_json::Number::from_f64))
        .flatten()
}

/// `text` as a YAML double-quoted scalar on one line, valid for every text.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // Not printable by YAML's rules, or a line break to some readers.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `node` as YAML on one line that every read here takes as the same: aliases are written out, comments are gone.
pub fn flow(node: &Node) -> String {
    match &node.value {
        Value::Scalar { .. } if node.is_null() => "null".to_owned(),
        Value::Scalar { text, plain: true } if !plain_is_text(text) => text.clone(),
        Value::Scalar { text, .. } => quoted(text),
        Value::Sequence(items) => format!("[{}]", joined(items.iter().map(flow))),
        Value::Mapping(entries) => {
            let entry = |(key, value): &(Node, Node)| flow_entry(key, value);
            format!("{{{}}}", joined(entries.iter().map(entry)))
        }
    }
}

/// An entry of a mapping, as [`flow`] writes it.
pub fn flow_entry(key: &Node, value: &Node) -> String {
    let name = key.scalar().unwrap_or_default();
    let word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let plain = word && plain_is_text(name) && !name.eq_ignore_ascii_case("null");
    let key = if plain { name.to_owned() } else { quoted(name) };
    format!("{key}: {}", flow(value))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Whether a scalar without quotes means no more than its text.
fn plain_is_text(text: &str) -> bool {
    let special = ["true", "True", "TRUE", "false", "False", "FALSE"];
    let number = [".inf", "-.inf", "+.inf", ".nan"];
    !special.contains(&text) && !number.contains(&text) && plain_number(text).is_none()
}

#[cfg(test)]
mod tests;
