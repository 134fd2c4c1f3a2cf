//! OpenTelemetry: a run as spans with the semantic conventions for generative AI, in the form of OTLP/JSON.
//!
//! One span for the run, one for each call of the LLM, each call of a tool and each hook. Texts of people, of the LLM
//! and of tools are in it only when they are asked for.

use super::message;
use super::span::{self, Attributes, Kind, Span};
use super::subject::{Origin, Subject};
use crate::event::{ErrorDetails, Event, Payload, RunStatus};
use crate::history::{At, Call, History, Iteration};
use crate::outcome::RunResult;
use crate::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::HashMap;

/// The version of the conventions whose names are used.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// What the id of the span of a run is computed from, beside the run.
const RUN: &str = "run";
/// The most spans in one request.
const MOST_SPANS: usize = 512;
/// The most bytes of spans in one request, a single larger span apart.
const MOST_BYTES: usize = 2 * 1024 * 1024;

/// What of a run is exported, and under which name.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether texts are in it.
    pub content: bool,
    /// The name of the service that the spans belong to.
    pub service: String,
}

/// Requests to a collector.
#[derive(Debug)]
pub struct Batch {
    /// One request: a JSON object on a line.
    pub line: String,
    /// How many spans it has.
    pub spans: usize,
}

/// The requests that bring `subject` to a collector; as lines, they are a file of OTLP/JSON.
pub fn batches(subject: &Subject, options: &Options) -> Vec<Batch> {
    let root = subject.ancestors.last().map_or_else(|| subject.origin(), |top| top.origin.clone());
    let trace_id = span::trace_id(&root);
    let spans = Spans::of(subject, options);
    let spans = spans.found.into_iter().map(|span| span.into_json(&trace_id).to_string());
    let mut batches = Vec::new();
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for span in spans {
        if waiting.len() == MOST_SPANS || (bytes > 0 && bytes + span.len() > MOST_BYTES) {
            batches.push(batch(&std::mem::take(&mut waiting), options));
            bytes = 0;
        }
        bytes += span.len();
        waiting.push(span);
    }
    batches.push(batch(&waiting, options));
    batches
}

fn batch(spans: &[String], options: &Options) -> Batch {
    let mut resource = Attributes::default();
    resource.text("service.name", Some(&*options.service));
    resource.text("service.version", Some(env!("CARGO_PKG_VERSION")));
    let resource = json!({"attributes": resource.into_json()});
    let scope = json!({"name": "delta", "version": env!("CARGO_PKG_VERSION")});
    let line = format!(
        "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{scope},\"spans\":[{}],\
         \"schemaUrl\":\"{SCHEMA_URL}\"}}],\"schemaUrl\":\"{SCHEMA_URL}\"}}]}}\n",
        spans.join(",")
    );
    Batch { line, spans: spans.len() }
}

/// The spans of one run.
struct Spans<'a> {
    subject: &'a Subject,
    options: &'a Options,
    origin: Origin,
    run: String,
    found: Vec<Span>,
}

impl<'a> Spans<'a> {
    fn of(subject: &'a Subject, options: &'a Options) -> Self {
        let origin = subject.origin();
        let run = span::span_id(&origin, RUN);
        let mut spans = Self { subject, options, origin, run, found: Vec::new() };
        let history = History::of(&subject.events);
        spans.run(&history);
        let mut before = spans.begin();
        let mut iterations = history.iterations.iter();
        let calls = history.iterations.iter().flat_map(|one| &one.calls);
        let calls: HashMap<&str, &Call<'_>> = calls.map(|call| (&*call.id, call)).collect();
        let own = own(&subject.events);
        let (shared, mine) = subject.events.split_at(own);
        iterations.by_ref().take(answers(shared)).for_each(drop);
        for event in mine {
            let (seq, at) = (event.seq, event.timestamp);
            match &event.payload {
                Payload::Thought(_) => {
                    iterations.next().into_iter().for_each(|told| spans.chat(told, before));
                }
                Payload::Error { error_message, error_details } => {
                    spans.failed_chat(seq, at, error_message, error_details, before);
                }
                Payload::ActionRequest(request) => {
                    calls.get(&*request.call_id).into_iter().for_each(|call| spans.tool(call));
                }
                Payload::HookExecution { hook, exit_code, record, .. } => {
                    spans.hook(seq, at, hook, *exit_code, record);
                }
                _ => {}
            }
            before = at;
        }
        spans
    }

    fn begin(&self) -> Timestamp {
        self.subject.state.created_at.unwrap_or_else(|| Timestamp::from_millis(0))
    }

