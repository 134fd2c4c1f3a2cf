//! Records the cassette of a test, and compares the requests of a run with those in a cassette.
//!
//! The hash of a request does not depend on the machine: in the hashed text, `${CWD}` replaces the path of the workspace
//! and `${AGENT_HOME}` the path of the agent directory.

use delta_base::durable;
use delta_base::hex::sha256_hex;
use delta_llm::llm::cassette::{Cassette, CassetteAnswer, CassetteHeader};
use delta_run::event::{Event, Payload};
use delta_run::record::{self, RecordedRequests};
use serde_json::Value as Json;
use std::path::Path;

/// Paths that differ between machines, and what replaces them, in the order of the replacements.
pub type PathPlaceholders<'a> = [(&'a Path, &'static str)];

/// Writes the answers of the run in `run_dir`, whose journal has `events`, to the cassette `path`. Returns how many there
/// are.
///
/// # Errors
/// The message about a missing answer or a failed write; an existing cassette is unchanged.
pub fn record_cassette(
    path: &Path,
    header: &CassetteHeader,
    run_dir: &Path,
    events: &[Event],
    placeholders: &PathPlaceholders<'_>,
) -> Result<usize, String> {
    let not_recorded = |reason: String| format!("was not recorded: {reason}");
    let mut answers: Vec<CassetteAnswer> = Vec::new();
    let mut requests = RecordedRequests::new(run_dir);
    for (name, redacted_calls) in recorded_invocations(events) {
        let recording = record::read_recording(run_dir, name)
            .map_err(|error| not_recorded(error.to_string()))?;
        let reply = recording
            .result
            .map_err(|reason| not_recorded(format!("the LLM gave no answer: {reason}")))?;
        let request_sha256 = request_hash(&mut requests, name, placeholders);
        answers.push(CassetteAnswer {
            iteration: u32::try_from(answers.len() + 1).unwrap_or(u32::MAX),
            request_sha256: request_sha256.unwrap_or(recording.request_sha256),
            response: reply.response.to_value(),
            redacted_calls: redacted_calls.to_vec(),
        });
    }
    if answers.is_empty() {
        return Err(not_recorded("the run did not call the LLM".to_owned()));
    }
    let cassette = Cassette { header: header.clone(), answers };
    write_cassette(path, &cassette.to_text()).map_err(|error| error.to_string())?;
    Ok(cassette.answers.len())
}

fn write_cassette(path: &Path, text: &str) -> Result<(), durable::FileError> {
    if path.exists() {
        return durable::replace_shared_synced(path, text.as_bytes());
    }
    if let Some(parent) = path.parent() {
        durable::ensure_shared_dir(parent)?;
    }
    durable::create_shared_synced(path, text.as_bytes())
}

/// How a run differs from the recorded one.
#[derive(Debug)]
pub struct CassetteComparison {
    /// The numbers of the requests that differ from the recorded ones, from 1.
    changed_requests: Vec<usize>,
    /// How many answers the run asked for.
    asked_count: usize,
    /// How many answers the cassette has.
    recorded_count: usize,
}

/// Compares the requests of a run with those in `cassette`.
pub fn compare_with_cassette(
    cassette: &Cassette,
    run_dir: &Path,
    events: &[Event],
    placeholders: &PathPlaceholders<'_>,
) -> CassetteComparison {
    let mut requests = RecordedRequests::new(run_dir);
    let pairs = invocations(events).zip(&cassette.answers).enumerate();
    let changed_requests = pairs.filter_map(|(index, (name, answer))| {
        let hash = request_hash(&mut requests, name, placeholders);
        (hash.as_ref() != Some(&answer.request_sha256)).then_some(index + 1)
    });
    CassetteComparison {
        changed_requests: changed_requests.collect(),
        asked_count: invocations(events).count(),
        recorded_count: cassette.answers.len(),
    }
}

impl CassetteComparison {
    /// The predicates of sentences about the cassette that say how it differs from the run.
    pub fn differences(&self) -> Vec<String> {
        // If the first request is unchanged, so is everything that comes from the agent's files and the test.
        let cause = match self.changed_requests.first() {
            Some(1) => "the prompt, the task, the tools or the model changed",
            _ => "the output of a tool or a generator changed",
        };
        let mut differences = Vec::new();
        match self.changed_requests[..] {
            [] => {}
            [only] => differences.push(format!("differs in request {only}: {cause}")),
            [first, ..] => {
                let count = self.changed_requests.len();
                differences.push(format!(
                    "differs in {count} requests, first in request {first}: {cause}"
                ));
            }
        }
        if self.asked_count < self.recorded_count {
            differences.push(format!(
                "has {} answers, but the run used only {}",
                self.recorded_count, self.asked_count
            ));
        }
        differences
    }

    /// The predicate of a sentence about the cassette if the run asked for more answers than it has.
    pub fn missing_answer(&self) -> Option<String> {
        let answers = if self.recorded_count == 1 { "answer" } else { "answers" };
        (self.asked_count > self.recorded_count).then(|| {
            format!("has only {} {answers}, but the run asked for more", self.recorded_count)
        })
    }
}

/// The names of the records of the LLM calls that are in the journal, in their order, with the indices of the tool calls
/// that were not run because of a key.
fn recorded_invocations(events: &[Event]) -> impl Iterator<Item = (&str, &[usize])> {
    events.iter().filter_map(|event| match &event.payload {
        Payload::Thought(thought) => {
            Some((thought.invocation.as_deref()?, thought.redacted_calls.as_slice()))
        }
        Payload::Error { error_details, .. } if error_details.is_failure() => {
            Some((error_details.invocation.as_deref()?, [].as_slice()))
        }
        _ => None,
    })
}

fn invocations(events: &[Event]) -> impl Iterator<Item = &str> {
    recorded_invocations(events).map(|(name, _)| name)
}

/// The hash of a request without the paths of this machine.
fn request_hash(
    requests: &mut RecordedRequests,
    name: &str,
    placeholders: &PathPlaceholders<'_>,
) -> Option<String> {
    let mut request = requests.get(name).ok()?.text().as_str().to_owned();
    for (path, placeholder) in placeholders {
        // The request is JSON, so the path is escaped in it.
        let escaped = Json::from(path.to_string_lossy()).to_string();
        request = request.replace(escaped.trim_matches('"'), placeholder);
    }
    Some(sha256_hex(&request))
}
