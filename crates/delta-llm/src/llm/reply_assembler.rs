//! Assembles the chunks of a streamed response into a reply with one response body, in the form of an unstreamed one.
//!
//! Knows nothing of connections or retries. It accepts what servers send in practice, because each splits and numbers
//! its deltas differently; but a stream without a sign of its end is never complete.

mod partial_calls;

use super::answer_error::AnswerError;
use super::exact_arguments::quote_inexact_arguments;
use super::wire::chat::{
    self, AnswerOrigin, BLOCK_FIELDS, EXTRA_FIELD, REASONING_FIELDS, has_thinking,
};
use super::wire::{
    DecodeContext, EventReader, StreamAssembler, add_member_piece, excerpt, reported_error,
};
use super::{CallObserver, CallProgress};
use delta_words::{
    NativeParts, Reply, ResponseBody, ToolCall, Usage, are_no_arguments, doubt_missing_arguments,
    media_text, merge_counts, sent_arguments, thinking_text,
};
use partial_calls::{CallPiece, PartialCall, PartialCalls};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
// A chunk is dropped after it is read, so this type borrows its texts.
use serde_json_borrow::Value as Chunk;
use std::borrow::Cow;

/// The members of a choice that are read one by one.
const READ_MEMBERS: [&str; 5] = ["index", "delta", "message", "finish_reason", "usage"];

/// The members of a message that are read one by one, besides reasoning, blocks and data of the vendor.
const READ_MESSAGE_MEMBERS: [&str; 5] = ["role", "content", "refusal", "tool_calls", "native"];

/// Why a stream has no reply.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamError {
    /// An event is not a JSON object; the text is its beginning.
    NotJson(String),
    /// The stream has text outside of events, and none after the last event.
    EarlyText(String),
    /// The endpoint reported an error in the stream.
    Reported(Value),
    /// The stream has ended without a choice; this is its first event.
    NoAnswer(Value),
}

/// A streamed reply, as far as it has arrived.
#[derive(Debug, Default)]
pub struct ReplyAssembler {
    reader: EventReader,
    /// The last values of the fields other than `choices`.
    fields: ResponseFields,
    content: Option<String>,
    reasoning: Option<(&'static str, String)>,
    refusal: Option<String>,
    calls: PartialCalls,
    /// The call of the older member `function_call`, which some servers send in addition to `tool_calls`.
    function_call: PartialCall,
    /// The number of the chunks so far.
    chunks: usize,
    opaque: OpaqueFields,
    /// Who answers, for the fields that have to go back there.
    origin: Option<AnswerOrigin>,
    finish_reason: Option<String>,
    /// Its usage has arrived with its end or after it. What came before may be of a part of the answer.
    has_final_usage: bool,
    /// A piece of the answer came with or after a finish reason.
    has_early_reason: bool,
    /// The members of the choice that are only recorded, such as `logprobs`.
    choice_members: Map<String, Value>,
    /// The members of the message that are only recorded, such as images and citations.
    message_members: Map<String, Value>,
    /// A chunk of the first choice has arrived.
    has_choice: bool,
    /// The first event without a choice, if none with one has arrived.
    other_event: Option<Value>,
    /// A chunk was an answer that is whole.
    is_whole: bool,
    /// The bytes of the content and of the reasoning that an observer has.
    observed_bytes: (usize, usize),
    /// The pieces of the arguments of calls that an observer does not have.
    new_arguments: String,
    /// The usage that an observer has.
    observed_usage: Option<Usage>,
}

/// The fields of the message that only the endpoint understands.
#[derive(Debug, Default)]
struct OpaqueFields {
    /// The lists of [`BLOCK_FIELDS`], in the same order.
    blocks: [Vec<Value>; BLOCK_FIELDS.len()],
    /// The data of the vendor; null if there is none.
    extra: Value,
    /// The content, if it came as a list.
    content: Vec<Value>,
}

impl StreamAssembler for ReplyAssembler {
    fn push(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut reader = std::mem::take(&mut self.reader);
        let result = reader.push(bytes, |data| self.add_event(data));
        self.reader = reader;
        result
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        let mut reader = std::mem::take(&mut self.reader);
        let result = reader.finish(|data| self.add_event(data));
        self.reader = reader;
        result?;
        let other_event = self.other_event.take().filter(|_| !self.has_choice);
        other_event.map_or(Ok(()), |event| Err(StreamError::NoAnswer(event)))
    }

