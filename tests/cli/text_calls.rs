//! Calls that an LLM writes as text (C-37.7): never run, always named. Tools that it never saw (C-37.11) are named too.

use super::DELTA;
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const TEXT: &str = r#"{"name": "echo", "parameters": {"text": "x"}}"#;

fn served(answers: Vec<Answer>, llm: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: m\n  base_url: {}{llm}", server.url());
    sandbox.agent(&llm, "  - name: echo\n    exec: echo ${text}\n");
    (server, sandbox)
}

#[test]
fn c_37_7_a_call_as_text_is_named_and_not_run() {
    for text in [
        TEXT,
        "```json\n{\"name\": \"echo\", \"arguments\": {}}\n```",
        "echo(text=1)",
        "[echo(text=\"x\")]",
        "I look:\n\n{\"name\": \"echo\", \"arguments\": {}}",
    ] {
        let (_server, sandbox) = served(vec![Answer::text(text)], "");
        let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
        assert_eq!(ran.stdout.trim_end(), text);
        assert!(
            ran.stderr.contains(
                "! the answer is a call of the tool `echo` as text, which delta does not run; "
            ),
            "{}",
            ran.stderr
        );
        let thought = &sandbox.events("THOUGHT")[0];
        assert_eq!((&thought["text_call"], &thought["content"]), (&json!("echo"), &json!(text)));
        assert_eq!(sandbox.events("ACTION_REQUEST").len(), 0);
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
        assert!(shown.contains("`echo` written as text, which was not run"), "{shown}");
    }
    let (_server, sandbox) = served(vec![Answer::text("other(text=1)")], "");
    sandbox.run("go", &[]).expect_code(0);
    assert!(sandbox.events("THOUGHT")[0].get("text_call").is_none());
}

#[test]
fn c_37_7_a_call_as_text_is_asked_for_once_or_fails_the_run() {
    let call = || Answer::call("echo", json!({"text": "x"}));
    let answers = vec![Answer::text(TEXT), call(), Answer::text("done")];
    let (server, sandbox) = served(answers, "\n  text_calls: retry");
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "done\n");
    let messages = server.requests()[1].body["messages"].as_array().unwrap().clone();
    let note = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(note.starts_with("[Your answer is a call of `echo`, written as text"), "{note}");
    for (policy, answers) in [("retry", 2), ("fail", 1)] {
        let texts = vec![Answer::text(TEXT), Answer::text(TEXT), Answer::text("so?")];
        let (server, sandbox) = served(texts, &format!("\n  text_calls: {policy}"));
        let result = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
        assert_eq!(
            (&result["error"]["type"], server.requests().len()),
            (&json!("text_call"), answers)
        );
        assert_eq!(sandbox.events("THOUGHT").len(), answers, "the texts are kept");
        sandbox.delta(["continue", "r", "-w", "work", "-q"]).output().expect_code(1);
    }
}

#[test]
fn c_37_7_a_call_in_the_markup_of_a_family_is_asked_for_too() {
    for (text, tool) in [
        (
            "<tool_call>echo\n<arg_key>text</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
            "echo",
        ),
        ("<tool_call>\n<function=echo>\n<parameter=text>\nx\n</parameter>\n</function>", "echo"),
        ("[TOOL_CALLS]echo[ARGS]{\"text\": \"x\"}", "echo"),
        ("I say it. <tool_call>\n{'name': 'echo', 'arguments': {}}\n</tool_call>", "echo"),
        ("<|channel|>commentary to=functions.echo <|constrain|>json<|message|>{}", "echo"),
        ("<tool_call>\n{\"name\": \"ecko\", \"arguments\": {}}\n</tool_call>", "ecko"),
    ] {
        let answers = vec![Answer::text(text), Answer::text("done")];
        let (_server, sandbox) = served(answers, "\n  text_calls: retry");
        let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
        assert_eq!(ran.stdout, "done\n", "{text}");
        assert!(ran.stderr.contains("! the answer ") && ran.stderr.contains("as text"), "{text}");
        assert_eq!(sandbox.events("THOUGHT")[0]["text_call"], tool, "{text}");
    }
    let quoted = "> The docs say:\n<tool_call> is a mark\nthat models write";
    let (_server, sandbox) = served(vec![Answer::text(quoted)], "\n  text_calls: fail");
    sandbox.run("go", &[]).expect_code(0);
}

