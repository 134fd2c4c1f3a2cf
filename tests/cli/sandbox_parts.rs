//! Sandboxes of other parts than tools, of the machine's operator, and of runs whose processes die.

use super::DELTA;
use super::sandbox::{agent, expect_done};
use rustix::process::geteuid;
use serde_json::json;
use std::fs;
use test_support::needs;
use test_support::running::Running;
use test_support::sandbox::Sandbox;
use test_support::wait::{is_alive, until, until_line};

#[test]
fn c_22_4_a_hook_has_the_sandbox_that_it_says() {
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", "true")]) else { return };
    let hooks = "on_iteration_start: {command: [sh, -c, 'echo a > free; echo b > ../outside']}\n\
                 on_run_end: {command: [sh, -c, 'touch confined; touch ../confined; cat ~/.netrc; touch /tmp/x && echo ok > /dev/stderr'], sandbox: reader}\n";
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox.write("home/.netrc", "secret\n");
    expect_done(sandbox.run("go", &[]));
    assert!(sandbox.path("work/free").exists() && sandbox.path("outside").exists());
    assert!(!sandbox.path("work/confined").exists() && !sandbox.path("confined").exists());
    let record = &sandbox.events("ENGINE_START")[0]["config"]["sandbox"];
    let name = record["hooks"]["on_run_end"].as_str().unwrap();
    assert_eq!(record["profiles"][name]["write"], json!([]));
}

#[test]
fn c_22_4_generators_have_the_sandbox_of_the_agent() {
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", "true")]) else { return };
    let script = "touch ../outside; cat ~/.netrc > ${CWD}/seen; echo text > ${RUN_DIR}/out.md";
    let context = format!(
        "sources:\n  - {{type: computed_file, output_path: '${{RUN_DIR}}/out.md', generator: {{command: [sh, -c, '{script}']}}}}\n  - type: journal\n"
    );
    sandbox.write("agent/context.yaml", context);
    sandbox.write("home/.netrc", "secret\n");
    expect_done(sandbox.run("go", &[]));
    assert!(!sandbox.path("outside").exists());
    assert_eq!(sandbox.read("work/seen"), "");
}

#[test]
fn c_22_4_a_run_is_continued_in_its_sandbox_after_a_kill() {
    let calls = [
        ("sh", "echo a > /tmp/x"),
        ("free", "read _ _ _ engine _ < /proc/$PPID/stat; kill -9 $engine; sleep 60"),
        ("sh", "cat /tmp/x; echo b > ../outside"),
    ];
    let Some(sandbox) = agent("sandbox: workspace", &calls) else { return };
    let temporary = sandbox.path("temporary");
    fs::create_dir(&temporary).unwrap();
    sandbox.run_command("go", &[]).env("TMPDIR", &temporary).output().expect_code(-1);
    assert_eq!(
        fs::read_dir(&temporary).unwrap().count(),
        1,
        "what the engine had no time to remove"
    );
    let resumed = sandbox.delta(["continue", "r", "-w", "work"]).env("TMPDIR", &temporary);
    expect_done(resumed.output());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    let last = sandbox.observations().pop().unwrap();
    assert!(last.contains("No such file"), "{last}");
    assert_eq!(sandbox.events("ENGINE_START").len(), 2);
    assert!(!sandbox.path("outside").exists());
}

#[test]
fn c_22_4_a_tool_in_a_sandbox_dies_with_its_engine() {
    let script = "echo $PPID > pid; sleep 1000 & echo $! > child; wait";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    let mut run = sandbox.run_command("go", &[]);
    let mut engine = Running::start(run.command());
    let [child, pid] = ["child", "pid"].map(|name| until_line(&sandbox.path("work").join(name)));
    engine.kill().unwrap();
    engine.wait().unwrap();
    until("the end of the tool", || (!is_alive(pid.parse().unwrap())).then_some(()));
    // What it had started is found by its mark.
    sandbox.delta(["continue", "r", "-w", "work"]).output().expect_code(0);
    until("the end of its child", || (!is_alive(child.parse().unwrap())).then_some(()));
}

