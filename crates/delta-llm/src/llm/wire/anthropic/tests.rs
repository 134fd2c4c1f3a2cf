use super::super::super::reply_assembler::StreamError;
use super::super::test_head;
use super::*;
use delta_http::retry::RetryDecision;
use delta_words::{NativeParts, parse_reply};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

const CONTEXT: DecodeContext<'_> = DecodeContext { model: "m", basis: Some("b") };

fn codec_at(base_url: &str) -> AnthropicCodec {
    AnthropicCodec::new(CodecSettings {
        model: "m".to_owned(),
        base_url: base_url.to_owned(),
        stream: true,
        api_version: Some("2026-10-21".to_owned()),
    })
}

fn encode_with(body: &Value, options: &EncodeOptions) -> (Value, String) {
    let text = Arc::new(body.to_string());
    let body = NeutralBody { text: &text, has_native: true, run_id: "r", images: None };
    let encoded = codec_at("https://api.anthropic.com").encode(&body, options).unwrap();
    assert!(encoded.is_changed);
    (serde_json::from_str(&encoded.body).unwrap(), encoded.basis.unwrap())
}

fn encode(body: &Value) -> Value {
    encode_with(body, &EncodeOptions::default()).0
}

fn messages_of(messages: Value) -> Value {
    encode(&json!({"model": "m", "messages": messages}))["messages"].take()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn neutral_call(id: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "t", "arguments": arguments}})
}

fn result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

