//! `delta mcp ...`: servers of the Model Context Protocol, their tools, and the definitions that an agent has locked.

use crate::client::{McpClient, RequestWait};
use crate::holder::hold_server;
use clap::{Args, Subcommand};
use delta_base::signal::CancelToken;
use delta_base::terminal_text::{escape_terminal_controls, truncate_to_line};
use delta_mcp::failure::McpFailure;
use delta_mcp::holder_config::{HOLDER_DIR, READY_LINE};
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, environment};
use delta_process::RunProcesses;
use delta_program::stdio;
use serde_json::{Value as Json, json};
use server_choice::{AgentServers, ChosenServer, ServerArgs};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

mod call;
mod lock;
mod login;
mod server_choice;

pub use call::CallArgs;
pub use lock::LockArgs;
pub use login::LoginArgs;

/// Use the tools of MCP servers
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub enum ClientCommand {
    /// List the tools that a server offers
    List(ListArgs),
    /// Call a tool of a server once, and print its result
    Call(CallArgs),
    /// Log in at a server, for the agents and commands that use it
    Login(LoginArgs),
    /// Compare what the servers of an agent offer with mcp.lock.json, and write it
    Lock(LockArgs),
    /// Hold the connection to a server for a run
    #[command(hide = true)]
    Hold(HoldArgs),
}

/// List the tools that a server offers
///
/// Without SERVER, lists the servers of the agent and the tools that the LLM may call, and starts nothing. Arguments in
/// brackets may be left out.
///
/// Exit codes: 0, 2 usage error, 3 error of the protocol, 4 the server does not start or answer, 7 it needs a login,
/// 126 configuration error.
#[derive(Debug, Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub struct ListArgs {
    /// Server in `mcp:` of the agent, or the URL of a server [default: all of the agent]
    #[arg(value_name = "SERVER")]
    name: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Print the complete definitions as JSON
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  delta mcp list --agent my-agent
  delta mcp list -- npx -y @modelcontextprotocol/server-everything@2026.8.31
  delta mcp list https://mcp.example.com/mcp
  delta mcp list --agent my-agent files --json | jq '.tools[].name'";

/// Hold the connection to a server for a run
///
/// The engine starts this with the server's settings on stdin, whose end is the end of this process.
#[derive(Debug, Args)]
pub struct HoldArgs {
    /// Name of the server
    server: String,
}

/// Runs a command for servers; returns the exit code.
pub fn client_command(command: &ClientCommand) -> ExitCode {
    let done = match command {
        ClientCommand::List(args) => list_tools(args),
        ClientCommand::Call(args) => call::call_tool(args),
        ClientCommand::Login(args) => login::log_in(args),
        ClientCommand::Lock(args) => lock::lock_servers(args),
        ClientCommand::Hold(args) => hold(args),
    };
    done.unwrap_or_else(|error| error.report())
}

/// Why a command has no result.
pub enum McpCommandError {
    /// A failure with a message and an exit code.
    Failure(CommandFailure),
    /// The server did not do what it was asked.
    Server(McpFailure),
}

impl From<CommandFailure> for McpCommandError {
    fn from(failure: CommandFailure) -> Self {
        Self::Failure(failure)
    }
}

impl From<McpFailure> for McpCommandError {
    fn from(failure: McpFailure) -> Self {
        Self::Server(failure)
    }
}

impl McpCommandError {
    fn report(&self) -> ExitCode {
        match self {
            Self::Failure(failure) => failure.report(),
            Self::Server(failure) => {
                stdio::print_error_line(&format!("error: {failure}"));
                // In a run, the LLM reads this: what is locked is for the operator to decide.
                let is_in_run = environment::variable("DELTA_CALL_ID").is_some();
                if let McpFailure::Changed(_) = failure
                    && !is_in_run
                {
                    stdio::print_error_line(
                        "help: see what changed with `delta mcp lock --agent DIR`, and accept it with `--write`",
                    );
                }
                ExitCode::from(failure.exit_code())
            }
        }
    }
}

/// What servers leave running that this command starts, also outside of their sessions.
struct ServerProcesses(RunProcesses);

impl ServerProcesses {
    /// Watches for it. Call this before the first server is started.
    fn watch() -> Self {
        delta_process::adopt_orphans();
        Self(RunProcesses::new("", Path::new("")))
    }

    fn end(&self, cancel: &CancelToken) {
        self.0.end_all(&cancel.for_cleanup());
    }
}

/// Connects to a server whose era is not known, and lists its tools.
fn connect_and_list(
    server: &ChosenServer,
    cancel: &CancelToken,
) -> Result<(McpClient, Vec<Json>), McpFailure> {
    let deadline = Instant::now() + server.spec.start_timeout();
    let mut context = RequestWait { deadline, cancel, abandon_fd: None, on_notice: &mut |_| {} };
    let mut client = McpClient::connect(&server.spec, None, &McpClient::start, &mut context)?;
    context.deadline = Instant::now() + server.spec.start_timeout();
    match client.list_tools(&mut context) {
        Ok(tools) => Ok((client, tools)),
        Err(failure) => {
            client.close(cancel);
            Err(failure)
        }
    }
}

