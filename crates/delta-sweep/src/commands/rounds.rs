//! Rounds: plan a batch of runs, work on it, grade it, and ask a function what follows.
//!
//! The one loop of every command that decides while runs are made, and the arguments that `gate` and `bisect` share. What
//! follows depends only on what the directory of the sweep has, so a command that was killed and is started again decides the
//! same and pays nothing twice. A batch ends before the next one is asked for, so no run starts after the runs before it have
//! decided.

use crate::commands::compare::parse_max_drop;
use crate::commands::grade::grade_finished_runs;
use crate::commands::run::{BatchEnd, PoolArgs, report_failed_runs, work_on_batch};
use crate::formats::sweep_file::SweepFile;
use crate::grading::sweep_scores::SweepScores;
use crate::planning::plan_sources::PlanSources;
use crate::running::run_pool::{absolute_dir, install_pool_cancel};
use crate::scores::score_table::ScoredRun;
use clap::Args;
use delta_base::id::RunId;
use delta_base::signal::CancelToken;
use delta_operator::command_line::command_text;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

/// What follows the runs that a sweep has.
pub enum Round<B, T> {
    /// More runs are needed: what the caller plans as a batch.
    Batch(B),
    /// The runs that there are decide.
    End(T),
}

/// How rounds have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundsEnd<T> {
    /// With an outcome.
    Decided(T),
    /// The budget of the sweep allows no other call.
    OverBudget,
    /// A signal, or the end of a slot.
    Stopped,
    /// Runs of an agent and a model cannot begin; that was reported.
    Broken,
}

/// Whether a run has not ended, and this process has not tried it.
pub fn is_open_run(scored: &ScoredRun<'_>, tried: &HashSet<RunId>) -> bool {
    !tried.contains(&scored.run.id) && scored.line.is_none_or(|line| !line.settled)
}

/// Works on batches until `next` ends the rounds, or the work on a batch does; both get the state of the command.
///
/// # Errors
/// A function fails.
pub fn work_in_rounds<S, B, T>(
    state: &mut S,
    next: impl Fn(&mut S) -> Result<Round<B, T>, CommandFailure>,
    mut work: impl FnMut(&mut S, B) -> Result<BatchEnd, CommandFailure>,
) -> Result<RoundsEnd<T>, CommandFailure> {
    loop {
        let batch = match next(state)? {
            Round::End(outcome) => return Ok(RoundsEnd::Decided(outcome)),
            Round::Batch(batch) => batch,
        };
        match work(state, batch)? {
            BatchEnd::Done => {}
            BatchEnd::OverBudget => return Ok(RoundsEnd::OverBudget),
            BatchEnd::Stopped => return Ok(RoundsEnd::Stopped),
            BatchEnd::Broken => return Ok(RoundsEnd::Broken),
        }
    }
}

/// The rounds of a command in a sweep.
pub struct Rounds<'a> {
    /// The directory of the sweep, absolute.
    pub dir: &'a SweepDir,
    /// How the runs are worked on.
    pub pool: &'a PoolArgs,
    /// Wakes the pools: see [`install_pool_cancel`](crate::running::run_pool::install_pool_cancel).
    pub cancel: CancelToken,
    /// The command that continues, for the user.
    pub command: &'a str,
    /// The runs that this process has worked on. One that is not finished now stays without a score: nothing else of it comes
    /// from a second try.
    pub tried: HashSet<RunId>,
}

impl Rounds<'_> {
    /// Works on batches until `next`, a pure function of what the sweep has, ends the rounds.
    ///
    /// `next` gets the plans, results and grades, and the runs that this process has tried. `plan` makes planned runs of its
    /// batch and returns their ids: runs that are neither settled nor tried, or none if the plan alone is what `next` needs.
    ///
    /// # Errors
    /// A file cannot be read or written, or a function fails.
    pub fn work<B, T>(
        &mut self,
        next: impl Fn(&SweepScores, &HashSet<RunId>) -> Result<Round<B, T>, CommandFailure>,
        mut plan: impl FnMut(B) -> Result<HashSet<RunId>, CommandFailure>,
    ) -> Result<RoundsEnd<T>, CommandFailure> {
        let end = work_in_rounds(
            self,
            |rounds| {
                rounds.grade()?;
                // Lines only: a run that has ended without one gets it in a batch, and then its grade.
                next(&SweepScores::read(rounds.dir)?, &rounds.tried)
            },
            |rounds, batch| {
                let batch = plan(batch)?;
                let Rounds { dir, pool, command, cancel, .. } = rounds;
                let end = work_on_batch(dir, &batch, pool, command, cancel.clone())?;
                rounds.tried.extend(batch);
                Ok(end)
            },
        )?;
        if matches!(end, RoundsEnd::OverBudget) {
            self.grade()?;
        }
        Ok(end)
    }

    /// Grades what is finished, also by processes before this one.
    fn grade(&self) -> Result<(), CommandFailure> {
        grade_finished_runs(&self.dir.root, None, self.pool.env_files(), true).map(|_| ())
    }
}

