//! Any endpoint that speaks Chat Completions over HTTP: posts the body, reads the answer whole or streamed, and tries
//! again where that makes sense.
//!
//! It builds no conversation and keeps none. An answer comes out whole or not at all, every failed try is told at
//! once, and a cancellation ends any wait.

mod failure;

use super::sse::Assembly;
use super::{Attempt, Endpoint, LlmError, Provider, Reply, Request, Tell, reply_of_response};
use crate::http::retry::Retry;
use crate::http::{Exchange, Trouble, Way, Wire};
use crate::signal::Cancel;
use crate::text::mend_surrogates;
use crate::time;
use failure::{Asked, Failure, Fault};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{HeaderMap, HeaderValue, header};

/// The longest body of an answer.
const LARGEST: usize = 64 * 1024 * 1024;
/// The longest body of an error answer that is read; a message is found far earlier.
const LARGEST_ERROR: usize = 1024 * 1024;
/// How long a stream that said `[DONE]` may take to end, so that its connection can be kept.
const GRACE: Duration = Duration::from_millis(500);

/// A provider that asks an OpenAI-compatible endpoint.
pub struct OpenAi {
    endpoint: Endpoint,
    model: String,
    wire: Wire,
    /// The endpoint refused `stream_options` once.
    without_usage: bool,
}

impl OpenAi {
    /// Prepares everything but the connection. `model` is only for messages and for a usage that names none.
    ///
    /// # Errors
    /// The address, the proxy or the key cannot be what they are meant for; nothing was asked.
    pub fn new(endpoint: Endpoint, model: impl Into<String>) -> Result<Self, LlmError> {
        let url = format!("{}/chat/completions", endpoint.base_url.trim_end_matches('/'));
        let way = Way {
            url: &url,
            headers: headers(&endpoint).map_err(LlmError::failed)?,
            total: Duration::from_millis(endpoint.timeout_ms),
            idle: Duration::from_millis(endpoint.idle_timeout_ms),
            proxy: endpoint.proxy.as_deref(),
        };
        let wire = Wire::new(way).map_err(LlmError::failed)?;
        Ok(Self { endpoint, model: model.into(), wire, without_usage: false })
    }

    /// A provider for the same endpoint that is not connected yet.
    pub fn again(&self) -> Self {
        let (endpoint, model) = (self.endpoint.clone(), self.model.clone());
        Self { endpoint, model, wire: self.wire.again(), without_usage: false }
    }

    /// One try: one body sent, one answer read.
    fn try_once(
        &mut self,
        body: &Arc<String>,
        cancel: &Cancel,
        status: &mut Option<u16>,
    ) -> Result<Reply, Fault> {
        let mut exchange = self.wire.post(Arc::clone(body), cancel);
        let head = exchange.head()?;
        *status = Some(head.status.as_u16());
        if !head.status.is_success() {
            let body = exchange.rest(LARGEST_ERROR)?;
            return Err(Fault::Refused { head, body });
        }
        let streamed = head.text("content-type").is_some_and(|kind| kind.contains("event-stream"));
        let reply = match streamed {
            true => read_stream(&mut exchange, &self.model),
            false => read_whole(&mut exchange, &self.model),
        }?;
        Ok(Reply { status: *status, ..reply })
    }

    /// Whether the endpoint failed only because it does not know `stream_options`; from then on it is left out.
    fn drops_usage(&mut self, fault: &Fault, body: &str) -> bool {
        let refused = match fault {
            Fault::Refused { head, body } => {
                matches!(head.status.as_u16(), 400 | 422)
                    && (body.contains("stream_options") || body.contains("include_usage"))
            }
            _ => false,
        };
        let drops = refused && without_stream_options(body).is_some();
        self.without_usage |= drops;
        drops
    }
}

