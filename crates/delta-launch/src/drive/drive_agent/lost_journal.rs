//! A run whose process could not write its journal any more, on a full disk for example: what its journal has is its result.

use delta_base::durable::{FileError, LostFile};
use delta_base::shell_quote::shell_quote_path;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::agent_hint;
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::journal;
use delta_run::ownership::ActError;
use delta_run::run::Run;
use delta_run::run_result::{ContinueCommand, RunResult};
use delta_run::state::RunState;
use delta_run::workspace::{self, CONTROL_DIR};
use std::path::{Path, PathBuf};

/// The result of the run, after its failure was printed; or the failure, if it has no result.
pub fn end_unrecorded_run(
    run: &Run,
    error: ActError,
    options: &RunOptions,
) -> Result<RunResult, CommandFailure> {
    let is_replaced = matches!(error, ActError::Replaced(_));
    let failure = CommandFailure::from(error);
    if is_replaced {
        return Err(failure);
    }
    let state = match journal::fold_run_journal(&run.dir) {
        Ok(state) => state,
        Err(error) => {
            return Err(failure.with_hint(describe_loss(run).unwrap_or_else(|| error.to_string())));
        }
    };
    let next = agent_hint::own_continue_command(&state);
    let failure = failure.with_hint(format!("when that is mended: {next}"));
    match unrecorded_result(&state, &failure, options) {
        Some(result) if failure.is_io() => {
            failure.report();
            Ok(result)
        }
        result => Err(failure.with_run_result(result)),
    }
}

/// The result of a run as [`end_unrecorded_run`] has it, if the first events of this process were recorded: the same command
/// would then send its message twice.
pub fn end_unbegun_run(
    run: &Run,
    error: FileError,
    options: &RunOptions,
) -> Result<RunResult, CommandFailure> {
    let recorded = journal::fold_run_journal(&run.dir);
    if recorded.is_ok_and(|state| state.seq == run.state().seq) {
        return end_unrecorded_run(run, error.into(), options);
    }
    Err(CommandFailure::from(error).adding_hint("when that is mended, repeat the command"))
}

/// Prints what became of the journal, if it is not where it was, and returns whether it is lost: `result` names no command then
/// that continues the run as it is.
pub fn print_loss(run: &Run, result: &mut RunResult) -> bool {
    let Some(loss) = describe_loss(run) else { return false };
    stdio::print_error_line(&format!("Note: {loss}"));
    result.follow_up = None;
    if let Some(error) = result.error.as_mut().filter(|_| result.status == RunStatus::Interrupted) {
        error.details = Some(loss);
    }
    true
}

/// What became of the journal, if it is not where it was, and how to continue.
fn describe_loss(run: &Run) -> Option<String> {
    let (loss, journal) = run.find_journal_loss()?;
    let state = run.state();
    let mut next = if state.status == Some(RunStatus::Failed) {
        ContinueCommand::for_failed_run(state).with_agent(agent_hint::own_agent(state))
    } else {
        agent_hint::own_continue_command(state)
    };
    let dir = shell_quote_path(&run.dir);
    let (fate, remedy) = match loss {
        LostFile::Removed | LostFile::Replaced => {
            let fate = match loss {
                LostFile::Removed => format!("the journal in {dir} is gone"),
                _ => format!("events are lost: something replaced or cut the journal in {dir}"),
            };
            return Some(match state.status {
                Some(RunStatus::Completed) => fate,
                _ => format!("nothing is left to continue: {fate}"),
            });
        }
        LostFile::Unreachable(error) => {
            (format!("the journal in {dir} cannot be read: {error}"), "when that is mended")
        }
        LostFile::Moved(path) => {
            let new_dir = path.as_deref().and_then(|path| moved_run_dir(run, journal, path));
            if let Some(workspace) = new_dir.as_deref().and_then(|dir| moved_workspace(run, dir)) {
                next = next.with_work_dir(workspace);
                let root = shell_quote_path(workspace);
                (format!("the workspace was moved to {root}"), "continue with")
            } else {
                let lost = if new_dir.is_none() && path.is_some() { journal } else { &run.dir };
                let fate = match new_dir.or(path) {
                    Some(path) => format!("was moved to {}", shell_quote_path(&path)),
                    None => "was moved or renamed".to_owned(),
                };
                (format!("{} {fate}", shell_quote_path(lost)), "when it is back")
            }
        }
    };
    Some(match state.status {
        Some(RunStatus::Completed) => fate,
        _ => format!("{fate}; {remedy}: {next}"),
    })
}

/// The directory of the run whose journal is `path` now.
fn moved_run_dir(run: &Run, journal: &Path, path: &Path) -> Option<PathBuf> {
    let inside = journal.strip_prefix(&run.dir).ok()?;
    let dir = path.ancestors().nth(inside.components().count())?;
    path.ends_with(inside).then(|| dir.to_owned())
}

/// The workspace with the run directory `dir`, if it has the run at the same place as before.
fn moved_workspace<'d>(run: &Run, dir: &'d Path) -> Option<&'d Path> {
    let control = dir.parent().filter(|control| control.ends_with(CONTROL_DIR))?;
    let has_id = dir.file_name() == Some(run.id.as_str().as_ref());
    control.parent().filter(|_| has_id && workspace::runs_dir().is_none())
}

fn unrecorded_result(
    state: &RunState,
    failure: &CommandFailure,
    options: &RunOptions,
) -> Option<RunResult> {
    let result = RunResult::from_state(state)?;
    Some(RunResult {
        status: RunStatus::Failed,
        result: None,
        error: Some(failure.to_error_info()),
        interaction: None,
        prints_alone: options.result_follows_progress(),
        ..result
    })
}
