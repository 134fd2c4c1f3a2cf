//! The formats of the io/ records. The type that writes a record is the type that reads it.
//!
//! Writing is exact. Reading accepts records of older and newer versions: an absent key has its default, an unknown key
//! is ignored. Ids are strings here, because a record is redacted as a whole.

use crate::event::{HostTrafficRecord, is_zero_number};
use delta_base::hex::sha256_hex;
use delta_base::json::ExactJson;
use delta_base::time::Timestamp;
use delta_base::{checksum, json};
use delta_process::OutputCapture;
use delta_words::{ArrivedAnswer, Attempt, ResponseBody, Usage, WireExchange};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// The approximate size of a record of an LLM call without its request.
const RECORD_OVERHEAD_BYTES: usize = 4096;

/// The record of an LLM call, in io/invocations. Its request follows as [`HashedRequest`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LlmCallRecord<'a> {
    /// The id of the run.
    pub run_id: Cow<'a, str>,
    /// The number of the answer that was requested.
    pub iteration: u32,
    /// `openai`, `script`, `command` or `recorded`.
    pub provider: Cow<'a, str>,
    /// The model that was requested.
    pub model: Cow<'a, str>,
    /// The time when the call started.
    pub started_at: Option<Timestamp>,
    /// The duration of the call, including retries.
    pub duration_ms: u64,
    /// The last HTTP status.
    pub status: Option<u16>,
    /// The attempts that failed.
    pub attempts: Cow<'a, [Attempt]>,
    /// The sources of the messages, in order. Older versions did not record them.
    pub context: Option<Cow<'a, [ContextBlock]>>,
    /// The tokens and the cost of the answer.
    pub usage: Option<Cow<'a, Usage>>,
    /// Why the call has no answer.
    pub error: Option<Cow<'a, str>>,
    /// The reasoning that was sent with the answer.
    pub reasoning: Option<Cow<'a, str>>,
    /// What had arrived of an answer that was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived: Option<Cow<'a, ArrivedAnswer<'a>>>,
    /// The exact response, assembled from its parts if it was streamed; of an endpoint of another form, its translation.
    pub response: Cow<'a, ResponseBody>,
    /// The exchange in the form of the endpoint, where that is not Chat Completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<Cow<'a, WireExchange>>,
}

/// The request in the record of an LLM call, byte for byte as it was sent. A [`MessagesReference`] may replace the messages
/// that the previous record has too.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HashedRequest<'a> {
    /// The hash of the request.
    pub request_sha256: Option<String>,
    /// The request.
    #[serde(borrow)]
    pub request: Option<&'a RawValue>,
}

/// The messages of a request, each as it was sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestMessages<'a> {
    /// The messages, in order.
    #[serde(borrow)]
    pub messages: Vec<&'a RawValue>,
}

/// Replaces the first messages of a recorded request: they equal the first messages of another request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesReference {
    /// The record of the other request, in the same directory.
    pub same_as: String,
    /// The number of messages that are replaced.
    pub count: usize,
}

/// The part of a request that comes from one source of context.yaml.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextBlock {
    /// The id of the source, or the name of its file.
    pub source: String,
    /// The `type` in context.yaml, such as `file` or `journal`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of messages.
    pub messages: usize,
    /// The bytes of the messages in the request.
    pub bytes: usize,
    /// The tokens of the messages: an estimate, or the number of the agent's tokenizer.
    pub tokens: u64,
    /// What was left out of the source, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
    /// Why the source gave no messages, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// The record of a tool's execution, in io/tool_executions.
#[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolExecutionRecord<'a> {
    /// The id of the run.
    pub run_id: Cow<'a, str>,
    /// The LLM answer that contains the call.
    pub iteration: u32,
    /// The name of the tool.
    pub tool: Cow<'a, str>,
    /// The id of the call.
    pub call_id: Cow<'a, str>,
    /// The command line.
    pub argv: Cow<'a, [String]>,
    /// The directory in which the command ran.
    pub cwd: Cow<'a, Path>,
    /// The standard input of the command.
    pub stdin: Cow<'a, str>,
    /// How the execution ended.
    #[serde(flatten)]
    pub outcome: ProcessOutcome,
    /// What the sandbox did; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<ExecutionSandbox>,
}

/// What the sandbox of an execution did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExecutionSandbox {
    /// The name of the profile in ENGINE_START.
    pub profile: String,
    /// The line in the observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The hosts with ports that were reached.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reached: BTreeMap<String, HostTrafficRecord>,
}

