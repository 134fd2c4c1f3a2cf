//! The body of a request, built from the body of the request before it.

use super::RequestMessages;
use crate::conversation::message_buffer::MessageSlice;
use delta_base::hex::encode_hex;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;

/// The exact text of a request, and where its messages are in it.
///
/// Consecutive requests of a run differ by little. [`RequestBody::update`] costs a comparison of what they share and a copy
/// of what is new, and the hash is computed only from the first difference on.
#[derive(Debug, Clone, Default)]
pub struct RequestBody {
    text: Arc<String>,
    /// The range of each message in the text.
    messages: Vec<Range<usize>>,
    /// The number of first messages that the previous request has too.
    shared: usize,
    /// The hash of the text up to the end of the last message and the length of that text, once it was computed.
    hash: Option<(Sha256, usize)>,
}

impl RequestBody {
    /// The request with this text.
    pub fn from_text(text: &str) -> Self {
        let mut body = Self::default();
        let (head, messages, tail) = split_request(text);
        body.rebuild(head, 0, messages.into_iter(), tail);
        body
    }

    /// The exact text of the request.
    pub fn text(&self) -> &Arc<String> {
        &self.text
    }

    /// The range of each message in the text.
    pub fn messages(&self) -> &[Range<usize>] {
        &self.messages
    }

    /// The text of the request without its first `count` messages.
    pub fn without_first_messages(&self, count: usize) -> String {
        let end = self.messages.last().map_or(0, |last| last.end);
        let start = self.messages.get(count).map_or(end, |first| first.start);
        format!("{}{}", self.head(), &self.text[start..])
    }

    /// The text of the last message, empty if there is none.
    pub fn last_message(&self) -> &str {
        self.messages.last().map_or("", |range| &self.text[range.clone()])
    }

    /// The number of first messages that the previous request has too.
    pub fn shared_messages(&self) -> usize {
        self.shared
    }

    /// Lowers the number of shared messages to at most `shared`: for a body that replaces another body of the same request,
    /// which shared that many.
    pub fn limit_shared_messages(&mut self, shared: usize) {
        self.shared = self.shared.min(shared);
    }

    /// Turns this body into the next request: `head`, the messages separated by commas, and `tail`.
    pub fn update(&mut self, head: &str, messages: &[MessageSlice<'_>], tail: &str) {
        self.update_unless(head, messages, tail, |_| false);
    }

    /// Updates the body unless `rejects` returns true for messages that are new in the request. Returns whether it was
    /// updated.
    pub fn update_unless(
        &mut self,
        head: &str,
        messages: &[MessageSlice<'_>],
        tail: &str,
        rejects: impl Fn(MessageSlice<'_>) -> bool,
    ) -> bool {
        let (shared, new) = self.split_new_messages(head, messages);
        let is_accepted = !new.clone().any(rejects);
        if is_accepted {
            self.rebuild(head, shared, new.flat_map(MessageSlice::iter), tail);
        }
        is_accepted
    }

    /// The number of first messages that this body has too, after the same `head`, and the other messages.
    fn split_new_messages<'m>(
        &self,
        head: &str,
        messages: &'m [MessageSlice<'m>],
    ) -> (usize, impl Iterator<Item = MessageSlice<'m>> + Clone + use<'m>) {
        let mut shared = 0;
        let mut new = messages;
        let mut partly_new = None;
        while let [next, rest @ ..] = new
            && self.head() == head
        {
            let count = self.count_shared_messages(shared, *next);
            shared += count;
            new = rest;
            if count < next.count() {
                partly_new = next.skip_first(count);
                break;
            }
        }
        (shared, partly_new.into_iter().chain(new.iter().copied()))
    }

    /// How many first messages of the slice equal the messages of this body from the one at `index` on.
    fn count_shared_messages(&self, index: usize, messages: MessageSlice<'_>) -> usize {
        let ranges = self.messages.get(index..).unwrap_or_default();
        let Some(start) = ranges.first().map(|first| first.start) else { return 0 };
        let ends = ranges.iter().map(|range| range.end - start);
        let count = ends.zip(messages.ends()).take_while(|(old, new)| old == new).count();
        let ranges = &ranges[..count];
        let Some(end) = ranges.last().map(|last| last.end) else { return 0 };
        let old = &self.text.as_bytes()[start..end];
        let new = messages.text().as_bytes();
        if new.starts_with(old) {
            return count;
        }
        let equal_bytes = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        ranges.partition_point(|range| range.end - start <= equal_bytes)
    }

    /// Turns this body into the next request: `head`, the first `shared` messages of this body, `messages` and `tail`.
    pub(super) fn rebuild<'m>(
        &mut self,
        head: &str,
        shared: usize,
        messages: impl Iterator<Item = &'m str>,
        tail: &str,
    ) {
        let start = self.messages.first().map_or(0, |first| first.start);
        self.messages.truncate(shared);
        self.shared = self.messages.len();
        let end = self.messages.last().map_or(start, |last| last.end);
        let text = Arc::make_mut(&mut self.text);
        text.truncate(end);
        let has_same_head = text.get(..start) == Some(head);
        self.hash = self.hash.take().filter(|(_, hashed)| *hashed <= end && has_same_head);
        if !has_same_head {
            text.replace_range(..start, head);
            for range in &mut self.messages {
                *range = range.start - start + head.len()..range.end - start + head.len();
            }
        }
        for message in messages {
            if !self.messages.is_empty() {
                text.push(',');
            }
            let start = text.len();
            text.push_str(message);
            self.messages.push(start..text.len());
        }
        text.push_str(tail);
    }

