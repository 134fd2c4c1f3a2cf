//! The fields of an answer that some endpoints of Chat Completions expect back as they sent them: signatures of Gemini
//! (`extra_content`), reasoning of OpenRouter (`reasoning_details`), LiteLLM (`thinking_blocks`), DeepSeek
//! (`reasoning_content`) and Mistral (a content with `thinking` parts), and the ids of calls in which LiteLLM keeps
//! signatures of Gemini.

pub use delta_words::REASONING_FIELDS;
use delta_words::{EncodeOptions, NativeParts, ToolCall, WireForm, message_text};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The fields of a message that are lists of blocks, which a stream sends in pieces.
pub const BLOCK_FIELDS: [&str; 2] = ["reasoning_details", "thinking_blocks"];
/// The field of a message or of a call with data of the vendor.
pub const EXTRA_FIELD: &str = "extra_content";
/// The members of a block whose pieces are joined.
const TEXT_MEMBERS: [&str; 3] = ["text", "summary", "thinking"];

/// Who made the fields: only the same model at the same endpoint gets them back.
#[derive(Debug, Clone, Default)]
pub struct AnswerOrigin {
    /// The model that was asked.
    pub model: String,
    /// The host of the endpoint.
    pub endpoint: String,
}

impl AnswerOrigin {
    /// The fields as the journal keeps them; `None` if there are none.
    pub fn into_native(self, fields: Map<String, Value>) -> Option<NativeParts> {
        (!fields.is_empty()).then(|| NativeParts {
            form: WireForm::OpenAi.name().to_owned(),
            model: self.model,
            endpoint: Some(self.endpoint),
            basis: None,
            parts: fields.into(),
        })
    }

    fn matches_native(&self, native: &NativeParts) -> bool {
        native.is_from(WireForm::OpenAi, &self.model)
            && native.endpoint.as_deref() == Some(&self.endpoint)
    }
}

/// The fields of a whole message that have to go back.
pub fn select_fields(message: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = Map::new();
    let calls = message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice);
    let calls = calls.unwrap_or_default();
    let mut select = |name: &str, is_selected: fn(&Value) -> bool| {
        if let Some(value) = message.get(name).filter(|value| is_selected(value)) {
            fields.insert(name.to_owned(), value.clone());
        }
    };
    let reasoning_field = REASONING_FIELDS.into_iter().find(|name| {
        message.get(*name).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
    });
    if let Some(name) = reasoning_field {
        select(name, Value::is_string);
    }
    for name in BLOCK_FIELDS {
        select(name, |blocks| blocks.as_array().is_some_and(|blocks| !blocks.is_empty()));
    }
    select(EXTRA_FIELD, Value::is_object);
    select("content", |content| content.as_array().is_some_and(|parts| has_thinking(parts)));
    let calls = calls.iter().map(|call| {
        (call.get("id").and_then(Value::as_str).unwrap_or_default(), call.get(EXTRA_FIELD))
    });
    fields.extend(fields_of_calls(calls));
    fields
}

/// The field with what has to go back of each call, given its id and the data of the vendor; `None` if that is nothing.
pub fn fields_of_calls<'a>(
    calls: impl Iterator<Item = (&'a str, Option<&'a Value>)>,
) -> Option<(String, Value)> {
    let calls = calls.map(|(id, extra)| {
        let id = (id.len() > ToolCall::MAX_ID_BYTES).then(|| ("id".to_owned(), id.into()));
        let extra = extra.filter(|extra| extra.is_object());
        let extra = extra.map(|extra| (EXTRA_FIELD.to_owned(), extra.clone()));
        let fields: Map<_, _> = id.into_iter().chain(extra).collect();
        if fields.is_empty() { Value::Null } else { fields.into() }
    });
    let calls: Vec<Value> = calls.collect();
    calls.iter().any(Value::is_object).then(|| ("tool_calls".to_owned(), calls.into()))
}

/// Whether a content contains reasoning.
pub fn has_thinking(parts: &[Value]) -> bool {
    parts.iter().any(|part| part.get("type").is_some_and(|kind| kind == "thinking"))
}

