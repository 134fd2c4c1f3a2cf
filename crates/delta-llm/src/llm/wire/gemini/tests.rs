use super::super::test_head;
use super::*;
use delta_http::retry::RetryDecision;
use delta_words::ToolCall;
use proptest::prelude::*;
use serde_json::json;

const FOREIGN: &str = "skip_thought_signature_validator";

fn settings(base_url: &str, model: &str, stream: bool) -> CodecSettings {
    let (base_url, model) = (base_url.to_owned(), model.to_owned());
    CodecSettings { model, base_url, stream, api_version: Some("v1beta".to_owned()) }
}

fn codec() -> GeminiCodec {
    GeminiCodec::new(settings("https://host/", "m", true))
}

fn encode_with(body: &Value, options: &EncodeOptions) -> Result<Value, String> {
    let text = Arc::new(body.to_string());
    let encoded = codec().encode(
        &NeutralBody { text: &text, has_native: true, run_id: "r", images: None },
        options,
    )?;
    assert!(encoded.is_changed);
    Ok(serde_json::from_str(&encoded.body).unwrap())
}

fn encode(body: &Value) -> Value {
    encode_with(body, &EncodeOptions::default()).unwrap()
}

/// The contents for messages.
fn contents(messages: &Value) -> Value {
    encode(&json!({"model": "m", "messages": messages}))["contents"].clone()
}

fn decode(response: Value) -> Result<Reply, AnswerError> {
    codec().decode(response, &DecodeContext { model: "m", basis: None })
}

/// A response with these parts.
fn response_of(parts: Value, reason: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]})
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// The message of an answer, as a later request has it.
fn message_of(reply: &Reply) -> Value {
    let calls: Vec<Value> = (reply.tool_calls.iter().zip(1..))
        .map(|(made, number)| {
            call(&format!("n{number}"), &made.function.name, made.function.arguments.as_str())
        })
        .collect();
    json!({"role": "assistant", "content": reply.content, "tool_calls": calls, "native": reply.native})
}

#[test]
fn c_23_1_the_url_is_made_of_address_version_model_and_method() {
    let check = |base_url: &str, model: &str, stream: bool, expected: &str| {
        assert_eq!(request_url(&settings(base_url, model, stream)), expected);
    };
    let studio = "https://generativelanguage.googleapis.com";
    let streamed = format!("{studio}/v1beta/models/m-1.5:streamGenerateContent?alt=sse");
    check(studio, "m-1.5", true, &streamed);
    check(studio, "m", false, &format!("{studio}/v1beta/models/m:generateContent"));
    check(
        "http://h/",
        "tunedModels/a b",
        false,
        "http://h/v1beta/tunedModels/a%20b:generateContent",
    );
    check("http://h/v1/", "m", false, "http://h/v1/models/m:generateContent");
    let with_key = "http://h/p/v1beta/models/m%3F:streamGenerateContent?k=1&alt=sse";
    check("http://h/p?k=1#x", "m?", true, with_key);
    let vertex =
        "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models";
    let streamed = format!("{vertex}/m:streamGenerateContent?alt=sse");
    check(&format!("{vertex}/{{model}}:{{method}}"), "m", true, &streamed);
    check(&format!("{vertex}/{{model}}"), "m", true, &streamed);
    let whole = format!("{vertex}/m:generateContent?a=b");
    check(&format!("{vertex}/{{model}}:{{method}}?a=b"), "m", false, &whole);
}

#[test]
fn c_23_1_a_name_that_the_form_does_not_take_gets_an_underscore() {
    let pairs =
        [("t", "t"), ("_t", "_t"), ("2nd", "_2nd"), ("_2nd", "__2nd"), ("-x", "_-x"), ("_", "_")];
    for (name, wire) in pairs {
        assert_eq!((wire_tool_name(name).as_str(), neutral_tool_name(wire)), (wire, name));
    }
}

