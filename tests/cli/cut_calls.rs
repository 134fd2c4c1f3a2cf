//! Calls that a process does not live to see the end of (C-12.8): what the request and the answer had cost by then counts.

use super::DELTA;
use serde_json::{Value, json};
use std::process::Child;
use test_support::running::send_signal;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::until;

/// A stream that says ` word` 40 times, 200 bytes, and then nothing more.
fn words() -> Answer {
    let event = |delta: Value| {
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        format!("data: {chunk}\n\n")
    };
    let body = event(json!({"role": "assistant"})) + &event(json!({"content": " word"})).repeat(40);
    let length = body.len();
    Answer::event_stream(body).stall(length)
}

/// A stream with the arguments of a call, 80 bytes, and then nothing more.
fn arguments() -> Answer {
    let call = |call: Value| json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
    let first = json!({"index": 0, "id": "c1", "function": {"name": "echo", "arguments": ""}});
    let piece = json!({"index": 0, "function": {"arguments": "0123456789"}});
    let body =
        format!("data: {}\n\n", call(first)) + &format!("data: {}\n\n", call(piece)).repeat(8);
    let length = body.len();
    Answer::event_stream(body).stall(length)
}

fn served(answers: Vec<Answer>, llm: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: m\n  base_url: {}\n  max_tokens: 50{llm}", server.url());
    sandbox.agent(&llm, "  - name: echo\n    exec: echo ${text}\n");
    (server, sandbox)
}

/// The text of the file of the call under way, if there is one.
fn open_call(sandbox: &Sandbox) -> Option<String> {
    let entries = std::fs::read_dir(sandbox.path("work/.delta/r/io/invocations")).ok()?;
    let paths = entries.map(|entry| entry.unwrap().path());
    let open = paths.filter(|path| path.extension().is_some_and(|end| end == "open")).max();
    std::fs::read_to_string(open?).ok()
}

/// Sends `signal` when `count` pieces of the last answer of `server` have arrived.
fn stopped(
    mut child: Child,
    (server, asked): (&ScriptedServer, usize),
    sandbox: &Sandbox,
    signal: &str,
    (piece, count): (&str, usize),
) {
    until("the pieces", || {
        (server.requests().len() == asked).then_some(())?;
        let parts = open_call(sandbox)?.lines().skip(2).map(str::to_owned).collect::<String>();
        (parts.matches(piece).count() == count).then_some(())
    });
    assert!(send_signal(signal, child.id()));
    child.wait().unwrap();
}

fn start(sandbox: &Sandbox, more: &[&str]) -> Child {
    sandbox.run_command("hello", more).spawn()
}

fn again(sandbox: &Sandbox, more: &[&str]) -> Child {
    sandbox.delta(["continue", "r", "-w", "work", "-q"].iter().chain(more).copied()).spawn()
}

/// The tokens that the interrupted calls count with, in and out.
fn counted(sandbox: &Sandbox) -> Vec<(u64, u64)> {
    let errors = sandbox.events("ERROR").into_iter();
    let usages = errors.map(|error| error["error_details"]["discarded_usage"][0].clone());
    let count = |usage: &Value, name: &str| usage[name].as_u64().unwrap();
    usages.map(|usage| (count(&usage, "input_tokens"), count(&usage, "output_tokens"))).collect()
}

