//! How streams are read: cut anywhere, and as other servers than OpenAI's send them.

use super::super::in_process::{Outcome, ask, provider};
use delta_llm::llm::LlmError;
use delta_words::{Reply, WireForm};
use serde_json::{Value, json};
use test_support::server::{Answer, ScriptedServer};

const FORM: WireForm = WireForm::Responses;

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn item_done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn completed(output: &Value) -> Value {
    let usage = json!({"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2}, "output_tokens_details": {"reasoning_tokens": 1}, "cost": 0.25});
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "model": "big", "output": output, "usage": usage}})
}

fn streamed(body: impl Into<Vec<u8>>) -> Outcome {
    let server = ScriptedServer::start(vec![Answer::event_stream(body)]);
    ask(&mut provider(FORM, &server.url()), "m")
}

fn whole(response: &Value) -> Outcome {
    let server = ScriptedServer::start(vec![Answer::raw(200, response.to_string())]);
    ask(&mut provider(FORM, &server.url()), "m")
}

fn error_of(outcome: Outcome) -> String {
    match outcome.0 {
        Err(LlmError::Failed { message, .. }) => message,
        other => panic!("{other:?}"),
    }
}

/// A stream with everything, in events.
fn long_stream() -> Vec<Value> {
    let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm, ja"}], "encrypted_content": "gAAAA=="});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "t", "arguments": "{\"a\":\"ä€😀\"}"});
    let delta = |kind: &str, index: u64, delta: &str| json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta});
    vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA"}}),
        delta("reasoning_summary_text", 0, "hm, "),
        delta("reasoning_summary_text", 0, "ja"),
        item_done(0, &thought),
        json!({"type": "keepalive"}),
        delta("output_text", 1, "Gr\u{fc}\u{df}e "),
        delta("output_text", 1, "\u{1f600}"),
        item_done(1, &message("Gr\u{fc}\u{df}e \u{1f600}")),
        delta("function_call_arguments", 2, "{\"a\":"),
        item_done(2, &call),
        completed(&json!([])),
    ]
}

fn check_long_reply(reply: &Reply) {
    assert_eq!(reply.content.as_deref(), Some("Gr\u{fc}\u{df}e \u{1f600}"));
    assert_eq!(reply.reasoning.as_deref(), Some("hm, ja"));
    assert_eq!(reply.tool_calls[0].function.arguments.as_str(), "{\"a\":\"ä€😀\"}");
    assert_eq!(
        (&*reply.tool_calls[0].id, reply.finish_reason.as_deref()),
        ("c", Some("tool_calls"))
    );
    let parts = reply.native.as_ref().unwrap().parts.as_array().unwrap();
    assert_eq!((parts.len(), &parts[0]["encrypted_content"]), (3, &json!("gAAAA==")));
    let usage = reply.usage.as_ref().unwrap();
    assert_eq!((&*usage.model, usage.input_tokens, usage.output_tokens), ("big", 9, 4));
    assert_eq!((usage.cached_input_tokens, usage.cost_usd), (5, Some(0.25)));
    assert_eq!((usage.cache_write_tokens, usage.reasoning_tokens), (Some(2), Some(1)));
}

#[test]
fn c_7_1_a_stream_may_come_in_pieces_of_every_size() {
    let body = stream(&long_stream());
    let sizes: Vec<_> = (1..=40).chain([99, 1000]).collect();
    let answers = sizes.iter().map(|size| Answer::event_stream(&*body).in_pieces(*size));
    let server = ScriptedServer::start(answers.collect::<Vec<_>>());
    let mut provider = provider(FORM, &server.url());
    for _ in sizes {
        check_long_reply(&ask(&mut provider, "m").0.unwrap());
    }
}

#[test]
fn c_7_4_a_stream_that_breaks_off_anywhere_is_a_failed_try() {
    let body = stream(&long_stream());
    // Only the empty line at the end of the last event is not needed.
    let needed = body.len() - "\n\n".len();
    let answers = (0..=body.len()).map(|end| Answer::event_stream(&*body).break_off(end));
    let server = ScriptedServer::start(answers.collect::<Vec<_>>());
    let mut provider = provider(FORM, &server.url());
    for end in 0..=body.len() {
        let (result, attempts) = ask(&mut provider, "m");
        match result {
            Ok(reply) => {
                assert!(end >= needed, "{end} of {}", body.len());
                check_long_reply(&reply);
            }
            Err(_) => {
                assert!(end < body.len(), "{end}");
                assert_eq!(attempts.len(), 1);
            }
        }
    }
    // The same, where the connection ends as it should: at every event.
    let events = long_stream();
    for count in 0..events.len() {
        let error = error_of(streamed(stream(&events[..count])));
        assert_eq!(error, "the response broke off: the stream ended early", "{count}");
    }
}

