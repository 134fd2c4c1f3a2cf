//! `--only`: which runs a command works on. One that selects nothing is a mistake in every command.

use crate::formats::plan::PlannedRun;
use crate::formats::selection::RunSelection;
use delta_operator::failure::CommandFailure;

/// The help of `--only`.
pub const ONLY_HELP: &str =
    "Only runs that match, such as 'model=local input=a*,b*': see `delta sweep --help`";

/// The selected runs, in the order of the plan; all without a selection.
///
/// # Errors
/// The selection selects none of the runs.
pub fn choose_runs<'a>(
    runs: &'a [PlannedRun],
    only: Option<&RunSelection>,
) -> Result<Vec<&'a PlannedRun>, CommandFailure> {
    let Some(only) = only else { return Ok(runs.iter().collect()) };
    let selected: Vec<&PlannedRun> = runs.iter().filter(|run| only.selects(run)).collect();
    if selected.is_empty() && !runs.is_empty() {
        let hint = format!("`--only` can select {}", only.describe_choices(runs));
        return Err(CommandFailure::config("no run of the sweep is selected", hint));
    }
    Ok(selected)
}
