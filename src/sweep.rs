//! `delta sweep`: many runs from one plan.

use clap::Subcommand;
use std::process::ExitCode;

mod list_command;
mod plan_command;
mod plan_reader;
mod plan_sources;
mod result_reader;
mod source_copies;

/// Plan and run many runs: agents, models and parameters on inputs
///
/// A sweep is an immutable plan and a directory. Every command can be started again, anywhere and any number of times: no work
/// is done twice, and none is lost. See docs/guide/sweeps.md.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// Plan the runs of a sweep.yaml
    Plan(Box<plan_command::PlanArgs>),
    /// List the ids of the runs of a sweep
    List(Box<list_command::ListArgs>),
}

/// Runs a command of `delta sweep`; returns the exit code.
pub fn sweep_command(command: &SweepCommand) -> ExitCode {
    let done = match command {
        SweepCommand::Plan(args) => plan_command::plan_command(args),
        SweepCommand::List(args) => list_command::list_command(args),
    };
    done.unwrap_or_else(|failure| failure.report())
}
