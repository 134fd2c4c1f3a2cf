//! Redacts secrets in everything that is written, sent or displayed.

use crate::steps::count_step;
use secret_pattern::{SecretPattern, Unit};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

mod hidden_answers;
mod secret_pattern;

pub use hidden_answers::{HIDDEN, HiddenAnswers, is_redactable_answer, redact_answers};

/// Values that must never be written, such as API keys. Clones share them, also a secret that is added later.
#[derive(Clone, Default)]
pub struct Secrets {
    first: Arc<SecretSet>,
}

/// All secrets at one time. A set never changes; the next one has one secret more.
#[derive(Default)]
struct SecretSet {
    values: Vec<String>,
    /// What is searched for each value.
    patterns: Arc<[SecretPattern]>,
    next: OnceLock<Box<SecretSet>>,
}

impl SecretSet {
    fn new(mut values: Vec<String>) -> Self {
        // Longest first: redacting a secret that is a prefix of another would leave the rest of the other.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let patterns = values
            .iter()
            .enumerate()
            .flat_map(|(index, value)| {
                let spelled = SecretPattern::spelled(value, index);
                spelled.into_iter().chain(SecretPattern::base64(value, index))
            })
            .collect();
        Self { values, patterns, next: OnceLock::new() }
    }
}

// The values must not appear in debug output either.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// The replacement for a secret.
pub const REDACTED: &str = "[redacted]";

impl Secrets {
    /// The length in bytes from which a value counts as a secret. A shorter key is a placeholder for a local server
    /// (`ollama`, `none`), and would also match inside ordinary words.
    pub const MIN_LENGTH: usize = 8;

    /// Takes the values of at least [`Secrets::MIN_LENGTH`] bytes as secrets.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let values = values.into_iter().filter(|value| value.len() >= Self::MIN_LENGTH);
        Self { first: Arc::new(SecretSet::new(values.collect())) }
    }

    /// Adds a secret, for all clones: a key that a command printed during the run.
    pub fn add(&self, value: &str) {
        let is_secret = value.len() >= Self::MIN_LENGTH;
        let mut latest = self.latest();
        while is_secret && !latest.values.iter().any(|known| known == value) {
            let values = latest.values.iter().cloned().chain([value.to_owned()]);
            let _ = latest.next.set(Box::new(SecretSet::new(values.collect())));
            latest = self.latest();
        }
    }

    /// Adds secrets, for all clones.
    pub fn add_all(&self, values: &[String]) {
        values.iter().for_each(|value| self.add(value));
    }

    fn latest(&self) -> &SecretSet {
        let mut latest = &*self.first;
        while let Some(next) = latest.next.get() {
            latest = next;
        }
        latest
    }

    fn patterns(&self) -> &Arc<[SecretPattern]> {
        &self.latest().patterns
    }

    /// The values, for another process that redacts them too.
    pub fn values(&self) -> &[String] {
        &self.latest().values
    }

    /// Whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.patterns().is_empty()
    }

    /// Like [`Secrets::redact`], without a copy when `text` contains no secret.
    pub fn redact_string(&self, text: String) -> String {
        match self.redact(&text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text,
        }
    }

    /// Replaces every secret in `text` by [`REDACTED`], also where characters of it are escaped in a JSON string, or twice in
    /// JSON inside a JSON string (the arguments of a tool call), or percent-encoded, or where it is a part of what is in base64,
    /// in lines or not: at most one digit at each end is left of that.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        redact_text(self.patterns(), text, REDACTED)
    }

    /// Redacts bytes as a [`StreamRedactor`] does, and adds what was found to `counts`.
    pub fn redact_bytes(&self, bytes: &[u8], counts: &mut FoundSecrets) -> Vec<u8> {
        let mut redactor = self.stream_redactor();
        let mut redacted = redactor.push(bytes).into_owned();
        redacted.extend(redactor.flush());
        counts.add(redactor.found_secrets());
        redacted
    }

    /// Whether `text` contains a secret, so that [`Secrets::redact`] would change it.
    pub fn occur_in(&self, text: &str) -> bool {
        matches!(self.redact(text), Cow::Owned(_))
    }

    /// A filter that redacts a stream of bytes.
    pub fn stream_redactor(&self) -> StreamRedactor {
        StreamRedactor::new(Arc::clone(self.patterns()), REDACTED)
    }
}

