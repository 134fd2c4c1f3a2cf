//! The calls that the operator has allowed in a directory: with an answer, from then on, and in config.yaml.
//!
//! An answer is a small file of its own in the operator's state directory, which no sandboxed tool sees. Its name is the hash of
//! everything that must be the same, so a lookup reads one file.

use crate::agent::Agent;
use crate::run_sandbox::RunSandbox;
use crate::tool::Tool;
use crate::tool::invocation::CheckedArguments;
use crate::trust_store::{contains_directory, list_entries, read_entry, remove_entry};
use delta_base::durable::{self, FileError};
use delta_base::engine_variables::EngineVars;
use delta_base::hex::sha256_hex;
use delta_base::time::Timestamp;
use delta_run::event::approval::{ApprovalRequest, EVERY_TOOL};
use delta_shell::{CommandPattern, read_plain_command};
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
    /// The parameters whose values may differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
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
    /// The SHA-256 of command line, standard input, directory, environment and sandbox of the definition; with `remember`, the
    /// one of [`Tool::remembered_sha256`].
    command_sha256: String,
    /// The SHA-256 of the sandbox as it is enforced.
    profile_sha256: String,
}

impl CallIdentity {
    /// The identity of the call in `request`; `None` for a call that cannot be allowed in advance: without an enforced sandbox,
    /// with staged changes, of an MCP server, or with an argument that a shell may take for more than words.
    pub fn new(
        agent: &Agent,
        vars: &EngineVars,
        sandbox: &RunSandbox,
        request: &ApprovalRequest,
    ) -> Option<Self> {
        let profile = enforced_profile(sandbox, request)?;
        let tool = agent.tool(&request.tool_name)?;
        let remembered = tool.remembered_arguments(&request.tool_args);
        if !has_plain_words(&remembered) {
            return None;
        }
        let command_sha256 = match tool.remember {
            None => request.command_sha256.clone(),
            Some(_) => tool.remembered_sha256(&remembered, vars),
        };
        let dir = vars.cwd.canonicalize().ok()?;
        let metadata = fs::metadata(&dir).ok()?;
        let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        Some(Self {
            agent: agent.name.clone(),
            agent_home: agent.home.clone(),
            tool: request.tool_name.clone(),
            dir,
            inode: metadata.ino(),
            born: born.map_or(0, |born| u64::try_from(born.as_nanos()).unwrap_or(0)),
            command_sha256,
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

/// The sandbox that the machine enforces on the call, as a text; `None` for a call that cannot be allowed in advance: without
/// one, with staged changes, or of an MCP server.
fn enforced_profile(sandbox: &RunSandbox, request: &ApprovalRequest) -> Option<String> {
    let record = sandbox.record();
    let profile = record.profiles.get(record.tools.get(&request.tool_name)?)?;
    let can_last = request.stage.is_none() && request.files.is_some();
    (profile.by != "none" && can_last).then(|| json!([profile, record.without]).to_string())
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

/// Calls of a tool that config.yaml allows.
#[derive(Debug, Clone)]
pub struct ListedCalls {
    /// The number of the entry in `allow`, from 1.
    pub number: u32,
    /// The name of the tool.
    pub tool: String,
    /// Parameters, each with patterns for the command line in its value.
    pub patterns: Vec<(String, Vec<CommandPattern>)>,
}

impl ListedCalls {
    fn matches(
        &self,
        tool: &Tool,
        arguments: &CheckedArguments,
        is_meant: &dyn Fn(&[String]) -> bool,
    ) -> bool {
        self.tool == tool.name
            && self.patterns.iter().all(|(name, patterns)| {
                let line = arguments.text(&tool.parameters, name);
                let words = line.and_then(|line| read_plain_command(&line));
                words.is_some_and(|words| {
                    patterns.iter().any(|one| one.matches_strictly(&words)) && is_meant(&words)
                })
            })
    }
}

/// What the operator has allowed for the calls of a run.
#[derive(Debug, Clone, Default)]
pub struct OperatorGrants {
    /// What was allowed with an answer; `None` if that does not count.
    remembered: Option<AllowedCalls>,
    /// What config.yaml lists for the agent in the directory.
    listed: Vec<ListedCalls>,
    /// The tools that ask nevertheless, [`EVERY_TOOL`] for all.
    asking: Vec<String>,
}

impl OperatorGrants {
    /// The grants for a run in `workspace`. If that contains the files of `remembered`, they do not count, because the agent
    /// can write them. The tools `asking` ask nevertheless.
    pub fn new(
        workspace: &Path,
        remembered: Option<AllowedCalls>,
        listed: Vec<ListedCalls>,
        asking: Vec<String>,
    ) -> Self {
        let remembered =
            remembered.filter(|calls| !contains_directory(workspace, &calls.directory));
        Self { remembered, listed, asking }
    }

    /// The number of the entry in config.yaml that allows the call of `request`, if each of its command lines `is_meant`: it
    /// starts no program of the workspace in place of another one.
    pub fn listed_entry(
        &self,
        sandbox: &RunSandbox,
        request: &ApprovalRequest,
        tool: &Tool,
        arguments: &CheckedArguments,
        is_meant: &dyn Fn(&[String]) -> bool,
    ) -> Option<u32> {
        let mut listed = self.listed.iter();
        let listed = listed.find(|listed| listed.matches(tool, arguments, is_meant))?;
        let is_allowed = !self.asks(&tool.name) && enforced_profile(sandbox, request).is_some();
        is_allowed.then_some(listed.number)
    }

    /// Where an answer that allows the call in later runs is kept; `None` if the operator cannot give one.
    pub fn store_for(&self, identity: &CallIdentity) -> Option<&AllowedCalls> {
        self.remembered.as_ref().filter(|_| !self.asks(&identity.tool))
    }

    fn asks(&self, tool: &str) -> bool {
        self.asking.iter().any(|asking| asking == EVERY_TOOL || asking == tool)
    }
}

/// The allowed calls in the operator's state directory.
#[derive(Debug, Clone)]
pub struct AllowedCalls {
    directory: PathBuf,
}

impl AllowedCalls {
    /// The calls in a state directory, which need not exist.
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join(CALLS_DIR) }
    }

    /// When the call was allowed, if it was and `files`, which it starts now, are as they were.
    pub fn allowed_at(
        &self,
        identity: &CallIdentity,
        files: &BTreeMap<String, String>,
    ) -> Option<Timestamp> {
        let call = read_call(&self.directory.join(identity.id()))?;
        (call.identity == *identity && call.files == *files).then_some(call.at)
    }

    /// Allows the call of `request` from now on, whatever the values of the parameters `open` are.
    ///
    /// # Errors
    /// It could not be written.
    pub fn allow(
        &self,
        identity: CallIdentity,
        request: &ApprovalRequest,
        open: Vec<String>,
        at: Timestamp,
    ) -> Result<(), FileError> {
        let path = self.directory.join(identity.id());
        let files = request.files.clone().unwrap_or_default();
        let call = AllowedCall { identity, files, argv: request.argv.clone(), open, at };
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
