//! `run` and `task`: every run once, whatever is killed, stopped or started twice.

use super::{DELTA, acting_sandbox, effects, planned, result_lines, status, sweep, write_sweep};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::until;

fn settled_once(sandbox: &Sandbox) {
    let lines = result_lines(sandbox);
    let settled: Vec<_> = lines.iter().filter(|line| line["settled"] == true).collect();
    let ids: BTreeSet<_> = settled.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids, planned(sandbox).iter().map(String::as_str).collect());
    assert_eq!(settled.len(), ids.len(), "a run was settled twice");
}

#[test]
fn c_26_2_a_sweep_that_is_started_again_does_nothing_again() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 5, 2, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    assert_eq!(sweep(&sandbox, &["status", "s"]).code, 3);
    let ran = sweep(&sandbox, &["run", "s", "--jobs", "3"]).expect_code(0);
    assert!(ran.stdout.starts_with("10 of 10 finished"), "{}", ran.stdout);
    assert!(effects(&sandbox).values().all(|count| *count == 1));
    assert_eq!(effects(&sandbox).len(), 10);
    let results = result_lines(&sandbox);
    for args in [vec!["run", "s"], vec!["task", "s", "1/3"], vec!["task", "s", "0/1"]] {
        sweep(&sandbox, &args).expect_code(0);
    }
    assert_eq!(result_lines(&sandbox), results);
    assert_eq!(effects(&sandbox).len(), 10);
    sweep(&sandbox, &["status", "s"]).expect_code(0);
    settled_once(&sandbox);
    assert_eq!(sandbox.files("s/workers"), Vec::<String>::new());
}

/// A scratch directory is often behind a link.
#[test]
fn c_28_4_a_sweep_behind_a_link_finds_its_runs_in_the_directory_for_runs() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    fs::create_dir(sandbox.path("real")).unwrap();
    std::os::unix::fs::symlink("real", sandbox.path("link")).unwrap();
    let sweep = |args: &[&str]| {
        let delta = sandbox.delta(["sweep"].iter().chain(args).copied());
        delta.env("DELTA_RUNS_DIR", sandbox.path("runs")).output()
    };
    let link = sandbox.path("link/s").display().to_string();
    let ran = sweep(&["run", "sweep.yaml", "-d", &link]).expect_code(0);
    assert!(ran.stdout.contains("\n2 of 2 finished"), "{}", ran.stdout);
    for dir in [&*link, "link/s", "real/s"] {
        let cost = sweep(&["cost", dir]).expect_code(0).stdout;
        assert!(!cost.contains("not judged"), "{dir}: {cost}");
        assert!(sweep(&["run", dir]).expect_code(0).stdout.starts_with("2 of 2 finished"), "{dir}");
    }
    assert_eq!(effects(&sandbox).values().sum::<usize>(), 2);
}