#[test]
fn c_23_1_a_request_is_translated_member_by_member() {
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    let body = json!({
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "2nd", "description": "d", "parameters": schema}}],
        "temperature": 0.5,
        "safetySettings": [{"category": "c"}],
        "generationConfig": {"topP": 0.9, "temperature": 1},
        "max_tokens": 7,
        "messages": [
            {"role": "system", "content": "one"},
            {"role": "system", "content": ""},
            {"role": "system", "content": "two"},
            {"role": "user", "content": "task"},
            {"role": "assistant", "content": "so", "tool_calls": [call("a", "2nd", "{\"x\":1}"), call("b", "t", "broken")]},
            {"role": "tool", "tool_call_id": "a", "content": "ra"},
            {"role": "tool", "tool_call_id": "b", "content": "rb"},
            {"role": "user", "content": "more"},
            {"role": "system", "content": "notes"},
        ],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "one"}, {"text": "two"}]},
        "tools": [{"functionDeclarations": [{"name": "_2nd", "description": "d", "parametersJsonSchema": schema}]}],
        "safetySettings": [{"category": "c"}],
        "generationConfig": {"topP": 0.9, "temperature": 0.5, "maxOutputTokens": 7},
        "contents": [
            {"role": "user", "parts": [{"text": "task"}]},
            {"role": "model", "parts": [
                {"text": "so"},
                {"functionCall": {"name": "_2nd", "args": {"x": 1}}, "thoughtSignature": FOREIGN},
                {"functionCall": {"name": "t", "args": {}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "_2nd", "response": {"output": "ra"}}},
                {"functionResponse": {"name": "t", "response": {"output": "rb"}}},
                {"text": "more"},
                {"text": "notes"},
            ]},
        ],
    });
    assert_eq!(encode(&body), expected);
    let limited = EncodeOptions { max_tokens: Some(5), ..EncodeOptions::default() };
    let config = encode_with(&body, &limited).unwrap()["generationConfig"].clone();
    assert_eq!(config["maxOutputTokens"], 5);
}

#[test]
fn c_23_1_numbers_and_schemas_keep_every_digit() {
    let body = r#"{"model":"m","tools":[{"type":"function","function":{"name":"t","parameters":{"type":"object","maximum":1.50}}}],
        "messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"t","arguments":"{\"x\":12345678901234567890123}"}}]},
        {"role":"tool","tool_call_id":"c","content":"r"}]}"#;
    let text = Arc::new(body.to_owned());
    let body = NeutralBody { text: &text, has_native: false, run_id: "r", images: None };
    let encoded = codec().encode(&body, &EncodeOptions::default()).unwrap();
    assert!(encoded.body.contains("1.50") && encoded.body.contains("12345678901234567890123"));
}

#[test]
fn c_23_1_the_contents_alternate_and_no_text_is_empty() {
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]);
    let expected = json!([
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}, {"text": "c"}]},
        {"role": "model", "parts": [{"text": "d"}]},
    ]);
    assert_eq!(contents(&messages), expected);
    let body = json!({"model": "m", "messages": [{"role": "system", "content": "s"}]});
    let expected = json!({"contents": [{"role": "user", "parts": [{"text": "s"}]}]});
    assert_eq!(encode(&body), expected);
}

#[test]
fn c_23_1_results_stand_in_the_order_of_the_calls_before_every_text() {
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call("a", "t", "{}"), call("b", "u", "{}")]},
        {"role": "user", "content": "too early"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "rb"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "ra"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://h/x.png"}}]},
    ]);
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
    let expected = json!([
        {"functionResponse": {"name": "t", "response": {"output": "ra"}}},
        {"functionResponse": {"name": "u", "response": {"output": "rb"}, "parts": [image]}},
        {"text": "too early"},
        {"fileData": {"fileUri": "https://h/x.png"}},
    ]);
    assert_eq!(contents(&messages)[2]["parts"], expected);
}

