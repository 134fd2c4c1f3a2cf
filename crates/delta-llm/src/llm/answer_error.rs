//! Why a response that arrived whole cannot be read as a reply.

use super::html_page::describe_html;
use super::reply_assembler::StreamError;
use delta_http::retry::RetryDecision;
use delta_words::{NO_MESSAGE, Usage};
use serde_json::Value;

/// The most characters shown of a body without a message.
const MAX_EXCERPT_CHARS: usize = 500;

/// What to do about a conversation that is too long.
pub const CONTEXT_LENGTH_HINT: &str = "the conversation exceeds the model's context: in context.yaml, lower `max_iterations` of the journal, \
     or the budgets `max_tokens` and `total_max_tokens`";

/// What to do about a conversation that does not fit there together with the longest answer.
pub const SHARED_CONTEXT_HINT: &str = "the conversation and the longest answer together exceed the model's context: lower `llm.max_tokens`, or in \
     context.yaml `max_iterations` of the journal, or the budgets `max_tokens` and `total_max_tokens`";

/// What to do about a longest answer that alone does not fit there.
pub const ANSWER_LENGTH_HINT: &str =
    "the longest answer exceeds what the model's context has left for it: lower `llm.max_tokens`";

/// Why a response that arrived whole cannot be read as a reply.
#[derive(Debug)]
pub enum AnswerError {
    /// The body is not JSON, or not the JSON of a response; the text is the message.
    InvalidResponse(String),
    /// The body is an HTML page; the text is the message.
    Page(String),
    /// The body is JSON without an answer, such as one in another form; the text says what it lacks.
    NoAnswer(String, Value),
    /// The body is an error of the endpoint.
    Reported(Value),
    /// The response is valid, but no run can continue with it.
    Unusable(Box<UnusableAnswer>),
}

/// A complete answer with which no run can continue. It was paid for.
#[derive(Debug)]
pub struct UnusableAnswer {
    /// What it is.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
    /// The tokens, if the endpoint reported them.
    pub usage: Option<Usage>,
    /// Whether another answer may be usable.
    pub retry: RetryDecision,
    /// The body.
    pub response: Value,
}

impl From<StreamError> for AnswerError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NotJson(text) | StreamError::EarlyText(text) => Self::not_json(&text),
            StreamError::Reported(error) => Self::Reported(error),
            StreamError::NoAnswer(event) => Self::NoAnswer(NO_MESSAGE.to_owned(), event),
        }
    }
}

impl AnswerError {
    /// The error for a body `text` that is not JSON.
    pub fn not_json(text: &str) -> Self {
        let not_json = |excerpt| format!("the endpoint's response is not JSON: {excerpt}");
        match describe_html(text) {
            Some(page) => Self::Page(not_json(page)),
            None if text.trim().is_empty() => {
                Self::InvalidResponse("the endpoint's response is empty".to_owned())
            }
            None => Self::InvalidResponse(not_json(body_excerpt(text))),
        }
    }
}

/// What has an answer, or its tokens, in any form.
const ANSWER_MEMBERS: [&str; 6] =
    ["choices", "candidates", "content", "output", "message", "response"];
/// What has the words of an error, or the request that it repeats.
const ERROR_MEMBERS: [&str; 4] = ["error", "errors", "detail", "details"];
const USAGE_MEMBERS: [&str; 2] = ["usage", "usageMetadata"];

/// Whether a body has a piece of an answer or its tokens, and is not an error alone. Some gateways wrap what they pass on.
pub fn has_answer_piece(body: &Value) -> bool {
    match body {
        Value::Array(items) => items.iter().any(has_answer_piece),
        Value::Object(members) => members.iter().any(|(name, member)| {
            let name = name.as_str();
            !ERROR_MEMBERS.contains(&name)
                && (ANSWER_MEMBERS.contains(&name) && is_filled(name, member)
                    || USAGE_MEMBERS.contains(&name) && has_count(member)
                    || has_answer_piece(member))
        }),
        _ => false,
    }
}

fn is_filled(name: &str, value: &Value) -> bool {
    match value {
        // A message alone is what errors have.
        Value::String(text) => name != "message" && !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        // Of a response, its members decide.
        Value::Object(members) => name != "response" && !members.is_empty(),
        _ => false,
    }
}

fn has_count(usage: &Value) -> bool {
    let counts = usage.as_object().into_iter().flat_map(serde_json::Map::values);
    counts.into_iter().any(|count| count.as_f64() > Some(0.0))
}

/// The first characters of a body without a message; the title of an HTML page.
pub fn body_excerpt(text: &str) -> String {
    if let Some(description) = describe_html(text) {
        return description;
    }
    text.trim().chars().take(MAX_EXCERPT_CHARS).collect()
}
