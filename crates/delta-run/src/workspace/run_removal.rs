//! Removes runs. A run disappears at once: its directory gets a name that no command takes for a run. Its files are deleted
//! after that, and what a crash leaves of them, the next removal in the workspace deletes.

use crate::ownership::Ownership;
use crate::workspace::Workspace;
use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::random::random_bytes;
use std::io;
use std::path::Path;

/// The beginning of the name of a removed run's directory. A run id does not start with a dot.
const REMOVED_PREFIX: &str = ".removed-";

/// Removes the run in `run_dir`, a run directory of `workspace`, which this process owns.
///
/// # Errors
/// The run is unchanged, or it is gone and some of its files are left.
pub fn remove_run(
    workspace: &Workspace,
    run_dir: &Path,
    ownership: Ownership,
) -> Result<(), FileError> {
    let name = run_dir.file_name().unwrap_or_default().to_string_lossy();
    // The random part tells it apart from what is left of a removed run with the same id.
    let removed_name = format!("{REMOVED_PREFIX}{name}-{}", encode_hex(&random_bytes::<4>()));
    let removed = workspace.control_dir().join(removed_name);
    durable::rename_dir_synced(run_dir, &removed)?;
    let deleted = delete_dir(&removed);
    // Until here, a process that waits for the lock of the run must not get it.
    drop(ownership);
    deleted
}

/// Deletes what earlier removals in the workspace have left. Returns whether there was anything.
///
/// # Errors
/// Some of it could not be deleted.
pub fn delete_removed_runs(workspace: &Workspace) -> Result<bool, FileError> {
    let control = workspace.control_dir();
    let entries = durable::read_dir_no_follow(&control).unwrap_or_default();
    let removed = entries.iter().filter(|entry| {
        entry.is_dir() && entry.name.to_str().is_some_and(|name| name.starts_with(REMOVED_PREFIX))
    });
    let mut has_leftovers = false;
    for entry in removed {
        has_leftovers = true;
        delete_dir(&control.join(&entry.name))?;
    }
    Ok(has_leftovers)
}

fn delete_dir(dir: &Path) -> Result<(), FileError> {
    match durable::remove_dir_all_no_follow(dir) {
        // Another removal deletes the same files.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(FileError { action: "remove", path: dir.to_owned(), source }),
        Ok(()) => Ok(()),
    }
}
