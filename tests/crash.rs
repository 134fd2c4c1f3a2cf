//! Killed anywhere, continued everywhere: the journal cut, and the engine killed or failed at each of its durable
//! operations. Effects are counted by a tool that appends to a ledger; a call counts once, however often the engine dies.
//!
//! The sweeps over operations need a build with `--features failpoints`; without it this binary holds the cuts alone.
//! `DELTA_LONG_TESTS=1` cuts at every byte instead of around every line end.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, and start real processes"
)]

use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_support::sandbox::{Ran, Sandbox};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// `note` has an effect; `fail` has one and fails.
const TOOLS: &str = "  - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n  \
                     - name: fail\n    shell: echo ${text} >> ledger; exit 3\n";

/// Several calls in an answer, a failing tool, an unknown one, a question in the middle of an answer, a second answer
/// after a further user message.
const TURNS: &str = "\
- say: first
  call: [{tool: note, args: {text: a}}, {tool: fail, args: {text: b}}, {tool: nothing, args: {}}]
- call: [{tool: note, args: {text: c}}, {tool: ask_human, args: {prompt: Really?}}, {tool: note, args: {text: d}}]
- call: [{tool: note, args: {text: e}}]
- say: done once
- call: [{tool: note, args: {text: f}}]
- say: done twice
";

fn sandbox() -> Sandbox {
    Sandbox::scripted(DELTA, TOOLS, TURNS)
}

/// Continues run `r` with what it needs until it has its last result. Gives how often that took a process.
fn drive_to_the_end(sandbox: &Sandbox) -> usize {
    for processes in 1..=12 {
        let ran = resume(sandbox, &[]);
        if ran.code == 0 && ran.stdout == "done twice\n" {
            return processes;
        }
        let wants = format!("{}{}", ran.stdout, ran.stderr);
        let said = if wants.contains("WAITING_FOR_INPUT") {
            resume(sandbox, &["-m", "yes"])
        } else if wants.contains("Run is COMPLETED") || ran.stdout == "done once\n" {
            resume(sandbox, &["-m", "again"])
        } else if wants.contains("never began") {
            sandbox.run("go", &["--format", "raw"])
        } else {
            panic!("a continued run may not end like this: {ran:?}");
        };
        if said.code == 0 && said.stdout == "done twice\n" {
            return processes;
        }
    }
    panic!("the run does not come to an end:\n{}", sandbox.read("work/.delta/r/journal.jsonl"));
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

/// Checks what must hold of every finished run: numbered events, each call with one request and one result, in order.
fn check_journal(sandbox: &Sandbox) {
    let events = sandbox.journal();
    let mut open: HashMap<String, usize> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], index + 1);
        let id = event["call_id"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            // A call that may be repeated is requested anew.
            "ACTION_REQUEST" if event["tool_name"] == "again" => drop(open.insert(id, 1)),
            "ACTION_REQUEST" => assert_eq!(open.insert(id, 1), None, "requested twice: {event}"),
            "ACTION_RESULT" => {
                assert_eq!(open.insert(id, 2), Some(1), "no request, or a second result: {event}")
            }
            "THOUGHT" => {
                assert!(open.values().all(|phase| *phase == 2), "asked with open calls: {event}")
            }
            _ => {}
        }
    }
    assert!(open.values().all(|phase| *phase == 2), "calls without a result: {open:?}");
}

/// Each note stands at most once in the ledger; one that is missing belongs to a call whose outcome is unknown.
fn check_ledger(sandbox: &Sandbox) {
    let ledger = fs::read_to_string(sandbox.path("work/ledger")).unwrap_or_default();
    let unknown = sandbox
        .observations()
        .iter()
        .filter(|seen| {
            seen.contains("outcome") || seen.contains("unknown, and it was not run again")
        })
        .count();
    let mut missing = 0;
    for note in ["a", "b", "c", "d", "e", "f"] {
        let times = ledger.lines().filter(|line| *line == note).count();
        assert!(times <= 1, "{note} took effect {times} times: {ledger:?}");
        missing += 1 - times;
    }
    assert!(missing <= unknown, "{missing} effects are missing, {unknown} outcomes are unknown");
}

