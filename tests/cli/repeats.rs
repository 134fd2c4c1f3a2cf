//! Calls that only repeat (C-37.7): the LLM is told, then the run ends.

use super::DELTA;
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const TOOLS: &str = "  - name: same\n    exec: echo nothing new\n  - name: count\n    shell: echo >> n; wc -l < n\n";

fn served(answers: Vec<Answer>, more: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), &format!("{TOOLS}{more}"));
    (server, sandbox)
}

fn calls(tool: &str, count: usize) -> Vec<Answer> {
    let one = || Answer::call(tool, json!({}));
    (0..count).map(|_| one()).chain([Answer::text("done")]).collect()
}

#[test]
fn c_37_7_the_same_call_with_the_same_result_ends_the_run() {
    let (server, sandbox) = served(calls("same", 4), "");
    let result = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
    assert_eq!((&result["error"]["type"], server.requests().len()), (&json!("loop"), 4));
    let repeats = sandbox.events("ACTION_RESULT").into_iter().map(|it| it["repeats"].clone());
    assert_eq!(repeats.collect::<Vec<_>>(), [json!(null), json!(null), json!(3), json!(4)]);
    let last = |index: usize| {
        let body = &server.requests()[index].body;
        body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(last(2), "nothing new\n");
    assert!(
        last(3)
            .starts_with("nothing new\n\n[The same call with the same result, 3 times in a row.")
    );
    // A message begins a new row, and without one nothing is asked.
    sandbox.delta(["continue", "r", "-w", "work", "-q"]).output().expect_code(1);
    let args = ["continue", "r", "-w", "work", "-q", "--format", "raw", "-m", "stop"];
    assert_eq!(sandbox.delta(args).output().expect_code(0).stdout, "done\n");
}

#[test]
fn c_37_7_the_limit_of_repeats_is_a_setting_and_other_results_are_no_repetition() {
    for (answers, more) in [
        (calls("same", 3), ""),
        (calls("count", 9), ""),
        (calls("same", 9), "limits: {repeats: 0}\n"),
        (calls("same", 6), "limits: {repeats: 6}\n"),
    ] {
        let (_server, sandbox) = served(answers, more);
        assert_eq!(
            sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout,
            "done\n",
            "{more}"
        );
    }
    let turns = "- call: [{tool: same}]\n".repeat(2) + "- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &format!("{TOOLS}limits: {{repeats: 1}}\n"), &turns);
    let result = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
    assert_eq!(result["error"]["type"], "loop", "the key counts for a script too");
    let turns = "- call: [{tool: same}]\n".repeat(9) + "- say: done\n";
    Sandbox::scripted(DELTA, TOOLS, &turns).run("go", &[]).expect_code(0);
}
