//! The LLM: what is asked, what it answers, and the one trait behind which every way to reach it lives.
//!
//! Knows nothing of runs or journals. A [`Provider`] gets a finished [`Request`] and gives a whole [`Reply`] or an
//! [`LlmError`]; of a broken-off answer nothing comes out.

use crate::json;
use crate::signal::Cancel;
use crate::time::Timestamp;
use crate::vars::Vars;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

pub mod cassette;
pub mod config;
mod command;
pub mod endpoint;
pub mod openai;
pub mod recorded;
pub mod script;
mod sse;

pub use config::{LlmConfig, ProviderKind};
pub use endpoint::{Endpoint, NoEndpoint};

/// The environment variable by which what the command of the `command` provider leaves behind is found when its time is
/// up.
pub const COMMAND_MARK: (&str, &str) = ("DELTA_LLM", "1");

/// One message of the conversation, in the form of Chat Completions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message<'a> {
    /// A context block.
    System {
        /// Its text.
        content: Cow<'a, str>,
    },
    /// What a person said.
    User {
        /// Their words.
        content: Cow<'a, str>,
    },
    /// An earlier answer of the LLM.
    Assistant {
        /// Its text; `null` beside tool calls when there was none.
        content: Option<Cow<'a, str>>,
        /// Reasoning sent back, only with `llm.echo_reasoning`.
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<Cow<'a, str>>,
        /// Its tool calls.
        #[serde(skip_serializing_if = "no_calls")]
        tool_calls: Cow<'a, [ToolCall]>,
    },
    /// The result of one call.
    Tool {
        /// The id of the call that it answers.
        tool_call_id: Cow<'a, str>,
        /// The observation.
        content: Cow<'a, str>,
    },
}

#[expect(clippy::ptr_arg, reason = "serde passes the field as it is")]
fn no_calls(calls: &Cow<'_, [ToolCall]>) -> bool {
    calls.is_empty()
}

impl Message<'_> {
    /// The message as it is sent.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}

/// A tool call as the LLM wrote it: nothing about it is checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the LLM gave, possibly empty, repeated or hostile.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Which function, with what.
    pub function: FunctionCall,
}

impl ToolCall {
    /// A call of the function `name`.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        let function = FunctionCall { name: name.into(), arguments: arguments.into() };
        Self { id: id.into(), kind: "function".to_owned(), function }
    }
}

/// The function of a [`ToolCall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool's name, possibly of no tool.
    pub name: String,
    /// The arguments as text, meant to be a JSON object.
    pub arguments: String,
}

/// What the LLM is asked: everything that goes over the wire, and where in the run it is asked.
#[derive(Debug)]
pub struct Request<'a> {
    /// The exact request body: compact JSON. Shared, so that a thread can send it without a copy.
    pub body: &'a Arc<String>,
    /// The text of the first user message; for the script's `${task}`.
    pub task: &'a str,
    /// The text of the last user message; for the script's `${message}`.
    pub message: &'a str,
    /// The last message, as JSON; its text is for the script's `when` and `${last}`.
    pub last: &'a str,
    /// How many turns of a script the journal says are used up.
    pub script_place: usize,
}

/// The body of an answer. It is JSON as text: nearly always it is recorded, and not looked at.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Response(Box<RawValue>);

impl Response {
    /// The response that `body` is as JSON.
    pub fn of(body: &impl Serialize) -> Self {
        Self(to_raw_value(body).unwrap_or_default())
    }

    /// The same as a value.
    pub fn to_json(&self) -> Value {
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl PartialEq for Response {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// Its text, if any.
    pub content: Option<String>,
    /// Reasoning that came beside the text, if any.
    pub reasoning: Option<String>,
    /// Its tool calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Why the LLM stopped: `stop`, `tool_calls`, `length`, `content_filter`, ...
    pub finish_reason: Option<String>,
    /// What a refusing LLM said instead of an answer.
    pub refusal: Option<String>,
    /// What the call cost.
    pub usage: Option<Usage>,
    /// The turn of the script that this is, for the `script` provider.
    pub script_turn: Option<usize>,
    /// The response body: as it came, or assembled from the stream into the form of an unstreamed one.
    pub response: Response,
    /// The HTTP status, for providers that have one.
    pub status: Option<u16>,
    /// The exact request that was sent, when it is not the one that was asked for.
    pub sent: Option<Arc<String>>,
}

/// Tokens and cost of one call, as the endpoint reported them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The model that answered.
    pub model: String,
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Those of them that the endpoint took from its cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// USD: from `llm.pricing` or the endpoint's own figure; absent when neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Reads the `usage` of a Chat Completions response of `model`; `None` when it is no object.
    pub fn read(usage: &Value, model: &str) -> Option<Self> {
        let usage = usage.as_object()?;
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        let cached = usage
            .get("prompt_tokens_details")
            .and_then(|d| d.get("cached_tokens"))
            .and_then(Value::as_u64);
        Some(Self {
            model: model.to_owned(),
            input_tokens: count("prompt_tokens").or_else(|| count("input_tokens")).unwrap_or(0),
            cached_input_tokens: cached.or_else(|| count("prompt_cache_hit_tokens")).unwrap_or(0),
            output_tokens: count("completion_tokens")
                .or_else(|| count("output_tokens"))
                .unwrap_or(0),
            cost_usd: usage.get("cost").and_then(Value::as_f64),
        })
    }
}

/// One try of a call that failed, for io/ and stderr.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// The HTTP status, if an answer began.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: String,
    /// How long the engine waits before the next try; absent after the last.
    pub retry_in_ms: Option<u64>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// The stop was asked for; whatever had arrived is dropped.
    #[error("interrupted")]
    Cancelled,
    /// Every try failed, or the first failed in a way that another would not mend.
    #[error("{message}")]
    Failed {
        /// What a person should read, with the provider's own words.
        message: String,
        /// The last HTTP status.
        status: Option<u16>,
        /// What to do about it.
        hint: Option<String>,
        /// The body of the last error answer.
        response: Option<Value>,
        /// The turn of the script that said so.
        script_turn: Option<usize>,
    },
}

