//! Messages, Anthropic's form, as its strictest endpoint serves it: it refuses thinking that it did not give, and thinking
//! whose conversation has changed before it.

use super::answer::{Message, cut};
use super::form::ServedForm;
use super::image_check::{check_document, check_image};
use super::{Answer, RecordedRequest};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

type Checked = Result<(), String>;

/// The version since which sampling parameters are refused.
const NO_SAMPLING_VERSION: &str = "2026-10-21";

/// The members of a request that the endpoint knows.
const REQUEST_KEYS: [&str; 16] = [
    "model",
    "anthropic_version",
    "max_tokens",
    "system",
    "messages",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata",
    "service_tier",
    "stop_sequences",
    "stream",
    "temperature",
    "top_p",
    "top_k",
];

/// The form, with the thinking that it gave.
#[derive(Default)]
pub(super) struct MessagesForm {
    given: HashMap<String, GivenThinking>,
}

/// A block of thinking, and the conversation that it is bound to.
struct GivenThinking {
    block: Value,
    prefix: Value,
}

impl ServedForm for MessagesForm {
    fn serves(&self, request: &RecordedRequest) -> bool {
        request.path().ends_with("/messages") || has_model_in_path(request)
    }

    fn check(&mut self, request: &RecordedRequest) -> Checked {
        let version =
            request.header("anthropic-version").ok_or("anthropic-version: header is required")?;
        let body = &without_cache_markers(&request.body)?;
        if has_model_in_path(request) {
            if body.get("model").is_some() {
                return Err("model: Extra inputs are not permitted".to_owned());
            }
            body["anthropic_version"].as_str().ok_or("anthropic_version: Field required")?;
        } else {
            body["model"]
                .as_str()
                .filter(|model| !model.is_empty())
                .ok_or("model: Field required")?;
        }
        if version >= NO_SAMPLING_VERSION
            && let Some(key) =
                ["temperature", "top_p", "top_k"].iter().find(|key| body.get(**key).is_some())
        {
            return Err(format!("{key}: Extra inputs are not permitted"));
        }
        check(body)?;
        self.check_thinking(body)
    }

    fn is_streamed(&self, request: &RecordedRequest) -> bool {
        request.body["stream"] == true
    }

    fn body(&mut self, message: &Message, request: &RecordedRequest) -> Value {
        let mut body = envelope(request);
        body["content"] = self.content(message, request).into();
        body["stop_reason"] = json!(stop_reason(message));
        body["usage"] = usage(message);
        body
    }

    fn events(&mut self, message: &Message, request: &RecordedRequest) -> Vec<String> {
        let mut start = envelope(request);
        start["usage"] = usage(message);
        start["usage"]["output_tokens"] = json!(1);
        let mut events =
            vec![json!({"type": "message_start", "message": start}), json!({"type": "ping"})];
        for (index, block) in self.content(message, request).into_iter().enumerate() {
            let raw_input = message.calls.iter().find(|(id, ..)| block["id"] == **id);
            let raw_input = raw_input.map(|(.., arguments)| arguments.as_str());
            let mut event = |kind: &str, name: &str, value: Value| {
                events.push(json!({"type": kind, "index": index, name: value}));
            };
            event("content_block_start", "content_block", empty_block(&block));
            for delta in deltas(&block, raw_input) {
                event("content_block_delta", "delta", delta);
            }
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let delta = json!({"stop_reason": stop_reason(message), "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": usage(message)}));
        events.push(json!({"type": "message_stop"}));
        let text = |event: Value| {
            format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
        };
        events.into_iter().map(text).collect()
    }

    fn refusal(&self, violation: &str) -> Answer {
        let error = json!({"type": "invalid_request_error", "message": violation});
        Answer::raw(
            400,
            json!({"type": "error", "error": error, "request_id": "req_scripted"}).to_string(),
        )
    }
}

impl MessagesForm {
    /// The blocks of an answer. Thinking is kept, to be recognized.
    fn content(&mut self, message: &Message, request: &RecordedRequest) -> Vec<Value> {
        let mut blocks = Vec::new();
        if let Some(thinking) = &message.reasoning {
            let signature = format!("EqQB+scripted/{}==", self.given.len() + 1);
            let block = json!({"type": "thinking", "thinking": thinking, "signature": signature});
            let body = without_cache_markers(&request.body).unwrap_or_default();
            let messages = body["messages"].as_array().map_or(0, Vec::len);
            let given = GivenThinking { block: block.clone(), prefix: prefix(&body, messages) };
            self.given.insert(signature, given);
            blocks.push(block);
        }
        if let Some(text) = &message.content {
            blocks.push(json!({"type": "text", "text": text}));
        }
        let calls = message.calls.iter().map(|(id, name, arguments)| {
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        });
        blocks.extend(calls);
        blocks
    }

