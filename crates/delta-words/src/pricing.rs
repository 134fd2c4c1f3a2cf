//! The price of tokens, and what a call costs.

use crate::{ServiceTier, Usage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The help where a cost limit needs `pricing`.
pub const PRICING_HELP: &str = "write the price of tokens into `llm:`, in USD per million, such as `pricing: {input: 2.5, output: 10}`; zeros if the model is free; or name a price file in DELTA_PRICES; `delta models prices --fetch URL` fetches a list";

/// What a token costs, in USD per million, and where that is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pricing {
    /// Where the prices are written.
    #[serde(flatten)]
    pub origin: PriceOrigin,
    #[serde(flatten)]
    prices: ServicePrices,
    /// The service tier of these prices.
    #[serde(default, skip_serializing_if = "ServiceTier::is_direct")]
    tier: ServiceTier,
    /// The prices of other service tiers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    other_tiers: BTreeMap<ServiceTier, ServicePrices>,
    /// The most tokens that the model generates for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The most tokens of a request: the model's context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_input: Option<u64>,
    /// The tokens of the shortest prefix that the endpoint keeps in its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_cached_prefix: Option<u64>,
}

/// Where prices are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum PriceOrigin {
    /// `llm.pricing` in agent.yaml.
    Agent,
    /// The operator's price file.
    File {
        /// The SHA-256 of the file.
        sha256: String,
        /// The name of the entry.
        model: String,
    },
    /// The list that `delta models prices --fetch` fetched.
    Fetched {
        /// The day, as `2026-11-28`.
        date: String,
        /// The name of the entry.
        entry: String,
    },
    /// The table in the program.
    #[serde(rename = "built-in")]
    BuiltIn {
        /// The day of the list from which it was made.
        date: String,
        /// The name of the entry.
        entry: String,
    },
    /// The run that started this one, which asks the same model at the same host.
    Parent {
        /// The id of the run.
        run_id: String,
    },
}

impl PriceOrigin {
    /// The day on which the prices were right, where it is known.
    pub fn date(&self) -> Option<&str> {
        match self {
            Self::Fetched { date, .. } | Self::BuiltIn { date, .. } => Some(date),
            Self::Agent | Self::File { .. } | Self::Parent { .. } => None,
        }
    }
}

/// USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenPrices {
    /// Input that is neither read from a cache nor written to one.
    pub input: f64,
    /// Input that the endpoint reads from its cache.
    pub cached_input: f64,
    /// Input that the endpoint writes to its cache.
    pub cache_write: f64,
    /// Output that is not reasoning.
    pub output: f64,
    /// Output that is reasoning.
    pub reasoning: f64,
}

/// What the tokens of short and of longer requests cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServicePrices {
    #[serde(flatten)]
    base: TokenPrices,
    /// The prices of longer requests, the shortest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    above: Vec<PriceTier>,
}

/// The prices of a call whose request has more than `tokens` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct PriceTier {
    tokens: u64,
    #[serde(flatten)]
    prices: TokenPrices,
}

impl TokenPrices {
    /// What the endpoint's cache saved of the cost of a call, in USD; negative if its writes cost more than its reads saved.
    pub fn cache_saving(&self, usage: &Usage) -> f64 {
        let written = usage.cache_write_tokens.unwrap_or(0);
        let saved = usage.cached_input_tokens as f64 * (self.input - self.cached_input)
            - written as f64 * (self.cache_write - self.input);
        saved / 1e6
    }

    /// What it costs in USD to pay again for `tokens` tokens of a request instead of reading them from the cache, at the mean
    /// price of what was not read; 0 if that is not more.
    pub fn paid_again(&self, usage: &Usage, tokens: u64) -> f64 {
        let unread = usage.input_tokens.saturating_sub(usage.cached_input_tokens);
        let written = usage.cache_write_tokens.unwrap_or(0).min(unread);
        let paid = (unread - written) as f64 * self.input + written as f64 * self.cache_write;
        let mean = if unread == 0 { self.input } else { paid / unread as f64 };
        tokens as f64 * (mean - self.cached_input).max(0.0) / 1e6
    }

    pub(crate) fn cost(&self, usage: &Usage) -> f64 {
        let written = usage.cache_write_tokens.unwrap_or(0);
        let fresh =
            usage.input_tokens.saturating_sub(usage.cached_input_tokens).saturating_sub(written);
        let reasoning = usage.reasoning_tokens.unwrap_or(0).min(usage.output_tokens);
        let sum = fresh as f64 * self.input
            + usage.cached_input_tokens as f64 * self.cached_input
            + written as f64 * self.cache_write
            + (usage.output_tokens - reasoning) as f64 * self.output
            + reasoning as f64 * self.reasoning;
        sum / 1e6
    }

    fn is_cheaper_than(&self, other: &Self) -> bool {
        let pairs = [
            (self.input, other.input),
            (self.cached_input, other.cached_input),
            (self.cache_write, other.cache_write),
            (self.output, other.output),
            (self.reasoning, other.reasoning),
        ];
        pairs.iter().all(|(one, other)| one <= other) && self.input < other.input
    }

    /// The highest cost of so many tokens.
    fn max_cost(&self, input: u64, output: u64) -> f64 {
        let max_input = self.input.max(self.cached_input).max(self.cache_write);
        (input as f64 * max_input + output as f64 * self.output.max(self.reasoning)) / 1e6
    }
}

