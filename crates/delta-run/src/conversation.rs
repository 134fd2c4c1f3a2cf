//! The conversation of a run, folded from its events: user messages, LLM answers and the results of tool calls.
//!
//! Pure. What the LLM sent is made acceptable to a strict endpoint: missing, repeated or malformed call ids are replaced,
//! and exactly one result follows for every call. Messages are stored as they are sent, so that a request costs what is
//! new in it and a comparison of the rest.

use crate::conversation::message_buffer::{MessageBuffer, MessageSlice};
use crate::event::image_file::{self, ImageFile};
use crate::event::{ActionResult, Thought};
use delta_words::{Message, ToolCall};
use serde_json::json;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

pub mod history;
pub mod message_buffer;

/// The messages of a run so far, in order.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    entries: Vec<ConversationEntry>,
    /// The messages before those in `pending`.
    buffer: MessageBuffer,
    /// The messages from the first result of the last answer on, while a result is missing.
    pending: Option<PendingMessages>,
    /// All messages, if they were read while a result was missing.
    complete: OnceCell<MessageBuffer>,
    /// The first entry of each iteration: the first user message that it answers.
    iteration_starts: Vec<usize>,
    /// The entries that are user messages, in order; the first is the task.
    user_entries: Vec<usize>,
    used_call_ids: HashSet<String>,
    /// Whether an answer has the member `native`.
    has_native: bool,
    /// Whether a message or a result has an image.
    has_images: bool,
}

/// The results of an answer, and the messages after them. They move to the buffer together: to insert one result there
/// would cost as much as all that follows it.
#[derive(Debug, Clone, PartialEq)]
struct PendingMessages {
    index_by_id: HashMap<String, usize>,
    /// One for each call, first without a result.
    results: Vec<String>,
    /// The calls whose results are missing.
    missing: HashSet<usize>,
    following: Vec<String>,
}

impl PendingMessages {
    fn new(call_ids: &[String]) -> Self {
        Self {
            index_by_id: call_ids.iter().cloned().zip(0..).collect(),
            results: call_ids.iter().map(|id| result_message(id, NO_RESULT)).collect(),
            missing: (0..call_ids.len()).collect(),
            following: Vec::new(),
        }
    }

    fn push_to(&self, buffer: &mut MessageBuffer) {
        self.results.iter().chain(&self.following).for_each(|message| buffer.push(message));
    }
}

impl PartialEq for Conversation {
    /// Does not compare `complete`, which follows from the other fields.
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
            && self.buffer == other.buffer
            && self.pending == other.pending
            && self.iteration_starts == other.iteration_starts
            && self.user_entries == other.user_entries
            && self.used_call_ids == other.used_call_ids
    }
}

#[derive(Debug, Clone, PartialEq)]
struct ConversationEntry {
    kind: ConversationEntryKind,
    /// The range of its messages in the buffer, at least one.
    messages: Range<usize>,
}

#[derive(Debug, Clone, PartialEq)]
enum ConversationEntryKind {
    UserMessage(String),
    /// A note of the engine to the LLM, sent as a user message.
    EngineNote,
    /// An LLM answer. One result message per call follows the answer, in call order.
    Iteration,
}

/// The variable in a template of the first message that stands for it.
const MESSAGE_VARIABLE: &str = "${message}";

/// The first message as the LLM sees it with a template. The message is not read for variables.
///
/// # Errors
/// What is wrong with the template.
pub fn render_task_template(template: &str, message: &str) -> Result<String, String> {
    let parts: Vec<&str> = template.split(MESSAGE_VARIABLE).collect();
    if parts.len() == 1 {
        return Err(format!("the template does not contain `{MESSAGE_VARIABLE}`"));
    }
    Ok(parts.join(message))
}

/// A part of the conversation that is sent as a unit or left out: an iteration with the user messages that it answers,
/// the user messages that no iteration has answered yet, or a user message whose iterations are left out.
#[derive(Debug, Clone, Copy)]
pub struct ConversationPart<'a> {
    messages: MessageSlice<'a>,
    /// The estimated tokens of its images.
    image_tokens: u64,
}

impl<'a> ConversationPart<'a> {
    /// The bytes of its messages in a request, including the comma after each.
    pub fn bytes(self) -> usize {
        self.messages.text().len() + 1
    }

    /// The estimated tokens of its images, which its bytes do not include.
    pub fn image_tokens(self) -> u64 {
        self.image_tokens
    }

    /// Its messages as they are sent.
    pub fn messages(self) -> MessageSlice<'a> {
        self.messages
    }
}

/// What follows the observation of a call that only repeats. Recorded requests contain it, so its wording is a format.
fn repeat_note(count: u32) -> String {
    format!(
        "[The same call with the same result, {count} times in a row. Do something else, or end the task; the next repetition ends the run.]"
    )
}

