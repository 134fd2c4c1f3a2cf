//! The checksum at the end of a line that delta writes: the CRC-32 of all bytes before it, as the JSON member `crc`.
//!
//! It detects damage by a disk, a copy or an editor; it does not protect against deliberate changes. Only readers of records
//! that verify them check it.

const CHECKSUM_PREFIX: &[u8] = b",\"crc\":\"";
const CHECKSUM_SUFFIX: &[u8] = b"\"}\n";
const CHECKSUM_LENGTH: usize = CHECKSUM_PREFIX.len() + 8 + CHECKSUM_SUFFIX.len();

/// The CRC-32 of `bytes` (as in zlib, gzip and PNG) as eight hexadecimal digits.
pub fn crc32_hex(bytes: &[u8]) -> String {
    crate::hex::encode_hex(&crc32fast::hash(bytes).to_be_bytes())
}

/// The CRC-32 of bytes that come in pieces.
#[derive(Debug, Clone, Default)]
pub struct RunningChecksum(crc32fast::Hasher);

impl RunningChecksum {
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC-32 of all pieces as eight hexadecimal digits.
    pub fn to_hex(&self) -> String {
        crate::hex::encode_hex(&self.0.clone().finalize().to_be_bytes())
    }
}

/// Adds the checksum to `line`, a JSON object with its newline, as its last member.
pub fn append_checksum(mut line: String) -> String {
    if let Some(open) = line.strip_suffix("}\n") {
        let checksum = crc32_hex(open.as_bytes());
        line.truncate(open.len());
        line.reserve(CHECKSUM_LENGTH);
        line.push_str(",\"crc\":\"");
        line.push_str(&checksum);
        line.push_str("\"}\n");
    }
    line
}

/// The result of [`check_line_checksum`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineChecksum {
    /// The line is unchanged.
    Valid,
    /// The line was changed.
    Mismatch {
        /// The checksum in the line.
        recorded: String,
        /// The checksum of the bytes before it.
        computed: String,
    },
    /// The line has no checksum: an older delta wrote it.
    Missing,
}

/// Checks the checksum of `line`, which includes its newline.
pub fn check_line_checksum(line: &[u8]) -> LineChecksum {
    let Some(start) = line.len().checked_sub(CHECKSUM_LENGTH) else { return LineChecksum::Missing };
    let (body, member) = line.split_at(start);
    let (prefix, rest) = member.split_at(CHECKSUM_PREFIX.len());
    let (digits, suffix) = rest.split_at(8);
    let matching =
        count_equal_bytes(prefix, CHECKSUM_PREFIX) + count_equal_bytes(suffix, CHECKSUM_SUFFIX);
    let frame_length = CHECKSUM_PREFIX.len() + CHECKSUM_SUFFIX.len();
    // A line with one wrong byte around the digits has a damaged checksum, not none.
    if matching + 1 < frame_length {
        return LineChecksum::Missing;
    }
    let computed = crc32_hex(body);
    let recorded = String::from_utf8_lossy(digits).into_owned();
    if matching == frame_length && recorded == computed {
        return LineChecksum::Valid;
    }
    LineChecksum::Mismatch { recorded, computed }
}

fn count_equal_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).filter(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_equals_zlibs() {
        // python3 -c 'import zlib; print("%08x" % zlib.crc32(b"123456789"))'
        assert_eq!(crc32_hex(b"123456789"), "cbf43926");
        let mut pieces = RunningChecksum::default();
        [&b"1234"[..], b"", b"56789"].into_iter().for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.to_hex(), "cbf43926");
        assert_eq!(append_checksum("{\"a\":1}\n".to_owned()), "{\"a\":1,\"crc\":\"a702fc6e\"}\n");
    }

    #[test]
    fn every_changed_bit_of_a_line_is_detected() {
        let line =
            append_checksum("{\"type\":\"X\",\"seq\":1,\"text\":\"ä\"}\n".to_owned()).into_bytes();
        assert_eq!(check_line_checksum(&line), LineChecksum::Valid);
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut changed = line.clone();
                changed[at] ^= 1 << bit;
                assert!(
                    matches!(check_line_checksum(&changed), LineChecksum::Mismatch { .. }),
                    "byte {at}, bit {bit}"
                );
            }
        }
        assert_eq!(
            check_line_checksum(b"{\"type\":\"X\",\"seq\":1,\"text\":\"a longer one\"}\n"),
            LineChecksum::Missing
        );
        assert_eq!(check_line_checksum(b"{}\n"), LineChecksum::Missing);
    }
}
