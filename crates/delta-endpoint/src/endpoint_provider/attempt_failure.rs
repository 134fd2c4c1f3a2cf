//! A failed attempt: its message for the user with a hint, and whether another attempt makes sense. The API key is
//! redacted in it.

use super::key_refresh::KeyRefresh;
use super::upstream_error::{describe_upstream, reported_status};
use delta_base::json_repair::replace_lone_surrogates;
use delta_base::redact::Secrets;
use delta_base::time::{self, Timestamp};
use delta_base::url_secrets::{mask_url, url_secrets};
use delta_http::retry::RetryDecision;
use delta_http::{ResponseHead, is_loopback_host};
use delta_http_client::error::{is_connection_refused, is_not_tls, is_unknown_host, tls_error};
use delta_http_client::{HttpClient, HttpError};
use delta_llm::llm::wire::{RejectionAdvice, WireCodec};
use delta_llm::llm::{
    AnswerError, CONTEXT_LENGTH_HINT, Endpoint, LlmError, StreamError, UnusableAnswer, body_excerpt,
};
use delta_words::Usage;
use serde_json::Value;
use ureq::Error;

/// Parts of error messages by which endpoints report that the conversation is too long.
const CONTEXT_LENGTH_PHRASES: [&str; 12] = [
    "context_length_exceeded",
    "exceed_context_size",
    "context length",
    "context window",
    "context size",
    "maximum context",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "reduce the length",
];

/// Codes and types of errors that another attempt would have too: of the key, the credit, the model and the content.
const LASTING_ERRORS: [&str; 12] = [
    "authentication_error",
    "billing_error",
    "content_filter",
    "content_policy_violation",
    "insufficient_quota",
    "invalid_api_key",
    "invalid_request_error",
    "BadRequestError",
    "model_not_found",
    "not_found_error",
    "permission_error",
    "request_too_large",
];

/// Parts of the messages with which servers of TLS answer plain HTTP.
const TLS_EXPECTED_PHRASES: [&str; 3] = [
    "plain http request was sent to https port",
    "sent an http request to an https server",
    "speaking plain http to an ssl-enabled server port",
];

const TLS_EXPECTED_HINT: &str =
    "if the server speaks TLS, write `https://` in `llm.base_url` or DELTA_BASE_URL";

/// Why an attempt has no reply.
#[derive(Debug)]
pub enum AttemptError {
    /// The connection, a timeout or the cancellation.
    Http(HttpError),
    /// The status is not a success.
    Rejected {
        /// The status and the headers.
        head: ResponseHead,
        /// The part of the body that arrived.
        body: String,
    },
    /// The stream ended before the reply was complete.
    IncompleteStream,
    /// The response arrived whole, and cannot be read as a reply.
    Answer(AnswerError),
    /// The body has an encoding that the request did not accept.
    UnsupportedEncoding(String),
    /// The body exceeds the limit.
    TooLarge,
}

impl From<HttpError> for AttemptError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<AnswerError> for AttemptError {
    fn from(error: AnswerError) -> Self {
        Self::Answer(error)
    }
}

impl From<StreamError> for AttemptError {
    fn from(error: StreamError) -> Self {
        AnswerError::from(error).into()
    }
}

/// The words of an error that came after a complete answer.
pub fn late_error_text(error: &StreamError) -> String {
    match error {
        StreamError::NotJson(text) => text.clone(),
        StreamError::Reported(body) => {
            error_message(body).unwrap_or_else(|| body_excerpt(&body.to_string()))
        }
    }
}

/// A failed attempt, as it is reported.
#[derive(Debug)]
pub struct AttemptFailure {
    /// The message for the user.
    pub message: String,
    /// Whether another attempt makes sense.
    pub retry: RetryDecision,
    /// Whether nothing listens at an address of this machine.
    pub is_local_refusal: bool,
    /// The tokens of an answer that arrived whole, if the endpoint reported them.
    pub usage: Option<Usage>,
    hint: Option<String>,
    response: Option<Value>,
}

/// The endpoint and the model of an attempt.
pub struct AttemptTarget<'a> {
    /// The client that sent the request.
    pub client: &'a HttpClient,
    /// The settings.
    pub endpoint: &'a Endpoint,
    /// The translation of the requests.
    pub codec: &'a dyn WireCodec,
    /// The model of the request.
    pub model: &'a str,
    /// Whether the request has an image or a PDF.
    pub has_images: bool,
    /// Whether the request has a PDF.
    pub has_documents: bool,
    /// The source of the key, if it is a command.
    pub key_refresh: Option<&'a KeyRefresh>,
}

