//! Runs of a sweep that a person answers, approves or continues: they stay in the budget and at the rate of the sweep.

use super::{DELTA, planned, result_lines, status, sweep, write_sweep};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use test_support::sandbox::{Ran, Sandbox};

/// The tokens of an answer.
const ANSWER: u64 = 110;

/// An agent whose first answer makes `call`, and whose second one ends the run.
fn waiting_sandbox(tools: &str, call: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml\n  max_tokens: 10", tools);
    let turns = format!(
        "turns:\n  - {{call: [{call}], usage: {{input_tokens: 100, output_tokens: 10}}}}\n  - {{say: done, usage: {{input_tokens: 100, output_tokens: 10}}}}\n"
    );
    sandbox.write("agent/script.yaml", turns);
    sandbox
}

const ASK: &str = "{tool: ask_human, args: {prompt: \"Which?\"}}";

/// Plans one run with a budget of so many tokens.
fn plan(sandbox: &Sandbox, tokens: u64) {
    write_sweep(sandbox, 1, 1, &format!("budget: {{max_tokens: {tokens}}}\n"));
    sweep(sandbox, &["plan"]).expect_code(0);
}

/// The workspace of the only run.
fn workspace(sandbox: &Sandbox) -> PathBuf {
    let id = &planned(sandbox)[0];
    let shard = id.rsplit('.').next().unwrap()[..2].to_owned();
    sandbox.path("s/runs").join(shard).join(id)
}

/// How often the LLM has answered in the run.
fn answers(sandbox: &Sandbox) -> usize {
    let id = &planned(sandbox)[0];
    let journal = workspace(sandbox).join(".delta").join(id).join("journal.jsonl");
    fs::read_to_string(journal).unwrap().matches("\"THOUGHT\"").count()
}

