//! When a run is settled: nothing that could be tried again would be another result.

use delta_lint::sweep_schema::RETRIED_TYPES;
use delta_run::event::{CONTEXT_LENGTH_ERROR, RunStatus};
use serde::{Deserialize, Serialize};

/// The errors that are the agent's own results.
const RESULT_TYPES: [&str; 11] = [
    CONTEXT_LENGTH_ERROR,
    "max_iterations",
    "limit",
    "loop",
    "refusal",
    "content_filter",
    "length",
    "text_call",
    "empty_response",
    "hook",
    "ended_by_hook",
];

/// How often a failure of the infrastructure is tried again: `retry` of sweep.yaml.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// How often a run may FAIL with such an error, the first time included.
    pub attempts: u32,
    /// The types of errors.
    pub on: Vec<String>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts: 3, on: RETRIED_TYPES.map(str::to_owned).to_vec() }
    }
}

/// What is left to do about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remaining {
    /// Nothing: it is settled.
    Nothing,
    /// To start or continue it.
    Work,
    /// A person has to answer.
    Answer,
    /// It FAILED with an error that is not a result, and that the policy does not try again.
    Unresolved,
}

impl RetryPolicy {
    /// Whether an error of this type is tried again.
    pub fn retries(&self, error: &str) -> bool {
        self.on.iter().any(|kind| kind == error)
    }

    /// What is left to do about a run with this status, error type and number of attempts.
    pub fn remaining(&self, status: RunStatus, error: Option<&str>, attempts: u32) -> Remaining {
        let error = error.unwrap_or_default();
        match status {
            RunStatus::Completed => Remaining::Nothing,
            RunStatus::WaitingForInput => Remaining::Answer,
            RunStatus::Failed if RESULT_TYPES.contains(&error) => Remaining::Nothing,
            RunStatus::Failed if self.retries(error) && attempts < self.attempts => Remaining::Work,
            RunStatus::Failed if self.retries(error) => Remaining::Nothing,
            RunStatus::Failed => Remaining::Unresolved,
            RunStatus::Running | RunStatus::Interrupted => Remaining::Work,
        }
    }
}

/// Whether this error is a failure of the infrastructure, not a result of the agent.
pub fn is_infrastructure_error(error: &str) -> bool {
    !RESULT_TYPES.contains(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_settled_by_a_result_or_by_the_last_attempt() {
        let policy = RetryPolicy { attempts: 2, on: vec!["llm".to_owned()] };
        let remaining = |status, error, attempts| policy.remaining(status, error, attempts);
        assert_eq!(remaining(RunStatus::Completed, None, 0), Remaining::Nothing);
        assert_eq!(remaining(RunStatus::Failed, Some("max_iterations"), 0), Remaining::Nothing);
        assert_eq!(remaining(RunStatus::Failed, Some("context_length"), 0), Remaining::Nothing);
        assert_eq!(remaining(RunStatus::Failed, Some("llm"), 1), Remaining::Work);
        assert_eq!(remaining(RunStatus::Failed, Some("llm"), 2), Remaining::Nothing);
        assert_eq!(remaining(RunStatus::Failed, Some("io"), 9), Remaining::Unresolved);
        assert_eq!(remaining(RunStatus::Interrupted, Some("interrupted"), 9), Remaining::Work);
        assert_eq!(remaining(RunStatus::WaitingForInput, None, 1), Remaining::Answer);
    }
}
