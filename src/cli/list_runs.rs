//! `delta list-runs`: what runs a workspace holds.

use super::failure::Failure;
use super::{completions, stdout};
use crate::durable;
use crate::event::{Origin, RunStatus};
use crate::id::RunId;
use crate::journal;
use crate::ownership::Ownership;
use crate::run::RunMetadata;
use crate::text::{one_line, printable, shell_word};
use crate::time::{self, Timestamp, human_duration};
use crate::workspace::Workspace;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// How many workspaces are named in the place of a list that is empty.
const SHOWN_PLACES: usize = 5;

/// List the runs of a workspace, the last updated one first
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ListRunsArgs {
    /// The workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// Only runs that can be continued: INTERRUPTED, WAITING_FOR_INPUT, FAILED, COMPLETED
    #[arg(long)]
    resumable: bool,
    /// Only runs of this status
    #[arg(long, value_enum, ignore_case = true)]
    status: Option<Status>,
    /// Only the last updated one; as text, its id alone
    #[arg(long)]
    first: bool,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  delta list-runs -w ./work
  delta continue -w ./work --run-id \"$(delta list-runs -w ./work --resumable --first)\"
  delta list-runs --format json | jq -r '.[] | select(.status == \"FAILED\") | .run_id'";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line for each run
    Text,
    /// A JSON array
    Json,
}

/// The status of a listed run: that of its metadata, or what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Status {
    /// An engine works on it, or died doing so
    #[value(name = "RUNNING")]
    Running,
    /// It waits for a person's answer
    #[value(name = "WAITING_FOR_INPUT")]
    WaitingForInput,
    /// It has a result
    #[value(name = "COMPLETED")]
    Completed,
    /// It ended without one
    #[value(name = "FAILED")]
    Failed,
    /// It was stopped
    #[value(name = "INTERRUPTED")]
    Interrupted,
    /// Its files are not what they should be
    #[value(name = "DAMAGED")]
    Damaged,
}

