//! `delta sweep`: many runs from one plan.

use clap::Subcommand;
use std::process::ExitCode;

mod collect_command;
mod compare_command;
mod continued_runs;
mod gc_command;
mod grade_command;
mod graded_inputs;
mod grader_program;
mod host_grants;
mod input_reader;
mod line_writer;
mod list_command;
mod pack_command;
mod plan_checks;
mod plan_command;
mod plan_reader;
mod plan_sources;
mod result_reader;
mod run_choice;
mod run_command;
mod run_grader;
mod run_pool;
mod run_standing;
mod run_starter;
mod source_copies;
mod status_command;
mod status_painter;
mod submit_command;
mod sweep_keys;
mod sweep_scores;
mod view_command;

/// The help of `--only`.
const ONLY_HELP: &str = "Only these runs: `KEY=PATTERN[,PATTERN]...`, separated by spaces; KEY is agent, model, input, group, repeat, id or param.NAME; all conditions hold, each for one of its patterns, in which `*` matches any text";

/// Plan and run many runs: agents, models and parameters on inputs
///
/// A sweep is an immutable plan and a directory. Every command can be started again, anywhere and any number of times: no work
/// is done twice, and none is lost. `delta schema sweep` prints the keys of sweep.yaml.
#[derive(Debug, Subcommand)]
#[command(about = "Plan and run many runs: agents, models and parameters on inputs", defer = true)]
pub enum SweepCommand {
    /// Plan the runs of a sweep.yaml
    Plan(Box<plan_command::PlanArgs>),
    /// Work on the runs of a sweep, here
    Run(Box<run_command::RunSweepArgs>),
    /// Work on a share of a sweep, as a task of an array
    Task(Box<run_command::TaskArgs>),
    /// Show how far a sweep is
    Status(Box<status_command::StatusArgs>),
    /// Collect the results of a sweep
    Collect(Box<collect_command::CollectArgs>),
    /// List the ids of the runs of a sweep
    List(Box<list_command::ListSweepArgs>),
    /// Remove what no plan of a sweep names
    Gc(Box<gc_command::GcArgs>),
    /// Pack the settled runs of a sweep
    Pack(Box<pack_command::PackSweepArgs>),
    /// Submit what is left of a sweep to a cluster
    Submit(Box<submit_command::SubmitArgs>),
    /// Grade the settled runs of a sweep
    Grade(Box<grade_command::GradeArgs>),
    /// Compare agents, models or parameters of a sweep
    Compare(Box<compare_command::CompareArgs>),
    /// Render a sweep as an HTML page
    View(Box<view_command::SweepViewArgs>),
}

/// Runs a command of `delta sweep`; returns the exit code.
pub fn sweep_command(command: &SweepCommand) -> ExitCode {
    let done = match command {
        SweepCommand::Plan(args) => plan_command::plan_command(args),
        SweepCommand::Run(args) => run_command::run_sweep_command(args),
        SweepCommand::Task(args) => run_command::task_command(args),
        SweepCommand::Status(args) => status_command::status_command(args),
        SweepCommand::Collect(args) => collect_command::collect_command(args),
        SweepCommand::Gc(args) => gc_command::gc_command(args),
        SweepCommand::Pack(args) => pack_command::pack_sweep_command(args),
        SweepCommand::List(args) => list_command::list_command(args),
        SweepCommand::Submit(args) => submit_command::submit_command(args),
        SweepCommand::Grade(args) => grade_command::grade_command(args),
        SweepCommand::Compare(args) => compare_command::compare_command(args),
        SweepCommand::View(args) => view_command::view_sweep_command(args),
    };
    done.unwrap_or_else(|failure| failure.report())
}
