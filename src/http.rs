//! HTTP: one exchange at a time with one address. A worker thread posts the body and hands over what comes back, and
//! the caller's thread waits for it together with the cancellation and both timeouts.
//!
//! Judges no answer and tries nothing twice; when a failed try is worth another, [`retry`] says. The worker and its connection live on from call to call; a worker whose
//! exchange was not read to its end is abandoned, and what it still reads reaches nobody.

use crate::signal::Cancel;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Error, Proxy};

pub mod retry;
pub mod words;

/// How many pieces may wait to be taken before the worker stops reading.
const BACKLOG: usize = 16;
/// How many bytes are read at once.
const PIECE: usize = 16 * 1024;
/// How long a connection may be kept without a call; tools run meanwhile.
const KEPT: Duration = Duration::from_secs(90);
/// The longest wait for a connection. It is shared out over all addresses of a host.
const CONNECT: Duration = Duration::from_secs(30);

/// Why an exchange ended before the answer did.
#[derive(Debug)]
pub enum Trouble {
    /// The stop was asked for.
    Cancelled,
    /// The whole answer took too long.
    Total,
    /// Nothing came for too long.
    Idle,
    /// No connection came about.
    Connect(Error),
    /// The connection ended without a byte of an answer.
    Unanswered {
        /// What the system says about it.
        error: Error,
        /// The connection was one of an earlier exchange, which the endpoint may close at any time.
        kept: bool,
    },
    /// The connection broke off, or did not speak HTTP.
    Broken(Error),
}

/// The beginning of an answer.
#[derive(Debug)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
}

impl Head {
    /// The value of a header that is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

enum Piece {
    Head(Head),
    Bytes(Vec<u8>),
    End,
    Failed(Error),
}

struct Job {
    body: Arc<String>,
    pieces: SyncSender<Piece>,
    cancel: Cancel,
}

struct Worker {
    agent: Agent,
    jobs: Sender<Job>,
    /// An exchange was read to its end, so that the connection may be an old one.
    kept: bool,
}

/// Where requests go, and what holds for each of them.
#[derive(Debug, Clone)]
pub struct Way<'a> {
    /// The whole address.
    pub url: &'a str,
    /// The headers of every request.
    pub headers: HeaderMap,
    /// For a whole answer.
    pub total: Duration,
    /// Without a byte.
    pub idle: Duration,
    /// The address of a proxy.
    pub proxy: Option<&'a str>,
}

/// The way to one address.
pub struct Wire {
    config: ureq::config::Config,
    uri: Uri,
    headers: HeaderMap,
    total: Duration,
    idle: Duration,
    worker: Option<Worker>,
}

impl Wire {
    /// Prepares everything but the connection. The error says what in the settings is wrong.
    pub fn new(way: Way<'_>) -> Result<Self, String> {
        let Way { url, headers, total, idle, proxy } = way;
        let uri: Uri =
            url.parse().map_err(|error| format!("`{url}` is not an address: {error}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https"))
            || uri.host().is_none_or(str::is_empty)
        {
            return Err(format!("`{url}` is not an address of the form https://HOST/..."));
        }
        let proxy = proxy.map(Proxy::new).transpose();
        // The address of a proxy often holds a password, so it is not repeated.
        let proxy = proxy.map_err(|error| {
            format!("HTTPS_PROXY or HTTP_PROXY is not the address of a proxy: {error}")
        })?;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("delta/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("")
            .max_idle_age(KEPT)
            .timeout_connect(Some(CONNECT.min(total).min(idle).max(Duration::from_millis(1))));
        let secure = |scheme: Option<&str>| scheme == Some("https");
        if secure(uri.scheme_str())
            || proxy.as_ref().is_some_and(|proxy| secure(proxy.uri().scheme_str()))
        {
            config = config.tls_config(tls());
        }
        // Always said, for otherwise the library would look for a proxy in the environment.
        let config = config.proxy(proxy).build();
        Ok(Self { config, uri, headers, total, idle, worker: None })
    }

    /// A way to the same endpoint that is not connected yet.
    pub fn again(&self) -> Self {
        let (config, uri, headers) = (self.config.clone(), self.uri.clone(), self.headers.clone());
        Self { config, uri, headers, total: self.total, idle: self.idle, worker: None }
    }

    /// Where the requests go, without a user or password that the address may hold.
    pub fn address(&self) -> String {
        let shown = self.uri.to_string();
        match self
            .uri
            .authority()
            .map(|authority| authority.as_str())
            .and_then(|whole| whole.rsplit_once('@'))
        {
            Some((user, _)) => shown.replacen(&format!("{user}@"), "", 1),
            None => shown,
        }
    }

    /// The host that the requests go to.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// Whether the requests take the way through a proxy.
    pub fn has_proxy(&self) -> bool {
        self.config.proxy().is_some()
    }

    /// Begins to post `body`.
    pub fn post<'a>(
        &'a mut self,
        body: Arc<String>,
        cancel: &'a Cancel,
    ) -> Result<Exchange<'a>, Trouble> {
        let (sender, pieces) = mpsc::sync_channel(BACKLOG);
        let job = Job { body, pieces: sender, cancel: cancel.clone() };
        let now = Instant::now();
        let kept = self.hand_over(job).map_err(|error| Trouble::Connect(error.into()))?;
        Ok(Exchange {
            wire: self,
            cancel,
            pieces,
            began: now,
            heard: now,
            kept,
            answered: false,
            over: false,
        })
    }

    /// Gives the job to the worker, to a new one if there is none; tells whether its connection may be an old one.
    fn hand_over(&mut self, job: Job) -> io::Result<bool> {
        let job = match &mut self.worker {
            Some(worker) => match worker.jobs.send(job) {
                Ok(()) => return Ok(std::mem::take(&mut worker.kept)),
                Err(refused) => refused.0,
            },
            None => job,
        };
        let (agent, (jobs, queue)) = (self.config.new_agent(), mpsc::channel());
        let (uri, headers, of_worker) = (self.uri.clone(), self.headers.clone(), agent.clone());
        let thread = std::thread::Builder::new().name("http".to_owned());
        thread.spawn(move || work(&of_worker, &uri, &headers, &queue))?;
        let worker = self.worker.insert(Worker { agent, jobs, kept: false });
        worker.jobs.send(job).map_err(|_| io::Error::other("the worker is gone"))?;
        Ok(false)
    }

    /// Leaves the worker behind. What it waits for on a connection ends at once; what it looks up ends by itself.
    fn abandon(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.agent.shutdown();
        }
    }
}

