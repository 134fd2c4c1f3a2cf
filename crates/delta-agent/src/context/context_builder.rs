//! Builds the context: the sources in order, each within its budget.

use super::agents_md::NoAgentsMd;
use super::context_program::run_generator;
use super::source_text::{NOT_UTF8, SourceText};
use super::token_budget::{self, JournalSelection, PreviousOmission, TokenMeter};
use super::{
    ContextError, ContextManifest, ContextProgram, ContextSource, PipelineStage, SourceKind,
    TokenCounter, resolve_context_path,
};
use crate::skill;
use delta_base::durable;
use delta_base::engine_variables::EngineVars;
use delta_base::signal::CancelToken;
use delta_base::time::Clock;
use delta_process::LaunchContext;
use delta_run::conversation::message_buffer::MessageSlice;
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::ContextBlock;
use delta_run::state::RunState;
use std::io;
use std::path::Path;

/// The run and its environment, as building the context needs them.
pub struct ContextInputs<'a> {
    /// The number of the iteration.
    pub iteration: u32,
    /// The ratio of tokens reported by the endpoint to estimated ones.
    pub ratio: TokenRatio,
    /// The values of the engine variables.
    pub vars: &'a EngineVars,
    /// Interrupts a running command.
    pub cancel: &'a CancelToken,
    /// How to start a command.
    pub launch: &'a dyn Fn(&ContextProgram) -> LaunchContext,
    /// The wall clock, for caches.
    pub clock: Clock,
    /// The token counts of earlier requests.
    pub counter: &'a mut TokenCounter,
    /// Whether generators and the tokenizer run; otherwise the previous output is used, and tokens are estimated.
    pub run_generators: bool,
}

/// The messages of a request and where they come from.
#[derive(Debug, Default)]
pub struct RequestContext<'a> {
    /// The messages in order.
    pub pieces: Vec<ContextPiece<'a>>,
    /// One block for each source in order, including the skipped ones.
    pub blocks: Vec<ContextBlock>,
    /// The number of oldest iterations omitted because of the budget.
    pub left_out: usize,
    /// The number of messages with which every run of the agent begins.
    pub constant_messages: usize,
}

/// Consecutive messages of a context.
#[derive(Debug)]
pub enum ContextPiece<'a> {
    /// A message built for this request, as JSON.
    Generated(String),
    /// Messages of the conversation.
    Conversation(MessageSlice<'a>),
}

/// A source, before the budget of the conversation is known.
enum PreparedSource {
    Text {
        message: String,
        tokens: u64,
        cut: Option<String>,
    },
    Journal {
        excess: usize,
    },
    /// `cut` says what was left out, where there was something.
    Skipped {
        reason: String,
        cut: Option<String>,
    },
}

impl ContextManifest {
    /// Builds the messages of the next request of a run.
    ///
    /// # Errors
    /// A required source is missing, a command failed, or the required messages do not fit.
    pub fn build<'c>(
        &self,
        state: &'c RunState,
        inputs: &mut ContextInputs<'_>,
    ) -> Result<RequestContext<'c>, ContextError> {
        let tokenizer = self.tokenizer.as_ref().filter(|_| inputs.run_generators);
        let mut meter = TokenMeter { tokenizer, inputs };
        let mut prepared = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let path = source.path(meter.inputs.vars);
            let block = source.new_block(path.as_deref());
            let path = path.unwrap_or_default();
            let source = source.prepare(&block.source, &path, state, &mut meter)?;
            prepared.push((block, source));
        }
        let mut left = self.journal_budget(prepared.iter().map(|(_, source)| source))?;
        let mut context = RequestContext::default();
        let mut is_constant = true;
        for (source, (mut block, prepared)) in self.sources.iter().zip(prepared) {
            match prepared {
                PreparedSource::Skipped { reason, cut } => {
                    block.skipped = Some(reason);
                    block.cut = cut;
                }
                PreparedSource::Text { message, tokens, cut } => {
                    context.add_piece(ContextPiece::Generated(message), &mut block);
                    block.tokens = tokens;
                    block.cut = cut;
                }
                PreparedSource::Journal { excess } => {
                    let selection = source.select_journal(state, excess, left, &mut meter)?;
                    left = left.map(|left| left.saturating_sub(selection.tokens));
                    context.add_journal(state, excess, &selection, &mut block);
                }
            }
            // Where a text is cut depends on the tokens that the endpoint has counted in this run.
            is_constant &= source.is_constant() && block.cut.is_none();
            if is_constant {
                context.constant_messages += block.messages;
            }
            context.blocks.push(block);
        }
        Ok(context)
    }

    /// The tokens that the other sources leave to the conversation; `None` without a limit.
    fn journal_budget<'r>(
        &self,
        sources: impl Iterator<Item = &'r PreparedSource>,
    ) -> Result<Option<u64>, ContextError> {
        let Some(total) = self.total_max_tokens else { return Ok(None) };
        let tokens_used: u64 = sources
            .map(|source| match source {
                PreparedSource::Text { tokens, .. } => *tokens,
                PreparedSource::Journal { .. } | PreparedSource::Skipped { .. } => 0,
            })
            .sum();
        total.checked_sub(tokens_used).map(Some).ok_or_else(|| {
            ContextError::Budget(format!(
                "the sources other than the journal take {tokens_used} tokens, but `total_max_tokens` is {total}; raise it, or set `max_tokens` for one of them"
            ))
        })
    }
}

