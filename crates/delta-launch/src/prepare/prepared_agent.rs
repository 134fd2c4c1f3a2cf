//! An agent that is ready for a run: loaded, with its variables, keys, endpoint and limits. Creates and changes nothing.

use crate::prepare::endpoint::{
    EndpointSetup, PreparedEndpoint, check_tier, choose_tier, with_priced_cache,
};
use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::EnvLayers;
use delta_agent::child_environment::ChildEnvironment;
use delta_agent::run_sandbox::{OperatorPolicy, RunSandbox};
use delta_agent::trust_store::OperatorTrust;
use delta_base::durable::FileError;
use delta_base::engine_variables::EngineVars;
use delta_base::redact::Secrets;
use delta_base::url_secrets::url_secrets;
use delta_endpoint::answer_store::AnswerStore;
use delta_endpoint::endpoint_provider::EndpointProvider;
use delta_llm::llm::endpoint::ADDRESS_VARIABLES;
use delta_llm::llm::{self, LlmConfig, Provider};
use delta_mcp::holder_config::HolderConfig;
use delta_operator::arguments::options::RunOptions;
use delta_operator::arguments::project_skills::offer_project_skills;
use delta_operator::arguments::run_sandbox::{self, changeable_agent_note, hidden_entry_notes};
use delta_operator::arguments::{budget, mcp_servers};
use delta_operator::env_files::read_env_layers;
use delta_operator::failure::CommandFailure;
use delta_operator::prices::RunPrices;
use delta_operator::trust::read_operator_trust;
use delta_operator::{config, environment, prices};
use delta_process as process;
use delta_run::budget::ledger::Ledger;
use delta_run::event::{AgentCopy, EngineStart};
use delta_run::limits::Limits;
use delta_run::limits::bounds::{Nesting, RunBounds};
use delta_run::record::agent_copy;
use delta_run::sweep::answer_scope::{ANSWERS_VARIABLE, AnswerScope};
use delta_run::workspace::Workspace;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

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
    layers.notes.extend(hidden_entry_notes(agent, workspace, policy));
    Ok(layers)
}

/// A loaded agent with its endpoint and its secrets.
pub struct PreparedAgent {
    /// The agent, loaded and checked.
    pub agent: Agent,
    /// What must never be written to a file.
    pub secrets: Secrets,
    /// The variables that contain the secrets.
    key_names: Vec<String>,
    /// The ledgers of the runs that started this process, innermost first.
    pub enclosing_ledgers: Vec<Ledger>,
    /// The tools that ask before every call, by the operator's configuration.
    pub asking_tools: Vec<String>,
    /// What the operator and the machine say about sandboxes.
    sandbox_policy: OperatorPolicy,
    /// The limits of this run alone.
    pub bounds: RunBounds,
    nesting: Nesting,
    /// Created early, so that a wrong address or proxy is reported before anything is written.
    endpoints: Vec<EndpointProvider>,
    /// The address of each model's endpoint; empty without one.
    pub addresses: Vec<String>,
    /// The prices of the run that started this process.
    pub parent_prices: RunPrices,
    layers: EnvLayers,
    /// The workspace as the user named it: symlinks on the way to it may hide its sweep.
    pub named_workspace: Option<PathBuf>,
}

/// Where the prices are that the limits of a run need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PricePolicy {
    /// In the agent, the parent run or a list.
    Required,
    /// There, or in the run; opening the budget checks it.
    Recorded,
    /// The LLM is not called.
    Free,
}

