//! The endpoint of the requests: its address, its key and its proxy, from agent.yaml and the environment.

use super::model_choice::misplaced_model_help;
use super::wire::CachePolicy;
use super::{LlmConfig, LlmError};
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_base::url_secrets::mask_url;
use delta_http::{host_of, is_loopback_host, is_this_machine};
use delta_words::{AuthScheme, WireForm};
use http::{HeaderValue, Uri};
use std::fmt;

/// The variables for the addresses of all forms.
pub const ADDRESS_VARIABLES: [&str; 4] =
    ["DELTA_BASE_URL", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"];

/// One, for a server that is just starting.
const DEFAULT_REFUSED_RETRIES: u32 = 1;

/// An endpoint, and how to call it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The form that it speaks.
    pub form: WireForm,
    /// The version of the form.
    pub api_version: Option<String>,
    /// The address up to, not including, the path of the form.
    pub base_url: String,
    /// The key.
    pub api_key: Option<ApiKey>,
    /// The header that contains the key.
    pub auth: AuthScheme,
    /// Other headers of every request.
    pub headers: Vec<(String, String)>,
    /// Whether requests mark prefixes for the endpoint's cache.
    pub cache: CachePolicy,
    /// The number of letters and digits that call ids must have.
    pub call_ids: Option<u8>,
    /// Whether the reasoning of its own answers is kept out of requests.
    pub omits_reasoning: bool,
    /// Whether the system messages go out as one; `None` if its refusals decide.
    pub merges_system: Option<bool>,
    /// Whether to request streamed responses.
    pub stream: bool,
    /// The timeout of a whole response, in milliseconds.
    pub timeout_ms: u64,
    /// The longest time without a byte, in milliseconds.
    pub idle_timeout_ms: u64,
    /// The number of attempts after the first.
    pub max_retries: u32,
    /// The same for a server on this machine that refuses the first connection: it does not run.
    pub max_refused_retries: u32,
    /// The URL of the proxy for `base_url`, if there is one.
    pub proxy: Option<String>,
    /// A note for the operator: a key that is not sent to this address.
    pub note: Option<String>,
}

impl Endpoint {
    /// The proxy without its user and password, for messages.
    pub fn proxy_name(&self) -> Option<&str> {
        let url = self.proxy.as_deref()?;
        Some(url.rsplit_once('@').map_or(url, |(_, address)| address))
    }
}

/// Where a key comes from.
pub trait KeySource {
    /// Reads the key.
    ///
    /// # Errors
    /// There is no key now, or the wait was cancelled.
    fn read_key(&self, cancel: &CancelToken) -> Result<String, LlmError>;

    /// What it is, for messages.
    fn description(&self) -> String;
}

/// The key of an endpoint. It has no `Display`, and its `Debug` redacts the value: only the header contains it.
#[derive(Clone)]
pub struct ApiKey {
    value: String,
    secrets: Secrets,
}

impl ApiKey {
    /// A key with this value.
    pub fn new(value: String) -> Self {
        let secrets = Secrets::new([value.clone()]);
        Self { value, secrets }
    }

    /// The value of the header that contains the key, which no log prints.
    ///
    /// # Errors
    /// A character of the key is not in ASCII, or a control character: no key of an endpoint has one.
    pub fn header_value(&self, auth: AuthScheme) -> Result<HeaderValue, String> {
        let text = match auth {
            AuthScheme::Bearer => format!("Bearer {}", self.value),
            AuthScheme::XApiKey | AuthScheme::XGoogApiKey | AuthScheme::ApiKey => {
                self.value.clone()
            }
        };
        let value = HeaderValue::from_str(&text).ok().filter(|value| value.to_str().is_ok());
        let mut value = value.ok_or_else(|| {
            "the API key has a character that an HTTP header cannot contain".to_owned()
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Redacts the key in messages of the endpoint.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }
}

impl PartialEq for ApiKey {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([redacted])")
    }
}

/// Why the endpoint cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub struct EndpointError {
    /// What is wrong.
    pub message: String,
    /// What the user can do about it.
    pub help: String,
    /// Whether only a key is missing.
    pub needs_key: bool,
}

/// The value of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvSetting {
    /// The name of the variable.
    pub name: String,
    /// The value, which is not empty.
    pub value: String,
    /// Where the value is set.
    pub origin: EnvOrigin,
}

