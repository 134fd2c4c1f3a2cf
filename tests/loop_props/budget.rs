//! What a budget sends of any conversation: no more than there is room for, whole pairs, the task, the newest iteration,
//! and the same after a rebuild from the journal.

use delta_agent::context::{
    ContextError, ContextInputs, ContextManifest, RequestContext, TokenCounter,
};
use delta_base::engine_variables::EngineVars;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::time::{self, Timestamp};
use delta_process::{EnvVars, LaunchContext};
use delta_run::event::{ActionResult, Event, Payload, Thought};
use delta_run::state::RunState;
use delta_words::{ToolCall, Usage};
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::YamlDocument;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use test_support::server::check_request;

/// One iteration: what a person said before it, the answer, the results of its calls, and how many times more tokens
/// than four bytes each the endpoint reports, in tenths.
type Round = (Vec<String>, String, Vec<String>, Option<u64>);

const NOTICE: &str = "# Context Block: journal\n\n[";

fn manifest(budget: &str) -> ContextManifest {
    let yaml = format!("sources:\n  - {{type: journal{budget}}}\n");
    let doc = YamlDocument::parse("context.yaml".to_owned(), yaml).unwrap();
    let manifest = ContextManifest::read(&doc, "system_prompt.md").unwrap();
    let mut report = DiagnosticReport::default();
    doc.drain_diagnostics(&mut report);
    assert!(report.is_empty());
    manifest
}

fn build<'s>(
    manifest: &ContextManifest,
    state: &'s RunState,
) -> Result<RequestContext<'s>, ContextError> {
    let vars = EngineVars { agent_home: "/a".into(), cwd: "/w".into(), run_dir: "/r".into() };
    let launch = |_: &_| LaunchContext {
        cwd: "/".into(),
        env: EnvVars::default(),
        secrets: Secrets::default(),
        containment: None,
        sandbox: None,
    };
    let mut around = ContextInputs {
        iteration: state.iterations + 1,
        ratio: state.ratio,
        vars: &vars,
        cancel: &CancelToken::manual().unwrap(),
        launch: &launch,
        clock: time::current_time,
        counter: &mut TokenCounter::default(),
        run_generators: true,
    };
    manifest.build(state, &mut around)
}

/// The tokens of messages by the counter's own measure: each on its own, rounded up.
fn tokens<M: AsRef<str>>(messages: &[M], state: &RunState) -> u64 {
    let bytes: usize = messages.iter().map(|message| message.as_ref().len() + 1).sum();
    state.ratio.tokens(bytes)
}

/// The messages of a context.
fn sent_in<'c>(context: &'c RequestContext<'_>) -> Vec<&'c str> {
    context.messages().into_iter().flat_map(|some| some.iter()).collect()
}

/// Whether there is surely room for what the last request sent, and what came since.
fn has_room(state: &RunState, left_out: usize, room: u64) -> bool {
    let parts: Vec<_> = state.conversation.parts(left_out).collect();
    let messages: Vec<_> = parts.iter().flat_map(|part| part.messages().iter()).collect();
    // Each part, and the notice, is rounded up.
    tokens(&messages, state) + state.ratio.tokens(160) + (parts.len() as u64) < room
}

#[derive(Default)]
struct Told {
    events: Vec<Event>,
    state: RunState,
}

impl Told {
    fn record(&mut self, payload: Payload) {
        let seq = self.events.len() as u64 + 1;
        let event = Event::new(seq, Timestamp::from_millis(0), payload);
        self.state.apply(&event);
        self.events.push(event);
    }

