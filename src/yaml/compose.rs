//! From the parser's events to a tree with positions.

use super::{Node, Value, mistake};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use std::collections::HashMap;

/// Deeper nesting than any configuration needs; the tree is walked recursively.
const MAX_DEPTH: usize = 64;
/// A file that is larger, or that aliases have blown up beyond this, is refused.
const MAX_NODES: usize = 200_000;

/// Why a text is not YAML that is read here.
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// Whether it is about a collection in brackets, which is not known yet.
    pub(super) flow: Option<Flow>,
}

/// Where the parser gave up on a collection in brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Before more text.
    Inside,
    /// At the end of the file.
    AtEnd,
}

impl Fault {
    pub(super) fn new(line: usize, column: usize, message: String, help: Option<String>) -> Self {
        Self { line, column, message, help, flow: None }
    }

    fn at(span: Span, message: impl Into<String>) -> Self {
        Self::new(span.start.line(), span.start.col() + 1, message.into(), None)
    }

    /// The same of a collection that begins at `span` with `bracket`, when it is the innermost one in brackets.
    fn in_brackets(self, span: Span, bracket: Option<char>) -> Self {
        let (open, close) = match (self.flow, bracket) {
            (Some(_), Some('[')) => ('[', ']'),
            (Some(_), Some('{')) => ('{', '}'),
            _ => return self,
        };
        let quotes = "put quotes around a text that holds one of `{}[],`";
        if self.flow == Some(Flow::AtEnd) || self.line > span.start.line() {
            let help = format!("close it with `{close}`; {quotes}");
            return Self {
                help: Some(help),
                ..Self::at(span, format!("this `{open}` is not closed"))
            };
        }
        let message = format!("`,` or `{close}` is missing here");
        Self { message, help: Some(format!("write it, or {quotes}")), flow: None, ..self }
    }
}

/// Turns the parser's events into a tree.
struct Composer<'t> {
    text: &'t str,
    positions: Positions,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

/// The tree of `text`; `None` when it is empty.
pub(super) fn compose(text: &str) -> Result<Option<Node>, Fault> {
    Composer { text, positions: Positions::new(text), anchors: HashMap::new(), nodes: 0 }.compose()
}

