//! Being stopped (C-13.5): whatever the engine does at that moment, the run is left in order and nothing of it lives on.

use super::DELTA;
use serde_json::json;
use std::process::{Child, Command};
use std::time::Instant;
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, Gate, ScriptedServer};
use test_support::wait::{is_alive, processes_with, until, until_line};

const SIGNALS: [&str; 3] = ["INT", "TERM", "HUP"];

/// A tool that prints, starts a child and a grandchild in a session of its own, and never ends.
const TREE: &str = "  - name: t\n    shell: |-\n      setsid sleep 1000 &\n      (sleep 1000 & sleep 1000) &\n      echo begun; echo $$ > pid; wait\n";

fn send(signal: &str, pid: u32) {
    assert!(send_signal(signal, pid));
}

fn start(sandbox: &Sandbox) -> Child {
    sandbox.run_command("hello", &["--format", "json"]).spawn()
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

fn left_of(sandbox: &Sandbox) -> Vec<i32> {
    processes_with(&[&format!("RUN_DIR={}", sandbox.path("work/.delta/r").display())])
}

/// Sends each signal to a run when it is `ready`, and checks how it is left.
fn interrupted(
    make: impl Fn() -> (Option<ScriptedServer>, Sandbox),
    ready: impl Fn(&Option<ScriptedServer>, &Sandbox),
) -> Vec<Sandbox> {
    let one = |signal| {
        let (server, sandbox) = make();
        let child = start(&sandbox);
        ready(&server, &sandbox);
        let asked = Instant::now();
        send(signal, child.id());
        let ran = end(child).expect_code(130);
        assert!(
            asked.elapsed().as_secs() < 4,
            "SIG{signal}: not even the 5 seconds before SIGKILL"
        );
        let result = ran.json();
        assert_eq!(
            (&result["status"], &result["error"]["type"]),
            (&json!("INTERRUPTED"), &json!("interrupted"))
        );
        assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
        let last = sandbox.journal().pop().unwrap();
        assert_eq!((&last["type"], &last["status"]), (&json!("ENGINE_END"), &json!("INTERRUPTED")));
        assert!(ran.stderr.contains("delta continue --run-id r"), "{}", ran.stderr);
        assert_eq!(left_of(&sandbox), Vec::<i32>::new(), "SIG{signal}");
        sandbox
    };
    SIGNALS.into_iter().map(one).collect()
}

fn asking(answers: Vec<Answer>) -> (Option<ScriptedServer>, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    (Some(server), sandbox)
}

#[test]
fn c_13_5_during_an_llm_call() {
    let asked = |server: &Option<ScriptedServer>, _: &Sandbox| {
        until("the request", || (server.as_ref().unwrap().requests().len() == 1).then_some(()));
    };
    for sandbox in interrupted(|| asking(vec![Answer::hang()]), asked) {
        let errors = sandbox.events("ERROR");
        assert_eq!((sandbox.events("THOUGHT").len(), errors.len()), (0, 1));
        assert_eq!(errors[0]["error_details"]["type"], "interrupted");
    }
    // C-7.4: what had come of the answer is dropped.
    interrupted(|| asking(vec![Answer::text("half of it").stall(200)]), asked);
}

#[test]
fn c_13_5_during_a_retry_pause() {
    let failing =
        || asking(vec![Answer::error(503, "overloaded", None).header("Retry-After", "500")]);
    interrupted(failing, |_, sandbox| {
        let log = sandbox.path("work/.delta/r/engine.log");
        until("the retry", || {
            std::fs::read_to_string(&log).ok()?.contains("try 2 of 6").then_some(())
        });
    });
}

#[test]
fn c_13_5_during_a_scripts_delay() {
    let make = || (None, Sandbox::scripted(DELTA, "", "- {say: late, delay_ms: 1000000}"));
    interrupted(make, |_, sandbox| {
        let journal = sandbox.path("work/.delta/r/journal.jsonl");
        until("the run", || {
            std::fs::read_to_string(&journal).ok()?.contains("USER_MESSAGE").then_some(())
        });
    });
}

#[test]
fn c_13_5_during_a_tool_with_children_of_its_own() {
    let make =
        || (None, Sandbox::scripted(DELTA, TREE, "- call: [{tool: t}, {tool: t}]\n- say: done"));
    let sandboxes = interrupted(make, |_, sandbox| drop(until_line(&sandbox.path("work/pid"))));
    for sandbox in sandboxes {
        assert!(!is_alive(sandbox.read("work/pid").trim().parse().unwrap()));
        assert_eq!(
            sandbox.observations(),
            ["begun\n[interrupted: a person or the system stopped the engine]"]
        );
        assert_eq!(sandbox.events("ACTION_REQUEST").len(), 1, "the second call had not begun");
        assert!(sandbox.events("ACTION_RESULT")[0].get("exit_code").is_none());
    }
}

#[test]
fn c_13_5_during_a_generator() {
    let make = || {
        let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
        let context = "sources:\n  - type: computed_file\n    generator: {command: [sh, -c, 'echo $$ > pid; sleep 1000 & wait']}\n    output_path: '${RUN_DIR}/x'\n  - type: journal\n";
        sandbox.write("agent/context.yaml", context);
        (None, sandbox)
    };
    interrupted(make, |_, sandbox| drop(until_line(&sandbox.path("work/pid"))));
}

/// A tool that hears SIGTERM and goes on. A shell that waits for a child hears it at once, whenever it comes.
const DEAF: &str = "  - name: t\n    shell: trap 'echo x > heard' TERM; sleep 1000 & echo $$ > pid; wait; while :; do sleep 1000; done\n";

#[test]
fn c_13_5_a_second_signal_ends_at_once() {
    let sandbox = Sandbox::scripted(DELTA, DEAF, "- call: [{tool: t}]\n- say: done");
    let mut child = start(&sandbox);
    until_line(&sandbox.path("work/pid"));
    send("TERM", child.id());
    until_line(&sandbox.path("work/heard"));
    let asked = Instant::now();
    // Again and again: one in the same moment as the first would count as the same.
    until("the end", || {
        let _ = send_signal("INT", child.id());
        child.try_wait().unwrap()
    });
    assert!(asked.elapsed().as_secs() < 3, "not the 5 seconds before SIGKILL");
    assert_eq!(end(child).code, 130);
    until("the end of the tool", || left_of(&sandbox).is_empty().then_some(()));
    assert_eq!(sandbox.events("ENGINE_END").len(), 0);
}

/// The first Ctrl-C seemed to have no effect while a tool ignored it.
#[test]
fn c_13_5_a_terminal_says_how_to_stop_at_once() {
    // The tool reports the first signal later than a burst of signals takes.
    let deaf = DEAF.replace("trap '", "trap 'sleep 0.3; ");
    let sandbox = Sandbox::scripted(DELTA, &deaf, "- call: [{tool: t}]\n- say: done");
    let mut terminal = sandbox.run_command("hello", &["--format", "json"]).at_terminal();
    until_line(&sandbox.path("work/pid"));
    terminal.type_in("\x03").expect("stopping; Ctrl-C again to stop at once");
    until_line(&sandbox.path("work/heard"));
    terminal.type_in("\x03");
    let ran = terminal.end().expect_code(130).normal(&sandbox);
    let last = "\nStopped at once. Continue with: delta continue --run-id r -w DIR/work\n";
    assert!(ran.stderr.ends_with(last), "{}", ran.stderr);
    until("the end of the tool", || left_of(&sandbox).is_empty().then_some(()));
}

#[test]
fn c_13_5_signals_in_one_moment_are_one_request() {
    // As `timeout` and closing terminals send them.
    for _ in 0..5 {
        let sandbox = Sandbox::scripted(DELTA, TREE, "- call: [{tool: t}]\n- say: done");
        let child = start(&sandbox);
        until_line(&sandbox.path("work/pid"));
        let pid = child.id();
        // Both wait while the engine is stopped, and reach it together however slow the machine is.
        let both = format!(
            "kill -s STOP {pid}; kill -s TERM {pid}; kill -s HUP {pid}; kill -s CONT {pid}"
        );
        assert!(Command::new("sh").args(["-c", &both]).status().unwrap().success());
        end(child).expect_code(130);
        assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
        assert_eq!(left_of(&sandbox), Vec::<i32>::new());
    }
}

#[test]
fn c_13_5_what_nohup_ignores_stays_ignored() {
    let gate = Gate::new();
    let server = ScriptedServer::start(vec![Answer::text("survived").after(&gate)]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    let script =
        "trap '' HUP; exec \"$0\" run --agent agent -w work --run-id r -m hello --format raw";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .stdout(std::process::Stdio::piped());
    let child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    until("the request", || (server.requests().len() == 1).then_some(()));
    send("HUP", child.id());
    gate.open();
    let ran = end(child).expect_code(0);
    assert_eq!(ran.stdout, "survived\n");
}

#[test]
fn c_13_5_a_killed_engine_takes_its_tool_with_it() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: t\n    shell: echo $$ > pid; exec sleep 1000\n",
        "- call: [{tool: t}]\n- say: x",
    );
    let child = start(&sandbox);
    let pid = until_line(&sandbox.path("work/pid")).parse().unwrap();
    send("KILL", child.id());
    end(child).expect_code(-1);
    until("the end of the tool", || (!is_alive(pid)).then_some(()));
    assert_eq!(sandbox.metadata()["status"], "RUNNING");
    assert_eq!(sandbox.journal().pop().unwrap()["type"], "ACTION_REQUEST");
}

