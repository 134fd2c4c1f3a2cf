//! An LLM cannot make a run do without end: calls of an answer, runs inside of runs, what a call uses (C-22.2).

use crate::DELTA;
use std::process::Command;
use test_support::alone::is_alone;
use test_support::cpu_time::children_cpu_time;
use test_support::needs;
use test_support::sandbox::{Delta, Ran, Sandbox};

const TOOL: &str = "  - name: t\n    shell: echo x >> ran\n";
const LIMITED: &str = "Only the first 128 calls of an answer are run; this one was not. \
    Repeat it in your next answer if you still need it.";

/// A turn with `count` calls of `tool`.
fn turn(tool: &str, count: usize) -> String {
    format!("  - call:\n{}", format!("    - {{tool: {tool}}}\n").repeat(count))
}

/// The number of calls that ran, and the observations of the others.
fn ran_and_refused(sandbox: &Sandbox) -> (usize, Vec<String>) {
    let lines = sandbox.read("work/ran").lines().count();
    (lines, sandbox.observations().into_iter().filter(|seen| seen != "[no output]").collect())
}

#[test]
fn c_22_2_the_calls_beyond_the_limit_of_an_answer_are_observations() {
    let turns = format!("{}  - say: done", turn("t", 300));
    let sandbox = Sandbox::scripted(DELTA, TOOL, &turns);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(ran_and_refused(&sandbox), (128, vec![LIMITED.to_owned(); 172]));
    let requests = sandbox.events("ACTION_REQUEST");
    assert_eq!(requests.iter().filter(|request| request.get("argv").is_some()).count(), 128);
    assert_eq!(sandbox.events("ENGINE_START")[0]["calls_per_answer"], 128);
}

#[test]
fn c_22_2_the_author_and_the_operator_set_the_calls_of_an_answer() {
    let turns = format!("{}  - say: done", turn("t", 5));
    let author = format!("{TOOL}limits: {{calls_per_answer: 2}}\n");
    for (tools, options, count) in [
        (TOOL, &["--max-calls-per-answer", "3"][..], 3),
        (&*author, &[], 2),
        (&author, &["--max-calls-per-answer", "4"], 4),
    ] {
        let sandbox = Sandbox::scripted(DELTA, tools, &turns);
        sandbox.run("hello", options).expect_code(0);
        let refused = LIMITED.replace("128", &count.to_string());
        assert_eq!(ran_and_refused(&sandbox), (count, vec![refused; 5 - count]));
        let replay = ["replay", "r", "-w", "work", "--mode", "tools", "--into", "again"];
        let replayed = sandbox.delta(replay).output().expect_code(0).stdout;
        assert!(replayed.contains("did the same"), "{replayed}");
    }
}

#[test]
fn c_22_2_the_built_in_tools_count_as_calls() {
    let tools = format!("{TOOL}limits: {{calls_per_answer: 2}}\n");
    let first = "  - call: [{tool: t}, {tool: finish, args: {result: first}}, {tool: t}]\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, first);
    let ran = sandbox.run("hello", &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["result"], "first");
    let last = "  - call: [{tool: t}, {tool: t}, {tool: finish, args: {result: last}}, \
        {tool: ask_human, args: {prompt: why}}]\n  - say: done";
    let sandbox = Sandbox::scripted(DELTA, &tools, last);
    let ran = sandbox.run("hello", &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["result"], "done");
    assert_eq!(ran_and_refused(&sandbox), (2, vec![LIMITED.replace("128", "2"); 2]));
}

#[test]
fn c_22_2_the_cost_of_an_answer_grows_with_its_calls() {
    if !is_alone() {
        return;
    }
    let cost = |count: usize| {
        let turns = format!("{}  - say: done", turn("missing", count));
        let sandbox = Sandbox::scripted(DELTA, "", &turns);
        sandbox.unverified("the cost of the run alone is measured");
        let before = children_cpu_time();
        sandbox.run("hello", &["--max-calls-per-answer", "100000", "-q"]).expect_code(0);
        children_cpu_time() - before
    };
    let (few, many) = (cost(2_500), cost(20_000));
    // Eight times the calls: with the square it was sixty times the cost.
    assert!(many < 20 * few.max(10), "{few} and {many} hundredths of a second");
}

/// An agent whose only tool runs the agent itself, until it is refused.
fn recursive(limits: &str, command: &str) -> Sandbox {
    let tool = format!(
        "  - name: deeper\n    shell: |\n      echo \"$DELTA_DEPTH of $DELTA_MAX_DEPTH\" >> depths\n      {command} run --agent \"$AGENT_HOME\" -w . -q --format raw -m go\n"
    );
    let sandbox = Sandbox::scripted(
        DELTA,
        &format!("{tool}{limits}"),
        "  - call: [{tool: deeper}]\n  - say: '${last}'",
    );
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    sandbox
}

fn on_path(sandbox: &Sandbox, command: Delta) -> Ran {
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).output()
}

