//! The routes of a new network namespace: three messages of rtnetlink(7), written by hand because the libraries for it
//! bring ten crates and more.
#![cfg(target_os = "linux")]

use super::host_policy::NAMESPACE_ADDRESS;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST: u16 = 0x0001 | 0x0004;
/// `NLM_F_CREATE | NLM_F_REPLACE`.
const CREATE: u16 = 0x0400 | 0x0100;

/// The loopback interface is the first of each namespace.
const LOOPBACK_INDEX: u32 = 1;
const IFF_UP: u32 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Brings up the loopback interface of the network namespace of this thread.
pub fn bring_up_loopback() -> io::Result<()> {
    let mut body = vec![0; 4];
    for word in [LOOPBACK_INDEX, IFF_UP, IFF_UP] {
        body.extend(word.to_ne_bytes());
    }
    RouteSocket::open()?.request(RTM_NEWLINK, 0, &body)
}

/// Makes every address local, so that all traffic ends at the sockets of the namespace.
pub(super) fn route_everything_to_loopback() -> io::Result<()> {
    let socket = RouteSocket::open()?;
    let mut address = vec![AF_INET, 32, 0, 0];
    address.extend(LOOPBACK_INDEX.to_ne_bytes());
    push_attribute(&mut address, IFA_LOCAL, NAMESPACE_ADDRESS.octets());
    socket.request(RTM_NEWADDR, CREATE, &address)?;
    socket.request(RTM_NEWROUTE, CREATE, &local_route(AF_INET))?;
    // Without IPv6 there is nothing that could be reached over it.
    match socket.request(RTM_NEWROUTE, CREATE, &local_route(AF_INET6)) {
        Err(error) if is_without_ipv6(&error) => Ok(()),
        result => result,
    }
}

/// Whether an error means that the machine has no IPv6.
pub(super) fn is_without_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let missing = [
        Errno::AFNOSUPPORT,
        Errno::OPNOTSUPP,
        Errno::ADDRNOTAVAIL,
        Errno::NODEV,
        Errno::NETUNREACH,
        Errno::ACCESS,
        Errno::INVAL,
    ];
    missing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// `local default dev lo`.
fn local_route(family: u8) -> Vec<u8> {
    let scope = if family == AF_INET { RT_SCOPE_HOST } else { 0 };
    let mut body = vec![family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_STATIC, scope, RTN_LOCAL];
    body.extend([0; 4]);
    push_attribute(&mut body, RTA_OIF, LOOPBACK_INDEX.to_ne_bytes());
    body
}

/// Appends an attribute of four bytes, which needs no padding.
fn push_attribute(body: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    body.extend(8u16.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
}

struct RouteSocket(OwnedFd);

impl RouteSocket {
    fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is 0.
            None,
        )?;
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends one request and waits for the kernel's verdict, which it writes before `send` returns.
    fn request(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((REQUEST | flags).to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;
        let mut answer = [0; 512];
        let (filled, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        match answer[..filled] {
            [_, _, _, _, low, high, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..]
                if u16::from_ne_bytes([low, high]) == NLMSG_ERROR =>
            {
                match i32::from_ne_bytes([a, b, c, d]) {
                    0 => Ok(()),
                    code => Err(io::Error::from_raw_os_error(-code)),
                }
            }
            _ => Err(io::Error::other("the kernel's answer about the network is not understood")),
        }
    }
}
