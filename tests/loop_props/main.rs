//! What holds for every run: it can be taken up after every event, and what the LLM sees is a function of the journal.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests are tests too")]

mod budget;
mod gemini;

use delta_base::id::{RunId, SnapshotId};
use delta_base::time::Timestamp;
use delta_run::event::approval::{ApprovalDecision, ApprovalRequest, ApprovalSource};
use delta_run::event::{
    ActionRequest, ActionResult, EngineStart, ErrorDetails, Event, ForkFiles, ForkOrigin, HookEnd,
    HumanQuestion, InputType, Payload, ProcessInfo, RunConfig, RunFork, RunStatus, StageApply,
    Thought, WorkspaceSnapshot,
};
use delta_run::state::{PendingCall, RunEnding, RunState, RunStep};
use delta_words::{ToolCall, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use test_support::server::check_request;

/// What the LLM says, answer by answer; behind it comes a text.
type Script = Vec<(String, Vec<ToolCall>)>;

/// Messages, each of which is JSON.
fn read<M: AsRef<str>>(messages: &[M]) -> Value {
    messages
        .iter()
        .map(|message| serde_json::from_str::<Value>(message.as_ref()).unwrap())
        .collect()
}

/// A run that an engine without an outside world works on.
#[derive(Clone)]
struct Simulated {
    events: Vec<Event>,
    state: RunState,
}

impl Simulated {
    fn new() -> Self {
        let mut run = Self { events: Vec::new(), state: RunState::default() };
        run.start(1);
        run.record(Payload::user_message("the task", Vec::new()));
        run
    }

    /// What a process finds that takes up the run after these events.
    fn of(events: &[Event]) -> Self {
        Self { events: events.to_vec(), state: RunState::from_events(events) }
    }

    fn record(&mut self, payload: Payload) {
        let seq = self.events.len() as u64 + 1;
        let timestamp = Timestamp::from_millis(1_760_000_000_000 + seq.cast_signed());
        let event = Event::new(seq, timestamp, payload);
        self.state.apply(&event);
        self.events.push(event);
    }

    fn start(&mut self, epoch: u32) {
        self.record(Payload::EngineStart(Box::new(EngineStart {
            run_id: RunId::parse("r").unwrap(),
            epoch,
            agent_home: "/a".to_owned(),
            agent_name: "a".to_owned(),
            agent_tree: None,
            agent_source: None,
            work_dir: "/w".to_owned(),
            workspace_id: "w".to_owned(),
            max_iterations: 1000,
            calls_per_answer: None,
            repeats: None,
            config: RunConfig {
                builtins: Some(vec!["finish".to_owned(), "ask_human".to_owned()]),
                ..RunConfig::default()
            },
            process: ProcessInfo {
                pid: 1,
                hostname: "h".to_owned(),
                start_time_unix: 1,
                process_name: "delta".to_owned(),
            },
            boot_id: None,
            lease: None,
            parent: None,
            seal: None,
            engine_version: "0".to_owned(),
        })));
    }

    fn request(&mut self, call: &PendingCall, argv: Option<Vec<String>>) {
        if argv.is_none() && self.state.is_requested(&call.id) {
            return;
        }
        self.record(Payload::ActionRequest(Box::new(ActionRequest {
            iteration: call.iteration,
            call_id: call.id.clone(),
            tool_name: call.tool.clone(),
            tool_args: json!(call.arguments),
            coerced: Vec::new(),
            argv,
            execution: None,
            approval: None,
            sandbox: None,
        })));
    }

    fn result(&mut self, call: &PendingCall, text: &str, result: Option<Value>) {
        self.record(Payload::ActionResult(Box::new(ActionResult {
            iteration: call.iteration,
            call_id: call.id.clone(),
            tool_name: call.tool.clone(),
            observation_content: text.to_owned(),
            images: Vec::new(),
            exit_code: None,
            duration_ms: 0,
            execution: None,
            record_sha256: None,
            runs: Vec::new(),
            truncated: false,
            result: result.map(Into::into),
            repeats: 0,
            ended_background: Vec::new(),
            left_running: Vec::new(),
            sandbox: None,
        })));
    }

    /// Works to the end; checks before every answer that a strict endpoint would take the conversation.
    fn finish(&mut self, script: &Script) -> RunEnding {
        loop {
            match self.state.next_step() {
                RunStep::Think { iteration } => {
                    self.check_conversation();
                    let end = ("the end".to_owned(), vec![]);
                    let (content, tool_calls) =
                        script.get(iteration as usize - 1).unwrap_or(&end).clone();
                    self.record(Payload::Thought(Box::new(Thought {
                        iteration,
                        content,
                        tool_calls,
                        ..Thought::default()
                    })));
                }
                RunStep::Act(call) => self.act(&call),
                RunStep::Settle { call, .. } => self.result(&call, "[unknown]", None),
                RunStep::EndStagedCall(call) => self.result(&call, "[staged]", None),
                RunStep::Wait(question) => self.record(Payload::HumanInputReceived {
                    iteration: question.iteration,
                    call_id: question.call_id,
                    response: "yes".to_owned(),
                }),
                RunStep::AskApproval(request) => {
                    self.record(Payload::ApprovalDecision(Box::new(ApprovalDecision {
                        iteration: request.iteration,
                        call_id: request.call_id,
                        approved: true,
                        by: ApprovalSource::Operator,
                        reason: None,
                        for_tool: false,
                        for_project: false,
                        seal: None,
                    })));
                }
                RunStep::Reply { call, response } => self.result(&call, &response, None),
                RunStep::End(ending) => return ending,
            }
        }
    }

    fn act(&mut self, call: &PendingCall) {
        match call.tool.as_str() {
            "run" => {
                self.request(call, Some(vec!["true".to_owned()]));
                self.result(call, "ran", None);
            }
            // Up to three calls at the same time.
            "parallel" => {
                let others = self.state.queued_after(call);
                let others = others.take_while(|call| call.tool == "parallel").take(2).cloned();
                let batch: Vec<PendingCall> = [call.clone()].into_iter().chain(others).collect();
                for call in &batch {
                    self.request(call, Some(vec!["true".to_owned()]));
                }
                batch.iter().for_each(|call| self.result(call, "ran", None));
            }
            "approved" => {
                let asked = self.state.asked_approval(&call.id);
                if asked.is_none_or(|asked| asked.decision.is_none()) {
                    return self.record(Payload::ApprovalRequest(Box::new(ApprovalRequest {
                        iteration: call.iteration,
                        call_id: call.id.clone(),
                        tool_name: call.tool.clone(),
                        tool_args: json!({}),
                        argv: vec!["true".to_owned()],
                        command_sha256: String::new(),
                        files: None,
                        environment: None,
                        workspace: None,
                        changed: Vec::new(),
                        rule: None,
                        stage: None,
                        named_by: None,
                    })));
                }
                self.request(call, Some(vec!["true".to_owned()]));
                self.result(call, "ran", None);
            }
            "ask_human" => {
                self.request(call, None);
                self.record(Payload::HumanInputRequest(HumanQuestion {
                    iteration: call.iteration,
                    call_id: call.id.clone(),
                    prompt: "?".to_owned(),
                    input_type: InputType::Text,
                    sensitive: false,
                    named_by: None,
                }));
            }
            "finish" => {
                self.request(call, None);
                let first = self.state.result.is_none();
                self.result(call, "finished", first.then(|| json!(call.id)));
            }
            _ => {
                self.request(call, None);
                self.result(call, "no such tool", None);
            }
        }
    }

    fn check_conversation(&self) {
        for limit in [None, Some(1), Some(2)] {
            let messages = read(&self.state.conversation.messages(limit));
            let checked = check_request(&json!({"model": "m", "messages": messages}));
            assert_eq!(checked, Ok(()), "{messages:#}");
        }
    }

    /// How often each call was begun with a command line.
    fn begun(&self) -> HashMap<&str, usize> {
        let mut begun = HashMap::new();
        for event in &self.events {
            if let Payload::ActionRequest(request) = &event.payload
                && request.argv.is_some()
            {
                *begun.entry(request.call_id.as_str()).or_default() += 1;
            }
        }
        begun
    }
}

fn call() -> impl Strategy<Value = ToolCall> {
    let id = prop_oneof![
        Just(""),
        Just("a"),
        Just("b"),
        Just("call_1_1"),
        Just("call_2_1"),
        Just("../x"),
        Just("a\nb")
    ];
    let tool = prop_oneof![3 => Just("run"), 3 => Just("parallel"), 1 => Just("finish"), 1 => Just("ask_human"), 1 => Just("approved"), 1 => Just("../no such"), 1 => Just("")];
    let arguments = prop_oneof![
        Just("{}"),
        Just("{\"x\": 1}"),
        Just("broken"),
        Just(""),
        Just("[]"),
        Just("\"\\ud800\"")
    ];
    (id, tool, arguments).prop_map(|(id, tool, arguments)| ToolCall::new(id, tool, arguments))
}

fn script() -> impl Strategy<Value = Script> {
    prop::collection::vec(("[a-z]{0,3}", prop::collection::vec(call(), 1..4)), 0..4)
}

/// The state without what has no order of its own.
#[track_caller]
fn same(one: &RunState, other: &RunState) {
    assert_eq!(one.conversation, other.conversation);
    assert_eq!(one.next_step(), other.next_step());
    assert_eq!((one.seq, one.iterations, one.status), (other.seq, other.iterations, other.status));
    assert_eq!((&one.result, &one.error, &one.usage), (&other.result, &other.error, &other.usage));
    assert_eq!(
        (one.created_at, one.updated_at, one.started_at),
        (other.created_at, other.updated_at, other.started_at)
    );
    assert_eq!(
        (&one.start, one.was_cut_off, one.script_turn),
        (&other.start, other.was_cut_off, other.script_turn)
    );
    assert_eq!((one.ratio, one.left_out), (other.ratio, other.left_out));
    assert_eq!(one.human_request(), other.human_request());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn c_28_9_results_are_in_the_order_of_their_calls(script in script()) {
        let mut whole = Simulated::new();
        whole.finish(&script);
        for length in 1..=whole.events.len() {
            let mut run = Simulated::of(&whole.events[..length]);
            run.start(2);
            if run.state.conversation.task().is_empty() {
                continue;
            }
            run.finish(&script);
            let mut state = RunState::default();
            let mut last = None;
            for event in &run.events {
                state.apply(event);
                let Payload::ActionResult(result) = &event.payload else { continue };
                let index = state.call(&result.call_id).map(|call| call.index);
                // `finish` comes last.
                if result.tool_name != "finish" {
                    let call = Some((result.iteration, index));
                    prop_assert!(call > last, "{:?}", run.events);
                    last = call;
                }
            }
        }
    }

    #[test]
    fn c_13_4_a_run_taken_up_after_any_event_ends_alike_and_begins_nothing_twice(script in script()) {
        let mut whole = Simulated::new();
        let ending = whole.finish(&script);
        for length in 1..=whole.events.len() {
            let mut run = Simulated::of(&whole.events[..length]);
            run.start(2);
            // A run whose task has not come yet has nothing to do.
            if run.state.conversation.task().is_empty() {
                continue;
            }
            prop_assert_eq!(run.finish(&script), ending.clone());
            prop_assert_eq!(&run.state.result, &whole.state.result);
            prop_assert_eq!(run.state.iterations, whole.state.iterations);
            prop_assert_eq!(run.begun(), whole.begun());
            prop_assert!(run.begun().values().all(|times| *times == 1));
        }
    }

    #[test]
    fn c_3_5_a_message_after_any_event_leaves_a_conversation_that_endpoints_accept(script in script()) {
        let mut whole = Simulated::new();
        whole.finish(&script);
        for length in 1..=whole.events.len() {
            let mut run = Simulated::of(&whole.events[..length]);
            run.start(2);
            run.record(Payload::user_message("and another thing", Vec::new()));
            run.check_conversation();
            prop_assert_eq!(run.finish(&script), RunEnding::Completed);
            run.check_conversation();
            let sent = run.state.conversation.messages(None).join(",");
            prop_assert!(sent.contains("and another thing"));
        }
    }

    #[test]
    fn c_6_5_the_state_kept_is_the_state_rebuilt(script in script()) {
        let mut whole = Simulated::new();
        whole.finish(&script);
        let mut kept = RunState::default();
        for (index, event) in whole.events.iter().enumerate() {
            kept.apply(event);
            let lines: Vec<String> = whole.events[..=index].iter().map(Event::to_line).collect();
            let read: Vec<Event> = lines.iter().map(|line| Event::from_line(line).unwrap()).collect();
            let rebuilt = RunState::from_events(&read);
            same(&kept, &rebuilt);
            let bytes = |state: &RunState| state.conversation.messages(None).join(",");
            prop_assert_eq!(bytes(&kept), bytes(&rebuilt));
        }
    }

    #[test]
    fn c_6_1_every_event_is_one_line_and_comes_back_from_it(payload in payload(), seq in 1..u64::MAX, at in 0..4_102_444_800_000_i64) {
        let event = Event::new(seq, Timestamp::from_millis(at), payload);
        let line = event.to_line();
        prop_assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let value: Value = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(&value["seq"], &json!(seq));
        prop_assert_eq!(Event::from_line(&line).unwrap(), event);
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[\"\\\\\n\r\t,:{}\u{0}\u{1b}\u{2028}a😀]{0,12}"]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |number| serde_json::Number::from_f64(number)
            .map(Value::from)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    let status = prop_oneof![
        Just(RunStatus::Completed),
        Just(RunStatus::WaitingForInput),
        Just(RunStatus::Interrupted)
    ];
    let end = (text(), status, any::<u32>());
    prop_oneof![
        text().prop_map(|content| Payload::user_message(content, Vec::new())),
        thoughts(),
        requests(),
        results(),
        (any::<u32>(), text(), text()).prop_map(|(iteration, call_id, response)| {
            Payload::HumanInputReceived { iteration, call_id, response }
        }),
        (any::<u32>(), text(), text(), any::<bool>()).prop_map(
            |(iteration, call_id, prompt, sensitive)| {
                Payload::HumanInputRequest(HumanQuestion {
                    iteration,
                    call_id,
                    prompt,
                    input_type: InputType::Password,
                    sensitive,
                    named_by: None,
                })
            }
        ),
        (
            any::<u32>(),
            text(),
            json_value(),
            prop::collection::vec(text(), 0..3),
            any::<Option<u32>>()
        )
            .prop_map(|(iteration, call_id, tool_args, argv, rule)| {
                Payload::ApprovalRequest(Box::new(ApprovalRequest {
                    iteration,
                    tool_name: call_id.clone(),
                    command_sha256: call_id.clone(),
                    files: None,
                    environment: None,
                    workspace: None,
                    changed: Vec::new(),
                    call_id,
                    tool_args,
                    argv,
                    rule,
                    stage: None,
                    named_by: None,
                }))
            }),
        (any::<u32>(), text(), any::<[bool; 2]>(), prop::option::of(text())).prop_map(
            |(iteration, call_id, [approved, for_tool], reason)| {
                let by = ApprovalSource::Terminal;
                Payload::ApprovalDecision(Box::new(ApprovalDecision {
                    iteration,
                    call_id,
                    approved,
                    by,
                    reason,
                    for_tool,
                    for_project: !for_tool && approved,
                    seal: None,
                }))
            }
        ),
        (text(), text(), prop::option::of(text()), prop::option::of(any::<u16>())).prop_map(
            |(error_message, kind, hint, status)| Payload::Error {
                error_message,
                error_details: ErrorDetails { kind, hint, status, ..ErrorDetails::default() },
            }
        ),
        (any::<u32>(), text(), prop::option::of(any::<i32>()), any::<[bool; 3]>()).prop_map(
            |(iteration, hook, exit_code, [changed, ends, fails])| Payload::HookExecution {
                iteration,
                record: hook.clone(),
                record_sha256: fails.then(|| hook.clone()),
                end: ends.then(|| {
                    let status = if fails { RunStatus::Failed } else { RunStatus::Completed };
                    Box::new(HookEnd { status, result: hook.clone().into() })
                }),
                hook,
                exit_code,
                changed,
            }
        ),
        (
            any::<u32>(),
            tree(),
            any::<[u64; 4]>(),
            any::<bool>(),
            prop::collection::vec(text(), 0..3)
        )
            .prop_map(
                |(iteration, tree, [files, bytes, written, left_out], found, exclude)| {
                    Payload::Snapshot(Box::new(WorkspaceSnapshot {
                        iteration,
                        tree,
                        files,
                        bytes,
                        written,
                        left_out,
                        found,
                        exclude,
                    }))
                }
            ),
        (any::<u32>(), prop::option::of(any::<u32>()), tree(), tree()).prop_map(
            |(iteration, to, tree, saved)| Payload::Rollback {
                iteration,
                to,
                tree,
                saved,
                seal: None
            }
        ),
        (
            any::<u32>(),
            prop::collection::vec(text(), 0..3),
            [tree(), tree(), tree()],
            any::<bool>()
        )
            .prop_map(|(iteration, paths, [tree, saved, base], rest)| {
                Payload::Apply(Box::new(StageApply {
                    iteration,
                    paths,
                    tree,
                    saved,
                    base,
                    rest,
                    seal: None,
                }))
            }),
        any::<(u32, bool)>().prop_map(|(iteration, rest)| Payload::ApplyEnd {
            iteration,
            rest,
            seal: None
        }),
        (any::<u32>(), tree(), tree()).prop_map(|(iteration, base, saved)| Payload::Discard {
            iteration,
            base,
            saved,
            seal: None
        }),
        (run_id(), text(), run_id(), any::<u32>(), prop::option::of(tree())).prop_map(
            |(run_id, dir, origin, iteration, tree)| {
                let (run_dir, work_dir) = (dir.clone(), dir.clone());
                let from = ForkOrigin { run_id: origin, iteration, run_dir, work_dir: dir.clone() };
                let (workspace_id, files) = (dir, ForkFiles::Present);
                Payload::Fork(Box::new(RunFork {
                    run_id,
                    work_dir,
                    workspace_id,
                    from,
                    files,
                    tree,
                    seal: None,
                }))
            }
        ),
        end.prop_map(|(run_id, status, final_iteration)| Payload::EngineEnd {
            run_id,
            status,
            final_iteration,
            agent_name: None,
            usage: None,
            waits_for: None,
            seal: None,
        }),
    ]
}

fn tree() -> impl Strategy<Value = SnapshotId> {
    any::<[u8; 32]>().prop_map(SnapshotId::from_digest)
}

fn run_id() -> impl Strategy<Value = RunId> {
    "[0-9a-zA-Z][0-9a-zA-Z._-]{0,20}".prop_map(|text| RunId::parse(&text).unwrap())
}

fn thoughts() -> impl Strategy<Value = Payload> {
    let usage = (text(), any::<u64>(), any::<u64>(), prop::option::of(0.0..1e6)).prop_map(
        |(model, input_tokens, output_tokens, cost_usd)| Usage {
            model,
            input_tokens,
            cached_input_tokens: 0,
            cache_write_tokens: None,
            reasoning_tokens: None,
            output_tokens,
            cost_usd,
            tier: None,
        },
    );
    let call = (text(), text(), text())
        .prop_map(|(id, name, arguments)| ToolCall::new(id, name, arguments));
    let calls = prop::collection::vec(call, 0..3);
    (
        any::<u32>(),
        text(),
        calls,
        prop::option::of(text()),
        prop::option::of(usage),
        prop::option::of(any::<usize>()),
        (prop::option::of(any::<u64>()), any::<usize>()),
    )
        .prop_map(|(iteration, content, tool_calls, reasoning, usage, script_turn, room)| {
            Payload::Thought(Box::new(Thought {
                iteration,
                content,
                tool_calls,
                reasoning,
                usage,
                script_turn,
                estimated_tokens: room.0,
                left_out: room.1,
                ..Thought::default()
            }))
        })
}

fn requests() -> impl Strategy<Value = Payload> {
    let argv = prop::option::of(prop::collection::vec(text(), 0..4));
    (any::<u32>(), text(), text(), json_value(), argv, prop::option::of(text())).prop_map(
        |(iteration, call_id, tool_name, tool_args, argv, execution)| {
            Payload::ActionRequest(Box::new(ActionRequest {
                iteration,
                call_id,
                tool_name,
                tool_args,
                coerced: Vec::new(),
                argv,
                execution,
                approval: None,
                sandbox: None,
            }))
        },
    )
}

fn results() -> impl Strategy<Value = Payload> {
    let result =
        prop::option::of(json_value().prop_filter("null is none", |value| !value.is_null()));
    (
        any::<u32>(),
        text(),
        text(),
        prop::option::of(any::<i32>()),
        any::<u64>(),
        any::<bool>(),
        result,
    )
        .prop_map(
            |(
                iteration,
                call_id,
                observation_content,
                exit_code,
                duration_ms,
                truncated,
                result,
            )| {
                Payload::ActionResult(Box::new(ActionResult {
                    iteration,
                    tool_name: call_id.clone(),
                    call_id,
                    observation_content,
                    images: Vec::new(),
                    exit_code,
                    duration_ms,
                    execution: None,
                    record_sha256: None,
                    runs: Vec::new(),
                    truncated,
                    result: result.map(Into::into),
                    repeats: 0,
                    ended_background: Vec::new(),
                    left_running: Vec::new(),
                    sandbox: None,
                }))
            },
        )
}
