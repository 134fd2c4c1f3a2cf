//! The connection of a [`Wire`](super::Wire): whatever it waits for, it also watches the cancellation and the timeouts
//! of the exchange, in the thread that asked.
//!
//! It is what ureq is given to look names up, to connect and to read and write with; TLS and proxies are ureq's.

use super::room::Room;
use crate::signal::{Cancel, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType};
use std::fmt;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time::Duration::Exact;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, NextTimeout, Transport,
};

/// How much is sent at once: each piece wakes the endpoint.
const OUTPUT: usize = 256 * 1024;
/// How much may come at once; also the longest head of an answer.
const INPUT: usize = 32 * 1024;

/// What is sent waits for more. Elsewhere it goes out by itself.
#[cfg(target_os = "linux")]
const MORE: SendFlags = SendFlags::MORE;
#[cfg(not(target_os = "linux"))]
const MORE: SendFlags = SendFlags::empty();

fn of_system(errno: Errno) -> Error {
    Error::Io(errno.into())
}

/// Why a wait was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Cancelled,
    Total,
    Idle,
}

/// What the exchange that is going on has told its connection. Clones share it.
#[derive(Clone)]
pub(super) struct Watch(Arc<Mutex<Terms>>);

struct Terms {
    cancel: Option<Cancel>,
    began: Instant,
    /// When a byte last came.
    heard: Instant,
    total: Duration,
    idle: Duration,
    /// Why the exchange was given up.
    stop: Option<Stop>,
    /// The exchange made its connection itself.
    connected: bool,
    /// The head of the request is on its way.
    begun: bool,
    /// Where the present connection leads, for as long as it lives.
    known: Option<(Weak<()>, ResolvedSocketAddrs)>,
}

impl Watch {
    pub(super) fn new(total: Duration, idle: Duration) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(Terms {
            cancel: None,
            began: now,
            heard: now,
            total,
            idle,
            stop: None,
            connected: false,
            begun: false,
            known: None,
        })))
    }

    /// Another exchange begins.
    pub(super) fn begin(&self, cancel: &Cancel) {
        let (mut terms, now) = (self.terms(), Instant::now());
        terms.cancel = Some(cancel.clone());
        (terms.began, terms.heard) = (now, now);
        (terms.stop, terms.connected, terms.begun) = (None, false, false);
    }

    /// How long nothing may come from now on.
    pub(super) fn set_idle(&self, idle: Duration) {
        self.terms().idle = idle;
    }

    /// Why the exchange was given up, if it was.
    pub(super) fn stopped(&self) -> Option<Stop> {
        self.terms().stop
    }

    /// Whether the exchange made its connection itself: no endpoint can have closed it before.
    pub(super) fn connected(&self) -> bool {
        self.terms().connected
    }

    /// Whether the exchange may go on; looked at before anything that does not wait.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.left().map(drop)
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) {
        self.terms().heard = Instant::now();
    }

    /// How long may be waited, and what ends the wait.
    fn left(&self) -> Result<(Duration, Cancel), Error> {
        let mut terms = self.terms();
        let total = terms.total.saturating_sub(terms.began.elapsed());
        let idle = terms.idle.saturating_sub(terms.heard.elapsed());
        let stop = match &terms.cancel {
            None => Stop::Cancelled,
            Some(cancel) if cancel.requested() => Stop::Cancelled,
            Some(_) if total.is_zero() => Stop::Total,
            Some(_) if idle.is_zero() => Stop::Idle,
            Some(cancel) => return Ok((total.min(idle), cancel.clone())),
        };
        terms.stop = Some(stop);
        // Nobody reads it: the exchange asks for the reason. It must not be of a kind that is tried again.
        Err(io::Error::other("given up").into())
    }

    /// Waits until the socket is ready for what `flags` say, no longer than ureq allows either.
    fn wait(
        &self,
        socket: BorrowedFd<'_>,
        flags: PollFlags,
        limit: &NextTimeout,
    ) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let (left, cancel) = self.left()?;
            let limited = limit.after.saturating_sub(began.elapsed());
            if limited.is_zero() {
                return Err(Error::Timeout(limit.reason));
            }
            let wake = PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN);
            let mut fds = [PollFd::from_borrowed_fd(socket, flags), wake];
            // An interrupted poll only means to look again.
            let _ = poll(&mut fds, Some(&timespec(left.min(limited))));
            let [socket, wake] = fds.map(|fd| !fd.revents().is_empty());
            if wake {
                cancel.drain();
            }
            if socket {
                return self.check();
            }
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

/// Looks names up in a thread of its own, because nothing else can be waited for while the system does it.
#[derive(Debug)]
pub(super) struct Lookup(pub(super) Watch);

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        limit: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        // ureq asks for every exchange, before it looks whether there is a connection.
        if let Some((line, addresses)) = &self.0.terms().known
            && line.strong_count() > 0
        {
            return Ok(addresses.clone());
        }
        let is_address = uri
            .host()
            .is_some_and(|host| host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok());
        if is_address {
            return DefaultResolver::default().resolve(uri, config, NextTimeout::default());
        }
        let (of_thread, config) = (uri.clone(), config.clone());
        let waker = self.0.left()?.1;
        let (sender, found) = mpsc::channel();
        let look_up = move || {
            let resolver = DefaultResolver::default();
            // Who does not wait any more does not mind.
            let _ = sender.send(resolver.resolve(&of_thread, &config, NextTimeout::default()));
            waker.wake();
        };
        std::thread::Builder::new().name("lookup".to_owned()).spawn(look_up)?;
        let began = Instant::now();
        loop {
            let (left, cancel) = self.0.left()?;
            let limited = limit.after.saturating_sub(began.elapsed());
            match found.try_recv() {
                Ok(found) => return found,
                Err(TryRecvError::Disconnected) => return Err(Error::HostNotFound),
                Err(TryRecvError::Empty) if limited.is_zero() => {
                    return Err(Error::Timeout(limit.reason));
                }
                Err(TryRecvError::Empty) => {}
            }
            cancel.wait_wake(Some(left.min(limited)));
        }
    }
}

