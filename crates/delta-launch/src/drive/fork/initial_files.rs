//! The initial files of a fork: from a snapshot of the source, or its current files.

use super::{ForkArgs, ForkSource};
use crate::drive::continue_run;
use delta_base::durable;
use delta_base::id::SnapshotId;
use delta_base::redact::Secrets;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point::{self, ignore_lost_snapshot};
use delta_run::event::ForkFiles;
use delta_run::fork;
use delta_run::state::RunState;
use delta_run::workspace::Workspace;
use delta_snapshot::SnapshotStore;
use std::path::Path;

/// The snapshots of the source run.
pub struct SourceSnapshots {
    store: SnapshotStore,
    state: RunState,
    /// The workspace at the fork point; `None` if no snapshot has it.
    tree: Option<SnapshotId>,
}

impl SourceSnapshots {
    /// Opens the snapshots of the run; `None` if it has none.
    pub fn open(source: &ForkSource) -> Result<Option<Self>, CommandFailure> {
        let state = RunState::from_events(&source.events);
        let has_store =
            durable::is_dir_no_follow(&source.run.dir.join(delta_snapshot::SNAPSHOT_DIR_NAME));
        if state.timeline.first().is_none() || !has_store {
            return Ok(None);
        }
        let tree = state.snapshot_at_end_of(source.cut.iteration);
        let store = restore_point::open_run_store(&source.run.dir, &state)?;
        Ok(Some(Self { store, state, tree }))
    }

    /// Copies the snapshots that the events before the fork point name into the run in `run_dir`, so that the fork can roll
    /// back to them; returns them with the tree of the fork point. `is_required` says whether that tree must be complete.
    ///
    /// # Errors
    /// The required tree is missing or damaged. Earlier snapshots that are missing in the source are missing in the fork.
    pub fn copy_to(
        self,
        source: &ForkSource,
        run_dir: &Path,
        is_required: bool,
    ) -> Result<(SnapshotStore, Option<SnapshotId>), CommandFailure> {
        let mut store = restore_point::open_run_store(run_dir, &self.state)?;
        let events = &source.events[..source.cut.event_count];
        restore_point::copy_snapshots(&self.store, &mut store, events)?;
        let Some(tree) = self.tree else { return Ok((store, None)) };
        match store.copy_tree_from(&self.store, tree) {
            Ok(()) => Ok((store, Some(tree))),
            Err(error) if !is_required => ignore_lost_snapshot(error).map(|()| (store, None)),
            Err(error) => {
                let workspace = source.run.quoted_workspace();
                let hint = format!("`--into {workspace}` forks the run and keeps the files there");
                Err(CommandFailure::from(error).with_hint(hint))
            }
        }
    }
}

/// Fills an empty workspace with the files of the snapshot, or with the current files of the source.
pub fn fill_workspace(
    args: &ForkArgs,
    source: &ForkSource,
    workspace: &Workspace,
    snapshot: Option<(SnapshotStore, SnapshotId)>,
) -> Result<ForkFiles, CommandFailure> {
    let Some((mut store, tree)) = snapshot else {
        let skipped = fork::copy_workspace(&source.run.workspace.root, &workspace.root)?;
        for path in skipped {
            let note = format!("Note: {} is not a regular file and was not copied", path.display());
            args.options.print_notes(&[note]);
        }
        return Ok(ForkFiles::Present);
    };
    continue_run::protect_from_snapshots(&source.seals, &mut store);
    let omitted = store.restore(tree, &workspace.root, &Secrets::default(), None)?.omitted;
    if !omitted.is_empty() {
        args.options.print_notes(&[format!(
            "Note: the new workspace lacks {}, which the snapshot does not contain",
            restore_point::list_some_paths(&omitted)
        )]);
    }
    Ok(ForkFiles::Snapshot)
}
