//! Whether the prices in agent.yaml are of the model that is asked.

use delta_llm::llm::{LlmConfig, ModelChoice};
use delta_yaml::yaml::MappingFields;

/// The LLM without the prices in agent.yaml, if they are of the agent's own model and the operator chose another one of an
/// endpoint.
pub(super) fn without_prices_of_another_model(
    mut llm: LlmConfig,
    fields: MappingFields<'_>,
    choice: Option<&ModelChoice>,
) -> LlmConfig {
    let own_model = fields.get("llm").and_then(|llm| llm.get("model")?.scalar());
    let is_another =
        choice.is_some_and(|choice| own_model.is_some_and(|name| name != choice.model()));
    if is_another && llm.provider.request_form().is_some() {
        llm.pricing = None;
    }
    llm
}