impl Conversation {
    /// Adds a message of the user. The first one is the task.
    pub fn push_user_message(&mut self, content: &str) {
        self.push_user_message_with(content, &[], None);
    }

    /// Adds a message of the user that may have images. The LLM sees the task in the template, if there is one.
    pub fn push_user_message_with(
        &mut self,
        content: &str,
        images: &[ImageFile],
        task_template: Option<&str>,
    ) {
        let template = task_template.filter(|_| self.user_entries.is_empty());
        // A journal can contain any template.
        let text = template.and_then(|template| render_task_template(template, content).ok());
        let text = text.map_or(Cow::Borrowed(content), Cow::Owned);
        self.user_entries.push(self.entries.len());
        let message = if images.is_empty() {
            Message::User { content: text }.to_json()
        } else {
            self.has_images = true;
            let parts = image_file::message_parts(&text, images);
            json!({"role": "user", "content": parts}).to_string()
        };
        self.push_entry(ConversationEntryKind::UserMessage(content.to_owned()), message);
    }

    /// Adds a note of the engine about a change outside of the conversation, such as a rollback.
    pub fn push_engine_note(&mut self, content: &str) {
        let message = Message::User { content: Cow::Borrowed(content) }.to_json();
        self.push_entry(ConversationEntryKind::EngineNote, message);
    }

    fn push_entry(&mut self, kind: ConversationEntryKind, message: String) {
        self.complete.take();
        let first = self.message_count();
        match &mut self.pending {
            Some(pending) => pending.following.push(message),
            None => self.buffer.push(&message),
        }
        self.entries.push(ConversationEntry { kind, messages: first..first + 1 });
    }

