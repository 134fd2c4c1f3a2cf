//! What the journal says about sandboxes: what was enforced, and what was refused.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// The name in ACTION_REQUEST of no sandbox.
pub const NO_SANDBOX: &str = "off";

/// The profile of the machine, which no option changes.
pub const MACHINE_POLICY: &str = "/etc/delta/sandbox.yaml";

/// The sandboxes of one process of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// The release of the kernel.
    #[serde(default)]
    pub kernel: String,
    /// The version of Landlock; null without it.
    #[serde(default)]
    pub landlock: Option<u32>,
    /// Whether namespaces can be created.
    #[serde(default)]
    pub namespaces: bool,
    /// The profiles of the operator, which no tool exceeds.
    #[serde(default)]
    pub policy: Vec<PolicySource>,
    /// The hosts that the operator adds to the network of tools in a sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The guarantees that the operator does without.
    #[serde(default)]
    pub without: Vec<String>,
    /// The names of the tools in a sandbox, each with the name of its profile.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
    /// The profile of the generators, if they are in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generators: Option<String>,
    /// The profile of the command of `provider: command`, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm: Option<String>,
    /// The names of the hooks in a sandbox, each with the name of its profile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hooks: BTreeMap<String, String>,
    /// The profiles.
    #[serde(default)]
    pub profiles: BTreeMap<String, ProfileRecord>,
}

/// A profile of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySource {
    /// The absolute path of its file, or its name.
    pub file: String,
    /// The SHA-256 of the file; absent for a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A profile as it was enforced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// `namespaces`, `landlock` or `none`.
    #[serde(default)]
    pub by: String,
    /// The keys of the profile, with resolved paths.
    #[serde(flatten)]
    pub keys: Map<String, Json>,
    /// The guarantees that hold.
    #[serde(default)]
    pub holds: Vec<String>,
    /// The guarantees that are watched instead: the run ends when one is broken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watched: Vec<String>,
    /// The line in the descriptions of its tools.
    #[serde(default)]
    pub line: String,
}

impl SandboxRecord {
    /// The name or file of the operator's sandbox, if it was chosen for this process.
    pub fn chosen_sandbox(&self) -> Option<&str> {
        let names = self.policy.iter().map(|source| source.file.as_str());
        names.rev().find(|name| *name != MACHINE_POLICY)
    }

    /// The name of the profile of a tool, or [`NO_SANDBOX`].
    pub fn profile_of_tool(&self, tool: &str) -> &str {
        self.tools.get(tool).map_or(NO_SANDBOX, String::as_str)
    }

    /// What has a profile: tools by name, and the others.
    pub fn users_of(&self, profile: &str) -> Vec<String> {
        let tools = self.tools.iter().filter(|(_, name)| *name == profile);
        let mut users: Vec<String> = tools.map(|(tool, _)| tool.clone()).collect();
        if self.generators.as_deref() == Some(profile) {
            users.push("the generators".to_owned());
        }
        if self.llm.as_deref() == Some(profile) {
            users.push("the command of `llm`".to_owned());
        }
        let hooks = self.hooks.iter().filter(|(_, name)| *name == profile);
        users.extend(hooks.map(|(hook, _)| format!("the hook {hook}")));
        users
    }

    /// The guarantees that the operator does without and that do not hold for a profile.
    pub fn waived_of(&self, profile: &ProfileRecord) -> Vec<&str> {
        let waived = self.without.iter().map(String::as_str);
        waived
            .filter(|name| !profile.holds.iter().chain(&profile.watched).any(|one| one == name))
            .collect()
    }

    /// The line about the sandbox of a tool, if it has one.
    pub fn tool_line(&self, tool: &str) -> Option<&str> {
        let profile = self.profiles.get(self.tools.get(tool)?)?;
        Some(profile.line.as_str()).filter(|line| !line.is_empty())
    }
}

/// What a sandbox refused during a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CallSandbox {
    /// The hosts with ports that were refused, and how often.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// How often the network was tried where there is none.
    #[serde(default, skip_serializing_if = "crate::event::is_zero_number")]
    pub attempts: u64,
}

/// What went to a host and came from it during a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostTrafficRecord {
    /// Connections.
    pub connections: u64,
    /// Bytes to the host.
    pub sent: u64,
    /// Bytes from the host.
    pub received: u64,
}
