//! `run --race`: values that are worse than the one that leads are stopped.

use super::one_command::page_data;
use super::{DELTA, result_lines, sweep, write_sweep};
use std::collections::BTreeSet;
use test_support::sandbox::Sandbox;
use test_support::wait::until;

/// A sweep of two models on 30 inputs, of which one passes nothing.
fn two_models() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: good.yaml", "");
    sandbox.write("good.yaml", "turns:\n  - say: done\n");
    sandbox.write("poor.yaml", "turns:\n  - say: wrong\n");
    let models = "[{id: poor, model: 'script:poor.yaml'}, {id: good, model: 'script:good.yaml'}]";
    let grade = "[{name: right, expect: {result: {contains: done}}}]";
    write_sweep(&sandbox, 30, 1, &format!("models: {models}\ngrade: {grade}\n"));
    sandbox
}

#[test]
fn c_34_31_a_race_stops_what_is_worse_and_one_that_was_killed_has_the_same_end() {
    let race = ["run", "sweep.yaml", "--race", "model"];
    let sandbox = two_models();
    let mut child = sandbox.delta(["sweep"].into_iter().chain(race)).spawn();
    until("some runs have ended", || {
        (sandbox.path("s/results").is_dir() && result_lines(&sandbox).len() > 4).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let table = sweep(&sandbox, &race).expect_code(0).stdout;
    // The first look with 20 lines has 21 of 30: 21 runs of one, and all of the other.
    let row = "poor   0.00 [0.00, 0.17]  21 of 30";
    assert!(table.contains(row), "{table}");
    assert!(table.contains("\n  stopped at look 7 of 10: worse than good\n"), "{table}");
    // A run that was killed may have a line of its first try.
    let ids = || -> BTreeSet<String> {
        result_lines(&sandbox).iter().map(|line| line["id"].to_string()).collect()
    };
    assert_eq!(ids().len(), 51);
    let again = sweep(&sandbox, &race).expect_code(0);
    assert!(again.stdout.contains(row) && !again.stderr.contains("were not run"), "{again:?}");
    assert_eq!(ids().len(), 51);
    let json = sweep(&sandbox, &["compare", "s", "--format", "json"]).expect_code(0).json();
    let stopped = serde_json::json!({"value": "poor", "look": [7, 10], "leader": "good"});
    assert_eq!(json["rows"][0]["stopped"], stopped);
    assert_eq!(json["rows"][1].get("stopped"), None);
    sweep(&sandbox, &["view", "s"]).expect_code(0);
    let page = page_data(&sandbox.read("s.html"));
    assert_eq!(page["tables"][0]["rows"][0]["stopped"], stopped);
    assert_eq!(page["combinations"][0]["stopped"], stopped);
    for key in ["input", "agent"] {
        let ran = sweep(&sandbox, &["run", "s", "--race", key]).expect_code(126);
        assert!(ran.stderr.contains("needs two values of a model"), "{}", ran.stderr);
    }
    // All runs, if they are asked for.
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let all = sweep(&sandbox, &["compare", "s"]).expect_code(0).stdout;
    assert!(all.contains("30 of 30") && !all.contains("stopped at"), "{all}");
}
