//! `delta mcp login`: a person gives delta access to a server, in a browser on this machine or on another one.

use super::McpCommandError;
use super::server_choice::ServerArgs;
use crate::oauth::login::{LoginOptions, PendingLogin};
use clap::Args;
use delta_base::terminal_text::escape_terminal_controls;
use delta_mcp::oauth::split_scopes;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::page;
use delta_operator::{cancel, environment};
use delta_program::stdio;
use std::path::PathBuf;
use std::process::ExitCode;

/// Log in at a server, for the agents and commands that use it
///
/// Where there is no browser, open the printed address in any browser, log in, and paste the address to which the browser is
/// sent at the end, even if that page does not load.
///
/// The tokens are in the state directory of the operator; runs refresh them.
///
/// Exit codes: 0, 2 usage error, 3 error of the protocol, 4 the server or the issuer does not answer, 7 no login, 126
/// configuration error.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  delta mcp login tracker --agent my-agent
  delta mcp login https://mcp.example.com/mcp
  delta mcp login tracker --agent my-agent --scope 'issues:read issues:write'")]
pub struct LoginArgs {
    /// Server in `mcp:` of the agent, or the URL of a server
    #[arg(value_name = "SERVER")]
    name: String,
    /// Agent directory [default: .]
    #[arg(long, value_name = "DIR")]
    agent: Option<PathBuf>,
    /// Scopes to ask for, in addition to the ones that the server names; repeatable
    #[arg(long = "scope", value_name = "SCOPES")]
    scopes: Vec<String>,
    /// Issuer to log in at [default: the one in mcp.lock.json, else the first that the server names]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// Port of 127.0.0.1 for the browser, if the client is registered with one [default: a free one]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    port: u16,
}

/// Logs in; returns the exit code.
pub fn log_in(args: &LoginArgs) -> Result<ExitCode, McpCommandError> {
    if environment::path_variable("RUN_DIR").is_some() {
        let hint = "log in at a terminal, before the run";
        let message = "`delta mcp login` is for a person, not for a run";
        return Err(CommandFailure::config(message, hint).into());
    }
    let server = ServerArgs { agent: args.agent.clone(), command: Vec::new() };
    let server = server.choose(Some(&args.name))?;
    let Some(settings) = server.spec.oauth.as_ref().filter(|it| !it.has_own_access) else {
        let has_client = server.spec.oauth.is_some();
        let (problem, hint) = if has_client {
            ("needs no login: its client has access", "leave out `grant: client_credentials`")
        } else {
            ("takes no tokens from a login", "write `oauth: true` at the server in agent.yaml")
        };
        let message = format!("the MCP server `{}` {problem}", args.name);
        return Err(CommandFailure::config(message, hint).into());
    };
    let options = LoginOptions {
        scopes: args.scopes.iter().flat_map(|scopes| split_scopes(scopes)).collect(),
        issuer: args.issuer.clone(),
        port: args.port,
    };
    let cancel = cancel::install_cancel()?;
    let pending = PendingLogin::begin(&server.spec, settings, &options, &cancel)?;
    let url = escape_terminal_controls(pending.url());
    let has_browser = page::open_in_browser(pending.url()).is_ok();
    let instruction = if has_browser {
        "log in with the browser; if none has opened, open this address in one, and paste here the address to which it is sent at the end:"
    } else {
        "open this address in a browser, log in, and paste here the address to which it is sent at the end:"
    };
    stdio::print_error_line(&format!("{instruction}\n{url}"));
    let code = pending.wait_for_code(std::io::stdin(), has_browser, &cancel, &mut |reason| {
        stdio::print_error_line(&format!("warning: an answer was not used: {reason}"));
    })?;
    let login = pending.finish(&code, &cancel)?;
    let issuer = escape_terminal_controls(&login.issuer);
    stdio::print_error_line(&format!("logged in at {} by {issuer}", args.name));
    Ok(ExitCode::SUCCESS)
}