    /// Checks that thinking comes back as it was given, after the conversation that it was given for.
    fn check_thinking(&self, body: &Value) -> Checked {
        let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (at, message) in messages.iter().enumerate() {
            let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
            for (index, block) in blocks.iter().enumerate() {
                if block["type"] != "thinking" {
                    continue;
                }
                let place = format!("messages.{at}.content.{index}");
                let signature = block["signature"].as_str().unwrap_or_default();
                let given = self.given.get(signature).filter(|given| given.block == *block);
                let Some(given) = given else {
                    return Err(format!("{place}: Invalid `signature` in `thinking` block"));
                };
                if given.prefix != prefix(body, at) {
                    return Err(format!(
                        "{place}: Invalid signature in thinking block. The block is bound to a different conversation."
                    ));
                }
            }
        }
        Ok(())
    }
}

fn has_model_in_path(request: &RecordedRequest) -> bool {
    let path = request.path();
    path.ends_with(":streamRawPredict") || path.ends_with(":rawPredict")
}

/// What thinking in the message at `at` is bound to.
fn prefix(body: &Value, at: usize) -> Value {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    json!([body["system"], body["tools"], messages[..at]])
}

fn envelope(request: &RecordedRequest) -> Value {
    json!({"id": "msg_scripted", "type": "message", "role": "assistant", "model": request.body["model"],
        "content": [], "stop_reason": null, "stop_sequence": null})
}

fn stop_reason(message: &Message) -> Option<&str> {
    Some(match message.finish_reason.as_deref()? {
        "stop" => "end_turn",
        "tool_calls" => "tool_use",
        "length" => "max_tokens",
        other => other,
    })
}

fn usage(message: &Message) -> Value {
    let usage = message.usage.as_ref();
    let count = |place: &str| {
        usage.and_then(|usage| usage.pointer(place)).and_then(Value::as_u64).unwrap_or(0)
    };
    let read = count("/prompt_tokens_details/cached_tokens");
    let written = count("/prompt_tokens_details/cache_write_tokens");
    let mut counts = json!({
        "input_tokens": count("/prompt_tokens") - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": count("/completion_tokens"),
    });
    let reasoning = count("/completion_tokens_details/reasoning_tokens");
    if reasoning > 0 {
        counts["output_tokens_details"] = json!({"thinking_tokens": reasoning});
    }
    counts
}

/// A block before its first delta.
fn empty_block(block: &Value) -> Value {
    let mut empty = block.clone();
    for name in ["text", "thinking", "signature"] {
        if empty.get(name).is_some() {
            empty[name] = json!("");
        }
    }
    if empty.get("input").is_some() {
        empty["input"] = json!({});
    }
    empty
}

fn deltas(block: &Value, raw_input: Option<&str>) -> Vec<Value> {
    let pieces = |kind: &str, name: &str, text: Option<&str>| -> Vec<Value> {
        cut(text).map(|piece| json!({"type": kind, name: piece})).collect()
    };
    let mut deltas = pieces("thinking_delta", "thinking", block["thinking"].as_str());
    if let Some(signature) = block.get("signature") {
        deltas.push(json!({"type": "signature_delta", "signature": signature}));
    }
    deltas.extend(pieces("text_delta", "text", block["text"].as_str()));
    deltas.extend(pieces("input_json_delta", "partial_json", raw_input));
    deltas
}

/// Checks the body of a request, but for what thinking is bound to. The error says what is wrong with it.
pub fn check(body: &Value) -> Checked {
    check_keys("", body, &REQUEST_KEYS)?;
    body["max_tokens"].as_u64().filter(|most| *most > 0).ok_or("max_tokens: Field required")?;
    check_tools(body.get("tools"))?;
    check_system(body.get("system"))?;
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or("messages: at least one message is required")?;
    let mut ids = HashSet::new();
    // The calls of the last message, which the next one has to answer.
    let mut open = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        check_message(message, role, &mut ids, &mut open)
            .map_err(|error| format!("messages.{at}: {error}"))?;
    }
    match open.first() {
        None => Ok(()),
        Some(id) => Err(format!("`tool_use` ids were found without `tool_result` blocks: {id}")),
    }
}

