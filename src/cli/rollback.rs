//! `delta rollback`: the workspace of a run becomes what it was, and the journal says so.

use super::failure::Failure;
use super::named::{Found, Named};
use super::point::{self, Count, DIGITS, Point};
use super::resume::Held;
use super::{completions, drive, list_runs, stdout};
use crate::durable::LogFile;
use crate::event::Payload;
use crate::id::RunId;
use crate::progress::{Progress, Verbosity};
use crate::run::{Notice, Observer};
use crate::snapshot::{Change, Difference, Id, Store};
use crate::state::RunState;
use crate::text::{path_word, printable};
use crate::time;
use crate::workspace::Workspace;
use clap::{Args, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Put the workspace of a run back to what it was
///
/// Files, directories, symlinks and permission bits become exactly what they were at the end of an iteration. What the
/// workspace is until then is kept first, and the way back to it is printed. The conversation stays: the LLM is told when
/// the run is continued.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RollbackArgs {
    /// The run: its id, or the path of its directory
    #[arg(value_name = "RUN", value_parser = Named::parse, add = ArgValueCandidates::new(completions::runs))]
    run: Named,
    /// The iteration whose end it is to be, 0 for the beginning; or the first digits of a tree that the journal names
    #[arg(long, value_name = "N", value_parser = Point::parse)]
    to: Point,
    /// The workspace that holds the run
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: PathBuf,
    /// Print what would change, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Go on although the run was started on another host, whose process cannot be seen from here
    #[arg(long)]
    force: bool,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  delta rollback RUN --to 3 -w ./work --dry-run   what would change
  delta rollback RUN --to 3 -w ./work             as it was at the end of iteration 3
  delta rollback RUN --to 0 -w ./work             as it was before the run";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line, for people
    Text,
    /// One JSON object
    Json,
}

/// What was done, or would be.
struct Done {
    difference: Difference,
    tree: Id,
    /// What the workspace was until then.
    saved: Id,
}

/// Puts a workspace back; gives the exit code.
pub fn rollback(args: &RollbackArgs) -> ExitCode {
    match perform(args) {
        Ok((run, done)) => {
            stdout::write(&told(args, &run.id, &done));
            if !args.dry_run && !done.difference.changes.is_empty() {
                let (digits, place) = (&done.saved.to_string()[..DIGITS], &run.called);
                let place = path_word(place);
                stdout::complain(&format!(
                    "Undo it with: delta rollback {} -w {place} --to {digits}",
                    run.id
                ));
            }
            ExitCode::SUCCESS
        }
        Err(failure) => failure.complain(),
    }
}

fn perform(args: &RollbackArgs) -> Result<(Found, Done), Failure> {
    let found = args.run.find(&args.work_dir)?;
    let done = put_back(args, &found.id, &found.workspace)?;
    Ok((found, done))
}

fn put_back(args: &RollbackArgs, id: &RunId, workspace: &Workspace) -> Result<Done, Failure> {
    let cancel = drive::cancel()?;
    let held = Held::claim(id, workspace, args.force)?;
    let tree = args.to.resolve(held.state(), id)?.ok_or_else(|| {
        Failure::no_run("the workspace is what it is now", "name an iteration, or a tree")
    })?;
    if let Some(other) = list_runs::at_work(workspace, Some(id))? {
        let hint = format!("wait for it, or stop it; `delta show {other}` shows what it does");
        return Err(Failure::active(format!("run {other} works in this workspace"), hint));
    }
    let secrets = point::secrets(&held.dir, held.state(), &workspace.root)?;
    let mut store = point::store(&held.dir, held.state())?;
    if args.dry_run {
        let saved = store.take(&workspace.root, &secrets, Some(&cancel))?.tree;
        leave_alone(&store, args, workspace)?;
        let difference = store.plan(saved, tree, Some(&cancel))?.difference;
        return Ok(Done { difference, tree, saved });
    }
    let observer = observer(&held.dir, held.state())?;
    let mut run = held.open(secrets, observer, &cancel)?;
    let saved = run.keep(&mut store, &workspace.root, Some(&cancel))?;
    leave_alone(&store, args, workspace)?;
    let plan = store.plan(saved, tree, Some(&cancel))?;
    if !plan.difference.changes.is_empty() {
        let (iteration, to) = (run.state().iterations, iteration(&args.to));
        let (tree, saved) = (tree.to_string(), saved.to_string());
        // What is deleted is in the store alone: a power failure must not take both.
        store.sync()?;
        run.record(Payload::Rollback { iteration, to, tree, saved });
        // Record, then act: whoever is killed from here on finds in the journal what was there before.
        run.commit()?;
        store.apply(&plan, &workspace.root, Some(&cancel)).map_err(half_done)?;
        store.save()?;
    } else {
        // What was found, and what of it holds a key, is worth knowing also when nothing has to be changed.
        run.commit()?;
    }
    Ok(Done { difference: plan.difference, tree, saved })
}

