//! Where a message comes from that was sent to a run while it existed: see [`crate::mailbox`].

use crate::limits::Limits;
use delta_base::time::{Timestamp, format_duration};
use serde::{Deserialize, Serialize};

/// The sender of a message, and when the run is to receive it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSource {
    /// The id of the message: a run receives one message with an id.
    pub id: String,
    /// What sent it: `command` for `delta tell`.
    pub by: String,
    /// The user of the sender.
    pub uid: u32,
    /// The host of the sender.
    pub host: String,
    /// When it was sent.
    pub sent_at: Timestamp,
    /// When the run is to receive it.
    pub when: MessageTime,
}

/// Other limits of a run from a message on: see [`crate::event::Payload::LimitsChanged`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitsChange {
    /// The limits that change, which processes that continue the run keep.
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub limits: Limits,
    /// The most LLM answers that a process may request; absent if that stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// What changes, as it was before; what was not limited is absent.
    pub before: LimitsBefore,
    /// Why, in the sender's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The sender.
    pub source: MessageSource,
    /// The seal over the journal up to this event, if the operator has a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// The limits before a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitsBefore {
    /// Of all calls.
    #[serde(flatten)]
    pub limits: Limits,
    /// The most LLM answers that the process might request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
}

impl LimitsChange {
    /// The change in words, such as `max_cost 20 -> 40 (approved)`.
    pub fn describe(&self) -> String {
        let old = self.before.limits;
        let new = self.limits;
        let millis = |millis: Option<u64>| millis.map(format_duration);
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        let changes = [
            (
                "max_cost",
                old.max_cost.map(|it| it.to_string()),
                new.max_cost.map(|it| it.to_string()),
            ),
            ("max_tokens", text(old.max_tokens), text(new.max_tokens)),
            ("max_duration", millis(old.max_duration_ms), millis(new.max_duration_ms)),
            (
                "max_iterations",
                self.before.max_iterations.map(|it| it.to_string()),
                self.max_iterations.map(|it| it.to_string()),
            ),
        ];
        let changes = changes.into_iter().filter_map(|(name, old, new)| {
            let old = old.unwrap_or_else(|| "none".to_owned());
            Some(format!("{name} {old} -> {}", new?))
        });
        let changes = changes.collect::<Vec<_>>().join(", ");
        match &self.reason {
            Some(reason) => format!("{changes} ({reason})"),
            None => changes,
        }
    }
}

/// When a run receives a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageTime {
    /// Before its next call of the LLM.
    Next,
    /// At once: the call of the LLM or the calls at work end.
    Now,
    /// Where it would be COMPLETED.
    End,
}
