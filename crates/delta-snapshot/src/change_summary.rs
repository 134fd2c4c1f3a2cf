//! Changes of a workspace in a line each, and a hash over all of them.

use super::tree::{EntryKind, TreeEntry};
use super::unified_diff::{is_implied_directory, quote_git_path};
use super::{SnapshotChange, SnapshotError, SnapshotStore};
use delta_base::hex::encode_hex;
use sha2::{Digest, Sha256};

/// The first of some changes, in a line each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeList {
    /// The kind of each change, its path, and the target of a symlink.
    pub lines: Vec<String>,
    /// The number of changes that have no line here.
    pub more: usize,
}

/// Changes in the order in which a person should see them: what deletes, what makes or changes a program, links, the rest,
/// each by path. Directories that other changes imply are left out.
pub fn by_danger(changes: &[SnapshotChange]) -> Vec<SnapshotChange> {
    let mut ordered: Vec<_> = changes
        .iter()
        .enumerate()
        .filter(|(index, change)| !is_implied_directory(change, changes.get(index + 1)))
        .map(|(_, change)| change.clone())
        .collect();
    ordered.sort_by_key(danger);
    ordered
}

/// The lower, the more dangerous.
fn danger(change: &SnapshotChange) -> u8 {
    let Some(after) = &change.after else { return 0 };
    match after.kind {
        kind if change.before.as_ref().is_some_and(|before| before.kind != kind) => 0,
        _ if after.mode & 0o6000 != 0 => 1,
        EntryKind::File if after.mode & 0o111 != 0 => 1,
        EntryKind::Symlink => 2,
        _ => 3,
    }
}

/// Lists changes in at most `max_lines` lines of about at most `max_bytes`.
pub fn list_changes_within(
    store: &SnapshotStore,
    changes: &[SnapshotChange],
    max_lines: usize,
    max_bytes: usize,
) -> Result<ChangeList, SnapshotError> {
    let mut list = ChangeList::default();
    let mut room = max_bytes;
    for (index, change) in changes.iter().enumerate() {
        if is_implied_directory(change, changes.get(index + 1)) {
            continue;
        }
        if list.more > 0 || list.lines.len() == max_lines {
            list.more += 1;
            continue;
        }
        let line = summarize_change(store, change)?;
        if line.len() > room {
            list.more += 1;
            continue;
        }
        room -= line.len();
        list.lines.push(line);
    }
    Ok(list)
}

/// A change in one line without control characters, such as `new symlink: a -> b`. The kind comes first, so that no path can
/// pretend to be of another kind.
fn summarize_change(
    store: &SnapshotStore,
    change: &SnapshotChange,
) -> Result<String, SnapshotError> {
    let kind = match (&change.before, &change.after) {
        (None, None) => "unchanged".to_owned(),
        (None, Some(new)) => format!("new {}", describe_new_entry(new)),
        (Some(old), None) => format!("deleted {}", kind_word(old.kind)),
        (Some(old), Some(new)) if old.kind != new.kind => {
            format!("{}, now {}", kind_word(old.kind), describe_new_entry(new))
        }
        (Some(old), Some(new)) => {
            let lead = if old.id == new.id { "" } else { "changed " };
            // The content of a directory is the changes in it.
            let lead = if new.kind == EntryKind::Directory { "" } else { lead };
            let mode = if old.mode == new.mode {
                String::new()
            } else {
                format!(", mode {:04o}, now {:04o}", old.mode, new.mode)
            };
            format!("{lead}{}{mode}", kind_word(new.kind))
        }
    };
    let path = quote_git_path("", &change.path);
    match change.after.as_ref().filter(|entry| entry.kind == EntryKind::Symlink) {
        Some(symlink) => {
            let target = store.read_content(symlink.id)?;
            Ok(format!("{kind}: {path} -> {}", quote_git_path("", &target)))
        }
        None => Ok(format!("{kind}: {path}")),
    }
}

fn describe_new_entry(entry: &TreeEntry) -> String {
    match entry.kind {
        EntryKind::File | EntryKind::Directory => {
            format!("{}, mode {:04o}", kind_word(entry.kind), entry.mode)
        }
        kind => kind_word(kind).to_owned(),
    }
}

fn kind_word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::Omitted | EntryKind::Secret | EntryKind::Piece => "path",
    }
}

/// The SHA-256, in hexadecimal digits, of all changes: their paths, kinds, modes, owners and contents.
pub fn hash_changes(changes: &[SnapshotChange]) -> String {
    let mut hash = Sha256::new();
    for change in changes {
        hash.update(&change.path);
        let entries = [&change.before, &change.after].map(|entry| {
            entry.as_ref().map(|entry| {
                let owner = entry.owner.map(|owner| (owner.user, owner.group));
                format!("{} {:o} {owner:?} {}", kind_word(entry.kind), entry.mode, entry.id)
            })
        });
        hash.update(format!("\0{entries:?}\n"));
    }
    encode_hex(&hash.finalize())
}
