//! Clients of others judge `delta mcp serve` and `delta acp`: the Python SDKs of both protocols, which check every message
//! against their types, Codex against a scripted endpoint, and the conformance suite of MCP.
//!
//! `.ci/run` puts them below target/: this repository has none of them. What is missing is a line in the output of a test.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, and start real processes"
)]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::sandbox::Sandbox;

mod conformance;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");
const TOOLS: &str = "  - name: note\n    shell: echo noted >> notes; echo noted\n  \
     - name: ask\n    shell: echo asked >> asked; echo asked\n    approve: ask\n  \
     - name: hold\n    shell: echo held >> held; until [ -e go ]; do sleep 0.02; done\n";
const ASKING: &str = "- call: [{tool: note}]\n- call: [{tool: ask_human, args: {prompt: Which?}}]\n\
     - call: [{tool: ask}]\n- say: 'got ${last}'\n";

/// A file or directory that `.ci/run` fetched; prints a line if it is missing.
fn find_fetched(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("agent-clients").join(name);
    if path.exists() {
        return Some(path);
    }
    println!("skipped, there is no target/agent-clients/{name}: `bash .ci/run` fetches it");
    None
}

/// An agent in a sandbox with a workspace.
fn agent(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    std::fs::create_dir(sandbox.path("work")).unwrap();
    sandbox
}

/// Runs a script of this directory in the sandbox; returns the JSON that it prints.
fn run_script(
    sandbox: &Sandbox,
    python: &Path,
    script: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let mut command = Command::new(python);
    command.arg("-B").arg(script).arg(DELTA).args(arguments).current_dir(sandbox.path(""));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", sandbox.path("home")).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

#[test]
fn c_29_1_the_python_sdk_calls_an_agent_in_each_mode() {
    let Some(python) = find_fetched("bin/python") else { return };
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
    let Some(python) = find_fetched("bin/python") else { return };
    let sandbox = agent(ASKING);
    let seen = run_script(&sandbox, &python, "acp_client.py", &[], &[]);
    assert_eq!(seen["stop_reason"], "end_turn", "{seen}");
    assert_eq!(
        (&seen["text"], &seen["permissions"]),
        (&json!("got asked"), &json!(["ask"])),
        "{seen}"
    );
    assert_eq!(seen["sessions"], json!(["go"]));
    assert!(seen["loaded"].as_u64().unwrap() > 4, "{seen}");
}

#[test]
fn c_29_2_codex_that_is_killed_and_asks_again_gets_the_same_run() {
    let Some(codex) = find_fetched("node_modules/.bin/codex") else { return };
    let sandbox = agent("- call: [{tool: hold}]\n- say: done\n");
    let seen =
        run_script(&sandbox, Path::new("python3"), "codex.py", &[codex.to_str().unwrap()], &[]);
    assert_eq!(seen["runs"].as_array().unwrap().len(), 1, "{seen}");
    assert!(seen["output"].as_str().unwrap().contains("\"status\":\"COMPLETED\""), "{seen}");
    assert_eq!(sandbox.read("work/held"), "held\n");
}
