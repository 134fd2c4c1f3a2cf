//! Staged runs in other places and states: with packed records, in a workspace that was moved, in memory, on a full disk.

use super::DELTA;
use super::runs::resume;
use super::staged::{apply, can_stage, command, sandbox, staged};
use std::fs;
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

#[test]
fn c_32_1_a_packed_run_keeps_its_stage() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f", "echo three >> f"]);
    let pack = || sandbox.delta(["pack", "-w", "work"]).output().expect_code(0);
    pack();
    assert!(sandbox.path("work/.delta/r/io.pack").exists());
    let diff = command(&sandbox, "diff", &[]).expect_code(1).stdout;
    assert!(diff.contains("+two\n"), "{diff}");
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    pack();
    apply(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\nthree\n");
}

#[test]
fn c_32_1_a_stage_moves_with_its_workspace() {
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; rm gone", "echo three >> f; pwd"]);
    sandbox.unverified("the workspace is moved");
    fs::rename(sandbox.path("work"), sandbox.path("moved")).unwrap();
    let moved = |arguments: &[&str]| {
        sandbox.delta(arguments.iter().chain(&["r", "-w", "moved"]).copied()).output()
    };
    assert!(moved(&["diff"]).expect_code(1).stdout.contains("+two\n"));
    moved(&["continue", "-m", "more"]).expect_code(0);
    assert_eq!(sandbox.read("moved/f"), "one\n");
    let journal = sandbox.read("moved/.delta/r/journal.jsonl");
    let place = sandbox.path("moved").canonicalize().unwrap();
    assert!(journal.contains(&format!("{}\\n", place.display())), "the tool was in the new place");
    moved(&["apply"]).expect_code(0);
    assert_eq!(sandbox.read("moved/f"), "one\ntwo\nthree\n");
    assert!(!sandbox.path("moved/gone").exists());
}

#[test]
fn c_32_1_a_workspace_in_memory_is_staged() {
    let memory = Path::new("/dev/shm");
    let is_memory = rustix::fs::statfs(memory).is_ok_and(|status| status.f_type == 0x0102_1994);
    let Some(dir) = is_memory.then(|| tempfile::tempdir_in(memory).ok()).flatten() else {
        return needs::skip("needs a file system in memory at /dev/shm");
    };
    if !can_stage() {
        return;
    }
    let sandbox = staged(&["echo two >> f; mkdir d; echo x > d/x; cat f"]);
    fs::write(dir.path().join("f"), "one\n").unwrap();
    let work = dir.path().to_str().unwrap();
    let run = ["run", "--agent", "agent", "-w", work, "--run-id", "m", "--stage", "-m", "go"];
    sandbox.delta(run).output().expect_code(0);
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), "one\n");
    sandbox.delta(["diff", "m", "-w", work]).output().expect_code(1);
    sandbox.delta(["apply", "m", "-w", work]).output().expect_code(0);
    assert_eq!(fs::read_to_string(dir.path().join("f")).unwrap(), "one\ntwo\n");
    assert!(dir.path().join("d/x").exists());
}

/// Runs a script in which `work` is a small file system in memory, and `delta` the program.
fn on_a_small_disk(sandbox: &Sandbox, script: &str) -> Option<Ran> {
    let script = format!(
        "mount -t tmpfs -o size=24M t work || exit 99; echo one > work/f; delta() {{ {DELTA} \"$@\"; }}\n{script}"
    );
    let mut unshared = Command::new("unshare");
    let namespaces = if rustix::process::geteuid().is_root() { "-m" } else { "-Urm" };
    unshared.args([namespaces, "sh", "-c", &script]).current_dir(sandbox.path("."));
    unshared.env("HOME", sandbox.path("home"));
    let output = unshared.output().ok()?;
    let ran = Ran::of(output.status, &output.stdout, &output.stderr);
    if ran.code == 99 || ran.stderr.starts_with("unshare: ") {
        needs::skip(format!("needs to mount a disk: {}", ran.stderr));
        return None;
    }
    Some(ran)
}

#[test]
fn c_32_2_a_full_disk_loses_nothing_of_a_staged_run() {
    if !can_stage() {
        return;
    }
    let change = "head -c 3000000 /dev/urandom > large; echo two >> f; echo new > n";
    let sandbox = sandbox(&[change]);
    sandbox.unverified("the disk of its workspace is gone");
    let script = "
delta run --agent agent -w work --run-id s --stage -q -m go > first 2>&1; echo \"run $?\"
cat /dev/zero > work/ballast 2> /dev/null
delta apply s -w work > full 2>&1; echo \"full $?\"
delta diff s -w work --name-only > names 2>&1; echo \"diff $?\"
rm work/ballast
delta apply s -w work > second 2>&1; echo \"apply $?\"
cat work/f work/n; wc -c < work/large
delta diff s -w work > last 2>&1; echo \"rest $?\"";
    let Some(ran) = on_a_small_disk(&sandbox, script) else { return };
    let texts = ["first", "full", "names", "second"].map(|name| sandbox.read(name));
    let expected = "run 0\nfull 1\ndiff 2\napply 0\none\ntwo\nnew\n3000000\nrest 0\n";
    assert_eq!(ran.stdout, expected, "{texts:#?}\n{}", ran.stderr);
    for text in &texts[1..3] {
        assert!(text.contains("No space left on device"), "{text}");
    }
}

#[test]
fn c_32_1_a_staged_tool_that_fills_the_disk_leaves_a_run_that_can_be_removed() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["echo two >> f; cat /dev/zero > large"]);
    sandbox.unverified("the disk of its workspace is gone");
    let script = "
delta run --agent agent -w work --run-id s --stage -q -m go > first 2>&1; echo \"run $?\"
cat work/f
delta rm s -w work -y > removed 2>&1; echo \"rm $?\"
ls -A work; ls -A work/.delta
head -c 20000000 /dev/zero > work/again && echo free";
    let Some(ran) = on_a_small_disk(&sandbox, script) else { return };
    let texts = ["first", "removed"].map(|name| sandbox.read(name));
    assert!(ran.stdout.starts_with("run 1\none\nrm 0\n"), "{ran:?}\n{texts:#?}");
    assert!(ran.stdout.ends_with("free\n") && !ran.stdout.contains("\ns\n"), "{ran:?}");
    assert!(texts[0].contains("No space left on device"), "{}", texts[0]);
}

/// What only the mount of the stage shows leaves nothing either.
#[test]
fn c_32_6_a_workspace_on_an_overlay_is_refused_and_nothing_is_left() {
    if !can_stage() {
        return;
    }
    let sandbox = sandbox(&["true"]);
    sandbox.unverified("the disk of its workspace is gone");
    let script = "
mkdir work/lower work/upper work/dir work/top
mount -t overlay top -o lowerdir=work/lower,upperdir=work/upper,workdir=work/dir work/top || exit 99
delta run --agent agent -w work/top --run-id s --stage -m go > refused 2>&1; echo \"run $?\"
ls -A work/top";
    let Some(ran) = on_a_small_disk(&sandbox, script) else { return };
    let refused = sandbox.read("refused");
    assert_eq!(ran.stdout, "run 126\n", "{refused}");
    for part in
        ["error: the workspace cannot be staged here: ", "\nhelp: use a workspace on ext4, "]
    {
        assert!(refused.contains(part), "{refused}");
    }
}
