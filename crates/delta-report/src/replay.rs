//! Verifies that a run's files agree: rebuilds every request, command line and observation from the journal and the
//! copy of the agent, and compares them with the records.
//!
//! Reads only the run directory and starts nothing, so it also works on a copy, without the agent and the workspace.
//! What cannot be checked is listed separately and is not a difference.

use crate::request_breakdown::{common_prefix_len, excerpt_around};
use serde::Serialize;
use serde_json::json;
use std::collections::HashSet;
use std::path::Path;

mod call_checks;
mod io_files;
mod journal_checks;
mod request_checks;
mod request_rebuild;
mod turn;
mod verifier;

pub use request_checks::request_difference;
pub use request_rebuild::{
    RebuildInput, RebuiltRequest, loaded_system_prompt, rebuild_request, split_blocks,
};
pub use turn::{
    ReplayTurn, ToolCallOutcome, TurnComparison, collect_turns, compare_turns,
    has_interrupted_call, tool_call_difference,
};

/// What the verification of a run found.
#[derive(Debug, Default, Serialize)]
pub struct ReplayReport {
    /// How much was checked.
    pub checked: CheckedCounts,
    /// The differences, in the order of the run.
    pub differences: Vec<ReplayDifference>,
    /// What could not be checked, and why.
    pub not_checked: Vec<String>,
    /// Whether a line with a checksum was read: every line and record after it must have one.
    #[serde(skip)]
    has_checksums: bool,
    /// `differences`, each of which is listed once: every line of a journal can have one.
    #[serde(skip)]
    known_differences: HashSet<ReplayDifference>,
    /// `not_checked`, in the same way.
    #[serde(skip)]
    known_not_checked: HashSet<String>,
}

/// How much of a run was checked.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct CheckedCounts {
    /// Lines of the journal.
    pub lines: usize,
    /// Rebuilt requests.
    pub requests: usize,
    /// Tool calls.
    pub calls: usize,
    /// Files other than the journal.
    pub files: usize,
}

/// A difference between what is recorded and what should be.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct ReplayDifference {
    /// The iteration, if the subject belongs to one.
    pub iteration: Option<u32>,
    /// The subject, such as `journal.jsonl, line 7` or `the request`.
    pub what: String,
    /// The message of a request, counted from 1.
    pub message: Option<usize>,
    /// The block of a request.
    pub source: Option<String>,
    /// The first different byte, counted from 0, if it is known.
    pub byte: Option<usize>,
    /// An excerpt of what is recorded.
    pub recorded: String,
    /// An excerpt of what should be recorded.
    pub expected: String,
}

impl ReplayDifference {
    /// The first difference of two texts; `None` when they are equal.
    pub fn between(
        iteration: Option<u32>,
        subject: String,
        recorded: &str,
        expected: &str,
    ) -> Option<Self> {
        if recorded == expected {
            return None;
        }
        let at = common_prefix_len(recorded, expected);
        let recorded = excerpt_around(recorded, at);
        let expected = excerpt_around(expected, at);
        Some(Self { byte: Some(at), ..Self::new(iteration, subject, recorded, expected) })
    }

    /// A difference without a position in bytes.
    pub fn new(
        iteration: Option<u32>,
        subject: impl Into<String>,
        recorded: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            iteration,
            what: subject.into(),
            message: None,
            source: None,
            byte: None,
            recorded: recorded.into(),
            expected: expected.into(),
        }
    }

    /// Names the place: the iteration, the subject, the message, the source and the byte, as far as they are known.
    pub fn location(&self) -> String {
        let mut location = self.iteration.map_or(String::new(), |it| format!("iteration {it}, "));
        location.push_str(&self.what);
        if let Some(message) = self.message {
            location.push_str(&format!(", message {message}"));
        }
        if let Some(source) = &self.source {
            location.push_str(&format!(", source `{source}`"));
        }
        if let Some(byte) = self.byte {
            location.push_str(&format!(", byte {byte}"));
        }
        location
    }
}

impl ReplayReport {
    fn add_difference(&mut self, difference: impl Into<Option<ReplayDifference>>) {
        let new = difference.into();
        self.differences.extend(new.filter(|new| self.known_differences.insert(new.clone())));
    }

    fn add_mismatch(
        &mut self,
        iteration: Option<u32>,
        subject: impl Into<String>,
        recorded: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.add_difference(ReplayDifference::new(iteration, subject, recorded, expected));
    }

    fn add_checksum_mismatch(
        &mut self,
        iteration: Option<u32>,
        subject: impl Into<String>,
        actual: &str,
        written: &str,
    ) {
        let bytes = |checksum: &str| format!("bytes with checksum {checksum}");
        self.add_mismatch(iteration, subject, bytes(actual), bytes(written));
    }

    /// Adds a difference unless the texts are equal.
    fn compare(
        &mut self,
        iteration: Option<u32>,
        subject: impl Into<String>,
        recorded: &str,
        expected: &str,
    ) {
        let subject = subject.into();
        self.add_difference(ReplayDifference::between(iteration, subject, recorded, expected));
    }

    /// Adds a difference unless the JSON forms are equal.
    fn compare_json(
        &mut self,
        iteration: Option<u32>,
        subject: impl Into<String>,
        recorded: impl Serialize,
        expected: impl Serialize,
    ) {
        let recorded = json!(recorded).to_string();
        self.compare(iteration, subject, &recorded, &json!(expected).to_string());
    }

    fn add_not_checked(&mut self, reason: String) {
        if self.known_not_checked.insert(reason.clone()) {
            self.not_checked.push(reason);
        }
    }

    /// Whether no differences were found.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Verifies the run in `run_dir`, whose journal holds the bytes `journal`.
pub fn verify_run_records(run_dir: &Path, journal: &[u8]) -> ReplayReport {
    let mut report = ReplayReport::default();
    let events = journal_checks::check_journal_lines(journal, &mut report);
    verifier::check_events(run_dir, &events, &mut report);
    report
}
