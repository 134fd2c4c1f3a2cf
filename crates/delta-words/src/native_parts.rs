//! What an answer contained that has to go back unchanged: signatures, encrypted reasoning, phases.

use crate::WireForm;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The content of an answer as the endpoint sent it. The journal keeps it in THOUGHT, requests carry it as the member
/// `native` of the answer's message, and only a codec of the same form reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeParts {
    /// The name of the wire form.
    pub form: String,
    /// The model that was asked.
    pub model: String,
    /// The host of the endpoint, where other endpoints of the form would not accept the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The SHA-256 of what the parts are bound to: tools, system prompt and all messages before them, as they were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// The content, in the terms of the form.
    pub parts: Value,
}

impl NativeParts {
    /// The parts as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether `model` of `form` made the parts.
    pub fn is_from(&self, form: WireForm, model: &str) -> bool {
        self.form == form.name() && self.model == model
    }
}
