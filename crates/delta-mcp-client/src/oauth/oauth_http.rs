//! Small requests to servers and issuers, each on a connection of its own.

use delta_base::signal::CancelToken;
use delta_http_client::{HttpClient, HttpClientConfig, HttpError, HttpExchange};
use delta_mcp::failure::McpFailure;
use delta_mcp::oauth::{OAuthSettings, origin_of, parse_address};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use std::time::Duration;

/// The most of an answer that is read; metadata and tokens have less.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How many redirects in a row lead somewhere.
const MAX_REDIRECTS: usize = 3;

/// An answer.
pub(super) struct SmallAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// What requests have in common.
pub(super) struct OAuthHttp<'a> {
    pub(super) settings: &'a OAuthSettings,
    pub(super) cancel: &'a CancelToken,
}

impl OAuthHttp<'_> {
    /// Gets `url`. A redirect is followed to the same host only: the server has not named another one in its metadata.
    pub(super) fn get(&self, url: &str) -> Result<SmallAnswer, McpFailure> {
        let mut url = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let answer = self.exchange(&url, &[("accept", "application/json")], |client| {
                client.get(self.cancel)
            })?;
            let location = answer.headers.get("location").and_then(|value| value.to_str().ok());
            let Some(location) =
                location.filter(|_| matches!(answer.status, 301 | 302 | 307 | 308))
            else {
                return Ok(answer);
            };
            let origin =
                origin_of(&parse_address(&url, "the address").map_err(McpFailure::invalid_answer)?);
            url = match location.strip_prefix(&origin).unwrap_or(location) {
                path if path.starts_with('/') && !path.starts_with("//") => {
                    format!("{origin}{path}")
                }
                _ => return Ok(answer),
            };
        }
        Err(McpFailure::invalid_answer(format!("{url} redirects without an end")))
    }

    /// Posts `body` to `url`.
    pub(super) fn post(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Result<SmallAnswer, McpFailure> {
        let body = Arc::new(body);
        self.exchange(url, headers, |client| client.post(body, self.cancel))
    }

    fn exchange(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        start: impl FnOnce(&mut HttpClient) -> HttpExchange<'_>,
    ) -> Result<SmallAnswer, McpFailure> {
        parse_address(url, "the address of a request").map_err(McpFailure::invalid_answer)?;
        let pairs = headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(*name).ok()?, HeaderValue::try_from(*value).ok()?))
        });
        let variables = &self.settings.proxy_variables;
        let proxy = delta_http::choose_proxy(url, &|name| variables.get(name).cloned());
        let config = HttpClientConfig {
            url,
            headers: pairs.collect(),
            total_timeout: ANSWER_TIMEOUT,
            idle_timeout: ANSWER_TIMEOUT,
            proxy: proxy.as_deref(),
        };
        let mut client = HttpClient::new(config).map_err(McpFailure::Unreachable)?;
        let mut exchange = start(&mut client);
        let outcome =
            exchange.send().and_then(|head| Ok((head, exchange.read_bytes(MAX_ANSWER_BYTES + 1)?)));
        drop(exchange);
        let (head, body) = outcome.map_err(|error| match error {
            HttpError::Cancelled => McpFailure::Cancelled,
            other => McpFailure::Unreachable(client.describe_error(&other)),
        })?;
        if body.len() > MAX_ANSWER_BYTES {
            let limit = MAX_ANSWER_BYTES / 1024;
            return Err(McpFailure::invalid_answer(format!("{url} answers more than {limit} KiB")));
        }
        Ok(SmallAnswer { status: head.status.as_u16(), headers: head.headers, body })
    }
}
