//! Which runs refer to others: a fork to the run that it was forked from, a run that a tool started to its parent.

use delta_operator::arguments::agent_choice::workspaces_home;
use delta_operator::runs::run_list::{RunListEntry, read_runs_of};
use delta_run::run_tree;
use delta_run::workspace::{self, Workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A reference of one run to another.
pub struct RunLink {
    pub from_dir: PathBuf,
    pub to_dir: PathBuf,
    pub to_id: String,
    from_id: String,
    is_fork: bool,
}

impl RunLink {
    /// Why the run at its end is needed.
    pub fn describe(&self) -> String {
        let relation = if self.is_fork { "was forked from it" } else { "was started by it" };
        format!("run {} {relation} ({})", self.from_id, self.from_dir.display())
    }
}

/// Finds the links to `targets` from runs in their workspaces, in the workspaces of their agents, and among the child runs
/// that they list.
pub fn find_links(targets: &[RunListEntry]) -> Vec<RunLink> {
    let mut roots: BTreeSet<PathBuf> = BTreeSet::new();
    for target in targets {
        roots.insert(target.workspace.clone());
        let homes = workspaces_home(Path::new(&target.agent_home));
        for name in Workspace::list_names(&homes) {
            roots.extend(homes.join("workspaces").join(name).canonicalize());
        }
        for child in run_tree::read_child_runs(&target.dir()) {
            let child_root = workspace::workspace_of_run(Path::new(&child.run_dir));
            roots.extend(child_root.and_then(|root| root.canonicalize().ok()));
        }
    }
    let workspaces: Vec<Workspace> = roots.into_iter().map(|root| Workspace { root }).collect();
    let runs = read_runs_of(&workspaces);
    let targets: BTreeMap<PathBuf, &RunListEntry> =
        targets.iter().map(|target| (target.dir(), target)).collect();
    let mut links = Vec::new();
    for run in &runs {
        let origin = run.origin.as_ref().map(|origin| (&origin.run_dir, &origin.run_id, true));
        let parent = run.parent.as_ref().map(|parent| (&parent.run_dir, &parent.run_id, false));
        for (dir, id, is_fork) in origin.into_iter().chain(parent) {
            // Runs that were moved together are still neighbours.
            let neighbour = run.dir().with_file_name(id.as_str());
            let target = targets.get(Path::new(dir)).or_else(|| targets.get(&neighbour));
            if let Some(target) = target {
                links.push(RunLink {
                    from_dir: run.dir(),
                    to_dir: target.dir(),
                    to_id: target.run_id.clone(),
                    from_id: run.run_id.clone(),
                    is_fork,
                });
            }
        }
    }
    links
}
