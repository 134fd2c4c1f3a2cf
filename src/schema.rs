//! JSON Schemas of the files that a person writes, made from the tables by which those files are read, so that an editor
//! and the loader cannot disagree.
//!
//! Draft 7, the one that YAML language servers know best. A schema says what the tables say and no more: what `exec:`
//! or `shell:` may hold is for the loader.

use crate::yaml::shape::{Default, Key, Mapping, Shape};
use serde_json::{Map, Value as Json, json};

/// The schema of a file whose top is `mapping`; `title` is how an editor calls it.
pub fn of_file(title: &str, mapping: &'static Mapping) -> Json {
    let mut definitions = Map::new();
    let root = refer(mapping, &mut definitions);
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        "description": mapping.about,
        "definitions": definitions,
    });
    // A file in which nothing must stand may be empty.
    match mapping.keys.iter().any(|key| key.required) {
        true => schema["$ref"] = root["$ref"].clone(),
        false => schema["anyOf"] = json!([root, {"type": "null"}]),
    }
    schema
}

/// A reference to the definition of `mapping`, which is made when it is not there yet.
fn refer(mapping: &'static Mapping, definitions: &mut Map<String, Json>) -> Json {
    let name: String = mapping
        .what
        .trim_start_matches("a ")
        .trim_start_matches("an ")
        .chars()
        .filter(|c| *c != '`')
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' })
        .collect();
    if !definitions.contains_key(&name) {
        // Its place first, so that a mapping may hold itself.
        definitions.insert(name.clone(), Json::Null);
        let definition = define(mapping, definitions);
        definitions.insert(name.clone(), definition);
    }
    json!({"$ref": format!("#/definitions/{name}")})
}

fn define(mapping: &'static Mapping, definitions: &mut Map<String, Json>) -> Json {
    let mut properties = Map::new();
    for key in mapping.keys {
        properties.insert(key.name.to_owned(), property(key, definitions));
    }
    let required: Vec<&str> =
        mapping.keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut definition = json!({
        "type": "object",
        "description": mapping.about,
        "properties": properties,
        "required": required,
        "additionalProperties": mapping.open,
    });
    if !mapping.open {
        definition["patternProperties"] = json!({"^x-": true});
    }
    if !mapping.one_of.is_empty() {
        let one = |name: &&str| json!({"required": [name]});
        definition["oneOf"] = mapping.one_of.iter().map(one).collect();
    }
    definition
}

fn property(key: &'static Key, definitions: &mut Map<String, Json>) -> Json {
    if matches!(key.shape, Shape::Refused | Shape::Elsewhere) {
        return Json::Bool(false);
    }
    let value = value(&key.shape, definitions);
    let mut property = json!({"description": key.about});
    if let Some(default) = key.default {
        property["default"] = match default {
            Default::Text(text) => json!(text),
            Default::Integer(number) => json!(number),
            Default::Boolean(boolean) => json!(boolean),
        };
    }
    // `key:` with nothing behind it is as if it were not there.
    match key.required {
        true => property["allOf"] = json!([value]),
        false => property["anyOf"] = json!([value, {"type": "null"}]),
    }
    property
}

