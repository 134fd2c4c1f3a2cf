//! Staged runs (C-32): a run that changes a staged workspace, and the changes that reach the real one by `delta apply`.

use super::DELTA;
use super::runs::{kinds, resume};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until_line;

const TOOLS: &str = "  - {name: do, exec: 'sh -c ${script}'}\n  \
                     - {name: die, shell: 'echo half > half; kill -9 $PPID; exec sleep 1000'}\n";

/// Every kind of change at once.
const CHANGE: &str = "echo two >> f; chmod 755 f; echo new > n; rm -r d; mkdir d; echo z > d/z; rm gone; \
                      ln -sf f link; mv dir.old dir.new; mkdir -m 500 locked; printf 'a\\0b' > binary; pwd";

fn turns(scripts: &[&str]) -> String {
    let turn = |script: &&str| {
        format!("- call: [{{tool: do, args: {}}}]\n- say: done\n", json!({"script": script}))
    };
    scripts.iter().map(turn).collect()
}

pub fn sandbox(scripts: &[&str]) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(scripts));
    for (path, content) in
        [("f", "one\n"), ("d/x", "x\n"), ("gone", "g\n"), ("link", "l\n"), ("dir.old/a", "a\n")]
    {
        sandbox.write(&format!("work/{path}"), content);
    }
    sandbox
}

/// Whether this machine has what a stage needs.
pub fn can_stage() -> bool {
    let sandbox = sandbox(&["true"]);
    let ran = sandbox.run_command("go", &["--stage"]).output();
    if ran.code == 126 {
        needs::skip(&ran.stderr);
    }
    ran.code != 126
}

pub fn staged(scripts: &[&str]) -> Sandbox {
    let sandbox = sandbox(scripts);
    sandbox.run("go", &["--stage"]).expect_code(0);
    sandbox
}

pub fn command(sandbox: &Sandbox, command: &str, more: &[&str]) -> Ran {
    sandbox.delta([command, "r", "-w", "work"].iter().chain(more).copied()).output()
}

pub fn apply(sandbox: &Sandbox, more: &[&str]) -> Ran {
    command(sandbox, "apply", more)
}

/// The files of the workspace, without runs.
fn files(sandbox: &Sandbox) -> Vec<String> {
    let files = sandbox.files("work").into_iter();
    files.filter(|file| !file.starts_with(".delta")).collect()
}

#[test]
fn c_32_1_a_staged_run_changes_nothing_until_it_is_applied() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&[CHANGE]);
    let before = files(&sandbox);
    sandbox.run("go", &["--stage"]).expect_code(0);
    assert_eq!(files(&sandbox), before);
    assert_eq!(sandbox.read("work/f"), "one\n");
    // The tool was in the workspace, under its own name.
    let work = sandbox.path("work").canonicalize().unwrap();
    assert!(sandbox.observations()[0].contains(work.to_str().unwrap()));
    let base = &sandbox.events("ENGINE_START")[0]["config"]["stage"]["base"];
    assert_eq!(*base, sandbox.events("SNAPSHOT")[0]["tree"]);

    let diff = command(&sandbox, "diff", &[]).expect_code(1).stdout;
    for part in [
        "-x\n",
        "+two\n",
        "old mode 100644\nnew mode 100755",
        "Binary files",
        "new file mode 120000",
    ] {
        assert!(diff.contains(part), "{part}: {diff}");
    }
    let applied = apply(&sandbox, &[]).expect_code(0);
    assert!(applied.stdout.starts_with("applied to the workspace: "), "{}", applied.stdout);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    assert_eq!(fs::metadata(sandbox.path("work/f")).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_link(sandbox.path("work/link")).unwrap().to_str(), Some("f"));
    let locked = fs::metadata(sandbox.path("work/locked")).unwrap();
    assert_eq!(locked.permissions().mode() & 0o777, 0o500);
    assert_eq!(sandbox.read("work/dir.new/a"), "a\n");
    for gone in ["gone", "d/x", "dir.old"] {
        assert!(!sandbox.path("work").join(gone).exists(), "{gone}");
    }
    assert!(kinds(&sandbox).ends_with(" ENGINE_END APPLY APPLY_END"), "{}", kinds(&sandbox));
    assert!(!sandbox.path("work/.delta/r/stage").exists());
    command(&sandbox, "diff", &[]).expect_code(0);
    assert_eq!(apply(&sandbox, &[]).expect_code(0).stdout, "nothing to apply\n");
}

