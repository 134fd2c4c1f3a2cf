//! The schema of a server's tool in the form that every endpoint takes, and its check.
//!
//! Endpoints refuse a whole request for a schema of one tool. What they refuse differs, so the schema goes out as the strictest
//! of them takes it. A schema that all of them take stays as it is.

use crate::json_schema::{JsonSchema, SchemaError};
use serde_json::{Map, Value as Json, json};

/// The keywords whose values are schemas by names of the author.
const SCHEMA_MAPS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// The keywords whose value is data.
const DATA_KEYWORDS: [&str; 5] = ["default", "const", "enum", "example", "examples"];
/// The keywords whose value is a number.
const NUMBER_KEYWORDS: [&str; 11] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];
/// The names of types in programming languages, each with its name in JSON Schema.
const TYPE_ALIASES: [(&str, &str); 9] = [
    ("int", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("str", "string"),
    ("text", "string"),
    ("bool", "boolean"),
    ("list", "array"),
    ("dict", "object"),
    ("none", "null"),
];
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];
/// The most references that follow each other at the top.
const MAX_REFERENCES: usize = 16;

/// The schema for requests: an object with `properties`, and nothing at its top that chooses between schemas.
pub(super) fn portable_schema(schema: &Json) -> Json {
    let document = portable(schema);
    let mut root = inlined(document.as_object().cloned().unwrap_or_default(), &document);
    root.retain(|key, _| !matches!(key.as_str(), "$schema" | "$id" | "enum" | "not"));
    root.entry("type").or_insert(Json::Null);
    root["type"] = "object".into();
    let properties = root.entry("properties").or_insert_with(|| json!({}));
    if !properties.is_object() {
        *properties = json!({});
    }
    only_known_required(&mut root);
    Json::Object(root)
}

/// Compiles a schema. What delta cannot check is the server's to check, except for a reference, which must not lead out.
///
/// # Errors
/// The first references that lead nowhere.
pub(super) fn compile_portable(schema: &Json) -> Result<JsonSchema, Vec<SchemaError>> {
    let mut schema = portable(schema);
    loop {
        let errors = match JsonSchema::compile(&schema) {
            Ok(validator) => return Ok(validator),
            Err(errors) => errors,
        };
        let is_removed = errors.iter().map(|error| remove_keyword(&mut schema, &error.pointer));
        if !is_removed.fold(false, |any, one| any | one) {
            return Err(errors);
        }
    }
}

/// Removes the keyword at `pointer`, unless it is a reference; whether there was one.
fn remove_keyword(schema: &mut Json, pointer: &str) -> bool {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return false };
    if key == "$ref" {
        return false;
    }
    let key = key.replace("~1", "/").replace("~0", "~");
    match schema.pointer_mut(parent) {
        Some(Json::Object(members)) => members.shift_remove(&key).is_some(),
        // A member of a list is part of the list's keyword.
        Some(_) => remove_keyword(schema, parent),
        None => false,
    }
}

/// A schema, and those inside of it, in the words of the newest draft that every endpoint takes.
fn portable(schema: &Json) -> Json {
    let Json::Object(members) = schema else {
        return if schema == &Json::Bool(false) { json!({"not": {}}) } else { json!({}) };
    };
    let mut keywords = Map::new();
    for (key, value) in members {
        let is_data = DATA_KEYWORDS.contains(&key.as_str());
        let is_extension = key.starts_with("x-");
        if is_extension || (value.is_null() && !is_data) {
            continue;
        }
        let value = match (key.as_str(), value) {
            ("type", value) => match portable_type(value) {
                Some(value) => value,
                None => continue,
            },
            ("nullable", _) => continue,
            ("enum", Json::Array(values)) if values.is_empty() => continue,
            ("enum" | "required", Json::Array(values)) => without_repetitions(values).into(),
            ("required", _) => continue,
            (key, value) if NUMBER_KEYWORDS.contains(&key) && is_no_number(value) => continue,
            // Before draft 6, these said what `minimum` and `maximum` mean.
            ("exclusiveMinimum" | "exclusiveMaximum", Json::Bool(_)) => continue,
            ("minimum", value) if is_exclusive(members, "exclusiveMinimum") => {
                keywords.insert("exclusiveMinimum".into(), value.clone());
                continue;
            }
            ("maximum", value) if is_exclusive(members, "exclusiveMaximum") => {
                keywords.insert("exclusiveMaximum".into(), value.clone());
                continue;
            }
            ("items", Json::Array(items)) => {
                keywords.insert("prefixItems".into(), items.iter().map(portable).collect());
                continue;
            }
            ("additionalItems", value) => {
                if matches!(members.get("items"), Some(Json::Array(_))) {
                    keywords.insert("items".into(), portable_or_bool(value));
                }
                continue;
            }
            (key, Json::Object(schemas)) if SCHEMA_MAPS.contains(&key) => {
                let schemas = schemas.iter().map(|(name, schema)| (name.clone(), portable(schema)));
                Json::Object(schemas.collect())
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Json::Array(schemas)) => {
                schemas.iter().map(portable).collect()
            }
            ("additionalProperties" | "unevaluatedProperties" | "unevaluatedItems", value) => {
                portable_or_bool(value)
            }
            ("items" | "contains" | "propertyNames" | "not" | "if" | "then" | "else", value) => {
                portable(value)
            }
            (_, value) => value.clone(),
        };
        keywords.insert(key.clone(), value);
    }
    if members.get("nullable") == Some(&Json::Bool(true))
        && let Some(Json::String(name)) = keywords.get("type").cloned()
    {
        keywords.insert("type".into(), json!([name, "null"]));
    }
    let may_be_array = match keywords.get("type") {
        Some(Json::Array(names)) => names.iter().any(|name| name == "array"),
        Some(name) => name == "array",
        None => false,
    };
    if may_be_array && !keywords.contains_key("items") {
        keywords.insert("items".into(), json!({}));
    }
    only_known_required(&mut keywords);
    Json::Object(keywords)
}

