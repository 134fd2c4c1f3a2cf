//! What went wrong in a try, put in words: the provider's own message, what a person can do about it, and whether
//! another try makes sense. It waits for nothing and sends nothing, and no word of it holds the key.

use super::super::sse::Broken;
use super::super::{Endpoint, LlmError};
use super::retry::Retry;
use super::wire::{Head, Trouble, Wire};
use crate::text::{Secrets, mend_surrogates};
use crate::time::{self, human_duration};
use serde_json::Value;
use std::error::Error as _;
use std::io;
use ureq::Error;

/// The most characters of a body that is shown because no message was found in it.
const SHOWN: usize = 500;

/// How endpoints say that the conversation is too long.
const TOO_LONG: [&str; 11] = [
    "context_length_exceeded",
    "exceed_context_size",
    "context length",
    "context window",
    "context size",
    "maximum context",
    "too many tokens",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "reduce the length",
];

/// Why a try gave no answer.
#[derive(Debug)]
pub enum Fault {
    /// The connection, the time or the cancellation.
    Trouble(Trouble),
    /// A status that is no success.
    Refused {
        /// Status and headers.
        head: Head,
        /// As much of the body as came.
        body: String,
    },
    /// The stream ended too early.
    BrokenOff,
    /// A body that is not JSON, or not the JSON of an answer; and why.
    Unusable(String),
    /// An error where the answer should be.
    Reported(Value),
    /// A body beyond all measure.
    TooLarge,
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::NotJson(text) => Self::not_json(&text),
            Broken::Error(error) => Self::Reported(error),
        }
    }
}

impl Fault {
    /// `text` should have been JSON.
    pub fn not_json(text: &str) -> Self {
        Self::Unusable(format!("the endpoint's answer is not JSON: {}", beginning(text)))
    }
}

/// A failed try, ready to be told.
#[derive(Debug)]
pub struct Failure {
    /// What a person reads.
    pub message: String,
    /// Whether another try makes sense.
    pub retry: Retry,
    hint: Option<String>,
    response: Option<Value>,
}

/// What is known of the request that failed.
pub struct Asked<'a> {
    /// Where it went.
    pub wire: &'a Wire,
    /// The settings.
    pub endpoint: &'a Endpoint,
    /// The model that was asked for.
    pub model: &'a str,
}

impl Failure {
    /// Puts `fault` in words.
    pub fn of(fault: Fault, asked: &Asked<'_>) -> Self {
        let plain =
            |message: String| Self { message, retry: Retry::Backoff, hint: None, response: None };
        let mut failure = match fault {
            Fault::Trouble(trouble) => of_trouble(trouble, asked),
            Fault::Refused { head, body } => of_answer(&head, &body, asked),
            Fault::BrokenOff => {
                plain("the answer broke off: the stream ended before it was finished".to_owned())
            }
            Fault::Unusable(why) => plain(why),
            Fault::TooLarge => plain("the answer is longer than 64 MiB".to_owned()),
            Fault::Reported(body) => {
                let message = format!(
                    "the endpoint reported an error: {}",
                    message_of(&body).unwrap_or_default()
                );
                Self { response: Some(body), ..plain(message) }
            }
        };
        failure.hide(&Secrets::new(asked.endpoint.key.clone()));
        failure
    }

    /// The failure of the whole call.
    pub fn into_error(self, status: Option<u16>) -> LlmError {
        let Self { message, hint, response, .. } = self;
        LlmError::Failed { message, status, hint, response, script_turn: None }
    }

    /// Takes out the key, which some endpoints repeat in their complaint about it.
    fn hide(&mut self, secrets: &Secrets) {
        self.message = secrets.hide(&self.message).into_owned();
        if let Some(response) = &mut self.response {
            *response =
                serde_json::from_str(&secrets.hide(&response.to_string())).unwrap_or_default();
        }
    }
}

fn of_trouble(trouble: Trouble, asked: &Asked<'_>) -> Failure {
    let (address, endpoint) = (asked.wire.address(), asked.endpoint);
    let (message, hint) = match &trouble {
        Trouble::Cancelled => ("interrupted".to_owned(), None),
        Trouble::Total => {
            let limit = human_duration(endpoint.timeout_ms);
            let hint = "raise `llm.timeout_ms` if answers may take longer";
            (format!("no whole answer from {address} within {limit}"), Some(hint.to_owned()))
        }
        Trouble::Idle => {
            let limit = human_duration(endpoint.idle_timeout_ms);
            let hint = "raise `llm.idle_timeout_ms` if the endpoint may be silent for longer";
            (format!("nothing came from {address} for {limit}"), Some(hint.to_owned()))
        }
        Trouble::Connect(error) => {
            let way = if asked.wire.has_proxy() { " through the proxy" } else { "" };
            (
                format!("could not connect to {address}{way}: {}", chain(error)),
                connect_hint(error, asked),
            )
        }
        Trouble::Unanswered { error, .. } => {
            (format!("{address} closed the connection without an answer: {}", chain(error)), None)
        }
        Trouble::Broken(error) => {
            (format!("the answer of {address} broke off: {}", chain(error)), None)
        }
    };
    let retry = match &trouble {
        Trouble::Unanswered { kept: true, .. } => Retry::AtOnce,
        Trouble::Cancelled => Retry::Never,
        Trouble::Connect(error) if tls_error(error).is_some_and(is_lasting) => Retry::Never,
        _ => Retry::Backoff,
    };
    Failure { message, retry, hint, response: None }
}

