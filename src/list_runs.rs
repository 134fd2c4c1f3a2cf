//! `delta list-runs`: lists the runs of a workspace.

use super::completion_candidates;
use super::failure::CommandFailure;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::shell_quote::{shell_quote, shell_quote_path};
use delta_base::terminal_text::{strip_terminal_controls, truncate_to_line};
use delta_base::time::{self, Timestamp, format_duration};
use delta_program::stdio;
use delta_run::event::{ForkOrigin, RunStatus};
use delta_run::journal;
use delta_run::ownership::Ownership;
use delta_run::run::RunMetadata;
use delta_run::workspace::Workspace;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// The number of other workspaces that are suggested if the list is empty.
const MAX_SUGGESTED_WORKSPACES: usize = 5;
/// The number of runs that are listed for an ambiguous name.
const MAX_CANDIDATES: usize = 10;

/// List the runs of a workspace, most recently updated first
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ListRunsArgs {
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// List only runs that can be continued: INTERRUPTED, WAITING_FOR_INPUT, FAILED, COMPLETED
    #[arg(long)]
    resumable: bool,
    /// List only runs with this status
    #[arg(long, value_enum, ignore_case = true)]
    status: Option<RunListStatus>,
    /// List only the most recently updated run; as text, print only its id
    #[arg(long)]
    first: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = RunListFormat::Text)]
    format: RunListFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta list-runs -w ./work
  delta continue -w ./work --run-id \"$(delta list-runs -w ./work --resumable --first)\"
  delta list-runs --format json | jq -r '.[] | select(.status == \"FAILED\") | .run_id'";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunListFormat {
    /// One line per run
    Text,
    /// One JSON array
    Json,
}

/// The status of a listed run, which may be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum RunListStatus {
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

#[derive(Debug, Serialize)]
struct RunListEntry {
    run_id: String,
    status: RunListStatus,
    task_summary: String,
    last_updated: Timestamp,
    created_at: Timestamp,
    iterations: u32,
    agent_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<ForkOrigin>,
}

