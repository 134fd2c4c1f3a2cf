//! The calls that the operator has allowed in a directory from now on.
//!
//! Each is a small file of its own in the operator's state directory, which no sandboxed tool sees. Its name is the hash of
//! everything that must be the same, so a lookup reads one file.

use crate::agent::Agent;
use crate::run_sandbox::RunSandbox;
use crate::trust_store::{contains_directory, list_entries, read_entry, remove_entry};
use delta_base::durable::{self, FileError};
use delta_base::hex::sha256_hex;
use delta_base::time::Timestamp;
use delta_run::event::approval::{ApprovalRequest, EVERY_TOOL};
use delta_shell::read_plain_command;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const CALLS_DIR: &str = "allowed";

/// The digits of an id that a list shows.
pub const SHOWN_ID_DIGITS: usize = 12;

/// A call that the operator has allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedCall {
    /// What must be the same.
    #[serde(flatten)]
    pub identity: CallIdentity,
    /// The SHA-256 of the program and of the scripts that the command line names.
    pub files: BTreeMap<String, String>,
    /// The command line, for a list.
    pub argv: Vec<String>,
    /// When it was allowed.
    pub at: Timestamp,
}

/// What makes two calls the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallIdentity {
    /// The name of the agent.
    pub agent: String,
    /// The agent directory, absolute.
    pub agent_home: PathBuf,
    /// The name of the tool.
    pub tool: String,
    /// The workspace, absolute and without symlinks.
    pub dir: PathBuf,
    /// Its inode.
    inode: u64,
    /// When it was created, in nanoseconds since 1970; 0 where the file system does not tell.
    born: u64,
    /// The SHA-256 of command line, standard input, directory, environment and sandbox of the definition.
    command_sha256: String,
    /// The SHA-256 of the sandbox as it is enforced.
    profile_sha256: String,
}

impl CallIdentity {
    /// The identity of the call in `request`; `None` for a call that cannot be allowed in advance: without an enforced sandbox,
    /// with staged changes, of an MCP server, or with an argument that a shell may take for more than words.
    pub fn new(
        agent: &Agent,
        workspace: &Path,
        sandbox: &RunSandbox,
        request: &ApprovalRequest,
    ) -> Option<Self> {
        let record = sandbox.record();
        let profile = record.profiles.get(record.tools.get(&request.tool_name)?)?;
        let is_lasting = request.stage.is_none() && request.files.is_some();
        if profile.by == "none" || !is_lasting || !has_plain_words(&request.tool_args) {
            return None;
        }
        let dir = workspace.canonicalize().ok()?;
        let metadata = fs::metadata(&dir).ok()?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let profile = json!([profile, record.without]).to_string();
        Some(Self {
            agent: agent.name.clone(),
            agent_home: agent.home.clone(),
            tool: request.tool_name.clone(),
            dir,
            inode: metadata.ino(),
            born: born.map_or(0, |born| u64::try_from(born.as_nanos()).unwrap_or(0)),
            command_sha256: request.command_sha256.clone(),
            profile_sha256: sha256_hex(profile),
        })
    }

    /// The name of the file that has it.
    fn id(&self) -> String {
        sha256_hex(json!(self).to_string())
    }
}

impl AllowedCall {
    /// What names it in a list.
    pub fn id(&self) -> String {
        self.identity.id()
    }
}

/// Whether every text in the arguments is plain words to each shell: no operator, redirection, expansion or hidden character.
fn has_plain_words(arguments: &Json) -> bool {
    match arguments {
        Json::String(text) => text.is_empty() || read_plain_command(text).is_some(),
        Json::Array(items) => items.iter().all(has_plain_words),
        Json::Object(fields) => fields.values().all(has_plain_words),
        _ => true,
    }
}

/// The allowed calls in the operator's state directory.
#[derive(Debug, Clone)]
pub struct AllowedCalls {
    directory: PathBuf,
    /// The tools that ask nevertheless, [`EVERY_TOOL`] for all.
    asking: Vec<String>,
}

impl AllowedCalls {
    /// The calls in a state directory, which need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join(CALLS_DIR), asking: Vec::new() }
    }

    /// The calls for a run in `workspace`; `None` if that contains the directory, so that the agent can write it. The tools
    /// `asking` ask nevertheless.
    pub fn for_run(self, workspace: &Path, asking: Vec<String>) -> Option<Self> {
        (!contains_directory(workspace, &self.directory)).then_some(Self { asking, ..self })
    }

    /// Whether the operator can allow the call.
    pub fn covers(&self, identity: &CallIdentity) -> bool {
        !self.asking.iter().any(|tool| tool == EVERY_TOOL || *tool == identity.tool)
    }

    /// When the call was allowed, if it was and `files`, which it starts now, are as they were.
    pub fn allowed_at(
        &self,
        identity: &CallIdentity,
        files: &BTreeMap<String, String>,
    ) -> Option<Timestamp> {
        let call = read_call(&self.directory.join(identity.id()))?;
        let is_same = call.identity == *identity && call.files == *files && self.covers(identity);
        is_same.then_some(call.at)
    }

    /// Allows the call of `request` from now on.
    ///
    /// # Errors
    /// It could not be written.
    pub fn allow(
        &self,
        identity: CallIdentity,
        request: &ApprovalRequest,
        at: Timestamp,
    ) -> Result<(), FileError> {
        let path = self.directory.join(identity.id());
        let files = request.files.clone().unwrap_or_default();
        let call = AllowedCall { identity, files, argv: request.argv.clone(), at };
        durable::ensure_private_dir(&self.directory)?;
        durable::replace_private_synced(&path, format!("{}\n", json!(call)).as_bytes())
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Vec<AllowedCall> {
        let entries = list_entries(&self.directory);
        let mut calls: Vec<_> = entries.iter().filter_map(|path| read_call(path)).collect();
        calls.sort_by_key(|call| (call.at, call.id()));
        calls
    }

    /// No longer allows a call; returns whether it was allowed.
    ///
    /// # Errors
    /// It could not be removed.
    pub fn remove(&self, call: &AllowedCall) -> Result<bool, FileError> {
        remove_entry(&self.directory.join(call.id()))
    }
}

/// Reads an allowed call from the file that its id names.
fn read_call(path: &Path) -> Option<AllowedCall> {
    let call: AllowedCall = serde_json::from_slice(&read_entry(path)?).ok()?;
    path.ends_with(call.id()).then_some(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_36_17_only_plain_words_can_be_allowed() {
        for plain in ["", "cargo test", "./x --y=1 'a b'", "git log -3"] {
            assert!(has_plain_words(&json!({"command": plain, "timeout": 5})), "{plain}");
        }
        for other in [
            "a; b",
            "a && b",
            "a | b",
            "a > b",
            "a $b",
            "a $(b)",
            "a `b`",
            "a\nb",
            "a *",
            "x=1 a",
            "a &",
            "(a)",
            "a #",
            "a\\b",
            "a \u{200b}",
            "~/a b; c",
        ] {
            assert!(!has_plain_words(&json!({"command": other})), "{other}");
            assert!(!has_plain_words(&json!({"list": [other]})), "{other}");
        }
    }
}
