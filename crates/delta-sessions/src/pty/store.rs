//! The files of sessions at a terminal: `.sessions-pty/{id}/` with metadata, the holder's socket and lock, and the output
//! once the program has ended.

use super::ring::{OutputRing, RingPositions};
use super::screen::{ScreenContents, TerminalSize};
use super::{PtyError, PtyResult};
use crate::SessionError;
use crate::store::{METADATA_FILE, pretty_json, try_lock_session};
use delta_base::durable;
use delta_base::id::SessionId;
use delta_base::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directory of all sessions, in the directory where they were started.
pub(super) const PTY_SESSIONS_DIR: &str = ".sessions-pty";
pub(super) const SOCKET_FILE: &str = "socket";
const RAW_OUTPUT_FILE: &str = "output";
const TEXT_OUTPUT_FILE: &str = "output.txt";
const LAST_SCREEN_FILE: &str = "last.json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PtyStatus {
    /// The program runs.
    Active,
    /// The program ended by itself.
    Ended,
    /// The session was ended.
    Terminated,
    /// The holder ended without recording why. Never written to a file.
    Dead,
}

/// `metadata.json` of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PtyMetadata {
    /// Also the name of its directory.
    pub(super) session_id: String,
    /// The program with its arguments.
    pub(super) command: String,
    pub(super) created_at: Timestamp,
    /// As the holder recorded it last.
    pub(super) status: PtyStatus,
    /// The directory in which the session was started.
    pub(super) work_dir: String,
    #[serde(flatten)]
    pub(super) size: TerminalSize,
    /// The process id of the program.
    pub(super) pid: u32,
    /// 128 + N after signal N.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<Timestamp>,
}

/// The output of a session that is kept.
#[derive(Debug)]
pub(super) struct PtyOutput {
    pub(super) raw: OutputRing,
    pub(super) text: OutputRing,
}

/// `last.json`: how far the output was read, and the last screen.
#[derive(Debug, Serialize, Deserialize)]
struct SavedOutputState {
    raw: RingPositions,
    text: RingPositions,
    #[serde(rename = "shown")]
    screen: ScreenContents,
}

/// The directories in the directory of all sessions.
#[derive(Default)]
pub(super) struct PtySessionDirs {
    pub(super) sessions: Vec<PathBuf>,
    /// The directories of sessions whose start has not finished.
    pub(super) unfinished: Vec<PathBuf>,
}

/// Creates the directory of all sessions where it is missing.
pub(super) fn ensure_pty_sessions_dir(cwd: &Path) -> PtyResult<PathBuf> {
    let sessions_dir = cwd.join(PTY_SESSIONS_DIR);
    durable::ensure_private_dir(&sessions_dir)?;
    check_pty_sessions_dir(&sessions_dir)?;
    durable::hide_from_git(&sessions_dir)?;
    Ok(sessions_dir)
}

/// Refuses a directory of another user, and a symlink.
fn check_pty_sessions_dir(sessions_dir: &Path) -> PtyResult<()> {
    let path = sessions_dir.to_owned();
    match durable::metadata_no_follow(sessions_dir) {
        Err(source) => Err(SessionError::Unreadable { path, source }.into()),
        Ok(metadata) if !metadata.is_dir() => Err(SessionError::NotADirectory(path).into()),
        Ok(metadata) if metadata.uid() != rustix::process::geteuid().as_raw() => {
            Err(PtyError::WrongOwner(path))
        }
        Ok(_) => Ok(()),
    }
}

/// The directory of a session, which must exist.
pub(super) fn find_pty_session_dir(cwd: &Path, id: &SessionId) -> PtyResult<PathBuf> {
    let sessions_dir = cwd.join(PTY_SESSIONS_DIR);
    let dir = sessions_dir.join(id.as_str());
    if !durable::is_dir_no_follow(&dir) {
        return Err(PtyError::NotFound { id: id.clone(), cwd: cwd.to_owned() });
    }
    check_pty_sessions_dir(&sessions_dir)?;
    Ok(dir)
}

