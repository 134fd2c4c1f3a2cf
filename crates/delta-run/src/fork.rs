//! Forks: new runs that start with the first iterations of another run's journal and the records that these name.
//!
//! The other run is only read, even while another process works on it. The journal of the fork is written last and at
//! once, so that a crash before that leaves a run that never began.

use crate::conversation::history::{Iteration, RunHistory};
use crate::event::{Event, Payload, RunFork, image_file};
use crate::journal::seal::Sealer;
use crate::journal::{self, JournalError};
use crate::ownership::Ownership;
use crate::record::{self, RecordFile};
use crate::state::ON_ITERATION_END;
use delta_base::durable::{self, FileError};
use delta_base::time::Clock;
use std::collections::BTreeSet;
use std::path::Path;

pub mod bundle;
pub mod redacted_copy;
mod workspace_copy;

pub use workspace_copy::copy_workspace;

/// The directory of the agent's files, in a run directory.
const AGENT_DIR: &str = "agent";

/// The directories of records, in a run directory.
const RECORD_DIRS: [&str; 3] = ["io/invocations", "io/tool_executions", "io/hooks"];

/// Why a run cannot be forked at an iteration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkPointError {
    /// The iteration does not exist or has calls without a result.
    #[error("{}", describe_incomplete(*iteration, *last_complete, *last_started))]
    IncompleteIteration {
        /// The iteration.
        iteration: u32,
        /// The last complete iteration.
        last_complete: u32,
        /// The last iteration.
        last_started: u32,
    },
    /// The run has no user message.
    #[error("the run has no task: its process died before it was recorded")]
    NoTask,
}

fn describe_incomplete(iteration: u32, last_complete: u32, last_started: u32) -> String {
    if iteration <= last_started {
        return format!(
            "iteration {iteration} is incomplete: some of its calls have no result yet"
        );
    }
    let complete = match last_complete {
        0 => "no iteration of the run is complete yet".to_owned(),
        1 => "the run has 1 complete iteration".to_owned(),
        count => format!("the run has {count} complete iterations"),
    };
    format!("there is no iteration {iteration}; {complete}")
}

/// The point of a run at which it is forked: the end of a complete iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkPoint {
    /// The iteration; 0 is the task alone.
    pub iteration: u32,
    /// The number of events that the fork copies.
    pub event_count: usize,
}

impl ForkPoint {
    /// Finds the end of `iteration`, by default the last complete one, in the events of a run.
    ///
    /// # Errors
    /// The iteration does not exist or is incomplete, or the run has no task.
    pub fn find(events: &[Event], iteration: Option<u32>) -> Result<Self, ForkPointError> {
        let points = Self::all(events)?;
        let last_complete = points.last().map_or(0, |point| point.iteration);
        let iteration = iteration.unwrap_or(last_complete);
        points.get(iteration as usize).copied().ok_or_else(|| {
            let thoughts =
                events.iter().filter(|event| matches!(event.payload, Payload::Thought(_)));
            let last_started = u32::try_from(thoughts.count()).unwrap_or(u32::MAX);
            ForkPointError::IncompleteIteration { iteration, last_complete, last_started }
        })
    }

    /// The ends of all complete iterations in the events of a run, from 0 on.
    ///
    /// # Errors
    /// The run has no task.
    pub fn all(events: &[Event]) -> Result<Vec<Self>, ForkPointError> {
        let history = RunHistory::from_events(events);
        let complete = history.iterations.iter().take_while(|iteration| iteration.is_complete());
        let task =
            events.iter().position(|event| matches!(event.payload, Payload::UserMessage { .. }));
        let task = task.ok_or(ForkPointError::NoTask)? + 1;
        let ends = complete
            .map(|iteration| usize::try_from(last_event_seq(iteration)).unwrap_or(usize::MAX));
        let ends = (0..).zip(std::iter::once(task).chain(ends));
        Ok(ends
            .map(|(iteration, end)| {
                let more = events[end..].iter();
                let more = more.take_while(|event| belongs_to_end_of(event, iteration));
                Self { iteration, event_count: end + more.count() }
            })
            .collect())
    }
}

/// The number of the last result of an iteration, or of its answer.
fn last_event_seq(iteration: &Iteration<'_>) -> u64 {
    let results = iteration.calls.iter().filter_map(|call| Some(call.result?.seq));
    results.fold(iteration.thought.seq, u64::max)
}

