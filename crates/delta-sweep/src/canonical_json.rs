//! Canonical JSON: one text for each value, so that a hash over it is a hash of the value.
//!
//! Keys are sorted by their bytes, there is no space between tokens, and numbers and strings are as serde_json writes them.

use delta_base::hex::encode_hex;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// The canonical text of a value.
pub fn to_canonical_json(value: &Json) -> String {
    let mut text = String::new();
    push_canonical(value, &mut text);
    text
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn content_hash(bytes: &[u8]) -> String {
    encode_hex(&Sha256::digest(bytes))
}

fn push_canonical(value: &Json, text: &mut String) {
    match value {
        Json::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                push_canonical(item, text);
            }
            text.push(']');
        }
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&delta_base::json::to_json(key));
                text.push(':');
                push_canonical(value, text);
            }
            text.push('}');
        }
        Json::String(string) => text.push_str(&delta_base::json::to_json(string)),
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_sorted_at_every_level() {
        let value = json!({"b": [1, {"z": null, "a": "ä\n"}], "a": {"d": 0.5, "c": true}});
        let expected = r#"{"a":{"c":true,"d":0.5},"b":[1,{"a":"ä\n","z":null}]}"#;
        assert_eq!(to_canonical_json(&value), expected);
    }
}
