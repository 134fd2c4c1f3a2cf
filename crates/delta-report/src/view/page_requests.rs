//! The exact requests of a run, each text stored once: a request refers to texts, and to messages of the previous
//! request, by index.

use super::run_files::PageCapacity;
use crate::request_breakdown::{PartSize, RequestBreakdown};
use delta_base::redact::HIDDEN;
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{ContextBlock, RecordedRequest};
use serde::Serialize;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// The requests of one run, in the order in which they were sent.
#[derive(Debug, Default)]
pub struct PageRequests {
    /// Every text of the requests, once.
    pub texts: Vec<Rc<str>>,
    text_indexes: HashMap<Rc<str>, u32>,
    /// Set by the first request that exceeds the capacity; later ones are not added.
    is_full: bool,
    /// The indexes of the messages of the last request.
    previous: Vec<u32>,
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

    fn part_sizes(&self, head: &str, messages: &[Range<usize>], tail: &str) -> PartSizes {
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

    /// Adds the request that was read after the last one that was added, or says why it cannot be shown.
    pub fn add(
        &mut self,
        request: &RecordedRequest,
        attribution: BlockAttribution<'_>,
        capacity: &mut PageCapacity,
    ) -> Result<PageRequest, String> {
        const FULL: &str = "the page has no room for more requests";
        if self.is_full {
            return Err(FULL.to_owned());
        }
        let text = request.body.text().as_str();
        let messages = request.body.messages();
        let text_count = self.texts.len();
        let shared = request.body.shared_messages();
        let mut indexes = self.previous[..shared].to_vec();
        for message in &messages[shared..] {
            indexes.push(self.text_index(&self.redact_message(&text[message.clone()])));
        }
        let mut added = PageRequest {
            head: 0,
            tail: None,
            messages: diff_messages(&self.previous, &indexes),
            bytes: text.len(),
            part_sizes: PartSizes {
                blocks: Vec::new(),
                tools: attribution.part_size(0),
                rest: attribution.part_size(text.len()),
            },
            sha256: request.sha256.clone(),
            is_exact: request.is_intact,
        };
        self.previous = indexes;
        if let ([first, ..], [.., last]) = (messages, messages) {
            let head = &text[..first.start];
            let tail = &text[last.end..];
            added.part_sizes = attribution.part_sizes(head, messages, tail);
            added.head = self.text_index(head);
            added.tail = Some(self.text_index(tail));
        } else {
            added.head = self.text_index(text);
        }
        if !capacity.reserve(self.texts[text_count..].iter().map(|text| text.len()).sum()) {
            for text in self.texts.drain(text_count..) {
                self.text_indexes.remove(&text);
            }
            self.is_full = true;
            return Err(FULL.to_owned());
        }
        Ok(added)
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
        parsed["content"] = Json::from(HIDDEN);
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

/// The length of consecutive messages with a comma between each two.
fn joined_len(messages: &[Range<usize>]) -> usize {
    messages.last().map_or(0, |last| last.end - messages[0].start)
}

/// Describes the messages `now` by what they repeat of `before`.
fn diff_messages(before: &[u32], now: &[u32]) -> Vec<PageMessages> {
    let mut pieces = Vec::new();
    let mut next = 0;
    for message in now {
        let is_next = before.get(next) == Some(message);
        if is_next && let Some(PageMessages::Repeated([_, count])) = pieces.last_mut() {
            *count += 1;
            next += 1;
            continue;
        }
        let first = before.iter().position(|earlier| earlier == message);
        let position = if is_next { Some(next) } else { first };
        if let Some(position) = position {
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
    use delta_run::record::{RecordedRequests, sha256_hex};
    use std::path::Path;

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

    /// Records as `recorded` a request that was sent as `sent`.
    fn write_record(run_dir: &Path, name: &str, sent: &str, recorded: &str) {
        let hash = sha256_hex(sent);
        let record = format!("{{\"request_sha256\":\"{hash}\",\"request\":{recorded}}}");
        std::fs::create_dir_all(run_dir.join("io/invocations")).unwrap();
        std::fs::write(run_dir.join(name), record).unwrap();
    }

    #[test]
    fn c_18_2_a_request_is_put_together_byte_for_byte() {
        let mut requests = PageRequests::default();
        let mut room = PageCapacity::new(10_000);
        let of = BlockAttribution { blocks: &[], ratio: TokenRatio::default() };
        let sent = [
            r#"{"model":"m","messages":[{"a":"x"},{"b":1}],"tools":[]}"#,
            r#"{"model":"m","messages":[{"a":"x"},{"b":1},{"c":2}],"tools":[]}"#,
            r#"{"model":"m","messages":[{"a":"x"},{"b":1},{"a":"x"}],"tools":[7]}"#,
            r#"{ "messages": [1, 2] }"#,
            "[7]",
        ];
        let recorded = [
            sent[0],
            r#"{"model":"m","messages":[{"same_as":"n0","count":2},{"c":2}],"tools":[]}"#,
            r#"{"model":"m","messages":[{"same_as":"n1","count":2},{"a":"x"}],"tools":[7]}"#,
            sent[3],
            sent[4],
        ];
        let dir = tempfile::tempdir().unwrap();
        let mut records = RecordedRequests::new(dir.path());
        let mut before: Vec<u32> = Vec::new();
        for (index, (sent, recorded)) in sent.iter().zip(recorded).enumerate() {
            let name = format!("io/invocations/n{index}");
            write_record(dir.path(), &name, sent, recorded);
            let found = requests.add(records.read(&name).unwrap(), of, &mut room).unwrap();
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
    }

    #[test]
    fn c_18_2_a_changed_record_changes_no_request_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = RecordedRequests::new(dir.path());
        let mut requests = PageRequests::default();
        let mut room = PageCapacity::new(10_000);
        let of = BlockAttribution { blocks: &[], ratio: TokenRatio::default() };
        let first = r#"{"messages":[1,2]}"#;
        let later = r#"{"messages":[{"same_as":"n0","count":1},3]}"#;
        write_record(dir.path(), "io/invocations/n0", "another request", first);
        write_record(dir.path(), "io/invocations/n1", r#"{"messages":[1,3]}"#, later);
        let mut add =
            |name: &str| requests.add(records.read(name).unwrap(), of, &mut room).unwrap();
        assert!(!add("io/invocations/n0").is_exact);
        let added = add("io/invocations/n1");
        assert!(added.is_exact);
        assert_eq!(added.messages[0], PageMessages::Repeated([0, 1]));
        assert!(matches!(added.messages[1..], [PageMessages::New(_)]));
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
            let mut room = PageCapacity::new(10_000);
            let dir = tempfile::tempdir().unwrap();
            let name = "io/invocations/x";
            write_record(dir.path(), name, sent, sent);
            let mut records = RecordedRequests::new(dir.path());
            let request = records.read(name).unwrap();
            PageRequests::default().add(request, of, &mut room).unwrap().part_sizes
        };
        let known = shares(&[block(1), block(0), block(2)]);
        assert_eq!((&known.blocks[..], known.tools.bytes), (&[7, 0, 16][..], 9));
        assert_eq!(7 + 16 + 9 + known.rest.bytes, sent.len());
        assert_eq!(known.rest.tokens, TokenRatio::default().tokens(known.rest.bytes));
        let unknown = shares(&[block(1)]);
        assert_eq!((unknown.blocks.len(), unknown.rest.bytes), (0, known.rest.bytes + 1));
    }
}