    /// Whether nothing more is expected: the stream sent `[DONE]`, or its end and its usage.
    fn is_done(&self) -> bool {
        self.reader.is_done() || self.has_final_usage
    }

    /// Whether the reply is complete: it has a finish reason. `[DONE]` alone is what some servers send after a failure too.
    fn is_complete(&self) -> bool {
        self.has_choice && (self.is_whole || self.finish_reason.is_some())
    }

    fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    /// Some servers send a reason with each event.
    fn may_continue(&self) -> bool {
        let has_reason = self.finish_reason.is_some() && !self.is_whole && !self.reader.is_done();
        has_reason && (self.has_early_reason || self.size() == 0)
    }

    fn pass_new_text(&mut self, observe: CallObserver<'_>) {
        let (content_bytes, reasoning_bytes) = &mut self.observed_bytes;
        if let Some((_, reasoning)) = &self.reasoning
            && reasoning.len() > *reasoning_bytes
        {
            observe(CallProgress::Reasoning(&reasoning[*reasoning_bytes..]));
            *reasoning_bytes = reasoning.len();
        }
        if let Some(content) = &self.content
            && content.len() > *content_bytes
        {
            observe(CallProgress::Text(&content[*content_bytes..]));
            *content_bytes = content.len();
        }
        if !self.new_arguments.is_empty() {
            observe(CallProgress::Arguments(&std::mem::take(&mut self.new_arguments)));
        }
        if let Some(usage) = Usage::from_response(|name| self.fields.get(name), "")
            && self.observed_usage.as_ref() != Some(&usage)
        {
            observe(CallProgress::Usage(self.observed_usage.insert(usage)));
        }
    }

    fn into_reply(self: Box<Self>, context: &DecodeContext<'_>) -> Result<Reply, AnswerError> {
        chat::check_ending(Self::into_reply(*self, context.model))
    }
}

impl ReplyAssembler {
    /// An assembler of one answer of `origin`.
    pub fn for_answers_of(origin: AnswerOrigin) -> Self {
        Self { origin: Some(origin), ..Self::default() }
    }

    fn add_event(&mut self, data: &str) -> Result<(), StreamError> {
        let chunk: Chunk<'_> =
            serde_json::from_str(data).map_err(|_| StreamError::NotJson(excerpt(data)))?;
        // Some servers send the object itself instead of its text.
        if has_object_arguments(&chunk)
            && let Cow::Owned(exact) = quote_inexact_arguments(data, "arguments")
        {
            return self.add_event(&exact);
        }
        let choices = list_items(member(&chunk, "choices"));
        if choices.is_empty() || member(&chunk, "error").is_some_and(|error| !error.is_null()) {
            let value = Value::from(&chunk);
            if let Some(error) = reported_error(&value) {
                return Err(StreamError::Reported(error));
            }
            if !value.is_object() {
                return Err(StreamError::NotJson(excerpt(data)));
            }
            if !self.has_choice && self.other_event.is_none() {
                self.other_event = Some(value);
            }
        }
        self.chunks += 1;
        self.is_whole |= member(&chunk, "object").and_then(Chunk::as_str)
            == Some("chat.completion")
            && choices.iter().any(|choice| member(choice, "message").is_some());
        for (name, value) in chunk.iter_object().into_iter().flatten() {
            if !value.is_null() && name != "choices" {
                self.fields.set(name, value);
            }
        }
        for choice in choices {
            if member(choice, "index").and_then(Chunk::as_u64).unwrap_or(0) == 0 {
                self.add_choice(choice)?;
            }
        }
        let has_usage = |value: &Chunk<'_>| member(value, "usage").is_some_and(Chunk::is_object);
        self.has_final_usage |=
            self.is_complete() && (has_usage(&chunk) || choices.iter().any(has_usage));
        Ok(())
    }

