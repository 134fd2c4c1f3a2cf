//! The events of a run that moves to another place.

use delta_base::id::{RunId, SnapshotId};
use serde::{Deserialize, Serialize};

/// The run is handed over, and closed here until it is received: see [`crate::event::Payload::Sent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRun {
    /// The id of the run.
    pub run_id: RunId,
    /// The id of the transfer.
    pub nonce: String,
    /// The public key of who alone receives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Where the run is now: `HOST:DIR`, or a file. Of a copy, where its original is.
    pub place: String,
    /// The snapshot of the workspace that goes with it; absent if the files stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotId>,
    /// The first snapshot of the run, if only what differs from it goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<SnapshotId>,
    /// The hash of the agent directory that goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<SnapshotId>,
    /// What does not go with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Whether this journal is a copy, which nothing opens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy: bool,
    /// How often values were redacted in a copy, with `--redact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<u64>,
    /// The seal over the journal up to this event, if the operator has a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// What a RUN_TRUSTED has that opens a run at the place where it has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRun {
    /// The id of the transfer.
    pub nonce: String,
    /// The public key of the sender.
    pub from: String,
    /// The snapshot that the workspace gets; absent if it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotId>,
    /// The snapshot of the workspace just before, if that changes files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<SnapshotId>,
    /// The absolute path of the workspace here.
    pub work_dir: String,
    /// The name of the workspace here.
    pub workspace_id: String,
}
