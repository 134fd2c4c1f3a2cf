//! Power losses in a sweep: planning, running, packing and unpacking its runs.

use crate::DELTA;
use crate::recorder::{Lease, Recorder, judge_power_losses};
use crate::verdicts::{Seen, command};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};

/// How often a sweep may have to be run until nothing is left: each time, a run may need what the one before printed.
const MAX_ROUNDS: usize = 4;

/// Two runs: the workspace of one begins with a file, and the workspace of the other does not exist.
fn sweeping_agent() -> Sandbox {
    let turns = "  - call: [{tool: act, args: {}}]\n  - say: \"did ${task}\"";
    let sandbox = Sandbox::new(DELTA);
    let act = sandbox.path("act.sh");
    sandbox.agent(
        "provider: script\n  model: script.yaml",
        &format!("  - {{name: act, exec: '{}'}}", act.display()),
    );
    sandbox.write("agent/script.yaml", format!("turns:\n{turns}\n"));
    let ledger = sandbox.path("witness/ledger");
    let script = format!(
        "#!/bin/sh\necho \"$(basename \"$PWD\") $(cat input)\" >> '{}'\necho made > made\n",
        ledger.display()
    );
    sandbox.write_program("act.sh", &script);
    let inputs = "{\"id\": \"a\", \"task\": \"a\", \"files\": {\"input\": \"given\"}}\n\
                  {\"id\": \"b\", \"task\": \"b\"}\n";
    sandbox.write("inputs.jsonl", inputs);
    sandbox.write(
        "sweep.yaml",
        "name: s\nagents: [agent]\ninputs: inputs.jsonl\nbudget: {max_tokens: 1M}\n",
    );
    sandbox.unverified("a run that is packed has no directory");
    sandbox
}

/// A sweep whose runs are settled.
fn settled_sweep() -> Sandbox {
    let sandbox = sweeping_agent();
    sandbox.write("witness/ledger", "");
    command(&sandbox, ["sweep", "plan"]).expect_code(0);
    command(&sandbox, ["sweep", "run", "s", "-q"]).expect_code(0);
    sandbox
}

/// The ids of its runs.
fn planned_ids(sandbox: &Sandbox) -> Vec<String> {
    let listed = command(sandbox, ["sweep", "list", "s"]).expect_code(0).stdout;
    listed.lines().map(str::to_owned).collect()
}

fn collect(sandbox: &Sandbox) -> Vec<Value> {
    let ran = command(sandbox, ["sweep", "collect", "s", "-o", "-"]);
    assert!([0, 3].contains(&ran.code), "collect: {ran:?}");
    parse_lines(&ran.stdout)
}

fn parse_lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Runs the commands that the messages of a sweep propose for runs that it leaves.
fn follow_advice(sandbox: &Sandbox, ran: &Ran) {
    let mark = "to continue without it and what follows: ";
    let remedies: Vec<&str> =
        ran.stderr.lines().filter_map(|line| Some(line.split_once(mark)?.1)).collect();
    assert!(!remedies.is_empty(), "a sweep leaves work and proposes nothing: {ran:?}");
    for remedy in remedies {
        let mut shell = Command::new("sh");
        shell.args(["-c", remedy]).current_dir(sandbox.path(""));
        assert!(shell.status().unwrap().success(), "{remedy}");
    }
}

/// Runs the sweep until nothing is left.
fn run_to_the_end(sandbox: &Sandbox) {
    for _ in 0..MAX_ROUNDS {
        let ran = command(sandbox, ["sweep", "run", "s", "-q"]);
        if ran.code == 0 {
            return;
        }
        assert_eq!(ran.code, 3, "sweep run: {ran:?}");
        follow_advice(sandbox, &ran);
    }
    panic!("the sweep does not come to an end");
}

