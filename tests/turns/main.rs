//! Ownership by turns (C-26.1): two processes on one directory, as if no lock existed. A process in another PID namespace
//! plays one of another host: neither sees the other.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests may, and start real processes"
)]

use serde_json::Value;
use std::fs;
use std::process::{Child, Command};
use test_support::running::send_signal;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::wait::{until, until_line};
use test_support::{effort, needs};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// `hold` says that it runs, and ends when somebody writes into the fifo `gate`.
const TOOLS: &str = "  - name: hold\n    shell: echo ${text} >> ledger; echo held > held; cat gate\n  \
                     - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n  \
                     - name: die\n    shell: echo ${text} >> ledger; kill -9 $PPID; exec sleep 1000\n";

/// A call that is held open between two others.
const HELD: &str = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: hold, args: {text: b}}]\n\
                    - call: [{tool: note, args: {text: c}}]\n- say: done\n";

/// An owner counts as silent after seven looks, each 0.6 seconds after the last one.
const TTL: &str = "4200ms";

fn sandbox(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    fs::create_dir(sandbox.path("work")).unwrap();
    assert!(Command::new("mkfifo").arg(sandbox.path("work/gate")).status().unwrap().success());
    sandbox
}

fn by_turns(command: Delta) -> Delta {
    command.env("DELTA_LEASE", "turns").env("DELTA_LEASE_TTL", TTL)
}

fn start(sandbox: &Sandbox) -> Child {
    by_turns(sandbox.run_command("task", &["--format", "raw"])).spawn()
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["continue", "r", "-w", "work", "--format", "raw"];
    by_turns(sandbox.delta(fixed.iter().chain(more).copied()))
}

/// The command, in a PID namespace of its own.
fn elsewhere(sandbox: &Sandbox, args: &[&str]) -> Delta {
    let mut command = by_turns(sandbox.delta(args.iter().copied()));
    let mut other = Command::new("unshare");
    other.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    other.arg(DELTA).args(args).current_dir(sandbox.path("")).env_clear();
    for (name, value) in command.command().get_envs() {
        other.env(name, value.unwrap_or_default());
    }
    *command.command() = other;
    command
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

fn release(sandbox: &Sandbox) {
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
}

fn signal(child: &Child, name: &str) {
    assert!(send_signal(name, child.id()));
}

/// The names of the turns.
fn turns(sandbox: &Sandbox) -> Vec<String> {
    let is_turn = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    sandbox.files("work/.delta/r/lease").into_iter().filter(is_turn).collect()
}

/// What must hold of every run that is owned by turns.
fn check(sandbox: &Sandbox, ledger: &str) {
    assert_eq!(sandbox.read("work/ledger"), ledger);
    let expected: Vec<String> =
        (1..=turns(sandbox).len()).map(|turn| format!("{turn:06}")).collect();
    assert_eq!(turns(sandbox), expected, "the numbers are dense");
    // Each act of the journal has its turn, and its journal is the one that is named so.
    let journal = sandbox.journal();
    let is_by_turns = |event: &Value| event["lease"] == "turns";
    let first = journal.iter().position(is_by_turns).unwrap();
    for pair in journal[first..].windows(2) {
        let is_call = pair[0]["type"] == "ACTION_REQUEST" && pair[0]["argv"].is_array();
        let is_act = is_call || pair[0]["type"] == "ENGINE_END";
        let by_itself = pair[0]["status"] == "INTERRUPTED" && pair[1]["type"] == "ENGINE_START";
        if is_act && !by_itself {
            assert_eq!(pair[1]["type"], "TURN", "{pair:?}");
            assert_eq!(pair[1]["from"], pair[0]["seq"]);
        }
    }
    sandbox.verify();
}

#[test]
fn c_26_1_each_act_takes_a_turn_and_nothing_else_does() {
    let tools = TOOLS.replace("  - name: note\n", "  - name: note\n    parallel: true\n");
    let answers = "- call: [{tool: note, args: {text: a}}, {tool: note, args: {text: a}}]\n\
                   - call: [{tool: nothing, args: {}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, answers);
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: ['true']}\n");
    let ran = by_turns(sandbox.run_command("task", &["--format", "raw"])).output();
    assert!(ran.stderr.contains("COMPLETED after 3 iterations"), "{}", ran.stderr);
    assert_eq!(ran.expect_code(0).stdout, "done\n");
    // The claim, the mailbox, two calls at the same time, the hook, the end.
    assert_eq!(turns(&sandbox), ["000001", "000002", "000003", "000004", "000005"]);
    let events: Vec<String> = sandbox
        .journal()
        .iter()
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .skip_while(|kind| kind != "ACTION_REQUEST")
        .collect();
    let calls = ["ACTION_REQUEST", "ACTION_REQUEST", "TURN", "ACTION_RESULT", "ACTION_RESULT"];
    let refused = ["THOUGHT", "ACTION_REQUEST", "ACTION_RESULT", "THOUGHT"];
    let leaving = ["TURN", "HOOK_EXECUTION", "ENGINE_END", "TURN"];
    assert_eq!(events, [&calls[..], &refused, &leaving].concat());
    let start = &sandbox.events("ENGINE_START")[0];
    assert_eq!((&start["lease"], &start["epoch"]), (&"turns".into(), &1.into()));
    assert_eq!(sandbox.metadata()["epoch"], 1);
    let records = sandbox.files("work/.delta/r/io/tool_executions");
    assert!(
        records.iter().all(|name| name.contains("-e1.") || name.contains("-e1-2.")),
        "{records:?}"
    );
    assert!(!sandbox.path("work/.delta/r/lock").exists());
    sandbox.verify();
    // On a local disk nothing of this exists.
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    assert!(!sandbox.path("work/.delta/r/lease").exists());
    assert_eq!(sandbox.events("TURN").len(), 0);
}

