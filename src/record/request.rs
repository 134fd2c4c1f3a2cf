//! The exact request of an LLM call, put together again from its record and those before it.

use super::{Block, sha256};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::path::Path;

/// Why the exact request of a call cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// A record is missing, or is not what was written.
    #[error("the record {name} cannot be read: {reason}")]
    Unreadable {
        /// The record.
        name: String,
        /// Why.
        reason: String,
    },
    /// What was put together is not what was sent.
    #[error("the record {0} does not give the request that was sent: its hash differs")]
    Changed(String),
}

/// The exact request of the call that `name` records, relative to the run directory; what the record leaves to those
/// before it is taken from there.
///
/// # Errors
/// A record is missing or was changed: the hash of what was sent tells.
pub fn request(run_dir: &Path, name: &str) -> Result<String, RequestError> {
    let text = read_record(run_dir, name)?;
    let stored = parse_record(&text, name)?;
    let request = rebuild(run_dir, name, stored.request, &mut BTreeSet::new())?;
    match sha256(&request) == stored.request_sha256 {
        true => Ok(request),
        false => Err(RequestError::Changed(name.to_owned())),
    }
}

/// Where the messages come from of the call that `name` records; `None` for a record of an older delta, which does not
/// say.
///
/// # Errors
/// The record is missing or is not what was written.
pub fn blocks(run_dir: &Path, name: &str) -> Result<Option<Vec<Block>>, RequestError> {
    #[derive(Deserialize)]
    struct Sources {
        context: Option<Vec<Block>>,
    }
    let text = read_record(run_dir, name)?;
    let read = serde_json::from_str::<Sources>(&text);
    read.map(|read| read.context).map_err(|error| unreadable(name, error))
}

/// What of a record gives its request.
#[derive(Deserialize)]
struct Stored<'a> {
    request_sha256: String,
    #[serde(borrow)]
    request: &'a RawValue,
}

fn read_record(run_dir: &Path, name: &str) -> Result<String, RequestError> {
    std::fs::read_to_string(run_dir.join(name)).map_err(|error| unreadable(name, error))
}

fn parse_record<'a>(text: &'a str, name: &str) -> Result<Stored<'a>, RequestError> {
    serde_json::from_str(text).map_err(|error| unreadable(name, error))
}

fn unreadable(name: &str, error: impl ToString) -> RequestError {
    RequestError::Unreadable { name: name.to_owned(), reason: error.to_string() }
}

/// Puts a request together whose first messages may be a reference to the record before it. `seen` are the records that
/// lead here.
fn rebuild(
    run_dir: &Path,
    name: &str,
    request: &RawValue,
    seen: &mut BTreeSet<String>,
) -> Result<String, RequestError> {
    #[derive(Deserialize)]
    struct Messages<'a> {
        #[serde(borrow)]
        messages: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Reference {
        same_as: String,
        count: usize,
    }
    fn read<'a>(text: &'a str, name: &str) -> Result<Vec<&'a RawValue>, RequestError> {
        let read = serde_json::from_str::<Messages<'a>>(text);
        read.map(|read| read.messages).map_err(|error| unreadable(name, error))
    }
    let text = request.get();
    let messages = read(text, name)?;
    let reference = |first: &&RawValue| serde_json::from_str::<Reference>(first.get()).ok();
    let (Some(first), Some(found)) = (messages.first(), messages.first().and_then(reference))
    else {
        return Ok(text.to_owned());
    };
    let before = format!("io/invocations/{}", found.same_as);
    seen.insert(name.to_owned());
    // Records refer to earlier ones only; a circle would never end.
    if found.same_as.contains('/') || seen.contains(&before) {
        return Err(unreadable(name, format!("it refers to {}", found.same_as)));
    }
    let record = read_record(run_dir, &before)?;
    let request = rebuild(run_dir, &before, parse_record(&record, &before)?.request, seen)?;
    let kept: Vec<&str> =
        read(&request, &before)?.iter().take(found.count).map(|message| message.get()).collect();
    let start = first.get().as_ptr() as usize - text.as_ptr() as usize;
    let end = start + first.get().len();
    Ok(format!("{}{}{}", &text[..start], kept.join(","), &text[end..]))
}
