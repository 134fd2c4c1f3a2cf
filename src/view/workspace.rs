//! What changed in a workspace between two of its snapshots, as the page has it.

use super::files::Room;
use crate::snapshot::{Change, Exclude, Id, Kind, Store};
use serde::Serialize;
use similar::TextDiff;
use std::path::Path;

/// So many changes of one iteration are told.
const MOST: usize = 200;
/// A longer file is told by its length only.
const LONGEST: u64 = 64 * 1024;

/// The snapshots of one run, in their order.
pub struct Snapshots {
    store: Store,
    last: Option<Id>,
}

/// What changed.
#[derive(Debug, Default, Serialize)]
pub struct Changes {
    files: Vec<Changed>,
    /// How many more there are.
    more: usize,
    /// Why it cannot be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

/// A path that changed.
#[derive(Debug, Serialize)]
struct Changed {
    path: String,
    /// `A` new, `D` gone, `M` changed.
    how: char,
    /// How long it was.
    before: Option<u64>,
    /// How long it is.
    after: Option<u64>,
    /// In the form of `diff -u`, where both are text and not too long.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl Snapshots {
    /// Those of the run in `run_dir`, when it has some that can be read.
    pub fn of(run_dir: &Path) -> Option<Self> {
        // Looking must not make anything.
        run_dir.join("snapshots/objects").is_dir().then_some(())?;
        let store = Store::open(run_dir, Exclude::default()).ok()?;
        Some(Self { store, last: None })
    }

    /// What changed since the snapshot before, when there was one. `tree` is what an event says.
    pub fn next(&mut self, tree: &str, room: &mut Room) -> Option<Changes> {
        let now = Id::parse(tree)?;
        let before = self.last.replace(now)?;
        let difference = match self.store.compare(before, now) {
            Ok(difference) => difference,
            Err(error) => {
                return Some(Changes { missing: Some(error.to_string()), ..Changes::default() });
            }
        };
        let is_told = |change: &&Change| {
            let is_dir = |entry: &Option<_>| entry.as_ref().is_some_and(is_directory);
            !(is_dir(&change.before) || is_dir(&change.after))
        };
        let told: Vec<&Change> = difference.changes.iter().filter(is_told).collect();
        let files = told.iter().take(MOST).map(|change| self.changed(change, room)).collect();
        Some(Changes { files, more: told.len().saturating_sub(MOST), missing: None })
    }

    fn changed(&self, change: &Change, room: &mut Room) -> Changed {
        let how = match (&change.before, &change.after) {
            (None, _) => 'A',
            (_, None) => 'D',
            _ => 'M',
        };
        Changed {
            path: String::from_utf8_lossy(&change.path).into_owned(),
            how,
            before: change.before.as_ref().map(|entry| entry.length),
            after: change.after.as_ref().map(|entry| entry.length),
            diff: self.diff(change).filter(|diff| room.take(diff.len())),
        }
    }

    fn diff(&self, change: &Change) -> Option<String> {
        let text = |entry: &Option<_>| -> Option<String> {
            let Some(entry) = entry else { return Some(String::new()) };
            let entry: &crate::snapshot::Entry = entry;
            if entry.length > LONGEST {
                return None;
            }
            let text = String::from_utf8(self.store.content(entry.id).ok()?).ok()?;
            (!text.contains('\0')).then_some(text)
        };
        let (before, after) = (text(&change.before)?, text(&change.after)?);
        let diff = TextDiff::from_lines(&before, &after);
        let diff = diff.unified_diff().context_radius(2).to_string();
        (!diff.is_empty()).then_some(diff)
    }
}

fn is_directory(entry: &crate::snapshot::Entry) -> bool {
    entry.kind == Kind::Directory
}