#[test]
fn c_32_1_hooks_and_generators_work_in_the_stage() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["echo tool >> f"]);
    sandbox.write_program("agent/add", "#!/bin/sh\necho $1 >> f\n[ ! \"$2\" ] || cat f > \"$2\"\n");
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: ['${AGENT_HOME}/add', hook]}\n");
    let generator = "  - type: computed_file\n    output_path: '${RUN_DIR}/made'\n    \
                     generator: {command: ['${AGENT_HOME}/add', generator, '${RUN_DIR}/made']}\n";
    let context = sandbox.read("agent/context.yaml");
    sandbox.write("agent/context.yaml", context + generator);
    sandbox.run("go", &["--stage"]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\n");
    assert!(sandbox.read("work/.delta/r/made").ends_with("tool\ngenerator\n"));
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ngenerator\ntool\ngenerator\nhook\n");
}

#[test]
fn c_32_2_a_conflict_is_named_and_nothing_is_applied() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; echo new > n; echo y > d/y"]);
    sandbox.write("work/f", "mine\n");
    sandbox.write("work/unrelated", "mine\n");
    let refused = apply(&sandbox, &[]).expect_code(1);
    assert!(refused.stderr.contains("nothing is applied"), "{}", refused.stderr);
    assert!(refused.stderr.contains("\n  f\n"), "{}", refused.stderr);
    assert!(!sandbox.path("work/n").exists());
    assert!(sandbox.events("APPLY").is_empty());
    let diff = command(&sandbox, "diff", &["--name-only"]).expect_code(1);
    assert!(diff.stderr.contains("conflict: f also changed in the workspace"), "{}", diff.stderr);
    // The others can be applied alone, and a misspelled one is an error.
    apply(&sandbox, &["nn"]).expect_code(1);
    let some = apply(&sandbox, &["n", "d"]).expect_code(0);
    assert!(
        some.stdout.contains("2 created, 0 deleted; other changes stay staged"),
        "{}",
        some.stdout
    );
    assert_eq!(sandbox.read("work/n"), "new\n");
    assert_eq!(sandbox.read("work/f"), "mine\n");
    apply(&sandbox, &[]).expect_code(1);
    apply(&sandbox, &["--overwrite"]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    assert_eq!(sandbox.read("work/unrelated"), "mine\n");
}

/// `delta diff --name-only` lists the path, and `delta apply` had nothing to apply.
#[test]
fn c_32_2_a_path_in_what_becomes_or_was_a_directory_is_refused_alone() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["rm f; mkdir f; echo 1 > f/x; rm -r d; echo 2 > d; echo new > n"]);
    let refuse = |paths: &[&str], expected: &str| {
        let refused = apply(&sandbox, paths).expect_code(1);
        assert!(refused.stderr.starts_with(&format!("error: {expected}\n")), "{}", refused.stderr);
    };
    refuse(&["f/x"], "f/x cannot be applied without f, a directory in the stage only");
    refuse(&["n", "d/x"], "d/x cannot be applied without d, a directory in the workspace only");
    assert!(!sandbox.path("work/n").exists());
    apply(&sandbox, &["f/x", "f", "d"]).expect_code(0);
    assert_eq!(sandbox.read("work/f/x"), "1\n");
    assert_eq!(sandbox.read("work/d"), "2\n");
    assert_eq!(apply(&sandbox, &["n"]).expect_code(0).stdout.matches("1 created").count(), 1);

    // The user replaced the directory, which the run did not.
    let sandbox = staged(&["echo two >> d/x"]);
    fs::remove_dir_all(sandbox.path("work/d")).unwrap();
    sandbox.write("work/d", "mine\n");
    let refused = apply(&sandbox, &["d/x"]).expect_code(1);
    assert!(refused.stderr.contains("d/x cannot be applied without d, "), "{}", refused.stderr);
    assert_eq!(sandbox.read("work/d"), "mine\n");
}

/// Root that applied the change of a user's file took the file away from the user.
#[test]
fn c_32_2_an_apply_by_root_leaves_a_file_to_its_owner() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["echo two >> f; echo new > n"]);
    if chown(sandbox.path("work/f"), Some(65534), Some(65533)).is_err() {
        needs::skip("needs root, which writes the files of another user");
        return;
    }
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(sandbox.path("work/f"), mode).unwrap();
    sandbox.run("go", &["--stage"]).expect_code(0);
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    let file = fs::metadata(sandbox.path("work/f")).unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (65534, 65533, 0o640));
    assert_eq!(fs::metadata(sandbox.path("work/n")).unwrap().uid(), 0);
}

