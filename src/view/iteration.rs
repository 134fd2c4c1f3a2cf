//! An answer of the LLM as the page has it: its request, its calls with what they printed, and what happened around.

use super::files::{self, Cut, Room, Stream};
use super::hidden::HIDDEN;
use super::requests::{Parts, Request, Requests};
use super::workspace::Snapshots;
use crate::event::Payload;
use crate::history::{self, At};
use crate::llm::Usage;
use crate::record::Block;
use crate::time::Timestamp;
use crate::tokens::Ratio;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

/// Where the data of one run comes from, and what it needs to be made.
pub struct Source<'r> {
    /// The run directory.
    pub dir: PathBuf,
    /// Its requests so far; `None` when they are not shown.
    pub requests: Option<Requests>,
    /// What the workspace was, when the run kept that.
    pub snapshots: Option<Snapshots>,
    /// What the page holds whole yet.
    pub room: &'r mut Room,
    /// What the endpoint counts, so far, for what is estimated.
    pub ratio: Ratio,
}

/// One answer of the LLM.
#[derive(Debug, Serialize)]
pub struct Iteration {
    n: u32,
    seq: u64,
    at: Timestamp,
    before: Vec<Json>,
    thought: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm: Option<Invocation>,
    calls: Vec<Call>,
    around: Vec<Json>,
}

/// How the LLM was asked.
#[derive(Debug, Default, Serialize)]
struct Invocation {
    /// The record.
    file: String,
    /// Why the record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<InvocationRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Request>,
    /// Why the request cannot be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_request: Option<String>,
}

/// What the page shows of a record of io/invocations.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct InvocationRecord {
    provider: Option<String>,
    model: Option<String>,
    started_at: Option<Timestamp>,
    duration_ms: u64,
    status: Option<u16>,
    attempts: Json,
    context: Option<Vec<Block>>,
    error: Option<String>,
    #[serde(skip_serializing)]
    reasoning: Option<String>,
}

/// A call of an answer.
#[derive(Debug, Serialize)]
struct Call {
    id: String,
    tool: String,
    /// The arguments as the LLM wrote them, where they are not those of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<String>,
    /// When it began; null when it did not.
    at: Option<Timestamp>,
    args: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    result: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Execution>,
}

/// What came of a call.
#[derive(Debug, Serialize)]
struct Outcome {
    at: Timestamp,
    exit_code: Option<i32>,
    duration_ms: u64,
    truncated: bool,
    /// Whether it is the result of the run.
    ends: bool,
    seen: Cut,
}

/// What was started for a call or as a hook.
#[derive(Debug, Default, Serialize)]
struct Execution {
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
    #[serde(skip_serializing_if = "Cut::is_empty")]
    stdin: Cut,
    /// Without its text where the observation is the same.
    #[serde(skip_serializing_if = "Cut::is_empty")]
    stdout: Cut,
    #[serde(skip_serializing_if = "Cut::is_empty")]
    stderr: Cut,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ExecutionRecord {
    argv: Option<Vec<String>>,
    command: Option<Vec<String>>,
    cwd: Option<String>,
    stdin: Stream,
    duration_ms: Option<u64>,
    ended: Option<String>,
    failure: Option<String>,
    stdout: Stream,
    stderr: Stream,
}

impl Source<'_> {
    /// An iteration with what its records say.
    pub fn iteration(&mut self, told: &history::Iteration<'_>) -> Iteration {
        let before = self.events(&told.before);
        let thought = told.thought.what;
        let (llm, beside) = match &thought.invocation {
            Some(name) => {
                let (llm, reasoning) = self.invocation(name);
                (Some(llm), reasoning)
            }
            None => (None, None),
        };
        let reported = thought.usage.as_ref().map_or(0, |usage| usage.input_tokens);
        if let Some(estimated) = thought.estimated_tokens.filter(|_| reported > 0) {
            self.ratio = Ratio::of(reported, estimated);
        }
        Iteration {
            n: thought.iteration,
            seq: told.thought.seq,
            at: told.thought.at,
            before,
            thought: thought.content.clone(),
            reasoning: beside.or_else(|| thought.reasoning.clone()),
            finish_reason: thought.finish_reason.clone(),
            usage: thought.usage.clone(),
            left_out: thought.left_out,
            llm,
            calls: told.calls.iter().map(|call| self.call(call)).collect(),
            around: self.events(&told.around),
        }
    }

    /// Events that belong to no call, each as the journal has it, with its record where it has one.
    pub fn events(&mut self, events: &[At<&Payload>]) -> Vec<Json> {
        let mut out = Vec::with_capacity(events.len());
        for event in events {
            let mut value = serde_json::to_value(event.what).unwrap_or_default();
            value["seq"] = event.seq.into();
            value["at"] = serde_json::to_value(event.at).unwrap_or_default();
            if let (Some(snapshots), Some(tree)) = (&mut self.snapshots, value["tree"].as_str()) {
                let changes = snapshots.next(tree, self.room);
                value["changes"] = serde_json::to_value(changes).unwrap_or_default();
            }
            match event.what {
                Payload::HookExecution { record, .. } => {
                    let io = self.execution(record, None);
                    value["io"] = serde_json::to_value(io).unwrap_or_default();
                }
                Payload::Error { error_details, .. } => {
                    if let Some(name) = &error_details.invocation {
                        let (llm, _) = self.invocation(name);
                        value["llm"] = serde_json::to_value(llm).unwrap_or_default();
                    }
                }
                _ => {}
            }
            out.push(value);
        }
        out
    }