fn check_message(
    message: &Value,
    role: &str,
    ids: &mut HashSet<String>,
    open: &mut Vec<String>,
) -> Checked {
    check_keys("", message, &["role", "content"])?;
    if message["role"] != role {
        return Err(format!("expected the role {role}, found {}", message["role"]));
    }
    let blocks = message["content"].as_array().filter(|blocks| !blocks.is_empty());
    let blocks = blocks.ok_or("content must be a list that is not empty")?;
    let mut answered = std::mem::take(open);
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("content.{index}");
        let kind = block["type"].as_str().unwrap_or_default();
        match (role, kind) {
            (_, "text") => check_text(&place, block)?,
            ("user", "tool_result") => {
                check_keys(&place, block, &["type", "tool_use_id", "content", "is_error"])?;
                check_result_content(&place, &block["content"])?;
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                let known = answered.iter().position(|call| call == id);
                answered.remove(known.ok_or(format!("{place}: unexpected `tool_use_id`: {id:?}"))?);
            }
            ("user", "image" | "document") => check_image_block(&place, block)?,
            ("assistant", "thinking") => {
                check_keys(&place, block, &["type", "thinking", "signature"])?;
            }
            ("assistant", "redacted_thinking") => check_keys(&place, block, &["type", "data"])?,
            ("assistant", "tool_use") => {
                check_call(&place, block)?;
                let id = block["id"].as_str().unwrap_or_default().to_owned();
                if !ids.insert(id.clone()) {
                    return Err(format!("{place}: `tool_use` ids must be unique: {id}"));
                }
                open.push(id);
            }
            _ => return Err(format!("{place}: unexpected block of a {role}: {kind:?}")),
        }
        if kind != "tool_result"
            && let Some(id) = answered.first()
        {
            return Err(format!("{place}: a {kind} before the `tool_result` of {id}"));
        }
    }
    match answered.first() {
        None => Ok(()),
        Some(id) => Err(format!("`tool_use` ids were found without `tool_result` blocks: {id}")),
    }
}

fn check_result_content(place: &str, content: &Value) -> Checked {
    for block in content.as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") => check_text(place, block)?,
            Some("image") => check_image_block(place, block)?,
            _ => return Err(format!("{place}: unexpected block in a result: {block}")),
        }
    }
    Ok(())
}

fn check_image_block(place: &str, block: &Value) -> Checked {
    check_keys(place, block, &["type", "source"])?;
    let source = &block["source"];
    check_keys(place, source, &["type", "media_type", "data"])?;
    if source["type"] != "base64" {
        return Err(format!("{place}: unexpected source {}", source["type"]));
    }
    let text = |name: &str| source[name].as_str().unwrap_or_default();
    let checked = match (block["type"].as_str(), text("media_type")) {
        (Some("document"), "application/pdf") => check_document(text("data")),
        (Some("image"), media_type) => check_image(media_type, text("data")),
        (kind, media_type) => Err(format!("{kind:?} of the media type {media_type:?}")),
    };
    checked.map_err(|error| format!("{place}: {error}"))
}

fn check_text(place: &str, block: &Value) -> Checked {
    check_keys(place, block, &["type", "text", "citations"])?;
    let text = block["text"].as_str().ok_or(format!("{place}: text must be a string"))?;
    if text.trim().is_empty() {
        return Err(format!("{place}: text content blocks must contain non-whitespace text"));
    }
    Ok(())
}

fn check_call(place: &str, block: &Value) -> Checked {
    check_keys(place, block, &["type", "id", "name", "input"])?;
    let id = block["id"].as_str().unwrap_or_default();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
        return Err(format!("{place}.id: String should match pattern '^[a-zA-Z0-9_-]+$': {id:?}"));
    }
    check_name(&block["name"])?;
    block["input"].as_object().map(|_| ()).ok_or(format!("{place}.input: expected an object"))
}

fn check_name(name: &Value) -> Checked {
    let name = name.as_str().unwrap_or_default();
    let is_valid = (1..=128).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    is_valid
        .then_some(())
        .ok_or(format!("name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$': {name:?}"))
}

fn check_tools(tools: Option<&Value>) -> Checked {
    let Some(tools) = tools else { return Ok(()) };
    let tools = tools.as_array().ok_or("tools must be a list")?;
    let mut names = HashSet::new();
    for tool in tools {
        check_keys("tools", tool, &["name", "description", "input_schema"])?;
        check_name(&tool["name"])?;
        if !names.insert(&tool["name"]) {
            return Err(format!("tools: Tool names must be unique: {}", tool["name"]));
        }
        if tool["input_schema"]["type"] != "object" {
            return Err(format!("tools: input_schema.type must be object: {tool}"));
        }
    }
    Ok(())
}

