//! A login: from the address for the browser to the file with the tokens.

use super::discovery::{challenge_of, fetch_issuer, fetch_resource};
use super::login_file::LoginWriter;
use super::oauth_http::OAuthHttp;
use super::redirect_listener::RedirectListener;
use super::token_source::{now_ms, request_tokens};
use crate::http_transport::standard_headers;
use delta_base::signal::CancelToken;
use delta_mcp::failure::McpFailure;
use delta_mcp::json_rpc::RpcMessage;
use delta_mcp::oauth::authorization::{
    AuthorizationRequest, ExpectedAnswer, PkcePair, random_text,
};
use delta_mcp::oauth::challenge::BearerChallenge;
use delta_mcp::oauth::discovery::IssuerMetadata;
use delta_mcp::oauth::saved_login::{SavedLogin, read_login};
use delta_mcp::oauth::token_endpoint::{
    ClientProof, OAuthClient, TokenError, parse_registration, registration_body,
};
use delta_mcp::oauth::{OAuthSettings, parse_address, unite_scopes};
use delta_mcp::protocol_era::{MODERN_VERSION, with_modern_meta};
use delta_mcp::server_spec::ServerSpec;
use rustix::fd::AsFd;
use serde_json::{Value as Json, json};

/// What the operator says about a login.
#[derive(Debug, Default)]
pub struct LoginOptions {
    /// Scopes besides the scopes that the server names and the last login had.
    pub scopes: Vec<String>,
    /// The issuer to ask, in place of the locked one and the first that the server names.
    pub issuer: Option<String>,
    /// The port of the redirect; 0 for a free one.
    pub port: u16,
}

/// A login that waits for a person.
#[derive(Debug)]
pub struct PendingLogin<'a> {
    settings: &'a OAuthSettings,
    listener: RedirectListener,
    state: String,
    pkce: PkcePair,
    names_issuer: bool,
    url: String,
    client: OAuthClient,
    /// What is left of it, still without tokens.
    login: SavedLogin,
}

impl<'a> PendingLogin<'a> {
    /// Asks the server and its issuer what a login needs, and registers a client if none is configured.
    ///
    /// # Errors
    /// They do not answer, or say something that is not to be believed.
    pub fn begin(
        spec: &ServerSpec,
        settings: &'a OAuthSettings,
        options: &LoginOptions,
        cancel: &CancelToken,
    ) -> Result<Self, McpFailure> {
        let url = spec.url.as_deref().unwrap_or_default();
        let address = parse_address(url, "`url`").map_err(McpFailure::Unauthorized)?;
        let http = OAuthHttp { settings, cancel };
        let challenge = ask_for_challenge(&http, spec, url)?;
        let resource = fetch_resource(&http, &address, &challenge)?;
        let expected = options.issuer.as_deref().or(settings.issuer.as_deref());
        let issuer = resource.choose_issuer(expected).map_err(|named| {
            McpFailure::Unauthorized(format!(
                "the MCP server `{}` names the issuer `{named}`, and `{}` is expected: add `--issuer {named}` if you trust it",
                spec.name,
                expected.unwrap_or_default()
            ))
        })?;
        let issuer = fetch_issuer(&http, &issuer)?;
        let login_page = issuer.login_page().map_err(McpFailure::invalid_answer)?;
        let mut scopes = settings.choose_scopes(&challenge, &resource);
        // An earlier login may have had more; its operator would lose what needs them. What cannot be read is replaced.
        let earlier = read_login(settings, url).ok().flatten();
        let earlier = earlier.filter(|login| login.issuer == issuer.issuer);
        unite_scopes(&mut scopes, &earlier.map(|login| login.scopes).unwrap_or_default());
        unite_scopes(&mut scopes, &options.scopes);
        // Alone, it would replace the scopes that the issuer gives by default.
        let offline = "offline_access".to_owned();
        if !scopes.is_empty() && issuer.scopes_supported.contains(&offline) {
            unite_scopes(&mut scopes, &[offline]);
        }
        let listener = RedirectListener::bind(options.port)?;
        let (client, proof) = match &settings.client {
            Some(client) => (client.clone(), ClientProof::for_client(client, &issuer)),
            None => register(&http, &issuer, listener.redirect_uri(), &scopes)?,
        };
        let state = random_text();
        let pkce = PkcePair::generate();
        let request = AuthorizationRequest {
            login_page,
            client_id: &client.id,
            redirect_uri: listener.redirect_uri(),
            resource: &resource.resource,
            scopes: &scopes,
            state: &state,
            challenge: &pkce.challenge,
        };
        let saved_secret = client.secret.clone().filter(|_| settings.client.is_none());
        Ok(Self {
            settings,
            url: request.to_url(),
            listener,
            state,
            pkce,
            names_issuer: issuer.authorization_response_iss_parameter_supported,
            login: SavedLogin {
                url: url.to_owned(),
                resource: resource.resource,
                issuer: issuer.issuer,
                token_endpoint: issuer.token_endpoint,
                client: OAuthClient { id: client.id.clone(), secret: saved_secret },
                proof,
                scopes,
                access_token: None,
                refresh_token: None,
                expires_at_ms: None,
            },
            client,
        })
    }

