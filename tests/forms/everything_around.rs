//! What works on a run works on a run over each wire form: replay, exports, the page, the request that was sent, tests.

use super::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer, check_request};

const FORMS: [&str; 4] = ["openai", "anthropic", "responses", "gemini"];

/// A tool whose result has not the text of its call.
const SHOUT: &str = "  - name: shout\n    shell: printf '%s\\n' ${text} | tr a-z A-Z\n";

/// What a run has to have, in every form in which it is exported or shown.
const TEXTS: [&str; 10] = [
    "first task",
    "I call it, Grüße",
    "shout",
    "quiet-one",
    "QUIET-ONE",
    "the first end",
    "second task",
    "quiet-two",
    "QUIET-TWO",
    "the second end",
];

const THOUGHTS: [&str; 3] = ["thought-one", "thought-two", "thought-three"];

fn agent(form: &str, server: &ScriptedServer) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let url = server.url();
    sandbox.agent(&format!("provider: {form}\n  model: test-model\n  base_url: {url}"), SHOUT);
    sandbox
}

/// A run of two messages, each with a call and thinking. The server must not be asked again.
fn two_messages(form: &str) -> (ScriptedServer, Sandbox) {
    let call = |text: &str| Answer::call("shout", json!({"text": text}));
    let server = ScriptedServer::start(vec![
        call("quiet-one").saying("I call it, Grüße").thinking("thought-one"),
        Answer::text("the first end").thinking("thought-two"),
        call("quiet-two").thinking("thought-three"),
        Answer::text("the second end"),
    ]);
    let sandbox = agent(form, &server);
    sandbox.run("first task", &[]).expect_code(0);
    let args = ["continue", "r", "-w", "work", "-m", "second task"];
    sandbox.delta(args).output().expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
    assert_eq!(server.requests().len(), 4, "{form}");
    let thoughts = sandbox.events("THOUGHT");
    assert!(thoughts[0]["native"].is_object(), "{form}: the run has parts of the form");
    assert!(thoughts[2]["native"].is_object(), "{form}: the run has parts of the form");
    assert_eq!(sandbox.observations(), ["QUIET-ONE\n", "QUIET-TWO\n"], "{form}");
    (server, sandbox)
}

fn of_run(sandbox: &Sandbox, command: &str, more: &[&str]) -> Ran {
    let fixed = [command, "r", "-w", "work"];
    sandbox.delta(fixed.iter().chain(more).copied()).output().expect_code(0)
}

#[track_caller]
fn has_all(text: &str, form: &str, what: &str) {
    for expected in TEXTS {
        assert!(text.contains(expected), "{form}: {what} lacks {expected:?}:\n{text}");
    }
}

/// A strict endpoint would accept the exported conversation as a request.
fn is_chat_completions(exported: &str, form: &str) {
    let mut body: Value = serde_json::from_str(exported).unwrap();
    body["model"] = "m".into();
    assert_eq!(check_request(&body), Ok(()), "{form}");
}

/// Every span of an LLM has the name that the conventions have for the form.
fn names_its_provider(exported: &str, form: &str) {
    let name = match form {
        "anthropic" => "anthropic",
        "gemini" => "gcp.gen_ai",
        _ => "openai",
    };
    let attribute = "\"gen_ai.provider.name\",\"value\":{\"stringValue\":";
    let count = exported.matches(attribute).count();
    assert_eq!(count, 5, "{form}: the run and its four answers");
    assert_eq!(exported.matches(&format!("{attribute}\"{name}\"}}")).count(), count, "{form}");
}

#[test]
fn c_23_2_a_run_over_each_form_is_replayed_exported_and_viewed() {
    for form in FORMS {
        let (server, sandbox) = two_messages(form);
        drop(server);
        for mode in ["verify", "tools"] {
            of_run(&sandbox, "replay", &["--mode", mode]);
        }
        for format in ["otlp", "atif", "openai", "markdown"] {
            let more: &[&str] = if format == "otlp" { &["--content"] } else { &[] };
            let arguments = [&["--to", format], more].concat();
            let exported = of_run(&sandbox, "export", &arguments).stdout;
            has_all(&exported, form, format);
            match format {
                "otlp" => names_its_provider(&exported, form),
                "openai" => is_chat_completions(&exported, form),
                // The conversation in the form of Chat Completions has no reasoning; the others have all of it.
                _ => THOUGHTS.iter().for_each(|text| assert!(exported.contains(text), "{form}")),
            }
        }
        of_run(&sandbox, "view", &[]);
        let page = sandbox.read("r.html");
        has_all(&page, form, "the page");
        THOUGHTS.iter().for_each(|text| assert!(page.contains(text), "{form}: {text}"));
    }
}

#[test]
fn c_23_1_every_body_of_a_continued_run_is_made_again() {
    for form in FORMS {
        let (server, sandbox) = two_messages(form);
        let sent = server.requests();
        drop(server);
        for (number, request) in (1..).zip(sent) {
            let number = format!("{number}");
            let printed = of_run(&sandbox, "show", &["--request", &number, "--wire"]).stdout;
            assert_eq!(printed.as_bytes(), request.bytes, "{form} {number}");
        }
    }
}

/// A test whose run is continued with an answer of the user.
const TAPED: &str = "task: first task
answers: ['second task']
expect:
  result: the second end
  calls:
    - {tool: shout, args: {text: quiet-one}, observation: \"QUIET-ONE\\n\"}
    - {tool: ask_human, observation: second task}
    - {tool: shout, args: {text: quiet-two}, observation: \"QUIET-TWO\\n\"}
";

#[test]
fn c_23_2_a_test_that_is_recorded_over_each_form_passes_without_its_endpoint() {
    for form in FORMS {
        let server = ScriptedServer::start(vec![
            Answer::call("shout", json!({"text": "quiet-one"})).saying("so").thinking("one"),
            Answer::call("ask_human", json!({"prompt": "And now?"})).thinking("two"),
            Answer::call("shout", json!({"text": "quiet-two"})).thinking("three"),
            Answer::text("the second end").thinking("four"),
        ]);
        let sandbox = agent(form, &server);
        sandbox.write("agent/tests/taped.yaml", TAPED);
        sandbox.delta(["test", "agent", "--record"]).output().expect_code(0);
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        assert_eq!(server.requests().len(), 4, "{form}");
        drop(server);
        let tape = sandbox.read("agent/tests/cassettes/taped.jsonl");
        let header: Value = serde_json::from_str(tape.lines().next().unwrap()).unwrap();
        assert_eq!(header["provider"], form);
        let strict = "llm: {cassette: cassettes/taped.jsonl, strict: true}\n";
        for test in [TAPED.to_owned(), format!("{TAPED}{strict}")] {
            sandbox.write("agent/tests/taped.yaml", test);
            let ran = sandbox.delta(["test", "agent"]).output().expect_code(0);
            assert!(!ran.stdout.contains("note:"), "{form}: {}", ran.stdout);
        }
    }
}
