//! The body of a request, which is built out of the one before it.

use crate::text::hex;
use crate::transcript::Messages;
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::sync::Arc;

/// A request as it is sent, with its messages marked.
///
/// Two requests of a run differ by little: [`Body::update`] costs a comparison of what stays and a copy of what is new,
/// and the hash is taken up behind what stays.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// The exact text.
    text: Arc<String>,
    /// Where each message stands in it.
    messages: Vec<Range<usize>>,
    /// How many of the first messages are those of the request before.
    kept: usize,
    /// The hash of the text up to the end of the last message, when it was asked for, and how many bytes those are.
    hash: Option<(Sha256, usize)>,
}

impl Body {
    /// The exact text.
    pub fn text(&self) -> &Arc<String> {
        &self.text
    }

    /// Where each message stands in the text.
    pub fn messages(&self) -> &[Range<usize>] {
        &self.messages
    }

    /// The last message; nothing when there is none.
    pub fn last_message(&self) -> &str {
        self.messages.last().map_or("", |place| &self.text[place.clone()])
    }

    /// How many of the first messages stood at the beginning of the request out of which this one was made.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// For a request that takes the place of another one, which kept so many messages of the one before both.
    pub fn keep_at_most(&mut self, kept: usize) {
        self.kept = self.kept.min(kept);
    }

    /// Makes the next request out of this one: `messages` between `head` and `tail`, with commas.
    pub fn update(&mut self, head: &str, messages: &[Messages<'_>], tail: &str) {
        self.try_update(head, messages, tail, |_| false);
    }

    /// The same, unless `refuses` says so of messages that are new in it; then this one stays as it is. Gives whether it
    /// was made.
    pub fn try_update(
        &mut self,
        head: &str,
        messages: &[Messages<'_>],
        tail: &str,
        refuses: impl Fn(Messages<'_>) -> bool,
    ) -> bool {
        let (kept, new) = self.news(head, messages);
        let is_taken = !new.clone().any(refuses);
        if is_taken {
            self.extend(head, kept, new.flat_map(Messages::iter), tail);
        }
        is_taken
    }

    /// How many of the first of `messages` are those of this request, which has the same `head`, and the others.
    fn news<'m>(
        &self,
        head: &str,
        messages: &'m [Messages<'m>],
    ) -> (usize, impl Iterator<Item = Messages<'m>> + Clone + use<'m>) {
        let (mut kept, mut new) = (0, messages);
        let mut cut = None;
        while let [next, rest @ ..] = new
            && self.head() == head
        {
            let same = self.same(kept, *next);
            (kept, new) = (kept + same, rest);
            if same < next.count() {
                cut = next.behind(same);
                break;
            }
        }
        (kept, cut.into_iter().chain(new.iter().copied()))
    }

    /// How many of the first of `messages` are those of this request from the one at `index` on.
    fn same(&self, index: usize, messages: Messages<'_>) -> usize {
        let places = self.messages.get(index..).unwrap_or_default();
        let Some(start) = places.first().map(|first| first.start) else { return 0 };
        let ends = places.iter().map(|place| place.end - start);
        let count = ends.zip(messages.ends()).take_while(|(stood, next)| stood == next).count();
        let places = &places[..count];
        let Some(end) = places.last().map(|last| last.end) else { return 0 };
        let (stood, next) = (&self.text.as_bytes()[start..end], messages.text().as_bytes());
        if next.starts_with(stood) {
            return count;
        }
        let differs = stood.iter().zip(next).take_while(|(one, other)| one == other).count();
        places.partition_point(|place| place.end - start <= differs)
    }

    /// Makes the next request out of this one: the first `kept` messages of this one and then `messages`, between `head`
    /// and `tail`.
    pub(super) fn extend<'m>(
        &mut self,
        head: &str,
        kept: usize,
        messages: impl Iterator<Item = &'m str>,
        tail: &str,
    ) {
        let start = self.messages.first().map_or(0, |first| first.start);
        self.messages.truncate(kept);
        self.kept = self.messages.len();
        let end = self.messages.last().map_or(start, |last| last.end);
        let text = Arc::make_mut(&mut self.text);
        text.truncate(end);
        let same_head = text.get(..start) == Some(head);
        self.hash = self.hash.take().filter(|(_, hashed)| *hashed <= end && same_head);
        if !same_head {
            text.replace_range(..start, head);
            let shift = |place: &mut Range<usize>| {
                *place = place.start - start + head.len()..place.end - start + head.len();
            };
            self.messages.iter_mut().for_each(shift);
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

    /// The SHA-256 of the text, in hexadecimal digits.
    pub fn sha256(&mut self) -> String {
        let end = self.messages.last().map_or(0, |last| last.end);
        let known = self.hash.take().filter(|(_, hashed)| *hashed <= end);
        let (mut hash, hashed) = known.unwrap_or_default();
        hash.update(&self.text.as_bytes()[hashed..end]);
        self.hash = Some((hash.clone(), end));
        hash.update(&self.text.as_bytes()[end..]);
        hex(&hash.finalize())
    }

    /// Whether `sent`, the text that was sent in place of this one, has its messages at the same places.
    pub(super) fn is_like(&self, sent: &str) -> bool {
        let end = self.messages.last().map_or(0, |last| last.end);
        sent.get(..end).is_some_and(|start| start == &self.text[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::super::sha256;
    use super::*;
    use crate::transcript::Transcript;
    use proptest::prelude::*;

    proptest! {
        /// Made out of any other, a body is what it is when made out of nothing, and `kept` counts what both begin with.
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
            let mut body = Body::default();
            let mut before: Option<(String, Vec<String>)> = None;
            for (head, messages, apart, tail, hashed) in requests {
                let mut transcript = Transcript::default();
                messages.iter().for_each(|message| transcript.push(message));
                let single = messages[..apart.min(messages.len())].iter();
                let mut pieces: Vec<_> = single.map(|message| Messages::from(message.as_str())).collect();
                if apart < messages.len() {
                    pieces.push(transcript.messages(apart..messages.len()));
                }
                let mut tried = body.clone();
                let refuses = |some: Messages<'_>| some.text().contains('b');
                let is_made = tried.try_update(&head, &pieces, &tail, refuses);
                let last = Arc::clone(body.text());
                body.update(&head, &pieces, &tail);
                let has_refused = messages[body.kept()..].iter().any(|new| new.contains('b'));
                prop_assert_eq!(is_made, !has_refused);
                prop_assert_eq!(tried.text(), if is_made { body.text() } else { &last });
                let mut fresh = Body::default();
                fresh.update(&head, &pieces, &tail);
                let text = format!("{head}{}{tail}", messages.join(","));
                prop_assert_eq!((&**body.text(), &**fresh.text()), (&text, &text));
                prop_assert_eq!(body.messages(), fresh.messages());
                let marked = body.messages().iter().map(|place| &text[place.clone()]);
                prop_assert!(marked.eq(messages.iter().map(String::as_str)));
                if hashed {
                    prop_assert_eq!(body.sha256(), sha256(&text));
                }
                let same = before.filter(|(other, _)| *other == head).map_or(0, |(_, other)| {
                    other.iter().zip(&messages).take_while(|(one, other)| one == other).count()
                });
                prop_assert_eq!(body.kept(), same);
                before = Some((head, messages));
            }
        }
    }

    #[test]
    fn c_6_5_a_body_without_messages_has_its_hash_too() {
        let mut body = Body::default();
        for messages in [&["".into()][..], &[], &["a".into()], &[]] {
            body.update("[h", messages, "}");
            assert_eq!(body.sha256(), sha256(body.text()));
        }
    }
}
