//! Lists of prices that are fetched: their forms, what is kept of them, and how two of them differ.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A list with fewer models is none.
const MIN_MODELS: usize = 10;

/// A price that is so many times higher or lower than before has to be accepted.
const MAX_FACTOR: f64 = 10.0;

/// The beginnings of the prices of tokens in LiteLLM's form.
const PRICE_KEYS: [&str; 5] = [
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "output_cost_per_reasoning_token",
];

/// The vendors of models.dev, and the names that they have in LiteLLM's list.
const MODELS_DEV_VENDORS: [(&str, &str); 17] = [
    ("alibaba", "dashscope"),
    ("anthropic", "anthropic"),
    ("azure", "azure"),
    ("cerebras", "cerebras"),
    ("deepinfra", "deepinfra"),
    ("deepseek", "deepseek"),
    ("fireworks-ai", "fireworks_ai"),
    ("google", "gemini"),
    ("groq", "groq"),
    ("mistral", "mistral"),
    ("moonshotai", "moonshot"),
    ("openai", "openai"),
    ("openrouter", "openrouter"),
    ("perplexity", "perplexity"),
    ("togetherai", "together_ai"),
    ("xai", "xai"),
    ("zai", "zai"),
];

/// A list of prices in LiteLLM's form, with the fields that delta reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PriceList(BTreeMap<String, Map<String, Value>>);

impl PriceList {
    /// Reads a list in LiteLLM's form, or in the one of models.dev's `api.json`.
    ///
    /// # Errors
    /// The text is neither, has fewer than 10 models with a price, or a price that is not a number from 0; contains the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let list: Map<String, Value> = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| format!("expected a JSON object: {error}"))?;
        let is_models_dev = list.values().any(|vendor| vendor["models"].is_object());
        let entries = if is_models_dev { from_models_dev(&list) } else { from_litellm(list) };
        for (name, entry) in &entries {
            for (key, value) in entry.iter().filter(|(key, _)| is_price_key(key)) {
                if number(value).is_none_or(|price| !(0.0..1e6).contains(&price)) {
                    return Err(format!(
                        "expected a price from 0 as `{key}` of `{name}`, found {value}"
                    ));
                }
            }
        }
        if entries.len() < MIN_MODELS {
            return Err(format!(
                "expected the prices of at least {MIN_MODELS} chat models, found {}",
                entries.len()
            ));
        }
        Ok(Self(entries))
    }

    /// The number of models.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no model.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The list as one JSON object.
    pub fn to_json(&self) -> Value {
        json!(self.0)
    }

    /// The prices that differ from `before`, for models that both lists have, by name.
    pub fn changes_since(&self, before: &Self) -> Vec<PriceChange> {
        let shared = self.0.iter().filter_map(|(name, new)| Some((name, before.0.get(name)?, new)));
        let changes = shared.flat_map(|(name, old, new)| {
            let pairs = PRICE_KEYS.into_iter().filter_map(|key| {
                let before = number(old.get(key)?)?;
                let after = number(new.get(key)?)?;
                let change = PriceChange { model: name.clone(), key, before, after };
                (change.to_string_pair().0 != change.to_string_pair().1).then_some(change)
            });
            pairs.collect::<Vec<_>>()
        });
        changes.collect()
    }
}

/// A price that two lists have differently.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceChange {
    /// The name of the entry.
    pub model: String,
    /// The price, as LiteLLM calls it.
    pub key: &'static str,
    before: f64,
    after: f64,
}

impl PriceChange {
    /// Whether one of the prices is more than ten times the other.
    pub fn is_large(&self) -> bool {
        // A little more, because no binary fraction is exactly ten times another one.
        self.before.max(self.after) > 1.000_001 * MAX_FACTOR * self.before.min(self.after)
    }

    /// The prices in USD per million tokens: before, and after.
    pub fn to_string_pair(&self) -> (String, String) {
        // Without the noise of binary fractions.
        let text = |price: f64| ((price * 1e15).round() / 1e9).to_string();
        (text(self.before), text(self.after))
    }
}

