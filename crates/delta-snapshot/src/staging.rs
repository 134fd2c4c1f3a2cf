//! Staged changes: what the upper layer of an overlay changes in a snapshot, and their merge into a workspace.
//!
//! The format of an upper layer is the kernel's (Documentation/filesystems/overlayfs.rst): a deleted name is a character
//! device 0/0, and the attribute `user.overlay.opaque` of a directory hides what is below it.

use super::object_store::ObjectStore;
use super::tree::{self, EntryKind, TreeEntry, join_tree_path, pair_entries};
use super::workspace_walk::DIRECTORY_FLAGS;
use super::{CancelToken, Secrets, SnapshotError, SnapshotStore, open_workspace};
use delta_base::durable::FileError;
use delta_base::id::SnapshotId;
use rustix::fs::{AtFlags, FileType, Mode};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const OPAQUE_ATTRIBUTE: &str = "user.overlay.opaque";

/// The permissions that a restore adds to a directory while it changes its entries.
const OWNER_BITS: u32 = 0o700;

/// The mode of a file that a restore has just created.
const NEW_FILE_MODE: u32 = 0o600;

/// How much of two files is compared at a time.
const COMPARED_BYTES: usize = 64 * 1024;

/// The start of the names that a restore gives to unfinished files.
const TEMPORARY_PREFIX: &[u8] = b".delta-restore";

/// Three versions of a directory: before the staged changes, with them, and as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedTrees {
    /// The workspace that the stage was based on.
    pub base: SnapshotId,
    /// The same with the staged changes.
    pub staged: SnapshotId,
    /// The workspace now.
    pub current: SnapshotId,
}

/// How staged changes are merged.
pub struct MergeRules<'a> {
    /// Whether the change of a path is merged.
    pub selects: &'a dyn Fn(&[u8]) -> bool,
    /// Whether a staged change replaces what else was changed in the workspace.
    pub overwrites: bool,
    /// Whether `current` may be the middle of a restore to `staged` that was interrupted.
    pub is_interrupted: bool,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedMerge {
    /// The current directory with the selected changes.
    pub tree: SnapshotId,
    /// What the stage is based on once `tree` is the current directory and its layer is kept: `base` with the selected
    /// changes.
    pub base: SnapshotId,
    /// The selected paths that were also changed in the current directory, in another way.
    pub conflicts: Vec<Vec<u8>>,
    /// Whether changes that were not selected remain.
    pub has_rest: bool,
}

/// A snapshot of a directory with staged changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedSnapshot {
    /// The id of the snapshot.
    pub tree: SnapshotId,
    /// The staged paths whose content is in no snapshot.
    pub left_out: Vec<Vec<u8>>,
}

impl SnapshotStore {
    /// Stores the snapshot of `base` as the upper layer of an overlay in the directory `upper` changes it.
    ///
    /// # Errors
    /// As for [`SnapshotStore::take`].
    pub fn take_staged(
        &mut self,
        base: SnapshotId,
        upper: &Path,
        secrets: &Secrets,
        cancel: Option<&CancelToken>,
    ) -> Result<StagedSnapshot, SnapshotError> {
        // What the store remembers of the workspace is true of other files.
        let index = std::mem::take(&mut self.index);
        let directories = std::mem::take(&mut self.directories);
        let secret_paths = self.secret_paths.clone();
        let layer = self.take(upper, secrets, cancel);
        self.index = index;
        self.directories = directories;
        self.secret_paths.extend(secret_paths);
        let layer = tree::read_tree(&self.objects, layer?.tree)?;
        let base = tree::read_tree(&self.objects, base)?;
        let root = open_workspace(upper)?;
        let mut overlay =
            UpperLayer { objects: &mut self.objects, root: upper, left_out: Vec::new() };
        let entries = overlay.merge_into(&[], &root, &base, &layer)?;
        let left_out = overlay.left_out;
        Ok(StagedSnapshot { tree: tree::write_tree(&mut self.objects, &entries)?, left_out })
    }