    fn message_count(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.messages.end)
    }

    /// All messages.
    fn all_messages(&self) -> &MessageBuffer {
        let Some(pending) = &self.pending else { return &self.buffer };
        self.complete.get_or_init(|| {
            let mut buffer = self.buffer.clone();
            pending.push_to(&mut buffer);
            buffer
        })
    }

    /// Moves the pending messages to the buffer, where they cannot change.
    fn flush_pending(&mut self) {
        self.complete.take();
        if let Some(pending) = self.pending.take() {
            pending.push_to(&mut self.buffer);
        }
    }

    /// Adds an answer of the LLM. Returns the ids of its calls in the run, in call order.
    pub fn push_thought(&mut self, thought: &Thought) -> Vec<String> {
        let mut calls = Vec::with_capacity(thought.tool_calls.len());
        for (index, call) in thought.tool_calls.iter().enumerate() {
            let id = self.unique_call_id(&call.id, thought.iteration, index);
            let arguments = call.function.arguments.as_json().trim();
            // All arguments as one text.
            let inner = serde_json::from_str::<String>(arguments).ok();
            let arguments = inner.as_deref().map_or(arguments, str::trim);
            let is_object = serde_json::from_str::<serde_json::Map<_, _>>(arguments).is_ok();
            // Endpoints reject arguments that are not an object. The observation of the call reports what was wrong.
            let arguments = if is_object { arguments } else { "{}" };
            calls.push(ToolCall::new(id, sanitize_function_name(&call.function.name), arguments));
        }
        let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
        let content = (!thought.content.is_empty() || calls.is_empty())
            .then_some(Cow::Borrowed(&*thought.content));
        let reasoning_content = thought.reasoning.as_deref().map(Cow::Borrowed);
        let tool_calls = Cow::Owned(calls);
        let native = thought.native.as_ref();
        self.has_native |= native.is_some();
        let answer =
            Message::Assistant { content, reasoning_content, tool_calls, native }.to_json();
        // No endpoint takes a message without content, so only the message after it is sent.
        let (answer, reminder) = match &thought.reminder {
            Some(reminder) if thought.is_empty() => {
                (Message::User { content: Cow::Borrowed(reminder) }.to_json(), None)
            }
            reminder => (answer, reminder.as_ref()),
        };
        self.flush_pending();
        self.iteration_starts.push(self.answered_entries());
        self.push_entry(ConversationEntryKind::Iteration, answer);
        if let Some(entry) = self.entries.last_mut().filter(|_| !ids.is_empty()) {
            entry.messages.end += ids.len();
            self.pending = Some(PendingMessages::new(&ids));
        }
        reminder.into_iter().for_each(|reminder| self.push_engine_note(reminder));
        ids
    }

    /// The number of entries up to and including the last iteration.
    fn answered_entries(&self) -> usize {
        let last = self
            .entries
            .iter()
            .rposition(|entry| matches!(entry.kind, ConversationEntryKind::Iteration));
        last.map_or(0, |last| last + 1)
    }

    /// Sets the result of a call of the last answer. An unknown call, and another result of a call, is ignored.
    pub fn add_result(&mut self, call_id: &str, observation: &str) {
        self.set_result(call_id, observation, &[]);
    }

    /// Sets the result that the event records, with its images.
    pub fn add_action_result(&mut self, result: &ActionResult) {
        let observation = match result.repeats {
            0 => Cow::Borrowed(&*result.observation_content),
            count => Cow::Owned(format!("{}\n{}", result.observation_content, repeat_note(count))),
        };
        self.set_result(&result.call_id, &observation, &result.images);
    }

    fn set_result(&mut self, call_id: &str, observation: &str, images: &[ImageFile]) {
        let Some(pending) = &mut self.pending else { return };
        let Some(index) = pending.index_by_id.get(call_id).copied() else { return };
        if !pending.missing.remove(&index) {
            return;
        }
        self.complete.take();
        self.has_images |= !images.is_empty();
        pending.results[index] = if images.is_empty() {
            result_message(call_id, observation)
        } else {
            let parts = image_file::message_parts(observation, images);
            json!({"role": "tool", "tool_call_id": call_id, "content": parts}).to_string()
        };
        if pending.missing.is_empty() {
            self.flush_pending();
        }
    }

    /// The LLM's own id of a call, or a new one where that is empty, too long, not unique or has control characters.
    fn unique_call_id(&mut self, llm_id: &str, iteration: u32, index: usize) -> String {
        let is_usable = (1..=ToolCall::MAX_ID_BYTES).contains(&llm_id.len())
            && !llm_id.contains(char::is_control);
        if is_usable && self.used_call_ids.insert(llm_id.to_owned()) {
            return llm_id.to_owned();
        }
        let mut id = format!("call_{iteration}_{}", index + 1);
        while !self.used_call_ids.insert(id.clone()) {
            id.push('_');
        }
        id
    }

    /// The messages of a request, each as JSON: all, or the last `max_iterations` answers with the task and the user
    /// message that each of them works on. A call is never separated from its result.
    pub fn messages(&self, max_iterations: Option<usize>) -> Vec<&str> {
        let parts = self.parts(self.excess_iterations(max_iterations));
        parts.flat_map(|part| part.messages().iter()).collect()
    }

    /// Whether the message of an answer has the member `native`.
    pub fn has_native(&self) -> bool {
        self.has_native
    }

    /// Whether a message or a result has an image.
    pub fn has_images(&self) -> bool {
        self.has_images
    }

    /// The estimated tokens of the images in a request of the conversation, or in a part of one.
    pub fn image_tokens(&self, request: &str) -> u64 {
        if self.has_images { image_file::image_tokens(request) } else { 0 }
    }

    /// The number of iterations.
    pub fn iteration_count(&self) -> usize {
        self.iteration_starts.len()
    }

    /// How many of the oldest iterations are not among the last `max_iterations`.
    pub fn excess_iterations(&self, max_iterations: Option<usize>) -> usize {
        max_iterations.map_or(0, |most| self.iteration_starts.len().saturating_sub(most))
    }

    /// The parts that remain without the `left_out` oldest iterations, in order: the pinned messages, the other
    /// iterations, and the messages that no iteration has answered.
    pub fn parts(&self, left_out: usize) -> impl Iterator<Item = ConversationPart<'_>> {
        let iterations = (left_out..self.iteration_count()).map(|index| self.iteration(index));
        let unanswered = self.remaining_part(self.iteration_count());
        self.pinned(left_out).chain(iterations).chain(unanswered)
    }

    /// The iteration at `index`, counted from 0, with the user messages that it answers.
    pub fn iteration(&self, index: usize) -> ConversationPart<'_> {
        self.part(self.iteration_starts[index]..self.iteration_start(index + 1))
    }

    /// The first entry of the iteration at `index`, or the entry after the last iteration.
    fn iteration_start(&self, index: usize) -> usize {
        self.iteration_starts.get(index).copied().unwrap_or_else(|| self.answered_entries())
    }

    /// A non-empty range of entries.
    fn part(&self, entries: Range<usize>) -> ConversationPart<'_> {
        let first = &self.entries[entries.start];
        let last = &self.entries[entries.end - 1];
        let messages = self.all_messages().slice(first.messages.start..last.messages.end);
        ConversationPart { messages, image_tokens: self.image_tokens(messages.text()) }
    }

    /// The messages after the `left_out` oldest iterations as one part. Does not include [`Conversation::pinned`].
    pub fn remaining_part(&self, left_out: usize) -> Option<ConversationPart<'_>> {
        let start = self.iteration_start(left_out);
        (start < self.entries.len()).then(|| self.part(start..self.entries.len()))
    }

    /// The user messages that are sent although they belong to the `left_out` oldest iterations: the task, and the
    /// message that the first remaining iteration works on.
    pub fn pinned(&self, left_out: usize) -> impl Iterator<Item = ConversationPart<'_>> {
        let start = self.iteration_start(left_out);
        let count = self.user_entries.partition_point(|entry| *entry < start);
        let task = self.user_entries[..count].first().copied();
        let is_replaced =
            self.user_entries.get(count).is_some_and(|next| *next < self.first_answer(left_out));
        let current = self.user_entries[..count].last().copied();
        let current = current.filter(|entry| Some(*entry) != task && !is_replaced);
        task.into_iter().chain(current).map(|entry| self.part(entry..entry + 1))
    }

    /// The entry of the first answer after the `left_out` oldest iterations, or where it will be.
    fn first_answer(&self, left_out: usize) -> usize {
        if left_out < self.iteration_starts.len() {
            self.iteration_start(left_out + 1) - 1
        } else {
            self.entries.len()
        }
    }

    /// The text of the first user message, empty if there is none.
    pub fn task(&self) -> &str {
        self.user_text(self.user_entries.first())
    }

    /// The text of the last user message, empty if there is none.
    pub fn last_user_message(&self) -> &str {
        self.user_text(self.user_entries.last())
    }

    fn user_text(&self, entry: Option<&usize>) -> &str {
        match entry.map(|entry| &self.entries[*entry].kind) {
            Some(ConversationEntryKind::UserMessage(content)) => content,
            _ => "",
        }
    }
}

