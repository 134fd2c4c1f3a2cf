//! Converts a run to OpenTelemetry spans in OTLP/JSON, with the semantic conventions for generative AI.
//!
//! The run, each LLM call, each tool call and each hook has a span. Messages and tool output are included only on
//! request.

use super::exported_run::{ExportedRun, RunIdentity};
use super::gen_ai_message;
use super::span::{self, Span, SpanAttributes, SpanKind};
use delta_base::time::Timestamp;
use delta_run::conversation::history::{CallHistory, EventRef, Iteration, RunHistory};
use delta_run::event::{ErrorDetails, Event, Payload, RunStatus, image_file};
use delta_run::record::RecordedRequests;
use delta_run::run_result::RunResult;
use delta_words::Usage;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The schema of the semantic conventions that the attributes follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.41.0";

/// The key of the run's own span, see [`span::span_id`].
const RUN_SPAN_KEY: &str = "run";
const MAX_BATCH_SPANS: usize = 512;
/// The most bytes of spans in one request, unless a single span is larger.
const MAX_BATCH_BYTES: usize = 2 * 1024 * 1024;

/// What the spans contain.
#[derive(Debug, Clone)]
pub struct OtlpOptions {
    /// Which texts the spans include; `None` for no texts.
    pub content: Option<SpanContent>,
    /// The `service.name` of the spans.
    pub service: String,
}

/// One request to a collector.
#[derive(Debug)]
pub struct SpanBatch {
    /// The request as a line of JSON.
    pub line: String,
    /// The number of spans in it.
    pub spans: usize,
}

impl SpanBatch {
    /// The request as parsed JSON.
    pub fn request(&self) -> Json {
        serde_json::from_str(&self.line).unwrap_or_default()
    }
}

/// The texts in the spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SpanContent {
    /// Only new texts: the messages and tools of a request that the previous request did not have
    New,
    /// All texts: the whole conversation of each request
    All,
}

/// Builds the requests for a collector. As lines, they are an OTLP/JSON file.
pub fn build_span_batches(run: &ExportedRun, options: &OtlpOptions) -> Vec<SpanBatch> {
    let trace_id = trace_id_of(run);
    let spans = RunSpans::build(run, options).spans.into_iter();
    pack_spans(spans.map(|span| span.into_json(&trace_id).to_string()), options)
}

/// The spans of a run that were sent, as they were.
#[derive(Debug, Clone, Default)]
pub struct SentSpans(HashMap<String, u64>);

/// Builds the requests with the spans that have ended and that `sent` does not have as they are now, and adds them to `sent`. The
/// span of the run, and calls without a result, follow when no process works on the run.
pub fn build_new_span_batches(
    run: &ExportedRun,
    options: &OtlpOptions,
    sent: &mut SentSpans,
) -> Vec<SpanBatch> {
    let trace_id = trace_id_of(run);
    let is_running = run.state.status == Some(RunStatus::Running);
    let mut spans = RunSpans::build(run, options).spans;
    spans.retain(|span| span.has_ended || !is_running);
    let mut new = Vec::new();
    for span in spans {
        let id = span.id.clone();
        let text = span.into_json(&trace_id).to_string();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let digest = hasher.finish();
        if sent.0.insert(id, digest) != Some(digest) {
            new.push(text);
        }
    }
    if new.is_empty() { Vec::new() } else { pack_spans(new.into_iter(), options) }
}

fn trace_id_of(run: &ExportedRun) -> String {
    let root = run.ancestors.last().map_or_else(|| run.identity(), |root| root.identity.clone());
    span::trace_id(&root)
}

fn pack_spans(spans: impl Iterator<Item = String>, options: &OtlpOptions) -> Vec<SpanBatch> {
    let mut batches = Vec::new();
    let mut pending = Vec::new();
    let mut bytes = 0;
    for span in spans {
        if pending.len() == MAX_BATCH_SPANS || (bytes > 0 && bytes + span.len() > MAX_BATCH_BYTES) {
            batches.push(build_span_batch(&std::mem::take(&mut pending), options));
            bytes = 0;
        }
        bytes += span.len();
        pending.push(span);
    }
    batches.push(build_span_batch(&pending, options));
    batches
}