#[test]
fn c_23_1_what_the_form_cannot_express_is_an_error_that_names_it() {
    let check = |body: Value, expected: &str| {
        let error = encode_with(&body, &EncodeOptions::default()).unwrap_err();
        assert_eq!(error, expected);
    };
    let stray = json!({"messages": [{"role": "tool", "tool_call_id": "x", "content": "r"}]});
    check(stray, "message 1: the answer before it has no call `x`, of which it is the result");
    let written = json!({"messages": [], "contents": []});
    check(written, "`contents` is written by the engine; remove the key");
    let limit = json!({"messages": [], "generationConfig": {"maxOutputTokens": 1}});
    let expected = "`generationConfig` cannot contain `maxOutputTokens`: write `max_tokens: N` in `llm`, which limits of a run count";
    check(limit, expected);
    let listed = json!({"messages": [], "generationConfig": []});
    check(listed, "`generationConfig` must be a mapping");
}

/// Parts with everything that has to go back as it came.
fn signed_parts() -> Value {
    json!([
        {"text": "hm", "thought": true},
        {"text": "so", "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "_2nd", "args": {"x": 1.5}, "id": "f1"}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "t", "args": {}, "id": "f2"}},
        {"executableCode": {"code": "1"}},
    ])
}

#[test]
fn c_23_1_an_answer_goes_back_on_the_parts_on_which_it_came() {
    let reply = decode(response_of(signed_parts(), "STOP")).unwrap();
    assert_eq!(reply.content.as_deref(), Some("so"));
    assert_eq!(reply.reasoning.as_deref(), Some("hm"));
    let expected = [ToolCall::new("f1", "2nd", "{\"x\":1.5}"), ToolCall::new("f2", "t", "{}")];
    assert_eq!(reply.tool_calls, expected);
    assert_eq!(reply.native.as_ref().unwrap().endpoint.as_deref(), Some("host"));
    let messages = json!([
        {"role": "user", "content": "a"},
        message_of(&reply),
        {"role": "tool", "tool_call_id": "n1", "content": "r1"},
        {"role": "tool", "tool_call_id": "n2", "content": "r2"},
    ]);
    let contents = contents(&messages);
    assert_eq!(contents[1]["parts"], signed_parts());
    let expected = json!([
        {"functionResponse": {"name": "_2nd", "id": "f1", "response": {"output": "r1"}}},
        {"functionResponse": {"name": "t", "id": "f2", "response": {"output": "r2"}}},
    ]);
    assert_eq!(contents[2]["parts"], expected);
}

#[test]
fn c_23_1_parts_of_another_model_endpoint_or_text_are_not_sent() {
    let reply = decode(response_of(signed_parts(), "STOP")).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut message = message_of(&reply);
        change(&mut message);
        let results =
            ["n1", "n2"].map(|id| json!({"role": "tool", "tool_call_id": id, "content": "r"}));
        contents(&json!([{"role": "user", "content": "a"}, message, results[0], results[1]]))
    };
    let changes: [&dyn Fn(&mut Value); 6] = [
        &|message| message["native"]["model"] = "other".into(),
        &|message| message["native"]["form"] = "anthropic".into(),
        &|message| message["native"]["endpoint"] = "elsewhere".into(),
        &|message| message["content"] = "changed".into(),
        &|message| message["tool_calls"][0]["function"]["arguments"] = "{\"x\":2}".into(),
        &|message| message["tool_calls"][1]["function"]["name"] = "other".into(),
    ];
    for change in changes {
        let contents = changed(change);
        let parts = contents[1]["parts"].as_array().unwrap();
        assert_eq!(parts.len(), 3, "{contents}");
        let signatures: Vec<_> = parts.iter().map(|part| &part["thoughtSignature"]).collect();
        assert_eq!(signatures, [&Value::Null, &FOREIGN.into(), &Value::Null]);
        assert!(!contents.to_string().contains("\"id\""), "{contents}");
    }
}