/// Replaces every pattern in `text`.
fn redact_text<'a>(
    patterns: &Arc<[SecretPattern]>,
    text: &'a str,
    replacement: &'static str,
) -> Cow<'a, str> {
    let may_have_one = patterns.iter().any(|pattern| pattern.may_be_in(text))
        || !patterns.is_empty() && has_invisible(text.as_bytes());
    if !may_have_one {
        return Cow::Borrowed(text);
    }
    let mut stream = StreamRedactor::new(Arc::clone(patterns), replacement);
    let mut redacted = stream.push(text.as_bytes()).into_owned();
    redacted.extend(stream.flush());
    if !stream.has_found_secret() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(String::from_utf8_lossy(&redacted).into_owned())
}

/// How often each secret was found, by its place in [`Secrets::values`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundSecrets(BTreeMap<usize, u64>);

impl FoundSecrets {
    /// Adds what was found elsewhere.
    pub fn add(&mut self, more: &Self) {
        for (secret, count) in &more.0 {
            *self.0.entry(*secret).or_default() += count;
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many places have a secret.
    pub fn places(&self) -> u64 {
        self.0.values().sum()
    }

    /// Whether the secret at this place was found.
    pub fn contains(&self, secret: usize) -> bool {
        self.0.contains_key(&secret)
    }
}

/// Redacts secrets in a stream of bytes, also when a secret is split over two pieces.
pub struct StreamRedactor {
    patterns: Arc<[SecretPattern]>,
    /// Whether some pattern starts with the byte: a quick test that most bytes fail.
    first_bytes: [bool; 256],
    /// What may be the start of a secret, and what came after it.
    pending: Vec<u8>,
    /// How long `pending` has to be before it is looked at again.
    next_scan: usize,
    found: FoundSecrets,
    replacement: &'static str,
}

/// How a secret matches the start of a text.
enum SecretMatch {
    /// It ends there.
    Whole(usize),
    /// All of the text is a beginning of it.
    Begun,
    None,
}

/// The most bytes of a string for the terminal, such as the address of a link, that may be in a secret.
const MAX_STRING_BYTES: usize = 4096;

/// The most bytes that a display leaves out of one secret; what is spread further is not recognised, so that the bytes that
/// are held back are bounded.
const MAX_LEFT_OUT: usize = 64 << 10;

/// How many bytes are looked at together.
const SCAN_BYTES: usize = 64 << 10;

/// So many bytes are held back at a small cost for each piece; more are looked at again when they have grown by half.
const SMALL_PENDING: usize = 256;

/// A text with what a display leaves out of it. Each place is looked at once, so that the cost of all matches is linear in
/// the text, whatever it consists of.
struct DisplayedText<'a> {
    text: &'a [u8],
    /// For each place, the next one whose byte is displayed; the end of the text where what is left out may be longer.
    next_displayed: Vec<usize>,
}

impl<'a> DisplayedText<'a> {
    fn new(text: &'a [u8]) -> Self {
        let mut next_displayed = vec![text.len(); text.len() + 1];
        // The next byte that ends a string for the terminal, and the next ones, from the next place and the one after it,
        // that do not belong in the middle of a control sequence.
        let mut string_end = text.len();
        let [mut first_end, mut second_end] = [text.len(); 2];
        for at in (0..text.len()).rev() {
            count_step();
            let after = match &text[at..] {
                [0x1b, b'[', ..] => match text.get(second_end) {
                    Some(b'@'..=b'~') => second_end + 1,
                    _ => second_end,
                },
                [0x1b, b']' | b'P' | b'X' | b'^' | b'_', ..] => {
                    let is_near = string_end - (at + 2) < MAX_STRING_BYTES;
                    match text.get(string_end..).filter(|_| is_near) {
                        Some([] | [0x1b]) => text.len(),
                        Some([0x07, ..]) => string_end + 1,
                        Some([0x1b, b'\\', ..]) => string_end + 2,
                        _ => at + 2,
                    }
                }
                rest => at + left_out_length(rest).unwrap_or(rest.len()),
            };
            next_displayed[at] = if after == at { at } else { next_displayed[after] };
            second_end = first_end;
            if !(b' '..=b'?').contains(&text[at]) {
                first_end = at;
            }
            if matches!(text[at], 0x07 | 0x1b | b'\n') {
                string_end = at;
            }
        }
        Self { text, next_displayed }
    }

