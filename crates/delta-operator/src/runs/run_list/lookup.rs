//! What other commands ask about the runs of a workspace: the last one, the active one, the ones that a name fits.

use super::entry::{RunListEntry, RunListStatus, read_workspace_runs, sort_newest_first};
use super::workspaces::suggest_work_dirs;
use crate::failure::CommandFailure;
use crate::runs::run_list::table;
use delta_base::durable;
use delta_base::id::RunId;
use delta_run::ownership::Ownership;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::run_files::{JOURNAL_FILE, METADATA_FILE};
use delta_run::workspace::{self, Workspace};
use delta_run::{journal, run_summary};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The number of runs that are listed for an ambiguous name.
const MAX_CANDIDATES: usize = 10;

/// A run as completion offers it.
pub struct RunSuggestion {
    pub id: String,
    /// Its status and task.
    pub description: String,
    pub agent_name: String,
}

/// The most recently updated runs of a workspace, at most `limit`.
pub fn suggest_runs(work_dir: &Path, limit: usize) -> Result<Vec<RunSuggestion>, CommandFailure> {
    let mut runs = read_workspace_runs(&Workspace::open_existing(work_dir)?)?;
    sort_newest_first(&mut runs);
    runs.truncate(limit);
    let suggestions = runs.into_iter().map(|run| RunSuggestion {
        description: format!("{} {}", run.status.name(), run.task_summary),
        id: run.run_id,
        agent_name: run.agent_name,
    });
    Ok(suggestions.collect())
}

/// The run of the workspace that was updated last: the one whose journal file was modified last, or metadata.json if the
/// journal was lost. A run that never began does not count. No journal is opened.
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
    let start = "`delta run` starts one";
    let hint = match suggest_work_dirs(&workspace.root) {
        None => format!("{start}; `-w DIR` names another workspace"),
        Some(options) => format!("{start}; these workspaces have runs:\n{options}"),
    };
    Err(CommandFailure::not_found(message, hint))
}

/// `None` if the run never began, or is a symlink.
fn journal_modified_at(dir: &Path) -> Option<SystemTime> {
    let modified_at = |file| run_summary::modified_at(&dir.join(file));
    match durable::metadata_no_follow(&dir.join(JOURNAL_FILE)) {
        Ok(metadata) if !metadata.is_file() => None,
        Ok(metadata) if metadata.len() > 0 => metadata.modified().ok(),
        // Another run must not be taken for one that has lost its journal.
        _ if dir.is_symlink() || !journal::has_trace(dir) => None,
        _ => modified_at(JOURNAL_FILE).max(modified_at(METADATA_FILE)),
    }
}

/// Lists runs with status, task and age, the last updated first, at most `MAX_CANDIDATES`.
pub fn render_candidates(ids: &[RunId], workspace: &Workspace) -> String {
    let dirs = ids.iter().map(|id| workspace.run_dir(id));
    let mut dirs: Vec<(Option<SystemTime>, PathBuf)> =
        dirs.map(|dir| (journal_modified_at(&dir), dir)).collect();
    dirs.sort_by(|one, other| other.cmp(one));
    let runs: Vec<RunListEntry> = dirs
        .iter()
        .take(MAX_CANDIDATES)
        .map(|(_, dir)| RunListEntry::read(workspace, dir))
        .collect();
    let mut lines = table::render_plain_lines(&runs, table::ListColumns::default());
    let more = dirs.len().saturating_sub(MAX_CANDIDATES);
    if more > 0 {
        let root = workspace::quote_workspace(&workspace.root);
        lines.push_str(&format!("and {more} more: delta list-runs -w {root}"));
    }
    lines.trim_end().to_owned()
}

/// Finds a run of the workspace, other than `except`, that a process is working on, or whose tool works on without one.
pub fn find_active_run(
    workspace: &Workspace,
    except: Option<&RunId>,
) -> Result<Option<RunId>, CommandFailure> {
    for dir in workspace.run_dirs()?.iter().filter(|dir| !dir.is_symlink()) {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let Ok(id) = RunId::parse(&name) else { continue };
        if Some(&id) == except {
            continue;
        }
        // A run with another status has no process, unless it is being continued right now.
        let may_run = RunListEntry::read(workspace, dir).status == RunListStatus::Running;
        let is_active = may_run && Ownership::probe_dying_owner(&id, dir).is_err();
        if is_active || !SurvivingCall::all_at_work(dir).is_empty() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}
