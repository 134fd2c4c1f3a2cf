//! A failed attempt: its message for the user with a hint, and whether another attempt makes sense. The API key is
//! redacted in it.

use super::key_refresh::KeyRefresh;
use super::refusal_words::{ErrorWords, RefusalCause};
use super::upstream_error::{describe_upstream, reported_status, upstream_headers};
use delta_base::json_repair::replace_lone_surrogates;
use delta_base::redact::Secrets;
use delta_base::time::{self, Timestamp};
use delta_base::url_secrets::{mask_url, url_secrets};
use delta_http::retry::RetryDecision;
use delta_http::{ResponseHead, is_loopback_host};
use delta_http_client::error::{is_connection_refused, is_not_tls, is_unknown_host, tls_error};
use delta_http_client::proxy::ProxyRefusal;
use delta_http_client::{HttpClient, HttpError};
use delta_llm::llm::wire::{RejectionAdvice, WireCodec};
use delta_llm::llm::{
    ANSWER_LENGTH_HINT, AnswerError, CONTEXT_LENGTH_HINT, Endpoint, ImageReader, LlmError,
    SHARED_CONTEXT_HINT, StreamError, UnusableAnswer, body_excerpt,
};
use delta_words::{Unavailability, Usage, WireForm, is_retried_status, is_throttling_status};
use http::StatusCode;
use serde_json::Value;
use ureq::Error;

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

/// Settings of `llm` that some models reject; their names do not occur in a message about something else.
const MODEL_SETTINGS: [&str; 17] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "parallel_tool_calls",
    "tool_choice",
    "reasoning_effort",
    "response_format",
    "logprobs",
    "top_logprobs",
    "service_tier",
    "max_tokens",
    "max_completion_tokens",
    "enable_thinking",
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
pub fn late_error_text(error: &StreamError) -> Option<String> {
    match error {
        StreamError::EarlyText(_) => None,
        StreamError::NotJson(text) => Some(text.clone()),
        StreamError::Reported(body) | StreamError::NoAnswer(body) => {
            error_message(body).or_else(|| Some(body_excerpt(&body.to_string())))
        }
    }
}

/// Parts of the messages, in lower case, with which endpoints refuse a request of a service tier that has no capacity, or that
/// the model does not have.
const TIER_REFUSAL_PHRASES: [&str; 5] =
    ["resource_unavailable", "resource unavailable", "capacity", "service_tier", "servicetier"];

