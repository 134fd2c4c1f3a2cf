//! Sends spans to an OTLP endpoint over HTTP, as protobuf or JSON.
//!
//! A request that fails temporarily is retried. Spans have stable ids, so a span that arrives twice is stored once.
//! The values of headers are redacted in every message.

use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::text::byte_escape::decode_percent;
use delta_base::time;
use delta_http::retry::RetryDecision;
use delta_http::{ResponseHead, append_path};
use delta_http_client::{HttpClient, HttpClientConfig, HttpError};
use delta_llm::llm::endpoint::{EnvLookup, find_proxy};
use delta_report::export::otlp::SpanBatch;
use delta_report::export::protobuf::{self, ProtobufValue};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;

const MAX_RETRIES: u32 = 2;
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// The most characters shown of a response body that is not an OTLP status.
const MAX_MESSAGE_CHARS: usize = 500;

/// The timeout of one request.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
const TRACES_PATH: &str = "/v1/traces";

/// The request encoding, by its name in OTEL_EXPORTER_OTLP_PROTOCOL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtlpProtocol {
    /// `http/protobuf`.
    Protobuf,
    /// `http/json`.
    Json,
}

impl OtlpProtocol {
    fn media_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

/// An OTLP endpoint for traces.
pub struct OtlpCollector {
    client: HttpClient,
    secrets: Secrets,
    protocol: OtlpProtocol,
    /// A problem with the settings that does not prevent sending.
    warning: Option<String>,
}

/// How the endpoint answered all batches.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CollectorSummary {
    /// The URL of the endpoint, without credentials.
    pub address: String,
    /// The number of accepted spans.
    pub spans: u64,
    /// The number of rejected spans.
    pub rejected: u64,
    /// The endpoint's errors and warnings, redacted.
    pub messages: Vec<String>,
}

/// Why not all spans were sent.
#[derive(Debug)]
pub enum CollectorError {
    /// The [`CancelToken`] was set.
    Cancelled,
    /// The address, a header, the timeout or the protocol is invalid.
    InvalidSettings(String),
    /// The endpoint could not be reached or rejected a request; retries are used up.
    Undelivered(String),
}

impl OtlpCollector {
    /// Configures the endpoint at `endpoint`, or else the one in the environment, which also provides the headers, the
    /// timeout, the protocol and the proxy. Does not connect yet.
    ///
    /// # Errors
    /// [`CollectorError::InvalidSettings`].
    pub fn new(endpoint: Option<&str>, env: EnvLookup<'_>) -> Result<Self, CollectorError> {
        Self::configure(endpoint, env).map_err(CollectorError::InvalidSettings)
    }

    fn configure(endpoint: Option<&str>, env: EnvLookup<'_>) -> Result<Self, String> {
        let url = traces_url(endpoint, env);
        let (protocol, warning) = otlp_protocol(env)?;
        let (mut headers, secrets) =
            parse_otlp_headers(&otlp_setting(env, "HEADERS").unwrap_or_default())?;
        for name in [header::CONTENT_TYPE, header::ACCEPT] {
            headers.entry(name).or_insert(HeaderValue::from_static(protocol.media_type()));
        }
        let timeout = otlp_timeout(env)?;
        let proxy = find_proxy(&url, env);
        let client_config = HttpClientConfig {
            url: &url,
            headers,
            total_timeout: timeout,
            idle_timeout: timeout,
            proxy: proxy.as_deref(),
        };
        Ok(Self { client: HttpClient::new(client_config)?, secrets, protocol, warning })
    }

    /// Sends the batches in order. `warn` gets a line for each attempt that is retried.
    ///
    /// # Errors
    /// The first batch that fails ends the sending; the batches before it were delivered.
    pub fn send(
        &mut self,
        batches: &[SpanBatch],
        cancel: &CancelToken,
        warn: &mut dyn FnMut(&str),
    ) -> Result<CollectorSummary, CollectorError> {
        self.warning.take().iter().for_each(|warning| warn(warning));
        let mut summary =
            CollectorSummary { address: self.client.redacted_url(), ..CollectorSummary::default() };
        for batch in batches {
            let response = self.send_batch(batch, cancel, warn)?;
            summary.add_response(batch.spans as u64, &response, &self.secrets);
        }
        Ok(summary)
    }

