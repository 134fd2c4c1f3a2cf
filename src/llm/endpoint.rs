//! Which address is asked, with which key, through which proxy.

use super::LlmConfig;
use std::fmt;
use ureq::http::Uri;

/// The variables that name an address, the first one first.
pub const ADDRESS_VARIABLES: [&str; 2] = ["DELTA_BASE_URL", "OPENAI_BASE_URL"];

/// The variables that name proxies, and hosts that need none; each also in small letters.
pub const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"];

/// The address when nothing names another.
const DEFAULT_ADDRESS: &str = "https://api.openai.com/v1";

/// Where an OpenAI-compatible endpoint is, and how long it may take.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The address up to, not including, `/chat/completions`.
    pub base_url: String,
    /// Sent as `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Whether the answer is asked for as a stream.
    pub stream: bool,
    /// For a whole answer, in milliseconds.
    pub timeout_ms: u64,
    /// Without a byte, in milliseconds.
    pub idle_timeout_ms: u64,
    /// How often a failed call is tried again.
    pub max_retries: u32,
    /// `HTTPS_PROXY` or `HTTP_PROXY`, whichever is for this address, unless `NO_PROXY` exempts it.
    pub proxy: Option<String>,
}

/// Why there is no endpoint: what is wrong, and the ways to go on.
#[derive(Debug, PartialEq, Eq)]
pub struct NoEndpoint {
    /// What is wrong.
    pub message: String,
    /// The ways to go on.
    pub help: String,
}

/// A value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The variable.
    pub name: String,
    /// Its value, not empty.
    pub value: String,
    /// Who says so.
    pub origin: Origin,
}

/// Where the value of a variable comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The environment of the process.
    Process,
    /// A file of the author's or the operator's.
    File(String),
    /// A file in the workspace, which the agent's tools can write.
    Workspace(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "the environment",
            Self::File(path) | Self::Workspace(path) => path,
        })
    }
}

/// A look-up of an environment variable: its values that are not empty, the strongest first.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Vec<Setting>;

impl Endpoint {
    /// The endpoint that the agent and the environment name.
    pub fn resolve(config: &LlmConfig, env: Lookup<'_>) -> Result<Self, NoEndpoint> {
        let first = |name: &str| env(name).into_iter().next();
        let [ours, theirs] = ADDRESS_VARIABLES;
        let named = match &config.base_url {
            Some(_) => None,
            None => first(ours).or_else(|| first(theirs)),
        };
        let base_url = config.base_url.as_deref().or(named.as_ref().map(|it| it.value.as_str()));
        let base_url = base_url.unwrap_or(DEFAULT_ADDRESS).to_owned();
        let uri: Option<Uri> = base_url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).filter(|host| !host.is_empty());
        let scheme = uri
            .as_ref()
            .and_then(Uri::scheme_str)
            .filter(|scheme| matches!(*scheme, "http" | "https"));
        let (Some(host), Some(scheme)) = (host, scheme) else {
            return Err(NoEndpoint {
                message: format!("`{base_url}` is not an address of an LLM"),
                help: "write it with its scheme, such as `http://localhost:11434/v1`".to_owned(),
            });
        };
        // A key that the agent names stands for itself: another one might belong to somebody else's endpoint.
        let key = match &config.api_key_env {
            Some(name) => first(name),
            None => first("DELTA_API_KEY").or_else(|| first("OPENAI_API_KEY")),
        };
        match (&key, named) {
            (None, _) if !is_loopback(host) => return Err(no_key(config, &base_url)),
            (Some(key), Some(address)) if !may_meet(key, &address, host) => {
                return Err(kept_apart(key, &address));
            }
            _ => {}
        }
        Ok(Self {
            proxy: proxy_for(scheme, host, env),
            base_url,
            key: key.map(|key| key.value),
            stream: config.stream,
            timeout_ms: config.timeout_ms,
            idle_timeout_ms: config.idle_timeout_ms,
            max_retries: config.max_retries,
        })
    }
}

/// Whether a key may be sent to an address: one from a file that the agent can write is given the keys of that file only,
/// unless it is this machine by its very name.
fn may_meet(key: &Setting, address: &Setting, host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let ip = bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    // A name below `localhost` is this machine by a convention that not every resolver keeps.
    let here = ip || bare.eq_ignore_ascii_case("localhost");
    here || !matches!(address.origin, Origin::Workspace(_)) || key.origin == address.origin
}

