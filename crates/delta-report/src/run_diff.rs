//! Compares two runs step by step: what is the same, the first difference, and what each run did from there on.
//!
//! Compared are user messages, answers of the LLM, tool calls, observations and the final status. Ids, times, hooks,
//! processes and the paths of runs and workspaces are not.

use crate::run_names::RunNames;
use delta_run::conversation::history::{EventRef, Iteration, RunHistory};
use delta_run::event::image_file::text_with_images;
use delta_run::event::{Event, Payload, RunStatus};
use delta_run::state::RunState;
use delta_run::state::active_time::ActiveTime;
use serde::Serialize;
use serde_json::Value as Json;

/// One step of a run: what is compared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffStep {
    /// The iteration of the step; a user message belongs to the iteration that answers it.
    pub iteration: u32,
    /// The kind of the step.
    pub what: DiffStepKind,
    /// The tool of a call or an observation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The exit code of an observation, if the tool had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The message, answer, observation or status; the arguments of a call as JSON.
    pub text: String,
    /// The text without the names of its run, which is compared.
    #[serde(skip)]
    pub comparable: String,
    /// The parsed arguments of a call without the names of its run, whose order is not compared.
    #[serde(skip)]
    arguments: Option<Json>,
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffStepKind {
    /// A user message.
    Message,
    /// The text of the LLM's answer.
    Answer,
    /// A tool call of the answer.
    Call,
    /// The observation of a tool call.
    Observation,
    /// The status of the run.
    Status,
}

impl DiffStep {
    fn new(iteration: u32, kind: DiffStepKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            iteration,
            what: kind,
            tool: None,
            exit_code: None,
            comparable: text.clone(),
            text,
            arguments: None,
        }
    }

    /// The step with the same words in place of the names of its run.
    fn without_names(self, names: &RunNames) -> Self {
        let comparable = names.replace_in(&self.text).into_owned();
        let arguments = match self.arguments {
            Some(Json::String(_)) => Some(Json::String(comparable.clone())),
            Some(arguments) => Some(serde_json::from_str(&comparable).unwrap_or(arguments)),
            None => None,
        };
        Self { comparable, arguments, ..self }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same_text = match (&self.arguments, &other.arguments) {
            (Some(mine), Some(theirs)) => mine == theirs || self.text == other.text,
            _ => self.text == other.text || self.comparable == other.comparable,
        };
        self.what == other.what
            && self.iteration == other.iteration
            && self.tool == other.tool
            && self.exit_code == other.exit_code
            && same_text
    }
}

/// The first difference of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDivergence {
    /// The iteration of the difference.
    pub iteration: u32,
    /// The step of the first run; `None` when it has no more steps.
    pub a: Option<DiffStep>,
    /// The step of the second run; `None` when it has no more steps.
    pub b: Option<DiffStep>,
}

/// The comparison of two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunDiff {
    /// The number of equal iterations at the start.
    pub same_iterations: u32,
    /// The first difference; `None` when the runs are equal.
    pub divergence: Option<RunDivergence>,
    /// The steps of the first run from the difference on.
    pub a: Vec<DiffStep>,
    /// The steps of the second run from the difference on.
    pub b: Vec<DiffStep>,
}

/// Compares two runs by their journals.
pub fn diff_run_events(a: &[Event], b: &[Event]) -> RunDiff {
    let mut a = diff_steps(a);
    let mut b = diff_steps(b);
    let last = a.last().map_or(1, |status| status.iteration);
    let same = a.iter().zip(&b).take_while(|(a, b)| a.is_same(b)).count();
    let a = a.split_off(same);
    let b = b.split_off(same);
    let first = [a.first(), b.first()].into_iter().flatten().map(|step| step.iteration).min();
    let divergence = first.map(|iteration| RunDivergence {
        iteration,
        a: a.first().cloned(),
        b: b.first().cloned(),
    });
    RunDiff { same_iterations: first.unwrap_or(last) - 1, divergence, a, b }
}

/// The steps of a run in the order of comparison: of each iteration the messages, the answer and all its calls, then the
/// observations. The status is the last step, as the start of another iteration.
fn diff_steps(events: &[Event]) -> Vec<DiffStep> {
    let history = RunHistory::from_events(events);
    let mut steps = Vec::new();
    for iteration in &history.iterations {
        push_iteration_steps(iteration, &mut steps);
    }
    let last = history.iterations.last();
    let next = last.map_or(0, |iteration| iteration.thought.value.iteration) + 1;
    steps.extend(user_message_steps(&history.trailing_events, next));
    let status = RunState::from_events(events).status.unwrap_or(RunStatus::Interrupted);
    steps.push(DiffStep::new(next, DiffStepKind::Status, status.to_string()));
    let names = RunNames::from_events(events);
    steps.into_iter().map(|step| step.without_names(&names)).collect()
}

