//! The exact requests of a run, each text stored once: a request refers to texts, and to messages of the previous
//! request, by index.

use super::page_redaction::HIDDEN_ANSWER;
use super::run_files::PageCapacity;
use crate::request_breakdown::{PartSize, RequestBreakdown};
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{self, ContextBlock, MessagesReference, RequestMessages, sha256_hex};
use serde::Serialize;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

/// The requests of one run, in the order in which they were sent.
#[derive(Debug, Default)]
pub struct PageRequests {
    /// Every text of the requests, once.
    pub texts: Vec<Rc<str>>,
    text_indexes: HashMap<Rc<str>, u32>,
    /// Set by the first request that exceeds the capacity; later ones are not added.
    is_full: bool,
    /// The file name of the last record, and the indexes of its messages.
    previous: Option<(String, Vec<u32>)>,
    /// The calls whose results are hidden.
    hidden_calls: HashSet<String>,
}

/// A request. All numbers but sizes are indexes into the texts of the run.
#[derive(Debug, Serialize)]
pub struct PageRequest {
    /// The text before the first message; the whole request when its messages cannot be separated.
    head: u32,
    /// The text after the last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<u32>,
    /// The messages, which commas separate.
    messages: Vec<PageMessages>,
    bytes: usize,
    #[serde(flatten)]
    part_sizes: PartSizes,
    /// The recorded hash of the bytes that were sent.
    sha256: String,
    /// Whether the rebuilt text has that hash.
    is_exact: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum PageMessages {
    /// A message that the previous request did not have.
    New(u32),
    /// The position of the first repeated message in the previous request, and how many follow it.
    Repeated([u32; 2]),
}

/// The sizes of the parts of a request. They add up to the whole.
#[derive(Debug, Serialize)]
struct PartSizes {
    /// The bytes of each block; empty when a hook replaced the messages.
    blocks: Vec<usize>,
    tools: PartSize,
    /// Everything else, as `delta context show` counts it.
    rest: PartSize,
}

/// Where the messages of a request come from.
#[derive(Debug, Clone, Copy)]
pub struct BlockAttribution<'a> {
    pub blocks: &'a [ContextBlock],
    /// The ratio of reported to estimated tokens when the request was sent.
    pub ratio: TokenRatio,
}

impl BlockAttribution<'_> {
    fn part_size(&self, bytes: usize) -> PartSize {
        PartSize { bytes, tokens: self.ratio.tokens(bytes) }
    }

    fn part_sizes(&self, head: &str, messages: &[&str], tail: &str) -> PartSizes {
        let frame = format!("{head}{tail}");
        let breakdown = RequestBreakdown::parse(&frame, &[], self.ratio);
        let tools = breakdown.map_or(0, |breakdown| breakdown.summary.tools.bytes);
        let counts = self.blocks.iter().map(|block| block.messages);
        let is_known = counts.clone().fold(0, usize::saturating_add) == messages.len();
        let mut remaining = messages;
        let blocks: Vec<usize> = counts
            .filter(|_| is_known)
            .map(|count| {
                let (block, rest) = remaining.split_at(count);
                remaining = rest;
                joined_len(block)
            })
            .collect();
        let attributed: usize = if is_known {
            blocks.iter().sum()
        } else {
            messages.iter().map(|message| message.len()).sum()
        };
        let rest = frame.len() + joined_len(messages) - tools - attributed;
        PartSizes { blocks, tools: self.part_size(tools), rest: self.part_size(rest) }
    }
}

impl PageRequests {
    pub fn new(hidden_calls: HashSet<String>) -> Self {
        Self { hidden_calls, ..Self::default() }
    }

