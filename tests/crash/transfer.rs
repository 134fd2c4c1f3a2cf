//! `delta send` and `delta receive`, killed or failed at their durable operations, and at random instants.

use super::*;
use failpoints::{check_fault, operations};

/// A call before a question, and one after it, which has to happen at one place, once.
const QUESTION: &str = "\
- call: [{tool: note, args: {text: a}}]
- call: [{tool: ask_human, args: {prompt: Really?}}]
- call: [{tool: note, args: {text: b}}]
- say: done
";

/// The same operator on another host, as far as delta can tell.
fn there(sandbox: &Sandbox, args: &[&str]) -> Delta {
    let command = sandbox.delta(args.iter().copied());
    command.env("HOME", sandbox.path("there/home")).cwd(sandbox.path("there"))
}

fn asking() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, QUESTION);
    sandbox.run("go", &["-q"]).expect_code(101);
    let key = sandbox.read("home/.local/state/delta/seal.key");
    sandbox.write("there/home/.local/state/delta/seal.key", key);
    sandbox
}

fn send(sandbox: &Sandbox) -> Delta {
    sandbox.delta(["send", "r", "-w", "work", "-o", "r.tgz"])
}

fn sent() -> Sandbox {
    let sandbox = asking();
    send(&sandbox).output().expect_code(0);
    sandbox
}

fn receive(sandbox: &Sandbox) -> Delta {
    there(sandbox, &["receive", "../r.tgz", "-w", "work"])
}

/// Whatever was killed: the run is open at one place at most, and the same commands bring it there.
fn check_arrival(sandbox: &Sandbox, at: &str) {
    let is_closed = sandbox.journal().iter().any(|event| event["type"] == "SENT");
    let is_written = sandbox.path("r.tgz").exists();
    assert!(is_closed || !is_written, "{at}: open, and in a file");
    if !is_written {
        send(sandbox).output().expect_code(0);
    }
    let ran = resume(sandbox, &["-m", "yes"]);
    assert!(ran.code == 1 && ran.stderr.contains("was sent to"), "{at}: {ran:?}");
    let ran = receive(sandbox).output();
    let is_known = ran.code == 1 && ran.stderr.contains("was received already");
    assert!(ran.code == 0 || is_known, "{at}: {ran:?}");
    let elsewhere = there(sandbox, &["receive", "../r.tgz", "-w", "elsewhere"]).output();
    assert_eq!(elsewhere.code, 1, "{at}: {elsewhere:?}");
    let ran = there(sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).output();
    assert_eq!((ran.code, &*ran.stdout), (0, "done\n"), "{at}: {ran:?}");
    assert_eq!(sandbox.read("there/work/ledger"), "a\nb\n", "{at}");
    assert_eq!(sandbox.read("work/ledger"), "a\n", "{at}");
    there(sandbox, &["verify", "r", "-w", "work"]).output().expect_code(0);
    let left = sandbox.files("there/work/.delta");
    assert!(!left.iter().any(|name| name.contains("receiving")), "{at}: {left:?}");
}

fn at_operations(prepare: fn() -> Sandbox, command: fn(&Sandbox) -> Delta) {
    let sandbox = prepare();
    let count = operations(&sandbox, command(&sandbox));
    check_arrival(&sandbox, "without a fault");
    for mode in ["abort", "enospc"] {
        each((1..=count).collect(), |number| {
            let sandbox = prepare();
            let fault = format!("{mode}:{number}");
            let ran = command(&sandbox).env("DELTA_FAILPOINT", &fault).output();
            check_fault(mode, 0, &ran);
            check_arrival(&sandbox, &fault);
        });
    }
}

#[test]
fn c_36_9_a_send_that_fails_anywhere_is_finished_by_the_next_one() {
    at_operations(asking, send);
}

#[test]
fn c_36_9_a_receive_that_fails_anywhere_is_finished_by_the_next_one() {
    at_operations(sent, receive);
}

#[test]
fn c_36_9_transfers_killed_at_random_instants_arrive_once() {
    let mut chance = Chance(random_seed());
    let instants: Vec<u64> = (0..cases(6, 300)).map(|_| chance.below(40_000)).collect();
    in_parallel(&instants, |micros| {
        let micros = *micros;
        let prepare: fn() -> Sandbox = if micros % 2 == 0 { asking } else { sent };
        let sandbox = prepare();
        let command = if micros % 2 == 0 { send(&sandbox) } else { receive(&sandbox) };
        kill_after(command, micros);
        check_arrival(&sandbox, &format!("killed after {micros} microseconds"));
    });
}

/// Sends over a connection to a host whose process has this fault, as the sender may have another.
fn send_to_host(sandbox: &Sandbox, fault_there: &str) -> Delta {
    let there = sandbox.path("there");
    let programs = std::path::Path::new(DELTA).parent().unwrap();
    let script = format!(
        "#!/bin/sh\nexport PATH={}:$PATH HOME={}/home {fault_there}\ncd {} && exec sh -c \"$2\"\n",
        programs.display(),
        there.display(),
        there.display()
    );
    sandbox.write_program("bin/rsh", &script);
    let send = sandbox.delta(["send", "r", "-w", "work", "host:work"]);
    send.env("DELTA_RSH", sandbox.path("bin/rsh"))
}

/// The run is open at one host at most, and the same command moves it.
fn check_move(sandbox: &Sandbox, at: &str) {
    let is_closed = sandbox.journal().iter().any(|event| event["type"] == "SENT");
    let has_arrived = sandbox.path("there/work/.delta/r").exists();
    assert!(is_closed || !has_arrived, "{at}: open at both hosts");
    let ran = send_to_host(sandbox, "").output();
    assert_eq!(ran.code, 0, "{at}: {ran:?}");
    let ran = resume(sandbox, &["-m", "yes"]);
    assert!(ran.code == 1 && ran.stderr.contains("was sent to host:work"), "{at}: {ran:?}");
    let ran = there(sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).output();
    assert_eq!((ran.code, &*ran.stdout), (0, "done\n"), "{at}: {ran:?}");
    assert_eq!(sandbox.read("there/work/ledger"), "a\nb\n", "{at}");
}

#[test]
fn c_36_6_a_move_that_is_killed_at_either_host_ends_at_one() {
    let sandbox = asking();
    let count_there = sandbox.path("count there");
    let counted = format!("DELTA_FAILPOINT_COUNT='{}'", count_there.display());
    let count = operations(&sandbox, send_to_host(&sandbox, &counted));
    let count_there = fs::read(count_there).unwrap().len();
    check_move(&sandbox, "without a fault");
    each((1..=count).collect(), |number| {
        let sandbox = asking();
        let fault = format!("abort:{number}");
        send_to_host(&sandbox, "").env("DELTA_FAILPOINT", &fault).output();
        check_move(&sandbox, &format!("here {fault}"));
    });
    each((1..=count_there).collect(), |number| {
        let sandbox = asking();
        let fault = format!("DELTA_FAILPOINT=abort:{number}");
        send_to_host(&sandbox, &fault).output();
        check_move(&sandbox, &format!("there {fault}"));
    });
}
