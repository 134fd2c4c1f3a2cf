//! A streamed response whose events are JSON objects: the part of the assembling that all forms share.

use super::super::answer_error::AnswerError;
use super::super::exact_arguments::quote_inexact_arguments;
use super::super::reply_assembler::StreamError;
use super::super::{CallObserver, CallProgress};
use super::{DecodeContext, StreamAssembler, WireCodec};
use delta_base::json_repair::SplitCharacter;
use delta_http::sse_parser::{SseEvent, SseParser};
use delta_words::{Reply, Usage};
use serde_json::{Value, json};

/// The most characters shown of an event that is not JSON.
const MAX_EXCERPT_CHARS: usize = 500;

/// Reads the events of a stream in any form: JSON, or the words of an error, whichever way they come.
#[derive(Debug, Default)]
pub struct EventReader {
    parser: SseParser,
    is_done: bool,
    /// The stream ended within an event.
    is_cut: bool,
    /// An event that is not an error has arrived.
    has_begun: bool,
    split: SplitCharacter,
    /// Text outside of events, which may explain why there is no answer.
    unframed: String,
    /// The bytes of it that came before the last event.
    early_bytes: usize,
}

impl EventReader {
    /// Passes the next events on to `add`.
    ///
    /// # Errors
    /// The endpoint reported an error, or what `add` returned.
    pub fn push(
        &mut self,
        bytes: &[u8],
        add: impl FnMut(&str) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let events = self.parser.push(bytes);
        self.read(events, add)
    }

    /// Ends the stream. An event that is cut off is not an error by itself. Without an
    /// answer, which `is_complete` decides, a text that is not an event is an error.
    pub fn finish(
        &mut self,
        mut add: impl FnMut(&str) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        let events = self.parser.finish();
        match self.read(events, &mut add) {
            Err(error @ (StreamError::Reported(_) | StreamError::NoAnswer(_))) => {
                return Err(error);
            }
            Err(StreamError::NotJson(_) | StreamError::EarlyText(_)) => self.is_cut = true,
            Ok(()) => {}
        }
        match serde_json::from_str::<Value>(&self.unframed) {
            _ if self.unframed.trim().is_empty() => Ok(()),
            Ok(value) => {
                reported_error(&value).map_or(Ok(()), |error| Err(StreamError::Reported(error)))
            }
            Err(_) if self.unframed.len() == self.early_bytes => {
                Err(StreamError::EarlyText(excerpt(&self.unframed)))
            }
            Err(_) => Err(StreamError::NotJson(excerpt(&self.unframed))),
        }
    }

    /// Whether the stream sent `[DONE]`.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether an event has arrived that is neither an error nor a sign of life.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn read(
        &mut self,
        events: Vec<SseEvent>,
        mut add: impl FnMut(&str) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        for event in events {
            let text = event.text().trim();
            match &event {
                _ if self.is_done => {}
                SseEvent::Error(_) => return Err(StreamError::Reported(error_of_text(text))),
                SseEvent::Data(_)
                    if SIGNS_OF_LIFE.iter().any(|it| text.eq_ignore_ascii_case(it)) => {}
                // Some servers write it as JSON, or small.
                SseEvent::Data(_) if text.trim_matches('"').eq_ignore_ascii_case("[DONE]") => {
                    self.is_done = true;
                }
                SseEvent::Data(_) => {
                    add(&self.split.join(event.text()))?;
                    self.has_begun |= !is_ping(text);
                    self.early_bytes = self.unframed.len();
                }
                SseEvent::Unframed(line) if is_whole_json(line) => {
                    add(&self.split.join(line))?;
                    self.has_begun = true;
                }
                SseEvent::Unframed(line) => {
                    self.unframed.push_str(line);
                    self.unframed.push('\n');
                }
            }
        }
        Ok(())
    }
}

/// Data of events that say only that the connection is alive.
const SIGNS_OF_LIFE: [&str; 5] = ["", "null", "ping", "heartbeat", "keep-alive"];

/// Whether an event is the sign of life of Anthropic.
fn is_ping(text: &str) -> bool {
    text.contains("\"ping\"")
        && serde_json::from_str::<Value>(text).is_ok_and(|event| event["type"] == "ping")
}

/// Whether a bare line is an event without its frame, and not a line of a text in several lines.
fn is_whole_json(line: &str) -> bool {
    let ends = [('{', '}'), ('[', ']')];
    ends.iter().any(|(start, end)| line.starts_with(*start) && line.trim_end().ends_with(*end))
}

/// The first characters of an event that is not JSON.
pub fn excerpt(text: &str) -> String {
    text.chars().take(MAX_EXCERPT_CHARS).collect()
}

/// The error that the text of an error event is.
fn error_of_text(text: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => reported_error(&value).unwrap_or_else(|| json!({"error": value})),
        Err(_) if text.is_empty() => {
            json!({"error": "the stream has an event `error` without a text"})
        }
        Err(_) => json!({"error": text}),
    }
}