#[test]
fn c_26_1_force_against_a_living_owner_does_no_harm() {
    let sandbox = sandbox(HELD);
    let owner = start(&sandbox);
    until_line(&sandbox.path("work/held"));
    let refused = resume(&sandbox, &[]).output().expect_code(1);
    let expected = format!("error: Run r is still active (PID {}).\n", owner.id());
    assert!(refused.stderr.starts_with(&expected), "{}", refused.stderr);
    let ran = resume(&sandbox, &["--force"]).output().expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(sandbox.read("work/ledger"), "a\nb\nc\n");
    assert!(sandbox.observations()[1].starts_with("[the engine stopped during this call"));
    // The successor has ended its call, as it ends everything of a killed engine; it learns of that at its next act.
    let ran = end(owner).expect_code(1);
    let message = "error: run r was taken over by ";
    assert!(ran.stderr.contains(message), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("because this process had no heartbeat; it has done nothing since\n")
    );
    assert_eq!(ran.stdout, "");
    check(&sandbox, "a\nb\nc\n");
    let ended = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    assert!(ended.stdout.contains("COMPLETED after 4 iterations"), "{}", ended.stdout);
}

#[test]
fn c_33_10_a_replaced_process_neither_receives_nor_loses_a_message() {
    let held_twice = "- call: [{tool: hold, args: {text: a}}]\n\
                      - call: [{tool: hold, args: {text: b}}]\n- say: 'seen ${last}'\n";
    let sandbox = sandbox(held_twice);
    let owner = start(&sandbox);
    until_line(&sandbox.path("work/held"));
    signal(&owner, "STOP");
    fs::remove_file(sandbox.path("work/held")).unwrap();
    let successor = resume(&sandbox, &["--force"]).spawn();
    until_line(&sandbox.path("work/held"));
    sandbox.delta(["tell", "r", "-w", "work", "look here"]).output().expect_code(0);
    signal(&owner, "CONT");
    let ran = end(owner).expect_code(1);
    assert!(ran.stderr.contains("error: run r was taken over by "), "{}", ran.stderr);
    assert_eq!(sandbox.files("work/.delta/r/messages").len(), 1);
    release(&sandbox);
    assert_eq!(end(successor).expect_code(0).stdout, "seen look here\n");
    check(&sandbox, "a\nb\n");
}

#[test]
fn c_26_1_a_replaced_ensure_waits_and_prints_the_result() {
    let sandbox = sandbox(HELD);
    let owner = by_turns(sandbox.run_command("task", &["--ensure", "--format", "raw"])).spawn();
    until_line(&sandbox.path("work/held"));
    resume(&sandbox, &["--force"]).output().expect_code(0);
    let ran = end(owner).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert!(ran.stderr.contains("Note: run r was taken over by "), "{}", ran.stderr);
    check(&sandbox, "a\nb\nc\n");
}

