//! `delta context preview`: the first request of a run that is not made.

use super::View;
use crate::agent::Agent;
use crate::agent::layers::{Layers, Places};
use crate::cli::failure::Failure;
use crate::cli::{completions, drive, stdout};
use crate::composition::Composition;
use crate::context::{self, Counter, Generator, Surroundings};
use crate::durable;
use crate::engine;
use crate::environment::{Environment, key_names};
use crate::hook::Hook;
use crate::ledger;
use crate::llm::config::ModelChoice;
use crate::record::{Block, Body};
use crate::state::RunState;
use crate::text::Secrets;
use crate::time;
use crate::vars::Vars;
use crate::workspace::{self, Workspace};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// What a run is called that is not made.
const NAME: &str = "preview";

/// Show what the first request of a run would be, without making a run or asking anything
///
/// Conditions and budgets apply, files are read, the tokenizer counts. Generators do not run: what they made before
/// stands in, and where there is nothing, their block is skipped.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta context preview --agent ./my-agent -m \"Summarise the logs\"
  delta context preview --agent ./my-agent -m \"...\" -w ./work --request | jq .messages
  delta context preview --agent ./my-agent -m \"...\" -w ./work --generate")]
pub struct PreviewArgs {
    /// The agent directory
    #[arg(long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completions::Agents))]
    agent: PathBuf,
    /// The task; `-` reads it from stdin
    #[arg(short, long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    message: String,
    /// The workspace, which need not be there; by default the one that a run would make
    #[arg(short, long, value_name = "DIR", add = ArgValueCompleter::new(completions::Workspaces))]
    work_dir: Option<PathBuf>,
    /// Another LLM than the agent's: NAME, or PROVIDER:NAME with openai, script, command or recorded
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    model: Option<ModelChoice>,
    /// Run the generators in the workspace, which must be there, with a run directory that is taken away again
    #[arg(long, requires = "work_dir")]
    generate: bool,
    /// Print the exact request, byte for byte as it would be sent
    #[arg(long, conflicts_with_all = ["format", "block"])]
    request: bool,
    #[command(flatten)]
    view: View,
}

/// What the preview takes for a run.
struct Stage {
    agent: Agent,
    vars: Vars,
    secrets: Secrets,
    environment: Environment,
    /// Where generators run.
    temporary: Option<Temporary>,
}

/// The text of the preview.
pub fn preview(args: &PreviewArgs) -> Result<String, Failure> {
    let message = drive::message(&args.message)?;
    let agent = Agent::load(&args.agent, args.model.as_ref(), &drive::import_path())?;
    agent.warnings.iter().for_each(|warning| stdout::complain(warning));
    let stage = Stage::of(agent, args)?;
    let (body, blocks, ratio) = stage.first_request(&message)?;
    stage.tell();
    if args.request {
        return Ok(body.text().as_str().to_owned());
    }
    let composition = Composition::of(body.text(), &blocks, ratio)
        .map_err(|error| Failure::damaged(format!("this is no request: {error}"), None))?;
    let heading = format!("{} iteration 1, not sent", stage.agent.name);
    let about = json!({
        "agent": stage.agent.name,
        "iteration": 1,
        "workspace": stage.vars.cwd,
        "run_dir": stage.vars.run_dir,
    });
    args.view.of(&composition, &heading, about, "")
}

