//! The endpoints that the environment of the operator configures.

use crate::failure::CommandFailure;
use crate::{config, environment};
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_llm::llm::{Endpoint, LlmConfig, ModelChoice};
use delta_words::WireForm;
use delta_yaml::yaml::YamlDocument;

/// The endpoints of the providers that list models. The endpoint of `responses` is the one of `openai`.
pub const LISTING_FORMS: [WireForm; 3] = [WireForm::OpenAi, WireForm::Anthropic, WireForm::Gemini];

/// The configuration of a model that no agent names.
///
/// # Errors
/// No endpoint has such a model.
pub fn model_config(choice: &ModelChoice) -> Result<LlmConfig, CommandFailure> {
    let doc = YamlDocument::parse("agent.yaml", "{}")?;
    let current = std::env::current_dir().unwrap_or_default();
    LlmConfig::from_choice(&doc, &current, choice).ok_or_else(|| {
        let hint = "name a model of an endpoint, such as `openai:NAME`";
        CommandFailure::config(format!("`{choice}` has no price"), hint)
    })
}

/// The values of a variable in the environment of this process, and the operator's key and address outside of it. A mistake
/// in the configuration is for the commands that need it.
pub fn operator_settings(name: &str, key: Option<&EnvSetting>) -> Vec<EnvSetting> {
    let value = environment::variable(name);
    let setting =
        value.map(|value| EnvSetting { name: name.to_owned(), value, origin: EnvOrigin::Process });
    let address = config::endpoint_setting(name).ok().flatten();
    key.filter(|key| key.name == name).cloned().into_iter().chain(setting).chain(address).collect()
}

/// The endpoint of `form`; `None` if it is not configured.
///
/// # Errors
/// The address or the proxy cannot be used.
pub fn configured_endpoint(
    form: WireForm,
    key: Option<&EnvSetting>,
) -> Result<Option<Endpoint>, CommandFailure> {
    let config = model_config(&ModelChoice::of_form(form, "any"))?;
    match Endpoint::resolve(&config, &|name| operator_settings(name, key), &|_| false) {
        Ok(endpoint) => Ok(Some(endpoint)),
        Err(error) if error.needs_key => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The variables that configure endpoints.
pub fn endpoint_hint() -> String {
    let mut hint = "set a key or the address of a local server:".to_owned();
    for form in LISTING_FORMS {
        let keys = form.key_variables().join(" or ");
        let addresses = form.address_variables().join(" or ");
        hint.push_str(&format!("\n  {:<10} {keys}; {addresses}", form.name()));
    }
    hint
}
