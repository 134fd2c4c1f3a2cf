//! Trees: the entries of a directory, and the differences between two trees.
//!
//! A large directory is stored in several pieces, each of which ends at a name chosen by its hash. A change in the
//! directory then costs one piece and not all of them.

use super::object_store::ObjectStore;
use super::workspace_walk::permission_bits;
use super::{HalfKnownPath, SnapshotDiff, SnapshotError};
use delta_base::durable::FileError;
use delta_base::id::SnapshotId;
use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::fmt::Write as _;

/// The average number of entries in a piece.
const PIECE_ENTRIES: u64 = 48;
/// The minimum, so that every level of pieces has fewer than the level below it.
const MIN_PIECE_ENTRIES: usize = 8;

/// The kind of a tree entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink; its content is its target.
    Symlink,
    /// A path whose content is not stored: excluded, special or unreadable.
    Omitted,
    /// Omitted, because it contains a secret; also for processes that do not know the secret.
    Secret,
    /// A piece of a large directory. Never returned to callers.
    Piece,
}

impl EntryKind {
    /// Whether the content is not stored, and a restore leaves the path as it is.
    pub fn is_omitted(self) -> bool {
        matches!(self, Self::Omitted | Self::Secret)
    }
}

/// The bits of a mode that give a program the rights of its owner or group.
pub(super) const SPECIAL_BITS: u32 = 0o6000;

/// The owner and the group of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOwner {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
}

impl FileOwner {
    /// The owner of a file.
    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        Self { user: stat.st_uid, group: stat.st_gid }
    }

    /// The owner of a file whose mode has setuid or setgid.
    pub(super) fn of_special_mode(stat: &rustix::fs::Stat) -> Option<Self> {
        (permission_bits(stat) & SPECIAL_BITS != 0).then(|| Self::of(stat))
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// The name, without a path.
    pub name: Vec<u8>,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// The permission bits of a file or directory, with setuid, setgid and sticky; otherwise 0.
    pub mode: u32,
    /// The owner of a file or directory whose mode has setuid or setgid; otherwise `None`.
    pub owner: Option<FileOwner>,
    /// The length of the content.
    pub length: u64,
    /// The id of the content; for a directory, of its tree.
    pub id: SnapshotId,
}

impl TreeEntry {
    /// An entry whose content is not stored.
    pub(super) fn omitted(name: &[u8], kind: EntryKind) -> Self {
        let name = name.to_owned();
        Self { name, kind, mode: 0, owner: None, length: 0, id: SnapshotId::NONE }
    }
}

fn kind_letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => 'f',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::Omitted => 'x',
        EntryKind::Secret => 'k',
        EntryKind::Piece => 'p',
    }
}

