//! The questions of a run whose answers are hidden.

use crate::event::{Event, Payload};
use std::collections::BTreeSet;

/// The sensitive questions in events, and their answers.
#[derive(Debug, Clone, Default)]
pub struct SensitiveQuestions {
    /// The calls that asked.
    pub call_ids: BTreeSet<String>,
    /// The answers so far.
    pub answers: Vec<String>,
}

impl SensitiveQuestions {
    /// Takes the question or the answer of an event, if it has one.
    pub fn apply(&mut self, event: &Event) {
        match &event.payload {
            Payload::HumanInputRequest(question) if question.sensitive => {
                self.call_ids.insert(question.call_id.clone());
            }
            Payload::HumanInputReceived { call_id, response, .. }
                if self.call_ids.contains(call_id) =>
            {
                self.answers.push(response.clone());
            }
            _ => {}
        }
    }
}