    /// The number of the calls and of the bytes of all texts.
    fn size(&self) -> usize {
        let texts = [&self.content, &self.refusal].into_iter().flatten().map(String::len);
        let reasoning = self.reasoning.as_ref().map_or(0, |(_, text)| text.len());
        let function = self.function_call.name.len() + self.function_call.arguments.len();
        texts.sum::<usize>() + reasoning + self.calls.size() + function
    }

    fn add_choice(&mut self, choice: &Chunk<'_>) -> Result<(), StreamError> {
        self.has_choice = true;
        let size = self.size();
        if let Some(delta) = member(choice, "delta").filter(|delta| !delta.is_null()) {
            self.add_delta(delta);
        }
        if let Some(message) = member(choice, "message").filter(|message| !message.is_null()) {
            self.add_message(message);
            // A whole answer has all of them once more.
            self.choice_members.clear();
        }
        for (name, value) in choice.iter_object().into_iter().flatten() {
            if !READ_MEMBERS.contains(&name) && !value.is_null() {
                let member = self.choice_members.entry(name).or_insert(Value::Null);
                add_member_piece(member, value.into());
            }
        }
        // Moonshot.
        if let Some(usage) = member(choice, "usage").filter(|usage| usage.is_object()) {
            self.fields.set("usage", usage);
        }
        let reason = member(choice, "finish_reason").and_then(Chunk::as_str);
        if member(choice, "error").is_some()
            && let Some(error) = chat::choice_error(&choice.into(), self.fields.get("usage"))
        {
            return Err(StreamError::Reported(error));
        }
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(reason.to_owned());
        }
        self.has_early_reason |= self.finish_reason.is_some() && self.size() > size;
        Ok(())
    }

    /// Adds a message that is whole: what came before it in pieces, it says once more.
    fn add_message(&mut self, message: &Chunk<'_>) {
        self.message_members.clear();
        let is_first = self.content.is_none() && self.reasoning.is_none() && self.calls.is_empty();
        if is_first {
            return self.add_delta(message);
        }
        self.add_message_members(message);
        let text = chunk_text(member(message, "content")).unwrap_or_default();
        if self.content.as_deref().is_none_or(|content| text.starts_with(content))
            && !text.is_empty()
        {
            self.content = Some(text.into_owned());
        }
        let calls = list_items(member(message, "tool_calls"));
        if !calls.is_empty() {
            self.calls = PartialCalls::default();
            self.chunks += 1;
            calls.iter().for_each(|call| self.add_call_delta(call));
        }
    }