fn encode_entries(entries: &[TreeEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * 100);
    let mut head = String::new();
    for TreeEntry { name, kind, mode, owner, length, id } in entries {
        head.clear();
        let _ = write!(head, "{} {mode:o}", kind_letter(*kind));
        if let Some(FileOwner { user, group }) = owner {
            let _ = write!(head, ":{user}:{group}");
        }
        let _ = write!(head, " {length} {id} ");
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    bytes
}

fn decode_entries(bytes: &[u8]) -> Option<Vec<TreeEntry>> {
    let mut lines = bytes.split(|byte| *byte == 0).collect::<Vec<_>>();
    lines.pop().filter(|rest| rest.is_empty())?;
    lines.into_iter().map(decode_tree_entry).collect()
}

fn decode_tree_entry(line: &[u8]) -> Option<TreeEntry> {
    let mut fields = line.splitn(5, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let kind = match text()? {
        "f" => EntryKind::File,
        "d" => EntryKind::Directory,
        "l" => EntryKind::Symlink,
        "x" => EntryKind::Omitted,
        "k" => EntryKind::Secret,
        "p" => EntryKind::Piece,
        _ => return None,
    };
    let (mode, owner) = decode_mode(text()?)?;
    let length = text()?.parse().ok()?;
    let id = SnapshotId::parse(text()?)?;
    let name = fields.next()?.to_owned();
    // A name must not lead out of the directory.
    let is_name = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    is_name.then_some(TreeEntry { name, kind, mode, owner, length, id })
}

/// The mode in octal digits; `:USER:GROUP` follows one with setuid or setgid. Earlier versions recorded no owner.
fn decode_mode(text: &str) -> Option<(u32, Option<FileOwner>)> {
    let mut parts = text.split(':');
    let mode = u32::from_str_radix(parts.next()?, 8).ok().filter(|mode| *mode <= 0o7777)?;
    let owner = match parts.next() {
        None => None,
        Some(user) => {
            let user = user.parse().ok()?;
            Some(FileOwner { user, group: parts.next()?.parse().ok()? })
        }
    };
    parts.next().is_none().then_some((mode, owner))
}

/// Stores the entries of a directory, which must be sorted by name.
pub(super) fn write_tree(
    objects: &mut ObjectStore,
    entries: &[TreeEntry],
) -> Result<SnapshotId, FileError> {
    build_tree(&mut |bytes| objects.insert(bytes), entries, 0)
}

/// The id that [`write_tree`] returns, without storing anything.
pub(super) fn hash_tree(entries: &[TreeEntry]) -> SnapshotId {
    let Ok(id) =
        build_tree(&mut |bytes| Ok::<_, Infallible>(SnapshotId::from_content(bytes)), entries, 0);
    id
}

fn build_tree<E>(
    insert: &mut dyn FnMut(&[u8]) -> Result<SnapshotId, E>,
    entries: &[TreeEntry],
    level: u8,
) -> Result<SnapshotId, E> {
    let mut pieces: Vec<TreeEntry> = Vec::new();
    let mut start = 0;
    for end in 1..=entries.len() {
        let last = &entries[end - 1];
        if end == entries.len() && start == 0 {
            break;
        }
        let is_boundary = end - start >= MIN_PIECE_ENTRIES
            && boundary_hash(level, &last.name).is_multiple_of(PIECE_ENTRIES);
        if is_boundary || end == entries.len() {
            let bytes = encode_entries(&entries[start..end]);
            pieces.push(TreeEntry {
                name: last.name.clone(),
                kind: EntryKind::Piece,
                mode: 0,
                owner: None,
                length: bytes.len() as u64,
                id: insert(&bytes)?,
            });
            start = end;
        }
    }
    if pieces.is_empty() {
        return insert(&encode_entries(entries));
    }
    build_tree(insert, &pieces, level.wrapping_add(1))
}

/// FNV-1a. The boundaries of pieces must be the same in every version.
fn boundary_hash(level: u8, name: &[u8]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in std::iter::once(&level).chain(name) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The low bits of FNV depend too little on the first bytes.
    hash ^ (hash >> 29)
}

/// The entries of a tree, sorted by name.
pub(super) fn read_tree(
    objects: &ObjectStore,
    id: SnapshotId,
) -> Result<Vec<TreeEntry>, SnapshotError> {
    let mut entries = Vec::new();
    read_tree_into(objects, id, &mut entries)?;
    if !entries.is_sorted_by(|one, next| one.name < next.name) {
        return Err(SnapshotError::Damaged(vec![format!("the tree {id} is not sorted")]));
    }
    Ok(entries)
}

fn read_tree_into(
    objects: &ObjectStore,
    id: SnapshotId,
    entries: &mut Vec<TreeEntry>,
) -> Result<(), SnapshotError> {
    for entry in decode_tree(&read_object(objects, id)?, id)? {
        match entry.kind {
            EntryKind::Piece => read_tree_into(objects, entry.id, entries)?,
            _ => entries.push(entry),
        }
    }
    Ok(())
}

fn read_object(objects: &ObjectStore, id: SnapshotId) -> Result<Vec<u8>, SnapshotError> {
    objects.read(id).map_err(|reason| SnapshotError::Damaged(vec![reason]))
}

fn decode_tree(bytes: &[u8], id: SnapshotId) -> Result<Vec<TreeEntry>, SnapshotError> {
    decode_entries(bytes)
        .ok_or_else(|| SnapshotError::Damaged(vec![format!("the object {id} is not a tree")]))
}

/// Copies a tree with all its objects.
pub(super) fn copy_tree(
    to: &mut ObjectStore,
    from: &ObjectStore,
    id: SnapshotId,
) -> Result<(), SnapshotError> {
    let bytes = read_object(from, id)?;
    for entry in decode_tree(&bytes, id)? {
        match entry.kind {
            EntryKind::Omitted | EntryKind::Secret => {}
            EntryKind::File | EntryKind::Symlink => to.copy_from(from, entry.id, entry.length)?,
            EntryKind::Directory | EntryKind::Piece => copy_tree(to, from, entry.id)?,
        }
    }
    Ok(to.copy_from(from, id, bytes.len() as u64)?)
}

/// Collects the ids of the objects of a tree; without `contents`, of its directories alone.
pub(super) fn collect_objects(
    objects: &ObjectStore,
    id: SnapshotId,
    contents: bool,
    ids: &mut BTreeSet<SnapshotId>,
) -> Result<(), SnapshotError> {
    if !ids.insert(id) {
        return Ok(());
    }
    for entry in decode_tree(&read_object(objects, id)?, id)? {
        match entry.kind {
            EntryKind::Directory | EntryKind::Piece => {
                collect_objects(objects, entry.id, contents, ids)?;
            }
            EntryKind::File | EntryKind::Symlink if contents => {
                ids.insert(entry.id);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Collects the paths that a tree omits for a secret, as far as the tree can be read.
pub(super) fn collect_secret_paths(
    objects: &ObjectStore,
    id: SnapshotId,
    path: &[u8],
    secret_paths: &mut HashSet<Vec<u8>>,
) {
    for entry in read_tree(objects, id).unwrap_or_default() {
        let path = join_tree_path(path, &entry.name);
        match entry.kind {
            EntryKind::Directory => collect_secret_paths(objects, entry.id, &path, secret_paths),
            EntryKind::Secret => {
                secret_paths.insert(path);
            }
            _ => {}
        }
    }
}

/// A path that differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotChange {
    /// The path, relative to the workspace.
    pub path: Vec<u8>,
    /// The entry in the first snapshot; `None` when the path is new.
    pub before: Option<TreeEntry>,
    /// The entry in the second snapshot; `None` when the path was removed.
    pub after: Option<TreeEntry>,
}

/// The entries of one name in two directories, at least one of which exists.
#[derive(Clone, Copy)]
pub(super) struct EntryPair<'a> {
    pub before: Option<&'a TreeEntry>,
    pub after: Option<&'a TreeEntry>,
}

impl<'a> EntryPair<'a> {
    pub fn name(&self) -> &'a [u8] {
        self.before.or(self.after).map_or(&[], |entry| &entry.name)
    }

    pub fn is_omitted(&self) -> bool {
        [self.before, self.after].into_iter().flatten().any(|entry| entry.kind.is_omitted())
    }
}

/// Pairs the entries of two directories by name, in the order of the names.
pub(super) fn pair_entries<'a>(
    before: &'a [TreeEntry],
    after: &'a [TreeEntry],
) -> Vec<EntryPair<'a>> {
    let mut before = before.iter().peekable();
    let mut after = after.iter().peekable();
    let mut pairs = Vec::with_capacity(before.len().max(after.len()));
    while let Some(name) =
        before.peek().into_iter().chain(after.peek()).copied().map(|entry| &entry.name).min()
    {
        pairs.push(EntryPair {
            before: before.next_if(|entry| entry.name == *name),
            after: after.next_if(|entry| entry.name == *name),
        });
    }
    pairs
}

/// What happens to a directory that only the first tree has and that contains an omitted path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OmittedContent {
    /// It is not there in the second state, so it is deleted.
    IsGone,
    /// It stays in a restore, which deletes no omitted path.
    Stays,
}