    /// Merges staged changes into the current directory, path by path. Changes nothing outside of the store.
    pub fn merge_staged(
        &mut self,
        trees: StagedTrees,
        rules: &MergeRules<'_>,
    ) -> Result<StagedMerge, SnapshotError> {
        let [base, staged, current] = [trees.base, trees.staged, trees.current]
            .map(|tree| tree::read_tree(&self.objects, tree));
        let versions = [base?, staged?, current?];
        let mut merge =
            TreeMerge { objects: &mut self.objects, rules, conflicts: Vec::new(), has_rest: false };
        let merged = merge.merge_directory(&[], &versions)?;
        let conflicts = std::mem::take(&mut merge.conflicts);
        let has_rest = merge.has_rest;
        // The layer hides what it removed, and has copies of files that are as in the base: what others made or changed at
        // such a path would be a staged change if the new base had it. So the base changes by what was selected alone.
        let [base, staged, _] = versions;
        let rest = merge.merge_directory(&[], &[base.clone(), staged, base])?;
        Ok(StagedMerge {
            tree: tree::write_tree(&mut self.objects, &merged)?,
            base: tree::write_tree(&mut self.objects, &rest)?,
            conflicts,
            has_rest,
        })
    }
}

struct UpperLayer<'a> {
    objects: &'a mut ObjectStore,
    root: &'a Path,
    left_out: Vec<Vec<u8>>,
}

impl UpperLayer<'_> {
    /// The entries of `base` with the changes of `layer`, the entries of the layer's directory `dir` at `path`.
    fn merge_into(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        base: &[TreeEntry],
        layer: &[TreeEntry],
    ) -> Result<Vec<TreeEntry>, SnapshotError> {
        let mut entries = Vec::with_capacity(base.len());
        for pair in pair_entries(base, layer) {
            let Some(upper) = pair.after else {
                entries.extend(pair.before.cloned());
                continue;
            };
            let path = join_tree_path(path, &upper.name);
            if upper.kind.is_omitted() && is_whiteout(dir, &upper.name) {
                let is_unknown = pair.before.is_some_and(|entry| entry.kind.is_omitted());
                entries.extend(pair.before.filter(|_| is_unknown).cloned());
                if is_unknown {
                    self.left_out.push(path);
                }
            } else if upper.kind.is_omitted() {
                entries.push(upper.clone());
                self.left_out.push(path);
            } else if upper.kind == EntryKind::Directory {
                entries.push(self.merge_subdirectory(&path, dir, pair.before, upper)?);
            } else {
                entries.push(upper.clone());
            }
        }
        Ok(entries)
    }

    fn merge_subdirectory(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        before: Option<&TreeEntry>,
        upper: &TreeEntry,
    ) -> Result<TreeEntry, SnapshotError> {
        let subdir = rustix::fs::openat(dir, &*upper.name, DIRECTORY_FLAGS, Mode::empty())
            .map_err(|error| FileError {
                action: "read",
                path: self.root.join(OsStr::from_bytes(path)),
                source: error.into(),
            })?;
        let before = before.filter(|entry| entry.kind == EntryKind::Directory);
        let base_children = match before.filter(|_| !is_opaque_directory(&subdir)) {
            Some(before) => tree::read_tree(self.objects, before.id)?,
            None => Vec::new(),
        };
        let layer_children = tree::read_tree(self.objects, upper.id)?;
        let children = self.merge_into(path, &subdir, &base_children, &layer_children)?;
        Ok(TreeEntry { id: tree::write_tree(self.objects, &children)?, ..upper.clone() })
    }
}

fn is_whiteout(dir: &OwnedFd, name: &[u8]) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
    })
}

fn is_opaque_directory(dir: &OwnedFd) -> bool {
    let mut value = [0_u8; 8];
    rustix::fs::fgetxattr(dir, OPAQUE_ATTRIBUTE, &mut value).is_ok_and(|length| length > 0)
}