    fn add_delta(&mut self, delta: &Chunk<'_>) {
        let content = member(delta, "content");
        if matches!(content, Some(Chunk::Array(_))) || !self.opaque.content.is_empty() {
            self.add_content_parts(content);
        }
        if let Some(text) = chunk_text(content) {
            self.content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = chunk_text(member(delta, "refusal")) {
            self.refusal.get_or_insert_default().push_str(&text);
        }
        // A server that sends several of them sends the same text in each.
        let mut reasoning = REASONING_FIELDS
            .into_iter()
            .filter_map(|key| Some((key, chunk_text(member(delta, key))?)));
        if let Some((key, text)) = reasoning.next() {
            self.reasoning.get_or_insert_with(|| (key, String::new())).1.push_str(&text);
        }
        for call in list_items(member(delta, "tool_calls")) {
            self.add_call_delta(call);
        }
        if let Some(function) = member(delta, "function_call") {
            let name = member(function, "name").and_then(Chunk::as_str).unwrap_or_default();
            let arguments = argument_piece(&Chunk::Null, function);
            let chunk = self.chunks;
            self.function_call.add(&CallPiece { index: None, id: "", name, arguments, chunk });
        }
        self.add_opaque_fields(delta);
        self.add_message_members(delta);
    }

    fn add_message_members(&mut self, delta: &Chunk<'_>) {
        for (name, value) in delta.iter_object().into_iter().flatten() {
            let is_read = READ_MESSAGE_MEMBERS.contains(&name)
                || REASONING_FIELDS.contains(&name)
                || BLOCK_FIELDS.contains(&name)
                || name == EXTRA_FIELD;
            if !is_read && !value.is_null() {
                let member = self.message_members.entry(name).or_insert(Value::Null);
                add_message_piece(member, value.into());
            }
        }
    }

    fn add_opaque_fields(&mut self, delta: &Chunk<'_>) {
        for (name, value) in delta.iter_object().into_iter().flatten() {
            if name == EXTRA_FIELD {
                chat::merge_extra(&mut self.opaque.extra, value.into());
            } else if let Some(at) = BLOCK_FIELDS.iter().position(|field| name == *field) {
                let pieces = list_items(Some(value)).iter();
                pieces.for_each(|piece| {
                    chat::add_block_piece(&mut self.opaque.blocks[at], piece.into());
                });
            }
        }
    }

    /// Adds to the list of the content's parts, of which some may be reasoning.
    fn add_content_parts(&mut self, content: Option<&Chunk<'_>>) {
        let text_part = |text: &str| json!({"type": "text", "text": text});
        let parts = &mut self.opaque.content;
        match content {
            Some(Chunk::Str(text)) if !text.is_empty() => {
                chat::add_block_piece(parts, text_part(text));
            }
            Some(Chunk::Array(pieces)) => {
                if let Some(text) = self.content.as_deref().filter(|_| parts.is_empty()) {
                    parts.push(text_part(text));
                }
                let pieces: Value = pieces.iter().map(Value::from).collect();
                if let Some(text) = thinking_text(Some(&pieces)) {
                    self.reasoning
                        .get_or_insert_with(|| ("content", String::new()))
                        .1
                        .push_str(&text);
                }
                for piece in pieces.as_array().into_iter().flatten() {
                    chat::add_block_piece(parts, piece.clone());
                }
            }
            _ => {}
        }
    }

    fn add_call_delta(&mut self, delta: &Chunk<'_>) {
        let function = member(delta, "function");
        let text = |value: Option<&Chunk<'_>>| {
            value.and_then(Chunk::as_str).unwrap_or_default().to_owned()
        };
        let id = text(member(delta, "id"));
        let name = text(function.and_then(|function| member(function, "name")));
        let arguments = argument_piece(delta, function.unwrap_or(&Chunk::Null));
        let extra = member(delta, EXTRA_FIELD);
        if id.is_empty() && name.is_empty() && arguments.is_empty() && extra.is_none() {
            // Not even an empty call: some servers send it with a text.
            return;
        }
        let piece = CallPiece {
            index: member(delta, "index").and_then(call_index),
            id: &id,
            name: &name,
            arguments,
            chunk: self.chunks,
        };
        let call = self.calls.add(&piece);
        self.new_arguments.push_str(&piece.arguments);
        if let Some(extra) = extra {
            chat::merge_extra(&mut call.extra, extra.into());
        }
    }

