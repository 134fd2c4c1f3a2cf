//! The escapes of `write`, for characters that are hard to type on a command line.

use delta_base::terminal_text::strip_terminal_controls;

/// An unknown or incomplete escape, without its backslash.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`\\{}` is not an escape: use \\n, \\r, \\t, \\e, \\xHH or \\\\, or `--raw` to type the text unchanged",
    strip_terminal_controls(.0)
)]
pub(crate) struct EscapeError(String);

/// Replaces the escapes in `text` by the bytes that they stand for.
pub(crate) fn unescape(text: &[u8]) -> Result<Vec<u8>, EscapeError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let (byte, length) = match rest {
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'e', ..] => (0x1b, 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => match (hex_digit_value(*high), hex_digit_value(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 3),
                _ => return Err(escape_error(&rest[..3])),
            },
            other => return Err(escape_error(&other[..other.len().min(1)])),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    Ok(bytes)
}

fn hex_digit_value(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn escape_error(escape: &[u8]) -> EscapeError {
    EscapeError(String::from_utf8_lossy(escape).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_5_escapes_stand_for_one_byte() {
        assert_eq!(unescape(br"a\n\r\t\e\x03\xfF\\n").unwrap(), b"a\n\r\t\x1b\x03\xff\\n");
        for (text, escape) in
            [(r"\q", "q"), (r"\", ""), (r"\x1", "x"), (r"\x1g", "x1g"), (r"\é", "�")]
        {
            assert_eq!(unescape(text.as_bytes()), Err(EscapeError(escape.to_owned())), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn c_14_5_every_byte_can_be_written(bytes: Vec<u8>, plain in "[^\\\\]*") {
            let escaped: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            proptest::prop_assert_eq!(unescape(escaped.as_bytes()).unwrap(), bytes);
            proptest::prop_assert_eq!(unescape(plain.as_bytes()).unwrap(), plain.as_bytes());
        }
    }
}
