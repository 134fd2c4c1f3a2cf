//! The program `delta`, which works on the runs.

use delta_operator::failure::CommandFailure;
use std::path::PathBuf;

/// The file of `delta` in the directory of this program.
///
/// # Errors
/// There is none.
pub fn find_delta() -> Result<PathBuf, CommandFailure> {
    let program = std::env::current_exe().map_err(|error| {
        CommandFailure::config(format!("could not find the program delta: {error}"), None)
    })?;
    let delta = program.canonicalize().unwrap_or(program).with_file_name("delta");
    if delta.is_file() {
        return Ok(delta);
    }
    let message =
        format!("the program delta, which works on the runs, is missing: {}", delta.display());
    Err(CommandFailure::config(message, "install `delta` and `delta-sweep` in one directory"))
}
