//! The conversation that the events tell of: what people said, what the LLM answered, what its calls gave.
//!
//! Pure. What the LLM gave is made fit to be sent back: call ids that are missing, repeated or hostile are replaced, so
//! that every call is answered by exactly one result that a strict endpoint accepts. It is kept in the form in which it
//! is sent, so that a request costs what is new in it and a look at the rest.

use crate::event::Thought;
use crate::llm::{Message, ToolCall};
use crate::text;
use crate::transcript::{Messages, Transcript};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// A longer id is replaced: it would have to be repeated with every request.
const LONGEST_ID: usize = 128;

/// What was said so far, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    entries: Vec<Entry>,
    transcript: Transcript,
    /// Where each iteration begins: with the user messages that it answers.
    starts: Vec<usize>,
    /// Where the task stands.
    task: Option<usize>,
    used_ids: HashSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    said: Said,
    /// Where its messages stand in the transcript; there is at least one.
    messages: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// What a person said.
    User(String),
    /// What the engine tells the LLM, in a user's message.
    Note,
    /// An answer of the LLM, with the ids of its calls. The result of each call is the message behind the answer's that
    /// has its place.
    Iteration(Vec<String>),
}

/// A part of the conversation that is sent whole or not at all: an iteration with the user messages that it answers,
/// the user messages that no iteration has answered yet, or the task of a conversation whose beginning is left out.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a>(Messages<'a>);

impl<'a> Part<'a> {
    /// How many bytes its messages take in a request, each with the comma behind it.
    pub fn bytes(self) -> usize {
        self.0.text().len() + 1
    }

    /// Its messages as they are sent.
    pub fn messages(self) -> Messages<'a> {
        self.0
    }
}

impl Conversation {
    /// A person said something.
    pub fn user(&mut self, content: &str) {
        self.task.get_or_insert(self.entries.len());
        let message = Message::User { content: Cow::Borrowed(content) }.to_json();
        self.add(Said::User(content.to_owned()), [message]);
    }

    /// The engine tells of something that was done outside of the conversation.
    pub fn note(&mut self, content: &str) {
        let message = Message::User { content: Cow::Borrowed(content) }.to_json();
        self.add(Said::Note, [message]);
    }

    fn add(&mut self, said: Said, messages: impl IntoIterator<Item = String>) {
        let first = self.transcript.count();
        messages.into_iter().for_each(|message| self.transcript.push(&message));
        self.entries.push(Entry { said, messages: first..self.transcript.count() });
    }

    /// The LLM answered. Gives the ids of its calls, in order.
    pub fn thought(&mut self, thought: &Thought) -> Vec<String> {
        let mut calls = Vec::with_capacity(thought.tool_calls.len());
        for (index, call) in thought.tool_calls.iter().enumerate() {
            let id = self.id_of(&call.id, thought.iteration, index);
            let arguments = text::mend_surrogates(call.function.arguments.trim());
            let is_object = serde_json::from_str::<serde_json::Map<_, _>>(&arguments).is_ok();
            // Endpoints refuse, or fail on, arguments that are not an object; the observation says what was wrong.
            let arguments = if is_object { arguments.into_owned() } else { "{}".to_owned() };
            calls.push(ToolCall::new(id, sendable_name(&call.function.name), arguments));
        }
        let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
        let content = (!thought.content.is_empty() || calls.is_empty())
            .then_some(Cow::Borrowed(&*thought.content));
        let reasoning_content = thought.reasoning.as_deref().map(Cow::Borrowed);
        let tool_calls = Cow::Owned(calls);
        let answer = Message::Assistant { content, reasoning_content, tool_calls }.to_json();
        let results = ids.iter().map(|id| no_result(id));
        let messages = std::iter::once(answer).chain(results);
        self.starts.push(self.answered());
        self.add(Said::Iteration(ids.clone()), messages);
        ids
    }

    /// How many entries there are up to the last iteration.
    fn answered(&self) -> usize {
        let is_iteration = |entry: &Entry| matches!(entry.said, Said::Iteration(_));
        self.entries.iter().rposition(is_iteration).map_or(0, |at| at + 1)
    }

    /// A call of the last answer has its result.
    pub fn result(&mut self, call_id: &str, observation: &str) {
        self.set_result(call_id, &[&result_message(call_id, observation)]);
    }

    /// The same with an observation that is JSON already, as `serde_json` writes a text, and an id that needs no escapes.
    pub fn result_in_json(&mut self, call_id: &str, observation: &str) {
        self.set_result(call_id, &result_in_json(call_id, observation));
    }

