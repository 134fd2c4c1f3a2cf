//! The copy of the agent's files in a run directory, whose hashes are in ENGINE_START.
//!
//! A process that finds the agent changed makes another copy, so that the configuration of every request is known.

use crate::event::{AgentCopy, EngineStart};
use delta_base::checksum;
use delta_base::durable::{self, FileError};
use delta_base::hex::sha256_hex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of the copies, relative to the run directory.
const AGENT_COPY_DIR: &str = "agent";

impl AgentCopy {
    /// The path of a copied file.
    pub fn path(&self, run_dir: &Path, name: &str) -> PathBuf {
        run_dir.join(&self.dir).join(name)
    }

    /// Reads a copied file.
    ///
    /// # Errors
    /// It is missing, not readable, not regular, or a symlink.
    pub fn read(&self, run_dir: &Path, name: &str) -> io::Result<Vec<u8>> {
        durable::read_no_follow_at_most(&self.path(run_dir, name), durable::MAX_REGULAR_BYTES)
    }

    /// Whether the directory and the file names are of the form that [`copy_agent_files`] uses. A journal that was edited
    /// may name any path.
    pub fn is_plausible(&self) -> bool {
        let is_numbered =
            self.dir.strip_prefix("agent/").is_some_and(|number| number.parse::<u32>().is_ok());
        (self.dir == AGENT_COPY_DIR || is_numbered)
            && self.file_names().all(|name| !name.contains('/') && !name.starts_with('.'))
    }

    /// The names of the copied files.
    pub fn file_names(&self) -> impl Iterator<Item = &String> {
        let older = self.crc.keys().filter(|name| !self.sha256.contains_key(*name));
        self.sha256.keys().chain(older)
    }

    /// The hash of `bytes` and the one in ENGINE_START, if the file `name` has other bytes.
    pub fn find_mismatch(&self, name: &str, bytes: &[u8]) -> Option<(String, &str)> {
        let (actual, written) = match self.sha256.get(name) {
            Some(written) => (sha256_hex(bytes), written),
            None => (checksum::crc32_hex(bytes), self.crc.get(name)?),
        };
        (actual != *written).then_some((actual, written))
    }
}

/// Whether a copy is of other files than `files`, names and contents. Unknown of runs of earlier versions.
pub fn is_copy_of_others(copy: &AgentCopy, files: &[(&str, String)]) -> bool {
    !copy.sha256.is_empty() && copy.sha256 != hash_copied_files(files)
}

fn hash_copied_files(files: &[(&str, String)]) -> BTreeMap<String, String> {
    files.iter().map(|(name, text)| ((*name).to_owned(), sha256_hex(text))).collect()
}

/// Copies `files`, names and contents, into the run directory. Reuses the copy of the process `before`, the last one, if it
/// has the same files. `epoch` is the number of this process.
pub fn copy_agent_files(
    run_dir: &Path,
    epoch: u32,
    before: Option<&EngineStart>,
    files: &[(&str, String)],
) -> Result<AgentCopy, FileError> {
    let sha256 = hash_copied_files(files);
    if let Some(earlier) = before.and_then(|start| start.config.kept.as_ref())
        && earlier.is_plausible()
        && earlier.sha256 == sha256
        && copy_matches(run_dir, earlier, files)
    {
        return Ok(earlier.clone());
    }
    let dir = match before {
        None => AGENT_COPY_DIR.to_owned(),
        Some(_) => format!("{AGENT_COPY_DIR}/{epoch}"),
    };
    let path = run_dir.join(&dir);
    if before.is_some() {
        // A process that died before its ENGINE_START may have left files there.
        let _ = durable::remove_dir_all_no_follow(&path);
        durable::ensure_private_dir(&path)?;
    }
    for (name, text) in files {
        durable::create_private_unsynced(&path.join(name), text.as_bytes())?;
    }
    Ok(AgentCopy { dir, crc: BTreeMap::new(), sha256 })
}

/// Whether the copy has exactly these contents.
fn copy_matches(run_dir: &Path, copy: &AgentCopy, files: &[(&str, String)]) -> bool {
    files.iter().all(|(name, text)| {
        durable::read_regular(&copy.path(run_dir, name)).is_ok_and(|bytes| bytes == text.as_bytes())
    })
}