/// Adds the next piece of a streamed list of blocks: to the last block if it continues that, else as a block.
///
/// The type of a block decides before its index: OpenRouter numbered the pieces of different blocks alike.
pub fn add_block_piece(blocks: &mut Vec<Value>, piece: Value) {
    match blocks.last_mut() {
        Some(Value::Object(block))
            if piece.as_object().is_some_and(|piece| continues(block, piece)) =>
        {
            extend_block(block, piece);
        }
        _ => blocks.push(piece),
    }
}

fn continues(block: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let agrees = |name: &str| match (block.get(name), piece.get(name)) {
        (Some(one), Some(other)) => one.is_null() || other.is_null() || one == other,
        _ => true,
    };
    let adds_text =
        TEXT_MEMBERS.iter().any(|name| piece.get(*name).is_some_and(|text| !is_blank_value(text)));
    let is_signed = block.get("signature").is_some_and(|signature| !is_blank_value(signature));
    let is_text = TEXT_MEMBERS.iter().any(|name| block.contains_key(*name));
    // Encrypted blocks come whole.
    is_text
        && !piece.contains_key("data")
        && block.get("type") == piece.get("type")
        && agrees("index")
        && agrees("id")
        // A signature ends its block.
        && !(is_signed && adds_text)
}

fn is_blank_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn extend_block(block: &mut Map<String, Value>, piece: Value) {
    let Value::Object(piece) = piece else { return };
    for (name, value) in piece {
        match (block.get_mut(&name), value) {
            (Some(Value::String(text)), Value::String(more))
                if TEXT_MEMBERS.contains(&name.as_str()) =>
            {
                text.push_str(&more);
            }
            (Some(Value::Array(parts)), Value::Array(more)) => {
                more.into_iter().for_each(|part| add_block_piece(parts, part));
            }
            (Some(old), value) if is_blank_value(old) => *old = value,
            (Some(_), _) => {}
            (None, value) => {
                block.insert(name, value);
            }
        }
    }
}

