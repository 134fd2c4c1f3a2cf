//! What a command and the holder of a session say to each other: frames of JSON with bytes behind it, over a Unix socket.
//!
//! Neither side ever waits for the other in a read or a write, and a frame is bounded: whoever says too much, or nothing,
//! keeps nobody else waiting.

use super::screen::Size;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// At most so much is typed at once.
pub(super) const TYPED: usize = 1 << 20;
/// The largest JSON of a request.
const REQUEST: usize = 64 * 1024;
/// The largest JSON of a reply: all that is kept, each byte escaped.
const REPLY: usize = 8 << 20;
/// How much is read from a socket at once.
const BUFFER: usize = 64 * 1024;

/// What a command asks of a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    Status,
    /// Type the bytes of the frame.
    Write,
    Keys(Vec<String>),
    Read(Look),
    /// Send output until the session ends, beginning with its last lines, or with what was not read.
    Follow {
        raw: bool,
        lines: Option<usize>,
    },
    Resize {
        cols: Option<u16>,
        rows: Option<u16>,
    },
    /// Show the screen, and what is printed; what comes is typed.
    Attach(Size),
    /// The size of the terminal that is attached.
    Resized(Size),
    Detach,
    End,
}

/// What is to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// In which form.
    pub form: Form,
    /// The last lines of all that is kept, in place of what was not read yet.
    pub lines: Option<usize>,
    /// A text that is waited for.
    pub wait: Option<String>,
    /// Whether that is a regular expression.
    pub regex: bool,
    /// How long is waited at most.
    pub timeout_ms: u64,
}

/// What of the output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// Its text.
    Text,
    /// All of it.
    Raw,
    /// What it has drawn.
    Screen,
}

/// What a holder answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// What the command prints, as JSON.
    Done(Box<serde_json::value::RawValue>),
    /// Why it could not be done.
    Refused(String),
    /// Output, in the bytes of the frame.
    Output,
    /// Nothing follows, because the session ended, or else because somebody detached the terminal.
    Over { ended: bool, exit_code: Option<i32> },
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    received: Vec<u8>,
    /// What is still to be sent.
    waiting: Vec<u8>,
    closed: bool,
    /// The largest JSON that is taken.
    limit: usize,
}

impl Link {
    /// That of a holder.
    pub(super) fn of_holder(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream, REQUEST)
    }

    /// That of a command.
    pub(super) fn of_command(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream, REPLY)
    }

    fn new(stream: UnixStream, limit: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), waiting: Vec::new(), closed: false, limit })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether the other side has gone, or has said what no frame is.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// How much is still to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a frame to what is to be sent.
    pub(super) fn push(&mut self, head: &impl Serialize, body: &[u8]) {
        let head = serde_json::to_vec(head).unwrap_or_default();
        for part in [&head[..], body] {
            // Both are far below 4 GiB.
            self.waiting.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
        self.waiting.extend(head);
        self.waiting.extend(body);
    }

    /// Sends as much as the other side takes.
    pub(super) fn send(&mut self) {
        let mut sent = 0;
        while sent < self.waiting.len() && !self.closed {
            // A socket whose other side has gone is an error here, for SIGPIPE is ignored.
            match rustix::io::write(&self.stream, &self.waiting[sent..]) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.closed = true,
            }
        }
        self.waiting.drain(..sent);
    }

    /// Takes what has come.
    pub(super) fn receive(&mut self) {
        let mut buffer = vec![0; BUFFER];
        while !self.closed && self.received.len() <= self.limit + TYPED {
            match rustix::io::read(&self.stream, &mut buffer[..]) {
                Ok(0) => self.closed = true,
                Ok(count) => self.received.extend(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.closed = true,
            }
        }
    }

    /// The next frame, once it is there as a whole.
    pub(super) fn take<T: DeserializeOwned>(&mut self) -> Option<(T, Vec<u8>)> {
        let length = |at: usize| {
            let bytes = self.received.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(bytes)).ok()
        };
        let (head, body) = (length(0)?, length(4)?);
        if head > self.limit || body > TYPED {
            self.closed = true;
            return None;
        }
        let frame = self.received.get(8..8 + head + body)?;
        let parsed = serde_json::from_slice(&frame[..head]).ok();
        let body = frame[head..].to_vec();
        self.received.drain(..8 + head + body.len());
        if parsed.is_none() {
            self.closed = true;
        }
        parsed.map(|parsed| (parsed, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Link, Link) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Link::of_command(ours).unwrap(), Link::of_holder(theirs).unwrap())
    }

    #[test]
    fn c_14_5_a_frame_is_taken_as_a_whole() {
        let (mut command, mut holder) = pair();
        command.push(&Request::Write, b"\0typed\n");
        command.push(&Request::Detach, b"");
        command.send();
        holder.receive();
        let (request, body) = holder.take::<Request>().unwrap();
        assert!(matches!(request, Request::Write));
        assert_eq!(body, b"\0typed\n");
        assert!(matches!(holder.take(), Some((Request::Detach, _))));
        assert!(holder.take::<Request>().is_none() && !holder.is_closed());
        drop(command);
        holder.receive();
        assert!(holder.is_closed());
    }

    #[test]
    fn c_14_5_what_is_no_frame_ends_the_connection() {
        for bytes in [
            &b"\xff\xff\xff\xff\0\0\0\0"[..],
            b"\0\0\0\x02\xff\0\0\0",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0\0\0\x02\0\0\0\0{}",
        ] {
            let (command, mut holder) = pair();
            rustix::io::write(&command.stream, bytes).unwrap();
            holder.receive();
            assert!(holder.take::<Request>().is_none());
            assert!(holder.is_closed(), "{bytes:?}");
        }
    }
}