/// Compares two trees. Paths that either of them omits count as equal.
pub(super) fn diff_trees(
    objects: &ObjectStore,
    before: SnapshotId,
    after: SnapshotId,
    omitted_content: OmittedContent,
) -> Result<SnapshotDiff, SnapshotError> {
    let diff = SnapshotDiff::default();
    let mut comparison = TreeComparison { objects, diff, omitted_content };
    if before != after {
        let before = read_tree(objects, before)?;
        let after = read_tree(objects, after)?;
        comparison.compare_directories(&[], &before, &after)?;
    }
    Ok(comparison.diff)
}

struct TreeComparison<'a> {
    objects: &'a ObjectStore,
    diff: SnapshotDiff,
    omitted_content: OmittedContent,
}

impl TreeComparison<'_> {
    fn compare_directories(
        &mut self,
        path: &[u8],
        before: &[TreeEntry],
        after: &[TreeEntry],
    ) -> Result<(), SnapshotError> {
        for pair in pair_entries(before, after) {
            if pair.before != pair.after {
                self.compare_pair(&join_tree_path(path, pair.name()), pair)?;
            }
        }
        Ok(())
    }

    fn compare_pair(&mut self, path: &[u8], pair: EntryPair<'_>) -> Result<(), SnapshotError> {
        let EntryPair { before, after } = pair;
        if pair.is_omitted() {
            // Also in a directory that only one side has, so that omitted paths in it do not appear as new or removed.
            self.diff.omitted.push(path.to_owned());
            match (before, after) {
                (None, _) => self.diff.unrestorable.push(path.to_owned()),
                (Some(before), Some(after))
                    if before.kind.is_omitted() != after.kind.is_omitted() =>
                {
                    let is_before_known = after.kind.is_omitted();
                    let path = path.to_owned();
                    self.diff.half_known.push(HalfKnownPath { path, is_before_known });
                }
                _ => {}
            }
            return Ok(());
        }
        let change_index = self.diff.changes.len();
        let omitted_count = self.diff.omitted.len();
        let before_entries = self.directory_entries(before)?;
        let after_entries = self.directory_entries(after)?;
        let are_directories = before_entries.is_some() && after_entries.is_some();
        if !are_directories || before.map(|entry| entry.mode) != after.map(|entry| entry.mode) {
            self.diff.changes.push(SnapshotChange {
                path: path.to_owned(),
                before: before.cloned(),
                after: after.cloned(),
            });
        }
        self.compare_directories(
            path,
            &before_entries.unwrap_or_default(),
            &after_entries.unwrap_or_default(),
        )?;
        let has_omitted_path = self.diff.omitted.len() > omitted_count;
        if after.is_none() && has_omitted_path && self.omitted_content == OmittedContent::Stays {
            self.diff.changes.remove(change_index);
        }
        Ok(())
    }

    /// The entries of a directory; `None` for any other entry.
    fn directory_entries(
        &self,
        entry: Option<&TreeEntry>,
    ) -> Result<Option<Vec<TreeEntry>>, SnapshotError> {
        entry
            .filter(|entry| entry.kind == EntryKind::Directory)
            .map(|entry| read_tree(self.objects, entry.id))
            .transpose()
    }
}

pub(super) fn join_tree_path(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_owned();
    }
    [directory, b"/", name].concat()
}
