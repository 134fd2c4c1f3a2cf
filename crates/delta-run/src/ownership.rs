//! Which process owns a run, and how the next process takes it over (the Janitor of the specification).
//!
//! An [`Ownership`] is the right to change a run. It lasts until it is dropped or its process ends, in whatever way. Only
//! this module and its parts take the lock, judge whether another process is alive, and count epochs.
//!
//! On a file system of one kernel the right is a lock: a free one proves that the last process of another host or container
//! is dead. On every other file system the right is taken by turns (see [`crate::lease::turns`]), which no lock of one host
//! and no clock can make ambiguous.

use crate::event::{EngineStart, LeaseKind};
use crate::lease::lease_files::{self, LeaseFiles};
use crate::lease::lease_policy::{LeaseChoice, lease_policy};
use crate::ownership::claim::{ClaimPatience, OwnershipError, judge_last_owner, lock_proves_death};
use crate::ownership::owner_process::{process_clock, process_start_time};
use crate::ownership::turn_claim::{ClaimEnd, TurnClaim};
use crate::ownership::turn_lease::TurnLease;
use crate::run_files::{JOURNAL_FILE, LEASE_DIR, LEDGER_FILE, OWNER_LOCK_FILE};
use delta_base::durable::{self, FileError, FileLock};
use delta_base::id::RunId;
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::poll;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub mod claim;
pub mod owner_process;
pub mod run_process;
pub(crate) mod turn_claim;
pub(crate) mod turn_lease;

pub use crate::ownership::turn_lease::{ActError, Fence, ReplacedError};

/// The time between two attempts to claim a run that has an owner.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The same for an owner on another host, whose files are looked at through a network.
const ELSEWHERE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long to wait for a dead owner's lock to be released.
const DYING_OWNER_TIMEOUT: Duration = Duration::from_secs(1);

/// The right to change a run.
#[derive(Debug)]
pub struct Ownership {
    run_id: RunId,
    epoch: u32,
    right: OwnershipRight,
}

#[derive(Debug)]
enum OwnershipRight {
    /// The lock, and whether it proves the death of the process that had it before.
    Lock {
        is_local: bool,
        _lock: FileLock,
    },
    Turns(Box<TurnLease>),
}

impl Ownership {
    /// Claims a run that has no owner. Does not wait.
    ///
    /// # Errors
    /// Another process owns the run, or its files cannot be used.
    pub fn claim(run: &RunId, run_dir: &Path) -> Result<Self, OwnershipError> {
        let claimed = Self::claim_with(run, run_dir, &ClaimPatience::default())?;
        claimed.ok_or_else(|| OwnershipError::Active { run: run.clone(), pid: None })
    }

    /// Claims a run; `None` if the wait was cancelled.
    fn claim_with(
        run: &RunId,
        run_dir: &Path,
        patience: &ClaimPatience<'_>,
    ) -> Result<Option<Self>, OwnershipError> {
        let is_local = durable::is_on_local_file_system(run_dir).unwrap_or(false);
        if uses_lock(run_dir, is_local)? {
            let path = run_dir.join(OWNER_LOCK_FILE);
            let Some(lock) = FileLock::try_acquire(&path)? else {
                let pid = durable::read_lock_holder(&path);
                return Err(OwnershipError::Active { run: run.clone(), pid });
            };
            // A process that moves a run to turns has the lock meanwhile.
            if uses_lock(run_dir, is_local)? {
                let right = OwnershipRight::Lock { is_local, _lock: lock };
                return Ok(Some(Self { run_id: run.clone(), epoch: 1, right }));
            }
        }
        let (epoch, right) = match TurnClaim::new(run, run_dir, patience).claim()? {
            ClaimEnd::Owned(lease) => (lease.epoch(), OwnershipRight::Turns(lease)),
            ClaimEnd::Locked(lock) => (1, OwnershipRight::Lock { is_local, _lock: lock }),
            ClaimEnd::Cancelled => return Ok(None),
        };
        Ok(Some(Self { run_id: run.clone(), epoch, right }))
    }

