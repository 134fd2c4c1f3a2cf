//! A run as a trajectory in the Agent Trajectory Interchange Format (ATIF).

use super::subject::{Subject, Surroundings};
use crate::event::{Payload, Thought};
use crate::history::{At, Call, History, Iteration};
use crate::llm;
use crate::outcome::RunResult;
use serde_json::{Map, Value as Json, json};

/// The version of the format.
pub const VERSION: &str = "ATIF-v1.7";

/// The run as a JSON object on a line; `around` is what the LLM saw beside the conversation.
pub fn line(subject: &Subject, around: Surroundings) -> String {
    let mut steps = Steps { subject, found: Vec::new() };
    for message in &around.system {
        steps.other("system", None, &llm::text_of_message(message));
    }
    let history = History::of(&subject.events);
    for iteration in &history.iterations {
        iteration.before.iter().for_each(|event| steps.event(*event));
        steps.iteration(iteration);
        iteration.around.iter().for_each(|event| steps.event(*event));
    }
    history.rest.iter().for_each(|event| steps.event(*event));
    if steps.found.is_empty() {
        // The format wants a step, and a run that was killed at once has none.
        steps.other("system", None, "the run has begun");
    }
    let metrics = metrics(subject, steps.found.len());
    let trajectory = json!({
        "schema_version": VERSION,
        "session_id": subject.origin().run_id,
        "agent": agent(subject, around.tools),
        "steps": steps.found,
        "final_metrics": metrics,
        "extra": extra(subject),
    });
    format!("{trajectory}\n")
}

fn agent(subject: &Subject, tools: Vec<Json>) -> Json {
    let start = subject.start();
    let mut agent = json!({
        "name": start.map(|start| start.agent_name.as_str()).unwrap_or_default(),
        "version": start.map(|start| start.engine_version.as_str()).unwrap_or_default(),
    });
    let model = start.and_then(|start| start.config.pointer("/llm/model")?.as_str());
    put(&mut agent, "model_name", model.map(Json::from));
    put(&mut agent, "tool_definitions", (!tools.is_empty()).then_some(Json::Array(tools)));
    agent["extra"] = json!({"engine": "delta"});
    agent
}

fn extra(subject: &Subject) -> Json {
    let mut extra = json!({"status": subject.state.status});
    let result = RunResult::of(&subject.state);
    put(&mut extra, "result", result.as_ref().and_then(|result| result.result.clone()));
    let error = result.and_then(|result| result.error);
    put(
        &mut extra,
        "error",
        error.map(|error| json!({"type": error.kind, "message": error.message})),
    );
    let parent = subject.ancestors.first();
    let parent =
        parent.map(|above| json!({"run_id": above.origin.run_id, "call_id": above.call_id}));
    put(&mut extra, "parent", parent);
    extra
}

fn metrics(subject: &Subject, steps: usize) -> Json {
    let mut metrics = json!({"total_steps": steps});
    let used = &subject.state.usage;
    if !used.is_empty() {
        let sum = |count: fn(&llm::Usage) -> u64| used.iter().map(count).sum::<u64>();
        metrics["total_prompt_tokens"] = sum(|usage| usage.input_tokens).into();
        metrics["total_completion_tokens"] = sum(|usage| usage.output_tokens).into();
        metrics["total_cached_tokens"] = sum(|usage| usage.cached_input_tokens).into();
    }
    let cost = RunResult::of(&subject.state).and_then(|result| result.metrics.usage.total_cost_usd);
    put(&mut metrics, "total_cost_usd", cost.map(Json::from));
    metrics
}

/// The steps so far.
struct Steps<'a> {
    subject: &'a Subject,
    found: Vec<Json>,
}

impl Steps<'_> {
    /// A step that begins with `fields`; it gets the next number.
    fn push(&mut self, source: &str, at: Option<String>, message: &str) -> &mut Json {
        let mut step = json!({"step_id": self.found.len() + 1});
        put(&mut step, "timestamp", at.map(Json::from));
        step["source"] = source.into();
        step["message"] = message.into();
        self.found.push(step);
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    fn other(&mut self, source: &str, at: Option<String>, message: &str) {
        self.push(source, at, message);
    }

    /// An event beside the calls, where it is one of the conversation or an error.
    fn event(&mut self, event: At<&Payload>) {
        let at = Some(event.at.to_string());
        match event.what {
            Payload::UserMessage { content } => self.other("user", at, content),
            Payload::Error { error_message, .. } => {
                self.other("system", at, &format!("error: {error_message}"));
            }
            _ => {}
        }
    }

    fn iteration(&mut self, told: &Iteration<'_>) {
        let thought = told.thought.what;
        let reasoning = self.subject.reasoning(thought);
        let model = self.model(thought);
        let step = self.push("agent", Some(told.thought.at.to_string()), &thought.content);
        put(step, "model_name", model.map(Json::from));
        put(step, "reasoning_content", reasoning.map(Json::from));
        let calls: Vec<Json> = told.calls.iter().map(call).collect();
        let results: Vec<Json> = told.calls.iter().filter_map(result).collect();
        put(step, "tool_calls", (!calls.is_empty()).then_some(Json::Array(calls)));
        let observation = (!results.is_empty()).then(|| json!({"results": results}));
        put(step, "observation", observation);
        put(step, "metrics", thought.usage.as_ref().map(usage));
        step["llm_call_count"] = 1.into();
        step["extra"] = json!({"iteration": thought.iteration});
    }

    fn model(&self, thought: &Thought) -> Option<String> {
        let record = || self.subject.invocation(thought)?.get("model")?.as_str();
        let used = thought.usage.as_ref().map(|usage| usage.model.as_str());
        used.or_else(record).map(str::to_owned)
    }
}

fn usage(usage: &llm::Usage) -> Json {
    let mut metrics = json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_input_tokens,
    });
    put(&mut metrics, "cost_usd", usage.cost_usd.map(Json::from));
    metrics
}

fn call(call: &Call<'_>) -> Json {
    let text = &call.asked.function.arguments;
    let read = serde_json::from_str::<Map<String, Json>>(text);
    let mut shown = json!({
        "tool_call_id": call.id,
        "function_name": call.asked.function.name,
        "arguments": read.as_ref().ok().cloned().unwrap_or_default(),
    });
    // What the LLM wrote is no object: the format has no other place for it.
    put(&mut shown, "extra", read.is_err().then(|| json!({"arguments_text": text})));
    shown
}

fn result(call: &Call<'_>) -> Option<Json> {
    let result = call.result?.what;
    let mut extra = json!({"duration_ms": result.duration_ms});
    put(&mut extra, "exit_code", result.exit_code.map(Json::from));
    put(&mut extra, "truncated", result.truncated.then_some(Json::Bool(true)));
    Some(json!({
        "source_call_id": call.id,
        "content": result.observation_content,
        "extra": extra,
    }))
}

/// Sets a field, unless there is nothing to say.
fn put(object: &mut Json, name: &str, value: Option<Json>) {
    if let Some(value) = value {
        object[name] = value;
    }
}
