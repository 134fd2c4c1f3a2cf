//! What went wrong in a try, put in words: the provider's own message, what a person can do about it, and whether
//! another try makes sense. It waits for nothing and sends nothing, and no word of it holds the key.

use super::super::sse::Broken;
use super::super::{Endpoint, LlmError};
use crate::http::retry::Retry;
use crate::http::words::{is_refused, tls_error};
use crate::http::{Head, Trouble, Wire};
use crate::text::{Secrets, mend_surrogates};
use crate::time::{self, Timestamp};
use serde_json::Value;
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
    let hint = match &trouble {
        Trouble::Total => Some("raise `llm.timeout_ms` if answers may take longer".to_owned()),
        Trouble::Idle => {
            let hint = "raise `llm.idle_timeout_ms` if the endpoint may be silent for longer";
            Some(hint.to_owned())
        }
        Trouble::Connect(error) => connect_hint(error, asked),
        Trouble::Cancelled | Trouble::Unanswered { .. } | Trouble::Broken(_) => None,
    };
    let (message, retry) = (asked.wire.words(&trouble), trouble.retry());
    Failure { message, retry, hint, response: None }
}

fn connect_hint(error: &Error, asked: &Asked<'_>) -> Option<String> {
    let refused = is_refused(error);
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
    let retry = if without_quota { Retry::Never } else { retry_of(head, time::now()) };
    Failure { message, retry, hint: answer_hint(head.status.as_u16(), body, asked), response }
}

/// Whether another try makes sense after an answer that is no success.
fn retry_of(head: &Head, now: Timestamp) -> Retry {
    match head.status.as_u16() {
        408 | 409 | 429 | 500..=599 => Retry::asked(head, now),
        _ => Retry::Never,
    }
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
    use std::time::Duration;
    use ureq::http::{HeaderMap, HeaderName, StatusCode};

    fn head(status: u16, name: &str, value: &str) -> Head {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        Head { status: StatusCode::from_u16(status).unwrap(), headers }
    }

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
    fn c_7_3_which_statuses_are_retried() {
        let now = Timestamp::from_millis(0);
        let of = |status| retry_of(&head(status, "x", "y"), now);
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            assert_eq!(of(status), Retry::Backoff, "{status}");
        }
        for status in [301, 302, 400, 401, 403, 404, 413, 422] {
            assert_eq!(of(status), Retry::Never, "{status}");
        }
        assert_eq!(
            retry_of(&head(503, "retry-after", "2"), now),
            Retry::After(Duration::from_secs(2))
        );
        assert_eq!(retry_of(&head(400, "retry-after", "2"), now), Retry::Never);
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
