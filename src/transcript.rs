//! Messages as they are sent: each a JSON object, in one piece of text with the commas between them.
//!
//! Pure. So a long conversation is compared, searched and copied as one large piece of memory, not as thousands of small
//! ones.

use std::ops::Range;

/// Messages, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transcript {
    text: String,
    /// Where each message ends in it.
    ends: Vec<usize>,
}

impl Transcript {
    /// How many messages there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Adds a message.
    pub fn push(&mut self, message: &str) {
        if !self.ends.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(message);
        self.ends.push(self.text.len());
    }

    /// Puts a message, which comes in pieces, in the place of the one at `index`, which there is.
    pub fn replace(&mut self, index: usize, message: &[&str]) {
        let place = self.place(index);
        // Not `replace_range`, which goes byte by byte; mostly there is nothing behind.
        let behind = self.text.split_off(place.end);
        self.text.truncate(place.start);
        message.iter().for_each(|piece| self.text.push_str(piece));
        let length = self.text.len() - place.start;
        self.text.push_str(&behind);
        let moved = |end: usize| end - place.len() + length;
        self.ends[index..].iter_mut().for_each(|end| *end = moved(*end));
    }

    /// The messages of a range, which holds at least one.
    pub fn messages(&self, range: Range<usize>) -> Messages<'_> {
        let (first, last) = (range.start, range.end - 1);
        let origin = self.place(first).start;
        Messages {
            text: &self.text[origin..self.ends[last]],
            inner: &self.ends[first..last],
            origin,
        }
    }

    fn place(&self, index: usize) -> Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] + 1);
        start..self.ends[index]
    }
}

/// Messages that follow each other; at least one.
#[derive(Debug, Clone, Copy)]
pub struct Messages<'a> {
    text: &'a str,
    /// Where all but the last end, counted from where the text is at `origin`.
    inner: &'a [usize],
    origin: usize,
}

impl<'a> From<&'a str> for Messages<'a> {
    /// One message.
    fn from(message: &'a str) -> Self {
        Self { text: message, inner: &[], origin: 0 }
    }
}

impl<'a> Messages<'a> {
    /// How many they are.
    pub fn count(self) -> usize {
        self.inner.len() + 1
    }

    /// All of them, with the commas between them.
    pub fn text(self) -> &'a str {
        self.text
    }

    /// Where each ends in the text.
    pub fn ends(self) -> impl Iterator<Item = usize> + use<'a> {
        let inner = self.inner.iter().map(move |end| end - self.origin);
        inner.chain([self.text.len()])
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut start = 0;
        self.ends().map(move |end| {
            let message = &self.text[start..end];
            start = end + 1;
            message
        })
    }

    /// Those behind the first `count`; none when there are no more.
    pub fn behind(self, count: usize) -> Option<Self> {
        let Some(last) = count.checked_sub(1) else { return Some(self) };
        let start = self.inner.get(last)? + 1;
        Some(Self {
            text: &self.text[start - self.origin..],
            inner: &self.inner[count..],
            origin: start,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A transcript is what a list of its messages is.
        #[test]
        fn a_transcript_holds_each_message_as_it_was_put_in(
            said in prop::collection::vec("[ab,]{0,3}", 1..8),
            changes in prop::collection::vec((any::<prop::sample::Index>(), "[cd,]{0,3}"), 0..8),
            ends in any::<(prop::sample::Index, prop::sample::Index)>(),
            skipped in 0..9_usize,
        ) {
            let (mut list, mut transcript) = (said.clone(), Transcript::default());
            said.iter().for_each(|message| transcript.push(message));
            for (index, message) in changes {
                let index = index.index(list.len());
                transcript.replace(index, &[&message[..message.len() / 2], &message[message.len() / 2..]]);
                list[index] = message;
            }
            prop_assert_eq!(transcript.count(), list.len());
            let (one, other) = (ends.0.index(list.len()), ends.1.index(list.len()));
            let range = one.min(other)..one.max(other) + 1;
            let (messages, expected) = (transcript.messages(range.clone()), &list[range]);
            prop_assert_eq!(messages.count(), expected.len());
            prop_assert_eq!(messages.text(), expected.join(","));
            prop_assert!(messages.iter().eq(expected));
            let rest = messages.behind(skipped).map(|rest| rest.iter().collect::<Vec<_>>());
            prop_assert!(rest.into_iter().flatten().eq(expected.iter().skip(skipped)));
        }
    }
}
