//! The layers of a staged workspace, as they are handed to the helper, and why a workspace cannot be staged.

use crate::kernel::mount_table::MountTable;
use crate::kernel::mount_tree::copy_one_mount;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The directories of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLayers {
    /// The workspace, absolute and without symlinks.
    pub workspace: PathBuf,
    /// The directory of all runs in the workspace, which is not staged.
    pub control: PathBuf,
    /// The directory with what the run changed.
    pub upper: PathBuf,
    /// The directory that the kernel works in.
    pub work: PathBuf,
    /// Whether the workspace is staged already, by the run whose call gets these layers: its directory of runs is a mount.
    pub is_nested: bool,
}

/// The workspace of a run or call whose changes are staged, as the engine hands it to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StagedWorkspace {
    pub(crate) layers: StageLayers,
    /// The mount of the staged workspace without the ones in it, if it is staged already. In the namespaces of a call, no
    /// overlay can be mounted over a directory with inherited mounts; the helper lays this one over it first.
    #[serde(skip)]
    pub(crate) stage: Option<OwnedFd>,
}

impl StagedWorkspace {
    /// The workspace with these layers.
    pub(crate) fn new(layers: &StageLayers) -> io::Result<Self> {
        let stage = layers.is_nested.then(|| copy_one_mount(&layers.workspace)).transpose()?;
        Ok(Self { layers: layers.clone(), stage })
    }
}

/// Why a workspace cannot be staged here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}")]
pub struct StageError {
    /// The reason as a fragment.
    pub reason: String,
    /// What to do about it, as a sentence without a full stop.
    pub remedy: Option<String>,
}

impl StageError {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: None }
    }

    pub(crate) fn with_remedy(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: Some(remedy.into()) }
    }
}

pub(crate) fn check_mounts(workspace: &Path) -> Result<(), StageError> {
    let mounts = MountTable::read()
        .map_err(|error| StageError::new(format!("could not read the mounts: {error}")))?;
    if mounts.is_in_stage(workspace) {
        return Err(StageError::with_remedy(
            format!("{} is in the staged workspace of another run", workspace.display()),
            "start the run outside of that run, or give it another workspace",
        ));
    }
    let Some(point) = mounts.find_below(workspace) else { return Ok(()) };
    Err(StageError::with_remedy(
        format!("{} is a mount in the workspace", point.display()),
        "unmount it, or stage a directory without mounts below it",
    ))
}
