//! A run as a list shows it.

use crate::command_line;
use crate::failure::CommandFailure;
use crate::read_threads::map_on_threads;
use clap::ValueEnum;
use delta_base::redact::redact_answers;
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_base::time::Timestamp;
use delta_run::event::{ForkOrigin, ParentRun, RunStatus, UsageSummary, WaitsFor};
use delta_run::mailbox;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run_summary::{self, EventTimes, RunSummary};
use delta_run::run_tree::sensitive_answers;
use delta_run::state::RunActivity;
use delta_run::state::stage::StageDir;
use delta_run::workspace::{Workspace, WorkspaceError};
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most characters of a task or a reason in a list.
pub const MAX_TASK_CHARS: usize = 60;
/// The most characters of an error in a list.
const MAX_ERROR_CHARS: usize = 200;

/// The status of a listed run, which may be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunListStatus {
    /// A process is working on it, or died while working on it
    #[value(name = "RUNNING")]
    Running,
    /// It waits for an answer
    #[value(name = "WAITING_FOR_INPUT")]
    WaitingForInput,
    /// It has a result
    #[value(name = "COMPLETED")]
    Completed,
    /// It ended without a result
    #[value(name = "FAILED")]
    Failed,
    /// It was stopped
    #[value(name = "INTERRUPTED")]
    Interrupted,
    /// Its files are damaged
    #[value(name = "DAMAGED")]
    Damaged,
}

impl RunListStatus {
    /// Its name, as a run has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl From<RunStatus> for RunListStatus {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Running => Self::Running,
            RunStatus::WaitingForInput => Self::WaitingForInput,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Interrupted => Self::Interrupted,
        }
    }
}

/// A run in a list; as JSON, an element of the array that `list-runs` prints.
#[derive(Debug, Serialize)]
pub struct RunListEntry {
    /// The id, as the name of the directory has it.
    pub run_id: String,
    /// The status, with what the process of the run does.
    pub status: RunListStatus,
    /// Whether a process works on it.
    pub active: bool,
    /// Whether it has changes that are not applied to the workspace.
    pub staged: bool,
    /// How many of its calls are at work although no process works on it.
    pub calls_at_work: usize,
    /// How many messages it has not received yet; absent if none.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting_messages: usize,
    /// What it waits for a person to say, if no process works on it; absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    /// The first line of the task, shortened.
    pub task_summary: String,
    /// The time of the last event.
    pub last_updated: Timestamp,
    /// The time of the first event.
    pub created_at: Timestamp,
    /// Answers of the LLM.
    pub iterations: u32,
    /// Why it FAILED or is DAMAGED, in one line.
    pub error: Option<String>,
    /// The name in agent.yaml.
    pub agent_name: String,
    /// The workspace of the run.
    pub workspace: PathBuf,
    /// Tokens and cost.
    #[serde(flatten, serialize_with = "serialize_usage")]
    pub usage: UsageSummary,
    /// Where it is, if it was sent away, or is a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<String>,
    /// The run and event of which this one is a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<ForkOrigin>,
    /// The run whose tool started this one.
    #[serde(skip)]
    pub parent: Option<ParentRun>,
    /// The absolute path of the agent directory; empty if the run is damaged.
    #[serde(skip)]
    pub agent_home: String,
    /// The type of the error with which it FAILED.
    #[serde(skip)]
    pub error_type: Option<String>,
    /// What the process does that works on it.
    #[serde(skip)]
    pub activity: Option<RunActivity>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The usage with a null for an unknown cost, so that each element has the same fields.
pub fn serialize_usage<S: Serializer>(
    usage: &UsageSummary,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct UsageFields {
        input_tokens: u64,
        cached_input_tokens: u64,
        cache_write_tokens: u64,
        output_tokens: u64,
        reasoning_tokens: u64,
        cost_usd: Option<f64>,
    }
    let fields = UsageFields {
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        output_tokens: usage.output_tokens,
        reasoning_tokens: usage.reasoning_tokens,
        cost_usd: usage.cost_usd,
    };
    fields.serialize(serializer)
}

impl RunListEntry {
    /// Reads the run in `dir`, a run directory of `workspace`.
    pub fn read(workspace: &Workspace, dir: &Path) -> Self {
        let run_id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match run_summary::summarize_run(dir) {
            Ok(Some(summary)) => Self::from_summary(run_id, workspace, dir, summary),
            _ if dir.is_symlink() => Self::damaged(run_id, workspace, dir, "it is a symlink"),
            Ok(None) => Self::damaged(run_id, workspace, dir, "its journal has no ENGINE_START"),
            Err(error) => {
                // A full path would fill the column and hide the reason.
                let reason = error.to_string().replace(&format!("{}/", dir.display()), "");
                Self::damaged(run_id, workspace, dir, &reason)
            }
        }
    }