#[test]
fn c_22_4_tools_that_are_repeated_have_their_sandbox() {
    let script = "echo a > in; echo b > ../outside; cat in";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    expect_done(sandbox.run("go", &[]));
    let replay = ["replay", "--mode", "tools", "r", "-w", "work", "--into", "again"];
    sandbox.delta(replay).output().expect_code(0);
    assert_eq!(sandbox.read("again/in"), "a\n");
    assert!(!sandbox.path("outside").exists());
}

/// A machine whose operator has written /etc/delta/sandbox.yaml, which only this test sees.
fn with_policy(policy: &str, mode: u32, calls: &[(&str, &str)]) -> Option<Sandbox> {
    let sandbox = agent("sandbox: workspace", calls)?;
    sandbox.write("policy/sandbox.yaml", policy);
    let launcher = format!(
        "unshare {} sh -c 'd=$(mktemp -d) && cp -r /etc/. $d 2> /dev/null; mkdir -p $d/delta && \
         cp {}/sandbox.yaml $d/delta && chmod {mode:o} $d/delta/sandbox.yaml && \
         mount --bind $d /etc && exec \"$0\" \"$@\"'",
        if geteuid().is_root() { "-m" } else { "-Urm" },
        sandbox.path("policy").display()
    );
    let sandbox = sandbox.started_by(&launcher);
    if sandbox.delta(["--version"]).output().code != 0 {
        needs::skip("needs to mount a directory");
        return None;
    }
    Some(sandbox)
}

#[test]
fn c_22_4_the_policy_of_the_machine_limits_everybody() {
    let calls = [("free", "touch in; cat ~/.ssh/id"), ("sh", "touch in")];
    let policy = "write: []\nrequire: [files, secrets]\n";
    let Some(sandbox) = with_policy(policy, 0o644, &calls) else { return };
    sandbox.write("home/.ssh/id", "the key");
    expect_done(sandbox.run("go", &[]));
    assert!(!sandbox.path("work/in").exists());
    assert!(!sandbox.observations()[0].contains("the key"));
    let source = &sandbox.events("ENGINE_START")[0]["config"]["sandbox"]["policy"][0];
    assert_eq!(source["file"], "/etc/delta/sandbox.yaml");
    assert_eq!(source["sha256"].as_str().unwrap().len(), 64);
    let refused = sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "go"]);
    let refused = refused.args(["--sandbox-without", "files"]).output().expect_code(126);
    assert!(refused.stderr.contains("requires it"), "{}", refused.stderr);
    // Another option only takes away more.
    let wider =
        sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "go", "--run-id", "w"]);
    wider.args(["--sandbox", "workspace"]).output().expect_code(0);
    assert!(!sandbox.path("work/in").exists());
}

#[test]
fn c_22_4_a_policy_that_others_can_write_is_refused() {
    let Some(sandbox) = with_policy("write: []\n", 0o666, &[("sh", "touch in")]) else { return };
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("that no other user can write"), "{}", ran.stderr);
    assert!(!sandbox.path("work/.delta").exists());
}

#[test]
fn c_22_4_sessions_of_one_agent_have_one_sandbox() {
    let Some(sandbox) = agent("sandbox: workspace", &[]) else { return };
    let yaml = sandbox.read("agent/agent.yaml");
    let tools = "  - {name: open, exec: delta-sessions-pty start bash, sandbox: reader}\n  - {name: type, exec: 'delta-sessions pty write ${id}'}\n";
    sandbox.write("agent/agent.yaml", yaml + tools);
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("with different sandboxes"), "{}", ran.stderr);
    assert!(sandbox.delta(["lint", "agent"]).output().code != 0, "{DELTA}");
}
