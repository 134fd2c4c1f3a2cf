//! Trees: what a directory held, by name; and in which places two of them differ.
//!
//! A large directory is kept in several pieces that end at names chosen by their hash, so that a change in it costs one
//! piece and not the whole.

use super::objects::{Id, Objects};
use super::{Difference, SnapshotError};
use crate::durable::FileError;
use std::collections::HashSet;
use std::fmt::Write as _;

/// A piece has about this many entries.
const PIECE: u64 = 48;
/// And at least this many, so that every level of pieces has fewer than the one below it.
const SMALLEST_PIECE: usize = 8;

/// What stands under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink; its content is where it leads.
    Symlink,
    /// Something that is not kept, and left as it is: excluded, a pipe or a device, or unreadable.
    LeftOut,
    /// The same, since it holds a secret: whoever does not know that must not keep it either.
    Secret,
    /// A part of the entries of a large directory.
    Piece,
}

impl Kind {
    /// Whether it is not kept, and left as it is.
    pub fn is_left_out(self) -> bool {
        matches!(self, Self::LeftOut | Self::Secret)
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without a path.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its permission bits, setuid, setgid and sticky included; 0 where there are none of its own.
    pub mode: u32,
    /// The length of its content.
    pub length: u64,
    /// Its content; of a directory its tree.
    pub id: Id,
}

impl Entry {
    /// Something that is not kept, by one of the two kinds of that.
    pub(super) fn left_out(name: &[u8], kind: Kind) -> Self {
        Self { name: name.to_owned(), kind, mode: 0, length: 0, id: Id::NONE }
    }
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => 'f',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::LeftOut => 'x',
        Kind::Secret => 'k',
        Kind::Piece => 'p',
    }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * 100);
    let mut head = String::new();
    for Entry { name, kind, mode, length, id } in entries {
        head.clear();
        let _ = write!(head, "{} {mode:o} {length} {id} ", letter(*kind));
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut lines = bytes.split(|byte| *byte == 0).collect::<Vec<_>>();
    lines.pop().filter(|rest| rest.is_empty())?;
    lines.into_iter().map(decode_entry).collect()
}

fn decode_entry(line: &[u8]) -> Option<Entry> {
    let mut parts = line.splitn(5, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let kind = match text()? {
        "f" => Kind::File,
        "d" => Kind::Directory,
        "l" => Kind::Symlink,
        "x" => Kind::LeftOut,
        "k" => Kind::Secret,
        "p" => Kind::Piece,
        _ => return None,
    };
    let mode = u32::from_str_radix(text()?, 8).ok().filter(|mode| *mode <= 0o7777)?;
    let (length, id) = (text()?.parse().ok()?, Id::parse(text()?)?);
    let name = parts.next()?.to_owned();
    // What leads out of the directory is no name in it.
    let is_name = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
    is_name.then_some(Entry { name, kind, mode, length, id })
}

/// Keeps a directory whose entries are in the order of their names; gives its tree.
pub(super) fn put(objects: &mut Objects, entries: &[Entry]) -> Result<Id, FileError> {
    put_level(objects, entries, 0)
}

fn put_level(objects: &mut Objects, entries: &[Entry], level: u8) -> Result<Id, FileError> {
    let mut pieces: Vec<Entry> = Vec::new();
    let mut start = 0;
    for end in 1..=entries.len() {
        let last = &entries[end - 1];
        let full = end - start >= SMALLEST_PIECE && hash(level, &last.name).is_multiple_of(PIECE);
        if end == entries.len() && start == 0 {
            break;
        }
        if full || end == entries.len() {
            let (bytes, name) = (encode(&entries[start..end]), last.name.clone());
            let (length, id) = (bytes.len() as u64, objects.put(&bytes)?);
            pieces.push(Entry { name, kind: Kind::Piece, mode: 0, length, id });
            start = end;
        }
    }
    match pieces.is_empty() {
        true => objects.put(&encode(entries)),
        false => put_level(objects, &pieces, level.wrapping_add(1)),
    }
}

/// FNV-1a: what ends a piece has to be the same in every version.
fn hash(level: u8, name: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = std::iter::once(&level).chain(name).fold(0xcbf2_9ce4_8422_2325, step);
    // The low bits of FNV know too little of the first bytes.
    hash ^ (hash >> 29)
}

/// The entries of a tree, in the order of their names.
pub(super) fn read(objects: &Objects, id: Id) -> Result<Vec<Entry>, SnapshotError> {
    let mut entries = Vec::new();
    read_into(objects, id, &mut entries)?;
    match entries.is_sorted_by(|one, next| one.name < next.name) {
        true => Ok(entries),
        false => Err(SnapshotError::Damaged(vec![format!("the tree {id} is not in order")])),
    }
}

fn read_into(objects: &Objects, id: Id, entries: &mut Vec<Entry>) -> Result<(), SnapshotError> {
    let damaged = |why| SnapshotError::Damaged(vec![why]);
    let bytes = objects.read(id).map_err(damaged)?;
    let found = decode(&bytes).ok_or_else(|| damaged(format!("the object {id} is not a tree")))?;
    for entry in found {
        match entry.kind {
            Kind::Piece => read_into(objects, entry.id, entries)?,
            _ => entries.push(entry),
        }
    }
    Ok(())
}

/// Takes over from other objects all that a tree needs.
pub(super) fn adopt(to: &mut Objects, from: &Objects, id: Id) -> Result<(), SnapshotError> {
    let damaged = |why| SnapshotError::Damaged(vec![why]);
    let bytes = from.read(id).map_err(damaged)?;
    let found = decode(&bytes).ok_or_else(|| damaged(format!("the object {id} is not a tree")))?;
    for entry in found {
        match entry.kind {
            Kind::LeftOut | Kind::Secret => {}
            Kind::File | Kind::Symlink => to.adopt(from, entry.id, entry.length)?,
            Kind::Directory | Kind::Piece => adopt(to, from, entry.id)?,
        }
    }
    Ok(to.adopt(from, id, bytes.len() as u64)?)
}

/// Notes the paths that a tree leaves out since they hold a secret, as far as the tree can be read.
pub(super) fn secrets(objects: &Objects, id: Id, path: &[u8], found: &mut HashSet<Vec<u8>>) {
    for entry in read(objects, id).unwrap_or_default() {
        let path = join(path, &entry.name);
        match entry.kind {
            Kind::Directory => secrets(objects, entry.id, &path, found),
            Kind::Secret => {
                found.insert(path);
            }
            _ => {}
        }
    }
}

/// What a path was, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the workspace.
    pub path: Vec<u8>,
    /// `None` when there was nothing.
    pub before: Option<Entry>,
    /// `None` when there is nothing.
    pub after: Option<Entry>,
}

