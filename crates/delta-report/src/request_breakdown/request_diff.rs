//! Compares two requests: what changed, and how much of the later one a provider's prompt cache can hold.

use super::{
    MESSAGES_MEMBER, PartSize, RequestBlock, RequestBreakdown, TOOLS_MEMBER, substring_offset,
};
use delta_run::event::image_file::image_tokens;
use delta_run::limits::token_estimate::TokenRatio;
use delta_words::{CacheUse, Pricing, TokenPrices};
use serde::Serialize;

/// The characters of an excerpt before the first different byte, and from it on.
const EXCERPT_CHARS: (usize, usize) = (24, 48);
const MODEL_MEMBER: &str = "model";

/// The changes from one request to a later one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RequestDiff {
    /// The blocks of the later request, then the removed ones.
    pub blocks: Vec<BlockDiff>,
    /// Whether a hook replaced the messages of either request. Then there are no blocks to compare.
    pub replaced: bool,
    /// The names of the changed members other than `messages`.
    pub settings: Vec<String>,
    /// Where the prompt cache breaks; `None` when the later request only appends to the earlier one.
    pub breaks: Option<CacheBreak>,
    /// The part of the later request that the cache can hold.
    pub cacheable: PartSize,
    /// The part of the later request that the cache cannot hold, which is billed in full.
    pub behind: PartSize,
    /// The part of the earlier request after the break, which the cache loses.
    pub lost: PartSize,
    /// The costs of the three, if the prices are known.
    pub cost_usd: Option<InputCost>,
}

/// The cost of input tokens in USD.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct InputCost {
    /// The cacheable part at the price of cached input.
    pub cacheable: f64,
    /// The rest of the later request.
    pub behind: f64,
    /// The extra cost of the break: the lost part at the difference of the two prices.
    pub lost: f64,
}

/// What a token of a request costs.
#[derive(Debug, Clone, Copy)]
pub struct RequestPrices<'a> {
    /// The prices of the model.
    pub pricing: &'a Pricing,
    /// How the later request used the endpoint's cache.
    pub cache_use: CacheUse,
}

impl RequestPrices<'_> {
    fn input_cost(self, cacheable: u64, rest: u64, lost: u64, breaks: bool) -> InputCost {
        let prices = self.pricing.for_input(cacheable.saturating_add(rest));
        let TokenPrices { input, cached_input, cache_write, .. } = *prices;
        let cached = if self.cache_use == CacheUse::Unused { input } else { cached_input };
        let fresh = match self.cache_use {
            CacheUse::Automatic => cache_write,
            // No marker follows what has changed.
            CacheUse::Marked if !breaks => cache_write,
            CacheUse::Marked | CacheUse::Unused => input,
        };
        let cost = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        InputCost {
            cacheable: cost(cacheable, cached),
            behind: cost(rest, fresh),
            lost: cost(lost, input - cached),
        }
    }
}

/// The change of a block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockDiff {
    /// The id of the context source, or its file name.
    pub source: String,
    /// The `type` in context.yaml, such as `file` or `journal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of change.
    pub change: BlockChange,
    /// The size in the earlier request.
    pub before: PartSize,
    /// The size in the later request.
    pub after: PartSize,
}

/// How a block changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockChange {
    /// Not at all.
    Same,
    /// Text was appended.
    Grew,
    /// Its text differs.
    Changed,
    /// It was missing or empty before.
    Added,
    /// It is missing or empty now.
    Removed,
}

impl BlockChange {
    /// The name in the JSON form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Grew => "grew",
            Self::Changed => "changed",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// The first difference of two requests in the order in which a provider reads them: model, tools, messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheBreak {
    /// `model`, `tools` or `messages`.
    pub part: &'static str,
    /// The byte offset in the later request.
    pub offset: usize,
    /// The message, counted from 1.
    pub message: Option<usize>,
    /// The role of the message.
    pub role: Option<String>,
    /// The block of the message, if it is known.
    pub source: Option<String>,
    /// An excerpt of the earlier request there.
    pub before: String,
    /// An excerpt of the later request there.
    pub after: String,
}

