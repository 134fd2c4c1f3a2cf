//! Whether an answer counts. A withheld or truncated answer does not: it would make an unfinished task look successful, and
//! its calls are not what the LLM would have said in the end.

use delta_words::Reply;

/// The error type of an empty answer, which is worth another attempt.
pub const EMPTY_RESPONSE: &str = "empty_response";

/// What a `finish_reason` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnswerEnd {
    Complete,
    Refused,
    Filtered,
    TokenLimit,
    /// The answer is incomplete for another reason.
    Incomplete,
    Unknown,
}

impl AnswerEnd {
    /// Knows the words of Chat Completions, of vendors that have more, and of other forms.
    fn parse(finish_reason: Option<&str>) -> Self {
        let reason = finish_reason.unwrap_or_default().to_ascii_lowercase();
        match reason.as_str() {
            "" | "stop" | "tool_calls" | "function_call" | "end_turn" | "stop_sequence"
            | "tool_use" | "eos" | "eos_token" | "complete" => Self::Complete,
            "refusal" => Self::Refused,
            "content_filter" | "safety" | "recitation" => Self::Filtered,
            "length" | "max_tokens" | "model_length" => Self::TokenLimit,
            "incomplete" | "cancelled" => Self::Incomplete,
            _ => Self::Unknown,
        }
    }
}

/// Why a reply cannot be used, as error type and message.
pub fn reply_rejection(reply: &Reply) -> Option<(&'static str, String)> {
    let end = AnswerEnd::parse(reply.finish_reason.as_deref());
    let reason = reply.finish_reason.as_deref().unwrap_or_default();
    let has_calls = !reply.tool_calls.is_empty();
    let text = reply.content.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let refused = |words: &str| ("refusal", format!("the model refused: {words}"));
    Some(match (&reply.refusal, end, text) {
        (Some(refusal), ..) => refused(refusal),
        (None, AnswerEnd::Refused, Some(text)) => refused(text),
        (None, AnswerEnd::Refused, None) => ("refusal", "the model refused to answer".to_owned()),
        (None, AnswerEnd::Filtered, text) => {
            let action = if text.is_some() || has_calls { "cut off" } else { "withheld" };
            ("content_filter", format!("the endpoint's content filter {action} the answer"))
        }
        (None, AnswerEnd::Incomplete, _) => {
            ("llm", format!("the endpoint ended the answer early (finish_reason `{reason}`)"))
        }
        // A call that was cut off becomes an observation.
        _ if has_calls => return None,
        (None, AnswerEnd::TokenLimit, Some(_)) => (
            "length",
            format!(
                "the answer was cut off at the token limit (finish_reason `{reason}`); raise `llm.max_tokens`"
            ),
        ),
        (None, AnswerEnd::TokenLimit, None) => (
            "length",
            format!(
                "the token limit was reached before any answer (finish_reason `{reason}`); raise `llm.max_tokens`"
            ),
        ),
        (None, AnswerEnd::Complete | AnswerEnd::Unknown, None) => {
            (EMPTY_RESPONSE, "the LLM answered twice with neither text nor tool calls".to_owned())
        }
        (None, AnswerEnd::Complete | AnswerEnd::Unknown, Some(_)) => return None,
    })
}

/// A warning about an answer that counts although its `finish_reason` is unknown.
pub fn unknown_end_warning(reply: &Reply) -> Option<String> {
    let reason = reply.finish_reason.as_deref()?;
    (AnswerEnd::parse(Some(reason)) == AnswerEnd::Unknown).then(|| {
        format!(
            "the finish_reason `{reason}` of the answer is unknown; delta treats the answer as complete"
        )
    })
}