impl AttemptFailure {
    /// Describes `error`, with the API key redacted.
    pub fn new(error: AttemptError, target: &AttemptTarget<'_>) -> Self {
        let mut failure = match error {
            AttemptError::Http(error) => describe_http_error(&error, target),
            AttemptError::Rejected { head, body } => describe_rejection(&head, &body, target),
            AttemptError::IncompleteStream => {
                Self::retryable("the response broke off: the stream ended early")
            }
            AttemptError::Answer(AnswerError::InvalidResponse(message)) => Self::retryable(message),
            AttemptError::UnsupportedEncoding(encoding) => Self {
                message: format!(
                    "the endpoint's response has the encoding `{encoding}`, but delta accepts only `identity`"
                ),
                retry: RetryDecision::Never,
                hint: Some(
                    "turn off response compression in the server, or in a proxy in front of it"
                        .to_owned(),
                ),
                ..Self::retryable("")
            },
            AttemptError::TooLarge => Self::retryable("the response is longer than 64 MiB"),
            AttemptError::Answer(AnswerError::Reported(body)) => describe_reported(body, target),
            AttemptError::Answer(AnswerError::Unusable(answer)) => {
                let UnusableAnswer { message, hint, usage, retry, response } = *answer;
                let response = Some(response);
                Self { message, retry, is_local_refusal: false, usage, hint, response }
            }
        };
        if let Some(key) = &target.endpoint.api_key {
            failure.redact(key.secrets());
        }
        let of_address = Secrets::new(url_secrets(&target.endpoint.base_url));
        if !of_address.is_empty() {
            failure.redact(&of_address);
        }
        failure
    }

    fn retryable(message: impl Into<String>) -> Self {
        let retry = RetryDecision::Backoff;
        let message = message.into();
        Self { message, retry, is_local_refusal: false, usage: None, hint: None, response: None }
    }

    /// The error of the whole call.
    pub fn into_error(self, status: Option<u16>) -> LlmError {
        let Self { message, hint, response, .. } = self;
        LlmError::Failed { message, status, hint, response, script_turn: None }
    }

    /// Some endpoints repeat the key in their error about it.
    fn redact(&mut self, secrets: &Secrets) {
        self.message = secrets.redact(&self.message).into_owned();
        if let Some(response) = &mut self.response {
            *response =
                serde_json::from_str(&secrets.redact(&response.to_string())).unwrap_or_default();
        }
    }
}

/// Describes an error that is the response itself, or an event of it.
fn describe_reported(body: Value, target: &AttemptTarget<'_>) -> AttemptFailure {
    let error = error_message(&body).unwrap_or_else(|| body_excerpt(&body.to_string()));
    let message = format!("the endpoint reported an error: {error}");
    let is_too_long = is_context_length_error(&body.to_string().to_lowercase());
    let RejectionAdvice { retry, hint } = target.codec.advise_reported(&body);
    let status = reported_status(&body);
    let is_final = is_too_long
        || names_lasting_error(&body)
        || status.is_some_and(|status| !is_retried_status(status));
    let default = if is_final { RetryDecision::Never } else { RetryDecision::Backoff };
    let hint = hint.or_else(|| rejection_hint(status?, &body.to_string(), target));
    AttemptFailure {
        retry: retry.unwrap_or(default),
        hint: hint.or_else(|| is_too_long.then(|| CONTEXT_LENGTH_HINT.to_owned())),
        response: Some(body),
        ..AttemptFailure::retryable(message)
    }
}

/// Whether an error is one that another attempt would have too, by its name.
fn names_lasting_error(body: &Value) -> bool {
    ["/error/code", "/error/type"].into_iter().any(|path| {
        let name = body.pointer(path).and_then(Value::as_str).unwrap_or_default();
        LASTING_ERRORS.contains(&name)
    })
}

fn describe_http_error(error: &HttpError, target: &AttemptTarget<'_>) -> AttemptFailure {
    let hint = match error {
        HttpError::TotalTimeout => {
            Some("raise `llm.timeout_ms` if responses may take longer".to_owned())
        }
        HttpError::IdleTimeout => {
            let hint = "raise `llm.idle_timeout_ms` if the endpoint may be silent for longer";
            Some(hint.to_owned())
        }
        HttpError::Connect(error) => connect_hint(error, target),
        HttpError::TlsExpected => Some(TLS_EXPECTED_HINT.to_owned()),
        // Some servers of TLS close a connection of plain HTTP without a word.
        HttpError::NoResponse { was_reused: false, .. } if target.client.is_plain_http() => {
            Some(TLS_EXPECTED_HINT.to_owned())
        }
        HttpError::Cancelled | HttpError::NoResponse { .. } | HttpError::BrokenResponse(_) => None,
    };
    AttemptFailure {
        message: target.client.describe_error(error),
        retry: error.retry_decision(),
        is_local_refusal: matches!(error, HttpError::Connect(error) if is_local_refusal(error, target)),
        usage: None,
        hint,
        response: None,
    }
}