    fn end(&self) -> Timestamp {
        self.subject.state.worked_until.unwrap_or_else(|| self.begin())
    }

    /// The span of the run itself.
    fn run(&mut self, history: &History<'_>) {
        let (subject, state) = (self.subject, &self.subject.state);
        let start = subject.start();
        let name = start.map(|start| start.agent_name.as_str()).unwrap_or_default();
        let mut attributes = Attributes::default();
        attributes.text("gen_ai.operation.name", Some("invoke_agent"));
        attributes.text("gen_ai.provider.name", Some(provider(self.config("provider"))));
        attributes.text("gen_ai.agent.name", Some(name));
        attributes.text("gen_ai.conversation.id", Some(&*self.origin.run_id));
        attributes.text("gen_ai.request.model", self.config("model"));
        let result = RunResult::of(state);
        if let Some(usage) = result.as_ref().map(|result| &result.metrics.usage) {
            let counted = !usage.model_usage.is_empty();
            attributes.int("gen_ai.usage.input_tokens", counted.then_some(usage.input_tokens));
            attributes.int("gen_ai.usage.output_tokens", counted.then_some(usage.output_tokens));
            attributes.double("delta.cost_usd", usage.total_cost_usd);
        }
        attributes.text("delta.run.status", state.status.map(|status| status.to_string()));
        attributes.int("delta.run.iterations", Some(state.iterations));
        let parent = subject.ancestors.first();
        attributes.text("delta.parent.run_id", parent.map(|above| &*above.origin.run_id));
        let error = state.error.as_ref().filter(|_| state.status == Some(RunStatus::Failed));
        attributes.text("error.type", error.map(|(_, details)| &*details.kind));
        if self.options.content {
            attributes.json("gen_ai.input.messages", Some(message::of_people(history)));
            attributes
                .json("gen_ai.output.messages", state.result.as_ref().map(message::of_result));
        }
        let span = Span {
            id: self.run.clone(),
            parent: parent.map(|above| {
                let what = above.call_id.as_deref().map_or_else(|| RUN.to_owned(), call_key);
                span::span_id(&above.origin, &what)
            }),
            name: format!("invoke_agent {name}"),
            kind: Kind::Internal,
            start: self.begin(),
            end: self.end(),
            attributes,
            events: subject.events[own(&subject.events)..].iter().filter_map(happening).collect(),
            error: error.map(|(message, _)| message.clone()),
        };
        self.found.push(span);
    }

