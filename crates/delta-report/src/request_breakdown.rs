//! Breaks a request to the LLM down into its context blocks, its tools and the rest, each with size and hash.
//!
//! Pure functions of the request text and the recorded blocks.

use delta_run::event::image_file::image_tokens;
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{ContextBlock, sha256_hex};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;

mod request_diff;

pub use request_diff::{
    BlockChange, BlockDiff, CacheBreak, InputCost, RequestDiff, RequestPrices, compare_breakdowns,
};
pub(crate) use request_diff::{common_prefix_len, excerpt_around};

const MESSAGES_MEMBER: &str = "messages";
const TOOLS_MEMBER: &str = "tools";

/// A parsed request that refers to its text.
#[derive(Debug)]
pub struct RequestBreakdown<'a> {
    text: &'a str,
    /// The byte ranges of the messages in the text.
    messages: Vec<Range<usize>>,
    /// All other members.
    members: BTreeMap<String, &'a str>,
    /// The sizes and hashes.
    pub summary: RequestSummary,
}

/// The parts of a request. Their sizes add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestSummary {
    /// The number of messages.
    pub messages: usize,
    /// The length of the request.
    pub bytes: usize,
    /// The estimated number of tokens.
    pub tokens: u64,
    /// The hash of the whole text.
    pub sha256: String,
    /// The context blocks that the messages come from, in order.
    pub blocks: Vec<RequestBlock>,
    /// The tool definitions.
    pub tools: RequestTools,
    /// Everything else: the model, the settings and the JSON between the parts.
    pub rest: PartSize,
    /// Whether a hook replaced the messages. Then the blocks are the hook's input, and the source of each message is
    /// unknown.
    pub replaced: bool,
}

/// A context block of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestBlock {
    /// The position, counted from 1.
    pub order: usize,
    /// The id of the context source, or its file name.
    pub source: String,
    /// The `type` in context.yaml, such as `file` or `journal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of messages.
    pub messages: usize,
    /// The position of the first message, counted from 1.
    pub first_message: Option<usize>,
    /// The length of the messages in the request.
    pub bytes: usize,
    /// The estimated number of tokens.
    pub tokens: u64,
    /// The hash of the messages.
    pub sha256: Option<String>,
    /// What was cut from the block.
    pub cut: Option<String>,
    /// Why the block has no messages.
    pub skipped: Option<String>,
}

/// The size of a part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartSize {
    /// The length in bytes.
    pub bytes: usize,
    /// The estimated number of tokens.
    pub tokens: u64,
}

/// The tool definitions of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestTools {
    /// The names of the tools, in order.
    pub names: Vec<String>,
    /// The length of the definitions.
    pub bytes: usize,
    /// The estimated number of tokens.
    pub tokens: u64,
    /// The hash of the definitions, if there are any.
    pub sha256: Option<String>,
}

impl<'a> RequestBreakdown<'a> {
    /// Parses a request whose messages come from `blocks`. `ratio` is the ratio of reported to estimated tokens.
    ///
    /// # Errors
    /// The text is not a request in the form of Chat Completions.
    pub fn parse(
        text: &'a str,
        blocks: &[ContextBlock],
        ratio: TokenRatio,
    ) -> Result<Self, serde_json::Error> {
        let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(text)?;
        let mut members: BTreeMap<String, &'a str> =
            members.into_iter().map(|(key, value)| (key, value.get())).collect();
        let list = members.remove(MESSAGES_MEMBER).unwrap_or("[]");
        let list: Vec<&'a RawValue> = serde_json::from_str(list)?;
        let messages: Vec<Range<usize>> = list
            .iter()
            .map(|message| {
                let start = substring_offset(text, message.get());
                start..start + message.get().len()
            })
            .collect();
        let tools = members.get(TOOLS_MEMBER).copied();
        let summary = RequestSummary::new(text, &messages, tools, blocks, ratio);
        Ok(Self { text, messages, members, summary })
    }

    /// The messages of a block, each as the request has it.
    pub fn block_messages(&self, block: &RequestBlock) -> Vec<&'a str> {
        let Some(first) = block.first_message else { return Vec::new() };
        let ranges = &self.messages[first - 1..first - 1 + block.messages];
        ranges.iter().map(|range| &self.text[range.clone()]).collect()
    }

    /// The estimated tokens of the whole request, as one text with images.
    pub fn total_tokens(&self, ratio: TokenRatio) -> u64 {
        ratio.request_tokens(self.text.len(), image_tokens(self.text))
    }

    /// The estimated tokens of the images in the first `count` messages.
    fn image_tokens(&self, count: usize) -> u64 {
        let messages = &self.messages[..count];
        messages.last().map_or(0, |last| image_tokens(&self.text[messages[0].start..last.end]))
    }

    /// The block that a message comes from, counted from 0, if it is known.
    pub(crate) fn message_block(&self, message: usize) -> Option<&RequestBlock> {
        self.summary.blocks.iter().find(|block| {
            let first = block.first_message.map(|first| first - 1);
            first.is_some_and(|first| (first..first + block.messages).contains(&message))
        })
    }

    /// The model, the tools and the first `count` messages, with which another request may begin: their hash and their tokens.
    pub(crate) fn leading_part(&self, count: usize, ratio: TokenRatio) -> (String, u64) {
        let messages = &self.messages[..count.min(self.messages.len())];
        let text = messages.last().map_or("", |last| &self.text[messages[0].start..last.end]);
        let head = ["model", TOOLS_MEMBER].map(|name| self.members.get(name).copied());
        let bytes = text.len() + head[1].map_or(0, str::len);
        let tokens = ratio.request_tokens(bytes, image_tokens(text));
        (sha256_hex(format!("{head:?} {text}")), tokens)
    }

    /// The text of a block's messages.
    fn block_bytes(&self, block: &RequestBlock) -> &'a str {
        let range = block.first_message.and_then(|first| {
            let last = self.messages.get(first - 1 + block.messages.checked_sub(1)?)?;
            Some(self.messages[first - 1].start..last.end)
        });
        range.map_or("", |range| &self.text[range])
    }
}

