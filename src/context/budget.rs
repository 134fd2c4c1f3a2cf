//! Budgets: how many tokens a part of the context is, and what is left out where there is no room for all of it.
//!
//! The oldest iterations go first, whole; never the task, never half a pair. When something has to go, so much goes that
//! a quarter of the room is free again: what is sent then begins alike for many requests, and a provider's prompt cache
//! holds.

use super::generator::count_tokens;
use super::{ContextError, Generator, Surroundings};
use crate::conversation::{Conversation, Part};
use crate::llm::Message;
use std::borrow::Cow;
use std::collections::HashMap;

/// Tokens that a message takes beside its text, where texts are counted exactly.
const AROUND_A_MESSAGE: u64 = 4;

/// Counts tokens, and remembers what a tokenizer has said of a text.
#[derive(Debug, Default)]
pub struct Counter {
    known: HashMap<String, u64>,
}

/// What is counted with.
pub(super) struct Scale<'s, 'e> {
    pub(super) tokenizer: Option<&'s Generator>,
    pub(super) around: &'s mut Surroundings<'e>,
}

impl Scale<'_, '_> {
    /// The tokens of a message of its own.
    pub(super) fn message(&mut self, message: &Message<'_>) -> Result<u64, ContextError> {
        match self.tokenizer {
            None => {
                let bytes = serde_json::to_string(message).map_or(0, |text| text.len() + 1);
                Ok(self.around.ratio.tokens(bytes))
            }
            Some(tokenizer) => Ok(self.text(tokenizer, &texts(message))? + AROUND_A_MESSAGE),
        }
    }

    /// The tokens of a part of the conversation.
    fn part(&mut self, part: &Part<'_>) -> Result<u64, ContextError> {
        match self.tokenizer {
            None => Ok(self.around.ratio.tokens(part.bytes())),
            Some(_) => part.messages().iter().map(|message| self.message(message)).sum(),
        }
    }

    fn text(&mut self, tokenizer: &Generator, text: &str) -> Result<u64, ContextError> {
        if let Some(known) = self.around.counter.known.get(text) {
            return Ok(*known);
        }
        let tokens = count_tokens(tokenizer, text, self.around)?;
        self.around.counter.known.insert(text.to_owned(), tokens);
        Ok(tokens)
    }
}

/// What of a message an endpoint counts.
fn texts(message: &Message<'_>) -> String {
    let mut text = message.text().to_owned();
    if let Message::Assistant { reasoning_content, tool_calls, .. } = message {
        text.push_str(reasoning_content.as_deref().unwrap_or_default());
        for call in tool_calls.iter() {
            text.push_str(&call.function.name);
            text.push_str(&call.function.arguments);
        }
    }
    text
}

/// What of the conversation is sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// How many of the oldest iterations are left out for want of room.
    pub(super) left_out: usize,
    /// The tokens of the rest.
    pub(super) tokens: u64,
}

/// Chooses what of a conversation fits into `room` tokens beside `notice`, which says what is left out. `before` is how
/// many iterations the last request left out, `beyond` how many are too old by `max_iterations`.
pub(super) fn select(
    conversation: &Conversation,
    (before, beyond): (usize, usize),
    room: Option<u64>,
    notice: impl Fn(usize) -> Message<'static>,
    scale: &mut Scale<'_, '_>,
) -> Result<Selection, ContextError> {
    let count = conversation.iterations();
    let Some(room) = room else {
        let parts = conversation.parts(beyond);
        let tokens = parts.iter().map(|part| scale.part(part)).sum::<Result<_, _>>()?;
        return Ok(Selection { left_out: beyond, tokens });
    };
    let start = before.clamp(beyond.min(count), count);
    let sizes = Sizes::of(conversation, start, scale)?;
    let mut tokens = sizes.without(0) + notice_of(start, beyond, &notice, scale)?;
    let goal = room - room / 4;
    if tokens <= room {
        // There is far more room than was used: the budget has been raised.
        if start > beyond && tokens < room / 2 {
            return widen(conversation, (start, beyond), (tokens, goal), &notice, scale);
        }
        return Ok(Selection { left_out: start, tokens });
    }
    let mut dropped = 0;
    while tokens > goal && start + dropped + 1 < count {
        dropped += 1;
        let left_out = start + dropped;
        tokens = sizes.without(dropped) + notice_of(left_out, beyond, &notice, scale)?;
    }
    match tokens <= room {
        true => Ok(Selection { left_out: start + dropped, tokens }),
        false => Err(ContextError::Budget(format!(
            "the task and the last iteration take {tokens} tokens, and there is room for {room}; raise `total_max_tokens` or `max_tokens` in context.yaml, or lower the `max_output_bytes` of the tools"
        ))),
    }
}

