use super::*;
use crate::llm::wire::TRANSLATION_VERSION;
use delta_base::hex::sha256_hex;

fn codec(base_url: &str) -> ResponsesCodec {
    ResponsesCodec::new(CodecSettings {
        model: "m".to_owned(),
        base_url: base_url.to_owned(),
        stream: false,
        api_version: None,
    })
}

fn encode_with(body: &Value, options: &EncodeOptions) -> Result<Value, String> {
    let text = Arc::new(body.to_string());
    let body = NeutralBody { text: &text, has_native: true, run_id: "run", images: None };
    let encoded = codec("https://API.example:443/v1").encode(&body, options)?;
    assert!(encoded.is_changed && encoded.basis.is_none());
    Ok(serde_json::from_str(&encoded.body).unwrap())
}

fn input(messages: Value) -> Value {
    let body = json!({"model": "m", "messages": messages});
    encode_with(&body, &EncodeOptions::default()).unwrap()["input"].take()
}

/// The recorded hashes of requests hold as long as the version does.
#[test]
fn c_23_1_the_same_request_is_the_same_bytes() {
    let body = json!({"model": "m", "tools": [{"type": "function", "function": {"name": "t", "description": "d", "parameters": {"type": "object"}}}], "reasoning": {"effort": "low"}, "max_tokens": 100, "messages": [{"role": "user", "content": "ä"}], "stream": true, "stream_options": {}});
    let text = Arc::new(body.to_string());
    let body = NeutralBody { text: &text, has_native: false, run_id: "run", images: None };
    let encoded = codec("http://x/v1").encode(&body, &EncodeOptions::default()).unwrap();
    let expected = r#"{"model":"m","reasoning":{"effort":"low"},"max_output_tokens":100,"tools":[{"type":"function","name":"t","description":"d","parameters":{"type":"object"},"strict":false}],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"ä"}]}],"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"run","stream":true}"#;
    assert_eq!((&**encoded.body, TRANSLATION_VERSION), (expected, 2));
}

#[test]
fn c_23_1_the_address_ends_in_the_path_of_the_form() {
    let urls = [
        (
            "https://r.openai.azure.com/openai/v1?api-version=preview",
            "https://r.openai.azure.com/openai/v1/responses?api-version=preview",
        ),
        ("https://openrouter.ai/api/v1/", "https://openrouter.ai/api/v1/responses"),
        ("https://api.deepseek.com", "https://api.deepseek.com/responses"),
        (
            "https://bedrock-mantle.us-east-1.api.aws/v1",
            "https://bedrock-mantle.us-east-1.api.aws/v1/responses",
        ),
        ("https://api.openai.com/v1/responses", "https://api.openai.com/v1/responses"),
    ];
    for (base_url, url) in urls {
        assert_eq!(codec(base_url).url(), url);
    }
}

#[test]
fn c_23_1_empty_texts_are_left_out() {
    let items = input(json!([
        {"role": "system", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
        {"role": "user", "content": ""},
    ]));
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": ""},
    ]);
    assert_eq!(items, expected);
}

#[test]
fn c_23_1_images_are_parts() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    let content = json!([{"type": "text", "text": "see"}, image]);
    let items = input(json!([
        {"role": "user", "content": content},
        {"role": "tool", "tool_call_id": "c", "content": content},
    ]));
    let parts = json!([
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
    ]);
    assert_eq!((&items[0]["content"], &items[1]["output"]), (&parts, &parts));
}

#[test]
fn c_23_1_ids_that_are_too_long_are_hashes_in_call_and_result_alike() {
    let long = "ä".repeat(65);
    let hash = format!("d_{}", &sha256_hex(&long)[..20]);
    for (id, expected) in [("ä".repeat(64), "ä".repeat(64)), (long, hash)] {
        let items = input(json!([
            {"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": id, "content": "r"},
        ]));
        assert_eq!(items[0]["call_id"], expected);
        assert_eq!(items[1]["call_id"], expected);
    }
}

#[test]
fn c_23_1_the_longest_answer_has_one_name_and_a_limit() {
    let sent = |body: Value, limit: Option<u64>| {
        let options = EncodeOptions { max_tokens: limit, ..EncodeOptions::default() };
        encode_with(&body, &options).unwrap()["max_output_tokens"].clone()
    };
    let neutral = json!({"model": "m", "max_tokens": 100, "messages": []});
    let both = json!({"model": "m", "max_tokens": 100, "max_output_tokens": 200, "messages": []});
    let none = json!({"model": "m", "max_output_tokens": null, "messages": []});
    assert_eq!(sent(neutral.clone(), None), 100);
    assert_eq!(sent(neutral.clone(), Some(50)), 50);
    assert_eq!(sent(neutral, Some(150)), 100);
    assert_eq!(sent(both.clone(), None), 200);
    assert_eq!(sent(both, Some(150)), 150);
    assert_eq!(sent(none, Some(150)), Value::Null);
}

#[test]
fn c_23_1_agent_yaml_may_choose_the_key_of_the_cache_and_nothing_that_delta_writes() {
    let with = |key: &str| {
        let body = json!({"model": "m", key: "x", "messages": []});
        encode_with(&body, &EncodeOptions::default())
    };
    assert_eq!(with("prompt_cache_key").unwrap()["prompt_cache_key"], "x");
    for key in ["input", "store", "include", "previous_response_id"] {
        assert_eq!(with(key).unwrap_err(), format!("`{key}` is set by delta"));
    }
}

#[test]
fn c_23_2_opaque_parts_are_for_the_model_and_the_host_that_made_them() {
    let parts = json!([
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "function_call", "id": "fc", "call_id": "c", "name": "t", "arguments": " {\"a\":1.50} "},
    ]);
    let is_sent = |native: Value, arguments: &str| {
        let items = input(json!([
            {"role": "assistant", "content": null, "native": native, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "t", "arguments": arguments}}]},
        ]));
        assert!(items == parts || items[0]["type"] == "function_call", "{items}");
        items == parts
    };
    let native = |form: &str, model: &str, endpoint: &str| json!({"form": form, "model": model, "endpoint": endpoint, "parts": parts});
    let same = || native("responses", "m", "api.example");
    assert!(is_sent(same(), "{\"a\":1.50}"));
    assert!(!is_sent(same(), "{\"a\":1.5}"));
    assert!(!is_sent(native("openai", "m", "api.example"), "{\"a\":1.50}"));
    assert!(!is_sent(native("responses", "n", "api.example"), "{\"a\":1.50}"));
    assert!(!is_sent(native("responses", "m", "other.example"), "{\"a\":1.50}"));
    let damaged =
        json!({"form": "responses", "model": "m", "endpoint": "api.example", "parts": "x"});
    assert!(!is_sent(damaged, "{\"a\":1.50}"));
}
