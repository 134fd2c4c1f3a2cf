//! Runs in the background (C-33.14, C-33.15): the id when the run is durable, the result from the journal.

use super::DELTA;
use std::fs;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until_line;

/// `hold` says that it runs, and ends when a test writes into the fifo `gate`.
const TOOLS: &str = "  - name: hold\n    shell: echo held > held; cat gate\n  \
     - name: die\n    shell: kill -9 $PPID; exec sleep 60\n";

fn scripted(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    fs::create_dir(sandbox.path("work")).unwrap();
    assert!(Command::new("mkfifo").arg(sandbox.path("work/gate")).status().unwrap().success());
    sandbox
}

fn release(sandbox: &Sandbox) {
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
}

/// Waits for the result of run `r`.
fn wait(sandbox: &Sandbox) -> Ran {
    sandbox.delta(["show", "r", "-w", "work", "--follow", "--format", "raw"]).output()
}

#[test]
fn c_33_14_a_detached_run_is_durable_when_its_id_is_printed_and_outlives_the_terminal() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: done\n");
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "--detach", "task"];
    let ran = sandbox.delta(args).at_terminal().end().expect_code(0);
    assert_eq!(ran.stdout, "r\n");
    assert_eq!(sandbox.events("USER_MESSAGE")[0]["content"], "task");
    until_line(&sandbox.path("work/held"));
    release(&sandbox);
    wait(&sandbox).expect(0, "done\n", "");
}

#[test]
fn c_33_14_a_detached_run_reads_its_task_and_fails_as_run_does_before_it_exists() {
    let sandbox =
        scripted("- say: 'seen ${message}'\n- call: [{tool: ask_human, args: {prompt: Which?}}]\n");
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "--detach", "-"];
    sandbox.delta(args).stdin("from stdin\n").output().expect(0, "r\n", "");
    wait(&sandbox).expect(0, "seen from stdin\n", "");
    let again = sandbox.delta(args).stdin("x").output().expect_code(1);
    assert!(again.stderr.contains("run r already exists"), "{}", again.stderr);
    let next = ["continue", "r", "-w", "work", "-q", "--detach", "-m", "next"];
    sandbox.delta(next).output().expect(0, "r\n", "");
    let ran = wait(&sandbox).expect_code(101);
    assert!(ran.stderr.contains("answer with: delta continue"), "{}", ran.stderr);
    sandbox.write("agent/agent.yaml", "name: [");
    let broken = ["run", "--agent", "agent", "-w", "work", "--detach", "task"];
    let ran = sandbox.delta(broken).output().expect_code(126);
    assert!(ran.stderr.contains("agent.yaml"), "{}", ran.stderr);
}

// With `jsonl`, events of the run and a line between the two processes were printed.
#[test]
fn c_33_14_the_id_is_all_that_is_printed_in_every_format() {
    for format in ["text", "json", "raw", "jsonl"] {
        let sandbox = scripted("- say: done\n- say: more\n");
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-q", "--detach"];
        let more = ["--format", format, "-m", "task"];
        sandbox.delta(args.iter().chain(&more).copied()).output().expect(0, "r\n", "");
        wait(&sandbox).expect(0, "done\n", "");
        let args = ["continue", "r", "-w", "work", "-q", "--detach"];
        sandbox.delta(args.iter().chain(&more).copied()).output().expect(0, "r\n", "");
        wait(&sandbox).expect(0, "more\n", "");
    }
}

#[test]
fn c_33_15_the_wait_for_a_result_exits_with_the_code_of_the_run() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: done\n");
    let mut run = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let waiting = ["show", "r", "-w", "work", "--follow", "--format", "raw"];
    let waiting = sandbox.delta(waiting).spawn();
    release(&sandbox);
    assert!(run.wait().unwrap().success());
    let output = waiting.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr).expect(0, "done\n", "");
    let sandbox = scripted("- error: broken\n");
    sandbox.run("task", &[]).expect_code(1);
    let ran = wait(&sandbox).expect_code(1);
    assert!(ran.stderr.starts_with("error: broken\n"), "{}", ran.stderr);
    let sandbox = scripted("- call: [{tool: die}]\n");
    sandbox.run("task", &[]).expect_code(-1);
    let ran = wait(&sandbox).expect_code(1);
    assert!(ran.stderr.contains("its process has died"), "{}", ran.stderr);
    sandbox.delta(["show", "r", "-w", "work", "--format", "raw"]).output().expect_code(1);
}
