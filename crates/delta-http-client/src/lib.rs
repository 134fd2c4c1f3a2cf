//! An HTTP client for one address, one exchange at a time, in the calling thread. Every wait ends at cancellation and
//! at both timeouts.
//!
//! It does not judge responses and repeats no request; [`delta_http::retry`] says when another attempt makes sense. A
//! connection is reused by the next exchange if the response was read to its end.

use connection::{ExchangeWatch, SocketConnector, StopReason, ThreadResolver};
use delta_base::signal::CancelToken;
use delta_base::url_secrets::mask_url;
use delta_http::ResponseHead;
pub use error::HttpError;
use proxy::{ProxyConnector, ProxyRefusal, ProxyRoute};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{HeaderMap, Method, Uri, header};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::{Connector, RustlsConnector};
use ureq::{Agent, BodyReader, Error, Proxy};

mod connection;
pub mod error;
pub mod proxy;

const READ_BUFFER_BYTES: usize = 16 * 1024;
/// How long an unused connection is kept; tools run between two calls.
const MAX_IDLE_AGE: Duration = Duration::from_secs(90);
/// The longest wait for a connection, shared by all addresses of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The address of an [`HttpClient`], and the settings of all its requests.
#[derive(Debug, Clone)]
pub struct HttpClientConfig<'a> {
    /// The complete URL.
    pub url: &'a str,
    /// The headers of every request.
    pub headers: HeaderMap,
    /// The timeout of a whole exchange.
    pub total_timeout: Duration,
    /// The longest time without a byte.
    pub idle_timeout: Duration,
    /// The URL of a proxy.
    pub proxy: Option<&'a str>,
}

/// A client for one address.
pub struct HttpClient {
    config: Config,
    route: Option<Arc<ProxyRoute>>,
    uri: Uri,
    headers: HeaderMap,
    total_timeout: Duration,
    idle_timeout: Duration,
    watch: ExchangeWatch,
    /// `None` before the first exchange.
    agent: Option<Agent>,
    buffer: Vec<u8>,
}

