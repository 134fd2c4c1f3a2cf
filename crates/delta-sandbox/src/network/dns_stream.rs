//! DNS over TCP: each message has its length before it.
#![cfg(target_os = "linux")]

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;

/// A query has a name of at most 255 bytes.
const MAX_QUERY: usize = 1500;

/// A connection to the name server.
#[derive(Debug)]
pub(super) struct DnsStream {
    socket: OwnedFd,
    received: Vec<u8>,
}

impl DnsStream {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, received: Vec::new() }
    }

    /// Answers the queries that arrived; false when the connection is to be closed.
    pub fn serve(&mut self, mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> bool {
        let mut part = [0; MAX_QUERY];
        match recv(&self.socket, &mut part[..], RecvFlags::empty()) {
            Ok((0, _)) => return false,
            Ok((length, _)) => self.received.extend(&part[..length]),
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        }
        while let [high, low, rest @ ..] = self.received.as_slice() {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_QUERY {
                return false;
            }
            let Some(query) = rest.get(..length) else { return true };
            let Some(response) = answer(query) else { return false };
            let mut message = (response.len() as u16).to_be_bytes().to_vec();
            message.extend(response);
            // A client that does not read its answers is not waited for.
            if send(&self.socket, &message, SendFlags::NOSIGNAL) != Ok(message.len()) {
                return false;
            }
            self.received.drain(..2 + length);
        }
        true
    }
}
