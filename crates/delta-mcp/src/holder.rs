//! The process that keeps one connection to a server for a run, and its clients.
//!
//! The engine starts it at the first call, and its end is the end of its standard input. It serves one call at a time.

use crate::client::{McpClient, RequestWait, ServerNotice};
use crate::failure::McpFailure;
use crate::lock_file::{LockedServer, LockedTool};
use crate::protocol_era::ProtocolEra;
use crate::server_sandbox::ServerSandbox;
use crate::server_spec::ServerSpec;
use delta_base::durable;
use delta_base::signal::CancelToken;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The directory of the holders, below the run directory.
pub const HOLDER_DIR: &str = "mcp";
/// The line with which a holder reports that it can be reached.
pub const READY_LINE: &str = "ready\n";
/// The variable that forbids the client of a holder to start the server itself, because it would be in no sandbox.
pub const HOLDER_VARIABLE: &str = "DELTA_MCP_HOLDER";
/// Its value.
pub const HOLDER_REQUIRED: &str = "required";
/// How long a client of the holder may take to send its call or to take the reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// What a holder needs, on one line of its standard input.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HolderConfig {
    /// The server.
    pub spec: ServerSpec,
    /// What is locked of it, as mcp.lock.json has it.
    pub locked: Json,
    /// What surrounds the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<ServerSandbox>,
}

/// A call of a tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RemoteToolCall {
    /// The server's name for the tool.
    pub tool: String,
    /// The arguments, an object.
    pub arguments: Json,
    /// Answers to what the server asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Map<String, Json>>,
}

/// The outcome of a call.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToolReply {
    /// The result, or why there is none.
    pub outcome: Result<Json, McpFailure>,
    /// What the caller should know before the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A server, its connection if there is one, and what is locked of it.
pub struct ToolSession {
    spec: ServerSpec,
    locked: Option<LockedServer>,
    client: Option<McpClient>,
    /// What the server lists; `None` before the first call and after a change.
    listed: Option<Vec<Json>>,
}

impl ToolSession {
    /// A session without a connection. Without `locked`, every tool is called as the server lists it.
    pub fn new(spec: ServerSpec, locked: Option<LockedServer>) -> Self {
        Self { spec, locked, client: None, listed: None }
    }

    /// Calls a tool once. Connects and checks the definitions first where that is still to be done.
    pub fn call(
        &mut self,
        request: &RemoteToolCall,
        cancel: &CancelToken,
        abandon_fd: Option<BorrowedFd<'_>>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Json, McpFailure> {
        if self.client.as_mut().is_none_or(McpClient::has_ended) {
            self.client = None;
            self.listed = None;
        }
        let mut has_changed = false;
        let outcome = self.call_connected(request, cancel, abandon_fd, &mut |notice| {
            has_changed |= is_list_change(&notice);
            on_notice(notice);
        });
        if has_changed {
            self.listed = None;
        }
        outcome
    }

    fn call_connected(
        &mut self,
        request: &RemoteToolCall,
        cancel: &CancelToken,
        abandon_fd: Option<BorrowedFd<'_>>,
        on_notice: &mut dyn FnMut(ServerNotice<'_>),
    ) -> Result<Json, McpFailure> {
        let deadline = Instant::now() + self.spec.start_timeout();
        let mut context = RequestWait { deadline, cancel, abandon_fd, on_notice };
        if self.client.is_none() {
            let era = self.locked.as_ref().map(|locked| locked.era);
            self.client = Some(McpClient::connect(&self.spec, era, &mut context)?);
        }
        let Some(client) = &mut self.client else { return Err(McpFailure::Cancelled) };
        // A notification that arrives with the list may mean a newer one, so the list is only kept without it.
        let listed = match self.listed.take() {
            Some(listed) => listed,
            None => client.list_tools(&mut context)?,
        };
        let definition = listed
            .iter()
            .find(|tool| tool.get("name").and_then(Json::as_str) == Some(&request.tool));
        check_locked_definition(&self.spec.name, self.locked.as_ref(), &request.tool, definition)?;
        context.deadline = Instant::now() + self.spec.timeout();
        let outcome = client.call_tool(
            &request.tool,
            definition,
            &request.arguments,
            request.inputs.as_ref(),
            &mut context,
        );
        self.listed = Some(listed);
        outcome.map_err(|failure| match failure {
            McpFailure::Unreachable(reason) => McpFailure::Unreachable(format!(
                "{reason}\nthe call was sent, and its outcome is unknown"
            )),
            other => other,
        })
    }

    /// Ends the server, if it is a child.
    pub fn close(self, cancel: &CancelToken) {
        if let Some(client) = self.client {
            client.close(cancel);
        }
    }
}

fn is_list_change(notice: &ServerNotice<'_>) -> bool {
    matches!(notice, ServerNotice::Notification { method: "notifications/tools/list_changed", .. })
}

/// A definition that differs from the locked one is not called.
fn check_locked_definition(
    server: &str,
    locked: Option<&LockedServer>,
    tool: &str,
    listed: Option<&Json>,
) -> Result<(), McpFailure> {
    let Some(locked) = locked else { return Ok(()) };
    let locked = locked.tool(tool);
    let listed = listed.and_then(LockedTool::from_listed);
    match (locked, listed) {
        (Some(locked), Some(listed)) if locked.sha256 == listed.sha256 => Ok(()),
        (Some(_), Some(_)) => Err(McpFailure::Changed(format!(
            "the server `{server}` now describes `{tool}` in another way than was locked; it was not called"
        ))),
        (Some(_), None) => Err(McpFailure::Changed(format!(
            "the server `{server}` no longer offers `{tool}`; it was not called"
        ))),
        (None, _) => Err(McpFailure::Changed(format!(
            "`{tool}` of the server `{server}` is not locked; it was not called"
        ))),
    }
}

/// Serves calls until `input` ends or a signal arrives. `dir` is the working directory of this process from now on.
/// `on_ready` is called when the socket can be reached.
///
/// # Errors
/// The socket could not be created, or the configuration is not one.
pub fn hold_server(
    input: impl Read + AsFd,
    dir: &Path,
    cancel: &CancelToken,
    on_ready: impl FnOnce(),
) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let mut config: HolderConfig = serde_json::from_str(&line)?;
    config.spec.sandbox = config.sandbox.map(|sandbox| sandbox.to_entry()).transpose()?;
    let locked = LockedServer::from_json(&config.locked).map_err(io::Error::other)?;
    // The path of a socket has at most 107 bytes.
    rustix::process::chdir(dir)?;
    let name = config.spec.name.clone();
    let socket = format!("{name}.sock");
    let _ = durable::remove_file_no_follow(Path::new(&socket));
    let listener = UnixListener::bind(&socket)?;
    on_ready();
    let mut holder = ServerHolder {
        restart_note: None,
        era: locked.era,
        starts_file: format!("{name}.json"),
        session: ToolSession::new(config.spec, Some(locked)),
        name,
    };
    let end = input.get_ref().as_fd();
    while !cancel.is_requested() && !is_readable(end) {
        if holder.idle_until(cancel, &[listener.as_fd(), end]) && is_readable(listener.as_fd()) {
            let (stream, _) = listener.accept()?;
            // An error of one caller does not concern the others.
            let _ = holder.serve_caller(stream, cancel);
        }
    }
    let _ = durable::remove_file_no_follow(Path::new(&socket));
    holder.session.close(&cancel.for_cleanup());
    Ok(())
}

