//! `llm.fallback`: the models that are asked, in order, when the one before is overloaded, out of quota or gone.

use super::config::{LlmConfig, ProviderKind, read_nonblank_text};
use super::pricing::PRICING_MAPPING;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument, YamlNode, YamlValue};
use std::path::Path;

const KEY: &str = "fallback";

/// The key `llm.fallback`.
pub(super) const FALLBACK_KEY: KeySchema = KeySchema::optional(
    KEY,
    ENTRIES,
    "The models that are asked, in order, when the one before is overloaded, out of quota or gone: a name, or the keys of `llm` that differ.",
);

const ENTRIES: ValueShape = ValueShape::List(&ENTRY);
const ENTRY: ValueShape =
    ValueShape::OneOf(&[ValueShape::Text, ValueShape::Mapping(&FALLBACK_MAPPING)]);

static FALLBACK_MAPPING: MappingSchema = MappingSchema {
    label: "an entry of `fallback`",
    description: "The keys of `llm` that differ for this model. With `provider` or `base_url` it is of another endpoint, and takes over only `stream`, `timeout_ms`, `idle_timeout_ms`, `max_retries`, `temperature` and `max_tokens`.",
    keys: &[
        KeySchema::required("model", ValueShape::Text, "The name of the model."),
        KeySchema::optional(
            "provider",
            ValueShape::Choice(&["openai", "anthropic", "responses", "gemini"]),
            "The form of its endpoint.",
        ),
        KeySchema::optional(
            "base_url",
            ValueShape::Pattern("https?://.*"),
            "The URL of its endpoint.",
        ),
        KeySchema::optional("api_key_env", ValueShape::Text, "The variable that contains its key."),
        KeySchema::optional(
            "pricing",
            ValueShape::Mapping(&PRICING_MAPPING),
            "Its price of tokens, in USD per million.",
        ),
    ],
    exactly_one_of: &[],
    allows_other_keys: true,
};

/// What belongs to the first model alone.
const OWN_KEYS: [&str; 3] = ["model", "pricing", KEY];

/// The providers that ask no model.
const NO_ENDPOINTS: [&str; 3] = ["script", "command", "recorded"];

/// What holds for all models, because it is about what delta does with any answer.
const COMMON_KEYS: [&str; 4] = ["on_length", "on_empty", "text_calls", "strict_arguments"];

/// What a model of another endpoint takes over.
const SHARED_KEYS: [&str; 6] =
    ["stream", "timeout_ms", "idle_timeout_ms", "max_retries", "temperature", "max_tokens"];

/// Reads the models of the section `fields`, whose provider is `first`. A script, a command or a recording that the
/// operator has chosen replaces them all.
pub(super) fn read_fallback(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    home: &Path,
    first: &ProviderKind,
    is_chosen: bool,
) -> Vec<LlmConfig> {
    let entries = fields.list(KEY);
    if matches!(first, ProviderKind::Endpoint(_)) {
        let models =
            entries.iter().filter_map(|entry| read_fallback_entry(doc, fields.node, entry, home));
        return models.collect();
    }
    if let Some(entry) = entries.first().filter(|_| !is_chosen) {
        let help = "remove it: a script, a command and a recording have no other model";
        doc.report(entry, "`fallback` requires the provider of an endpoint", help);
    }
    Vec::new()
}

/// Reads one model as a section of its own: the keys of `section` that it takes over, then its own. All keep their places,
/// where mistakes are reported.
fn read_fallback_entry(
    doc: &YamlDocument,
    section: &YamlNode,
    entry: &YamlNode,
    home: &Path,
) -> Option<LlmConfig> {
    if entry.scalar().is_some() {
        read_nonblank_text(doc, entry, KEY, "[gpt-4o-mini]")?;
    }
    let names = |key: &str| entry.get(key).is_some();
    if names(KEY) {
        let help = "write all models into one list";
        doc.report(entry, "an entry of `fallback` has no `fallback`", help);
        return None;
    }
    if let Some(key) = COMMON_KEYS.into_iter().find(|key| names(key)) {
        let message = format!("`{key}` applies to all models");
        doc.report(entry, message, format!("write `{key}` into `llm` itself"));
        return None;
    }
    let provider = entry.get("provider").and_then(YamlNode::scalar);
    if let Some(provider) = provider.filter(|name| NO_ENDPOINTS.contains(name)) {
        let message =
            format!("`fallback` requires the provider of an endpoint, found `{provider}`");
        let help =
            "write the provider of an endpoint: `openai`, `anthropic`, `responses`, or `gemini`";
        doc.report(entry, message, help);
        return None;
    }
    let is_elsewhere = names("provider") || names("base_url");
    let inherited = section.entries().iter().filter(|(key, _)| {
        key.scalar().is_some_and(|name| {
            let is_shared = !is_elsewhere || SHARED_KEYS.contains(&name);
            is_shared && !names(name) && !OWN_KEYS.contains(&name)
        })
    });
    let own_keys = match entry.scalar() {
        Some(_) => {
            let value = YamlValue::Scalar { text: "model".to_owned(), is_plain: true };
            vec![(YamlNode { value, ..entry.clone() }, entry.clone())]
        }
        None => entry.entries().to_vec(),
    };
    let keys = YamlValue::Mapping(inherited.cloned().chain(own_keys).collect());
    let merged = YamlNode { value: keys, ..entry.clone() };
    let config = LlmConfig::read(doc, &merged, home, None);
    config.filter(|config| config.wire_form().is_some())
}