/// Where the value of a variable is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvOrigin {
    /// The environment of the process.
    Process,
    /// What the operator named as the source of the key: a file, a descriptor or a command.
    KeySource(String),
    /// The `.env` file of the agent directory.
    Agent(String),
    /// The program of `llm.api_key_command` in agent.yaml.
    AgentCommand,
    /// Another file, which the operator trusts.
    File(String),
}

impl EnvOrigin {
    /// Whether the operator set the value for this process, and no file did.
    fn is_operator(&self) -> bool {
        matches!(self, Self::Process | Self::KeySource(_))
    }
}

impl fmt::Display for EnvOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "the environment",
            Self::AgentCommand => "agent.yaml",
            Self::KeySource(text) | Self::Agent(text) | Self::File(text) => text,
        })
    }
}

/// Looks up an environment variable: its values that are not empty, in order of precedence.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Vec<EnvSetting>;

/// Whether the operator trusts a host with keys.
pub type HostTrust<'a> = &'a dyn Fn(&str) -> bool;

/// The address of an endpoint, and who chose it.
struct EndpointAddress {
    url: String,
    scheme: String,
    host: String,
    /// `None` for the address in agent.yaml and for the default one.
    setting: Option<EnvSetting>,
    form: WireForm,
}

impl EndpointAddress {
    fn resolve(
        config: &LlmConfig,
        form: WireForm,
        env: EnvLookup<'_>,
    ) -> Result<Self, EndpointError> {
        let variables = form.address_variables();
        let setting = match &config.base_url {
            Some(_) => None,
            None => variables.iter().find_map(|name| env(name).into_iter().next()),
        };
        let from_env = setting.as_ref().map(|setting| setting.value.as_str());
        let url =
            config.base_url.as_deref().or(from_env).unwrap_or(form.default_address()).to_owned();
        let uri: Option<Uri> = url.parse().ok();
        let Some((scheme, host)) = uri.as_ref().and_then(http_scheme_and_host) else {
            return Err(EndpointError {
                message: format!("expected the URL of an LLM endpoint, found `{}`", mask_url(&url)),
                help: "write it with its scheme, such as `http://localhost:11434/v1`".to_owned(),
                needs_key: false,
            });
        };
        Ok(Self { scheme: scheme.to_owned(), host: host.to_owned(), url, setting, form })
    }

    /// Whether the operator chose the address, so that every key may be sent to it.
    fn is_chosen_by_operator(&self, trusts_host: HostTrust<'_>) -> bool {
        let is_from_agent = match &self.setting {
            None => true,
            Some(setting) if setting.origin.is_operator() => return true,
            Some(setting) => matches!(setting.origin, EnvOrigin::Agent(_)),
        };
        // Not `is_this_machine`: a resolver may look up a name below `localhost` elsewhere.
        is_default_endpoint(self.form, &self.scheme, &self.host)
            || is_from_agent && is_loopback_host(&self.host)
            || trusts_host(&self.host)
    }

    /// Whether `key` is from the file that also names this address. A key that the agent's own command printed is from the
    /// agent directory; without a setting, agent.yaml names the address, or leaves it to the provider.
    fn is_of_same_file(&self, key: &EnvSetting) -> bool {
        match (&self.setting, &key.origin) {
            (None, EnvOrigin::AgentCommand) => true,
            (None, _) => false,
            (Some(address), EnvOrigin::AgentCommand) => {
                matches!(address.origin, EnvOrigin::Agent(_))
            }
            (Some(address), origin) => address.origin == *origin,
        }
    }

    /// Where the address is written, for messages.
    fn describe_source(&self) -> String {
        self.setting
            .as_ref()
            .map_or_else(|| "agent.yaml".to_owned(), |setting| setting.origin.to_string())
    }
}

impl Endpoint {
    /// The endpoint that agent.yaml and the environment select.
    ///
    /// An address that the operator did not choose gets a key of the file that names it, or none.
    pub fn resolve(
        config: &LlmConfig,
        env: EnvLookup<'_>,
        trusts_host: HostTrust<'_>,
    ) -> Result<Self, EndpointError> {
        // `api_key_env` has no fallback: another variable may contain the key of another endpoint.
        let keys = config.key_variables().into_iter().flat_map(env).collect();
        Self::resolve_with_keys(config, keys, env, trusts_host)
    }

