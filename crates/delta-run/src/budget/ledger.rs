//! The ledger of a budget: a file in the directory of the run that owns the budget. That run and its child runs record
//! their calls in it.
//!
//! The ledger is append-only and locked for each access. What a call can use is durable in it before the call is made. A
//! torn last line does not count. The next process of a run, and one that needs room, settles the calls of dead processes.

mod shared_ledger;
#[cfg(test)]
mod tests;

pub use shared_ledger::{amount_of_refused_call, open_shared_ledger, return_grants};

use crate::budget::budget_account::{
    Admission, BudgetAccount, LedgerEntry, LedgerHead, LimitRefusal,
};
use crate::budget::call_rate::CallRate;
use crate::lease::lease_files::LeaseFiles;
use crate::limits::{BudgetAmount, CallUpperBound, Limits};
use crate::ownership::Ownership;
use crate::ownership::owner_process::{self, OwnerStatus};
use crate::run_files::LEDGER_FILE;
use delta_base::durable::{self, AppendFile, FileError, FileLock};
use delta_base::error_text;
use delta_base::signal::CancelToken;
use delta_base::time::format_duration;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The environment variable with the path of the parent run's ledger.
pub const BUDGET_VARIABLE: &str = "DELTA_BUDGET";
/// The option that raises the time limit.
pub const MAX_DURATION_OPTION: &str = "--max-duration";
/// Named instead of a run: what calls may have used whose process was replaced before it recorded that.
const UNSETTLED: &str = "unsettled";
/// The time between two attempts to lock a ledger.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time between two attempts to reserve for a call that waits for other calls.
const RESERVE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The most ledgers of which each refers to the next. A longer chain must be a cycle.
const MAX_CHAIN_LENGTH: usize = 64;

