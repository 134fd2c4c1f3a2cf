//! Arguments that a tool wants repeated in headers (`x-mcp-header`), so that gateways need not parse the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// The keyword in the schema of a parameter.
const HEADER_KEYWORD: &str = "x-mcp-header";
/// The types of parameters that a header can hold.
const HEADER_TYPES: [&str; 3] = ["string", "integer", "boolean"];

/// A parameter that is repeated in a header.
#[derive(Debug, PartialEq)]
struct HeaderParameter {
    /// The names of the properties that lead to it.
    path: Vec<String>,
    header: String,
}

/// Whether all marks in the schema are valid. A tool with another one is left out.
pub(crate) fn has_valid_marks(schema: &Json) -> bool {
    let mut marked = Vec::new();
    collect_marks(schema, &mut Vec::new(), &mut marked);
    let names: BTreeSet<String> =
        marked.iter().map(|mark| mark.header.to_ascii_lowercase()).collect();
    names.len() == marked.len()
        && marked.len() == count_marks(schema)
        && marked.iter().all(|mark| is_header_token(&mark.header) && is_primitive(schema, mark))
}

fn is_primitive(schema: &Json, mark: &HeaderParameter) -> bool {
    let property = mark.path.iter().try_fold(schema, |at, name| at.get("properties")?.get(name));
    let kind = property.and_then(|property| property.get("type")).and_then(Json::as_str);
    kind.is_some_and(|kind| HEADER_TYPES.contains(&kind))
}

/// The headers of a call with these arguments.
pub(crate) fn parameter_headers(schema: &Json, arguments: &Json) -> Vec<(String, String)> {
    let mut marked = Vec::new();
    collect_marks(schema, &mut Vec::new(), &mut marked);
    let headers = marked.into_iter().filter_map(|mark| {
        let value = mark.path.iter().try_fold(arguments, |at, name| at.get(name))?;
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Number(_) | Json::Bool(_) => value.to_string(),
            _ => return None,
        };
        Some((format!("Mcp-Param-{}", mark.header), encode_header_value(&text)))
    });
    headers.collect()
}

/// A text as a header can hold it.
pub(crate) fn encode_header_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && text.trim() == text && !looks_encoded {
        return text.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

fn is_header_token(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// The marks that are reached through `properties` alone.
fn collect_marks(schema: &Json, path: &mut Vec<String>, marked: &mut Vec<HeaderParameter>) {
    if let (Some(Json::String(header)), false) = (schema.get(HEADER_KEYWORD), path.is_empty()) {
        marked.push(HeaderParameter { path: path.clone(), header: header.clone() });
    }
    let properties = schema.get("properties").and_then(Json::as_object);
    for (name, property) in properties.into_iter().flatten() {
        path.push(name.clone());
        collect_marks(property, path, marked);
        path.pop();
    }
}

/// The number of marks anywhere in the schema, except as the names of properties.
fn count_marks(schema: &Json) -> usize {
    match schema {
        Json::Object(members) => members
            .iter()
            .map(|(key, value)| match (key.as_str(), value) {
                (HEADER_KEYWORD, _) => 1,
                ("properties", Json::Object(properties)) => {
                    properties.values().map(count_marks).sum()
                }
                ("default" | "const" | "enum" | "examples", _) => 0,
                _ => count_marks(value),
            })
            .sum(),
        Json::Array(items) => items.iter().map(count_marks).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marked_arguments_become_headers() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "absent": {"type": "boolean", "x-mcp-header": "Absent"},
            "x-mcp-header": {"type": "string"},
        }});
        assert!(has_valid_marks(&schema));
        let arguments = json!({"region": " é", "deep": {"n": 5}, "absent": null});
        let headers = [("Mcp-Param-Region", "=?base64?IMOp?="), ("Mcp-Param-N", "5")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parameter_headers(&schema, &arguments), headers);
        assert_eq!(encode_header_value("a b"), "a b");
        assert_eq!(encode_header_value("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }

    #[test]
    fn a_tool_with_an_invalid_mark_is_found() {
        let marked = |mark: Json, kind: &str| json!({"properties": {"p": {"type": kind, "x-mcp-header": mark}}});
        assert!(has_valid_marks(&marked(json!("A"), "string")));
        for schema in [
            marked(json!(""), "string"),
            marked(json!("a b"), "string"),
            marked(json!("A\r\n"), "string"),
            marked(json!(5), "string"),
            marked(json!("A"), "object"),
            marked(json!("A"), "number"),
            json!({"properties": {"p": {"x-mcp-header": "A"}}}),
            json!({"x-mcp-header": "A"}),
            json!({"properties": {"p": {"items": {"type": "string", "x-mcp-header": "A"}}}}),
            json!({"properties": {
                "p": {"type": "string", "x-mcp-header": "A"}, "q": {"type": "string", "x-mcp-header": "a"}}}),
        ] {
            assert!(!has_valid_marks(&schema), "{schema}");
        }
    }
}