/// The pool is killed after so many effects, a few times; then it ends.
#[test]
fn c_26_2_a_pool_that_is_killed_loses_nothing_and_repeats_nothing() {
    let kills = if std::env::var_os("DELTA_LONG_TESTS").is_some() { 300 } else { 6 };
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 4 * kills, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let count = || effects(&sandbox).len();
    for round in 0..kills {
        let mut child = sandbox.delta(["sweep", "run", "s", "--jobs", "3", "-q"]).spawn();
        let goal = count() + round % 4;
        until("an effect", || {
            (count() >= goal || child.try_wait().unwrap().is_some()).then_some(())
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
    sweep(&sandbox, &["run", "s", "--jobs", "3"]).expect_code(0);
    settled_once(&sandbox);
    let effects = effects(&sandbox);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    // A call under way when its engine died is unknown, and is not made again.
    assert!(effects.len() >= planned(&sandbox).len() - 3 * kills);
}

#[test]
fn c_26_2_two_pools_share_the_work() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 12, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let start = |args: &[&str]| sandbox.delta(["sweep"].iter().chain(args).copied()).spawn();
    let children = [
        start(&["run", "s", "--jobs", "2", "-q"]),
        start(&["run", "s", "--jobs", "2", "-q"]),
        start(&["task", "s", "1/2", "--jobs", "1", "-q"]),
    ];
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let effects = effects(&sandbox);
    assert_eq!(effects.len(), 12);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert_eq!(status(&sandbox)["completed"], 12);
}

#[test]
fn a_task_works_on_its_share_first_and_on_one_run_alone() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 4, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ids = planned(&sandbox);
    sweep(&sandbox, &["task", "s", &ids[2]]).expect_code(0);
    assert_eq!(effects(&sandbox).keys().cloned().collect::<Vec<_>>(), [ids[2].clone()]);
    let todo = sweep(&sandbox, &["list", "s", "--todo"]).stdout;
    assert_eq!(todo.lines().collect::<Vec<_>>(), [&ids[0], &ids[1], &ids[3]]);
    sweep(&sandbox, &["task", "s", "1/2", "--jobs", "1"]).expect_code(0);
    let order: Vec<_> = sandbox.read("effects").lines().map(str::to_owned).collect();
    assert_eq!(order[1..3], [ids[1].clone(), ids[3].clone()]);
    assert_eq!(order.len(), 4);
    for (part, code) in [("2/2", 2), ("x", 126), ("0/0", 2)] {
        sweep(&sandbox, &["task", "s", part]).expect_code(code);
    }
    let empty = sweep(&sandbox, &["task", "s", "0/0"]).stderr;
    assert!(empty.contains("expected a share from 0/1 to 0/1, found `0/0`"), "{empty}");
}

#[test]
fn a_task_of_one_run_prints_its_status_and_reads_nothing_of_the_others() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 12, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ids = planned(&sandbox);
    // `i1` is the beginning of `i10` and `i11`.
    for _ in 0..2 {
        let done = sweep(&sandbox, &["task", "s", &ids[1]]).expect_code(0);
        assert_eq!(done.stdout, format!("{} COMPLETED\n", ids[1]));
    }
    assert_eq!(effects(&sandbox).len(), 1);
    let missing = sweep(&sandbox, &["task", "s", &ids[1][..ids[1].len() - 1]]).expect_code(126);
    assert!(missing.stderr.contains("the sweep has no run"), "{}", missing.stderr);
    // A second plan of the same runs and more: each id is found where it was planned.
    write_sweep(&sandbox, 13, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let new = planned(&sandbox).pop().unwrap();
    let done = sweep(&sandbox, &["task", "s", &new]).expect_code(0);
    assert_eq!(done.stdout, format!("{new} COMPLETED\n"));
    assert_eq!(status(&sandbox)["completed"], 2);
    // A line of its own that is torn is a line that is missing: the run's directory has what it said.
    let results = fs::read_dir(sandbox.path("s/results")).unwrap();
    for entry in results {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
    }
    sweep(&sandbox, &["task", "s", &ids[1]]).expect_code(0);
    assert_eq!(status(&sandbox)["completed"], 1);
    assert_eq!(effects(&sandbox).len(), 2);
}

#[test]
fn only_selects_runs_by_what_they_are() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 2, "params: {style: [short, long]}\nenv: {STYLE: '${param.style}'}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let count = |only: &str| {
        sweep(&sandbox, &["list", "s", "--only", only]).expect_code(0).stdout.lines().count()
    };
    assert_eq!(count("input=i0"), 4);
    assert_eq!(count("input=i0,i2 repeat=1"), 4);
    assert_eq!(count("param.style=short input=i*"), 6);
    sweep(&sandbox, &["run", "s", "--only", "input=i1 param.style=long"]).expect_code(0);
    assert_eq!(effects(&sandbox).len(), 2);
    sweep(&sandbox, &["run", "s", "--only", "input=nothing"]).expect_code(126);
    sweep(&sandbox, &["run", "s", "--only", "modle=x"]).expect_code(2);
    let comma = sweep(&sandbox, &["list", "s", "--only", "input=i0,nonsense=1"]).expect_code(2);
    let reason =
        "`nonsense=1` after a comma is a pattern of `input`; separate conditions by a space";
    assert!(comma.stderr.contains(reason), "{}", comma.stderr);
    sweep(&sandbox, &["run", "nowhere"]).expect_code(126);
}

