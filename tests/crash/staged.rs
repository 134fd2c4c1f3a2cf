//! Staged runs, `delta apply` and `delta discard` killed or failed at each of their durable operations: an apply is whole or
//! not begun, no change is lost, and nothing is left behind.

use super::*;
use std::os::unix::fs::PermissionsExt;
use test_support::needs;

const TOOLS: &str = "  - {name: do, exec: 'sh -c ${script}'}\n";
const TURNS: &str = "- call: [{tool: do, args: {script: 'rm -r old; echo 2 > changed; mkdir -p new/deep; echo n > new/deep/n; chmod 700 changed; mkdir -m 0500 locked'}}]\n\
                     - say: done\n- say: again\n";

fn unstaged() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.write("work/old/file", "o\n");
    sandbox.write("work/changed", "1\n");
    sandbox
}

/// A staged run that has ended; `None` if this machine refuses stages.
fn staged() -> Option<Sandbox> {
    let sandbox = unstaged();
    let ran = sandbox.run("go", &["--stage"]);
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return None;
    }
    ran.expect_code(0);
    Some(sandbox)
}

/// The files of the workspace with their contents, without runs.
fn files(sandbox: &Sandbox) -> Vec<(String, String)> {
    let names = sandbox.files("work").into_iter().filter(|name| !name.starts_with(".delta"));
    names.map(|name| (name.clone(), sandbox.read(&format!("work/{name}")))).collect()
}

fn command(sandbox: &Sandbox, command: &str) -> Delta {
    sandbox.delta([command, "r", "-w", "work"])
}

fn resumed(sandbox: &Sandbox) -> Delta {
    sandbox.delta(["continue", "r", "-w", "work", "-m", "more"])
}

fn check_end(sandbox: &Sandbox, fault: &str) {
    let left = sandbox.files("work");
    let is_leftover = |name: &&String| name.contains("cleared-stage") || name.contains("restore");
    assert_eq!(left.iter().find(is_leftover), None, "{fault}");
    assert_eq!(sandbox.events("APPLY").len(), sandbox.events("APPLY_END").len(), "{fault}");
}

/// How many durable operations a command has.
fn count_operations(sandbox: &Sandbox, victim: &str) -> usize {
    let count = sandbox.path("count");
    command(sandbox, victim).env("DELTA_FAILPOINT_COUNT", &count).output().expect_code(0);
    let count = fs::read(count).unwrap().len();
    assert!(count > 8, "only {count} operations");
    count
}

fn sweep(victim: &str, next: &str, mode: &str) {
    let Some(sandbox) = staged() else { return };
    let old = files(&sandbox);
    let count = count_operations(&sandbox, victim);
    let applied = staged().unwrap();
    command(&applied, "apply").output().expect_code(0);
    let new = files(&applied);
    each((1..=count).collect(), |number| {
        let sandbox = staged().unwrap();
        let fault = format!("{mode}:{number}");
        let ran = command(&sandbox, victim).env("DELTA_FAILPOINT", &fault).output();
        assert!([-1, 0, 1, 126].contains(&ran.code), "{fault}: {ran:?}");
        let has_begun = !sandbox.events("APPLY").is_empty();
        let before = files(&sandbox);
        match next {
            "continue" => resumed(&sandbox).output().expect_code(0),
            next => command(&sandbox, next).output().expect_code(0),
        };
        let is_new = has_begun || next == "apply" && sandbox.events("DISCARD").is_empty();
        if next == "discard" && has_begun {
            check_discarded_rest(&sandbox, before, &new, &fault);
        } else {
            let expected = if is_new { &new } else { &old };
            assert_eq!(&files(&sandbox), expected, "{fault}");
        }
        check_end(&sandbox, &fault);
    });
    println!("{mode} in {victim}, then {next}: {count} operations");
}

