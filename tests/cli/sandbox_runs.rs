//! Runs that a tool in a sandbox starts: they register with the runs around them, share their budget, and change no journal
//! but their own.

use super::DELTA;
use super::seals::{public_key, verify_by_python};
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::wait::until_line;

/// Agents inside each other, each of which starts the next one; the innermost one runs the script. `keys` are of the sandbox
/// of all of them.
fn nested_agents(depth: usize, keys: &str, script: &str) -> Sandbox {
    let sandbox = Sandbox::not_in_memory(DELTA);
    let system_prompt = sandbox.read("agent/system_prompt.md");
    let context = sandbox.read("agent/context.yaml");
    let mut home = "agent".to_owned();
    for level in 0..depth {
        let next = level + 1;
        let tools = format!(
            "  - {{name: sh, shell: 'sh -c ${{script}}'}}\n  - name: inner\n    exec: '{DELTA} run --agent ${{AGENT_HOME}}/inner \
             -w . --run-id r{next} -q --format raw -m go'\n"
        );
        let yaml = format!(
            "name: level{level}\nllm: {{provider: script, model: script.yaml}}\nsandbox: {{{keys}}}\ntools:\n{tools}"
        );
        let call = if next == depth {
            json!({"tool": "sh", "args": {"script": script}})
        } else {
            json!({"tool": "inner", "args": {}})
        };
        let finish = json!({"tool": "finish", "args": {"result": "${last}"}});
        let turns = json!({"turns": [{"call": [call]}, {"call": [finish]}]});
        sandbox.write(&format!("{home}/agent.yaml"), yaml);
        sandbox.write(&format!("{home}/script.yaml"), turns.to_string());
        sandbox.write(&format!("{home}/system_prompt.md"), &system_prompt);
        sandbox.write(&format!("{home}/context.yaml"), &context);
        home.push_str("/inner");
    }
    sandbox
}