    /// Claims a run whose owner may have been killed just now. Waits for the lock of a dead process, because a child that
    /// it prepared holds the lock a moment longer, and as long as `patience` says for a process on another host.
    ///
    /// # Errors
    /// As for [`Ownership::claim`].
    pub fn claim_from_dying_owner(
        run: &RunId,
        run_dir: &Path,
        patience: &ClaimPatience<'_>,
    ) -> Result<Self, OwnershipError> {
        wait_for_dying_owner(|| {
            let claimed = Self::claim_with(run, run_dir, patience)?;
            claimed.ok_or_else(|| OwnershipError::Active { run: run.clone(), pid: None })
        })
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
        let patience =
            ClaimPatience { waits: true, cancel: Some(cancel), ..ClaimPatience::default() };
        loop {
            match Self::claim_with(run, run_dir, &patience) {
                Err(error) if error.is_owned() => {
                    let is_elsewhere = matches!(error, OwnershipError::Elsewhere { .. });
                    let interval =
                        if is_elsewhere { ELSEWHERE_POLL_INTERVAL } else { CLAIM_POLL_INTERVAL };
                    if cancel.wait(interval) {
                        return Ok(None);
                    }
                }
                claimed => return claimed,
            }
        }
    }

    /// Whether the run can be claimed now; nothing is changed.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn probe(run: &RunId, run_dir: &Path) -> Result<(), OwnershipError> {
        let patience = ClaimPatience::default();
        if Self::has_turns(run_dir) {
            return TurnClaim::new(run, run_dir, &patience).probe();
        }
        let path = run_dir.join(OWNER_LOCK_FILE);
        match FileLock::try_acquire(&path)? {
            Some(_) => Ok(()),
            None => {
                let pid = durable::read_lock_holder(&path);
                Err(OwnershipError::Active { run: run.clone(), pid })
            }
        }
    }

    /// As [`Ownership::probe`], but waits for a process that has been killed just now.
    ///
    /// # Errors
    /// Why the run cannot be claimed.
    pub fn probe_dying_owner(run: &RunId, run_dir: &Path) -> Result<(), OwnershipError> {
        wait_for_dying_owner(|| Self::probe(run, run_dir))
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
        if let OwnershipRight::Lock { is_local, .. } = self.right {
            judge_last_owner(&self.run_id, last, has_left, force, is_local)?;
            self.epoch = last.epoch + 1;
        }
        Ok(())
    }

    /// Whether `last`, the process that works on the run or has worked on it, must be dead because nothing owns the run.
    pub fn has_died(run: &RunId, run_dir: &Path, last: &EngineStart) -> bool {
        let is_local = durable::is_on_local_file_system(run_dir).unwrap_or(false);
        let is_proof = last.lease == Some(LeaseKind::Turns) || lock_proves_death(last, is_local);
        is_proof && Self::probe(run, run_dir).is_ok()
    }

    /// Whether a later process than the one with `epoch` owns the run in `run_dir`, or has owned it. Only an owner by turns can
    /// be replaced while it lives.
    pub fn is_replaced(run_dir: &Path, epoch: u32) -> bool {
        let files = LeaseFiles::new(run_dir);
        let newest = files.newest_turn().ok().flatten().unwrap_or(0);
        newest > 0 && files.read_token(newest).is_ok_and(|token| token.epoch > epoch)
    }

    /// How this process owns the run.
    pub fn lease(&self) -> LeaseKind {
        match &self.right {
            OwnershipRight::Lock { is_local: true, .. } => LeaseKind::Flock,
            OwnershipRight::Lock { is_local: false, .. } => LeaseKind::SharedFlock,
            OwnershipRight::Turns(_) => LeaseKind::Turns,
        }
    }

    /// The journal to which this process appends.
    pub fn journal_path(&self, run_dir: &Path) -> PathBuf {
        match &self.right {
            OwnershipRight::Lock { .. } => run_dir.join(JOURNAL_FILE),
            OwnershipRight::Turns(lease) => lease.journal_path(),
        }
    }

    /// The ledger of this process, if the run has limits.
    pub(crate) fn ledger_path(&self, run_dir: &Path) -> PathBuf {
        match &self.right {
            OwnershipRight::Lock { .. } => run_dir.join(LEDGER_FILE),
            OwnershipRight::Turns(lease) => lease.ledger_path(),
        }
    }

    /// Makes journal.jsonl a name of the journal that this process has replaced.
    pub fn publish_journal(&self) {
        if let OwnershipRight::Turns(lease) = &self.right {
            lease.publish_journal();
        }
    }

    /// A part of the names of this process's files that no other owner uses, such as `e2`; `None` if no other can write.
    pub fn file_tag(&self) -> Option<String> {
        matches!(self.right, OwnershipRight::Turns(_)).then(|| format!("e{}", self.epoch))
    }

    /// Shows from now on that this process is alive. Call this when the process may have more than one thread.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start_beat(&mut self) -> Result<(), FileError> {
        match &mut self.right {
            OwnershipRight::Lock { .. } => Ok(()),
            OwnershipRight::Turns(lease) => lease.start_beat(),
        }
    }

    /// What happens when this process has had no heartbeat for so long that others may replace it.
    pub fn fence(&self) -> Option<&Fence> {
        match &self.right {
            OwnershipRight::Lock { .. } => None,
            OwnershipRight::Turns(lease) => lease.fence(),
        }
    }

    /// The number of the next turn and the nonce of the claim; `None` if acts need no turn.
    pub(crate) fn next_turn(&self) -> Option<(u64, String)> {
        match &self.right {
            OwnershipRight::Lock { .. } => None,
            OwnershipRight::Turns(lease) => Some((lease.next_turn(), lease.nonce().to_owned())),
        }
    }

    /// Takes the next turn, whose event is durable.
    pub(crate) fn take_next_turn(&mut self) -> Result<(), ActError> {
        match &mut self.right {
            OwnershipRight::Lock { .. } => Ok(()),
            OwnershipRight::Turns(lease) => lease.take_next_turn(),
        }
    }

    /// Notes that the first `count` events of the journal are durable.
    pub(crate) fn note_durable_events(&mut self, count: u64) {
        if let OwnershipRight::Turns(lease) = &mut self.right {
            lease.note_durable_events(count);
        }
    }

    /// Whether the run in `run_dir` is owned by turns.
    pub fn has_turns(run_dir: &Path) -> bool {
        LeaseFiles::new(run_dir).newest_turn().ok().flatten().unwrap_or(0) > 0
    }

    /// Whether the last owner by turns ended its work on the run in `run_dir` after its last event, so that reading it needs no claim.
    pub fn was_left_by_turns(run_dir: &Path) -> bool {
        lease_files::find_left_journal(run_dir).is_some()
    }

    /// Whether another process has claimed the run in `run_dir` by turns since this one did.
    pub fn was_replaced(run_dir: &Path) -> bool {
        let files = LeaseFiles::new(run_dir);
        let newest = files.newest_turn().ok().flatten().filter(|turn| *turn > 0);
        let token = newest.and_then(|turn| files.read_token(turn).ok());
        token.is_some_and(|token| (token.pid, token.start_ticks) != process_clock())
    }

    /// Whether the run in `run_dir` has files of an owner: without any, it has no owner.
    pub fn has_owner_files(run_dir: &Path) -> bool {
        durable::metadata_no_follow(&run_dir.join(OWNER_LOCK_FILE)).is_ok()
            || has_lease_dir(run_dir)
    }

    /// Removes the lock file of the run in `run_dir` and gives up the run. A process that has opened the file before cannot
    /// own the run with it, and creates a new one.
    pub fn remove_lock_file(self, run_dir: &Path) -> Result<(), FileError> {
        if matches!(self.right, OwnershipRight::Turns(_)) {
            return Ok(());
        }
        durable::remove_file_unsynced(&run_dir.join(OWNER_LOCK_FILE))
    }

    /// The run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// The number of processes that have owned the run, including this one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// How a new run on the file system of the directory `dir` would be owned.
