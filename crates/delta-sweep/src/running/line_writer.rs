//! Result lines and grades, appended to a file of this host.

use delta_base::durable::{self, SharedLineFile};
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_worker::host_file_stem;
use std::path::Path;

/// Opens the file of this kernel and mount in `results/` or `grades/`, and creates both when missing. What a line is about
/// is durable before the line is appended.
pub fn open_line_file(dir: &Path) -> Result<SharedLineFile, CommandFailure> {
    durable::ensure_shared_dir(dir)?;
    let name = host_file_stem(dir)? + ".jsonl";
    Ok(SharedLineFile::open(&dir.join(name))?)
}
