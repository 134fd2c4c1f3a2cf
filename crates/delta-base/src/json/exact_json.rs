//! A JSON value whose numbers keep every digit with which they were written.
//!
//! A tree of JSON has numbers of 64 bits, so `12345678901234567890123` and `1.50` would change in it.

use super::to_json;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::{Deref, Range};

/// The longest number of digits alone that always fits into 64 bits.
const EXACT_DIGITS: usize = 18;

/// A JSON value as a tree, and as it was written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Json")]
pub struct ExactJson {
    json: Json,
    /// The value without blanks, where `json` would write one of its numbers in another way.
    exact: Option<String>,
}

impl From<Json> for ExactJson {
    fn from(json: Json) -> Self {
        Self { json, exact: None }
    }
}

impl Deref for ExactJson {
    type Target = Json;

    fn deref(&self) -> &Json {
        &self.json
    }
}

impl ExactJson {
    /// The value that is written as `text`.
    pub fn new(json: Json, text: &str) -> Self {
        let exact = match json {
            // Its text is the value itself.
            Json::String(_) => None,
            _ => exact_json_text(text),
        };
        Self { json, exact }
    }

    /// The value as one text: strings verbatim, everything else as JSON.
    pub fn text(&self) -> String {
        match (&self.exact, &self.json) {
            (Some(exact), _) => exact.clone(),
            (None, Json::String(text)) => text.clone(),
            (None, other) => other.to_string(),
        }
    }

    /// The words of an appended value; a list gives one for each entry.
    pub fn words(&self) -> Vec<String> {
        let Json::Array(items) = &self.json else { return vec![self.text()] };
        let exact: Vec<&RawValue> = match &self.exact {
            Some(text) => serde_json::from_str(text).unwrap_or_default(),
            None => Vec::new(),
        };
        let words = items.iter().enumerate().map(|(index, item)| match (item, exact.get(index)) {
            (Json::String(text), _) => text.clone(),
            (_, None) => item.to_string(),
            (_, Some(raw)) => raw.get().to_owned(),
        });
        words.collect()
    }
}

impl Serialize for ExactJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.exact.as_deref().map(serde_json::from_str::<&RawValue>) {
            Some(Ok(exact)) => exact.serialize(serializer),
            _ => self.json.serialize(serializer),
        }
    }
}

/// The JSON without its blanks and what a tree does not have, if a tree would write one of its numbers in another way.
fn exact_json_text(json: &str) -> Option<String> {
    has_inexact_number(json).then(|| without_blanks(&without_repeated_names(json)))
}

/// An object or a list that has not ended.
#[derive(Default)]
struct OpenJson<'a> {
    /// Whether the next string is a name.
    is_before_name: bool,
    /// Where the members start.
    starts: Vec<usize>,
    /// The last member of each name.
    members: HashMap<Cow<'a, str>, usize>,
}

/// The JSON without the members whose name comes again in their object: the last one counts, as in a tree.
pub fn without_repeated_names(json: &str) -> Cow<'_, str> {
    let mut open: Vec<OpenJson<'_>> = Vec::new();
    let mut repeated: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(token) = next_token(json, at) {
        let start = token.end - token.text.len() - if token.is_string { 2 } else { 0 };
        for byte in json[at..start].bytes() {
            match byte {
                b'{' => open.push(OpenJson { is_before_name: true, ..OpenJson::default() }),
                b'[' => open.push(OpenJson::default()),
                b'}' | b']' => drop(open.pop()),
                b',' => {
                    let object = open.last_mut().filter(|object| !object.starts.is_empty());
                    object.into_iter().for_each(|object| object.is_before_name = true);
                }
                _ => {}
            }
        }
        at = token.end;
        let Some(object) = open.last_mut().filter(|object| object.is_before_name) else { continue };
        object.is_before_name = false;
        let is_escaped = token.text.contains('\\');
        let unescaped = is_escaped.then(|| serde_json::from_str(&json[start..at]).ok()).flatten();
        let name = unescaped.map_or(Cow::Borrowed(token.text), Cow::Owned);
        object.starts.push(start);
        let last = object.starts.len() - 1;
        if let Some(earlier) = object.members.insert(name, last) {
            repeated.push(object.starts[earlier]..object.starts[earlier + 1]);
        }
    }
    if repeated.is_empty() {
        return Cow::Borrowed(json);
    }
    repeated.sort_unstable_by_key(|range| range.start);
    let mut text = String::with_capacity(json.len());
    let mut at = 0;
    for range in repeated {
        // One inside of another is removed with it.
        text += json.get(at..range.start).unwrap_or_default();
        at = at.max(range.end);
    }
    text += &json[at..];
    Cow::Owned(text)
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
    serde_json::from_str::<Json>(number).map_or(true, |value| to_json(&value) != number)
}

/// A string without its quotes, or a number.
pub struct JsonToken<'a> {
    /// The text of the token.
    pub text: &'a str,
    /// Whether it is a string.
    pub is_string: bool,
    /// The position after it.
    pub end: usize,
}

/// The next string or number from `at`, which is not inside of one.
pub fn next_token(json: &str, at: usize) -> Option<JsonToken<'_>> {
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

/// The JSON without the blanks between its tokens.
pub fn without_blanks(json: &str) -> String {
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
