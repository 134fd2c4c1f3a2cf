//! The tokens and the cost of a call, as endpoints report them.

use crate::ServiceTier;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The member of a request, a response or its usage that names the service tier.
pub const SERVICE_TIER_KEY: &str = "service_tier";

/// Tokens and cost of one call, as the endpoint reported them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The model that replied.
    pub model: String,
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the request that the endpoint read from its cache; `input_tokens` includes them.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Tokens of the request that the endpoint wrote to its cache; `input_tokens` includes them. Absent if it reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// Tokens of the reply that are reasoning; `output_tokens` includes them. Absent if the endpoint reported none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// USD, from `llm.pricing` or the endpoint's own figure; absent if neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The service tier that gave the answer; absent if the endpoint reports none and the request named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<ServiceTier>,
}

impl Usage {
    /// Finds the usage in the fields of a response of `model`: in `usage`, in the first choice, as Moonshot has it, or in
    /// `x_groq.usage`, where Groq streams it.
    pub fn from_response<'a>(
        field: impl Fn(&str) -> Option<&'a Value>,
        model: &str,
    ) -> Option<Self> {
        let usage = field("usage").and_then(|usage| Self::parse(usage, model));
        let usage = usage
            .or_else(|| Self::parse(field("choices")?.get(0)?.get("usage")?, model))
            .or_else(|| Self::parse(field("x_groq")?.get("usage")?, model))?;
        let tier = field(SERVICE_TIER_KEY).and_then(parse_tier);
        Some(Self { tier: usage.tier.or(tier), ..usage })
    }

    /// Parses the `usage` of a Chat Completions response of `model`; `None` if it has no tokens, or counts that are none.
    pub fn parse(usage: &Value, model: &str) -> Option<Self> {
        let cost_usd = reported_cost(usage);
        let usage = usage.as_object()?;
        let count = |name: &str| usage.get(name).and_then(parse_token_count);
        let detail = |group: &str, name: &str| parse_token_count(usage.get(group)?.get(name)?);
        let totals = ["prompt_tokens", "input_tokens", "completion_tokens", "output_tokens"];
        let totals = totals.iter().filter_map(|name| usage.get(*name));
        if !are_token_counts(totals) {
            return None;
        }
        let input = |name: &str| detail("prompt_tokens_details", name);
        // OpenAI and OpenRouter; LiteLLM has the other two.
        let written = input("cache_write_tokens")
            .or_else(|| input("cache_creation_tokens"))
            .or_else(|| count("cache_creation_input_tokens"));
        // A 0 in one place does not mean that another place has none.
        let input_tokens = count("prompt_tokens").max(count("input_tokens")).unwrap_or(0);
        let output_tokens = count("completion_tokens").max(count("output_tokens")).unwrap_or(0);
        let cached = ["cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"]
            .into_iter()
            .map(count)
            .chain([input("cached_tokens"), detail("input_tokens_details", "cached_tokens")]);
        let cached_input_tokens = cached.flatten().max().unwrap_or(0);
        let reasoning_tokens = detail("completion_tokens_details", "reasoning_tokens");
        let total = count("total_tokens");
        // The completion tokens of xAI are without the reasoning.
        let reasoning = reasoning_tokens.unwrap_or(0);
        let output_tokens = include_parts(output_tokens, reasoning, input_tokens, total);
        // Some gateways of Claude count the request as it does: without what its cache has read and written.
        let in_cache = cached_input_tokens.saturating_add(written.unwrap_or(0));
        let input_tokens = include_parts(input_tokens, in_cache, output_tokens, total);
        Some(Self {
            model: model.to_owned(),
            input_tokens,
            cached_input_tokens,
            cache_write_tokens: written.filter(|tokens| *tokens > 0),
            output_tokens,
            reasoning_tokens: reasoning_tokens.filter(|tokens| *tokens > 0),
            cost_usd,
            tier: usage.get(SERVICE_TIER_KEY).and_then(parse_tier),
        })
    }

    /// Adds the tokens of another call. The sum of the cost is unknown if the cost of either is.
    pub fn add(&mut self, other: &Self) {
        self.input_tokens += other.input_tokens;
        self.cached_input_tokens += other.cached_input_tokens;
        self.cache_write_tokens = add_counts(self.cache_write_tokens, other.cache_write_tokens);
        self.output_tokens += other.output_tokens;
        self.reasoning_tokens = add_counts(self.reasoning_tokens, other.reasoning_tokens);
        self.cost_usd = self.cost_usd.zip(other.cost_usd).map(|(one, other)| one + other);
        self.tier = self.tier.filter(|tier| other.tier == Some(*tier));
    }
}

