//! A run that this process owns by turns: it takes them, shows that it is alive, and gives the run up.

use crate::lease::lease_files::{
    Beat, CountedJournal, LEDGER_KIND, LeaseFiles, LeaseToken, nonce_text,
};
use crate::lease::turns::{TakingTurn, TurnOutcome, TurnStep};
use crate::ownership::owner_process::{self, process_clock};
use crate::run_files::JOURNAL_FILE;
use delta_base::durable::{self, FileError};
use delta_base::id::RunId;
use delta_base::random;
use lease_beat::LeaseBeat;
use rustix::io::Errno;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

mod lease_beat;

pub use lease_beat::Fence;

/// How many beats pass in the time after which a silent owner is replaced (see [`crate::lease::turns::SILENT_LOOKS`]).
pub(crate) const BEATS_PER_TTL: u32 = 7;

/// Another process owns the run now. This one has done nothing since, and can do nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "run {run} was taken over by {host} (pid {pid}), because this process had no heartbeat; it has done nothing since"
)]
pub struct ReplacedError {
    /// The id of the run.
    pub run: RunId,
    /// The host of the new owner.
    pub host: String,
    /// The process of the new owner.
    pub pid: u32,
}

/// Why an act may not begin.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another process owns the run.
    #[error(transparent)]
    Replaced(#[from] ReplacedError),
}

/// The right to change a run, as long as its turns can be taken.
#[derive(Debug)]
pub(crate) struct TurnLease {
    run: RunId,
    files: LeaseFiles,
    token: LeaseToken,
    nonce: u64,
    /// The file that becomes the next turn.
    token_path: PathBuf,
    /// The last turn that this process has taken.
    turn: u64,
    /// The events in its journal that are durable.
    durable_events: u64,
    /// Whether another process owns the run, or may own it.
    is_lost: bool,
    beat: Option<LeaseBeat>,
}

/// What a new claim continues.
#[derive(Debug)]
pub(crate) struct ClaimBase<'a> {
    /// The turn to take.
    pub(crate) turn: u64,
    /// The number of the claim.
    pub(crate) epoch: u32,
    /// The journal to copy, and how many events and bytes of it; `None` for a run without an event.
    pub(crate) journal: Option<(&'a Path, u64, u64)>,
}

impl TurnLease {
    /// Writes a journal and a token, and takes the first turn with them. `None` if another process has it.
    ///
    /// # Errors
    /// A file could not be written, or the file system does not say who has the turn.
    pub(crate) fn enter(
        run: &RunId,
        files: &LeaseFiles,
        base: &ClaimBase<'_>,
        ttl: Duration,
    ) -> Result<Option<Self>, FileError> {
        let mut lease = Self::write_files(run, files, base, ttl)?;
        match lease.take(base.turn)? {
            TurnOutcome::Taken => {
                lease.turn = base.turn;
                lease.publish_journal();
                Ok(Some(lease))
            }
            TurnOutcome::Lost(_) => {
                // Nothing names them.
                for path in [&lease.token_path, &lease.journal_path(), &lease.beat_path()] {
                    let _ = durable::remove_file_no_follow(path);
                }
                lease.is_lost = true;
                Ok(None)
            }
            TurnOutcome::Unknown => {
                lease.is_lost = true;
                Err(unknown_turn(files, base.turn))
            }
        }
    }