/// A discard after an interrupted apply applies nothing more, and what it discards comes back.
fn check_discarded_rest(
    sandbox: &Sandbox,
    mut before: Vec<(String, String)>,
    new: &[(String, String)],
    fault: &str,
) {
    before.retain(|(name, _)| !name.contains(".delta-restore"));
    assert_eq!(files(sandbox), before, "{fault}");
    command(sandbox, "diff").output().expect_code(0);
    if let Some(discard) = sandbox.events("DISCARD").first() {
        let saved = discard["saved"].as_str().unwrap();
        sandbox.delta(["rollback", "r", "-w", "work", "--to", saved]).output().expect_code(0);
        assert_eq!(files(sandbox), before, "{fault}");
        command(sandbox, "apply").output().expect_code(0);
    }
    assert_eq!(files(sandbox), new, "{fault}");
}

#[test]
fn c_32_2_an_apply_that_dies_is_finished_by_the_next_process_or_has_not_begun() {
    sweep("apply", "apply", "abort");
    sweep("apply", "continue", "abort");
    sweep("apply", "apply", "enospc");
}

#[test]
fn c_32_2_a_discard_applies_nothing_more_of_an_apply_that_died() {
    sweep("apply", "discard", "abort");
}

#[test]
fn c_32_4_a_discard_may_die_anywhere() {
    sweep("discard", "discard", "abort");
    sweep("discard", "continue", "abort");
    sweep("discard", "apply", "enospc");
}

#[test]
fn c_32_2_a_file_edited_after_an_apply_died_keeps_its_staged_change() {
    let Some(sandbox) = staged() else { return };
    let count = count_operations(&sandbox, "apply");
    let new = files(&sandbox);
    for next in ["apply", "continue"] {
        each((1..=count).collect(), |number| {
            let sandbox = staged().unwrap();
            let fault = format!("abort:{number}");
            command(&sandbox, "apply").env("DELTA_FAILPOINT", &fault).output();
            let is_applied = !sandbox.events("APPLY_END").is_empty()
                || !sandbox.path("work/.delta/r/stage").exists();
            sandbox.write("work/changed", "mine\n");
            let shown = command(&sandbox, "diff").output();
            let has_change = shown.stdout.contains("+2\n");
            assert_eq!(has_change, !is_applied, "{fault}: {shown:?}");
            match next {
                "continue" => drop(resumed(&sandbox).output().expect_code(0)),
                next => {
                    let code = i32::from(!is_applied);
                    command(&sandbox, next).output().expect_code(code);
                }
            }
            assert_eq!(sandbox.read("work/changed"), "mine\n", "{fault}");
            let forced = ["apply", "r", "-w", "work", "--overwrite"];
            sandbox.delta(forced).output().expect_code(0);
            if is_applied {
                assert_eq!(sandbox.read("work/changed"), "mine\n", "{fault}");
            } else {
                assert_eq!(files(&sandbox), new, "{fault}");
            }
            check_end(&sandbox, &fault);
        });
    }
}

/// The processes with a path in `work` among their arguments.
fn helpers_of(work: &str) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let arguments = |process: fs::DirEntry| fs::read(process.path().join("cmdline")).ok();
    let arguments = processes.filter_map(arguments);
    let arguments = arguments.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    arguments.filter(|line| line.contains(work)).collect()
}

/// What a staged run must not leave: a mount, or a process with the run's directory in its arguments or environment.
fn check_nothing_is_left(sandbox: &Sandbox) {
    let work = sandbox.path("work").canonicalize().unwrap();
    let work = work.to_str().unwrap();
    no_tool_is_left(sandbox);
    until("the end of the helper", || helpers_of(work).is_empty().then_some(()));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(work), "{mounts}");
}

fn check_removal(sandbox: &Sandbox) {
    if sandbox.path("work/.delta/r").exists() {
        sandbox.delta(["rm", "r", "-w", "work", "-y"]).output().expect_code(0);
    }
    let left = sandbox.files("work/.delta");
    assert!(!left.iter().any(|name| name.contains("/stage")), "{left:?}");
}