    /// The address that agent.yaml and the environment select, without a key for it.
    ///
    /// # Errors
    /// It is not the URL of an endpoint.
    pub fn resolve_address(
        config: &LlmConfig,
        env: EnvLookup<'_>,
    ) -> Result<String, EndpointError> {
        let form = config.wire_form().unwrap_or(WireForm::OpenAi);
        Ok(EndpointAddress::resolve(config, form, env)?.url)
    }

    /// As [`Endpoint::resolve`], with the key that `llm.api_key_command` printed and no other.
    pub fn resolve_with_command_key(
        config: &LlmConfig,
        key: String,
        env: EnvLookup<'_>,
        trusts_host: HostTrust<'_>,
    ) -> Result<Self, EndpointError> {
        let name = "the key of `api_key_command`".to_owned();
        let key = EnvSetting { name, value: key, origin: EnvOrigin::AgentCommand };
        Self::resolve_with_keys(config, vec![key], env, trusts_host)
    }

    fn resolve_with_keys(
        config: &LlmConfig,
        keys: Vec<EnvSetting>,
        env: EnvLookup<'_>,
        trusts_host: HostTrust<'_>,
    ) -> Result<Self, EndpointError> {
        let form = config.wire_form().unwrap_or(WireForm::OpenAi);
        let address = EndpointAddress::resolve(config, form, env)?;
        let is_chosen = address.is_chosen_by_operator(trusts_host);
        let key = keys.iter().find(|key| is_chosen || address.is_of_same_file(key));
        let mut note = None;
        if key.is_none() {
            match keys.first() {
                None if !is_this_machine(&address.host) => {
                    return Err(missing_key_error(config, form, &address.url));
                }
                None => {}
                Some(withheld) if is_loopback_host(&address.host) => {
                    note = Some(withheld_key_note(withheld, &address));
                }
                Some(withheld) => return Err(unchosen_address_error(withheld, &address)),
            }
        } else if address.url == form.default_address()
            && let Some(help) = misplaced_model_help(&config.model, form)
        {
            let message = format!("{} has no model `{}`", address.host, config.model);
            return Err(EndpointError { message, help, needs_key: false });
        }
        let default_auth = form.default_auth(key.map(|key| key.name.as_str()));
        let auth = config.auth.unwrap_or(default_auth);
        let api_key = key.map(|key| ApiKey::new(key.value.clone()));
        if let Some((EnvSetting { name, .. }, Err(problem))) =
            key.zip(api_key.as_ref().map(|key| key.header_value(auth)))
        {
            let message = format!("{name}: {problem}");
            let help = "set it to the key alone, without line breaks".to_owned();
            return Err(EndpointError { message, help, needs_key: false });
        }
        Ok(Self {
            proxy: find_proxy(&address.url, env),
            auth,
            api_key,
            api_version: config
                .api_version
                .clone()
                .or_else(|| form.default_api_version().map(str::to_owned)),
            form,
            headers: config.headers.clone(),
            cache: config.cache,
            call_ids: config.call_ids,
            omits_reasoning: config.omits_reasoning,
            merges_system: config.merges_system,
            base_url: address.url,
            note,
            stream: config.stream,
            timeout_ms: config.timeout_ms,
            idle_timeout_ms: config.idle_timeout_ms,
            max_retries: config.max_retries,
            max_refused_retries: if config.sets_max_retries {
                config.max_retries
            } else {
                DEFAULT_REFUSED_RETRIES
            },
        })
    }
}

fn http_scheme_and_host(uri: &Uri) -> Option<(&str, &str)> {
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    Some((scheme, host))
}

/// The host of an address in agent.yaml, if keys of the operator go there only when the operator allows that.
pub fn host_needing_trust(form: WireForm, url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let (scheme, host) = http_scheme_and_host(&uri)?;
    let is_open = is_default_endpoint(form, scheme, host) || is_loopback_host(host);
    (!is_open).then(|| host.to_owned())
}

/// Whether an address is the vendor's own, of the form whose key is sent. Without encryption anything on the way could be.
fn is_default_endpoint(form: WireForm, scheme: &str, host: &str) -> bool {
    let default = form.default_address();
    scheme == "https" && host_of(default).is_some_and(|vendor| host.eq_ignore_ascii_case(vendor))
}

