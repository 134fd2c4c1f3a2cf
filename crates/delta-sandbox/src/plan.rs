//! What the engine and the helper say to each other: a line of JSON each way, the answer with descriptors.

use crate::network::ProxySettings;
use crate::plan::refusal::explain_refusal;
use crate::plan::stage_layers::{StageError, StagedWorkspace};
use crate::profile::SandboxProfile;
use crate::sandbox_error::plain_error;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

pub(crate) mod helper_client;
pub(crate) mod refusal;
pub(crate) mod stage_layers;

/// The name of the hidden command, its only argument.
pub const HELPER_COMMAND: &str = "__sandbox";

/// The most descriptors in a message.
pub(crate) const MAX_DESCRIPTORS: usize = 16;
/// The size of an answer; it holds at most one path and one reason.
const MAX_REPLY_BYTES: usize = 64 * 1024;

#[cfg(target_os = "linux")]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_os = "linux")]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const SEND_FLAGS: SendFlags = SendFlags::empty();
#[cfg(not(target_os = "linux"))]
const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();

/// What the helper does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperPlan {
    /// Finds out whether namespaces can be made.
    Probe,
    /// Finds out whether a workspace can be staged.
    ProbeStage,
    /// Makes the namespaces of a staged run, or of a staged call without a sandbox.
    Stage(StagedWorkspace),
    /// Makes the namespaces of a sandbox.
    Build(Box<NamespacePlan>),
}

impl HelperPlan {
    /// The mount that goes with the plan as a descriptor.
    fn stage(&self) -> Option<BorrowedFd<'_>> {
        let workspace = match self {
            Self::Probe | Self::ProbeStage => None,
            Self::Stage(workspace) => Some(workspace),
            Self::Build(plan) => plan.stage.as_ref(),
        };
        workspace?.stage.as_ref().map(AsFd::as_fd)
    }

    fn set_stage(&mut self, stage: Option<OwnedFd>) {
        match self {
            Self::Probe | Self::ProbeStage => {}
            Self::Stage(workspace) => workspace.stage = stage,
            Self::Build(plan) => {
                if let Some(workspace) = &mut plan.stage {
                    workspace.stage = stage;
                }
            }
        }
    }
}

/// Where the namespaces of a profile are made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NamespacePlan {
    /// The profile.
    pub(crate) profile: SandboxProfile,
    /// The HTTP proxies for a list of hosts.
    pub(crate) proxies: ProxySettings,
    /// The directory of the run.
    pub(crate) run_dir: Option<PathBuf>,
    /// The home directory.
    pub(crate) home: Option<PathBuf>,
    /// The directory for what is thrown away.
    pub(crate) scratch: PathBuf,
    /// What can be read wherever it is.
    pub(crate) visible: Vec<PathBuf>,
    /// The process id of the engine.
    pub(crate) engine: i32,
    /// The layers of the workspace for a call whose changes are staged.
    pub(crate) stage: Option<StagedWorkspace>,
    /// The version of Landlock, 0 for none.
    pub(crate) landlock: u32,
}

impl NamespacePlan {
    /// Whether something that has to be visible is in a hidden directory, as the built-in agent is in the state directory.
    pub(crate) fn is_above_visible(&self, hidden: &Path) -> bool {
        self.visible.iter().any(|path| path != hidden && path.starts_with(hidden))
    }
}

/// The answer of the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperReply {
    /// It has succeeded; with the descriptors of the namespaces.
    Done,
    /// The system does not let this user make namespaces.
    Refused { step: String, error: String },
    /// A path of the profile cannot be used.
    Path { path: PathBuf, reason: String },
    /// The home directory cannot be copied.
    Home { reason: String },
    /// The workspace cannot be staged.
    Stage(StageError),
    /// What must not be possible is possible.
    Canary { reason: String },
    /// Anything else.
    Failed { reason: String },
}

/// A failure of the helper is an answer.
pub(crate) type HelperResult<T> = Result<T, HelperReply>;

impl HelperReply {
    /// A failure at `step`.
    pub(crate) fn failed(step: &str, error: &io::Error) -> Self {
        Self::Failed { reason: format!("{step}: {}", plain_error(error)) }
    }

    /// A failure with a path.
    pub(crate) fn path(path: &Path, error: &io::Error) -> Self {
        Self::Path { path: path.to_owned(), reason: plain_error(error) }
    }

    /// Why a workspace cannot be staged, of an answer that refuses it.
    pub(crate) fn into_stage_error(self) -> StageError {
        match self {
            Self::Stage(error) => error,
            Self::Refused { step, error } => {
                let refusal = explain_refusal(&step, &error);
                StageError::with_remedy(refusal.reason, refusal.remedy)
            }
            Self::Failed { reason } => StageError::new(reason),
            reply => StageError::new(format!("{reply:?}")),
        }
    }
}

/// Sends a plan and its text, with the length before it, because the socket is used further.
pub(crate) fn send_plan(mut socket: &File, plan: &HelperPlan, text: &[u8]) -> io::Result<()> {
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes();
    send_with_descriptors(socket.as_fd(), &length, plan.stage().as_slice())?;
    socket.write_all(text)
}

/// Reads what [`send_plan`] has sent.
pub(crate) fn receive_plan(socket: BorrowedFd<'_>) -> io::Result<HelperPlan> {
    let mut length = [0; 8];
    let (count, mut descriptors) = receive_with_descriptors(socket, &mut length)?;
    let mut socket = File::from(socket.try_clone_to_owned()?);
    socket.read_exact(&mut length[count..])?;
    let mut text = Vec::new();
    socket.take(u64::from_le_bytes(length)).read_to_end(&mut text)?;
    let mut plan: HelperPlan = serde_json::from_slice(&text)?;
    plan.set_stage(descriptors.pop());
    Ok(plan)
}

/// Sends an answer with descriptors.
pub(crate) fn send_reply(
    socket: BorrowedFd<'_>,
    reply: &HelperReply,
    descriptors: &[OwnedFd],
) -> io::Result<()> {
    let text = serde_json::to_vec(reply)?;
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    send_with_descriptors(socket, &text, &descriptors)
}

pub(crate) fn send_with_descriptors(
    socket: BorrowedFd<'_>,
    text: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(text)], &mut control, SEND_FLAGS)?;
    Ok(())
}

/// Receives the answer; `None` if the helper has died without one.
pub(crate) fn receive_reply(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(HelperReply, Vec<OwnedFd>)>> {
    let mut text = vec![0; MAX_REPLY_BYTES];
    let (count, descriptors) = receive_with_descriptors(socket, &mut text)?;
    Ok(match count {
        0 => None,
        count => Some((serde_json::from_slice(&text[..count])?, descriptors)),
    })
}

/// Receives what fits into `text`, and the descriptors that came with it; the count of bytes is 0 at the end.
pub(crate) fn receive_with_descriptors(
    socket: BorrowedFd<'_>,
    text: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(text)], &mut control, RECEIVE_FLAGS)?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((message.bytes, descriptors))
}
