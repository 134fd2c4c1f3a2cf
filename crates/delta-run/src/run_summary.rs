//! The summary of a run for a list of runs: from the ends of its journal if nothing has changed it since its process left,
//! else from all of it.
//!
//! Only the journal is believed. Of metadata.json only the time counts: an engine writes it after the last event, so a
//! journal that is older than it ends with the event that the engine wrote last, and is not read for damage in its middle.

use crate::event::{ForkOrigin, ParentRun, RunStatus, UsageSummary, WaitsFor};
use crate::journal::{self, JournalError};
use crate::lease::lease_files;
use crate::ownership::Ownership;
use crate::ownership::owner_process::{self, OwnerStatus};
use crate::run_files::{JOURNAL_FILE, METADATA_FILE};
use crate::run_tree;
use crate::state::{RunActivity, RunState};
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::time::Timestamp;
use serde::Deserialize;
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

/// The most bytes that are read at the beginning of a journal: enough for an ENGINE_START and a task of usual lengths.
const MAX_HEAD_BYTES: u64 = 8 * 1024;
/// The most bytes that are read at the end of a journal. An ENGINE_END has some 300, an ERROR before it rarely over 2,000.
const MAX_TAIL_BYTES: u64 = 4 * 1024;

/// What a list shows of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSummary {
    /// The status of the run.
    pub status: RunStatus,
    /// Whether the run is RUNNING and its process has not died, as far as this host can tell.
    pub is_active: bool,
    /// The first user message; a very long one may be cut.
    pub task: String,
    /// The name of the agent.
    pub agent_name: String,
    /// The absolute path of the agent directory, as one of the processes recorded it.
    pub agent_home: String,
    /// What the run waits for a person to say, if no process works on it.
    pub waits_for: Option<WaitsFor>,
    /// The time when the run was created.
    pub created_at: Timestamp,
    /// The time of the last event.
    pub updated_at: Timestamp,
    /// The number of LLM answers.
    pub iterations: u32,
    /// Why the run FAILED; a very long text may be cut.
    pub error: Option<String>,
    /// The type of that error.
    pub error_type: Option<String>,
    /// What the process does that works on it.
    pub activity: Option<RunActivity>,
    /// The tokens and the cost of the run, without the runs that it started.
    pub usage: UsageSummary,
    /// The run that was forked to create this one.
    pub origin: Option<ForkOrigin>,
    /// The run whose tool or hook started this one.
    pub parent: Option<ParentRun>,
    /// Where the run is, if it was sent away from here.
    pub moved_to: Option<String>,
}

/// Reads the summary of the run in `run_dir`; `None` if its journal has no ENGINE_START.
///
/// # Errors
/// The journal cannot be read, contains no event, or is found to be damaged.
pub fn summarize_run(run_dir: &Path) -> Result<Option<RunSummary>, JournalError> {
    if let Some(summary) =
        JournalEnds::read_unchanged(run_dir).and_then(|ends| ends.summarize(run_dir))
    {
        return Ok(Some(summary));
    }
    let state = journal::summarize_run_journal(run_dir)?;
    Ok(RunSummary::from_state(&state, run_dir))
}

impl RunSummary {
    fn from_state(state: &RunState, run_dir: &Path) -> Option<Self> {
        let start = state.start.as_ref()?;
        let first_start = run_tree::read_first_start(run_dir);
        let status = state.status?;
        let is_active = status == RunStatus::Running
            && owner_process::owner_status(&start.process) != OwnerStatus::Dead;
        let error = state.error.as_ref().filter(|_| status == RunStatus::Failed);
        Some(Self {
            status,
            is_active,
            waits_for: state.waits_for().filter(|_| !is_active),
            task: state.conversation.task().to_owned(),
            agent_name: start.agent_name.clone(),
            agent_home: start.agent_home.clone(),
            created_at: state.created_at?,
            updated_at: state.updated_at?,
            iterations: state.iterations,
            error: error.map(|(message, _)| message.clone()),
            error_type: error.map(|(_, details)| details.kind.clone()),
            activity: is_active.then(|| state.activity()),
            usage: state.usage_summary(),
            origin: state.origin.clone(),
            // The first ENGINE_START of a fork is a copy: its parent is the one of the original run.
            parent: first_start
                .filter(|start| is_named(run_dir, &start.run_id))
                .and_then(|start| start.parent),
            moved_to: state.sent.as_ref().map(|sent| sent.place.clone()),
        })
    }
}

fn is_named(run_dir: &Path, id: &RunId) -> bool {
    run_dir.file_name().is_some_and(|name| name == id.as_str())
}

/// The first and the last bytes of a journal; the last ones begin with a line.
struct JournalEnds {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl JournalEnds {
    /// `None` if the journal may have been changed after its process exited, or cannot be read in parts.
    fn read_unchanged(run_dir: &Path) -> Option<Self> {
        let path = if Ownership::has_turns(run_dir) {
            lease_files::find_left_journal(run_dir)?
        } else {
            run_dir.join(JOURNAL_FILE)
        };
        let file = durable::open_no_follow(&path).ok()?;
        // Equal times do not say which file is newer: the clock of the file system ticks slowly.
        if file.metadata().ok()?.modified().ok()? >= modified_at(&run_dir.join(METADATA_FILE))? {
            return None;
        }
        Self::read(&file)
    }

