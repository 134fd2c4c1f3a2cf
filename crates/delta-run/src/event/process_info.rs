//! The processes that work on runs, as ENGINE_START records them.

use crate::chain::ChainValue;
use delta_base::id::RunId;
use serde::{Deserialize, Serialize};

/// The run whose tool or hook started another run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRun {
    /// The id of the parent run.
    pub run_id: RunId,
    /// The tool call of the parent run; absent if no call started the other run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The absolute path of the parent run's directory.
    pub run_dir: String,
}

/// A run that a call has started, and the head of its chain when the call had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedRun {
    /// The id of the run.
    pub run_id: RunId,
    /// The number of the last event in its journal.
    pub seq: u64,
    /// The chain value of that line.
    pub chain: ChainValue,
}

/// A line of a journal and its chain value, which vouches for all lines up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead {
    /// The number of the event.
    pub seq: u64,
    /// The chain value of its line.
    pub chain: ChainValue,
}

/// How a process owns a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseKind {
    /// With a lock on a file system of its kernel: when the lock is free, the process is dead.
    Flock,
    /// With a lock on a file system that other hosts can reach, whose locks prove nothing to them.
    SharedFlock,
    /// With turns, which are exclusive across hosts: see [`crate::lease::turns`].
    Turns,
}

/// The process that works on a run. A later process uses this to check whether it is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// The process id.
    pub pid: u32,
    /// The name of the host.
    pub hostname: String,
    /// The start time, in milliseconds since the Unix epoch.
    pub start_time_unix: i64,
    /// The name of the process in `/proc`.
    pub process_name: String,
}
