//! agents.lock.json: which agents are installed, where they come from, and what they may do. It may come from anywhere.

use super::agent_rights::AgentRights;
use delta_base::id::SnapshotId;
use delta_base::text::hidden_text::has_hidden_text;
use delta_base::text::without_byte_order_mark;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format.
const FORMAT: u32 = 1;
/// The longest name of an agent.
const MAX_NAME_BYTES: usize = 64;

/// The agents that are installed, by the names that `--agent` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentsLock {
    /// The version of the format.
    delta_agents: u32,
    /// The agents.
    pub agents: BTreeMap<String, LockedAgent>,
}

/// An agent that is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedAgent {
    /// Where it comes from, without the ref.
    pub source: String,
    /// The branch, tag or commit that was asked for.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The hash of its files, by which they are kept.
    pub tree: SnapshotId,
    /// What it may do.
    pub rights: AgentRights,
}

impl Default for AgentsLock {
    fn default() -> Self {
        Self { delta_agents: FORMAT, agents: BTreeMap::new() }
    }
}

impl AgentsLock {
    /// Parses the content of the file.
    ///
    /// # Errors
    /// It is something else; the message says what.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(json).map_err(|_| "it is not UTF-8".to_owned())?;
        let value: serde_json::Value = serde_json::from_str(without_byte_order_mark(text))
            .map_err(|error| error.to_string())?;
        if has_hidden_text(&value) {
            return Err("it has hidden characters".to_owned());
        }
        let version = &value["delta_agents"];
        if *version != FORMAT {
            return Err(format!("expected the version `delta_agents` {FORMAT}, found {version}"));
        }
        let lock: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        match lock.agents.keys().find(|name| !is_agent_name(name)) {
            Some(name) => Err(format!("`{name}` is not an agent name")),
            None => Ok(lock),
        }
    }

    /// The content of the file.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// What [`is_agent_name`] expects, for messages.
pub const AGENT_NAME_RULE: &str =
    "expected 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter, but not `null`";

/// Whether an agent can have this name: 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter.
pub fn is_agent_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && name.len() <= MAX_NAME_BYTES
        // YAML reads it as null.
        && !name.eq_ignore_ascii_case("null")
}