/// Runs `test` for every number on all processors.
fn each(numbers: Vec<usize>, test: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(number) = numbers.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let run = std::panic::AssertUnwindSafe(|| test(*number));
                    if std::panic::catch_unwind(run).is_err() {
                        failed.lock().unwrap().push(*number);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed at {failed:?}");
}

#[test]
fn c_13_3_a_journal_cut_anywhere_goes_on_to_the_same_end() {
    let whole = sandbox();
    whole.run("go", &[]).expect_code(101);
    drive_to_the_end(&whole);
    let journal = fs::read(whole.path("work/.delta/r/journal.jsonl")).unwrap();
    let long = std::env::var_os("DELTA_LONG_TESTS").is_some();
    let near_line_end = |cut: &usize| {
        let around = &journal[cut.saturating_sub(2)..(cut + 2).min(journal.len())];
        long || cut.is_multiple_of(97) || around.contains(&b'\n')
    };
    let cuts: Vec<usize> = (1..journal.len()).filter(near_line_end).collect();
    each(cuts, |cut| {
        let sandbox = sandbox();
        sandbox.write("work/.delta/r/journal.jsonl", &journal[..cut]);
        let lines = journal[..cut]
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        let events: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        // What the journal says to have begun is not begun again: its effects are those of the first life.
        let begun = events.iter().filter(|event| event["argv"].is_array());
        let ledger: String = begun
            .map(|event| format!("{}\n", event["tool_args"]["text"].as_str().unwrap()))
            .collect();
        sandbox.write("work/ledger", &ledger);
        drive_to_the_end(&sandbox);
        check_journal(&sandbox);
        check_ledger(&sandbox);
        let notes = sandbox.read("work/ledger").lines().count();
        assert_eq!(notes, 6, "every effect once");
    });
}

#[test]
fn c_13_4_a_tool_that_kills_the_engine_is_not_run_again() {
    let tools = "  - name: kill\n    shell: echo killed >> ledger; echo so far; sleep 0.3; kill -9 $PPID; sleep 60\n  \
                 - name: again\n    shell: echo again >> ledger; test -e once && exit 0; touch once; kill -9 $PPID; sleep 60\n    idempotent: true\n";
    let turns = "- call: [{tool: kill}, {tool: again}]\n- say: 'seen ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    assert_eq!(sandbox.run("go", &[]).code, -1);
    assert_eq!(resume(&sandbox, &[]).code, -1, "the second call kills it again");
    resume(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), "killed\nagain\nagain\n");
    let seen = sandbox.observations();
    assert!(
        seen[0].contains("whether it took effect is unknown") && seen[0].contains("so far"),
        "{seen:?}"
    );
    check_journal(&sandbox);
}

#[cfg(feature = "failpoints")]
mod failpoints {
    use super::*;

    /// How many durable operations `run` has.
    fn operations() -> usize {
        let sandbox = sandbox();
        let count = sandbox.path("count");
        sandbox
            .run_command("go", &[])
            .env("DELTA_FAILPOINT_COUNT", &count)
            .output()
            .expect_code(101);
        fs::read(count).unwrap().len()
    }

    fn sweep(mode: &str) {
        let count = operations();
        assert!(count > 30, "only {count} operations");
        each((1..=count).collect(), |number| {
            let sandbox = sandbox();
            let ran = sandbox
                .run_command("go", &[])
                .env("DELTA_FAILPOINT", format!("{mode}:{number}"))
                .output();
            assert_ne!(ran.code, 0, "nothing is acknowledged as done: {ran:?}");
            if matches!(mode, "enospc" | "eio") && ran.code != 101 {
                assert!([1, 126].contains(&ran.code), "{ran:?}");
                let cause = if mode == "eio" { "Input/output error" } else { "No space left" };
                assert!(ran.stderr.contains(cause), "the cause is not named: {ran:?}");
            }
            if !sandbox.path("work/.delta/r").exists() {
                sandbox.run("go", &[]).expect_code(101);
            }
            drive_after_fault(&sandbox);
            check_journal(&sandbox);
            check_ledger(&sandbox);
            let left: Vec<_> = sandbox
                .files("work/.delta/r")
                .into_iter()
                .filter(|name| name.ends_with(".tmp"))
                .collect();
            assert!(left.is_empty(), "{left:?}");
        });
        println!("{mode}: {count} operations");
    }

    /// A fault may leave the run FAILED: that takes a message to go on.
    fn drive_after_fault(sandbox: &Sandbox) {
        let ran = resume(sandbox, &[]);
        if ran.stderr.contains("Run is FAILED") {
            let ran = resume(sandbox, &["-m", "try again"]);
            assert!([0, 101].contains(&ran.code), "{ran:?}");
        } else if ran.code == 1 && ran.stderr.contains("never began") {
            sandbox.run("go", &[]).expect_code(101);
        }
        drive_to_the_end(sandbox);
    }

    #[test]
    fn c_6_6_the_engine_may_die_before_any_durable_operation() {
        sweep("abort");
    }

    #[test]
    fn c_13_3_a_write_to_the_journal_may_be_torn() {
        sweep("torn");
    }

    #[test]
    fn c_13_6_a_full_disk_stops_the_run_and_loses_nothing() {
        sweep("enospc");
    }

    #[test]
    fn c_13_6_an_input_output_error_stops_the_run_and_loses_nothing() {
        sweep("eio");
    }
}