/// Whether an event after the last result of an iteration is a part of it.
fn belongs_to_end_of(event: &Event, last: u32) -> bool {
    match &event.payload {
        Payload::HookExecution { iteration, hook, .. } => {
            *iteration == last && hook == ON_ITERATION_END
        }
        Payload::Snapshot(snapshot) => snapshot.iteration == last && !snapshot.found,
        _ => false,
    }
}

/// Why a fork could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The journal of the other run could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Copies the agent's files and the records of the run in `from` to the run directory `to`, as far as `events`, the
/// start of its journal, name them. Missing files are skipped.
///
/// # Errors
/// A file could not be copied.
pub fn copy_records(from: &Path, to: &Path, events: &[Event]) -> Result<(), FileError> {
    copy_dir_files(from, to, Path::new(AGENT_DIR))?;
    events
        .iter()
        .try_for_each(|event| image_file::copy_images(from, to, event.payload.images()))?;
    let stems = referenced_stems(from, events);
    for dir in RECORD_DIRS {
        for (name, length) in record::list_record_files(from, dir) {
            // A stream that is too large for a record is in a file next to it with the same stem.
            let stem = name.rsplit_once('.').map(|(stem, _)| stem);
            let is_referenced = stem.is_some_and(|stem| stems.contains(&format!("{dir}/{stem}")));
            let is_open = name.ends_with(record::open_call::OPEN_CALL_SUFFIX);
            if is_referenced && !is_open && length.is_some() {
                copy_record(from, to, &format!("{dir}/{name}"))?;
            }
        }
    }
    Ok(())
}

/// Copies the files in a directory of a run directory, recursively. A directory that is missing or a symlink has none.
fn copy_dir_files(from: &Path, to: &Path, dir: &Path) -> Result<(), FileError> {
    for entry in durable::read_dir_no_follow(&from.join(dir)).unwrap_or_default() {
        let path = dir.join(&entry.name);
        if entry.is_file() {
            copy_record_file(&from.join(&path), &to.join(&path))?;
        } else if entry.is_dir() {
            durable::ensure_private_dir(&to.join(&path))?;
            copy_dir_files(from, to, &path)?;
        }
    }
    Ok(())
}

/// Copies the file `name` of io/.
fn copy_record(from: &Path, to: &Path, name: &str) -> Result<(), FileError> {
    let mut source =
        RecordFile::open(from, name).map_err(FileError::at("read", &from.join(name)))?;
    let target = to.join(name);
    // An earlier attempt that was killed may have left a part of the file.
    let _ = durable::remove_file_no_follow(&target);
    durable::create_private_from_unsynced(&target, &mut source)
}

fn copy_record_file(from: &Path, to: &Path) -> Result<(), FileError> {
    // An earlier attempt that was killed may have left a part of the file.
    let _ = durable::remove_file_no_follow(to);
    durable::copy_private_unsynced(from, to)
}

/// The records that events name and the records that these refer to, without `.json`.
fn referenced_stems(run_dir: &Path, events: &[Event]) -> BTreeSet<String> {
    let mut stems = BTreeSet::new();
    let mut next: Vec<String> =
        events.iter().filter_map(|event| event.payload.record_file()).map(str::to_owned).collect();
    while let Some(name) = next.pop() {
        let Some(stem) = name.strip_suffix(".json") else { continue };
        if stems.insert(stem.to_owned()) && name.starts_with(RECORD_DIRS[0]) {
            next.extend(record::base_record(run_dir, &name));
        }
    }
    stems
}

/// Begins the run in `to`, which this process owns, with the events of the run in `from` up to `point`. From then on the fork exists.
/// `sealer` is of the fork, with the operator's key, if there is one.
///
/// # Errors
/// The journal could not be read or written. The fork does not exist.
pub fn begin_fork(
    from: &Path,
    to: &Path,
    ownership: &mut Ownership,
    point: ForkPoint,
    origin: RunFork,
    clock: Clock,
    sealer: Option<Sealer>,
) -> Result<(), ForkError> {
    let lines = journal::read_journal_lines(from, point.event_count)?;
    let path = ownership.journal_path(to);
    let payload = Payload::Fork(Box::new(origin));
    let event_count = journal::create_forked_journal(to, &path, lines, payload, clock, sealer)?;
    ownership.note_durable_events(event_count);
    ownership.publish_journal();
    Ok(())
}
