//! The sandbox of a server: the run prepares it, and the process that holds the server starts the server in it.

use super::DELTA;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::Sandbox;

/// Whether this machine has sockets that Landlock cannot close is not what is tested.
const WITHOUT_SOCKETS: [&str; 2] = ["--sandbox-without", "sockets"];

/// An agent with a server that runs scripts and a tool without a sandbox that does; `keys` are more keys of the server,
/// each line indented by four, and then of the agent.
fn agent(keys: &str, calls: &[(&str, &str)]) -> Sandbox {
    let turns = calls.iter().map(|(tool, script)| {
        format!("- call: [{{tool: {tool}, args: {{script: {}}}}}]\n", json!(script))
    });
    let turns: String = turns.collect();
    let sandbox = Sandbox::not_in_memory(DELTA);
    sandbox.write("work/.keep", "");
    sandbox.write("agent/server.py", include_str!("boxed_server.py"));
    sandbox.write("agent/script.yaml", format!("turns:\n{turns}- say: done\n"));
    sandbox.write(
        "agent/agent.yaml",
        format!(
            "name: test-agent\nllm: {{provider: script, model: script.yaml}}\ntools:\n  \
             - {{name: free, shell: 'sh -c ${{script}}', sandbox: off}}\nmcp:\n  s:\n    \
             command: [python3, '${{AGENT_HOME}}/server.py']\n{keys}"
        ),
    );
    sandbox.delta(["mcp", "lock", "--agent", "agent", "--write"]).output().expect_code(0);
    sandbox
}

fn holds_namespaces(sandbox: &Sandbox) -> bool {
    let check = ["sandbox", "check", "--agent", "agent", "-w", "work"];
    let checked = sandbox.delta(check).args(WITHOUT_SOCKETS).output().expect_code(0);
    !checked.stdout.contains("no namespaces")
}

fn profile(sandbox: &Sandbox) -> Value {
    sandbox.events("ENGINE_START")[0]["config"]["sandbox"]["profiles"]["p1"].clone()
}

/// An agent whose LLM attacks through the server.
fn attacker() -> Sandbox {
    let attack = "echo a > in; echo b > ../outside; cat ~/.ssh/id; echo $PPID > pid";
    let calls = [("s__sh", attack), ("s__sh", "test $(cat pid) = $PPID && echo same")];
    agent("sandbox: workspace\n", &calls)
}

fn expect_boxed(sandbox: &Sandbox) {
    sandbox.write("home/.ssh/id", "the key");
    sandbox.run("go", &WITHOUT_SOCKETS).expect_code(0);
    assert_eq!(sandbox.read("work/in"), "a\n");
    assert!(!sandbox.path("outside").exists());
    let observations = sandbox.observations();
    assert!(!observations[0].contains("the key"), "{}", observations[0]);
    assert_eq!(observations[1], "same\n", "one server serves all calls");
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["sandbox"], "p1");
    assert!(profile(sandbox)["line"].as_str().unwrap().starts_with("Sandbox: writes only"));
}

#[test]
fn c_30_14_a_server_is_in_the_sandbox_of_the_agent() {
    if needs::programs(&["python3"]) {
        expect_boxed(&attacker());
    }
}

#[test]
fn c_30_14_a_server_is_in_the_sandbox_of_the_agent_without_namespaces() {
    if needs::programs(&["python3"])
        && let Some(sandbox) = attacker().without_namespaces()
    {
        expect_boxed(&sandbox);
    }
}

#[test]
fn c_30_14_the_operators_sandbox_holds_for_a_server_without_one() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = agent("    sandbox: off\n", &[("s__sh", "echo a > in"), ("free", "echo b > in")]);
    let ran = sandbox.run_command("go", &["--sandbox", "reader"]).args(WITHOUT_SOCKETS).output();
    ran.expect_code(0);
    assert!(!sandbox.path("work/in").exists());
    let observation = &sandbox.observations()[0];
    assert!(observation.contains("\n[sandbox: only /tmp can be written]"), "{observation}");
}

#[test]
fn c_30_14_a_server_has_a_sandbox_of_its_own_or_none() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let script = "echo a > in; true";
    let keys = "    sandbox: {write: []}\nsandbox: workspace\n";
    let sandbox = agent(keys, &[("s__sh", script)]);
    sandbox.run("go", &WITHOUT_SOCKETS).expect_code(0);
    assert!(!sandbox.path("work/in").exists());
    let free = agent("    sandbox: off\nsandbox: workspace\n", &[("s__sh", script)]);
    free.run("go", &[]).expect_code(0);
    assert!(free.path("work/in").exists());
    assert_eq!(free.events("ACTION_REQUEST")[0].get("sandbox"), None, "nothing has a sandbox");
}

#[test]
fn c_30_14_no_server_is_started_outside_of_its_sandbox() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let remove = "rm .delta/r/mcp/s.sock";
    let calls = [("s__sh", "true"), ("free", remove), ("s__sh", "echo a > ../outside")];
    let sandbox = agent("sandbox: workspace\n", &calls);
    sandbox.run("go", &WITHOUT_SOCKETS).expect_code(0);
    let observation = &sandbox.observations()[2];
    assert!(observation.contains("cannot be reached; the call was not sent"), "{observation}");
    assert!(observation.contains("[exit code: 4]") && !sandbox.path("outside").exists());
}

#[test]
fn c_30_14_a_server_is_started_again_when_its_files_are_replaced() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let calls = [
        ("s__sh", "echo a > sub/a"),
        ("free", "mv sub old && mkdir sub"),
        ("s__sh", "echo b > sub/b && echo ok"),
    ];
    let sandbox = agent("    sandbox: {write: [sub]}\n", &calls);
    sandbox.write("work/sub/.keep", "");
    if !holds_namespaces(&sandbox) {
        return needs::skip("needs namespaces");
    }
    sandbox.run("go", &WITHOUT_SOCKETS).expect_code(0);
    let observation = &sandbox.observations()[2];
    assert!(observation.starts_with("[the server s was started again"), "{observation}");
    assert!(observation.ends_with("ok\n"), "{observation}");
    assert_eq!(sandbox.read("work/sub/b"), "b\n");
}

#[test]
fn c_30_14_a_list_of_hosts_holds_for_a_server() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let script = "getent hosts example.org; echo $?";
    let keys = "    sandbox: {net: [example.com]}\n";
    let sandbox = agent(keys, &[("s__sh", script)]);
    if !holds_namespaces(&sandbox) {
        return needs::skip("needs namespaces");
    }
    sandbox.run("go", &WITHOUT_SOCKETS).expect_code(0);
    let refused = &sandbox.events("ACTION_RESULT")[0]["sandbox"]["refused"];
    assert!(refused["example.org"].as_u64().is_some_and(|count| count > 0), "{refused}");
}
