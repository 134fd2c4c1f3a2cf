//! A server and how to reach it, with all values in place: what a connection needs, and nothing of the agent.

use crate::oauth::OAuthSettings;
use delta_process::SandboxEntry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The variables that every server gets, in addition to all whose names begin with `LC_`.
const BASE_VARIABLES: [&str; 8] =
    ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];

/// Whether every server gets the variable `name`.
pub fn is_base_variable(name: &str) -> bool {
    BASE_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// A server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerSpec {
    /// The name in agent.yaml; the address or the program of a server that no agent has.
    pub name: String,
    /// The program and its arguments; empty for a server with a URL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The complete environment of the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The headers of every HTTP request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The bearer token of every HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// How HTTP requests get another bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OAuthSettings>,
    /// The URL of the proxy for HTTP requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The working directory of the program.
    pub cwd: PathBuf,
    /// The longest time from the start of the program to the end of the opening.
    pub start_timeout_ms: u64,
    /// The longest time of a request.
    pub timeout_ms: u64,
    /// What the process of the program enters; it belongs to the process that has it.
    #[serde(skip)]
    pub sandbox: Option<SandboxEntry>,
}

impl ServerSpec {
    /// The longest time from the start of the program to the end of the opening.
    pub fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    /// The longest time of a request.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}
