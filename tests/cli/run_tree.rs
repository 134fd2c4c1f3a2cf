//! What a run with the runs below it amounts to: totals in its result, and its trajectory.

use super::DELTA;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

/// An agent whose tool starts the agent `inner`, whose tool starts the agent `leaf`.
pub fn sandbox(server: &ScriptedServer) -> Sandbox {
    let start = |agent: &str| {
        format!(
            "  - name: ask\n    exec: \"delta run --agent {agent} -w ${{CWD}} -q --run-id {agent}-${{id}} -m go\"\n    parameters: [{{name: id, required: false, default: x}}]\n"
        )
    };
    let sandbox = Sandbox::asking(DELTA, &server.url(), &start("inner"));
    for (agent, tools) in [("inner", start("leaf")), ("leaf", String::new())] {
        let tools =
            if tools.is_empty() { "tools: []\n".to_owned() } else { format!("tools:\n{tools}") };
        let llm = format!("llm:\n  model: test-model\n  base_url: {}\n", server.url());
        sandbox.write(&format!("work/{agent}/agent.yaml"), format!("name: {agent}\n{llm}{tools}"));
        for file in ["system_prompt.md", "context.yaml"] {
            let text = sandbox.read(&format!("agent/{file}"));
            sandbox.write(&format!("work/{agent}/{file}"), text);
        }
    }
    std::fs::create_dir(sandbox.path("bin")).unwrap();
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    sandbox
}

pub fn with_path(sandbox: &Sandbox, command: Delta) -> Ran {
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).output()
}

#[test]
fn c_28_7_a_result_has_the_totals_of_the_runs_below() {
    let server = ScriptedServer::start(vec![
        Answer::call("ask", json!({})).usage(100, 1),
        Answer::call("ask", json!({})).usage(200, 2),
        Answer::text("leaf").usage(400, 4),
        Answer::text("inner").usage(800, 8),
        Answer::text("outer").usage(1600, 16),
    ]);
    let sandbox = sandbox(&server);
    let command = sandbox.run_command("go", &["--format", "json"]);
    let result = with_path(&sandbox, command).expect_code(0).json();
    assert_eq!(result["result"], "outer");
    assert_eq!(result["metrics"]["usage"]["input_tokens"], 1700);
    let tree = json!({
        "runs": 3,
        "iterations": 5,
        "usage": {"total_cost_usd": null, "input_tokens": 3100, "cached_input_tokens": 0, "output_tokens": 31}
    });
    assert_eq!(result["metrics"]["tree"], tree);
    let show = |id: &str| {
        let shown = sandbox.delta(["show", id, "-w", "work", "--format", "json"]).output();
        shown.expect_code(0).json()["metrics"]["tree"].clone()
    };
    assert_eq!(show("r"), tree);
    assert_eq!(show("inner-x")["runs"], 2);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    let children = "it started run inner-x: COMPLETED\nall 3 runs together: 5 iterations, 3100 tokens in, 31 out\n";
    assert!(shown.contains(children), "{shown}");
    assert_eq!(show("leaf-x"), Value::Null);
}

