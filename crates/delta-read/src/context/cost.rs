//! `delta context cost`: what runs cost, what caches saved, and what costs more than it must.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_operator::arguments::completion_candidates;
use delta_operator::failure::CommandFailure;
use delta_operator::read_threads::map_on_threads;
use delta_operator::runs::run_list::find_below;
use delta_program::default_format::TextOrJson;
use delta_report::run_cost::{CostReport, CountedRun, RunCost};
use std::path::PathBuf;

/// Show what runs cost, and what costs more than it must
///
/// Adds up the runs of all workspaces in directories, at any depth, and finds which requests paid again for input that a cache
/// could have had. Amounts of causes are estimates.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta context cost work
  delta context cost --format json | jq '.causes[] | {cause, cost_usd, run}'")]
pub struct ContextCostArgs {
    /// Workspaces, and directories that contain some
    #[arg(value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    dirs: Vec<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    format: TextOrJson,
}

/// Renders the report.
pub fn report_cost(args: &ContextCostArgs) -> Result<String, CommandFailure> {
    let mut dirs = Vec::new();
    for workspace in find_below(&args.dirs)? {
        let runs = workspace.run_dirs()?.into_iter();
        dirs.extend(runs.map(|run_dir| (run_dir, workspace.root.clone())));
    }
    if dirs.is_empty() {
        let hint = "`delta list-runs -r DIR` lists the runs of all workspaces below DIR";
        return Err(CommandFailure::not_found("these directories have no runs", hint));
    }
    let read = map_on_threads(&dirs, |(run_dir, work_dir)| RunCost::read(run_dir, work_dir));
    let counted: Vec<CountedRun> = dirs
        .iter()
        .zip(&read)
        .filter_map(|((run_dir, _), read)| match read {
            Ok(cost) => Some(cost.to_counted_run()),
            Err(_) => CountedRun::unreadable(run_dir),
        })
        .collect();
    let costs: Vec<RunCost> = read.into_iter().flatten().collect();
    let report = CostReport::new(&counted, &costs);
    Ok(match args.format {
        TextOrJson::Text => report.to_text(),
        TextOrJson::Json => report.to_json_line(),
    })
}