#[test]
fn c_32_3_a_continued_run_sees_its_stage_and_an_applied_one_starts_anew() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f", "cat f; echo three >> f", "cat f; echo four >> f"]);
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    assert!(sandbox.observations()[1].contains("one\ntwo"), "{:?}", sandbox.observations());
    assert_eq!(sandbox.read("work/f"), "one\n");
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\nthree\n");
    // What was changed meanwhile does not conflict with what the run does next.
    sandbox.write("work/f", "mine\n");
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    assert!(sandbox.observations()[2].contains("mine"), "{:?}", sandbox.observations());
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "mine\nfour\n");
}

#[test]
fn c_32_3_a_change_after_a_partial_apply_does_not_conflict() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; echo new > n", "echo three >> f"]);
    apply(&sandbox, &["f"]).expect_code(0);
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\nthree\n");
    assert_eq!(sandbox.read("work/n"), "new\n");
}

#[test]
fn c_32_3_what_is_in_no_snapshot_is_named_and_stays_staged() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["mkfifo pipe; echo new > n"]);
    let ran = apply(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.ends_with("; other changes stay staged\n"), "{}", ran.stdout);
    let note = "Note: no snapshot contains pipe, so it stays in the stage\n";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(sandbox.read("work/n"), "new\n");
    assert!(!sandbox.path("work/pipe").exists());
    assert!(sandbox.path("work/.delta/r/stage/upper/pipe").exists());
}

#[test]
fn c_32_4_a_discarded_stage_is_gone_and_can_come_back() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; mkdir -m 0 locked", "cat f"]);
    let discarded = command(&sandbox, "discard", &[]).expect_code(0);
    assert!(!sandbox.path("work/.delta/r/stage").exists());
    command(&sandbox, "diff", &[]).expect_code(0);
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    assert!(!sandbox.observations()[1].contains("two"), "{:?}", sandbox.observations());
    let request = sandbox.read("work/.delta/r/journal.jsonl");
    assert!(request.contains("\"DISCARD\""));
    let saved = sandbox.events("DISCARD")[0]["saved"].as_str().unwrap().to_owned();
    assert!(discarded.stderr.contains(&format!("--to {}", &saved[..12])), "{}", discarded.stderr);
    command(&sandbox, "rollback", &["--to", &saved]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\n", "a rollback changes the stage alone");
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    command(&sandbox, "discard", &[]).expect_code(0);
    // The LLM sees what happened, and so does who reads a trajectory.
    let trajectory = command(&sandbox, "export", &["--to", "atif"]).expect_code(0).json();
    let steps = trajectory["steps"].as_array().unwrap().iter();
    let users = steps.filter(|step| step["source"] == "user");
    let users: Vec<_> = users.map(|step| step["message"].as_str().unwrap().to_owned()).collect();
    let starts = ["go", "[Your changes", "more", "[The working directory"];
    assert_eq!(users.len(), starts.len(), "{users:?}");
    assert!(users.iter().zip(starts).all(|(text, start)| text.starts_with(start)), "{users:?}");
}

#[test]
fn c_32_1_a_rollback_of_a_staged_run_changes_its_stage() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; rm -r d"]);
    command(&sandbox, "rollback", &["--to", "0"]).expect_code(0);
    assert_eq!(apply(&sandbox, &[]).expect_code(0).stdout, "nothing to apply\n");
    let saved = sandbox.events("ROLLBACK")[0]["saved"].as_str().unwrap().to_owned();
    command(&sandbox, "rollback", &["--to", &saved]).expect_code(0);
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    // And the undo of the apply that the command prints.
    let before = sandbox.events("APPLY")[0]["saved"].as_str().unwrap().to_owned();
    command(&sandbox, "rollback", &["--to", &before[..12]]).expect_code(0);
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\n");
    assert_eq!(sandbox.read("work/d/x"), "x\n");
}