    /// The complete reply. `model` is used if the response does not name one.
    pub fn into_reply(self, model: &str) -> Reply {
        let mut calls = self.calls.into_sorted();
        if calls.is_empty() && !self.function_call.name.is_empty() {
            calls.push(self.function_call);
        }
        let mut opaque = self.opaque;
        if opaque.content.iter().all(is_text_part) {
            opaque.content.clear();
        }
        let extras: Vec<Value> =
            calls.iter_mut().map(|call| std::mem::take(&mut call.extra)).collect();
        let calls = calls.into_iter();
        let mut calls: Vec<_> = calls
            .map(|call| ToolCall::new(call.id, call.name, call.arguments.into_text()))
            .collect();
        doubt_missing_arguments(&mut calls);
        let fields = self.fields;
        let model = fields.get("model").and_then(Value::as_str).unwrap_or(model);
        let (reasoning_key, reasoning) = self.reasoning.unzip();
        let returned_reasoning =
            reasoning_key.filter(|key| REASONING_FIELDS.contains(key)).zip(reasoning.as_deref());
        let native = self.origin.and_then(|origin| {
            let mut fields = opaque.to_fields(returned_reasoning);
            let calls = calls.iter().map(|call| &*call.id).zip(extras.iter().map(Some));
            fields.extend(chat::fields_of_calls(calls));
            origin.into_native(fields)
        });
        let text = self.content;
        let images = self.message_members.get("images").and_then(Value::as_array);
        let parts = [images.map(Vec::as_slice).unwrap_or_default(), &opaque.content];
        let media = if text.is_none() && calls.is_empty() {
            media_text(self.message_members.get("audio"), &parts)
        } else {
            None
        };
        let has_text = text.is_some();
        let reply = Reply {
            content: text.or(media),
            reasoning,
            tool_calls: calls,
            native,
            finish_reason: self.finish_reason,
            refusal: self.refusal,
            usage: Usage::from_response(|name| fields.get(name), model),
            ..Reply::default()
        };
        let members = &self.message_members;
        let message =
            ResponseMessage::new(&reply, has_text, reasoning_key, &opaque, &extras, members);
        let finish_reason = reply.finish_reason.as_deref();
        let other_members = &self.choice_members;
        let choice = ResponseChoice { index: 0, message, finish_reason, other_members };
        let response = ResponseBody::new(&AssembledResponse::new(&fields, choice));
        Reply { response, ..reply }
    }
}

/// The piece of the arguments in a call and its function.
fn argument_piece<'a>(call: &Chunk<'_>, function: &'a Chunk<'_>) -> Cow<'a, str> {
    match member(function, "arguments") {
        Some(Chunk::Str(piece)) if !are_no_arguments(piece) => Cow::Borrowed(&**piece),
        _ => {
            let [function, call] = [function, call].map(Value::from);
            Cow::Owned(sent_arguments(&[&function, &call], "arguments").into_owned())
        }
    }
}

/// The index of a call, which some servers send as a text or as `0.0`.
fn call_index(index: &Chunk<'_>) -> Option<u64> {
    let number = index.as_u64().or_else(|| index.as_str()?.parse().ok());
    number.or_else(|| index.as_f64().filter(|it| *it >= 0.0).map(|it| it as u64))
}

impl OpaqueFields {
    /// The fields of the message that have to go back, in the order of [`chat`]'s selection from a whole message.
    fn to_fields(&self, reasoning: Option<(&str, &str)>) -> Map<String, Value> {
        let mut fields = Map::new();
        if let Some((name, reasoning)) = reasoning {
            fields.insert(name.to_owned(), reasoning.into());
        }
        for (name, blocks) in BLOCK_FIELDS.into_iter().zip(&self.blocks) {
            if !blocks.is_empty() {
                fields.insert(name.to_owned(), blocks.as_slice().into());
            }
        }
        if self.extra.is_object() {
            fields.insert(EXTRA_FIELD.to_owned(), self.extra.clone());
        }
        if has_thinking(&self.content) {
            fields.insert("content".to_owned(), self.content.as_slice().into());
        }
        fields
    }
}

/// The fields of a response other than `choices`, in the order of their first occurrence.
#[derive(Debug, Default)]
struct ResponseFields(Vec<(String, Value)>);

impl ResponseFields {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Sets a field; most have the same text in every chunk, which is not copied again.
    fn set(&mut self, name: &str, value: &Chunk<'_>) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) if old.is_string() && old.as_str() == value.as_str() => {}
            Some((_, old)) if name == "usage" => merge_counts(old, value.into()),
            Some((_, old)) => *old = value.into(),
            None => self.0.push((name.to_owned(), value.into())),
        }
    }
}

/// A streamed response in the form of an unstreamed one.
#[derive(Serialize)]
struct AssembledResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a Value>,
    choices: [ResponseChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Value>,
    #[serde(flatten)]
    other_fields: OtherFields<'a>,
}

