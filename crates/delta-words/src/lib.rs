#![doc = include_str!("../README.md")]

mod attempt;
mod call_arguments;
mod cost_forecast;
mod message;
mod native_parts;
mod pricing;
mod recorded_call;
mod reply;
mod service_tier;
mod think_text;
mod usage;
mod wire_exchange;
mod wire_form;

pub use attempt::{
    ArrivedAnswer, Attempt, TryNumber, Unavailability, is_retried_status, is_throttling_status,
};
pub use call_arguments::{
    CallArguments, are_no_arguments, arguments_text, doubt_missing_arguments, is_same_json,
    sent_arguments, settled_arguments, unexpected_arguments,
};
pub use cost_forecast::{
    BATCH_HITS, CacheHits, CacheRules, RunCount, TierPrices, TokenLoad, TurnTokens,
};
pub use message::{FunctionCall, Message, ToolCall, message_text};
pub use native_parts::NativeParts;
pub use pricing::{PRICING_HELP, PriceOrigin, Pricing, ServicePrices, TokenPrices};
pub use recorded_call::RecordedCall;
pub use reply::{
    IMAGE_ANSWER, NO_MESSAGE, REASONING_FIELDS, Reply, ResponseBody, media_text, parse_reply,
    thinking_text,
};
pub use service_tier::{ServiceTier, TierChoice};
pub use usage::{
    SERVICE_TIER_KEY, Usage, are_token_counts, merge_counts, parse_token_count, reported_cost,
};
pub use wire_exchange::{
    CacheLifetime, CacheMarkers, CacheUse, EncodeOptions, ForcedCall, WireExchange,
};
pub use wire_form::{ANTHROPIC_MAX_TOKENS, AuthScheme, GEMINI_LENGTH_KEYS, WireForm};
