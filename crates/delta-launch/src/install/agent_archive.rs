//! Agents in archives, as tar, git, git hosts and package registries write them.

use delta_agent::agent::agent_files::{AgentFile, AgentFiles, check_path, check_target};
use flate2::read::GzDecoder;
use std::io::{self, Read};
use std::path::Path;
use tar::{Archive, EntryType};

/// The most bytes that an archive unpacks to, with what does not belong to the agent.
const MAX_UNPACKED_BYTES: u64 = 512 * 1024 * 1024;

/// Reads a tar.gz; only what is in `dir`, if it is named, at the top or in one directory.
///
/// # Errors
/// It is damaged, or has what no agent has.
pub fn read_archive(source: impl Read, dir: Option<&str>) -> Result<AgentFiles, String> {
    read_tar(GzDecoder::new(source), dir)
}

/// Reads a tar, as [`read_archive`].
///
/// # Errors
/// It is damaged, or has what no agent has.
pub fn read_tar(source: impl Read, dir: Option<&str>) -> Result<AgentFiles, String> {
    let mut files = AgentFiles::default();
    // Every length in it is what its author says: the limit also holds for names and what is skipped.
    let mut archive = Archive::new(source.take(MAX_UNPACKED_BYTES));
    let damaged =
        |error: io::Error| format!("the archive is damaged, or unpacks to too much: {error}");
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader) {
            continue;
        }
        let name = entry.path_bytes().into_owned();
        let path = check_path(without_dot(&name))?;
        let below_top = path.split_once('/').map_or("", |(_, path)| path);
        if dir.is_some_and(|dir| {
            [path, below_top].iter().all(|path| !Path::new(path).starts_with(dir))
        }) {
            continue;
        }
        let link = entry.link_name_bytes().unwrap_or_default().into_owned();
        let file = match kind {
            EntryType::Regular | EntryType::Continuous => {
                let is_executable = entry.header().mode().map_err(damaged)? & 0o100 != 0;
                let mut content = Vec::new();
                files.check_room(entry.size())?;
                entry.read_to_end(&mut content).map_err(damaged)?;
                if content.len() as u64 != entry.size() {
                    return Err(format!("the archive breaks off in `{path}`"));
                }
                AgentFile::Regular { content, is_executable }
            }
            EntryType::Symlink => AgentFile::Link(check_target(path, &link)?),
            // A second name of an earlier file.
            EntryType::Link => {
                let target = check_path(without_dot(&link))?;
                files
                    .get(target)
                    .cloned()
                    .ok_or_else(|| format!("`{path}` is a link to `{target}`, which is missing"))?
            }
            _ => return Err(format!("`{path}` is neither a file, a directory nor a link")),
        };
        files.insert(path, file)?;
    }
    Ok(files)
}

fn without_dot(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"./").unwrap_or(path)
}
