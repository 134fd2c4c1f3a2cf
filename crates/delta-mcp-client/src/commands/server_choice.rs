//! Which server a command of `delta mcp` means: one of an agent, a URL, or a command line.

use clap::Args;
use delta_agent::agent::env_layers::EnvLayers;
use delta_agent::agent::{LoadedMcpServers, load_mcp_servers};
use delta_agent::mcp_server::AgentMcpServer;
use delta_base::api_key_names::api_key_variables;
use delta_base::engine_variables::EngineVars;
use delta_base::shell_quote::shell_quote;
use delta_base::suggest;
use delta_mcp::lock_file::{LockFile, LockedServer};
use delta_mcp::server_spec::{ServerSpec, is_base_variable};
use delta_operator::arguments::{agent_choice, mcp_servers};
use delta_operator::env_files::{self, EnvFileOptions};
use delta_operator::failure::CommandFailure;
use delta_operator::{environment, trust};
use delta_yaml::diagnostic::Diagnostic;
use std::path::{Path, PathBuf};

/// The time limits of a server that no agent names.
const DEFAULT_START_TIMEOUT_MS: u64 = 30_000;
const DEFAULT_TIMEOUT_MS: u64 = 120_000;

/// Where a server is described.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Agent directory [default: the agent of the run around this process, else the current directory]
    #[arg(long, value_name = "DIR")]
    pub agent: Option<PathBuf>,
    /// Command line of a server that no agent names
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A server that can be connected to.
pub struct ChosenServer {
    pub spec: ServerSpec,
    /// What is locked of it, if an agent names it.
    pub locked: Option<LockedServer>,
    /// The server in agent.yaml.
    pub named: Option<AgentMcpServer>,
}

/// The servers of an agent, and what their values come from.
pub struct AgentServers {
    pub home: PathBuf,
    pub servers: Vec<AgentMcpServer>,
    pub lock: LockFile,
    /// Why the lock file cannot be used; it counts as empty then.
    pub lock_problem: Option<Diagnostic>,
    layers: EnvLayers,
    vars: EngineVars,
}

impl AgentServers {
    /// Reads the servers of the agent in `named`, or of the default one.
    ///
    /// # Errors
    /// The agent or its lock file cannot be used.
    pub fn load(named: Option<&Path>) -> Result<Self, CommandFailure> {
        let mut agent = Self::load_for_lock(named)?;
        agent.lock_problem.take().map_or(Ok(agent), |problem| Err(problem.into()))
    }

    /// The same for `delta mcp lock`, which replaces a lock file that cannot be used.
    ///
    /// # Errors
    /// The agent cannot be used.
    pub fn load_for_lock(named: Option<&Path>) -> Result<Self, CommandFailure> {
        let home = match (named, environment::path_variable("DELTA_AGENT_HOME")) {
            (Some(path), _) => agent_choice::find_existing_agent(path)?,
            (None, Some(home)) => home,
            (None, None) if agent_choice::is_agent_dir(Path::new(".")) => PathBuf::from("."),
            (None, None) => {
                let hint = "name the agent of the server: `--agent DIR`; `delta mcp call` and `delta mcp login` also \
                            take the URL of a server, such as https://mcp.example.com/mcp";
                let message = "there is no agent.yaml in the current directory";
                return Err(CommandFailure::config(message, hint));
            }
        };
        let home = home.canonicalize().unwrap_or(home);
        let import_path = trust::read_import_path();
        let LoadedMcpServers { servers, lock, lock_problem } =
            load_mcp_servers(&home, &import_path)?;
        let current = std::env::current_dir().unwrap_or_default();
        let trust = trust::read_operator_trust(None);
        let layers = env_files::read_env_layers(None, &home, &EnvFileOptions::default(), &trust)?;
        let run_dir = environment::path_variable("RUN_DIR").unwrap_or_default();
        let vars = EngineVars { agent_home: home.clone(), cwd: current, run_dir };
        Ok(Self { home, servers, lock, lock_problem, layers, vars })
    }

    /// The server called `name`.
    pub fn find(&self, name: &str) -> Result<&AgentMcpServer, CommandFailure> {
        self.servers.iter().find(|server| server.name == name).ok_or_else(|| {
            let names = self.servers.iter().map(|server| server.name.as_str());
            let hint = if self.servers.is_empty() {
                "name its servers under `mcp:` in agent.yaml, or give a URL or `-- COMMAND`"
                    .to_owned()
            } else {
                suggest::did_you_mean(name, names)
            };
            let home = self.home.display();
            CommandFailure::config(format!("the agent in {home} has no MCP server `{name}`"), hint)
        })
    }

    /// The server with its values in place.
    pub fn connectable(&self, server: &AgentMcpServer) -> Result<ServerSpec, CommandFailure> {
        let token: Vec<&str> = server.key_variables().collect();
        let keys = api_key_variables(environment::variables(), &token);
        let inherited = self.layers.child_variables(&[], &keys);
        mcp_servers::server_spec(server, &self.vars, &self.layers, &inherited)
    }
}

impl ServerArgs {
    /// The server that the arguments mean. `name` is a server of an agent or a URL.
    pub fn choose(&self, name: Option<&str>) -> Result<ChosenServer, CommandFailure> {
        let unnamed = |command: Vec<String>, url: Option<String>| ChosenServer {
            spec: ServerSpec {
                name: url.clone().or_else(|| command.first().cloned()).unwrap_or_default(),
                command,
                url,
                env: base_variables(),
                headers: Default::default(),
                token: None,
                oauth: None,
                proxy: None,
                cwd: std::env::current_dir().unwrap_or_default(),
                start_timeout_ms: DEFAULT_START_TIMEOUT_MS,
                timeout_ms: DEFAULT_TIMEOUT_MS,
                sandbox: None,
            },
            locked: None,
            named: None,
        };
        match name {
            Some(url) if url.contains("://") => {
                let mut server = unnamed(Vec::new(), Some(url.to_owned()));
                let home = std::env::current_dir().unwrap_or_default();
                let trust = trust::read_operator_trust(None);
                let options = EnvFileOptions::default();
                let layers = env_files::read_env_layers(None, &home, &options, &trust)?;
                server.spec.proxy = mcp_servers::url_proxy(url, &layers);
                let command = format!("delta mcp login {}", shell_quote(url));
                // Without a place for a login, there is none.
                server.spec.oauth = mcp_servers::oauth_settings(url, None, command, &layers).ok();
                Ok(server)
            }
            None if !self.command.is_empty() => Ok(unnamed(self.command.clone(), None)),
            Some(name) if self.command.is_empty() => {
                let agent = AgentServers::load(self.agent.as_deref())?;
                let server = agent.find(name)?;
                let spec = agent.connectable(server)?;
                let locked = server.locked.clone();
                Ok(ChosenServer { spec, locked, named: Some(server.clone()) })
            }
            Some(_) => Err(CommandFailure::usage(
                "a server of an agent and `-- COMMAND` exclude each other",
                "leave out one of them",
            )),
            None => Err(CommandFailure::usage(
                "no server is named",
                "name a server of the agent, a URL, or `-- COMMAND ARG...`",
            )),
        }
    }
}

/// The variables that every server gets.
fn base_variables() -> std::collections::BTreeMap<String, String> {
    let variables = environment::variables().iter();
    let variables = variables.filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
    let base = variables.filter(|(name, _)| is_base_variable(name));
    base.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
