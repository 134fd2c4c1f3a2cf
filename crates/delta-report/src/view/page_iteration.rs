//! One iteration on the page: the LLM call, its tool calls and their output, and the events between them.

use super::markdown_tree::MarkdownTree;
use super::page_image::{self, PageImage};
use super::page_requests::{BlockAttribution, PageRequest, PageRequests};
use super::run_files::{self, PageCapacity, PageText};
use super::workspace_changes::PageSnapshots;
use delta_base::redact::HIDDEN;
use delta_base::time::Timestamp;
use delta_run::conversation::history::{CallHistory, EventRef, Iteration};
use delta_run::event::{CallSandbox, HostTrafficRecord, Payload};
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{
    ContextBlock, ExecutionSandbox, HashedRequest, ProcessOutcome, RecordFile, RecordedRequests,
    RecordedStream,
};
use delta_words::{Attempt, Usage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Reads the iterations of one run from its history and its record files, in order.
pub struct PageSource<'r> {
    /// The run directory.
    pub dir: PathBuf,
    /// The requests so far; `None` when the page does not show them.
    pub requests: Option<PageRequests>,
    /// The requests in the records.
    pub recorded: RecordedRequests,
    pub snapshots: Option<PageSnapshots>,
    pub capacity: &'r mut PageCapacity,
    /// The ratio of reported to estimated tokens at the last LLM call.
    pub ratio: TokenRatio,
}

#[derive(Debug, Serialize)]
pub struct PageIteration {
    n: u32,
    seq: u64,
    at: Timestamp,
    pub before: Vec<Json>,
    pub thought: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markdown: Option<MarkdownTree>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<String>,
    cut_off: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm: Option<PageLlmCall>,
    pub calls: Vec<PageToolCall>,
    pub around: Vec<Json>,
}

#[derive(Debug, Default, Serialize)]
struct PageLlmCall {
    /// The record file.
    file: String,
    /// Why the record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<PageLlmRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<PageRequest>,
    /// Why the request cannot be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_request: Option<String>,
}

/// The fields of a record of io/invocations that the page shows.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct PageLlmRecord {
    provider: String,
    model: String,
    started_at: Option<Timestamp>,
    duration_ms: u64,
    status: Option<u16>,
    attempts: Vec<Attempt>,
    context: Option<Vec<ContextBlock>>,
    error: Option<String>,
    #[serde(skip_serializing)]
    reasoning: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct PageToolCall {
    id: String,
    tool: String,
    /// The arguments as the LLM wrote them, when the call was executed with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
    /// The time of the ACTION_REQUEST; null without one.
    at: Option<Timestamp>,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The profile in the ENGINE_START before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    /// Whether it ran at the same time as the call before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    together: bool,
    args: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    /// What was asked before the call could start.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_request: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_decision: Option<Json>,
    /// Who approved the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Json>,
    result: Option<PageToolResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<PageExecution>,
}

#[derive(Debug, Serialize)]
struct PageToolResult {
    at: Timestamp,
    exit_code: Option<i32>,
    duration_ms: u64,
    truncated: bool,
    /// Whether the call gave the result of the run.
    ends: bool,
    /// What the sandbox refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<CallSandbox>,
    /// The observation.
    seen: PageText,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<PageImage>,
}

/// The process of a tool call or a hook.
#[derive(Debug, Default, Serialize)]
struct PageExecution {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// The hosts that a process in a sandbox with a list of hosts reached.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reached: BTreeMap<String, HostTrafficRecord>,
    #[serde(skip_serializing_if = "PageText::is_empty")]
    stdin: PageText,
    /// Without its text when the observation is the same text.
    #[serde(skip_serializing_if = "PageText::is_empty")]
    stdout: PageText,
    #[serde(skip_serializing_if = "PageText::is_empty")]
    stderr: PageText,
}

