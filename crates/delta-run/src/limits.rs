//! The limits of a run, and the arithmetic that decides whether a budget admits an LLM call. Pure.
//!
//! A call is admitted if what was used, what is reserved and the upper bound of the call together stay within every limit.
//! The upper bound is not an estimate: a token is at least one byte.

use crate::limits::bounds::RunBounds;
use delta_words::ToolCall;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

pub mod bounds;
pub mod token_estimate;

/// The section `limits:` of agent.yaml.
pub static LIMITS_MAPPING: MappingSchema = MappingSchema::new(
    "`limits`",
    "The most that a run and its child runs may use, and that an answer or a call may do.",
    &[
        KeySchema::optional(
            "max_cost",
            ValueShape::Number(0.0, f64::MAX),
            "USD for all LLM calls; the price of the model has to be known. `--max-cost` overrides it.",
        ),
        KeySchema::optional(
            "max_tokens",
            ValueShape::TokenCount(1..1 << 53),
            "Tokens of all LLM calls, requests and answers together. `--max-tokens` overrides it.",
        ),
        KeySchema::optional(
            "max_duration_ms",
            ValueShape::Milliseconds(1..1 << 40),
            "Milliseconds that a process may work on the run. `--max-duration` overrides it.",
        ),
        bounds::CALLS_PER_ANSWER_KEY,
        bounds::PARALLEL_KEY,
        bounds::REPEATS_KEY,
        bounds::DEPTH_KEY,
        bounds::PROCESSES_KEY,
        bounds::MEMORY_KEY,
        bounds::DISK_KEY,
        KeySchema::misplaced("max_iterations", "it belongs next to `limits:`"),
    ],
);

/// The most tokens that an answer is assumed to have when the request does not limit it.
pub const DEFAULT_ANSWER_TOKENS: u64 = 4096;

/// An amount in USD, stored in whole trillionths, so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(pub(crate) u64);

impl Usd {
    const PARTS_PER_DOLLAR: f64 = 1e12;

    /// Rounds an amount in dollars. A negative amount and NaN become 0.
    pub fn new(dollars: f64) -> Self {
        // The cast saturates, and turns NaN into 0.
        Self((dollars * Self::PARTS_PER_DOLLAR).round() as u64)
    }

    /// The amount that `change` makes of its parts, whole trillionths.
    pub(crate) fn map_parts(self, change: impl FnOnce(u64) -> u64) -> Self {
        Self(change(self.0))
    }

    /// The amount in dollars.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / Self::PARTS_PER_DOLLAR
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dollars())
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::new)
    }
}

/// What calls use or reserve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetAmount {
    /// The tokens of requests and answers.
    pub tokens: u64,
    /// The cost, as far as it is known.
    pub cost_usd: Usd,
}

impl BudgetAmount {
    /// The sum of both.
    pub fn saturating_add(self, other: Self) -> Self {
        let cost_usd = Usd(self.cost_usd.0.saturating_add(other.cost_usd.0));
        Self { tokens: self.tokens.saturating_add(other.tokens), cost_usd }
    }

    /// The difference of both, 0 where `other` is larger.
    pub fn saturating_sub(self, other: Self) -> Self {
        let cost_usd = Usd(self.cost_usd.0.saturating_sub(other.cost_usd.0));
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost_usd }
    }

    /// Whether neither tokens nor cost are counted.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// The most that a call can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallUpperBound {
    /// The tokens of the request.
    pub input_tokens: u64,
    /// The tokens of the answer.
    pub output_tokens: u64,
    /// The cost of both.
    pub cost: Usd,
}

impl CallUpperBound {
    /// The bound as one amount.
    pub fn amount(self) -> BudgetAmount {
        BudgetAmount {
            tokens: self.input_tokens.saturating_add(self.output_tokens),
            cost_usd: self.cost,
        }
    }
}

