//! A canonical text of a JSON value, to compare values and to look them up.

use super::decimal::Decimal;
use serde_json::Value as Json;
use std::fmt::Write as _;

/// The canonical text of a value. Two values have the same text exactly if JSON Schema considers them
/// equal: `1` equals `1.0`, and the order of properties does not matter.
pub(super) fn canonical_json(value: &Json) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Json, out: &mut String) {
    match value {
        Json::Number(number) => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", Decimal::from_number(number));
        }
        Json::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Json::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in entries {
                let _ = write!(out, "{}:", Json::from(name.as_str()));
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Json::Null | Json::Bool(_) | Json::String(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_canonical_text() {
        let canonical = |text: &str| canonical_json(&serde_json::from_str(text).unwrap());
        assert_eq!(canonical(r#"{"a": 1, "b": [1.0]}"#), canonical(r#"{"b": [1], "a": 1.0}"#));
        for (left, right) in [("1", "true"), ("1", "\"1\""), ("[]", "{}"), ("[1,2]", "[12]")] {
            assert_ne!(canonical(left), canonical(right));
        }
    }
}