impl HttpClient {
    /// Configures a client. Does not connect yet.
    ///
    /// # Errors
    /// The URL or the proxy is invalid; the message names it.
    pub fn new(client_config: HttpClientConfig<'_>) -> Result<Self, String> {
        let HttpClientConfig { url, headers, total_timeout, idle_timeout, proxy } = client_config;
        let uri = parse_http_url(url)?;
        let proxy = proxy.map(ProxyRoute::parse).transpose()?;
        let connect_timeout =
            CONNECT_TIMEOUT.min(total_timeout).min(idle_timeout).max(Duration::from_millis(1));
        let proxy_scheme = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str());
        let has_tls = [uri.scheme_str(), proxy_scheme].contains(&Some("https"));
        let configure = |proxy: Option<Proxy>| {
            let mut config = Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .user_agent(concat!("delta/", env!("CARGO_PKG_VERSION")))
                .accept_encoding("identity")
                .max_idle_age(MAX_IDLE_AGE)
                .timeout_connect(Some(connect_timeout));
            if has_tls {
                config = config.tls_config(tls_config());
            }
            // Set even when it is `None`: otherwise ureq takes a proxy from the environment.
            config.proxy(proxy).build()
        };
        let config = configure(proxy.clone());
        let route = proxy.map(|proxy| ProxyRoute::new(proxy, configure(None))).transpose()?;
        let watch = ExchangeWatch::new(total_timeout, idle_timeout);
        Ok(Self {
            config,
            route: route.map(Arc::new),
            uri,
            headers,
            total_timeout,
            idle_timeout,
            watch,
            agent: None,
            buffer: Vec::new(),
        })
    }

    /// A client with the same settings and no connection.
    pub fn clone_unconnected(&self) -> Self {
        Self {
            config: self.config.clone(),
            route: self.route.clone(),
            uri: self.uri.clone(),
            headers: self.headers.clone(),
            total_timeout: self.total_timeout,
            idle_timeout: self.idle_timeout,
            watch: ExchangeWatch::new(self.total_timeout, self.idle_timeout),
            agent: None,
            buffer: Vec::new(),
        }
    }

    /// Replaces the headers of every request.
    pub fn set_headers(&mut self, headers: HeaderMap) {
        self.headers = headers;
    }

    /// The URL of the requests, without a password and without keys in its query.
    pub fn redacted_url(&self) -> String {
        mask_url(&self.uri.to_string())
    }

    /// The host of the URL.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// Whether the URL has the scheme `http`.
    pub fn is_plain_http(&self) -> bool {
        self.uri.scheme_str() == Some("http")
    }

    /// The URL of the proxy that the requests go through, without user and password.
    pub fn proxy_name(&self) -> Option<&str> {
        self.route.as_ref().map(|route| route.name.as_str())
    }

    /// The headers of a request as it is sent.
    fn sent_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        let forwarding = self.route.as_ref().filter(|route| route.is_forwarded(&self.uri));
        if let Some(value) = forwarding.and_then(|route| route.authorization()) {
            headers.insert(header::PROXY_AUTHORIZATION, value);
        }
        headers
    }

    /// Starts an exchange that posts `body`, which must not be empty; [`HttpExchange::send`] sends it.
    pub fn post<'a>(
        &'a mut self,
        body: Arc<dyn AsRef<[u8]>>,
        cancel: &CancelToken,
    ) -> HttpExchange<'a> {
        self.watch.start_exchange(cancel);
        HttpExchange { client: self, phase: ExchangePhase::Unsent(body) }
    }

    /// Starts an exchange that gets the URL; [`HttpExchange::send`] sends it.
    pub fn get<'a>(&'a mut self, cancel: &CancelToken) -> HttpExchange<'a> {
        self.watch.start_exchange(cancel);
        HttpExchange { client: self, phase: ExchangePhase::UnsentBodyless(Method::GET) }
    }

    /// Starts an exchange that deletes what the URL names; [`HttpExchange::send`] sends it.
    pub fn delete<'a>(&'a mut self, cancel: &CancelToken) -> HttpExchange<'a> {
        self.watch.start_exchange(cancel);
        HttpExchange { client: self, phase: ExchangePhase::UnsentBodyless(Method::DELETE) }
    }

    fn agent(&mut self) -> &Agent {
        let config = &self.config;
        let watch = &self.watch;
        let route = &self.route;
        self.agent.get_or_insert_with(|| {
            let is_direct = route.is_none();
            let connector =
                ().chain(ProxyConnector(route.clone()))
                    .chain(SocketConnector { watch: watch.clone(), is_direct })
                    .chain(RustlsConnector::default());
            Agent::with_parts(config.clone(), connector, ThreadResolver(watch.clone()))
        })
    }
}

fn parse_http_url(url: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = url.parse().ok();
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    uri.filter(|uri| uri.host().is_some_and(|host| !host.is_empty())).ok_or_else(|| {
        format!("expected a URL such as `https://HOST/...`, found `{}`", mask_url(url))
    })
}

/// The system's certificates decide. They are loaded at the first handshake.
fn tls_config() -> TlsConfig {
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

/// A request and its response. Dropping it before the end of the response closes the connection.
pub struct HttpExchange<'a> {
    client: &'a mut HttpClient,
    phase: ExchangePhase,
}

