//! What the commands of sessions print: one JSON value each.

use super::SessionError;
use super::store::{Metadata, Status};
use crate::id::SessionId;
use crate::process::{Capture, Finished};
use crate::time::Timestamp;
use crate::tool::observation;
use serde::Serialize;
use std::path::Path;

/// What `start` prints.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Started {
    pub session_id: String,
    pub command: String,
    pub work_dir: String,
    pub status: Status,
}

impl Started {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            session_id: metadata.session_id.clone(),
            command: metadata.command.clone(),
            work_dir: metadata.work_dir.clone(),
            status: metadata.status,
        }
    }
}

/// What `exec` prints; what there is nothing to say of is left out.
#[derive(Debug, Serialize)]
pub struct Executed {
    /// What the command printed, as far as it is shown.
    pub stdout: String,
    /// The same for standard error.
    pub stderr: String,
    /// What it left with; 128 and the number of the signal that ended it, 124 when its time was up.
    pub exit_code: i32,
    /// How long it took.
    pub execution_time_ms: u64,
    /// The file that holds the whole of `stdout`, when that is cut or not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_file: Option<String>,
    /// The same for `stderr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_file: Option<String>,
    /// Whether it was ended because its time was up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// The names that the next command will not find.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_preserved: Vec<String>,
    /// Why the state is not that which the command left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Executed {
    pub(super) fn of(finished: &Finished, exit_code: i32, place: &str) -> Self {
        let text = |capture: &Capture| {
            let mut text = String::new();
            observation::stream(&mut text, capture, place, "no file");
            text
        };
        let file = |capture: &Capture| {
            let name = capture.file.as_deref()?.file_name()?.to_string_lossy();
            Some(format!("{place}/{name}"))
        };
        Self {
            stdout: text(&finished.stdout),
            stderr: text(&finished.stderr),
            exit_code,
            execution_time_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
            stdout_file: file(&finished.stdout),
            stderr_file: file(&finished.stderr),
            timed_out: false,
            not_preserved: Vec::new(),
            note: None,
        }
    }

    pub(super) fn with(
        self,
        timed_out: bool,
        note: Option<String>,
        not_preserved: Vec<String>,
    ) -> Self {
        Self { timed_out, note, not_preserved, ..self }
    }
}

/// What `end` prints.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format")]
pub struct Ended {
    pub status: Status,
    pub session_id: String,
}

impl Ended {
    pub(super) fn of(id: &SessionId) -> Self {
        Self { status: Status::Terminated, session_id: id.to_string() }
    }
}

/// One session in what `list` prints.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Listed {
    /// One whose files are what they should be.
    Sound {
        /// Its id.
        session_id: String,
        /// Its command.
        command: String,
        /// Whether it was ended.
        status: Status,
        /// When it was started.
        created_at: Timestamp,
    },
    /// One whose files are not.
    Damaged {
        /// The name of its directory.
        session_id: String,
        /// Always `damaged`.
        status: &'static str,
        /// What is wrong.
        error: String,
    },
}

impl Listed {
    pub(super) fn of(dir: &Path, read: Result<Metadata, SessionError>) -> Self {
        match read {
            Ok(metadata) => Self::Sound {
                session_id: metadata.session_id,
                command: metadata.command,
                status: metadata.status,
                created_at: metadata.created_at,
            },
            Err(error) => Self::Damaged {
                session_id: dir.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                status: "damaged",
                error: error.to_string(),
            },
        }
    }

    pub(super) fn order(&self) -> (bool, Option<Timestamp>, String) {
        match self {
            Self::Sound { created_at, session_id, .. } => {
                (false, Some(*created_at), session_id.clone())
            }
            Self::Damaged { session_id, .. } => (true, None, session_id.clone()),
        }
    }
}

/// What `cleanup` prints.
#[derive(Debug, Serialize)]
pub struct Cleaned {
    /// The ids of the sessions that are gone.
    pub removed: Vec<String>,
}
