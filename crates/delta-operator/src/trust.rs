//! What the operator trusts and allows: `.env` files, hosts, directories to import from.

use crate::{environment, state};
use delta_agent::agent::tool_imports::{IMPORT_PATH_VARIABLE, ImportPath};
use delta_agent::trust_store::{OperatorTrust, TRUST_VARIABLE, TRUSTED_HOSTS_VARIABLE};
use std::path::Path;

/// What the operator trusts in a run with this workspace.
pub fn read_operator_trust(workspace: Option<&Path>) -> OperatorTrust {
    OperatorTrust::new(
        state::trust_store().ok(),
        workspace,
        environment::raw_variable(TRUST_VARIABLE),
        &environment::variable(TRUSTED_HOSTS_VARIABLE).unwrap_or_default(),
    )
}

/// The directories from which the operator allows agents to import.
pub fn read_import_path() -> ImportPath {
    ImportPath::parse(&environment::variable(IMPORT_PATH_VARIABLE).unwrap_or_default())
}
