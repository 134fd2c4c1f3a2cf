//! Calls that the operator allows in a directory from now on (C-36.17, C-36.18).

use crate::DELTA;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use test_support::sandbox::{Delta, Ran, Sandbox};

const STATE: &str = "home/.local/state/delta/allowed";
const OFFER: &str = "p yes to this call in this project from now on,";
const KEYS: &str = "y yes, n no, a yes to every call of run in this process, v view> ";

/// An agent whose tool `run` asks about every command line but `ls`.
fn tools(sandbox_keys: &str) -> String {
    format!(
        "  - name: run\n    exec: sh -c ${{command}}\n    approve: {{commands: [ls]}}\n    sandbox: {sandbox_keys}\n"
    )
}

fn turns(command: &str) -> String {
    format!("- call: [{{tool: run, args: {}}}]\n- say: done\n", json!({"command": command}))
}

/// A sandbox outside of /dev/shm, where its tools may have a sandbox; the agent makes one call.
fn calling(command: &str) -> Sandbox {
    let sandbox = Sandbox::not_in_memory(DELTA);
    sandbox.script(&tools("workspace"), &turns(command));
    sandbox.write("work/x.sh", "echo one\n");
    sandbox
}

fn run(sandbox: &Sandbox, dir: &str, id: &str, more: &[&str]) -> Delta {
    let args = ["run", "--agent", "agent", "-w", dir, "--run-id", id, "-m", "go"];
    sandbox.delta(args.iter().chain(more).copied())
}

/// Whether a new run starts the call without a question.
fn starts(sandbox: &Sandbox, dir: &str, id: &str, more: &[&str]) -> bool {
    let ran: Ran = run(sandbox, dir, id, &[&["-q"], more].concat()).output();
    assert!([0, 101].contains(&ran.code), "{}", ran.stderr);
    ran.code == 0
}

/// Answers `p` to the question of a new run.
fn allow(sandbox: &Sandbox, dir: &str, id: &str) {
    let mut terminal = run(sandbox, dir, id, &["-i"]).at_terminal();
    terminal.expect(OFFER).expect(KEYS).type_in("p\n");
    terminal.end().expect_code(0);
}

