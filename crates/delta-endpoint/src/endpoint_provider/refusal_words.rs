//! What an endpoint means by the words of a refusal: one table of the vendors' words.
//!
//! Only the error's own members count, and of those not what the request contains too: many servers repeat the request.

use delta_words::is_throttling_status;
use serde_json::Value;

/// What an endpoint means, as far as its status does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause {
    /// The conversation does not become shorter.
    ContextLength,
    /// The conversation and the longest answer do not fit into the model's context together.
    SharedContext,
    /// The longest answer alone does not fit.
    AnswerLength,
    /// The account gets no credit meanwhile.
    Account,
    /// The account gets no more in its day, week or other period, which the endpoint may say when it ends.
    PeriodLimit,
    /// Another form has the model.
    OtherForm,
    /// There is no such model.
    Model,
    /// The server has nothing at the path of the request.
    Address,
    /// The server, or a proxy in front of it, takes fewer bytes.
    RequestBytes,
    /// The model wrote a call that the server could not read.
    FailedCall,
    /// The endpoint does not serve the place of the client.
    Region,
    /// A filter refuses the content of the request.
    Content,
    /// Too many requests or tokens for now.
    Throttled,
}

/// With which OpenAI and Groq refuse a request that alone exceeds what they allow in a minute.
const REQUEST_TOO_LARGE: &str = "request too large for";

/// The conversation is too long.
const CONTEXT_LENGTH: [&str; 39] = [
    "context_length_exceeded",
    "context_too_large",
    "context_exceeded",
    "context_window_exceeded",
    "model_max_prompt_tokens_exceeded",
    "exceed_context_size",
    "tokens_limit_reached",
    "prompt 超长",
    "输入长度超限",
    "输入内容过长",
    "maximum context",
    "maximum model length",
    "maximum sequence length",
    "max sequence length",
    "supported sequence length",
    "max input size",
    "max message tokens",
    "tokens must be reduced",
    "tokens, which is over the limit",
    "max_seq_len",
    "max_model_len",
    ">= n_ctx",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "exceeded model token limit",
    "exceeds max length",
    "exceeds maximum length",
    "exceeds the max length",
    "more than max tokens allowed",
    "range of input length should be",
    "`inputs` tokens + `max_new_tokens`",
    "`inputs` must have less than",
    "prompt is too long",
    "prompt too long",
    "conversation is too long",
    "conversation too long",
    "input is too long",
    "reduce the length",
    REQUEST_TOO_LARGE,
];

/// What may be too long. The names alone are also in what else a message is about.
const CONTEXT_NAMES: [&str; 13] = [
    "context length",
    "context window",
    "context size",
    "context limit",
    "limit for context",
    "input token count",
    "prompt token count",
    "input length",
    "prompt length",
    "input tokens",
    "prompt tokens",
    "request requires",
    "max tokens of",
];

/// What says that it is.
const EXCESS: [&str; 13] = [
    "exceed",
    "too long",
    "too large",
    "too many",
    "supports at most",
    "supports up to",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "maximum",
    "overflow",
    " fit",
];

/// The longest answer is a part of what is too long.
const ANSWER_LENGTH: [&str; 7] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "output tokens",
    "in the completion",
    "in the output",
];

/// The other causes, the first one that applies.
const CAUSES: [(RefusalCause, &[&str]); 9] = [
    (
        RefusalCause::Account,
        &[
            "insufficient_quota",
            "exceeded_current_quota",
            "billing_error",
            "billing_hard_limit",
            "billing_not_active",
            "usage_not_included",
            "credit balance is too low",
            "insufficient balance",
            "insufficient_balance",
            "insufficient account balance",
            "balance is insufficient",
            "balance not enough",
            "balance is not enough",
            "insufficient credit",
            "insufficient_credit",
            "insufficient funds",
            "insufficient_funds",
            "more credits",
            "credits are depleted",
            "used all available credits",
            "doesn't have any credits",
            "exceeded your monthly included credits",
            "credit limit exceeded",
            "key limit exceeded",
            "spending limit",
            "spend limit",
            "your specified api usage limits",
            "you will regain access",
            "out of extra usage",
            "daily request limit",
            "budget_exceeded",
            "freetieronly",
            "insufficient_user_quota",
            // In a message of Google, of a model that is not in the free tier.
            "limit: 0,",
            "arrearage",
            "accountoverdue",
            "余额不足",
            "额度不足",
            "额度已用尽",
            "欠费",
        ],
    ),
    (RefusalCause::OtherForm, &["only supported in v1/responses"]),
    (
        RefusalCause::Model,
        &[
            "model_not_found",
            "not_found_error",
            "model_decommissioned",
            "has been decommissioned",
            "is not a valid model id",
        ],
    ),
    (
        RefusalCause::Address,
        &[
            // LM Studio, with status 200.
            "unexpected endpoint or method",
            "invalid url (post",
            "unknown_url",
            "unknown request url",
            "requested endpoint was not found",
            "route not found",
        ],
    ),
    (
        RefusalCause::RequestBytes,
        &[
            "request_too_large",
            "request entity too large",
            "payload too large",
            "request body size",
        ],
    ),
    (RefusalCause::FailedCall, &["tool_use_failed"]),
    (
        RefusalCause::Region,
        &[
            "unsupported_country",
            "country, region",
            "your country",
            "your region",
            "location is not supported",
        ],
    ),
    (
        RefusalCause::Content,
        &["was flagged", "content_filter", "content_policy", "content policy", "moderation"],
    ),
    (
        RefusalCause::Throttled,
        &[
            "rate limit",
            "rate_limit",
            "ratelimit",
            "throttl",
            "too many requests",
            "wait before",
            "per minute",
            "tokens per min",
            "overloaded",
            "capacity_exceeded",
            "capacity exceeded",
            "at capacity",
        ],
    ),
];

