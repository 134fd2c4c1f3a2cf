#![doc = include_str!("../README.md")]

mod change_summary;
mod directory_hash;
mod exclude_patterns;
mod file_index;
mod object_store;
mod redacted_tree;
mod restore;
mod size_limit;
mod staging;
#[cfg(test)]
mod tests;
mod tree;
mod unified_diff;
mod workspace_walk;

pub use change_summary::{ChangeList, by_danger, hash_changes, list_changes_within};
pub use delta_base::durable::FileError;
pub use delta_base::id::SnapshotId;
pub use delta_base::redact::Secrets;
pub use delta_base::signal::CancelToken;
pub use directory_hash::{HashLimits, SkipRule, hash_directory};
pub use exclude_patterns::{ExcludePatterns, PatternProblem};
pub use redacted_tree::TreeRedaction;
pub use restore::RestorePlan;
pub use size_limit::WorkspaceLimit;
pub use staging::{MergeRules, StagedMerge, StagedSnapshot, StagedTrees};
pub use tree::{EntryKind, FileOwner, SnapshotChange, TreeEntry};
pub use unified_diff::{
    RenderedChange, is_implied_directory, quote_git_path, render_change, render_changes_within,
};

use delta_base::durable;
use file_index::FileIndex;
use object_store::ObjectStore;
use rustix::fs::Mode;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tree::OmittedContent;
use workspace_walk::{DirectoryCache, WorkspaceWalk};

/// The directory of runs, omitted from snapshots at any depth.
const CONTROL_DIR_NAME: &[u8] = b".delta";

/// The name of the store's directory inside the directory given to [`SnapshotStore::open`].
pub const SNAPSHOT_DIR_NAME: &str = "snapshots";

/// A snapshot could not be taken, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// An operation on a file failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Cancellation was requested.
    #[error("interrupted")]
    Cancelled,
    /// Objects are missing or damaged; one line for each. Nothing was changed.
    #[error("the snapshot is damaged:\n{}", .0.join("\n"))]
    Damaged(Vec<String>),
    /// The restore would overwrite omitted paths. Nothing was changed.
    #[error("paths that are in no snapshot would be overwritten:\n{}", .0.join("\n"))]
    Blocked(Vec<String>),
}

/// A path that a snapshot omits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedPath {
    /// The path, relative to the workspace.
    pub path: Vec<u8>,
    /// Why it is omitted, such as "it is a pipe".
    pub reason: String,
}

/// A snapshot of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The id of the snapshot: its root directory.
    pub tree: SnapshotId,
    /// The number of files.
    pub files: u64,
    /// The total length of the files and symlinks.
    pub bytes: u64,
    /// The bytes that were written for this snapshot.
    pub written_bytes: u64,
    /// The paths that are omitted without being excluded.
    pub omitted: Vec<OmittedPath>,
    /// The omitted paths that no earlier snapshot of this store value has reported.
    pub newly_omitted: Vec<OmittedPath>,
}

/// The differences between two snapshots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotDiff {
    /// The changed paths, sorted within each directory.
    pub changes: Vec<SnapshotChange>,
    /// The paths that either snapshot omits, so that their changes are unknown.
    pub omitted: Vec<Vec<u8>>,
    /// The omitted paths that only the second snapshot has, and so cannot be restored.
    pub unrestorable: Vec<Vec<u8>>,
    /// The paths whose content one snapshot has, and the other omits: they differ, and a restore leaves them as they are.
    pub half_known: Vec<HalfKnownPath>,
}

/// A path whose content only one of two snapshots has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HalfKnownPath {
    /// The path, relative to the workspace.
    pub path: Vec<u8>,
    /// Whether the first snapshot has it.
    pub is_before_known: bool,
}

