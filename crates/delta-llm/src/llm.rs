//! The LLM: the request, the reply, and the trait of the providers that turn one into the other.
//!
//! Knows nothing of runs or journals. A [`Provider`] gets a finished [`LlmRequest`] and returns a complete [`Reply`] or
//! an [`LlmError`]; it drops a response that breaks off.

use delta_base::json;
use delta_base::signal::CancelToken;
use delta_base::time::Timestamp;
use delta_shell::EngineVars;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;

mod call_arguments;
mod exact_arguments;
mod call_markers;
mod think_text;
pub mod cassette;
mod command_provider;
pub mod config;
pub mod endpoint;
pub mod endpoint_provider;
mod llm_setting;
mod model_choice;
pub mod model_list;
pub mod price_file;
mod pricing;
pub mod recorded_provider;
mod reply_assembler;
pub mod script;
pub mod wire;
pub mod wire_form;

pub use call_arguments::CallArguments;
pub use call_markers::find_call_marker;
pub use config::{LlmConfig, ProviderKind};
pub use endpoint::{Endpoint, EndpointError};
pub use exact_arguments::exact_json_text;
pub use llm_setting::LlmSetting;
pub use model_choice::{ModelChoice, ModelSelection};
pub use pricing::{PRICING_HELP, PriceOrigin, Pricing, TokenPrices};
pub use wire::{CacheUse, ImageReader, NativeParts, WireExchange};
pub use wire_form::{AuthScheme, WireForm};

/// The environment variable that marks the processes of the `command` provider. By it delta finds and kills the processes
/// that left the process group of a command that was killed.
pub const COMMAND_MARK: (&str, &str) = ("DELTA_LLM", "1");

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

/// A request to the LLM: the body that is sent, and what a provider needs to know about it.
pub struct LlmRequest<'a> {
    /// The exact request body: compact JSON. Shared, so that a provider can send it without a copy.
    pub body: &'a Arc<String>,
    /// The text of the first user message; `${task}` in a script.
    pub task: &'a str,
    /// The text of the last user message; `${message}` in a script.
    pub last_user_message: &'a str,
    /// The last message, as JSON; a script matches `when` against its text, and `${last}` is its text.
    pub last_message: &'a str,
    /// The index of the next turn of a script or call of a recording, according to the journal.
    pub script_turn: usize,
    /// Whether the observer of the call gets the text as it arrives.
    pub is_live: bool,
    /// Reads the body of the last request of the run, if an earlier process sent one.
    pub previous_body: Option<&'a dyn Fn() -> Option<String>>,
    /// Whether a message may have the member `native`.
    pub has_native: bool,
    /// The run: an endpoint may keep the caches of its requests together.
    pub run_id: &'a str,
    /// Resolves the references to images in the body; `None` if it has none.
    pub images: Option<ImageReader<'a>>,
}

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
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// The tokens and the cost of the call.
    pub usage: Option<Usage>,
    /// The index of the script turn or of the recorded call that provided the reply.
    pub script_turn: Option<usize>,
    /// The response body as received; for a streamed response, assembled into the form of an unstreamed one.
    pub response: ResponseBody,
    /// The HTTP status, for providers that have one.
    pub status: Option<u16>,
    /// The body that was sent, if it is in the form of the request and differs from it.
    pub sent_body: Option<Arc<String>>,
    /// The exchange in the form of the endpoint, where that is another one.
    pub wire: Option<Box<WireExchange>>,
    /// In a recorded reply, the indices of the tool calls whose arguments contained a key: the recording has them redacted,
    /// and they were not run.
    pub redacted_calls: Vec<usize>,
}

impl Reply {
    /// The reply without the reasoning at the beginning of its text, which becomes its reasoning. Opaque parts belong to the
    /// text, so they are dropped with it.
    pub fn with_stripped_think(self) -> Self {
        let Some((think, text)) = self.content.as_deref().and_then(think_text::split_think) else {
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
            ..other
        }
    }
}

