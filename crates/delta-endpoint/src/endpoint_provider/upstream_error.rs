//! What a gateway reports of the provider that it asked: OpenRouter's own message is only "Provider returned error".

use super::attempt_failure::error_message;
use delta_llm::llm::body_excerpt;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// The name and the message of the provider that a gateway asked, or what the model wrote, in parentheses after a blank; empty
/// if the error has none.
pub fn describe_upstream(body: &Value) -> String {
    let metadata = |name: &str| body.pointer("/error/metadata")?.get(name);
    let provider = metadata("provider_name").and_then(Value::as_str).unwrap_or_default();
    // Groq refers to what the model wrote, and keeps it in another member.
    let raw = metadata("raw").or_else(|| body.pointer("/error/failed_generation"));
    let raw = raw.and_then(|raw| match raw {
        Value::String(text) => {
            let parsed = serde_json::from_str(text).ok();
            parsed.as_ref().and_then(error_message).or_else(|| Some(body_excerpt(text)))
        }
        Value::Null => None,
        raw => error_message(raw).or_else(|| Some(body_excerpt(&raw.to_string()))),
    });
    match (provider, raw.unwrap_or_default().as_str()) {
        ("", "") => String::new(),
        ("", text) | (text, "") => format!(" ({text})"),
        (provider, raw) => format!(" ({provider}: {raw})"),
    }
}

/// The headers of the provider that a gateway asked.
pub fn upstream_headers(body: &Value) -> HeaderMap {
    let headers = body.pointer("/error/metadata/headers").and_then(Value::as_object);
    let headers = headers.into_iter().flatten().filter_map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    });
    headers.collect()
}

/// The HTTP status that an error in a response with status 200 stands for.
pub fn reported_status(body: &Value) -> Option<u16> {
    let code = body.pointer("/error/code").or_else(|| body.pointer("/error/status"))?;
    let status = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    u16::try_from(status).ok().filter(|status| (400..600).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_7_3_the_message_of_the_asked_provider_is_shown() {
        let check = |metadata: Value, expected: &str| {
            let body = json!({"error": {"code": 429, "message": "Provider returned error", "metadata": metadata}});
            assert_eq!(error_message(&body).unwrap(), format!("Provider returned error{expected}"));
        };
        let raw = json!({"error": {"message": "overloaded"}});
        check(json!({"provider_name": "Acme", "raw": raw.to_string()}), " (Acme: overloaded)");
        check(json!({"provider_name": "Acme", "raw": raw}), " (Acme: overloaded)");
        check(json!({"raw": "upstream is busy"}), " (upstream is busy)");
        check(json!({"provider_name": "Acme", "raw": null}), " (Acme)");
        check(json!({"provider_name": "Acme", "raw": ""}), " (Acme)");
        check(json!({"reasons": ["x"]}), "");
        check(Value::Null, "");
    }

    #[test]
    fn c_7_3_a_code_may_be_a_number_a_text_or_a_name() {
        let status = |code: Value| reported_status(&json!({"error": {"code": code}}));
        assert_eq!(status(json!(402)), Some(402));
        assert_eq!(status(json!("503")), Some(503));
        assert_eq!(
            (status(json!("rate_limit")), status(json!(7)), status(Value::Null)),
            (None, None, None)
        );
    }
}