    /// Puts down the message that is the result of a call of the last answer, when there is such a call.
    fn set_result(&mut self, call_id: &str, message: &[&str]) {
        let Some(last) = self.answered().checked_sub(1) else { return };
        let Entry { said: Said::Iteration(calls), messages } = &self.entries[last] else { return };
        let Some(index) = calls.iter().position(|id| id == call_id) else { return };
        self.transcript.replace(messages.start + 1 + index, message);
    }

    /// The id of a call in the run: the LLM's own, unless it cannot serve.
    fn id_of(&mut self, given: &str, iteration: u32, index: usize) -> String {
        let fit = (1..=LONGEST_ID).contains(&given.len()) && !given.contains(char::is_control);
        if fit && self.used_ids.insert(given.to_owned()) {
            return given.to_owned();
        }
        let mut id = format!("call_{iteration}_{}", index + 1);
        while !self.used_ids.insert(id.clone()) {
            id.push('_');
        }
        id
    }

    /// What is sent: everything, or the last `max_iterations` answers with the first user message and the later ones
    /// that they answer; each message as JSON. Never half a pair.
    pub fn messages(&self, max_iterations: Option<usize>) -> Vec<&str> {
        let parts = self.parts(self.beyond(max_iterations));
        parts.flat_map(|part| part.messages().iter()).collect()
    }

    /// How many iterations there are.
    pub fn iterations(&self) -> usize {
        self.starts.len()
    }

    /// How many of the oldest iterations are not among the last `max_iterations`.
    pub fn beyond(&self, max_iterations: Option<usize>) -> usize {
        max_iterations.map_or(0, |most| self.starts.len().saturating_sub(most))
    }

    /// What is left without the `left_out` oldest iterations, in order: the task, the other iterations, and what none of
    /// them has answered.
    pub fn parts(&self, left_out: usize) -> impl Iterator<Item = Part<'_>> {
        let iterations = (left_out..self.iterations()).map(|index| self.iteration(index));
        let parts = self.task_apart(left_out).into_iter().chain(iterations);
        parts.chain(self.unanswered())
    }

    /// The iteration at `index`, counted from 0, with the user messages that it answers.
    pub fn iteration(&self, index: usize) -> Part<'_> {
        let end = self.starts.get(index + 1).copied().unwrap_or_else(|| self.answered());
        self.part(self.starts[index]..end)
    }

    /// Some entries, at least one.
    fn part(&self, entries: Range<usize>) -> Part<'_> {
        let (first, last) = (&self.entries[entries.start], &self.entries[entries.end - 1]);
        Part(self.transcript.messages(first.messages.start..last.messages.end))
    }

    /// What is left without the `left_out` oldest iterations and the task that stands apart, in one piece.
    pub fn rest(&self, left_out: usize) -> Option<Part<'_>> {
        let from = self.starts.get(left_out).copied().unwrap_or_else(|| self.answered());
        (from < self.entries.len()).then(|| self.part(from..self.entries.len()))
    }

    /// The task, unless it is in one of the parts that are left without the `left_out` oldest iterations.
    pub fn task_apart(&self, left_out: usize) -> Option<Part<'_>> {
        let from = self.starts.get(left_out).copied().unwrap_or_else(|| self.answered());
        let task = self.task.filter(|task| *task < from)?;
        Some(self.part(task..task + 1))
    }

    /// The user messages that no iteration has answered yet.
    pub fn unanswered(&self) -> Option<Part<'_>> {
        let answered = self.answered();
        (answered < self.entries.len()).then(|| self.part(answered..self.entries.len()))
    }

    /// The text of the first user message.
    pub fn task(&self) -> &str {
        self.task.and_then(|task| self.entries[task].user_text()).unwrap_or_default()
    }

    /// The text of the last user message.
    pub fn last_user_message(&self) -> &str {
        self.entries.iter().rev().find_map(Entry::user_text).unwrap_or_default()
    }
}

impl Entry {
    fn user_text(&self) -> Option<&str> {
        match &self.said {
            Said::User(content) => Some(content),
            Said::Note | Said::Iteration(_) => None,
        }
    }
}

fn result_message(call_id: &str, observation: &str) -> String {
    let (tool_call_id, content) = (Cow::Borrowed(call_id), Cow::Borrowed(observation));
    Message::Tool { tool_call_id, content }.to_json()
}

