//! What the commands print: one JSON value each. The names of the fields are the format.

use delta_base::time::Timestamp;
use serde::Serialize;
use std::fmt::Display;
use std::path::Path;

/// What `start` prints.
#[derive(Debug, Serialize)]
pub(crate) struct SessionStartReport<Status> {
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) work_dir: String,
    pub(crate) status: Status,
}

/// What `exec` prints. A field with nothing to report is left out.
#[derive(Debug, Serialize)]
pub(crate) struct SessionExecReport {
    /// The beginning and the end of what the command printed, when it is too long to be shown.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// 128 + N after signal N, 124 after a timeout.
    pub(crate) exit_code: i32,
    pub(crate) execution_time_ms: u64,
    /// The file that holds all of `stdout`, when that is cut or not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stderr_file: Option<String>,
    /// The files for what background jobs print from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) background_output: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) timed_out: bool,
    /// The names that the next command will not find.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_preserved: Vec<String>,
    /// Why the session did not keep the state that the command left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// What `end` prints.
#[derive(Debug, Serialize)]
pub(crate) struct SessionEndReport<Status> {
    pub(crate) status: Status,
    pub(crate) session_id: String,
}

/// An element of the array that `list` prints.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum SessionEntry<Status> {
    Intact {
        session_id: String,
        command: String,
        status: Status,
        created_at: Timestamp,
        #[serde(skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
    },
    Damaged {
        /// The name of its directory.
        session_id: String,
        /// Always `damaged`.
        status: &'static str,
        error: String,
    },
}

impl<Status> SessionEntry<Status> {
    pub(crate) fn damaged(dir: &Path, error: &impl Display) -> Self {
        Self::Damaged {
            session_id: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            status: "damaged",
            error: error.to_string(),
        }
    }
}

/// Sorts sessions by age and puts damaged ones last.
pub(crate) fn sort_entries<Status>(
    entries: impl Iterator<Item = SessionEntry<Status>>,
) -> Vec<SessionEntry<Status>> {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|entry| match entry {
        SessionEntry::Intact { created_at, session_id, .. } => {
            (false, Some(*created_at), session_id.clone())
        }
        SessionEntry::Damaged { session_id, .. } => (true, None, session_id.clone()),
    });
    entries
}

/// What `cleanup` prints.
#[derive(Debug, Serialize)]
pub(crate) struct SessionCleanupReport {
    /// The ids of the removed sessions.
    pub(crate) removed: Vec<String>,
}