    /// Its status in a list as text: also whether the process of a RUNNING run has died, whether a tool is at work without
    /// it, and whether it has staged changes.
    pub fn status_text(&self) -> String {
        let name = self.status.name();
        let notes = [
            (self.is_orphaned(), "died"),
            (self.calls_at_work > 0, "tool at work"),
            (self.waits() && self.status != RunListStatus::WaitingForInput, "waits"),
            (self.staged, "staged"),
            (self.moved_to.is_some(), "moved"),
        ];
        let mut notes: Vec<String> =
            notes.iter().filter(|(holds, _)| *holds).map(|(_, note)| (*note).to_owned()).collect();
        if self.waiting_messages > 0 {
            notes.push(command_line::pluralize(self.waiting_messages, "message"));
        }
        if notes.is_empty() { name } else { format!("{name} ({})", notes.join(", ")) }
    }

    /// Whether it has an open question, whatever ended its process.
    pub fn waits(&self) -> bool {
        let is_asked = self.status == RunListStatus::WaitingForInput || self.waits_for.is_some();
        is_asked && self.moved_to.is_none()
    }

    /// Whether `delta continue` can continue it: it is here, no process works on it, and its files are readable.
    pub fn is_resumable(&self) -> bool {
        self.status != RunListStatus::Damaged && !self.active && self.moved_to.is_none()
    }

    /// Whether its process died while it worked on it.
    pub fn is_orphaned(&self) -> bool {
        self.status == RunListStatus::Running && !self.active
    }

    /// What the process does that works on it, in two or three words; empty without one.
    pub fn activity_text(&self) -> String {
        match &self.activity {
            None => String::new(),
            Some(RunActivity::Llm) => "asks the LLM".to_owned(),
            Some(RunActivity::Call { tool: None }) => "runs a tool".to_owned(),
            Some(RunActivity::Call { tool: Some(name) }) => {
                format!("runs {}", strip_terminal_controls(name))
            }
            Some(RunActivity::Person) => "asks a person".to_owned(),
        }
    }

    /// The run directory.
    pub fn dir(&self) -> PathBuf {
        Workspace { root: self.workspace.clone() }.control_dir().join(&self.run_id)
    }

    fn from_summary(
        run_id: String,
        workspace: &Workspace,
        dir: &Path,
        summary: RunSummary,
    ) -> Self {
        let hidden = listed_answers(dir, &summary);
        let usage = listed_usage(&summary);
        let task = redact_answers(&hidden, strip_terminal_controls(&summary.task));
        Self {
            run_id,
            status: summary.status.into(),
            active: summary.is_active,
            staged: StageDir::new(dir).has_changes(),
            calls_at_work: if summary.is_active {
                0
            } else {
                SurvivingCall::all_at_work(dir).len()
            },
            waiting_messages: mailbox::count_waiting(dir),
            waits_for: summary.waits_for,
            task_summary: truncate_to_line(&task, MAX_TASK_CHARS),
            last_updated: summary.updated_at,
            created_at: summary.created_at,
            iterations: summary.iterations,
            error: summary.error.map(|error| error_line(&redact_answers(&hidden, error))),
            agent_name: summary.agent_name,
            workspace: workspace.root.clone(),
            usage,
            moved_to: summary.moved_to,
            origin: summary.origin,
            parent: summary.parent,
            agent_home: summary.agent_home,
            error_type: summary.error_type,
            activity: summary.activity,
        }
    }

