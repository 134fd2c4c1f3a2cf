//! Streamed answers: bytes become server-sent events, and their chunks become one response in the form of an
//! unstreamed one.
//!
//! Knows nothing of connections or retries. It is liberal in what it takes, because every server cuts and numbers
//! its deltas differently; but it never calls a stream whole that did not say that it was finished.

use super::{Reply, Response, ToolCall, Usage};
use crate::text::mend_surrogates;
use serde::{Serialize, Serializer};
use serde_json::Value;
// A chunk is looked at and thrown away: what it holds is not copied for that.
use serde_json_borrow::Value as Chunk;
use std::borrow::Cow;

/// What endpoints call the reasoning beside a text.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// Cuts a byte stream into the data of its events. Pieces may end anywhere, also inside a character.
#[derive(Debug, Default)]
pub struct Events {
    line: Vec<u8>,
    data: Option<String>,
    /// The last byte was a CR: an LF right behind it belongs to the same line end.
    after_cr: bool,
    /// The first line is over, so that no byte order mark can follow.
    begun: bool,
}

impl Events {
    /// The data of every event that `piece` completes.
    pub fn push(&mut self, piece: &[u8]) -> Vec<String> {
        let (mut events, mut rest) = (Vec::new(), piece);
        while let [first, others @ ..] = rest {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = others;
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.after_cr = rest[end] == b'\r';
            events.extend(self.end_line());
            rest = &rest[end + 1..];
        }
        events
    }

    /// The data of an event that the stream ended without the empty line behind it.
    pub fn finish(&mut self) -> Option<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.data.take()
    }

    /// Takes in one line; an empty one ends the event.
    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.data.take();
        }
        // Comments and the fields `event`, `id` and `retry` say nothing that matters here.
        if let Some(value) =
            line.strip_prefix(b"data").filter(|rest| matches!(rest.first(), None | Some(b':')))
        {
            let value = value.strip_prefix(b":").unwrap_or(value);
            let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
            match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&value);
                }
                None => self.data = Some(value.into_owned()),
            }
        }
        None
    }
}

/// Why a stream gives no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Broken {
    /// An event is not JSON; this is its beginning.
    NotJson(String),
    /// The endpoint reported a failure in the stream.
    Error(Value),
}

