//! The attempts of a call.

use crate::Usage;
use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A failed attempt of a call, for io/ and stderr.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it started.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// The HTTP status, if a response began.
    pub status: Option<u16>,
    /// Why it failed.
    pub error: String,
    /// The delay before the next attempt; absent after the last.
    pub retry_in_ms: Option<u64>,
    /// The tokens of its answer, if one had started: as the endpoint reported them, or estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What had arrived of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<ArrivedAnswer<'static>>,
}

impl Attempt {
    /// Whether the endpoint refused it because it, or this client, has too many requests.
    pub fn is_throttled(&self) -> bool {
        self.status.is_some_and(is_throttling_status)
    }

    /// How long it kept the call from an answer, with the delay after it, in milliseconds.
    pub fn lost_ms(&self) -> u64 {
        self.duration_ms + self.retry_in_ms.unwrap_or(0)
    }
}

/// What had arrived of an answer that broke off or was interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrivedAnswer<'a> {
    /// The text.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub text: Cow<'a, str>,
    /// The reasoning.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reasoning: Cow<'a, str>,
    /// The arguments of its calls, one after the other.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub arguments: Cow<'a, str>,
}

impl ArrivedAnswer<'_> {
    /// The bytes of all of it.
    pub fn length(&self) -> usize {
        self.text.len() + self.reasoning.len() + self.arguments.len()
    }

    /// Whether nothing had arrived.
    pub fn is_empty(&self) -> bool {
        self.length() == 0
    }
}

/// Whether this HTTP status means that the request came too early: 429, or 529, which Anthropic answers when it is
/// overloaded.
pub fn is_throttling_status(status: u16) -> bool {
    matches!(status, 429 | 529)
}

/// Whether another attempt makes sense after this HTTP status of a refusal.
pub fn is_retried_status(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500..=599)
}

/// The number of a try, and how many tries a call has at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryNumber {
    /// The number, counted from 1.
    pub number: u32,
    /// The maximum; `None` if only the time limit of the run ends the tries.
    pub of: Option<u32>,
}

/// Why a model does not answer although another one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unavailability {
    /// It has too many requests, of this client or of all: 429, 503 and 529, after the tries.
    Overloaded,
    /// The account cannot pay for it.
    OutOfQuota,
    /// There is no such model, or no endpoint that works: 404, connections that fail, other failures that outlast the tries.
    Gone,
}