impl ContextPiece<'_> {
    /// The messages of the piece.
    pub fn messages(&self) -> MessageSlice<'_> {
        match self {
            Self::Generated(message) => message.as_str().into(),
            Self::Conversation(messages) => *messages,
        }
    }
}

impl<'c> RequestContext<'c> {
    /// The messages of the context in order.
    pub fn messages(&self) -> Vec<MessageSlice<'_>> {
        self.pieces.iter().map(ContextPiece::messages).collect()
    }

    pub(super) fn add_piece(&mut self, piece: ContextPiece<'c>, block: &mut ContextBlock) {
        let messages = piece.messages();
        block.messages += messages.count();
        block.bytes += messages.text().len() + 1;
        self.pieces.push(piece);
    }

    pub(super) fn add_journal(
        &mut self,
        state: &'c RunState,
        excess: usize,
        selection: &JournalSelection,
        block: &mut ContextBlock,
    ) {
        block.tokens = selection.tokens;
        if selection.left_out > excess {
            let notice = token_budget::omission_notice(&block.source, selection.left_out);
            self.add_piece(ContextPiece::Generated(notice), block);
            block.cut = Some(token_budget::describe_oldest(selection.left_out));
            self.left_out = self.left_out.max(selection.left_out);
        }
        let conversation = &state.conversation;
        let pinned = conversation.pinned(selection.left_out);
        for part in pinned.chain(conversation.remaining_part(selection.left_out)) {
            self.add_piece(ContextPiece::Conversation(part.messages()), block);
        }
    }
}

impl ContextSource {
    fn new_block(&self, path: Option<&Path>) -> ContextBlock {
        ContextBlock {
            source: self.name_for_path(path),
            kind: self.type_name().to_owned(),
            messages: 0,
            bytes: 0,
            tokens: 0,
            cut: None,
            skipped: None,
        }
    }

    fn error(&self, vars: &EngineVars, reason: String) -> ContextError {
        ContextError::Source { source_id: self.name(vars), reason }
    }

