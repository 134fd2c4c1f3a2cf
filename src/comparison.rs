//! Two runs side by side: up to where they are the same, what is the first thing in which they differ, and what each did
//! from there on.
//!
//! Pure, and only for readers. What counts is what people said, what the LLM answered, what was called and what came of
//! it, and how the run stands in the end; not ids, not times, not hooks, not which process did it.

use crate::event::{Event, Payload, RunStatus};
use crate::history::{At, History, Iteration};
use crate::state::RunState;
use serde::Serialize;
use serde_json::Value as Json;

/// Something that a run did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// The iteration that it belongs to; a message belongs to the one that answers it.
    pub iteration: u32,
    /// What it is.
    pub what: What,
    /// The tool, of a call and of what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Its exit code, of what came of a call; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What was said; the arguments of a call, as JSON; an observation.
    pub text: String,
    /// The arguments, whose order does not count.
    #[serde(skip)]
    arguments: Option<Json>,
}

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A person said something.
    Message,
    /// The text of the LLM's answer.
    Answer,
    /// A call of the answer.
    Call,
    /// What the LLM sees of the call.
    Observation,
    /// How the run stands.
    Status,
}

impl Step {
    fn new(iteration: u32, what: What, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { iteration, what, tool: None, exit_code: None, text, arguments: None }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same_text = match (&self.arguments, &other.arguments) {
            (Some(one), Some(other)) => one == other,
            _ => self.text == other.text,
        };
        self.what == other.what
            && self.iteration == other.iteration
            && self.tool == other.tool
            && self.exit_code == other.exit_code
            && same_text
    }
}

/// The first thing in which two runs differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Parting {
    /// Its iteration.
    pub iteration: u32,
    /// What the first run did there; `None` when it did nothing more.
    pub a: Option<Step>,
    /// What the other one did there.
    pub b: Option<Step>,
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// How many iterations are the same, from the first one on.
    pub same_iterations: u32,
    /// Where they part; nowhere when they are equal.
    pub parts: Option<Parting>,
    /// What the first run did from there on.
    pub a: Vec<Step>,
    /// What the other one did.
    pub b: Vec<Step>,
}

/// Compares two runs by the events of their journals.
pub fn compare(a: &[Event], b: &[Event]) -> Comparison {
    let (mut a, mut b) = (steps(a), steps(b));
    let place = a.iter().zip(&b).take_while(|(one, other)| one.is_same(other)).count();
    let (one, other) = (a.get(place).cloned(), b.get(place).cloned());
    let first = [&one, &other].into_iter().flatten().map(|step| step.iteration).min();
    let last = a.last().map_or(1, |status| status.iteration);
    let parts = first.map(|iteration| Parting { iteration, a: one, b: other });
    let same_iterations = first.unwrap_or(last) - 1;
    Comparison { same_iterations, parts, a: a.split_off(place), b: b.split_off(place) }
}

/// What a run did, in the order in which it is compared: of an iteration first what was said and asked for, then what
/// came of it. The last one is how it stands, as if that were the beginning of one more iteration.
fn steps(events: &[Event]) -> Vec<Step> {
    let history = History::of(events);
    let mut steps = Vec::new();
    for told in &history.iterations {
        iteration(told, &mut steps);
    }
    let next = history.iterations.last().map_or(0, |told| told.thought.what.iteration) + 1;
    steps.extend(messages(&history.rest, next));
    let status = RunState::of(events).status.unwrap_or(RunStatus::Interrupted);
    steps.push(Step::new(next, What::Status, status.to_string()));
    steps
}

fn iteration(told: &Iteration<'_>, steps: &mut Vec<Step>) {
    let thought = told.thought.what;
    let number = thought.iteration;
    steps.extend(messages(&told.before, number));
    steps.push(Step::new(number, What::Answer, thought.content.as_str()));
    for call in &told.calls {
        let function = &call.asked.function;
        // A hook may have put others in their place.
        let arguments = match call.request {
            Some(request) => Some(request.what.tool_args.clone()),
            None => serde_json::from_str(&function.arguments).ok(),
        };
        let text = match &arguments {
            Some(Json::String(text)) => text.clone(),
            Some(other) => serde_json::to_string_pretty(other).unwrap_or_default(),
            None => function.arguments.clone(),
        };
        let tool = Some(function.name.clone());
        steps.push(Step { tool, arguments, ..Step::new(number, What::Call, text) });
    }
    for call in &told.calls {
        let Some(result) = call.result.map(|found| found.what) else { continue };
        let (tool, exit_code) = (Some(call.asked.function.name.clone()), result.exit_code);
        let step = Step::new(number, What::Observation, result.observation_content.as_str());
        steps.push(Step { tool, exit_code, ..step });
    }
    steps.extend(messages(&told.around, number));
}

fn messages(events: &[At<&Payload>], iteration: u32) -> impl Iterator<Item = Step> {
    events.iter().filter_map(move |event| match event.what {
        Payload::UserMessage { content } => {
            Some(Step::new(iteration, What::Message, content.as_str()))
        }
        _ => None,
    })
}

/// How long processes worked on a run, in milliseconds; on a fork, since it is one.
pub fn worked(events: &[Event]) -> u64 {
    let (mut total, mut since, mut last) = (0, None, 0);
    for event in events {
        let now = event.timestamp.millis();
        match event.payload {
            Payload::EngineStart(_) => {
                total += since.map_or(0, |since| last - since);
                since = Some(now);
            }
            // What comes before the next process, a rollback, is no work.
            Payload::EngineEnd { .. } => total += since.take().map_or(0, |since| now - since),
            Payload::Fork(_) => (total, since) = (0, None),
            _ => {}
        }
        last = now;
    }
    total += since.map_or(0, |since| last - since);
    u64::try_from(total).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use serde_json::json;

    /// A journal, an event each second.
    fn journal(events: &[Json]) -> Vec<Event> {
        let event = |(index, value): (usize, &Json)| Event {
            seq: index as u64 + 1,
            timestamp: Timestamp::from_millis(i64::try_from(index).unwrap() * 1000),
            payload: serde_json::from_value(value.clone()).unwrap(),
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
        let found = compare(&journal(a), &journal(b));
        let text = |step: Option<Step>| step.map(|step| format!("{:?} {}", step.what, step.text));
        let parts = found.parts.map(|parts| (parts.iteration, text(parts.a), text(parts.b)));
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
        assert_eq!(parted(&a[..3]), at(1, of("Message more", status()).unwrap()));
        assert_eq!(
            parted(&a[..2]),
            (0, Some((1, Some("Observation r".to_owned()), Some(status()))))
        );
    }

    /// A process takes up the run.
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
        assert_eq!(worked(&journal(&whole)), 1000 + 2000);
        let forked = [start.clone(), said("x"), fork, start, said("y")];
        assert_eq!(worked(&journal(&forked)), 1000);
    }

    #[test]
    fn c_16_8_a_rollback_is_no_work() {
        let end = json!({"type": "ENGINE_END", "run_id": "r", "status": "COMPLETED", "final_iteration": 1});
        let back = json!({"type": "ROLLBACK", "iteration": 1, "to": 0, "tree": "t", "saved": "s"});
        let whole = [start(), said("x"), end, back.clone(), back, start(), said("y")];
        assert_eq!(worked(&journal(&whole)), 2000 + 1000);
    }
}