/// What the hosts of the sweep have, and what they have used of it.
fn granted_and_used(sandbox: &Sandbox) -> (u64, u64) {
    let mut names = sandbox.files("s/budget");
    names.retain(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let amounts = names.iter().map(|name| {
        let grant: Value =
            serde_json::from_str(&sandbox.read(&format!("s/budget/{name}"))).unwrap();
        let tokens = grant["tokens"].as_i64().unwrap();
        if grant["returned"] == true { -tokens } else { tokens }
    });
    let granted = amounts.sum::<i64>();
    let used = status(sandbox)["grants"][0]["used_tokens"].as_u64().unwrap();
    (u64::try_from(granted).unwrap(), used)
}

/// The command on the run, as delta proposes it.
fn by_hand(sandbox: &Sandbox, command: &str, more: &[&str]) -> Ran {
    let id = planned(sandbox)[0].clone();
    let words = [command, &id, "-w", "s"].into_iter().chain(more.iter().copied());
    sandbox.delta(words).output()
}

#[test]
fn c_36_6_a_run_of_a_sweep_is_not_sent() {
    let sandbox = waiting_sandbox("", ASK);
    plan(&sandbox, 5000);
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    let ran = by_hand(&sandbox, "send", &["-o", "r.tgz"]).expect_code(1);
    assert!(ran.stderr.contains("it belongs to a sweep\nhelp: `delta fork "), "{}", ran.stderr);
}

#[test]
fn c_26_8_a_person_who_answers_or_continues_a_run_stays_in_the_budget() {
    let sandbox = waiting_sandbox("", ASK);
    plan(&sandbox, 5000);
    // The runs may be on another disk.
    fs::create_dir(sandbox.path("disk")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("disk"), sandbox.path("s/runs")).unwrap();
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    assert_eq!(granted_and_used(&sandbox), (ANSWER, ANSWER));
    // As many tokens as it has bytes may be in the next request.
    let ran = by_hand(&sandbox, "answer", &[&"x".repeat(6000)]).expect_code(130);
    let refusal =
        "the budget of the sweep, 5000 tokens, does not allow another call: 4890 are left";
    assert!(ran.stderr.contains(refusal), "{}", ran.stderr);
    assert!(ran.stderr.contains("raise `budget` in sweep.yaml"), "{}", ran.stderr);
    let ran = by_hand(&sandbox, "continue", &[]).expect_code(130);
    assert!(ran.stderr.contains(refusal), "{}", ran.stderr);
    assert_eq!(answers(&sandbox), 1);
    plan(&sandbox, 100_000);
    by_hand(&sandbox, "continue", &[]).expect_code(0);
    assert_eq!(answers(&sandbox), 2);
    // The call is in the account of the sweep, and the rest of the grant is given back.
    assert_eq!(granted_and_used(&sandbox), (2 * ANSWER, 2 * ANSWER));
    assert!(sandbox.files("s/workers").is_empty(), "{:?}", sandbox.files("s/workers"));
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert_eq!(result_lines(&sandbox).last().unwrap()["status"], "COMPLETED");
    assert_eq!(granted_and_used(&sandbox).1, 2 * ANSWER);
}

#[test]
fn c_26_9_what_an_approved_run_starts_has_the_budget_and_the_rate_of_the_sweep() {
    let tool =
        "  - {name: act, shell: 'echo \"$DELTA_BUDGET $DELTA_RATE\" > limits', approve: ask}";
    let sandbox = waiting_sandbox(tool, "{tool: act}");
    plan(&sandbox, 100_000);
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    by_hand(&sandbox, "approve", &[]).expect_code(0);
    let limits = fs::read_to_string(workspace(&sandbox).join("limits")).unwrap();
    let (budget, rate) = limits.trim().split_once(' ').unwrap();
    let root = sandbox.path("s").canonicalize().unwrap();
    assert!(PathBuf::from(budget).starts_with(root.join("budget")), "{limits}");
    assert!(PathBuf::from(rate).starts_with(root.join("rate")), "{limits}");
}

/// A tool of a run of the sweep that works on another run of it has the budget already.
#[test]
fn c_26_8_a_run_that_another_one_of_the_sweep_continues_is_charged_once() {
    let tools = "  - {name: act, shell: 'DELTA answer OTHER -w SWEEP yes > answered'}";
    let sandbox = waiting_sandbox("", ASK);
    plan(&sandbox, 100_000);
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    let root = sandbox.path("s").display().to_string();
    let tools = tools
        .replace("OTHER", &planned(&sandbox)[0])
        .replace("SWEEP", &root)
        .replace("DELTA", DELTA);
    // Another agent makes another run in the same sweep.
    sandbox.agent("provider: script\n  model: script.yaml\n  max_tokens: 10", &tools);
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    let turns =
        format!("turns:\n  - {{call: [{{tool: act}}], {usage}}}\n  - {{say: done, {usage}}}\n");
    sandbox.write("agent/script.yaml", turns);
    plan(&sandbox, 100_000);
    let second = planned(&sandbox)[1].clone();
    sweep(&sandbox, &["task", "s", &second]).expect_code(0);
    assert_eq!(answers(&sandbox), 2);
    assert_eq!(granted_and_used(&sandbox).1, 4 * ANSWER);
}

/// An agent could make a directory that looks like a sweep around a run.
#[test]
fn a_planted_sweep_leads_no_write_elsewhere_and_lifts_no_budget() {
    let sandbox = waiting_sandbox("", ASK);
    plan(&sandbox, 5000);
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    fs::rename(sandbox.path("s/rate"), sandbox.path("rate")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("elsewhere"), sandbox.path("s/rate")).unwrap();
    let ran = by_hand(&sandbox, "answer", &["this one"]).expect_code(126);
    assert!(ran.stderr.contains("s/rate is a symlink"), "{}", ran.stderr);
    assert!(sandbox.files("elsewhere").is_empty());
    fs::remove_file(sandbox.path("s/rate")).unwrap();
    // The budget of a run around this one counts, whatever the sweep allows.
    plan(&sandbox, 100_000);
    sandbox.write(
        "outer.jsonl",
        "{\"type\":\"limits\",\"run_id\":\"outer\",\"limits\":{\"max_tokens\":50}}\n",
    );
    let id = planned(&sandbox)[0].clone();
    let answer = sandbox.delta(["answer", &id, "-w", "s", "this one"]);
    let ran = answer.env("DELTA_BUDGET", sandbox.path("outer.jsonl")).output().expect_code(1);
    assert!(
        ran.stderr.contains("the limit of 50 tokens of run outer does not allow"),
        "{}",
        ran.stderr
    );
    assert_eq!(answers(&sandbox), 1);
}
