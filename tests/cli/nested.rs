//! Agents as tools of agents, as `examples/sub-agent` has them: a call is a run, also when the engines die.

use super::DELTA;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};

/// A sandbox with a copy of the example in `main/`, and delta on the PATH.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    // Tools have a /tmp of their own, in which they see the workspace, but not this build.
    sandbox.write("work/bin/.keep", "");
    sandbox.copy_program(DELTA, "work/bin/delta");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/sub-agent");
    let mut copy = Command::new("cp");
    let copied = copy.arg("-r").arg(example).arg(sandbox.path("main")).status().unwrap();
    assert!(copied.success());
    sandbox
}

/// A command with delta on its PATH, for the run `main` in `work/`.
fn outer(sandbox: &Sandbox, command: &[&str]) -> Delta {
    let path = format!("{}:{}", sandbox.path("work/bin").display(), std::env::var("PATH").unwrap());
    let fixed = ["--run-id", "main", "-w", "work", "-q", "--format", "json"];
    sandbox.delta([command, &fixed].concat()).env("PATH", path)
}

/// The ids of the runs in `work/` with their statuses, in the order in which they were made.
fn runs(sandbox: &Sandbox) -> Vec<(String, String)> {
    let listed = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output();
    let Value::Array(mut runs) = listed.expect_code(0).json() else { panic!("no array") };
    runs.sort_by_key(|run| run["created_at"].as_str().unwrap().to_owned());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    runs.iter().map(|run| (text(&run["run_id"]), text(&run["status"]))).collect()
}

#[test]
fn c_13_4_a_run_inside_a_call_goes_on_when_the_engine_around_it_died() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = sandbox();
    // The first time the inner tool kills the outer engine, and hangs.
    let agent = sandbox.read("main/agents/writer/agent.yaml");
    let deadly = "shell: |\n      cat > draft.md; echo ran >> ledger\n      if [ \"$(wc -l < ledger)\" = 1 ]; then kill -KILL \"$(jq .pid .delta/main/metadata.json)\"; exec sleep 600; fi";
    assert!(agent.contains("exec: tee -- draft.md"));
    let agent = agent.replace("exec: tee -- draft.md", deadly);
    // A sandbox keeps a tool from killing an engine.
    sandbox.write("main/agents/writer/agent.yaml", agent.replace("sandbox: workspace", ""));
    let main = sandbox.read("main/agent.yaml").replace("sandbox: runs", "sandbox: off");
    sandbox.write("main/agent.yaml", main);
    let task = ["run", "--agent", "main", "-m", "The journal is the run."];
    assert_eq!(outer(&sandbox, &task).output().code, -1, "it was killed");
    let result = outer(&sandbox, &["continue"]).output().expect_code(0).json();
    let verdict: Value = serde_json::from_str(result["result"].as_str().unwrap()).unwrap();
    assert_eq!(verdict, json!({"verdict": "accept", "reason": "it has 9 words"}));
    let ids = ["main", "main.1.call_1_1", "main.2.call_2_1", "main.3.call_3_1", "main.3.call_3_2"];
    assert_eq!(runs(&sandbox), ids.map(|id| (id.to_owned(), "COMPLETED".to_owned())));
    // The call that had begun was not begun anew: its run went on, and had one task.
    let journal = sandbox.read("work/.delta/main.1.call_1_1/journal.jsonl");
    assert_eq!(journal.matches("\"USER_MESSAGE\"").count(), 1, "{journal}");
    assert_eq!(journal.matches("\"ENGINE_START\"").count(), 2, "{journal}");
    assert_eq!(sandbox.read("work/ledger"), "ran\nran\n", "once for each call of the writer");
}

#[test]
fn c_13_4_two_calls_are_two_runs_whatever_their_ids_and_however_deep() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = sandbox();
    let delegate = |run: &str, call: &str| {
        let path =
            format!("{}:{}", sandbox.path("work/bin").display(), std::env::var("PATH").unwrap());
        let mut tool = Command::new("sh");
        tool.args(["-c", "echo Review it. | \"$AGENT_HOME\"/tools/delegate reviewer"]);
        tool.env("AGENT_HOME", sandbox.path("main")).env("PATH", path).env("ITERATION_COUNT", "1");
        tool.env("DELTA_RUN_ID", run).env("DELTA_CALL_ID", call);
        tool.env("DELTA_STATE_DIR", sandbox.path("state")).current_dir(sandbox.path("work"));
        let ran = tool.output().unwrap();
        assert!(ran.status.success(), "{call}: {}", String::from_utf8_lossy(&ran.stderr));
        runs(&sandbox).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(delegate("main", "functions.x:0").len(), 1);
    assert_eq!(delegate("main", "functions.x/0").len(), 2);
    assert_eq!(delegate("main", "functions.x/0").len(), 2, "the same call is the same run");
    assert_eq!(delegate("main", "a").last().map(String::as_str), Some("main.1.a"));
    let long = "call_0123456789abcdef0123456789";
    let ids = delegate(&format!("main.1.{long}.1.{long}.1.{long}"), long);
    assert!(ids[3].starts_with("main.") && ids[3].len() < 40, "{ids:?}");
}

#[test]
fn c_4_6_a_run_inside_a_call_that_fails_is_an_observation() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = sandbox();
    sandbox.write(
        "main/agents/writer/script.yaml",
        "turns: [{call: [{tool: ask_human, args: {prompt: \"How long?\"}}]}]\n",
    );
    sandbox.write("main/agents/reviewer/script.yaml", "turns: [{error: \"I am ill.\"}]\n");
    let task = ["run", "--agent", "main", "-m", "Go"];
    outer(&sandbox, &task).output().expect_code(0);
    let journal = sandbox.read("work/.delta/main/journal.jsonl");
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seen: Vec<String> = events
        .filter(|event| event["type"] == "ACTION_RESULT")
        .map(|event| event["observation_content"].as_str().unwrap().to_owned())
        .collect();
    assert!(seen[0].starts_with("How long?\n[stderr]\n"), "{}", seen[0]);
    assert!(seen[0].ends_with("[exit code: 101]"), "{}", seen[0]);
    assert_eq!(seen[1], "I am ill.\n[stderr]\nerror: I am ill.\n[exit code: 1]");
}