fn build_span_batch(spans: &[String], options: &OtlpOptions) -> SpanBatch {
    let mut resource = SpanAttributes::default();
    resource.add_text("service.name", Some(&*options.service));
    resource.add_text("service.version", Some(env!("CARGO_PKG_VERSION")));
    let resource = json!({"attributes": resource.into_json()});
    let scope = json!({"name": "delta", "version": env!("CARGO_PKG_VERSION")});
    let line = format!(
        "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{scope},\"spans\":[{}],\
         \"schemaUrl\":\"{SCHEMA_URL}\"}}],\"schemaUrl\":\"{SCHEMA_URL}\"}}]}}\n",
        spans.join(",")
    );
    SpanBatch { line, spans: spans.len() }
}

struct RunSpans<'a> {
    exported: &'a ExportedRun,
    options: &'a OtlpOptions,
    identity: RunIdentity,
    run_span_id: String,
    requests: RecordedRequests,
    previous_request: PreviousRequest,
    spans: Vec<Span>,
}

/// What the previous request had, so that the next one does not repeat it.
#[derive(Debug, Default)]
struct PreviousRequest {
    /// Its messages as text, in order.
    messages: Vec<String>,
    tools: Json,
}

impl PreviousRequest {
    /// Removes the messages and tools that the previous request had. `request` is without its first `shared` messages, which
    /// the previous request had too. Gives the number of repeated messages.
    fn remove_repeated(&mut self, request: &mut Json, shared: usize) -> usize {
        let mut previous: HashMap<String, usize> = HashMap::new();
        for message in self.messages.split_off(shared.min(self.messages.len())) {
            *previous.entry(message).or_default() += 1;
        }
        let mut repeated = shared;
        if let Some(messages) = request.get_mut("messages").and_then(Json::as_array_mut) {
            messages.retain(|message| {
                let text = message.to_string();
                let count = previous.get_mut(&text).filter(|count| **count > 0);
                let is_repeated = count.map(|count| *count -= 1).is_some();
                repeated += usize::from(is_repeated);
                self.messages.push(text);
                !is_repeated
            });
        }
        let tools = request.get("tools").cloned().unwrap_or_default();
        if tools == self.tools
            && let Some(request) = request.as_object_mut()
        {
            request.shift_remove("tools");
        }
        self.tools = tools;
        repeated
    }
}

impl<'a> RunSpans<'a> {
    fn build(exported: &'a ExportedRun, options: &'a OtlpOptions) -> Self {
        let identity = exported.identity();
        let mut spans = Self {
            exported,
            options,
            run_span_id: span::span_id(&identity, RUN_SPAN_KEY),
            identity,
            requests: RecordedRequests::new(&exported.dir),
            previous_request: PreviousRequest::default(),
            spans: Vec::new(),
        };
        let history = RunHistory::from_events(&exported.events);
        spans.add_run(&history);
        let calls = history.iterations.iter().flat_map(|iteration| &iteration.calls);
        let calls: HashMap<&str, &CallHistory<'_>> = calls.map(|call| (&*call.id, call)).collect();
        let (copied, own_events) = exported.events.split_at(own_events_start(&exported.events));
        let mut iterations = history.iterations.iter().skip(count_thoughts(copied));
        let mut previous = spans.start_time();
        for event in own_events {
            let seq = event.seq;
            let at = event.timestamp;
            match &event.payload {
                Payload::Thought(_) => {
                    if let Some(iteration) = iterations.next() {
                        spans.add_chat(iteration, previous);
                    }
                }
                Payload::Error { error_message, error_details } => {
                    let event = EventRef { seq, timestamp: at, value: error_details };
                    spans.add_failed_chat(&event, error_message, previous);
                }
                Payload::ActionRequest(request) => {
                    if let Some(call) = calls.get(&*request.call_id) {
                        spans.add_tool_call(call);
                    }
                }
                Payload::HookExecution { hook, exit_code, record, .. } => {
                    spans.add_hook(seq, at, hook, *exit_code, record);
                }
                _ => {}
            }
            previous = at;
        }
        spans
    }

    fn start_time(&self) -> Timestamp {
        self.exported.state.created_at.unwrap_or_else(|| Timestamp::from_millis(0))
    }

    fn end_time(&self) -> Timestamp {
        self.exported.state.worked_until.unwrap_or_else(|| self.start_time())
    }

