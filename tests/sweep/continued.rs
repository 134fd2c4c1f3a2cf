//! Settled runs that are continued by hand: the sweep takes their new results, and grades them.

use super::{DELTA, planned, result_lines, status, sweep};
use serde_json::Value;
use test_support::sandbox::Sandbox;
use test_support::wait::until;

/// Two settled runs. Continued with a message, the agent says the message; `wait` makes it wait for the file `go`.
fn settled_sweep() -> (Sandbox, Vec<String>) {
    let sandbox = Sandbox::new(DELTA);
    let go = sandbox.path("go");
    let tool = format!(
        "  - {{name: hold, shell: \"touch {started}; until [ -e {go} ]; do sleep 0.02; done\"}}",
        started = sandbox.path("started").display(),
        go = go.display()
    );
    sandbox.agent("provider: script\n  model: script.yaml", &tool);
    let turns = "  - say: first\n  - when: wait\n    call: [{tool: hold, args: {}}]\n  - say: \"said ${last}\"\n";
    sandbox.write("agent/script.yaml", format!("turns:\n{turns}"));
    sandbox.write_program("grade.sh", "#!/bin/sh\necho graded >> grades\n");
    super::write_sweep(&sandbox, 2, 1, "grade: [{name: g, command: [./grade.sh]}]\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let ids = planned(&sandbox);
    (sandbox, ids)
}

fn continue_run(sandbox: &Sandbox, id: &str, message: &str) {
    sandbox.delta(["continue", id, "-w", "s", "-q", "-m", message]).output().expect_code(0);
}

/// The lines of the run, with their epochs and whether they are settled.
fn epochs(sandbox: &Sandbox, id: &str) -> Vec<(u64, bool)> {
    let lines = result_lines(sandbox).into_iter().filter(|line| line["id"] == id);
    lines.map(|line| (line["epoch"].as_u64().unwrap(), line["settled"] == true)).collect()
}

fn collected(sandbox: &Sandbox, id: &str) -> Option<Value> {
    let text = sweep(sandbox, &["collect", "s", "-o", "-"]).stdout;
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["id"] == id)
}

#[test]
fn c_26_2_the_result_of_a_run_that_was_continued_by_hand_counts() {
    for command in [&["run", "s"][..], &["task", "s", "0/1"], &["task", "s", "ID"], &["pack", "s"]]
    {
        let (sandbox, ids) = settled_sweep();
        continue_run(&sandbox, &ids[0], "more");
        let command: Vec<&str> =
            command.iter().map(|word| if *word == "ID" { &*ids[0] } else { word }).collect();
        for _ in 0..2 {
            sweep(&sandbox, &command).expect_code(0);
            assert_eq!(epochs(&sandbox, &ids[0]), [(1, true), (2, true)], "{command:?}");
            assert_eq!(epochs(&sandbox, &ids[1]), [(1, true)], "{command:?}");
        }
    }
}

#[test]
fn c_26_3_a_run_that_was_continued_by_hand_is_graded_again() {
    let (sandbox, ids) = settled_sweep();
    continue_run(&sandbox, &ids[0], "more");
    let line = collected(&sandbox, &ids[0]).unwrap();
    assert_eq!((&line["epoch"], line.get("grades")), (&2.into(), None), "{line}");
    assert_eq!(epochs(&sandbox, &ids[0]), [(1, true)], "`collect` writes no line");
    let other = ["grade", "s", "--only", "input=i1"];
    assert!(sweep(&sandbox, &other).expect_code(0).stdout.starts_with("nothing to grade"));
    let graded = sweep(&sandbox, &["grade", "s"]).expect_code(0);
    assert_eq!(graded.stdout, "graded 1 run: g 1 passed\n");
    assert_eq!(epochs(&sandbox, &ids[0]), [(1, true), (2, true)]);
    let line = collected(&sandbox, &ids[0]).unwrap();
    assert_eq!(
        (&line["result"], &line["grades"]["g"]["score"]),
        (&"said more".into(), &1.0.into())
    );
}

#[test]
fn a_run_that_is_continued_at_the_moment_is_not_settled() {
    let (sandbox, ids) = settled_sweep();
    let arguments = ["continue", &*ids[0], "-w", "s", "-q", "-m", "wait"];
    let child = sandbox.delta(arguments).spawn();
    until("the tool", || sandbox.path("started").exists().then_some(()));
    assert!(sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout.starts_with("nothing"));
    sweep(&sandbox, &["collect", "s"]).expect_code(3);
    let pool = sandbox.delta(["sweep", "run", "s"]).spawn();
    sandbox.write("go", "");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    let pool = pool.wait_with_output().unwrap();
    assert_eq!(pool.status.code(), Some(0), "{pool:?}");
    assert_eq!(epochs(&sandbox, &ids[0]), [(1, true), (2, true)]);
    assert_eq!(status(&sandbox)["settled"], 2);
}
