//! Why an exchange failed, with the message for the user, and whether another attempt makes sense.

use super::HttpClient;
use super::proxy::ProxyRefusal;
use delta_base::time::format_duration;
use delta_http::retry::RetryDecision;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use ureq::Error;

/// Why an exchange has no complete response.
#[derive(Debug)]
pub enum HttpError {
    /// Cancellation was requested.
    Cancelled,
    /// The whole exchange took too long.
    TotalTimeout,
    /// No byte arrived for too long.
    IdleTimeout,
    /// The connection could not be established.
    Connect(Error),
    /// The proxy did not open a connection to the endpoint.
    ProxyRefused(ProxyRefusal),
    /// The connection ended before the first byte of a response.
    NoResponse {
        /// The system's error.
        error: Error,
        /// An earlier exchange opened the connection. The endpoint may close such a connection at any time.
        was_reused: bool,
    },
    /// The server answered plain HTTP with a record of TLS.
    TlsExpected,
    /// The connection broke off within the response, or the response is not HTTP.
    BrokenResponse(Error),
}

impl HttpClient {
    /// The message about `error` for the user.
    pub fn describe_error(&self, error: &HttpError) -> String {
        let url = self.redacted_url();
        match error {
            HttpError::Cancelled => "interrupted".to_owned(),
            HttpError::TotalTimeout => {
                format!(
                    "no complete response from {url} within {}",
                    format_span(self.total_timeout)
                )
            }
            HttpError::IdleTimeout => {
                format!("nothing received from {url} for {}", format_span(self.idle_timeout))
            }
            HttpError::Connect(error) => {
                let proxy = self.proxy_name();
                let route = proxy.map(|name| format!(" through the proxy {name}"));
                let route = route.unwrap_or_default();
                let reason = if is_not_tls(error) {
                    "the address begins with https, but the server speaks plain HTTP".to_owned()
                } else {
                    format_with_sources(error)
                };
                format!("could not connect to {url}{route}: {reason}")
            }
            HttpError::ProxyRefused(refusal) => {
                let proxy = self.proxy_name().unwrap_or_default();
                format!("the proxy {proxy} opened no connection to {url}: {refusal}")
            }
            HttpError::NoResponse { error, .. } => {
                format!(
                    "{url} closed the connection without a response: {}",
                    format_with_sources(error)
                )
            }
            HttpError::TlsExpected => {
                format!("{url} is an address of plain HTTP, but the server speaks TLS")
            }
            HttpError::BrokenResponse(error) => {
                format!("the response of {url} broke off: {}", format_with_sources(error))
            }
        }
    }
}

impl HttpError {
    /// Whether another attempt makes sense.
    pub fn retry_decision(&self) -> RetryDecision {
        match self {
            Self::NoResponse { was_reused: true, .. } => RetryDecision::Immediately,
            Self::Cancelled | Self::TlsExpected => RetryDecision::Never,
            Self::ProxyRefused(refusal) if refusal.is_lasting => RetryDecision::Never,
            Self::Connect(error) if tls_error(error).is_some_and(is_permanent_tls_error) => {
                RetryDecision::Never
            }
            _ => RetryDecision::Backoff,
        }
    }
}

fn format_span(duration: Duration) -> String {
    format_duration(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// The error with all its sources.
fn format_with_sources(error: &Error) -> String {
    let Error::Io(error) = error else { return error.to_string() };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    // rustls adds an address of its documentation.
    text.split(": https://docs.rs/").next().unwrap_or_default().to_owned()
}

/// The TLS error that caused `error`, if one did.
pub fn tls_error(error: &Error) -> Option<&rustls::Error> {
    match error {
        Error::Rustls(error) => Some(error),
        Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// Whether the server at an `https` address does not speak TLS, such as a server of plain HTTP.
pub fn is_not_tls(error: &Error) -> bool {
    let not_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    tls_error(error) == Some(&not_tls)
}

/// Whether nothing listens at the address.
pub fn is_connection_refused(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether the name of the host has no address, or none could be looked up.
pub fn is_unknown_host(error: &Error) -> bool {
    // The standard library has no kind of error for it.
    matches!(error, Error::HostNotFound)
        || matches!(error, Error::Io(error) if error.to_string().starts_with("failed to lookup address"))
}

/// Whether a retry would fail in the same way: an untrusted certificate stays untrusted, and a server of plain HTTP does
/// not start to speak TLS.
fn is_permanent_tls_error(error: &rustls::Error) -> bool {
    use rustls::{Error, InvalidMessage};
    matches!(
        error,
        Error::InvalidCertificate(_)
            | Error::General(_)
            | Error::InvalidMessage(InvalidMessage::InvalidContentType)
    )
}
