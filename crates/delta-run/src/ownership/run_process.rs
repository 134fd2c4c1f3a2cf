//! The process that works on a run, held by a descriptor: a signal never reaches another process that got its id.

use crate::event::ProcessInfo;
use crate::ownership::owner_process::{self, OwnerStatus};
use crate::run_files::OWNER_LOCK_FILE;
use delta_base::durable;
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

/// A process that works, or has worked, on a run.
#[derive(Debug)]
pub struct RunProcess {
    /// The process id.
    pub pid: u32,
    pidfd: OwnedFd,
    stop_request_file: PathBuf,
}

/// Why a wait for the end of a process is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessWait {
    /// The process has ended.
    Ended,
    /// The deadline has passed.
    TimedOut,
    /// Cancellation was requested.
    Cancelled,
}

impl RunProcess {
    /// Opens the recorded process of the run in `run_dir`. `None` if it has ended, or if another process has the lock of
    /// the run.
    ///
    /// # Errors
    /// The system has no descriptors for processes.
    pub fn open(process: &ProcessInfo, run_dir: &Path) -> io::Result<Option<Self>> {
        let pid = process.pid;
        let Some(pidfd) = open_pidfd(pid)? else { return Ok(None) };
        // Checked after the descriptor was opened: if the id belongs to another process now, the descriptor does, too.
        let is_recorded = owner_process::owner_status(process) == OwnerStatus::Alive;
        let holder = durable::read_lock_holder(&run_dir.join(OWNER_LOCK_FILE));
        let has_lock = holder.is_none_or(|holder| holder == pid);
        let stop_request_file = stop_request_file(process, run_dir);
        Ok((is_recorded && has_lock).then_some(Self { pid, pidfd, stop_request_file }))
    }

    /// Asks the process to exit: with SIGINT, or with SIGTERM if it ignores SIGINT, as the background job of a
    /// script does. A second signal would end the process before it has exited, so it gets one only once, unless
    /// `is_forced`.
    ///
    /// # Errors
    /// The process belongs to another user.
    pub fn interrupt(&self, is_forced: bool) -> io::Result<()> {
        // Exclusive creation lets one of several commands send the signal. Where the file cannot be created, as on a full
        // disk, the process must still be stopped.
        let is_requested = matches!(
            durable::create_private_file(&self.stop_request_file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists
        );
        if is_requested && !is_forced {
            return Ok(());
        }
        let sent = self.send_interrupt();
        if sent.is_err() {
            let _ = durable::remove_file_no_follow(&self.stop_request_file);
        }
        sent
    }

    fn send_interrupt(&self) -> io::Result<()> {
        let signal = if ignores_sigint(self.pid) { Signal::TERM } else { Signal::INT };
        match send_signal(&self.pidfd, signal) {
            Err(error) if error.raw_os_error() == Some(ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Waits until the process has ended.
    pub fn wait(&self, deadline: Instant, cancel: &CancelToken) -> ProcessWait {
        loop {
            if cancel.is_requested() {
                return ProcessWait::Cancelled;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let mut fds = [
                PollFd::new(&self.pidfd, PollFlags::IN),
                PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN),
            ];
            // After an interrupted poll, the loop checks everything again.
            let _ = poll(&mut fds, Some(&to_timespec(rest)));
            if !fds[0].revents().is_empty() {
                return ProcessWait::Ended;
            }
            cancel.drain();
            if rest.is_zero() {
                return ProcessWait::TimedOut;
            }
        }
    }
}

/// Removes what [`RunProcess::interrupt`] has left of the recorded process of the run in `run_dir`, which has ended.
pub fn remove_stop_request(process: &ProcessInfo, run_dir: &Path) {
    // A file that stays is harmless: it names a process that no longer exists.
    let _ = durable::remove_file_no_follow(&stop_request_file(process, run_dir));
}

/// The file that says that the process was asked to exit.
fn stop_request_file(process: &ProcessInfo, run_dir: &Path) -> PathBuf {
    run_dir.join(format!("stop-{}-{}", process.pid, process.start_time_unix))
}

/// No such process.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Whether the process ignores SIGINT, from the mask of ignored signals in `/proc/PID/status` (proc(5)).
fn ignores_sigint(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (Signal::INT.as_raw() - 1)) != 0
}

/// The directory that the command line of the holder of a call names, which older versions leave out; `None` if the process is
/// no holder.
pub(crate) fn holder_directory(pid: u32) -> Option<Option<Vec<u8>>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).skip(1);
    let is_holder = words.next() == Some(b"tool") && words.next() == Some(b"hold");
    let dir = words.next().filter(|word| !word.is_empty());
    is_holder.then(|| dir.map(<[u8]>::to_vec))
}

/// Kills the process that has the lock at `path`, if it can be seen from here, and waits until it has ended.
pub fn end_lock_holder(path: &Path, patience: Duration) {
    let find_holder = || {
        let mut listed = durable::list_lock_holders(path).into_iter();
        listed.find(|holder| holder.is_on_device).map(|holder| holder.pid)
    };
    // The descriptor is opened first: if it is of the holder now, no other process gets the signal.
    if let Some(pid) = find_holder()
        && let Ok(Some(holder)) = open_pidfd(pid)
        && find_holder() == Some(pid)
    {
        let _ = send_signal(&holder, Signal::KILL);
        let _ = poll(&mut [PollFd::new(&holder, PollFlags::IN)], Some(&to_timespec(patience)));
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn open_pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    use rustix::process::{PidfdFlags, pidfd_open};
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Some(pidfd)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open_pidfd(_: u32) -> io::Result<Option<OwnedFd>> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
pub(crate) fn send_signal(pidfd: &OwnedFd, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::pidfd_send_signal(pidfd, signal)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn send_signal(_: &OwnedFd, _: Signal) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
