//! A span as OTLP/JSON has it: ids in hexadecimal, 64-bit integers as text, attributes as a list.

use super::subject::Origin;
use crate::time::Timestamp;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// What a span is of, as OTLP numbers it.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Work of the process itself.
    Internal = 1,
    /// A call to somebody else.
    Client = 3,
}

/// Attributes of a span, an event or a resource.
#[derive(Debug, Default)]
pub struct Attributes(Vec<Json>);

impl Attributes {
    /// Adds a text, unless there is none.
    pub fn text(&mut self, key: &str, value: Option<impl Into<String>>) {
        self.add(key, value.map(|text| json!({"stringValue": text.into()})));
    }

    /// Adds a whole number, unless there is none.
    pub fn int(&mut self, key: &str, value: Option<impl ToString>) {
        self.add(key, value.map(|number| json!({"intValue": number.to_string()})));
    }

    /// Adds a number, unless there is none.
    pub fn double(&mut self, key: &str, value: Option<f64>) {
        self.add(key, value.map(|number| json!({"doubleValue": number})));
    }

    /// Adds a truth, unless there is none.
    pub fn bool(&mut self, key: &str, value: Option<bool>) {
        self.add(key, value.map(|truth| json!({"boolValue": truth})));
    }

    /// Adds a list of texts, unless it is empty.
    pub fn texts(&mut self, key: &str, values: Vec<String>) {
        let values: Vec<Json> =
            values.into_iter().map(|text| json!({"stringValue": text})).collect();
        self.add(key, (!values.is_empty()).then(|| json!({"arrayValue": {"values": values}})));
    }

    /// Adds a value as the text of its JSON: not every receiver takes more than texts and numbers.
    pub fn json(&mut self, key: &str, value: Option<Json>) {
        self.text(key, value.map(|value| value.to_string()));
    }

    fn add(&mut self, key: &str, value: Option<Json>) {
        self.0.extend(value.map(|value| json!({"key": key, "value": value})));
    }

    /// The list.
    pub fn into_json(self) -> Json {
        Json::Array(self.0)
    }
}

/// A span that is being put together.
#[derive(Debug)]
pub struct Span {
    /// Its id.
    pub id: String,
    /// The id of the span around it.
    pub parent: Option<String>,
    /// Its name.
    pub name: String,
    /// What it is of.
    pub kind: Kind,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// What is known of it.
    pub attributes: Attributes,
    /// What happened in it.
    pub events: Vec<Json>,
    /// Why it failed, when it did.
    pub error: Option<String>,
}

impl Span {
    /// As it is sent, as a part of the trace `trace_id`.
    pub fn into_json(self, trace_id: &str) -> Json {
        let mut span = json!({"traceId": trace_id, "spanId": self.id});
        if let Some(parent) = self.parent {
            span["parentSpanId"] = parent.into();
        }
        span["name"] = self.name.into();
        span["kind"] = (self.kind as u8).into();
        span["startTimeUnixNano"] = nanos(self.start).into();
        // A clock that was set back must not make a span that ends before it begins.
        span["endTimeUnixNano"] = nanos(self.end.max(self.start)).into();
        span["attributes"] = self.attributes.into_json();
        if !self.events.is_empty() {
            span["events"] = self.events.into();
        }
        span["status"] = match self.error {
            Some(message) => json!({"message": message, "code": 2}),
            None => json!({}),
        };
        span
    }
}

/// Something that happened in a span.
pub fn event(name: &str, at: Timestamp, attributes: Attributes) -> Json {
    json!({"timeUnixNano": nanos(at), "name": name, "attributes": attributes.into_json()})
}

fn nanos(at: Timestamp) -> String {
    (i128::from(at.millis()) * 1_000_000).to_string()
}

/// The id of the trace of a run that no other run started.
pub fn trace_id(root: &Origin) -> String {
    hex(&digest(root, "trace")[..16])
}

/// The id of a span of a run: `what` is unique in it.
pub fn span_id(origin: &Origin, what: &str) -> String {
    hex(&digest(origin, what)[..8])
}

/// An id is computed from what it belongs to, so that a run that is exported twice gives the same ids.
fn digest(origin: &Origin, what: &str) -> Vec<u8> {
    let began = origin.began.map(|at| at.to_string()).unwrap_or_default();
    Sha256::digest(format!("delta\0{}\0{began}\0{what}", origin.run_id)).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
