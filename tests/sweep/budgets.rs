//! A budget that all hosts of a sweep share. A host is a process with a host name of its own.

use super::{DELTA, planned, result_lines, status, sweep, write_sweep};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command};
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until_line;

/// What an answer uses.
const ANSWER: u64 = 110;

/// Runs of two answers and a tool, each answer of 110 tokens.
fn spending_sandbox(tool: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let llm = "provider: script\n  model: script.yaml\n  max_tokens: 10";
    sandbox.agent(llm, &format!("  - {{name: act, shell: '{tool}'}}"));
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    let turns = format!(
        "turns:\n  - {{call: [{{tool: act, args: {{}}}}], {usage}}}\n  - {{say: done, {usage}}}\n"
    );
    sandbox.write("agent/script.yaml", turns);
    sandbox
}

/// The command, as if on a host of this name.
fn on_host(sandbox: &Sandbox, host: &str, args: &[&str]) -> Child {
    let mut plain = sandbox.delta(args.iter().copied());
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--uts", "sh", "-c"]);
    command.arg(format!("hostname {host} && exec \"$0\" \"$@\"")).arg(DELTA).args(args);
    command.current_dir(sandbox.path("")).env_clear();
    for (name, value) in plain.command().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    *plain.command() = command;
    plain.spawn()
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

/// The tokens of all calls, by the journals of the runs.
fn used(sandbox: &Sandbox) -> u64 {
    let answers = planned(sandbox).into_iter().map(|id| {
        let shard = id.rsplit('.').next().unwrap()[..2].to_owned();
        let journal = sandbox.path(&format!("s/runs/{shard}/{id}/.delta/{id}/journal.jsonl"));
        fs::read_to_string(journal).unwrap_or_default().matches("\"THOUGHT\"").count() as u64
    });
    answers.sum::<u64>() * ANSWER
}

/// The grants, with their sum.
fn grants(sandbox: &Sandbox) -> (Vec<Value>, i64) {
    let mut names = sandbox.files("s/budget");
    names.retain(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    names.sort();
    let grants: Vec<Value> = names
        .iter()
        .map(|name| serde_json::from_str(&sandbox.read(&format!("s/budget/{name}"))).unwrap())
        .collect();
    let sum = grants.iter().map(|grant| {
        let tokens = grant["tokens"].as_i64().unwrap();
        if grant["returned"] == true { -tokens } else { tokens }
    });
    let sum = sum.sum();
    (grants, sum)
}

#[test]
fn c_26_8_a_used_budget_interrupts_runs_and_more_of_it_continues_them() {
    let sandbox = spending_sandbox("echo once >> effects");
    write_sweep(&sandbox, 20, 1, "budget: {max_tokens: 3500}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ran = sweep(&sandbox, &["run", "s", "--jobs", "2"]).expect_code(3);
    let spent = used(&sandbox);
    // The figures add up to the budget, and the next call may take more than is left.
    let left = 3500 - spent;
    let begin = format!(
        "the sweep's budget of 3500 tokens does not allow another call: {spent} tokens spent, {left} tokens left, and the next call may take "
    );
    let line = ran.stderr.lines().find(|line| line.starts_with(&begin)).expect(&ran.stderr);
    let amount = line[begin.len()..].strip_suffix(" tokens").unwrap();
    assert!(amount.parse::<u64>().unwrap() > left, "{line}");
    let help = "help: raise `budget` in sweep.yaml, plan the sweep again, and start it again\n";
    assert!(ran.stderr.ends_with(help), "{}", ran.stderr);
    // What is left does not suffice for a call, which could take its request in bytes and an answer.
    assert!(spent <= 3500 && spent > 1000, "{spent}");
    let interrupted: Vec<Value> =
        result_lines(&sandbox).into_iter().filter(|line| line["status"] == "INTERRUPTED").collect();
    assert!(!interrupted.is_empty() && interrupted.len() <= 2, "{interrupted:?}");
    assert!(interrupted.iter().all(|line| line["error"]["type"] == "budget"), "{interrupted:?}");
    let text = interrupted[0]["error"]["message"].as_str().unwrap();
    let begin = "the budget of the sweep, 3500 tokens, does not allow another call: ";
    assert!(text.starts_with(begin), "{text}");
    // All that was not used is given back: the sum of the grants is what was spent.
    assert_eq!(grants(&sandbox).1, i64::try_from(spent).unwrap());
    assert!(grants(&sandbox).0.last().unwrap()["returned"] == true);
    write_sweep(&sandbox, 20, 1, "budget: {max_tokens: 100000}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--jobs", "2"]).expect_code(0);
    assert_eq!(status(&sandbox)["completed"], 20);
    assert_eq!(used(&sandbox), 20 * 2 * ANSWER);
    for id in planned(&sandbox) {
        let shard = id.rsplit('.').next().unwrap()[..2].to_owned();
        let effects = sandbox.read(&format!("s/runs/{shard}/{id}/effects"));
        assert_eq!(effects, "once\n", "a run that was interrupted does no work twice");
    }
}

#[test]
fn c_33_12_hosts_at_work_use_the_budget_of_a_new_plan() {
    // The first run waits until the test lets all of them pass.
    let gate = "cd ../../../..; mkfifo gate 2>/dev/null && echo at > at; read x < gate";
    let sandbox = spending_sandbox(gate);
    write_sweep(&sandbox, 20, 1, "budget: {max_tokens: 3500}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let running = sandbox.delta(["sweep", "run", "s", "--jobs", "1", "-q"]).spawn();
    until_line(&sandbox.path("at"));
    write_sweep(&sandbox, 20, 1, "budget: {max_tokens: 100000}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    assert_eq!(sandbox.read("s/budget/total-2"), "{\"max_tokens\":100000}\n");
    fs::rename(sandbox.path("gate"), sandbox.path("first")).unwrap();
    sandbox.write("gate", "x\n");
    fs::write(sandbox.path("first"), "x\n").unwrap();
    end(running).expect_code(0);
    assert_eq!(used(&sandbox), 20 * 2 * ANSWER);
    // A plan without a budget lifts it, and one that died before it wrote the total is made up for.
    write_sweep(&sandbox, 20, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    fs::remove_file(sandbox.path("s/budget/total-3")).unwrap();
    sweep(&sandbox, &["plan"]).expect_code(0);
    assert_eq!(sandbox.read("s/budget/total-3"), "{}\n");
}

#[test]
fn judges_are_in_the_budget_and_at_the_rate_of_the_sweep() {
    let sandbox = spending_sandbox("true");
    sandbox.write("judge/agent.yaml", "name: judge\nllm: {provider: script, model: script.yaml, max_tokens: 10}\nfinish: {schema: {type: object}}\n");
    sandbox.write("judge/system_prompt.md", "Judge.\n");
    sandbox.write(
        "judge/context.yaml",
        "sources: [{type: file, path: system_prompt.md}, {type: journal}]\n",
    );
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    let turn = format!("turns: [{{call: [{{tool: finish, args: {{score: 1}}}}], {usage}}}]\n");
    sandbox.write("judge/script.yaml", turn);
    let plan = |tokens: u64| {
        let more =
            format!("budget: {{max_tokens: {tokens}}}\ngrade: [{{name: j, agent: judge}}]\n");
        write_sweep(&sandbox, 2, 1, &more);
        sweep(&sandbox, &["plan"]).expect_code(0);
    };
    plan(100_000);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    assert_eq!(grants(&sandbox).1, 4 * 110);
    // Nothing is left for a judge, and that says nothing about the runs.
    plan(450);
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(1).stdout;
    assert!(graded.starts_with("graded 0 runs; 2 ungraded:\n"), "{graded}");
    assert!(graded.contains("the budget of the sweep, 450 tokens, does not allow"), "{graded}");
    plan(100_000);
    let graded = sweep(&sandbox, &["grade", "s", "--retry-ungraded"]).expect_code(0);
    assert_eq!(graded.stdout, "graded 2 runs: j 2 passed\n");
    assert_eq!(grants(&sandbox).1, 6 * 110, "what judges do not use is given back");
}

#[test]
fn c_26_8_three_hosts_keep_one_budget() {
    let sandbox = spending_sandbox("true");
    write_sweep(&sandbox, 60, 1, "budget: {max_tokens: 9000}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let hosts = ["h1", "h2", "h3"]
        .map(|host| on_host(&sandbox, host, &["sweep", "run", "s", "--jobs", "2", "-q"]));
    let codes = hosts.map(|host| end(host).code);
    assert_eq!(codes, [3, 3, 3]);
    let spent = used(&sandbox);
    let (grants, sum) = grants(&sandbox);
    assert!(spent <= 9000 && spent > 3000, "{spent}");
    assert_eq!(sum, i64::try_from(spent).unwrap(), "{grants:?}");
    let mut total = 0;
    for grant in &grants {
        let tokens = grant["tokens"].as_i64().unwrap();
        total += if grant["returned"] == true { -tokens } else { tokens };
        assert!(total <= 9000, "{grants:?}");
    }
}

#[test]
fn c_26_8_what_a_dead_host_holds_is_shown_and_reclaimed() {
    let sandbox = spending_sandbox("echo held > ../../../../held; exec sleep 1000");
    write_sweep(&sandbox, 1, 1, "budget: {max_tokens: 9000}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let mut child = on_host(&sandbox, "h1", &["sweep", "run", "s", "--jobs", "1"]);
    until_line(&sandbox.path("held"));
    let early = sweep(&sandbox, &["gc", "s", "--reclaim", "h1"]).expect_code(126);
    assert!(early.stderr.contains("processes on host `h1` work on the sweep"), "{}", early.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    // As if that was long ago.
    let worker = format!("s/workers/{}", sandbox.files("s/workers")[0]);
    let mut state: Value = serde_json::from_str(&sandbox.read(&worker)).unwrap();
    state["at"] = "2026-01-01T00:00:00.000Z".into();
    sandbox.write(&worker, state.to_string());
    let held = grants(&sandbox).1 - i64::try_from(ANSWER).unwrap();
    let text = sweep(&sandbox, &["status", "s"]).stdout;
    let shown = format!("{held} tokens granted to h1, which is silent");
    assert!(text.contains(&shown), "{text}");
    let unknown = sweep(&sandbox, &["gc", "s", "--reclaim", "h9"]).expect_code(126);
    assert!(unknown.stderr.contains("no host `h9` has a part of the budget"), "{}", unknown.stderr);
    let reclaimed = sweep(&sandbox, &["gc", "s", "--reclaim", "h1"]).expect_code(0).stdout;
    assert!(reclaimed.starts_with(&format!("{held} tokens of h1-")), "{reclaimed}");
    assert_eq!(grants(&sandbox).1, i64::try_from(ANSWER).unwrap());
    // Again: nothing.
    let again = sweep(&sandbox, &["gc", "s", "--reclaim", "h1"]).expect_code(0).stdout;
    assert!(again.starts_with("nothing of h1-"), "{again}");
}
