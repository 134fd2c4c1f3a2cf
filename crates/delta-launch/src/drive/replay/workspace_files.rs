//! The initial files of a replay with tools, and the comparison of its final files with the run's final files.

use super::OriginalRun;
use delta_base::durable;
use delta_base::id::SnapshotId;
use delta_base::redact::Secrets;
use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::restore_point;
use delta_operator::runs::separate_copy::separate_copy;
use delta_report::replay::{self, ReplayDifference};
use delta_report::run_names::RunNames;
use delta_run::event::{Event, Payload};
use delta_run::state::RunState;
use delta_run::workspace::Workspace;
use delta_snapshot::{EntryKind, SnapshotChange, SnapshotError, SnapshotStore, TreeEntry};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Larger files are only reported as different.
const MAX_COMPARED_BYTES: u64 = 4 << 20;

/// The workspace files of a replay.
pub struct ReplayFiles {
    /// Says which files the replay starts with, and what they share with others.
    pub beginning_notes: Vec<String>,
    /// What is not as it was in the run, so that the replay changes nothing outside of its workspace.
    separated: Vec<PathBuf>,
    /// The snapshots of the replay and the last snapshot of the run; `None` if the final files are not comparable.
    snapshots: Option<(SnapshotStore, SnapshotId)>,
    /// Why the final files are not comparable.
    not_checked: Option<String>,
}

/// The comparison of the final files.
pub struct FilesComparison {
    pub differences: Vec<ReplayDifference>,
    /// Why the files were not compared.
    pub not_checked: Option<String>,
}

impl ReplayFiles {
    /// Restores the initial files of the run from its snapshots, unless the workspace has files already. `run_dir` is the
    /// directory of the replay.
    ///
    /// # Errors
    /// A snapshot is damaged, or the workspace cannot be written.
    pub fn prepare(
        original: &OriginalRun,
        run_dir: &Path,
        workspace: &Workspace,
        secrets: &Secrets,
    ) -> Result<Self, CommandFailure> {
        let state = RunState::from_events(&original.events);
        let has_store =
            durable::is_dir_no_follow(&original.dir.join(delta_snapshot::SNAPSHOT_DIR_NAME));
        let first = state.timeline.at_end_of(0).filter(|_| has_store);
        let dir = workspace.root.display();
        let id = &original.id;
        let mut files = Self {
            beginning_notes: Vec::new(),
            separated: Vec::new(),
            snapshots: None,
            not_checked: None,
        };
        if !is_empty_workspace(workspace) {
            files.beginning_notes.push(format!(
                "Note: the tools run on the existing files in {dir}, not on the initial files of run {id}"
            ));
            return Ok(files);
        }
        let Some(first) = first.map(|snapshot| snapshot.tree) else {
            files.beginning_notes.push(format!(
                "Note: {dir} is empty: run {id} has no snapshot of its initial files"
            ));
            return Ok(files);
        };
        let source = restore_point::open_run_store(&original.dir, &state)?;
        if !source.contains(first) {
            files.beginning_notes.push(format!(
                "Note: {dir} is empty: the snapshot of the initial files of run {id} was deleted"
            ));
            return Ok(files);
        }
        let mut store = restore_point::open_run_store(run_dir, &state)?;
        store.copy_tree_from(&source, first)?;
        store.restore(first, &workspace.root, secrets, None)?;
        files.beginning_notes.push(format!("Restored the initial files of run {id} in {dir}"));
        let original_root = Path::new(&original.start.work_dir);
        let separated = separate_copy(&workspace.root, original_root, &workspace.root)?;
        files.beginning_notes.extend(separated.notes);
        files.beginning_notes.extend(separated.shared);
        files.separated = separated.changed;
        files.not_checked = why_not_comparable(&original.events, &state);
        if let Some(last) = state.timeline.last().filter(|_| files.not_checked.is_none()) {
            store.copy_tree_from(&source, last.tree)?;
            files.snapshots = Some((store, last.tree));
        }
        Ok(files)
    }