/// A store of snapshots.
#[derive(Debug)]
pub struct SnapshotStore {
    dir: PathBuf,
    objects: ObjectStore,
    index: FileIndex,
    exclude: ExcludePatterns,
    /// The directories in the last snapshot.
    directories: DirectoryCache,
    /// The omitted paths that a snapshot has reported.
    reported: HashSet<Vec<u8>>,
    /// The paths that snapshots omit, because an earlier process has found a secret in them.
    secret_paths: HashSet<Vec<u8>>,
    /// Whether a restore keeps setuid and setgid.
    keeps_special_bits: bool,
    /// Whether a restore leaves each `.git` as it is.
    leaves_git: bool,
}

impl SnapshotStore {
    /// Opens the store in `{run_dir}/snapshots`, and creates it when missing. Its snapshots omit `exclude`.
    pub fn open(run_dir: &Path, exclude: ExcludePatterns) -> Result<Self, FileError> {
        let dir = run_dir.join(SNAPSHOT_DIR_NAME);
        let mut objects = ObjectStore::open(dir.join("objects"))?;
        let index = FileIndex::load(&dir.join("index"), &mut objects);
        Ok(Self {
            dir,
            objects,
            index,
            exclude,
            directories: DirectoryCache::new(),
            reported: HashSet::new(),
            secret_paths: HashSet::new(),
            keeps_special_bits: false,
            leaves_git: false,
        })
    }

    /// The patterns that the store was opened with.
    pub fn exclude_patterns(&self) -> &ExcludePatterns {
        &self.exclude
    }

    /// Lets a restore keep setuid and setgid of files whose owner and group come out the same. Only for snapshots that the
    /// caller knows to be its own: the owner in a snapshot from elsewhere can be invented.
    pub fn keep_special_bits(&mut self) {
        self.keeps_special_bits = true;
    }

    /// Makes a restore leave each `.git` as it is. For snapshots of others: git starts what its configuration names.
    pub fn leave_git(&mut self) {
        self.leaves_git = true;
    }

    /// Omits the paths that `tree` omits for a secret, as long as they exist: this process may not know the secret that
    /// an earlier one knew. A missing or damaged tree has no effect.
    pub fn omit_secret_paths_of(&mut self, tree: SnapshotId) {
        tree::collect_secret_paths(&self.objects, tree, &[], &mut self.secret_paths);
    }

    /// Takes a snapshot of `workspace`. Files that are unchanged since the last snapshot are not read again.
    ///
    /// # Errors
    /// An object could not be written, or cancellation was requested. Unreadable files are omitted instead.
    pub fn take(
        &mut self,
        workspace: &Path,
        secrets: &Secrets,
        cancel: Option<&CancelToken>,
    ) -> Result<Snapshot, SnapshotError> {
        self.take_without(workspace, &|_, _| false, secrets, cancel)
    }

    /// As [`SnapshotStore::take`], of the directory as it would be without the paths for which `skips` is true: unlike excluded
    /// paths, they have no entry.
    ///
    /// # Errors
    /// As [`SnapshotStore::take`].
    pub fn take_without(
        &mut self,
        workspace: &Path,
        skips: SkipRule<'_>,
        secrets: &Secrets,
        cancel: Option<&CancelToken>,
    ) -> Result<Snapshot, SnapshotError> {
        let root = open_workspace(workspace)?;
        let now = file_index::read_file_system_clock(&self.dir.join("clock"))?;
        let written_before = self.objects.written_bytes;
        self.index.start_snapshot();
        let mut walk = WorkspaceWalk {
            objects: &mut self.objects,
            index: &mut self.index,
            previous: std::mem::take(&mut self.directories),
            current: DirectoryCache::new(),
            exclude: &self.exclude,
            skips,
            secrets,
            secret_paths: self.secret_paths.clone(),
            remaining_secret_paths: HashSet::new(),
            check_cancelled: &|| check_cancelled(cancel),
            workspace,
            now,
            files: 0,
            bytes: 0,
            omitted: Vec::new(),
        };
        let tree = walk.walk_directory(&root, &[])?;
        let WorkspaceWalk { current, files, bytes, omitted, remaining_secret_paths, .. } = walk;
        self.directories = current;
        self.secret_paths = remaining_secret_paths;
        let newly_omitted = omitted
            .iter()
            .filter(|omitted| self.reported.insert(omitted.path.clone()))
            .cloned()
            .collect();
        let written_bytes = self.objects.written_bytes - written_before;
        Ok(Snapshot { tree, files, bytes, written_bytes, omitted, newly_omitted })
    }

