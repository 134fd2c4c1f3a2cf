//! Output in bounded memory: the newest of it, and how far it was read.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// So much of the output is kept.
pub(super) const KEPT: usize = 1 << 20;

/// The newest bytes of a stream. Places in it are counted from the stream's beginning.
#[derive(Debug, Default)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    /// The place of the first byte that is kept.
    start: u64,
    /// Up to here it was read.
    read: u64,
}

/// The places of a ring, for a file beside that of its bytes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Places {
    start: u64,
    read: u64,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// How many bytes before it were not read and are not in it.
    pub(super) omitted: u64,
}

impl Ring {
    pub(super) fn restore(bytes: Vec<u8>, places: Places) -> Self {
        let end = places.start + bytes.len() as u64;
        Self { bytes: bytes.into(), start: places.start, read: places.read.min(end) }
    }

    pub(super) fn places(&self) -> Places {
        Places { start: self.start, read: self.read }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.from(self.start)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..surplus);
        self.start += surplus as u64;
    }

    /// Takes back the last character, unless it was read or ends a line.
    pub(super) fn pop_character(&mut self) {
        while self.end() > self.read.max(self.start) && self.bytes.back() != Some(&b'\n') {
            let byte = self.bytes.pop_back();
            if byte.is_none_or(|byte| byte & 0xc0 != 0x80) {
                break;
            }
        }
    }

    pub(super) fn last(&self) -> Option<u8> {
        self.bytes.back().copied()
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn unread(&self) -> u64 {
        self.end() - self.read
    }

    /// Where what was not read begins.
    pub(super) fn mark(&self) -> u64 {
        self.read
    }

    /// What lies behind a place, as far as it is kept.
    pub(super) fn from(&self, place: u64) -> Vec<u8> {
        self.bytes.range(self.index(place)..).copied().collect()
    }

    /// What was not read.
    pub(super) fn fresh(&self) -> Vec<u8> {
        self.from(self.read)
    }

    /// Reads the rest, at most `limit` bytes from its end.
    pub(super) fn take(&mut self, limit: usize) -> Piece {
        let end = self.end();
        let from = end.saturating_sub(limit as u64).max(self.read).max(self.start);
        let piece = Piece { bytes: self.from(from), omitted: from - self.read };
        self.read = end;
        piece
    }

    /// Says that all was read.
    pub(super) fn skip(&mut self) {
        self.read = self.end();
    }

    /// Says that the last `count` bytes were not read yet.
    pub(super) fn give_back(&mut self, count: usize) {
        self.read = self.end().saturating_sub(count as u64).max(self.start);
    }

    /// Where the last `count` lines begin. What follows the last newline is a line.
    pub(super) fn lines(&self, count: usize) -> u64 {
        let whole = self.bytes.len() - usize::from(self.last() == Some(b'\n'));
        let newlines = self.bytes.range(..whole).rev().enumerate();
        let mut before = newlines.filter(|(_, byte)| **byte == b'\n');
        match count.checked_sub(1) {
            None => self.end(),
            Some(skipped) => match before.nth(skipped) {
                Some((behind, _)) => self.start + (whole - behind) as u64,
                None => self.start,
            },
        }
    }

    fn index(&self, place: u64) -> usize {
        let index = place.saturating_sub(self.start);
        usize::try_from(index).map_or(self.bytes.len(), |index| index.min(self.bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_5_what_is_read_is_not_read_again() {
        let mut ring = Ring::default();
        ring.push(b"one\ntwo");
        assert_eq!(ring.take(100), Piece { bytes: b"one\ntwo".to_vec(), omitted: 0 });
        assert_eq!(ring.take(100), Piece { bytes: Vec::new(), omitted: 0 });
        ring.push(b"\nthree\n");
        assert_eq!(ring.from(ring.lines(2)), b"two\nthree\n");
        assert_eq!(ring.from(ring.lines(0)), b"");
        assert_eq!(ring.from(ring.lines(9)), b"one\ntwo\nthree\n");
        assert_eq!(ring.take(3), Piece { bytes: b"ee\n".to_vec(), omitted: 4 });
    }

    #[test]
    fn c_14_5_the_newest_output_is_kept() {
        let mut ring = Ring::default();
        ring.push(b"first");
        ring.push(&vec![b'x'; KEPT]);
        assert_eq!(ring.bytes().len(), KEPT);
        let piece = ring.take(KEPT * 2);
        assert_eq!((piece.bytes.len(), piece.omitted), (KEPT, 5));
        let again = Ring::restore(ring.bytes(), ring.places());
        assert_eq!((again.unread(), again.end()), (0, ring.end()));
    }

    #[test]
    fn c_14_5_a_character_that_was_read_stays() {
        let mut ring = Ring::default();
        ring.push("aé".as_bytes());
        ring.pop_character();
        assert_eq!(ring.fresh(), b"a");
        ring.skip();
        ring.pop_character();
        assert_eq!(ring.bytes(), b"a");
    }
}