/// A count of tokens with its parts, which it lacks if they are more than it, or if they belong to the `total` with the `rest`.
fn include_parts(count: u64, parts: u64, rest: u64, total: Option<u64>) -> u64 {
    let count_with_parts = count.saturating_add(parts);
    let is_without = parts > count || total == Some(count_with_parts.saturating_add(rest));
    if is_without { count_with_parts } else { count }
}

/// Replaces the members of a usage by the members of a later usage of the same answer. A 0 replaces no number: some servers count
/// the tokens in one event, and send zeros in the next.
pub fn merge_counts(usage: &mut Value, later: Value) {
    match (usage, later) {
        (Value::Object(members), Value::Object(later)) => {
            for (name, value) in later {
                merge_counts(members.entry(name).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (usage, later) if parse_token_count(&later) == Some(0) && !usage.is_null() => {}
        (usage, later) => *usage = later,
    }
}

/// A count of tokens, which some gateways write with a decimal point or as a text.
pub fn parse_token_count(count: &Value) -> Option<u64> {
    /// More than any call has, and few enough that the counts of all calls can be added.
    const MAX: u64 = 1_000_000_000_000;
    let number = count.as_u64().or_else(|| exact_count(count.as_f64()?));
    let number = number.or_else(|| count.as_str()?.trim().parse().ok());
    number.filter(|number| *number <= MAX)
}

/// The whole number that a float is.
fn exact_count(number: f64) -> Option<u64> {
    let is_count = number.fract() == 0.0 && number >= 0.0;
    is_count.then_some(number as u64)
}

/// Whether a response reports its tokens: every count can be read, and one is not 0, as all are where a server does not count.
/// Tokens that are not reported are estimated, so that limits hold.
pub fn are_token_counts<'a>(totals: impl Iterator<Item = &'a Value>) -> bool {
    let counts = totals.filter(|count| !count.is_null()).map(parse_token_count);
    counts.collect::<Option<Vec<_>>>().is_some_and(|counts| counts.iter().any(|count| *count > 0))
}

/// The cost in USD that a `usage` reports. With an own key at OpenRouter, `cost` is without what the vendor bills.
pub fn reported_cost(usage: &Value) -> Option<f64> {
    let cost = usage.get("cost").and_then(parse_cost);
    if usage.get("is_byok") != Some(&Value::Bool(true)) {
        return cost;
    }
    let billed = usage.get("cost_details")?.get("upstream_inference_cost").and_then(parse_cost);
    billed.zip(cost).map(|(billed, cost)| billed + cost)
}

/// A cost in USD, which some gateways write as a text.
fn parse_cost(cost: &Value) -> Option<f64> {
    let cost = cost.as_f64().or_else(|| cost.as_str()?.trim().parse().ok())?;
    (cost.is_finite() && cost >= 0.0).then_some(cost)
}

fn parse_tier(name: &Value) -> Option<ServiceTier> {
    name.as_str().map(ServiceTier::from_name)
}

/// The sum of two counts; `None` if neither is known.
fn add_counts(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.map_or(other, |count| Some(count.saturating_add(other.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_23_3_each_endpoint_reports_what_was_written_and_reasoned_in_its_own_words() {
        let counts = |usage: Value| {
            let usage = Usage::parse(&usage, "m").unwrap();
            let parts = (usage.cached_input_tokens, usage.cache_write_tokens);
            (usage.input_tokens, parts, usage.output_tokens, usage.reasoning_tokens)
        };
        // OpenAI since gpt-5.6, and OpenRouter.
        let openai = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "completion_tokens_details": {"reasoning_tokens": 15},
        });
        assert_eq!(counts(openai), (100, (60, Some(30)), 20, Some(15)));
        // LiteLLM, which has it twice for models of Anthropic.
        let litellm = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "cache_creation_input_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 30},
        });
        assert_eq!(counts(litellm), (100, (60, Some(30)), 20, None));
        // xAI, whose completion is without the reasoning.
        let xai = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 15},
        });
        assert_eq!(counts(xai), (100, (0, None), 35, Some(15)));
        // DeepSeek; a 0 is as good as nothing.
        let deepseek = json!({
            "prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 60,
            "completion_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 120,
        });
        assert_eq!(counts(deepseek), (100, (60, None), 20, None));
        let nulls = json!({
            "prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": null,
            "completion_tokens_details": {"reasoning_tokens": null},
        });
        assert_eq!(counts(nulls), (1, (0, None), 2, None));
    }

    /// A part that is more than the whole, or a total that has it besides, shows that the whole is without it.
    #[test]
    fn c_37_5_a_whole_that_is_reported_without_its_parts_gets_them() {
        let counts = |usage: Value| {
            let usage = Usage::parse(&usage, "m").unwrap();
            let parts = (usage.cached_input_tokens, usage.cache_write_tokens);
            (usage.input_tokens, parts, usage.output_tokens, usage.reasoning_tokens)
        };
        let claude = json!({
            "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
            "cache_read_input_tokens": 5000, "cache_creation_input_tokens": 3000,
        });
        assert_eq!(counts(claude), (8010, (5000, Some(3000)), 5, None));
        let nothing_else = json!({
            "prompt_tokens": 0, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 5000},
        });
        assert_eq!(counts(nothing_else), (5000, (5000, None), 5, None));
        // Neither is more than the whole, but both are.
        let both = json!({
            "prompt_tokens": 1000, "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 600},
        });
        assert_eq!(counts(both), (2200, (600, Some(600)), 0, None));
        let by_total = |total: u64| {
            let usage = json!({
                "prompt_tokens": 6000, "completion_tokens": 5, "total_tokens": total,
                "prompt_tokens_details": {"cached_tokens": 5000},
            });
            counts(usage).0
        };
        assert_eq!([11_005, 6005, 0].map(by_total), [11_000, 6000, 6000]);
        let reasoning = json!({
            "prompt_tokens": 100, "completion_tokens": 10,
            "completion_tokens_details": {"reasoning_tokens": 900},
        });
        assert_eq!(counts(reasoning), (100, (0, None), 910, Some(900)));
    }

    /// What cannot be read was taken for 0 tokens, so no limit was ever reached.
    #[test]
    fn c_12_8_counts_that_are_none_are_not_reported() {
        let read = |usage: Value| {
            Usage::parse(&usage, "m").map(|usage| (usage.input_tokens, usage.output_tokens))
        };
        for (input, output) in
            [(json!(7), json!(5)), (json!(7.0), json!("5")), (json!("7"), json!(5.0))]
        {
            let usage = json!({"prompt_tokens": input, "completion_tokens": output});
            assert_eq!(read(usage), Some((7, 5)));
        }
        assert_eq!(read(json!({"prompt_tokens": 7, "completion_tokens": null})), Some((7, 0)));
        for none in
            [json!(-1), json!(1.5), json!("many"), json!(1e300), json!(u64::MAX), json!([1])]
        {
            assert_eq!(read(json!({"prompt_tokens": none})), None);
            assert_eq!(read(json!({"prompt_tokens": 7, "completion_tokens": none})), None);
        }
        let zeros = json!({"prompt_tokens": 0, "completion_tokens": 0});
        for usage in
            [zeros, json!({}), json!(null), json!({"prompt_tokens": null}), json!({"cost": 1})]
        {
            assert_eq!(read(usage), None);
        }
    }

    #[test]
    fn sums_of_usage_keep_what_is_known() {
        let usage = |written, cost_usd| Usage {
            input_tokens: 1,
            cache_write_tokens: written,
            cost_usd,
            ..Usage::default()
        };
        let mut sum = usage(None, Some(1.0));
        sum.add(&usage(Some(2), Some(0.5)));
        sum.add(&usage(None, Some(0.0)));
        assert_eq!((sum.input_tokens, sum.cache_write_tokens), (3, Some(2)));
        assert_eq!((sum.reasoning_tokens, sum.cost_usd), (None, Some(1.5)));
        sum.add(&usage(None, None));
        assert_eq!(sum.cost_usd, None);
    }
}
