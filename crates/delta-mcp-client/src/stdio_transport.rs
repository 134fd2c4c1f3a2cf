//! The transport over pipes: a server is a child, and a message is a line.
//!
//! Several calls can wait for the same server. Whichever of them wakes up reads what has arrived, and hands on what the
//! others wait for, so no thread of its own reads.

use crate::client::{LIST_CHANGED_METHOD, RequestWait, ServerNotice, answer_server_request};
use crate::wake_signal::WakeSignal;
use delta_base::signal::{CancelToken, to_timespec};
use delta_base::terminal_text::strip_terminal_controls;
use delta_mcp::failure::McpFailure;
use delta_mcp::json_rpc::{PARSE_ERROR, RpcError, RpcId, RpcMessage};
use delta_mcp::line_framing::{FramedLine, LineSplitter, MAX_LINE_BYTES};
use delta_mcp::server_spec::ServerSpec;
use delta_process::{EnvVars, LaunchContext, ServiceProcess};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, PipeWriter, Read, Write};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const READ_BUFFER_BYTES: usize = 64 * 1024;
/// How much of what a server writes to its standard error is kept for messages.
const STDERR_TAIL_BYTES: usize = 2048;
/// How many bytes may wait for a server that does not read, before its own requests get no answer.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// A server that is a child of this process. Clones share it.
#[derive(Clone)]
pub(crate) struct StdioTransport {
    shared: Arc<SharedServer>,
}

struct SharedServer {
    /// The standard output and error of the server again: they are watched without the lock.
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// Wakes who watches the server between calls.
    idle_wake: WakeSignal,
    state: Mutex<ServerState>,
}

struct ServerState {
    process: ServiceProcess,
    splitter: LineSplitter,
    /// What is still to be written to the server.
    outgoing: VecDeque<u8>,
    stderr_tail: Vec<u8>,
    /// Whether the standard output of the server has ended.
    has_closed: bool,
    has_closed_stderr: bool,
    /// Whether the server has announced another list of tools since the last look.
    has_list_changed: bool,
    /// Whether a message was sent that gets no answer.
    has_notified: bool,
    /// What is wrong with the last line that answers no request: it cannot be read, or is an error for another request.
    stray: Option<String>,
    /// The requests without an answer.
    waiting: BTreeMap<i64, Inbox>,
}

/// What has arrived for a request.
struct Inbox {
    messages: VecDeque<Arrived>,
    wake: Arc<WakeSignal>,
}

enum Arrived {
    Answer(Result<Json, RpcError>),
    Notification {
        method: String,
        params: Json,
    },
    /// A request of the server, which has been refused.
    Request {
        method: String,
        params: Json,
    },
    /// Something with the id of the request, but without an answer; the reason.
    Invalid(String),
    /// A line that is too long, so it is not known whose it was.
    Overlong,
}

/// A request that waits, until it is dropped.
struct Waiting<'a> {
    server: &'a SharedServer,
    id: i64,
    wake: Arc<WakeSignal>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.server.lock();
        state.waiting.remove(&self.id);
        // Another thread has to write the rest.
        if !state.outgoing.is_empty() {
            self.server.idle_wake.wake();
        }
    }
}

