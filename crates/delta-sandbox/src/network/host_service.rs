//! The process outside of the namespace: one loop over all its sockets.
#![cfg(target_os = "linux")]

use super::count_keeper::CountKeeper;
use super::dns_message::{DnsQuestion, reject_dns_message};
use super::dns_stream::DnsStream;
use super::host_policy::{DNS_PORT, Destination, HostPolicy, HostPort, NameAnswer};
use super::host_relay::{HOST, HostRelay, TOOL, reset_when_closed};
use super::host_service_control::TAKE_COUNTS;
use super::host_sockets::HostSockets;
use super::outside_connection::OutsideConnector;
use super::proxy_settings::ProxySettings;
use super::refusal_tap::{NetworkAttempt, TAP_LENGTH};
use crate::sandbox_error::plain_error;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, getsockname, recv,
    recvfrom, sendto, sockopt,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};

const CONTROL: u64 = 0;
const CONNECTED: u64 = 1;
const FIRST_SOCKET: u64 = 2;
/// The ids of connections begin here; the number of sockets is far below.
const FIRST_CONNECTION: u64 = 1 << 32;

const EVENTS_PER_TURN: usize = 64;
/// A slow reader holds at most this much of a direction.
const SCRATCH: usize = 32 * 1024;
/// Each connection that is being made has a thread.
const MAX_CONNECTING: usize = 64;
/// Enough for the resolver of the C library.
const CONNECT_STACK: usize = 256 * 1024;
const MAX_CONNECTIONS: usize = 2000;
const MAX_DNS_STREAMS: usize = 64;
/// Turns before an answer to the engine, so that it includes what ended processes left in the sockets.
const TURNS_BEFORE_COUNTS: usize = 16;
/// Descriptors for everything but connections.
const SPARE_DESCRIPTORS: u64 = 200;

