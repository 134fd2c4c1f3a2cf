//! Where sessions lie: `.sessions/{id}/` with its metadata, its lock, its state, and output that is too large to be shown.
//!
//! The state of a session is a directory that the metadata names. A command makes the next one, and the metadata that
//! names it is the moment from which it counts: whoever is killed leaves the state before or after.

use super::SessionError;
use crate::durable::{self, Lock};
use crate::id::SessionId;
use crate::signal::Cancel;
use crate::text::Secrets;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of all sessions, in the directory in which they were started.
pub const DIRECTORY: &str = ".sessions";
const METADATA: &str = "metadata.json";
const LOCK: &str = "lock";
/// How often is looked whether the command before has ended.
const TICK: Duration = Duration::from_millis(5);

/// Whether commands may be run in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// They may.
    Active,
    /// It was ended.
    Terminated,
}

/// metadata.json of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metadata {
    /// Also the name of its directory.
    pub session_id: String,
    /// The command as it was given.
    pub command: String,
    /// When it was started.
    pub created_at: Timestamp,
    /// When the last command ended.
    pub last_executed_at: Option<Timestamp>,
    /// Whether it was ended.
    pub status: Status,
    /// Where the next command begins, for people; the exact bytes are in `work_dir.txt` of the state.
    pub work_dir: String,
    /// How many commands were run.
    pub execution_count: u64,
    /// The file of the program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The number of the directory that holds the state.
    pub state: u64,
}

/// A session whose lock is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) dir: PathBuf,
    pub(super) metadata: Metadata,
    _lock: Lock,
}

/// What a command leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// No state: that before it stands.
    Nothing,
    /// The state before it, which is not written again.
    Same,
    /// The next state.
    New,
}

/// One command of a session, from what it begins with to where its state is written.
pub(super) struct Turn<'a> {
    /// The directory of the session.
    pub(super) session: &'a Path,
    /// The state that the last command left, as bash reads it.
    pub(super) state: Option<&'a [u8]>,
    /// The directory of the state that the last command left.
    pub(super) before: &'a Path,
    /// The directory of the state that this one leaves; who writes it makes it.
    pub(super) next: &'a Path,
    /// The text of the command.
    pub(super) text: &'a [u8],
    /// Where it begins.
    pub(super) work_dir: &'a Path,
    /// How many directories at the end of `work_dir` were made again only to be entered.
    pub(super) missing: usize,
    /// The names of variables that come from the caller each time, and are not part of the state.
    pub(super) passing: &'a [String],
    /// Those of them that hold a key.
    pub(super) keys: &'a [String],
    /// The values of these, which are in no file.
    pub(super) secrets: &'a Secrets,
}

/// Makes the directory of all sessions, and refuses one that leads elsewhere.
pub(super) fn root(cwd: &Path) -> Result<PathBuf, SessionError> {
    let root = cwd.join(DIRECTORY);
    if !is_there(&root)? {
        durable::ensure_dir(&root, true)?;
    }
    Ok(root)
}

/// Whether the directory of all sessions is there.
fn is_there(root: &Path) -> Result<bool, SessionError> {
    match fs::symlink_metadata(root) {
        Ok(found) if !found.is_dir() => Err(SessionError::NotADirectory(root.to_owned())),
        found => Ok(found.is_ok()),
    }
}

/// Makes a session; it is there as a whole or not at all. `fill` writes its first state into a directory.
pub(super) fn create(
    root: &Path,
    metadata: &Metadata,
    fill: impl FnOnce(&Path) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    let unfinished = root.join(format!(".{}", metadata.session_id));
    durable::ensure_dir(&unfinished.join("output"), true)?;
    let state = state_dir(&unfinished, metadata.state);
    durable::ensure_dir(&state, true)?;
    let made = fill(&state)
        .and_then(|()| Ok(durable::write_new(&unfinished.join(METADATA), &json(metadata))?))
        .and_then(|()| Ok(durable::name_dir(&unfinished, &root.join(&metadata.session_id))?));
    if made.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    made
}

