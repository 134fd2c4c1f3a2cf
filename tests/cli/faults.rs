//! Faults of the system under a run (C-13.6, C-12.6): a full disk, no descriptors, closed streams, vanished directories.
//! The run stops with a clear error and the right exit code, and goes on when the fault is gone.

use super::DELTA;
use super::runs::resume;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

const NOTE: &str =
    "  - name: note\n    shell: echo ${text} >> ${AGENT_HOME}/ledger; echo noted ${text}\n";

/// A file system of its own for `work/`, unmounted when dropped.
struct Mounted<'a>(&'a Sandbox);

impl<'a> Mounted<'a> {
    fn new(sandbox: &'a Sandbox, size: &str) -> Option<Self> {
        fs::create_dir_all(sandbox.path("work")).unwrap();
        let options = format!("size={size},mode=700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "delta-test"]).arg(sandbox.path("work"));
        let there = mount.output().is_ok_and(|output| output.status.success());
        if !there {
            needs::skip("needs to mount a small file system");
        }
        there.then_some(Self(sandbox))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path("work")).status();
    }
}

#[test]
fn c_13_6_a_full_disk() {
    let mut outcomes = Vec::new();
    let mut is_retry_named = false;
    // A tool fills the disk and leaves so many blocks of it free.
    for blocks in 0..16 {
        let fill = format!(
            "{NOTE}  - name: fill\n    shell: cat /dev/zero > filler 2>/dev/null; truncate -s -{} filler; echo full\n",
            blocks * 4096
        );
        let turns = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: fill}]\n\
                     - call: [{tool: note, args: {text: b}}]\n- say: done\n";
        let sandbox = Sandbox::scripted(DELTA, &fill, turns);
        let Some(mounted) = Mounted::new(&sandbox, "300k") else { return };
        let ran = sandbox.run("task", &["--format", "jsonl"]);
        outcomes.push(ran.code);
        if ran.code != 0 {
            assert_eq!(ran.code, 1, "{blocks}: {ran:?}");
            let cause = "No space left on device (os error 28)";
            assert!(
                ran.stderr.contains(cause) && ran.stderr.contains("/work/.delta/r/"),
                "{ran:?}"
            );
            assert!(!ran.stderr.contains("Try again"), "{ran:?}");
            is_retry_named |= ran.stderr.contains(" --retry io");
            let events = ran.stdout.lines().filter(|line| line.starts_with("{\"type\":"));
            let acknowledged: String = events.map(|line| format!("{line}\n")).collect();
            assert!(sandbox.read("work/.delta/r/journal.jsonl").starts_with(&acknowledged));
            // Still full: nothing is lost by trying.
            let again = resume(&sandbox, &["-m", "go on"]);
            assert!(again.code == 1 || again.code == 0, "{again:?}");
            fs::remove_file(sandbox.path("work/filler")).unwrap();
            let freed = finish(&sandbox);
            assert!(freed.stdout == "done\n" || again.stdout == "done\n", "{freed:?}");
        }
        assert_eq!(sandbox.read("agent/ledger"), "a\nb\n", "{blocks} blocks free");
        drop(mounted);
    }
    println!("a full disk with 0 to 15 free blocks: exit codes {outcomes:?}");
    assert!(outcomes.contains(&1) && is_retry_named);
}

/// Continues a run without a message, and with one if it takes that.
fn finish(sandbox: &Sandbox) -> Ran {
    let ran = resume(sandbox, &[]);
    match ran.stderr.contains("provide a message") && !ran.stderr.contains("is COMPLETED") {
        true => resume(sandbox, &["-m", "go on"]),
        false => ran,
    }
}

/// A command through `sh`, which sets the scene for it.
fn through_shell(sandbox: &Sandbox, scene: &str, args: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command.args(["-c", scene, DELTA]).args(args).current_dir(sandbox.path(""));
    command.env("HOME", sandbox.path("home")).stdin(Stdio::null());
    let output = command.output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

const RUN: [&str; 11] =
    ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "task", "--format", "raw"];

