//! Parent and child runs: a `delta run` that a tool or a hook starts is a child of the run that started it.
//!
//! This is information for users, and an error here fails no run. What a run does depends on it in one case: if the budget
//! of a sweep has stopped a child run, it stops the parent too.

use crate::event::{
    EngineStart, Event, JournalHead, ParentRun, Payload, RunStatus, SHARED_BUDGET_ERROR,
    StartedRun, UsageSummary,
};
use crate::state::RunState;
use crate::{journal, run_summary};
use delta_base::durable::{self, FileError};
use delta_base::id::RunId;
use delta_base::time::Timestamp;
use delta_process::RunMark;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

pub mod sensitive_answers;

/// The file in a run directory that lists its child runs, one per line.
pub const CHILDREN_FILE: &str = "children.jsonl";

/// The most bytes of a journal that are searched for its first event.
const MAX_FIRST_EVENT_BYTES: u64 = 1024 * 1024;

/// An entry for a child run in its parent's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildRunEntry {
    /// The id of the child run.
    pub run_id: RunId,
    /// The absolute path of the child run's directory.
    pub run_dir: String,
    /// The tool call of the parent run; `None` if no call started the child.
    #[serde(default)]
    pub call_id: Option<String>,
}

/// The run `run_id` as a parent, if `run_dir` really is its directory. Both come from the environment.
pub fn verify_parent_run(
    run_id: &str,
    run_dir: &Path,
    call_id: Option<String>,
) -> Option<ParentRun> {
    let id = RunId::parse(run_id).ok()?;
    let run_dir = run_dir.canonicalize().ok()?;
    let control = run_dir.parent()?.file_name()?;
    let is_run_dir = control == ".delta"
        && run_dir.file_name()? == run_id
        && durable::is_file_no_follow(&journal::journal_path(&run_dir));
    let run_dir = run_dir.to_str().filter(|_| is_run_dir)?.to_owned();
    Some(ParentRun { run_id: id, call_id, run_dir })
}

/// The directories of the run in `run_dir` and of the runs that started it, as far as they still exist.
pub fn find_enclosing_runs(run_dir: &Path) -> Vec<PathBuf> {
    let mut dirs = vec![run_dir.to_owned()];
    while let Some(parent) = dirs.last().and_then(|dir| read_first_start(dir)?.parent) {
        let dir = PathBuf::from(parent.run_dir);
        // A journal that names itself would be followed for ever.
        if dirs.contains(&dir) {
            break;
        }
        dirs.push(dir);
    }
    dirs
}

