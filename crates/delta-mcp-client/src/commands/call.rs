//! `delta mcp call`: one call of one tool. It is also the command line of an agent's tool.

use super::server_choice::{ChosenServer, ServerArgs};
use super::{McpCommandError, ServerProcesses};
use crate::client::{McpClient, ServerNotice};
use crate::holder::{RemoteToolCall, ToolReply, call_holder, read_starts, restart_note};
use crate::tool_session::{ToolCaller, ToolSession};
use clap::Args;
use delta_agent::mcp_server::AgentMcpServer;
use delta_base::durable;
use delta_mcp::failure::McpFailure;
use delta_mcp::holder_config::{CALL_ID_VARIABLE, HOLDER_DIR, HOLDER_REQUIRED, HOLDER_VARIABLE};
use delta_mcp::protocol_era::ProtocolEra;
use delta_mcp::tool_result::{attachment_stem, is_tool_error, render_tool_result};
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, environment};
use delta_program::stdin_input::{StdinError, read_all_stdin};
use delta_program::stdio;
use serde_json::{Map, Value as Json};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Call a tool of a server once, and print its result
///
/// The arguments are a JSON object on stdin, or `--arg`; for a server of an agent they must fit the locked schema. The result
/// is printed as text; images and other data are stored in files that the text names.
///
/// Exit codes: 0, 1 the tool reports an error, 2 usage error, 3 error of the protocol, 4 the server does not start or answer
/// or has died, 5 it asks for input that was not given, 6 the tool is not what was locked, 7 it needs a login, 126 configuration
/// error.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, override_usage = "delta mcp call [OPTIONS] <SERVER> <TOOL>\n       delta mcp call [OPTIONS] <TOOL> -- <COMMAND>...")]
pub struct CallArgs {
    /// Server in `mcp:` of the agent, or the URL of a server
    #[arg(value_name = "SERVER")]
    first: Option<String>,
    /// Tool, by the server's or the LLM's name for it
    #[arg(value_name = "TOOL")]
    second: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Argument NAME; VALUE is JSON, or else a text; repeatable
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = parse_argument)]
    arguments: Vec<(String, Json)>,
    /// Answer to what the server asks for under KEY; repeatable
    #[arg(long = "input", value_name = "KEY=JSON", value_parser = parse_argument)]
    inputs: Vec<(String, Json)>,
    /// Leave structured content out where the result has a text
    #[arg(long)]
    no_structured: bool,
    /// Print the complete result as JSON
    #[arg(long)]
    json: bool,
    /// Print the progress of the call on stderr
    #[arg(short, long)]
    verbose: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta mcp call files read_text_file --arg path=README.md
  echo '{\"a\": 1, \"b\": 2}' | delta mcp call https://mcp.example.com/mcp add
  delta mcp call echo --arg message=hello -- \\
    npx -y @modelcontextprotocol/server-everything@2026.8.31";

fn parse_argument(text: &str) -> Result<(String, Json), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Json::from(value));
    Ok((name.to_owned(), value))
}

/// Calls the tool; the exit code says what became of it.
pub fn call_tool(args: &CallArgs) -> Result<ExitCode, McpCommandError> {
    let (server, tool) = match (&args.first, &args.second, args.server.command.is_empty()) {
        (Some(server), Some(tool), _) => (Some(server.as_str()), tool),
        (Some(tool), None, false) => (None, tool),
        _ => {
            return Err(CommandFailure::usage(
                "expected SERVER and TOOL, or TOOL and `-- COMMAND`",
                "for example `delta mcp call files read_text_file --arg path=README.md`",
            )
            .into());
        }
    };
    let inputs: Map<String, Json> = args.inputs.iter().cloned().collect();
    let request = RemoteToolCall {
        tool: tool.clone(),
        arguments: read_arguments(args)?,
        inputs: (!inputs.is_empty()).then_some(inputs),
        call_id: environment::variable(CALL_ID_VARIABLE),
    };
    let attachments = Attachments::new();
    let reply = match call_through_holder(args, server, &request)? {
        Some(reply) => reply,
        None if is_holder_required() => {
            let reason =
                "the process that holds the server cannot be reached; the call was not sent";
            return Err(McpFailure::Unreachable(reason.to_owned()).into());
        }
        None => call_directly(args, server, &request)?,
    };
    print_reply(reply, args, attachments)
}