#[test]
fn c_26_1_the_run_of_a_dead_process_is_taken_over_at_once() {
    let answers = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: die, args: {text: b}}]\n\
                   - call: [{tool: note, args: {text: c}}]\n- say: done\n";
    let sandbox = sandbox(answers);
    // An hour of silence would be needed if the process could not be seen.
    let patient = |command: Delta| command.env("DELTA_LEASE", "turns").env("DELTA_LEASE_TTL", "1h");
    assert_eq!(patient(sandbox.run_command("task", &[])).output().code, -1);
    let ran = patient(sandbox.run_command("task", &["--ensure", "--format", "raw"])).output();
    assert_eq!(ran.expect_code(0).stdout, "done\n");
    check(&sandbox, "a\nb\nc\n");
    assert_eq!(sandbox.events("ENGINE_START").len(), 2);
    assert_eq!(sandbox.events("ENGINE_START")[1]["epoch"], 2);
}

#[test]
fn c_26_1_a_silent_process_of_another_host_is_replaced() {
    if !effort::is_full() {
        return needs::skip("waits for two minutes, so only with DELTA_FULL_TESTS");
    }
    let sandbox = sandbox(HELD);
    let owner = start(&sandbox);
    until_line(&sandbox.path("work/held"));
    // It is alive, and shows it.
    let force = ["continue", "r", "-w", "work", "--format", "raw", "--force"];
    let again = &force[..force.len() - 1];
    let refused = elsewhere(&sandbox, again).output().expect_code(1);
    assert!(refused.stderr.contains("Run r is still active on host '"), "{}", refused.stderr);
    assert!(refused.stderr.contains("waiting up to "), "{}", refused.stderr);
    let removed = elsewhere(&sandbox, &["rm", "r", "-w", "work", "-y"]).output().expect_code(1);
    assert!(removed.stderr.contains("works on it, or has died"), "{}", removed.stderr);
    signal(&owner, "STOP");
    let ran = elsewhere(&sandbox, again).output().expect_code(0);
    assert_eq!(ran.stdout, "done\n", "{}", ran.stderr);
    assert!(ran.stderr.contains("[Janitor] Cleaned up orphaned run"), "{}", ran.stderr);
    signal(&owner, "CONT");
    let ran = end(owner).expect_code(1);
    assert!(ran.stderr.contains("error: run r was taken over by "), "{}", ran.stderr);
    check(&sandbox, "a\nb\nc\n");
}

#[test]
fn c_26_1_an_owner_that_was_silent_too_long_ends_its_call() {
    let sandbox = sandbox(HELD);
    let owner = start(&sandbox);
    until_line(&sandbox.path("work/held"));
    let beat = sandbox.files("work/.delta/r/lease");
    let beat = beat.iter().find(|name| name.starts_with("beat.")).unwrap();
    // As if the file system had gone: no beat succeeds. Nobody takes over the run meanwhile.
    fs::remove_file(sandbox.path("work/.delta/r/lease").join(beat)).unwrap();
    let ran = end(owner).expect_code(130);
    assert_eq!(ran.stdout, "", "{}", ran.stderr);
    let ended = sandbox.events("ENGINE_END");
    assert_eq!(ended[0]["status"], "INTERRUPTED");
    resume(&sandbox, &[]).output().expect_code(0);
    check(&sandbox, "a\nb\nc\n");
}

#[test]
fn c_26_1_a_run_moves_from_the_lock_to_turns_and_stays() {
    let answers = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: die, args: {text: b}}]\n\
                   - call: [{tool: note, args: {text: c}}]\n- say: done\n- say: again\n";
    let sandbox = sandbox(answers);
    assert_eq!(sandbox.run("task", &[]).code, -1);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    assert_eq!(resume(&sandbox, &[]).output().expect_code(0).stdout, "done\n");
    assert!(sandbox.read("work/.delta/r/journal.jsonl").starts_with(&journal));
    assert!(!sandbox.path("work/.delta/r/lock").exists());
    check(&sandbox, "a\nb\nc\n");
    // Whatever a later process would choose.
    let count = turns(&sandbox).len();
    for lease in ["auto", "flock"] {
        let plain = ["continue", "r", "-w", "work", "--format", "raw", "-m", "more"];
        let ran = sandbox.delta(plain).args(["--lease", lease]).output();
        if lease == "auto" {
            assert_eq!(ran.expect_code(0).stdout, "again\n");
        }
    }
    assert!(turns(&sandbox).len() > count);
    assert!(!sandbox.path("work/.delta/r/lock").exists());
    let leases: Vec<Value> =
        sandbox.events("ENGINE_START").iter().map(|start| start["lease"].clone()).collect();
    assert_eq!(leases, ["flock", "turns", "turns", "turns"]);
    // A run that a process works on with the lock is not moved.
    let held = self::sandbox(HELD);
    let owner = held.run_command("task", &["--format", "raw"]).spawn();
    until_line(&held.path("work/held"));
    resume(&held, &[]).output().expect_code(1);
    resume(&held, &["--force"]).output().expect_code(1);
    release(&held);
    assert_eq!(end(owner).expect_code(0).stdout, "done\n");
    assert!(held.events("TURN").is_empty());
}