#[test]
fn a_status_shows_at_once_what_runs_and_what_was_killed() {
    let sandbox = Sandbox::new(DELTA);
    let started = sandbox.path("started").display().to_string();
    let tool = format!("  - {{name: act, shell: 'touch {started}; exec sleep 1000'}}");
    sandbox.agent("provider: script\n  model: script.yaml", &tool);
    sandbox.write("agent/script.yaml", "turns: [{call: [{tool: act, args: {}}]}, {say: done}]\n");
    write_sweep(&sandbox, 3, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let mut pool = sandbox.delta(["sweep", "run", "s", "--jobs", "1"]).spawn();
    until("the tool", || sandbox.path("started").exists().then_some(()));
    let begin = Instant::now();
    until("the status", || (running_or_silent(&sandbox) == (1, 0)).then_some(()));
    assert!(begin.elapsed() < Duration::from_secs(5), "the file of the pool is written every 10 s");
    pool.kill().unwrap();
    pool.wait().unwrap();
    assert_eq!(running_or_silent(&sandbox), (0, 1));
    let text = sweep(&sandbox, &["status", "s"]).stdout;
    assert!(text.contains("\nno sign of life 1  not started 2\n"), "each run once: {text}");
    assert!(!text.contains("ETA"), "{text}");
    assert_eq!(status(&sandbox)["not_started"], 2);
}

fn running_or_silent(sandbox: &Sandbox) -> (u64, u64) {
    let status = status(sandbox);
    (status["running"].as_u64().unwrap(), status["silent"].as_u64().unwrap())
}

#[test]
fn a_command_without_a_sweep_names_the_one_inside() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 1, 1, "");
    let missing = |arguments: &[&str]| sweep(&sandbox, arguments).expect_code(126).stderr;
    assert!(missing(&["run"]).contains("`delta sweep plan sweep.yaml -d "));
    sweep(&sandbox, &["plan"]).expect_code(0);
    let one = "help: the sweep is in `s`: name it, as in `delta sweep run s`\n";
    for command in ["run", "status", "pack", "grade", "list"] {
        let error = missing(&[command]);
        assert!(error.ends_with(one), "{command}: {error}");
    }
    sweep(&sandbox, &["plan", "-d", "t u"]).expect_code(0);
    let several = "help: sweeps are in `s`, `'t u'`: name one, as in `delta sweep run s`\n";
    assert!(missing(&["run", "."]).ends_with(several), "{}", missing(&["run", "."]));
}

#[test]
fn a_command_for_one_run_is_not_one_of_the_sweep() {
    let sandbox = Sandbox::new(DELTA);
    let tip = |word: &str| sweep(&sandbox, &[word]).expect_code(2).stderr;
    assert!(tip("unpack").contains("tip: use `delta unpack ID -w SWEEP`\n"), "{}", tip("unpack"));
    assert!(tip("show").contains("tip: use `delta show ID -w SWEEP`\n"), "{}", tip("show"));
    assert!(tip("collct").contains("'collect'"), "{}", tip("collct"));
}

#[test]
fn a_run_that_waits_for_a_person_is_reported_and_left() {
    let sandbox = acting_sandbox();
    let turns =
        "turns:\n  - call: [{tool: ask_human, args: {prompt: 'Which?'}}]\n  - say: \"${last}\"\n";
    sandbox.write("agent/script.yaml", turns);
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ran = sweep(&sandbox, &["run", "s"]).expect_code(3);
    assert!(ran.stdout.contains("waiting for a person 2"), "{}", ran.stdout);
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    let waiting = sweep(&sandbox, &["list", "s", "--waiting"]).stdout;
    let ids: Vec<&str> = waiting.lines().collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        let shard = id.rsplit('.').next().unwrap()[..2].to_owned();
        let workspace = format!("s/runs/{shard}/{id}");
        sandbox.delta(["continue", id, "-w", &workspace, "-m", "left"]).output().expect_code(0);
    }
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert!(
        result_lines(&sandbox)
            .iter()
            .filter(|line| line["settled"] == true)
            .all(|line| line["result"] == "left")
    );
    settled_once(&sandbox);
}