/// What has arrived of one streamed answer.
#[derive(Debug, Default)]
pub struct Assembly {
    events: Events,
    /// The fields beside `choices`, as they last were.
    head: Head,
    content: Option<String>,
    reasoning: Option<(&'static str, String)>,
    refusal: Option<String>,
    calls: Vec<Call>,
    finish_reason: Option<String>,
    /// A chunk of the answer came.
    begun: bool,
    done: bool,
}

#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Assembly {
    /// Takes in the next bytes of the body.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Broken> {
        for data in self.events.push(piece) {
            self.absorb(&data)?;
        }
        Ok(())
    }

    /// The body is over. An event that is cut off is no failure of its own: the answer lacks its end then anyway.
    pub fn finish(&mut self) -> Result<(), Broken> {
        match self.events.finish().map(|data| self.absorb(&data)) {
            Some(Err(Broken::Error(error))) => Err(Broken::Error(error)),
            _ => Ok(()),
        }
    }

    /// Whether the stream said that it is over.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Whether nothing of the answer is missing: it said why it stopped, or that it is over.
    pub fn is_whole(&self) -> bool {
        self.begun && (self.done || self.finish_reason.is_some())
    }

    /// Takes in one event.
    fn absorb(&mut self, data: &str) -> Result<(), Broken> {
        if self.done || data.trim().is_empty() {
            return Ok(());
        }
        if data.trim() == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let data = mend_surrogates(data);
        let chunk: Chunk<'_> = match serde_json::from_str(&data) {
            Ok(chunk @ Chunk::Object(_)) => chunk,
            _ => return Err(Broken::NotJson(data.chars().take(500).collect())),
        };
        if member(&chunk, "error").is_some_and(|error| !error.is_null()) {
            return Err(Broken::Error(chunk.into()));
        }
        for choice in items(member(&chunk, "choices")) {
            if member(choice, "index").and_then(Chunk::as_u64).unwrap_or(0) == 0 {
                self.absorb_choice(choice);
            }
        }
        for (name, value) in chunk.iter_object().into_iter().flatten() {
            if !value.is_null() && name != "choices" {
                self.absorb_head(name, value);
            }
        }
        Ok(())
    }

    /// Takes in a field beside `choices`; most say the same in every chunk.
    fn absorb_head(&mut self, name: &str, value: &Chunk<'_>) {
        match self.head.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) if known.is_string() && known.as_str() == value.as_str() => {}
            Some((_, known)) => *known = value.into(),
            None => self.head.0.push((name.to_owned(), value.into())),
        }
    }

    fn absorb_choice(&mut self, choice: &Chunk<'_>) {
        self.begun = true;
        if let Some(delta) = member(choice, "delta").or_else(|| member(choice, "message")) {
            self.absorb_delta(delta);
        }
        let reason = member(choice, "finish_reason").and_then(Chunk::as_str);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    fn absorb_delta(&mut self, delta: &Chunk<'_>) {
        if let Some(text) = text_of(member(delta, "content")) {
            self.content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = text_of(member(delta, "refusal")) {
            self.refusal.get_or_insert_default().push_str(&text);
        }
        // A server that sends both names says the same twice.
        if let Some((name, text)) =
            REASONING.into_iter().find_map(|name| Some((name, text_of(member(delta, name))?)))
        {
            self.reasoning.get_or_insert_with(|| (name, String::new())).1.push_str(&text);
        }
        for call in items(member(delta, "tool_calls")) {
            self.absorb_call(call);
        }
    }

    fn absorb_call(&mut self, delta: &Chunk<'_>) {
        let function = member(delta, "function");
        let of_function = |name| function.and_then(|function| member(function, name));
        let text = |value: Option<&'_ Chunk<'_>>| {
            value.and_then(Chunk::as_str).unwrap_or_default().to_owned()
        };
        let (id, name) = (text(member(delta, "id")), text(of_function("name")));
        let index = member(delta, "index").and_then(Chunk::as_u64);
        let at = self.call_of(index, &id, &name);
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        // Some servers repeat the whole name with every piece of the arguments.
        if call.name != name {
            call.name.push_str(&name);
        }
        match of_function("arguments") {
            Some(Chunk::Str(piece)) => call.arguments.push_str(piece),
            Some(object @ Chunk::Object(_)) => call.arguments.push_str(&object.to_string()),
            _ => {}
        }
    }

    /// Which call a delta belongs to; a new one when it is none of those before.
    fn call_of(&mut self, index: Option<u64>, id: &str, name: &str) -> usize {
        let found = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None if id.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|call| call.id == id || call.id.is_empty()),
        };
        // Some servers number every call 0, or none at all: another call begins when a whole one is there already.
        let another = |call: &Call| {
            let other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
            let other_name = !name.is_empty() && !call.name.is_empty() && call.name != name;
            let unnumbered =
                index.is_none() && id.is_empty() && !name.is_empty() && !call.arguments.is_empty();
            (other_id && !name.is_empty())
                || (other_name && unnumbered)
                || (unnumbered && is_json(&call.arguments))
        };
        match found.filter(|&at| !another(&self.calls[at])) {
            Some(at) => at,
            None => {
                self.calls.push(Call { index, ..Call::default() });
                self.calls.len() - 1
            }
        }
    }

    /// The whole answer; `model` is for one that names none.
    pub fn into_reply(mut self, model: &str) -> Reply {
        self.calls.sort_by_key(|call| call.index);
        let calls = self.calls.into_iter();
        let calls = calls.map(|call| ToolCall::new(call.id, call.name, call.arguments)).collect();
        let head = self.head;
        let model = head.get("model").and_then(Value::as_str).unwrap_or(model);
        let (reasoning_name, reasoning) = self.reasoning.unzip();
        let reply = Reply {
            content: self.content,
            reasoning,
            tool_calls: calls,
            finish_reason: self.finish_reason,
            refusal: self.refusal,
            usage: head.get("usage").and_then(|usage| Usage::read(usage, model)),
            ..Reply::default()
        };
        let response = Response::of(&Whole::new(&head, &reply, reasoning_name));
        Reply { response, ..reply }
    }
}

/// The fields of a response beside `choices`, in the order in which they came.
#[derive(Debug, Default)]
struct Head(Vec<(String, Value)>);

impl Head {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// A streamed answer in the form of an unstreamed one.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a Value>,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Value>,
    #[serde(flatten)]
    others: Others<'a>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u8,
    message: Message<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_calls: &'a [ToolCall],
}

/// The fields that have no place of their own.
struct Others<'a>(&'a Head);

impl Serialize for Others<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let placed = ["id", "object", "created", "model", "usage"];
        let others = self.0.0.iter().filter(|(name, _)| !placed.contains(&name.as_str()));
        serializer.collect_map(others.map(|(name, value)| (name, value)))
    }
}

