//! `delta mcp lock`: what the servers of an agent offer now, compared with what was locked.

use super::server_choice::{AgentServers, ChosenServer};
use super::{McpCommandError, ServerProcesses, connect_and_list};
use clap::Args;
use delta_agent::mcp_server::AgentMcpServer;
use delta_base::durable;
use delta_base::signal::CancelToken;
use delta_base::text::hidden_text::has_hidden_text;
use delta_base::text::text_diff::LineDiff;
use delta_mcp::failure::McpFailure;
use delta_mcp::lock_file::{LOCK_FILE, LockFile, LockedServer, LockedTool};
use delta_mcp::oauth::saved_login::read_login;
use delta_mcp::protocol_era::ProtocolEra;
use delta_mcp::server_spec::ServerSpec;
use delta_operator::cancel;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_yaml::diagnostic::Diagnostic;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::process::ExitCode;

/// The lines around a difference.
const CONTEXT_LINES: usize = 3;

/// Compare what the servers of an agent offer with mcp.lock.json, and write it
///
/// Starts the servers, and prints what is new or different. The LLM gets the definitions in the file: read them before you
/// write it.
///
/// Exit codes: 0 the file is up to date, 1 it is not, 2 usage error, 3 error of the protocol, 4 a server does not start or
/// answer, 7 a server needs a login, 126 configuration error.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta mcp lock --agent my-agent             # what would change
  delta mcp lock --agent my-agent --write     # accept it")]
pub struct LockArgs {
    /// Servers to lock [default: all of the agent]
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Agent directory [default: .]
    #[arg(long, value_name = "DIR")]
    agent: Option<PathBuf>,
    /// Write the file
    #[arg(long)]
    write: bool,
}

/// Compares and writes; returns the exit code.
pub fn lock_servers(args: &LockArgs) -> Result<ExitCode, McpCommandError> {
    let agent = AgentServers::load_for_lock(args.agent.as_deref())?;
    let chosen: Vec<&AgentMcpServer> = if args.servers.is_empty() {
        agent.servers.iter().collect()
    } else {
        args.servers.iter().map(|name| agent.find(name)).collect::<Result<_, _>>()?
    };
    if agent.servers.is_empty() {
        let hint = "write `mcp: {NAME: {command: [PROGRAM, ARG, ...]}}` in agent.yaml";
        return Err(CommandFailure::config("the agent has no MCP servers", hint).into());
    }
    if let Some(Diagnostic { file, message, .. }) = &agent.lock_problem
        && !args.write
    {
        stdio::print_error_line(&format!(
            "warning: {message}, so all that the servers offer counts as new\n  --> {file}\n\
             help: restore the file to see what changed since it was accepted, or replace it with `--write`"
        ));
    }
    let cancel = cancel::install_cancel()?;
    let processes = ServerProcesses::watch();
    let mut lock = agent.lock.clone();
    // A server that the agent no longer has is not kept.
    lock.servers.retain(|name, _| agent.servers.iter().any(|server| server.name == *name));
    let locked = chosen
        .iter()
        .map(|server| Ok((server.name.clone(), offered_server(&agent, server, &cancel)?)));
    let locked: Result<Vec<_>, McpCommandError> = locked.collect();
    processes.end(&cancel);
    lock.servers.extend(locked?);
    let is_current = print_differences(&agent.lock, &lock);
    print_hidden_text_warnings(&lock);
    print_parameter_name_warnings(&chosen, &lock);
    print_lock_problems(&agent, &chosen, &lock);
    if is_current {
        return Ok(ExitCode::SUCCESS);
    }
    let path = agent.home.join(LOCK_FILE);
    if args.write {
        let text = lock.to_text();
        let written = if path.exists() {
            durable::replace_shared_synced(&path, text.as_bytes())
        } else {
            durable::create_shared_synced(&path, text.as_bytes())
        };
        written.map_err(CommandFailure::from)?;
        stdio::print_error_line(&format!("wrote {}", path.display()));
        return Ok(ExitCode::SUCCESS);
    }
    stdio::print_error_line(&format!(
        "help: accept it with `--write`: {} is not up to date",
        path.display()
    ));
    Ok(ExitCode::FAILURE)
}