/// The directories of all sessions, sorted by name.
pub(super) fn list_pty_session_dirs(cwd: &Path) -> PtyResult<PtySessionDirs> {
    let mut dirs = PtySessionDirs::default();
    let sessions_dir = cwd.join(PTY_SESSIONS_DIR);
    if durable::metadata_no_follow(&sessions_dir).is_err() {
        return Ok(dirs);
    }
    check_pty_sessions_dir(&sessions_dir)?;
    let entries = durable::read_dir_no_follow(&sessions_dir)
        .map_err(|source| SessionError::Unreadable { path: sessions_dir.clone(), source })?;
    let is_id = |name: &str| SessionId::parse(name).is_ok();
    for entry in entries.iter().filter(|entry| entry.is_dir()) {
        let name = entry.name.to_string_lossy().into_owned();
        let path = sessions_dir.join(&entry.name);
        if is_id(&name) {
            dirs.sessions.push(path);
        } else if name.strip_prefix('.').is_some_and(is_id) {
            dirs.unfinished.push(path);
        }
    }
    dirs.sessions.sort();
    Ok(dirs)
}

/// Reads the metadata of a session.
pub(super) fn read_pty_metadata(dir: &Path) -> PtyResult<PtyMetadata> {
    let metadata: PtyMetadata = read_json(dir, METADATA_FILE)?;
    if dir.file_name().unwrap_or_default() == metadata.session_id.as_str() {
        return Ok(metadata);
    }
    let reason = format!("{METADATA_FILE} belongs to session `{}`", metadata.session_id);
    Err(PtyError::Damaged { dir: dir.to_owned(), reason })
}

/// Reads the metadata of a session, with the status `Dead` where its holder is gone.
pub(super) fn current_pty_metadata(dir: &Path) -> PtyResult<PtyMetadata> {
    let metadata = read_pty_metadata(dir)?;
    if metadata.status != PtyStatus::Active || try_lock_session(dir).is_none() {
        return Ok(metadata);
    }
    // The holder may have ended meanwhile and recorded why.
    let mut metadata = read_pty_metadata(dir)?;
    if metadata.status == PtyStatus::Active {
        metadata.status = PtyStatus::Dead;
    }
    Ok(metadata)
}

/// Replaces the metadata in the directory of a session.
pub(super) fn save_pty_metadata(dir: &Path, metadata: &PtyMetadata) -> PtyResult<()> {
    Ok(durable::replace_private_unsynced(&dir.join(METADATA_FILE), &pretty_json(metadata))?)
}

fn read_file(dir: &Path, name: &str) -> PtyResult<Vec<u8>> {
    durable::read_regular(&dir.join(name)).map_err(|error| PtyError::Damaged {
        dir: dir.to_owned(),
        reason: format!("could not read {name}: {error}"),
    })
}

fn read_json<T: DeserializeOwned>(dir: &Path, name: &str) -> PtyResult<T> {
    serde_json::from_slice(&read_file(dir, name)?).map_err(|error| PtyError::Damaged {
        dir: dir.to_owned(),
        reason: format!("could not parse {name}: {error}"),
    })
}

impl PtyOutput {
    pub(super) fn ring(&self, raw: bool) -> &OutputRing {
        if raw { &self.raw } else { &self.text }
    }

    /// Writes the output and the last screen to the directory of a session.
    pub(super) fn save(&self, dir: &Path, screen: ScreenContents) -> PtyResult<()> {
        durable::replace_private_unsynced(&dir.join(RAW_OUTPUT_FILE), &self.raw.contents())?;
        durable::replace_private_unsynced(&dir.join(TEXT_OUTPUT_FILE), &self.text.contents())?;
        self.save_positions(dir, screen)
    }

    /// Records how far the output was read.
    pub(super) fn save_positions(&self, dir: &Path, screen: ScreenContents) -> PtyResult<()> {
        let state =
            SavedOutputState { raw: self.raw.positions(), text: self.text.positions(), screen };
        Ok(durable::replace_private_unsynced(&dir.join(LAST_SCREEN_FILE), &pretty_json(&state))?)
    }

    /// Reads the output and the last screen of an ended session.
    pub(super) fn restore(dir: &Path) -> PtyResult<(Self, ScreenContents)> {
        let state: SavedOutputState = read_json(dir, LAST_SCREEN_FILE)?;
        let raw = OutputRing::restore(read_file(dir, RAW_OUTPUT_FILE)?, state.raw);
        let text = OutputRing::restore(read_file(dir, TEXT_OUTPUT_FILE)?, state.text);
        Ok((Self { raw, text }, state.screen))
    }
}
