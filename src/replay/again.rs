//! A recorded request, put together once more by an agent: the one that the run has kept, or another.

use crate::agent::Agent;
use crate::composition::Composition;
use crate::context::{Counter, Generator, Given, Prompt, Rebuilt, SYSTEM_PROMPT, Surroundings};
use crate::engine;
use crate::process::{Env, Launch};
use crate::record::Block;
use crate::signal::Cancel;
use crate::state::RunState;
use crate::text::Secrets;
use crate::time;
use crate::vars::Vars;

/// A request that was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// Of which answer.
    pub iteration: u32,
    /// The state of the run at which it was made.
    pub state: &'a RunState,
    /// The request, taken apart.
    pub composition: &'a Composition<'a>,
    /// Where its messages come from.
    pub blocks: &'a [Block],
}

/// A request that was put together once more.
#[derive(Debug)]
pub struct Again {
    /// The exact text.
    pub text: String,
    /// How it came about.
    pub rebuilt: Rebuilt,
}

/// The text of the system prompt that was loaded with `agent`.
pub fn prompt_of(agent: &Agent) -> Option<&str> {
    let prompt = agent.sources.iter().find(|(name, _)| *name == SYSTEM_PROMPT);
    prompt.map(|(_, text)| text.as_str())
}

/// Puts `recorded` together as `agent` would: its tools, its settings, its context.yaml, and its system prompt unless that
/// is to be taken as it was sent. The conversation is that of the journal, and what files and commands gave is taken from
/// the request.
///
/// # Errors
/// Its blocks are not those of the agent.
pub fn again(
    agent: &Agent,
    vars: &Vars,
    recorded: Recorded<'_>,
    with_prompt: bool,
) -> Result<Again, String> {
    let Recorded { iteration, state, composition, blocks } = recorded;
    let parts = composition.account.blocks.iter().zip(blocks);
    let given: Vec<Given<'_>> = parts
        .map(|(part, block)| Given { block, messages: composition.messages_of(part) })
        .collect();
    let prompt = prompt_of(agent).filter(|_| with_prompt);
    let prompt = prompt.map(|text| Prompt { name: &agent.system_prompt, text });
    let cancel = Cancel::manual().map_err(|error| error.to_string())?;
    // Nothing is started: what a command made is taken from the request.
    let launch = |_: &Generator| Launch {
        cwd: vars.cwd.clone(),
        env: Env::default(),
        secrets: Secrets::default(),
    };
    let mut around = Surroundings {
        iteration,
        ratio: state.ratio,
        vars,
        cancel: &cancel,
        launch: &launch,
        clock: time::now,
        counter: &mut Counter::default(),
        generates: false,
    };
    let rebuilt = agent.context.rebuild(state, &given, prompt, &mut around)?;
    let messages: Vec<_> = rebuilt.messages.iter().map(|message| message.as_str().into()).collect();
    let body = engine::request(agent, &messages, &Secrets::default());
    let text = body.text().as_str().to_owned();
    Ok(Again { text, rebuilt })
}