#[test]
fn c_12_8_a_killed_process_pays_for_its_call() {
    let answers = vec![words(), words(), Answer::text("done").usage(60, 5)];
    let (server, sandbox) = served(answers, "");
    let limit = ["--max-tokens", "100000"];
    stopped(start(&sandbox, &limit), (&server, 1), &sandbox, "KILL", (" word", 40));
    let open = open_call(&sandbox).unwrap();
    let record: Value = serde_json::from_str(open.lines().next().unwrap()).unwrap();
    assert_eq!(record["request"], server.requests()[0].body, "the record stands before the call");
    let input = server.requests()[0].bytes.len().div_ceil(4) as u64;
    let show = |used: u64| {
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
        assert!(shown.contains(&format!("{used} of 100000 tokens are used")), "{shown}");
    };
    show(input + 50);
    stopped(again(&sandbox, &[]), (&server, 2), &sandbox, "KILL", (" word", 40));
    show(2 * (input + 50));
    let ran = again(&sandbox, &["--format", "json"]).wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let usage = &result["metrics"]["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"]),
        (&json!(2 * input + 60), &json!(105))
    );
    assert_eq!(counted(&sandbox), [(input, 50), (input, 50)]);
    assert_eq!(open_call(&sandbox), None);
    let error = &sandbox.events("ERROR")[0];
    assert_eq!(error["error_details"]["type"], "interrupted");
    let name = error["error_details"]["interrupted"].as_str().unwrap();
    let record: Value =
        serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{name}"))).unwrap();
    assert_eq!(record["arrived"], json!({"text": " word".repeat(40)}));
    assert_eq!(
        (&record["response"], &record["usage"]["output_tokens"]),
        (&Value::Null, &json!(50))
    );
    let ledger = sandbox.read("work/.delta/r/budget.jsonl");
    assert!(!ledger.contains("release"), "{ledger}");
    // What the journal says is what the ledger says: it can be made again from it.
    std::fs::remove_file(sandbox.path("work/.delta/r/budget.jsonl")).unwrap();
    sandbox.delta(["continue", "r", "-w", "work", "-q", "-m", "x"]).output().expect_code(1);
    assert!(
        sandbox
            .read("work/.delta/r/budget.jsonl")
            .contains(&format!("\"tokens\":{}", 2 * input + 165))
    );
}

#[test]
fn c_12_8_a_stopped_process_pays_for_what_had_arrived() {
    let pricing = "\n  pricing: {input: 10, output: 100}";
    for signal in ["TERM", "INT"] {
        let (server, sandbox) = served(vec![words(), Answer::text("done").usage(60, 5)], pricing);
        let child = start(&sandbox, &["--max-cost", "9"]);
        stopped(child, (&server, 1), &sandbox, signal, (" word", 40));
        let input = server.requests()[0].bytes.len().div_ceil(4) as u64;
        assert_eq!(counted(&sandbox), [(input, 50)]);
        let end = sandbox.events("ENGINE_END").pop().unwrap();
        let cost = (input * 10 + 50 * 100) as f64 / 1e6;
        assert_eq!(end["usage"]["cost_usd"], json!(cost));
        let ledger = sandbox.read("work/.delta/r/budget.jsonl");
        assert!(
            ledger.contains(&format!("\"tokens\":{},\"cost_usd\":{cost}}}", input + 50)),
            "{ledger}"
        );
        assert_eq!(open_call(&sandbox), None);
        let done = again(&sandbox, &["--format", "raw"]).wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "done\n");
        assert_eq!(counted(&sandbox), [(input, 50)], "once");
    }
}

#[test]
fn c_12_8_the_arguments_of_calls_and_what_the_endpoint_reports_count() {
    let (server, sandbox) = served(vec![arguments(), Answer::text("done").usage(60, 5)], "");
    stopped(start(&sandbox, &[]), (&server, 1), &sandbox, "KILL", ("0123456789", 8));
    again(&sandbox, &[]).wait().unwrap();
    let input = server.requests()[0].bytes.len().div_ceil(4) as u64;
    assert_eq!(counted(&sandbox), [(input, 20)], "without any limit too");
    let reported = json!({"choices": [{"index": 0, "delta": {"content": " word"}}],
        "usage": {"prompt_tokens": 4000, "completion_tokens": 7, "total_tokens": 4007}});
    let body = format!("data: {reported}\n\n");
    let length = body.len();
    let answers = vec![Answer::event_stream(body).stall(length), Answer::text("done")];
    let (server, sandbox) = served(answers, "");
    stopped(start(&sandbox, &[]), (&server, 1), &sandbox, "KILL", ("4000", 1));
    again(&sandbox, &[]).wait().unwrap();
    assert_eq!(counted(&sandbox), [(4000, 7)]);
}

#[test]
fn c_12_8_a_call_that_was_not_made_costs_nothing() {
    let busy = Answer::error(503, "overloaded", None).header("Retry-After", "500");
    let (server, sandbox) = served(vec![busy], "");
    let child = start(&sandbox, &["--max-tokens", "100000"]);
    stopped(child, (&server, 1), &sandbox, "KILL", ("overloaded", 1));
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains("0 of 100000 tokens are used"), "{shown}");
}
