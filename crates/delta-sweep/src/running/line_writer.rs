//! Result lines and grades, appended to a file of this host.

use delta_base::durable::{self, SharedLineFile};
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_worker::host_file_stem;
use std::path::Path;

/// Appends lines to the file of this kernel and mount, in `results/` or `grades/`.
pub struct LineWriter(SharedLineFile);

impl LineWriter {
    /// Opens the file in the directory, and creates both when missing.
    pub fn open(dir: &Path) -> Result<Self, CommandFailure> {
        durable::ensure_shared_dir(dir)?;
        let name = host_file_stem(dir)? + ".jsonl";
        Ok(Self(SharedLineFile::open(&dir.join(name))?))
    }

    /// Appends a line with its newline. What it is about is durable already.
    pub fn append(&mut self, line: &str) -> Result<(), CommandFailure> {
        Ok(self.0.append(line)?)
    }
}
