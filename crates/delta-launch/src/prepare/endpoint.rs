//! The endpoint of an agent's LLM, with its key: from a variable, from a command of the operator, or from the agent's own.

use delta_agent::agent::Agent;
use delta_agent::agent::env_layers::EnvLayers;
use delta_agent::trust_store::OperatorTrust;
use delta_base::api_key_names::API_KEY_VARIABLES;
use delta_base::engine_variables::EngineVars;
use delta_base::redact::Secrets;
use delta_base::url_secrets::url_secrets;
use delta_endpoint::endpoint_provider::{EndpointProvider, KeyRefresh, RequestedTier};
use delta_llm::llm::{Endpoint, LlmConfig, LlmRequest, ProviderKind};
use delta_operator::api_key::KeyCommand;
use delta_operator::cancel::install_cancel;
use delta_operator::failure::CommandFailure;
use delta_operator::prices::{self, RunPrices};
use delta_words::{Pricing, ServiceTier, TierChoice, WireForm};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// OpenAI's documents advise 15 minutes for `flex`, whose requests may wait before the first byte.
const TIER_TIMEOUT_MS: u64 = 15 * 60 * 1000;

/// What an agent's endpoint and its key depend on.
pub struct EndpointSetup<'a> {
    /// The agent whose LLM is asked.
    pub agent: &'a Agent,
    /// The LLM: the agent's, or one of its `fallback`.
    pub llm: &'a LlmConfig,
    /// The variables that hold keys.
    pub key_names: &'a [String],
    /// Which endpoints may get a key of the operator.
    pub trust: &'a OperatorTrust,
    /// The most LLM calls of this process, if the operator says it.
    pub max_iterations: Option<u32>,
    /// The service tier that the operator chooses.
    pub tier: TierChoice,
}

/// An endpoint that has been checked, before any request.
pub struct PreparedEndpoint {
    provider: EndpointProvider,
    base_url: String,
    key_command: Option<UsedKeyCommand>,
    /// A note for the operator: a key that is not sent to the address.
    pub note: Option<String>,
}

impl PreparedEndpoint {
    /// The address.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The provider. A key that a command printed, now or later, becomes one of `secrets`, and so do the secrets of the
    /// address.
    pub fn into_provider(self, secrets: &Secrets) -> EndpointProvider {
        secrets.add_all(&url_secrets(&self.base_url));
        match self.key_command {
            Some(command) if self.provider.has_key(&command.key) => {
                secrets.add(&command.key);
                let source = Rc::new(command.command);
                let refresh = KeyRefresh::new(source, command.max_age, secrets.clone());
                self.provider.with_key_refresh(refresh)
            }
            _ => self.provider,
        }
    }
}

/// A command that has printed a key.
struct UsedKeyCommand {
    command: KeyCommand,
    key: String,
    /// How long its keys are used; `None` until the endpoint rejects one.
    max_age: Option<Duration>,
}

impl EndpointSetup<'_> {
    /// The endpoint of the LLM; `None` if its provider is none. Keys of the operator's commands join `layers`.
    ///
    /// # Errors
    /// The address, the proxy or the key is missing or cannot be used.
    pub fn prepare(
        &self,
        layers: &mut EnvLayers,
    ) -> Result<Option<PreparedEndpoint>, CommandFailure> {
        let llm = self.llm;
        let from_environment = add_key_from_environment_command(llm, layers)?;
        if llm.wire_form().is_none() {
            return Ok(None);
        }
        let (mut endpoint, command) = if llm.api_key_command.is_empty() {
            self.resolve(layers)?
        } else {
            self.resolve_with_agent_command(layers)?
        };
        limit_cache(&mut endpoint, self.max_iterations.unwrap_or(self.agent.max_iterations));
        if self.tier != TierChoice::Direct {
            endpoint.timeout_ms = endpoint.timeout_ms.max(TIER_TIMEOUT_MS);
            endpoint.idle_timeout_ms = endpoint.idle_timeout_ms.max(TIER_TIMEOUT_MS);
        }
        let note = endpoint.note.clone();
        let base_url = endpoint.base_url.clone();
        let provider = EndpointProvider::new(endpoint, llm.model.clone())?;
        let key_command = command.or(from_environment);
        Ok(Some(PreparedEndpoint { provider, base_url, key_command, note }))
    }

    /// The endpoint. If only a key is missing, the operator's configuration may say how to get it.
    fn resolve(
        &self,
        layers: &mut EnvLayers,
    ) -> Result<(Endpoint, Option<UsedKeyCommand>), CommandFailure> {
        let llm = self.llm;
        let resolve = |layers: &EnvLayers| {
            let trust = self.trust;
            Endpoint::resolve(llm, &|name| layers.settings(name), &|host| trust.trusts_host(host))
        };
        let error = match resolve(layers) {
            Err(error) if error.needs_key && llm.api_key_env.is_none() => error,
            resolved => return Ok((resolved?, None)),
        };
        let form = llm.wire_form().unwrap_or(WireForm::OpenAi);
        let Some(command) = KeyCommand::from_config(form)? else { return Err(error.into()) };
        let key = command.run(&install_cancel()?)?;
        layers.set_operator_key(form.key_variables()[0], key.value.clone(), key.description);
        let used = UsedKeyCommand { command, key: key.value, max_age: None };
        Ok((resolve(layers)?, Some(used)))
    }

    /// The endpoint with the key that the agent's own command prints.
    fn resolve_with_agent_command(
        &self,
        layers: &EnvLayers,
    ) -> Result<(Endpoint, Option<UsedKeyCommand>), CommandFailure> {
        let llm = self.llm;
        let vars = EngineVars {
            agent_home: self.agent.home.clone(),
            cwd: PathBuf::new(),
            run_dir: PathBuf::new(),
        };
        let argv = llm.api_key_command.iter().map(|word| vars.expand_text(word)).collect();
        let env = layers.agent_program_variables(self.key_names);
        let command = KeyCommand::of_agent(argv, env, layers.secrets(self.key_names));
        let key = command.run(&install_cancel()?)?.value;
        let endpoint = Endpoint::resolve_with_command_key(
            llm,
            key.clone(),
            &|name| layers.settings(name),
            &|host| self.trust.trusts_host(host),
        )?;
        let max_age = Some(Duration::from_millis(llm.api_key_ttl_ms));
        Ok((endpoint, Some(UsedKeyCommand { command, key, max_age })))
    }
}

