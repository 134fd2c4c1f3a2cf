//! The exact request of an LLM call, put together again from its record and those before it.

use super::{Block, Body};
use crate::durable;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// Where the records of calls lie, relative to the run directory.
const DIRECTORY: &str = "io/invocations/";

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

/// The exact requests of a run's calls, put together from their records. To read them in their order costs what is new in
/// each.
#[derive(Debug)]
pub struct Requests {
    run_dir: PathBuf,
    /// The last request that was read, and the file of its record.
    last: Option<(String, Body)>,
}

impl Requests {
    /// Those of the run in `run_dir`.
    pub fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), last: None }
    }

    /// The exact request of the call that `name` records, relative to the run directory; what the record leaves to those
    /// before it is taken from there.
    ///
    /// # Errors
    /// A record is missing or was changed: the hash of what was sent tells.
    pub fn get(&mut self, name: &str) -> Result<&str, RequestError> {
        let mut records = vec![Record::read(&self.run_dir, name)?];
        let mut body = Body::default();
        while let Some((of, reference)) =
            records.last().and_then(|last| Some((&last.name, last.reference.as_ref()?)))
        {
            let before = format!("{DIRECTORY}{}", reference.same_as);
            if let Some((_, last)) = self.last.take_if(|(last, _)| *last == before) {
                body = last;
                break;
            }
            // Records refer to earlier ones only; a circle would never end.
            let is_circle = records.iter().any(|record| record.name == before);
            if is_circle || reference.same_as.contains('/') {
                return Err(unreadable(of, format!("it refers to {}", reference.same_as)));
            }
            records.push(Record::read(&self.run_dir, &before)?);
        }
        records.iter().rev().for_each(|record| record.apply(&mut body));
        if records[0].sha256 != body.sha256() {
            return Err(RequestError::Changed(name.to_owned()));
        }
        let (_, body) = self.last.insert((name.to_owned(), body));
        Ok(body.text())
    }
}

/// The exact request of the call that `name` records: see [`Requests::get`].
///
/// # Errors
/// A record is missing or was changed: the hash of what was sent tells.
pub fn request(run_dir: &Path, name: &str) -> Result<String, RequestError> {
    Requests::new(run_dir).get(name).map(str::to_owned)
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

/// The record of which the call that `name` records has its first messages; `None` for one that has them all, or cannot
/// be read.
pub fn base(run_dir: &Path, name: &str) -> Option<String> {
    let reference = Record::read(run_dir, name).ok()?.reference?;
    Some(format!("{DIRECTORY}{}", reference.same_as))
}

/// A reference to the messages of another request.
#[derive(Debug, Clone, Deserialize)]
struct Reference {
    same_as: String,
    count: usize,
}

/// What a record says of its request.
struct Record {
    name: String,
    sha256: String,
    /// What stands for the first messages, unless the request is recorded whole.
    reference: Option<Reference>,
    head: String,
    /// The messages behind those of the reference.
    messages: Vec<String>,
    tail: String,
}

impl Record {
    fn read(run_dir: &Path, name: &str) -> Result<Self, RequestError> {
        #[derive(Deserialize)]
        struct Stored<'a> {
            request_sha256: String,
            #[serde(borrow)]
            request: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Messages<'a> {
            #[serde(borrow, default)]
            messages: Vec<&'a RawValue>,
        }
        let file = read_record(run_dir, name)?;
        let stored: Stored<'_> =
            serde_json::from_str(&file).map_err(|error| unreadable(name, error))?;
        let text = stored.request.get();
        let Messages { messages } =
            serde_json::from_str(text).map_err(|error| unreadable(name, error))?;
        let place = |message: &RawValue| message.get().as_ptr() as usize - text.as_ptr() as usize;
        let start = messages.first().map_or(text.len(), |first| place(first));
        let end = messages.last().map_or(start, |last| place(last) + last.get().len());
        let reference = messages.first().and_then(|it| serde_json::from_str(it.get()).ok());
        let own = messages.iter().skip(usize::from(reference.is_some()));
        Ok(Self {
            name: name.to_owned(),
            sha256: stored.request_sha256,
            reference,
            head: text[..start].to_owned(),
            messages: own.map(|message| message.get().to_owned()).collect(),
            tail: text[end..].to_owned(),
        })
    }

    /// Makes its request out of the one that it refers to.
    fn apply(&self, body: &mut Body) {
        let kept = self.reference.as_ref().map_or(0, |reference| reference.count);
        body.extend(&self.head, kept, self.messages.iter().map(String::as_str), &self.tail);
    }
}

pub(super) fn read_record(run_dir: &Path, name: &str) -> Result<String, RequestError> {
    let bytes =
        durable::read_whole(&run_dir.join(name)).map_err(|error| unreadable(name, error))?;
    String::from_utf8(bytes).map_err(|error| unreadable(name, error))
}

pub(super) fn unreadable(name: &str, error: impl ToString) -> RequestError {
    RequestError::Unreadable { name: name.to_owned(), reason: error.to_string() }
}