/// Takes iterations in again that were left out when there was less room.
fn widen(
    conversation: &Conversation,
    (start, beyond): (usize, usize),
    (tokens, goal): (u64, u64),
    notice: &impl Fn(usize) -> Message<'static>,
    scale: &mut Scale<'_, '_>,
) -> Result<Selection, ContextError> {
    let mut best = Selection { left_out: start, tokens };
    while best.left_out > beyond {
        let left_out = best.left_out - 1;
        let sizes = Sizes::of(conversation, left_out, scale)?;
        let tokens = sizes.without(0) + notice_of(left_out, beyond, notice, scale)?;
        if tokens > goal {
            break;
        }
        best = Selection { left_out, tokens };
    }
    Ok(best)
}

fn notice_of(
    left_out: usize,
    beyond: usize,
    notice: &impl Fn(usize) -> Message<'static>,
    scale: &mut Scale<'_, '_>,
) -> Result<u64, ContextError> {
    if left_out > beyond { scale.message(&notice(left_out)) } else { Ok(0) }
}

/// The tokens of the parts of a conversation from some iteration on.
struct Sizes {
    /// Of the iterations, in order.
    iterations: Vec<u64>,
    /// Of what none of them answers, and of the task where it is not among them.
    others: u64,
    /// Of the task, where it goes with the first of the iterations.
    task_within: u64,
}

impl Sizes {
    fn of(
        conversation: &Conversation,
        start: usize,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Self, ContextError> {
        let mut sizes = Self { iterations: Vec::new(), others: 0, task_within: 0 };
        let kept = conversation.iterations().saturating_sub(start);
        let parts = conversation.parts(start);
        let lead = conversation.parts(conversation.iterations());
        let has_task = !conversation.task().is_empty();
        let task = match lead.first().filter(|_| has_task) {
            Some(part) => scale.part(part)?,
            None => 0,
        };
        let apart = has_task && start > 0;
        for (index, part) in parts.iter().enumerate() {
            let tokens = scale.part(part)?;
            let first = usize::from(apart);
            match (first..first + kept).contains(&index) {
                true => sizes.iterations.push(tokens),
                false => sizes.others += tokens,
            }
        }
        if !apart {
            sizes.task_within = task;
        }
        Ok(sizes)
    }

    /// All of it but the oldest `dropped` iterations; the task stays.
    fn without(&self, dropped: usize) -> u64 {
        let kept: u64 = self.iterations.iter().skip(dropped).sum();
        let task = if dropped > 0 { self.task_within } else { 0 };
        kept + self.others + task
    }
}

/// The longest beginning of `content` with which `message` fits into `room` tokens, and the tokens of the whole; what
/// does not fit at all is an error.
pub(super) fn fit(
    content: &str,
    room: u64,
    message: impl Fn(&str) -> Message<'static>,
    scale: &mut Scale<'_, '_>,
) -> Result<Option<String>, ContextError> {
    if scale.message(&message(content))? <= room {
        return Ok(None);
    }
    let cut = |length: usize| {
        let kept = &content[..content.floor_char_boundary(length)];
        format!("{kept}\n[the rest is left out: this source may take {room} tokens]")
    };
    let (mut fits, mut too_long) = (0, content.len());
    if scale.message(&message(&cut(0)))? > room {
        return Err(ContextError::Budget(format!(
            "`max_tokens: {room}` is less than the heading of the source takes"
        )));
    }
    // No farther than it matters: a tokenizer is a process for each try.
    while too_long - fits > (content.len() / 200).max(1) {
        let middle = fits + (too_long - fits) / 2;
        match scale.message(&message(&cut(middle)))? <= room {
            true => fits = middle,
            false => too_long = middle,
        }
    }
    Ok(Some(cut(fits)))
}

/// The message that says what is left out of the conversation.
pub(super) fn notice(name: &str, left_out: usize) -> Message<'static> {
    let what = match left_out {
        1 => "the oldest iteration is".to_owned(),
        count => format!("the {count} oldest iterations are"),
    };
    let content = format!(
        "# Context Block: {name}\n\n[{what} left out of the conversation: there is no room for more]"
    );
    Message::System { content: Cow::Owned(content) }
}
