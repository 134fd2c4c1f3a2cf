//! Calls that the operator allows in a directory: with `p` from now on, and in config.yaml (C-36.17, C-36.18, C-36.20).

use crate::DELTA;
use delta_agent::allowed_calls::{AllowedCall, AllowedCalls, OperatorGrants};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use test_support::sandbox::{Delta, Ran, Sandbox};

const STATE: &str = "home/.local/state/delta/allowed";
const CONFIG: &str = "home/.config/delta/config.yaml";
const INSTALLED: &str = "home/.local/share/delta/agents/mine";
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
fn c_36_17_another_agent_tool_input_environment_or_program_asks_again() {
    let sandbox = calling("echo hi");
    allow(&sandbox, "work", "first");
    assert!(starts(&sandbox, "work", "same", &[]));
    // The declared sandbox is the same, and the enforced one has another host.
    assert!(!starts(&sandbox, "work", "host", &["--net", "a.example"]));
    for file in sandbox.files("agent") {
        sandbox.write(&format!("copy/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    assert!(!installed_starts(&sandbox, "./copy", "work", "copy", &[]));
    let definition = tools("workspace");
    sandbox.script(&format!("{definition}    env: {{A: x}}\n"), &turns("echo hi"));
    assert!(!starts(&sandbox, "work", "environment", &[]));
    let other = turns("echo hi").replace("tool: run", "tool: other");
    sandbox.script(&definition.replace("name: run", "name: other"), &other);
    assert!(!starts(&sandbox, "work", "tool", &[]));
    let input = definition.replace("sh -c ${command}", "cat\n    stdin: command");
    sandbox.script(&input, &turns("echo hi"));
    allow(&sandbox, "work", "first-input");
    assert!(starts(&sandbox, "work", "same-input", &[]));
    sandbox.script(&input, &turns("echo ho"));
    assert!(!starts(&sandbox, "work", "input", &[]));

    let program = sandbox.path("bin/program").display().to_string();
    sandbox.write_program("bin/program", "#!/bin/sh\necho one\n");
    sandbox.script(&definition.replace("sh -c", &program), &turns("echo hi"));
    allow(&sandbox, "work", "first-program");
    assert!(starts(&sandbox, "work", "same-program", &[]));
    sandbox.write_program("bin/program", "#!/bin/sh\necho two\n");
    assert!(!starts(&sandbox, "work", "program", &[]));
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
    sandbox.write(CONFIG, "approve: [run]\n");
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

/// The sandbox of a call differs with the operator's directory, so a run with another one asks in any case.
#[test]
fn c_36_18_what_was_allowed_counts_only_where_the_agent_cannot_write() {
    let sandbox = calling("echo hi");
    allow(&sandbox, "work", "first");
    let [file] = &sandbox.files(STATE)[..] else { panic!() };
    let call = sandbox.read(&format!("{STATE}/{file}"));
    let call: AllowedCall = serde_json::from_str(&call).unwrap();
    let calls = AllowedCalls::new(sandbox.path(STATE).parent().unwrap());
    let counts_in = |dir: &str| {
        let grants = OperatorGrants::new(&sandbox.path(dir), Some(calls.clone()), vec![], vec![]);
        grants.store_for(&call.identity).is_some()
    };
    assert!(counts_in("work") && !counts_in("home"));
}

#[test]
fn c_36_17_remember_leaves_the_other_parameters_open() {
    let tool = |remember: &str, exec: &str| {
        format!(
            "  - name: run\n    exec: {exec}\n    approve: ask\n    sandbox: workspace\n    {remember}\n\
             \x20   parameters: [{{name: command}}, {{name: timeout, type: integer, default: 5}}]\n"
        )
    };
    let exec = "sh -c ${command} ${timeout}";
    let sandbox = calling("");
    let calls = |remember: &str, exec: &str, command: &str, timeout: Option<u32>| {
        let mut args = json!({"command": command});
        timeout.iter().for_each(|timeout| args["timeout"] = json!(timeout));
        let turns = format!("- call: [{{tool: run, args: {args}}}]\n- say: done\n");
        sandbox.script(&tool(remember, exec), &turns);
    };
    let remember = "remember: [command]";
    calls(remember, exec, "echo hi", Some(1));
    let mut terminal = run(&sandbox, "work", "first", &["-i"]).at_terminal();
    let offer = "p yes to this call with any timeout in this project from now on,";
    terminal.expect(offer).expect(KEYS).type_in("p\n");
    terminal.end().expect_code(0);
    for (id, timeout) in [("same", Some(1)), ("longer", Some(60)), ("default", None)] {
        calls(remember, exec, "echo hi", timeout);
        assert!(starts(&sandbox, "work", id, &[]), "{id}");
    }
    for (id, remember, exec, command) in [
        ("command", remember, exec, "echo ho"),
        ("all", "", exec, "echo hi"),
        ("both", "remember: [command, timeout]", exec, "echo hi"),
        ("definition", remember, "sh -c ${command} x ${timeout}", "echo hi"),
        ("order", remember, "sh -c ${timeout} ${command}", "echo hi"),
    ] {
        calls(remember, exec, command, Some(1));
        assert!(!starts(&sandbox, "work", id, &[]), "{id}");
    }
    let list = sandbox.delta(["trust", "--list"]).output().expect_code(0).stdout;
    assert!(list.ends_with(": sh -c 'echo hi' 1 with any timeout\n"), "{list}");
    for (remember, message) in [
        ("remember: [comand]", "unknown parameter `comand` in `remember`"),
        ("remember: []", "`remember` names no parameter"),
        ("remember: command", "`remember` must be a list"),
    ] {
        calls(remember, exec, "echo hi", None);
        let ran = run(&sandbox, "work", "wrong", &[]).output().expect_code(126);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

/// The agent under a name that config.yaml can have, with a call of this command line.
fn install(sandbox: &Sandbox, sandbox_keys: &str, command: &str) {
    sandbox.script(&tools(sandbox_keys), &turns(command));
    for file in sandbox.files("agent") {
        sandbox.write(&format!("{INSTALLED}/{file}"), sandbox.read(&format!("agent/{file}")));
    }
}

/// Whether a new run of `agent` starts its call without a question.
fn installed_starts(sandbox: &Sandbox, agent: &str, dir: &str, id: &str, more: &[&str]) -> bool {
    let fixed = ["run", "--agent", agent, "-w", dir, "--run-id", id, "-q", "-m", "go"];
    let ran = sandbox.delta(fixed.iter().chain(more).copied()).output();
    assert!([0, 101].contains(&ran.code), "{}", ran.stderr);
    ran.code == 0
}

fn entry(sandbox: &Sandbox, dir: &str, lines: &str) -> String {
    let dir = sandbox.path(dir).display().to_string();
    format!("  - {{agent: mine, dir: '{dir}', tool: run, match: {{command: [{lines}]}}}}\n")
}

#[test]
fn c_36_18_config_yaml_allows_command_lines_of_an_installed_agent_in_a_directory() {
    let sandbox = calling("");
    let starts = |agent: &str, dir: &str, id: &str, more: &[&str]| {
        installed_starts(&sandbox, agent, dir, id, more)
    };
    let entries = [entry(&sandbox, "other", "ls"), entry(&sandbox, "work/**", "ls, echo hi **")];
    // What config.yaml lists precedes what it asks about.
    sandbox.write(CONFIG, format!("approve: {{run: ask}}\nallow:\n{}", entries.concat()));
    install(&sandbox, "workspace", "echo hi you");
    assert!(starts("mine", "work", "first", &[]));
    let request = &events(&sandbox, "work", "first", "ACTION_REQUEST")[0];
    let approval = &request["approval"];
    assert_eq!((&approval["by"], &approval["rule"]), (&json!("config"), &json!(2)));
    assert!(approval["at"].is_string(), "{approval}");
    assert!(events(&sandbox, "work", "first", "APPROVAL_REQUEST").is_empty());
    sandbox.delta(["replay", "first", "-w", "work"]).output().expect_code(0);
    assert!(starts("mine", "work/inner", "r", &[]));

    // Another directory, an agent of a repository, an option, a tool without a sandbox.
    assert!(!starts("mine", "other", "r", &[]));
    assert!(!starts("agent", "work", "path", &[]));
    assert!(!starts("mine", "work", "option", &["--approve", "run=ask"]));
    install(&sandbox, "off", "echo hi you");
    assert!(!starts("mine", "work", "open", &[]));
    for (id, line) in [
        ("less", "echo"),
        ("option-word", "echo hi -n"),
        ("absolute", "echo hi /etc/passwd"),
        ("up", "echo hi ../x"),
        ("range", "echo hi a..b"),
        ("operator", "echo hi; id"),
        ("redirection", "echo hi > x"),
        ("expansion", "echo hi $HOME"),
    ] {
        install(&sandbox, "workspace", line);
        assert!(!starts("mine", "work", id, &[]), "{line}");
    }

    // A denial of the agent wins.
    install(&sandbox, "workspace", "echo hi you");
    let denying = sandbox
        .read(&format!("{INSTALLED}/agent.yaml"))
        .replace("{commands: [ls]}", "[{match: {command: you}, do: deny}, {do: ask}]");
    sandbox.write(&format!("{INSTALLED}/agent.yaml"), denying);
    assert!(starts("mine", "work", "denied", &[]));
    assert!(events(&sandbox, "work", "denied", "ACTION_REQUEST")[0]["argv"].is_null());
}

#[test]
fn c_36_18_a_program_of_the_workspace_is_not_the_listed_one() {
    let sandbox = calling("");
    sandbox.write(CONFIG, format!("allow:\n{}", entry(&sandbox, "work", "echo hi")));
    install(&sandbox, "workspace", "echo hi");
    sandbox.write("work/bin/echo", "#!/bin/sh\n");
    fs::set_permissions(sandbox.path("work/bin/echo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let with_own = format!("{}:{path}", sandbox.path("work/bin").display());
    for (id, path, code) in [("system", path, 0), ("own", with_own, 101)] {
        let args = ["run", "--agent", "mine", "-w", "work", "--run-id", id, "-q", "-m", "go"];
        sandbox.delta(args).env("PATH", path).output().expect_code(code);
    }
}

#[test]
fn c_36_18_a_configuration_or_an_agent_in_the_workspace_gets_nothing() {
    let sandbox = calling("");
    install(&sandbox, "workspace", "echo hi");
    let dir = sandbox.path("work").display().to_string();
    let net = format!("net:\n  - {{agent: mine, dir: '{dir}', hosts: [a.example]}}\n");
    let config = format!("allow:\n{}{net}", entry(&sandbox, "work", "echo hi"));
    for file in sandbox.files("agent") {
        sandbox.write(
            &format!("work/delta/agents/mine/{file}"),
            sandbox.read(&format!("agent/{file}")),
        );
    }
    let data = sandbox.path("home/.local/share").display().to_string();
    let in_work = sandbox.path("work").display().to_string();
    for (directory, data, id) in [
        ("outside", &data, "outside"),
        ("work/config", &data, "inside"),
        ("outside", &in_work, "agent"),
    ] {
        sandbox.write(&format!("{directory}/delta/config.yaml"), &config);
        let args = ["run", "--agent", "mine", "-w", "work", "--run-id", id, "-q", "-m", "go"];
        let home = sandbox.path(directory);
        let command = sandbox.delta(args).env("XDG_CONFIG_HOME", home).env("XDG_DATA_HOME", data);
        let ran = command.output();
        let is_granted = id == "outside";
        assert_eq!(ran.code, if is_granted { 0 } else { 101 }, "{}", ran.stderr);
        let start = &events(&sandbox, "work", id, "ENGINE_START")[0];
        assert_eq!(start["config"]["sandbox"]["hosts"].is_array(), is_granted, "{start}");
    }
}

#[test]
fn c_36_20_approve_and_allow_take_nothing_else() {
    let sandbox = Sandbox::new(DELTA);
    for (text, shown) in
        [("ask", "ask"), ("[a, b]", "a b"), ("{a: ask, b: ask}", "a b"), ("{}", "[]")]
    {
        sandbox.write(CONFIG, format!("approve: {text}\n"));
        let config = sandbox.delta(["config"]).output().expect_code(0).stdout;
        assert!(config.contains(&format!("\napprove          {shown} ")), "{config}");
    }
    let entry = "agent: coding, dir: /x, tool: run";
    for (text, message) in [
        ("approve: {run: }", "`run` must be `ask`"),
        ("approve: always", "expected `ask` or the names of tools, found `always`"),
        ("allow: [{agent: coding, dir: x, tool: run, match: {c: [ls]}}]", "an absolute path"),
        ("allow: [{agent: coding, tool: run, match: {c: [ls]}}]", "`dir`"),
        (&format!("allow: [{{{entry}}}]"), "`match`"),
        (&format!("allow: [{{{entry}, match: {{}}}}]"), "`match` names no parameter"),
        (&format!("allow: [{{{entry}, match: {{c: []}}}}]"), "has no command line"),
        (&format!("allow: [{{{entry}, match: {{c: ls}}}}]"), "must be a list"),
        (&format!("allow: [{{{entry}, match: {{c: [ls | wc]}}}}]"), "`ls | wc` matches no call"),
    ] {
        sandbox.write(CONFIG, format!("{text}\n"));
        let ran = sandbox.delta(["config"]).output().expect_code(126);
        assert!(ran.stderr.contains(message), "{text}: {}", ran.stderr);
    }
}