#[test]
fn c_28_7_a_trajectory_embeds_the_runs_below() {
    let server = ScriptedServer::start(vec![
        Answer::calls(vec![("ask", json!({"id": "one"})), ("ask", json!({"id": "two"}))]),
        Answer::call("ask", json!({})),
        Answer::text("leaf"),
        Answer::text("first"),
        Answer::text("second"),
        Answer::text("outer"),
    ]);
    let sandbox = sandbox(&server);
    let command = sandbox.run_command("go", &[]);
    with_path(&sandbox, command).expect_code(0);
    let exported = sandbox.delta(["export", "r", "-w", "work", "--to", "atif"]).output();
    let trajectory = exported.expect_code(0).json();
    let embedded = &trajectory["subagent_trajectories"];
    let ids = |list: &Value| {
        let ids = list.as_array().into_iter().flatten().map(|one| one["trajectory_id"].clone());
        ids.collect::<Vec<Value>>()
    };
    assert_eq!(ids(embedded), ["inner-one", "inner-two"]);
    assert_eq!(ids(&embedded[0]["subagent_trajectories"]), ["leaf-x"]);
    assert_eq!(embedded[0]["schema_version"], "ATIF-v1.8");
    let steps = trajectory["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| !step["observation"].is_null()).unwrap();
    let results = step["observation"]["results"].as_array().unwrap();
    let references: Vec<Value> =
        results.iter().flat_map(|result| ids(&result["subagent_trajectory_ref"])).collect();
    assert_eq!(references, ["inner-one", "inner-two"]);
}

/// Run `r` in work/ with the children `k1` in work/ and `k2` in work/sub, whose answers cost something.
fn priced_family() -> Sandbox {
    let start = |id, dir| format!("delta run --agent kid -w {dir} -q --run-id {id} -m go");
    let tools =
        format!("  - name: start\n    shell: {}; {}\n", start("k1", "."), start("k2", "sub"));
    let turns = "- {call: [{tool: start, args: {}}]}\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    let llm = "llm: {provider: script, model: script.yaml, pricing: {input: 1, output: 10}}\n";
    sandbox.write("work/kid/agent.yaml", format!("name: kid\n{llm}"));
    let usage = "usage: {input_tokens: 1000, output_tokens: 10}";
    sandbox.write("work/kid/script.yaml", format!("turns: [{{say: x, {usage}}}]\n"));
    for file in ["system_prompt.md", "context.yaml"] {
        let text = sandbox.read(&format!("agent/{file}"));
        sandbox.write(&format!("work/kid/{file}"), text);
    }
    fs::create_dir(sandbox.path("bin")).unwrap();
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    with_path(&sandbox, sandbox.run_command("go", &[])).expect_code(0);
    sandbox
}

/// A copy was verified, exported and counted with the child runs of the original, so that a damaged child was intact.
#[test]
fn c_27_2_a_copied_run_has_the_children_that_were_copied() {
    let sandbox = priced_family();
    sandbox.unverified("a child of the copy is damaged");
    let names = ["work", "copy"].map(|name| sandbox.path(name));
    assert!(Command::new("cp").arg("-a").args(names).status().unwrap().success());
    let verify = |id: &str, dir: &str| sandbox.delta(["verify", id, "-w", dir]).output();
    let intact = verify("r", "copy").expect_code(0).stdout;
    assert!(intact.contains("  children:      2 with the heads that results name\n"), "{intact}");
    for (id, dir) in [("k1", "copy"), ("k2", "copy/sub")] {
        let journal = format!("{dir}/.delta/{id}/journal.jsonl");
        let whole = sandbox.read(&journal);
        sandbox.write(&journal, whole.replacen("\"x\"", "\"y\"", 1));
        verify(id, dir).expect_code(3);
        let ran = verify("r", "copy").expect_code(3);
        assert!(ran.stdout.contains(&format!("  run {id} is not intact\n")), "{}", ran.stdout);
        sandbox.write(&journal, whole);
    }
    verify("r", "work").expect_code(0);
    for id in ["copy/.delta/k1", "copy/sub/.delta/k2"] {
        fs::remove_dir_all(sandbox.path(id)).unwrap();
    }
    let show = |dir: &str| sandbox.delta(["show", "r", "-w", dir]).output().expect_code(0).stdout;
    let shown = show("copy");
    assert!(
        shown.contains("it started run k1: not found\nit started run k2: not found\n"),
        "{shown}"
    );
    let exported = sandbox.delta(["export", "r", "-w", "copy", "--to", "atif"]).output();
    assert_eq!(exported.expect_code(0).json()["subagent_trajectories"], Value::Null);
    fs::rename(sandbox.path("work"), sandbox.path("moved")).unwrap();
    let shown = show("moved");
    assert!(
        shown.contains("it started run k1: COMPLETED\nit started run k2: COMPLETED\n"),
        "{shown}"
    );
}

/// A child that was removed or is damaged was left out of the total, which looked complete.
#[test]
fn c_28_7_a_run_that_cannot_be_read_makes_the_cost_of_the_tree_unknown() {
    let sandbox = priced_family();
    sandbox.unverified("its children are damaged and removed");
    let show = |more: &[&str]| {
        let fixed = ["show", "r", "-w", "work"];
        sandbox.delta([&fixed, more].concat()).output().expect_code(0)
    };
    let check = |tree: Value, text: &str| {
        assert_eq!(show(&["--format", "json"]).json()["metrics"]["tree"], tree);
        let shown = show(&[]).stdout;
        assert!(shown.ends_with(&format!("\n{text}\n")), "{shown}");
    };
    let tree = |runs: u32, iterations: u32, cost: Value, input: u32, output: u32| {
        let usage = json!({"total_cost_usd": cost, "input_tokens": input, "cached_input_tokens": 0, "output_tokens": output});
        json!({"runs": runs, "iterations": iterations, "usage": usage})
    };
    let whole = "all 3 runs together: 4 iterations, 2000 tokens in, 20 out, 0.0022 USD";
    check(tree(3, 4, json!(0.0022), 2000, 20), whole);
    let journal = "work/.delta/k1/journal.jsonl";
    let lines = sandbox.read(journal);
    sandbox
        .write(journal, lines.split_inclusive('\n').take(1).collect::<String>() + "garbage\n{}\n");
    let partial = "2 of 3 runs together: 3 iterations, at least 1000 tokens in, 10 out";
    check(tree(2, 3, Value::Null, 1000, 10), partial);
    let list = sandbox.delta(["list-runs", "-w", "work", "--cost"]).output().expect_code(0).stdout;
    let total = "Total of 2 runs: 0 tokens in (0 cached), 0 out; the cost of 2 runs is unknown\n";
    assert!(list.ends_with(total), "{list}");
    for removed in ["work/.delta/k1", "work/sub/.delta/k2"] {
        fs::remove_dir_all(sandbox.path(removed)).unwrap();
    }
    check(tree(1, 2, Value::Null, 0, 0), "1 of 3 runs together: 2 iterations");
    sandbox
        .delta(["fork", "r", "-w", "work", "--at", "1", "--into", "fork"])
        .output()
        .expect_code(0);
    let list = sandbox.delta(["list-runs", "-w", "fork", "--cost"]).output().expect_code(0).stdout;
    assert!(
        list.ends_with("Total of 1 run: 0 tokens in (0 cached), 0 out, 0.0000 USD\n"),
        "{list}"
    );
}

#[test]
fn c_11_1_show_counts_many_child_runs_and_names_those_that_failed() {
    let tools = "  - name: ask\n    exec: \"delta run --agent ${agent} -w ${CWD} -q --run-id ${id} -m go\"\n";
    let call =
        |agent: &str, id: usize| format!("{{tool: ask, args: {{agent: {agent}, id: c{id}}}}}");
    let calls: Vec<String> =
        (0..9).map(|id| call(if id == 4 { "fails" } else { "works" }, id)).collect();
    let turns = format!("- call: [{}]\n- say: done\n", calls.join(", "));
    let sandbox = Sandbox::scripted(DELTA, tools, &turns);
    for (agent, turn) in [("works", "say: x"), ("fails", "error: no")] {
        let llm = "llm: {provider: script, model: script.yaml}\n";
        sandbox.write(&format!("work/{agent}/agent.yaml"), format!("name: {agent}\n{llm}"));
        sandbox.write(&format!("work/{agent}/script.yaml"), format!("turns: [{{{turn}}}]\n"));
        for file in ["system_prompt.md", "context.yaml"] {
            let text = sandbox.read(&format!("agent/{file}"));
            sandbox.write(&format!("work/{agent}/{file}"), text);
        }
    }
    std::fs::create_dir(sandbox.path("bin")).unwrap();
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    with_path(&sandbox, sandbox.run_command("go", &[])).expect_code(0);
    let show = |more: &[&str]| {
        let args = [&["show", "r", "-w", "work"], more].concat();
        sandbox.delta(args).output().expect_code(0).stdout
    };
    let expected = "it started 9 runs: 8 COMPLETED, 1 FAILED\nit started run c4: FAILED\nall 10 runs together: 10 iterations\n";
    let shown = show(&[]);
    assert!(shown.ends_with(expected), "{shown}");
    let whole = show(&["-v"]);
    assert_eq!(whole.matches("\nit started run c").count(), 9, "{whole}");
}
