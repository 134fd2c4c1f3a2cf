//! `delta acp`: an agent for an editor that speaks the Agent Client Protocol, version 1. A session is a run.

use crate::peers;
use crate::supervisor::RunSupervisor;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_operator::arguments::options::RunOptions;
use delta_operator::arguments::served_output::ServedOutput;
use delta_operator::arguments::{agent_choice, completion_candidates};
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use std::path::PathBuf;

mod acp_server;
mod editor_prompt;
mod editor_session;
mod session_update;

use acp_server::AcpServer;

/// Serve an agent to an editor that speaks ACP
///
/// Speaks the Agent Client Protocol, version 1, on stdin and stdout. A session is a run in the directory that the editor names.
/// Runs are interrupted when the editor closes stdin.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct AcpArgs {
    /// Agent directory, or the name of an installed agent [default: as for `delta run`]
    #[arg(long, value_name = "DIR", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    agent: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  delta acp --agent ./my-agent     # the command for the settings of the editor
  delta acp                        # the built-in coding agent";

/// Serves one editor.
pub fn acp_command(args: &AcpArgs) -> Result<(), CommandFailure> {
    let chosen = agent_choice::choose_agent(args.agent.as_deref(), None)?;
    let agent = agent_choice::load_agent(&chosen.home, &RunOptions::new(None, None))?;
    let cancel = cancel::install_cancel()?;
    let supervisor = RunSupervisor::new(agent.home.clone(), ServedOutput::Pieces, false);
    let mut server = AcpServer::new(agent.name, agent.home, supervisor);
    let served = peers::serve_peer(&mut server, &cancel);
    server.leave(&cancel);
    served
}