/// What says that the limit of a period is used up, if a period or the use is named too.
const PERIODS: [&str; 11] = [
    "daily",
    "weekly",
    "monthly",
    "per day",
    "per-day",
    "per week",
    "per month",
    "/ day",
    "/ month",
    "usage limit",
    "usage_limit",
];
const PERIOD_LIMITS: [&str; 4] = ["limit", "quota", "allocation", "allowance"];

/// A limit that is renewed soon is named too: waiting helps.
const SHORT_PERIODS: [&str; 5] = ["per min", "/min", "per second", "rpm", "tpm"];

/// The codes of Zhipu for a full context and for an account without money.
const CONTEXT_LENGTH_CODE: &str = "1261";
const ACCOUNT_CODE: &str = "1113";

impl RefusalCause {
    /// The cause of an error that came with `status`, a success if it is the response itself.
    pub fn of(status: u16, words: &ErrorWords) -> Option<Self> {
        if let Some(cause) = Self::of_length(status, words) {
            return Some(cause);
        }
        if words.codes.iter().any(|code| code == ACCOUNT_CODE) {
            return Some(Self::Account);
        }
        let mut plausible = CAUSES.iter().filter(|(cause, _)| cause.is_plausible_with(status));
        let named = plausible.find(|(_, phrases)| words.contains_any(phrases));
        let is_unnamed = named.is_none_or(|(cause, _)| *cause == Self::Throttled);
        if is_unnamed && matches!(status, 200 | 402 | 403 | 429) && words.name_used_up_period() {
            return Some(Self::PeriodLimit);
        }
        if named.is_none() && status == 413 {
            return Some(Self::RequestBytes);
        }
        named.map(|(cause, _)| *cause)
    }

    /// Whether words about it mean it with this status. Elsewhere the status says more: a gateway reports so a model or a route
    /// whose server is away for now.
    fn is_plausible_with(self, status: u16) -> bool {
        match self {
            Self::Model => matches!(status, 200 | 400 | 403 | 404 | 410 | 422),
            Self::Address => matches!(status, 200 | 400 | 404 | 405 | 410 | 422),
            Self::RequestBytes => matches!(status, 200 | 400 | 413 | 422),
            _ => true,
        }
    }

    fn of_length(status: u16, words: &ErrorWords) -> Option<Self> {
        // "Too many tokens" is what throttles there.
        let is_throttled = is_throttling_status(status)
            || CAUSES
                .iter()
                .any(|(cause, phrases)| *cause == Self::Throttled && words.contains_any(phrases));
        let is_too_long = match status {
            _ if words.contains_any(&[REQUEST_TOO_LARGE]) => true,
            200 | 400 | 413 | 422 | 500..=599 => {
                !is_throttled
                    && (words.contains_any(&CONTEXT_LENGTH)
                        || words.codes.iter().any(|code| code == CONTEXT_LENGTH_CODE)
                        || words.contains_any(&CONTEXT_NAMES) && words.contains_any(&EXCESS))
            }
            _ => false,
        };
        let has_answer = words.contains_any(&ANSWER_LENGTH);
        is_too_long.then_some(if has_answer && words.contains_any(&["is too large"]) {
            Self::AnswerLength
        } else if has_answer {
            Self::SharedContext
        } else {
            Self::ContextLength
        })
    }

    /// Whether every further attempt of the same request would fail too.
    pub fn is_lasting(self) -> bool {
        match self {
            Self::ContextLength
            | Self::SharedContext
            | Self::AnswerLength
            | Self::Account
            | Self::PeriodLimit
            | Self::OtherForm
            | Self::Model
            | Self::Address
            | Self::RequestBytes => true,
            Self::FailedCall | Self::Region | Self::Content | Self::Throttled => false,
        }
    }
}

/// The words of an error, in lower case.
#[derive(Debug, Default)]
pub struct ErrorWords {
    /// Its codes and types.
    codes: Vec<String>,
    /// Its codes, types and messages, a line each.
    text: String,
}

/// The members with a code or a type of an error.
const CODE_MEMBERS: [&str; 8] =
    ["code", "type", "status", "reason", "error_type", "errorcode", "__type", "param"];
