//! Sends spans to an OTLP endpoint over HTTP, as JSON, and says what became of them.
//!
//! A request that the endpoint could not take now is sent again; spans have the same ids each time, so that one which
//! arrives twice is still one. No word that comes out of here holds the value of a header.

use super::otlp::Batch;
use crate::http::retry::Retry;
use crate::http::{Head, Trouble, Way, Wire};
use crate::llm::endpoint::{Lookup, proxy_for};
use crate::signal::Cancel;
use crate::text::Secrets;
use crate::time;
use serde_json::Value as Json;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};

/// How often a request is sent again.
const MAX_RETRIES: u32 = 2;
/// The longest answer that is read.
const LONGEST: usize = 64 * 1024;
/// The most characters that are shown of an answer without a message.
const SHOWN: usize = 500;

/// For one request, unless OTEL_EXPORTER_OTLP_TIMEOUT says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The endpoint when nothing names another.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
/// Where an endpoint takes traces.
const TRACES: &str = "/v1/traces";

/// An OTLP endpoint for traces.
pub struct Collector {
    wire: Wire,
    secrets: Secrets,
}

/// What the endpoint took.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Where it was sent.
    pub address: String,
    /// How many spans it took.
    pub spans: u64,
    /// How many it refused.
    pub rejected: u64,
    /// What it says of them, or to be kept in mind.
    pub words: Vec<String>,
}

/// Why spans were not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The stop was asked for.
    #[error("interrupted")]
    Cancelled,
    /// An address or a header that cannot be one.
    #[error("{0}")]
    Unusable(String),
    /// The endpoint was not reached, or did not take a request.
    #[error("{0}")]
    Refused(String),
}

impl Collector {
    /// The endpoint `given`, or else the one that the environment names, which also gives the headers, the timeout and
    /// the proxy. Nothing is connected yet.
    ///
    /// # Errors
    /// An address, a header or a timeout that cannot be one.
    pub fn new(given: Option<&str>, env: Lookup<'_>) -> Result<Self, SendError> {
        let url = address(given, env);
        let (headers, secrets) = read_headers(&either(env, "HEADERS").unwrap_or_default())
            .map_err(SendError::Unusable)?;
        let total = timeout(env).map_err(SendError::Unusable)?;
        let uri: Option<Uri> = url.parse().ok();
        let uri = uri.as_ref();
        let scheme = uri.and_then(Uri::scheme_str).unwrap_or_default();
        let proxy = proxy_for(scheme, uri.and_then(Uri::host).unwrap_or_default(), env);
        let way = Way { url: &url, headers, total, idle: total, proxy: proxy.as_deref() };
        Ok(Self { wire: Wire::new(way).map_err(SendError::Unusable)?, secrets })
    }

    /// Sends every batch in turn; `tell` gets a line for each try that failed and is followed by another.
    ///
    /// # Errors
    /// The first batch that is not taken ends it; those before it were.
    pub fn send(
        mut self,
        batches: &[Batch],
        cancel: &Cancel,
        tell: &mut dyn FnMut(&str),
    ) -> Result<Accepted, SendError> {
        let mut accepted = Accepted { address: self.wire.address(), ..Accepted::default() };
        for batch in batches {
            let body = self.deliver(batch, cancel, tell)?;
            accepted.count(batch, &self.secrets.hide(&body));
        }
        Ok(accepted)
    }

    /// Sends one batch, again where that makes sense; gives the answer.
    fn deliver(
        &mut self,
        batch: &Batch,
        cancel: &Cancel,
        tell: &mut dyn FnMut(&str),
    ) -> Result<String, SendError> {
        let mut failures = 0;
        loop {
            let (words, retry) = match post(&mut self.wire, &batch.line, cancel) {
                Ok((head, body)) if head.status.is_success() => return Ok(body),
                Ok((head, body)) => of_answer(&head, &body),
                Err(Trouble::Cancelled) => return Err(SendError::Cancelled),
                Err(trouble) => (self.wire.words(&trouble), trouble.retry()),
            };
            let words = self.secrets.hide(&words).into_owned();
            let Some(pause) = retry.pause(&mut failures, MAX_RETRIES) else {
                return Err(SendError::Refused(words));
            };
            let wait = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            tell(&format!("{words}; again in {}", time::human_duration(wait)));
            if cancel.wait(pause) {
                return Err(SendError::Cancelled);
            }
        }
    }
}

