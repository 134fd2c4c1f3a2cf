//! Lists of prices in the form of LiteLLM's `model_prices_and_context_window.json`: one JSON object whose keys are models, with
//! prices per token. The operator's file, the fetched list and the table in the program have it.
//!
//! The rules of the search are strict, because a limit of money relies on the price: the entry has the name of the model, in
//! full, and of the vendor whose endpoint is asked. There is no guessing of dates, versions or similar names.

pub mod built_in_prices;
pub mod price_list;

use super::pricing::{WrittenPrices, cache_write_factor, complete_prices};
use super::wire::CachePolicy;
use super::{LlmConfig, ProviderKind};
use delta_base::hex::sha256_hex;
use delta_base::suggest;
use delta_http::host_of;
use delta_words::{
    ANTHROPIC_MAX_TOKENS, CacheLifetime, PriceOrigin, Pricing, SERVICE_TIER_KEY, ServicePrices,
    ServiceTier, WireForm,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// The hosts of vendors, and the names that the entries of their models have. A host that begins with a dot stands for all
/// hosts that end with it.
const VENDOR_HOSTS: [(&str, &str); 21] = [
    ("api.openai.com", "openai"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("aiplatform.googleapis.com", "vertex_ai"),
    ("-aiplatform.googleapis.com", "vertex_ai"),
    (".openai.azure.com", "azure"),
    (".services.ai.azure.com", "azure_ai"),
    ("openrouter.ai", "openrouter"),
    ("api.deepseek.com", "deepseek"),
    ("api.mistral.ai", "mistral"),
    ("api.x.ai", "xai"),
    ("api.groq.com", "groq"),
    ("api.together.xyz", "together_ai"),
    ("api.fireworks.ai", "fireworks_ai"),
    ("api.cerebras.ai", "cerebras"),
    ("api.deepinfra.com", "deepinfra"),
    ("api.moonshot.ai", "moonshot"),
    ("api.perplexity.ai", "perplexity"),
    ("dashscope.aliyuncs.com", "dashscope"),
    ("dashscope-intl.aliyuncs.com", "dashscope"),
    ("api.z.ai", "zai"),
];

/// The modes of entries that price conversations.
const CONVERSATION_MODES: [&str; 3] = ["chat", "responses", "completion"];

/// The service tiers whose prices an entry may have, and the names that end the keys of these prices.
const OTHER_TIERS: [(Option<&str>, ServiceTier); 4] = [
    (None, ServiceTier::Direct),
    (Some("flex"), ServiceTier::Flex),
    (Some("priority"), ServiceTier::Priority),
    (Some("batches"), ServiceTier::Batch),
];

/// A model whose price is looked up, and how it is asked.
#[derive(Debug, Clone)]
pub struct PriceQuery {
    model: String,
    /// The vendor whose endpoint is asked, if it is known.
    vendor: Option<&'static str>,
    form: Option<WireForm>,
    /// The service tier that a request asks for, if it is not the default one.
    service_tier: Option<String>,
    /// How long the cache lasts, if the agent chose it.
    cache_ttl: Option<String>,
    /// A key of the request body that changes the price in a way that no entry tells.
    unpriced_key: Option<&'static str>,
}

impl PriceQuery {
    /// The model of `config`, asked at `base_url`.
    pub fn new(config: &LlmConfig, base_url: &str) -> Self {
        let body_text = |keys: &[&str]| {
            let [first, rest @ ..] = keys else { return None };
            let value = rest.iter().try_fold(config.body.get(*first)?, |value, key| value.get(key));
            value?.as_str().filter(|text| !text.is_empty())
        };
        Self {
            model: config.model.clone(),
            vendor: host_of(base_url).and_then(vendor_of_host),
            form: config.wire_form(),
            service_tier: body_text(&[SERVICE_TIER_KEY])
                .filter(|tier| !ServiceTier::from_name(tier).is_direct())
                .map(str::to_owned),
            cache_ttl: (config.cache == CachePolicy::Auto(CacheLifetime::Long))
                .then(|| "1h".to_owned())
                .or_else(|| body_text(&["prompt_cache_options", "ttl"]).map(str::to_owned)),
            unpriced_key: ["speed", "inference_geo"]
                .into_iter()
                .find(|key| body_text(&[key]).is_some_and(|text| text != "standard")),
        }
    }

    /// The names of the entries that may have the price, with the vendor's in front.
    fn entry_names(&self) -> Vec<String> {
        let vendor_name = self.vendor.map(|vendor| format!("{vendor}/{}", self.model));
        // Without the vendor, a name of Gemini is an entry of Vertex AI.
        let is_gemini = self.vendor.is_none() && self.form == Some(WireForm::Gemini);
        let gemini_name = is_gemini.then(|| format!("gemini/{}", self.model));
        vendor_name.into_iter().chain([self.model.clone()]).chain(gemini_name).collect()
    }

    fn is_anthropic(&self) -> bool {
        self.form == Some(WireForm::Anthropic)
    }
}

/// The vendor that `host` belongs to.
fn vendor_of_host(host: &str) -> Option<&'static str> {
    let host = host.to_ascii_lowercase();
    let (_, vendor) = VENDOR_HOSTS
        .iter()
        .find(|(name, _)| host == *name || name.starts_with(['.', '-']) && host.ends_with(name))?;
    Some(vendor)
}

/// A price file.
#[derive(Debug)]
pub struct PriceFile<'a> {
    entries: HashMap<EntryName<'a>, &'a RawValue>,
    text: &'a str,
    kind: &'a PriceListKind,
}