#[test]
fn c_23_1_only_the_running_turn_gets_the_fixed_signature() {
    let answer = |id: &str| json!({"role": "assistant", "tool_calls": [call(id, "t", "{}")]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let mut messages = vec![
        json!({"role": "user", "content": "first"}),
        answer("a"),
        result("a"),
        json!({"role": "assistant", "content": "done"}),
        json!({"role": "user", "content": "second"}),
        answer("b"),
        result("b"),
        // The engine's note belongs to the same content as the result.
        json!({"role": "user", "content": "note"}),
        answer("c"),
        result("c"),
    ];
    let signatures = |messages: &[Value]| {
        let contents = contents(&messages.into());
        let models =
            contents.as_array().unwrap().iter().filter(|content| content["role"] == "model");
        models.map(|content| content["parts"][0]["thoughtSignature"] == FOREIGN).collect::<Vec<_>>()
    };
    assert_eq!(signatures(&messages), [false, false, true, true]);
    messages.extend([
        json!({"role": "assistant", "content": "done"}),
        json!({"role": "user", "content": "third"}),
    ]);
    assert_eq!(signatures(&messages), [false; 5]);
}

fn recovery(
    status: u16,
    message: &str,
    sent: &Value,
    options: &EncodeOptions,
) -> Option<EncodeOptions> {
    let response = json!([{"error": {"code": status, "message": message}}]).to_string();
    let sent = &sent.to_string();
    codec().recovery(&RejectedRequest { status, response: &response, sent, options })
}

#[test]
fn c_23_1_rejected_signatures_are_replaced_once() {
    let reply = decode(response_of(signed_parts(), "STOP")).unwrap();
    let results =
        ["n1", "n2"].map(|id| json!({"role": "tool", "tool_call_id": id, "content": "r"}));
    let mut messages = vec![json!({"role": "user", "content": "a"}), message_of(&reply)];
    messages.extend(results.clone());
    let sent = encode(&json!({"messages": messages}));
    for message in [
        "Corrupted thought signature.",
        "Unable to submit request because Thought signature is not valid..",
        "Function call is missing a thought_signature in functionCall parts.",
        "function call `t` in the 2. content block is missing a `thought_signature`.",
    ] {
        let options = EncodeOptions::default();
        assert_eq!(recovery(429, message, &sent, &options), None);
        let recovered = recovery(400, message, &sent, &options).unwrap();
        let resent = encode_with(&json!({"messages": messages}), &recovered).unwrap();
        assert_eq!(resent["contents"][1]["parts"][1]["thoughtSignature"], FOREIGN);
        assert_eq!(recovery(400, message, &resent, &recovered), None, "once");

        // The next answer keeps its signature.
        let parts =
            json!([{"functionCall": {"name": "t", "args": {}}, "thoughtSignature": "bmV3"}]);
        let mut longer = messages.clone();
        longer.push(message_of(&decode(response_of(parts, "STOP")).unwrap()));
        longer.push(results[0].clone());
        let encoded = encode_with(&json!({"messages": longer}), &recovered).unwrap();
        assert_eq!(encoded["contents"][1]["parts"][1]["thoughtSignature"], FOREIGN);
        assert_eq!(encoded["contents"][3]["parts"][0]["thoughtSignature"], "bmV3");
    }
    assert_eq!(recovery(400, "Unknown name \"id\"", &sent, &EncodeOptions::default()), None);
}

#[test]
fn c_23_1_a_signature_that_the_model_did_not_give_is_made_good_once() {
    let parts = json!([{"functionCall": {"name": "t", "args": {}, "id": "f"}}]);
    let reply = decode(response_of(parts, "STOP")).unwrap();
    let result = json!({"role": "tool", "tool_call_id": "n1", "content": "r"});
    let body = json!({"messages": [{"role": "user", "content": "a"}, message_of(&reply), result]});
    let message = "Function call is missing a thought_signature";
    let recovered = recovery(400, message, &encode(&body), &EncodeOptions::default()).unwrap();
    let resent = encode_with(&body, &recovered).unwrap();
    assert_eq!(resent["contents"][1]["parts"][0]["thoughtSignature"], FOREIGN);
    assert_eq!(recovery(400, message, &resent, &recovered), None);
}

#[test]
fn c_23_1_an_answer_that_is_too_long_is_asked_for_with_the_limit_of_the_model() {
    let message = "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive). Update the value and try again.";
    let options = recovery(400, message, &json!({}), &EncodeOptions::default()).unwrap();
    assert_eq!(options.max_tokens, Some(65536));
    assert_eq!(recovery(400, message, &json!({}), &options), None);
}

#[test]
fn c_23_1_every_reason_to_stop_has_a_meaning() {
    let text = json!([{"text": "x"}]);
    let reason = |parts: &Value, reason: &str| {
        decode(response_of(parts.clone(), reason)).map(|reply| reply.finish_reason.unwrap())
    };
    let calls = json!([{"functionCall": {"name": "t"}}]);
    assert_eq!(reason(&text, "STOP").unwrap(), "stop");
    assert_eq!(reason(&calls, "STOP").unwrap(), "tool_calls");
    assert_eq!(reason(&text, "MAX_TOKENS").unwrap(), "length");
    assert_eq!(reason(&text, "BRAND_NEW").unwrap(), "brand_new");
    assert_eq!(reason(&text, "LANGUAGE").unwrap(), "refusal");
    for filtered in [
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MODEL_ARMOR",
        "ESCALATION",
    ] {
        assert_eq!(reason(&text, filtered).unwrap(), "content_filter");
    }
    assert!(matches!(reason(&text, ""), Err(AnswerError::InvalidResponse(_))));
    let unusable = |finish_reason: &str| {
        let response = json!({
            "candidates": [{"finishReason": finish_reason, "finishMessage": "its words"}],
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 2},
        });
        let Err(AnswerError::Unusable(answer)) = decode(response) else {
            panic!("{finish_reason} can be used")
        };
        let usage = answer.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (7, 2), "{finish_reason}");
        (answer.message, answer.retry)
    };
    for failed in ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "OTHER"]
    {
        let message = format!("the model's answer broke off with `{failed}`: its words");
        assert_eq!(unusable(failed), (message, RetryDecision::Backoff));
    }
    for fatal in ["CONTINUATION", "TOO_MANY_TOOL_CALLS"] {
        let message = format!("the model stopped with `{fatal}`: its words");
        assert_eq!(unusable(fatal), (message, RetryDecision::Never));
    }
}

