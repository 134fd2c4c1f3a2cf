//! The directory for the runs of all workspaces: `--runs-dir`, DELTA_RUNS_DIR, or `runs_dir` in config.yaml.

use crate::failure::CommandFailure;
use crate::{config, environment};
use delta_run::workspace::{self, RUNS_DIR_VARIABLE};
use std::path::{Path, PathBuf};

/// Puts the runs where the operator wants them; with an empty name, into their workspaces. Call this before a run is looked for.
///
/// # Errors
/// The configuration has a mistake where it may name the directory.
pub fn apply_runs_dir(option: Option<&Path>) -> Result<(), CommandFailure> {
    let chosen = option.map(Path::to_owned);
    let chosen = chosen.or_else(|| environment::os_variable(RUNS_DIR_VARIABLE).map(PathBuf::from));
    let chosen = chosen.map_or_else(config::configured_runs_dir, |dir| Ok(Some(dir)))?;
    if let Some(dir) = chosen.filter(|dir| !dir.as_os_str().is_empty()) {
        let dir = workspace::resolve_existing(&dir);
        workspace::set_runs_dir(dir, option.is_some());
    }
    Ok(())
}