/// The record of a hook's execution, in io/hooks.
#[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookExecutionRecord<'a> {
    /// The id of the run.
    pub run_id: Cow<'a, str>,
    /// The iteration that was passed to the hook.
    pub iteration: u32,
    /// The name of the hook.
    pub hook: Cow<'a, str>,
    /// The command line.
    pub command: Cow<'a, [String]>,
    /// The directory in which the command ran.
    pub cwd: Cow<'a, Path>,
    /// The standard input of the command.
    pub stdin: Option<RecordedStream>,
    /// How the execution ended.
    #[serde(flatten)]
    pub outcome: ProcessOutcome,
    /// What the output replaced: `request`, `messages`, `response`, `arguments` or `observation`.
    pub changed: Option<Cow<'a, str>>,
    /// `allow` or `deny`, for `pre_tool_execution`.
    pub decision: Option<Cow<'a, str>>,
    /// Why the output could not be used.
    pub failure: Option<Cow<'a, str>>,
    /// Whether a process that the hook left running still held its standard output.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held_stdout: bool,
}

/// How the process of a tool or a hook ended, and what it printed.
#[derive(Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessOutcome {
    /// The time when the process started.
    pub started_at: Option<Timestamp>,
    /// The duration of the process.
    pub duration_ms: u64,
    /// The exit code; `None` if the process did not exit.
    pub exit_code: Option<i32>,
    /// How the process ended if it did not exit: a signal, a timeout, an interruption, or why it could not be started.
    pub ended: Option<String>,
    /// What the process printed to standard output.
    pub stdout: Option<RecordedStream>,
    /// What the process printed to standard error.
    pub stderr: Option<RecordedStream>,
    /// The command lines of the processes that it left running and that were ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended_background: Vec<String>,
    /// The command lines of the processes that it left running and that are still running.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_running: Vec<String>,
    /// The names of the files for what they print after the call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later_output: Vec<String>,
    /// Why there are no such files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_output: Option<String>,
}

/// The record of a result that `finish` set, in io/tool_executions.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishRecord<'a> {
    /// `finish`.
    pub tool: Cow<'a, str>,
    /// The id of the call.
    pub call_id: Cow<'a, str>,
    /// The time when the call was executed.
    pub started_at: Timestamp,
    /// The result of the run.
    pub output: Cow<'a, ExactJson>,
}

/// A stream in a record: its text, or a reference to a file next to the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RecordedStream {
    /// A small stream of valid UTF-8.
    Text(String),
    /// A large stream, or one that is not valid UTF-8.
    File {
        /// The name of the file, in the same directory as the record.
        file: String,
        /// The bytes that were printed.
        bytes: u64,
        /// The bytes that are not in the file.
        #[serde(default, skip_serializing_if = "is_zero_number")]
        discarded: u64,
        /// The CRC-32 of the file, in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        crc: Option<String>,
        /// The SHA-256 of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
    },
    /// A large stream whose file could not be written.
    Lost {
        /// The start of the stream.
        head: String,
        /// The end of the stream.
        tail: String,
        /// The bytes that were printed.
        bytes: u64,
        /// Why the file could not be written.
        error: String,
    },
}

impl RecordedStream {
    /// The hash of `bytes` and the recorded one, if the file of the stream has other bytes; `None` also if none is recorded.
    pub fn find_other_hash(&self, bytes: &[u8]) -> Option<(String, &str)> {
        let Self::File { crc, sha256, .. } = self else { return None };
        let (actual, written) = match (sha256, crc) {
            (Some(written), _) => (sha256_hex(bytes), written),
            (None, Some(written)) => (checksum::crc32_hex(bytes), written),
            (None, None) => return None,
        };
        (actual != *written).then_some((actual, written))
    }

    /// Describes a captured stream.
    pub fn from_capture(capture: &OutputCapture) -> Self {
        let name = capture.file.as_deref().and_then(Path::file_name);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match (name, &capture.whole) {
            (Some(name), _) => Self::File {
                file: name.to_string_lossy().into_owned(),
                bytes: capture.bytes,
                discarded: capture.discarded,
                crc: None,
                sha256: capture.sha256.clone(),
            },
            (None, Some(bytes)) => Self::Text(text(bytes)),
            (None, None) => Self::Lost {
                head: text(&capture.head),
                tail: text(&capture.tail),
                bytes: capture.bytes,
                error: capture.error.clone().unwrap_or_default(),
            },
        }
    }
}