enum ExchangePhase {
    Unsent(Arc<dyn AsRef<[u8]>>),
    UnsentBodyless(Method),
    ReadingBody(BodyReader<'static>),
    Finished,
}

impl HttpExchange<'_> {
    /// Sends the request, and waits for the status and the headers.
    pub fn send(&mut self) -> Result<ResponseHead, HttpError> {
        let phase = std::mem::replace(&mut self.phase, ExchangePhase::Finished);
        let uri = self.client.uri.clone();
        let headers = self.client.sent_headers();
        let response = match phase {
            ExchangePhase::Unsent(body) => {
                let mut request = self.client.agent().post(uri);
                if let Some(request_headers) = request.headers_mut() {
                    *request_headers = headers;
                }
                request.send((*body).as_ref())
            }
            ExchangePhase::UnsentBodyless(method) => {
                let agent = self.client.agent();
                let mut request =
                    if method == Method::DELETE { agent.delete(uri) } else { agent.get(uri) };
                if let Some(request_headers) = request.headers_mut() {
                    *request_headers = headers;
                }
                request.call()
            }
            ExchangePhase::ReadingBody(_) | ExchangePhase::Finished => {
                return Err(HttpError::BrokenResponse(
                    io::Error::from(io::ErrorKind::UnexpectedEof).into(),
                ));
            }
        };
        let (head, body) = response.map_err(|error| self.classify_send_error(error))?.into_parts();
        self.phase = ExchangePhase::ReadingBody(body.into_reader());
        Ok(ResponseHead { status: head.status, headers: head.headers })
    }

    /// Waits for the next bytes of the body, at most `max_wait` if it is given; `None` at the end.
    pub fn read_chunk(&mut self, max_wait: Option<Duration>) -> Result<Option<&[u8]>, HttpError> {
        let ExchangePhase::ReadingBody(reader) = &mut self.phase else { return Ok(None) };
        let watch = &self.client.watch;
        let idle_timeout = self.client.idle_timeout;
        watch.set_idle_timeout(max_wait.map_or(idle_timeout, |wait| wait.min(idle_timeout)));
        self.client.buffer.resize(READ_BUFFER_BYTES, 0);
        // Checked for each read: an endless stream never waits, and would outrun its deadline.
        let result = watch.check().and_then(|()| Ok(reader.read(&mut self.client.buffer)?));
        watch.set_idle_timeout(idle_timeout);
        match result {
            Ok(0) => {
                self.phase = ExchangePhase::Finished;
                Ok(None)
            }
            Ok(count) => Ok(Some(&self.client.buffer[..count])),
            Err(error) => {
                self.phase = ExchangePhase::Finished;
                Err(self.stop_error().unwrap_or(HttpError::BrokenResponse(error)))
            }
        }
    }

    /// Reads the remaining body as text, up to about `limit` bytes. A body that breaks off ends there.
    ///
    /// # Errors
    /// Only [`HttpError::Cancelled`].
    pub fn read_text(&mut self, limit: usize) -> Result<String, HttpError> {
        let body = self.read_bytes(limit)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Reads the remaining body, up to about `limit` bytes. A body that breaks off ends there.
    ///
    /// # Errors
    /// Only [`HttpError::Cancelled`].
    pub fn read_bytes(&mut self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while body.len() < limit {
            match self.read_chunk(None) {
                Ok(Some(chunk)) => body.extend(chunk),
                Err(HttpError::Cancelled) => return Err(HttpError::Cancelled),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(body)
    }

    /// The cancellation or the timeout that stopped the exchange, if one did.
    fn stop_error(&self) -> Option<HttpError> {
        self.client.watch.stop_reason().map(|reason| match reason {
            StopReason::Cancelled => HttpError::Cancelled,
            StopReason::TotalTimeout => HttpError::TotalTimeout,
            StopReason::IdleTimeout => HttpError::IdleTimeout,
        })
    }

    fn classify_send_error(&self, error: Error) -> HttpError {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        if let Some(stop_error) = self.stop_error() {
            return stop_error;
        }
        match error {
            Error::Io(io) if ProxyRefusal::is_cause_of(&io) => match io.downcast() {
                Ok(refusal) => HttpError::ProxyRefused(refusal),
                Err(io) => HttpError::Connect(io.into()),
            },
            Error::Io(io)
                if matches!(
                    io.kind(),
                    BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
                ) =>
            {
                let was_reused = !self.client.watch.has_connected();
                HttpError::NoResponse { error: Error::Io(io), was_reused }
            }
            Error::Protocol(_) if self.client.watch.has_received_tls() => HttpError::TlsExpected,
            Error::Protocol(_) | Error::LargeResponseHeader(..) | Error::Http(_) => {
                HttpError::BrokenResponse(error)
            }
            error => HttpError::Connect(error),
        }
    }
}
