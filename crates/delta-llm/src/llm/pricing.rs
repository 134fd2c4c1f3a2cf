//! The price of tokens: `pricing` in the `llm:` section of agent.yaml.

use super::Usage;
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};

pub(super) static PRICING_MAPPING: MappingSchema = MappingSchema {
    label: "`pricing`",
    description: "The price of tokens, in USD per million.",
    keys: &[
        KeySchema::required("input", USD_SHAPE, "Input tokens."),
        KeySchema::optional(
            "cached_input",
            USD_SHAPE,
            "Input tokens that the endpoint reads from its cache; as `input` by default.",
        ),
        KeySchema::required("output", USD_SHAPE, "Output tokens."),
        KeySchema::optional(
            "max_output",
            ValueShape::TokenCount(1..1 << 53),
            "The most tokens that the model generates for an answer; a limit assumes them where `llm.max_tokens` is missing or larger.",
        ),
    ],
    exactly_one_of: &[],
    allows_other_keys: false,
};

const USD_SHAPE: ValueShape = ValueShape::Number(0.0, f64::MAX);

/// The help where a cost limit needs `pricing`.
pub const PRICING_HELP: &str = "write the price of tokens into `llm:`, in USD per million, such as `pricing: {input: 2.5, output: 10}`; zeros if the model is free";

/// USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pricing {
    input: f64,
    cached_input: f64,
    output: f64,
    /// The most tokens that the model generates for an answer.
    pub max_output: Option<u64>,
}

impl Pricing {
    pub(super) fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let fields = doc.fields(node, &PRICING_MAPPING)?;
        let number = |key: &str| doc.to_json(fields.non_null(key)?)?.as_f64();
        let require = |key: &str| fields.require(key, "2.5").and_then(|_| number(key));
        // Both before the first `?`, so that the report has both mistakes.
        let input = require("input");
        let output = require("output");
        let cached_input = number("cached_input");
        Some(Self {
            input: input?,
            cached_input: cached_input.unwrap_or(input?),
            output: output?,
            max_output: fields.integer("max_output"),
        })
    }

    /// The prices in the text of an agent.yaml that delta loaded earlier; `None` if it has none.
    pub fn from_agent_yaml(text: &str) -> Option<Self> {
        let doc = YamlDocument::parse("agent.yaml", text).ok()?;
        Self::read(&doc, doc.root.get("llm")?.get("pricing")?)
    }

    /// The cost of a call in USD. Endpoints count cached tokens as a part of the input tokens.
    pub fn call_cost(&self, usage: &Usage) -> f64 {
        let uncached = usage.input_tokens.saturating_sub(usage.cached_input_tokens);
        let sum = uncached as f64 * self.input
            + usage.cached_input_tokens as f64 * self.cached_input
            + usage.output_tokens as f64 * self.output;
        sum / 1e6
    }

    /// The highest cost of a call with so many tokens, in USD.
    pub fn max_call_cost(&self, input: u64, output: u64) -> f64 {
        let max_input = self.input.max(self.cached_input);
        (input as f64 * max_input + output as f64 * self.output) / 1e6
    }

    /// The cost of input in USD: `uncached` tokens, and `cached` tokens that the endpoint reads from its cache.
    pub fn input_cost(&self, uncached: u64, cached: u64) -> f64 {
        (uncached as f64 * self.input + cached as f64 * self.cached_input) / 1e6
    }

    /// How much more so many input tokens cost if the endpoint does not read them from its cache, in USD.
    pub fn uncached_surcharge(&self, tokens: u64) -> f64 {
        tokens as f64 * (self.input - self.cached_input) / 1e6
    }
}