    /// Adds the request that the record `name` holds as `recorded`, or says why it cannot be shown.
    pub fn add(
        &mut self,
        run_dir: &Path,
        name: &str,
        recorded: &str,
        hash: String,
        attribution: BlockAttribution<'_>,
        capacity: &mut PageCapacity,
    ) -> Result<PageRequest, String> {
        const FULL: &str = "the page has no room for more requests";
        if self.is_full {
            return Err(FULL.to_owned());
        }
        let text = match self.expand_recorded(recorded) {
            Some(text) => text,
            None => record::read_request(run_dir, name).map_err(|error| error.to_string())?,
        };
        let is_exact = sha256_hex(&text) == hash;
        let text_count = self.texts.len();
        let bytes = text.len();
        let request = if let Some((head, messages, tail)) = split_request_text(&text) {
            let part_sizes = attribution.part_sizes(head, &messages, tail);
            let indexes: Vec<u32> = messages
                .iter()
                .map(|message| self.text_index(&self.redact_message(message)))
                .collect();
            let previous = self.previous.take().map(|(_, indexes)| indexes).unwrap_or_default();
            let messages = diff_messages(&previous, &indexes);
            let file = name.rsplit('/').next().unwrap_or(name).to_owned();
            self.previous = Some((file, indexes));
            let head = self.text_index(head);
            let tail = Some(self.text_index(tail));
            PageRequest { head, tail, messages, bytes, part_sizes, sha256: hash, is_exact }
        } else {
            self.previous = None;
            let head = self.text_index(&text);
            let none = attribution.part_size(0);
            let rest = attribution.part_size(bytes);
            let part_sizes = PartSizes { blocks: Vec::new(), tools: none, rest };
            let messages = Vec::new();
            PageRequest { head, tail: None, messages, bytes, part_sizes, sha256: hash, is_exact }
        };
        if !capacity.reserve(self.texts[text_count..].iter().map(|text| text.len()).sum()) {
            for text in self.texts.drain(text_count..) {
                self.text_indexes.remove(&text);
            }
            self.is_full = true;
            return Err(FULL.to_owned());
        }
        Ok(request)
    }

    /// The whole text of a recorded request; `None` when it refers to messages other than the previous request's.
    fn expand_recorded(&self, recorded: &str) -> Option<String> {
        let list = serde_json::from_str::<RequestMessages<'_>>(recorded).ok();
        let first = list.as_ref().and_then(|list| Some(list.messages.first()?.get()));
        let reference =
            first.and_then(|first| serde_json::from_str::<MessagesReference>(first).ok());
        let Some((first, reference)) = first.zip(reference) else {
            return Some(recorded.to_owned());
        };
        let (file, messages) = self.previous.as_ref()?;
        if *file != reference.same_as || !self.hidden_calls.is_empty() {
            return None;
        }
        let messages = messages.get(..reference.count)?.iter();
        let texts: Vec<&str> = messages.map(|index| self.texts[*index as usize].as_ref()).collect();
        let start = first.as_ptr() as usize - recorded.as_ptr() as usize;
        let end = start + first.len();
        Some(format!("{}{}{}", &recorded[..start], texts.join(","), &recorded[end..]))
    }

    /// Hides the content of a message that holds a sensitive answer.
    fn redact_message<'m>(&self, message: &'m str) -> Cow<'m, str> {
        if self.hidden_calls.is_empty() {
            return Cow::Borrowed(message);
        }
        let Ok(mut parsed) = serde_json::from_str::<Json>(message) else {
            return Cow::Borrowed(message);
        };
        let id = parsed["tool_call_id"].as_str();
        if id.is_none_or(|id| !self.hidden_calls.contains(id)) {
            return Cow::Borrowed(message);
        }
        parsed["content"] = Json::from(HIDDEN_ANSWER);
        Cow::Owned(parsed.to_string())
    }

    fn text_index(&mut self, text: &str) -> u32 {
        if let Some(index) = self.text_indexes.get(text) {
            return *index;
        }
        let index = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Rc<str> = text.into();
        self.texts.push(Rc::clone(&text));
        self.text_indexes.insert(text, index);
        index
    }
}

/// The length of messages with a comma between each two.
fn joined_len(messages: &[&str]) -> usize {
    messages.iter().map(|message| message.len() + 1).sum::<usize>().saturating_sub(1)
}

/// Splits a request into the text before its messages, the messages, and the text after them; `None` when it has no
/// messages or separates them by more than commas.
fn split_request_text(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let list = serde_json::from_str::<RequestMessages<'_>>(text).ok()?;
    let messages: Vec<&str> = list.messages.iter().map(|message| message.get()).collect();
    let start = messages.first()?.as_ptr() as usize - text.as_ptr() as usize;
    let last = messages.last()?;
    let end = last.as_ptr() as usize - text.as_ptr() as usize + last.len();
    (end - start == joined_len(&messages) && text[start..end] == messages.join(","))
        .then(|| (&text[..start], messages, &text[end..]))
}

