//! What the LLM answered in a run, from the records of its calls, for whoever lets it answer again.

use super::request::{RequestError, read_record, unreadable};
use crate::event::{Event, Payload};
use crate::llm::recorded::Recording;
use crate::llm::{Usage, reply_of_response};
use serde::Deserialize;
use serde_json::Value as Json;
use std::path::Path;

/// The answers of the run whose journal holds `events`, in their order, as the LLM gave them, before any hook; and the
/// calls that failed and ended a process.
///
/// # Errors
/// A record is missing, or holds no answer.
pub fn recordings(run_dir: &Path, events: &[Event]) -> Result<Vec<Recording>, RequestError> {
    let made = events.iter().filter_map(|event| match &event.payload {
        Payload::Thought(thought) => {
            thought.invocation.as_deref().map(|name| recording(run_dir, name))
        }
        // An answer that was none, such as a refusal, has ended a process as well.
        Payload::Error { error_details, error_message } => {
            let found = recording(run_dir, error_details.invocation.as_deref()?);
            Some(found.map(|found| Recording { answer: Err(error_message.clone()), ..found }))
        }
        _ => None,
    });
    made.collect()
}

/// The call that `name` records, relative to the run directory.
///
/// # Errors
/// As for [`recordings`].
pub fn recording(run_dir: &Path, name: &str) -> Result<Recording, RequestError> {
    #[derive(Deserialize)]
    struct Answered {
        request_sha256: String,
        model: String,
        usage: Option<Usage>,
        error: Option<String>,
        #[serde(default)]
        response: Json,
    }
    let text = read_record(run_dir, name)?;
    let found: Answered = serde_json::from_str(&text).map_err(|error| unreadable(name, error))?;
    let answer = match found.error {
        Some(error) => Err(error),
        None => {
            let mut reply = reply_of_response(&found.response, &found.model)
                .map_err(|why| unreadable(name, why))?;
            // With what it cost then: the prices may have changed.
            reply.usage = found.usage;
            Ok(reply)
        }
    };
    Ok(Recording { request_sha256: found.request_sha256, answer })
}
