//! What `run` and `continue` share: their options, the preparation of an agent, and the output of the result.

use super::budget::{self, OuterLimits, OwnedRun, PastUse, RunBudget};
use super::failure::CommandFailure;
use super::llm_endpoint::{EndpointSetup, PreparedEndpoint};
use super::lost_journal;
use super::next_steps;
use super::run_observer::{prints_pieces, shows_live_output};
use super::run_options::{EnvFileOptions, RunOptions};
use super::sandbox_preparation::changeable_agent_note;
use super::sweep::SweepShare;
use super::{mcp_server_spec, operator_config, operator_key, operator_state, price_source, skill};
use super::{process_environment, restore_point, sandbox_preparation};
use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::{DotenvLocations, EnvLayers};
use delta_agent::agent::tool_imports::{IMPORT_PATH_VARIABLE, ImportPath};
use delta_agent::ask_human::HumanPrompt;
use delta_agent::child_environment::ChildEnvironment;
use delta_agent::run_sandbox::{OperatorPolicy, RunSandbox};
use delta_agent::tool::has_staged_tool;
use delta_agent::trust_store::{OperatorTrust, TRUST_VARIABLE, TRUSTED_HOSTS_VARIABLE};
use delta_author::lint::find_missing_programs;
use delta_base::api_key_names::API_KEY_VARIABLES;
use delta_base::durable::{self, FileError};
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_base::time;
use delta_base::url_secrets::url_secrets;
use delta_engine::engine::Engine;
use delta_engine::result_output::{self, OutputFormat};
use delta_engine::run_result::{ContinueCommand, RunResult};
use delta_llm::llm::endpoint::ADDRESS_VARIABLES;
use delta_llm::llm::endpoint_provider::EndpointProvider;
use delta_llm::llm::{self, Provider};
use delta_mcp::holder::HolderConfig;
use delta_process as process;
use delta_program::stdio;
use delta_run::budget::ledger::{Budget, Ledger};
use delta_run::event::{AgentCopy, EngineStart, RunStage, RunStatus};
use delta_run::limits::Limits;
use delta_run::limits::bounds::{Nesting, RunBounds};
use delta_run::ownership::owner_process;
use delta_run::record::agent_copy;
use delta_run::run::{Run, RunNotice};
use delta_run::state::RunState;
use delta_run::workspace::{self, Workspace};
use delta_shell::EngineVars;
use delta_snapshot::{ExcludePatterns, SnapshotStore};
use delta_yaml::diagnostic::Diagnostic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// The variables of the environment and of the `.env` files that count for an agent and its workspace.
pub fn read_env_layers(
    workspace: Option<&Path>,
    agent: &Path,
    options: &EnvFileOptions,
    trust: &OperatorTrust,
) -> Result<EnvLayers, CommandFailure> {
    // A current directory that no longer exists has no `.env` file.
    let current = std::env::current_dir().unwrap_or_default();
    let named_files: Vec<PathBuf> = options.env_file.iter().rev().cloned().collect();
    let locations = DotenvLocations {
        workspace,
        agent_home: agent,
        current_dir: &current,
        named_files: &named_files,
    };
    let process = process_environment::variables().clone();
    let mut layers =
        EnvLayers::read(&locations, process, &|path, content| trust.trusts_file(path, content))?;
    let may_need_trust = layers.has_agent_in_workspace || !layers.notes.is_empty();
    if let Some(directory) = trust.ignored_directory().filter(|_| may_need_trust) {
        layers.notes.push(format!(
            "Note: what `delta trust` keeps in {} does not count, for the workspace contains it; set DELTA_STATE_DIR to a directory outside of it",
            directory.display()
        ));
    }
    if let Some(key) = operator_key::read_operator_key()? {
        layers.set_operator_key(API_KEY_VARIABLES[0], key.value, key.description);
    }
    Ok(layers)
}

