//! Arguments of calls that are cut off, are no object, or are not where the form has them.

use super::{DELTA, records};
use crate::images::FORMS;
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// A tool that runs without arguments too.
const LS: &str = "  - name: ls\n    exec: echo listing ${path}\n    parameters: [{name: path, type: string, default: everything}]\n";

/// What a call of `LS` without arguments prints.
const DEFAULT: &str = "listing everything\n";

const SENT: &str = "listing one\n";

fn events(events: &[Value]) -> String {
    let frame = |event: &Value| match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    events.iter().map(frame).collect()
}

/// A stream of Chat Completions with these calls, one in each chunk.
fn chat(calls: &[Value], reason: &str) -> String {
    let choice = |delta: Value, reason: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let calls = calls.iter().map(|call| choice(json!({"tool_calls": [call]}), Value::Null));
    let end = choice(json!({}), reason.into());
    events(&calls.chain([end]).collect::<Vec<_>>()) + "data: [DONE]\n\n"
}

/// A stream of Messages with these blocks, each with the pieces of its input.
fn messages(blocks: &[(Value, Vec<Value>)], reason: &str) -> String {
    let start = json!({"type": "message", "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}});
    let mut all = vec![json!({"type": "message_start", "message": start})];
    for (index, (block, pieces)) in blocks.iter().enumerate() {
        all.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        all.extend(pieces.iter().map(|piece| {
            let delta = json!({"type": "input_json_delta", "partial_json": piece});
            json!({"type": "content_block_delta", "index": index, "delta": delta})
        }));
        all.push(json!({"type": "content_block_stop", "index": index}));
    }
    all.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}));
    all.push(json!({"type": "message_stop"}));
    events(&all)
}

fn tool_use(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "ls", "input": input})
}

/// A stream of Responses with this call.
fn responses(item: &Value) -> String {
    let response = json!({"status": "completed", "model": "m", "output": [item]});
    events(&[
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": response}),
    ])
}

fn gemini(parts: &[Value], reason: &str) -> String {
    let candidate =
        json!({"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0});
    events(&[json!({"candidates": [candidate]})])
}

/// The observations of the calls of an answer, and the record of it.
fn observed(form: &str, answer: Answer) -> (Vec<String>, Value) {
    let server = ScriptedServer::start(vec![answer, Answer::text("done")]);
    let sandbox = Sandbox::new(DELTA);
    let url =
        if form == "openai" || form == "responses" { server.url() } else { server.root_url() };
    sandbox.agent(&format!("provider: {form}\n  model: test-model\n  base_url: {url}"), LS);
    let (_, key) = FORMS.into_iter().find(|(name, _)| *name == form).unwrap();
    sandbox.run_command("hello", &[]).env(key, "k-1").output().expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
    (sandbox.observations(), records(&sandbox).remove(0))
}

/// The tool ran with its defaults.
#[test]
fn c_37_1_a_call_that_was_cut_off_before_its_arguments_does_not_run() {
    let missing = "The arguments of this call are missing; it was not run.";
    let cut = || (tool_use("b", json!({})), vec![]);
    let whole = (tool_use("a", json!({})), vec![json!("{\"path\":\"one\"}")]);
    let body = json!({"type": "message", "role": "assistant", "model": "m", "stop_reason": "max_tokens",
        "content": [tool_use("b", json!({}))], "usage": {"input_tokens": 9, "output_tokens": 1}});
    let call = |name: &str| json!({"functionCall": {"name": name}});
    for (form, text, expected) in [
        ("anthropic", messages(&[cut()], "max_tokens"), 1),
        ("anthropic", messages(&[(tool_use("b", json!({})), vec![json!("")])], "max_tokens"), 1),
        ("anthropic", messages(&[cut()], "model_context_window_exceeded"), 1),
        ("anthropic", messages(&[whole, cut()], "max_tokens"), 2),
        ("anthropic", body.to_string(), 1),
        ("gemini", gemini(&[call("ls")], "MAX_TOKENS"), 1),
    ] {
        let answer = if text.starts_with('{') {
            Answer::raw(200, text.clone())
        } else {
            Answer::event_stream(text.clone())
        };
        let (observations, _) = observed(form, answer);
        assert_eq!(observations.len(), expected, "{text}");
        assert!(observations[expected - 1].starts_with(missing), "{text} {observations:?}");
        assert!(expected == 1 || observations[0] == SENT, "{text} {observations:?}");
    }
    // What came before the cut is whole, and a whole answer may have a call without arguments.
    let two = [cut(), (tool_use("c", json!({})), vec![json!("{\"pa")])];
    let (observations, _) =
        observed("anthropic", Answer::event_stream(messages(&two, "max_tokens")));
    assert_eq!(observations[0], DEFAULT);
    let (observations, _) =
        observed("anthropic", Answer::event_stream(messages(&[cut()], "tool_use")));
    assert_eq!(observations, [DEFAULT]);
}

/// They were dropped, and the tool ran with its defaults.
#[test]
fn c_37_1_arguments_that_are_no_object_are_refused_and_recorded() {
    let call = |arguments: &Value| json!({"index": 0, "id": "a", "type": "function", "function": {"name": "ls", "arguments": arguments}});
    let list = json!([{"path": "one"}]);
    let item = |arguments: &Value| json!({"type": "function_call", "id": "f", "call_id": "a", "name": "ls", "arguments": arguments, "status": "completed"});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call(&list)]});
    let whole =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let partial = json!({"functionCall": {"name": "ls", "willContinue": true, "partialArgs": [{"jsonPath": "$.path", "stringValue": "on"}]}});
    let part = json!({"functionCall": {"name": "ls", "args": list}});
    for (form, text) in [
        ("openai", chat(&[call(&list)], "tool_calls")),
        ("openai", chat(&[call(&json!(["one"]))], "tool_calls")),
        ("openai", chat(&[call(&json!(5))], "tool_calls")),
        ("openai", chat(&[call(&json!(true))], "tool_calls")),
        ("openai", whole.to_string()),
        ("responses", responses(&item(&list))),
        ("gemini", gemini(&[part], "STOP")),
        ("gemini", gemini(&[partial], "STOP")),
        ("anthropic", messages(&[(tool_use("a", list.clone()), vec![])], "tool_use")),
    ] {
        let answer = if text.starts_with('{') {
            Answer::raw(200, text.clone())
        } else {
            Answer::event_stream(text.clone())
        };
        let (observations, record) = observed(form, answer);
        assert!(
            observations[0].starts_with("Invalid arguments for tool `ls`"),
            "{text} {observations:?}"
        );
        let recorded = &record["response"]["choices"][0]["message"]["tool_calls"][0];
        assert_ne!(recorded["function"]["arguments"], "", "{text}");
    }
    // PHP has no other empty object.
    for none in [json!([]), Value::Null, json!({})] {
        let answer = Answer::event_stream(chat(&[call(&none)], "tool_calls"));
        assert_eq!(observed("openai", answer).0, [DEFAULT]);
    }
}