    fn write_files(
        run: &RunId,
        files: &LeaseFiles,
        base: &ClaimBase<'_>,
        ttl: Duration,
    ) -> Result<Self, FileError> {
        let nonce = u64::from_be_bytes(random::random_bytes());
        let (pid, start_ticks) = process_clock();
        let mut token = LeaseToken {
            epoch: base.epoch,
            nonce: nonce_text(nonce),
            first_turn: base.turn,
            event_count: base.journal.map_or(0, |(_, events, _)| events),
            host: owner_process::hostname(),
            boot_id: durable::boot_id().unwrap_or_default(),
            pid_ns: owner_process::pid_namespace(),
            pid,
            start_ticks,
            journal: String::new(),
            beat: String::new(),
            beat_ms: u64::try_from((ttl / BEATS_PER_TTL).as_millis()).unwrap_or(u64::MAX),
        };
        token.journal = format!("{}.jsonl", token.file_name("journal"));
        token.beat = token.file_name("beat");
        let mut lease = Self {
            run: run.clone(),
            token_path: files.path(&token.file_name("token")),
            files: files.clone(),
            nonce,
            turn: 0,
            durable_events: token.event_count,
            // Until the files exist, there is nothing to give up.
            is_lost: true,
            beat: None,
            token,
        };
        match base.journal {
            Some((path, _, length)) => {
                let source = durable::open_no_follow(path).map_err(FileError::at("read", path))?;
                copy_journal(source, length, &lease.journal_path())?;
            }
            None => durable::create_private_synced(&lease.journal_path(), &mut io::empty())?,
        }
        let beat = Beat::Count(0).to_line();
        durable::create_private_synced(&lease.beat_path(), &mut beat.as_bytes())?;
        let line = lease.token.to_line();
        durable::create_private_synced(&lease.token_path, &mut line.as_bytes())?;
        durable::sync_dir(files.dir())?;
        lease.is_lost = false;
        Ok(lease)
    }

    /// Takes in what the owner before this one has recorded since its journal was copied, as far as it is visible.
    ///
    /// # Errors
    /// The journal of this claim could not be written.
    pub(crate) fn adopt(&mut self, late: &CountedJournal, copied: u64) -> Result<(), FileError> {
        if late.length <= copied {
            return Ok(());
        }
        let path = self.journal_path();
        let read = |source| FileError::at("read", &late.path)(source);
        let mut file = durable::open_no_follow(&late.path).map_err(read)?;
        io::copy(&mut file.by_ref().take(copied), &mut io::sink()).map_err(read)?;
        let mut lines = Vec::new();
        file.take(late.length - copied).read_to_end(&mut lines).map_err(read)?;
        durable::AppendFile::open(&path, copied)?.append_synced(&lines)?;
        self.durable_events = late.view.event_count;
        Ok(())
    }

    /// The journal of this claim.
    pub(crate) fn journal_path(&self) -> PathBuf {
        self.files.path(&self.token.journal)
    }

    /// The ledger of this claim.
    pub(crate) fn ledger_path(&self) -> PathBuf {
        self.files.path(&format!("{}.jsonl", self.token.file_name(LEDGER_KIND)))
    }

    fn beat_path(&self) -> PathBuf {
        self.files.path(&self.token.beat)
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.token.epoch
    }

    pub(crate) fn nonce(&self) -> &str {
        &self.token.nonce
    }

    /// The turn that comes next.
    pub(crate) fn next_turn(&self) -> u64 {
        self.turn + 1
    }

    /// Notes how many events of the journal are durable, for who comes after this process.
    pub(crate) fn note_durable_events(&mut self, count: u64) {
        self.durable_events = count;
    }

    /// Takes the next turn. The TURN event must be durable.
    ///
    /// # Errors
    /// Another process has it, or may have it. This process owns nothing any more.
    pub(crate) fn take_next_turn(&mut self) -> Result<(), ActError> {
        let turn = self.next_turn();
        let outcome = if self.is_lost { TurnOutcome::Unknown } else { self.take(turn)? };
        match outcome {
            TurnOutcome::Taken => {
                self.turn = turn;
                Ok(())
            }
            TurnOutcome::Lost(_) => {
                self.is_lost = true;
                let owner = self.files.read_token(turn).ok();
                let (host, pid) = owner.map_or_else(Default::default, |new| (new.host, new.pid));
                Err(ReplacedError { run: self.run.clone(), host, pid }.into())
            }
            TurnOutcome::Unknown => {
                self.is_lost = true;
                Err(unknown_turn(&self.files, turn).into())
            }
        }
    }

