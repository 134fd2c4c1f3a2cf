//! How a request was sent in the form of its endpoint, as the record of the call keeps it.

use crate::{ServiceTier, WireForm};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// What was decided for one request apart from its body.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EncodeOptions {
    /// The endpoint rejected opaque parts: parts whose `basis` does not agree are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drops_unbound_native: bool,
    /// The endpoint rejected parts whose `basis` agrees too: none are sent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drops_native: bool,
    /// The operator keeps the reasoning of earlier answers out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub omits_reasoning: bool,
    /// The endpoint takes one system message only, at the beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub merges_system: bool,
    /// The endpoint takes messages of the user and of the assistant in turn only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alternates_roles: bool,
    /// The endpoint does not know the role `developer`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uses_system_role: bool,
    /// The endpoint takes the longest answer as `max_completion_tokens` only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub uses_max_completion_tokens: bool,
    /// Members that delta adds to a request by itself, and that the endpoint rejected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omitted: Vec<String>,
    /// What is left of the request's demand for a call, where the endpoint has refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_call: Option<ForcedCall>,
    /// The endpoint wants reasoning with every call: where an answer had none, it gets an empty part.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adds_thinking: bool,
    /// The last opaque part that the endpoint rejected, named by the codec: it and those before it are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_native: Option<String>,
    /// The longest answer that the endpoint accepts, where the request asks for a longer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The number of messages with which every run of the agent begins: the constant prefix.
    #[serde(skip_serializing_if = "lacks_prefix")]
    pub constant_messages: usize,
    /// The service tier that the operator asks for.
    #[serde(skip_serializing_if = "ServiceTier::is_direct")]
    pub tier: ServiceTier,
    /// What the endpoint shall cache, where the form says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheMarkers>,
    /// The job of a sweep's pool whose runs follow each other: a part of the key of runs with a constant prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_job: Option<u32>,
    /// A breakpoint marks the end of the constant prefix.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub marks_constant: bool,
    /// The endpoint shall not write this request to its cache, which it otherwise does by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub avoids_cache_write: bool,
    /// The endpoint rejected one of these two.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub omits_cache_options: bool,
    /// The host of the endpoint, for a form whose opaque parts only the endpoint accepts that made them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The number of letters and digits that call ids must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ids: Option<u8>,
}

fn lacks_prefix(count: &usize) -> bool {
    *count == 0
}

/// What an endpoint takes of the demand for a call of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedCall {
    /// The demand for a call of any tool.
    Any,
    /// Nothing.
    Omitted,
}

/// How long the endpoint keeps an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CacheLifetime {
    /// Five minutes.
    #[default]
    #[serde(rename = "5m")]
    Short,
    /// An hour, for a higher surcharge.
    #[serde(rename = "1h")]
    Long,
}

impl CacheLifetime {
    /// The time after the last use.
    pub const fn duration(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(5 * 60),
            Self::Long => Duration::from_secs(60 * 60),
        }
    }
}

/// The markers of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheMarkers {
    /// The blocks of the request that get a marker, counted from 0, in order.
    pub blocks: Vec<usize>,
    /// How long the endpoint shall keep an entry.
    pub lifetime: CacheLifetime,
}

/// How a request uses the cache of the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheUse {
    /// The endpoint caches by itself.
    Automatic,
    /// The request marks what the endpoint caches.
    Marked,
    /// The endpoint neither reads nor writes its cache.
    Unused,
}

/// How an exchange looked on the wire, where that was not Chat Completions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireExchange {
    /// The name of the form.
    pub form: String,
    /// The version of the translation.
    pub version: u32,
    /// The SHA-256 of the body that was sent, in hexadecimal digits.
    pub request_sha256: String,
    /// What was decided apart from the body.
    pub options: EncodeOptions,
    /// The address of the endpoint, without a user and a query: the body can depend on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The version of the form, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The response as the endpoint sent it, assembled if it was streamed; null if it is the recorded one itself.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub response: Value,
}

impl WireExchange {
    /// How the request used the cache of the endpoint.
    pub fn cache_use(&self) -> CacheUse {
        match WireForm::parse(&self.form) {
            Some(WireForm::Anthropic) if self.options.cache.is_some() => CacheUse::Marked,
            Some(WireForm::Anthropic) => CacheUse::Unused,
            _ if self.options.avoids_cache_write => CacheUse::Unused,
            _ => CacheUse::Automatic,
        }
    }
}
