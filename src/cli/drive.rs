//! What `run` and `continue` share: their options, and all that surrounds the engine's work on a run.

use super::budget::{self, LimitOptions};
use super::failure::Failure;
use super::person::AtTerminal;
use super::point;
use super::stdout;
use crate::agent::Agent;
use crate::agent::imports::{IMPORT_PATH, ImportPath};
use crate::agent::layers::{Layers, Places};
use crate::durable::{FileError, LogFile};
use crate::engine::Engine;
use crate::environment::{Environment, key_names};
use crate::event::{EngineStart, Event, RunStatus};
use crate::human::Person;
use crate::id::RunId;
use crate::kept::{self, Kept};
use crate::ledger::{Budget, Ledger};
use crate::limits::{Amount, Limits};
use crate::llm::config::ModelChoice;
use crate::llm::endpoint::ADDRESS_VARIABLES;
use crate::llm::openai::OpenAi;
use crate::llm::{self, Endpoint, Provider, ProviderKind};
use crate::outcome::{GoOn, MODEL_OPTION, RunResult};
use crate::output::{self, Format};
use crate::ownership;
use crate::progress::{Progress, Verbosity};
use crate::run::{Notice, Observer, Run};
use crate::signal::Cancel;
use crate::snapshot::{Exclude, Store};
use crate::state::RunState;
use crate::terminal;
use crate::text::Secrets;
use crate::time;
use crate::vars::Vars;
use crate::workspace::Workspace;
use clap::Args;
use serde_json::json;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// The options of `run` and `continue`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// LLM answers that may be asked for (the agent says how many by default)
    #[arg(long, value_name = "N", value_parser = super::parse_count)]
    pub max_iterations: Option<u32>,
    #[command(flatten)]
    pub limits: LimitOptions,
    /// Another LLM than the agent's: NAME, or PROVIDER:NAME with openai, script, command or recorded
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    pub model: Option<ModelChoice>,
    /// Keep what the workspace is at each iteration, for `delta rollback` and `delta diff`
    #[arg(long)]
    pub snapshots: bool,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Answer the agent's questions here, at the terminal
    #[arg(short, long)]
    pub interactive: bool,
    /// Show reasoning and whole results too
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Show errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Not even errors, which are told otherwise.
    #[arg(skip)]
    pub silent: bool,
}

impl Options {
    /// What a command asks for that is none of the two.
    pub fn plain(max_iterations: Option<u32>, model: Option<ModelChoice>) -> Self {
        Self {
            max_iterations,
            limits: LimitOptions::default(),
            model,
            snapshots: false,
            format: Format::Text,
            interactive: false,
            verbose: false,
            quiet: false,
            silent: false,
        }
    }

    fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            _ if self.silent => Verbosity::Silent,
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }

    /// Tells a person what is good to know, unless only errors are wanted.
    pub fn note(&self, lines: &[String]) {
        for line in lines.iter().filter(|_| !self.quiet && !self.silent) {
            stdout::complain(line);
        }
    }

    /// Who answers the agent's questions here: for `-i`, and only at a terminal.
    fn person(&self, cancel: &Cancel) -> Option<Box<dyn Person>> {
        if self.interactive && !self.has_person() && !self.quiet {
            stdout::complain(
                "Note: `-i` has no effect without a terminal; questions wait for `delta continue`",
            );
        }
        let person = || Box::new(AtTerminal { cancel: cancel.clone() }) as Box<dyn Person>;
        self.has_person().then(person)
    }

    /// Whether one of them has an effect only while the engine works.
    pub fn is_for_work(&self) -> bool {
        self.interactive
            || self.snapshots
            || self.max_iterations.is_some()
            || !self.limits.limits().are_none()
    }

    /// Whether a person answers the agent's questions here.
    pub fn has_person(&self) -> bool {
        self.interactive && terminal::can_ask()
    }
}

/// Loads the agent in `home`, and says what a person should know of it. Nothing was made or changed when that fails.
pub fn load(home: &Path, options: &Options) -> Result<Agent, Failure> {
    let agent = Agent::load(home, options.model.as_ref(), &import_path())?;
    options.note(&agent.warnings);
    Ok(agent)
}

