//! The failures for journals that cannot be read, with what to do about them.

use super::quote_workspace_of;
use crate::failure::CommandFailure;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_run::journal::JournalError;
use std::path::Path;

/// The failure for a journal that cannot be read.
pub fn unreadable_journal_failure(id: &RunId, error: JournalError) -> CommandFailure {
    let message = error.to_string();
    match error {
        JournalError::NoEvents(_) => CommandFailure::damaged(
            message,
            Some(format!("repeat the `delta run` command with `--run-id {id}`")),
        ),
        JournalError::LostEvents { path, .. } => {
            // By turns, the journal is in a directory of the run directory.
            let run_dir = path.ancestors().skip(1).find(|dir| dir.ends_with(id.as_str()));
            let hint = lost_events_hint(id, run_dir.unwrap_or(&path));
            CommandFailure::damaged(message, Some(hint))
        }
        JournalError::Damaged { path, hint, .. } => {
            let hint = hint.unwrap_or_else(|| damaged_journal_hint(&path));
            CommandFailure::damaged(message, Some(hint))
        }
        JournalError::File(error) => error.into(),
        JournalError::Unreadable { .. } => CommandFailure::config(message, None),
    }
}

/// What to do about a run whose journal has lost its events.
pub fn lost_events_hint(id: &RunId, run_dir: &Path) -> String {
    let workspace = quote_workspace_of(run_dir);
    format!(
        "restore the journal from a backup; `delta rm {id} -w {workspace}` removes what is left of the run"
    )
}

/// What to do about a journal that delta cannot repair.
fn damaged_journal_hint(journal: &Path) -> String {
    let run_dir = shell_quote_path(journal.parent().unwrap_or(journal));
    format!("restore the file from a backup; to see what can be read: delta view {run_dir}")
}
