//! `delta diff RUN N M`: compares a workspace at two iterations, as a unified diff in the format of git.

use super::diff_painter::DiffPainter;
use super::{DiffArgs, EXIT_TROUBLE};
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point::{self, RestorePoint};
use delta_operator::runs::run_argument::LocatedRun;
use delta_operator::runs::{own_run, stage};
use delta_program::stdio;
use delta_snapshot::{
    EntryKind, HalfKnownPath, RenderedChange, SnapshotChange, SnapshotError, SnapshotStore,
    TreeEntry, is_implied_directory, quote_git_path, render_change,
};
use std::process::ExitCode;

/// Prints the diff; returns the exit code.
pub fn diff_workspace(args: &DiffArgs, from: &RestorePoint, to: &RestorePoint) -> ExitCode {
    print_diff(render_workspace_diff(args, from, to))
}

/// Prints a diff in the format of git; returns the exit code.
pub fn print_diff(rendered: Result<String, CommandFailure>) -> ExitCode {
    match rendered {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => {
            let mut painter = DiffPainter::default();
            stdio::print_painted(&text, |line| painter.paint(line));
            ExitCode::FAILURE
        }
        Err(failure) => match failure.report() {
            code if code == ExitCode::FAILURE => ExitCode::from(EXIT_TROUBLE),
            code => code,
        },
    }
}

fn render_workspace_diff(
    args: &DiffArgs,
    from: &RestorePoint,
    to: &RestorePoint,
) -> Result<String, CommandFailure> {
    let has_now = [from, to].contains(&&RestorePoint::Now);
    let LocatedRun { id, dir, workspace, .. } = if has_now {
        args.run.find(&args.work_dir)?
    } else {
        args.run.find_readable(&args.work_dir)?
    };
    let state = own_run::fold_journal(&id, &dir)?;
    let trees = [from.resolve(&state, &id)?, to.resolve(&state, &id)?];
    let mut store = restore_point::open_run_store(&dir, &state)?;
    for (point, tree) in [from, to].into_iter().zip(trees) {
        restore_point::check_is_stored(&store, &state, point, tree)?;
    }
    let mut now = None;
    if trees.contains(&None) {
        let cancel = cancel::install_cancel()?;
        let secrets =
            restore_point::workspace_secrets(&dir, &state, &workspace.root, &args.env_files)?;
        let current = store.take(&workspace.root, &secrets, Some(&cancel))?.tree;
        now = Some(match &state.stage {
            None => current,
            Some(stage) => {
                stage::staged_tree(&mut store, stage, current, &dir, &secrets, &cancel)?.tree
            }
        });
    }
    let [Some(from), Some(to)] = trees.map(|tree| tree.or(now)) else { return Ok(String::new()) };
    let diff = store.compare(from, to)?;
    let mut text = String::new();
    for HalfKnownPath { path, is_before_known } in &diff.half_known {
        let path = quote_git_path("", path);
        let side = if *is_before_known { "new" } else { "old" };
        text.push_str(&match (args.name_only, args.stat) {
            (true, _) => format!("{path}\n"),
            (false, true) => format!("{path} | its {side} content is in no snapshot\n"),
            (false, false) => format!("{path} differs; its {side} content is in no snapshot\n"),
        });
    }
    Ok(text + &render_changes(args, &store, &diff.changes)?)
}

/// The changes in the form that the options ask for; empty if there is none.
pub fn render_changes(
    args: &DiffArgs,
    store: &SnapshotStore,
    changes: &[SnapshotChange],
) -> Result<String, SnapshotError> {
    let mut text = String::new();
    let mut total = LineCount::default();
    for (index, change) in changes.iter().enumerate() {
        if is_implied_directory(change, changes.get(index + 1)) {
            continue;
        }
        if args.name_only {
            text.push_str(&format!("{}\n", quote_git_path("", &change.path)));
            continue;
        }
        let rendered = render_change(store, change)?;
        total.added += rendered.added;
        total.removed += rendered.removed;
        if args.stat {
            text.push_str(&stat_line(change, &rendered));
        } else {
            text.push_str(&rendered.text);
        }
    }
    if args.stat && !text.is_empty() {
        text.push_str(&format!("{} added, {} removed\n", total.added, total.removed));
    }
    Ok(text)
}

#[derive(Default)]
struct LineCount {
    added: usize,
    removed: usize,
}

fn stat_line(change: &SnapshotChange, rendered: &RenderedChange) -> String {
    let directory_mode = |entry: &Option<TreeEntry>| {
        let directory = entry.as_ref().filter(|entry| entry.kind == EntryKind::Directory);
        directory.map(|entry| entry.mode)
    };
    let is_file = |entry: &Option<TreeEntry>| {
        entry.as_ref().is_some_and(|entry| entry.kind != EntryKind::Directory)
    };
    let mut parts = match (directory_mode(&change.before), directory_mode(&change.after)) {
        (None, None) => Vec::new(),
        (None, Some(mode)) => vec![format!("new directory, mode {mode:04o}")],
        (Some(_), None) => vec!["deleted directory".to_owned()],
        (Some(before), Some(after)) => {
            vec![format!("directory, mode {before:04o}, now {after:04o}")]
        }
    };
    if is_file(&change.before) || is_file(&change.after) {
        parts.push(if rendered.is_text {
            format!("+{} -{}", rendered.added, rendered.removed)
        } else {
            "not text".to_owned()
        });
    }
    format!("{} | {}\n", quote_git_path("", &change.path), parts.join(", "))
}
