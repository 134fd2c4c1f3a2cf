//! The messages of a conversation and their tool calls, in the form of Chat Completions.

use crate::{CallArguments, NativeParts};
use delta_base::json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// One message of the conversation, in the form of Chat Completions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message<'a> {
    /// A context block.
    System {
        /// The text of the block.
        content: Cow<'a, str>,
    },
    /// A message of the user.
    User {
        /// The text of the message.
        content: Cow<'a, str>,
    },
    /// An earlier reply of the LLM.
    Assistant {
        /// The text of the reply; `null` if it had only tool calls.
        content: Option<Cow<'a, str>>,
        /// The reasoning of the reply, only with `llm.echo_reasoning`.
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<Cow<'a, str>>,
        /// The tool calls of the reply.
        #[serde(skip_serializing_if = "has_no_calls")]
        tool_calls: Cow<'a, [ToolCall]>,
        /// What only the form of the reply can express. No provider sends it as it is here.
        #[serde(skip_serializing_if = "Option::is_none")]
        native: Option<&'a NativeParts>,
    },
    /// The result of one call.
    Tool {
        /// The id of the call.
        tool_call_id: Cow<'a, str>,
        /// The observation.
        content: Cow<'a, str>,
    },
}

#[expect(clippy::ptr_arg, reason = "serde passes the field as it is")]
fn has_no_calls(calls: &Cow<'_, [ToolCall]>) -> bool {
    calls.is_empty()
}

impl Message<'_> {
    /// The message as the request contains it.
    pub fn to_json(&self) -> String {
        json::to_json(self)
    }
}

/// A tool call as the LLM wrote it; nothing in it has been checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id from the LLM, which may be empty, repeated or hostile.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The function and its arguments.
    pub function: FunctionCall,
}

impl ToolCall {
    /// The most bytes of an id that is one of the run too. What is longer holds more than an id.
    pub const MAX_ID_BYTES: usize = 128;

    /// A call of the function `name`.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        let function = FunctionCall { name: name.into(), arguments: CallArguments::new(arguments) };
        Self { id: id.into(), kind: "function".to_owned(), function }
    }
}

/// The function of a [`ToolCall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The name of the tool; there may be no such tool.
    pub name: String,
    /// The arguments as text, which should be a JSON object.
    pub arguments: CallArguments,
}

/// The text of a message in the form of Chat Completions; empty if it has none.
pub fn message_text(message: &Value) -> String {
    content_text(message.get("content")).unwrap_or_default()
}

/// The text of a part, which some servers send as a string.
fn content_part_text(part: &Value) -> Option<&str> {
    part.as_str().or_else(|| part.get("text")?.as_str())
}

/// The text of a content that is a string, a text part or a list of such; `None` if it is empty.
pub(crate) fn content_text(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::Array(parts) => parts.iter().filter_map(content_part_text).collect(),
        part => content_part_text(part)?.to_owned(),
    };
    (!text.is_empty()).then_some(text)
}
