//! Who owns a run: one process at a time, and how the next one comes by it (the specification's Janitor).
//!
//! An [`Ownership`] is the right to change a run. It lasts until it is dropped or its process ends, however that ends;
//! nothing else in the program asks for the lock, judges whether another process lives, or counts epochs. Where the lock
//! cannot speak (another host, a file system without locks), what the last process wrote about itself does.

use crate::durable::{self, FileError, Lock};
use crate::event::{EngineStart, ProcessInfo};
use crate::id::RunId;
use crate::signal::{Cancel, timespec};
use crate::time;
use rustix::event::poll;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file in a run directory that the owner holds locked.
const FILE_NAME: &str = "lock";

/// The kernel's mark of a process that is exiting.
const PF_EXITING: u64 = 0x4;

/// How often somebody who waits for a run looks whether its owner has left it.
const INTERVAL: Duration = Duration::from_millis(50);

/// How long the lock of a dead owner is waited for.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// The right to change a run.
#[derive(Debug)]
pub struct Ownership {
    run: RunId,
    epoch: u32,
    _lock: Lock,
}

/// Why a run does not become ours. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// Its process works on it.
    #[error(
        "Run {run} is still active (PID {}).\nCannot continue while original process is running.",
        pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    Active {
        /// The run.
        run: RunId,
        /// The process, where it can be told.
        pid: Option<u32>,
    },
    /// Its process was on another host, where it cannot be seen from here.
    #[error(
        "Run {run} was started on host '{there}'.\nCannot verify process status from host '{here}'.\n\
         If you're certain the original process is dead, use --force."
    )]
    Elsewhere {
        /// The run.
        run: RunId,
        /// The host of its process.
        there: String,
        /// This host.
        here: String,
    },
    /// The lock could not be asked for.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Ownership {
    /// Takes a run whose owner has left it, at once.
    ///
    /// # Errors
    /// Another process owns it, or the lock could not be asked for.
    pub fn claim(run: &RunId, run_dir: &Path) -> Result<Self, OwnershipError> {
        let path = run_dir.join(FILE_NAME);
        match Lock::take(&path)? {
            Some(lock) => Ok(Self { run: run.clone(), epoch: 1, _lock: lock }),
            None => {
                Err(OwnershipError::Active { run: run.clone(), pid: durable::lock_holder(&path) })
            }
        }
    }

    /// The same for who goes on with a run whose owner was killed perhaps just now: a child that waited to become a tool
    /// dies with its engine, but a moment later, and has the lock until then.
    ///
    /// # Errors
    /// As for [`Ownership::claim`].
    pub fn inherit(run: &RunId, run_dir: &Path) -> Result<Self, OwnershipError> {
        let began = Instant::now();
        loop {
            match Self::claim(run, run_dir) {
                Err(OwnershipError::Active { pid: Some(pid), .. })
                    if start_time(pid).is_none() && began.elapsed() < LAST_MOMENT =>
                {
                    // Nothing is written to it: only the time passes.
                    let _ = poll(&mut [], Some(&timespec(Duration::from_millis(1))));
                }
                claimed => return claimed,
            }
        }
    }

    /// Takes a run as soon as its owner has left it; `None` when the wait was cancelled.
    ///
    /// # Errors
    /// The lock could not be asked for.
    pub fn await_claim(
        run: &RunId,
        run_dir: &Path,
        cancel: &Cancel,
    ) -> Result<Option<Self>, OwnershipError> {
        loop {
            match Self::claim(run, run_dir) {
                Err(OwnershipError::Active { .. }) if cancel.wait(INTERVAL) => return Ok(None),
                Err(OwnershipError::Active { .. }) => {}
                claimed => return claimed.map(Some),
            }
        }
    }

    /// Follows the process that took the run up last. `left` is whether the journal says that it left the run; when not,
    /// it must be dead: `force` takes the word of whoever says so for a process on another host.
    ///
    /// # Errors
    /// It lives, or cannot be seen from here.
    pub fn succeed(
        &mut self,
        last: &EngineStart,
        left: bool,
        force: bool,
    ) -> Result<(), OwnershipError> {
        if !left {
            let run = self.run.clone();
            match inspect(&last.process) {
                Owner::Gone => {}
                Owner::Elsewhere if force => {}
                Owner::Alive => {
                    return Err(OwnershipError::Active { run, pid: Some(last.process.pid) });
                }
                Owner::Elsewhere => {
                    let there = last.process.hostname.clone();
                    return Err(OwnershipError::Elsewhere { run, there, here: hostname() });
                }
            }
        }
        self.epoch = last.epoch + 1;
        Ok(())
    }

    /// The number of processes that have owned the run, this one included.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// This process, as a run records who works on it.
