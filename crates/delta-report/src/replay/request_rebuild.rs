//! Rebuilds a recorded request with the copy of the agent, or with another agent.

use delta_agent::agent::Agent;
use delta_agent::context::{
    ContextInputs, ContextProgram, RecordedBlock, SYSTEM_PROMPT_FILE, SystemPromptCopy,
    TokenCounter,
};
use delta_base::engine_variables::EngineVars;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::time;
use delta_plan::request_body::{RequestBasis, build_request_body};
use delta_process::{EnvVars, LaunchContext};
use delta_run::record::{ContextBlock, RequestBody};
use delta_run::state::RunState;

/// A recorded request.
#[derive(Debug, Clone, Copy)]
pub struct RebuildInput<'a> {
    /// The iteration that it asked for.
    pub iteration: u32,
    /// The state of the run when it was sent.
    pub state: &'a RunState,
    /// The context blocks that its messages come from.
    pub blocks: &'a [RecordedBlock<'a>],
}

/// A rebuilt request.
#[derive(Debug)]
pub struct RebuiltRequest {
    /// The exact text.
    pub body: RequestBody,
    /// The context blocks that its messages come from.
    pub blocks: Vec<ContextBlock>,
    /// The number of oldest iterations omitted because of the budget.
    pub left_out: usize,
}

/// Splits a recorded request into its blocks; `None` if a hook replaced the messages, so that they come from no block.
pub fn split_blocks<'a>(
    request: &'a RequestBody,
    blocks: &'a [ContextBlock],
) -> Option<Vec<RecordedBlock<'a>>> {
    let mut rest = request.messages();
    let mut split = Vec::with_capacity(blocks.len());
    for block in blocks {
        let (messages, later) = rest.split_at_checked(block.messages)?;
        rest = later;
        let start = messages.first().map_or(0, |first| first.start);
        let end = messages.last().map_or(0, |last| last.end);
        split.push(RecordedBlock { block, messages: &request.text()[start..end] });
    }
    rest.is_empty().then_some(split)
}

/// The text of the system prompt in the agent's files.
pub fn loaded_system_prompt(agent: &Agent) -> Option<&str> {
    let (_, text) = agent.source_files.iter().find(|(name, _)| *name == SYSTEM_PROMPT_FILE)?;
    Some(text)
}

/// Rebuilds a request with the tools, the settings and the context.yaml of `agent`, and with its system prompt if
/// `with_prompt` is set. The conversation comes from the journal; the output of context sources and, without
/// `with_prompt`, the system prompt come from the recorded request.
///
/// # Errors
/// The recorded blocks do not fit the agent's context.
pub fn rebuild_request(
    agent: &Agent,
    vars: &EngineVars,
    recorded: RebuildInput<'_>,
    with_prompt: bool,
) -> Result<RebuiltRequest, String> {
    let RebuildInput { iteration, state, blocks } = recorded;
    let prompt = loaded_system_prompt(agent).filter(|_| with_prompt);
    let prompt = prompt.map(|text| SystemPromptCopy { name: &agent.system_prompt, text });
    let cancel = CancelToken::manual().map_err(|error| error.to_string())?;
    // Required, but unused: no command is started.
    let launch = |_: &ContextProgram| LaunchContext::new(&vars.cwd, EnvVars::default());
    let mut inputs = ContextInputs {
        iteration,
        ratio: state.ratio,
        vars,
        cancel: &cancel,
        launch: &launch,
        clock: time::current_time,
        counter: &mut TokenCounter::default(),
        run_generators: false,
    };
    let context = agent.context.rebuild(state, blocks, prompt, &mut inputs)?;
    let body = build_request_body(
        agent,
        &RequestBasis::next(agent, state),
        &context.messages(),
        &Secrets::default(),
    );
    Ok(RebuiltRequest { body, blocks: context.blocks, left_out: context.left_out })
}