/// Whether the server has a sandbox, which only the run around this process has.
fn is_holder_required() -> bool {
    environment::variable(HOLDER_VARIABLE).is_some_and(|value| value == HOLDER_REQUIRED)
}

fn read_arguments(args: &CallArgs) -> Result<Json, CommandFailure> {
    if !args.arguments.is_empty() || io::stdin().is_terminal() {
        return Ok(Json::Object(args.arguments.iter().cloned().collect()));
    }
    let text = read_all_stdin().map_err(|error| {
        let message = match error {
            StdinError::TooLarge => "the arguments on stdin are too long".to_owned(),
            StdinError::Unreadable(error) => {
                format!("could not read the arguments from stdin: {error}")
            }
        };
        CommandFailure::usage(message, None)
    })?;
    if text.trim_ascii().is_empty() {
        return Ok(Json::Object(Map::new()));
    }
    match serde_json::from_slice(&text) {
        Ok(arguments @ Json::Object(_)) => Ok(arguments),
        Ok(_) => Err(CommandFailure::usage(
            "expected a JSON object on stdin, found another value",
            "write `{\"NAME\": VALUE}`, or pass `--arg NAME=VALUE`",
        )),
        Err(error) => Err(CommandFailure::usage(
            format!("expected a JSON object on stdin: {error}"),
            "write `{\"NAME\": VALUE}`, or pass `--arg NAME=VALUE`",
        )),
    }
}

