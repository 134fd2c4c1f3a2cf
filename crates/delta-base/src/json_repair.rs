//! Repairs invalid JSON from LLMs and programs.

use std::borrow::Cow;

/// Replaces lone surrogate escapes (`"\ud800"`), which parsers reject, by `\ufffd`.
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    repair_surrogates(json, "", None)
}

/// Replaces lone surrogate escapes in the events of a stream, and joins a character that was split: some servers end the text of
/// an event with its first half, and begin the next one with the other.
#[derive(Debug, Default)]
pub struct SplitCharacter {
    /// The escape of the first half at the end of a string of the last event; empty if there is none.
    first_half: String,
}

impl SplitCharacter {
    /// The next event, with whole characters only.
    pub fn join<'a>(&mut self, json: &'a str) -> Cow<'a, str> {
        let first_half = std::mem::take(&mut self.first_half);
        repair_surrogates(json, &first_half, Some(&mut self.first_half))
    }
}

/// Replaces lone surrogate escapes. A second half that begins a string belongs to `first_half`, unless that is empty. A first half
/// that ends a string is moved to `open_half`, if there is one.
fn repair_surrogates<'a>(
    json: &'a str,
    first_half: &str,
    mut open_half: Option<&mut String>,
) -> Cow<'a, str> {
    if !json.contains("\\u") {
        return Cow::Borrowed(json);
    }
    let bytes = json.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let Some(unit) = parse_unicode_escape(bytes, at) else {
            at += 2;
            continue;
        };
        let is_pair = (0xd800..0xdc00).contains(&unit)
            && parse_unicode_escape(bytes, at + 6)
                .is_some_and(|low| (0xdc00..0xe000).contains(&low));
        if is_pair {
            at += 12;
        } else if (0xd800..0xe000).contains(&unit) {
            out.push_str(&json[copied..at]);
            let escape = &json[at..at + 6];
            let is_first = unit < 0xdc00;
            let begins_string = at.checked_sub(1).is_some_and(|before| bytes[before] == b'"');
            match &mut open_half {
                Some(half) if is_first && bytes.get(at + 6) == Some(&b'"') => {
                    **half = escape.to_owned();
                }
                _ if !is_first && begins_string && !first_half.is_empty() => {
                    out.push_str(first_half);
                    out.push_str(escape);
                }
                _ => out.push_str("\\ufffd"),
            }
            at += 6;
            copied = at;
        } else {
            at += 6;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// The code unit of the `\uXXXX` at `at`.
fn parse_unicode_escape(bytes: &[u8], at: usize) -> Option<u32> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_4_4_lone_surrogates_become_replacement_characters() {
        let check = |input: &str, expected: &str| {
            let repaired = replace_lone_surrogates(input);
            assert_eq!(serde_json::from_str::<String>(&repaired).unwrap(), expected, "{input}");
        };
        check(r#""a\ud800b""#, "a\u{fffd}b");
        check(r#""\ud83d\ude00""#, "😀");
        check(r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}");
        check(r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀");
        check(r#""\\ud800""#, "\\ud800");
        check(r#""\u00e4""#, "ä");
    }

    #[test]
    fn c_4_4_a_character_that_two_events_share_is_whole() {
        let mut split = SplitCharacter::default();
        for (event, expected) in [
            (r#""a\ud83d""#, "a"),
            (r#""\ude00b\ude00\ud83d""#, "😀b\u{fffd}"),
            (r#""c""#, "c"),
            (r#""\ude00""#, "\u{fffd}"),
            (r#""\ud83dd""#, "\u{fffd}d"),
        ] {
            let repaired = split.join(event);
            assert_eq!(serde_json::from_str::<String>(&repaired).unwrap(), expected, "{event}");
        }
    }
}
