//! `--mode model`: asks the LLM again, with the recorded results, until its calls differ. Starts no tool and writes
//! nothing.

use super::{OriginalRun, ReplayArgs, ReplayOutcome};
use crate::prepare::prepared_agent::PreparedAgent;
use delta_agent::agent::Agent;
use delta_base::engine_variables::EngineVars;
use delta_base::signal::CancelToken;
use delta_llm::llm::{ImageReader, LlmError, LlmRequest, Provider};
use delta_operator::arguments::options::RunOptions;
use delta_operator::arguments::{agent_choice, budget};
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, command_line};
use delta_plan::request_body::CallDemand;
use delta_report::replay::{self, RebuildInput, RebuiltRequest};
use delta_run::event::{Payload, Thought, image_file};
use delta_run::limits::Limits;
use delta_run::record::{self, RecordedRequests};
use delta_run::state::RunState;
use delta_run::workspace::Workspace;
use delta_words::Reply;
use serde_json::json;
use std::path::PathBuf;

/// The answers of the LLM and their tokens.
#[derive(Default)]
struct ModelUsage {
    answers: usize,
    input: u64,
    output: u64,
}

/// Replays `original` with its LLM.
pub(super) fn replay_model(
    args: &ReplayArgs,
    original: &OriginalRun,
) -> Result<ReplayOutcome, CommandFailure> {
    if !budget::enclosing_ledgers()?.is_empty() {
        let message =
            "a replay inside a run cannot call the LLM: its budget would not count the calls";
        let hint = "start the replay outside of a run";
        return Err(CommandFailure::config(message, hint));
    }
    let mut options = RunOptions::new(None, args.model.clone());
    options.env_files = args.env_files.clone();
    let mut agent = agent_choice::load_agent(&original.agent_home(args)?, &options)?;
    // A replay has no budget.
    agent.limits = Limits::default();
    let cancel = cancel::install_cancel()?;
    // The recorded requests contain the files. A `command` provider gets the paths of the original run.
    let workspace = Workspace { root: PathBuf::from(&original.start.work_dir) };
    let agent = PreparedAgent::new(agent, None, &options)?;
    let environment = agent.environment(original.id.as_str(), &original.dir, &workspace, None);
    let mut provider = agent.connect_llm(&environment)?;
    let vars = environment.vars();
    let mut requests = RecordedRequests::new(&original.dir);
    let mut state = RunState::default();
    let mut usage = ModelUsage::default();
    let mut differences = Vec::new();
    for event in &original.events {
        if let Payload::Thought(thought) = &event.payload {
            let request =
                rebuild_recorded_request(&agent, original, &mut requests, vars, &state, thought)?;
            let reply =
                ask_model(&mut *provider, &agent.agent, &state, &request, original, &cancel)?;
            usage.add(&reply);
            differences.extend(replay::tool_call_difference(
                thought.iteration,
                &thought.tool_calls,
                &reply.tool_calls,
            ));
            if !differences.is_empty() {
                break;
            }
        }
        state.apply(event);
        // The LLM that is asked is always the agent's first one.
        state.model_changes = 0;
    }
    let id = original.id.clone();
    let answers = command_line::pluralize(usage.answers, "answer");
    let heading = match differences.len() {
        0 => format!("the LLM made the same calls as in run {id}: {answers}"),
        _ => format!("the LLM did not make the same calls as in run {id}"),
    };
    let notes = vec![format!(
        "asked {} for {answers}: {} tokens in, {} out",
        agent.agent.llm.model, usage.input, usage.output
    )];
    let extra_json = json!({
        "model": agent.agent.llm.model,
        "answers": usage.answers,
        "usage": {"input_tokens": usage.input, "output_tokens": usage.output},
    });
    Ok(ReplayOutcome {
        id,
        heading,
        differences,
        not_checked: Vec::new(),
        notes,
        other_label: "now",
        extra_json,
    })
}

impl ModelUsage {
    fn add(&mut self, reply: &Reply) {
        self.answers += 1;
        let usage = reply.usage.clone().unwrap_or_default();
        self.input += usage.input_tokens;
        self.output += usage.output_tokens;
    }
}

/// Builds the request of an answer as the agent would build it now.
fn rebuild_recorded_request(
    agent: &PreparedAgent,
    original: &OriginalRun,
    requests: &mut RecordedRequests,
    vars: &EngineVars,
    state: &RunState,
    thought: &Thought,
) -> Result<RebuiltRequest, CommandFailure> {
    let iteration = thought.iteration;
    let name = thought.invocation.as_deref().unwrap_or_default();
    let damaged = |problem: String| {
        let message = format!("could not rebuild the request of iteration {iteration}: {problem}");
        CommandFailure::damaged(message, None)
    };
    let request = requests.get(name).map_err(|error| damaged(error.to_string()))?;
    let blocks = record::read_context_blocks(&original.dir, name)
        .map_err(|error| damaged(error.to_string()))?
        .unwrap_or_default();
    let blocks = replay::split_blocks(request, &blocks)
        .ok_or_else(|| damaged("a hook replaced its messages".to_owned()))?;
    let recorded = RebuildInput { iteration, state, blocks: &blocks };
    replay::rebuild_request(&agent.agent, vars, recorded, true).map_err(damaged)
}

fn ask_model(
    provider: &mut dyn Provider,
    agent: &Agent,
    state: &RunState,
    request: &RebuiltRequest,
    original: &OriginalRun,
    cancel: &CancelToken,
) -> Result<Reply, CommandFailure> {
    let reader = ImageReader::new(&original.dir, image_file::read_data_url);
    let request = LlmRequest {
        task: state.conversation.task(),
        last_user_message: state.conversation.last_user_message(),
        last_message: request.body.last_message(),
        script_turn: state.script_turn,
        has_native: state.conversation.has_native(),
        forces_call: CallDemand::next(agent, state).is_forced(),
        run_id: original.id.as_str(),
        images: state.conversation.has_images().then_some(reader),
        ..LlmRequest::new(request.body.text())
    };
    provider.complete(&request, cancel, &mut |_| {}).map_err(|error| match error {
        LlmError::Cancelled => CommandFailure::interrupted("interrupted"),
        LlmError::Failed { message, hint, .. } => {
            CommandFailure::damaged(message, None).with_hint(hint)
        }
    })
}
