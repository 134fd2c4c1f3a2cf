//! One budget over a tree of processes (C-12.9): whoever is below a limited run draws on what that run has left.

use super::DELTA;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use test_support::running::send_signal;
use test_support::sandbox::{CONTEXT, Delta, Ran, Sandbox};
use test_support::server::{Answer, Gate, ScriptedServer};
use test_support::wait::until;

/// A tool that runs what it is given in a shell.
const SHELL: &str = "tools:\n  - name: sh\n    shell: eval \"$SCRIPT\"\n    timeout_ms: 30000\n    env: {SCRIPT: '. ${AGENT_HOME}/script.sh'}\n";

/// An agent in `name/` with lines of agent.yaml after its name; the script of its tool, if it has one.
fn agent(sandbox: &Sandbox, name: &str, yaml: &str, script: &str) {
    sandbox.write(&format!("{name}/agent.yaml"), format!("name: {name}\n{yaml}"));
    sandbox.write(&format!("{name}/system_prompt.md"), "You are a test.\n");
    sandbox.write(&format!("{name}/context.yaml"), CONTEXT);
    sandbox.write(&format!("{name}/script.sh"), script);
}

/// The same whose LLM is a script.
fn scripted(sandbox: &Sandbox, name: &str, turns: &str, script: &str) {
    let llm = "llm: {provider: script, model: turns.yaml, max_tokens: 40}\n";
    agent(sandbox, name, &format!("{llm}{SHELL}"), script);
    sandbox.write(&format!("{name}/turns.yaml"), format!("turns:\n{turns}"));
}

const CALL: &str = "  - call: [{tool: sh}]\n  - say: done\n";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    sandbox
}

/// `delta run` of an agent as the run `root` in `work/`, with delta on the PATH.
fn root(sandbox: &Sandbox, agent: &str, more: &[&str]) -> Delta {
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    let fixed =
        ["run", "--agent", agent, "-w", "work", "--run-id", "root", "-m", "go", "--format", "json"];
    sandbox.delta(fixed.iter().chain(more).copied()).env("PATH", path)
}

fn ledger(sandbox: &Sandbox) -> Vec<Value> {
    let text = sandbox.read("work/.delta/root/budget.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What is used in the end; at no line more may be used and reserved than `limit`.
fn used(lines: &[Value], limit: u64) -> u64 {
    let (mut open, mut used, mut most) = (BTreeMap::new(), 0, 0);
    for (index, line) in lines.iter().enumerate() {
        let tokens = line["tokens"].as_u64().unwrap_or_default();
        match line["type"].as_str().unwrap() {
            "reserve" => drop(open.insert(index as u64 + 1, tokens)),
            "settle" => {
                open.remove(&line["call"].as_u64().unwrap()).expect("it was reserved");
                used += tokens;
            }
            "release" => drop(open.remove(&line["call"].as_u64().unwrap())),
            _ => {}
        }
        most = most.max(used + open.values().sum::<u64>());
    }
    assert!(most <= limit, "{most} of {limit}");
    assert!(open.is_empty(), "{open:?}");
    used
}

#[test]
fn c_12_9_fifty_runs_of_a_tree_never_exceed_the_budget_together() {
    // One run, five below it, ten below each of those: with too little for all, in different orders.
    for (limit, pace) in [(9_000, 0), (14_000, 3)] {
        let sandbox = sandbox();
        let fan = |agent: &str, count: u32| {
            format!(
                "for i in $(seq {count}); do delta run --agent $AGENT_HOME/../{agent} -w . --run-id $DELTA_RUN_ID.$i -q --format json -m go > $DELTA_RUN_ID.$i.json 2>/dev/null & done; wait; echo all\n"
            )
        };
        scripted(&sandbox, "top", CALL, &fan("middle", 5));
        // All five are there before the first of the fifty takes what they need to begin.
        let meet = "echo here >> met; until [ \"$(wc -l < met)\" = 5 ]; do sleep 0.01; done\n";
        scripted(&sandbox, "middle", CALL, &format!("{meet}{}", fan("leaf", 10)));
        let delays: String = (0..3)
            .map(|turn| format!("  - {{call: [{{tool: sh}}], delay_ms: {}}}\n", pace * (turn + 1)))
            .collect();
        scripted(&sandbox, "leaf", &format!("{delays}  - say: done\n"), "echo leaf\n");
        root(&sandbox, "top", &["--max-tokens", &limit.to_string()]).output();
        let lines = ledger(&sandbox);
        let used = used(&lines, limit);
        let names = sandbox
            .files("work")
            .into_iter()
            .filter(|name| name.ends_with(".json") && !name.contains('/'));
        let results: Vec<Value> = names
            .map(|name| serde_json::from_str(&sandbox.read(&format!("work/{name}"))).unwrap())
            .collect();
        // A middle one that is refused its own call starts none below it.
        assert!((5..=55).contains(&results.len()), "{results:?}");
        let of = |kind: &str| results.iter().filter(|it| it["error"]["type"] == kind).count();
        let done = results.iter().filter(|it| it["status"] == "COMPLETED").count();
        assert_eq!(of("limit") + done, results.len(), "{results:?}");
        assert!(of("limit") > 0, "{limit} tokens are not enough for all");
        assert!(used * 10 > limit * 7, "{used} of {limit}: what was free was used");
        let refused = results.iter().find(|it| it["error"]["type"] == "limit").unwrap();
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("the limit of {limit} tokens of run root does not allow")),
            "{message}"
        );
        let details = refused["error"]["details"].as_str().unwrap();
        let begin = "continue run root with `-m` and `--max-tokens ";
        assert!(details.starts_with(begin), "{details}");
    }
}

