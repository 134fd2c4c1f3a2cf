//! Restoring and copying files gives no program the rights of another owner (C-20.6): root that rolled back the workspace
//! of an agent's user made the agent's program setuid root.

use crate::DELTA;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use test_support::needs;
use test_support::sandbox::Sandbox;

/// A workspace of user 65534 with a setuid program and a setgid directory, and run `r` with snapshots; `None` where the
/// tests do not run as root.
fn workspace_of_agent_user(flags: &[&str]) -> Option<Sandbox> {
    let script = "- call: [{tool: sh, args: {script: 'rm -r tool dir; echo new > tool'}}]\n- say: done\n- say: on\n";
    let sandbox =
        Sandbox::scripted(DELTA, "  - name: sh\n    stdin: script\n    exec: sh\n", script);
    sandbox.write("work/tool", "#!/bin/sh\nid -u\n");
    sandbox.write("work/dir/file", "");
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        needs::skip("needs root, which writes the files of another user");
        return None;
    }
    for (name, mode) in [("tool", 0o6755), ("dir", 0o2755), ("dir/file", 0o4755)] {
        let path = sandbox.path("work").join(name);
        chown(&path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    sandbox.run("task", flags).expect_code(0);
    Some(sandbox)
}

/// Fails if a file of root in `dir` has setuid or setgid.
#[track_caller]
fn gives_no_rights(sandbox: &Sandbox, dir: &str) {
    for name in ["tool", "dir", "dir/file"] {
        let metadata = fs::metadata(sandbox.path(dir).join(name)).unwrap();
        let mode = metadata.mode() & 0o7777;
        assert_eq!((metadata.uid(), mode), (0, 0o755), "{dir}/{name} has mode {mode:o}");
    }
}

#[test]
fn c_20_6_a_rollback_by_root_makes_no_setuid_program() {
    let Some(sandbox) = workspace_of_agent_user(&["--snapshots"]) else { return };
    let args = ["rollback", "r", "-w", "work", "--to", "0"];
    sandbox.delta(args).output().expect_code(0);
    assert_eq!(sandbox.read("work/tool"), "#!/bin/sh\nid -u\n");
    gives_no_rights(&sandbox, "work");
}

#[test]
fn c_20_6_a_fork_by_root_makes_no_setuid_program() {
    let Some(sandbox) = workspace_of_agent_user(&["--snapshots"]) else { return };
    let args = ["fork", "r", "-w", "work", "--at", "0", "--into", "new", "-q"];
    sandbox.delta(args).output().expect_code(0);
    gives_no_rights(&sandbox, "new");
}

#[test]
fn c_20_6_a_copy_of_the_present_files_makes_no_setuid_program() {
    let Some(sandbox) = workspace_of_agent_user(&[]) else { return };
    sandbox.write("work/dir/file", "");
    for (name, mode) in [("tool", 0o6755), ("dir", 0o2755), ("dir/file", 0o4755)] {
        let path = sandbox.path("work").join(name);
        chown(&path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let args = ["fork", "r", "-w", "work", "--at", "0", "--into", "new", "-q"];
    sandbox.delta(args).output().expect_code(0);
    gives_no_rights(&sandbox, "new");
}

#[test]
fn c_20_6_the_bits_stay_where_owner_and_group_come_out_the_same() {
    let script =
        "- call: [{tool: sh, args: {script: 'rm -r tool dir; echo new > tool'}}]\n- say: done\n";
    let sandbox =
        Sandbox::scripted(DELTA, "  - name: sh\n    stdin: script\n    exec: sh\n", script);
    sandbox.write("work/tool", "");
    sandbox.write("work/dir/file", "");
    let modes = [("tool", 0o4755), ("dir", 0o2755), ("dir/file", 0o2755)];
    for (name, mode) in modes {
        let path = sandbox.path("work").join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output().expect_code(0);
    for (name, mode) in modes {
        let found = fs::metadata(sandbox.path("work").join(name)).unwrap().mode() & 0o7777;
        assert_eq!(found, mode, "{name}");
    }
}

#[test]
fn c_20_6_a_planted_snapshot_gives_no_rights() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: sh\n    stdin: script\n    exec: sh\n",
        "- call: [{tool: sh, args: {script: 'rm tool'}}]\n- say: done\n",
    );
    sandbox.write("work/tool", "");
    let path = sandbox.path("work/tool");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    let run = sandbox.run_command("task", &["--snapshots"]).env("HOME", sandbox.path("attacker"));
    run.output().expect_code(0);
    sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output().expect_code(0);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
}
