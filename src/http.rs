//! HTTP: one exchange at a time with one address, in the thread that asks; every wait of it ends with the cancellation
//! and with both timeouts.
//!
//! Judges no answer and tries nothing twice; when a failed try is worth another, [`retry`] says. The connection lives on
//! from call to call, unless an exchange was not read to its end.

use crate::signal::Cancel;
use line::{Dial, Lookup, Stop, Watch};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{HeaderMap, StatusCode, Uri};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, RustlsConnector};
use ureq::{Agent, BodyReader, Error, Proxy};

mod line;
pub mod retry;
mod room;
pub mod words;

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
    config: Config,
    uri: Uri,
    headers: HeaderMap,
    total: Duration,
    idle: Duration,
    watch: Watch,
    /// Made for the first exchange.
    agent: Option<Agent>,
    /// What the caller of an exchange looks at.
    piece: Vec<u8>,
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
        let watch = Watch::new(total, idle);
        Ok(Self { config, uri, headers, total, idle, watch, agent: None, piece: Vec::new() })
    }

    /// A way to the same endpoint that is not connected yet.
    pub fn again(&self) -> Self {
        let (config, uri, headers) = (self.config.clone(), self.uri.clone(), self.headers.clone());
        let (total, idle) = (self.total, self.idle);
        let watch = Watch::new(total, idle);
        Self { config, uri, headers, total, idle, watch, agent: None, piece: Vec::new() }
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

    /// Begins to post `body`, which is not empty; [`Exchange::head`] sends it.
    pub fn post<'a>(&'a mut self, body: Arc<String>, cancel: &Cancel) -> Exchange<'a> {
        self.watch.begin(cancel);
        Exchange { wire: self, step: Step::Begun(body) }
    }

    fn agent(&mut self) -> &Agent {
        let (config, watch) = (&self.config, &self.watch);
        self.agent.get_or_insert_with(|| {
            let connector =
                ().chain(ConnectProxyConnector::default())
                    .chain(Dial { watch: watch.clone(), is_direct: config.proxy().is_none() })
                    .chain(RustlsConnector::default());
            Agent::with_parts(config.clone(), connector, Lookup(watch.clone()))
        })
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

/// One exchange that has begun. Dropping it before its end closes its connection.
pub struct Exchange<'a> {
    wire: &'a mut Wire,
    step: Step,
}

enum Step {
    Begun(Arc<String>),
    Answered(BodyReader<'static>),
    Over,
}

impl Exchange<'_> {
    /// Sends the body, and waits for the status and the headers.
    pub fn head(&mut self) -> Result<Head, Trouble> {
        let Step::Begun(body) = std::mem::replace(&mut self.step, Step::Over) else {
            return Err(Trouble::Broken(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
        };
        let (uri, headers) = (self.wire.uri.clone(), self.wire.headers.clone());
        let mut request = self.wire.agent().post(uri);
        if let Some(all) = request.headers_mut() {
            *all = headers;
        }
        let sent = request.send(body.as_str());
        let (head, body) = sent.map_err(|error| self.unanswered(error))?.into_parts();
        self.step = Step::Answered(body.into_reader());
        Ok(Head { status: head.status, headers: head.headers })
    }

    /// Waits for the next bytes of the body, no longer than `grace` when it is given; `None` at its end.
    pub fn bytes(&mut self, grace: Option<Duration>) -> Result<Option<&[u8]>, Trouble> {
        let Step::Answered(reader) = &mut self.step else { return Ok(None) };
        let (watch, idle) = (&self.wire.watch, self.wire.idle);
        watch.set_idle(grace.map_or(idle, |grace| grace.min(idle)));
        self.wire.piece.resize(PIECE, 0);
        // Looked at each time: an endless stream must not outrun its deadline.
        let read = watch.check().and_then(|()| Ok(reader.read(&mut self.wire.piece)?));
        watch.set_idle(idle);
        match read {
            Ok(0) => {
                self.step = Step::Over;
                Ok(None)
            }
            Ok(count) => Ok(Some(&self.wire.piece[..count])),
            Err(error) => {
                self.step = Step::Over;
                Err(self.stopped().unwrap_or(Trouble::Broken(error)))
            }
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

    /// What the exchange was given up for, if it was.
    fn stopped(&self) -> Option<Trouble> {
        self.wire.watch.stopped().map(|stop| match stop {
            Stop::Cancelled => Trouble::Cancelled,
            Stop::Total => Trouble::Total,
            Stop::Idle => Trouble::Idle,
        })
    }

    fn unanswered(&self, error: Error) -> Trouble {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        if let Some(stopped) = self.stopped() {
            return stopped;
        }
        match error {
            Error::Io(io)
                if matches!(
                    io.kind(),
                    BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
                ) =>
            {
                let kept = !self.wire.watch.connected();
                Trouble::Unanswered { error: Error::Io(io), kept }
            }
            Error::Protocol(_) | Error::LargeResponseHeader(..) | Error::Http(_) => {
                Trouble::Broken(error)
            }
            error => Trouble::Connect(error),
        }
    }
}
