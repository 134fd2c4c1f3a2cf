//! What a server and its issuer publish about themselves (RFC 9728, RFC 8414, OpenID Connect Discovery), and whether it may
//! be believed.

use super::{origin_of, parse_address, printable};
use http::Uri;
use serde::{Deserialize, Deserializer};

/// A member that some servers write as `null` instead of leaving it out.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The metadata of a resource: the server itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ResourceMetadata {
    /// Its identifier.
    pub resource: String,
    /// The issuers of tokens for it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub authorization_servers: Vec<String>,
    /// The scopes that its basic use needs.
    #[serde(default, deserialize_with = "null_as_default")]
    pub scopes_supported: Vec<String>,
}

/// The addresses of the metadata of the resource `url`, first to last.
pub fn resource_metadata_urls(url: &Uri) -> Vec<String> {
    let root = format!("{}/.well-known/oauth-protected-resource", origin_of(url));
    match url.path().trim_end_matches('/') {
        "" => vec![root],
        path => vec![format!("{root}{path}"), root],
    }
}

impl ResourceMetadata {
    /// What counts for a server that publishes nothing, as before the version 2025-06-18: its host is the issuer.
    pub fn for_server_without(url: &Uri) -> Self {
        let resource = format!("{}{}", origin_of(url), url.path().trim_end_matches('/'));
        Self { resource, authorization_servers: vec![origin_of(url)], scopes_supported: Vec::new() }
    }

    /// The issuer to ask: `expected`, or the first one.
    ///
    /// # Errors
    /// The server does not name `expected`; contains the first one that it names.
    pub fn choose_issuer(&self, expected: Option<&str>) -> Result<String, String> {
        let named = &self.authorization_servers;
        let first = named.first().map_or_else(
            || parse_address(&self.resource, "`resource`").map(|uri| origin_of(&uri)),
            |first| Ok(first.clone()),
        )?;
        match expected {
            Some(issuer) if first == issuer || named.iter().any(|one| one == issuer) => {
                Ok(issuer.to_owned())
            }
            Some(_) => Err(printable(&first)),
            None => Ok(first),
        }
    }

    /// Reads the metadata of the server at `url`.
    ///
    /// # Errors
    /// It is not metadata, or describes another resource, whose tokens this server must not get.
    pub fn parse(text: &[u8], url: &Uri) -> Result<Self, String> {
        let metadata: Self = serde_json::from_slice(text)
            .map_err(|error| format!("expected metadata of a protected resource: {error}"))?;
        let resource = parse_address(&metadata.resource, "`resource`")?;
        let path = resource.path().trim_end_matches('/');
        let rest = url.path().strip_prefix(path);
        let is_above = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if origin_of(&resource) == origin_of(url) && is_above {
            return Ok(metadata);
        }
        Err(format!(
            "the metadata is for the resource `{}`, not for `{}`",
            printable(&metadata.resource),
            printable(&url.to_string())
        ))
    }
}

/// The metadata of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IssuerMetadata {
    /// Its identifier.
    pub issuer: String,
    /// Where a person logs in.
    #[serde(default)]
    pub authorization_endpoint: Option<String>,
    /// Where tokens are obtained.
    pub token_endpoint: String,
    /// Where clients register.
    #[serde(default)]
    pub registration_endpoint: Option<String>,
    /// The ways of PKCE; absent if it knows none.
    #[serde(default, deserialize_with = "null_as_default")]
    pub code_challenge_methods_supported: Vec<String>,
    /// How clients prove who they are.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// The kinds of grants.
    #[serde(default)]
    pub grant_types_supported: Option<Vec<String>>,
    /// The scopes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub scopes_supported: Vec<String>,
    /// Whether its answers name it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub authorization_response_iss_parameter_supported: bool,
}

/// The addresses of the metadata of `issuer`, first to last.
///
/// # Errors
/// Nothing may be sent to such an address.
pub fn issuer_metadata_urls(issuer: &str) -> Result<Vec<String>, String> {
    let uri = parse_address(issuer, "the issuer")?;
    let origin = origin_of(&uri);
    let path = uri.path().trim_end_matches('/');
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    Ok(urls)
}

impl IssuerMetadata {
    /// Reads the metadata of `issuer`.
    ///
    /// # Errors
    /// It is not metadata, or describes another issuer, or it names an address to which nothing may be sent.
    pub fn parse(text: &[u8], issuer: &str) -> Result<Self, String> {
        let metadata: Self = serde_json::from_slice(text)
            .map_err(|error| format!("expected metadata of an authorization server: {error}"))?;
        // Compared as texts: two spellings of an address may belong to two tenants.
        if metadata.issuer != issuer {
            return Err(format!(
                "the metadata of the issuer `{}` describes the issuer `{}`",
                printable(issuer),
                printable(&metadata.issuer)
            ));
        }
        let endpoints = [
            (Some(&metadata.token_endpoint), "`token_endpoint`"),
            (metadata.authorization_endpoint.as_ref(), "`authorization_endpoint`"),
            (metadata.registration_endpoint.as_ref(), "`registration_endpoint`"),
        ];
        for (url, role) in endpoints {
            url.map(|url| parse_address(url, role)).transpose()?;
        }
        Ok(metadata)
    }

