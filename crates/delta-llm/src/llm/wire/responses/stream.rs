//! A streamed response.

use super::super::super::reply_assembler::StreamError;
use super::super::EventAssembler;
use super::answer::{TEXT_SEPARATOR, item_type, message_item_text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// The response, as far as it has arrived.
#[derive(Debug, Default)]
pub struct ResponseAssembler {
    /// The finished items by their place. What an item contains when it is added may be incomplete.
    items: BTreeMap<u64, Value>,
    /// The response of the last event.
    response: Option<Value>,
    text: LiveText,
    reasoning: LiveText,
    /// The pieces of the arguments of calls.
    arguments: String,
    /// The messages whose text arrived in pieces.
    streamed: HashSet<u64>,
}

/// A text that arrives in pieces.
#[derive(Debug, Default)]
struct LiveText {
    text: String,
    /// The part of the last piece.
    last: Option<PartIndex>,
}

/// The index of an item, and of a part in it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PartIndex {
    item: u64,
    part: u64,
}

impl LiveText {
    fn push(&mut self, index: PartIndex, piece: &str) {
        if piece.is_empty() {
            return;
        }
        if self.last.replace(index).is_some_and(|last| last != index) {
            self.text.push_str(TEXT_SEPARATOR);
        }
        self.text.push_str(piece);
    }
}

impl ResponseAssembler {
    fn add_item(&mut self, index: u64, item: Value) {
        // Some servers send a text only whole.
        if item_type(&item) == "message" && !self.streamed.contains(&index) {
            self.text.push(PartIndex { item: index, part: 0 }, &message_item_text(&item));
        }
        self.items.insert(index, item);
    }
}

impl EventAssembler for ResponseAssembler {
    fn add_event(&mut self, mut event: Value) -> Result<(), StreamError> {
        let number = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or(0);
        let index = number("output_index");
        let piece = event.get("delta").and_then(Value::as_str).unwrap_or_default();
        match item_type(&event) {
            "response.output_text.delta" => {
                self.text.push(PartIndex { item: index, part: 0 }, piece);
                self.streamed.insert(index);
            }
            "response.reasoning_summary_text.delta" => {
                let part = number("summary_index");
                self.reasoning.push(PartIndex { item: index, part }, piece);
            }
            "response.reasoning_text.delta" => {
                let part = number("content_index");
                self.reasoning.push(PartIndex { item: index, part }, piece);
            }
            "response.function_call_arguments.delta" => self.arguments.push_str(piece),
            "response.output_item.done" => {
                let index = event.get("output_index").and_then(Value::as_u64);
                let index = index.unwrap_or(self.items.len() as u64);
                let item = event.get_mut("item").map(Value::take).unwrap_or_default();
                self.add_item(index, item);
            }
            "response.completed" | "response.incomplete" => {
                let is_complete = item_type(&event) == "response.completed";
                let mut response = event.get_mut("response").map(Value::take).unwrap_or_default();
                if !response.is_object() {
                    let status = if is_complete { "completed" } else { "incomplete" };
                    response = json!({"status": status});
                }
                self.response = Some(response);
            }
            "response.failed" => {
                let error = event.pointer("/response/error").filter(|error| !error.is_null());
                let error = json!({"error": error.unwrap_or(&json!("the response failed"))});
                return Err(StreamError::Reported(error));
            }
            "error" => return Err(StreamError::Reported(event)),
            // A gateway's error in the middle of a stream has no type.
            "" if event.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(StreamError::Reported(event));
            }
            _ => {}
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.response.is_some()
    }

    fn text(&self) -> &str {
        &self.text.text
    }

    fn reasoning(&self) -> &str {
        &self.reasoning.text
    }

    fn arguments(&self) -> &str {
        &self.arguments
    }

    /// The response of the last event with the items that came before it: its own may be missing.
    fn into_response(self) -> Value {
        let mut response = self.response.unwrap_or_default();
        let listed = response.get_mut("output").map(Value::take);
        let listed = listed.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        let mut items = self.items;
        for (index, item) in (0..).zip(listed) {
            items.entry(index).or_insert(item);
        }
        if items.is_empty() && !self.text.text.is_empty() {
            // Some servers send a text only in pieces.
            let part = json!({"type": "output_text", "text": self.text.text});
            items.insert(0, json!({"type": "message", "role": "assistant", "content": [part]}));
        }
        response["output"] = items.into_values().collect();
        response
    }
}