/// Where a list of prices comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriceListKind {
    /// A file that the operator names.
    File,
    /// The list that delta fetched on this day.
    Fetched(String),
    /// The table in the program, made from a list of this day.
    BuiltIn(String),
}

/// The key of an entry.
#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
struct EntryName<'a>(#[serde(borrow)] Cow<'a, str>);

/// The outcome of looking up a model.
#[derive(Debug, Clone, PartialEq)]
pub enum PriceLookup {
    /// The file has it.
    Entry(Box<PricedModel>),
    /// The file does not have it, or it is ambiguous; contains the reason.
    Missing(String),
}

/// What a price file says about a model.
#[derive(Debug, Clone, PartialEq)]
pub struct PricedModel {
    /// The name of the entry.
    pub entry: String,
    /// The prices; or why there are none.
    pub pricing: Result<Pricing, String>,
    /// The most tokens of a request.
    pub max_input: Option<u64>,
    /// The most tokens of an answer.
    pub max_output: Option<u64>,
    /// The tokens of the shortest prefix that the endpoint keeps in its cache.
    min_cached_prefix: Option<u64>,
}

impl<'a> PriceFile<'a> {
    /// Parses the outermost object; an entry is parsed when it is looked up.
    ///
    /// # Errors
    /// The text is not a JSON object of objects.
    pub fn parse(text: &'a str, kind: &'a PriceListKind) -> Result<Self, String> {
        let entries =
            serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
                format!("expected a JSON object with an entry for each model: {error}")
            })?;
        Ok(Self { entries, text, kind })
    }

    /// Looks up a model.
    ///
    /// # Errors
    /// An entry of the model has a mistake.
    pub fn find(&self, query: &PriceQuery) -> Result<PriceLookup, String> {
        let mut models: Vec<PricedModel> = Vec::new();
        for name in query.entry_names() {
            // Without a vendor, the second name is only for lists that lack the first one.
            if query.vendor.is_none() && !models.is_empty() {
                break;
            }
            let Some(raw) = self.entries.get(&EntryName(Cow::Borrowed(name.as_str()))) else {
                continue;
            };
            let entry = PriceEntry::parse(&name, raw)?;
            if entry.is_of_vendor(query.vendor) && entry.prices_conversations() {
                models.push(entry.read(query)?);
            }
        }
        if let [one, other, ..] = models.as_slice()
            && !is_same_price(one, other)
        {
            return Ok(PriceLookup::Missing(format!(
                "its entries `{}` and `{}` have different prices",
                one.entry, other.entry
            )));
        }
        let Some(mut model) = models.into_iter().next() else {
            return Ok(PriceLookup::Missing(self.missing_reason(query)));
        };
        if let Ok(pricing) = &mut model.pricing {
            let entry = model.entry.clone();
            pricing.max_input = model.max_input;
            pricing.min_cached_prefix = model.min_cached_prefix;
            pricing.origin = match self.kind {
                PriceListKind::File => {
                    PriceOrigin::File { sha256: sha256_hex(self.text), model: entry }
                }
                PriceListKind::Fetched(date) => PriceOrigin::Fetched { date: date.clone(), entry },
                PriceListKind::BuiltIn(date) => PriceOrigin::BuiltIn { date: date.clone(), entry },
            };
        }
        Ok(PriceLookup::Entry(Box::new(model)))
    }

    fn missing_reason(&self, query: &PriceQuery) -> String {
        let names = query.entry_names();
        let known: Vec<&str> = self.entries.keys().map(|name| name.0.as_ref()).collect();
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let mut reason = format!("no chat model {}", quoted.join(" or "));
        if let Some(vendor) = query.vendor {
            reason.push_str(&format!(" of {vendor}"));
        }
        let mut similar: Vec<&str> = suggest::nearest_names(&query.model, known.iter().copied());
        // A name with a date is the name of one version, which may have another price.
        similar.extend(
            known
                .iter()
                .copied()
                .filter(|name| name.strip_prefix(query.model.as_str()).is_some_and(is_date)),
        );
        similar.retain(|name| !names.iter().any(|known| known == name));
        similar.sort_unstable();
        similar.dedup();
        similar.truncate(3);
        if !similar.is_empty() {
            let similar: Vec<String> = similar.iter().map(|name| format!("`{name}`")).collect();
            reason.push_str(&format!("; similar names: {}", similar.join(", ")));
        }
        reason
    }
}

