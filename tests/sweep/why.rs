//! `why`: forks of a run that was lost, made once however often the command is killed.

use super::one_command::page_data;
use super::{DELTA, planned, status, sweep, write_sweep};
use std::collections::BTreeSet;
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::wait::until;

/// A run of three iterations that is lost in the second one, and whose forks are not: they are other repeats.
fn lost_run() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let effects = sandbox.path("effects");
    let script = format!(
        "#!/bin/sh\necho \"$(basename \"$PWD\") $1\" >> '{}'\necho $1 >> trail\n[ $1$REPEAT != 21 ] || touch broken\n",
        effects.display()
    );
    sandbox.write_program("step.sh", &script);
    let tool = format!("  - {{name: step, exec: '{} ${{n}}'}}", sandbox.path("step.sh").display());
    sandbox.agent("provider: script\n  model: script.yaml", &tool);
    let turns = [1, 2].map(|n| format!("  - call: [{{tool: step, args: {{n: \"{n}\"}}}}]\n"));
    sandbox.write("agent/script.yaml", format!("turns:\n{}  - say: done\n", turns.concat()));
    let more = "env: {REPEAT: \"${repeat}\"}\nrun: {snapshots: true}\ngrade: [{name: whole, command: [test, \"!\", -e, broken]}]\n";
    write_sweep(&sandbox, 1, 1, more);
    let ran = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0);
    assert!(ran.stdout.contains("whole 0 passed"), "{}", ran.stdout);
    sandbox
}

/// A run of one iteration, which is graded by `command`.
fn short_run(command: &str, more: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml\n  max_tokens: 10", "");
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    sandbox.write("agent/script.yaml", format!("turns:\n  - {{say: done, {usage}}}\n"));
    write_sweep(&sandbox, 1, 1, &format!("grade: [{{name: g, command: {command}}}]\n{more}"));
    sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0);
    sandbox
}

