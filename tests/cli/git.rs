//! A workspace in a git repository: git neither commits nor removes what delta keeps there.

use super::DELTA;
use std::fs;
use std::process::Command;
use test_support::sandbox::Sandbox;

const TURNS: &str = "- say: one\n- say: two\n- say: three\n";

/// Runs git in `work/`, with no configuration but its own.
fn git(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(arguments);
    command.current_dir(sandbox.path("work")).env("HOME", sandbox.path("home"));
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().expect("git is there");
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("git prints text")
}

/// A workspace under git, with one file in a commit.
fn repository(sandbox: &Sandbox) {
    sandbox.write("work/kept", "kept\n");
    git(sandbox, &["init", "-q"]);
    git(sandbox, &["add", "-A"]);
    git(sandbox, &["commit", "-q", "-m", "first"]);
}

// `git add -A` committed journals and snapshots; `git clean -fd` and `git stash -u` removed a live run, and a session with it.
#[test]
fn c_5_1_git_neither_commits_nor_removes_a_run() {
    let sandbox = Sandbox::scripted(DELTA, "", TURNS);
    repository(&sandbox);
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    assert_eq!(sandbox.read("work/.delta/.gitignore"), "*\n");
    assert_eq!(git(&sandbox, &["status", "--porcelain"]), "");
    git(&sandbox, &["add", "-A"]);
    assert_eq!(git(&sandbox, &["ls-files"]), "kept\n");
    sandbox.write("work/new", "new\n");
    git(&sandbox, &["stash", "-q", "-u"]);
    git(&sandbox, &["clean", "-q", "-f", "-d"]);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(0);
    let list = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output();
    assert_eq!(list.expect_code(0).json().as_array().unwrap().len(), 1);
    let rollback = sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output();
    rollback.expect_code(0);
    assert_eq!(sandbox.read("work/.delta/.gitignore"), "*\n");
}

// A directory of runs from before, and one in which an engine was killed between making the file and writing it.
#[test]
fn c_5_1_a_directory_of_runs_without_a_gitignore_gets_one() {
    let sandbox = Sandbox::scripted(DELTA, "", TURNS);
    let path = sandbox.path("work/.delta/.gitignore");
    sandbox.run("go", &[]).expect_code(0);
    for empty in [false, true] {
        let spoil = || match empty {
            true => fs::write(&path, "").unwrap(),
            false => fs::remove_file(&path).unwrap(),
        };
        spoil();
        sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "*\n");
        spoil();
        sandbox
            .delta(["run", "--agent", "agent", "-w", "work", "-m", "go"])
            .output()
            .expect_code(0);
        assert_eq!(fs::read_to_string(&path).unwrap(), "*\n");
    }
    // Who wants runs in git says so in that very file.
    fs::write(&path, "# runs are committed\n").unwrap();
    sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "go"]).output().expect_code(0);
    assert_eq!(fs::read_to_string(&path).unwrap(), "# runs are committed\n");
}
