//! The stage of a run: its state in the journal, and its layers in the run directory.

use crate::event::{Payload, StageApply};
use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::id::SnapshotId;
use delta_base::random::random_bytes;
use rustix::fs::{Gid, Mode, Uid};
use std::io;
use std::path::{Path, PathBuf};

/// The directory in a run directory with the layers of the stage.
const STAGE_DIR: &str = "stage";

/// The directory in a run directory with the layers of a call whose tool has `stage: ask`.
const CALL_STAGE_DIR: &str = "call-stage";

/// The start of the name of layers that are being deleted.
const CLEARED_PREFIX: &str = ".cleared-stage-";

/// The stage of a run, as its journal has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageState {
    /// The snapshot of the workspace without the staged changes.
    pub base: SnapshotId,
    /// The APPLY that was started and whose end is not recorded.
    pub pending: Option<StageApply>,
    /// Whether the layers were discarded or applied as a whole, so that what is left of them does not count.
    pub is_cleared: bool,
}

impl StageState {
    /// Adds the next event of a run to its stage.
    pub(crate) fn apply_event(stage: &mut Option<Self>, payload: &Payload) {
        match (payload, stage.as_mut()) {
            (Payload::EngineStart(start), _) => {
                *stage = start.config.stage.map(|stage| Self::new(stage.base, false));
            }
            (Payload::Discard { base, .. }, _) => *stage = Some(Self::new(*base, true)),
            // The fork has the staged files in a workspace of its own.
            (Payload::Fork(_), _) => *stage = None,
            (Payload::Apply(apply), Some(stage)) => stage.pending = Some((**apply).clone()),
            (Payload::ApplyEnd { rest, .. }, Some(stage)) => stage.end_apply(*rest),
            // A rollback stages what it restores.
            (Payload::Rollback { .. }, Some(stage)) => stage.is_cleared = false,
            _ => {}
        }
    }

    fn new(base: SnapshotId, is_cleared: bool) -> Self {
        Self { base, pending: None, is_cleared }
    }

    /// Ends the pending APPLY, if there is one; `has_rest` if some of its changes are not in the workspace.
    pub fn end_apply(&mut self, has_rest: bool) {
        // What was not applied keeps its base, or it would not be a change any more.
        if let Some(apply) = self.pending.take().filter(|_| !has_rest) {
            self.base = apply.base;
            self.is_cleared |= !apply.rest;
        }
    }
}

/// The layers of a stage, whether they exist or not.
#[derive(Debug, Clone)]
pub struct StageDir {
    run_dir: PathBuf,
    name: &'static str,
}

impl StageDir {
    /// The layers of the run in `run_dir`.
    pub fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), name: STAGE_DIR }
    }

    /// The layers of one call of the run in `run_dir`.
    pub fn for_call(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), name: CALL_STAGE_DIR }
    }

    fn path(&self) -> PathBuf {
        self.run_dir.join(self.name)
    }

    /// What the run changed, in the format of overlayfs.
    pub fn upper(&self) -> PathBuf {
        self.path().join("upper")
    }

    /// The directory that the kernel works in.
    pub fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Whether the layers exist, with or without changes.
    pub fn has_layers(&self) -> bool {
        durable::is_dir_no_follow(&self.upper())
    }

    /// Whether the run changed something.
    pub fn has_changes(&self) -> bool {
        durable::read_dir_no_follow(&self.upper()).is_ok_and(|entries| !entries.is_empty())
    }

    /// Creates the layers for `workspace`, unless they exist. Whether they are new.
    pub fn create(&self, workspace: &Path) -> Result<bool, FileError> {
        durable::ensure_private_dir(&self.work())?;
        let upper = self.upper();
        if durable::is_dir_no_follow(&upper) {
            return Ok(false);
        }
        durable::create_private_dir_synced(&upper)?;
        // The root of the upper layer becomes the workspace itself.
        copy_owner_and_mode(workspace, &upper)
            .map_err(FileError::at("change the mode of", &upper))?;
        Ok(true)
    }

    /// Removes the layers with all staged changes. They disappear at once; what a crash leaves of them, the next call
    /// deletes.
    pub fn clear(&self) -> Result<(), FileError> {
        let entries = durable::read_dir_no_follow(&self.run_dir).unwrap_or_default();
        if entries.iter().any(|entry| entry.name == self.name) {
            let name = format!("{CLEARED_PREFIX}{}", encode_hex(&random_bytes::<4>()));
            let cleared = self.run_dir.join(name);
            durable::rename_dir_synced(&self.path(), &cleared)?;
            remove_layers(&cleared)?;
        }
        entries
            .iter()
            .filter(|entry| entry.name.to_string_lossy().starts_with(CLEARED_PREFIX))
            .try_for_each(|entry| remove_layers(&self.run_dir.join(&entry.name)))
    }
}

fn remove_layers(path: &Path) -> Result<(), FileError> {
    durable::remove_dir_all_no_follow(path).map_err(FileError::at("remove", path))
}

fn copy_owner_and_mode(from: &Path, to: &Path) -> io::Result<()> {
    let stat = rustix::fs::stat(from)?;
    let dir = durable::open_dir_no_follow(to)?;
    // Only root can give a directory to another user, and needs to.
    let _ = rustix::fs::fchown(
        &dir,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    );
    Ok(rustix::fs::fchmod(&dir, Mode::from_raw_mode(stat.st_mode))?)
}
