//! Power losses while `delta tell` sends messages to a run, and while the run receives them.

use crate::CONTINUE;
use crate::recorder::{Lease, Recorder, judge_power_losses};
use crate::verdicts::{Seen, finish_and_check};
use crate::workloads::killed_before_messages;
use test_support::sandbox::Sandbox;

const TELLS: [[&str; 7]; 2] = [
    ["tell", "r", "-w", "work", "--id", "next", "one"],
    ["tell", "r", "-w", "work", "--id=end", "--at-end", "two"],
];

/// A message is received once if its `tell` had succeeded, and otherwise once or never.
fn check_messages(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    finish_and_check(sandbox);
    let messages = sandbox.events("USER_MESSAGE");
    for (tell, id) in TELLS.iter().zip(["next", "end"]) {
        let times = messages.iter().filter(|event| event["source"]["id"] == id).count();
        let was_taken = seen.has_ended(&tell.join(" "));
        assert!(times == 1 || times == 0 && !was_taken, "{id}: received {times} times");
    }
}

fn send(recorder: &Recorder) {
    for tell in &TELLS {
        recorder.run(tell).expect_code(0);
    }
}

#[test]
fn c_33_1_a_power_loss_loses_no_message_that_tell_has_taken() {
    judge_power_losses(Lease::Flock, || Some(killed_before_messages()), send, check_messages);
}

#[test]
fn c_33_2_a_power_loss_while_a_run_receives_messages_loses_none() {
    let record = |recorder: &Recorder| {
        send(recorder);
        recorder.run(&CONTINUE).expect_code(0);
    };
    judge_power_losses(Lease::Flock, || Some(killed_before_messages()), record, check_messages);
}
