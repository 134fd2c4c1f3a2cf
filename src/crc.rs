//! The check value at the end of a line that delta writes: the CRC-32 of all bytes before it.
//!
//! It finds what a disk, a copy or an editor changed; against somebody who means to change a line it protects nothing.
//! `delta replay` looks at it and tells what was changed; the fold of a journal does, to know what need not be looked
//! through, and refuses nothing for it.

/// What stands before the eight hexadecimal digits.
const KEY: &[u8] = b",\"crc\":\"";
/// What stands behind them, with the newline of the line.
const END: &[u8] = b"\"}\n";
/// How long all of it is.
const LENGTH: usize = KEY.len() + 8 + END.len();

/// The check value of `bytes`: CRC-32 as zlib, gzip and PNG have it, in eight hexadecimal digits.
pub fn of(bytes: &[u8]) -> String {
    digits(crc32fast::hash(bytes))
}

/// A check value in digits.
pub fn digits(value: u32) -> String {
    crate::text::hex(&value.to_be_bytes())
}

/// `line`, a JSON object with a newline, with its check value as the last member.
pub fn sealed(mut line: String) -> String {
    if let Some(open) = line.strip_suffix("}\n") {
        let value = of(open.as_bytes());
        line.truncate(open.len());
        line.reserve(LENGTH);
        line.push_str(",\"crc\":\"");
        line.push_str(&value);
        line.push_str("\"}\n");
    }
    line
}

/// What stands before the check value of `line`, its newline apart, when that is right.
pub fn unsealed(line: &str) -> Option<&str> {
    let (body, seal) = line.split_at_checked(line.len().checked_sub(LENGTH - 1)?)?;
    let written = seal.as_bytes().strip_prefix(KEY)?.strip_suffix(b"\"}")?;
    (of(body.as_bytes()).as_bytes() == written).then_some(body)
}

/// What the check value of a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// The line is as it was written.
    Whole,
    /// It is not.
    Broken {
        /// The digits that stand there.
        written: String,
        /// Those of the bytes before them.
        found: String,
    },
    /// It has none: an older delta wrote it.
    None,
}

/// Looks at the check value of `line`, its newline included.
pub fn look(line: &[u8]) -> Seal {
    let Some(start) = line.len().checked_sub(LENGTH) else { return Seal::None };
    let (body, seal) = line.split_at(start);
    let (key, rest) = seal.split_at(KEY.len());
    let (written, end) = rest.split_at(8);
    let same = |one: &[u8], other: &[u8]| one.iter().zip(other).filter(|(a, b)| a == b).count();
    let fixed = KEY.len() + END.len();
    // One byte of its frame may be what was changed.
    let right = same(key, KEY) + same(end, END);
    if right + 1 < fixed {
        return Seal::None;
    }
    let found = of(body);
    let written = String::from_utf8_lossy(written).into_owned();
    if right == fixed && written == found { Seal::Whole } else { Seal::Broken { written, found } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_is_that_of_zlib() {
        // python3 -c 'import zlib; print("%08x" % zlib.crc32(b"123456789"))'
        assert_eq!(of(b"123456789"), "cbf43926");
        assert_eq!(sealed("{\"a\":1}\n".to_owned()), "{\"a\":1,\"crc\":\"a702fc6e\"}\n");
    }

    #[test]
    fn every_changed_byte_of_a_line_breaks_its_seal() {
        let line = sealed("{\"type\":\"X\",\"seq\":1,\"text\":\"ä\"}\n".to_owned()).into_bytes();
        assert_eq!(look(&line), Seal::Whole);
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.clone();
                changed[at] ^= 1 << bit;
                assert!(matches!(look(&changed), Seal::Broken { .. }), "byte {at}, bit {bit}");
            }
        }
        assert_eq!(look(b"{\"type\":\"X\",\"seq\":1,\"text\":\"a longer one\"}\n"), Seal::None);
        assert_eq!(look(b"{}\n"), Seal::None);
    }
}
