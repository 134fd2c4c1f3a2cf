//! Where two requests part: how much of the later one a provider's prompt cache can hold.

use super::{Composition, MESSAGES, Part, Size, TOOLS};
use crate::llm::config::Pricing;
use crate::text::one_line;
use crate::tokens::Ratio;
use serde::Serialize;

/// How much is shown before the first byte that differs, and from it on, in characters.
const EXCERPT: (usize, usize) = (24, 48);
/// The member that says which model is asked.
const MODEL: &str = "model";

/// What changed from one request to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The blocks of both, those that only the earlier one has last.
    pub blocks: Vec<Changed>,
    /// Whether a hook replaced the messages of one of them; then nothing can be said of the blocks.
    pub replaced: bool,
    /// The members that differ, the messages apart.
    pub settings: Vec<String>,
    /// Where the prompt cache breaks; nowhere when the later request only grows, or is the same.
    pub breaks: Option<Break>,
    /// What of the later request stands before that: the cache can hold it.
    pub cacheable: Size,
    /// What of the later request stands behind it: it is paid in full.
    pub behind: Size,
    /// What of the earlier request stands behind it, and would have been cacheable.
    pub lost: Size,
    /// The same in money, when the prices are known.
    pub cost_usd: Option<Money>,
}

/// What input costs, in USD.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Money {
    /// What is cacheable, taken from the cache.
    pub cacheable: f64,
    /// What stands behind.
    pub behind: f64,
    /// What the break costs: what is lost, at the difference of the two prices.
    pub lost: f64,
}

/// What became of a block.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    /// Its id, or the name of its file.
    pub source: String,
    /// `file`, `computed_file`, `pipeline` or `journal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What became of it.
    pub change: Change,
    /// How large it was.
    pub before: Size,
    /// How large it is.
    pub after: Size,
}

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is as it was.
    Same,
    /// There is more behind what it was.
    Grew,
    /// It is another.
    Changed,
    /// It was not there, or gave nothing.
    Added,
    /// It is not there any more, or gives nothing.
    Removed,
}

impl Change {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Grew => "grew",
            Self::Changed => "changed",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// The first place where two requests differ, as a provider reads them: the model, the tools, the messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Break {
    /// `model`, `tools` or `messages`.
    pub part: &'static str,
    /// The byte of the later request.
    pub offset: usize,
    /// The message, counted from 1.
    pub message: Option<usize>,
    /// Who speaks there.
    pub role: Option<String>,
    /// The block that it comes from, when that is known.
    pub source: Option<String>,
    /// What the earlier request has there.
    pub before: String,
    /// What the later request has there.
    pub after: String,
}

/// Compares an earlier request with a later one.
pub fn compare(
    one: &Composition<'_>,
    other: &Composition<'_>,
    ratio: Ratio,
    pricing: Option<&Pricing>,
) -> Comparison {
    let (breaks, common) = find_break(one, other);
    let size = |bytes: usize| Size { bytes, tokens: ratio.tokens(bytes) };
    let (total, cacheable) = (size(other.text.len()), size(common));
    let behind = Size {
        bytes: total.bytes - cacheable.bytes,
        tokens: total.tokens.saturating_sub(cacheable.tokens),
    };
    let lost = size(if breaks.is_some() { one.text.len().saturating_sub(common) } else { 0 });
    let replaced = one.account.replaced || other.account.replaced;
    Comparison {
        blocks: if replaced { Vec::new() } else { changes(one, other) },
        replaced,
        settings: settings(one, other),
        breaks,
        cacheable,
        behind,
        lost,
        cost_usd: pricing.map(|pricing| Money {
            cacheable: pricing.input(0, cacheable.tokens),
            behind: pricing.input(behind.tokens, 0),
            lost: pricing.without_cache(lost.tokens),
        }),
    }
}

/// The first difference, and how many bytes of the later request stand before it.
fn find_break(one: &Composition<'_>, other: &Composition<'_>) -> (Option<Break>, usize) {
    for part in [MODEL, TOOLS] {
        let (before, after) = (member(one, part), member(other, part));
        if before != after {
            let at = common(before, after);
            let start = if after.is_empty() { 0 } else { place(other.text, after) };
            let (before, after) = (excerpt(before, at), excerpt(after, at));
            let offset = start + if start == 0 { 0 } else { at };
            let (message, role, source) = (None, None, None);
            // What a provider reads first is different, so nothing behind it is in its cache.
            let found = Break { part, offset, message, role, source, before, after };
            return (Some(found), 0);
        }
    }
    let pairs = one.messages.iter().zip(&other.messages).enumerate();
    let texts = pairs.map(|(index, (a, b))| (index, &one.text[a.clone()], &other.text[b.clone()]));
    let tail = frame(other);
    let Some((index, before, after)) = { texts }.find(|(_, before, after)| before != after) else {
        let count = one.messages.len().min(other.messages.len());
        return (None, tail + messages_before(other, count));
    };
    let at = common(before, after);
    let role = serde_json::from_str::<serde_json::Value>(after).ok();
    let found = Break {
        part: MESSAGES,
        offset: other.messages[index].start + at,
        message: Some(index + 1),
        role: role.and_then(|message| message["role"].as_str().map(str::to_owned)),
        source: other.source_of(index).map(str::to_owned),
        before: excerpt(before, at),
        after: excerpt(after, at),
    };
    (Some(found), tail + messages_before(other, index) + at)
}