impl ServicePrices {
    /// Prices of short requests, `base`, and of requests with more than so many tokens, `long_prices`.
    pub fn new(base: TokenPrices, mut long_prices: Vec<(u64, TokenPrices)>) -> Self {
        long_prices.sort_by_key(|(tokens, _)| *tokens);
        let price_tiers = long_prices.into_iter();
        let price_tiers = price_tiers.map(|(tokens, prices)| PriceTier { tokens, prices });
        Self { base, above: price_tiers.collect() }
    }

    /// The prices of short requests.
    pub fn base(&self) -> &TokenPrices {
        &self.base
    }

    /// The prices of longer requests: of more than so many tokens, the shortest first.
    pub fn long_prices(&self) -> impl Iterator<Item = (u64, &TokenPrices)> {
        self.above.iter().map(|tier| (tier.tokens, &tier.prices))
    }

    /// The tokens above which longer requests have other prices.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        self.above.iter().map(|tier| tier.tokens)
    }

    /// Whether no call costs more than by `other`, and short ones cost less.
    pub fn is_cheaper_than(&self, other: &Self) -> bool {
        let ends = self.above.iter().chain(&other.above).map(|tier| tier.tokens + 1);
        self.base.is_cheaper_than(&other.base)
            && ends
                .into_iter()
                .all(|tokens| self.for_input(tokens).is_cheaper_than(other.for_input(tokens)))
    }

    /// The prices of a call with so many input tokens.
    pub fn for_input(&self, tokens: u64) -> &TokenPrices {
        let tier = self.above.iter().rfind(|tier| tokens > tier.tokens);
        tier.map_or(&self.base, |tier| &tier.prices)
    }

    /// The cost of a call in USD.
    pub fn cost(&self, usage: &Usage) -> f64 {
        self.for_input(usage.input_tokens).cost(usage)
    }

    /// The highest cost of a call with at most so many tokens. A shorter request may be the dearer one.
    fn max_cost(&self, input: u64, output: u64) -> f64 {
        let ends = self.above.iter().map(|tier| tier.tokens).chain([u64::MAX]);
        let prices = [&self.base].into_iter().chain(self.above.iter().map(|tier| &tier.prices));
        let starts = [0].into_iter().chain(self.above.iter().map(|tier| tier.tokens));
        starts
            .zip(ends)
            .zip(prices)
            .filter(|((start, _), _)| *start == 0 || input > *start)
            .map(|((_, end), prices)| prices.max_cost(input.min(end), output))
            .fold(0.0, f64::max)
    }
}

impl Pricing {
    /// The prices of the tier that the agent asks for.
    pub fn new(origin: PriceOrigin, prices: ServicePrices, max_output: Option<u64>) -> Self {
        Self {
            origin,
            prices,
            tier: ServiceTier::Direct,
            other_tiers: BTreeMap::new(),
            max_output,
            max_input: None,
            min_cached_prefix: None,
        }
    }

    /// The same, of the service tier `tier`, with the prices of others.
    #[must_use]
    pub fn with_tiers(
        self,
        tier: ServiceTier,
        others: impl IntoIterator<Item = (ServiceTier, ServicePrices)>,
    ) -> Self {
        Self { tier, other_tiers: others.into_iter().collect(), ..self }
    }

    /// The prices of the tier that the agent asks for.
    pub fn prices(&self) -> &ServicePrices {
        &self.prices
    }

    /// The prices of each tier that is known.
    pub fn tiers(&self) -> impl Iterator<Item = (ServiceTier, &ServicePrices)> {
        let others = self.other_tiers.iter().map(|(tier, prices)| (*tier, prices));
        [(self.tier, &self.prices)].into_iter().chain(others)
    }

    /// The prices of a tier, if they are known.
    pub fn of_tier(&self, tier: ServiceTier) -> Option<&ServicePrices> {
        self.tiers().find_map(|(known, prices)| (known == tier).then_some(prices))
    }

    /// Whether a token that the endpoint writes to its cache costs more than another one.
    pub fn charges_cache_writes(&self) -> bool {
        self.prices.base.cache_write > self.prices.base.input
    }

    /// Whether calls cost the same.
    pub fn has_prices_of(&self, other: &Self) -> bool {
        self.tiers().eq(other.tiers())
    }

    /// Whether agent.yaml has these prices, and not a list, which the endpoint's own figure precedes.
    pub fn is_from_agent(&self) -> bool {
        self.origin == PriceOrigin::Agent
    }

    /// The prices of a call with so many input tokens, of the tier that the agent asks for.
    pub fn for_input(&self, tokens: u64) -> &TokenPrices {
        self.prices.for_input(tokens)
    }

    /// The cost of a call in USD, by the prices of the tier that gave the answer; `None` if they are not known. Cached and
    /// written tokens are a part of the input tokens.
    pub fn call_cost(&self, usage: &Usage) -> Option<f64> {
        Some(self.answer_prices(usage)?.cost(usage))
    }

    /// The prices of an answer: of the tier that gave it, for a request of its length; `None` if they are not known.
    pub fn answer_prices(&self, usage: &Usage) -> Option<&TokenPrices> {
        let tier = usage.tier.unwrap_or(self.tier);
        Some(self.of_tier(tier)?.for_input(usage.input_tokens))
    }

    /// The same for a budget: by the dearest prices that are known if the tier has none.
    pub fn charged_cost(&self, usage: &Usage) -> f64 {
        self.call_cost(usage).unwrap_or_else(|| {
            self.tiers().map(|(_, prices)| prices.cost(usage)).fold(0.0, f64::max)
        })
    }

    /// The highest cost of a call with at most so many tokens, in USD, in the tier that the agent asks for or in a cheaper one.
    pub fn max_call_cost(&self, input: u64, output: u64) -> f64 {
        self.prices.max_cost(input, output)
    }
}
