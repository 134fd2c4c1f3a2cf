//! Compares the validator of `finish.schema` (C-6.4) with the test suite of the JSON Schema organisation and with the crate
//! `jsonschema`.
//!
//! `.ci/run` fetches the cases.

use delta_agent::json_schema::{JsonSchema, SchemaError};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use test_support::needs;

/// The drafts: the directory of each, its `$schema`, and the minimum number of its cases that must run.
const DRAFTS: [(&str, &str, usize); 2] = [
    ("draft2020-12", "https://json-schema.org/draft/2020-12/schema", 900),
    ("draft7", "http://json-schema.org/draft-07/schema#", 850),
];

/// Whether all errors report schemas that delta does not support, not mistakes in a schema.
fn is_out_of_scope(errors: &[SchemaError]) -> bool {
    let reasons =
        ["is not supported", "must point into this document", "is not a schema in this document"];
    errors.iter().all(|error| reasons.iter().any(|reason| error.message.contains(reason)))
}

#[test]
fn c_6_4_the_cases_of_the_official_suite_pass() {
    for (draft, uri, at_least) in DRAFTS {
        let Some(dir) = needs::fetched(&format!("json-schema-tests/{draft}")) else { return };
        let (mut ran, mut wrong) = (0, Vec::new());
        let mut rejected: BTreeMap<String, usize> = BTreeMap::new();
        let mut files: Vec<PathBuf> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.push(dir.join("optional/ecmascript-regex.json"));
        files.push(dir.join("optional/float-overflow.json"));
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        for file in files {
            let groups: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
            for group in groups.as_array().unwrap() {
                let name = format!("{}: {}", file.display(), group["description"]);
                let mut schema = group["schema"].clone();
                if let Some(object) = schema.as_object_mut() {
                    object.entry("$schema").or_insert_with(|| json!(uri));
                }
                let schema = match JsonSchema::compile(&schema) {
                    Ok(schema) => schema,
                    Err(errors) if is_out_of_scope(&errors) => {
                        *rejected.entry(errors[0].message.clone()).or_default() += 1;
                        continue;
                    }
                    Err(errors) => panic!("{name}: {errors:?}"),
                };
                for case in group["tests"].as_array().unwrap() {
                    ran += 1;
                    if schema.is_valid(&case["data"]) != case["valid"]
                        || schema.find_violations(&case["data"]).is_empty() != case["valid"]
                    {
                        wrong.push(format!("{name}: {}", case["description"]));
                    }
                }
            }
        }
        println!("{draft}: {ran} cases; rejected groups: {rejected:#?}");
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(ran >= at_least, "only {ran} cases of {draft}");
    }
}

/// Values that resemble each other, so that schemas often match and often do not.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-4..5i64).prop_map(Value::from),
        (-8..9i32).prop_map(|halves| Value::from(f64::from(halves) / 2.0)),
        prop_oneof![
            Just(json!(u64::MAX)),
            Just(json!(i64::MIN)),
            Just(json!(1e300)),
            Just(json!(9_007_199_254_740_993_u64)),
            Just(json!(9_007_199_254_740_992.0))
        ],
        prop_oneof!["[ab1]{0,3}", Just("äö".to_owned()), Just("😀".to_owned())]
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab/]", inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3..4i64).prop_map(Value::from),
        (-4..5i32).prop_map(|halves| Value::from(f64::from(halves) / 2.0)),
        Just(json!(9_007_199_254_740_992_u64)),
        Just(json!(1e300))
    ]
}

fn types() -> impl Strategy<Value = Value> {
    let names = ["null", "boolean", "integer", "number", "string", "array", "object"];
    prop_oneof![
        prop::sample::select(names.to_vec()).prop_map(Value::from),
        prop::sample::subsequence(names.to_vec(), 1..4).prop_map(Value::from),
    ]
}

fn named(
    name: &'static str,
    value: impl Strategy<Value = Value> + 'static,
) -> BoxedStrategy<(String, Value)> {
    value.prop_map(move |value| (name.to_owned(), value)).boxed()
}

fn assertions() -> impl Strategy<Value = (String, Value)> {
    let limits = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
    let sizes =
        ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"];
    let patterns = vec!["^a", "b$", "[a1]{2}", "^[^a]*$", r"\d", "a|ä", r"^\w+$", "."];
    prop_oneof![
        4 => named("type", types()),
        1 => named("enum", prop::collection::vec(values(), 1..4).prop_map(Value::from)),
        1 => named("const", values()),
        2 => (prop::sample::select(limits.to_vec()), numbers()).prop_map(|(name, n)| (name.to_owned(), n)),
        1 => named("multipleOf", prop::sample::select(vec![json!(1), json!(2), json!(0.5), json!(0.25)])),
        2 => (prop::sample::select(sizes.to_vec()), 0..4u32)
            .prop_map(|(name, n)| (name.to_owned(), json!(n))),
        1 => named("pattern", prop::sample::select(patterns).prop_map(Value::from)),
        1 => named("uniqueItems", any::<bool>().prop_map(Value::from)),
        1 => named("required", prop::sample::subsequence(vec!["a", "b", "/"], 0..3).prop_map(Value::from)),
        1 => named("description", Just(json!("an annotation"))),
        1 => named("format", Just(json!("date"))),
    ]
}

