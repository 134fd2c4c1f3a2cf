//! What a request is made of: its blocks, its tools and the rest, each with its size and its hash.
//!
//! Pure: it is given the text of a request and what its record says of the blocks, and reads no files.

use crate::record::{Block, sha256};
use crate::tokens::Ratio;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;

mod compare;

pub use compare::{Break, Change, Changed, Comparison, Money, compare};
pub(crate) use compare::{common, excerpt};

/// The member of a request that holds its messages.
const MESSAGES: &str = "messages";
/// The member of a request that holds the definitions of its tools.
const TOOLS: &str = "tools";

/// A request, taken apart.
#[derive(Debug)]
pub struct Composition<'a> {
    /// The exact text.
    text: &'a str,
    /// Where its messages stand in it.
    messages: Vec<Range<usize>>,
    /// All other members.
    members: BTreeMap<String, &'a str>,
    /// What is said of it.
    pub account: Account,
}

/// What is said of a request. The sizes of its parts add up to the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// How many messages it has.
    pub messages: usize,
    /// How long it is.
    pub bytes: usize,
    /// How many tokens that are: an estimate.
    pub tokens: u64,
    /// The hash of the whole text.
    pub sha256: String,
    /// Where the messages come from, in order.
    pub blocks: Vec<Part>,
    /// The definitions of the tools.
    pub tools: Tools,
    /// Everything else: the model, the settings, and what stands between the parts.
    pub rest: Size,
    /// Whether a hook put other messages in the place of those that the blocks gave; then nobody knows where each comes
    /// from, and the blocks are what the hook was given.
    pub replaced: bool,
}

/// A block of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// Its place, counted from 1.
    pub order: usize,
    /// Its id, or the name of its file.
    pub source: String,
    /// `file`, `computed_file`, `pipeline` or `journal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many messages it is.
    pub messages: usize,
    /// The first of them, counted from 1.
    pub first_message: Option<usize>,
    /// How many bytes they take in the request.
    pub bytes: usize,
    /// How many tokens they are.
    pub tokens: u64,
    /// The hash of these bytes.
    pub sha256: Option<String>,
    /// What of it is left out, in words.
    pub cut: Option<String>,
    /// Why it gave nothing, in words.
    pub skipped: Option<String>,
}

/// How large something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Size {
    /// In bytes.
    pub bytes: usize,
    /// In tokens: an estimate.
    pub tokens: u64,
}

/// The definitions of the tools in a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tools {
    /// Their names, in order.
    pub names: Vec<String>,
    /// How many bytes they take.
    pub bytes: usize,
    /// How many tokens they are: an estimate.
    pub tokens: u64,
    /// The hash of these bytes, when there are any.
    pub sha256: Option<String>,
}

impl<'a> Composition<'a> {
    /// Takes a request apart whose messages come from `blocks`; `ratio` is what the endpoint counts for what is estimated.
    ///
    /// # Errors
    /// It is no request.
    pub fn of(text: &'a str, blocks: &[Block], ratio: Ratio) -> Result<Self, serde_json::Error> {
        let members: BTreeMap<String, &'a RawValue> = serde_json::from_str(text)?;
        let mut members: BTreeMap<String, &'a str> =
            members.into_iter().map(|(key, value)| (key, value.get())).collect();
        let list = members.remove(MESSAGES).unwrap_or("[]");
        let list: Vec<&'a RawValue> = serde_json::from_str(list)?;
        let place = |part: &str| {
            let start = part.as_ptr() as usize - text.as_ptr() as usize;
            start..start + part.len()
        };
        let messages: Vec<_> = list.iter().map(|message| place(message.get())).collect();
        let account = Account::of(text, &messages, members.get(TOOLS).copied(), blocks, ratio);
        Ok(Self { text, messages, members, account })
    }

    /// The messages of a block, each as it stands in the request.
    pub fn messages_of(&self, part: &Part) -> Vec<&'a str> {
        let first = part.first_message.map_or(0, |first| first - 1);
        let count = if part.first_message.is_some() { part.messages } else { 0 };
        self.messages[first..first + count].iter().map(|place| &self.text[place.clone()]).collect()
    }

    /// The block that a message comes from, when that is known.
    fn source_of(&self, message: usize) -> Option<&str> {
        let holds = |part: &&Part| {
            let first = part.first_message.map(|first| first - 1);
            first.is_some_and(|first| (first..first + part.messages).contains(&message))
        };
        self.account.blocks.iter().find(holds).map(|part| part.source.as_str())
    }

    /// The bytes that a block takes.
    fn bytes_of(&self, part: &Part) -> &'a str {
        let place = part.first_message.and_then(|first| {
            let last = self.messages.get(first - 1 + part.messages.checked_sub(1)?)?;
            Some(self.messages[first - 1].start..last.end)
        });
        place.map_or("", |place| &self.text[place])
    }
}

