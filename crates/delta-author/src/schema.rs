//! JSON Schemas of the files that an author writes, for editors. They come from the tables with which delta reads those
//! files, so that an editor and delta cannot disagree.
//!
//! Draft 7 is the version that YAML language servers support best. A schema contains what the tables contain: only delta
//! checks, for example, the text of `exec:`.

use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, MappingSchema, ValueShape};
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

fn shape_schema(shape: &'static ValueShape, definitions: &mut Map<String, Json>) -> Json {
    match shape {
        ValueShape::Text => json!({"type": ["string", "number", "boolean"]}),
        ValueShape::Pattern(pattern) => {
            json!({"type": ["string", "number", "boolean"], "pattern": format!("^(?:{pattern})$")})
        }
        ValueShape::Boolean => json!({"type": "boolean"}),
        ValueShape::Integer(range) => {
            json!({"type": "integer", "minimum": range.start, "maximum": range.end - 1})
        }
        ValueShape::Milliseconds(range) => quantity_schema(range, "^[0-9].*[a-z]$"),
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
    use crate::agent_test::expectation::{EXPECT_MAPPING, Expectation};
    use delta_agent::{agent, context, hook, tool};
    use delta_llm::llm;
    use delta_sandbox::SandboxSetting;
    use delta_yaml::diagnostic::DiagnosticReport;
    use delta_yaml::yaml::YamlDocument;

    /// Values of every kind, which an author might write for any key.
    const VALUES: [&str; 14] = [
        "",
        "text",
        "'5'",
        "5",
        "0",
        "-1",
        "2.5",
        "true",
        "99999999999999",
        "[]",
        "[text]",
        "[[x]]",
        "{}",
        "{text: text}",
    ];

    /// Tries each value for each key of a mapping, next to the required keys. What the schema rejects, delta rejects too, so
    /// that an editor never objects to a file that loads; and what the tables alone reject, the schema rejects.
    fn check(mapping: &'static MappingSchema, base: &str, load: impl Fn(&YamlDocument)) {
        let schema = jsonschema::validator_for(&file_schema("a file", mapping)).unwrap();
        let verdicts = |text: &str| {
            let doc = YamlDocument::parse("file.yaml", text).unwrap();
            let json = doc.to_json(&doc.root).unwrap();
            load(&doc);
            let mut report = DiagnosticReport::default();
            doc.drain_diagnostics(&mut report);
            doc.fields(&doc.root, mapping);
            let mut table_report = DiagnosticReport::default();
            doc.drain_diagnostics(&mut table_report);
            (schema.is_valid(&json), report, table_report)
        };
        let (valid, report, _) = verdicts(base);
        assert!(valid && report.is_empty(), "{base}\n{report}");
        for key in mapping.keys {
            for value in VALUES {
                let other_lines =
                    base.lines().filter(|line| !line.starts_with(&format!("{}:", key.name)));
                let rest = other_lines.map(|line| format!("{line}\n")).collect::<String>();
                let text = format!("{rest}{}: {value}\n", key.name);
                let (valid, report, table_report) = verdicts(&text);
                assert!(valid || !report.is_empty(), "only the schema rejects\n{text}");
                assert!(
                    !valid || table_report.is_empty(),
                    "only the tables reject\n{text}\n{table_report}"
                );
            }
        }
        let (valid, report, _) = verdicts(&format!("{base}unknown: 1\n"));
        assert_eq!(
            (valid, report.is_empty()),
            (mapping.allows_other_keys, mapping.allows_other_keys)
        );
        let (valid, report, _) = verdicts(&format!("{base}x-own: {{a: [1]}}\n"));
        assert!(valid && report.is_empty(), "{report}");
    }

    #[test]
    fn c_1_3_the_schema_of_a_tool_is_what_is_read() {
        let load = |doc: &YamlDocument| drop(tool::Tool::read(doc, &doc.root));
        check(&tool::TOOL_MAPPING, "name: n\ncommand: [a]\n", load);
        check(&tool::TOOL_MAPPING, "name: n\nexec: a ${p}\nparameters: [{name: p}]\n", load);
    }

    #[test]
    fn c_1_3_the_schema_of_the_llm_is_what_is_read() {
        let load = |doc: &YamlDocument| {
            drop(llm::LlmConfig::read(doc, &doc.root, std::path::Path::new("/nowhere"), None));
            // The agent reads it, together with its other sandboxes.
            let sandbox = doc.root.get("sandbox").filter(|node| !node.is_null());
            drop(sandbox.and_then(|node| SandboxSetting::read(doc, node)));
        };
        check(&agent::LLM_SECTION, "model: m\n", load);
    }

    #[test]
    fn c_1_3_the_schema_of_context_yaml_is_what_is_read() {
        let load = |doc: &YamlDocument| drop(context::ContextManifest::read(doc));
        check(&context::CONTEXT_MAPPING, "sources: [{type: journal}]\n", load);
        check(
            &context::CONTEXT_MAPPING,
            "sources: [{type: computed_file, generator: {command: [a]}, output_path: x}]\n",
            load,
        );
    }

    #[test]
    fn c_9_1_the_schema_of_hooks_yaml_is_what_is_read() {
        let load = |doc: &YamlDocument| drop(hook::AgentHooks::read_file(doc, &mut Vec::new()));
        check(&hook::HOOKS_MAPPING, "on_error: {command: [a]}\n", load);
        check(
            &hook::HOOKS_MAPPING,
            "lifecycle_hooks: {on_error: {command: [a], on_failure: fail}}\n",
            load,
        );
    }

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
    fn c_1_3_the_schema_of_a_script_is_what_is_read() {
        let load = |doc: &YamlDocument| {
            if let Err(mut report) = llm::script::ScriptFile::parse(&doc.name, &doc.text) {
                doc.append_report(&mut report);
            }
        };
        check(
            &llm::script::SCRIPT_MAPPING,
            "turns: [{say: x, call: [{tool: t, args: {}}]}]\n",
            load,
        );
    }

    #[test]
    fn c_17_1_the_schema_of_a_test_is_what_is_read() {
        let load = |doc: &YamlDocument| {
            drop(agent_test::AgentTest::from_document(doc, "tests/x.yaml".as_ref()))
        };
        check(
            &agent_test::TEST_MAPPING,
            "task: x\nllm: {turns: [{say: x}]}\nexpect: {result: x}\n",
            load,
        );
        let load = |doc: &YamlDocument| drop(Expectation::read(doc, &doc.root));
        check(&EXPECT_MAPPING, "status: FAILED\n", load);
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
