//! `delta diff`: what differs between two states of a workspace, or between two runs.

use super::completions;
use super::named::Named;
use super::point::Point;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use std::path::PathBuf;
use std::process::ExitCode;

mod runs;
mod workspace;

/// The exit code of whoever cannot tell: 1 says that something differs.
const TROUBLE: u8 = 2;

/// Compare the workspace of a run at two iterations, or two runs
///
/// With N and M, iterations at their ends, it prints what differs in the workspace as a unified diff, which `git apply` and
/// `patch -p1` read; 0 is the beginning of the run, `now` what is there now. With another run, it shows where the two
/// part, and what each did from there on. The exit code is 0 when nothing differs, 1 when something does, 2 when it cannot
/// be told.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = "delta diff [OPTIONS] <RUN> <N> [M]\n       delta diff [OPTIONS] <RUN_A> <RUN_B>")]
pub struct DiffArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// The iteration before, or the first digits of a tree that the journal names; or another run, by its id or the path
    /// of its directory
    #[arg(value_name = "N|RUN_B", add = ArgValueCandidates::new(completions::runs))]
    other: String,
    /// The iteration after (`now` by default)
    #[arg(value_name = "M")]
    to: Option<String>,
    /// The workspace that holds what is named by an id
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// Print how many lines of each file differ
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,
    /// Print the paths that differ
    #[arg(long)]
    name_only: bool,
    /// What stdout carries, of two runs
    #[arg(long, value_enum, conflicts_with_all = ["stat", "name_only"])]
    format: Option<Format>,
}

const EXAMPLES: &str = "\
Examples:
  delta diff RUN 2 3 -w ./work           what iteration 3 did
  delta diff RUN 0 -w ./work --stat      what has changed since the beginning
  delta diff RUN 3 now -w ./work | git apply -R --directory ./work
  delta diff RUN ./elsewhere/.delta/FORK -w ./work
  delta diff RUN_A RUN_B -w ./work --format json | jq .parts";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
}

/// Compares; gives the exit code.
pub fn diff(args: &DiffArgs) -> ExitCode {
    let usage = |why: &str| super::usage_error("diff", why);
    let to = args.to.as_deref().map_or(Ok(Point::Now), Point::parse);
    match (Point::parse(&args.other), to, Named::parse(&args.other)) {
        (Ok(_), Ok(_), _) if args.format.is_some() => usage("--format is for two runs"),
        (Ok(from), Ok(to), _) => workspace::diff(args, &from, &to),
        (Err(_), _, Ok(_)) if args.stat || args.name_only => {
            usage("--stat and --name-only are for two iterations of a run")
        }
        (Err(_), _, Ok(other)) if args.to.is_none() => runs::diff(args, &other),
        (Err(why), ..) | (_, Err(why), _) => usage(&why),
    }
}
