//! Rebuilds the messages of a recorded request for a replay: the conversation from the journal, the
//! system prompt from the run's copy, and everything else from the request itself, because it
//! depends on the outside world.

use super::context_builder::{ContextPiece, RequestContext};
use super::token_budget::{self, JournalSelection, TokenMeter};
use super::{ContextInputs, ContextManifest, ContextSource, JOURNAL_TYPE, SourceKind};
use crate::skill;
use delta_base::text::without_byte_order_mark;
use delta_run::record::ContextBlock;
use delta_run::state::RunState;

/// A block of a recorded request.
#[derive(Debug)]
pub struct RecordedBlock<'a> {
    /// The block as recorded.
    pub block: &'a ContextBlock,
    /// Its messages as they appear in the request, with the commas between them.
    pub messages: &'a str,
}

/// The system prompt that a run has kept.
#[derive(Debug, Clone, Copy)]
pub struct SystemPromptCopy<'a> {
    /// The file name in agent.yaml.
    pub name: &'a str,
    /// The contents of the file.
    pub text: &'a str,
}

impl ContextManifest {
    /// Rebuilds the messages of the request made at `state`, whose recorded blocks are `recorded`. The
    /// system prompt is built from `prompt`, or copied from the request without one.
    ///
    /// # Errors
    /// The blocks do not match the sources of this context.yaml.
    pub fn rebuild<'c>(
        &self,
        state: &'c RunState,
        recorded: &[RecordedBlock<'_>],
        prompt: Option<SystemPromptCopy<'_>>,
        inputs: &mut ContextInputs<'_>,
    ) -> Result<RequestContext<'c>, String> {
        let kinds = self.sources.iter().map(ContextSource::type_name);
        if !kinds.eq(recorded.iter().map(|block| block.block.kind.as_str())) {
            return Err(format!(
                "its record has {} blocks, which do not match the {} sources of context.yaml",
                recorded.len(),
                self.sources.len()
            ));
        }
        let others = recorded.iter().filter(|recorded| recorded.block.kind != JOURNAL_TYPE);
        let others: u64 = others.map(|recorded| recorded.block.tokens).sum();
        let mut left = self.total_max_tokens.map(|total| total.saturating_sub(others));
        let mut meter = TokenMeter { tokenizer: None, inputs };
        let mut rebuilt = RequestContext::default();
        for (source, recorded) in self.sources.iter().zip(recorded) {
            let mut block = ContextBlock { messages: 0, bytes: 0, ..recorded.block.clone() };
            match &source.kind {
                _ if recorded.block.skipped.is_some() => {}
                SourceKind::Journal { max_iterations } => {
                    let excess = state.conversation.excess_iterations(*max_iterations);
                    let selection = match self.tokenizer {
                        // The tokenizer does not run in a replay, but the record says what was
                        // omitted.
                        Some(_) => recorded_selection(state, excess, recorded.block),
                        None => source
                            .select_journal(state, excess, left, &mut meter)
                            .map_err(|error| error.to_string())?,
                    };
                    left = left.map(|left| left.saturating_sub(selection.tokens));
                    rebuilt.add_journal(state, excess, &selection, &mut block);
                }
                SourceKind::File { path, .. } => match prompt {
                    Some(prompt) if is_system_prompt_path(path, prompt, &meter) => {
                        let text = without_byte_order_mark(prompt.text);
                        let message = source.prompt_message(text, recorded, &mut meter);
                        let known = self.tokenizer.is_none() || source.max_tokens.is_none();
                        rebuilt.add_recorded(recorded, known.then_some(message), &mut block);
                    }
                    _ => rebuilt.add_recorded(recorded, None, &mut block),
                },
                SourceKind::Skills(skills) => {
                    let text = skill::catalogue(skills, meter.inputs.vars);
                    let message = source.prompt_message(&text, recorded, &mut meter);
                    rebuilt.add_recorded(recorded, Some(message), &mut block);
                }
                SourceKind::Computed { .. } | SourceKind::AgentsMd(_) => {
                    rebuilt.add_recorded(recorded, None, &mut block)
                }
            }
            rebuilt.blocks.push(block);
        }
        Ok(rebuilt)
    }
}

impl RequestContext<'_> {
    /// Adds a block as recorded, or as `instead`.
    fn add_recorded(
        &mut self,
        recorded: &RecordedBlock<'_>,
        instead: Option<String>,
        block: &mut ContextBlock,
    ) {
        let message = instead.unwrap_or_else(|| recorded.messages.to_owned());
        if !message.is_empty() {
            self.add_piece(ContextPiece::Generated(message), block);
        }
    }
}

impl ContextSource {
    fn prompt_message(
        &self,
        content: &str,
        recorded: &RecordedBlock<'_>,
        meter: &mut TokenMeter<'_, '_>,
    ) -> String {
        let name = &recorded.block.source;
        let message = |content: &str| self.block_message(name, content);
        let room = self.max_tokens;
        let shortened = room.and_then(|room| {
            token_budget::truncate_to_tokens(content, room, message, meter).ok()?
        });
        message(shortened.as_deref().unwrap_or(content))
    }
}

fn is_system_prompt_path(
    path: &str,
    prompt: SystemPromptCopy<'_>,
    meter: &TokenMeter<'_, '_>,
) -> bool {
    let vars = meter.inputs.vars;
    vars.agent_home.join(vars.expand_text(path)) == vars.agent_home.join(prompt.name)
}

/// The number of omitted iterations that the record states in words.
fn recorded_selection(state: &RunState, excess: usize, block: &ContextBlock) -> JournalSelection {
    let left_out = (0..=state.conversation.iteration_count())
        .find(|count| Some(token_budget::describe_oldest(*count)) == block.cut)
        .unwrap_or(excess);
    JournalSelection { left_out, tokens: block.tokens }
}
