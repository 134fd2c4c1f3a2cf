//! `delta diff RUN`: what a staged run would change in the workspace.

use super::DiffArgs;
use super::workspace::{print_diff, render_changes};
use crate::diff::staged_call;
use delta_base::id::RunId;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::own_run;
use delta_operator::runs::restore_point::{self, ChangeCount};
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::stage::{self, PathSelection, StagedChanges};
use delta_program::default_format::TextOrJson;
use delta_program::stdio;
use delta_run::run_result::ContinueCommand;
use delta_snapshot::SnapshotChange;
use serde_json::json;
use std::process::ExitCode;

/// Prints the staged changes; returns the exit code.
pub fn diff_stage(args: &DiffArgs) -> ExitCode {
    print_diff(render_stage(args))
}

fn render_stage(args: &DiffArgs) -> Result<String, CommandFailure> {
    let LocatedRun { id, dir, workspace, workspace_argument, .. } =
        args.run.find(&args.work_dir)?;
    let state = own_run::fold_journal(&id, &dir)?;
    let next = ContinueCommand::from_state(&state).with_work_dir(&workspace_argument);
    if args.call || state.stage.is_none() {
        if let Some(call) = staged_call::pending_call(&state) {
            return staged_call::render_call(args, &id, &dir, &state, call);
        }
        if args.call {
            let message = format!("run {id} does not ask whether to apply the changes of a call");
            let show = next.to_reader("show");
            return Err(CommandFailure::not_found(message, format!("`{show}` shows its status")));
        }
    }
    let stage = stage::require_stage(&state.stage, &id).map_err(|failure| {
        let diff = next.to_reader("diff");
        let hint = format!("`{diff} 0` compares the workspace with its state before the run");
        failure.with_hint(hint)
    })?;
    let cancel = cancel::install_cancel()?;
    let secrets = restore_point::workspace_secrets(&dir, &state, &workspace.root, &args.env_files)?;
    let mut store = restore_point::open_run_store(&dir, &state)?;
    let changes = StagedChanges::read(&mut store, stage, &dir, &workspace, &secrets, &cancel)?;
    let everything = PathSelection::default();
    let conflicts = changes.merge(&mut store, &everything, false)?.conflicts;
    let target = changes.merge(&mut store, &everything, true)?.tree;
    let diff = store.diff(changes.trees.current, target)?;
    if args.format == Some(TextOrJson::Json) {
        return Ok(stage_json(&id, &diff.changes, &conflicts, &changes.left_out));
    }
    let text = render_changes(args, &store, &diff.changes)?;
    for path in &conflicts {
        let path = restore_point::display_snapshot_path(path);
        stdio::print_error_line(&format!("Note: conflict: {path} also changed in the workspace"));
    }
    changes.left_out_note().iter().for_each(|note| stdio::print_error_line(note));
    Ok(text)
}

/// Staged changes as JSON; nothing if there are none.
pub fn stage_json(
    id: &RunId,
    changes: &[SnapshotChange],
    conflicts: &[Vec<u8>],
    left_out: &[Vec<u8>],
) -> String {
    if changes.is_empty() && conflicts.is_empty() {
        return String::new();
    }
    let paths = |paths: &[Vec<u8>]| -> Vec<String> {
        paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    };
    let count = ChangeCount::new(changes);
    let summary = json!({
        "run_id": id.as_str(),
        "changed": count.changed,
        "created": count.created,
        "deleted": count.deleted,
        "changes": restore_point::changes_json(changes),
        "conflicts": paths(conflicts),
        "left_out": paths(left_out),
    });
    format!("{summary}\n")
}
