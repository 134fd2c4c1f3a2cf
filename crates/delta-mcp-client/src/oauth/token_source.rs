//! The tokens of a server, for all clients of a connection.

use super::discovery::{fetch_issuer, fetch_resource};
use super::login_file::LoginWriter;
use super::oauth_http::OAuthHttp;
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_base::time::current_time;
use delta_mcp::failure::McpFailure;
use delta_mcp::oauth::challenge::BearerChallenge;
use delta_mcp::oauth::saved_login::{SavedLogin, TokenStep, read_login};
use delta_mcp::oauth::token_endpoint::{
    ClientProof, GrantedTokens, OAuthClient, TokenError, parse_token_answer, token_form,
};
use delta_mcp::oauth::{OAuthSettings, parse_address};
use delta_mcp::server_spec::ServerSpec;
use serde_json::Value as Json;
use std::sync::{Mutex, PoisonError};

/// Where the tokens of a server come from.
pub(crate) struct TokenSource {
    server: String,
    url: String,
    settings: OAuthSettings,
    /// The login as it was last read.
    known: Mutex<Option<SavedLogin>>,
    /// All tokens that were seen.
    secrets: Secrets,
}

impl TokenSource {
    pub(crate) fn new(spec: &ServerSpec, url: &str) -> Option<Self> {
        Some(Self {
            server: spec.name.clone(),
            url: url.to_owned(),
            settings: spec.oauth.clone()?,
            known: Mutex::default(),
            secrets: Secrets::default(),
        })
    }

    /// The token for the next request. Without a login there is none: the server may need none.
    pub(crate) fn current_token(&self, cancel: &CancelToken) -> Result<Option<String>, McpFailure> {
        let mut login = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if login.is_none() {
            login = self.read()?;
        }
        let Some(login) = login else { return Ok(None) };
        match login.next_step(None, now_ms()) {
            TokenStep::Use(token) => {
                let token = token.to_owned();
                self.remember(login);
                Ok(Some(token))
            }
            TokenStep::Refresh(_) => self.replace_token(None, None, cancel).map(Some),
            // The server says in its refusal what a new token needs.
            TokenStep::Obtain => Ok(None),
        }
    }

    /// A token after the server has refused `refused` with `challenge`; without a challenge, the token has expired.
    pub(crate) fn replace_token(
        &self,
        refused: Option<&str>,
        challenge: Option<&BearerChallenge>,
        cancel: &CancelToken,
    ) -> Result<String, McpFailure> {
        if let Some(challenge) = challenge.filter(|challenge| challenge.needs_more_scopes()) {
            return Err(self.scope_refusal(challenge));
        }
        if self.read()?.is_none() && !self.settings.has_own_access {
            return Err(self.login_needed("there is none yet"));
        }
        let writer = LoginWriter::acquire(&self.settings, cancel)?;
        // Another process may have done it meanwhile; a refresh token is good once.
        let login = self.read()?;
        let step = login.as_ref().map(|login| login.next_step(refused, now_ms()));
        let login = match (login.clone(), step) {
            (Some(login), Some(TokenStep::Use(_))) => login,
            (Some(mut login), Some(TokenStep::Refresh(token))) => {
                self.refresh(&mut login, token, &writer)?;
                login
            }
            _ if self.settings.has_own_access => {
                let login = self.obtain_own(challenge.unwrap_or(&BearerChallenge::default()))?;
                writer.write(&login)?;
                login
            }
            _ => return Err(self.login_needed("the server does not accept the last one")),
        };
        let token = login.access_token.clone().unwrap_or_default();
        self.remember(login);
        Ok(token)
    }

    /// The server refuses a token that was just obtained.
    pub(crate) fn final_refusal(&self, challenge: &BearerChallenge) -> McpFailure {
        if challenge.needs_more_scopes() {
            return self.scope_refusal(challenge);
        }
        self.login_needed("the server does not accept a new token")
    }

    /// `json` without tokens: what a server sends back must not get into a run.
    pub(crate) fn redact(&self, json: Json) -> Json {
        let text = json.to_string();
        if !self.secrets.occur_in(&text) {
            return json;
        }
        serde_json::from_str(&self.secrets.redact(&text)).unwrap_or_default()
    }

    /// `text` without tokens.
    pub(crate) fn redact_text(&self, text: String) -> String {
        self.secrets.redact_string(text)
    }

    fn read(&self) -> Result<Option<SavedLogin>, McpFailure> {
        let Some(login) = read_login(&self.settings, &self.url)? else { return Ok(None) };
        match login.issuer_conflict(&self.settings) {
            Some(reason) => Err(self.login_needed(&reason)),
            None => Ok(Some(login)),
        }
    }

    fn remember(&self, login: SavedLogin) {
        login.secrets().for_each(|secret| self.secrets.add(secret));
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(login);
    }

