//! From the arguments of a call to a command line and its standard input.
//!
//! Arguments are checked here, before any process exists; what is wrong becomes an observation. Values are put into
//! words and never looked at again.

use super::{Inject, Kind, Parameter, Piece, Tool, Word, value_text};
use crate::text;
use crate::vars::Vars;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// A checked call: what is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its standard input, byte for byte.
    pub stdin: String,
}

/// Checked values, one for each of the tool's parameters; `None` where there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct Arguments(Vec<Option<Json>>);

impl Tool {
    /// Checks the arguments of a call.
    ///
    /// # Errors
    /// The observation that tells the LLM exactly what is wrong.
    pub fn check(&self, arguments: &str) -> Result<Arguments, String> {
        let given = parse_object(arguments)
            .map_err(|why| format!("Invalid arguments for tool `{}`: {why}.", self.name))?;
        let mut wrong = Vec::new();
        let names = self.parameters.iter().map(|parameter| parameter.name.as_str());
        for (name, _) in &given {
            if !self.parameters.iter().any(|parameter| parameter.name == *name) {
                let shown = text::one_line(&text::printable(name), 60);
                let hint = match names.clone().next() {
                    Some(_) => text::did_you_mean(name, names.clone()),
                    None => "this tool takes none".to_owned(),
                };
                wrong.push(format!("unknown parameter `{shown}`; {hint}"));
            }
        }
        let given: HashMap<&str, &RawValue> =
            given.iter().map(|(name, value)| (name.as_str(), &**value)).collect();
        let mut values = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            match parameter.value_of(given.get(parameter.name.as_str()).copied()) {
                Ok(value) => values.push(value),
                Err(why) => wrong.push(why),
            }
        }
        match wrong.is_empty() {
            true => Ok(Arguments(values)),
            false => Err(self.describe_mistakes(&wrong)),
        }
    }

    fn describe_mistakes(&self, wrong: &[String]) -> String {
        let mut out = format!("Invalid arguments for tool `{}`; it was not run:", self.name);
        for why in wrong {
            out.push_str(&format!("\n- {why}"));
        }
        let shown = |parameter: &Parameter| {
            let required = if parameter.required { "required" } else { "optional" };
            format!("{} ({}, {required})", parameter.name, parameter.kind.name())
        };
        let parameters: Vec<_> = self.parameters.iter().map(shown).collect();
        let parameters =
            if parameters.is_empty() { "none".to_owned() } else { parameters.join(", ") };
        out.push_str(&format!("\nParameters: {parameters}."));
        out
    }

    /// The command line and standard input for checked arguments.
    pub fn invocation(&self, arguments: &Arguments, vars: &Vars) -> Invocation {
        let values = &arguments.0;
        let mut argv: Vec<String> =
            self.words.iter().filter_map(|word| fill(word, values, vars)).collect();
        let mut appended: Vec<usize> = (0..self.parameters.len())
            .filter(|index| !self.parameters[*index].in_template)
            .collect();
        appended.sort_by_key(|index| self.parameters[*index].position.unwrap_or(u64::MAX));
        let mut stdin = String::new();
        for (parameter, value) in self.parameters.iter().zip(values) {
            if let (Inject::Stdin, Some(value)) = (&parameter.inject, value) {
                stdin = value_text(value);
            }
        }
        for index in appended {
            let Some(value) = &values[index] else { continue };
            let option = match &self.parameters[index].inject {
                Inject::Stdin => continue,
                Inject::Argument => None,
                Inject::Option(name) => Some(name),
            };
            for word in appended_words(value) {
                argv.extend(option.cloned());
                argv.push(word);
            }
        }
        Invocation { argv, stdin }
    }
}

/// The words of an appended value: a list gives one for each of its texts.
fn appended_words(value: &Json) -> Vec<String> {
    match value {
        Json::Array(items) => items.iter().map(value_text).collect(),
        other => vec![value_text(other)],
    }
}

