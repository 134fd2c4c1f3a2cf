//! Which process owns a run, and how the next process takes it over (the Janitor of the specification).
//!
//! An [`Ownership`] is the right to change a run. It lasts until it is dropped or its process ends, in whatever way. Only
//! this module takes the lock, judges whether another process is alive, and counts epochs.
//!
//! On a file system of one kernel a free lock proves that the last process of another host or container is dead. Where the
//! lock proves nothing, the process that was recorded last decides.

use crate::event::{EngineStart, LeaseKind, ProcessInfo};
use delta_base::durable::{self, FileError, FileLock};
use delta_base::id::RunId;
use delta_base::signal::{CancelToken, to_timespec};
use delta_base::time;
use rustix::event::poll;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file in a run directory that its owner keeps locked.
pub(crate) const OWNER_LOCK_FILE: &str = "lock";

/// The flag of an exiting process (include/linux/sched.h).
const PF_EXITING: u64 = 0x4;

/// The time between two attempts to claim a run that has an owner.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long to wait for a dead owner's lock to be released.
const DYING_OWNER_TIMEOUT: Duration = Duration::from_secs(1);

/// The right to change a run.
#[derive(Debug)]
pub struct Ownership {
    run_id: RunId,
    epoch: u32,
    is_local: bool,
    _lock: FileLock,
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
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Ownership {
    /// Claims a run that has no owner. Does not wait.
    ///
    /// # Errors
    /// Another process owns the run, or the lock file cannot be used.
    pub fn claim(run: &RunId, run_dir: &Path) -> Result<Self, OwnershipError> {
        let path = run_dir.join(OWNER_LOCK_FILE);
        match FileLock::try_acquire(&path)? {
            Some(lock) => {
                let is_local = durable::is_on_local_file_system(run_dir).unwrap_or(false);
                Ok(Self { run_id: run.clone(), epoch: 1, is_local, _lock: lock })
            }
            None => Err(OwnershipError::Active {
                run: run.clone(),
                pid: durable::read_lock_holder(&path),
            }),
        }
    }

    /// Claims a run whose owner may have been killed just now. Waits for the lock of a dead process, because a child that
    /// it prepared holds the lock a moment longer.
    ///
    /// # Errors
    /// As for [`Ownership::claim`].
    pub fn claim_from_dying_owner(run: &RunId, run_dir: &Path) -> Result<Self, OwnershipError> {
        let start = Instant::now();
        loop {
            match Self::claim(run, run_dir) {
                Err(OwnershipError::Active { pid: Some(pid), .. })
                    if process_start_time(pid).is_none()
                        && start.elapsed() < DYING_OWNER_TIMEOUT =>
                {
                    // A poll of no descriptors is a sleep.
                    let _ = poll(&mut [], Some(&to_timespec(Duration::from_millis(1))));
                }
                claimed => return claimed,
            }
        }
    }

    /// Claims a run as soon as it has no owner; `None` if the wait was cancelled.
    ///
    /// # Errors
    /// The lock file cannot be used.
    pub fn wait_and_claim(
        run: &RunId,
        run_dir: &Path,
        cancel: &CancelToken,
    ) -> Result<Option<Self>, OwnershipError> {
        loop {
            match Self::claim(run, run_dir) {
                Err(OwnershipError::Active { .. }) if cancel.wait(CLAIM_POLL_INTERVAL) => {
                    return Ok(None);
                }
                Err(OwnershipError::Active { .. }) => {}
                claimed => return claimed.map(Some),
            }
        }
    }

    /// Becomes the successor of `last`, the process that started or continued the run before. Unless `has_left`, which is
    /// what the journal says, that process must be dead. `force` assumes this of a process on another host.
    ///
    /// # Errors
    /// The process is alive, or it is on another host.
    pub fn take_over(
        &mut self,
        last: &EngineStart,
        has_left: bool,
        force: bool,
    ) -> Result<(), OwnershipError> {
        if !has_left {
            let run = self.run_id.clone();
            match owner_status(&last.process) {
                OwnerStatus::Dead => {}
                OwnerStatus::OnOtherHost if force || self.lock_proves_death(last) => {}
                OwnerStatus::Alive => {
                    return Err(OwnershipError::Active { run, pid: Some(last.process.pid) });
                }
                OwnerStatus::OnOtherHost => {
                    let there = last.process.hostname.clone();
                    return Err(OwnershipError::OtherHost { run, there, here: hostname() });
                }
            }
        }
        self.epoch = last.epoch + 1;
        Ok(())
    }

    /// Whether `last`, the process that works on the run or has worked on it, must be dead because its lock is free.
    pub fn has_died(run: &RunId, run_dir: &Path, last: &EngineStart) -> bool {
        Self::claim(run, run_dir).is_ok_and(|claimed| claimed.lock_proves_death(last))
    }

    /// Whether `last` must be dead because this process has the lock. A process that was recorded with a shared mount had no
    /// lock of this kernel.
    fn lock_proves_death(&self, last: &EngineStart) -> bool {
        self.is_local && last.lease != Some(LeaseKind::SharedFlock)
    }

    /// How this process owns the run.
    pub fn lease(&self) -> LeaseKind {
        if self.is_local { LeaseKind::Flock } else { LeaseKind::SharedFlock }
    }

    /// Whether the run in `run_dir` has a lock file: without one, it has no owner.
    pub fn has_lock_file(run_dir: &Path) -> bool {
        run_dir.join(OWNER_LOCK_FILE).exists()
    }

    /// Removes the lock file of the run in `run_dir` and gives up the run. A process that has opened the file before cannot
    /// own the run with it, and creates a new one.
    pub fn remove_lock_file(self, run_dir: &Path) -> Result<(), FileError> {
        durable::remove_file_unsynced(&run_dir.join(OWNER_LOCK_FILE))
    }

    /// The number of processes that have owned the run, including this one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// This process, as ENGINE_START and ledgers record it.
pub fn current_process() -> ProcessInfo {
    let pid = std::process::id();
    ProcessInfo {
        pid,
        hostname: hostname(),
        start_time_unix: process_start_time(pid)
            .unwrap_or_else(|| time::current_time().as_millis()),
        process_name: process_name(pid).unwrap_or_else(|| "delta".to_owned()),
    }
}

/// Whether a recorded process is alive, as far as this host can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerStatus {
    /// The process has ended.
    Dead,
    /// The process is alive on this host.
    Alive,
    /// The process was on another host.
    OnOtherHost,
}

/// Checks whether a recorded process is alive, without the lock: for commands that only show a run, and for file systems
/// whose locks do not work across hosts.
pub fn owner_status(process: &ProcessInfo) -> OwnerStatus {
    if process.hostname != hostname() {
        return OwnerStatus::OnOtherHost;
    }
    let is_delta = process_name(process.pid)
        .is_some_and(|name| name.contains("delta") || name == process.process_name);
    match process_start_time(process.pid) {
        // The boot time is adjusted with the clock, by a second or so.
        Some(start_time) if is_delta && (start_time - process.start_time_unix).abs() <= 2_000 => {
            OwnerStatus::Alive
        }
        _ => OwnerStatus::Dead,
    }
}

/// The boot of this kernel, as ENGINE_START records it.
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim_end().to_owned())
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn process_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// The start time of a process that is alive, in milliseconds since the Unix epoch. It distinguishes processes with the
/// same id. Computed from the time of boot and field 22 of `/proc/PID/stat`, ticks since boot (proc(5)). A zombie is dead,
/// and so is an exiting process (`PF_EXITING` in field 9): the kernel has released its lock but not yet its id.
fn process_start_time(pid: u32) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain spaces, so fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let flags: u64 = fields.get(6)?.parse().ok()?;
    if matches!(fields.first(), Some(&"Z" | &"X")) || flags & PF_EXITING != 0 {
        return None;
    }
    let ticks: i64 = fields.get(19)?.parse().ok()?;
    let per_second =
        i64::try_from(rustix::param::clock_ticks_per_second()).ok().filter(|ticks| *ticks > 0)?;
    Some(time::current_time().as_millis() - uptime_ms()? + ticks * 1000 / per_second)
}

