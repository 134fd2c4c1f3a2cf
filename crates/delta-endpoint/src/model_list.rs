//! The models that an endpoint offers, and what it tells about them.

mod local_server;

use delta_base::signal::CancelToken;
use delta_base::terminal_text::truncate_to_line;
use delta_base::text::byte_escape::encode_percent;
use delta_http::append_path;
use delta_http_client::{HttpClient, HttpClientConfig, HttpError};
use delta_llm::llm::{Endpoint, OfferedModel};
use delta_words::WireForm;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use local_server::LocalServer;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const MAX_RESPONSE_BYTES: usize = 16 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// No endpoint has more; one that always names another page would have no end.
const MAX_PAGES: usize = 50;

/// Asks `endpoint` for its models, by name.
///
/// # Errors
/// The endpoint did not answer with a list; contains the reason.
pub fn list_models(endpoint: &Endpoint, cancel: &CancelToken) -> Result<Vec<OfferedModel>, String> {
    let mut models = Vec::new();
    let mut server = None;
    let mut page = None;
    for _ in 0..MAX_PAGES {
        let url = page_url(endpoint, page.as_deref());
        let response = fetch_json(endpoint, &url, None, cancel)?;
        let Some(items) = listed_items(&response) else {
            return Err(format!(
                "expected a list of models, or one in `data` or `models`, from {url}"
            ));
        };
        let known = models.len();
        models.extend(items.iter().filter_map(read_model));
        server = server.or_else(|| items.iter().find_map(LocalServer::that_lists));
        if models.len() == known && !items.is_empty() {
            return Err(format!("expected models with an `id` or a `name` from {url}"));
        }
        let next = next_page(endpoint.form, &response);
        if next.is_none() || next == page {
            break;
        }
        page = next;
    }
    models.sort_by(|a, b| a.name.cmp(&b.name));
    models.dedup_by(|a, b| a.name == b.name);
    if let Some(server) = server {
        server.describe(endpoint, &mut models, cancel);
    }
    Ok(models)
}

/// The models in an answer. Not all endpoints put them where the interface that they imitate does.
fn listed_items(response: &Value) -> Option<&Vec<Value>> {
    let pointers = ["/data", "/models", "/data/models", ""];
    pointers.into_iter().find_map(|pointer| response.pointer(pointer)?.as_array())
}

fn page_url(endpoint: &Endpoint, page: Option<&str>) -> String {
    let base = &endpoint.base_url;
    let (path, parameters) = match endpoint.form {
        WireForm::OpenAi | WireForm::Responses => ("/models", None),
        WireForm::Anthropic if base.trim_end_matches('/').ends_with("/v1") => {
            ("/models", Some(("limit", "after_id")))
        }
        WireForm::Anthropic => ("/v1/models", Some(("limit", "after_id"))),
        WireForm::Gemini => ("/v1beta/models", Some(("pageSize", "pageToken"))),
    };
    let mut url = append_path(base, path);
    if let Some((size_name, page_name)) = parameters {
        let mark = if url.contains('?') { '&' } else { '?' };
        url.push_str(&format!("{mark}{size_name}=1000"));
        if let Some(page) = page {
            url.push_str(&format!("&{page_name}={}", encode_percent(page, b"-_.~")));
        }
    }
    url
}

fn next_page(form: WireForm, response: &Value) -> Option<String> {
    let text = |key: &str| response.get(key)?.as_str().filter(|text| !text.is_empty());
    let token = match form {
        WireForm::OpenAi | WireForm::Responses => None,
        WireForm::Anthropic => {
            text("last_id").filter(|_| response.get("has_more") == Some(&Value::Bool(true)))
        }
        WireForm::Gemini => text("nextPageToken"),
    };
    token.map(str::to_owned)
}

fn read_model(item: &Value) -> Option<OfferedModel> {
    let text = |key: &str| item.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    // Gemini has resource names, Ollama `name` and `model`; some list names alone.
    let resource = text("name").map(|name| name.trim_start_matches("models/"));
    let name = text("id").or_else(|| text("model")).or(resource).or(item.as_str())?;
    Some(OfferedModel {
        name: name.to_owned(),
        // Anthropic, Gemini, OpenRouter, vLLM and SGLang, Mistral, llama.cpp.
        max_input: token_count(
            item,
            &[
                "/max_input_tokens",
                "/inputTokenLimit",
                "/context_length",
                "/max_model_len",
                "/max_context_length",
                "/meta/n_ctx",
            ],
        ),
        max_output: token_count(
            item,
            &["/max_tokens", "/outputTokenLimit", "/top_provider/max_completion_tokens"],
        ),
        // Mistral, OpenRouter.
        takes_tools: item
            .pointer("/capabilities/function_calling")
            .and_then(Value::as_bool)
            .or_else(|| has_word(item, "supported_parameters", "tools")),
    })
}

/// The first of these members that is a count.
fn token_count(item: &Value, pointers: &[&str]) -> Option<u64> {
    pointers.iter().find_map(|pointer| item.pointer(pointer)?.as_u64().filter(|count| *count > 0))
}

/// Whether a list of words has this one; `None` if there is no list.
fn has_word(item: &Value, list: &str, word: &str) -> Option<bool> {
    Some(item.get(list)?.as_array()?.iter().any(|listed| listed == word))
}

/// The JSON at an address: what it answers to the posted `body`, if there is one.
fn fetch_json(
    endpoint: &Endpoint,
    url: &str,
    body: Option<&Value>,
    cancel: &CancelToken,
) -> Result<Value, String> {
    let mut client = HttpClient::new(HttpClientConfig {
        url,
        headers: list_headers(endpoint)?,
        total_timeout: TIMEOUT,
        idle_timeout: TIMEOUT,
        proxy: endpoint.proxy.as_deref(),
    })?;
    let shown_url = client.redacted_url();
    let (status, text) =
        response_text(&mut client, body, cancel).map_err(|error| client.describe_error(&error))?;
    if !status.is_success() {
        let body: Value = serde_json::from_str(&text).unwrap_or_default();
        let message = body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        let message =
            endpoint.api_key.as_ref().map_or(message.into(), |key| key.secrets().redact(message));
        let detail = truncate_to_line(&message, 200);
        let separator = if detail.is_empty() { "" } else { ": " };
        return Err(format!("{shown_url} answered {status}{separator}{detail}"));
    }
    serde_json::from_str(&text).map_err(|_| {
        let hint = if text.trim_start().starts_with('<') {
            ", found a web page: `base_url` may lack a path such as `/v1`"
        } else {
            ""
        };
        format!("expected JSON from {shown_url}{hint}")
    })
}

fn response_text(
    client: &mut HttpClient,
    body: Option<&Value>,
    cancel: &CancelToken,
) -> Result<(StatusCode, String), HttpError> {
    let mut exchange = match body {
        Some(body) => client.post(Arc::new(body.to_string()), cancel),
        None => client.get(cancel),
    };
    let head = exchange.send()?;
    Ok((head.status, exchange.read_text(MAX_RESPONSE_BYTES)?))
}

fn list_headers(endpoint: &Endpoint) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let version = endpoint.api_version.iter().filter(|_| endpoint.form == WireForm::Anthropic);
    let version = version.map(|version| ("anthropic-version", version.clone()));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    crate::add_headers(&mut headers, version, endpoint)?;
    Ok(headers)
}