fn without_repetitions(values: &[Json]) -> Vec<Json> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    all
}

/// Whether no draft has `value` for a keyword with a number: an older one has booleans.
fn is_no_number(value: &Json) -> bool {
    !value.is_number() && !value.is_boolean()
}

fn portable_or_bool(schema: &Json) -> Json {
    if schema.is_boolean() { schema.clone() } else { portable(schema) }
}

fn is_exclusive(members: &Map<String, Json>, key: &str) -> bool {
    members.get(key) == Some(&Json::Bool(true))
}

/// A type of JSON Schema; `None` for a type that is not known.
fn portable_type(value: &Json) -> Option<Json> {
    let known = |name: &Json| {
        let name = name.as_str()?.to_lowercase();
        let alias = TYPE_ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name.as_str(), |(_, name)| name);
        TYPES.contains(&name).then(|| Json::from(name))
    };
    match value {
        Json::Array(names) => {
            let names: Vec<Json> = names.iter().filter_map(known).collect();
            (!names.is_empty()).then_some(Json::Array(names))
        }
        name => known(name),
    }
}

/// Leaves out of `required` what the properties do not have, which some endpoints refuse.
fn only_known_required(members: &mut Map<String, Json>) {
    let Some(Json::Object(properties)) = members.get("properties").cloned() else { return };
    if let Some(Json::Array(names)) = members.get_mut("required") {
        names.retain(|name| name.as_str().is_some_and(|name| properties.contains_key(name)));
    }
}