impl<'a> Whole<'a> {
    fn new(head: &'a Head, reply: &'a Reply, reasoning_name: Option<&str>) -> Self {
        let named = |name| reply.reasoning.as_deref().filter(|_| reasoning_name == Some(name));
        let message = Message {
            role: "assistant",
            content: reply.content.as_deref(),
            reasoning_content: named(REASONING[0]),
            reasoning: named(REASONING[1]),
            refusal: reply.refusal.as_deref(),
            tool_calls: &reply.tool_calls,
        };
        let finish_reason = reply.finish_reason.as_deref();
        Self {
            id: head.get("id"),
            object: "chat.completion",
            created: head.get("created"),
            model: head.get("model"),
            choices: [Choice { index: 0, message, finish_reason }],
            usage: head.get("usage"),
            others: Others(head),
        }
    }
}

/// A member of an object; where several have the name, the last.
fn member<'c, 'd>(of: &'c Chunk<'d>, name: &str) -> Option<&'c Chunk<'d>> {
    let members = of.as_object()?.as_vec();
    members.iter().rev().find(|(key, _)| **key == *name).map(|(_, value)| value)
}

/// The items of a list; none of what is no list.
fn items<'c, 'd>(list: Option<&'c Chunk<'d>>) -> &'c [Chunk<'d>] {
    list.and_then(Chunk::as_array).unwrap_or_default()
}