#[test]
fn c_23_1_a_response_may_lack_parts_candidates_and_counts() {
    let cut_off = json!({
        "candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}],
        "usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 9},
        "modelVersion": "m-001",
    });
    let reply = decode(cut_off).unwrap();
    assert_eq!(
        (reply.content, reply.native, reply.finish_reason.as_deref()),
        (None, None, Some("length"))
    );
    let usage = reply.usage.unwrap();
    assert_eq!((usage.model.as_str(), usage.input_tokens, usage.output_tokens), ("m-001", 5, 9));

    let reply = decode(json!({"promptFeedback": {"blockReason": "SAFETY"}})).unwrap();
    assert_eq!((reply.finish_reason.as_deref(), reply.usage), (Some("content_filter"), None));
    assert!(matches!(decode(json!({})), Err(AnswerError::NoAnswer(..))));
    let error = json!({"error": {"code": 503, "message": "overloaded"}});
    for body in [error.clone(), json!([error])] {
        assert!(matches!(decode(body), Err(AnswerError::Reported(_))));
    }
}

#[test]
fn c_23_3_the_counts_include_tools_thoughts_and_what_was_cached() {
    let mut response = response_of(json!([{"text": "x"}]), "STOP");
    response["usageMetadata"] = json!({
        "promptTokenCount": 100, "toolUsePromptTokenCount": 10, "cachedContentTokenCount": 60,
        "candidatesTokenCount": 5, "thoughtsTokenCount": 20, "totalTokenCount": 135,
    });
    let reply = decode(response).unwrap();
    let usage = reply.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (110, 60, 25));
    let details = reply.response.to_value();
    assert_eq!(details["usage"]["completion_tokens_details"]["reasoning_tokens"], 20);
}

