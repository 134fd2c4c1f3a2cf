//! Protocol Buffers for OTLP over HTTP: encodes requests from their OTLP/JSON form and reads fields of responses.
//!
//! `opentelemetry/proto/trace/v1/trace.proto` and its imports define the field numbers.

use delta_base::hex::decode_hex;
use serde_json::Value as Json;

/// The type of a field, which decides how its JSON form is encoded.
enum FieldType {
    Text,
    /// Bytes; hexadecimal digits in JSON.
    Hex,
    /// `fixed64`; a string in JSON.
    Fixed64,
    /// A signed varint; a string or a number in JSON.
    Int,
    Double,
    Bool,
    /// A message or a list of messages.
    Message(&'static [MessageField]),
}

struct MessageField {
    name: &'static str,
    number: u64,
    kind: FieldType,
}

const fn message_field(name: &'static str, number: u64, kind: FieldType) -> MessageField {
    MessageField { name, number, kind }
}

const REQUEST: &[MessageField] =
    &[message_field("resourceSpans", 1, FieldType::Message(RESOURCE_SPANS))];

const RESOURCE_SPANS: &[MessageField] = &[
    message_field("resource", 1, FieldType::Message(&[RESOURCE_ATTRIBUTES])),
    message_field("scopeSpans", 2, FieldType::Message(SCOPE_SPANS)),
    message_field("schemaUrl", 3, FieldType::Text),
];

const RESOURCE_ATTRIBUTES: MessageField =
    message_field("attributes", 1, FieldType::Message(KEY_VALUE));

const SCOPE_SPANS: &[MessageField] = &[
    message_field("scope", 1, FieldType::Message(SCOPE)),
    message_field("spans", 2, FieldType::Message(SPAN)),
    message_field("schemaUrl", 3, FieldType::Text),
];

const SCOPE: &[MessageField] =
    &[message_field("name", 1, FieldType::Text), message_field("version", 2, FieldType::Text)];

const SPAN: &[MessageField] = &[
    message_field("traceId", 1, FieldType::Hex),
    message_field("spanId", 2, FieldType::Hex),
    message_field("parentSpanId", 4, FieldType::Hex),
    message_field("name", 5, FieldType::Text),
    message_field("kind", 6, FieldType::Int),
    message_field("startTimeUnixNano", 7, FieldType::Fixed64),
    message_field("endTimeUnixNano", 8, FieldType::Fixed64),
    message_field("attributes", 9, FieldType::Message(KEY_VALUE)),
    message_field("events", 11, FieldType::Message(EVENT)),
    message_field("status", 15, FieldType::Message(STATUS)),
];

const EVENT: &[MessageField] = &[
    message_field("timeUnixNano", 1, FieldType::Fixed64),
    message_field("name", 2, FieldType::Text),
    message_field("attributes", 3, FieldType::Message(KEY_VALUE)),
];

const STATUS: &[MessageField] =
    &[message_field("message", 2, FieldType::Text), message_field("code", 3, FieldType::Int)];

const KEY_VALUE: &[MessageField] = &[
    message_field("key", 1, FieldType::Text),
    message_field("value", 2, FieldType::Message(ANY_VALUE)),
];

const ANY_VALUE: &[MessageField] = &[
    message_field("stringValue", 1, FieldType::Text),
    message_field("boolValue", 2, FieldType::Bool),
    message_field("intValue", 3, FieldType::Int),
    message_field("doubleValue", 4, FieldType::Double),
    message_field("arrayValue", 5, FieldType::Message(ARRAY_VALUE)),
];

/// No span attribute nests lists.
const ARRAY_VALUE: &[MessageField] =
    &[message_field("values", 1, FieldType::Message(SCALAR_VALUE))];

const SCALAR_VALUE: &[MessageField] = &[message_field("stringValue", 1, FieldType::Text)];

/// Wire types: the encodings of field values.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// Encodes an `ExportTraceServiceRequest` from its JSON form.
pub fn encode_trace_request(json: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    encode_message(&mut out, REQUEST, json);
    out
}

fn encode_message(out: &mut Vec<u8>, fields: &[MessageField], json: &Json) {
    for field in fields {
        match json.get(field.name) {
            None => {}
            Some(Json::Array(all)) => all.iter().for_each(|one| encode_field(out, field, one)),
            Some(one) => encode_field(out, field, one),
        }
    }
}

/// Appends a field, also one with a default value: it may be the set member of a `oneof`.
fn encode_field(out: &mut Vec<u8>, field: &MessageField, json: &Json) {
    let mut put_key = |layout: u64| encode_varint(out, field.number << 3 | layout);
    match &field.kind {
        FieldType::Text => {
            put_key(LENGTH_DELIMITED);
            encode_bytes(out, json.as_str().unwrap_or_default().as_bytes());
        }
        FieldType::Hex => {
            put_key(LENGTH_DELIMITED);
            encode_bytes(out, &decode_hex(json.as_str().unwrap_or_default()).unwrap_or_default());
        }
        FieldType::Fixed64 => {
            put_key(FIXED64);
            let number: u64 = json.as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
            out.extend(number.to_le_bytes());
        }
        FieldType::Int => {
            put_key(VARINT);
            let text = json.as_str().and_then(|text| text.parse().ok());
            let number: i64 = text.or_else(|| json.as_i64()).unwrap_or(0);
            encode_varint(out, number.cast_unsigned());
        }
        FieldType::Double => {
            put_key(FIXED64);
            out.extend(json.as_f64().unwrap_or(0.0).to_le_bytes());
        }
        FieldType::Bool => {
            put_key(VARINT);
            encode_varint(out, u64::from(json.as_bool().unwrap_or(false)));
        }
        FieldType::Message(fields) => {
            put_key(LENGTH_DELIMITED);
            let mut inner = Vec::new();
            encode_message(&mut inner, fields, json);
            encode_bytes(out, &inner);
        }
    }
}

fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    encode_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn encode_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtobufValue<'a> {
    /// A variable-length number.
    Varint(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

/// Finds the last field `number` of a message; `None` when there is none or the message is malformed.
pub fn find_field(mut message: &[u8], number: u64) -> Option<ProtobufValue<'_>> {
    let mut result = None;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let value = match key & 7 {
            VARINT => Some(ProtobufValue::Varint(take_varint(&mut message)?)),
            LENGTH_DELIMITED => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                Some(ProtobufValue::Bytes(take_bytes(&mut message, length)?))
            }
            FIXED64 => take_bytes(&mut message, 8).map(|_| None)?,
            FIXED32 => take_bytes(&mut message, 4).map(|_| None)?,
            _ => return None,
        };
        if key >> 3 == number {
            result = value;
        }
    }
    result
}

