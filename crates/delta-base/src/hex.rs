//! Hexadecimal digits, and hashes written in them.

use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// `bytes` as lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

/// Decodes bytes from two hexadecimal digits each; `None` for any other text.
pub fn decode_hex(text: &str) -> Option<Vec<u8>> {
    text.as_bytes().chunks(2).map(decode_byte).collect()
}

fn decode_byte(digits: &[u8]) -> Option<u8> {
    let [high, low] = digits else { return None };
    u8::try_from(char::from(*high).to_digit(16)? << 4 | char::from(*low).to_digit(16)?).ok()
}

/// The SHA-256 of `content` in hexadecimal digits, as `sha256sum` prints it.
pub fn sha256_hex(content: impl AsRef<[u8]>) -> String {
    encode_hex(&Sha256::digest(content))
}

/// The SHA-256 of all that `reader` gives, in hexadecimal digits.
///
/// # Errors
/// It could not be read.
pub fn sha256_hex_of_reader(mut reader: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(encode_hex(&hasher.finalize())),
            length => hasher.update(&buffer[..length]),
        }
    }
}