/// Makes the endpoint of a run with this many LLM calls cache only what a request may read.
fn limit_cache(endpoint: &mut Endpoint, max_iterations: u32) {
    if max_iterations == 1 {
        // No later request of the run would read what this one writes.
        endpoint.cache = endpoint.cache.for_single_request();
    }
}

/// The provider with the cache rules that the prices of its model, `llm`, imply.
pub fn with_priced_cache(provider: EndpointProvider, llm: &LlmConfig) -> EndpointProvider {
    let pricing = llm.pricing.as_ref();
    let charges = pricing.is_some_and(Pricing::charges_cache_writes);
    let min_prefix = pricing.and_then(|pricing| pricing.min_cached_prefix);
    provider.with_cache_rules(charges, min_prefix)
}

/// The body of the first request of a run of `agent`, in the form of its endpoint. Needs no key, and connects to nothing.
///
/// # Errors
/// The address or the proxy cannot be used, or the form cannot express the request.
pub fn encode_first_request(
    agent: &Agent,
    layers: &EnvLayers,
    request: &LlmRequest<'_>,
) -> Result<Arc<String>, CommandFailure> {
    if agent.llm.wire_form().is_none() {
        return Ok(Arc::clone(request.body));
    }
    // Nothing is sent, so any key is as good as the one that a run would ask for, and any host may get it.
    let key = "none".to_owned();
    let mut endpoint = Endpoint::resolve_with_command_key(
        &agent.llm,
        key,
        &|name| layers.settings(name),
        &|_| true,
    )?;
    limit_cache(&mut endpoint, agent.max_iterations);
    let mut llm = agent.llm.clone();
    prices::apply_prices(&mut llm, &endpoint.base_url, &RunPrices::of_parent()?)?;
    let provider = EndpointProvider::new(endpoint, llm.model.clone())?;
    Ok(with_priced_cache(provider, &llm).request_body(request)?)
}

/// Refuses a tier that the model of `llm` cannot have.
///
/// # Errors
/// It is `flex` by name, and the form of the endpoint is Messages.
pub fn check_tier(llm: &LlmConfig, choice: TierChoice) -> Result<(), CommandFailure> {
    let is_flex = matches!(choice, TierChoice::Flex | TierChoice::FlexOrDirect);
    if is_flex && llm.wire_form() == Some(WireForm::Anthropic) {
        let help = "`cheapest` asks in the tier `flex` where a model has it for less, and directly elsewhere";
        let message = "the provider `anthropic` has no service tier `flex`";
        return Err(CommandFailure::config(message, help.to_owned()));
    }
    Ok(())
}

/// The service tier in which `llm`, whose prices are known by now, is asked. Messages, Anthropic's form, has no `flex`.
pub fn choose_tier(llm: &LlmConfig, choice: TierChoice) -> RequestedTier {
    let has_flex = llm.wire_form().is_some_and(|form| form != WireForm::Anthropic);
    let is_flex = match choice {
        TierChoice::Direct => false,
        TierChoice::Flex | TierChoice::FlexOrDirect => true,
        TierChoice::Cheapest => llm.pricing.as_ref().is_some_and(|pricing| {
            let flex = pricing.of_tier(ServiceTier::Flex);
            flex.is_some_and(|flex| flex.is_cheaper_than(pricing.prices()))
        }),
    };
    RequestedTier {
        tier: if has_flex && is_flex { ServiceTier::Flex } else { ServiceTier::Direct },
        asks_directly_when_refused: choice == TierChoice::FlexOrDirect,
    }
}

/// Whether the key of `llm` may be the one that the operator keeps outside of the environment.
fn uses_default_key(llm: &LlmConfig) -> bool {
    llm.key_variables().first() == Some(&API_KEY_VARIABLES[0])
}

/// Runs the command that the environment names as the source of the key, if the LLM needs a key and no variable holds it.
fn add_key_from_environment_command(
    llm: &LlmConfig,
    layers: &mut EnvLayers,
) -> Result<Option<UsedKeyCommand>, CommandFailure> {
    let needs_key = matches!(llm.provider, ProviderKind::Endpoint(_) | ProviderKind::Command(_));
    if !needs_key
        || !llm.api_key_command.is_empty()
        || !uses_default_key(llm)
        || !layers.settings(API_KEY_VARIABLES[0]).is_empty()
    {
        return Ok(None);
    }
    let Some(command) = KeyCommand::from_environment() else { return Ok(None) };
    let key = command.run(&install_cancel()?)?;
    layers.set_operator_key(API_KEY_VARIABLES[0], key.value.clone(), key.description);
    Ok(Some(UsedKeyCommand { command, key: key.value, max_age: None }))
}