/// Whether nothing listens at the address, which is one of this machine.
fn is_local_refusal(error: &Error, target: &AttemptTarget<'_>) -> bool {
    is_connection_refused(error)
        && !target.client.has_proxy()
        && is_loopback_host(target.client.host())
}

fn connect_hint(error: &Error, target: &AttemptTarget<'_>) -> Option<String> {
    let hint = if is_connection_refused(error) && target.client.has_proxy() {
        "nothing listens at the address in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
    } else if is_local_refusal(error, target) {
        "is the server running? Nothing listens there; start it, or correct `llm.base_url` or DELTA_BASE_URL"
    } else if is_unknown_host(error) {
        "check the network, and the host in `llm.base_url` or DELTA_BASE_URL"
    } else if is_not_tls(error) {
        "if the server speaks plain HTTP, write `http://` in `llm.base_url` or DELTA_BASE_URL"
    } else if tls_error(error).is_some() {
        "the system's certificates decide which servers are trusted; SSL_CERT_FILE replaces them"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

fn describe_rejection(
    head: &ResponseHead,
    body: &str,
    target: &AttemptTarget<'_>,
) -> AttemptFailure {
    let response: Option<Value> = serde_json::from_str(&replace_lone_surrogates(body)).ok();
    let location = head.header_text("location").filter(|_| head.status.is_redirection());
    let detail = match (location, head.content_encoding()) {
        (Some(location), _) => format!("it redirects to {location}"),
        (None, Some(encoding)) => format!("its message has the encoding `{encoding}`"),
        (None, None) => {
            response.as_ref().and_then(error_message).unwrap_or_else(|| body_excerpt(body))
        }
    };
    let status = head.status.as_u16();
    let mut message = format!("the endpoint answered {status}");
    if let Some(reason) = head.status.canonical_reason() {
        message = format!("{message} {reason}");
    }
    if !detail.is_empty() {
        message = format!("{message}: {detail}");
    }
    let is_quota_exhausted = status == 429 && body.contains("insufficient_quota");
    let retry = if is_quota_exhausted {
        RetryDecision::Never
    } else {
        rejection_retry(head, time::current_time())
    };
    let RejectionAdvice { retry: advised_retry, hint } = target.codec.advise(head, body);
    let hint = hint.or_else(|| rejection_hint(status, body, target));
    // The same conversation does not become shorter.
    let is_too_long = hint.as_deref() == Some(CONTEXT_LENGTH_HINT);
    let advised_retry = if is_too_long { Some(RetryDecision::Never) } else { advised_retry };
    AttemptFailure {
        message,
        retry: advised_retry.unwrap_or(retry),
        is_local_refusal: false,
        usage: None,
        hint,
        response,
    }
}

fn rejection_retry(head: &ResponseHead, now: Timestamp) -> RetryDecision {
    if is_retried_status(head.status.as_u16()) {
        RetryDecision::from_headers(head, now)
    } else {
        RetryDecision::Never
    }
}

fn is_retried_status(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500..=599)
}

fn rejection_hint(status: u16, body: &str, target: &AttemptTarget<'_>) -> Option<String> {
    let lower_body = body.to_lowercase();
    if target.has_images
        && let Some(hint) = image_hint(status, &lower_body, target.has_documents)
    {
        return Some(hint.to_owned());
    }
    let hint = match status {
        300..=399 => "set `llm.base_url` to the address that it redirects to".to_owned(),
        401 | 403 => {
            let variables = target.endpoint.form.key_variables().join(" or ");
            match target.key_refresh {
                Some(refresh) => refresh.rejection_hint(),
                None => {
                    format!(
                        "set a valid key in {variables}, or in the variable of `llm.api_key_env`"
                    )
                }
            }
        }
        402 => "the account has no credit for this request: add some at the provider".to_owned(),
        404 => format!(
            "check `llm.base_url` ({}) and the model name ({})",
            mask_url(&target.endpoint.base_url),
            target.model
        ),
        400 if is_tls_expected(&lower_body, target) => TLS_EXPECTED_HINT.to_owned(),
        400 | 413 | 422 | 500 if is_context_length_error(&lower_body) => {
            CONTEXT_LENGTH_HINT.to_owned()
        }
        429 if lower_body.contains("insufficient_quota") => {
            "the account's quota is exhausted: add credit or raise its limit at the provider"
                .to_owned()
        }
        _ => return None,
    };
    Some(hint)
}

/// What to do about a rejection of a request that has an image or a PDF, if the message is about it.
fn image_hint(status: u16, lower_body: &str, has_documents: bool) -> Option<&'static str> {
    let contains = |phrases: &[&str]| phrases.iter().any(|phrase| lower_body.contains(phrase));
    if !matches!(status, 400 | 404 | 413 | 415 | 422 | 500) {
        return None;
    }
    let is_large = contains(&["exceed", "too large", "too big"]);
    // A server that does not know the part names its type, or says that the type of a part is unknown.
    if has_documents && contains(&["pdf", "document", "file", "content[].type", "content type"]) {
        return Some(if is_large || contains(&["too many", "maximum"]) {
            "the endpoint refuses a PDF of this size: attach a smaller one or fewer pages"
        } else if contains(&["could not process", "not valid", "encrypt", "password", "corrupt"]) {
            "the endpoint cannot read a PDF: check that the file is whole and has no password"
        } else {
            "the model does not take PDFs: ask another one with `--model`, or name the file in the message, so that a tool reads it"
        });
    }
    let is_about_images = contains(&["image", "vision", "multimodal", "multi-modal"]);
    is_about_images.then(|| {
        if is_large {
            "the endpoint refuses an image of this size: attach a smaller one"
        } else if contains(&["could not process", "could not download", "corrupt", "decode"]) {
            "the endpoint cannot read an image: check that the file is whole"
        } else {
            "the model does not take images: ask another one with `--model`"
        }
    })
}

