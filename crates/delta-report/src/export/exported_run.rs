//! The input of every export format: the journal of a run, the metadata of its records, and its ancestor runs.
//!
//! Reads only. A record that is missing or damaged leaves a gap, not an error. Sensitive answers are redacted here,
//! before any format sees them.

use super::answer_redaction::AnswerRedaction;
use delta_base::durable;
use delta_base::id::{RunId, SnapshotId};
use delta_base::time::Timestamp;
use delta_run::event::{EngineStart, Event, Payload, Thought};
use delta_run::record;
use delta_run::run_tree::sensitive_answers;
use delta_run::state::RunState;
use delta_snapshot::{ExcludePatterns, SNAPSHOT_DIR_NAME, SnapshotChange, SnapshotStore};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest first line that is read of another run's journal.
const MAX_FIRST_EVENT_BYTES: u64 = 16 * 1024 * 1024;

/// A run with everything that an export format needs.
#[derive(Debug)]
pub struct ExportedRun {
    /// The run directory.
    pub dir: PathBuf,
    /// The journal, with sensitive answers redacted.
    pub events: Vec<Event>,
    /// The state after the last event.
    pub state: RunState,
    /// The records by their names in the journal, without messages and output, which may be large.
    records: BTreeMap<String, Json>,
    /// The parent run, its parent run, and so on.
    pub ancestors: Vec<AncestorRun>,
    redaction: AnswerRedaction,
}

/// A run that started the exported run or one of its ancestors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AncestorRun {
    /// Which run it is.
    pub identity: RunIdentity,
    /// The call whose tool started the child run; `None` when a hook or a generator did.
    pub call_id: Option<String>,
}

/// Identifies a run across workspaces, where two runs can have the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunIdentity {
    /// The run id, unique in its workspace.
    pub run_id: String,
    /// The time of the first event; `None` when the journal cannot be read.
    pub started_at: Option<Timestamp>,
}

/// The `parent` of an ENGINE_START.
#[derive(Debug, Deserialize)]
struct ParentReference {
    run_id: RunId,
    call_id: Option<String>,
    run_dir: PathBuf,
}

impl ExportedRun {
    /// Reads the run in `dir`, whose journal holds `events`. The sensitive answers of the runs that started it, and of those
    /// below it, are redacted too.
    pub fn read(dir: &Path, events: Vec<Event>) -> Self {
        Self::read_hiding(dir, events, &sensitive_answers::read_tree_answers(dir))
    }

    /// As [`ExportedRun::read`], without the answers of other runs: what is signed has to be the same where the others are
    /// missing.
    pub fn read_alone(dir: &Path, events: Vec<Event>) -> Self {
        Self::read_hiding(dir, events, &[])
    }

    fn read_hiding(dir: &Path, events: Vec<Event>, answers: &[String]) -> Self {
        let redaction = AnswerRedaction::new(&events, answers);
        let events: Vec<Event> =
            events.into_iter().map(|event| redaction.redact_event(event)).collect();
        let state = RunState::from_events(&events);
        let mut records = BTreeMap::new();
        for name in events.iter().filter_map(|event| event.payload.record_file()) {
            if let Some(mut record) = read_record_metadata(dir, name) {
                redaction.redact_record(&mut record);
                records.insert(name.to_owned(), record);
            }
        }
        // The journal of a fork begins with events of another run, whose parent is not the fork's.
        let mut ancestors = if state.origin.is_none() { find_ancestors(dir) } else { Vec::new() };
        for ancestor in &mut ancestors {
            ancestor.call_id = ancestor.call_id.take().map(|id| redaction.redact_name(id));
        }
        Self { dir: dir.to_owned(), records, events, state, ancestors, redaction }
    }

    /// A name that others gave, such as the path of a file, with sensitive answers redacted.
    pub fn visible_name(&self, name: String) -> String {
        self.redaction.redact_name(name)
    }

    /// The workspace changes between two snapshots; `None` when a snapshot is missing or incomplete.
    pub fn workspace_changes(
        &self,
        before: SnapshotId,
        after: SnapshotId,
    ) -> Option<Vec<SnapshotChange>> {
        Some(self.snapshot_store()?.compare(before, after).ok()?.changes)
    }

    /// The snapshots of the run, to read them; `None` if it has none.
    pub fn snapshot_store(&self) -> Option<SnapshotStore> {
        if !durable::is_dir_no_follow(&self.dir.join(SNAPSHOT_DIR_NAME)) {
            return None;
        }
        SnapshotStore::open(&self.dir, ExcludePatterns::default()).ok()
    }

    /// The last ENGINE_START.
    pub fn engine_start(&self) -> Option<&EngineStart> {
        self.state.start.as_ref()
    }

    /// The run's own identity.
    pub fn identity(&self) -> RunIdentity {
        let run_id = self.engine_start().map_or_else(String::new, |start| start.run_id.to_string());
        RunIdentity { run_id, started_at: self.state.created_at }
    }

    /// The metadata of the record that an event names.
    pub fn record(&self, name: Option<&str>) -> Option<&Json> {
        self.records.get(name?)
    }