fn run_outermost(sandbox: &Sandbox, more: &[&str]) -> String {
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r0", "-q", "--format", "raw"];
    sandbox.delta(run.iter().chain(&["-m", "go"]).chain(more).copied()).output().stdout
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether the outermost run had namespaces.
fn has_namespaces(sandbox: &Sandbox) -> bool {
    let journal = sandbox.read("work/.delta/r0/journal.jsonl");
    let has = journal.contains("\"by\":\"namespaces\"");
    if !has {
        needs::skip("needs namespaces");
    }
    has
}

#[test]
fn c_22_4_runs_four_levels_deep_share_budget_and_parents() {
    let script = "echo x >> .delta/r0/journal.jsonl; rm -r .delta/r0; mv .delta old; echo made > made; \
                  echo out > ../outside; cat ~/.ssh/id; echo end";
    let sandbox = nested_agents(4, "runs: true", script);
    sandbox.write("home/.ssh/id", "the key");
    let result =
        run_outermost(&sandbox, &["--max-tokens", "100000", "--sandbox-without", "sockets"]);
    if !has_namespaces(&sandbox) {
        return;
    }
    assert!(result.starts_with("end\n") && !result.contains("the key"), "{result}");
    assert_eq!(sandbox.read("work/made"), "made\n");
    assert!(!sandbox.path("outside").exists());
    for level in 0..3 {
        let children = lines(&sandbox.read(&format!("work/.delta/r{level}/children.jsonl")));
        assert_eq!(children.len(), 1);
        assert_eq!(children[0]["run_id"], format!("r{}", level + 1));
    }
    let ledger = lines(&sandbox.read("work/.delta/r0/budget.jsonl"));
    for run in ["r0", "r1", "r2", "r3"] {
        let reserved =
            ledger.iter().filter(|entry| entry["type"] == "reserve" && entry["run_id"] == run);
        assert_eq!(reserved.count(), 2, "{run}: {ledger:?}");
    }
    let last = sandbox.read("work/.delta/r3/journal.jsonl");
    let start: Value = serde_json::from_str(last.lines().next().unwrap()).unwrap();
    assert_eq!(start["parent"]["run_id"], "r2");
    // Each has the seals of the key that the run around it gave its sandbox.
    let verify = |run: &str| sandbox.delta(["verify", run, "-w", "work"]).output();
    for (level, outer) in [(1, "r0"), (2, "r1"), (3, "r2")] {
        let ran = verify(&format!("r{level}")).expect_code(0);
        let note = format!(", by the key that run {outer} gave its sandbox\n");
        assert!(ran.stdout.contains(&note), "{}", ran.stdout);
    }
    let all = verify("r0").expect_code(0).stdout;
    assert_eq!(all.matches("gave its sandbox\n").count(), 3, "{all}");
    sandbox.unverified("an inner run is forged");
    let forged = last.replace("\"llm\":{", "\"llm\":{\"settings\":[\"temperature=0\"],");
    sandbox.write("work/.delta/r3/journal.jsonl", forged);
    verify("r3").expect_code(3);
}

#[test]
fn c_36_1_others_verify_inner_runs_with_the_public_key_of_the_outermost_one() {
    let sandbox = nested_agents(3, "runs: true", "echo end");
    run_outermost(&sandbox, &["--sandbox-without", "sockets"]);
    if !has_namespaces(&sandbox) {
        return;
    }
    let key = public_key(sandbox.delta(["config", "--format", "json"]));
    assert_eq!(verify_by_python(&sandbox.path("work/.delta/r0"), &[&key]), Ok("6\n".to_owned()));
    for run in ["r0", "r2"] {
        let verify = sandbox.delta(["verify", run, "-w", "work", "--by", &key]);
        verify.env("HOME", sandbox.path("nobody")).output().expect_code(0);
    }
}

#[test]
fn c_22_4_an_inner_run_gets_no_more_than_the_tool_that_starts_it() {
    let script = "echo out > sub/refused || echo kept; echo out > made";
    let sandbox = nested_agents(2, "runs: true", script);
    let yaml = sandbox.read("agent/agent.yaml");
    // The outer tool writes one directory, the inner agent would write the whole workspace.
    let outer = "sandbox: {runs: true, write: [data]}";
    sandbox.write("agent/agent.yaml", yaml.replace("sandbox: {runs: true}", outer));
    std::fs::create_dir_all(sandbox.path("work/data")).unwrap();
    std::fs::create_dir_all(sandbox.path("work/sub")).unwrap();
    let result = run_outermost(&sandbox, &["--sandbox-without", "sockets"]);
    if !has_namespaces(&sandbox) {
        return;
    }
    assert!(result.starts_with("kept\n"), "{result}");
    assert!(!sandbox.path("work/made").exists() && !sandbox.path("work/sub/refused").exists());
    assert!(sandbox.path("work/.delta/r1/journal.jsonl").exists());
}

#[test]
fn c_22_4_a_tool_without_runs_starts_none() {
    let sandbox = nested_agents(2, "runs: false", "echo started > started");
    let result = run_outermost(&sandbox, &["--sandbox-without", "sockets"]);
    if !has_namespaces(&sandbox) {
        return;
    }
    assert!(result.contains("Read-only file system"), "{result}");
    // The author read only that a file system is read-only.
    assert!(
        result.contains("help: a tool in a sandbox starts runs only with `runs: true`"),
        "{result}"
    );
    assert!(!sandbox.path("work/started").exists() && !sandbox.path("work/.delta/r1").exists());
}

/// A tool that starts a run with an id of its own, and waits in it for a file. Killed with its engine, both continue.
#[test]
fn c_22_4_an_inner_run_continues_when_its_engine_and_the_one_around_it_were_killed() {
    let wait = "echo x >> begun; until [ -e go ]; do sleep 0.02; done; echo end";
    let sandbox = nested_agents(2, "runs: true", wait);
    let yaml = sandbox.read("agent/agent.yaml");
    let yaml = yaml.replace("--run-id r1", "--ensure --run-id r1");
    sandbox.write("agent/agent.yaml", yaml.replace("-m go'", "-m go'\n    idempotent: true"));
    let inner = sandbox.read("agent/inner/agent.yaml");
    let inner = inner.replace("-c ${script}'", "-c ${script}', idempotent: true");
    sandbox.write("agent/inner/agent.yaml", inner);
    let waive = ["--sandbox-without", "sockets"];
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r0", "-q", "-m", "go"];
    let mut engine = sandbox.delta(run).args(waive).spawn();
    until_line(&sandbox.path("work/begun"));
    engine.kill().unwrap();
    engine.wait().unwrap();
    sandbox.write("work/go", "");
    let more = ["continue", "r0", "-w", "work", "-q", "--format", "raw"];
    let ran = sandbox.delta(more).args(waive).output().expect_code(0);
    assert_eq!(ran.stdout, "end\n", "{}", ran.stderr);
    let journal = sandbox.read("work/.delta/r1/journal.jsonl");
    assert_eq!(journal.matches("\"type\":\"ENGINE_START\"").count(), 2, "{journal}");
    // Outside, its seal is worth nothing: every tool in the sandbox could have made it.
    let outside = sandbox.delta(["continue", "r1", "-w", "work", "-m", "more"]).output();
    assert!(outside.expect_code(126).stderr.contains("run r1 is foreign"));
}