/// Whether `written` has nothing that `expected` does not have: it is not longer, and zeros are where it differs.
fn is_torn_copy(mut written: impl Read, mut expected: impl Read) -> std::io::Result<bool> {
    let mut bytes = vec![0; COMPARED_BYTES];
    let mut expected_bytes = vec![0; COMPARED_BYTES];
    loop {
        let count = written.read(&mut bytes)?;
        if count == 0 {
            return Ok(true);
        }
        expected.read_exact(&mut expected_bytes[..count])?;
        let mut pairs = bytes[..count].iter().zip(&expected_bytes);
        if !pairs.all(|(byte, expected)| *byte == 0 || byte == expected) {
            return Ok(false);
        }
    }
}

struct TreeMerge<'a> {
    objects: &'a mut ObjectStore,
    rules: &'a MergeRules<'a>,
    conflicts: Vec<Vec<u8>>,
    has_rest: bool,
}

/// One name in the three directories.
#[derive(Clone, Copy)]
struct EntryTriple<'a> {
    base: Option<&'a TreeEntry>,
    staged: Option<&'a TreeEntry>,
    current: Option<&'a TreeEntry>,
}

impl EntryTriple<'_> {
    fn has_directory(&self) -> bool {
        [self.base, self.staged, self.current].into_iter().any(is_directory_entry)
    }
}

fn is_directory_entry(entry: Option<&TreeEntry>) -> bool {
    entry.is_some_and(|entry| entry.kind == EntryKind::Directory)
}

fn is_leaf(entry: Option<&TreeEntry>) -> bool {
    entry.is_some() && !is_directory_entry(entry)
}

fn is_omitted(entry: Option<&TreeEntry>) -> bool {
    entry.is_some_and(|entry| entry.kind.is_omitted())
}

/// The base, the staged and the current entries of a directory, each in the order of the names.
type Versions = [Vec<TreeEntry>; 3];

/// The entries of the three versions, in the order of their names.
fn triple_entries(versions: &Versions) -> Vec<(&[u8], EntryTriple<'_>)> {
    let names: BTreeSet<&[u8]> =
        versions.iter().flatten().map(|entry| entry.name.as_slice()).collect();
    names
        .into_iter()
        .map(|name| {
            let [base, staged, current] = versions.each_ref().map(|entries| {
                let index = entries.binary_search_by(|entry| entry.name.as_slice().cmp(name));
                index.ok().map(|index| &entries[index])
            });
            (name, EntryTriple { base, staged, current })
        })
        .collect()
}

type MergedEntry = Result<Option<TreeEntry>, SnapshotError>;

