//! What a tool reached and what was refused, since the counts were last taken.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of the connections of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkReport {
    /// Refused attempts by `name`, for a name that was looked up, or `host:port`; `/udp` after it for UDP.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// All refused attempts, also of names that were too many to list.
    #[serde(default)]
    pub attempts: u64,
    /// TCP connections to the own loopback where nothing listened.
    #[serde(default)]
    pub loopback_refusals: u64,
    /// The hosts of the list that were reached, by `host:port`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reached: BTreeMap<String, HostTraffic>,
    /// The hosts of the list that could not be connected to, by `host:port`; `*` when the service has died.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, ConnectFailure>,
}

impl NetworkReport {
    /// The report of a service that does not answer. Its sockets are closed, so nothing can be reached.
    pub(crate) fn without_service(error: &std::io::Error) -> Self {
        let error = format!("the process that serves the network does not answer: {error}");
        let failure = ConnectFailure { connections: 1, error };
        Self { failed: BTreeMap::from([("*".to_owned(), failure)]), ..Self::default() }
    }
}

/// The traffic with one host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTraffic {
    /// Connections that began.
    pub connections: u64,
    /// Bytes from the tool to the host.
    pub sent: u64,
    /// Bytes from the host to the tool.
    pub received: u64,
}

/// Connections to a host that did not come about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectFailure {
    /// How many.
    pub connections: u64,
    /// The error of the last one.
    pub error: String,
}
