//! The arguments of a tool call: the text that the LLM wrote, and its JSON.

use crate::ToolCall;
use delta_base::json_repair::replace_lone_surrogates;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The arguments of a tool call, created where the text arrives: from the LLM, a hook, or the journal.
///
/// An LLM may write a lone surrogate, which no JSON parser accepts; such text is repaired once, here. Only the text as the
/// LLM wrote it is recorded and compared.
#[derive(Clone, Default)]
pub struct CallArguments {
    text: String,
    /// The text with its lone surrogates replaced; `None` if it has none.
    repaired: Option<String>,
}

impl CallArguments {
    /// Arguments with the text as the LLM wrote it.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        let repaired = match replace_lone_surrogates(&text) {
            Cow::Owned(repaired) => Some(repaired),
            Cow::Borrowed(_) => None,
        };
        Self { text, repaired }
    }

    /// The text as the LLM wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The repaired text, which may still not be JSON.
    pub fn as_json(&self) -> &str {
        self.repaired.as_deref().unwrap_or(&self.text)
    }

    /// Parses the JSON.
    ///
    /// # Errors
    /// The text is not JSON, or its JSON does not fit `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_json())
    }

    /// The parsed value, or a string with the text if that is not JSON.
    pub fn to_value(&self) -> Json {
        self.parse().unwrap_or_else(|_| Json::from(self.as_str()))
    }
}

/// The members in which a server may send the arguments of a call, where it does not use the one of its form.
const ARGUMENT_MEMBERS: [&str; 4] = ["arguments", "parameters", "input", "args"];

/// The text of arguments that were sent as `value`. Neither a text nor an object, it becomes a text that the check of the call
/// refuses. `null`, and an empty list, which PHP makes of an empty object, become the text without arguments.
pub fn arguments_text(value: &Json) -> Cow<'_, str> {
    match value {
        Json::String(text) => Cow::Borrowed(text),
        Json::Null => Cow::Borrowed(""),
        Json::Array(items) if items.is_empty() => Cow::Borrowed(""),
        value => Cow::Owned(value.to_string()),
    }
}

/// The text of the arguments of a call whose form has them as `member`, or as another member of one of `holders`.
pub fn sent_arguments<'a>(holders: &[&'a Json], member: &str) -> Cow<'a, str> {
    let expected = holders.iter().find_map(|holder| holder.get(member)).map(arguments_text);
    let expected = expected.unwrap_or_default();
    if !are_no_arguments(&expected) {
        return expected;
    }
    let members = ARGUMENT_MEMBERS.iter();
    let mut others = members.flat_map(|name| holders.iter().filter_map(|holder| holder.get(*name)));
    others
        .find(|value| !are_no_arguments(&arguments_text(value)))
        .map_or(expected, unexpected_arguments)
}

/// The text of arguments that were sent where the form has none. A tree of JSON does not have a number as it was written,
/// so an object with one that may differ becomes a list, which the check of the call refuses.
pub fn unexpected_arguments(value: &Json) -> Cow<'_, str> {
    if has_float(value) {
        return Cow::Owned(Json::from(vec![value.clone()]).to_string());
    }
    arguments_text(value)
}

fn has_float(value: &Json) -> bool {
    match value {
        Json::Array(items) => items.iter().any(has_float),
        Json::Object(members) => members.values().any(has_float),
        value => value.is_f64(),
    }
}

/// Lists, as the arguments of each call without any, the arguments that were sent for a call without a name: they may be
/// its own, and the check of a call refuses a list.
pub fn doubt_missing_arguments(calls: &mut [ToolCall]) {
    let nameless = calls.iter().filter(|call| call.function.name.is_empty());
    let texts = nameless.map(|call| call.function.arguments.as_str());
    let texts: Vec<String> =
        texts.filter(|text| !are_no_arguments(text)).map(str::to_owned).collect();
    if texts.is_empty() {
        return;
    }
    let doubtful = Json::from(texts).to_string();
    for ToolCall { function, .. } in calls {
        if !function.name.is_empty() && are_no_arguments(function.arguments.as_str()) {
            function.arguments = CallArguments::new(doubtful.clone());
        }
    }
}

/// Arguments that a text has more than once, or after empty ones, as the text has them once; any other text as it is.
pub fn settled_arguments(text: &str) -> &str {
    if !text.trim_start().starts_with('{') || serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return text;
    }
    let mut settled = "";
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let Ok(value) = value.map(RawValue::get) else { return text };
        if are_no_arguments(settled) || is_same_json(settled, value) {
            settled = value;
        } else if !are_no_arguments(value) {
            return text;
        }
    }
    settled
}

/// Whether the arguments are still to come after this text: it is empty, `{}` or `null`.
pub fn are_no_arguments(text: &str) -> bool {
    let mut characters = text.chars().filter(|character| !character.is_whitespace());
    match characters.next() {
        None => true,
        Some('{') => characters.eq(['}']),
        Some('n') => text.trim() == "null",
        Some(_) => false,
    }
}

/// Whether two texts are the same JSON.
pub fn is_same_json(one: &str, other: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<Json>(text).ok();
    one.trim() == other.trim() || parse(one).is_some_and(|one| Some(one) == parse(other))
}

impl PartialEq for CallArguments {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CallArguments {}

impl fmt::Debug for CallArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Serialize for CallArguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for CallArguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn c_4_4_arguments_are_recorded_as_written_and_parsed_as_repaired() {
        let written = " {\"a\": \"\\ud800\", \"b\": 1.50}\n";
        let arguments = CallArguments::new(written);
        assert_eq!(arguments.as_str(), written);
        assert_eq!(arguments.to_value(), json!({"a": "\u{fffd}", "b": 1.5}));
        assert_eq!(
            CallArguments::new("{\"a\": \"\\ud83d\\ude00\"}").to_value(),
            json!({"a": "😀"})
        );
        assert_eq!(CallArguments::new(" ls ").to_value(), json!(" ls "));
    }

    proptest! {
        #[test]
        fn arguments_read_back_as_they_were_written(text in r#"(\\ud800|\\u00e4|[ {}"\\a]|\PC)*"#) {
            let arguments = CallArguments::new(text.clone());
            let json = serde_json::to_string(&arguments).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&text).unwrap());
            let read: CallArguments = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read.as_json(), arguments.as_json());
            prop_assert_eq!(read, arguments);
        }
    }
}