/// The variables of the environment and of the `.env` files around an agent and its workspace.
pub fn layers(workspace: Option<&Path>, agent: &Path) -> Result<Layers, Failure> {
    // Started in a directory that is gone, a command belongs to no project.
    let current = std::env::current_dir().unwrap_or_default();
    let places = Places { workspace, agent, current: &current };
    Ok(Layers::read(&places, std::env::vars_os().collect())?)
}

/// What the operator allows agents to import from.
pub fn import_path() -> ImportPath {
    ImportPath::parse(&variable(IMPORT_PATH).unwrap_or_default())
}

/// An agent that is ready to work: loaded, with its endpoint found, and its secrets known.
pub struct Ready {
    /// The agent.
    pub agent: Agent,
    /// What must never be written.
    pub secrets: Secrets,
    /// The variables that hold it.
    key_names: Vec<String>,
    /// The ledgers of the runs around this one, the nearest first.
    above: Vec<Ledger>,
    /// Prepared, so that what is wrong with an address or a proxy is known before anything is made.
    endpoint: Option<OpenAi>,
    layers: Layers,
}

impl Ready {
    /// Finds what the agent needs from its environment. `workspace` is the one that it will work in, unless that is a
    /// new one. Nothing was made or changed when that fails.
    pub fn new(agent: Agent, workspace: Option<&Path>, options: &Options) -> Result<Self, Failure> {
        let above = budget::above()?;
        budget::check(&agent, options.limits.limits(), &above)?;
        Self::with(agent, workspace, options, above, true)
    }

    /// Gives the agent back when [`Ready::new`] would find what it needs; says nothing to anybody.
    pub fn check(agent: Agent, workspace: &Path, options: &Options) -> Result<Agent, Failure> {
        let quiet = Options { quiet: true, ..options.clone() };
        Ok(Self::new(agent, Some(workspace), &quiet)?.agent)
    }

    /// The same for an agent whose LLM is not asked: its answers are recorded ones, and cost nothing.
    pub fn without_llm(
        mut agent: Agent,
        workspace: Option<&Path>,
        options: &Options,
    ) -> Result<Self, Failure> {
        agent.limits = Limits::default();
        Self::with(agent, workspace, options, Vec::new(), false)
    }

    fn with(
        agent: Agent,
        workspace: Option<&Path>,
        options: &Options,
        above: Vec<Ledger>,
        asks: bool,
    ) -> Result<Self, Failure> {
        let layers = layers(workspace, &agent.home)?;
        let own = std::env::vars_os().collect();
        let key_names = key_names(&own, agent.llm.api_key_env.as_deref());
        let keys: Vec<&str> = key_names.iter().map(String::as_str).collect();
        let (endpoint, used) = match agent.llm.provider {
            ProviderKind::Openai if asks => {
                let endpoint = Endpoint::resolve(&agent.llm, &|name| layers.values(name))?;
                let endpoint = OpenAi::new(endpoint, agent.llm.model.clone())?;
                (Some(endpoint), [&keys[..], &ADDRESS_VARIABLES].concat())
            }
            ProviderKind::Openai
            | ProviderKind::Script(_)
            | ProviderKind::Command(_)
            | ProviderKind::Recorded(_) => (None, Vec::new()),
        };
        options.note(&layers.notes);
        options.note(&layers.account(&used));
        // The keys of all layers, used or not: none of them belongs into a file.
        let secrets = Secrets::new(layers.keys(&keys));
        Ok(Self { agent, secrets, key_names, above, endpoint, layers })
    }

    /// Keeps the agent's files in the run directory, unless it holds them already as `before`, the process before this
    /// one, has kept them.
    pub fn keep(
        &self,
        run_dir: &Path,
        epoch: u32,
        before: Option<&EngineStart>,
    ) -> Result<Kept, FileError> {
        let files: Vec<(&str, String)> = self
            .agent
            .sources
            .iter()
            .map(|(name, text)| (*name, self.secrets.hide(text).into_owned()))
            .collect();
        kept::keep(run_dir, epoch, before, &files)
    }

