//! Concurrent and killed processes (C-14.1, C-14.4).

use super::{PYTHON, SESSIONS, Session};
use serde_json::json;
use std::process::Child;
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::{needs, wait};

fn ended(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

#[test]
fn c_14_1_concurrent_commands_run_one_at_a_time() {
    let session = Session::start(&[]);
    session.stdout_of("n=0");
    let text = "mkdir busy && n=$((n + 1)) && sleep 0.02 && rmdir busy && echo $n";
    let children: Vec<Child> =
        (0..10).map(|_| session.command(&["exec", &session.id, text]).spawn()).collect();
    let mut seen: Vec<i32> = children
        .into_iter()
        .map(|child| {
            ended(child).expect_code(0).json()["stdout"].as_str().unwrap().trim().parse().unwrap()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
    assert_eq!(session.stdout_of("echo $n"), "10\n");
    assert_eq!(session.metadata()["execution_count"], 12);
}

#[test]
fn c_14_1_killed_anywhere_a_session_has_the_state_before_or_after() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for command in ["bash", &**PYTHON] {
        let session = Session::start(&[command]);
        let set = |n: u32| match command {
            "bash" => format!("a={n}; big=$(printf 'x%.0s' {{1..2000}}); b={n}"),
            _ => format!("a = {n}\nbig = 'x' * 2000000\nb = {n}"),
        };
        let show = if command == "bash" { "echo $a $b" } else { "print(a, b)" };
        session.stdout_of(&set(0));
        let mut before = 0;
        let rounds = if command == "bash" { 24 } else { 8 };
        for n in 1..=rounds {
            let mut child = session.command(&["exec", &session.id, &set(n)]).spawn();
            // Each round kills it at a later moment, over about the duration of a command.
            let spins = n * 40_000;
            std::hint::black_box((0..spins).map(std::hint::black_box).max());
            child.kill().unwrap();
            child.wait().unwrap();
            let now = session.stdout_of(show);
            let of = |n: u32| format!("{n} {n}\n");
            assert!(
                now == of(before) || now == of(n),
                "{command}, round {n}: {now:?} after {before}"
            );
            if now == of(n) {
                before = n;
            }
        }
        assert_eq!(session.states().len(), 1);
    }
}

#[test]
fn c_14_1_an_interrupted_command_is_reported() {
    let session = Session::start(&[]);
    session.stdout_of("x=1");
    let child =
        session.command(&["exec", &session.id, "x=2; echo > started; exec sleep 600"]).spawn();
    let started = session.sandbox.path("work/started");
    wait::until("the command runs", || started.exists().then_some(()));
    assert!(send_signal("TERM", child.id()));
    let ran = ended(child).expect_code(1);
    assert_eq!(
        ran.json(),
        json!({"error": "interrupted by a signal; the session keeps its previous state"})
    );
    assert_eq!(session.stdout_of("echo $x"), "1\n");
}

#[test]
fn c_14_4_cleanup_with_all_removes_active_sessions_in_which_nothing_runs() {
    let session = Session::start(&[]);
    assert_eq!(session.run(&["cleanup"]).expect_code(0).json(), json!({"removed": []}));
    let started = session.sandbox.path("work/started");
    let pipe = session.sandbox.path("work/wait");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = session.command(&["exec", &session.id, "echo > started; read < wait"]).spawn();
    wait::until("the command runs", || started.exists().then_some(()));
    let cleanup = ["cleanup", "--all"];
    assert_eq!(session.run(&cleanup).expect_code(0).json(), json!({"removed": []}));
    std::fs::write(&pipe, "\n").unwrap();
    ended(child).expect_code(0);
    let removed = json!({"removed": [session.id]});
    assert_eq!(session.run(&cleanup).expect_code(0).json(), removed);
}

#[test]
fn c_14_4_a_run_keeps_sessions_and_a_hook_removes_them() {
    let delta = test_support::sibling("delta");
    let tools = "  - {name: start, exec: delta-sessions start}\n  - {name: end, exec: 'delta-sessions end ${id}'}";
    let turns = "  - {call: [{tool: start, args: {}}, {tool: start, args: {}}]}\n  - {when: '\"session_id\":\"([a-z0-9_]+)\"', call: [{tool: end, args: {id: '${1}'}}]}\n  - {say: done}";
    let sandbox = Sandbox::scripted(&delta, tools, turns);
    let bin = std::path::Path::new(SESSIONS).parent().unwrap().display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let statuses = |sandbox: &Sandbox| -> Vec<String> {
        let list = std::process::Command::new(SESSIONS)
            .arg("list")
            .current_dir(sandbox.path("work"))
            .output()
            .unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
        let mut statuses: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["status"].as_str().unwrap().to_owned())
            .collect();
        statuses.sort();
        statuses
    };
    sandbox.run_command("go", &[]).env("PATH", &path).output().expect_code(0);
    assert_eq!(statuses(&sandbox), ["active", "terminated"]);
    sandbox.write("agent/hooks.yaml", "on_run_end:\n  command: [delta-sessions, cleanup]\n");
    let again = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "-m", "go"];
    let ran = sandbox.delta(again).env("PATH", &path).output().expect_code(0);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    assert_eq!(statuses(&sandbox), ["active", "active"]);
}
