//! Rebuilds the exact request of an LLM call from its record and the records before it.

use super::request_body::{RequestBody, split_request};
use super::{ContextBlock, HashedRequest, LlmCallRecord, MessagesReference, read_record_bytes};
use delta_base::time::Timestamp;
use delta_words::{Usage, WireExchange};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The directory of the records of LLM calls, relative to the run directory.
const INVOCATIONS_DIR: &str = "io/invocations/";

/// Why something cannot be read from a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A record is missing, or was not written by delta.
    #[error("could not read the record {name}: {reason}")]
    Unreadable {
        /// The path of the record, relative to the run directory.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The rebuilt request is not the one that was sent: a record was changed.
    #[error("the request in the record {0} is not the one that was sent: its hash differs")]
    HashMismatch(String),
}

/// Rebuilds the requests of a run. In the order of the calls, each costs only what is new in it.
#[derive(Debug)]
pub struct RecordedRequests {
    run_dir: PathBuf,
    last_request: Option<RecordedRequest>,
}

/// A request that was rebuilt from its record and those before it.
#[derive(Debug)]
pub struct RecordedRequest {
    name: String,
    /// Its text and its messages, of which it shares some with the request that was read before it.
    pub body: RequestBody,
    /// The recorded hash of what was sent.
    pub sha256: String,
    /// Whether the text has that hash. Otherwise a record was changed.
    pub is_intact: bool,
}

impl RecordedRequests {
    /// Rebuilds requests of the run in `run_dir`.
    pub fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), last_request: None }
    }

    /// Rebuilds the request in the record `name`, a path relative to the run directory, as far as the records are intact.
    /// Messages that the record refers to are read from earlier records.
    ///
    /// # Errors
    /// A record is missing, or was not written by delta.
    pub fn read(&mut self, name: &str) -> Result<&RecordedRequest, RecordError> {
        let mut records = vec![RequestRecord::read(&self.run_dir, name)?];
        let mut body = RequestBody::default();
        let mut shared = 0;
        while let Some(last) = records.last()
            && let Some(reference) = &last.reference
        {
            let base = format!("{INVOCATIONS_DIR}{}", reference.same_as);
            if let Some(request) = self.last_request.take_if(|request| request.name == base) {
                // A reader may have refused a request that is not intact, and not know its messages.
                shared = if request.is_intact { request.body.messages().len() } else { 0 };
                body = request.body;
                break;
            }
            // References point to earlier records. A cycle would never end.
            let is_cycle = records.iter().any(|record| record.name == base);
            if is_cycle || reference.same_as.contains('/') {
                let reason = format!("it refers to {}", reference.same_as);
                return Err(unreadable_record(&last.name, reason));
            }
            records.push(RequestRecord::read(&self.run_dir, &base)?);
        }
        for record in records.iter().rev() {
            record.rebuild_request(&mut body);
            shared = shared.min(body.shared_messages());
        }
        body.limit_shared_messages(shared);
        let sha256 = records.swap_remove(0).sha256;
        let is_intact = sha256 == body.sha256();
        let name = name.to_owned();
        Ok(self.last_request.insert(RecordedRequest { name, body, sha256, is_intact }))
    }

    /// Rebuilds the exact request in the record `name`: see [`RecordedRequests::read`].
    ///
    /// # Errors
    /// A record is missing or was changed, which the hash of the request shows.
    pub fn get(&mut self, name: &str) -> Result<&RequestBody, RecordError> {
        let request = self.read(name)?;
        if !request.is_intact {
            return Err(RecordError::HashMismatch(name.to_owned()));
        }
        Ok(&request.body)
    }
}

/// Rebuilds the exact request in the record `name`: see [`RecordedRequests::get`].
///
/// # Errors
/// A record is missing or was changed, which the hash of the request shows.
pub fn read_request(run_dir: &Path, name: &str) -> Result<String, RecordError> {
    RecordedRequests::new(run_dir).get(name).map(|body| body.text().as_str().to_owned())
}

/// Reads the sources of the messages in the record `name`; `None` if an older version wrote it, which did not record them.
///
/// # Errors
/// The record is missing or was not written by delta.
pub fn read_context_blocks(
    run_dir: &Path,
    name: &str,
) -> Result<Option<Vec<ContextBlock>>, RecordError> {
    let record = read_call_record(run_dir, name)?;
    Ok(record.context.map(Cow::into_owned))
}

/// Reads the model that the record `name` asked, and the tokens of its answer, if they are known.
///
/// # Errors
/// The record is missing or was not written by delta.
pub fn read_recorded_usage(
    run_dir: &Path,
    name: &str,
) -> Result<(String, Option<Usage>), RecordError> {
    let record = read_call_record(run_dir, name)?;
    Ok((record.model.into_owned(), record.usage.map(Cow::into_owned)))
}

