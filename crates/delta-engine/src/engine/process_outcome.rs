//! How a command ended, as the records of calls and hooks have it.

use super::duration_millis;
use delta_base::time::Timestamp;
use delta_process::ProcessResult;
use delta_run::record::{self, ProcessOutcome, RecordedStream};

/// What the record of a process says about its run.
pub(super) fn process_outcome(
    started_at: Timestamp,
    finished: &ProcessResult,
    exit_code: Option<i32>,
) -> ProcessOutcome {
    ProcessOutcome {
        started_at: Some(started_at),
        duration_ms: duration_millis(finished.duration),
        exit_code,
        ended: record::describe_process_end(&finished.end),
        stdout: Some(RecordedStream::from_capture(&finished.stdout)),
        stderr: Some(RecordedStream::from_capture(&finished.stderr)),
        ended_background: finished.left.ended.clone(),
        left_running: finished.left.running.clone(),
        later_output: finished.left.output_files.clone(),
        lost_output: finished.left.lost_output.clone(),
    }
}