/// Two entries of the same name, one of them missing perhaps.
pub(super) type Pair<'a> = (Option<&'a Entry>, Option<&'a Entry>);

/// The entries of two directories side by side, in the order of their names.
pub(super) fn pairs<'a>(before: &'a [Entry], after: &'a [Entry]) -> Vec<Pair<'a>> {
    let (mut one, mut other) = (before.iter().peekable(), after.iter().peekable());
    let mut pairs = Vec::with_capacity(before.len().max(after.len()));
    loop {
        pairs.push(match (one.peek(), other.peek()) {
            (None, None) => return pairs,
            (Some(before), Some(after)) if before.name == after.name => (one.next(), other.next()),
            (Some(before), Some(after)) if before.name > after.name => (None, other.next()),
            (None, _) => (None, other.next()),
            (Some(_), _) => (one.next(), None),
        });
    }
}

/// In what two trees differ. What is left out of either counts as the same.
pub(super) fn compare(
    objects: &Objects,
    before: Id,
    after: Id,
) -> Result<Difference, SnapshotError> {
    let mut walk = Compare { objects, found: Difference::default() };
    if before != after {
        let (before, after) = (read(objects, before)?, read(objects, after)?);
        walk.directory(&[], &before, &after)?;
    }
    Ok(walk.found)
}

struct Compare<'a> {
    objects: &'a Objects,
    found: Difference,
}

impl Compare<'_> {
    fn directory(
        &mut self,
        path: &[u8],
        before: &[Entry],
        after: &[Entry],
    ) -> Result<(), SnapshotError> {
        for pair in pairs(before, after) {
            let name = pair.0.or(pair.1).map(|entry| entry.name.as_slice()).unwrap_or_default();
            self.pair(&join(path, name), pair)?;
        }
        Ok(())
    }

    fn pair(&mut self, path: &[u8], (before, after): Pair<'_>) -> Result<(), SnapshotError> {
        if before == after {
            return Ok(());
        }
        let is = |entry: Option<&Entry>, kind| entry.is_some_and(|entry| entry.kind == kind);
        let is_left_out = |entry: Option<&Entry>| entry.is_some_and(|it| it.kind.is_left_out());
        if is_left_out(before) || is_left_out(after) {
            // Also in a directory that is there on one side only, so that what is below it is not said to be new or gone.
            self.found.left_out.push(path.to_owned());
            if before.is_none() {
                self.found.gone.push(path.to_owned());
            }
            return Ok(());
        }
        let (first, left) = (self.found.changes.len(), self.found.left_out.len());
        let same_place = is(before, Kind::Directory) && is(after, Kind::Directory);
        let mode = |entry: Option<&Entry>| entry.map(|entry| entry.mode);
        if !same_place || mode(before) != mode(after) {
            let (before, after) = (before.cloned(), after.cloned());
            self.found.changes.push(Change { path: path.to_owned(), before, after });
        }
        let below = |entry: Option<&Entry>| match entry {
            Some(entry) if entry.kind == Kind::Directory => read(self.objects, entry.id),
            _ => Ok(Vec::new()),
        };
        if is(before, Kind::Directory) || is(after, Kind::Directory) {
            let (old, new) = (below(before)?, below(after)?);
            self.directory(path, &old, &new)?;
        }
        if after.is_none() && self.found.left_out.len() > left {
            // It does not go: something in it stays.
            self.found.changes.remove(first);
        }
        Ok(())
    }
}

/// `name` below `path`.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path.is_empty() {
        true => name.to_owned(),
        false => [path, b"/", name].concat(),
    }
}
