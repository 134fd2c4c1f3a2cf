//! Approvals: which calls start, which are asked about, and which never start.

mod inbox;
mod recovery;
mod remembered;
mod replies;
mod terminal;

use super::DELTA;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use test_support::running::end_with_test;
use test_support::sandbox::{Ran, Sandbox};

/// `note` leaves a line for each time it ran; `put` writes a file.
const TOOLS: &str = "  - name: note
    shell: echo ${text} >> notes; echo noted ${text}
    approve: APPROVE
  - name: put
    exec: tee ${path}
    stdin: content
    approve: ask
    preview: {path: path, content: content}
";

/// An agent whose tool `note` has this policy, and which makes these calls of it in one answer.
fn noting(policy: &str, texts: &[&str]) -> Sandbox {
    let calls: Vec<String> =
        texts.iter().map(|text| format!("{{tool: note, args: {{text: {text:?}}}}}")).collect();
    let turns = format!("- call: [{}]\n- say: done\n", calls.join(", "));
    Sandbox::scripted(DELTA, &TOOLS.replace("APPROVE", policy), &turns)
}

/// The lines that `note` has left.
fn notes(sandbox: &Sandbox) -> Vec<String> {
    let path = sandbox.path("work/notes");
    if !path.exists() {
        return Vec::new();
    }
    sandbox.read("work/notes").lines().map(str::to_owned).collect()
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta([&["continue", "r", "-w", "work"], more].concat()).output()
}

