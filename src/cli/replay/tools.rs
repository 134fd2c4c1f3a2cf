//! `--mode tools`: an ordinary run of the agent, in a workspace of its own, whose LLM and person are recordings.

use super::world::{End, World};
use super::{Found, Original, ReplayArgs, count};
use crate::agent::Agent;
use crate::cli::drive::{self, Options, Ready};
use crate::cli::failure::Failure;
use crate::cli::{run, stdout};
use crate::composition::Composition;
use crate::event::{Event, Payload, Question, RunStatus};
use crate::human::Person;
use crate::id::RunId;
use crate::journal;
use crate::limits::Amount;
use crate::llm::Provider;
use crate::llm::cassette::was_streamed;
use crate::llm::recorded::{self, Recorded, Recording};
use crate::record;
use crate::replay::{self, Difference};
use crate::run::Run;
use crate::state::RunState;
use crate::time;
use crate::tokens::Ratio;
use crate::workspace::Workspace;
use serde_json::json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::rc::Rc;

/// A message of the recording, and how many answers of the LLM follow it until the next.
struct Part {
    message: String,
    answers: u32,
}

/// The person of a recording.
struct Recalled(HashMap<String, String>);

impl Person for Recalled {
    fn ask(&mut self, question: &Question) -> io::Result<String> {
        let answer = self.0.get(&question.call_id).cloned();
        answer.ok_or_else(|| io::Error::other("the recording has no answer to this question"))
    }
}

/// Runs the tools of `original` again.
pub(super) fn replay(args: &ReplayArgs, original: &Original) -> Result<Found, Failure> {
    let recordings = record::recordings(&original.dir, &original.events)
        .map_err(|error| Failure::damaged(error.to_string(), None))?;
    let parts = parts(&original.events);
    let mut options = Options::plain(None, None);
    options.silent = !args.verbose;
    let agent = as_recorded(drive::load(&original.agent_home(args)?, &options)?, original);
    let cancel = drive::cancel()?;
    let ready = Ready::without_llm(agent, args.into.as_deref(), &options)?;
    let workspace = match &args.into {
        Some(dir) => Workspace::open(dir)?,
        None => Workspace::next_of(&ready.agent.home)?,
    };
    let (id, dir, ownership) = run::create_run(None, &workspace)?;
    let world = World::begin(original, &dir, &workspace, &ready.secrets)?;
    stdout::complain(&world.begins);
    let kept = ready.keep(&dir, ownership.epoch(), None)?;
    let observer = drive::observer(&options, &dir, &RunState::default())?;
    let mut again =
        Run::create(id.clone(), &dir, ownership, ready.secrets.clone(), time::now, observer)?;
    let asked = Rc::new(RefCell::new(Vec::new()));
    for (index, part) in parts.iter().enumerate() {
        let epoch = u32::try_from(index + 1).unwrap_or(u32::MAX);
        options.max_iterations = Some(part.answers.max(1));
        let mut start = ready.start(&again, &workspace, &options, kept.clone());
        start.epoch = epoch;
        start.config["replay"] =
            json!({"run_id": original.id.as_str(), "work_dir": original.start.work_dir});
        again.record(Payload::EngineStart(Box::new(start)));
        again.record(Payload::UserMessage { content: part.message.clone() });
        again.commit()?;
        let budget = ready.budget((&id, &dir), &options, Amount::default(), &cancel)?;
        let others = (provider(recordings.clone(), &asked), person(&original.events));
        ready.drive_with(&mut again, &workspace, others, (budget, cancel.clone()))?;
        if cancel.requested() {
            return Err(Failure::interrupted("interrupted").of_run(&id));
        }
    }
    drop(again);
    let end = world.end(&workspace, &ready.secrets)?;
    account(original, (&id, &dir), &asked.borrow(), end)
}

/// The agent with the model that the run asked, so that its requests can be the same.
fn as_recorded(mut agent: Agent, original: &Original) -> Agent {
    let llm = &original.start.config["llm"];
    if let Some(model) = llm["model"].as_str() {
        model.clone_into(&mut agent.llm.model);
    }
    agent.llm.stream &= was_streamed(llm);
    agent
}

/// The LLM of the recording; the places of the requests that differ go to `asked`.
fn provider(recordings: Vec<Recording>, asked: &Rc<RefCell<Vec<usize>>>) -> Box<dyn Provider> {
    let asked = Rc::clone(asked);
    let judge = move |question: &recorded::Question<'_>| {
        if !question.is_same() {
            asked.borrow_mut().push(question.index);
        }
        Ok(())
    };
    Box::new(Recorded::new(recordings, Box::new(judge)))
}

fn person(events: &[Event]) -> Box<dyn Person> {
    let answers = events.iter().filter_map(|event| match &event.payload {
        Payload::HumanInputReceived { call_id, response, .. } => {
            Some((call_id.clone(), response.clone()))
        }
        _ => None,
    });
    Box::new(Recalled(answers.collect()))
}

