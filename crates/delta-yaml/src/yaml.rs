//! YAML as a tree with positions. Typed reads report errors and continue.
//!
//! Follows the YAML 1.2 core schema: `yes` and `on` are strings, `010` is ten. A string read accepts any scalar as it is
//! written, so `version: 1.10` is `1.10`. Merge keys and custom tags are errors.

use crate::diagnostic::{Diagnostic, DiagnosticReport};
use delta_base::error_text::HelpLine;
use delta_base::terminal_text;
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;

mod compose;
mod escaped_pairs;
pub mod mapping_schema;
mod syntax_hint;
mod value_help;

pub use mapping_schema::{MappingFields, MappingSchema};
pub use value_help::is_plain_command;

/// More than anyone reads.
const MAX_DIAGNOSTICS: usize = 100;

/// A parsed file, and the errors found in it so far.
#[derive(Debug)]
pub struct YamlDocument {
    /// The file's name in diagnostics.
    pub name: String,
    /// The content of the file.
    pub text: String,
    /// The root node; null when the file is empty.
    pub root: YamlNode,
    /// The start of each line, at least one: a file with many tools can have a diagnostic for each of them.
    line_starts: Vec<usize>,
    diagnostics: RefCell<Vec<Diagnostic>>,
    /// What a table of keys reports about values that their readers check too, usually with more help.
    fallbacks: RefCell<Vec<Diagnostic>>,
}

/// A value and its position.
#[derive(Debug, Clone)]
pub struct YamlNode {
    /// The value; for an alias, a copy of its anchor's.
    pub value: YamlValue,
    /// The byte range in the text; for an alias, its own.
    pub span: Range<usize>,
    /// The line of its start, from 1.
    pub line: usize,
    /// The column of its start in characters, from 1.
    pub column: usize,
    /// Whether the node is an alias (`*name`).
    pub is_alias: bool,
}

/// The value of a node.
#[derive(Debug, Clone)]
pub enum YamlValue {
    /// A scalar, whose type the reader chooses.
    Scalar {
        /// The text, with quotes and escapes resolved.
        text: String,
        /// Whether it is a plain scalar, YAML's term for text without quotes: only then `true` and `5` are not strings.
        is_plain: bool,
    },
    /// A list.
    Sequence(Vec<YamlNode>),
    /// Keys and values in the order of the file.
    Mapping(Vec<(YamlNode, YamlNode)>),
}

impl YamlNode {
    /// Whether the node is `null`, `~` or empty.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, YamlValue::Scalar { text, is_plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar that is not null.
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            YamlValue::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// Whether the node is a list without items.
    pub fn is_empty_list(&self) -> bool {
        matches!(&self.value, YamlValue::Sequence(items) if items.is_empty())
    }

    /// The items of a list; empty for any other node.
    pub fn items(&self) -> &[YamlNode] {
        match &self.value {
            YamlValue::Sequence(items) => items,
            _ => &[],
        }
    }

    /// The entries of a mapping; empty for any other node.
    pub fn entries(&self) -> &[(YamlNode, YamlNode)] {
        match &self.value {
            YamlValue::Mapping(entries) => entries,
            _ => &[],
        }
    }

    /// The value of `key` in a mapping.
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        self.entry(key).map(|(_, value)| value)
    }

    /// The entry of `key` in a mapping.
    pub fn entry(&self, key: &str) -> Option<&(YamlNode, YamlNode)> {
        self.entries().iter().find(|(name, _)| name.scalar() == Some(key))
    }

    /// The number that a plain scalar represents.
    pub(crate) fn plain_number(&self) -> Option<serde_json::Number> {
        match &self.value {
            YamlValue::Scalar { text, is_plain: true } => parse_plain_number(text),
            _ => None,
        }
    }

    /// The kind of the value, for messages that end in `not a list`.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            YamlValue::Sequence(_) => "a list",
            YamlValue::Mapping(_) => "a mapping",
            YamlValue::Scalar { .. } if self.is_null() => "empty",
            YamlValue::Scalar { is_plain: true, text } if parse_boolean(text).is_some() => {
                "a boolean"
            }
            YamlValue::Scalar { .. } if self.plain_number().is_some() => "a number",
            YamlValue::Scalar { .. } => "a string",
        }
    }
}

