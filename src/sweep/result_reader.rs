//! Reads the result lines of a sweep.

use super::plan_reader::unreadable_file;
use crate::failure::CommandFailure;
use delta_base::durable;
use delta_sweep::layout::SweepDir;
use delta_sweep::result_line::SweepResults;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileExt;

/// The result lines of all hosts, which can be read further while workers append to them.
#[derive(Debug)]
pub struct ResultReader {
    dir: SweepDir,
    pub results: SweepResults,
    /// How much of each file was read.
    offsets: HashMap<OsString, u64>,
}

impl ResultReader {
    /// Reads all lines that there are.
    pub fn open(dir: &SweepDir) -> Result<Self, CommandFailure> {
        let mut reader =
            Self { dir: dir.clone(), results: SweepResults::default(), offsets: HashMap::new() };
        reader.read_new()?;
        Ok(reader)
    }

    /// Reads the lines that were added since the last time.
    pub fn read_new(&mut self) -> Result<(), CommandFailure> {
        let path = self.dir.results();
        let entries = match durable::read_dir_no_follow(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|source| unreadable_file(path.clone(), source))?,
        };
        for entry in entries {
            if !entry.name.to_string_lossy().ends_with(".jsonl") {
                continue;
            }
            let file = path.join(&entry.name);
            let offset = self.offsets.entry(entry.name).or_default();
            let bytes =
                read_from(&file, *offset).map_err(|source| unreadable_file(file, source))?;
            *offset += self.results.add_file(&bytes) as u64;
        }
        Ok(())
    }
}

fn read_from(path: &std::path::Path, offset: u64) -> io::Result<Vec<u8>> {
    let file = durable::open_no_follow(path)?;
    let length = file.metadata()?.len().saturating_sub(offset);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
