//! YAML as a tree with positions, and typed reads that collect what is wrong instead of stopping at it.
//!
//! Reads the YAML 1.2 core schema: `yes` and `on` are strings, `010` is ten. A text read takes any scalar as it is
//! written, so `version: 1.10` is `1.10`. Merge keys and tags of one's own are refused.

use crate::diag::{Diagnostic, Report};
use crate::text;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

/// Deeper nesting than any configuration needs; the tree is walked recursively.
const MAX_DEPTH: usize = 64;
/// A tree that aliases have blown up beyond this is refused.
const MAX_NODES: usize = 200_000;

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

/// The entries of a mapping whose keys have been checked.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// The mapping.
    pub node: &'a Node,
}

impl<'a> Fields<'a> {
    /// The value under `key`, also when it is null.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.node.get(key)
    }

    /// The value under `key` unless it is null.
    pub fn given(&self, key: &str) -> Option<&'a Node> {
        self.get(key).filter(|value| !value.is_null())
    }
}

impl Document {
    /// Parses `text`; `name` is how messages call it.
    ///
    /// # Errors
    /// Text that is not YAML, more than one document, nesting or aliases beyond any sane size.
    pub fn parse(name: impl Into<String>, text: impl Into<String>) -> Result<Self, Diagnostic> {
        let (name, text) = (name.into(), text.into());
        let mut composer = Composer {
            text: &text,
            positions: Positions::new(&text),
            anchors: HashMap::new(),
            nodes: 0,
        };
        let composed = composer.compose();
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
        document.check_keys(&document.root);
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
        let source = &self.text[node.span.clone()];
        let width = source.lines().next().map_or(1, |line| line.trim_end().chars().count());
        self.found.borrow_mut().push(self.diagnostic(
            node.line,
            node.column,
            width,
            message.into(),
            help.into(),
        ));
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
        let fragment = fragment.lines().next().unwrap_or_default();
        let Some(offset) =
            self.text[node.span.clone()].find(fragment).filter(|_| !fragment.is_empty())
        else {
            return self.fault(node, message, help);
        };
        let before = &self.text[..node.span.start + offset];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let width = fragment.chars().count();
        self.found.borrow_mut().push(self.diagnostic(
            line,
            column,
            width,
            message.into(),
            help.into(),
        ));
    }

    fn diagnostic(
        &self,
        line: usize,
        column: usize,
        width: usize,
        message: String,
        help: Option<String>,
    ) -> Diagnostic {
        let source = text::printable(self.text.lines().nth(line - 1).unwrap_or_default());
        Diagnostic { file: self.name.clone(), line, column, source, width, message, help }
    }

    fn check_keys(&self, node: &Node) {
        for item in node.items() {
            self.check_keys(item);
        }
        let entries = node.entries();
        for (index, (key, value)) in entries.iter().enumerate() {
            match key.scalar() {
                None => self.fault(key, "a key must be a plain text", None),
                Some("<<") => self.fault(
                    key,
                    "merge keys (`<<`) are not part of YAML 1.2 and are not read",
                    Some("write the entries out".to_owned()),
                ),
                Some(name)
                    if entries[..index].iter().any(|(other, _)| other.scalar() == Some(name)) =>
                {
                    self.fault(
                        key,
                        format!("`{name}` stands twice in this mapping"),
                        Some("keep one of them".into()),
                    );
                }
                Some(_) => {}
            }
            if !value.alias {
                self.check_keys(value);
            }
        }
    }