    fn send_batch(
        &mut self,
        batch: &SpanBatch,
        cancel: &CancelToken,
        warn: &mut dyn FnMut(&str),
    ) -> Result<CollectorResponse, CollectorError> {
        let body = Arc::new(match self.protocol {
            OtlpProtocol::Json => batch.line.clone().into_bytes(),
            OtlpProtocol::Protobuf => protobuf::encode_trace_request(&batch.request()),
        });
        let mut failures = 0;
        loop {
            let (reason, retry) = match post_batch(&mut self.client, &body, cancel) {
                Ok(response) if response.is_acceptance() => return Ok(response),
                Ok(response) => rejection_reason(&response),
                Err(HttpError::Cancelled) => return Err(CollectorError::Cancelled),
                Err(error) => (self.client.describe_error(&error), error.retry_decision()),
            };
            let reason = self.secrets.redact(&reason).into_owned();
            let Some(delay) = retry.next_delay(&mut failures, MAX_RETRIES) else {
                return Err(CollectorError::Undelivered(reason));
            };
            let wait = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            warn(&format!("{reason}; retrying in {}", time::format_duration(wait)));
            if cancel.wait(delay) {
                return Err(CollectorError::Cancelled);
            }
        }
    }
}

fn traces_url(endpoint: Option<&str>, env: EnvLookup<'_>) -> String {
    let setting = |name: &str| env(name).into_iter().next().map(|setting| setting.value);
    let base = match endpoint {
        Some(endpoint) => Some(endpoint.to_owned()),
        None => match setting("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            Some(url) => return url,
            None => setting("OTEL_EXPORTER_OTLP_ENDPOINT"),
        },
    };
    append_path(base.as_deref().unwrap_or(DEFAULT_ENDPOINT), TRACES_PATH)
}

/// The setting for traces, or else the one for all signals.
fn otlp_setting(env: EnvLookup<'_>, name: &str) -> Option<String> {
    let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
    names.iter().find_map(|name| env(name).into_iter().next()).map(|setting| setting.value)
}

fn otlp_timeout(env: EnvLookup<'_>) -> Result<Duration, String> {
    let Some(text) = otlp_setting(env, "TIMEOUT") else { return Ok(DEFAULT_TIMEOUT) };
    let millis = text.trim().parse().ok().filter(|millis| *millis > 0);
    millis.map(Duration::from_millis).ok_or_else(|| {
        format!("OTEL_EXPORTER_OTLP_TIMEOUT is `{text}`: expected a number of milliseconds")
    })
}

/// The protocol in the environment, or OpenTelemetry's default; with a warning when the setting is unknown.
fn otlp_protocol(env: EnvLookup<'_>) -> Result<(OtlpProtocol, Option<String>), String> {
    let Some(text) = otlp_setting(env, "PROTOCOL") else {
        return Ok((OtlpProtocol::Protobuf, None));
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "http/protobuf" => Ok((OtlpProtocol::Protobuf, None)),
        "http/json" => Ok((OtlpProtocol::Json, None)),
        "grpc" => Err(
            "OTEL_EXPORTER_OTLP_PROTOCOL is `grpc`, but delta sends over HTTP: expected `http/protobuf` or `http/json`"
                .to_owned(),
        ),
        _ => {
            let warning = format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is `{text}`: expected `http/protobuf` or `http/json`; using `http/protobuf`"
            );
            Ok((OtlpProtocol::Protobuf, Some(warning)))
        }
    }
}

/// Parses the headers; their values are secrets.
fn parse_otlp_headers(text: &str) -> Result<(HeaderMap, Secrets), String> {
    let mut headers = HeaderMap::new();
    let mut secrets = Vec::new();
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    for (index, pair) in pairs.enumerate() {
        let error = |problem: &str| {
            format!(
                "header {} in OTEL_EXPORTER_OTLP_HEADERS {problem}: expected `name=value,name=value`",
                index + 1
            )
        };
        let (name, value) = pair.split_once('=').ok_or_else(|| error("has no `=`"))?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| error("has an invalid name"))?;
        let value = String::from_utf8_lossy(&decode_percent(value.trim())).into_owned();
        let mut header =
            HeaderValue::from_str(&value).map_err(|_| error("has an invalid value"))?;
        header.set_sensitive(true);
        headers.insert(name, header);
        // Endpoints often repeat a token in their errors, without the word before it.
        secrets.extend(value.split_whitespace().map(str::to_owned));
        secrets.push(value);
    }
    Ok((headers, Secrets::new(secrets)))
}

