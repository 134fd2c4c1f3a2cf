//! The finished runs of each agent, model and parameters, measured.

use crate::formats::plan::PlannedRun;
use crate::formats::result_line::SweepResults;
use crate::scores::cost_estimate::SettingRuns;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_report::run_load::MeasuredRun;
use delta_run::sweep::packed::extract_to_read;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;

/// The most runs of a setting that are measured: more change the interval little, and reading them takes time.
const MAX_MEASURED: usize = 20;

/// The settings of runs, in the order of the plan, each with its runs.
pub fn settings_of<'a>(runs: &[&'a PlannedRun]) -> Vec<(SettingRuns, Vec<&'a PlannedRun>)> {
    let mut settings: Vec<(SettingRuns, Vec<&PlannedRun>)> = Vec::new();
    for run in runs {
        match settings.iter_mut().find(|(setting, _)| setting.includes(run)) {
            Some((_, runs)) => runs.push(run),
            None => settings.push((SettingRuns::of(run), vec![run])),
        }
    }
    settings
}

/// Measures the first finished runs. One whose records cannot be read is left out, with a warning.
pub fn measure_runs(
    dir: &SweepDir,
    runs: &[&PlannedRun],
    results: &SweepResults,
) -> Result<Vec<Vec<MeasuredRun>>, CommandFailure> {
    let finished = runs.iter().filter(|run| {
        let line = results.lines.get(&run.id);
        line.is_some_and(|line| line.settled && !line.failed_outside_of_agent())
    });
    let mut measured = Vec::new();
    for run in finished.take(MAX_MEASURED) {
        let root = dir.workspace(&run.id);
        let unpacked = if root.is_dir() { None } else { extract_to_read(dir, &run.id)? };
        let workspace = Workspace { root: unpacked.unwrap_or(root) };
        let Ok(Some(run_dir)) = workspace.find_run(&run.id) else { continue };
        match MeasuredRun::read_tree(&run_dir) {
            Ok(tree) if tree.is_empty() => {}
            Ok(tree) => measured.push(tree),
            Err(error) => {
                stdio::print_error_line(&format!(
                    "warning: run {} is not measured: {error}",
                    run.id
                ));
            }
        }
    }
    Ok(measured)
}
