//! Requests for tokens and for clients, and their answers.

use super::discovery::IssuerMetadata;
use super::{encode_form, escape_form_value, printable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// A client of an issuer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuthClient {
    /// Its id.
    pub id: String,
    /// Its secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

// A secret must not appear in debug output.
impl std::fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OAuthClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How a client proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientProof {
    /// Not at all.
    #[serde(rename = "none")]
    None,
    /// With its secret in a header.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// With its secret in the form.
    #[serde(rename = "client_secret_post")]
    Post,
}

impl ClientProof {
    const ALL: [Self; 3] = [Self::None, Self::Basic, Self::Post];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
        }
    }

    /// How `client` proves who it is to an issuer.
    pub fn for_client(client: &OAuthClient, issuer: &IssuerMetadata) -> Self {
        let methods = issuer.token_endpoint_auth_methods_supported.as_deref().unwrap_or_default();
        let has = |proof: Self| methods.iter().any(|method| method == proof.name());
        match &client.secret {
            None => Self::None,
            Some(_) if has(Self::Post) && !has(Self::Basic) => Self::Post,
            Some(_) => Self::Basic,
        }
    }

    /// How a client that registers wants to prove who it is: a program on this machine keeps no secret.
    fn for_registration(issuer: &IssuerMetadata) -> Self {
        let Some(methods) = &issuer.token_endpoint_auth_methods_supported else {
            return Self::None;
        };
        let known = Self::ALL.into_iter().find(|proof| methods.iter().any(|it| it == proof.name()));
        known.unwrap_or(Self::None)
    }
}

/// A form for the token endpoint.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenForm {
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
    /// The body.
    pub body: String,
}

/// The request of `client` for a token.
pub fn token_form(client: &OAuthClient, proof: ClientProof, members: &[(&str, &str)]) -> TokenForm {
    let secret = client.secret.as_deref().unwrap_or_default();
    let mut members = members.to_vec();
    let mut authorization = None;
    match proof {
        ClientProof::None => members.push(("client_id", &client.id)),
        ClientProof::Post => {
            members.extend([("client_id", client.id.as_str()), ("client_secret", secret)])
        }
        ClientProof::Basic => {
            let pair = format!("{}:{}", escape_form_value(&client.id), escape_form_value(secret));
            authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
        }
    }
    TokenForm { authorization, body: encode_form(&members) }
}

/// Tokens that an issuer gave.
#[derive(Debug, PartialEq, Eq)]
pub struct GrantedTokens {
    /// For requests to the resource.
    pub access_token: String,
    /// For the next access token.
    pub refresh_token: Option<String>,
    /// How long the access token is good, in seconds.
    pub expires_in: Option<u64>,
}

/// Why there is no token.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The grant is used up, expired or revoked: it can never be used again.
    GrantEnded(String),
    /// The issuer refuses.
    Refused(String),
    /// The issuer does not answer as it should, so another attempt may help.
    NoAnswer(String),
}

/// Reads the answer of a token endpoint.
///
/// # Errors
/// It has no token.
pub fn parse_token_answer(status: u16, body: &[u8]) -> Result<GrantedTokens, TokenError> {
    let json: Json = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| json.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    if let Some(error) = text("error") {
        let details = text("error_description").map(|text| format!(": {}", printable(text)));
        let reason = format!("{}{}", printable(error), details.unwrap_or_default());
        return Err(match error {
            "invalid_grant" => TokenError::GrantEnded(reason),
            "server_error" | "temporarily_unavailable" | "slow_down" => {
                TokenError::NoAnswer(reason)
            }
            _ if status >= 500 || status == 429 => TokenError::NoAnswer(reason),
            _ => TokenError::Refused(reason),
        });
    }
    let Some(access_token) = text("access_token") else {
        let reason = format!("expected a token, found HTTP status {status}");
        let is_temporary = status >= 500 || status == 429;
        return Err(if is_temporary {
            TokenError::NoAnswer(reason)
        } else {
            TokenError::Refused(reason)
        });
    };
    // Whatever else it is, it cannot be sent as one.
    let kind = text("token_type").unwrap_or("Bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        let reason = format!("expected a token of the type `Bearer`, found `{}`", printable(kind));
        return Err(TokenError::Refused(reason));
    }
    let expires_in = json.get("expires_in");
    Ok(GrantedTokens {
        access_token: access_token.to_owned(),
        refresh_token: text("refresh_token").map(str::to_owned),
        // Some issuers write the number as a text.
        expires_in: expires_in.and_then(|it| it.as_u64().or_else(|| it.as_str()?.parse().ok())),
    })
}

/// The body of a registration (RFC 7591).
pub fn registration_body(issuer: &IssuerMetadata, redirect_uri: &str, scopes: &[String]) -> Json {
    let mut grants = vec!["authorization_code"];
    if issuer.has_refresh_tokens() {
        grants.push("refresh_token");
    }
    let mut body = json!({
        "client_name": "delta",
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": ClientProof::for_registration(issuer).name(),
    });
    if !scopes.is_empty() {
        body["scope"] = scopes.join(" ").into();
    }
    body
}

