//! Which agent `delta run` runs: one that is named, the one in the current directory, the operator's default, or the
//! built-in one.

use super::builtin_agent::{self, BUILTIN_AGENT};
use super::failure::CommandFailure;
use super::{operator_config, process_environment};
use std::path::{Component, Path, PathBuf};

/// The agent of a run.
pub struct ChosenAgent {
    pub home: PathBuf,
    /// Where it comes from, unless the path or the current directory shows it. Such an agent works in the current directory
    /// if no workspace is named.
    pub origin: Option<String>,
}

/// Chooses the agent. `named` is the value of `--agent`.
///
/// # Errors
/// The operator's configuration has errors, or the built-in agent cannot be written.
pub fn choose_agent(named: Option<&Path>) -> Result<ChosenAgent, CommandFailure> {
    let current = Path::new(".");
    match named {
        Some(path) => Ok(find_named_agent(path)),
        None if is_agent_dir(current) => Ok(ChosenAgent { home: current.to_owned(), origin: None }),
        None => match operator_config::read_operator_config()?.default_agent {
            Some(name) => find_default_agent(&name),
            None => Ok(ChosenAgent {
                home: builtin_agent::ensure_builtin_agent()?,
                origin: Some(format!("{BUILTIN_AGENT} (built in)")),
            }),
        },
    }
}

/// A path is taken as it is; a name can also be the name of an installed agent.
fn find_named_agent(path: &Path) -> ChosenAgent {
    let installed = installed_agent(path).filter(|_| !is_agent_dir(path));
    match installed.filter(|home| home.is_dir()) {
        Some(home) => ChosenAgent { origin: Some(home.display().to_string()), home },
        None => ChosenAgent { home: path.to_owned(), origin: None },
    }
}

/// Never an agent in the current directory, which may be a cloned repository.
fn find_default_agent(name: &str) -> Result<ChosenAgent, CommandFailure> {
    let path = Path::new(name);
    let home = if path.is_absolute() { Some(path.to_owned()) } else { installed_agent(path) };
    match home {
        Some(home) => Ok(ChosenAgent { origin: Some(home.display().to_string()), home }),
        None => {
            let message = format!(
                "expected an absolute path or the name of an agent as `default_agent`, found `{name}`"
            );
            Err(CommandFailure::config(message, None))
        }
    }
}

/// The directory of the installed agent `name`, which need not exist: in `delta/agents` in `$XDG_DATA_HOME`, else in
/// `~/.local/share`.
fn installed_agent(name: &Path) -> Option<PathBuf> {
    let is_name = matches!(name.components().next(), Some(Component::Normal(_)));
    if !is_name || name.components().count() > 1 {
        return None;
    }
    let data = process_environment::path_variable("XDG_DATA_HOME")
        .or_else(|| Some(process_environment::path_variable("HOME")?.join(".local/share")))?;
    Some(data.join("delta/agents").join(name))
}

/// Whether a directory is an agent. A `config.yaml` alone, the old name of agent.yaml, is too common a name.
fn is_agent_dir(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).is_file();
    has("agent.yaml") || has("config.yaml") && (has("system_prompt.md") || has("system_prompt.txt"))
}