#[test]
fn c_13_5_a_terminal_does_not_stop_an_engine_in_the_background() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let shell = Sandbox::new("/bin/sh");
    let at_terminal = |message: &str| {
        let run = format!("'{DELTA}' run --agent agent -w work -m {message}");
        let script = format!("set -m; stty tostop; {run} & wait $!; echo \"code $?\"");
        let dir = sandbox.path("");
        let ran = shell.delta(["-c", &script]).cwd(dir).wholly_at_terminal().end();
        ran.expect_code(0).stderr
    };
    let shown = at_terminal("hello");
    assert!(shown.contains("done\n") && shown.ends_with("code 0\n"), "{shown}");
    let shown = at_terminal("-");
    assert!(shown.contains("could not read the message from stdin: "), "{shown}");
    assert!(shown.ends_with("code 126\n"), "{shown}");
}

#[test]
fn what_a_test_starts_ends_with_it() {
    let sandbox = Sandbox::scripted(DELTA, TREE, "- call: [{tool: t}]\n- say: done");
    let test = std::thread::spawn(move || {
        let child = start(&sandbox);
        until_line(&sandbox.path("work/pid"));
        (sandbox, child)
    });
    let (sandbox, child) = test.join().unwrap();
    end(child).expect_code(130);
    assert_eq!(left_of(&sandbox), Vec::<i32>::new());
}