fn run_count(sandbox: &Sandbox) -> usize {
    let files = sandbox.files("work/.delta");
    files.iter().filter(|name| name.ends_with("journal.jsonl")).count()
}

#[test]
fn c_22_2_runs_inside_of_runs_have_a_depth() {
    for (limits, options, depth) in [
        ("", &[][..], 8),
        ("limits: {depth: 2}\n", &[], 2),
        ("limits: {depth: 0}\n", &[], 0),
        ("limits: {depth: 2}\n", &["--max-depth", "1"], 1),
        ("", &["--max-depth", "10"], 10),
    ] {
        let sandbox = recursive(limits, "delta");
        let ran = on_path(&sandbox, sandbox.run_command("hello", options)).expect_code(0);
        assert_eq!(run_count(&sandbox), depth + 1, "{}", ran.stderr);
        let levels = if depth == 0 { "level" } else { "levels" };
        let message = format!(
            "error: this run would be {} {levels} below the outermost one, and the limit is {depth}",
            depth + 1
        );
        assert!(ran.stdout.contains(&message), "{}", ran.stdout);
        let depths: String = (0..=depth).map(|level| format!("{level} of {depth}\n")).collect();
        assert_eq!(sandbox.read("work/depths"), depths);
    }
}

#[test]
fn c_22_2_the_depth_is_checked_before_anything_is_made() {
    let sandbox = recursive("", "delta");
    let run = sandbox.run_command("hello", &["--format", "json"]);
    let ran = run.env("DELTA_DEPTH", "8").env("DELTA_MAX_DEPTH", "8").output().expect_code(126);
    assert_eq!(ran.json()["status"], "FAILED");
    assert!(!sandbox.path("work").exists());
    // No file says how deep a run is.
    sandbox.write("agent/.env", "DELTA_DEPTH=8\nDELTA_MAX_DEPTH=1\n");
    on_path(&sandbox, sandbox.run_command("hello", &["--max-depth", "0"])).expect_code(0);
    assert_eq!(sandbox.read("work/depths"), "0 of 0\n");
}

#[test]
fn c_22_2_a_tool_that_clears_the_environment_goes_no_deeper() {
    let sandbox = recursive(
        "limits: {depth: 100}\n",
        "env -i HOME=\"$HOME\" PATH=\"$PATH\" AGENT_HOME=\"$AGENT_HOME\" delta",
    );
    on_path(&sandbox, sandbox.run_command("hello", &[])).expect_code(0);
    assert_eq!(run_count(&sandbox), 9);
}

#[test]
fn c_22_2_no_variable_and_no_way_of_starting_raises_the_depth() {
    let cleared = "env -i HOME=\"$HOME\" PATH=\"$PATH\"";
    let ways = [
        "env -u DELTA_DEPTH -u DELTA_MAX_DEPTH delta".to_owned(),
        "env DELTA_DEPTH=0 DELTA_MAX_DEPTH=200 delta".to_owned(),
        "env -u DELTA_DEPTH DELTA_MAX_DEPTH=200 delta".to_owned(),
        format!("{cleared} setsid -w sh -c '(\"$@\")' - delta"),
    ];
    for (depth, runs) in [("0", 1), ("2", 3)] {
        for way in &ways {
            let sandbox = recursive("", way);
            let run = sandbox.run_command("hello", &["--max-depth", depth]);
            on_path(&sandbox, run).expect_code(0);
            assert_eq!(run_count(&sandbox), runs, "{depth}: {way}");
        }
    }
    if needs::programs(&["prlimit"]) {
        // What is left of the mark may be anything.
        let sandbox = recursive("", "prlimit --rttime=1000000:1000000 env -u DELTA_DEPTH delta");
        on_path(&sandbox, sandbox.run_command("hello", &[])).expect_code(0);
        assert_eq!(run_count(&sandbox), 1);
    }
}

#[test]
fn c_22_2_in_a_sandbox_no_variable_raises_the_depth() {
    let unset = "env -u DELTA_DEPTH -u DELTA_MAX_DEPTH delta";
    let keys = "    sandbox: {runs: true}\n";
    let sandbox = recursive(keys, unset);
    sandbox.write("work/bin/.keep", "");
    sandbox.copy_program(DELTA, "work/bin/delta");
    let path = format!("{}:{}", sandbox.path("work/bin").display(), std::env::var("PATH").unwrap());
    let run = sandbox.run_command("hello", &["--max-depth", "1"]).env("PATH", path);
    let ran = run.output();
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return;
    }
    assert_eq!(run_count(&sandbox), 2, "{}{}", ran.stdout, ran.stderr);
}

fn schema_errors(limits: &str) -> String {
    let sandbox =
        Sandbox::scripted(DELTA, &format!("{TOOL}limits: {{{limits}}}\n"), "  - say: done");
    sandbox.run("hello", &[]).expect_code(126).stderr
}

