//! `delta context preview`: builds the first request of a run without creating the run.

use super::{EncodeRequest, RequestViewOptions};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::EnvLayers;
use delta_agent::child_environment::ChildEnvironment;
use delta_agent::context::{ContextInputs, ContextProgram, TokenCounter};
use delta_agent::hook::HookPoint;
use delta_base::engine_variables::EngineVars;
use delta_base::hex::encode_hex;
use delta_base::redact::Secrets;
use delta_base::{durable, random, time};
use delta_llm::llm::{LlmRequest, ModelChoice};
use delta_operator::arguments::{
    agent_choice, budget, completion_candidates, message, project_skills, run_sandbox,
};
use delta_operator::env_files::{self, EnvFileOptions};
use delta_operator::failure::CommandFailure;
use delta_operator::sandbox_options::SandboxOptions;
use delta_operator::{cancel, config, environment, trust};
use delta_plan::request_body::{CallDemand, RequestBasis, build_request_body};
use delta_program::stdio;
use delta_report::request_breakdown::RequestBreakdown;
use delta_run::budget::ledger;
use delta_run::limits::token_estimate::TokenRatio;
use delta_run::record::{ContextBlock, RequestBody};
use delta_run::state::RunState;
use delta_run::workspace::{self, Workspace, resolve_existing};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The run id of the preview.
const PREVIEW_RUN_NAME: &str = "preview";

/// Show the first request of a run without creating a run or calling the LLM
///
/// Generators do not run: delta uses the files that they wrote earlier, and skips a block whose file is missing.
/// Nor does a tokenizer: tokens are estimated.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta context preview \"Fix the failing test\"      # of the built-in agent
  delta context preview --agent ./my-agent \"Summarise the logs\"
  delta context preview --agent ./my-agent \"...\" --request | jq .messages
  delta context preview --agent ./my-agent \"...\" -w ./work --generate")]
pub struct PreviewArgs {
    /// Task for the agent; `-` reads it from stdin
    #[arg(value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new(), required_unless_present = "message")]
    text: Option<String>,
    /// Agent directory, or the name of an installed agent [default: the agent of `delta run`]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// TEXT as an option
    #[arg(short, long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new(), conflicts_with = "text")]
    message: Option<String>,
    /// Workspace, which need not exist [default: the one of `delta run`]
    #[arg(short, long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: Option<PathBuf>,
    /// Use another LLM: NAME, PROVIDER:NAME or script:FILE
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    model: Option<ModelChoice>,
    /// Include the skills of the workspace that `skills` in agent.yaml names
    #[arg(long, requires = "work_dir")]
    project_skills: bool,
    #[command(flatten)]
    env_files: EnvFileOptions,
    /// Run generators and tokenizer in the workspace, which must exist, with a temporary run directory
    #[arg(long, requires = "work_dir")]
    generate: bool,
    /// Print the exact request in the form of the endpoint, as a run with the id `preview` would send it
    #[arg(long, conflicts_with_all = ["format", "block"])]
    request: bool,
    #[command(flatten)]
    view: RequestViewOptions,
}

/// What the context of the preview is built from.
struct PreviewSetup {
    agent: Agent,
    vars: EngineVars,
    secrets: Secrets,
    environment: ChildEnvironment,
    layers: EnvLayers,
    /// The run directory for generators.
    temporary: Option<TemporaryRunDir>,
}