/// The variables for an agent, with the note about one that can change its own directory.
fn read_agent_layers(
    agent: &Agent,
    workspace: Option<&Path>,
    options: &RunOptions,
    policy: &OperatorPolicy,
    trust: &OperatorTrust,
) -> Result<EnvLayers, CommandFailure> {
    let mut layers = read_env_layers(workspace, &agent.home, &options.env_files, trust)?;
    let inner = workspace.filter(|_| layers.has_agent_in_workspace);
    layers.notes.splice(..0, changeable_agent_note(agent, inner, policy)?);
    Ok(layers)
}

/// What the operator trusts in a run with this workspace.
pub fn read_operator_trust(workspace: Option<&Path>) -> OperatorTrust {
    OperatorTrust::new(
        operator_state::trust_store().ok(),
        workspace,
        process_environment::raw_variable(TRUST_VARIABLE),
        &process_environment::variable(TRUSTED_HOSTS_VARIABLE).unwrap_or_default(),
    )
}

/// The directories from which the operator allows agents to import.
pub fn read_import_path() -> ImportPath {
    ImportPath::parse(&process_environment::variable(IMPORT_PATH_VARIABLE).unwrap_or_default())
}

/// Where delta cannot find processes.
#[cfg(target_os = "linux")]
const UNSEEN_PROCESSES: &str = "Note: /proc does not show the processes of this PID namespace, so delta does not end what calls leave \
     running; mount it, for example with `unshare --mount-proc`";
#[cfg(not(target_os = "linux"))]
const UNSEEN_PROCESSES: &str = "Note: untested here: delta does not end what calls leave running";

/// A loaded agent with its endpoint and its secrets.
pub struct PreparedAgent {
    pub agent: Agent,
    /// What must never be written to a file.
    pub secrets: Secrets,
    /// The variables that contain the secrets.
    key_names: Vec<String>,
    /// The ledgers of the runs that started this process, innermost first.
    enclosing_ledgers: Vec<Ledger>,
    /// The tools that ask before every call, by the operator's configuration.
    asking_tools: Vec<String>,
    /// What the operator and the machine say about sandboxes.
    sandbox_policy: OperatorPolicy,
    bounds: RunBounds,
    nesting: Nesting,
    /// Created early, so that a wrong address or proxy is reported before anything is written.
    endpoint: Option<EndpointProvider>,
    layers: EnvLayers,
    /// The workspace as the user named it: symlinks on the way to it may hide its sweep.
    named_workspace: Option<PathBuf>,
}

/// What answers instead of the agent's LLM and of the person at the terminal.
pub struct Impersonators {
    /// Answers for the LLM.
    pub provider: Box<dyn Provider>,
    /// Answers for the person.
    pub human: Box<dyn HumanPrompt>,
}

/// Where the prices are that the limits of a run need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PricePolicy {
    /// In the agent or the price file.
    Required,
    /// There, or in the run; opening the budget checks it.
    Recorded,
    /// The LLM is not called.
    Free,
}

impl PricePolicy {
    /// Takes the prices of the agent's LLM from the price file, and checks that `limits` can be enforced.
    fn check(
        self,
        agent: &mut Agent,
        base_url: &str,
        limits: Limits,
        enclosing: &[Ledger],
    ) -> Result<(), CommandFailure> {
        let missing = price_source::apply_price_file(&mut agent.llm, base_url)?;
        match self {
            Self::Required => budget::check_limits(agent, limits, enclosing, missing.as_deref()),
            Self::Recorded | Self::Free => Ok(()),
        }
    }
}

impl PreparedAgent {
    /// Reads what the agent needs from its environment. `workspace` is `None` if the run will create a new one. Creates and
    /// changes nothing.
    pub fn new(
        agent: Agent,
        workspace: Option<&Path>,
        options: &RunOptions,
    ) -> Result<Self, CommandFailure> {
        let enclosing = budget::enclosing_ledgers()?;
        Self::prepare(agent, workspace, options, enclosing, PricePolicy::Required)
    }

