//! The events of a run as updates of its session.

use delta_base::terminal_text::strip_terminal_controls;
use delta_run::event::image_file::{self, ImageFile};
use delta_run::event::{Event, Payload};
use delta_run::state::{ASK_HUMAN_TOOL, FINISH_TOOL};
use serde_json::{Value as Json, json};
use std::path::Path;

/// A piece of a message, as `agent_message_chunk` and its like have it.
pub fn message_chunk(kind: &str, text: &str) -> Json {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}

/// The updates for an event, except an answer. What the user of the editor said is only for one that loads the session.
pub fn event_updates(event: &Event, run_dir: &Path, is_replay: bool) -> Vec<Json> {
    match &event.payload {
        Payload::UserMessage { content, images, source } if is_replay || source.is_some() => {
            let mut updates = vec![message_chunk("user_message_chunk", content)];
            updates.extend(images.iter().filter_map(|image| image_chunk(run_dir, image)));
            updates
        }
        Payload::HumanInputReceived { response, .. } if is_replay => {
            vec![message_chunk("user_message_chunk", response)]
        }
        Payload::HumanInputRequest(question) if is_replay => {
            vec![message_chunk("agent_message_chunk", &question.prompt)]
        }
        Payload::ApprovalRequest(request) => vec![json!({
            // A staged call is running.
            "sessionUpdate": if request.stage.is_some() { "tool_call_update" } else { "tool_call" },
            "toolCallId": request.call_id,
            "title": tool_title(&request.tool_name),
            "kind": "execute",
            "status": "pending",
            "rawInput": request.tool_args,
        })],
        Payload::ActionRequest(request) if !is_builtin(&request.tool_name) => {
            let is_asked = request.approval.is_some();
            vec![json!({
                // A call that was asked about has its first update.
                "sessionUpdate": if is_asked { "tool_call_update" } else { "tool_call" },
                "toolCallId": request.call_id,
                "title": tool_title(&request.tool_name),
                "kind": if request.argv.is_some() { "execute" } else { "other" },
                "status": "in_progress",
                "rawInput": request.tool_args,
            })]
        }
        Payload::ActionResult(result) if !is_builtin(&result.tool_name) => {
            let text = &result.observation_content;
            vec![json!({
                "sessionUpdate": "tool_call_update",
                "toolCallId": result.call_id,
                "status": if result.exit_code == Some(0) { "completed" } else { "failed" },
                "content": [{"type": "content", "content": {"type": "text", "text": text}}],
            })]
        }
        _ => Vec::new(),
    }
}

/// An image of the user's message; `None` if its file cannot be read.
fn image_chunk(run_dir: &Path, image: &ImageFile) -> Option<Json> {
    if image.size.is_none() {
        return Some(message_chunk("user_message_chunk", &image.to_string()));
    }
    let url = image_file::read_data_url(run_dir, &image.reference()).ok()??;
    let (_, data) = url.split_once(";base64,")?;
    let content = json!({"type": "image", "mimeType": image.media_type, "data": data});
    Some(json!({"sessionUpdate": "user_message_chunk", "content": content}))
}

/// The output so far of a call that runs.
pub fn output_update(call_id: &str, output: &str) -> Json {
    json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": call_id,
        "content": [{"type": "content", "content": {"type": "text", "text": output}}],
    })
}

/// Whether a tool is one that the session shows otherwise: its result or its question.
fn is_builtin(tool: &str) -> bool {
    tool == FINISH_TOOL || tool == ASK_HUMAN_TOOL
}

fn tool_title(tool: &str) -> String {
    strip_terminal_controls(tool)
}