    /// The entries of `node`, whose keys must be among `known` or begin with `x-`.
    pub fn fields<'a>(&self, node: &'a Node, what: &str, known: &[&str]) -> Option<Fields<'a>> {
        let fields = self.open_fields(node, what)?;
        for (key, _) in node.entries() {
            let name = key.scalar().unwrap_or_default();
            if !known.contains(&name) && !name.starts_with("x-") && name != "<<" {
                let help = text::did_you_mean(name, known.iter().copied());
                self.fault(key, format!("unknown key `{name}` in {what}"), Some(help));
            }
        }
        Some(fields)
    }

    /// The entries of `node`, whatever their keys.
    pub fn open_fields<'a>(&self, node: &'a Node, what: &str) -> Option<Fields<'a>> {
        if !matches!(node.value, Value::Mapping(_)) {
            self.fault(
                node,
                format!("{what} must be a mapping (`key: value`), not {}", node.kind()),
                None,
            );
            return None;
        }
        Some(Fields { node })
    }

    /// The value under `key`, which must be there.
    pub fn require<'a>(
        &self,
        fields: Fields<'a>,
        key: &str,
        what: &str,
        example: &str,
    ) -> Option<&'a Node> {
        let value = fields.given(key);
        if value.is_none() {
            let entry = fields.node.entry(key).or(fields.node.entries().first());
            let at = entry.map_or(fields.node, |(key, _)| key);
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

struct Fault {
    line: usize,
    column: usize,
    message: String,
    help: Option<String>,
}

impl Fault {
    fn at(span: Span, message: impl Into<String>) -> Self {
        Self {
            line: span.start.line(),
            column: span.start.col() + 1,
            message: message.into(),
            help: None,
        }
    }
}

/// Turns the parser's events into a tree.
struct Composer<'t> {
    text: &'t str,
    positions: Positions,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl Composer<'_> {
    fn compose(&mut self) -> Result<Option<Node>, Fault> {
        let mut parser = Parser::new_from_str(self.text);
        let mut root = None;
        loop {
            let Some((event, span)) = next(&mut parser)? else { return Ok(root) };
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(Fault::at(
                        span,
                        "a second document begins here; one file holds one",
                    ));
                }
                Event::DocumentStart(_) => {}
                Event::StreamEnd => return Ok(root),
                event => root = Some(self.node(&mut parser, event, span, 0)?),
            }
        }
    }

    fn node<'i>(
        &mut self,
        parser: &mut Parser<'i, StrInput<'i>>,
        event: Event<'i>,
        span: Span,
        depth: usize,
    ) -> Result<Node, Fault> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(Fault::at(span, "nested too deeply, or too large through aliases"));
        }
        let (line, column) = (span.start.line(), span.start.col() + 1);
        let start = self.positions.byte(span.start.index());
        let node = |value, end| Node { value, span: start..end, line, column, alias: false };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !is_string_tag(tag.as_deref(), span)?;
                // The parser's span of a quoted scalar runs on over blanks and comments behind it.
                let end = match style {
                    ScalarStyle::DoubleQuoted | ScalarStyle::SingleQuoted => {
                        start + quoted_length(&self.text[start..])
                    }
                    _ => self.positions.byte(span.end.index()).max(start),
                };
                let value = Value::Scalar { text: text.into_owned(), plain };
                Ok(self.anchored(anchor, node(value, end)))
            }
            Event::SequenceStart(anchor, tag) => {
                is_string_tag(tag.as_deref(), span)?;
                let mut items = Vec::new();
                let end = loop {
                    match next(parser)? {
                        Some((Event::SequenceEnd, span)) => break span.end,
                        Some((event, span)) => {
                            items.push(self.node(parser, event, span, depth + 1)?)
                        }
                        None => break span.end,
                    }
                };
                let end = self.positions.byte(end.index());
                Ok(self.anchored(anchor, node(Value::Sequence(items), end)))
            }
            Event::MappingStart(anchor, tag) => {
                is_string_tag(tag.as_deref(), span)?;
                let mut entries = Vec::new();
                let end = loop {
                    let key = match next(parser)? {
                        Some((Event::MappingEnd, span)) => break span.end,
                        Some((event, span)) => self.node(parser, event, span, depth + 1)?,
                        None => break span.end,
                    };
                    let Some((event, span)) = next(parser)? else { break span.end };
                    entries.push((key, self.node(parser, event, span, depth + 1)?));
                };
                let end = self.positions.byte(end.index());
                Ok(self.anchored(anchor, node(Value::Mapping(entries), end)))
            }
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor) else {
                    return Err(Fault::at(
                        span,
                        "this alias names an anchor that has not ended yet",
                    ));
                };
                self.nodes += count(target);
                if self.nodes > MAX_NODES {
                    return Err(Fault::at(span, "too large through aliases"));
                }
                let value = target.value.clone();
                let end = self.positions.byte(span.end.index());
                Ok(Node { alias: true, ..node(value, end) })
            }
            _ => Err(Fault::at(span, "unexpected end")),
        }
    }

    fn anchored(&mut self, anchor: usize, node: Node) -> Node {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        node
    }
}