pub fn lease_of_new_runs(dir: &Path) -> LeaseKind {
    let is_local = durable::is_on_local_file_system(dir).unwrap_or(false);
    match lease_policy().choice {
        LeaseChoice::Turns => LeaseKind::Turns,
        LeaseChoice::Auto if !is_local => LeaseKind::Turns,
        LeaseChoice::Auto | LeaseChoice::Flock if is_local => LeaseKind::Flock,
        LeaseChoice::Auto | LeaseChoice::Flock => LeaseKind::SharedFlock,
    }
}

/// Whether a run in `run_dir` is owned with the lock.
fn uses_lock(run_dir: &Path, is_local: bool) -> Result<bool, FileError> {
    match lease_policy().choice {
        LeaseChoice::Turns => Ok(false),
        LeaseChoice::Auto if !is_local => Ok(false),
        LeaseChoice::Auto | LeaseChoice::Flock => Ok(!has_lease_dir(run_dir)),
    }
}

/// Whether the run in `run_dir` is owned by turns, or was about to be.
fn has_lease_dir(run_dir: &Path) -> bool {
    // A list, because a network file system may still miss a name that was asked for before.
    let entries = durable::read_dir_no_follow(run_dir).unwrap_or_default();
    entries.iter().any(|entry| entry.name == LEASE_DIR)
}

