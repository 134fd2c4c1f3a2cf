//! metadata.json: a summary of the journal of a run, for programs that do not read the journal.

use crate::event::{ForkOrigin, LeaseKind, ProcessInfo, RunStatus};
use crate::run_files::METADATA_FILE;
use crate::state::RunState;
use delta_base::durable::{self, FileError};
use delta_base::error_text;
use delta_base::id::RunId;
use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The contents of metadata.json. All of it can be rebuilt from the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunMetadata {
    /// The id of the run.
    pub run_id: RunId,
    /// The name of the workspace.
    pub workspace_id: String,
    /// The name of the agent.
    pub agent_name: String,
    /// The status of the run.
    pub status: RunStatus,
    /// The time when the run was created.
    pub created_at: Timestamp,
    /// The time of the last event.
    pub updated_at: Timestamp,
    /// The time when the last process exited; null while one works on it.
    pub end_time: Option<Timestamp>,
    /// The first message of the user.
    pub initial_message: String,
    /// The number of LLM answers.
    pub iterations: u32,
    /// The most LLM answers that the last process may request.
    pub max_iterations: u32,
    /// The error message of a failed run; null for any other.
    pub error: Option<String>,
    /// The absolute path of the agent directory.
    pub agent_home: String,
    /// The absolute path of the workspace.
    pub work_dir: String,
    /// The run that was forked to create this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<ForkOrigin>,
    /// The number of that process among all that have owned the run, if it is owned by turns: a process that was replaced
    /// may write late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// The last process that started or continued the run.
    #[serde(flatten)]
    pub process: ProcessInfo,
}

impl RunMetadata {
    /// The metadata of a run, `None` before its first ENGINE_START.
    pub fn from_state(state: &RunState) -> Option<Self> {
        let start = state.start.as_ref()?;
        let status = state.status?;
        let is_running = status == RunStatus::Running;
        Some(Self {
            run_id: start.run_id.clone(),
            workspace_id: start.workspace_id.clone(),
            agent_name: start.agent_name.clone(),
            status,
            created_at: state.created_at?,
            updated_at: state.updated_at?,
            end_time: state.worked_until.filter(|_| !is_running),
            initial_message: state.conversation.task().to_owned(),
            iterations: state.iterations,
            max_iterations: start.max_iterations,
            error: state
                .error
                .as_ref()
                .filter(|_| status == RunStatus::Failed)
                .map(|(message, _)| message.clone()),
            agent_home: start.agent_home.clone(),
            work_dir: start.work_dir.clone(),
            origin: state.origin.clone(),
            epoch: (start.lease == Some(LeaseKind::Turns)).then_some(start.epoch),
            process: start.process.clone(),
        })
    }

    /// Reads the metadata of the run in `run_dir`; `None` if there are none. Contains the reason if the file is not what
    /// delta writes.
    pub fn read(run_dir: &Path) -> Option<Result<Self, String>> {
        let bytes = match Self::read_bytes(run_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(Err(error.to_string())),
            Ok(bytes) => bytes,
        };
        let metadata = serde_json::from_slice(&bytes);
        Some(metadata.map_err(|error| error_text::describe_json_error(&error)))
    }

    /// Reads the bytes of metadata.json.
    ///
    /// # Errors
    /// The file is missing, not readable, not regular, or a symlink.
    pub fn read_bytes(run_dir: &Path) -> io::Result<Vec<u8>> {
        durable::read_no_follow_at_most(&metadata_path(run_dir), durable::MAX_REGULAR_BYTES)
    }

    /// What shows that a journal which results in `state` has lost its end: the metadata follow the journal, and these are
    /// ahead of it.
    pub fn find_cut(&self, state: &RunState) -> Option<String> {
        let Self { status, updated_at, .. } = self;
        let last = state.updated_at?;
        // By turns, a process that was replaced could write last.
        let is_replaced = self.epoch < Self::from_state(state)?.epoch;
        let has_end = *status != RunStatus::Running;
        let is_running = state.status == Some(RunStatus::Running);
        let is_ahead = *updated_at > last || *updated_at == last && has_end && is_running;
        (is_ahead && !is_replaced).then(|| {
            format!(
                "the end is cut ({METADATA_FILE} has {status} at {updated_at}, the last line is from {last})"
            )
        })
    }

    /// The contents of the file metadata.json.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn metadata_path(run_dir: &Path) -> PathBuf {
    run_dir.join(METADATA_FILE)
}

/// Replaces the metadata. `tag` makes the name of the temporary file one that no other owner uses.
pub(crate) fn write_metadata(
    run_dir: &Path,
    metadata: &RunMetadata,
    tag: Option<&str>,
) -> Result<(), FileError> {
    let path = metadata_path(run_dir);
    let text = metadata.to_text();
    match tag {
        Some(tag) => durable::replace_private_tagged_synced(&path, tag, text.as_bytes()),
        None => durable::replace_private_synced(&path, text.as_bytes()),
    }
}

pub(crate) fn has_metadata(run_dir: &Path, metadata: &RunMetadata) -> bool {
    RunMetadata::read(run_dir).is_some_and(|written| written.as_ref() == Ok(metadata))
}

/// Whether the metadata of a run is what its journal says.
pub fn is_metadata_current(run_dir: &Path, state: &RunState) -> bool {
    RunMetadata::from_state(state).is_some_and(|metadata| has_metadata(run_dir, &metadata))
}
