//! The service tier of an answer: how fast an endpoint works on a request, and by which prices.

use serde::{Deserialize, Serialize};

/// A tier, in delta's words.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ServiceTier {
    /// The ordinary one.
    #[default]
    Direct,
    /// Cheaper and slower, while the endpoint has capacity.
    Flex,
    /// Faster and dearer.
    Priority,
    /// Cheaper, within hours, in batches, which delta does not submit.
    Batch,
    /// One whose name delta does not know, or that was not reported although the request named one: it has no price.
    Unknown,
}

impl ServiceTier {
    /// The tier that an endpoint calls `name`.
    pub fn from_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "" | "auto" | "default" | "standard" | "standard_only" | "on_demand"
            | "unspecified" => Self::Direct,
            "flex" => Self::Flex,
            "priority" | "fast" => Self::Priority,
            "batch" => Self::Batch,
            _ => Self::Unknown,
        }
    }

    /// The name, also in requests of the tiers that can be asked for.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Flex => "flex",
            Self::Priority => "priority",
            Self::Batch => "batch",
            Self::Unknown => "unknown",
        }
    }

    /// The name in a response in the form of Chat Completions.
    pub const fn reported_name(self) -> &'static str {
        match self {
            Self::Direct => "default",
            Self::Flex | Self::Priority | Self::Batch | Self::Unknown => self.name(),
        }
    }

    /// Whether it is the ordinary one.
    pub fn is_direct(&self) -> bool {
        *self == Self::Direct
    }
}

/// Which service tier requests ask for, as the operator chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TierChoice {
    /// What `llm` in agent.yaml says.
    #[default]
    Direct,
    /// `flex`; a refusal is retried.
    Flex,
    /// `flex`; what the endpoint refuses is asked directly.
    FlexOrDirect,
    /// `flex` for a model for which it costs less; a refusal is retried.
    Cheapest,
}

impl TierChoice {
    const ALL: [Self; 4] = [Self::Direct, Self::Flex, Self::FlexOrDirect, Self::Cheapest];

    /// The names of the choices.
    pub const NAMES: [&str; 4] = ["direct", "flex", "flex-or-direct", "cheapest"];

    /// The choice with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether it changes nothing.
    pub fn is_direct(&self) -> bool {
        *self == Self::Direct
    }
}
