//! Whether the prices in agent.yaml are of the model that is asked.

use delta_llm::llm::{LlmConfig, LlmSetting, ModelChoice};
use delta_yaml::yaml::{MappingFields, YamlDocument, YamlNode};

/// The key of `llm` with the prices.
const PRICING: &str = "pricing";

/// The LLM without the prices in agent.yaml, if they are of the agent's own model and the operator chose another one of an
/// endpoint. Each such change is a warning.
pub(super) fn without_prices_of_another_model(
    mut llm: LlmConfig,
    fields: MappingFields<'_>,
    choice: Option<&ModelChoice>,
    warnings: &mut Vec<String>,
) -> LlmConfig {
    let own_model = fields.get("llm").and_then(|llm| llm.get("model")?.scalar());
    let other = choice.map(ModelChoice::model).filter(|model| own_model != Some(model));
    if let Some(own_model) = own_model
        && let Some(model) = other
        && llm.provider.request_form().is_some()
        && llm.pricing.take().is_some()
    {
        warnings.push(ignored_prices_note(own_model, model));
    }
    llm
}

/// `pricing`, if agent.yaml has the prices of a model that `settings`, the values of `--llm`, replace by another one. Each
/// such change is a warning.
pub(super) fn omitted_prices(
    settings: &[LlmSetting],
    doc: &YamlDocument,
    warnings: &mut Vec<String>,
) -> Option<&'static str> {
    let set = |key: &str| settings.iter().rfind(|setting| setting.key() == key);
    let llm = doc.root.get("llm")?;
    llm.get(PRICING).filter(|node| !node.is_null())?;
    let written = |key: &str| llm.get(key).and_then(YamlNode::scalar);
    let own_model = written("model")?;
    let model = set("model")?.text()?;
    let provider = set("provider").and_then(LlmSetting::text);
    let provider = provider.as_deref().or(written("provider"));
    // As with `--model`, a script keeps them, so that a limit of cost can be tried.
    let is_endpoint = !matches!(provider, Some("script" | "command"));
    let is_kept = own_model == model || !is_endpoint || set(PRICING).is_some();
    if is_kept {
        return None;
    }
    warnings.push(ignored_prices_note(own_model, &model));
    Some(PRICING)
}

fn ignored_prices_note(own_model: &str, model: &str) -> String {
    format!(
        "Note: `pricing` in agent.yaml is the price of {own_model}, and does not apply to {model}; \
         `--llm pricing=...` or a price file has its price"
    )
}