/// The error and everything behind it.
fn chain(error: &Error) -> String {
    let Error::Io(error) = error else { return error.to_string() };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn connect_hint(error: &Error, asked: &Asked<'_>) -> Option<String> {
    let refused =
        matches!(error, Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused);
    if refused && asked.wire.has_proxy() {
        return Some("nothing listens where HTTPS_PROXY or HTTP_PROXY points".to_owned());
    }
    if refused && is_loopback(asked.wire.host()) {
        return Some(
            "is the local server running, and on this port? `llm.base_url`, or else DELTA_BASE_URL, names it".to_owned(),
        );
    }
    tls_error(error).map(|_| {
        "the system's certificates decide which servers are trusted; SSL_CERT_FILE names others in their place"
            .to_owned()
    })
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn tls_error(error: &Error) -> Option<&rustls::Error> {
    match error {
        Error::Rustls(error) => Some(error),
        Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// A certificate that is not trusted now will not be trusted in a second.
fn is_lasting(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::General(_))
}

fn of_answer(head: &Head, body: &str, asked: &Asked<'_>) -> Failure {
    let response: Option<Value> = serde_json::from_str(&mend_surrogates(body)).ok();
    let said = match head.text("location").filter(|_| head.status.is_redirection()) {
        Some(location) => Some(format!("it redirects to {location}")),
        None => response.as_ref().and_then(message_of).or_else(|| Some(beginning(body))),
    };
    let reason =
        head.status.canonical_reason().map_or(String::new(), |reason| format!(" {reason}"));
    let said =
        said.filter(|said| !said.is_empty()).map_or(String::new(), |said| format!(": {said}"));
    let message = format!("the endpoint answered {}{reason}{said}", head.status.as_u16());
    let without_quota = head.status == 429 && body.contains("insufficient_quota");
    let retry = if without_quota { Retry::Never } else { Retry::of_answer(head, time::now()) };
    Failure { message, retry, hint: answer_hint(head.status.as_u16(), body, asked), response }
}

fn answer_hint(status: u16, body: &str, asked: &Asked<'_>) -> Option<String> {
    let lower = body.to_lowercase();
    let hint = match status {
        300..=399 => "set `llm.base_url` to the address that it redirects to".to_owned(),
        401 | 403 => "put a valid key in DELTA_API_KEY or OPENAI_API_KEY, or in the variable that \
                      `llm.api_key_env` names"
            .to_owned(),
        404 => format!("check `llm.base_url` ({}) and the model name ({})", asked.endpoint.base_url, asked.model),
        400 | 413 if TOO_LONG.iter().any(|words| lower.contains(words)) => {
            "the conversation has outgrown the model's context: in context.yaml lower `max_iterations` of the \
             journal, or the budgets `max_tokens` and `total_max_tokens`"
                .to_owned()
        }
        429 if lower.contains("insufficient_quota") => {
            "the account's quota is used up; add credit or raise its limit at the provider".to_owned()
        }
        _ => return None,
    };
    Some(hint)
}

/// The provider's own message in an error body.
fn message_of(body: &Value) -> Option<String> {
    // Some gateways put the error into a list of one.
    let body = body.get(0).unwrap_or(body);
    let places = [
        body.pointer("/error/message"),
        body.get("message"),
        body.get("detail"),
        body.get("error"),
    ];
    places.into_iter().flatten().find_map(|place| match place {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Array(_) | Value::Object(_) => Some(beginning(&place.to_string())),
        _ => None,
    })
}

/// The first characters of a body that holds no message.
fn beginning(text: &str) -> String {
    text.trim().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_7_3_the_message_of_the_provider_is_found() {
        let check = |body: Value, expected: Option<&str>| {
            assert_eq!(message_of(&body).as_deref(), expected, "{body}")
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

    #[test]
    fn loopback_addresses_are_known() {
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.org", "10.0.0.1", "[2001:db8::1]", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
