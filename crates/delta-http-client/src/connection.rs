//! The connections of an [`HttpClient`](super::HttpClient). Every wait also watches the cancellation and the timeouts of
//! the exchange, in the calling thread.
//!
//! ureq uses these types to resolve names, to connect, to read and to write; TLS and proxies are its own.

use delta_base::signal::{CancelToken, to_timespec};
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
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};

/// ureq fills a buffer of this size with zeroes before the first request.
const OUTPUT_BUFFER_BYTES: usize = 64 * 1024;
/// The first bytes of an alert record, of every version of TLS.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];
/// Also the longest head of a response.
const INPUT_BUFFER_BYTES: usize = 32 * 1024;

#[cfg(target_os = "linux")]
const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
/// Holds the data back until more is sent. Only Linux has the flag; elsewhere the data is sent at once.
#[cfg(target_os = "linux")]
const HEAD_FLAGS: SendFlags = SEND_FLAGS.union(SendFlags::MORE);
#[cfg(not(target_os = "linux"))]
const SEND_FLAGS: SendFlags = SendFlags::empty();
#[cfg(not(target_os = "linux"))]
const HEAD_FLAGS: SendFlags = SEND_FLAGS;

fn errno_to_error(errno: Errno) -> Error {
    Error::Io(errno.into())
}

/// Why an exchange was stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    Cancelled,
    TotalTimeout,
    IdleTimeout,
}

/// The state that the current exchange shares with its connection. Clones share it.
#[derive(Clone)]
pub(super) struct ExchangeWatch(Arc<Mutex<ExchangeState>>);

struct ExchangeState {
    cancel: Option<CancelToken>,
    started: Instant,
    /// When a byte last arrived.
    last_received: Instant,
    total_timeout: Duration,
    idle_timeout: Duration,
    stop_reason: Option<StopReason>,
    /// The exchange opened its connection itself.
    has_connected: bool,
    /// The head of the request has been passed to the system.
    is_head_sent: bool,
    /// The response to plain HTTP begins as an alert of TLS does.
    has_received_tls: bool,
    /// The addresses of the current connection, for as long as it exists.
    connected_addresses: Option<(Weak<()>, ResolvedSocketAddrs)>,
}

impl ExchangeWatch {
    pub(super) fn new(total_timeout: Duration, idle_timeout: Duration) -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(ExchangeState {
            cancel: None,
            started: now,
            last_received: now,
            total_timeout,
            idle_timeout,
            stop_reason: None,
            has_connected: false,
            is_head_sent: false,
            has_received_tls: false,
            connected_addresses: None,
        })))
    }

    /// Resets the state for the next exchange.
    pub(super) fn start_exchange(&self, cancel: &CancelToken) {
        let now = Instant::now();
        let mut state = self.state();
        state.cancel = Some(cancel.clone());
        state.started = now;
        state.last_received = now;
        state.stop_reason = None;
        state.has_connected = false;
        state.is_head_sent = false;
        state.has_received_tls = false;
    }

    pub(super) fn set_idle_timeout(&self, idle_timeout: Duration) {
        self.state().idle_timeout = idle_timeout;
    }

    /// Why the exchange was stopped, if it was.
    pub(super) fn stop_reason(&self) -> Option<StopReason> {
        self.state().stop_reason
    }

    /// Whether the exchange opened its connection itself: the endpoint cannot have closed it before the exchange.
    pub(super) fn has_connected(&self) -> bool {
        self.state().has_connected
    }

    /// Whether the server answered plain HTTP with a record of TLS.
    pub(super) fn has_received_tls(&self) -> bool {
        self.state().has_received_tls
    }

    /// Fails if the exchange must stop. Called before anything that does not wait.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.remaining_wait().map(drop)
    }

    fn state(&self) -> MutexGuard<'_, ExchangeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn restart_idle_timeout(&self) {
        self.state().last_received = Instant::now();
    }

    /// The longest time to wait, and the token that ends the wait.
    fn remaining_wait(&self) -> Result<(Duration, CancelToken), Error> {
        let mut state = self.state();
        let total = state.total_timeout.saturating_sub(state.started.elapsed());
        let idle = state.idle_timeout.saturating_sub(state.last_received.elapsed());
        let reason = match &state.cancel {
            None => StopReason::Cancelled,
            Some(cancel) if cancel.is_requested() => StopReason::Cancelled,
            Some(_) if total.is_zero() => StopReason::TotalTimeout,
            Some(_) if idle.is_zero() => StopReason::IdleTimeout,
            Some(cancel) => return Ok((total.min(idle), cancel.clone())),
        };
        state.stop_reason = Some(reason);
        // The exchange reads `stop_reason`, not this error, whose kind must not be one that ureq retries.
        Err(io::Error::other("stopped").into())
    }

    /// Waits until the socket is ready for `flags`, at most until ureq's own `limit`.
    fn wait_for_socket(
        &self,
        socket: BorrowedFd<'_>,
        flags: PollFlags,
        limit: &NextTimeout,
    ) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let (wait, cancel) = self.remaining_wait()?;
            let limited = limit.after.saturating_sub(started.elapsed());
            if limited.is_zero() {
                return Err(Error::Timeout(limit.reason));
            }
            let wake = PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN);
            let mut fds = [PollFd::from_borrowed_fd(socket, flags), wake];
            // After an interrupted poll the loop checks everything again.
            let _ = poll(&mut fds, Some(&to_timespec(wait.min(limited))));
            let [is_socket_ready, is_woken] = fds.map(|fd| !fd.revents().is_empty());
            if is_woken {
                cancel.drain();
            }
            if is_socket_ready {
                return self.check();
            }
        }
    }
}

