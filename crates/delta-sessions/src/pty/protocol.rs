//! The protocol between a command and the holder of a session: frames of JSON followed by bytes, over a Unix socket.
//!
//! Neither side blocks in a read or a write, and a frame is bounded: a peer that sends too much, or nothing, delays no
//! other peer.

use super::screen::TerminalSize;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The most input that one request can type.
pub(super) const MAX_INPUT_BYTES: usize = 1 << 20;
/// The largest JSON of a request.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// The largest JSON of a reply: all output that is kept, each byte escaped.
const MAX_REPLY_BYTES: usize = 8 << 20;
/// How much is read from a socket at once.
const SOCKET_BUFFER_BYTES: usize = 64 * 1024;

/// What a command asks of a holder.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HolderRequest {
    Status,
    /// Type the bytes of the frame.
    Write,
    Keys(Vec<String>),
    Read(ReadQuery),
    /// Send output until the session ends, from its last lines or from the first unread byte.
    Follow {
        raw: bool,
        lines: Option<usize>,
    },
    Resize {
        cols: Option<u16>,
        rows: Option<u16>,
    },
    /// Show the screen and its changes; `Write` then types without a reply.
    Attach(TerminalSize),
    /// The new size of the attached terminal.
    Resized(TerminalSize),
    Detach,
    End,
}

/// What to read, and how long to wait for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReadQuery {
    pub(crate) form: OutputForm,
    /// Read the last lines of all output that is kept, instead of unread output.
    pub(crate) lines: Option<usize>,
    /// The text to wait for.
    pub(crate) wait: Option<String>,
    /// Whether that is a regular expression.
    pub(crate) regex: bool,
    pub(crate) timeout_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OutputForm {
    /// Without control sequences.
    Text,
    /// As the program printed it.
    Raw,
    /// The screen that it has drawn.
    Screen,
}

/// What a holder replies.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HolderReply {
    /// The JSON that the command prints.
    Done(Box<serde_json::value::RawValue>),
    /// Why the request failed.
    Refused(String),
    /// Output, in the bytes of the frame.
    Output,
    /// The last reply: the session has ended, or else the terminal was detached. Its names on the socket are older,
    /// because a holder outlives an update of delta.
    #[serde(rename = "Over")]
    Closed {
        #[serde(rename = "ended")]
        session_ended: bool,
        exit_code: Option<i32>,
    },
}

/// One end of a connection between a command and a holder.
#[derive(Debug)]
pub(super) struct HolderConnection {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    closed: bool,
    /// The largest JSON that is accepted.
    max_head_bytes: usize,
}

impl HolderConnection {
    pub(super) fn for_holder(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream, MAX_REQUEST_BYTES)
    }

    pub(super) fn for_command(stream: UnixStream) -> io::Result<Self> {
        Self::new(stream, MAX_REPLY_BYTES)
    }

    fn new(stream: UnixStream, max_head_bytes: usize) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), unsent: Vec::new(), closed: false, max_head_bytes })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether the other side has closed the connection or has sent something that is not a frame.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// Queues a frame for sending.
    pub(super) fn push_frame(&mut self, head: &impl Serialize, body: &[u8]) {
        let head = serde_json::to_vec(head).unwrap_or_default();
        for part in [&head[..], body] {
            // Both are far below 4 GiB.
            self.unsent.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
        self.unsent.extend(head);
        self.unsent.extend(body);
    }

    /// Sends as much as the other side accepts.
    pub(super) fn send(&mut self) {
        let mut sent = 0;
        while sent < self.unsent.len() && !self.closed {
            // SIGPIPE is ignored, so writing to a closed socket is an error.
            match rustix::io::write(&self.stream, &self.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.closed = true,
            }
        }
        self.unsent.drain(..sent);
    }

    /// Receives what has arrived.
    pub(super) fn receive(&mut self) {
        let mut buffer = vec![0; SOCKET_BUFFER_BYTES];
        while !self.closed && self.received.len() <= self.max_head_bytes + MAX_INPUT_BYTES {
            match rustix::io::read(&self.stream, &mut buffer[..]) {
                Ok(0) => self.closed = true,
                Ok(count) => self.received.extend(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.closed = true,
            }
        }
    }

    /// The next frame, once all of it has arrived.
    pub(super) fn take_frame<T: DeserializeOwned>(&mut self) -> Option<(T, Vec<u8>)> {
        let head_length = self.length_at(0)?;
        let body_length = self.length_at(4)?;
        if head_length > self.max_head_bytes || body_length > MAX_INPUT_BYTES {
            self.closed = true;
            return None;
        }
        let end = 8 + head_length + body_length;
        let (head, body) = self.received.get(8..end)?.split_at(head_length);
        let frame = serde_json::from_slice(head).ok().map(|head| (head, body.to_vec()));
        self.closed |= frame.is_none();
        self.received.drain(..end);
        frame
    }

    fn length_at(&self, at: usize) -> Option<usize> {
        let bytes = self.received.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_be_bytes(bytes)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (HolderConnection, HolderConnection) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (
            HolderConnection::for_command(ours).unwrap(),
            HolderConnection::for_holder(theirs).unwrap(),
        )
    }

    #[test]
    fn c_14_5_a_frame_is_taken_as_a_whole() {
        let (mut command, mut holder) = pair();
        command.push_frame(&HolderRequest::Write, b"\0typed\n");
        command.push_frame(&HolderRequest::Detach, b"");
        command.send();
        holder.receive();
        let (request, body) = holder.take_frame::<HolderRequest>().unwrap();
        assert!(matches!(request, HolderRequest::Write));
        assert_eq!(body, b"\0typed\n");
        assert!(matches!(holder.take_frame(), Some((HolderRequest::Detach, _))));
        assert!(holder.take_frame::<HolderRequest>().is_none() && !holder.is_closed());
        drop(command);
        holder.receive();
        assert!(holder.is_closed());
    }

    #[test]
    fn c_14_5_a_malformed_frame_ends_the_connection() {
        for bytes in [
            &b"\xff\xff\xff\xff\0\0\0\0"[..],
            b"\0\0\0\x02\xff\0\0\0",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\0\0\0\x02\0\0\0\0{}",
        ] {
            let (command, mut holder) = pair();
            rustix::io::write(&command.stream, bytes).unwrap();
            holder.receive();
            assert!(holder.take_frame::<HolderRequest>().is_none());
            assert!(holder.is_closed(), "{bytes:?}");
        }
    }
}
