//! `delta sweep list`: the ids of runs, for other programs.

use crate::formats::result_line::ResultLine;
use crate::formats::selection::RunSelection;
use crate::grading::sweep_scores::SweepScores;
use crate::running::result_reader::{ResultReader, read_sweep};
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use clap::Args;
use delta_base::id::RunId;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::sweep::sweep_dir::SweepDir;
use std::path::PathBuf;
use std::process::ExitCode;

/// List the ids of the runs of a sweep
///
/// Prints one id a line, in the order of the plan.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ListSweepArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Only runs that are not finished
    #[arg(long, conflicts_with_all = ["failed", "waiting", "not_passed"])]
    todo: bool,
    /// Only runs that FAILED
    #[arg(long, conflicts_with_all = ["waiting", "not_passed"])]
    failed: bool,
    /// Only runs that wait for a person
    #[arg(long)]
    waiting: bool,
    /// Only runs that have a score and did not pass
    #[arg(long, conflicts_with = "waiting")]
    not_passed: bool,
    /// With `--not-passed`: the grader [default: the first one]
    ///
    /// Without graders, a run that COMPLETED has passed.
    #[arg(long, value_name = "NAME", requires = "not_passed")]
    grader: Option<String>,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep list DIR --todo | xargs -P 8 -n 1 delta sweep task DIR
  delta sweep list DIR --failed --only 'model=local'
  for id in $(delta sweep list DIR --not-passed); do delta show $id -w DIR; done";

impl ListSweepArgs {
    /// Whether a run with this line is listed.
    fn lists(&self, line: Option<&ResultLine>) -> bool {
        let status = line.map(|line| line.status);
        if self.todo {
            !line.is_some_and(|line| line.settled)
        } else if self.failed {
            status == Some(RunStatus::Failed)
        } else if self.waiting {
            status == Some(RunStatus::WaitingForInput)
        } else {
            true
        }
    }
}

/// Prints the ids; returns the exit code.
pub fn list_command(args: &ListSweepArgs) -> Result<ExitCode, CommandFailure> {
    let dir = SweepDir::new(&args.dir);
    let ids: Vec<RunId> = if args.not_passed {
        let scores = SweepScores::read(&dir)?;
        let grader = scores.grader(args.grader.as_deref())?;
        let mut runs = scores.scored_runs(grader, args.only.as_ref())?;
        runs.retain(|scored| scored.score.as_ref().is_ok_and(|score| !score.pass));
        runs.into_iter().map(|scored| scored.run.id.clone()).collect()
    } else {
        let (plan, ResultReader { results, .. }) = read_sweep(&dir)?;
        let mut runs = choose_runs(&plan.runs, args.only.as_ref())?;
        runs.retain(|run| args.lists(results.lines.get(&run.id)));
        runs.into_iter().map(|run| run.id.clone()).collect()
    };
    stdio::print_text(&ids.iter().map(|id| format!("{id}\n")).collect::<String>());
    Ok(ExitCode::SUCCESS)
}