/// Compares an earlier request with a later one.
pub fn compare_breakdowns(
    earlier: &RequestBreakdown<'_>,
    later: &RequestBreakdown<'_>,
    ratio: TokenRatio,
    prices: Option<RequestPrices<'_>>,
) -> RequestDiff {
    let CommonPart { breaks, bytes: common, messages } = find_cache_break(earlier, later);
    let size = |bytes: usize, image_tokens: u64| PartSize {
        bytes,
        tokens: ratio.request_tokens(bytes, image_tokens),
    };
    let common_images = later.image_tokens(messages);
    let cacheable = size(common, common_images);
    let all = later.total_tokens(ratio);
    let uncached =
        PartSize { bytes: later.text.len() - common, tokens: all.saturating_sub(cacheable.tokens) };
    let lost = if breaks.is_some() {
        let images = image_tokens(earlier.text).saturating_sub(common_images);
        size(earlier.text.len().saturating_sub(common), images)
    } else {
        size(0, 0)
    };
    let replaced = earlier.summary.replaced || later.summary.replaced;
    RequestDiff {
        blocks: if replaced { Vec::new() } else { diff_blocks(earlier, later) },
        replaced,
        settings: changed_settings(earlier, later),
        breaks,
        cacheable,
        behind: uncached,
        lost,
        cost_usd: prices.map(|prices| {
            let breaks = lost.bytes > 0;
            prices.input_cost(cacheable.tokens, uncached.tokens, lost.tokens, breaks)
        }),
    }
}

/// What two requests have in common.
struct CommonPart {
    /// The first difference.
    breaks: Option<CacheBreak>,
    /// The cacheable bytes of the later request.
    bytes: usize,
    /// The messages that are the same.
    messages: usize,
}

fn find_cache_break(earlier: &RequestBreakdown<'_>, later: &RequestBreakdown<'_>) -> CommonPart {
    for part in [MODEL_MEMBER, TOOLS_MEMBER] {
        let before = request_member(earlier, part);
        let after = request_member(later, part);
        if before != after {
            let at = common_prefix_len(before, after);
            let is_removed = after.is_empty();
            let offset = if is_removed { 0 } else { substring_offset(later.text, after) + at };
            // Providers read the model and the tools first, so nothing after them is cached.
            let breaks = Some(CacheBreak::new(part, offset, before, after, at));
            return CommonPart { breaks, bytes: 0, messages: 0 };
        }
    }
    let frame = bytes_around_messages(later);
    let pairs = earlier.messages.iter().zip(&later.messages);
    let mut texts = pairs.map(|(a, b)| (&earlier.text[a.clone()], &later.text[b.clone()]));
    let Some(index) = texts.position(|(before, after)| before != after) else {
        let count = earlier.messages.len().min(later.messages.len());
        let bytes = frame + bytes_of_first_messages(later, count);
        return CommonPart { breaks: None, bytes, messages: count };
    };
    let before = &earlier.text[earlier.messages[index].clone()];
    let after = &later.text[later.messages[index].clone()];
    let at = common_prefix_len(before, after);
    let start = later.messages[index].start;
    let message = serde_json::from_str::<serde_json::Value>(after).unwrap_or_default();
    let cache_break = CacheBreak {
        message: Some(index + 1),
        role: message["role"].as_str().map(str::to_owned),
        source: later.message_block(index).map(|block| block.source.clone()),
        ..CacheBreak::new(MESSAGES_MEMBER, start + at, before, after, at)
    };
    let bytes = frame + start - later.messages[0].start + at;
    CommonPart { breaks: Some(cache_break), bytes, messages: index }
}

impl CacheBreak {
    fn new(part: &'static str, offset: usize, before: &str, after: &str, at: usize) -> Self {
        Self {
            part,
            offset,
            message: None,
            role: None,
            source: None,
            before: excerpt_around(before, at),
            after: excerpt_around(after, at),
        }
    }
}

/// The bytes before the first message and after the last one.
fn bytes_around_messages(request: &RequestBreakdown<'_>) -> usize {
    request.text.len() - bytes_of_first_messages(request, request.messages.len())
}

/// The bytes of the first `count` messages with the commas between them. The comma after them is not counted, because
/// the earlier request ends there without one.
fn bytes_of_first_messages(request: &RequestBreakdown<'_>, count: usize) -> usize {
    let last = count.checked_sub(1).and_then(|last| request.messages.get(last));
    last.map_or(0, |last| last.end - request.messages[0].start)
}

fn request_member<'a>(request: &RequestBreakdown<'a>, name: &str) -> &'a str {
    request.members.get(name).copied().unwrap_or_default()
}

/// The length of the common prefix, which ends at a whole character.
pub(crate) fn common_prefix_len(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.floor_char_boundary(same).min(b.floor_char_boundary(same))
}

