//! Tells a journal that has lost its events from the one of a run that never began.

use super::JournalError;
use super::line_reader::JournalScan;
use crate::event::RunStatus;
use crate::run_files::METADATA_FILE;
use crate::state::run_metadata::RunMetadata;
use std::path::Path;

/// Reads a journal with `scan`. If it contains no event although the run began, the error names that.
pub fn explain_no_events(
    run_dir: &Path,
    mut scan: impl FnMut() -> Result<JournalScan, JournalError>,
) -> Result<JournalScan, JournalError> {
    let first = scan();
    if no_events_path(&first).is_none() {
        return first;
    }
    let Some(reason) = find_trace(run_dir) else { return first };
    // A process may have written the first events since.
    let second = scan();
    match no_events_path(&second) {
        Some(path) => Err(JournalError::LostEvents { path: path.to_owned(), reason }),
        None => second,
    }
}

fn no_events_path(scan: &Result<JournalScan, JournalError>) -> Option<&Path> {
    match scan {
        Err(JournalError::NoEvents(path))
        | Ok(JournalScan { damage: Some(JournalError::NoEvents(path)), .. }) => Some(path),
        _ => None,
    }
}

/// What shows that the run began. metadata.json is written after the first events are durable, but their directory is synced
/// with it: a power failure can leave the first one without a journal.
pub fn find_trace(run_dir: &Path) -> Option<String> {
    match RunMetadata::read(run_dir)? {
        Ok(metadata) if metadata.status == RunStatus::Running && metadata.iterations == 0 => None,
        Ok(RunMetadata { status, updated_at, .. }) => {
            Some(format!("{METADATA_FILE} has {status} at {updated_at}"))
        }
        Err(reason) => Some(format!("{METADATA_FILE} exists, and cannot be read: {reason}")),
    }
}