#[derive(Serialize)]
struct ResponseChoice<'a> {
    index: u8,
    message: ResponseMessage<'a>,
    finish_reason: Option<&'a str>,
    #[serde(flatten)]
    other_members: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct ResponseMessage<'a> {
    role: &'static str,
    content: ResponseContent<'a>,
    #[serde(flatten)]
    reasoning: Option<ReasoningMember<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reasoning_details: &'a [Value],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    thinking_blocks: &'a [Value],
    #[serde(skip_serializing_if = "Value::is_null")]
    extra_content: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "ResponseCalls::is_empty")]
    tool_calls: ResponseCalls<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    native: Option<&'a NativeParts>,
    #[serde(flatten)]
    other_members: &'a Map<String, Value>,
}

/// The reasoning under the name with which it came.
struct ReasoningMember<'a>(&'a str, &'a str);

impl Serialize for ReasoningMember<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.0, self.1)])
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResponseContent<'a> {
    Text(Option<&'a str>),
    Parts(&'a [Value]),
}

#[derive(Serialize)]
#[serde(untagged)]
enum ResponseCalls<'a> {
    Plain(&'a [ToolCall]),
    /// With the data of the vendor.
    Extended(Vec<Value>),
}

impl ResponseCalls<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Plain([]))
    }
}

impl<'a> ResponseMessage<'a> {
    fn new(
        reply: &'a Reply,
        has_text: bool,
        reasoning_key: Option<&'a str>,
        opaque: &'a OpaqueFields,
        extras: &[Value],
        other_members: &'a Map<String, Value>,
    ) -> Self {
        let reasoning_key = reasoning_key.filter(|key| REASONING_FIELDS.contains(key));
        let [reasoning_details, thinking_blocks] = &opaque.blocks;
        let content = if opaque.content.is_empty() {
            ResponseContent::Text(reply.content.as_deref().filter(|_| has_text))
        } else {
            ResponseContent::Parts(&opaque.content)
        };
        let tool_calls = if extras.iter().all(Value::is_null) {
            ResponseCalls::Plain(&reply.tool_calls)
        } else {
            let calls = reply.tool_calls.iter().zip(extras).map(|(call, extra)| {
                let mut call = json!(call);
                if !extra.is_null() {
                    call[EXTRA_FIELD] = extra.clone();
                }
                call
            });
            ResponseCalls::Extended(calls.collect())
        };
        Self {
            role: "assistant",
            content,
            reasoning: reasoning_key
                .zip(reply.reasoning.as_deref())
                .map(|(key, text)| ReasoningMember(key, text)),
            reasoning_details,
            thinking_blocks,
            extra_content: &opaque.extra,
            refusal: reply.refusal.as_deref(),
            tool_calls,
            native: reply.native.as_ref(),
            other_members,
        }
    }
}

/// The fields that [`AssembledResponse`] does not name.
struct OtherFields<'a>(&'a ResponseFields);

impl Serialize for OtherFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = ["id", "object", "created", "model", "usage"];
        let others = self.0.0.iter().filter(|(name, _)| !named.contains(&name.as_str()));
        serializer.collect_map(others.map(|(name, value)| (name, value)))
    }
}

impl<'a> AssembledResponse<'a> {
    fn new(fields: &'a ResponseFields, choice: ResponseChoice<'a>) -> Self {
        Self {
            id: fields.get("id"),
            object: "chat.completion",
            created: fields.get("created"),
            model: fields.get("model"),
            choices: [choice],
            usage: fields.get("usage"),
            other_fields: OtherFields(fields),
        }
    }
}

/// A member of an object; if several have the name, the last.
fn has_object_arguments(chunk: &Chunk<'_>) -> bool {
    let choices = list_items(member(chunk, "choices")).iter();
    let deltas = choices.filter_map(|choice| member(choice, "delta"));
    let calls = deltas.flat_map(|delta| list_items(member(delta, "tool_calls")));
    let functions = calls.filter_map(|call| member(call, "function"));
    functions.filter_map(|it| member(it, "arguments")).any(|it| matches!(it, Chunk::Object(_)))
}