#[test]
fn c_26_1_the_result_of_a_run_that_has_ended_is_read_without_a_claim() {
    let sandbox = sandbox("- call: [{tool: note, args: {text: a}}]\n- say: done\n- say: more\n");
    let ensure =
        || by_turns(sandbox.run_command("task", &["--ensure", "--format", "raw"])).output();
    assert_eq!(ensure().expect_code(0).stdout, "done\n");
    let listed = || {
        let ran = by_turns(sandbox.delta(["list-runs", "-w", "work", "--format", "json"])).output();
        ran.expect_code(0).json()
    };
    let (files, list) = (sandbox.files("work/.delta/r/lease"), listed());
    assert_eq!(list[0]["status"], "COMPLETED");
    assert_eq!(ensure().expect_code(0).stdout, "done\n");
    assert_eq!(sandbox.files("work/.delta/r/lease"), files);
    // The whole journal says the same.
    let beat = files.iter().find(|name| name.starts_with("beat.")).unwrap();
    let left = sandbox.read(&format!("work/.delta/r/lease/{beat}"));
    assert!(left.starts_with("left "), "{left}");
    sandbox.write(&format!("work/.delta/r/lease/{beat}"), format!("{:<31}\n", 5));
    assert_eq!(listed(), list);
    // A claim that records nothing leaves a copy that is read in the same way.
    assert_eq!(ensure().expect_code(0).stdout, "done\n");
    let files = sandbox.files("work/.delta/r/lease");
    assert_eq!(files.iter().filter(|name| name.starts_with("token.")).count(), 2, "{files:?}");
    assert_eq!(ensure().expect_code(0).stdout, "done\n");
    assert_eq!(sandbox.files("work/.delta/r/lease"), files);
    assert_eq!(listed(), list);
    let more = resume(&sandbox, &["-m", "more"]).output().expect_code(0);
    assert_eq!(more.stdout, "more\n");
    check(&sandbox, "a\n");
}

#[test]
fn c_26_1_of_twenty_that_want_the_run_one_gets_it() {
    let sandbox = sandbox(HELD);
    let mut children: Vec<Child> = (0..20).map(|_| start(&sandbox)).collect();
    until_line(&sandbox.path("work/held"));
    until("nineteen refusals", || {
        let ended = children.iter_mut().filter_map(|child| child.try_wait().unwrap()).count();
        (ended == 19).then_some(())
    });
    release(&sandbox);
    let ends: Vec<Ran> = children.into_iter().map(end).collect();
    assert_eq!(ends.iter().filter(|ran| ran.code == 0).count(), 1, "{ends:?}");
    check(&sandbox, "a\nb\nc\n");
    // The others have left nothing.
    let lease = sandbox.files("work/.delta/r/lease");
    assert_eq!(lease.iter().filter(|name| name.starts_with("journal.")).count(), 1, "{lease:?}");
}

#[test]
fn c_26_1_every_command_knows_a_run_that_is_owned_by_turns() {
    let tools =
        format!("{TOOLS}  - name: asks\n    shell: echo ${{text}} >> ledger\n    approve: ask\n");
    let answers = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: asks, args: {text: b}}]\n\
                   - call: [{tool: note, args: {text: c}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, answers);
    let delta = |args: &[&str], code: i32| {
        let ran = by_turns(sandbox.delta(args.iter().copied())).output();
        ran.expect_code(code).stdout
    };
    let snapshots = ["--format", "raw", "--snapshots"];
    by_turns(sandbox.run_command("task", &snapshots)).output().expect_code(101);
    assert!(delta(&["inbox", "work"], 0).contains("delta approve r"));
    assert!(delta(&["list-runs", "-w", "work"], 0).contains("r  WAITING_FOR_INPUT"));
    assert_eq!(delta(&["approve", "r", "-w", "work", "--format", "raw"], 0), "done\n");
    check(&sandbox, "a\nb\nc\n");
    assert!(delta(&["show", "r", "-w", "work"], 0).contains("COMPLETED after 4 iterations"));
    assert!(delta(&["stop", "r", "-w", "work"], 0).contains("r  COMPLETED"));
    delta(&["replay", "r", "-w", "work"], 0);
    delta(&["export", "r", "-w", "work", "--to", "openai"], 0);
    delta(&["view", "r", "-w", "work", "-o", "page.html"], 0);
    assert!(delta(&["diff", "r", "1", "-w", "work"], 1).contains("+b"));
    assert!(delta(&["rollback", "r", "-w", "work", "--to", "1"], 0).contains("1 changed"));
    assert_eq!(sandbox.read("work/ledger"), "a\n");
    assert_eq!(sandbox.events("ROLLBACK").len(), 1);
    let fork = ["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into", "other"];
    delta(&fork, 0);
    assert_eq!(sandbox.read("other/ledger"), "a\n");
    let forked = sandbox.read("other/.delta/f/journal.jsonl");
    assert!(forked.lines().last().unwrap().starts_with("{\"type\":\"FORK\""));
    delta(&["continue", "f", "-w", "other"], 101);
    delta(&["pack", "r", "-w", "work"], 0);
    delta(&["replay", "r", "-w", "work"], 0);
    delta(&["unpack", "r", "-w", "work"], 0);
    delta(&["trust", "r", "-w", "work"], 0);
    assert_eq!(sandbox.events("RUN_TRUSTED").len(), 1);
    delta(&["rm", "r", "-w", "work", "-y"], 0);
    assert!(!sandbox.path("work/.delta/r").exists());
}