    /// Makes the links and looks that [`TakingTurn`] asks for.
    fn take(&mut self, turn: u64) -> Result<TurnOutcome, FileError> {
        let mut taking = TakingTurn::new(turn, self.nonce);
        loop {
            match taking.step() {
                TurnStep::Link(turn) => {
                    let path = self.files.turn_path(turn);
                    let linked = durable::link_exclusive_synced(&self.token_path, &path);
                    let error = linked.as_ref().err().and_then(Errno::from_io_error);
                    if error == Some(Errno::MLINK) {
                        self.renew_token(turn)?;
                    }
                    if turn == self.token.first_turn && error.is_some_and(has_no_links) {
                        let path = self.files.turn_path(turn);
                        let source = io::Error::from(io::ErrorKind::Unsupported);
                        return Err(FileError { action: "link", path, source });
                    }
                    taking.linked(linked.is_ok());
                }
                TurnStep::ReadBack(turn) => {
                    let token = self.files.read_token(turn).or_else(|_| {
                        // A list shows names that were missing when they were asked for.
                        self.files.newest_turn()?;
                        self.files.read_token(turn)
                    });
                    let claim = token.ok().and_then(|token| token.claim());
                    taking.named(claim.map(|claim| claim.nonce));
                }
                TurnStep::Done(outcome) => return Ok(outcome),
            }
        }
    }

    /// Replaces the token by another file of the same content: this one has as many names as the file system allows.
    fn renew_token(&mut self, turn: u64) -> Result<(), FileError> {
        let path = self.files.path(&format!("{}.{turn}", self.token.file_name("token")));
        let line = self.token.to_line();
        durable::create_private_synced(&path, &mut line.as_bytes())?;
        self.token_path = path;
        Ok(())
    }

    /// Makes journal.jsonl a name of this claim's journal, unless it is one. Only users and other programs read it by that
    /// name, so an error changes nothing.
    pub(crate) fn publish_journal(&self) {
        let Some(run_dir) = self.files.dir().parent() else { return };
        let path = run_dir.join(JOURNAL_FILE);
        let identity = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            durable::metadata_no_follow(path).ok().map(|file| (file.dev(), file.ino()))
        };
        let journal = self.journal_path();
        if identity(&path) != identity(&journal) {
            let _ = durable::replace_with_link_unsynced(&journal, &path, &self.token.nonce);
        }
    }

    /// From now on shows that this process is alive, in a thread of its own.
    ///
    /// # Errors
    /// A thread could not be started.
    pub(crate) fn start_beat(&mut self) -> Result<(), FileError> {
        if self.beat.is_none() {
            let path = self.beat_path();
            let started = LeaseBeat::start(path.clone(), self.token.beat_interval());
            self.beat = Some(started.map_err(FileError::at("show life in", &path))?);
        }
        Ok(())
    }

    /// What happens when nothing shows any more that this process is alive; `None` without a beat.
    pub(crate) fn fence(&self) -> Option<&Fence> {
        self.beat.as_ref().map(LeaseBeat::fence)
    }
}

impl Drop for TurnLease {
    /// Gives up the run, so that no process waits for a sign of life.
    fn drop(&mut self) {
        if let Some(beat) = self.beat.take() {
            beat.stop(!self.is_lost);
        }
        if !self.is_lost {
            let beat = Beat::Left(self.durable_events).to_line();
            // Without it, the next process finds out that this one is dead, or silent.
            let _ = durable::overwrite_start_synced(&self.beat_path(), beat.as_bytes());
        }
    }
}

fn copy_journal(source: fs::File, length: u64, to: &Path) -> Result<(), FileError> {
    let mut counted = source.take(length);
    durable::create_private_synced(to, &mut counted)?;
    match counted.limit() {
        0 => Ok(()),
        missing => {
            let reason =
                format!("the journal that it copies is {missing} bytes shorter than it was");
            Err(FileError::at("write", to)(io::Error::other(reason)))
        }
    }
}

fn unknown_turn(files: &LeaseFiles, turn: u64) -> FileError {
    let reason = "the file system does not say whether this process has the turn";
    let source = io::Error::other(reason);
    FileError { action: "take the turn", path: files.turn_path(turn), source }
}

/// Whether a link failed because the file system has none.
fn has_no_links(error: Errno) -> bool {
    [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS].contains(&error)
}