/// A stream with everything that one may have: thoughts, a text in pieces, a signature on an empty part, calls in two
/// events, a candidate of another index, and the counts after the reason.
const STREAM: &str = concat!(
    "data: {\"candidates\":[{\"index\":0,\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"hm \",\"thought\":true}]}}],\"usageMetadata\":{\"promptTokenCount\":3},\"responseId\":\"r\"}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"so\",\"thought\":true},{\"text\":\"Gr\u{fc}\"}]}}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\u{df}e \u{1f600}\"}]}},{\"index\":1,\"content\":{\"parts\":[{\"text\":\"other\"}]}}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\",\"thoughtSignature\":\"c2lnMQ==\"}]}}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"t\",\"args\":{\"x\":1}},\"thoughtSignature\":\"c2lnMg==\"}]}}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"u\",\"args\":{}}}]}}]}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}]},\"finishReason\":\"STOP\"}]}\r\n\r\n",
);

const LAST_EVENT: &str = "data: {\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":8},\"modelVersion\":\"m-001\"}\r\n\r\n";

fn assemble(bytes: &[u8], size: usize) -> Box<dyn StreamAssembler> {
    let mut assembler = codec().new_assembler();
    bytes.chunks(size).for_each(|chunk| assembler.push(chunk).unwrap());
    assembler.finish().unwrap();
    assembler
}

#[test]
fn c_7_1_a_stream_may_be_cut_anywhere() {
    let whole = format!("{STREAM}{LAST_EVENT}");
    let read = |size| {
        let assembler = assemble(whole.as_bytes(), size);
        assert!(assembler.is_complete() && assembler.is_done());
        assembler.into_reply(&DecodeContext { model: "m", basis: None }).unwrap()
    };
    let reply = read(whole.len());
    assert_eq!(reply.content.as_deref(), Some("Gr\u{fc}\u{df}e \u{1f600}"));
    assert_eq!(reply.reasoning.as_deref(), Some("hm so"));
    let expected = json!([
        {"text": "hm so", "thought": true},
        {"text": "Gr\u{fc}\u{df}e \u{1f600}"},
        {"text": "", "thoughtSignature": "c2lnMQ=="},
        {"functionCall": {"name": "t", "args": {"x": 1}}, "thoughtSignature": "c2lnMg=="},
        {"functionCall": {"name": "u", "args": {}}},
    ]);
    assert_eq!(reply.native.as_ref().unwrap().parts, expected);
    let usage = reply.usage.as_ref().unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, &*usage.model), (3, 8, "m-001"));
    for size in [1, 2, 3, 5, 7, 64] {
        assert_eq!(read(size), reply);
    }
    // A proxy may collect the stream in one list.
    let chunks: Vec<Value> =
        whole.split("data: ").skip(1).map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(decode(chunks.into()).unwrap(), reply);
}

#[test]
fn c_7_1_a_stream_without_its_reason_is_never_complete() {
    let data_end = STREAM.trim_end().len();
    for end in 0..STREAM.len() {
        let assembler = assemble(&STREAM.as_bytes()[..end], 1000);
        assert_eq!(assembler.is_complete(), end >= data_end, "after {end} bytes");
    }
    let mut assembler = assemble(STREAM.as_bytes(), 1000);
    assert!(assembler.is_complete() && assembler.is_done(), "the counts of the first event remain");
    let error = json!({"error": {"code": 500, "message": "internal"}});
    let pushed = assembler.push(format!("data: {error}\n\n").as_bytes());
    assert!(pushed.is_err());
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"OTHER\"}}\n\n";
    assert!(assemble(blocked.as_bytes(), 1000).is_complete());
}

fn advice(status: u16, body: &Value) -> RejectionAdvice {
    codec().advise(&test_head(status, "x", "y"), &body.to_string())
}

#[test]
fn c_7_3_a_quota_of_the_day_is_final() {
    let body = |quota: &str| {
        json!({"error": {"code": 429, "message": "quota", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45.837906927s"},
        ]}})
    };
    let minute = body("GenerateRequestsPerMinutePerProjectPerModel");
    let advised = advice(429, &minute);
    assert_eq!((advised.retry, advised.hint), (None, None));
    let advised = advice(429, &body("GenerateRequestsPerDayPerProjectPerModel-FreeTier"));
    assert_eq!(advised.retry, Some(RetryDecision::Never));
    assert!(advised.hint.unwrap().contains("account's quota for the day"));
    assert!(advice(500, &json!("no object")).retry.is_none());
}