fn schema_maps(
    inner: impl Strategy<Value = Value>,
    keys: [&'static str; 3],
) -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(keys.to_vec()).prop_map(str::to_owned);
    prop::collection::btree_map(keys, inner, 0..3)
        .prop_map(|entries| Value::Object(entries.into_iter().collect()))
}

/// Subschemas. They reference the definition `r` only for a part of the value, so that validation ends.
fn schemas(is_draft_7: bool) -> BoxedStrategy<Value> {
    let object = |entries: Vec<(String, Value)>| Value::Object(entries.into_iter().collect());
    let leaf = prop_oneof![
        6 => prop::collection::vec(assertions(), 0..4).prop_map(object),
        1 => any::<bool>().prop_map(Value::from),
    ];
    let schemas = leaf.prop_recursive(3, 24, 4, move |inner| {
        let smaller =
            prop_oneof![5 => inner.clone(), 1 => Just(json!({"$ref": "#/definitions/r"}))].boxed();
        let lists = prop::collection::vec(inner.clone(), 1..4).prop_map(Value::from).boxed();
        let smaller_lists =
            prop::collection::vec(smaller.clone(), 1..4).prop_map(Value::from).boxed();
        let mut applicators = vec![
            named("properties", schema_maps(smaller.clone(), ["a", "b", "/"])),
            named("patternProperties", schema_maps(smaller.clone(), ["^a", "b$", "[^a]"])),
            named("additionalProperties", smaller.clone()),
            named("propertyNames", inner.clone()),
            named("items", smaller.clone()),
            named("contains", smaller.clone()),
            named("if", inner.clone()),
            named("then", inner.clone()),
            named("else", inner.clone()),
            named("not", inner.clone()),
            named("allOf", lists.clone()),
            named("anyOf", lists.clone()),
            named("oneOf", lists),
        ];
        if is_draft_7 {
            applicators.push(named("items", smaller_lists));
            applicators.push(named("additionalItems", smaller));
        } else {
            applicators.push(named("prefixItems", smaller_lists));
            applicators.push(named("minContains", (0..3u32).prop_map(Value::from)));
            applicators.push(named("maxContains", (0..3u32).prop_map(Value::from)));
        }
        let keyword =
            prop_oneof![1 => assertions(), 3 => proptest::strategy::Union::new(applicators)];
        prop::collection::vec(keyword, 1..5).prop_map(object)
    });
    schemas.boxed()
}

#[test]
fn c_6_4_verdicts_are_those_of_another_validator() {
    for (_, uri, _) in DRAFTS {
        let is_draft_7 = uri.contains("draft-07");
        let mut config = Config::with_cases(Config::default().cases.max(500));
        if matches!(config.rng_seed, RngSeed::Random) {
            config.rng_seed = RngSeed::Fixed(20_261_122);
        }
        config.failure_persistence = None;
        let valid = Cell::new(0);
        let invalid = Cell::new(0);
        let cases = (schemas(is_draft_7), schemas(is_draft_7), prop::collection::vec(values(), 12));
        let result = TestRunner::new(config).run(&cases, |(root, definition, values)| {
            let schema = json!({
                "$schema": uri, "allOf": [root], "definitions": {"r": definition}
            });
            let own = JsonSchema::compile(&schema)
                .map_err(|errors| TestCaseError::fail(format!("{errors:?}\n{schema}")))?;
            let other =
                jsonschema::options().should_validate_formats(false).build(&schema).unwrap();
            for value in values {
                let expected = other.is_valid(&value);
                let count = if expected { &valid } else { &invalid };
                count.set(count.get() + 1);
                prop_assert_eq!(own.is_valid(&value), expected, "{} of {}", value, schema);
                let violations = own.find_violations(&value);
                prop_assert_eq!(violations.is_empty(), expected, "{} of {}", value, schema);
            }
            Ok(())
        });
        result.unwrap_or_else(|failure| panic!("{failure}"));
        let (valid, invalid) = (valid.get(), invalid.get());
        assert!(valid > 2000 && invalid > 2000, "{valid} valid, {invalid} invalid");
    }
}