#[test]
fn c_32_5_of_several_staged_runs_one_is_applied_and_the_others_conflict() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["echo $$ >> f"]);
    for id in ["a", "b"] {
        let run = ["run", "--agent", "agent", "-w", "work", "--stage", "--run-id", id, "go"];
        sandbox.delta(run).output().expect_code(0);
    }
    sandbox.delta(["apply", "a", "-w", "work"]).output().expect_code(0);
    let refused = sandbox.delta(["apply", "b", "-w", "work"]).output().expect_code(1);
    assert!(refused.stderr.contains("\n  f\n"), "{}", refused.stderr);
    // Below a directory, it discards what there is, and a run is never discarded without its name.
    sandbox.delta(["discard", "-w", "work"]).output().expect_code(2);
    let below = sandbox.delta(["discard", "-r", "work"]).output().expect_code(0);
    assert!(below.stderr.contains("run b"), "{}", below.stderr);
    assert_eq!(sandbox.delta(["discard", "-r", "work"]).output().expect_code(0).stderr, "");
    sandbox.delta(["discard", "b", "a", "-w", "work"]).output().expect_code(0);
}

#[test]
fn c_32_5_staged_runs_work_at_the_same_time_and_none_is_applied_meanwhile() {
    if !can_stage() {
        return;
    }
    let first = "echo held > ../held; cat ../gate";
    let sandbox = sandbox(&[&format!("echo $$ >> f; test -e ../held || {{ {first}; }}")]);
    let made = std::process::Command::new("mkfifo").arg(sandbox.path("gate")).status();
    assert!(made.unwrap().success());
    let run = |id: &str| {
        sandbox.delta(["run", "--agent", "agent", "-w", "work", "--stage", "--run-id", id, "go"])
    };
    let mut working = run("a").spawn();
    until_line(&sandbox.path("held"));
    run("b").output().expect_code(0);
    let apply = || sandbox.delta(["apply", "b", "-w", "work"]).output();
    let refused = apply().expect_code(1);
    let reason = "run a is active in this workspace";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    assert_eq!(sandbox.read("work/f"), "one\n");
    fs::write(sandbox.path("gate"), "go\n").unwrap();
    assert!(working.wait().unwrap().success());
    apply().expect_code(0);
    assert_eq!(sandbox.read("work/f").lines().count(), 2, "the line of run b alone");
}

/// A tool that outlives its engine has its stage, and the files under it, until it has ended.
#[test]
fn c_32_5_nothing_is_applied_discarded_or_rolled_back_under_a_tool_without_its_engine() {
    if !can_stage() {
        return;
    }
    let first = "echo begun > ../begun; until [ -e ../go ]; do sleep 0.02; done; echo late > late";
    let script = format!("echo > made.$$; test -e ../begun || {{ {first}; }}");
    let tools = TOOLS.replace("${script}'", "${script}', survive: true");
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns(&[&script]));
    sandbox.write("work/f", "one\n");
    let run = |id: &str, option: &str| {
        sandbox.delta(["run", "--agent", "agent", "-w", "work", option, "--run-id", id, "go"])
    };
    let refuse = |args: &[&str]| {
        let refused = sandbox.delta(args).output().expect_code(1);
        assert!(refused.stderr.contains("do of run a is at work"), "{}", refused.stderr);
        assert!(refused.stderr.contains("delta stop a -w "), "{}", refused.stderr);
    };
    let mut working = run("a", "--stage").spawn();
    until_line(&sandbox.path("begun"));
    working.kill().unwrap();
    working.wait().unwrap();
    run("b", "--stage").output().expect_code(0);
    run("c", "--snapshots").output().expect_code(0);
    refuse(&["apply", "a", "-w", "work"]);
    refuse(&["apply", "a", "-w", "work", "--dry-run"]);
    refuse(&["discard", "a", "-w", "work"]);
    refuse(&["apply", "b", "-w", "work"]);
    refuse(&["rollback", "c", "-w", "work", "--to", "0"]);
    // What names no run leaves out the one whose tool is at work.
    let below = sandbox.delta(["discard", "-r", "work"]).output().expect_code(0);
    assert!(below.stderr.contains("run b;"), "{}", below.stderr);
    assert!(!below.stderr.contains("run a;"), "{}", below.stderr);
    sandbox.write("go", "");
    sandbox.delta(["continue", "a", "-w", "work"]).output().expect_code(0);
    assert!(!sandbox.path("work/late").exists());
    sandbox.delta(["apply", "a", "-w", "work"]).output().expect_code(0);
    assert_eq!(sandbox.read("work/late"), "late\n");
}