/// The client in the answer to a registration, and how it proves who it is.
///
/// # Errors
/// The issuer registers no client.
pub fn parse_registration(
    status: u16,
    body: &[u8],
    issuer: &IssuerMetadata,
) -> Result<(OAuthClient, ClientProof), String> {
    let json: Json = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| json.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    let Some(id) = text("client_id").filter(|_| status < 300) else {
        let details = text("error_description").or_else(|| text("error")).unwrap_or_default();
        let details =
            if details.is_empty() { String::new() } else { format!(": {}", printable(details)) };
        return Err(format!("the issuer registered no client (HTTP status {status}){details}"));
    };
    let client =
        OAuthClient { id: id.to_owned(), secret: text("client_secret").map(str::to_owned) };
    let named = text("token_endpoint_auth_method");
    let named = ClientProof::ALL.into_iter().find(|proof| named == Some(proof.name()));
    let usable = named.filter(|proof| *proof == ClientProof::None || client.secret.is_some());
    let proof = usable.unwrap_or_else(|| ClientProof::for_client(&client, issuer));
    Ok((client, proof))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(methods: Option<&[&str]>) -> IssuerMetadata {
        let mut json =
            json!({"issuer": "https://i.example", "token_endpoint": "https://i.example/token"});
        if let Some(methods) = methods {
            json["token_endpoint_auth_methods_supported"] = json!(methods);
        }
        serde_json::from_value(json).unwrap()
    }

    fn client(secret: Option<&str>) -> OAuthClient {
        OAuthClient { id: "a:b".into(), secret: secret.map(str::to_owned) }
    }

    #[test]
    fn a_client_proves_who_it_is_as_its_issuer_wants() {
        fn proof(secret: Option<&str>, methods: Option<&[&str]>) -> ClientProof {
            ClientProof::for_client(&client(secret), &issuer(methods))
        }
        let (basic, post) = ("client_secret_basic", "client_secret_post");
        assert_eq!(proof(None, Some(&[basic])), ClientProof::None);
        assert_eq!(proof(Some("s"), None), ClientProof::Basic);
        assert_eq!(proof(Some("s"), Some(&[post, basic])), ClientProof::Basic);
        assert_eq!(proof(Some("s"), Some(&["none", post])), ClientProof::Post);
        let form = |secret, proof| token_form(&client(secret), proof, &[("grant_type", "x")]);
        assert_eq!(form(None, ClientProof::None).body, "grant_type=x&client_id=a%3Ab");
        assert_eq!(
            form(Some("s"), ClientProof::Post).body,
            "grant_type=x&client_id=a%3Ab&client_secret=s"
        );
        let header = form(Some("s+"), ClientProof::Basic);
        assert_eq!(header.authorization.as_deref(), Some("Basic YSUzQWI6cyUyQg=="));
        assert_eq!(header.body, "grant_type=x");
    }

    #[test]
    fn a_registration_asks_for_what_the_issuer_gives() {
        let body = |methods| {
            registration_body(&issuer(methods), "http://127.0.0.1:1/callback", &["a".into()])
        };
        let plain = body(None);
        assert_eq!(plain["token_endpoint_auth_method"], "none");
        assert_eq!(plain["application_type"], "native");
        assert_eq!(plain["grant_types"], json!(["authorization_code", "refresh_token"]));
        assert_eq!(plain["scope"], "a");
        assert_eq!(
            body(Some(&["client_secret_post"]))["token_endpoint_auth_method"],
            "client_secret_post"
        );
        let parse = |status, json: Json| {
            parse_registration(status, json.to_string().as_bytes(), &issuer(None))
        };
        let named = json!({"client_id": "c", "client_secret": "s", "token_endpoint_auth_method": "client_secret_post"});
        assert_eq!(parse(201, named).unwrap().1, ClientProof::Post);
        assert_eq!(
            parse(200, json!({"client_id": "c", "client_secret": "s"})).unwrap().1,
            ClientProof::Basic
        );
        let without =
            json!({"client_id": "c", "token_endpoint_auth_method": "client_secret_basic"});
        assert_eq!(parse(201, without).unwrap().1, ClientProof::None);
        let refused =
            parse(400, json!({"error": "invalid_redirect_uri", "client_id": "c"})).unwrap_err();
        assert!(refused.contains("400") && refused.contains("invalid_redirect_uri"), "{refused}");
        assert!(parse(404, Json::Null).is_err());
    }

    #[test]
    fn an_answer_has_a_token_or_a_reason() {
        let parse = |status, json: Json| parse_token_answer(status, json.to_string().as_bytes());
        let tokens = parse(
            200,
            json!({"access_token": "t", "token_type": "bearer", "expires_in": "60", "refresh_token": ""}),
        );
        let expected =
            GrantedTokens { access_token: "t".into(), refresh_token: None, expires_in: Some(60) };
        assert_eq!(tokens, Ok(expected));
        assert!(matches!(
            parse(400, json!({"error": "invalid_grant"})),
            Err(TokenError::GrantEnded(_))
        ));
        // GitHub answers errors with status 200.
        assert!(matches!(
            parse(200, json!({"error": "bad_verification_code"})),
            Err(TokenError::Refused(_))
        ));
        assert!(matches!(parse(503, Json::Null), Err(TokenError::NoAnswer(_))));
        assert!(matches!(parse(429, json!({"error": "rate"})), Err(TokenError::NoAnswer(_))));
        assert!(matches!(parse(404, Json::Null), Err(TokenError::Refused(_))));
        assert!(matches!(
            parse(200, json!({"access_token": "t", "token_type": "DPoP"})),
            Err(TokenError::Refused(_))
        ));
    }
}