impl LlmError {
    /// A failure with nothing but words.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
            status: None,
            hint: None,
            response: None,
            script_turn: None,
        }
    }
}

/// What the provider tells while it works. A failed try is told as soon as it is known.
pub type Tell<'a> = &'a mut dyn FnMut(&Attempt);

/// A way to get answers.
pub trait Provider {
    /// Gives one whole answer, or why there is none. Waits no longer than until `cancel` is set.
    fn complete(
        &mut self,
        request: &Request<'_>,
        cancel: &Cancel,
        tell: Tell<'_>,
    ) -> Result<Reply, LlmError>;
}

/// The provider that `config` names, the prepared `endpoint` where it is one; nothing is connected before the first call.
/// `launch` is asked for the surroundings of a command.
pub fn connect(
    config: &LlmConfig,
    endpoint: Option<openai::OpenAi>,
    launch: impl FnOnce() -> crate::process::Launch,
    vars: &Vars,
) -> Result<Box<dyn Provider>, LlmError> {
    match (&config.provider, endpoint) {
        (ProviderKind::Openai, Some(endpoint)) => Ok(Box::new(endpoint)),
        (ProviderKind::Openai, None) => Err(LlmError::failed("no endpoint")),
        (ProviderKind::Script(script), _) => {
            Ok(Box::new(script::Script::new(script.clone(), config.model.clone())))
        }
        (ProviderKind::Recorded(cassette), _) => {
            let whoever_asks = Box::new(|_: &recorded::Question<'_>| Ok(()));
            Ok(Box::new(recorded::Recorded::new(cassette.recordings(), whoever_asks)))
        }
        (ProviderKind::Command(argv), _) => {
            let argv = argv.iter().map(|word| vars.fill(word)).collect();
            let model = config.model.clone();
            Ok(Box::new(command::CommandProvider::new(argv, launch(), model, config.timeout_ms)))
        }
    }
}

/// Reads an unstreamed Chat Completions response; `model` is for one that names none.
pub fn reply_of_response(response: &Value, model: &str) -> Result<Reply, String> {
    let choice = response.get("choices").and_then(|choices| choices.get(0));
    let Some(message) = choice.and_then(|choice| choice.get("message")).and_then(Value::as_object)
    else {
        return Err("the answer has no choices[0].message".to_owned());
    };
    let text = |name: &str| text_of(message.get(name));
    let calls =
        message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let tool_calls = calls.iter().map(tool_call_of).collect();
    let finish_reason =
        choice.and_then(|c| c.get("finish_reason")).and_then(Value::as_str).map(str::to_owned);
    let model = response.get("model").and_then(Value::as_str).unwrap_or(model);
    Ok(Reply {
        content: text("content"),
        reasoning: text("reasoning_content").or_else(|| text("reasoning")),
        tool_calls,
        finish_reason,
        refusal: text("refusal"),
        usage: response.get("usage").and_then(|usage| Usage::read(usage, model)),
        script_turn: None,
        status: None,
        sent: None,
        response: Response::of(response),
    })
}

/// The text of a message in the form of Chat Completions, empty when it has none.
pub fn text_of_message(message: &Value) -> String {
    text_of(message.get("content")).unwrap_or_default()
}

/// A content that is a string, or a list of text parts; empty is none.
fn text_of(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn tool_call_of(call: &Value) -> ToolCall {
    let empty = Map::new();
    let function = call.get("function").and_then(Value::as_object).unwrap_or(&empty);
    let arguments = match function.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        // Some local servers send the object itself instead of its text.
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => String::new(),
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    ToolCall::new(text(call.get("id")), text(function.get("name")), arguments)
}