fn kept_apart(key: &Setting, address: &Setting) -> NoEndpoint {
    NoEndpoint {
        message: format!(
            "{} is from {}, and is not sent to {}, which {} names: the agent can write that file",
            key.name, key.origin, address.value, address.origin
        ),
        help: format!(
            "if the address is right, move it to where the agent cannot write: `base_url` of `llm` in agent.yaml, or .env in the agent directory\n\
             or give the key for it in the same file: {}=... in {}",
            key.name, address.origin
        ),
    }
}

fn no_key(config: &LlmConfig, base_url: &str) -> NoEndpoint {
    let variable = config.api_key_env.as_deref().unwrap_or("DELTA_API_KEY");
    let others = if config.api_key_env.is_none() { " (or OPENAI_API_KEY)" } else { "" };
    NoEndpoint {
        message: format!("no API key for {base_url}"),
        help: format!(
            "give it a key:               export {variable}=...{others}\n\
             or use a local server:       export DELTA_BASE_URL=http://localhost:11434/v1   (Ollama)\n\
             \x20                            export DELTA_BASE_URL=http://localhost:8080/v1    (llama.cpp)\n\
             \x20                            export DELTA_BASE_URL=http://localhost:8000/v1    (vLLM)\n\
             or run it without any LLM:   llm: {{provider: script, model: script.yaml}} in agent.yaml\n\
             or name another LLM:         --model script:FILE or --model command:NAME   (`{}` counts as a model of openai)",
            config.model
        ),
    }
}

/// Whether `host` is this machine; such an address needs no key.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    ip || host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
}

