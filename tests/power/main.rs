//! A power loss at every moment of a run, a continue, a fork, a rollback, an apply, a pack and a sweep, of commands that
//! outlive their engine, of tasks of MCP servers, of a decision about a staged call, of messages, of an anchor, and of a run that
//! moves.
//!
//! delta works on a file system that keeps a log (`volatile_disk`), and each state that a power loss may leave according
//! to a model of disks (`power_loss`) is made from the log and judged: nothing is missing that a tool, the LLM, the
//! reader of stdout or the shell has seen, and repeating or continuing ends what was interrupted.
//!
//! A test judges a selection of states, always the same. `DELTA_POWER_STATES=all` judges all, `DELTA_POWER_STATES=N` at
//! most N of each test, `DELTA_SEED=N` others. It needs /dev/fuse, namespaces, jq and strace, and is skipped without them.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, start real processes, and print figures"
)]

mod anchors;
mod delta_sweeps;
mod file_tree;
mod messages;
mod power_loss;
mod recorder;
mod server_tasks;
mod staged_calls;
mod surviving_calls;
mod transfers;
mod verdicts;
mod volatile_disk;
mod workloads;

use recorder::{Lease, Recorder, judge_power_losses, succeed};
use verdicts::{
    check_added, check_apply, check_discard, check_fork, check_fork_into, check_packed,
    check_rollback, check_unpacked, finish_and_check,
};
use workloads::{asking_agent, ended_run, killed_agent, nesting_agent, staged_run, working_agent};

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

const RUN: [&str; 10] =
    ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "--format", "jsonl", "-mgo"];
const CONTINUE: [&str; 6] = ["continue", "r", "-w", "work", "--format", "jsonl"];

fn record_killed_run(recorder: &Recorder) {
    assert_eq!(recorder.run(&RUN).code, -1);
    let ran = recorder.run(&CONTINUE);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn c_6_6_a_power_loss_in_a_run_loses_nothing_that_was_seen() {
    judge_power_losses(Lease::Flock, || Some(working_agent()), succeed(&RUN), finish_and_check);
}

#[test]
fn c_26_1_a_power_loss_in_a_run_with_turns_loses_nothing_that_was_seen() {
    judge_power_losses(Lease::Turns, || Some(working_agent()), succeed(&RUN), finish_and_check);
}

#[test]
fn c_13_4_a_power_loss_after_a_kill_runs_no_call_twice() {
    judge_power_losses(Lease::Flock, || Some(killed_agent()), record_killed_run, finish_and_check);
}

#[test]
fn c_26_1_a_power_loss_after_a_kill_runs_no_call_twice_with_turns() {
    judge_power_losses(Lease::Turns, || Some(killed_agent()), record_killed_run, finish_and_check);
}

#[test]
fn c_12_3_a_power_loss_around_a_question_loses_neither_question_nor_answer() {
    let record = |recorder: &Recorder| {
        assert_eq!(recorder.run(&RUN).code, 101);
        recorder.answer_in_file("yes\n");
        assert_eq!(recorder.run(&CONTINUE).code, 101);
        recorder.witness_line("answers", "sure");
        assert_eq!(recorder.run(&[&CONTINUE[..], &["-msure"]].concat()).code, 101);
        let ran = recorder.run(&[&CONTINUE[..], &["-myes"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    judge_power_losses(Lease::Flock, || Some(asking_agent()), record, finish_and_check);
}

#[test]
fn c_27_2_a_power_loss_in_a_run_inside_a_run_loses_neither() {
    judge_power_losses(Lease::Flock, || Some(nesting_agent()), succeed(&RUN), finish_and_check);
}

#[test]
fn c_16_7_a_power_loss_leaves_a_whole_fork_or_none() {
    judge_power_losses(Lease::Flock, || Some(ended_run()), succeed(&workloads::FORK), check_fork);
}

#[test]
fn c_16_7_a_power_loss_leaves_a_whole_fork_with_its_files_or_none() {
    judge_power_losses(
        Lease::Flock,
        || Some(ended_run()),
        succeed(&workloads::FORK_INTO),
        check_fork_into,
    );
}

#[test]
fn c_16_3_a_power_loss_in_a_rollback_loses_no_file() {
    judge_power_losses(
        Lease::Flock,
        || {
            let sandbox = ended_run();
            sandbox.write("work/notes", "a\nb\nc\nmine\n");
            Some(sandbox)
        },
        succeed(&workloads::ROLLBACK),
        check_rollback,
    );
}

#[test]
fn c_32_2_a_power_loss_in_an_apply_loses_no_change() {
    judge_power_losses(Lease::Flock, staged_run, succeed(&workloads::APPLY), check_apply);
}

#[test]
fn c_32_4_a_power_loss_in_a_discard_loses_no_change() {
    judge_power_losses(Lease::Flock, staged_run, succeed(&workloads::DISCARD), check_discard);
}

#[test]
fn c_36_15_a_power_loss_in_an_update_leaves_the_old_agent_or_the_new_one() {
    judge_power_losses(
        Lease::Flock,
        || Some(workloads::changed_source()),
        succeed(&workloads::ADD),
        check_added,
    );
}

#[test]
fn c_25_8_a_power_loss_in_a_pack_loses_no_record() {
    judge_power_losses(Lease::Flock, || Some(ended_run()), succeed(&workloads::PACK), check_packed);
}

#[test]
fn c_25_8_a_power_loss_in_an_unpack_loses_no_record() {
    let packed = || {
        let sandbox = ended_run();
        sandbox.delta(workloads::PACK).output().expect_code(0);
        Some(sandbox)
    };
    judge_power_losses(Lease::Flock, packed, succeed(&workloads::UNPACK), check_unpacked);
}