    fn prepare(
        &self,
        name: &str,
        path: &Path,
        state: &RunState,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<PreparedSource, ContextError> {
        if let Some(condition) = &self.condition {
            let task = state.conversation.task();
            let inputs = &meter.inputs;
            if let Some(reason) = condition.unmet_reason(task, inputs.iteration, inputs.vars) {
                return Ok(PreparedSource::Skipped { reason, cut: None });
            }
        }
        match &self.kind {
            SourceKind::Journal { max_iterations } => Ok(PreparedSource::Journal {
                excess: state.conversation.excess_iterations(*max_iterations),
            }),
            SourceKind::AgentsMd(files) => match files.collect(&meter.inputs.vars.cwd) {
                Ok(text) => self.prepare_text(name, &text.content, text.left_out, meter),
                Err(NoAgentsMd { reason, left_out: cut }) => {
                    Ok(PreparedSource::Skipped { reason, cut })
                }
            },
            SourceKind::Skills(skills) => {
                let text = skill::catalogue(skills, meter.inputs.vars);
                self.prepare_text(name, &text, None, meter)
            }
            SourceKind::File { skip_missing, .. } => {
                self.prepare_file(name, path, *skip_missing, meter)
            }
            SourceKind::Computed { skip_missing, .. } => {
                if meter.inputs.run_generators {
                    self.run_generators(meter.inputs)?;
                }
                self.prepare_file(name, path, *skip_missing, meter)
            }
        }
    }

    /// The file at `path` as a message of the source `name`, truncated to `max_tokens`.
    fn prepare_file(
        &self,
        name: &str,
        path: &Path,
        skip_missing: bool,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<PreparedSource, ContextError> {
        let bytes = read_source_file(path, meter.inputs.vars);
        let content = match bytes.and_then(|bytes| SourceText::decode(&bytes)) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound && skip_missing => {
                let reason = format!("there is no {}", path.display());
                return Ok(PreparedSource::Skipped { reason, cut: None });
            }
            Err(error)
                if !meter.inputs.run_generators
                    && matches!(self.kind, SourceKind::Computed { .. }) =>
            {
                let reason = format!("its generator has not run, and {}: {error}", path.display());
                return Ok(PreparedSource::Skipped { reason, cut: None });
            }
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::NotFound => " (`on_missing: skip` omits it)",
                    _ => "",
                };
                let reason = format!("could not read {}: {error}{hint}", path.display());
                return Err(self.error(meter.inputs.vars, reason));
            }
        };
        let left_out = content.is_replaced.then(|| NOT_UTF8.to_owned());
        self.prepare_text(name, &content.text, left_out, meter)
    }

    /// `content` as a message of the source `name`, truncated to `max_tokens`. `left_out` says what `content` lacks.
    fn prepare_text(
        &self,
        name: &str,
        content: &str,
        left_out: Option<String>,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<PreparedSource, ContextError> {
        let vars = meter.inputs.vars;
        let message = |content: &str| self.block_message(name, content);
        let shortened = match self.max_tokens {
            None => None,
            Some(room) => token_budget::truncate_to_tokens(content, room, message, meter)
                .map_err(|error| self.as_source_error(vars, error))?,
        };
        // Without the length of the content: each distinct cut is warned of once, and this one must
        // not change.
        let cut = shortened.as_ref().zip(self.max_tokens);
        let cut = cut.map(|(_, room)| format!("what is beyond {room} tokens"));
        let cut = left_out.into_iter().chain(cut).reduce(|all, next| format!("{all}, {next}"));
        let message = message(shortened.as_deref().unwrap_or(content));
        let tokens = meter.message_tokens(&message)?;
        Ok(PreparedSource::Text { message, tokens, cut })
    }

    fn as_source_error(&self, vars: &EngineVars, error: ContextError) -> ContextError {
        match error {
            ContextError::Budget(reason) => self.error(vars, reason),
            other => other,
        }
    }

    pub(super) fn select_journal(
        &self,
        state: &RunState,
        excess: usize,
        left: Option<u64>,
        meter: &mut TokenMeter<'_, '_>,
    ) -> Result<JournalSelection, ContextError> {
        let room = match (left, self.max_tokens) {
            (Some(left), Some(max_tokens)) => Some(left.min(max_tokens)),
            (left, max_tokens) => left.or(max_tokens),
        };
        let name = self.name(meter.inputs.vars);
        token_budget::select_iterations(
            &state.conversation,
            PreviousOmission { left_out: state.left_out, excess },
            room,
            |left_out| token_budget::omission_notice(&name, left_out),
            meter,
        )
    }

    /// Runs the commands of the source, unless their cached output is fresh.
    fn run_generators(&self, inputs: &mut ContextInputs<'_>) -> Result<(), ContextError> {
        let SourceKind::Computed { stages, is_pipeline, cache, .. } = &self.kind else {
            return Ok(());
        };
        let cache_key = match cache {
            None => None,
            Some(cache) => {
                let key = cache.key(stages, inputs.vars);
                let key = key.map_err(|reason| self.error(inputs.vars, reason))?;
                if cache.is_fresh(&key, inputs.clock) {
                    return Ok(());
                }
                Some(key)
            }
        };
        for (index, stage) in stages.iter().enumerate() {
            let output = resolve_context_path(&stage.output, inputs.vars);
            let mut result = run_generator(&stage.generator, &output, inputs);
            // The file of the last stage is checked by `on_missing`; a missing file of another
            // stage would make the next one fail.
            let is_last = index + 1 == stages.len();
            if result.is_ok() && !is_last && !output.exists() {
                result = Err(Some(format!("it left no {}", output.display())));
            }
            result.map_err(|failure| match failure {
                None => ContextError::Cancelled,
                Some(reason) if *is_pipeline => self
                    .error(inputs.vars, format!("stage {}: {reason}", stage_label(index, stage))),
                Some(reason) => self.error(inputs.vars, reason),
            })?;
        }
        if let Some(key) = cache_key {
            key.save(inputs.clock);
        }
        Ok(())
    }
}

fn stage_label(index: usize, stage: &PipelineStage) -> String {
    let number = index + 1;
    stage.id.as_ref().map_or_else(|| number.to_string(), |id| format!("{number} (`{id}`)"))
}

/// Reads the file of a source. A file of the workspace is not believed to be one: a symlink in it may lead to a file that
/// the LLM must not see. The workspace may be in the agent directory, and the agent and run directories in the workspace: the
/// innermost of them has the file.
fn read_source_file(path: &Path, vars: &EngineVars) -> io::Result<Vec<u8>> {
    let innermost = [&vars.run_dir, &vars.agent_home, &vars.cwd]
        .into_iter()
        .filter(|dir| !dir.as_os_str().is_empty() && path.starts_with(dir))
        .max_by_key(|dir| dir.components().count());
    if innermost != Some(&vars.cwd) || path == vars.cwd {
        return durable::read_regular(path);
    }
    let root = vars.cwd.canonicalize()?;
    let resolved = path.canonicalize()?;
    match resolved.strip_prefix(&root) {
        Ok(name) => durable::read_regular_beneath(&root, name),
        Err(_) => Err(io::Error::other("it is a symlink that leads out of the workspace")),
    }
}
