//! Values as JSON text, for what is written with every event, request and record.

use serde::Serialize;
use std::io;

/// As many bytes as most of them need.
const ROOM: usize = 1024;

/// The JSON of a value whose type always has one, on one line.
pub fn text(value: &(impl Serialize + ?Sized)) -> String {
    text_in(ROOM, value)
}

/// The same in a text with room for so many bytes.
pub fn text_in(room: usize, value: &(impl Serialize + ?Sized)) -> String {
    let mut buffer = Buffer(Vec::with_capacity(room));
    let made = value.serialize(&mut serde_json::Serializer::new(&mut buffer));
    made.expect("the types that are recorded serialise to JSON");
    String::from_utf8(buffer.0).expect("JSON is UTF-8")
}

/// What is written to. Most of JSON's pieces are a single byte, and those cost no call.
struct Buffer(Vec<u8>);

impl io::Write for Buffer {
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
        /// It is what serde_json writes.
        #[test]
        fn a_value_is_written_as_serde_json_writes_it(
            texts in prop::collection::vec(any::<String>(), 0..4),
            numbers in prop::collection::vec(any::<(i64, f64, bool)>(), 0..4),
            room in 0..64_usize,
        ) {
            let value = (texts, numbers);
            prop_assert_eq!(super::text_in(room, &value), serde_json::to_string(&value).unwrap());
        }
    }
}
