//! JSON text of values, for everything that is recorded, and objects with members of others.

use serde::Serialize;
use serde_json::Value as Json;
use std::io;

mod exact_json;

pub use exact_json::{
    ExactJson, has_inexact_number, next_token, without_blanks, without_repeated_names,
};

/// Enough for most values.
const DEFAULT_CAPACITY: usize = 1024;

/// The JSON of `value` on one line.
///
/// # Panics
/// The value cannot be represented in JSON, such as a map with keys that are not strings.
pub fn to_json(value: &(impl Serialize + ?Sized)) -> String {
    to_json_with_capacity(DEFAULT_CAPACITY, value)
}

/// Like [`to_json`], with a buffer of `capacity` bytes.
pub fn to_json_with_capacity(capacity: usize, value: &(impl Serialize + ?Sized)) -> String {
    let mut buffer = JsonBuffer(Vec::with_capacity(capacity));
    value
        .serialize(&mut serde_json::Serializer::new(&mut buffer))
        .expect("recorded types serialise to JSON");
    String::from_utf8(buffer.0).expect("JSON is UTF-8")
}

/// Adds the members of `other` to `one`.
pub fn merge_objects(mut one: Json, other: Json) -> Json {
    if let (Some(one), Json::Object(other)) = (one.as_object_mut(), other) {
        one.extend(other);
    }
    one
}

/// A buffer that is fast for single bytes, which most pieces of JSON are.
struct JsonBuffer(Vec<u8>);

impl io::Write for JsonBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline(always)]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match bytes {
            [byte] => self.0.push(*byte),
            bytes => self.0.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_is_written_as_serde_json_writes_it(
            texts in prop::collection::vec(any::<String>(), 0..4),
            numbers in prop::collection::vec(any::<(i64, f64, bool)>(), 0..4),
            capacity in 0..64_usize,
        ) {
            let value = (texts, numbers);
            prop_assert_eq!(super::to_json_with_capacity(capacity, &value), serde_json::to_string(&value).unwrap());
        }
    }
}