    /// Like [`PreparedAgent::new`], for a run that exists and may have recorded the prices that its limits need.
    pub fn for_existing_run(
        agent: Agent,
        workspace: &Path,
        options: &RunOptions,
    ) -> Result<Self, CommandFailure> {
        let enclosing = budget::enclosing_ledgers()?;
        Self::prepare(agent, Some(workspace), options, enclosing, PricePolicy::Recorded)
    }

    /// Returns the agent if [`PreparedAgent::new`] would succeed; prints nothing.
    pub fn check(
        agent: Agent,
        workspace: &Path,
        options: &RunOptions,
    ) -> Result<Agent, CommandFailure> {
        let quiet = RunOptions { quiet: true, ..options.clone() };
        Ok(Self::new(agent, Some(workspace), &quiet)?.agent)
    }

    /// Like [`PreparedAgent::new`], for an agent whose LLM is not called: recorded answers cost nothing.
    pub fn without_llm(
        mut agent: Agent,
        workspace: Option<&Path>,
        options: &RunOptions,
    ) -> Result<Self, CommandFailure> {
        agent.limits = Limits::default();
        Self::prepare(agent, workspace, options, Vec::new(), PricePolicy::Free)
    }

    fn prepare(
        mut agent: Agent,
        workspace: Option<&Path>,
        options: &RunOptions,
        enclosing_ledgers: Vec<Ledger>,
        prices: PricePolicy,
    ) -> Result<Self, CommandFailure> {
        let is_allowed = options.project_skills;
        options.print_notes(&skill::offer_project_skills(&mut agent, workspace, is_allowed)?);
        options.approvals.check(&agent)?;
        let sandbox_policy = options.sandbox.policy()?;
        let calls_llm = prices != PricePolicy::Free;
        let bounds = options.limits.bounds().or(agent.bounds);
        let limits = options.limits.limits().or(agent.limits);
        let nesting = budget::nesting(&bounds)?;
        let trust = read_operator_trust(workspace);
        let mut layers = read_agent_layers(&agent, workspace, options, &sandbox_policy, &trust)?;
        // Before an error: a file that is not trusted may have the missing key.
        options.print_notes(&layers.notes);
        let key_names = process_environment::key_names_of(Some(&agent));
        process_environment::overwrite_keys(&key_names);
        let mut endpoint = None;
        let mut endpoint_variables: Vec<&str> = Vec::new();
        let prepared_endpoint = if calls_llm {
            let setup = EndpointSetup {
                agent: &agent,
                key_names: &key_names,
                trust: &trust,
                max_iterations: options.max_iterations,
            };
            let prepared = setup.prepare(&mut layers)?;
            let base_url = prepared.as_ref().map_or("", PreparedEndpoint::base_url);
            prices.check(&mut agent, base_url, limits, &enclosing_ledgers)?;
            prepared
        } else {
            None
        };
        let secrets = all_secrets(&layers, &key_names, &agent);
        if let Some(prepared) = prepared_endpoint {
            options.print_notes(prepared.note.as_slice());
            endpoint = Some(prepared.into_provider(&secrets));
            endpoint_variables.extend(key_names.iter().map(String::as_str));
            endpoint_variables.extend(ADDRESS_VARIABLES);
        }
        let vars = EngineVars {
            agent_home: agent.home.clone(),
            cwd: workspace.unwrap_or(Path::new("")).to_owned(),
            run_dir: PathBuf::new(),
        };
        let inherited = layers.child_variables(&agent.env_file, &key_names);
        // Created early, so that a missing token is reported before anything is written.
        mcp_server_spec::holder_configs(&agent.mcp_servers, &vars, &layers, &inherited)?;
        let has_workspace = workspace.is_some_and(Path::is_dir);
        options.print_notes(&agent.context.unmatched_patterns(&vars, has_workspace));
        options.print_notes(&layers.describe_origins(&endpoint_variables, options.verbose));
        let asking_tools = if calls_llm { operator_config::approve()? } else { Vec::new() };
        Ok(Self {
            agent,
            secrets,
            key_names,
            enclosing_ledgers,
            asking_tools,
            sandbox_policy,
            bounds,
            nesting,
            endpoint,
            layers,
            named_workspace: None,
        })
    }

