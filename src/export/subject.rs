//! What an export is made from: the journal of a run, what is left of its io/ files, and the runs that it was started by.
//!
//! Reads, and never writes. An io/ file that is missing or is not what was written leaves a gap, never an error.
//! Sensitive answers are taken out here, before any format sees them.

use super::hide::Hidden;
use crate::durable;
use crate::event::{EngineStart, Event, Payload, Thought};
use crate::id::RunId;
use crate::record;
use crate::snapshot::{self, Change, Exclude, Id, Store};
use crate::state::RunState;
use crate::time::Timestamp;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The longest first line of a journal that is read to find out which run started another.
const LONGEST_START: u64 = 16 * 1024 * 1024;

/// A run that is to be exported.
#[derive(Debug)]
pub struct Subject {
    /// Its directory.
    pub dir: PathBuf,
    /// Its events, without sensitive answers.
    pub events: Vec<Event>,
    /// What they mean.
    pub state: RunState,
    /// Its io/ files, by their names in the journal, without messages and output: those of a long run are large.
    records: BTreeMap<String, Json>,
    /// The run inside which it was started, and those around that one, the nearest first.
    pub ancestors: Vec<Ancestor>,
    hidden: Hidden,
}

/// A run inside which another one was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// What tells it from every other run.
    pub origin: Origin,
    /// The call whose tool started the run below it; none when a hook or a generator did.
    pub call_id: Option<String>,
}

/// What tells a run from every other: an id can be given twice, in two workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its id.
    pub run_id: String,
    /// The time of its first event, when its journal can be read.
    pub began: Option<Timestamp>,
}

/// The `parent` of an ENGINE_START.
#[derive(Debug, Deserialize)]
struct Parent {
    run_id: String,
    call_id: Option<String>,
    run_dir: PathBuf,
}

impl Subject {
    /// What is known of the run in `dir`, whose journal holds `events`.
    pub fn read(dir: &Path, events: Vec<Event>) -> Self {
        let hidden = Hidden::of(&events);
        let events: Vec<Event> = events.into_iter().map(|event| hidden.event(event)).collect();
        let state = RunState::of(&events);
        let names = events.iter().filter_map(|event| event.payload.record());
        let records = names.filter_map(|name| {
            let mut record = read_record(dir, name)?;
            hidden.record(&mut record);
            Some((name.to_owned(), record))
        });
        let records = records.collect();
        // A fork begins with the lines of a run that may have been begun inside another one, and was not itself.
        let ancestors = if state.origin.is_none() { ancestors(dir) } else { Vec::new() };
        Self { dir: dir.to_owned(), records, events, state, ancestors, hidden }
    }

    /// What changed in the workspace between two snapshots; `None` when they are not there, or not whole.
    pub fn changes(&self, before: Id, after: Id) -> Option<Vec<Change>> {
        if !self.dir.join(snapshot::DIRECTORY).is_dir() {
            return None;
        }
        let store = Store::open(&self.dir, Exclude::default()).ok()?;
        Some(store.compare(before, after).ok()?.changes)
    }

    /// The process that took it up last.
    pub fn start(&self) -> Option<&EngineStart> {
        self.state.start.as_ref()
    }

    /// What tells it from every other run.
    pub fn origin(&self) -> Origin {
        let run_id = self.start().map_or_else(String::new, |start| start.run_id.clone());
        Origin { run_id, began: self.state.created_at }
    }

    /// An io/ file that an event names.
    pub fn record(&self, name: Option<&str>) -> Option<&Json> {
        self.records.get(name?)
    }

    /// The record of the call that gave an answer.
    pub fn invocation(&self, thought: &Thought) -> Option<&Json> {
        self.record(thought.invocation.as_deref())
    }

    /// The reasoning beside an answer: what is sent back of it, or what its record holds.
    pub fn reasoning(&self, thought: &Thought) -> Option<String> {
        if thought.reasoning.is_some() {
            return thought.reasoning.clone();
        }
        self.invocation(thought)?.get("reasoning")?.as_str().map(str::to_owned)
    }

