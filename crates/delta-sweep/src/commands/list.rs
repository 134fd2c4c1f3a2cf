//! `delta sweep list`: the ids of runs, for other programs.

use crate::formats::result_line::ResultLine;
use crate::formats::selection::RunSelection;
use crate::running::result_reader::{ResultReader, read_sweep};
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use clap::Args;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::sweep::sweep_dir::SweepDir;
use std::path::PathBuf;
use std::process::ExitCode;

/// List the ids of the runs of a sweep
///
/// Prints one id a line, in the order of the plan, for xargs, GNU parallel and others.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ListSweepArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Only runs that are not finished
    #[arg(long, conflicts_with_all = ["failed", "waiting"])]
    todo: bool,
    /// Only runs that FAILED
    #[arg(long, conflicts_with = "waiting")]
    failed: bool,
    /// Only runs that wait for a person
    #[arg(long)]
    waiting: bool,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep list DIR --todo | xargs -P 8 -n 1 delta sweep task DIR
  delta sweep list DIR --failed --only 'model=local'";

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
    let (plan, ResultReader { results, .. }) = read_sweep(&dir)?;
    let mut text = String::new();
    for run in choose_runs(&plan.runs, args.only.as_ref())? {
        if args.lists(results.lines.get(&run.id)) {
            text.push_str(run.id.as_str());
            text.push('\n');
        }
    }
    stdio::print_text(&text);
    Ok(ExitCode::SUCCESS)
}
