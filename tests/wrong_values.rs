//! C-38.7: every key of every file that an operator or an author writes, with values of every kind.
//!
//! The keys come from the tables with which delta reads the files, and the program's own readers judge each file in this
//! process. A file that delta takes is valid under its schema; a value that its schema refuses is an error at its line.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use delta_agent::agent::tool_imports::{IMPORTED_FILE_MAPPING, ImportPath};
use delta_agent::agent::{self, AGENT_MAPPING, Agent};
use delta_agent::context::CONTEXT_MAPPING;
use delta_agent::hook::HOOKS_MAPPING;
use delta_lint::agent_test::{AgentTest, TEST_MAPPING};
use delta_lint::schema::file_schema;
use delta_lint::sweep_schema::SWEEP_MAPPING;
use delta_llm::llm::ModelSelection;
use delta_llm::llm::script::{SCRIPT_MAPPING, ScriptFile};
use delta_operator::config::{CONFIG_MAPPING, OperatorConfig};
use delta_operator::sandbox_options::parse_policy;
use delta_sandbox::POLICY_MAPPING;
use delta_sweep::formats::sweep_file::SweepFile;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::mapping_schema::ValueShape;
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use jsonschema::Validator;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Values of every kind, as they are written.
const VALUES: [&str; 26] = [
    "null",
    "True",
    "0",
    "-1",
    "2.5",
    "3.0",
    "99999999999999999999999999",
    "1e400",
    "\"\"",
    "text",
    "\"5\"",
    "\"true\"",
    "5x",
    "2k",
    "30s",
    "[]",
    "[text, null]",
    "[5, true]",
    "[[x]]",
    "[{text: text}]",
    "[{}]",
    "{}",
    "{text: 5}",
    "{text: null}",
    "{text: [x]}",
    "{text: {text: [[x]]}}",
];

/// The text that a value takes the place of.
const PLACE: &str = "\"PLACE\"";

type Load<'a> = Box<dyn Fn(&str) -> DiagnosticReport + 'a>;

/// A kind of file, with contents that together have every mapping of its tables.
struct FileKind<'a> {
    name: &'static str,
    mapping: &'static MappingSchema,
    contents: Vec<Value>,
    /// The place of what `load` reads.
    below: &'static str,
    load: Load<'a>,
}

/// The mappings of all tables: those that a content has, and all that a file can have.
#[derive(Default)]
struct Coverage {
    seen: Vec<&'static MappingSchema>,
    reached: Vec<&'static MappingSchema>,
}