    /// What ENGINE_START says of the LLM.
    fn config(&self, name: &str) -> Option<&'a str> {
        self.subject.start()?.config.get("llm")?.get(name)?.as_str()
    }

    /// A call of the LLM that gave an answer.
    fn chat(&mut self, told: &Iteration<'_>, before: Timestamp) {
        let At { seq, at, what: thought } = told.thought;
        let mut span = self.asked(seq, thought.invocation.as_deref(), before, at);
        let reason = thought.finish_reason.clone();
        span.attributes.texts("gen_ai.response.finish_reasons", reason.into_iter().collect());
        if let Some(usage) = &thought.usage {
            let cached = Some(usage.cached_input_tokens).filter(|cached| *cached > 0);
            span.attributes.text("gen_ai.response.model", Some(&*usage.model));
            span.attributes.int("gen_ai.usage.input_tokens", Some(usage.input_tokens));
            span.attributes.int("gen_ai.usage.output_tokens", Some(usage.output_tokens));
            span.attributes.int("gen_ai.usage.cache_read.input_tokens", cached);
            span.attributes.double("delta.cost_usd", usage.cost_usd);
        }
        let response = self.subject.invocation(thought).and_then(|record| record.get("response"));
        if let Some(response) = response {
            let details = response.pointer("/usage/completion_tokens_details/reasoning_tokens");
            let id = response.get("id").and_then(Json::as_str);
            span.attributes.text("gen_ai.response.id", id);
            let reasoning = details.and_then(Json::as_u64);
            span.attributes.int("gen_ai.usage.reasoning.output_tokens", reasoning);
        }
        span.attributes.int("delta.iteration", Some(thought.iteration));
        if self.options.content {
            let reasoning = self.subject.reasoning(thought);
            let answer = message::of_thought(told, reasoning.as_deref());
            span.attributes.json("gen_ai.output.messages", Some(answer));
        }
        self.found.push(span);
    }

    /// A call of the LLM that gave none.
    fn failed_chat(
        &mut self,
        seq: u64,
        at: Timestamp,
        message: &str,
        details: &ErrorDetails,
        before: Timestamp,
    ) {
        let Some(name) = &details.invocation else { return };
        let mut span = self.asked(seq, Some(name), before, at);
        let kind = details.status.map_or_else(|| details.kind.clone(), |code| code.to_string());
        span.attributes.text("error.type", Some(kind));
        span.error = Some(message.to_owned());
        self.found.push(span);
    }

    /// What is known of a call of the LLM from its record.
    fn asked(&self, seq: u64, name: Option<&str>, before: Timestamp, at: Timestamp) -> Span {
        let record = self.subject.record(name);
        let text = |field: &str| record.and_then(|record| record.get(field)?.as_str());
        let model = text("model").or_else(|| self.config("model")).unwrap_or_default();
        let (start, end) = record.and_then(times).unwrap_or((before, at));
        let mut attributes = Attributes::default();
        attributes.text("gen_ai.operation.name", Some("chat"));
        let kind = text("provider").or_else(|| self.config("provider"));
        attributes.text("gen_ai.provider.name", Some(provider(kind)));
        attributes.text("gen_ai.request.model", Some(model));
        attributes.text("gen_ai.conversation.id", Some(&*self.origin.run_id));
        if let Some(request) = record.and_then(|record| record.get("request")) {
            parameters(&mut attributes, request);
        }
        if self.options.content
            && let Some(request) = self.subject.request(name)
        {
            attributes.json("gen_ai.input.messages", Some(message::of_request(&request)));
            attributes.json("gen_ai.tool.definitions", message::of_tools(&request));
        }
        let attempts = record.and_then(|record| record.get("attempts")?.as_array());
        Span {
            id: span::span_id(&self.origin, &format!("chat {seq}")),
            parent: Some(self.run.clone()),
            name: format!("chat {model}"),
            kind: Kind::Client,
            start,
            end,
            attributes,
            events: attempts.into_iter().flatten().filter_map(attempt).collect(),
            error: None,
        }
    }

    /// A call of a tool that has begun.
    fn tool(&mut self, call: &Call<'_>) {
        let Some(request) = call.request else { return };
        let result = call.result.map(|result| result.what);
        let name = result.and_then(|result| result.execution.as_deref());
        let record = self.subject.record(name.or(request.what.execution.as_deref()));
        let last = call.result.map_or_else(|| self.end(), |result| result.at);
        let (start, end) = record.and_then(times).unwrap_or((request.at, last));
        let mut attributes = Attributes::default();
        attributes.text("gen_ai.operation.name", Some("execute_tool"));
        attributes.text("gen_ai.tool.name", Some(&*request.what.tool_name));
        attributes.text("gen_ai.tool.call.id", Some(&*call.id));
        attributes.text("gen_ai.tool.type", Some("function"));
        attributes.text("gen_ai.conversation.id", Some(&*self.origin.run_id));
        let code = result.and_then(|result| result.exit_code);
        let started = request.what.argv.is_some();
        attributes.int("process.exit.code", code.filter(|_| started));
        attributes.int("delta.iteration", Some(request.what.iteration));
        attributes.bool("delta.call.unfinished", result.is_none().then_some(true));
        let ended = record.and_then(|record| record.get("ended")?.as_str());
        let failure = result.and_then(|_| failure(code, started, ended));
        attributes.text("error.type", failure.as_ref().map(|(kind, _)| *kind));
        if self.options.content {
            let arguments = request.what.tool_args.clone();
            attributes.json("gen_ai.tool.call.arguments", Some(arguments));
            let observation = result.map(|result| &*result.observation_content);
            attributes.text("gen_ai.tool.call.result", observation);
        }
        self.found.push(Span {
            id: span::span_id(&self.origin, &call_key(&call.id)),
            parent: Some(self.run.clone()),
            name: format!("execute_tool {}", request.what.tool_name),
            kind: Kind::Internal,
            start,
            end,
            attributes,
            events: Vec::new(),
            error: failure.map(|(_, words)| words),
        });
    }

    fn hook(&mut self, seq: u64, at: Timestamp, hook: &str, code: Option<i32>, record: &str) {
        let record = self.subject.record(Some(record));
        let (start, end) = record.and_then(times).unwrap_or((at, at));
        let mut attributes = Attributes::default();
        attributes.text("delta.hook.name", Some(hook));
        attributes.int("process.exit.code", code);
        let ended = record.and_then(|record| record.get("ended")?.as_str());
        let failure = failure(code, true, ended);
        attributes.text("error.type", failure.as_ref().map(|(kind, _)| *kind));
        self.found.push(Span {
            id: span::span_id(&self.origin, &format!("hook {seq}")),
            parent: Some(self.run.clone()),
            name: format!("hook {hook}"),
            kind: Kind::Internal,
            start,
            end,
            attributes,
            events: Vec::new(),
            error: failure.map(|(_, words)| words),
        });
    }
}

