//! What a run has changed in its workspace, and what others have changed between its processes.

use super::document::{KIND, ResourceDescriptor, SHA256, SYMLINK};
use delta_base::id::SnapshotId;
use delta_run::event::{Event, Payload};
use delta_snapshot::{
    EntryKind, SnapshotChange, SnapshotError, SnapshotStore, TreeEntry, quote_git_path,
};
use std::collections::{BTreeMap, BTreeSet};

/// The states of a workspace in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceTrees {
    /// Before the run.
    pub before: SnapshotId,
    /// As later processes found it, each with the number of the process, if others had changed it.
    pub found_by_processes: Vec<(u32, SnapshotId)>,
    /// Before and after each time that the run itself changed it.
    steps: Vec<(SnapshotId, SnapshotId)>,
    /// The last one.
    pub after: SnapshotId,
}

/// What a run has changed in its workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunChanges {
    /// The files and symlinks that it has written, in the order of their names.
    pub written: Vec<ResourceDescriptor>,
    /// The files and symlinks that it has removed.
    pub removed: Vec<String>,
    /// Changed paths of which no snapshot has the content, or whose names are not UTF-8, quoted as git does.
    pub left_out: Vec<String>,
}

impl WorkspaceTrees {
    fn starting_with(tree: SnapshotId) -> Self {
        Self { before: tree, found_by_processes: Vec::new(), steps: Vec::new(), after: tree }
    }

    /// The states in a journal; `None` if the run took no snapshots.
    pub fn from_events(events: &[Event]) -> Option<Self> {
        let mut trees: Option<Self> = None;
        let mut epoch = 0;
        for event in events {
            let next = match &event.payload {
                Payload::EngineStart(start) => {
                    epoch = start.epoch;
                    continue;
                }
                Payload::Snapshot(snapshot) => {
                    if let Some(trees) = &mut trees {
                        if snapshot.found {
                            trees.found_by_processes.push((epoch, snapshot.tree));
                        } else {
                            trees.steps.push((trees.after, snapshot.tree));
                        }
                    }
                    snapshot.tree
                }
                Payload::Rollback { tree, .. } => *tree,
                Payload::Discard { base, .. } => *base,
                Payload::Fork(fork) => match fork.tree {
                    Some(tree) => tree,
                    None => continue,
                },
                _ => continue,
            };
            trees.get_or_insert_with(|| Self::starting_with(next)).after = next;
        }
        trees
    }

    /// What the run has changed: a path that others have changed since is not among it, nor is what is in `.git`.
    ///
    /// # Errors
    /// The snapshots are missing or damaged.
    pub fn find_changes(&self, store: &SnapshotStore) -> Result<RunChanges, SnapshotError> {
        let mut steps_by_path: BTreeMap<Vec<u8>, Vec<SnapshotChange>> = BTreeMap::new();
        let mut left_out: BTreeSet<Vec<u8>> = BTreeSet::new();
        for (before, after) in &self.steps {
            let diff = store.compare(*before, *after)?;
            for change in diff.changes {
                steps_by_path.entry(change.path.clone()).or_default().push(change);
            }
            left_out.extend(diff.omitted);
        }
        let mut written = BTreeMap::new();
        let mut removed = Vec::new();
        for change in store.compare(self.before, self.after)?.changes {
            let steps = steps_by_path.get(&change.path).map_or(&[][..], Vec::as_slice);
            if !is_by_run(&change, steps) || is_in_git_directory(&change.path) {
                continue;
            }
            let is_gone = change.before.is_some_and(|entry| is_file_or_symlink(&entry));
            let after = change.after.filter(is_file_or_symlink);
            match (String::from_utf8(change.path), after) {
                (Ok(name), Some(entry)) => {
                    let file = ResourceDescriptor::new(&*name, SHA256, entry.id);
                    let is_symlink = entry.kind == EntryKind::Symlink;
                    written.insert(name, if is_symlink { file.with(KIND, SYMLINK) } else { file });
                }
                (Ok(name), None) if is_gone => removed.push(name),
                (Err(error), after) if is_gone || after.is_some() => {
                    left_out.insert(error.into_bytes());
                }
                _ => {}
            }
        }
        removed.sort_unstable();
        left_out.retain(|path| !is_in_git_directory(path));
        let left_out = left_out.iter().map(|path| quote_git_path("", path)).collect();
        Ok(RunChanges { written: written.into_values().collect(), removed, left_out })
    }

    /// The commit that was checked out before the run, if the workspace is a git repository whose snapshot says that.
    pub fn find_commit(&self, store: &SnapshotStore) -> Option<String> {
        let read = |path: &str| {
            let bytes = store.read_file(self.before, format!(".git/{path}").as_bytes()).ok()??;
            String::from_utf8(bytes).ok()
        };
        let head = read("HEAD")?;
        let Some(branch) = head.trim_end().strip_prefix("ref: ") else {
            return parse_commit(&head);
        };
        if let Some(commit) = read(branch) {
            return parse_commit(&commit);
        }
        let packed = read("packed-refs")?;
        let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(commit, name)| (name == branch).then(|| parse_commit(commit)).flatten())
    }
}

fn parse_commit(text: &str) -> Option<String> {
    let digits = text.trim_end();
    let is_commit = matches!(digits.len(), 40 | 64)
        && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_commit.then(|| digits.to_owned())
}

/// Whether one of the steps of the run left the path of a change with the content that it has in the end.
fn is_by_run(change: &SnapshotChange, steps: &[SnapshotChange]) -> bool {
    let [first, last] = contents_of(change);
    steps.iter().any(|step| {
        let [before, after] = contents_of(step);
        // A step that only changes the mode does not write what others wrote before it.
        after == last && (before != after || first == last)
    })
}

/// The file or symlink before and after a change, without its mode.
fn contents_of(change: &SnapshotChange) -> [Option<(EntryKind, SnapshotId)>; 2] {
    [&change.before, &change.after].map(|entry| {
        let entry = entry.as_ref().filter(|entry| is_file_or_symlink(entry))?;
        Some((entry.kind, entry.id))
    })
}

fn is_file_or_symlink(entry: &TreeEntry) -> bool {
    matches!(entry.kind, EntryKind::File | EntryKind::Symlink)
}

fn is_in_git_directory(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b".git")
}
