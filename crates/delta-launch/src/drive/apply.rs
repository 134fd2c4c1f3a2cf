//! `delta apply`: applies the changes of a staged run to the workspace.

use crate::drive::continue_run::ClaimedRun;
use crate::drive::rollback::open_rollback_observer;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::durable;
use delta_base::id::{RunId, SnapshotId};
use delta_operator::arguments::completion_candidates;
use delta_operator::cancel;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point::{self, ChangeCount, ChangeFormat, MIN_ID_DIGITS};
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::run_list;
use delta_operator::runs::stage::{self, ApplyEnding, PathSelection, StagedChanges};
use delta_program::stdio;
use delta_run::event::{Payload, StageApply};
use delta_run::record;
use delta_run::state::stage::StageDir;
use delta_run::workspace;
use delta_snapshot::{EntryKind, SnapshotChange, SnapshotDiff, StagedMerge};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Apply the changes of a staged run to the workspace
///
/// A file that also changed in the workspace is a conflict: delta names it and applies nothing. The next command that works on
/// the run finishes an interrupted apply.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, mut_arg("env_file", |arg| arg.hide_long_help(true)))]
pub struct ApplyArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Apply only these files and directories, relative to the workspace; the others stay staged
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Replace files that also changed in the workspace
    #[arg(long)]
    overwrite: bool,
    /// Print what would change without changing it
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Allow a run whose last process was on another host and cannot be checked
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    env_files: EnvFileOptions,
    /// Output format
    #[arg(long, value_enum, default_value_t = ChangeFormat::Text)]
    format: ChangeFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta diff last -w ./work                 # what would change
  delta apply last -w ./work                # change it
  delta apply RUN src/lib.rs docs -w ./work # some files and directories only

Exit codes: 0 applied or nothing to apply, 1 a conflict or another failure, 2 usage error";

/// The changes of an apply, or of a dry run.
struct ApplyOutcome {
    diff: SnapshotDiff,
    tree: SnapshotId,
    /// The snapshot of the workspace before.
    saved: SnapshotId,
    has_rest: bool,
}

