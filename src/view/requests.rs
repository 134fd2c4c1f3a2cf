//! The exact requests of a run, each message once: what a request shares with the one before it is said by its place.

use super::files::Room;
use super::hidden::HIDDEN;
use crate::composition::{Composition, Size};
use crate::record::{self, Block, sha256};
use crate::tokens::Ratio;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

/// The requests of one run, in the order in which they were sent.
#[derive(Debug, Default)]
pub struct Requests {
    /// Every text that stands in a request, once.
    pub texts: Vec<Rc<str>>,
    places: HashMap<Rc<str>, u32>,
    /// Whether there was no room for one of them.
    pub is_full: bool,
    /// The request before: the name of its record, and its messages by their places in `texts`.
    last: Option<(String, Vec<u32>)>,
    /// The calls whose results nobody is to see.
    hidden_calls: HashSet<String>,
}

/// A request, by the places of its parts in the texts of the run.
#[derive(Debug, Serialize)]
pub struct Request {
    /// What stands before its first message; all of it, when it has none that could be told apart.
    head: u32,
    /// What stands behind its last message.
    #[serde(skip_serializing_if = "Option::is_none")]
    tail: Option<u32>,
    /// Its messages, between which there are commas.
    messages: Vec<Piece>,
    /// How long it is.
    bytes: usize,
    /// What these bytes are.
    #[serde(flatten)]
    shares: Shares,
    /// Of the bytes that were sent, as the record says.
    sha256: String,
    /// Whether what is recorded has that hash.
    is_exact: bool,
}

/// Messages of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Piece {
    /// One that the request before did not have, by its place.
    New(u32),
    /// As many of the request before, from one of them on.
    Kept([u32; 2]),
}

/// The sizes of the parts of a request: they add up to the whole.
#[derive(Debug, Serialize)]
struct Shares {
    /// Its blocks, in bytes; none where nobody knows which message is whose.
    blocks: Vec<usize>,
    /// The definitions of its tools.
    tools: Size,
    /// Everything else, as `delta context show` counts it.
    rest: Size,
}

impl Default for Shares {
    fn default() -> Self {
        let none = Size { bytes: 0, tokens: 0 };
        Self { blocks: Vec::new(), tools: none, rest: none }
    }
}

/// What else is known of the parts of a request.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Where its messages come from.
    pub blocks: &'a [Block],
    /// What the endpoint counted, when it was made, for what was estimated.
    pub ratio: Ratio,
}

#[derive(Deserialize)]
struct Messages<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Reference {
    same_as: String,
    count: usize,
}

impl Parts<'_> {
    fn size(&self, bytes: usize) -> Size {
        Size { bytes, tokens: self.ratio.tokens(bytes) }
    }

    /// The parts of a request whose `messages` stand between `head` and `tail`.
    fn shares(&self, head: &str, messages: &[&str], tail: &str) -> Shares {
        let frame = format!("{head}{tail}");
        let around = Composition::of(&frame, &[], self.ratio);
        let tools = around.map_or(0, |around| around.account.tools.bytes);
        let counts = self.blocks.iter().map(|block| block.messages);
        let is_known = counts.clone().fold(0, usize::saturating_add) == messages.len();
        let mut left = messages;
        let blocks: Vec<usize> = counts
            .filter(|_| is_known)
            .map(|count| {
                let (own, rest) = left.split_at(count);
                left = rest;
                own.iter().map(|message| message.len() + 1).sum::<usize>().saturating_sub(1)
            })
            .collect();
        let whole = messages.iter().map(|message| message.len() + 1).sum::<usize>() - 1;
        let inside: usize = match is_known {
            true => blocks.iter().sum(),
            false => messages.iter().map(|message| message.len()).sum(),
        };
        let rest = frame.len() + whole - tools - inside;
        Shares { blocks, tools: self.size(tools), rest: self.size(rest) }
    }
}

