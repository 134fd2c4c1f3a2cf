//! `delta sweep status`: how far a sweep is.

use crate::formats::plan_file::SweepPlan;
use crate::formats::result_line::SweepResults;
use crate::formats::summary::SweepSummary;
use crate::running::result_reader::{ResultReader, read_sweep};
use crate::running::status_painter::summarize;
use clap::{Args, ValueEnum};
use delta_base::shell_quote::shell_quote_path;
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_program::number_argument::parse_time_in;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The width without a terminal.
const DEFAULT_WIDTH: usize = 80;

/// Show the status of a sweep
///
/// Reads the plan, the results and what the processes of the sweep report; opens no run.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct StatusArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Show it again whenever it changes, until no run remains; with `--format json`, one object per line
    #[arg(long)]
    watch: bool,
    /// With `--watch`: the time between two looks
    #[arg(long, value_name = "TIME", requires = "watch", default_value = "2s", value_parser = parse_time_in(100..=86_400_000))]
    interval: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep status terse-or-not --watch
  delta sweep status terse-or-not --format json | jq .settled

Exit codes: 0 all runs are finished, 2 usage error, 3 not yet, 126 the plan has an error";

/// How a command prints a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// A few lines
    Text,
    /// One JSON object; with --watch, one a line
    Json,
}

/// Prints the status; returns the exit code.
pub fn status_command(args: &StatusArgs) -> Result<ExitCode, CommandFailure> {
    let dir = SweepDir::new(&args.dir);
    let (plan, mut reader) = read_sweep(&dir)?;
    if args.watch {
        let cancel = cancel::install_cancel()?;
        return watch(args, &dir, &plan, &mut reader, &cancel);
    }
    let summary = summarize(&dir, &plan, &reader.results, None)?;
    print_status(&summary, args.format, &dir);
    Ok(exit_code(&summary))
}

fn exit_code(summary: &SweepSummary) -> ExitCode {
    ExitCode::from(if summary.settled == summary.runs { 0 } else { 3 })
}

/// The status as text, for the end of `run`.
pub fn status_text(
    dir: &SweepDir,
    plan: &SweepPlan,
    results: &SweepResults,
) -> Result<String, CommandFailure> {
    Ok(to_text(&summarize(dir, plan, results, None)?, dir))
}

fn to_text(summary: &SweepSummary, dir: &SweepDir) -> String {
    summary.to_text(terminal_width().max(40), &shell_quote_path(&dir.root))
}

/// The columns of the terminal; 80 without one.
pub fn terminal_width() -> usize {
    terminal::stdout_size().map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns))
}

fn print_status(summary: &SweepSummary, format: ReportFormat, dir: &SweepDir) {
    match format {
        ReportFormat::Text => stdio::print_text(&to_text(summary, dir)),
        ReportFormat::Json => stdio::print_json(&(delta_base::json::to_json(summary) + "\n")),
    };
}

/// Prints the status whenever it changes. At a terminal it replaces what it printed before.
fn watch(
    args: &StatusArgs,
    dir: &SweepDir,
    plan: &SweepPlan,
    reader: &mut ResultReader,
    cancel: &CancelToken,
) -> Result<ExitCode, CommandFailure> {
    let is_repainted = args.format == ReportFormat::Text && terminal::is_stdout_terminal();
    let mut printed = String::new();
    loop {
        reader.read_new()?;
        let summary = summarize(dir, plan, &reader.results, None)?;
        let text = match args.format {
            ReportFormat::Text => to_text(&summary, dir),
            ReportFormat::Json => delta_base::json::to_json(&summary) + "\n",
        };
        if text != printed {
            if is_repainted {
                stdio::print_replacing(&printed, &text, terminal_width());
            } else {
                print_status(&summary, args.format, dir);
            }
            printed = text;
        }
        if summary.settled == summary.runs {
            return Ok(ExitCode::SUCCESS);
        }
        if cancel.wait(Duration::from_millis(args.interval)) {
            return Ok(ExitCode::from(130));
        }
    }
}
