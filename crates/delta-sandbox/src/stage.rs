//! The namespaces of a staged run or call: in them the workspace is an overlay whose upper layer is in the run directory,
//! and `.delta` is the real one. The helper makes them; the engine, or the process of a call, joins them.

use crate::machine::explain_refusal;
use crate::mount_table::MountTable;
use crate::plan::{HelperPlan, HelperReply, plain_error};
use crate::prepared::{HelperAnswer, ask_helper};
use crate::stage_mounts::{copy_one_mount, join_stage};
use delta_process::{EntrySteps, SandboxEntry};
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

    /// What the helper has refused.
    pub(crate) fn from_reply(reply: HelperReply) -> Self {
        match reply {
            HelperReply::Stage(error) => error,
            HelperReply::Refused { step, error } => {
                let refusal = explain_refusal(&step, &error);
                Self::with_remedy(refusal.reason, refusal.remedy)
            }
            HelperReply::Failed { reason } => Self::new(reason),
            reply => Self::new(format!("{reply:?}")),
        }
    }
}

/// Checks that this process could enter a stage of `workspace`, an absolute path without symlinks; `None` if it does not
/// exist yet. `program` is the program `delta`. Changes nothing.
///
/// # Errors
/// The reason and the remedy.
pub fn check_stage(program: &Path, workspace: Option<&Path>) -> Result<(), StageError> {
    if let Some(workspace) = workspace {
        check_mounts(workspace)?;
    }
    make_namespaces(program, &HelperPlan::ProbeStage).map(drop)
}

/// Moves this process, which must have one thread, into namespaces in which the workspace is staged. `program` is the
/// program `delta`.
///
/// # Errors
/// The process is where it was.
pub fn enter_stage(program: &Path, layers: &StageLayers) -> Result<(), StageError> {
    join_stage(&make_layers(program, layers)?)
}

/// Prepares the namespaces of a call whose changes are staged, and which has no sandbox. `program` is the program `delta`.
///
/// # Errors
/// Why the workspace cannot be staged.
pub fn prepare_call_stage(
    program: &Path,
    layers: &StageLayers,
) -> Result<SandboxEntry, StageError> {
    let namespaces = make_layers(program, layers)?;
    Ok(SandboxEntry::new(EntrySteps { namespaces, ..EntrySteps::default() }))
}

fn make_layers(program: &Path, layers: &StageLayers) -> Result<Vec<OwnedFd>, StageError> {
    let workspace = StagedWorkspace::new(layers).map_err(|error| {
        StageError::new(format!("could not copy the mount of the stage: {}", plain_error(&error)))
    })?;
    make_namespaces(program, &HelperPlan::Stage(workspace))
}

/// Lets the helper make namespaces; the user namespace, if there is one, is the first.
fn make_namespaces(program: &Path, plan: &HelperPlan) -> Result<Vec<OwnedFd>, StageError> {
    let HelperAnswer { reply, descriptors, helper, .. } =
        ask_helper(program, plan).map_err(|error| StageError::new(plain_error(&error)))?;
    helper.wait();
    match reply {
        HelperReply::Done => Ok(descriptors),
        reply => Err(StageError::from_reply(reply)),
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
