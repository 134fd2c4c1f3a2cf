//! What the engine, a holder and its clients agree on: files, variables, and the configuration of a holder.

use crate::server_sandbox::ServerSandbox;
use crate::server_spec::ServerSpec;
use delta_base::hex::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// The directory of the holders, below the run directory.
pub const HOLDER_DIR: &str = "mcp";
/// The line with which a holder reports that it can be reached.
pub const READY_LINE: &str = "ready\n";
/// The variable that forbids the client of a holder to start the server itself, because it would be in no sandbox.
pub const HOLDER_VARIABLE: &str = "DELTA_MCP_HOLDER";
/// Its value.
pub const HOLDER_REQUIRED: &str = "required";

/// The variable with the id of the call in its run, for the command of a tool of a server and for nothing else: a script
/// may call several tools.
pub const CALL_ID_VARIABLE: &str = "DELTA_MCP_CALL_ID";
/// The directory of the records, in the directory of the holders.
const TASK_DIR: &str = "tasks";
/// The longest id of a call that is the name of a file as it is.
const MAX_NAME_BYTES: usize = 80;

/// What a holder needs, on one line of its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HolderConfig {
    /// The server.
    pub spec: ServerSpec,
    /// What is locked of it, as mcp.lock.json has it.
    pub locked: Json,
    /// The server's names of the tools whose calls may share the server at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parallel: Vec<String>,
    /// What surrounds the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<ServerSandbox>,
}

/// The record of the call `call_id` in `dir`, the directory of the holders of a run.
pub fn task_record_path(dir: &Path, call_id: &str) -> PathBuf {
    let is_name = (1..=MAX_NAME_BYTES).contains(&call_id.len())
        && call_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let stem = if is_name { call_id.to_owned() } else { format!("id.{}", sha256_hex(call_id)) };
    dir.join(TASK_DIR).join(format!("{stem}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_record_of_its_own() {
        let name = |id: &str| {
            let path = task_record_path(Path::new("d"), id);
            assert_eq!(path.parent(), Some(Path::new("d/tasks")), "{id}");
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(name("call_1-a"), "call_1-a.json");
        let long = "x".repeat(81);
        let names = ["", "a", "a/b", "../a", "a.b", ".", "..", "é", long.as_str()].map(name);
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }
}
