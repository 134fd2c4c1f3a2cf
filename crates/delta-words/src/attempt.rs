//! The attempts of a call.

use crate::Usage;
use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};

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
    /// The tokens of an answer that arrived whole and cannot be used, if the endpoint reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
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

/// Whether this HTTP status means that the request came too early: 429, or 529, which Anthropic answers when it is
/// overloaded.
pub fn is_throttling_status(status: u16) -> bool {
    matches!(status, 429 | 529)
}

/// The number of a try, and how many tries a call has at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TryNumber {
    /// The number, counted from 1.
    pub number: u32,
    /// The maximum; `None` if only the time limit of the run ends the tries.
    pub of: Option<u32>,
}
