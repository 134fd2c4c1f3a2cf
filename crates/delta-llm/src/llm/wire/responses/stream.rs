//! A streamed response.

use super::super::super::argument_text::ArgumentText;
use super::super::super::reply_assembler::StreamError;
use super::super::{EventAssembler, find_error, reported_error};
use super::answer::{TEXT_SEPARATOR, item_type, message_item_text};
use delta_words::{is_same_json, merge_counts, sent_arguments};
use serde_json::{Value, json};

/// The response, as far as it has arrived.
#[derive(Debug, Default)]
pub struct ResponseAssembler {
    /// The items in the order of their first events.
    items: Vec<PartialItem>,
    /// The response of the last event.
    response: Option<Value>,
    /// The tokens, as far as an event has counted them.
    usage: Value,
    text: LiveText,
    reasoning: LiveText,
    /// The pieces of the arguments of calls.
    arguments: String,
    has_ended: bool,
}

/// An item, as far as it has arrived.
#[derive(Debug, Default)]
struct PartialItem {
    index: u64,
    id: String,
    /// The item of the last event that has it; what it contains when it is added may be incomplete.
    item: Value,
    is_done: bool,
    /// The arguments of a call, from all events that have them.
    arguments: ArgumentText,
    /// The text of a message that arrived in pieces, and its refusal.
    text: String,
    refusal: String,
    /// The response that ends the stream has it.
    is_listed: bool,
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

fn member_text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

impl PartialItem {
    /// Takes what an event has of the item; a member that it leaves out or empty stays, and a finished item stays as it is
    /// but for members that it lacks.
    fn update(&mut self, newer: Value) {
        if item_type(&newer) == "function_call" {
            self.arguments.push(&sent_arguments(&[&newer], "arguments"));
        }
        match (&mut self.item, newer) {
            (Value::Object(members), Value::Object(newer)) => {
                for (name, value) in newer {
                    let known = members.get(&name);
                    if known
                        .is_none_or(|known| is_empty(known) || (!self.is_done && !is_empty(&value)))
                    {
                        members.insert(name, value);
                    }
                }
            }
            (item, newer) => *item = newer,
        }
    }

    /// The item with what only arrived in pieces.
    fn into_item(mut self) -> Value {
        match item_type(&self.item) {
            "function_call" => {
                let text = self.arguments.into_text();
                // It goes back as it came.
                if !is_same_json(member_text(&self.item, "arguments"), &text) {
                    self.item["arguments"] = text.into();
                }
            }
            "message" if message_item_text(&self.item).is_empty() => {
                let parts =
                    [("output_text", "text", self.text), ("refusal", "refusal", self.refusal)];
                let parts = parts.into_iter().filter(|(_, _, text)| !text.is_empty());
                let parts: Vec<_> =
                    parts.map(|(kind, name, text)| json!({"type": kind, name: text})).collect();
                if !parts.is_empty() {
                    self.item["content"] = parts.into();
                }
            }
            _ => {}
        }
        self.item
    }
}

impl ResponseAssembler {
    /// The item of an event: an id decides before an index, and what has neither belongs to the last item of the kind.
    fn item_of(&mut self, event: &Value, kind: &str) -> &mut PartialItem {
        let id = member_text(event, "item_id");
        let index = event.get("output_index").and_then(Value::as_u64);
        let is_kind = |it: &PartialItem| item_type(&it.item) == kind;
        let find = |is_it: &dyn Fn(&PartialItem) -> bool| self.items.iter().rposition(is_it);
        let by_id = if id.is_empty() { None } else { find(&|it| it.id == id && is_kind(it)) };
        let by_index = find(&|it| Some(it.index) == index && is_kind(it));
        let open = find(&is_kind).filter(|_| kind == "function_call" || index.is_none());
        let at = by_id.or(by_index).or(open).unwrap_or_else(|| {
            let index = index.unwrap_or(self.items.len() as u64);
            let item = json!({"type": kind});
            self.items.push(PartialItem {
                index,
                id: id.to_owned(),
                item,
                ..PartialItem::default()
            });
            self.items.len() - 1
        });
        &mut self.items[at]
    }

