//! Compares the tool calls of a run and of its replay, turn by turn.

use super::ReplayDifference;
use crate::run_names::RunNames;
use delta_agent::tool::observation::INTERRUPTED_PREFIX;
use delta_run::conversation::Conversation;
use delta_run::event::image_file::text_with_images;
use delta_run::event::{ActionResult, Event, Payload};
use delta_words::ToolCall;
use serde_json::Value as Json;

/// One answer of the LLM with the outcomes of its calls.
#[derive(Debug, Default)]
pub struct ReplayTurn {
    /// The iteration number.
    pub iteration: u32,
    /// The calls in the order of the answer.
    pub calls: Vec<ToolCallOutcome>,
}

/// A call and its result, if it has one.
#[derive(Debug, Default)]
pub struct ToolCallOutcome {
    /// The call id, unique in the run.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The observation without the names of its run; `None` without a result.
    pub observation: Option<String>,
    /// The exit code; `None` without a result or when no command was started.
    pub exit_code: Option<i32>,
    /// Whether its command was started, and has not ended.
    is_at_work: bool,
    /// Whether its engine died before it had the result, or ended the command because it was stopped.
    is_interrupted: bool,
}

/// The turns in a journal, without the names of its run.
pub fn collect_turns(events: &[Event], names: &RunNames) -> Vec<ReplayTurn> {
    let mut turns: Vec<ReplayTurn> = Vec::new();
    let mut conversation = Conversation::default();
    for event in events {
        let calls = turns.last_mut().into_iter().flat_map(|turn| &mut turn.calls);
        match &event.payload {
            Payload::Thought(thought) => {
                let ids = conversation.push_thought(thought).into_iter();
                let calls = ids.zip(&thought.tool_calls).map(|(id, call)| {
                    let tool = call.function.name.clone();
                    ToolCallOutcome { id, tool, ..ToolCallOutcome::default() }
                });
                turns.push(ReplayTurn { iteration: thought.iteration, calls: calls.collect() });
            }
            Payload::ActionRequest(request) => {
                for call in calls.filter(|call| call.id == request.call_id) {
                    call.is_at_work = request.argv.is_some();
                }
            }
            // It ended before the question whether its changes are applied.
            Payload::ApprovalRequest(request) if request.stage.is_some() => {
                for call in calls.filter(|call| call.id == request.call_id) {
                    call.is_at_work = false;
                }
            }
            Payload::EngineStart(_) => {
                for call in calls.filter(|call| call.is_at_work && call.observation.is_none()) {
                    call.is_interrupted = true;
                }
            }
            Payload::ActionResult(result) => {
                for call in calls.filter(|call| call.id == result.call_id) {
                    let text = text_with_images(&result.observation_content, &result.images);
                    call.observation = Some(names.replace_in(&text).into_owned());
                    call.exit_code = result.exit_code;
                    call.is_interrupted |= is_interrupted_result(result);
                }
            }
            _ => {}
        }
    }
    turns
}

/// Whether the engine ended the command, because it was stopped itself.
fn is_interrupted_result(result: &ActionResult) -> bool {
    let mut lines = result.observation_content.lines();
    result.exit_code.is_none() && lines.any(|line| line.starts_with(INTERRUPTED_PREFIX))
}

/// Whether the effect of a call on the files is not what its tool does: its engine died or was stopped before it ended.
pub fn has_interrupted_call(events: &[Event]) -> bool {
    let turns = collect_turns(events, &RunNames::default());
    turns.iter().flat_map(|turn| &turn.calls).any(|call| call.is_interrupted)
}

/// The comparison of the calls in a run and in its replay.
#[derive(Debug, Default)]
pub struct TurnComparison {
    /// The differences.
    pub differences: Vec<ReplayDifference>,
    /// The calls whose results are not comparable, and why.
    pub not_checked: Vec<String>,
    /// The iteration of the first one of them.
    pub first_unchecked: Option<u32>,
}

