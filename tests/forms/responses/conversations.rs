//! What holds for every conversation: the strict endpoint accepts every request, and gets back what it issued.

use super::super::in_process::{ask_about, provider_of_model};
use delta_run::conversation::Conversation;
use delta_run::event::Thought;
use delta_words::{Reply, ToolCall, WireForm};
use proptest::prelude::*;
use serde_json::{Value, json};
use test_support::server::{Answer, ScriptedServer};

/// An answer, and what happens to it and after it.
#[derive(Debug, Clone)]
struct Turn {
    text: Option<String>,
    reasoning: Option<String>,
    /// The ids and the arguments of the calls.
    calls: Vec<(String, String)>,
    /// A hook changes the text.
    is_changed: bool,
    /// Another model answers.
    is_other_model: bool,
    /// The user writes something afterwards.
    message: Option<String>,
    /// The last answers that the next request has.
    window: Option<usize>,
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(" ".to_owned()), Just("{\"a\":".to_owned()), "[a-zäß€😀\"\\\\\n]{1,9}"]
}

fn call() -> impl Strategy<Value = (String, String)> {
    let id = prop_oneof!["[a-c]", "call_[12]_1", "[x]{64,66}", "[ä]{40}", Just("a\nb".to_owned())];
    let arguments = prop_oneof![
        Just("{}".to_owned()),
        Just(" {\"a\": 1.50}\n".to_owned()),
        Just("{\"a\": [1,}".to_owned()),
        Just("[1]".to_owned()),
        Just(String::new()),
    ];
    (id, arguments)
}

fn turn() -> impl Strategy<Value = Turn> {
    (
        (prop::option::of(text()), prop::option::of(text())),
        prop::collection::vec(call(), 0..4),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        prop::option::of(text()),
        prop::option::weighted(0.2, 1..3_usize),
    )
        .prop_map(|((text, reasoning), calls, is_changed, is_other_model, message, window)| {
            Turn { text, reasoning, calls, is_changed, is_other_model, message, window }
        })
}

/// The answer of the endpoint: at least a text or a call.
fn answer(turn: &Turn) -> Answer {
    let mut answer = Answer::raw_calls(&turn.calls, "t");
    if let Some(text) = turn.text.as_deref().or(turn.calls.is_empty().then_some("text")) {
        answer = answer.saying(text);
    }
    match &turn.reasoning {
        Some(reasoning) => answer.thinking(reasoning),
        None => answer,
    }
}

fn thought(iteration: u32, turn: &Turn, reply: Reply) -> Thought {
    let mut content = reply.content.unwrap_or_default();
    if turn.is_changed {
        content.push_str(" (changed)");
    }
    Thought {
        iteration,
        content,
        tool_calls: reply.tool_calls,
        native: reply.native,
        ..Thought::default()
    }
}

fn messages(conversation: &Conversation, window: Option<usize>) -> Value {
    let system = json!({"role": "system", "content": "You are a test."});
    let conversation = conversation.messages(window);
    let messages = conversation.iter().map(|message| serde_json::from_str(message).unwrap());
    [system].into_iter().chain(messages).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn c_23_2_every_request_of_a_conversation_is_accepted(turns in prop::collection::vec(turn(), 1..7)) {
        let script: Vec<_> = turns.iter().map(answer).collect();
        let server = ScriptedServer::start(script);
        let url = server.url();
        let mut providers =
            ["m", "other"].map(|model| provider_of_model(WireForm::Responses, &url, model));
        let mut conversation = Conversation::default();
        conversation.push_user_message("the task");
        let mut window = None;
        let mut issued: Vec<(bool, Value)> = Vec::new();
        for (turn, iteration) in turns.iter().zip(1..) {
            let model = if turn.is_other_model { "other" } else { "m" };
            let provider = &mut providers[usize::from(turn.is_other_model)];
            let (result, attempts) = ask_about(provider, model, &messages(&conversation, window));
            prop_assert_eq!(server.violations(), Vec::<String>::new());
            prop_assert!(attempts.is_empty());
            let reply = result.unwrap();
            // What this model thought, and nothing else, is in the request, as far as the window reaches.
            let body = server.requests().last().unwrap().body.clone();
            let sent: Vec<_> = body["input"].as_array().unwrap().iter().filter(|item| item["type"] == "reasoning").collect();
            let from = issued.len().saturating_sub(window.unwrap_or(usize::MAX));
            let expected: Vec<_> = issued[from..].iter().filter(|(is_other, item)| !item.is_null() && *is_other == turn.is_other_model).map(|(_, item)| item).collect();
            prop_assert_eq!(sent, expected);
            let native = reply.native.as_ref().map_or(Value::Null, |native| native.parts[0].clone());
            let thought = thought(iteration, turn, reply);
            let ids = conversation.push_thought(&thought);
            let is_kept = !turn.is_changed && is_plain(&thought.tool_calls, &ids);
            issued.push((turn.is_other_model, if is_kept { native } else { Value::Null }));
            for id in &ids {
                conversation.add_result(id, "the result");
            }
            if let Some(message) = &turn.message {
                conversation.push_user_message(message);
            }
            window = turn.window;
        }
    }
}

/// Whether the conversation has the calls as the endpoint sent them.
fn is_plain(calls: &[ToolCall], ids: &[String]) -> bool {
    calls.iter().zip(ids).all(|(call, id)| {
        let is_object = |text| matches!(serde_json::from_str(text), Ok(Value::Object(_)));
        call.id == *id
            && id.chars().count() <= 64
            && is_object(call.function.arguments.as_str().trim())
    })
}
