//! Claims a run by turns: looks at `lease/` until the run is free, its owner is dead or silent, or its owner shows that it
//! is alive.

use crate::event::{EngineStart, RunStatus};
use crate::journal::{self, JournalError};
use crate::lease::lease_files::{Beat, CountedJournal, LeaseFiles, LeaseToken};
use crate::lease::lease_policy::lease_ttl;
use crate::lease::turns::{ClaimStep, Claiming, OwnerSign, PauseReason, SILENT_LOOKS};
use crate::ownership::claim::{ClaimPatience, OwnershipError, WatchedOwner, judge_last_owner};
use crate::ownership::owner_process::{is_alive_since, pid_namespace};
use crate::ownership::turn_lease::{ClaimBase, TurnLease};
use crate::run_files::{JOURNAL_FILE, OWNER_LOCK_FILE};
use delta_base::durable::{self, FileError, FileLock};
use delta_base::id::RunId;
use delta_base::signal::{CancelToken, to_timespec};
use rustix::event::poll;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a view of the directory may be older than its turns before the claim fails.
const OLD_VIEW_LOOKS: u8 = 15;

/// The time between two looks after an old view.
const OLD_VIEW_INTERVAL: Duration = Duration::from_secs(10);

/// One claim of a run.
pub(crate) struct TurnClaim<'a> {
    run: &'a RunId,
    run_dir: &'a Path,
    files: LeaseFiles,
    patience: &'a ClaimPatience<'a>,
    /// The token of the newest turn and what counts of its journal, as the last look found them.
    found: Option<(LeaseToken, CountedJournal)>,
    /// The newest turn that the last look found.
    newest: u64,
    old_views: u8,
}

/// The end of a claim.
#[derive(Debug)]
pub(crate) enum ClaimEnd {
    /// This process owns the run.
    Owned(Box<TurnLease>),
    /// This process owns the run with a lock, because the file system has no hard links.
    Locked(FileLock),
    /// The wait was cancelled.
    Cancelled,
}

impl<'a> TurnClaim<'a> {
    pub(crate) fn new(run: &'a RunId, run_dir: &'a Path, patience: &'a ClaimPatience<'a>) -> Self {
        let files = LeaseFiles::new(run_dir);
        Self { run, run_dir, files, patience, found: None, newest: 0, old_views: 0 }
    }

    /// Claims the run.
    ///
    /// # Errors
    /// The run has an owner that is alive, or may be; or a file operation failed.
    pub(crate) fn claim(mut self) -> Result<ClaimEnd, OwnershipError> {
        durable::ensure_private_dir(self.files.dir())?;
        let mut claiming = Claiming::new(self.patience.is_forced);
        loop {
            match claiming.step() {
                ClaimStep::List => claiming.listed(self.newest_turn()?),
                ClaimStep::Read(newest) => {
                    self.newest = newest;
                    self.found = self.read(newest);
                    claiming.read(
                        self.found
                            .as_ref()
                            .and_then(|(token, journal)| Some((token.claim()?, journal.view))),
                    );
                }
                ClaimStep::Judge => claiming.judged(self.judge()),
                ClaimStep::Pause(reason) => {
                    if self.pause(reason)? {
                        return Ok(ClaimEnd::Cancelled);
                    }
                    claiming.look_again();
                }
                ClaimStep::Take(1) => match self.take_first_turn()? {
                    Some(end) => return Ok(end),
                    None => claiming.look_again(),
                },
                ClaimStep::Take(turn) => match self.take_over(turn)? {
                    Some(lease) => return Ok(ClaimEnd::Owned(Box::new(lease))),
                    None => claiming.look_again(),
                },
                ClaimStep::Refuse => return Err(self.owner_error()),
            }
        }
    }

    /// Whether the run can be claimed now, without a change.
    ///
    /// # Errors
    /// The run has an owner that is alive, or may be.
    pub(crate) fn probe(mut self) -> Result<(), OwnershipError> {
        let newest = self.newest_turn()?;
        self.found = self.read(newest);
        let has_left = self.found.as_ref().is_some_and(|(_, journal)| journal.view.has_left);
        if has_left || self.judge() == OwnerSign::Gone { Ok(()) } else { Err(self.owner_error()) }
    }

    fn newest_turn(&self) -> Result<u64, FileError> {
        let newest = self.files.newest_turn();
        Ok(newest.map_err(FileError::at("read", self.files.dir()))?.unwrap_or(0))
    }