impl Requests {
    /// No requests yet; the results of `hidden_calls` will not be shown.
    pub fn hiding(hidden_calls: HashSet<String>) -> Self {
        Self { hidden_calls, ..Self::default() }
    }

    /// Makes sure that the last request, which had `before` texts before it, has room; takes it back otherwise, and
    /// then no later one is taken.
    pub fn fit_in(&mut self, before: usize, room: &mut Room) -> bool {
        let bytes = self.texts[before..].iter().map(|text| text.len()).sum();
        if room.take(bytes) {
            return true;
        }
        for text in self.texts.drain(before..) {
            self.places.remove(&text);
        }
        self.is_full = true;
        false
    }

    /// The request that the record `name` holds as `recorded`.
    ///
    /// # Errors
    /// What it leaves to other records cannot be found there.
    pub fn add(
        &mut self,
        run_dir: &Path,
        name: &str,
        recorded: &str,
        hash: String,
        of: Parts<'_>,
    ) -> Result<Request, String> {
        let text = match self.completed(recorded) {
            Some(text) => text,
            None => record::request(run_dir, name).map_err(|error| error.to_string())?,
        };
        let is_exact = sha256(&text) == hash;
        let file = name.rsplit('/').next().unwrap_or(name).to_owned();
        let Some((head, list, tail)) = apart(&text) else {
            self.last = None;
            let head = self.place(&text);
            let bytes = text.len();
            let messages = Vec::new();
            let shares = Shares { rest: of.size(bytes), ..Shares::default() };
            return Ok(Request {
                head,
                tail: None,
                messages,
                bytes,
                shares,
                sha256: hash,
                is_exact,
            });
        };
        let shares = of.shares(head, &list, tail);
        let list: Vec<u32> =
            list.iter().map(|message| self.place(&self.fit_to_show(message))).collect();
        let before = self.last.take().map(|(_, list)| list).unwrap_or_default();
        let messages = difference(&before, &list);
        self.last = Some((file, list));
        let (head, tail) = (self.place(head), Some(self.place(tail)));
        let bytes = text.len();
        Ok(Request { head, tail, messages, bytes, shares, sha256: hash, is_exact })
    }

    /// The whole request, where all that it leaves out stands in the one before; `None` where it does not.
    fn completed(&self, recorded: &str) -> Option<String> {
        let list = serde_json::from_str::<Messages<'_>>(recorded).ok();
        let first = list.as_ref().and_then(|list| list.messages.first());
        let reference = first.and_then(|first| serde_json::from_str::<Reference>(first.get()).ok());
        let (Some(first), Some(reference)) = (first, reference) else {
            return Some(recorded.to_owned());
        };
        let (file, known) = self.last.as_ref()?;
        if *file != reference.same_as
            || known.len() < reference.count
            || !self.hidden_calls.is_empty()
        {
            return None;
        }
        let kept = known[..reference.count].iter();
        let kept: Vec<&str> = kept.map(|place| self.texts[*place as usize].as_ref()).collect();
        let start = first.get().as_ptr() as usize - recorded.as_ptr() as usize;
        let end = start + first.get().len();
        Some(format!("{}{}{}", &recorded[..start], kept.join(","), &recorded[end..]))
    }

    /// The message as it may be shown.
    fn fit_to_show<'m>(&self, message: &'m str) -> Cow<'m, str> {
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

    fn place(&mut self, text: &str) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Rc<str> = text.into();
        self.texts.push(Rc::clone(&text));
        self.places.insert(text, place);
        place
    }
}

/// A request as what stands before its messages, the messages, and what stands behind them; `None` when it has none, or
/// something else than commas between them.
fn apart(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let list = serde_json::from_str::<Messages<'_>>(text).ok()?;
    let list: Vec<&str> = list.messages.iter().map(|message| message.get()).collect();
    let (first, last) = (list.first()?, list.last()?);
    let start = first.as_ptr() as usize - text.as_ptr() as usize;
    let end = last.as_ptr() as usize - text.as_ptr() as usize + last.len();
    let length = list.iter().map(|message| message.len() + 1).sum::<usize>() - 1;
    (end - start == length && text[start..end] == list.join(","))
        .then(|| (&text[..start], list, &text[end..]))
}