fn fill(word: &Word, values: &[Option<Json>], vars: &Vars) -> Option<String> {
    if word.droppable && word.only_parameter().is_some_and(|index| values[index].is_none()) {
        return None;
    }
    let mut out = String::new();
    for piece in &word.pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Variable(variable) => out.push_str(&vars.get(*variable).to_string_lossy()),
            Piece::Parameter(index) => {
                out.push_str(&values[*index].as_ref().map(value_text).unwrap_or_default())
            }
        }
    }
    Some(out)
}

impl Parameter {
    fn value_of(&self, given: Option<&RawValue>) -> Result<Option<Json>, String> {
        let name = &self.name;
        let Some(raw) = given.filter(|raw| raw.get() != "null") else {
            return match (given, self.required) {
                (Some(_), true) => Err(format!("parameter `{name}` must not be null")),
                (None, true) => Err(format!("missing required parameter `{name}`")),
                (_, false) => Ok(self.default.clone()),
            };
        };
        let value = self.typed(raw)?;
        if !self.values.is_empty() && !self.values.contains(&value) {
            let values: Vec<_> = self.values.iter().map(Json::to_string).collect();
            return Err(format!(
                "parameter `{name}` must be one of {}, not {value}",
                values.join(", ")
            ));
        }
        if holds_nul(&value) {
            return Err(format!(
                "parameter `{name}` holds a NUL character, which no command line can carry"
            ));
        }
        Ok(Some(value))
    }

    fn typed(&self, raw: &RawValue) -> Result<Json, String> {
        let value: Json = serde_json::from_str(raw.get())
            .map_err(|e| format!("parameter `{}`: {e}", self.name))?;
        if self.kind.takes(&value) {
            return Ok(match self.kind {
                Kind::Integer => value.as_i64().map(Json::from).unwrap_or_else(|| whole(value)),
                _ => value,
            });
        }
        // The text of a number is kept as the LLM wrote it: parsing would round `1.10` or a long id.
        if self.kind == Kind::String && (value.is_number() || value.is_boolean()) {
            return Ok(Json::from(raw.get()));
        }
        let wanted = match self.kind {
            Kind::Array => "an array of strings".to_owned(),
            Kind::Integer => "an integer".to_owned(),
            kind => format!("a {}", kind.name()),
        };
        Err(format!("parameter `{}` must be {wanted}, not {}", self.name, kind_of(&value)))
    }
}

/// A whole number without the `.0` that JSON allows.
fn whole(value: Json) -> Json {
    match value.as_f64() {
        Some(number) if !value.is_u64() && number.abs() < 9e15 => Json::from(number as i64),
        _ => value,
    }
}

fn holds_nul(value: &Json) -> bool {
    match value {
        Json::String(text) => text.contains('\0'),
        Json::Array(items) => items.iter().any(holds_nul),
        _ => false,
    }
}

fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "an array",
        Json::Object(_) => "an object",
    }
}

/// The entries of a JSON object with their exact texts; empty text is `{}`.
fn parse_object(arguments: &str) -> Result<Vec<(String, Box<RawValue>)>, String> {
    let arguments = arguments.trim();
    if arguments.is_empty() {
        return Ok(Vec::new());
    }
    let mended = text::mend_surrogates(arguments);
    if !mended.starts_with('{') {
        return Err(match serde_json::from_str::<Json>(&mended) {
            Ok(value) => format!("they must be a JSON object, not {}", kind_of(&value)),
            Err(error) => format!("they are not JSON ({error})"),
        });
    }
    serde_json::from_str::<Entries>(&mended)
        .map(|entries| entries.0)
        .map_err(|error| format!("they are not JSON ({error})"))
}

/// An object as the list of its entries; of a name that stands twice the last counts, as JSON readers have it.
struct Entries(Vec<(String, Box<RawValue>)>);

impl<'de> serde::Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Entries;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Entries, A::Error> {
                let mut entries: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    entries.retain(|(other, _)| *other != name);
                    entries.push((name, value));
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