    fn damaged(run_id: String, workspace: &Workspace, dir: &Path, reason: &str) -> Self {
        let times = run_summary::read_event_times(dir).unwrap_or_else(|| {
            let changed_at = run_summary::modified_at(dir).unwrap_or(SystemTime::UNIX_EPOCH).into();
            EventTimes { first: changed_at, last: changed_at }
        });
        Self {
            run_id,
            status: RunListStatus::Damaged,
            active: false,
            staged: StageDir::new(dir).has_changes(),
            calls_at_work: 0,
            waiting_messages: 0,
            waits_for: None,
            task_summary: strip_terminal_controls(reason),
            last_updated: times.last,
            created_at: times.first,
            iterations: 0,
            error: Some(error_line(reason)),
            agent_name: String::new(),
            workspace: workspace.root.clone(),
            usage: UsageSummary::default(),
            moved_to: None,
            origin: None,
            parent: None,
            agent_home: String::new(),
            error_type: None,
            activity: None,
        }
    }
}

/// The usage of a run; the cost of a fork that has asked no LLM is zero.
fn listed_usage(summary: &RunSummary) -> UsageSummary {
    let is_fresh_fork = summary.error.is_none()
        && summary.usage == UsageSummary::default()
        && summary.origin.as_ref().is_some_and(|origin| origin.iteration == summary.iterations);
    if is_fresh_fork {
        UsageSummary { cost_usd: Some(0.0), ..summary.usage }
    } else {
        summary.usage
    }
}

/// The sensitive answers that the texts of a listed run can contain. Its task is older than its own ones.
fn listed_answers(dir: &Path, summary: &RunSummary) -> Vec<String> {
    let mut answers = Vec::new();
    // A fork has the task of its original, which another run may have started.
    if summary.parent.is_some() || summary.origin.is_some() {
        answers = sensitive_answers::read_enclosing_answers(dir);
    }
    if summary.error.is_some() {
        answers.extend(sensitive_answers::read_answers(dir));
    }
    answers
}

fn error_line(text: &str) -> String {
    truncate_to_line(&strip_terminal_controls(text), MAX_ERROR_CHARS)
}

/// The directory of a run, with its workspace.
struct RunLocation<'a> {
    workspace: &'a Workspace,
    dir: PathBuf,
}

/// Reads all runs of a workspace, in no order.
pub fn read_workspace_runs(workspace: &Workspace) -> Result<Vec<RunListEntry>, CommandFailure> {
    let dirs = workspace.run_dirs()?;
    let locations: Vec<RunLocation<'_>> =
        dirs.into_iter().map(|dir| RunLocation { workspace, dir }).collect();
    Ok(read_locations(&locations))
}

/// Reads the runs of all workspaces, in no order; also why workspaces could not be read.
pub fn read_all_runs(workspaces: &[Workspace]) -> (Vec<RunListEntry>, Vec<WorkspaceError>) {
    let mut locations = Vec::new();
    let mut errors = Vec::new();
    let dirs = map_on_threads(workspaces, Workspace::run_dirs);
    for (workspace, dirs) in workspaces.iter().zip(dirs) {
        match dirs {
            Ok(dirs) => {
                locations.extend(dirs.into_iter().map(|dir| RunLocation { workspace, dir }));
            }
            Err(error) => errors.push(error),
        }
    }
    (read_locations(&locations), errors)
}

fn read_locations(locations: &[RunLocation<'_>]) -> Vec<RunListEntry> {
    map_on_threads(locations, |location| RunListEntry::read(location.workspace, &location.dir))
}

/// Sorts runs by the time of their last event, newest first; at the same time the greater id is first.
pub fn sort_newest_first(runs: &mut [RunListEntry]) {
    runs.sort_by(|one, other| {
        (other.last_updated, &other.run_id, &one.workspace).cmp(&(
            one.last_updated,
            &one.run_id,
            &other.workspace,
        ))
    });
}
