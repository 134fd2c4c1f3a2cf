//! The `.env` files whose variables an agent gets.

use crate::failure::CommandFailure;
use crate::{api_key, config, environment};
use clap::Args;
use delta_agent::agent::env_layers::{DotenvLocations, EnvLayers};
use delta_agent::trust_store::OperatorTrust;
use delta_base::api_key_names::API_KEY_VARIABLES;
use std::path::{Path, PathBuf};

/// The option for files of variables.
#[derive(Debug, Clone, Default, Args)]
pub struct EnvFileOptions {
    /// Read variables from FILE; repeatable, the last one wins
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
}

/// The variables of the environment and of the `.env` files that count for an agent and its workspace.
pub fn read_env_layers(
    workspace: Option<&Path>,
    agent: &Path,
    options: &EnvFileOptions,
    trust: &OperatorTrust,
) -> Result<EnvLayers, CommandFailure> {
    // A current directory that no longer exists has no `.env` file.
    let current = std::env::current_dir().unwrap_or_default();
    let named_files: Vec<PathBuf> = options.env_file.iter().rev().cloned().collect();
    let locations = DotenvLocations {
        workspace,
        agent_home: agent,
        current_dir: &current,
        named_files: &named_files,
    };
    let process = environment::variables().clone();
    let mut layers =
        EnvLayers::read(&locations, process, &|path, content| trust.trusts_file(path, content))?;
    let may_need_trust = layers.has_agent_in_workspace || !layers.notes.is_empty();
    if let Some(directory) = trust.ignored_directory().filter(|_| may_need_trust) {
        layers.notes.push(format!(
            "Note: delta ignores what `delta trust` keeps in {}, because the workspace contains it; set DELTA_STATE_DIR to a directory outside of it",
            directory.display()
        ));
    }
    if let Some(key) = api_key::read_operator_key()? {
        layers.set_operator_key(API_KEY_VARIABLES[0], key.value, key.description);
    }
    layers.set_operator_addresses(config::endpoint_settings()?);
    Ok(layers)
}
