//! Redacts secrets in everything that is written, sent or displayed.

use crate::steps::count_step;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

mod hidden_answers;

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
    /// The forms of each value.
    patterns: Arc<[SecretPattern]>,
    next: OnceLock<Box<SecretSet>>,
}

/// A text to redact.
struct SecretPattern {
    finder: Finder<'static>,
    /// Whether line ends inside it do not matter.
    may_wrap: bool,
    /// The secret of which it is a form, by its place in [`Secrets::values`].
    secret: usize,
}

impl SecretPattern {
    fn new(text: &str) -> Self {
        Self { finder: Finder::new(text.as_bytes()).into_owned(), may_wrap: false, secret: 0 }
    }

    fn is_in(&self, text: &str) -> bool {
        self.finder.find(text.as_bytes()).is_some()
    }
}

impl SecretSet {
    fn new(mut values: Vec<String>) -> Self {
        // Longest first: redacting a secret that is a prefix of another would leave the rest of the other.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        let patterns = values
            .iter()
            .enumerate()
            .flat_map(|(secret, value)| {
                let plain = secret_forms(value).into_iter().map(|form| (form, false));
                let base64 = base64_forms(value).into_iter().map(|form| (form, true));
                plain.chain(base64).map(move |(form, may_wrap)| SecretPattern {
                    may_wrap,
                    secret,
                    ..SecretPattern::new(&form)
                })
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

    /// Replaces every secret in `text` by [`REDACTED`], also where it is escaped in a JSON string, or twice in JSON inside
    /// a JSON string (the arguments of a tool call), percent-encoded, or a part of what is in base64: at most one digit at each
    /// end is left of that.
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
        self.patterns().iter().any(|pattern| pattern.is_in(text))
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
    let mut text = Cow::Borrowed(text);
    for pattern in &**patterns {
        if pattern.is_in(&text) {
            let form = String::from_utf8_lossy(pattern.finder.needle());
            text = Cow::Owned(text.replace(&*form, replacement));
        }
    }
    if patterns.is_empty() || !has_invisible(text.as_bytes()) {
        return text;
    }
    let mut stream = StreamRedactor::new(Arc::clone(patterns), replacement);
    let mut redacted = stream.push(text.as_bytes()).into_owned();
    redacted.extend(stream.finish());
    match String::from_utf8(redacted) {
        Ok(redacted) if redacted != *text => Cow::Owned(redacted),
        _ => text,
    }
}

/// A secret as plain text, and where they differ escaped in JSON twice and once, some of which escapes slashes too, longest
/// first; and percent-encoded.
fn secret_forms(secret: &str) -> Vec<String> {
    let once = escape_for_json(secret);
    let encoded = percent_encoding::utf8_percent_encode(secret, PERCENT_ENCODED).to_string();
    // The digits of the escapes can be small letters, which the rest of the secret need not have.
    let escapes = encoded.match_indices('%').map(|(start, _)| start + 1..start + 3);
    let mut small = encoded.clone();
    escapes.for_each(|digits| small[digits].make_ascii_lowercase());
    let escaped = [once.replace('/', "\\/"), once];
    let escaped: Vec<String> =
        escaped.into_iter().flat_map(|form| [escape_to_ascii(&form), form]).collect();
    let twice: Vec<String> = escaped.iter().map(|form| escape_for_json(form)).collect();
    let forms = twice.into_iter().chain(escaped).chain([secret.to_owned(), encoded, small]);
    let mut unique = Vec::new();
    for form in forms {
        if !unique.contains(&form) {
            unique.push(form);
        }
    }
    unique
}

/// All but the characters that no URL has to escape.
const PERCENT_ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The digits in base64, in both alphabets, that depend on the secret alone: it can begin at each of the three bytes of a group.
fn base64_forms(secret: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let bytes = [&vec![0; before][..], secret.as_bytes()].concat();
        let digits = (before * 8).div_ceil(6)..bytes.len() * 8 / 6;
        for alphabet in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let form = alphabet.encode(&bytes)[digits.clone()].to_owned();
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    forms
}

fn escape_for_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
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

/// Escapes all but ASCII in a JSON string, as many programs do.
fn escape_to_ascii(once: &str) -> String {
    let mut escaped = String::with_capacity(once.len());
    for character in once.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
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
        let secret = pattern.finder.needle();
        if self.text.get(start) != secret.first() {
            return SecretMatch::None;
        }
        let longest = start + secret.len() + MAX_LEFT_OUT;
        let mut at = start + 1;
        for byte in &secret[1..] {
            count_step();
            at = self.next_displayed[at];
            if pattern.may_wrap && self.text.get(at) == Some(&b'\n') {
                at = self.next_displayed[at + 1];
            }
            match self.text.get(at) {
                Some(next) if next == byte && at < longest => at += 1,
                None if at < longest => return SecretMatch::Begun,
                _ => return SecretMatch::None,
            }
        }
        SecretMatch::Whole(at)
    }
}

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
        for pattern in &*patterns {
            first_bytes[usize::from(pattern.finder.needle()[0])] = true;
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
                    // `base64` wraps its lines.
                    let (first, second) = encoded.split_at(76);
                    let mut stream = secrets.stream_redactor();
                    let mut out = Vec::new();
                    for piece in [first, "\n", second] {
                        out.extend_from_slice(&stream.push(piece.as_bytes()));
                    }
                    out.extend(stream.finish());
                    assert_eq!(String::from_utf8(out).unwrap(), redacted);
                }
            }
        }
        assert_eq!(secrets.redact("c2stQWI5 sk-Ab9%2B"), "c2stQWI5 sk-Ab9%2B");
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
