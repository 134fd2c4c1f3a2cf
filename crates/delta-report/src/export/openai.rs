//! Converts a run to a chat transcript in the form of Chat Completions, as used for fine-tuning.
//!
//! The system messages and the tools are taken from the last request. The conversation is complete, including what the
//! requests left out to fit their context budget.

use super::exported_run::{ExportedRun, SystemContext};
use serde_json::{Value as Json, json};

/// Renders the run as a line of JSON.
pub fn render_chat_transcript(run: &ExportedRun, context: SystemContext) -> String {
    let mut messages = context.system;
    // Each message of the conversation is JSON text, with what only one provider understands.
    let conversation = run.state.conversation.messages(None);
    messages.extend(conversation.iter().filter_map(|text| {
        let mut message: serde_json::Map<String, Json> = serde_json::from_str(text).ok()?;
        message.shift_remove("native");
        Some(Json::Object(message))
    }));
    let mut transcript = json!({"messages": messages});
    if !context.tools.is_empty() {
        transcript["tools"] = Json::Array(context.tools);
    }
    format!("{transcript}\n")
}