    /// Adds an item that an event has, at a place where it may be already.
    fn add_item(
        &mut self,
        known: Option<usize>,
        index: Option<u64>,
        item: Value,
        is_done: bool,
    ) -> usize {
        let at = known.unwrap_or_else(|| {
            let index = index.unwrap_or(self.items.len() as u64);
            self.items.push(PartialItem { index, item: json!({}), ..PartialItem::default() });
            self.items.len() - 1
        });
        let partial = &mut self.items[at];
        // Some servers send a text only whole.
        if is_done && partial.text.is_empty() {
            let index = PartIndex { item: partial.index, part: 0 };
            let text = message_item_text(&item);
            self.text.push(index, &text);
            partial.text = text;
        }
        if partial.id.is_empty() {
            member_text(&item, "id").clone_into(&mut partial.id);
        }
        partial.update(item);
        partial.is_done |= is_done;
        at
    }

    /// The item with the id of `item`.
    fn find_by_id(&self, item: &Value) -> Option<usize> {
        let id = member_text(item, "id");
        let call_id = member_text(item, "call_id");
        self.items.iter().rposition(|it| {
            let is_same_id = !id.is_empty() && it.id == id;
            let is_same_call = !call_id.is_empty() && member_text(&it.item, "call_id") == call_id;
            item_type(&it.item) == item_type(item) && (is_same_id || is_same_call)
        })
    }

    /// The item at the index of an event, unless its ids say that it is another one.
    fn find_by_index(&self, index: Option<u64>, item: &Value) -> Option<usize> {
        let call_id = member_text(item, "call_id");
        self.items.iter().rposition(|it| {
            let known_id = member_text(&it.item, "call_id");
            let is_other_call = !known_id.is_empty() && !call_id.is_empty() && known_id != call_id;
            let is_it = Some(it.index) == index && item_type(&it.item) == item_type(item);
            is_it && !is_other_call
        })
    }

    /// The item that one of the ending response repeats.
    fn find_repeated(&self, item: &Value) -> Option<usize> {
        let by_id = self.find_by_id(item).filter(|at| !self.items[*at].is_listed);
        by_id.or_else(|| {
            self.items.iter().position(|it| {
                let kind = item_type(item);
                let is_same_kind = !it.is_listed && item_type(&it.item) == kind;
                if kind != "function_call" {
                    return is_same_kind;
                }
                is_same_kind
                    && member_text(&it.item, "name") == member_text(item, "name")
                    && it.arguments.is_same(member_text(item, "arguments"))
            })
        })
    }

    /// Adds a text of a message, in pieces or whole.
    fn add_text(&mut self, event: &Value, text: &str, is_whole: bool) {
        let item = self.item_of(event, "message");
        if is_whole && !item.text.is_empty() {
            return;
        }
        item.text.push_str(text);
        let index = PartIndex { item: item.index, part: 0 };
        self.text.push(index, text);
    }

