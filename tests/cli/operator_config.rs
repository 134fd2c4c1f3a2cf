//! The operator's configuration: the model of agents without `llm`, and what `delta config` lists.

use crate::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};

const CONFIG: &str = "home/.config/delta/config.yaml";
const SCRIPT: &str = "turns:\n- say: from the script\n";

/// An agent without `llm`, and a script in its directory.
fn agent_without_llm() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: unused\n");
    sandbox.write("agent/agent.yaml", "name: t\ntools: []\n");
    sandbox.write("agent/own.yaml", SCRIPT);
    sandbox
}

fn list(sandbox: &Sandbox, variables: &[(&str, &str)]) -> Vec<(String, Value, Value)> {
    let mut command = sandbox.delta(["config", "--format", "json"]);
    for (name, value) in variables {
        command = command.env(name, *value);
    }
    let listed = command.output().expect_code(0).json();
    let listed = listed.as_array().unwrap().iter();
    listed
        .map(|it| (it["key"].as_str().unwrap().to_owned(), it["value"].clone(), it["from"].clone()))
        .collect()
}

fn row(rows: &[(String, Value, Value)], key: &str) -> (Value, Value) {
    let row = rows.iter().find(|row| row.0 == key).unwrap_or_else(|| panic!("{key} is missing"));
    (row.1.clone(), row.2.clone())
}

#[test]
fn c_23_4_an_agent_without_llm_asks_the_operators_model() {
    let sandbox = agent_without_llm();
    let refused = sandbox.run("hi", &[]).expect_code(126);
    assert!(refused.stderr.contains("error: agent.yaml has no `llm`\n"), "{}", refused.stderr);
    assert!(refused.stderr.contains("export DELTA_MODEL="), "{}", refused.stderr);
    assert!(!sandbox.path("work").exists());

    sandbox.write(CONFIG, "model: script:own.yaml\n");
    let first: Ran = sandbox.run("hi", &["--format", "raw", "-q"]);
    first.expect(0, "from the script\n", "");
    let llm = &sandbox.events("ENGINE_START")[0]["config"]["llm"];
    assert_eq!(llm["option"], "script:own.yaml", "{llm}");

    // The variable takes precedence over the file, the option over both.
    sandbox.write("agent/other.yaml", "turns:\n- say: from the variable\n");
    let run = |more: &[&str]| {
        let args = ["run", "--agent", "agent", "-w", "again", "-m", "hi", "-q", "--format", "raw"];
        let command = sandbox.delta(args.iter().chain(more));
        command.env("DELTA_MODEL", "script:other.yaml").output()
    };
    run(&[]).expect(0, "from the variable\n", "");
    run(&["--model", "script:own.yaml"]).expect(0, "from the script\n", "");
}

#[test]
fn c_23_4_an_agent_with_llm_keeps_its_model() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: its own\n");
    sandbox.write(CONFIG, "model: script:gone.yaml\n");
    sandbox.run("hi", &["--format", "raw", "-q"]).expect(0, "its own\n", "");
    assert_eq!(sandbox.events("ENGINE_START")[0]["config"]["llm"]["option"], Value::Null);
}

#[test]
fn c_23_4_a_mistake_in_the_operators_model_is_reported_where_it_is() {
    let sandbox = agent_without_llm();
    for (text, message) in [
        ("model: scrpt:x\n", "unknown provider `scrpt`"),
        ("model: ''\n", "`model` is empty"),
        ("modl: x\n", "unknown key `modl`"),
        ("color: blue\n", "color"),
        ("color: yes\n", "help: write `always`"),
        ("api_key: sk-1\n", "set DELTA_API_KEY, or write a command that prints the key"),
        ("llm: {model: x}\n", "write `model: NAME` or `model: PROVIDER:NAME`"),
        ("api_key_command: [pass, show]\n", "write `api_key_command: pass show llm`"),
        ("- model\n", "must be a mapping"),
        ("model: [\n", "config.yaml:"),
    ] {
        sandbox.write(CONFIG, text);
        for command in [&["config"][..], &["run", "--agent", "agent", "-w", "work", "-m", "hi"]] {
            let ran = sandbox.delta(command).output().expect_code(126);
            assert!(ran.stderr.contains(message), "{text}: {}", ran.stderr);
            assert!(ran.stderr.contains("home/.config/delta/config.yaml"), "{}", ran.stderr);
        }
        assert!(!sandbox.path("work").exists());
        // Commands that need no configuration work.
        sandbox.delta(["--version"]).output().expect_code(0);
    }
    sandbox.write(CONFIG, "");
    let run = sandbox.run_command("hi", &[]).env("DELTA_MODEL", "scrpt:x").output();
    let run = run.expect_code(126);
    assert!(run.stderr.starts_with("error: DELTA_MODEL: unknown provider"), "{}", run.stderr);
}