#[test]
fn c_13_6_too_few_descriptors() {
    let turns =
        "- call: [{tool: note, args: {text: a}}, {tool: note, args: {text: b}}]\n- say: done\n";
    let mut outcomes = Vec::new();
    for limit in 4..28 {
        let sandbox = Sandbox::scripted(DELTA, NOTE, turns);
        let ran = through_shell(&sandbox, &format!("ulimit -n {limit}; exec \"$0\" \"$@\""), &RUN);
        outcomes.push(ran.code);
        if ran.code != 0 {
            assert!([1, 126, 127].contains(&ran.code), "{limit}: {ran:?}");
            assert!(ran.stderr.contains("open files"), "{limit}: {ran:?}");
        }
        // With enough of them the run goes on, or begins.
        let mut last = resume(&sandbox, &[]);
        if last.stderr.contains("Run is FAILED") {
            last = resume(&sandbox, &["-m", "go on"]);
        } else if last.stderr.contains("Run is COMPLETED") {
            last = ran;
        } else if last.code != 0 {
            last = sandbox.run("task", &["--format", "raw"]);
        }
        assert_eq!((last.code, last.stdout.as_str()), (0, "done\n"), "{limit}: {}", last.stderr);
        let ledger = fs::read_to_string(sandbox.path("agent/ledger")).unwrap_or_default();
        assert!(["", "a\n", "b\n", "a\nb\n"].contains(&ledger.as_str()), "{limit}: {ledger}");
        assert_eq!(sandbox.observations().len(), 2);
    }
    println!("4 to 27 descriptors: exit codes {outcomes:?}");
    assert!(outcomes.contains(&0) && outcomes.iter().any(|code| *code != 0));
}

#[test]
fn c_12_6_closed_and_full_streams_leave_the_run_unharmed() {
    let turns = "- call: [{tool: note, args: {text: a}}]\n- say: done\n";
    let cases = [
        ("exec \"$0\" \"$@\" >&-", 0, ""),
        ("exec \"$0\" \"$@\" 2>&-", 0, "done\n"),
        ("exec \"$0\" \"$@\" >&- 2>&- <&-", 0, ""),
        ("exec \"$0\" \"$@\" 2>/dev/full", 0, "done\n"),
        ("exec \"$0\" \"$@\" >/dev/full", 1, ""),
    ];
    for (scene, code, stdout) in cases {
        let sandbox = Sandbox::scripted(DELTA, NOTE, turns);
        let ran = through_shell(&sandbox, scene, &RUN);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, stdout), "{scene}: {}", ran.stderr);
        assert_eq!(sandbox.metadata()["status"], "COMPLETED", "{scene}");
        assert_eq!(sandbox.read("agent/ledger"), "a\n");
        if scene.ends_with("/dev/full") && code == 1 {
            let said = "error: could not write the result to stdout: No space left on device (os error 28)\n";
            assert!(ran.stderr.contains(said), "{}", ran.stderr);
        }
    }
    // A reader that has gone away, from the first event on.
    let sandbox = Sandbox::scripted(DELTA, NOTE, turns);
    let mut child = sandbox.run_command("task", &["--format", "jsonl"]).spawn();
    drop(child.stdout.take());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
}

#[test]
fn c_12_6_output_that_a_full_disk_loses_is_an_error() {
    let sandbox = Sandbox::scripted(DELTA, NOTE, "- say: done\n");
    sandbox.run_command("task", &["-q"]).output().expect_code(0);
    let commands: [&[&str]; 11] = [
        &["list-runs", "-w", "work"],
        &["list-runs", "-w", "work", "--format", "json"],
        &["show", "r", "-w", "work"],
        &["show", "r", "-w", "work", "--format", "json"],
        &["config"],
        &["stop", "r", "-w", "work"],
        &["rm", "r", "-w", "work", "--dry-run"],
        &["man"],
        &["completions", "bash"],
        &["--version"],
        &["rm", "--help"],
    ];
    for arguments in commands {
        let full = through_shell(&sandbox, "exec \"$0\" \"$@\" >/dev/full", arguments);
        let error = "error: could not write to stdout: No space left on device (os error 28)\n";
        assert!(full.stderr.ends_with(error), "{arguments:?}: {}", full.stderr);
        assert_eq!(full.code, 1, "{arguments:?}");
        // A reader that has gone away is none.
        through_shell(&sandbox, "\"$0\" \"$@\" | true", arguments).expect(0, "", "");
    }
    // Of a comparison, 1 says that something differs.
    let arguments = ["diff", "r", "r", "-w", "work"];
    let full = through_shell(&sandbox, "exec \"$0\" \"$@\" >/dev/full", &arguments);
    assert_eq!(full.code, 2, "{}", full.stderr);
}