struct CollectorResponse {
    head: ResponseHead,
    body: Vec<u8>,
}

impl CollectorResponse {
    fn media_type(&self) -> String {
        let value = self.head.header_text("content-type").unwrap_or_default();
        value.trim().to_ascii_lowercase()
    }

    fn is_protobuf(&self) -> bool {
        self.media_type().starts_with(OtlpProtocol::Protobuf.media_type())
    }

    /// Whether a web server answered, such as a proxy with its login.
    fn is_page(&self) -> bool {
        let media_type = self.media_type();
        ["text/html", "application/xhtml"].iter().any(|page| media_type.starts_with(page))
    }

    /// Whether a collector has taken the batch, or a part of it.
    fn is_acceptance(&self) -> bool {
        self.head.status.is_success() && !self.is_page()
    }

    /// The number of rejected spans, and the endpoint's message about them.
    fn partial_success(&self) -> (u64, Option<String>) {
        if self.is_protobuf() {
            let Some(ProtobufValue::Bytes(partial)) = protobuf::find_field(&self.body, 1) else {
                return (0, None);
            };
            let rejected = match protobuf::find_field(partial, 1) {
                Some(ProtobufValue::Varint(count)) => u64::try_from(count.cast_signed()),
                _ => Ok(0),
            };
            let message = protobuf::find_text_field(partial, 2).map(str::to_owned);
            return (rejected.unwrap_or(0), message);
        }
        let response: Json = serde_json::from_slice(&self.body).unwrap_or_default();
        let partial = response.get("partialSuccess").or_else(|| response.get("partial_success"));
        let field = |names: [&str; 2]| names.into_iter().find_map(|name| partial?.get(name));
        // OTLP/JSON writes 64-bit integers as strings; not every server does.
        let rejected = field(["rejectedSpans", "rejected_spans"])
            .and_then(|count| count.as_u64().or_else(|| count.as_str()?.parse().ok()));
        let message = field(["errorMessage", "error_message"]).and_then(Json::as_str);
        (rejected.unwrap_or(0), message.map(str::to_owned))
    }

    /// The endpoint's message about a failure.
    fn error_message(&self) -> String {
        if let Some(encoding) = self.head.content_encoding() {
            return format!("its message has the unsupported encoding `{encoding}`");
        }
        if self.is_protobuf() {
            return protobuf::find_text_field(&self.body, 2).unwrap_or_default().to_owned();
        }
        let response: Json = serde_json::from_slice(&self.body).unwrap_or_default();
        match response.get("message").and_then(Json::as_str) {
            Some(message) => message.to_owned(),
            None => {
                let text = String::from_utf8_lossy(&self.body);
                text.trim().chars().take(MAX_MESSAGE_CHARS).collect()
            }
        }
    }
}

impl CollectorSummary {
    /// Adds what the endpoint answered to later batches. A message that it repeats is there once.
    pub fn add(&mut self, later: Self) {
        self.address = later.address;
        self.spans += later.spans;
        self.rejected += later.rejected;
        for message in later.messages {
            if !self.messages.contains(&message) {
                self.messages.push(message);
            }
        }
    }

    fn add_response(&mut self, spans: u64, response: &CollectorResponse, secrets: &Secrets) {
        let (rejected, message) = match response.head.content_encoding() {
            Some(encoding) => {
                (0, Some(format!("unreadable answer with the unsupported encoding `{encoding}`")))
            }
            None => response.partial_success(),
        };
        self.rejected += rejected.min(spans);
        self.spans += spans.saturating_sub(rejected);
        let message = message.filter(|message| !message.is_empty());
        self.messages.extend(message.map(|message| secrets.redact(&message).into_owned()));
    }
}

fn post_batch(
    client: &mut HttpClient,
    body: &Arc<Vec<u8>>,
    cancel: &CancelToken,
) -> Result<CollectorResponse, HttpError> {
    let mut exchange = client.post(Arc::<Vec<u8>>::clone(body), cancel);
    let head = exchange.send()?;
    let body = exchange.read_bytes(MAX_RESPONSE_BYTES)?;
    Ok(CollectorResponse { head, body })
}