fn member<'c, 'd>(object: &'c Chunk<'d>, name: &str) -> Option<&'c Chunk<'d>> {
    let members = object.as_object()?.as_vec();
    members.iter().rev().find(|(key, _)| **key == *name).map(|(_, value)| value)
}

/// The items of a list; none if it is not a list.
fn list_items<'c, 'd>(list: Option<&'c Chunk<'d>>) -> &'c [Chunk<'d>] {
    list.and_then(Chunk::as_array).unwrap_or_default()
}

/// Whether a text says all that a part of a content holds.
fn is_text_part(part: &Value) -> bool {
    part.is_string()
        || part.as_object().is_some_and(|part| {
            part.keys().all(|name| matches!(name.as_str(), "type" | "text" | "index"))
                && part.get("text").is_some_and(Value::is_string)
        })
}

/// Adds the next piece of a member of the message: texts and lists are continued, other values replaced. Some servers repeat
/// an id or a name with each piece.
fn add_message_piece(member: &mut Value, piece: Value) {
    match (member, piece) {
        (_, Value::Null) => {}
        (Value::Object(members), Value::Object(pieces)) => {
            for (name, piece) in pieces {
                add_message_piece(members.entry(name).or_insert(Value::Null), piece);
            }
        }
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (Value::String(text), Value::String(more)) if *text != more => text.push_str(&more),
        (member, piece) => *member = piece,
    }
}

/// The text of a part, which some servers send as a string.
fn chunk_part_text<'c>(part: &'c Chunk<'_>) -> Option<&'c str> {
    part.as_str().or_else(|| member(part, "text")?.as_str())
}