    /// Compares the files with the final files of the run. `names` has the names of the run, then of the replay.
    pub fn compare(
        self,
        workspace: &Workspace,
        secrets: &Secrets,
        names: &[RunNames; 2],
    ) -> Result<FilesComparison, SnapshotError> {
        let Some((mut store, last)) = self.snapshots else {
            return Ok(FilesComparison { differences: Vec::new(), not_checked: self.not_checked });
        };
        let now = store.take(&workspace.root, secrets, None)?.tree;
        let changes = store.compare(last, now)?.changes;
        let mut differences = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let path = Path::new(OsStr::from_bytes(&change.path));
            if self.separated.iter().any(|entry| path.starts_with(entry)) {
                continue;
            }
            if !delta_snapshot::is_implied_directory(change, changes.get(index + 1)) {
                differences.extend(file_difference(&store, change, names)?);
            }
        }
        Ok(FilesComparison { differences, not_checked: None })
    }
}

fn is_empty_workspace(workspace: &Workspace) -> bool {
    let entries = std::fs::read_dir(&workspace.root).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).all(|name| name == ".delta")
}

/// Why the last snapshot of a run does not show the work of its tools alone; `None` if it does.
fn why_not_comparable(events: &[Event], state: &RunState) -> Option<String> {
    let has_other_changes = events.iter().any(|event| match &event.payload {
        Payload::Snapshot(snapshot) => snapshot.found,
        Payload::Fork(fork) => fork.tree.is_none(),
        _ => false,
    });
    if has_other_changes {
        return Some("the final files: not only the tools changed the files of the run".to_owned());
    }
    if replay::has_interrupted_call(events) {
        let reason = "the final files: the engine died or was stopped during a call";
        return Some(reason.to_owned());
    }
    let has_final_snapshot = state.timeline.is_closed(state.iterations);
    (!has_final_snapshot).then(|| "the final files: the run has no snapshot of them".to_owned())
}

/// The difference of a changed path; `None` if only the names of the runs differ in a file.
fn file_difference(
    store: &SnapshotStore,
    change: &SnapshotChange,
    names: &[RunNames; 2],
) -> Result<Option<ReplayDifference>, SnapshotError> {
    let path = strip_terminal_controls(&String::from_utf8_lossy(&change.path));
    let subject = format!("the file {path}");
    if let (Some(before), Some(after)) = (&change.before, &change.after)
        && [before, after]
            .iter()
            .all(|entry| entry.kind == EntryKind::File && entry.length <= MAX_COMPARED_BYTES)
    {
        let modes = [before.mode, after.mode];
        let before = store.read_content(before.id)?;
        let after = store.read_content(after.id)?;
        let texts = [String::from_utf8_lossy(&before), String::from_utf8_lossy(&after)];
        let difference = ReplayDifference::between(
            None,
            subject.clone(),
            &names[0].replace_in(&texts[0]),
            &names[1].replace_in(&texts[1]),
        );
        let is_same_text = difference.is_none() && texts[0] != texts[1];
        if difference.is_some() || is_same_text && modes[0] == modes[1] {
            return Ok(difference);
        }
    }
    Ok(Some(ReplayDifference::new(
        None,
        subject,
        describe_entry(change.before.as_ref()),
        describe_entry(change.after.as_ref()),
    )))
}

fn describe_entry(entry: Option<&TreeEntry>) -> String {
    let Some(entry) = entry else { return "missing".to_owned() };
    let mode = entry.mode;
    match entry.kind {
        EntryKind::File => format!("a file of {} bytes, mode {mode:o}", entry.length),
        EntryKind::Directory | EntryKind::Piece => format!("a directory, mode {mode:o}"),
        EntryKind::Symlink => "a symlink".to_owned(),
        EntryKind::Omitted | EntryKind::Secret => "in no snapshot".to_owned(),
    }
}
