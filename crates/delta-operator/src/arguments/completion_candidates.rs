//! The completions for arguments of delta: runs, workspaces and agents.

use crate::arguments::agent_choice;
use crate::{config, environment, trust};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use delta_agent::agent::Agent;
use delta_llm::llm::ModelSelection;
use delta_program::completions::option_value;
use delta_run::workspace::Workspace;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The names of the skills of the agent that the command line names, with their descriptions.
pub fn skill_candidates() -> Vec<CompletionCandidate> {
    let home =
        option_value(&["--agent"], environment::os_variable).unwrap_or_else(|| PathBuf::from("."));
    let home = agent_choice::resolve_agent_dir(&home);
    let models = ModelSelection::without_llm();
    let agent = Agent::load(&home, &models, &trust::read_import_path());
    let skills = agent.map(|agent| agent.skills).unwrap_or_default().into_iter();
    skills
        .map(|skill| CompletionCandidate::new(skill.name).help(Some(skill.description.into())))
        .collect()
}

/// The workspaces of the agent that the command line names, and all directories.
#[derive(Clone)]
pub struct WorkspaceCompleter;

impl ValueCompleter for WorkspaceCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let agent = option_value(&["--agent"], environment::os_variable).unwrap_or_default();
        let mut candidates: Vec<CompletionCandidate> = Workspace::list_names(&agent)
            .into_iter()
            .map(|name| agent.join("workspaces").join(name))
            .filter(|path| {
                path.as_os_str().as_encoded_bytes().starts_with(current.as_encoded_bytes())
            })
            .map(|path| {
                CompletionCandidate::new(path).help(Some("workspace".into())).display_order(Some(0))
            })
            .collect();
        let directories = PathCompleter::dir().complete(current).into_iter();
        candidates.extend(directories.map(|directory| directory.display_order(Some(1))));
        candidates
    }
}

/// The names of the operator's agents that begin with `prefix`.
fn installed_agents(prefix: &OsStr) -> Vec<OsString> {
    let entries = config::agents_directory().and_then(|dir| fs::read_dir(dir).ok());
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names: Vec<OsString> = names
        .filter(|name| {
            name.as_bytes().starts_with(prefix.as_bytes()) && !name.as_bytes().starts_with(b".")
        })
        .collect();
    names.sort();
    names
}

/// The operator's agents and all directories, agent directories first.
#[derive(Clone)]
pub struct AgentCompleter;

impl ValueCompleter for AgentCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let directories = PathCompleter::dir().complete(current).into_iter();
        let installed = installed_agents(current).into_iter().map(|name| {
            CompletionCandidate::new(name)
                .help(Some("installed agent".into()))
                .display_order(Some(0))
        });
        directories
            .map(|directory| {
                if PathBuf::from(directory.get_value()).join("agent.yaml").is_file() {
                    directory.help(Some("agent".into())).display_order(Some(0))
                } else {
                    directory.display_order(Some(1))
                }
            })
            .chain(installed)
            .collect()
    }
}
