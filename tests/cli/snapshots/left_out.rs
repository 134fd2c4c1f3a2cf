//! What snapshots leave out (C-16.1), and what a rollback says of it (C-16.3).

use super::{FIRST, TOOLS, command, rollback, turns};
use crate::DELTA;
use rustix::process::geteuid;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::wait::until_line;

#[test]
fn c_16_1_who_does_not_know_the_key_keeps_it_out_too() {
    let key = "sk-0123456789abcdef";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST, "cp sub/creds creds"]));
    sandbox.write("work/sub/creds", format!("k={key}\n"));
    let run = sandbox.run_command("go", &["--snapshots"]).env("DELTA_API_KEY", key).output();
    run.expect_code(0);
    let knowing = ["rollback", "r", "-w", "work", "--to", "1"];
    sandbox.delta(knowing).env("DELTA_API_KEY", key).output().expect_code(0);
    for to in ["0", "2", "1"] {
        command(&sandbox, "diff", &["0", "now"]);
        let ran = rollback(&sandbox, to, &[]).expect_code(0);
        for left in ["creds", "sub/creds"] {
            let told = format!("! the snapshots leave out {left}: it held a key before\n");
            assert_eq!(ran.stderr.matches(&told).count(), 1, "{}", ran.stderr);
            assert_eq!(sandbox.read(&format!("work/{left}")), format!("k={key}\n"));
        }
    }
    for name in sandbox.files("work/.delta") {
        let bytes = fs::read(sandbox.path("work/.delta").join(&name)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(key), "{name}");
    }
    // What was gone, and has come again, is looked at like anything else.
    fs::remove_file(sandbox.path("work/creds")).unwrap();
    rollback(&sandbox, "0", &[]).expect_code(0);
    sandbox.write("work/creds", "none\n");
    rollback(&sandbox, "1", &[]).expect_code(0);
    assert!(!sandbox.path("work/creds").exists());
}

#[test]
fn c_16_2_what_is_in_no_snapshot_stays_and_is_named_when_it_is_gone() {
    let key = "sk-0123456789abcdef";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST]));
    sandbox.write("work/sub/creds", format!("k={key}\n"));
    let run = sandbox.run_command("go", &["--snapshots"]).env("DELTA_API_KEY", key).output();
    run.expect_code(0);
    for to in ["0", "1"] {
        rollback(&sandbox, to, &[]).expect_code(0);
        assert_eq!(sandbox.read("work/sub/creds"), format!("k={key}\n"));
    }
    fs::remove_file(sandbox.path("work/sub/creds")).unwrap();
    for more in [&["-n"][..], &[]] {
        let restored = rollback(&sandbox, "0", more).expect_code(0).stdout;
        let end = ", without sub/creds, which no snapshot contains\n";
        assert!(restored.ends_with(end), "{restored}");
    }
    let json: Value = rollback(&sandbox, "0", &["--format", "json"]).expect_code(0).json();
    assert_eq!(json["gone"], json!(["sub/creds"]));
}

/// A file that a snapshot has and the next one leaves out counted as unchanged: "already matches", and no difference.
#[test]
fn c_16_2_what_a_rollback_does_not_restore_is_named() {
    let key = "sk-0123456789abcdef";
    let script = "cat ../key > conf; rm pipe; mkfifo pipe; rm -r d; mkfifo d; echo x > x";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[script, "rm x"]));
    sandbox.write("key", format!("k = {key}\n"));
    for name in ["conf", "pipe", "d/f"] {
        sandbox.write(&format!("work/{name}"), "before\n");
    }
    let run = sandbox.run_command("go", &["--snapshots"]).env("DELTA_API_KEY", key).output();
    run.expect_code(0);
    let missing = "conf, d, pipe";
    let help = format!(
        "help: a rollback replaces only what it can save first: move {missing} away, and run the same command again\n"
    );
    let ran = rollback(&sandbox, "0", &["-n"]).expect_code(1);
    assert!(
        ran.stdout
            .ends_with(&format!("would not restore to the state before the run: {missing}\n")),
        "{}",
        ran.stdout
    );
    let ran = rollback(&sandbox, "0", &[]).expect_code(1);
    assert_eq!(ran.stdout, format!("not restored to the state before the run: {missing}\n"));
    assert!(ran.stderr.contains(&help), "{}", ran.stderr);
    let json = rollback(&sandbox, "0", &["--format", "json"]).expect_code(1).json();
    assert_eq!(json["not_restored"], json!(["conf", "d", "pipe"]));
    sandbox.write("work/later", "");
    let ran = rollback(&sandbox, "0", &[]).expect_code(1);
    let expected =
        "restored the workspace to the state before the run: 0 changed, 0 created, 1 deleted\n";
    assert_eq!(
        ran.stdout,
        format!("{expected}not restored to the state before the run: {missing}\n")
    );
    for name in ["conf", "pipe", "d"] {
        fs::remove_file(sandbox.path("work").join(name)).unwrap();
    }
    let ran = rollback(&sandbox, "0", &[]).expect_code(0);
    assert!(ran.stdout.contains("4 created"), "{}", ran.stdout);
    assert_eq!(sandbox.read("work/conf"), "before\n");
}

