//! Hides sensitive answers everywhere on the page.

use super::page_image::IMAGE_DATA_KEY;
use delta_base::redact::HiddenAnswers;
use serde_json::Value as Json;

/// Hides the answers in every string of a part of the page, also where a string holds JSON, or JSON inside JSON. The names
/// of the page's own members stay.
pub fn hide_answers(part: &mut Json, answers: &HiddenAnswers) {
    match part {
        Json::String(text) => *text = answers.redact_string(std::mem::take(text)),
        Json::Array(items) => items.iter_mut().for_each(|item| hide_answers(item, answers)),
        Json::Object(fields) => {
            fields.iter_mut().for_each(|(name, field)| hide_in_member(name, field, answers));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn hide_in_member(name: &str, field: &mut Json, answers: &HiddenAnswers) {
    match (name, field) {
        (IMAGE_DATA_KEY, _) => {}
        // The LLM chose the names in them.
        ("args" | "tool_args", arguments) => answers.redact_json(arguments),
        ("arguments", Json::String(text)) => *text = answers.redact_json_text(text).into_owned(),
        // The messages of requests.
        ("texts", Json::Array(texts)) => {
            texts.iter_mut().for_each(|text| hide_in_message(text, answers));
        }
        (_, field) => hide_answers(field, answers),
    }
}

/// Hides the answers in a message of a request, which the page parses, or in the beginning or the end of one.
fn hide_in_message(text: &mut Json, answers: &HiddenAnswers) {
    let message = text.as_str().and_then(|text| serde_json::from_str::<Json>(text).ok());
    let Some(before) = message else { return hide_answers(text, answers) };
    let mut message = before.clone();
    hide_answers(&mut message, answers);
    // Bytes count on the page: what has no answer stays as it was sent.
    if message != before {
        *text = message.to_string().into();
    }
}
