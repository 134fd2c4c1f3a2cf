//! `delta rollback`: restores the workspace of a run, and records that in the journal.

use crate::drive::continue_run::{self, ClaimedRun};
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_base::durable::{self, LogFile};
use delta_base::id::{RunId, SnapshotId};
use delta_base::shell_quote::shell_quote_path;
use delta_base::time;
use delta_engine::progress::{ProgressPrinter, Verbosity};
use delta_operator::arguments::completion_candidates;
use delta_operator::cancel;
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point::{
    self, ChangeCount, ChangeFormat, MIN_ID_DIGITS, RestorePoint,
};
use delta_operator::runs::run_argument::{LocatedRun, RunArgument};
use delta_operator::runs::{run_list, stage};
use delta_program::stdio;
use delta_run::event::Payload;
use delta_run::record;
use delta_run::run::{RunNotice, RunObserver};
use delta_run::state::RunState;
use delta_run::workspace::{self, Workspace};
use delta_sandbox::outside_git_directories;
use delta_snapshot::{SnapshotDiff, SnapshotStore};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Restore the workspace of a run as of an earlier iteration
///
/// Restores files, directories, symlinks and permission bits exactly; for a staged run, in its stage. Takes a snapshot first,
/// and prints the command that undoes the rollback. Keeps the conversation; the LLM is informed when the run continues.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, mut_arg("env_file", |arg| arg.hide_long_help(true)))]
pub struct RollbackArgs {
    /// Run: id, unique prefix or suffix, directory or `last`
    #[arg(value_name = "RUN", default_value = "last", value_parser = RunArgument::parse, add = ArgValueCandidates::new(run_list::run_candidates))]
    run: RunArgument,
    /// Restore the workspace as of the end of iteration N (0: before the run), or by snapshot id prefix [default: before
    /// the last message]
    #[arg(long, value_name = "N", value_parser = RestorePoint::parse)]
    to: Option<RestorePoint>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
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
  delta rollback last                        # undo since the last message
  delta rollback RUN --to 3 -w ./work --dry-run   # show what would change
  delta rollback RUN --to 3 -w ./work        # restore the end of iteration 3
  delta rollback RUN --to 0 -w ./work        # restore the state before the run";

/// The changes of a rollback, or of a dry run.
struct RollbackOutcome {
    diff: SnapshotDiff,
    /// The iteration whose end it restores, if it is one.
    to: Option<u32>,
    tree: SnapshotId,
    /// The snapshot of the workspace before the rollback.
    saved: SnapshotId,
    /// Whether it changes the stage of the run, and not the workspace.
    is_staged: bool,
}

/// Rolls a workspace back; returns the exit code.
pub fn rollback_command(args: &RollbackArgs) -> ExitCode {
    let rolled_back = args.run.find(&args.work_dir).and_then(|run| {
        let outcome = rollback_run(args, &run)?;
        Ok((run, outcome))
    });
    match rolled_back {
        Ok((run, outcome)) => {
            stdio::print_text(&render_rollback(args, &run.id, &outcome));
            for directory in outside_git_directories(&run.workspace.root) {
                stdio::print_error_line(&format!(
                    "Note: the git directory {} is outside of the workspace and stays as it is",
                    directory.display()
                ));
            }
            if !args.dry_run && !outcome.diff.changes.is_empty() {
                let undo = undo_command(&run, outcome.saved);
                stdio::print_error_line(&format!("Undo it with: {undo}"));
            }
            let unsaved = half_known_paths(&outcome.diff, false);
            if !unsaved.is_empty() {
                stdio::print_error_line(&format!(
                    "help: a rollback replaces only what it can save first: move {} away, and run the same command again",
                    restore_point::list_some_paths(&unsaved)
                ));
            }
            if outcome.diff.half_known.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => failure.report(),
    }
}

/// The command that restores what a rollback of `run` has saved.
fn undo_command(run: &LocatedRun, saved: SnapshotId) -> String {
    let dir = workspace::quote_workspace(&run.workspace_argument);
    format!("delta rollback {} -w {dir} --to {}", run.id, &saved.to_string()[..MIN_ID_DIGITS])
}

fn rollback_run(
    args: &RollbackArgs,
    located: &LocatedRun,
) -> Result<RollbackOutcome, CommandFailure> {
    let LocatedRun { id, workspace, .. } = located;
    let point = args.to.clone().unwrap_or_default();
    let cancel = cancel::install_cancel()?;
    let mut claimed = ClaimedRun::claim_for("roll back", located, args.force)?;
    if point == RestorePoint::Now {
        let message = "`now` is the current state of the workspace";
        return Err(CommandFailure::not_found(message, "name an iteration or a snapshot id"));
    }
    let target = point.resolve(claimed.state(), id)?;
    let to = target_iteration(&point, claimed.state());
    stage::check_no_tool_at_work(id, &claimed.dir, &workspace.root)?;
    let is_staged = claimed.state().stage.is_some();
    if is_staged {
        // What is staged belongs to this run alone.
        claimed.enter_stage(workspace, &args.env_files)?;
    } else {
        stage::check_no_active_run(workspace, id)?;
    }
    let secrets = restore_point::workspace_secrets(
        &claimed.dir,
        claimed.state(),
        &workspace.root,
        &args.env_files,
    )?;
    let mut store = restore_point::open_run_store(&claimed.dir, claimed.state())?;
    restore_point::check_is_stored(&store, claimed.state(), &point, target)?;
    continue_run::protect_from_snapshots(claimed.seals(), &mut store);
    if args.dry_run {
        let saved = store.take(&workspace.root, &secrets, Some(&cancel))?.tree;
        check_nested_workspaces(&store, args, workspace)?;
        let tree = target.unwrap_or(saved);
        let diff = store.plan_restore(saved, tree, Some(&cancel))?.diff;
        return Ok(RollbackOutcome { diff, to, tree, saved, is_staged });
    }
    record::unpack_records(&claimed.dir)?;
    let observer = open_rollback_observer(&claimed.dir, claimed.state())?;
    let mut run = claimed.open_run(secrets, observer, &cancel)?;
    let saved = run.take_snapshot(&mut store, &workspace.root, Some(&cancel))?;
    check_nested_workspaces(&store, args, workspace)?;
    let tree = target.unwrap_or(saved);
    let plan = store.plan_restore(saved, tree, Some(&cancel))?;
    if plan.diff.changes.is_empty() {
        // The event of the snapshot is recorded even if nothing changes.
        run.commit()?;
        return Ok(RollbackOutcome { diff: plan.diff, to, tree, saved, is_staged });
    }
    // After the rollback only the store has the deleted files: it must survive a power failure.
    store.sync()?;
    let iteration = run.state().iterations;
    run.record(Payload::Rollback { iteration, to, tree, saved, seal: None });
    // Record first, then act: after a crash the journal names the snapshot of the old files.
    run.commit_act()?;
    store.apply_restore(&plan, &workspace.root, Some(&cancel)).map_err(|error| {
        let undo = undo_command(located, saved);
        let hint = format!(
            "the workspace is partly restored; run the same command again to finish, or `{undo}`"
        );
        CommandFailure::from(error).with_hint(hint)
    })?;
    // A power failure must not undo a part of what is reported as done.
    durable::sync_file_system(&workspace.root)?;
    store.save_index()?;
    Ok(RollbackOutcome { diff: plan.diff, to, tree, saved, is_staged })
}

/// Refuses a rollback while a run, or a tool of one, works in a nested workspace, whose directory could be deleted.
fn check_nested_workspaces(
    store: &SnapshotStore,
    args: &RollbackArgs,
    workspace: &Workspace,
) -> Result<(), CommandFailure> {
    let below = workspace::workspaces_in_runs_dir(&workspace.root).into_iter();
    let outside =
        below.filter_map(|root| Some(root.strip_prefix(&workspace.root).ok()?.to_owned()));
    for relative in store.nested_workspaces().into_iter().chain(outside) {
        let root = workspace.root.join(&relative);
        if root == workspace.root || !root.is_dir() {
            continue;
        }
        let nested = Workspace::open_existing(&root)?;
        if !durable::is_dir_no_follow(&nested.control_dir()) {
            continue;
        }
        if let Some(run) = run_list::find_active_run(&nested, None)? {
            stage::check_no_tool_at_work(&run, &nested.run_dir(&run), &nested.root)?;
            let root = args.work_dir.join(relative);
            let message = format!("run {run} is active in {}", shell_quote_path(&root));
            let dir = workspace::quote_workspace(&root);
            let hint =
                format!("wait for it or stop it; `delta show {run} -w {dir}` shows its progress");
            return Err(CommandFailure::run_active(message, hint));
        }
    }
    Ok(())
}

/// The iteration whose end is restored, for the LLM. `None` if the user had changed files after it.
fn target_iteration(point: &RestorePoint, state: &RunState) -> Option<u32> {
    match point {
        RestorePoint::Iteration(number) => Some(*number),
        RestorePoint::BeforeLastMessage => {
            let snapshot = state.timeline.before_last_message().ok()??;
            snapshot.is_iteration_end.then_some(snapshot.iteration)
        }
        RestorePoint::Snapshot(_) | RestorePoint::Now => None,
    }
}

/// Prints warnings to stderr and writes engine.log; the output of the command reports the rollback itself.
pub fn open_rollback_observer(dir: &Path, state: &RunState) -> Result<RunObserver, CommandFailure> {
    let mut progress = ProgressPrinter::new(Verbosity::Quiet, false, time::current_time);
    progress.log_to(LogFile::open(&dir.join("engine.log"))?);
    progress.load_state(state);
    Ok(Box::new(move |notice| {
        if let RunNotice::Warning(text) = &notice {
            stdio::print_error_line(&format!("! {text}"));
        }
        progress.show_notice(&notice);
    }))
}

/// The paths that stay as they are because one snapshot omits them: the one to restore, or the present one.
fn half_known_paths(diff: &SnapshotDiff, is_before_known: bool) -> Vec<Vec<u8>> {
    let paths = diff.half_known.iter().filter(|it| it.is_before_known == is_before_known);
    paths.map(|it| it.path.clone()).collect()
}

fn render_rollback(args: &RollbackArgs, id: &RunId, outcome: &RollbackOutcome) -> String {
    let SnapshotDiff { changes, omitted, unrestorable, half_known } = &outcome.diff;
    let count = ChangeCount::new(changes);
    if args.format == ChangeFormat::Json {
        let summary = json!({
            "run_id": id.as_str(),
            "to": outcome.to,
            "tree": outcome.tree.to_string(),
            "saved": outcome.saved.to_string(),
            "done": !args.dry_run,
            "changed": count.changed,
            "created": count.created,
            "deleted": count.deleted,
            "left_out": omitted.len(),
            "gone": unrestorable.iter().map(|path| String::from_utf8_lossy(path)).collect::<Vec<_>>(),
            "not_restored": half_known.iter().map(|it| String::from_utf8_lossy(&it.path)).collect::<Vec<_>>(),
            "changes": restore_point::changes_json(changes),
        });
        return format!("{summary}\n");
    }
    let mut exception = String::new();
    if !unrestorable.is_empty() {
        let paths = restore_point::list_some_paths(unrestorable);
        exception = format!(", without {paths}, which no snapshot contains");
    }
    let target = args.to.clone().unwrap_or_default();
    let subject = if outcome.is_staged { "stage" } else { "workspace" };
    let not_restored = if args.dry_run { "would not restore" } else { "not restored" };
    let mut text = String::new();
    if changes.is_empty() && half_known.is_empty() {
        text = format!("nothing to restore: the {subject} already matches {target}{exception}\n");
    } else if !changes.is_empty() && args.dry_run {
        text = restore_point::render_change_lines(changes);
        text.push_str(&format!("would restore the {subject} to {target}: {count}{exception}\n"));
    } else if !changes.is_empty() {
        text = format!("restored the {subject} to {target}: {count}{exception}\n");
    }
    for (is_before_known, reason) in [(false, ""), (true, ", which the snapshot leaves out")] {
        let paths = half_known_paths(&outcome.diff, is_before_known);
        if !paths.is_empty() {
            let paths = restore_point::list_some_paths(&paths);
            text.push_str(&format!("{not_restored} to {target}: {paths}{reason}\n"));
        }
    }
    text
}