/// The text of a content that is a string, a text part or a list of such; `None` if it is empty.
fn chunk_text<'c>(value: Option<&'c Chunk<'_>>) -> Option<Cow<'c, str>> {
    let text = match value? {
        Chunk::Str(text) => Cow::Borrowed(&**text),
        Chunk::Array(parts) => Cow::Owned(parts.iter().filter_map(chunk_part_text).collect()),
        part => Cow::Borrowed(chunk_part_text(part)?),
    };
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_words::parse_reply;
    use serde_json::json;

    /// The message of a choice with these deltas.
    fn message(deltas: &[Value]) -> Value {
        let mut assembler = ReplyAssembler::default();
        for delta in deltas {
            let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
            assembler.push(format!("data: {chunk}\n\n").as_bytes()).unwrap();
            // Gateways keep a connection alive so.
            assembler.push(b"event: ping\ndata: Ping\n\ndata: null\n\n").unwrap();
        }
        assert!(!assembler.is_complete());
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        assembler.push(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).unwrap();
        assert!(assembler.is_complete());
        let reply = assembler.into_reply("model");
        let response = reply.response.to_value();
        assert_eq!(reply, parse_reply(&response, "model").unwrap());
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
    fn c_7_1_calls_without_or_with_wrong_indexes_are_separated() {
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

    /// Half an answer was taken for the whole one when the server paused.
    #[test]
    fn c_7_1_a_reason_that_comes_with_each_event_does_not_end_the_answer() {
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
        let event = |delta: Value, reason: Value| {
            let chunk =
                json!({"choices": [{"delta": delta, "finish_reason": reason}], "usage": usage});
            format!("data: {chunk}\n\n")
        };
        let text = || event(json!({"content": "a"}), json!("stop"));
        let more = || event(json!({"content": "a"}), Value::Null);
        let call = || event(json!({"tool_calls": [{"function": {"name": "t"}}]}), json!("stop"));
        let nothing = || event(json!({"role": "assistant"}), json!("stop"));
        for (events, may_continue) in [
            (vec![nothing()], true),
            (vec![text()], true),
            (vec![call()], true),
            (vec![nothing(), more()], true),
            (vec![text(), nothing()], true),
            (vec![more(), nothing()], false),
            (vec![text(), "data: [DONE]\n\n".to_owned()], false),
        ] {
            let mut assembler = ReplyAssembler::default();
            events.iter().for_each(|event| assembler.push(event.as_bytes()).unwrap());
            assert!(assembler.is_done());
            assert_eq!(assembler.may_continue(), may_continue, "{events:?}");
        }
    }

    #[test]
    fn c_7_1_the_usage_of_a_part_of_the_answer_is_not_waited_with() {
        let mut assembler = ReplyAssembler::default();
        let usage = |tokens: u64| json!({"prompt_tokens": 1, "completion_tokens": tokens});
        let stop = json!([{"delta": {}, "finish_reason": "stop"}]);
        for (chunk, is_done) in [
            (json!({"choices": [{"delta": {"content": "a"}}], "usage": usage(1)}), false),
            (json!({"choices": stop}), false),
            (json!({"choices": [], "usage": usage(9)}), true),
        ] {
            assembler.push(format!("data: {chunk}\n\n").as_bytes()).unwrap();
            assert_eq!(assembler.is_done(), is_done, "{chunk}");
        }
        assert_eq!(assembler.into_reply("m").usage.unwrap().output_tokens, 9);
    }

    #[test]
    fn c_7_1_a_call_without_any_member_is_none() {
        for call in [json!({}), json!({"index": 0, "id": null, "function": null})] {
            let said = message(&[json!({"content": "a", "tool_calls": [call]})]);
            assert_eq!(said, json!({"role": "assistant", "content": "a"}));
            let answer = json!({"content": "a", "tool_calls": [call]});
            let answer = json!({"choices": [{"message": answer, "finish_reason": "stop"}]});
            assert_eq!(parse_reply(&answer, "m").unwrap().tool_calls, []);
        }
    }

    #[test]
    fn c_7_1_the_response_has_the_form_of_an_unstreamed_one() {
        let mut assembler = ReplyAssembler::default();
        let chunks = [
            json!({"id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "m", "usage": null,
                   "choices": [{"index": 1, "delta": {"content": "other"}}, {"index": 0, "delta": {"content": "hi"}}]}),
            json!({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            json!({"id": "c1", "choices": [], "usage": {"prompt_tokens": 1}, "provider": "p"}),
        ];
        for chunk in chunks {
            assembler.push(format!("data: {chunk}\n\n").as_bytes()).unwrap();
        }
        assert!(assembler.is_complete() && assembler.is_done());
        let message = json!({"role": "assistant", "content": "hi"});
        let expected = json!({"id": "c1", "object": "chat.completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1}, "provider": "p"});
        let reply = assembler.into_reply("model");
        assert_eq!(serde_json::to_string(&reply.response).unwrap(), expected.to_string());
        assert_eq!(reply, parse_reply(&expected, "model").unwrap());
    }

    #[test]
    fn c_7_1_an_event_that_is_not_a_chunk_breaks_the_stream() {
        let push = |stream: &str| ReplyAssembler::default().push(stream.as_bytes());
        assert_eq!(push("data: [1]\n\n"), Err(StreamError::NotJson("[1]".to_owned())));
        let error = json!({"error": {"message": "x"}});
        assert_eq!(push(&format!("data: {error}\n\n")), Err(StreamError::Reported(error.clone())));
        assert_eq!(push("data: [DONE]\n\ndata: garbage\n\n"), Ok(()));
        let mut assembler = ReplyAssembler::default();
        assembler.push(b"data: {\"choi").unwrap();
        assert_eq!(assembler.finish(), Ok(()));
        assembler.push(b"data: [DONE]\n\n").unwrap();
        assert!(!assembler.is_complete(), "an empty stream has no reply");
        let mut assembler = ReplyAssembler::default();
        assembler.push(format!("data: {error}").as_bytes()).unwrap();
        assert_eq!(assembler.finish(), Err(StreamError::Reported(error)));
    }
}