    fn add_run(&mut self, history: &RunHistory<'_>) {
        let state = &self.exported.state;
        let start = self.exported.engine_start();
        let name = start.map(|start| start.agent_name.as_str()).unwrap_or_default();
        let mut attributes = SpanAttributes::default();
        attributes.add_text("gen_ai.operation.name", Some("invoke_agent"));
        attributes.add_text("gen_ai.provider.name", Some(otel_provider_name(self.provider())));
        attributes.add_text("gen_ai.agent.name", Some(name));
        attributes.add_text("gen_ai.conversation.id", Some(&*self.identity.run_id));
        attributes.add_text("gen_ai.request.model", self.model());
        let result = RunResult::from_state(state);
        if let Some(usage) = result.as_ref().map(|result| &result.metrics.usage) {
            let is_reported = !usage.model_usage.is_empty();
            attributes
                .add_int("gen_ai.usage.input_tokens", is_reported.then_some(usage.input_tokens));
            attributes
                .add_int("gen_ai.usage.output_tokens", is_reported.then_some(usage.output_tokens));
            attributes.add_double("delta.cost_usd", usage.total_cost_usd);
        }
        attributes.add_text("delta.run.status", state.status.map(|status| status.to_string()));
        attributes.add_int("delta.run.iterations", Some(state.iterations));
        let parent = self.exported.ancestors.first();
        attributes.add_text("delta.parent.run_id", parent.map(|parent| &*parent.identity.run_id));
        let error = state.error.as_ref().filter(|_| state.status == Some(RunStatus::Failed));
        attributes.add_text("error.type", error.map(|(_, details)| &*details.kind));
        if self.options.content.is_some() {
            let input = gen_ai_message::user_input_messages(history);
            attributes.add_json("gen_ai.input.messages", Some(input));
            let output = state.result.as_ref().map(gen_ai_message::run_result_messages);
            attributes.add_json("gen_ai.output.messages", output);
        }
        let own_events = &self.exported.events[own_events_start(&self.exported.events)..];
        self.spans.push(Span {
            id: self.run_span_id.clone(),
            parent: parent.map(|parent| {
                let call_id = parent.call_id.as_deref();
                let key = call_id.map_or_else(|| RUN_SPAN_KEY.to_owned(), call_span_key);
                span::span_id(&parent.identity, &key)
            }),
            name: format!("invoke_agent {name}"),
            kind: SpanKind::Internal,
            start: self.start_time(),
            end: self.end_time(),
            attributes,
            events: own_events.iter().filter_map(lifecycle_event).collect(),
            error: error.map(|(message, _)| message.clone()),
            has_ended: state.status != Some(RunStatus::Running),
        });
    }

