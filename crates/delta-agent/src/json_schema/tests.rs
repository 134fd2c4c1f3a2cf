use super::*;
use serde_json::json;

fn compile(schema: &Json) -> JsonSchema {
    JsonSchema::compile(schema).unwrap_or_else(|errors| panic!("{schema}: {errors:?}"))
}

fn assert_violations(schema: Json, value: Json, expected: &[&str]) {
    let schema = compile(&schema);
    let violations = schema.find_violations(&value);
    let messages: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{value}");
    assert_eq!(schema.is_valid(&value), expected.is_empty(), "{value}");
}

fn compile_errors(schema: Json) -> Vec<String> {
    let errors = JsonSchema::compile(&schema).expect_err("it compiles");
    let describe_error = |error: SchemaError| match error.help {
        Some(help) => format!("{}: {} ({help})", error.pointer, error.message),
        None => format!("{}: {}", error.pointer, error.message),
    };
    errors.into_iter().map(describe_error).collect()
}

#[test]
fn c_6_4_a_violation_says_where_it_is_and_what_is_expected() {
    let schema = json!({
        "type": "object",
        "properties": {
            "title": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]+$"},
            "count": {"type": ["integer", "null"], "minimum": 3, "exclusiveMaximum": 10},
            "price": {"multipleOf": 0.01},
            "state": {"enum": ["open", "closed"]},
            "version": {"const": 2},
            "tags": {"items": {"type": "string"}, "uniqueItems": true, "maxItems": 3},
            "a/b": {"type": "boolean"},
        },
        "required": ["title", "count"],
        "additionalProperties": false
    });
    assert_violations(schema.clone(), json!({"title": "abc", "count": 3.0}), &[]);
    assert_violations(
        schema.clone(),
        json!({"title": "A", "count": "many", "price": 0.125, "state": "new", "version": 1}),
        &[
            "/title: must have at least 2 characters, not 1",
            "/title: must match the pattern `^[a-z]+$`, not \"A\"",
            "/count: must be an integer or null, not \"many\"",
            "/price: must be a multiple of 0.01 (`multipleOf`), not 0.125",
            "/state: must be one of \"open\", \"closed\", not \"new\"",
            "/version: must be 2, not 1",
        ],
    );
    assert_violations(
        schema.clone(),
        json!({"tags": ["x", 5, "x", []], "a/b": {}, "titel": 1, "count": 2}),
        &[
            "the property `title` is required",
            "/count: must be at least 3 (`minimum`), not 2",
            "/tags: must have unique items; items 0 and 2 are equal",
            "/tags: must have at most 3 items, not 4",
            "/tags/1: must be a string, not 5",
            "/tags/3: must be a string, not an array",
            "/a~1b: must be a boolean, not an object",
            "the property `titel` is not allowed; did you mean `title`?",
        ],
    );
    assert_violations(schema, json!([]), &["must be an object, not an array"]);
    assert_violations(json!(false), json!(1), &["is not allowed"]);
    assert_violations(
        json!({"propertyNames": {"maxLength": 1}}),
        json!({"ab": 1}),
        &["the name of the property `ab` must have at most 1 character, not 2"],
    );
}

#[test]
fn c_6_4_a_violation_explains_alternatives() {
    let schema = json!({"anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"n": {"minimum": 1}}},
        {"oneOf": [{"const": 1}, {"const": 2}]}
    ]});
    assert_violations(schema.clone(), json!(2), &[]);
    assert_violations(
        schema,
        json!({"n": 0}),
        &[
            "must match one of the schemas of `anyOf`, not an object (must be a string, not an object; \
           or /n: must be at least 1 (`minimum`), not 0; or must match one of the schemas of `oneOf`, not an object)",
        ],
    );
    assert_violations(
        json!({"oneOf": [{"minimum": 1}, {"type": "string"}, {"minimum": 2}]}),
        json!(2),
        &["must match exactly one schema of `oneOf`, not schemas 1 and 3"],
    );
    assert_violations(json!({"not": {}}), json!(2), &["must not match the schema of `not`"]);
    let schema = json!({"if": {"const": 1}, "then": {"type": "string"}, "else": {"minimum": 5}});
    assert_violations(schema.clone(), json!(1), &["must be a string, not 1"]);
    assert_violations(schema, json!(2), &["must be at least 5 (`minimum`), not 2"]);
    assert_violations(
        json!({"contains": {"minimum": 5}, "minContains": 2, "maxContains": 2}),
        json!([5, 1]),
        &["must have at least 2 items that match the schema of `contains`, not 1"],
    );
}

