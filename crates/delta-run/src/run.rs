//! A run that this process owns: its journal, its state, its metadata and its io/ records.
//!
//! A run changes only through [`Run::record`]. A recorded event is part of the state at once; [`Run::commit`] makes it
//! durable and notifies the observer. Every action begins with a commit.

use crate::event::approval::ApprovalRequest;
use crate::event::{
    ErrorDetails, Event, HumanQuestion, JournalHead, LeaseKind, Payload, RunStatus, Thought,
    WorkspaceSnapshot,
};
use crate::journal::seal::Sealer;
use crate::journal::seal_key::SealKey;
use crate::journal::{self, Journal, JournalFold};
use crate::lease::lease_files;
use crate::mailbox::{Mailbox, MessageSeal};
use crate::ownership::{ActError, Ownership, ReplacedError};
use crate::record::RecordWriter;
use crate::record::open_call::DeadCall;
use crate::state::RunState;
use crate::state::run_metadata::{RunMetadata, has_metadata, write_metadata};
use delta_base::durable::{FileError, LostFile};
use delta_base::id::{RunId, SnapshotId};
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::terminal::input_line::InputLine;
use delta_base::time::{Clock, Timestamp};
use delta_process::OutputPiece;
use delta_snapshot::{SnapshotError, SnapshotStore};
use delta_words::{Attempt, CallArguments, TryNumber};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// The least time between two updates of the metadata of a running run, in milliseconds.
const METADATA_INTERVAL_MS: i64 = 1_000;

