//! What the `finish_reason` of an answer means, in the words of Chat Completions, of vendors that have more, and of other forms.

use super::super::answer_error::{CONTEXT_LENGTH_HINT, UnusableAnswer};
use delta_http::retry::RetryDecision;
use serde_json::Value;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerEnd {
    /// With its last word.
    Complete,
    /// With a call.
    Call,
    /// With a refusal of the model.
    Refused,
    /// With a content filter.
    Filtered,
    /// With its longest length.
    TokenLimit,
    /// With the end of the model's context.
    ContextFull,
    /// With a failure, after which another attempt may end well.
    BrokenOff,
    /// Early, for another reason.
    Incomplete,
    /// With a word that delta does not know.
    Unknown,
}

/// The endings that runs with rules before 3 did not know.
const LATER_ENDINGS: [(&str, AnswerEnd); 33] = [
    // OpenRouter, vLLM and DeepSeek.
    ("error", AnswerEnd::BrokenOff),
    ("abort", AnswerEnd::BrokenOff),
    ("insufficient_system_resource", AnswerEnd::BrokenOff),
    ("repetition", AnswerEnd::Incomplete),
    // GLM.
    ("network_error", AnswerEnd::BrokenOff),
    ("sensitive", AnswerEnd::Filtered),
    ("model_context_window_exceeded", AnswerEnd::ContextFull),
    // Gemini, also at its address for Chat Completions.
    ("function_call_filter", AnswerEnd::BrokenOff),
    ("malformed_function_call", AnswerEnd::BrokenOff),
    ("malformed_response", AnswerEnd::BrokenOff),
    ("unexpected_tool_call", AnswerEnd::BrokenOff),
    ("language", AnswerEnd::Refused),
    ("blocklist", AnswerEnd::Filtered),
    ("prohibited_content", AnswerEnd::Filtered),
    ("spii", AnswerEnd::Filtered),
    ("model_armor", AnswerEnd::Filtered),
    ("escalation", AnswerEnd::Filtered),
    ("image_safety", AnswerEnd::Filtered),
    ("image_prohibited_content", AnswerEnd::Filtered),
    ("image_recitation", AnswerEnd::Filtered),
    ("continuation", AnswerEnd::Incomplete),
    ("too_many_tool_calls", AnswerEnd::Incomplete),
    ("missing_thought_signature", AnswerEnd::Incomplete),
    // Bedrock.
    ("guardrail_intervened", AnswerEnd::Filtered),
    ("content_filtered", AnswerEnd::Filtered),
    // Cohere.
    ("error_toxic", AnswerEnd::Filtered),
    ("error_limit", AnswerEnd::ContextFull),
    ("user_cancel", AnswerEnd::Incomplete),
    // watsonx.
    ("token_limit", AnswerEnd::TokenLimit),
    ("time_limit", AnswerEnd::Incomplete),
    // Names of the setting, with which servers of other forms name its limit.
    ("max_output_tokens", AnswerEnd::TokenLimit),
    ("max_new_tokens", AnswerEnd::TokenLimit),
    ("max_completion_tokens", AnswerEnd::TokenLimit),
];

impl AnswerEnd {
    /// What `finish_reason` means.
    pub fn parse(finish_reason: Option<&str>) -> Self {
        // Gemini's address for Chat Completions adds a detail: `content_filter: PROHIBITED_CONTENT`.
        let word = finish_reason.and_then(|reason| reason.split(':').next()).map(str::trim);
        let calls = ["tool_calls", "function_call", "tool_use"];
        if word.is_some_and(|word| calls.iter().any(|call| word.eq_ignore_ascii_case(call))) {
            return Self::Call;
        }
        let earlier = Self::parse_earlier(word);
        if earlier != Self::Unknown {
            return earlier;
        }
        let later = LATER_ENDINGS
            .iter()
            .find(|(ending, _)| word.is_some_and(|word| word.eq_ignore_ascii_case(ending)));
        later.map_or(Self::Unknown, |(_, end)| *end)
    }

    /// What `finish_reason` means in a run with rules before 3.
    pub fn parse_earlier(finish_reason: Option<&str>) -> Self {
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

/// The error of an answer that ended with `reason`, the value of `key`, if no run can continue with it. Its usage and its
/// response are the caller's to add.
pub fn unusable_ending(key: &str, reason: &str, has_calls: bool) -> Option<UnusableAnswer> {
    let (message, hint, retry) = match AnswerEnd::parse(Some(reason)) {
        AnswerEnd::BrokenOff => {
            let message = format!("the answer ended with {key} `{reason}`");
            (message, None, RetryDecision::Backoff)
        }
        // Complete calls are used.
        AnswerEnd::ContextFull if !has_calls => {
            let message = format!(
                "the answer was cut off because it does not fit into the model's context ({key} `{reason}`)"
            );
            (message, Some(CONTEXT_LENGTH_HINT.to_owned()), RetryDecision::Never)
        }
        _ => return None,
    };
    Some(UnusableAnswer { message, hint, usage: None, retry, response: Value::Null })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_7_8_an_ending_is_known_with_its_detail_and_in_both_cases() {
        for (reason, end) in [
            ("stop", AnswerEnd::Complete),
            ("STOP", AnswerEnd::Complete),
            ("tool_calls", AnswerEnd::Call),
            ("content_filter: SPII", AnswerEnd::Filtered),
            ("PROHIBITED_CONTENT", AnswerEnd::Filtered),
            ("function_call_filter: MALFORMED_FUNCTION_CALL", AnswerEnd::BrokenOff),
            ("max_output_tokens", AnswerEnd::TokenLimit),
            ("weird", AnswerEnd::Unknown),
            ("weird: stop", AnswerEnd::Unknown),
        ] {
            assert_eq!(AnswerEnd::parse(Some(reason)), end, "{reason}");
        }
        assert_eq!(AnswerEnd::parse(None), AnswerEnd::Complete);
        assert_eq!(AnswerEnd::parse_earlier(Some("sensitive")), AnswerEnd::Unknown);
    }
}
