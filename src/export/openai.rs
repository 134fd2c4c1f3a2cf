//! A run as a plain conversation in the form of Chat Completions, as it is used for fine-tuning: what the LLM saw,
//! whole.
//!
//! The system messages and the tools are those of the last request; of the conversation nothing is left out, whatever
//! the budgets of the requests did.

use super::subject::{Subject, Surroundings};
use serde_json::{Value as Json, json};

/// The run as a JSON object on a line; `around` is what the LLM saw beside the conversation.
pub fn line(subject: &Subject, around: Surroundings) -> String {
    let mut messages = around.system;
    let said = subject.state.conversation.messages(None);
    // Each is JSON already, as it was sent.
    messages.extend(said.iter().filter_map(|text| serde_json::from_str::<Json>(text).ok()));
    let mut line = json!({"messages": messages});
    if !around.tools.is_empty() {
        line["tools"] = Json::Array(around.tools);
    }
    format!("{line}\n")
}
