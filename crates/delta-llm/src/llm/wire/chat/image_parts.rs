//! The images and PDFs of a request in Chat Completions, where only a message of the user may have them.

use super::super::ImageReader;
use serde_json::{Value, json};

/// Puts the bytes of the images into the messages. The images of results follow all results of their answer in one message of the
/// user. Returns whether a message was changed.
///
/// # Errors
/// An image cannot be read.
pub fn send_images(messages: &mut Vec<Value>, reader: ImageReader<'_>) -> Result<bool, String> {
    let mut is_changed = false;
    let mut sent = Vec::with_capacity(messages.len() + 1);
    let mut of_results = Vec::new();
    for mut message in std::mem::take(messages) {
        for part in message.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
            for member in ["/image_url/url", "/file/file_data"] {
                if let Some(Value::String(url)) = part.pointer_mut(member) {
                    is_changed |= reader.resolve(url)?;
                }
            }
        }
        if message["role"] == "tool" {
            is_changed |= take_result_images(&mut message, &mut of_results);
        } else {
            sent.extend(user_message(&mut of_results));
        }
        sent.push(message);
    }
    sent.extend(user_message(&mut of_results));
    *messages = sent;
    Ok(is_changed)
}

/// Moves the images of a result to `moved`, each after a text that names the call; what remains is a text.
fn take_result_images(message: &mut Value, moved: &mut Vec<Value>) -> bool {
    let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) else {
        return false;
    };
    let (images, texts): (Vec<Value>, Vec<Value>) =
        std::mem::take(parts).into_iter().partition(|part| part.get("image_url").is_some());
    let text: String = texts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    let call = message["tool_call_id"].as_str().unwrap_or_default();
    let label = format!("[image of {call}]");
    for image in images {
        moved.extend([json!({"type": "text", "text": label}), image]);
    }
    message["content"] = Value::String(text);
    true
}

fn user_message(parts: &mut Vec<Value>) -> Option<Value> {
    (!parts.is_empty()).then(|| json!({"role": "user", "content": std::mem::take(parts)}))
}
