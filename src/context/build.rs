//! Putting the context together: the sources in their order, each as long as it may be.

use super::budget::{self, Scale, Selection};
use super::generator::generate;
use super::{ContextError, Counter, Generator, Kind, Manifest, Source, Stage, resolve};
use crate::durable;
use crate::llm::Message;
use crate::process::Launch;
use crate::record::Block;
use crate::signal::Cancel;
use crate::state::RunState;
use crate::time::Clock;
use crate::tokens::Ratio;
use crate::transcript::Messages;
use crate::vars::Vars;
use std::borrow::Cow;
use std::io;
use std::path::Path;

/// What the commands of a context find around them, and what is known of the run.
pub struct Surroundings<'a> {
    /// The number of the iteration that is asked for.
    pub iteration: u32,
    /// What the endpoint counts for what is estimated.
    pub ratio: Ratio,
    /// The values of the engine's variables.
    pub vars: &'a Vars,
    /// Ends a command that runs.
    pub cancel: &'a Cancel,
    /// The surroundings of a command.
    pub launch: &'a dyn Fn(&Generator) -> Launch,
    /// The time, for caches.
    pub clock: Clock,
    /// What was counted already.
    pub counter: &'a mut Counter,
    /// Whether generators run; when not, what they made before stands in.
    pub generates: bool,
}

/// What is sent, and where it comes from.
#[derive(Debug)]
pub struct Context<'a> {
    /// The messages, in order.
    pub pieces: Vec<Piece<'a>>,
    /// The sources that they come from, in order; also those that gave nothing.
    pub blocks: Vec<Block>,
    /// How many of the oldest iterations are left out for want of room.
    pub left_out: usize,
}

/// Messages of a context that follow each other.
#[derive(Debug)]
pub enum Piece<'a> {
    /// One that was made for it, as JSON.
    Made(String),
    /// Those of the conversation.
    Said(Messages<'a>),
}

/// A source before the conversation has its room.
enum Ready {
    Text { message: String, tokens: u64, cut: Option<String> },
    Journal { beyond: usize },
    Skipped(String),
}

impl Manifest {
    /// The messages of the next request of a run.
    ///
    /// # Errors
    /// A source that must be there is not, a command failed, or what must be sent does not fit.
    pub fn build<'c>(
        &self,
        state: &'c RunState,
        around: &mut Surroundings<'_>,
    ) -> Result<Context<'c>, ContextError> {
        let mut scale = Scale { tokenizer: self.tokenizer.as_ref(), around };
        let mut ready = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let place = source.place(scale.around.vars);
            let block = source.block(place.as_deref());
            let place = place.unwrap_or_default();
            let prepared = source.prepare(&block.source, &place, state, &mut scale)?;
            ready.push((block, prepared));
        }
        let mut left = self.room(ready.iter().map(|(_, ready)| ready))?;
        let mut context = Context { pieces: Vec::new(), blocks: Vec::new(), left_out: 0 };
        for (source, (mut block, ready)) in self.sources.iter().zip(ready) {
            match ready {
                Ready::Skipped(why) => block.skipped = Some(why),
                Ready::Text { message, tokens, cut } => {
                    context.add(Piece::Made(message), &mut block);
                    (block.tokens, block.cut) = (tokens, cut);
                }
                Ready::Journal { beyond } => {
                    let selection = source.journal(state, beyond, left, &mut scale)?;
                    left = left.map(|left| left.saturating_sub(selection.tokens));
                    context.add_journal(state, beyond, &selection, &mut block);
                }
            }
            context.blocks.push(block);
        }
        Ok(context)
    }

    /// What the other sources leave to the conversation; `None` when there is no limit.
    fn room<'r>(
        &self,
        ready: impl Iterator<Item = &'r Ready>,
    ) -> Result<Option<u64>, ContextError> {
        let Some(total) = self.total_max_tokens else { return Ok(None) };
        let taken: u64 = ready
            .map(|ready| if let Ready::Text { tokens, .. } = ready { *tokens } else { 0 })
            .sum();
        total.checked_sub(taken).map(Some).ok_or_else(|| {
            ContextError::Budget(format!(
                "the sources beside the journal take {taken} tokens, and `total_max_tokens` is {total}; give one of them a `max_tokens`, or raise it"
            ))
        })
    }
}

impl Piece<'_> {
    /// The messages.
    pub fn messages(&self) -> Messages<'_> {
        match self {
            Self::Made(message) => message.as_str().into(),
            Self::Said(messages) => *messages,
        }
    }
}

impl<'c> Context<'c> {
    /// The messages, in order.
    pub fn messages(&self) -> Vec<Messages<'_>> {
        self.pieces.iter().map(Piece::messages).collect()
    }

    fn add(&mut self, piece: Piece<'c>, block: &mut Block) {
        let messages = piece.messages();
        block.messages += messages.count();
        block.bytes += messages.text().len() + 1;
        self.pieces.push(piece);
    }

    fn add_journal(
        &mut self,
        state: &'c RunState,
        beyond: usize,
        selection: &Selection,
        block: &mut Block,
    ) {
        block.tokens = selection.tokens;
        if selection.left_out > beyond {
            let notice = budget::notice(&block.source, selection.left_out);
            self.add(Piece::Made(notice), block);
            block.cut = Some(budget::oldest(selection.left_out));
            self.left_out = self.left_out.max(selection.left_out);
        }
        let conversation = &state.conversation;
        let parts =
            [conversation.task_apart(selection.left_out), conversation.rest(selection.left_out)];
        for part in parts.into_iter().flatten() {
            self.add(Piece::Said(part.messages()), block);
        }
    }
}

