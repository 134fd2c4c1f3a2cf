//! The io/ files: what exactly was sent, answered, started and printed.
//!
//! Written before the event that names them, private, not synced: the journal holds all that continuing needs, and a
//! power failure may take the last of these files, never an event.

use crate::crc;
use crate::durable::{self, FileError, NewFile};
use crate::json;
use crate::llm::{Attempt, Response, Usage};
use crate::process::{Capture, End, INLINE};
use crate::text::Secrets;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

mod answers;
mod body;
mod request;

pub use crate::text::sha256;
pub use answers::{recording, recordings};
pub use body::Body;
pub use request::{RequestError, Requests, base, blocks, request};

/// The requests of a process are recorded whole until so many bytes of them are; from then on without the messages that
/// the record before already tells of, so that what is written grows with the run and not with its square.
const WHOLE_REQUESTS: usize = 128 * 1024;
/// How many bytes the record of a call has beside its request, roughly.
const ROOM: usize = 4096;

/// Where the io/ files of one run go.
#[derive(Debug)]
pub struct Records {
    run_dir: PathBuf,
    secrets: Secrets,
    /// The file of the last recorded request.
    last_request: Option<String>,
    /// How many bytes the requests take that were recorded whole.
    whole: usize,
    /// The stems that are taken, by the directory of io/ in which they are. Two that have the same hash only make one of
    /// them longer than it had to be.
    taken: BTreeMap<&'static str, HashSet<u64>>,
}

/// One LLM call, for io/invocations.
#[derive(Debug, Serialize)]
pub struct Invocation<'a> {
    /// The run.
    pub run_id: &'a str,
    /// The answer that was asked for.
    pub iteration: u32,
    /// `openai`, `script`, `command` or `recorded`.
    pub provider: &'a str,
    /// The model that was asked.
    pub model: &'a str,
    /// When the call began.
    pub started_at: Timestamp,
    /// How long it took, retries included.
    pub duration_ms: u64,
    /// The last HTTP status.
    pub status: Option<u16>,
    /// The tries that failed.
    pub attempts: &'a [Attempt],
    /// Where the messages come from, in their order.
    pub context: &'a [Block],
    /// What the answer cost.
    pub usage: Option<&'a Usage>,
    /// Why there is no answer.
    pub error: Option<&'a str>,
    /// Reasoning that came beside the answer.
    pub reasoning: Option<&'a str>,
    /// The exact answer, assembled when it was streamed.
    pub response: &'a Response,
}

/// The part of a source of context.yaml in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its id, or the name of its file.
    pub source: String,
    /// `file`, `computed_file`, `pipeline` or `journal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many messages it is.
    pub messages: usize,
    /// How many bytes they take in the request.
    pub bytes: usize,
    /// How many tokens they are: an estimate, or the tokenizer's number.
    pub tokens: u64,
    /// What of it is left out, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Why it gave nothing, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// One run of a tool, for io/tool_executions.
#[derive(Debug, Serialize)]
pub struct Execution<'a> {
    /// The run.
    pub run_id: &'a str,
    /// Of which LLM answer.
    pub iteration: u32,
    /// The tool.
    pub tool: &'a str,
    /// The call.
    pub call_id: &'a str,
    /// The command line.
    pub argv: &'a [String],
    /// Where it ran.
    pub cwd: &'a Path,
    /// Its standard input.
    pub stdin: &'a str,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// Its exit code, if it had one.
    pub exit_code: Option<i32>,
    /// How it ended, when not by exiting: a signal, a timeout, an interruption, or why it could not be started.
    pub ended: Option<String>,
    /// What it printed.
    pub stdout: Stream,
    /// What it printed to standard error.
    pub stderr: Stream,
}

/// One run of a hook, for io/hooks.
#[derive(Debug, Serialize)]
pub struct HookExecution<'a> {
    /// The run.
    pub run_id: &'a str,
    /// The iteration that it was told.
    pub iteration: u32,
    /// The hook.
    pub hook: &'static str,
    /// The command line.
    pub command: &'a [String],
    /// Where it ran.
    pub cwd: &'a Path,
    /// Its standard input.
    pub stdin: Stream,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// Its exit code, if it had one.
    pub exit_code: Option<i32>,
    /// How it ended, when not by exiting, as for a tool.
    pub ended: Option<String>,
    /// What it printed.
    pub stdout: Stream,
    /// What it printed to standard error.
    pub stderr: Stream,
    /// What it replaced: `request`, `messages`, `response`, `arguments` or `observation`.
    pub changed: Option<&'static str>,
    /// `allow` or `deny`, for pre_tool_execution.
    pub decision: Option<&'static str>,
    /// Why its part was not done.
    pub failure: Option<&'a str>,
}

