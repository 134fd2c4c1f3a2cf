//! Messages as the conventions of OpenTelemetry have them: a role, and parts.

use crate::history::{History, Iteration};
use crate::llm;
use serde_json::{Value as Json, json};

/// What people said to the agent.
pub fn of_people(history: &History<'_>) -> Json {
    history.messages().map(|said| json!({"role": "user", "parts": [text(said.what)]})).collect()
}

/// The result of a run.
pub fn of_result(result: &Json) -> Json {
    let words = result.as_str().map_or_else(|| result.to_string(), str::to_owned);
    json!([{"role": "assistant", "parts": [text(&words)], "finish_reason": "stop"}])
}

/// An answer of the LLM.
pub fn of_thought(told: &Iteration<'_>, reasoning: Option<&str>) -> Json {
    let thought = told.thought.what;
    let mut parts = Vec::new();
    parts.extend(reasoning.map(|words| json!({"type": "reasoning", "content": words})));
    parts.extend((!thought.content.is_empty()).then(|| text(&thought.content)));
    parts.extend(told.calls.iter().map(|call| {
        tool_call(&call.id, &call.asked.function.name, &call.asked.function.arguments)
    }));
    // The conventions say `tool_call` where Chat Completions says `tool_calls`.
    let reason = match thought.finish_reason.as_deref() {
        Some("tool_calls") => "tool_call",
        Some(reason) => reason,
        None if thought.tool_calls.is_empty() => "stop",
        None => "tool_call",
    };
    json!([{"role": "assistant", "parts": parts, "finish_reason": reason}])
}

/// The messages of a request.
pub fn of_request(request: &Json) -> Json {
    let messages = request.get("messages").and_then(Json::as_array);
    messages.into_iter().flatten().map(of_message).collect()
}

/// The tools of a request; `None` when it has none.
pub fn of_tools(request: &Json) -> Option<Json> {
    let tools = request.get("tools")?.as_array()?;
    let tool = |tool: &Json| {
        let mut shown = json!({"type": "function"});
        for name in ["name", "description", "parameters"] {
            if let Some(value) = tool.get("function").and_then(|function| function.get(name)) {
                shown[name] = value.clone();
            }
        }
        shown
    };
    Some(tools.iter().map(tool).collect())
}

fn of_message(message: &Json) -> Json {
    let role = message.get("role").and_then(Json::as_str).unwrap_or_default();
    let words = llm::text_of_message(message);
    if role == "tool" {
        let part =
            json!({"type": "tool_call_response", "id": message["tool_call_id"], "response": words});
        return json!({"role": role, "parts": [part]});
    }
    let mut parts = Vec::new();
    let reasoning = message.get("reasoning_content").and_then(Json::as_str);
    parts.extend(reasoning.map(|words| json!({"type": "reasoning", "content": words})));
    parts.extend((!words.is_empty()).then(|| text(&words)));
    let calls = message.get("tool_calls").and_then(Json::as_array);
    parts.extend(calls.into_iter().flatten().map(|call| {
        let word = |place: &str| call.pointer(place).and_then(Json::as_str).unwrap_or_default();
        tool_call(word("/id"), word("/function/name"), word("/function/arguments"))
    }));
    json!({"role": role, "parts": parts})
}

fn tool_call(id: &str, name: &str, arguments: &str) -> Json {
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| Json::from(arguments));
    json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments})
}

fn text(words: &str) -> Json {
    json!({"type": "text", "content": words})
}
