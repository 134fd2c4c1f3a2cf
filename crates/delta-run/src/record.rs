//! The io/ records of a run: what exactly was sent, received, started and printed.
//!
//! A record is written before the event that names it, private and not synced. The journal alone is enough to continue a
//! run; a power failure may cost the newest records but never an event.

use delta_base::durable::{self, FileError, NewPrivateFile};
use delta_base::json::ExactJson;
use delta_base::redact::Secrets;
use delta_base::time::Timestamp;
use delta_base::{checksum, json};
use delta_process::{INLINE_BYTES, ProcessEnd};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

pub mod agent_copy;
pub mod call_files;
mod formats;
pub mod open_call;
mod pack;
mod record_files;
mod recorded_answers;
mod recorded_request;
mod request_body;
pub mod surviving_call;

use formats::{MessagesReference, RequestMessages};
use open_call::UnansweredCall;

pub use delta_base::hex::sha256_hex;
pub use formats::{
    ContextBlock, ExecutionSandbox, FinishRecord, HashedRequest, HookExecutionRecord,
    LlmCallRecord, ProcessOutcome, RecordedStream, ToolExecutionRecord,
};
pub use pack::{PACK_FILE, PackSummary, pack_records, unpack_records};
pub use record_files::{RecordFile, list_record_files, read_record_bytes};
pub use recorded_answers::{read_recording, read_recordings};
pub use recorded_request::{
    RecordError, RecordedRequest, RecordedRequests, SentCall, SentExchange, base_record,
    read_context_blocks, read_recorded_usage, read_request, read_sent_call, read_wire_exchange,
};
pub use request_body::RequestBody;

/// A process records its requests in full until they reach this size. From then on it leaves out the messages that the
/// previous record has too, so that the records grow with the length of the run and not with its square.
const WHOLE_REQUEST_BYTES: usize = 128 * 1024;

/// Writes the io/ records of one run, without its secrets.
#[derive(Debug)]
pub struct RecordWriter {
    run_dir: PathBuf,
    secrets: Secrets,
    /// The end of all names, so that a process that was replaced and writes late takes no name of its successor.
    suffix: String,
    /// The record of the last request.
    last_request: Option<String>,
    /// The bytes of the requests that were recorded in full.
    whole_request_bytes: usize,
    /// Hashes of the stems that are in use, per directory of io/. A collision only makes a name longer than necessary.
    reserved_stems: BTreeMap<&'static str, HashSet<u64>>,
}

/// A record that was written, for the event that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRecord {
    /// Its path, relative to the run directory.
    pub name: String,
    /// The SHA-256 of the file.
    pub sha256: String,
}

/// The SHA-256 of the record `name`; `None` if it is missing or empty, because its engine died.
pub fn hash_written_record(run_dir: &Path, name: &str) -> Option<String> {
    let bytes = read_record_bytes(run_dir, name).ok().filter(|bytes| !bytes.is_empty())?;
    Some(sha256_hex(bytes))
}

/// How a process ended, in the words of a record; `None` if it exited.
pub fn describe_process_end(end: &ProcessEnd) -> Option<String> {
    match end {
        ProcessEnd::Exited(_) => None,
        ProcessEnd::Killed(signal) => {
            Some(format!("killed by {}", delta_process::signal_name(*signal)))
        }
        ProcessEnd::TimedOut => Some("timed out".to_owned()),
        ProcessEnd::Cancelled => Some("interrupted".to_owned()),
        ProcessEnd::OutOfTime => Some("out of time".to_owned()),
        ProcessEnd::ForMessage => Some("interrupted for a message".to_owned()),
        ProcessEnd::NotStarted { reason, .. } => Some(reason.clone()),
    }
}

impl RecordWriter {
    /// Writes records into the run directory `run_dir`. Their names end in `tag`, if there is one.
    pub fn new(run_dir: &Path, secrets: Secrets, tag: Option<String>) -> Self {
        Self {
            run_dir: run_dir.to_owned(),
            secrets,
            suffix: tag.map_or_else(String::new, |tag| format!("-{tag}")),
            last_request: None,
            whole_request_bytes: 0,
            reserved_stems: BTreeMap::new(),
        }
    }