/// What a server offers now.
fn offered_server(
    agent: &AgentServers,
    server: &AgentMcpServer,
    cancel: &CancelToken,
) -> Result<LockedServer, McpCommandError> {
    let mut chosen = ChosenServer { spec: agent.connectable(server)?, locked: None, named: None };
    if let Some(oauth) = &mut chosen.spec.oauth {
        // What is locked may be replaced; the difference shows the other issuer.
        oauth.issuer = None;
    }
    let (client, tools) = connect_and_list(&chosen, cancel).map_err(|failure| match failure {
        McpFailure::Unreachable(reason) => {
            McpFailure::Unreachable(format!("the MCP server `{}`: {reason}", server.name))
        }
        failure => failure,
    })?;
    let identity = client.identity().clone();
    client.close(cancel);
    if identity.era == ProtocolEra::Legacy {
        print_task_warnings(&server.name, &tools);
    }
    Ok(LockedServer {
        command: server.url.is_none().then(|| server.command.clone()),
        url: server.url.clone(),
        issuer: token_issuer(&chosen.spec)?,
        era: identity.era,
        protocol: identity.protocol,
        server: identity.server,
        instructions: identity.instructions,
        tools: tools.iter().filter_map(LockedTool::from_listed).collect(),
    })
}

/// The issuer of the tokens that the server got.
fn token_issuer(spec: &ServerSpec) -> Result<Option<String>, McpFailure> {
    let Some((settings, url)) = spec.oauth.as_ref().zip(spec.url.as_ref()) else { return Ok(None) };
    let login = read_login(settings, url)?.ok_or_else(|| {
        McpFailure::Unauthorized(format!(
            "the MCP server `{}` listed its tools without a token, so there is no issuer to lock: run `{}`, or leave out `oauth`",
            spec.name, settings.login_command
        ))
    })?;
    Ok(Some(login.issuer))
}

/// Names what no run of the agent would begin with.
fn print_lock_problems(agent: &AgentServers, chosen: &[&AgentMcpServer], lock: &LockFile) {
    for problem in chosen.iter().flat_map(|server| server.lock_problems(lock, &agent.home)) {
        let mut text = String::new();
        // A string takes everything.
        let _ = problem.write(&mut text, "warning");
        stdio::print_error_line(&text);
    }
}

/// Names the tools with characters that only the LLM would see.
fn print_hidden_text_warnings(lock: &LockFile) {
    for (server, locked) in &lock.servers {
        for tool in &locked.tools {
            if has_hidden_text(&Json::Object(tool.definition.clone())) {
                stdio::print_error_line(&format!(
                    "warning: the definition of `{}` of the server `{server}` has characters that only the LLM sees\nhelp: look at the escapes, and leave it out: name the other tools in `tools:`",
                    tool.name.escape_default()
                ));
            }
        }
    }
}

/// Names the parameters for which Anthropic refuses every request of the agent.
fn print_parameter_name_warnings(chosen: &[&AgentMcpServer], lock: &LockFile) {
    for server in chosen {
        let tools = lock.servers.get(&server.name).map_or(&[][..], |locked| &locked.tools);
        for tool in tools.iter().filter(|tool| server.is_selected(&tool.name)) {
            let schema = tool.input_schema();
            let properties = schema.get("properties").and_then(Json::as_object);
            let mut names = properties.into_iter().flatten().map(|(name, _)| name);
            if let Some(name) = names.find(|name| !is_common_parameter_name(name)) {
                stdio::print_error_line(&format!(
                    "warning: some endpoints, such as Anthropic's, refuse every request with the parameter `{}` of `{}` of the server `{}`: a name has 1 to 64 letters, digits, `_`, `.` or `-`\nhelp: leave the tool out for them: name the other tools in `tools:`",
                    name.escape_default(),
                    tool.name.escape_default(),
                    server.name
                ));
            }
        }
    }
}

fn is_common_parameter_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Names the tools that can only be called as tasks of the version 2025-11-25.
fn print_task_warnings(server: &str, tools: &[Json]) {
    let needs_task = tools.iter().filter(|tool| tool["execution"]["taskSupport"] == "required");
    for name in needs_task.filter_map(|tool| tool["name"].as_str()) {
        stdio::print_error_line(&format!(
            "warning: `{}` of the server `{server}` can only be called as a task of the version 2025-11-25, which delta does not send\nhelp: leave it out: name the other tools in `tools:`",
            name.escape_default()
        ));
    }
}

/// Prints how `after` differs; returns whether it does not.
fn print_differences(before: &LockFile, after: &LockFile) -> bool {
    if before == after {
        return true;
    }
    let old = if before.servers.is_empty() { String::new() } else { before.to_text() };
    let diff = LineDiff::new(&old, &after.to_text(), CONTEXT_LINES);
    stdio::print_text(&diff.with_names(&format!("a/{LOCK_FILE}"), &format!("b/{LOCK_FILE}")));
    false
}
