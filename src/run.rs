//! An owned run: its journal, the state that the journal means, its metadata and its io/ files.
//!
//! Nothing in a run changes except through [`Run::record`]. What is recorded counts at once and becomes durable, and
//! known to observers, with [`Run::commit`]; every act begins with one.

use crate::durable::{self, FileError};
use crate::event::{Event, Origin, Payload, ProcessInfo, Question, RunStatus, SnapshotTaken};
use crate::id::RunId;
use crate::journal::{Folded, Journal};
use crate::llm::Attempt;
use crate::ownership::Ownership;
use crate::record::Records;
use crate::signal::Cancel;
use crate::snapshot::{Id, SnapshotError, Store};
use crate::state::RunState;
use crate::text::Secrets;
use crate::time::{Clock, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// While a run goes on, its metadata is brought up to date this often at most, in milliseconds.
const METADATA_INTERVAL_MS: i64 = 1_000;

/// What those who watch a run are told.
#[derive(Debug)]
pub enum Notice<'a> {
    /// Events stand in the journal. A power failure could still take them back, the end of this process could not.
    Written(&'a [Event]),
    /// One of them has become durable.
    Recorded(&'a Event),
    /// The LLM is asked.
    Asking,
    /// The LLM has answered, or there will be no answer.
    Answered,
    /// Reasoning that came beside the answer.
    Reasoning(&'a str),
    /// A try of an LLM call failed.
    Attempt(&'a Attempt),
    /// The run waits for the answer to a question, which an earlier process may have asked.
    Waiting(&'a Question),
    /// Something that a person should know, and that is no event.
    Warning(&'a str),
}

/// Whoever watches.
pub type Observer = Box<dyn FnMut(Notice<'_>)>;

/// metadata.json: all of it can be rebuilt from the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunMetadata {
    /// The run.
    pub run_id: String,
    /// The workspace's name.
    pub workspace_id: String,
    /// The agent's name.
    pub agent_name: String,
    /// How it stands.
    pub status: RunStatus,
    /// When the run began.
    pub created_at: Timestamp,
    /// When its last event was recorded.
    pub updated_at: Timestamp,
    /// When its last process left it; null while one works on it.
    pub end_time: Option<Timestamp>,
    /// The task.
    pub initial_message: String,
    /// The number of LLM answers.
    pub iterations: u32,
    /// How many the present process may ask for.
    pub max_iterations: u32,
    /// Why it failed; null when it did not.
    pub error: Option<String>,
    /// The agent directory, absolute.
    pub agent_home: String,
    /// The workspace, absolute.
    pub work_dir: String,
    /// The run that it was made of, for a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The process that took it up last.
    #[serde(flatten)]
    pub process: ProcessInfo,
}

impl RunMetadata {
    /// The metadata of a state that has at least its ENGINE_START.
    pub fn of(state: &RunState) -> Option<Self> {
        let start = state.start.as_ref()?;
        let status = state.status?;
        let ended = status != RunStatus::Running;
        Some(Self {
            run_id: start.run_id.clone(),
            workspace_id: start.workspace_id.clone(),
            agent_name: start.agent_name.clone(),
            status,
            created_at: state.created_at?,
            updated_at: state.updated_at?,
            end_time: state.worked_until.filter(|_| ended),
            initial_message: state.conversation.task().to_owned(),
            iterations: state.iterations,
            max_iterations: start.max_iterations,
            error: state
                .error
                .as_ref()
                .filter(|_| status == RunStatus::Failed)
                .map(|(message, _)| message.clone()),
            agent_home: start.agent_home.clone(),
            work_dir: start.work_dir.clone(),
            origin: state.origin.clone(),
            process: start.process.clone(),
        })
    }

    /// The text of metadata.json.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn write_metadata(run_dir: &Path, metadata: &RunMetadata) -> Result<(), FileError> {
    durable::replace(&run_dir.join("metadata.json"), metadata.to_text().as_bytes())
}

/// A payload without the key's own value, wherever it turned up. Only texts are looked at: a value that is also the name
/// of a field takes no event apart.
fn redacted(payload: &Payload, secrets: &Secrets) -> Option<Payload> {
    // Where the agent and the run lie is needed to go on, and is no secret to anybody who can read it here. `dummy-key`
    // for a local server may well be a part of it.
    if let Payload::EngineStart(start) = payload {
        let mut start = start.clone();
        hide_in(&mut start.config, secrets);
        return Some(Payload::EngineStart(start));
    }
    let mut value = serde_json::to_value(payload).ok()?;
    hide_in(&mut value, secrets);
    serde_json::from_value(value).ok()
}

fn hide_in(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.hide(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in(item, secrets)),
        Value::Object(fields) => fields.values_mut().for_each(|field| hide_in(field, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Rebuilds the metadata of a run that has ended, when it is missing or damaged, or older than the journal because its
/// process died between the two. For the holder of the lock, before it leaves the run as it is.
pub fn mend_metadata(run_dir: &Path, state: &RunState) -> Result<(), FileError> {
    let metadata = RunMetadata::of(state).filter(|found| found.status != RunStatus::Running);
    let Some(metadata) = metadata else { return Ok(()) };
    let text = durable::read_whole(&run_dir.join("metadata.json")).ok();
    let written = text.and_then(|text| serde_json::from_slice::<RunMetadata>(&text).ok());
    if written.as_ref() == Some(&metadata) {
        return Ok(());
    }
    write_metadata(run_dir, &metadata)
}

/// A run that this process owns.
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// Its directory, absolute.
    pub dir: PathBuf,
    /// Where its io/ files go.
    pub records: Records,
    secrets: Secrets,
    state: RunState,
    journal: Journal,
    observer: Observer,
    /// When the metadata was last written, and with which status.
    written: Option<(Timestamp, RunStatus)>,
    ownership: Ownership,
}

impl Run {
    /// A new run in the directory that was made for it; its journal is empty.
    pub fn create(
        id: RunId,
        dir: &Path,
        ownership: Ownership,
        secrets: Secrets,
        clock: Clock,
        observer: Observer,
    ) -> Result<Self, FileError> {
        let journal = Journal::create(dir, clock)?;
        let records = Records::new(dir, secrets.clone());
        let (dir, state) = (dir.to_owned(), RunState::default());
        Ok(Self { id, dir, records, secrets, state, journal, observer, written: None, ownership })
    }

    /// A run that is taken up again, as its journal says that it stands. Gives the name under which a torn tail was set aside.
    pub fn open(
        id: RunId,
        dir: &Path,
        ownership: Ownership,
        secrets: Secrets,
        clock: Clock,
        observer: Observer,
        folded: Folded,
    ) -> Result<(Self, Option<String>), FileError> {
        let (journal, aside) = Journal::open(dir, &folded.end, clock)?;
        let records = Records::new(dir, secrets.clone());
        let (dir, state) = (dir.to_owned(), folded.state);
        let run =
            Self { id, dir, records, secrets, state, journal, observer, written: None, ownership };
        Ok((run, aside))
    }

    /// The number of processes that have owned the run, this one included.
    pub fn epoch(&self) -> u32 {
        self.ownership.epoch()
    }

    /// What the events so far mean.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Makes a fact of something: it counts from now on. Before any act that follows from it there is a
    /// [`Run::commit`].
    pub fn record(&mut self, payload: Payload) {
        let secrets = &self.secrets;
        let instead = |line: &str, payload: &Payload| match secrets.is_in(line) {
            true => redacted(payload, secrets),
            false => None,
        };
        self.state.apply(self.journal.record(payload, instead));
    }

    /// Sets what was recorded on its way to the disk. For what is done between the last event before an act and the commit
    /// with which the act begins: the commit has less to wait for.
    pub fn send(&mut self) {
        let written = self.journal.send();
        if !written.is_empty() {
            (self.observer)(Notice::Written(written));
        }
    }

    /// Makes everything recorded durable, shows it in the metadata, and tells the observer.
    ///
    /// # Errors
    /// Nothing of it was acknowledged, and the run must not go on.
    pub fn commit(&mut self) -> Result<(), FileError> {
        self.send();
        let events = self.journal.commit()?;
        if events.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.refresh_metadata() {
            // What the journal says has ended has ended; the metadata is rebuilt from it.
            if self.state.status == Some(RunStatus::Running) {
                return Err(error);
            }
            self.tell(Notice::Warning(&error.to_string()));
        }
        for event in &events {
            (self.observer)(Notice::Recorded(event));
        }
        Ok(())
    }

    fn refresh_metadata(&mut self) -> Result<(), FileError> {
        let (status, updated_at) = (self.state.status, self.state.updated_at);
        let due = self.written.is_none_or(|(at, written)| {
            let since = updated_at.map_or(0, |updated_at| updated_at.millis() - at.millis());
            status != Some(written) || since >= METADATA_INTERVAL_MS
        });
        if !due {
            return Ok(());
        }
        let Some(metadata) = RunMetadata::of(&self.state) else { return Ok(()) };
        self.written = Some((metadata.updated_at, metadata.status));
        write_metadata(&self.dir, &metadata)
    }

    /// Keeps the workspace as it is now, and makes a fact of it when it is not what it was the last time; gives its tree.
    pub fn keep(
        &mut self,
        store: &mut Store,
        workspace: &Path,
        cancel: Option<&Cancel>,
    ) -> Result<Id, SnapshotError> {
        let taken = store.take(workspace, &self.secrets, cancel)?;
        for path in &taken.news {
            let shown = String::from_utf8_lossy(&path.path).into_owned();
            let text = format!("the snapshots leave out {shown}: {}", path.why);
            let text = self.secrets.hide(&text).into_owned();
            self.tell(Notice::Warning(&text));
        }
        let (tree, exclude) = (taken.tree.to_string(), store.exclude().patterns());
        let timeline = &self.state.timeline;
        let is_known =
            timeline.last().is_some_and(|last| last.tree == tree && last.exclude == exclude);
        if !is_known {
            let iteration = self.state.iterations;
            let is_end = self.state.is_between_iterations() && !timeline.is_closed(iteration);
            self.record(Payload::Snapshot(Box::new(SnapshotTaken {
                iteration,
                tree,
                files: taken.files,
                bytes: taken.bytes,
                written: taken.written,
                left_out: taken.left_out.len() as u64,
                found: !is_end,
                exclude,
            })));
        }
        Ok(taken.tree)
    }

    /// Tells the observer something that is no event.
    pub fn tell(&mut self, notice: Notice<'_>) {
        (self.observer)(notice);
    }

    /// The observer, for those who tell it things while they work.
    pub fn observer(&mut self) -> &mut Observer {
        &mut self.observer
    }

    /// What must never be written.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}
