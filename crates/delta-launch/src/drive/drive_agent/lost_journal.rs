//! A run whose process could not write its journal any more, on a full disk for example: what its journal has is its result.

use delta_base::durable::FileError;
use delta_base::shell_quote::shell_quote_path;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::agent_hint;
use delta_run::event::RunStatus;
use delta_run::journal;
use delta_run::ownership::ActError;
use delta_run::run::Run;
use delta_run::run_result::RunResult;
use delta_run::state::RunState;

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
    let Ok(state) = journal::fold_run_journal(&run.dir) else {
        let dir = shell_quote_path(&run.dir);
        let hint = format!("nothing is left to continue: the journal of the run in {dir} is gone");
        return Err(failure.with_hint(hint));
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