/// A number, which may be written as a text.
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// Whether a key has the price of a token that delta reads: of text.
fn is_price_key(key: &str) -> bool {
    let rest = PRICE_KEYS.iter().find_map(|known| key.strip_prefix(known));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

fn from_litellm(list: Map<String, Value>) -> BTreeMap<String, Map<String, Value>> {
    let entries = list.into_iter().filter_map(|(name, entry)| match entry {
        Value::Object(entry) if is_priced_chat(&entry) => {
            let fields =
                entry.into_iter().filter(|(key, value)| is_entry_key(key) && !value.is_null());
            Some((name, fields.collect()))
        }
        _ => None,
    });
    entries.collect()
}

/// Whether an entry in LiteLLM's form is of a chat model and has a price.
fn is_priced_chat(entry: &Map<String, Value>) -> bool {
    let mode = entry.get("mode").and_then(Value::as_str);
    let has_price = [PRICE_KEYS[0], "tiered_pricing"].iter().any(|key| entry.contains_key(*key));
    matches!(mode, None | Some("chat" | "responses" | "completion")) && has_price
}

/// Whether delta reads a key of an entry in LiteLLM's form.
fn is_entry_key(key: &str) -> bool {
    let others = [
        "litellm_provider",
        "mode",
        "max_input_tokens",
        "max_output_tokens",
        "prompt_cache_min_tokens",
        "tiered_pricing",
    ];
    is_price_key(key) || others.contains(&key)
}

fn from_models_dev(list: &Map<String, Value>) -> BTreeMap<String, Map<String, Value>> {
    let mut entries = BTreeMap::new();
    for (id, vendor) in MODELS_DEV_VENDORS {
        let models = list.get(id).and_then(|vendor| vendor["models"].as_object());
        for (model, fields) in models.into_iter().flatten() {
            let Some(entry) = models_dev_entry(vendor, fields) else { continue };
            let is_bare = matches!(vendor, "openai" | "anthropic");
            let name = if is_bare { model.clone() } else { format!("{vendor}/{model}") };
            entries.insert(name, entry);
        }
    }
    entries
}

fn models_dev_entry(vendor: &str, fields: &Value) -> Option<Map<String, Value>> {
    const NAMES: [(&str, &str); 5] = [
        ("input", PRICE_KEYS[0]),
        ("output", PRICE_KEYS[1]),
        ("cache_read", PRICE_KEYS[2]),
        ("cache_write", PRICE_KEYS[3]),
        ("reasoning", PRICE_KEYS[4]),
    ];
    let cost = &fields["cost"];
    cost["input"].as_f64()?;
    let mut entry = Map::new();
    entry.insert("litellm_provider".to_owned(), vendor.into());
    entry.insert("mode".to_owned(), "chat".into());
    for (prices, suffix) in [(cost, ""), (&cost["context_over_200k"], "_above_200k_tokens")] {
        for (name, key) in NAMES {
            if let Some(price) = prices[name].as_f64() {
                entry.insert(format!("{key}{suffix}"), (price / 1e6).into());
            }
        }
    }
    for (name, key) in [("context", "max_input_tokens"), ("output", "max_output_tokens")] {
        if let Some(tokens) = fields["limit"][name].as_u64() {
            entry.insert(key.to_owned(), tokens.into());
        }
    }
    Some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of ten models in LiteLLM's form, with these prices of input and output.
    fn litellm(input: f64, output: f64) -> Value {
        let entry = json!({
            "input_cost_per_token": input, "output_cost_per_token": output, "output_cost_per_image": 1, "mode": "chat",
            "litellm_provider": "openai", "supports_vision": true,
        });
        (0..10).map(|number| (format!("m{number}"), entry.clone())).collect::<Map<_, _>>().into()
    }

    fn parse(list: &Value) -> Result<PriceList, String> {
        PriceList::parse(&list.to_string())
    }

    #[test]
    fn c_35_2_both_forms_are_read_with_the_fields_that_count() {
        let list = parse(&litellm(2e-6, 1e-5)).unwrap();
        let entry = &list.to_json()["m3"];
        let expected = json!({
            "input_cost_per_token": 2e-6, "output_cost_per_token": 1e-5, "mode": "chat", "litellm_provider": "openai",
        });
        assert_eq!(entry, &expected);

        let model = json!({
            "cost": {"input": 2.5, "output": 10, "cache_read": 0.25, "context_over_200k": {"input": 5, "output": 15}},
            "limit": {"context": 1000, "output": 100},
        });
        let models: Map<_, _> =
            (0..10).map(|number| (format!("g{number}"), model.clone())).collect();
        let list = json!({"google": {"models": models}, "unknown": {"models": {"x": model}}});
        let expected = json!({
            "litellm_provider": "gemini", "mode": "chat", "input_cost_per_token": 2.5e-6, "output_cost_per_token": 1e-5,
            "cache_read_input_token_cost": 2.5e-7, "input_cost_per_token_above_200k_tokens": 5e-6,
            "output_cost_per_token_above_200k_tokens": 1.5e-5, "max_input_tokens": 1000, "max_output_tokens": 100,
        });
        let list = parse(&list).unwrap();
        assert_eq!((list.len(), &list.to_json()["gemini/g0"]), (10, &expected));
    }

    #[test]
    fn c_35_2_lists_that_cannot_be_right_are_refused() {
        let refused = |list: &Value| parse(list).unwrap_err();
        assert!(PriceList::parse("<html>").unwrap_err().starts_with("expected a JSON object: "));
        let few = "expected the prices of at least 10 chat models, found 0";
        assert_eq!(refused(&json!({"a": 1})), few);
        let mut list = litellm(2e-6, 1e-5);
        list["m4"]["output_cost_per_token"] = json!("-1e-6");
        let negative =
            "expected a price from 0 as `output_cost_per_token` of `m4`, found \"-1e-6\"";
        assert_eq!(refused(&list), negative);
        list["m4"]["output_cost_per_token"] = json!([1]);
        assert!(refused(&list).ends_with("found [1]"));
    }

    #[test]
    fn c_35_2_a_change_of_more_than_ten_times_is_large() {
        let changes = |input, output| {
            let after = parse(&litellm(input, output)).unwrap();
            let changes = after.changes_since(&parse(&litellm(2e-6, 1e-5)).unwrap());
            let large = changes.iter().filter(|change| change.is_large()).count();
            (changes.len(), large)
        };
        assert_eq!(changes(2e-6, 1e-5), (0, 0));
        assert_eq!(changes(2e-5, 1e-6), (20, 0));
        assert_eq!(changes(2.1e-5, 1e-5), (10, 10));
        assert_eq!(changes(0.0, 0.9e-6), (20, 20));
    }
}