fn check_system(system: Option<&Value>) -> Checked {
    let Some(system) = system else { return Ok(()) };
    let blocks = system.as_array().ok_or("system must be a list")?;
    blocks.iter().try_for_each(|block| check_text("system", block))
}

/// The body without the markers for the cache, of which an endpoint takes at most four.
fn without_cache_markers(body: &Value) -> Result<Value, String> {
    let mut body = body.clone();
    let mut count = 0;
    let system = body["system"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let system = take_markers(system, &mut count)?;
    if body.get("system").is_some() {
        body["system"] = system.into();
    }
    for message in body["messages"].as_array_mut().into_iter().flatten() {
        if let Some(content) = message["content"].as_array_mut().map(std::mem::take) {
            message["content"] = take_markers(content, &mut count)?.into();
        }
    }
    if count > 4 {
        return Err(format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {count}."
        ));
    }
    Ok(body)
}

fn take_markers(mut blocks: Vec<Value>, count: &mut usize) -> Result<Vec<Value>, String> {
    for block in &mut blocks {
        let Some(marker) = block.as_object_mut().and_then(|it| it.shift_remove("cache_control"))
        else {
            continue;
        };
        *count += 1;
        let is_valid = marker["type"] == "ephemeral"
            && marker.get("ttl").is_none_or(|ttl| ttl == "5m" || ttl == "1h");
        if !is_valid {
            return Err(format!("cache_control: Input should be ephemeral: {marker}"));
        }
        if !["text", "tool_result"].iter().any(|kind| block["type"] == *kind) {
            return Err(format!("cache_control cannot be set for {} blocks", block["type"]));
        }
    }
    Ok(blocks)
}

/// Checks that an object has no other members.
fn check_keys(place: &str, object: &Value, known: &[&str]) -> Checked {
    let empty = Map::new();
    let members = object.as_object().unwrap_or(&empty);
    match members.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!("{place}.{key}: Extra inputs are not permitted")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(messages: Value) -> Checked {
        check(&json!({"model": "m", "max_tokens": 1, "messages": messages}))
    }

    #[test]
    fn a_whole_conversation_passes() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "x"}]});
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
        let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "ok"});
        let calls = json!({"role": "assistant", "content": [call("a"), call("b")]});
        let results = |content: Value| json!([user, calls, {"role": "user", "content": content}]);
        let text = json!({"type": "text", "text": "and"});
        assert_eq!(with(results(json!([result("a"), result("b"), text]))), Ok(()));
        for content in [
            json!([result("a")]),
            json!([text, result("a"), result("b")]),
            json!([result("a"), result("b"), result("c")]),
            json!([result("a"), result("a")]),
        ] {
            assert!(with(results(content.clone())).is_err(), "{content}");
        }
        assert!(with(json!([user, calls])).is_err());
    }

    #[test]
    fn what_endpoints_refuse_is_refused() {
        let text =
            |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let call = |id: &str, name: &str, input: Value| json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": input}]});
        for messages in [
            json!([]),
            json!([text(" \n")]),
            json!([text("x"), text("y")]),
            json!([{"role": "user", "content": "x"}]),
            json!([{"role": "user", "content": []}]),
            json!([{"role": "system", "content": [{"type": "text", "text": "x"}]}]),
            json!([text("x"), call("a:b", "t", json!({}))]),
            json!([text("x"), call("a", "t t", json!({}))]),
            json!([text("x"), call("a", "t", json!("{}"))]),
        ] {
            assert!(with(messages.clone()).is_err(), "{messages}");
        }
        let request = |more: Value| {
            let mut body = json!({"model": "m", "max_tokens": 1, "messages": [text("x")]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            check(&body)
        };
        assert_eq!(request(json!({"thinking": {"type": "adaptive"}})), Ok(()));
        assert!(request(json!({"native": 1})).is_err());
        let marked = |ttl: &str, count: usize| {
            let block = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": ttl}});
            without_cache_markers(&json!({"system": vec![block; count]}))
        };
        assert!(marked("1h", 4).is_ok() && marked("2h", 1).is_err() && marked("5m", 5).is_err());
        assert!(request(json!({"max_tokens": null})).is_err());
        assert!(request(json!({"system": [{"type": "text", "text": ""}]})).is_err());
        assert!(
            request(json!({"tools": [{"name": "t", "input_schema": {"type": "string"}}]})).is_err()
        );
    }
}
