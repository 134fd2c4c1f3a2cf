//! The files with which a replay of tools begins, and in what they differ at its end from those that the run left.

use super::Original;
use crate::cli::failure::Failure;
use crate::cli::point;
use crate::event::{Event, Payload};
use crate::replay::Difference;
use crate::snapshot::{Change, Entry, Id, Kind, SnapshotError, Store};
use crate::state::RunState;
use crate::text::{Secrets, printable};
use crate::workspace::Workspace;
use std::path::Path;

/// Larger files are only said to differ.
const LARGEST: u64 = 4 << 20;

/// The files of a workspace in which tools run again.
pub struct World {
    /// What they are at the beginning, for people.
    pub begins: String,
    /// The snapshots of the replay, and the last one of the run; `None` when it did not begin with the run's files.
    snapshots: Option<(Store, Id)>,
    /// Why the ends cannot be compared.
    not_checked: Option<String>,
}

/// What became of the files.
pub struct End {
    /// Where they are not those that the run left.
    pub differences: Vec<Difference>,
    /// Why that is not known.
    pub not_checked: Option<String>,
}

impl World {
    /// Puts the files there with which the run began, as its snapshots have them, unless there are others.
    /// `run_dir` is the directory of the replay.
    ///
    /// # Errors
    /// A snapshot is damaged, or the workspace cannot be written.
    pub fn begin(
        original: &Original,
        run_dir: &Path,
        workspace: &Workspace,
        secrets: &Secrets,
    ) -> Result<Self, Failure> {
        let state = RunState::of(&original.events);
        let there = original.dir.join(crate::snapshot::DIRECTORY).is_dir();
        let first = state.timeline.at(0).filter(|_| there);
        let (place, of) = (workspace.root.display(), &original.id);
        let without = |begins: String| Self { begins, snapshots: None, not_checked: None };
        if !is_empty(workspace) {
            return Ok(without(format!(
                "Note: the tools work on the files that are in {place}, whatever run {of} began with"
            )));
        }
        let Some(first) = first.and_then(|point| Id::parse(&point.tree)) else {
            return Ok(without(format!(
                "Note: {place} is empty: run {of} has no snapshot of the files with which it began"
            )));
        };
        let source = point::store(&original.dir, &state)?;
        let mut store = point::store(run_dir, &state)?;
        store.adopt(&source, first)?;
        store.restore(first, &workspace.root, secrets, None)?;
        let begins = format!("The files in {place} are those with which run {of} began");
        let last = state.timeline.last().and_then(|point| Id::parse(&point.tree));
        let not_checked = not_comparable(&original.events, &state);
        let Some(last) = last.filter(|_| not_checked.is_none()) else {
            return Ok(Self { begins, snapshots: None, not_checked });
        };
        store.adopt(&source, last)?;
        Ok(Self { begins, snapshots: Some((store, last)), not_checked })
    }

    /// Compares the files with those that the run left.
    pub fn end(self, workspace: &Workspace, secrets: &Secrets) -> Result<End, SnapshotError> {
        let Some((mut store, last)) = self.snapshots else {
            return Ok(End { differences: Vec::new(), not_checked: self.not_checked });
        };
        let now = store.take(&workspace.root, secrets, None)?.tree;
        let changes = store.compare(last, now)?.changes;
        let following = changes.iter().skip(1).map(Some).chain([None]);
        let told = changes.iter().zip(following);
        let told = told.filter(|(change, next)| !point::is_implied(change, *next));
        let differences = told.map(|(change, _)| difference(&store, change));
        Ok(End { differences: differences.collect::<Result<_, _>>()?, not_checked: None })
    }
}

fn is_empty(workspace: &Workspace) -> bool {
    let entries = std::fs::read_dir(&workspace.root).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).all(|name| name == ".delta")
}

/// Why the last snapshot of a run is not what its tools alone left; `None` when it is.
fn not_comparable(events: &[Event], state: &RunState) -> Option<String> {
    let by_others = events.iter().any(|event| match &event.payload {
        Payload::Snapshot(taken) => taken.found,
        Payload::Rollback { .. } => true,
        Payload::Fork(fork) => fork.tree.is_none(),
        _ => false,
    });
    if by_others {
        return Some(
            "the files at the end: not only the tools changed those of the run".to_owned(),
        );
    }
    let is_seen = state.timeline.is_closed(state.iterations);
    (!is_seen).then(|| "the files at the end: the run has no snapshot of it".to_owned())
}

fn difference(store: &Store, change: &Change) -> Result<Difference, SnapshotError> {
    let what = format!("the file {}", printable(&String::from_utf8_lossy(&change.path)));
    if let (Some(before), Some(after)) = (&change.before, &change.after)
        && [before, after].iter().all(|it| it.kind == Kind::File && it.length <= LARGEST)
    {
        let text = |entry: &Entry| store.content(entry.id);
        let (before, after) = (text(before)?, text(after)?);
        let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&after));
        if let Some(found) = Difference::of(None, what.clone(), &before, &after) {
            return Ok(found);
        }
    }
    Ok(Difference::plain(
        None,
        what,
        describe(change.before.as_ref()),
        describe(change.after.as_ref()),
    ))
}

fn describe(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "not there".to_owned() };
    let mode = entry.mode;
    match entry.kind {
        Kind::File => format!("a file of {} bytes, mode {mode:o}", entry.length),
        Kind::Directory | Kind::Piece => format!("a directory, mode {mode:o}"),
        Kind::Symlink => "a symlink".to_owned(),
        Kind::LeftOut | Kind::Secret => "in no snapshot".to_owned(),
    }
}