/// Tokens and cost of one call, as the endpoint reported them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The model that replied.
    pub model: String,
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the request that the endpoint read from its cache; `input_tokens` includes them.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Tokens of the request that the endpoint wrote to its cache; `input_tokens` includes them. Absent if it reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// Tokens of the reply that are reasoning; `output_tokens` includes them. Absent if the endpoint reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// USD, from `llm.pricing` or the endpoint's own figure; absent if neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Finds the usage in the fields of a response of `model`: in `usage`, or in `x_groq.usage`, where Groq streams it.
    pub fn from_response<'a>(
        field: impl Fn(&str) -> Option<&'a Value>,
        model: &str,
    ) -> Option<Self> {
        let usage = field("usage").and_then(|usage| Self::parse(usage, model));
        usage.or_else(|| Self::parse(field("x_groq")?.get("usage")?, model))
    }

    /// Parses the `usage` of a Chat Completions response of `model`; `None` if it has no tokens, or counts that are none.
    pub fn parse(usage: &Value, model: &str) -> Option<Self> {
        let usage = usage.as_object()?;
        let count = |name: &str| usage.get(name).and_then(parse_token_count);
        let detail = |group: &str, name: &str| parse_token_count(usage.get(group)?.get(name)?);
        let totals = ["prompt_tokens", "input_tokens", "completion_tokens", "output_tokens"];
        let totals = totals.iter().filter_map(|name| usage.get(*name));
        if !are_token_counts(totals) {
            return None;
        }
        let input = |name: &str| detail("prompt_tokens_details", name);
        // OpenAI and OpenRouter; LiteLLM has the other two.
        let written = input("cache_write_tokens")
            .or_else(|| input("cache_creation_tokens"))
            .or_else(|| count("cache_creation_input_tokens"));
        let input_tokens = count("prompt_tokens").or_else(|| count("input_tokens")).unwrap_or(0);
        let mut output_tokens =
            count("completion_tokens").or_else(|| count("output_tokens")).unwrap_or(0);
        let reasoning_tokens = detail("completion_tokens_details", "reasoning_tokens");
        // The completion tokens of xAI are without the reasoning; only the total has both.
        let with_reasoning = reasoning_tokens.map(|tokens| output_tokens.saturating_add(tokens));
        let total = count("total_tokens");
        if let Some(with_reasoning) = with_reasoning
            && total == Some(input_tokens.saturating_add(with_reasoning))
        {
            output_tokens = with_reasoning;
        }
        Some(Self {
            model: model.to_owned(),
            input_tokens,
            cached_input_tokens: input("cached_tokens")
                .or_else(|| count("prompt_cache_hit_tokens"))
                .unwrap_or(0),
            cache_write_tokens: written.filter(|tokens| *tokens > 0),
            output_tokens,
            reasoning_tokens: reasoning_tokens.filter(|tokens| *tokens > 0),
            cost_usd: usage.get("cost").and_then(parse_cost),
        })
    }

    /// Adds the tokens of another call. The sum of the cost is unknown if the cost of either is.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens += other.input_tokens;
        self.cached_input_tokens += other.cached_input_tokens;
        self.cache_write_tokens = add_counts(self.cache_write_tokens, other.cache_write_tokens);
        self.output_tokens += other.output_tokens;
        self.reasoning_tokens = add_counts(self.reasoning_tokens, other.reasoning_tokens);
        self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|(one, other)| one + other);
    }
}

/// A count of tokens, which some gateways write with a decimal point or as a text.
pub(crate) fn parse_token_count(count: &Value) -> Option<u64> {
    let number = count.as_u64().or_else(|| exact_count(count.as_f64()?));
    number.or_else(|| count.as_str()?.trim().parse().ok())
}

/// The whole number that a float is.
fn exact_count(number: f64) -> Option<u64> {
    /// Above it, floats skip whole numbers.
    const MAX: f64 = 9_007_199_254_740_992.0;
    let is_count = number.fract() == 0.0 && (0.0..=MAX).contains(&number);
    is_count.then_some(number as u64)
}

/// Whether a response reports its tokens: it has a count, and every count can be read. Tokens that are not reported are
/// estimated, so that limits hold.
pub(crate) fn are_token_counts<'a>(totals: impl Iterator<Item = &'a Value>) -> bool {
    let mut totals = totals.filter(|count| !count.is_null()).peekable();
    totals.peek().is_some() && totals.all(|count| parse_token_count(count).is_some())
}

/// A cost in USD, which some gateways write as a text.
fn parse_cost(cost: &Value) -> Option<f64> {
    let cost = cost.as_f64().or_else(|| cost.as_str()?.trim().parse().ok())?;
    (cost.is_finite() && cost >= 0.0).then_some(cost)
}

/// The sum of two counts; `None` if neither is known.
fn add_counts(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.map_or(other, |count| Some(count.saturating_add(other.unwrap_or(0))))
}

