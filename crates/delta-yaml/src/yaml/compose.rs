//! Builds a tree with positions from the parser's events.

use super::{YamlNode, YamlValue, escaped_pairs, syntax_hint};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use std::borrow::Cow;
use std::collections::HashMap;

/// The tree is walked recursively, so its depth must be bounded.
const MAX_DEPTH: usize = 64;
/// The bound on nodes, aliases expanded.
const MAX_NODES: usize = 200_000;

/// The position, message and fix of a syntax error.
pub(super) struct YamlSyntaxError {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) message: String,
    pub(super) help: Option<String>,
    /// Set when the error is in a collection in brackets, which the composer still has to identify.
    pub(super) flow_context: Option<FlowContext>,
}

/// Where the parser stopped in a collection in brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowContext {
    BeforeText,
    AtEndOfFile,
}

impl YamlSyntaxError {
    pub(super) fn new(line: usize, column: usize, message: String, help: Option<String>) -> Self {
        Self { line, column, message, help, flow_context: None }
    }

    fn at_span(span: Span, message: impl Into<String>) -> Self {
        Self::new(span.start.line(), span.start.col() + 1, message.into(), None)
    }

    /// Names the bracket when the error is in a collection in brackets that starts at `span` with `bracket`.
    fn with_bracket(self, span: Span, bracket: Option<char>) -> Self {
        let (open, close) = match (self.flow_context, bracket) {
            (Some(_), Some('[')) => ('[', ']'),
            (Some(_), Some('{')) => ('{', '}'),
            _ => return self,
        };
        let quotes = "put quotes around a string that contains one of `{}[],`";
        if self.flow_context == Some(FlowContext::AtEndOfFile) || self.line > span.start.line() {
            let help = format!("close it with `{close}`; {quotes}");
            return Self {
                help: Some(help),
                ..Self::at_span(span, format!("this `{open}` is not closed"))
            };
        }
        let message = format!("expected `,` or `{close}` here");
        Self { message, help: Some(format!("add it, or {quotes}")), flow_context: None, ..self }
    }
}

struct Composer<'t> {
    text: &'t str,
    positions: BytePositions,
    anchors: HashMap<usize, YamlNode>,
    node_count: usize,
    /// Whether the parser reads other characters in place of the halves of characters.
    has_pairs: bool,
}

/// Parses `text` to a tree; `None` when it is empty.
pub(super) fn compose_yaml(text: &str) -> Result<Option<YamlNode>, YamlSyntaxError> {
    let for_parser = escaped_pairs::replace_pairs(text);
    let mut composer = Composer {
        text,
        positions: BytePositions::new(text),
        anchors: HashMap::new(),
        node_count: 0,
        has_pairs: matches!(for_parser, Cow::Owned(_)),
    };
    composer.compose_document(&for_parser)
}