impl YamlDocument {
    /// Parses `text`; `name` is the file's name in diagnostics.
    ///
    /// # Errors
    /// The text is not YAML, has more than one document, or is nested or aliased beyond the limits.
    pub fn parse(name: impl Into<String>, text: impl Into<String>) -> Result<Self, Diagnostic> {
        let null = YamlNode {
            value: YamlValue::Scalar { text: String::new(), is_plain: true },
            span: 0..0,
            line: 1,
            column: 1,
            is_alias: false,
        };
        let text = text.into();
        let mut document = Self {
            name: name.into(),
            line_starts: find_line_starts(&text),
            text,
            root: null,
            diagnostics: RefCell::default(),
            fallbacks: RefCell::default(),
        };
        match compose::compose_yaml(&document.text) {
            Ok(Some(root)) => document.root = root,
            Ok(None) => {}
            Err(error) => {
                return Err(document.build_diagnostic(
                    error.line,
                    error.column,
                    1,
                    error.message,
                    error.help,
                ));
            }
        }
        document.check_node(&document.root);
        Ok(document)
    }

    /// Moves the diagnostics to `report`, sorted by line; diagnostics of other files come last.
    pub fn drain_diagnostics(&self, report: &mut DiagnosticReport) {
        let mut diagnostics = self.diagnostics.take();
        let mut fallbacks = self.fallbacks.take();
        fallbacks
            .retain(|fallback| !diagnostics.iter().any(|other| other.is_at_place_of(fallback)));
        diagnostics.append(&mut fallbacks);
        diagnostics.sort_by_key(|d| (d.file != self.name, d.line, d.column));
        // A reader reports again what the schema has reported, often with less help.
        diagnostics.dedup_by(|next, first| {
            let is_same = (&next.file, next.line, next.column, &next.message)
                == (&first.file, first.line, first.column, &first.message);
            if is_same && first.help.is_none() {
                first.help = next.help.take();
            }
            is_same
        });
        report.diagnostics.append(&mut diagnostics);
    }

    /// Returns the diagnostics that `check` reports, and takes them out of the report.
    fn diagnostics_of(&self, check: impl FnOnce()) -> Vec<Diagnostic> {
        let earlier = self.diagnostics.take();
        check();
        self.diagnostics.replace(earlier)
    }

    /// Moves the diagnostics of a file that this one refers to into this document.
    pub fn append_report(&self, report: &mut DiagnosticReport) {
        self.diagnostics.borrow_mut().append(&mut report.diagnostics);
    }

    /// Reports an error at `node`.
    pub fn report(&self, node: &YamlNode, message: impl Into<String>, help: impl Into<HelpLine>) {
        if self.accepts_more() {
            self.push(self.diagnostic_at(node, message, help));
        }
    }

    /// A diagnostic that points to `node`.
    pub fn diagnostic_at(
        &self,
        node: &YamlNode,
        message: impl Into<String>,
        help: impl Into<HelpLine>,
    ) -> Diagnostic {
        let source = &self.text[node.span.clone()];
        let width = source.lines().next().map_or(1, |line| line.trim_end().chars().count());
        self.build_diagnostic(node.line, node.column, width, message.into(), help.into().0)
    }

    /// Reports an error at the first `fragment` in the text of `node`; at the node when it does not occur literally.
    pub fn report_in(
        &self,
        node: &YamlNode,
        fragment: &str,
        message: impl Into<String>,
        help: impl Into<HelpLine>,
    ) {
        if self.accepts_more() {
            self.push(self.diagnostic_at_fragment(node, fragment, message, help));
        }
    }