/// The members with its words, or with the error itself.
const TEXT_MEMBERS: [&str; 16] = [
    "message",
    "msg",
    "error_msg",
    "status_msg",
    "detail",
    "details",
    "error",
    "errors",
    "fault",
    "faultstring",
    "title",
    "description",
    "metadata",
    "raw",
    "innererror",
    "base_resp",
];

impl ErrorWords {
    /// The words of the response `body`, as far as they are not in the request `sent`.
    pub fn new(body: &str, sent: &str) -> Self {
        let mut words = Self::default();
        if let Ok(body) = serde_json::from_str(body) {
            words.add(&body);
        }
        // No known form of an error.
        if words.text.is_empty() {
            words.text = body.to_lowercase();
        }
        if let Ok(sent) = serde_json::from_str(sent) {
            words.remove_lines_of(&sent);
        }
        words
    }

    /// The codes, the types and the messages.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn contains_any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.text.contains(phrase))
    }

    fn name_used_up_period(&self) -> bool {
        self.contains_any(&PERIODS)
            && self.contains_any(&PERIOD_LIMITS)
            && !self.contains_any(&SHORT_PERIODS)
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(members) => {
                for (name, value) in members {
                    let name = name.to_lowercase();
                    if let (true, Some(code)) = (CODE_MEMBERS.contains(&&*name), value.as_str()) {
                        self.codes.push(code.to_lowercase());
                        self.add_line(code);
                    } else if TEXT_MEMBERS.contains(&&*name) {
                        self.add(value);
                    }
                }
            }
            Value::String(text) => match serde_json::from_str(text) {
                // Of the provider that a gateway asked.
                Ok(inner @ (Value::Object(_) | Value::Array(_))) => self.add(&inner),
                _ => self.add_line(text),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_line(&mut self, text: &str) {
        self.text += &text.to_lowercase();
        self.text.push('\n');
    }

    /// Removes each line of a text of the request. A short one may be in any message.
    fn remove_lines_of(&mut self, request: &Value) {
        match request {
            Value::String(text) => {
                let lines = text.lines().map(|line| line.trim().to_lowercase());
                for line in lines.filter(|line| line.len() >= MIN_REPEATED_BYTES) {
                    if self.text.contains(&line) {
                        self.text = self.text.replace(&line, "");
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.remove_lines_of(item)),
            Value::Object(members) => {
                members.values().for_each(|value| self.remove_lines_of(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The length from which a line of the request in an error is a repetition.
const MIN_REPEATED_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_37_3_what_no_attempt_changes_is_recognised_in_the_words_of_each_vendor() {
        use RefusalCause::{Account, ContextLength, SharedContext, Throttled};
        let check = |status, words: &str, expected| {
            assert_eq!(
                RefusalCause::of(status, &ErrorWords::new(words, "")),
                expected,
                "{status} {words}"
            );
        };
        for (status, words) in [
            (
                400,
                "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            ),
            (400, "Range of input length should be [1, 129024]"),
            (
                400,
                "Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)",
            ),
            (400, "Prompt exceeds max length"),
            (400, "prompt token count of 135000 exceeds the limit of 128000"),
            (
                413,
                "Request too large for model `m` on tokens per minute (TPM): Limit 8000, Requested 21000",
            ),
            (
                429,
                "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 45000.",
            ),
            (400, "too many tokens: size limit exceeded by 11326 tokens."),
            (500, "Context size has been exceeded."),
            (
                400,
                "The decoder prompt (length 40000) is longer than the maximum model length of 32768",
            ),
            (
                400,
                "The input (65790 tokens) is longer than the model's context length (32768 tokens).",
            ),
            (400, "Input is too long for requested model."),
            (
                400,
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            ),
            (200, "Your input exceeds the context window of this model."),
        ] {
            check(status, words, Some(ContextLength));
        }
        for (status, words) in [
            (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32769."),
            (400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"),
        ] {
            check(status, words, Some(SharedContext));
        }
        for (status, words) in [
            (429, "{\"error\":{\"type\":\"exceeded_current_quota_error\"}}"),
            (
                429,
                "{\"error\":{\"code\":\"1113\",\"message\":\"Insufficient balance or no resource package\"}}",
            ),
            (400, "Your credit balance is too low to access the Anthropic API."),
            (402, "Insufficient Balance"),
            (402, "This request requires more credits, or fewer max_tokens."),
            (200, "{\"error\":{\"code\":\"insufficient_quota\"}}"),
            (429, "has either used all available credits or reached its monthly spending limit"),
            (503, "Arrearage: please make sure your account is in good standing"),
        ] {
            check(status, words, Some(Account));
        }
        for (status, words) in [
            (429, "Too many tokens, please wait before trying again."),
            (503, "Too many tokens, please wait before trying again."),
            (429, "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000"),
        ] {
            check(status, words, Some(Throttled));
        }
        for (status, words) in [
            (429, "You exceeded your current quota. Please retry in 20s."),
            (500, "{\"error\":{\"message\":\"no\",\"input\":\"the maximum context length\"}}"),
            (401, "maximum context length"),
            (500, "Internal server error"),
        ] {
            check(status, words, None);
        }
    }
}