/// The text around the byte `at`, with its line ends and control characters, in which it may differ.
pub(crate) fn excerpt_around(text: &str, at: usize) -> String {
    let (before, after) = text.split_at(at.min(text.len()));
    let lead: Vec<char> = before.chars().rev().take(EXCERPT_CHARS.0).collect();
    let lead: String = lead.into_iter().rev().collect();
    let rest: String = after.chars().take(EXCERPT_CHARS.1).collect();
    let before_ellipsis = if lead.len() < before.len() { "…" } else { "" };
    let after_ellipsis = if rest.len() < after.len() { "…" } else { "" };
    format!("{before_ellipsis}{lead}{rest}{after_ellipsis}")
}

fn changed_settings(earlier: &RequestBreakdown<'_>, later: &RequestBreakdown<'_>) -> Vec<String> {
    let mut names: Vec<&String> = earlier.members.keys().chain(later.members.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| earlier.members.get(*name) != later.members.get(*name));
    names.into_iter().cloned().collect()
}

/// Compares the blocks. Blocks of one name are matched in order.
fn diff_blocks(earlier: &RequestBreakdown<'_>, later: &RequestBreakdown<'_>) -> Vec<BlockDiff> {
    let mut unmatched: Vec<&RequestBlock> = earlier.summary.blocks.iter().collect();
    let mut diffs = Vec::new();
    for after in &later.summary.blocks {
        let index = unmatched
            .iter()
            .position(|before| before.source == after.source && before.kind == after.kind);
        let before = index.map(|index| BlockInRequest::new(unmatched.remove(index), earlier));
        diffs.push(diff_block(before, Some(BlockInRequest::new(after, later))));
    }
    let removed = unmatched.into_iter().map(|block| BlockInRequest::new(block, earlier));
    diffs.extend(removed.map(|before| diff_block(Some(before), None)));
    diffs
}

#[derive(Clone, Copy)]
struct BlockInRequest<'a> {
    block: &'a RequestBlock,
    text: &'a str,
}

impl<'a> BlockInRequest<'a> {
    fn new(block: &'a RequestBlock, request: &RequestBreakdown<'a>) -> Self {
        Self { block, text: request.block_bytes(block) }
    }
}