    /// The record of the LLM call that returned a thought.
    pub fn invocation(&self, thought: &Thought) -> Option<&Json> {
        self.record(thought.invocation.as_deref())
    }

    /// The reasoning of a thought, from the journal or else from the record.
    pub fn reasoning(&self, thought: &Thought) -> Option<String> {
        if thought.reasoning.is_some() {
            return thought.reasoning.clone();
        }
        self.invocation(thought)?.get("reasoning")?.as_str().map(str::to_owned)
    }

    /// A request with this text, with sensitive answers redacted.
    pub fn parse_request(&self, text: &str) -> Option<Json> {
        Some(self.redaction.redact_request(serde_json::from_str(text).ok()?))
    }

    /// The record of the last LLM call.
    pub fn last_invocation(&self) -> Option<&str> {
        self.events.iter().rev().find_map(|event| match &event.payload {
            Payload::Thought(_) | Payload::Error { .. } => event.payload.record_file(),
            _ => None,
        })
    }

    /// The tools of the last request, and its messages that are not part of the conversation.
    pub fn system_context(&self) -> SystemContext {
        let name = self.last_invocation();
        let text = name.and_then(|name| record::read_request(&self.dir, name).ok());
        let Some(mut request) = text.and_then(|text| self.parse_request(&text)) else {
            return SystemContext { is_known: name.is_none(), ..SystemContext::default() };
        };
        let mut take_array = |member: &str| match request.get_mut(member).map(Json::take) {
            Some(Json::Array(items)) => items,
            _ => Vec::new(),
        };
        let tools = take_array("tools");
        let messages = take_array("messages");
        let blocks = name.and_then(|name| record::read_context_blocks(&self.dir, name).ok());
        let blocks = blocks.flatten().unwrap_or_default();
        let counted = blocks.iter().map(|block| block.messages).sum::<usize>();
        let system = if !blocks.is_empty() && counted == messages.len() {
            let is_system = blocks
                .iter()
                .flat_map(|block| std::iter::repeat_n(block.kind != "journal", block.messages));
            let pairs = messages.into_iter().zip(is_system);
            pairs.filter_map(|(message, is_system)| is_system.then_some(message)).collect()
        } else {
            messages.into_iter().filter(|message| message["role"] == "system").collect()
        };
        SystemContext { is_known: true, system, tools }
    }
}

/// What the LLM saw besides the conversation.
#[derive(Debug, Default)]
pub struct SystemContext {
    /// `false` when there was a request but it cannot be read.
    pub is_known: bool,
    /// Messages in the form of Chat Completions, usually with the role `system`.
    pub system: Vec<Json>,
    /// Tool definitions in the form of Chat Completions.
    pub tools: Vec<Json>,
}

fn read_record_metadata(dir: &Path, name: &str) -> Option<Json> {
    let bytes = record::read_record_bytes(dir, name).ok()?;
    let mut record: Json = serde_json::from_slice(&bytes).ok().filter(Json::is_object)?;
    for name in ["context", "stdin", "stdout", "stderr", "argv", "command"] {
        record.as_object_mut()?.shift_remove(name);
    }
    for (name, large) in [("request", ["messages", "tools"]), ("response", ["choices", "error"])] {
        if let Some(fields) = record.get_mut(name).and_then(Json::as_object_mut) {
            for name in large {
                fields.shift_remove(name);
            }
        }
    }
    Some(record)
}

/// The ancestors of the run in `dir`, the parent first, up to the first one whose journal cannot be read.
fn find_ancestors(dir: &Path) -> Vec<AncestorRun> {
    let mut visited = BTreeSet::from([dir.to_owned()]);
    let mut ancestors = Vec::new();
    let mut dir = dir.to_owned();
    while let Some(parent) = read_parent_reference(&dir) {
        // Runs that were moved together are still siblings.
        let sibling = dir.with_file_name(parent.run_id.as_str());
        // A journal that names itself or a descendant as its parent must not loop.
        let located = [parent.run_dir, sibling]
            .into_iter()
            .filter(|path| !visited.contains(path))
            .find_map(|path| Some((run_start_time(&path, &parent.run_id)?, path)));
        let started_at = located.as_ref().map(|(started_at, _)| *started_at);
        ancestors.push(AncestorRun {
            identity: RunIdentity { run_id: parent.run_id.to_string(), started_at },
            call_id: parent.call_id,
        });
        let Some((_, path)) = located else { break };
        visited.insert(path.clone());
        dir = path;
    }
    ancestors
}

/// The start time of the run `run_id`, if it is the run in `dir`.
fn run_start_time(dir: &Path, run_id: &RunId) -> Option<Timestamp> {
    let start = read_first_event(dir)?;
    let is_it = start.get("run_id")?.as_str()? == run_id.as_str();
    Timestamp::deserialize(start.get("timestamp")?).ok().filter(|_| is_it)
}

fn read_parent_reference(dir: &Path) -> Option<ParentReference> {
    ParentReference::deserialize(read_first_event(dir)?.get("parent")?).ok()
}

fn read_first_event(dir: &Path) -> Option<Json> {
    let file = durable::open_no_follow(&dir.join("journal.jsonl")).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(MAX_FIRST_EVENT_BYTES)).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}