/// Reads how the request of the record `name` was sent, with the run and the model of the record; `None` if it was sent as it
/// is recorded.
///
/// # Errors
/// The record is missing or was not written by delta.
pub fn read_wire_exchange(run_dir: &Path, name: &str) -> Result<Option<SentExchange>, RecordError> {
    let record = read_call_record(run_dir, name)?;
    Ok(record.wire.map(|wire| SentExchange {
        run_id: record.run_id.into_owned(),
        model: record.model.into_owned(),
        wire: wire.into_owned(),
    }))
}

/// Reads when the call of the record `name` started, the sources of its messages, and how its request was sent.
///
/// # Errors
/// The record is missing or was not written by delta.
pub fn read_sent_call(run_dir: &Path, name: &str) -> Result<SentCall, RecordError> {
    let record = read_call_record(run_dir, name)?;
    Ok(SentCall {
        started_at: record.started_at,
        context: record.context.map(Cow::into_owned).unwrap_or_default(),
        wire: record.wire.map(Cow::into_owned),
    })
}

/// A call of the LLM without its request.
#[derive(Debug)]
pub struct SentCall {
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// The sources of the messages, in order; empty if an older version wrote the record.
    pub context: Vec<ContextBlock>,
    /// How the request was sent; `None` if it was sent as it is recorded.
    pub wire: Option<WireExchange>,
}

/// A request that was sent in the form of an endpoint.
#[derive(Debug)]
pub struct SentExchange {
    /// The id of the run.
    pub run_id: String,
    /// The model that was requested.
    pub model: String,
    /// What was sent.
    pub wire: WireExchange,
}

/// The record that the record `name` refers to; `None` if the request is recorded in full or cannot be read.
pub fn base_record(run_dir: &Path, name: &str) -> Option<String> {
    let reference = RequestRecord::read(run_dir, name).ok()?.reference?;
    Some(format!("{INVOCATIONS_DIR}{}", reference.same_as))
}

/// A recorded request in parts.
struct RequestRecord {
    name: String,
    sha256: String,
    /// Replaces the first messages, unless the request is recorded in full.
    reference: Option<MessagesReference>,
    head: String,
    /// The messages after the referenced ones.
    messages: Vec<String>,
    tail: String,
}

impl RequestRecord {
    fn read(run_dir: &Path, name: &str) -> Result<Self, RecordError> {
        let file = read_record_file(run_dir, name)?;
        let (sha256, text) = parse_sent_request(name, &file)?;
        let (head, messages, tail) = split_request(text);
        let reference = messages.first().and_then(|first| serde_json::from_str(first).ok());
        let messages = messages.iter().skip(usize::from(reference.is_some()));
        Ok(Self {
            name: name.to_owned(),
            sha256,
            reference,
            head: head.to_owned(),
            messages: messages.map(|message| (*message).to_owned()).collect(),
            tail: tail.to_owned(),
        })
    }

    /// Turns `body`, the request that it refers to, into this request.
    fn rebuild_request(&self, body: &mut RequestBody) {
        let shared = self.reference.as_ref().map_or(0, |reference| reference.count);
        body.rebuild(&self.head, shared, self.messages.iter().map(String::as_str), &self.tail);
    }
}

/// The hash and the text of the request in `record`, the text of the record `name`.
pub(super) fn parse_sent_request<'a>(
    name: &str,
    record: &'a str,
) -> Result<(String, &'a str), RecordError> {
    let sent: HashedRequest<'a> =
        serde_json::from_str(record).map_err(|error| unreadable_record(name, error))?;
    let sha256 = sent
        .request_sha256
        .ok_or_else(|| unreadable_record(name, "missing field `request_sha256`"))?;
    let request = sent.request.ok_or_else(|| unreadable_record(name, "missing field `request`"))?;
    Ok((sha256, request.get()))
}

fn read_call_record(run_dir: &Path, name: &str) -> Result<LlmCallRecord<'static>, RecordError> {
    let text = read_record_file(run_dir, name)?;
    serde_json::from_str(&text).map_err(|error| unreadable_record(name, error))
}

pub(super) fn read_record_file(run_dir: &Path, name: &str) -> Result<String, RecordError> {
    let bytes = read_record_bytes(run_dir, name).map_err(|error| unreadable_record(name, error))?;
    String::from_utf8(bytes).map_err(|error| unreadable_record(name, error))
}

pub(super) fn unreadable_record(name: &str, error: impl ToString) -> RecordError {
    RecordError::Unreadable { name: name.to_owned(), reason: error.to_string() }
}