/// Whether a server of TLS rejects a request of plain HTTP.
fn is_tls_expected(lower_body: &str, target: &AttemptTarget<'_>) -> bool {
    target.client.is_plain_http()
        && TLS_EXPECTED_PHRASES.iter().any(|phrase| lower_body.contains(phrase))
}

fn is_context_length_error(lower_body: &str) -> bool {
    CONTEXT_LENGTH_PHRASES.iter().any(|phrase| lower_body.contains(phrase))
}

/// The endpoint's own message in an error body.
pub(super) fn error_message(body: &Value) -> Option<String> {
    // Some gateways wrap the error in a list.
    let body = body.get(0).unwrap_or(body);
    let candidates = [
        body.pointer("/error/message"),
        body.get("message"),
        body.get("detail"),
        body.get("error"),
    ];
    candidates.into_iter().flatten().find_map(|candidate| match candidate {
        Value::String(text) if !text.is_empty() => {
            Some(format!("{text}{}", describe_upstream(body)))
        }
        Value::Array(_) | Value::Object(_) => Some(body_excerpt(&candidate.to_string())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn c_7_3_the_message_of_the_endpoint_is_extracted() {
        let check = |body: Value, expected: Option<&str>| {
            assert_eq!(error_message(&body).as_deref(), expected, "{body}")
        };
        check(json!({"error": {"message": "a"}, "message": "b"}), Some("a"));
        check(json!({"message": "a", "error": "b"}), Some("a"));
        check(json!({"detail": "a"}), Some("a"));
        check(json!({"error": "a"}), Some("a"));
        check(json!([{"error": {"message": "a"}}]), Some("a"));
        check(json!({"detail": [{"msg": "a"}]}), Some(r#"[{"msg":"a"}]"#));
        check(json!({"other": 1}), None);
        check(json!("a"), None);
    }

    fn test_head(status: u16, name: &'static str, value: &'static str) -> ResponseHead {
        let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
        ResponseHead {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::from_iter([header]),
        }
    }

    #[test]
    fn c_7_3_which_statuses_are_retried() {
        let now = Timestamp::from_millis(0);
        let retry = |status| rejection_retry(&test_head(status, "x", "y"), now);
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert_eq!(retry(status), RetryDecision::Backoff, "{status}");
        }
        for status in [301, 302, 400, 401, 403, 404, 413, 422] {
            assert_eq!(retry(status), RetryDecision::Never, "{status}");
        }
        assert_eq!(
            rejection_retry(&test_head(503, "retry-after", "2"), now),
            RetryDecision::After(Duration::from_secs(2))
        );
        assert_eq!(rejection_retry(&test_head(400, "retry-after", "2"), now), RetryDecision::Never);
    }
}
