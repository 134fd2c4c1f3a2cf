//! The hash of a directory that is the same wherever the directory is: on another host, in an archive, or in a git repository.
//!
//! It is the id of a tree, which a store can have. Of the mode of a file only the bit counts that git keeps, and empty directories do
//! not count.

use super::object_store::ObjectStore;
use super::tree::{self, EntryKind, TreeEntry, join_tree_path};
use super::workspace_walk::{FILE_FLAGS, list_names, open_stored_subdirectory, permission_bits};
use super::{SnapshotError, SnapshotStore, open_workspace};
use delta_base::id::SnapshotId;
use rustix::fs::{AtFlags, FileType, Mode};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The mode of a directory, and of a file that its owner may execute.
const EXECUTABLE_MODE: u32 = 0o755;
/// The mode of another file.
const FILE_MODE: u32 = 0o644;

/// How large a directory may be.
#[derive(Debug, Clone, Copy)]
pub struct HashLimits {
    /// The number of files, symlinks and directories in it, at any depth.
    pub entries: usize,
    /// The bytes of the files together.
    pub bytes: u64,
}

/// Whether a path does not count: gets the path, relative to the directory, and the names next to it.
pub type SkipRule<'a> = &'a dyn Fn(&[u8], &[Vec<u8>]) -> bool;

/// The hash of `dir` without the paths for which `skips` is true.
/// `None` if the directory cannot be read, or is larger than `limits`. What is neither a regular file, a directory nor a symlink,
/// and what cannot be read, counts by its name alone.
pub fn hash_directory(dir: &Path, skips: SkipRule<'_>, limits: HashLimits) -> Option<SnapshotId> {
    let root = open_workspace(dir).ok()?;
    let mut walk = HashWalk { skips, remaining: limits, objects: None };
    let entries = walk.walk_directory(&root, &[])?;
    walk.keep_tree(&entries)
}

impl SnapshotStore {
    /// Stores what [`hash_directory`] hashes, under the same id.
    pub fn store_directory(
        &mut self,
        dir: &Path,
        skips: SkipRule<'_>,
        limits: HashLimits,
    ) -> Option<SnapshotId> {
        let root = open_workspace(dir).ok()?;
        let mut walk = HashWalk { skips, remaining: limits, objects: Some(&mut self.objects) };
        let entries = walk.walk_directory(&root, &[])?;
        walk.keep_tree(&entries)
    }

    /// The ids of all objects of a snapshot; without `contents`, of its directories alone.
    ///
    /// # Errors
    /// A directory is missing or damaged.
    pub fn object_ids(
        &self,
        tree: SnapshotId,
        contents: bool,
    ) -> Result<BTreeSet<SnapshotId>, SnapshotError> {
        let mut ids = BTreeSet::new();
        tree::collect_objects(&self.objects, tree, contents, &mut ids)?;
        Ok(ids)
    }
}

struct HashWalk<'a> {
    skips: SkipRule<'a>,
    remaining: HashLimits,
    /// Where the contents are kept, if they are.
    objects: Option<&'a mut ObjectStore>,
}

impl HashWalk<'_> {
    fn keep_tree(&mut self, entries: &[TreeEntry]) -> Option<SnapshotId> {
        match &mut self.objects {
            Some(objects) => tree::write_tree(objects, entries).ok(),
            None => Some(tree::hash_tree(entries)),
        }
    }

    fn keep_content(&mut self, content: &[u8]) -> Option<SnapshotId> {
        match &mut self.objects {
            Some(objects) => objects.insert(content).ok(),
            None => Some(SnapshotId::from_content(content)),
        }
    }

    fn walk_directory(&mut self, dir: &OwnedFd, path: &[u8]) -> Option<Vec<TreeEntry>> {
        let names = list_names(dir).ok()?;
        let mut entries = Vec::with_capacity(names.len());
        for name in &names {
            let path = join_tree_path(path, name);
            if (self.skips)(&path, &names) {
                continue;
            }
            self.remaining.entries = self.remaining.entries.checked_sub(1)?;
            entries.extend(self.hash_entry(dir, &path, name)?);
        }
        Some(entries)
    }

    /// The entry of a name: `Some(None)` for an empty directory, `None` if a limit is exceeded.
    fn hash_entry(&mut self, dir: &OwnedFd, path: &[u8], name: &[u8]) -> Option<Option<TreeEntry>> {
        let omitted = || Some(Some(TreeEntry::omitted(name, EntryKind::Omitted)));
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return omitted();
        };
        let entry = |kind, mode, length, id| TreeEntry {
            name: name.to_owned(),
            kind,
            mode,
            owner: None,
            length,
            id,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let opened = rustix::fs::openat(dir, name, FILE_FLAGS, Mode::empty());
                let Ok(file) = opened.map(File::from) else { return omitted() };
                let mut content = Vec::new();
                let mut reader = file.take(self.remaining.bytes + 1);
                if reader.read_to_end(&mut content).is_err() {
                    return omitted();
                }
                let length = content.len() as u64;
                self.remaining.bytes = self.remaining.bytes.checked_sub(length)?;
                let id = self.keep_content(&content)?;
                let is_executable = permission_bits(&stat) & 0o100 != 0;
                let mode = if is_executable { EXECUTABLE_MODE } else { FILE_MODE };
                Some(Some(entry(EntryKind::File, mode, length, id)))
            }
            FileType::Directory => {
                let Ok(subdir) = open_stored_subdirectory(dir, name) else { return omitted() };
                let entries = self.walk_directory(&subdir, path)?;
                if entries.is_empty() {
                    return Some(None);
                }
                let id = self.keep_tree(&entries)?;
                let directory = entry(EntryKind::Directory, EXECUTABLE_MODE, 0, id);
                Some(Some(directory))
            }
            FileType::Symlink => {
                let Ok(target) = rustix::fs::readlinkat(dir, name, Vec::new()) else {
                    return omitted();
                };
                let target = target.as_bytes();
                let id = self.keep_content(target)?;
                Some(Some(entry(EntryKind::Symlink, 0, target.len() as u64, id)))
            }
            _ => omitted(),
        }
    }
}