/// Whether `text` is `-` and a date, such as `-20250929` or `-2024-08-06`.
fn is_date(text: &str) -> bool {
    let digits = text.chars().filter(char::is_ascii_digit).count();
    text.starts_with('-') && digits == 8 && text.chars().all(|c| c.is_ascii_digit() || c == '-')
}

fn is_same_price(one: &PricedModel, other: &PricedModel) -> bool {
    match (&one.pricing, &other.pricing) {
        (Ok(one), Ok(other)) => one.has_prices_of(other),
        (one, other) => one.is_err() && other.is_err(),
    }
}

/// An entry of the file.
struct PriceEntry<'a> {
    name: &'a str,
    fields: Map<String, Value>,
}

impl<'a> PriceEntry<'a> {
    fn parse(name: &'a str, raw: &RawValue) -> Result<Self, String> {
        let fields = serde_json::from_str(raw.get())
            .map_err(|_| format!("expected an object as the entry `{name}`"))?;
        Ok(Self { name, fields })
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// Whether the entry is of `vendor`; every entry is if the vendor is unknown.
    fn is_of_vendor(&self, vendor: Option<&str>) -> bool {
        let Some(vendor) = vendor else { return true };
        let has_prefix = self.name.strip_prefix(vendor).is_some_and(|rest| rest.starts_with('/'));
        match self.text("litellm_provider") {
            // Vertex AI has a name for each maker of models: `vertex_ai-anthropic_models`.
            Some(provider) => {
                let rest = provider.strip_prefix(vendor);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            }
            None => has_prefix,
        }
    }

    fn prices_conversations(&self) -> bool {
        self.text("mode").is_none_or(|mode| CONVERSATION_MODES.contains(&mode))
    }

    fn read(&self, query: &PriceQuery) -> Result<PricedModel, String> {
        let max_output = self.count("max_output_tokens")?;
        Ok(PricedModel {
            entry: self.name.to_owned(),
            pricing: self.read_pricing(query, max_output)?,
            max_input: self.count("max_input_tokens")?,
            min_cached_prefix: self.count("prompt_cache_min_tokens")?,
            max_output,
        })
    }

    fn read_pricing(
        &self,
        query: &PriceQuery,
        max_output: Option<u64>,
    ) -> Result<Result<Pricing, String>, String> {
        if let Some(key) = query.unpriced_key {
            return Ok(Err(format!("`{key}` in the request changes the price")));
        }
        let Some(prices) = self.read_tier(query, query.service_tier.as_deref())? else {
            return Ok(Err(match &query.service_tier {
                Some(tier) => {
                    format!("its entry `{}` has no price for `service_tier: {tier}`", self.name)
                }
                None => format!("its entry `{}` has no price of a token", self.name),
            }));
        };
        let tier = ServiceTier::from_name(query.service_tier.as_deref().unwrap_or_default());
        let mut others = Vec::new();
        for (name, other) in OTHER_TIERS {
            let known = if other == tier { None } else { self.read_tier(query, name)? };
            // Where only short requests have a price, an answer would have one that is too low.
            let known = known.filter(|known| known.lengths().eq(prices.lengths()));
            others.extend(known.map(|known| (other, known)));
        }
        // The list sets the origin.
        let pricing = Pricing::new(PriceOrigin::Agent, prices, max_output);
        Ok(Ok(pricing.with_tiers(tier, others)))
    }

    /// The prices of a service tier; `None` if the entry has none.
    fn read_tier(
        &self,
        query: &PriceQuery,
        tier: Option<&str>,
    ) -> Result<Option<ServicePrices>, String> {
        let tier_suffix = tier.map_or_else(String::new, |tier| {
            let tier: String = tier.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
            format!("_{tier}")
        });
        let reader = PriceReader { entry: self, query, tier_suffix: &tier_suffix };
        let ranges = self.fields.get("tiered_pricing").and_then(Value::as_array);
        let (base, long_prices) = match ranges {
            Some(ranges) if tier_suffix.is_empty() => self.read_ranges(ranges, query)?,
            _ => (reader.read_prices("")?, reader.read_tiers()?),
        };
        let factor = cache_write_factor(query.is_anthropic(), query.cache_ttl.as_deref());
        Ok(complete_prices(base, long_prices, factor))
    }

    /// The prices of a model whose entry has a list of ranges: the base, and the tiers above it.
    fn read_ranges(
        &self,
        ranges: &[Value],
        query: &PriceQuery,
    ) -> Result<(WrittenPrices, Vec<(u64, WrittenPrices)>), String> {
        let mut base = WrittenPrices::default();
        let mut tiers = Vec::new();
        for range in ranges {
            let fields = range.as_object().cloned().unwrap_or_default();
            let start = range.pointer("/range/0").and_then(Value::as_f64);
            let Some(start) = start.filter(|start| (0.0..9e15).contains(start)) else {
                return Err(self.mistake("tiered_pricing", "ranges such as [0, 32000]"));
            };
            let entry = PriceEntry { name: self.name, fields };
            let prices = PriceReader { entry: &entry, query, tier_suffix: "" }.read_prices("")?;
            match start {
                0.0 => base = prices,
                start => tiers.push((start as u64, prices)),
            }
        }
        Ok((base, tiers))
    }

    /// A price in USD per million tokens, from a number or a text of a number of USD per token.
    fn price(&self, key: &str) -> Result<Option<f64>, String> {
        match self.number(key) {
            None => Ok(None),
            // Without the noise of binary fractions: 2e-7 is 0.2 per million.
            Some(number) if number.is_finite() && number >= 0.0 => {
                Ok(Some((number * 1e15).round() / 1e9))
            }
            Some(_) => Err(self.mistake(key, "a price per token such as 2.5e-06")),
        }
    }

    fn count(&self, key: &str) -> Result<Option<u64>, String> {
        match self.number(key) {
            // Some entries have 0 where the vendor names no limit.
            None | Some(0.0) => Ok(None),
            Some(number) if (1.0..9e15).contains(&number) => Ok(Some(number as u64)),
            Some(_) => Err(self.mistake(key, "a number of tokens")),
        }
    }

    /// A number, which may be written as a text; NaN if the value is something else.
    fn number(&self, key: &str) -> Option<f64> {
        match self.fields.get(key)? {
            Value::Null => None,
            Value::Number(number) => number.as_f64(),
            Value::String(text) => Some(text.trim().parse().unwrap_or(f64::NAN)),
            _ => Some(f64::NAN),
        }
    }

    fn mistake(&self, key: &str, expected: &str) -> String {
        let value = self.fields.get(key).map_or_else(String::new, Value::to_string);
        let value = delta_base::terminal_text::truncate_to_line(&value, 60);
        format!("expected {expected} as `{key}` of the entry `{}`, found `{value}`", self.name)
    }
}

/// Reads the prices of an entry for one service tier.
struct PriceReader<'a> {
    entry: &'a PriceEntry<'a>,
    query: &'a PriceQuery,
    tier_suffix: &'a str,
}

