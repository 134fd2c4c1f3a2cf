//! A run directory that was copied to a place of its own: whoever reads a run reads it there too.

use super::DELTA;
use std::fs;
use std::process::Command;
use test_support::sandbox::Sandbox;

/// Run `r`, and its directory as `elsewhere/copy`.
fn copied() -> Sandbox {
    let turns = "- call: [{tool: say, args: {text: a}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, "  - name: say\n    exec: echo ${text}\n", turns);
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(sandbox.path("work/.delta/r")).arg(sandbox.path("elsewhere/copy"));
    assert!(copy.status().unwrap().success());
    sandbox
}

#[test]
fn c_11_2_reading_commands_read_a_run_directory_outside_of_a_workspace() {
    let sandbox = copied();
    let run = |command: &[&str], run: &str, more: &[&str]| {
        let arguments = [command, &[run, "-w", "work"], more].concat();
        sandbox.delta(arguments).output().expect_code(0).stdout
    };
    let reading: [(&[&str], &[&str]); 8] = [
        (&["show"], &[]),
        (&["show"], &["--format", "json"]),
        (&["show"], &["--request", "1"]),
        (&["replay"], &[]),
        (&["export"], &["--to", "atif"]),
        (&["context", "show"], &[]),
        (&["context", "diff"], &["1", "2"]),
        (&["diff"], &["0", "1"]),
    ];
    for (command, more) in reading {
        let original = run(command, "r", more);
        let copy = run(command, "elsewhere/copy", more);
        assert_eq!(copy, original, "{command:?} {more:?}");
    }
    let same = sandbox.delta(["diff", "r", "elsewhere/copy", "-w", "work"]).output();
    same.expect_code(0);
    let page = run(&["view"], "elsewhere/copy", &["-o", "-"]);
    assert!(page.contains("done"));
}

#[test]
fn c_11_2_only_a_run_in_its_workspace_is_changed() {
    let sandbox = copied();
    let before = sandbox.files("elsewhere");
    let changing: [&[&str]; 4] = [
        &["continue", "elsewhere/copy", "-m", "more"],
        &["fork", "elsewhere/copy", "--into", "new"],
        &["rollback", "elsewhere/copy", "--to", "0"],
        &["diff", "elsewhere/copy", "0", "now"],
    ];
    for command in changing {
        let ran = sandbox.delta(command.iter().copied()).output();
        assert!(
            ran.code != 0 && ran.stderr.contains("WORKSPACE/.delta/RUN"),
            "{command:?}: {ran:?}"
        );
    }
    assert_eq!(sandbox.files("elsewhere"), before);
    let ran = sandbox.delta(["show", "agent/"]).output().expect_code(1);
    assert!(ran.stderr.starts_with("error: agent/ is not a run directory\n"), "{ran:?}");
}

#[test]
fn c_11_2_the_commands_that_a_refusal_names_are_about_the_copy() {
    let turns = "- call: [{tool: ask_human, args: {prompt: 'ok?'}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("go", &[]).expect_code(101);
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(sandbox.path("work")).arg(sandbox.path("copy"));
    assert!(copy.status().unwrap().success());
    let refusals = [
        (&["pack", "r", "-w", "copy"][..], 1, "delta answer r -w copy"),
        (&["diff", "r", "-w", "copy", "--call"], 2, "delta show r -w copy"),
    ];
    for (command, code, named) in refusals {
        let refused = sandbox.delta(command).output().expect_code(code).stderr;
        assert!(refused.contains(named), "{refused}");
    }
}