impl fmt::Debug for ExchangeWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExchangeWatch")
    }
}

/// Resolves names in a separate thread, because the system's lookup blocks and cannot be cancelled.
#[derive(Debug)]
pub(super) struct ThreadResolver(pub(super) ExchangeWatch);

impl Resolver for ThreadResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        limit: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        // ureq resolves for every exchange, before it looks for an open connection.
        if let Some((connection, addresses)) = &self.0.state().connected_addresses
            && connection.strong_count() > 0
        {
            return Ok(addresses.clone());
        }
        let is_ip_address = uri
            .host()
            .is_some_and(|host| host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok());
        if is_ip_address {
            return DefaultResolver::default().resolve(uri, config, NextTimeout::default());
        }
        let receiver = self.start_lookup(uri.clone(), config.clone())?;
        let started = Instant::now();
        loop {
            let (wait, cancel) = self.0.remaining_wait()?;
            let limited = limit.after.saturating_sub(started.elapsed());
            match receiver.try_recv() {
                Ok(result) => return result,
                Err(TryRecvError::Disconnected) => return Err(Error::HostNotFound),
                Err(TryRecvError::Empty) if limited.is_zero() => {
                    return Err(Error::Timeout(limit.reason));
                }
                Err(TryRecvError::Empty) => {}
            }
            cancel.wait_for_wake(Some(wait.min(limited)));
        }
    }
}

type LookupResult = Result<ResolvedSocketAddrs, Error>;

impl ThreadResolver {
    /// Starts a lookup in a thread, which wakes the token of the exchange at its end.
    fn start_lookup(
        &self,
        uri: Uri,
        config: Config,
    ) -> Result<mpsc::Receiver<LookupResult>, Error> {
        let (_, waker) = self.0.remaining_wait()?;
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new().name("lookup".to_owned()).spawn(move || {
            let resolver = DefaultResolver::default();
            // The send fails if the exchange no longer waits.
            let _ = sender.send(resolver.resolve(&uri, &config, NextTimeout::default()));
            waker.wake();
        })?;
        Ok(receiver)
    }
}

/// Opens connections for ureq.
#[derive(Debug)]
pub(super) struct SocketConnector {
    pub(super) watch: ExchangeWatch,
    /// There is no proxy: the connection ends at the endpoint itself.
    pub(super) is_direct: bool,
}

impl<In: Transport> Connector<In> for SocketConnector {
    type Out = Either<In, WatchedConnection>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if chained.is_some() {
            return Ok(chained.map(Either::A));
        }
        let stream = self.connect_any(&details.addrs, &details.timeout)?;
        stream.set_nodelay(true)?;
        let alive = Arc::new(());
        let mut state = self.watch.state();
        state.has_connected = true;
        state.connected_addresses =
            self.is_direct.then(|| (Arc::downgrade(&alive), details.addrs.clone()));
        drop(state);
        Ok(Some(Either::B(WatchedConnection {
            stream,
            buffers: LazyBuffers::new(INPUT_BUFFER_BYTES, OUTPUT_BUFFER_BYTES),
            watch: self.watch.clone(),
            is_plain_http: self.is_direct && !details.needs_tls(),
            _alive: alive,
        })))
    }
}