/// Serves the sockets of a namespace.
#[derive(Debug)]
pub struct HostService {
    epoll: OwnedFd,
    policy: HostPolicy,
    sockets: Vec<(SocketRole, OwnedFd)>,
    listening: BTreeSet<SocketAddr>,
    is_accepting: bool,
    max_connections: usize,
    relays: HashMap<u64, ServedRelay>,
    dns_streams: HashMap<u64, DnsStream>,
    next_id: u64,
    connector: Arc<OutsideConnector>,
    connecting: usize,
    waiting: VecDeque<WaitingConnection>,
    results: mpsc::Receiver<ConnectResult>,
    result_sender: mpsc::Sender<ConnectResult>,
    connected: Arc<OwnedFd>,
    counts: CountKeeper,
    scratch: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketRole {
    NameServer,
    Listener,
    Tap,
}

#[derive(Debug)]
struct ServedRelay {
    relay: HostRelay,
    to: HostPort,
}

/// A connection of a tool whose other end has to be made.
#[derive(Debug)]
struct WaitingConnection {
    tool: OwnedFd,
    to: HostPort,
}

#[derive(Debug)]
struct ConnectResult {
    connection: WaitingConnection,
    host: io::Result<TcpStream>,
}

impl HostService {
    /// A service of the sockets that were made with an equal policy.
    pub fn new(
        sockets: HostSockets,
        policy: HostPolicy,
        proxies: ProxySettings,
    ) -> io::Result<Self> {
        let mut roles = Vec::new();
        let mut listening = BTreeSet::new();
        for socket in sockets.sockets {
            let role = if sockopt::socket_domain(&socket)? == AddressFamily::PACKET {
                SocketRole::Tap
            } else if sockopt::socket_type(&socket)? == SocketType::DGRAM {
                SocketRole::NameServer
            } else {
                listening.insert(getsockname(&socket)?.try_into()?);
                SocketRole::Listener
            };
            roles.push((role, socket));
        }
        let (result_sender, results) = mpsc::channel();
        let connected = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let connector = OutsideConnector { machine: policy.machine().clone(), proxies };
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            policy,
            sockets: roles,
            listening,
            is_accepting: true,
            max_connections: raise_descriptor_limit(),
            relays: HashMap::new(),
            dns_streams: HashMap::new(),
            next_id: FIRST_CONNECTION,
            connector: Arc::new(connector),
            connecting: 0,
            waiting: VecDeque::new(),
            results,
            result_sender,
            connected: Arc::new(connected),
            counts: CountKeeper::default(),
            scratch: vec![0; SCRATCH],
        })
    }

    /// Serves until the other end of `control` is closed.
    pub fn serve(mut self, control: OwnedFd) -> io::Result<()> {
        epoll::add(&self.epoll, &control, EventData::new_u64(CONTROL), EventFlags::IN)?;
        epoll::add(&self.epoll, &self.connected, EventData::new_u64(CONNECTED), EventFlags::IN)?;
        for (token, (_, socket)) in (FIRST_SOCKET..).zip(&self.sockets) {
            epoll::add(&self.epoll, socket, EventData::new_u64(token), EventFlags::IN)?;
        }
        loop {
            if self.take_turn(None)?.has_request && !self.answer_request(&control)? {
                return Ok(());
            }
        }
    }

    /// Answers a request for the counts; false when the engine is gone.
    fn answer_request(&mut self, control: &OwnedFd) -> io::Result<bool> {
        let mut request = [0; TAKE_COUNTS.len()];
        match rustix::io::read(control, &mut request) {
            Ok(0) => return Ok(false),
            Ok(length) if request[..length] == *TAKE_COUNTS => {}
            Ok(_) => return Err(io::Error::other("unknown request")),
            Err(Errno::INTR) => return Ok(true),
            Err(_) => return Ok(false),
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..TURNS_BEFORE_COUNTS {
            if !self.take_turn(Some(&now))?.is_busy {
                break;
            }
        }
        let mut answer = serde_json::to_vec(&self.counts.take())?;
        answer.push(b'\n');
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            match rustix::net::send(control, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    fn take_turn(&mut self, timeout: Option<&Timespec>) -> io::Result<ServiceTurn> {
        let mut space = [MaybeUninit::uninit(); EVENTS_PER_TURN];
        let events = match epoll::wait(&self.epoll, &mut space, timeout) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(ServiceTurn::default()),
            Err(error) => return Err(error.into()),
        };
        let mut turn = ServiceTurn::default();
        for event in &*events {
            let token = event.data.u64();
            let flags = event.flags;
            match token {
                CONTROL => turn.has_request = true,
                _ => turn.is_busy = true,
            }
            match token {
                CONTROL => {}
                CONNECTED => self.finish_connections(),
                FIRST_SOCKET..FIRST_CONNECTION => self.serve_socket(token),
                _ => self.serve_connection(token, flags),
            }
        }
        self.update_accepting()?;
        Ok(turn)
    }

    fn serve_socket(&mut self, token: u64) {
        let index = usize::try_from(token - FIRST_SOCKET).unwrap_or_default();
        let Some((role, socket)) = self.sockets.get(index) else { return };
        // A turn takes what is waiting, not what arrives meanwhile, so no socket can keep the others from their turn.
        for _ in 0..EVENTS_PER_TURN {
            let is_done = match role {
                SocketRole::Tap => {
                    let mut packet = [0; TAP_LENGTH];
                    match recv(socket, &mut packet[..], RecvFlags::empty()) {
                        Ok((length, _)) => {
                            count_attempt(
                                &self.policy,
                                &self.listening,
                                &mut self.counts,
                                &packet[..length],
                            );
                            false
                        }
                        Err(_) => true,
                    }
                }
                SocketRole::NameServer => {
                    let mut query = [0; 1500];
                    match recvfrom(socket, &mut query[..], RecvFlags::empty()) {
                        Ok((length, _, Some(from))) => {
                            let query = &query[..length];
                            let answer = answer_query(&mut self.policy, &mut self.counts, query);
                            if let Some(answer) = answer {
                                // A lost answer is asked for a second time.
                                let _ = sendto(socket, &answer, SendFlags::NOSIGNAL, &from);
                            }
                            false
                        }
                        Ok(_) => false,
                        Err(_) => true,
                    }
                }
                SocketRole::Listener => {
                    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                    match accept_with(socket, flags) {
                        Ok(connection) => {
                            self.begin_connection(connection);
                            return;
                        }
                        Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                            self.max_connections = self.connection_count().max(1);
                            true
                        }
                        Err(_) => true,
                    }
                }
            };
            if is_done {
                return;
            }
        }
    }

    fn begin_connection(&mut self, tool: OwnedFd) {
        let Some(to) = getsockname(&tool).ok().and_then(|to| SocketAddr::try_from(to).ok()) else {
            return;
        };
        match self.policy.destination(to) {
            Destination::Listed(to) => {
                // Only the tool and the host decide what is sent when.
                let _ = sockopt::set_tcp_nodelay(&tool, true);
                self.waiting.push_back(WaitingConnection { tool, to });
                self.connect_next();
            }
            _ if to.port() == DNS_PORT => {
                if self.dns_streams.len() < MAX_DNS_STREAMS {
                    let id = self.take_id();
                    let data = EventData::new_u64(id);
                    if epoll::add(&self.epoll, &tool, data, EventFlags::IN).is_ok() {
                        self.dns_streams.insert(id, DnsStream::new(tool));
                    }
                }
            }
            Destination::Refused(to) => {
                self.counts.count_refused_connection(to.to_string());
                reset_when_closed(&tool);
            }
            Destination::Inside => reset_when_closed(&tool),
        }
    }

    /// Connections have two ids, one for each side.
    fn take_id(&mut self) -> u64 {
        self.next_id += 2;
        self.next_id - 2
    }

    fn connect_next(&mut self) {
        while self.connecting < MAX_CONNECTING
            && let Some(connection) = self.waiting.pop_front()
        {
            let connector = Arc::clone(&self.connector);
            let sender = self.result_sender.clone();
            let connected = Arc::clone(&self.connected);
            let to = connection.to.clone();
            let thread = std::thread::Builder::new().stack_size(CONNECT_STACK).spawn(move || {
                let host = connector.connect(&connection.to);
                let _ = sender.send(ConnectResult { connection, host });
                let _ = rustix::io::write(connected.as_fd(), &1u64.to_ne_bytes());
            });
            match thread {
                Ok(_) => self.connecting += 1,
                Err(error) => self.counts.count_failure(&to, plain_error(&error)),
            }
        }
    }

    fn finish_connections(&mut self) {
        let _ = rustix::io::read(self.connected.as_fd(), &mut [0; 8]);
        while let Ok(ConnectResult { connection, host }) = self.results.try_recv() {
            self.connecting -= 1;
            match host {
                Ok(host) => self.begin_relay(connection, host.into()),
                Err(error) => {
                    self.counts.count_failure(&connection.to, plain_error(&error));
                    reset_when_closed(&connection.tool);
                }
            }
        }
        self.connect_next();
    }

    fn begin_relay(&mut self, connection: WaitingConnection, host: OwnedFd) {
        let id = self.take_id();
        let relay = HostRelay::new(connection.tool, host);
        for (side, token) in [(TOOL, id), (HOST, id + 1)] {
            let data = EventData::new_u64(token);
            if epoll::add(&self.epoll, relay.socket(side), data, EventFlags::IN).is_err() {
                return;
            }
        }
        self.counts.count_connection(&connection.to);
        self.relays.insert(id, ServedRelay { relay, to: connection.to });
    }

    fn serve_connection(&mut self, token: u64, flags: EventFlags) {
        let side = usize::from(token & 1 == 1);
        let id = token & !1;
        if let Some(stream) = self.dns_streams.get_mut(&id) {
            let policy = &mut self.policy;
            let counts = &mut self.counts;
            if !stream.serve(|query| answer_query(policy, counts, query)) {
                self.dns_streams.remove(&id);
            }
            return;
        }
        let Some(served) = self.relays.get_mut(&id) else { return };
        let before = [TOOL, HOST].map(|side| served.relay.interest(side));
        let is_reset = match served.relay.advance(side, flags, &mut self.scratch) {
            Ok(passed) => {
                self.counts.count_bytes(&served.to, passed);
                false
            }
            Err(_) => true,
        };
        if is_reset || served.relay.is_finished() {
            if is_reset {
                reset_when_closed(served.relay.socket(TOOL));
                reset_when_closed(served.relay.socket(HOST));
            }
            self.relays.remove(&id);
            return;
        }
        for (side, token) in [(TOOL, id), (HOST, id + 1)] {
            let interest = served.relay.interest(side);
            if interest == before[side] {
                continue;
            }
            let socket = served.relay.socket(side);
            // Neither fails for a socket that was added.
            let _ = match interest {
                Some(flags) => epoll::modify(&self.epoll, socket, EventData::new_u64(token), flags),
                None => epoll::delete(&self.epoll, socket),
            };
        }
    }

    fn connection_count(&self) -> usize {
        self.relays.len() + self.waiting.len() + self.connecting
    }

    /// Leaves new connections to the queue of the kernel while there are too many.
    fn update_accepting(&mut self) -> io::Result<()> {
        let has_room = self.connection_count() < self.max_connections;
        if has_room == self.is_accepting {
            return Ok(());
        }
        self.is_accepting = has_room;
        let flags = if has_room { EventFlags::IN } else { EventFlags::empty() };
        for (token, (role, socket)) in (FIRST_SOCKET..).zip(&self.sockets) {
            if *role == SocketRole::Listener {
                epoll::modify(&self.epoll, socket, EventData::new_u64(token), flags)?;
            }
        }
        Ok(())
    }
}

