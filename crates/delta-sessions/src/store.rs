//! The files of sessions: `.sessions/{id}/` with metadata, lock, state, and output that is too long to be shown.
//!
//! The state of a session is a directory whose number is in the metadata. A command writes the next directory; replacing
//! the metadata commits it. A process killed at any moment leaves the state before or after the command.

use crate::{SessionError, SessionResult};
use delta_base::durable::{self, FileLock};
use delta_base::id::SessionId;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of all sessions, in the directory where they were started.
pub(crate) const SESSIONS_DIR: &str = ".sessions";
pub(crate) const METADATA_FILE: &str = "metadata.json";
pub(crate) const LOCK_FILE: &str = "lock";
/// How often a waiting command tries to lock its session.
pub(crate) const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SessionStatus {
    /// Commands can run in it.
    Active,
    /// It was ended.
    Terminated,
}

/// `metadata.json` of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SessionMetadata {
    /// Also the name of its directory.
    pub(crate) session_id: String,
    /// The command as the caller wrote it.
    pub(crate) command: String,
    pub(crate) created_at: Timestamp,
    /// When the last command ended.
    pub(crate) last_executed_at: Option<Timestamp>,
    pub(crate) status: SessionStatus,
    /// Where the next command starts, for display. `work_dir.txt` of the state has the exact bytes.
    pub(crate) work_dir: String,
    /// How many commands have run.
    pub(crate) execution_count: u64,
    /// The path of the program.
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// The number of the directory that holds the state.
    pub(crate) state: u64,
}

/// A session, with its lock.
#[derive(Debug)]
pub(crate) struct LockedSession {
    pub(crate) dir: PathBuf,
    pub(crate) metadata: SessionMetadata,
    _lock: FileLock,
}

/// What a command did to the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionStateChange {
    /// It left no state: the session keeps the one before the command.
    Lost,
    /// It left the same state, which was not written again.
    Unchanged,
    /// The next state is complete.
    Saved,
}

/// One command of a session: what it starts from, and where its state goes.
pub(crate) struct SessionTurn<'a> {
    pub(crate) session_dir: &'a Path,
    /// The current state as a script, for bash.
    pub(crate) saved_state: Option<&'a [u8]>,
    /// The directory of the current state.
    pub(crate) state_dir: &'a Path,
    /// The directory of the next state. It does not exist until the state is written.
    pub(crate) next_state_dir: &'a Path,
    /// The text of the command.
    pub(crate) text: &'a [u8],
    pub(crate) work_dir: &'a Path,
    /// How many directories at the end of `work_dir` were created only to enter it.
    pub(crate) recreated_dirs: usize,
    /// The names of the variables that each command takes from its caller. They are not part of the state.
    pub(crate) caller_variables: &'a [String],
    /// The caller's variables that hold a key.
    pub(crate) key_variables: &'a [String],
    /// The keys, which must be in no file.
    pub(crate) secrets: &'a Secrets,
}

/// Creates the directory of all sessions where it is missing.
pub(crate) fn ensure_sessions_dir(cwd: &Path) -> SessionResult<PathBuf> {
    let sessions_dir = cwd.join(SESSIONS_DIR);
    if !sessions_dir_exists(&sessions_dir)? {
        durable::ensure_private_dir(&sessions_dir)?;
    }
    durable::hide_from_git(&sessions_dir)?;
    Ok(sessions_dir)
}

/// Whether the directory of all sessions exists; a symlink or a file in its place is an error.
fn sessions_dir_exists(sessions_dir: &Path) -> SessionResult<bool> {
    match durable::metadata_no_follow(sessions_dir) {
        Ok(metadata) if !metadata.is_dir() => {
            Err(SessionError::NotADirectory(sessions_dir.to_owned()))
        }
        Ok(_) => {
            let path = sessions_dir.to_owned();
            durable::check_root_owner(sessions_dir)
                .map_err(|source| SessionError::Unreadable { path, source })?;
            Ok(true)
        }
        Err(_) => Ok(false),
    }
}

/// Creates a session: all of it, or nothing. `write_state` writes the first state into a directory.
pub(crate) fn create_session(
    sessions_dir: &Path,
    metadata: &SessionMetadata,
    write_state: impl FnOnce(&Path) -> SessionResult<()>,
) -> SessionResult<()> {
    let unfinished = sessions_dir.join(format!(".{}", metadata.session_id));
    durable::ensure_private_dir(&unfinished.join("output"))?;
    let state_dir = state_dir(&unfinished, metadata.state);
    durable::ensure_private_dir(&state_dir)?;
    let created = write_state(&state_dir).and_then(|()| {
        durable::create_private_unsynced(&unfinished.join(METADATA_FILE), &pretty_json(metadata))?;
        Ok(durable::rename_dir_unsynced(&unfinished, &sessions_dir.join(&metadata.session_id))?)
    });
    if created.is_err() {
        let _ = durable::remove_dir_all_no_follow(&unfinished);
    }
    created
}

