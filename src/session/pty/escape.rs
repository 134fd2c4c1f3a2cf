//! The escapes of `write`: characters that a command line can hold only with effort.

use crate::text::printable;

/// Why a text cannot be written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`\\{}` is no escape: write \\n, \\r, \\t, \\e, \\xHH or \\\\, or give `--raw` for a text without escapes",
    printable(.0)
)]
pub struct NoEscape(String);

/// `text` with its escapes replaced by what they stand for.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, NoEscape> {
    let mut written = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        if *byte != b'\\' {
            written.push(*byte);
            continue;
        }
        let (meant, length) = match rest {
            [b'n', ..] => (b'\n', 1),
            [b'r', ..] => (b'\r', 1),
            [b't', ..] => (b'\t', 1),
            [b'e', ..] => (0x1b, 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high * 16 + low, 3),
                _ => return Err(refused(&rest[..3])),
            },
            other => return Err(refused(&other[..other.len().min(1)])),
        };
        written.push(meant);
        rest = &rest[length..];
    }
    Ok(written)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn refused(what: &[u8]) -> NoEscape {
    NoEscape(String::from_utf8_lossy(what).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_5_escapes_stand_for_one_byte() {
        assert_eq!(unescape(br"a\n\r\t\e\x03\xfF\\n").unwrap(), b"a\n\r\t\x1b\x03\xff\\n");
        for (text, what) in
            [(r"\q", "q"), (r"\", ""), (r"\x1", "x"), (r"\x1g", "x1g"), (r"\é", "�")]
        {
            assert_eq!(unescape(text.as_bytes()), Err(NoEscape(what.to_owned())), "{text}");
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