/// Creates the empty list of the child runs of the run in `run_dir`, if it has none.
///
/// # Errors
/// The file could not be created.
pub fn create_children_file(run_dir: &Path) -> Result<(), FileError> {
    match durable::create_private_unsynced(&run_dir.join(CHILDREN_FILE), b"") {
        Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Adds the run `run_id` to the child runs of `parent`.
///
/// # Errors
/// The line could not be written. Nothing depends on it.
pub fn register_child_run(
    parent: &ParentRun,
    run_id: &RunId,
    run_dir: &Path,
) -> Result<(), FileError> {
    let child = ChildRunEntry {
        run_id: run_id.clone(),
        run_dir: run_dir.to_string_lossy().into_owned(),
        call_id: parent.call_id.clone(),
    };
    let line = serde_json::to_string(&child).unwrap_or_default();
    durable::append_line_unsynced(&Path::new(&parent.run_dir).join(CHILDREN_FILE), &line)
}

/// Reads the child runs of the run in `run_dir`, each once, oldest first. Damaged lines are skipped.
pub fn read_child_runs(run_dir: &Path) -> Vec<ChildRunEntry> {
    let text = durable::read_regular(&run_dir.join(CHILDREN_FILE)).unwrap_or_default();
    parse_child_runs(&text)
}

fn parse_child_runs(text: &[u8]) -> Vec<ChildRunEntry> {
    let text = String::from_utf8_lossy(text);
    let mut children: Vec<ChildRunEntry> = Vec::new();
    for child in text.lines().filter_map(|line| serde_json::from_str::<ChildRunEntry>(line).ok()) {
        if children.iter().all(|known| known.run_dir != child.run_dir) {
            children.push(child);
        }
    }
    children
}

/// Reads which runs the calls of a run start, as they are registered.
#[derive(Debug, Default)]
pub struct ChildRunReader {
    read_bytes: u64,
    /// The children of calls without a result.
    waiting: Vec<ChildRunEntry>,
}

impl ChildRunReader {
    /// The runs that the call of the run in `run_dir` has started since the last time, each with the head of its journal.
    pub fn take_heads(&mut self, run_dir: &Path, call_id: &str) -> Vec<StartedRun> {
        let path = run_dir.join(CHILDREN_FILE);
        let length = durable::metadata_no_follow(&path).map_or(0, |metadata| metadata.len());
        if length > self.read_bytes {
            let text = durable::read_regular(&path).unwrap_or_default();
            let new = usize::try_from(self.read_bytes).ok().and_then(|read| text.get(read..));
            self.waiting.extend(parse_child_runs(new.unwrap_or_default()));
            self.read_bytes = length;
        }
        let mut started = Vec::new();
        self.waiting.retain(|child| {
            let is_of_call = child.call_id.as_deref() == Some(call_id);
            if is_of_call
                && let Some(dir) = locate_child_run(run_dir, child)
                && let Some(head) = journal::read_journal_head(&dir)
            {
                let JournalHead { seq, chain } = head;
                started.push(StartedRun { run_id: child.run_id.clone(), seq, chain });
            }
            !is_of_call
        });
        started
    }
}

/// Finds the directory of a child of the run in `run_dir`, also if both were moved or copied together. A copy has only the
/// children that were copied: the original's may have changed since.
///
/// The child's own journal must name this parent. An agent can write any line into the list, and could otherwise put any
/// run of its user on a page that the user passes on.
pub fn locate_child_run(run_dir: &Path, child: &ChildRunEntry) -> Option<PathBuf> {
    let run_dir = run_dir.canonicalize().ok()?;
    let parent_id = run_dir.file_name()?.to_str()?;
    let recorded = Path::new(&child.run_dir);
    let parent_of = |dir: &Path| recorded_parent(dir, &child.run_id, parent_id);
    let parent = parent_of(recorded);
    if parent.as_ref() == Some(&run_dir) {
        return Some(recorded.to_owned());
    }
    // Nothing says which directory was moved: the one that is now `here` was `there` if the child names the parent in it.
    for here in run_dir.ancestors().skip(1) {
        for there in recorded.ancestors().skip(1) {
            let moved = here.join(recorded.strip_prefix(there).ok()?);
            let parent_there = there.join(run_dir.strip_prefix(here).ok()?);
            if parent_of(&moved) == Some(parent_there) {
                return Some(moved);
            }
        }
    }
    let original = parent.and_then(|dir| recorded_run_id(&dir));
    let is_of_original = original.is_some_and(|id| id.as_str() == parent_id);
    let recorded = (!is_of_original).then(|| recorded.to_owned());
    let sibling = run_dir.with_file_name(child.run_id.as_str());
    recorded.into_iter().chain([sibling]).find(|dir| parent_of(dir).is_some())
}

/// The directory of the parent `parent_id` that the run `id` in `run_dir` has recorded.
fn recorded_parent(run_dir: &Path, id: &RunId, parent_id: &str) -> Option<PathBuf> {
    let is_named = run_dir.file_name()? == id.as_str();
    let parent = read_first_start(run_dir).filter(|_| is_named)?.parent?;
    (parent.run_id.as_str() == parent_id).then(|| parent.run_dir.into())
}

/// The directories of the child runs of the run in `run_dir`, with the calls that started them, as far as they can be found.
pub fn locate_child_runs(run_dir: &Path) -> Vec<(ChildRunEntry, PathBuf)> {
    let children = read_child_runs(run_dir).into_iter();
    let located = children.filter_map(|child| {
        let dir = locate_child_run(run_dir, &child)?;
        Some((child, dir))
    });
    located.collect()
}

/// The runs below a run.
#[derive(Debug, Default)]
pub struct RunsBelow {
    /// The directories of the runs that can be found, each once.
    pub dirs: Vec<PathBuf>,
    /// How many others are listed.
    pub not_found: u32,
}

/// Finds all runs below the run in `run_dir`.
pub fn find_runs_below(run_dir: &Path) -> RunsBelow {
    let mut waiting = vec![run_dir.to_owned()];
    let mut visited = BTreeSet::from([run_dir.to_owned()]);
    let mut below = RunsBelow::default();
    while let Some(parent) = waiting.pop() {
        for child in read_child_runs(&parent) {
            match locate_child_run(&parent, &child) {
                Some(dir) if visited.insert(dir.clone()) => {
                    waiting.push(dir.clone());
                    below.dirs.push(dir);
                }
                Some(_) => {}
                None => below.not_found += 1,
            }
        }
    }
    below
}

/// Whether this process belongs to a call of the run in `run_dir`, or of a run below it.
pub fn has_this_process_below(run_dir: &Path) -> bool {
    let below = find_runs_below(run_dir).dirs;
    std::iter::once(run_dir.to_owned()).chain(below).any(|dir| {
        let id = dir.file_name().unwrap_or_default().to_string_lossy();
        RunMark::new(&id, &dir).is_of_this_process()
    })
}

/// A run that the budget of its sweep has stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedChildRun {
    /// Its id.
    pub run_id: RunId,
    /// Its error, which has the amounts.
    pub message: String,
}

/// Finds a child of the run in `run_dir` that the budget of the sweep has stopped since `started_at`, and that nothing has
/// continued.
pub fn find_refused_child(run_dir: &Path, started_at: Timestamp) -> Option<RefusedChildRun> {
    locate_child_runs(run_dir).into_iter().find_map(|(child, dir)| {
        let summary = run_summary::summarize_run(&dir).ok()??;
        if summary.status != RunStatus::Interrupted || summary.updated_at < started_at {
            return None;
        }
        let (message, details) = journal::summarize_run_journal(&dir).ok()?.error?;
        let is_refused = details.kind == SHARED_BUDGET_ERROR;
        is_refused.then_some(RefusedChildRun { run_id: child.run_id, message })
    })
}

/// What a run and all runs below it have used.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTreeTotal {
    /// How many runs they are.
    pub runs: u32,
    /// Their LLM answers.
    pub iterations: u64,
    /// Their tokens and their cost, which is unknown if a run is left out.
    pub usage: UsageSummary,
    /// How many more there are, which cannot be found or read.
    pub left_out: u32,
}

