//! Parameters that are objects or arrays of any items, and tools with a whole JSON Schema.

use super::DELTA;
use serde_json::json;
use test_support::sandbox::Sandbox;

const QUERY: &str = "  - name: query\n    command: [printf, '[%s]', '{template}', {template: '--filter=${filter}'}]\n    parameters:\n      - {name: filter, type: object, properties: {tag: {type: string}}, required: [tag]}\n      - {name: list, type: array, items: {type: [object, integer, string]}, required: false}\n";

#[test]
fn c_28_1_an_object_is_one_word_and_an_appended_array_one_for_each_entry() {
    let sandbox = Sandbox::scripted(
        DELTA,
        QUERY,
        "- call: [{tool: query, args: {filter: {tag: \"it's\", n: [1, {}]}, list: [{a: 1}, 2, b c]}}]\n- call: [{tool: query, args: {filter: {n: 1}}}, {tool: query, args: {filter: [1], list: [true]}}]\n- say: done\n",
    );
    sandbox.run("go", &[]).expect_code(0);
    let argv = &sandbox.events("ACTION_REQUEST")[0]["argv"];
    let filter = r#"--filter={"tag":"it's","n":[1,{}]}"#;
    assert_eq!(*argv, json!(["printf", "[%s]", "{template}", filter, "{\"a\":1}", "2", "b c"]));
    let seen = sandbox.observations();
    let missing = "parameter `filter`: the property `tag` is required";
    assert!(seen[1].contains(missing), "{}", seen[1]);
    assert!(seen[2].contains("parameter `filter`: must be an object"), "{}", seen[2]);
    assert!(sandbox.events("ACTION_REQUEST")[1]["argv"].is_null());
}

#[test]
fn c_28_1_an_object_on_standard_input_is_its_json() {
    let tools = "  - name: put\n    exec: cat\n    stdin: body\n    parameters:\n      - {name: body, type: object, required: false, default: {a: 1}}\n";
    let turns =
        "- call: [{tool: put, args: {body: {text: \"two\\nlines\"}}}, {tool: put}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.unverified("the tool is called once without its default");
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.observations()[..2], [r#"{"text":"two\nlines"}"#, r#"{"a":1}"#]);
}

const SCHEMA: &str = r#"{"type": "object", "properties": {"path": {"type": "string"}, "size": {"type": "integer", "default": 3}, "opt": {"type": "string"}, "rows": {"type": "array"}}, "required": ["path"]}"#;

#[test]
fn c_28_1_a_tool_with_a_schema_gets_its_arguments_as_one_object() {
    let tools = "  - name: put\n    shell: 'printf \"%s|\" ${path} ${size} ${opt}; cat'\n    schema: schemas/put.json\n  - name: one\n    exec: cat\n    stdin: rows\n    schema: {type: object, properties: {rows: {type: array}}}\n";
    let turns = "- call: [{tool: put, args: {path: a b, rows: [{x: 1.50}]}}, {tool: one, args: {rows: [1, {}]}}, {tool: put, args: {}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("agent/schemas/put.json", SCHEMA);
    sandbox.run("go", &[]).expect_code(0);
    let seen = sandbox.observations();
    assert_eq!(seen[0], r#"a b|3||{"path":"a b","rows":[{"x":1.5}]}"#);
    assert_eq!(seen[1], "[1,{}]");
    assert!(seen[2].contains("the property `path` is required"), "{}", seen[2]);
    // The run needs neither the file nor the agent for a replay.
    std::fs::remove_dir_all(sandbox.path("agent/schemas")).unwrap();
    let replay = sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
    assert!(!replay.stdout.contains("not checked"), "{}", replay.stdout);
}

#[test]
fn c_28_1_imported_tools_bring_their_schemas() {
    let sandbox =
        Sandbox::scripted(DELTA, "", "- call: [{tool: put, args: {path: x}}]\n- say: done\n");
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{main}imports: [lib/tools.yaml]\n"));
    let tool = "tools:\n  - {name: put, exec: cat, schema: put.json}\n";
    sandbox.write("agent/lib/tools.yaml", tool);
    sandbox.write("agent/lib/put.json", SCHEMA);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.observations()[0], r#"{"path":"x"}"#);
    std::fs::remove_dir_all(sandbox.path("agent/lib")).unwrap();
}

#[test]
fn c_28_1_expanded_tools_with_schemas_do_the_same() {
    let tools = "  - name: put\n    shell: 'printf \"%s|\" ${path} ${size} ${opt}; cat'\n    schema: put.json\n  - name: query\n    exec: echo ${filter} ${list}\n    parameters:\n      - {name: filter, type: object, properties: {tag: {type: string}}, required: [tag]}\n      - {name: list, type: array, items: {type: object}, required: false}\n";
    let turns = "- call: [{tool: put, args: {path: a b}}, {tool: query, args: {filter: {tag: t}}}, {tool: query, args: {filter: {tag: t}, list: [{}]}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("agent/put.json", SCHEMA);
    sandbox.run("go", &[]).expect_code(0);
    let before = sandbox.observations();
    assert_eq!(
        before,
        ["a b|3||{\"path\":\"a b\"}", "{\"tag\":\"t\"}\n", "{\"tag\":\"t\"} [{}]\n"]
    );
    let main = sandbox.path("agent/agent.yaml").display().to_string();
    let expanded = sandbox.delta(["tool", "expand", &main]).output().expect_code(0).stdout;
    assert!(!expanded.contains("\n    shell:"), "{expanded}");
    sandbox.write("agent/agent.yaml", expanded);
    let args = ["run", "--agent", "agent", "-w", "other", "--run-id", "s", "-m", "go", "-y"];
    sandbox.delta(args).output().expect_code(0);
    let journal = sandbox.read("other/.delta/s/journal.jsonl");
    let events =
        journal.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let after: Vec<String> = events
        .filter(|event| event["type"] == "ACTION_RESULT")
        .map(|event| event["observation_content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(after, before);
}

#[test]
fn c_28_1_mistakes_in_schemas_are_errors_with_a_place() {
    let tools = "  - name: a\n    exec: echo ${x}\n    parameters:\n      - {name: x, type: string, items: {type: string}}\n  - name: b\n    exec: echo ${x}\n    parameters:\n      - {name: x, type: object, properties: {y: {type: text}}}\n  - name: c\n    exec: echo ${nam}\n    schema: {type: object, properties: {name: {type: string}}}\n  - name: d\n    exec: cat\n    schema: ../out.json\n  - name: e\n    exec: cat\n    schema: {type: string}\n  - name: f\n    exec: echo ${x}\n    schema: {type: object, properties: {x: {}}}\n    parameters: [{name: x, type: integer}]\n  - name: g\n    exec: echo ${x}\n    parameters: [{name: x, type: object, properties: {y: {type: integer}}, default: {y: a}}]\n  - name: h\n    exec: echo ${x}\n    parameters: [{name: x, required: [y]}]\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- say: done\n");
    sandbox.write("out.json", SCHEMA);
    let stderr = sandbox.run("go", &[]).expect_code(126).stderr;
    for expected in [
        "`items` goes with `type: array`",
        "parameter `x`, /properties/y/type:",
        "`nam` is not a property of the schema",
        "could not read the schema `../out.json`: it is outside of",
        "`schema` must be of type object",
        "with `schema`, a parameter has only a `default`",
        "`default` does not match the schema: /y: must be an integer",
        "a list in `required` goes with `type: object`",
    ] {
        assert!(stderr.contains(expected), "{expected}\n{stderr}");
    }
}
