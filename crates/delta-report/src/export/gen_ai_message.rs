//! Converts messages to the form of OpenTelemetry's semantic conventions: a role and parts.

use delta_base::json::ExactJson;
use delta_run::conversation::history::{Iteration, RunHistory, UserTurn};
use delta_run::event::image_file;
use delta_words::message_text;
use serde_json::{Value as Json, json};

pub fn user_input_messages(history: &RunHistory<'_>) -> Json {
    let messages = history.user_messages();
    messages
        .map(|message| {
            let UserTurn { content, images } = message.value;
            let text = (!content.is_empty() || images.is_empty()).then(|| text_part(content));
            let images =
                images.iter().map(|image| image_uri_part(&image.media_type, &image.reference()));
            let parts: Vec<Json> = text.into_iter().chain(images).collect();
            json!({"role": "user", "parts": parts})
        })
        .collect()
}

pub fn run_result_messages(result: &ExactJson) -> Json {
    json!([{"role": "assistant", "parts": [text_part(&result.text())], "finish_reason": "stop"}])
}

/// The LLM's answer in an iteration.
pub fn answer_messages(iteration: &Iteration<'_>, reasoning: Option<&str>) -> Json {
    let thought = iteration.thought.value;
    let mut parts = Vec::new();
    parts.extend(reasoning.map(|text| json!({"type": "reasoning", "content": text})));
    parts.extend((!thought.content.is_empty()).then(|| text_part(&thought.content)));
    parts.extend(iteration.calls.iter().map(|call| {
        let function = &call.tool_call.function;
        tool_call_part(&call.id, &function.name, function.arguments.as_str())
    }));
    // The conventions write `tool_call` where Chat Completions writes `tool_calls`.
    let reason = match thought.finish_reason.as_deref() {
        Some("tool_calls") => "tool_call",
        Some(reason) => reason,
        None if thought.tool_calls.is_empty() => "stop",
        None => "tool_call",
    };
    json!([{"role": "assistant", "parts": parts, "finish_reason": reason}])
}

pub fn request_messages(request: &Json) -> Json {
    let messages = request.get("messages").and_then(Json::as_array);
    messages.into_iter().flatten().map(convert_message).collect()
}

/// The tools of a request; `None` when it has none.
pub fn request_tool_definitions(request: &Json) -> Option<Json> {
    let tools = request.get("tools")?.as_array()?;
    Some(tools.iter().map(convert_tool).collect())
}

fn convert_tool(tool: &Json) -> Json {
    let mut converted = json!({"type": "function"});
    for name in ["name", "description", "parameters"] {
        if let Some(value) = tool.get("function").and_then(|function| function.get(name)) {
            converted[name] = value.clone();
        }
    }
    converted
}

fn convert_message(message: &Json) -> Json {
    let role = message.get("role").and_then(Json::as_str).unwrap_or_default();
    let text = message_text(message);
    if role == "tool" {
        let part =
            json!({"type": "tool_call_response", "id": message["tool_call_id"], "response": text});
        let parts: Vec<Json> = [part].into_iter().chain(message_images(message)).collect();
        return json!({"role": role, "parts": parts});
    }
    let mut parts = Vec::new();
    let reasoning = message.get("reasoning_content").and_then(Json::as_str);
    parts.extend(reasoning.map(|text| json!({"type": "reasoning", "content": text})));
    parts.extend((!text.is_empty()).then(|| text_part(&text)));
    parts.extend(message_images(message));
    let calls = message.get("tool_calls").and_then(Json::as_array);
    parts.extend(calls.into_iter().flatten().map(|call| {
        let text = |path: &str| call.pointer(path).and_then(Json::as_str).unwrap_or_default();
        tool_call_part(text("/id"), text("/function/name"), text("/function/arguments"))
    }));
    json!({"role": role, "parts": parts})
}

fn tool_call_part(id: &str, name: &str, arguments: &str) -> Json {
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Json::from(arguments));
    json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments})
}

/// The images of a message, by reference.
fn message_images(message: &Json) -> impl Iterator<Item = Json> {
    let parts = message["content"].as_array().into_iter().flatten();
    let urls = parts.filter_map(|part| {
        part.pointer("/image_url/url").or_else(|| part.pointer("/file/file_data"))?.as_str()
    });
    urls.filter_map(|url| Some(image_uri_part(image_file::reference_media_type(url)?, url)))
}

fn image_uri_part(media_type: &str, uri: &str) -> Json {
    let modality = if media_type.starts_with("image/") { "image" } else { "document" };
    json!({"type": "uri", "modality": modality, "mime_type": media_type, "uri": uri})
}

fn text_part(text: &str) -> Json {
    json!({"type": "text", "content": text})
}
