//! Whose run it is, and whether its seal holds: finds the directory of a run, folds its journal with the operator's key, and
//! refuses a foreign run.

use crate::failure::{CommandFailure, lost_events_hint, quote_workspace_of};
use crate::{environment, state};
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::shell_quote::shell_quote_path;
use delta_base::terminal_text::strip_terminal_controls;
use delta_run::journal::seal::{SealKeys, Sealer, Signer};
use delta_run::journal::seal_key::SealKey;
use delta_run::journal::{self, JournalContents, JournalError, JournalFold};
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::run_result::RunResult;
use delta_run::state::RunState;
use delta_run::workspace::{self, Workspace};
use delta_run::{run, run_tree};
use std::path::{Path, PathBuf};

/// Finds the directory of a run.
///
/// # Errors
/// The run is not in `workspace`; the hint names the nested workspaces that contain it.
pub fn find_run_dir(id: &RunId, workspace: &Workspace) -> Result<PathBuf, CommandFailure> {
    if let Some(dir) = workspace.find_run(id)? {
        return Ok(dir);
    }
    let other_workspaces = Workspace::find_holding_run(&workspace.root, id);
    let message = format!("there is no run {} in {}", id, workspace.root.display());
    let hint = match other_workspaces.as_slice() {
        [] => format!(
            "`delta list-runs -w {}` lists the runs there; `-w DIR` names another workspace",
            workspace::quote_workspace(&workspace.root)
        ),
        dirs => {
            let options: Vec<_> =
                dirs.iter().map(|dir| format!("-w {}", shell_quote_path(dir))).collect();
            format!("add {}", options.join("\nor  "))
        }
    };
    Err(CommandFailure::not_found(message, hint))
}

/// Reads the journal of a run.
pub fn read_journal(id: &RunId, dir: &Path) -> Result<JournalContents, CommandFailure> {
    journal::read_run_journal(dir).map_err(|error| unreadable_journal_failure(id, error))
}

/// Folds the journal of a run into its state.
pub fn fold_journal(id: &RunId, dir: &Path) -> Result<RunState, CommandFailure> {
    journal::fold_run_journal(dir).map_err(|error| unreadable_journal_failure(id, error))
}

/// Folds the journal of a run and checks its seals with the operator's key.
pub fn fold_own_journal(id: &RunId, dir: &Path) -> Result<JournalFold, CommandFailure> {
    fold_with_seals(id, dir).map_err(|error| unreadable_journal_failure(id, error))
}

/// Folds the journal of a run and checks its seals with the operator's key, if there is one.
pub fn fold_with_seals(id: &RunId, dir: &Path) -> Result<JournalFold, JournalError> {
    fold_with_keys(id, dir, state::seal_keys())
}

/// Folds the journal of a run and checks its seals with the keys.
pub fn fold_with_keys(id: &RunId, dir: &Path, keys: SealKeys) -> Result<JournalFold, JournalError> {
    let sealer = Sealer::new(keys, id.clone());
    let mut folded = journal::fold_sealed_journal(dir, Some(sealer))?;
    folded.seals.signer.take_if(|_| other_run_owner(dir).is_some());
    Ok(folded)
}

/// Folds the journal of a run of this operator, or of one that a tool in a sandbox of such a run has started. Also returns the
/// key that seals it.
///
/// # Errors
/// The run is foreign, or there is no key.
pub fn fold_with_its_key(id: &RunId, dir: &Path) -> Result<(RunState, SealKey), CommandFailure> {
    let mut folded = None;
    for key in state::seal_key().map(|key| keys_for_run(key, dir)).unwrap_or_default() {
        let next = fold_with_keys(id, dir, SealKeys::new(Some(key.clone())));
        let next = next.map_err(|error| unreadable_journal_failure(id, error))?;
        if next.seals.is_own() {
            return Ok((next.state, key));
        }
        folded.get_or_insert(next);
    }
    let folded = folded.map_or_else(|| fold_own_journal(id, dir), Ok)?;
    check_is_own(id, dir, &folded)?;
    Err(CommandFailure::config(format!("run {id} is not sealed"), None))
}

