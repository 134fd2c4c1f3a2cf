//! Converts a run to a trajectory in the Agent Trajectory Interchange Format (ATIF).

use super::exported_run::{ExportedRun, SystemContext};
use delta_base::time::Timestamp;
use delta_run::conversation::history::{CallHistory, EventRef, Iteration, RunHistory};
use delta_run::event::image_file::ImageFile;
use delta_run::event::{Payload, Thought};
use delta_run::run_result::RunResult;
use delta_run::state::{DISCARD_NOTE, rollback_note};
use delta_run::{journal, run_tree};
use delta_words::{Usage, message_text};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The `schema_version` of the trajectories.
pub const ATIF_VERSION: &str = "ATIF-v1.8";

/// The runs whose trajectories one trajectory embeds, at most: a reader holds all of them in memory.
const MAX_EMBEDDED_RUNS: usize = 1_000;

/// Renders the run, and in it the runs below it, as a line of JSON.
pub fn render_atif_trajectory(run: &ExportedRun, context: SystemContext) -> String {
    let mut visited = BTreeSet::from([run.dir.clone()]);
    format!("{}\n", build_trajectory(run, context, &mut visited))
}

/// A run that a call has started, in the trajectory of the run around it.
struct EmbeddedRun {
    call_id: Option<String>,
    trajectory: Json,
}

/// The trajectories of the child runs. The name of each is unique in its list.
fn embed_child_runs(run: &ExportedRun, visited: &mut BTreeSet<PathBuf>) -> Vec<EmbeddedRun> {
    let mut embedded: Vec<EmbeddedRun> = Vec::new();
    for (child, dir) in run_tree::locate_child_runs(&run.dir) {
        if visited.len() > MAX_EMBEDDED_RUNS || !visited.insert(dir.clone()) {
            continue;
        }
        let Ok(contents) = journal::read_run_journal(&dir) else { continue };
        let child_run = ExportedRun::read(&dir, contents.events);
        let mut trajectory = build_trajectory(&child_run, child_run.system_context(), visited);
        let same =
            embedded.iter().filter(|other| other.trajectory["session_id"] == child.run_id.as_str());
        let number = same.count() + 1;
        if number > 1 {
            trajectory["trajectory_id"] = format!("{}-{number}", child.run_id).into();
        }
        let call_id = child.call_id.map(|id| run.visible_name(id));
        embedded.push(EmbeddedRun { call_id, trajectory });
    }
    embedded
}

fn build_trajectory(
    run: &ExportedRun,
    context: SystemContext,
    visited: &mut BTreeSet<PathBuf>,
) -> Json {
    let embedded = embed_child_runs(run, visited);
    let mut steps = TrajectorySteps { run, embedded: &embedded, steps: Vec::new() };
    for message in &context.system {
        steps.push("system", None, &message_text(message));
    }
    let history = RunHistory::from_events(&run.events);
    for iteration in &history.iterations {
        steps.push_events(&iteration.events_before);
        steps.push_iteration(iteration);
        steps.push_events(&iteration.interleaved_events);
    }
    steps.push_events(&history.trailing_events);
    if steps.steps.is_empty() {
        // ATIF requires a step, but a run that was killed at its start has none.
        steps.push("system", None, "the run started");
    }
    let metrics = trajectory_metrics(run, steps.steps.len());
    let run_id = run.identity().run_id;
    let mut trajectory = json!({
        "schema_version": ATIF_VERSION,
        "session_id": run_id,
        "trajectory_id": run_id,
        "agent": trajectory_agent(run, context.tools),
        "steps": steps.steps,
        "final_metrics": metrics,
        "extra": trajectory_extra(run),
    });
    let children: Vec<Json> = embedded.into_iter().map(|child| child.trajectory).collect();
    set_field(
        &mut trajectory,
        "subagent_trajectories",
        (!children.is_empty()).then(|| children.into()),
    );
    trajectory
}

fn trajectory_agent(run: &ExportedRun, tools: Vec<Json>) -> Json {
    let start = run.engine_start();
    let mut agent = json!({
        "name": start.map(|start| start.agent_name.as_str()).unwrap_or_default(),
        "version": start.map(|start| start.engine_version.as_str()).unwrap_or_default(),
    });
    let model = start.and_then(|start| start.config.model());
    set_field(&mut agent, "model_name", model.map(Json::from));
    set_field(&mut agent, "tool_definitions", (!tools.is_empty()).then_some(Json::Array(tools)));
    agent["extra"] = json!({"engine": "delta"});
    agent
}

