//! The provider for OpenAI-compatible endpoints, against a strict server on the loopback interface.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests are tests too")]

mod answers;
mod connections;
mod refusals;
mod retries;

use delta_base::signal::CancelToken;
use delta_endpoint::endpoint_provider::EndpointProvider;
use delta_llm::llm::wire::CachePolicy;
use delta_llm::llm::{CallProgress, Endpoint, LlmError, LlmRequest, Provider};
use delta_words::{Attempt, AuthScheme, Reply, WireForm};
use serde_json::{Value, json};
use std::sync::Arc;
use test_support::server::ScriptedServer;

/// Long enough for the slowest machine; only a test that fails waits so long.
const LONG: u64 = 120_000;

fn endpoint(base_url: &str, stream: bool) -> Endpoint {
    let base_url = base_url.to_owned();
    Endpoint {
        form: WireForm::OpenAi,
        api_version: None,
        base_url,
        api_key: None,
        auth: AuthScheme::Bearer,
        headers: Vec::new(),
        cache: CachePolicy::Off,
        call_ids: None,
        omits_reasoning: false,
        merges_system: None,
        stream,
        timeout_ms: LONG,
        idle_timeout_ms: LONG,
        max_retries: 2,
        max_refused_retries: 1,
        proxy: None,
        note: None,
    }
}

fn provider(endpoint: Endpoint) -> EndpointProvider {
    EndpointProvider::new(endpoint, "m").unwrap()
}

/// A provider for `server` that may try twice again.
fn client(server: &ScriptedServer, stream: bool) -> EndpointProvider {
    provider(endpoint(&server.url(), stream))
}

/// A provider for `server` that tries only once.
fn single(server: &ScriptedServer, stream: bool) -> EndpointProvider {
    provider(Endpoint { max_retries: 0, ..endpoint(&server.url(), stream) })
}

fn body(stream: bool) -> String {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi ä€😀"}]});
    if stream {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    }
    body.to_string()
}

type Outcome = (Result<Reply, LlmError>, Vec<Attempt>);

fn ask_with(provider: &mut EndpointProvider, body: &str, cancel: &CancelToken) -> Outcome {
    let body = Arc::new(body.to_owned());
    let request = LlmRequest { is_live: true, ..LlmRequest::new(&body) };
    let mut attempts = Vec::new();
    let mut pieces = String::new();
    let result = provider.complete(&request, cancel, &mut |progress| match progress {
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

/// Asks for a stream.
fn ask(provider: &mut EndpointProvider) -> Outcome {
    ask_with(provider, &body(true), &CancelToken::manual().unwrap())
}

/// Asks for an answer in one piece.
fn ask_whole(provider: &mut EndpointProvider) -> Outcome {
    ask_with(provider, &body(false), &CancelToken::manual().unwrap())
}

fn content(outcome: &Outcome) -> &str {
    outcome.0.as_ref().unwrap().content.as_deref().unwrap()
}

/// Message, hint and body of a failure.
fn failure(outcome: Outcome) -> (String, String, Value) {
    match outcome.0.unwrap_err() {
        LlmError::Failed { message, hint, response, .. } => {
            (message, hint.unwrap_or_default(), response.unwrap_or_default())
        }
        LlmError::Cancelled => panic!("cancelled"),
    }
}