/// The call ran with the defaults of its tool.
#[test]
fn c_37_1_arguments_in_another_place_are_taken_where_no_other_call_can_have_them() {
    let path = json!({"path": "one"});
    let call =
        |function: Value| json!({"index": 0, "id": "a", "type": "function", "function": function});
    let top = json!({"index": 0, "id": "a", "function": {"name": "ls"}, "arguments": "{\"path\":\"one\"}"});
    let piece = |index: Value, id: Value, name: Value, arguments: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
    let numbered = |first: Value, second: Value| {
        let rest = |index: &Value, text: &str| piece(index.clone(), Value::Null, Value::Null, text);
        let start = |index: &Value, id: &str| piece(index.clone(), id.into(), "ls".into(), "");
        chat(
            &[
                start(&first, "a"),
                start(&second, "b"),
                rest(&first, "{\"path\":\"one\"}"),
                rest(&second, "{\"path\":\"two\"}"),
            ],
            "tool_calls",
        )
    };
    let item = json!({"type": "function_call", "id": "f", "call_id": "a", "name": "ls", "parameters": path, "status": "completed"});
    let block = json!({"type": "tool_use", "id": "a", "name": "ls", "arguments": path});
    for (form, text, expected) in [
        (
            "openai",
            chat(&[call(json!({"name": "ls", "parameters": path}))], "tool_calls"),
            vec![SENT],
        ),
        ("openai", chat(&[call(json!({"name": "ls", "input": path}))], "tool_calls"), vec![SENT]),
        (
            "openai",
            chat(&[call(json!({"name": "ls", "args": path, "arguments": "{}"}))], "tool_calls"),
            vec![SENT],
        ),
        ("openai", chat(&[top], "tool_calls"), vec![SENT]),
        ("openai", numbered(json!("0"), json!("1")), vec![SENT, "listing two\n"]),
        ("openai", numbered(json!(0.0), json!(1.0)), vec![SENT, "listing two\n"]),
        ("responses", responses(&item), vec![SENT]),
        ("anthropic", messages(&[(block, vec![])], "tool_use"), vec![SENT]),
        ("anthropic", messages(&[(tool_use("a", json!({})), vec![path])], "tool_use"), vec![SENT]),
    ] {
        let (observations, _) = observed(form, Answer::event_stream(text.clone()));
        assert_eq!(observations, expected, "{text}");
    }
    // A number may have been written in another way; a call without a name may be the one with the arguments.
    let stray = [
        piece(json!(0), json!("a"), json!("ls"), ""),
        piece(json!(1), json!("b"), Value::Null, "{\"path\":\"one\"}"),
    ];
    for calls in [&[call(json!({"name": "ls", "parameters": {"path": 1.5}}))][..], &stray] {
        let text = chat(calls, "tool_calls");
        let (observations, _) = observed("openai", Answer::event_stream(text.clone()));
        let refused = "they must be a JSON object, not an array";
        assert!(observations[0].contains(refused), "{text} {observations:?}");
    }
}
