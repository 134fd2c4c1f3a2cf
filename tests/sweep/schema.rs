//! The JSON Schema of sweep.yaml, which editors use, and what `plan` accepts.

use super::{acting_sandbox, sweep};
use delta_yaml::yaml::YamlDocument;
use jsonschema::Validator;
use std::path::Path;
use test_support::sandbox::Sandbox;

fn schema(sandbox: &Sandbox) -> Validator {
    let printed = sandbox.delta(["schema", "sweep"]).output().expect_code(0).json();
    jsonschema::validator_for(&printed).unwrap()
}

fn is_valid(schema: &Validator, text: &str) -> bool {
    let doc = YamlDocument::parse("sweep.yaml", text.to_owned()).unwrap();
    schema.is_valid(&doc.to_json(&doc.root).unwrap())
}

/// A sweep.yaml with every key.
const WHOLE: &str = "\
name: s
agents: [{id: a, path: agent}]
models: ['script:m.yaml', {id: m, model: 'openai:m', llm: {temperature: 0.5, pricing: {input: 1, output: 2}}, env: {A: b}}]
inputs: [{id: one, task: x, files: {f: text}, group: g, other: [1]}]
task: '${input.task} ${param.style}'
env: {B: '${repeat}'}
files: {g: text}
llm: {seed: '${repeat}'}
params: {style: [short, 1, true]}
repeats: 2
exclude: [{model: m, style: short}]
run: {max_iterations: 4, max_duration: 30m, max_cost: 0.5, max_tokens: 200k, snapshots: true}
budget: {max_cost: 20, max_tokens: 2M}
retry: {attempts: 2, on: [llm, io]}
rate: {concurrent: 4, warm: auto}
answers: true
grade: [{name: g, command: ['true'], timeout: 5s}, {name: e, expect: {result: {contains: x}}}]
";

#[test]
fn c_1_3_what_is_planned_is_valid() {
    let sandbox = acting_sandbox();
    sandbox.write("m.yaml", "turns:\n  - say: done\n");
    let schema = schema(&sandbox);
    assert!(is_valid(&schema, WHOLE));
    sandbox.write("sweep.yaml", WHOLE);
    sweep(&sandbox, &["plan", "--dry-run"]).expect_code(0);
    for inputs in [
        "inputs.jsonl",
        "{dirs: 'cases/*'}",
        "{runs: 'work/.delta/*', at: each}",
        "{runs: work, at: [0, 3]}",
    ] {
        assert!(is_valid(&schema, &format!("name: s\nagents: [a]\ninputs: {inputs}\n")));
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/bug-sweep/sweep.yaml");
    assert!(is_valid(&schema, &std::fs::read_to_string(example).unwrap()));
}

/// Each line of the whole file is replaced by one with a mistake: both object, and the message names the value.
#[test]
fn c_1_3_the_schema_and_plan_object_to_the_same_mistakes() {
    let sandbox = acting_sandbox();
    sandbox.write("m.yaml", "turns:\n  - say: done\n");
    let schema = schema(&sandbox);
    for (mistake, expected) in [
        ("nmae: s", "unknown key `nmae`"),
        ("name: [s]", "`name` must be a string"),
        ("agents: agent", "help: write `agents: [agent]`"),
        ("agents: [{id: a}]", "an entry of `agents` has no `path`"),
        ("models: [{id: m}]", "an entry of `models` has no `model`"),
        ("inputs: [{task: x}]", "an entry of `inputs` has no `id`"),
        ("inputs: {dir: x}", "unknown key `dir`"),
        ("inputs: {dirs: x, runs: y}", "`inputs` must have one of `dirs` and `runs`"),
        ("inputs: {runs: x, at: soon}", "`at` must be"),
        ("task: [x]", "`task` must be a string"),
        ("env: [A]", "`env` must be a mapping"),
        ("params: {style: short}", "must be a list"),
        ("repeats: many", "`repeats` must be a whole number"),
        ("repeats: 0", "`repeats` must be a whole number"),
        ("exclude: {model: m}", "`exclude` must be a list"),
        ("run: {max_iteration: 3}", "unknown key `max_iteration`"),
        ("run: {max_duration: soon}", "help: write `90s`"),
        ("run: {max_cost: -1}", "`max_cost`"),
        ("budget: 20", "`budget` must be a mapping"),
        ("retry: {attempts: 0}", "`attempts` must be a whole number"),
        ("retry: {on: llm}", "`on` must be a list"),
        ("answers: 1", "`answers` must be `true` or `false`"),
        ("rate: {concurrent: 1.5}", "`concurrent` must be a whole number"),
        ("rate: {warm: always}", "`auto`"),
        ("grade: [{name: g, command: 'true'}]", "`command` must be a list"),
        (
            "grade: [{name: g, command: ['true'], expect: {}}]",
            "help: keep one of `command`, `expect`",
        ),
    ] {
        let key = mistake.split_once(':').unwrap().0.replace("nmae", "name");
        let lines = WHOLE
            .lines()
            .map(|line| if line.starts_with(&format!("{key}:")) { mistake } else { line });
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        assert!(!is_valid(&schema, &text), "the schema accepts {mistake}");
        sandbox.write("sweep.yaml", &text);
        let ran = sweep(&sandbox, &["plan", "--dry-run"]).expect_code(126);
        assert!(ran.stderr.contains(expected), "{mistake}\n{}", ran.stderr);
        assert!(ran.stderr.contains("sweep.yaml:"), "no position: {mistake}\n{}", ran.stderr);
    }
}