#[test]
fn c_22_2_a_bound_that_cannot_be_is_refused() {
    assert!(schema_errors("calls_per_answer: 0").contains("calls_per_answer"));
    assert!(schema_errors("depth: -1").contains("depth"));
    assert!(schema_errors("processes: 0").contains("processes"));
    assert!(schema_errors("memory: 512").contains("`memory`: expected an amount with a unit"));
    assert!(schema_errors("memory: 1M").contains("`memory`: expected at least 16M"));
    assert!(schema_errors("call_per_answer: 1").contains("did you mean `calls_per_answer`?"));
    let sandbox = Sandbox::scripted(DELTA, TOOL, "  - say: done");
    for (option, value) in [
        ("--max-calls-per-answer", "0"),
        ("--max-depth", "-1"),
        ("--max-processes", "0"),
        ("--max-memory", "1000000"),
    ] {
        let ran = sandbox.run("hello", &[&format!("{option}={value}")]).expect_code(2);
        assert!(ran.stderr.contains(option), "{}", ran.stderr);
    }
}

/// Whether the machine lets delta create control groups; says so otherwise.
fn has_groups(ran: &Ran) -> bool {
    let has_groups = !ran.stderr.contains("control group");
    if !has_groups {
        needs::skip(format!("needs control groups: {}", ran.stderr));
    }
    has_groups
}

/// The control groups that this machine has, with the given beginning of their names.
fn left_groups(prefix: &str) -> Vec<String> {
    let mut command = Command::new("find");
    command.args(["/sys/fs/cgroup", "-type", "d", "-name", &format!("{prefix}*")]);
    let found = command.output().unwrap().stdout;
    String::from_utf8(found).unwrap().lines().map(str::to_owned).collect()
}

/// Runs the agent in `hidden/` where no control groups can be created.
fn run_without_groups(sandbox: &Sandbox) -> Ran {
    let script = "mount -t tmpfs none /sys/fs/cgroup && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, DELTA]);
    command.args(["run", "--agent", "agent", "-w", "hidden", "--run-id", "r", "-m", "hello"]);
    command.current_dir(sandbox.path("")).env("HOME", sandbox.path("home"));
    let output = command.output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

/// Starts processes until one cannot be started, and prints their number.
const FORKS: &str = "\
#!/usr/bin/env python3
import os
count = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            os.setsid(); os.execv('/bin/sleep', ['sleep', '100'])
        count += 1
except OSError: pass
print(count)
";

#[test]
fn c_22_2_the_processes_of_a_call_are_limited() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let tools = "  - name: t\n    exec: '${AGENT_HOME}/forks'\nlimits: {processes: 20}\n";
    let turns = "  - call: [{tool: t}, {tool: t}]\n  - say: done";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write_program("agent/forks", FORKS);
    let command = sandbox.run_command("hello", &[]).spawn();
    let engine = command.id();
    let output = command.wait_with_output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
    if !has_groups(&ran) {
        return;
    }
    // Each call has all of the limit: what the first one left was ended.
    let seen = sandbox.observations();
    assert!(seen.iter().all(|seen| seen.starts_with("19\n")) && seen.len() == 2, "{seen:?}");
    assert_eq!(left_groups(&format!("delta-{engine}-")), Vec::<String>::new());
}

#[test]
fn c_22_2_the_memory_of_a_call_is_limited() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let half = "python3 -c \"x = b'x' * (80 << 20); print('a half')\"";
    let tools = format!(
        "  - name: one\n    shell: python3 -c \"x = b'x' * (300 << 20); print('everything')\"\n  \
           - name: half\n    shell: {half}\nlimits: {{memory: 128M}}\n"
    );
    let turns = "  - call: [{tool: one}, {tool: half}]\n  - say: done";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    let without = run_without_groups(&sandbox);
    sandbox.run("hello", &[]).expect_code(0);
    let seen = sandbox.observations();
    assert!(!seen[0].contains("everything") && seen[1] == "a half\n", "{seen:?}");
    if without.code != 0 {
        needs::skip_part(format!("needs root, which hides control groups: {}", without.stderr));
        return;
    }
    let warning = "! the limit of memory applies to each process of a call, not to all together: ";
    assert_eq!(without.stderr.matches(warning).count(), 1, "{}", without.stderr);
    let journal = sandbox.read("hidden/.delta/r/journal.jsonl");
    assert!(journal.contains("MemoryError") && journal.contains("a half"), "{journal}");
}

#[test]
fn c_22_2_a_limit_that_cannot_be_enforced_is_named_once() {
    let tools = format!("{TOOL}limits: {{processes: 20}}\n");
    let sandbox =
        Sandbox::scripted(DELTA, &tools, "  - call: [{tool: t}, {tool: t}]\n  - say: done");
    let ran = run_without_groups(&sandbox);
    if ran.code != 0 {
        needs::skip(format!("needs root, which hides control groups: {}", ran.stderr));
        return;
    }
    let warning = "! the limit of 20 processes is not enforced: ";
    assert_eq!(ran.stderr.matches(warning).count(), 1, "{}", ran.stderr);
}