fn events(sandbox: &Sandbox, dir: &str, id: &str, kind: &str) -> Vec<Value> {
    let journal = sandbox.read(&format!("{dir}/.delta/{id}/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["type"] == kind).collect()
}

#[test]
fn c_36_17_the_same_call_starts_in_later_runs_of_the_directory_and_no_other() {
    let sandbox = calling("echo hi");
    assert!(!starts(&sandbox, "work", "before", &[]));
    allow(&sandbox, "work", "first");
    let decision = &events(&sandbox, "work", "first", "APPROVAL_DECISION")[0];
    assert_eq!((&decision["by"], &decision["for_project"]), (&json!("terminal"), &json!(true)));
    let [file] = &sandbox.files(STATE)[..] else { panic!("{:?}", sandbox.files(STATE)) };
    let mode = |path: &str| fs::metadata(sandbox.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(STATE), mode(&format!("{STATE}/{file}"))), (0o700, 0o600));

    // The journal has who allowed the call, and when.
    assert!(starts(&sandbox, "work", "again", &[]));
    let request = &events(&sandbox, "work", "again", "ACTION_REQUEST")[0];
    let allowed: Value = serde_json::from_str(&sandbox.read(&format!("{STATE}/{file}"))).unwrap();
    assert_eq!(request["approval"], json!({"by": "remembered", "at": allowed["at"]}));
    assert!(events(&sandbox, "work", "again", "APPROVAL_REQUEST").is_empty());
    sandbox.delta(["replay", "again", "-w", "work"]).output().expect_code(0);

    // Another directory, also one with the same path.
    assert!(!starts(&sandbox, "other", "r", &[]));
    fs::rename(sandbox.path("work"), sandbox.path("moved")).unwrap();
    fs::create_dir(sandbox.path("work")).unwrap();
    assert!(!starts(&sandbox, "work", "r", &[]));
    assert!(!starts(&sandbox, "moved", "r", &[]));
    fs::remove_dir_all(sandbox.path("work")).unwrap();
    fs::rename(sandbox.path("moved"), sandbox.path("work")).unwrap();
    assert!(starts(&sandbox, "work", "back", &[]));

    // Another sandbox, and another command line.
    sandbox.script(&tools("{net: [a.example]}"), &turns("echo hi"));
    assert!(!starts(&sandbox, "work", "wider", &[]));
    sandbox.script(&tools("workspace"), &turns("echo hi"));
    assert!(starts(&sandbox, "work", "as-before", &[]));
    for (id, command) in [
        ("more", "echo hi there"),
        ("less", "echo"),
        ("operator", "echo hi; id"),
        ("and", "echo hi && id"),
        ("substitution", "echo hi $(id)"),
        ("redirection", "echo hi > x"),
    ] {
        sandbox.script(&tools("workspace"), &turns(command));
        assert!(!starts(&sandbox, "work", id, &[]), "{command}");
    }
}

#[test]
fn c_36_17_trust_lists_and_removes_what_is_allowed() {
    let sandbox = calling("echo hi");
    allow(&sandbox, "work", "first");
    let list = sandbox.delta(["trust", "--list"]).output().expect_code(0).stdout;
    let dir = sandbox.path("work").canonicalize().unwrap();
    let (call, line) = list.trim_end().split_once("  ").unwrap();
    let (id, line) = line.trim_start().split_once("  ").unwrap();
    assert_eq!(call.trim(), "call");
    assert_eq!(line, format!("test-agent run in {}: sh -c 'echo hi'", dir.display()));
    let listed = sandbox.delta(["trust", "--list", "--format", "json"]).output().json();
    assert_eq!(listed["calls"][0]["argv"], json!(["sh", "-c", "echo hi"]));
    assert!(listed["calls"][0]["id"].as_str().unwrap().starts_with(id));
    let ran = sandbox.delta(["trust", "--remove", id]).output().expect_code(0);
    assert_eq!(ran.stdout, format!("No longer allowed: {line}\n"));
    assert!(!starts(&sandbox, "work", "again", &[]));
    sandbox.delta(["trust", "--remove", id]).output().expect_code(1);
}

#[test]
fn c_36_17_a_script_that_has_changed_asks_again() {
    let sandbox = calling("sh x.sh");
    allow(&sandbox, "work", "first");
    assert!(starts(&sandbox, "work", "same", &[]));
    sandbox.write("work/x.sh", "echo two\n");
    assert!(!starts(&sandbox, "work", "changed", &[]));
    // A new answer is for the new content.
    allow(&sandbox, "work", "second");
    assert!(starts(&sandbox, "work", "new", &[]));
    sandbox.write("work/x.sh", "echo one\n");
    assert!(!starts(&sandbox, "work", "old", &[]));
}

#[test]
fn c_36_17_what_is_more_than_words_or_has_no_sandbox_is_not_offered() {
    let refuses = |sandbox: &Sandbox, more: &[&str]| {
        let mut terminal = run(sandbox, "work", "r", &[&["-i"], more].concat()).at_terminal();
        terminal.expect(KEYS).type_in("p\n").expect("expected `y`, `n`, `a` or `v`").expect(KEYS);
        terminal.type_in("n\n").expect("none> ").type_in("\n");
        let ran = terminal.end().expect_code(0);
        assert!(!ran.stderr.contains(OFFER), "{}", ran.stderr);
        assert!(!sandbox.path(STATE).exists());
    };
    for command in ["echo a; echo b", "echo $HOME", "echo a > b", "echo $(id)", "echo a\nid"] {
        refuses(&calling(command), &[]);
    }
    let open = calling("echo hi");
    open.script(&tools("off"), &turns("echo hi"));
    refuses(&open, &[]);
    // Who asks about every call gets every question.
    refuses(&calling("echo hi"), &["--approve", "run=ask"]);
}

#[test]
fn c_36_18_a_denial_and_the_option_win_and_a_directory_in_the_workspace_allows_nothing() {
    let sandbox = calling("echo hi");
    allow(&sandbox, "work", "first");
    assert!(!starts(&sandbox, "work", "option", &["--approve", "ask"]));
    // What config.yaml asks about can be allowed.
    sandbox.write("home/.config/delta/config.yaml", "approve: [run]\n");
    assert!(starts(&sandbox, "work", "config", &[]));
    let denies = tools("workspace")
        .replace("{commands: [ls]}", "[{match: {command: hi}, do: deny}, {do: ask}]");
    sandbox.script(&denies, &turns("echo hi"));
    assert!(starts(&sandbox, "work", "denied", &[]));
    assert!(
        events(&sandbox, "work", "denied", "ACTION_REQUEST")
            .iter()
            .all(|event| event["argv"].is_null())
    );

    // A copy of the operator's directory, where the agent can write, is not believed.
    sandbox.script(&tools("workspace"), &turns("echo hi"));
    let [file] = &sandbox.files(STATE)[..] else { panic!() };
    let call = sandbox.read(&format!("{STATE}/{file}"));
    sandbox.write(&format!("work/state/allowed/{file}"), &call);
    let state = sandbox.path("work/state");
    let ran = run(&sandbox, "work", "inside", &["-q"]).env("DELTA_STATE_DIR", state).output();
    ran.expect_code(101);
    // Neither is a file whose content has another name.
    sandbox.delta(["trust", "--remove", file]).output().expect_code(0);
    sandbox.write(&format!("{STATE}/{}", "0".repeat(64)), &call);
    assert!(!starts(&sandbox, "work", "renamed", &[]));
}
