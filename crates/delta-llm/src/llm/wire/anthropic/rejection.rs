//! What to do about a request that the endpoint rejects.

use super::super::{RejectedRequest, RejectionAdvice};
use delta_base::time;
use delta_http::ResponseHead;
use delta_http::retry::RetryDecision;
use delta_words::EncodeOptions;
use serde_json::Value;

/// What the messages about opaque parts have in common.
const SIGNATURE_PHRASES: [&str; 3] = ["signature", "bound to", "cannot be modified"];
/// What opaque parts contain in a request; in a text the quotes would be escaped.
const THINKING_BLOCKS: [&str; 2] = [r#""type":"thinking""#, r#""type":"redacted_thinking""#];
/// The types of errors that another attempt would have too.
const LASTING_ERRORS: [&str; 6] = [
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
];
/// Settings that some models reject.
const MODEL_SETTINGS: [&str; 4] = ["thinking", "effort", "tool_choice", "output_config"];

/// The options with which the request is sent again.
pub fn recovered_options(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status: 400, response, sent, options } = *rejected else { return None };
    let lower_response = response.to_lowercase();
    if !options.adds_thinking
        && lower_response.contains("thinking")
        && lower_response.contains("must be passed back")
    {
        return Some(EncodeOptions { adds_thinking: true, ..options.clone() });
    }
    let has_thinking = THINKING_BLOCKS.iter().any(|block| sent.contains(block));
    let mut recovered = options.clone();
    if let Some(most) = model_max_tokens(response) {
        recovered.max_tokens = Some(most.min(options.max_tokens.unwrap_or(u64::MAX)));
    } else if has_thinking && is_about_signatures(&lower_response) {
        // Parts that are bound to something else come first; an endpoint may reject the others too, as of another account.
        recovered.drops_native = options.drops_unbound_native;
        recovered.drops_unbound_native = true;
    }
    (recovered != *options).then_some(recovered)
}

fn is_about_signatures(lower_body: &str) -> bool {
    lower_body.contains("thinking")
        && SIGNATURE_PHRASES.iter().any(|phrase| lower_body.contains(phrase))
}

/// The number in `max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens`.
fn model_max_tokens(body: &str) -> Option<u64> {
    let (_, rest) = body.split_once("max_tokens: ")?;
    let (requested, rest) = rest.split_once(" > ")?;
    requested.parse::<u64>().ok()?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[end..].starts_with(", which is the maximum").then(|| rest[..end].parse().ok())?
}

/// What to do about an error event in a stream.
pub fn advice_on_stream_error(error: &Value) -> RejectionAdvice {
    let is_lasting =
        error["error"]["type"].as_str().is_some_and(|kind| LASTING_ERRORS.contains(&kind));
    let hint = advised_hint(200, &error.to_string().to_lowercase());
    RejectionAdvice {
        retry: is_lasting.then_some(RetryDecision::Never),
        hint: hint.map(str::to_owned),
    }
}

/// What to do about a rejection.
pub fn advice_on_rejection(head: &ResponseHead, body: &str) -> RejectionAdvice {
    let lower_body = body.to_lowercase();
    let status = head.status.as_u16();
    let retry = if is_billing(status, &lower_body) {
        Some(RetryDecision::Never)
    } else {
        RetryDecision::from_should_retry(head, time::current_time())
    };
    let hint = advised_hint(status, &lower_body);
    RejectionAdvice { retry, hint: hint.map(str::to_owned) }
}

fn is_billing(status: u16, lower_body: &str) -> bool {
    status == 402 || lower_body.contains("billing_error")
}

fn advised_hint(status: u16, lower_body: &str) -> Option<&'static str> {
    Some(match status {
        _ if is_billing(status, lower_body) => {
            "add credit to the account at the provider, or set the key of another one"
        }
        400 if MODEL_SETTINGS.iter().any(|setting| lower_body.contains(setting)) => {
            "what a model takes differs: leave `thinking`, `output_config` and `tool_choice` out of `llm`, or look at the \
             model's page"
        }
        _ => return None,
    })
}
