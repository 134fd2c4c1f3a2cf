//! The engine, the process that holds the command of a call, and the one that stands for it, killed or failed at each of
//! their durable operations: no command runs twice, no output is lost, and no process is left.

use super::failpoints::{acknowledged, check_fault, check_files, operations};
use super::*;
use test_support::wait::processes_in;

/// Two calls that outlive their engine, around a question.
const LASTING_TURNS: &str = "\
- call: [{tool: last, args: {text: a}}, {tool: last, args: {text: b}}]
- call: [{tool: ask_human, args: {prompt: Really?}}, {tool: last, args: {text: c}}]
- say: done
";

fn lasting(options: &str) -> Sandbox {
    let tools = format!(
        "  - name: last\n    shell: echo ${{text}} >> ledger; echo noted ${{text}}\n    survive: true\n{options}"
    );
    let sandbox = Sandbox::scripted(DELTA, &tools, LASTING_TURNS);
    sandbox.write("work/.keep", "");
    sandbox
}

/// A run just before the process with the fault, and that process.
fn before_lasting(command: &str, options: &str) -> (Sandbox, Delta) {
    let sandbox = lasting(options);
    if command == "run" {
        let run = sandbox.run_command("go", &["--format", "jsonl"]);
        return (sandbox, run);
    }
    sandbox.run("go", &[]).expect_code(101);
    let args = ["continue", "r", "-w", "work", "-m", "yes", "--format", "jsonl"];
    let resumed = sandbox.delta(args);
    (sandbox, resumed)
}

/// Checks that each call whose outcome is known has the output of its command.
fn check_output(sandbox: &Sandbox) {
    for (text, observation) in ["a", "b", "c"].iter().zip(lasting_observations(sandbox)) {
        let is_unknown = ["unknown", "could not be started", "SIGABRT"]
            .iter()
            .any(|words| observation.contains(words));
        assert!(is_unknown || observation == format!("noted {text}\n"), "{text}: {observation}");
    }
}

fn lasting_observations(sandbox: &Sandbox) -> Vec<String> {
    let results = sandbox.events("ACTION_RESULT").into_iter();
    let results = results.filter(|result| result["tool_name"] == "last");
    results.map(|result| result["observation_content"].as_str().unwrap().to_owned()).collect()
}

fn sweep_of_lasting(mode: &str, command: &str, options: &str) {
    let (sandbox, victim) = before_lasting(command, options);
    let count = operations(&sandbox, victim);
    each((1..=count).collect(), |number| {
        let (sandbox, victim) = before_lasting(command, options);
        let ran = victim.env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        check_fault(mode, if command == "run" { 101 } else { 0 }, &ran);
        mcp::answer_to_the_end(&sandbox);
        check_journal(&sandbox);
        check_ledger(&sandbox, &["a", "b", "c"]);
        check_output(&sandbox);
        check_files(&sandbox, &acknowledged(&ran));
        let work = sandbox.path("work");
        until("the end of every process", || processes_in(&work).is_empty().then_some(()));
        // A process that dies after the end of the run may leave the files of its last call.
        let left = sandbox.path("work/.delta/r/surviving").exists();
        assert!(!left || command == "continue");
    });
    println!("{mode} in {command} of lasting calls ({options:?}): {count} operations");
}

#[test]
fn c_27_3_engine_and_holder_may_die_anywhere() {
    sweep_of_lasting("abort", "run", "");
    sweep_of_lasting("torn", "run", "");
    sweep_of_lasting("abort", "continue", "");
}

#[test]
fn c_27_3_engine_and_holders_of_parallel_calls_may_die_anywhere() {
    sweep_of_lasting("abort", "run", "    parallel: true\n");
}

#[test]
fn c_27_3_a_full_disk_runs_no_command_twice() {
    sweep_of_lasting("enospc", "run", "");
    sweep_of_lasting("eio", "continue", "");
}

/// Kills that meet the command itself, its holder, the engine or all of them, at any instant.
#[test]
fn c_27_3_killed_at_random_instants() {
    let chance = Mutex::new(Chance(27));
    each((0..60).collect(), |number| {
        let tools = "  - name: last\n    shell: echo ${text} >> ledger; sleep 0.03; echo noted ${text}\n    survive: true\n";
        let sandbox = Sandbox::scripted(DELTA, tools, LASTING_TURNS);
        sandbox.write("work/.keep", "");
        let micros = chance.lock().unwrap().below(120_000);
        kill_after(sandbox.run_command("go", &["-q"]), micros);
        if number % 2 == 0 {
            let work = sandbox.path("work");
            for pid in processes_in(&work).into_iter().filter_map(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        mcp::answer_to_the_end(&sandbox);
        check_journal(&sandbox);
        check_ledger(&sandbox, &["a", "b", "c"]);
        check_output(&sandbox);
        let ledger = sandbox.read("work/ledger");
        for (text, observation) in ["a", "b", "c"].iter().zip(lasting_observations(&sandbox)) {
            // An engine that dies alone loses no command that was started.
            let is_lost = ledger.contains(text) && observation.contains("unknown");
            assert!(number % 2 == 0 || !is_lost, "lost {text} of run {number}");
        }
        let work = sandbox.path("work");
        until("the end of every process", || processes_in(&work).is_empty().then_some(()));
    });
}