/// Describes a response that is not a success, and says whether the request is worth a retry.
fn rejection_reason(response: &CollectorResponse) -> (String, RetryDecision) {
    let head = &response.head;
    let retry = match head.status.as_u16() {
        429 | 502..=504 => RetryDecision::from_headers(head, time::current_time()),
        _ => RetryDecision::Never,
    };
    let mut text = format!("the endpoint answered {}", head.status.as_u16());
    if let Some(reason) = head.status.canonical_reason() {
        text = format!("{text} {reason}");
    }
    let message = match head.header_text("location") {
        Some(location) if head.status.is_redirection() => format!("it redirects to {location}"),
        _ if response.is_page() => {
            "a page in HTML, so it is not a collector; correct the address".to_owned()
        }
        _ => response.error_message(),
    };
    if !message.is_empty() {
        text = format!("{text}: {message}");
    }
    (text, retry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};

    fn with<T>(all: &[(&str, &str)], ask: impl Fn(EnvLookup<'_>) -> T) -> T {
        ask(&|name| {
            let found = all.iter().filter(|(known, _)| *known == name);
            let setting = |(_, value): &(&str, &str)| EnvSetting {
                name: name.to_owned(),
                value: (*value).to_owned(),
                origin: EnvOrigin::Process,
            };
            found.map(setting).collect()
        })
    }

    #[test]
    fn c_19_4_the_address_is_found_as_opentelemetry_says() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1/otlp/");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://whole/x");
        let check = |all: &[(&str, &str)], given, expected: &str| {
            assert_eq!(with(all, |env| traces_url(given, env)), expected);
        };
        check(&[], None, "http://localhost:4318/v1/traces");
        check(&[base], None, "http://base:1/otlp/v1/traces");
        check(&[base, whole], None, "http://whole/x");
        check(&[base, whole], Some("http://given"), "http://given/v1/traces");
        check(&[], Some("http://given/v1/traces/"), "http://given/v1/traces");
    }

    #[test]
    fn c_19_4_settings_for_traces_stand_before_those_for_everything() {
        let all = ("OTEL_EXPORTER_OTLP_TIMEOUT", "200");
        let ours = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "300");
        assert_eq!(with(&[], otlp_timeout), Ok(DEFAULT_TIMEOUT));
        assert_eq!(with(&[all], otlp_timeout), Ok(Duration::from_millis(200)));
        assert_eq!(with(&[all, ours], otlp_timeout), Ok(Duration::from_millis(300)));
        for wrong in ["0", "-1", "10s", "x"] {
            assert!(
                with(&[("OTEL_EXPORTER_OTLP_TIMEOUT", wrong)], otlp_timeout).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn c_19_4_the_encoding_is_found_as_opentelemetry_says() {
        let all = |value| ("OTEL_EXPORTER_OTLP_PROTOCOL", value);
        let ours = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json");
        let check = |set: &[(&str, &str)], expected: OtlpProtocol, warns: bool| {
            let (found, warning) = with(set, otlp_protocol).unwrap();
            assert_eq!((found, warning.is_some()), (expected, warns), "{set:?}");
        };
        check(&[], OtlpProtocol::Protobuf, false);
        check(&[all("http/json")], OtlpProtocol::Json, false);
        check(&[all("HTTP/Protobuf"), ours], OtlpProtocol::Json, false);
        check(&[all("HTTP/Protobuf")], OtlpProtocol::Protobuf, false);
        check(&[all("thrift")], OtlpProtocol::Protobuf, true);
        assert!(with(&[all("grpc")], otlp_protocol).is_err());
    }

    #[test]
    fn c_19_4_values_of_headers_are_decoded() {
        let (headers, _) = parse_otlp_headers(" a = 1 ,,b=2=3,c=a+%20b%,").unwrap();
        for (name, value) in [("a", "1"), ("b", "2=3"), ("c", "a+ b%")] {
            assert_eq!(headers[name], value);
        }
        for wrong in ["a", "a b=c", "a=b%0a"] {
            assert!(parse_otlp_headers(wrong).is_err(), "{wrong}");
        }
    }
}