/// The address for traces.
fn address(given: Option<&str>, env: Lookup<'_>) -> String {
    let first = |name: &str| env(name).into_iter().next().map(|setting| setting.value);
    let whole = first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").filter(|_| given.is_none());
    if let Some(whole) = whole {
        return whole;
    }
    let base = given.map(str::to_owned).or_else(|| first("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let base = base.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
    let base = base.trim_end_matches('/');
    if base.ends_with(TRACES) { base.to_owned() } else { format!("{base}{TRACES}") }
}

/// The setting of this name for traces, or else for everything.
fn either(env: Lookup<'_>, name: &str) -> Option<String> {
    let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
    names.iter().find_map(|name| env(name).into_iter().next()).map(|setting| setting.value)
}

fn timeout(env: Lookup<'_>) -> Result<Duration, String> {
    let Some(text) = either(env, "TIMEOUT") else { return Ok(TIMEOUT) };
    let millis = text.trim().parse().ok().filter(|millis| *millis > 0);
    millis.map(Duration::from_millis).ok_or_else(|| {
        format!("OTEL_EXPORTER_OTLP_TIMEOUT is `{text}`: write a number of milliseconds")
    })
}

/// The headers, and the values that must not be shown.
fn read_headers(text: &str) -> Result<(HeaderMap, Secrets), String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let mut secrets = Vec::new();
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    for (place, pair) in pairs.enumerate() {
        let wrong = |why: &str| {
            let place = place + 1;
            format!(
                "header {place} of OTEL_EXPORTER_OTLP_HEADERS {why}: write `name=value,name=value`"
            )
        };
        let (name, value) = pair.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let name = HeaderName::try_from(name.trim());
        let name = name.map_err(|_| wrong("has a name that is none"))?;
        let value = decoded(value.trim());
        let mut header =
            HeaderValue::from_str(&value).map_err(|_| wrong("has a value that is none"))?;
        header.set_sensitive(true);
        headers.insert(name, header);
        // An endpoint that complains of a token often repeats it without the word before it.
        secrets.extend(value.split_whitespace().map(str::to_owned));
        secrets.push(value);
    }
    Ok((headers, Secrets::new(secrets)))
}

impl Accepted {
    fn count(&mut self, batch: &Batch, body: &str) {
        let answer: Json = serde_json::from_str(body).unwrap_or_default();
        let partial = |names: [&str; 2]| {
            let partial = answer.get("partialSuccess").or_else(|| answer.get("partial_success"))?;
            names.into_iter().find_map(|name| partial.get(name)).cloned()
        };
        let rejected = partial(["rejectedSpans", "rejected_spans"]);
        // A 64-bit integer is a text in this JSON; not every server knows.
        let rejected = rejected
            .and_then(|count| count.as_u64().or_else(|| count.as_str()?.parse().ok()))
            .unwrap_or(0);
        let spans = batch.spans as u64;
        self.rejected += rejected.min(spans);
        self.spans += spans.saturating_sub(rejected);
        let words = partial(["errorMessage", "error_message"]);
        let words = words.and_then(|words| words.as_str().map(str::to_owned));
        self.words.extend(words.filter(|words| !words.is_empty()));
    }
}

fn post(wire: &mut Wire, body: &str, cancel: &Cancel) -> Result<(Head, String), Trouble> {
    let mut exchange = wire.post(Arc::new(body.to_owned()), cancel);
    let head = exchange.head()?;
    let body = exchange.rest(LONGEST)?;
    Ok((head, body))
}

/// An answer that is no success in words, and whether it is worth another try.
fn of_answer(head: &Head, body: &str) -> (String, Retry) {
    let retry = match head.status.as_u16() {
        429 | 502..=504 => Retry::asked(head, time::now()),
        _ => Retry::Never,
    };
    let answer: Json = serde_json::from_str(body).unwrap_or_default();
    let said = answer.get("message").and_then(Json::as_str).map(str::to_owned);
    let redirect = head.text("location").filter(|_| head.status.is_redirection());
    let said = redirect
        .map(|location| format!("it redirects to {location}"))
        .or(said)
        .unwrap_or_else(|| body.trim().chars().take(SHOWN).collect());
    let reason =
        head.status.canonical_reason().map_or(String::new(), |reason| format!(" {reason}"));
    let said = if said.is_empty() { said } else { format!(": {said}") };
    (format!("the endpoint answered {}{reason}{said}", head.status.as_u16()), retry)
}

/// `text` with its `%` escapes resolved; one that is none stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .filter(|_| *first == b'%')
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::endpoint::{Origin, Setting};

    fn with<T>(all: &[(&str, &str)], ask: impl Fn(Lookup<'_>) -> T) -> T {
        ask(&|name| {
            let found = all.iter().filter(|(known, _)| *known == name);
            let setting = |(_, value): &(&str, &str)| Setting {
                name: name.to_owned(),
                value: (*value).to_owned(),
                origin: Origin::Process,
            };
            found.map(setting).collect()
        })
    }

    #[test]
    fn c_19_4_the_address_is_found_as_opentelemetry_says() {
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:1/otlp/");
        let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://whole/x");
        let check = |all: &[(&str, &str)], given, expected: &str| {
            assert_eq!(with(all, |env| address(given, env)), expected);
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
        assert_eq!(with(&[], timeout), Ok(TIMEOUT));
        assert_eq!(with(&[all], timeout), Ok(Duration::from_millis(200)));
        assert_eq!(with(&[all, ours], timeout), Ok(Duration::from_millis(300)));
        for wrong in ["0", "-1", "10s", "x"] {
            assert!(with(&[("OTEL_EXPORTER_OTLP_TIMEOUT", wrong)], timeout).is_err(), "{wrong}");
        }
    }

    #[test]
    fn c_19_4_values_of_headers_are_decoded() {
        let check = |text: &str, expected: &str| assert_eq!(decoded(text), expected, "{text}");
        check("Basic%20YTpi", "Basic YTpi");
        check("a+b=c", "a+b=c");
        check("100%", "100%");
        check("%zz%4", "%zz%4");
        check("%C3%A9", "é");
        let (headers, _) = read_headers(" a = 1 ,,b=2=3,").unwrap();
        assert_eq!(
            (&headers["a"], &headers["b"]),
            (&"1".parse().unwrap(), &"2=3".parse().unwrap())
        );
        for wrong in ["a", "a b=c", "a=b%0a"] {
            assert!(read_headers(wrong).is_err(), "{wrong}");
        }
    }
}