#[test]
fn c_23_1_the_items_count_and_the_last_event_only_adds_to_them() {
    // The list of the last event has another text, and an item that came without an event.
    let call = json!({"type": "function_call", "call_id": "c", "name": "t", "arguments": {"a": 1}});
    let last = completed(&json!([message("other"), call]));
    let reply = streamed(stream(&[item_done(0, &message("text")), last])).0.unwrap();
    assert_eq!(reply.content.as_deref(), Some("text"));
    assert_eq!(reply.tool_calls[0].function.arguments.as_str(), "{\"a\":1}");
    assert_eq!(reply.native, None);
    // Without any event for an item.
    let reply = streamed(stream(&[completed(&json!([message("text")]))])).0.unwrap();
    assert_eq!(
        (reply.content.as_deref(), reply.finish_reason.as_deref()),
        (Some("text"), Some("stop"))
    );
    // Only pieces.
    let piece = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "text"});
    let reply = streamed(stream(&[piece, completed(&json!([]))])).0.unwrap();
    assert_eq!(reply.content.as_deref(), Some("text"));
    // Without a response.
    let end = json!({"type": "response.completed"});
    let reply = streamed(stream(&[item_done(0, &message("text")), end])).0.unwrap();
    assert_eq!((reply.content.as_deref(), reply.usage), (Some("text"), None));
}

#[test]
fn c_23_1_several_messages_are_paragraphs() {
    let phased = |text: &str, phase: &str| {
        let mut item = message(text);
        item["phase"] = json!(phase);
        item
    };
    let items = [
        phased("I look.", "commentary"),
        phased("", "commentary"),
        phased("It is so.", "final_answer"),
    ];
    let delta = |index: u64, delta: &str| json!({"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": delta});
    let events = [
        delta(0, "I "),
        delta(0, "look."),
        delta(1, ""),
        delta(2, "It is so."),
        completed(&json!(items)),
    ];
    // `ask` compares the text with the pieces.
    let reply = streamed(stream(&events)).0.unwrap();
    assert_eq!(reply.content.as_deref(), Some("I look.\n\nIt is so."));
    assert_eq!(reply.native.unwrap().parts, json!(items));
}

#[test]
fn c_23_1_a_refusal_and_an_incomplete_answer_say_why() {
    let refusal = json!({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]});
    let reply = whole(&json!({"status": "completed", "output": [refusal]})).0.unwrap();
    assert_eq!((reply.refusal.as_deref(), reply.content), (Some("I cannot."), None));
    let thought =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"});
    let incomplete = |reason: Value, output: Value| {
        let details = json!({"reason": reason});
        whole(&json!({"status": "incomplete", "error": null, "incomplete_details": details, "output": output})).0.unwrap()
    };
    for (reason, expected) in [
        ("max_output_tokens", "length"),
        ("content_filter", "content_filter"),
        ("other", "incomplete"),
    ] {
        let reply = incomplete(json!(reason), json!([thought, message("half")]));
        assert_eq!(reply.finish_reason.as_deref(), Some(expected));
        assert_eq!(reply.content.as_deref(), Some("half"));
        assert!(reply.native.is_some());
    }
    // Reasoning that led to nothing is not accepted back.
    let reply = incomplete(Value::Null, json!([thought]));
    assert_eq!((reply.finish_reason.as_deref(), reply.native), (Some("length"), None));
    let reply = incomplete(Value::Null, json!([thought, message("half"), thought]));
    assert_eq!(reply.native.unwrap().parts, json!([thought, message("half")]));
}

#[test]
fn c_23_2_reasoning_without_its_content_is_known_to_nobody() {
    let empty =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null});
    let shown = json!({"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "so"}]});
    let native = |output: Value| {
        let reply = whole(&json!({"output": output})).0.unwrap();
        (reply.reasoning, reply.native.map(|native| native.parts))
    };
    assert_eq!(native(json!([empty, message("a")])), (None, None));
    let parts = json!([shown, message("a")]);
    assert_eq!(native(json!([empty, shown, message("a")])), (Some("so".to_owned()), Some(parts)));
}

#[test]
fn c_7_3_what_is_no_answer_is_a_failed_try() {
    let error = json!({"code": "server_error", "message": "it broke"});
    let reported = "the endpoint reported an error: it broke";
    let failed = json!({"status": "failed", "error": error, "output": []});
    let failed_event = json!({"type": "response.failed", "response": failed});
    assert_eq!(error_of(streamed(stream(&[item_done(0, &message("x")), failed_event]))), reported);
    assert_eq!(error_of(whole(&failed)), reported);
    assert_eq!(error_of(whole(&json!({"error": error}))), reported);
    let event =
        json!({"type": "error", "code": "server_error", "message": "it broke", "param": null});
    assert_eq!(error_of(streamed(stream(&[event]))), reported);
    assert_eq!(error_of(streamed(stream(&[json!({"error": error})]))), reported);
    let nameless =
        json!({"type": "response.failed", "response": {"status": "failed", "error": null}});
    assert_eq!(
        error_of(streamed(stream(&[nameless]))),
        "the endpoint reported an error: the response failed"
    );
    assert_eq!(
        error_of(whole(&json!({"id": "x"}))),
        "the response has no `output`: {\"id\":\"x\"}"
    );
    let queued = json!({"status": "queued", "output": []});
    assert_eq!(error_of(whole(&queued)), "the response ended with the status `queued`");
}
