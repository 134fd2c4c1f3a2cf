//! The structure of a Markdown text, for the page to build elements from.
//!
//! The tree names kinds of a fixed list and places in the text, which the page has already; it holds no markup.
//! Raw HTML is text in it, and a link that leads anywhere but to the web or to a mail address is none.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};
use serde::Serialize;
use std::ops::Range;

/// Longer texts stay as they are.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// Deeper texts stay as they are: browsers lay out deep elements slowly, or not at all.
const MAX_DEPTH: usize = 32;
/// Texts with a larger tree stay as they are.
const MAX_STEPS: usize = 100_000;
/// The schemes of links that can be followed.
const LINK_STARTS: [&str; 3] = ["http://", "https://", "mailto:"];

/// The steps that build a text: each a kind, followed by what this kind needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct MarkdownTree(Vec<MarkdownStep>);

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum MarkdownStep {
    Number(u64),
    /// A text that is not in the source as it is shown, such as a decoded entity or the target of a link.
    Literal(String),
}

/// The kinds of steps. The page has the same numbers.
#[derive(Debug, Clone, Copy)]
enum StepKind {
    /// Closes what was opened last.
    Close = 0,
    /// A piece of the source: its start and its length, in UTF-16 units.
    Source = 1,
    /// A literal.
    Literal = 2,
    LineBreak = 3,
    Rule = 4,
    /// Whether it is checked.
    Checkbox = 5,
    Paragraph = 10,
    /// Its level.
    Heading = 11,
    Quote = 12,
    /// The name of its language.
    CodeBlock = 13,
    Bullets = 14,
    /// Its first number.
    Numbers = 15,
    Item = 16,
    Table = 17,
    HeadRow = 18,
    Row = 19,
    /// Its alignment: 0 none, 1 left, 2 centre, 3 right.
    Cell = 20,
    Emphasis = 21,
    Strong = 22,
    Deleted = 23,
    Code = 24,
    /// Its target and its title.
    Link = 25,
    /// A link that cannot be followed: its target and its title.
    Unlinked = 26,
    /// The address and the title of the image.
    Picture = 27,
}

/// Parses `text`; `None` when it stays as it is: it has no structure, or more of it than the page draws, or letters that
/// Markdown does not show, such as a cell beyond the last column, or a diff outside of a code block, whose signs Markdown
/// would read as headings and lists.
/// `is_allowed` judges the text as it is read once its Markdown is rendered.
pub fn parse_markdown(text: &str, is_allowed: impl Fn(&str) -> bool) -> Option<MarkdownTree> {
    if text.len() > MAX_TEXT_BYTES {
        return None;
    }
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = TreeBuilder { text, ..TreeBuilder::default() };
    let mut diffs = diff_offsets(text);
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        if matches!(event, Event::Start(Tag::CodeBlock(_))) {
            diffs.retain(|diff| !range.contains(diff));
        }
        builder.add_event(event, range);
        if builder.depth > MAX_DEPTH
            || builder.steps.len() > MAX_STEPS
            || builder.literal_bytes > MAX_TEXT_BYTES
        {
            return None;
        }
    }
    let shows_all = builder.shown_letters == count_letters(text);
    (builder.has_structure && shows_all && diffs.is_empty() && is_allowed(&builder.plain))
        .then_some(MarkdownTree(builder.steps))
}

/// Where the files of unified diffs begin in `text`.
fn diff_offsets(text: &str) -> Vec<usize> {
    let mut offsets = Vec::new();
    let mut offset = 0;
    let mut before = "";
    for line in text.split_inclusive('\n') {
        if line.starts_with("+++ ") && before.starts_with("--- ") {
            offsets.push(offset - before.len());
        }
        offset += line.len();
        before = line;
    }
    offsets
}

#[derive(Default)]
struct TreeBuilder<'t> {
    text: &'t str,
    steps: Vec<MarkdownStep>,
    /// The text as it is read.
    plain: String,
    /// How many letters of the source are shown.
    shown_letters: usize,
    depth: usize,
    paragraphs: usize,
    has_structure: bool,
    literal_bytes: usize,
    /// The alignments of the current table, and the column of its next cell.
    alignments: Vec<Alignment>,
    column: usize,
    /// A byte offset and its UTF-16 offset.
    position: (usize, usize),
    /// The end of the last piece of the source, if nothing was added after it.
    last_end: Option<usize>,
}

