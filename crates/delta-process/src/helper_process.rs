//! A process that works for the engine itself: no call started it, so no call ends it.

pub(super) mod relay;

use super::exec_image::ExecImage;
use super::spawn::spawn_helper;
use rustix::fd::OwnedFd;
use rustix::process::Pid;
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

/// The helpers that are alive.
static HELPERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Whether `pid` is a helper of this process.
pub(super) fn is_helper(pid: Pid) -> bool {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

/// Starts a helper with these standard streams. It dies with the thread that started it unless it `outlives_parent`.
pub(super) fn start_helper(
    image: ExecImage,
    streams: [OwnedFd; 3],
    outlives_parent: bool,
) -> io::Result<Pid> {
    // No search may see it before it is in the list.
    let mut helpers = HELPERS.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = spawn_helper(image, streams, outlives_parent)?;
    helpers.push(pid);
    Ok(pid)
}

/// Takes a process that has ended from the list: its number may become another's.
pub(super) fn forget_helper(pid: Pid) {
    HELPERS.lock().unwrap_or_else(PoisonError::into_inner).retain(|helper| *helper != pid);
}

/// Whether any helper is alive.
pub(super) fn has_helpers() -> bool {
    !HELPERS.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Whether this process, which has children, has any apart from helpers and children that `is_known`.
///
/// A child is in the list until it has been reaped, and its orphans come to the end of the list before that; so a process
/// whose ancestor was reaped cannot be overlooked as long as nothing is reaped meanwhile. Another thread may reap, so only
/// what two looks find alike counts.
pub(super) fn has_other_children(is_known: impl Fn(Pid) -> bool) -> bool {
    let helpers = HELPERS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(children) = list_children() else { return true };
    children.iter().any(|child| !helpers.contains(child) && !is_known(*child))
        || list_children().as_ref() != Some(&children)
}

/// The children of all threads of this process; `None` where the kernel does not list them.
fn list_children() -> Option<Vec<Pid>> {
    let mut listed = Vec::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let children = fs::read_to_string(thread.path().join("children")).ok()?;
        for child in children.split_ascii_whitespace() {
            listed.push(Pid::from_raw(child.parse().ok()?)?);
        }
    }
    Some(listed)
}

#[cfg(target_os = "linux")]
mod system {
    use super::super::exec_image::ExecImage;
    use super::{forget_helper, start_helper};
    use rustix::io::{Errno, retry_on_intr};
    use rustix::process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
    };
    use std::fs::File;
    use std::io;
    use std::os::fd::{AsFd, OwnedFd};
    use std::path::Path;

    /// A helper. It dies with the thread that started it, and when this is dropped.
    #[derive(Debug)]
    pub struct HelperProcess {
        pid: Pid,
        process: OwnedFd,
    }

    impl HelperProcess {
        /// Starts `program` with one argument, without an environment, and with `socket` as its stdin.
        ///
        /// # Errors
        /// The system's error.
        pub fn start(program: &Path, argument: &str, socket: OwnedFd) -> io::Result<Self> {
            let argv = [program.display().to_string(), argument.to_owned()];
            let image =
                ExecImage::without_variables(program, &argv).ok_or(io::ErrorKind::InvalidInput)?;
            let null = File::options().read(true).write(true).open("/dev/null")?;
            let streams = [socket, null.try_clone()?.into(), null.into()];
            let pid = start_helper(image, streams, false)?;
            let process = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                forget_helper(pid);
            })?;
            Ok(Self { pid, process })
        }

        /// Waits for its end.
        pub fn wait(self) {
            self.reap();
        }

        fn reap(&self) {
            // Another waiter of this process may have reaped it.
            let _ = retry_on_intr(|| {
                waitid(WaitId::PidFd(self.process.as_fd()), WaitIdOptions::EXITED)
            });
        }
    }

    impl Drop for HelperProcess {
        fn drop(&mut self) {
            // A process that has been reaped is found by its descriptor, not by a number that may be another's.
            if pidfd_send_signal(&self.process, Signal::KILL) != Err(Errno::SRCH) {
                self.reap();
            }
            forget_helper(self.pid);
        }
    }
}

#[cfg(target_os = "linux")]
pub use system::HelperProcess;

/// A helper, which only Linux has.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct HelperProcess {}

#[cfg(not(target_os = "linux"))]
impl HelperProcess {
    /// Starts nothing.
    ///
    /// # Errors
    /// Always.
    pub fn start(_: &std::path::Path, _: &str, _: std::os::fd::OwnedFd) -> std::io::Result<Self> {
        let reason = "sandboxes and staged runs need Linux";
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, reason))
    }

    /// Waits for its end.
    pub fn wait(self) {}
}
