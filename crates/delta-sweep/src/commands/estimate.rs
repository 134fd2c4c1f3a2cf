//! `delta sweep estimate`: what a sweep will cost in each tier, from its first runs.

use crate::commands::plan::plan_file;
use crate::commands::run::{BatchEnd, PoolArgs, is_sweep_file, work_on_batch};
use crate::commands::status::{ReportFormat, terminal_width};
use crate::formats::selection::RunSelection;
use crate::running::measured_runs::{measure_runs, settings_of};
use crate::running::result_reader::read_sweep;
use crate::running::run_choice::{ONLY_HELP, choose_runs};
use crate::running::run_pool::{absolute_dir, install_pool_cancel};
use crate::scores::cost_estimate::SweepEstimate;
use clap::Args;
use delta_base::id::RunId;
use delta_operator::command_line::command_text;
use delta_operator::failure::CommandFailure;
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Estimate what a sweep will cost
///
/// Works on the first runs of each agent, model and parameters, then prints what all runs will cost: directly, in the tier
/// `flex`, in batches and without a cache, each as a range.
#[derive(Debug, Args)]
#[command(
    mut_arg("tier", |arg| arg.default_value("direct").hide(true)),
    mut_arg("strict", |arg| arg.hide(true)),
    after_long_help = EXAMPLES
)]
pub struct EstimateArgs {
    /// Directory of the sweep, or the file that describes it
    #[arg(value_name = "DIR|FILE", default_value = ".", value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// Directory of the sweep [default: `name` in FILE, in the current directory]
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: Option<PathBuf>,
    #[arg(long, value_name = "CONDITIONS", value_parser = RunSelection::parse, help = ONLY_HELP)]
    only: Option<RunSelection>,
    /// Work on the first N runs of each agent, model and parameters; 0 measures the runs that there are
    #[arg(long, value_name = "N", default_value = "5", value_parser = parse_number_in(0..=1000_u32))]
    pilot: u32,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
    #[command(flatten)]
    pool: PoolArgs,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep estimate sweep.yaml
  delta sweep estimate terse-or-not --pilot 0 --format json | jq .tiers

Exit codes: 0 estimated, 2 usage error, 3 a setting has no finished run, 126 the plan has an error or runs do not start, 130 stopped";

/// Works on the first runs, and prints the estimate; returns the exit code.
pub fn estimate_command(args: &EstimateArgs) -> Result<ExitCode, CommandFailure> {
    let dir = args.find_dir()?;
    let pilot = args.pilot as usize;
    if pilot > 0 {
        let (plan, results) = read_sweep(&dir)?;
        let runs = choose_runs(&plan.runs, args.only.as_ref())?;
        let first: HashSet<RunId> = settings_of(&runs)
            .into_iter()
            .flat_map(|(_, runs)| runs.into_iter().take(pilot))
            .filter(|run| !results.results.is_settled(&run.id))
            .map(|run| run.id.clone())
            .collect();
        if !first.is_empty() {
            let cancel = install_pool_cancel()?;
            match work_on_batch(&dir, &first, &args.pool, &args.command(), cancel)? {
                BatchEnd::Done | BatchEnd::OverBudget => {}
                BatchEnd::Stopped => return Ok(ExitCode::from(130)),
                BatchEnd::Broken => {
                    return Err(CommandFailure::config("no estimate: runs cannot begin", None));
                }
            }
        }
    }
    let (plan, results) = read_sweep(&dir)?;
    let results = results.results;
    let runs = choose_runs(&plan.runs, args.only.as_ref())?;
    let Some(header) = plan.settings() else { return Ok(ExitCode::SUCCESS) };
    let jobs = u64::from(args.pool.jobs(header.rate.concurrent));
    let settled =
        || runs.iter().filter_map(|run| results.lines.get(&run.id)).filter(|line| line.settled);
    let spent: Option<Vec<f64>> = settled().map(|line| line.cost_usd).collect();
    let spent = spent.filter(|costs| !costs.is_empty()).map(|costs| costs.iter().sum());
    let mut settings = Vec::new();
    for (mut setting, runs) in settings_of(&runs) {
        setting.runs = runs.len() as u64;
        setting.measured = measure_runs(&dir, &runs, &results)?;
        settings.push(setting);
    }
    let name = header.name.clone();
    let estimate = SweepEstimate::new(name, settings, settled().count() as u64, spent, jobs);
    match args.format {
        ReportFormat::Text => stdio::print_text(&estimate.to_text(terminal_width().max(40))),
        ReportFormat::Json => stdio::print_json(&(delta_base::json::to_json(&estimate) + "\n")),
    };
    Ok(ExitCode::from(if estimate.lacks_runs() { 3 } else { 0 }))
}

impl EstimateArgs {
    /// The directory of the sweep, planned if a file is named.
    fn find_dir(&self) -> Result<SweepDir, CommandFailure> {
        if !is_sweep_file(&self.path) {
            return absolute_dir(&self.path);
        }
        let planned = plan_file(&self.path, self.dir.as_deref(), false)?;
        if !self.pool.is_quiet() {
            stdio::print_error_line(planned.report.trim_end());
        }
        absolute_dir(&planned.dir.root)
    }

    /// The command that continues.
    fn command(&self) -> String {
        let only = self.only.as_ref().map(ToString::to_string);
        let options = [("only", only.as_deref()), ("pilot", Some(&*self.pilot.to_string()))];
        command_text("sweep estimate", &self.path, self.dir.as_deref(), &options)
    }
}
