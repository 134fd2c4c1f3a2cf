//! What a login leaves: the tokens, whose they are, and what comes next with them.

use super::token_endpoint::{ClientProof, GrantedTokens, OAuthClient};
use super::{OAuthSettings, printable};
use crate::failure::McpFailure;
use delta_base::durable;
use serde::{Deserialize, Serialize};
use std::io;

/// How long before its end an access token is no longer used: the request has to arrive.
const EXPIRY_MARGIN_MS: i64 = 10_000;

/// A login, as its file has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLogin {
    /// The URL of the server, the only address that gets the tokens.
    pub url: String,
    /// The resource of the tokens, as its metadata spells it.
    pub resource: String,
    /// Who issued them.
    pub issuer: String,
    /// Where the next one is obtained.
    pub token_endpoint: String,
    /// The client that they were issued to; a secret that the operator configures is not in it.
    pub client: OAuthClient,
    /// How it proves who it is.
    pub proof: ClientProof,
    /// The scopes that were asked for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The access token.
    #[serde(default)]
    pub access_token: Option<String>,
    /// The token for the next one.
    #[serde(default)]
    pub refresh_token: Option<String>,
    /// When the access token expires, in milliseconds since 1970; unknown without it.
    #[serde(default)]
    pub expires_at_ms: Option<i64>,
}

// A token must not appear in debug output.
impl std::fmt::Debug for SavedLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedLogin").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// What comes next with a login.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenStep<'a> {
    /// This access token is sent.
    Use(&'a str),
    /// This refresh token is exchanged.
    Refresh(&'a str),
    /// There is nothing to begin with.
    Obtain,
}

impl SavedLogin {
    /// Reads the login of the server at `url`.
    ///
    /// # Errors
    /// It is not a login, or the login at another server.
    pub fn parse(text: &str, url: &str) -> Result<Self, String> {
        let login: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if login.url == url {
            return Ok(login);
        }
        Err(format!("it is the login of `{}`", printable(&login.url)))
    }

    /// The text of its file.
    pub fn to_text(&self) -> String {
        format!("{}\n", serde_json::json!(self))
    }

    /// Why the server must not get its tokens, if the definitions of the server are locked with another issuer.
    pub fn issuer_conflict(&self, settings: &OAuthSettings) -> Option<String> {
        let locked = settings.issuer.as_ref().filter(|issuer| **issuer != self.issuer)?;
        Some(format!(
            "the login is of the issuer `{}`, and mcp.lock.json has `{}`",
            printable(&self.issuer),
            printable(locked)
        ))
    }

    /// What comes next. `refused` is an access token that the server did not accept.
    pub fn next_step(&self, refused: Option<&str>, now_ms: i64) -> TokenStep<'_> {
        let is_fresh = self.expires_at_ms.is_none_or(|end| now_ms < end - EXPIRY_MARGIN_MS);
        let usable =
            self.access_token.as_deref().filter(|token| is_fresh && refused != Some(token));
        match (usable, &self.refresh_token) {
            (Some(token), _) => TokenStep::Use(token),
            (None, Some(token)) => TokenStep::Refresh(token),
            (None, None) => TokenStep::Obtain,
        }
    }

    /// Takes new tokens. The refresh token stays if the issuer gave no other.
    pub fn set_tokens(&mut self, tokens: GrantedTokens, now_ms: i64) {
        self.access_token = Some(tokens.access_token);
        self.refresh_token = tokens.refresh_token.or(self.refresh_token.take());
        self.expires_at_ms = tokens.expires_in.map(|seconds| {
            now_ms.saturating_add(i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX))
        });
    }

    /// The client as it proves who it is: a secret that the operator configures is the present one.
    pub fn proving_client(&self, settings: &OAuthSettings) -> OAuthClient {
        settings.client.clone().unwrap_or_else(|| self.client.clone())
    }

    /// The values that no output may have.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        [&self.access_token, &self.refresh_token, &self.client.secret]
            .into_iter()
            .filter_map(Option::as_deref)
    }
}

/// The login of the server at `url`, if there is one.
///
/// # Errors
/// The file cannot be read, or has no login of this server.
pub fn read_login(settings: &OAuthSettings, url: &str) -> Result<Option<SavedLogin>, McpFailure> {
    let path = &settings.login_file;
    let text = match durable::read_regular_text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let message = format!("could not read {}: {error}", path.display());
            return Err(McpFailure::Unauthorized(message));
        }
    };
    SavedLogin::parse(&text, url).map(Some).map_err(|problem| {
        McpFailure::Unauthorized(format!(
            "could not read the login in {}: {problem}; replace it: {}",
            path.display(),
            settings.login_command
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login(
        access: Option<&str>,
        refresh: Option<&str>,
        expires_at_ms: Option<i64>,
    ) -> SavedLogin {
        SavedLogin {
            url: "https://a.example/mcp".into(),
            resource: "https://a.example".into(),
            issuer: "https://i.example".into(),
            token_endpoint: "https://i.example/token".into(),
            client: OAuthClient { id: "c".into(), secret: Some("hidden-secret".into()) },
            proof: ClientProof::Basic,
            scopes: vec!["a".into()],
            access_token: access.map(str::to_owned),
            refresh_token: refresh.map(str::to_owned),
            expires_at_ms,
        }
    }

    #[test]
    fn a_login_survives_its_file_and_is_of_one_server() {
        let login = login(Some("access"), Some("refresh"), Some(5));
        let text = login.to_text();
        assert_eq!(SavedLogin::parse(&text, &login.url).as_ref(), Ok(&login));
        assert!(SavedLogin::parse(&text, "https://a.example/other").is_err());
        assert!(SavedLogin::parse("{}", &login.url).is_err());
        let shown = format!("{login:?} {:?}", login.client);
        assert!(login.secrets().all(|secret| !shown.contains(secret)), "{shown}");
    }

    #[test]
    fn a_token_is_used_until_it_expires_or_is_refused() {
        let whole = login(Some("t"), Some("r"), Some(100_000));
        assert_eq!(whole.next_step(None, 0), TokenStep::Use("t"));
        assert_eq!(whole.next_step(Some("older"), 0), TokenStep::Use("t"));
        assert_eq!(whole.next_step(Some("t"), 0), TokenStep::Refresh("r"));
        assert_eq!(whole.next_step(None, 90_000), TokenStep::Refresh("r"));
        assert_eq!(login(Some("t"), None, None).next_step(Some("t"), 0), TokenStep::Obtain);
        assert_eq!(login(None, None, None).next_step(None, 0), TokenStep::Obtain);
    }

    proptest! {
        /// Two processes that know different tokens of one login never both refresh: the second one finds the token of the
        /// first.
        #[test]
        fn a_refused_token_is_replaced_once(expires_in in proptest::option::of(60_u64..10_000_000), now in 0_i64..1 << 50) {
            let mut login = login(Some("old"), Some("r1"), None);
            prop_assert_eq!(login.next_step(Some("old"), now), TokenStep::Refresh("r1"));
            let tokens = GrantedTokens { access_token: "new".into(), refresh_token: Some("r2".into()), expires_in };
            login.set_tokens(tokens, now);
            prop_assert_eq!(login.next_step(Some("old"), now), TokenStep::Use("new"));
            prop_assert_eq!(login.next_step(Some("new"), now), TokenStep::Refresh("r2"));
        }
    }
}
