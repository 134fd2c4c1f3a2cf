//! Token budgets: the size of each part of the context, and what is omitted when there is not
//! enough room.
//!
//! Whole iterations are omitted, oldest first, but never the task or the user message in progress;
//! a call is never separated from its result. When the budget is exceeded, enough is omitted to free
//! a quarter of it: many requests then share a prefix, and a provider's prompt cache holds.

use super::context_program::count_tokens;
use super::{ContextError, ContextInputs, ContextProgram};
use delta_run::conversation::{Conversation, ConversationPart};
use delta_run::limits::token_estimate;
use delta_words::Message;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;

/// The tokens of a message besides its text, when texts are counted exactly.
const MESSAGE_OVERHEAD_TOKENS: u64 = 4;

/// The token counts of a tokenizer, cached.
#[derive(Debug, Default)]
pub struct TokenCounter {
    /// By the hash of the text.
    counts: HashMap<[u8; 32], u64>,
}

/// Measures messages in tokens.
pub(super) struct TokenMeter<'s, 'e> {
    pub(super) tokenizer: Option<&'s ContextProgram>,
    pub(super) inputs: &'s mut ContextInputs<'e>,
}

impl TokenMeter<'_, '_> {
    /// The tokens of a message given as JSON.
    pub(super) fn message_tokens(&mut self, message: &str) -> Result<u64, ContextError> {
        match self.tokenizer {
            // Including the comma after it.
            None => Ok(self.inputs.ratio.tokens(message.len() + 1)),
            Some(tokenizer) => {
                Ok(self.text_tokens(tokenizer, &counted_text(message))? + MESSAGE_OVERHEAD_TOKENS)
            }
        }
    }

    /// The size of a part of the conversation, for [`Self::size_to_tokens`]. Sizes add up exactly,
    /// unlike estimated tokens.
    fn part_size(&mut self, part: &ConversationPart<'_>) -> Result<u64, ContextError> {
        match self.tokenizer {
            // Sizes become tokens by the same ratio.
            None => Ok(part.bytes() as u64 + token_estimate::bytes_of_tokens(part.image_tokens())),
            Some(_) => {
                let messages = part.messages().iter();
                let texts: Result<u64, _> =
                    messages.map(|message| self.message_tokens(message)).sum();
                Ok(texts? + part.image_tokens())
            }
        }
    }

    fn size_to_tokens(&self, size: u64) -> u64 {
        match self.tokenizer {
            None => self.inputs.ratio.tokens(usize::try_from(size).unwrap_or(usize::MAX)),
            Some(_) => size,
        }
    }

    fn text_tokens(&mut self, tokenizer: &ContextProgram, text: &str) -> Result<u64, ContextError> {
        let hash = Sha256::digest(text).into();
        if let Some(known) = self.inputs.counter.counts.get(&hash) {
            return Ok(*known);
        }
        let tokens = count_tokens(tokenizer, text, self.inputs)?;
        self.inputs.counter.counts.insert(hash, tokens);
        Ok(tokens)
    }
}

/// The texts in a message (JSON) that an endpoint counts.
fn counted_text(message: &str) -> String {
    let message: Json = serde_json::from_str(message).unwrap_or_default();
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let calls = calls.flat_map(|call| [&call["function"]["name"], &call["function"]["arguments"]]);
    let parts = message["content"].as_array().into_iter().flatten().map(|part| &part["text"]);
    let texts = [&message["content"], &message["reasoning_content"]];
    texts.into_iter().chain(parts).chain(calls).filter_map(Json::as_str).collect()
}

/// The part of the conversation that is sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JournalSelection {
    /// The number of oldest iterations omitted because of the budget.
    pub(super) left_out: usize,
    /// The tokens of the rest.
    pub(super) tokens: u64,
}

/// Where the selection of iterations begins.
#[derive(Clone, Copy)]
pub(super) struct PreviousOmission {
    /// The number of iterations that the last request omitted.
    pub(super) left_out: usize,
    /// The number of iterations that `max_iterations` excludes.
    pub(super) excess: usize,
}

/// Selects the iterations that fit into `room` tokens together with `notice`, which says what is
/// omitted.
pub(super) fn select_iterations(
    conversation: &Conversation,
    previous: PreviousOmission,
    room: Option<u64>,
    notice: impl Fn(usize) -> String,
    meter: &mut TokenMeter<'_, '_>,
) -> Result<JournalSelection, ContextError> {
    let newest = conversation.iteration_count().saturating_sub(1);
    let PreviousOmission { left_out, excess } = previous;
    let start = if room.is_some() { left_out.max(excess).min(newest) } else { excess };
    let rest = conversation.remaining_part(start).map_or(Ok(0), |rest| meter.part_size(&rest))?;
    let goal = room.map_or(u64::MAX, |room| room - room / 4);
    let selector = IterationSelector { conversation, too_old: excess, goal, notice };
    let all = selector.evaluate(start, rest, meter)?;
    let Some(room) = room else { return Ok(all) };
    if all.tokens > room {
        let least = selector.narrow(all, rest, meter)?;
        return if least.tokens <= room {
            Ok(least)
        } else {
            Err(budget_too_small(least.tokens, room))
        };
    }
    // With this much unused room, the budget must have been raised.
    if all.tokens < room / 2 { selector.widen(all, rest, meter) } else { Ok(all) }
}