#[test]
fn c_32_1_a_killed_engine_leaves_a_stage_that_the_next_process_continues() {
    if !can_stage() {
        return;
    }
    let script = "- call: [{tool: die, args: {}}]\n- call: [{tool: do, args: {script: 'cat half'}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, script);
    let ran = sandbox.run("go", &["--stage"]);
    assert_ne!(ran.code, 0);
    assert!(!sandbox.path("work/half").exists());
    resume(&sandbox, &[]).expect_code(0);
    assert!(sandbox.observations().iter().any(|text| text.contains("half")));
    assert!(!sandbox.path("work/half").exists());
    // The mounts have ended with the processes.
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(sandbox.path("work").to_str().unwrap()));
    sandbox.delta(["rm", "r", "-w", "work", "-y"]).output().expect_code(0);
    assert!(!sandbox.path("work/.delta/r").exists());
}

#[test]
fn c_32_1_ensure_repeats_a_staged_run_and_refuses_one_that_is_not() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["echo two >> f"]);
    for _ in 0..2 {
        sandbox.run("go", &["--stage", "--ensure"]).expect_code(0);
    }
    assert_eq!(sandbox.events("THOUGHT").len(), 2);
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "plain", "go"];
    sandbox.delta(run).output().expect_code(0);
    let ensure =
        ["run", "--agent", "agent", "-w", "work", "--run-id", "plain", "--ensure", "--stage", "go"];
    let refused = sandbox.delta(ensure).output().expect_code(1);
    assert!(refused.stderr.contains("run plain exists and is not staged"), "{}", refused.stderr);
    let plain = sandbox.delta(["apply", "plain", "-w", "work"]).output().expect_code(1);
    assert!(plain.stderr.contains("run plain is not staged"), "{}", plain.stderr);
}

#[test]
fn c_32_1_a_fork_of_a_staged_run_has_its_files_in_a_workspace_of_its_own() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f"]);
    let fork = ["fork", "r", "-w", "work", "--at", "1", "--run-id", "copy", "--into", "copy"];
    sandbox.delta(fork).output().expect_code(0);
    assert_eq!(sandbox.read("copy/f"), "one\ntwo\n");
    let refused = sandbox.delta(["apply", "copy", "-w", "copy"]).output().expect_code(1);
    assert!(refused.stderr.contains("is not staged"), "{}", refused.stderr);
}

#[test]
fn c_32_6_what_cannot_be_staged_is_refused_before_anything_is_made() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["true"]);
    // A process that has no more namespaces.
    let allowed = fs::read_to_string("/proc/sys/user/max_mnt_namespaces").unwrap_or_default();
    if !rustix::process::geteuid().is_root() || ["", "0"].contains(&allowed.trim()) {
        needs::skip("needs root and a limit of mount namespaces");
        return;
    }
    let script = format!(
        "mkdir -p work/mounted && mount -t tmpfs t work/mounted && exec {DELTA} run --agent agent -w work --stage --run-id m go"
    );
    let mut unshared = std::process::Command::new("unshare");
    unshared.args(["--mount", "sh", "-c", &script]).current_dir(sandbox.path("."));
    unshared.env("HOME", sandbox.path("home"));
    let Ok(output) = unshared.output() else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(1) {
        needs::skip(format!("needs `unshare --mount`: {stderr}"));
        return;
    }
    assert_eq!(output.status.code(), Some(126), "{stderr}");
    assert!(stderr.contains("mounted is a mount in the workspace"), "{stderr}");
    assert!(!sandbox.path("work/.delta").exists());
}

#[test]
fn c_32_6_a_machine_without_namespaces_refuses_a_staged_run() {
    if !can_stage() {
        return;
    }
    let launcher = "unshare --user --map-root-user /bin/sh -c \
                    'echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$0\" \"$@\"'";
    let sandbox = sandbox(&["true"]).started_by(launcher);
    if sandbox.delta(["--version"]).output().code != 0 {
        return needs::skip("needs namespaces that can be refused");
    }
    let refused = sandbox.run("go", &["--stage"]).expect_code(126).stderr;
    for part in ["error: the workspace cannot be staged here: ", "\nhelp: run `sysctl "] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(!sandbox.path("work/.delta").exists());
}