/// The directory of a state.
pub(super) fn state_dir(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("state.{number}"))
}

fn json(metadata: &Metadata) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(metadata).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Reads the metadata of a session, and looks whether its state is there.
pub(super) fn read(dir: &Path) -> Result<Metadata, SessionError> {
    let damaged = |reason: String| SessionError::Damaged { dir: dir.to_owned(), reason };
    let bytes = fs::read(dir.join(METADATA))
        .map_err(|error| damaged(format!("{METADATA} cannot be read: {error}")))?;
    let metadata: Metadata = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(format!("{METADATA} is not what it should be: {error}")))?;
    let name = dir.file_name().unwrap_or_default();
    if name != metadata.session_id.as_str() {
        return Err(damaged(format!("it is that of `{}`", metadata.session_id)));
    }
    if metadata.status == Status::Active && !state_dir(dir, metadata.state).is_dir() {
        return Err(damaged("its state is missing".to_owned()));
    }
    Ok(metadata)
}

/// The directories of all sessions below `cwd`, in order of their names.
pub(super) fn all(cwd: &Path) -> Result<Vec<PathBuf>, SessionError> {
    let root = cwd.join(DIRECTORY);
    if !is_there(&root)? {
        return Ok(Vec::new());
    }
    let entries =
        fs::read_dir(&root).map_err(|source| SessionError::Unreadable { dir: root, source })?;
    let mut dirs: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| SessionId::parse(&entry.file_name().to_string_lossy()).is_ok())
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && !path.is_symlink())
        .collect();
    dirs.sort();
    Ok(dirs)
}

/// Takes a session for one command; waits for the command that has it.
pub(super) fn hold(cwd: &Path, id: &SessionId, cancel: &Cancel) -> Result<Held, SessionError> {
    let root = cwd.join(DIRECTORY);
    is_there(&root)?;
    let dir = root.join(id.as_str());
    let missing = || SessionError::Missing { id: id.clone(), cwd: cwd.to_owned() };
    loop {
        if !fs::symlink_metadata(&dir).is_ok_and(|found| found.is_dir()) {
            return Err(missing());
        }
        if let Some(lock) = Lock::take(&dir.join(LOCK))? {
            // It may have been removed while we waited.
            let read = read(&dir).map_err(|error| if dir.is_dir() { error } else { missing() });
            return Ok(Held { metadata: read?, dir, _lock: lock });
        }
        if cancel.wait(TICK) {
            return Err(SessionError::Interrupted);
        }
    }
}

/// The lock of a session, when nobody has it.
pub(super) fn free(dir: &Path) -> Option<Lock> {
    Lock::take(&dir.join(LOCK)).ok().flatten()
}

/// Removes a state that does not count; what of it is not removed now, the next command sweeps away.
pub(super) fn forget(state: &Path) {
    for found in fs::read_dir(state).into_iter().flatten().flatten() {
        let _ = fs::remove_file(found.path());
    }
    let _ = fs::remove_dir(state);
}

impl Held {
    /// Makes a fact of what `metadata` says.
    pub(super) fn save(&self) -> Result<(), SessionError> {
        Ok(durable::alternate(&self.dir.join(METADATA), &json(&self.metadata))?)
    }

    /// Removes what was not removed of the state before the one that counts, and what a command that was killed has made of
    /// the one behind it.
    pub(super) fn sweep(&self) {
        let number = self.metadata.state;
        for other in [number.checked_sub(1), number.checked_add(1)].into_iter().flatten() {
            let _ = fs::remove_dir_all(state_dir(&self.dir, other));
        }
    }

    /// Removes every state.
    pub(super) fn empty(&self) {
        for path in
            fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|found| found.path())
        {
            if path.file_name().unwrap_or_default().to_string_lossy().starts_with("state.") {
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}
