//! The tokens and the cost of a run, or of several.

use super::is_zero_number;
use delta_words::Usage;
use serde::{Deserialize, Serialize};

/// Tokens and cost, of all models together.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UsageSummary {
    /// Tokens of the requests.
    pub input_tokens: u64,
    /// Tokens of the requests that the endpoint read from its cache; `input_tokens` includes them.
    pub cached_input_tokens: u64,
    /// Tokens of the requests that the endpoint wrote to its cache; `input_tokens` includes them.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub cache_write_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Tokens of the answers that are reasoning; `output_tokens` includes them.
    #[serde(default, skip_serializing_if = "is_zero_number")]
    pub reasoning_tokens: u64,
    /// USD; absent if the cost of any part is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl UsageSummary {
    /// Adds up the usage of each model. `unmetered` says that the usage of some answer is unknown.
    pub fn from_models(models: &[Usage], unmetered: bool) -> Self {
        let costs: Option<Vec<f64>> = models.iter().map(|usage| usage.cost_usd).collect();
        let sum = |count: fn(&Usage) -> u64| models.iter().map(count).sum::<u64>();
        Self {
            input_tokens: sum(|usage| usage.input_tokens),
            cached_input_tokens: sum(|usage| usage.cached_input_tokens),
            cache_write_tokens: sum(|usage| usage.cache_write_tokens.unwrap_or(0)),
            output_tokens: sum(|usage| usage.output_tokens),
            reasoning_tokens: sum(|usage| usage.reasoning_tokens.unwrap_or(0)),
            cost_usd: costs
                .filter(|costs| !costs.is_empty() && !unmetered)
                .map(|costs| round_usd(costs.iter().sum())),
        }
    }

    /// Adds the usage of another run. The cost is unknown if one of them has tokens of unknown cost.
    pub fn add(&mut self, other: &Self) {
        let is_free = |usage: &Self| usage.input_tokens + usage.output_tokens == 0;
        self.cost_usd = match (self.cost_usd, other.cost_usd) {
            (Some(one), Some(other)) => Some(round_usd(one + other)),
            (cost, None) if is_free(other) => cost,
            (None, cost) if is_free(self) => cost,
            _ => None,
        };
        self.input_tokens += other.input_tokens;
        self.cached_input_tokens += other.cached_input_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.output_tokens += other.output_tokens;
        self.reasoning_tokens += other.reasoning_tokens;
    }

    /// Whether both are the same, but for the last digits of the cost, which JSON may change.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_cost = match (self.cost_usd, other.cost_usd) {
            (Some(one), Some(other)) => (one - other).abs() <= 1e-9,
            (one, other) => one.is_none() && other.is_none(),
        };
        let tokens = |usage: &Self| Self { cost_usd: None, ..*usage };
        is_same_cost && tokens(self) == tokens(other)
    }
}

/// Removes the noise of binary fractions.
pub fn round_usd(amount: f64) -> f64 {
    // The sum of no amounts is a negative zero, which has a sign as text.
    (amount * 1e12).round() / 1e12 + 0.0
}
