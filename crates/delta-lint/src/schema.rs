//! JSON Schemas of the files that an author writes, for editors. They come from the tables with which delta reads those
//! files, so that an editor and delta cannot disagree.
//!
//! Draft 7 is the version that YAML language servers support best. A schema contains what the tables contain: only delta
//! checks, for example, the text of `exec:`.

use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, MappingSchema, ValueShape};
use regex::Regex;
use serde_json::{Map, Value as Json, json};
use std::ops::Range;

/// The schema of a file whose root is `mapping`; editors show `title`.
pub fn file_schema(title: &str, mapping: &'static MappingSchema) -> Json {
    let mut definitions = Map::new();
    let root = definition_reference(mapping, &mut definitions);
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "description": mapping.description,
        "definitions": definitions,
    });
    if mapping.keys.iter().any(|key| key.required) {
        schema["$ref"] = root["$ref"].clone();
    } else {
        // A file without required keys may be empty.
        schema["anyOf"] = json!([root, {"type": "null"}]);
    }
    schema
}

/// A reference to the definition of `mapping`, which is added if it is missing.
fn definition_reference(
    mapping: &'static MappingSchema,
    definitions: &mut Map<String, Json>,
) -> Json {
    let name: String = mapping
        .label
        .trim_start_matches("a ")
        .trim_start_matches("an ")
        .chars()
        .filter(|c| *c != '`')
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' })
        .collect();
    if !definitions.contains_key(&name) {
        // The entry exists before its contents, because a mapping may contain itself.
        definitions.insert(name.clone(), Json::Null);
        let definition = mapping_definition(mapping, definitions);
        definitions.insert(name.clone(), definition);
    }
    json!({"$ref": format!("#/definitions/{name}")})
}

fn mapping_definition(
    mapping: &'static MappingSchema,
    definitions: &mut Map<String, Json>,
) -> Json {
    let mut properties = Map::new();
    for key in mapping.keys {
        properties.insert(key.name.to_owned(), property_schema(key, definitions));
    }
    let required: Vec<&str> =
        mapping.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut definition = json!({
        "type": "object",
        "description": mapping.description,
        "properties": properties,
        "required": required,
        "additionalProperties": mapping.allows_other_keys,
    });
    if !mapping.allows_other_keys {
        definition["patternProperties"] = json!({"^x-": true});
    }
    if !mapping.exactly_one_of.is_empty() {
        definition["oneOf"] =
            mapping.exactly_one_of.iter().map(|name| json!({"required": [name]})).collect();
    }
    definition
}

fn property_schema(key: &'static KeySchema, definitions: &mut Map<String, Json>) -> Json {
    if matches!(key.shape, ValueShape::Refused | ValueShape::Misplaced) {
        return Json::Bool(false);
    }
    let value = shape_schema(&key.shape, definitions);
    let mut property = json!({"description": key.description});
    if let Some(default) = key.default {
        property["default"] = match default {
            DefaultValue::Text(text) => json!(text),
            DefaultValue::Integer(number) => json!(number),
            DefaultValue::Boolean(boolean) => json!(boolean),
        };
    }
    property["allOf"] = json!([value]);
    property
}

/// A whole number in the range, or a text with a unit, which matches `pattern`.
fn quantity_schema(range: &Range<u64>, pattern: &str) -> Json {
    json!({
        "type": ["integer", "string"],
        "minimum": range.start,
        "maximum": range.end - 1,
        "pattern": pattern,
    })
}

/// The types of JSON that are texts for delta which may match: a `pattern` of a schema looks at strings only.
fn types_of_pattern(pattern: &str) -> Vec<&'static str> {
    let matches = |text| Regex::new(pattern).is_ok_and(|regex| regex.is_match(text));
    let texts = [("string", true), ("integer", matches("-5")), ("boolean", matches("true"))];
    texts.into_iter().filter_map(|(name, may_match)| may_match.then_some(name)).collect()
}

