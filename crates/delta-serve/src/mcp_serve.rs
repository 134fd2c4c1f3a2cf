//! `delta mcp serve`: an agent as an MCP server. Each call starts or continues a run.

use crate::peers;
use crate::supervisor::RunSupervisor;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_base::terminal;
use delta_operator::arguments::options::RunOptions;
use delta_operator::arguments::served_output::ServedOutput;
use delta_operator::arguments::{agent_choice, completion_candidates};
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_run::workspace::Workspace;
use std::path::PathBuf;
use std::time::Duration;

mod client_request;
mod mcp_server;
mod run_reply;
mod served_tool;
mod task_method;
mod waiting_call;

use mcp_server::McpServer;

/// Serve an agent as an MCP server on stdin and stdout
///
/// An MCP client starts this command and gets the tools NAME, NAME_wait, NAME_answer and NAME_stop. Each call of NAME starts or
/// continues a run. When the client closes stdin, runs are interrupted, unless `--keep-going` is given; a later server
/// continues them.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ServeArgs {
    /// Agent directory, or the name of an installed agent [default: as for `delta run`]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Name of the tool [default: `name` in agent.yaml]
    #[arg(long, value_name = "NAME", value_parser = parse_tool_name)]
    name: Option<String>,
    /// Answer a call after N milliseconds, even if the run is still working
    #[arg(long, value_name = "N", default_value_t = 45_000, value_parser = clap::value_parser!(u64).range(0..=served_tool::MAX_WAIT_MS))]
    wait_ms: u64,
    /// Work on at most N runs at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parse_number_in(1..=1000_u32))]
    max_runs: u32,
    /// Keep working on runs when the client has gone
    #[arg(long)]
    keep_going: bool,
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add reviewer -- delta mcp serve --agent ./reviewer
  codex mcp add reviewer -- delta mcp serve --agent ./reviewer -w ./work";

/// What the tools are called and how they behave.
struct ServeSettings {
    /// The name of the tool that runs the agent.
    name: String,
    /// What it does.
    description: String,
    /// Absolute, symlinks resolved.
    work_dir: PathBuf,
    wait: Duration,
    max_runs: usize,
}

/// Serves one client.
pub fn serve_command(args: &ServeArgs) -> Result<(), CommandFailure> {
    let options = RunOptions::new(None, None);
    let chosen = agent_choice::choose_agent(args.agent.as_deref(), None)?;
    let agent = agent_choice::load_agent(&chosen.home, &options)?;
    let cancel = cancel::install_cancel()?;
    let settings = ServeSettings {
        name: args.name.clone().unwrap_or_else(|| tool_name_of(&agent)),
        description: describe_agent(&agent),
        work_dir: Workspace::open(&args.work_dir)?.root,
        wait: Duration::from_millis(args.wait_ms),
        max_runs: usize::try_from(args.max_runs).unwrap_or(usize::MAX),
    };
    if terminal::is_stdin_terminal() {
        stdio::print_error_line(&format!(
            "serving {}; an MCP client starts this command; Ctrl-C ends it",
            settings.name
        ));
    }
    let supervisor = RunSupervisor::new(agent.home, ServedOutput::Result, args.keep_going);
    let mut server = McpServer::new(settings, supervisor);
    let served = peers::serve_peer(&mut server, &cancel);
    server.leave(&cancel);
    served
}

/// The name of the agent with the characters that a tool can have.
fn tool_name_of(agent: &Agent) -> String {
    let plain = agent.name.chars().map(|c| if is_tool_character(c) { c } else { '_' });
    plain.take(served_tool::MAX_NAME_CHARS).collect()
}

fn describe_agent(agent: &Agent) -> String {
    match &agent.description {
        Some(description) => description.clone(),
        None => format!("Runs the agent {} on a task and returns its result.", agent.name),
    }
}

fn parse_tool_name(text: &str) -> Result<String, String> {
    if text.chars().all(is_tool_character)
        && (1..=served_tool::MAX_NAME_CHARS).contains(&text.len())
    {
        return Ok(text.to_owned());
    }
    Err(format!("expected 1 to {} letters, digits, `_` or `-`", served_tool::MAX_NAME_CHARS))
}

fn is_tool_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}