/// The arguments of the commands that look for a drop of the score, `gate` and `bisect`.
#[derive(Debug, Args)]
pub struct DropArgs {
    /// The file that describes the sweep
    #[arg(value_name = "FILE", default_value = "sweep.yaml", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Directory of the sweep [default: `name` in FILE, in the current directory]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// The drop to look for, above 0 and at most 1; PASS excludes it [default: `gate.max_drop` in FILE, or 0.1]
    #[arg(long, value_name = "D", value_parser = parse_max_drop)]
    max_drop: Option<f64>,
    /// Use the scores of this grader [default: the first one]
    #[arg(long, value_name = "NAME")]
    grader: Option<String>,
    /// Print what it may cost and stop
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pool: PoolArgs,
}

impl DropArgs {
    /// The drop of the command line, else of the file.
    pub fn max_drop(&self, file: &SweepFile) -> f64 {
        self.max_drop.unwrap_or(file.gate.max_drop)
    }

    /// The grader of the command line, else the first one of the file.
    pub fn grader(&self, file: &SweepFile) -> Option<String> {
        self.grader.clone().or_else(|| file.grade.first().map(|grader| grader.name.clone()))
    }

    /// Reads and checks everything that the file names.
    pub fn read_sources(&self) -> Result<PlanSources, CommandFailure> {
        PlanSources::read(&self.file, self.dir.as_deref())
    }

    /// The directory of the sweep.
    pub fn sweep_dir(&self, file: &SweepFile) -> Result<SweepDir, CommandFailure> {
        absolute_dir(file.sweep_dir(self.dir.as_deref()))
    }

    /// The command that continues, with these options of `command` that have a value.
    pub fn command(&self, command: &str, options: &[(&str, Option<&str>)]) -> String {
        let drop = self.max_drop.map(|drop| drop.to_string());
        let more = [("grader", self.grader.as_deref()), ("max-drop", drop.as_deref())];
        let options = [options, &more].concat();
        command_text(&format!("sweep {command}"), &self.file, self.dir.as_deref(), &options)
    }

    /// Prints the cost, and works in [`Rounds`]; returns what the sweep has then and the runs that were tried, or the exit code
    /// of a command that decides nothing.
    ///
    /// # Errors
    /// As [`Rounds::work`]; runs cannot begin, by which `undecided` is missing.
    pub fn work<B, T>(
        &self,
        dir: &SweepDir,
        cost: &str,
        command: &str,
        undecided: &str,
        next: impl Fn(&SweepScores, &HashSet<RunId>) -> Result<Round<B, T>, CommandFailure>,
        plan: impl FnMut(B) -> Result<HashSet<RunId>, CommandFailure>,
    ) -> Result<ControlFlow<ExitCode, (SweepScores, HashSet<RunId>)>, CommandFailure> {
        if self.dry_run {
            stdio::print_text(cost);
            return Ok(ControlFlow::Break(ExitCode::SUCCESS));
        }
        if !self.pool.is_quiet() {
            stdio::print_error_line(cost.trim_end());
        }
        let cancel = install_pool_cancel()?;
        let mut rounds = Rounds { dir, pool: &self.pool, cancel, command, tried: HashSet::new() };
        match rounds.work(next, plan)? {
            RoundsEnd::Stopped => return Ok(ControlFlow::Break(ExitCode::from(130))),
            RoundsEnd::Broken => {
                let message = format!("{undecided}: runs cannot begin");
                return Err(CommandFailure::config(message, None));
            }
            RoundsEnd::Decided(_) | RoundsEnd::OverBudget => {}
        }
        let scores = SweepScores::read(dir)?;
        report_failed_runs(&scores.results, dir)?;
        Ok(ControlFlow::Continue((scores, rounds.tried)))
    }
}