/// Calls through the connection that the run around this process holds, if it holds one.
fn call_through_holder(
    args: &CallArgs,
    server: Option<&str>,
    request: &RemoteToolCall,
) -> Result<Option<ToolReply>, McpCommandError> {
    let run_dir = environment::path_variable("RUN_DIR");
    let Some((name, run_dir)) = server.zip(run_dir).filter(|_| args.server.agent.is_none()) else {
        return Ok(None);
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_name {
        return Ok(None);
    }
    let cancel = cancel::install_cancel()?;
    call_holder(&run_dir.join(HOLDER_DIR), name, request, &cancel).map_err(|error| {
        McpFailure::Unreachable(format!("{error}\nthe call was sent, and its outcome is unknown"))
            .into()
    })
}

fn call_directly(
    args: &CallArgs,
    server: Option<&str>,
    request: &RemoteToolCall,
) -> Result<ToolReply, McpCommandError> {
    let chosen = args.server.choose(server)?;
    let is_of_agent = chosen.spec.url.as_deref() != server && server.is_some();
    if is_of_agent && chosen.locked.is_none() {
        let name = server.unwrap_or_default();
        let hint = format!(
            "run `delta mcp lock --agent DIR {name}`, look at what it offers, and add `--write`"
        );
        let message = format!("the MCP server `{name}` is not locked");
        return Err(CommandFailure::config(message, hint).into());
    }
    let request = checked_request(request, &chosen)?;
    let cancel = cancel::install_cancel()?;
    let processes = ServerProcesses::watch();
    let name = chosen.spec.name.clone();
    let is_legacy = chosen.locked.as_ref().is_some_and(|locked| locked.era == ProtocolEra::Legacy);
    let mut session = ToolSession::new(chosen.spec, chosen.locked, &McpClient::start);
    let mut note = None;
    if let Some(run_dir) = environment::path_variable("RUN_DIR") {
        let dir = run_dir.join(HOLDER_DIR);
        session = session.with_task_records(&dir);
        // A holder that has just died can look alive to the engine, which then starts no other.
        note = (is_legacy && read_starts(&dir, &name) > 0).then(|| restart_note(&name));
    }
    let caller = ToolCaller { cancel: &cancel, abandon_fd: None, engine_fd: None };
    let outcome = session.call(&request, &caller, &mut |notice| {
        if let (true, ServerNotice::Notification { method: "notifications/progress", params }) =
            (args.verbose, &notice)
        {
            print_progress(params);
        }
    });
    session.close(&cancel);
    processes.end(&cancel);
    Ok(ToolReply { outcome, note })
}

/// The call with the server's own name for the tool, if its arguments fit the locked schema.
fn checked_request(
    request: &RemoteToolCall,
    chosen: &ChosenServer,
) -> Result<RemoteToolCall, CommandFailure> {
    let mut request = request.clone();
    let tool = chosen.named.as_ref().and_then(|server| server.find_tool(&request.tool));
    let Some(tool) = tool else { return Ok(request) };
    let errors = AgentMcpServer::argument_errors(tool, &request.arguments);
    if errors.is_empty() {
        request.tool.clone_from(&tool.name);
        return Ok(request);
    }
    let message = format!(
        "the arguments do not fit the schema of `{}`:\n- {}",
        tool.name,
        errors.join("\n- ")
    );
    Err(CommandFailure::usage(message, "`delta mcp list SERVER --json` prints the schema"))
}

fn print_progress(params: &Json) {
    let number = |key: &str| params.get(key).filter(|value| value.is_number()).map(Json::to_string);
    let mut line = number("progress").unwrap_or_default();
    if let Some(total) = number("total") {
        line.push_str(&format!("/{total}"));
    }
    if let Some(message) = params.get("message").and_then(Json::as_str) {
        line.push_str(&format!(" {message}"));
    }
    stdio::print_error_line(&line);
}

fn print_reply(
    reply: ToolReply,
    args: &CallArgs,
    mut attachments: Attachments,
) -> Result<ExitCode, McpCommandError> {
    let result = match reply.outcome {
        Ok(result) => result,
        Err(McpFailure::NeedsInput(requests)) if args.json => {
            stdio::print_json(&format!("{:#}\n", serde_json::json!({"inputRequests": requests})));
            return Err(McpFailure::NeedsInput(requests).into());
        }
        Err(failure) => return Err(failure.into()),
    };
    if args.json {
        stdio::print_json(&format!("{result:#}\n"));
    } else {
        let text = render_tool_result(&result, !args.no_structured, &mut |extension, bytes| {
            attachments.store(extension, bytes).map_err(|error| error.to_string())
        });
        let note = reply.note.map_or_else(String::new, |note| format!("{note}\n"));
        stdio::print_text(&format!("{note}{text}"));
    }
    Ok(if is_tool_error(&result) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The files of images and other data in a result.
struct Attachments {
    dir: PathBuf,
    stem: String,
    count: usize,
}

impl Attachments {
    fn new() -> Self {
        let run_dir = environment::path_variable("RUN_DIR");
        let call = environment::variable("DELTA_CALL_ID");
        let stem = call.unwrap_or_else(|| format!("delta-mcp-{}", std::process::id()));
        let stem = attachment_stem(&stem);
        let dir = match run_dir {
            Some(run_dir) => run_dir.join("io").join(HOLDER_DIR),
            None => std::env::temp_dir(),
        };
        Self { dir, stem, count: 0 }
    }

    /// Writes a new file and returns its path.
    fn store(&mut self, extension: &str, bytes: &[u8]) -> io::Result<String> {
        if !Path::new(&self.dir).is_dir() {
            durable::ensure_private_dir(&self.dir).map_err(io::Error::other)?;
        }
        loop {
            self.count += 1;
            let path = self.dir.join(format!("{}-{}.{extension}", self.stem, self.count));
            match durable::create_private_file(&path) {
                Ok(mut file) => {
                    file.write_all(bytes)?;
                    return Ok(path.display().to_string());
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}