fn value(shape: &'static Shape, definitions: &mut Map<String, Json>) -> Json {
    match shape {
        Shape::Text => json!({"type": ["string", "number", "boolean"]}),
        Shape::Pattern(pattern) => {
            json!({"type": ["string", "number", "boolean"], "pattern": format!("^(?:{pattern})$")})
        }
        Shape::Boolean => json!({"type": "boolean"}),
        Shape::Integer(range) => {
            json!({"type": "integer", "minimum": range.start, "maximum": range.end - 1})
        }
        Shape::Number(from, to) if *to == f64::MAX => json!({"type": "number", "minimum": from}),
        Shape::Number(from, to) => json!({"type": "number", "minimum": from, "maximum": to}),
        Shape::Choice(choices) => json!({"enum": choices}),
        Shape::List(entries) => json!({"type": "array", "items": value(entries, definitions)}),
        Shape::Mapping(mapping) => refer(mapping, definitions),
        Shape::Kinds { by, kinds } => {
            let kind = |(name, mapping): &(&str, &'static Mapping)| {
                let tag = json!({"type": "object", "properties": {*by: {"const": name}}});
                json!({"allOf": [tag, refer(mapping, definitions)]})
            };
            json!({"anyOf": kinds.iter().map(kind).collect::<Vec<_>>()})
        }
        Shape::Names => {
            let text = value(&Shape::Text, definitions);
            json!({"type": "object", "additionalProperties": text})
        }
        Shape::Each(shape) => {
            let each = value(shape, definitions);
            json!({"type": "object", "additionalProperties": each})
        }
        Shape::Either(shapes) => {
            let any: Vec<Json> = shapes.iter().map(|shape| value(shape, definitions)).collect();
            json!({"anyOf": any})
        }
        Shape::Any | Shape::Refused | Shape::Elsewhere => Json::Bool(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_test::expectation::{EXPECT, Expectation};
    use crate::diag::Report;
    use crate::yaml::Document;
    use crate::{agent, agent_test, context, hook, llm, tool};

    /// Every kind of value that a person might write where another one belongs.
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

    /// Each value in turn under each key of a mapping, beside what the mapping must have: what the schema refuses, the
    /// loader refuses too, so that an editor never objects to a file that loads; and what the tables alone refuse, the
    /// schema refuses.
    fn check(mapping: &'static Mapping, base: &str, load: impl Fn(&Document)) {
        let schema = jsonschema::validator_for(&of_file("a file", mapping)).unwrap();
        let verdicts = |text: &str| {
            let doc = Document::parse("file.yaml", text).unwrap();
            let json = doc.json(&doc.root).unwrap();
            load(&doc);
            let (mut report, mut of_table) = (Report::default(), Report::default());
            doc.finish(&mut report);
            doc.fields(&doc.root, mapping);
            doc.finish(&mut of_table);
            (schema.is_valid(&json), report, of_table)
        };
        let (valid, report, _) = verdicts(base);
        assert!(valid && report.is_empty(), "{base}\n{report}");
        for key in mapping.keys {
            for value in VALUES {
                let others =
                    base.lines().filter(|line| !line.starts_with(&format!("{}:", key.name)));
                let kept = others.map(|line| format!("{line}\n")).collect::<String>();
                let text = format!("{kept}{}: {value}\n", key.name);
                let (valid, report, of_table) = verdicts(&text);
                assert!(valid || !report.is_empty(), "only the schema refuses\n{text}");
                assert!(
                    !valid || of_table.is_empty(),
                    "the schema lets it pass\n{text}\n{of_table}"
                );
            }
        }
        let (valid, report, _) = verdicts(&format!("{base}unheard_of: 1\n"));
        assert_eq!((valid, report.is_empty()), (mapping.open, mapping.open));
        let (valid, report, _) = verdicts(&format!("{base}x-own: {{a: [1]}}\n"));
        assert!(valid && report.is_empty(), "{report}");
    }

    #[test]
    fn c_1_3_the_schema_of_a_tool_is_what_is_read() {
        let load = |doc: &Document| drop(tool::Tool::read(doc, &doc.root));
        check(&tool::TOOL, "name: n\ncommand: [a]\n", load);
        check(&tool::TOOL, "name: n\nexec: a ${p}\nparameters: [{name: p}]\n", load);
    }

    #[test]
    fn c_1_3_the_schema_of_the_llm_is_what_is_read() {
        let load = |doc: &Document| {
            drop(llm::LlmConfig::read(doc, &doc.root, std::path::Path::new("/nowhere"), None));
        };
        check(&llm::config::LLM, "model: m\n", load);
    }

    #[test]
    fn c_1_3_the_schema_of_context_yaml_is_what_is_read() {
        let load = |doc: &Document| drop(context::Manifest::read(doc));
        check(&context::CONTEXT, "sources: [{type: journal}]\n", load);
        check(
            &context::CONTEXT,
            "sources: [{type: computed_file, generator: {command: [a]}, output_path: x}]\n",
            load,
        );
    }

    #[test]
    fn c_9_1_the_schema_of_hooks_yaml_is_what_is_read() {
        let load = |doc: &Document| drop(hook::Hooks::read_file(doc, &mut Vec::new()));
        check(&hook::HOOKS, "on_error: {command: [a]}\n", load);
        check(
            &hook::HOOKS,
            "lifecycle_hooks: {on_error: {command: [a], on_failure: fail}}\n",
            load,
        );
    }

    /// A hooks.yaml in which everything is commented out loads, and editors objected to it.
    #[test]
    fn c_9_1_the_schema_lets_a_hooks_yaml_be_empty() {
        let schema = jsonschema::validator_for(&of_file("a file", &hook::HOOKS)).unwrap();
        let doc = Document::parse("hooks.yaml", "# on_error: {command: [a]}\n").unwrap();
        assert!(schema.is_valid(&doc.json(&doc.root).unwrap()));
        assert!(!schema.is_valid(&serde_json::json!([])));
    }

    #[test]
    fn c_1_3_the_schema_of_a_script_is_what_is_read() {
        let load = |doc: &Document| {
            if let Err(mut report) = llm::script::ScriptFile::parse(&doc.name, &doc.text) {
                doc.adopt(&mut report);
            }
        };
        check(&llm::script::SCRIPT, "turns: [{say: x, call: [{tool: t, args: {}}]}]\n", load);
    }

    #[test]
    fn c_17_1_the_schema_of_a_test_is_what_is_read() {
        let load =
            |doc: &Document| drop(agent_test::Test::of_document(doc, "tests/x.yaml".as_ref()));
        check(&agent_test::TEST, "task: x\nllm: {turns: [{say: x}]}\nexpect: {result: x}\n", load);
        let load = |doc: &Document| drop(Expectation::read(doc, &doc.root));
        check(&EXPECT, "status: FAILED\n", load);
    }

    #[test]
    fn every_schema_is_one_and_every_key_is_described() {
        for mapping in [
            &agent::AGENT,
            &agent::imports::TOOLS,
            &context::CONTEXT,
            &hook::HOOKS,
            &llm::script::SCRIPT,
            &agent_test::TEST,
        ] {
            let schema = of_file("a file", mapping);
            assert!(jsonschema::draft7::meta::is_valid(&schema), "{schema:#}");
            for (name, definition) in schema["definitions"].as_object().unwrap() {
                for (key, property) in definition["properties"].as_object().unwrap() {
                    let about = property["description"].as_str();
                    let described = about.is_some_and(|about| about.ends_with('.'));
                    assert!(described || *property == false, "{name}: {key}");
                }
            }
        }
    }
}