/// Compares the observations and exit codes of a run and of its replay, which has the same answers.
pub fn compare_turns(recorded: &[ReplayTurn], replayed: &[ReplayTurn]) -> TurnComparison {
    let mut comparison = TurnComparison::default();
    for (index, turn) in recorded.iter().enumerate() {
        let Some(other) = replayed.get(index) else {
            let at = Some(turn.iteration);
            let difference = ReplayDifference::new(at, "the answer", "an answer", "no LLM call");
            comparison.differences.push(difference);
            break;
        };
        for (call, other) in turn.calls.iter().zip(&other.calls) {
            comparison.add_call(turn.iteration, call, other);
        }
    }
    comparison
}

impl TurnComparison {
    fn add_call(&mut self, iteration: u32, call: &ToolCallOutcome, other: &ToolCallOutcome) {
        let name = format!("call {} ({})", call.id, call.tool);
        let mut differences = Vec::new();
        differences.extend(ReplayDifference::between(
            Some(iteration),
            format!("the observation of {name}"),
            call.observation.as_deref().unwrap_or("none"),
            other.observation.as_deref().unwrap_or("none"),
        ));
        if call.exit_code != other.exit_code {
            let [recorded, replayed] = [call, other].map(|call| match call.exit_code {
                Some(code) => code.to_string(),
                None => "none".to_owned(),
            });
            let subject = format!("the exit code of {name}");
            let difference = ReplayDifference::new(Some(iteration), subject, recorded, replayed);
            differences.push(difference);
        }
        if !call.is_interrupted {
            self.differences.append(&mut differences);
        } else if !differences.is_empty() {
            let reason = "the engine died or was stopped before it ended";
            self.not_checked.push(format!("iteration {iteration}, the result of {name}: {reason}"));
            self.first_unchecked.get_or_insert(iteration);
        }
    }
}

/// The first difference of the calls in two answers: tool, arguments or number. The texts of the answers are not
/// compared, because no LLM repeats itself word for word.
pub fn tool_call_difference(
    iteration: u32,
    recorded: &[ToolCall],
    replayed: &[ToolCall],
) -> Option<ReplayDifference> {
    let pairs = recorded.iter().zip(replayed);
    let same = pairs.take_while(|(recorded, replayed)| is_same_call(recorded, replayed)).count();
    if same == recorded.len() && same == replayed.len() {
        return None;
    }
    let describe = |calls: &[ToolCall]| match calls.get(same) {
        Some(call) => format!("{} {}", call.function.name, call.function.arguments.as_str()),
        None if same == 0 => "no call: it ends the run".to_owned(),
        None => "no further call".to_owned(),
    };
    let subject = format!("call {}", same + 1);
    let difference =
        ReplayDifference::new(Some(iteration), subject, describe(recorded), describe(replayed));
    Some(difference)
}

fn is_same_call(a: &ToolCall, b: &ToolCall) -> bool {
    a.function.name == b.function.name && parse_call_arguments(a) == parse_call_arguments(b)
}

/// The arguments as a value; a string when they are not JSON.
fn parse_call_arguments(call: &ToolCall) -> Json {
    let text = call.function.arguments.as_json().trim();
    let text = if text.is_empty() { "{}" } else { text };
    serde_json::from_str(text).unwrap_or_else(|_| Json::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(given: &[(&str, &str)]) -> Vec<ToolCall> {
        given.iter().map(|(tool, arguments)| ToolCall::new("x", *tool, *arguments)).collect()
    }

    #[test]
    fn c_16_12_calls_part_by_tool_arguments_and_number() {
        let part = |one: &[(&str, &str)], other: &[(&str, &str)]| {
            let found = tool_call_difference(1, &calls(one), &calls(other));
            found.map(|found| (found.what, found.recorded, found.expected))
        };
        let of = |one: &str, two: &str, three: &str| Some((one.into(), two.into(), three.into()));
        assert_eq!(part(&[("t", "{\"a\":1,\"b\":2}")], &[("t", " {\"b\":2, \"a\":1}")]), None);
        assert_eq!(part(&[("t", "{}")], &[("t", "")]), None);
        assert_eq!(part(&[("t", "{}")], &[("u", "{}")]), of("call 1", "t {}", "u {}"));
        assert_eq!(part(&[("t", "{}")], &[]), of("call 1", "t {}", "no call: it ends the run"));
        let two = [("t", "{}"), ("u", "x")];
        assert_eq!(part(&two[..1], &two), of("call 2", "no further call", "u x"));
    }
}
