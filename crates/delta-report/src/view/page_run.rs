//! One run on the page.

use super::PageOptions;
use super::page_iteration::{PageIteration, PageSource};
use super::page_markdown::RunMarkdown;
use super::page_requests::PageRequests;
use super::run_files::{self, PageCapacity, PageText};
use super::workspace_changes::PageSnapshots;
use crate::sweep_facts::SweepRunFacts;
use delta_base::durable;
use delta_base::id::RunId;
use delta_base::time::Timestamp;
use delta_run::conversation::history::RunHistory;
use delta_run::event::{Event, ParentRun, Payload, RunStatus};
use delta_run::journal;
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::ownership::owner_process::{self, OwnerStatus};
use delta_run::record::RecordedRequests;
use delta_run::run_result::RunResult;
use delta_run::run_tree::ChildRunEntry;
use delta_run::state::RunState;
use serde::Serialize;
use serde_json::Value as Json;
use std::path::Path;
use std::rc::Rc;

/// The files of agent/ that the page shows.
const AGENT_FILES: [&str; 5] =
    ["agent.yaml", "system_prompt.md", "system_prompt.txt", "context.yaml", "hooks.yaml"];

#[derive(Debug, Default, Serialize)]
pub struct PageRun {
    pub id: String,
    dir: String,
    /// The status in the journal; `KILLED` when the run's process died, `UNREADABLE` when the journal cannot be read.
    status: String,
    /// Problems with the run's files, and facts that the journal does not hold.
    notes: Vec<String>,
    /// What its sweep knows of it.
    sweep: Option<SweepRunFacts>,
    /// The result as `--format json` prints it.
    pub result: Option<RunResult>,
    /// The last ENGINE_START.
    start: Option<Json>,
    parent: Option<ParentRun>,
    created_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    /// How long processes worked on the run.
    active_ms: u64,
    pub task: String,
    pub markdown: RunMarkdown,
    /// The files of agent/ with their names.
    agent: Vec<(String, PageText)>,
    pub iterations: Vec<PageIteration>,
    /// The events after the last iteration.
    pub rest: Vec<Json>,
    /// The texts that the requests refer to by index.
    texts: Vec<Rc<str>>,
    /// Whether sensitive answers are hidden.
    hides: bool,
    pub children: Vec<PageChildRun>,
    #[serde(skip)]
    pub sensitive_answers: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct PageChildRun {
    /// What the parent run recorded of the child.
    #[serde(flatten)]
    pub entry: ChildRunEntry,
    /// The index of the run on the page; null when the run was not found.
    pub run: Option<usize>,
}

impl PageRun {
    /// Reads the run `id` in `dir`, as much of it as is readable.
    pub fn read(id: &str, dir: &Path, options: &PageOptions, capacity: &mut PageCapacity) -> Self {
        let mut run =
            Self { id: id.to_owned(), dir: dir.to_string_lossy().into_owned(), ..Self::default() };
        match journal::salvage_journal(dir) {
            Ok((events, fault)) => {
                let note = fault.map(|fault| format!("{fault}; later lines are not shown"));
                run.notes.extend(note);
                run.fill(dir, &events, options, capacity);
            }
            Err(error) => {
                run.status = "UNREADABLE".to_owned();
                run.notes.push(error.to_string());
            }
        }
        run
    }

    fn fill(
        &mut self,
        dir: &Path,
        events: &[Event],
        options: &PageOptions,
        capacity: &mut PageCapacity,
    ) {
        let state = RunState::from_events(events);
        let history = RunHistory::from_events(events);
        self.status = self.status_with_owner(&state);
        let epoch = state.start.as_ref().map_or(0, |start| start.epoch);
        let facts = RunId::parse(&self.id).ok().and_then(|id| options.sweep_facts.get(&id));
        self.sweep = facts.cloned().map(|facts| facts.at_epoch(epoch));
        self.start = state.start.as_ref().and_then(|start| serde_json::to_value(start).ok());
        self.created_at = state.created_at;
        self.updated_at = state.updated_at;
        self.task = state.conversation.task().to_owned();
        self.result = RunResult::from_state(&state);
        self.active_ms = state.active_time.millis();
        self.parent = events.iter().find_map(|event| match &event.payload {
            // The journal of a fork begins with a copy of another run's journal.
            Payload::EngineStart(start) if start.run_id.as_str() == self.id => start.parent.clone(),
            _ => None,
        });
        for name in AGENT_FILES {
            if durable::is_file_no_follow(&dir.join("agent").join(name)) {
                let text = run_files::read_run_file(dir, &format!("agent/{name}"), capacity);
                self.agent.push((name.to_owned(), text));
            }
        }
        let calls = history.iterations.iter().flat_map(|iteration| &iteration.calls);
        let hidden_calls = calls
            .filter(|call| call.question.is_some_and(|question| question.value.sensitive))
            .map(|call| call.id.clone())
            .collect();
        let mut source = PageSource {
            dir: dir.to_owned(),
            requests: options.with_requests.then(|| PageRequests::new(hidden_calls)),
            recorded: RecordedRequests::new(dir),
            snapshots: PageSnapshots::open(dir),
            capacity,
            ratio: TokenRatio::default(),
        };
        let iterations = history.iterations.iter();
        self.iterations = iterations.map(|iteration| source.build_iteration(iteration)).collect();
        self.rest = source.build_events(&history.trailing_events);
        self.texts = source.requests.map(|requests| requests.texts).unwrap_or_default();
        self.hides = !state.sensitive.answers.is_empty();
        self.sensitive_answers = state.sensitive.answers;
    }

    /// The status, corrected for a running run whose process is dead.
    fn status_with_owner(&mut self, state: &RunState) -> String {
        let status = state.status.map(|status| status.to_string()).unwrap_or_default();
        if state.status != Some(RunStatus::Running) || !self.notes.is_empty() {
            return status;
        }
        let process = state.start.as_ref().map(|start| &start.process);
        match process.map_or(OwnerStatus::Dead, owner_process::owner_status) {
            OwnerStatus::Alive => status,
            OwnerStatus::OnOtherHost => {
                let host = process.map_or("", |process| process.hostname.as_str());
                self.notes.push(format!("its process is on host {host} and may be dead"));
                status
            }
            OwnerStatus::Dead => {
                let note = "its process was killed; the last action has no recorded end";
                self.notes.push(note.to_owned());
                "KILLED".to_owned()
            }
        }
    }
}