/// Describes the messages `now` by what they repeat of `before`.
fn diff_messages(before: &[u32], now: &[u32]) -> Vec<PageMessages> {
    let mut positions: HashMap<u32, usize> = HashMap::new();
    for (position, message) in before.iter().enumerate() {
        positions.entry(*message).or_insert(position);
    }
    let mut pieces = Vec::new();
    let mut next = 0;
    for message in now {
        let is_next = before.get(next) == Some(message);
        if is_next && let Some(PageMessages::Repeated([_, count])) = pieces.last_mut() {
            *count += 1;
            next += 1;
        } else if let Some(position) = positions.get(message) {
            let position = if is_next { next } else { *position };
            pieces.push(PageMessages::Repeated([u32::try_from(position).unwrap_or(u32::MAX), 1]));
            next = position + 1;
        } else {
            pieces.push(PageMessages::New(*message));
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_2_what_a_request_shares_is_said_by_its_place() {
        use PageMessages::{New, Repeated};
        assert_eq!(diff_messages(&[], &[1, 2]), [New(1), New(2)]);
        assert_eq!(diff_messages(&[1, 2], &[1, 2, 3, 4]), [Repeated([0, 2]), New(3), New(4)]);
        assert_eq!(diff_messages(&[9, 1, 2], &[8, 1, 2, 3]), [New(8), Repeated([1, 2]), New(3)]);
        assert_eq!(diff_messages(&[0, 1, 1, 2], &[0, 1, 1, 2]), [Repeated([0, 4])]);
        assert_eq!(
            diff_messages(&[0, 1, 2, 3], &[0, 3, 3]),
            [Repeated([0, 1]), Repeated([3, 1]), Repeated([3, 1])]
        );
    }

    #[test]
    fn c_18_2_a_request_is_put_together_byte_for_byte() {
        let mut requests = PageRequests::default();
        let mut room = PageCapacity::new(10_000);
        let of = BlockAttribution { blocks: &[], ratio: TokenRatio::default() };
        let sent = [
            r#"{"model":"m","messages":[{"a":"x"},{"b":1}],"tools":[]}"#,
            r#"{"model":"m","messages":[{"a":"x"},{"b":1},{"c":2}],"tools":[]}"#,
            r#"{ "messages": [1, 2] }"#,
            "null",
        ];
        let recorded = [
            sent[0],
            r#"{"model":"m","messages":[{"same_as":"n0","count":2},{"c":2}],"tools":[]}"#,
            sent[2],
            sent[3],
        ];
        let mut before: Vec<u32> = Vec::new();
        for (index, (sent, recorded)) in sent.iter().zip(recorded).enumerate() {
            let name = format!("io/invocations/n{index}");
            let found = requests
                .add(Path::new("/none"), &name, recorded, sha256_hex(sent), of, &mut room)
                .unwrap();
            assert!(found.is_exact, "{sent}");
            let mut list = Vec::new();
            for piece in &found.messages {
                match piece {
                    PageMessages::New(place) => list.push(*place),
                    PageMessages::Repeated([from, count]) => {
                        list.extend(&before[*from as usize..(from + count) as usize]);
                    }
                }
            }
            before = list;
            let text = |place: u32| requests.texts[place as usize].as_ref();
            let middle: Vec<&str> = before.iter().map(|place| text(*place)).collect();
            let tail = found.tail.map_or("", text);
            assert_eq!(format!("{}{}{tail}", text(found.head), middle.join(",")), *sent);
        }
        assert!(
            requests
                .add(Path::new("/none"), "io/x", recorded[1], String::new(), of, &mut room)
                .is_err()
        );
    }

    #[test]
    fn c_18_1_the_parts_of_a_request_add_up_to_the_whole() {
        let sent = r#"{"model":"m","messages":[{"a":1},{"b":22},{"c":3}],"tools":[{"t":1}]}"#;
        let block = |messages: usize| -> ContextBlock {
            let block = serde_json::json!({"source": "s", "type": "file", "messages": messages, "bytes": 0, "tokens": 0});
            serde_json::from_value(block).unwrap()
        };
        let shares = |blocks: &[ContextBlock]| {
            let of = BlockAttribution { blocks, ratio: TokenRatio::default() };
            let hash = sha256_hex(sent);
            let mut room = PageCapacity::new(10_000);
            PageRequests::default()
                .add(Path::new("/none"), "io/x", sent, hash, of, &mut room)
                .unwrap()
                .part_sizes
        };
        let known = shares(&[block(1), block(0), block(2)]);
        assert_eq!((&known.blocks[..], known.tools.bytes), (&[7, 0, 16][..], 9));
        assert_eq!(7 + 16 + 9 + known.rest.bytes, sent.len());
        assert_eq!(known.rest.tokens, TokenRatio::default().tokens(known.rest.bytes));
        let unknown = shares(&[block(1)]);
        assert_eq!((unknown.blocks.len(), unknown.rest.bytes), (0, known.rest.bytes + 1));
    }
}