impl From<RunStatus> for Status {
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
struct Listed {
    run_id: String,
    status: Status,
    task_summary: String,
    last_updated: Timestamp,
    created_at: Timestamp,
    iterations: u32,
    agent_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

/// Lists runs; gives the exit code.
pub fn list_runs(args: &ListRunsArgs) -> ExitCode {
    match perform(args) {
        Ok(text) => {
            stdout::write(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &ListRunsArgs) -> Result<String, Failure> {
    let workspace = Workspace::existing(&args.work_dir)?;
    let resumable =
        |run: &Listed| !args.resumable || !matches!(run.status, Status::Running | Status::Damaged);
    let wanted =
        |run: &Listed| resumable(run) && args.status.is_none_or(|status| run.status == status);
    let mut runs = newest_first(&workspace)?;
    if runs.is_empty() && args.format == Format::Text {
        point_below(&workspace);
    }
    runs.retain(wanted);
    if args.first {
        runs.truncate(1);
    }
    Ok(match (args.format, args.first) {
        (Format::Json, _) => {
            serde_json::to_string(&runs).map(|text| text + "\n").unwrap_or_default()
        }
        (Format::Text, true) => runs.iter().map(|run| format!("{}\n", run.run_id)).collect(),
        (Format::Text, false) => table(&runs),
    })
}

/// Says where runs are when `workspace` has none, as an agent directory has none of its own.
fn point_below(workspace: &Workspace) {
    let found = Workspace::with_runs(&workspace.root);
    let options: Vec<_> = found
        .iter()
        .take(SHOWN_PLACES)
        .map(|dir| format!("  -w {}\n", shell_word(&dir.to_string_lossy())))
        .collect();
    let more = match found.len().saturating_sub(SHOWN_PLACES) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    };
    if !found.is_empty() {
        let text = format!("Note: no runs here; there are some in\n{}{more}", options.concat());
        stdout::complain(text.trim_end());
    }
}

fn newest_first(workspace: &Workspace) -> Result<Vec<Listed>, Failure> {
    let mut runs: Vec<Listed> = workspace.run_dirs()?.iter().map(|dir| describe(dir)).collect();
    runs.sort_by(|one, other| {
        (other.last_updated, &other.run_id).cmp(&(one.last_updated, &one.run_id))
    });
    Ok(runs)
}

/// The ids of at most `most` runs of a workspace, the last updated one first, each with its status and task.
pub fn summaries(work_dir: &Path, most: usize) -> Result<Vec<(String, String)>, Failure> {
    let runs = newest_first(&Workspace::existing(work_dir)?)?.into_iter().take(most);
    Ok(runs
        .map(|run| (run.run_id, format!("{} {}", status_name(run.status), run.task_summary)))
        .collect())
}

/// A run of the workspace, other than `but`, whose process works on it.
pub fn at_work(workspace: &Workspace, but: Option<&RunId>) -> Result<Option<RunId>, Failure> {
    for dir in workspace.run_dirs()?.iter().filter(|dir| !dir.is_symlink()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let Ok(id) = RunId::parse(&name) else { continue };
        // One that has ended is in nobody's hands, unless it is continued in this very moment.
        let may_run = Some(&id) != but && describe(dir).status == Status::Running;
        if may_run && Ownership::inherit(&id, dir).is_err() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn status_name(status: Status) -> String {
    status.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn describe(dir: &Path) -> Listed {
    let run_id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if dir.is_symlink() {
        return damaged(run_id, dir, "it is a symlink");
    }
    let read = || journal::fold(dir).map(|folded| RunMetadata::of(&folded.state));
    let metadata = match settled(dir, &run_id) {
        Some(metadata) => Ok(Some(metadata)),
        None => read(),
    };
    match metadata {
        Ok(Some(metadata)) => Listed {
            run_id,
            status: metadata.status.into(),
            task_summary: one_line(&printable(&metadata.initial_message), 60),
            last_updated: metadata.updated_at,
            created_at: metadata.created_at,
            iterations: metadata.iterations,
            agent_name: metadata.agent_name,
            origin: metadata.origin,
        },
        Ok(None) => damaged(run_id, dir, "its journal has no ENGINE_START"),
        Err(error) => damaged(run_id, dir, &error.to_string()),
    }
}

/// The metadata, when it says all that the journal does. While a run goes on it may lag behind, after a crash too, and in
/// a copied directory it may be that of another run.
fn settled(dir: &Path, run_id: &str) -> Option<RunMetadata> {
    let path = dir.join("metadata.json");
    let metadata: RunMetadata = serde_json::from_slice(&durable::read_whole(&path).ok()?).ok()?;
    let modified = |path: &Path| fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    // Within one tick of the file system's clock it cannot be told which of them is the later one.
    let fresh = modified(&dir.join(journal::FILE_NAME))? < modified(&path)?;
    (fresh && metadata.status != RunStatus::Running && metadata.run_id == run_id)
        .then_some(metadata)
}

fn damaged(run_id: String, dir: &Path, reason: &str) -> Listed {
    let modified = fs::symlink_metadata(dir).and_then(|metadata| metadata.modified()).ok();
    let since_epoch = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let moment = Timestamp::from_millis(
        since_epoch.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(0)),
    );
    Listed {
        run_id,
        status: Status::Damaged,
        task_summary: printable(reason),
        last_updated: moment,
        created_at: moment,
        iterations: 0,
        agent_name: String::new(),
        origin: None,
    }
}

fn table(runs: &[Listed]) -> String {
    let name = |run: &Listed| status_name(run.status);
    let width = |column: &dyn Fn(&Listed) -> usize| runs.iter().map(column).max().unwrap_or(0);
    let (ids, statuses) = (width(&|run| run.run_id.len()), width(&|run| name(run).len()));
    let task = |run: &Listed| match run.status {
        Status::Damaged => one_line(&run.task_summary, 60),
        _ => format!("\"{}\"", run.task_summary),
    };
    let tasks = width(&|run| task(run).chars().count());
    let now = time::now().millis();
    let line = |run: &Listed| {
        let origin = run.origin.as_ref().map_or_else(String::new, |from| {
            format!("  forked from {} at {}", printable(&from.run_id), from.iteration)
        });
        let age = u64::try_from(now - run.last_updated.millis()).unwrap_or(0);
        format!(
            "{:ids$}  {:statuses$}  {:tasks$}  {} ago{origin}\n",
            run.run_id,
            name(run),
            task(run),
            rounded(age)
        )
    };
    runs.iter().map(line).collect()
}

/// An age in its largest unit: `2m`, `3h`, `5d`.
fn rounded(millis: u64) -> String {
    match millis / 1000 {
        0..=59 => human_duration(millis / 1000 * 1000).replace(".0s", "s").replace("0ms", "0s"),
        seconds @ 60..=3599 => format!("{}m", seconds / 60),
        seconds @ 3600..=86_399 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}
