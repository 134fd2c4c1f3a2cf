//! Escapes in double quotes that name the two halves of one character, as JSON writes characters outside of the basic plane.
//!
//! YAML takes every JSON, and the parser refuses halves. So it reads others in their place, of the same length, which are joined
//! afterwards.

use std::borrow::Cow;

/// The length of an escaped pair, such as `\ud83d\ude00`.
pub(super) const PAIR_LENGTH: usize = 12;
/// The number of the first half that can begin a pair.
pub(super) const FIRST_HALF: u32 = 0xD800;
/// What is added to a half for the parser: both are then private characters.
const OFFSET: u32 = 0x1000;

/// The text for the parser: with other characters in place of halves. The same text where it has no pair, or has such
/// characters itself.
pub(super) fn replace_pairs(text: &str) -> Cow<'_, str> {
    let pairs = find_pairs(text, FIRST_HALF);
    if pairs.is_empty() || has_private(text) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(with_digits(text, &pairs, &[("D", "E"), ("d", "e")]))
}

/// Whether the text has characters that the parser would read in place of halves, or escapes of them.
fn has_private(text: &str) -> bool {
    let escaped = text.match_indices("\\u").filter_map(|(at, _)| escaped_half(text, at));
    let long = text.match_indices("\\U0000").map(|(at, mark)| at + mark.len());
    let long = long.filter_map(|at| u32::from_str_radix(text.get(at..at + 4)?, 16).ok());
    let escaped = escaped.chain(long);
    text.chars().map(u32::from).chain(escaped).any(|number| (0xE800..0xF000).contains(&number))
}

/// The text of a scalar that was read from a text with [`replace_pairs`].
pub(super) fn join_pairs(text: &str, is_double_quoted: bool) -> String {
    if is_double_quoted {
        let halves: Vec<u16> = text
            .encode_utf16()
            .map(|unit| match u32::from(unit) {
                0xE800..0xF000 => unit - OFFSET as u16,
                _ => unit,
            })
            .collect();
        return String::from_utf16_lossy(&halves);
    }
    // Elsewhere a backslash is a character like others.
    with_digits(text, &find_pairs(text, FIRST_HALF + OFFSET), &[("E", "D"), ("e", "d")])
}

/// The text with another first digit in both halves of each pair.
fn with_digits(text: &str, pairs: &[usize], digits: &[(&str, &str)]) -> String {
    let mut changed = text.to_owned();
    for at in pairs.iter().flat_map(|at| [at + 2, at + PAIR_LENGTH / 2 + 2]) {
        for (_, other) in digits.iter().filter(|(digit, _)| text[at..].starts_with(digit)) {
            changed.replace_range(at..=at, other);
        }
    }
    changed
}

/// Where the escapes of the two halves of a character begin; `first` is the number of the first half that there is.
pub(super) fn find_pairs(text: &str, first: u32) -> Vec<usize> {
    find_escapes(text).filter(|at| is_pair(text, *at, first)).collect()
}

/// Where escapes with four digits begin in double quotes: after a backslash, a backslash begins none.
pub(super) fn find_escapes(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("\\u")
        .map(|(at, _)| at)
        .filter(|at| text[..*at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0)
}

/// Whether the escapes at `at` are the two halves of a character; `first` is the number of the first half that there is.
fn is_pair(text: &str, at: usize, first: u32) -> bool {
    let is_half = |at: usize, from: u32| {
        escaped_half(text, at).is_some_and(|half| (from..from + 0x400).contains(&half))
    };
    is_half(at, first) && is_half(at + PAIR_LENGTH / 2, first + 0x400)
}

/// The number of the escape of four digits at `at`.
fn escaped_half(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..at + PAIR_LENGTH / 2)?.strip_prefix("\\u")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u32::from_str_radix(digits, 16).ok())?
}