impl Account {
    fn of(
        text: &str,
        messages: &[Range<usize>],
        tools: Option<&str>,
        blocks: &[Block],
        ratio: Ratio,
    ) -> Self {
        let given = blocks.iter().map(|block| block.messages).fold(0, usize::saturating_add);
        let replaced = given != messages.len();
        let mut next = 0;
        let mut parts = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let mut part = Part::of(index + 1, block);
            if !replaced && block.messages > 0 {
                let (first, last) = (&messages[next], &messages[next + block.messages - 1]);
                let bytes = &text[first.start..last.end];
                part.first_message = Some(next + 1);
                (part.bytes, part.sha256) = (bytes.len(), Some(sha256(bytes)));
                next += block.messages;
            }
            parts.push(part);
        }
        let tools = Tools::of(tools, ratio);
        let inside = match replaced {
            true => messages.iter().map(Range::len).sum(),
            false => parts.iter().map(|part| part.bytes).sum::<usize>(),
        };
        let rest = text.len() - inside - tools.bytes;
        let rest = Size { bytes: rest, tokens: ratio.tokens(rest) };
        let inside = match replaced {
            true => ratio.tokens(inside),
            false => parts.iter().map(|part| part.tokens).fold(0, u64::saturating_add),
        };
        Self {
            messages: messages.len(),
            bytes: text.len(),
            tokens: inside.saturating_add(tools.tokens).saturating_add(rest.tokens),
            sha256: sha256(text),
            blocks: parts,
            tools,
            rest,
            replaced,
        }
    }
}

impl Part {
    fn of(order: usize, block: &Block) -> Self {
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

impl Tools {
    fn of(text: Option<&str>, ratio: Ratio) -> Self {
        let text = text.unwrap_or_default();
        let definitions: Vec<serde_json::Value> = serde_json::from_str(text).unwrap_or_default();
        let name = |definition: &serde_json::Value| {
            definition["function"]["name"].as_str().unwrap_or_default().to_owned()
        };
        Self {
            names: definitions.iter().map(name).collect(),
            bytes: text.len(),
            tokens: ratio.tokens(text.len()),
            sha256: (!text.is_empty()).then(|| sha256(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn block(source: &str, messages: usize) -> Block {
        Block {
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
        let composition = Composition::of(text, &blocks, Ratio::default()).unwrap();
        let account = &composition.account;
        let places: Vec<_> =
            account.blocks.iter().map(|part| (part.first_message, part.bytes)).collect();
        assert_eq!(places, [(Some(1), 7), (None, 0), (Some(2), 16)]);
        assert_eq!(account.blocks[2].sha256, Some(sha256(r#"{"b":22},{"c":3}"#)));
        assert_eq!(composition.messages_of(&account.blocks[2]), [r#"{"b":22}"#, r#"{"c":3}"#]);
        assert_eq!(composition.messages_of(&account.blocks[1]), Vec::<&str>::new());
        assert_eq!(
            (composition.source_of(0), composition.source_of(2)),
            (Some("one"), Some("two"))
        );
        assert_eq!(account.tools.names, ["t"]);
        assert_eq!(7 + 16 + account.tools.bytes + account.rest.bytes, text.len());
        assert_eq!(account.tokens, 30 + account.tools.tokens + account.rest.tokens);
        assert!(!account.replaced);
    }

    #[test]
    fn c_8_5_messages_of_a_hook_belong_to_no_block() {
        let text = r#"{"messages":[{"a":1},{"b":2}]}"#;
        let composition = Composition::of(text, &[block("one", 1)], Ratio::default()).unwrap();
        let account = &composition.account;
        assert!(account.replaced);
        assert_eq!((account.blocks[0].first_message, &account.blocks[0].sha256), (None, &None));
        assert_eq!((account.tools.bytes, account.rest.bytes), (0, text.len() - 14));
        assert!(Composition::of("[]", &[], Ratio::default()).is_err());
    }
}
