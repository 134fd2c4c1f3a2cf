//! OAuth 2.1 for servers over HTTP, as the Model Context Protocol uses it: what a server that refuses access says, what is
//! published about it and its issuer, the requests of a login, and what a login leaves. It opens no connection.

use challenge::BearerChallenge;
use delta_http::is_loopback_host;
use discovery::ResourceMetadata;
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use token_endpoint::OAuthClient;

pub mod authorization;
pub mod challenge;
pub mod discovery;
pub mod saved_login;
pub mod token_endpoint;

/// What RFC 3986 leaves as it is.
const FORM_ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How access to a server is obtained, with all values in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OAuthSettings {
    /// The file with the login; it need not exist.
    pub login_file: PathBuf,
    /// The client that the author or the operator has registered; otherwise a login registers one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<OAuthClient>,
    /// The scopes to ask for, instead of the scopes that the server names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Whether the client asks on its own behalf (`client_credentials`), so that no person has to log in.
    #[serde(default)]
    pub has_own_access: bool,
    /// The only issuer whose tokens the server may get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// The command that logs in.
    pub login_command: String,
    /// The operator's variables with proxies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_variables: BTreeMap<String, String>,
}

impl OAuthSettings {
    /// The scopes to ask for: the configured scopes, else the scopes in the refusal of the server, else those in its metadata.
    pub fn choose_scopes(
        &self,
        challenge: &BearerChallenge,
        resource: &ResourceMetadata,
    ) -> Vec<String> {
        let lists = [&self.scopes, &challenge.scopes, &resource.scopes_supported];
        lists.into_iter().find(|scopes| !scopes.is_empty()).cloned().unwrap_or_default()
    }
}

/// The address `url`, to which credentials may be sent: `https:`, or `http:` to this machine.
///
/// # Errors
/// It is another one; the message names it by its `role`.
pub fn parse_address(url: &str, role: &str) -> Result<Uri, String> {
    let uri: Option<Uri> = url.parse().ok().filter(|_| !url.contains('#'));
    let is_safe = uri.as_ref().is_some_and(|uri| {
        let host = uri.host().unwrap_or_default();
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let is_https = uri.scheme_str() == Some("https") && !host.is_empty();
        !has_user && (is_https || (uri.scheme_str() == Some("http") && is_loopback_host(host)))
    });
    uri.filter(|_| is_safe).ok_or_else(|| {
        format!("expected an `https:` address as {role}, found `{}`", printable(url))
    })
}

/// Scheme, host and port of an address, in lower case and without the usual port.
pub fn origin_of(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let host = uri.host().unwrap_or_default().to_ascii_lowercase();
    match (scheme, uri.port_u16()) {
        ("https", None | Some(443)) | ("http", None | Some(80)) => format!("{scheme}://{host}"),
        (_, port) => format!("{scheme}://{host}:{}", port.unwrap_or_default()),
    }
}

/// `value` in a form or a query.
pub(crate) fn escape_form_value(value: &str) -> String {
    utf8_percent_encode(value, FORM_ESCAPED).to_string()
}

/// A form, or a query, with these members.
pub(crate) fn encode_form(members: &[(&str, &str)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}={}", escape_form_value(name), escape_form_value(value)))
        .collect();
    members.join("&")
}

/// The members of a form or a query.
pub(crate) fn decode_form(text: &str) -> Vec<(String, String)> {
    let decode =
        |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let members = text.split('&').filter(|member| !member.is_empty());
    members
        .map(|member| {
            let (name, value) = member.split_once('=').unwrap_or((member, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Text of a server for a message: on one line, and not long.
pub(crate) fn printable(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    text.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

/// The scopes in `text`, which blanks separate. Characters that RFC 6749 does not allow in a scope end up in no command.
pub fn split_scopes(text: &str) -> Vec<String> {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let scopes = words
        .filter(|word| word.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e)));
    scopes.map(str::to_owned).collect()
}

/// Adds the scopes in `more` that `scopes` does not have.
pub fn unite_scopes(scopes: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_go_to_https_and_to_this_machine_only() {
        for url in [
            "https://a.example/x?y",
            "http://127.0.0.1:1/x",
            "http://localhost:2",
            "http://[::1]:3/",
        ] {
            assert!(parse_address(url, "it").is_ok(), "{url}");
        }
        for url in [
            "",
            "x",
            "/x",
            "http://a.example/",
            "http://127.0.0.1.example/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://user:word@a.example/",
            "https://a.example/#x",
            "ftp://localhost/",
        ] {
            let error = parse_address(url, "the issuer").unwrap_err();
            assert!(error.starts_with("expected an `https:` address as the issuer"), "{error}");
        }
    }

    #[test]
    fn an_origin_has_one_spelling() {
        let origin = |url: &str| origin_of(&url.parse().unwrap());
        assert_eq!(origin("https://A.example:443/x"), "https://a.example");
        assert_eq!(origin("http://localhost:80"), "http://localhost");
        assert_eq!(origin("https://a.example:8443"), "https://a.example:8443");
        assert_ne!(origin("http://a.example"), origin("https://a.example"));
    }

    #[test]
    fn a_form_survives_its_encoding() {
        let members = [("a b", "x&y=z%+é"), ("state", "-._~"), ("empty", "")];
        let text = encode_form(&members);
        assert_eq!(text, "a%20b=x%26y%3Dz%25%2B%C3%A9&state=-._~&empty=");
        let expected: Vec<(String, String)> =
            members.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(decode_form(&text), expected);
        assert_eq!(decode_form("a=1+2&b"), [("a".into(), "1 2".into()), ("b".into(), "".into())]);
    }

    #[test]
    fn scopes_are_united_in_their_order() {
        let mut scopes = split_scopes("read  write bad\"one");
        assert_eq!(scopes, ["read", "write"]);
        unite_scopes(&mut scopes, &split_scopes("admin read"));
        assert_eq!(scopes, ["read", "write", "admin"]);
    }
}