    /// Matches a secret at a place. Inside of it there may be what a display leaves out, such as the colors of
    /// `grep --color`: without them the secret would be whole.
    fn match_secret(&self, start: usize, pattern: &SecretPattern) -> SecretMatch {
        if !pattern.first_bytes.contains(&self.text[start]) {
            return SecretMatch::None;
        }
        let longest = start + pattern.longest + MAX_LEFT_OUT;
        let mut at = start;
        for (index, unit) in pattern.units.iter().enumerate() {
            let mut matched = SecretMatch::Whole(at);
            if pattern.may_wrap && index > 0 {
                matched = self.match_line_end(at);
            }
            if let SecretMatch::Whole(after) = matched {
                matched = match unit {
                    Unit::Plain(byte) => self.match_bytes(after, std::slice::from_ref(byte)),
                    Unit::Spelled(spellings) => self.match_any(after, spellings),
                };
            }
            match matched {
                SecretMatch::Whole(after) if after <= longest => at = after,
                SecretMatch::Begun if self.text.len() < longest => return SecretMatch::Begun,
                _ => return SecretMatch::None,
            }
        }
        SecretMatch::Whole(at)
    }

    /// A line end with an indent, or nothing.
    fn match_line_end(&self, start: usize) -> SecretMatch {
        let mut at = start;
        let mut matched = self.match_any(start, &LINE_ENDS);
        while let SecretMatch::Whole(after) = matched {
            at = after;
            matched = self.match_any(at, &BLANKS);
        }
        match matched {
            SecretMatch::Begun => SecretMatch::Begun,
            SecretMatch::Whole(_) | SecretMatch::None => SecretMatch::Whole(at),
        }
    }

    /// Matches one of some texts, of which none begins with another.
    fn match_any(&self, at: usize, texts: &[impl AsRef<[u8]>]) -> SecretMatch {
        let mut matched = SecretMatch::None;
        for text in texts {
            match self.match_bytes(at, text.as_ref()) {
                SecretMatch::None => {}
                whole_or_begun => matched = whole_or_begun,
            }
        }
        matched
    }

    fn match_bytes(&self, start: usize, bytes: &[u8]) -> SecretMatch {
        let mut at = start;
        for byte in bytes {
            count_step();
            // A secret can have a character that a display leaves out.
            if self.text.get(at) != Some(byte) {
                at = self.next_displayed[at];
            }
            match self.text.get(at) {
                Some(next) if next == byte => at += 1,
                None => return SecretMatch::Begun,
                Some(_) => return SecretMatch::None,
            }
        }
        SecretMatch::Whole(at)
    }
}

/// How texts spell a line end: as it is, escaped in JSON once and twice, and percent-encoded. A display leaves out `\r`.
const LINE_ENDS: [&str; 9] =
    ["\n", "\\n", "\\r\\n", "\\\\n", "\\\\r\\\\n", "%0A", "%0a", "%0D%0A", "%0d%0a"];

/// The same for the characters of an indent.
const BLANKS: [&str; 4] = [" ", "\t", "\\t", "\\\\t"];

/// How many bytes `terminal_text::strip_terminal_controls` removes at the start of a text, other than a control sequence or
/// a string; `None` when all of the text may be a beginning of them.
fn left_out_length(text: &[u8]) -> Option<usize> {
    match text {
        [0x1b] | [0xc2] | [0xe2] | [0xe2, 0x80 | 0x81] => None,
        [0x1b, b' '..=b'~', ..] | [0xc2, 0x80..=0x9f, ..] => Some(2),
        [0xe2, 0x80, 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => Some(3),
        [b'\n' | b'\t', ..] => Some(0),
        [0..=0x1f | 0x7f, ..] => Some(1),
        _ => Some(0),
    }
}

/// Whether a display leaves out something of a text. Pieces of JSON never are: it escapes controls.
fn has_invisible(text: &[u8]) -> bool {
    memchr::memchr3(0x1b, b'\r', 0x08, text).is_some()
        || memchr::memchr_iter(0xe2, text)
            .any(|at| left_out_length(&text[at..]).is_some_and(|length| length > 0))
}

impl fmt::Debug for StreamRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamRedactor").finish_non_exhaustive()
    }
}