impl RunTreeTotal {
    /// The total of the run in `run_dir`, whose state is `state`, and the runs below it; `None` if there are none.
    pub fn collect(run_dir: &Path, state: &RunState) -> Option<Self> {
        let below = find_runs_below(run_dir);
        if below.dirs.is_empty() && below.not_found == 0 {
            return None;
        }
        let mut total = Self {
            runs: 1,
            left_out: below.not_found,
            iterations: u64::from(state.iterations),
            usage: state.usage_summary(),
        };
        for dir in &below.dirs {
            let Ok(Some(summary)) = run_summary::summarize_run(dir) else {
                total.left_out += 1;
                continue;
            };
            total.runs += 1;
            total.iterations += u64::from(summary.iterations);
            total.usage.add(&summary.usage);
        }
        if total.left_out > 0 {
            total.usage.cost_usd = None;
        }
        Some(total)
    }
}

/// The id of the run in a directory, as its first event records it. The directory may have another name.
pub fn recorded_run_id(run_dir: &Path) -> Option<RunId> {
    Some(read_first_start(run_dir)?.run_id)
}

/// Reads the first event of a run; `None` if it is not an ENGINE_START. The one of a fork is a copy.
pub(crate) fn read_first_start(run_dir: &Path) -> Option<Box<EngineStart>> {
    let file = durable::open_no_follow(&journal::journal_path(run_dir)).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(MAX_FIRST_EVENT_BYTES)).read_line(&mut line).ok()?;
    match Event::from_line(&line).ok()?.payload {
        Payload::EngineStart(start) => Some(start),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_files::JOURNAL_FILE;

    #[test]
    fn c_18_5_only_a_run_directory_is_a_parent() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join(".delta/r");
        std::fs::create_dir_all(&run).unwrap();
        assert_eq!(verify_parent_run("r", &run, None), None, "it has no journal");
        std::fs::write(run.join(JOURNAL_FILE), "").unwrap();
        let found = verify_parent_run("r", &run, Some("c".to_owned())).unwrap();
        assert_eq!(verify_parent_run("other", &run, None), None);
        assert_eq!(verify_parent_run("r", &dir.path().join("r"), None), None);
        register_child_run(
            &found,
            &RunId::parse("child").unwrap(),
            &dir.path().join(".delta/child"),
        )
        .unwrap();
        register_child_run(
            &found,
            &RunId::parse("child").unwrap(),
            &dir.path().join(".delta/child"),
        )
        .unwrap();
        durable::append_line_unsynced(&run.join(CHILDREN_FILE), "torn {").unwrap();
        let [child] = &read_child_runs(&run)[..] else { panic!("one child") };
        assert_eq!((child.run_id.as_str(), child.call_id.as_deref()), ("child", Some("c")));
        assert_eq!(locate_child_run(&run, child), None);
    }
}