    /// `None` if something was not found that the newest turn has: then this is an old view.
    fn read(&self, newest: u64) -> Option<(LeaseToken, CountedJournal)> {
        let token = self.files.read_token(newest).ok()?;
        let journal = self.files.read_journal(&token, newest).ok()?;
        match self.files.read_beat(&token) {
            // It had recorded more before it left than this view has.
            Ok(Beat::Left(events)) if events > journal.view.event_count => None,
            _ => Some((token, journal)),
        }
    }

    /// What can be seen of the owner.
    fn judge(&self) -> OwnerSign {
        let Some((token, _)) = &self.found else { return OwnerSign::Alive };
        if is_visible_owner(token) {
            let is_alive = is_alive_since(token.pid, token.start_ticks) && !self.has_left(token);
            return if is_alive { OwnerSign::Alive } else { OwnerSign::Gone };
        }
        match self.files.read_beat(token) {
            Ok(Beat::Left(_)) => OwnerSign::Gone,
            Ok(Beat::Count(count)) => OwnerSign::Beat(count),
            // Never the count of a beat: who cannot read it sees no sign of life.
            Err(_) => OwnerSign::Beat(u64::MAX),
        }
    }

    fn has_left(&self, token: &LeaseToken) -> bool {
        matches!(self.files.read_beat(token), Ok(Beat::Left(_)))
    }

    /// Waits before the next look. Returns whether the wait was cancelled.
    fn pause(&mut self, reason: PauseReason) -> Result<bool, OwnershipError> {
        let interval = match reason {
            PauseReason::Silent if !self.patience.waits => return Err(self.owner_error()),
            PauseReason::Silent => {
                self.note_wait();
                self.found.as_ref().map_or(OLD_VIEW_INTERVAL, |(token, _)| token.beat_interval())
            }
            // The owner took a turn, and may have left, after the directory was listed.
            PauseReason::OldView if self.newest_turn()? > self.newest => return Ok(false),
            PauseReason::OldView => {
                self.old_views += 1;
                // One kernel has no old views.
                let is_local = durable::is_on_local_file_system(self.run_dir).unwrap_or(false);
                if is_local || !self.patience.waits || self.old_views > OLD_VIEW_LOOKS {
                    let path = self.found.as_ref().map(|(_, journal)| journal.path.clone());
                    return Err(old_view_error(self.run, path.as_deref(), self.files.dir()));
                }
                OLD_VIEW_INTERVAL
            }
        };
        Ok(sleep(interval, self.patience.cancel))
    }

    fn note_wait(&self) {
        if let (Some(notify), Some((token, _))) = (self.patience.notify, &self.found) {
            let limit = token.beat_interval() * u32::from(SILENT_LOOKS - 1);
            notify(&WatchedOwner { host: token.host.clone(), pid: token.pid, limit });
        }
    }

    /// The owner that is alive, or may be.
    fn owner_error(&self) -> OwnershipError {
        let run = self.run.clone();
        match &self.found {
            Some((token, _)) if !is_visible_owner(token) => {
                OwnershipError::Elsewhere { run, host: token.host.clone(), pid: token.pid }
            }
            owner => {
                let pid = owner.as_ref().map(|(token, _)| token.pid);
                OwnershipError::Active { run, pid }
            }
        }
    }

    /// Takes the turn after the last owner's. `None` if another process has it.
    fn take_over(&self, turn: u64) -> Result<Option<TurnLease>, FileError> {
        let Some((token, journal)) = &self.found else { return Ok(None) };
        let base = ClaimBase {
            turn,
            epoch: token.epoch + 1,
            journal: Some((&journal.path, journal.view.event_count, journal.length)),
        };
        let entered = TurnLease::enter(self.run, &self.files, &base, lease_ttl())?;
        let Some(mut lease) = entered else { return Ok(None) };
        // What is not visible now is lost, as if the owner had died before it.
        if let Ok(late) = self.files.read_journal(token, turn - 1) {
            lease.adopt(&late, journal.length)?;
        }
        Ok(Some(lease))
    }