/// What a turn of the loop met.
#[derive(Debug, Default)]
struct ServiceTurn {
    has_request: bool,
    is_busy: bool,
}

fn answer_query(
    policy: &mut HostPolicy,
    counts: &mut CountKeeper,
    query: &[u8],
) -> Option<Vec<u8>> {
    let Some(question) = DnsQuestion::parse(query) else { return reject_dns_message(query) };
    let answer = policy.answer(&question.name);
    if answer == NameAnswer::Refused {
        counts.count_refused_lookup(&question.name, question.record_type);
    }
    Some(question.respond(answer))
}

/// Counts a packet that no socket of the service gets.
fn count_attempt(
    policy: &HostPolicy,
    listening: &BTreeSet<SocketAddr>,
    counts: &mut CountKeeper,
    packet: &[u8],
) {
    let Some(NetworkAttempt { to, is_udp }) = NetworkAttempt::parse(packet) else { return };
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, to.port()));
    let is_served = listening.contains(&to) || to.is_ipv4() && listening.contains(&any);
    if is_served && !is_udp {
        return;
    }
    match policy.destination(to) {
        Destination::Listed(to) | Destination::Refused(to) if is_udp => {
            counts.count_refused_connection(format!("{to}/udp"));
        }
        Destination::Refused(to) => counts.count_refused_connection(to.to_string()),
        Destination::Listed(_) | Destination::Inside => {}
    }
}

/// Raises the limit of descriptors as far as this process may; returns how many connections fit.
fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let connections = current.unwrap_or(u64::MAX).saturating_sub(SPARE_DESCRIPTORS) / 2;
    usize::try_from(connections).unwrap_or(MAX_CONNECTIONS).clamp(16, MAX_CONNECTIONS)
}