pub fn myself() -> ProcessInfo {
    let pid = std::process::id();
    ProcessInfo {
        pid,
        hostname: hostname(),
        start_time_unix: start_time(pid).unwrap_or_else(|| time::now().millis()),
        process_name: process_name(pid).unwrap_or_else(|| "delta".to_owned()),
    }
}

/// Who works on a run, as far as can be told from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Its process is gone.
    Gone,
    /// Its process lives, on this host.
    Alive,
    /// Its process was on another host.
    Elsewhere,
}

/// Whether the process that took up a run last still works on it, as far as it says itself: for those who only look, and
/// for file systems on which locks do not reach every host.
pub fn inspect(process: &ProcessInfo) -> Owner {
    if process.hostname != hostname() {
        return Owner::Elsewhere;
    }
    let named = process_name(process.pid)
        .is_some_and(|name| name.contains("delta") || name == process.process_name);
    match start_time(process.pid) {
        // The clock's boot time may be set right by a second while the machine runs.
        Some(started) if named && (started - process.start_time_unix).abs() <= 2_000 => {
            Owner::Alive
        }
        _ => Owner::Gone,
    }
}

/// The name of this host.
fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn process_name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

/// When a process started, in milliseconds since the Unix epoch: the kernel's ticks since boot (field 22 of
/// `/proc/PID/stat`, proc(5)) after the time of boot, which `/proc/uptime` tells, so that a process that was given the
/// same id later has another one. A zombie has ended, and so has, for what it can still do, a process that is exiting: the
/// kernel has taken its lock and has yet to take its id (`PF_EXITING` in field 9, include/linux/sched.h).
fn start_time(pid: u32) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold blanks; the fields are counted behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let flags: u64 = fields.get(6)?.parse().ok()?;
    if matches!(fields.first(), Some(&"Z" | &"X")) || flags & PF_EXITING != 0 {
        return None;
    }
    let ticks: i64 = fields.get(19)?.parse().ok()?;
    let per_second =
        i64::try_from(rustix::param::clock_ticks_per_second()).ok().filter(|ticks| *ticks > 0)?;
    Some(time::now().millis() - uptime()? + ticks * 1000 / per_second)
}

/// Milliseconds since boot. `/proc/stat` has the time of boot itself, among counters of every interrupt, which take the
/// kernel longer to print than all else here.
fn uptime() -> Option<i64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
    Some(seconds.parse::<i64>().ok()? * 1000 + hundredths.parse::<i64>().ok()? * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_13_2_a_process_is_alive_with_its_start_time_and_name_only() {
        let me = myself();
        assert_eq!(inspect(&me), Owner::Alive, "the test binary is named after the crate");
        assert_eq!(
            inspect(&ProcessInfo { start_time_unix: me.start_time_unix - 60_000, ..me.clone() }),
            Owner::Gone
        );
        assert_eq!(
            inspect(&ProcessInfo { hostname: "elsewhere.invalid".to_owned(), ..me.clone() }),
            Owner::Elsewhere
        );
        assert_eq!(inspect(&ProcessInfo { pid: 0x7fff_fff0, ..me }), Owner::Gone);
    }

    #[test]
    fn c_13_2_the_lock_of_a_dead_owner_is_waited_for_and_that_of_a_living_one_is_not() {
        let (dir, run) = (tempfile::tempdir().unwrap(), RunId::parse("r").unwrap());
        let held = Ownership::claim(&run, dir.path()).unwrap();
        let refused = Ownership::inherit(&run, dir.path());
        assert!(matches!(refused, Err(OwnershipError::Active { pid: Some(_), .. })), "{refused:?}");
        // As if the process that took it were dead, and another one still had its descriptor.
        fs::write(dir.path().join(FILE_NAME), format!("{}\n", 0x7fff_fff0)).unwrap();
        assert!(Ownership::claim(&run, dir.path()).is_err());
        let child = std::thread::spawn(move || {
            Cancel::manual().unwrap().wait(INTERVAL);
            drop(held);
        });
        Ownership::inherit(&run, dir.path()).unwrap();
        child.join().unwrap();
    }
}
