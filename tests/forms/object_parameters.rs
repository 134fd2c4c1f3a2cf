//! Tools whose parameters are objects, arrays of objects, or described by a whole JSON Schema.

use super::bodies;
use super::images::{FORMS, image_agent};
use serde_json::{Value, json};
use test_support::server::{Answer, ScriptedServer};

/// A tool with an object as a word, one with an array of objects, and one with a schema file.
const TOOLS: &str = "  - name: query\n    exec: printf '%s\\n' ${filter} ${sort}\n    parameters:\n      - name: filter\n        type: object\n        properties: {tag: {type: string}, years: {type: array, items: {type: integer}}}\n        required: [tag]\n        additionalProperties: false\n      - {name: sort, type: array, items: {type: object}}\n  - name: save\n    exec: cat\n    schema: save.json\n";
const SCHEMA: &str = r##"{"type": "object", "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "minItems": 1}}, "required": ["rows"], "additionalProperties": false, "$defs": {"row": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}}}"##;

/// Whether a schema with these members is anywhere in the request.
fn contains(value: &Value, members: &Value) -> bool {
    let is_it = |value: &Value| {
        let members = members.as_object().unwrap();
        members.iter().all(|(key, member)| value.get(key) == Some(member))
    };
    match value {
        Value::Object(entries) => is_it(value) || entries.values().any(|it| contains(it, members)),
        Value::Array(items) => items.iter().any(|item| contains(item, members)),
        _ => false,
    }
}

#[test]
fn c_28_1_objects_reach_a_tool_from_each_form_of_endpoint() {
    for (form, key) in FORMS {
        let filter = json!({"tag": "a b", "years": [1999, 2000]});
        let server = ScriptedServer::start(vec![
            Answer::calls(vec![
                ("query", json!({"filter": filter, "sort": [{"by": "x"}]})),
                ("save", json!({"rows": [{"id": 1, "more": null}]})),
            ]),
            Answer::call("save", json!({"rows": [{"id": "one"}]})),
            Answer::text("done"),
        ]);
        let sandbox = image_agent(form, &server, TOOLS);
        sandbox.write("agent/save.json", SCHEMA);
        sandbox.run_command("go", &[]).env(key, "k-1").output().expect_code(0);
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        let offered = &bodies(&server)[0];
        assert!(contains(offered, &serde_json::from_str(SCHEMA).unwrap()), "{form}: {offered}");
        let expected = json!({
            "type": "object",
            "properties": {"tag": {"type": "string"}, "years": {"type": "array", "items": {"type": "integer"}}},
            "additionalProperties": false,
            "required": ["tag"]
        });
        assert!(contains(offered, &expected), "{form}: {offered}");
        let seen = sandbox.observations();
        assert_eq!(seen[0], format!("{filter}\n[{{\"by\":\"x\"}}]\n"), "{form}");
        assert_eq!(seen[1], "{\"rows\":[{\"id\":1,\"more\":null}]}", "{form}");
        assert!(seen[2].contains("/rows/0/id: must be an integer"), "{form}: {}", seen[2]);
    }
}