#[test]
fn c_26_1_stop_ends_the_owner_of_this_machine() {
    let sandbox = sandbox(HELD);
    let owner = start(&sandbox);
    until_line(&sandbox.path("work/held"));
    let stopped = by_turns(sandbox.delta(["stop", "r", "-w", "work"])).output().expect_code(0);
    assert_eq!(stopped.stdout, "r  INTERRUPTED\n");
    end(owner).expect_code(130);
    resume(&sandbox, &[]).output().expect_code(0);
    check(&sandbox, "a\nb\nc\n");
}

#[test]
fn c_26_1_a_budget_is_carried_over_to_the_next_owner() {
    let sandbox = sandbox(HELD);
    let limits = ["--format", "raw", "--max-tokens", "1000000"];
    let owner = by_turns(sandbox.run_command("task", &limits)).spawn();
    until_line(&sandbox.path("work/held"));
    resume(&sandbox, &["--force"]).output().expect_code(0);
    end(owner).expect_code(1);
    let ledgers: Vec<String> = sandbox
        .files("work/.delta/r/lease")
        .into_iter()
        .filter(|name| name.starts_with("budget.") && name.ends_with(".jsonl"))
        .collect();
    assert_eq!(ledgers.len(), 2, "{ledgers:?}");
    let entries: Vec<Value> = sandbox
        .read(&format!("work/.delta/r/lease/{}", ledgers[1]))
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((&entries[0]["type"], &entries[1]["type"]), (&"limits".into(), &"use".into()));
    assert!(entries[1]["tokens"].as_u64().unwrap() > 0, "{entries:?}");
    check(&sandbox, "a\nb\nc\n");
}

#[test]
fn c_26_1_an_old_view_of_the_journal_is_recognized() {
    let sandbox = sandbox("- call: [{tool: note, args: {text: a}}]\n- say: done\n- say: again\n");
    start(&sandbox).wait_with_output().unwrap();
    let lease = sandbox.path("work/.delta/r/lease");
    let names = sandbox.files("work/.delta/r/lease");
    let journal = lease.join(names.iter().find(|name| name.starts_with("journal.")).unwrap());
    let whole = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    // A host that sees the turns and not what stands for them must not go on from there.
    fs::write(&journal, lines[..lines.len() - 1].concat()).unwrap();
    let ran = resume(&sandbox, &["-m", "more"]).output().expect_code(1);
    let message = "error: the journal of run r is older here than its lease; is the file system mounted with a long cache?";
    assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
    fs::write(&journal, &whole).unwrap();
    assert_eq!(resume(&sandbox, &["-m", "more"]).output().expect_code(0).stdout, "again\n");
}

#[test]
fn c_26_1_a_wrong_kind_of_lease_is_refused() {
    let sandbox = sandbox("- say: done\n");
    let ran = sandbox.run_command("task", &[]).env("DELTA_LEASE", "lock").output().expect_code(126);
    let expected = "error: DELTA_LEASE: expected auto, flock or turns, found `lock`\n";
    assert_eq!(ran.stderr, expected);
    let ran = sandbox.run_command("task", &[]).env("DELTA_LEASE_TTL", "70").output();
    let expected = "error: DELTA_LEASE_TTL: expected a time from 500ms to 1h, found `70`\n";
    assert_eq!(ran.expect_code(126).stderr, expected);
}
