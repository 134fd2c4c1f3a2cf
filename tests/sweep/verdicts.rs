//! `compare --max-drop`: the verdict on a finished sweep, and its exit codes.

use super::{DELTA, sweep, write_sweep};
use serde_json::Value;
use std::fs;
use std::process::Command;
use test_support::sandbox::Sandbox;

/// A sweep of two models on so many inputs; the one that is `here` does something else on inputs with a task that `failing`
/// matches.
fn two_models(inputs: usize, failing: &str, here: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: good.yaml", "");
    sandbox.write("good.yaml", "turns:\n  - say: done\n");
    sandbox.write("here.yaml", format!("turns:\n  - when: {failing}\n    {here}\n  - say: done\n"));
    let models = "[{id: base, model: 'script:good.yaml'}, {id: here, model: 'script:here.yaml'}]";
    let grade = "[{name: right, expect: {result: {contains: done}}}]";
    write_sweep(&sandbox, inputs, 1, &format!("models: {models}\ngrade: {grade}\n"));
    sandbox
}

fn judged(sandbox: &Sandbox, drop: &str, code: i32) -> Value {
    let words = ["compare", "s", "--max-drop", drop, "--format", "json"];
    let table = sweep(sandbox, &words).expect_code(code).json();
    table["verdicts"][0].clone()
}