    /// A diagnostic that points to the first `fragment` in the text of `node`; to the node when it does not occur
    /// literally.
    pub fn diagnostic_at_fragment(
        &self,
        node: &YamlNode,
        fragment: &str,
        message: impl Into<String>,
        help: impl Into<HelpLine>,
    ) -> Diagnostic {
        let fragment = fragment.lines().next().unwrap_or_default();
        let Some(offset) =
            self.text[node.span.clone()].find(fragment).filter(|_| !fragment.is_empty())
        else {
            return self.diagnostic_at(node, message, help);
        };
        let offset = node.span.start + offset;
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let column = self.text[self.line_starts[line - 1]..offset].chars().count() + 1;
        let width = fragment.chars().count();
        self.build_diagnostic(line, column, width, message.into(), help.into().0)
    }

    fn accepts_more(&self) -> bool {
        self.diagnostics.borrow().len() < MAX_DIAGNOSTICS
    }

    fn push(&self, diagnostic: Diagnostic) {
        self.diagnostics.borrow_mut().push(diagnostic);
    }

    fn build_diagnostic(
        &self,
        line: usize,
        column: usize,
        width: usize,
        message: String,
        help: Option<String>,
    ) -> Diagnostic {
        // The parser reports an unexpected end after the last line.
        let last = self.line_starts.len();
        let column = if line > last { usize::MAX } else { column };
        let line = line.min(last);
        let source = self.text[self.line_starts[line - 1]..].lines().next().unwrap_or_default();
        let column = column.min(source.chars().count() + 1);
        let source = terminal_text::strip_terminal_controls(source);
        Diagnostic { file: self.name.clone(), line, column, source, width, message, help }
    }

    /// Reports errors for every reader: keys that are not strings, duplicate keys, merge keys, NUL characters.
    fn check_node(&self, node: &YamlNode) {
        if matches!(&node.value, YamlValue::Scalar { text, .. } if text.contains('\0')) {
            let help = "remove it: arguments and file names cannot contain NUL";
            self.report(node, "a string contains a NUL character", help);
        }
        for item in node.items().iter().filter(|item| !item.is_alias) {
            self.check_node(item);
        }
        let mut names = HashSet::new();
        for (key, value) in node.entries() {
            match key.scalar() {
                None => self.report(key, "a key must be a string", None),
                Some("<<") => self.report(
                    key,
                    "merge keys (`<<`) are not part of YAML 1.2",
                    "write the entries out",
                ),
                Some(name) if !names.insert(name) => {
                    let message = format!("duplicate key `{name}` in this mapping");
                    self.report(key, message, "keep one of them");
                }
                Some(_) => self.check_node(key),
            }
            if !value.is_alias {
                self.check_node(value);
            }
        }
    }

