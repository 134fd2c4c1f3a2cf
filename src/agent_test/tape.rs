//! Making a cassette of a run, and comparing the requests of a run with those of a cassette.
//!
//! A request is compared without the paths of the machine: those of the workspace and of the agent stand as `${CWD}` and
//! `${AGENT_HOME}` in the text that is hashed.

use crate::durable;
use crate::event::{Event, Payload};
use crate::llm::cassette::{Answer, Cassette, Head};
use crate::record;
use crate::text::sha256;
use serde_json::Value as Json;
use std::path::Path;

/// Paths that differ from machine to machine, and what stands in their place, the longest first.
pub type Places<'a> = [(&'a Path, &'static str)];

/// Writes the answers of the run whose journal holds `events` into `path`; gives how many they are.
///
/// # Errors
/// Why there is no cassette of this run, in words; what was there before stays.
pub fn record(
    path: &Path,
    head: &Head,
    run_dir: &Path,
    events: &[Event],
    places: &Places<'_>,
) -> Result<usize, String> {
    let mut answers: Vec<Answer> = Vec::new();
    for name in invocations(events) {
        let none = |why: String| format!("was not recorded: {why}");
        let found = record::recording(run_dir, name).map_err(|error| none(error.to_string()))?;
        let reply = found.answer.map_err(|why| none(format!("the LLM gave no answer: {why}")))?;
        answers.push(Answer {
            iteration: u32::try_from(answers.len() + 1).unwrap_or(u32::MAX),
            request_sha256: request_hash(run_dir, name, places).unwrap_or(found.request_sha256),
            response: reply.response.to_json(),
        });
    }
    if answers.is_empty() {
        return Err("was not recorded: the LLM was not asked".to_owned());
    }
    let cassette = Cassette { head: head.clone(), answers };
    let text = cassette.to_text();
    let written = match path.exists() {
        true => durable::rewrite(path, text.as_bytes()),
        false => path
            .parent()
            .map_or(Ok(()), |dir| durable::ensure_dir(dir, false))
            .and_then(|()| durable::publish(path, text.as_bytes())),
    };
    written.map_err(|error| error.to_string()).map(|()| cassette.answers.len())
}

/// How a run differs from the one that is on a cassette.
#[derive(Debug)]
pub struct Comparison {
    /// The numbers of the answers that were given to another request.
    other_requests: Vec<usize>,
    /// How many answers the run asked for.
    asked: usize,
    /// How many there are.
    there: usize,
}

/// Compares the requests of a run with those of `cassette`.
pub fn compare(
    cassette: &Cassette,
    run_dir: &Path,
    events: &[Event],
    places: &Places<'_>,
) -> Comparison {
    let pairs = invocations(events).zip(&cassette.answers).enumerate();
    let is_other = |(name, answer): (&str, &Answer)| {
        request_hash(run_dir, name, places).as_deref() != Some(&*answer.request_sha256)
    };
    let other = pairs.filter(|(_, pair)| is_other(*pair)).map(|(index, _)| index + 1);
    Comparison {
        other_requests: other.collect(),
        asked: invocations(events).count(),
        there: cassette.answers.len(),
    }
}

impl Comparison {
    /// What of the run is not as it was recorded, in words that go on after "the cassette".
    pub fn differences(&self) -> Vec<String> {
        // Where the first request is the same, so is everything that the agent's files say.
        let why = match self.other_requests.first() {
            Some(1) => "the prompt, the task, the tools or the model is another",
            _ => "what a tool printed or a generator made is another",
        };
        let requests = match self.other_requests[..] {
            [] => None,
            [one] => Some(format!("has another request {one}: {why}")),
            [first, ..] => {
                let count = self.other_requests.len();
                Some(format!("has {count} other requests, from request {first} on: {why}"))
            }
        };
        let (asked, there) = (self.asked, self.there);
        let left = (asked < there)
            .then(|| format!("has {there} answers, and the run asked for {asked} of them"));
        requests.into_iter().chain(left).collect()
    }

    /// What is missing, where the run asked for more answers than there are.
    pub fn lack(&self) -> Option<String> {
        (self.asked > self.there).then(|| {
            format!("has no more than {} answers, and the run asked for another", self.there)
        })
    }
}

/// The records of the LLM calls of a run that count, in their order.
fn invocations(events: &[Event]) -> impl Iterator<Item = &str> {
    events.iter().filter_map(|event| match &event.payload {
        Payload::Thought(thought) => thought.invocation.as_deref(),
        Payload::Error { error_details, .. } => error_details.invocation.as_deref(),
        _ => None,
    })
}

/// The hash of a request in which no path of this machine stands.
fn request_hash(run_dir: &Path, name: &str, places: &Places<'_>) -> Option<String> {
    let mut request = record::request(run_dir, name).ok()?;
    for (path, word) in places {
        // As it stands in JSON.
        let text = Json::from(path.to_string_lossy()).to_string();
        request = request.replace(text.trim_matches('"'), word);
    }
    Some(sha256(&request))
}
