//! The price of tokens: from `pricing` in the `llm:` section of agent.yaml, or from the operator's price file.

use delta_words::{
    PriceOrigin, Pricing, SERVICE_TIER_KEY, ServicePrices, ServiceTier, TokenPrices,
};
use delta_yaml::yaml::mapping_schema::{KeySchema, MappingFields, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};

pub(super) static PRICING_MAPPING: MappingSchema = MappingSchema::new(
    "`pricing`",
    "The price of tokens, in USD per million.",
    &[
        KeySchema::required("input", USD_SHAPE, "Input tokens."),
        KeySchema::optional(
            "cached_input",
            USD_SHAPE,
            "Input tokens that the endpoint reads from its cache; as `input` by default.",
        ),
        KeySchema::optional(
            "cache_write",
            USD_SHAPE,
            "Input tokens that the endpoint writes to its cache; as `input` by default, for the provider `anthropic` 1.25 times as much, or twice with a cache of one hour.",
        ),
        KeySchema::required("output", USD_SHAPE, "Output tokens."),
        KeySchema::optional(
            "reasoning",
            USD_SHAPE,
            "Output tokens that are reasoning; as `output` by default.",
        ),
        KeySchema::optional(
            "above",
            ValueShape::List(&ValueShape::Mapping(&TIER_MAPPING)),
            "The prices of long requests.",
        ),
        KeySchema::optional(
            "flex",
            ValueShape::Mapping(&FLEX_MAPPING),
            "The prices of answers of the service tier `flex`.",
        ),
        KeySchema::optional(
            "max_output",
            ValueShape::TokenCount(1..1 << 53),
            "The most tokens that the model generates for an answer; a limit assumes them where `llm.max_tokens` is missing or larger.",
        ),
    ],
);

static TIER_MAPPING: MappingSchema = MappingSchema::new(
    "`above`",
    "The prices of a whole call whose request has more than `tokens` tokens; what is missing is as without `above`.",
    &[
        KeySchema::required(
            "tokens",
            ValueShape::TokenCount(1..1 << 53),
            "The tokens that the request exceeds.",
        ),
        KeySchema::optional("input", USD_SHAPE, "Input tokens."),
        KeySchema::optional("cached_input", USD_SHAPE, "Input tokens read from the cache."),
        KeySchema::optional("cache_write", USD_SHAPE, "Input tokens written to the cache."),
        KeySchema::optional("output", USD_SHAPE, "Output tokens."),
        KeySchema::optional("reasoning", USD_SHAPE, "Output tokens that are reasoning."),
    ],
);

static FLEX_MAPPING: MappingSchema = MappingSchema::new(
    "`flex`",
    "The price of tokens in the service tier `flex`, in USD per million; what is missing follows from these prices as in `pricing`.",
    &[
        KeySchema::required("input", USD_SHAPE, "Input tokens."),
        KeySchema::optional("cached_input", USD_SHAPE, "Input tokens read from the cache."),
        KeySchema::optional("cache_write", USD_SHAPE, "Input tokens written to the cache."),
        KeySchema::required("output", USD_SHAPE, "Output tokens."),
        KeySchema::optional("reasoning", USD_SHAPE, "Output tokens that are reasoning."),
    ],
);

const USD_SHAPE: ValueShape = ValueShape::Number(0.0, f64::MAX);

/// Prices as they are written: what is missing follows from the others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct WrittenPrices {
    pub input: Option<f64>,
    pub cached_input: Option<f64>,
    pub cache_write: Option<f64>,
    pub output: Option<f64>,
    pub reasoning: Option<f64>,
}

impl WrittenPrices {
    fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Self {
        let number = |key: &str| doc.to_json(fields.non_null(key)?)?.as_f64();
        Self {
            input: number("input"),
            cached_input: number("cached_input"),
            cache_write: number("cache_write"),
            output: number("output"),
            reasoning: number("reasoning"),
        }
    }

    /// These prices, with each missing one from `base`.
    fn or(self, base: Self) -> Self {
        Self {
            input: self.input.or(base.input),
            cached_input: self.cached_input.or(base.cached_input),
            cache_write: self.cache_write.or(base.cache_write),
            output: self.output.or(base.output),
            reasoning: self.reasoning.or(base.reasoning),
        }
    }