#[test]
fn c_23_5_continue_asks_the_model_of_the_last_process() {
    let sandbox = agent_without_llm();
    let two = "turns:\n- call: [{tool: ask_human, args: {prompt: q}}]\n- say: ${last} as before\n";
    sandbox.write("agent/own.yaml", two);
    sandbox.write("agent/other.yaml", "turns:\n- say: another\n- say: another\n");
    sandbox.write(CONFIG, "model: script:own.yaml\n");
    sandbox.run("hi", &[]).expect_code(101);
    sandbox.write(CONFIG, "model: script:other.yaml\n");
    let answer =
        sandbox.delta(["continue", "r", "-w", "work", "-m", "yes", "-q", "--format", "raw"]);
    answer.output().expect(0, "yes as before\n", "");
    let starts = sandbox.events("ENGINE_START");
    assert_eq!(starts[1]["config"]["llm"]["option"], "script:own.yaml");

    // Told otherwise, and then again without being told: the model stays, and -q does not hide the change.
    let told = ["continue", "r", "-w", "work", "-m", "more", "-q", "--model", "openai:gpt-x"];
    let told = sandbox.delta(told).env("DELTA_BASE_URL", "http://127.0.0.1:1/v1").output();
    assert!(told.stderr.contains("the last process called "), "{}", told.stderr);
    let starts = sandbox.events("ENGINE_START");
    assert_eq!(starts[2]["config"]["llm"]["option"], "openai:gpt-x");
}

#[test]
fn c_23_5_a_fork_asks_the_model_of_its_source() {
    let sandbox = agent_without_llm();
    sandbox.write("agent/own.yaml", "turns:\n- say: one\n- say: two\n");
    sandbox.write(CONFIG, "model: script:own.yaml\n");
    sandbox.run("hi", &[]).expect_code(0);
    sandbox.write(CONFIG, "model: script:gone.yaml\n");
    let fork = ["fork", "r", "-w", "work", "--into", "new", "-m", "more", "-q", "--format", "raw"];
    sandbox.delta(fork).output().expect(0, "two\n", "");
}

#[test]
fn c_23_4_config_lists_what_counts_and_where_it_comes_from() {
    let sandbox = agent_without_llm();
    let rows = list(&sandbox, &[]);
    assert_eq!(row(&rows, "config_file").1, "does not exist");
    assert_eq!(row(&rows, "model"), (Value::Null, Value::Null));
    assert_eq!(row(&rows, "color"), (json!("auto"), Value::Null));

    sandbox.write(CONFIG, "\nmodel: gpt-x\ndefault_agent: reviewer\ncolor: never\n");
    let rows = list(&sandbox, &[("DELTA_API_KEY", "sk-very-secret")]);
    let at = |line: u32| json!(format!("{}:{line}", sandbox.path(CONFIG).display()));
    assert_eq!(row(&rows, "config_file").1, Value::Null);
    assert_eq!(row(&rows, "model"), (json!("gpt-x"), at(2)));
    assert_eq!(row(&rows, "default_agent"), (json!("reviewer"), at(3)));
    assert_eq!(row(&rows, "color"), (json!("never"), at(4)));
    assert_eq!(row(&rows, "api_key"), (json!("(set)"), json!("DELTA_API_KEY")));
    let all = ["OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"];
    let rows = list(&sandbox, &all.map(|name| (name, "sk-very-secret")));
    let names = "OPENAI_API_KEY, ANTHROPIC_AUTH_TOKEN, GOOGLE_API_KEY";
    assert_eq!(row(&rows, "api_key"), (json!("(set)"), json!(names)));
    let variables = [("DELTA_MODEL", "openai:a:b"), ("NO_COLOR", "1"), ("XDG_CONFIG_HOME", "rel")];
    let rows = list(&sandbox, &variables);
    assert_eq!(row(&rows, "model"), (json!("openai:a:b"), json!("DELTA_MODEL")));
    assert_eq!(row(&rows, "color"), (json!("never"), json!("NO_COLOR")));
    // The XDG specification: a relative path does not count.
    assert_eq!(row(&rows, "default_agent").0, json!("reviewer"));

    let text = sandbox.delta(["config"]).env("DELTA_API_KEY", "sk-very-secret").output();
    let text = text.expect_code(0).stdout;
    assert!(!text.contains("very-secret"), "{text}");
    assert!(text.contains("\nmodel            gpt-x "), "{text}");
    // A list of no tools is not a setting without a value.
    sandbox.write(CONFIG, "approve: []\n");
    let text = sandbox.delta(["config"]).output().expect_code(0).stdout;
    assert!(text.contains("\napprove          [] "), "{text}");
}

#[test]
fn c_21_1_the_operators_configuration_tightens_approvals() {
    let tools = "  - {name: t, shell: echo ran >> log}\n  - {name: u, shell: echo ran >> log}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: u}, {tool: t}]\n- say: done\n");
    sandbox.write(CONFIG, "approve: [t, a_tool_of_another_agent]\n");
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(sandbox.read("work/log"), "ran\n");
    assert_eq!(sandbox.events("APPROVAL_REQUEST")[0]["tool_name"], "t");
    // What the run began with holds until it ends.
    sandbox.write(CONFIG, "");
    sandbox.delta(["approve", "r", "-w", "work"]).output().expect_code(0);
    assert_eq!(sandbox.read("work/log"), "ran\nran\n");

    sandbox.write(CONFIG, "approve: ask\n");
    let again = |more: &[&str]| {
        let args = ["run", "--agent", "agent", "-w", "again", "-m", "go", "-q"];
        sandbox.delta(args.iter().chain(more)).output()
    };
    again(&[]).expect_code(101);
    again(&["--approve-all"]).expect_code(0);
    sandbox.write(CONFIG, "approve: always\n");
    let refused = again(&[]).expect_code(126);
    assert!(refused.stderr.contains("approve"), "{}", refused.stderr);
}
