//! Limits: what the calls of a run may take in all, and what a ledger of calls says is left. Pure.
//!
//! A call is admitted when everything used, everything reserved and the worst that it could take stay within every
//! limit together. What a call could take is an upper bound and no estimate: a token is at least one byte.

mod account;

pub use account::{Account, Admission, Entry, Head, Refusal};

use crate::event::{Payload, Thought};
use crate::llm::config::PRICING_HELP;
use crate::llm::{LlmConfig, ToolCall};
use crate::tokens;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The section `limits:` of agent.yaml.
pub static LIMITS: Mapping = Mapping {
    what: "`limits`",
    about: "What a run and all runs below it may take. A call that could exceed one of them is not made.",
    keys: &[
        Key::optional(
            "max_cost",
            Shape::Number(0.0, f64::MAX),
            "USD for all LLM calls; needs `llm.pricing`. `--max-cost` wins.",
        ),
        Key::optional(
            "max_tokens",
            Shape::Integer(1..1 << 53),
            "Tokens of all LLM calls, requests and answers together. `--max-tokens` wins.",
        ),
        Key::optional(
            "max_duration_ms",
            Shape::Integer(1..1 << 40),
            "Milliseconds that a process may work on the run. `--max-duration` wins.",
        ),
    ],
    one_of: &[],
    open: false,
};

/// How long an answer is taken to be at most when the request does not say it.
pub const ANSWER: u64 = 4096;

/// An amount in USD, kept in whole millionths of a millionth, so that sums are exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Usd(u64);

impl Usd {
    const PARTS: f64 = 1e12;

    /// So many dollars; what is negative or no number counts as none.
    pub fn new(dollars: f64) -> Self {
        // The cast saturates, and makes nothing of what is no number.
        Self((dollars * Self::PARTS).round() as u64)
    }

    fn dollars(self) -> f64 {
        self.0 as f64 / Self::PARTS
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

/// What calls take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Tokens of requests and answers.
    pub tokens: u64,
    /// What they cost, as far as that is known.
    pub cost_usd: Usd,
}

impl Amount {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        let cost_usd = Usd(self.cost_usd.0.saturating_add(other.cost_usd.0));
        Self { tokens: self.tokens.saturating_add(other.tokens), cost_usd }
    }

    /// What is left of it without `other`, never less than nothing.
    pub fn without(self, other: Self) -> Self {
        let cost_usd = Usd(self.cost_usd.0.saturating_sub(other.cost_usd.0));
        Self { tokens: self.tokens.saturating_sub(other.tokens), cost_usd }
    }

    /// Whether it is nothing.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// The most that a call can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worst {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// What both cost.
    pub cost: Usd,
}

impl Worst {
    /// Both together.
    pub fn amount(self) -> Amount {
        Amount { tokens: self.input.saturating_add(self.output), cost_usd: self.cost }
    }
}

/// The most tokens that a request body can be. `last` is an earlier body with the tokens that were reported for it: what
/// both have in common at their beginning and end takes no more than that.
pub fn most_tokens(body: &str, last: Option<(&str, u64)>) -> u64 {
    let bytes = body.len() as u64;
    let Some((earlier, reported)) = last else { return bytes };
    let (new, old) = (body.as_bytes(), earlier.as_bytes());
    let same = new.iter().zip(old).take_while(|(one, other)| one == other).count();
    let ends = new[same..].iter().rev().zip(old[same..].iter().rev());
    let same = same + ends.take_while(|(one, other)| one == other).count();
    bytes.min(reported.saturating_add((new.len() - same) as u64))
}

/// What may be taken; what is `None` is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// USD for all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Usd>,
    /// Tokens of all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Milliseconds of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration_ms: Option<u64>,
}

impl Limits {
    /// Reads the section; a cost can be limited where it is known beforehand.
    pub fn read(doc: &Document, node: &Node, llm: Option<&LlmConfig>) -> Option<Self> {
        let fields = doc.fields(node, &LIMITS)?;
        let cost = fields.given("max_cost");
        if let Some(node) = cost.filter(|_| llm.is_some_and(|llm| !llm.is_priced())) {
            let message = "`max_cost` needs to know what a call costs before it is made";
            doc.fault(node, message, Some(PRICING_HELP.to_owned()));
        }
        let cost = cost.and_then(|node| doc.json(node)?.as_f64());
        Some(Self {
            max_cost: cost.map(Usd::new),
            max_tokens: fields.integer("max_tokens"),
            max_duration_ms: fields.integer("max_duration_ms"),
        })
    }

    /// These, and `others` where these say nothing.
    pub fn or(self, others: Self) -> Self {
        Self {
            max_cost: self.max_cost.or(others.max_cost),
            max_tokens: self.max_tokens.or(others.max_tokens),
            max_duration_ms: self.max_duration_ms.or(others.max_duration_ms),
        }
    }

    /// Whether nothing is limited.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// What is used of a limit of which at least four fifths are; `of` says whose budget it is.
    pub fn nearly_used(&self, used: Amount, of: &str) -> Option<String> {
        let nearly =
            |used: u64, limit: u64| used < limit && u128::from(used) * 5 >= u128::from(limit) * 4;
        match (self.max_cost, self.max_tokens) {
            (Some(limit), _) if nearly(used.cost_usd.0, limit.0) => {
                Some(format!("of the limit of {limit} USD{of} {} are used", used.cost_usd))
            }
            (_, Some(limit)) if nearly(used.tokens, limit) => {
                Some(format!("of the limit of {limit} tokens{of} {} are used", used.tokens))
            }
            _ => None,
        }
    }
}

/// What the answers in a journal took, those that a fork has copied apart: as the endpoint reported it, or else estimated.
/// `before` is what it was until this event.
pub fn spent(before: Amount, payload: &Payload) -> Amount {
    match payload {
        Payload::Fork(_) => Amount::default(),
        Payload::Thought(thought) => before.plus(thought_took(thought)),
        _ => before,
    }
}

fn thought_took(thought: &Thought) -> Amount {
    match &thought.usage {
        Some(usage) => Amount {
            tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            cost_usd: Usd::new(usage.cost_usd.unwrap_or_default()),
        },
        None => {
            let tokens = thought.estimated_tokens.unwrap_or_default();
            let answer = answer_tokens(&thought.content, None, &thought.tool_calls);
            Amount { tokens: tokens.saturating_add(answer), cost_usd: Usd::default() }
        }
    }
}

/// The tokens of an answer of which no usage was reported, estimated.
pub fn answer_tokens(content: &str, reasoning: Option<&str>, calls: &[ToolCall]) -> u64 {
    let calls = calls.iter().map(|it| it.function.name.len() + it.function.arguments.len());
    tokens::estimate(content.len() + reasoning.map_or(0, str::len) + calls.sum::<usize>())
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
            let most = most_tokens(&new, Some((&old, reported)));
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