impl Provider for OpenAi {
    fn complete(
        &mut self,
        request: &Request<'_>,
        cancel: &Cancel,
        tell: Tell<'_>,
    ) -> Result<Reply, LlmError> {
        let mut failures = 0;
        loop {
            if cancel.requested() {
                return Err(LlmError::Cancelled);
            }
            let shorter =
                if self.without_usage { without_stream_options(request.body) } else { None };
            let shorter = shorter.map(Arc::new);
            let body = shorter.as_ref().unwrap_or(request.body);
            let (started_at, began, mut status) = (time::now(), Instant::now(), None);
            let fault = match self.try_once(body, cancel, &mut status) {
                Ok(mut reply) => {
                    reply.sent = shorter;
                    return Ok(reply);
                }
                Err(Fault::Trouble(Trouble::Cancelled)) => return Err(LlmError::Cancelled),
                Err(fault) => fault,
            };
            let again = self.drops_usage(&fault, body);
            let asked = Asked { wire: &self.wire, endpoint: &self.endpoint, model: &self.model };
            let failure = Failure::of(fault, &asked);
            let retry = if again { Retry::AtOnce } else { failure.retry };
            let pause = retry.pause(&mut failures, self.endpoint.max_retries);
            let duration_ms = millis(began.elapsed());
            let (error, retry_in_ms) = (failure.message.clone(), pause.map(millis));
            tell(&Attempt { started_at, duration_ms, status, error, retry_in_ms });
            match pause {
                None => return Err(failure.into_error(status)),
                Some(pause) if cancel.wait(pause) => return Err(LlmError::Cancelled),
                Some(_) => {}
            }
        }
    }
}

fn headers(endpoint: &Endpoint) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accept = if endpoint.stream { "text/event-stream" } else { "application/json" };
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    if let Some(key) = &endpoint.key {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let mut value = value
            .map_err(|_| "the API key holds a character that no header can hold".to_owned())?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The body without `stream_options`, as an endpoint is asked that does not know it; `None` when it has none.
pub fn without_stream_options(body: &str) -> Option<String> {
    let mut body: Value = serde_json::from_str(body).ok()?;
    body.as_object_mut()?.shift_remove("stream_options")?;
    Some(body.to_string())
}

/// An answer that comes in one piece.
fn read_whole(exchange: &mut Exchange<'_>, model: &str) -> Result<Reply, Fault> {
    let mut body = Vec::new();
    while let Some(piece) = exchange.bytes(None)? {
        body.extend(piece);
        if body.len() > LARGEST {
            return Err(Fault::TooLarge);
        }
    }
    let text = String::from_utf8_lossy(&body);
    let text = text.trim_start_matches('\u{feff}');
    // Some servers stream without saying so.
    if ["data:", "event:", ":"].iter().any(|field| text.starts_with(field)) {
        let mut assembly = Assembly::default();
        assembly.push(text.as_bytes())?;
        assembly.finish()?;
        return reply_of(assembly, model);
    }
    let response: Value =
        serde_json::from_str(&mend_surrogates(text)).map_err(|_| Fault::not_json(text))?;
    if response.get("choices").is_none()
        && response.get("error").is_some_and(|error| !error.is_null())
    {
        return Err(Fault::Reported(response));
    }
    reply_of_response(&response, model).map_err(Fault::Unusable)
}

/// An answer that comes as a stream of events.
fn read_stream(exchange: &mut Exchange<'_>, model: &str) -> Result<Reply, Fault> {
    let (mut assembly, mut size) = (Assembly::default(), 0);
    loop {
        match exchange.bytes(assembly.is_done().then_some(GRACE)) {
            Ok(Some(piece)) => {
                size += piece.len();
                if size > LARGEST {
                    return Err(Fault::TooLarge);
                }
                assembly.push(piece)?;
            }
            Ok(None) => {
                assembly.finish()?;
                return reply_of(assembly, model);
            }
            Err(Trouble::Cancelled) => return Err(Trouble::Cancelled.into()),
            // Nothing of the answer is missing, only a proper end of the connection.
            Err(_) if assembly.is_whole() => return reply_of(assembly, model),
            Err(trouble) => return Err(trouble.into()),
        }
    }
}

fn reply_of(assembly: Assembly, model: &str) -> Result<Reply, Fault> {
    if assembly.is_whole() { Ok(assembly.into_reply(model)) } else { Err(Fault::BrokenOff) }
}