    fn provider(&self) -> Option<&'a str> {
        self.exported.engine_start()?.config.provider()
    }

    fn model(&self) -> Option<&'a str> {
        self.exported.engine_start()?.config.model()
    }

    /// The provider and the model that the call with this record asked.
    fn asked_llm(&self, name: Option<&str>) -> (Option<&'a str>, Option<&'a str>) {
        let record = self.exported.record(name);
        let text = |field: &str| record.and_then(|record| record.get(field)?.as_str());
        (text("provider").or_else(|| self.provider()), text("model").or_else(|| self.model()))
    }

    fn add_chat(&mut self, iteration: &Iteration<'_>, previous: Timestamp) {
        let thought = iteration.thought.value;
        let name = thought.invocation.as_deref();
        let mut span = self.chat_span(&iteration.thought, name, previous);
        let until = span.start;
        let discarded = &thought.discarded_usage;
        self.add_discarded_chats(&iteration.thought, name, discarded, previous, until);
        let reason = thought.finish_reason.clone();
        span.attributes.add_texts("gen_ai.response.finish_reasons", reason.into_iter().collect());
        if let Some(usage) = &thought.usage {
            set_usage_attributes(&mut span.attributes, usage);
        }
        let response = self.exported.invocation(thought).and_then(|record| record.get("response"));
        if let Some(response) = response {
            let id = response.get("id").and_then(Json::as_str);
            span.attributes.add_text("gen_ai.response.id", id);
            // The events of earlier versions do not have them.
            if thought.usage.as_ref().is_none_or(|usage| usage.reasoning_tokens.is_none()) {
                let tokens = response.pointer("/usage/completion_tokens_details/reasoning_tokens");
                let tokens = tokens.and_then(Json::as_u64);
                span.attributes.add_int("gen_ai.usage.reasoning.output_tokens", tokens);
            }
        }
        span.attributes.add_int("delta.iteration", Some(thought.iteration));
        if self.options.content.is_some() {
            let reasoning = self.exported.reasoning(thought);
            let answer = gen_ai_message::answer_messages(iteration, reasoning.as_deref());
            span.attributes.add_json("gen_ai.output.messages", Some(answer));
        }
        self.spans.push(span);
    }

    fn add_failed_chat(
        &mut self,
        event: &EventRef<&ErrorDetails>,
        message: &str,
        previous: Timestamp,
    ) {
        let details = event.value;
        let discarded = &details.discarded_usage;
        let Some(name) = &details.invocation else {
            self.add_discarded_chats(event, None, discarded, previous, event.timestamp);
            return;
        };
        let mut span = self.chat_span(event, Some(name), previous);
        // An answer that broke off began with status 200.
        let status = details.status.filter(|status| *status >= 400);
        let kind = status.map_or_else(|| details.kind.clone(), |status| status.to_string());
        span.attributes.add_text("error.type", Some(kind));
        // An answer that is refused, such as one that was cut off, still costs tokens.
        let usage = self.exported.record(Some(name)).and_then(|record| record.get("usage"));
        let usage = usage.and_then(|usage| Usage::deserialize(usage).ok());
        if let Some(usage) = &usage {
            set_usage_attributes(&mut span.attributes, usage);
        }
        // The answer of this call is the last one that was discarded.
        let earlier = discarded.len().saturating_sub(usize::from(usage.is_some()));
        self.add_discarded_chats(event, Some(name), &discarded[..earlier], previous, span.start);
        span.error = Some(message.to_owned());
        self.spans.push(span);
    }

    /// The spans of answers that were paid for and discarded before `until`. The journal has their usage alone; the record
    /// `name` says which model was asked.
    fn add_discarded_chats<T>(
        &mut self,
        event: &EventRef<T>,
        name: Option<&str>,
        usages: &[Option<Usage>],
        previous: Timestamp,
        until: Timestamp,
    ) {
        let (provider, asked_model) = self.asked_llm(name);
        for (index, usage) in usages.iter().enumerate() {
            let model = usage.as_ref().map(|usage| &*usage.model).or(asked_model);
            let model = model.unwrap_or_default();
            let mut attributes = SpanAttributes::default();
            attributes.add_text("gen_ai.operation.name", Some("chat"));
            attributes.add_text("gen_ai.provider.name", Some(otel_provider_name(provider)));
            attributes.add_text("gen_ai.request.model", asked_model);
            attributes.add_text("gen_ai.conversation.id", Some(&*self.identity.run_id));
            attributes.add_text("error.type", Some("discarded"));
            if let Some(usage) = usage {
                set_usage_attributes(&mut attributes, usage);
            }
            self.spans.push(Span {
                kind: SpanKind::Client,
                attributes,
                error: Some("the answer does not count".to_owned()),
                ..self.part_of_run(
                    &format!("chat {} discarded {index}", event.seq),
                    format!("chat {model}"),
                    previous.min(until),
                    until,
                )
            });
        }
    }

    /// The span of an LLM call as far as its record describes it. Without a record it lasts from the previous event.
    fn chat_span<T>(
        &mut self,
        event: &EventRef<T>,
        name: Option<&str>,
        previous: Timestamp,
    ) -> Span {
        let record = self.exported.record(name);
        let (provider, model) = self.asked_llm(name);
        let model = model.unwrap_or_default();
        let times = record.and_then(record_times).unwrap_or((previous, event.timestamp));
        let mut attributes = SpanAttributes::default();
        attributes.add_text("gen_ai.operation.name", Some("chat"));
        attributes.add_text("gen_ai.provider.name", Some(otel_provider_name(provider)));
        attributes.add_text("gen_ai.request.model", Some(model));
        attributes.add_text("gen_ai.conversation.id", Some(&*self.identity.run_id));
        if let Some(request) = record.and_then(|record| record.get("request")) {
            set_request_parameters(&mut attributes, request);
        }
        if let Some(content) = self.options.content
            && let Some(body) = name.and_then(|name| self.requests.get(name).ok())
            && let known = if content == SpanContent::New { body.shared_messages() } else { 0 }
            && let Some(mut request) =
                self.exported.parse_request(&body.without_first_messages(known))
        {
            if content == SpanContent::New {
                let repeated = self.previous_request.remove_repeated(&mut request, known);
                attributes.add_int("delta.input.messages.repeated", Some(repeated));
            }
            let messages = gen_ai_message::request_messages(&request);
            attributes.add_json("gen_ai.input.messages", Some(messages));
            let tools = gen_ai_message::request_tool_definitions(&request);
            attributes.add_json("gen_ai.tool.definitions", tools);
        }
        let attempts = record.and_then(|record| record.get("attempts")?.as_array());
        Span {
            kind: SpanKind::Client,
            attributes,
            events: attempts.into_iter().flatten().filter_map(failed_attempt_event).collect(),
            ..self.part_of_run(
                &format!("chat {}", event.seq),
                format!("chat {model}"),
                times.0,
                times.1,
            )
        }
    }

    fn add_tool_call(&mut self, call: &CallHistory<'_>) {
        let Some(request) = call.request else { return };
        let result = call.result.map(|result| result.value);
        let name = result.and_then(|result| result.execution.as_deref());
        let record = self.exported.record(name.or(request.value.execution.as_deref()));
        let result_time = call.result.map_or_else(|| self.end_time(), |result| result.timestamp);
        let times = record.and_then(record_times).unwrap_or((request.timestamp, result_time));
        let mut attributes = SpanAttributes::default();
        attributes.add_text("gen_ai.operation.name", Some("execute_tool"));
        attributes.add_text("gen_ai.tool.name", Some(&*request.value.tool_name));
        attributes.add_text("gen_ai.tool.call.id", Some(&*call.id));
        attributes.add_text("gen_ai.tool.type", Some("function"));
        attributes.add_text("gen_ai.conversation.id", Some(&*self.identity.run_id));
        let code = result.and_then(|result| result.exit_code);
        let started = request.value.argv.is_some();
        attributes.add_int("process.exit.code", code.filter(|_| started));
        attributes.add_int("delta.iteration", Some(request.value.iteration));
        attributes.add_bool("delta.call.unfinished", result.is_none().then_some(true));
        let end_reason = record.and_then(|record| record.get("ended")?.as_str());
        let failure = result.and_then(|_| program_failure(code, started, end_reason));
        attributes.add_text("error.type", failure.as_ref().map(|(kind, _)| *kind));
        if self.options.content.is_some() {
            let arguments = request.value.tool_args.clone();
            attributes.add_json("gen_ai.tool.call.arguments", Some(arguments));
            let observation = result.map(|result| {
                image_file::text_with_images(&result.observation_content, &result.images)
            });
            attributes.add_text("gen_ai.tool.call.result", observation);
        }
        let name = format!("execute_tool {}", request.value.tool_name);
        self.spans.push(Span {
            attributes,
            error: failure.map(|(_, message)| message),
            has_ended: result.is_some(),
            ..self.part_of_run(&call_span_key(&call.id), name, times.0, times.1)
        });
    }

    fn add_hook(&mut self, seq: u64, at: Timestamp, hook: &str, code: Option<i32>, record: &str) {
        let record = self.exported.record(Some(record));
        let times = record.and_then(record_times).unwrap_or((at, at));
        let mut attributes = SpanAttributes::default();
        attributes.add_text("delta.hook.name", Some(hook));
        attributes.add_int("process.exit.code", code);
        let end_reason = record.and_then(|record| record.get("ended")?.as_str());
        let failure = program_failure(code, true, end_reason);
        attributes.add_text("error.type", failure.as_ref().map(|(kind, _)| *kind));
        self.spans.push(Span {
            attributes,
            error: failure.map(|(_, message)| message),
            ..self.part_of_run(&format!("hook {seq}"), format!("hook {hook}"), times.0, times.1)
        });
    }

    /// A span in the one of the run; `key` is unique in it.
    fn part_of_run(&self, key: &str, name: String, start: Timestamp, end: Timestamp) -> Span {
        Span {
            id: span::span_id(&self.identity, key),
            parent: Some(self.run_span_id.clone()),
            name,
            kind: SpanKind::Internal,
            start,
            end,
            attributes: SpanAttributes::default(),
            events: Vec::new(),
            error: None,
            has_ended: true,
        }
    }
}