/// The same of an id that needs no escapes and an observation that is JSON already, in pieces.
fn result_in_json<'a>(call_id: &'a str, observation: &'a str) -> [&'a str; 5] {
    [r#"{"role":"tool","tool_call_id":""#, call_id, r#"","content":"#, observation, "}"]
}

/// What stands in the place of a result.
fn no_result(call_id: &str) -> String {
    match call_id.contains(['"', '\\']) {
        true => result_message(call_id, "[no result was recorded]"),
        false => result_in_json(call_id, r#""[no result was recorded]""#).concat(),
    }
}

/// The name of a function as an endpoint accepts it; the LLM may have made one up.
fn sendable_name(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let name: String = name.chars().take(64).map(fit).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn thought(iteration: u32, content: &str, ids: &[&str]) -> Thought {
        let tool_calls = ids.iter().map(|id| ToolCall::new(*id, "t", "{}")).collect();
        Thought {
            iteration,
            content: content.to_owned(),
            tool_calls,
            reasoning: None,
            finish_reason: None,
            usage: None,
            invocation: None,
            estimated_tokens: None,
            left_out: 0,
            script_turn: None,
        }
    }

    fn shown(conversation: &Conversation, max: Option<usize>) -> Vec<String> {
        let show = |message: &str| {
            let message: serde_json::Value = serde_json::from_str(message).unwrap();
            let content = message["content"].as_str().unwrap_or("-");
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            let ids: Vec<_> = calls.map(|call| call["id"].as_str().unwrap()).collect();
            let of = message["tool_call_id"].as_str().unwrap_or_default();
            let role = message["role"].as_str().unwrap();
            format!("{role} {of}{} {content}", ids.join(" ")).replace("  ", " ")
        };
        conversation.messages(max).into_iter().map(show).collect()
    }

    #[test]
    fn c_3_4_ids_that_cannot_serve_are_replaced() {
        let mut conversation = Conversation::default();
        let ids = conversation.thought(&thought(1, "", &["a", "", "a", "../x", "b\0"]));
        assert_eq!(ids, ["a", "call_1_2", "call_1_3", "../x", "call_1_5"]);
        assert_eq!(
            conversation.thought(&thought(2, "", &["a", "call_2_1"])),
            ["call_2_1", "call_2_2"]
        );
    }

    #[test]
    fn a_result_is_the_same_from_text_and_from_json() {
        let written = |id: &str, text: &str| {
            Message::Tool { tool_call_id: id.into(), content: text.into() }.to_json()
        };
        assert_eq!(result_in_json("a/1", r#""x\n""#).concat(), written("a/1", "x\n"));
        for id in ["a/1", "ä", "\"", "\\"] {
            assert_eq!(no_result(id), written(id, "[no result was recorded]"));
        }
    }

    #[test]
    fn c_3_5_results_follow_their_answer_in_call_order() {
        let mut conversation = Conversation::default();
        conversation.user("task");
        conversation.thought(&thought(1, "", &["a", "b"]));
        conversation.result("b", "B");
        conversation.user("meanwhile");
        conversation.result("a", "A");
        let expected = ["user task", "assistant a b -", "tool a A", "tool b B", "user meanwhile"];
        assert_eq!(shown(&conversation, None), expected);
    }

    #[test]
    fn c_8_2_the_last_iterations_keep_the_task_and_what_they_answer() {
        let mut conversation = Conversation::default();
        conversation.user("task");
        for iteration in 1..=3 {
            conversation.thought(&thought(iteration, "", &["x"]));
            conversation.result(if iteration == 1 { "x" } else { "call" }, "r");
        }
        conversation.user("more");
        conversation.thought(&thought(4, "done", &[]));
        assert_eq!(shown(&conversation, Some(1)), ["user task", "user more", "assistant done"]);
        assert_eq!(shown(&conversation, Some(2)).len(), 5);
        assert_eq!(shown(&conversation, Some(9)), shown(&conversation, None));
    }

    #[test]
    fn c_3_1_arguments_that_are_no_object_are_sent_back_as_an_empty_one() {
        let mut conversation = Conversation::default();
        let mut made = thought(1, "", &[]);
        made.tool_calls = vec![
            ToolCall::new("a", "no such/tool", "{broken"),
            ToolCall::new("b", "", "{\"x\":1}"),
        ];
        conversation.thought(&made);
        let sent: serde_json::Value = serde_json::from_str(conversation.messages(None)[0]).unwrap();
        let functions: Vec<_> =
            (0..2).map(|at| sent["tool_calls"][at]["function"].clone()).collect();
        let made = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
        assert_eq!(functions, [made("no_such_tool", "{}"), made("unnamed", "{\"x\":1}")]);
    }
}
