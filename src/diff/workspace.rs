//! `delta diff RUN N M`: compares a workspace at two iterations, as a unified diff in the format of git.

use super::diff_painter::DiffPainter;
use super::{DiffArgs, EXIT_TROUBLE};
use crate::failure::CommandFailure;
use crate::restore_point::{self, RestorePoint};
use crate::run_argument::LocatedRun;
use crate::{continue_run, run_preparation, stage};
use delta_program::stdio;
use delta_snapshot::{
    RenderedChange, SnapshotChange, SnapshotError, SnapshotStore, is_implied_directory,
    quote_git_path, render_change,
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
    let state = continue_run::fold_journal(&id, &dir)?;
    let trees = [from.resolve(&state, &id)?, to.resolve(&state, &id)?];
    let mut store = restore_point::open_run_store(&dir, &state)?;
    let mut now = None;
    if trees.contains(&None) {
        let cancel = run_preparation::install_cancel()?;
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
    Ok(render_changes(args, &store, &store.diff(from, to)?.changes)?)
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
            text.push_str(&stat_line(&rendered, &quote_git_path("", &change.path)));
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

fn stat_line(rendered: &RenderedChange, path: &str) -> String {
    if !rendered.is_text {
        return format!("{path} | not text\n");
    }
    format!("{path} | +{} -{}\n", rendered.added, rendered.removed)
}
