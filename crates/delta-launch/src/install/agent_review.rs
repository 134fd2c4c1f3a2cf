//! What the operator sees of an agent before it is installed, and the question.

use super::agent_location::AgentLocation;
use delta_agent::agent::agent_tree::store_agent_tree;
use delta_agent::agent::agents_lock::LockedAgent;
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_base::terminal_text::{escape_terminal_controls, escape_to_line};
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_snapshot::{
    ExcludePatterns, SnapshotChange, SnapshotStore, by_danger, list_changes_within,
    render_changes_within,
};
use std::path::Path;

/// The digits of a commit that are shown.
pub const COMMIT_DIGITS: usize = 7;
/// The digits of a tree that are shown.
pub const TREE_DIGITS: usize = 12;
/// The most changed files that are listed.
const MAX_CHANGES: usize = 20;
/// The most text of a view.
const MAX_VIEW_BYTES: usize = 1024 * 1024;

/// An agent before it is installed.
pub struct AgentReview<'a> {
    pub name: &'a str,
    pub location: &'a AgentLocation,
    pub agent: &'a LockedAgent,
    /// Its files.
    pub dir: &'a Path,
    /// What is installed under the name, and its files.
    pub before: Option<(&'a LockedAgent, &'a Path)>,
}

impl AgentReview<'_> {
    /// Prints what the agent may do, and what differs from the one that is installed.
    pub fn print(&self, scratch: &Path) -> Result<(), CommandFailure> {
        let LockedAgent { commit, tree, rights, .. } = self.agent;
        let commit = commit.as_ref().map(|commit| first_digits(commit, COMMIT_DIGITS));
        let commit = commit.map_or_else(String::new, |digits| format!("  commit {digits}"));
        let tree = first_digits(&tree.to_string(), TREE_DIGITS);
        let location = escape_to_line(&self.location.to_string());
        let mut lines = vec![format!("{}  {location}{commit}  tree {tree}", self.name)];
        lines.extend(rights.lines());
        if let Some((before, _)) = self.before {
            let commit = before.commit.as_ref().map(|commit| first_digits(commit, COMMIT_DIGITS));
            let version = before.reference.clone().or(commit);
            let version =
                version.unwrap_or_else(|| first_digits(&before.tree.to_string(), TREE_DIGITS));
            lines.push(format!("against {}", escape_to_line(&version)));
            lines.extend(
                rights.beyond(&before.rights).lines().iter().map(|line| format!("  + {line}")),
            );
            let (store, changes) = self.find_changes(scratch)?;
            let list =
                list_changes_within(&store, &by_danger(&changes), MAX_CHANGES, MAX_VIEW_BYTES)?;
            lines.extend(list.lines.iter().map(|line| format!("  ~ {line}")));
            if list.more > 0 {
                lines.push(format!("  ~ and {} more files", list.more));
            }
        }
        lines.iter().for_each(|line| stdio::print_error_line(line));
        Ok(())
    }

    /// Asks whether to install it.
    pub fn ask(&self, scratch: &Path, cancel: &CancelToken) -> Result<bool, CommandFailure> {
        terminal::discard_input();
        loop {
            let answer = terminal::prompt_line("install? y yes, n no, v view> ", cancel).map_err(
                |error| {
                    CommandFailure::unanswered("nothing was installed", &error, "answer `y` or `n`")
                },
            )?;
            match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                "v" | "view" => {
                    let (store, changes) = self.find_changes(scratch)?;
                    let text = render_changes_within(&store, &changes, MAX_VIEW_BYTES)?;
                    stdio::print_error_line(escape_terminal_controls(&text).trim_end());
                }
                _ => stdio::print_error_line("expected `y`, `n` or `v`"),
            }
        }
    }

    /// What differs from the agent that is installed, or from none.
    fn find_changes(
        &self,
        scratch: &Path,
    ) -> Result<(SnapshotStore, Vec<SnapshotChange>), CommandFailure> {
        let mut store = SnapshotStore::open(scratch, ExcludePatterns::default())?;
        let empty = store.empty_tree()?;
        let before =
            self.before.and_then(|(_, dir)| store_agent_tree(&mut store, dir, Path::new("")));
        let after = store_agent_tree(&mut store, self.dir, Path::new("")).unwrap_or(empty);
        let changes = store.compare(before.unwrap_or(empty), after)?.changes;
        Ok((store, changes))
    }
}

/// The first digits of a hash.
pub fn first_digits(hash: &str, digits: usize) -> String {
    hash.chars().take(digits).collect()
}