fn push_iteration_steps(iteration: &Iteration<'_>, steps: &mut Vec<DiffStep>) {
    let thought = iteration.thought.value;
    let number = thought.iteration;
    steps.extend(user_message_steps(&iteration.events_before, number));
    steps.push(DiffStep::new(number, DiffStepKind::Answer, thought.content.as_str()));
    for call in &iteration.calls {
        let function = &call.tool_call.function;
        // A hook may have replaced the arguments.
        let arguments = match call.request {
            Some(request) => Some(request.value.tool_args.clone()),
            None => serde_json::from_str(function.arguments.as_str()).ok(),
        };
        let text = match &arguments {
            Some(Json::String(text)) => text.clone(),
            Some(other) => serde_json::to_string_pretty(other).unwrap_or_default(),
            None => function.arguments.as_str().to_owned(),
        };
        let tool = Some(function.name.clone());
        steps.push(DiffStep { tool, arguments, ..DiffStep::new(number, DiffStepKind::Call, text) });
    }
    for call in &iteration.calls {
        let Some(result) = call.result else { continue };
        let result = result.value;
        let text = text_with_images(&result.observation_content, &result.images);
        steps.push(DiffStep {
            tool: Some(call.tool_call.function.name.clone()),
            exit_code: result.exit_code,
            ..DiffStep::new(number, DiffStepKind::Observation, text)
        });
    }
    steps.extend(user_message_steps(&iteration.interleaved_events, number));
}

fn user_message_steps(
    events: &[EventRef<&Payload>],
    iteration: u32,
) -> impl Iterator<Item = DiffStep> {
    events.iter().filter_map(move |event| match event.value {
        Payload::UserMessage { content, images, .. } => {
            let text = text_with_images(content, images);
            Some(DiffStep::new(iteration, DiffStepKind::Message, text))
        }
        _ => None,
    })
}

