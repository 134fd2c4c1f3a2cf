//! Output in bounded memory: the newest bytes, and how far they were read.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many bytes are kept.
pub(super) const RING_CAPACITY: usize = 1 << 20;

/// The newest bytes of a stream. Positions count from the beginning of the stream.
#[derive(Debug, Default)]
pub(super) struct OutputRing {
    bytes: VecDeque<u8>,
    /// The position of the first byte that is kept.
    start: u64,
    /// The position of the first byte that was not read.
    read: u64,
}

/// The positions of a ring, saved separately from its bytes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct RingPositions {
    start: u64,
    read: u64,
}

/// Bytes read from a ring.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RingExcerpt {
    pub(super) bytes: Vec<u8>,
    /// How many unread bytes before them were skipped.
    pub(super) omitted: u64,
}

impl OutputRing {
    pub(super) fn restore(bytes: Vec<u8>, positions: RingPositions) -> Self {
        let RingPositions { start, read } = positions;
        let end = start + bytes.len() as u64;
        Self { bytes: bytes.into(), start, read: read.min(end) }
    }

    pub(super) fn positions(&self) -> RingPositions {
        RingPositions { start: self.start, read: self.read }
    }

    /// All bytes that are kept.
    pub(super) fn contents(&self) -> Vec<u8> {
        self.bytes_from(self.start)
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let surplus = self.bytes.len().saturating_sub(RING_CAPACITY);
        self.bytes.drain(..surplus);
        self.start += surplus as u64;
    }

    /// Removes and returns the last character, unless it was read or ends a line.
    pub(super) fn pop_character(&mut self) -> Option<char> {
        let mut bytes = Vec::new();
        while self.end_position() > self.read.max(self.start) && self.last_byte() != Some(b'\n') {
            let byte = self.bytes.pop_back()?;
            bytes.insert(0, byte);
            if byte & 0xc0 != 0x80 {
                break;
            }
        }
        std::str::from_utf8(&bytes).ok()?.chars().next()
    }

    pub(super) fn last_byte(&self) -> Option<u8> {
        self.bytes.back().copied()
    }

    pub(super) fn end_position(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    pub(super) fn unread_count(&self) -> u64 {
        self.end_position() - self.read
    }

    /// Where following begins: at the last `lines`, or else at the first unread byte.
    pub(super) fn follow_position(&self, lines: Option<usize>) -> u64 {
        lines.map_or(self.read, |lines| self.last_lines_position(lines))
    }

    /// The bytes after a position, as far as they are kept.
    pub(super) fn bytes_from(&self, position: u64) -> Vec<u8> {
        let index = usize::try_from(position.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.bytes.range(index.min(self.bytes.len())..).copied().collect()
    }

    pub(super) fn unread_bytes(&self) -> Vec<u8> {
        self.bytes_from(self.read)
    }

    /// Reads all unread bytes, of which it returns the last `limit`.
    pub(super) fn take_unread(&mut self, limit: usize) -> RingExcerpt {
        let end = self.end_position();
        let from = end.saturating_sub(limit as u64).max(self.read).max(self.start);
        let excerpt = RingExcerpt { bytes: self.bytes_from(from), omitted: from - self.read };
        self.read = end;
        excerpt
    }

    /// Marks all bytes as read.
    pub(super) fn mark_read(&mut self) {
        self.read = self.end_position();
    }

    /// Marks the last `count` bytes, and no others, as unread.
    pub(super) fn mark_unread(&mut self, count: usize) {
        self.read = self.end_position().saturating_sub(count as u64).max(self.start);
    }

    /// Where the last `count` lines begin. Bytes after the last newline are a line.
    pub(super) fn last_lines_position(&self, count: usize) -> u64 {
        let Some(skipped) = count.checked_sub(1) else { return self.end_position() };
        let length = self.bytes.len() - usize::from(self.last_byte() == Some(b'\n'));
        let backwards = self.bytes.range(..length).rev().enumerate();
        match backwards.filter(|(_, byte)| **byte == b'\n').nth(skipped) {
            Some((distance, _)) => self.start + (length - distance) as u64,
            None => self.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_5_output_is_read_once() {
        let mut ring = OutputRing::default();
        ring.push(b"one\ntwo");
        assert_eq!(ring.take_unread(100), RingExcerpt { bytes: b"one\ntwo".to_vec(), omitted: 0 });
        assert_eq!(ring.take_unread(100), RingExcerpt { bytes: Vec::new(), omitted: 0 });
        ring.push(b"\nthree\n");
        assert_eq!(ring.bytes_from(ring.last_lines_position(2)), b"two\nthree\n");
        assert_eq!(ring.bytes_from(ring.last_lines_position(0)), b"");
        assert_eq!(ring.bytes_from(ring.last_lines_position(9)), b"one\ntwo\nthree\n");
        assert_eq!(ring.take_unread(3), RingExcerpt { bytes: b"ee\n".to_vec(), omitted: 4 });
    }

    #[test]
    fn c_14_5_the_newest_output_is_kept() {
        let mut ring = OutputRing::default();
        ring.push(b"first");
        ring.push(&vec![b'x'; RING_CAPACITY]);
        assert_eq!(ring.contents().len(), RING_CAPACITY);
        let excerpt = ring.take_unread(RING_CAPACITY * 2);
        assert_eq!((excerpt.bytes.len(), excerpt.omitted), (RING_CAPACITY, 5));
        let restored = OutputRing::restore(ring.contents(), ring.positions());
        assert_eq!((restored.unread_count(), restored.end_position()), (0, ring.end_position()));
    }

    #[test]
    fn c_14_5_a_character_that_was_read_stays() {
        let mut ring = OutputRing::default();
        ring.push("aé".as_bytes());
        ring.pop_character();
        assert_eq!(ring.unread_bytes(), b"a");
        ring.mark_read();
        ring.pop_character();
        assert_eq!(ring.contents(), b"a");
    }
}
