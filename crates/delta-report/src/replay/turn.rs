//! Compares the tool calls of a run and of its replay, turn by turn.

use super::ReplayDifference;
use delta_llm::llm::ToolCall;
use delta_process::truncated_output::OUTPUT_FILE_PREFIX;
use delta_run::conversation::Conversation;
use delta_run::event::{Event, Payload};
use delta_run::image_file::text_with_images;
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
#[derive(Debug)]
pub struct ToolCallOutcome {
    /// The call id, unique in the run.
    pub id: String,
    /// The name of the tool.
    pub tool: String,
    /// The observation; `None` without a result.
    pub observation: Option<String>,
    /// The exit code; `None` without a result or when no command was started.
    pub exit_code: Option<i32>,
}

/// The turns in a journal.
pub fn collect_turns(events: &[Event]) -> Vec<ReplayTurn> {
    let mut turns: Vec<ReplayTurn> = Vec::new();
    let mut conversation = Conversation::default();
    for event in events {
        match &event.payload {
            Payload::Thought(thought) => {
                let ids = conversation.push_thought(thought).into_iter();
                let calls = ids.zip(&thought.tool_calls).map(|(id, call)| ToolCallOutcome {
                    id,
                    tool: call.function.name.clone(),
                    observation: None,
                    exit_code: None,
                });
                turns.push(ReplayTurn { iteration: thought.iteration, calls: calls.collect() });
            }
            Payload::ActionResult(result) => {
                let calls = turns.last_mut().into_iter().flat_map(|turn| &mut turn.calls);
                for call in calls.filter(|call| call.id == result.call_id) {
                    let text = text_with_images(&result.observation_content, &result.images);
                    call.observation = Some(text.into_owned());
                    call.exit_code = result.exit_code;
                }
            }
            _ => {}
        }
    }
    turns
}

/// Compares the observations and exit codes of a run and of its replay, which has the same answers.
pub fn compare_turns(recorded: &[ReplayTurn], replayed: &[ReplayTurn]) -> Vec<ReplayDifference> {
    let mut differences = Vec::new();
    for (index, turn) in recorded.iter().enumerate() {
        let at = Some(turn.iteration);
        let Some(other) = replayed.get(index) else {
            let difference = ReplayDifference::new(at, "the answer", "an answer", "no LLM call");
            differences.push(difference);
            break;
        };
        for (call, other) in turn.calls.iter().zip(&other.calls) {
            let name = format!("call {} ({})", call.id, call.tool);
            differences.extend(ReplayDifference::between(
                at,
                format!("the observation of {name}"),
                &comparable_observation(call),
                &comparable_observation(other),
            ));
            let code = |code: Option<i32>| code.map_or("none".to_owned(), |code| code.to_string());
            if call.exit_code != other.exit_code {
                let subject = format!("the exit code of {name}");
                let recorded = code(call.exit_code);
                let replayed = code(other.exit_code);
                differences.push(ReplayDifference::new(at, subject, recorded, replayed));
            }
        }
    }
    differences
}

fn comparable_observation(call: &ToolCallOutcome) -> String {
    call.observation.as_deref().map_or("none".to_owned(), without_output_path)
}

/// Removes the paths of output files from observations: they differ from run to run.
pub fn without_output_path(text: &str) -> String {
    let prefix = format!("{OUTPUT_FILE_PREFIX}.delta/");
    let mut parts = text.split(&prefix);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(OUTPUT_FILE_PREFIX);
        out.push_str("FILE");
        out.push_str(part.find(' ').map_or("", |end| &part[end..]));
    }
    out
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
