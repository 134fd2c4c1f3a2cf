//! The sockets of a network namespace that are served from outside.
#![cfg(target_os = "linux")]

use super::host_policy::{DNS_PORT, HostPolicy};
use super::loopback_routes::{bring_up_loopback, is_without_ipv6, route_everything_to_loopback};
use super::refusal_tap::open_refusal_tap;
use crate::plan::{MAX_DESCRIPTORS, receive_with_descriptors, send_with_descriptors};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const BACKLOG: i32 = 512;

/// Sockets of a network namespace: they keep their namespace when another process has them.
#[derive(Debug)]
pub struct HostSockets {
    pub(super) sockets: Vec<OwnedFd>,
}

impl HostSockets {
    /// Makes the network namespace of this thread, which has to be a new one, reach the service that gets the sockets.
    /// Needs CAP_NET_ADMIN, CAP_NET_BIND_SERVICE and CAP_NET_RAW in the namespace.
    pub fn create(policy: &HostPolicy) -> io::Result<Self> {
        bring_up_loopback()?;
        route_everything_to_loopback()?;
        let mut sockets = vec![bind_name_server((Ipv4Addr::UNSPECIFIED, DNS_PORT).into())?];
        for address in policy.machine().special_name_servers() {
            sockets.extend(unless_without_ipv6(bind_name_server((address, DNS_PORT).into()))?);
        }
        for address in policy.listen_addresses() {
            let socket = bind_socket(SocketType::STREAM, address).and_then(|socket| {
                listen(&socket, BACKLOG)?;
                Ok(socket)
            });
            sockets.extend(unless_without_ipv6(socket).map_err(|error| {
                io::Error::new(error.kind(), format!("could not listen at {address}: {error}"))
            })?);
        }
        sockets.push(open_refusal_tap()?);
        Ok(Self { sockets })
    }

    /// Sends the sockets through a Unix socket.
    pub fn send(&self, through: BorrowedFd<'_>) -> io::Result<()> {
        for (index, batch) in self.sockets.chunks(MAX_DESCRIPTORS).enumerate() {
            let is_last = (index + 1) * MAX_DESCRIPTORS >= self.sockets.len();
            let batch: Vec<_> = batch.iter().map(AsFd::as_fd).collect();
            send_with_descriptors(through, &[u8::from(is_last)], &batch)?;
        }
        Ok(())
    }

    /// Receives what [`Self::send`] sent.
    pub fn receive(through: BorrowedFd<'_>) -> io::Result<Self> {
        let mut sockets = Vec::new();
        loop {
            let mut is_last = [0];
            let (count, descriptors) = receive_with_descriptors(through, &mut is_last)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            sockets.extend(descriptors);
            if is_last[0] == 1 {
                return Ok(Self { sockets });
            }
        }
    }
}

fn bind_name_server(address: SocketAddr) -> io::Result<OwnedFd> {
    bind_socket(SocketType::DGRAM, address)
}

fn bind_socket(kind: SocketType, address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, kind, flags, None)?;
    // Several sockets of the same port: the one with the closest address gets a packet.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_freebind(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(socket)
}

fn unless_without_ipv6(socket: io::Result<OwnedFd>) -> io::Result<Option<OwnedFd>> {
    match socket {
        Err(error) if is_without_ipv6(&error) => Ok(None),
        socket => socket.map(Some),
    }
}
