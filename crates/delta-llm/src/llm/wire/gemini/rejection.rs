//! What a rejection of Gemini means: its details are in the body, not in the headers.

use super::super::{CodecSettings, RejectedRequest, RejectionAdvice};
use super::request::signature_mark;
use delta_http::retry::RetryDecision;
use delta_words::EncodeOptions;
use serde_json::Value;

/// What to do about a rejection with this body.
pub fn advise_on_rejection(status: u16, body: &str, settings: &CodecSettings) -> RejectionAdvice {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    // The endpoint of streams sends a list.
    let error = body.get(0).unwrap_or(&body).get("error").unwrap_or(&Value::Null);
    let details = error.get("details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
    let retry = match status {
        429 if details.iter().any(names_day) => Some(RetryDecision::Never),
        _ => None,
    };
    let hint = match status {
        429 if retry == Some(RetryDecision::Never) => Some(
            "the account's quota for the day is used up: continue the run tomorrow, or raise the quota of the key's project"
                .to_owned(),
        ),
        400 if details.iter().any(|detail| detail.get("reason") == Some(&"API_KEY_INVALID".into())) => {
            Some("set a valid key in GOOGLE_API_KEY or GEMINI_API_KEY, or in the variable of `llm.api_key_env`".to_owned())
        }
        400 if is_about_version(message, settings) => Some(format!(
            "version v1 of the API does not take this from {}: write `api_version: v1beta` into `llm`",
            settings.model
        )),
        400 if message.contains("Unknown name") => Some(
            "other keys of `llm` go into the request as they are: settings such as `topP` belong in `generationConfig: {...}`"
                .to_owned(),
        ),
        404 => Some(missing_model_hint(settings)),
        _ => None,
    };
    RejectionAdvice { retry, hint }
}

fn missing_model_hint(settings: &CodecSettings) -> String {
    let CodecSettings { base_url, model, .. } = settings;
    let hint = format!("check `llm.base_url` ({base_url}) and the model name ({model})");
    if settings.api_version.as_deref() == Some("v1") {
        format!(
            "{hint}; names that end in `-latest`, and most previews, exist with `api_version: v1beta` only"
        )
    } else {
        format!("{hint}: `delta models` lists the names")
    }
}

/// Whether the version is the cause: v1 refuses calls of some models that v1beta takes, and knows fewer members.
fn is_about_version(message: &str, settings: &CodecSettings) -> bool {
    let members = ["\"systemInstruction\"", "\"tools\"", "\"toolConfig\"", "parametersJsonSchema"];
    let names_member =
        message.contains("Unknown name") && members.iter().any(|member| message.contains(member));
    let lower = message.to_ascii_lowercase();
    let refuses_calls = ["function calling", "tool use"].iter().any(|text| lower.contains(text))
        && ["not supported", "not enabled", "unsupported"].iter().any(|text| lower.contains(text));
    settings.api_version.as_deref() == Some("v1") && (names_member || refuses_calls)
}

/// Whether a detail is the failure of a quota that is renewed once a day.
fn names_day(detail: &Value) -> bool {
    let violations = detail.get("violations").and_then(Value::as_array);
    violations.into_iter().flatten().any(|violation| {
        ["quotaId", "quotaMetric", "subject", "description"].iter().any(|name| {
            let text = violation.get(name).and_then(Value::as_str).unwrap_or_default();
            let text = text.to_ascii_lowercase().replace(['_', '-', ' '], "");
            text.contains("perday")
        })
    })
}

/// The options with which a rejected request may be accepted.
pub fn adapted_options(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status: 400, response, sent, options } = *rejected else { return None };
    let lower = response.to_ascii_lowercase().replace('_', " ");
    if lower.contains("thought signature") || lower.contains("thoughtsignature") {
        return without_signatures(sent, options);
    }
    let limit = output_limit(response)?;
    let is_lower = options.max_tokens.is_none_or(|known| limit < known);
    is_lower.then(|| EncodeOptions { max_tokens: Some(limit), ..options.clone() })
}

/// The options for a request without the signatures of `sent`. What the model answers from then on keeps its own.
fn without_signatures(sent: &str, options: &EncodeOptions) -> Option<EncodeOptions> {
    let sent: Value = serde_json::from_str(sent).ok()?;
    let contents = sent.get("contents")?.as_array()?;
    let parts = contents.iter().filter_map(|content| content.get("parts")?.as_array()).flatten();
    let rejected_native = parts.filter_map(signature_mark).next_back();
    if rejected_native.is_some() {
        return Some(EncodeOptions { rejected_native, ..options.clone() });
    }
    // An answer that goes back as it came may lack a signature that the endpoint expects.
    let is_first = options.rejected_native.is_none() && !options.drops_native;
    is_first.then(|| EncodeOptions { drops_native: true, ..options.clone() })
}

/// The longest answer of the model, from `... maxOutputTokens value of 100000 but the supported range is from 1 (inclusive)
/// to 65537 (exclusive)`.
fn output_limit(message: &str) -> Option<u64> {
    let (_, range) = message.split_once("maxOutputTokens")?;
    let (number, _) = range.split_once("(inclusive) to ")?.1.split_once(" (exclusive)")?;
    number.parse::<u64>().ok()?.checked_sub(1).filter(|limit| *limit > 0)
}
