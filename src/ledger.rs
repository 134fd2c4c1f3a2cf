//! The ledger of a budget: a file in the directory of the run whose budget it is, on which that run and all runs below
//! it draw.
//!
//! It only grows, under an exclusive lock, and what a call could take is durable in it before the call is made. A torn
//! last line never counted; a reservation whose process is dead is given back by whoever looks next.

#[cfg(test)]
mod tests;

use crate::durable::{self, AppendFile, FileError, Lock};
use crate::limits::{Account, Admission, Amount, Entry, Head, Refusal, Worst};
use crate::ownership::{self, Owner};
use crate::signal::Cancel;
use crate::time::human_duration;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The environment variable that names the ledger on which a run draws besides its own.
pub const VARIABLE: &str = "DELTA_BUDGET";
/// The option that gives more time.
pub const DURATION: &str = "--max-duration";
/// The file in a run directory.
const FILE_NAME: &str = "budget.jsonl";
/// The file that is locked while the ledger is read or written.
const LOCK_NAME: &str = "budget.lock";
/// How long the lock is waited for at a time.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// How often a call that waits for others looks whether it may be made.
const INTERVAL: Duration = Duration::from_millis(50);
/// So many ledgers above each other are followed; more are a circle.
const DEEPEST: usize = 64;

/// Why a ledger is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The system said no.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be read.
    #[error("the budget {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line before the end is not one of a ledger.
    #[error("the budget {} is damaged in line {line}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Ledgers name each other.
    #[error("the budget {} is above itself", .0.display())]
    Circle(PathBuf),
    /// A limit does not allow the call.
    #[error("{message}")]
    Reached {
        /// Which, with all numbers.
        message: String,
        /// The option that gives more.
        flag: &'static str,
        /// The run to continue with a higher one, when it is not the one that asked.
        of: Option<String>,
    },
    /// The stop was asked for.
    #[error("interrupted")]
    Cancelled,
}

type Result<T> = std::result::Result<T, LedgerError>;

/// What a ledger holds.
struct Contents {
    /// `None` when it has no whole line.
    account: Option<Account>,
    /// How many bytes its whole lines take.
    length: u64,
}