impl LlmCallRecord<'_> {
    /// The record as a line that ends with its request. `request` must be JSON; it is not parsed.
    pub(super) fn to_line(&self, request_sha256: &str, request: &str) -> String {
        let mut text = json::to_json_with_capacity(request.len() + RECORD_OVERHEAD_BYTES, self);
        text.pop();
        text.push_str(",\"request_sha256\":\"");
        text.push_str(request_sha256);
        text.push_str("\",\"request\":");
        text.push_str(request);
        text.push_str("}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use std::fmt::Debug;

    /// What is written reads back as what it was, and is then written in the same bytes.
    fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(
        record: &T,
    ) -> Result<String, TestCaseError> {
        let text = json::to_json(record);
        let read: T = serde_json::from_str(&text)
            .map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        prop_assert_eq!(&read, record);
        prop_assert_eq!(json::to_json(&read), text.clone());
        Ok(text)
    }

    fn text() -> impl Strategy<Value = Cow<'static, str>> {
        any::<String>().prop_map(Cow::Owned)
    }

    fn time() -> impl Strategy<Value = Option<Timestamp>> {
        (0..4_000_000_000_000_i64).prop_map(|millis| Some(Timestamp::from_millis(millis)))
    }

    fn stream() -> impl Strategy<Value = RecordedStream> {
        prop_oneof![
            any::<String>().prop_map(RecordedStream::Text),
            (any::<String>(), any::<u64>(), any::<u64>(), any::<Option<String>>()).prop_map(
                |(file, bytes, discarded, crc)| RecordedStream::File {
                    file,
                    bytes,
                    discarded,
                    sha256: crc.clone(),
                    crc
                }
            ),
            (any::<String>(), any::<String>(), any::<u64>(), any::<String>()).prop_map(
                |(head, tail, bytes, error)| RecordedStream::Lost { head, tail, bytes, error }
            ),
        ]
    }

    prop_compose! {
        fn outcome()(
            started_at in time(), duration_ms in any::<u64>(), exit_code in any::<Option<i32>>(),
            ended in any::<Option<String>>(), stdout in stream(), stderr in stream(),
            ended_background in prop::collection::vec(any::<String>(), 0..3),
            left_running in prop::collection::vec(any::<String>(), 0..3),
            later_output in prop::collection::vec(any::<String>(), 0..3),
            lost_output in any::<Option<String>>(),
        ) -> ProcessOutcome {
            let (stdout, stderr) = (Some(stdout), Some(stderr));
            ProcessOutcome {
                started_at, duration_ms, exit_code, ended, stdout, stderr, ended_background, left_running,
                later_output, lost_output,
            }
        }
    }

    prop_compose! {
        fn attempt()(
            started_at in time(), duration_ms in any::<u64>(), status in any::<Option<u16>>(), error in any::<String>(),
            retry_in_ms in any::<Option<u64>>(), tokens in any::<Option<u64>>(),
        ) -> Attempt {
            let usage = tokens.map(|output_tokens| Usage { output_tokens, ..Usage::default() });
            Attempt { started_at: started_at.unwrap(), duration_ms, status, error, retry_in_ms, usage, arrived: None }
        }
    }

    prop_compose! {
        fn block()(
            source in any::<String>(), messages in any::<usize>(), tokens in any::<u64>(), cut in any::<Option<String>>(),
        ) -> ContextBlock {
            ContextBlock { source, kind: "journal".to_owned(), messages, bytes: messages, tokens, skipped: cut.clone(), cut }
        }
    }

    proptest! {
        #[test]
        fn c_5_2_a_record_of_a_tool_reads_back_as_it_was_written(
            run_id in text(), iteration in any::<u32>(), tool in text(), call_id in text(),
            argv in prop::collection::vec(any::<String>(), 0..3), cwd in any::<String>(), stdin in text(), outcome in outcome(),
        ) {
            let (argv, cwd) = (Cow::Owned(argv), Cow::Owned(cwd.into()));
            let sandbox = (iteration % 2 == 0).then(|| ExecutionSandbox {
                profile: "p1".to_owned(),
                hint: Some(stdin.to_string()),
                reached: BTreeMap::from([("a:1".to_owned(), HostTrafficRecord::default())]),
            });
            round_trip(&ToolExecutionRecord { run_id, iteration, tool, call_id, argv, cwd, stdin, outcome, sandbox })?;
        }

        #[test]
        fn c_5_2_a_record_of_a_hook_reads_back_as_it_was_written(
            run_id in text(), iteration in any::<u32>(), hook in text(),
            command in prop::collection::vec(any::<String>(), 0..3), cwd in any::<String>(), stdin in stream(),
            outcome in outcome(), changed in prop::option::of(text()), failure in prop::option::of(text()),
            held_stdout in any::<bool>(),
        ) {
            let (command, cwd) = (Cow::Owned(command), Cow::Owned(cwd.into()));
            let (stdin, decision) = (Some(stdin), changed.clone());
            round_trip(&HookExecutionRecord {
                run_id, iteration, hook, command, cwd, stdin, outcome, changed, decision, failure,
                held_stdout,
            })?;
        }

        #[test]
        fn c_5_2_a_record_of_a_call_reads_back_as_it_was_written(
            run_id in text(), iteration in any::<u32>(), provider in text(), model in text(), started_at in time(),
            duration_ms in any::<u64>(), status in any::<Option<u16>>(), attempts in prop::collection::vec(attempt(), 0..3),
            context in prop::collection::vec(block(), 0..3), usage in any::<Option<u64>>(), error in prop::option::of(text()),
            answer in any::<String>(),
        ) {
            let usage = usage.map(|input_tokens| Cow::Owned(Usage { input_tokens, ..Usage::default() }));
            let record = LlmCallRecord {
                run_id, iteration, provider, model, started_at, duration_ms, status, attempts: Cow::Owned(attempts),
                context: Some(Cow::Owned(context)), usage, reasoning: error.clone(), error,
                response: Cow::Owned(ResponseBody::new(&answer)),
                wire: None,
                arrived: None,
            };
            round_trip(&record)?;
            // With its request it is the same record, and the request comes back byte for byte.
            let request = "{\"messages\": [ {\"same_as\":\"a.json\",\"count\":2} ,1.0],\"x\":\"\\u00e4\"}";
            let line = record.to_line("00ff", request);
            prop_assert_eq!(&serde_json::from_str::<LlmCallRecord<'_>>(&line).unwrap(), &record);
            let sent: HashedRequest<'_> = serde_json::from_str(&line).unwrap();
            prop_assert_eq!((sent.request_sha256.as_deref(), sent.request.unwrap().get()), (Some("00ff"), request));
            let list: RequestMessages<'_> = serde_json::from_str(request).unwrap();
            let first: MessagesReference = serde_json::from_str(list.messages[0].get()).unwrap();
            prop_assert_eq!(round_trip(&first)?, "{\"same_as\":\"a.json\",\"count\":2}");
        }

        #[test]
        fn c_5_2_a_record_of_finish_reads_back_as_it_was_written(
            call_id in text(), at in time(), output in any::<Option<String>>(),
        ) {
            let output = Cow::Owned(serde_json::json!({"output": output}).into());
            let tool = Cow::Borrowed("finish");
            round_trip(&FinishRecord { tool, call_id, started_at: at.unwrap(), output })?;
        }
    }

    #[test]
    fn c_5_2_records_of_other_versions_are_read() {
        // The first versions had no check values, no blocks and no usage; a later one may have more.
        let old = r#"{"run_id":"r","iteration":1,"model":"m","started_at":"2025-10-13T14:35:22.123Z","response":{"a":1.50}}"#;
        let read: LlmCallRecord<'_> = serde_json::from_str(old).unwrap();
        assert_eq!(
            (&*read.model, read.context.as_deref(), read.usage.is_none()),
            ("m", None, true)
        );
        assert_eq!(json::to_json(&*read.response), r#"{"a":1.50}"#);
        let tool = r#"{"argv":["ls"],"stdout":{"file":"a.stdout","bytes":5},"later":{"a":[1]}}"#;
        let read: ToolExecutionRecord<'_> = serde_json::from_str(tool).unwrap();
        let stdout = RecordedStream::File {
            file: "a.stdout".to_owned(),
            bytes: 5,
            discarded: 0,
            crc: None,
            sha256: None,
        };
        assert_eq!((&*read.argv, read.outcome.stdout), (&["ls".to_owned()][..], Some(stdout)));
        let hook: HookExecutionRecord<'_> =
            serde_json::from_str(r#"{"hook":"post_run","crc":"00000000"}"#).unwrap();
        assert_eq!(
            (&*hook.hook, hook.stdin, hook.outcome),
            ("post_run", None, ProcessOutcome::default())
        );
    }
}
