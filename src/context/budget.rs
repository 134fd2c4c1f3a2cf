//! Budgets: how many tokens a part of the context is, and what is left out where there is no room for all of it.
//!
//! The oldest iterations go first, whole; never the task, never half a pair. When something has to go, so much goes that
//! a quarter of the room is free again: what is sent then begins alike for many requests, and a provider's prompt cache
//! holds.

use super::generator::count_tokens;
use super::{ContextError, Generator, Surroundings};
use crate::conversation::{Conversation, Part};
use crate::llm::Message;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;

/// Tokens that a message takes beside its text, where texts are counted exactly.
const AROUND_A_MESSAGE: u64 = 4;

/// Counts tokens, and remembers what a tokenizer has said of a text.
#[derive(Debug, Default)]
pub struct Counter {
    /// By a hash of the text: a long run has many.
    known: HashMap<[u8; 32], u64>,
}

/// What is counted with.
pub(super) struct Scale<'s, 'e> {
    pub(super) tokenizer: Option<&'s Generator>,
    pub(super) around: &'s mut Surroundings<'e>,
}

impl Scale<'_, '_> {
    /// The tokens of a message, which is JSON.
    pub(super) fn message(&mut self, message: &str) -> Result<u64, ContextError> {
        match self.tokenizer {
            // With the comma behind it.
            None => Ok(self.around.ratio.tokens(message.len() + 1)),
            Some(tokenizer) => Ok(self.text(tokenizer, &texts(message))? + AROUND_A_MESSAGE),
        }
    }

    /// The size of a part of the conversation, of which [`Scale::tokens`] makes tokens: the sizes of two parts add up to
    /// that of both, however small they are.
    fn size(&mut self, part: &Part<'_>) -> Result<u64, ContextError> {
        match self.tokenizer {
            None => Ok(part.bytes() as u64),
            Some(_) => part.messages().iter().map(|message| self.message(message)).sum(),
        }
    }

    /// The tokens of so much.
    fn tokens(&self, size: u64) -> u64 {
        match self.tokenizer {
            None => self.around.ratio.tokens(usize::try_from(size).unwrap_or(usize::MAX)),
            Some(_) => size,
        }
    }

    fn text(&mut self, tokenizer: &Generator, text: &str) -> Result<u64, ContextError> {
        let hash = Sha256::digest(text).into();
        if let Some(known) = self.around.counter.known.get(&hash) {
            return Ok(*known);
        }
        let tokens = count_tokens(tokenizer, text, self.around)?;
        self.around.counter.known.insert(hash, tokens);
        Ok(tokens)
    }
}

/// What of a message, which is JSON, an endpoint counts.
fn texts(message: &str) -> String {
    let message: Json = serde_json::from_str(message).unwrap_or_default();
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let called = calls.flat_map(|call| [&call["function"]["name"], &call["function"]["arguments"]]);
    let said = [&message["content"], &message["reasoning_content"]];
    said.into_iter().chain(called).filter_map(Json::as_str).collect()
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
    notice: impl Fn(usize) -> String,
    scale: &mut Scale<'_, '_>,
) -> Result<Selection, ContextError> {
    let newest = conversation.iterations().saturating_sub(1);
    let start = if room.is_some() { before.max(beyond).min(newest) } else { beyond };
    let rest = conversation.rest(start).map_or(Ok(0), |rest| scale.size(&rest))?;
    let goal = room.map_or(u64::MAX, |room| room - room / 4);
    let choice = Choice { conversation, beyond, goal, notice };
    let all = choice.of(start, rest, scale)?;
    let Some(room) = room else { return Ok(all) };
    if all.tokens > room {
        let least = choice.narrow(all, rest, scale)?;
        return if least.tokens <= room { Ok(least) } else { Err(no_room(least.tokens, room)) };
    }
    // With so much more room than is used, the budget has been raised.
    if all.tokens < room / 2 { choice.widen(all, rest, scale) } else { Ok(all) }
}

fn no_room(tokens: u64, room: u64) -> ContextError {
    ContextError::Budget(format!(
        "the task and the last iteration take {tokens} tokens, and there is room for {room}; raise `total_max_tokens` or `max_tokens` in context.yaml, or lower the `max_output_bytes` of the tools"
    ))
}

/// How much of a conversation is left out.
struct Choice<'c, N> {
    conversation: &'c Conversation,
    /// How many iterations are too old by `max_iterations`.
    beyond: usize,
    /// How many tokens it is to be when something goes or comes back.
    goal: u64,
    notice: N,
}

impl<N: Fn(usize) -> String> Choice<'_, N> {
    /// What is sent without the `left_out` oldest iterations: the `rest`, which has this size, the notice, and the task
    /// where it stands alone.
    fn of(
        &self,
        left_out: usize,
        rest: u64,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Selection, ContextError> {
        let mut tokens = scale.tokens(rest);
        if left_out > self.beyond {
            tokens += scale.message(&(self.notice)(left_out))?;
        }
        if let Some(task) = self.conversation.task_apart(left_out) {
            let size = scale.size(&task)?;
            tokens += scale.tokens(size);
        }
        Ok(Selection { left_out, tokens })
    }

    /// Leaves out the oldest iterations until the goal is reached; never the newest. `rest` is the size of what is left.
    fn narrow(
        &self,
        mut selection: Selection,
        mut rest: u64,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Selection, ContextError> {
        while selection.tokens > self.goal
            && selection.left_out + 1 < self.conversation.iterations()
        {
            rest -= scale.size(&self.conversation.iteration(selection.left_out))?;
            selection = self.of(selection.left_out + 1, rest, scale)?;
        }
        Ok(selection)
    }

    /// Takes iterations in again that were left out when there was less room.
    fn widen(
        &self,
        mut selection: Selection,
        mut rest: u64,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Selection, ContextError> {
        while selection.left_out > self.beyond {
            let left_out = selection.left_out - 1;
            rest += scale.size(&self.conversation.iteration(left_out))?;
            let wider = self.of(left_out, rest, scale)?;
            if wider.tokens > self.goal {
                break;
            }
            selection = wider;
        }
        Ok(selection)
    }
}

/// The longest beginning of `content` with which `message` fits into `room` tokens, and the tokens of the whole; what
/// does not fit at all is an error.
pub(super) fn fit(
    content: &str,
    room: u64,
    message: impl Fn(&str) -> String,
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
pub(super) fn notice(name: &str, left_out: usize) -> String {
    let (what, verb) = (oldest(left_out), if left_out == 1 { "is" } else { "are" });
    let content = format!(
        "# Context Block: {name}\n\n[{what} {verb} left out of the conversation: there is no room for more]"
    );
    Message::System { content: Cow::Owned(content) }.to_json()
}

/// So many iterations, in words.
pub(super) fn oldest(count: usize) -> String {
    match count {
        1 => "the oldest iteration".to_owned(),
        count => format!("the {count} oldest iterations"),
    }
}