/// A tool whose sandbox has `runs: true` can write to the ledger, as one without a sandbox: the run went by what it wrote.
#[test]
fn c_12_8_the_calls_of_a_run_obey_its_own_limits_whatever_the_ledger_says() {
    let raise = r#"sed 's/"max_tokens":3000/"max_tokens":900000/' $DELTA_BUDGET | head -n 1 >>$DELTA_BUDGET"#;
    let forget = r#"head -n 1 $DELTA_BUDGET >copy; cat copy >$DELTA_BUDGET"#;
    for script in [raise, forget] {
        let answers = vec![
            Answer::call("sh", json!({})).usage(2600, 20),
            Answer::text("not asked").usage(2700, 10),
        ];
        let server = ScriptedServer::start(answers);
        let sandbox = sandbox();
        let llm = format!("llm: {{model: m, base_url: '{}', max_tokens: 40}}\n", server.url());
        agent(&sandbox, "writer", &format!("{llm}{SHELL}"), script);
        let ran = root(&sandbox, "writer", &["--max-tokens", "3000"]).output().expect_code(1);
        let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
        let expected = "the limit of 3000 tokens does not allow another call: 2620 are used";
        assert!(message.starts_with(expected), "{script}: {message}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn c_12_9_a_killed_run_pays_for_its_request_and_gives_back_the_rest() {
    let gate = Gate::new();
    let server = ScriptedServer::start(vec![Answer::text("too late").after(&gate)]);
    let sandbox = sandbox();
    let llm = format!("llm: {{model: m, base_url: '{}', max_tokens: 5000}}\n", server.url());
    agent(&sandbox, "slow", &llm, "");
    scripted(&sandbox, "leaf", "  - say: leaf\n", "");
    // The slow one has reserved nearly all of it; the other one waits until that one is dead.
    let script = "run() { exec delta run --agent $AGENT_HOME/../$1 -w . --run-id $1 --format raw -m go; }\n\
        (run slow) & slow=$!\n\
        until [ \"$(grep -c reserve $DELTA_BUDGET)\" = 2 ]; do sleep 0.01; done\n\
        (run leaf) 2> waits & leaf=$!\n\
        until grep -q 'waiting for budget' waits; do sleep 0.01; done\n\
        kill -KILL $slow; wait $leaf\n";
    scripted(&sandbox, "top", CALL, script);
    let ran = root(&sandbox, "top", &["--max-tokens", "6500"]).output().expect_code(0);
    assert_eq!(ran.json()["result"], "done");
    let lines = ledger(&sandbox);
    let settled = lines.iter().find(|line| line["type"] == "settle" && line["call"] == 4).unwrap();
    let input = server.requests()[0].bytes.len().div_ceil(4);
    assert_eq!((&settled["run_id"], &settled["tokens"]), (&json!("slow"), &json!(input)));
    assert!(used(&lines, 6500) < 1500);
    gate.open();
}

/// What failed attempts used is settled at once, so it must not count again when the process dies in a later one.
#[test]
fn c_12_9_a_run_that_is_killed_in_a_retry_pays_for_each_attempt_once() {
    let usage = json!({"prompt_tokens": 400, "completion_tokens": 50});
    let piece = json!({"choices": [{"index": 0, "delta": {"content": "half"}}], "usage": usage});
    let error = json!({"error": {"message": "it broke", "code": 500}});
    let gate = Gate::new();
    let server = ScriptedServer::start(vec![
        Answer::event_stream(format!("data: {piece}\n\ndata: {error}\n\n")),
        Answer::text("too late").after(&gate),
    ]);
    let sandbox = sandbox();
    let llm = format!("llm: {{model: m, base_url: '{}', max_tokens: 5000}}\n", server.url());
    agent(&sandbox, "slow", &llm, "");
    scripted(&sandbox, "leaf", "  - say: leaf\n", "");
    // The other one needs what the dead one had reserved.
    let script = "run() { exec delta run --agent $AGENT_HOME/../$1 -w . --run-id $1 --format raw -m go; }\n\
        (run slow) & slow=$!\n\
        until grep -q '\"sent\"' .delta/slow/io/invocations/*.open; do sleep 0.01; done 2>/dev/null\n\
        kill -KILL $slow; wait $slow; run leaf\n";
    scripted(&sandbox, "top", CALL, script);
    let ran = root(&sandbox, "top", &["--max-tokens", "7000"]).output().expect_code(0);
    assert_eq!(ran.json()["result"], "done");
    let lines = ledger(&sandbox);
    let settled: Vec<&Value> =
        lines.iter().filter(|line| line["type"] == "settle" && line["run_id"] == "slow").collect();
    let input = server.requests()[0].bytes.len().div_ceil(4);
    assert_eq!(
        settled.iter().map(|line| &line["tokens"]).collect::<Vec<_>>(),
        [&json!(450), &json!(input)]
    );
    assert!(used(&lines, 7000) < 2500);
    gate.open();
}

#[test]
fn c_12_9_tools_hooks_and_generators_inherit_the_budget() {
    let sandbox = sandbox();
    scripted(&sandbox, "top", CALL, "echo \"tool ${DELTA_BUDGET-none}\" >> told\n");
    let told = |name: &str| format!("#!/bin/sh\necho \"{name} ${{DELTA_BUDGET-none}}\" >> told\n");
    sandbox.write_program("top/hook", &told("hook"));
    sandbox.write_program(
        "top/generator",
        &format!("{}date +%N > \"$RUN_DIR/made\"\n", told("generator")),
    );
    sandbox.write("top/hooks.yaml", "on_run_end: {command: ['${AGENT_HOME}/hook']}\n");
    let source = "  - type: computed_file\n    generator: {command: ['${AGENT_HOME}/generator']}\n    output_path: '${RUN_DIR}/made'\n";
    sandbox.write("top/context.yaml", format!("{CONTEXT}{source}"));
    // No file says what the budget is: that of the workspace is the agent's own.
    sandbox.write("work/.env", "DELTA_BUDGET=/nowhere\n");
    let names = ["generator", "tool", "generator", "hook"];
    let run = root(&sandbox, "top", &["--max-tokens", "100000"]).env("DELTA_TRUST", "work");
    let ran = run.output().expect_code(0);
    let note = "Note: delta ignores DELTA_BUDGET in";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert!(!ran.stderr.contains("DELTA_BUDGET is from"), "{}", ran.stderr);
    let path = sandbox.path("work/.delta/root/budget.jsonl");
    assert_eq!(
        sandbox.read("work/told"),
        names.map(|name| format!("{name} {}\n", path.display())).concat()
    );
    sandbox.write("work/told", "");
    let more = ["--run-id", "free", "-m", "go", "-w", "work", "--agent", "top"];
    sandbox.delta(["run"].iter().chain(&more).copied()).output().expect_code(0);
    assert_eq!(sandbox.read("work/told"), names.map(|name| format!("{name} none\n")).concat());
}

#[test]
fn c_12_9_a_run_below_has_its_own_limits_besides() {
    let sandbox = sandbox();
    scripted(&sandbox, "leaf", CALL, "");
    let inner = |limits: &str| {
        format!(
            "delta run --agent $AGENT_HOME/../leaf -w . --run-id leaf -q --format json -m go {limits} > leaf.json; echo over\n"
        )
    };
    let ask = |flag: &str, of_root: &str| {
        let sandbox = &sandbox;
        let _ = std::fs::remove_dir_all(sandbox.path("work"));
        scripted(sandbox, "top", CALL, &inner(flag));
        root(sandbox, "top", &of_root.split(' ').collect::<Vec<_>>()).output().expect_code(0);
        let result: Value = serde_json::from_str(&sandbox.read("work/leaf.json")).unwrap();
        result["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let message = ask("--max-tokens 100", "--max-tokens 100000");
    assert!(message.starts_with("the limit of 100 tokens does not allow"), "{message}");
    assert_eq!(ask("--max-tokens 50000", "--max-tokens 100000"), "");
    let of: Vec<Value> = ledger(&sandbox).iter().map(|line| line["run_id"].clone()).collect();
    assert_eq!(of.iter().filter(|run| *run == "leaf").count(), 4, "two calls");
    // A limited cost asks for a price at every place of the tree; the script has one, the endpoint has none.
    agent(&sandbox, "leaf", "llm: {model: m, base_url: 'http://localhost:1'}\n", "");
    let message = ask("", "--max-cost 1");
    assert_eq!(message, "the cost limit of the parent run root requires the price of m");
}

#[test]
fn c_12_9_the_time_of_a_run_is_that_of_those_below_it() {
    let sandbox = sandbox();
    scripted(&sandbox, "leaf", CALL, "exec sleep 600\n");
    scripted(&sandbox, "top", CALL, "printf %s \"$DELTA_BUDGET\" > budget; exec sleep 600\n");
    let top = root(&sandbox, "top", &["--max-duration", "2s"]).spawn();
    let budget = until("the tool has a budget", || {
        std::fs::read_to_string(sandbox.path("work/budget")).ok().filter(|path| !path.is_empty())
    });
    // Not a process of the call, which is ended at the same moment.
    let leaf = ["run", "--agent", "leaf", "-w", "work", "-q", "--format", "json", "-m", "go"];
    let inner = sandbox.delta(leaf).env("DELTA_BUDGET", budget).output().expect_code(1);
    let output = top.wait_with_output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(1);
    assert_eq!(ran.json()["error"]["message"], "the time limit of 2.0s has expired");
    let error = json!({"type": "limit", "message": "the time limit of 2.0s of run root has expired", "details": "continue run root with `-m` and a higher `--max-duration`"});
    assert_eq!(inner.json()["error"], error);
}

#[test]
fn c_12_9_a_budget_that_is_of_no_use_is_refused_at_the_start() {
    let sandbox = sandbox();
    scripted(&sandbox, "leaf", CALL, "");
    let refused = |budget: &str, why: &str| {
        let ran = root(&sandbox, "leaf", &[]).env("DELTA_BUDGET", budget).output();
        let error = &ran.expect_code(126).json()["error"];
        assert_eq!((&error["type"], &error["message"]), (&json!("config"), &json!(why)));
        assert!(error["details"].as_str().unwrap().starts_with("DELTA_BUDGET names the budget"));
        assert!(!sandbox.path("work").exists());
    };
    let path = sandbox.path("b.jsonl").display().to_string();
    refused("b.jsonl", "b.jsonl is not an absolute path");
    refused(
        &path,
        &format!("could not read the budget {path}: No such file or directory (os error 2)"),
    );
    refused("/dev/zero", "could not read the budget /dev/zero: it is not a regular file");
    sandbox.write("b.jsonl", "");
    refused(
        &path,
        &format!("the budget {path} is damaged at line 1: expected limits in the first line"),
    );
    sandbox.write(
        "b.jsonl",
        format!("{{\"type\":\"limits\",\"run_id\":\"x\",\"limits\":{{}},\"above\":\"{path}\"}}\n"),
    );
    refused(&path, &format!("the budget {path} refers to itself"));
}

#[test]
fn c_12_9_a_call_waits_for_others_that_hold_back_what_it_needs() {
    let sandbox = sandbox();
    scripted(&sandbox, "leaf", "  - say: done\n", "");
    // A call that never ends: its process is on another host.
    let process = json!({"pid": 1, "hostname": "elsewhere.invalid", "start_time_unix": 0, "process_name": "delta"});
    let mut call = json!({"type": "reserve", "run_id": "far", "tokens": 9900, "cost_usd": 0.0});
    call.as_object_mut().unwrap().extend(process.as_object().unwrap().clone());
    let head = json!({"type": "limits", "run_id": "top", "limits": {"max_tokens": 10_000}});
    sandbox.write("b.jsonl", format!("{head}\n{call}\n"));
    let drawing = |more: &[&str]| {
        let _ = std::fs::remove_dir_all(sandbox.path("work"));
        root(&sandbox, "leaf", more).env("DELTA_BUDGET", sandbox.path("b.jsonl"))
    };
    let log = || std::fs::read_to_string(sandbox.path("work/.delta/root/engine.log")).ok();
    let child = drawing(&[]).spawn();
    until("it waits", || {
        log()?.contains("waiting for budget reserved by other calls").then_some(())
    });
    assert!(send_signal("TERM", child.id()));
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        Ran::of(output.status, &output.stdout, &output.stderr).expect_code(130).json()["status"],
        "INTERRUPTED"
    );
    // Its own time ends the wait too; inside the call of an LLM nobody waits.
    let ran = drawing(&["--max-duration", "300ms"]).output().expect_code(1);
    assert_eq!(ran.json()["error"]["message"], "the time limit of 300ms has expired");
    let ran = drawing(&[]).env("DELTA_LLM", "1").output().expect_code(1);
    let message = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    let begin = "the limit of 10000 tokens of run top does not allow another call: 0 are used, 9900 are reserved for other calls, 100 are left, and";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(sandbox.read("b.jsonl"), format!("{head}\n{call}\n"), "nobody wrote into it");
}

#[test]
fn c_7_9_the_usage_of_a_script_counts_like_that_of_an_endpoint() {
    let usage = "usage: {input_tokens: 2k, cached_input_tokens: 1000, output_tokens: 100}";
    let turns = format!(
        "- {{call: [{{tool: t}}], {usage}}}\n- {{call: [{{tool: t}}], {usage}}}\n- say: done\n"
    );
    let sandbox = Sandbox::scripted(DELTA, "  - {name: t, exec: 'true'}\n", &turns);
    let agent = sandbox.read("agent/agent.yaml");
    let priced = "provider: script\n  max_tokens: 100\n  pricing: {input: 1000, cached_input: 100, output: 10000}";
    sandbox.write("agent/agent.yaml", agent.replace("provider: script", priced));
    let ran = sandbox.run("go", &["--max-tokens", "4k", "--format", "json"]).expect_code(1).json();
    assert_eq!(ran["error"]["type"], "limit");
    let message = ran["error"]["message"].as_str().unwrap();
    assert!(message.contains("4200 are used"), "{message}");
    let used = &ran["metrics"]["usage"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(4000), &json!(200)));
    // Half of the input costs 1000, half of it 100, and the output 10,000 USD per million.
    assert_eq!(used["total_cost_usd"], 4.2);
}
