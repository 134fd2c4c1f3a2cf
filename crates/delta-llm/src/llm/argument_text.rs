//! The arguments of a call out of the pieces of a stream.
//!
//! Most endpoints send pieces of one text. Some send an empty object first, repeat the whole text, or send with each piece
//! all that came before. What the pieces say together is taken only where it is beyond doubt; otherwise the text stays as
//! it came, which is not JSON, and the call becomes an observation.

use delta_words::{are_no_arguments, is_same_json, settled_arguments};
use serde::de::IgnoredAny;

/// The arguments of a call, as far as they have arrived.
#[derive(Debug, Default)]
pub struct ArgumentText {
    /// All pieces, one after the other.
    joined: String,
    /// Where in `joined` a piece began that may begin the arguments again.
    starts: Vec<usize>,
    scanner: ObjectScanner,
}

impl ArgumentText {
    /// Adds the next piece. Costs a constant for each of its bytes.
    pub fn push(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let segment = self.segment();
        let may_begin_again = piece.trim_start().starts_with('{')
            && !segment.trim_ascii().is_empty()
            && (self.scanner.is_closed || segment.trim() == "null" || piece.starts_with(segment));
        if may_begin_again {
            self.starts.push(self.joined.len());
            self.scanner = ObjectScanner::default();
        }
        self.scanner.read(piece);
        self.joined.push_str(piece);
    }

    /// Whether nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty()
    }

    /// The bytes that have arrived.
    pub fn len(&self) -> usize {
        self.joined.len()
    }

    /// Whether an object has arrived whole, so that what follows is another call or a repetition.
    pub fn is_closed(&self) -> bool {
        self.scanner.is_closed
    }

    /// Whether an object with members has arrived whole.
    pub fn is_filled(&self) -> bool {
        self.scanner.is_closed && !are_no_arguments(self.segment())
    }

    /// Whether `piece` says the same once more. What has arrived is parsed only for another whole object.
    pub fn is_same(&self, piece: &str) -> bool {
        piece.trim_start().starts_with('{') && is_same_json(piece, self.segment())
    }

    /// Whether `piece`, after a whole object, may begin to say the same once more.
    pub fn is_repeated_by(&self, piece: &str) -> bool {
        let segment = self.segment();
        are_no_arguments(segment) || segment.starts_with(piece.trim()) || self.is_same(piece)
    }

    /// The arguments.
    pub fn into_text(self) -> String {
        if self.starts.is_empty() || is_json(&self.joined) {
            return settled_arguments(&self.joined).to_owned();
        }
        let ends = self.starts.iter().copied().chain([self.joined.len()]);
        let mut start = 0;
        let mut text = "";
        for end in ends {
            let segment = &self.joined[start..end];
            start = end;
            if are_no_arguments(text) || segment.starts_with(text) || is_same_json(text, segment) {
                text = segment;
            } else if !are_no_arguments(segment) {
                text = &self.joined;
                break;
            }
        }
        settled_arguments(text).to_owned()
    }

    fn segment(&self) -> &str {
        &self.joined[self.starts.last().copied().unwrap_or(0)..]
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Finds the end of a JSON object in pieces of it.
#[derive(Debug, Default)]
struct ObjectScanner {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
    is_closed: bool,
}

impl ObjectScanner {
    fn read(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.is_escaped) => {}
                b'\\' if self.is_in_string => self.is_escaped = true,
                b'"' => self.is_in_string = !self.is_in_string,
                _ if self.is_in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.is_closed |= self.depth == 0;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn text(pieces: &[&str]) -> String {
        let mut text = ArgumentText::default();
        pieces.iter().for_each(|piece| text.push(piece));
        text.into_text()
    }

    #[test]
    fn c_37_1_only_what_is_beyond_doubt_is_taken() {
        for (pieces, expected) in [
            (&["{\"a\":", "1}"][..], "{\"a\":1}"),
            (&["{\"a\": 1}", "{\"a\": 1}"], "{\"a\": 1}"),
            (&["{\"a\": 1}", "{\"a\":1}"], "{\"a\":1}"),
            (&["{\"a\":", "1}", "{\"a\":", "1}"], "{\"a\":1}"),
            (&["{", "{\"a\"", "{\"a\":1", "{\"a\":1}"], "{\"a\":1}"),
            (&["{}", "{\"a\":1}"], "{\"a\":1}"),
            (&["{ }", "{\"a\"", ":1}"], "{\"a\":1}"),
            (&["null", "{\"a\":1}"], "{\"a\":1}"),
            (&["{\"a\":1}", "{}"], "{\"a\":1}"),
            (&["{}{\"a\":1}"], "{\"a\":1}"),
            (&["{\"a\":1}{\"a\":", "1}"], "{\"a\":1}"),
            (&["{\"a\":1}", "", " "], "{\"a\":1} "),
            // The inner object begins as the outer one does.
            (&["{\"a\":", "{\"a\":", "1}", "}"], "{\"a\":{\"a\":1}}"),
            (&["{\"a\"", ":1", "{\"a\":1"], "{\"a\":1"),
            (&["{\"a\":1}", "{\"a\":2}"], "{\"a\":1}{\"a\":2}"),
            (&["{\"a\":1}", "{\"a\""], "{\"a\":1}{\"a\""),
            (&["{\"a\":\"}", "{\"a\":\"}\"}"], "{\"a\":\"}\"}"),
        ] {
            assert_eq!(text(pieces), expected, "{pieces:?}");
        }
    }

    proptest! {
        /// However a text is cut, and whether it is sent once, cumulatively or twice, the same arguments come out.
        #[test]
        fn c_37_1_any_cut_gives_the_same_arguments(
            members in prop::collection::btree_map("[a-c{}\"\\\\]{1,3}", "[a{}\\[\\]\"\\\\ ]{0,6}", 1..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let sent = json!({"in": members}).to_string();
            let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(sent.len())).collect();
            places.extend([0, sent.len()]);
            places.sort_unstable();
            let pieces: Vec<&str> = places.windows(2).map(|at| &sent[at[0]..at[1]]).collect();
            let cumulative: Vec<&str> = places.iter().map(|at| &sent[..*at]).collect();
            prop_assert_eq!(text(&pieces), sent.clone());
            prop_assert_eq!(text(&cumulative), sent.clone());
            prop_assert_eq!(text(&[&pieces[..], &[&sent]].concat()), sent.clone());
            prop_assert_eq!(text(&[&["{}"], &pieces[..]].concat()), sent);
        }
    }
}