/// The times that delta reads, such as `90s`, `1h30m` and `2 hours`.
fn time_pattern() -> String {
    let units = "d|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis|milliseconds?";
    format!("^([0-9]+([.][0-9]+)? ?({units}),? ?)+$")
}

fn shape_schema(shape: &'static ValueShape, definitions: &mut Map<String, Json>) -> Json {
    match shape {
        ValueShape::Text => json!({"type": ["string", "number", "boolean"]}),
        ValueShape::Pattern(pattern) => {
            let pattern = format!("^(?:{pattern})$");
            json!({"type": types_of_pattern(&pattern), "pattern": pattern})
        }
        ValueShape::Boolean => json!({"type": "boolean"}),
        ValueShape::Integer(range) => {
            json!({"type": "integer", "minimum": range.start, "maximum": range.end - 1})
        }
        ValueShape::Milliseconds(range) => quantity_schema(range, &time_pattern()),
        ValueShape::TokenCount(range) => quantity_schema(range, "^[0-9]+([.][0-9]+)?[kM]$"),
        ValueShape::Number(from, to) if *to == f64::MAX => {
            json!({"type": "number", "minimum": from})
        }
        ValueShape::Number(from, to) => json!({"type": "number", "minimum": from, "maximum": to}),
        ValueShape::Choice(choices) => json!({"enum": choices}),
        ValueShape::List(items) => {
            json!({"type": "array", "items": shape_schema(items, definitions)})
        }
        ValueShape::Mapping(mapping) => definition_reference(mapping, definitions),
        ValueShape::Tagged { by, kinds } => {
            let kinds = kinds.iter().map(|(name, mapping)| {
                let tag = json!({"type": "object", "properties": {*by: {"const": name}}});
                json!({"allOf": [tag, definition_reference(mapping, definitions)]})
            });
            json!({"anyOf": kinds.collect::<Vec<_>>()})
        }
        ValueShape::TextMap => {
            let text = shape_schema(&ValueShape::Text, definitions);
            json!({"type": "object", "additionalProperties": text})
        }
        ValueShape::MapOf(shape) => {
            let value = shape_schema(shape, definitions);
            json!({"type": "object", "additionalProperties": value})
        }
        ValueShape::OneOf(shapes) => {
            let alternatives: Vec<Json> =
                shapes.iter().map(|shape| shape_schema(shape, definitions)).collect();
            json!({"anyOf": alternatives})
        }
        ValueShape::Any | ValueShape::Refused | ValueShape::Misplaced => Json::Bool(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_test;
    use delta_agent::{agent, context, hook};
    use delta_llm::llm;
    use delta_yaml::yaml::YamlDocument;

    /// A hooks.yaml in which every line is a comment loads.
    #[test]
    fn c_9_1_the_schema_lets_a_hooks_yaml_be_empty() {
        let schema =
            jsonschema::validator_for(&file_schema("a file", &hook::HOOKS_MAPPING)).unwrap();
        let doc = YamlDocument::parse("hooks.yaml", "# on_error: {command: [a]}\n").unwrap();
        assert!(schema.is_valid(&doc.to_json(&doc.root).unwrap()));
        assert!(!schema.is_valid(&serde_json::json!([])));
    }

    #[test]
    fn every_schema_is_one_and_every_key_is_described() {
        for mapping in [
            &agent::AGENT_MAPPING,
            &agent::tool_imports::IMPORTED_FILE_MAPPING,
            &context::CONTEXT_MAPPING,
            &hook::HOOKS_MAPPING,
            &llm::script::SCRIPT_MAPPING,
            &agent_test::TEST_MAPPING,
        ] {
            let schema = file_schema("a file", mapping);
            assert!(jsonschema::draft7::meta::is_valid(&schema), "{schema:#}");
            for (name, definition) in schema["definitions"].as_object().unwrap() {
                for (key, property) in definition["properties"].as_object().unwrap() {
                    let description = property["description"].as_str();
                    let is_described = description.is_some_and(|text| text.ends_with('.'));
                    assert!(is_described || *property == false, "{name}: {key}");
                }
            }
        }
    }
}
