//! Two runs of one recording, turn by turn: what was called, and what came of it.

use super::Difference;
use crate::conversation::Conversation;
use crate::event::{Event, Payload};
use crate::llm::ToolCall;
use crate::text::mend_surrogates;
use serde_json::Value as Json;

/// One answer of the LLM, and what came of its calls.
#[derive(Debug, Default)]
pub struct Turn {
    /// Its number.
    pub iteration: u32,
    /// Its calls with their results, in the LLM's order.
    pub calls: Vec<Outcome>,
}

/// What came of a call.
#[derive(Debug)]
pub struct Outcome {
    /// Its id in the run.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What the LLM was shown, once there was something.
    pub observation: Option<String>,
    /// The exit code.
    pub exit_code: Option<i32>,
}

/// The answers that `events` hold.
pub fn turns(events: &[Event]) -> Vec<Turn> {
    let (mut turns, mut conversation): (Vec<Turn>, _) = (Vec::new(), Conversation::default());
    for event in events {
        match &event.payload {
            Payload::Thought(thought) => {
                let ids = conversation.thought(thought);
                let calls = ids.into_iter().zip(&thought.tool_calls).map(|(id, call)| Outcome {
                    id,
                    tool: call.function.name.clone(),
                    observation: None,
                    exit_code: None,
                });
                turns.push(Turn { iteration: thought.iteration, calls: calls.collect() });
            }
            Payload::ActionResult(result) => {
                let calls = turns.last_mut().map(|turn| turn.calls.iter_mut());
                let found =
                    calls.and_then(|mut calls| calls.find(|call| call.id == result.call_id));
                if let Some(call) = found {
                    call.observation = Some(result.observation_content.clone());
                    call.exit_code = result.exit_code;
                }
            }
            _ => {}
        }
    }
    turns
}

/// Where the calls of a run came out otherwise than when they were recorded. The answers are the same, so the calls are.
pub fn compare(recorded: &[Turn], again: &[Turn]) -> Vec<Difference> {
    let mut found = Vec::new();
    for (index, turn) in recorded.iter().enumerate() {
        let at = Some(turn.iteration);
        let Some(other) = again.get(index) else {
            found.push(Difference::plain(at, "the answer", "it was given", "it was not asked for"));
            break;
        };
        for (call, other) in turn.calls.iter().zip(&other.calls) {
            let what = |part: &str| format!("{part} of the call {} ({})", call.id, call.tool);
            let text = |call: &Outcome| {
                call.observation.as_deref().map_or("none".to_owned(), without_place)
            };
            let code =
                |call: &Outcome| call.exit_code.map_or("none".to_owned(), |code| code.to_string());
            found.extend(Difference::of(at, what("the observation"), &text(call), &text(other)));
            found.extend(Difference::of(at, what("the exit code"), &code(call), &code(other)));
        }
    }
    found
}

/// `text` without the place in which a run keeps what an observation leaves out: no two runs have the same.
pub fn without_place(text: &str) -> String {
    const PLACE: &str = "the whole lies in .delta/";
    let mut parts = text.split(PLACE);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("the whole lies beside");
        out.push_str(part.find(' ').map_or("", |end| &part[end..]));
    }
    out
}

/// Where the calls of two answers part: another tool, other arguments, one more or one less. Texts do not count, for no
/// LLM says a thing twice in the same words; arguments are compared as JSON.
pub fn parted(iteration: u32, recorded: &[ToolCall], again: &[ToolCall]) -> Option<Difference> {
    let same = |one: &ToolCall, other: &ToolCall| {
        one.function.name == other.function.name && arguments(one) == arguments(other)
    };
    let pairs = recorded.iter().zip(again);
    let common = pairs.take_while(|(one, other)| same(one, other)).count();
    if common == recorded.len() && common == again.len() {
        return None;
    }
    let shown = |call: Option<&ToolCall>| match call {
        Some(call) => format!("{} {}", call.function.name, call.function.arguments),
        None if common == 0 => "no call: it ends the run".to_owned(),
        None => "no further call".to_owned(),
    };
    let what = format!("call {}", common + 1);
    let (recorded, again) = (shown(recorded.get(common)), shown(again.get(common)));
    Some(Difference::plain(Some(iteration), what, recorded, again))
}

/// The arguments of a call as a value; a text when they are no JSON.
fn arguments(call: &ToolCall) -> Json {
    let text = mend_surrogates(call.function.arguments.trim());
    let text = if text.is_empty() { "{}".into() } else { text };
    serde_json::from_str(&text).unwrap_or_else(|_| Json::from(&*text))
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
            let found = parted(1, &calls(one), &calls(other));
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
