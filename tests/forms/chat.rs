//! Endpoints that speak Chat Completions, each in its own way.

mod fields;
mod gateways;
mod odd_answers;

use super::{DELTA, ECHO, records};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer, check_request};

/// A streamed answer of these deltas, or of whole chunks with `choices`.
fn streamed(deltas: &[Value], finish_reason: &str) -> Answer {
    let mut body = String::new();
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]});
    for delta in deltas.iter().chain([&end]) {
        let chunk = if delta.get("choices").is_some() {
            delta.clone()
        } else {
            json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]})
        };
        body += &format!("data: {chunk}\n\n");
    }
    Answer::event_stream(body + "data: [DONE]\n\n")
}

/// An answer in one piece with this message.
fn whole(message: &Value) -> Answer {
    let reason = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
    let body =
        json!({"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": reason}]});
    Answer::raw(200, body.to_string())
}

/// A call of `echo`, as endpoints send it.
fn echo_call(id: &str) -> Value {
    json!({"index": 0, "id": id, "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"x\"}"}})
}

/// An agent that asks the server; `llm` are more lines of its section, indented by two.
fn agent_for(server: &ScriptedServer, llm: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: test-model\n  base_url: {}{llm}", server.url()), ECHO);
    sandbox
}

/// The messages of each request; a request must be one that strict endpoints accept but for the fields `vendor_fields`.
fn messages_of(server: &ScriptedServer, vendor_fields: &[&str]) -> Vec<Vec<Value>> {
    let requests = server.requests().into_iter().map(|request| {
        let mut body = request.body.clone();
        for message in body["messages"].as_array_mut().unwrap() {
            let message = message.as_object_mut().unwrap();
            vendor_fields.iter().for_each(|field| {
                message.remove(*field);
            });
            if message["content"].is_array() {
                message.insert("content".to_owned(), "text".into());
            }
        }
        assert_eq!(check_request(&body), Ok(()));
        request.body["messages"].as_array().unwrap().clone()
    });
    requests.collect()
}