/// Refuses the caller if it is a call of the run or of a run below it, or of a run that has not started this one: an agent must
/// not speak to itself, or to the runs of others, as its operator.
pub fn check_caller(id: &RunId, dir: &Path) -> Result<(), CommandFailure> {
    let parent = environment::parent_run();
    let reaches = parent.is_none_or(|parent| is_below(dir, Path::new(&parent.run_dir)));
    if reaches && !run_tree::has_this_process_below(dir) {
        return Ok(());
    }
    let hint = "a call sends messages to the runs that it has started";
    Err(CommandFailure::config(format!("a call of run {id} cannot send it a message"), hint))
}

/// Whether the run in `dir` was started by one of the run in `ancestor`, or by a run below it.
fn is_below(dir: &Path, ancestor: &Path) -> bool {
    let Ok(ancestor) = ancestor.canonicalize() else { return false };
    let enclosing = run_tree::find_enclosing_runs(dir);
    enclosing.iter().skip(1).any(|dir| dir.canonicalize().is_ok_and(|dir| dir == ancestor))
}

/// The operator's key, and the keys that the runs around the run in `run_dir` have given their tools.
fn keys_for_run(operator: SealKey, run_dir: &Path) -> Vec<SealKey> {
    let mut inner: Vec<SealKey> = Vec::new();
    for dir in run_tree::find_enclosing_runs(run_dir).iter().skip(1).rev() {
        let Some(id) = run_tree::recorded_run_id(dir) else { continue };
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let keys = std::iter::once(&operator).chain(&inner);
        inner = keys
            .filter_map(|key| SealKey::from_derived(&key.derive_for_inner_runs(&id, &dir)))
            .collect();
    }
    std::iter::once(operator).chain(inner).collect()
}

/// The other user who can change the run in `dir`: the owner of the directory, or of the directory of all runs unless that
/// is root.
pub fn other_run_owner(dir: &Path) -> Option<u32> {
    let control = dir.parent().and_then(durable::owner_if_other).filter(|owner| *owner != 0);
    durable::owner_if_other(dir).or(control)
}

/// The warning for a run of this operator whose journal is not as it was sealed.
pub const EDITED_JOURNAL: &str = "the journal was changed after delta sealed it";

/// The warning for a run without a seal whose chain does not hold.
pub const CHANGED_JOURNAL: &str = "the journal was changed after delta wrote it";

/// Refuses a foreign run: what its journal names must not be loaded or executed.
pub fn check_is_own(id: &RunId, dir: &Path, folded: &JournalFold) -> Result<(), CommandFailure> {
    if folded.seals.is_own() {
        return Ok(());
    }
    if let Some(owner) = other_run_owner(dir) {
        return Err(other_owner_failure(id, dir, owner));
    }
    let (reason, accept) = match state::seal_key() {
        Ok(_) => match &folded.seals.signer {
            Some(Signer::Accepted(name)) => (format!("it has a seal of {name}, not of you"), ""),
            _ => ("it has no seal of yours".to_owned(), ""),
        },
        Err(missing) => (
            format!("delta could not check its seal ({})", missing.reason()),
            "set DELTA_STATE_DIR to a directory of yours for the key, and ",
        ),
    };
    let home = folded.state.start.as_ref().map_or("", |start| &start.agent_home);
    let message = format!(
        "run {id} is foreign: {reason}, so delta does not load {}",
        if home.is_empty() { "its agent".to_owned() } else { strip_terminal_controls(home) }
    );
    Err(CommandFailure::config(message, trust_hint(id, dir, accept)))
}