/// A failed attempt of a call, for io/ and stderr.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it started.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// The HTTP status, if a response began.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: String,
    /// The delay before the next attempt; absent after the last.
    pub retry_in_ms: Option<u64>,
    /// The tokens of an answer that arrived whole and cannot be used, if the endpoint reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

impl Attempt {
    /// Whether the endpoint refused it because it, or this client, has too many requests.
    pub fn is_throttled(&self) -> bool {
        self.status.is_some_and(is_throttling_status)
    }

    /// How long it kept the call from an answer, with the delay after it, in milliseconds.
    pub fn lost_ms(&self) -> u64 {
        self.duration_ms + self.retry_in_ms.unwrap_or(0)
    }
}

/// Whether this HTTP status means that the request came too early: 429, or 529, which Anthropic answers when it is
/// overloaded.
pub(crate) fn is_throttling_status(status: u16) -> bool {
    matches!(status, 429 | 529)
}

/// Why an LLM call failed.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// Cancellation was requested; a partial response is dropped.
    #[error("interrupted")]
    Cancelled,
    /// Every attempt failed, or one failed in a way that a retry would not change.
    #[error("{message}")]
    Failed {
        /// The message for the user, with the provider's own message.
        message: String,
        /// The last HTTP status.
        status: Option<u16>,
        /// What the user can do about it.
        hint: Option<String>,
        /// The body of the last error response.
        response: Option<Value>,
        /// The index of the script turn or of the recorded call that failed.
        script_turn: Option<usize>,
    },
}

impl LlmError {
    /// A failure with nothing but a message.
    pub fn from_message(message: impl Into<String>) -> Self {
        Self::Failed {
            message: message.into(),
            status: None,
            hint: None,
            response: None,
            script_turn: None,
        }
    }
}

/// The number of a try, and how many tries a call has at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryNumber {
    /// The number, counted from 1.
    pub number: u32,
    /// The maximum; `None` if only the time limit of the run ends the tries.
    pub of: Option<u32>,
}