#[test]
fn c_37_7_a_call_that_is_announced_and_missing_is_asked_for_once() {
    let announced = || Answer::text("I call it").finish_reason(Some("tool_calls"));
    let call = || Answer::call("echo", json!({"text": "x"}));
    let warning = "! the answer ended with finish_reason `tool_calls`, but has no call\n";
    let (server, sandbox) = served(vec![announced(), call(), Answer::text("done")], "");
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert!(ran.stdout == "done\n" && ran.stderr.contains(warning), "{}", ran.stderr);
    let line = "! the call that the answer announced is missing; the LLM is asked for it\n";
    assert!(ran.stderr.contains(line) && !ran.stderr.contains("`finish`"), "{}", ran.stderr);
    let messages = server.requests()[1].body["messages"].as_array().unwrap().clone();
    let note = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(note.starts_with("[Your answer announced a call"), "{note}");
    // Some servers end every answer so.
    let (_server, sandbox) = served(vec![announced(), announced()], "");
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "I call it\n");
    let (_server, sandbox) = served(vec![announced()], "\n  on_empty: fail");
    let result = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
    assert_eq!(result["error"]["type"], "empty_response");
    // A hook may have dropped the call on purpose.
    let (_server, sandbox) = served(vec![call()], "");
    sandbox.write(
        "agent/hooks.yaml",
        "post_llm_response:\n  command: [jq, '{response: (.response | del(.choices[0].message.tool_calls) | .choices[0].message.content = \"no\")}']\n",
    );
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "no\n");
}

#[test]
fn c_37_1_the_older_function_call_is_a_call() {
    let function = |name: &str, arguments: &str| json!({"function_call": {"name": name, "arguments": arguments}});
    let chunk = |delta: serde_json::Value, end: Option<&str>| {
        format!(
            "data: {}\n\n",
            json!({"choices": [{"index": 0, "delta": delta, "finish_reason": end}]})
        )
    };
    let streamed = [
        chunk(json!({"content": "I say it."}), None),
        chunk(function("echo", "{\"text\":"), None),
        chunk(json!({"function_call": {"arguments": "\"x\"}"}}), None),
        chunk(json!({}), Some("function_call")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let mut message = function("echo", "{\"text\":\"x\"}");
    message["content"] = json!("I say it.");
    let whole = json!({"choices": [{"message": message, "finish_reason": "function_call"}]});
    for answer in [Answer::event_stream(streamed.concat()), Answer::raw(200, whole.to_string())] {
        let (_server, sandbox) = served(vec![answer, Answer::text("done")], "");
        sandbox.run("go", &[]).expect_code(0);
        assert_eq!(sandbox.observations(), ["x\n"]);
    }
}

#[test]
fn c_3_3_the_name_of_a_tool_in_other_words_is_suggested() {
    for name in ["functions.echo", "echo(17, 25)"] {
        let (_server, sandbox) =
            served(vec![Answer::call(name, json!({})), Answer::text("ok")], "");
        sandbox.run("go", &[]).expect_code(0);
        let seen = &sandbox.observations()[0];
        assert!(seen.ends_with("; did you mean `echo`?"), "{seen}");
    }
}

#[test]
fn c_37_11_an_endpoint_that_leaves_the_tools_out_is_named_once() {
    let counted = |tokens: u64| {
        let answers = ["I cannot.", "Still not."].map(|text| Answer::text(text).usage(tokens, 3));
        let (_server, sandbox) = served(answers.into(), "");
        let first = sandbox.run("go", &[]).expect_code(0).stderr;
        let next = ["continue", "r", "-w", "work", "-m", "again"];
        let second = sandbox.delta(next).output().expect_code(0).stderr;
        assert!(!second.contains("leave the tools out"), "{second}");
        first
    };
    let warning = counted(60);
    assert!(
        warning.contains("! the endpoint seems to leave the tools out: it counted 60 tokens, and the tools alone have "),
        "{warning}"
    );
    assert!(warning.contains("`--jinja`") && warning.contains("`delta models`"), "{warning}");
    assert!(!counted(400).contains("leave the tools out"));
    assert!(!counted(1).contains("leave the tools out"), "the rest is in a cache");
}