/// The messages of a run, each with the answers to it.
fn parts(events: &[Event]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for event in events {
        match &event.payload {
            Payload::UserMessage { content } => {
                parts.push(Part { message: content.clone(), answers: 0 });
            }
            Payload::Thought(_) => {
                parts.iter_mut().last().into_iter().for_each(|it| it.answers += 1)
            }
            Payload::Error { error_details, .. } if error_details.invocation.is_some() => {
                parts.iter_mut().last().into_iter().for_each(|it| it.answers += 1);
            }
            _ => {}
        }
    }
    parts
}

/// What came out otherwise.
fn account(
    original: &Original,
    (id, dir): (&RunId, &Path),
    asked: &[usize],
    end: End,
) -> Result<Found, Failure> {
    let events = journal::read(dir).map_err(|error| Failure::damaged(error.to_string(), None))?;
    let (before, after) = (replay::turns(&original.events), replay::turns(&events.events));
    let mut differences = replay::compare(&before, &after);
    let (was, is) = (RunState::of(&original.events), RunState::of(&events.events));
    differences.extend(outcome(&was, &is));
    differences.extend(end.differences);
    let calls = after.iter().map(|turn| turn.calls.len()).sum::<usize>();
    let done = format!("{}, {}", count(after.len(), "answer"), count(calls, "call"));
    let mut notes = vec![format!("the tools ran in {}, as run {id}", is_in(&is))];
    let requests: Vec<(usize, Difference)> = asked
        .iter()
        .filter_map(|index| Some((index + 1, request(original, (dir, &events.events), *index)?)))
        .collect();
    let numbers: Vec<usize> = requests.iter().map(|(number, _)| *number).collect();
    // What comes behind another observation is another request for that reason.
    let first = differences.first().and_then(|difference| difference.iteration);
    if let Some((_, found)) = requests.into_iter().next()
        && first.is_none_or(|first| found.iteration.is_some_and(|at| at <= first))
    {
        differences.insert(0, found);
    }
    if !numbers.is_empty() {
        let shown: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        notes.push(format!("requests that are not the same: {}", shown.join(", ")));
    }
    let id_of = original.id.clone();
    let heading = match differences.len() {
        0 => format!("the tools of run {id_of} did the same: {done}"),
        many => {
            format!("the tools of run {id_of} did not do the same: {}", count(many, "difference"))
        }
    };
    let more = json!({"replayed_as": {"run_id": id.as_str(), "work_dir": is_in(&is)}, "requests_that_differ": numbers});
    Ok(Found {
        id: id_of,
        heading,
        differences,
        not_checked: end.not_checked.into_iter().collect(),
        notes,
        other: "now",
        more,
    })
}

/// Where a run ended otherwise.
fn outcome(was: &RunState, is: &RunState) -> Vec<Difference> {
    let status = |state: &RunState| state.status.map_or(String::new(), |status| status.to_string());
    let result =
        |state: &RunState| state.result.as_ref().map_or("none".to_owned(), ToString::to_string);
    let mut found = Vec::new();
    found.extend(Difference::of(None, "the result".to_owned(), &result(was), &result(is)));
    // A run that was stopped was not at its end, whatever its recording comes to.
    if !matches!(was.status, Some(RunStatus::Interrupted | RunStatus::Running)) {
        found.extend(Difference::of(None, "the status".to_owned(), &status(was), &status(is)));
    }
    found
}

/// The workspace of a run.
fn is_in(state: &RunState) -> String {
    state.start.as_ref().map_or(String::new(), |start| start.work_dir.clone())
}

/// Where a request parts from the one that was recorded in its place; `None` when only the places differ in which the
/// runs keep what they show in part.
fn request(
    original: &Original,
    (dir, events): (&Path, &[Event]),
    index: usize,
) -> Option<Difference> {
    let read = |dir: &Path, events: &[Event]| {
        let named = events.iter().filter_map(|event| match &event.payload {
            Payload::Thought(it) => it.invocation.clone().map(|name| (it.iteration, name)),
            Payload::Error { error_details, .. } => {
                error_details.invocation.clone().map(|name| (0, name))
            }
            _ => None,
        });
        let (iteration, name) = { named }.nth(index)?;
        let text = replay::without_place(&record::request(dir, &name).ok()?);
        Some((iteration, text, record::blocks(dir, &name).ok().flatten().unwrap_or_default()))
    };
    let (iteration, before, blocks) = read(&original.dir, &original.events)?;
    let (_, after, later) = read(dir, events)?;
    let one = Composition::of(&before, &blocks, Ratio::default()).ok()?;
    let other = Composition::of(&after, &later, Ratio::default()).ok()?;
    let what = "the request";
    let whole = || Difference::of(Some(iteration), what.to_owned(), &before, &after);
    replay::part(iteration, what, &one, &other).or_else(whole)
}