impl Composer<'_> {
    fn compose_document(&mut self, text: &str) -> Result<Option<YamlNode>, YamlSyntaxError> {
        let mut parser = Parser::new_from_str(text);
        let mut root = None;
        loop {
            let Some((event, span)) = self.next_event(&mut parser)? else { return Ok(root) };
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(YamlSyntaxError::at_span(
                        span,
                        "a second document starts here; expected one per file",
                    ));
                }
                Event::DocumentStart(_) => {}
                Event::StreamEnd => return Ok(root),
                event => root = Some(self.compose_node(&mut parser, event, span, 0)?),
            }
        }
    }

    fn compose_node<'i>(
        &mut self,
        parser: &mut Parser<'i, StrInput<'i>>,
        event: Event<'i>,
        span: Span,
        depth: usize,
    ) -> Result<YamlNode, YamlSyntaxError> {
        self.count_nodes(1, span)?;
        if depth > MAX_DEPTH {
            return Err(YamlSyntaxError::at_span(span, "nested too deeply"));
        }
        let start = self.value_start(&event, span);
        let bracket = self.text[start..].chars().next();
        let node = |value, end: usize| YamlNode {
            value,
            span: start..end.max(start),
            line: span.start.line(),
            column: span.start.col() + 1,
            is_alias: false,
        };
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_tagged = is_string_tag(tag.as_deref(), span)?;
                let is_plain = style == ScalarStyle::Plain && !is_tagged;
                // The parser's span of a quoted scalar includes the blanks and comments after it.
                let end = match style {
                    ScalarStyle::DoubleQuoted | ScalarStyle::SingleQuoted => {
                        start + quoted_scalar_length(&self.text[start..])
                    }
                    _ => self.positions.to_byte(span.end.index()).max(start),
                };
                let text = if self.has_pairs {
                    escaped_pairs::join_pairs(&text, style == ScalarStyle::DoubleQuoted)
                } else {
                    text.into_owned()
                };
                let value = YamlValue::Scalar { text, is_plain };
                self.register_anchor(anchor, node(value, end), span)
            }
            Event::SequenceStart(anchor, tag) => {
                is_string_tag(tag.as_deref(), span)?;
                let (items, end) = self
                    .compose_items(parser, span, depth)
                    .map_err(|error| error.with_bracket(span, bracket))?;
                self.register_anchor(anchor, node(YamlValue::Sequence(items), end), span)
            }
            Event::MappingStart(anchor, tag) => {
                is_string_tag(tag.as_deref(), span)?;
                let (entries, end) = self
                    .compose_entries(parser, span, depth)
                    .map_err(|error| error.with_bracket(span, bracket))?;
                self.register_anchor(anchor, node(YamlValue::Mapping(entries), end), span)
            }
            Event::Alias(anchor) => {
                let value = self.resolve_alias(anchor, span)?;
                let end = self.positions.to_byte(span.end.index());
                Ok(YamlNode { is_alias: true, ..node(value, end) })
            }
            _ => Err(YamlSyntaxError::at_span(span, "unexpected end")),
        }
    }

    /// A copy of the anchor's value.
    fn resolve_alias(&mut self, anchor: usize, span: Span) -> Result<YamlValue, YamlSyntaxError> {
        let Some(target) = self.anchors.get(&anchor) else {
            return Err(YamlSyntaxError::at_span(span, "this alias is inside its own anchor"));
        };
        let value = target.value.clone();
        self.count_nodes(subtree_size(target), span)?;
        Ok(value)
    }

    /// The byte at which the value of `event` starts.
    fn value_start(&self, event: &Event<'_>, span: Span) -> usize {
        let start = self.positions.to_byte(span.start.index());
        let limit = self.positions.to_byte(span.end.index()).max(start);
        match event {
            Event::Scalar(_, style, ..) => start + scalar_offset(&self.text[start..limit], *style),
            // The span of a collection's first event ends with its first token, which may be a tag.
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                start + properties_length(&self.text[start..])
            }
            _ => start,
        }
    }

    /// The items of the list that starts at `start`, and the byte at which it ends.
    fn compose_items<'i>(
        &mut self,
        parser: &mut Parser<'i, StrInput<'i>>,
        start: Span,
        depth: usize,
    ) -> Result<(Vec<YamlNode>, usize), YamlSyntaxError> {
        let mut items = Vec::new();
        loop {
            match self.next_event(parser)? {
                Some((Event::SequenceEnd, span)) => {
                    return Ok((items, self.positions.to_byte(span.end.index())));
                }
                Some((event, span)) => {
                    items.push(self.compose_node(parser, event, span, depth + 1)?)
                }
                None => return Err(YamlSyntaxError::at_span(start, "unexpected end")),
            }
        }
    }

    /// The entries of the mapping that starts at `start`, and the byte at which it ends.
    fn compose_entries<'i>(
        &mut self,
        parser: &mut Parser<'i, StrInput<'i>>,
        start: Span,
        depth: usize,
    ) -> Result<(Vec<(YamlNode, YamlNode)>, usize), YamlSyntaxError> {
        let mut entries = Vec::new();
        loop {
            let key = match self.next_event(parser)? {
                Some((Event::MappingEnd, span)) => {
                    return Ok((entries, self.positions.to_byte(span.end.index())));
                }
                Some((event, span)) => self.compose_node(parser, event, span, depth + 1)?,
                None => return Err(YamlSyntaxError::at_span(start, "unexpected end")),
            };
            let Some((event, span)) = self.next_event(parser)? else {
                return Err(YamlSyntaxError::at_span(start, "unexpected end"));
            };
            entries.push((key, self.compose_node(parser, event, span, depth + 1)?));
        }
    }

    /// The next event; an error of the parser is explained for the user.
    fn next_event<'i>(
        &self,
        parser: &mut Parser<'i, StrInput<'i>>,
    ) -> Result<Option<(Event<'i>, Span)>, YamlSyntaxError> {
        parser.next_event().transpose().map_err(|error| {
            let marker = error.marker();
            syntax_hint::explain_syntax_error(
                self.text,
                error.info(),
                marker.line().max(1),
                marker.col() + 1,
            )
        })
    }

    fn register_anchor(
        &mut self,
        anchor: usize,
        node: YamlNode,
        span: Span,
    ) -> Result<YamlNode, YamlSyntaxError> {
        if anchor > 0 {
            // The copy counts too: nested anchors would store their contents many times.
            self.count_nodes(subtree_size(&node), span)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count_nodes(&mut self, nodes: usize, span: Span) -> Result<(), YamlSyntaxError> {
        self.node_count += nodes;
        if self.node_count > MAX_NODES {
            let message = format!(
                "too large: more than {MAX_NODES} nodes, with anchors and aliases expanded"
            );
            return Err(YamlSyntaxError::at_span(span, message));
        }
        Ok(())
    }
}

/// The length of the tag and anchor at the start of `text`, and of the blanks and comments before the value.
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

/// The offset of a scalar's content: after its tag and anchor, and after a `|` line that follows them.
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

/// The length of the quoted scalar at the start of `text`, quotes included.
fn quoted_scalar_length(text: &str) -> usize {
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

fn subtree_size(node: &YamlNode) -> usize {
    let items: usize = node.items().iter().map(subtree_size).sum();
    let entries: usize =
        node.entries().iter().map(|(key, value)| subtree_size(key) + subtree_size(value)).sum();
    1 + items + entries
}

/// Whether the tag makes a plain scalar a string.
fn is_string_tag(tag: Option<&Tag>, span: Span) -> Result<bool, YamlSyntaxError> {
    match tag {
        None => Ok(false),
        Some(tag) if tag.is_yaml_core_schema() => Ok(tag.suffix == "str"),
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Ok(true),
        Some(_) => Err(YamlSyntaxError::at_span(span, "custom tags (`!name`) are not supported")),
    }
}

/// Converts the parser's character positions to byte positions.
struct BytePositions {
    char_starts: Option<Vec<usize>>,
    length: usize,
}

impl BytePositions {
    fn new(text: &str) -> Self {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { char_starts: bytes, length: text.len() }
    }

    fn to_byte(&self, character: usize) -> usize {
        match &self.char_starts {
            Some(bytes) => bytes.get(character).copied().unwrap_or(self.length),
            None => character.min(self.length),
        }
    }
}