fn unchosen_address_error(key: &EnvSetting, address: &EndpointAddress) -> EndpointError {
    let source_name = address.describe_source();
    let same_file = match &address.setting {
        Some(_) if key.origin != EnvOrigin::AgentCommand => {
            format!("\nor set a key of its own in the same file: {}=... in {source_name}", key.name)
        }
        Some(_) | None => String::new(),
    };
    EndpointError {
        message: format!(
            "{} from {} is not sent to {}: {source_name} names this address, and you have not allowed it",
            key.name, key.origin, address.host
        ),
        help: format!(
            "if your key is for this host:  {}{same_file}",
            trust_endpoint_command(&address.host)
        ),
        needs_key: false,
    }
}

fn withheld_key_note(key: &EnvSetting, address: &EndpointAddress) -> String {
    format!(
        "Note: {} from {} is not sent to {}, which {} names; `{}` allows it",
        key.name,
        key.origin,
        address.host,
        address.describe_source(),
        trust_endpoint_command(&address.host)
    )
}

/// The command by which the operator allows keys to be sent to `host`.
fn trust_endpoint_command(host: &str) -> String {
    format!("delta trust --endpoint {}", shell_quote(host))
}

fn missing_key_error(config: &LlmConfig, form: WireForm, base_url: &str) -> EndpointError {
    let names = config.key_variables();
    let variable = names.first().copied().unwrap_or_default();
    let others = names.get(1..).unwrap_or_default().join(" or ");
    let alternative = if others.is_empty() { others } else { format!("   # or {others}") };
    let local_servers = "or use a local server:\n\
         \x20 export DELTA_BASE_URL=http://localhost:11434/v1   # Ollama\n\
         \x20 export DELTA_BASE_URL=http://localhost:8080/v1    # llama.cpp\n\
         \x20 export DELTA_BASE_URL=http://localhost:8000/v1    # vLLM\n";
    let is_openai = form == WireForm::OpenAi;
    let local_servers = if is_openai { local_servers } else { "" };
    // A gateway has the models of many vendors.
    let is_own_address = base_url == form.default_address();
    let of_other_vendor =
        misplaced_model_help(&config.model, form).filter(|_| is_own_address).unwrap_or_default();
    let (or, other_provider) = if of_other_vendor.is_empty() {
        let other = if is_openai { "anthropic:NAME" } else { "openai:NAME" };
        let model = &config.model;
        let name = form.name();
        let heading = format!("\nor select another provider (`{model}` is a model of {name}):");
        ("", format!("{heading}\n\x20 --model {other}"))
    } else {
        ("or ", String::new())
    };
    EndpointError {
        message: format!("no API key for {}", mask_url(base_url)),
        help: format!(
            "{of_other_vendor}{or}set a key:\n\
             \x20 export {variable}=...{alternative}\n\
             {local_servers}\
             or run without an LLM:\n\
             \x20 --model script:FILE{other_provider}"
        ),
        needs_key: true,
    }
}