#[test]
fn c_26_3_an_endpoint_that_fails_is_tried_again_and_is_never_a_result() {
    let broken = || Answer::error(500, "broken", None).header("retry-after-ms", "0");
    let answers = vec![
        broken(),
        broken(),
        Answer::text("done"),
        broken(),
        broken(),
        broken(),
        Answer::text("done"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(super::DELTA);
    sandbox
        .agent(&format!("model: test-model\n  max_retries: 0\n  base_url: {}", server.url()), "");
    write_sweep(&sandbox, 1, 1, "retry: {attempts: 3}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--jobs", "1"]).expect_code(0);
    let last = result_lines(&sandbox).pop().unwrap();
    assert_eq!((last["status"].as_str(), last["epoch"].as_u64()), (Some("COMPLETED"), Some(3)));
    // Another run fails twice, which is all it may.
    write_sweep(&sandbox, 2, 1, "retry: {attempts: 2}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ran = sweep(&sandbox, &["run", "s", "--jobs", "1"]).expect_code(0);
    assert!(ran.stderr.contains("FAILED, llm"), "{}", ran.stderr);
    let help = "help: 1 run FAILED because of the endpoint, a disk or a source; to try again, raise `retry.attempts`";
    assert!(ran.stderr.contains(help), "{}", ran.stderr);
    sweep(&sandbox, &["run", "s", "--strict"]).expect_code(1);
    assert_eq!(server.requests().len(), 5);
    let last = result_lines(&sandbox).pop().unwrap();
    assert_eq!((last["attempts"].as_u64(), last["settled"].as_bool()), (Some(2), Some(true)));
    let table = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(table.contains("1.00") && table.contains("1 of 2"), "{table}");
    let note = "\n  missing: 1 llm; 0.50 if all score 0, 1.00 if all score 1\n";
    assert!(table.contains(note), "{table}");
    // With more attempts in the next plan it is not settled any more, and is continued.
    write_sweep(&sandbox, 2, 1, "retry: {attempts: 4}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["status", "s"]).expect_code(3);
    let ran = sweep(&sandbox, &["run", "s", "--jobs", "1"]).expect_code(0);
    assert!(!ran.stderr.contains("help:"), "{}", ran.stderr);
    assert_eq!(server.requests().len(), 7);
    let last = result_lines(&sandbox).pop().unwrap();
    assert_eq!((last["status"].as_str(), last["epoch"].as_u64()), (Some("COMPLETED"), Some(4)));
    sweep(&sandbox, &["status", "s"]).expect_code(0);
}

/// Its processes are numbered from 1 again, and its line was not.
#[test]
fn c_26_2_a_run_that_began_again_can_be_corrected_by_hand() {
    let broken = || Answer::error(500, "broken", None).header("retry-after-ms", "0");
    let mut answers: Vec<Answer> = std::iter::repeat_with(broken).take(5).collect();
    answers.push(Answer::text("done"));
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(super::DELTA);
    sandbox
        .agent(&format!("model: test-model\n  max_retries: 0\n  base_url: {}", server.url()), "");
    write_sweep(&sandbox, 1, 1, "retry: {attempts: 2}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let id = &planned(&sandbox)[0];
    let workspace = format!("s/runs/{}/{id}", &id.rsplit('.').next().unwrap()[..2]);
    fs::remove_dir_all(sandbox.path(&workspace)).unwrap();
    write_sweep(&sandbox, 1, 1, "retry: {attempts: 3}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert_eq!((server.requests().len(), status(&sandbox)["failed"].as_u64()), (5, Some(1)));
    sandbox.delta(["continue", "--run-id", id, "-w", &workspace]).output().expect_code(0);
    let collected = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(collected.contains("1 of 1"), "{collected}");
}

/// Without its directory, a run that FAILED was never tried again.
#[test]
fn c_26_2_a_run_that_failed_and_lost_its_directory_is_done_again() {
    let broken = || Answer::error(500, "broken", None).header("retry-after-ms", "0");
    let done = || Answer::text("done");
    let mut answers: Vec<Answer> = std::iter::repeat_with(broken).take(6).collect();
    answers.extend([done(), broken(), done()]);
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(super::DELTA);
    sandbox
        .agent(&format!("model: test-model\n  max_retries: 0\n  base_url: {}", server.url()), "");
    write_sweep(&sandbox, 3, 1, "retry: {attempts: 2}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--jobs", "1"]).expect_code(0);
    sandbox.unverified("a run has no directory");
    sweep(&sandbox, &["pack", "s", "--only", "input=i2"]).expect_code(0);
    let ids = planned(&sandbox);
    let shard = &ids[0].rsplit('.').next().unwrap()[..2];
    fs::remove_dir_all(sandbox.path(&format!("s/runs/{shard}/{}", ids[0]))).unwrap();
    let shown = sweep(&sandbox, &["status", "s"]).expect_code(0).stdout;
    assert!(shown.contains(&ids[0]) && !shown.contains("delta show"), "{shown}");
    let help = "help: 2 runs FAILED because of the endpoint";
    assert!(sweep(&sandbox, &["run", "s"]).stderr.contains(help));
    // The run without a directory begins again, and the packed one stays as it is.
    write_sweep(&sandbox, 3, 1, "retry: {attempts: 4}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let todo = sweep(&sandbox, &["list", "s", "--todo"]).stdout;
    assert_eq!(todo.lines().collect::<Vec<_>>(), ids[..2]);
    sweep(&sandbox, &["task", "s", &ids[0]]).expect_code(0);
    assert_eq!(server.requests().len(), 7);
    sweep(&sandbox, &["run", "s", "--jobs", "1"]).expect_code(0);
    assert_eq!(server.requests().len(), 9);
    assert_eq!(sweep(&sandbox, &["list", "s", "--todo"]).stdout, "");
    assert_eq!(sweep(&sandbox, &["list", "s", "--failed"]).stdout, format!("{}\n", ids[2]));
    let collected = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(collected.contains("2 of 3"), "{collected}");
}

#[test]
fn a_pool_that_is_stopped_leaves_its_runs_in_order() {
    let sandbox = acting_sandbox();
    let started = sandbox.path("started");
    let script = format!("#!/bin/sh\necho \"$$\" >> '{}'\nexec sleep 600\n", started.display());
    sandbox.write_program("act.sh", &script);
    write_sweep(&sandbox, 4, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let child = sandbox.delta(["sweep", "run", "s", "--jobs", "2"]).spawn();
    until("two calls", || (fs::read_to_string(&started).ok()?.lines().count() == 2).then_some(()));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    // The counts are of the time after the runs have left, and nothing works on the rest.
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("INTERRUPTED 2  not started 2\n"), "{shown}");
    assert!(!shown.contains("running") && !shown.contains("ETA"), "{shown}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "next: delta sweep run s\n");
    let lines = result_lines(&sandbox);
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["status"] == "INTERRUPTED" && line["settled"] == false));
    let status = status(&sandbox);
    assert_eq!(
        (status["interrupted"].as_u64(), status["not_started"].as_u64()),
        (Some(2), Some(2))
    );
    sandbox.write_program("act.sh", "#!/bin/sh\necho done\n");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    settled_once(&sandbox);
}

#[test]
fn a_run_that_waits_is_left_with_the_command_that_replies() {
    let sandbox = Sandbox::new(DELTA);
    let tools = "  - {name: act, shell: 'true', approve: ask}";
    sandbox.agent("provider: script\n  model: script.yaml", tools);
    sandbox.write("agent/script.yaml", "turns:\n  - call: [{tool: act}]\n  - say: done\n");
    write_sweep(&sandbox, 1, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ran = sweep(&sandbox, &["run", "s"]).expect_code(3);
    assert!(!ran.stdout.contains("ETA"), "{}", ran.stdout);
    let id = &planned(&sandbox)[0];
    let root = sandbox.path("s").display().to_string();
    let left = format!("{id} remains: it waits for a person: `delta approve {id} -w {root}`\n");
    assert_eq!(ran.stderr, left);
    sandbox.delta(["approve", id, "-w", &root]).output().expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
}

#[test]
fn nothing_begins_that_would_not_end_in_time() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--until", "1m", "--per-run", "2m"]).expect_code(130);
    assert!(effects(&sandbox).is_empty());
    sweep(&sandbox, &["run", "s", "--until", "2000-01-01T00:00:00Z"]).expect_code(130);
    sweep(&sandbox, &["run", "s", "--until", "soon"]).expect_code(2);
    sweep(&sandbox, &["run", "s", "--until", "1h", "--per-run", "1m"]).expect_code(0);
}

#[test]
fn runs_that_cannot_begin_are_an_error_of_the_configuration() {
    let sandbox = Sandbox::new(super::DELTA);
    sandbox.agent("model: gpt-4o", "");
    write_sweep(&sandbox, 3, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ran = sweep(&sandbox, &["run", "s", "--jobs", "1"]).expect_code(126);
    assert!(
        ran.stderr.contains("runs of agent `agent` with model `own` cannot begin"),
        "{}",
        ran.stderr
    );
    assert_eq!(status(&sandbox)["not_started"], 3);
}