    /// All prices; `None` without the price of input and output. A token written to a cache costs `write_factor` times as
    /// much as other input, unless its price is written.
    fn complete(self, write_factor: f64) -> Option<TokenPrices> {
        let input = self.input?;
        let output = self.output?;
        Some(TokenPrices {
            input,
            cached_input: self.cached_input.unwrap_or(input),
            cache_write: self.cache_write.unwrap_or(input * write_factor),
            output,
            reasoning: self.reasoning.unwrap_or(output),
        })
    }
}

/// How much more than other input a token costs that the endpoint writes to its cache, where no price says it. `cache_ttl`
/// is how long the cache lasts, if the agent chose it.
pub(super) fn cache_write_factor(is_anthropic: bool, cache_ttl: Option<&str>) -> f64 {
    match cache_ttl {
        _ if !is_anthropic => 1.0,
        Some("1h") => 2.0,
        _ => 1.25,
    }
}

/// Reads `pricing`: the prices of `tier`, which the agent asks for. A token written to a cache costs `write_factor` times as much
/// as other input, unless its price is written.
pub(super) fn read_pricing(
    doc: &YamlDocument,
    node: &YamlNode,
    write_factor: f64,
    tier: ServiceTier,
) -> Option<Pricing> {
    let fields = doc.fields(node, &PRICING_MAPPING)?;
    // Both before the first `?`, so that the report has both mistakes.
    let input = fields.require("input", "2.5");
    let output = fields.require("output", "2.5");
    let mut tiers = Vec::new();
    for item in fields.list("above") {
        let Some(tier) = doc.fields(item, &TIER_MAPPING) else { continue };
        if tier.require("tokens", "200000").is_some() {
            tiers.push((tier.integer("tokens")?, WrittenPrices::read(doc, tier)));
        }
    }
    input.and(output)?;
    let base = WrittenPrices::read(doc, fields);
    let max_output = fields.integer("max_output");
    let flex = fields.non_null("flex").and_then(|node| {
        let fields = doc.fields(node, &FLEX_MAPPING)?;
        let [input, output] = ["input", "output"].map(|key| fields.require(key, "1.25"));
        input.and(output)?;
        complete_prices(WrittenPrices::read(doc, fields), Vec::new(), write_factor)
    });
    let prices = complete_prices(base, tiers, write_factor)?;
    let pricing = Pricing::new(PriceOrigin::Agent, prices, max_output);
    Some(pricing.with_tiers(tier, flex.map(|flex| (ServiceTier::Flex, flex))))
}

/// The complete prices; `None` if the price of input or output is missing. `long_prices` are the prices of requests with more than so
/// many tokens.
pub(super) fn complete_prices(
    base: WrittenPrices,
    long_prices: Vec<(u64, WrittenPrices)>,
    write_factor: f64,
) -> Option<ServicePrices> {
    let long_prices = long_prices
        .into_iter()
        .map(|(tokens, prices)| Some((tokens, prices.or(base).complete(write_factor)?)))
        .collect::<Option<Vec<_>>>()?;
    Some(ServicePrices::new(base.complete(write_factor)?, long_prices))
}

/// The prices in the text of an agent.yaml that delta loaded earlier; `None` if it has none.
pub fn pricing_from_agent_yaml(text: &str) -> Option<Pricing> {
    let doc = YamlDocument::parse("agent.yaml", text).ok()?;
    let llm = doc.root.get("llm")?;
    let is_anthropic = llm.get("provider").and_then(YamlNode::scalar) == Some("anthropic");
    let ttl = llm.get("cache").and_then(|cache| cache.get("ttl")?.scalar());
    let factor = cache_write_factor(is_anthropic, ttl);
    read_pricing(&doc, llm.get("pricing")?, factor, requested_tier(llm))
}

/// The service tier that the section `llm` asks for.
pub(super) fn requested_tier(llm: &YamlNode) -> ServiceTier {
    let name = llm.get(SERVICE_TIER_KEY).and_then(YamlNode::scalar);
    ServiceTier::from_name(name.unwrap_or_default())
}

#[cfg(test)]
mod tests;