#[test]
fn c_32_1_a_staged_run_that_dies_anywhere_changes_and_leaves_nothing() {
    let Some(sandbox) = staged() else { return };
    let old = files(&sandbox);
    let sandbox = unstaged();
    let count = sandbox.path("count");
    let victim = sandbox.run_command("go", &["--stage"]);
    victim.env("DELTA_FAILPOINT_COUNT", &count).output().expect_code(0);
    let count = fs::read(count).unwrap().len();
    each((1..=count).collect(), |number| {
        let sandbox = unstaged();
        let fault = format!("abort:{number}");
        sandbox.run_command("go", &["--stage"]).env("DELTA_FAILPOINT", &fault).output();
        check_nothing_is_left(&sandbox);
        assert_eq!(files(&sandbox), old, "{fault}");
        let again = sandbox.run_command("go", &["--stage", "--ensure"]).output();
        assert!([0, 1].contains(&again.code), "{fault}: {again:?}");
        check_nothing_is_left(&sandbox);
        assert_eq!(files(&sandbox), old, "{fault}");
        check_removal(&sandbox);
    });
}

#[test]
fn c_32_1_a_process_killed_while_it_mounts_its_stage_leaves_nothing() {
    let began = std::time::Instant::now();
    if staged().is_none() {
        return;
    }
    let whole = u64::try_from(began.elapsed().as_micros()).unwrap();
    each((0..40).collect(), |round| {
        let sandbox = unstaged();
        let micros = whole * u64::try_from(round).unwrap() / 40;
        kill_after(sandbox.run_command("go", &["--stage"]), micros);
        check_nothing_is_left(&sandbox);
        assert_eq!(sandbox.read("work/changed"), "1\n");
        let modes = sandbox.path("work/.delta/r/stage/work/work");
        if let Ok(metadata) = fs::metadata(modes) {
            // The kernel's directory, which the removal has to cope with.
            assert_eq!(metadata.permissions().mode() & 0o777, 0);
        }
        check_removal(&sandbox);
    });
}

const ASKING_TOOLS: &str = "  - {name: do, exec: 'sh -c ${script}', stage: ask}\n";

/// A run whose only call waits for a decision about what it has changed, or a new one; `None` if this machine refuses
/// stages.
fn asking(waits: bool, options: &[&str]) -> Option<Sandbox> {
    let turns = TURNS.replace("- say: again\n", "");
    let sandbox = Sandbox::scripted(DELTA, ASKING_TOOLS, &turns);
    sandbox.write("work/old/file", "o\n");
    sandbox.write("work/changed", "1\n");
    let ran = waits.then(|| sandbox.run("go", options));
    if let Some(ran) = ran.filter(|ran| ran.code != 101) {
        needs::skip(&ran.stderr);
        return None;
    }
    Some(sandbox)
}

fn answered(sandbox: &Sandbox, answer: &str) -> Delta {
    sandbox.delta(["continue", "r", "-w", "work", "-m", answer, "--format", "raw"])
}

/// Continues the run with `answer` to what it asks until it has its result.
fn answer_to_the_end(sandbox: &Sandbox, answer: &str) {
    for _ in 0..6 {
        let ran = resume(sandbox, &[]);
        let ran = if ran.stderr.contains("WAITING_FOR_INPUT") {
            answered(sandbox, answer).output()
        } else if ran.stderr.contains("Run is FAILED") {
            resume(sandbox, &["-m", "try again"])
        } else if ran.stderr.contains("never began") || ran.stderr.contains("there is no run") {
            sandbox.run("go", &["--format", "raw"])
        } else if ran.stderr.contains("has no task") {
            resume(sandbox, &["-m", "go"])
        } else {
            ran
        };
        if ran.code == 0 || ran.stderr.contains("Run is COMPLETED") {
            return;
        }
    }
    panic!("the run does not come to an end:\n{}", sandbox.read("work/.delta/r/journal.jsonl"));
}

