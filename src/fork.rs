//! A new run that begins as another one: the first iterations of its journal, and the records that they name.
//!
//! The other run is only read, whoever works on it meanwhile. The journal of the fork comes last, in one piece: who is
//! killed before that leaves a run that never began.

use crate::durable::{self, FileError};
use crate::event::{Event, Fork, Payload};
use crate::history::{History, Iteration};
use crate::journal::{self, JournalError};
use crate::record;
use crate::state::ON_ITERATION_END;
use crate::time::Clock;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

mod files;

pub use files::copy_workspace;

/// The directory of what is kept of the agent, below the run directory.
const AGENT: &str = "agent";

/// The directories of records, below the run directory.
const RECORDS: [&str; 3] = ["io/invocations", "io/tool_executions", "io/hooks"];

/// Why a run cannot be forked there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCut {
    /// The iteration is not there, or goes on.
    #[error("{}", not_whole(*wanted, *last, *begun))]
    NotWhole {
        /// The iteration.
        wanted: u32,
        /// The last whole one.
        last: u32,
        /// How many have begun.
        begun: u32,
    },
    /// Nobody has said anything yet.
    #[error("the run has no task: its process died before it was recorded")]
    NoTask,
}

fn not_whole(wanted: u32, last: u32, begun: u32) -> String {
    let known = match last {
        0 => "no iteration of the run is whole yet".to_owned(),
        1 => "the run has 1 whole iteration".to_owned(),
        last => format!("the run has {last} whole iterations"),
    };
    match wanted <= begun {
        true => format!("iteration {wanted} is not whole: some of its calls have no result yet"),
        false => format!("there is no iteration {wanted}; {known}"),
    }
}

/// Where a run is cut: behind an iteration whose calls all have their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The iteration; 0 is the task alone.
    pub iteration: u32,
    /// How many events stand before it.
    pub events: usize,
}

impl Cut {
    /// The cut behind iteration `wanted`, or behind the last whole one, of the run with these events.
    ///
    /// # Errors
    /// There is no such iteration, or it is not whole.
    pub fn at(events: &[Event], wanted: Option<u32>) -> Result<Self, NoCut> {
        let history = History::of(events);
        let whole = history.iterations.iter().take_while(|one| one.is_done());
        let last = u32::try_from(whole.count()).unwrap_or(u32::MAX);
        let begun = u32::try_from(history.iterations.len()).unwrap_or(u32::MAX);
        let iteration = wanted.unwrap_or(last);
        if iteration > last {
            return Err(NoCut::NotWhole { wanted: iteration, last, begun });
        }
        let end = match history.iterations.get((iteration as usize).wrapping_sub(1)) {
            Some(told) => usize::try_from(last_seq(told)).unwrap_or(usize::MAX),
            None => {
                let task = |event: &Event| matches!(event.payload, Payload::UserMessage { .. });
                events.iter().position(task).ok_or(NoCut::NoTask)? + 1
            }
        };
        let more = events[end..].iter().take_while(|event| belongs(event, iteration));
        Ok(Self { iteration, events: end + more.count() })
    }
}

/// The number of the last event of an iteration.
fn last_seq(told: &Iteration<'_>) -> u64 {
    let results = told.calls.iter().filter_map(|call| Some(call.result?.seq));
    results.fold(told.thought.seq, u64::max)
}

/// Whether an event behind the last result is still a part of the iteration.
fn belongs(event: &Event, of: u32) -> bool {
    match &event.payload {
        Payload::HookExecution { iteration, hook, .. } => {
            *iteration == of && hook == ON_ITERATION_END
        }
        Payload::Snapshot(taken) => taken.iteration == of && !taken.found,
        _ => false,
    }
}

/// Why a fork could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The journal of the other run.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The system said no.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Copies the configuration and the records of the run in `from` into the run directory `to`, as far as `events`, the
/// beginning of its journal, name them. What is not there any more is left out.
///
/// # Errors
/// A file could not be copied.
pub fn copy_records(from: &Path, to: &Path, events: &[Event]) -> Result<(), FileError> {
    copy_below(&from.join(AGENT), &to.join(AGENT))?;
    let stems = stems(from, events);
    for dir in RECORDS {
        for entry in fs::read_dir(from.join(dir)).into_iter().flatten().flatten() {
            let name = entry.file_name();
            // Streams that are too large for a record lie beside it under its name.
            let stem = name.to_str().and_then(|name| name.rsplit_once('.')).map(|(stem, _)| stem);
            let wanted = stem.is_some_and(|stem| stems.contains(&format!("{dir}/{stem}")));
            if wanted && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                copy(&entry.path(), &to.join(dir).join(&name))?;
            }
        }
    }
    Ok(())
}

/// Copies the files in a directory, and in those below it.
fn copy_below(from: &Path, to: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type() {
            Ok(kind) if kind.is_file() => copy(&path, &copied)?,
            Ok(kind) if kind.is_dir() => {
                durable::ensure_dir(&copied, true)?;
                copy_below(&path, &copied)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    // Whoever tried before and was killed may have left a part of it.
    let _ = fs::remove_file(to);
    durable::copy_new(from, to)
}

/// The records that events name, and those from which these have a part, without their `.json`.
fn stems(run_dir: &Path, events: &[Event]) -> BTreeSet<String> {
    let mut stems = BTreeSet::new();
    let mut next: Vec<String> =
        events.iter().filter_map(|event| event.payload.record()).map(str::to_owned).collect();
    while let Some(name) = next.pop() {
        let Some(stem) = name.strip_suffix(".json") else { continue };
        if stems.insert(stem.to_owned()) && name.starts_with(RECORDS[0]) {
            next.extend(record::base(run_dir, &name));
        }
    }
    stems
}

/// Begins the run in `to` with the events of the run in `from` before `cut`; from now on it is there.
///
/// # Errors
/// It is not there then.
pub fn begin(
    from: &Path,
    to: &Path,
    cut: Cut,
    origin: Fork,
    clock: Clock,
) -> Result<(), ForkError> {
    let lines = journal::lines(from, cut.events)?;
    Ok(journal::begin_with(to, lines, Payload::Fork(Box::new(origin)), clock)?)
}
