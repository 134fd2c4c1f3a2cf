//! The files with which a fork begins: those of a snapshot of the other run, or those that are there now.

use super::{ForkArgs, Source};
use crate::cli::failure::Failure;
use crate::cli::point;
use crate::event::{Files, Payload};
use crate::fork;
use crate::snapshot::{Id, SnapshotError, Store};
use crate::state::RunState;
use crate::text::Secrets;
use crate::workspace::Workspace;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What the snapshots of the other run say.
pub struct Snapshots {
    store: Store,
    state: RunState,
    /// What the workspace was where the run is cut; `None` when nobody knows.
    tree: Option<Id>,
}

impl Snapshots {
    /// Those of the run; `None` when it keeps none.
    pub fn of(source: &Source) -> Result<Option<Self>, Failure> {
        let state = RunState::of(&source.events);
        let there = source.found.dir.join(crate::snapshot::DIRECTORY).is_dir();
        if state.timeline.first().is_none() || !there {
            return Ok(None);
        }
        let iteration = source.cut.iteration;
        // While its end is not seen, the last snapshot is of before it.
        let ended = iteration < state.iterations || state.timeline.is_closed(iteration);
        let point = state.timeline.at(iteration).filter(|_| ended);
        let tree = point.and_then(|point| Id::parse(&point.tree));
        let store = point::store(&source.found.dir, &state)?;
        Ok(Some(Self { store, state, tree }))
    }

    /// Gives the run in `run_dir` those that the events of `source` before the cut name, so that it can go back to them;
    /// with the tree of the cut. `needed` is whether that has to be whole.
    ///
    /// # Errors
    /// It is missing or damaged. What is missing of an earlier one is missing in both runs.
    pub fn hand_on(
        self,
        source: &Source,
        run_dir: &Path,
        needed: bool,
    ) -> Result<(Store, Option<Id>), Failure> {
        let mut store = point::store(run_dir, &self.state)?;
        for tree in named(source) {
            store.adopt(&self.store, tree).or_else(unless_lost)?;
        }
        let Some(tree) = self.tree else { return Ok((store, None)) };
        match store.adopt(&self.store, tree) {
            Ok(()) => Ok((store, Some(tree))),
            Err(error) if !needed => unless_lost(error).map(|()| (store, None)),
            Err(error) => {
                let place = source.found.place();
                let hint = format!("`--into {place}` forks the run and leaves the files there");
                Err(Failure::from(error).with_hint(Some(hint)))
            }
        }
    }
}

/// That something is missing in the other run, or damaged there, is no error.
fn unless_lost(error: SnapshotError) -> Result<(), Failure> {
    match error {
        SnapshotError::Damaged(_) => Ok(()),
        SnapshotError::File(error) if error.source.kind() == ErrorKind::NotFound => Ok(()),
        error => Err(error.into()),
    }
}

/// The trees that the events before the cut name.
fn named(source: &Source) -> BTreeSet<Id> {
    let mut trees = BTreeSet::new();
    for event in &source.events[..source.cut.events] {
        match &event.payload {
            Payload::Snapshot(taken) => trees.extend(Id::parse(&taken.tree)),
            Payload::Rollback { tree, saved, .. } => {
                trees.extend([tree, saved].into_iter().filter_map(|id| Id::parse(id)));
            }
            _ => {}
        }
    }
    trees
}

/// Fills a workspace in which there is nothing.
pub fn fill(
    args: &ForkArgs,
    source: &Source,
    workspace: &Workspace,
    snapshot: Option<(Store, Id)>,
) -> Result<Files, Failure> {
    let Some((mut store, tree)) = snapshot else {
        let left = fork::copy_workspace(&source.found.workspace.root, &workspace.root)?;
        let line = |path: PathBuf| format!("Note: {} is not copied: it is no file", path.display());
        args.options.note(&left.into_iter().map(line).collect::<Vec<_>>());
        return Ok(Files::Present);
    };
    let left = store.restore(tree, &workspace.root, &Secrets::default(), None)?.left_out;
    if !left.is_empty() {
        args.options.note(&[format!(
            "Note: the snapshot has left out {}; the new workspace has none of it",
            point::some_of(&left)
        )]);
    }
    Ok(Files::Snapshot)
}
