//! What delta does about answers that are not what was asked for: `llm.on_length` and its neighbours.

use delta_yaml::yaml::MappingFields;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};

/// What happens to an answer that was cut off at its token limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLength {
    /// The run is FAILED; the text is kept.
    #[default]
    Fail,
    /// The answer counts as if it were whole.
    Accept,
    /// The LLM is asked to continue where the text ended.
    Continue,
}

/// What happens after an answer with neither text nor calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnEmpty {
    /// The LLM gets one reminder; after a second empty answer in a row the run is FAILED.
    #[default]
    Remind,
    /// The same request is sent once more; then the run is FAILED.
    Retry,
    /// The run is FAILED.
    Fail,
}

/// What happens to an answer that is a call written as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TextCalls {
    /// The text is the answer; a warning names it.
    #[default]
    Note,
    /// The LLM is asked once to make the call; then the run is FAILED.
    Retry,
    /// The run is FAILED; the text is kept.
    Fail,
}

/// What delta does about answers that are not what was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerPolicy {
    /// About an answer that was cut off at its token limit.
    pub on_length: OnLength,
    /// About an answer with neither text nor calls.
    pub on_empty: OnEmpty,
    /// About an answer that is a call written as text.
    pub text_calls: TextCalls,
}

/// The key `on_length`.
pub(super) const ON_LENGTH_KEY: KeySchema = KeySchema::with_default(
    "on_length",
    ValueShape::Choice(&["fail", "accept", "continue"]),
    DefaultValue::Text("fail"),
    "What happens to an answer that is cut off at the token limit: the run fails with the text kept, the answer counts, or the LLM continues.",
);

/// The key `on_empty`.
pub(super) const ON_EMPTY_KEY: KeySchema = KeySchema::with_default(
    "on_empty",
    ValueShape::Choice(&["remind", "retry", "fail"]),
    DefaultValue::Text("remind"),
    "What happens after an answer with neither text nor calls: the LLM gets one reminder, the same request is sent once more, or the run fails.",
);

/// The key `text_calls`.
pub(super) const TEXT_CALLS_KEY: KeySchema = KeySchema::with_default(
    "text_calls",
    ValueShape::Choice(&["note", "retry", "fail"]),
    DefaultValue::Text("note"),
    "What happens to an answer that is a call of an offered tool, written as text: a warning names it, the LLM is asked once to make the call, or the run fails.",
);

impl AnswerPolicy {
    pub(super) fn read(fields: MappingFields<'_>) -> Self {
        Self {
            on_length: match fields.text("on_length") {
                Some("accept") => OnLength::Accept,
                Some("continue") => OnLength::Continue,
                _ => OnLength::Fail,
            },
            on_empty: match fields.text("on_empty") {
                Some("retry") => OnEmpty::Retry,
                Some("fail") => OnEmpty::Fail,
                _ => OnEmpty::Remind,
            },
            text_calls: match fields.text("text_calls") {
                Some("retry") => TextCalls::Retry,
                Some("fail") => TextCalls::Fail,
                _ => TextCalls::Note,
            },
        }
    }
}