/// Milliseconds since boot. `/proc/stat` has the time of boot too, but the kernel takes longer to print it than everything
/// else that is read here.
fn uptime_ms() -> Option<i64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<i64>().ok()? * 1000 + hundredths.parse::<i64>().ok()? * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_13_2_a_process_is_alive_with_its_start_time_and_name_only() {
        let me = current_process();
        assert_eq!(
            owner_status(&me),
            OwnerStatus::Alive,
            "the test binary is named after the crate"
        );
        assert_eq!(
            owner_status(&ProcessInfo {
                start_time_unix: me.start_time_unix - 60_000,
                ..me.clone()
            }),
            OwnerStatus::Dead
        );
        assert_eq!(
            owner_status(&ProcessInfo { hostname: "elsewhere.invalid".to_owned(), ..me.clone() }),
            OwnerStatus::OnOtherHost
        );
        assert_eq!(owner_status(&ProcessInfo { pid: 0x7fff_fff0, ..me }), OwnerStatus::Dead);
    }

    #[test]
    fn c_13_2_the_lock_of_a_dead_owner_is_waited_for_and_that_of_a_living_one_is_not() {
        let (dir, run) = (tempfile::tempdir().unwrap(), RunId::parse("r").unwrap());
        let held = Ownership::claim(&run, dir.path()).unwrap();
        let refused = Ownership::claim_from_dying_owner(&run, dir.path());
        assert!(matches!(refused, Err(OwnershipError::Active { pid: Some(_), .. })), "{refused:?}");
        // As if the process that took it were dead, and another one still had its descriptor.
        fs::write(dir.path().join(OWNER_LOCK_FILE), format!("{}\n", 0x7fff_fff0)).unwrap();
        assert!(Ownership::claim(&run, dir.path()).is_err());
        let child = std::thread::spawn(move || {
            CancelToken::manual().unwrap().wait(CLAIM_POLL_INTERVAL);
            drop(held);
        });
        Ownership::claim_from_dying_owner(&run, dir.path()).unwrap();
        child.join().unwrap();
    }
}
