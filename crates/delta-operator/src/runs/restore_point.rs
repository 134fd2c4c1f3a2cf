//! The states of a workspace that an argument can name: the end of an iteration, a snapshot, or the current files.

use crate::env_files::{self, EnvFileOptions};
use crate::failure::CommandFailure;
use crate::{environment, trust};
use clap::ValueEnum;
use delta_agent::agent::Agent;
use delta_base::durable::FileError;
use delta_base::id::SnapshotId;
use delta_base::redact::Secrets;
use delta_base::terminal_text::strip_terminal_controls;
use delta_llm::llm::ModelSelection;
use delta_run::event::{Event, Payload};
use delta_run::state::RunState;
use delta_run::state::snapshot_timeline::NoSnapshotThen;
use delta_snapshot::{ExcludePatterns, SnapshotChange, SnapshotError, SnapshotStore};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// The number of digits that name a snapshot.
pub const MIN_ID_DIGITS: usize = 12;

/// The number of paths that a message lists.
const MAX_LISTED_PATHS: usize = 5;

/// A state of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RestorePoint {
    /// The end of an iteration; 0 is the state before the run.
    Iteration(u32),
    /// The state at the last message to the agent; no text names it.
    #[default]
    BeforeLastMessage,
    /// A prefix of a snapshot id.
    Snapshot(String),
    /// The current files.
    Now,
}

impl RestorePoint {
    /// Parses an iteration number, `now` or a prefix of a snapshot id.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_snapshot_id = (MIN_ID_DIGITS..=64).contains(&text.len())
            && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match text.parse() {
            _ if text == "now" => Ok(Self::Now),
            _ if is_snapshot_id => Ok(Self::Snapshot(text.to_owned())),
            Ok(number) => Ok(Self::Iteration(number)),
            Err(_) => Err(format!(
                "expected the number of an iteration, 0 for the state before the run, or at least {MIN_ID_DIGITS} digits of a snapshot id"
            )),
        }
    }

    /// Finds the snapshot in a run; returns `None` for the current files.
    pub fn resolve(
        &self,
        state: &RunState,
        id: &impl fmt::Display,
    ) -> Result<Option<SnapshotId>, CommandFailure> {
        let timeline = &state.timeline;
        let first = match (timeline.first(), self) {
            (Some(first), _) => first.iteration,
            // What a run has replaced where it has arrived.
            (None, Self::Snapshot(digits)) if !timeline.with_id_prefix(digits).is_empty() => 0,
            (None, _) => {
                let message = format!("run {id} has no snapshots");
                let saved = state.received.as_ref().and_then(|received| received.saved);
                let hint = match saved.map(|saved| saved.to_string()) {
                    Some(saved) => format!(
                        "name the files that it has replaced here: `--to {}`",
                        &saved[..MIN_ID_DIGITS]
                    ),
                    None => {
                        "enable them with `--snapshots`, or with `snapshots: true` in agent.yaml"
                            .to_owned()
                    }
                };
                return Err(CommandFailure::not_found(message, hint));
            }
        };
        let snapshot = match self {
            Self::Now => return Ok(None),
            Self::BeforeLastMessage => match timeline.before_last_message() {
                Ok(Some(point)) => point,
                Ok(None) => return Ok(None),
                Err(NoSnapshotThen) => {
                    let message = format!("run {id} has no snapshot from before its last message");
                    let hint = format!("its first snapshot is of iteration {first}");
                    return Err(CommandFailure::not_found(message, hint));
                }
            },
            Self::Iteration(number) => {
                let is_open = *number == state.iterations && !state.is_between_iterations();
                if *number > state.iterations || is_open {
                    let message = format!("run {id} has no complete iteration {number}");
                    let last =
                        state.iterations.saturating_sub(u32::from(!state.is_between_iterations()));
                    let hint = format!("its last complete iteration is {last}");
                    return Err(CommandFailure::not_found(message, hint));
                }
                timeline.at_end_of(*number).ok_or_else(|| {
                    let message =
                        format!("run {id} has no snapshot from iteration {number} or before");
                    let hint = format!("its first snapshot is of iteration {first}");
                    CommandFailure::not_found(message, hint)
                })?
            }
            Self::Snapshot(digits) => match timeline.with_id_prefix(digits).as_slice() {
                [snapshot] => snapshot,
                [] => {
                    let message = format!("run {id} has no snapshot whose id starts with {digits}");
                    let hint = "the SNAPSHOT and ROLLBACK events of its journal contain the ids";
                    return Err(CommandFailure::not_found(message, hint));
                }
                _ => {
                    let message = format!("several snapshot ids start with {digits}");
                    return Err(CommandFailure::not_found(message, "give more digits"));
                }
            },
        };
        Ok(Some(snapshot.tree))
    }
}