    /// Adds the response of the event that ends the stream; items that another event had are not added again.
    fn end_with(&mut self, mut response: Value, status: &str) {
        if !response.is_object() {
            response = json!({});
        }
        if member_text(&response, "status").is_empty() {
            response["status"] = status.into();
        }
        self.items.iter_mut().for_each(|item| item.is_listed = false);
        if let Some(Value::Array(items)) = response.get_mut("output").map(Value::take) {
            for (index, item) in (0..).zip(items) {
                let at = self.add_item(self.find_repeated(&item), Some(index), item, true);
                self.items[at].index = index;
                self.items[at].is_listed = true;
            }
        }
        self.response = Some(response);
    }
}

impl EventAssembler for ResponseAssembler {
    fn add_event(&mut self, mut event: Value) -> Result<(), StreamError> {
        if let Some(usage) = event.pointer_mut("/response/usage") {
            merge_counts(&mut self.usage, usage.take());
        }
        let number = |name: &str| event.get(name).and_then(Value::as_u64).unwrap_or(0);
        let index = event.get("output_index").and_then(Value::as_u64);
        let piece = member_text(&event, "delta");
        match item_type(&event) {
            "response.output_text.delta" => self.add_text(&event, piece, false),
            "response.output_text.done" => self.add_text(&event, member_text(&event, "text"), true),
            "response.refusal.delta" => self.item_of(&event, "message").refusal.push_str(piece),
            "response.refusal.done" => {
                let item = self.item_of(&event, "message");
                member_text(&event, "refusal").clone_into(&mut item.refusal);
            }
            "response.content_part.done" => {
                let part = event.get("part").unwrap_or(&Value::Null);
                if item_type(part) == "output_text" {
                    self.add_text(&event, member_text(part, "text"), true);
                }
            }
            "response.function_call_arguments.delta" => {
                self.arguments.push_str(piece);
                self.item_of(&event, "function_call").arguments.push(piece);
            }
            "response.function_call_arguments.done" => {
                let item = self.item_of(&event, "function_call");
                item.arguments.push(member_text(&event, "arguments"));
                if let Some(name) = event.get("name").filter(|_| item.item.get("name").is_none()) {
                    item.item["name"] = name.clone();
                }
            }
            "response.reasoning_summary_text.delta" => {
                let index = PartIndex { item: index.unwrap_or(0), part: number("summary_index") };
                self.reasoning.push(index, piece);
            }
            "response.reasoning_text.delta" => {
                let index = PartIndex { item: index.unwrap_or(0), part: number("content_index") };
                self.reasoning.push(index, piece);
            }
            kind @ ("response.output_item.added" | "response.output_item.done") => {
                let is_done = kind == "response.output_item.done";
                let item = event.get_mut("item").map(Value::take).unwrap_or_default();
                if item.is_object() {
                    let known = self.find_by_id(&item).or_else(|| self.find_by_index(index, &item));
                    self.add_item(known, index, item, is_done);
                }
            }
            kind @ ("response.completed" | "response.incomplete") => {
                let status = kind.trim_start_matches("response.").to_owned();
                let response = event.get_mut("response").map(Value::take).unwrap_or_default();
                self.end_with(response, &status);
            }
            "response.failed" => {
                let error = event.pointer("/response/error").filter(|error| !error.is_null());
                let error = json!({"error": error.unwrap_or(&json!("the response failed"))});
                return Err(StreamError::Reported(error));
            }
            // The whole response, without a frame of its own.
            "" if event.get("output").is_some_and(Value::is_array)
                && find_error(&event).is_none() =>
            {
                self.end_with(event, "completed");
            }
            "" | "error" => {
                if let Some(error) = reported_error(&event) {
                    return Err(StreamError::Reported(error));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Without the event that ends the stream, its end and a last item that says that it is completed are enough.
    fn is_complete(&self) -> bool {
        let last = self.items.iter().max_by_key(|item| item.index);
        let is_last_completed = last.is_some_and(|it| {
            member_text(&it.item, "status") == "completed"
                && matches!(item_type(&it.item), "message" | "function_call")
        });
        self.response.is_some()
            || (self.has_ended && self.items.iter().all(|item| item.is_done) && is_last_completed)
    }

    fn is_ended(&self) -> bool {
        self.response.is_some()
    }

    fn end(&mut self) {
        self.has_ended = true;
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

    fn into_response(mut self) -> Value {
        let mut response = self.response.unwrap_or_else(|| json!({"status": "completed"}));
        self.items.sort_by_key(|item| item.index);
        // A call of which nothing but its beginning arrived has lost its arguments.
        let items = self.items.into_iter().filter(|it| {
            it.is_done || !it.arguments.is_empty() || item_type(&it.item) != "function_call"
        });
        response["output"] = items.map(PartialItem::into_item).collect();
        if !self.usage.is_null() {
            response["usage"] = self.usage;
        }
        response
    }
}
