//! What the operator lets an agent reach: hosts for sandboxed tools (C-36.19), and the endpoint in config.yaml.

use super::DELTA;
use super::sandbox::agent;
use serde_json::{Value, json};
use std::net::TcpListener;
use test_support::needs;
use test_support::sandbox::{CONTEXT, Ran, Sandbox};

const CONFIG: &str = "home/.config/delta/config.yaml";

fn sandbox_of(sandbox: &Sandbox, dir: &str, id: &str) -> Value {
    let journal = sandbox.read(&format!("{dir}/.delta/{id}/journal.jsonl"));
    let start: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    start["config"]["sandbox"].clone()
}

fn run(sandbox: &Sandbox, id: &str, more: &[&str]) -> Ran {
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "go"];
    sandbox.delta(args.iter().chain(more).copied()).output().expect_code(0)
}

#[test]
fn c_36_19_the_option_adds_hosts_within_the_operators_sandbox() {
    if !needs::programs(&["bash"]) {
        return;
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let script = format!("bash -c 'echo > /dev/tcp/127.0.0.1/{port}' && echo reached");
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", &script)]) else { return };
    let host = format!("localhost:{port}");
    let observation = |id: &str| {
        let journal = sandbox.read(&format!("work/.delta/{id}/journal.jsonl"));
        journal.contains("\"observation_content\":\"reached\\n\"")
    };
    run(&sandbox, "without", &[]);
    run(&sandbox, "with", &["--net", &host]);
    run(&sandbox, "limited", &["--net", &host, "--sandbox", "workspace"]);
    assert_eq!(["without", "with", "limited"].map(observation), [false, true, false]);
    assert_eq!(sandbox_of(&sandbox, "work", "without")["hosts"], Value::Null);
    let record = sandbox_of(&sandbox, "work", "with");
    assert_eq!(record["hosts"], json!([host]));
    // A tool without a sandbox of its own gets nothing from the option either, and keeps its own limit.
    assert_eq!(record["tools"], json!({"sh": "p1"}));
    for wrong in ["http://a.example", "a b", "a:0"] {
        let args = ["run", "--agent", "agent", "-w", "work", "--net", wrong, "-m", "go"];
        sandbox.delta(args).output().expect_code(2);
    }
}

#[test]
fn c_36_19_stderr_names_the_option_for_what_was_refused() {
    let lookup = "getent hosts a.example; true";
    for (setting, options) in
        [("{net: [b.example]}", "--net a.example"), ("workspace", "--net HOST")]
    {
        let calls = [("sh", lookup), ("sh", lookup)];
        let Some(sandbox) = agent(&format!("sandbox: {setting}"), &calls) else { return };
        let ran = run(&sandbox, "r", &[]);
        let work = sandbox.path("work").display().to_string();
        let line = format!(
            "to allow this network: `delta continue --run-id r -w {work} {options}`, or `net` in config.yaml\n"
        );
        assert_eq!(ran.stderr.matches(&line).count(), 1, "{}", ran.stderr);
        // Where the operator limits the sandbox, the option would change nothing.
        let ran = run(&sandbox, "limited", &["--sandbox", "workspace"]);
        assert!(!ran.stderr.contains("to allow this network"), "{}", ran.stderr);
    }
}

#[test]
fn c_36_19_config_yaml_adds_hosts_for_an_installed_agent_in_a_directory() {
    let Some(sandbox) = agent("sandbox: workspace", &[]) else { return };
    let home = "home/.local/share/delta/agents/mine";
    for dir in [home, "repo/mine"] {
        sandbox.write(&format!("{dir}/agent.yaml"), sandbox.read("agent/agent.yaml"));
        sandbox.write(&format!("{dir}/script.yaml"), "turns:\n  - say: done\n");
        sandbox.write(&format!("{dir}/system_prompt.md"), "You are a test.\n");
        sandbox.write(&format!("{dir}/context.yaml"), CONTEXT);
    }
    sandbox.write("src/a/x", "");
    sandbox.write("src/b/x", "");
    let entry = |agent: &str, dir: &str, host: &str| {
        let dir = sandbox.path(dir).display().to_string();
        format!("  - {{agent: {agent}, dir: '{dir}', hosts: [{host}]}}\n")
    };
    let entries = [
        entry("mine", "src/a", "a.example"),
        entry("mine", "src/**", "b.example:80"),
        entry("other", "src/a", "c.example"),
        entry("mine", "elsewhere", "d.example"),
    ];
    sandbox.write(CONFIG, format!("net:\n{}", entries.concat()));
    let hosts = |agent: &str, dir: &str| {
        let id = agent.replace(['/', '.'], "x");
        let args = ["run", "--agent", agent, "-w", ".", "--run-id", &id, "-q", "-m", "go"];
        sandbox.delta(args).cwd(sandbox.path(dir)).output().expect_code(0);
        sandbox_of(&sandbox, dir, &id)["hosts"].clone()
    };
    assert_eq!(hosts("mine", "src/a"), json!(["a.example", "b.example:80"]));
    assert_eq!(hosts("mine", "src/b"), json!(["b.example:80"]));
    assert_eq!(hosts("mine", "repo/mine"), Value::Null);
    // An agent of a repository does not have the name, whatever it calls itself.
    assert_eq!(hosts("../../repo/mine", "src/a"), Value::Null);

    for (entry, expected) in [
        ("{agent: mine, dir: src, hosts: [a.example]}", "expected an absolute path, found `src`"),
        ("{agent: mine, dir: /x, hosts: ['http://a']}", "`http://a` is not a host"),
        ("{agent: mine, dir: /x}", "hosts"),
    ] {
        sandbox.write(CONFIG, format!("net: [{entry}]\n"));
        let ran = sandbox.delta(["config"]).output().expect_code(126);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

#[test]
fn c_23_4_config_yaml_has_the_address_of_an_endpoint() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: unused\n");
    let agent =
        |more: &str| format!("name: t\nllm: {{model: m, max_retries: 0{more}}}\ntools: []\n");
    sandbox.write("agent/agent.yaml", agent(""));
    sandbox.write(CONFIG, "endpoint: {openai: 'http://127.0.0.1:9/v1'}\n");
    let asked = |address: &str, variables: &[(&str, &str)]| {
        let args = ["run", "--agent", "agent", "-w", "work", "-m", "hi"];
        let mut command = sandbox.delta(args);
        for (name, value) in variables {
            command = command.env(name, *value);
        }
        let ran = command.output().expect_code(1);
        assert!(ran.stderr.contains(&format!("could not connect to {address}/")), "{}", ran.stderr);
    };
    asked("http://127.0.0.1:9/v1", &[]);
    // The variables precede it, and agent.yaml all.
    asked("http://127.0.0.1:7/v1", &[("OPENAI_BASE_URL", "http://127.0.0.1:7/v1")]);
    asked("http://127.0.0.1:7/v1", &[("DELTA_BASE_URL", "http://127.0.0.1:7/v1")]);
    sandbox.write("agent/agent.yaml", agent(", base_url: 'http://127.0.0.1:5/v1'"));
    asked("http://127.0.0.1:5/v1", &[]);
    let listed = sandbox.delta(["config", "--format", "json"]).output().json();
    let row = listed.as_array().unwrap().iter().find(|row| row["key"] == "endpoint").unwrap();
    assert_eq!(row["value"], "openai: http://127.0.0.1:9/v1");
    sandbox.write(CONFIG, "endpoint: {openai: 'localhost:9'}\n");
    let ran = sandbox.delta(["config"]).output().expect_code(126);
    assert!(
        ran.stderr.contains("expected the URL of an endpoint, found `localhost:9`"),
        "{}",
        ran.stderr
    );
}