/// The bytes of a request around its messages.
fn frame(request: &Composition<'_>) -> usize {
    let all = match (request.messages.first(), request.messages.last()) {
        (Some(first), Some(last)) => last.end - first.start,
        _ => 0,
    };
    request.text.len() - all
}

/// The bytes of the first messages of a request, and of what stands between them.
fn messages_before(request: &Composition<'_>, count: usize) -> usize {
    let first = request.messages.first().map_or(0, |first| first.start);
    match request.messages.get(count) {
        Some(next) => next.start - first,
        None => request.messages.last().map_or(0, |last| last.end - first),
    }
}

fn member<'a>(request: &Composition<'a>, name: &str) -> &'a str {
    request.members.get(name).copied().unwrap_or_default()
}

/// Where a part of a text stands in it.
fn place(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// How many bytes two texts have in common at their beginning, up to a whole character.
pub(crate) fn common(one: &str, other: &str) -> usize {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    one.floor_char_boundary(same).min(other.floor_char_boundary(same))
}

/// A text around the byte `at`.
pub(crate) fn excerpt(text: &str, at: usize) -> String {
    let (before, behind) = text.split_at(at.min(text.len()));
    let lead: Vec<char> = before.chars().rev().take(EXCERPT.0).collect();
    let lead: String = lead.into_iter().rev().collect();
    let ellipsis = if lead.len() < before.len() { "…" } else { "" };
    format!("{ellipsis}{lead}{}", one_line(behind, EXCERPT.1))
}

/// The members that differ, the messages apart.
fn settings(one: &Composition<'_>, other: &Composition<'_>) -> Vec<String> {
    let mut names: Vec<&String> = one.members.keys().chain(other.members.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| one.members.get(*name) != other.members.get(*name));
    names.into_iter().cloned().collect()
}

/// What became of each block. Blocks of one name are told apart by their order.
fn changes(one: &Composition<'_>, other: &Composition<'_>) -> Vec<Changed> {
    let mut left: Vec<&Part> = one.account.blocks.iter().collect();
    let mut changes = Vec::new();
    for after in &other.account.blocks {
        let same = |part: &&Part| (&part.source, &part.kind) == (&after.source, &after.kind);
        let before = left.iter().position(same).map(|index| left.remove(index));
        changes.push(changed(before.map(|part| (part, one)), Some((after, other))));
    }
    changes.extend(left.into_iter().map(|part| changed(Some((part, one)), None)));
    changes
}

type Side<'p, 'a> = Option<(&'p Part, &'p Composition<'a>)>;

fn text<'a>(side: Side<'_, 'a>) -> &'a str {
    side.map_or("", |(part, request)| request.bytes_of(part))
}

fn changed(before: Side<'_, '_>, after: Side<'_, '_>) -> Changed {
    let size = |side: Side<'_, '_>| {
        side.map_or(Size { bytes: 0, tokens: 0 }, |(part, _)| Size {
            bytes: part.bytes,
            tokens: part.tokens,
        })
    };
    let gives = |side: Side<'_, '_>| side.is_some_and(|(part, _)| part.messages > 0);
    let (old, new) = (text(before), text(after));
    let change = match (gives(before), gives(after)) {
        (false, false) => Change::Same,
        (false, true) => Change::Added,
        (true, false) => Change::Removed,
        (true, true) if old == new => Change::Same,
        (true, true) if new.starts_with(old) => Change::Grew,
        (true, true) => Change::Changed,
    };
    let part = after.or(before).map(|(part, _)| part);
    Changed {
        source: part.map(|part| part.source.clone()).unwrap_or_default(),
        kind: part.map(|part| part.kind.clone()).unwrap_or_default(),
        change,
        before: size(before),
        after: size(after),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::block;
    use super::*;
    use crate::record::Block;
    use proptest::prelude::*;

    fn request(messages: &[String], more: &str) -> String {
        format!("{{\"model\":\"m\",\"messages\":[{}]{more}}}", messages.join(","))
    }

    fn message(role: &str, content: &str) -> String {
        serde_json::json!({"role": role, "content": content}).to_string()
    }

    fn compared(one: &str, other: &str, blocks: &[Block], later: &[Block]) -> Comparison {
        let one = Composition::of(one, blocks, Ratio::default()).unwrap();
        let other = Composition::of(other, later, Ratio::default()).unwrap();
        compare(&one, &other, Ratio::default(), None)
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
        assert_eq!((seen.behind.bytes, seen.lost.bytes), (b.len(), 0));
        assert_eq!(seen.cacheable.bytes + seen.behind.bytes, after.len());
        let words: Vec<_> = seen.blocks.iter().map(|block| block.change).collect();
        assert_eq!(words, [Change::Same, Change::Added]);
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