impl PageSource<'_> {
    /// Reads the next iteration.
    pub fn build_iteration(&mut self, iteration: &Iteration<'_>) -> PageIteration {
        let before = self.build_events(&iteration.events_before);
        let thought = iteration.thought.value;
        let (llm, recorded_reasoning) = match &thought.invocation {
            Some(name) => {
                let (llm, reasoning) = self.build_llm_call(name);
                (Some(llm), reasoning)
            }
            None => (None, None),
        };
        let reported = thought.usage.as_ref().map_or(0, |usage| usage.input_tokens);
        if let Some(estimated) = thought.estimated_tokens.filter(|_| reported > 0) {
            self.ratio = TokenRatio::new(reported, estimated);
        }
        PageIteration {
            n: thought.iteration,
            seq: iteration.thought.seq,
            at: iteration.thought.timestamp,
            before,
            thought: thought.content.clone(),
            markdown: None,
            reasoning: recorded_reasoning.or_else(|| thought.reasoning.clone()),
            finish_reason: thought.finish_reason.clone(),
            cut_off: thought.cut_off,
            usage: thought.usage.clone(),
            left_out: thought.left_out,
            llm,
            calls: self.build_tool_calls(&iteration.calls),
            around: self.build_events(&iteration.interleaved_events),
        }
    }

    /// Reads events that belong to no tool call: each as in the journal, with its record and its workspace changes.
    pub fn build_events(&mut self, events: &[EventRef<&Payload>]) -> Vec<Json> {
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            let mut value = to_json_value(event.value);
            value["seq"] = event.seq.into();
            value["at"] = to_json_value(event.timestamp);
            if let (Some(snapshots), Some(id)) = (&mut self.snapshots, event.value.snapshot_id()) {
                value["changes"] = to_json_value(snapshots.changes_until(id, self.capacity));
            }
            match event.value {
                Payload::HookExecution { record, .. } => {
                    value["io"] = to_json_value(self.build_execution(record, None));
                }
                Payload::UserMessage { images, .. } if !images.is_empty() => {
                    let images = page_image::read_page_images(&self.dir, images, self.capacity);
                    value["images"] = to_json_value(images);
                }
                Payload::Error { .. } => {
                    if let Some(name) = event.value.record_file() {
                        value["llm"] = to_json_value(self.build_llm_call(name).0);
                    }
                }
                _ => {}
            }
            out.push(value);
        }
        out
    }

    /// Reads the record `name` of an LLM call; also gives the reasoning in the record.
    fn build_llm_call(&mut self, name: &str) -> (PageLlmCall, Option<String>) {
        let mut llm_call = PageLlmCall { file: name.to_owned(), ..PageLlmCall::default() };
        let text = match run_files::read_run_record(&self.dir, name) {
            Ok(text) => text,
            Err(error) => {
                llm_call.missing = Some(error.to_string());
                return (llm_call, None);
            }
        };
        let mut reasoning = None;
        match parse_page_record::<PageLlmRecord>(&text) {
            Ok(mut record) => {
                reasoning = record.reasoning.take();
                llm_call.record = Some(record);
            }
            Err(reason) => llm_call.missing = Some(reason),
        }
        let recorded: HashedRequest<'_> = serde_json::from_str(&text).unwrap_or_default();
        if let (Some(requests), Some(_)) = (&mut self.requests, recorded.request) {
            let blocks = llm_call.record.as_ref().and_then(|record| record.context.as_deref());
            let attribution =
                BlockAttribution { blocks: blocks.unwrap_or_default(), ratio: self.ratio };
            let added = match self.recorded.read(name) {
                Ok(request) => requests.add(request, attribution, self.capacity),
                Err(error) => Err(error.to_string()),
            };
            match added {
                Ok(request) => llm_call.request = Some(request),
                Err(reason) => llm_call.no_request = Some(reason),
            }
        }
        (llm_call, reasoning)
    }

    fn build_tool_calls(&mut self, calls: &[CallHistory<'_>]) -> Vec<PageToolCall> {
        let mut previous = None;
        let mut out = Vec::with_capacity(calls.len());
        for call in calls {
            let together = previous.is_some_and(|previous| is_concurrent(previous, call));
            out.push(PageToolCall { together, ..self.build_tool_call(call) });
            previous = Some(call);
        }
        out
    }

    fn build_tool_call(&mut self, call: &CallHistory<'_>) -> PageToolCall {
        let function = &call.tool_call.function;
        let arguments = function.arguments.as_str();
        let request = call.request.as_ref().map(|event| event.value);
        let args = request.map_or(Json::Null, |request| request.tool_args.clone());
        let is_same = args.as_str() == Some(arguments)
            || serde_json::from_str::<Json>(arguments).is_ok_and(|parsed| parsed == args);
        let is_hidden = call.question.is_some_and(|question| question.value.sensitive);
        let hide = |text: &str| if is_hidden { HIDDEN } else { text }.to_owned();
        let observation = call.result.map(|event| hide(&event.value.observation_content));
        let record = request.and_then(|request| request.execution.as_deref());
        PageToolCall {
            id: call.id.clone(),
            tool: function.name.clone(),
            asked: (!is_same).then(|| arguments.to_owned()),
            at: call.request.as_ref().map(|event| event.timestamp),
            seq: call.request.as_ref().map(|event| event.seq),
            sandbox: request.and_then(|request| request.sandbox.clone()),
            together: false,
            args,
            argv: request.and_then(|request| request.argv.clone()),
            question: call.question.map(|event| to_json_value(event.value)),
            answer: call.answer.map(|event| hide(event.value)),
            approval_request: call.approval_request.map(|event| to_json_value(event.value)),
            approval_decision: call.approval_decision.map(|event| to_json_value(event.value)),
            approval: request.and_then(|request| request.approval.as_ref()).map(to_json_value),
            io: record.map(|name| {
                let mut execution = self.build_execution(name, observation.as_deref());
                if call.result.is_some_and(|event| !event.value.images.is_empty()) {
                    execution.stdout = PageText::default();
                }
                execution
            }),
            result: call.result.map(|event| PageToolResult {
                at: event.timestamp,
                exit_code: event.value.exit_code,
                duration_ms: event.value.duration_ms,
                truncated: event.value.truncated,
                ends: event.value.result.is_some(),
                sandbox: event.value.sandbox.as_deref().cloned(),
                seen: PageText::new(observation.as_deref().unwrap_or_default(), self.capacity),
                images: page_image::read_page_images(&self.dir, &event.value.images, self.capacity),
            }),
        }
    }

    /// Reads the record `name` of a process; `observation` is what the LLM got from it, once it ended.
    fn build_execution(&mut self, name: &str, observation: Option<&str>) -> PageExecution {
        let record = run_files::read_run_record(&self.dir, name);
        let record = record.map_err(|error| error.to_string());
        let process: ExecutedProcess = match record.and_then(|text| parse_page_record(&text)) {
            Ok(process) => process,
            Err(reason) => return self.unfinished_execution(name, reason),
        };
        let mut cut = |stream: Option<RecordedStream>| {
            stream.map(|stream| run_files::cut_stream(stream, &self.dir, name, self.capacity))
        };
        let is_hook = name.starts_with("io/hooks/");
        let stdin = cut(process.stdin).unwrap_or_default();
        let mut stdout = cut(process.outcome.stdout).unwrap_or_default();
        if stdout.tail.is_none() && observation == Some(&stdout.text) {
            stdout.text.clear();
        }
        PageExecution {
            file: name.to_owned(),
            missing: None,
            argv: Some(process.argv).filter(|_| is_hook || observation.is_none()),
            cwd: Some(process.cwd),
            ended: process.outcome.ended,
            failure: process.failure,
            duration_ms: Some(process.outcome.duration_ms),
            reached: process.sandbox.reached,
            stdin,
            stdout,
            stderr: cut(process.outcome.stderr).unwrap_or_default(),
        }
    }

    /// What a tool has printed that is still running, or whose engine died.
    fn unfinished_execution(&mut self, name: &str, reason: String) -> PageExecution {
        let stem = name.strip_suffix(".json").unwrap_or(name);
        let mut stream = |extension: &str| {
            let file = format!("{stem}.{extension}");
            let is_there = RecordFile::open(&self.dir, &file).is_ok();
            is_there.then(|| run_files::read_run_file(&self.dir, &file, self.capacity))
        };
        PageExecution {
            file: name.to_owned(),
            missing: Some(reason),
            stdout: stream("stdout").unwrap_or_default(),
            stderr: stream("stderr").unwrap_or_default(),
            ..PageExecution::default()
        }
    }
}

/// Whether `call` was requested before the call before it had a result.
///
/// Only a group of parallel calls has several requests without a result: of other calls, each waits for the one before.
fn is_concurrent(previous: &CallHistory<'_>, call: &CallHistory<'_>) -> bool {
    let Some(first) = &previous.request else { return false };
    let Some(second) = &call.request else { return false };
    first.seq < second.seq && previous.result.as_ref().is_none_or(|result| second.seq < result.seq)
}

/// The record of a tool or hook process, in one form.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ExecutedProcess {
    #[serde(alias = "command")]
    argv: Vec<String>,
    cwd: String,
    stdin: Option<RecordedStream>,
    #[serde(flatten)]
    outcome: ProcessOutcome,
    sandbox: ExecutionSandbox,
    failure: Option<String>,
}

fn parse_page_record<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not a record ({error})"))
}

fn to_json_value(value: impl Serialize) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}
