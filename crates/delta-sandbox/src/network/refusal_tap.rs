//! A packet socket that sees what a tool tried to reach where nothing listens, so that a refusal can name it.
//!
//! The kernel refuses such packets itself and at once; the tap only counts. Its filter in the kernel lets through the
//! first packet of a TCP connection and UDP other than DNS, never the traffic of connections.
#![cfg(target_os = "linux")]

use super::host_policy::DNS_PORT;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const IPV6_HEADER: usize = 40;
/// The longest IPv4 header, and the part of a TCP header with ports and flags.
pub(super) const TAP_LENGTH: usize = 60 + 20;

/// An attempt to send something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NetworkAttempt {
    pub to: SocketAddr,
    pub is_udp: bool,
}

impl NetworkAttempt {
    /// Parses a packet from its IP header on; `None` for what the filter should have dropped.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (ip, protocol, transport): (IpAddr, u8, &[u8]) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 0xF) * 4;
                let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
                (Ipv4Addr::from(address).into(), *packet.get(9)?, packet.get(header..)?)
            }
            6 => {
                let address: [u8; 16] = packet.get(24..IPV6_HEADER)?.try_into().ok()?;
                (Ipv6Addr::from(address).into(), *packet.get(6)?, packet.get(IPV6_HEADER..)?)
            }
            _ => return None,
        };
        let port_at =
            |at: usize| Some(u16::from_be_bytes(transport.get(at..at + 2)?.try_into().ok()?));
        let port = port_at(2)?;
        let is_attempt = match protocol {
            TCP => transport.get(13)? & (SYN | ACK) == SYN,
            UDP => port != DNS_PORT && port_at(0)? != DNS_PORT,
            _ => false,
        };
        let to = SocketAddr::new(ip, port);
        is_attempt.then_some(Self { to, is_udp: protocol == UDP })
    }
}

/// Opens the tap of the network namespace of this thread.
pub(super) fn open_refusal_tap() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(eth::ALL))?;
    let incoming_only: libc::c_int = 1;
    set_socket_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &incoming_only)?;
    let mut filter = tap_filter();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_mut_ptr(),
    };
    set_socket_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    Ok(socket)
}

/// Linux 4.20; not in the libc crate for all systems.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// rustix has neither of the options of packet sockets.
fn set_socket_option<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `length` bytes of `value`, and through the pointer of a filter its `len` instructions;
    // the caller keeps both alive.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An instruction, how many to skip when its test holds and when it does not, and its operand.
type FilterStep = (u32, u8, u8, u32);

const KEEP: FilterStep = (libc::BPF_RET | libc::BPF_K, 0, 0, TAP_LENGTH as u32);
const DROP: FilterStep = (libc::BPF_RET | libc::BPF_K, 0, 0, 0);

fn jump_if_equal(value: u32, yes: u8, no: u8) -> FilterStep {
    (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value)
}

/// Loads so many bytes from this place of the packet.
fn load_bytes(size: u32, at: u32) -> FilterStep {
    (libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at)
}

/// The same, from the end of the header of IPv4 on.
fn load_after_header(size: u32, at: u32) -> FilterStep {
    (libc::BPF_LD | size | libc::BPF_IND, 0, 0, at)
}

/// Drops DNS in both directions.
fn judge_udp(load_source: FilterStep, load_port: FilterStep) -> [FilterStep; 6] {
    let dns = u32::from(DNS_PORT);
    [load_source, jump_if_equal(dns, 3, 0), load_port, jump_if_equal(dns, 1, 0), KEEP, DROP]
}