/// Tries again as long as the process that has the run is dead: a child that it prepared holds its lock a moment longer.
fn wait_for_dying_owner<T>(
    claim: impl Fn() -> Result<T, OwnershipError>,
) -> Result<T, OwnershipError> {
    let start = Instant::now();
    loop {
        match claim() {
            Err(OwnershipError::Active { pid: Some(pid), .. })
                if process_start_time(pid).is_none() && start.elapsed() < DYING_OWNER_TIMEOUT =>
            {
                // A poll of no descriptors is a sleep.
                let _ = poll(&mut [], Some(&to_timespec(Duration::from_millis(1))));
            }
            claimed => return claimed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_13_1_the_lock_of_a_dead_owner_is_waited_for_and_that_of_a_living_one_is_not() {
        let (dir, run) = (tempfile::tempdir().unwrap(), RunId::parse("r").unwrap());
        let held = Ownership::claim(&run, dir.path()).unwrap();
        let patience = ClaimPatience::default();
        let refused = Ownership::claim_from_dying_owner(&run, dir.path(), &patience);
        assert!(matches!(refused, Err(OwnershipError::Active { pid: Some(_), .. })), "{refused:?}");
        // As if the process that took it were dead, and another one still had its descriptor.
        std::fs::write(dir.path().join(OWNER_LOCK_FILE), format!("{}\n", 0x7fff_fff0)).unwrap();
        assert!(Ownership::claim(&run, dir.path()).is_err());
        let child = std::thread::spawn(move || {
            CancelToken::manual().unwrap().wait(CLAIM_POLL_INTERVAL);
            drop(held);
        });
        Ownership::claim_from_dying_owner(&run, dir.path(), &patience).unwrap();
        child.join().unwrap();
        // Not for ever: another process may keep the descriptor.
        let _held = Ownership::claim(&run, dir.path()).unwrap();
        std::fs::write(dir.path().join(OWNER_LOCK_FILE), format!("{}\n", 0x7fff_fff0)).unwrap();
        let refused = Ownership::claim_from_dying_owner(&run, dir.path(), &patience);
        assert!(matches!(refused, Err(OwnershipError::Active { .. })), "{refused:?}");
    }
}