/// Makes the connections.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) watch: Watch,
    /// There is no proxy: what is connected to is the endpoint itself.
    pub(super) is_direct: bool,
}

impl<In: Transport> Connector<In> for Dial {
    type Out = Either<In, Line>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if chained.is_some() {
            return Ok(chained.map(Either::A));
        }
        let stream = self.reach(&details.addrs, &details.timeout)?;
        stream.set_nodelay(true)?;
        let (buffers, alive) = (Room::new(INPUT, OUTPUT), Arc::new(()));
        let mut terms = self.watch.terms();
        terms.connected = true;
        terms.known = self.is_direct.then(|| (Arc::downgrade(&alive), details.addrs.clone()));
        drop(terms);
        let watch = self.watch.clone();
        let is_plain = self.is_direct && !details.needs_tls();
        Ok(Some(Either::B(Line { stream, buffers, watch, is_plain, _alive: alive })))
    }
}

impl Dial {
    /// A connection to the first of the addresses that answers. Each has half of the time that is left, the last all.
    fn reach(&self, addresses: &[SocketAddr], limit: &NextTimeout) -> Result<TcpStream, Error> {
        let (began, count) = (Instant::now(), addresses.len());
        let mut last = Error::HostNotFound;
        for (at, address) in addresses.iter().enumerate() {
            let mut limit = *limit;
            if let Exact(whole) = limit.after {
                let left = whole.saturating_sub(began.elapsed());
                limit.after = Exact(if at + 1 == count { left } else { left / 2 });
            }
            match self.reach_one(address, &limit) {
                Ok(stream) => return Ok(stream),
                // Given up, the next one would be too.
                Err(error) if self.watch.stopped().is_some() => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn reach_one(&self, address: &SocketAddr, limit: &NextTimeout) -> Result<TcpStream, Error> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket(family, SocketType::STREAM, None).map_err(of_system)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(of_system)?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        match rustix::net::connect(&stream, address) {
            Ok(()) => return Ok(stream),
            Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(of_system(errno)),
        }
        self.watch.wait(stream.as_fd(), PollFlags::OUT, limit)?;
        match stream.take_error()? {
            Some(error) => Err(error.into()),
            None => Ok(stream),
        }
    }
}

/// A connection.
pub(super) struct Line {
    stream: TcpStream,
    buffers: Room,
    watch: Watch,
    /// What is written is a request, and nothing before it.
    is_plain: bool,
    /// Says that the connection is there.
    _alive: Arc<()>,
}

impl Transport for Line {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, limit: NextTimeout) -> Result<(), Error> {
        let is_head = !std::mem::replace(&mut self.watch.terms().begun, true) && self.is_plain;
        // ureq gives the head and the body one after the other, and whoever has the head waits for the body.
        let flags = if is_head { SendFlags::NOSIGNAL | MORE } else { SendFlags::NOSIGNAL };
        let mut left = &self.buffers.output()[..amount];
        while !left.is_empty() {
            match rustix::net::send(&self.stream, left, flags) {
                Ok(count) => left = &left[count..],
                Err(Errno::AGAIN) => {
                    self.watch.wait(self.stream.as_fd(), PollFlags::OUT, &limit)?;
                }
                Err(Errno::INTR) => self.watch.check()?,
                Err(errno) => return Err(of_system(errno)),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, limit: NextTimeout) -> Result<bool, Error> {
        if self.buffers.input_append_buf().is_empty() {
            return Err(Error::LargeResponseHeader(INPUT + 1, INPUT));
        }
        loop {
            self.watch.wait(self.stream.as_fd(), PollFlags::IN, &limit)?;
            match self.stream.read(self.buffers.input_append_buf()) {
                Ok(count) => {
                    self.watch.heard();
                    self.buffers.input_appended(count);
                    return Ok(count > 0);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_open(&mut self) -> bool {
        // What comes unasked, or an end, makes it useless.
        self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("stream", &self.stream).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn c_7_3_the_first_address_that_answers_is_taken() {
        let watch = Watch::new(Duration::from_secs(60), Duration::from_secs(60));
        let (cancel, limit) = (Cancel::manual().unwrap(), NextTimeout::default());
        watch.begin(&cancel);
        let dial = Dial { watch: watch.clone(), is_direct: true };
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (open, closed) = (bind(), bind().local_addr().unwrap());
        let reached = dial.reach(&[closed, open.local_addr().unwrap()], &limit).unwrap();
        assert_eq!(reached.peer_addr().unwrap(), open.local_addr().unwrap());
        let refused = dial.reach(&[closed], &limit).unwrap_err();
        assert!(
            matches!(refused, Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
        );
        cancel.request();
        assert!(dial.reach(&[closed, open.local_addr().unwrap()], &limit).is_err());
        assert_eq!(watch.stopped(), Some(Stop::Cancelled));
    }
}