/// The calls of all runs, each with the id of its run.
fn calls(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("effects")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn c_34_18_the_iteration_in_which_a_run_was_lost_is_named() {
    let sandbox = lost_run();
    let id = planned(&sandbox).remove(0);
    let dry = sweep(&sandbox, &["why", "s", &id, "--dry-run"]).expect_code(0);
    assert_eq!(dry.stdout, "3 iterations; usually 15 to 75 forks, at most 120\n");
    assert!(sandbox.files("s/forks").is_empty());
    let agents = sandbox.files("s/agents");
    let found = sweep(&sandbox, &["why", "s", &id]).expect_code(0);
    let lines: Vec<&str> = found.stdout.lines().collect();
    assert_eq!(lines[0], dry.stdout.trim_end());
    assert!(lines[1].starts_with("  after  0  1.00 ["), "{}", found.stdout);
    assert!(lines[1].ends_with(" forks passed"), "{}", found.stdout);
    assert!(lines[3].starts_with("> after  2  0.00 [0.00, "), "{}", found.stdout);
    assert!(lines[3].ends_with("   step 2"), "{}", found.stdout);
    let expected = "lost in iteration 2: 1.00 -> 0.00, -1.00 [-1.00, -0.43], 9";
    assert!(lines[4].starts_with(expected), "{}", found.stdout);
    assert_eq!(lines.len(), 5);
    // c_34_29: a fork of the sweep is made beside its runs.
    assert_eq!(sandbox.files("s/agents"), agents);
    assert_eq!(status(&sandbox)["runs"], 1);
    let forks = calls(&sandbox).len();
    // A prefix of the id; everything is there already.
    let again = sweep(&sandbox, &["why", "s", &id[..6], "--format", "json"]).expect_code(0).json();
    assert_eq!((&again["end"], &again["run"]), (&"named".into(), &id.clone().into()));
    assert_eq!(again["lost"]["iteration"], 2);
    assert_eq!(again["lost"]["call"], "step 2");
    assert_eq!(again["estimate"]["most_forks"], 120);
    assert_eq!(again["points"][2]["passed"], 0);
    assert_eq!(calls(&sandbox).len(), forks);
    // The page has the curve.
    sweep(&sandbox, &["view", "s"]).expect_code(0);
    let curve = page_data(&sandbox.read("s.html"))["losses"][0].clone();
    assert_eq!((&curve["lost"], &curve["points"]), (&again["lost"], &again["points"]));
    assert!(curve["text"].as_str().unwrap().starts_with(expected), "{curve}");
}

/// The command is killed while forks work; what is left of a fork that was not made to its end is made anew.
#[test]
fn c_34_18_a_killed_search_makes_no_fork_twice_and_ends_in_the_same_way() {
    let sandbox = lost_run();
    let id = planned(&sandbox).remove(0);
    for name in ["at1.1", "at2.1"] {
        let half = format!("s/forks/runs/00/{id}.{name}");
        sandbox.write(&format!("{half}/broken"), "");
        sandbox.write(&format!("{half}/.delta/{id}.{name}/io/half"), "");
    }
    for goal in [3, 7, 12, 16] {
        let mut child = sandbox.delta(["sweep", "why", "s", &id]).spawn();
        until("a fork", || {
            (calls(&sandbox).len() >= goal || child.try_wait().unwrap().is_some()).then_some(())
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let found = sweep(&sandbox, &["why", "s", &id]).expect_code(0).stdout;
    let called = calls(&sandbox);
    assert_eq!(called.iter().collect::<BTreeSet<_>>().len(), called.len(), "{called:?}");
    assert_eq!(sweep(&sandbox, &["why", "s", &id]).expect_code(0).stdout, found);
    assert_eq!(calls(&sandbox), called);
    fs::remove_dir_all(sandbox.path("s/forks")).unwrap();
    assert_eq!(sweep(&sandbox, &["why", "s", &id]).expect_code(0).stdout, found);
}

#[test]
fn the_other_ends_of_a_search_exit_with_3() {
    let sandbox = short_run("[\"false\"]", "");
    let id = planned(&sandbox).remove(0);
    let lost = sweep(&sandbox, &["why", "s", &id]).expect_code(3).stdout;
    assert!(lost.ends_with("\nno chance from the start: 0.00 after 0; 8 forks\n"), "{lost}");
    let sandbox = short_run("[test, '${repeat}', -gt, '1']", "");
    let id = planned(&sandbox).remove(0);
    let lost = sweep(&sandbox, &["why", "s", &id]).expect_code(3).stdout;
    assert!(lost.ends_with("\nthe last step decides: its forks pass 1.00; 8 forks\n"), "{lost}");
    let json = sweep(&sandbox, &["why", "s", &id, "--format", "json"]).expect_code(3).json();
    assert_eq!((&json["end"], &json["lost"]), (&"last_step".into(), &().into()));
}

#[test]
fn c_34_14_a_search_makes_no_call_beyond_the_budget_of_the_sweep() {
    let sandbox = short_run("[\"false\"]", "budget: {max_tokens: 1100}\n");
    let id = planned(&sandbox).remove(0);
    let stopped = sweep(&sandbox, &["why", "s", &id, "-j", "1"]).expect_code(3);
    let end = "\nstopped: the budget of the sweep is used up; 3 forks\n";
    assert!(stopped.stdout.ends_with(end), "{}", stopped.stdout);
    assert!(stopped.stderr.contains("help: raise `budget`"), "{}", stopped.stderr);
    assert_eq!(status(&sandbox)["used_tokens"], 4 * 110);
    // A higher budget continues the search.
    let more = "grade: [{name: g, command: [\"false\"]}]\nbudget: {max_tokens: 100000}\n";
    write_sweep(&sandbox, 1, 1, more);
    sweep(&sandbox, &["plan"]).expect_code(0);
    let lost = sweep(&sandbox, &["why", "s", &id]).expect_code(3).stdout;
    assert!(lost.ends_with("no chance from the start: 0.00 after 0; 8 forks\n"), "{lost}");
    assert_eq!(status(&sandbox)["used_tokens"], 9 * 110);
}

#[test]
fn what_cannot_be_searched_is_an_error() {
    let sandbox = lost_run();
    let id = planned(&sandbox).remove(0);
    let refused = |args: &[&str], code: i32, message: &str| {
        let words: Vec<&str> = ["why", "s"].iter().chain(args).copied().collect();
        let stderr = sweep(&sandbox, &words).expect_code(code).stderr;
        assert!(stderr.contains(message), "{stderr}");
    };
    refused(&["nothing"], 126, "has no run whose id begins or ends with `nothing`");
    refused(&[&id, "--grader", "x"], 126, "there is no grader `x`");
    refused(&[], 2, "<ID>");
    let more = "grade: [{name: whole, command: [test, \"!\", -e, broken]}]\nenv: {REPEAT: \"${repeat}\"}\n";
    write_sweep(&sandbox, 1, 2, more);
    sweep(&sandbox, &["run", "sweep.yaml", "-d", "t"]).expect_code(0);
    let ids = sweep(&sandbox, &["list", "t"]).expect_code(0).stdout;
    let ids: Vec<&str> = ids.lines().collect();
    let without = sweep(&sandbox, &["why", "t", ids[0]]).expect_code(126).stderr;
    let message = format!("error: run {} has no snapshot of iteration 1\nhelp: ", ids[0]);
    assert!(without.contains(&message), "{without}");
    let passed = sweep(&sandbox, &["why", "t", ids[1]]).expect_code(126).stderr;
    assert!(passed.contains(&format!("run {} passed: nothing was lost", ids[1])), "{passed}");
}

#[test]
fn c_34_6_a_fork_without_a_score_is_in_no_rate_and_another_one_takes_its_place() {
    let sandbox = short_run("[sh, -c, 'test ${repeat} -ne 3 || exit 2; false']", "");
    let id = planned(&sandbox).remove(0);
    let ungraded = sweep(&sandbox, &["why", "s", &id]).expect_code(126).stderr;
    let message = format!("error: fork {id}.at0.2 has no score: the grader exited with 2");
    assert!(ungraded.contains(&message), "{ungraded}");
    assert!(ungraded.contains("takes another fork in its place"), "{ungraded}");
    let lost = sweep(&sandbox, &["why", "s", &id]).expect_code(3).stdout;
    assert!(lost.ends_with("  after  0  0.00 [0.00, 0.32]  0 of 8 forks passed\nno chance from the start: 0.00 after 0; 8 forks\n"), "{lost}");
}