    /// The request of the call that `name` records, without sensitive answers.
    pub fn request(&self, name: Option<&str>) -> Option<Json> {
        let text = record::request(&self.dir, name?).ok()?;
        let request = serde_json::from_str(&text).ok()?;
        Some(self.hidden.request(request))
    }

    /// The last call of the LLM: the name of its record.
    pub fn last_invocation(&self) -> Option<&str> {
        self.events.iter().rev().find_map(|event| match &event.payload {
            Payload::Thought(_) | Payload::Error { .. } => event.payload.record(),
            _ => None,
        })
    }

    /// What stands in the last request and is not of the conversation: the messages of the other sources, and the tools.
    pub fn surroundings(&self) -> Surroundings {
        let name = self.last_invocation();
        let Some(mut request) = self.request(name) else {
            return Surroundings { known: name.is_none(), ..Surroundings::default() };
        };
        let tools = request.get_mut("tools").map_or(Json::Null, Json::take);
        let tools = match tools {
            Json::Array(tools) => tools,
            _ => Vec::new(),
        };
        let messages = match request.get_mut("messages").map(Json::take) {
            Some(Json::Array(messages)) => messages,
            _ => Vec::new(),
        };
        let sources = name.and_then(|name| record::blocks(&self.dir, name).ok()).flatten();
        let counted = sources.as_ref().map(|all| all.iter().map(|block| block.messages).sum());
        let system = match sources {
            Some(sources) if counted == Some(messages.len()) => {
                let mut rest = messages.into_iter();
                let mut kept = Vec::new();
                for source in sources {
                    let messages = rest.by_ref().take(source.messages).collect::<Vec<_>>();
                    if source.kind != "journal" {
                        kept.extend(messages);
                    }
                }
                kept
            }
            _ => messages.into_iter().filter(|message| message["role"] == "system").collect(),
        };
        Surroundings { known: true, system, tools }
    }
}

/// What the LLM saw beside the conversation.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Whether the request could be read, if there was one.
    pub known: bool,
    /// Messages in the form of Chat Completions, usually of the role `system`.
    pub system: Vec<Json>,
    /// Tools in the same form.
    pub tools: Vec<Json>,
}

fn read_record(dir: &Path, name: &str) -> Option<Json> {
    let bytes = durable::read_whole(&dir.join(name)).ok()?;
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

/// The runs around the one in `dir`, as far as their journals can be read.
fn ancestors(dir: &Path) -> Vec<Ancestor> {
    let mut seen = BTreeSet::from([dir.to_owned()]);
    let mut found = Vec::new();
    let mut dir = dir.to_owned();
    while let Some(parent) = first_event(&dir).and_then(|event| parent_of(&event)) {
        // Runs that were moved together still lie beside each other.
        let beside = RunId::parse(&parent.run_id).ok().map(|_| dir.with_file_name(&parent.run_id));
        // A journal that names itself, by whatever way, would never end.
        let places = [Some(parent.run_dir), beside].into_iter().flatten();
        let mut places = places.filter(|place| !seen.contains(place));
        let place = places.find_map(|place| Some((began(&place, &parent.run_id)?, place)));
        let began = place.as_ref().map(|(began, _)| *began);
        found.push(Ancestor {
            origin: Origin { run_id: parent.run_id, began },
            call_id: parent.call_id,
        });
        let Some((_, place)) = place else { break };
        seen.insert(place.clone());
        dir = place;
    }
    found
}

/// When the run `run_id` began, if it is the one in `dir`.
fn began(dir: &Path, run_id: &str) -> Option<Timestamp> {
    let start = first_event(dir)?;
    let is_it = start.get("run_id")?.as_str()? == run_id;
    Timestamp::deserialize(start.get("timestamp")?).ok().filter(|_| is_it)
}

fn parent_of(start: &Json) -> Option<Parent> {
    Parent::deserialize(start.get("parent")?).ok()
}

fn first_event(dir: &Path) -> Option<Json> {
    let file = durable::open_regular(&dir.join("journal.jsonl")).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(LONGEST_START)).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}
