//! Tools from MCP servers (C-30), against a scripted server and against real ones.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, and start real processes"
)]

use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::Child;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{is_alive, processes_in, until};

mod calls;
mod crashes;
mod features;
mod habits;
mod http;
mod locking;
mod oauth;
mod parallel;
mod runs;
mod sandboxes;
mod suite;
mod tasks;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// A server for a test, in a sandbox whose agent has it under `mcp:`.
struct Server {
    sandbox: Sandbox,
}

impl Server {
    /// An agent with the scripted server, which is locked; `keys` are more keys of it in agent.yaml, each line indented by
    /// four.
    fn locked(options: &str, keys: &str, turns: &str) -> Self {
        let server = Self::unlocked(options, keys, turns);
        let ran = server.sandbox.delta(["mcp", "lock", "--agent", "agent", "--write"]).output();
        ran.expect_code(0);
        std::fs::remove_file(server.sandbox.path("state/calls")).unwrap_or_default();
        server
    }

    fn unlocked(options: &str, keys: &str, turns: &str) -> Self {
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("state/.keep", "");
        sandbox.write("agent/script.yaml", format!("turns:\n{turns}\n- say: done\n"));
        let command = Self::command(&sandbox, options);
        sandbox.write(
            "agent/agent.yaml",
            format!(
                "name: test-agent\nllm: {{provider: script, model: script.yaml}}\nmcp:\n  s:\n    command: {command}\n    rename: {{odd.name: odd}}\n{keys}"
            ),
        );
        Self { sandbox }
    }

    /// The command of the scripted server, as YAML.
    fn command(sandbox: &Sandbox, options: &str) -> String {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
        let state = sandbox.path("state");
        let options = options.split_whitespace().map(|option| format!(", {option}"));
        format!(
            "[python3, {}, {}{}]",
            script.display(),
            state.display(),
            options.collect::<String>()
        )
    }

    /// The lines that the server wrote to one of its files.
    fn noted(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.sandbox.path(&format!("state/{name}")));
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn run(&self) -> Ran {
        self.sandbox.run("go", &[])
    }

    /// Starts a run, and waits until the server has noted a call of `tool`.
    fn start_until_called(&self, tool: &str) -> Child {
        let run = self.sandbox.run_command("go", &[]).spawn();
        self.until_noted("calls", tool);
        run
    }

    fn until_noted(&self, name: &str, line: &str) {
        until(line, || self.noted(name).iter().any(|other| other == line).then_some(()));
    }

    /// Lets everything that takes long come to its end.
    fn release(&self) {
        self.sandbox.write("state/release", "");
    }

    fn resume(&self) -> Ran {
        self.sandbox.delta(["continue", "r", "-w", "work"]).output()
    }

    /// Kills the process of the sandbox whose command line contains `words`, and waits for its end.
    fn kill(&self, words: &str) {
        let find = || {
            let mut pids = processes_in(&self.sandbox.path("work")).into_iter();
            pids.find(|pid| command_line(*pid).contains(words))
        };
        let pid = until(words, find);
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        until("its end", || (!is_alive(pid)).then_some(()));
    }

    /// Waits until no process of the sandbox is alive.
    fn until_nothing_runs(&self) {
        let work = self.sandbox.path("work");
        until("the end of every process", || processes_in(&work).is_empty().then_some(()));
        self.expect_ended();
    }

    /// Calls a tool outside of a run.
    fn call(&self, arguments: &[&str]) -> Ran {
        let arguments = ["mcp", "call", "--agent", "agent"].iter().chain(arguments).copied();
        self.sandbox.delta(arguments).output()
    }

    /// Fails if a process of the server is alive.
    fn expect_ended(&self) {
        for pid in self.noted("starts") {
            let command = command_line(pid.parse().unwrap());
            assert!(!command.contains("server.py"), "process {pid} is alive: {command}");
        }
    }
}

/// The command line of a process, its words separated by blanks.
fn command_line(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text.replace('\0', " ")
}

/// A turn with calls of tools of the server, each with its arguments as YAML.
fn turn(calls: &[(&str, &str)]) -> String {
    let calls: Vec<String> =
        calls.iter().map(|(tool, args)| format!("{{tool: s__{tool}, args: {{{args}}}}}")).collect();
    format!("- call: [{}]", calls.join(", "))
}
