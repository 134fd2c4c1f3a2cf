//! The checks of a strict endpoint, which every request must pass before the script answers it.

use super::image_check::{check_document_url, check_image_url};
use serde_json::Value;
use std::collections::HashSet;

type Checked = Result<(), String>;

/// Checks the body of a request. The error says what is wrong with it.
pub fn check(body: &Value) -> Checked {
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("model must be a non-empty string".to_owned());
    }
    if !body["stream_options"].is_null() && body["stream"] != true {
        return Err("stream_options is only allowed with stream".to_owned());
    }
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty());
    check_messages(messages.ok_or("messages must be a non-empty array")?)?;
    match body.get("tools") {
        None => Ok(()),
        Some(Value::Array(tools)) if !tools.is_empty() => check_tools(tools),
        Some(_) => Err("tools must be a non-empty array".to_owned()),
    }
}

fn check_messages(messages: &[Value]) -> Checked {
    let mut ids = HashSet::new();
    // The ids of the calls that have no answer yet, in order.
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        check_message(message, &mut ids, &mut open)
            .map_err(|error| format!("messages[{at}]: {error}"))?;
    }
    match open.first() {
        None => Ok(()),
        Some(id) => Err(format!("the conversation ends without an answer to the call {id:?}")),
    }
}

fn check_message<'a>(
    message: &'a Value,
    ids: &mut HashSet<&'a str>,
    open: &mut Vec<&'a str>,
) -> Checked {
    check_fields(message)?;
    let role = message["role"].as_str().unwrap_or_default();
    if role == "tool" {
        let id = message["tool_call_id"].as_str().ok_or("tool_call_id must be a string")?;
        if open.first() != Some(&id) {
            return Err(format!("a tool message for {id:?}, but {:?} is next", open.first()));
        }
        open.remove(0);
    } else if let Some(id) = open.first() {
        return Err(format!("a {role} message before the answer to the call {id:?}"));
    }
    let calls = message.get("tool_calls");
    if calls.is_some() && role != "assistant" {
        return Err(format!("tool_calls in a {role} message"));
    }
    if let Some(calls) = calls {
        let calls = calls
            .as_array()
            .filter(|calls| !calls.is_empty())
            .ok_or("tool_calls must be a non-empty array")?;
        for call in calls {
            open.push(check_call(call, ids)?);
        }
    }
    check_content(message, role)
}

fn check_fields(message: &Value) -> Checked {
    let fields = message.as_object().ok_or("not an object")?;
    let known = ["role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"];
    if let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) {
        return Err(format!("unknown field {unknown:?}"));
    }
    let role = message["role"].as_str().unwrap_or_default();
    if !["system", "developer", "user", "assistant", "tool"].contains(&role) {
        return Err(format!("unknown role {}", message["role"]));
    }
    if fields.contains_key("tool_call_id") && role != "tool" {
        return Err(format!("tool_call_id in a {role} message"));
    }
    Ok(())
}

fn check_content(message: &Value, role: &str) -> Checked {
    match &message["content"] {
        Value::String(text) if text == "null" => Err("content is the word null".to_owned()),
        Value::String(text)
            if role == "assistant" && text.is_empty() && message.get("tool_calls").is_none() =>
        {
            Err("an assistant message with neither text nor tool calls".to_owned())
        }
        Value::String(_) => Ok(()),
        Value::Null if role == "assistant" && message.get("tool_calls").is_some() => Ok(()),
        Value::Array(parts) if role == "user" && !parts.is_empty() => {
            parts.iter().try_for_each(check_part)
        }
        other => Err(format!("content must be a string, not {other}")),
    }
}

/// Checks a part of a message of the user.
fn check_part(part: &Value) -> Checked {
    match part["type"].as_str() {
        Some("text") if part["text"].is_string() => Ok(()),
        Some("image_url") => check_image_url(part["image_url"]["url"].as_str().unwrap_or_default()),
        Some("file") if part["file"]["filename"].is_string() => {
            check_document_url(part["file"]["file_data"].as_str().unwrap_or_default())
        }
        _ => Err(format!("a bad part: {part}")),
    }
}