/// `now` told by what it shares with `before`.
fn difference(before: &[u32], now: &[u32]) -> Vec<Piece> {
    let mut places: HashMap<u32, usize> = HashMap::new();
    for (place, message) in before.iter().enumerate() {
        places.entry(*message).or_insert(place);
    }
    let (mut pieces, mut next) = (Vec::new(), 0);
    for message in now {
        let goes_on = before.get(next) == Some(message);
        match (goes_on, pieces.last_mut(), places.get(message)) {
            (true, Some(Piece::Kept([_, count])), _) => {
                *count += 1;
                next += 1;
            }
            (_, _, Some(place)) => {
                let place = if goes_on { next } else { *place };
                pieces.push(Piece::Kept([u32::try_from(place).unwrap_or(u32::MAX), 1]));
                next = place + 1;
            }
            (_, _, None) => pieces.push(Piece::New(*message)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_2_what_a_request_shares_is_said_by_its_place() {
        use Piece::{Kept, New};
        assert_eq!(difference(&[], &[1, 2]), [New(1), New(2)]);
        assert_eq!(difference(&[1, 2], &[1, 2, 3, 4]), [Kept([0, 2]), New(3), New(4)]);
        assert_eq!(difference(&[9, 1, 2], &[8, 1, 2, 3]), [New(8), Kept([1, 2]), New(3)]);
        assert_eq!(difference(&[0, 1, 1, 2], &[0, 1, 1, 2]), [Kept([0, 4])]);
        assert_eq!(
            difference(&[0, 1, 2, 3], &[0, 3, 3]),
            [Kept([0, 1]), Kept([3, 1]), Kept([3, 1])]
        );
    }

    #[test]
    fn c_18_2_a_request_is_put_together_byte_for_byte() {
        let mut requests = Requests::default();
        let of = Parts { blocks: &[], ratio: Ratio::default() };
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
            let found =
                requests.add(Path::new("/none"), &name, recorded, sha256(sent), of).unwrap();
            assert!(found.is_exact, "{sent}");
            let mut list = Vec::new();
            for piece in &found.messages {
                match piece {
                    Piece::New(place) => list.push(*place),
                    Piece::Kept([from, count]) => {
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
        assert!(requests.add(Path::new("/none"), "io/x", recorded[1], String::new(), of).is_err());
    }

    #[test]
    fn c_18_1_the_parts_of_a_request_add_up_to_the_whole() {
        let sent = r#"{"model":"m","messages":[{"a":1},{"b":22},{"c":3}],"tools":[{"t":1}]}"#;
        let block = |messages: usize| -> Block {
            let block = serde_json::json!({"source": "s", "type": "file", "messages": messages, "bytes": 0, "tokens": 0});
            serde_json::from_value(block).unwrap()
        };
        let shares = |blocks: &[Block]| {
            let of = Parts { blocks, ratio: Ratio::default() };
            let hash = sha256(sent);
            Requests::default().add(Path::new("/none"), "io/x", sent, hash, of).unwrap().shares
        };
        let known = shares(&[block(1), block(0), block(2)]);
        assert_eq!((&known.blocks[..], known.tools.bytes), (&[7, 0, 16][..], 9));
        assert_eq!(7 + 16 + 9 + known.rest.bytes, sent.len());
        assert_eq!(known.rest.tokens, Ratio::default().tokens(known.rest.bytes));
        let unknown = shares(&[block(1)]);
        assert_eq!((unknown.blocks.len(), unknown.rest.bytes), (0, known.rest.bytes + 1));
    }
}
