//! The limit of what the calls of a run may leave in its directory.

use super::{Engine, EngineError};
use delta_process::MAX_SPOOL_BYTES;
use delta_run::record::call_files;
use delta_run::run::Run;

/// The option that sets the limit.
pub(super) const MAX_DISK_OPTION: &str = "--max-disk";

impl Engine<'_> {
    /// Fails if the calls of the run have reached the limit.
    pub(super) fn check_disk_limit(&self, run: &Run) -> Result<(), EngineError> {
        let Some(limit) = self.disk_limit else { return Ok(()) };
        let used = call_files::call_file_bytes(&run.dir);
        if used < limit { Ok(()) } else { Err(EngineError::DiskLimit { used, limit }) }
    }

    /// The most bytes that each of the two streams of a call may leave in a file: together not more than the limit allows.
    pub(super) fn max_stream_bytes(&self, run: &Run) -> u64 {
        self.disk_limit.map_or(MAX_SPOOL_BYTES, |limit| {
            limit.saturating_sub(call_files::call_file_bytes(&run.dir)) / 2
        })
    }
}

/// The option with a limit that leaves as much room again.
pub(super) fn higher_disk_limit(used: u64, limit: u64) -> String {
    format!("{MAX_DISK_OPTION} {}M", (used.max(limit) * 2).div_ceil(1 << 20))
}
