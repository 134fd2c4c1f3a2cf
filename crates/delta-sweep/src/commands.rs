//! The commands of `delta sweep`, a file each.

use clap::Subcommand;
use std::process::ExitCode;

mod bisect;
mod collect;
mod compare;
mod cost;
mod estimate;
mod gate;
mod gc;
mod grade;
mod list;
mod pack;
mod plan;
mod race;
mod rounds;
mod run;
mod status;
mod submit;
mod view;
mod why;

/// Plan and run many runs: agents, models and parameters on inputs
///
/// Every command can be started again, on any host: no work is done twice. `delta schema sweep` prints the keys of sweep.yaml.
///
/// `--only` selects runs by conditions `KEY=PATTERN[,PATTERN]...`, separated by spaces. KEY is agent, model, input, group,
/// repeat, id or param.NAME; `*` matches any text. A run matches every condition, by one of its patterns.
#[derive(Debug, Subcommand)]
#[command(about = "Plan and run many runs: agents, models and parameters on inputs", defer = true)]
pub enum SweepCommand {
    /// Plan the runs of a sweep.yaml
    Plan(Box<plan::PlanArgs>),
    /// Work on the runs of a sweep on this machine
    Run(Box<run::RunSweepArgs>),
    /// Work on a share of a sweep, as a task of an array
    Task(Box<run::TaskArgs>),
    /// Show the status of a sweep
    Status(Box<status::StatusArgs>),
    /// Collect the results of a sweep
    Collect(Box<collect::CollectArgs>),
    /// List the ids of the runs of a sweep
    List(Box<list::ListSweepArgs>),
    /// Remove runs and copies that no plan of a sweep names
    Gc(Box<gc::GcArgs>),
    /// Pack the finished runs of a sweep
    Pack(Box<pack::PackSweepArgs>),
    /// Submit the remaining runs of a sweep to a cluster
    Submit(Box<submit::SubmitArgs>),
    /// Grade the finished runs of a sweep
    Grade(Box<grade::GradeArgs>),
    /// Compare agents, models or parameters of a sweep
    Compare(Box<compare::CompareArgs>),
    /// Show what a sweep cost, and what costs more than it must
    Cost(Box<cost::SweepCostArgs>),
    /// Find the iteration in which a run was lost
    Why(Box<why::WhyArgs>),
    /// Judge whether a change is worse than its base
    Gate(Box<gate::GateArgs>),
    /// Find the commit with which the score dropped
    Bisect(Box<bisect::BisectArgs>),
    /// Estimate what a sweep will cost
    Estimate(Box<estimate::EstimateArgs>),
    /// Render a sweep as an HTML page
    View(Box<view::SweepViewArgs>),
}

/// Runs a command of `delta sweep`; returns the exit code.
pub fn sweep_command(command: &SweepCommand) -> ExitCode {
    let done = match command {
        SweepCommand::Plan(args) => plan::plan_command(args),
        SweepCommand::Run(args) => run::run_sweep_command(args),
        SweepCommand::Task(args) => run::task_command(args),
        SweepCommand::Status(args) => status::status_command(args),
        SweepCommand::Collect(args) => collect::collect_command(args),
        SweepCommand::Gc(args) => gc::gc_command(args),
        SweepCommand::Pack(args) => pack::pack_sweep_command(args),
        SweepCommand::List(args) => list::list_command(args),
        SweepCommand::Submit(args) => submit::submit_command(args),
        SweepCommand::Grade(args) => grade::grade_command(args),
        SweepCommand::Compare(args) => compare::compare_command(args),
        SweepCommand::Cost(args) => cost::cost_command(args),
        SweepCommand::Why(args) => why::why_command(args),
        SweepCommand::Gate(args) => gate::gate_command(args),
        SweepCommand::Bisect(args) => bisect::bisect_command(args),
        SweepCommand::Estimate(args) => estimate::estimate_command(args),
        SweepCommand::View(args) => view::view_sweep_command(args),
    };
    done.unwrap_or_else(|failure| failure.report())
}
