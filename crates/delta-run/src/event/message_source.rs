//! Where a message comes from that was sent to a run while it existed: see [`crate::mailbox`].

use delta_base::time::Timestamp;
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