    fn answer(&mut self, content: &str, results: &[String], tenths: Option<u64>, left_out: usize) {
        let iteration = self.state.iterations + 1;
        let call = |index| ToolCall::new(format!("c{iteration}_{index}"), "t", "{}");
        let usage = |tenths: u64| Usage {
            model: "m".to_owned(),
            input_tokens: tenths * 100,
            cached_input_tokens: 0,
            cache_write_tokens: None,
            reasoning_tokens: None,
            output_tokens: 1,
            cost_usd: None,
            tier: None,
        };
        self.record(Payload::Thought(Box::new(Thought {
            iteration,
            content: content.to_owned(),
            tool_calls: (0..results.len()).map(call).collect(),
            usage: tenths.map(usage),
            estimated_tokens: Some(1000),
            left_out,
            ..Thought::default()
        })));
        for (index, result) in results.iter().enumerate() {
            self.record(Payload::ActionResult(Box::new(ActionResult {
                iteration,
                call_id: format!("c{iteration}_{index}"),
                tool_name: "t".to_owned(),
                observation_content: result.clone(),
                images: Vec::new(),
                exit_code: Some(0),
                duration_ms: 0,
                execution: None,
                record_sha256: None,
                runs: Vec::new(),
                truncated: false,
                repeats: 0,
                ended_background: Vec::new(),
                left_running: Vec::new(),
                sandbox: None,
                result: None,
            })));
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z ]{1,40}", "[é\"\\\\\n😀\u{1}]{1,30}", "[a-z]{200,400}"]
}

fn round() -> impl Strategy<Value = Round> {
    let said = prop_oneof![4 => Just(0_usize), 1 => 1..3_usize];
    let said = said.prop_flat_map(|count| prop::collection::vec(text(), count));
    let results = prop::collection::vec(text(), 0..4);
    let tenths = prop_oneof![2 => Just(None), 1 => (1..80_u64).prop_map(Some)];
    (said, text(), results, tenths)
}

/// The message of a user that the `kept` newest answers begin with.
fn worked_on(messages: &[Json], kept: usize) -> Option<&Json> {
    let answers = messages.iter().enumerate().filter(|(_, it)| it["role"] == "assistant");
    let (first, _) = answers.rev().nth(kept.checked_sub(1)?)?;
    messages[..first].iter().rfind(|message| message["role"] == "user")
}

/// What is sent must be the notice, the task, the message that is worked on, and the end of the whole conversation,
/// beginning with an iteration.
fn check_shape(context: &RequestContext<'_>, state: &RunState) -> Result<(), TestCaseError> {
    let sent = crate::read(&sent_in(context));
    let whole = crate::read(&state.conversation.messages(None));
    let sent = sent.as_array().unwrap();
    let whole = whole.as_array().unwrap();
    let told = sent.first().is_some_and(|message| message["role"] == "system");
    prop_assert_eq!(told, context.left_out > 0);
    if told {
        prop_assert!(sent[0]["content"].as_str().unwrap().starts_with(NOTICE));
    }
    let rest = &sent[usize::from(told)..];
    let task = json!({"role": "user", "content": state.conversation.task()});
    prop_assert_eq!(&rest[0], &task, "the task stays");
    let rest = if context.left_out > 0 { &rest[1..] } else { rest };
    let is_end = |rest: &[Json]| whole.ends_with(rest);
    let is_pinned = !is_end(rest) && rest.first().is_some_and(|it| it["role"] == "user");
    let rest = if is_pinned { &rest[1..] } else { rest };
    prop_assert!(is_end(rest), "the end of the conversation");
    let kept = rest.iter().filter(|message| message["role"] == "assistant").count();
    prop_assert_eq!(kept, state.conversation.iteration_count() - context.left_out);
    prop_assert_eq!(worked_on(sent, kept), worked_on(whole, kept), "the message that is worked on");
    prop_assert!(
        kept > 0 || state.conversation.iteration_count() == 0,
        "the newest iteration stays"
    );
    let checked = check_request(&json!({"model": "m", "messages": sent}));
    prop_assert_eq!(checked, Ok(()));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn c_8_4_a_budget_is_never_exceeded_and_never_breaks_a_conversation(
        task in text(),
        rounds in prop::collection::vec(round(), 1..24),
        room in 150..2500_u64,
    ) {
        let manifest = manifest(&format!(", max_tokens: {room}"));
        let mut run = Told::default();
        run.record(Payload::user_message(task, Vec::new()));
        let mut before = (0, run.state.ratio);
        for (said, content, results, tenths) in &rounds {
            said.iter().for_each(|content| {
                run.record(Payload::user_message(content, Vec::new()));
            });
            let rebuilt = RunState::from_events(&run.events);
            let left_out = match (build(&manifest, &run.state), build(&manifest, &rebuilt)) {
                (Ok(context), Ok(again)) => {
                    check_shape(&context, &run.state)?;
                    let used = tokens(&sent_in(&context), &run.state);
                    prop_assert!(used <= room && used <= context.blocks[0].tokens);
                    prop_assert!(context.blocks[0].tokens <= room);
                    if before.1 == run.state.ratio {
                        prop_assert!(context.left_out >= before.0, "what went stays away");
                        if has_room(&run.state, before.0, room) {
                            prop_assert_eq!(context.left_out, before.0, "no more than has to");
                        }
                    }
                    prop_assert_eq!(sent_in(&context), sent_in(&again));
                    prop_assert_eq!(context.blocks, again.blocks);
                    context.left_out
                }
                (Err(one), Err(other)) => {
                    // Only when the least that must be sent has no room.
                    let least = run.state.conversation.messages(Some(1));
                    let notice = run.state.ratio.tokens(160);
                    prop_assert!(tokens(&least, &run.state) + notice + 4 > room);
                    prop_assert_eq!(one.to_string(), other.to_string());
                    return Ok(());
                }
                _ => return Err(TestCaseError::fail("the rebuild differs")),
            };
            before = (left_out, run.state.ratio);
            run.answer(content, results, *tenths, left_out);
        }
    }

    #[test]
    fn c_8_4_any_place_to_begin_with_and_any_limit_give_a_whole_conversation(
        rounds in prop::collection::vec(round(), 1..12),
        room in 150..2500_u64,
        left_out in 0..30_usize,
        limit in 1..12_usize,
    ) {
        let manifest = manifest(&format!(", max_tokens: {room}, max_iterations: {limit}"));
        let mut run = Told::default();
        run.record(Payload::user_message("the task", Vec::new()));
        for (said, content, results, tenths) in &rounds {
            said.iter().for_each(|content| {
                run.record(Payload::user_message(content, Vec::new()));
            });
            run.answer(content, results, *tenths, left_out);
        }
        if let Ok(context) = build(&manifest, &run.state) {
            prop_assert!(context.blocks[0].tokens <= room);
            let sent = crate::read(&sent_in(&context));
            prop_assert!(sent.as_array().unwrap().iter().any(|message| message["content"] == "the task"));
            prop_assert_eq!(check_request(&json!({"model": "m", "messages": sent})), Ok(()));
            let answers = sent.as_array().unwrap().iter().filter(|it| it["role"] == "assistant");
            let answers = answers.count();
            prop_assert!((1..=limit).contains(&answers));
            // A budget that was raised takes back in what there is room for.
            let whole = tokens(&run.state.conversation.messages(Some(limit)), &run.state);
            if whole + rounds.len() as u64 + 2 < room / 4 {
                prop_assert_eq!(answers, limit.min(rounds.len()));
            }
        }
    }
}
