//! Power losses while `delta send` writes a run into a file, and while `delta receive` takes it from there. Both places are on one
//! disk, so both lose what was not synced.

use crate::recorder::{Lease, judge_power_losses, succeed};
use crate::verdicts::{Seen, command, remove_hole};
use crate::workloads::asking_agent;
use test_support::sandbox::Sandbox;

const SEND: [&str; 6] = ["send", "r", "-w", "work", "-o", "r.tgz"];
const RECEIVE: [&str; 4] = ["receive", "r.tgz", "-w", "there"];

/// A run on an ordinary file system that waits for an answer.
fn waiting_run() -> Sandbox {
    let sandbox = asking_agent();
    sandbox.write("work/old", "old\n");
    sandbox.write("witness/ledger", "");
    sandbox.run("go", &[]).expect_code(101);
    sandbox
}

fn sent_run() -> Sandbox {
    let sandbox = waiting_run();
    sandbox.delta(SEND).output().expect_code(0);
    sandbox
}

/// The run is open at one place at most, what has ended stays, and the same commands bring it there.
fn check_transfer(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    remove_hole(sandbox, &seen);
    let answer = |work| command(sandbox, ["continue", "r", "-w", work, "-m", "yes", "-q"]);
    if !sandbox.path("r.tgz").exists() {
        assert!(!seen.has_ended(&SEND.join(" ")), "the file that was written is gone");
        let ran = command(sandbox, SEND);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let ran = answer("work");
    assert!(ran.code == 1 && ran.stderr.contains("was sent to"), "{ran:?}");
    let ran = command(sandbox, RECEIVE);
    let is_known = ran.code == 1 && ran.stderr.contains("was received already");
    let has_arrived = seen.has_ended(&RECEIVE.join(" "));
    assert!(is_known || ran.code == 0 && !has_arrived, "{ran:?}");
    assert_eq!([sandbox.read("there/old"), sandbox.read("there/notes")], ["old\n", "a\n"]);
    // It waits for an answer to the next question.
    let ran = answer("there");
    assert_eq!(ran.code, 101, "{ran:?}");
    // What was seen before the loss was recorded is not among it.
    assert_eq!(sandbox.read("witness/ledger"), "b\n");
    assert_eq!(sandbox.read("there/notes"), "a\nb\n");
    let ran = command(sandbox, ["verify", "r", "-w", "there"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = answer("work");
    assert!(ran.code == 1 && ran.stderr.contains("was sent to"), "{ran:?}");
}

#[test]
fn c_36_9_a_power_loss_in_a_send_leaves_the_run_at_one_place() {
    judge_power_losses(Lease::Flock, || Some(waiting_run()), succeed(&SEND), check_transfer);
}

#[test]
fn c_36_9_a_power_loss_in_a_receive_leaves_the_run_at_one_place() {
    judge_power_losses(Lease::Flock, || Some(sent_run()), succeed(&RECEIVE), check_transfer);
}