/// A stream in a record: its text, or the file beside the record in which it lies.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Stream {
    /// Small and UTF-8.
    Text(String),
    /// Large, or not UTF-8.
    File {
        /// The file's name, in the same directory.
        file: String,
        /// How much was printed.
        bytes: u64,
        /// How much of it was not kept.
        #[serde(default, skip_serializing_if = "is_zero")]
        discarded: u64,
        /// The check value of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        crc: Option<String>,
    },
    /// Large, and the file for it could not be written.
    Lost {
        /// How it began.
        head: String,
        /// How it ended.
        tail: String,
        /// How much was printed.
        bytes: u64,
        /// Why there is no file.
        error: String,
    },
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Stream {
    /// A captured stream as the record shows it.
    pub fn of(capture: &Capture) -> Self {
        let name = capture.file.as_deref().and_then(Path::file_name);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match (name, &capture.whole) {
            (Some(name), _) => Self::File {
                file: name.to_string_lossy().into_owned(),
                bytes: capture.bytes,
                discarded: capture.discarded,
                crc: capture.crc.map(crc::digits),
            },
            (None, Some(whole)) => Self::Text(text(whole)),
            (None, None) => Self::Lost {
                head: text(&capture.head),
                tail: text(&capture.tail),
                bytes: capture.bytes,
                error: capture.error.clone().unwrap_or_default(),
            },
        }
    }
}

/// How a process ended, in a record's words; `None` when it exited.
pub fn ended(end: &End) -> Option<String> {
    match end {
        End::Exited(_) => None,
        End::Killed(signal) => Some(format!("killed by {}", crate::process::signal_name(*signal))),
        End::TimedOut => Some("timed out".to_owned()),
        End::Cancelled => Some("interrupted".to_owned()),
        End::NotStarted { reason, .. } => Some(reason.clone()),
    }
}

impl Records {
    /// The records of the run in `run_dir`.
    pub fn new(run_dir: &Path, secrets: Secrets) -> Self {
        let (run_dir, taken) = (run_dir.to_owned(), BTreeMap::new());
        Self { run_dir, secrets, last_request: None, whole: 0, taken }
    }

    /// A directory of io/.
    pub fn dir(&self, name: &str) -> PathBuf {
        io_dir(&self.run_dir, name)
    }

    /// A name under `dir` of io/ that is not taken, without its `.json`; from now on it is. The directory is read once:
    /// nobody but this process adds to it.
    pub fn fresh_stem(&mut self, dir: &'static str, stem: &str) -> String {
        let run_dir = &self.run_dir;
        let taken = self.taken.entry(dir).or_insert_with(|| stems(&io_dir(run_dir, dir)));
        let mut candidate = stem.to_owned();
        let mut number = 2;
        while !taken.insert(hash_of(&candidate)) {
            candidate = format!("{stem}-{number}");
            number += 1;
        }
        candidate
    }

    /// Records an LLM call; gives the file's name, relative to the run directory. `body` was made out of that of the call
    /// before, if there was one; `sent` is what was sent in its place.
    pub fn invocation(
        &mut self,
        record: &Invocation<'_>,
        body: &mut Body,
        sent: Option<&str>,
    ) -> Result<String, FileError> {
        let stem = format!("{}_{}", record.started_at.compact(), record.iteration);
        let name = format!("{}.json", self.fresh_stem("invocations", &stem));
        let request_sha256 = sent.map_or_else(|| body.sha256(), sha256);
        let request = self.shortened(body, sent);
        // The request is JSON already.
        let mut text = json::text_in(request.len() + ROOM, record);
        text.pop();
        text.push_str(",\"request_sha256\":\"");
        text.push_str(&request_sha256);
        text.push_str("\",\"request\":");
        text.push_str(&request);
        text.push_str("}\n");
        let path = format!("io/invocations/{name}");
        self.seal(self.create(&path)?, text)?;
        self.last_request = Some(name);
        Ok(path)
    }

    /// The text of a request, or of what was `sent` in its place, with the messages that the last record tells of replaced
    /// by a reference, unless it is recorded whole.
    fn shortened<'t>(&mut self, body: &'t Body, sent: Option<&'t str>) -> Cow<'t, str> {
        let text = sent.unwrap_or(body.text());
        let same = match sent {
            Some(sent) if !body.is_like(sent) => &[],
            _ => &body.messages()[..body.kept()],
        };
        let (Some(file), [first, ..], [.., last]) = (&self.last_request, same, same) else {
            self.whole += text.len();
            return Cow::Borrowed(text);
        };
        if self.whole + text.len() <= WHOLE_REQUESTS {
            self.whole += text.len();
            return Cow::Borrowed(text);
        }
        let reference = serde_json::json!({"same_as": file, "count": same.len()});
        Cow::Owned(format!("{}{reference}{}", &text[..first.start], &text[last.end..]))
    }