/// Renders the preview.
pub fn preview_request(
    args: &PreviewArgs,
    encode_request: EncodeRequest,
) -> Result<String, CommandFailure> {
    // clap requires one of them.
    let task = args.text.as_deref().or(args.message.as_deref()).unwrap_or_default();
    let message = message::read_message(task)?;
    let models = config::model_selection(args.model.clone())?;
    let home = match &args.agent {
        Some(named) => agent_choice::find_existing_agent(named)?,
        None => agent_choice::choose_agent(None, args.model.as_ref())?.home,
    };
    let agent = Agent::load(&home, &models, &trust::read_import_path())?;
    agent.all_warnings().iter().for_each(|warning| stdio::print_error_line(warning));
    let setup = PreviewSetup::prepare(agent, args)?;
    let request = setup.first_request(&message)?;
    let encoded = args.request.then(|| setup.encode(&message, &request, encode_request));
    let encoded = encoded.transpose()?;
    setup.print_notes();
    if let Some(encoded) = encoded {
        return Ok(Arc::unwrap_or_clone(encoded));
    }
    let FirstRequest { body, blocks, ratio, .. } = request;
    let breakdown = RequestBreakdown::parse(body.text(), &blocks, ratio).map_err(|error| {
        CommandFailure::damaged(format!("could not parse the request: {error}"), None)
    })?;
    let heading = format!("{} iteration 1, not sent", setup.agent.name);
    let metadata = json!({
        "agent": setup.agent.name,
        "iteration": 1,
        "workspace": setup.vars.cwd,
        "run_dir": setup.vars.run_dir,
    });
    args.view.render(&breakdown, &heading, metadata, "")
}

struct FirstRequest {
    body: RequestBody,
    blocks: Vec<ContextBlock>,
    ratio: TokenRatio,
    /// The number of messages with which every run of the agent begins.
    constant_messages: usize,
}

impl PreviewSetup {
    fn prepare(mut agent: Agent, args: &PreviewArgs) -> Result<Self, CommandFailure> {
        let work_dir = args.work_dir.clone().or_else(|| {
            agent_choice::works_in_current_dir(&agent.home).then(|| PathBuf::from("."))
        });
        let cwd = preview_workspace(work_dir.as_deref(), args.generate, &agent)?;
        let workspace = work_dir.is_some().then_some(cwd.as_path());
        let notes =
            project_skills::offer_project_skills(&mut agent, workspace, args.project_skills)?;
        notes.iter().for_each(|note| stdio::print_error_line(note));
        let key_names = environment::key_names_of(Some(&agent));
        let trust = trust::read_operator_trust(workspace);
        let layers = env_files::read_env_layers(workspace, &agent.home, &args.env_files, &trust)?;
        let inner = workspace.filter(|_| layers.has_agent_in_workspace);
        let policy = SandboxOptions::default().policy()?;
        let note = run_sandbox::changeable_agent_note(&agent, inner, &policy)?;
        note.iter().for_each(|note| stdio::print_error_line(note));
        layers.notes.iter().for_each(|note| stdio::print_error_line(note));
        let secrets = layers.secrets(&key_names);
        let temporary = args.generate.then(TemporaryRunDir::create).transpose()?;
        let run_dir = match &temporary {
            Some(temporary) => temporary.0.clone(),
            None => unused_path(&Workspace { root: cwd.clone() }.control_dir()),
        };
        let vars = EngineVars { agent_home: agent.home.clone(), cwd, run_dir };
        // Runs that a generator starts are charged to the budget of the enclosing run.
        let budget = environment::variable(ledger::BUDGET_VARIABLE).map(PathBuf::from);
        let environment = ChildEnvironment::new(
            layers.child_variables(&agent.env_file, &key_names),
            key_names,
            PREVIEW_RUN_NAME,
            budget.as_deref(),
            vars.clone(),
            secrets.clone(),
        )
        .with_nesting(budget::nesting(&agent.bounds)?);
        // Only generators are started.
        let environment = if temporary.is_some() {
            let policy = SandboxOptions::default().policy()?;
            let sandbox =
                run_sandbox::prepare_run_sandbox(&agent, vars.clone(), policy, Vec::new())?;
            environment.with_sandbox(sandbox)
        } else {
            environment
        };
        Ok(Self { agent, vars, secrets, environment, layers, temporary })
    }