impl Stage {
    fn of(agent: Agent, args: &PreviewArgs) -> Result<Self, Failure> {
        let cwd = workspace_of(args, &agent)?;
        let current = std::env::current_dir().unwrap_or_default();
        let workspace = args.work_dir.is_some().then_some(cwd.as_path());
        let places = Places { workspace, agent: &agent.home, current: &current };
        let own = std::env::vars_os().collect();
        let key_names = key_names(&own, agent.llm.api_key_env.as_deref());
        let keys: Vec<&str> = key_names.iter().map(String::as_str).collect();
        let layers = Layers::read(&places, own)?;
        layers.notes.iter().for_each(|note| stdout::complain(note));
        let secrets = Secrets::new(layers.keys(&keys));
        let temporary = args.generate.then(Temporary::create).transpose()?;
        let run_dir = match &temporary {
            Some(temporary) => temporary.0.clone(),
            None => free_name(&cwd.join(".delta")),
        };
        let vars = Vars { agent_home: agent.home.clone(), cwd, run_dir };
        // What a generator starts draws on the budget around this command.
        let budget = drive::variable(ledger::VARIABLE).map(PathBuf::from);
        let environment = Environment::new(
            layers.merged(),
            key_names,
            NAME,
            budget.as_deref(),
            vars.clone(),
            secrets.clone(),
        );
        Ok(Self { agent, vars, secrets, environment, temporary })
    }

    /// The request, and where its messages come from.
    fn first_request(
        &self,
        message: &str,
    ) -> Result<(Body, Vec<Block>, crate::tokens::Ratio), Failure> {
        let cancel = drive::cancel()?;
        let mut state = RunState::default();
        state.conversation.user(&self.secrets.hide(message));
        let launch = |generator: &Generator| {
            let mark = (context::MARK.0, context::MARK.1.to_owned());
            let mut launch = self.environment.launch(1, &generator.pass_env, [mark]);
            // A tokenizer counts also for a workspace that is not there yet.
            if !launch.cwd.is_dir() {
                launch.cwd.clone_from(&self.vars.agent_home);
            }
            launch
        };
        let mut around = Surroundings {
            iteration: 1,
            ratio: state.ratio,
            vars: &self.vars,
            cancel: &cancel,
            launch: &launch,
            clock: time::now,
            counter: &mut Counter::default(),
            generates: self.temporary.is_some(),
        };
        let context = self.agent.context.build(&state, &mut around)?;
        let request = engine::request(&self.agent, &context.messages(), &self.secrets);
        Ok((request, context.blocks, state.ratio))
    }

    /// Says what is not as in a run.
    fn tell(&self) {
        let run_dir = self.vars.run_dir.display();
        stdout::complain(&match self.temporary {
            Some(_) => format!(
                "Note: the LLM was not asked; the generators ran, with {run_dir} for RUN_DIR, which is taken away again"
            ),
            None => format!(
                "Note: nothing was made or asked; RUN_DIR stands for {run_dir}, which does not exist"
            ),
        });
        if self.agent.hooks.get(Hook::PreLlmRequest).is_some() {
            stdout::complain(
                "Note: the hook pre_llm_request has not run; it may change the request",
            );
        }
    }
}

/// The workspace that a run would work in.
fn workspace_of(args: &PreviewArgs, agent: &Agent) -> Result<PathBuf, Failure> {
    match &args.work_dir {
        None => Ok(Workspace::place_of_next(&agent.home)),
        Some(dir) if args.generate || dir.exists() => Ok(Workspace::existing(dir)?.root),
        Some(dir) => std::path::absolute(dir).map_err(|error| {
            Failure::config(format!("the workspace {}: {error}", dir.display()), None)
        }),
    }
}

/// A path in `dir` at which there is nothing.
fn free_name(dir: &Path) -> PathBuf {
    let mut candidate = dir.join(NAME);
    let mut number = 2;
    while candidate.exists() {
        candidate = dir.join(format!("{NAME}-{number}"));
        number += 1;
    }
    candidate
}

/// A run directory that is taken away again.
struct Temporary(PathBuf);

impl Temporary {
    fn create() -> Result<Self, Failure> {
        let id = uuid::Uuid::new_v4().simple();
        let path = std::env::temp_dir().join(format!("delta-preview-{id}"));
        durable::create_dir(&path)?;
        let made = Self(path);
        workspace::ensure_parts(&made.0)?;
        Ok(made)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be taken away lies in the system's directory for that.
        let _ = fs::remove_dir_all(&self.0);
    }
}