impl fmt::Display for RestorePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iteration(0) => f.write_str("the state before the run"),
            Self::Iteration(number) => write!(f, "the end of iteration {number}"),
            Self::BeforeLastMessage => f.write_str("the state before the last message"),
            Self::Snapshot(digits) => write!(f, "snapshot {digits}"),
            Self::Now => f.write_str("the current files"),
        }
    }
}

/// Opens the snapshots of a run with the exclude patterns of its last process.
pub fn open_run_store(dir: &Path, state: &RunState) -> Result<SnapshotStore, CommandFailure> {
    let patterns = state.timeline.last().map(|last| last.exclude.as_slice()).unwrap_or_default();
    let exclude = ExcludePatterns::parse_recorded(patterns)
        .map_err(|problem| CommandFailure::damaged(problem, None))?;
    Ok(open_store_excluding(dir, state, exclude)?)
}

/// Copies the snapshots that `events` name, the first ones of the run whose store is `from`. Snapshots that are missing or
/// damaged there are left out.
pub fn copy_snapshots(
    from: &SnapshotStore,
    to: &mut SnapshotStore,
    events: &[Event],
) -> Result<(), CommandFailure> {
    let mut trees = BTreeSet::new();
    for event in events {
        match &event.payload {
            Payload::Snapshot(snapshot) => trees.extend([snapshot.tree]),
            Payload::Rollback { tree, saved, .. } => trees.extend([*tree, *saved]),
            _ => {}
        }
    }
    trees
        .into_iter()
        .try_for_each(|tree| to.copy_tree_from(from, tree).or_else(ignore_lost_snapshot))
}

/// A snapshot that is missing or damaged where it is copied from is not an error.
pub fn ignore_lost_snapshot(error: SnapshotError) -> Result<(), CommandFailure> {
    match error {
        SnapshotError::Damaged(_) => Ok(()),
        SnapshotError::File(error) if error.source.kind() == ErrorKind::NotFound => Ok(()),
        error => Err(error.into()),
    }
}

/// Checks that the store of a run still has the snapshot `tree` of `point`: a person may have deleted the run's snapshots,
/// and the run has taken others since then.
pub fn check_is_stored(
    store: &SnapshotStore,
    state: &RunState,
    point: &RestorePoint,
    tree: Option<SnapshotId>,
) -> Result<(), CommandFailure> {
    if tree.is_none_or(|tree| store.contains(tree)) {
        return Ok(());
    }
    let message = format!("the snapshot of {point} was deleted");
    let first_stored = (0..=state.iterations).find(|iteration| {
        state.timeline.at_end_of(*iteration).is_some_and(|snapshot| store.contains(snapshot.tree))
    });
    let hint = match first_stored {
        Some(iteration) => format!("the first state that the run still has is {iteration}"),
        None => "the run has no other snapshots".to_owned(),
    };
    Err(CommandFailure::not_found(message, hint))
}

/// Opens the snapshots of a run with new exclude patterns. Files that the last snapshot left out because they contain a key
/// stay out, even if this process does not know the key.
pub fn open_store_excluding(
    dir: &Path,
    state: &RunState,
    exclude: ExcludePatterns,
) -> Result<SnapshotStore, FileError> {
    let mut store = SnapshotStore::open(dir, exclude)?;
    if let Some(last) = state.timeline.last() {
        // Files that a rollback left in place are in the snapshot that it saved, not in the one that it restored.
        for tree in [Some(last.tree), last.saved].into_iter().flatten() {
            store.omit_secret_paths_of(tree);
        }
    }
    Ok(store)
}