    /// What ENGINE_START says of this process, whose agent is kept as `kept` says.
    pub fn start(
        &self,
        run: &Run,
        workspace: &Workspace,
        options: &Options,
        kept: Kept,
    ) -> EngineStart {
        let mut config = self.agent.summary();
        config["kept"] = json!(kept);
        if let Some(model) = &options.model {
            config["llm"][MODEL_OPTION] = json!(model.to_string());
        }
        EngineStart {
            run_id: run.id.to_string(),
            epoch: run.epoch(),
            agent_home: self.agent.home.to_string_lossy().into_owned(),
            agent_name: self.agent.name.clone(),
            work_dir: workspace.root.to_string_lossy().into_owned(),
            workspace_id: workspace.name(),
            max_iterations: options.max_iterations.unwrap_or(self.agent.max_iterations),
            config,
            process: ownership::myself(),
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            parent: None,
        }
    }

    /// What the run in `dir` may take: what the operator says now, or said for an earlier process, or else the agent, and
    /// what the runs around it have left. `spent` is what its answers took until now.
    pub fn budget(
        &self,
        (id, dir): (&RunId, &Path),
        options: &Options,
        spent: Amount,
        cancel: &Cancel,
    ) -> Result<Budget, Failure> {
        let above = self.above.clone();
        let made =
            budget::take_up(id, dir, options.limits.limits(), &self.agent, above, spent, cancel)?;
        options.note(&made.notes);
        Ok(made.budget)
    }

    /// Drives a run, whose beginning has been committed, until this process leaves it.
    pub fn drive(
        &self,
        run: &mut Run,
        workspace: &Workspace,
        options: &Options,
        (budget, cancel): (Budget, Cancel),
    ) -> Result<RunResult, Failure> {
        let environment = self.environment(run.id.as_str(), &run.dir, workspace, budget.path());
        let provider = self.connect(&environment)?;
        let person = options.person(&cancel);
        let snapshots = self.snapshots(run, options)?;
        Engine::new(&self.agent, environment, provider, cancel, person, time::now, budget)
            .keeping(snapshots)
            .drive(run)?;
        guide(options, run);
        RunResult::of(run.state()).ok_or_else(|| Failure::config("the run has no beginning", None))
    }

    /// Where it is kept what the workspace was: for an agent or an operator who wants it, and for a run that has begun to.
    fn snapshots(&self, run: &Run, options: &Options) -> Result<Option<Store>, Failure> {
        let begun = run.state().timeline.last();
        let exclude = match (&self.agent.snapshots, begun) {
            (Some(exclude), _) => exclude.clone(),
            (None, Some(last)) => Exclude::parse(last.exclude.iter().map(String::as_str))
                .map_err(|why| Failure::damaged(why, None))?,
            (None, None) if options.snapshots => Exclude::default(),
            (None, None) => return Ok(None),
        };
        Ok(Some(point::open(&run.dir, run.state(), exclude)?))
    }

    /// Drives a run with another LLM than the agent's, and another person than the one at the terminal.
    pub fn drive_with(
        &self,
        run: &mut Run,
        workspace: &Workspace,
        (provider, person): (Box<dyn Provider>, Box<dyn Person>),
        (budget, cancel): (Budget, Cancel),
    ) -> Result<(), Failure> {
        let environment = self.environment(run.id.as_str(), &run.dir, workspace, budget.path());
        Engine::new(&self.agent, environment, provider, cancel, Some(person), time::now, budget)
            .drive(run)?;
        Ok(())
    }

    /// What the children of the run `id` find around them.
    pub fn environment(
        &self,
        id: &str,
        run_dir: &Path,
        workspace: &Workspace,
        ledger: Option<&Path>,
    ) -> Environment {
        let (agent_home, cwd) = (self.agent.home.clone(), workspace.root.clone());
        let vars = Vars { agent_home, cwd, run_dir: run_dir.to_owned() };
        let (keys, secrets) = (self.key_names.clone(), self.secrets.clone());
        Environment::new(self.layers.merged(), keys, id, ledger, vars, secrets)
    }