/// The proxy for an address, unless `NO_PROXY` exempts its host.
pub fn proxy_for(scheme: &str, host: &str, env: Lookup<'_>) -> Option<String> {
    // A proxy sees what goes through it, so one that the agent may have named is none.
    let safe = |name: &str| {
        let believed = |it: &Setting| !matches!(it.origin, Origin::Workspace(_));
        env(name).into_iter().find(believed).map(|it| it.value)
    };
    let either = |upper: &str| safe(&upper.to_lowercase()).or_else(|| safe(upper));
    let exempt = either("NO_PROXY")
        .is_some_and(|list| list.split(',').any(|entry| is_exempt(host, entry.trim())));
    if exempt {
        return None;
    }
    let own = if scheme == "https" { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    either(own).or_else(|| either("ALL_PROXY"))
}

/// Whether an entry of NO_PROXY names `host`: `*`, the host itself, or a domain that it is in.
fn is_exempt(host: &str, entry: &str) -> bool {
    let entry = entry.trim_start_matches("*.").trim_start_matches('.').to_ascii_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    entry == "*" || (!entry.is_empty() && (host == entry || host.ends_with(&format!(".{entry}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::ProviderKind;

    fn config(base_url: Option<&str>, api_key_env: Option<&str>) -> LlmConfig {
        LlmConfig {
            model: "m".to_owned(),
            provider: ProviderKind::Openai,
            base_url: base_url.map(str::to_owned),
            api_key_env: api_key_env.map(str::to_owned),
            stream: true,
            timeout_ms: 1,
            idle_timeout_ms: 1,
            max_retries: 0,
            pricing: None,
            echo_reasoning: false,
            body: serde_json::Map::new(),
        }
    }

    fn resolve(config: &LlmConfig, env: &[(&str, &str)]) -> Result<Endpoint, NoEndpoint> {
        let env: Vec<_> =
            env.iter().map(|(name, value)| setting(name, value, Origin::Process)).collect();
        resolve_in(config, &env)
    }

    fn setting(name: &str, value: &str, origin: Origin) -> Setting {
        Setting { name: name.to_owned(), value: value.to_owned(), origin }
    }

    fn resolve_in(config: &LlmConfig, all: &[Setting]) -> Result<Endpoint, NoEndpoint> {
        let lookup = |name: &str| all.iter().filter(|it| it.name == name).cloned().collect();
        Endpoint::resolve(config, &lookup)
    }

    #[test]
    fn c_1_7_an_address_of_the_workspace_meets_no_key_of_another_layer() {
        let workspace = || Origin::Workspace("w/.env".to_owned());
        let project = || Origin::File("p/.env".to_owned());
        let meet = |address: &str, from: Origin, key: Origin| {
            let all =
                [setting("DELTA_BASE_URL", address, from), setting("OPENAI_API_KEY", "k", key)];
            resolve_in(&config(None, None), &all).map(|found| found.key.unwrap())
        };
        let far = "https://a.example/v1";
        for key in [Origin::Process, project(), Origin::Workspace("w/sub/.env".to_owned())] {
            let error = meet(far, workspace(), key.clone()).unwrap_err();
            let said = format!(
                "OPENAI_API_KEY is from {key}, and is not sent to {far}, which w/.env names: the agent can write that file"
            );
            assert_eq!(error.message, said);
            assert!(meet(far, project(), key).is_ok());
        }
        assert!(meet(far, workspace(), workspace()).is_ok());
        for near in ["http://localhost:1/v1", "http://127.1.2.3/v1", "http://[::1]:80/v1"] {
            assert!(meet(near, workspace(), Origin::Process).is_ok(), "{near}");
        }
        let tricks = [
            "http://localhost.a.example/v1",
            "http://x.localhost/v1",
            "http://127.0.0.1@a.example/v1",
            "http://127.0.0.1.a.example/v1",
            "http://0.0.0.0/v1",
            "http://localhost.:1/v1",
        ];
        for trick in tricks {
            assert!(meet(trick, workspace(), Origin::Process).is_err(), "{trick}");
        }
    }

    #[test]
    fn c_1_7_a_proxy_of_the_workspace_is_none() {
        let workspace = || Origin::Workspace("w/.env".to_owned());
        let all = [
            setting("DELTA_API_KEY", "k", Origin::Process),
            setting("https_proxy", "http://bad", workspace()),
            setting("NO_PROXY", "*", workspace()),
            setting("HTTPS_PROXY", "http://good", Origin::File("a/.env".to_owned())),
        ];
        let proxy = |all: &[Setting]| resolve_in(&config(None, None), all).unwrap().proxy;
        assert_eq!(proxy(&all).as_deref(), Some("http://good"));
        assert_eq!(proxy(&all[..3]), None);
    }

    #[test]
    fn c_1_8_the_first_found_wins() {
        let env = [
            ("DELTA_API_KEY", "d"),
            ("OPENAI_API_KEY", "o"),
            ("OPENAI_BASE_URL", "http://o/v1"),
            ("MINE", "m"),
        ];
        let endpoint = resolve(&config(None, None), &env).unwrap();
        assert_eq!(
            (endpoint.base_url.as_str(), endpoint.key.as_deref()),
            ("http://o/v1", Some("d"))
        );
        let endpoint = resolve(&config(Some("http://a/v1"), Some("MINE")), &env).unwrap();
        assert_eq!(
            (endpoint.base_url.as_str(), endpoint.key.as_deref()),
            ("http://a/v1", Some("m"))
        );
        let endpoint = resolve(&config(None, None), &env[1..2]).unwrap();
        assert_eq!(
            (endpoint.base_url.as_str(), endpoint.key.as_deref()),
            (DEFAULT_ADDRESS, Some("o"))
        );
    }

    #[test]
    fn c_1_8_only_a_loopback_address_needs_no_key() {
        for local in ["http://localhost:1/v1", "http://127.0.0.9:1/v1", "http://[::1]:1/v1"] {
            assert_eq!(resolve(&config(Some(local), None), &[]).unwrap().key, None, "{local}");
        }
        for public in
            ["https://api.example.com/v1", "http://localhost.example.com/v1", "http://10.0.0.1/v1"]
        {
            let error = resolve(&config(Some(public), None), &[]).unwrap_err();
            assert!(error.help.contains("Ollama") && error.help.contains("script"), "{public}");
        }
        assert!(
            resolve(&config(Some("https://a.example/v1"), Some("GONE")), &[("DELTA_API_KEY", "d")])
                .is_err()
        );
    }

    #[test]
    fn c_7_6_proxies_are_for_their_scheme_and_not_for_exempt_hosts() {
        let env = |no_proxy| {
            [
                ("HTTPS_PROXY", "http://s"),
                ("http_proxy", "http://p"),
                ("NO_PROXY", no_proxy),
                ("DELTA_API_KEY", "d"),
            ]
        };
        let proxy =
            |url, no_proxy| resolve(&config(Some(url), None), &env(no_proxy)).unwrap().proxy;
        assert_eq!(proxy("https://a.example/v1", "").as_deref(), Some("http://s"));
        assert_eq!(proxy("http://a.example/v1", "b.example, other").as_deref(), Some("http://p"));
        for exempt in ["*", "a.example", ".example", "x,example", "*.example"] {
            assert_eq!(proxy("https://a.example/v1", exempt), None, "{exempt}");
        }
    }
}