/// Applies staged changes; returns the exit code.
pub fn apply_command(args: &ApplyArgs) -> ExitCode {
    let applied = args.run.find(&args.work_dir).and_then(|run| {
        let outcome = apply_run(args, &run)?;
        Ok((run, outcome))
    });
    match applied {
        Ok((run, outcome)) => {
            stdio::print_text(&render_apply(args, &run.id, &outcome));
            if !args.dry_run && !outcome.diff.changes.is_empty() {
                print_undo(&run, &outcome);
            }
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

fn apply_run(args: &ApplyArgs, run: &LocatedRun) -> Result<ApplyOutcome, CommandFailure> {
    let LocatedRun { id, workspace, .. } = run;
    let selection = PathSelection::parse(&args.paths, &workspace.root)?;
    let cancel = cancel::install_cancel()?;
    let mut claimed = ClaimedRun::claim_for("apply", run, args.force)?;
    stage::require_stage(&claimed.state().stage, id)?;
    stage::check_no_tool_at_work(id, &claimed.dir, &workspace.root)?;
    stage::check_no_active_run(workspace, id)?;
    if !args.dry_run {
        claimed.end_apply(ApplyEnding::Complete, workspace, &args.env_files, &cancel)?;
    }
    let dir = claimed.dir.clone();
    let secrets =
        restore_point::workspace_secrets(&dir, claimed.state(), &workspace.root, &args.env_files)?;
    let mut store = restore_point::open_run_store(&dir, claimed.state())?;
    if claimed.is_own_and_unchanged() {
        store.keep_special_bits();
    }
    let stage = stage::require_stage(&claimed.state().stage, id)?;
    let changes = StagedChanges::read(&mut store, stage, &dir, workspace, &secrets, &cancel)?;
    let merge = changes.merge(&mut store, &selection, args.overwrite)?;
    check_conflicts(&merge, id)?;
    let saved = changes.trees.current;
    let plan = store.plan_restore(saved, merge.tree, Some(&cancel))?;
    let selected = store.diff(changes.trees.base, changes.trees.staged)?;
    check_paths(&selection, &selected)?;
    check_parents(&selection, &store.diff(saved, changes.trees.staged)?)?;
    if !args.dry_run {
        changes.left_out_note().iter().for_each(|note| stdio::print_error_line(note));
    }
    let has_rest = merge.has_rest || !changes.left_out.is_empty();
    let outcome = ApplyOutcome { diff: plan.diff.clone(), tree: merge.tree, saved, has_rest };
    if args.dry_run {
        return Ok(outcome);
    }
    record::unpack_records(&dir)?;
    let observer = open_rollback_observer(&dir, claimed.state())?;
    let mut run = claimed.open_run(secrets, observer, &cancel)?;
    if selected.changes.is_empty() {
        // An apply that was finished has an event, even if nothing else is applied.
        run.commit()?;
        return Ok(outcome);
    }
    // After the apply only the store has what it replaces: it must survive a power failure.
    store.sync()?;
    let iteration = run.state().iterations;
    run.record(Payload::Apply(Box::new(StageApply {
        iteration,
        paths: selection.to_strings(),
        tree: merge.tree,
        saved,
        // An empty stage begins with the workspace as it is.
        base: if has_rest { merge.base } else { merge.tree },
        rest: has_rest,
        seal: None,
    })));
    // Record first, then act: after a crash, the next process finishes what the journal names.
    run.commit_act()?;
    store.apply_restore(&plan, &workspace.root, Some(&cancel)).map_err(|error| {
        let hint = "the changes are partly applied; run the same command again to finish";
        CommandFailure::from(error).with_hint(hint)
    })?;
    durable::sync_file_system(&workspace.root)?;
    run.record(Payload::ApplyEnd { iteration, rest: false, seal: None });
    run.commit()?;
    if !has_rest {
        StageDir::new(&dir).clear()?;
    }
    Ok(outcome)
}

fn check_conflicts(merge: &StagedMerge, id: &RunId) -> Result<(), CommandFailure> {
    if merge.conflicts.is_empty() {
        return Ok(());
    }
    let paths: Vec<String> = merge
        .conflicts
        .iter()
        .map(|path| format!("  {}", restore_point::display_snapshot_path(path)))
        .collect();
    let message = format!(
        "nothing is applied, because these also changed in the workspace since run {id} began:\n{}",
        paths.join("\n")
    );
    let hint =
        "name the paths to apply, `delta apply RUN PATH...`, or replace these with `--overwrite`";
    Err(CommandFailure::conflict(message, hint))
}

/// Refuses a path that has no staged change: it is probably misspelled.
fn check_paths(selection: &PathSelection, selected: &SnapshotDiff) -> Result<(), CommandFailure> {
    let changed: Vec<&[u8]> =
        selected.changes.iter().map(|change| change.path.as_slice()).collect();
    match selection.find_unused(&changed) {
        None => Ok(()),
        Some(path) => {
            let message = format!("{path} has no staged change");
            let hint = "`delta diff RUN --name-only` lists the paths that have";
            Err(CommandFailure::not_found(message, hint))
        }
    }
}

/// Refuses a path in what is a directory in the workspace or in the stage alone, if that is not applied too.
fn check_parents(
    selection: &PathSelection,
    unapplied: &SnapshotDiff,
) -> Result<(), CommandFailure> {
    for change in &unapplied.changes {
        if !selection.selects(&change.path)
            && let Some(side) = find_directory_side(change)
            && let Some(inside) = selection.find_inside(&change.path)
        {
            let path = restore_point::display_snapshot_path(&change.path);
            let message = format!(
                "{inside} cannot be applied without {path}, a directory in the {side} only"
            );
            return Err(CommandFailure::conflict(message, format!("name {path} instead")));
        }
    }
    Ok(())
}

/// Where the path of a change of the workspace is a directory, if it is something else on the other side.
fn find_directory_side(change: &SnapshotChange) -> Option<&'static str> {
    let is_in_workspace = change.before.as_ref()?.kind == EntryKind::Directory;
    let is_in_stage = change.after.as_ref()?.kind == EntryKind::Directory;
    let side = if is_in_stage { "stage" } else { "workspace" };
    (is_in_workspace != is_in_stage).then_some(side)
}

/// Prints how the workspace gets its previous state again: it is staged, and applied.
fn print_undo(run: &LocatedRun, outcome: &ApplyOutcome) {
    let id = &run.id;
    let workspace = workspace::quote_workspace(&run.workspace_argument);
    let saved = outcome.saved.to_string();
    let digits = &saved[..MIN_ID_DIGITS];
    let mut text = format!(
        "Undo it with: delta rollback {id} -w {workspace} --to {digits} && delta apply {id} -w {workspace}"
    );
    if outcome.has_rest {
        // The rollback restores the whole stage.
        text.push_str(
            "\nthe other staged changes come back with the command that the rollback prints",
        );
    }
    stdio::print_error_line(&text);
}

fn render_apply(args: &ApplyArgs, id: &RunId, outcome: &ApplyOutcome) -> String {
    let changes = &outcome.diff.changes;
    let count = ChangeCount::new(changes);
    if args.format == ChangeFormat::Json {
        let summary = json!({
            "run_id": id.as_str(),
            "tree": outcome.tree.to_string(),
            "saved": outcome.saved.to_string(),
            "done": !args.dry_run,
            "rest": outcome.has_rest,
            "changed": count.changed,
            "created": count.created,
            "deleted": count.deleted,
            "changes": restore_point::changes_json(changes),
        });
        return format!("{summary}\n");
    }
    let rest = if outcome.has_rest { "; other changes stay staged" } else { "" };
    if changes.is_empty() {
        return format!("nothing to apply{rest}\n");
    }
    if !args.dry_run {
        return format!("applied to the workspace: {count}{rest}\n");
    }
    restore_point::render_change_lines(changes)
        + &format!("would apply to the workspace: {count}{rest}\n")
}
