//! What a run keeps of its agent: the files of its configuration, and the check value of each in ENGINE_START.
//!
//! A process that finds the agent changed keeps it again beside what is there, so that every request can be explained by
//! the configuration that it was made with.

use crate::crc;
use crate::durable::{self, FileError};
use crate::event::EngineStart;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the files lie, relative to the run directory.
const DIR: &str = "agent";

/// The member `kept` of the `config` in ENGINE_START.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The directory, relative to the run directory.
    pub dir: String,
    /// The check value of each file in it.
    pub crc: BTreeMap<String, String>,
}

impl Kept {
    /// What `start` says; `None` when an older delta wrote it.
    pub fn of(start: &EngineStart) -> Option<Self> {
        serde_json::from_value(start.config.get("kept")?.clone()).ok()
    }

    /// Where a file lies, when its name is a plain one.
    pub fn path(&self, run_dir: &Path, name: &str) -> PathBuf {
        run_dir.join(&self.dir).join(name)
    }

    /// Whether the directory is one of those in which [`keep`] puts files.
    pub fn is_plausible(&self) -> bool {
        let number = self.dir.strip_prefix("agent/");
        let names = self.crc.keys();
        let plain = |name: &String| !name.contains('/') && !name.starts_with('.');
        (self.dir == DIR || number.is_some_and(|number| number.parse::<u32>().is_ok())) && { names }
            .all(plain)
    }
}

/// Keeps `files`, each a name and its text, unless they lie where the process `before` has kept its own. `epoch` is the
/// number of this process.
pub fn keep(
    run_dir: &Path,
    epoch: u32,
    before: Option<&EngineStart>,
    files: &[(&str, String)],
) -> Result<Kept, FileError> {
    let crc = files.iter().map(|(name, text)| ((*name).to_owned(), crc::of(text.as_bytes())));
    let crc: BTreeMap<String, String> = crc.collect();
    let there = before.and_then(Kept::of).filter(Kept::is_plausible);
    if let Some(there) = there.filter(|there| there.crc == crc && lies(run_dir, there, files)) {
        return Ok(there);
    }
    let dir = match before {
        None => DIR.to_owned(),
        Some(_) => format!("{DIR}/{epoch}"),
    };
    let path = run_dir.join(&dir);
    if before.is_some() {
        // Left by a process that died before it was in the journal; nothing to take away is fine.
        let _ = fs::remove_dir_all(&path);
        durable::ensure_dir(&path, true)?;
    }
    for (name, text) in files {
        durable::write_new(&path.join(name), text.as_bytes())?;
    }
    Ok(Kept { dir, crc })
}

/// Whether the files lie there.
fn lies(run_dir: &Path, kept: &Kept, files: &[(&str, String)]) -> bool {
    let same = |name: &str, text: &str| {
        durable::read_regular(&kept.path(run_dir, name)).is_ok_and(|bytes| bytes == text.as_bytes())
    };
    files.iter().all(|(name, text)| same(name, text))
}
