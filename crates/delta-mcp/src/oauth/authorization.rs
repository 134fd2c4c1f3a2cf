//! The part of a login that a browser does: the address that it opens, and what it brings back.

use super::{decode_form, encode_form, printable};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delta_base::random::random_bytes;
use sha2::{Digest, Sha256};

/// A secret that only this login knows (RFC 7636).
#[derive(Debug)]
pub struct PkcePair {
    /// The secret.
    pub verifier: String,
    /// What the issuer may know before.
    pub challenge: String,
}

impl PkcePair {
    /// A new secret.
    pub fn generate() -> Self {
        Self::from_verifier(random_text())
    }

    fn from_verifier(verifier: String) -> Self {
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        Self { verifier, challenge }
    }
}

/// 256 random bits as text.
pub fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<32>())
}

/// What a login asks for.
#[derive(Debug)]
pub struct AuthorizationRequest<'a> {
    /// The page of the issuer.
    pub login_page: &'a str,
    /// The client.
    pub client_id: &'a str,
    /// Where the browser goes afterwards.
    pub redirect_uri: &'a str,
    /// The resource, as its metadata spells it.
    pub resource: &'a str,
    /// The scopes; the issuer decides if there are none.
    pub scopes: &'a [String],
    /// Binds the answer to this login.
    pub state: &'a str,
    /// Binds the code to this login.
    pub challenge: &'a str,
}

impl AuthorizationRequest<'_> {
    /// The address for the browser.
    pub fn to_url(&self) -> String {
        let scope = self.scopes.join(" ");
        let mut members = vec![
            ("response_type", "code"),
            ("client_id", self.client_id),
            ("redirect_uri", self.redirect_uri),
            ("code_challenge", self.challenge),
            ("code_challenge_method", "S256"),
            ("state", self.state),
            ("resource", self.resource),
        ];
        if !scope.is_empty() {
            members.push(("scope", &scope));
        }
        let separator = if self.login_page.contains('?') { '&' } else { '?' };
        format!("{}{separator}{}", self.login_page, encode_form(&members))
    }
}

/// What the answer of a login must match.
#[derive(Debug)]
pub struct ExpectedAnswer<'a> {
    /// The `state` of the request.
    pub state: &'a str,
    /// The issuer that was asked.
    pub issuer: &'a str,
    /// Whether the issuer names itself in its answers.
    pub names_issuer: bool,
}

/// Why an answer has no code.
#[derive(Debug, PartialEq, Eq)]
pub enum LoginAnswerError {
    /// It does not answer this login, which may still get an answer.
    Foreign(String),
    /// The login has failed.
    Failed(String),
}

impl ExpectedAnswer<'_> {
    /// The code in the query of the address that the browser brings.
    ///
    /// # Errors
    /// It has none, or not of this login and this issuer.
    pub fn code(&self, query: &str) -> Result<String, LoginAnswerError> {
        let members = decode_form(query);
        let member = |name: &str| {
            members.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        if member("state") != Some(self.state) {
            let reason = "expected the `state` of this login".to_owned();
            return Err(LoginAnswerError::Foreign(reason));
        }
        // Before anything else of the answer counts: the code belongs to the issuer that made it (RFC 9207).
        match member("iss") {
            Some(issuer) if issuer != self.issuer => {
                return Err(LoginAnswerError::Failed(format!(
                    "the answer is from the issuer `{}`, not from `{}`; its code was not used",
                    printable(issuer),
                    printable(self.issuer)
                )));
            }
            None if self.names_issuer => {
                return Err(LoginAnswerError::Failed(format!(
                    "the answer does not name its issuer, as `{}` says that it does; its code was not used",
                    printable(self.issuer)
                )));
            }
            _ => {}
        }
        if let Some(error) = member("error") {
            let details = member("error_description").map(|text| format!(": {}", printable(text)));
            return Err(LoginAnswerError::Failed(format!(
                "the issuer refused the login: {}{}",
                printable(error),
                details.unwrap_or_default()
            )));
        }
        member("code").filter(|code| !code.is_empty()).map(str::to_owned).ok_or_else(|| {
            LoginAnswerError::Failed("the answer of the issuer has no `code`".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_the_hash_of_its_verifier() {
        // The example of RFC 7636, appendix B.
        let pair = PkcePair::from_verifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into());
        assert_eq!(pair.challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let (one, other) = (PkcePair::generate(), PkcePair::generate());
        assert!(one.verifier.len() >= 43 && one.verifier != other.verifier);
    }

    #[test]
    fn an_address_has_what_the_protocol_requires() {
        let scopes = ["a".to_owned(), "b:c".to_owned()];
        let mut request = AuthorizationRequest {
            login_page: "https://i.example/login?tenant=1",
            client_id: "id&x",
            redirect_uri: "http://127.0.0.1:1/callback",
            resource: "https://a.example",
            scopes: &scopes,
            state: "s",
            challenge: "c",
        };
        assert_eq!(
            request.to_url(),
            "https://i.example/login?tenant=1&response_type=code&client_id=id%26x&redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fcallback&code_challenge=c&code_challenge_method=S256&state=s&resource=https%3A%2F%2Fa.example&scope=a%20b%3Ac"
        );
        request.login_page = "https://i.example/login";
        request.scopes = &[];
        assert!(request.to_url().starts_with("https://i.example/login?response_type"));
        assert!(!request.to_url().contains("scope"));
    }

    #[test]
    fn only_the_answer_of_this_login_and_this_issuer_has_a_code() {
        let code = |names_issuer: bool, query: &str| {
            ExpectedAnswer { state: "s", issuer: "https://i.example", names_issuer }.code(query)
        };
        let right = "iss=https%3A%2F%2Fi.example";
        assert_eq!(code(true, &format!("code=x%2B&state=s&{right}")), Ok("x+".to_owned()));
        assert_eq!(code(false, "code=x&state=s"), Ok("x".to_owned()));
        for foreign in ["", "code=x", "code=x&state=t", "state=&code=x", "error=no&state=t"] {
            assert!(matches!(code(false, foreign), Err(LoginAnswerError::Foreign(_))), "{foreign}");
        }
        let failed = |names_issuer: bool, query: &str| match code(names_issuer, query) {
            Err(LoginAnswerError::Failed(reason)) => reason,
            other => panic!("{query}: {other:?}"),
        };
        for wrong in [
            "https%3A%2F%2Fi.example%2F",
            "https%3A%2F%2FI.example",
            "https%3A%2F%2Fevil.example",
            "",
        ] {
            let reason =
                failed(false, &format!("state=s&code=x&error_description=words&iss={wrong}"));
            assert!(
                reason.contains("not from `https://i.example`") && !reason.contains("words"),
                "{reason}"
            );
        }
        assert!(failed(true, "state=s&code=x").contains("does not name its issuer"));
        let reason = failed(
            true,
            &format!("state=s&error=access_denied&error_description=no%1b%5b&{right}"),
        );
        assert_eq!(reason, "the issuer refused the login: access_denied: no[");
        assert!(failed(false, "state=s").contains("no `code`"));
    }
}
