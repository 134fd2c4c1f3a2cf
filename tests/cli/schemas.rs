//! The schemas that `delta schema` prints, and the loader: what loads is valid, and what the loader refuses for an unknown
//! key or a wrong kind of value is not.

use super::DELTA;
use delta_yaml::yaml::YamlDocument;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::sandbox::Sandbox;

/// What [`schemas`] gives: the schema of each kind of file, by the name that `delta schema` knows.
type Schemas = BTreeMap<&'static str, Validator>;

fn schemas(sandbox: &Sandbox) -> Schemas {
    let printed = |name| {
        let text = sandbox.delta(["schema", name]).output().expect_code(0).stdout;
        (name, jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap())
    };
    ["agent", "context", "hooks", "script", "test", "tools"].map(printed).into()
}

fn json_of(file: &Path) -> Value {
    let doc = YamlDocument::parse("file.yaml", fs::read_to_string(file).unwrap());
    let doc = doc.unwrap_or_else(|error| panic!("{}: {error:?}", file.display()));
    doc.to_json(&doc.root).unwrap()
}

/// The files of the agent in `home` that a schema is there for, each with the name of the schema.
fn files(home: &Path) -> Vec<(PathBuf, &'static str)> {
    let named = ["agent", "context", "hooks", "script"];
    let mut files: Vec<_> =
        named.map(|name| (home.join(format!("{name}.yaml")), name)).into_iter().collect();
    files.push((home.join("config.yaml"), "agent"));
    let tests = fs::read_dir(home.join("tests")).into_iter().flatten().flatten();
    let tests =
        tests.map(|entry| entry.path()).filter(|path| path.extension() == Some("yaml".as_ref()));
    files.extend(tests.map(|file| (file, "test")));
    files.retain(|(file, _)| file.is_file());
    let mut queue: Vec<PathBuf> = files.iter().map(|(file, _)| file.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(file) = queue.pop() {
        for import in json_of(&file)["imports"].as_array().into_iter().flatten() {
            let import = file.parent().unwrap().join(import.as_str().unwrap());
            if import.is_file() && seen.insert(import.canonicalize().unwrap()) {
                files.push((import.clone(), "tools"));
                queue.push(import);
            }
        }
    }
    files
}

/// Fails unless all files of the agent are valid; says how many there are.
fn check_valid(schemas: &Schemas, home: &Path) -> usize {
    let files = files(home);
    for (file, schema) in &files {
        let json = json_of(file);
        let wrong: Vec<String> =
            schemas[schema].iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{}: {wrong:#?}", file.display());
    }
    files.len()
}

/// The agent directories at and below `dir`.
fn agents(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.is_dir()).flat_map(|path| agents(&path)).collect();
    if ["agent.yaml", "config.yaml"].iter().any(|name| dir.join(name).is_file()) {
        found.push(dir.to_owned());
    }
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A finding of the rule `load`.
struct Refusal {
    file: PathBuf,
    message: String,
}

impl Refusal {
    /// Whether it is something that a schema can see; to one, the schema of `finish` is any value.
    fn is_of_shape(&self) -> bool {
        if self.message.starts_with("the schema of `finish`, ") {
            return false;
        }
        let says = |words: &&str| self.message.contains(*words);
        let refused = ["unknown key `", " is not a hook", "` is not a `type` of "];
        let kinds = ["must be a string", "must be a list", "must be a mapping", "must be a number"];
        let choices = ["must be `", "must be a whole number", "must be one of"];
        refused.iter().chain(&kinds).chain(&choices).any(says)
    }
}

/// What the loader says of the agent in `home`.
fn refusals(sandbox: &Sandbox, home: &Path) -> Vec<Refusal> {
    let home = home.canonicalize().unwrap();
    let lint = ["tool", "lint", home.to_str().unwrap(), "--level", "error", "--format", "json"];
    let Value::Array(findings) = sandbox.delta(lint).output().json() else { panic!("no array") };
    let refusal = |finding: Value| Refusal {
        file: finding["file"].as_str().unwrap().into(),
        message: finding["message"].as_str().unwrap().to_owned(),
    };
    findings.into_iter().map(refusal).collect()
}

#[test]
fn c_1_3_every_example_is_valid() {
    let schemas = schemas(&Sandbox::new(DELTA));
    let agents = agents(&root().join("examples"));
    assert!(agents.len() >= 10, "where are the examples?");
    let count: usize = agents.iter().map(|home| check_valid(&schemas, home)).sum();
    assert!(count > agents.len() * 2, "where are their files?");
}

#[test]
fn c_11_4_every_template_is_valid() {
    let sandbox = Sandbox::new(DELTA);
    let schemas = schemas(&sandbox);
    for template in ["minimal", "hello-world", "file-ops", "api-tester", "coding"] {
        sandbox.delta(["init", "-t", template, template]).output().expect_code(0);
        let files = if template == "coding" { 6 } else { 4 };
        assert_eq!(check_valid(&schemas, &sandbox.path(template)), files, "{template}");
        sandbox.delta(["test", template]).output().expect_code(0);
    }
}

#[test]
fn c_11_8_an_agent_of_the_corpus_is_valid_when_it_loads() {
    let sandbox = Sandbox::new(DELTA);
    let schemas = schemas(&sandbox);
    let (mut valid, mut objected) = (0, 0);
    for entry in fs::read_dir(root().join("tests/corpus")).unwrap() {
        let home = entry.unwrap().path();
        let refused = refusals(&sandbox, &home);
        if refused.is_empty() {
            check_valid(&schemas, &home);
            valid += 1;
        }
        for (file, schema) in
            if refused.iter().any(Refusal::is_of_shape) { files(&home) } else { vec![] }
        {
            let file = file.canonicalize().unwrap();
            let of_file: Vec<_> = refused.iter().filter(|refusal| refusal.file == file).collect();
            if of_file.iter().any(|refusal| refusal.is_of_shape()) {
                assert!(!schemas[schema].is_valid(&json_of(&file)), "{} is valid", file.display());
                objected += 1;
            }
        }
    }
    assert!(
        valid > 60 && objected >= 8,
        "{valid} agents load, the schemas object to {objected} files"
    );
}

/// The places of all values in `value`, as JSON pointers.
fn places(value: &Value, at: &str) -> Vec<String> {
    let below = |name: &str, value: &Value| {
        places(value, &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")))
    };
    let mut found = vec![at.to_owned()];
    match value {
        Value::Object(entries) => {
            found.extend(entries.iter().flat_map(|(name, value)| below(name, value)));
        }
        Value::Array(items) => {
            let item = |(number, value): (usize, &Value)| below(&number.to_string(), value);
            found.extend(items.iter().enumerate().flat_map(item));
        }
        _ => {}
    }
    found
}

/// Each value of the file with a mistake in it: a key that nobody knows, or a list in the place of the value.
fn mistakes(json: &Value) -> Vec<(String, Value)> {
    let mut made = Vec::new();
    for place in places(json, "") {
        let mut other = json.clone();
        let value = other.pointer_mut(&place).unwrap();
        match value {
            Value::Object(entries) => _ = entries.insert("unheard_of".into(), json!(1)),
            _ => *value = json!([["wrong"]]),
        }
        made.push((place, other));
    }
    made
}

#[test]
fn c_1_3_the_schemas_and_the_loader_object_to_the_same_mistakes() {
    let sandbox = Sandbox::new(DELTA);
    let schemas = schemas(&sandbox);
    let mut seen = BTreeSet::new();
    for example in ["examples/command-gate", "examples/sub-agent/agents/reviewer"] {
        let home = sandbox.path("copy");
        let copied = Command::new("cp").arg("-rT").arg(root().join(example)).arg(&home).status();
        assert!(copied.unwrap().success());
        for (file, schema) in files(&home) {
            let text = fs::read(&file).unwrap();
            for (place, json) in mistakes(&json_of(&file)) {
                fs::write(&file, json.to_string()).unwrap();
                let refused = refusals(&sandbox, &home);
                let valid = schemas[schema].is_valid(&json);
                let said: Vec<&str> = refused.iter().map(|one| one.message.as_str()).collect();
                assert!(valid || !refused.is_empty(), "{schema} {place}: only the schema objects");
                let seen_by_loader = refused.iter().any(Refusal::is_of_shape);
                assert!(!valid || !seen_by_loader, "{schema} {place}: only the loader: {said:?}");
                seen.insert((schema, valid));
            }
            fs::write(&file, text).unwrap();
        }
    }
    let refused: Vec<_> = seen.iter().filter(|(_, valid)| !valid).map(|(name, _)| *name).collect();
    assert_eq!(refused, ["agent", "context", "hooks", "script", "test"]);
}

/// The numbers that stand for keys that are not written, as the schema `name` has them: mapping, key, number.
fn defaults(sandbox: &Sandbox, name: &str) -> Vec<(String, String, u64)> {
    let printed = sandbox.delta(["schema", name]).output().expect_code(0).json();
    let mut found = Vec::new();
    for (mapping, definition) in printed["definitions"].as_object().unwrap() {
        for (key, property) in definition["properties"].as_object().unwrap() {
            let default = property.get("default").and_then(Value::as_u64);
            found.extend(default.map(|number| (mapping.clone(), key.clone(), number)));
        }
    }
    found.sort();
    found
}

#[test]
fn c_2_1_what_is_not_written_has_the_default_that_is_promised() {
    let sandbox = Sandbox::new(DELTA);
    let own = |expected: &[(&str, &str, u64)]| -> Vec<(String, String, u64)> {
        expected
            .iter()
            .map(|(mapping, key, number)| ((*mapping).to_owned(), (*key).to_owned(), *number))
            .collect()
    };
    assert_eq!(
        defaults(&sandbox, "agent"),
        own(&[
            ("MCP_server", "max_output_bytes", 32_768),
            ("MCP_server", "start_timeout_ms", 30_000),
            ("MCP_server", "timeout_ms", 120_000),
            ("agent.yaml", "max_iterations", 30),
            ("hook", "timeout_ms", 30_000),
            ("limits", "calls_per_answer", 128),
            ("limits", "depth", 8),
            ("limits", "parallel", 4),
            ("limits", "repeats", 3),
            ("llm", "api_key_ttl_ms", 3_000_000),
            ("llm", "idle_timeout_ms", 120_000),
            ("llm", "max_retries", 5),
            ("llm", "timeout_ms", 600_000),
            ("tool", "max_output_bytes", 32_768),
            ("tool", "timeout_ms", 120_000),
        ])
    );
    assert_eq!(defaults(&sandbox, "hooks"), own(&[("hook", "timeout_ms", 30_000)]));
    let sources = [
        ("agents_md_source", "max_bytes", 32_768),
        ("generator", "timeout_ms", 30_000),
        ("stage", "timeout_ms", 30_000),
    ];
    assert_eq!(defaults(&sandbox, "context"), own(&sources));
}