pub(crate) fn state_dir(session_dir: &Path, number: u64) -> PathBuf {
    session_dir.join(format!("state.{number}"))
}

/// The contents of a JSON file.
pub(crate) fn pretty_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Reads the metadata of a session and checks that its state exists.
pub(crate) fn read_session_metadata(dir: &Path) -> SessionResult<SessionMetadata> {
    let damaged = |reason: String| SessionError::Damaged { dir: dir.to_owned(), reason };
    let bytes = durable::read_regular(&dir.join(METADATA_FILE))
        .map_err(|error| damaged(format!("could not read {METADATA_FILE}: {error}")))?;
    let metadata: SessionMetadata = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(format!("could not parse {METADATA_FILE}: {error}")))?;
    if dir.file_name().unwrap_or_default() != metadata.session_id.as_str() {
        let id = metadata.session_id;
        return Err(damaged(format!("{METADATA_FILE} belongs to session `{id}`")));
    }
    if metadata.status == SessionStatus::Active
        && !durable::is_dir_no_follow(&state_dir(dir, metadata.state))
    {
        return Err(damaged(format!("state.{} is missing", metadata.state)));
    }
    Ok(metadata)
}

/// The directories of all sessions of `cwd`, sorted by name.
pub(crate) fn list_session_dirs(cwd: &Path) -> SessionResult<Vec<PathBuf>> {
    let sessions_dir = cwd.join(SESSIONS_DIR);
    if !sessions_dir_exists(&sessions_dir)? {
        return Ok(Vec::new());
    }
    let entries = durable::read_dir_no_follow(&sessions_dir)
        .map_err(|source| SessionError::Unreadable { path: sessions_dir.clone(), source })?;
    let mut dirs: Vec<PathBuf> = entries
        .iter()
        .filter(|entry| entry.is_dir() && SessionId::parse(&entry.name.to_string_lossy()).is_ok())
        .map(|entry| sessions_dir.join(&entry.name))
        .collect();
    dirs.sort();
    Ok(dirs)
}

/// Locks a session for one command, once no other command has it.
pub(crate) fn lock_session(
    cwd: &Path,
    id: &SessionId,
    cancel: &CancelToken,
) -> SessionResult<LockedSession> {
    let sessions_dir = cwd.join(SESSIONS_DIR);
    sessions_dir_exists(&sessions_dir)?;
    let dir = sessions_dir.join(id.as_str());
    let not_found = || SessionError::NotFound { id: id.clone(), cwd: cwd.to_owned() };
    loop {
        if !durable::is_dir_no_follow(&dir) {
            return Err(not_found());
        }
        if let Some(lock) = FileLock::try_acquire(&dir.join(LOCK_FILE))? {
            durable::hide_from_git(&sessions_dir)?;
            // The session may have been removed meanwhile.
            let metadata = read_session_metadata(&dir).map_err(|error| {
                if durable::is_dir_no_follow(&dir) { error } else { not_found() }
            })?;
            return Ok(LockedSession { metadata, dir, _lock: lock });
        }
        if cancel.wait(LOCK_POLL_INTERVAL) {
            return Err(SessionError::Interrupted);
        }
    }
}

/// The lock of a session, unless another process has it.
pub(crate) fn try_lock_session(dir: &Path) -> Option<FileLock> {
    FileLock::try_acquire(&dir.join(LOCK_FILE)).ok().flatten()
}

/// Removes a state that is not the current one. The next command removes what is left of it.
pub(crate) fn remove_state_dir(state_dir: &Path) {
    let _ = durable::remove_dir_all_no_follow(state_dir);
}

impl LockedSession {
    /// Writes the metadata, which commits the state that it names.
    pub(crate) fn save_metadata(&self) -> SessionResult<()> {
        Ok(durable::swap_private_unsynced(
            &self.dir.join(METADATA_FILE),
            &pretty_json(&self.metadata),
        )?)
    }

    /// Removes what is left of the state before the current one, and what a killed command wrote of the next one.
    pub(crate) fn remove_stale_states(&self) {
        let number = self.metadata.state;
        for stale in [number.checked_sub(1), number.checked_add(1)].into_iter().flatten() {
            let _ = durable::remove_dir_all_no_follow(&state_dir(&self.dir, stale));
        }
    }

    /// Removes every state.
    pub(crate) fn remove_states(&self) {
        for entry in durable::read_dir_no_follow(&self.dir).unwrap_or_default() {
            if entry.name.to_string_lossy().starts_with("state.") {
                let _ = durable::remove_dir_all_no_follow(&self.dir.join(&entry.name));
            }
        }
    }
}
