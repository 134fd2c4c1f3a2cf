//! The provider of an endpoint in this process, for what needs more exchanges than runs of the program can have.

use delta_base::signal::CancelToken;
use delta_endpoint::endpoint_provider::EndpointProvider;
use delta_llm::llm::wire::CachePolicy;
use delta_llm::llm::{CallProgress, Endpoint, LlmError, LlmRequest, Provider};
use delta_words::{Attempt, AuthScheme, Reply, WireForm};
use serde_json::{Value, json};
use std::sync::Arc;

/// Long enough for the slowest machine; only a test that fails waits so long.
const LONG: u64 = 120_000;

/// What became of a call, and its failed attempts.
pub type Outcome = (Result<Reply, LlmError>, Vec<Attempt>);

/// A provider that tries once, of the model `m`.
pub fn provider(form: WireForm, base_url: &str) -> EndpointProvider {
    provider_of_model(form, base_url, "m")
}

pub fn provider_of_model(form: WireForm, base_url: &str, model: &str) -> EndpointProvider {
    EndpointProvider::new(endpoint(form, base_url), model).unwrap()
}

pub fn endpoint(form: WireForm, base_url: &str) -> Endpoint {
    Endpoint {
        form,
        api_version: None,
        base_url: base_url.to_owned(),
        api_key: None,
        auth: AuthScheme::Bearer,
        headers: Vec::new(),
        cache: CachePolicy::Off,
        call_ids: None,
        omits_reasoning: false,
        merges_system: None,
        stream: true,
        timeout_ms: LONG,
        idle_timeout_ms: LONG,
        max_retries: 0,
        max_refused_retries: 0,
        proxy: None,
        note: None,
    }
}

/// Asks `model` for a streamed answer to one message.
pub fn ask(provider: &mut EndpointProvider, model: &str) -> Outcome {
    let messages = json!([{"role": "user", "content": "hi"}]);
    ask_about(provider, model, &messages)
}

/// Asks `model` for a streamed answer to these messages. The text that arrives in pieces must be the text of the reply.
pub fn ask_about(provider: &mut EndpointProvider, model: &str, messages: &Value) -> Outcome {
    let tool = json!({"type": "function", "function": {"name": "t", "description": "A tool.", "parameters": {"type": "object", "properties": {}}}});
    let body = json!({"model": model, "tools": [tool], "messages": messages, "stream": true, "stream_options": {"include_usage": true}});
    let body = Arc::new(body.to_string());
    let request =
        LlmRequest { is_live: true, has_native: true, run_id: "r", ..LlmRequest::new(&body) };
    let mut attempts = Vec::new();
    let mut pieces = String::new();
    let cancel = CancelToken::manual().unwrap();
    let result = provider.complete(&request, &cancel, &mut |progress| match progress {
        CallProgress::Text(piece) => pieces.push_str(piece),
        CallProgress::AttemptFailed { attempt, .. } => {
            pieces.clear();
            attempts.push(attempt.clone());
        }
        _ => {}
    });
    if let Ok(reply) = &result
        && !pieces.is_empty()
    {
        assert_eq!(Some(&pieces), reply.content.as_ref(), "C-25.4: the pieces are the text");
    }
    (result, attempts)
}
