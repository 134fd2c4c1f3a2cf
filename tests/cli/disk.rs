//! A journal that cannot be written any more (C-13.6).

use super::DELTA;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use test_support::sandbox::{Ran, Sandbox};

#[test]
fn c_13_6_a_full_disk_stops_the_run_before_anything_else_is_started() {
    let tools = "  - name: t\n    shell: head -c 25000 /dev/zero | tr '\\0' x\n  - name: next\n    shell: echo started > marker\n";
    let turns = "- call: [{tool: t}, {tool: t}, {tool: t}, {tool: next}]\n- say: done";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let hooks = "on_error: {command: [touch, marker]}\non_run_end: {command: [touch, marker]}\n";
    sandbox.write("agent/hooks.yaml", hooks);
    // A limit on the size of files fails like a full disk, when the signal is ignored.
    let script = "trap '' XFSZ; ulimit -f 128; exec \"$0\" run --agent agent -w work --run-id r -m hello --format json";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(1);
    assert_eq!(
        (&ran.json()["status"], &ran.json()["error"]["type"]),
        (&json!("FAILED"), &json!("io"))
    );
    // What the journal has.
    let result = ran.json();
    assert_eq!(result["metrics"]["iterations"], 1);
    assert_eq!(result["metadata"]["agent_name"], "test-agent");
    let work = sandbox.path("work").canonicalize().unwrap();
    assert_eq!(result["metadata"]["workspace_path"], json!(work));
    assert!(ran.stderr.contains("delta continue --run-id r -w "), "{}", ran.stderr);
    let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("journal.jsonl") && message.contains("File too large"), "{message}");
    assert_eq!(ran.stderr.matches(&message).count(), 1, "{}", ran.stderr);
    let kinds: Vec<Value> = sandbox.journal().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(
        kinds.last().unwrap(),
        "ACTION_REQUEST",
        "cut back to what was acknowledged: {kinds:?}"
    );
    assert_eq!(sandbox.observations().len(), 2);
    assert!(!sandbox.path("work/marker").exists());
}
