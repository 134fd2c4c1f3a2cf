//! The engine killed or failed at each of its durable operations while a person decides about calls: an approved call
//! starts at most once, nothing starts without its approval, and nobody is asked twice.

use super::failpoints::{acknowledged, check_fault, check_files, operations};
use super::turns::{end, is_stopped};
use super::*;
use std::collections::BTreeSet;
use test_support::running::send_signal;

const ASKING_TOOLS: &str = "  - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n  \
                            - name: asks\n    shell: echo ${text} >> ledger; echo noted ${text}\n    approve: ask\n";

/// A question between two calls of the same answer, one that is denied, and one after it.
const ASKING_TURNS: &str = "\
- call: [{tool: note, args: {text: a}}, {tool: asks, args: {text: b}}, {tool: note, args: {text: c}}]
- call: [{tool: asks, args: {text: d}}, {tool: note, args: {text: e}}]
- call: [{tool: asks, args: {text: f}}]
- say: done
";

/// The call that is denied.
const DENIED: &str = "d";

/// Which process of a run has the fault.
#[derive(Debug, Clone, Copy)]
enum Decision {
    /// The one that asks first.
    None,
    /// The one that gets an approval, and asks again.
    Approval,
    /// The one that gets a denial, and asks again.
    Denial,
}

/// A run just before the process with the fault, and that process.
fn before(decision: Decision) -> (Sandbox, Delta) {
    let sandbox = Sandbox::scripted(DELTA, ASKING_TOOLS, ASKING_TURNS);
    if matches!(decision, Decision::None) {
        let command = sandbox.run_command("go", &["--format", "jsonl"]);
        return (sandbox, command);
    }
    sandbox.run("go", &[]).expect_code(101);
    if matches!(decision, Decision::Denial) {
        resume(&sandbox, &["-m", "yes"]).expect_code(101);
    }
    let message = if matches!(decision, Decision::Denial) { "no: not this" } else { "yes" };
    let args = ["continue", "--run-id", "r", "-w", "work", "-m", message, "--format", "jsonl"];
    let command = sandbox.delta(args);
    (sandbox, command)
}

/// The whole events in the journal, which may not exist.
fn whole_events(sandbox: &Sandbox) -> Vec<Value> {
    let journal = fs::read(sandbox.path("work/.delta/r/journal.jsonl")).unwrap_or_default();
    let lines = journal.split_inclusive(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line.strip_suffix(b"\n")?).ok()).collect()
}

/// The argument of the call that waits for a decision.
fn undecided(sandbox: &Sandbox) -> Option<String> {
    let events = whole_events(sandbox);
    let decided = |event: &&Value| event["type"] == "APPROVAL_DECISION";
    let decided: BTreeSet<String> =
        events.iter().filter(decided).map(|event| event["call_id"].to_string()).collect();
    let asked = events.iter().rfind(|event| event["type"] == "APPROVAL_REQUEST")?;
    let is_open = !decided.contains(&asked["call_id"].to_string());
    is_open.then(|| asked["tool_args"]["text"].as_str().unwrap().to_owned())
}

/// Continues the run, and decides what it asks, until it has its result.
fn decide_to_the_end(sandbox: &Sandbox) {
    for _ in 0..12 {
        let ran = match undecided(sandbox).as_deref() {
            Some(DENIED) => resume(sandbox, &["-m", "no: not this"]),
            Some(_) => resume(sandbox, &["-m", "yes"]),
            None if whole_events(sandbox).is_empty() => sandbox.run("go", &["--format", "raw"]),
            None => resume(sandbox, &[]),
        };
        if ran.code == 0 && ran.stdout == "done\n" {
            return;
        }
        if ran.stderr.contains("Run is FAILED") {
            assert!([0, 101].contains(&resume(sandbox, &["-m", "try again"]).code));
        } else if ran.stderr.contains("has no task") {
            resume(sandbox, &["-m", "go"]).expect_code(101);
        } else {
            assert_eq!(ran.code, 101, "a continued run may not end like this: {ran:?}");
        }
    }
    panic!("the run does not come to an end:\n{}", sandbox.read("work/.delta/r/journal.jsonl"));
}