    /// Exchanges the refresh token. A caller that goes away does not stop that: the answer may have the only refresh token
    /// that is still good.
    fn refresh(
        &self,
        login: &mut SavedLogin,
        refresh_token: &str,
        writer: &LoginWriter<'_>,
    ) -> Result<(), McpFailure> {
        let client = login.proving_client(&self.settings);
        let members = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token),
            ("resource", &login.resource),
        ];
        let cancel = CancelToken::manual().map_err(|error| McpFailure::no_descriptor(&error))?;
        let http = OAuthHttp { settings: &self.settings, cancel: &cancel };
        match request_tokens(&http, &login.token_endpoint, &client, login.proof, &members)? {
            Ok(tokens) => {
                login.set_tokens(tokens, now_ms());
                writer.write(login)
            }
            Err(TokenError::GrantEnded(reason)) => {
                // Sent once more, it would look stolen.
                login.refresh_token = None;
                login.access_token = None;
                writer.write(login)?;
                Err(self.login_needed(&format!("the issuer ended the last one: {reason}")))
            }
            Err(TokenError::Refused(reason)) => {
                Err(self.login_needed(&format!("the issuer gives no new token: {reason}")))
            }
            Err(TokenError::NoAnswer(reason)) => Err(self.no_token(&reason)),
        }
    }

    /// A token for the client itself.
    fn obtain_own(&self, challenge: &BearerChallenge) -> Result<SavedLogin, McpFailure> {
        let cancel = CancelToken::manual().map_err(|error| McpFailure::no_descriptor(&error))?;
        let http = OAuthHttp { settings: &self.settings, cancel: &cancel };
        let url = parse_address(&self.url, "`url`").map_err(McpFailure::Unauthorized)?;
        let resource = fetch_resource(&http, &url, challenge)?;
        let expected = self.settings.issuer.as_deref();
        let issuer = resource.choose_issuer(expected).map_err(|named| {
            McpFailure::Unauthorized(format!(
                "the MCP server `{}` names the issuer `{named}`, and mcp.lock.json has `{}`: look at `delta mcp lock`",
                self.server,
                expected.unwrap_or_default()
            ))
        })?;
        let issuer = fetch_issuer(&http, &issuer)?;
        let scopes = self.settings.choose_scopes(challenge, &resource);
        let scope = scopes.join(" ");
        let client = self
            .settings
            .client
            .clone()
            .unwrap_or_else(|| OAuthClient { id: String::new(), secret: None });
        let proof = ClientProof::for_client(&client, &issuer);
        let mut members =
            vec![("grant_type", "client_credentials"), ("resource", resource.resource.as_str())];
        if !scope.is_empty() {
            members.push(("scope", &scope));
        }
        let answer = request_tokens(&http, &issuer.token_endpoint, &client, proof, &members)?;
        let tokens = answer.map_err(|error| match error {
            TokenError::NoAnswer(reason) => self.no_token(&reason),
            TokenError::GrantEnded(reason) | TokenError::Refused(reason) => {
                McpFailure::Unauthorized(format!(
                    "the issuer `{}` gives the client of the MCP server `{}` no token: {reason}",
                    issuer.issuer, self.server
                ))
            }
        })?;
        let mut login = SavedLogin {
            url: self.url.clone(),
            resource: resource.resource,
            issuer: issuer.issuer,
            token_endpoint: issuer.token_endpoint,
            client: OAuthClient { id: client.id, secret: None },
            proof,
            scopes,
            access_token: None,
            refresh_token: None,
            expires_at_ms: None,
        };
        login.set_tokens(tokens, now_ms());
        Ok(login)
    }

    fn no_token(&self, reason: &str) -> McpFailure {
        McpFailure::Unreachable(format!(
            "the issuer gives no token for the MCP server `{}`: {reason}",
            self.server
        ))
    }

    fn login_needed(&self, reason: &str) -> McpFailure {
        let reason = self.redact_text(reason.to_owned());
        McpFailure::Unauthorized(format!(
            "the MCP server `{}` needs a login ({reason}): run `{}`",
            self.server, self.settings.login_command
        ))
    }

    fn scope_refusal(&self, challenge: &BearerChallenge) -> McpFailure {
        let scopes = challenge.scopes.join(" ");
        if self.settings.has_own_access {
            return McpFailure::Unauthorized(format!(
                "the MCP server `{}` needs the scopes `{scopes}`: write them in `scopes` of its `oauth`",
                self.server
            ));
        }
        let option = match scopes.as_str() {
            "" => String::new(),
            scopes => format!(" --scope {}", shell_quote(scopes)),
        };
        McpFailure::Unauthorized(format!(
            "the MCP server `{}` needs a login with more scopes: run `{}{option}`",
            self.server, self.settings.login_command
        ))
    }
}

/// Asks a token endpoint.
pub(super) fn request_tokens(
    http: &OAuthHttp<'_>,
    endpoint: &str,
    client: &OAuthClient,
    proof: ClientProof,
    members: &[(&str, &str)],
) -> Result<Result<GrantedTokens, TokenError>, McpFailure> {
    let form = token_form(client, proof, members);
    let mut headers =
        vec![("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")];
    headers.extend(form.authorization.as_deref().map(|value| ("authorization", value)));
    let answer = http.post(endpoint, &headers, form.body)?;
    Ok(parse_token_answer(answer.status, &answer.body))
}

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    current_time().as_millis()
}