#[test]
fn c_7_3_hints_say_what_to_write_instead() {
    let hint = |status: u16, error: Value| advice(status, &json!({"error": error})).hint.unwrap();
    assert!(hint(404, json!({"message": "not found"})).ends_with("`delta models` lists the names"));
    let key = json!({"message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]});
    assert!(hint(400, key).contains("GEMINI_API_KEY"));
    let unknown = json!({"message": "Invalid JSON payload received. Unknown name \"top_p\": Cannot find field."});
    assert!(hint(400, unknown).contains("generationConfig"));
}

#[test]
fn c_7_3_what_only_the_other_version_takes_is_said() {
    let stable = CodecSettings {
        api_version: Some("v1".to_owned()),
        ..settings("https://generativelanguage.googleapis.com", "m", false)
    };
    let hint = |status: u16, message: &str| {
        let body = json!({"error": {"message": message}}).to_string();
        rejection::advise_on_rejection(status, &body, &stable).hint.unwrap()
    };
    assert!(hint(404, "not found").contains("api_version: v1beta"));
    for message in [
        "Invalid JSON payload received. Unknown name \"systemInstruction\": Cannot find field.",
        "Invalid JSON payload received. Unknown name \"tools\": Cannot find field.",
        "Function calling is not enabled for this model on this API version",
    ] {
        assert!(hint(400, message).contains("`api_version: v1beta`"), "{message}");
    }
}

fn part() -> impl Strategy<Value = Value> {
    let text = "[a\u{e4}\u{1f600}\"\\\\\n]{1,3}";
    let args = prop_oneof![Just(json!({})), Just(json!({"x": [1.5, null, "\u{2028}"]}))];
    prop_oneof![
        text.prop_map(|text| json!({"text": text})),
        text.prop_map(|text| json!({"text": text, "thought": true})),
        ("[a-z0-9_-]{1,4}", args).prop_map(|(name, args)| {
            json!({"functionCall": {"name": wire_tool_name(&name), "args": args}})
        }),
        Just(json!({"text": "", "thoughtSignature": "c2ln"})),
    ]
}

proptest! {
    #[test]
    fn c_23_1_every_name_of_a_tool_comes_back_as_it_was(name in "[a-zA-Z0-9_-]{1,6}") {
        let wire = wire_tool_name(&name);
        prop_assert!(wire.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
        prop_assert_eq!(neutral_tool_name(&wire), name);
    }

    #[test]
    fn c_23_1_every_answer_goes_back_as_it_came_or_says_the_same(
        mut parts in prop::collection::vec(part(), 1..6),
        signed in prop::option::of(0..6_usize),
    ) {
        if let Some(part) = signed.and_then(|at| parts.get_mut(at)) {
            part["thoughtSignature"] = "c2lnbmF0dXJl".into();
        }
        let reply = decode(response_of(parts.clone().into(), "STOP")).unwrap();
        let mut messages = vec![json!({"role": "user", "content": "a"}), message_of(&reply)];
        let results = (1..=reply.tool_calls.len())
            .map(|number| json!({"role": "tool", "tool_call_id": format!("n{number}"), "content": "r"}));
        messages.extend(results);
        let contents = contents(&messages.into());
        let sent = contents.get(1).filter(|content| content["role"] == "model");
        let sent = sent.map_or(Vec::new(), |content| content["parts"].as_array().unwrap().clone());
        if reply.native.is_some() {
            prop_assert_eq!(sent, parts);
        } else {
            let again = decode(response_of(sent.into(), "STOP")).unwrap();
            prop_assert_eq!(again.content, reply.content);
            prop_assert_eq!(again.tool_calls, reply.tool_calls);
        }
    }
}
