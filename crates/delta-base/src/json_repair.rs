//! Repairs invalid JSON from LLMs and programs.

use std::borrow::Cow;

/// Replaces lone surrogate escapes (`"\ud800"`), which parsers reject, by `\ufffd`.
pub fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
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
            out.push_str("\\ufffd");
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
}