impl StdioTransport {
    /// Starts the server, in its sandbox if it has one. The kernel kills it when the calling thread ends.
    pub(crate) fn start(spec: &ServerSpec) -> Result<Self, McpFailure> {
        let env = spec.env.iter().map(|(name, value)| (name.into(), value.into()));
        let context = LaunchContext::new(&spec.cwd, env.collect::<EnvVars>())
            .with_sandbox(spec.sandbox.clone());
        let not_started = |reason: String| {
            let in_sandbox = if spec.sandbox.is_some() { " in its sandbox" } else { "" };
            let name = &spec.name;
            McpFailure::Unreachable(format!(
                "could not start the server `{name}`{in_sandbox}: {reason}"
            ))
        };
        let process =
            ServiceProcess::start(&spec.command, None, &context, None).map_err(not_started)?;
        let no_descriptor = |error: std::io::Error| not_started(error.to_string());
        let shared = SharedServer {
            stdout: process.stdout.as_fd().try_clone_to_owned().map_err(no_descriptor)?,
            stderr: process.stderr.as_fd().try_clone_to_owned().map_err(no_descriptor)?,
            idle_wake: WakeSignal::new().map_err(no_descriptor)?,
            state: Mutex::new(ServerState {
                process,
                splitter: LineSplitter::default(),
                outgoing: VecDeque::new(),
                stderr_tail: Vec::new(),
                has_closed: false,
                has_closed_stderr: false,
                has_list_changed: false,
                has_notified: false,
                stray: None,
                waiting: BTreeMap::new(),
            }),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Sends a message without an answer.
    pub(crate) fn notify(&self, message: &RpcMessage) {
        let mut state = self.shared.lock();
        state.has_notified = true;
        state.send(message);
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn exchange(
        &self,
        id: i64,
        request: &RpcMessage,
        context: &mut RequestWait<'_>,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        let waiting = self.shared.send_request(id, request)?;
        loop {
            let (arrived, has_closed) = self.shared.pump(id);
            for message in arrived {
                if let Some(outcome) = take_arrived(message, context)? {
                    return Ok(outcome);
                }
            }
            if has_closed {
                return Err(McpFailure::Unreachable(self.shared.lock().describe_end()));
            }
            let rest = context.deadline.saturating_duration_since(Instant::now());
            if context.has_gone() {
                self.cancel_request(id);
                return Err(McpFailure::Cancelled);
            }
            if rest.is_zero() {
                self.cancel_request(id);
                let reason = self.describe_silence("the server did not answer in time");
                return Err(McpFailure::Unreachable(reason));
            }
            let fds = [Some(context.cancel.fd()), context.abandon_fd];
            let fds: Vec<BorrowedFd<'_>> = fds.into_iter().flatten().collect();
            self.shared.wait(Some(rest), &waiting.wake, &fds);
        }
    }

    /// Reads what the server writes between requests, so that it never waits for this process, until one of `fds` is
    /// readable or another thread needs a writer. Returns whether the server is alive.
    pub(crate) fn idle_until(&self, fds: &[BorrowedFd<'_>]) -> bool {
        self.pause(None, fds)
    }

    /// Like [`StdioTransport::idle_until`], for at most `limit`.
    pub(crate) fn pause(&self, limit: Option<Duration>, fds: &[BorrowedFd<'_>]) -> bool {
        self.shared.wait(limit, &self.shared.idle_wake, fds);
        let mut state = self.shared.lock();
        state.exchange_bytes();
        !state.has_closed
    }

    /// `summary`, which says that the server did not answer, with what it wrote instead.
    pub(crate) fn describe_silence(&self, summary: &str) -> String {
        self.shared.lock().describe_silence(summary)
    }

    /// Whether the server has announced another list of tools since the last call of this.
    pub(crate) fn take_list_change(&self) -> bool {
        mem::take(&mut self.shared.lock().has_list_changed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut state = self.shared.lock();
        state.has_closed || state.process.has_ended()
    }

    /// Ends the server, for all who share it.
    pub(crate) fn end(&self, cancel: &CancelToken) {
        let mut state = self.shared.lock();
        state.process.end(cancel);
        state.close();
    }

    fn cancel_request(&self, id: i64) {
        let params = json!({"requestId": id, "reason": "the caller gave up"});
        self.notify(&RpcMessage::notification("notifications/cancelled", params));
    }
}

/// Gives the outcome of a request if `message` is its answer.
fn take_arrived(
    message: Arrived,
    context: &mut RequestWait<'_>,
) -> Result<Option<Result<Json, RpcError>>, McpFailure> {
    match message {
        Arrived::Answer(outcome) => return Ok(Some(outcome)),
        Arrived::Notification { method, params } => {
            (context.on_notice)(ServerNotice::Notification { method: &method, params: &params });
        }
        Arrived::Request { method, params } => {
            (context.on_notice)(ServerNotice::Request { method: &method, params: &params });
        }
        Arrived::Invalid(reason) => return Err(McpFailure::invalid_answer(reason)),
        Arrived::Overlong => {
            let limit = MAX_LINE_BYTES / (1024 * 1024);
            return Err(McpFailure::invalid_answer(format!(
                "an answer is longer than {limit} MiB"
            )));
        }
    }
    Ok(None)
}

impl SharedServer {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_request(&self, id: i64, request: &RpcMessage) -> Result<Waiting<'_>, McpFailure> {
        let wake = WakeSignal::new().map_err(|error| McpFailure::no_descriptor(&error))?;
        let wake = Arc::new(wake);
        let inbox = Inbox { messages: VecDeque::new(), wake: Arc::clone(&wake) };
        let mut state = self.lock();
        state.waiting.insert(id, inbox);
        state.send(request);
        Ok(Waiting { server: self, id, wake })
    }

    /// Reads and writes what is possible now. Gives what has arrived for the request `id`, and whether the server has ended.
    fn pump(&self, id: i64) -> (VecDeque<Arrived>, bool) {
        let mut state = self.lock();
        state.exchange_bytes();
        let inbox = state.waiting.get_mut(&id);
        (inbox.map(|inbox| mem::take(&mut inbox.messages)).unwrap_or_default(), state.has_closed)
    }

    /// Waits until the server has written something or can take something that is to be written, `wake` wakes this up, or
    /// one of `fds` is readable.
    fn wait(&self, limit: Option<Duration>, wake: &WakeSignal, fds: &[BorrowedFd<'_>]) {
        let (has_closed, has_closed_stderr, stdin) = {
            let state = self.lock();
            (state.has_closed, state.has_closed_stderr, state.stdin_to_write())
        };
        let mut watched = vec![PollFd::from_borrowed_fd(wake.fd(), PollFlags::IN)];
        if !has_closed {
            watched.push(PollFd::new(&self.stdout, PollFlags::IN));
        }
        if !has_closed_stderr {
            watched.push(PollFd::new(&self.stderr, PollFlags::IN));
        }
        watched.extend(stdin.iter().map(|stdin| PollFd::new(stdin, PollFlags::OUT)));
        watched.extend(fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        let limit = limit.map(to_timespec);
        let _ = poll(&mut watched, limit.as_ref());
        wake.drain();
    }
}

impl ServerState {
    /// Queues a message and writes what the server takes at once.
    fn send(&mut self, message: &RpcMessage) {
        self.outgoing.extend(message.to_line().into_bytes());
        self.write_outgoing();
    }

    /// The standard input of the server again, if something is to be written there.
    fn stdin_to_write(&self) -> Option<PipeWriter> {
        let stdin = self.process.stdin.as_ref().filter(|_| !self.outgoing.is_empty());
        stdin.and_then(|stdin| stdin.try_clone().ok())
    }

    /// Reads and writes what is possible without waiting.
    fn exchange_bytes(&mut self) {
        self.write_outgoing();
        self.read_stdout();
        self.read_stderr();
    }

    fn write_outgoing(&mut self) {
        while !self.outgoing.is_empty() {
            let Some(stdin) = &mut self.process.stdin else { return self.outgoing.clear() };
            match stdin.write(self.outgoing.as_slices().0) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The server no longer reads; the end of its output says the rest.
                Err(_) => return self.outgoing.clear(),
            }
        }
    }

    fn read_stdout(&mut self) {
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        match self.process.stdout.read(&mut buffer) {
            Ok(0) => {
                let last = self.splitter.finish();
                last.into_iter().for_each(|line| self.dispatch(&line));
                self.close();
            }
            Ok(count) => {
                let lines = self.splitter.push(&buffer[..count]);
                lines.iter().for_each(|line| self.dispatch(line));
            }
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.close(),
        }
    }

    fn close(&mut self) {
        self.has_closed = true;
        self.waiting.values().for_each(|inbox| inbox.wake.wake());
    }

    /// Hands a line to the requests that it concerns. Everything else is dropped: servers print greetings.
    fn dispatch(&mut self, line: &FramedLine) {
        let text = match line {
            // Some runtimes write a byte order mark before their first line.
            FramedLine::Text(bytes) => {
                String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
            }
            FramedLine::Overlong => return self.hand_to_all(&|| Arrived::Overlong),
        };
        match RpcMessage::parse(text.as_bytes()) {
            Ok(RpcMessage::Response { id, outcome }) => {
                let is_late = id.as_ref().is_some_and(|id| self.is_given_up(id));
                // Before any notification, an error without an id can only be about the one request that is open. The same
                // holds for what a server could not read, because it reads every notification.
                let is_unread = outcome.as_ref().is_err_and(|error| error.code == PARSE_ERROR);
                let is_of_only_one = outcome.is_err()
                    && (is_unread || !self.has_notified)
                    && self.waiting.len() == 1;
                let inbox = self.waiting.iter_mut().find(|(waiting, _)| {
                    id.as_ref().map_or(is_of_only_one, |id| id.is_of_request(**waiting))
                });
                match (inbox, outcome) {
                    (Some((_, inbox)), outcome) => {
                        inbox.messages.push_back(Arrived::Answer(outcome));
                        inbox.wake.wake();
                    }
                    // The answer to a request that was given up comes late.
                    (None, Err(_)) if is_late => {}
                    (None, Err(error)) => {
                        self.stray = Some(format!("it sent an error for no request: {error}"));
                    }
                    (None, Ok(_)) => {}
                }
            }
            Ok(RpcMessage::Request { id, method, params }) => {
                if self.outgoing.len() < MAX_WAITING_BYTES {
                    self.send(&answer_server_request(id, &method));
                }
                // Nothing says which of several calls it is for.
                if self.waiting.len() == 1 {
                    self.hand_to_all(&|| Arrived::Request {
                        method: method.clone(),
                        params: params.clone(),
                    });
                }
            }
            Ok(RpcMessage::Notification { method, params }) => {
                self.has_list_changed |= method == LIST_CHANGED_METHOD;
                self.hand_to_all(&|| Arrived::Notification {
                    method: method.clone(),
                    params: params.clone(),
                });
            }
            Err(error) => self.dispatch_unreadable(&text, error.message),
        }
    }

    /// Whether an id is of an earlier request than the ones that wait.
    fn is_given_up(&self, id: &RpcId) -> bool {
        let first = self.waiting.keys().next();
        first.is_none_or(|first| matches!(id, RpcId::Number(number) if number < first))
    }

    /// Handles a line without a message. One with the id of a request and a member of an answer was meant as its answer.
    fn dispatch_unreadable(&mut self, text: &str, reason: String) {
        if !text.trim_start().starts_with('{') {
            return;
        }
        let line = serde_json::from_str::<Json>(text).unwrap_or_default();
        let is_meant = ["jsonrpc", "result", "error"].iter().any(|key| line.get(key).is_some());
        let id = line.get("id").and_then(RpcId::from_json).filter(|_| is_meant);
        let inbox = self
            .waiting
            .iter_mut()
            .find(|(waiting, _)| id.as_ref().is_some_and(|id| id.is_of_request(**waiting)));
        match inbox {
            Some((_, inbox)) => {
                inbox.messages.push_back(Arrived::Invalid(reason));
                inbox.wake.wake();
            }
            None => self.stray = Some(format!("a line of it could not be read: {reason}")),
        }
    }

    fn hand_to_all(&mut self, message: &dyn Fn() -> Arrived) {
        for inbox in self.waiting.values_mut() {
            inbox.messages.push_back(message());
            inbox.wake.wake();
        }
    }

    fn read_stderr(&mut self) {
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        match self.process.stderr.read(&mut buffer) {
            Ok(0) => self.has_closed_stderr = true,
            Ok(count) => {
                self.stderr_tail.extend_from_slice(&buffer[..count]);
                let surplus = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
                self.stderr_tail.drain(..surplus);
            }
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.has_closed_stderr = true,
        }
    }

    fn describe_end(&mut self) -> String {
        self.read_stderr();
        let stderr = match self.describe_stderr() {
            text if text.is_empty() => "; it wrote nothing to stderr".to_owned(),
            text => text,
        };
        format!("the server exited before it answered{stderr}")
    }

    fn describe_silence(&self, summary: &str) -> String {
        let stray = self.stray.as_ref().map(|line| format!("; {}", strip_terminal_controls(line)));
        let stderr = self.describe_stderr();
        format!("{summary}{}{stderr}", stray.unwrap_or_default())
    }

    fn describe_stderr(&self) -> String {
        let tail = strip_terminal_controls(&String::from_utf8_lossy(&self.stderr_tail));
        match tail.trim() {
            "" => String::new(),
            tail => format!("; the end of its stderr:\n{tail}"),
        }
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}
