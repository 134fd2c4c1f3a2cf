//! Result lines, `status`, `collect` and `gc`.

use super::{acting_sandbox, effects, planned, result_lines, status, sweep, write_sweep};
use std::fs;

#[test]
fn c_26_2_lines_that_were_torn_or_lost_are_found_again() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 6, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let file = format!("s/results/{}", sandbox.files("s/results")[0]);
    let whole = sandbox.read(&file);
    let lines: Vec<&str> = whole.lines().collect();
    // One line is lost, one was changed, and the last one is torn.
    let changed = lines[1].replacen("COMPLETED", "FAILED", 1);
    let torn = &lines[5][..lines[5].len() / 2];
    sandbox.write(&file, format!("{changed}\n{}\n{}\n{}\n{torn}", lines[2], lines[3], lines[4]));
    let found = status(&sandbox);
    assert_eq!((found["settled"].as_u64(), found["damaged_lines"].as_u64()), (Some(3), Some(1)));
    // `collect` looks into the directories of runs without a line, and writes nothing.
    let collected = sweep(&sandbox, &["collect", "s", "-o", "-"]).expect_code(0).stdout;
    assert_eq!(collected.lines().count(), 6);
    assert!(collected.lines().all(|line| line.contains("COMPLETED")), "{collected}");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert_eq!(effects(&sandbox).len(), 6);
    assert!(effects(&sandbox).values().all(|count| *count == 1));
    assert_eq!(status(&sandbox)["settled"], 6);
    assert_eq!(result_lines(&sandbox).iter().filter(|line| line["settled"] == true).count(), 7);
}

#[test]
fn collect_writes_csv_that_other_programs_read() {
    let sandbox = acting_sandbox();
    sandbox.write("agent/script.yaml", "turns:\n  - say: \"a, \\\"b\\\"\\nc\"\n");
    write_sweep(&sandbox, 2, 2, "params: {style: [x]}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(3);
    assert_eq!(sandbox.read("r.csv").lines().count(), 1);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let text = sandbox.read("r.csv");
    assert!(text.starts_with("n,id,agent,model,input,group,repeat,param.style,status,"), "{text}");
    assert_eq!(text.matches("\"a, \"\"b\"\"\nc\"").count(), 4, "{text}");
    sweep(&sandbox, &["collect", "s", "-o", "r.txt"]).expect_code(2);
    let table = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(table.starts_with("agent  style  completed"), "{table}");
    assert!(table.contains("4 of 4"), "{table}");
}

#[test]
fn the_status_fits_into_a_terminal_and_is_repainted_in_place() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let mut watching = sandbox
        .delta(["sweep", "status", "s", "--watch", "--interval", "100ms"])
        .env("TERM", "xterm")
        .wholly_at_terminal_of(80, 24);
    watching.expect("not started 3");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let (code, screen) = watching.end_with_screen();
    assert_eq!(code, 0, "{screen:?}");
    assert_eq!(screen.len(), 2, "{screen:?}");
    assert!(screen[0].starts_with("3 of 3 settled  [####################]"), "{screen:?}");
    assert_eq!(screen[1].trim_end(), "COMPLETED 3");
}

#[test]
fn gc_removes_only_what_no_plan_names() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let before = sandbox.files("s");
    assert_eq!(sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(0).stdout, "");
    sandbox.write("s/runs/ab/other.ab00000000000000/file", "x");
    sandbox.write("s/agents/0123/agent.yaml", "x");
    sandbox.write("s/runs/ab/.young.tmp/file", "x");
    let listed = sweep(&sandbox, &["gc", "s"]).expect_code(0).stdout;
    assert_eq!(listed, "s/agents/0123\ns/runs/ab/other.ab00000000000000\n");
    assert!(sandbox.path("s/agents/0123").exists());
    sweep(&sandbox, &["gc", "s", "--yes"]).expect_code(0);
    fs::remove_dir_all(sandbox.path("s/runs/ab/.young.tmp")).unwrap();
    assert_eq!(sandbox.files("s"), before);
    assert_eq!(planned(&sandbox).len(), 2);
}
