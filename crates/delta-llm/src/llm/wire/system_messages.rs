//! Endpoints whose template takes one system message only, at the beginning.

use super::RejectedRequest;
use super::role_order::is_about_order;
use delta_words::{EncodeOptions, message_text};
use serde_json::{Value, json};

/// What is between the texts of two system messages.
const SEPARATOR: &str = "\n\n";
/// What a later system message begins with, where it goes out as a message of the user.
const MARK: &str = "[system]\n";
/// Parts of the messages with which templates refuse a system message for its place or its number.
const PLACE_PHRASES: [&str; 11] = [
    "at the beginning",
    "at the start",
    "be first",
    "be the first",
    "first message",
    "leading",
    "only one",
    "one system",
    "multiple",
    "more than one",
    "unexpected role",
];

/// The options with which a request is sent again that the endpoint refused because of its system messages.
pub fn merged_system_options(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status, response, sent, options } = *rejected;
    let lower_response = response.to_lowercase();
    let names_place = ["system", "developer"].iter().any(|role| lower_response.contains(role))
        && PLACE_PHRASES.iter().any(|phrase| lower_response.contains(phrase));
    // A second system message in a row is one that does not alternate.
    let is_about_place =
        matches!(status, 200 | 400 | 422 | 500) && (names_place || is_about_order(&lower_response));
    if !is_about_place || options.merges_system {
        return None;
    }
    let sent: Value = serde_json::from_str(sent).ok()?;
    let messages = sent.get("messages").or_else(|| sent.get("input"))?.as_array()?;
    messages
        .iter()
        .skip(1)
        .any(is_system)
        .then(|| EncodeOptions { merges_system: true, ..options.clone() })
}

/// Parts of the messages with which endpoints refuse a role.
const ROLE_PHRASES: [&str; 6] = [
    "developer",
    "message role",
    "unexpected role",
    "unknown role",
    "invalid role",
    "unsupported role",
];

/// The options with which a request is sent again whose role `developer` the endpoint does not know.
pub fn system_role_options(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status, response, sent, options } = *rejected;
    let lower_response = response.to_lowercase();
    let is_about_role = matches!(status, 200 | 400 | 422 | 500)
        && ROLE_PHRASES.iter().any(|phrase| lower_response.contains(phrase))
        && sent.contains(r#""role":"developer""#);
    (is_about_role && !options.uses_system_role)
        .then(|| EncodeOptions { uses_system_role: true, ..options.clone() })
}

/// Makes messages of the role `developer` system messages. Returns whether anything changed.
pub fn use_system_role(messages: &mut [Value]) -> bool {
    let mut is_changed = false;
    for message in messages.iter_mut().filter(|message| message["role"] == "developer") {
        message["role"] = json!("system");
        is_changed = true;
    }
    is_changed
}

/// Makes the system messages at the beginning one, and those after it messages of the user that say what they are. Returns
/// whether anything changed.
pub fn merge_system_messages(messages: &mut Vec<Value>) -> bool {
    let leading = messages.iter().take_while(|message| is_system(message)).count();
    let mut is_changed = leading > 1;
    if leading > 1 {
        let texts = messages.drain(..leading).map(|message| message_text(&message));
        let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
        let merged = json!({"role": "system", "content": texts.join(SEPARATOR)});
        messages.insert(0, merged);
    }
    for message in messages.iter_mut().skip(1).filter(|message| is_system(message)) {
        let text = format!("{MARK}{}", message_text(message));
        *message = json!({"role": "user", "content": text});
        is_changed = true;
    }
    is_changed
}

fn is_system(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "system" || role == "developer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_8_1_system_messages_become_one_and_later_ones_are_marked() {
        let message = |role: &str, text: &str| json!({"role": role, "content": text});
        let mut messages = vec![
            message("system", "# a"),
            json!({"role": "system", "content": [{"type": "text", "text": "# b"}]}),
            message("user", "go"),
            message("system", "# c"),
        ];
        assert!(merge_system_messages(&mut messages));
        let expected = [
            message("system", "# a\n\n# b"),
            message("user", "go"),
            message("user", "[system]\n# c"),
        ];
        assert_eq!(messages, expected);
        assert!(!merge_system_messages(&mut messages));
    }

    #[test]
    fn c_37_3_a_role_that_the_endpoint_does_not_know_becomes_system() {
        let sent = json!({"messages": [{"role": "developer", "content": "x"}]}).to_string();
        let check = |status, response: &str, sent: &str, expected: bool| {
            let options = &EncodeOptions::default();
            let adapted = system_role_options(&RejectedRequest { status, response, sent, options });
            assert_eq!(adapted.is_some(), expected, "{response}");
        };
        check(400, "Unexpected message role: developer", &sent, true);
        check(500, "Jinja Exception: Unexpected message role.", &sent, true);
        check(422, "Input should be 'system' or 'user', input: 'developer'", &sent, true);
        check(400, "Unexpected message role.", "{}", false);
        check(429, "Unexpected message role.", &sent, false);
        check(400, "bad request", &sent, false);
    }

    #[test]
    fn c_8_1_only_a_refusal_of_their_place_merges_them() {
        let is_merged = |status, response: &str, roles: &[&str]| {
            let messages: Vec<_> = roles.iter().map(|role| json!({"role": role})).collect();
            let sent = json!({"messages": messages}).to_string();
            let options = &EncodeOptions::default();
            let rejected = RejectedRequest { status, response, sent: &sent, options };
            merged_system_options(&rejected).is_some()
        };
        let two = ["system", "system", "user"];
        for words in [
            "System message must be at the beginning.",
            "Jinja Exception: System message must be at the beginning.",
            "Unexpected role 'system' after role 'system'",
            "only one system message is allowed",
            "Conversation roles must alternate user/assistant/user/assistant/...",
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got system",
        ] {
            assert!(is_merged(400, words, &two), "{words}");
            assert!(!is_merged(400, words, &["system", "user"]), "{words}");
            assert!(!is_merged(429, words, &two), "{words}");
        }
        assert!(!is_merged(400, "System role not supported", &two));
        assert!(!is_merged(400, "the messages must be at the beginning", &two));
    }
}
