//! The transport over pipes: a server is a child, and a message is a line.

use crate::client::{RequestWait, ServerNotice, answer_server_request};
use crate::failure::McpFailure;
use crate::json_rpc::{RpcError, RpcId, RpcMessage};
use crate::line_framing::{FramedLine, LineSplitter, MAX_LINE_BYTES};
use crate::server_spec::ServerSpec;
use delta_base::redact::Secrets;
use delta_base::signal::{CancelToken, to_timespec};
use delta_base::terminal_text::strip_terminal_controls;
use delta_process::{LaunchContext, ServiceProcess};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use serde_json::{Value as Json, json};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

const READ_BUFFER_BYTES: usize = 64 * 1024;
/// How much of what a server writes to its standard error is kept for messages.
const STDERR_TAIL_BYTES: usize = 2048;

/// A server that is a child of this process.
pub(crate) struct StdioTransport {
    process: ServiceProcess,
    splitter: LineSplitter,
    lines: VecDeque<FramedLine>,
    /// What is still to be written to the server.
    outgoing: VecDeque<u8>,
    stderr_tail: Vec<u8>,
    /// Whether the standard output of the server has ended.
    has_closed: bool,
    has_closed_stderr: bool,
}

impl StdioTransport {
    /// Starts the server, in its sandbox if it has one.
    pub(crate) fn start(spec: &ServerSpec) -> Result<Self, McpFailure> {
        let env = spec.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let context = LaunchContext {
            cwd: spec.cwd.clone(),
            env,
            secrets: Secrets::default(),
            containment: None,
            sandbox: spec.sandbox.clone(),
        };
        let process =
            ServiceProcess::start(&spec.command, None, &context, None).map_err(|reason| {
                McpFailure::Unreachable(format!(
                    "could not start the server `{}`: {reason}",
                    spec.name
                ))
            })?;
        Ok(Self {
            process,
            splitter: LineSplitter::default(),
            lines: VecDeque::new(),
            outgoing: VecDeque::new(),
            stderr_tail: Vec::new(),
            has_closed: false,
            has_closed_stderr: false,
        })
    }

    /// Queues a message without an answer.
    pub(crate) fn notify(&mut self, message: &RpcMessage) {
        self.outgoing.extend(message.to_line().into_bytes());
        self.write_outgoing();
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn exchange(
        &mut self,
        id: i64,
        request: &RpcMessage,
        context: &mut RequestWait<'_>,
    ) -> Result<Result<Json, RpcError>, McpFailure> {
        self.outgoing.extend(request.to_line().into_bytes());
        self.write_outgoing();
        loop {
            while let Some(line) = self.lines.pop_front() {
                if let Some(outcome) = self.take_line(line, id, context)? {
                    return Ok(outcome);
                }
            }
            if self.has_closed {
                return Err(McpFailure::Unreachable(self.describe_end()));
            }
            let rest = context.deadline.saturating_duration_since(Instant::now());
            if context.cancel.is_requested() || context.is_abandoned() {
                self.cancel_request(id);
                return Err(McpFailure::Cancelled);
            }
            if rest.is_zero() {
                self.cancel_request(id);
                let stderr = self.describe_stderr();
                return Err(McpFailure::Unreachable(format!(
                    "the server did not answer in time{stderr}"
                )));
            }
            self.wait(Some(rest), &[context.cancel.fd()], context.abandon_fd);
        }
    }

    /// Reads what the server writes between requests, so that it never waits for this process, until `fds` are readable.
    pub(crate) fn idle_until(&mut self, cancel: &CancelToken, fds: &[BorrowedFd<'_>]) -> bool {
        let mut watched = vec![cancel.fd()];
        watched.extend(fds);
        self.wait(None, &watched, None);
        !self.has_closed
    }

    /// The notifications that have arrived between requests.
    pub(crate) fn take_idle_notices(&mut self, on_notice: &mut dyn FnMut(ServerNotice<'_>)) {
        let mut later = VecDeque::new();
        while let Some(line) = self.lines.pop_front() {
            match parse_framed_line(&line) {
                Some(RpcMessage::Notification { method, params }) => {
                    on_notice(ServerNotice::Notification { method: &method, params: &params });
                }
                Some(RpcMessage::Request { .. }) => later.push_back(line),
                _ => {}
            }
        }
        self.lines = later;
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.has_closed || self.process.has_ended()
    }

    pub(crate) fn end(mut self, cancel: &CancelToken) {
        self.process.end(cancel);
    }

    fn cancel_request(&mut self, id: i64) {
        let params = json!({"requestId": id, "reason": "the caller gave up"});
        self.notify(&RpcMessage::notification("notifications/cancelled", params));
    }

    /// Processes a line; returns the outcome if it answers the request `id`. Everything else is dropped: servers
    /// print greetings.
    fn take_line(
        &mut self,
        line: FramedLine,
        id: i64,
        context: &mut RequestWait<'_>,
    ) -> Result<Option<Result<Json, RpcError>>, McpFailure> {
        if line == FramedLine::Overlong {
            let limit = MAX_LINE_BYTES / (1024 * 1024);
            return Err(McpFailure::invalid_answer(format!(
                "an answer is longer than {limit} MiB"
            )));
        }
        match parse_framed_line(&line) {
            Some(RpcMessage::Response { id: Some(RpcId::Number(answered)), outcome })
                if answered == id =>
            {
                Ok(Some(outcome))
            }
            Some(RpcMessage::Request { id, method, params }) => {
                let reply = answer_server_request(id, &method);
                (context.on_notice)(ServerNotice::Request { method: &method, params: &params });
                self.notify(&reply);
                Ok(None)
            }
            Some(RpcMessage::Notification { method, params }) => {
                (context.on_notice)(ServerNotice::Notification {
                    method: &method,
                    params: &params,
                });
                Ok(None)
            }
            Some(RpcMessage::Response { .. }) | None => Ok(None),
        }
    }

    /// Waits until the server can be read or written, or one of `fds` is readable; then reads and writes.
    pub(crate) fn wait(
        &mut self,
        limit: Option<std::time::Duration>,
        fds: &[BorrowedFd<'_>],
        abandon: Option<BorrowedFd<'_>>,
    ) {
        let mut watched = Vec::new();
        if !self.has_closed {
            watched.push(PollFd::new(&self.process.stdout, PollFlags::IN));
        }
        if !self.has_closed_stderr {
            watched.push(PollFd::new(&self.process.stderr, PollFlags::IN));
        }
        if let Some(stdin) = self.process.stdin.as_ref().filter(|_| !self.outgoing.is_empty()) {
            watched.push(PollFd::new(stdin, PollFlags::OUT));
        }
        watched.extend(fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        watched.extend(abandon.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let limit = limit.map(to_timespec);
        let _ = poll(&mut watched, limit.as_ref());
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
                self.has_closed = true;
                self.lines.extend(self.splitter.finish());
            }
            Ok(count) => self.lines.extend(self.splitter.push(&buffer[..count])),
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.has_closed = true,
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
        format!("the server has ended{}", self.describe_stderr())
    }

    fn describe_stderr(&self) -> String {
        let tail = strip_terminal_controls(&String::from_utf8_lossy(&self.stderr_tail));
        match tail.trim() {
            "" => String::new(),
            tail => format!("; the end of its stderr:\n{tail}"),
        }
    }
}

fn parse_framed_line(line: &FramedLine) -> Option<RpcMessage> {
    match line {
        FramedLine::Text(bytes) => RpcMessage::parse(bytes).ok(),
        FramedLine::Overlong => None,
    }
}

fn is_temporary(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}