/// The result that is sent for a call whose result was not recorded.
const NO_RESULT: &str = "[no result was recorded]";

fn result_message(call_id: &str, observation: &str) -> String {
    let content = Cow::Borrowed(observation);
    Message::Tool { tool_call_id: Cow::Borrowed(call_id), content }.to_json()
}

/// A function name that endpoints accept. The LLM may have invented one that they do not.
fn sanitize_function_name(name: &str) -> String {
    let name: String = name.chars().take(64).collect();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name.replace(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn thought(iteration: u32, content: &str, ids: &[&str]) -> Thought {
        let tool_calls = ids.iter().map(|id| ToolCall::new(*id, "t", "{}")).collect();
        Thought { iteration, content: content.to_owned(), tool_calls, ..Thought::default() }
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
        let ids = conversation.push_thought(&thought(1, "", &["a", "", "a", "../x", "b\0"]));
        assert_eq!(ids, ["a", "call_1_2", "call_1_3", "../x", "call_1_5"]);
        assert_eq!(
            conversation.push_thought(&thought(2, "", &["a", "call_2_1"])),
            ["call_2_1", "call_2_2"]
        );
    }

    #[test]
    fn c_3_5_results_follow_their_answer_in_call_order() {
        let mut conversation = Conversation::default();
        conversation.push_user_message("task");
        conversation.push_thought(&thought(1, "", &["a", "b"]));
        conversation.add_result("b", "B");
        conversation.push_user_message("meanwhile");
        let missing = "tool a [no result was recorded]";
        let expected = ["user task", "assistant a b -", missing, "tool b B", "user meanwhile"];
        assert_eq!(shown(&conversation, None), expected);
        conversation.add_result("a", "A");
        conversation.add_result("a", "again");
        let expected = ["user task", "assistant a b -", "tool a A", "tool b B", "user meanwhile"];
        assert_eq!(shown(&conversation, None), expected);
    }

    #[test]
    fn c_8_2_the_last_iterations_keep_the_task_and_what_they_answer() {
        let mut conversation = Conversation::default();
        conversation.push_user_message("task");
        for iteration in 1..=3 {
            conversation.push_thought(&thought(iteration, "", &["x"]));
            conversation.add_result(if iteration == 1 { "x" } else { "call" }, "r");
        }
        conversation.push_user_message("more");
        conversation.push_thought(&thought(4, "done", &[]));
        assert_eq!(shown(&conversation, Some(1)), ["user task", "user more", "assistant done"]);
        assert_eq!(shown(&conversation, Some(2)).len(), 5);
        conversation.push_thought(&thought(5, "still", &[]));
        assert_eq!(shown(&conversation, Some(1)), ["user task", "user more", "assistant still"]);
        conversation.push_user_message("last");
        let expected = ["user task", "user more", "assistant still", "user last"];
        assert_eq!(shown(&conversation, Some(1)), expected);
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
        conversation.push_thought(&made);
        let sent: serde_json::Value = serde_json::from_str(conversation.messages(None)[0]).unwrap();
        let functions: Vec<_> =
            (0..2).map(|at| sent["tool_calls"][at]["function"].clone()).collect();
        let made = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
        assert_eq!(functions, [made("no_such_tool", "{}"), made("unnamed", "{\"x\":1}")]);
    }
}
