//! The namespaces of a staged run or call: in them the workspace is an overlay whose upper layer is in the run directory,
//! and `.delta` is the real one. The helper makes them; the engine, or the process of a call, joins them.

use crate::helper::stage_mounts::join_stage;
use crate::plan::helper_client::{HelperAnswer, ask_helper};
use crate::plan::stage_layers::{StageError, StageLayers, StagedWorkspace, check_mounts};
use crate::plan::{HelperPlan, HelperReply};
use crate::sandbox_error::plain_error;
use delta_process::{EntrySteps, SandboxEntry};
use std::os::fd::OwnedFd;
use std::path::Path;

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
        reply => Err(reply.into_stage_error()),
    }
}
