//! `finish` and `ask_human`: how they are described, and what is taken of their arguments.

use super::forced_calls::agent;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

const SCHEMA: &str = "finish: {required: true, schema: {type: object, properties: {n: {type: integer}, tags: {type: array, items: {type: string}}}, required: [n]}}\n";

/// An agent whose LLM makes these calls, one in each answer.
fn calling(calls: &[(&str, &str)], llm: &str, settings: &str) -> (ScriptedServer, Sandbox) {
    let answers = calls.iter().zip(1..).map(|((tool, arguments), number)| {
        Answer::raw_call(&format!("call{number}"), tool, arguments)
    });
    let server = ScriptedServer::start(answers.collect::<Vec<_>>());
    let sandbox = agent("openai", &server, llm, settings);
    (server, sandbox)
}

fn run(sandbox: &Sandbox, options: &[&str]) -> Ran {
    let options = [&["--format", "json"], options].concat();
    sandbox.run_command("hello", &options).env("OPENAI_API_KEY", "k").output()
}

fn tool_names(server: &ScriptedServer, request: usize) -> Vec<Value> {
    let tools = server.requests()[request].body["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["function"]["name"].clone()).collect()
}

#[test]
fn c_6_4_built_in_tools_are_described_in_few_words_and_a_result_is_a_text() {
    let (server, sandbox) = calling(&[("finish", r#"{"result":"x"}"#)], "", "");
    run(&sandbox, &[]).expect_code(0);
    let tools = server.requests()[0].body["tools"].as_array().unwrap()[1..].to_vec();
    let parameters = |index: usize| &tools[index]["function"]["parameters"];
    assert_eq!(parameters(0)["properties"], json!({"result": {"type": "string"}}));
    assert_eq!(parameters(1)["properties"]["input_type"]["enum"][2], "confirmation");
    // They were 971 bytes, 256 of the 651 tokens of a small agent's first request.
    assert_eq!(json!(tools).to_string().len(), 574, "{tools:?}");
    assert_eq!(sandbox.events("ENGINE_START")[0]["config"]["rules"], 3);
}

#[test]
fn c_6_4_arguments_of_finish_are_taken_like_those_of_other_tools() {
    let cases = [
        ("", r#"{"result":"x"}"#, json!("x"), Value::Null),
        ("", r#"{"result":{"a":1}}"#, json!({"a": 1}), Value::Null),
        ("", r#""{\"result\":\"x\"}""#, json!("x"), json!(["result"])),
        (
            SCHEMA,
            r#"{"n":"42","tags":"[\"a\"]"}"#,
            json!({"n": 42, "tags": ["a"]}),
            json!(["n", "tags"]),
        ),
    ];
    for (settings, arguments, result, coerced) in cases {
        let (_server, sandbox) = calling(&[("finish", arguments)], "", settings);
        assert_eq!(run(&sandbox, &[]).expect_code(0).json()["result"], result, "{arguments}");
        let request = &sandbox.events("ACTION_REQUEST")[0];
        assert_eq!(request["coerced"], coerced, "{arguments}");
        if settings == SCHEMA {
            assert_eq!(request["tool_args"], result);
        }
    }
    let refused = [
        (
            "\n  strict_arguments: true",
            SCHEMA,
            r#"{"n":"42"}"#,
            "n (integer, required), tags (array, optional)",
        ),
        ("", SCHEMA, r#"{"n":"many"}"#, "n (integer, required), tags (array, optional)"),
        ("", "", r#"{"result":["x"]}"#, "result (string, required)"),
        ("", "", r#"{"result":"#, "result (string, required)"),
    ];
    for (llm, settings, arguments, parameters) in refused {
        let valid = if settings == SCHEMA { r#"{"n":1}"# } else { r#"{"result":"x"}"# };
        let (_server, sandbox) =
            calling(&[("finish", arguments), ("finish", valid)], llm, settings);
        run(&sandbox, &[]).expect_code(0);
        let observation = &sandbox.observations()[0];
        assert!(observation.starts_with("Invalid arguments for tool `finish`"), "{observation}");
        let line = format!("\nParameters: {parameters}.");
        assert!(observation.ends_with(&line), "{observation}");
    }
}

#[test]
fn c_3_1_arguments_that_are_no_json_get_the_line_of_the_parameters() {
    let calls = [
        ("echo", "{\"text\": \"x"),
        ("echo", "[1]"),
        ("ask_human", "{\"prompt\""),
        ("functions.echo", "{}"),
        ("echo(17, 25)", "{}"),
        ("finish", r#"{"result":"x"}"#),
    ];
    let (_server, sandbox) = calling(&calls, "", "");
    run(&sandbox, &[]).expect_code(0);
    let observations = sandbox.observations();
    for observation in &observations[..2] {
        assert!(observation.ends_with("\nParameters: text (string, required)."), "{observation}");
    }
    assert!(
        observations[2].contains("\nParameters: prompt (string, required)"),
        "{observations:?}"
    );
    for observation in &observations[3..5] {
        assert!(observation.ends_with("; did you mean `echo`?"), "{observation}");
    }
}

#[test]
fn c_10_1_arguments_of_ask_human_are_taken_like_those_of_other_tools() {
    let arguments = r#"{"prompt":"really?","input_type":null,"sensitive":"true"}"#;
    let calls = [("ask_human", arguments), ("finish", r#"{"result":"x"}"#)];
    let (_server, sandbox) = calling(&calls, "", "");
    run(&sandbox, &[]).expect_code(101);
    let question = &sandbox.events("HUMAN_INPUT_REQUEST")[0];
    assert_eq!((&question["prompt"], &question["sensitive"]), (&json!("really?"), &json!(true)));
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["coerced"], json!(["sensitive"]));
    let again = ["continue", "r", "-w", "work", "-m", "yes"];
    sandbox.delta(again).env("OPENAI_API_KEY", "k").output().expect_code(0);
    let (_server, sandbox) = calling(&calls, "\n  strict_arguments: true", "");
    run(&sandbox, &[]).expect_code(0);
    assert!(sandbox.observations()[0].contains("nobody was asked"), "{:?}", sandbox.observations());
}

#[test]
fn c_10_1_the_operator_says_that_nobody_will_answer() {
    let calls = [("ask_human", r#"{"prompt":"a"}"#), ("finish", r#"{"result":"x"}"#)];
    let more = [("finish", r#"{"result":"y"}"#)];
    let (server, sandbox) = calling(&[&calls[..], &more].concat(), "", "");
    run(&sandbox, &["--no-ask-human"]).expect_code(0);
    assert_eq!(tool_names(&server, 0), ["echo", "finish"]);
    assert!(sandbox.observations()[0].contains("There is no tool `ask_human`"));
    assert_eq!(sandbox.events("ENGINE_START")[0]["config"]["builtins"], json!(["finish"]));
    let replay = ["replay", "r", "-w", "work", "--mode", "tools"];
    sandbox.delta(replay).output().expect_code(0);
    // The process that continues the run offers it again.
    let again = ["continue", "r", "-w", "work", "-m", "more"];
    sandbox.delta(again).env("OPENAI_API_KEY", "k").output().expect_code(0);
    assert_eq!(tool_names(&server, 2), ["echo", "finish", "ask_human"]);
}

#[test]
fn c_37_8_a_replay_with_tools_sends_the_requests_of_the_run() {
    let echo = ("echo", r#"{"text":"x"}"#);
    let finish = ("finish", r#"{"result":"x"}"#);
    for (calls, options) in [
        (vec![echo, echo, finish], &["--max-iterations", "3"][..]),
        (vec![echo, echo, finish], &[]),
    ] {
        let (_server, sandbox) = calling(&calls, "", "");
        run(&sandbox, options).expect_code(0);
        let replay = ["replay", "r", "-w", "work", "--mode", "tools", "--format", "json"];
        let replayed = sandbox.delta(replay).output().expect_code(0).json();
        assert_eq!(replayed["requests_that_differ"], json!([]), "{options:?}");
    }
}