fn trajectory_extra(run: &ExportedRun) -> Json {
    let mut extra = json!({"status": run.state.status});
    let result = RunResult::from_state(&run.state);
    let answer = result.as_ref().and_then(|result| result.result.as_deref());
    set_field(&mut extra, "result", answer.cloned());
    let error = result.and_then(|result| result.error);
    let error = error.map(|error| json!({"type": error.kind, "message": error.message}));
    set_field(&mut extra, "error", error);
    let parent = run
        .ancestors
        .first()
        .map(|parent| json!({"run_id": parent.identity.run_id, "call_id": parent.call_id}));
    set_field(&mut extra, "parent", parent);
    extra
}

fn trajectory_metrics(run: &ExportedRun, steps: usize) -> Json {
    let mut metrics = json!({"total_steps": steps});
    let usages = &run.state.usage;
    if !usages.is_empty() {
        let sum = |count: fn(&Usage) -> u64| usages.iter().map(count).sum::<u64>();
        metrics["total_prompt_tokens"] = sum(|usage| usage.input_tokens).into();
        metrics["total_completion_tokens"] = sum(|usage| usage.output_tokens).into();
        metrics["total_cached_tokens"] = sum(|usage| usage.cached_input_tokens).into();
    }
    let result = RunResult::from_state(&run.state);
    let cost = result.and_then(|result| result.metrics.usage.total_cost_usd);
    set_field(&mut metrics, "total_cost_usd", cost.map(Json::from));
    let total = run.state.usage_summary();
    set_extra_counts(&mut metrics, [total.cache_write_tokens, total.reasoning_tokens]);
    metrics
}

/// Adds the tokens written to a cache and the tokens of reasoning, for which ATIF has no fields.
fn set_extra_counts(metrics: &mut Json, counts: [u64; 2]) {
    let mut extra = Map::new();
    for (name, count) in ["cache_write_tokens", "reasoning_tokens"].into_iter().zip(counts) {
        if count > 0 {
            extra.insert(name.to_owned(), count.into());
        }
    }
    set_field(metrics, "extra", (!extra.is_empty()).then_some(Json::Object(extra)));
}

struct TrajectorySteps<'a> {
    run: &'a ExportedRun,
    embedded: &'a [EmbeddedRun],
    steps: Vec<Json>,
}

impl TrajectorySteps<'_> {
    /// Appends a step with the next number.
    fn push(&mut self, source: &str, at: Option<String>, message: &str) -> &mut Json {
        let mut step = json!({"step_id": self.steps.len() + 1});
        set_field(&mut step, "timestamp", at.map(Json::from));
        step["source"] = source.into();
        step["message"] = message.into();
        self.steps.push_mut(step)
    }

    /// Appends a step for each message that the LLM sees and each error.
    fn push_events(&mut self, events: &[EventRef<&Payload>]) {
        for event in events {
            let at = Some(event.timestamp.to_string());
            match event.value {
                Payload::UserMessage { content, images, .. } => {
                    let step = self.push("user", at, content);
                    step["message"] = trajectory_content(content, images);
                }
                Payload::Error { error_message, error_details } => {
                    self.push_discarded(&error_details.discarded_usage, event.timestamp);
                    self.push("system", at, &format!("error: {error_message}"));
                }
                Payload::Rollback { to, .. } => {
                    self.push("user", at, &rollback_note(*to));
                }
                Payload::Discard { .. } => {
                    self.push("user", at, DISCARD_NOTE);
                }
                _ => {}
            }
        }
    }

    /// Appends a step for each answer that was paid for and discarded, so that the steps add up to the totals.
    fn push_discarded(&mut self, usages: &[Option<Usage>], at: Timestamp) {
        for usage in usages {
            let step = self.push("agent", Some(at.to_string()), "");
            let usage = usage.as_ref();
            set_field(step, "model_name", usage.map(|usage| usage.model.as_str().into()));
            set_field(step, "metrics", usage.map(step_metrics));
            step["llm_call_count"] = 1.into();
            step["extra"] = json!({"discarded": true});
        }
    }

    fn push_iteration(&mut self, iteration: &Iteration<'_>) {
        let thought = iteration.thought.value;
        self.push_discarded(&thought.discarded_usage, iteration.thought.timestamp);
        let reasoning = self.run.reasoning(thought);
        let model = self.model_name(thought);
        let at = Some(iteration.thought.timestamp.to_string());
        let embedded = self.embedded;
        let step = self.push("agent", at, &thought.content);
        set_field(step, "model_name", model.map(Json::from));
        set_field(step, "reasoning_content", reasoning.map(Json::from));
        let calls: Vec<Json> = iteration.calls.iter().map(trajectory_tool_call).collect();
        let results = iteration.calls.iter();
        let results: Vec<Json> =
            results.filter_map(|call| trajectory_observation(call, embedded)).collect();
        set_field(step, "tool_calls", (!calls.is_empty()).then_some(Json::Array(calls)));
        let observation = (!results.is_empty()).then(|| json!({"results": results}));
        set_field(step, "observation", observation);
        set_field(step, "metrics", thought.usage.as_ref().map(step_metrics));
        step["llm_call_count"] = 1.into();
        step["extra"] = json!({"iteration": thought.iteration});
        if let Some(reminder) = &thought.reminder {
            self.push("user", Some(iteration.thought.timestamp.to_string()), reminder);
        }
    }

    fn model_name(&self, thought: &Thought) -> Option<String> {
        let reported = thought.usage.as_ref().map(|usage| usage.model.as_str());
        let model = reported.or_else(|| self.run.invocation(thought)?.get("model")?.as_str());
        model.map(str::to_owned)
    }
}

