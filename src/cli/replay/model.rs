//! `--mode model`: the LLM is asked again, with the recorded results, until it calls something else. Nothing is started
//! and nothing is written.

use super::{Found, Original, ReplayArgs, count};
use crate::cli::budget;
use crate::cli::drive::{self, Options, Ready};
use crate::cli::failure::Failure;
use crate::composition::Composition;
use crate::event::{Payload, Thought};
use crate::llm::{LlmError, Provider, Reply, Request};
use crate::record;
use crate::replay::{self, Again, Recorded};
use crate::signal::Cancel;
use crate::state::RunState;
use crate::tokens::Ratio;
use crate::vars::Vars;
use crate::workspace::Workspace;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

/// What asking has cost.
#[derive(Default)]
struct Spent {
    asked: usize,
    input: u64,
    output: u64,
}

/// Asks the LLM again for the answers of `original`.
pub(super) fn replay(args: &ReplayArgs, original: &Original) -> Result<Found, Failure> {
    if !budget::above()?.is_empty() {
        let message = "the LLM would be asked, and the budget of the run around this one would not know of it";
        let hint = "replay it outside of a run".to_owned();
        return Err(Failure::config(message, hint));
    }
    let options = Options::plain(None, args.model.clone());
    let agent = drive::load(&original.agent_home(args)?, &options)?;
    let cancel = drive::cancel()?;
    // The files that the LLM was shown are in the requests; a command as LLM finds the agent around it.
    let workspace = Workspace { root: PathBuf::from(&original.start.work_dir) };
    let ready = Ready::new(agent, None, &options)?;
    let environment = ready.environment(original.id.as_str(), &original.dir, &workspace, None);
    let mut provider = ready.connect(&environment)?;
    let vars = environment.vars();
    let (mut state, mut spent) = (RunState::default(), Spent::default());
    let mut differences = Vec::new();
    for event in &original.events {
        if let Payload::Thought(thought) = &event.payload {
            let request = rebuilt(&ready, original, vars, &state, thought)?;
            let reply = ask(&mut *provider, &state, &request, &cancel)?;
            spent.add(&reply);
            let found = replay::parted(thought.iteration, &thought.tool_calls, &reply.tool_calls);
            if found.is_some() {
                differences.extend(found);
                break;
            }
        }
        state.apply(event);
    }
    let id = original.id.clone();
    let asked = count(spent.asked, "answer");
    let heading = match differences.len() {
        0 => format!("the LLM called the same as in run {id}: {asked}"),
        _ => format!("the LLM did not call the same as in run {id}"),
    };
    let notes = vec![format!(
        "asked {} for {asked}: {} tokens in, {} out",
        ready.agent.llm.model, spent.input, spent.output
    )];
    let more = json!({
        "model": ready.agent.llm.model,
        "answers": spent.asked,
        "usage": {"input_tokens": spent.input, "output_tokens": spent.output},
    });
    Ok(Found { id, heading, differences, not_checked: Vec::new(), notes, other: "now", more })
}

impl Spent {
    fn add(&mut self, reply: &Reply) {
        self.asked += 1;
        let usage = reply.usage.clone().unwrap_or_default();
        self.input += usage.input_tokens;
        self.output += usage.output_tokens;
    }
}

/// The request of an answer, as the agent would make it now.
fn rebuilt(
    ready: &Ready,
    original: &Original,
    vars: &Vars,
    state: &RunState,
    thought: &Thought,
) -> Result<Again, Failure> {
    let iteration = thought.iteration;
    let name = thought.invocation.as_deref().unwrap_or_default();
    let damaged = |why: String| {
        Failure::damaged(
            format!("the request of iteration {iteration} cannot be made again: {why}"),
            None,
        )
    };
    let text = record::request(&original.dir, name).map_err(|error| damaged(error.to_string()))?;
    let blocks = record::blocks(&original.dir, name).map_err(|error| damaged(error.to_string()))?;
    let blocks = blocks.unwrap_or_default();
    let composition = Composition::of(&text, &blocks, Ratio::default());
    let composition = composition.map_err(|error| damaged(error.to_string()))?;
    if composition.account.replaced {
        return Err(damaged("a hook has put other messages in the place of its own".to_owned()));
    }
    let recorded = Recorded { iteration, state, composition: &composition, blocks: &blocks };
    replay::again(&ready.agent, vars, recorded, true).map_err(damaged)
}

fn ask(
    provider: &mut dyn Provider,
    state: &RunState,
    request: &Again,
    cancel: &Cancel,
) -> Result<Reply, Failure> {
    let request = Request {
        body: &Arc::new(request.text.clone()),
        task: state.conversation.task(),
        message: state.conversation.last_user_message(),
        last: request.rebuilt.messages.last().map_or("", |last| last),
        script_place: state.script_place,
    };
    provider.complete(&request, cancel, &mut |_| {}).map_err(|error| match error {
        LlmError::Cancelled => Failure::interrupted("interrupted"),
        LlmError::Failed { message, hint, .. } => Failure::damaged(message, None).with_hint(hint),
    })
}
