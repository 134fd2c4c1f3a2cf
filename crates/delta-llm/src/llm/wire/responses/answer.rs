//! The items of an answer.

use super::super::NeutralCall;
use super::super::neutral_response::NeutralUsage;
use super::request::wire_call_id;
use delta_words::{
    IMAGE_ANSWER, ToolCall, are_token_counts, parse_token_count, reported_cost, sent_arguments,
    settled_arguments,
};
use serde_json::Value;

/// Between the texts of two messages, and between two summaries.
pub const TEXT_SEPARATOR: &str = "\n\n";

/// What the items of an answer say. Items of an unknown type are passed over.
#[derive(Debug, Default, PartialEq)]
pub struct AnswerItems {
    /// The texts of the messages, if any.
    pub text: Option<String>,
    /// The summaries of the reasoning, or its text where the endpoint shows that; if any.
    pub reasoning: Option<String>,
    /// The text of a refusal, if any.
    pub refusal: Option<String>,
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
}

impl AnswerItems {
    /// Reads the items.
    pub fn read(items: &[Value]) -> Self {
        let mut read = Self::default();
        let mut summaries = None;
        let mut thoughts = None;
        let mut has_image = false;
        for item in items {
            match item_type(item) {
                "message" => {
                    append_paragraph(
                        &mut read.text,
                        &part_texts(item, "output_text", "text").concat(),
                    );
                    let refusal = part_texts(item, "refusal", "refusal").concat();
                    append_paragraph(&mut read.refusal, &refusal);
                }
                "reasoning" => {
                    for summary in texts(item.get("summary")) {
                        append_paragraph(&mut summaries, summary);
                    }
                    for thought in texts(item.get("content")) {
                        append_paragraph(&mut thoughts, thought);
                    }
                }
                "function_call" => read.calls.push(read_call_item(item)),
                "image_generation_call" => has_image |= item.get("result").is_some(),
                _ => {}
            }
        }
        if has_image && read.text.is_none() && read.calls.is_empty() {
            read.text = Some(IMAGE_ANSWER.to_owned());
        }
        read.reasoning = summaries.or(thoughts);
        read
    }

    /// Whether an answer with this text and these calls is the one of the items: a hook may have changed it.
    pub fn is_same(&self, text: &str, calls: &[NeutralCall]) -> bool {
        self.text.as_deref().unwrap_or_default() == text
            && self.calls.len() == calls.len()
            && self.calls.iter().zip(calls).all(|(item, call)| {
                item.id == wire_call_id(&call.id)
                    && item.function.name == call.name
                    && item.function.arguments.as_str().trim() == call.arguments
            })
    }
}

/// The items of an answer that have to go back as they are; `None` if its text and its calls say everything.
///
/// Reasoning without what came after it is rejected, so it does not go back where the answer was cut off.
pub fn opaque_parts(items: &[Value]) -> Option<Value> {
    let last = items.iter().rposition(|item| item_type(item) != "reasoning")?;
    let items = &items[..=last];
    let is_opaque = items.iter().any(|item| match item_type(item) {
        "reasoning" => has_content(item),
        "message" => item.get("phase").is_some_and(Value::is_string),
        _ => false,
    });
    is_opaque.then(|| items.iter().filter(|item| !is_empty_reasoning(item)).cloned().collect())
}

/// Whether reasoning contains more than its id, which the endpoint does not know without state.
fn has_content(reasoning: &Value) -> bool {
    let encrypted = reasoning.get("encrypted_content").and_then(Value::as_str);
    encrypted.is_some_and(|text| !text.is_empty()) || !texts(reasoning.get("content")).is_empty()
}

fn is_empty_reasoning(item: &Value) -> bool {
    item_type(item) == "reasoning" && !has_content(item)
}

/// The type of an item or a part.
pub fn item_type(item: &Value) -> &str {
    item.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// The text of a message item.
pub fn message_item_text(item: &Value) -> String {
    part_texts(item, "output_text", "text").concat()
}

fn part_texts<'a>(item: &'a Value, kind: &str, name: &str) -> Vec<&'a str> {
    match item.get("content") {
        Some(Value::String(text)) if kind == "output_text" => vec![text],
        Some(Value::Array(parts)) => {
            let parts = parts.iter().filter(|part| item_type(part) == kind);
            parts.filter_map(|part| part.get(name)?.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

fn texts(parts: Option<&Value>) -> Vec<&str> {
    let parts = parts.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()
}

/// Appends a text, as far as it is not empty, after a separator.
pub fn append_paragraph(all: &mut Option<String>, text: &str) {
    if text.is_empty() {
        return;
    }
    match all {
        None => *all = Some(text.to_owned()),
        Some(all) => {
            all.push_str(TEXT_SEPARATOR);
            all.push_str(text);
        }
    }
}

fn read_call_item(item: &Value) -> ToolCall {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    let id = Some(text("call_id")).filter(|id| !id.is_empty()).unwrap_or_else(|| text("id"));
    let arguments = sent_arguments(&[item], "arguments");
    ToolCall::new(id, text("name"), settled_arguments(&arguments))
}

/// The tokens of a response; `None` if it counts none.
pub fn reported_usage(usage: &Value) -> Option<NeutralUsage> {
    let count = |path: &str| usage.pointer(path).and_then(parse_token_count);
    let totals = ["input_tokens", "output_tokens"].iter().filter_map(|name| usage.get(*name));
    are_token_counts(totals).then(|| NeutralUsage {
        input: count("/input_tokens").unwrap_or(0),
        cached: count("/input_tokens_details/cached_tokens")
            .max(count("/cached_tokens"))
            .unwrap_or(0),
        cache_write: count("/input_tokens_details/cache_write_tokens"),
        output: count("/output_tokens").unwrap_or(0),
        reasoning: count("/output_tokens_details/reasoning_tokens"),
        cost: reported_cost(usage),
        tier: None,
    })
}