    /// Sets the workspace as the user named it.
    #[must_use]
    pub fn named_by(mut self, workspace: Option<&Path>) -> Self {
        self.named_workspace = workspace.map(Path::to_owned);
        self
    }

    /// Prepares the sandboxes of the run in `run_dir`; `None` if nothing has one.
    ///
    /// # Errors
    /// One of them cannot be enforced here.
    pub fn prepare_sandbox(
        &self,
        run_dir: &Path,
        workspace: &Workspace,
    ) -> Result<Option<Arc<RunSandbox>>, CommandFailure> {
        let vars = EngineVars {
            agent_home: self.agent.home.clone(),
            cwd: workspace.root.clone(),
            run_dir: run_dir.to_owned(),
        };
        sandbox_preparation::prepare_run_sandbox(&self.agent, vars, self.sandbox_policy.clone())
    }

    /// Copies the agent's files into the run directory, unless `before`, the previous process, has copied the same files.
    pub fn copy_agent_files(
        &self,
        run_dir: &Path,
        epoch: u32,
        before: Option<&EngineStart>,
    ) -> Result<AgentCopy, FileError> {
        agent_copy::copy_agent_files(run_dir, epoch, before, &self.recorded_files())
    }

    /// Whether a process copied other files of the agent than this one would.
    pub fn has_other_files(&self, copy: &AgentCopy) -> bool {
        agent_copy::is_copy_of_others(copy, &self.recorded_files())
    }

    /// The agent's files as they are copied into a run directory.
    fn recorded_files(&self) -> Vec<(&str, String)> {
        let files = self.agent.source_files.iter();
        files.map(|(name, text)| (*name, self.secrets.redact(text).into_owned())).collect()
    }

    /// The ENGINE_START event of this process.
    pub fn engine_start(
        &self,
        run: &Run,
        workspace: &Workspace,
        options: &RunOptions,
        agent_copy: AgentCopy,
        sandbox: Option<&RunSandbox>,
    ) -> EngineStart {
        let mut config = self.agent.run_config();
        let outside = workspace::runs_dir().map(|_| run.dir.to_string_lossy().into_owned());
        config.run_dir = outside;
        config.kept = Some(agent_copy);
        config.sandbox = sandbox.map(|sandbox| sandbox.record().clone());
        let mut approval = options.approvals.operator_approval();
        approval.add_asking(&self.asking_tools);
        config.approve = approval.recorded();
        if let (Some(llm), Some(model)) = (&mut config.llm, &self.agent.model_choice) {
            llm.option = Some(model.to_recorded());
        }
        if let Some(llm) = &mut config.llm {
            llm.settings = self.agent.llm_settings.iter().map(ToString::to_string).collect();
        }
        EngineStart {
            run_id: run.id.clone(),
            epoch: run.epoch(),
            agent_home: self.agent.home.to_string_lossy().into_owned(),
            agent_name: self.agent.name.clone(),
            work_dir: workspace.root.to_string_lossy().into_owned(),
            workspace_id: workspace.name(),
            max_iterations: options.max_iterations.unwrap_or(self.agent.max_iterations),
            calls_per_answer: Some(options.limits.bounds().or(self.bounds).max_calls_per_answer()),
            config,
            process: owner_process::current_process(),
            boot_id: durable::boot_id(),
            lease: Some(run.lease()),
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            parent: None,
            seal: None,
        }
    }

