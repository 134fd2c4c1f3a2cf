//! The environment of this process, taken once at its start.
//!
//! The kernel shows the block in which a process received its variables as /proc/PID/environ, for as long as the process
//! lives. delta takes a copy, and overwrites the keys in the block at once.

use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::EnvMap;
use delta_agent::child_environment::HOOK_NAME_VARIABLE;
use delta_agent::mcp_server::AgentMcpServer;
use delta_base::api_key_names::{KEY_NAMES_VARIABLE, api_key_variables, withheld_variables};
use delta_base::terminal;
use delta_llm::llm::LlmConfig;
use delta_program::environment_block::EnvironmentBlock;
use delta_program::hide_memory;
use delta_run::event::ParentRun;
use delta_run::run_tree;
use nix::unistd::{Uid, User};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The variable in which one program of delta tells another that it starts which build it is.
pub const STARTER_VARIABLE: &str = "DELTA_STARTED_BY";

/// The variable that makes the commands of tools with `survive` end with the engine, if it is 0.
pub const SURVIVE_VARIABLE: &str = "DELTA_SURVIVE";

static VARIABLES: OnceLock<(EnvMap, Option<OsString>)> = OnceLock::new();
static BLOCK: OnceLock<Option<EnvironmentBlock>> = OnceLock::new();

/// Hides the memory of this process, and takes its variables. Call this first.
pub fn take_environment() {
    // Afterwards an ordinary user can no longer open the memory, not even of its own process.
    let block = EnvironmentBlock::open().ok();
    hide_memory();
    let block = BLOCK.get_or_init(|| block);
    if let Some(block) = block {
        let _ = block.overwrite_values(&api_key_variables(variables(), &[]));
    }
}

/// The variables with which this process was started, keys included.
pub fn variables() -> &'static EnvMap {
    &started_with().0
}

/// The build of the program of delta that started this one for a part of its command line or of its work.
pub fn starter_build() -> Option<&'static OsStr> {
    started_with().1.as_deref()
}

/// The variables, without what is meant for this process alone: its children have other starters.
fn started_with() -> &'static (EnvMap, Option<OsString>) {
    VARIABLES.get_or_init(|| {
        let mut variables: EnvMap = std::env::vars_os().collect();
        let starter = variables.remove(OsStr::new(STARTER_VARIABLE));
        (variables, starter)
    })
}

/// The variables for a program outside of a run, such as a grader or the viewer of a page: without the keys of any service,
/// without those in `key_names`, and without what says where keys are.
pub fn variables_without_keys(key_names: &[String]) -> EnvMap {
    let configured: Vec<&str> = key_names.iter().map(String::as_str).collect();
    let mut rest = variables().clone();
    withheld_variables(variables(), &configured)
        .iter()
        .for_each(|name| drop(rest.remove(OsStr::new(name))));
    rest.remove(OsStr::new(KEY_NAMES_VARIABLE));
    rest
}

/// The variables with keys: of every vendor, for the agent's LLM, for its MCP servers, and what the environment lists.
pub fn key_names_of(agent: Option<&Agent>) -> Vec<String> {
    let servers = agent.map(|agent| agent.mcp_servers.as_slice()).unwrap_or_default();
    let models = agent.into_iter().flat_map(|agent| agent.llm.models());
    let mut names: Vec<&str> = models.flat_map(LlmConfig::key_variables).collect();
    names.extend(servers.iter().flat_map(AgentMcpServer::key_variables));
    api_key_variables(variables(), &names)
}

/// A variable that is set.
pub fn os_variable(name: &str) -> Option<OsString> {
    variables().get(OsStr::new(name)).cloned()
}

/// A variable that is set, not empty, and UTF-8.
pub fn variable(name: &str) -> Option<String> {
    let value = variables().get(OsStr::new(name))?.to_str()?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// The value of a variable, if it is an absolute path.
pub fn path_variable(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(variables().get(OsStr::new(name))?);
    path.is_absolute().then_some(path)
}

/// Overwrites the keys of an agent's LLM; this process keeps its copy.
pub fn overwrite_keys(names: &[String]) {
    if let Some(block) = BLOCK.get().and_then(Option::as_ref) {
        let _ = block.overwrite_values(names);
    }
}

/// The home directories of the user that exist, without symlinks: the one in HOME, and the one of the account, in which
/// programs such as `ssh` look for keys whatever HOME is.
pub fn home_directories() -> Vec<PathBuf> {
    let own_entry = User::from_uid(Uid::effective()).ok().flatten();
    let named = path_variable("HOME").into_iter().chain(own_entry.map(|user| user.dir));
    let mut homes: Vec<PathBuf> =
        named.filter(|home| home.is_dir()).filter_map(|home| home.canonicalize().ok()).collect();
    homes.dedup();
    homes
}

/// The home directory, or the root directory: a place outside of any workspace.
pub fn home_or_root() -> PathBuf {
    path_variable("HOME").filter(|home| home.is_dir()).unwrap_or_else(|| PathBuf::from("/"))
}

/// A variable as it is; empty if it is not set.
pub fn raw_variable(name: &str) -> &'static OsStr {
    variables().get(OsStr::new(name)).map_or(OsStr::new(""), |value| value)
}

/// The run that started this process as a tool, hook or generator.
pub fn parent_run() -> Option<ParentRun> {
    let run_dir = variable("RUN_DIR")?;
    // In a hook the variable has the id of the hook, not of a call.
    let is_hook = variable(HOOK_NAME_VARIABLE).is_some();
    let call_id = variable("DELTA_CALL_ID").filter(|_| !is_hook);
    run_tree::verify_parent_run(&variable("DELTA_RUN_ID")?, Path::new(&run_dir), call_id)
}

/// Whether the user expects questions on stdin, a terminal: not in CI, and not from a job in the background of a shell.
pub fn can_prompt_here() -> bool {
    let is_in_ci = variable("CI").is_some_and(|value| !value.is_empty());
    !is_in_ci && terminal::can_prompt() && terminal::is_in_foreground()
}

/// Whether stderr is a terminal that can move its cursor.
pub fn can_move_cursor() -> bool {
    terminal::is_stderr_terminal() && !has_dumb_terminal()
}

/// Whether stdout is one.
pub fn can_move_stdout_cursor() -> bool {
    terminal::is_stdout_terminal() && !has_dumb_terminal()
}

fn has_dumb_terminal() -> bool {
    variable("TERM").is_none_or(|term| term == "dumb")
}

/// Whether lines on stdout can follow a line on stderr that is repainted: both are a terminal that can move its cursor.
pub fn can_repaint() -> bool {
    terminal::is_stdout_terminal() && can_move_cursor()
}
