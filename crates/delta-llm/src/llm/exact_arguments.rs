//! Arguments that arrive as an object and not as its text: their numbers are kept as the LLM wrote them.
//!
//! A tree of JSON has numbers of 64 bits, so `12345678901234567890123` and `1.50` would change in it. Where an object of
//! arguments has such a number, the text of the response gets a string with the object in its place, which every reader of
//! responses takes.

use delta_base::json::to_json;
use serde_json::Value;
use std::borrow::Cow;

/// The longest number of digits alone that always fits into 64 bits.
const EXACT_DIGITS: usize = 18;

/// Replaces each object that is a member `name` of the response, and that has a number which a tree would change, by a string
/// with its text.
pub fn quote_inexact_arguments<'a>(response: &'a str, name: &str) -> Cow<'a, str> {
    if !has_inexact_number(response) {
        return Cow::Borrowed(response);
    }
    let mut quoted = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(token) = next_token(response, at) {
        at = token.end;
        if token.text != name || !token.is_string {
            continue;
        }
        let Some(start) = object_member_start(response, at) else { continue };
        let Some(end) = object_end(response, start) else { break };
        let object = &response[start..end];
        at = end;
        if has_inexact_number(object) {
            quoted.push_str(&response[copied..start]);
            quoted.push_str(&to_json(&compact(object)));
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(response);
    }
    quoted.push_str(&response[copied..]);
    Cow::Owned(quoted)
}

/// The JSON without its blanks, if a tree of it would write one of its numbers in another way.
pub fn exact_json_text(json: &str) -> Option<String> {
    has_inexact_number(json).then(|| compact(json))
}

/// Whether a tree of the JSON would write one of its numbers in another way.
pub fn has_inexact_number(json: &str) -> bool {
    let mut at = 0;
    while let Some(token) = next_token(json, at) {
        at = token.end;
        if !token.is_string && is_inexact(token.text) {
            return true;
        }
    }
    false
}

fn is_inexact(number: &str) -> bool {
    if number.len() <= EXACT_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    // One that is too large for a tree makes the whole response unreadable.
    serde_json::from_str::<Value>(number).map_or(true, |value| to_json(&value) != number)
}

/// A string without its quotes, or a number.
struct JsonToken<'a> {
    text: &'a str,
    is_string: bool,
    /// The position after it.
    end: usize,
}

/// The next string or number from `at`, which is not inside of one.
fn next_token(json: &str, at: usize) -> Option<JsonToken<'_>> {
    let bytes = json.as_bytes();
    let start = at + bytes.get(at..)?.iter().copied().position(starts_token)?;
    if bytes[start] == b'"' {
        let end = string_end(bytes, start)?;
        return Some(JsonToken { text: &json[start + 1..end - 1], is_string: true, end });
    }
    let end = start + bytes[start..].iter().take_while(|byte| is_number_byte(**byte)).count();
    Some(JsonToken { text: &json[start..end], is_string: false, end })
}

fn starts_token(byte: u8) -> bool {
    matches!(byte, b'"' | b'-' | b'0'..=b'9')
}

fn is_number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}

/// The position after the string that starts at `start`.
fn string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The position of the object whose name ends at `at`.
fn object_member_start(json: &str, at: usize) -> Option<usize> {
    let rest = json[at..].trim_start().strip_prefix(':')?.trim_start();
    rest.starts_with('{').then(|| json.len() - rest.len())
}

/// The position after the object that starts at `start`.
fn object_end(json: &str, start: usize) -> Option<usize> {
    let mut stream = serde_json::Deserializer::from_str(&json[start..])
        .into_iter::<&serde_json::value::RawValue>();
    stream.next()?.ok().map(|raw| start + raw.get().len())
}

/// The JSON without the blanks between its tokens.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut at = 0;
    while let Some(token) = next_token(json, at) {
        let start = token.end - token.text.len() - if token.is_string { 2 } else { 0 };
        text.extend(json[at..start].split_ascii_whitespace());
        text.push_str(&json[start..token.end]);
        at = token.end;
    }
    text.extend(json[at..].split_ascii_whitespace());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn c_4_4_numbers_that_do_not_fit_are_kept_as_text() {
        let big = "{ \"id\": 12345678901234567890123, \"s\": \"a \\\" b\",\n \"l\": [1.50, true] }";
        let response = format!("[{{\"args\": {big}, \"n\": 1.50}}, {{\"args\":{{\"id\":7}}}}]");
        let quoted = quote_inexact_arguments(&response, "args");
        let read: Value = serde_json::from_str(&quoted).unwrap();
        let exact = "{\"id\":12345678901234567890123,\"s\":\"a \\\" b\",\"l\":[1.50,true]}";
        assert_eq!(read, json!([{"args": exact, "n": 1.5}, {"args": {"id": 7}}]));
        for unchanged in [
            "{\"args\":{\"id\":1234567890123456789,\"x\":-0.5,\"s\":\"12345678901234567890123\"}}",
            "{\"other\":{\"id\":12345678901234567890123}}",
            "{\"text\":\"args\",\"x\":1.50,\"args\":[1.50]}",
            "{\"args\":{\"id\":12345678901234567890123",
            "{\"args\":\"{\\\"id\\\":12345678901234567890123}\"}",
        ] {
            assert!(matches!(quote_inexact_arguments(unchanged, "args"), Cow::Borrowed(_)));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in r#"([{}\[\]:,"\\ 0-9.eE-]|args|ä|"args":\{)*"#) {
            let quoted = quote_inexact_arguments(&text, "args");
            // What was JSON still is.
            if serde_json::from_str::<Value>(&text).is_ok() {
                prop_assert!(serde_json::from_str::<Value>(&quoted).is_ok());
            }
        }

        #[test]
        fn a_quoted_object_has_the_value_of_the_object(
            numbers in prop::collection::vec("-?[1-9][0-9]{0,30}(\\.[0-9]{1,20})?(e[1-9])?", 1..4),
        ) {
            let object = format!("{{\"l\":[{}]}}", numbers.join(","));
            let response = format!("{{\"input\" : {object} }}");
            let read: Value = serde_json::from_str(&quote_inexact_arguments(&response, "input")).unwrap();
            let is_kept = match &read["input"] {
                Value::String(text) => *text == object,
                value => to_json(value) == object,
            };
            prop_assert!(is_kept, "{} {}", response, read);
        }
    }
}
