//! Placeholders of a sweep: `${input.NAME}`, `${param.NAME}` and `${repeat}`.
//!
//! They are the only form of `${...}` that a text of a sweep may contain; `$${` is the text `${`.
//! Texts of inputs are values: what looks like a placeholder in them is text.

use delta_agent::tool::value_text;
use serde_json::{Map, Value as Json};

/// The values of placeholders in one run.
#[derive(Debug, Clone, Copy)]
pub struct PlaceholderValues<'a> {
    /// The members of the input.
    pub input: &'a Map<String, Json>,
    /// The parameters of the run.
    pub params: &'a Map<String, Json>,
    /// The number of the repeat, from 1.
    pub repeat: u32,
}

/// A text with a placeholder that has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PlaceholderError {
    /// What is wrong with it.
    pub message: String,
    /// The placeholder as the text has it.
    pub placeholder: String,
    /// What to write instead.
    pub help: String,
}

/// The names that a placeholder may have.
const FORMS: &str =
    "write `${input.NAME}`, `${param.NAME}` or `${repeat}`, and `$${` for the text `${`";

enum Piece<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// The text with the values of its placeholders. A value that is not a string is its JSON.
///
/// # Errors
/// A placeholder is of another form, or has no value.
pub fn substitute(text: &str, values: PlaceholderValues<'_>) -> Result<String, PlaceholderError> {
    let mut result = String::with_capacity(text.len());
    for piece in split_text(text) {
        match piece? {
            Piece::Text(text) => result.push_str(text),
            Piece::Placeholder(name) => result.push_str(&value_text(&find_value(name, values)?)),
        }
    }
    Ok(result)
}

/// The value with the values of placeholders in all of its texts. A text that is one placeholder becomes its value, which may
/// be a number.
///
/// # Errors
/// As [`substitute`].
pub fn substitute_json(
    value: &Json,
    values: PlaceholderValues<'_>,
) -> Result<Json, PlaceholderError> {
    match value {
        Json::String(text) => match split_text(text).as_slice() {
            [Ok(Piece::Placeholder(name))] => find_value(name, values),
            _ => substitute(text, values).map(Json::String),
        },
        Json::Array(items) => items.iter().map(|item| substitute_json(item, values)).collect(),
        Json::Object(members) => members
            .iter()
            .map(|(key, value)| Ok((key.clone(), substitute_json(value, values)?)))
            .collect::<Result<Map<_, _>, _>>()
            .map(Json::Object),
        scalar => Ok(scalar.clone()),
    }
}

/// Checks the placeholders of a text as far as that is possible without an input: their form, and their parameters. Returns
/// all that no input can make right.
pub fn check_text_placeholders<'a>(
    text: &str,
    params: impl Iterator<Item = &'a str> + Clone,
) -> Vec<PlaceholderError> {
    let mut errors = Vec::new();
    for piece in split_text(text) {
        match piece {
            Err(error) => errors.push(error),
            Ok(Piece::Placeholder(placeholder)) => {
                errors.extend(check_parameter(placeholder, params.clone()));
            }
            Ok(Piece::Text(_)) => {}
        }
    }
    errors
}

/// Checks that an input has a value for each placeholder `${input.NAME}` of a text.
///
/// # Errors
/// The first one without a value.
pub fn check_input_placeholders(
    text: &str,
    input: &Map<String, Json>,
) -> Result<(), PlaceholderError> {
    let params = Map::new();
    let values = PlaceholderValues { input, params: &params, repeat: 1 };
    let names = split_text(text).into_iter().filter_map(|piece| match piece {
        Ok(Piece::Placeholder(name)) if name.starts_with("input.") => Some(name),
        _ => None,
    });
    names.map(|name| find_value(name, values)).try_for_each(|value| value.map(drop))
}

/// The parameters that the placeholders of a text name.
pub fn used_parameters(text: &str) -> impl Iterator<Item = &str> {
    split_text(text).into_iter().filter_map(|piece| match piece {
        Ok(Piece::Placeholder(placeholder)) => placeholder.strip_prefix("param."),
        _ => None,
    })
}

/// Why a placeholder names no parameter of the sweep, if it should.
fn check_parameter<'a>(
    placeholder: &str,
    params: impl Iterator<Item = &'a str> + Clone,
) -> Option<PlaceholderError> {
    let name = placeholder.strip_prefix("param.")?;
    if params.clone().any(|param| param == name) {
        return None;
    }
    let help = match delta_base::suggest::nearest_names(name, params).first() {
        Some(near) => format!("did you mean `${{param.{near}}}`?"),
        None => format!("add `{name}` to `params`"),
    };
    Some(placeholder_error(placeholder, format!("unknown parameter `{name}`"), help))
}