/// Adds data of a vendor to the data before it.
pub fn merge_extra(extra: &mut Value, more: Value) {
    match (extra, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (name, value) in more {
                merge_extra(fields.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (extra, more) => *extra = more,
    }
}

/// Replaces the members `native` of a request's messages by the fields that they hold, where `origin` made them and
/// nothing rejects them. Returns whether the request is another one now.
pub fn restore_fields(
    messages: &mut [Value],
    origin: &AnswerOrigin,
    options: &EncodeOptions,
) -> bool {
    let rejects_fields = options.drops_unbound_native;
    let mut is_changed = false;
    let mut has_reasoning = false;
    let mut restored_ids = HashMap::new();
    for message in messages.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(id) = message.get_mut("tool_call_id")
            && let Some(restored) = id.as_str().and_then(|id| restored_ids.get(id))
        {
            *id = Value::clone(restored);
        }
        let Some(native) = message.shift_remove("native") else { continue };
        is_changed = true;
        let native = NativeParts::deserialize(native).ok();
        if let Some(native) =
            native.filter(|native| !rejects_fields && origin.matches_native(native))
        {
            let mut native = native;
            if let Some(parts) = native.parts.as_object_mut().filter(|_| options.omits_reasoning) {
                REASONING_FIELDS.iter().for_each(|name| drop(parts.shift_remove(*name)));
            }
            // The copy of `llm.echo_reasoning`, which has another name.
            if REASONING_FIELDS.iter().any(|name| native.parts.get(*name).is_some()) {
                message.shift_remove(REASONING_FIELDS[0]);
            }
            has_reasoning |= native.parts.get("reasoning_content").is_some();
            restore_message(message, native.parts, &mut restored_ids);
        }
    }
    // DeepSeek requires the field in every answer once one has it, even where there was no reasoning.
    for message in messages.iter_mut().filter_map(Value::as_object_mut).filter(|_| has_reasoning) {
        let is_answer = message.get("role").is_some_and(|role| role == "assistant");
        if is_answer && !message.contains_key(REASONING_FIELDS[0]) {
            message.insert(REASONING_FIELDS[0].to_owned(), "".into());
        }
    }
    is_changed
}

/// Puts the fields into a message, unless a hook has changed what they belong to. Adds the ids of calls that change to
/// `restored_ids`.
fn restore_message(
    message: &mut Map<String, Value>,
    parts: Value,
    restored_ids: &mut HashMap<String, Value>,
) {
    let Value::Object(parts) = parts else { return };
    for (name, value) in parts {
        match (name.as_str(), &value) {
            ("content", content) => {
                let text = |content: &Value| {
                    message_text(&Map::from_iter([("content".to_owned(), content.clone())]).into())
                };
                if message.get("content").is_some_and(|old| text(old) == text(content)) {
                    message.insert(name, value);
                }
            }
            ("tool_calls", Value::Array(extras)) => {
                let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
                let Some(calls) = calls.filter(|calls| calls.len() == extras.len()) else {
                    continue;
                };
                for (call, fields) in calls.iter_mut().zip(extras) {
                    let Some(call) = call.as_object_mut() else { continue };
                    for (name, value) in fields.as_object().into_iter().flatten() {
                        let old = call.insert(name.clone(), value.clone());
                        if let Some(Value::String(id)) = old.filter(|_| name == "id") {
                            restored_ids.insert(id, value.clone());
                        }
                    }
                }
            }
            _ => {
                message.entry(name).or_insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn joined(pieces: &[Value]) -> Value {
        let mut blocks = Vec::new();
        pieces.iter().for_each(|piece| add_block_piece(&mut blocks, piece.clone()));
        blocks.into()
    }

    #[test]
    fn c_23_1_pieces_of_blocks_are_joined_by_type_index_and_signature() {
        let text = |index: u32, text: &str| json!({"type": "reasoning.text", "text": text, "format": "f", "index": index});
        let signed = json!({"type": "reasoning.text", "signature": "s", "format": "f", "index": 0});
        let encrypted =
            |data: &str| json!({"type": "reasoning.encrypted", "data": data, "index": 0});
        assert_eq!(
            joined(&[
                text(0, "Let"),
                text(0, " me"),
                signed,
                text(0, "next"),
                text(1, "other"),
                encrypted("a"),
                encrypted("b"),
                text(0, "end")
            ]),
            json!([
                {"type": "reasoning.text", "text": "Let me", "format": "f", "index": 0, "signature": "s"},
                text(0, "next"), text(1, "other"), encrypted("a"), encrypted("b"), text(0, "end")
            ])
        );
        let summary =
            |text: &str| json!({"type": "reasoning.summary", "summary": text, "index": 0});
        assert_eq!(joined(&[summary("a"), summary("b")]), json!([summary("ab")]));
        let block = |thinking: &str, signature: &str| json!({"type": "thinking", "thinking": thinking, "signature": signature});
        let redacted = json!({"type": "redacted_thinking", "data": "x"});
        assert_eq!(
            joined(&[
                block("a", ""),
                block("b", ""),
                block("", "s"),
                redacted.clone(),
                block("c", "")
            ]),
            json!([block("ab", "s"), redacted, block("c", "")])
        );
        let part =
            |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
        assert_eq!(joined(&[part("a"), part("b")]), json!([part("ab")]));
        assert_eq!(
            joined(&[json!(1), json!("x"), json!({"text": "a"})]),
            json!([1, "x", {"text": "a"}])
        );
    }

    #[test]
    fn c_23_1_data_of_a_vendor_is_merged() {
        let mut extra = Value::Null;
        merge_extra(&mut extra, json!({"google": {"a": 1}}));
        merge_extra(&mut extra, Value::Null);
        merge_extra(&mut extra, json!({"google": {"b": 2}, "vertex": 3}));
        assert_eq!(extra, json!({"google": {"a": 1, "b": 2}, "vertex": 3}));
    }

    proptest! {
        #[test]
        fn c_23_1_a_split_block_is_the_block(text in "[a-zä]{0,12}", signature in "[a-z]{1,4}", cuts in prop::collection::vec(0usize..12, 0..4)) {
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).chain([0, chars.len()]).collect();
            cuts.sort_unstable();
            let piece = |from: usize, to: usize| chars[from..to].iter().collect::<String>();
            let mut pieces: Vec<Value> = cuts.windows(2).map(|cut| json!({"type": "reasoning.text", "text": piece(cut[0], cut[1]), "index": 0})).collect();
            pieces.push(json!({"type": "reasoning.text", "signature": signature, "index": 0}));
            let whole = json!({"type": "reasoning.text", "text": text, "index": 0, "signature": signature});
            prop_assert_eq!(joined(&pieces), json!([whole]));
        }
    }
}