    /// The directories in the last snapshot that contain a `.delta`, relative to the workspace.
    pub fn nested_workspaces(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self
            .directories
            .iter()
            .filter(|(_, directory)| {
                directory.entries.iter().any(|entry| entry.name == CONTROL_DIR_NAME)
            })
            .map(|(path, _)| PathBuf::from(OsStr::from_bytes(path)))
            .collect();
        paths.sort_unstable();
        paths
    }

    /// Saves which files were read, so that the next process does not read them again.
    pub fn save_index(&self) -> Result<(), FileError> {
        self.index.save(&self.dir.join("index"))
    }

    /// Makes all stored objects durable. Call this before contents are removed from the workspace.
    pub fn sync(&self) -> Result<(), FileError> {
        durable::sync_file_system(&self.dir)
    }

    /// What a restore from one snapshot to the other changes. A directory stays in which a path is that the first one omits.
    pub fn diff(
        &self,
        before: SnapshotId,
        after: SnapshotId,
    ) -> Result<SnapshotDiff, SnapshotError> {
        tree::diff_trees(&self.objects, before, after, OmittedContent::Stays)
    }

    /// What differs between two states of a workspace. A directory that the second one does not have is deleted, whatever
    /// was in it.
    pub fn compare(
        &self,
        before: SnapshotId,
        after: SnapshotId,
    ) -> Result<SnapshotDiff, SnapshotError> {
        tree::diff_trees(&self.objects, before, after, OmittedContent::IsGone)
    }

    /// Whether the store has a snapshot, and not only the run its id: the snapshots of a run can be deleted.
    pub fn contains(&self, tree: SnapshotId) -> bool {
        self.objects.has_file(tree)
    }

    /// Reads the content of a file, or the target of a symlink.
    pub fn read_content(&self, id: SnapshotId) -> Result<Vec<u8>, SnapshotError> {
        self.objects.read(id).map_err(|reason| SnapshotError::Damaged(vec![reason]))
    }

    /// Reads the regular file at `path` in a snapshot; `None` if there is none.
    pub fn read_file(
        &self,
        tree: SnapshotId,
        path: &[u8],
    ) -> Result<Option<Vec<u8>>, SnapshotError> {
        let mut names = path.split(|byte| *byte == b'/').peekable();
        let mut dir = tree;
        while let Some(name) = names.next() {
            let kind = if names.peek().is_some() { EntryKind::Directory } else { EntryKind::File };
            let mut entries = tree::read_tree(&self.objects, dir)?.into_iter();
            match entries.find(|entry| entry.name == name && entry.kind == kind) {
                Some(entry) if kind == EntryKind::File => {
                    return self.read_content(entry.id).map(Some);
                }
                Some(entry) => dir = entry.id,
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Stores the snapshot of an empty directory.
    pub fn empty_tree(&mut self) -> Result<SnapshotId, FileError> {
        self.objects.insert(&[])
    }

    /// Copies a snapshot with all its objects from another store.
    pub fn copy_tree_from(&mut self, from: &Self, tree: SnapshotId) -> Result<(), SnapshotError> {
        tree::copy_tree(&mut self.objects, &from.objects, tree)
    }
}

fn check_cancelled(cancel: Option<&CancelToken>) -> Result<(), SnapshotError> {
    if cancel.is_some_and(CancelToken::is_requested) {
        return Err(SnapshotError::Cancelled);
    }
    Ok(())
}

/// Opens the workspace, which may be a symlink itself.
fn open_workspace(workspace: &Path) -> Result<OwnedFd, FileError> {
    let flags = workspace_walk::DIRECTORY_FLAGS.difference(rustix::fs::OFlags::NOFOLLOW);
    rustix::fs::open(workspace, flags, Mode::empty()).map_err(|error| FileError {
        action: "read",
        path: workspace.to_owned(),
        source: error.into(),
    })
}