/// Why a ledger cannot be used, or does not admit a call.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A ledger could not be read.
    #[error("could not read the budget {}: {source}", path.display())]
    Unreadable {
        /// The ledger.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line before the last one is not a valid entry.
    #[error("the budget {} is damaged at line {line}: {reason}", path.display())]
    Damaged {
        /// The ledger.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A ledger refers to itself through its parents.
    #[error("the budget {} refers to itself", .0.display())]
    Cycle(PathBuf),
    /// A limit was reached.
    #[error("{message}")]
    LimitReached {
        /// The message for the user, with all numbers.
        message: String,
        /// The command-line option that raises the limit.
        flag: &'static str,
        /// A value of the option that would have admitted the call.
        proposed: Option<String>,
        /// The run that owns the limit, if it is not the run itself.
        of: Option<String>,
    },
    /// A budget that several hosts share was used up, or the rest is granted to others.
    #[error("{0}")]
    SharedLimitReached(String),
    /// The wait was cancelled.
    #[error("interrupted")]
    Cancelled,
}

type LedgerResult<T> = std::result::Result<T, LedgerError>;

struct LedgerContents {
    /// `None` if the ledger has no complete line.
    account: Option<BudgetAccount>,
    /// The bytes of the complete lines.
    length: u64,
    /// Their number.
    lines: usize,
}

fn read_ledger(path: &Path) -> LedgerResult<LedgerContents> {
    let bytes = durable::read_no_follow(path)
        .map_err(|source| LedgerError::Unreadable { path: path.to_owned(), source })?;
    parse_ledger(&bytes, path)
}

fn parse_ledger(bytes: &[u8], path: &Path) -> LedgerResult<LedgerContents> {
    let mut contents = LedgerContents { account: None, length: 0, lines: 0 };
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for (index, line) in lines.iter().enumerate() {
        match apply_ledger_line(&mut contents.account, line) {
            Ok(()) => {
                contents.length += line.len() as u64;
                contents.lines += 1;
            }
            Err(_) if index + 1 == lines.len() => break,
            Err(reason) => {
                let path = path.to_owned();
                return Err(LedgerError::Damaged { path, line: index + 1, reason });
            }
        }
    }
    Ok(contents)
}

const MISSING_LIMITS: &str = "expected limits in the first line";

fn missing_limits(path: &Path) -> LedgerError {
    LedgerError::Damaged { path: path.to_owned(), line: 1, reason: MISSING_LIMITS.to_owned() }
}

fn apply_ledger_line(
    state: &mut Option<BudgetAccount>,
    line: &[u8],
) -> std::result::Result<(), String> {
    let line = line.strip_suffix(b"\n").ok_or("it does not end with a newline")?;
    let entry: LedgerEntry =
        serde_json::from_slice(line).map_err(|error| error_text::describe_json_error(&error))?;
    match (state, entry) {
        (Some(state), entry) => state.apply(entry),
        (state, LedgerEntry::Limits(head)) => *state = Some(BudgetAccount::new(*head)),
        (None, _) => return Err(MISSING_LIMITS.to_owned()),
    }
    Ok(())
}

/// A ledger and its lock, for the time of one access.
struct LockedLedger {
    file: AppendFile,
    account: BudgetAccount,
    _lock: FileLock,
}

impl LockedLedger {
    fn open(path: &Path, lock: FileLock) -> LedgerResult<Self> {
        let contents = shared_ledger::shorten(path, read_ledger(path)?)?;
        let file = AppendFile::open(path, contents.length)?;
        let state = contents.account.ok_or_else(|| missing_limits(path))?;
        Ok(Self { file, account: state, _lock: lock })
    }

    /// Opens the ledger at `path`, or creates it. The limits of `head` apply from now on.
    fn open_or_create(path: &Path, head: LedgerHead, lock: FileLock) -> LedgerResult<Self> {
        let is_there = durable::metadata_no_follow(path).is_ok();
        let (earlier, mut file) = if is_there {
            let contents = read_ledger(path)?;
            let file = AppendFile::open(path, contents.length)?;
            (contents.account, file)
        } else {
            let file = AppendFile::create(path)?;
            path.parent().map_or(Ok(()), durable::sync_dir)?;
            (None, file)
        };
        let limits = LedgerEntry::Limits(Box::new(head.clone()));
        file.append_synced(ledger_line(&limits).as_bytes())?;
        let state = match earlier {
            Some(mut earlier) => {
                earlier.apply(limits);
                earlier
            }
            None => BudgetAccount::new(head),
        };
        Ok(Self { file, account: state, _lock: lock })
    }

    /// Appends an entry durably. Returns the number of its line.
    fn append_entry(&mut self, entry: LedgerEntry) -> LedgerResult<u64> {
        self.file.append_synced(ledger_line(&entry).as_bytes())?;
        let number = self.account.next_line();
        self.account.apply(entry);
        Ok(number)
    }

    /// Decides whether a call fits. Settles the calls of dead processes first if their reservations are in the way.
    fn admission(&mut self, bound: CallUpperBound, budget: &str) -> LedgerResult<Admission> {
        let mut admission = self.account.admission(bound, budget);
        if let Admission::Later(_) = admission {
            self.settle_dead_calls()?;
            admission = self.account.admission(bound, budget);
        }
        if admission != Admission::Now && self.account.head.grants.is_some() {
            self.request_grant(bound.amount())?;
            admission = self.account.admission(bound, budget);
        }
        Ok(admission)
    }

    /// Ends the calls of dead processes.
    fn settle_dead_calls(&mut self) -> LedgerResult<()> {
        dead_calls(&self.account).into_iter().try_for_each(|entry| {
            self.append_entry(entry)?;
            Ok(())
        })
    }
}

/// The entries that end the calls of dead processes.
fn dead_calls(budget: &BudgetAccount) -> Vec<LedgerEntry> {
    let dead = budget.open_calls.iter().filter(|(_, reservation)| {
        owner_process::owner_status(&reservation.process) == OwnerStatus::Dead
    });
    let entries = dead.map(|(call, reservation)| {
        // A budget that hosts share is not exceeded even by what such a call has cost.
        let is_shared = budget.head.grants.is_some();
        let amount = if is_shared { reservation.amount() } else { reservation.amount_at_death() };
        let run_id = reservation.run_id.clone().filter(|_| !is_shared);
        LedgerEntry::Settle { call: *call, run_id: run_id.unwrap_or_else(unsettled), amount }
    });
    entries.collect()
}

fn unsettled() -> String {
    UNSETTLED.to_owned()
}

/// What the ledger of an owner that was replaced adds to the ledger of the next one.
fn carried_usage(before: &Path) -> LedgerResult<Vec<LedgerEntry>> {
    let contents = match read_ledger(before) {
        Err(LedgerError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(Vec::new());
        }
        contents => contents?,
    };
    let Some(budget) = contents.account else { return Ok(Vec::new()) };
    let mut used = budget.used_by_runs();
    used.extend(budget.open_calls.values().map(|reservation| {
        (reservation.run_id.clone().unwrap_or_else(unsettled), reservation.amount_at_death())
    }));
    let used = used.into_iter().filter(|(_, amount)| !amount.is_zero());
    Ok(used.map(|(run_id, amount)| LedgerEntry::Use { run_id, amount }).collect())
}

fn ledger_line(entry: &LedgerEntry) -> String {
    let mut line = serde_json::to_string(entry).unwrap_or_default();
    line.push('\n');
    line
}

/// The ledger of the run in `run_dir` now, whether it exists or not.
fn ledger_path(run_dir: &Path) -> PathBuf {
    LeaseFiles::new(run_dir).last_ledger().unwrap_or_else(|| run_dir.join(LEDGER_FILE))
}

/// The file that is locked while the ledger at `path` is read or written.
fn lock_path(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

/// What the runs inside the run in `run_dir` write of its ledger.
pub fn ledger_files(run_dir: &Path) -> [PathBuf; 2] {
    let path = ledger_path(run_dir);
    [lock_path(&path), path]
}

fn lock_ledger(path: &Path, cancel: &CancelToken) -> LedgerResult<FileLock> {
    loop {
        match FileLock::try_acquire(&lock_path(path))? {
            Some(lock) => return Ok(lock),
            None if cancel.wait(LOCK_POLL_INTERVAL) => return Err(LedgerError::Cancelled),
            None => {}
        }
    }
}

/// A ledger that limits a run, without the lock.
#[derive(Debug, Clone)]
pub struct Ledger {
    path: PathBuf,
    /// The limits of the ledger when this process opened it.
    pub head: LedgerHead,
    /// What the run has used as its own process knows it; `None` in a process of another run.
    owner_use: Option<BudgetAmount>,
    /// Whether a limit was nearly used after the last call of this process.
    was_nearly_used: bool,
}

impl Ledger {
    /// Opens the ledger at `path` without its parents.
    ///
    /// # Errors
    /// The ledger cannot be read, has no limits or is damaged.
    pub fn open(path: &Path) -> LedgerResult<Self> {
        let contents = read_ledger(path)?;
        let head = contents.account.ok_or_else(|| missing_limits(path))?.head;
        Ok(Self { path: path.to_owned(), head, owner_use: None, was_nearly_used: false })
    }

    /// Opens the ledger at `path` and its parents, innermost first.
    ///
    /// # Errors
    /// A ledger cannot be read, has no limits or is damaged, or the parents are a cycle.
    pub fn open_chain(path: &Path) -> LedgerResult<Vec<Self>> {
        let mut chain: Vec<Self> = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            if chain.len() == MAX_CHAIN_LENGTH {
                return Err(LedgerError::Cycle(path));
            }
            let ledger = Self::open(&path)?;
            next = ledger.head.above.as_ref().map(PathBuf::from);
            chain.push(ledger);
        }
        Ok(chain)
    }

    /// Reads the ledger in a run directory; `None` if it does not exist or has no complete line. The calls of dead processes
    /// count as the next process will settle them.
    pub fn read_account(run_dir: &Path) -> LedgerResult<Option<BudgetAccount>> {
        let mut budget = Self::read_account_at(&ledger_path(run_dir))?;
        if let Some(budget) = &mut budget {
            dead_calls(budget).into_iter().for_each(|entry| budget.apply(entry));
        }
        Ok(budget)
    }

    /// Reads the ledger at `path`; `None` if it does not exist or has no complete line.
    pub fn read_account_at(path: &Path) -> LedgerResult<Option<BudgetAccount>> {
        match read_ledger(path) {
            Ok(contents) => Ok(contents.account),
            Err(LedgerError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens or creates the ledger of a run for the process that owns the run. The limits of `head` apply from now on.
    /// `spent` is what the run used according to its journal; what the ledger lacks is added to it.
    ///
    /// # Errors
    /// The ledger is damaged or cannot be written.
    pub fn open_for_owner(
        run_dir: &Path,
        ownership: &Ownership,
        head: LedgerHead,
        spent: BudgetAmount,
        cancel: &CancelToken,
    ) -> LedgerResult<Self> {
        let path = ownership.ledger_path(run_dir);
        let before = ledger_path(run_dir);
        let carried = if before == path { Vec::new() } else { carried_usage(&before)? };
        let lock = lock_ledger(&path, cancel)?;
        let mut ledger = LockedLedger::open_or_create(&path, head.clone(), lock)?;
        for entry in carried {
            ledger.append_entry(entry)?;
        }
        ledger.settle_dead_calls()?;
        let amount = spent.saturating_sub(ledger.account.used_by(head.run_id.as_str()));
        if !amount.is_zero() {
            ledger.append_entry(LedgerEntry::Use { run_id: head.run_id.to_string(), amount })?;
        }
        let owner_use = Some(ledger.account.used_by(head.run_id.as_str()));
        Ok(Self { path, head, owner_use, was_nearly_used: false })
    }

    /// The path of the ledger.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger and its lock. A tool of the run can write to the file, so the process of the run goes by the limits and
    /// the use that it knows itself.
    fn lock(&self, cancel: &CancelToken) -> LedgerResult<LockedLedger> {
        let mut locked = LockedLedger::open(&self.path, lock_ledger(&self.path, cancel)?)?;
        if let Some(used) = self.owner_use {
            locked.account.trust_owner(&self.head, used);
        }
        Ok(locked)
    }
}

/// The file with what a call has used so far.
#[derive(Debug, Clone, Copy)]
pub struct CallFile<'a> {
    /// The path, an absolute one.
    pub path: &'a Path,
    /// The number of attempts in it that are settled: what they used does not count again.
    pub settled: usize,
}

/// All budgets that limit a run: its own, and the budgets of its parent runs.
#[derive(Debug)]
pub struct Budget {
    run_id: String,
    /// Innermost first. Every process locks them in this order, so that they cannot deadlock.
    ledgers: Vec<Ledger>,
    /// Whether the first one is the run's own.
    has_own_ledger: bool,
    /// Whether a call waits for the reservations of other calls.
    waits_for_calls: bool,
    /// The numbers of the current call, one per ledger.
    reserved_calls: Vec<u64>,
    /// How fast the processes of this host call.
    rate: Option<CallRate>,
}

impl Budget {
    /// Combines the budgets of a run. `waits_for_calls` must be false inside a tool call: the call that would have to end
    /// could be the one that waits.
    pub fn new(
        run_id: &str,
        run_ledger: Option<Ledger>,
        parents: Vec<Ledger>,
        waits_for_calls: bool,
    ) -> Self {
        let has_own_ledger = run_ledger.is_some();
        let ledgers = run_ledger.into_iter().chain(parents).collect();
        let run_id = run_id.to_owned();
        let reserved_calls = Vec::new();
        Self { run_id, ledgers, has_own_ledger, waits_for_calls, reserved_calls, rate: None }
    }

    /// Limits the rate of calls, if there is a rate.
    #[must_use]
    pub fn with_rate(mut self, rate: Option<CallRate>) -> Self {
        self.rate = rate;
        self
    }

    /// How fast the processes of this host call; `None` if that is not limited.
    pub fn rate_mut(&mut self) -> &mut Option<CallRate> {
        &mut self.rate
    }

    /// Whether no ledger limits the run.
    pub fn is_unlimited(&self) -> bool {
        self.ledgers.is_empty()
    }

    /// Whether a ledger is a part of a budget that several hosts share.
    pub fn is_shared(&self) -> bool {
        self.ledgers.iter().any(|ledger| ledger.head.grants.is_some())
    }

    /// Whether cost or tokens are limited, and not only the time.
    pub fn limits_calls(&self) -> bool {
        let mut limits = self.ledgers.iter().map(|ledger| &ledger.head.limits);
        limits.any(|limits| limits.max_cost.is_some() || limits.max_tokens.is_some())
    }

    /// The innermost ledger, which limits child runs too.
    pub fn ledger_path(&self) -> Option<&Path> {
        self.ledgers.first().map(|ledger| ledger.path.as_path())
    }

    fn earliest_deadline(&self) -> Option<&Ledger> {
        let ledgers = self.ledgers.iter().filter(|ledger| ledger.head.deadline_unix.is_some());
        ledgers.min_by_key(|ledger| ledger.head.deadline_unix)
    }

    /// The limits that options gave to this process of the run or an earlier one.
    pub fn given_limits(&self) -> Option<Limits> {
        self.own_ledger().map(|ledger| ledger.head.given).filter(|limits| !limits.are_none())
    }

    /// The deadline of the run's own limit, which [`Budget::delay_deadline`] delays.
    pub fn own_deadline(&self) -> Option<i64> {
        self.own_ledger()?.head.deadline_unix
    }

    /// The earliest deadline of the runs around this one, which nothing delays.
    pub fn outer_deadline(&self) -> Option<i64> {
        let outer = self.ledgers.iter().skip(usize::from(self.has_own_ledger));
        outer.filter_map(|ledger| ledger.head.deadline_unix).min()
    }

    fn own_ledger(&self) -> Option<&Ledger> {
        self.ledgers.first().filter(|_| self.has_own_ledger)
    }

    /// Delays the deadline of the run's own limit, also for child runs that start later.
    ///
    /// # Errors
    /// The ledger cannot be used.
    pub fn delay_deadline(&mut self, time: Duration, cancel: &CancelToken) -> LedgerResult<()> {
        let Some(deadline) = self.own_deadline() else { return Ok(()) };
        let Some(ledger) = self.ledgers.first_mut() else { return Ok(()) };
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        ledger.head.deadline_unix = Some(deadline.saturating_add(millis));
        let head = LedgerEntry::Limits(Box::new(ledger.head.clone()));
        ledger.lock(&cancel.for_cleanup())?.append_entry(head)?;
        Ok(())
    }

    /// The run's own limits.
    pub fn own_limits(&self) -> Limits {
        self.own_ledger().map(|ledger| ledger.head.limits).unwrap_or_default()
    }

    /// Replaces limits of the run, for its next reservation and its child runs. A run without a ledger gets one, with what it has
    /// `spent`. A time limit counts from `started_at`, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// The ledger cannot be used.
    pub fn change_limits(
        &mut self,
        run_dir: &Path,
        ownership: &Ownership,
        limits: Limits,
        spent: BudgetAmount,
        started_at: i64,
        cancel: &CancelToken,
    ) -> LedgerResult<()> {
        let deadline = limits
            .max_duration_ms
            .map(|millis| started_at.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)));
        let cancel = cancel.for_cleanup();
        if let Some(ledger) = self.ledgers.first_mut().filter(|_| self.has_own_ledger) {
            let head = &mut ledger.head;
            head.limits = limits.or(head.limits);
            head.given = limits.or(head.given);
            head.deadline_unix = deadline.or(head.deadline_unix);
            let entry = LedgerEntry::Limits(Box::new(head.clone()));
            ledger.lock(&cancel)?.append_entry(entry)?;
            return Ok(());
        }
        let head = LedgerHead {
            run_id: ownership.run_id().clone(),
            limits,
            given: limits,
            deadline_unix: deadline,
            above: self.ledger_path().map(|path| path.to_string_lossy().into_owned()),
            grants: None,
        };
        let ledger = Ledger::open_for_owner(run_dir, ownership, head, spent, &cancel)?;
        self.ledgers.insert(0, ledger);
        self.has_own_ledger = true;
        Ok(())
    }

    /// The error for a run whose deadline has passed.
    pub fn time_limit_error(&self) -> LedgerError {
        let ledger = self.earliest_deadline();
        let limit = ledger.and_then(|ledger| ledger.head.limits.max_duration_ms);
        let limit = format_duration(limit.unwrap_or_default());
        let budget = ledger.map(|ledger| self.run_suffix(ledger)).unwrap_or_default();
        LedgerError::LimitReached {
            message: format!("the time limit of {limit}{budget} has expired"),
            flag: MAX_DURATION_OPTION,
            proposed: None,
            of: ledger.and_then(|ledger| self.foreign_run_id(ledger)),
        }
    }

    /// The run that owns the ledger, if it is not this run.
    fn foreign_run_id(&self, ledger: &Ledger) -> Option<String> {
        Some(ledger.head.run_id.to_string()).filter(|id| *id != self.run_id)
    }

    /// Names the run that owns the ledger in a message, if it is not this run.
    fn run_suffix(&self, ledger: &Ledger) -> String {
        self.foreign_run_id(ledger).map(|run| format!(" of run {run}")).unwrap_or_default()
    }

    /// Settles what dead processes had reserved in the budgets of the runs around this one.
    ///
    /// # Errors
    /// A ledger cannot be used.
    pub fn settle_dead_calls(&self, cancel: &CancelToken) -> LedgerResult<()> {
        let mut outer = self.ledgers.iter().skip(usize::from(self.has_own_ledger));
        outer.try_for_each(|ledger| ledger.lock(cancel)?.settle_dead_calls())
    }

    /// Whether something is reserved for the current call.
    pub fn has_reservation(&self) -> bool {
        !self.reserved_calls.is_empty()
    }

    /// Reserves the upper bound of a call, or of another attempt of one, in all ledgers, or in none. Waits while other calls
    /// reserve what this call needs, and calls `on_wait` once before that.
    ///
    /// # Errors
    /// A limit was reached, a ledger cannot be used, or the wait was cancelled. The call must not be made.
    pub fn reserve(
        &mut self,
        bound: CallUpperBound,
        file: Option<CallFile<'_>>,
        cancel: &CancelToken,
        on_wait: &mut dyn FnMut(),
    ) -> LedgerResult<()> {
        let mut is_waiting = false;
        while !self.try_reserve(bound, file, cancel)? {
            if !std::mem::replace(&mut is_waiting, true) {
                on_wait();
            }
            if cancel.wait(RESERVE_POLL_INTERVAL) {
                return Err(LedgerError::Cancelled);
            }
        }
        Ok(())
    }

    fn try_reserve(
        &mut self,
        bound: CallUpperBound,
        file: Option<CallFile<'_>>,
        cancel: &CancelToken,
    ) -> LedgerResult<bool> {
        let mut locked_ledgers = Vec::new();
        let mut is_admitted = true;
        for ledger in &self.ledgers {
            let mut locked = ledger.lock(cancel)?;
            match locked.admission(bound, &self.run_suffix(ledger))? {
                Admission::Now => {}
                Admission::Later(_) if self.waits_for_calls => is_admitted = false,
                Admission::Later(_) if ledger.head.grants.is_some() => {
                    let committed = locked.account.committed();
                    let message = locked.describe_shared_refusal(bound, committed)?;
                    return Err(LedgerError::SharedLimitReached(message));
                }
                Admission::Never(_) if ledger.head.grants.is_some() => {
                    // It does not fit even if the calls under way use nothing.
                    let message = locked.describe_shared_refusal(bound, locked.account.used)?;
                    return Err(LedgerError::SharedLimitReached(message));
                }
                Admission::Later(refusal) | Admission::Never(refusal) => {
                    let LimitRefusal { message, option: flag, proposed } = refusal;
                    let of = self.foreign_run_id(ledger);
                    let proposed = Some(proposed);
                    return Err(LedgerError::LimitReached { message, flag, proposed, of });
                }
            }
            locked_ledgers.push(locked);
        }
        if is_admitted {
            let entry = LedgerEntry::Reserve {
                run_id: self.run_id.clone(),
                amount: bound.amount(),
                record: file.map(|file| file.path.to_string_lossy().into_owned()),
                settled: file.map_or(0, |file| file.settled),
                process: owner_process::current_process(),
            };
            let calls = locked_ledgers.iter_mut().map(|locked| locked.append_entry(entry.clone()));
            self.reserved_calls = calls.collect::<LedgerResult<_>>()?;
        }
        Ok(is_admitted)
    }

    /// Replaces the reservation of the current call by what it used. Returns a note when most of a limit is used for the
    /// first time.
    ///
    /// # Errors
    /// A ledger cannot be used. The reservation stays until this process ends.
    pub fn settle(
        &mut self,
        amount: BudgetAmount,
        cancel: &CancelToken,
    ) -> LedgerResult<Option<String>> {
        let mut first_note = None;
        for (index, call) in std::mem::take(&mut self.reserved_calls).into_iter().enumerate() {
            let mut locked = self.ledgers[index].lock(&cancel.for_cleanup())?;
            if let Some(used) = &mut self.ledgers[index].owner_use {
                *used = used.saturating_add(amount);
            }
            locked.append_entry(LedgerEntry::Settle {
                call,
                run_id: self.run_id.clone(),
                amount,
            })?;
            let budget = self.run_suffix(&self.ledgers[index]);
            let state = &locked.account;
            if state.head.grants.is_some() {
                // What a host has is not the whole budget.
                locked.take_overrun()?;
                continue;
            }
            let note = state.head.limits.describe_nearly_used(state.used, &budget);
            let was_nearly_used =
                std::mem::replace(&mut self.ledgers[index].was_nearly_used, note.is_some());
            first_note = first_note.or(note.filter(|_| !was_nearly_used));
        }
        Ok(first_note)
    }
}