/// The member `error` of an object, unless it is empty: some servers send an empty one with each answer.
pub fn find_error(object: &Value) -> Option<&Value> {
    object.get("error").filter(|error| match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

/// What has the words of an error.
const MESSAGE_MEMBERS: [&str; 4] = ["msg", "message", "detail", "error_msg"];

/// The error that an event without a known type is, as the body of an error response: `{"error": ...}`, alone or in a
/// list, or an object that has a message but is not a part of an answer.
pub fn reported_error(event: &Value) -> Option<Value> {
    let event = event.get(0).unwrap_or(event);
    if find_error(event).is_some() {
        return Some(event.clone());
    }
    let is_named =
        ["object", "type"].iter().any(|name| event.get(name).is_some_and(|it| it == "error"));
    let codes = ["code", "error_code"].iter().filter_map(|name| event.get(*name));
    let codes: Vec<String> = codes.map(|code| code.to_string().replace('"', "")).collect();
    let is_failure = codes.iter().any(|code| !matches!(code.as_str(), "0" | "200"));
    // Without a code, `msg` says what is done; with the code 0, each text does.
    let names = match (is_failure, codes.is_empty()) {
        (true, _) => &MESSAGE_MEMBERS[..],
        (false, true) => &MESSAGE_MEMBERS[1..],
        (false, false) => &[],
    };
    let has_text = names.iter().any(|name| match event.get(*name) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    });
    // MiniMax, whose answers have it too.
    let code = event.pointer("/base_resp/status_code").and_then(Value::as_i64);
    let has_code = code.is_some_and(|code| code != 0);
    (is_named || has_text || has_code).then(|| json!({"error": event}))
}

/// Adds the next piece of a member that comes in pieces, such as the log probabilities of tokens: its lists are continued, its
/// other values replaced.
pub fn add_member_piece(member: &mut Value, piece: Value) {
    match (member, piece) {
        (_, Value::Null) => {}
        (Value::Object(members), Value::Object(pieces)) => {
            for (name, piece) in pieces {
                add_member_piece(members.entry(name).or_insert(Value::Null), piece);
            }
        }
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (member, piece) => *member = piece,
    }
}

/// Assembles the events of one form into the response that the endpoint would have sent whole.
pub trait EventAssembler {
    /// Adds an event, a JSON object. An event of an unknown type is ignored.
    ///
    /// # Errors
    /// The event is an error of the endpoint.
    fn add_event(&mut self, event: Value) -> Result<(), StreamError>;

    /// Whether the answer is complete.
    fn is_complete(&self) -> bool;

    /// Whether nothing more is expected after that.
    fn is_ended(&self) -> bool {
        self.is_complete()
    }

    /// Whether more may follow at any later time although the answer is complete.
    fn may_continue(&self) -> bool {
        false
    }

    /// The stream has ended as it should.
    fn end(&mut self) {}

    /// The text so far.
    fn text(&self) -> &str;

    /// The reasoning so far.
    fn reasoning(&self) -> &str;

    /// The arguments of the calls so far, one after the other.
    fn arguments(&self) -> &str {
        ""
    }

    /// What the endpoint has reported of the tokens so far.
    fn usage(&self) -> Option<&Usage> {
        None
    }

    /// The response in the form of an unstreamed one.
    fn into_response(self) -> Value;
}

/// A streamed response, read by an [`EventAssembler`].
pub struct EventStream<A, C> {
    reader: EventReader,
    assembler: A,
    codec: C,
    /// The bytes of the text and of the reasoning that an observer has.
    observed_text: usize,
    observed_reasoning: usize,
    observed_arguments: usize,
    observed_usage: Option<Usage>,
}

impl<A: EventAssembler, C: WireCodec> EventStream<A, C> {
    /// A stream without an event. `codec` decodes the assembled response.
    pub fn new(assembler: A, codec: C) -> Self {
        Self {
            reader: EventReader::default(),
            assembler,
            codec,
            observed_text: 0,
            observed_reasoning: 0,
            observed_arguments: 0,
            observed_usage: None,
        }
    }
}

fn add_json<A: EventAssembler>(
    assembler: &mut A,
    arguments_member: &str,
    data: &str,
) -> Result<(), StreamError> {
    match serde_json::from_str(&quote_inexact_arguments(data, arguments_member)) {
        Ok(event @ Value::Object(_)) => assembler.add_event(event),
        Ok(event) => {
            let error = reported_error(&event).map(StreamError::Reported);
            Err(error.unwrap_or_else(|| StreamError::NotJson(excerpt(data))))
        }
        Err(_) => Err(StreamError::NotJson(excerpt(data))),
    }
}

impl<A: EventAssembler, C: WireCodec> StreamAssembler for EventStream<A, C> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let member = self.codec.form().arguments_member();
        let assembler = &mut self.assembler;
        self.reader.push(bytes, |data| add_json(assembler, member, data))
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        let member = self.codec.form().arguments_member();
        let assembler = &mut self.assembler;
        self.reader.finish(|data| add_json(assembler, member, data))?;
        if !self.reader.is_cut {
            self.assembler.end();
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.reader.is_done() || self.assembler.is_ended()
    }

    fn is_complete(&self) -> bool {
        self.assembler.is_complete()
    }

    fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    fn may_continue(&self) -> bool {
        !self.reader.is_done() && self.assembler.may_continue()
    }

    fn pass_new_text(&mut self, observe: CallObserver<'_>) {
        let reasoning = self.assembler.reasoning();
        if reasoning.len() > self.observed_reasoning {
            observe(CallProgress::Reasoning(&reasoning[self.observed_reasoning..]));
            self.observed_reasoning = reasoning.len();
        }
        let text = self.assembler.text();
        if text.len() > self.observed_text {
            observe(CallProgress::Text(&text[self.observed_text..]));
            self.observed_text = text.len();
        }
        let arguments = self.assembler.arguments();
        if arguments.len() > self.observed_arguments {
            observe(CallProgress::Arguments(&arguments[self.observed_arguments..]));
            self.observed_arguments = arguments.len();
        }
        let usage =
            self.assembler.usage().filter(|usage| self.observed_usage.as_ref() != Some(*usage));
        if let Some(usage) = usage {
            observe(CallProgress::Usage(usage));
            self.observed_usage = Some(usage.clone());
        }
    }

    fn into_reply(self: Box<Self>, context: &DecodeContext<'_>) -> Result<Reply, AnswerError> {
        self.codec.decode(self.assembler.into_response(), context)
    }
}