/// Checks what must hold of a finished run whose calls were approved or denied.
fn check_decisions(sandbox: &Sandbox) {
    let events = sandbox.journal();
    let of = |kind: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["type"] == kind && event["tool_name"] == "asks")
            .collect()
    };
    let requests = of("APPROVAL_REQUEST");
    let texts: Vec<&Value> = requests.iter().map(|event| &event["tool_args"]["text"]).collect();
    assert_eq!(texts, ["b", DENIED, "f"], "each call is asked about once");
    let decisions: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "APPROVAL_DECISION").collect();
    let calls = |events: &[&Value]| -> Vec<Value> {
        events.iter().map(|event| event["call_id"].clone()).collect()
    };
    assert_eq!(calls(&decisions), calls(&requests), "each call is decided about once");
    let verdicts: Vec<&Value> = decisions.iter().map(|event| &event["approved"]).collect();
    assert_eq!(verdicts, [true, false, true]);
    for start in of("ACTION_REQUEST").iter().filter(|event| event["argv"].is_array()) {
        let decision = decisions.iter().find(|event| event["call_id"] == start["call_id"]).unwrap();
        assert_eq!(decision["approved"], true, "a denied call was started: {start}");
        assert!(decision["seq"].as_u64() < start["seq"].as_u64(), "started before its approval");
        assert_eq!(start["approval"]["by"], "operator", "{start}");
    }
    let ledger = sandbox.read("work/ledger");
    assert!(!ledger.lines().any(|line| line == DENIED), "a denied call took effect: {ledger:?}");
}

fn sweep_of_decisions(mode: &str, decision: Decision) {
    let (sandbox, command) = before(decision);
    let count = operations(&sandbox, command);
    each((1..=count).collect(), |number| {
        let (sandbox, command) = before(decision);
        let ran = command.env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        check_fault(mode, 101, &ran);
        decide_to_the_end(&sandbox);
        check_journal(&sandbox);
        check_ledger(&sandbox, &["a", "b", "c", "e", "f"]);
        check_decisions(&sandbox);
        check_files(&sandbox, &acknowledged(&ran));
    });
    println!("{mode} in a run with {decision:?} of a call: {count} operations");
}

#[test]
fn c_21_3_a_process_that_asks_for_approval_may_die_anywhere() {
    sweep_of_decisions("abort", Decision::None);
    sweep_of_decisions("torn", Decision::None);
}

#[test]
fn c_21_3_a_process_that_gets_an_approval_may_die_anywhere() {
    sweep_of_decisions("abort", Decision::Approval);
    sweep_of_decisions("torn", Decision::Approval);
}

#[test]
fn c_21_3_a_process_that_gets_a_denial_may_die_anywhere() {
    sweep_of_decisions("abort", Decision::Denial);
    sweep_of_decisions("torn", Decision::Denial);
}

#[test]
fn c_13_6_a_full_disk_starts_no_call_without_its_approval() {
    for decision in [Decision::None, Decision::Approval, Decision::Denial] {
        sweep_of_decisions("enospc", decision);
    }
}

#[test]
fn c_21_2_an_answer_is_for_what_was_open_when_its_command_began() {
    let turns = "- call: [{tool: asks, args: {text: a}}]\n- call: [{tool: asks, args: {text: b}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, ASKING_TOOLS, turns);
    let by_turns = |command: Delta| command.env("DELTA_LEASE", "turns");
    let approve = || by_turns(sandbox.delta(["approve", "r", "-w", "work"]));
    by_turns(sandbox.run_command("go", &[])).output().expect_code(101);
    // It has read the question, and has not claimed the run.
    let mut late = approve().env("DELTA_FAILPOINT", "stop:3").spawn();
    assert!(until("the process stops", || is_stopped(&mut late)));
    approve().output().expect_code(101);
    assert!(send_signal("CONT", late.id()));
    let late = end(late);
    let refused = "run r was continued by another process, and was not answered";
    assert!(late.stderr.contains(refused), "{late:?}");
    assert_eq!(sandbox.read("work/ledger"), "a\n");
}