#[test]
fn c_6_4_an_unsupported_schema_is_rejected_with_its_keyword_and_pointer() {
    for (schema, expected) in [
        (
            json!({"properties": {"a": {"unevaluatedItems": false}}}),
            "/properties/a/unevaluatedItems: the keyword `unevaluatedItems` is not supported",
        ),
        (
            json!({"minimun": 1}),
            "/minimun: the keyword `minimun` is not supported (did you mean `minimum`?)",
        ),
        (
            json!({"items": [{}]}),
            "/items: must be one schema, not an array (write `prefixItems`, or declare draft 7 in `$schema`)",
        ),
        (
            json!({"allOf": [{"nullable": true}]}),
            "/allOf/0/nullable: the keyword `nullable` is not supported (add `null` to the types under `type`)",
        ),
        (
            json!({"type": "text"}),
            "/type: a type must be one of `null`, `boolean`, `integer`, `number`, `string`, `array`, `object`",
        ),
        (
            json!({"$ref": "other.json"}),
            "/$ref: a reference must point into this document (such as `#/$defs/name`)",
        ),
        (json!({"$ref": "#/$defs/a"}), "/$ref: `#/$defs/a` is not a schema in this document"),
        (
            json!({"$schema": "http://json-schema.org/draft-04/schema#"}),
            "/$schema: the draft is not supported (known here: `https://json-schema.org/draft/2020-12/schema`, `http://json-schema.org/draft-07/schema#`)",
        ),
        (
            json!({"pattern": "(?=a)"}),
            "/pattern: the pattern is not supported: lookahead and lookbehind are not supported",
        ),
        (
            json!({"patternProperties": {"/(": {}}}),
            "/patternProperties/~1(: the pattern is not supported: not a regular expression: unclosed group",
        ),
        (json!({"minLength": -1}), "/minLength: must be a non-negative integer"),
        (json!({"exclusiveMinimum": true}), "/exclusiveMinimum: must be a number"),
        (json!({"multipleOf": 0}), "/multipleOf: must be greater than zero"),
        (json!({"anyOf": []}), "/anyOf: must be a non-empty array of schemas"),
        (json!({"properties": []}), "/properties: must be an object whose values are schemas"),
        (json!({"required": true}), "/required: must be an array"),
        (json!({"not": 5}), "/not: a schema must be an object or a boolean"),
    ] {
        assert_eq!(compile_errors(schema), [expected]);
    }
    assert_eq!(compile_errors(json!({"a1": 1, "b2": 2})).len(), 2, "all errors are reported");
    for keyword in compiler::KEYWORDS {
        let errors = compile_errors(json!({"not": {}, "allOf": 1, keyword: null}));
        assert!(errors.iter().all(|error| !error.contains("not supported")), "{errors:?}");
    }
}

