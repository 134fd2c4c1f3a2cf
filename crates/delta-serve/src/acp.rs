//! `delta acp`: an agent for an editor that speaks the Agent Client Protocol, version 1. A session is a run.

use crate::peers;
use crate::supervisor::RunSupervisor;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use delta_launch::operator::cancel;
use delta_launch::operator::failure::CommandFailure;
use delta_launch::prepare::options::RunOptions;
use delta_launch::prepare::served_output::ServedOutput;
use delta_launch::prepare::{agent_choice, completion_candidates};
use std::path::PathBuf;

mod acp_server;
mod editor_prompt;
mod editor_session;
mod session_update;

use acp_server::AcpServer;

/// Serve an agent to an editor that speaks ACP
///
/// An editor starts this command and speaks the Agent Client Protocol, version 1, on stdin and stdout. A session is a run in
/// the directory that the editor names; questions and approvals go to the editor. When the editor closes stdin, the runs are
/// interrupted, and the editor can load their sessions later.
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
  delta acp                        # the built-in coding agent

Exit codes: 0 the editor has closed stdin or a signal came, 2 usage error, 126 configuration error";

/// Serves one editor.
pub fn acp_command(args: &AcpArgs) -> Result<(), CommandFailure> {
    let chosen = agent_choice::choose_agent(args.agent.as_deref(), None)?;
    let agent = agent_choice::load_agent(&chosen.home, &RunOptions::new(None, None))?;
    let cancel = cancel::install_cancel()?;
    let supervisor = RunSupervisor::new(agent.home.clone(), ServedOutput::Pieces, false)?;
    let mut server = AcpServer::new(agent.name, agent.home, supervisor);
    let served = peers::serve_peer(&mut server, &cancel);
    server.leave(&cancel);
    served
}
