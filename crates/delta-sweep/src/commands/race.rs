//! `delta sweep run --race`: works on runs in rounds, and stops the values of a key that are worse than the one that leads.

use crate::commands::compare::{TableView, print_table};
use crate::commands::rounds::{Round, Rounds, RoundsEnd, is_open_run};
use crate::commands::run::{PoolArgs, report_failed_runs};
use crate::formats::selection::RunSelection;
use crate::grading::sweep_scores::SweepScores;
use crate::running::run_choice::choose_runs;
use crate::running::run_pool::install_pool_cancel;
use crate::running::sweep_record::replace_sweep_record;
use crate::scores::score_table::{ScoredRun, has_several_values};
use crate::scores::setting_race::SettingRace;
use crate::scores::setting_table::is_setting_key;
use delta_operator::failure::CommandFailure;
use delta_run::event::RunStatus;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashSet;
use std::process::ExitCode;

/// A race in a sweep.
pub struct RaceCommand<'a> {
    /// The directory of the sweep, absolute.
    pub dir: &'a SweepDir,
    /// The key whose values race.
    pub key: &'a str,
    /// Which runs are a part of it.
    pub only: Option<&'a RunSelection>,
    /// How they are worked on.
    pub pool: &'a PoolArgs,
    /// The command that continues.
    pub command: &'a str,
}

impl RaceCommand<'_> {
    /// Works, grades and stops, then prints the table; returns the exit code.
    pub fn work(&self) -> Result<ExitCode, CommandFailure> {
        let Self { dir, key, only, pool, command } = *self;
        self.check_key(&SweepScores::read(dir)?)?;
        let cancel = install_pool_cancel()?;
        let mut rounds = Rounds { dir, pool, cancel, command, tried: HashSet::new() };
        let end = rounds.work(
            |scores, tried| {
                let is_open = |scored: &ScoredRun<'_>| is_open_run(scored, tried);
                let runs = racing_runs(scores, only)?;
                let race = SettingRace::new(&runs, key, &is_open);
                let batch = race.next_batch(&is_open);
                Ok(if batch.is_empty() { Round::End(()) } else { Round::Batch(batch) })
            },
            Ok,
        )?;
        let scores = &SweepScores::read(dir)?;
        report_failed_runs(&scores.results, dir)?;
        let runs = racing_runs(scores, only)?;
        let race = SettingRace::new(&runs, key, &|scored| is_open_run(scored, &rounds.tried));
        replace_sweep_record(&dir.race(), &race.stops())?;
        if !pool.is_quiet() {
            let view = TableView::new(None, only);
            print_table(&SweepScores::read_current(dir, only)?, &dir.root, &view)?;
        }
        let mut racing = race.all_racing_runs();
        let is_done = racing.all(|scored| scored.line.is_some_and(|line| line.settled));
        let mut lines = runs.iter().filter_map(|scored| scored.line);
        Ok(ExitCode::from(match end {
            RoundsEnd::Stopped => 130,
            RoundsEnd::Broken => 126,
            _ if !is_done => 3,
            _ if pool.is_strict() && lines.any(|line| line.status == RunStatus::Failed) => 1,
            RoundsEnd::Decided(()) | RoundsEnd::OverBudget => 0,
        }))
    }

    fn check_key(&self, scores: &SweepScores) -> Result<(), CommandFailure> {
        choose_runs(&scores.plan.runs, self.only)?;
        let runs = racing_runs(scores, self.only)?;
        if is_setting_key(self.key) && has_several_values(&runs, self.key) {
            return Ok(());
        }
        Err(CommandFailure::config(
            format!("`--race {}` needs two values of a model, an agent or a parameter", self.key),
            "write --race model, agent or param.NAME, with a key of which the sweep has several values",
        ))
    }
}

/// The selected runs that the newest plan means.
fn racing_runs<'a>(
    scores: &'a SweepScores,
    only: Option<&RunSelection>,
) -> Result<Vec<ScoredRun<'a>>, CommandFailure> {
    let mut runs = scores.scored_runs(scores.grader(None)?, only)?;
    runs.retain(|scored| scores.plan.means(scored.run));
    Ok(runs)
}
