//! `answers: true`: the answers that the runs of a sweep share.

use super::{DELTA, result_lines, sweep};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const KEY: &str = "sk-the-key-of-the-api";

/// A sweep of one input twice, for each of the modes, which only the tool of the agent sees.
fn write_modes(sandbox: &Sandbox, modes: &str) {
    let text = format!(
        "name: s\nagents: [agent]\ninputs: [{{id: i, task: work}}]\nrepeats: 2\nanswers: true\n\
         params: {{mode: [{modes}]}}\nenv: {{MODE: '${{param.mode}}'}}\nbudget: {{max_cost: 1}}\n"
    );
    sandbox.write("sweep.yaml", text);
    sweep(sandbox, &["plan"]).expect_code(0);
}

/// The result lines of a mode by repeat.
fn lines_of(sandbox: &Sandbox, mode: &str) -> BTreeMap<u64, Value> {
    let lines = result_lines(sandbox).into_iter().filter(|line| line["params"]["mode"] == mode);
    lines.map(|line| (line["repeat"].as_u64().unwrap(), line)).collect()
}

/// The journal of a run.
fn journal_of(sandbox: &Sandbox, line: &Value) -> Vec<Value> {
    let id = line["id"].as_str().unwrap();
    let shard = &id.rsplit_once('.').unwrap().1[..2];
    let text = sandbox.read(&format!("s/runs/{shard}/{id}/.delta/{id}/journal.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The THOUGHTs without what differs where the answers are stored.
fn thoughts(journal: &[Value]) -> Vec<Value> {
    let thoughts = journal.iter().filter(|event| event["type"] == "THOUGHT").cloned();
    thoughts
        .map(|mut thought| {
            for member in ["from", "saved_usd", "timestamp", "invocation", "record_sha256", "chain"]
            {
                thought.as_object_mut().unwrap().remove(member);
            }
            thought["usage"]["cost_usd"].take();
            thought
        })
        .collect()
}

/// Two modes whose tools print the same, of which the second one gets the answers of the first one.
fn sharing() -> (ScriptedServer, Sandbox) {
    let server =
        ScriptedServer::start(|request: &RecordedRequest| {
            match request.body["messages"].as_array().unwrap().len() {
                2 => Answer::call("act", json!({})).usage(100, 10),
                _ => Answer::text("done").usage(200, 20),
            }
        });
    let sandbox = Sandbox::new(DELTA);
    let pricing = "max_tokens: 50\n  pricing: {input: 1, output: 10}";
    let llm = format!("model: test-model\n  base_url: {}\n  {pricing}", server.url());
    let script = "case $MODE in other) echo other;; *) echo same$DELTA_ANSWERS;; esac";
    sandbox.agent(&llm, &format!("  - {{name: act, shell: '{script}'}}"));
    write_modes(&sandbox, "a, b");
    run(&sandbox);
    (server, sandbox)
}

fn run(sandbox: &Sandbox) {
    let command = sandbox.delta(["sweep", "run", "s", "-q", "--jobs", "1"]);
    command.env("DELTA_API_KEY", KEY).output().expect_code(0);
}

#[test]
fn c_34_22_the_journal_names_the_source_of_an_answer_and_is_the_same_apart_from_it() {
    let (_server, sandbox) = sharing();
    let (asked, stored) = (lines_of(&sandbox, "a"), lines_of(&sandbox, "b"));
    for repeat in [1, 2] {
        let (first, second) = (&asked[&repeat], &stored[&repeat]);
        let (source, journal) = (journal_of(&sandbox, first), journal_of(&sandbox, second));
        assert_eq!(thoughts(&source), thoughts(&journal));
        for thought in journal.iter().filter(|event| event["type"] == "THOUGHT") {
            let (id, seq) = thought["from"].as_str().unwrap().split_once('#').unwrap();
            let seq: usize = seq.parse().unwrap();
            assert_eq!(first["id"], id);
            assert_eq!(source[seq - 1]["type"], "THOUGHT", "{seq}");
            assert_eq!(source[seq - 1]["iteration"], thought["iteration"]);
        }
        let observed = |journal: &[Value]| -> Vec<String> {
            let results = journal.iter().filter(|event| event["type"] == "ACTION_RESULT");
            results.map(|event| event["observation_content"].to_string()).collect()
        };
        assert_eq!(observed(&journal), ["\"same\\n\""], "tools do not get the store");
        let id = second["id"].as_str().unwrap();
        for command in ["verify", "replay"] {
            sandbox.delta([command, id, "-w", "s"]).output().expect_code(0);
        }
    }
}

#[test]
fn c_34_23_settings_share_answers_and_repeats_do_not() {
    let (server, sandbox) = sharing();
    assert_eq!(server.requests().len(), 4, "two requests of each repeat");
    let (asked, stored) = (lines_of(&sandbox, "a"), lines_of(&sandbox, "b"));
    // Of 300 and 30 tokens.
    let cost = 0.0006;
    for repeat in [1, 2] {
        let (first, second) = (&asked[&repeat], &stored[&repeat]);
        assert_eq!((&first["answers"], &first["cost_usd"]), (&Value::Null, &json!(cost)));
        let answers = json!({"asked": 0, "stored": 2, "saved_usd": cost});
        assert_eq!((&second["answers"], &second["cost_usd"]), (&answers, &json!(0.0)));
        assert_eq!(first["usage"], second["usage"]);
    }
    // What is stored has no time, costs what it cost the others, and uses no budget.
    let table = sweep(&sandbox, &["compare", "s", "--format", "json"]).expect_code(0).json();
    let row = |mode: &str| {
        let rows = table["rows"].as_array().unwrap();
        rows.iter().find(|row| row["key"][0][1] == mode).cloned().unwrap_or_default()
    };
    assert_eq!(row("a")["cost_usd"]["mean"], row("b")["cost_usd"]["mean"], "{table}");
    assert!(row("a")["seconds"].is_object() && row("b")["seconds"].is_null(), "{table}");
    let status = sweep(&sandbox, &["status", "s", "--format", "json"]).expect_code(0).json();
    assert_eq!(
        (&status["used_usd"], &status["cost_usd"]),
        (&json!(2.0 * cost), &json!(2.0 * cost))
    );

    // From the first other output on, the endpoint is asked; a damaged file is asked again, and replaced.
    write_modes(&sandbox, "a, b, other");
    run(&sandbox);
    assert_eq!(server.requests().len(), 6);
    assert_eq!(lines_of(&sandbox, "other")[&1]["answers"]["asked"], 1);
    let files: Vec<_> = sandbox
        .files("s/answers")
        .iter()
        .map(|file| sandbox.path(&format!("s/answers/{file}")))
        .collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains(KEY) && !text.contains("Bearer"), "{text}");
        fs::write(file, &text[..text.len() / 2]).unwrap();
    }
    write_modes(&sandbox, "a, b, other, torn, c");
    run(&sandbox);
    assert_eq!(server.requests().len(), 10);
    assert_eq!(lines_of(&sandbox, "torn")[&1]["answers"], Value::Null);
    assert_eq!(lines_of(&sandbox, "c")[&2]["answers"]["stored"], 2);
}