#[test]
fn c_13_6_directories_that_vanish_under_the_run() {
    let removals = [
        "rm -rf ${CWD}",
        "rm -rf ${CWD}/.delta",
        "rm -rf ${RUN_DIR}",
        "rm -rf ${RUN_DIR}/io",
        "rm -rf ${RUN_DIR}/journal.jsonl ${RUN_DIR}/io",
    ];
    for removal in removals {
        let tools = format!("{NOTE}  - name: wipe\n    shell: {removal}; echo wiped\n");
        let turns = "- call: [{tool: note, args: {text: a}}, {tool: wipe}]\n\
                     - call: [{tool: note, args: {text: b}}]\n- say: done\n";
        let sandbox = Sandbox::scripted(DELTA, &tools, turns);
        let ran = sandbox.run("task", &["--format", "json"]).expect_code(1);
        assert_eq!(ran.json()["status"], "FAILED", "{removal}");
        assert!(
            ran.stderr.contains("No such file or directory (os error 2)"),
            "{removal}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains("/work/.delta/r/"), "{removal}: {}", ran.stderr);
        assert_eq!(sandbox.read("agent/ledger"), "a\n", "nothing is started after it: {removal}");
        let last = resume(&sandbox, &["-m", "on"]);
        if sandbox.path("work/.delta/r/journal.jsonl").exists() {
            assert_eq!(last.expect_code(0).stdout, "done\n");
        } else {
            assert!([1, 126].contains(&last.code), "{removal}: {last:?}");
            sandbox.write("agent/script.yaml", "turns:\n- say: anew\n");
            let has_trace = sandbox.path("work/.delta/r/metadata.json").exists();
            let again = sandbox.run("task", &[]);
            if has_trace {
                assert_eq!(again.code, 1, "{removal}: {again:?}");
                assert!(again.stderr.contains("has lost its events"), "{removal}: {again:?}");
                sandbox.delta(["rm", "r", "-w", "work"]).output().expect_code(0);
                sandbox.run("task", &[]).expect_code(0);
            } else {
                again.expect_code(0);
            }
        }
    }
}

#[test]
fn c_13_6_a_directory_that_turns_read_only_under_the_run() {
    for part in ["io/tool_executions", "io/invocations", "."] {
        // Root writes wherever it likes, but on a read-only file system.
        let cover = format!(
            "mount --bind ${{RUN_DIR}}/{part} ${{RUN_DIR}}/{part} && mount -o remount,bind,ro ${{RUN_DIR}}/{part}"
        );
        let tools = format!("{NOTE}  - name: cover\n    shell: {cover}\n");
        let turns = "- call: [{tool: note, args: {text: a}}, {tool: cover}]\n\
                     - call: [{tool: note, args: {text: b}}]\n- say: done\n";
        let sandbox = Sandbox::scripted(DELTA, &tools, turns);
        let ran = sandbox.run("task", &["--format", "raw"]);
        let covered = Command::new("umount").arg(sandbox.path("work/.delta/r").join(part)).output();
        if !covered.is_ok_and(|output| output.status.success()) {
            needs::skip("needs to mount a directory");
            return;
        }
        assert!([1, 126].contains(&ran.code), "{part}: {ran:?}");
        assert!(ran.stderr.contains("Read-only file system (os error 30)"), "{part}: {ran:?}");
        assert!(ran.stderr.contains("/work/.delta/r/"), "{part}: {ran:?}");
        assert_eq!(sandbox.read("agent/ledger"), "a\n", "nothing is started after it: {part}");
        assert_eq!(finish(&sandbox).expect_code(0).stdout, "done\n", "{part}");
        assert_eq!(sandbox.read("agent/ledger"), "a\nb\n", "{part}");
    }
}

#[test]
fn c_13_6_a_run_directory_that_was_moved_away_and_back() {
    let tools = format!("{NOTE}  - name: move\n    shell: mv ${{RUN_DIR}} ${{CWD}}/aside\n");
    let turns = "- call: [{tool: note, args: {text: a}}, {tool: move}]\n- call: [{tool: note, args: {text: b}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    sandbox.run("task", &[]).expect_code(1);
    let gone = resume(&sandbox, &[]).expect_code(1);
    assert!(gone.stderr.contains("there is no run r in "), "{}", gone.stderr);
    fs::rename(sandbox.path("work/aside"), sandbox.path("work/.delta/r")).unwrap();
    assert_eq!(finish(&sandbox).expect_code(0).stdout, "done\n");
    assert_eq!(sandbox.read("agent/ledger"), "a\nb\n");
}

#[test]
fn c_13_6_a_moved_workspace_is_not_said_to_be_gone() {
    let failed = "\n! could not create DIR/work/.delta/r/metadata.json: No such file or directory (os error 2)";
    let moved = |from: &str, to: &str, next: &str| {
        let turns = "- call: [{tool: move}]\n- say: done\n";
        let tools = format!("  - name: move\n    shell: mv {from} {to}\n");
        let sandbox = Sandbox::scripted(DELTA, &tools, turns);
        let ran = sandbox.run("task", &[]).expect_code(1).normal(&sandbox);
        let ends = format!("{failed}\nNote: {next}\n");
        assert!(ran.stderr.ends_with(&ends), "{}", ran.stderr);
        sandbox
    };
    let there = "DIR/work/.delta/r was moved to DIR/work/aside; when it is back: delta continue --run-id r -w DIR/work --retry io";
    moved("${RUN_DIR}", "${CWD}/aside", there);
    let renamed = "the workspace was moved to DIR/new; continue with: delta continue --run-id r -w DIR/new --retry io";
    let sandbox = moved("${CWD}", "../new", renamed);
    let next = ["continue", "--run-id", "r", "-w", "new", "--retry", "io", "--format", "raw"];
    assert_eq!(sandbox.delta(next).output().expect_code(0).stdout, "done\n");
    let gone = "nothing is left to continue: the journal in DIR/work/.delta/r is gone";
    moved("${CWD}", "../x; rm -rf ../x", gone);
}

/// The run ended with 0, and no word about what it had lost.
#[test]
fn c_13_6_a_journal_that_a_tool_took_away_is_named_at_any_end() {
    let dir = "DIR/work/.delta/r";
    let moved = format!("{dir}/journal.jsonl was moved to DIR/work/j");
    for (script, end, code, note) in [
        ("mv ${RUN_DIR}/journal.jsonl ${CWD}/j", "say: done", 0, moved.clone()),
        ("rm ${RUN_DIR}/journal.jsonl", "say: done", 0, format!("the journal in {dir} is gone")),
        (
            "cp ${RUN_DIR}/journal.jsonl ${CWD}/j && mv ${CWD}/j ${RUN_DIR}/journal.jsonl",
            "say: done",
            0,
            format!("events are lost: something replaced or cut the journal in {dir}"),
        ),
        (
            "rm ${RUN_DIR}/journal.jsonl && kill -INT $PPID && exec tail -f /dev/null",
            "say: done",
            130,
            format!("nothing is left to continue: the journal in {dir} is gone"),
        ),
        (
            "mv ${RUN_DIR}/journal.jsonl ${CWD}/j",
            "call: [{tool: ask_human, args: {prompt: Why?}}]",
            101,
            format!("{moved}; when it is back: delta continue --run-id r -w DIR/work"),
        ),
    ] {
        let turns = format!("- call: [{{tool: take}}]\n- {end}\n");
        let tools = format!("  - name: take\n    shell: {script}\n");
        let sandbox = Sandbox::scripted(DELTA, &tools, &turns);
        sandbox.unverified("a tool takes the journal away");
        let ran = sandbox.run("task", &[]).expect_code(code).normal(&sandbox);
        assert!(ran.stderr.ends_with(&format!("\nNote: {note}\n")), "{}", ran.stderr);
        assert!(!ran.stdout.contains("resumes the run"), "{}", ran.stdout);
    }
}

#[test]
fn c_13_6_a_workspace_that_cannot_be_read_is_not_said_to_be_gone() {
    let tools = "  - name: close\n    shell: chmod 000 .\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: close}]\n- say: done\n");
    // Root can read everything, unless it gives that up.
    if !needs::programs(&["setpriv"]) {
        return;
    }
    let is_root = fs::metadata(sandbox.path("agent")).unwrap().uid() == 0;
    let launcher = if is_root { "setpriv --bounding-set=-all --inh-caps=-all" } else { "" };
    let sandbox = sandbox.started_by(launcher);
    let ran = sandbox.run("task", &[]).expect_code(1).normal(&sandbox);
    let note = "\nNote: the journal in DIR/work/.delta/r cannot be read: Permission denied (os error 13); when that is mended: delta continue --run-id r -w DIR/work --retry io\n";
    fs::set_permissions(sandbox.path("work"), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(ran.stderr.ends_with(note), "{}", ran.stderr);
    assert_eq!(resume(&sandbox, &["--retry", "io"]).expect_code(0).stdout, "done\n");
}
