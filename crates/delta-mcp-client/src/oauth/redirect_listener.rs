//! Waits for the browser at the end of a login, on a port of this machine, and for what a person pastes in its place.

use delta_base::signal::{CancelToken, to_timespec};
use delta_mcp::failure::McpFailure;
use delta_mcp::oauth::authorization::{ExpectedAnswer, LoginAnswerError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a person may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest head of a request, and the longest line that is pasted.
const MAX_INPUT_BYTES: usize = 16 * 1024;
/// How many connections are open at the same time; browsers open some in advance.
const MAX_CONNECTIONS: usize = 16;
/// How long a browser may take to read its page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// The path of the redirect.
const PATH: &str = "/callback";

/// A port that a browser is sent to.
#[derive(Debug)]
pub(super) struct RedirectListener {
    listener: TcpListener,
    redirect_uri: String,
}

/// A connection whose request is not complete yet.
struct BrowserConnection {
    stream: TcpStream,
    head: Vec<u8>,
}

impl RedirectListener {
    /// Listens on `port`, or on a free one for 0.
    pub(super) fn bind(port: u16) -> Result<Self, McpFailure> {
        let listener = Self::listen(port).map_err(|error| {
            McpFailure::Unauthorized(format!("could not listen on 127.0.0.1:{port}: {error}"))
        })?;
        let port = listener.local_addr().map_or(port, |address| address.port());
        Ok(Self { listener, redirect_uri: format!("http://127.0.0.1:{port}{PATH}") })
    }

    fn listen(port: u16) -> io::Result<TcpListener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// The address of the redirect.
    pub(super) fn redirect_uri(&self) -> &str {
        &self.redirect_uri
    }

    /// Waits for the answer that is expected. Others go to `on_foreign`, and do not end the login: every page of the
    /// browser can send one.
    pub(super) fn wait_for_code(
        &self,
        expected: &ExpectedAnswer<'_>,
        input: BorrowedFd<'_>,
        has_browser: bool,
        cancel: &CancelToken,
        on_foreign: &mut dyn FnMut(&str),
    ) -> Result<String, McpFailure> {
        let deadline = Instant::now() + LOGIN_TIMEOUT;
        let mut connections: Vec<BrowserConnection> = Vec::new();
        let mut pasted = Vec::new();
        let mut input = Some(input);
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(McpFailure::Unauthorized(
                    "there was no answer to the login for 10 minutes".into(),
                ));
            }
            let fds = [Some(cancel.fd()), Some(self.listener.as_fd()), input];
            let streams = connections.iter().map(|connection| connection.stream.as_fd());
            let mut watched: Vec<PollFd<'_>> = fds
                .into_iter()
                .flatten()
                .chain(streams)
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            let _ = poll(&mut watched, Some(&to_timespec(rest)));
            if cancel.is_requested() {
                return Err(McpFailure::Cancelled);
            }
            let is_input_ready = input.is_some() && !watched[2].revents().is_empty();
            let mut answers = Vec::new();
            connections.retain_mut(|connection| match connection.read_target() {
                Ok(None) => true,
                Ok(Some(target)) => {
                    answers.push((target, connection.stream.try_clone()));
                    false
                }
                Err(_) => false,
            });
            for (target, stream) in answers {
                let outcome = target.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('?'));
                let outcome = outcome.map(|query| expected.code(query));
                if let Ok(stream) = stream {
                    send_page(stream, outcome.as_ref());
                }
                if let Some(login_end) =
                    outcome.and_then(|outcome| end_of_login(outcome, on_foreign))
                {
                    return login_end;
                }
            }
            if let Ok((stream, _)) = self.listener.accept()
                && stream.set_nonblocking(true).is_ok()
            {
                if connections.len() == MAX_CONNECTIONS {
                    connections.remove(0);
                }
                connections.push(BrowserConnection { stream, head: Vec::new() });
            }
            let Some(fd) = input.filter(|_| is_input_ready) else { continue };
            let mut buffer = [0; 4096];
            let count = rustix::io::read(fd, &mut buffer).unwrap_or(0);
            pasted.extend_from_slice(&buffer[..count]);
            while let Some(end) = pasted.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pasted.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                let query = line.split_once('?').map_or(line.as_str(), |(_, query)| query);
                if line.is_empty() {
                    continue;
                }
                if let Some(login_end) = end_of_login(expected.code(query), on_foreign) {
                    return login_end;
                }
            }
            if count == 0 || pasted.len() > MAX_INPUT_BYTES {
                input = None;
                if !has_browser {
                    let message = "no browser could be opened, and no address was pasted";
                    return Err(McpFailure::Unauthorized(message.into()));
                }
            }
        }
    }
}

/// The end of the login, if the answer is one to it.
fn end_of_login(
    outcome: Result<String, LoginAnswerError>,
    on_foreign: &mut dyn FnMut(&str),
) -> Option<Result<String, McpFailure>> {
    match outcome {
        Ok(code) => Some(Ok(code)),
        Err(LoginAnswerError::Failed(reason)) => Some(Err(McpFailure::Unauthorized(reason))),
        Err(LoginAnswerError::Foreign(reason)) => {
            on_foreign(&reason);
            None
        }
    }
}

impl BrowserConnection {
    /// The target of a GET request, once its head is complete.
    fn read_target(&mut self) -> io::Result<Option<String>> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.head.extend_from_slice(&buffer[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        if self.head.len() > MAX_INPUT_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if !self.head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
            return Ok(None);
        }
        let head = String::from_utf8_lossy(&self.head);
        let mut words = head.lines().next().unwrap_or_default().split(' ');
        match (words.next(), words.next()) {
            (Some("GET"), Some(target)) => Ok(Some(target.to_owned())),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Answers the browser. It may have gone already.
fn send_page(mut stream: TcpStream, outcome: Option<&Result<String, LoginAnswerError>>) {
    let (status, text) = match outcome {
        Some(Ok(_)) => ("200 OK", "delta has the answer. You can close this page."),
        Some(Err(LoginAnswerError::Failed(_))) => {
            ("400 Bad Request", "The login failed. delta says why.")
        }
        Some(Err(LoginAnswerError::Foreign(_))) => {
            ("400 Bad Request", "This is not the answer of this login.")
        }
        None => ("404 Not Found", "There is nothing here."),
    };
    let length = text.len();
    // The address of the page has the code.
    let page = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}"
    );
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(PAGE_TIMEOUT));
    let _ = stream.write_all(page.as_bytes());
}