impl PricePolicy {
    /// Looks up the prices of the agent's models, asked at `addresses`, and checks that `limits` can be enforced.
    fn check(
        self,
        agent: &mut Agent,
        addresses: &[String],
        parent: &RunPrices,
        limits: Limits,
        enclosing: &[Ledger],
    ) -> Result<(), CommandFailure> {
        let mut missing = Vec::new();
        agent.llm.try_for_each_model(|number, llm| {
            missing.push(prices::apply_prices(llm, &addresses[number], parent)?);
            Ok::<_, CommandFailure>(())
        })?;
        match self {
            Self::Required => budget::check_limits(agent, limits, enclosing, &missing),
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
        agent.ask_human &= !options.no_ask_human;
        let is_allowed = options.project_skills;
        options.print_notes(&offer_project_skills(&mut agent, workspace, is_allowed)?);
        options.approvals.check(&agent)?;
        let sandbox_policy = options.sandbox.policy()?;
        let calls_llm = prices != PricePolicy::Free;
        let tier = options.tier.unwrap_or_default();
        check_tier(&agent.llm, tier)?;
        let bounds = options.limits.bounds().or(agent.bounds);
        let limits = options.limits.limits().or(agent.limits);
        let nesting = budget::nesting(&bounds)?;
        let trust = read_operator_trust(workspace);
        let mut layers = read_agent_layers(&agent, workspace, options, &sandbox_policy, &trust)?;
        // Before an error: a file that is not trusted may have the missing key.
        options.print_notes(&layers.notes);
        let key_names = environment::key_names_of(Some(&agent));
        environment::overwrite_keys(&key_names);
        let mut addresses = Vec::new();
        let mut parent_prices = RunPrices::default();
        let mut endpoint_variables: Vec<&str> = Vec::new();
        let mut prepared = Vec::new();
        if calls_llm {
            for llm in agent.llm.models() {
                let setup = EndpointSetup {
                    agent: &agent,
                    llm,
                    key_names: &key_names,
                    trust: &trust,
                    max_iterations: options.max_iterations,
                    tier,
                };
                let endpoint = setup.prepare(&mut layers)?;
                let address = endpoint.as_ref().map_or("", PreparedEndpoint::base_url);
                addresses.push(address.to_owned());
                prepared.extend(endpoint);
            }
            parent_prices = RunPrices::of_parent()?;
            prices.check(&mut agent, &addresses, &parent_prices, limits, &enclosing_ledgers)?;
        }
        let secrets = all_secrets(&layers, &key_names, &agent);
        let mut notes: Vec<String> = prepared.iter().filter_map(|it| it.note.clone()).collect();
        // Models of the same endpoint have the same note.
        notes.dedup();
        options.print_notes(&notes);
        let answers = read_answer_scope(&secrets)?;
        // Runs that share answers send equal requests.
        let cache_job = options.cache_job.filter(|_| answers.is_none());
        let endpoints: Vec<_> = prepared
            .into_iter()
            .zip(agent.llm.models())
            .map(|(it, llm)| {
                with_priced_cache(it.into_provider(&secrets), llm)
                    .with_cache_job(cache_job)
                    .with_tier(choose_tier(llm, tier))
                    .with_answers(answers.clone())
            })
            .collect();
        if !endpoints.is_empty() {
            endpoint_variables.extend(agent.llm.models().flat_map(LlmConfig::key_variables));
            endpoint_variables.extend(ADDRESS_VARIABLES);
        }
        let vars = EngineVars {
            agent_home: agent.home.clone(),
            cwd: workspace.unwrap_or(Path::new("")).to_owned(),
            run_dir: PathBuf::new(),
        };
        let inherited = layers.child_variables(&agent.env_file, &key_names);
        // Created early, so that a missing token is reported before anything is written.
        for config in mcp_servers::holder_configs(&agent.mcp_servers, &vars, &layers, &inherited)? {
            secrets.add_all(&mcp_servers::login_secrets(&config.spec));
        }
        let has_workspace = workspace.is_some_and(Path::is_dir);
        options.print_notes(&agent.context.unmatched_patterns(&vars, has_workspace));
        options.print_notes(&layers.describe_origins(&endpoint_variables, options.verbose));
        let asking_tools = if calls_llm { config::approve()? } else { Vec::new() };
        Ok(Self {
            agent,
            secrets,
            key_names,
            enclosing_ledgers,
            asking_tools,
            sandbox_policy,
            bounds,
            nesting,
            endpoints,
            addresses,
            parent_prices,
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
        let key_files = self.layers.key_files(&self.key_names);
        run_sandbox::prepare_run_sandbox(&self.agent, vars, self.sandbox_policy.clone(), key_files)
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
        mcp_servers::holder_configs(servers, environment.vars(), &self.layers, &inherited)
    }

    /// Connects to the agent's LLM.
    pub fn connect_llm(
        &self,
        environment: &ChildEnvironment,
    ) -> Result<Box<dyn Provider>, CommandFailure> {
        Ok(llm::create_provider(
            &self.agent.llm,
            self.endpoints.iter().map(|it| Box::new(it.clone_unconnected()) as _).collect(),
            || environment.launch_provider(&self.provider_keys()),
            environment.vars(),
        )?)
    }
}

/// The store of answers that a sweep has named for this run.
///
/// # Errors
/// The variable is not as delta sets it.
fn read_answer_scope(secrets: &Secrets) -> Result<Option<Rc<AnswerStore>>, CommandFailure> {
    let Some(text) = environment::variable(ANSWERS_VARIABLE) else { return Ok(None) };
    let AnswerScope { dir, input, repeat } = serde_json::from_str(&text).map_err(|error| {
        let message = format!("{ANSWERS_VARIABLE} is not as delta sets it: {error}");
        CommandFailure::config(message, "remove it; `answers: true` in sweep.yaml sets it")
    })?;
    Ok(Some(Rc::new(AnswerStore::new(dir, input, repeat, secrets.clone()))))
}

/// What must never be written: keys, and what is secret in addresses.
fn all_secrets(layers: &EnvLayers, key_names: &[String], agent: &Agent) -> Secrets {
    let secrets = layers.secrets(key_names);
    agent.llm.addresses().for_each(|address| secrets.add_all(&url_secrets(address)));
    secrets
}
