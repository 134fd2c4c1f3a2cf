//! `delta diff`: compares two states of a workspace, or two runs.

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_operator::arguments::completion_candidates;
use delta_operator::command_line;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::runs::restore_point::RestorePoint;
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::run_list;
use delta_program::default_format::{TextOrJson, is_default_format};
use delta_program::stdio;
use std::path::PathBuf;
use std::process::ExitCode;

mod diff_painter;
mod runs;
mod staged;
mod staged_call;
mod workspace;

/// The exit code of a failure: 1 means that something differs.
const EXIT_TROUBLE: u8 = 2;

/// Compare the workspace of a run at two iterations, or two runs
///
/// With N and M, prints a diff between the ends of two iterations, for `git apply` and `patch -p1`; 0 is the state before the
/// run, `now` the current files. With two runs, shows where they diverge. With a staged run alone, prints what `delta apply`
/// would change.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, mut_arg("env_file", |arg| arg.hide_long_help(true)), override_usage = "delta diff [OPTIONS] <RUN>\n       delta diff [OPTIONS] <RUN> <N> [M]\n       delta diff [OPTIONS] <RUN_A> <RUN_B>")]
pub struct DiffArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Earlier iteration or snapshot id prefix; or another run [default: what a staged run would change]
    #[arg(value_name = "N|RUN_B", add = ArgValueCandidates::new(run_list::run_candidates))]
    other: Option<String>,
    /// Later iteration or snapshot id prefix [default: now]
    #[arg(value_name = "M")]
    to: Option<String>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Print what the call that waits for approval has changed [default in a run without `--stage`]
    #[arg(long, conflicts_with_all = ["other", "to"])]
    call: bool,
    /// Print the number of changed lines of each file
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,
    /// Print only the paths that differ
    #[arg(long)]
    name_only: bool,
    #[command(flatten)]
    env_files: EnvFileOptions,
    /// Output format for two runs, and for staged changes [default: text]
    #[arg(long, value_enum, conflicts_with_all = ["stat", "name_only"])]
    format: Option<TextOrJson>,
}

const EXAMPLES: &str = "\
Examples:
  delta diff RUN -w ./work             # what a staged run would change
  delta diff RUN 2 3 -w ./work         # what iteration 3 changed
  delta diff RUN 0 -w ./work --stat    # what changed since the start of the run
  delta diff RUN 3 now -w ./work | git apply -R --directory ./work
  delta diff RUN_A RUN_B -w ./work --format json | jq .parts

Exit codes: 0 nothing differs, 1 something does, 2 failure";

/// Compares; returns the exit code.
pub fn diff_command(args: &DiffArgs) -> ExitCode {
    let to = args.to.as_deref().map_or(Ok(RestorePoint::Now), RestorePoint::parse);
    let code = match (&args.other, to) {
        (None, _) => staged::diff_stage(args),
        (Some(other), to) => diff_with(args, other, to),
    };
    // 1 says that something differs.
    stdio::finish_output_or(code, ExitCode::from(EXIT_TROUBLE))
}

fn diff_with(args: &DiffArgs, other: &str, to: Result<RestorePoint, String>) -> ExitCode {
    let usage = |message: &str| command_line::print_usage_error::<DiffArgs>("diff", message);
    match (RestorePoint::parse(other), to, RunArgument::parse(other)) {
        (Ok(_), Ok(_), _) if args.format.is_some() && !is_default_format() => {
            usage("--format is for two runs and for staged changes")
        }
        (Ok(from), Ok(to), _) => workspace::diff_workspace(args, &from, &to),
        (Err(_), _, Ok(_)) if args.stat || args.name_only => {
            usage("--stat and --name-only are for two iterations of a run")
        }
        (Err(_), _, Ok(other)) if args.to.is_none() => runs::diff_runs(args, &other),
        (Err(message), ..) | (_, Err(message), _) => usage(&message),
    }
}