/// How long processes worked on a run, in milliseconds; on a fork, without the time of the run it was forked from.
pub fn active_duration_ms(events: &[Event]) -> u64 {
    let mut active_time = ActiveTime::default();
    events.iter().for_each(|event| active_time.apply(event));
    active_time.millis()
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_base::time::Timestamp;
    use serde_json::json;

    /// A journal, an event each second.
    fn journal(events: &[Json]) -> Vec<Event> {
        let event = |(index, value): (usize, &Json)| {
            let timestamp = Timestamp::from_millis(i64::try_from(index).unwrap() * 1000);
            let payload = serde_json::from_value(value.clone()).unwrap();
            Event::new(index as u64 + 1, timestamp, payload)
        };
        events.iter().enumerate().map(event).collect()
    }

    fn said(text: &str) -> Json {
        json!({"type": "USER_MESSAGE", "content": text})
    }

    fn answer(iteration: u32, id: &str, arguments: &str) -> Json {
        let call = json!({"id": id, "type": "function", "function": {"name": "t", "arguments": arguments}});
        json!({"type": "THOUGHT", "iteration": iteration, "content": "", "tool_calls": [call]})
    }

    fn result(iteration: u32, id: &str, text: &str) -> Json {
        json!({"type": "ACTION_RESULT", "iteration": iteration, "call_id": id, "tool_name": "t",
            "observation_content": text, "exit_code": 0, "duration_ms": iteration})
    }

    /// The iteration, and what each did there.
    type Parted = (u32, Option<String>, Option<String>);

    fn seen(a: &[Json], b: &[Json]) -> (u32, Option<Parted>) {
        let found = diff_run_events(&journal(a), &journal(b));
        let text =
            |step: Option<DiffStep>| step.map(|step| format!("{:?} {}", step.what, step.text));
        let parts = found.divergence.map(|parts| (parts.iteration, text(parts.a), text(parts.b)));
        (found.same_iterations, parts)
    }

    fn status() -> String {
        "Status INTERRUPTED".to_owned()
    }

    #[test]
    fn c_16_8_ids_and_the_order_of_arguments_do_not_count() {
        let a = [said("x"), answer(1, "a", r#"{"p":1,"q":2}"#), result(1, "a", "r")];
        let b = [said("x"), answer(1, "b", r#"{ "q": 2, "p": 1 }"#), result(1, "b", "r")];
        assert_eq!(seen(&a, &b), (1, None));
    }

    #[test]
    fn c_16_8_the_first_difference_is_found_wherever_it_is() {
        let a = [said("x"), answer(1, "a", "{}"), result(1, "a", "r"), said("more")];
        let parted = |b: &[Json]| seen(&a, b);
        let of = |a: &str, b: String| Some((a.to_owned(), b)).map(|(a, b)| (Some(a), Some(b)));
        let at =
            |same: u32, (a, b): (Option<String>, Option<String>)| (same, Some((same + 1, a, b)));
        let other = [said("y"), a[1].clone(), a[2].clone(), a[3].clone()];
        assert_eq!(parted(&other), at(0, of("Message x", "Message y".to_owned()).unwrap()));
        let other = [a[0].clone(), answer(1, "a", r#"{"p":1}"#), a[2].clone(), a[3].clone()];
        let call = "Call {\n  \"p\": 1\n}".to_owned();
        assert_eq!(parted(&other), at(0, of("Call {}", call).unwrap()));
        let other = [a[0].clone(), a[1].clone(), result(1, "a", "s"), a[3].clone()];
        assert_eq!(parted(&other), at(0, of("Observation r", "Observation s".to_owned()).unwrap()));
        let mut other = a.clone();
        other[2]["exit_code"] = json!(1);
        assert_eq!(parted(&other), at(0, of("Observation r", "Observation r".to_owned()).unwrap()));
        let mut other = a.clone();
        other[1]["tool_calls"][0]["function"]["name"] = json!("u");
        assert_eq!(parted(&other), at(0, of("Call {}", "Call {}".to_owned()).unwrap()));
        assert_eq!(parted(&a[..3]), at(1, of("Message more", status()).unwrap()));
        assert_eq!(
            parted(&a[..2]),
            (0, Some((1, Some("Observation r".to_owned()), Some(status()))))
        );
    }

    /// A process starts or continues the run.
    fn start() -> Json {
        json!({"type": "ENGINE_START", "run_id": "r", "epoch": 1, "agent_home": "/a",
            "agent_name": "a", "work_dir": "/w", "workspace_id": "w", "max_iterations": 1, "config": {},
            "pid": 1, "hostname": "h", "start_time_unix": 0, "process_name": "delta",
            "engine_version": "0"})
    }

    #[test]
    fn c_16_8_a_fork_has_worked_since_it_is_one() {
        let start = start();
        let from =
            json!({"run_id": "r", "iteration": 0, "run_dir": "/w/.delta/r", "work_dir": "/w"});
        let fork = json!({"type": "FORK", "run_id": "f", "work_dir": "/v", "workspace_id": "v",
            "from": from, "files": "present"});
        let whole = [start.clone(), said("x"), start.clone(), said("y"), said("z")];
        assert_eq!(active_duration_ms(&journal(&whole)), 1000 + 2000);
        let forked = [start.clone(), said("x"), fork, start, said("y")];
        assert_eq!(active_duration_ms(&journal(&forked)), 1000);
    }

    #[test]
    fn c_16_8_a_rollback_is_no_work() {
        let end = json!({"type": "ENGINE_END", "run_id": "r", "status": "COMPLETED", "final_iteration": 1});
        let back = json!({"type": "ROLLBACK", "iteration": 1, "to": 0, "tree": "a".repeat(64), "saved": "b".repeat(64)});
        let whole = [start(), said("x"), end, back.clone(), back, start(), said("y")];
        assert_eq!(active_duration_ms(&journal(&whole)), 2000 + 1000);
    }

    #[test]
    fn c_13_2_the_time_after_the_death_of_a_process_is_no_work() {
        let end = json!({"type": "ENGINE_END", "run_id": "r", "status": "INTERRUPTED", "final_iteration": 1});
        let mut events = journal(&[start(), said("x"), end, start(), said("y")]);
        assert_eq!(active_duration_ms(&events), 2000 + 1000, "an interruption");
        // The process that continues the run has recorded the end of the dead one.
        events[2].timestamp = events[3].timestamp;
        assert_eq!(active_duration_ms(&events), 1000 + 1000);
    }
}