fn list_tools(args: &ListArgs) -> Result<ExitCode, McpCommandError> {
    if args.name.is_none() && args.server.command.is_empty() {
        return list_locked_tools(args);
    }
    let server = args.server.choose(args.name.as_deref())?;
    let cancel = cancel::install_cancel()?;
    let processes = ServerProcesses::watch();
    let listed = connect_and_list(&server, &cancel).map(|(client, tools)| {
        let identity = client.identity().clone();
        client.close(&cancel);
        (identity, tools)
    });
    processes.end(&cancel);
    let (identity, tools) = listed?;
    if args.json {
        let listed = json!({
            "era": identity.era.name(),
            "protocol": identity.protocol,
            "server": identity.server,
            "instructions": identity.instructions,
            "tools": tools,
        });
        stdio::print_json(&format!("{listed:#}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let lines = tools.iter().map(|tool| {
        let member = |key: &str| tool.get(key).and_then(Json::as_str).unwrap_or_default();
        tool_line(member("name"), tool.get("inputSchema"), member("description"))
    });
    stdio::print_text(&lines.collect::<String>());
    Ok(ExitCode::SUCCESS)
}

/// Lists the servers of an agent and what is locked of them.
fn list_locked_tools(args: &ListArgs) -> Result<ExitCode, McpCommandError> {
    let agent = AgentServers::load(args.server.agent.as_deref())?;
    if agent.servers.is_empty() {
        let hint = "name a URL or `-- COMMAND ARG...`, or write `mcp:` in agent.yaml";
        let message = format!("the agent in {} has no MCP servers", agent.home.display());
        return Err(CommandFailure::config(message, hint).into());
    }
    if args.json {
        let servers = agent.servers.iter().map(|server| {
            let tools =
                server.offered_tools().map(|(name, tool)| json!({"name": name, "tool": tool.name}));
            let listed = json!({
                "command": server.url.is_none().then_some(&server.command),
                "url": server.url,
                "is_locked": server.locked.is_some(),
                "tools": tools.collect::<Vec<Json>>(),
            });
            (server.name.clone(), listed)
        });
        let listed = json!({"servers": servers.collect::<serde_json::Map<_, _>>()});
        stdio::print_json(&format!("{listed:#}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for server in &agent.servers {
        let source = server.url.clone().unwrap_or_else(|| server.command.join(" "));
        let state = if server.locked.is_some() { "" } else { " (not locked)" };
        text.push_str(&format!("{}{state}: {}\n", server.name, escape_terminal_controls(&source)));
        for (name, tool) in server.offered_tools() {
            let schema = tool.definition.get("inputSchema");
            text.push_str(&format!("  {}", tool_line(&name, schema, tool.description())));
        }
    }
    stdio::print_text(&text);
    Ok(ExitCode::SUCCESS)
}

/// A line with a tool, its arguments, and the beginning of its description.
fn tool_line(name: &str, schema: Option<&Json>, description: &str) -> String {
    let call = escape_terminal_controls(&format!("{name}({})", argument_names(schema)));
    let description = truncate_to_line(&escape_terminal_controls(description), 100);
    let line = format!("{}  {description}", truncate_to_line(&call, 200));
    format!("{}\n", line.trim_end())
}

/// The names of the arguments that `schema` describes, in brackets if the argument may be left out.
fn argument_names(schema: Option<&Json>) -> String {
    let member = |key: &str| schema.and_then(|schema| schema.get(key));
    let required = member("required").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let properties = member("properties").and_then(Json::as_object);
    let names = properties.into_iter().flat_map(serde_json::Map::keys).map(|name| {
        if required.iter().any(|required| required == name) {
            name.clone()
        } else {
            format!("[{name}]")
        }
    });
    names.collect::<Vec<String>>().join(", ")
}

fn hold(args: &HoldArgs) -> Result<ExitCode, McpCommandError> {
    let Some(run_dir) = environment::path_variable("RUN_DIR") else {
        let hint = "the engine starts it in a run";
        return Err(CommandFailure::config("`delta mcp hold` runs inside a run only", hint).into());
    };
    let cancel = cancel::install_cancel()?;
    // A descriptor of its own, without the buffer of the standard library, can be polled.
    let outcome = std::io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        hold_server(File::from(input), &run_dir.join(HOLDER_DIR), &cancel, || {
            stdio::print_text(READY_LINE);
        })
    });
    outcome.map_err(|error| {
        let message = format!("could not hold the MCP server `{}`: {error}", args.server);
        CommandFailure::config(message, None)
    })?;
    Ok(ExitCode::SUCCESS)
}
