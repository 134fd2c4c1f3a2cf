//! Power losses while what a staged call has changed is approved or denied.
//!
//! The kernel refuses an overlay above FUSE, so the call has run on an ordinary file system.

use crate::recorder::{Lease, Recorder, judge_power_losses};
use crate::verdicts::{Seen, command, has_begun, remove_hole, workspace_files};
use crate::workloads::{agent_with_tools, calls, last_answer, write_workspace};
use test_support::needs;
use test_support::sandbox::Sandbox;

const TOOLS: &str = "tools:\n  \
     - name: change\n    stage: ask\n    shell: rm -r old; echo 2 > changed; mkdir -p new/deep; echo n > new/deep/n; ln -s deep/n new/link\n";

/// A run that waits for the decision about what its call has changed; `None` if this machine refuses stages.
fn asking_run() -> Option<Sandbox> {
    let sandbox = agent_with_tools(TOOLS, &[calls(0, &[("change", "")]), last_answer()]);
    write_workspace(&sandbox);
    sandbox.write("witness/requests", "");
    let ran = sandbox.run("go", &[]);
    if ran.code != 101 {
        needs::skip(format!("{ran:?}"));
        return None;
    }
    Some(sandbox)
}

fn record_answer(answer: &'static str) -> impl Fn(&Recorder) {
    move |recorder| {
        let args = ["continue", "r", "-w", "work", "--format", "raw", "-m", answer];
        recorder.run_traced(&args).expect_code(0);
    }
}

/// Answers in the same way until the run has its result, and checks that nothing else was asked or changed.
fn check_answer(sandbox: &Sandbox, answer: &str, files: &[(&str, &str)]) {
    let seen = Seen::read(sandbox);
    remove_hole(sandbox, &seen);
    assert!(has_begun(sandbox), "the run is lost");
    for _ in 0..4 {
        let ran = command(sandbox, ["continue", "r", "-w", "work", "--format", "raw"]);
        if ran.code == 0 || ran.stderr.contains("Run is COMPLETED") {
            break;
        }
        assert!(ran.stderr.contains("WAITING_FOR_INPUT"), "{ran:?}");
        command(sandbox, ["continue", "r", "-w", "work", "--format", "raw", "-m", answer]);
    }
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
    let expected: Vec<(String, String)> =
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    assert_eq!(workspace_files(sandbox, "work"), expected);
    assert_eq!(sandbox.events("APPROVAL_DECISION").len(), 1, "asked twice");
    let left = sandbox.files("work");
    let is_leftover = |name: &&String| name.contains("-stage") || name.contains("restore");
    assert_eq!(left.iter().find(is_leftover), None);
}

#[test]
fn c_32_8_a_power_loss_in_an_approved_call_loses_no_change() {
    const CHANGED: [(&str, &str); 3] =
        [("changed", "2\n"), ("new/deep/n", "n\n"), ("new/link", "n\n")];
    judge_power_losses(Lease::Flock, asking_run, record_answer("yes"), |sandbox| {
        check_answer(sandbox, "yes", &CHANGED);
    });
}

#[test]
fn c_32_8_a_power_loss_in_a_denied_call_changes_nothing() {
    const UNCHANGED: [(&str, &str); 2] = [("changed", "1\n"), ("old/file", "old\n")];
    judge_power_losses(Lease::Flock, asking_run, record_answer("no: not this"), |sandbox| {
        check_answer(sandbox, "no: not this", &UNCHANGED);
    });
}
