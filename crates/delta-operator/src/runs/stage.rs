//! What the commands share that work on staged runs: the way into a stage, and the changes in it.

use crate::failure::CommandFailure;
use crate::runs::{own_run, restore_point, run_list};
use delta_base::durable;
use delta_base::id::{RunId, SnapshotId};
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_process::own_program;
use delta_run::event::StageApply;
use delta_run::record::surviving_call::SurvivingCall;
use delta_run::state::stage::{StageDir, StageState};
use delta_run::workspace::{self, Workspace};
use delta_sandbox::{StageError, StageLayers, check_stage, enter_stage};
use delta_snapshot::{MergeRules, SnapshotStore, StagedMerge, StagedSnapshot, StagedTrees};
use std::path::Path;

/// Checks that this process could enter a stage of `workspace`, which is `None` or missing if it will be created.
pub fn check_can_stage(workspace: Option<&Path>) -> Result<(), CommandFailure> {
    let root = workspace.and_then(|path| path.canonicalize().ok());
    check_stage(&own_program(), root.as_deref()).map_err(stage_failure)
}

fn stage_failure(error: StageError) -> CommandFailure {
    CommandFailure::config(format!("the workspace cannot be staged here: {error}"), error.remedy)
}

/// Moves this process into the stage of a run, whose layers are created if they are missing. Whether they are new.
pub fn enter_run_stage(workspace: &Workspace, run_dir: &Path) -> Result<bool, CommandFailure> {
    let dir = StageDir::new(run_dir);
    let is_new = dir.create(&workspace.root)?;
    let layers = StageLayers {
        workspace: workspace.root.clone(),
        control: workspace.control_dir(),
        upper: dir.upper(),
        work: dir.work(),
        is_nested: false,
    };
    enter_stage(&own_program(), &layers).map_err(stage_failure)?;
    Ok(is_new)
}

/// Refuses an existing run that is not staged.
pub fn check_is_staged(id: &RunId, workspace: &Workspace) -> Result<(), CommandFailure> {
    let dir = own_run::find_run_dir(id, workspace)?;
    match own_run::fold_journal(id, &dir) {
        Ok(state) if state.start.is_some() && state.stage.is_none() => {
            let hint = "leave out `--stage`, or choose another `--run-id`";
            Err(CommandFailure::already_exists(format!("run {id} exists and is not staged"), hint))
        }
        // A run that never began is created again.
        _ => Ok(()),
    }
}

/// The stage of a run.
///
/// # Errors
/// The run is not staged.
pub fn require_stage<'a>(
    stage: &'a Option<StageState>,
    id: &RunId,
) -> Result<&'a StageState, CommandFailure> {
    stage.as_ref().ok_or_else(|| {
        let hint =
            "start a staged run with `delta run --stage`; this run changed the workspace directly";
        CommandFailure::not_found(format!("run {id} is not staged"), hint)
    })
}

/// Refuses to change the workspace while another run, or a tool that outlived its process, works in it, staged or not: the
/// files under a stage must not change.
pub fn check_no_active_run(workspace: &Workspace, id: &RunId) -> Result<(), CommandFailure> {
    let Some(other) = run_list::find_active_run(workspace, Some(id))? else { return Ok(()) };
    check_no_tool_at_work(&other, &workspace.run_dir(&other), &workspace.root)?;
    let message = format!("run {other} is active in this workspace");
    let dir = workspace::quote_workspace(&workspace.root);
    let hint = format!("wait for it or stop it; `delta show {other} -w {dir}` shows its progress");
    Err(CommandFailure::run_active(message, hint))
}

/// Refuses to change the files or the stage of a run while one of its tools works on without its process.
pub fn check_no_tool_at_work(
    id: &RunId,
    run_dir: &Path,
    workspace: &Path,
) -> Result<(), CommandFailure> {
    let calls = SurvivingCall::all_at_work(run_dir);
    let Some(call) = calls.first() else { return Ok(()) };
    let tool = call.command().map_or_else(|_| "a tool".to_owned(), |command| command.tool);
    let message = format!("{} of run {id} is at work", strip_terminal_controls(&tool));
    let dir = workspace::quote_workspace(workspace);
    let hint = format!("wait for it, or end it with `delta stop {id} -w {dir}`");
    Err(CommandFailure::run_active(message, hint))
}

/// The staged changes of a run, in its store.
pub struct StagedChanges {
    /// The trees of a merge.
    pub trees: StagedTrees,
    /// The staged paths that are in no snapshot, and can be neither shown nor applied.
    pub left_out: Vec<Vec<u8>>,
    /// Whether the workspace may have a part of them, because an APPLY was interrupted.
    is_interrupted: bool,
}

impl StagedChanges {
    /// A note about what is staged and cannot be applied.
    pub fn left_out_note(&self) -> Option<String> {
        let paths = restore_point::list_some_paths(&self.left_out);
        let note = format!("Note: no snapshot contains {paths}, so it stays in the stage");
        (!self.left_out.is_empty()).then_some(note)
    }