impl Source {
    fn block(&self, place: Option<&Path>) -> Block {
        Block {
            source: self.name_at(place),
            kind: self.type_name().to_owned(),
            messages: 0,
            bytes: 0,
            tokens: 0,
            cut: None,
            skipped: None,
        }
    }

    fn failed(&self, vars: &Vars, reason: String) -> ContextError {
        ContextError::Source { source_id: self.name(vars), reason }
    }

    fn prepare(
        &self,
        name: &str,
        place: &Path,
        state: &RunState,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Ready, ContextError> {
        let (vars, iteration) = (scale.around.vars, scale.around.iteration);
        let task = state.conversation.task();
        let unmet = self.condition.as_ref().and_then(|it| it.unmet(task, iteration, vars));
        if let Some(why) = unmet {
            return Ok(Ready::Skipped(why));
        }
        match &self.kind {
            Kind::Journal { max_iterations } => {
                Ok(Ready::Journal { beyond: state.conversation.beyond(*max_iterations) })
            }
            Kind::File { skip_missing, .. } => self.text(name, place, *skip_missing, scale),
            Kind::Computed { skip_missing, .. } => {
                if scale.around.generates {
                    self.compute(scale.around)?;
                }
                let place = self.place(vars).unwrap_or_default();
                self.text(name, &place, *skip_missing, scale)
            }
        }
    }

    /// The file as a message of the source `name`, as much of it as there may be.
    fn text(
        &self,
        name: &str,
        path: &Path,
        skip_missing: bool,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Ready, ContextError> {
        let content = match durable::read_regular(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && skip_missing => {
                return Ok(Ready::Skipped(format!("there is no {}", path.display())));
            }
            Err(error) if !scale.around.generates && matches!(self.kind, Kind::Computed { .. }) => {
                let why = format!("its generator has not run, and {}: {error}", path.display());
                return Ok(Ready::Skipped(why));
            }
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::NotFound => " (`on_missing: skip` would leave it out)",
                    _ => "",
                };
                let reason = format!("{} cannot be read: {error}{hint}", path.display());
                return Err(self.failed(scale.around.vars, reason));
            }
        };
        let vars = scale.around.vars;
        let message = |content: &str| {
            let content = Cow::Owned(format!("# Context Block: {name}\n\n{content}"));
            Message::System { content }.to_json()
        };
        let shortened = match self.max_tokens {
            None => None,
            Some(room) => budget::fit(&content, room, message, scale)
                .map_err(|error| self.of_this(vars, error))?,
        };
        // Without the length of the content: a warning is given once for each cut, and this one stays the same.
        let cut = shortened.as_ref().zip(self.max_tokens);
        let cut = cut.map(|(_, room)| format!("what is beyond {room} tokens"));
        let message = message(shortened.as_deref().unwrap_or(&content));
        let tokens = scale.message(&message)?;
        Ok(Ready::Text { message, tokens, cut })
    }

    /// The error of a budget as one of this source.
    fn of_this(&self, vars: &Vars, error: ContextError) -> ContextError {
        match error {
            ContextError::Budget(reason) => self.failed(vars, reason),
            other => other,
        }
    }

    pub(super) fn journal(
        &self,
        state: &RunState,
        beyond: usize,
        left: Option<u64>,
        scale: &mut Scale<'_, '_>,
    ) -> Result<Selection, ContextError> {
        let room = match (left, self.max_tokens) {
            (Some(left), Some(own)) => Some(left.min(own)),
            (left, own) => left.or(own),
        };
        let vars = scale.around.vars;
        let notice = |left_out| budget::notice(&self.name(vars), left_out);
        budget::select(&state.conversation, (state.left_out, beyond), room, notice, scale)
    }

    /// Runs the commands of the source, unless what they made before will do.
    fn compute(&self, around: &mut Surroundings<'_>) -> Result<(), ContextError> {
        let Kind::Computed { stages, is_pipeline, cache, .. } = &self.kind else { return Ok(()) };
        let recipe = match cache {
            None => None,
            Some(cache) => {
                let recipe = cache.recipe(stages, around.vars);
                let recipe = recipe.map_err(|reason| self.failed(around.vars, reason))?;
                if cache.will_do(&recipe, around.clock) {
                    return Ok(());
                }
                Some(recipe)
            }
        };
        for (index, stage) in stages.iter().enumerate() {
            let output = resolve(&stage.output, around.vars);
            let made = generate(&stage.generator, &output, around);
            // What the last one leaves is looked at by `on_missing`; a later one would fail for the fault of this one.
            let between = index + 1 < stages.len();
            let made = match made {
                Ok(()) if between && !output.exists() => {
                    Err(Some(format!("it left no {}", output.display())))
                }
                made => made,
            };
            made.map_err(|failure| match failure {
                None => ContextError::Cancelled,
                Some(reason) if *is_pipeline => {
                    self.failed(around.vars, format!("stage {}: {reason}", named(index, stage)))
                }
                Some(reason) => self.failed(around.vars, reason),
            })?;
        }
        if let Some(recipe) = recipe {
            recipe.keep(around.clock);
        }
        Ok(())
    }
}

/// How messages call a stage.
fn named(index: usize, stage: &Stage) -> String {
    let number = index + 1;
    stage.id.as_ref().map_or_else(|| number.to_string(), |id| format!("{number} (`{id}`)"))
}