/// Runs a command line that delta printed in a shell, with these variables.
fn paste(sandbox: &Sandbox, command: &str, variables: &[(&str, &str)]) -> Ran {
    // Another PATH would be another environment than what is approved.
    let command = format!("delta() {{ '{DELTA}' \"$@\"; }}\n{command}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).current_dir(sandbox.path("")).env_clear();
    shell
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("HOME", sandbox.path("home"))
        .envs(variables.iter().copied());
    end_with_test(&mut shell);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

/// The approvals of the calls that started: who, and which rule.
fn approvals(sandbox: &Sandbox) -> Vec<Value> {
    let started =
        sandbox.events("ACTION_REQUEST").into_iter().filter(|event| event["argv"].is_array());
    started
        .map(|event| match &event["approval"] {
            Value::Null => Value::Null,
            approval => {
                assert!(approval["at"].is_string(), "{approval}");
                json!([approval["by"], approval["rule"]])
            }
        })
        .collect()
}

const RULES: &str = "[{match: {text: '^a'}, do: allow}, {match: {text: b}, do: deny, reason: 'b is taken'}, \
    {match: {text: c}, do: deny}, {match: {text: d}, do: ask}]";

#[test]
fn c_21_1_the_first_rule_that_matches_decides() {
    let sandbox = noting(RULES, &["ab", "b", "c"]);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(notes(&sandbox), ["ab"]);
    assert_eq!(
        sandbox.observations(),
        [
            "noted ab\n",
            "Denied by a rule of the agent; the tool was not run.\nb is taken",
            "Denied by a rule of the agent; the tool was not run.",
        ]
    );
    assert_eq!(approvals(&sandbox), [json!(["rule", 1])]);
    for (text, rule) in [("d", json!(4)), ("x", Value::Null)] {
        let sandbox = noting(RULES, &[text]);
        sandbox.run("go", &[]).expect_code(101);
        assert_eq!(sandbox.events("APPROVAL_REQUEST")[0]["rule"], rule);
        assert!(notes(&sandbox).is_empty());
    }
}

const COMMANDS: &str = "{parameter: text, commands: [ls, 'echo [-n] **', printf x]}";

#[test]
fn c_38_4_listed_commands_start_and_every_other_call_asks() {
    let sandbox = noting(COMMANDS, &["echo -n a 'b c'", "  printf  x", "ls"]);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(notes(&sandbox), ["echo -n a 'b c'", "  printf  x", "ls"]);
    assert_eq!(approvals(&sandbox), [json!(["rule", 2]), json!(["rule", 3]), json!(["rule", 1])]);
    for line in ["ls .", "ls; ls", "ls\n", "printf y", "echo /etc", "echo $HOME", "echo a > b", ""]
    {
        let sandbox = noting(COMMANDS, &[line]);
        sandbox.run("go", &[]).expect_code(101);
        assert_eq!(sandbox.events("APPROVAL_REQUEST")[0]["rule"], Value::Null, "{line:?}");
        assert!(notes(&sandbox).is_empty(), "{line:?}");
    }
}

#[test]
fn c_38_4_the_operator_tightens_a_list_and_a_tool_without_the_parameter_asks() {
    let sandbox = noting(COMMANDS, &["ls"]);
    sandbox.run("go", &["--approve", "note=ask"]).expect_code(101);
    resume(&sandbox, &["-m", "yes"]).expect_code(0);
    assert_eq!(approvals(&sandbox), [json!(["operator", null])]);
    // The parameter is the named one, else the only one, else `command`.
    let tools = "  - {name: only, exec: 'echo ${x}'}\n  - {name: run, exec: 'echo ${x} ${command}'}\n  \
        - {name: named, exec: 'echo ${command} ${x}', approve: {commands: [ls], parameter: x}}\n  \
        - {name: other, exec: 'echo ${x} ${y}'}\ndefaults: {approve: {commands: [ls]}}\n";
    let turns = "- call: [{tool: only, args: {x: ls}}, {tool: run, args: {x: no, command: ls}}, \
        {tool: named, args: {x: ls, command: no}}, {tool: other, args: {x: ls, y: ls}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("go", &[]).expect_code(101);
    let rule = json!(["rule", 1]);
    assert_eq!(approvals(&sandbox), [rule.clone(), rule.clone(), rule]);
    assert_eq!(sandbox.events("APPROVAL_REQUEST")[0]["tool_name"], "other");
}

#[test]
fn c_21_1_a_rule_sees_the_value_that_the_command_gets() {
    let tools = "  - name: p\n    exec: echo ${s} ${n} ${list}\n    parameters: [{name: n, type: integer, required: false}, \
        {name: list, type: array, required: false}, {name: s, default: usual}]\n    approve: [{match: {s: '^usual$', n: '^7$'}, do: allow}, \
        {match: {list: '^\\[\"x\"\\]$'}, do: allow}]\n";
    let check = |args: &str, code: i32| {
        let turns = format!("- call: [{{tool: p, args: {args}}}]\n- say: done\n");
        Sandbox::scripted(DELTA, tools, &turns).run("go", &[]).expect_code(code);
    };
    check("{n: 7}", 0);
    check("{n: 7, s: usual}", 0);
    check("{n: 7, s: 'usual\\n'}", 101);
    check("{s: usual}", 101);
    check("{n: 8}", 101);
    check("{list: [x]}", 0);
    check("{list: [x, y]}", 101);
}

#[test]
fn c_21_1_defaults_hold_for_tools_that_say_nothing() {
    let tools = "  - {name: asks, exec: 'echo ${x}'}\n  - {name: free, exec: echo, approve: never}\ndefaults: {approve: [{match: {x: ok}, do: allow}]}\n";
    let turns = "- call: [{tool: free}, {tool: asks, args: {x: ok}}, {tool: asks, args: {x: no}}]\n- call: [{tool: finish, args: {result: end}}]\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(approvals(&sandbox), [Value::Null, json!(["rule", 1])]);
    // Neither `finish` nor `ask_human` of delta itself is a command.
    resume(&sandbox, &["-m", "no"]).expect_code(0);
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 1);
}

#[test]
fn c_21_1_mistakes_have_a_position_and_a_remedy() {
    let check = |approve: &str, expected: &[&str]| {
        let sandbox = noting(approve, &[]);
        let ran = sandbox.run("go", &[]).expect_code(126);
        for part in expected {
            assert!(ran.stderr.contains(part), "{approve}: {}", ran.stderr);
        }
        assert!(!sandbox.path("work").exists());
    };
    check("always", &["`approve` must be `never`, `ask` or a list of rules, not `always`"]);
    check("[]", &["`approve` has no rule", "write `ask`"]);
    check(
        "[{match: {txt: a}, do: ask}]",
        &["unknown parameter `txt` in `match`", "did you mean `text`?"],
    );
    check("[{match: {text: '('}, do: ask}]", &["`(` is not a regular expression: unclosed group"]);
    check("[{match: {text: a}}]", &["a rule of `approve` has no `do`", "write `do: ask`"]);
    check("[{match: {}, do: ask}]", &["`match` names no parameter"]);
    check("[{do: ask, reason: x}]", &["`reason` has no effect with `do: ask`"]);
    check("[{do: block}]", &["`do` must be `allow`, `ask` or `deny`"]);
    check("[{do: ask, when: x}]", &["unknown key `when` in a rule of `approve`"]);
    check("{do: ask}", &["`approve` must be a list, not a mapping"]);
    // All errors of all rules at once.
    check(
        "[{match: {x: a}, do: ask}, {match: {text: '['}, do: ask}]",
        &["`x` in `match`", "`[` is not"],
    );
    let sandbox = noting("ask", &[]);
    let tools = TOOLS
        .replace("APPROVE", "ask")
        .replace("content: content", "content: text, replaces: path");
    sandbox.agent(
        "provider: script\n  model: script.yaml",
        &format!("{tools}defaults: {{approve: [{{match: {{y: a}}, do: ask}}]}}\n"),
    );
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("unknown parameter `text` in `preview`"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("no tool that takes this default has parameters"),
        "{}",
        ran.stderr
    );
}

/// A value that was commented out or forgotten must not switch a rule or a limit off.
#[test]
fn c_21_1_a_key_without_a_value_is_an_error() {
    let sandbox = noting("[{match: , do: allow}]", &[]);
    let ran = sandbox.run("go", &["-q"]).expect_code(126);
    assert!(ran.stderr.starts_with("error: `match` has no value\n"), "{}", ran.stderr);
    let tools = TOOLS.replace("APPROVE", "");
    for (more, key) in [
        ("", "approve"),
        ("defaults: {approve: }\n", "approve"),
        ("sandbox:\n", "sandbox"),
        ("max_iterations:\n", "max_iterations"),
        ("limits:\n  max_cost:\n  # 0.5\n", "max_cost"),
        ("mcp:\n", "mcp"),
    ] {
        let tools = if more.is_empty() { &tools } else { &TOOLS.replace("APPROVE", "ask") };
        sandbox.agent("provider: script\n  model: script.yaml", &format!("{tools}{more}"));
        let ran = sandbox.run("go", &["-q"]).expect_code(126);
        let text = format!("error: `{key}` has no value\n");
        assert!(ran.stderr.starts_with(&text), "{more}: {}", ran.stderr);
        let help = format!("help: write a value, or leave out `{key}`\n");
        assert!(ran.stderr.contains(&help), "{more}: {}", ran.stderr);
    }
}

/// What the operator demands must not be missed by its spelling.
#[test]
fn c_21_1_the_operators_file_is_read_or_refused() {
    let sandbox = noting("never", &["a"]);
    let config = "home/.config/delta/config.yaml";
    for (text, error) in [
        ("approve: [ask]\n", "error: `ask` is not the name of a tool\n"),
        ("approve: {work: deny}\n", "error: `work` must be `ask`\n"),
        (
            "approve: [{work: ask}]\n",
            "error: an entry of `approve` must be a string, not a mapping\n",
        ),
        ("approve: [work, [run]]\n", "error: an entry of `approve` must be a string, not a list\n"),
        ("approve:\n", "error: `approve` has no value\n"),
        ("sandbox:\n", "error: `sandbox` has no value\n"),
    ] {
        sandbox.write(config, text);
        let ran = sandbox.run("go", &["-q"]).expect_code(126);
        assert!(ran.stderr.starts_with(error), "{}", ran.stderr);
    }
    std::fs::remove_file(sandbox.path(config)).unwrap();
    let misname = "home/.config/delta/config.yml";
    sandbox.write(misname, "approve: ask\n");
    let ran = sandbox.run("go", &["-q"]).expect_code(126);
    let error = format!("error: delta does not read {}\n", sandbox.path(misname).display());
    assert!(ran.stderr.starts_with(&error), "{}", ran.stderr);
    assert!(notes(&sandbox).is_empty());
    std::fs::rename(sandbox.path(misname), sandbox.path(config)).unwrap();
    sandbox.run("go", &["-q"]).expect_code(101);
}

#[test]
fn c_21_1_the_operator_tightens_and_a_rule_still_denies() {
    for option in ["ask", "note=ask"] {
        let sandbox = noting(RULES, &["a", "b"]);
        sandbox.run("go", &["--approve", option]).expect_code(101);
        assert!(notes(&sandbox).is_empty());
        resume(&sandbox, &["-m", "yes"]).expect_code(0);
        assert_eq!(notes(&sandbox), ["a"]);
        assert!(sandbox.observations()[1].starts_with("Denied by a rule of the agent;"));
        assert_eq!(approvals(&sandbox), [json!(["operator", null])]);
    }
    let sandbox = noting("never", &["a", "b"]);
    sandbox.run("go", &["--approve", "put=ask"]).expect_code(0);
    assert_eq!(approvals(&sandbox), [Value::Null, Value::Null]);
}

#[test]
fn c_21_1_a_tightening_holds_for_the_processes_that_continue_the_run() {
    let sandbox = noting("never", &["a", "b"]);
    sandbox.run("go", &["--approve", "ask"]).expect_code(101);
    resume(&sandbox, &["-m", "yes"]).expect_code(101);
    resume(&sandbox, &["-m", "no"]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
}

#[test]
fn c_21_1_approve_all_is_for_one_process_and_recorded() {
    let sandbox = noting("ask", &["a"]);
    let ran = sandbox.run("go", &["--approve-all"]).expect_code(0);
    assert!(!ran.stderr.contains("approve note"), "{}", ran.stderr);
    assert_eq!(approvals(&sandbox), [json!(["flag", null])]);
    assert_eq!(sandbox.events("ENGINE_START")[0]["config"]["approve"], json!({"all": true}));

    // It also answers what the run waits for, and rules that deny still deny.
    let sandbox = noting(RULES, &["d", "b", "x"]);
    sandbox.run("go", &[]).expect_code(101);
    resume(&sandbox, &["--approve-all"]).expect_code(0);
    assert_eq!(notes(&sandbox), ["d", "x"]);
    assert_eq!(approvals(&sandbox), [json!(["flag", null]), json!(["flag", null])]);

    let turns = "- call: [{tool: note, args: {text: a}}]\n- say: one\n- call: [{tool: note, args: {text: b}}]\n- say: two\n";
    let sandbox = Sandbox::scripted(DELTA, &TOOLS.replace("APPROVE", "ask"), turns);
    sandbox.run("go", &["--approve-all"]).expect_code(0);
    resume(&sandbox, &["-m", "more"]).expect_code(101);
}

#[test]
fn c_21_1_options_are_checked() {
    let sandbox = noting("ask", &[]);
    let check = |more: &[&str], code: i32, expected: &str| {
        let ran = sandbox.run("go", more).expect_code(code);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    };
    check(&["--approve", "never"], 2, "expected `ask`, for all tools, or `NAME=ask`");
    check(&["--approve", "note=never"], 2, "expected `ask`");
    check(&["--approve", "ask", "--approve-all"], 2, "cannot be used with");
    check(&["--approve", "notes=ask"], 126, "help: did you mean `note`?");
}

#[test]
fn c_21_1_approve_is_in_the_schema_and_survives_expand() {
    let sandbox = noting(RULES, &["a"]);
    let schema = sandbox.delta(["schema", "agent"]).output().expect_code(0);
    assert!(schema.stdout.contains("\"approve\""), "{}", schema.stdout);
    let ran = sandbox.delta(["tool", "expand", "agent/agent.yaml"]).output().expect_code(0);
    assert!(ran.stdout.contains(RULES), "{}", ran.stdout);
    sandbox.write("agent/agent.yaml", &ran.stdout);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(approvals(&sandbox), [json!(["rule", 1])]);
}

#[test]
fn c_21_1_invalid_arguments_are_not_asked_about() {
    let sandbox = Sandbox::scripted(
        DELTA,
        &TOOLS.replace("APPROVE", "ask"),
        "- call: [{tool: note, args: {}}]\n- say: done\n",
    );
    sandbox.run("go", &[]).expect_code(0);
    assert!(sandbox.events("APPROVAL_REQUEST").is_empty());
}
