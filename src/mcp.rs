//! `delta mcp ...`: the commands for servers of the Model Context Protocol, and an agent as a server.

use clap::Subcommand;
use delta_mcp_client::commands::{ClientCommand, client_command};
use delta_serve::mcp_serve::{self, ServeArgs};
use std::process::ExitCode;

/// Use the tools of MCP servers, and serve an agent as one
#[derive(Debug, Subcommand)]
#[command(about = "Use the tools of MCP servers, and serve an agent as one", defer = true)]
pub enum McpCommand {
    #[command(flatten)]
    Client(ClientCommand),
    /// Serve an agent as an MCP server on stdin and stdout
    Serve(Box<ServeArgs>),
}

/// Runs a command of `delta mcp`; returns the exit code.
pub fn mcp_command(command: &McpCommand) -> ExitCode {
    match command {
        McpCommand::Client(command) => client_command(command),
        McpCommand::Serve(args) => crate::finish(mcp_serve::serve_command(args)),
    }
}
