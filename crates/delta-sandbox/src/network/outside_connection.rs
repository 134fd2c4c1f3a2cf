//! Connections to listed hosts, by name, from outside of the namespace. This blocks: each has a thread while it is made.
#![cfg(target_os = "linux")]

use super::host_policy::{HostPort, is_loopback_name};
use super::machine_names::MachineNames;
use super::proxy_settings::{HttpProxy, ProxySettings};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

/// For all addresses of a name together, and for the answer of a proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// For one address when the name has more of them.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_PROXY_ANSWER: usize = 16 * 1024;

/// Connects to hosts.
#[derive(Debug)]
pub(super) struct OutsideConnector {
    pub machine: MachineNames,
    pub proxies: ProxySettings,
}

impl OutsideConnector {
    /// Connects to a host of the list.
    pub fn connect(&self, to: &HostPort) -> io::Result<TcpStream> {
        let stream = match self.proxies.proxy_for(to) {
            Some(proxy) => self.connect_through(proxy, to)?,
            None => connect_to_one(&self.resolve(to)?)?,
        };
        // Only the tool and the host decide what is sent when.
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    fn resolve(&self, to: &HostPort) -> io::Result<Vec<SocketAddr>> {
        let at = |address: &IpAddr| SocketAddr::new(*address, to.port);
        if let Ok(address) = to.host.parse::<IpAddr>() {
            return Ok(vec![at(&address)]);
        }
        if is_loopback_name(&to.host) {
            return Ok(vec![at(&Ipv4Addr::LOCALHOST.into()), at(&Ipv6Addr::LOCALHOST.into())]);
        }
        let listed = self.machine.addresses_of(&to.host);
        if !listed.is_empty() {
            return Ok(listed.iter().map(at).collect());
        }
        let all: Vec<_> = (to.host.as_str(), to.port).to_socket_addrs()?.collect();
        // The owner of a name decides where it leads, and must not lead a tool to the services of this machine.
        match all.iter().find(|address| is_of_this_machine(address.ip())) {
            Some(address) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("its address {} is one of this machine", address.ip()),
            )),
            None => Ok(all),
        }
    }

    fn connect_through(&self, proxy: &HttpProxy, to: &HostPort) -> io::Result<TcpStream> {
        // The operator names the proxy, so it may be on this machine.
        let addresses = match self.machine.addresses_of(&proxy.address.host) {
            [] => (proxy.address.host.as_str(), proxy.address.port).to_socket_addrs()?.collect(),
            _ => self.resolve(&proxy.address)?,
        };
        let through = |error: io::Error| {
            io::Error::new(error.kind(), format!("the proxy {}: {error}", proxy.address))
        };
        let stream = connect_to_one(&addresses).map_err(through)?;
        request_tunnel(&stream, proxy, to).map_err(through)?;
        Ok(stream)
    }
}

/// Where clouds offer a machine what only it may know, apart from link-local addresses: Alibaba, Azure, Oracle; AWS and Google
/// over IPv6.
const CLOUD_SERVICES: [&str; 5] =
    ["100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"];

/// Whether an address leads to this machine, or to the services that a cloud offers it.
fn is_of_this_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_special = match address {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_link_local() || address.octets()[0] == 0
        }
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified()
        }
    };
    is_special
        || CLOUD_SERVICES.iter().any(|service| service.parse() == Ok(address))
        || is_own_address(address)
}

/// Whether an interface of this machine has the address: the kernel would send from it to itself. Nothing is sent.
fn is_own_address(address: IpAddr) -> bool {
    let unspecified = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let source = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

/// Tries the addresses in their order.
fn connect_to_one(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_last = index + 1 == addresses.len();
        let timeout = if is_last { left } else { left.min(ADDRESS_TIMEOUT) };
        if timeout.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks a proxy for a connection (RFC 9110, 9.3.6).
fn request_tunnel(mut stream: &TcpStream, proxy: &HttpProxy, to: &HostPort) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let authorization = proxy
        .authorization
        .as_ref()
        .map(|value| format!("Proxy-Authorization: {value}\r\n"))
        .unwrap_or_default();
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n")?;
    // Byte by byte: what follows belongs to the host.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte)? == 0 || answer.len() == MAX_PROXY_ANSWER {
            return Err(io::Error::other("it closed the connection"));
        }
        answer.push(byte[0]);
    }
    stream.set_read_timeout(None)?;
    let status = String::from_utf8_lossy(&answer);
    let status = status.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some(code) if status.starts_with("HTTP/1.") && code.starts_with('2') => Ok(()),
        _ => Err(io::Error::other(format!("it answered `{status}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_not_lead_to_this_machine() {
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "0.0.0.0",
            "::1",
            "fe80::1",
            "::",
            "::ffff:127.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
        ] {
            assert!(is_of_this_machine(address.parse().unwrap()), "{address}");
        }
        // The address from which this machine would reach another one, if it has a network.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("8.8.8.8:9").is_ok() {
            assert!(is_of_this_machine(socket.local_addr().unwrap().ip()));
        }
        for address in ["10.0.0.1", "192.168.1.1", "8.8.8.8", "2001:db8::1", "fd00::1"] {
            assert!(!is_of_this_machine(address.parse().unwrap()), "{address}");
        }
    }
}