    /// Takes the first turn of a run that is new, or that no process has owned by turns. The lock excludes processes that would
    /// own it with the lock. `None` if another process has the turn.
    fn take_first_turn(&self) -> Result<Option<ClaimEnd>, OwnershipError> {
        let lock_path = self.run_dir.join(OWNER_LOCK_FILE);
        let lock = match FileLock::try_acquire(&lock_path) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => {
                let pid = durable::read_lock_holder(&lock_path);
                return Err(OwnershipError::Active { run: self.run.clone(), pid });
            }
            // Some file systems have no locks: then no process owns a run with one.
            Err(error) => Err(error),
        };
        if self.newest_turn()? > 0 {
            return Ok(None);
        }
        let journal_path = self.run_dir.join(JOURNAL_FILE);
        let summary = match journal::summarize_first_journal(&journal_path) {
            Err(JournalError::NoEvents(_)) => None,
            Err(JournalError::File(error)) => return Err(error.into()),
            Err(JournalError::Unreadable { path, source }) => {
                return Err(FileError { action: "read", path, source }.into());
            }
            // The caller reads the journal again, and says what is wrong.
            Err(JournalError::Damaged { .. } | JournalError::LostEvents { .. }) => {
                return Ok(Some(ClaimEnd::Locked(lock?)));
            }
            Ok(summary) => Some(summary),
        };
        let start = summary.as_ref().and_then(|summary| summary.state.start.as_ref());
        if let (Some(summary), Some(start)) = (&summary, start) {
            self.judge_locked_owner(summary.state.status, start)?;
        }
        let base = ClaimBase {
            turn: 1,
            epoch: start.map_or(0, |start| start.epoch) + 1,
            journal: summary
                .as_ref()
                .map(|summary| (&*journal_path, summary.event_count, summary.byte_length)),
        };
        match TurnLease::enter(self.run, &self.files, &base, lease_ttl()) {
            Ok(Some(lease)) => {
                let _ = durable::remove_file_unsynced(&lock_path);
                Ok(Some(ClaimEnd::Owned(Box::new(lease))))
            }
            Ok(None) => Ok(None),
            Err(error) if error.source.kind() == io::ErrorKind::Unsupported => {
                let _ = durable::remove_dir_all_no_follow(self.files.dir());
                Ok(Some(ClaimEnd::Locked(lock?)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses a run whose last process owned it with the lock and may be alive.
    fn judge_locked_owner(
        &self,
        status: Option<RunStatus>,
        start: &EngineStart,
    ) -> Result<(), OwnershipError> {
        let has_left = status != Some(RunStatus::Running);
        let is_local = durable::is_on_local_file_system(self.run_dir).unwrap_or(false);
        judge_last_owner(self.run, start, has_left, self.patience.is_forced, is_local)
    }
}

/// Whether the process of a token can be seen from here.
fn is_visible_owner(token: &LeaseToken) -> bool {
    let boot = durable::boot_id();
    !token.boot_id.is_empty()
        && boot.as_deref() == Some(&*token.boot_id)
        && !token.pid_ns.is_empty()
        && token.pid_ns == pid_namespace()
}

/// Waits, and returns whether the wait was cancelled.
fn sleep(duration: Duration, cancel: Option<&CancelToken>) -> bool {
    match cancel {
        Some(cancel) => cancel.wait(duration),
        None => {
            // A poll of no descriptors is a sleep.
            let _ = poll(&mut [], Some(&to_timespec(duration)));
            false
        }
    }
}

fn old_view_error(run: &RunId, journal: Option<&Path>, lease: &Path) -> OwnershipError {
    let path: PathBuf = journal.unwrap_or(lease).to_owned();
    OwnershipError::OldView { run: run.clone(), path }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that waited for the run failed when its owner left between two reads.
    #[test]
    fn c_26_1_a_turn_that_is_taken_during_a_look_is_not_an_old_view() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("r").unwrap();
        let patience = ClaimPatience::default();
        let mut claim = TurnClaim::new(&run, dir.path(), &patience);
        durable::ensure_private_dir(claim.files.dir()).unwrap();
        let base = ClaimBase { turn: 1, epoch: 1, journal: None };
        let entered = TurnLease::enter(&run, &claim.files, &base, lease_ttl());
        let mut owner = entered.unwrap().unwrap();
        claim.newest = claim.newest_turn().unwrap();
        assert!(claim.pause(PauseReason::OldView).is_err());
        owner.take_next_turn().unwrap();
        assert!(!claim.pause(PauseReason::OldView).unwrap());
    }
}