/// A schema without references and choices at its top: with the properties of all that it refers to or chooses from.
fn inlined(mut schema: Map<String, Json>, document: &Json) -> Map<String, Json> {
    for _ in 0..MAX_REFERENCES {
        let Some(Json::String(reference)) = schema.shift_remove("$ref") else { break };
        let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
        for (key, value) in target.and_then(Json::as_object).into_iter().flatten() {
            if !schema.contains_key(key) {
                schema.insert(key.clone(), value.clone());
            }
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let Some(Json::Array(branches)) = schema.shift_remove(keyword) else { continue };
        let branches = branches.iter().filter_map(Json::as_object);
        let branches: Vec<_> = branches.map(|branch| inlined(branch.clone(), document)).collect();
        merge(&mut schema, &branches, keyword == "allOf");
    }
    schema
}

/// Adds the properties of `branches` to a schema. What `all` of the branches require is required; with a choice, the description
/// tells what each requires.
fn merge(schema: &mut Map<String, Json>, branches: &[Map<String, Json>], all: bool) {
    let mut properties: Map<String, Json> = object_of(schema, "properties");
    for (name, property) in branches.iter().flat_map(|branch| object_of(branch, "properties")) {
        match properties.get_mut(&name) {
            None => drop(properties.insert(name, property)),
            Some(known) if *known == property || all => {}
            Some(known) => match known.get_mut("anyOf").and_then(Json::as_array_mut) {
                Some(choices) if !choices.contains(&property) => choices.push(property),
                Some(_) => {}
                None => *known = json!({"anyOf": [known.clone(), property]}),
            },
        }
    }
    let required: Vec<Vec<Json>> = branches
        .iter()
        .map(|branch| branch.get("required").and_then(Json::as_array).cloned().unwrap_or_default())
        .collect();
    let mut names = schema.get("required").and_then(Json::as_array).cloned().unwrap_or_default();
    for name in required.iter().flatten() {
        if !names.contains(name) && (all || required.iter().all(|one| one.contains(name))) {
            names.push(name.clone());
        }
    }
    if !all && required.iter().any(|one| one.iter().any(|name| !names.contains(name))) {
        let choices: Vec<String> =
            required.iter().map(|one| Json::from(one.clone()).to_string()).collect();
        let note = format!("Give the members of one of these lists: {}.", choices.join(", "));
        let text = schema.get("description").and_then(Json::as_str).unwrap_or_default();
        let text = if text.is_empty() { note } else { format!("{text}\n{note}") };
        schema.insert("description".into(), text.into());
    }
    schema.insert("properties".into(), properties.into());
    if !names.is_empty() {
        schema.insert("required".into(), names.into());
    }
    for (key, value) in branches.iter().flatten().filter(|_| all) {
        if !schema.contains_key(key) {
            schema.insert(key.clone(), value.clone());
        }
    }
}

fn object_of(schema: &Map<String, Json>, key: &str) -> Map<String, Json> {
    schema.get(key).and_then(Json::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_30_5_a_schema_that_every_endpoint_takes_stays_as_it_is() {
        let schema = r##"{"type":"object","description":"d","properties":{"b":{"type":"array","items":{"$ref":"#/$defs/x"}},"a":{"type":["string","null"],"default":null,"enum":["v",null]},"o":{"type":"object"},"c":{"anyOf":[{"type":"string"},{"type":"null"}],"minimum":1.5}},"required":["b"],"additionalProperties":false,"$defs":{"x":{"type":"object","properties":{"required":{"type":"boolean"}},"additionalProperties":{"type":"string"}}}}"##;
        let json: Json = serde_json::from_str(schema).unwrap();
        assert_eq!(portable_schema(&json).to_string(), schema);
    }

    #[test]
    fn c_30_5_the_top_of_a_schema_is_an_object_with_properties() {
        let x = json!({"type": "string"});
        let cases = [
            (json!({"type": "object"}), json!({"type": "object", "properties": {}})),
            (json!({}), json!({"type": "object", "properties": {}})),
            (json!(null), json!({"type": "object", "properties": {}})),
            (json!(true), json!({"type": "object", "properties": {}})),
            (
                json!({"properties": null, "type": "object", "required": null, "$schema": "http://json-schema.org/draft-04/schema#"}),
                json!({"type": "object", "properties": {}}),
            ),
            (
                json!({"properties": {"x": x}, "required": ["x", "y"], "type": ["object", "null"]}),
                json!({"properties": {"x": x}, "required": ["x"], "type": "object"}),
            ),
            (
                json!({"$ref": "#/definitions/A", "definitions": {"A": {"type": "object", "properties": {"x": x}}}}),
                json!({"definitions": {"A": {"type": "object", "properties": {"x": x}}}, "type": "object", "properties": {"x": x}}),
            ),
            (
                json!({"type": "object", "properties": {"x": x}, "allOf": [{"properties": {"y": x}, "required": ["y"], "additionalProperties": false}]}),
                json!({"type": "object", "properties": {"x": x, "y": x}, "required": ["y"], "additionalProperties": false}),
            ),
            (
                json!({"type": "object", "anyOf": [
                    {"properties": {"a": x, "c": x}, "required": ["a", "c"]},
                    {"properties": {"b": x, "c": {"type": "integer"}}, "required": ["b", "c"]}]}),
                json!({
                    "type": "object",
                    "properties": {"a": x, "b": x, "c": {"anyOf": [x, {"type": "integer"}]}},
                    "required": ["c"],
                    "description": "Give the members of one of these lists: [\"a\",\"c\"], [\"b\",\"c\"].",
                }),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(portable_schema(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn c_30_5_older_drafts_and_loose_words_become_the_newest_draft() {
        let cases = [
            (json!(true), json!({})),
            (json!({"type": "array"}), json!({"type": "array", "items": {}})),
            (
                json!({"type": "array", "items": [{"type": "str"}, true], "additionalItems": false}),
                json!({"type": "array", "prefixItems": [{"type": "string"}, {}], "items": false}),
            ),
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": false}),
                json!({"type": "integer", "exclusiveMinimum": 1, "maximum": 5}),
            ),
            (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
            (
                json!({"type": "string", "enum": ["a", "b", "a"], "minLength": "1", "maxLength": 5}),
                json!({"type": "string", "enum": ["a", "b"], "maxLength": 5}),
            ),
            (
                json!({"type": "object", "properties": {"a": {}}, "required": ["a", "a", "b"]}),
                json!({"type": "object", "properties": {"a": {}}, "required": ["a"]}),
            ),
            (json!({"type": "object", "required": {}}), json!({"type": "object"})),
            (json!({"type": "any", "enum": [], "required": true, "description": null}), json!({})),
        ];
        for (property, expected) in cases {
            let schema = json!({"type": "object", "properties": {"p": property}});
            assert_eq!(portable_schema(&schema)["properties"]["p"], expected, "{property}");
        }
    }

    #[test]
    fn c_30_5_what_cannot_be_checked_is_left_to_the_server() {
        let schema = json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {
            "a": {"type": "string", "pattern": "^(?!x)", "widget": 5}, "b": {"type": "integer"}}, "dependencies": {"a": ["b"]}});
        let validator = compile_portable(&schema).unwrap();
        assert!(validator.find_violations(&json!({"a": "x", "b": 1})).is_empty());
        assert!(!validator.find_violations(&json!({"b": "one"})).is_empty());
        let remote =
            json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}});
        assert!(compile_portable(&remote).is_err());
    }
}