/// The proxy for a URL, as [`delta_http::choose_proxy`] chooses it; only the operator may name one.
pub fn find_proxy(url: &str, env: EnvLookup<'_>) -> Option<String> {
    delta_http::choose_proxy(url, &|name| {
        let mut settings = env(name).into_iter();
        Some(settings.find(|setting| setting.origin == EnvOrigin::Process)?.value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::ProviderKind;

    fn config(base_url: Option<&str>, api_key_env: Option<&str>) -> LlmConfig {
        LlmConfig {
            model: "m".to_owned(),
            provider: ProviderKind::Endpoint(WireForm::OpenAi),
            api_key_command: Vec::new(),
            api_key_ttl_ms: 1,
            auth: None,
            headers: Vec::new(),
            cache: CachePolicy::Off,
            call_ids: None,
            api_version: None,
            base_url: base_url.map(str::to_owned),
            api_key_env: api_key_env.map(str::to_owned),
            stream: true,
            timeout_ms: 1,
            idle_timeout_ms: 1,
            max_retries: 0,
            sets_max_retries: true,
            pricing: None,
            fallback: Vec::new(),
            echo_reasoning: false,
            omits_reasoning: false,
            merges_system: None,
            strict_arguments: false,
            strip_think: false,
            answers: Default::default(),
            tool_choice: Default::default(),
            body: serde_json::Map::new(),
            has_default_max_tokens: false,
        }
    }

    fn resolve(config: &LlmConfig, env: &[(&str, &str)]) -> Result<Endpoint, EndpointError> {
        let env: Vec<_> =
            env.iter().map(|(name, value)| setting(name, value, EnvOrigin::Process)).collect();
        let lookup = |name: &str| env.iter().filter(|it| it.name == name).cloned().collect();
        Endpoint::resolve(config, &lookup, &|_| true)
    }

    fn setting(name: &str, value: &str, origin: EnvOrigin) -> EnvSetting {
        EnvSetting { name: name.to_owned(), value: value.to_owned(), origin }
    }

    fn resolve_in(config: &LlmConfig, all: &[EnvSetting]) -> Result<Endpoint, EndpointError> {
        let lookup = |name: &str| {
            all.iter().filter(|setting: &&EnvSetting| setting.name == name).cloned().collect()
        };
        Endpoint::resolve(config, &lookup, &|_| false)
    }

    #[test]
    fn c_20_3_an_address_that_the_operator_did_not_choose_gets_no_key_from_elsewhere() {
        let agent = || EnvOrigin::Agent("a/.env".to_owned());
        let trusted = || EnvOrigin::File("p/.env".to_owned());
        let operator = || EnvOrigin::KeySource("the file k".to_owned());
        let resolve_key = |address: &str, from: EnvOrigin, key: EnvOrigin| {
            let all =
                [setting("DELTA_BASE_URL", address, from), setting("OPENAI_API_KEY", "k", key)];
            resolve_in(&config(None, None), &all)
                .map(|endpoint| endpoint.api_key.map(|key| key.value))
        };
        let far = "https://a.example/v1";
        for address in [agent(), trusted()] {
            for key in [EnvOrigin::Process, operator(), EnvOrigin::File("q/.env".to_owned())] {
                let error = resolve_key(far, address.clone(), key.clone()).unwrap_err();
                let message = format!(
                    "OPENAI_API_KEY from {key} is not sent to a.example: {address} names this address, and you have not allowed it"
                );
                assert_eq!(error.message, message);
                assert!(
                    error.help.contains("delta trust --endpoint a.example\n"),
                    "{}",
                    error.help
                );
                assert_eq!(
                    resolve_key(far, EnvOrigin::Process, key).unwrap().as_deref(),
                    Some("k")
                );
            }
            assert_eq!(resolve_key(far, address.clone(), address).unwrap().as_deref(), Some("k"));
        }
        for near in ["http://localhost:1/v1", "http://127.1.2.3/v1", "http://[::1]:80/v1"] {
            let key = resolve_key(near, agent(), EnvOrigin::Process).unwrap();
            assert_eq!(key.as_deref(), Some("k"), "{near}");
            assert_eq!(resolve_key(near, trusted(), EnvOrigin::Process).unwrap(), None, "{near}");
        }
        let tricks = [
            "http://localhost.a.example/v1",
            "http://x.localhost/v1",
            "http://127.0.0.1@a.example/v1",
            "http://127.0.0.1.a.example/v1",
            "http://0.0.0.0/v1",
            "http://localhost.:1/v1",
            "http://api.openai.com/v1",
            "https://api.openai.com.a.example/v1",
            "https://api.openai.com@a.example/v1",
        ];
        for trick in tricks {
            assert!(resolve_key(trick, agent(), EnvOrigin::Process).is_err(), "{trick}");
        }
        let own = resolve_key("https://API.openai.com:443/v1", agent(), EnvOrigin::Process);
        assert_eq!(own.unwrap().as_deref(), Some("k"));
    }

    #[test]
    fn c_20_3_the_key_of_the_file_that_names_the_address_is_sent_where_another_one_comes_first() {
        let trusted = || EnvOrigin::File("p/.env".to_owned());
        let all = [
            setting("DELTA_API_KEY", "operator", EnvOrigin::Process),
            setting("OPENAI_BASE_URL", "https://a.example/v1", trusted()),
            setting("OPENAI_API_KEY", "own", trusted()),
        ];
        let key = |endpoint: Endpoint| endpoint.api_key.unwrap().value;
        assert_eq!(key(resolve_in(&config(None, None), &all).unwrap()), "own");
        let lookup = |name: &str| all.iter().filter(|it| it.name == name).cloned().collect();
        let allowed = |host: &str| host == "a.example";
        let endpoint = Endpoint::resolve(&config(None, None), &lookup, &allowed).unwrap();
        assert_eq!(key(endpoint), "operator");
    }

    #[test]
    fn c_20_3_the_address_of_agent_yaml_gets_no_key_unless_the_host_is_allowed() {
        let far = config(Some("https://a.example/v1"), None);
        for origin in [EnvOrigin::Process, EnvOrigin::Agent("a/.env".to_owned())] {
            let all = [setting("DELTA_API_KEY", "k", origin)];
            let error = resolve_in(&far, &all).unwrap_err();
            assert!(error.message.contains("agent.yaml names this address"), "{}", error.message);
            assert_eq!(error.help.lines().count(), 1, "{}", error.help);
        }
    }

    #[test]
    fn c_20_3_only_the_operator_chooses_a_proxy() {
        let all = [
            setting("DELTA_API_KEY", "k", EnvOrigin::Process),
            setting("https_proxy", "http://bad", EnvOrigin::File("p/.env".to_owned())),
            setting("NO_PROXY", "*", EnvOrigin::Agent("a/.env".to_owned())),
            setting("HTTPS_PROXY", "http://good", EnvOrigin::Process),
        ];
        let proxy = |all: &[EnvSetting]| resolve_in(&config(None, None), all).unwrap().proxy;
        assert_eq!(proxy(&all).as_deref(), Some("http://good"));
        assert_eq!(proxy(&all[..3]), None);
    }

    #[test]
    fn c_1_8_the_first_variable_that_is_set_wins() {
        let env = [
            ("DELTA_API_KEY", "d"),
            ("OPENAI_API_KEY", "o"),
            ("OPENAI_BASE_URL", "http://o/v1"),
            ("MINE", "m"),
        ];
        let endpoint = resolve(&config(None, None), &env).unwrap();
        assert_eq!(
            (endpoint.base_url.as_str(), endpoint.api_key.as_ref().map(|key| key.value.as_str())),
            ("http://o/v1", Some("d"))
        );
        let endpoint = resolve(&config(Some("http://[::1]/v1"), Some("MINE")), &env).unwrap();
        assert_eq!(
            (endpoint.base_url.as_str(), endpoint.api_key.as_ref().map(|key| key.value.as_str())),
            ("http://[::1]/v1", Some("m"))
        );
        let endpoint = resolve(&config(None, None), &env[1..2]).unwrap();
        assert_eq!(
            (endpoint.base_url.as_str(), endpoint.api_key.as_ref().map(|key| key.value.as_str())),
            (WireForm::OpenAi.default_address(), Some("o"))
        );
        let both = [
            ("OPENAI_BASE_URL", "http://o/v1"),
            ("DELTA_BASE_URL", "http://d/v1"),
            ("OPENAI_API_KEY", "o"),
        ];
        assert_eq!(resolve(&config(None, None), &both).unwrap().base_url, "http://d/v1");
    }

    #[test]
    fn c_15_3_no_debug_output_holds_the_key() {
        let endpoint = resolve(&config(None, None), &[("DELTA_API_KEY", "sk-a-long-key")]).unwrap();
        let debug = format!("{endpoint:?}");
        assert!(debug.contains("ApiKey([redacted])"), "{debug}");
        // As a text, and as a list of bytes.
        assert!(!debug.contains("sk-a") && !debug.contains("115, 107, 45"), "{debug}");
        let secrets = format!("{:?}", endpoint.api_key.unwrap().secrets());
        assert!(!secrets.contains("sk-a") && !secrets.contains("115, 107, 45"), "{secrets}");
    }

    #[test]
    fn c_1_8_only_a_loopback_address_needs_no_key() {
        for local in ["http://localhost:1/v1", "http://127.0.0.9:1/v1", "http://[::1]:1/v1"] {
            assert!(resolve(&config(Some(local), None), &[]).unwrap().api_key.is_none(), "{local}");
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
        for exempt in ["*", "x,example", "a.example:443"] {
            assert_eq!(proxy("https://a.example/v1", exempt), None, "{exempt}");
        }
        assert_eq!(proxy("http://10.9.8.7:8000/v1", "10.0.0.0/8"), None);
        assert!(proxy("https://a.example:8443/v1", "a.example:443").is_some());
        let of_web_server = [("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://bad"), ("K", "k")];
        let local = config(Some("http://a.example/v1"), Some("K"));
        assert_eq!(resolve(&local, &of_web_server).unwrap().proxy, None);
        for loopback in [
            "http://localhost:11434/v1",
            "http://127.0.0.1/v1",
            "https://[::1]/v1",
            "http://x.localhost",
        ] {
            assert_eq!(proxy(loopback, ""), None, "{loopback}");
        }
    }
}
