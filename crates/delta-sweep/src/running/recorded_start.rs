//! Begins a run with the first iterations of a recorded one, from the copy that its plan made.

use crate::formats::plan::PlannedRun;
use crate::formats::recorded_input::RecordedInput;
use crate::planning::recorded_runs::copied_run_dir;
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::separate_copy::separate_copy;
use delta_operator::runs::{own_run, restore_point};
use delta_operator::state;
use delta_run::event::{Event, ForkFiles, ForkOrigin, RunFork};
use delta_run::fork::{self, ForkError, ForkPoint};
use delta_run::journal;
use delta_run::journal::seal::Sealer;
use delta_run::ownership::Ownership;
use delta_run::state::RunState;
use delta_run::sweep::packed::unpack_run_copy;
use delta_run::sweep::sweep_dir::{SweepDir, draft_path};
use delta_run::workspace::{Workspace, WorkspaceError};
use delta_snapshot::{ExcludePatterns, SnapshotStore};
use std::path::{Path, PathBuf};

/// The copy of a recorded run, extracted; its directory is removed on drop.
pub struct RecordedCopy {
    root: PathBuf,
    run_dir: PathBuf,
}

impl Drop for RecordedCopy {
    fn drop(&mut self) {
        // `delta sweep gc` finds what stays.
        let _ = durable::remove_dir_all_no_follow(&self.root);
    }
}

/// Whether the run has the iterations with which it begins.
pub fn has_iterations(dir: &SweepDir, id: &RunId) -> Result<bool, WorkspaceError> {
    let run_dir = Workspace { root: dir.workspace(id) }.find_run(id)?;
    Ok(run_dir.is_some_and(|run_dir| journal::read_journal_head(&run_dir).is_some()))
}

impl RecordedCopy {
    /// Extracts the copy next to the file: objects of snapshots are linked from there.
    pub fn extract(dir: &SweepDir, recorded: &RecordedInput) -> Result<Self, CommandFailure> {
        let file = dir.run_copy(&recorded.copy);
        let root = draft_path(&file);
        let copy = Self { run_dir: copied_run_dir(&root), root };
        unpack_run_copy(&file, &copy.root)?;
        Ok(copy)
    }

    fn open_snapshots(&self) -> Result<SnapshotStore, CommandFailure> {
        Ok(SnapshotStore::open(&self.run_dir, ExcludePatterns::default())?)
    }

    fn read_events(&self, recorded: &RecordedInput) -> Result<Vec<Event>, CommandFailure> {
        Ok(own_run::read_journal(&recorded.run, &self.run_dir)?.events)
    }

    /// Writes the files of the iteration into an empty directory, which will be at `final_root`. What is done in them does not
    /// change the workspace of the recorded run, where that is known; returns notes about what does.
    pub fn restore_files(
        &self,
        recorded: &RecordedInput,
        target: &Path,
        final_root: &Path,
    ) -> Result<Vec<String>, CommandFailure> {
        let Some(tree) = recorded.tree else { return Ok(Vec::new()) };
        self.open_snapshots()?.restore(tree, target, &Secrets::default(), None)?;
        let start = RunState::from_events(&self.read_events(recorded)?).start;
        let original = start.map(|start| start.work_dir).unwrap_or_default();
        Ok(separate_copy(target, Path::new(&original), final_root)?.shared)
    }

    /// Writes the records of the run, unless another process has. The journal comes last and at once, so a run whose process
    /// died before it has no iteration.
    pub fn begin_run(
        &self,
        recorded: &RecordedInput,
        dir: &SweepDir,
        run: &PlannedRun,
        cancel: &CancelToken,
    ) -> Result<(), CommandFailure> {
        let workspace = Workspace::open(&dir.workspace(&run.id))?;
        loop {
            match workspace.create_run(&run.id) {
                Ok((run_dir, ownership)) => {
                    return self.write_run(recorded, &workspace, run, &run_dir, ownership);
                }
                Err(WorkspaceError::RunExists { .. }) if has_iterations(dir, &run.id)? => {
                    return Ok(());
                }
                Err(WorkspaceError::RunExists { .. }) => {
                    // A process that starts the run now would start it without its iterations.
                    let run_dir = workspace.run_dir(&run.id);
                    if Ownership::wait_and_claim(&run.id, &run_dir, cancel)?.is_none() {
                        let message = format!("interrupted before run {} began", run.id);
                        return Err(CommandFailure::interrupted(message));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_run(
        &self,
        recorded: &RecordedInput,
        workspace: &Workspace,
        run: &PlannedRun,
        run_dir: &Path,
        mut ownership: Ownership,
    ) -> Result<(), CommandFailure> {
        let events = self.read_events(recorded)?;
        let point = ForkPoint::find(&events, Some(recorded.at))
            .map_err(|error| CommandFailure::damaged(error.to_string(), None))?;
        let events = &events[..point.event_count];
        fork::copy_records(&self.run_dir, run_dir, events)?;
        if let Some(tree) = recorded.tree {
            let snapshots = self.open_snapshots()?;
            let mut store = SnapshotStore::open(run_dir, ExcludePatterns::default())?;
            restore_point::copy_snapshots(&snapshots, &mut store, events)?;
            store.copy_tree_from(&snapshots, tree)?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let start = RunState::from_events(events).start.ok_or_else(|| {
            CommandFailure::damaged(format!("run {} has no ENGINE_START", recorded.run), None)
        })?;
        let there = Workspace { root: PathBuf::from(&start.work_dir) };
        let origin = RunFork {
            run_id: run.id.clone(),
            work_dir: text(&workspace.root),
            workspace_id: workspace.name(),
            from: ForkOrigin {
                run_id: recorded.run.clone(),
                iteration: recorded.at,
                run_dir: start
                    .config
                    .run_dir
                    .unwrap_or_else(|| text(&there.run_dir(&recorded.run))),
                work_dir: start.work_dir,
            },
            files: if recorded.tree.is_some() { ForkFiles::Snapshot } else { ForkFiles::Present },
            tree: recorded.tree,
            seal: None,
        };
        let sealer =
            state::seal_key().ok().map(|_| Sealer::new(state::seal_keys(), run.id.clone()));
        let clock = time::current_time;
        let started =
            fork::begin_fork(&self.run_dir, run_dir, &mut ownership, point, origin, clock, sealer);
        started.map_err(|error| match error {
            ForkError::File(error) => error.into(),
            ForkError::Journal(error) => CommandFailure::damaged(error.to_string(), None),
        })
    }
}