    /// The agent's LLM.
    pub fn connect(&self, environment: &Environment) -> Result<Box<dyn Provider>, Failure> {
        Ok(llm::connect(
            &self.agent.llm,
            self.endpoint.as_ref().map(OpenAi::again),
            || environment.launch_provider(),
            environment.vars(),
        )?)
    }
}

/// Writes the result of a command, or why there is none; gives its exit code.
pub fn finish(
    result: Result<RunResult, Failure>,
    format: Format,
    run_id: Option<String>,
) -> ExitCode {
    let result = match result {
        Ok(result) => result,
        Err(failure) => {
            let code = failure.complain();
            if matches!(format, Format::Json | Format::Jsonl) {
                let (status, error) = (failure.status(), failure.info());
                let run_id = failure.run_id().or(run_id);
                let result = RunResult::without_run(run_id, status, error, time::now());
                stdout::write(&output::render(&result, format));
            }
            return code;
        }
    };
    let written = stdout::write_result(&output::render(&result, format));
    if let Err(error) = &written {
        stdout::complain(&format!("Error: the result could not be written to stdout: {error}"));
    }
    ExitCode::from(match result.status {
        RunStatus::Completed if written.is_ok() => 0,
        RunStatus::Completed | RunStatus::Failed | RunStatus::Running => 1,
        RunStatus::WaitingForInput => 101,
        RunStatus::Interrupted => 130,
    })
}

/// The message of an option: its text, or stdin for `-`.
pub fn message(option: &str) -> Result<String, Failure> {
    if option != "-" {
        return Ok(option.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| {
        Failure::config(format!("the message cannot be read from stdin: {error}"), None)
    })?;
    match text.trim().is_empty() {
        true => Err(Failure::config(
            "the message on stdin is empty",
            Some("give the text on stdin".to_owned()),
        )),
        false => Ok(text.trim_end().to_owned()),
    }
}

/// Signals, for the whole process.
pub fn cancel() -> Result<Cancel, Failure> {
    Cancel::install()
        .map_err(|error| Failure::config(format!("signals cannot be handled: {error}"), None))
}

/// A variable of the environment; an empty one counts as none.
#[expect(clippy::disallowed_methods, reason = "cli reads the environment")]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Shows what happens on stderr, writes engine.log, and with `jsonl` every event to stdout. `before` is what the run was
/// until now.
pub fn observer(options: &Options, run_dir: &Path, before: &RunState) -> Result<Observer, Failure> {
    let mut progress = Progress::new(options.verbosity(), terminal::is_watched(), time::now);
    progress.log_to(LogFile::open(&run_dir.join("engine.log"))?);
    progress.remember(before);
    if terminal::shows_result() && matches!(options.format, Format::Text | Format::Raw) {
        progress.leave_result_out();
    }
    let mut read = options.format == Format::Jsonl;
    Ok(Box::new(move |notice| {
        if let Notice::Recorded(event) = &notice {
            read = read && stdout::write(&Event::to_line(event));
        }
        progress.show(&notice);
    }))
}

/// Says how to go on with a run that has no result yet.
fn guide(options: &Options, run: &Run) {
    let (state, next) = (run.state(), GoOn::of(run.state()));
    // Beside the result as text on the same terminal it would be said twice.
    let told = options.quiet || terminal::shows_result() && options.format == Format::Text;
    match state.status {
        Some(RunStatus::WaitingForInput) => {
            let response = run.dir.join("interaction/response.txt");
            stdout::complain("The agent waits for your answer. Give it in one of two ways:");
            stdout::complain(&format!("  {next} -m ANSWER"));
            stdout::complain(&format!("  write it to {}", response.display()));
            stdout::complain(&format!("    and then: {next}"));
        }
        Some(RunStatus::Interrupted) if !told => {
            stdout::complain(&format!("Go on with: {next}"));
        }
        Some(RunStatus::Failed) if !told && state.question().is_some() => {
            stdout::complain(&format!("Go on with: {next} -i"));
        }
        _ => {}
    }
}