fn sweep_of_call(mode: &str, answer: Option<&str>, options: &[&str]) {
    let Some(sandbox) = asking(true, options) else { return };
    let old = files(&sandbox);
    answered(&sandbox, "yes").output().expect_code(0);
    let is_staged = options.contains(&"--stage");
    if is_staged {
        assert_eq!(files(&sandbox), old);
        command(&sandbox, "apply").output().expect_code(0);
    }
    let new = files(&sandbox);
    let victim = |sandbox: &Sandbox| match answer {
        None => sandbox.run_command("go", &["--format", "raw"]),
        Some(answer) => answered(sandbox, answer),
    };
    let sandbox = asking(answer.is_some(), options).unwrap();
    let count = sandbox.path("count");
    victim(&sandbox).env("DELTA_FAILPOINT_COUNT", &count).output();
    let count = fs::read(count).unwrap().len();
    assert!(count > 8, "only {count} operations");
    each((1..=count).collect(), |number| {
        let sandbox = asking(answer.is_some(), options).unwrap();
        let fault = format!("{mode}:{number}");
        victim(&sandbox).env("DELTA_FAILPOINT", &fault).output();
        if answer.is_none() {
            assert_eq!(files(&sandbox), old, "{fault}");
        }
        answer_to_the_end(&sandbox, answer.unwrap_or("yes"));
        check_journal(&sandbox);
        if is_staged {
            assert_eq!(files(&sandbox), old, "{fault}");
            command(&sandbox, "apply").output().expect_code(0);
        }
        let observation = &sandbox.observations()[0];
        let is_unknown = observation.contains("whether it took effect");
        assert!(answer.is_none() || !is_unknown, "{fault}: {observation}");
        let is_old = is_unknown || answer.is_some_and(|answer| answer != "yes");
        assert_eq!(files(&sandbox), if is_old { old.clone() } else { new.clone() }, "{fault}");
        let decisions = sandbox.events("APPROVAL_DECISION").len();
        assert_eq!(decisions, usize::from(!is_unknown), "{fault}: asked twice");
        let left = sandbox.files("work");
        let is_leftover = |name: &&String| name.contains("-stage") || name.contains("restore");
        if !is_unknown {
            assert_eq!(left.iter().find(is_leftover), None, "{fault}");
        }
        check_nothing_is_left(&sandbox);
    });
    println!("{mode} in a staged call, answer {answer:?} {options:?}: {count} operations");
}

#[test]
fn c_32_8_a_staged_call_may_die_anywhere_before_its_question() {
    sweep_of_call("abort", None, &[]);
}

#[test]
fn c_32_8_an_approved_call_is_applied_once_wherever_the_engine_dies() {
    sweep_of_call("abort", Some("yes"), &[]);
    sweep_of_call("abort", Some("yes"), &["--stage"]);
    sweep_of_call("enospc", Some("yes"), &[]);
}

#[test]
fn c_32_8_a_denied_call_leaves_nothing_wherever_the_engine_dies() {
    sweep_of_call("abort", Some("no: not this"), &[]);
}

#[test]
fn c_32_8_the_decision_is_durable_before_the_first_change() {
    let Some(sandbox) = asking(true, &[]) else { return };
    let old = files(&sandbox);
    let victim = |sandbox: &Sandbox| sandbox.run_command("go", &["--approve-all"]);
    let sandbox = asking(false, &[]).unwrap();
    let count = sandbox.path("count");
    victim(&sandbox).env("DELTA_FAILPOINT_COUNT", &count).output().expect_code(0);
    let count = fs::read(count).unwrap().len();
    // The question and what follows it are in the second half.
    let numbers: Vec<usize> = (count / 2..=count).collect();
    let undecided = in_parallel(&numbers, |number| {
        let sandbox = asking(false, &[]).unwrap();
        sandbox.unverified("its run has not ended");
        victim(&sandbox).env("DELTA_FAILPOINT", format!("abort:{number}")).output();
        let is_decided = !sandbox.events("APPROVAL_DECISION").is_empty();
        (!is_decided && files(&sandbox) != old).then_some(*number)
    });
    assert_eq!(undecided.into_iter().flatten().collect::<Vec<_>>(), [0_usize; 0]);
}
