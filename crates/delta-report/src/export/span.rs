//! Spans in OTLP/JSON, which writes ids as hexadecimal digits, 64-bit integers as strings and attributes as a list.

use super::exported_run::RunIdentity;
use delta_base::hex::encode_hex;
use delta_base::time::Timestamp;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// The kind of a span, with its number in OTLP.
#[derive(Debug, Clone, Copy)]
pub enum SpanKind {
    /// Work inside the process.
    Internal = 1,
    /// A request to a remote service.
    Client = 3,
}

/// The attributes of a span, an event or a resource. A value of `None` adds nothing.
#[derive(Debug, Default)]
pub struct SpanAttributes(Vec<Json>);

impl SpanAttributes {
    pub fn add_text(&mut self, key: &str, value: Option<impl Into<String>>) {
        self.add(key, value.map(|text| json!({"stringValue": text.into()})));
    }

    pub fn add_int(&mut self, key: &str, value: Option<impl ToString>) {
        self.add(key, value.map(|number| json!({"intValue": number.to_string()})));
    }

    pub fn add_double(&mut self, key: &str, value: Option<f64>) {
        self.add(key, value.map(|number| json!({"doubleValue": number})));
    }

    pub fn add_bool(&mut self, key: &str, value: Option<bool>) {
        self.add(key, value.map(|value| json!({"boolValue": value})));
    }

    /// Adds a list, unless it is empty.
    pub fn add_texts(&mut self, key: &str, values: Vec<String>) {
        let values: Vec<Json> =
            values.into_iter().map(|text| json!({"stringValue": text})).collect();
        self.add(key, (!values.is_empty()).then(|| json!({"arrayValue": {"values": values}})));
    }

    /// Adds JSON text: not every receiver accepts values other than strings and numbers.
    pub fn add_json(&mut self, key: &str, value: Option<Json>) {
        self.add_text(key, value.map(|value| value.to_string()));
    }

    fn add(&mut self, key: &str, value: Option<Json>) {
        self.0.extend(value.map(|value| json!({"key": key, "value": value})));
    }

    pub fn into_json(self) -> Json {
        Json::Array(self.0)
    }
}

#[derive(Debug)]
pub struct Span {
    pub id: String,
    /// The id of the enclosing span.
    pub parent: Option<String>,
    pub name: String,
    pub kind: SpanKind,
    pub start: Timestamp,
    pub end: Timestamp,
    pub attributes: SpanAttributes,
    pub events: Vec<Json>,
    /// Why the operation failed.
    pub error: Option<String>,
    /// Whether it has ended, so that later events of the run do not change the span.
    pub has_ended: bool,
}

impl Span {
    pub fn into_json(self, trace_id: &str) -> Json {
        let mut span = json!({"traceId": trace_id, "spanId": self.id});
        if let Some(parent) = self.parent {
            span["parentSpanId"] = parent.into();
        }
        span["name"] = self.name.into();
        span["kind"] = (self.kind as u8).into();
        span["startTimeUnixNano"] = unix_nanos(self.start).into();
        // The clock may have been set back during the span.
        span["endTimeUnixNano"] = unix_nanos(self.end.max(self.start)).into();
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

pub fn span_event(name: &str, at: Timestamp, attributes: SpanAttributes) -> Json {
    json!({"timeUnixNano": unix_nanos(at), "name": name, "attributes": attributes.into_json()})
}

/// Nanoseconds since 1970, an unsigned number in OTLP: an earlier time gives 0.
fn unix_nanos(at: Timestamp) -> String {
    (u128::try_from(at.as_millis()).unwrap_or(0) * 1_000_000).to_string()
}

/// The id of the trace of a run without a parent and all its descendants.
pub fn trace_id(root: &RunIdentity) -> String {
    encode_hex(&id_digest(root, "trace")[..16])
}

/// The id of a span; `key` is unique in the run.
pub fn span_id(run: &RunIdentity, key: &str) -> String {
    encode_hex(&id_digest(run, key)[..8])
}

/// Computes ids from what they identify, so that every export of a run has the same ids.
fn id_digest(run: &RunIdentity, key: &str) -> Vec<u8> {
    let started_at = run.started_at.map(|at| at.to_string()).unwrap_or_default();
    Sha256::digest(format!("delta\0{}\0{started_at}\0{key}", run.run_id)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_19_2_a_time_before_1970_is_no_negative_number() {
        assert_eq!(unix_nanos(Timestamp::from_millis(-1)), "0");
        assert_eq!(unix_nanos(Timestamp::from_millis(1)), "1000000");
        let happened = span_event("x", Timestamp::from_millis(i64::MIN), SpanAttributes::default());
        assert_eq!(happened["timeUnixNano"], "0");
    }
}