impl TreeMerge<'_> {
    fn merge_directory(
        &mut self,
        path: &[u8],
        versions: &Versions,
    ) -> Result<Vec<TreeEntry>, SnapshotError> {
        let mut merged = Vec::new();
        for (name, triple) in triple_entries(versions) {
            let is_unchanged = triple.staged == triple.base || triple.staged == triple.current;
            let is_leftover = self.rules.is_interrupted
                && triple.staged.is_none()
                && triple.base.is_none()
                && name.starts_with(TEMPORARY_PREFIX);
            if is_leftover {
                continue;
            }
            if is_unchanged {
                merged.extend(triple.current.cloned());
                continue;
            }
            merged.extend(self.merge_entry(&join_tree_path(path, name), triple)?);
        }
        Ok(merged)
    }

    /// Merges a path that is staged with a change.
    fn merge_entry(&mut self, path: &[u8], triple: EntryTriple<'_>) -> MergedEntry {
        let EntryTriple { base, staged, current } = triple;
        if is_omitted(staged) {
            return Ok(current.cloned());
        }
        if is_omitted(current) {
            let is_selected = (self.rules.selects)(path);
            if staged.is_some() && is_selected {
                self.refuse(path);
            }
            self.has_rest |= staged.is_some() && !is_selected;
            return Ok(current.cloned());
        }
        if triple.has_directory() {
            return self.merge_with_directory(path, triple);
        }
        if !(self.rules.selects)(path) {
            self.has_rest = true;
            return Ok(current.cloned());
        }
        if current == base || self.rules.overwrites || self.is_unfinished(staged, current) {
            return Ok(staged.cloned());
        }
        self.refuse(path);
        Ok(current.cloned())
    }

    /// Whether `current` is what a power failure can leave of the file `staged` that an interrupted restore has written:
    /// the same content or a part of it, with its mode or the mode of a new file.
    fn is_unfinished(&self, staged: Option<&TreeEntry>, current: Option<&TreeEntry>) -> bool {
        let Some(staged) = staged.filter(|_| self.rules.is_interrupted) else { return false };
        let Some(current) = current else { return false };
        let are_files = staged.kind == EntryKind::File && current.kind == EntryKind::File;
        let has_mode = [staged.mode, NEW_FILE_MODE].contains(&current.mode);
        are_files
            && has_mode
            && (staged.id == current.id
                || self.objects.open_object(current.id).is_ok_and(|written| {
                    let expected = self.objects.open_object(staged.id);
                    expected.is_ok_and(|expected| is_torn_copy(written, expected).unwrap_or(false))
                }))
    }

    /// Merges a path that is a directory in one of the versions.
    fn merge_with_directory(&mut self, path: &[u8], triple: EntryTriple<'_>) -> MergedEntry {
        let EntryTriple { base, staged, current } = triple;
        let is_selected = (self.rules.selects)(path);
        if is_leaf(current) || is_leaf(staged) {
            if !is_selected {
                self.has_rest = true;
                return Ok(current.cloned());
            }
            return self.replace_kind(path, triple);
        }
        let is_replaced = is_leaf(base) && !self.rules.is_interrupted && !self.rules.overwrites;
        if is_replaced && is_selected {
            // The run and another process both replaced or removed a file.
            self.refuse(path);
            return Ok(current.cloned());
        }
        let children = self.merge_children(path, triple)?;
        let Some(staged) = staged else {
            // The run deleted the directory. What it did not contain before keeps it.
            if !children.is_empty() || !is_selected {
                self.has_rest |= children.is_empty();
                return self.store_directory(current, &children);
            }
            return Ok(None);
        };
        let Some(current) = current else {
            if children.is_empty() && (is_directory_entry(base) || !is_selected) {
                self.has_rest |= !is_directory_entry(base);
                return Ok(None);
            }
            return self.store_directory(Some(staged), &children);
        };
        let mode = self.merge_mode(path, base, staged, current, is_selected);
        self.store_directory(Some(if mode == staged.mode { staged } else { current }), &children)
    }

    /// Merges a selected path that is a directory in one version and a file in another.
    fn replace_kind(&mut self, path: &[u8], triple: EntryTriple<'_>) -> MergedEntry {
        let EntryTriple { base, staged, current } = triple;
        if is_leaf(current) {
            if current == base || self.rules.overwrites || self.is_unfinished(staged, current) {
                return Ok(staged.cloned());
            }
            self.refuse(path);
            return Ok(current.cloned());
        }
        let refused = self.conflicts.len();
        let rest = self.merge_children(path, EntryTriple { base, staged: None, current })?;
        if rest.is_empty() {
            return Ok(staged.cloned());
        }
        if self.conflicts.len() == refused {
            self.refuse(path);
        }
        Ok(current.cloned())
    }

    fn merge_children(
        &mut self,
        path: &[u8],
        triple: EntryTriple<'_>,
    ) -> Result<Vec<TreeEntry>, SnapshotError> {
        self.merge_directory(path, &self.read_children(triple)?)
    }

    /// The mode of a directory that the staged and the current version have.
    fn merge_mode(
        &mut self,
        path: &[u8],
        base: Option<&TreeEntry>,
        staged: &TreeEntry,
        current: &TreeEntry,
        is_selected: bool,
    ) -> u32 {
        let base_mode = base.filter(|base| base.kind == EntryKind::Directory).map(|base| base.mode);
        let is_working_mode = self.rules.is_interrupted && current.mode == staged.mode | OWNER_BITS;
        if is_working_mode {
            return staged.mode;
        }
        if current.mode == staged.mode || base_mode == Some(staged.mode) {
            return current.mode;
        }
        if !is_selected {
            self.has_rest = true;
            return current.mode;
        }
        let is_free = base_mode.is_none_or(|mode| {
            mode == current.mode || self.rules.is_interrupted && current.mode == mode | OWNER_BITS
        });
        if is_free || self.rules.overwrites || self.rules.is_interrupted {
            return staged.mode;
        }
        self.refuse(path);
        current.mode
    }

    fn read_children(&self, triple: EntryTriple<'_>) -> Result<Versions, SnapshotError> {
        let [base, staged, current] =
            [triple.base, triple.staged, triple.current].map(|entry| match entry {
                Some(entry) if entry.kind == EntryKind::Directory => {
                    tree::read_tree(self.objects, entry.id)
                }
                _ => Ok(Vec::new()),
            });
        Ok([base?, staged?, current?])
    }

    /// A directory with the name, the mode and the owner of `like`.
    fn store_directory(&mut self, like: Option<&TreeEntry>, children: &[TreeEntry]) -> MergedEntry {
        let Some(like) = like else { return Ok(None) };
        let id = tree::write_tree(self.objects, children)?;
        Ok(Some(TreeEntry { id, ..like.clone() }))
    }

    fn refuse(&mut self, path: &[u8]) {
        self.conflicts.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExcludePatterns;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::fs;

    /// The paths of files, some of which share directories.
    const PATHS: [&str; 5] = ["a", "d/x", "d/y", "e/f/z", "e/g"];

    /// The content of each of [`PATHS`]; `None` for a file that does not exist.
    type Version = [Option<u8>; PATHS.len()];

    fn version() -> impl Strategy<Value = Version> {
        prop::array::uniform5(prop::option::of(0_u8..3))
    }

    fn store_version(store: &mut SnapshotStore, version: &Version) -> SnapshotId {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in PATHS.iter().zip(version) {
            let Some(content) = content else { continue };
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, [*content]).unwrap();
        }
        store.take(dir.path(), &Secrets::default(), None).unwrap().tree
    }

    fn collect_files(
        store: &SnapshotStore,
        tree: SnapshotId,
        path: &[u8],
        files: &mut BTreeMap<Vec<u8>, SnapshotId>,
    ) {
        for entry in tree::read_tree(&store.objects, tree).unwrap() {
            let path = join_tree_path(path, &entry.name);
            if entry.kind == EntryKind::Directory {
                collect_files(store, entry.id, &path, files);
            } else {
                files.insert(path, entry.id);
            }
        }
    }

    fn merge_all(store: &mut SnapshotStore, trees: StagedTrees) -> StagedMerge {
        let rules = MergeRules { selects: &|_| true, overwrites: false, is_interrupted: false };
        store.merge_staged(trees, &rules).unwrap()
    }

    /// Writes the upper layer that makes `staged` of `base`: as overlayfs does for a run that removes files and directories,
    /// also copies `copied` of what it does not change, and replaces whole directories by `opaque` ones.
    fn write_layer(
        upper: &Path,
        base: &Version,
        staged: &Version,
        copied: &[bool; PATHS.len()],
        opaque: bool,
    ) {
        let has = |version: &Version, directory: &str| {
            let mut paths = PATHS.iter().zip(version);
            paths.any(|(path, content)| content.is_some() && Path::new(path).starts_with(directory))
        };
        let is_replaced =
            |directory: &str| opaque && has(base, directory) && has(staged, directory);
        let is_removed = |directory: &str| has(base, directory) && !has(staged, directory);
        for (index, path) in PATHS.iter().enumerate() {
            let parents = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
            let parents: Vec<&str> = parents.filter(|parent| !parent.is_empty()).collect();
            let removed = parents.iter().rev().find(|parent| is_removed(parent));
            let in_opaque = parents.iter().any(|parent| is_replaced(parent));
            let is_written = staged[index]
                .is_some_and(|_| copied[index] || in_opaque || staged[index] != base[index]);
            let whiteout = match (base[index], staged[index]) {
                (Some(_), None) => removed.copied().or((!in_opaque).then_some(*path)),
                _ => None,
            };
            let Some(path) = whiteout.or(is_written.then_some(*path)) else { continue };
            let place = upper.join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            match staged[index].filter(|_| whiteout.is_none()) {
                Some(content) => fs::write(place, [content]).unwrap(),
                None if place.symlink_metadata().is_ok() || in_opaque => {}
                None => {
                    let kind = FileType::CharacterDevice;
                    rustix::fs::mknodat(rustix::fs::CWD, place, kind, Mode::empty(), 0).unwrap();
                }
            }
        }
        for directory in ["d", "e", "e/f"].into_iter().filter(|directory| is_replaced(directory)) {
            let directory = fs::File::open(upper.join(directory)).unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&directory, OPAQUE_ATTRIBUTE, b"y", flags).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn c_32_2_a_merge_takes_each_change_and_refuses_what_both_changed(
            base in version(), staged in version(), current in version(),
        ) {
            let run = tempfile::tempdir().unwrap();
            let mut store = SnapshotStore::open(run.path(), ExcludePatterns::default()).unwrap();
            let trees = StagedTrees {
                base: store_version(&mut store, &base),
                staged: store_version(&mut store, &staged),
                current: store_version(&mut store, &current),
            };
            let merge = merge_all(&mut store, trees);
            let mut expected = BTreeMap::new();
            let mut conflicts = Vec::new();
            for (index, path) in PATHS.iter().enumerate() {
                let is_unchanged = [base[index], current[index]].contains(&staged[index]);
                let is_free = current[index] == base[index];
                let content = if is_unchanged || !is_free { current[index] } else { staged[index] };
                if !is_unchanged && !is_free {
                    conflicts.push(path.as_bytes().to_owned());
                }
                if let Some(content) = content {
                    expected.insert(path.as_bytes().to_owned(), SnapshotId::from_content(&[content]));
                }
            }
            let mut files = BTreeMap::new();
            collect_files(&store, merge.tree, &[], &mut files);
            prop_assert_eq!(files, expected);
            prop_assert_eq!(merge.conflicts, conflicts);
            prop_assert!(!merge.has_rest);
        }

        /// In two steps, the result is the one of one step, whatever the layer has of what it does not change.
        #[test]
        fn c_32_3_the_rest_of_a_partial_merge_can_be_merged_later(
            base in version(), staged in version(), mut current in version(), selected in any::<[bool; 5]>(),
            copied in any::<[bool; 5]>(), opaque in any::<bool>(),
        ) {
            // Nothing conflicts.
            for index in (0..PATHS.len()).filter(|index| base[*index] != staged[*index]) {
                current[index] = if current[index].is_some() { base[index] } else { staged[index] };
            }
            let run = tempfile::tempdir().unwrap();
            let upper = tempfile::tempdir().unwrap();
            let mut store = SnapshotStore::open(run.path(), ExcludePatterns::default()).unwrap();
            write_layer(upper.path(), &base, &staged, &copied, opaque);
            let base = store_version(&mut store, &base);
            let none = Secrets::default();
            let layered = store.take_staged(base, upper.path(), &none, None).unwrap().tree;
            prop_assert_eq!(layered, store_version(&mut store, &staged));
            let current = store_version(&mut store, &current);
            let trees = StagedTrees { base, staged: layered, current };
            let whole = merge_all(&mut store, trees);
            let selects = |path: &[u8]| {
                PATHS.iter().zip(selected).any(|(known, is_on)| is_on && known.as_bytes() == path)
            };
            let rules = MergeRules { selects: &selects, overwrites: false, is_interrupted: false };
            let part = store.merge_staged(trees, &rules).unwrap();
            prop_assert!(part.conflicts.is_empty() && whole.conflicts.is_empty());
            let layered = store.take_staged(part.base, upper.path(), &none, None).unwrap().tree;
            let rest = StagedTrees { base: part.base, staged: layered, current: part.tree };
            let rest = merge_all(&mut store, rest);
            let mut files = BTreeMap::new();
            let mut expected = BTreeMap::new();
            collect_files(&store, rest.tree, &[], &mut files);
            collect_files(&store, whole.tree, &[], &mut expected);
            prop_assert_eq!(files, expected);
            prop_assert!(rest.conflicts.is_empty());
        }
    }
}