fn set_usage_attributes(attributes: &mut SpanAttributes, usage: &Usage) {
    let cached = Some(usage.cached_input_tokens).filter(|cached| *cached > 0);
    attributes.add_text("gen_ai.response.model", Some(&*usage.model));
    attributes.add_int("gen_ai.usage.input_tokens", Some(usage.input_tokens));
    attributes.add_int("gen_ai.usage.output_tokens", Some(usage.output_tokens));
    attributes.add_int("gen_ai.usage.cache_read.input_tokens", cached);
    attributes.add_int("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens);
    attributes.add_int("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens);
    attributes.add_double("delta.cost_usd", usage.cost_usd);
}

/// The index of the first event that was not copied by a fork: the other run exports the copied ones.
fn own_events_start(events: &[Event]) -> usize {
    events.iter().rposition(|event| matches!(event.payload, Payload::Fork(_))).unwrap_or(0)
}

fn count_thoughts(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event.payload, Payload::Thought(_))).count()
}

/// The event on the run's span for an event of the journal.
fn lifecycle_event(event: &Event) -> Option<Json> {
    let mut attributes = SpanAttributes::default();
    let name = match &event.payload {
        Payload::EngineStart(start) => {
            attributes.add_int("delta.epoch", Some(start.epoch));
            "delta.engine_start"
        }
        Payload::EngineEnd { status, .. } => {
            attributes.add_text("delta.run.status", Some(status.to_string()));
            "delta.engine_end"
        }
        Payload::Error { error_message, error_details } => {
            attributes.add_text("exception.type", Some(&*error_details.kind));
            attributes.add_text("exception.message", Some(&**error_message));
            "exception"
        }
        _ => return None,
    };
    Some(span::span_event(name, event.timestamp, attributes))
}