    /// The address for the browser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits for the browser, or for a line in `input` with the address to which it was sent. Without a browser, the end of
    /// `input` is the end of the login. `on_foreign` gets the reason for an answer that is not used.
    ///
    /// # Errors
    /// The issuer refused, or there was no answer.
    pub fn wait_for_code(
        &self,
        input: impl AsFd,
        has_browser: bool,
        cancel: &CancelToken,
        on_foreign: &mut dyn FnMut(&str),
    ) -> Result<String, McpFailure> {
        let expected = ExpectedAnswer {
            state: &self.state,
            issuer: &self.login.issuer,
            names_issuer: self.names_issuer,
        };
        self.listener.wait_for_code(&expected, input.as_fd(), has_browser, cancel, on_foreign)
    }

    /// Exchanges the code for tokens, and writes them.
    ///
    /// # Errors
    /// The issuer gives none, or the file cannot be written.
    pub fn finish(mut self, code: &str, cancel: &CancelToken) -> Result<SavedLogin, McpFailure> {
        let http = OAuthHttp { settings: self.settings, cancel };
        let members = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", self.listener.redirect_uri()),
            ("code_verifier", &self.pkce.verifier),
            ("resource", &self.login.resource),
        ];
        let SavedLogin { token_endpoint, proof, .. } = &self.login;
        let tokens = match request_tokens(&http, token_endpoint, &self.client, *proof, &members)? {
            Ok(tokens) => tokens,
            Err(TokenError::GrantEnded(reason) | TokenError::Refused(reason)) => {
                let message = format!("the issuer gives no token: {reason}");
                return Err(McpFailure::Unauthorized(message));
            }
            Err(TokenError::NoAnswer(reason)) => {
                return Err(McpFailure::Unreachable(format!(
                    "the issuer gives no token: {reason}"
                )));
            }
        };
        self.login.set_tokens(tokens, now_ms());
        LoginWriter::acquire(self.settings, cancel)?.write(&self.login)?;
        Ok(self.login)
    }
}

/// What the server says about the access that it wants, in its answer to a request without a token.
fn ask_for_challenge(
    http: &OAuthHttp<'_>,
    spec: &ServerSpec,
    url: &str,
) -> Result<BearerChallenge, McpFailure> {
    let method = "server/discover";
    let params = with_modern_meta(Json::Null, &json!({}));
    let standard = standard_headers(method, &params);
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", MODERN_VERSION),
    ];
    headers.extend(standard.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    headers.extend(spec.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let body = RpcMessage::request(1, method, params).to_json().to_string();
    let answer = http.post(url, &headers, body)?;
    Ok(challenge_of(&answer.headers).unwrap_or_default())
}

fn register(
    http: &OAuthHttp<'_>,
    issuer: &IssuerMetadata,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<(OAuthClient, ClientProof), McpFailure> {
    let Some(endpoint) = &issuer.registration_endpoint else {
        return Err(McpFailure::Unauthorized(format!(
            "the issuer `{}` registers no clients by itself: register one there, and write `oauth: {{client_id_env: NAME}}` at the server in agent.yaml",
            issuer.issuer
        )));
    };
    let headers = [("content-type", "application/json"), ("accept", "application/json")];
    let body = registration_body(issuer, redirect_uri, scopes).to_string();
    let answer = http.post(endpoint, &headers, body)?;
    parse_registration(answer.status, &answer.body, issuer).map_err(McpFailure::Unauthorized)
}
