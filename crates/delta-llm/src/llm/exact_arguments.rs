//! Arguments that arrive as an object and not as its text: their numbers are kept as the LLM wrote them.
//!
//! A tree of JSON has numbers of 64 bits, so `12345678901234567890123` and `1.50` would change in it. Where an object of
//! arguments has such a number, the text of the response gets a string with the object in its place, which every reader of
//! responses takes.

use delta_base::json::{has_inexact_number, next_token, to_json, without_blanks};
use std::borrow::Cow;

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
            quoted.push_str(&to_json(&without_blanks(object)));
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(response);
    }
    quoted.push_str(&response[copied..]);
    Cow::Owned(quoted)
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

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
