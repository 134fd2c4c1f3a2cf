//! Which address is asked, with which key, through which proxy.

use super::LlmConfig;
use ureq::http::Uri;

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

/// A look-up of an environment variable; an empty value counts as none.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Endpoint {
    /// The endpoint that the agent and the environment name.
    pub fn resolve(config: &LlmConfig, env: Lookup<'_>) -> Result<Self, NoEndpoint> {
        let from_env = || env("DELTA_BASE_URL").or_else(|| env("OPENAI_BASE_URL"));
        let base_url =
            config.base_url.clone().or_else(from_env).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
        let uri: Option<Uri> = base_url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host);
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
            Some(name) => env(name),
            None => env("DELTA_API_KEY").or_else(|| env("OPENAI_API_KEY")),
        };
        if key.is_none() && !is_loopback(host) {
            return Err(no_key(config, &base_url));
        }
        Ok(Self {
            proxy: proxy_for(scheme, host, env),
            base_url,
            key,
            stream: config.stream,
            timeout_ms: config.timeout_ms,
            idle_timeout_ms: config.idle_timeout_ms,
            max_retries: config.max_retries,
        })
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
             or run it without any LLM:   llm: {{provider: script, model: script.yaml}} in agent.yaml"
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

fn proxy_for(scheme: &str, host: &str, env: Lookup<'_>) -> Option<String> {
    let either = |upper: &str| env(&upper.to_lowercase()).or_else(|| env(upper));
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
        let lookup = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Endpoint::resolve(config, &lookup)
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
