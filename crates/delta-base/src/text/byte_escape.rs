//! Bytes that a text writes as a mark and digits, such as `%20`.

/// Replaces `mark` and the `count` digits of base `radix` after it by the byte that they mean. A mark without them stays.
pub fn unescape_bytes(text: &[u8], mark: u8, count: usize, radix: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..count).filter(|_| *first == mark);
        let value = digits.and_then(|digits| {
            digits.iter().try_fold(0, |value: u32, digit| {
                // Not `from_str_radix`, which takes a sign.
                Some(value * radix + char::from(*digit).to_digit(radix)?)
            })
        });
        let byte = value.and_then(|value| u8::try_from(value).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[count..] } else { tail };
    }
    bytes
}

/// Decodes `%20` and the like.
pub fn decode_percent(text: &str) -> Vec<u8> {
    unescape_bytes(text.as_bytes(), b'%', 2, 16)
}

/// Writes every byte as `%20` and the like that is neither a letter or digit of ASCII nor one of `plain`.
pub fn encode_percent(text: &str, plain: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_an_escape_stays() {
        for (text, expected) in [
            ("a%20b%C3%a9", "a b\u{e9}"),
            ("%", "%"),
            ("%4", "%4"),
            ("%4g", "%4g"),
            ("%+1", "%+1"),
            ("%%41", "%A"),
            ("\u{e9}%", "\u{e9}%"),
        ] {
            assert_eq!(decode_percent(text), expected.as_bytes(), "{text}");
        }
        assert_eq!(unescape_bytes(b"a\\040b\\134\\777\\", b'\\', 3, 8), b"a b\\\\777\\");
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let text = "a b/c:\u{e9}%41~";
        assert_eq!(encode_percent(text, b"/:"), "a%20b/c:%C3%A9%2541%7E");
        assert_eq!(decode_percent(&encode_percent(text, b"")), text.as_bytes());
    }
}
