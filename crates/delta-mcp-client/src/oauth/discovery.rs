//! Asks a server who issues its tokens, and the issuer how.

use super::oauth_http::OAuthHttp;
use delta_mcp::failure::McpFailure;
use delta_mcp::oauth::challenge::BearerChallenge;
use delta_mcp::oauth::discovery::{
    IssuerMetadata, ResourceMetadata, issuer_metadata_urls, resource_metadata_urls,
};
use http::{HeaderMap, Uri};

/// The challenge in the head of an answer.
pub(crate) fn challenge_of(headers: &HeaderMap) -> Option<BearerChallenge> {
    let values = headers.get_all("www-authenticate").into_iter();
    BearerChallenge::parse(values.filter_map(|value| value.to_str().ok()))
}

/// The metadata of the server at `url`, where it says or where the protocol says.
pub(super) fn fetch_resource(
    http: &OAuthHttp<'_>,
    url: &Uri,
    challenge: &BearerChallenge,
) -> Result<ResourceMetadata, McpFailure> {
    let named = challenge.resource_metadata.iter().cloned();
    for address in named.chain(resource_metadata_urls(url)) {
        let answer = http.get(&address)?;
        if answer.status == 200 {
            return ResourceMetadata::parse(&answer.body, url).map_err(McpFailure::invalid_answer);
        }
    }
    Ok(ResourceMetadata::for_server_without(url))
}

/// The metadata of `issuer`.
pub(super) fn fetch_issuer(
    http: &OAuthHttp<'_>,
    issuer: &str,
) -> Result<IssuerMetadata, McpFailure> {
    for address in issuer_metadata_urls(issuer).map_err(McpFailure::invalid_answer)? {
        let answer = http.get(&address)?;
        if answer.status == 200 {
            return IssuerMetadata::parse(&answer.body, issuer).map_err(McpFailure::invalid_answer);
        }
    }
    Err(McpFailure::invalid_answer(format!("the issuer `{issuer}` publishes no metadata")))
}