/// The place of the first event that a run has not copied from the one that it was made of: that other run tells of those.
fn own(events: &[Event]) -> usize {
    events.iter().rposition(|event| matches!(event.payload, Payload::Fork(_))).unwrap_or(0)
}

/// How many answers of the LLM are among some events.
fn answers(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.payload, Payload::Thought(_))).count()
}

/// What of a run is told beside its spans.
fn happening(event: &Event) -> Option<Json> {
    let mut attributes = Attributes::default();
    let name = match &event.payload {
        Payload::EngineStart(start) => {
            attributes.int("delta.epoch", Some(start.epoch));
            "delta.engine_start"
        }
        Payload::EngineEnd { status, .. } => {
            attributes.text("delta.run.status", Some(status.to_string()));
            "delta.engine_end"
        }
        Payload::Error { error_message, error_details } => {
            attributes.text("exception.type", Some(&*error_details.kind));
            attributes.text("exception.message", Some(&**error_message));
            "exception"
        }
        _ => return None,
    };
    Some(span::event(name, event.timestamp, attributes))
}

/// What the span of a call is computed from: the run that it starts knows the call by its id alone.
fn call_key(call_id: &str) -> String {
    format!("call {call_id}")
}

/// The provider: a name of the conventions where there is one.
fn provider(kind: Option<&str>) -> String {
    match kind {
        Some("openai") => "openai".to_owned(),
        Some(kind) => format!("delta.{kind}"),
        None => "_OTHER".to_owned(),
    }
}

/// When what a record is of began and ended.
fn times(record: &Json) -> Option<(Timestamp, Timestamp)> {
    let start = Timestamp::deserialize(record.get("started_at")?).ok()?;
    let length = i64::try_from(record.get("duration_ms")?.as_u64()?).ok()?;
    Some((start, Timestamp::from_millis(start.millis().checked_add(length)?)))
}

/// Why a program failed, as a word and as words; `None` when it did not.
fn failure(
    code: Option<i32>,
    started: bool,
    ended: Option<&str>,
) -> Option<(&'static str, String)> {
    let kind = match (code, ended) {
        (Some(0), _) => return None,
        (Some(code), _) => return Some(("exit_code", format!("exit code {code}"))),
        (None, _) if !started => return Some(("refused", "nothing was started".to_owned())),
        (None, None) => return Some(("unknown", "its outcome is not known".to_owned())),
        (None, Some("timed out")) => "timeout",
        (None, Some("interrupted")) => "interrupted",
        (None, Some(ended)) if ended.starts_with("killed by ") => "signal",
        (None, Some(_)) => "not_started",
    };
    Some((kind, ended.unwrap_or_default().to_owned()))
}

/// What the request asks for, beside the messages.
fn parameters(attributes: &mut Attributes, request: &Json) {
    let number = |name: &str| request.get(name).and_then(Json::as_f64);
    let whole = |name: &str| request.get(name).and_then(Json::as_i64);
    attributes.bool("gen_ai.request.stream", request.get("stream").and_then(Json::as_bool));
    let most = whole("max_completion_tokens").or_else(|| whole("max_tokens"));
    attributes.int("gen_ai.request.max_tokens", most);
    attributes.int("gen_ai.request.seed", whole("seed"));
    for name in ["temperature", "top_p", "frequency_penalty", "presence_penalty"] {
        attributes.double(&format!("gen_ai.request.{name}"), number(name));
    }
    let stop = match request.get("stop") {
        Some(Json::String(one)) => vec![one.clone()],
        Some(Json::Array(all)) => all.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    attributes.texts("gen_ai.request.stop_sequences", stop);
}

/// A try that failed and was followed by another.
fn attempt(attempt: &Json) -> Option<Json> {
    let start = Timestamp::deserialize(attempt.get("started_at")?).ok()?;
    let mut attributes = Attributes::default();
    let status = attempt.get("status").and_then(Json::as_u64);
    attributes.int("http.response.status_code", status);
    let error = attempt.get("error").and_then(Json::as_str);
    attributes.text("delta.attempt.error", error);
    Some(span::event("delta.attempt_failed", start, attributes))
}