/// The key of a call's span. A child run knows only the id of the call that started it.
fn call_span_key(call_id: &str) -> String {
    format!("call {call_id}")
}

/// The provider's name in the semantic conventions, if it has one.
fn otel_provider_name(kind: Option<&str>) -> String {
    match kind {
        Some("openai" | "responses") => "openai".to_owned(),
        Some("anthropic") => "anthropic".to_owned(),
        // AI Studio or Vertex.
        Some("gemini") => "gcp.gen_ai".to_owned(),
        Some(kind) => format!("delta.{kind}"),
        None => "_OTHER".to_owned(),
    }
}

/// The start and the end of what a record describes.
fn record_times(record: &Json) -> Option<(Timestamp, Timestamp)> {
    let start = Timestamp::deserialize(record.get("started_at")?).ok()?;
    let length = i64::try_from(record.get("duration_ms")?.as_u64()?).ok()?;
    Some((start, Timestamp::from_millis(start.as_millis().checked_add(length)?)))
}

/// Why a program failed, as an `error.type` and a message; `None` when it succeeded.
fn program_failure(
    code: Option<i32>,
    started: bool,
    end_reason: Option<&str>,
) -> Option<(&'static str, String)> {
    let kind = match (code, end_reason) {
        (Some(0), _) => return None,
        (Some(code), _) => return Some(("exit_code", format!("exit code {code}"))),
        (None, _) if !started => return Some(("refused", "nothing was started".to_owned())),
        (None, None) => return Some(("unknown", "its outcome is unknown".to_owned())),
        (None, Some("timed out")) => "timeout",
        (None, Some("interrupted")) => "interrupted",
        (None, Some(reason)) if reason.starts_with("killed by ") => "signal",
        (None, Some(_)) => "not_started",
    };
    Some((kind, end_reason.unwrap_or_default().to_owned()))
}

fn set_request_parameters(attributes: &mut SpanAttributes, request: &Json) {
    let integer = |name: &str| request.get(name).and_then(Json::as_i64);
    attributes.add_bool("gen_ai.request.stream", request.get("stream").and_then(Json::as_bool));
    let max_tokens = integer("max_completion_tokens").or_else(|| integer("max_tokens"));
    attributes.add_int("gen_ai.request.max_tokens", max_tokens);
    attributes.add_int("gen_ai.request.seed", integer("seed"));
    for name in ["temperature", "top_p", "frequency_penalty", "presence_penalty"] {
        let value = request.get(name).and_then(Json::as_f64);
        attributes.add_double(&format!("gen_ai.request.{name}"), value);
    }
    let stop = match request.get("stop") {
        Some(Json::String(one)) => vec![one.clone()],
        Some(Json::Array(all)) => all.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    attributes.add_texts("gen_ai.request.stop_sequences", stop);
}

fn failed_attempt_event(attempt: &Json) -> Option<Json> {
    let start = Timestamp::deserialize(attempt.get("started_at")?).ok()?;
    let mut attributes = SpanAttributes::default();
    let status = attempt.get("status").and_then(Json::as_u64);
    attributes.add_int("http.response.status_code", status);
    let error = attempt.get("error").and_then(Json::as_str);
    attributes.add_text("delta.attempt.error", error);
    Some(span::span_event("delta.attempt_failed", start, attributes))
}