/// The pieces of a text, and an error for each piece that is neither text nor a placeholder.
fn split_text(text: &str) -> Vec<Result<Piece<'_>, PlaceholderError>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if at > 0 && rest.as_bytes()[at - 1] == b'$' {
            // The text up to `$` without it, then `${`.
            pieces.push(Ok(Piece::Text(&rest[..at - 1])));
            pieces.push(Ok(Piece::Text(&rest[at..at + 2])));
            rest = &rest[at + 2..];
            continue;
        }
        pieces.push(Ok(Piece::Text(&rest[..at])));
        let inner = &rest[at + 2..];
        let Some(end) = inner.find('}') else {
            let start: String = inner.chars().take(20).collect();
            let message = "expected `}` after `${`".to_owned();
            pieces.push(Err(placeholder_error(&start, message, FORMS.to_owned())));
            rest = "";
            break;
        };
        let name = &inner[..end];
        let is_known = name == "repeat"
            || ["input.", "param."]
                .iter()
                .any(|prefix| name.strip_prefix(prefix).is_some_and(|name| !name.is_empty()));
        pieces.push(if is_known {
            Ok(Piece::Placeholder(name))
        } else {
            let message = format!("unknown placeholder `${{{name}}}`");
            Err(placeholder_error(name, message, FORMS.to_owned()))
        });
        rest = &inner[end + 1..];
    }
    pieces.push(Ok(Piece::Text(rest)));
    pieces.retain(|piece| !matches!(piece, Ok(Piece::Text(""))));
    pieces
}

fn find_value(name: &str, values: PlaceholderValues<'_>) -> Result<Json, PlaceholderError> {
    if name == "repeat" {
        return Ok(values.repeat.into());
    }
    let (members, path, lack) = match (name.strip_prefix("input."), name.strip_prefix("param.")) {
        (Some(path), _) => (values.input, path, "the input has no"),
        (None, path) => (values.params, path.unwrap_or_default(), "the run has no parameter"),
    };
    if let Some(value) = members.get(path) {
        return Ok(value.clone());
    }
    // `a.b` is the member `b` of the member `a`.
    let mut parts = path.split('.');
    let first = parts.next().and_then(|part| members.get(part));
    if let Some(value) =
        first.and_then(|first| parts.try_fold(first, |value, part| value.get(part)))
    {
        return Ok(value.clone());
    }
    let names = members.keys().map(String::as_str);
    let help = delta_base::suggest::did_you_mean(path, names);
    Err(placeholder_error(name, format!("{lack} `{path}`"), help))
}

fn placeholder_error(placeholder: &str, message: String, help: String) -> PlaceholderError {
    PlaceholderError { message, placeholder: format!("${{{placeholder}"), help }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(text: &str) -> Result<String, PlaceholderError> {
        let input =
            json!({"task": "say ${repeat}", "n": 3, "meta": {"level": "hard"}, "a.b": "dotted"});
        let params = json!({"style": "short"});
        let (Json::Object(input), Json::Object(params)) = (input, params) else { unreachable!() };
        substitute(text, PlaceholderValues { input: &input, params: &params, repeat: 2 })
    }

    #[test]
    fn values_are_inserted_as_they_are() {
        let text =
            "${input.task}, ${input.n} ${input.meta.level} ${input.a.b} ${param.style} #${repeat}";
        assert_eq!(fill(text).unwrap(), "say ${repeat}, 3 hard dotted short #2");
        assert_eq!(fill("cost $5, $${repeat}, $").unwrap(), "cost $5, ${repeat}, $");
    }

    #[test]
    fn what_has_no_value_is_an_error_that_names_what_there_is() {
        for (text, message) in [
            ("${input.tsk}", "the input has no `tsk`"),
            ("${param.x}", "the run has no parameter `x`"),
            ("${model}", "unknown placeholder `${model}`"),
            ("${input.}", "unknown placeholder `${input.}`"),
            ("${input.task", "expected `}` after `${`"),
        ] {
            assert_eq!(fill(text).unwrap_err().message, message, "{text}");
        }
        assert!(fill("${input.tsk}").unwrap_err().help.contains("task"));
    }

    #[test]
    fn a_text_that_is_one_placeholder_keeps_the_type_of_its_value() {
        let empty = Map::new();
        let values = PlaceholderValues { input: &empty, params: &empty, repeat: 7 };
        let value = json!({"seed": "${repeat}", "stop": ["x${repeat}"], "t": 0.5});
        let expected = json!({"seed": 7, "stop": ["x7"], "t": 0.5});
        assert_eq!(substitute_json(&value, values).unwrap(), expected);
    }
}