/// What happens while a provider waits for a reply.
#[derive(Debug)]
pub enum CallProgress<'a> {
    /// An attempt has failed; with the number of the next one, if there is one.
    AttemptFailed(&'a Attempt, TryNumber),
    /// The next piece of the reply's text, as it arrives.
    Text(&'a str),
    /// The next piece of the reply's reasoning.
    Reasoning(&'a str),
}

/// Gets the progress of a call.
pub type CallObserver<'a> = &'a mut dyn FnMut(CallProgress<'_>);

/// A source of replies.
pub trait Provider {
    /// Waits for one complete reply, at most until `cancel` is set. A provider that cannot stream passes no text to
    /// `observe`.
    fn complete(
        &mut self,
        request: &LlmRequest<'_>,
        cancel: &CancelToken,
        observe: CallObserver<'_>,
    ) -> Result<Reply, LlmError>;
}

/// Creates the provider that `config` selects: `endpoint` for an endpoint. Does not connect before the first call.
/// Only the `command` provider calls `launch`.
pub fn create_provider(
    config: &LlmConfig,
    endpoint: Option<endpoint_provider::EndpointProvider>,
    launch: impl FnOnce() -> delta_process::LaunchContext,
    vars: &EngineVars,
) -> Result<Box<dyn Provider>, LlmError> {
    match (&config.provider, endpoint) {
        (ProviderKind::Endpoint(_), Some(endpoint)) => Ok(Box::new(endpoint)),
        (ProviderKind::Endpoint(_), None) => Err(LlmError::from_message("no endpoint")),
        (ProviderKind::Script(script), _) => {
            Ok(Box::new(script::ScriptProvider::new(script.clone(), config.model.clone())))
        }
        (ProviderKind::Recorded(cassette), _) => {
            let accept_all = Box::new(|_: &recorded_provider::RequestComparison<'_>| Ok(()));
            let calls = cassette.recorded_calls();
            Ok(Box::new(recorded_provider::RecordedProvider::new(calls, accept_all)))
        }
        (ProviderKind::Command(argv), _) => Ok(Box::new(command_provider::CommandProvider::new(
            argv.iter().map(|word| vars.expand_text(word)).collect(),
            launch(),
            config.model.clone(),
            config.timeout_ms,
        ))),
    }
}

/// Parses an unstreamed Chat Completions response. `model` is used if the response does not name one.
pub fn parse_reply(response: &Value, model: &str) -> Result<Reply, String> {
    let choice = response.get("choices").and_then(|choices| choices.get(0));
    let Some(message) = choice.and_then(|choice| choice.get("message")).and_then(Value::as_object)
    else {
        return Err("the response has no choices[0].message".to_owned());
    };
    let text = |name: &str| content_text(message.get(name));
    let calls =
        message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let finish_reason = choice.and_then(|choice| choice.get("finish_reason"));
    let model = response.get("model").and_then(Value::as_str).unwrap_or(model);
    Ok(Reply {
        content: text("content"),
        reasoning: text("reasoning_content")
            .or_else(|| text("reasoning"))
            .or_else(|| wire::chat::thinking_text(message.get("content"))),
        tool_calls: calls.iter().map(parse_tool_call).collect(),
        finish_reason: finish_reason.and_then(Value::as_str).map(str::to_owned),
        refusal: text("refusal"),
        usage: Usage::from_response(|name| response.get(name), model),
        native: message.get("native").and_then(|native| NativeParts::deserialize(native).ok()),
        response: ResponseBody::new(response),
        ..Reply::default()
    })
}

/// The text of a message in the form of Chat Completions; empty if it has none.
pub fn message_text(message: &Value) -> String {
    content_text(message.get("content")).unwrap_or_default()
}

/// The text of a content that is a string or a list of text parts; `None` if it is empty.
fn content_text(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn parse_tool_call(call: &Value) -> ToolCall {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_23_3_each_endpoint_reports_what_was_written_and_reasoned_in_its_own_words() {
        let counts = |usage: Value| {
            let usage = Usage::parse(&usage, "m").unwrap();
            let parts = (usage.cached_input_tokens, usage.cache_write_tokens);
            (usage.input_tokens, parts, usage.output_tokens, usage.reasoning_tokens)
        };
        // OpenAI since gpt-5.6, and OpenRouter.
        let openai = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 15},
        });
        assert_eq!(counts(openai), (100, (60, Some(30)), 20, Some(15)));
        // LiteLLM, which has it twice for models of Anthropic.
        let litellm = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "cache_creation_input_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 30},
        });
        assert_eq!(counts(litellm), (100, (60, Some(30)), 20, None));
        // xAI, whose completion is without the reasoning.
        let xai = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 15},
        });
        assert_eq!(counts(xai), (100, (0, None), 35, Some(15)));
        // DeepSeek; a 0 is as good as nothing.
        let deepseek = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 60,
            "completion_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120,
        });
        assert_eq!(counts(deepseek), (100, (60, None), 20, None));
        let nulls = json!({
            "prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": null,
            "completion_tokens_details": {"reasoning_tokens": null},
        });
        assert_eq!(counts(nulls), (1, (0, None), 2, None));
    }

    /// What cannot be read was taken for 0 tokens, so no limit was ever reached.
    #[test]
    fn c_12_8_counts_that_are_none_are_not_reported() {
        let read = |usage: Value| {
            Usage::parse(&usage, "m").map(|usage| (usage.input_tokens, usage.output_tokens))
        };
        for (input, output) in
            [(json!(7), json!(5)), (json!(7.0), json!("5")), (json!("7"), json!(5.0))]
        {
            let usage = json!({"prompt_tokens": input, "completion_tokens": output});
            assert_eq!(read(usage), Some((7, 5)));
        }
        assert_eq!(read(json!({"prompt_tokens": 7, "completion_tokens": null})), Some((7, 0)));
        for none in [json!(-1), json!(1.5), json!("many"), json!(1e300), json!([1])] {
            assert_eq!(read(json!({"prompt_tokens": none})), None);
            assert_eq!(read(json!({"prompt_tokens": 7, "completion_tokens": none})), None);
        }
        for usage in [json!({}), json!(null), json!({"prompt_tokens": null}), json!({"cost": 1})] {
            assert_eq!(read(usage), None);
        }
    }

    #[test]
    fn sums_of_usage_keep_what_is_known() {
        let usage = |written, cost_usd| Usage {
            input_tokens: 1,
            cache_write_tokens: written,
            cost_usd,
            ..Usage::default()
        };
        let mut sum = usage(None, Some(1.0));
        sum.add(&usage(Some(2), Some(0.5)));
        sum.add(&usage(None, Some(0.0)));
        assert_eq!((sum.input_tokens, sum.cache_write_tokens), (3, Some(2)));
        assert_eq!((sum.reasoning_tokens, sum.cost_usd), (None, Some(1.5)));
        sum.add(&usage(None, None));
        assert_eq!(sum.cost_usd, None);
    }
}
