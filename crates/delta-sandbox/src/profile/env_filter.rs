//! `env:` of a sandbox: which variables of the operator a tool inherits.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Which environment variables a tool gets, besides the ones that the agent sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnvAccess {
    /// All except names that look like secrets, clouds, or addresses of agents and buses.
    Safe,
    /// All of them.
    All,
    /// These names.
    Only(Vec<String>),
}

impl EnvAccess {
    /// What both allow.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, access) | (access, Self::All) => access.clone(),
            (Self::Safe, Self::Safe) => Self::Safe,
            (Self::Safe, Self::Only(names)) | (Self::Only(names), Self::Safe) => {
                Self::Only(names.iter().filter(|name| !is_sensitive_name(name)).cloned().collect())
            }
            (Self::Only(one), Self::Only(other)) => {
                Self::Only(one.iter().filter(|name| other.contains(name)).cloned().collect())
            }
        }
    }
}

/// Words in the name of a variable that holds a secret.
const SECRET_WORDS: [&str; 24] = [
    "KEY",
    "KEYS",
    "APIKEY",
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWORDS",
    "PASSWD",
    "PASS",
    "PASSPHRASE",
    "CREDENTIAL",
    "CREDENTIALS",
    "CREDS",
    "AUTH",
    "AUTHORIZATION",
    "COOKIE",
    "COOKIES",
    "PAT",
    "PGPASS",
    "DSN",
    "JWT",
    "BEARER",
];
/// What a word ends with that holds a secret, as in PGPASSWORD and SSHPASS.
const SECRET_ENDS: [&str; 7] =
    ["APIKEY", "PASSPHRASE", "PASSWD", "PASSWORD", "SECRET", "SHPASS", "TOKEN"];
/// What names of webhooks end with, whose address is a secret.
const WEBHOOK_ENDS: [&str; 2] = ["WEBHOOK", "WEBHOOK_URL"];
/// How tokens begin: of GitHub, GitLab, Slack, Stripe, Google, and a JSON Web Token.
const TOKEN_STARTS: [&str; 14] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "sk_live_",
    "rk_live_",
    "AIza",
    "eyJ",
];
/// How tokens begin that names begin with, too: of OpenAI and Anthropic, PyPI, npm and Hugging Face. They have longer runs of
/// letters and digits than names have.
const WORD_STARTS: [&str; 4] = ["sk-", "pypi-", "npm_", "hf_"];
const MIN_TOKEN_RUN: usize = 16;
/// The least length of a token.
const MIN_TOKEN_LENGTH: usize = 20;
/// The beginnings of names of clouds.
const CLOUD_PREFIXES: [&str; 8] =
    ["AWS_", "AZURE_", "ARM_", "GOOGLE_", "GCP_", "GCLOUD_", "CLOUDSDK_", "OCI_"];
/// Addresses of agents and buses.
const ADDRESS_NAMES: [&str; 14] = [
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "KUBECONFIG",
    "TMUX",
    "STY",
    "XAUTHORITY",
    "GNOME_KEYRING_CONTROL",
    "VSCODE_IPC_HOOK_CLI",
    "DELTA_SEAL_KEY_FILE",
];

/// Which variables are inherited. Variables that the agent sets or passes by name are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvFilter {
    excludes_secrets: bool,
    /// `None` for all.
    names: Option<BTreeSet<String>>,
    /// The variables of sockets that can be reached.
    passed: BTreeSet<String>,
}

impl EnvFilter {
    /// The filter of a profile; `passed` are the variables of its sockets.
    pub fn new(access: &EnvAccess, passed: impl IntoIterator<Item = String>) -> Self {
        let names = match access {
            EnvAccess::Safe | EnvAccess::All => None,
            EnvAccess::Only(names) => Some(names.iter().cloned().collect()),
        };
        let excludes_secrets = *access == EnvAccess::Safe;
        Self { excludes_secrets, names, passed: passed.into_iter().collect() }
    }

