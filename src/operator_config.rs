//! The operator's configuration file, and the defaults that it and the environment set.

use super::failure::CommandFailure;
use super::process_environment;
use delta_base::durable;
use delta_llm::llm::ModelChoice;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::YamlDocument;
use delta_yaml::yaml::mapping_schema::{KeySchema, MappingSchema, ValueShape};
use std::io;

/// The variable with the default model.
pub const MODEL_VARIABLE: &str = "DELTA_MODEL";

/// The operator's configuration file.
static CONFIG_MAPPING: MappingSchema = MappingSchema {
    label: "config.yaml",
    description: "The operator's settings, for every agent.",
    keys: &[
        KeySchema::optional(
            "api_key_command",
            ValueShape::Text,
            "A command for `sh` whose output is the API key; used where no variable holds one.",
        ),
        KeySchema::optional(
            "model",
            ValueShape::Text,
            "The model of agents without `llm`, as `--model` takes it; DELTA_MODEL takes precedence.",
        ),
        KeySchema::optional(
            "default_agent",
            ValueShape::Text,
            "The agent where none is named: the name of an installed one, or an absolute path.",
        ),
    ],
    exactly_one_of: &[],
    allows_other_keys: false,
};

/// The operator's configuration; empty without a file.
#[derive(Debug, Default)]
pub struct OperatorConfig {
    /// The path of the file.
    pub name: String,
    pub api_key_command: Option<String>,
    pub model: Option<ModelChoice>,
    pub default_agent: Option<String>,
}

/// Reads the operator's configuration.
///
/// # Errors
/// The file cannot be read, or has errors.
pub fn read_operator_config() -> Result<OperatorConfig, CommandFailure> {
    let Some(path) = process_environment::config_file() else {
        return Ok(OperatorConfig::default());
    };
    let mut config = OperatorConfig { name: path.display().to_string(), ..Default::default() };
    let text = match durable::read_regular_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(config),
        Err(error) => {
            let message = format!("could not read {}: {error}", config.name);
            return Err(CommandFailure::config(message, None));
        }
    };
    let doc = YamlDocument::parse(config.name.clone(), text)?;
    if doc.root.is_null() {
        return Ok(config);
    }
    if let Some(fields) = doc.fields(&doc.root, &CONFIG_MAPPING) {
        config.api_key_command = fields.text("api_key_command").map(str::to_owned);
        config.default_agent = fields.text("default_agent").map(str::to_owned);
        if let Some(node) = fields.non_null("model") {
            match ModelChoice::parse(node.scalar().unwrap_or_default()) {
                Ok(model) => config.model = Some(model),
                Err(message) => doc.report(node, message, None),
            }
        }
    }
    let mut report = DiagnosticReport::default();
    doc.drain_diagnostics(&mut report);
    if report.is_empty() { Ok(config) } else { Err(report.into()) }
}

/// The operator's model for agents without one: `DELTA_MODEL`, else `model` in the configuration file.
///
/// # Errors
/// The value is not a model, or the file has errors.
pub fn default_model() -> Result<Option<ModelChoice>, CommandFailure> {
    let Some(text) = process_environment::variable(MODEL_VARIABLE) else {
        return Ok(read_operator_config()?.model);
    };
    ModelChoice::parse(&text).map(Some).map_err(|message| {
        let mut report = DiagnosticReport::default();
        report.push(Diagnostic::for_file(MODEL_VARIABLE.to_owned(), message, None));
        report.into()
    })
}

/// What to type where no model is chosen.
pub fn missing_model() -> CommandFailure {
    let file = process_environment::config_file();
    let file = file.map(|path| format!(", or write `model: NAME` in {}", path.display()));
    let hint =
        format!("pass `--model NAME`, or set {MODEL_VARIABLE}=NAME{}", file.unwrap_or_default());
    CommandFailure::config("no model is chosen: the agent has no `llm`", hint)
}