    /// The budget of a run in `workspace`: the limits of this command line, of an earlier process or of the agent, and what
    /// the enclosing runs and the sweep have left.
    pub fn open_budget(
        &self,
        run: &OwnedRun<'_>,
        workspace: &Workspace,
        options: &RunOptions,
        past: PastUse,
        cancel: &CancelToken,
    ) -> Result<RunBudget, CommandFailure> {
        let places = self.named_workspace.iter().chain([&workspace.root]);
        let share = SweepShare::open(run.id, places, &self.enclosing_ledgers, cancel)?;
        let outer = OuterLimits::new(self.enclosing_ledgers.clone(), share.as_ref());
        let limits = options.limits.limits();
        let opened = budget::open_budget(run, limits, &self.agent, outer, past, cancel)?;
        options.print_notes(&opened.notes);
        Ok(RunBudget { budget: opened.budget, share })
    }

    /// Drives a run, whose ENGINE_START has been committed, until it ends or stops.
    pub fn drive(
        &self,
        run: &mut Run,
        workspace: &Workspace,
        options: &RunOptions,
        sandbox: Option<Arc<RunSandbox>>,
        budget: RunBudget,
        cancel: CancelToken,
    ) -> Result<RunResult, CommandFailure> {
        let RunBudget { budget, share } = budget;
        let environment = self
            .environment(run.id.as_str(), &run.dir, workspace, budget.ledger_path())
            .with_call_rate(share.as_ref().and_then(SweepShare::rate_dir))
            .with_inner_seal(derive_inner_seal(sandbox.as_deref(), run))
            .with_sandbox(sandbox);
        if !process::shows_own_processes() {
            options.print_notes(&[UNSEEN_PROCESSES.to_owned()]);
        }
        if run.epoch() == 1 && !options.quiet {
            self.warn_of_missing_programs(run, &environment);
        }
        let provider = self.connect_llm(&environment)?;
        if !options.quiet && terminal::is_stderr_terminal() {
            let next = ContinueCommand::from_state(run.state());
            cancel.set_last_words(format!("\nStopped at once. Continue with: {next}\n"));
        }
        let human = options.human_prompt(&cancel);
        let snapshots = self.open_snapshots(run, options)?;
        let servers = self.mcp_servers(&environment)?;
        let cleanup = cancel.clone();
        let clock = time::current_time;
        let driven = Engine::new(&self.agent, environment, provider, cancel, human, clock, budget)
            .with_mcp_servers(servers)
            .with_parallel_calls(self.bounds.max_parallel())
            .with_surviving_calls(
                process_environment::variable(SURVIVE_VARIABLE).as_deref() != Some("0"),
            )
            .with_snapshots(snapshots)
            .with_disk_limit(self.bounds.disk)
            .with_live_output(shows_live_output(options) || prints_pieces(options))
            .drive(run);
        if let Some(problem) = share.and_then(|share| share.give_back().err()) {
            run.notify(RunNotice::Warning(&format!(
                "could not give back what is left of the sweep's budget: {}",
                problem.message()
            )));
        }
        if let Err(error) = driven {
            return lost_journal::end_unrecorded_run(run, error, options);
        }
        if let Some(anchor) = &options.anchor {
            anchor.append_head(run, &cleanup);
        }
        let mut result = RunResult::from_state(run.state())
            .ok_or_else(|| CommandFailure::config("the run has no ENGINE_START", None))?
            .with_tree(&run.dir, run.state());
        result.follows_progress = options.result_follows_progress();
        next_steps::print_next_steps(options, &run.dir, run.state(), &result);
        Ok(result)
    }

    /// Warns of each program that a tool needs and that the run would not find.
    fn warn_of_missing_programs(&self, run: &mut Run, environment: &ChildEnvironment) {
        let launch = environment.launch(0, &[], []);
        for missing in find_missing_programs(&self.agent, &read_import_path(), &launch) {
            let Diagnostic { file, line, message, help, .. } = missing;
            let file = Path::new(&file).file_name().unwrap_or_default().to_string_lossy();
            let help = help.map_or_else(String::new, |help| format!("; {help}"));
            run.notify(RunNotice::Warning(&format!("{message} ({file}:{line}){help}")));
        }
    }