    /// Whether a variable with any value may be inherited.
    pub fn allows(&self, name: &str) -> bool {
        self.passed.contains(name)
            || (self.names.as_ref().is_none_or(|names| names.contains(name))
                && !(self.excludes_secrets && is_sensitive_name(name)))
    }

    /// Whether a variable is inherited.
    pub fn allows_value(&self, name: &str, value: &str) -> bool {
        self.allows(name)
            && (self.passed.contains(name) || !(self.excludes_secrets && holds_secret(value)))
    }

    /// The filter that allows what both allow.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let names = match (&self.names, &other.names) {
            (Some(one), Some(other)) => Some(one & other),
            (one, other) => one.as_ref().or(other.as_ref()).cloned(),
        };
        let passed = &self.passed | &other.passed;
        Self {
            excludes_secrets: self.excludes_secrets || other.excludes_secrets,
            names,
            passed: passed
                .into_iter()
                .filter(|name| self.allows(name) && other.allows(name))
                .collect(),
        }
    }
}

/// Whether a name looks like the name of a secret, or names what leads out of a sandbox.
pub fn is_sensitive_name(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    upper.split(['_', '-', '.']).any(is_secret_word)
        // The working directory is PWD and OLDPWD alone.
        || upper.ends_with("_PWD")
        || CLOUD_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || ADDRESS_NAMES.contains(&upper.as_str())
        || WEBHOOK_ENDS.iter().any(|end| upper.ends_with(end))
}

fn is_secret_word(word: &str) -> bool {
    SECRET_WORDS.contains(&word) || SECRET_ENDS.iter().any(|end| word.ends_with(end))
}

/// Whether a value holds a secret, whatever its name is: an address or a connection string with a password, a private key, or a
/// token.
pub fn holds_secret(value: &str) -> bool {
    value.contains("PRIVATE KEY-----")
        || has_address_password(value)
        || names_password(value)
        || has_token(value)
}

/// Whether the text has a token that its beginning tells from a name, which rarely has a digit. A part of a path is not one.
fn has_token(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && !"_-./".contains(c)).any(|word| {
        let starts_with = |starts: &[&str]| starts.iter().any(|start| word.starts_with(start));
        let mut runs = word.split(|c: char| !c.is_ascii_alphanumeric());
        word.len() >= MIN_TOKEN_LENGTH
            && !word.contains('/')
            && word.bytes().any(|byte| byte.is_ascii_digit())
            && (starts_with(&TOKEN_STARTS)
                || starts_with(&WORD_STARTS) && runs.any(|run| run.len() >= MIN_TOKEN_RUN))
    })
}