/// Compares two versions of a block, of which one may be missing.
fn diff_block(before: Option<BlockInRequest<'_>>, after: Option<BlockInRequest<'_>>) -> BlockDiff {
    let has_messages =
        |side: Option<BlockInRequest<'_>>| side.is_some_and(|side| side.block.messages > 0);
    let size = |side: Option<BlockInRequest<'_>>| {
        side.map_or(PartSize { bytes: 0, tokens: 0 }, |side| PartSize {
            bytes: side.block.bytes,
            tokens: side.block.tokens,
        })
    };
    let old = before.map_or("", |side| side.text);
    let new = after.map_or("", |side| side.text);
    let change = match (has_messages(before), has_messages(after)) {
        (false, false) => BlockChange::Same,
        (false, true) => BlockChange::Added,
        (true, false) => BlockChange::Removed,
        (true, true) if old == new => BlockChange::Same,
        (true, true) if new.starts_with(old) => BlockChange::Grew,
        (true, true) => BlockChange::Changed,
    };
    let block = after.or(before).map(|side| side.block);
    BlockDiff {
        source: block.map(|block| block.source.clone()).unwrap_or_default(),
        kind: block.map(|block| block.kind.clone()).unwrap_or_default(),
        change,
        before: size(before),
        after: size(after),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::block;
    use super::*;
    use delta_run::record::ContextBlock;
    use proptest::prelude::*;

    fn request(messages: &[String], more: &str) -> String {
        format!("{{\"model\":\"m\",\"messages\":[{}]{more}}}", messages.join(","))
    }

    fn message(role: &str, content: &str) -> String {
        serde_json::json!({"role": role, "content": content}).to_string()
    }

    fn compared(
        one: &str,
        other: &str,
        blocks: &[ContextBlock],
        later: &[ContextBlock],
    ) -> RequestDiff {
        let one = RequestBreakdown::parse(one, blocks, TokenRatio::default()).unwrap();
        let other = RequestBreakdown::parse(other, later, TokenRatio::default()).unwrap();
        compare_breakdowns(&one, &other, TokenRatio::default(), None)
    }

    #[test]
    fn c_8_6_a_request_that_only_grows_breaks_nowhere() {
        let (a, b) = (message("system", "s"), message("user", "u"));
        let before = request(std::slice::from_ref(&a), ",\"tools\":[]");
        let after = request(&[a, b.clone()], ",\"tools\":[]");
        let blocks = [block("prompt", 1), block("journal", 0)];
        let later = [block("prompt", 1), block("journal", 1)];
        let seen = compared(&before, &after, &blocks, &later);
        assert_eq!(seen.breaks, None);
        // With the comma before it.
        assert_eq!((seen.behind.bytes, seen.lost.bytes), (b.len() + 1, 0));
        assert_eq!(seen.cacheable.bytes + seen.behind.bytes, after.len());
        let words: Vec<_> = seen.blocks.iter().map(|block| block.change).collect();
        assert_eq!(words, [BlockChange::Same, BlockChange::Added]);
    }

    #[test]
    fn c_8_6_the_first_message_that_differs_is_named() {
        let (a, b) = (message("system", "one two"), message("user", "same"));
        let before = request(&[a, b.clone()], "");
        let after = request(&[message("system", "one three"), b], "");
        let blocks = [block("notes", 1), block("journal", 1)];
        let seen = compared(&before, &after, &blocks, &blocks);
        let at = after.find("hree").unwrap();
        let found = seen.breaks.unwrap();
        assert_eq!(&after[found.offset..found.offset + 4], "hree");
        let (role, source) = (found.role.as_deref(), found.source.as_deref());
        let place = (found.part, found.message, role, source);
        assert_eq!(place, ("messages", Some(1), Some("system"), Some("notes")));
        assert!(found.before.ends_with("one two\"}") && found.after.ends_with("one three\"}"));
        assert_eq!(seen.cacheable.bytes, at + 2, "with what closes the request");
    }

    #[test]
    fn c_8_6_of_the_blocks_that_a_hook_replaced_nothing_is_said() {
        let text = request(&[message("user", "u")], "");
        let seen = compared(&text, &text, &[block("journal", 1)], &[block("journal", 2)]);
        assert_eq!((seen.replaced, seen.blocks, seen.breaks), (true, Vec::new(), None));
    }

    #[test]
    fn c_8_6_other_tools_or_another_model_leave_nothing_to_the_cache() {
        let same = [message("user", "u")];
        let plain = request(&same, ",\"tools\":[1],\"x\":1");
        let tools = compared(&plain, &request(&same, ",\"tools\":[2],\"x\":2"), &[], &[]);
        assert_eq!(tools.settings, ["tools", "x"]);
        let found = tools.breaks.unwrap();
        assert_eq!((found.part, &*found.before, &*found.after), ("tools", "[1]", "[2]"));
        assert_eq!((tools.cacheable.bytes, tools.lost.bytes), (0, plain.len()));
        let gone = compared(&plain, &request(&same, ""), &[], &[]).breaks.unwrap();
        assert_eq!((gone.part, gone.offset, &*gone.after), ("tools", 0, ""));
        let settings = compared(&plain, &request(&same, ",\"tools\":[1],\"x\":3"), &[], &[]);
        assert_eq!((settings.breaks, settings.settings), (None, vec!["x".to_owned()]));
    }

    #[test]
    fn c_8_6_no_more_is_cacheable_than_was_sent_before() {
        let two = [message("system", "s"), message("user", "u")];
        let [before, after] = [&two[..1], &two[..]].map(|messages| request(messages, ""));
        for (one, other) in [(&before, &after), (&after, &before), (&after, &after)] {
            let seen = compared(one, other, &[], &[]);
            assert_eq!(seen.cacheable.bytes, one.len().min(other.len()));
            assert_eq!(seen.cacheable.bytes + seen.behind.bytes, other.len());
        }
    }

    proptest! {
        #[test]
        fn c_8_6_what_is_cacheable_and_what_is_behind_are_the_whole(
            one in proptest::collection::vec("[aä\"\\n]{0,4}", 0..4),
            other in proptest::collection::vec("[aä\"\\n]{0,4}", 0..4),
        ) {
            let texts = |list: &[String]| list.iter().map(|text| message("user", text)).collect::<Vec<_>>();
            let (before, after) = (request(&texts(&one), ""), request(&texts(&other), ""));
            let seen = compared(&before, &after, &[], &[]);
            prop_assert_eq!(seen.cacheable.bytes + seen.behind.bytes, after.len());
            let apart = one.iter().zip(&other).position(|(a, b)| a != b);
            prop_assert_eq!(seen.breaks.and_then(|found| found.message), apart.map(|index| index + 1));
        }
    }
}
