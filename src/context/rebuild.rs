//! A request's messages once more, for a replay: the conversation as the journal has it, the system prompt as the run
//! has kept it, and everything else as the request itself holds it, for that is a function of the world outside.

use super::budget::{self, Scale, Selection};
use super::{Kind, Manifest, Source, Surroundings};
use crate::llm::Message;
use crate::record::Block;
use crate::state::RunState;
use std::borrow::Cow;

/// A block of a recorded request.
#[derive(Debug)]
pub struct Given<'a> {
    /// What its record says of it.
    pub block: &'a Block,
    /// Its messages, each as it stands in the request.
    pub messages: Vec<&'a str>,
}

/// The system prompt that a run has kept.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// Its file as agent.yaml names it.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// The messages, put together again.
#[derive(Debug, Default)]
pub struct Rebuilt {
    /// Each as JSON.
    pub messages: Vec<String>,
    /// How many of them each block gives.
    pub counts: Vec<usize>,
    /// How many of the oldest iterations are left out for want of room.
    pub left_out: usize,
}

impl Manifest {
    /// The messages of a request that was made at `state`, whose blocks were `given`. With `prompt` the system prompt is
    /// made of that, otherwise it is taken as it was.
    ///
    /// # Errors
    /// The blocks are not those of this context.yaml.
    pub fn rebuild(
        &self,
        state: &RunState,
        given: &[Given<'_>],
        prompt: Option<Prompt<'_>>,
        around: &mut Surroundings<'_>,
    ) -> Result<Rebuilt, String> {
        let fits = |(source, given): (&Source, &Given<'_>)| source.type_name() == given.block.kind;
        if self.sources.len() != given.len() || !self.sources.iter().zip(given).all(fits) {
            return Err(format!(
                "its record names {} blocks, and they are not the {} sources of context.yaml",
                given.len(),
                self.sources.len()
            ));
        }
        let beside = given.iter().filter(|given| given.block.kind != "journal");
        let beside: u64 = beside.map(|given| given.block.tokens).sum();
        let mut left = self.total_max_tokens.map(|total| total.saturating_sub(beside));
        let mut scale = Scale { tokenizer: None, around };
        let mut rebuilt = Rebuilt::default();
        for (source, given) in self.sources.iter().zip(given) {
            let before = rebuilt.messages.len();
            match &source.kind {
                _ if given.block.skipped.is_some() => {}
                Kind::Journal { max_iterations } => {
                    let beyond = state.conversation.beyond(*max_iterations);
                    let selection = match self.tokenizer {
                        // What it counts is not known here; what was left out then is.
                        Some(_) => recorded_selection(state, beyond, given.block),
                        None => source
                            .journal(state, beyond, left, &mut scale)
                            .map_err(|error| error.to_string())?,
                    };
                    left = left.map(|left| left.saturating_sub(selection.tokens));
                    rebuilt.add_journal(state, beyond, &selection, &given.block.source);
                }
                Kind::File { path, .. } => match prompt {
                    Some(prompt) if is_prompt(path, prompt, &scale) => {
                        let message = source.prompt(prompt.text, given, &mut scale);
                        let known = self.tokenizer.is_none() || source.max_tokens.is_none();
                        rebuilt.add_given(given, known.then_some(message));
                    }
                    _ => rebuilt.add_given(given, None),
                },
                Kind::Computed { .. } => rebuilt.add_given(given, None),
            }
            rebuilt.counts.push(rebuilt.messages.len() - before);
        }
        Ok(rebuilt)
    }
}

impl Rebuilt {
    /// A block as it was, or as `instead`.
    fn add_given(&mut self, given: &Given<'_>, instead: Option<String>) {
        match instead {
            Some(message) => self.messages.push(message),
            None => self.messages.extend(given.messages.iter().map(|text| (*text).to_owned())),
        }
    }

    fn add_journal(&mut self, state: &RunState, beyond: usize, selection: &Selection, name: &str) {
        if selection.left_out > beyond {
            self.messages.push(budget::notice(name, selection.left_out));
            self.left_out = self.left_out.max(selection.left_out);
        }
        let parts = state.conversation.parts(selection.left_out);
        let messages = parts.flat_map(|part| part.messages().iter());
        self.messages.extend(messages.map(str::to_owned));
    }
}

impl Source {
    /// The message of the system prompt.
    fn prompt(&self, content: &str, given: &Given<'_>, scale: &mut Scale<'_, '_>) -> String {
        let name = &given.block.source;
        let message = |content: &str| {
            let content = Cow::Owned(format!("# Context Block: {name}\n\n{content}"));
            Message::System { content }.to_json()
        };
        let room = self.max_tokens;
        let shortened = room.and_then(|room| budget::fit(content, room, message, scale).ok()?);
        message(shortened.as_deref().unwrap_or(content))
    }
}

fn is_prompt(path: &str, prompt: Prompt<'_>, scale: &Scale<'_, '_>) -> bool {
    let vars = scale.around.vars;
    vars.agent_home.join(vars.fill(path)) == vars.agent_home.join(prompt.name)
}

/// What was left out by the words of the record.
fn recorded_selection(state: &RunState, beyond: usize, block: &Block) -> Selection {
    let is_this = |count: &usize| Some(budget::oldest(*count)) == block.cut;
    let left_out = (0..=state.conversation.iterations()).find(is_this).unwrap_or(beyond);
    Selection { left_out, tokens: block.tokens }
}
