//! `delta diff`: what differs between two states of a workspace.

use super::completions;
use super::point::Point;
use crate::id::RunId;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use std::path::PathBuf;
use std::process::ExitCode;

mod workspace;

/// Compare the workspace of a run at two iterations
///
/// Prints a unified diff, which `git apply` and `patch -p1` read. N and M are iterations, at their ends; 0 is the
/// beginning of the run, `now` what is there now. The exit code is 0 when nothing differs, 1 when something does, 2 when
/// it cannot be told.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DiffArgs {
    /// The run
    #[arg(value_name = "RUN", value_parser = super::parse_run_id, add = ArgValueCandidates::new(completions::runs))]
    run: RunId,
    /// The iteration before; or the first digits of a tree that the journal names
    #[arg(value_name = "N")]
    from: String,
    /// The iteration after (`now` by default)
    #[arg(value_name = "M")]
    to: Option<String>,
    /// The workspace that holds the run
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// Print how many lines of each file differ
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,
    /// Print the paths that differ
    #[arg(long)]
    name_only: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta diff RUN 2 3 -w ./work           what iteration 3 did
  delta diff RUN 0 -w ./work --stat      what has changed since the beginning
  delta diff RUN 3 now -w ./work | git -C ./work apply -R";

/// Compares; gives the exit code.
pub fn diff(args: &DiffArgs) -> ExitCode {
    let to = args.to.as_deref().map_or(Ok(Point::Now), Point::parse);
    match (Point::parse(&args.from), to) {
        (Ok(from), Ok(to)) => workspace::diff(args, &from, &to),
        (Err(why), _) | (_, Err(why)) => super::usage_error("diff", &why),
    }
}
