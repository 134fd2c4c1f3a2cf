//! `delta sweep cost`: what a sweep cost, what caches saved, and what costs more than it must.

use crate::commands::status::ReportFormat;
use crate::formats::result_line::ResultLine;
use crate::formats::selection::RunSelection;
use crate::running::result_reader::{ResultReader, read_sweep};
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use clap::Args;
use delta_operator::failure::CommandFailure;
use delta_operator::read_threads::map_on_threads;
use delta_program::stdio;
use delta_report::run_cost::{CostReport, CountedRun, TreeCost};
use delta_run::sweep::sweep_dir::SweepDir;
use delta_run::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what a sweep cost, and what costs more than it must
///
/// Adds up the result lines, and finds which requests paid again for input that a cache could have had. Amounts of causes are
/// estimates.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SweepCostArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep cost terse-or-not
  delta sweep cost DIR --only 'model=local'
  delta sweep cost DIR --format json | jq '.causes[] | {cause, cost_usd}'";

/// Prints the cost; returns the exit code.
pub fn cost_command(args: &SweepCostArgs) -> Result<ExitCode, CommandFailure> {
    let dir = SweepDir::new(&args.dir);
    let (plan, ResultReader { results, .. }) = read_sweep(&dir)?;
    let runs = choose_runs(&plan.runs, args.only.as_ref())?;
    let lines: Vec<&ResultLine> =
        runs.iter().filter_map(|run| results.lines.get(&run.id)).collect();
    let trees = map_on_threads(&lines, |line| read_line_cost(&dir, line, &args.dir));
    let counted: Vec<CountedRun> =
        lines.iter().zip(&trees).map(|(line, tree)| to_counted_run(line, tree)).collect();
    let costs: Vec<_> = trees.into_iter().flat_map(|tree| tree.runs).collect();
    let report = CostReport::new(&counted, &costs);
    match args.format {
        ReportFormat::Text => stdio::print_text(&report.to_text()),
        ReportFormat::Json => stdio::print_json(&report.to_json_line()),
    };
    Ok(ExitCode::SUCCESS)
}

/// The cost of the run of a line and of the runs below it; nothing of a run that is packed or removed.
fn read_line_cost(dir: &SweepDir, line: &ResultLine, sweep: &Path) -> TreeCost {
    let workspace = Workspace { root: dir.workspace(&line.id) };
    let run_dir = workspace.find_run(&line.id).ok().flatten();
    run_dir.map(|run_dir| TreeCost::read(&run_dir, sweep)).unwrap_or_default()
}

/// What the line says; lines of earlier versions lack some of it.
fn to_counted_run(line: &ResultLine, tree: &TreeCost) -> CountedRun {
    CountedRun {
        run_id: line.id.clone(),
        cost_usd: line.cost_usd,
        saved_usd: line.saved_usd.or_else(|| tree.saved_usd().filter(|_| tree.is_judged)),
        input_tokens: line.usage.input_tokens,
        cached_input_tokens: line.usage.cached_input_tokens,
        cache_write_tokens: line.usage.cache_write_tokens,
        cache_breaks: line.cache_breaks.or_else(|| tree.cache_breaks()),
        is_judged: tree.is_judged,
    }
}