/// The length of the quoted scalar with which `text` begins, quotes included.
fn quoted_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let Some(&quote) = bytes.first() else { return 0 };
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote == b'"' => at += 2,
            b'\'' if quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn count(node: &Node) -> usize {
    let items: usize = node.items().iter().map(count).sum();
    let entries: usize = node.entries().iter().map(|(key, value)| count(key) + count(value)).sum();
    1 + items + entries
}

/// Whether the tag makes a plain scalar a text.
fn is_string_tag(tag: Option<&Tag>, span: Span) -> Result<bool, Fault> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Ok(true),
        Some(_) => Err(Fault::at(span, "tags of one's own (`!name`) are not read")),
    }
}

fn next<'i>(parser: &mut Parser<'i, StrInput<'i>>) -> Result<Option<(Event<'i>, Span)>, Fault> {
    parser.next_event().transpose().map_err(|error| {
        let marker = error.marker();
        let help = error.info().contains("tab").then(|| "indent with spaces".to_owned());
        let (line, column) = (marker.line().max(1), marker.col() + 1);
        Fault { line, column, message: format!("not valid YAML: {}", error.info()), help }
    })
}

/// Character positions of the parser as byte positions.
struct Positions {
    bytes: Option<Vec<usize>>,
    length: usize,
}

impl Positions {
    fn new(text: &str) -> Self {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { bytes, length: text.len() }
    }

    fn byte(&self, character: usize) -> usize {
        match &self.bytes {
            Some(bytes) => bytes.get(character).copied().unwrap_or(self.length),
            None => character.min(self.length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_errors(text: &str, expected: &[&str]) {
        let mut report = Report::default();
        match Document::parse("a.yaml", text) {
            Ok(document) => {
                document.fields(&document.root, "the file", &["name", "list", "map"]);
                document.finish(&mut report);
            }
            Err(diagnostic) => report.push(diagnostic),
        }
        let found: Vec<_> = report
            .diagnostics
            .iter()
            .map(|d| format!("{}:{} {}", d.line, d.column, d.message))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn c_1_3_errors_have_positions() {
        check_errors("name: a\nnmae: b\n", &["2:1 unknown key `nmae` in the file"]);
        check_errors("name: a\nname: b\n", &["2:1 `name` stands twice in this mapping"]);
        check_errors("ä: é\nx-own: 1\n", &["1:1 unknown key `ä` in the file"]);
        check_errors("- a\n", &["1:1 the file must be a mapping (`key: value`), not a list"]);
        check_errors("map: {a: 1, a: 2}\n", &["1:13 `a` stands twice in this mapping"]);
        check_errors(
            "name: a\n---\nname: b\n",
            &["2:1 a second document begins here; one file holds one"],
        );
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        let check = |text: &str, expected: serde_json::Value| {
            let document = Document::parse("a.yaml", text).unwrap();
            assert_eq!(document.json(&document.root), Some(expected), "{text}");
        };
        use serde_json::json;
        check(
            "[yes, true, 010, 0x1F, 1.50, -3, 1e3, ~, '5', !!str 5, .5, 1.2.3, '']",
            json!(["yes", true, 10, 31, 1.5, -3, 1000.0, null, "5", "5", 0.5, "1.2.3", ""]),
        );
        check("a: &x [1, 2]\nb: *x\n", json!({"a": [1, 2], "b": [1, 2]}));
        check("", json!(null));
    }

    #[test]
    fn spans_are_bytes() {
        let text = "é: \"ü\\\"\" # x\nd: 'a''b'   \nb: |\n  x\n  y\nc: z # c\n";
        let document = Document::parse("a.yaml", text).unwrap();
        let at = |key: &str| &text[document.root.get(key).unwrap().span.clone()];
        assert_eq!(at("é"), "\"ü\\\"\"");
        assert_eq!(at("d"), "'a''b'");
        assert_eq!(at("c"), "z");
        assert_eq!(at("b"), "x\n  y\n");
    }

    #[test]
    fn aliases_cannot_blow_the_tree_up() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let items = vec![format!("*a{}", level - 1); 9].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(Document::parse("a.yaml", text).is_err());
    }

    #[test]
    fn quoted_text_reads_back() {
        for text in ["", "a", "\"\\\n\t\r\0\u{7f}\u{85}\u{2028}\u{feff}ä😀", "$1 ${x} # - : *"] {
            let document = Document::parse("a.yaml", quoted(text)).unwrap();
            assert_eq!(document.root.scalar(), Some(text));
        }
    }
}