impl RequestSummary {
    fn new(
        text: &str,
        messages: &[Range<usize>],
        tools: Option<&str>,
        blocks: &[ContextBlock],
        ratio: TokenRatio,
    ) -> Self {
        let counted = blocks.iter().map(|block| block.messages).fold(0, usize::saturating_add);
        let replaced = counted != messages.len();
        let mut next = 0;
        let mut parts = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let mut part = RequestBlock::new(index + 1, block);
            if !replaced && block.messages > 0 {
                let first = &messages[next];
                let last = &messages[next + block.messages - 1];
                let block_text = &text[first.start..last.end];
                part.first_message = Some(next + 1);
                part.bytes = block_text.len();
                part.sha256 = Some(sha256_hex(block_text));
                next += block.messages;
            }
            parts.push(part);
        }
        let messages_size = if replaced {
            let bytes = messages.iter().map(Range::len).sum();
            let images = image_tokens(text);
            PartSize { bytes, tokens: ratio.request_tokens(bytes, images) }
        } else {
            PartSize {
                bytes: parts.iter().map(|part| part.bytes).sum(),
                tokens: parts.iter().map(|part| part.tokens).fold(0, u64::saturating_add),
            }
        };
        let tools = RequestTools::parse(tools.unwrap_or_default(), ratio);
        // The parts follow from a journal that others may have changed.
        let rest = text.len().saturating_sub(messages_size.bytes.saturating_add(tools.bytes));
        let rest = PartSize { bytes: rest, tokens: ratio.tokens(rest) };
        Self {
            messages: messages.len(),
            bytes: text.len(),
            tokens: messages_size.tokens.saturating_add(tools.tokens).saturating_add(rest.tokens),
            sha256: sha256_hex(text),
            blocks: parts,
            tools,
            rest,
            replaced,
        }
    }
}

impl RequestBlock {
    fn new(order: usize, block: &ContextBlock) -> Self {
        Self {
            order,
            source: block.source.clone(),
            kind: block.kind.clone(),
            messages: block.messages,
            first_message: None,
            bytes: block.bytes,
            tokens: block.tokens,
            sha256: None,
            cut: block.cut.clone(),
            skipped: block.skipped.clone(),
        }
    }
}

impl RequestTools {
    fn parse(text: &str, ratio: TokenRatio) -> Self {
        let definitions: Vec<serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
        let names = definitions.iter().map(|definition| definition["function"]["name"].as_str());
        Self {
            names: names.map(|name| name.unwrap_or_default().to_owned()).collect(),
            bytes: text.len(),
            tokens: ratio.tokens(text.len()),
            sha256: (!text.is_empty()).then(|| sha256_hex(text)),
        }
    }
}

/// The offset of `part`, a slice of `text`, in it.
fn substring_offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn block(source: &str, messages: usize) -> ContextBlock {
        ContextBlock {
            source: source.to_owned(),
            kind: "file".to_owned(),
            messages,
            bytes: 0,
            tokens: 10,
            cut: None,
            skipped: None,
        }
    }

    #[test]
    fn c_8_5_the_parts_of_a_request_add_up_to_the_whole() {
        let text = r#"{"model":"m","messages":[{"a":1},{"b":22},{"c":3}],"tools":[{"function":{"name":"t"}}]}"#;
        let blocks = [block("one", 1), block("none", 0), block("two", 2)];
        let composition = RequestBreakdown::parse(text, &blocks, TokenRatio::default()).unwrap();
        let account = &composition.summary;
        let places: Vec<_> =
            account.blocks.iter().map(|part| (part.first_message, part.bytes)).collect();
        assert_eq!(places, [(Some(1), 7), (None, 0), (Some(2), 16)]);
        assert_eq!(account.blocks[2].sha256, Some(sha256_hex(r#"{"b":22},{"c":3}"#)));
        assert_eq!(composition.block_messages(&account.blocks[2]), [r#"{"b":22}"#, r#"{"c":3}"#]);
        assert_eq!(composition.block_messages(&account.blocks[1]), Vec::<&str>::new());
        assert_eq!(
            [0, 2].map(|message| composition.message_block(message).unwrap().source.as_str()),
            ["one", "two"]
        );
        assert_eq!(account.tools.names, ["t"]);
        assert_eq!(7 + 16 + account.tools.bytes + account.rest.bytes, text.len());
        assert_eq!(account.tokens, 30 + account.tools.tokens + account.rest.tokens);
        assert!(!account.replaced);
    }

    #[test]
    fn c_8_5_messages_of_a_hook_belong_to_no_block() {
        let text = r#"{"messages":[{"a":1},{"b":2}]}"#;
        let composition =
            RequestBreakdown::parse(text, &[block("one", 1)], TokenRatio::default()).unwrap();
        let account = &composition.summary;
        assert!(account.replaced);
        assert_eq!((account.blocks[0].first_message, &account.blocks[0].sha256), (None, &None));
        assert_eq!((account.tools.bytes, account.rest.bytes), (0, text.len() - 14));
        assert!(RequestBreakdown::parse("[]", &[], TokenRatio::default()).is_err());
    }
}