#[test]
fn c_6_4_references_are_recursive_and_end() {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "properties": {"kids": {"items": {"$ref": "#/$defs/node"}}, "n": {"type": "integer"}}
        }}
    });
    let value = json!({"kids": [{"n": 1}, {"kids": [{"n": "x"}]}]});
    assert_violations(tree, value, &["/kids/1/kids/0/n: must be an integer, not \"x\""]);
    assert_violations(
        json!({"$defs": {"a/b~c %": {"type": "null"}}, "$ref": "#/$defs/a~1b~0c%20%25"}),
        json!(1),
        &["must be null, not 1"],
    );
    let message = "the references from this schema lead back to it, for the same value";
    for (schema, place) in [
        (json!({"$ref": "#"}), ""),
        (
            json!({"properties": {"a": {"anyOf": [{"type": "null"}, {"not": {"$ref": "#/properties/a"}}]}}}),
            "/properties/a",
        ),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"if": {"$ref": "#/$defs/a"}}}}),
            "/$defs/",
        ),
    ] {
        let errors = compile_errors(schema);
        assert!(errors.len() == 1 && errors[0].ends_with(message), "{errors:?}");
        assert!(errors[0].starts_with(place), "{errors:?}");
    }
}

#[test]
fn c_6_4_no_schema_overflows_the_stack_or_takes_forever() {
    let text = format!("{}{}", "[".repeat(120), "]".repeat(120));
    let deep: Json = serde_json::from_str(&text).unwrap();
    // A schema that tries two alternatives at each level, the second one twice.
    let twice = json!({"anyOf": [
        {"items": {"$ref": "#"}, "maxItems": 0, "type": "array"},
        {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}], "type": "array"}
    ]});
    assert_violations(twice.clone(), deep.clone(), &[]);
    let mut wrong = json!(5);
    for _ in 0..100 {
        wrong = json!([wrong]);
    }
    assert!(!compile(&twice).find_violations(&wrong).is_empty());
    // A chain of references that is too long for the stack.
    let mut schema = json!({"$ref": "#/$defs/0", "$defs": {"20000": true}});
    for number in 0..20_000 {
        schema["$defs"][number.to_string()] = json!({"$ref": format!("#/$defs/{}", number + 1)});
    }
    assert_too_deep(&schema);
    schema = json!({"propertyNames": schema, "$defs": schema["$defs"]});
    let violations = compile(&schema).find_violations(&json!({"name": 1}));
    assert_eq!(violations[0].to_string(), "is nested too deeply to be checked");
    let mut schema = json!({"items": {"$ref": "#/$defs/0"}, "$defs": {"20": {"$ref": "#"}}});
    for number in 0..20 {
        let next = format!("#/$defs/{}", number + 1);
        schema["$defs"][number.to_string()] =
            json!({"anyOf": [{"oneOf": [{"not": {"not": {"$ref": next}}}]}]});
    }
    let schema = compile(&schema);
    let violations = schema.find_violations(&deep);
    assert_eq!(violations[0].to_string(), "is nested too deeply to be checked");
    assert!(!schema.is_valid(&deep));
}

fn assert_too_deep(schema: &Json) {
    assert_violations(schema.clone(), json!(1), &["is nested too deeply to be checked"]);
}

#[test]
fn c_6_4_draft_7_is_read_as_draft_7() {
    let draft = "http://json-schema.org/draft-07/schema#";
    let schema = json!({
        "$schema": draft,
        "$id": "https://example.org/x",
        "definitions": {"n": {"type": "integer"}},
        "properties": {
            "pair": {"items": [{"$ref": "#/definitions/n"}, true], "additionalItems": false},
            "n": {"$ref": "#/definitions/n", "minimum": 5, "unheard": 1}
        }
    });
    assert_violations(schema.clone(), json!({"pair": [1, "x"], "n": 1}), &[]);
    assert_violations(
        schema,
        json!({"pair": ["x", 1, 2], "n": "x"}),
        &[
            "/pair/0: must be an integer, not \"x\"",
            "/pair/2: is not allowed",
            "/n: must be an integer, not \"x\"",
        ],
    );
    for keyword in ["prefixItems", "minContains", "maxContains"] {
        assert!(compile_errors(json!({"$schema": draft, keyword: 1}))[0].contains("not supported"));
    }
}