    fn read(file: &File) -> Option<Self> {
        let length = file.metadata().ok()?.len();
        let head = read_range(file, 0, length.min(MAX_HEAD_BYTES)).ok()?;
        let tail = if length <= MAX_HEAD_BYTES {
            head.clone()
        } else {
            let range = read_range(file, length - MAX_TAIL_BYTES, MAX_TAIL_BYTES).ok()?;
            // It begins in the middle of a line.
            let start = memchr::memchr(b'\n', &range).map_or(range.len(), |at| at + 1);
            range[start..].to_vec()
        };
        Some(Self { head, tail })
    }

    /// The whole lines at the end of the journal, the last one first. What follows the last newline is not one.
    fn last_lines(&self) -> impl Iterator<Item = &[u8]> {
        let lines = memchr::memrchr(b'\n', &self.tail).map_or(&[][..], |end| &self.tail[..end]);
        lines.rsplit(|byte| *byte == b'\n')
    }

    /// `None` if the ends of the journal do not have everything.
    fn summarize(&self, run_dir: &Path) -> Option<RunSummary> {
        let mut last_lines = self.last_lines();
        if !self.tail.ends_with(b"\n") {
            return None;
        }
        let mut end: SummaryLine<'_> = serde_json::from_slice(last_lines.next()?).ok()?;
        let updated_at = end.timestamp;
        if end.kind == "TURN" {
            end = serde_json::from_slice(last_lines.next()?).ok()?;
        }
        let head = &self.head[..=memchr::memrchr(b'\n', &self.head)?];
        let mut lines = head.split_inclusive(|byte| *byte == b'\n');
        let first: SummaryLine<'_> = serde_json::from_slice(lines.next()?).ok()?;
        // A fork begins with copied events, whose run is another one.
        let is_first = first.kind == "ENGINE_START" && first.seq == 1;
        if !is_first || end.kind != "ENGINE_END" || !is_named(run_dir, first.run_id.as_ref()?) {
            return None;
        }
        let task = lines.find_map(|line| {
            let line: SummaryLine<'_> = serde_json::from_slice(line).ok()?;
            line.content.filter(|_| line.kind == "USER_MESSAGE")
        })?;
        let status = end.status?;
        // SENT is directly before the end that goes with it.
        let before: SummaryLine<'_> = serde_json::from_slice(last_lines.next()?).ok()?;
        if before.kind == "SENT" {
            return None;
        }
        let (error, error_type) = match status {
            RunStatus::Failed => last_error(last_lines)?,
            _ => (None, None),
        };
        Some(RunSummary {
            status,
            is_active: false,
            waits_for: end.waits_for,
            task,
            agent_name: end.agent_name?,
            agent_home: first.agent_home?,
            created_at: first.timestamp,
            updated_at,
            iterations: end.final_iteration?,
            error,
            error_type,
            activity: None,
            usage: end.usage?,
            origin: None,
            parent: first.parent,
            moved_to: None,
        })
    }
}

/// The last error of the process that wrote `lines`, the last lines of a journal from the end, and its type; `None` if it is
/// before them.
fn last_error<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
) -> Option<(Option<String>, Option<String>)> {
    for line in lines {
        let line: SummaryLine<'_> = serde_json::from_slice(line).ok()?;
        match &*line.kind {
            "ERROR" => {
                let kind = line.error_details.map(|details| details.kind);
                return Some((Some(line.error_message?), kind));
            }
            "ENGINE_START" => return None,
            _ => {}
        }
    }
    None
}

/// The times of the first and the last event that can be read in a damaged journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTimes {
    /// The time of the first event.
    pub first: Timestamp,
    /// The time of the last event.
    pub last: Timestamp,
}

/// Reads the times of the first and the last event of the run in `run_dir` from the ends of its journal, which is damaged;
/// without a whole event at its end, that is the time when the journal was changed last. `None` without a journal.
pub fn read_event_times(run_dir: &Path) -> Option<EventTimes> {
    let file = durable::open_no_follow(&journal::journal_path(run_dir)).ok()?;
    let changed_at = Timestamp::from(file.metadata().ok()?.modified().ok()?);
    let ends = JournalEnds::read(&file)?;
    let last = ends.last_lines().find_map(event_time).unwrap_or(changed_at);
    let first = ends.head.split(|byte| *byte == b'\n').next().and_then(event_time);
    Some(EventTimes { first: first.unwrap_or(last), last })
}

/// The time of the event in a line, if it is one.
fn event_time(line: &[u8]) -> Option<Timestamp> {
    serde_json::from_slice(line).ok().map(|line: SummaryLine<'_>| line.timestamp)
}

/// The fields of an ENGINE_START, USER_MESSAGE, ERROR or ENGINE_END that a summary needs. Reading only these takes a tenth of the
/// time that the whole event takes, which a list of thousands of runs shows.
#[derive(Deserialize)]
struct SummaryLine<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    timestamp: Timestamp,
    run_id: Option<RunId>,
    content: Option<String>,
    error_message: Option<String>,
    error_details: Option<ErrorKind>,
    status: Option<RunStatus>,
    final_iteration: Option<u32>,
    agent_name: Option<String>,
    agent_home: Option<String>,
    usage: Option<UsageSummary>,
    waits_for: Option<WaitsFor>,
    parent: Option<ParentRun>,
}

#[derive(Deserialize)]
struct ErrorKind {
    #[serde(rename = "type")]
    kind: String,
}

fn read_range(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// The time when a file was changed last.
pub fn modified_at(path: &Path) -> Option<SystemTime> {
    durable::metadata_no_follow(path).and_then(|metadata| metadata.modified()).ok()
}
