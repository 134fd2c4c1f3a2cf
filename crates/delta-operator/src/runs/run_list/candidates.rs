//! The completions for arguments that name runs, and agents of runs.

use crate::environment;
use crate::runs::run_argument::LAST;
use crate::runs::run_list::lookup;
use clap_complete::engine::CompletionCandidate;
use delta_program::completions::option_value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The number of runs that completion offers.
const MAX_RUNS: usize = 100;

/// The names of runs of the workspace that the command line names: `last`, and the ids, each with its status and task.
pub fn run_candidates() -> Vec<CompletionCandidate> {
    let workspace = option_value(&["-w", "--work-dir"], environment::os_variable)
        .unwrap_or_else(|| PathBuf::from("."));
    let runs = lookup::suggest_runs(&workspace, MAX_RUNS).unwrap_or_default();
    let last = runs.first().map(|run| (LAST.to_owned(), format!("{} {}", run.id, run.description)));
    let ids = runs.iter().map(|run| (run.id.clone(), run.description.clone()));
    last.into_iter()
        .chain(ids)
        .enumerate()
        .map(|(index, (name, help))| {
            CompletionCandidate::new(name).help(Some(help.into())).display_order(Some(index))
        })
        .collect()
}

/// The names of the agents of the workspace's runs.
pub fn agent_name_candidates() -> Vec<CompletionCandidate> {
    let workspace = option_value(&["-w", "--work-dir"], environment::os_variable)
        .unwrap_or_else(|| PathBuf::from("."));
    let runs = lookup::suggest_runs(&workspace, MAX_RUNS).unwrap_or_default();
    let names: BTreeSet<String> = runs.into_iter().map(|run| run.agent_name).collect();
    names.into_iter().filter(|name| !name.is_empty()).map(CompletionCandidate::new).collect()
}