    /// The path of a directory of io/.
    pub fn dir(&self, name: &str) -> PathBuf {
        io_dir(&self.run_dir, name)
    }

    /// Reserves an unused name in the directory `dir` of io/, without the suffix `.json`. The directory is read only once,
    /// because no other process adds to it.
    pub fn reserve_stem(&mut self, dir: &'static str, stem: &str) -> String {
        let run_dir = &self.run_dir;
        let stems = self
            .reserved_stems
            .entry(dir)
            .or_insert_with(|| read_stem_hashes(&io_dir(run_dir, dir)));
        let stem = format!("{stem}{}", self.suffix);
        let mut candidate = stem.clone();
        let mut number = 2;
        while !stems.insert(hash_stem(&candidate)) {
            candidate = format!("{stem}-{number}");
            number += 1;
        }
        candidate
    }

    /// Records the LLM call that `call` has started. `body` must have been updated from the body of the previous call; `sent`
    /// is what was sent instead of it.
    pub fn write_invocation(
        &mut self,
        call: &UnansweredCall,
        record: &LlmCallRecord<'_>,
        body: &mut RequestBody,
        sent: Option<&str>,
    ) -> Result<WrittenRecord, FileError> {
        let request_sha256 = sent.map_or_else(|| body.sha256(), sha256_hex);
        let (request, whole_bytes) = self.shorten_request(body, sent);
        let text = record.to_line(&request_sha256, &request);
        self.whole_request_bytes += whole_bytes;
        let name = call.name.clone();
        let sha256 = self.write_with_checksum(self.create_record_file(&name)?, text)?;
        self.last_request = name.rsplit_once('/').map(|(_, file)| file.to_owned());
        Ok(WrittenRecord { name, sha256 })
    }

    /// The text of a request, or of what was `sent` instead. Messages that the last record has too are replaced by a
    /// reference, unless requests are still recorded in full. With the bytes that count as recorded in full.
    fn shorten_request<'t>(
        &self,
        body: &'t RequestBody,
        sent: Option<&'t str>,
    ) -> (Cow<'t, str>, usize) {
        let text = sent.unwrap_or(body.text());
        let shared = match sent {
            Some(sent) if !body.has_same_messages(sent) => &[],
            _ => &body.messages()[..body.shared_messages()],
        };
        if let (Some(file), [first, ..], [.., last]) = (&self.last_request, shared, shared)
            && self.whole_request_bytes + text.len() > WHOLE_REQUEST_BYTES
        {
            let reference = MessagesReference { same_as: file.clone(), count: shared.len() };
            let reference = json::to_json(&reference);
            let text = format!("{}{reference}{}", &text[..first.start], &text[last.end..]);
            return (Cow::Owned(text), 0);
        }
        (Cow::Borrowed(text), text.len())
    }

    /// Creates the file of the record `name`, a path relative to the run directory. The file stays empty until the record
    /// is written, which shows whether the disk has room before anything starts.
    pub fn create_record_file(&self, name: &str) -> Result<NewPrivateFile, FileError> {
        NewPrivateFile::create(self.run_dir.join(name))
    }

    /// Records an execution of a tool into the file that was created for it. Returns the SHA-256 of the file.
    pub fn write_execution(
        &self,
        file: NewPrivateFile,
        record: &ToolExecutionRecord<'_>,
    ) -> Result<String, FileError> {
        self.write_with_checksum(file, record_line(record))
    }

    /// Records an execution of a hook under its reserved stem.
    pub fn write_hook(
        &self,
        stem: &str,
        record: &HookExecutionRecord<'_>,
    ) -> Result<WrittenRecord, FileError> {
        self.write_record(format!("io/hooks/{stem}.json"), record)
    }

    /// The standard input of a hook for its record. A large one is written to a file next to the record.
    pub fn write_hook_stdin(&self, stem: &str, stdin: &str) -> Result<RecordedStream, FileError> {
        if stdin.len() <= INLINE_BYTES {
            return Ok(RecordedStream::Text(stdin.to_owned()));
        }
        let file = format!("{stem}.stdin");
        durable::create_private_unsynced(&self.dir("hooks").join(&file), stdin.as_bytes())?;
        let bytes = stdin.len() as u64;
        let sha256 = Some(sha256_hex(stdin));
        Ok(RecordedStream::File { file, bytes, discarded: 0, crc: None, sha256 })
    }

    /// Records the result that `finish` sets.
    pub fn write_finish(
        &mut self,
        at: Timestamp,
        call_id: &str,
        output: &ExactJson,
    ) -> Result<WrittenRecord, FileError> {
        let stem = self.reserve_stem("tool_executions", &format!("{}_finish", at.to_compact()));
        let name = format!("io/tool_executions/{stem}.json");
        let record = FinishRecord {
            tool: "finish".into(),
            call_id: call_id.into(),
            started_at: at,
            output: Cow::Borrowed(output),
        };
        self.write_record(name, &record)
    }

    fn write_record(
        &self,
        name: String,
        record: &impl Serialize,
    ) -> Result<WrittenRecord, FileError> {
        let file = self.create_record_file(&name)?;
        Ok(WrittenRecord { sha256: self.write_with_checksum(file, record_line(record))?, name })
    }

    /// Writes a record with its checksum and with secrets redacted. Returns the SHA-256 of the file.
    fn write_with_checksum(&self, file: NewPrivateFile, line: String) -> Result<String, FileError> {
        let text = checksum::append_checksum(self.secrets.redact_string(line));
        file.write_unsynced(text.as_bytes())?;
        Ok(sha256_hex(&text))
    }
}