fn contains(mappings: &[&'static MappingSchema], mapping: &'static MappingSchema) -> bool {
    mappings.iter().any(|other| std::ptr::eq(*other, mapping))
}

/// Adds every mapping of `node` to `found`, with its place.
fn find_mappings(
    mapping: &'static MappingSchema,
    node: &Value,
    place: &str,
    found: &mut Vec<(String, &'static MappingSchema)>,
) {
    found.push((place.to_owned(), mapping));
    for (name, value) in node.as_object().unwrap() {
        if let Some(key) = mapping.key(name) {
            find_in_value(&key.shape, value, &format!("{place}/{name}"), found);
        }
    }
}

fn find_in_value(
    shape: &'static ValueShape,
    value: &Value,
    place: &str,
    found: &mut Vec<(String, &'static MappingSchema)>,
) {
    match (shape, value) {
        (ValueShape::Mapping(mapping), Value::Object(_)) => {
            find_mappings(mapping, value, place, found);
        }
        (ValueShape::Tagged { by, kinds }, Value::Object(entries)) => {
            let (_, mapping) = kinds.iter().find(|(name, _)| *name == entries[*by]).unwrap();
            find_mappings(mapping, value, place, found);
        }
        (ValueShape::List(shape), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                find_in_value(shape, item, &format!("{place}/{index}"), found);
            }
        }
        (ValueShape::MapOf(shape), Value::Object(entries)) => {
            for (name, value) in entries {
                find_in_value(shape, value, &format!("{place}/{name}"), found);
            }
        }
        (ValueShape::OneOf(shapes), value) => {
            shapes.iter().for_each(|shape| find_in_value(shape, value, place, found));
        }
        _ => {}
    }
}

/// Adds every mapping that the tables have below `mapping`.
fn reach(mapping: &'static MappingSchema, reached: &mut Vec<&'static MappingSchema>) {
    if contains(reached, mapping) {
        return;
    }
    reached.push(mapping);
    mapping.keys.iter().for_each(|key| reach_in_shape(&key.shape, reached));
}

fn reach_in_shape(shape: &'static ValueShape, reached: &mut Vec<&'static MappingSchema>) {
    match shape {
        ValueShape::Mapping(mapping) => reach(mapping, reached),
        ValueShape::Tagged { kinds, .. } => kinds.iter().for_each(|(_, kind)| reach(kind, reached)),
        ValueShape::List(shape) | ValueShape::MapOf(shape) => reach_in_shape(shape, reached),
        ValueShape::OneOf(shapes) => {
            shapes.iter().for_each(|shape| reach_in_shape(shape, reached));
        }
        _ => {}
    }
}

/// The content with `text` as the value of `key` in the mapping at `place`; one key a line.
fn with_value(content: &Value, place: &str, key: &str, text: &str) -> String {
    let mut content = content.clone();
    content.pointer_mut(place).unwrap()[key] = json!("PLACE");
    format!("{content:#}\n").replace(PLACE, text)
}

/// The lines of `key` in the mapping at `place`.
fn lines(doc: &YamlDocument, place: &str, key: &str) -> std::ops::RangeInclusive<usize> {
    let mut node: &YamlNode = &doc.root;
    for step in place.split('/').skip(1) {
        node = match node.get(step) {
            Some(value) => value,
            None => &node.items()[step.parse::<usize>().unwrap()],
        };
    }
    let (key, value) = node.entry(key).unwrap();
    let end = doc.text[..value.span.end].lines().count();
    key.line..=end.max(key.line)
}

/// Whether the error is one that a schema can state; it states nothing of what a text says, and of keys that need others.
fn is_of_kind(found: &Diagnostic) -> bool {
    let kinds = ["string", "list", "mapping", "number", "whole number"];
    kinds.iter().any(|kind| found.message.contains(&format!(" must be a {kind}")))
        || found.message.contains(" must be `")
        || found.message.contains(" has no value")
}

/// The mistakes in how delta judges the values of the files of this kind.
fn judge(kind: &FileKind<'_>, coverage: &mut Coverage) -> Vec<String> {
    let schema = jsonschema::validator_for(&file_schema("a file", kind.mapping)).unwrap();
    reach(kind.mapping, &mut coverage.reached);
    let mut problems = Vec::new();
    for content in &kind.contents {
        let report = (kind.load)(&format!("{content:#}\n"));
        assert!(report.is_empty(), "{}: {content:#}\n{report}", kind.name);
        let mut found = Vec::new();
        find_mappings(kind.mapping, content, "", &mut found);
        for (place, mapping) in found {
            if contains(&coverage.seen, mapping) || !place.starts_with(kind.below) {
                continue;
            }
            coverage.seen.push(mapping);
            for (name, values) in keys_and_values(mapping) {
                for value in values {
                    let text = with_value(content, &place, name, value);
                    let problem = judge_text(kind, &schema, &text, &place, (mapping, name));
                    problems.extend(problem.map(|it| format!("{place}/{name}: {value}: {it}")));
                }
            }
        }
    }
    problems
}

/// The keys to try, each with its values: one is enough for a key that has none that is right.
fn keys_and_values(
    mapping: &'static MappingSchema,
) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let known = mapping.keys.iter().map(|key| match key.shape {
        ValueShape::Misplaced | ValueShape::Refused => (key.name, &VALUES[..1]),
        _ => (key.name, &VALUES[..]),
    });
    known.chain([("unheard_of", &VALUES[..1]), ("x-own", &VALUES[..1])])
}

/// What is wrong with how delta judges `text`, in which the key has an odd value.
fn judge_text(
    kind: &FileKind<'_>,
    schema: &Validator,
    text: &str,
    place: &str,
    (mapping, name): (&'static MappingSchema, &'static str),
) -> Option<String> {
    let doc = YamlDocument::parse("file.yaml", text).unwrap();
    let is_valid = schema.is_valid(&doc.to_json(&doc.root).unwrap());
    let report = (kind.load)(text);
    if is_valid {
        let is_refused = report.diagnostics.iter().any(is_of_kind);
        return is_refused.then(|| format!("only delta refuses it: {report}"));
    }
    // Of two keys that exclude each other, the mapping is wrong.
    let lines = if mapping.exactly_one_of.contains(&name) {
        1..=usize::MAX
    } else {
        lines(&doc, place, name)
    };
    let at_place = report.diagnostics.iter().find(|found| lines.contains(&found.line));
    match at_place {
        None if report.is_empty() => Some("only the schema refuses it".to_owned()),
        None => Some(format!("refused elsewhere: {report}")),
        Some(found) if !found.file.ends_with(kind.name) => Some(format!("another file: {report}")),
        Some(found)
            if found.help.is_none()
                && !["must be ", "expected "].iter().any(|words| found.message.contains(words)) =>
        {
            Some(format!("it is not said what to write: {report}"))
        }
        Some(_) => None,
    }
}

fn load_agent(home: &Path) -> DiagnosticReport {
    match Agent::load(home, &ModelSelection::default(), &ImportPath::default()) {
        Ok(_) => DiagnosticReport::default(),
        Err(report) => report,
    }
}

fn one_hook() -> Value {
    json!({"command": ["true"], "timeout_ms": 5, "sandbox": {"write": [], "limits": {"memory": "1G"}}})
}

#[test]
fn c_38_7_every_key_with_a_value_of_every_wrong_kind_is_an_error_at_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let write = |name: &str, text: &str| fs::write(home.join(name), text).unwrap();
    write("system_prompt.md", "Work.\n");
    let agent = json!({"name": "a", "llm": {"model": "m"}}).to_string();
    let context = json!({"sources": [{"type": "journal"}]}).to_string();
    let write_agent = |name: &str, text: &str| {
        for (file, usual) in [("agent.yaml", &agent), ("context.yaml", &context)] {
            write(file, if file == name { text } else { usual });
        }
        _ = fs::remove_file(home.join("hooks.yaml"));
        if !["agent.yaml", "context.yaml"].contains(&name) {
            write(name, text);
        }
    };
    let load = |name: &'static str| -> Load<'_> {
        Box::new(move |text| {
            write_agent(name, text);
            load_agent(home)
        })
    };
    let tool = json!({
        "name": "t",
        "exec": "echo ${p} ${o}",
        "parameters": [{"name": "p"}, {"name": "o"}],
        "approve": [{"match": {"p": "^x$"}, "do": "allow"}],
        "preview": {"path": "p", "content": "o"},
        "ends_run": {"exit_code": 0},
        "sandbox": {"write": [], "limits": {"processes": 5}},
    });
    let plain = json!({"name": "p", "exec": "true ${command}", "parameters": [{"name": "command"}],
        "approve": {"commands": ["true"], "parameter": "command"}});
    let commanded = json!({"name": "c", "command": ["echo", {"template": "x"}]});
    let server = json!({"command": ["true"], "approve": [{"do": "ask"}]});
    let remote = json!({"url": "https://host.example/mcp", "oauth": {"scopes": ["a"]}});
    let kinds = [
        FileKind {
            name: "agent.yaml",
            below: "",
            mapping: &AGENT_MAPPING,
            contents: vec![
                json!({"name": "a", "llm": {"model": "m"}}),
                json!({"name": "a", "llm": {"model": "m", "fallback": [{"model": "n"}]}}),
                json!({
                    "name": "a",
                    "llm": {
                        "model": "m",
                        "cache": {"ttl": "5m"},
                        "provider": "anthropic",
                        "tool_choice": {"first": "required"},
                        "pricing": {"input": 1, "output": 2, "above": [{"tokens": 5}], "flex": {"input": 1, "output": 1}},
                    },
                }),
                json!({"name": "a", "llm": {"model": "m"}, "tools": [plain, tool, commanded]}),
                json!({
                    "name": "a",
                    "llm": {"model": "m"},
                    "defaults": {"approve": "ask"},
                    "sandboxes": {"s": {"write": []}},
                    "limits": {"depth": 1},
                    "finish": {"required": true},
                    "snapshots": {"exclude": ["x"]},
                    "lifecycle_hooks": {"on_error": one_hook()},
                }),
            ],
            load: load("agent.yaml"),
        },
        FileKind {
            name: "agent.yaml",
            below: "/mcp",
            mapping: &AGENT_MAPPING,
            contents: vec![json!({"name": "a", "mcp": {"s": server, "r": remote}})],
            load: Box::new(|text| {
                write_agent("agent.yaml", text);
                match agent::load_mcp_servers(home, &ImportPath::default()) {
                    Ok(_) => DiagnosticReport::default(),
                    Err(report) => report,
                }
            }),
        },
        FileKind {
            name: "context.yaml",
            below: "",
            mapping: &CONTEXT_MAPPING,
            contents: vec![json!({
                "sources": [
                    {"type": "file", "path": "x", "condition": {"when": "task_contains", "pattern": "x"}},
                    {"type": "agents_md", "condition": {"when": "file_exists", "path": "x"}},
                    {
                        "type": "computed_file",
                        "generator": {"command": ["a"]},
                        "output_path": "${RUN_DIR}/x",
                        "cache": {"strategy": "file_hash", "invalidate_on": ["*"]},
                    },
                    {
                        "type": "pipeline",
                        "stages": [{"generator": ["a"], "output": "${RUN_DIR}/y"}],
                        "cache": {"strategy": "age", "max_age_ms": 5},
                    },
                    {"type": "journal", "condition": {"when": "iteration_at_least", "iteration": 1}},
                ],
                "tokenizer": {"command": ["wc", "-w"]},
            })],
            load: load("context.yaml"),
        },
        FileKind {
            name: "hooks.yaml",
            below: "",
            mapping: &HOOKS_MAPPING,
            contents: vec![
                json!({"on_error": one_hook()}),
                json!({"lifecycle_hooks": {"on_error": one_hook()}}),
            ],
            load: load("hooks.yaml"),
        },
        FileKind {
            name: "tools.yaml",
            below: "",
            mapping: &IMPORTED_FILE_MAPPING,
            contents: vec![json!({"tools": [{"name": "t", "exec": "true"}]})],
            load: Box::new(|text| {
                write("tools.yaml", text);
                let agent = json!({"name": "a", "llm": {"model": "m"}, "imports": ["tools.yaml"]});
                write_agent("agent.yaml", &agent.to_string());
                load_agent(home)
            }),
        },
        FileKind {
            name: "script.yaml",
            below: "",
            mapping: &SCRIPT_MAPPING,
            contents: vec![
                json!({"turns": [{"say": "x", "call": [{"tool": "t"}], "usage": {"input_tokens": 5}}]}),
            ],
            load: Box::new(|text| ScriptFile::parse("script.yaml", text).err().unwrap_or_default()),
        },
        FileKind {
            name: "test.yaml",
            below: "",
            mapping: &TEST_MAPPING,
            contents: vec![json!({
                "task": "x",
                "llm": {"turns": [{"say": "x", "call": [{"tool": "t"}], "usage": {"input_tokens": 5}}]},
                "expect": {
                    "result": {"equals": "x"},
                    "error": {"type": "llm"},
                    "files": {"f": {"exists": true}},
                    "calls": [{"tool": "t"}],
                    "journal": [{"type": "THOUGHT"}],
                },
            })],
            load: Box::new(|text| {
                let doc = YamlDocument::parse("test.yaml", text).unwrap();
                AgentTest::from_document(&doc, "tests/test.yaml".as_ref());
                let mut report = DiagnosticReport::default();
                doc.drain_diagnostics(&mut report);
                report
            }),
        },
        FileKind {
            name: "sweep.yaml",
            below: "",
            mapping: &SWEEP_MAPPING,
            contents: vec![
                json!({
                    "name": "s",
                    "agents": [{"path": "a"}],
                    "models": [{"model": "m"}],
                    "inputs": [{"id": "i"}],
                    "run": {},
                    "budget": {},
                    "retry": {},
                    "rate": {},
                    "gate": {},
                    "grade": [{"name": "g", "command": ["true"]}],
                }),
                json!({"name": "s", "agents": ["a"], "inputs": {"dirs": "x/*"}}),
            ],
            load: Box::new(|text| {
                SweepFile::parse("sweep.yaml", text.to_owned()).err().unwrap_or_default()
            }),
        },
        FileKind {
            name: "config.yaml",
            below: "",
            mapping: &CONFIG_MAPPING,
            contents: vec![json!({
                "api_key_command": {"openai": "x"},
                "endpoint": {"openai": "http://localhost:8080/v1"},
                "allow": [{"agent": "coding", "dir": "/w", "tool": "run", "match": {"command": ["ls"]}}],
                "net": [{"agent": "coding", "dir": "/w", "hosts": ["a.example"]}],
            })],
            load: Box::new(|text| {
                OperatorConfig::parse("config.yaml".into(), text.to_owned())
                    .err()
                    .unwrap_or_default()
            }),
        },
        FileKind {
            name: "sandbox.yaml",
            below: "",
            mapping: &POLICY_MAPPING,
            contents: vec![json!({"write": [], "limits": {"processes": 5}})],
            load: Box::new(|text| {
                parse_policy("sandbox.yaml".as_ref(), text.to_owned()).err().unwrap_or_default()
            }),
        },
    ];
    let mut coverage = Coverage::default();
    let problems: Vec<String> = kinds.iter().flat_map(|kind| judge(kind, &mut coverage)).collect();
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    let unseen = coverage.reached.iter().filter(|mapping| !contains(&coverage.seen, mapping));
    let unseen: Vec<&str> = unseen.map(|mapping| mapping.label).collect();
    assert!(unseen.is_empty(), "no content has {unseen:?}");
}