impl SocketConnector {
    /// Connects to the first address that answers. Each gets half of the remaining time, the last one all of it.
    fn connect_any(
        &self,
        addresses: &[SocketAddr],
        limit: &NextTimeout,
    ) -> Result<TcpStream, Error> {
        let started = Instant::now();
        let mut last_error = Error::HostNotFound;
        for (index, address) in addresses.iter().enumerate() {
            let mut limit = *limit;
            if let Exact(total) = limit.after {
                let remaining = total.saturating_sub(started.elapsed());
                let is_last = index + 1 == addresses.len();
                limit.after = Exact(if is_last { remaining } else { remaining / 2 });
            }
            match self.connect_address(address, &limit) {
                Ok(stream) => return Ok(stream),
                // The exchange was stopped, so the next address would fail too.
                Err(error) if self.watch.stop_reason().is_some() => return Err(error),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    fn connect_address(
        &self,
        address: &SocketAddr,
        limit: &NextTimeout,
    ) -> Result<TcpStream, Error> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket =
            rustix::net::socket(family, SocketType::STREAM, None).map_err(errno_to_error)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(errno_to_error)?;
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true)?;
        match rustix::net::connect(&stream, address) {
            Ok(()) => return Ok(stream),
            Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno_to_error(errno)),
        }
        self.watch.wait_for_socket(stream.as_fd(), PollFlags::OUT, limit)?;
        match stream.take_error()? {
            Some(error) => Err(error.into()),
            None => Ok(stream),
        }
    }
}

/// A connection that waits under an [`ExchangeWatch`].
pub(super) struct WatchedConnection {
    stream: TcpStream,
    buffers: LazyBuffers,
    watch: ExchangeWatch,
    /// Neither TLS nor a proxy writes anything before the request.
    is_plain_http: bool,
    /// `connected_addresses` has a weak reference to it, which ends with the connection.
    _alive: Arc<()>,
}

impl Transport for WatchedConnection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, limit: NextTimeout) -> Result<(), Error> {
        let was_head_sent = std::mem::replace(&mut self.watch.state().is_head_sent, true);
        let is_head = !was_head_sent && self.is_plain_http;
        // ureq passes the head and the body separately; a receiver of the head waits for the body anyway.
        let flags = if is_head { HEAD_FLAGS } else { SEND_FLAGS };
        let mut remaining = &self.buffers.output()[..amount];
        while !remaining.is_empty() {
            match rustix::net::send(&self.stream, remaining, flags) {
                Ok(count) => remaining = &remaining[count..],
                Err(Errno::AGAIN) => {
                    self.watch.wait_for_socket(self.stream.as_fd(), PollFlags::OUT, &limit)?;
                }
                Err(Errno::INTR) => self.watch.check()?,
                // A server that refuses a long request answers and closes before it has read all of it.
                Err(Errno::PIPE | Errno::CONNRESET) if self.has_input() => break,
                Err(errno) => return Err(errno_to_error(errno)),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, limit: NextTimeout) -> Result<bool, Error> {
        if self.buffers.input_append_buf().is_empty() {
            return Err(Error::LargeResponseHeader(INPUT_BUFFER_BYTES + 1, INPUT_BUFFER_BYTES));
        }
        loop {
            self.watch.wait_for_socket(self.stream.as_fd(), PollFlags::IN, &limit)?;
            match self.stream.read(self.buffers.input_append_buf()) {
                Ok(count) => {
                    self.watch.restart_idle_timeout();
                    if self.is_plain_http && self.buffers.input_append_buf().starts_with(&TLS_ALERT)
                    {
                        self.watch.state().has_received_tls = true;
                    }
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
        // Unrequested data or an end makes the connection useless.
        self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl WatchedConnection {
    /// Whether something has arrived that was not read.
    fn has_input(&self) -> bool {
        self.stream.peek(&mut [0]).is_ok_and(|count| count > 0)
    }
}

impl fmt::Debug for WatchedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedConnection").field("stream", &self.stream).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn c_7_3_the_first_address_that_answers_is_used() {
        let watch = ExchangeWatch::new(Duration::from_secs(60), Duration::from_secs(60));
        let cancel = CancelToken::manual().unwrap();
        let limit = NextTimeout::default();
        watch.start_exchange(&cancel);
        let connector = SocketConnector { watch: watch.clone(), is_direct: true };
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listener = bind();
        let open = listener.local_addr().unwrap();
        let closed = bind().local_addr().unwrap();
        let stream = connector.connect_any(&[closed, open], &limit).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open);
        let error = connector.connect_any(&[closed], &limit).unwrap_err();
        assert!(
            matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
        );
        cancel.request();
        assert!(connector.connect_any(&[closed, open], &limit).is_err());
        assert_eq!(watch.stop_reason(), Some(StopReason::Cancelled));
    }
}
