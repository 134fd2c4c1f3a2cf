//! One run as the page has it.

use super::Wanted;
use super::files::{self, Cut, Room};
use super::iteration::{Iteration, Source};
use super::requests::Requests;
use super::workspace::Snapshots;
use crate::comparison;
use crate::event::{Event, Parent, Payload, RunStatus};
use crate::family::Child;
use crate::history::History;
use crate::journal;
use crate::outcome::RunResult;
use crate::ownership::{self, Owner};
use crate::state::RunState;
use crate::time::Timestamp;
use crate::tokens::Ratio;
use serde::Serialize;
use serde_json::Value as Json;
use std::path::Path;
use std::rc::Rc;

/// The files of agent/ that a person may want to see.
const AGENT: [&str; 5] =
    ["agent.yaml", "system_prompt.md", "system_prompt.txt", "context.yaml", "hooks.yaml"];

/// One run.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    /// Its id.
    pub id: String,
    /// Its run directory.
    dir: String,
    /// `COMPLETED` and so on; `KILLED` when its process died, `UNREADABLE` when nothing can be read.
    status: String,
    /// What is wrong with its files, or to be known of it, in words.
    notes: Vec<String>,
    /// How it stands, as `--format json` prints it.
    result: Option<RunResult>,
    /// What the process that took it up last says of itself.
    start: Option<Json>,
    /// Inside which run it was begun.
    parent: Option<Parent>,
    created_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    /// How long processes have worked on it.
    active_ms: u64,
    task: String,
    /// The files of agent/, by their names.
    agent: Vec<(String, Cut)>,
    iterations: Vec<Iteration>,
    /// What came after the last iteration.
    rest: Vec<Json>,
    /// What its requests are made of.
    texts: Vec<Rc<str>>,
    /// Whether answers of people are left out of it.
    hides: bool,
    /// The runs that were begun inside it.
    pub children: Vec<ChildRun>,
    /// The answers that nobody is to see.
    #[serde(skip)]
    pub sensitive: Vec<String>,
}

/// A run that was begun inside another.
#[derive(Debug, Serialize)]
pub struct ChildRun {
    /// What its parent knows of it.
    #[serde(flatten)]
    pub known: Child,
    /// Its place among the runs of the page; null when it is not there.
    pub run: Option<usize>,
}

impl Run {
    /// The run in `dir`, which is called `id`, as far as it can be read.
    pub fn read(id: &str, dir: &Path, wanted: &Wanted, room: &mut Room) -> Self {
        let shown = dir.to_string_lossy().into_owned();
        match journal::salvage(dir) {
            Ok((events, fault)) => {
                let mut run = Self { id: id.to_owned(), dir: shown, ..Self::default() };
                run.notes
                    .extend(fault.map(|fault| {
                        format!("{fault}; what stands behind that line is not shown")
                    }));
                run.fill(dir, &events, wanted, room);
                run
            }
            Err(error) => Self {
                id: id.to_owned(),
                dir: shown,
                status: "UNREADABLE".to_owned(),
                notes: vec![error.to_string()],
                ..Self::default()
            },
        }
    }

    fn fill(&mut self, dir: &Path, events: &[Event], wanted: &Wanted, room: &mut Room) {
        let state = RunState::of(events);
        let history = History::of(events);
        self.status = self.standing(&state);
        self.start = state.start.as_ref().and_then(|start| serde_json::to_value(start).ok());
        (self.created_at, self.updated_at) = (state.created_at, state.updated_at);
        self.task = state.conversation.task().to_owned();
        self.result = RunResult::of(&state);
        self.active_ms = comparison::worked(events);
        self.parent = events.iter().find_map(|event| match &event.payload {
            // A journal may begin with a copy of another's.
            Payload::EngineStart(start) if start.run_id == self.id => start.parent.clone(),
            _ => None,
        });
        self.agent = AGENT
            .iter()
            .filter(|name| dir.join("agent").join(name).is_file())
            .map(|name| ((*name).to_owned(), files::beside(dir, &format!("agent/{name}"), room)))
            .collect();
        let hidden = history.iterations.iter().flat_map(|told| &told.calls);
        let hidden = hidden.filter(|call| call.question.is_some_and(|asked| asked.what.sensitive));
        let hidden = hidden.map(|call| call.id.clone()).collect();
        let requests = wanted.requests.then(|| Requests::hiding(hidden));
        let snapshots = Snapshots::of(dir);
        let (dir, ratio) = (dir.to_owned(), Ratio::default());
        let mut source = Source { dir, requests, snapshots, room, ratio };
        self.iterations = history.iterations.iter().map(|told| source.iteration(told)).collect();
        self.rest = source.events(&history.rest);
        self.texts = source.requests.map(|requests| requests.texts).unwrap_or_default();
        self.hides = !state.sensitive.is_empty();
        self.sensitive = state.sensitive;
    }

    /// The status, with what the journal of a run cannot say itself.
    fn standing(&mut self, state: &RunState) -> String {
        let status = state.status.map(|status| status.to_string()).unwrap_or_default();
        if state.status != Some(RunStatus::Running) || !self.notes.is_empty() {
            return status;
        }
        let process = state.start.as_ref().map(|start| &start.process);
        match process.map_or(Owner::Gone, ownership::inspect) {
            Owner::Alive => status,
            Owner::Elsewhere => {
                let host = process.map_or("", |process| process.hostname.as_str());
                self.notes.push(format!("its process was on host {host}, and works on it or died"));
                status
            }
            Owner::Gone => {
                self.notes.push(
                    "its process was killed; what it was doing then has no end here".to_owned(),
                );
                "KILLED".to_owned()
            }
        }
    }
}