fn read(path: &Path) -> Result<Contents> {
    let unreadable = |source| LedgerError::Unreadable { path: path.to_owned(), source };
    parse(&durable::read_whole(path).map_err(unreadable)?, path)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Contents> {
    let mut contents = Contents { account: None, length: 0 };
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for (index, line) in lines.iter().enumerate() {
        match take(&mut contents.account, line) {
            Ok(()) => contents.length += line.len() as u64,
            Err(_) if index + 1 == lines.len() => break,
            Err(reason) => {
                return Err(LedgerError::Damaged {
                    path: path.to_owned(),
                    line: index + 1,
                    reason,
                });
            }
        }
    }
    Ok(contents)
}

fn empty(path: &Path) -> LedgerError {
    LedgerError::Damaged { path: path.to_owned(), line: 1, reason: "it says no limits".to_owned() }
}

/// Takes a line into an account.
fn take(account: &mut Option<Account>, line: &[u8]) -> std::result::Result<(), String> {
    let line = line.strip_suffix(b"\n").ok_or("the line has no end")?;
    let entry: Entry = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match (account, entry) {
        (Some(account), entry) => account.apply(entry),
        (none, Entry::Limits(head)) => *none = Some(Account::new(*head)),
        (None, _) => return Err("the limits are missing before it".to_owned()),
    }
    Ok(())
}

/// A ledger that this process holds locked, for a moment.
struct Held {
    file: AppendFile,
    account: Account,
    _lock: Lock,
}

impl Held {
    /// Makes a line durable, and takes it in; gives its number.
    fn write(&mut self, entry: Entry) -> Result<u64> {
        self.file.append(line(&entry).as_bytes())?;
        let number = self.account.next();
        self.account.apply(entry);
        Ok(number)
    }

    /// Whether a call may be made; what dead processes had reserved is in nobody's way.
    fn admission(&mut self, worst: Worst, of: &str) -> Result<Admission> {
        if let Admission::Later(_) = self.account.admission(worst, of) {
            self.release_dead()?;
        }
        Ok(self.account.admission(worst, of))
    }

    /// Gives back what dead processes had reserved.
    fn release_dead(&mut self) -> Result<()> {
        let open = self.account.open.iter();
        let dead = open.filter(|(_, it)| ownership::inspect(&it.process) == Owner::Gone);
        for call in dead.map(|(call, _)| *call).collect::<Vec<_>>() {
            self.write(Entry::Release { call })?;
        }
        Ok(())
    }
}

fn line(entry: &Entry) -> String {
    let mut line = serde_json::to_string(entry).unwrap_or_default();
    line.push('\n');
    line
}

/// Takes the lock beside a ledger.
fn lock(path: &Path, cancel: &Cancel) -> Result<Lock> {
    loop {
        match Lock::take(&path.with_file_name(LOCK_NAME))? {
            Some(lock) => return Ok(lock),
            None if cancel.wait(LOCK_INTERVAL) => return Err(LedgerError::Cancelled),
            None => {}
        }
    }
}

/// A ledger, and what it says of itself.
#[derive(Debug, Clone)]
pub struct Ledger {
    path: PathBuf,
    /// What it began with, for this process.
    pub head: Head,
    /// Whether most of a limit was used when this process looked last.
    nearly: bool,
}

impl Ledger {
    /// The ledger at `path` and those above it, the nearest first.
    ///
    /// # Errors
    /// One of them cannot be read, holds nothing, or is damaged.
    pub fn chain(path: &Path) -> Result<Vec<Self>> {
        let mut chain: Vec<Self> = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            if chain.len() == DEEPEST {
                return Err(LedgerError::Circle(path));
            }
            let head = read(&path)?.account.ok_or_else(|| empty(&path))?.head;
            next = head.above.as_ref().map(PathBuf::from);
            chain.push(Self { path, head, nearly: false });
        }
        Ok(chain)
    }

    /// What the ledger in a run directory says; `None` when there is none, or none that began.
    pub fn in_run(run_dir: &Path) -> Result<Option<Account>> {
        match read(&run_dir.join(FILE_NAME)) {
            Ok(contents) => Ok(contents.account),
            Err(LedgerError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes up the budget of a run for a process that owns it: `head` holds from now on. `spent` is what the run's
    /// journal says that it has used; what the ledger does not know of it is added.
    ///
    /// # Errors
    /// It is damaged, or cannot be written.
    pub fn take_up(run_dir: &Path, head: Head, spent: Amount, cancel: &Cancel) -> Result<Self> {
        let path = run_dir.join(FILE_NAME);
        let _lock = lock(&path, cancel)?;
        let (contents, mut file) = if path.exists() || path.is_symlink() {
            let contents = read(&path)?;
            let file = AppendFile::open(&path, contents.length)?;
            (contents, file)
        } else {
            let file = AppendFile::create(&path)?;
            durable::sync_dir(run_dir)?;
            (Contents { account: None, length: 0 }, file)
        };
        file.append(line(&Entry::Limits(Box::new(head.clone()))).as_bytes())?;
        let account = match contents.account {
            Some(mut account) => {
                account.apply(Entry::Limits(Box::new(head.clone())));
                account
            }
            None => Account::new(head.clone()),
        };
        let mut held = Held { file, account, _lock };
        let amount = spent.without(held.account.used_by(&head.run_id));
        if !amount.is_nothing() {
            held.write(Entry::Use { run_id: head.run_id.clone(), amount })?;
        }
        Ok(Self { path, head, nearly: false })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn hold(&self, cancel: &Cancel) -> Result<Held> {
        let _lock = lock(&self.path, cancel)?;
        let contents = read(&self.path)?;
        let file = AppendFile::open(&self.path, contents.length)?;
        let account = contents.account.ok_or_else(|| empty(&self.path))?;
        Ok(Held { file, account, _lock })
    }
}

/// All budgets on which a run draws: its own, and those above it.
#[derive(Debug)]
pub struct Budget {
    run_id: String,
    /// The nearest first: that is also the order in which they are locked, by everybody.
    ledgers: Vec<Ledger>,
    /// Whether calls wait for others that hold back what they could take.
    patient: bool,
    /// The numbers of the call that goes on, one for each ledger.
    calls: Vec<u64>,
}

impl Budget {
    /// The budgets of a run: its own first, if it has one. Inside a call of an LLM nobody waits for calls: that call
    /// itself would be one of them.
    pub fn new(run_id: &str, own: Option<Ledger>, above: Vec<Ledger>, patient: bool) -> Self {
        let ledgers = own.into_iter().chain(above).collect();
        Self { run_id: run_id.to_owned(), ledgers, patient, calls: Vec::new() }
    }

    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        self.ledgers.is_empty()
    }

    /// Whether what calls take is limited, and not only the time.
    pub fn counts_calls(&self) -> bool {
        let counts =
            |it: &Ledger| it.head.limits.max_cost.is_some() || it.head.limits.max_tokens.is_some();
        self.ledgers.iter().any(counts)
    }

    /// The ledger on which runs below this one draw.
    pub fn path(&self) -> Option<&Path> {
        self.ledgers.first().map(|ledger| ledger.path.as_path())
    }

    /// When the time of this process is over, in milliseconds since the Unix epoch.
    pub fn deadline(&self) -> Option<i64> {
        self.shortest().and_then(|ledger| ledger.head.deadline_unix)
    }

    fn shortest(&self) -> Option<&Ledger> {
        let limited = self.ledgers.iter().filter(|it| it.head.deadline_unix.is_some());
        limited.min_by_key(|ledger| ledger.head.deadline_unix)
    }

    /// That the time is over.
    pub fn out_of_time(&self) -> LedgerError {
        let limit = self.shortest().and_then(|ledger| ledger.head.limits.max_duration_ms);
        let of = self.shortest().and_then(|ledger| self.other(ledger));
        let run = self.shortest().map(|ledger| self.of(ledger)).unwrap_or_default();
        let limit = human_duration(limit.unwrap_or_default());
        let message = format!("the time limit of {limit}{run} is over");
        LedgerError::Reached { message, flag: DURATION, of }
    }

    /// Whose budget it is, when not that of this run.
    fn other(&self, ledger: &Ledger) -> Option<String> {
        Some(ledger.head.run_id.clone()).filter(|id| *id != self.run_id)
    }

    /// The same as a part of a message.
    fn of(&self, ledger: &Ledger) -> String {
        self.other(ledger).map(|run| format!(" of run {run}")).unwrap_or_default()
    }

    /// Reserves the worst that a call can take in all ledgers, or in none. Waits while other calls that go on could take
    /// what this one needs, and tells so once with `waits`.
    ///
    /// # Errors
    /// A limit does not allow it, a ledger is of no use, or the stop was asked for: the call must not be made.
    pub fn reserve(
        &mut self,
        worst: Worst,
        cancel: &Cancel,
        waits: &mut dyn FnMut(),
    ) -> Result<()> {
        let mut told = false;
        while !self.try_reserve(worst, cancel)? {
            if !std::mem::replace(&mut told, true) {
                waits();
            }
            if cancel.wait(INTERVAL) {
                return Err(LedgerError::Cancelled);
            }
        }
        Ok(())
    }

    fn try_reserve(&mut self, worst: Worst, cancel: &Cancel) -> Result<bool> {
        let mut held = Vec::new();
        let mut now = true;
        for ledger in &self.ledgers {
            let mut one = ledger.hold(cancel)?;
            match one.admission(worst, &self.of(ledger))? {
                Admission::Now => {}
                Admission::Later(_) if self.patient => now = false,
                Admission::Later(why) | Admission::Never(why) => {
                    let (Refusal { message, flag }, of) = (why, self.other(ledger));
                    return Err(LedgerError::Reached { message, flag, of });
                }
            }
            held.push(one);
        }
        if now {
            let (run_id, process) = (self.run_id.clone(), ownership::myself());
            let entry = Entry::Reserve { run_id, amount: worst.amount(), process };
            let write = |one: &mut Held| one.write(entry.clone());
            self.calls = held.iter_mut().map(write).collect::<Result<_>>()?;
        }
        Ok(now)
    }

    /// Puts what the call took in the place of what was reserved for it. Gives what is good to know when most of a limit
    /// is used for the first time.
    ///
    /// # Errors
    /// A ledger is of no use: what was reserved stays so as long as this process lives.
    pub fn settle(&mut self, amount: Amount, cancel: &Cancel) -> Result<Option<String>> {
        let mut note = None;
        for (at, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            let mut held = self.ledgers[at].hold(&cancel.for_the_end())?;
            held.write(Entry::Settle { call, run_id: self.run_id.clone(), amount })?;
            let of = self.of(&self.ledgers[at]);
            let nearly = held.account.head.limits.nearly_used(held.account.used, &of);
            let before = std::mem::replace(&mut self.ledgers[at].nearly, nearly.is_some());
            note = note.or(nearly.filter(|_| !before));
        }
        Ok(note)
    }
}