    /// The entries of a mapping with any keys; reports any other node. Here and below, `label` names the value in messages.
    pub fn expect_mapping<'a>(
        &self,
        node: &'a YamlNode,
        label: &str,
    ) -> Option<&'a [(YamlNode, YamlNode)]> {
        if !matches!(node.value, YamlValue::Mapping(_)) {
            let message = format!("{label} must be a mapping (`key: value`), not {}", node.kind());
            self.report(node, message, value_help::mapping_help(node, label));
            return None;
        }
        Some(node.entries())
    }

    /// Like [`YamlDocument::expect_mapping`], for a place where authors write something else: `help` says what it becomes.
    pub fn expect_mapping_or<'a>(
        &self,
        node: &'a YamlNode,
        label: &str,
        help: impl FnOnce() -> String,
    ) -> Option<&'a [(YamlNode, YamlNode)]> {
        if !matches!(node.value, YamlValue::Mapping(_)) {
            let message = format!("{label} must be a mapping (`key: value`), not {}", node.kind());
            self.report(node, message, help());
            return None;
        }
        Some(node.entries())
    }

    /// The value of `key` in a mapping; reports its absence with `example` as the value to write.
    pub fn require_key<'a>(
        &self,
        mapping: &'a YamlNode,
        key: &str,
        label: &str,
        example: &str,
    ) -> Option<&'a YamlNode> {
        let value = mapping.get(key).filter(|value| !value.is_null());
        if value.is_none() {
            let entry = mapping.entry(key).or(mapping.entries().first());
            let at = entry.map_or(mapping, |(key, _)| key);
            self.report(at, format!("{label} has no `{key}`"), format!("write `{key}: {example}`"));
        }
        value
    }

    /// A string: any scalar, as it is written; reports any other node.
    pub fn expect_text<'a>(&self, node: &'a YamlNode, label: &str) -> Option<&'a str> {
        let text = node.scalar();
        if text.is_none() {
            self.report(node, format!("{label} must be a string, not {}", node.kind()), None);
        }
        text
    }

    /// `true` or `false`; reports any other node.
    pub fn expect_boolean(&self, node: &YamlNode, label: &str) -> Option<bool> {
        let value = match &node.value {
            YamlValue::Scalar { text, is_plain: true } => parse_boolean(text),
            _ => None,
        };
        if value.is_none() {
            let message = format!("{label} must be `true` or `false`");
            self.report(node, message, value_help::boolean_help(node));
        }
        value
    }

    /// A whole number in `range`; reports any other node.
    pub fn expect_integer(&self, node: &YamlNode, label: &str, range: Range<u64>) -> Option<u64> {
        self.expect_amount(node, label, range, None)
    }

    /// Like [`YamlDocument::expect_integer`]; `help` is for a value that no number can be read from.
    fn expect_amount(
        &self,
        node: &YamlNode,
        label: &str,
        range: Range<u64>,
        help: Option<&str>,
    ) -> Option<u64> {
        let number = node
            .plain_number()
            .and_then(|number| to_whole_number(&number))
            .filter(|number| range.contains(number));
        if number.is_none() {
            let max = range.end - 1;
            let message = format!("{label} must be a whole number from {} to {max}", range.start);
            let help = value_help::integer_help(node).or(help.map(str::to_owned));
            self.report(node, message, help);
        }
        number
    }

    /// A list of strings; reports any other node.
    pub fn expect_texts(&self, node: &YamlNode, label: &str) -> Option<Vec<String>> {
        let items = self.expect_list(node, label)?;
        items
            .iter()
            .map(|item| self.expect_text(item, &format!("an entry of {label}")).map(str::to_owned))
            .collect()
    }

    /// The items of a list; reports any other node.
    pub fn expect_list<'a>(&self, node: &'a YamlNode, label: &str) -> Option<&'a [YamlNode]> {
        if !matches!(node.value, YamlValue::Sequence(_)) {
            let message = format!("{label} must be a list, not {}", node.kind());
            self.report(node, message, value_help::single_item_help(node, label));
            return None;
        }
        Some(node.items())
    }

    /// Converts the value to JSON by the core schema; reports infinite numbers.
    pub fn to_json(&self, node: &YamlNode) -> Option<Json> {
        match &node.value {
            YamlValue::Scalar { text, is_plain: false } => Some(Json::from(text.as_str())),
            YamlValue::Scalar { .. } if node.is_null() => Some(Json::Null),
            YamlValue::Scalar { text, .. } => match text.as_str() {
                ".inf" | "-.inf" | "+.inf" | ".nan" => {
                    self.report(node, "JSON has no infinite numbers", None);
                    None
                }
                text => Some(match (parse_boolean(text), parse_plain_number(text)) {
                    (Some(value), _) => Json::Bool(value),
                    (None, Some(number)) => Json::Number(number),
                    (None, None) => Json::from(text),
                }),
            },
            YamlValue::Sequence(items) => items.iter().map(|item| self.to_json(item)).collect(),
            YamlValue::Mapping(entries) => entries
                .iter()
                .map(|(key, value)| Some((key.scalar()?.to_owned(), self.to_json(value)?)))
                .collect::<Option<serde_json::Map<_, _>>>()
                .map(Json::Object),
        }
    }
}

/// The start of each line as [`str::lines`] divides the text, at least one.
fn find_line_starts(text: &str) -> Vec<usize> {
    let ends = text.match_indices('\n').map(|(end, _)| end + 1);
    std::iter::once(0).chain(ends.filter(|start| *start < text.len())).collect()
}

