//! Endpoints whose template takes messages of the user and of the assistant in turn only.

use super::RejectedRequest;
use delta_words::EncodeOptions;
use serde_json::{Value, json};

/// Parts of the messages, in lower case, with which templates and endpoints refuse the order of the roles.
const ORDER_PHRASES: [&str; 8] = [
    "must alternate",
    "should alternate",
    "alternate between",
    "alternates between",
    "interleave",
    "after role",
    "last role",
    "last message must have role",
];
/// What is between the texts of two joined messages.
const SEPARATOR: &str = "\n\n";
/// What the assistant says between a result and a message of the user.
const ACKNOWLEDGEMENT: &str = "OK.";

/// Whether a response, in lower case, refuses the order of the roles.
pub(super) fn is_about_order(lower_response: &str) -> bool {
    ORDER_PHRASES.iter().any(|phrase| lower_response.contains(phrase))
}

/// The options with which a request is sent again that the endpoint refused because of the order of its roles.
pub(super) fn alternating_options(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status, response, sent, options } = *rejected;
    let is_refused =
        matches!(status, 200 | 400 | 422 | 500) && is_about_order(&response.to_lowercase());
    if !is_refused || options.alternates_roles {
        return None;
    }
    let mut sent: Value = serde_json::from_str(sent).ok()?;
    alternate_roles(sent.get_mut("messages")?.as_array_mut()?)
        .then(|| EncodeOptions { alternates_roles: true, ..options.clone() })
}

/// Joins messages of the user that follow each other, and lets the assistant answer a result before the user speaks. Returns
/// whether anything changed.
pub(super) fn alternate_roles(messages: &mut Vec<Value>) -> bool {
    let mut is_changed = false;
    let mut sent: Vec<Value> = Vec::with_capacity(messages.len() + 1);
    for message in std::mem::take(messages) {
        if message["role"] == "user"
            && let Some(last) = sent.last_mut()
        {
            if last["role"] == "user" {
                last["content"] =
                    joined_content(last["content"].take(), message["content"].clone());
                is_changed = true;
                continue;
            }
            if last["role"] == "tool" {
                sent.push(json!({"role": "assistant", "content": ACKNOWLEDGEMENT}));
                is_changed = true;
            }
        }
        sent.push(message);
    }
    *messages = sent;
    is_changed
}

/// The content of both messages: a text if both are texts, else a list of parts.
fn joined_content(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::String(first), Value::String(second)) => {
            Value::String(format!("{first}{SEPARATOR}{second}"))
        }
        (first, second) => Value::Array([first, second].into_iter().flat_map(parts_of).collect()),
    }
}

fn parts_of(content: Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts,
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_3_5_roles_are_in_turn_only_after_a_refusal_of_their_order() {
        let message = |role: &str, content: Value| json!({"role": role, "content": content});
        let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
        let mut messages = vec![
            message("user", json!("a")),
            message("user", json!("b")),
            json!({"role": "assistant", "tool_calls": [{"id": "c"}]}),
            message("tool", json!("x")),
            message("user", json!([image])),
            message("user", json!("c")),
        ];
        let sent = json!({"messages": messages}).to_string();
        let check = |status, response: &str, expected: bool| {
            let options = &EncodeOptions::default();
            let rejected = RejectedRequest { status, response, sent: &sent, options };
            assert_eq!(alternating_options(&rejected).is_some(), expected, "{response}");
        };
        for words in [
            "After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.",
            "Conversation roles must alternate user/assistant/user/assistant/...",
            "Unexpected role 'user' after role 'tool'",
            "After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).",
            "A conversation must alternate between user and assistant roles.",
            "The model does not support successive user or assistant messages. You should interleave the user/assistant messages in the message sequence.",
        ] {
            check(400, words, true);
            check(429, words, false);
        }
        check(400, "choose an alternative model", false);
        assert!(alternate_roles(&mut messages));
        let expected = [
            message("user", json!("a\n\nb")),
            json!({"role": "assistant", "tool_calls": [{"id": "c"}]}),
            message("tool", json!("x")),
            message("assistant", json!("OK.")),
            message("user", json!([image, {"type": "text", "text": "c"}])),
        ];
        assert_eq!(messages, expected);
        assert!(!alternate_roles(&mut messages));
    }
}