#[test]
fn c_32_7_lists_and_removals_name_the_runs_with_staged_changes() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo new > n"]);
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "plain", "go"];
    sandbox.delta(run).output().expect_code(0);
    let list = ["list-runs", "-w", "work"];
    let text = sandbox.delta(list).output().expect_code(0).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("r ") && line.contains("COMPLETED (staged)")));
    assert!(
        lines.iter().all(|line| !line.starts_with("plain") || !line.contains("staged")),
        "{text}"
    );
    let json = sandbox.delta(list).args(["--format", "json"]).output().expect_code(0).stdout;
    let runs: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    for run in &runs {
        assert_eq!(run["staged"], run["run_id"] == "r", "{json}");
    }
    let remove = ["rm", "r", "-w", "work"];
    let refused = sandbox.delta(remove).output().expect_code(2);
    assert!(refused.stderr.contains("1 run, and the staged changes of 1 run would be removed"));
    assert!(sandbox.path("work/.delta/r").exists());
    let listed = sandbox.delta(remove).args(["--dry-run"]).output().expect_code(0);
    assert!(listed.stdout.contains("(staged)"), "{}", listed.stdout);
    apply(&sandbox, &[]).expect_code(0);
    let applied = sandbox.delta(list).output().expect_code(0).stdout;
    assert!(!applied.contains("staged"), "{applied}");
    sandbox.delta(remove).output().expect_code(0);
}

#[test]
fn c_32_3_a_partial_apply_prints_how_to_undo_it() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; echo new > n"]);
    let before = files(&sandbox);
    let some = apply(&sandbox, &["f"]).expect_code(0).stderr;
    let undo = |text: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("Undo it with: "));
        let commands = line.unwrap().replace("delta ", &format!("{DELTA} "));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &commands]).current_dir(sandbox.path("."));
        shell.env("HOME", sandbox.path("home")).output().unwrap()
    };
    let undone = undo(&some);
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!((files(&sandbox), sandbox.read("work/f").as_str()), (before, "one\n"));
    // What the rollback printed stages everything again.
    assert!(String::from_utf8_lossy(&undone.stdout).contains("restored the stage to "));
    let again = undo(&String::from_utf8_lossy(&undone.stderr));
    assert!(again.status.success(), "{again:?}");
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    assert_eq!(sandbox.read("work/n"), "new\n");
}

/// A user's own file in a directory that the run removed, and his change of a file that the run wrote again as it was, became
/// staged changes by a partial apply, and the next apply deleted or replaced them.
#[test]
fn c_32_3_what_others_changed_stays_after_a_partial_apply() {
    if !can_stage() {
        return;
    }
    let copied = "echo more >> d/x; echo x > d/x; chmod 700 d; chmod 755 d";
    for (script, first, has_file) in [
        ("rm -r d", &["n"][..], false),
        ("rm -r d; mkfifo pipe", &[], false),
        ("rm -r d; mkdir d; echo x > d/x", &["n"], true),
        (copied, &["n"], true),
    ] {
        let sandbox = staged(&[&format!("{script}; echo new > n; echo two >> f")]);
        sandbox.write("work/d/own", "mine\n");
        if has_file {
            sandbox.write("work/d/x", "mine\n");
        }
        apply(&sandbox, first).expect_code(0);
        apply(&sandbox, &[]).expect_code(0);
        assert_eq!(sandbox.read("work/d/own"), "mine\n", "{script}");
        assert_eq!(sandbox.path("work/d/x").exists(), has_file, "{script}");
        if has_file {
            assert_eq!(sandbox.read("work/d/x"), "mine\n", "{script}");
        }
        assert_eq!(sandbox.read("work/n"), "new\n");
        assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    }
}

/// What no snapshot contains and the run replaced was a conflict of every apply, so that nothing could be applied by name.
#[test]
fn c_32_3_what_is_in_no_snapshot_does_not_hinder_an_apply_of_other_paths() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["rm pipe; echo file > pipe; echo two >> f"]);
    let made = std::process::Command::new("mkfifo").arg(sandbox.path("work/pipe")).status();
    assert!(made.unwrap().success());
    sandbox.run("go", &["--stage"]).expect_code(0);
    let refused = apply(&sandbox, &[]).expect_code(1).stderr;
    assert!(refused.contains("\n  pipe\n") && refused.contains("name the paths"), "{refused}");
    let some = apply(&sandbox, &["f"]).expect_code(0).stdout;
    assert!(some.ends_with("; other changes stay staged\n"), "{some}");
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    apply(&sandbox, &["pipe"]).expect_code(1);
}
