//! What became of the runs that were sent to this operator: a file for each transfer in the state directory. Who creates it
//! decides; it never changes.

use crate::failure::CommandFailure;
use crate::state;
use delta_base::durable;
use delta_base::id::SnapshotId;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// The directory in the state directory.
const TRANSFERS_DIR: &str = "transfers";

/// What became of a transfer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferOutcome {
    /// It is never received.
    Refused,
    /// It was received.
    Received(Arrival),
}

/// A run that was received, and what its workspace gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The run directory, absolute.
    pub run_dir: PathBuf,
    /// The snapshot that the workspace gets, if it gets one.
    pub tree: Option<SnapshotId>,
    /// Whether files get setuid and setgid.
    pub special_bits: bool,
    /// Whether each `.git` is restored.
    pub git: bool,
}

fn outcome_file(nonce: &str) -> Result<PathBuf, CommandFailure> {
    // It may come from an archive or the journal of another operator, and must not lead to another file.
    let is_nonce = nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_nonce {
        return Err(CommandFailure::usage("the id of a transfer has 32 hexadecimal digits", None));
    }
    let dir = state::own_state_dir().map_err(|missing| {
        let message = format!("there is no state directory: {}", missing.reason());
        CommandFailure::config(message, "set DELTA_STATE_DIR to a directory of yours")
    })?;
    Ok(dir.join(TRANSFERS_DIR).join(format!("{nonce}.json")))
}

/// What became of a transfer; `None` while nothing has.
pub fn find_outcome(nonce: &str) -> Result<Option<TransferOutcome>, CommandFailure> {
    let path = outcome_file(nonce)?;
    match durable::read_regular(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(durable::FileError::at("read", &path)(error).into()),
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|error| {
            CommandFailure::damaged(format!("{} is damaged: {error}", path.display()), None)
        }),
    }
}

/// Decides what becomes of a transfer, unless that is decided already; returns what counts. Durable.
pub fn decide_outcome(
    nonce: &str,
    outcome: TransferOutcome,
) -> Result<TransferOutcome, CommandFailure> {
    let path = outcome_file(nonce)?;
    let json = serde_json::to_vec(&outcome).unwrap_or_default();
    durable::check_failpoint().map_err(durable::FileError::at("create", &path))?;
    match durable::create_read_only_once(&path, &json) {
        Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => {
            Ok(find_outcome(nonce)?.unwrap_or(outcome))
        }
        created => Ok(created.map(|()| outcome)?),
    }
}