#[test]
fn c_16_4_what_a_snapshot_leaves_out_differs_from_what_the_other_one_has() {
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS,
        &turns(&["rm f; mkfifo f; mkfifo other", "rm f; echo b > f"]),
    );
    sandbox.write("work/f", "a\n");
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    let diff = |args: &[&str]| command(&sandbox, "diff", args);
    diff(&["0", "1"]).expect(1, "f differs; its new content is in no snapshot\n", "");
    diff(&["1", "2"]).expect(1, "f differs; its old content is in no snapshot\n", "");
    diff(&["0", "1", "--name-only"]).expect(1, "f\n", "");
    diff(&["0", "1", "--stat"]).expect(1, "f | its new content is in no snapshot\n", "");
}

#[test]
fn c_16_3_a_run_at_work_below_is_left_alone() {
    let turns =
        "- call: [{tool: do, args: {script: echo x > x}}]\n- call: [{tool: hold}]\n- say: ok\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.write("work/below/there", "");
    sandbox.run("go", &["--snapshots", "--max-iterations", "1"]).expect_code(1);
    let gate = sandbox.path("work/below/gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let below = ["run", "--agent", "agent", "-w", "work/below", "--run-id", "s", "-m", "go"];
    let child = sandbox.delta(below).spawn();
    until_line(&sandbox.path("work/below/held"));
    let expected = "error: run s is active in work/below\nhelp: wait for it or stop it; `delta show s -w work/below` shows its progress\n";
    for more in [&["-n"][..], &[]] {
        let refused = rollback(&sandbox, "0", more);
        assert_eq!((refused.code, &*refused.stdout), (1, ""));
        assert!(refused.stderr.ends_with(expected), "{}", refused.stderr);
        assert_eq!(sandbox.read("work/below/held"), "held\n");
    }
    fs::write(&gate, "go\n").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    rollback(&sandbox, "0", &[]).expect_code(0);
    assert!(!sandbox.path("work/below/held").exists());
}

#[test]
fn c_16_4_a_deleted_directory_that_held_an_excluded_file_is_a_difference() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&["mkdir -p logs d; touch logs/a.log"]));
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}snapshots: {{exclude: ['*.log']}}\n"));
    sandbox.run("go", &[]).expect_code(0);
    fs::remove_dir_all(sandbox.path("work/logs")).unwrap();
    command(&sandbox, "diff", &["1", "now"]).expect(1, "Deleted directory logs\n", "");
    command(&sandbox, "diff", &["now", "1"]).expect(1, "New directory logs, mode 0755\n", "");
    // A rollback deletes no path that is in no snapshot, nor the directory around it.
    fs::create_dir(sandbox.path("work/logs")).unwrap();
    sandbox.write("work/logs/b.log", "");
    let ran = rollback(&sandbox, "0", &[]).expect_code(0);
    assert!(ran.stdout.contains("0 changed, 0 created, 1 deleted"), "{}", ran.stdout);
    assert!(sandbox.path("work/logs/b.log").exists());
}

#[test]
fn c_16_4_stat_says_what_happened_to_a_directory() {
    let scripts = ["mkdir -m 755 d e; touch f; chmod 600 f", "rmdir d; chmod 700 e; chmod 644 f"];
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&scripts));
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    let first = "d | new directory, mode 0755\ne | new directory, mode 0755\nf | +0 -0\n0 added, 0 removed\n";
    command(&sandbox, "diff", &["0", "1", "--stat"]).expect(1, first, "");
    let second = "d | deleted directory\ne | directory, mode 0755, now 0700\nf | +0 -0\n0 added, 0 removed\n";
    command(&sandbox, "diff", &["1", "2", "--stat"]).expect(1, second, "");
}

/// Files in `/proc/PID` have no end.
#[test]
fn c_16_1_what_the_kernel_shows_is_left_out_and_other_mounts_are_not() {
    let script = "touch proc/x 2> /dev/null; echo new > memory/new";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[script]));
    for dir in ["work/sub/proc", "work/memory"] {
        fs::create_dir_all(sandbox.path(dir)).unwrap();
    }
    let launcher = format!(
        "unshare {} sh -c 'cd {} && mount --rbind /proc sub/proc && mount -t tmpfs none memory && \
         echo old > memory/old && cd .. && exec \"$0\" \"$@\"'",
        if geteuid().is_root() { "-m" } else { "-Urm" },
        sandbox.path("work").display()
    );
    let sandbox = sandbox.started_by(&launcher);
    if sandbox.delta(["--version"]).output().code != 0 {
        needs::skip("needs to mount a directory");
        return;
    }
    let ran = sandbox.run("go", &["--snapshots"]).expect_code(0);
    let told = "! the snapshots leave out sub/proc: it shows the state of the kernel\n";
    assert_eq!(ran.stderr.matches("! the snapshots leave out").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    let taken = sandbox.events("SNAPSHOT");
    let counts = |at: usize| [&taken[at]["files"], &taken[at]["left_out"]];
    assert_eq!(counts(0), [&json!(1), &json!(1)]);
    assert_eq!(counts(1), [&json!(2), &json!(1)]);
}
