//! The options of every command, which their own lists leave out.

use crate::failure::CommandFailure;
use crate::lease_options::LeaseOptions;
use crate::runs_dir;
use clap::Args;
use delta_run::workspace::RUNS_DIR_VARIABLE;
use std::ffi::OsString;
use std::path::PathBuf;

/// The options of every command.
#[derive(Debug, Args)]
pub struct GlobalOptions {
    /// Keep the runs of all workspaces below DIR, and nothing in the workspaces
    #[arg(long, value_name = "DIR", global = true, hide = true, value_hint = clap::ValueHint::DirPath)]
    runs_dir: Option<PathBuf>,
    #[command(flatten)]
    lease: LeaseOptions,
}

impl GlobalOptions {
    /// Makes them apply to this process. Call this before a run is looked for.
    ///
    /// # Errors
    /// A variable or the configuration has an invalid value for one of them.
    pub fn apply(&self) -> Result<(), CommandFailure> {
        runs_dir::apply_runs_dir(self.runs_dir.as_deref())?;
        self.lease.apply()
    }

    /// The variables that say the same to a program that this one becomes.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let runs_dir = self.runs_dir.iter().map(|dir| (RUNS_DIR_VARIABLE.into(), dir.into()));
        runs_dir.chain(self.lease.variables())
    }
}