/// Whether the endpoint has no place in the service tier of the request, or took too long: without the tier it may answer.
pub fn refuses_tier(error: &AttemptError) -> bool {
    let names_tier = |text: &str| {
        let text = text.to_lowercase();
        TIER_REFUSAL_PHRASES.iter().any(|phrase| text.contains(phrase))
    };
    match error {
        AttemptError::Http(error) => {
            matches!(error, HttpError::TotalTimeout | HttpError::IdleTimeout)
        }
        AttemptError::Rejected { head, body } => match head.status.as_u16() {
            408 | 498 | 503 | 504 => true,
            400 | 422 | 429 => names_tier(body),
            _ => false,
        },
        AttemptError::Answer(AnswerError::Reported(error)) => names_tier(&error.to_string()),
        _ => false,
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
    /// Whether an error that came with another status says that there were too many requests.
    pub is_throttled: bool,
    /// The tokens of an answer that arrived whole, if the endpoint reported them.
    pub usage: Option<Usage>,
    hint: Option<String>,
    response: Option<Value>,
    /// Why another attempt makes no sense here although another model may answer.
    lasting: Option<Unavailability>,
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
    /// The images and PDFs of the request; `None` if it has none.
    pub images: Option<ImageReader<'a>>,
    /// Whether the request has a PDF.
    pub has_documents: bool,
    /// The request as it was sent.
    pub sent: &'a str,
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
            AttemptError::Answer(AnswerError::Page(message)) => {
                Self { hint: Some(page_hint(target)), ..Self::retryable(message) }
            }
            AttemptError::Answer(AnswerError::NoAnswer(message, body)) => {
                let message = format!("{message}: {}", body_excerpt(&body.to_string()));
                Self { response: Some(body), ..Self::retryable(message) }
            }
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
                Self { retry, usage, hint, response, ..Self::retryable(message) }
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
        Self {
            message: message.into(),
            retry,
            is_local_refusal: false,
            is_throttled: false,
            usage: None,
            hint: None,
            response: None,
            lasting: None,
        }
    }

    /// The error of the whole call.
    pub fn into_error(self, status: Option<u16>) -> LlmError {
        let unavailable = self.unavailability(status);
        let Self { message, hint, response, .. } = self;
        LlmError::Failed { message, status, hint, response, unavailable, script_turn: None }
    }

    /// Why another model may answer, after the last attempt.
    fn unavailability(&self, status: Option<u16>) -> Option<Unavailability> {
        if self.lasting.is_some() || self.retry == RetryDecision::Never {
            return self.lasting;
        }
        let reported = self.response.as_ref().and_then(reported_status).or(status);
        let is_overloaded = reported.is_some_and(|it| is_throttling_status(it) || it == 503)
            || self.message.to_lowercase().contains("overloaded");
        Some(if is_overloaded { Unavailability::Overloaded } else { Unavailability::Gone })
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
    let text = body.to_string();
    let error = error_message(&body).unwrap_or_else(|| body_excerpt(&text));
    let message = format!("the endpoint reported an error: {error}");
    let words = ErrorWords::new(&text, target.sent);
    let status = reported_status(&body);
    let cause = RefusalCause::of(status.unwrap_or(200), &words);
    let RejectionAdvice { retry, hint } = target.codec.advise_reported(&body);
    let is_final =
        names_error(&body, &LASTING_ERRORS) || status.is_some_and(|it| !is_retried_status(it));
    let default = if is_final { RetryDecision::Never } else { delay_of_body(&body, &text) };
    let is_lasting = is_lasting(cause, default);
    let retry = if is_lasting { RetryDecision::Never } else { retry.unwrap_or(default) };
    let retry = or_for_next_call(retry, cause);
    let hint = hint.or_else(|| rejection_hint(status.unwrap_or(200), &text, &words, target));
    AttemptFailure {
        message: with_long_delay(message, retry),
        retry,
        hint,
        is_throttled: status.is_some_and(is_throttling_status)
            || cause == Some(RefusalCause::Throttled),
        lasting: lasting_unavailability(cause, status),
        usage: usage_of_error(&body, target.model),
        response: Some(body),
        ..AttemptFailure::retryable("")
    }
}

/// Another try where the server could not read the call of the model, which may write the next one as it should.
fn or_for_next_call(retry: RetryDecision, cause: Option<RefusalCause>) -> RetryDecision {
    match retry {
        RetryDecision::Never if cause == Some(RefusalCause::FailedCall) => RetryDecision::Backoff,
        retry => retry,
    }
}

/// The tokens that a gateway reports with an error.
fn usage_of_error(body: &Value, model: &str) -> Option<Usage> {
    let body = body.get(0).unwrap_or(body);
    ["/usage", "/error/usage"].iter().find_map(|path| Usage::parse(body.pointer(path)?, model))
}

/// Whether the cause of a refusal makes another attempt useless. The end of a period that the endpoint names can be waited
/// for.
fn is_lasting(cause: Option<RefusalCause>, requested: RetryDecision) -> bool {
    let has_end = matches!(requested, RetryDecision::After(_));
    cause.is_some_and(|it| it.is_lasting() && !(it == RefusalCause::PeriodLimit && has_end))
}

/// What the user can do about a refusal whose cause is known; `None` if another one is more likely.
fn cause_hint(cause: RefusalCause, status: u16, target: &AttemptTarget<'_>) -> Option<String> {
    let hint = match cause {
        RefusalCause::ContextLength => CONTEXT_LENGTH_HINT,
        RefusalCause::SharedContext => SHARED_CONTEXT_HINT,
        RefusalCause::AnswerLength => ANSWER_LENGTH_HINT,
        RefusalCause::Account => {
            "the account's quota is exhausted: add credit or raise its limit at the provider"
        }
        RefusalCause::PeriodLimit => {
            "the account's limit for this period is used up: continue the run when it is renewed, or raise it at the provider"
        }
        RefusalCause::OtherForm => "write `provider: responses` in `llm`",
        RefusalCause::Model => return Some(model_hint(target)),
        RefusalCause::Address => return Some(address_hint(target)),
        RefusalCause::RequestBytes => {
            return Some(format!(
                "the server, or a proxy in front of it, limits the bytes of a request, and this one has {}: include less in \
                 context.yaml, or attach less",
                target.sent.len()
            ));
        }
        RefusalCause::FailedCall => {
            "the model wrote a call that its server cannot read: continue the run, or ask another model with `--model`"
        }
        // Their words are also in messages about something else.
        RefusalCause::Region if status == 403 => {
            "the provider does not serve this country or region: use another one"
        }
        RefusalCause::Content if status == 403 => {
            "a filter of the endpoint refuses the conversation: change the message, or ask another model with `--model`"
        }
        RefusalCause::Throttled if status == 403 => {
            "the endpoint accepts no more requests for now: continue the run later"
        }
        RefusalCause::Region | RefusalCause::Content | RefusalCause::Throttled => return None,
    };
    Some(hint.to_owned())
}

/// Why another model may answer where this one refuses for good.
fn lasting_unavailability(
    cause: Option<RefusalCause>,
    status: Option<u16>,
) -> Option<Unavailability> {
    match (cause, status) {
        (
            Some(
                RefusalCause::ContextLength
                | RefusalCause::SharedContext
                | RefusalCause::AnswerLength,
            ),
            _,
        ) => None,
        (Some(RefusalCause::Account | RefusalCause::PeriodLimit), _) | (_, Some(402)) => {
            Some(Unavailability::OutOfQuota)
        }
        (Some(RefusalCause::Throttled), _) | (_, Some(498)) => Some(Unavailability::Overloaded),
        (Some(RefusalCause::Model | RefusalCause::OtherForm | RefusalCause::Address), _)
        | (_, Some(404 | 410)) => Some(Unavailability::Gone),
        _ => None,
    }
}

/// The delay that the body of an error requests: of the provider that a gateway asked, or in words.
fn delay_of_body(body: &Value, text: &str) -> RetryDecision {
    let headers =
        ResponseHead { status: StatusCode::TOO_MANY_REQUESTS, headers: upstream_headers(body) };
    let now = time::current_time();
    match RetryDecision::from_headers(&headers, now) {
        RetryDecision::Backoff => {
            RetryDecision::from_words(text, now).unwrap_or(RetryDecision::Backoff)
        }
        requested => requested,
    }
}

/// The message with the delay, if it is too long to wait for the next attempt.
fn with_long_delay(message: String, retry: RetryDecision) -> String {
    let Some(delay) = retry.long_delay() else { return message };
    let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    let until =
        Timestamp::from_millis(time::current_time().as_millis().saturating_add_unsigned(millis));
    format!("{message}; it asks for a pause of {}, until {until}", time::format_duration(millis))
}

/// Whether an error has one of these codes or types.
fn names_error(body: &Value, names: &[&str]) -> bool {
    ["/error/code", "/error/type"].into_iter().any(|path| {
        let name = body.pointer(path).and_then(Value::as_str).unwrap_or_default();
        names.contains(&name)
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
        HttpError::ProxyRefused(refusal) => proxy_hint(refusal.status, target),
        HttpError::TlsExpected => Some(TLS_EXPECTED_HINT.to_owned()),
        // Some servers of TLS close a connection of plain HTTP without a word.
        HttpError::NoResponse { was_reused: false, .. } if target.client.is_plain_http() => {
            Some(TLS_EXPECTED_HINT.to_owned())
        }
        HttpError::Cancelled | HttpError::NoResponse { .. } | HttpError::BrokenResponse(_) => None,
    };
    let mut message = target.client.describe_error(error);
    if let HttpError::ProxyRefused(ProxyRefusal { status: Some(_), words, .. }) = error
        && !words.trim().is_empty()
    {
        message = format!("{message}: {}", body_excerpt(words));
    }
    AttemptFailure {
        retry: error.retry_decision(),
        is_local_refusal: matches!(error, HttpError::Connect(error) if is_local_refusal(error, target)),
        hint,
        ..AttemptFailure::retryable(message)
    }
}

fn proxy_hint(status: Option<StatusCode>, target: &AttemptTarget<'_>) -> Option<String> {
    let proxy = target.client.proxy_name()?;
    let (scheme, address) = proxy.split_once("://")?;
    Some(if status == Some(StatusCode::PROXY_AUTHENTICATION_REQUIRED) {
        format!("the proxy wants a user and a password: write `{scheme}://USER:PASSWORD@{address}`")
    } else {
        format!(
            "HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names {proxy}; NO_PROXY={} avoids it",
            target.client.host()
        )
    })
}

/// Whether nothing listens at the address, which is one of this machine.
fn is_local_refusal(error: &Error, target: &AttemptTarget<'_>) -> bool {
    is_connection_refused(error)
        && target.client.proxy_name().is_none()
        && is_loopback_host(target.client.host())
}

fn connect_hint(error: &Error, target: &AttemptTarget<'_>) -> Option<String> {
    let has_proxy = target.client.proxy_name().is_some();
    let hint = if is_connection_refused(error) && has_proxy {
        "nothing listens at the address in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY"
    } else if is_unknown_host(error) && has_proxy {
        "check the network, and the host in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY; with `socks5h://` the proxy looks up the \
         host of the endpoint"
    } else if is_local_refusal(error, target) {
        "nothing listens there: start the server, or correct `llm.base_url` or DELTA_BASE_URL"
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
    let repaired = replace_lone_surrogates(body);
    let response: Option<Value> = serde_json::from_str(&repaired).ok();
    let location = head.header_text("location").filter(|_| head.status.is_redirection());
    let detail = match (location, head.content_encoding()) {
        (Some(location), _) => format!("it redirects to {location}"),
        (None, Some(encoding)) => format!("its message has the encoding `{encoding}`"),
        (None, None) => {
            response.as_ref().and_then(error_message).unwrap_or_else(|| body_excerpt(body))
        }
    };
    let status = head.status.as_u16();
    let who = match target.client.proxy_name().filter(|_| status == 407) {
        Some(proxy) => format!("the proxy {proxy}"),
        None => "the endpoint".to_owned(),
    };
    let mut message = format!("{who} answered {status}");
    if let Some(reason) = head.status.canonical_reason() {
        message = format!("{message} {reason}");
    }
    if !detail.is_empty() {
        message = format!("{message}: {detail}");
    }
    let mut retry = rejection_retry(head, time::current_time());
    if retry == RetryDecision::Backoff {
        retry = delay_of_body(response.as_ref().unwrap_or(&Value::Null), body);
    }
    let words = ErrorWords::new(&repaired, target.sent);
    let cause = RefusalCause::of(status, &words);
    let RejectionAdvice { retry: advised_retry, hint } = target.codec.advise(head, body);
    let hint = hint.or_else(|| rejection_hint(status, body, &words, target));
    let is_lasting = is_lasting(cause, retry);
    let advised_retry = if is_lasting { Some(RetryDecision::Never) } else { advised_retry };
    let retry = or_for_next_call(advised_retry.unwrap_or(retry), cause);
    let usage = response.as_ref().and_then(|body| usage_of_error(body, target.model));
    AttemptFailure {
        retry,
        hint,
        response,
        lasting: lasting_unavailability(cause, Some(status)),
        usage,
        ..AttemptFailure::retryable(with_long_delay(message, retry))
    }
}

fn rejection_retry(head: &ResponseHead, now: Timestamp) -> RetryDecision {
    if is_retried_status(head.status.as_u16()) {
        RetryDecision::from_headers(head, now)
    } else {
        RetryDecision::Never
    }
}

fn rejection_hint(
    status: u16,
    body: &str,
    words: &ErrorWords,
    target: &AttemptTarget<'_>,
) -> Option<String> {
    if let Some(images) = target.images
        && let Some(hint) = image_hint(status, words.text(), target.has_documents, images)
    {
        return Some(hint);
    }
    let cause = RefusalCause::of(status, words);
    if let Some(hint) = cause.and_then(|cause| cause_hint(cause, status, target)) {
        return Some(hint);
    }
    let hint = match status {
        300..=399 => "set `llm.base_url` to the address that it redirects to".to_owned(),
        403 if is_markup_page(body) => page_hint(target),
        401 | 403 => {
            let variables = target.endpoint.form.key_variables().join(" or ");
            match target.key_refresh {
                Some(refresh) => refresh.rejection_hint(),
                None if status == 403 => format!(
                    "check that the key in {variables}, or in the variable of `llm.api_key_env`, may use the model {}",
                    target.model
                ),
                None => {
                    format!(
                        "set a valid key in {variables}, or in the variable of `llm.api_key_env`"
                    )
                }
            }
        }
        407 => return proxy_hint(StatusCode::from_u16(status).ok(), target),
        402 => "the account has no credit for this request: add some at the provider".to_owned(),
        404 => model_hint(target),
        400 if is_tls_expected(words.text(), target) => TLS_EXPECTED_HINT.to_owned(),
        400 | 422 => return setting_hint(words.text()),
        _ => return None,
    };
    Some(hint)
}

/// Whether a body is a page, and not an error in XML.
fn is_markup_page(body: &str) -> bool {
    let start = body.trim_start();
    start.starts_with('<') && !start.starts_with("<?xml")
}

fn page_hint(target: &AttemptTarget<'_>) -> String {
    format!("a page answered, and not the API: {}, the network and the proxy", address_hint(target))
}

fn model_hint(target: &AttemptTarget<'_>) -> String {
    format!("{} and the model name ({})", address_hint(target), target.model)
}

fn address_hint(target: &AttemptTarget<'_>) -> String {
    let Endpoint { base_url, form, .. } = target.endpoint;
    let address = base_url.split_once("://").map_or(base_url.as_str(), |(_, address)| address);
    let (address, _) = address.split_once(['?', '#']).unwrap_or((address, ""));
    let has_path = address.trim_end_matches('/').contains('/');
    let lacks = match form {
        WireForm::OpenAi | WireForm::Responses if !has_path => ", which lacks `/v1`",
        _ => "",
    };
    format!("check `llm.base_url` ({}{lacks})", mask_url(base_url))
}

/// What to do about a rejection that names a setting of `llm`.
fn setting_hint(lower_body: &str) -> Option<String> {
    let words = lower_body.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let named = words.into_iter().find(|word| MODEL_SETTINGS.contains(word))?;
    Some(format!(
        "models accept different parameters: change or remove `{named}` in `llm`, or see the page of the model"
    ))
}

/// Words about the number of images.
const MANY_IMAGES: [&str; 4] =
    ["too many image", "number of images", "images are allowed", "image(s) may be provided"];

/// Words of OpenAI, Anthropic and vLLM about an image that is damaged, or in a format that they do not take.
const UNREADABLE_IMAGE: [&str; 10] = [
    "could not process",
    "could not download",
    "corrupt",
    "decode",
    "a valid image.",
    "invalid image data",
    "invalid_image",
    "image_parse_error",
    "image formats",
    "following formats",
];

/// What to do about a rejection of a request that has an image or a PDF, if the message is about it.
fn image_hint(
    status: u16,
    lower_body: &str,
    has_documents: bool,
    images: ImageReader<'_>,
) -> Option<String> {
    let contains = |phrases: &[&str]| phrases.iter().any(|phrase| lower_body.contains(phrase));
    if !matches!(status, 400 | 404 | 413 | 415 | 422 | 500) {
        return None;
    }
    let is_large = contains(&["exceed", "too large", "too big"]);
    // A server that does not know the part names its type, or says that the type of a part is unknown.
    if has_documents && contains(&["pdf", "document", "file", "content[].type", "content type"]) {
        let hint = if is_large || contains(&["too many", "maximum"]) {
            "the endpoint refuses a PDF of this size: attach a smaller one or fewer pages"
        } else if contains(&["could not process", "not valid", "encrypt", "password", "corrupt"]) {
            "the endpoint cannot read a PDF: check that the file is whole and has no password"
        } else {
            "the model does not take PDFs: ask another one with `--model`, or name the file in the message, so that a tool reads it"
        };
        return Some(hint.to_owned());
    }
    let is_about_images = contains(&["image", "vision", "multimodal", "multi-modal"]);
    if !is_about_images {
        return None;
    }
    let no_images = "the model does not take images: ask another one with `--model`";
    let (problem, remedy) = if contains(&["at most 0 image"]) {
        return Some(no_images.to_owned());
    } else if contains(&MANY_IMAGES) {
        ("the endpoint refuses so many images", "attach fewer, or include less in context.yaml")
    } else if contains(&["too small"]) {
        ("the endpoint refuses an image of this size", "attach a larger one")
    } else if is_large || contains(&["greater than", "at most"]) && contains(&["dimension", "size"])
    {
        ("the endpoint refuses an image of this size", "attach a smaller one")
    } else if contains(&UNREADABLE_IMAGE) {
        ("the endpoint cannot read an image", "check that the file is whole, and its format")
    } else {
        return Some(no_images.to_owned());
    };
    Some(match images.undo_command {
        // Each further request would contain it again.
        Some(undo) => {
            format!("{problem}, the result of a tool: `{undo}` goes back to before that call")
        }
        None => format!("{problem}: {remedy}"),
    })
}

/// Whether a server of TLS rejects a request of plain HTTP.
fn is_tls_expected(lower_body: &str, target: &AttemptTarget<'_>) -> bool {
    target.client.is_plain_http()
        && TLS_EXPECTED_PHRASES.iter().any(|phrase| lower_body.contains(phrase))
}

/// Where errors have their message. MiniMax and Baidu name no error.
const MESSAGE_PATHS: [&str; 10] = [
    "/error/message",
    "/error/base_resp/status_msg",
    "/error/error_msg",
    "/error/msg",
    "/message",
    "/detail",
    "/base_resp/status_msg",
    "/error_msg",
    "/msg",
    "/error",
];

/// The endpoint's own message in an error body.
pub(super) fn error_message(body: &Value) -> Option<String> {
    // Some gateways wrap the error in a list.
    let body = body.get(0).unwrap_or(body);
    MESSAGE_PATHS.into_iter().filter_map(|path| body.pointer(path)).find_map(|candidate| {
        match candidate {
            Value::String(text) if !text.is_empty() => {
                Some(format!("{text}{}", describe_upstream(body)))
            }
            Value::Array(_) | Value::Object(_) => Some(body_excerpt(&candidate.to_string())),
            _ => None,
        }
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
