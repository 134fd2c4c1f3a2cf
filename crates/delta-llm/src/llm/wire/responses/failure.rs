//! Rejections: what the next attempt leaves out, whether it makes sense, and what the user can do.

use super::super::{RejectedRequest, RejectionAdvice};
use super::answer::item_type;
use super::request::{BREAKPOINT_KEY, CACHE_KEY, CACHE_OPTIONS_KEY, INCLUDE_KEY, MAX_TOKENS_KEY};
use delta_base::hex::sha256_hex;
use delta_base::time;
use delta_http::ResponseHead;
use delta_http::retry::RetryDecision;
use delta_words::EncodeOptions;
use serde_json::Value;

/// The least number that is taken as the longest answer which the endpoint accepts: the form has no shorter one.
const MIN_MAX_TOKENS: u64 = 16;

/// Codes of requests that would fail again.
const FINAL_CODES: [&str; 3] = ["invalid_prompt", "cyber_policy", "content_policy_violation"];

/// Members of the body that delta writes, so that nothing in agent.yaml is wrong with them.
const OWN_PARAMETERS: [&str; 7] =
    ["input", "tools", "store", "include", "prompt_cache_key", "stream", "model"];

/// What delta itself sends of the options of the cache.
const OWN_CACHE_OPTIONS: &str = r#""prompt_cache_options":{"mode":"explicit"}"#;

/// What it sends to mark the end of a prefix.
const OWN_BREAKPOINT: &str = r#""prompt_cache_breakpoint":{"mode":"explicit"}"#;

/// The name of the last reasoning among items.
pub fn native_mark(items: &[Value]) -> Option<String> {
    let last = items.iter().rfind(|item| item_type(item) == "reasoning")?;
    Some(sha256_hex(last.to_string())[..20].to_owned())
}

/// The options of the next attempt: without the reasoning that the endpoint does not accept, or with the longest answer
/// that it names.
pub fn options_without_cause(rejected: &RejectedRequest<'_>) -> Option<EncodeOptions> {
    let RejectedRequest { status, response, sent, options } = *rejected;
    if rejects_reasoning(rejected) {
        let sent: Value = serde_json::from_str(sent).ok()?;
        let mark = native_mark(sent.get("input")?.as_array()?)?;
        return Some(EncodeOptions { rejected_native: Some(mark), ..options.clone() });
    }
    if matches!(status, 400 | 422)
        && !options.omits_cache_options
        && [(CACHE_OPTIONS_KEY, OWN_CACHE_OPTIONS), (BREAKPOINT_KEY, OWN_BREAKPOINT)]
            .iter()
            .any(|(key, member)| response.contains(key) && sent.contains(member))
    {
        return Some(EncodeOptions { omits_cache_options: true, ..options.clone() });
    }
    let refused = [INCLUDE_KEY, CACHE_KEY].into_iter().find(|name| {
        matches!(status, 400 | 422)
            && sent.contains(&format!("\"{name}\":"))
            && quotes_parameter(response, name)
            && !options.omitted.iter().any(|omitted| omitted == name)
    });
    if let Some(name) = refused {
        let mut options = options.clone();
        options.omitted.push(name.to_owned());
        return Some(options);
    }
    if status == 400 && response.contains("max") {
        let max_tokens = named_max_tokens(rejected)?;
        return Some(EncodeOptions { max_tokens: Some(max_tokens), ..options.clone() });
    }
    None
}

/// Whether a message names a parameter, and does not only use its word.
fn quotes_parameter(message: &str, name: &str) -> bool {
    let forms = [
        format!("'{name}'"),
        format!("`{name}`"),
        format!("\"{name}\""),
        format!("\"{name}\\"),
        format!(": {name}"),
    ];
    forms.iter().any(|form| message.contains(form))
}

/// Whether the reasoning of earlier answers is why the endpoint rejects the request: it is of another organisation, of
/// another model family or of another mirror, or its place in the conversation is not the one it had.
fn rejects_reasoning(rejected: &RejectedRequest<'_>) -> bool {
    if !matches!(rejected.status, 200 | 400 | 404 | 422) {
        return false;
    }
    let text = rejected.response.to_lowercase();
    text.contains("invalid_encrypted_content")
        || text.contains("encrypted content") && text.contains("could not be")
        || text.contains("without its required")
        || text.contains("items are not persisted")
}

/// The longest answer that a rejection of a longer one names.
fn named_max_tokens(rejected: &RejectedRequest<'_>) -> Option<u64> {
    let response: Value = serde_json::from_str(rejected.response).ok()?;
    let message = response.pointer("/error/message")?.as_str()?;
    if !message.contains(MAX_TOKENS_KEY) && !message.contains("max_tokens") {
        return None;
    }
    let sent: Value = serde_json::from_str(rejected.sent).ok()?;
    let requested = sent.get(MAX_TOKENS_KEY)?.as_u64()?;
    let words = message.split(|c: char| c.is_whitespace() || matches!(c, '[' | ']' | ',' | '('));
    let numbers = words.filter_map(|word| word.trim_end_matches(['.', ')', ';']).parse().ok());
    numbers.filter(|number| (MIN_MAX_TOKENS..requested).contains(number)).max()
}

/// What to do about a rejection.
pub fn rejection_advice(head: &ResponseHead, body: &str) -> RejectionAdvice {
    let error: Value = serde_json::from_str(body).unwrap_or_default();
    let status = head.status.as_u16();
    let retry = RetryDecision::from_should_retry(head, time::current_time());
    RejectionAdvice { retry, hint: parameter_hint(status, &error) }
}

/// What to do about an error that is a response, or an event of one.
pub fn error_advice(error: &Value) -> RejectionAdvice {
    let is_final = FINAL_CODES.contains(&error_member(error, "code"));
    RejectionAdvice { retry: is_final.then_some(RetryDecision::Never), hint: None }
}

/// A member of an error, which may be the member `error` of `error`.
fn error_member<'a>(error: &'a Value, name: &str) -> &'a str {
    let error = error.get("error").filter(|inner| inner.is_object()).unwrap_or(error);
    error.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What to do where the endpoint names the parameter that it does not accept.
fn parameter_hint(status: u16, error: &Value) -> Option<String> {
    if status == 400 && error_member(error, "code") == "model_not_found" {
        return Some("check the name of the model, and `llm.base_url`".to_owned());
    }
    let parameter = error_member(error, "param");
    let key = parameter.split(['.', '[']).next().unwrap_or_default();
    if status != 400 || key.is_empty() || OWN_PARAMETERS.contains(&key) {
        return None;
    }
    let key = if key == MAX_TOKENS_KEY { "max_tokens" } else { key };
    Some(format!(
        "models accept different parameters: change or remove `{key}` in `llm`, or see the page of the model"
    ))
}