    fn first_request(&self, message: &str) -> Result<FirstRequest, CommandFailure> {
        let cancel = cancel::install_cancel()?;
        let mut state = RunState::default();
        let template = self.agent.context.task_template();
        state.conversation.push_user_message_with(&self.secrets.redact(message), &[], template);
        let launch =
            |generator: &ContextProgram| self.environment.launch_generator(1, &generator.pass_env);
        let mut inputs = ContextInputs {
            iteration: 1,
            ratio: state.ratio,
            vars: &self.vars,
            cancel: &cancel,
            launch: &launch,
            clock: time::current_time,
            counter: &mut TokenCounter::default(),
            run_generators: self.temporary.is_some(),
        };
        let context = self.agent.context.build(&state, &mut inputs)?;
        let sandbox = run_sandbox::describe_run_sandbox(&self.agent, self.vars.clone())?;
        let messages = context.messages();
        let sandbox = sandbox.as_ref();
        let demand = CallDemand::First;
        let basis = RequestBasis { sandbox, has_current_rules: true, demand, model_changes: 0 };
        let body = build_request_body(&self.agent, &basis, &messages, &self.secrets);
        let constant_messages = context.constant_messages;
        Ok(FirstRequest { body, blocks: context.blocks, ratio: state.ratio, constant_messages })
    }

    /// The body of the request as the endpoint would get it.
    fn encode(
        &self,
        message: &str,
        request: &FirstRequest,
        encode_request: EncodeRequest,
    ) -> Result<Arc<String>, CommandFailure> {
        let request = LlmRequest {
            task: message,
            last_user_message: message,
            last_message: request.body.last_message(),
            has_fallback: !self.agent.llm.fallback.is_empty(),
            forces_call: CallDemand::First.is_forced(),
            run_id: PREVIEW_RUN_NAME,
            constant_messages: request.constant_messages,
            ..LlmRequest::new(request.body.text())
        };
        encode_request(&self.agent, &self.layers, &request)
    }

    /// Prints how the preview differs from a run.
    fn print_notes(&self) {
        let run_dir = self.vars.run_dir.display();
        stdio::print_error_line(&match self.temporary {
            Some(_) => format!(
                "Note: no LLM was called; the generators ran with the temporary RUN_DIR {run_dir}"
            ),
            None => format!(
                "Note: no run was created and no LLM called; RUN_DIR is {run_dir}, which does not exist"
            ),
        });
        if self.temporary.is_none() && self.agent.context.has_tokenizer() {
            stdio::print_error_line(
                "Note: the tokenizer did not run; tokens are estimated, so a run may cut the request elsewhere; `--generate` runs it",
            );
        }
        if self.agent.hooks.get(HookPoint::PreLlmRequest).is_some() {
            stdio::print_error_line(
                "Note: the hook pre_llm_request did not run; it may change the request",
            );
        }
    }
}

/// The workspace that a run would work in.
fn preview_workspace(
    work_dir: Option<&Path>,
    must_exist: bool,
    agent: &Agent,
) -> Result<PathBuf, CommandFailure> {
    match work_dir {
        None => Ok(resolve_existing(&Workspace::next_path(&agent.home))),
        Some(dir) if must_exist || dir.exists() => Ok(Workspace::open_existing(dir)?.root),
        Some(dir) => {
            let path = std::path::absolute(dir).map_err(|error| {
                CommandFailure::config(
                    format!("could not resolve the workspace {}: {error}", dir.display()),
                    None,
                )
            })?;
            Ok(resolve_existing(&path))
        }
    }
}

/// A path in `dir` that does not exist.
fn unused_path(dir: &Path) -> PathBuf {
    let mut candidate = dir.join(PREVIEW_RUN_NAME);
    let mut number = 2;
    while candidate.exists() {
        candidate = dir.join(format!("{PREVIEW_RUN_NAME}-{number}"));
        number += 1;
    }
    candidate
}

/// A run directory that is removed on drop.
struct TemporaryRunDir(PathBuf);

impl TemporaryRunDir {
    fn create() -> Result<Self, CommandFailure> {
        let id = encode_hex(&random::random_bytes::<16>());
        let path = std::env::temp_dir().join(format!("delta-preview-{id}"));
        durable::create_private_dir_synced(&path)?;
        let run_dir = Self(path);
        workspace::ensure_run_subdirs(&run_dir.0)?;
        Ok(run_dir)
    }
}

impl Drop for TemporaryRunDir {
    fn drop(&mut self) {
        // After an error the rest stays in the temporary directory of the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}
