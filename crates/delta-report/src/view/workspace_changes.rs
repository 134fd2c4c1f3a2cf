//! Diffs consecutive workspace snapshots of a run for the page.

use super::run_files::PageCapacity;
use delta_base::durable;
use delta_base::id::SnapshotId;
use delta_base::text::text_diff::LineDiff;
use delta_snapshot::{EntryKind, ExcludePatterns, SnapshotChange, SnapshotStore, TreeEntry};
use serde::Serialize;
use std::path::Path;

/// The most files that are listed for one snapshot.
const MAX_LISTED_CHANGES: usize = 200;
/// The page shows only the lengths of larger files.
const MAX_DIFF_BYTES: u64 = 64 * 1024;

/// The snapshots of a run, read in order.
pub struct PageSnapshots {
    store: SnapshotStore,
    last: Option<SnapshotId>,
}

#[derive(Debug, Default, Serialize)]
pub struct PageChanges {
    files: Vec<PageFileChange>,
    /// How many changed files are not listed.
    more: usize,
    /// Why the changes are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

#[derive(Debug, Serialize)]
struct PageFileChange {
    path: String,
    /// `A` added, `D` deleted, `M` modified.
    how: char,
    /// The length in bytes before the change.
    before: Option<u64>,
    /// The length in bytes after the change.
    after: Option<u64>,
    /// A unified diff, when both sides are text and not too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl PageSnapshots {
    /// Opens the snapshots of a run; `None` when it has none, or none that can be read.
    pub fn open(run_dir: &Path) -> Option<Self> {
        // Opening a store creates its directories, and a reader must not.
        durable::is_dir_no_follow(&run_dir.join("snapshots/objects")).then_some(())?;
        let store = SnapshotStore::open(run_dir, ExcludePatterns::default()).ok()?;
        Some(Self { store, last: None })
    }

    /// The changes between the previous snapshot and `now`; `None` for the first snapshot.
    pub fn changes_until(
        &mut self,
        now: SnapshotId,
        capacity: &mut PageCapacity,
    ) -> Option<PageChanges> {
        let before = self.last.replace(now)?;
        let diff = match self.store.compare(before, now) {
            Ok(diff) => diff,
            Err(error) => {
                let missing = Some(error.to_string());
                return Some(PageChanges { missing, ..PageChanges::default() });
            }
        };
        let mut changes = diff.changes;
        changes.retain(|change| !is_directory(&change.before) && !is_directory(&change.after));
        let listed = changes.iter().take(MAX_LISTED_CHANGES);
        Some(PageChanges {
            files: listed.map(|change| self.file_change(change, capacity)).collect(),
            more: changes.len().saturating_sub(MAX_LISTED_CHANGES),
            missing: None,
        })
    }

    fn file_change(&self, change: &SnapshotChange, capacity: &mut PageCapacity) -> PageFileChange {
        let how = match (&change.before, &change.after) {
            (None, _) => 'A',
            (_, None) => 'D',
            _ => 'M',
        };
        PageFileChange {
            path: String::from_utf8_lossy(&change.path).into_owned(),
            how,
            before: change.before.as_ref().map(|entry| entry.length),
            after: change.after.as_ref().map(|entry| entry.length),
            diff: self.text_diff(change).filter(|diff| capacity.reserve(diff.len())),
        }
    }

    fn text_diff(&self, change: &SnapshotChange) -> Option<String> {
        let before = self.diffable_text(change.before.as_ref())?;
        let after = self.diffable_text(change.after.as_ref())?;
        let hunks = LineDiff::new(&before, &after, 2).hunks;
        (!hunks.is_empty()).then_some(hunks)
    }

    /// The text of a side of a change; empty when the file does not exist, `None` when it cannot be diffed.
    fn diffable_text(&self, entry: Option<&TreeEntry>) -> Option<String> {
        let Some(entry) = entry else { return Some(String::new()) };
        if entry.length > MAX_DIFF_BYTES {
            return None;
        }
        let text = String::from_utf8(self.store.read_content(entry.id).ok()?).ok()?;
        (!text.contains('\0')).then_some(text)
    }
}

fn is_directory(entry: &Option<TreeEntry>) -> bool {
    entry.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory)
}