/// The system's certificates decide. They are not loaded here but at the first handshake.
fn tls() -> TlsConfig {
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

/// The worker: does one job after the other until nobody can give it another.
fn work(agent: &Agent, uri: &Uri, headers: &HeaderMap, jobs: &Receiver<Job>) {
    while let Ok(Job { body, pieces, cancel }) = jobs.recv() {
        // A receiver that is gone means that the exchange was given up.
        let hand_over = |piece| {
            let sent = pieces.send(piece);
            cancel.wake();
            sent.is_ok()
        };
        let last =
            run(agent, uri, headers, body, &hand_over).err().map_or(Piece::End, Piece::Failed);
        hand_over(last);
    }
}

/// Posts the body and hands over the answer piece by piece.
fn run(
    agent: &Agent,
    uri: &Uri,
    headers: &HeaderMap,
    body: Arc<String>,
    hand_over: &impl Fn(Piece) -> bool,
) -> Result<(), Error> {
    let mut request = agent.post(uri);
    if let Some(all) = request.headers_mut() {
        all.clone_from(headers);
    }
    let sent = request.send(body.as_str());
    // Before anybody hears of the answer: whoever builds the next request wants the memory for himself.
    drop(body);
    let (head, mut body) = sent?.into_parts();
    if !hand_over(Piece::Head(Head { status: head.status, headers: head.headers })) {
        return Ok(());
    }
    let mut reader = body.as_reader();
    let mut buffer = vec![0; PIECE];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) if hand_over(Piece::Bytes(buffer[..count].to_vec())) => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// One exchange that has begun. Dropping it before its end abandons the worker.
pub struct Exchange<'a> {
    wire: &'a mut Wire,
    cancel: &'a Cancel,
    pieces: Receiver<Piece>,
    began: Instant,
    /// When a byte last came.
    heard: Instant,
    kept: bool,
    answered: bool,
    over: bool,
}

impl Exchange<'_> {
    /// Waits for the status and the headers.
    pub fn head(&mut self) -> Result<Head, Trouble> {
        match self.next(None)? {
            Piece::Head(head) => {
                self.answered = true;
                Ok(head)
            }
            _ => Err(Trouble::Broken(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
        }
    }

    /// Waits for the next bytes of the body, no longer than `grace` when it is given; `None` at its end.
    pub fn bytes(&mut self, grace: Option<Duration>) -> Result<Option<Vec<u8>>, Trouble> {
        match self.next(grace)? {
            Piece::Bytes(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }

    /// As much of the body as comes, up to about `limit` bytes: what breaks off is still worth reading.
    pub fn rest(&mut self, limit: usize) -> Result<String, Trouble> {
        let mut body = Vec::new();
        while body.len() < limit {
            match self.bytes(None) {
                Ok(Some(piece)) => body.extend(piece),
                Err(Trouble::Cancelled) => return Err(Trouble::Cancelled),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn next(&mut self, grace: Option<Duration>) -> Result<Piece, Trouble> {
        let idle = grace.map_or(self.wire.idle, |grace| grace.min(self.wire.idle));
        loop {
            if self.cancel.requested() {
                return Err(Trouble::Cancelled);
            }
            // Before the pieces are looked at: an endless stream must not outrun its deadline.
            let total_left = self.wire.total.saturating_sub(self.began.elapsed());
            if total_left.is_zero() {
                return Err(Trouble::Total);
            }
            match self.pieces.try_recv() {
                Ok(piece) => return self.take_in(piece),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(Trouble::Broken(io::Error::other("the worker is gone").into()));
                }
            }
            let idle_left = idle.saturating_sub(self.heard.elapsed());
            if idle_left.is_zero() {
                return Err(Trouble::Idle);
            }
            self.cancel.wait_wake(Some(total_left.min(idle_left)));
        }
    }

    fn take_in(&mut self, piece: Piece) -> Result<Piece, Trouble> {
        self.heard = Instant::now();
        self.over = matches!(piece, Piece::End | Piece::Failed(_));
        match piece {
            Piece::Failed(error) => Err(self.trouble(error)),
            Piece::End => {
                if let Some(worker) = &mut self.wire.worker {
                    worker.kept = true;
                }
                Ok(Piece::End)
            }
            piece => Ok(piece),
        }
    }

    fn trouble(&self, error: Error) -> Trouble {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        match error {
            error if self.answered => Trouble::Broken(error),
            Error::Io(io)
                if matches!(
                    io.kind(),
                    BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
                ) =>
            {
                Trouble::Unanswered { error: Error::Io(io), kept: self.kept }
            }
            Error::Protocol(_) | Error::LargeResponseHeader(..) | Error::Http(_) => {
                Trouble::Broken(error)
            }
            error => Trouble::Connect(error),
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.wire.abandon();
        }
    }
}