fn budget_too_small(tokens: u64, room: u64) -> ContextError {
    ContextError::Budget(format!(
        "the task and the last iteration take {tokens} tokens, but only {room} are available; shorten the task, raise `total_max_tokens` or `max_tokens` in context.yaml, or lower `max_output_bytes` of the tools"
    ))
}

/// Decides how many iterations to omit.
struct IterationSelector<'c, N> {
    conversation: &'c Conversation,
    /// The number of iterations that `max_iterations` excludes.
    too_old: usize,
    /// The number of tokens to reach when iterations are dropped or restored.
    goal: u64,
    notice: N,
}

impl<N: Fn(usize) -> String> IterationSelector<'_, N> {
    /// The selection without the oldest `left_out` iterations: the remaining part of size `rest`,
    /// the notice, and the user messages that are kept.
    fn evaluate(
        &self,
        left_out: usize,
        rest: u64,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<JournalSelection, ContextError> {
        let mut tokens = meter.size_to_tokens(rest);
        if left_out > self.too_old {
            tokens += meter.message_tokens(&(self.notice)(left_out))?;
        }
        for message in self.conversation.pinned(left_out) {
            let size = meter.part_size(&message)?;
            tokens += meter.size_to_tokens(size);
        }
        Ok(JournalSelection { left_out, tokens })
    }

    /// Drops the oldest iterations until the goal is reached; never the newest. `rest` is the size
    /// of the remaining part.
    fn narrow(
        &self,
        mut selection: JournalSelection,
        mut rest: u64,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<JournalSelection, ContextError> {
        while selection.tokens > self.goal
            && selection.left_out + 1 < self.conversation.iteration_count()
        {
            rest -= meter.part_size(&self.conversation.iteration(selection.left_out))?;
            selection = self.evaluate(selection.left_out + 1, rest, meter)?;
        }
        Ok(selection)
    }

    /// Restores iterations that were dropped when there was less room.
    fn widen(
        &self,
        mut selection: JournalSelection,
        mut rest: u64,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<JournalSelection, ContextError> {
        while selection.left_out > self.too_old {
            let left_out = selection.left_out - 1;
            rest += meter.part_size(&self.conversation.iteration(left_out))?;
            let wider = self.evaluate(left_out, rest, meter)?;
            if wider.tokens > self.goal {
                break;
            }
            selection = wider;
        }
        Ok(selection)
    }
}

/// The longest prefix of `content` whose `message` fits into `room` tokens; `None` if all of it
/// fits.
pub(super) fn truncate_to_tokens(
    content: &str,
    room: u64,
    message: impl Fn(&str) -> String,
    meter: &mut TokenMeter<'_, '_>,
) -> Result<Option<String>, ContextError> {
    if meter.message_tokens(&message(content))? <= room {
        return Ok(None);
    }
    let cut = |length: usize| {
        let prefix = &content[..content.floor_char_boundary(length)];
        format!("{prefix}\n[the rest is left out: this source may take {room} tokens]")
    };
    let mut fits = 0;
    let mut too_long = content.len();
    if meter.message_tokens(&message(&cut(0)))? > room {
        return Err(ContextError::Budget(format!(
            "`max_tokens: {room}` is too small for the heading of the source"
        )));
    }
    // A rough result is enough: a tokenizer starts a process for each attempt.
    while too_long - fits > (content.len() / 200).max(1) {
        let middle = fits + (too_long - fits) / 2;
        if meter.message_tokens(&message(&cut(middle)))? <= room {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    Ok(Some(cut(fits)))
}

/// The message that says what is omitted from the conversation.
pub(super) fn omission_notice(name: &str, left_out: usize) -> String {
    let iterations = describe_oldest(left_out);
    let verb = if left_out == 1 { "is" } else { "are" };
    let content = format!(
        "# Context Block: {name}\n\n[{iterations} {verb} left out of the conversation: there is no room for more]"
    );
    Message::System { content: Cow::Owned(content) }.to_json()
}

/// The number of iterations in words, as records have it.
pub(super) fn describe_oldest(count: usize) -> String {
    match count {
        1 => "the oldest iteration".to_owned(),
        count => format!("the {count} oldest iterations"),
    }
}
