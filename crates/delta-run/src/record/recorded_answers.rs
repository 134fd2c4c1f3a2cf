//! Reads the answers of the LLM from the records of a run, to replay them.

use super::LlmCallRecord;
use super::recorded_request::{
    RecordError, parse_sent_request, read_record_file, unreadable_record,
};
use crate::event::{Event, Payload};
use delta_words::{RecordedCall, parse_reply};
use std::borrow::Cow;
use std::path::Path;

/// Reads the answers of a run in order, as the LLM sent them, before any hook. A failed call that ended a process is
/// among them; one after which another model was asked is not. `events` is the run's journal.
///
/// # Errors
/// A record is missing, or has no answer.
pub fn read_recordings(run_dir: &Path, events: &[Event]) -> Result<Vec<RecordedCall>, RecordError> {
    let recordings = events.iter().filter_map(|event| match &event.payload {
        Payload::Thought(thought) => {
            let recording = read_recording(run_dir, thought.invocation.as_deref()?);
            Some(recording.map(|mut recording| {
                if let Ok(reply) = &mut recording.result {
                    reply.redacted_calls.clone_from(&thought.redacted_calls);
                }
                recording
            }))
        }
        // The recorded answer can be a refusal, which the engine reported as an error.
        Payload::Error { error_details, error_message } if error_details.is_failure() => {
            let recording = read_recording(run_dir, error_details.invocation.as_deref()?);
            let result = Err(error_message.clone());
            Some(recording.map(|recording| RecordedCall { result, ..recording }))
        }
        _ => None,
    });
    recordings.collect()
}

/// Reads the answer from the record `name`, a path relative to the run directory.
///
/// # Errors
/// As for [`read_recordings`].
pub fn read_recording(run_dir: &Path, name: &str) -> Result<RecordedCall, RecordError> {
    let text = read_record_file(run_dir, name)?;
    let record: LlmCallRecord<'_> =
        serde_json::from_str(&text).map_err(|error| unreadable_record(name, error))?;
    let (request_sha256, _) = parse_sent_request(name, &text)?;
    let result = match record.error {
        Some(error) => Err(error.into_owned()),
        None => {
            let mut reply = parse_reply(&record.response.to_value(), &record.model)
                .map_err(|reason| unreadable_record(name, reason))?;
            // The recorded cost, because prices may have changed.
            reply.usage = record.usage.map(Cow::into_owned);
            Ok(reply)
        }
    };
    Ok(RecordedCall { request_sha256, result })
}
