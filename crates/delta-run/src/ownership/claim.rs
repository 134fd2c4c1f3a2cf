//! How long a claim of a run waits, and why it is refused.

use crate::event::{EngineStart, LeaseKind};
use crate::ownership::owner_process::{OwnerStatus, hostname, owner_status};
use delta_base::durable::FileError;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use std::path::PathBuf;
use std::time::Duration;

/// How long a claim waits for a process that may be alive. By default not at all.
#[derive(Default)]
pub struct ClaimPatience<'a> {
    /// Whether no owner by turns counts as alive. It cannot do any harm: the owner's next turn is refused.
    pub is_forced: bool,
    /// Whether the claim waits until an owner on another host has had no heartbeat for long enough.
    pub waits: bool,
    /// Ends the wait.
    pub cancel: Option<&'a CancelToken>,
    /// Gets the owner before each wait.
    pub notify: Option<&'a dyn Fn(&WatchedOwner)>,
}

/// An owner on another host that shows no sign of life.
#[derive(Debug)]
pub struct WatchedOwner {
    /// The name of its host.
    pub host: String,
    /// The id of the process.
    pub pid: u32,
    /// After how long it counts as dead.
    pub limit: Duration,
}

/// Why a run cannot be claimed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// Another process works on the run.
    #[error(
        "Run {run} is still active (PID {}).\nCannot continue while original process is running.",
        pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    Active {
        /// The id of the run.
        run: RunId,
        /// The id of the process, if it is known.
        pid: Option<u32>,
    },
    /// The last process was on another host, and whether it is alive cannot be seen from here.
    #[error(
        "Run {run} was started on host '{there}'.\nCannot verify process status from host '{here}'."
    )]
    OtherHost {
        /// The id of the run.
        run: RunId,
        /// The name of the process's host.
        there: String,
        /// This host.
        here: String,
    },
    /// The owner by turns is on another host, where it may be alive.
    #[error(
        "Run {run} is still active on host '{host}' (PID {pid}).\nCannot continue while original process is running."
    )]
    Elsewhere {
        /// The id of the run.
        run: RunId,
        /// The name of the process's host.
        host: String,
        /// The id of the process.
        pid: u32,
    },
    /// This host sees an older state of the run than its turns prove.
    #[error(
        "the journal of run {run} is older here than its lease; is the file system mounted with a long cache?"
    )]
    OldView {
        /// The id of the run.
        run: RunId,
        /// The journal, or the directory of the turns.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl OwnershipError {
    /// Whether a process owns the run that is alive, or may be.
    pub fn is_owned(&self) -> bool {
        matches!(self, Self::Active { .. } | Self::Elsewhere { .. })
    }
}

/// Refuses the run of `last`, which owned it with a lock that this process has now. Unless `has_left`, the process must be
/// dead. `force` assumes this of a process on another host.
pub(crate) fn judge_last_owner(
    run: &RunId,
    last: &EngineStart,
    has_left: bool,
    force: bool,
    is_local: bool,
) -> Result<(), OwnershipError> {
    if has_left {
        return Ok(());
    }
    let run = run.clone();
    match owner_status(&last.process) {
        OwnerStatus::Dead => Ok(()),
        OwnerStatus::OnOtherHost if force || lock_proves_death(last, is_local) => Ok(()),
        OwnerStatus::Alive => Err(OwnershipError::Active { run, pid: Some(last.process.pid) }),
        OwnerStatus::OnOtherHost => {
            let there = last.process.hostname.clone();
            Err(OwnershipError::OtherHost { run, there, here: hostname() })
        }
    }
}

/// Whether `last` must be dead because its lock is free. A process that was recorded with a shared mount had no lock of
/// this kernel.
pub(crate) fn lock_proves_death(last: &EngineStart, is_local: bool) -> bool {
    is_local && last.lease != Some(LeaseKind::SharedFlock)
}