    /// The snapshots of the run, if the agent or the operator enables them, or the run is staged or has some already.
    fn open_snapshots(
        &self,
        run: &Run,
        options: &RunOptions,
    ) -> Result<Option<SnapshotStore>, CommandFailure> {
        let state = run.state();
        let has_snapshots = self.agent.snapshots.is_some()
            || state.timeline.last().is_some()
            || state.stage.is_some()
            || has_staged_tool(&self.agent.tools)
            || options.snapshots;
        has_snapshots.then(|| self.open_snapshot_store(&run.dir, state)).transpose()
    }

    fn open_snapshot_store(
        &self,
        run_dir: &Path,
        state: &RunState,
    ) -> Result<SnapshotStore, CommandFailure> {
        let exclude = match (&self.agent.snapshots, state.timeline.last()) {
            (Some(exclude), _) => exclude.clone(),
            (None, Some(last)) => ExcludePatterns::parse(last.exclude.iter().map(String::as_str))
                .map_err(|problem| CommandFailure::damaged(problem, None))?,
            (None, None) => ExcludePatterns::default(),
        };
        Ok(restore_point::open_store_excluding(run_dir, state, exclude)?)
    }

    /// The stage of a process whose layers are new: the snapshot of the workspace as it is.
    pub fn new_stage(
        &self,
        run_dir: &Path,
        state: &RunState,
        workspace: &Workspace,
        cancel: &CancelToken,
    ) -> Result<RunStage, CommandFailure> {
        let mut store = self.open_snapshot_store(run_dir, state)?;
        let base = store.take(&workspace.root, &self.secrets, Some(cancel))?.tree;
        // The first snapshot of the run then reads no file again.
        store.save_index()?;
        Ok(RunStage { base })
    }

    /// Drives a run with others instead of the agent's LLM and the terminal.
    pub fn drive_with(
        &self,
        run: &mut Run,
        workspace: &Workspace,
        Impersonators { provider, human }: Impersonators,
        sandbox: Option<Arc<RunSandbox>>,
        budget: Budget,
        cancel: CancelToken,
    ) -> Result<(), CommandFailure> {
        let environment = self
            .environment(run.id.as_str(), &run.dir, workspace, budget.ledger_path())
            .with_inner_seal(derive_inner_seal(sandbox.as_deref(), run))
            .with_sandbox(sandbox);
        let agent = &self.agent;
        let clock = time::current_time;
        let servers = self.mcp_servers(&environment)?;
        let snapshots = has_staged_tool(&agent.tools)
            .then(|| self.open_snapshot_store(&run.dir, run.state()))
            .transpose()?;
        Engine::new(agent, environment, provider, cancel, Some(human), clock, budget)
            .with_mcp_servers(servers)
            .with_parallel_calls(self.bounds.max_parallel())
            .with_surviving_calls(
                process_environment::variable(SURVIVE_VARIABLE).as_deref() != Some("0"),
            )
            .with_snapshots(snapshots)
            .drive(run)?;
        Ok(())
    }

    /// The environment of the child processes of the run `id`.
    pub fn environment(
        &self,
        id: &str,
        run_dir: &Path,
        workspace: &Workspace,
        ledger: Option<&Path>,
    ) -> ChildEnvironment {
        process::adopt_orphans();
        let vars = EngineVars {
            agent_home: self.agent.home.clone(),
            cwd: workspace.root.clone(),
            run_dir: run_dir.to_owned(),
        };
        let keys = self.key_names.clone();
        let inherited = self.layers.child_variables(&self.agent.env_file, &keys);
        ChildEnvironment::new(inherited, keys, id, ledger, vars, self.secrets.clone())
            .with_nesting(self.nesting)
            .with_call_limits(self.bounds.call_limits())
    }