impl StreamRedactor {
    fn new(patterns: Arc<[SecretPattern]>, replacement: &'static str) -> Self {
        let mut first_bytes = [false; 256];
        for byte in patterns.iter().flat_map(|pattern| &pattern.first_bytes) {
            first_bytes[usize::from(*byte)] = true;
        }
        Self {
            patterns,
            first_bytes,
            pending: Vec::new(),
            next_scan: 0,
            found: FoundSecrets::default(),
            replacement,
        }
    }

    /// Takes the next piece and returns the redacted bytes that are final; a possible start of a secret is held back.
    pub fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        if self.patterns.is_empty() {
            return Cow::Borrowed(piece);
        }
        if self.pending.is_empty() && self.candidate_offset(piece).is_none() {
            return Cow::Borrowed(piece);
        }
        let mut out = Vec::with_capacity(self.pending.len() + piece.len());
        for part in piece.chunks(SCAN_BYTES) {
            self.pending.extend_from_slice(part);
            if self.pending.len() >= self.next_scan {
                self.scan(&mut out, false);
            }
        }
        Cow::Owned(out)
    }

    /// The first place where a secret may start.
    fn candidate_offset(&self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| self.first_bytes[usize::from(*byte)])
    }

    /// Writes what is final of the pending bytes: everything when the stream has ended.
    fn scan(&mut self, out: &mut Vec<u8>, has_ended: bool) {
        let pending = std::mem::take(&mut self.pending);
        let displayed = DisplayedText::new(&pending);
        let mut at = 0;
        'next: while let Some(skipped) = self.candidate_offset(&pending[at..]) {
            out.extend_from_slice(&pending[at..at + skipped]);
            at += skipped;
            let mut may_follow = false;
            for pattern in &*self.patterns {
                match displayed.match_secret(at, pattern) {
                    // The rest of a longer one would stay.
                    SecretMatch::Whole(_) if may_follow => {}
                    SecretMatch::Whole(end) => {
                        out.extend_from_slice(self.replacement.as_bytes());
                        *self.found.0.entry(pattern.secret).or_default() += 1;
                        at = end;
                        continue 'next;
                    }
                    SecretMatch::Begun => may_follow = !has_ended,
                    SecretMatch::None => {}
                }
            }
            if may_follow {
                self.pending = pending[at..].to_vec();
                let pending_bytes = self.pending.len();
                let scans_later = pending_bytes > SMALL_PENDING;
                self.next_scan = if scans_later { pending_bytes + pending_bytes / 2 } else { 0 };
                return;
            }
            out.push(pending[at]);
            at += 1;
        }
        out.extend_from_slice(&pending[at..]);
        self.next_scan = 0;
    }

    /// Whether a secret was found so far.
    pub fn has_found_secret(&self) -> bool {
        !self.found.is_empty()
    }

    /// What was found so far.
    pub fn found_secrets(&self) -> &FoundSecrets {
        &self.found
    }

    /// The bytes that are held back, as they came, for the redactor of the rest of the stream.
    pub fn into_held_back(self) -> Vec<u8> {
        self.pending
    }

    /// Ends the stream and returns the bytes that were held back, redacted.
    pub fn finish(mut self) -> Vec<u8> {
        self.flush()
    }

    /// As [`StreamRedactor::finish`]; [`StreamRedactor::has_found_secret`] counts the whole stream from then on.
    pub fn flush(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.scan(&mut out, true);
        out
    }
}