#[test]
fn c_34_1_compare_exits_with_its_verdict() {
    let sandbox = two_models(24, "t.*[02468]$", "say: wrong");
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let failed = judged(&sandbox, "0.1", 1);
    assert_eq!((&failed["verdict"], &failed["more"]), (&"FAIL".into(), &Value::Null));
    let wide = judged(&sandbox, "0.8", 0);
    assert_eq!(
        (&wide["verdict"], &wide["base"], &wide["here"]),
        (&"PASS".into(), &"base".into(), &"here".into())
    );
    // The first look that decides has 20 of the pairs.
    assert_eq!(wide["pairs"], serde_json::json!({"used": 20, "planned": 24, "missing": 0}));
    assert!(wide["difference"].as_f64().unwrap() < -0.3, "{wide}");
    let text = sweep(&sandbox, &["compare", "s", "--max-drop", "0.1"]).expect_code(1).stdout;
    let lines =
        "\nright may drop by 0.10   base base   here here   24 inputs\nFAIL  right 1.00 -> 0.";
    assert!(text.starts_with("model  right") && text.contains(lines), "{text}");
    // Against the other one it is no drop.
    let reverse = ["compare", "s", "--max-drop", "0.1", "--against", "model=here"];
    let reverse = sweep(&sandbox, &reverse).expect_code(0).stdout;
    assert!(reverse.contains("inputs like these: at most 13.9 % broken unseen\n"), "{reverse}");
    let open = sweep(&sandbox, &["compare", "s", "--max-drop", "0.1", "--only", "input=i1*"]);
    let open = open.expect_code(3).stdout;
    assert!(open.contains("INCONCLUSIVE  right 1.00 -> 0."), "C-34.7: {open}");
    assert!(open.contains(" more pairs decide in 4 of 5 cases: repeats: "), "C-34.12: {open}");
    // Every error is another code.
    for (words, code, message) in [
        (vec!["compare", "nowhere", "--max-drop", "0.1"], 126, "has no plan"),
        (vec!["compare", "s", "--max-drop", "0.1", "--against", "model=hero"], 126, "`here`?"),
        (vec!["compare", "s", "--max-drop", "0.1", "--by", "agent"], 126, "two values"),
        (vec!["compare", "s", "--max-drop", "0.1", "--only", "input=none"], 126, "is selected"),
        (vec!["compare", "s", "--max-drop", "1.5"], 2, "above 0 and at most 1"),
        (vec!["compare", "s", "--max-drop", "0.1", "--against", "here"], 2, "KEY=VALUE"),
        (vec!["compare", "s", "--against", "model=base"], 2, "--max-drop"),
    ] {
        let ran = sweep(&sandbox, &words).expect_code(code);
        assert!(ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
    // A verdict that nobody could read: 1 would be a FAIL.
    let scene = "exec \"$0\" sweep compare s --max-drop 0.8 > /dev/full";
    let mut command = Command::new("sh");
    command.args(["-c", scene, DELTA]).current_dir(sandbox.path(""));
    assert_eq!(command.status().unwrap().code(), Some(126));
    fs::rename(sandbox.path("s/grades"), sandbox.path("s/kept")).unwrap();
    sandbox.write("s/grades", "no directory");
    sweep(&sandbox, &["compare", "s"]).expect_code(1);
    sweep(&sandbox, &["compare", "s", "--max-drop", "0.1"]).expect_code(126);
}

#[test]
fn c_34_1_several_values_have_a_verdict_each_and_the_worst_is_the_exit_code() {
    let sandbox = two_models(24, "nothing", "say: wrong");
    sandbox.write("worse.yaml", "turns:\n  - say: wrong\n");
    let last = "'script:here.yaml'}";
    let more = format!("{last}, {{id: worse, model: 'script:worse.yaml'}}");
    sandbox.write("sweep.yaml", sandbox.read("sweep.yaml").replace(last, &more));
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let words = ["compare", "s", "--max-drop", "0.5", "--format", "json"];
    let table = sweep(&sandbox, &words).expect_code(1).json();
    let verdicts = table["verdicts"].as_array().unwrap().iter();
    let verdicts: Vec<_> = verdicts.map(|it| (&it["here"], &it["verdict"])).collect();
    assert_eq!(verdicts, [(&"here".into(), &"PASS".into()), (&"worse".into(), &"FAIL".into())]);
}

#[test]
fn c_34_6_a_missing_score_is_in_no_rate_and_opens_a_verdict_that_it_could_change() {
    let sandbox = two_models(30, "t.*[0-2]$", "error: 503 no capacity");
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let verdict = judged(&sandbox, "0.25", 3);
    assert_eq!(verdict["verdict"], "INCONCLUSIVE", "{verdict}");
    assert_eq!((&verdict["pairs"]["used"], &verdict["pairs"]["missing"]), (&21.into(), &9.into()));
    assert_eq!(verdict["scores"], serde_json::json!([1.0, 1.0]), "{verdict}");
    assert_eq!(judged(&sandbox, "0.8", 0)["verdict"], "PASS", "no score could change it");
    let text = sweep(&sandbox, &["compare", "s", "--max-drop", "0.25"]).expect_code(3).stdout;
    let note = "note: 9 pairs are missing (llm 9); their worst scores would change PASS\n";
    assert!(text.contains(note), "{text}");
    let reverse = ["compare", "s", "--max-drop", "0.1", "--against", "model=here", "--only"];
    let without = sweep(&sandbox, &[&reverse[..], &["input=i0,i1,i2"]].concat()).expect_code(126);
    let message = "no base run has a score; 3 failed with llm: ";
    assert!(without.stderr.contains(message), "{}", without.stderr);
}

#[test]
fn c_34_7_few_pairs_pass_nothing_and_a_base_without_a_score_is_an_error() {
    let sandbox = two_models(19, "nothing", "say: wrong");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let none = sweep(&sandbox, &["compare", "s", "--max-drop", "1"]).expect_code(126).stderr;
    assert!(none.contains("no base run has a score; 19 not run"), "{none}");
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let few = sweep(&sandbox, &["compare", "s", "--max-drop", "1"]).expect_code(3).stdout;
    assert!(few.contains("; 19 of 19 pairs"), "{few}");
    let words = ["compare", "s", "--max-drop", "1", "--only", "input=none"];
    let nothing = sweep(&sandbox, &words).expect_code(126).stderr;
    assert!(nothing.contains("no run of the sweep is selected"), "{nothing}");
}