impl PriceReader<'_> {
    /// The prices whose names continue with `suffix`, such as `_above_200k_tokens`.
    fn read_prices(&self, suffix: &str) -> Result<WrittenPrices, String> {
        let price = |name: &str| self.entry.price(&format!("{name}{suffix}{}", self.tier_suffix));
        let write = "cache_creation_input_token_cost";
        let long_write = match self.query.cache_ttl.as_deref() {
            Some("1h") => price(&format!("{write}_above_1hr"))?,
            Some("12h") => price(&format!("{write}_above_12hr"))?,
            _ => None,
        };
        let cache_write = match long_write {
            Some(price) => Some(price),
            // The price of a short cache would be too low.
            None if self.query.is_anthropic() && self.query.cache_ttl.as_deref() == Some("1h") => {
                None
            }
            None => price(write)?,
        };
        Ok(WrittenPrices {
            input: price("input_cost_per_token")?,
            cached_input: price("cache_read_input_token_cost")?,
            cache_write,
            output: price("output_cost_per_token")?,
            reasoning: price("output_cost_per_reasoning_token")?,
        })
    }

    /// The prices of long requests, with the tokens that a request exceeds.
    fn read_tiers(&self) -> Result<Vec<(u64, WrittenPrices)>, String> {
        let mut tiers = Vec::new();
        for key in self.entry.fields.keys() {
            let tokens = key
                .strip_suffix(self.tier_suffix)
                .and_then(|key| key.strip_prefix("input_cost_per_token"))
                .and_then(|suffix| Some((suffix, tier_tokens(suffix)?)));
            if let Some((suffix, tokens)) = tokens {
                tiers.push((tokens, self.read_prices(suffix)?));
            }
        }
        Ok(tiers)
    }
}