    /// Takes snapshots of the workspace and of the stage, whose process must not work.
    pub fn read(
        store: &mut SnapshotStore,
        stage: &StageState,
        run_dir: &Path,
        workspace: &Workspace,
        secrets: &Secrets,
        cancel: &CancelToken,
    ) -> Result<Self, CommandFailure> {
        let current = store.take(&workspace.root, secrets, Some(cancel))?.tree;
        let base = stage.base;
        let snapshot = staged_tree(store, stage, base, run_dir, secrets, cancel)?;
        let trees = StagedTrees { base, staged: snapshot.tree, current };
        let is_interrupted = stage.pending.is_some();
        Ok(Self { trees, left_out: snapshot.left_out, is_interrupted })
    }

    /// Merges the selected changes into the workspace's snapshot.
    pub fn merge(
        &self,
        store: &mut SnapshotStore,
        selection: &PathSelection,
        overwrites: bool,
    ) -> Result<StagedMerge, CommandFailure> {
        let rules = MergeRules {
            selects: &|path| selection.selects(path),
            overwrites,
            is_interrupted: self.is_interrupted,
        };
        Ok(store.merge_staged(self.trees, &rules)?)
    }
}

/// The snapshot of `base` with the staged changes.
pub fn staged_tree(
    store: &mut SnapshotStore,
    stage: &StageState,
    base: SnapshotId,
    run_dir: &Path,
    secrets: &Secrets,
    cancel: &CancelToken,
) -> Result<StagedSnapshot, CommandFailure> {
    let upper = StageDir::new(run_dir).upper();
    if stage.is_cleared || !durable::is_dir_no_follow(&upper) {
        return Ok(StagedSnapshot { tree: base, left_out: Vec::new() });
    }
    Ok(store.take_staged(base, &upper, secrets, Some(cancel))?)
}

/// How a process ends the APPLY of a process that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyEnding {
    /// It makes the rest of the changes.
    Complete,
    /// It only removes unfinished files, and sets the modes of directories that were being changed.
    Tidy,
}

/// Ends an APPLY that was interrupted. Returns the paths that were to be changed and were changed otherwise since.
pub fn end_apply(
    store: &mut SnapshotStore,
    apply: &StageApply,
    ending: ApplyEnding,
    workspace: &Workspace,
    secrets: &Secrets,
    cancel: &CancelToken,
) -> Result<Vec<Vec<u8>>, CommandFailure> {
    let current = store.take(&workspace.root, secrets, Some(cancel))?.tree;
    let trees = StagedTrees { base: apply.saved, staged: apply.tree, current };
    let rules = MergeRules {
        selects: &|_| ending == ApplyEnding::Complete,
        overwrites: false,
        is_interrupted: true,
    };
    let merge = store.merge_staged(trees, &rules)?;
    let plan = store.plan_restore(current, merge.tree, Some(cancel))?;
    store.apply_restore(&plan, &workspace.root, Some(cancel))?;
    durable::sync_file_system(&workspace.root)?;
    Ok(merge.conflicts)
}

/// The paths that a command line names, with everything in them; all paths if it names none.
#[derive(Debug, Default)]
pub struct PathSelection {
    paths: Vec<Vec<u8>>,
}

impl PathSelection {
    /// Parses paths relative to the workspace, or absolute ones in it.
    pub fn parse(paths: &[std::path::PathBuf], root: &Path) -> Result<Self, CommandFailure> {
        use std::os::unix::ffi::OsStrExt;
        let mut selection = Self::default();
        for path in paths {
            let relative = path.strip_prefix(root).unwrap_or(path);
            let names: Vec<&[u8]> = relative
                .components()
                .filter(|part| *part != std::path::Component::CurDir)
                .map(|part| part.as_os_str().as_bytes())
                .collect();
            if path.is_absolute() && relative.is_absolute() || names.contains(&&b".."[..]) {
                let message = format!("{} is not in the workspace", path.display());
                let hint = format!("name paths relative to {}", root.display());
                return Err(CommandFailure::usage(message, hint));
            }
            selection.paths.push(names.join(&b'/'));
        }
        Ok(selection)
    }

    /// The paths as text, for a record.
    pub fn to_strings(&self) -> Vec<String> {
        self.paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    /// Whether the change of `path` is selected.
    pub fn selects(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|selected| contains(selected, path))
    }

    /// A selected path in `directory`, for a message.
    pub fn find_inside(&self, directory: &[u8]) -> Option<String> {
        let inside = self.paths.iter().find(|selected| contains(directory, selected));
        inside.map(|path| restore_point::display_snapshot_path(path))
    }

    /// A path that selects none of `changed`, for a message.
    pub fn find_unused(&self, changed: &[&[u8]]) -> Option<String> {
        let unused =
            self.paths.iter().find(|selected| !changed.iter().any(|path| contains(selected, path)));
        unused.map(|path| restore_point::display_snapshot_path(path))
    }
}

/// Whether `directory` is `path` or contains it.
fn contains(directory: &[u8], path: &[u8]) -> bool {
    directory.is_empty()
        || path == directory
        || path.starts_with(directory) && path.get(directory.len()) == Some(&b'/')
}