/// Whether `redacted` can be `text` with its secrets replaced by [`REDACTED`].
pub fn is_redaction_of(redacted: &str, text: &str) -> bool {
    let mut pieces = redacted.split(REDACTED);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(start) = rest.find(piece) else { return false };
        rest = &rest[start + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

    #[test]
    fn c_15_3_secrets_are_redacted_however_they_are_split() {
        let secrets = Secrets::new(["sk-abcdef\"x".to_owned(), "short".to_owned()]);
        assert_eq!(secrets.redact("a sk-abcdef\"x b short"), "a [redacted] b short");
        assert_eq!(secrets.redact(r#"{"a":"sk-abcdef\"x"}"#), r#"{"a":"[redacted]"}"#);
        let text = b"1 sk-abc sk-abcdef\"x sk-sk-abcdef\\\"xsk-abcdef\\\\\\\"x sk-ab";
        for size in 1..text.len() {
            let mut stream = secrets.stream_redactor();
            let mut out = Vec::new();
            for piece in text.chunks(size) {
                out.extend_from_slice(&stream.push(piece));
            }
            out.extend(stream.finish());
            let text = String::from_utf8(out).unwrap();
            assert_eq!(
                text, "1 sk-abc [redacted] sk-[redacted][redacted] sk-ab",
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn c_15_3_a_secret_that_a_display_puts_together_is_redacted() {
        let secrets = Secrets::new(["sk-abcdef22".to_owned()]);
        for (text, redacted) in [
            ("K=sk-\x1b[01;31m\x1b[Kabc\x1b[m\x1b[Kdef22\n", "K=[redacted]\n"),
            ("sk-abc\x1b]8;;http://x\x1b\\def22!", "[redacted]!"),
            ("sk-abc\x1b]0;title\x07def22!", "[redacted]!"),
            ("sk-\r\0abc\x08def22!", "[redacted]!"),
            ("sk-abc\u{202e}def\u{9b}22 \u{201c}x\u{201d}", "[redacted] \u{201c}x\u{201d}"),
            ("sk-abc\ndef22 \x1b[1m", "sk-abc\ndef22 \x1b[1m"),
            ("\x1b[1msk-abcdef\x1b[m", "\x1b[1msk-abcdef\x1b[m"),
        ] {
            assert_eq!(secrets.redact(text), redacted);
            for size in 1..text.len() {
                let mut stream = secrets.stream_redactor();
                let mut out = Vec::new();
                for piece in text.as_bytes().chunks(size) {
                    out.extend_from_slice(&stream.push(piece));
                }
                out.extend(stream.finish());
                assert_eq!(String::from_utf8(out).unwrap(), redacted, "pieces of {size}");
            }
        }
    }

    /// A tool that encodes what it reads spread the key: `curl -v` with a password, `jq @uri`, `base64 .env`.
    #[test]
    fn c_15_3_a_secret_that_is_encoded_is_redacted() {
        let secret = "sk-Ab9+/x=%yTTqqZZ12345678901234567890123456789012345678901234567890";
        let secrets = Secrets::new([secret.to_owned()]);
        let percent =
            "sk-Ab9%2B%2Fx%3D%25yTTqqZZ12345678901234567890123456789012345678901234567890";
        for text in [
            percent.to_owned(),
            percent.replace("%2B%2F", "%2b%2f").replace("%3D", "%3d"),
            secret.replace('/', "\\/"),
            secret.replace('/', "\\\\/"),
            percent.replace("%2F", "/"),
            secret.replace('+', "\\u002B").replace('=', "\\u003d"),
            secret.replace('+', "\\\\u002b").replace('%', "\\\\u0025"),
        ] {
            assert_eq!(secrets.redact(&format!("a {text} b")), "a [redacted] b");
        }
        for before in ["", "x", "xy", "xyz", "user:"] {
            for after in ["", "\n", "ab", "abc"] {
                let whole = [before, secret, after].concat();
                for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                    let encoded = alphabet.encode(&whole);
                    let length = alphabet.encode(before).len() + alphabet.encode(after).len();
                    let redacted = secrets.redact(&encoded).into_owned();
                    assert!(redacted.contains(REDACTED), "{encoded}");
                    assert!(redacted.len() <= length + REDACTED.len() + 2, "{redacted}");
                    // `base64` wraps its lines, which can be in JSON or have an indent.
                    let (first, second) = encoded.split_at(76);
                    for end in ["\n", "\r\n", "\\n", "\\r\\n", "\\\\r\\\\n", "\n  ", "\n\t", "%0A"]
                    {
                        let mut stream = secrets.stream_redactor();
                        let mut out = Vec::new();
                        for piece in [first, end, second] {
                            out.extend_from_slice(&stream.push(piece.as_bytes()));
                        }
                        out.extend(stream.finish());
                        assert_eq!(String::from_utf8(out).unwrap(), redacted);
                        let wrapped = [first, end, second].concat();
                        assert_eq!(secrets.redact(&wrapped), redacted);
                        assert!(secrets.occur_in(&wrapped));
                    }
                    // Narrow lines split one of the two runs that are searched first.
                    for width in 16..40 {
                        let lines: Vec<_> = encoded.as_bytes().chunks(width).collect();
                        let wrapped = String::from_utf8(lines.join(&b'\n')).unwrap();
                        assert!(secrets.occur_in(&wrapped), "{wrapped}");
                    }
                }
            }
        }
        assert_eq!(secrets.redact("c2stQWI5 sk-Ab9%2B"), "c2stQWI5 sk-Ab9%2B");
        let secrets = Secrets::new(["a\\b\"c%d\\".to_owned(), "100-percent%".to_owned()]);
        for text in [
            r#""a\\b\"c%d\\""#,
            r#""a\\\\b\\\"c\u0025d\\\\""#,
            "\"100-percent%25\"",
            "\"100%2dpercent\\u0025\"",
        ] {
            assert_eq!(secrets.redact(text), "\"[redacted]\"", "{text}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]
        #[test]
        fn c_38_5_redacting_is_linear((start, turn) in crate::steps::hostile_text()) {
            let secrets = Secrets::new(["sk-abcdef22".to_owned(), "sk-abcdef\"x".to_owned()]);
            for size in [1, 100, usize::MAX] {
                crate::steps::assert_linear(&start, &turn, |text| {
                    let mut stream = secrets.stream_redactor();
                    for piece in text.as_bytes().chunks(size) {
                        stream.push(piece);
                    }
                    stream.finish();
                });
            }
        }
    }

    #[test]
    fn c_38_5_what_is_held_back_is_bounded_and_comes_out() {
        let secrets = Secrets::new(["sk-abcdef22".to_owned()]);
        for begun in ["s\x1b[", "sk-\x1b]s\x07", "sk-abcdef2"] {
            let digits = vec![b'1'; 1000];
            let bells = vec![0x07; 1000];
            for piece in [digits, bells] {
                let mut stream = secrets.stream_redactor();
                let mut out = stream.push(begun.as_bytes()).into_owned();
                for _ in 0..1000 {
                    out.extend_from_slice(&stream.push(&piece));
                    assert!(stream.pending.len() < 2 * MAX_LEFT_OUT);
                }
                out.extend(stream.finish());
                assert!(out == [begun.as_bytes(), &piece.repeat(1000)].concat(), "{begun:?}");
            }
        }
        // A longer secret that has begun hides none that is whole inside.
        let secrets = Secrets::new(["sk-token-1234567890".to_owned(), "token-12".to_owned()]);
        let mut stream = secrets.stream_redactor();
        let mut out = stream.push(b"sk-token-12").into_owned();
        out.extend(stream.finish());
        assert_eq!(out, b"sk-[redacted]");
    }

    #[test]
    fn c_15_3_a_secret_that_is_added_counts_for_all_clones() {
        let secrets = Secrets::new(["sk-abcdef".to_owned()]);
        let clone = secrets.clone();
        for added in ["sk-abcdef-long", "short", "sk-abcdef-long", "token-22"] {
            secrets.add(added);
        }
        let text = "sk-abcdef sk-abcdef-long short token-22";
        assert_eq!(clone.redact(text), "[redacted] [redacted] short [redacted]");
        let mut stream = clone.stream_redactor();
        let mut out = stream.push(b"toke").into_owned();
        out.extend_from_slice(&stream.push(b"n-22!"));
        assert_eq!(out, b"[redacted]!");
        let mut stream = clone.stream_redactor();
        let mut out = stream.push(b"sk-abcdef").into_owned();
        out.extend_from_slice(&stream.push(b"-long!"));
        assert_eq!(out, b"[redacted]!");
        let empty = Secrets::default();
        assert!(empty.is_empty());
        empty.add("token-22");
        assert!(empty.occur_in("a token-22"));
    }

    #[test]
    fn c_21_3_a_text_is_compared_with_its_redaction() {
        for (redacted, text) in [
            ("", ""),
            ("plain", "plain"),
            ("[redacted]", "secret"),
            ("a=[redacted]&b=[redacted]!", "a=one&b=two!"),
        ] {
            assert!(is_redaction_of(redacted, text), "{redacted} {text}");
        }
        for (redacted, text) in [
            ("", "x"),
            ("plain", "plainer"),
            ("a[redacted]b", "a"),
            ("a[redacted]b", "axc"),
            ("a[redacted]b[redacted]c", "axc"),
            ("ab[redacted]b", "ab"),
        ] {
            assert!(!is_redaction_of(redacted, text), "{redacted} {text}");
        }
    }
}
