//! Arguments that are nearly right: texts of the values that the tool wants.
//!
//! Models write `"5"` for a number, `"[\"a\"]"` for a list, or all arguments as one text. Such a text is read where the tool
//! takes no text in its place, so that there is one meaning only; the check of the result decides.

use super::invocation::ArgumentObject;
use super::{ParameterType, Tool, ToolParameter, ValueSchema};
use delta_words::CallArguments;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};

/// The most texts of one value that are read; a value with more is refused as it is.
const MAX_TEXTS: usize = 10_000;

/// Arguments with texts replaced by what they say.
pub struct CoercedArguments {
    /// The arguments.
    pub arguments: CallArguments,
    /// The names of the arguments that changed.
    pub names: Vec<String>,
}

impl ValueSchema {
    /// Reads the texts among the arguments of a built-in tool, which do not fit, as what the schema wants; `None` if that changes
    /// nothing.
    pub fn coerce_arguments(&self, arguments: &CallArguments) -> Option<CoercedArguments> {
        coerce(Some(self), &[], arguments)
    }
}

impl Tool {
    /// Reads the texts among the arguments, which do not fit, as what the tool wants; `None` if that changes nothing.
    pub(super) fn coerce(&self, arguments: &CallArguments) -> Option<CoercedArguments> {
        coerce(self.schema.as_deref(), &self.parameters, arguments)
    }
}

/// The arguments with texts replaced by what `schema` of all of them, or else `parameters`, want; `None` if that changes nothing. A
/// text that says something else stays.
fn coerce(
    schema: Option<&ValueSchema>,
    parameters: &[ToolParameter],
    arguments: &CallArguments,
) -> Option<CoercedArguments> {
    let inner = serde_json::from_str::<String>(arguments.as_json().trim()).ok();
    let is_unwrapped = inner.is_some();
    let inner = inner.map(CallArguments::new);
    let arguments = inner.as_ref().unwrap_or(arguments);
    if !arguments.as_json().trim().starts_with('{') {
        return None;
    }
    let object = ArgumentObject::parse(arguments).ok()?;
    let refused = match schema {
        Some(schema) => Some(readable_paths(schema, arguments.as_json(), &arguments.parse().ok()?)),
        None => None,
    };
    let mut names = Vec::new();
    let entries = object.entries.iter().map(|(name, raw)| {
        let coerced = coerced_value(parameters, name, raw, refused.as_deref());
        if coerced.is_some() || is_unwrapped {
            names.push(name.clone());
        }
        let value = coerced.unwrap_or_else(|| raw.get().to_owned());
        format!("{}:{value}", Json::from(&**name))
    });
    let text = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    (is_unwrapped || !names.is_empty())
        .then(|| CoercedArguments { arguments: CallArguments::new(text), names })
}

/// The JSON of an argument without the texts that do not fit. `refused` has the paths in all arguments, for a tool with a
/// schema of them.
fn coerced_value(
    parameters: &[ToolParameter],
    name: &str,
    raw: &RawValue,
    refused: Option<&[Vec<String>]>,
) -> Option<String> {
    if let Some(refused) = refused {
        let paths = refused.iter().filter(|path| path.first().is_some_and(|it| it == name));
        let paths: Vec<_> = paths.map(|path| &path[1..]).collect();
        return replace_texts(raw.get(), &paths);
    }
    let ToolParameter { kind, schema, .. } =
        parameters.iter().find(|parameter| parameter.name == name)?;
    let value: Json = serde_json::from_str(raw.get()).ok()?;
    match schema {
        Some(schema) => {
            replace_texts(raw.get(), &as_slices(&readable_paths(schema, raw.get(), &value)))
        }
        None if value.is_string() && *kind != ParameterType::String => {
            let inner = inner_json(raw.get())?;
            let value: Json = serde_json::from_str(&inner).ok()?;
            let fits = kind.accepts(&value) || *kind == ParameterType::Array && value.is_array();
            fits.then_some(inner)
        }
        None => None,
    }
}

/// The paths of the texts that say a value whose JSON type the schema takes there.
fn readable_paths(schema: &ValueSchema, json: &str, value: &Json) -> Vec<Vec<String>> {
    let mut paths = refused_paths(schema, value);
    let replaced = replace_texts(json, &as_slices(&paths));
    if let Some(replaced) = replaced.and_then(|text| serde_json::from_str(&text).ok()) {
        let unread: HashSet<_> = refused_paths(schema, &replaced).into_iter().collect();
        paths.retain(|path| !unread.contains(path));
    }
    paths
}

fn as_slices(paths: &[Vec<String>]) -> Vec<&[String]> {
    paths.iter().map(Vec::as_slice).collect()
}

/// The paths of the values whose JSON type the schema refuses.
fn refused_paths(schema: &ValueSchema, value: &Json) -> Vec<Vec<String>> {
    let violations = schema.validator.find_violations_up_to(value, MAX_TEXTS).into_iter();
    let pointers = violations.filter(|violation| violation.refuses_type).map(|it| it.pointer);
    pointers.map(|pointer| pointer.split('/').skip(1).map(unescape_token).collect()).collect()
}

/// A token of a JSON pointer without its escapes.
fn unescape_token(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// The JSON with the texts at the paths replaced by what they say; `None` if there is none.
fn replace_texts(json: &str, paths: &[&[String]]) -> Option<String> {
    let mut inner_paths: HashMap<&str, Vec<&[String]>> = HashMap::new();
    for path in paths {
        let Some((token, rest)) = path.split_first() else { return inner_json(json) };
        inner_paths.entry(token).or_default().push(rest);
    }
    if inner_paths.is_empty() {
        return None;
    }
    let mut is_changed = false;
    let mut replaced = |token: &str, item: &RawValue| {
        let text = inner_paths.get(token).and_then(|paths| replace_texts(item.get(), paths));
        is_changed |= text.is_some();
        text.unwrap_or_else(|| item.get().to_owned())
    };
    let text = if json.trim_start().starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
        let items = items.iter().enumerate().map(|(at, item)| replaced(&at.to_string(), item));
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    } else {
        let members = CallArguments::new(json);
        let members = ArgumentObject::parse(&members).ok()?;
        let members = members
            .entries
            .iter()
            .map(|(name, value)| format!("{}:{}", Json::from(&**name), replaced(name, value)));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    is_changed.then_some(text)
}

/// The number, boolean, list or object whose JSON is the text.
fn inner_json(json: &str) -> Option<String> {
    let text: String = serde_json::from_str(json).ok()?;
    let value: Json = serde_json::from_str(&text).ok()?;
    (!value.is_string() && !value.is_null()).then(|| text.trim().to_owned())
}