/// What happens in a run, for its observer.
#[derive(Debug)]
pub enum RunNotice<'a> {
    /// Events were written to the journal. They survive the end of the process, but not yet a power failure.
    EventsWritten(&'a [Event]),
    /// An event has become durable. The state is the one after all events that became durable with it.
    EventDurable(&'a Event, &'a RunState),
    /// A call of the LLM has started.
    LlmCallStarted,
    /// The next piece of the answer's text, as it arrives. Only the live output of a terminal gets these pieces; nothing
    /// records them.
    AnswerPiece(&'a str),
    /// The next piece of the answer's reasoning, likewise.
    ReasoningPiece(&'a str),
    /// The next piece of the output of a call, likewise.
    OutputPiece {
        /// The id of the call.
        call_id: &'a str,
        /// The piece.
        piece: &'a OutputPiece<'a>,
    },
    /// The LLM has answered, or the call has failed.
    LlmCallEnded,
    /// The reasoning that came with the answer.
    Reasoning(&'a str),
    /// An attempt of an LLM call has failed; with the number of the next one, if there is one.
    AttemptFailed(&'a Attempt, TryNumber),
    /// The run waits for the answer to a question, which an earlier process may have asked.
    WaitingForAnswer(&'a HumanQuestion),
    /// The run waits for the approval of a call, for which an earlier process may have asked.
    WaitingForApproval(&'a ApprovalRequest),
    /// The user can type into this line from now on, or no longer.
    Input(Option<&'a InputLine>),
    /// A warning for the user that is not an event.
    Warning(&'a str),
    /// The journal was changed after it was written: a warning that is printed even if nothing else is.
    EditedJournal(&'a str),
}

/// A function that receives the notices of a run.
pub type RunObserver = Box<dyn FnMut(RunNotice<'_>)>;

/// A payload with all secrets redacted, wherever they are. Only values are searched: a secret that is also the name of a
/// field must not break the event.
fn redact_payload(payload: &Payload, secrets: &Secrets) -> Option<Payload> {
    // The paths of the agent and the run are needed to continue, and a reader of this journal knows them already. A key
    // such as `dummy-key` for a local server may be a part of them.
    if let Payload::EngineStart(start) = payload {
        let mut start = start.clone();
        let mut config = serde_json::to_value(&start.config).ok()?;
        redact_json(&mut config, secrets);
        start.config = serde_json::from_value(config).ok()?;
        return Some(Payload::EngineStart(start));
    }
    // The id of a snapshot is a hash, which is needed to find it.
    if let Payload::Snapshot(snapshot) = payload {
        let mut snapshot = snapshot.clone();
        for pattern in &mut snapshot.exclude {
            *pattern = secrets.redact(pattern).into_owned();
        }
        return Some(Payload::Snapshot(snapshot));
    }
    let mut value = serde_json::to_value(payload).ok()?;
    redact_json(&mut value, secrets);
    serde_json::from_value(value).ok()
}

/// Marks the calls whose arguments contain a secret, and redacts those in which JSON escapes hide it from a search of the
/// text.
fn mark_calls_with_secrets(thought: &mut Thought, secrets: &Secrets) {
    if secrets.is_empty() {
        return;
    }
    for (index, call) in thought.tool_calls.iter_mut().enumerate() {
        let arguments = &mut call.function.arguments;
        if secrets.occur_in(arguments.as_str()) {
            thought.redacted_calls.push(index);
        } else if arguments.as_str().contains('\\') {
            let text = arguments.to_value().to_string();
            if secrets.occur_in(&text) {
                *arguments = CallArguments::new(secrets.redact_string(text));
                thought.redacted_calls.push(index);
            }
        }
    }
    // A recorded answer has marks already.
    thought.redacted_calls.sort_unstable();
    thought.redacted_calls.dedup();
}

fn redact_json(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.redact(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_json(item, secrets)),
        Value::Object(fields) => fields.values_mut().for_each(|field| redact_json(field, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Writes the metadata of a run that is not running if it is missing, damaged or older than the journal, because the
/// process died between the two.
pub fn repair_metadata(
    run_dir: &Path,
    state: &RunState,
    ownership: &Ownership,
) -> Result<(), FileError> {
    let Some(metadata) = RunMetadata::from_state(state) else { return Ok(()) };
    if metadata.status == RunStatus::Running || has_metadata(run_dir, &metadata) {
        return Ok(());
    }
    write_metadata(run_dir, &metadata, ownership.file_tag().as_deref())
}

/// What shows that the journal of the run in `run_dir`, which results in `state`, has lost its end.
pub fn find_journal_cut(run_dir: &Path, state: &RunState) -> Option<String> {
    let metadata = RunMetadata::read(run_dir)?.ok()?;
    metadata.find_cut(state)?;
    // A process may have added events since the state was read.
    metadata.find_cut(&journal::fold_run_journal(run_dir).ok()?)
}

/// A run that this process owns.
pub struct Run {
    /// The id of the run.
    pub id: RunId,
    /// The absolute path of the run directory.
    pub dir: PathBuf,
    /// Writes the io/ records of the run.
    pub records: RecordWriter,
    secrets: Secrets,
    state: RunState,
    journal: Journal,
    observer: RunObserver,
    /// The time and the status of the metadata that was written last.
    last_metadata: Option<(Timestamp, RunStatus)>,
    /// The number of the first act in the journal for which no turn was taken yet; no other event follows such acts.
    untaken_from: Option<u64>,
    /// Whether nothing is written any more, because a turn was refused or may have been.
    is_frozen: bool,
    /// Which process owns the run instead, if that is known.
    replaced: Option<ReplacedError>,
    ownership: Ownership,
}

impl Run {
    /// Creates a run in the directory that was created for it. `sealer` is `None` if the operator has no key for seals.
    pub fn create(
        id: RunId,
        dir: &Path,
        ownership: Ownership,
        secrets: Secrets,
        clock: Clock,
        observer: RunObserver,
        sealer: Option<Sealer>,
    ) -> Result<Self, FileError> {
        let journal = Journal::create(dir, &ownership.journal_path(dir), clock, sealer)?;
        Self::new(id, dir, ownership, secrets, observer, journal)
    }

    /// Opens a run to continue it from `fold`, the state after its journal. The second value is the name of the file to
    /// which a torn tail was moved.
    pub fn open(
        id: RunId,
        dir: &Path,
        ownership: Ownership,
        secrets: Secrets,
        clock: Clock,
        observer: RunObserver,
        fold: JournalFold,
    ) -> Result<(Self, Option<String>), FileError> {
        let path = ownership.journal_path(dir);
        let (journal, torn_file) = Journal::open(dir, &path, &fold.end, clock)?;
        let run = Self::new(id, dir, ownership, secrets, observer, journal)?;
        Ok((Self { state: fold.state, ..run }, torn_file))
    }

    fn new(
        id: RunId,
        dir: &Path,
        mut ownership: Ownership,
        secrets: Secrets,
        observer: RunObserver,
        journal: Journal,
    ) -> Result<Self, FileError> {
        ownership.start_beat()?;
        Ok(Self {
            id,
            dir: dir.to_owned(),
            records: RecordWriter::new(dir, secrets.clone(), ownership.file_tag()),
            secrets,
            state: RunState::default(),
            journal,
            observer,
            last_metadata: None,
            untaken_from: None,
            is_frozen: false,
            replaced: None,
            ownership,
        })
    }

    /// The number of processes that have owned the run, including this one.
    pub fn epoch(&self) -> u32 {
        self.ownership.epoch()
    }

    /// What became of the journal, if it is not where this process opened it, and the path that it had there.
    pub fn find_journal_loss(&self) -> Option<(LostFile, &Path)> {
        self.journal.find_loss()
    }

    /// The right to change the run.
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// How this process owns the run.
    pub fn lease(&self) -> LeaseKind {
        self.ownership.lease()
    }

    /// The last recorded event, and the chain value of its line.
    pub fn journal_head(&self) -> Option<JournalHead> {
        self.journal.head()
    }

    /// The operator's key for seals, if there is one.
    pub fn seal_key(&self) -> Option<&SealKey> {
        self.journal.seal_key()
    }

    /// The mailbox of the run, which counts only what is sealed with the run's key.
    pub fn mailbox(&self) -> Mailbox {
        let key = self.seal_key().cloned();
        Mailbox::new(&self.dir, key.map(|key| MessageSeal::new(key, &self.state)))
    }

    /// The state after all recorded events.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Records an event with secrets redacted. It is part of the state at once and durable after the next
    /// [`Run::commit`], which must come before any action that follows from it.
    pub fn record(&mut self, mut payload: Payload) {
        if let Payload::Thought(thought) = &mut payload {
            mark_calls_with_secrets(thought, &self.secrets);
        }
        if let Payload::ActionResult(result) = &mut payload {
            result.repeats = self.state.repeats_with(result);
        }
        let event = self.journal.append_event(payload, |line, payload| {
            if self.secrets.occur_in(line) { redact_payload(payload, &self.secrets) } else { None }
        });
        let is_act = lease_files::is_act_request(&event.payload);
        self.untaken_from = is_act.then(|| self.untaken_from.unwrap_or(event.seq));
        self.state.apply(event);
    }

    /// Records what calls of dead processes have used that no event counts.
    ///
    /// # Errors
    /// The record of a call cannot be written.
    pub fn count_dead_calls(&mut self, calls: &[DeadCall]) -> Result<(), FileError> {
        let state = &self.state;
        let uncounted = calls.iter().filter(|call| !state.counts_call(&call.name, call.started_at));
        for call in uncounted.collect::<Vec<_>>() {
            let Some(record) = call.write_record(&self.dir)? else { continue };
            let usages = call.answer.usages();
            let error_details =
                ErrorDetails::for_interrupted_call(record.name, record.sha256, usages);
            self.record(Payload::Error { error_message: call.answer.describe(), error_details });
        }
        Ok(())
    }

    /// From now on, a change of the journal by another process, a tool for example, is an error of the next commit.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn watch_journal(&mut self) -> Result<(), FileError> {
        self.journal.watch_changes()
    }

    /// Writes the recorded events without waiting for the disk, so that the next commit has less to wait for. Useful
    /// before work that must be done anyway.
    pub fn start_writeback(&mut self) {
        if self.is_frozen {
            return;
        }
        let events = self.journal.start_writeback();
        if !events.is_empty() {
            (self.observer)(RunNotice::EventsWritten(events));
        }
    }

    /// Makes all recorded events durable, updates the metadata and notifies the observer.
    ///
    /// # Errors
    /// The run must stop. None of the events is acknowledged, unless it is the metadata that could not be written.
    pub fn commit(&mut self) -> Result<(), FileError> {
        let events = self.commit_journal()?;
        self.show_durable(&events)
    }

    /// Makes all recorded events durable, and returns the ones that were not before.
    fn commit_journal(&mut self) -> Result<Vec<Event>, FileError> {
        if self.is_frozen {
            return Err(self.frozen_error());
        }
        self.start_writeback();
        let events = self.journal.commit()?;
        if let Some(last) = events.last() {
            // An act without its turn does not count.
            let counted = self.untaken_from.map_or(last.seq, |from| from - 1);
            self.ownership.note_durable_events(counted);
        }
        Ok(events)
    }

    /// Updates the metadata and notifies the observer of events that have become durable.
    fn show_durable(&mut self, events: &[Event]) -> Result<(), FileError> {
        if events.is_empty() {
            return Ok(());
        }
        let refreshed = self.refresh_metadata();
        // The journal has the events, whether the metadata could be written or not.
        for event in events {
            (self.observer)(RunNotice::EventDurable(event, &self.state));
        }
        match refreshed {
            Err(error) if self.state.status != Some(RunStatus::Running) => {
                // The journal already says that the run has ended, and the metadata can be rebuilt from it.
                self.notify(RunNotice::Warning(&error.to_string()));
                Ok(())
            }
            refreshed => refreshed,
        }
    }

    /// Makes all recorded events durable, as [`Run::commit`] does, and takes the turn for what begins next: the start of a
    /// tool, a hook or a generator, a change of the workspace, or the end of this process's work. The requests of such an
    /// act must be the last events that were recorded.
    ///
    /// # Errors
    /// The act must not begin, and the run must stop. If another process owns the run, nothing is written any more.
    pub fn commit_act(&mut self) -> Result<(), ActError> {
        if let Some(replaced) = &self.replaced {
            return Err(replaced.clone().into());
        }
        if self.is_frozen {
            return Err(self.frozen_error().into());
        }
        let Some((turn, nonce)) = self.ownership.next_turn() else { return Ok(self.commit()?) };
        let from = self.untaken_from.unwrap_or(self.state.seq + 1);
        self.record(Payload::Turn { turn, from, nonce });
        let events = self.commit_journal()?;
        if let Err(refused) = self.ownership.take_next_turn() {
            self.is_frozen = true;
            if let ActError::Replaced(replaced) = &refused {
                self.replaced = Some(replaced.clone());
            }
            return Err(refused);
        }
        Ok(self.show_durable(&events)?)
    }

    /// The error of a run whose turn was refused, or may have been.
    fn frozen_error(&self) -> FileError {
        let path = self.ownership.journal_path(&self.dir);
        let source = io::Error::other("this process may not own the run any more");
        FileError { action: "write", path, source }
    }

    /// Requests the stop of `cancel`, and kills its commands, when this process has had no heartbeat for so long that others may
    /// replace it.
    pub fn fence_with(&self, cancel: &CancelToken) {
        if let Some(fence) = self.ownership.fence() {
            fence.set(cancel.clone());
        }
    }

    /// Makes journal.jsonl a name of the journal of this process, if another one has replaced it.
    pub fn publish_journal(&self) {
        self.ownership.publish_journal();
    }

    fn refresh_metadata(&mut self) -> Result<(), FileError> {
        let status = self.state.status;
        let is_due = self.last_metadata.is_none_or(|(written_at, written_status)| {
            let elapsed = self
                .state
                .updated_at
                .map_or(0, |updated_at| updated_at.as_millis() - written_at.as_millis());
            // Nothing writes the metadata of a run that has ended later.
            status != Some(RunStatus::Running)
                || status != Some(written_status)
                || elapsed >= METADATA_INTERVAL_MS
        });
        if !is_due {
            return Ok(());
        }
        let Some(metadata) = RunMetadata::from_state(&self.state) else { return Ok(()) };
        self.last_metadata = Some((metadata.updated_at, metadata.status));
        write_metadata(&self.dir, &metadata, self.ownership.file_tag().as_deref())
    }

    /// Takes a snapshot of the workspace, and records it if the workspace differs from the last snapshot. Returns its id.
    pub fn take_snapshot(
        &mut self,
        store: &mut SnapshotStore,
        workspace: &Path,
        cancel: Option<&CancelToken>,
    ) -> Result<SnapshotId, SnapshotError> {
        let snapshot = store.take(workspace, &self.secrets, cancel)?;
        for omitted in &snapshot.newly_omitted {
            let path = String::from_utf8_lossy(&omitted.path);
            let warning = format!("the snapshots leave out {path}: {}", omitted.reason);
            let warning = self.secrets.redact(&warning).into_owned();
            self.notify(RunNotice::Warning(&warning));
        }
        let tree = snapshot.tree;
        let exclude = store.exclude_patterns().to_strings();
        let timeline = &self.state.timeline;
        let is_known =
            timeline.last().is_some_and(|last| last.tree == tree && last.exclude == exclude);
        if !is_known {
            let iteration = self.state.iterations;
            let is_end = self.state.is_between_iterations() && !timeline.is_closed(iteration);
            self.record(Payload::Snapshot(Box::new(WorkspaceSnapshot {
                iteration,
                tree,
                files: snapshot.files,
                bytes: snapshot.bytes,
                written: snapshot.written_bytes,
                left_out: snapshot.omitted.len() as u64,
                found: !is_end,
                exclude,
            })));
        }
        Ok(tree)
    }

    /// Passes a notice to the observer. A warning may quote what an endpoint or a program said.
    pub fn notify(&mut self, notice: RunNotice<'_>) {
        match notice {
            RunNotice::Warning(text) => {
                (self.observer)(RunNotice::Warning(&self.secrets.redact(text)));
            }
            notice => (self.observer)(notice),
        }
    }

    /// The observer, for parts of the engine that notify it themselves.
    pub fn observer(&mut self) -> &mut RunObserver {
        &mut self.observer
    }

    /// The values that are redacted wherever delta writes.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}
