//! Copies of snapshots in which values are redacted.

use super::tree::{self, EntryKind, TreeEntry};
use super::{SnapshotError, SnapshotStore};
use delta_base::id::SnapshotId;
use delta_base::redact::{FoundSecrets, Secrets};
use std::collections::{BTreeSet, HashMap};

/// A directory whose files are compressed, so that a value in them cannot be seen.
const GIT_DIR: &[u8] = b".git";

/// Copies snapshots into another store without the values, and without each `.git`.
#[derive(Debug)]
pub struct TreeRedaction<'a> {
    from: &'a SnapshotStore,
    secrets: &'a Secrets,
    /// The id and the length of the copy of each object.
    copies: HashMap<SnapshotId, (SnapshotId, u64)>,
    /// What was redacted.
    pub found: FoundSecrets,
    /// The names of compressed files, which keep their content.
    pub compressed: BTreeSet<String>,
    /// Whether there was a `.git`.
    pub has_git: bool,
}

impl<'a> TreeRedaction<'a> {
    /// Copies from a store without the `secrets`.
    pub fn new(from: &'a SnapshotStore, secrets: &'a Secrets) -> Self {
        Self {
            from,
            secrets,
            copies: HashMap::new(),
            found: FoundSecrets::default(),
            compressed: BTreeSet::new(),
            has_git: false,
        }
    }

    /// The objects that were copied, each with its copy.
    pub fn copies(&self) -> impl Iterator<Item = (SnapshotId, SnapshotId)> {
        self.copies.iter().map(|(id, (copy, _))| (*id, *copy))
    }

    /// Copies a snapshot with its contents.
    ///
    /// # Errors
    /// An object is missing or damaged, or cannot be written.
    pub fn copy_tree(
        &mut self,
        to: &mut SnapshotStore,
        tree: SnapshotId,
    ) -> Result<SnapshotId, SnapshotError> {
        if let Some((copy, _)) = self.copies.get(&tree) {
            return Ok(*copy);
        }
        let mut entries: Vec<TreeEntry> = Vec::new();
        for mut entry in tree::read_tree(&self.from.objects, tree)? {
            if entry.name == GIT_DIR {
                self.has_git = true;
                continue;
            }
            match entry.kind {
                EntryKind::Directory => entry.id = self.copy_tree(to, entry.id)?,
                EntryKind::File | EntryKind::Symlink => {
                    (entry.id, entry.length) = self.copy_content(to, &entry)?;
                }
                EntryKind::Omitted | EntryKind::Secret | EntryKind::Piece => {}
            }
            entry.name = self.secrets.redact_bytes(&entry.name, &mut self.found);
            entries.push(entry);
        }
        number_equal_names(&mut entries);
        entries.sort_by(|one, next| one.name.cmp(&next.name));
        let copy = tree::write_tree(&mut to.objects, &entries)?;
        self.copies.insert(tree, (copy, 0));
        Ok(copy)
    }

    fn copy_content(
        &mut self,
        to: &mut SnapshotStore,
        entry: &TreeEntry,
    ) -> Result<(SnapshotId, u64), SnapshotError> {
        if let Some(copy) = self.copies.get(&entry.id) {
            return Ok(*copy);
        }
        let mut source = self.from.objects.open_object(entry.id)?;
        let mut redactor = self.secrets.stream_redactor();
        let copy = to.objects.insert_redacted(&mut source, &mut redactor)?;
        if copy.is_compressed {
            self.compressed.insert(String::from_utf8_lossy(&entry.name).into_owned());
        }
        self.found.add(redactor.found_secrets());
        self.copies.insert(entry.id, (copy.id, copy.length));
        Ok((copy.id, copy.length))
    }
}

/// Two names can be equal without the values in them.
fn number_equal_names(entries: &mut [TreeEntry]) {
    let mut names = BTreeSet::new();
    for entry in entries {
        let mut name = entry.name.clone();
        let mut number = 2;
        while !names.insert(name.clone()) {
            name = [&entry.name, format!("-{number}").as_bytes()].concat();
            number += 1;
        }
        entry.name = name;
    }
}
