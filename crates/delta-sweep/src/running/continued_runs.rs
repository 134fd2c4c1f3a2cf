//! Settled runs on which a process has worked since, such as a `delta continue` by hand: what a result line says is compared
//! with the time of the end in metadata.json, and a line with another time is made again.

use crate::formats::plan::PlannedRun;
use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::{ResultLine, SweepResults};
use crate::running::line_writer::open_line_file;
use crate::running::run_standing::{RunWorkState, look_at_run};
use delta_base::durable;
use delta_operator::failure::CommandFailure;
use delta_operator::read_threads::map_on_threads;
use delta_run::run_files::METADATA_FILE;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;
use serde::Deserialize;

/// Takes the new results of runs that were continued into `results`, and writes their lines.
///
/// # Errors
/// A line could not be written.
pub fn record_continued_runs<'a>(
    dir: &SweepDir,
    plan: &SweepPlan,
    runs: impl Iterator<Item = &'a PlannedRun>,
    results: &mut SweepResults,
) -> Result<(), CommandFailure> {
    let lines = refresh_results(dir, plan, runs, results);
    if lines.is_empty() {
        return Ok(());
    }
    let mut writer = open_line_file(&dir.results())?;
    Ok(lines.iter().try_for_each(|line| writer.append(&line.to_line()))?)
}

/// Takes the new results of runs that were continued into `results`, and returns their lines. A run that a process works on, or
/// whose process died, has no line in `results` then, and so is not settled.
pub fn refresh_results<'a>(
    dir: &SweepDir,
    plan: &SweepPlan,
    runs: impl Iterator<Item = &'a PlannedRun>,
    results: &mut SweepResults,
) -> Vec<ResultLine> {
    let Some(settings) = plan.settings() else { return Vec::new() };
    let settled: Vec<(&PlannedRun, &ResultLine)> = runs
        .filter_map(|run| Some((run, results.lines.get(&run.id)?)))
        .filter(|(_, line)| line.settled)
        .collect();
    let are_continued = map_on_threads(&settled, |(_, line)| has_other_end(dir, line));
    let continued =
        settled.into_iter().zip(are_continued).filter(|(_, is_continued)| *is_continued);
    let continued: Vec<&PlannedRun> = continued.map(|((run, _), _)| run).collect();
    let mut lines = Vec::new();
    for run in continued {
        let known = results.lines.get(&run.id);
        match look_at_run(dir, run, &settings.retry, false) {
            RunWorkState::Left(left) => {
                let mut line = left.line;
                let Some(known) = known else { continue };
                // A run that lost its directory numbers its processes from 1 again.
                if !line.supersedes(known) && line.ended_at > known.ended_at {
                    line.epoch = known.epoch + 1;
                }
                if line.supersedes(known) {
                    results.add(line.clone());
                    lines.push(line);
                }
            }
            _ => drop(results.lines.remove(&run.id)),
        }
    }
    lines
}

/// Adds the lines of runs whose worker died between the end of the run and its line.
pub fn look_up_missing_lines(dir: &SweepDir, plan: &SweepPlan, results: &mut SweepResults) {
    let Some(settings) = plan.settings() else { return };
    let mut missing: Vec<&PlannedRun> = plan.runs.iter().collect();
    missing.retain(|run| results.lines.get(&run.id).is_none_or(ResultLine::is_of_unbegun_run));
    for run in missing {
        if let RunWorkState::Left(left) = look_at_run(dir, run, &settings.retry, false) {
            results.add(left.line.clone());
        }
    }
}

/// Whether the directory of the run names another time of its end than its line, or none. A packed run has no directory.
fn has_other_end(dir: &SweepDir, line: &ResultLine) -> bool {
    /// What is read of metadata.json: null while a process works on the run, or after it died.
    #[derive(Deserialize)]
    struct RunEnd {
        end_time: Option<String>,
    }
    let workspace = Workspace { root: dir.workspace(&line.id) };
    let path = workspace.run_dir(&line.id).join(METADATA_FILE);
    let Ok(bytes) = durable::read_no_follow(&path) else { return false };
    let end = serde_json::from_slice::<RunEnd>(&bytes);
    !end.is_ok_and(|end| end.end_time.as_ref() == Some(&line.ended_at))
}
