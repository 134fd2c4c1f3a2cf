//! Where sessions at a terminal lie: `.sessions-pty/{id}/` with the metadata, the socket and the lock of the holder, and
//! what was printed once it has gone.

use super::ring::{Places, Ring};
use super::screen::{Shown, Size};
use super::{PtyError, Result};
use crate::durable::{self, Lock};
use crate::id::SessionId;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of all sessions, in the directory in which they were started.
pub const DIRECTORY: &str = ".sessions-pty";
/// The names in the directory of a session.
pub(super) const METADATA: &str = "metadata.json";
pub(super) const LOCK: &str = "lock";
pub(super) const SOCKET: &str = "socket";
const RAW: &str = "output";
const TEXT: &str = "output.txt";
const LAST: &str = "last.json";

/// How it is with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The program runs.
    Active,
    /// The program ended.
    Ended,
    /// The session was ended.
    Terminated,
    /// The holder is gone, and did not say why; never written.
    Dead,
}

/// metadata.json of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metadata {
    /// Also the name of its directory.
    pub session_id: String,
    /// The program with its arguments.
    pub command: String,
    /// When it was started.
    pub created_at: Timestamp,
    /// How it is with it, as far as the holder could say.
    pub status: Status,
    /// The directory in which it was started.
    pub work_dir: String,
    /// The size of its terminal.
    #[serde(flatten)]
    pub size: Size,
    /// The process of the program.
    pub pid: u32,
    /// What the program left with; 128 and the number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// What is kept of a session's output.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) raw: Ring,
    pub(super) text: Ring,
}

/// What a session leaves beside its output.
#[derive(Debug, Serialize, Deserialize)]
struct Last {
    raw: Places,
    text: Places,
    shown: Shown,
}

/// Makes the directory of all sessions; it must be ours, and not lead elsewhere.
pub(super) fn root(cwd: &Path) -> Result<PathBuf> {
    let root = cwd.join(DIRECTORY);
    durable::ensure_dir(&root, true)?;
    check(&root)?;
    Ok(root)
}

fn check(root: &Path) -> Result<()> {
    let found = fs::symlink_metadata(root)
        .map_err(|source| PtyError::Unreadable { dir: root.to_owned(), source })?;
    if !found.is_dir() {
        return Err(PtyError::NotADirectory(root.to_owned()));
    }
    match found.uid() == rustix::process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(PtyError::NotOurs(root.to_owned())),
    }
}

/// The directory of a session that is there.
pub(super) fn dir(cwd: &Path, id: &SessionId) -> Result<PathBuf> {
    let root = cwd.join(DIRECTORY);
    let dir = root.join(id.as_str());
    if !dir.is_dir() || dir.is_symlink() {
        return Err(PtyError::Missing { id: id.clone(), cwd: cwd.to_owned() });
    }
    check(&root)?;
    Ok(dir)
}

/// The directories of all sessions, and those that never became one.
pub(super) fn all(cwd: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let root = cwd.join(DIRECTORY);
    if fs::symlink_metadata(&root).is_err() {
        return Ok((Vec::new(), Vec::new()));
    }
    check(&root)?;
    let entries =
        fs::read_dir(&root).map_err(|source| PtyError::Unreadable { dir: root, source })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_id = |name: &str| SessionId::parse(name).is_ok();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut dirs: Vec<PathBuf> = paths.filter(|path| path.is_dir() && !path.is_symlink()).collect();
    dirs.sort();
    let unfinished = |path: &PathBuf| name(path).strip_prefix('.').is_some_and(is_id);
    let begun = dirs.iter().filter(|path| unfinished(path)).cloned().collect();
    dirs.retain(|path| is_id(&name(path)));
    Ok((dirs, begun))
}

/// The metadata in the directory of a session.
pub(super) fn read(dir: &Path) -> Result<Metadata> {
    let damaged = |reason: String| PtyError::Damaged { dir: dir.to_owned(), reason };
    let bytes = durable::read_regular(&dir.join(METADATA))
        .map_err(|error| damaged(format!("{METADATA} cannot be read: {error}")))?;
    let metadata: Metadata = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(format!("{METADATA} is not what it should be: {error}")))?;
    match dir.file_name().unwrap_or_default() == metadata.session_id.as_str() {
        true => Ok(metadata),
        false => Err(damaged(format!("it is that of `{}`", metadata.session_id))),
    }
}

/// The same, with what the holder could not say: that it is gone.
pub(super) fn look(dir: &Path) -> Result<Metadata> {
    let found = read(dir)?;
    if found.status != Status::Active || free(dir).is_none() {
        return Ok(found);
    }
    // It may have gone since, and then it said why.
    let mut found = read(dir)?;
    if found.status == Status::Active {
        found.status = Status::Dead;
    }
    Ok(found)
}

/// Writes the metadata in the directory of a session.
pub(super) fn save(dir: &Path, metadata: &Metadata) -> Result<()> {
    Ok(durable::exchange(&dir.join(METADATA), &json(metadata))?)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The lock of a session, when no holder and no command has it.
pub(super) fn free(dir: &Path) -> Option<Lock> {
    Lock::take(&dir.join(LOCK)).ok().flatten()
}

impl Output {
    /// Writes what is kept into the directory of a session.
    pub(super) fn save(&self, dir: &Path, shown: Shown) -> Result<()> {
        durable::exchange(&dir.join(RAW), &self.raw.bytes())?;
        durable::exchange(&dir.join(TEXT), &self.text.bytes())?;
        self.save_places(dir, shown)
    }

    /// Writes how far it was read.
    pub(super) fn save_places(&self, dir: &Path, shown: Shown) -> Result<()> {
        let last = Last { raw: self.raw.places(), text: self.text.places(), shown };
        Ok(durable::exchange(&dir.join(LAST), &json(&last))?)
    }

    /// What a session left.
    pub(super) fn restore(dir: &Path) -> Result<(Self, Shown)> {
        let read = |name: &str| {
            durable::read_regular(&dir.join(name)).map_err(|error| PtyError::Damaged {
                dir: dir.to_owned(),
                reason: format!("{name} cannot be read: {error}"),
            })
        };
        let last: Last =
            serde_json::from_slice(&read(LAST)?).map_err(|error| PtyError::Damaged {
                dir: dir.to_owned(),
                reason: format!("{LAST} is not what it should be: {error}"),
            })?;
        let raw = Ring::restore(read(RAW)?, last.raw);
        let text = Ring::restore(read(TEXT)?, last.text);
        Ok((Self { raw, text }, last.shown))
    }
}