/// Parses a boolean of the core schema.
fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// The whole number that a number is, also if it is written as `3.0` or `1e3`: JSON has one kind of numbers.
fn to_whole_number(number: &serde_json::Number) -> Option<u64> {
    /// Up to here, a double holds every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    number.as_u64().or_else(|| {
        let double = number.as_f64()?;
        (double.fract() == 0.0 && (0.0..=EXACT).contains(&double)).then_some(double as u64)
    })
}

/// Parses a number of the core schema.
fn parse_plain_number(text: &str) -> Option<serde_json::Number> {
    let radix = |prefix: &str, radix| u64::from_str_radix(text.strip_prefix(prefix)?, radix).ok();
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(number.into());
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        let integer = text.strip_prefix('+').unwrap_or(text);
        let exact = integer
            .parse::<i64>()
            .map(Into::into)
            .or_else(|_| integer.parse::<u64>().map(Into::into));
        if let Ok(number) = exact {
            return Some(number);
        }
    }
    let is_number =
        digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
            && digits.bytes().any(|b| b.is_ascii_digit());
    is_number.then(|| text.parse::<f64>().ok().and_then(serde_json::Number::from_f64)).flatten()
}

/// Writes any `text` as a double-quoted YAML scalar on one line.
pub fn quote_yaml(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // Not printable in YAML, or a line break for some parsers.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether a node is written with braces or brackets.
pub fn is_flow_node(text: &str, node: &YamlNode) -> bool {
    let (bracket, first) = match &node.value {
        YamlValue::Mapping(entries) => ('{', entries.first().map(|(key, _)| key)),
        YamlValue::Sequence(items) => ('[', items.first()),
        YamlValue::Scalar { .. } => return false,
    };
    let start = node.span.start;
    // A block begins where its first key begins, and in the column of its key where its first entry does, whose bracket it is.
    let is_own = first.is_none_or(|first| first.span.start > start);
    !node.is_alias && is_own && text[start..].starts_with(bracket)
}

/// The end of a node's text. The parser ends a block where the next token begins.
pub fn node_end(text: &str, node: &YamlNode) -> usize {
    let block = !node.is_alias && !is_flow_node(text, node);
    let last = match &node.value {
        YamlValue::Mapping(entries) if block => entries.last().map(|(_, value)| value),
        YamlValue::Sequence(items) if block => items.last(),
        _ => None,
    };
    match last {
        Some(last) => node_end(text, last),
        None => node.span.start + text[node.span.clone()].trim_end().len(),
    }
}

/// Writes `node` as YAML on one line that reads back as the same value. Aliases are expanded, comments are dropped.
pub fn to_flow_yaml(node: &YamlNode) -> String {
    match &node.value {
        YamlValue::Scalar { .. } if node.is_null() => "null".to_owned(),
        YamlValue::Scalar { text, is_plain: true } if !is_plain_text(text) => text.clone(),
        YamlValue::Scalar { text, .. } => quote_yaml(text),
        YamlValue::Sequence(items) => {
            format!("[{}]", join_with_commas(items.iter().map(to_flow_yaml)))
        }
        YamlValue::Mapping(entries) => {
            let parts = entries.iter().map(|(key, value)| to_flow_entry(key, value));
            format!("{{{}}}", join_with_commas(parts))
        }
    }
}

/// Writes an entry of a mapping as [`to_flow_yaml`] does, without braces.
pub fn to_flow_entry(key: &YamlNode, value: &YamlNode) -> String {
    let name = key.scalar().unwrap_or_default();
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_plain = is_word && is_plain_text(name) && !name.eq_ignore_ascii_case("null");
    let key = if is_plain { name.to_owned() } else { quote_yaml(name) };
    format!("{key}: {}", to_flow_yaml(value))
}

fn join_with_commas(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// Whether a scalar without quotes is a string.
fn is_plain_text(text: &str) -> bool {
    let infinities = [".inf", "-.inf", "+.inf", ".nan"];
    parse_boolean(text).is_none()
        && !infinities.contains(&text)
        && parse_plain_number(text).is_none()
}

#[cfg(test)]
mod tests;
