//! `provider: gemini` continues every run after every event, whoever answered before.

use super::*;
use delta_llm::llm::wire::{CodecSettings, NeutralBody, codec_for};
use delta_words::{EncodeOptions, NativeParts, WireForm};
use std::sync::Arc;
use test_support::server::check_gemini_request;

/// The parts of an answer with this text and these calls, as the model signs them.
fn signed_parts(number: u64, text: &str, calls: &[ToolCall]) -> Vec<Value> {
    let mut parts = vec![json!({"text": "hm", "thought": true})];
    if !text.is_empty() {
        parts.push(json!({"text": text}));
    }
    let signed = parts.len();
    for (call, index) in calls.iter().zip(1..) {
        let args: Value =
            serde_json::from_str(call.function.arguments.as_str()).unwrap_or_default();
        let args = if args.is_object() { args } else { json!({}) };
        let id = format!("f{number}-{index}");
        parts.push(json!({"functionCall": {"name": call.function.name, "args": args, "id": id}}));
    }
    if signed == parts.len() {
        parts.push(json!({"text": ""}));
    }
    parts[signed]["thoughtSignature"] = format!("signature {number}").into();
    parts
}

/// The events, in which Gemini has given the answers whose bit in `signed` is set.
fn sign(events: &[Event], signed: u8) -> (Vec<Event>, Vec<Value>) {
    let mut issued = Vec::new();
    let mut events = events.to_vec();
    for event in &mut events {
        let Payload::Thought(thought) = &mut event.payload else { continue };
        if signed >> (thought.iteration % 8) & 1 == 0 {
            continue;
        }
        let parts = signed_parts(event.seq, &thought.content, &thought.tool_calls);
        issued.extend(parts.clone());
        thought.native = Some(NativeParts {
            form: "gemini".to_owned(),
            model: "m".to_owned(),
            endpoint: Some("host".to_owned()),
            basis: None,
            parts: parts.into(),
        });
    }
    (events, issued)
}

/// The request of Gemini for the conversation of a run.
fn wire_request(run: &Simulated, limit: Option<usize>) -> Value {
    let settings = CodecSettings {
        model: "m".to_owned(),
        base_url: "https://host".to_owned(),
        stream: true,
        api_version: Some("v1".to_owned()),
    };
    let messages = read(&run.state.conversation.messages(limit));
    let body = Arc::new(json!({"model": "m", "messages": messages}).to_string());
    let body = NeutralBody { text: &body, has_native: true, run_id: "r", images: None };
    let codec = codec_for(WireForm::Gemini, settings);
    let encoded = codec.encode(&body, &EncodeOptions::default()).unwrap();
    serde_json::from_str(&encoded.body).unwrap()
}

fn check_requests(run: &Simulated, issued: &[Value]) {
    for limit in [None, Some(1), Some(2)] {
        let request = wire_request(run, limit);
        assert_eq!(check_gemini_request(&request, issued), Ok(()), "{request:#}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn c_23_2_gemini_continues_a_run_after_any_event(script in script(), signed: u8) {
        let mut whole = Simulated::new();
        whole.finish(&script);
        let (events, issued) = sign(&whole.events, signed);
        for length in 1..=events.len() {
            let mut run = Simulated::of(&events[..length]);
            run.start(2);
            run.record(Payload::user_message("and another thing", Vec::new()));
            check_requests(&run, &issued);
        }
    }

    #[test]
    fn c_23_1_the_signatures_of_a_run_are_sent_while_nothing_else_changes(script in script()) {
        let mut whole = Simulated::new();
        whole.finish(&script);
        let (events, issued) = sign(&whole.events, u8::MAX);
        let mut run = Simulated::of(&events);
        run.record(Payload::user_message("and another thing", Vec::new()));
        check_requests(&run, &issued);
        let sent = wire_request(&run, None).to_string();
        for event in &events {
            let Payload::Thought(thought) = &event.payload else { continue };
            // The names of tools that do not exist are cleaned in requests.
            if thought.tool_calls.iter().all(|call| call.function.name == "run") {
                let signature = format!("\"signature {}\"", event.seq);
                prop_assert!(sent.contains(&signature), "{} in {}", signature, sent);
            }
        }
    }
}
