//! Messages as they are sent: JSON objects in one string, separated by commas.
//!
//! Pure. A long conversation is compared, searched and copied as one block of memory instead of thousands of small ones.

use std::ops::Range;

/// A growing list of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageBuffer {
    text: String,
    /// The end of each message in `text`.
    ends: Vec<usize>,
}

impl MessageBuffer {
    /// The number of messages.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Appends a message, which must be a JSON object.
    pub fn push(&mut self, message: &str) {
        if !self.ends.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(message);
        self.ends.push(self.text.len());
    }

    /// The messages in `range`, which must not be empty.
    pub fn slice(&self, range: Range<usize>) -> MessageSlice<'_> {
        let last = range.end - 1;
        let origin = self.message_range(range.start).start;
        MessageSlice {
            text: &self.text[origin..self.ends[last]],
            inner_ends: &self.ends[range.start..last],
            origin,
        }
    }

    fn message_range(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        start..self.ends[index]
    }
}

/// One or more consecutive messages.
#[derive(Debug, Clone, Copy)]
pub struct MessageSlice<'a> {
    text: &'a str,
    /// The ends of all messages but the last, as offsets in the buffer, where `text` starts at `origin`.
    inner_ends: &'a [usize],
    origin: usize,
}

impl<'a> From<&'a str> for MessageSlice<'a> {
    /// A slice of one message.
    fn from(message: &'a str) -> Self {
        Self { text: message, inner_ends: &[], origin: 0 }
    }
}

impl<'a> MessageSlice<'a> {
    /// The number of messages, at least 1.
    pub fn count(self) -> usize {
        self.inner_ends.len() + 1
    }

    /// The messages, separated by commas.
    pub fn text(self) -> &'a str {
        self.text
    }

    /// The end of each message in [`MessageSlice::text`].
    pub fn ends(self) -> impl Iterator<Item = usize> + use<'a> {
        let inner = self.inner_ends.iter().map(move |end| end - self.origin);
        inner.chain([self.text.len()])
    }

    /// The text of each message.
    pub fn iter(self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut start = 0;
        self.ends().map(move |end| {
            let message = &self.text[start..end];
            start = end + 1;
            message
        })
    }

    /// The messages after the first `count`, `None` if there are none.
    pub fn skip_first(self, count: usize) -> Option<Self> {
        let Some(last) = count.checked_sub(1) else { return Some(self) };
        let start = self.inner_ends.get(last)? + 1;
        Some(Self {
            text: &self.text[start - self.origin..],
            inner_ends: &self.inner_ends[count..],
            origin: start,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_buffer_holds_each_message_as_it_was_pushed(
            messages in prop::collection::vec("[ab,]{0,3}", 1..8),
            ends in any::<(prop::sample::Index, prop::sample::Index)>(),
            skipped in 0..9_usize,
        ) {
            let mut buffer = MessageBuffer::default();
            messages.iter().for_each(|message| buffer.push(message));
            prop_assert_eq!(buffer.count(), messages.len());
            let (one, other) = (ends.0.index(messages.len()), ends.1.index(messages.len()));
            let range = one.min(other)..one.max(other) + 1;
            let (slice, expected) = (buffer.slice(range.clone()), &messages[range]);
            prop_assert_eq!(slice.count(), expected.len());
            prop_assert_eq!(slice.text(), expected.join(","));
            prop_assert!(slice.iter().eq(expected));
            let rest = slice.skip_first(skipped).map(|rest| rest.iter().collect::<Vec<_>>());
            prop_assert!(rest.into_iter().flatten().eq(expected.iter().skip(skipped)));
        }
    }
}