    /// The key variables that the provider `command` gets. Its program comes with the agent, so it gets no key of the
    /// operator but the one that the agent names.
    fn provider_keys(&self) -> Vec<String> {
        let named = self.agent.llm.api_key_env.as_ref();
        self.key_names
            .iter()
            .filter(|name| named == Some(*name) || self.layers.is_of_agent(name))
            .cloned()
            .collect()
    }

    /// The MCP servers of the agent, with the values that they have in this environment.
    pub fn mcp_servers(
        &self,
        environment: &ChildEnvironment,
    ) -> Result<Vec<HolderConfig>, CommandFailure> {
        let inherited = self.layers.child_variables(&self.agent.env_file, &self.key_names);
        let servers = &self.agent.mcp_servers;
        mcp_server_spec::holder_configs(servers, environment.vars(), &self.layers, &inherited)
    }

    /// Connects to the agent's LLM.
    pub fn connect_llm(
        &self,
        environment: &ChildEnvironment,
    ) -> Result<Box<dyn Provider>, CommandFailure> {
        Ok(llm::create_provider(
            &self.agent.llm,
            self.endpoint.as_ref().map(EndpointProvider::clone_unconnected),
            || environment.launch_provider(&self.provider_keys()),
            environment.vars(),
        )?)
    }
}

/// Prints the result of a command, or its failure; returns the exit code.
pub fn print_run_result(
    result: Result<RunResult, CommandFailure>,
    format: OutputFormat,
    run_id: Option<String>,
) -> ExitCode {
    let result = match result {
        Ok(result) => result,
        Err(failure) => {
            let code = failure.report();
            if matches!(format, OutputFormat::Json | OutputFormat::Jsonl) {
                let result = failure.into_run_result(run_id);
                stdio::print_json(&result_output::render_run_result(&result, format));
            }
            return code;
        }
    };
    let text = result_output::render_run_result(&result, format);
    let written = match format {
        OutputFormat::Text | OutputFormat::Raw => stdio::print_result(&text),
        OutputFormat::Json | OutputFormat::Jsonl => stdio::print_json_result(&text),
    };
    if let Err(error) = &written {
        stdio::print_error_line(&format!("error: could not write the result to stdout: {error}"));
    }
    ExitCode::from(match result.status {
        RunStatus::Completed if written.is_ok() => 0,
        RunStatus::Completed | RunStatus::Failed | RunStatus::Running => 1,
        RunStatus::WaitingForInput => 101,
        RunStatus::Interrupted => 130,
    })
}

/// What must never be written: keys, and what is secret in addresses.
fn all_secrets(layers: &EnvLayers, key_names: &[String], agent: &Agent) -> Secrets {
    let secrets = layers.secrets(key_names);
    secrets.add_all(&url_secrets(agent.llm.base_url.as_deref().unwrap_or_default()));
    secrets
}

/// The token that signals set. The first call installs the handlers.
pub fn install_cancel() -> Result<CancelToken, CommandFailure> {
    static CANCEL: OnceLock<CancelToken> = OnceLock::new();
    if let Some(cancel) = CANCEL.get() {
        return Ok(cancel.clone());
    }
    let cancel = CancelToken::from_signals().map_err(|error| {
        CommandFailure::config(format!("could not install the signal handlers: {error}"), None)
    })?;
    Ok(CANCEL.get_or_init(|| cancel).clone())
}

/// The variable that makes the commands of tools with `survive` end with the engine, if it is 0.
pub const SURVIVE_VARIABLE: &str = "DELTA_SURVIVE";

/// The key for the runs that tools in the sandboxes of a run start, if any of them may.
fn derive_inner_seal(sandbox: Option<&RunSandbox>, run: &Run) -> Option<String> {
    sandbox.filter(|sandbox| sandbox.starts_runs())?;
    // Without a key, the inner runs have no seals either.
    Some(operator_state::seal_key().ok()?.derive_for_inner_runs(&run.id, &run.dir))
}