fn record_line(record: &impl Serialize) -> String {
    let mut line = json::to_json(record);
    line.push('\n');
    line
}

fn io_dir(run_dir: &Path, name: &str) -> PathBuf {
    run_dir.join(format!("io/{name}"))
}

fn read_stem_hashes(dir: &Path) -> HashSet<u64> {
    let entries = durable::read_dir_no_follow(dir).unwrap_or_default();
    let names = entries.iter().map(|entry| entry.name.to_string_lossy());
    names.filter_map(|name| Some(hash_stem(name.rsplit_once('.')?.0))).collect()
}

fn hash_stem(stem: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    stem.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_process::OutputCapture;

    #[test]
    fn c_5_2_a_name_that_is_taken_gets_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = || RecordWriter::new(dir.path(), Secrets::default(), None);
        let executions = fresh().dir("tool_executions");
        std::fs::create_dir_all(&executions).unwrap();
        for (taken, free) in [("x.json", "x-2"), ("x-2.stdout", "x-3"), ("x-3.stderr", "x-4")] {
            std::fs::write(executions.join(taken), "").unwrap();
            assert_eq!(fresh().reserve_stem("tool_executions", "x"), free);
        }
        let mut records = fresh();
        let stems = ["y", "y", "x", "y"].map(|stem| records.reserve_stem("tool_executions", stem));
        assert_eq!(stems, ["y", "y-2", "x-4", "y-3"]);
    }

    #[test]
    fn c_4_5_a_stream_whose_file_failed_is_not_taken_for_a_whole_one() {
        let capture = OutputCapture {
            bytes: 100_000,
            head: b"begin".to_vec(),
            tail: b"end".to_vec(),
            error: Some("cannot write x: full".to_owned()),
            ..OutputCapture::default()
        };
        let record = serde_json::to_value(RecordedStream::from_capture(&capture)).unwrap();
        let expected = serde_json::json!({"head": "begin", "tail": "end", "bytes": 100_000, "error": "cannot write x: full"});
        assert_eq!(record, expected);
    }

    #[test]
    fn c_5_2_a_request_that_was_sent_otherwise_keeps_its_marks() {
        let mut body = RequestBody::default();
        body.update("{\"messages\":[", &["\"ab\"".into(), "\"c\"".into()], "],\"x\":1}");
        assert!(body.has_same_messages(r#"{"messages":["ab","c"]}"#));
        assert!(
            !body.has_same_messages(r#"{"messages":["ab"]}"#)
                && !body.has_same_messages(r#"{ "messages":["ab","c"]}"#)
        );
    }
}