/// An answer with one call and thinking; `basis` is what the thinking is bound to.
fn thought(text: &str, basis: &str) -> Value {
    let parts = json!([
        {"type": "thinking", "thinking": "so", "signature": "s+/="},
        text_block("\n"),
        text_block("I look"),
        {"type": "tool_use", "id": "c", "name": "t", "input": {"n": 1.5}, "caller": {"type": "direct"}},
    ]);
    let native = NativeParts {
        form: "anthropic".to_owned(),
        model: "m".to_owned(),
        endpoint: None,
        basis: Some(basis.to_owned()),
        parts,
    };
    json!({"role": "assistant", "content": text, "tool_calls": [neutral_call("c", r#"{"n":1.50}"#)], "native": native})
}

#[test]
fn c_23_1_a_request_has_the_members_of_messages() {
    let parameters = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    let body = encode(&json!({
        "model": "neutral", "output_config": {"effort": "high"}, "max_tokens": 9, "thinking": {"type": "adaptive"},
        "tools": [{"type": "function", "function": {"name": "t", "description": "d", "parameters": parameters}}],
        "messages": [{"role": "system", "content": "one"}, {"role": "system", "content": ""}, {"role": "system", "content": "two"}, user("hi")],
        "stream": true, "stream_options": {"include_usage": true}}));
    let expected = json!({
        "model": "m", "max_tokens": 9, "output_config": {"effort": "high"}, "thinking": {"type": "adaptive"},
        "tools": [{"name": "t", "description": "d", "input_schema": parameters}],
        "system": [text_block("one"), text_block("two")],
        "messages": [{"role": "user", "content": [text_block("hi")]}],
        "stream": true});
    assert_eq!(body.to_string(), expected.to_string());
    let whole = encode(&json!({"model": "m", "messages": [user("hi")]}));
    assert_eq!(
        whole.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["model", "max_tokens", "messages"]
    );
    assert_eq!(whole["max_tokens"], 32_000);
}

#[test]
fn c_23_1_results_come_first_in_the_next_user_message() {
    let answer = json!({"role": "assistant", "content": null, "tool_calls": [neutral_call("a", "{}"), neutral_call("b", "not JSON")]});
    let messages = json!([user("go"), answer, {"role": "system", "content": "early"}, result("a", "one"), result("b", ""),
        user("more"), {"role": "system", "content": "late"}]);
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    assert_eq!(
        messages_of(messages),
        json!([
            {"role": "user", "content": [text_block("go")]},
            {"role": "assistant", "content": [call("a"), call("b")]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"}, {"type": "tool_result", "tool_use_id": "b"},
                text_block("early"), text_block("more"), text_block("late")]},
        ])
    );
}

#[test]
fn c_23_1_what_the_endpoint_rejects_is_left_out() {
    let messages = json!([user("a"), {"role": "assistant", "content": " \n"}, user(""), user("b")]);
    assert_eq!(
        messages_of(messages),
        json!([{"role": "user", "content": [text_block("a"), text_block("b")]}])
    );
    let answer = json!({"role": "assistant", "content": "x"});
    let sent = messages_of(json!([answer, user(" "), answer]));
    let roles: Vec<_> =
        sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(sent[2]["content"], json!([text_block("[no message]")]));
    let alone = messages_of(json!([{"role": "system", "content": "s"}]));
    assert_eq!(alone, json!([{"role": "user", "content": [text_block("s")]}]));
}

#[test]
fn c_23_1_an_id_that_the_form_does_not_accept_is_replaced_in_call_and_result() {
    let answer = json!({"role": "assistant", "content": null, "tool_calls": [neutral_call("call:1", "{}"), neutral_call("ok-_9", "{}")]});
    let messages =
        messages_of(json!([user("go"), answer, result("call:1", "x"), result("ok-_9", "y")]));
    let id = messages[1]["content"][0]["id"].as_str().unwrap();
    // printf call:1 | sha256sum
    assert_eq!(id, "d_0af6315558b41599b4a0");
    assert_eq!(messages[2]["content"][0]["tool_use_id"], id);
    assert_eq!(messages[1]["content"][1]["id"], "ok-_9");
    assert_eq!(messages[2]["content"][1]["tool_use_id"], "ok-_9");
}

#[test]
fn c_23_1_numbers_are_sent_as_the_model_wrote_them() {
    let call = neutral_call("c", r#"{"big":123456789012345678901234567890,"x":1.50}"#);
    let body = json!({"messages": [user("go"), {"role": "assistant", "tool_calls": [call]}, result("c", "r")]});
    let text = Arc::new(body.to_string());
    let body = NeutralBody { text: &text, has_native: false, run_id: "r", images: None };
    let encoded = codec_at("http://x").encode(&body, &EncodeOptions::default()).unwrap();
    assert!(
        encoded.body.contains(r#""input":{"big":123456789012345678901234567890,"x":1.50}"#),
        "{}",
        encoded.body
    );
}

#[test]
fn c_23_1_files_are_sent_by_their_data_or_their_address() {
    let parts = json!([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA="}},
        {"type": "image_url", "image_url": {"url": "data:application/pdf;base64,BBB="}}, {"type": "image_url", "image_url": {"url": "https://x/y.png"}}]);
    let base64 = |kind: &str, media: &str, data: &str| json!({"type": kind, "source": {"type": "base64", "media_type": media, "data": data}});
    let blocks = json!([text_block("see"), base64("image", "image/png", "AAA="), base64("document", "application/pdf", "BBB="),
        {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}]);
    let answer = json!({"role": "assistant", "tool_calls": [neutral_call("c", "{}")]});
    let messages = messages_of(
        json!([{"role": "user", "content": parts}, answer, {"role": "tool", "tool_call_id": "c", "content": parts}]),
    );
    assert_eq!(messages[0]["content"], blocks);
    assert_eq!(messages[2]["content"][0]["content"], blocks);
}

#[test]
fn c_23_1_thinking_goes_back_as_it_came() {
    let messages = json!([user("go"), thought("\nI look", "other"), result("c", "r")]);
    let text = Arc::new(json!({"messages": messages}).to_string());
    let body = NeutralBody { text: &text, has_native: true, run_id: "r", images: None };
    let encoded = codec_at("x").encode(&body, &EncodeOptions::default()).unwrap();
    // But for a blank text, which the endpoint rejects, and the number as the model wrote it.
    let content = concat!(
        r#"[{"type":"thinking","thinking":"so","signature":"s+/="},{"type":"text","text":"I look"},"#,
        r#"{"type":"tool_use","id":"c","name":"t","input":{"n":1.50},"caller":{"type":"direct"}}]"#,
    );
    let message = format!(r#"{{"role":"assistant","content":{content}}}"#);
    assert!(encoded.body.contains(&message), "{}", encoded.body);
}

#[test]
fn c_23_1_thinking_that_does_not_belong_to_the_answer_is_left_out() {
    let plain = json!([text_block("\nI look"), {"type": "tool_use", "id": "c", "name": "t", "input": {"n": 1.5}}]);
    let sent = |change: &dyn Fn(&mut Value)| {
        let mut answer = thought("\nI look", "other");
        change(&mut answer);
        messages_of(json!([user("go"), answer, result("c", "r")]))[1]["content"].take()
    };
    assert_eq!(sent(&|_| ()).as_array().unwrap().len(), 3);
    let without = |change: &dyn Fn(&mut Value)| assert_eq!(sent(change), plain);
    let changed = sent(&|answer| answer["content"] = "I looked".into());
    assert_eq!(
        (&changed[0], changed[1]["type"].as_str()),
        (&text_block("I looked"), Some("tool_use"))
    );
    without(&|answer| answer["native"]["model"] = "n".into());
    without(&|answer| answer["native"]["form"] = "gemini".into());
    without(&|answer| answer["native"]["parts"] = "none".into());
    without(&|answer| answer["native"]["parts"][3]["input"] = json!({"n": 2}));
    without(&|answer| answer["native"]["parts"][3]["id"] = "d".into());
    without(&|answer| answer["native"]["parts"][3]["name"] = "u".into());
    without(&|answer| answer["native"]["parts"].as_array_mut().unwrap().truncate(3));
    without(&|answer| {
        let call = answer["native"]["parts"][3].clone();
        answer["native"]["parts"].as_array_mut().unwrap().push(call);
    });
}

#[test]
fn c_23_1_thinking_without_its_conversation_is_left_out_once_the_endpoint_rejects_it() {
    let first = json!({"messages": [{"role": "system", "content": "s"}, user("go")]});
    let (_, basis) = encode_with(&first, &EncodeOptions::default());
    let with = |system: &str, options: &EncodeOptions| {
        let body = json!({"messages": [{"role": "system", "content": system}, user("go"), thought("\nI look", &basis), result("c", "r")]});
        encode_with(&body, options).0["messages"][1]["content"].as_array().unwrap().len()
    };
    let all = EncodeOptions::default();
    let bound = EncodeOptions { drops_unbound_native: true, ..EncodeOptions::default() };
    let none = EncodeOptions { drops_native: true, ..bound.clone() };
    assert_eq!([with("s", &all), with("changed", &all)], [3, 3]);
    assert_eq!([with("s", &bound), with("changed", &bound)], [3, 2]);
    assert_eq!([with("s", &none), with("changed", &none)], [2, 2]);
}

#[test]
fn c_23_1_the_address_has_the_path_of_the_form_once() {
    let url = |base: &str| codec_at(base).url();
    assert_eq!(url("https://api.anthropic.com"), "https://api.anthropic.com/v1/messages");
    assert_eq!(url("https://api.anthropic.com/"), "https://api.anthropic.com/v1/messages");
    assert_eq!(url("https://x/v1"), "https://x/v1/messages");
    assert_eq!(url("https://x/v1/?a=b"), "https://x/v1/messages?a=b");
    assert_eq!(url("https://x/v1/messages"), "https://x/v1/messages");
    let foundry = "https://r.services.ai.azure.com/anthropic";
    assert_eq!(url(foundry), format!("{foundry}/v1/messages"));
    let vertex = "https://h/v1/projects/p/locations/l/publishers/anthropic/models/{model}";
    let at = |base: &str, stream| {
        let mut codec = codec_at(base);
        codec.settings.stream = stream;
        codec.url()
    };
    let mut named = codec_at(vertex);
    named.settings.model = "claude x@2026#1?".to_owned();
    assert!(named.url().ends_with("/models/claude%20x@2026%231%3F"), "{}", named.url());
    let expected = vertex.replace("{model}", "m");
    assert_eq!(at(&format!("{vertex}:{{method}}"), true), format!("{expected}:streamRawPredict"));
    assert_eq!(at(&format!("{vertex}:{{method}}"), false), format!("{expected}:rawPredict"));
    assert_eq!(
        at(&format!("{vertex}:streamRawPredict"), false),
        format!("{expected}:streamRawPredict")
    );
    let text = Arc::new(json!({"messages": [user("hi")]}).to_string());
    let body = NeutralBody { text: &text, has_native: false, run_id: "r", images: None };
    let encoded = codec_at(vertex).encode(&body, &EncodeOptions::default()).unwrap();
    assert!(
        encoded.body.starts_with(r#"{"anthropic_version":"2026-10-21","max_tokens":32000,"#),
        "{}",
        encoded.body
    );
}

/// The events of an answer with thinking of both kinds, texts and two calls.
fn events() -> Vec<Value> {
    let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "first "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "😀"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln/+="})),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "b3BhcXVl"})),
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Grüße, "})),
        delta(2, json!({"type": "text_delta", "text": "Welt"})),
        stop(2),
        json!({"type": "brand_new_event", "index": 2, "delta": {"type": "text_delta", "text": "no"}}),
        start(3, json!({"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"x\": 1"})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ".50}"})),
        stop(3),
        start(4, json!({"type": "tool_use", "id": "toolu_2", "name": "u", "input": {}})),
        stop(4),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            "usage": {"input_tokens": 4, "output_tokens": 50, "output_tokens_details": {"thinking_tokens": 30}}}),
        json!({"type": "message_stop"}),
    ]
}

fn stream_of(events: &[Value]) -> String {
    let event =
        |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn assemble(pieces: &[&[u8]]) -> Option<Reply> {
    let mut assembler = codec_at("x").new_assembler();
    for piece in pieces {
        assembler.push(piece).unwrap();
    }
    assembler.finish().unwrap();
    assembler.is_complete().then(|| assembler.into_reply(&CONTEXT).unwrap())
}

#[test]
fn c_23_1_a_stream_becomes_the_whole_answer() {
    let stream = stream_of(&events());
    let reply = assemble(&[stream.as_bytes()]).unwrap();
    assert_eq!(reply.content.as_deref(), Some("Grüße, Welt"));
    assert_eq!(reply.reasoning.as_deref(), Some("first 😀"));
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| (&*call.id, &*call.function.name, call.function.arguments.as_json()))
        .collect();
    assert_eq!(calls, [("toolu_1", "t", r#"{"x": 1.50}"#), ("toolu_2", "u", "{}")]);
    assert_eq!(reply.finish_reason.as_deref(), Some("tool_calls"));
    let usage = reply.usage.clone().unwrap();
    assert_eq!((&*usage.model, usage.input_tokens, usage.cached_input_tokens), ("m-1", 124, 100));
    assert_eq!(
        (usage.cache_write_tokens, usage.output_tokens, usage.reasoning_tokens),
        (Some(20), 50, Some(30))
    );
    let native = reply.native.clone().unwrap();
    assert_eq!(
        (&*native.form, &*native.model, native.basis.as_deref()),
        ("anthropic", "m", Some("b"))
    );
    let parts = json!([{"type": "thinking", "thinking": "first 😀", "signature": "c2ln/+="}, {"type": "redacted_thinking", "data": "b3BhcXVl"},
        text_block("Grüße, Welt"), {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"x": 1.5}},
        {"type": "tool_use", "id": "toolu_2", "name": "u", "input": {}}]);
    assert_eq!(native.parts, parts);
    let wire = reply.wire.clone().unwrap().response;
    assert_eq!(
        (&wire["content"], &wire["id"], &wire["usage"]["output_tokens"]),
        (&parts, &json!("msg_1"), &json!(50))
    );
    let parsed = parse_reply(&reply.response.to_value(), "other").unwrap();
    assert_eq!(parsed, Reply { wire: None, ..reply });
    // Sent whole, it is the same but for the text of numbers.
    let whole = codec_at("x").decode(wire, &CONTEXT).unwrap();
    assert_eq!(
        (whole.content, whole.native.unwrap().parts),
        (Some("Grüße, Welt".to_owned()), parts)
    );
}

#[test]
fn c_23_1_a_stream_that_is_cut_anywhere_is_no_answer() {
    // Some servers send a reason at the beginning.
    for first_reason in [Value::Null, json!("end_turn")] {
        let mut events = events();
        events[0]["message"]["stop_reason"] = first_reason;
        let stream = stream_of(&events);
        let whole = assemble(&[stream.as_bytes()]).unwrap();
        let end = stream.find("\n\nevent: message_stop").unwrap();
        for at in 0..stream.len() {
            let (head, tail) = stream.as_bytes().split_at(at);
            // Its reason ends the message; only the empty line may be missing after it.
            assert_eq!(assemble(&[head]).is_some(), at >= end, "{at}");
            assert_eq!(assemble(&[head, tail]).as_ref(), Some(&whole), "{at}");
        }
    }
}

#[test]
fn c_7_1_an_observer_gets_each_piece_once() {
    let stream = stream_of(&events());
    let mut assembler = codec_at("x").new_assembler();
    let mut seen = (String::new(), String::new());
    for byte in stream.as_bytes().chunks(7) {
        assembler.push(byte).unwrap();
        assembler.pass_new_text(&mut |progress| match progress {
            super::super::super::CallProgress::Text(text) => seen.0.push_str(text),
            super::super::super::CallProgress::Reasoning(text) => seen.1.push_str(text),
            super::super::super::CallProgress::AttemptFailed { .. } => unreachable!(),
            _ => {}
        });
    }
    assert_eq!(seen, ("Grüße, Welt".to_owned(), "first 😀".to_owned()));
}

#[test]
fn c_7_3_an_error_event_breaks_the_stream() {
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let mut assembler = codec_at("x").new_assembler();
    let stream = stream_of(&[events()[0].clone(), error.clone()]);
    assert_eq!(assembler.push(stream.as_bytes()), Err(StreamError::Reported(error.clone())));
    assert!(
        matches!(codec_at("x").decode(error.clone(), &CONTEXT), Err(AnswerError::Reported(body)) if body == error)
    );
    let empty = codec_at("x").decode(json!({"id": "m"}), &CONTEXT);
    assert!(
        matches!(empty, Err(AnswerError::NoAnswer(message, _)) if message.contains("`content`"))
    );
}

fn decode(content: Value, stop_reason: &str) -> Reply {
    codec_at("x").decode(json!({"content": content, "stop_reason": stop_reason}), &CONTEXT).unwrap()
}

#[test]
fn c_23_1_each_reason_to_stop_has_its_neutral_word() {
    for (stop_reason, expected) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("something_new", "something_new"),
    ] {
        let reply = decode(json!([text_block("x")]), stop_reason);
        assert_eq!(reply.finish_reason.as_deref(), Some(expected));
        assert_eq!((reply.native, reply.usage), (None, None), "{stop_reason}");
    }
    for (stop_reason, word) in
        [("pause_turn", "`pause_turn`"), ("model_context_window_exceeded", "context")]
    {
        let usage = json!({"input_tokens": 7, "output_tokens": 2});
        let response =
            json!({"content": [text_block("x")], "stop_reason": stop_reason, "usage": usage});
        let Err(AnswerError::Unusable(answer)) = codec_at("x").decode(response, &CONTEXT) else {
            panic!("{stop_reason} can be used")
        };
        assert!(answer.message.contains(word) && answer.hint.is_some(), "{}", answer.message);
        assert_eq!(
            answer.usage.map(|usage| (usage.input_tokens, usage.output_tokens)),
            Some((7, 2))
        );
    }
    let call = json!({"type": "tool_use", "id": "a", "name": "t", "input": {}});
    assert_eq!(
        decode(json!([call]), "model_context_window_exceeded").finish_reason.as_deref(),
        Some("length")
    );
}

#[test]
fn c_7_8_a_call_that_is_cut_off_stays_the_text_that_arrived() {
    let mut cut: Vec<_> = events().into_iter().take(17).collect();
    cut.push(json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}}));
    cut.push(json!({"type": "message_stop"}));
    let reply = assemble(&[stream_of(&cut).as_bytes()]).unwrap();
    assert_eq!(reply.finish_reason.as_deref(), Some("length"));
    assert_eq!(reply.tool_calls[0].function.arguments.as_json(), "{\"x\": 1");
    // The conversation has an empty object in its place, and its result says why.
    let answer = json!({"role": "assistant", "content": "Grüße, Welt", "tool_calls": [neutral_call("toolu_1", "{}")], "native": reply.native});
    let sent = messages_of(json!([user("go"), answer, result("toolu_1", "cut off")]));
    assert_eq!(
        sent[1]["content"][3],
        json!({"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}})
    );
}

#[test]
fn c_7_7_a_refusal_says_why_and_calls_nothing() {
    let call = json!({"type": "tool_use", "id": "a", "name": "t", "input": {}});
    let refused = |details: Value| {
        let response = json!({"content": [text_block("I"), call], "stop_reason": "refusal", "stop_details": details});
        let reply = codec_at("x").decode(response, &CONTEXT).unwrap();
        assert_eq!((reply.finish_reason.as_deref(), reply.tool_calls.len()), (Some("refusal"), 0));
        reply.refusal
    };
    let details = json!({"type": "refusal", "category": "bio", "explanation": "not that"});
    assert_eq!(refused(details).as_deref(), Some("not that (bio)"));
    assert_eq!(refused(json!({"category": "bio", "explanation": null})).as_deref(), Some("bio"));
    assert_eq!(refused(Value::Null), None);
}

fn rejection(message: &str) -> String {
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        .to_string()
}

#[test]
fn c_23_1_a_rejected_request_is_changed_where_that_helps() {
    let codec = codec_at("x");
    let recover_from = |status, message: &str, options: &EncodeOptions, sent: &str| {
        let response = &rejection(message);
        codec.recovery(&RejectedRequest { status, response, sent, options })
    };
    let recover = |status, message: &str, options: &EncodeOptions| {
        recover_from(status, message, options, r#"[{"type":"thinking","thinking":""}]"#)
    };
    let all = EncodeOptions::default();
    let bound = "messages.1.content.0: Invalid signature in thinking block. The block is bound to a different conversation.";
    let unbound = recover(400, bound, &all).unwrap();
    assert_eq!(unbound, EncodeOptions { drops_unbound_native: true, ..all.clone() });
    let none = recover(400, bound, &unbound).unwrap();
    assert_eq!(none, EncodeOptions { drops_native: true, ..unbound.clone() });
    assert_eq!(recover(400, bound, &none), None);
    assert_eq!(recover(403, bound, &all), None);
    let without = r#"{"thinking":{"type":"enabled"},"text":"\"type\":\"thinking\""}"#;
    assert_eq!(recover_from(400, bound, &all, without), None);
    let modified = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified";
    assert_eq!(recover(400, modified, &all), Some(unbound.clone()));
    let too_long =
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m";
    let shorter = recover(400, too_long, &unbound).unwrap();
    assert_eq!(shorter, EncodeOptions { max_tokens: Some(8192), ..unbound });
    assert_eq!(recover(400, too_long, &shorter), None);
    for other in [
        "max_tokens: 5",
        "max_tokens: x > 8192, which is the maximum",
        "thinking: Field required",
        "max_tokens: 9 > ",
    ] {
        assert_eq!(recover(400, other, &all), None, "{other}");
    }
    let body = json!({"messages": [user("x")], "max_tokens": 32_000});
    assert_eq!(encode_with(&body, &shorter).0["max_tokens"], 8192);
    assert_eq!(
        encode_with(&json!({"messages": [user("x")], "max_tokens": 7}), &shorter).0["max_tokens"],
        7
    );
}

#[test]
fn c_23_1_what_to_do_about_a_rejection() {
    let advise = |status, body: &str| codec_at("x").advise(&test_head(status, "x-y", "z"), body);
    let never = Some(RetryDecision::Never);
    for (status, body) in [(402, "{}"), (400, r#"{"error":{"type":"billing_error"}}"#)] {
        let advice = advise(status, body);
        assert_eq!(advice.retry, never);
        assert!(advice.hint.unwrap().contains("credit"));
    }
    assert!(
        advise(400, "adaptive thinking is not supported on this model")
            .hint
            .unwrap()
            .contains("what a model takes differs")
    );
    assert_eq!(advise(529, "").retry, None);
    let reported = |kind: &str| {
        codec_at("x").advise_reported(&json!({"type": "error", "error": {"type": kind}})).retry
    };
    assert_eq!((reported("overloaded_error"), reported("permission_error")), (None, never));
    let head = test_head(529, "x-should-retry", "false");
    assert_eq!(codec_at("x").advise(&head, "").retry, never);
}

proptest! {
    #[test]
    fn c_23_1_an_answer_goes_back_as_it_came(
        texts in prop::collection::vec("[a-z \\n]{0,4}", 0..4),
        inputs in prop::collection::vec("[a-z\"\\\\{}é]{0,6}", 0..4),
        has_thinking in any::<bool>(),
    ) {
        let mut content: Vec<Value> = Vec::new();
        if has_thinking {
            content.push(json!({"type": "thinking", "thinking": "t", "signature": "s"}));
        }
        content.extend(texts.iter().map(|text| text_block(text)));
        content.extend(inputs.iter().zip(0..).map(|(input, at)| json!({"type": "tool_use", "id": format!("c{at}"), "name": "t", "input": {"x": input}})));
        let reply = decode(content.clone().into(), "tool_use");
        prop_assert_eq!(reply.native.is_some(), has_thinking);
        let message = reply.response.to_value()["choices"][0]["message"].take();
        let results = inputs.iter().zip(0..).map(|(_, at)| result(&format!("c{at}"), "r"));
        let messages: Vec<_> = [user("go"), message].into_iter().chain(results).collect();
        let sent = messages_of(messages.into());
        let is_blank = |part: &Value| part["text"].as_str().is_some_and(|text| text.trim().is_empty());
        content.retain(|part| !is_blank(part));
        if !has_thinking {
            // Texts are joined where nothing opaque depends on their parts.
            let joined: String = texts.concat();
            content.retain(|part| part["type"] != "text");
            if !joined.trim().is_empty() {
                content.insert(0, text_block(&joined));
            }
        }
        // No endpoint accepts an answer that ends with thinking.
        let is_empty = content.iter().all(|part| part["type"] == "thinking");
        let expected = if is_empty { Value::Null } else { content.into() };
        prop_assert_eq!(&sent[1]["content"], &expected);
    }
}
