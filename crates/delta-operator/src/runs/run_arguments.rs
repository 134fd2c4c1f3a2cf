//! The runs of a command that takes several.

use crate::failure::CommandFailure;
use crate::runs::run_argument::RunArgument;
use crate::runs::run_list::{self, RunListEntry};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, PathCompleter};
use std::path::PathBuf;

/// The arguments that name several runs.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Runs: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    runs: Vec<RunArgument>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(PathCompleter::dir()))]
    pub work_dir: PathBuf,
    /// Select in all workspaces in these directories, at any depth [default without DIR: the current directory]
    #[arg(short, long, value_name = "DIR", num_args = 0.., conflicts_with_all = ["runs", "work_dir"], add = ArgValueCompleter::new(PathCompleter::dir()))]
    recursive: Option<Vec<PathBuf>>,
}

impl RunArguments {
    /// The named runs, or with `-r` all runs below the directories to which the command `applies`.
    pub fn select(
        &self,
        applies: impl Fn(&RunListEntry) -> bool,
    ) -> Result<Vec<RunArgument>, CommandFailure> {
        let Some(dirs) = &self.recursive else { return Ok(self.runs.clone()) };
        let mut entries = run_list::read_runs_of(&run_list::find_below(dirs)?);
        entries.retain(applies);
        Ok(named_by_path(&entries))
    }

    /// The file of a statement that the first argument names, and the runs after it: a name that ends with `.json`, or the path
    /// of a file.
    pub fn split_file(&self) -> Option<(PathBuf, &[RunArgument])> {
        let (first, runs) = self.runs.split_first()?;
        let (path, is_path) = match first {
            RunArgument::Last => return None,
            RunArgument::Name(name) => (PathBuf::from(name), false),
            RunArgument::Dir(path) => (path.clone(), true),
        };
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        (is_json || is_path && path.is_file()).then_some((path, runs))
    }

    /// With `-r`, the runs that are there now, for a command that looks again: without the notes of the first look.
    ///
    /// # Errors
    /// A directory of `-r` is missing or cannot be read.
    pub fn select_again(&self) -> Result<Vec<RunArgument>, CommandFailure> {
        let Some(dirs) = &self.recursive else { return Ok(Vec::new()) };
        Ok(named_by_path(&run_list::read_below_again(dirs)?))
    }

    /// Whether the runs are the ones below directories.
    pub fn is_recursive(&self) -> bool {
        self.recursive.is_some()
    }
}

/// In the order of their paths, whatever the order in which they were read.
fn named_by_path(entries: &[RunListEntry]) -> Vec<RunArgument> {
    let mut dirs: Vec<PathBuf> = entries.iter().map(RunListEntry::dir).collect();
    dirs.sort_unstable();
    dirs.into_iter().map(RunArgument::Dir).collect()
}
