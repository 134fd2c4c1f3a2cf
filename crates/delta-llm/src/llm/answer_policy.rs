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
    /// The LLM is asked to go on where the text ended.
    Continue,
}

/// What delta does about answers that are not what was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerPolicy {
    /// About an answer that was cut off at its token limit.
    pub on_length: OnLength,
}

/// The key `on_length`.
pub(super) const ON_LENGTH_KEY: KeySchema = KeySchema::with_default(
    "on_length",
    ValueShape::Choice(&["fail", "accept", "continue"]),
    DefaultValue::Text("fail"),
    "What happens to an answer that is cut off at the token limit: the run fails with the text kept, the answer counts, or the LLM goes on.",
);

impl AnswerPolicy {
    pub(super) fn read(fields: MappingFields<'_>) -> Self {
        Self {
            on_length: match fields.text("on_length") {
                Some("accept") => OnLength::Accept,
                Some("continue") => OnLength::Continue,
                _ => OnLength::Fail,
            },
        }
    }
}
