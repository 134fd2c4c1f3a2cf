//! What holds for every conversation in the form `anthropic`: the strict endpoint accepts each of its prefixes, and what was
//! thought stays bound to what it was thought about.

use delta_llm::llm::wire::{CodecSettings, NeutralBody, codec_for};
use delta_run::conversation::Conversation;
use delta_run::event::Thought;
use delta_words::{EncodeOptions, NativeParts, ToolCall, WireForm};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use test_support::effort::cases;
use test_support::server::check_messages_request;

#[derive(Debug, Clone)]
enum Step {
    User(String),
    Note,
    Thought {
        text: String,
        calls: Vec<(String, String, String)>,
        thinks: bool,
    },
    /// The result of the call with this index, if the last answer has one.
    Result(usize, String),
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" \n".to_owned()),
        Just("Grüße\t😀 ".to_owned()),
        "[a-z]{1,8}"
    ]
}

fn calls() -> impl Strategy<Value = Vec<(String, String, String)>> {
    let id = prop_oneof![
        "toolu_[a-z0-9]{2}",
        "call:[a-z]{1,2}",
        Just(String::new()),
        Just("ä".to_owned())
    ];
    let name = prop_oneof![Just("echo".to_owned()), Just("no such tool".to_owned())];
    let arguments = prop_oneof![
        Just("{}".to_owned()),
        Just(r#"{"x":1.50}"#.to_owned()),
        Just("{\"x\":".to_owned()),
        Just("[1]".to_owned())
    ];
    prop::collection::vec((id, name, arguments), 0..4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        texts().prop_map(Step::User),
        Just(Step::Note),
        (texts(), calls(), any::<bool>()).prop_map(|(text, calls, thinks)| Step::Thought {
            text,
            calls,
            thinks
        }),
        (0..3_usize, texts()).prop_map(|(index, text)| Step::Result(index, text)),
        (0..3_usize, texts()).prop_map(|(index, text)| Step::Result(index, text)),
    ];
    prop::collection::vec(step, 0..14)
}

/// The wire body of a conversation between two blocks of context, and its basis.
fn encode(
    conversation: &Conversation,
    window: Option<usize>,
    last: &str,
    options: &EncodeOptions,
) -> (Value, String) {
    let system = json!({"role": "system", "content": "You are a test."});
    let last = json!({"role": "system", "content": last});
    let messages = conversation
        .messages(window)
        .into_iter()
        .map(|message| serde_json::from_str(message).unwrap());
    let messages: Vec<Value> = [system].into_iter().chain(messages).chain([last]).collect();
    let body = Arc::new(json!({"model": "m", "messages": messages, "stream": true}).to_string());
    let body = NeutralBody {
        text: &body,
        has_native: conversation.has_native(),
        run_id: "r",
        images: None,
    };
    let settings = CodecSettings {
        model: "m".to_owned(),
        base_url: "https://api.anthropic.com".to_owned(),
        stream: true,
        api_version: None,
    };
    let encoded = codec_for(WireForm::Anthropic, settings).encode(&body, options).unwrap();
    (serde_json::from_str(&encoded.body).unwrap(), encoded.basis.unwrap())
}

/// The answer as the endpoint gave it, with thinking before everything else.
fn native(number: usize, text: &str, calls: &[ToolCall], basis: String) -> NativeParts {
    let mut parts =
        vec![json!({"type": "thinking", "thinking": "", "signature": format!("s{number}")})];
    parts.push(json!({"type": "text", "text": text}));
    parts.extend(calls.iter().map(|call| {
        let arguments = call.function.arguments.as_json();
        let input = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
        json!({"type": "tool_use", "id": call.id, "name": call.function.name, "input": input})
    }));
    NativeParts {
        form: "anthropic".to_owned(),
        model: "m".to_owned(),
        endpoint: None,
        basis: Some(basis),
        parts: parts.into(),
    }
}

fn signatures(body: &Value) -> Vec<String> {
    let blocks = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap());
    blocks.filter_map(|block| block["signature"].as_str()).map(str::to_owned).collect()
}

/// Applies a step. Returns the signature of an answer whose thinking has to go back.
fn apply(
    conversation: &mut Conversation,
    step: &Step,
    ids: &mut Vec<String>,
    number: usize,
) -> Option<String> {
    match step {
        Step::User(text) => conversation.push_user_message(text),
        Step::Note => conversation.push_engine_note("The files have changed."),
        Step::Result(index, text) => {
            if let Some(id) = ids.get(*index) {
                conversation.add_result(id, text);
            }
        }
        Step::Thought { text, calls, thinks } => {
            let calls: Vec<_> = calls
                .iter()
                .map(|(id, name, arguments)| ToolCall::new(id, name, arguments))
                .collect();
            if text.trim().is_empty() && calls.is_empty() {
                return None;
            }
            let (_, basis) = encode(conversation, None, "", &EncodeOptions::default());
            let native = thinks.then(|| native(number, text, &calls, basis));
            let thought = Thought {
                iteration: u32::try_from(number).unwrap(),
                content: text.clone(),
                tool_calls: calls.clone(),
                native,
                ..Thought::default()
            };
            *ids = conversation.push_thought(&thought);
            // Ids and names that no endpoint accepts back are replaced, and then the parts are not those of the answer.
            let is_kept = calls.iter().zip(&*ids).all(|(call, id)| {
                call.id == *id && id.starts_with("toolu_") && call.function.name == "echo"
            });
            return (*thinks && is_kept).then(|| format!("s{number}"));
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(32, 128)))]

    #[test]
    fn c_23_1_the_endpoint_accepts_every_prefix_of_every_conversation(steps in steps(), window in 1..4_usize, last in texts()) {
        let mut conversation = Conversation::default();
        conversation.push_user_message("the task");
        let mut ids = Vec::new();
        let mut thoughts = Vec::new();
        let all = EncodeOptions::default();
        let bound = EncodeOptions { drops_unbound_native: true, ..EncodeOptions::default() };
        let none = EncodeOptions { drops_native: true, ..EncodeOptions::default() };
        for (number, step) in steps.iter().enumerate() {
            thoughts.extend(apply(&mut conversation, step, &mut ids, number));
            for (window, last) in [(None, ""), (Some(window), ""), (None, &*last), (Some(window), &*last)] {
                for options in [&all, &bound, &none] {
                    let (body, _) = encode(&conversation, window, last, options);
                    prop_assert_eq!(check_messages_request(&body), Ok(()), "{}", body);
                }
            }
            // Nothing before an answer changes, so its thinking stays bound whatever the endpoint is.
            let (body, _) = encode(&conversation, None, "", &bound);
            prop_assert_eq!(signatures(&body), thoughts.clone());
            let (body, _) = encode(&conversation, None, "", &none);
            prop_assert_eq!(signatures(&body), Vec::<String>::new());
        }
    }
}