struct ServerHolder {
    name: String,
    session: ToolSession,
    era: ProtocolEra,
    /// Counts the starts of the server during the run, across processes.
    starts_file: String,
    /// What the next result begins with.
    restart_note: Option<String>,
}

impl ServerHolder {
    /// Waits for `fds`, and meanwhile reads what the server writes.
    fn idle_until(&mut self, cancel: &CancelToken, fds: &[BorrowedFd<'_>]) -> bool {
        let Some(client) = &mut self.session.client else {
            let mut watched = vec![PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN)];
            watched.extend(fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
            let _ = poll(&mut watched, None);
            return true;
        };
        let mut has_changed = false;
        let is_alive =
            client.idle_until(cancel, fds, &mut |notice| has_changed |= is_list_change(&notice));
        if has_changed {
            self.session.listed = None;
        }
        if !is_alive && let Some(client) = self.session.client.take() {
            client.close(cancel);
        }
        true
    }

    fn serve_caller(&mut self, mut stream: UnixStream, cancel: &CancelToken) -> io::Result<()> {
        stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let request: RemoteToolCall = serde_json::from_str(&line)?;
        let is_new = self.session.client.as_mut().is_none_or(McpClient::has_ended);
        if is_new && self.count_start() > 1 && self.era == ProtocolEra::Legacy {
            let name = &self.name;
            self.restart_note = Some(format!(
                "[the server {name} was started again: what it held in memory is gone]"
            ));
        }
        let outcome = self.session.call(&request, cancel, Some(stream.as_fd()), &mut |_| {});
        let note = if outcome.is_ok() { self.restart_note.take() } else { None };
        let mut reply = serde_json::to_string(&ToolReply { outcome, note })?;
        reply.push('\n');
        stream.write_all(reply.as_bytes())
    }

    /// The number of starts, this one included.
    fn count_start(&self) -> u64 {
        let path = Path::new(&self.starts_file);
        let before = durable::read_regular_text(path).ok();
        let before = before.and_then(|text| serde_json::from_str::<Json>(&text).ok());
        let starts = before.and_then(|json| json.get("starts")?.as_u64()).unwrap_or(0) + 1;
        let text = json!({"starts": starts}).to_string();
        let _ = durable::replace_private_unsynced(path, text.as_bytes());
        starts
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = delta_base::signal::to_timespec(Duration::ZERO);
    poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
}

/// Calls through the holder of the server `name` in `dir`; `None` if there is no holder.
///
/// This changes the working directory of the process.
///
/// # Errors
/// The holder has died during the call.
pub fn call_holder(
    dir: &Path,
    name: &str,
    request: &RemoteToolCall,
) -> io::Result<Option<ToolReply>> {
    if !durable::is_dir_no_follow(dir) || rustix::process::chdir(dir).is_err() {
        return Ok(None);
    }
    let Ok(mut stream) = UnixStream::connect(format!("{name}.sock")) else { return Ok(None) };
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    if reply.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the process that holds the server has ended",
        ));
    }
    Ok(Some(serde_json::from_slice(&reply)?))
}
