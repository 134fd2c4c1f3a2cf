//! Starts the helper and asks it.

use crate::plan::{HELPER_COMMAND, HelperPlan, HelperReply, receive_reply, send_plan};
use delta_process::HelperProcess;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// How long the helper may take, in seconds; a directory on a dead server would block it for ever.
const HELPER_TIMEOUT: i64 = 30;

/// What the helper has answered.
pub(crate) struct HelperAnswer {
    pub(crate) reply: HelperReply,
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) socket: File,
    pub(crate) helper: HelperProcess,
}

/// Starts the helper, and waits for its answer.
pub(crate) fn ask_helper(program: &Path, plan: &HelperPlan) -> io::Result<HelperAnswer> {
    // Before there is a helper that waits for it.
    let text = serde_json::to_vec(plan)?;
    let (socket, other) = UnixStream::pair()?;
    let helper = HelperProcess::start(program, HELPER_COMMAND, other.into())?;
    let socket = File::from(OwnedFd::from(socket));
    let sent = send_plan(&socket, plan, &text);
    let limit = rustix::event::Timespec { tv_sec: HELPER_TIMEOUT, tv_nsec: 0 };
    let mut descriptors = [PollFd::new(&socket, PollFlags::IN)];
    if retry_on_intr(|| poll(&mut descriptors, Some(&limit)))? == 0 {
        return Err(io::Error::other(format!("no answer in {HELPER_TIMEOUT} seconds")));
    }
    let answer = receive_reply(socket.as_fd())?;
    sent?;
    let (reply, descriptors) = answer.ok_or_else(|| io::Error::other("the helper has died"))?;
    Ok(HelperAnswer { reply, descriptors, socket, helper })
}