/// The most tokens that a request body can have. `last` is an earlier body with the tokens that the endpoint reported for
/// it: what both have in common at their start and end has at most as many tokens.
pub fn max_request_tokens(body: &str, last: Option<(&str, u64)>) -> u64 {
    let Some((earlier, reported)) = last else { return body.len() as u64 };
    let new = body.as_bytes();
    let old = earlier.as_bytes();
    let prefix = new.iter().zip(old).take_while(|(a, b)| a == b).count();
    let ends = new[prefix..].iter().rev().zip(old[prefix..].iter().rev());
    let suffix = ends.take_while(|(a, b)| a == b).count();
    (new.len() as u64).min(reported.saturating_add((new.len() - prefix - suffix) as u64))
}

/// The limits of a run. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most USD for all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Usd>,
    /// The most tokens of all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The most milliseconds that one process may work on the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
}

impl Limits {
    /// Reads the section `limits`.
    pub fn read(doc: &YamlDocument, node: &YamlNode) -> Option<(Self, RunBounds)> {
        let fields = doc.fields(node, &LIMITS_MAPPING)?;
        let cost = fields.non_null("max_cost").and_then(|node| doc.to_json(node)?.as_f64());
        let limits = Self {
            max_cost: cost.map(Usd::new),
            max_tokens: fields.integer("max_tokens"),
            max_duration_ms: fields.integer("max_duration_ms"),
        };
        Some((limits, RunBounds::read(doc, fields)))
    }

    /// These limits, with each missing one taken from `others`.
    pub fn or(self, others: Self) -> Self {
        Self {
            max_cost: self.max_cost.or(others.max_cost),
            max_tokens: self.max_tokens.or(others.max_tokens),
            max_duration_ms: self.max_duration_ms.or(others.max_duration_ms),
        }
    }

    /// Whether this amount is within the limits.
    pub fn allow(&self, amount: BudgetAmount) -> bool {
        self.max_tokens.is_none_or(|limit| amount.tokens <= limit)
            && self.max_cost.is_none_or(|limit| amount.cost_usd <= limit)
    }

    /// Whether nothing is limited.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// The first limit of which at least four fifths are used, as a note. `budget` says whose limit it is.
    pub fn describe_nearly_used(&self, used: BudgetAmount, budget: &str) -> Option<String> {
        let is_nearly_used =
            |used: u64, limit: u64| used < limit && u128::from(used) * 5 >= u128::from(limit) * 4;
        match (self.max_cost, self.max_tokens) {
            (Some(limit), _) if is_nearly_used(used.cost_usd.0, limit.0) => {
                Some(format!("{} of the limit of {limit} USD{budget} are used", used.cost_usd))
            }
            (_, Some(limit)) if is_nearly_used(used.tokens, limit) => {
                Some(format!("{} of the limit of {limit} tokens{budget} are used", used.tokens))
            }
            _ => None,
        }
    }
}

/// Estimates the tokens of an answer whose usage was not reported.
pub fn estimate_answer_tokens(content: &str, reasoning: Option<&str>, calls: &[ToolCall]) -> u64 {
    let calls: usize = calls
        .iter()
        .map(|call| call.function.name.len() + call.function.arguments.as_str().len())
        .sum();
    token_estimate::estimate_tokens(content.len() + reasoning.map_or(0, str::len) + calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_body_takes_no_more_than_its_bytes(
            (before, common, after) in ("[a-z]{0,20}", "[a-z]{0,20}", "[a-z]{0,20}"),
            reported in 0..100_u64,
        ) {
            let (old, new) = (format!("{before}{common}"), format!("{before}{after}{common}"));
            let most = max_request_tokens(&new, Some((&old, reported)));
            prop_assert_eq!(most, (new.len() as u64).min(reported + after.len() as u64));
        }
    }

    #[test]
    fn amounts_survive_being_written() {
        for dollars in [0.0, 0.1, 1.5e-7, 3.75e-8, 1234.56] {
            let text = serde_json::to_string(&Usd::new(dollars)).unwrap();
            assert_eq!(serde_json::from_str::<Usd>(&text).unwrap(), Usd::new(dollars));
            assert_eq!(Usd::new(dollars).to_string(), dollars.to_string());
        }
        assert_eq!([-1.0, f64::NAN].map(Usd::new), [Usd::default(); 2]);
    }
}