/// The filter in classic BPF, over a packet from its IP header on.
fn tap_filter() -> Vec<libc::sock_filter> {
    use libc::{
        BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JMP, BPF_JSET, BPF_K, BPF_LDX, BPF_MSH, BPF_RSH, BPF_W,
    };
    let flags = (BPF_ALU | BPF_AND | BPF_K, 0, 0, u32::from(SYN | ACK));
    let judge_tcp = [flags, jump_if_equal(u32::from(SYN), 0, 1), KEEP, DROP];
    let version =
        [load_bytes(BPF_B, 0), (BPF_ALU | BPF_RSH | BPF_K, 0, 0, 4), jump_if_equal(4, 0, 19)];
    let ip4 = [
        // Not to the loopback, not a later fragment.
        load_bytes(BPF_B, 16),
        jump_if_equal(127, 16, 0),
        load_bytes(BPF_H, 6),
        (BPF_JMP | BPF_JSET | BPF_K, 14, 0, 0x1FFF),
        // From here on, the length of the header is known.
        (BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0),
        load_bytes(BPF_B, 9),
        jump_if_equal(u32::from(UDP), 6, 0),
        jump_if_equal(u32::from(TCP), 0, 10),
        load_after_header(BPF_B, 13),
    ];
    let udp4 = judge_udp(load_after_header(BPF_H, 0), load_after_header(BPF_H, 2));
    let ip6 = [
        jump_if_equal(6, 0, 21),
        // Not to ::1.
        load_bytes(BPF_W, 24),
        jump_if_equal(0, 0, 6),
        load_bytes(BPF_W, 28),
        jump_if_equal(0, 0, 4),
        load_bytes(BPF_W, 32),
        jump_if_equal(0, 0, 2),
        load_bytes(BPF_W, 36),
        jump_if_equal(1, 13, 0),
        load_bytes(BPF_B, 6),
        jump_if_equal(u32::from(UDP), 6, 0),
        jump_if_equal(u32::from(TCP), 0, 10),
        load_bytes(BPF_B, 40 + 13),
    ];
    let udp6 = judge_udp(load_bytes(BPF_H, 40), load_bytes(BPF_H, 42));
    [&version[..], &ip4, &judge_tcp, &udp4, &ip6, &judge_tcp, &udp6]
        .concat()
        .into_iter()
        .map(|(code, jt, jf, k)| libc::sock_filter { code: code as u16, jt, jf, k })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs the filter as the kernel does; a load after the end of the packet drops it.
    fn is_let_through(packet: &[u8]) -> bool {
        let load = |at: usize, size: usize| {
            let bytes = packet.get(at..at + size)?;
            Some(bytes.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)))
        };
        let filter = tap_filter();
        let mut at = 0;
        let mut accumulator = 0u32;
        let mut index = 0usize;
        loop {
            let step = filter[at];
            let constant = step.k as usize;
            let loaded = match u32::from(step.code) {
                0x20 => load(constant, 4),
                0x28 => load(constant, 2),
                0x30 => load(constant, 1),
                0x48 => load(index + constant, 2),
                0x50 => load(index + constant, 1),
                0xB1 => {
                    let Some(first) = load(constant, 1) else { return false };
                    index = (first as usize & 0xF) * 4;
                    Some(accumulator)
                }
                0x54 => Some(accumulator & step.k),
                0x74 => Some(accumulator >> step.k),
                0x15 | 0x45 => {
                    let is_true = match step.code {
                        0x15 => accumulator == step.k,
                        _ => accumulator & step.k != 0,
                    };
                    at += usize::from(if is_true { step.jt } else { step.jf });
                    Some(accumulator)
                }
                0x06 => return step.k > 0,
                code => panic!("unknown instruction {code:#x}"),
            };
            let Some(loaded) = loaded else { return false };
            accumulator = loaded;
            at += 1;
        }
    }

    fn packet_of(version: u8, protocol: u8, to: &[u8], ports: [u16; 2], flags: u8) -> Vec<u8> {
        let mut packet = vec![0; if version == 4 { 20 } else { 40 }];
        packet[0] = version << 4 | 5;
        match version {
            4 => {
                packet[9] = protocol;
                packet[16..20].copy_from_slice(to);
            }
            _ => {
                packet[6] = protocol;
                packet[24..40].copy_from_slice(to);
            }
        }
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        packet
    }

    proptest! {
        /// What the filter lets through is an attempt, and every attempt to a place outside is let through.
        #[test]
        fn the_filter_and_the_parser_agree(
            is_version_6: bool,
            protocol in prop::sample::select(vec![TCP, UDP, 1, 58]),
            to in prop::sample::select(vec!["9.9.9.9", "127.0.0.1", "2001:db8::1", "::1", "::2", "0:1::1", "0:0:1::1"]),
            source in prop::sample::select(vec![53u16, 4000]),
            port in prop::sample::select(vec![53u16, 443]),
            flags in prop::sample::select(vec![SYN, SYN | ACK, ACK, SYN | 0xC0, 0]),
            cut in 0usize..60,
        ) {
            let Ok(to) = to.parse::<IpAddr>() else { return Ok(()) };
            prop_assume!(to.is_ipv6() == is_version_6);
            let packet = match to {
                IpAddr::V4(to) => packet_of(4, protocol, &to.octets(), [source, port], flags),
                IpAddr::V6(to) => packet_of(6, protocol, &to.octets(), [source, port], flags),
            };
            let attempt = NetworkAttempt::parse(&packet);
            prop_assert_eq!(is_let_through(&packet), attempt.is_some() && !to.is_loopback());
            if let Some(attempt) = attempt {
                prop_assert_eq!(attempt, NetworkAttempt { to: (to, port).into(), is_udp: protocol == UDP });
            }
            let cut = &packet[..cut.min(packet.len())];
            prop_assert!(!is_let_through(cut) || NetworkAttempt::parse(cut).is_some() || to.is_loopback());
        }

        #[test]
        fn garbage_is_dropped_by_the_parser_at_the_latest(packet: Vec<u8>) {
            NetworkAttempt::parse(&packet);
            is_let_through(&packet);
        }
    }
}