/// Whoever works below the workspace must not lose the ground either.
fn leave_alone(store: &Store, args: &RollbackArgs, workspace: &Workspace) -> Result<(), Failure> {
    for below in store.places_below() {
        let control = workspace.root.join(&below).join(".delta");
        if control.is_symlink() || !control.is_dir() {
            continue;
        }
        let found = Workspace::existing(&workspace.root.join(&below))?;
        if let Some(run) = list_runs::at_work(&found, None)? {
            let place = path_word(&args.work_dir.join(below));
            let hint = format!(
                "wait for it, or stop it; `delta show {run} -w {place}` shows what it does"
            );
            return Err(Failure::active(format!("run {run} works in {place}"), hint));
        }
    }
    Ok(())
}

fn iteration(point: &Point) -> Option<u32> {
    match point {
        Point::Iteration(number) => Some(*number),
        Point::Tree(_) | Point::Now => None,
    }
}

/// What stopped a rollback that had begun.
fn half_done(error: crate::snapshot::SnapshotError) -> Failure {
    let hint = "a part of the workspace is put back already; the same command does the rest";
    Failure::from(error).with_hint(Some(hint.to_owned()))
}

/// Shows warnings on stderr, and writes engine.log: what is told as the result need not be told as an event too.
fn observer(dir: &Path, state: &RunState) -> Result<Observer, Failure> {
    let mut progress = Progress::new(Verbosity::Quiet, false, time::now);
    progress.log_to(LogFile::open(&dir.join("engine.log"))?);
    progress.remember(state);
    Ok(Box::new(move |notice| {
        if let Notice::Warning(text) = &notice {
            stdout::complain(&format!("! {text}"));
        }
        progress.show(&notice);
    }))
}

fn told(args: &RollbackArgs, id: &RunId, done: &Done) -> String {
    let Done { difference: Difference { changes, left_out, gone }, tree, saved } = done;
    let count = Count::of(changes);
    if args.format == Format::Json {
        let changes: Vec<_> = changes
            .iter()
            .map(|it| json!({"change": word(it), "path": String::from_utf8_lossy(&it.path)}))
            .collect();
        let account = json!({
            "run_id": id.as_str(),
            "to": iteration(&args.to),
            "tree": tree.to_string(),
            "saved": saved.to_string(),
            "done": !args.dry_run,
            "changed": count.changed,
            "created": count.created,
            "deleted": count.deleted,
            "left_out": left_out.len(),
            "gone": gone.iter().map(|it| String::from_utf8_lossy(it)).collect::<Vec<_>>(),
            "changes": changes,
        });
        return format!("{account}\n");
    }
    let but = match gone.is_empty() {
        true => String::new(),
        false => format!(", but without {}, which no snapshot holds", point::some_of(gone)),
    };
    if changes.is_empty() {
        return format!("nothing to do: the workspace is what it was {}{but}\n", args.to);
    }
    match args.dry_run {
        true => {
            let line = |it: &Change| {
                let path = printable(&String::from_utf8_lossy(&it.path)).replace('\n', "?");
                format!("{} {path}\n", word(it))
            };
            let lines: String = changes.iter().map(line).collect();
            format!("{lines}{count}: to be what the workspace was {}{but}\n", args.to)
        }
        false => format!("{count}: the workspace is what it was {}{but}\n", args.to),
    }
}

fn word(change: &Change) -> &'static str {
    match (&change.before, &change.after) {
        (None, _) => "create",
        (_, None) => "delete",
        _ => "change",
    }
}
