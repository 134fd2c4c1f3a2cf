//! The built-in agent: the template `coding`, written into the operator's state directory, where it can be looked at like
//! any other agent.

use crate::arguments::agent_template::{AgentTemplate, TemplateFile};
use crate::failure::CommandFailure;
use crate::state;
use delta_base::durable::{self, FileError};
use delta_base::hex::{encode_hex, sha256_hex};
use delta_base::random;
use std::path::{Path, PathBuf};

/// The name of the built-in agent.
pub const BUILTIN_AGENT: &str = "coding";
/// Its place in the state directory.
const BUILTIN_DIR: &str = "builtin";

/// The directory of the built-in agent, `builtin/HASH/coding` in the state directory; the hash is over its files. They
/// are written once; a directory that misses a file or has another content is written again.
///
/// # Errors
/// There is no state directory of this user, or the files cannot be written.
pub fn ensure_builtin_agent() -> Result<PathBuf, CommandFailure> {
    let files: Vec<TemplateFile> = AgentTemplate::Coding.render(BUILTIN_AGENT).collect();
    let state = state::own_state_dir().map_err(|missing| {
        let message = format!("the built-in agent cannot be written: {}", missing.reason());
        let hint = "set DELTA_STATE_DIR, or write the agent elsewhere: `delta init -t coding DIR`, and run it with `--agent DIR`";
        CommandFailure::config(message, hint)
    })?;
    let parent = state.join(BUILTIN_DIR);
    let version = parent.join(hash_files(&files));
    let home = version.join(BUILTIN_AGENT);
    if !is_complete(&home, &files) {
        write_files(&parent, &version, &files)?;
    }
    Ok(home)
}

/// The directory of all versions of the built-in agent, which need not exist.
pub fn builtin_directory() -> Option<PathBuf> {
    state::own_state_dir().ok().map(|state| state.join(BUILTIN_DIR))
}

/// The first 16 digits of the SHA-256 of the paths and contents, each prefixed with its length. The path is in every command
/// line that is shown, and the files are compared with their contents.
fn hash_files(files: &[TemplateFile]) -> String {
    let texts = files.iter().flat_map(|file| [&file.path, &file.text]);
    let mut hash =
        sha256_hex(texts.map(|text| format!("{} {text}", text.len())).collect::<String>());
    hash.truncate(16);
    hash
}

fn is_complete(home: &Path, files: &[TemplateFile]) -> bool {
    files.iter().all(|file| {
        durable::read_no_follow(&home.join(&file.path))
            .is_ok_and(|bytes| bytes == file.text.as_bytes())
    })
}

/// Writes the files into a new directory and renames it, so that no process sees a part of them.
fn write_files(parent: &Path, version: &Path, files: &[TemplateFile]) -> Result<(), FileError> {
    let suffix = encode_hex(&random::random_bytes::<8>());
    let new = parent.join(format!("new-{suffix}"));
    let old = parent.join(format!("old-{suffix}"));
    let written = write_dir(&new.join(BUILTIN_AGENT), files).and_then(|()| {
        let renamed = durable::rename_dir_unsynced(&new, version);
        if renamed.is_ok() || is_complete(&version.join(BUILTIN_AGENT), files) {
            // Another process may have been faster.
            return Ok(());
        }
        durable::rename_dir_unsynced(version, &old)?;
        durable::rename_dir_unsynced(&new, version)
    });
    for leftover in [&new, &old] {
        let _ = durable::remove_dir_all_no_follow(leftover);
    }
    written
}

/// No other user can open the directory, so the modes of the files do not matter.
fn write_dir(home: &Path, files: &[TemplateFile]) -> Result<(), FileError> {
    for file in files {
        let path = home.join(&file.path);
        durable::ensure_private_dir(path.parent().unwrap_or(home))?;
        durable::create_shared_unsynced(&path, file.text.as_bytes(), file.is_executable())?;
    }
    Ok(())
}
