//! A value of a parameter, whose numbers keep every digit that the LLM wrote.

use super::value_text;
use delta_llm::llm::exact_json_text;
use serde_json::Value as Json;
use serde_json::value::RawValue;

/// A checked value.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedValue {
    json: Json,
    /// The value without blanks, where `json` would write one of its numbers in another way.
    exact: Option<String>,
}

impl From<Json> for CheckedValue {
    fn from(json: Json) -> Self {
        Self { json, exact: None }
    }
}

impl CheckedValue {
    /// The value that the LLM wrote as `raw`.
    pub(super) fn written(json: Json, raw: &RawValue) -> Self {
        let exact = match json {
            // Its text is the value itself.
            Json::String(_) => None,
            _ => exact_json_text(raw.get()),
        };
        Self { json, exact }
    }

    /// The value as a tree.
    pub(super) fn json(&self) -> &Json {
        &self.json
    }

    /// The value as one text: strings verbatim, everything else as JSON.
    pub(super) fn text(&self) -> String {
        self.exact.clone().unwrap_or_else(|| value_text(&self.json))
    }

    /// The words of an appended value; a list gives one for each entry.
    pub(super) fn words(&self) -> Vec<String> {
        let Json::Array(items) = &self.json else { return vec![self.text()] };
        let exact: Vec<&RawValue> = match &self.exact {
            Some(text) => serde_json::from_str(text).unwrap_or_default(),
            None => Vec::new(),
        };
        let words = items.iter().enumerate().map(|(index, item)| match (item, exact.get(index)) {
            (Json::String(_), _) | (_, None) => value_text(item),
            (_, Some(raw)) => raw.get().to_owned(),
        });
        words.collect()
    }
}
