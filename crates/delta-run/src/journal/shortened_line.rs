//! Reads a line of JSON with its long strings cut, for readers that need only the short ones.
//!
//! A line can have hundreds of megabytes, and a command that lists runs must not need as much memory.

use std::io::{self, BufRead};

/// The most bytes of a string that are kept, in the form in which the file has them.
const MAX_STRING_BYTES: usize = 4096;
/// The most bytes of a line that are kept, after its strings were cut.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Where the scan of a line is.
#[derive(Debug, Default)]
struct Scan {
    is_in_string: bool,
    string_bytes: usize,
    /// Whether the rest of the string is dropped.
    is_dropping: bool,
    /// The bytes of the current escape sequence that follow.
    escape_bytes: usize,
    /// The digits of a `\u` escape so far.
    digits: Vec<u8>,
    /// Whether the last character was the first half of a surrogate pair, which must not be without its second.
    is_half_pair: bool,
}

impl Scan {
    /// Adds what is kept of the next piece of the line to `line`.
    fn push_piece(&mut self, mut piece: &[u8], line: &mut Vec<u8>) {
        while let Some((byte, rest)) = piece.split_first() {
            if self.accept(*byte) {
                line.push(*byte);
            }
            piece = rest;
            // What is dropped ends at the next quote that no backslash precedes.
            if self.is_dropping && self.escape_bytes == 0 {
                piece = &piece[memchr::memchr2(b'"', b'\\', piece).unwrap_or(piece.len())..];
            }
        }
    }

    /// Whether the next byte of the line is kept.
    fn accept(&mut self, byte: u8) -> bool {
        if !self.is_in_string {
            if byte == b'"' {
                *self = Self { is_in_string: true, ..Self::default() };
            }
            return true;
        }
        if self.escape_bytes > 0 {
            self.continue_escape(byte);
        } else if byte == b'"' {
            *self = Self::default();
            return true;
        } else {
            let is_boundary = byte & 0xc0 != 0x80 && !self.is_half_pair;
            self.is_dropping |= is_boundary && self.string_bytes >= MAX_STRING_BYTES;
            self.is_half_pair = false;
            if byte == b'\\' {
                self.escape_bytes = 1;
                self.digits.clear();
            }
        }
        self.string_bytes += 1;
        !self.is_dropping
    }

    fn continue_escape(&mut self, byte: u8) {
        self.escape_bytes -= 1;
        if byte == b'u' && self.digits.is_empty() && self.escape_bytes == 0 {
            self.escape_bytes = 4;
            self.digits.push(byte);
        } else if !self.digits.is_empty() {
            self.digits.push(byte);
            let is_first_half = matches!(
                self.digits[..],
                [_, b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', _, _]
            );
            self.is_half_pair = self.escape_bytes == 0 && is_first_half;
        }
    }
}

/// Reads a line, including its newline, into `line`, which is empty. Returns false at the end of the file.
///
/// # Errors
/// The source cannot be read, or the line is too long even with its strings cut.
pub fn read_shortened_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut scan = Scan::default();
    let mut has_bytes = false;
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(has_bytes);
        }
        has_bytes = true;
        let end = memchr::memchr(b'\n', available);
        let piece = &available[..end.unwrap_or(available.len())];
        scan.push_piece(piece, line);
        let length = piece.len() + usize::from(end.is_some());
        reader.consume(length);
        if line.len() > MAX_LINE_BYTES {
            let reason =
                format!("a line has more than {MAX_LINE_BYTES} bytes without its long texts");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        if end.is_some() {
            line.push(b'\n');
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value as Json;

    fn shorten(text: &str) -> Vec<u8> {
        let mut line = Vec::new();
        let mut reader = io::BufReader::with_capacity(7, text.as_bytes());
        assert!(read_shortened_line(&mut reader, &mut line).unwrap());
        line
    }

    #[test]
    fn c_15_5_a_long_string_is_cut_and_the_rest_of_the_line_stays() {
        for long in ["x", "\\\"", "ä", "😀", "\\ud83d\\ude00", "\\u00e4", "\\\\"] {
            let text =
                format!("{{\"a\":\"{}\",\"b\":[\"{}\",1]}}\n", long.repeat(5000), "y".repeat(9));
            let line = shorten(&text);
            assert!(line.len() < MAX_STRING_BYTES + 64, "{long}: {}", line.len());
            let value: Json = serde_json::from_slice(&line).unwrap();
            assert_eq!(value["b"], serde_json::json!(["yyyyyyyyy", 1]), "{long}");
        }
        let many = format!("[{}1]\n", "1,".repeat(MAX_LINE_BYTES));
        let mut reader = many.as_bytes();
        let refused = read_shortened_line(&mut reader, &mut Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    }

    proptest! {
        #[test]
        fn a_line_without_long_strings_stays_as_it_is(text in "[^\n]{0,200}") {
            let json = serde_json::to_string(&text).unwrap() + "\n";
            prop_assert_eq!(shorten(&json), json.as_bytes());
        }
    }
}