/// Finds the last field `number` of a message, if it is text.
pub fn find_text_field(message: &[u8], number: u64) -> Option<&str> {
    match find_field(message, number)? {
        ProtobufValue::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        ProtobufValue::Varint(_) => None,
    }
}

fn take_bytes<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = *take_bytes(from, 1)? else { return None };
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_19_4_values_are_encoded_as_protocol_buffers_have_them() {
        let check = |value: Json, expected: &[u8]| {
            let mut out = Vec::new();
            encode_message(&mut out, ANY_VALUE, &value);
            assert_eq!(out, expected, "{value}");
        };
        check(json!({"stringValue": "ab"}), b"\x0a\x02ab");
        check(json!({"boolValue": false}), b"\x10\x00");
        check(json!({"intValue": "300"}), b"\x18\xac\x02");
        check(json!({"intValue": "-1"}), b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        check(json!({"doubleValue": 1.0}), b"\x21\x00\x00\x00\x00\x00\x00\xf0\x3f");
        check(
            json!({"arrayValue": {"values": [{"stringValue": "a"}]}}),
            b"\x2a\x05\x0a\x03\x0a\x01a",
        );
        let span = json!({"spanId": "00ff", "startTimeUnixNano": "258", "status": {}});
        let mut out = Vec::new();
        encode_message(&mut out, SPAN, &span);
        assert_eq!(out, b"\x12\x02\x00\xff\x39\x02\x01\x00\x00\x00\x00\x00\x00\x7a\x00");
    }

    #[test]
    fn c_19_4_fields_of_an_answer_are_found_and_damage_is_none() {
        let message = b"\x08\x96\x01\x12\x03abc\x19\0\0\0\0\0\0\0\0\x25\0\0\0\0";
        assert_eq!(find_field(message, 1), Some(ProtobufValue::Varint(150)));
        assert_eq!((find_text_field(message, 2), find_field(message, 3)), (Some("abc"), None));
        for damaged in [&b"\x12\x05ab"[..], b"\xff", b"\x0b", &[0xff; 20]] {
            assert_eq!(find_field(damaged, 2), None, "{damaged:?}");
        }
    }
}
