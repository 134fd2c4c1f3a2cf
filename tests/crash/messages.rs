//! Messages to a run (C-33): `delta tell` and the process that receives are killed or fail at each of their durable
//! operations, and each message is received once, waits, or was refused.

use super::*;
use failpoints::check_fault;

const TURNS: &str = "- call: [{tool: stop}]\n- say: first\n- say: 'seen ${last}'\n- say: again\n";
const TOOLS: &str = "  - name: stop\n    shell: kill -TERM $PPID; exec sleep 60\n";

/// An INTERRUPTED run.
fn interrupted(more: &[&str]) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("go", more).expect_code(130);
    sandbox
}

fn tell(sandbox: &Sandbox, more: &[&str]) -> Delta {
    sandbox.delta(["tell", "r", "-w", "work"].iter().chain(more).copied())
}

/// The number of durable operations of a command that succeeds.
fn count(sandbox: &Sandbox, command: Delta) -> usize {
    let count = sandbox.path("count");
    command.env("DELTA_FAILPOINT_COUNT", &count).output().expect_code(0);
    fs::read(count).unwrap().len()
}

/// How often the run has received each message.
fn times_received(sandbox: &Sandbox, ids: &[&str]) -> Vec<usize> {
    let events = journal_that_counts(sandbox);
    let received = |id: &str| events.iter().filter(|event| event["source"]["id"] == id).count();
    ids.iter().map(|id| received(id)).collect()
}

/// The events of run `r`, whatever owns it.
fn journal_that_counts(sandbox: &Sandbox) -> Vec<Value> {
    let show = ["show", "r", "-w", "work", "--follow", "--format", "json"];
    let shown = sandbox.delta(show).output().expect_code(0).stdout;
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Continues the run to its result. A fault may have left it FAILED, which takes a message if none waits.
fn drive(sandbox: &Sandbox, more: &[&str]) {
    for _ in 0..6 {
        let ran = resume(sandbox, more);
        if ran.code == 0 || ran.stderr.contains("Run is COMPLETED") {
            return;
        }
        if ran.stderr.contains("Run is FAILED") {
            resume(sandbox, &[more, &["-m", "go on"]].concat());
        }
    }
    panic!("the run does not come to an end:\n{}", sandbox.read("work/.delta/r/journal.jsonl"));
}

fn check_left(sandbox: &Sandbox) {
    let left = sandbox.files("work/.delta/r");
    let is_left = |name: &String| name.ends_with(".draft") || name.starts_with("messages/");
    assert!(!left.iter().any(is_left), "{left:?}");
}

fn sweep_of_tell(mode: &str) {
    let sandbox = interrupted(&[]);
    let operations = count(&sandbox, tell(&sandbox, &["x"]));
    assert!(operations >= 6, "only {operations} operations");
    each((1..=operations).collect(), |number| {
        let sandbox = interrupted(&[]);
        let command = tell(&sandbox, &["x", "--id", "m"]);
        let ran = command.env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        check_fault(mode, 0, &ran);
        if ran.code != 0 {
            // What its sender does then, whether it is there or not.
            tell(&sandbox, &["x", "--id", "m"]).output().expect_code(0);
        }
        drive(&sandbox, &[]);
        assert_eq!(times_received(&sandbox, &["m"]), [1], "{mode}:{number}");
        check_left(&sandbox);
    });
    println!("{mode} in tell: {operations} operations");
}

#[test]
fn c_33_1_a_sender_that_dies_or_fails_anywhere_loses_no_message_that_it_accepted() {
    sweep_of_tell("abort");
    sweep_of_tell("eio");
    sweep_of_tell("enospc");
}

fn sweep_of_receiving(mode: &str, lease: &[&str]) {
    let before = || {
        let sandbox = interrupted(lease);
        tell(&sandbox, &["one", "--id", "a"]).output().expect_code(0);
        tell(&sandbox, &["two", "--id", "b", "--at-end"]).output().expect_code(0);
        tell(&sandbox, &["--max-tokens", "900000", "--id", "c"]).output().expect_code(0);
        sandbox
    };
    let command = |sandbox: &Sandbox| {
        let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
        sandbox.delta(fixed.iter().chain(lease).copied())
    };
    let sandbox = before();
    let operations = count(&sandbox, command(&sandbox));
    each((1..=operations).collect(), |number| {
        let sandbox = before();
        let ran = command(&sandbox).env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        check_fault(mode, 0, &ran);
        drive(&sandbox, lease);
        assert_eq!(times_received(&sandbox, &["a", "b", "c"]), [1; 3], "{mode}:{number}");
        let ledgers = sandbox.files("work/.delta/r").into_iter();
        let ledgers = ledgers.filter(|name| name.contains("budget") && name.ends_with(".jsonl"));
        let mut ledgers = ledgers.map(|name| sandbox.read(&format!("work/.delta/r/{name}")));
        assert!(ledgers.any(|ledger| ledger.contains("\"max_tokens\":900000")), "{mode}:{number}");
        check_left(&sandbox);
    });
    println!("{mode} in receiving: {operations} operations");
}

#[test]
fn c_33_1_a_run_that_dies_or_fails_anywhere_receives_each_message_once() {
    sweep_of_receiving("abort", &[]);
    sweep_of_receiving("eio", &[]);
}

#[test]
fn c_33_10_a_run_by_turns_that_dies_anywhere_receives_each_message_once() {
    sweep_of_receiving("abort", &["--lease", "turns"]);
}