    /// Where a person logs in.
    ///
    /// # Errors
    /// Nowhere, or not with a proof that only this client can use the code.
    pub fn login_page(&self) -> Result<&str, String> {
        let issuer = printable(&self.issuer);
        if !self.code_challenge_methods_supported.iter().any(|method| method == "S256") {
            return Err(format!(
                "the issuer `{issuer}` does not say that it knows PKCE with `S256`"
            ));
        }
        let page = self.authorization_endpoint.as_deref();
        page.ok_or_else(|| format!("the issuer `{issuer}` has no `authorization_endpoint`"))
    }

    /// Whether the issuer gives tokens for further tokens, as far as it says.
    pub fn has_refresh_tokens(&self) -> bool {
        let grants = self.grant_types_supported.as_ref();
        grants.is_none_or(|grants| grants.iter().any(|grant| grant == "refresh_token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn uri(url: &str) -> Uri {
        url.parse().unwrap()
    }

    #[test]
    fn metadata_is_looked_for_where_the_protocol_says() {
        let root = "https://a.example/.well-known/oauth-protected-resource";
        assert_eq!(
            resource_metadata_urls(&uri("https://A.example/mcp/x?y=1")),
            [format!("{root}/mcp/x"), root.into()]
        );
        assert_eq!(resource_metadata_urls(&uri("https://a.example/")), [root]);
        let names = |issuer| issuer_metadata_urls(issuer).unwrap();
        assert_eq!(
            names("https://i.example/t1"),
            [
                "https://i.example/.well-known/oauth-authorization-server/t1",
                "https://i.example/.well-known/openid-configuration/t1",
                "https://i.example/t1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(names("https://i.example/").len(), 2);
        assert!(issuer_metadata_urls("http://i.example").is_err());
    }

    #[test]
    fn metadata_of_another_resource_is_refused() {
        let parse = |resource: &str| {
            let text =
                json!({"resource": resource, "authorization_servers": ["https://i.example"]})
                    .to_string();
            ResourceMetadata::parse(text.as_bytes(), &uri("https://a.example/mcp/one"))
        };
        for resource in [
            "https://a.example",
            "https://A.example:443/",
            "https://a.example/mcp",
            "https://a.example/mcp/one",
        ] {
            assert_eq!(parse(resource).unwrap().resource, resource);
        }
        for resource in [
            "https://b.example/mcp/one",
            "https://a.example/mc",
            "https://a.example/mcp/one/two",
            "https://a.example.evil.example/mcp",
            "http://a.example/mcp",
            "https://a.example:8443/mcp",
            "mcp",
            "",
        ] {
            assert!(parse(resource).is_err(), "{resource}");
        }
    }

    #[test]
    fn an_issuer_is_one_that_the_server_names() {
        let mut metadata = ResourceMetadata::for_server_without(&uri("https://A.example/mcp/"));
        assert_eq!(metadata.resource, "https://a.example/mcp");
        assert_eq!(metadata.choose_issuer(None), Ok("https://a.example".into()));
        assert_eq!(
            metadata.choose_issuer(Some("https://i.example")),
            Err("https://a.example".into())
        );
        metadata.authorization_servers =
            vec!["https://i.example".into(), "https://j.example".into()];
        assert_eq!(metadata.choose_issuer(None), Ok("https://i.example".into()));
        assert_eq!(
            metadata.choose_issuer(Some("https://j.example")),
            Ok("https://j.example".into())
        );
        assert_eq!(
            metadata.choose_issuer(Some("https://a.example")),
            Err("https://i.example".into())
        );
        metadata.authorization_servers = Vec::new();
        assert_eq!(metadata.choose_issuer(None), Ok("https://a.example".into()));
    }

    #[test]
    fn metadata_of_another_issuer_is_refused() {
        let whole = json!({"issuer": "https://i.example", "token_endpoint": "https://i.example/token",
            "authorization_endpoint": "https://login.example/", "code_challenge_methods_supported": ["plain", "S256"]});
        let parse =
            |json: &Value| IssuerMetadata::parse(json.to_string().as_bytes(), "https://i.example");
        let metadata = parse(&whole).unwrap();
        assert_eq!(metadata.login_page(), Ok("https://login.example/"));
        assert!(metadata.has_refresh_tokens());
        let null = json!({"issuer": "https://i.example", "token_endpoint": "https://i.example/token",
            "scopes_supported": null, "grant_types_supported": null, "registration_endpoint": null});
        assert!(parse(&null).unwrap().scopes_supported.is_empty());
        let with = |key: &str, value: Value| {
            let mut json = whole.clone();
            json[key] = value;
            parse(&json)
        };
        assert!(
            with("issuer", json!("https://i.example/"))
                .unwrap_err()
                .contains("describes the issuer")
        );
        for key in ["token_endpoint", "authorization_endpoint", "registration_endpoint"] {
            assert!(with(key, json!("http://i.example/x")).unwrap_err().contains(key));
        }
        let no_pkce = with("code_challenge_methods_supported", json!(["plain"])).unwrap();
        assert!(no_pkce.login_page().unwrap_err().contains("PKCE"));
        assert!(
            !with("grant_types_supported", json!(["authorization_code"]))
                .unwrap()
                .has_refresh_tokens()
        );
    }
}
