//! `delta sweep pack`, and the `unpack` of a packed run, killed or failed at each of their durable operations.

use super::turns::{end, is_stopped};
use super::*;
use std::process::Command;
use test_support::running::send_signal;

const COUNT_FILE: &str = "operations";

fn sweep(sandbox: &Sandbox, args: &[&str]) -> Delta {
    sandbox.delta(["sweep"].iter().chain(args).copied())
}

/// Two runs that have ended, in `template`.
fn settled() -> (Sandbox, Vec<String>) {
    let sandbox =
        Sandbox::scripted(DELTA, TOOLS, "- call: [{tool: note, args: {text: a}}]\n- say: done\n");
    sandbox.unverified("packed runs have no directory");
    sandbox.write(
        "inputs.jsonl",
        "{\"id\": \"a\", \"task\": \"t\"}\n{\"id\": \"b\", \"task\": \"t\"}\n",
    );
    sandbox.write("sweep.yaml", "name: s\nagents: [agent]\ninputs: inputs.jsonl\n");
    sweep(&sandbox, &["plan"]).output().expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).output().expect_code(0);
    let ids = sweep(&sandbox, &["list", "s"]).output().stdout;
    fs::rename(sandbox.path("s"), sandbox.path("template")).unwrap();
    (sandbox, ids.lines().map(str::to_owned).collect())
}

fn restore(sandbox: &Sandbox) {
    let script = "rm -rf s && cp -a template s";
    let mut copy = Command::new("sh");
    copy.args(["-c", script]).current_dir(sandbox.path(""));
    assert!(copy.status().unwrap().success());
}

/// Each run can be read, has its file, and is not done again; packing again ends what was begun.
fn check(sandbox: &Sandbox, ids: &[String], at: &str) {
    for id in ids {
        let shown = sandbox.delta(["show", id, "-w", "s"]).output();
        assert!(shown.code == 0 && shown.stdout.contains("COMPLETED"), "{at}: {shown:?}");
    }
    sweep(sandbox, &["run", "s", "-q"]).output().expect_code(0);
    let lines = sweep(sandbox, &["collect", "s", "-o", "-"]).output().expect_code(0).stdout;
    assert_eq!(lines.lines().filter(|line| line.contains("COMPLETED")).count(), 2, "{at}");
    sweep(sandbox, &["pack", "s"]).output().expect_code(0);
    for id in ids {
        sandbox.delta(["unpack", id, "-w", "s"]).output().expect_code(0);
        let shard = &id.rsplit('.').next().unwrap()[..2];
        assert_eq!(sandbox.read(&format!("s/runs/{shard}/{id}/ledger")), "a\n", "{at}");
    }
}

/// Runs the command with a fault at each of its operations.
fn at_each_operation(
    prepare: impl Fn(),
    command: impl Fn() -> Delta,
    sandbox: &Sandbox,
    ids: &[String],
) {
    prepare();
    let count_file = sandbox.path(COUNT_FILE);
    let _ = fs::remove_file(&count_file);
    command().env("DELTA_FAILPOINT_COUNT", &count_file).output();
    let count = fs::metadata(&count_file).unwrap().len() as usize;
    assert!(count > 3, "{count} operations");
    println!("{count} operations");
    for mode in ["abort", "enospc"] {
        for number in points(1..count + 1) {
            prepare();
            command().env("DELTA_FAILPOINT", format!("{mode}:{number}")).output();
            check(sandbox, ids, &format!("{mode}:{number}"));
        }
    }
}

#[test]
fn c_26_10_packing_that_is_killed_anywhere_loses_nothing() {
    let (sandbox, ids) = settled();
    let pack = || sweep(&sandbox, &["pack", "s"]);
    at_each_operation(|| restore(&sandbox), pack, &sandbox, &ids);
}

#[test]
fn c_26_10_unpacking_that_is_killed_anywhere_loses_nothing() {
    let (sandbox, ids) = settled();
    let prepare = || {
        restore(&sandbox);
        sweep(&sandbox, &["pack", "s"]).output().expect_code(0);
    };
    let unpack = || sandbox.delta(["unpack", &ids[0], "-w", "s"]);
    at_each_operation(prepare, unpack, &sandbox, &ids);
}

#[test]
fn c_26_10_what_changes_in_a_run_while_it_is_packed_is_kept() {
    let (sandbox, ids) = settled();
    let shard = |id: &str| id.rsplit('.').next().unwrap()[..2].to_owned();
    let ledger = |id: &str| format!("s/runs/{}/{id}/ledger", shard(id));
    let pack = |id: &str| format!("s/pack/{}-0001.zip", shard(id));
    let mut changed_count = 0;
    for number in 1.. {
        restore(&sandbox);
        let mut packing = sweep(&sandbox, &["pack", "s"])
            .env("DELTA_FAILPOINT", format!("stop:{number}"))
            .spawn();
        if !until("the command stops or ends", || is_stopped(&mut packing)) {
            break;
        }
        let unpacked = ids.iter().filter(|id| !sandbox.path(&pack(id)).exists());
        let changed: Vec<&String> = unpacked.collect();
        changed.iter().for_each(|id| sandbox.write(&ledger(id), "later\n"));
        assert!(send_signal("CONT", packing.id()));
        end(packing);
        sweep(&sandbox, &["pack", "s"]).output().expect_code(0);
        for id in &changed {
            sandbox.delta(["unpack", id, "-w", "s"]).output().expect_code(0);
            assert_eq!(sandbox.read(&ledger(id)), "later\n", "stopped at {number}");
        }
        changed_count += changed.len();
    }
    assert!(changed_count > ids.len(), "{changed_count}");
}
