//! The engine, the process that holds a server and `delta mcp call`, killed or failed at each of their durable operations
//! in a run with tools of an MCP server: no call is sent twice, and no process is left.

use super::failpoints::{acknowledged, check_fault, check_files, operations};
use super::*;
use std::path::Path;
use test_support::needs;
use test_support::wait::processes_in;

/// Calls with and without a file in the run directory, around a question. `job` becomes a task of a server that has tasks.
const MCP_TURNS: &str = "\
- call: [{tool: s__count}, {tool: s__job}]
- call: [{tool: ask_human, args: {prompt: Really?}}, {tool: s__image}]
- say: done
";

/// The tools of the server that the LLM calls, each once.
const MCP_CALLS: [&str; 3] = ["count", "job", "image"];

/// An agent with a server, whose lock file fits every sandbox: the command of the server is relative to the workspace.
struct LockedAgent {
    yaml: String,
    lock: String,
}

impl LockedAgent {
    fn new(options: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
        let options: String = options.split_whitespace().map(|word| format!(", {word}")).collect();
        let yaml = format!(
            "name: test-agent\nllm: {{provider: script, model: script.yaml}}\nmcp:\n  s:\n    command: [python3, -IS, {}, ../state{options}]\n    tools: [count, job, image]\n",
            script.display(),
        );
        let unlocked = Self { yaml, lock: String::new() };
        let sandbox = unlocked.sandbox();
        let lock = ["mcp", "lock", "--write", "--agent", "../agent"];
        sandbox.delta(lock).cwd(sandbox.path("work")).output().expect_code(0);
        Self { lock: sandbox.read("agent/mcp.lock.json"), ..unlocked }
    }

    fn sandbox(&self) -> Sandbox {
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("agent/agent.yaml", &self.yaml);
        sandbox.write("agent/script.yaml", format!("turns:\n{MCP_TURNS}"));
        if !self.lock.is_empty() {
            sandbox.write("agent/mcp.lock.json", &self.lock);
        }
        sandbox.write("work/.keep", "");
        // Nothing that the server does takes long.
        sandbox.write("state/release", "");
        sandbox
    }

    /// A run just before the process with the fault, and that process.
    fn before(&self, command: &str) -> (Sandbox, Delta) {
        let sandbox = self.sandbox();
        if command == "run" {
            let run = sandbox.run_command("go", &["--format", "jsonl"]);
            return (sandbox, run);
        }
        sandbox.run("go", &[]).expect_code(101);
        let args = ["continue", "r", "-w", "work", "-m", "yes", "--format", "jsonl"];
        let resumed = sandbox.delta(args);
        (sandbox, resumed)
    }
}

/// Continues the run, and answers what it asks, until it has its result.
pub fn answer_to_the_end(sandbox: &Sandbox) {
    let mut ran = resume(sandbox, &[]);
    for _ in 0..6 {
        let wants = format!("{}{}", ran.stdout, ran.stderr);
        if wants.contains("Run is COMPLETED") || ran.stdout == "done\n" {
            return;
        }
        ran = if ran.code == 101 || wants.contains("WAITING_FOR_INPUT") {
            resume(sandbox, &["-m", "yes"])
        } else if wants.contains("Run is FAILED") {
            resume(sandbox, &["-m", "try again"])
        } else if wants.contains("never began") || wants.contains("there is no run") {
            sandbox.run("go", &["--format", "raw"])
        } else if wants.contains("has no task") {
            resume(sandbox, &["-m", "go"])
        } else {
            panic!("a continued run may not end like this: {ran:?}");
        };
    }
    panic!("the run does not come to an end:\n{}", sandbox.read("work/.delta/r/journal.jsonl"));
}

/// Checks what must hold of a finished run: each call was sent at most once, and a call that was not sent, or whose result
/// is lost, is one whose observation reports that.
fn check_calls(sandbox: &Sandbox) {
    let sent = fs::read_to_string(sandbox.path("state/calls")).unwrap_or_default();
    let observations = sandbox.observations();
    let events = sandbox.events("ACTION_RESULT");
    for tool in MCP_CALLS {
        let times = sent.lines().filter(|line| *line == tool).count();
        assert!(times <= 1, "{tool} was sent {times} times: {sent:?}");
        let name = format!("s__{tool}");
        let place = events.iter().position(|event| event["tool_name"] == *name);
        let observation = &observations[place.unwrap_or_else(|| panic!("no result of {tool}"))];
        let has_result = match tool {
            "count" => observation.ends_with("1\n"),
            "job" => observation.contains("of task ") || observation.contains("has no tasks"),
            _ => observation.contains("[image: image/png, 8 bytes: "),
        };
        let reports = ["unknown", "was not sent", "could not", "SIGABRT"];
        let is_reported = reports.iter().any(|words| observation.contains(words));
        assert_eq!(has_result, !is_reported, "{tool}: {observation}");
        assert!(times == 1 || is_reported, "{tool} has a result and was not sent: {observation}");
    }
}

fn sweep_of_mcp(mode: &str, command: &str, options: &str) {
    let agent = LockedAgent::new(options);
    let (sandbox, victim) = agent.before(command);
    let count = operations(&sandbox, victim);
    each((1..=count).collect(), |number| {
        let (sandbox, victim) = agent.before(command);
        let ran = victim.env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
        check_fault(mode, if command == "run" { 101 } else { 0 }, &ran);
        answer_to_the_end(&sandbox);
        check_journal(&sandbox);
        check_calls(&sandbox);
        check_files(&sandbox, &acknowledged(&ran));
        let work = sandbox.path("work");
        until("the end of every process", || processes_in(&work).is_empty().then_some(()));
    });
    println!("{mode} in {command} with a server ({options:?}): {count} operations");
}

#[test]
fn c_30_10_a_run_with_a_legacy_server_may_die_anywhere() {
    if !needs::programs(&["python3"]) {
        return;
    }
    sweep_of_mcp("abort", "run", "");
    sweep_of_mcp("abort", "continue", "");
}

#[test]
fn c_30_15_a_run_with_a_task_of_a_server_may_die_anywhere() {
    if !needs::programs(&["python3"]) {
        return;
    }
    sweep_of_mcp("abort", "run", "modern");
    sweep_of_mcp("torn", "run", "modern");
    sweep_of_mcp("abort", "continue", "modern");
}

#[test]
fn c_13_6_a_full_disk_sends_no_call_twice() {
    if !needs::programs(&["python3"]) {
        return;
    }
    sweep_of_mcp("enospc", "run", "modern");
    sweep_of_mcp("eio", "continue", "");
}
