//! The conversation that the events tell of: what people said, what the LLM answered, what its calls gave.
//!
//! Pure. What the LLM gave is made fit to be sent back: call ids that are missing, repeated or hostile are replaced, so
//! that every call is answered by exactly one result that a strict endpoint accepts.

use crate::event::Thought;
use crate::llm::{Message, ToolCall};
use crate::text;
use std::borrow::Cow;
use std::collections::HashSet;

/// A longer id is replaced: it would have to be repeated with every request.
const LONGEST_ID: usize = 128;

/// What was said so far, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    entries: Vec<Entry>,
    used_ids: HashSet<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Entry {
    User(String),
    Iteration(Iteration),
}

/// One answer of the LLM with its calls and their results.
#[derive(Debug, Clone, PartialEq)]
struct Iteration {
    content: String,
    reasoning: Option<String>,
    /// With the engine's ids, in the form that is sent back.
    calls: Vec<ToolCall>,
    /// The observation of each call, as far as there is one.
    results: Vec<Option<String>>,
}

impl Conversation {
    /// A person said something.
    pub fn user(&mut self, content: &str) {
        self.entries.push(Entry::User(content.to_owned()));
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
        let ids = calls.iter().map(|call| call.id.clone()).collect();
        self.entries.push(Entry::Iteration(Iteration {
            content: thought.content.clone(),
            reasoning: thought.reasoning.clone(),
            results: vec![None; calls.len()],
            calls,
        }));
        ids
    }

    /// A call of the last answer has its result.
    pub fn result(&mut self, call_id: &str, observation: &str) {
        let last = self.entries.iter_mut().rev().find_map(|entry| match entry {
            Entry::Iteration(iteration) => Some(iteration),
            Entry::User(_) => None,
        });
        let Some(iteration) = last else { return };
        if let Some(index) = iteration.calls.iter().position(|call| call.id == call_id) {
            iteration.results[index] = Some(observation.to_owned());
        }
    }

    /// The id of a call in the run: the LLM's own, unless it cannot serve.
    fn id_of(&mut self, given: &str, iteration: u32, index: usize) -> String {
        let fit = (1..=LONGEST_ID).contains(&given.len()) && !given.contains(char::is_control);
        let mut id = given.to_owned();
        if !fit || self.used_ids.contains(given) {
            id = format!("call_{iteration}_{}", index + 1);
            while self.used_ids.contains(&id) {
                id.push('_');
            }
        }
        self.used_ids.insert(id.clone());
        id
    }

    /// What is sent: everything, or the last `max_iterations` answers with the first user message and the later ones
    /// that they answer. Never half a pair.
    pub fn messages(&self, max_iterations: Option<usize>) -> Vec<Message<'_>> {
        let from = self.first_kept(max_iterations);
        let task = self.entries.iter().position(|entry| matches!(entry, Entry::User(_)));
        let mut messages = Vec::with_capacity(self.entries.len() * 2);
        for (at, entry) in self.entries.iter().enumerate() {
            match entry {
                Entry::User(content) if at >= from || Some(at) == task => {
                    messages.push(Message::User { content: Cow::Borrowed(content) });
                }
                Entry::Iteration(iteration) if at >= from => iteration.push_messages(&mut messages),
                _ => {}
            }
        }
        messages
    }

    /// Where the kept part begins: the oldest kept answer, and the user messages directly before it.
    fn first_kept(&self, max_iterations: Option<usize>) -> usize {
        let Some(limit) = max_iterations else { return 0 };
        let mut kept = 0;
        for (at, entry) in self.entries.iter().enumerate().rev() {
            if matches!(entry, Entry::Iteration(_)) {
                if kept == limit {
                    return at + 1;
                }
                kept += 1;
            }
        }
        0
    }

    /// The text of the first user message.
    pub fn task(&self) -> &str {
        self.entries.iter().find_map(Entry::user_text).unwrap_or_default()
    }

    /// The text of the last user message.
    pub fn last_user_message(&self) -> &str {
        self.entries.iter().rev().find_map(Entry::user_text).unwrap_or_default()
    }
}

impl Entry {
    fn user_text(&self) -> Option<&str> {
        match self {
            Self::User(content) => Some(content),
            Self::Iteration(_) => None,
        }
    }
}

impl Iteration {
    fn push_messages<'a>(&'a self, messages: &mut Vec<Message<'a>>) {
        let content = (!self.content.is_empty() || self.calls.is_empty())
            .then_some(Cow::Borrowed(&*self.content));
        let reasoning_content = self.reasoning.as_deref().map(Cow::Borrowed);
        messages.push(Message::Assistant {
            content,
            reasoning_content,
            tool_calls: Cow::Borrowed(&self.calls),
        });
        for (call, result) in self.calls.iter().zip(&self.results) {
            let content = result.as_deref().unwrap_or("[no result was recorded]");
            messages.push(Message::Tool {
                tool_call_id: Cow::Borrowed(&call.id),
                content: Cow::Borrowed(content),
            });
        }
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
            script_turn: None,
        }
    }

    fn shown(conversation: &Conversation, max: Option<usize>) -> Vec<String> {
        let show = |message: Message<'_>| match message {
            Message::System { content } => format!("system {content}"),
            Message::User { content } => format!("user {content}"),
            Message::Assistant { content, tool_calls, .. } => {
                let ids: Vec<_> = tool_calls.iter().map(|call| call.id.as_str()).collect();
                format!("assistant {content:?} {ids:?}")
            }
            Message::Tool { tool_call_id, content } => format!("tool {tool_call_id} {content}"),
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
    fn c_3_5_results_follow_their_answer_in_call_order() {
        let mut conversation = Conversation::default();
        conversation.user("task");
        conversation.thought(&thought(1, "", &["a", "b"]));
        conversation.result("b", "B");
        conversation.user("meanwhile");
        conversation.result("a", "A");
        let expected = [
            "user task",
            "assistant None [\"a\", \"b\"]",
            "tool a A",
            "tool b B",
            "user meanwhile",
        ];
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
        assert_eq!(
            shown(&conversation, Some(1)),
            ["user task", "user more", "assistant Some(\"done\") []"]
        );
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
        let Message::Assistant { tool_calls, .. } = &conversation.messages(None)[0] else {
            panic!()
        };
        assert_eq!(tool_calls[0], ToolCall::new("a", "no_such_tool", "{}"));
        assert_eq!(tool_calls[1], ToolCall::new("b", "unnamed", "{\"x\":1}"));
    }
}