/// As [`super::text_of`]: a content that is a string, or a list of text parts; empty is none.
fn text_of<'c>(value: Option<&'c Chunk<'_>>) -> Option<Cow<'c, str>> {
    let text = match value? {
        Chunk::Str(text) => Cow::Borrowed(&**text),
        Chunk::Array(parts) => {
            let texts = parts.iter().filter_map(|part| member(part, "text")?.as_str());
            Cow::Owned(texts.collect())
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::reply_of_response;
    use super::*;
    use serde_json::json;

    fn events(stream: &[u8], size: usize) -> Vec<String> {
        let mut parser = Events::default();
        let mut events: Vec<_> = stream.chunks(size).flat_map(|piece| parser.push(piece)).collect();
        events.extend(parser.finish());
        events
    }

    #[test]
    fn c_7_1_events_are_cut_by_every_kind_of_line_end() {
        let lines = [
            "\u{feff}data: ä€😀",
            "",
            ": comment",
            "event: x",
            "data:two",
            "data",
            "data:  three",
            "",
            "",
            "datax: no",
        ];
        let lines = lines.iter().chain(&["", "retry: 3", "data: last"]);
        let expected = ["ä€😀", "two\n\n three", "last"];
        for end in ["\n", "\r\n", "\r"] {
            let stream: String = lines.clone().map(|line| format!("{line}{end}")).collect();
            for size in 1..=stream.len() {
                assert_eq!(
                    events(stream.as_bytes(), size),
                    expected,
                    "{end:?} in pieces of {size}"
                );
            }
        }
        assert_eq!(events(b"data: \xff\xfe\n\n", 1), ["\u{fffd}\u{fffd}"]);
        assert_eq!(events(b"", 1), [""; 0]);
    }

    /// Assembles the deltas of one choice, and gives its message.
    fn message(deltas: &[Value]) -> Value {
        let mut assembly = Assembly::default();
        for delta in deltas {
            let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
            assembly.push(format!("data: {chunk}\n\n").as_bytes()).unwrap();
        }
        assert!(!assembly.is_whole());
        assembly.push(b"data: [DONE]\n\n").unwrap();
        assert!(assembly.is_whole());
        let reply = assembly.into_reply("model");
        let response = reply.response.to_json();
        assert_eq!(reply, reply_of_response(&response, "model").unwrap());
        response["choices"][0]["message"].clone()
    }

    /// The calls of a message as `id name arguments`.
    fn calls(deltas: &[Value]) -> Vec<String> {
        let deltas: Vec<_> =
            deltas.iter().map(|calls| json!({"content": null, "tool_calls": calls})).collect();
        let message = message(&deltas);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let calls = message["tool_calls"].as_array().unwrap().iter();
        calls
            .map(|call| {
                let function = &call["function"];
                format!(
                    "{} {} {}",
                    text(&call["id"]),
                    text(&function["name"]),
                    text(&function["arguments"])
                )
            })
            .collect()
    }

    #[test]
    fn c_7_1_texts_of_all_kinds_are_joined() {
        let message = message(&[
            json!({"role": "assistant"}),
            json!({"content": null, "reasoning_content": "th"}),
            json!({"reasoning_content": "ink", "reasoning": "ink"}),
            json!({"content": "a"}),
            json!({"content": [{"type": "text", "text": "b"}], "refusal": "n"}),
            json!({"refusal": "o"}),
            json!({}),
        ]);
        let expected = json!({"role": "assistant", "content": "ab", "reasoning_content": "think", "refusal": "no"});
        assert_eq!(message, expected);
        assert_eq!(self::message(&[json!({"reasoning": "r"})])["reasoning"], "r");
        assert_eq!(self::message(&[json!({"content": ""})])["content"], Value::Null);
    }

    #[test]
    fn c_7_1_calls_are_assembled_by_index() {
        let by_index = [
            json!([{"index": 1, "id": "b", "function": {"name": "be", "arguments": null}}]),
            json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "al", "arguments": ""}}]),
            json!([{"index": 0, "id": "a", "function": {"name": "pha", "arguments": "{\"x\""}},
                   {"index": 1, "function": {"arguments": "{}"}}]),
            json!([{"index": 0, "id": "", "function": {"name": "alpha", "arguments": ":1}"}}]),
        ];
        assert_eq!(calls(&by_index), [r#"a alpha {"x":1}"#, "b be {}"]);
    }

    #[test]
    fn c_7_1_calls_without_or_with_wrong_indexes_are_told_apart() {
        let by_id = [
            json!([{"id": "a", "function": {"name": "x", "arguments": "{"}}]),
            json!([{"function": {"arguments": "}"}}]),
            json!([{"id": "b", "function": {"name": "x", "arguments": "{}"}}]),
            json!([{"id": "a", "function": {"arguments": " "}}]),
        ];
        assert_eq!(calls(&by_id), ["a x {} ", "b x {}"]);
        let all_zero = [
            json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}}]),
            json!([{"index": 0, "id": "b", "function": {"name": "x", "arguments": "{}"}}]),
        ];
        assert_eq!(calls(&all_zero), ["a x {}", "b x {}"]);
        let unnamed = [
            json!([{"function": {"name": "x", "arguments": {"k": 1}}}, {"function": {"name": "x", "arguments": "{}"}}]),
            json!([{"function": {"name": "y", "arguments": "{}"}}]),
        ];
        assert_eq!(calls(&unnamed), [r#" x {"k":1}"#, " x {}", " y {}"]);
    }

    #[test]
    fn c_7_1_the_response_has_the_form_of_an_unstreamed_one() {
        let mut assembly = Assembly::default();
        let chunks = [
            json!({"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "usage": null,
                   "choices": [{"index": 1, "delta": {"content": "other"}}, {"index": 0, "delta": {"content": "hi"}}]}),
            json!({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            json!({"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}, "provider": "p"}),
        ];
        for chunk in chunks {
            assembly.push(format!("data: {chunk}\n\n").as_bytes()).unwrap();
        }
        assert!(assembly.is_whole() && !assembly.is_done());
        let message = json!({"role": "assistant", "content": "hi"});
        let expected = json!({"id": "c1", "object": "chat.completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1}, "provider": "p"});
        let reply = assembly.into_reply("model");
        assert_eq!(serde_json::to_string(&reply.response).unwrap(), expected.to_string());
        assert_eq!(reply, reply_of_response(&expected, "model").unwrap());
    }

    #[test]
    fn c_7_1_what_is_no_chunk_breaks_the_stream() {
        let push = |stream: &str| Assembly::default().push(stream.as_bytes());
        assert_eq!(push("data: [1]\n\n"), Err(Broken::NotJson("[1]".to_owned())));
        let error = json!({"error": {"message": "x"}});
        assert_eq!(push(&format!("data: {error}\n\n")), Err(Broken::Error(error.clone())));
        assert_eq!(push("data: [DONE]\n\ndata: garbage\n\n"), Ok(()));
        let mut assembly = Assembly::default();
        assembly.push(b"data: {\"choi").unwrap();
        assert_eq!(assembly.finish(), Ok(()));
        assembly.push(b"data: [DONE]\n\n").unwrap();
        assert!(!assembly.is_whole(), "a stream of nothing is no answer");
        let mut assembly = Assembly::default();
        assembly.push(format!("data: {error}").as_bytes()).unwrap();
        assert_eq!(assembly.finish(), Err(Broken::Error(error)));
    }
}
