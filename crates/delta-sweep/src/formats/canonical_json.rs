//! Canonical JSON: one text for each value, so that a hash over it is a hash of the value.
//!
//! Keys are sorted by their bytes, there is no space between tokens, and numbers and strings are as serde_json writes them.

use delta_base::hex::encode_hex;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// The canonical text of a value.
pub fn to_canonical_json(value: &Json) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub fn content_hash(bytes: &[u8]) -> String {
    encode_hex(&Sha256::digest(bytes))
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