impl<'t> TreeBuilder<'t> {
    fn add_event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.open_tag(tag),
            Event::End(TagEnd::Table) => {
                self.alignments.clear();
                self.close();
            }
            Event::End(_) => self.close(),
            Event::Code(code) => {
                self.open(StepKind::Code);
                let source = &self.text[range.clone()];
                let start = source.find(&*code).map_or(range.start, |at| range.start + at);
                self.shown_letters += count_letters(&code);
                self.add_text(&code, start);
                self.close();
            }
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text)
            | Event::FootnoteReference(text) => {
                self.shown_letters += count_letters(&self.text[range.clone()]);
                self.add_text(&text, range.start);
            }
            // A line break in a message is meant as one.
            Event::SoftBreak | Event::HardBreak => {
                self.plain.push('\n');
                self.add_kind(StepKind::LineBreak);
            }
            Event::Rule => self.add_structure(StepKind::Rule),
            Event::TaskListMarker(is_checked) => {
                self.shown_letters += count_letters(&self.text[range]);
                self.add_structure(StepKind::Checkbox);
                self.add_number(u64::from(is_checked));
            }
        }
    }

    fn open_tag(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.open(StepKind::Heading);
                self.add_number(level as u64);
            }
            Tag::BlockQuote(_) => self.open(StepKind::Quote),
            Tag::CodeBlock(kind) => {
                self.open(StepKind::CodeBlock);
                match kind {
                    CodeBlockKind::Fenced(info) => {
                        self.shown_letters += count_letters(&info);
                        self.add_literal(&info);
                    }
                    CodeBlockKind::Indented => self.add_literal(""),
                }
            }
            Tag::List(None) => self.open(StepKind::Bullets),
            Tag::List(Some(first)) => {
                self.open(StepKind::Numbers);
                self.add_number(first);
            }
            Tag::Item => self.open(StepKind::Item),
            Tag::Table(alignments) => {
                self.alignments = alignments;
                self.open(StepKind::Table);
            }
            Tag::TableHead => self.open_row(StepKind::HeadRow),
            Tag::TableRow => self.open_row(StepKind::Row),
            Tag::TableCell => {
                let alignment = self.alignments.get(self.column).copied();
                self.column += 1;
                self.open(StepKind::Cell);
                self.add_number(alignment.unwrap_or(Alignment::None) as u64);
            }
            Tag::Emphasis => self.open(StepKind::Emphasis),
            Tag::Strong => self.open(StepKind::Strong),
            Tag::Strikethrough => self.open(StepKind::Deleted),
            Tag::Link { link_type, dest_url, title, .. } => {
                let kind = if is_link(&dest_url) { StepKind::Link } else { StepKind::Unlinked };
                self.open_target(kind, link_type, &dest_url, &title);
            }
            Tag::Image { link_type, dest_url, title, .. } => {
                self.open_target(StepKind::Picture, link_type, &dest_url, &title);
            }
            // The rest needs options that are off, and would be a paragraph.
            _ => self.open_paragraph(),
        }
    }

    fn open_paragraph(&mut self) {
        // A single paragraph looks the same as its text.
        let is_structure = self.has_structure;
        self.open(StepKind::Paragraph);
        self.paragraphs += 1;
        self.has_structure = is_structure || self.paragraphs > 1;
    }

    fn open_target(&mut self, kind: StepKind, link_type: LinkType, target: &str, title: &str) {
        self.open(kind);
        self.add_literal(target);
        self.add_literal(title);
        // Of the others, the source has the target elsewhere, or as the text of the link.
        if link_type == LinkType::Inline {
            self.shown_letters += count_letters(target) + count_letters(title);
        }
    }

    fn open_row(&mut self, kind: StepKind) {
        self.column = 0;
        self.open(kind);
    }

    fn open(&mut self, kind: StepKind) {
        self.depth += 1;
        self.add_structure(kind);
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.add_kind(StepKind::Close);
    }

    fn add_structure(&mut self, kind: StepKind) {
        self.has_structure = true;
        self.add_kind(kind);
    }

    fn add_kind(&mut self, kind: StepKind) {
        self.add_number(kind as u64);
    }

    fn add_number(&mut self, number: u64) {
        self.last_end = None;
        self.steps.push(MarkdownStep::Number(number));
    }

    fn add_literal(&mut self, text: &str) {
        self.last_end = None;
        self.literal_bytes += text.len();
        self.plain.push_str(text);
        self.steps.push(MarkdownStep::Literal(text.to_owned()));
    }

    /// Adds a text that begins at `start` of the source, unless it is shown in another way than it is written there.
    fn add_text(&mut self, text: &str, start: usize) {
        if self.text.get(start..start + text.len()) != Some(text) {
            self.has_structure = true;
            self.add_kind(StepKind::Literal);
            self.add_literal(text);
            return;
        }
        let end = start + text.len();
        let length = text.encode_utf16().count() as u64;
        self.plain.push_str(text);
        if self.last_end == Some(start)
            && let Some(MarkdownStep::Number(last_length)) = self.steps.last_mut()
        {
            *last_length += length;
        } else {
            // The bytes between are not shown, such as the backslash of an escape.
            self.has_structure |= self.last_end.is_some();
            let offset = self.utf16_offset(start);
            self.add_kind(StepKind::Source);
            self.add_number(offset);
            self.add_number(length);
        }
        self.last_end = Some(end);
    }

    /// The offset in UTF-16 units of a byte of the source. Parsers go forward, so each byte is counted once.
    fn utf16_offset(&mut self, byte: usize) -> u64 {
        if byte < self.position.0 {
            self.position = (0, 0);
        }
        let between = &self.text[self.position.0..byte];
        self.position = (byte, self.position.1 + between.encode_utf16().count());
        self.position.1 as u64
    }
}

fn count_letters(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphabetic()).count()
}

/// Whether a target begins with an allowed scheme, and has no character that a browser would drop or reorder.
fn is_link(target: &str) -> bool {
    let has_scheme = LINK_STARTS.iter().any(|start| {
        target.get(..start.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(start))
    });
    has_scheme && target.chars().all(|c| c.is_ascii_graphic() || c.is_alphanumeric())
}

#[cfg(test)]
mod tests;