    /// How the LLM was asked, and the reasoning that came with its answer.
    fn invocation(&mut self, name: &str) -> (Invocation, Option<String>) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Recorded<'a> {
            request_sha256: String,
            #[serde(borrow)]
            request: Option<&'a RawValue>,
        }
        let mut found = Invocation { file: name.to_owned(), ..Invocation::default() };
        let text = match files::record(&self.dir, name) {
            Ok(text) => text,
            Err(reason) => {
                found.missing = Some(reason);
                return (found, None);
            }
        };
        match serde_json::from_str::<InvocationRecord>(&text) {
            Ok(record) => found.record = Some(record),
            Err(error) => found.missing = Some(format!("it is no record ({error})")),
        }
        let recorded: Recorded<'_> = serde_json::from_str(&text).unwrap_or_default();
        if let (Some(requests), Some(request)) = (&mut self.requests, recorded.request) {
            let before = requests.texts.len();
            let full = "this page has no more room for requests";
            let added = match requests.is_full {
                true => Err(full.to_owned()),
                false => {
                    let blocks = found.record.as_ref().and_then(|record| record.context.as_deref());
                    let of = Parts { blocks: blocks.unwrap_or_default(), ratio: self.ratio };
                    requests.add(&self.dir, name, request.get(), recorded.request_sha256, of)
                }
            };
            match added {
                Ok(request) if requests.fit_in(before, self.room) => found.request = Some(request),
                Ok(_) => found.no_request = Some(full.to_owned()),
                Err(reason) => found.no_request = Some(reason),
            }
        }
        let reasoning = found.record.as_mut().and_then(|record| record.reasoning.take());
        (found, reasoning)
    }

    fn call(&mut self, told: &history::Call<'_>) -> Call {
        let asked = &told.asked.function;
        let request = told.request.as_ref().map(|at| at.what);
        let args = request.map_or(Json::Null, |request| request.tool_args.clone());
        let is_same = serde_json::from_str::<Json>(&asked.arguments)
            .is_ok_and(|asked| asked == args)
            || args.as_str() == Some(asked.arguments.as_str());
        let is_hidden = told.question.is_some_and(|question| question.what.sensitive);
        let fit = |text: &str| if is_hidden { HIDDEN.to_owned() } else { text.to_owned() };
        let observation = told.result.map(|at| fit(&at.what.observation_content));
        let io = request.and_then(|request| request.execution.as_deref());
        let io = io.map(|name| self.execution(name, observation.as_deref()));
        let room = &mut *self.room;
        Call {
            id: told.id.clone(),
            tool: asked.name.clone(),
            asked: (!is_same).then(|| asked.arguments.clone()),
            at: told.request.as_ref().map(|at| at.at),
            args,
            argv: request.and_then(|request| request.argv.clone()),
            question: told.question.map(|at| serde_json::to_value(at.what).unwrap_or_default()),
            answer: told.answer.map(|at| fit(at.what)),
            result: told.result.map(|at| Outcome {
                at: at.at,
                exit_code: at.what.exit_code,
                duration_ms: at.what.duration_ms,
                truncated: at.what.truncated,
                ends: at.what.result.is_some(),
                seen: Cut::of(observation.as_deref().unwrap_or_default(), room),
            }),
            io,
        }
    }

    /// What was started. `seen` is what the LLM saw of it, where it has ended.
    fn execution(&mut self, name: &str, seen: Option<&str>) -> Execution {
        let file = name.to_owned();
        let (dir, room) = (self.dir.as_path(), &mut *self.room);
        let text = files::record(dir, name);
        let record = text.as_ref().map_err(Clone::clone).and_then(|text| {
            serde_json::from_str::<ExecutionRecord>(text)
                .map_err(|error| format!("it is no record ({error})"))
        });
        let record = match record {
            Ok(record) => record,
            Err(reason) => return running(dir, file, reason, room),
        };
        let mut stdout = record.stdout.cut(dir, name, room);
        if stdout.tail.is_none() && seen == Some(&stdout.text) {
            stdout.text.clear();
        }
        Execution {
            file,
            missing: None,
            argv: record.command.or(record.argv.filter(|_| seen.is_none())),
            cwd: record.cwd,
            ended: record.ended,
            failure: record.failure,
            duration_ms: record.duration_ms,
            stdin: record.stdin.cut(dir, name, room),
            stdout,
            stderr: record.stderr.cut(dir, name, room),
        }
    }
}

/// What a tool has printed that runs, or whose engine died.
fn running(dir: &Path, file: String, reason: String, room: &mut Room) -> Execution {
    let stem = file.strip_suffix(".json").unwrap_or(&file);
    let mut stream = |end: &str| {
        let name = format!("{stem}.{end}");
        if dir.join(&name).is_file() { files::beside(dir, &name, room) } else { Cut::default() }
    };
    let (stdout, stderr) = (stream("stdout"), stream("stderr"));
    Execution { file, missing: Some(reason), stdout, stderr, ..Execution::default() }
}