/// The secrets that snapshots of a workspace must not contain. The agent names the variable of the key; if it does not load,
/// the run's copy of the agent does.
pub fn workspace_secrets(
    dir: &Path,
    state: &RunState,
    workspace: &Path,
    env_files: &EnvFileOptions,
) -> Result<Secrets, CommandFailure> {
    let home =
        state.start.as_ref().map_or_else(|| dir.to_owned(), |start| (&start.agent_home).into());
    let load = |home: &Path| {
        Agent::load(home, &ModelSelection::without_llm(), &trust::read_import_path()).ok()
    };
    let agent = load(&home).or_else(|| load(&dir.join("agent")));
    let names = environment::key_names_of(agent.as_ref());
    let trust = trust::read_operator_trust(Some(workspace));
    let layers = env_files::read_env_layers(Some(workspace), &home, env_files, &trust)?;
    Ok(layers.secrets(&names))
}

/// Lists the first paths, for a message.
pub fn list_some_paths(paths: &[Vec<u8>]) -> String {
    let listed: Vec<String> =
        paths.iter().take(MAX_LISTED_PATHS).map(|path| display_snapshot_path(path)).collect();
    let more = match paths.len().saturating_sub(MAX_LISTED_PATHS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", listed.join(", "))
}

/// A path of a snapshot on one line.
pub fn display_snapshot_path(path: &[u8]) -> String {
    strip_terminal_controls(&String::from_utf8_lossy(path)).replace('\n', "?")
}

/// How a command prints the changes that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangeFormat {
    /// Readable summary
    Text,
    /// One JSON object
    Json,
}

/// The number of changes of each kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangeCount {
    /// Files whose content or mode changes.
    pub changed: usize,
    /// Files that appear.
    pub created: usize,
    /// Files that disappear.
    pub deleted: usize,
}

impl ChangeCount {
    /// Counts the changes.
    pub fn new(changes: &[SnapshotChange]) -> Self {
        let mut count = Self::default();
        for change in changes {
            match (&change.before, &change.after) {
                (None, _) => count.created += 1,
                (_, None) => count.deleted += 1,
                _ => count.changed += 1,
            }
        }
        count
    }
}

impl fmt::Display for ChangeCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changed, created, deleted } = self;
        write!(f, "{changed} changed, {created} created, {deleted} deleted")
    }
}

/// What a change does to its path, for output.
fn change_word(change: &SnapshotChange) -> &'static str {
    match (&change.before, &change.after) {
        (None, _) => "create",
        (_, None) => "delete",
        _ => "change",
    }
}

/// Changes as JSON.
pub fn changes_json(changes: &[SnapshotChange]) -> Vec<Json> {
    let entries = changes.iter().map(|change| {
        json!({"change": change_word(change), "path": String::from_utf8_lossy(&change.path)})
    });
    entries.collect()
}

/// Changes as text, one on each line.
pub fn render_change_lines(changes: &[SnapshotChange]) -> String {
    let lines = changes
        .iter()
        .map(|change| format!("{} {}\n", change_word(change), display_snapshot_path(&change.path)));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_16_3_a_point_is_a_number_a_tree_or_now() {
        let tree = "0123456789ab".to_owned();
        assert_eq!(RestorePoint::parse("0"), Ok(RestorePoint::Iteration(0)));
        assert_eq!(RestorePoint::parse("123456789"), Ok(RestorePoint::Iteration(123_456_789)));
        assert_eq!(RestorePoint::parse("now"), Ok(RestorePoint::Now));
        assert_eq!(RestorePoint::parse(&tree), Ok(RestorePoint::Snapshot(tree)));
        for wrong in ["", "-1", "12345678901", "0123456789AB", "then"] {
            assert!(RestorePoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