/// Refuses to change a run that was sent to another place, or that is a copy.
pub fn check_is_here(id: &RunId, dir: &Path, state: &RunState) -> Result<(), CommandFailure> {
    let Some(sent) = &state.sent else { return Ok(()) };
    let destination = strip_terminal_controls(&sent.place);
    let workspace = quote_workspace_of(dir);
    let fork = format!("`delta fork {id} -w {workspace}` makes a run that continues here");
    if sent.copy {
        return Err(CommandFailure::moved(
            format!("this is a copy of run {id}, which is at {destination}"),
            fork,
        ));
    }
    let hint = format!(
        "continue it there; `delta send {id} -w {workspace}` with the same arguments ends a transfer that broke off;\n{fork}"
    );
    Err(CommandFailure::moved(format!("run {id} was sent to {destination}"), hint))
}

/// The failure of a command on a run of another user.
pub fn other_owner_failure(id: &RunId, dir: &Path, owner: u32) -> CommandFailure {
    let message = format!("run {id} is foreign: {} belongs to user {owner}", dir.display());
    let hint = "name the agent with `--agent DIR`, or work as that user";
    CommandFailure::config(message, hint)
}

/// How to continue a foreign run; `before` is to be done before it can be accepted.
fn trust_hint(id: &RunId, dir: &Path, before: &str) -> String {
    let workspace = quote_workspace_of(dir);
    format!(
        "look at it with `delta show {id} -w {workspace}`; then name the agent with `--agent DIR`,\n\
         or {before}accept the run with `delta trust {id} -w {workspace}`"
    )
}

/// The failure for a journal that cannot be read.
pub fn unreadable_journal_failure(id: &RunId, error: JournalError) -> CommandFailure {
    let message = error.to_string();
    match error {
        JournalError::NoEvents(_) => CommandFailure::damaged(
            message,
            format!("repeat the `delta run` command with `--run-id {id}`"),
        ),
        JournalError::LostEvents { path, .. } => {
            // By turns, the journal is in a directory of the run directory.
            let run_dir = path.ancestors().skip(1).find(|dir| dir.ends_with(id.as_str()));
            let hint = lost_events_hint(id, run_dir.unwrap_or(&path));
            CommandFailure::damaged(message, hint)
        }
        JournalError::Damaged { path, hint, .. } => {
            let hint = hint.unwrap_or_else(|| damaged_journal_hint(&path));
            CommandFailure::damaged(message, hint)
        }
        JournalError::File(error) => error.into(),
        JournalError::Unreadable { .. } => CommandFailure::config(message, None),
    }
}

/// What to do about a journal that delta cannot repair.
fn damaged_journal_hint(journal: &Path) -> String {
    let run_dir = shell_quote_path(journal.parent().unwrap_or(journal));
    format!("restore the file from a backup; to see what can be read: delta view {run_dir}")
}

/// Whether the last process of the run has died on this host.
pub fn process_is_gone(state: &RunState) -> bool {
    let process = state.start.as_ref().map(|start| &start.process);
    process.is_some_and(|process| owner_process::owner_status(process) == OwnerStatus::Dead)
}

/// The result in a journal, which counts only if it is what the engine recorded last.
///
/// # Errors
/// There is another, or its journal was changed.
pub fn sealed_result(
    id: &RunId,
    dir: &Path,
    folded: &JournalFold,
) -> Result<Option<RunResult>, CommandFailure> {
    let reason = if folded.seals.is_result_sealed {
        run::find_journal_cut(dir, &folded.state)
    } else {
        Some("its journal was changed after delta sealed it".to_owned())
    };
    let Some(reason) = reason else {
        let result = RunResult::from_state(&folded.state);
        return Ok(result.map(|result| result.with_tree(dir, &folded.state)));
    };
    let message = format!("run {id} has a result that is not taken: {reason}");
    Err(CommandFailure::config(message, ensure_hint(id, dir)))
}

/// What to do about a run whose result `--ensure` does not take.
pub fn ensure_hint(id: &RunId, dir: &Path) -> String {
    let workspace = quote_workspace_of(dir);
    format!(
        "choose another `--run-id`; or look at the run with `delta show {id} -w {workspace}`,\n\
         and accept it with `delta trust {id} -w {workspace}`"
    )
}
