//! Two connections, of a tool and of a host, that are passed through to each other: every byte, the end of each
//! direction, and a reset.
#![cfg(target_os = "linux")]

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Reads after one event before other connections have their turn.
const READS_PER_TURN: usize = 4;

/// The side of a relay.
pub(super) const TOOL: usize = 0;
/// The side of a relay.
pub(super) const HOST: usize = 1;

/// A relay between a tool and a host.
#[derive(Debug)]
pub(super) struct HostRelay {
    sides: [OwnedFd; 2],
    /// The flow from the side of this index to the other one.
    flows: [RelayFlow; 2],
}

#[derive(Debug, Default)]
struct RelayFlow {
    /// What the target did not take yet. While there is something, the source is not read.
    pending: Vec<u8>,
    /// The source will send nothing more.
    is_ended: bool,
    /// The target knows that.
    is_shut: bool,
}

/// The connection was reset.
#[derive(Debug)]
pub(super) struct RelayReset;

impl HostRelay {
    /// A relay between two sockets that do not block.
    pub fn new(tool: OwnedFd, host: OwnedFd) -> Self {
        Self { sides: [tool, host], flows: Default::default() }
    }

    pub fn socket(&self, side: usize) -> &OwnedFd {
        &self.sides[side]
    }

    /// What to wait for on a side; `None` when it has nothing more to do.
    pub fn interest(&self, side: usize) -> Option<EventFlags> {
        let from = &self.flows[side];
        let to = &self.flows[1 - side];
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, !from.is_ended && from.pending.is_empty());
        flags.set(EventFlags::OUT, !to.pending.is_empty());
        let is_finished = from.is_ended && to.is_shut;
        (!is_finished || !flags.is_empty()).then_some(flags)
    }

    pub fn is_finished(&self) -> bool {
        self.flows.iter().all(|flow| flow.is_shut)
    }

    /// Passes through what an event on a side allows; returns the bytes that the tool and the host sent.
    pub fn advance(
        &mut self,
        side: usize,
        events: EventFlags,
        scratch: &mut [u8],
    ) -> Result<[u64; 2], RelayReset> {
        let interest = self.interest(side).unwrap_or(EventFlags::empty());
        if interest.is_empty() && events.intersects(EventFlags::HUP | EventFlags::ERR) {
            return Err(RelayReset);
        }
        let mut passed = [0; 2];
        for from in [1 - side, side] {
            passed[from] = self.pump(from, scratch)?;
        }
        Ok(passed)
    }

    fn pump(&mut self, from: usize, scratch: &mut [u8]) -> Result<u64, RelayReset> {
        let mut passed = self.flush(from);
        let mut reads = 0;
        while reads < READS_PER_TURN
            && !self.flows[from].is_ended
            && self.flows[from].pending.is_empty()
        {
            reads += 1;
            match recv(&self.sides[from], &mut *scratch, RecvFlags::empty()) {
                Ok((0, _)) => self.flows[from].is_ended = true,
                Ok((length, _)) => {
                    let sent = self.write(from, &scratch[..length]);
                    passed += sent as u64;
                    if !self.flows[from].is_ended {
                        self.flows[from].pending = scratch[sent..length].to_vec();
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => return Err(RelayReset),
            }
        }
        let flow = &mut self.flows[from];
        if flow.is_ended && flow.pending.is_empty() && !flow.is_shut {
            // An error means that the target is gone, and knows.
            let _ = shutdown(&self.sides[1 - from], Shutdown::Write);
            flow.is_shut = true;
        }
        Ok(passed)
    }

    fn flush(&mut self, from: usize) -> u64 {
        if self.flows[from].pending.is_empty() {
            return 0;
        }
        let pending = std::mem::take(&mut self.flows[from].pending);
        let sent = self.write(from, &pending);
        if !self.flows[from].is_shut {
            self.flows[from].pending = pending[sent..].to_vec();
        }
        sent as u64
    }

    /// Sends to the target what it takes. A target that takes nothing more ends this flow, not the other one, which may
    /// have the answer that explains it.
    fn write(&mut self, from: usize, bytes: &[u8]) -> usize {
        match send(&self.sides[1 - from], bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(_) => {
                self.flows[from] = RelayFlow { is_ended: true, is_shut: true, pending: Vec::new() };
                0
            }
        }
    }
}

/// Makes the kernel send a reset when the socket is closed.
pub(super) fn reset_when_closed(socket: &OwnedFd) {
    // A socket that cannot do this is closed in the usual way.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
