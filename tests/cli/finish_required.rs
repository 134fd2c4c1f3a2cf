//! `finish: {required: true}`: an answer without calls does not end the run.

use super::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};

/// What the LLM gets after an answer without calls.
const REMINDER: &str = "[Your answer has no call, and this run ends only with a call of `finish`. \
    If the task is done, call `finish` with its result; if it is not, continue.]";

/// The settings of an agent whose runs end only with a verdict.
const VERDICT: &str = "finish:
  required: true
  schema: {type: object, properties: {verdict: {type: string}}, required: [verdict]}
";

/// Two answers without calls, then the verdict. The script continues only after the reminder.
const TURNS: &str = "- say: I accept it.
- when: 'ends only with a call of `finish`'
  say: Really.
- when: 'ends only with a call of `finish`'
  call: [{tool: finish, args: {verdict: accept}}]
";

fn agent(settings: &str, turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}{settings}"));
    sandbox
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "json"];
    sandbox.delta([&fixed, more].concat()).output()
}

fn reminders(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.events("THOUGHT").iter().map(|event| event["reminder"].clone()).collect()
}

#[test]
fn c_6_4_a_required_finish_is_the_only_end() {
    let sandbox = agent(VERDICT, TURNS);
    let ran = sandbox.run("judge", &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["result"], json!({"verdict": "accept"}));
    assert_eq!(reminders(&sandbox), [json!(REMINDER), json!(REMINDER), Value::Null]);
    let stated =
        "• I accept it.\n! the agent requires a call of `finish`; the LLM is asked again\n";
    assert!(ran.stderr.contains(stated), "{}", ran.stderr);

    // The messages that were sent are those of the journal.
    let request = sandbox.delta(["show", "r", "-w", "work", "--request", "3"]).output().json();
    let sent = request["messages"].as_array().unwrap();
    let sent: Vec<_> = sent.iter().skip(1).map(|one| (&one["role"], &one["content"])).collect();
    let message = |role: &str, text: &str| (json!(role), json!(text));
    let expected = [
        message("user", "judge"),
        message("assistant", "I accept it."),
        message("user", REMINDER),
        message("assistant", "Really."),
        message("user", REMINDER),
    ];
    assert_eq!(sent, expected.each_ref().map(|(role, text)| (role, text)));
    for format in ["openai", "atif", "markdown"] {
        let exported = sandbox.delta(["export", "r", "-w", "work", "--to", format]).output();
        let count = exported.stdout.matches("ends only with a call of").count();
        assert_eq!(count, 2, "{format}: {}", exported.stdout);
    }
    let replayed = sandbox.delta(["replay", "r", "-w", "work", "--mode", "tools"]).output();
    replayed.expect_code(0);
}

#[test]
fn c_6_4_a_required_finish_needs_no_schema() {
    let turns = TURNS.replace("verdict: accept", "result: done");
    let sandbox = agent("finish: {required: true}\n", &turns);
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "done\n");
    let sandbox = agent("finish: {required: false}\n", "- say: a text\n");
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "a text\n");
    assert_eq!(reminders(&sandbox), [Value::Null]);
}

#[test]
fn c_6_4_limits_still_end_a_run_that_never_calls_finish() {
    let sandbox = agent(VERDICT, TURNS);
    let ran = sandbox.run("judge", &["--format", "json", "--max-iterations", "2"]).expect_code(1);
    assert_eq!(ran.json()["error"]["type"], "max_iterations");
    assert!(ran.json()["result"].is_null());
    let ran = resume(&sandbox, &["-m", "ends only with a call of `finish`, please"]);
    assert_eq!(ran.expect_code(0).json()["result"], json!({"verdict": "accept"}));

    let turns = "- {say: I accept it., usage: {input_tokens: 30000}}\n- say: Really.\n";
    let sandbox = agent(VERDICT, turns);
    let ran = sandbox.run("judge", &["--format", "json", "--max-tokens", "20k"]).expect_code(1);
    assert_eq!(ran.json()["error"]["type"], "limit");
    assert_eq!(reminders(&sandbox), [json!(REMINDER)]);
}

/// The engine can die after every event: the next process continues with the same messages.
#[test]
fn c_6_4_a_required_finish_survives_a_crash_after_every_event() {
    let sandbox = agent(VERDICT, TURNS);
    sandbox.unverified("the journal is cut");
    sandbox.run("judge", &[]).expect_code(0);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let lines: Vec<&str> = journal.lines().collect();
    for count in 2..lines.len() {
        sandbox.write("work/.delta/r/journal.jsonl", lines[..count].join("\n") + "\n");
        let ran = resume(&sandbox, &[]).expect_code(0).json();
        assert_eq!(ran["result"], json!({"verdict": "accept"}), "{}", lines[count - 1]);
        assert_eq!(ran["metrics"]["iterations"], 3);
        assert_eq!(reminders(&sandbox), [json!(REMINDER), json!(REMINDER), Value::Null]);
    }
}

#[test]
fn c_16_5_a_fork_after_an_answer_without_calls_continues() {
    let sandbox = agent(VERDICT, TURNS);
    sandbox.run("judge", &[]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--run-id", "f", "--at", "1", "--into", "forked"];
    sandbox.delta(fork).output().expect_code(0);
    let next = ["continue", "f", "-w", "forked", "--format", "raw"];
    let ran = sandbox.delta(next).output().expect_code(0);
    assert_eq!(ran.stdout, "{\"verdict\":\"accept\"}\n");
}

#[test]
fn c_17_3_a_test_sees_that_finish_is_required() {
    let sandbox = agent(VERDICT, TURNS);
    let expect = "task: judge
llm:
  turns:
    - say: I accept it.
    - call: [{tool: finish, args: {verdict: accept}}]
expect:
  result: {equals: {verdict: accept}}
  calls: [{tool: finish}]
  journal: [{type: THOUGHT, count: 2}]
";
    sandbox.write("agent/tests/verdict.yaml", expect);
    let ran = sandbox.delta(["test", "agent"]).output().expect_code(0);
    assert!(ran.stdout.contains("1 test: 1 passed"), "{}", ran.stdout);
}

#[test]
fn c_1_3_a_required_finish_is_checked() {
    let own = "  - {name: finish, exec: echo}\n";
    let sandbox = Sandbox::scripted(DELTA, own, "- say: x\n");
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}finish: {{required: true}}\n"));
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(
        ran.stderr.contains(
            "the agent has its own tool `finish`, so the one of delta cannot be required"
        ) && ran.stderr.contains("help: rename the tool, or omit `required`"),
        "{}",
        ran.stderr
    );
    for (wrong, expected) in [
        ("{required: 1}", "`required` must be `true` or `false`"),
        ("{schema: }", "the schema of `finish`"),
        ("{requires: true}", "did you mean `required`?"),
    ] {
        let sandbox = agent(&format!("finish: {wrong}\n"), "- say: x\n");
        let ran = sandbox.run("go", &[]).expect_code(126);
        assert!(ran.stderr.contains(expected), "{wrong}: {}", ran.stderr);
    }
}
