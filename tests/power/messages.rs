//! Power losses around messages to a run: while `delta tell` sends them, and while the run receives them.

use crate::recorder::{Lease, Recorder, judge_power_losses};
use crate::verdicts::{Seen, finish_and_check};
use crate::workloads::told_agent;
use crate::{CONTINUE, RUN};
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

#[test]
fn c_33_1_a_power_loss_loses_no_message_that_tell_has_taken() {
    let record = |recorder: &Recorder| {
        assert_eq!(recorder.run(&RUN).code, -1);
        for tell in &TELLS {
            recorder.run(tell).expect_code(0);
        }
        recorder.run(&CONTINUE).expect_code(0);
    };
    judge_power_losses(Lease::Flock, || Some(told_agent()), record, check_messages);
}
