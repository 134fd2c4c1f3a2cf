//! Power losses after the head of a run was anchored.

use crate::RUN;
use crate::recorder::{Lease, Recorder, judge_power_losses};
use crate::verdicts::{Seen, command, finish_and_check};
use crate::workloads::killed_agent;
use serde_json::Value;
use test_support::sandbox::Sandbox;

/// A head that was anchored before its command ended is in the file, and the journal has what the file says.
fn check_anchors(sandbox: &Sandbox) {
    let seen = Seen::read(sandbox);
    let text = std::fs::read_to_string(sandbox.path("anchors")).unwrap_or_default();
    let heads: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if seen.has_ended("continue") {
        assert_eq!(heads.len(), 1, "a head is lost: {text:?}");
    }
    finish_and_check(sandbox);
    if !heads.is_empty() {
        let verify = ["verify", "r", "-w", "work", "--anchor", "anchors", "--format", "json"];
        let report = command(sandbox, verify).json();
        let checks = report["checks"].as_array().unwrap();
        let anchor = checks.iter().find(|check| check["check"] == "anchor").unwrap();
        assert_ne!(anchor["state"], "broken", "{anchor}");
    }
}

#[test]
fn c_27_2_a_power_loss_loses_no_anchored_head() {
    let record = |recorder: &Recorder| {
        assert_eq!(recorder.run(&RUN).code, -1);
        let args = ["continue", "r", "-w", "work", "--format", "jsonl", "--anchor", "anchors"];
        recorder.run_traced(&args).expect_code(0);
    };
    judge_power_losses(Lease::Flock, || Some(killed_agent()), record, check_anchors);
}