    /// The file of the record `name`, relative to the run directory. It is empty until the record is written, and stays
    /// so when the engine dies before.
    pub fn create(&self, name: &str) -> Result<NewFile, FileError> {
        NewFile::create(self.run_dir.join(name))
    }

    /// Records a run of a tool.
    pub fn execution(&self, file: NewFile, record: &Execution<'_>) -> Result<(), FileError> {
        self.seal(file, line_of(record))
    }

    /// Records a run of a hook under the stem that was reserved for it; gives the file's name as for an invocation.
    pub fn hook(&self, stem: &str, record: &HookExecution<'_>) -> Result<String, FileError> {
        let name = format!("io/hooks/{stem}.json");
        self.write(&name, record)?;
        Ok(name)
    }

    /// The standard input of a hook as its record shows it: large, it lies beside.
    pub fn hook_input(&self, stem: &str, stdin: &str) -> Result<Stream, FileError> {
        if stdin.len() <= INLINE {
            return Ok(Stream::Text(stdin.to_owned()));
        }
        let file = format!("{stem}.stdin");
        durable::write_new(&self.dir("hooks").join(&file), stdin.as_bytes())?;
        let crc = Some(crc::of(stdin.as_bytes()));
        Ok(Stream::File { file, bytes: stdin.len() as u64, discarded: 0, crc })
    }

    /// Records what `finish` gave.
    pub fn finish(
        &mut self,
        at: Timestamp,
        call_id: &str,
        output: &serde_json::Value,
    ) -> Result<String, FileError> {
        #[derive(Serialize)]
        struct Finish<'a> {
            tool: &'static str,
            call_id: &'a str,
            started_at: Timestamp,
            output: &'a serde_json::Value,
        }
        let stem = self.fresh_stem("tool_executions", &format!("{}_finish", at.compact()));
        let name = format!("io/tool_executions/{stem}.json");
        self.write(&name, &Finish { tool: "finish", call_id, started_at: at, output })?;
        Ok(name)
    }

    fn write(&self, name: &str, record: &impl Serialize) -> Result<(), FileError> {
        self.seal(self.create(name)?, line_of(record))
    }

    /// Writes a line as a record, with its check value and without secrets.
    fn seal(&self, file: NewFile, line: String) -> Result<(), FileError> {
        file.write(crc::sealed(self.secrets.hidden(line)).as_bytes())
    }
}

fn line_of(record: &impl Serialize) -> String {
    let mut line = json::text(record);
    line.push('\n');
    line
}

fn io_dir(run_dir: &Path, name: &str) -> PathBuf {
    run_dir.join(format!("io/{name}"))
}

/// The stems of the names in a directory of io/.
fn stems(dir: &Path) -> HashSet<u64> {
    let names =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let stem = |name: OsString| Some(hash_of(name.to_string_lossy().rsplit_once('.')?.0));
    names.filter_map(stem).collect()
}

fn hash_of(stem: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    stem.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_5_2_a_name_that_is_taken_gets_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let fresh = || Records::new(dir.path(), Secrets::default());
        let executions = fresh().dir("tool_executions");
        std::fs::create_dir_all(&executions).unwrap();
        for (taken, free) in [("x.json", "x-2"), ("x-2.stdout", "x-3"), ("x-3.stderr", "x-4")] {
            std::fs::write(executions.join(taken), "").unwrap();
            assert_eq!(fresh().fresh_stem("tool_executions", "x"), free);
        }
        let mut records = fresh();
        let stems = ["y", "y", "x", "y"].map(|stem| records.fresh_stem("tool_executions", stem));
        assert_eq!(stems, ["y", "y-2", "x-4", "y-3"]);
    }

    #[test]
    fn c_4_5_a_stream_whose_file_failed_is_not_taken_for_a_whole_one() {
        let capture = Capture {
            bytes: 100_000,
            head: b"begin".to_vec(),
            tail: b"end".to_vec(),
            error: Some("cannot write x: full".to_owned()),
            ..Capture::default()
        };
        let record = serde_json::to_value(Stream::of(&capture)).unwrap();
        let expected = serde_json::json!({"head": "begin", "tail": "end", "bytes": 100_000, "error": "cannot write x: full"});
        assert_eq!(record, expected);
    }

    #[test]
    fn c_5_2_a_request_that_was_sent_otherwise_keeps_its_marks() {
        let mut body = Body::default();
        body.update("{\"messages\":[", &["\"ab\"".into(), "\"c\"".into()], "],\"x\":1}");
        assert!(body.is_like(r#"{"messages":["ab","c"]}"#));
        assert!(
            !body.is_like(r#"{"messages":["ab"]}"#) && !body.is_like(r#"{ "messages":["ab","c"]}"#)
        );
    }
}
