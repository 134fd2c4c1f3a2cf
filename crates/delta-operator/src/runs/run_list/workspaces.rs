//! The workspaces whose runs a command lists or selects: one, or all below some directories.

use super::entry::{RunListEntry, read_all_runs};
use crate::failure::CommandFailure;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal_text::strip_terminal_controls;
use delta_program::stdio;
use delta_run::workspace::workspace_search::{self, WorkspaceSearch};
use delta_run::workspace::{Workspace, WorkspaceError};
use std::path::{Path, PathBuf};

/// The number of other workspaces that are suggested if a workspace has no runs.
const MAX_SUGGESTED_WORKSPACES: usize = 5;
/// The number of directories that a note about unreadable ones names.
const MAX_NAMED_DIRS: usize = 3;

/// Finds all workspaces below `dirs`, or below the current directory if there are none. A note reports the directories that could not be searched.
pub fn find_below(dirs: &[PathBuf]) -> Result<Vec<Workspace>, CommandFailure> {
    let WorkspaceSearch { workspaces, unreadable } = search(dirs)?;
    print_unreadable(unreadable.iter().map(ToString::to_string).collect());
    Ok(workspaces)
}

/// Reads the runs of all workspaces below `dirs` once more, in no order, without notes.
///
/// # Errors
/// One of `dirs` is missing or cannot be read.
pub fn read_below_again(dirs: &[PathBuf]) -> Result<Vec<RunListEntry>, CommandFailure> {
    Ok(read_all_runs(&search(dirs)?.workspaces).0)
}

fn search(dirs: &[PathBuf]) -> Result<WorkspaceSearch, WorkspaceError> {
    let mut roots: Vec<&Path> = dirs.iter().map(PathBuf::as_path).collect();
    if roots.is_empty() {
        roots.push(Path::new("."));
    }
    workspace_search::find_workspaces(&roots).map_err(|error| WorkspaceError::Unusable {
        path: error.path,
        reason: match error.source.kind() {
            std::io::ErrorKind::NotFound => "there is no such directory".to_owned(),
            _ => error.source.to_string(),
        },
        is_denied: false,
    })
}

/// Reads the runs of all workspaces, in no order. A note reports the workspaces that could not be read.
pub fn read_runs_of(workspaces: &[Workspace]) -> Vec<RunListEntry> {
    let (runs, errors) = read_all_runs(workspaces);
    print_unreadable(errors.iter().map(ToString::to_string).collect());
    runs
}

/// Prints one note for all directories that could not be read.
fn print_unreadable(reasons: Vec<String>) {
    let named = reasons.iter().take(MAX_NAMED_DIRS).map(|reason| strip_terminal_controls(reason));
    let mut note = named.collect::<Vec<_>>().join("\n  ");
    let more = reasons.len().saturating_sub(MAX_NAMED_DIRS);
    if more > 0 {
        note.push_str(&format!("\n  and {more} more"));
    }
    if !reasons.is_empty() {
        stdio::print_error_line(&format!("Note: {note}"));
    }
}

/// The options that name nested workspaces that have runs, one on each line; `None` if there are none.
pub fn suggest_work_dirs(root: &Path) -> Option<String> {
    let mut dirs = Workspace::find_with_any_run(root);
    // The directory of a run that never began is there too.
    dirs.retain(|dir| dir != root);
    let mut options: Vec<String> = dirs
        .iter()
        .take(MAX_SUGGESTED_WORKSPACES)
        .map(|dir| format!("-w {}", shell_quote_path(dir)))
        .collect();
    let more = dirs.len().saturating_sub(MAX_SUGGESTED_WORKSPACES);
    if more > 0 {
        options.push(format!("and {more} more"));
    }
    (!dirs.is_empty()).then(|| options.join("\n"))
}