/// Lists runs; returns the exit code.
pub fn list_runs_command(args: &ListRunsArgs) -> ExitCode {
    match render_run_list(args) {
        Ok(text) => {
            stdio::print_text(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

fn render_run_list(args: &ListRunsArgs) -> Result<String, CommandFailure> {
    let workspace = Workspace::open_existing(&args.work_dir)?;
    let mut runs = list_newest_first(&workspace)?;
    if runs.is_empty() && args.format == RunListFormat::Text {
        suggest_workspaces(&workspace);
    }
    if args.resumable {
        runs.retain(|run| !matches!(run.status, RunListStatus::Running | RunListStatus::Damaged));
    }
    if let Some(status) = args.status {
        runs.retain(|run| run.status == status);
    }
    if args.first {
        runs.truncate(1);
    }
    Ok(match (args.format, args.first) {
        (RunListFormat::Json, _) => {
            serde_json::to_string(&runs).map(|text| text + "\n").unwrap_or_default()
        }
        (RunListFormat::Text, true) => runs.iter().map(|run| format!("{}\n", run.run_id)).collect(),
        (RunListFormat::Text, false) => render_run_table(&runs),
    })
}

/// Names nested workspaces that have runs: an agent directory has none of its own.
fn suggest_workspaces(workspace: &Workspace) {
    let dirs = Workspace::find_with_any_run(&workspace.root);
    if dirs.is_empty() {
        return;
    }
    let mut note = "Note: no runs here; these workspaces have runs:".to_owned();
    for dir in dirs.iter().take(MAX_SUGGESTED_WORKSPACES) {
        note.push_str(&format!("\n  -w {}", shell_quote(&dir.to_string_lossy())));
    }
    let more = dirs.len().saturating_sub(MAX_SUGGESTED_WORKSPACES);
    if more > 0 {
        note.push_str(&format!("\n  and {more} more"));
    }
    stdio::print_error_line(&note);
}

fn list_newest_first(workspace: &Workspace) -> Result<Vec<RunListEntry>, CommandFailure> {
    let mut runs: Vec<RunListEntry> =
        workspace.run_dirs()?.iter().map(|dir| read_run_entry(dir)).collect();
    runs.sort_by(|one, other| {
        (other.last_updated, &other.run_id).cmp(&(one.last_updated, &one.run_id))
    });
    Ok(runs)
}

/// A run as completion offers it.
pub struct RunSummary {
    pub id: String,
    /// Its status and task.
    pub description: String,
}

/// The most recently updated runs of a workspace, at most `limit`.
pub fn run_summaries(work_dir: &Path, limit: usize) -> Result<Vec<RunSummary>, CommandFailure> {
    let runs = list_newest_first(&Workspace::open_existing(work_dir)?)?.into_iter().take(limit);
    Ok(runs
        .map(|run| RunSummary {
            description: format!("{} {}", status_name(run.status), run.task_summary),
            id: run.run_id,
        })
        .collect())
}

/// The run of the workspace that was updated last: the one whose journal file was modified last. A run without a journal
/// never began and does not count. No journal is opened.
///
/// # Errors
/// The workspace has no run.
pub fn find_last_updated(workspace: &Workspace) -> Result<RunId, CommandFailure> {
    let dirs = workspace.run_dirs()?.into_iter();
    let runs = dirs.filter_map(|dir| {
        let id = RunId::parse(dir.file_name()?.to_str()?).ok()?;
        Some((journal_modified_at(&dir)?, id))
    });
    if let Some((_, id)) = runs.max() {
        return Ok(id);
    }
    let message = format!("there is no run in {}", workspace.root.display());
    let nested = Workspace::find_with_any_run(&workspace.root);
    let hint = if nested.is_empty() {
        "`delta run` starts one; `-w DIR` names another workspace".to_owned()
    } else {
        let options: Vec<String> = nested
            .iter()
            .take(MAX_SUGGESTED_WORKSPACES)
            .map(|dir| format!("-w {}", shell_quote_path(dir)))
            .collect();
        format!("`delta run` starts one; these workspaces have runs:\n{}", options.join("\n"))
    };
    Err(CommandFailure::not_found(message, hint))
}

/// `None` if the run never began, or is a symlink.
fn journal_modified_at(dir: &Path) -> Option<SystemTime> {
    let metadata = durable::metadata_no_follow(&dir.join(journal::JOURNAL_FILE)).ok()?;
    metadata.modified().ok().filter(|_| metadata.is_file() && metadata.len() > 0)
}

/// Lists runs with status, task and age, the last updated first, at most [`MAX_CANDIDATES`].
pub fn render_candidates(ids: &[RunId], workspace: &Workspace) -> String {
    let dirs = ids.iter().map(|id| workspace.run_dir(id));
    let mut dirs: Vec<(Option<SystemTime>, PathBuf)> =
        dirs.map(|dir| (journal_modified_at(&dir), dir)).collect();
    dirs.sort_by(|one, other| other.cmp(one));
    let runs: Vec<RunListEntry> =
        dirs.iter().take(MAX_CANDIDATES).map(|(_, dir)| read_run_entry(dir)).collect();
    let mut table = render_run_table(&runs);
    let more = dirs.len().saturating_sub(MAX_CANDIDATES);
    if more > 0 {
        let root = shell_quote_path(&workspace.root);
        table.push_str(&format!("and {more} more: delta list-runs -w {root}"));
    }
    table.trim_end().to_owned()
}

/// Finds a run of the workspace, other than `except`, that a process is working on.
pub fn find_active_run(
    workspace: &Workspace,
    except: Option<&RunId>,
) -> Result<Option<RunId>, CommandFailure> {
    for dir in workspace.run_dirs()?.iter().filter(|dir| !dir.is_symlink()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let Ok(id) = RunId::parse(&name) else { continue };
        // A run with another status has no process, unless it is being continued right now.
        let may_run = Some(&id) != except && read_run_entry(dir).status == RunListStatus::Running;
        if may_run && Ownership::claim_from_dying_owner(&id, dir).is_err() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn status_name(status: RunListStatus) -> String {
    status.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn read_run_entry(dir: &Path) -> RunListEntry {
    let run_id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if dir.is_symlink() {
        return damaged_run_entry(run_id, dir, "it is a symlink");
    }
    let metadata = match read_fresh_metadata(dir, &run_id) {
        Some(metadata) => Ok(Some(metadata)),
        None => journal::summarize_run_journal(dir).map(|state| RunMetadata::from_state(&state)),
    };
    match metadata {
        Ok(Some(metadata)) => RunListEntry {
            run_id,
            status: metadata.status.into(),
            task_summary: truncate_to_line(&strip_terminal_controls(&metadata.initial_message), 60),
            last_updated: metadata.updated_at,
            created_at: metadata.created_at,
            iterations: metadata.iterations,
            agent_name: metadata.agent_name,
            origin: metadata.origin,
        },
        Ok(None) => damaged_run_entry(run_id, dir, "its journal has no ENGINE_START"),
        Err(error) => {
            // A full path would fill the column and hide the reason.
            let reason = error.to_string().replace(&format!("{}/", dir.display()), "");
            damaged_run_entry(run_id, dir, &reason)
        }
    }
}

/// Reads the metadata, if it is as recent as the journal. It may be older during a run and after a crash, and in a copied
/// directory it may belong to another run.
fn read_fresh_metadata(dir: &Path, run_id: &str) -> Option<RunMetadata> {
    let path = dir.join("metadata.json");
    let metadata: RunMetadata = serde_json::from_slice(
        &durable::read_no_follow_at_most(&path, durable::MAX_REGULAR_BYTES).ok()?,
    )
    .ok()?;
    // Equal times do not say which file is newer: the clock of the file system ticks slowly.
    let is_fresh = modified_at(&dir.join(journal::JOURNAL_FILE))? < modified_at(&path)?;
    (is_fresh && metadata.status != RunStatus::Running && metadata.run_id.as_str() == run_id)
        .then_some(metadata)
}

fn modified_at(path: &Path) -> Option<SystemTime> {
    durable::metadata_no_follow(path).and_then(|metadata| metadata.modified()).ok()
}

fn damaged_run_entry(run_id: String, dir: &Path, reason: &str) -> RunListEntry {
    let since_epoch =
        modified_at(dir).and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let moment = Timestamp::from_millis(
        since_epoch.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(0)),
    );
    RunListEntry {
        run_id,
        status: RunListStatus::Damaged,
        task_summary: strip_terminal_controls(reason),
        last_updated: moment,
        created_at: moment,
        iterations: 0,
        agent_name: String::new(),
        origin: None,
    }
}

fn render_run_table(runs: &[RunListEntry]) -> String {
    let task = |run: &RunListEntry| match run.status {
        RunListStatus::Damaged => truncate_to_line(&run.task_summary, 60),
        _ => format!("\"{}\"", run.task_summary),
    };
    let width =
        |column: &dyn Fn(&RunListEntry) -> usize| runs.iter().map(column).max().unwrap_or(0);
    let id_width = width(&|run| run.run_id.len());
    let status_width = width(&|run| status_name(run.status).len());
    let task_width = width(&|run| task(run).chars().count());
    let now = time::current_time().as_millis();
    let mut table = String::new();
    for run in runs {
        let origin = run.origin.as_ref().map_or_else(String::new, |from| {
            format!("  forked from {} at {}", from.run_id, from.iteration)
        });
        let age = format_age(u64::try_from(now - run.last_updated.as_millis()).unwrap_or(0));
        let status = status_name(run.status);
        table.push_str(&format!(
            "{:id_width$}  {status:status_width$}  {:task_width$}  {age} ago{origin}\n",
            run.run_id,
            task(run)
        ));
    }
    table
}

/// Formats an age in its largest unit: `2m`, `3h`, `5d`.
fn format_age(millis: u64) -> String {
    match millis / 1000 {
        0..=59 => format_duration(millis / 1000 * 1000).replace(".0s", "s").replace("0ms", "0s"),
        seconds @ 60..=3599 => format!("{}m", seconds / 60),
        seconds @ 3600..=86_399 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
