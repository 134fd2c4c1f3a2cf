//! A reply of the LLM, and how it is read from the response that a record keeps.

use crate::message::content_text;
use crate::think_text::split_think;
use crate::{
    NativeParts, ToolCall, Usage, WireExchange, doubt_missing_arguments, sent_arguments,
    settled_arguments,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;

/// The body of a response, as JSON text: nearly always it is recorded and not parsed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ResponseBody(Box<RawValue>);

impl ResponseBody {
    /// Serializes `body` as JSON.
    pub fn new(body: &impl Serialize) -> Self {
        Self(to_raw_value(body).unwrap_or_default())
    }

    /// Parses the text.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl PartialEq for ResponseBody {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A complete reply of the LLM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// The text, if any.
    pub content: Option<String>,
    /// The reasoning, if any.
    pub reasoning: Option<String>,
    /// The tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// What has to go back to the endpoint unchanged, if anything.
    pub native: Option<NativeParts>,
    /// Why the LLM stopped: `stop`, `tool_calls`, `length`, `content_filter`, ...
    pub finish_reason: Option<String>,
    /// The text of a refusal.
    pub refusal: Option<String>,
    /// The endpoint's own reason for its end, with its words, if `finish_reason` does not have them.
    pub ending: Option<String>,
    /// The tokens and the cost of the call.
    pub usage: Option<Usage>,
    /// The index of the script turn or of the recorded call that provided the reply.
    pub script_turn: Option<usize>,
    /// The response body as received; for a streamed response, assembled into the form of an unstreamed one.
    pub response: ResponseBody,
    /// The HTTP status, for providers that have one.
    pub status: Option<u16>,
    /// The body that was sent, if it is in the form of the request and differs from it.
    #[serde(skip)]
    pub sent_body: Option<Arc<String>>,
    /// The exchange in the form of the endpoint, where that is another one.
    pub wire: Option<Box<WireExchange>>,
    /// The words of an error that the endpoint reported after the complete answer.
    pub late_error: Option<String>,
    /// In a recorded reply, the indices of the tool calls whose arguments contained a key: the recording has them redacted,
    /// and they were not run.
    pub redacted_calls: Vec<usize>,
    /// The THOUGHT of another run that has the reply, `RUN#SEQ`: the endpoint was not asked.
    #[serde(skip)]
    pub from: Option<String>,
    /// USD that the reply cost that run, if it is known.
    #[serde(skip)]
    pub saved_usd: Option<f64>,
}

impl Reply {
    /// The reply without the reasoning at the beginning of its text, which becomes its reasoning. Opaque parts belong to the
    /// text, so they are dropped with it.
    pub fn with_stripped_think(self) -> Self {
        let Some((think, text)) = self.content.as_deref().and_then(split_think) else {
            return self;
        };
        let reasoning = self.reasoning.as_deref().into_iter().chain([think]);
        let reasoning = reasoning.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
        let content = Some(text.to_owned()).filter(|text| !text.is_empty());
        let reasoning = Some(reasoning).filter(|text| !text.is_empty());
        Self { content, reasoning, native: None, ..self }
    }

    /// The reply with which a hook replaces this one. Opaque parts belong to the text and the calls of the answer, so they
    /// are dropped where the hook changed those.
    pub fn replaced_by(self, other: Self) -> Self {
        let is_same_answer = self.content == other.content && self.tool_calls == other.tool_calls;
        Self {
            native: other.native.filter(|_| is_same_answer),
            usage: self.usage,
            script_turn: self.script_turn,
            status: self.status,
            sent_body: self.sent_body,
            wire: self.wire,
            from: self.from,
            saved_usd: self.saved_usd,
            ..other
        }
    }
}

/// The names that endpoints of Chat Completions use for the reasoning, as far as it is a text; the most frequent one first.
pub const REASONING_FIELDS: [&str; 4] =
    ["reasoning_content", "reasoning", "reasoning_text", "thinking"];

/// Why a response has no reply.
pub const NO_MESSAGE: &str = "the response has no choices[0].message";

/// The text of an answer that is an image and nothing else.
pub const IMAGE_ANSWER: &str = "[The answer is an image, which is in the record of the call.]";

/// Parses an unstreamed Chat Completions response. `model` is used if the response does not name one.
pub fn parse_reply(response: &Value, model: &str) -> Result<Reply, String> {
    let choice = response.get("choices").and_then(|choices| choices.get(0));
    let Some(message) = choice.and_then(|choice| choice.get("message")).and_then(Value::as_object)
    else {
        return Err(NO_MESSAGE.to_owned());
    };
    let text = |name: &str| content_text(message.get(name));
    let list = |name: &str| {
        message.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    };
    let finish_reason = choice.and_then(|choice| choice.get("finish_reason"));
    let model = response.get("model").and_then(Value::as_str).unwrap_or(model);
    let mut tool_calls: Vec<_> = list("tool_calls").iter().filter_map(parse_tool_call).collect();
    doubt_missing_arguments(&mut tool_calls);
    let mut content = text("content");
    if content.is_none() && tool_calls.is_empty() {
        content = media_text(message.get("audio"), &[list("images"), list("content")]);
    }
    Ok(Reply {
        content,
        reasoning: REASONING_FIELDS
            .into_iter()
            .find_map(text)
            .or_else(|| thinking_text(message.get("content"))),
        tool_calls,
        finish_reason: finish_reason.and_then(Value::as_str).map(str::to_owned),
        refusal: text("refusal"),
        usage: Usage::from_response(|name| response.get(name), model),
        native: message.get("native").and_then(|native| NativeParts::deserialize(native).ok()),
        response: ResponseBody::new(response),
        ..Reply::default()
    })
}

/// What an answer without text and calls consists of: the transcript of its `audio`, or the image among its `parts`.
pub fn media_text(audio: Option<&Value>, parts: &[&[Value]]) -> Option<String> {
    let transcript = audio.and_then(|audio| audio.get("transcript")?.as_str());
    if let Some(transcript) = transcript.filter(|text| !text.is_empty()) {
        return Some(transcript.to_owned());
    }
    let mut kinds = parts.iter().copied().flatten().filter_map(|part| part.get("type")?.as_str());
    kinds.any(|kind| kind.contains("image")).then(|| IMAGE_ANSWER.to_owned())
}

/// The reasoning in a content that is a list; `None` if it is empty.
pub fn thinking_text(content: Option<&Value>) -> Option<String> {
    let mut text = String::new();
    for part in content?.as_array()?.iter().filter_map(|part| part.get("thinking")) {
        match part {
            Value::String(piece) => text.push_str(piece),
            Value::Array(pieces) => pieces
                .iter()
                .filter_map(|piece| piece.get("text")?.as_str())
                .for_each(|piece| text.push_str(piece)),
            _ => {}
        }
    }
    (!text.is_empty()).then_some(text)
}

/// A call; `None` without any of its members, which some servers send with a text.
fn parse_tool_call(call: &Value) -> Option<ToolCall> {
    let function = call.get("function").unwrap_or(&Value::Null);
    let arguments = sent_arguments(&[function, call], "arguments");
    let arguments = settled_arguments(&arguments);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let call = ToolCall::new(text(call.get("id")), text(function.get("name")), arguments);
    (call != ToolCall::new("", "", "")).then_some(call)
}