    /// The text before the first message.
    fn head(&self) -> &str {
        &self.text[..self.messages.first().map_or(0, |first| first.start)]
    }

    /// The SHA-256 hash of the text, in hexadecimal digits.
    pub fn sha256(&mut self) -> String {
        let end = self.messages.last().map_or(0, |last| last.end);
        let prefix = self.hash.take().filter(|(_, hashed)| *hashed <= end);
        let (mut hash, hashed) = prefix.unwrap_or_default();
        hash.update(&self.text.as_bytes()[hashed..end]);
        self.hash = Some((hash.clone(), end));
        hash.update(&self.text.as_bytes()[end..]);
        encode_hex(&hash.finalize())
    }

    /// Whether `sent`, which was sent instead of this text, has the same messages in the same ranges.
    pub(super) fn has_same_messages(&self, sent: &str) -> bool {
        let end = self.messages.last().map_or(0, |last| last.end);
        sent.get(..end).is_some_and(|start| start == &self.text[..end])
    }
}

/// The text before the messages of a request, the messages, and the text after them. A request that has none, or more than
/// commas between them, is all before them.
pub(super) fn split_request(text: &str) -> (&str, Vec<&str>, &str) {
    let list: RequestMessages<'_> = serde_json::from_str(text).unwrap_or_default();
    let messages: Vec<&str> = list.messages.iter().map(|message| message.get()).collect();
    let Some((first, last)) = messages.first().zip(messages.last()) else {
        return (text, messages, "");
    };
    let start = first.as_ptr() as usize - text.as_ptr() as usize;
    let end = last.as_ptr() as usize - text.as_ptr() as usize + last.len();
    let commas = messages.len() - 1;
    if end - start != messages.iter().map(|message| message.len()).sum::<usize>() + commas {
        return (text, Vec::new(), "");
    }
    (&text[..start], messages, &text[end..])
}

#[cfg(test)]
mod tests {
    use super::super::sha256_hex;
    use super::*;
    use crate::conversation::message_buffer::MessageBuffer;
    use proptest::prelude::*;

    proptest! {
        /// An updated body equals a body built from nothing, and `shared_messages` counts what it shares with the one before.
        #[test]
        fn c_6_5_a_body_out_of_another_is_as_one_out_of_nothing(
            requests in prop::collection::vec(
                (
                    "[{h]{0,2}",
                    prop::collection::vec("[ab]{0,3}", 0..5),
                    0..5_usize,
                    "[}t]{0,2}",
                    any::<bool>(),
                ),
                1..6,
            ),
        ) {
            let mut body = RequestBody::default();
            let mut before: Option<(String, Vec<String>)> = None;
            for (head, messages, apart, tail, hashed) in requests {
                let mut transcript = MessageBuffer::default();
                messages.iter().for_each(|message| transcript.push(message));
                let single = messages[..apart.min(messages.len())].iter();
                let mut pieces: Vec<_> = single.map(|message| MessageSlice::from(message.as_str())).collect();
                if apart < messages.len() {
                    pieces.push(transcript.slice(apart..messages.len()));
                }
                let mut tried = body.clone();
                let refuses = |some: MessageSlice<'_>| some.text().contains('b');
                let is_made = tried.update_unless(&head, &pieces, &tail, refuses);
                let last = Arc::clone(body.text());
                body.update(&head, &pieces, &tail);
                let has_refused = messages[body.shared_messages()..].iter().any(|new| new.contains('b'));
                prop_assert_eq!(is_made, !has_refused);
                prop_assert_eq!(tried.text(), if is_made { body.text() } else { &last });
                let mut fresh = RequestBody::default();
                fresh.update(&head, &pieces, &tail);
                let text = format!("{head}{}{tail}", messages.join(","));
                prop_assert_eq!((&**body.text(), &**fresh.text()), (&text, &text));
                prop_assert_eq!(body.messages(), fresh.messages());
                let marked = body.messages().iter().map(|place| &text[place.clone()]);
                prop_assert!(marked.eq(messages.iter().map(String::as_str)));
                if hashed {
                    prop_assert_eq!(body.sha256(), sha256_hex(&text));
                }
                let same = before.filter(|(other, _)| *other == head).map_or(0, |(_, other)| {
                    other.iter().zip(&messages).take_while(|(one, other)| one == other).count()
                });
                prop_assert_eq!(body.shared_messages(), same);
                before = Some((head, messages));
            }
        }
    }

    #[test]
    fn c_6_5_a_body_without_messages_has_its_hash_too() {
        let mut body = RequestBody::default();
        for messages in [&["".into()][..], &[], &["a".into()], &[]] {
            body.update("[h", messages, "}");
            assert_eq!(body.sha256(), sha256_hex(body.text().as_bytes()));
        }
    }
}