impl Composer<'_> {
    fn compose(&mut self) -> Result<Option<Node>, Fault> {
        let mut parser = Parser::new_from_str(self.text);
        let mut root = None;
        loop {
            let Some((event, span)) = self.next(&mut parser)? else { return Ok(root) };
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
        self.add(1, span)?;
        if depth > MAX_DEPTH {
            return Err(Fault::at(span, "nested too deeply"));
        }
        let (line, column) = (span.start.line(), span.start.col() + 1);
        let start = self.start(&event, span);
        let first = self.text[start..].chars().next();
        let node = |value, end: usize| Node {
            value,
            span: start..end.max(start),
            line,
            column,
            alias: false,
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tagged = is_string_tag(tag.as_deref(), span)?;
                let plain = style == ScalarStyle::Plain && !tagged;
                // The parser's span of a quoted scalar runs on over blanks and comments behind it.
                let end = match style {
                    ScalarStyle::DoubleQuoted | ScalarStyle::SingleQuoted => {
                        start + quoted_length(&self.text[start..])
                    }
                    _ => self.positions.byte(span.end.index()).max(start),
                };
                let value = Value::Scalar { text: text.into_owned(), plain };
                self.anchored(anchor, node(value, end), span)
            }
            Event::SequenceStart(anchor, tag) => {
                is_string_tag(tag.as_deref(), span)?;
                let items = self.items(parser, span, depth);
                let (items, end) = items.map_err(|fault| fault.in_brackets(span, first))?;
                self.anchored(anchor, node(Value::Sequence(items), end), span)
            }
            Event::MappingStart(anchor, tag) => {
                is_string_tag(tag.as_deref(), span)?;
                let entries = self.entries(parser, span, depth);
                let (entries, end) = entries.map_err(|fault| fault.in_brackets(span, first))?;
                self.anchored(anchor, node(Value::Mapping(entries), end), span)
            }
            Event::Alias(anchor) => {
                let value = self.target(anchor, span)?;
                let end = self.positions.byte(span.end.index());
                Ok(Node { alias: true, ..node(value, end) })
            }
            _ => Err(Fault::at(span, "unexpected end")),
        }
    }

    /// A copy of what an alias names.
    fn target(&mut self, anchor: usize, span: Span) -> Result<Value, Fault> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(Fault::at(span, "this alias names an anchor that has not ended yet"));
        };
        let (size, value) = (count(target), target.value.clone());
        self.add(size, span)?;
        Ok(value)
    }

    /// Where the value of `event` begins.
    fn start(&self, event: &Event<'_>, span: Span) -> usize {
        let start = self.positions.byte(span.start.index());
        let limit = self.positions.byte(span.end.index()).max(start);
        match event {
            Event::Scalar(_, style, ..) => start + scalar_offset(&self.text[start..limit], *style),
            // The span of a collection's first event ends with its first token, which may be the tag.
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                start + properties_length(&self.text[start..])
            }
            _ => start,
        }
    }

    /// The entries of a list that has begun, and where it ends.
    fn items<'i>(
        &mut self,
        parser: &mut Parser<'i, StrInput<'i>>,
        begun: Span,
        depth: usize,
    ) -> Result<(Vec<Node>, usize), Fault> {
        let mut items = Vec::new();
        loop {
            match self.next(parser)? {
                Some((Event::SequenceEnd, span)) => {
                    return Ok((items, self.positions.byte(span.end.index())));
                }
                Some((event, span)) => items.push(self.node(parser, event, span, depth + 1)?),
                None => return Err(Fault::at(begun, "unexpected end")),
            }
        }
    }

    /// The entries of a mapping that has begun, and where it ends.
    fn entries<'i>(
        &mut self,
        parser: &mut Parser<'i, StrInput<'i>>,
        begun: Span,
        depth: usize,
    ) -> Result<(Vec<(Node, Node)>, usize), Fault> {
        let mut entries = Vec::new();
        loop {
            let key = match self.next(parser)? {
                Some((Event::MappingEnd, span)) => {
                    return Ok((entries, self.positions.byte(span.end.index())));
                }
                Some((event, span)) => self.node(parser, event, span, depth + 1)?,
                None => return Err(Fault::at(begun, "unexpected end")),
            };
            let Some((event, span)) = self.next(parser)? else {
                return Err(Fault::at(begun, "unexpected end"));
            };
            entries.push((key, self.node(parser, event, span, depth + 1)?));
        }
    }

    /// The next event; what the parser says is wrong in a person's words.
    fn next<'i>(
        &self,
        parser: &mut Parser<'i, StrInput<'i>>,
    ) -> Result<Option<(Event<'i>, Span)>, Fault> {
        parser.next_event().transpose().map_err(|error| {
            let marker = error.marker();
            mistake::explain(self.text, error.info(), marker.line().max(1), marker.col() + 1)
        })
    }

    fn anchored(&mut self, anchor: usize, node: Node, span: Span) -> Result<Node, Fault> {
        if anchor > 0 {
            // What is kept for aliases counts too: anchors inside anchors keep their contents many times over.
            self.add(count(&node), span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn add(&mut self, nodes: usize, span: Span) -> Result<(), Fault> {
        self.nodes += nodes;
        match self.nodes > MAX_NODES {
            true => Err(Fault::at(span, "too large, or too large through anchors and aliases")),
            false => Ok(()),
        }
    }
}

/// The length of the tag and the anchor with which `text` begins, and of what stands between them and the value.
fn properties_length(text: &str) -> usize {
    let mut rest = text;
    while rest.starts_with(['!', '&']) {
        rest = rest.trim_start_matches(|c: char| !c.is_whitespace());
        loop {
            rest = rest.trim_start();
            if !rest.starts_with('#') {
                break;
            }
            rest = rest.trim_start_matches(|c| c != '\n');
        }
    }
    text.len() - rest.len()
}

/// Where the content of a scalar begins: behind its tag and anchor, and behind the `|` line that then comes too.
fn scalar_offset(text: &str, style: ScalarStyle) -> usize {
    let properties = properties_length(text);
    let header = match (properties, style) {
        (1.., ScalarStyle::Literal | ScalarStyle::Folded) => {
            text[properties..].find('\n').map_or(0, |end| end + 1)
        }
        _ => 0,
    };
    let rest = &text[properties + header..];
    let blank = if header > 0 { rest.len() - rest.trim_start().len() } else { 0 };
    properties + header + blank
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
