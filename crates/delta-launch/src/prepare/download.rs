//! What an address answers to GET, without any header of the user.

use delta_base::signal::CancelToken;
use delta_base::url_secrets::mask_url;
use delta_http::{host_of, is_loopback_host};
use delta_http_client::{HttpClient, HttpClientConfig};
use delta_llm::llm::endpoint::find_proxy;
use delta_operator::endpoints::operator_settings;
use http::HeaderMap;
use http::header::LOCATION;
use std::time::Duration;

const TOTAL_TIMEOUT: Duration = Duration::from_secs(300);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads what is at an address, or where it says that it is, at most `redirects` times.
///
/// # Errors
/// The address is not safe, does not answer, or answers with more than `limit` bytes.
pub fn download(
    url: &str,
    limit: usize,
    redirects: usize,
    cancel: &CancelToken,
) -> Result<Vec<u8>, String> {
    let authority = url.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
    // The host is after a name and a password.
    let is_loopback = authority.is_some_and(|authority| !authority.contains('@'))
        && is_loopback_host(host_of(url).unwrap_or_default());
    if url.starts_with("http://") && !is_loopback {
        let url = mask_url(url);
        return Err(format!("{url}: an answer over http can be changed on the way; use https"));
    }
    let proxy = find_proxy(url, &|name| operator_settings(name, None));
    let mut client = HttpClient::new(HttpClientConfig {
        url,
        headers: HeaderMap::new(),
        total_timeout: TOTAL_TIMEOUT,
        idle_timeout: IDLE_TIMEOUT,
        proxy: proxy.as_deref(),
    })?;
    let shown_url = client.redacted_url();
    let mut exchange = client.get(cancel);
    let answer = match exchange.send() {
        Ok(head) if head.status.is_redirection() => Ok((head, Vec::new())),
        Ok(head) => exchange.read_bytes(limit + 1).map(|bytes| (head, bytes)),
        Err(error) => Err(error),
    };
    drop(exchange);
    let (head, bytes) = answer.map_err(|error| client.describe_error(&error))?;
    let location = head.headers.get(LOCATION).and_then(|location| location.to_str().ok());
    if let Some(location) = location.filter(|_| head.status.is_redirection() && redirects > 0) {
        let origin =
            url.find("://").and_then(|at| url[at + 3..].find('/').map(|end| &url[..at + 3 + end]));
        let next = match origin {
            Some(origin) if location.starts_with('/') && !location.starts_with("//") => {
                format!("{origin}{location}")
            }
            _ => location.to_owned(),
        };
        if url.starts_with("https://") && !next.starts_with("https://") {
            return Err(format!("{shown_url} redirects to an address without https"));
        }
        return download(&next, limit, redirects - 1, cancel);
    }
    if !head.status.is_success() {
        return Err(format!("{shown_url} answered {}", head.status));
    }
    if bytes.len() > limit {
        return Err(format!("{shown_url}: it has more than {} MB", limit >> 20));
    }
    Ok(bytes)
}