/// Checks one call and returns its id.
fn check_call<'a>(call: &'a Value, ids: &mut HashSet<&'a str>) -> Result<&'a str, String> {
    let id = call["id"].as_str().filter(|id| !id.is_empty()).ok_or("a call without an id")?;
    if !ids.insert(id) {
        return Err(format!("the call id {id:?} is used twice"));
    }
    if call["type"] != "function" {
        return Err(format!("the call {id:?} is of the unknown type {}", call["type"]));
    }
    if call["function"]["name"].as_str().is_none_or(|name| !is_name(name)) {
        return Err(format!("the call {id:?} has a bad name: {}", call["function"]["name"]));
    }
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    match serde_json::from_str(arguments) {
        Ok(Value::Object(_)) => Ok(id),
        _ => Err(format!(
            "the arguments of the call {id:?} are not the text of a JSON object: {arguments:?}"
        )),
    }
}

fn check_tools(tools: &[Value]) -> Checked {
    let mut names = HashSet::new();
    for tool in tools {
        let function = &tool["function"];
        let name = function["name"].as_str().unwrap_or_default();
        if tool["type"] != "function" || !is_name(name) {
            return Err(format!("a bad tool: {tool}"));
        }
        if !names.insert(name) {
            return Err(format!("the tool name {name:?} is used twice"));
        }
        if function.get("parameters").is_some_and(|parameters| parameters["type"] != "object") {
            return Err(format!("the parameters of {name:?} are not of type object"));
        }
    }
    Ok(())
}

pub(super) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(messages: Value) -> Checked {
        check(&json!({"model": "m", "messages": messages}))
    }

    fn call(id: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}})
    }

    #[test]
    fn a_whole_conversation_passes() {
        let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "ok"});
        let calls =
            json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]});
        let messages = json!([{"role": "user", "content": "x"}, calls, result("a"), result("b")]);
        assert_eq!(with(messages.clone()), Ok(()));
        let mut swapped = messages.clone();
        swapped.as_array_mut().unwrap().swap(2, 3);
        assert!(with(swapped).is_err());
        assert!(with(json!(messages.as_array().unwrap()[..3])).is_err());
        assert!(with(json!([messages[0], messages[2]])).is_err());
        assert!(with(json!([messages[0], calls, messages[0]])).is_err());
    }

    #[test]
    fn what_endpoints_refuse_is_refused() {
        let user = json!({"role": "user", "content": "x"});
        let twice =
            json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("a")]});
        for messages in [
            json!([]),
            json!([{"role": "narrator", "content": "x"}]),
            json!([{"role": "user", "content": null}]),
            json!([{"role": "user", "content": "null"}]),
            json!([{"role": "user", "content": "x", "extra": 1}]),
            json!([user, {"role": "assistant", "content": ""}]),
            json!([user, {"role": "assistant", "content": "x", "tool_calls": []}]),
            json!([user, twice]),
        ] {
            assert!(with(messages.clone()).is_err(), "{messages}");
        }
        assert!(check(&json!({"model": "", "messages": [user]})).is_err());
        assert!(check(&json!({"model": "m", "messages": [user], "stream_options": {}})).is_err());
        let tool = |name: &str, kind: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": kind}}});
        let tools =
            |tools: Value| check(&json!({"model": "m", "messages": [user], "tools": tools}));
        assert_eq!(tools(json!([tool("a", "object"), tool("b", "object")])), Ok(()));
        assert!(tools(json!([tool("a", "object"), tool("a", "object")])).is_err());
        assert!(tools(json!([tool("a b", "object")])).is_err());
        assert!(tools(json!([tool("a", "string")])).is_err());
    }
}