/// No run has acted twice, and each has acted in its own workspace with the files that it begins with.
fn check_acts(sandbox: &Sandbox) -> Vec<String> {
    let text = sandbox.read("witness/ledger");
    let acts: Vec<String> = text.lines().map(str::to_owned).collect();
    let runs: BTreeSet<&str> =
        acts.iter().map(|act| act.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(runs.len(), acts.len(), "a run was done twice: {acts:?}");
    for act in &acts {
        assert_eq!(act.starts_with("a."), act.ends_with(" given"), "a file is missing: {act}");
    }
    acts
}

/// A sweep that was interrupted: planned is planned, a result that was collected stays, and each run is done once.
fn check_sweep(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    let has_plan = seen.has_ended("sweep plan");
    if has_plan {
        let status = command(sandbox, ["sweep", "status", "s", "--format", "json"]);
        assert!([0, 3].contains(&status.code), "{status:?}");
        assert_eq!(status.json()["runs"], 2);
        let collected = collect(sandbox);
        for line in parse_lines(&sandbox.read("witness/stdout")) {
            assert!(collected.contains(&line), "a result is lost: {line}");
        }
    } else {
        command(sandbox, ["sweep", "plan"]).expect_code(0);
    }
    let acts = check_acts(sandbox);
    let has_grant = sandbox.path("s/budget/000001").exists();
    assert!(has_grant || acts.is_empty(), "what was granted of the budget is lost");
    run_to_the_end(sandbox);
    let acts_now = check_acts(sandbox);
    if seen.has_ended("sweep task") {
        assert_eq!(acts_now, acts, "a run was done again");
    }
    let lines = collect(sandbox);
    let is_good = |line: &Value| line["status"] == "COMPLETED" && line["settled"] == true;
    assert_eq!(lines.iter().filter(|line| is_good(line)).count(), 2, "{lines:?}");
    let unknown = 2 - acts_now.len();
    let journals =
        sandbox.files("s/runs").into_iter().filter(|file| file.ends_with("/journal.jsonl"));
    let journals: String = journals.map(|file| sandbox.read(&format!("s/runs/{file}"))).collect();
    assert!(journals.matches("unknown").count() >= unknown, "a run has not acted");
    command(sandbox, ["sweep", "status", "s"]).expect_code(0);
}

#[test]
fn c_26_2_a_power_loss_in_a_sweep_loses_no_run_and_repeats_none() {
    let record = |recorder: &Recorder| {
        for args in [&["sweep", "plan"][..], &["sweep", "task", "s", "0/2", "-q"]] {
            recorder.run_traced(args).expect_code(0);
        }
        recorder.run(&["sweep", "collect", "s", "-o", "-"]).expect_code(0);
        recorder.run(&["sweep", "run", "s", "-q"]).expect_code(0);
    };
    judge_power_losses(Lease::Flock, || Some(sweeping_agent()), record, check_sweep);
}

/// Each run can be read, is not done again, and has its file when it is unpacked.
fn check_packs(sandbox: &Sandbox) {
    let ids = planned_ids(sandbox);
    for id in &ids {
        let shown = command(sandbox, ["show", id, "-w", "s"]);
        assert!(shown.code == 0 && shown.stdout.contains("COMPLETED"), "{shown:?}");
    }
    let acts = check_acts(sandbox);
    command(sandbox, ["sweep", "run", "s", "-q"]).expect_code(0);
    assert_eq!(check_acts(sandbox), acts, "a run was done again");
    let lines = collect(sandbox);
    assert_eq!(lines.iter().filter(|line| line["status"] == "COMPLETED").count(), 2, "{lines:?}");
    command(sandbox, ["sweep", "pack", "s"]).expect_code(0);
    for id in &ids {
        command(sandbox, ["unpack", id, "-w", "s"]).expect_code(0);
        let shard = &id.rsplit('.').next().unwrap()[..2];
        assert_eq!(sandbox.read(&format!("s/runs/{shard}/{id}/made")), "made\n");
    }
}

#[test]
fn c_26_10_a_power_loss_in_a_pack_of_a_sweep_loses_no_run() {
    let record = |recorder: &Recorder| {
        recorder.run_traced(&["sweep", "pack", "s"]).expect_code(0);
        let ids = planned_ids(recorder.sandbox);
        recorder.run_traced(&["unpack", &ids[0], "-w", "s"]).expect_code(0);
    };
    judge_power_losses(Lease::Flock, || Some(settled_sweep()), record, check_packs);
}