fn step_metrics(usage: &Usage) -> Json {
    let mut metrics = json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_input_tokens,
    });
    set_field(&mut metrics, "cost_usd", usage.cost_usd.map(Json::from));
    let counts = [usage.cache_write_tokens, usage.reasoning_tokens].map(Option::unwrap_or_default);
    set_extra_counts(&mut metrics, counts);
    metrics
}

fn trajectory_tool_call(call: &CallHistory<'_>) -> Json {
    let text = call.tool_call.function.arguments.as_str();
    let arguments = serde_json::from_str::<Map<String, Json>>(text);
    let mut tool_call = json!({
        "tool_call_id": call.id,
        "function_name": call.tool_call.function.name,
        "arguments": arguments.as_ref().ok().cloned().unwrap_or_default(),
    });
    // ATIF has no field for arguments that are not an object.
    let extra = arguments.is_err().then(|| json!({"arguments_text": text}));
    set_field(&mut tool_call, "extra", extra);
    tool_call
}

fn trajectory_observation(call: &CallHistory<'_>, embedded: &[EmbeddedRun]) -> Option<Json> {
    let result = call.result?.value;
    let mut extra = json!({"duration_ms": result.duration_ms});
    set_field(&mut extra, "exit_code", result.exit_code.map(Json::from));
    set_field(&mut extra, "truncated", result.truncated.then_some(Json::Bool(true)));
    let mut observation = json!({
        "source_call_id": call.id,
        "content": trajectory_content(&result.observation_content, &result.images),
        "extra": extra,
    });
    let started = embedded.iter().filter(|child| child.call_id.as_deref() == Some(&*call.id));
    let references: Vec<Json> = started
        .map(|child| {
            let EmbeddedRun { trajectory, .. } = child;
            let id = &trajectory["trajectory_id"];
            json!({"trajectory_id": id, "session_id": trajectory["session_id"]})
        })
        .collect();
    let references = (!references.is_empty()).then(|| Json::Array(references));
    set_field(&mut observation, "subagent_trajectory_ref", references);
    Some(observation)
}

/// A text, or the parts of a content with images. A path is relative to the run directory.
fn trajectory_content(text: &str, images: &[ImageFile]) -> Json {
    if images.is_empty() {
        return text.into();
    }
    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
    let images = images.iter().map(|image| {
        if image.size.is_none() {
            // ATIF has no part for a document.
            return json!({"type": "text", "text": image.to_string()});
        }
        let source = json!({"media_type": image.media_type, "path": image.file});
        json!({"type": "image", "source": source})
    });
    text.into_iter().chain(images).collect()
}

fn set_field(object: &mut Json, name: &str, value: Option<Json>) {
    if let Some(value) = value {
        object[name] = value;
    }
}
