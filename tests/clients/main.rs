//! Clients of others judge `delta mcp serve` and `delta acp`: the SDKs of both protocols, which check every message
//! against their types, Codex and Claude Code against scripted endpoints, the Inspector and the conformance suite of MCP.
//! The classes of in-toto judge the statements of `delta export`.
//!
//! `.ci/run` puts them below target/: this repository has none of them. A test whose client is missing is skipped.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, and start real processes"
)]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::needs;
use test_support::sandbox::Sandbox;

mod conformance;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");
const TOOLS: &str = "  - name: note\n    shell: echo noted >> notes; echo noted\n  \
     - name: ask\n    shell: echo asked >> asked; echo asked\n    approve: ask\n  \
     - name: hold\n    shell: echo held >> held; until [ -e go ]; do sleep 0.02; done\n";
const ASKING: &str = "- call: [{tool: note}]\n- call: [{tool: ask_human, args: {prompt: Which?}}]\n\
     - call: [{tool: ask}]\n- say: 'got ${last}'\n";

/// An agent in a sandbox with a workspace.
fn agent(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    std::fs::create_dir(sandbox.path("work")).unwrap();
    sandbox
}

/// Runs a script of this directory in the sandbox; returns the JSON that it prints.
fn run_script(
    sandbox: &Sandbox,
    interpreter: &Path,
    script: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let mut command = Command::new(interpreter);
    command.arg(script).arg(DELTA).args(arguments).current_dir(sandbox.path(""));
    command
        .env_clear()
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", sandbox.path("home")).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// The Python that has the SDKs.
fn python() -> Option<PathBuf> {
    Some(needs::python_env("agent-clients/py")?.join("python"))
}

#[test]
fn c_29_1_the_python_sdk_calls_an_agent_in_each_mode() {
    let Some(python) = python() else { return };
    for (mode, version) in
        [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")]
    {
        let sandbox = agent(ASKING);
        let seen = run_script(&sandbox, &python, "mcp_client.py", &[mode], &[]);
        assert_eq!(seen["version"], version, "{seen}");
        assert_eq!(seen["tools"].as_array().unwrap().len(), 4);
        assert_eq!(
            (&seen["text"], &seen["is_error"]),
            (&json!("got asked"), &json!(false)),
            "{seen}"
        );
        assert_eq!(seen["elicited"].as_array().unwrap().len(), 2, "{seen}");
        assert!(seen["progress"].as_array().unwrap().len() >= 4, "{seen}");
        assert_eq!(seen["again"], "got asked");
        assert_eq!(sandbox.read("work/notes"), "noted\n");
    }
}

#[test]
fn c_29_7_the_python_sdk_of_acp_works_with_an_agent() {
    let Some(python) = python() else { return };
    let sandbox = agent(ASKING);
    let seen = run_script(&sandbox, &python, "acp_client.py", &[], &[]);
    assert_eq!(seen["stop_reason"], "end_turn", "{seen}");
    assert_eq!(
        (&seen["text"], &seen["permissions"]),
        (&json!("got asked"), &json!(["ask"])),
        "{seen}"
    );
    assert_eq!(seen["modes"], json!(["ask", "ask", "approve-all"]));
    assert_eq!(sandbox.read("work/asked"), "asked\nasked\n");
    assert_eq!(seen["sessions"], json!(["go", "go"]));
    assert!(seen["loaded"].as_u64().unwrap() > 4, "{seen}");
}

#[test]
fn c_36_13_the_classes_of_in_toto_and_slsa_read_a_statement() {
    let Some(python) = needs::python_env("agent-clients/in-toto") else { return };
    let sandbox = agent("- call: [{tool: note}]\n- say: done\n");
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    let seen = run_script(&sandbox, &python.join("python"), "in_toto.py", &[], &[]);
    assert_eq!(seen["predicate"], "https://slsa.dev/provenance/v1");
    assert_eq!((&seen["subjects"], &seen["run"]), (&json!(["notes"]), &json!("r")));
    assert_eq!(seen["used"], json!(["agent", "workspace"]));
    assert_eq!(seen["left"], json!(["journal.jsonl", "workspace"]));
    assert!(seen["seconds"].as_i64().unwrap() > 0, "{seen}");
}

#[test]
fn c_29_2_codex_that_is_killed_and_asks_again_gets_the_same_run() {
    let Some(codex) = needs::fetched("agent-clients/node_modules/.bin/codex") else { return };
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = agent("- call: [{tool: hold}]\n- say: done\n");
    let seen =
        run_script(&sandbox, Path::new("python3"), "codex.py", &[codex.to_str().unwrap()], &[]);
    assert_eq!(seen["runs"].as_array().unwrap().len(), 1, "{seen}");
    assert!(seen["output"].as_str().unwrap().contains("\"status\":\"COMPLETED\""), "{seen}");
    assert_eq!(sandbox.read("work/held"), "held\n");
}

/// The path of this process with the Node of the clients first.
fn path_with_node() -> Option<String> {
    let node = needs::fetched("agent-clients/node_modules/node/bin")?;
    Some(format!("{}:{}", node.display(), std::env::var("PATH").unwrap()))
}

#[test]
fn c_29_1_claude_code_calls_an_agent() {
    let Some(claude) = needs::fetched("agent-clients/node_modules/.bin/claude") else { return };
    let Some(path) = path_with_node() else { return };
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = agent("- call: [{tool: note}]\n- say: 'got ${last}'\n");
    let arguments = [claude.to_str().unwrap()];
    let script = "claude_code.py";
    let seen = run_script(&sandbox, Path::new("python3"), script, &arguments, &[("PATH", &path)]);
    let tools =
        ["", "_answer", "_stop", "_wait"].map(|word| format!("mcp__agent__test-agent{word}"));
    assert_eq!(seen["tools"], json!(tools), "{seen}");
    // Its LLM sees the structured content.
    let answer = seen["answer"].as_str().unwrap();
    assert!(answer.contains("\"result\":\"got noted\""), "{seen}");
    assert_eq!(sandbox.read("work/notes"), "noted\n");
}

#[test]
fn c_29_1_the_inspector_lists_and_calls_the_tools() {
    let Some(inspector) = needs::fetched("agent-clients/node_modules/.bin/mcp-inspector") else {
        return;
    };
    let Some(path) = path_with_node() else { return };
    let sandbox = agent("- say: 'got ${task}'\n");
    let inspect = |arguments: &[&str]| {
        let mut command = Command::new(&inspector);
        command.args(["--cli", DELTA, "mcp", "serve", "--agent", "agent", "-w", "work"]);
        command.args(arguments).current_dir(sandbox.path("")).env_clear();
        let output = command.env("PATH", &path).env("HOME", sandbox.path("home")).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {errors}"));
        result
    };
    let listed = inspect(&["--method", "tools/list"]);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 4, "{listed}");
    let call = ["--method", "tools/call", "--tool-name", "test-agent", "--tool-arg", "message=go"];
    let result = inspect(&call);
    assert_eq!(result["content"][0]["text"], "got go", "{result}");
}

#[test]
fn c_29_7_the_typescript_sdk_of_acp_works_with_an_agent() {
    let Some(sdk) = needs::fetched("agent-clients/node_modules/@agentclientprotocol/sdk") else {
        return;
    };
    let Some(node) = needs::fetched("agent-clients/node_modules/node/bin/node") else { return };
    let sandbox = agent(ASKING);
    let seen = run_script(&sandbox, &node, "acp_client.mjs", &[sdk.to_str().unwrap()], &[]);
    assert_eq!(seen["stops"], json!(["end_turn", "end_turn"]), "{seen}");
    assert_eq!(seen["permissions"], json!(["ask"]), "{seen}");
    assert_eq!(seen["texts"], json!(["Which?", "got asked", "Which?", "got asked"]), "{seen}");
    assert!(seen["loaded"].as_u64().unwrap() > 4, "{seen}");
}