/// Whether an address in the text has a password: `scheme://USER:PASSWORD@HOST`, or of HTTP `https://TOKEN@HOST`.
fn has_address_password(text: &str) -> bool {
    text.match_indices("://").any(|(at, mark)| {
        let rest = &text[at + mark.len()..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'".contains(c));
        let authority = &rest[..end.unwrap_or(rest.len())];
        let Some((user_info, _)) = authority.rsplit_once('@') else { return false };
        match user_info.split_once(':') {
            Some((_, password)) => !password.is_empty(),
            None => {
                let is_http = text[..at].ends_with("http") || text[..at].ends_with("https");
                // Names of users are shorter, or have no digit.
                let is_long = user_info.len() >= MIN_TOKEN_LENGTH
                    && user_info.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                    && user_info.bytes().any(|byte| byte.is_ascii_digit());
                let is_token =
                    is_long || TOKEN_STARTS.iter().any(|start| user_info.starts_with(start));
                is_http && is_token
            }
        }
    })
}

/// Whether the text is a connection string, as of ODBC and libpq, with a password, or a line of npm's configuration with one.
fn names_password(text: &str) -> bool {
    let entries = text.split([';', ' ']).filter_map(|entry| entry.split_once('='));
    let mut filled = entries.filter(|(_, value)| !value.trim().is_empty());
    filled.any(|(name, _)| {
        let name = name.trim().to_ascii_lowercase();
        let name = name.rsplit(':').next().unwrap_or_default();
        let of_npm = ["_authtoken", "_auth", "_password"];
        matches!(name, "password" | "pwd" | "accountkey" | "sharedaccesskey")
            || of_npm.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn c_22_4_names_of_secrets_are_not_inherited() {
        let secret = [
            "GITHUB_TOKEN",
            "api_key",
            "AWS_REGION",
            "SSH_AUTH_SOCK",
            "MY_PASSWORD",
            "TMUX",
            "PGPASSWORD",
            "MYSQL_PWD",
            "SSHPASS",
            "npm_config_//registry.npmjs.org/:_authToken",
            "LDAPPASSWD",
            "GHTOKEN",
            "OPENAIAPIKEY",
            "CI_JOB_JWT_V2",
            "X_BEARER",
            "CREDS",
            "SLACK_WEBHOOK_URL",
            "WEBHOOK",
        ];
        let plain = [
            "PATH",
            "HOME",
            "LANG",
            "KEYBOARD",
            "MONKEY",
            "AUTHOR",
            "CARGO_HOME",
            "TERM",
            "PWD",
            "OLDPWD",
            "COMPASS",
            "BYPASS",
            "WEBHOOK_PORT",
        ];
        for name in secret {
            assert!(is_sensitive_name(name), "{name}");
        }
        for name in plain {
            assert!(!is_sensitive_name(name), "{name}");
        }
    }

    #[test]
    fn c_22_4_values_with_a_password_are_not_inherited() {
        for value in [
            "postgres://u:secret@host/db",
            "see redis://:secret@127.0.0.1:6379/0",
            "http://user:p%40ss@proxy:3128",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
            "Server=db;Database=x;User Id=sa;Password=secret;",
            "host=db user=u password=secret",
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==",
            "https://ghp_abc123@github.com/x/y",
            "https://0123456789abcdef0123@ingest.example/1",
            "//registry.example/:_authToken=abc",
            "token ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "sk-ant-api03-abcdefghijklmnop",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        ] {
            assert!(holds_secret(value), "{value}");
        }
        for value in [
            "https://host:8080/a@b:c",
            "ssh://git@host/x",
            "http://u:@h",
            "a:b@c",
            "password=",
            "-----BEGIN CERTIFICATE-----",
            "--pwd-less x=y",
            "https://user@bitbucket.example/x",
            "ssh://0123456789abcdef0123@host/x",
            "sk-learn-is-a-name-of-a-package",
            "npm_config_cache/of/this/user",
            "hf_1",
            "/tmp/sk-image-classifier-v2/bin:/usr/bin",
            "/srv/ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "--import /x/npm_hooks_and_loaders_v2/reg.js",
            "hf_model_of_the_year_2024",
            "https://firstname.lastname@bitbucket.example/team/x.git",
            "https://contoso-engineering@dev.azure.example/x",
            "",
        ] {
            assert!(!holds_secret(value), "{value}");
        }
    }

    fn filters() -> impl Strategy<Value = EnvFilter> {
        let name = prop::sample::select(vec!["PATH", "A", "A_KEY", "SSH_AUTH_SOCK"]);
        let names = prop::collection::vec(name.prop_map(str::to_owned), 0..3);
        let access = prop_oneof![
            Just(EnvAccess::Safe),
            Just(EnvAccess::All),
            names.clone().prop_map(EnvAccess::Only)
        ];
        (access, names).prop_map(|(access, passed)| EnvFilter::new(&access, passed))
    }

    proptest! {
        #[test]
        fn c_22_4_two_filters_allow_what_both_allow(one in filters(), other in filters()) {
            let both = one.intersection(&other);
            prop_assert_eq!(&both, &other.intersection(&one));
            for name in ["PATH", "A", "A_KEY", "SSH_AUTH_SOCK", "B"] {
                prop_assert_eq!(both.allows(name), one.allows(name) && other.allows(name), "{}", name);
            }
        }
    }
}