/// The tokens of `_above_200k_tokens`.
fn tier_tokens(suffix: &str) -> Option<u64> {
    let thousands = suffix.strip_prefix("_above_")?.strip_suffix("k_tokens")?;
    thousands.parse::<u64>().ok()?.checked_mul(1000)
}

impl LlmConfig {
    /// Sets prices that are not from agent.yaml. The answer that is requested where agent.yaml names no length is then no
    /// longer than the model can make it.
    pub fn set_prices(&mut self, pricing: Pricing) {
        if self.wire_form() == Some(WireForm::Anthropic)
            && let Some(max_output) = pricing.max_output.filter(|max| *max < ANTHROPIC_MAX_TOKENS)
            && let Some(length) = self.body.get_mut("max_tokens")
            && *length == ANTHROPIC_MAX_TOKENS
        {
            *length = max_output.into();
        }
        self.pricing = Some(pricing);
    }

    /// Whether a list of prices can say something about the model that agent.yaml does not.
    pub fn wants_price_list(&self) -> bool {
        let is_asked =
            matches!(self.provider, ProviderKind::Endpoint(_) | ProviderKind::Command(_));
        let bounds_answers = self.body.contains_key("max_tokens")
            || self.body.contains_key("max_completion_tokens")
            || self.body.contains_key("max_output_tokens");
        is_asked
            && self
                .pricing
                .as_ref()
                .is_none_or(|pricing| pricing.max_output.is_none() && !bounds_answers)
    }
}

#[cfg(test)]
mod tests;
