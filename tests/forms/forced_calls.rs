//! What a request demands of the LLM's calls: `llm.tool_choice`, and the calls that delta forces.

use super::images::FORMS;
use super::{DELTA, ECHO, records};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const REQUIRED: &str = "finish: {required: true}\n";

/// An agent of this form with the tool `echo`; `llm` are more lines of its section, `settings` more of agent.yaml.
pub(super) fn agent(form: &str, server: &ScriptedServer, llm: &str, settings: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let has_version = matches!(form, "openai" | "responses");
    let url = if has_version { server.url() } else { server.root_url() };
    let llm = format!("provider: {form}\n  model: test-model\n  base_url: {url}{llm}");
    sandbox.agent(&llm, &format!("{ECHO}{settings}"));
    sandbox
}

fn run(sandbox: &Sandbox, key: &str, options: &[&str]) -> test_support::sandbox::Ran {
    sandbox.run_command("hello", &[&["--format", "raw"], options].concat()).env(key, "k").output()
}

/// What a request says about calls, in the member of its form.
fn choice(body: &Value) -> Value {
    let gemini = body.pointer("/toolConfig/functionCallingConfig");
    gemini.or(body.get("tool_choice")).cloned().unwrap_or_default()
}

fn choices(server: &ScriptedServer) -> Vec<Value> {
    server.requests().iter().map(|request| choice(&request.body)).collect()
}

/// The demand for a call of a tool, and of any tool.
fn demands(form: &str, tool: &str) -> [Value; 2] {
    match form {
        "openai" => [json!({"type": "function", "function": {"name": tool}}), json!("required")],
        "responses" => [json!({"type": "function", "name": tool}), json!("required")],
        "anthropic" => [json!({"type": "tool", "name": tool}), json!({"type": "any"})],
        _ => [json!({"mode": "ANY", "allowedFunctionNames": [tool]}), json!({"mode": "ANY"})],
    }
}

fn finish(result: &str) -> Answer {
    Answer::call("finish", json!({"result": result}))
}

#[test]
fn c_37_8_after_a_reminder_the_next_request_forces_the_call() {
    for (form, key) in FORMS {
        let answers = vec![Answer::text("a"), Answer::text("b"), Answer::text("c"), finish("done")];
        let server = ScriptedServer::start(answers);
        let sandbox = agent(form, &server, "", REQUIRED);
        assert_eq!(run(&sandbox, key, &[]).expect_code(0).stdout, "done\n", "{form}");
        let [named, any] = demands(form, "finish");
        // A server that ignores the name of a tool without a word may know the word for any.
        assert_eq!(choices(&server), [Value::Null, named, any.clone(), any], "{form}");
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[test]
fn c_37_8_the_last_iteration_forces_finish_but_the_first_request_never() {
    for (form, key) in FORMS {
        let echo = || Answer::call("echo", json!({"text": "x"}));
        let server = ScriptedServer::start(vec![echo(), echo(), finish("done")]);
        let sandbox = agent(form, &server, "", "");
        run(&sandbox, key, &["--max-iterations", "3"]).expect_code(0);
        let [named, _] = demands(form, "finish");
        assert_eq!(choices(&server), [Value::Null, Value::Null, named], "{form}");
    }
    let cases = [
        // The first request of a process is not forced either: `--max-iterations 1` goes on step by step.
        ("", "", &["--max-iterations", "1"][..], 1),
        ("", "finish: false\n", &["--max-iterations", "2"], 2),
        ("\n  tool_choice: auto", REQUIRED, &["--max-iterations", "2"], 2),
        ("\n  tool_choice: {then: none}", REQUIRED, &["--max-iterations", "2"], 2),
    ];
    for (llm, settings, options, count) in cases {
        let server = ScriptedServer::start(vec![
            Answer::call("echo", json!({"text": "x"})),
            Answer::call("echo", json!({"text": "y"})),
            Answer::text("z"),
        ]);
        let sandbox = agent("openai", &server, llm, settings);
        run(&sandbox, "OPENAI_API_KEY", options).expect_code(1);
        let again = ["continue", "r", "-w", "work", "-m", "more", "--max-iterations", "1"];
        sandbox.delta(again).env("OPENAI_API_KEY", "k").output();
        let forced = choices(&server).iter().filter(|choice| choice.is_object()).count();
        assert_eq!((server.requests().len(), forced), (count + 1, 0), "{llm}{settings}");
    }
}

#[test]
fn c_37_8_a_call_that_the_llm_wrote_as_text_is_the_one_that_is_forced() {
    let server = ScriptedServer::start(vec![
        Answer::text("echo(text='x')"),
        Answer::call("echo", json!({"text": "x"})),
        finish("done"),
    ]);
    let sandbox = agent("openai", &server, "", REQUIRED);
    run(&sandbox, "OPENAI_API_KEY", &[]).expect_code(0);
    let [echo, _] = demands("openai", "echo");
    assert_eq!(choices(&server), [Value::Null, echo, Value::Null]);
}

/// An endpoint that refuses the demands for which `refuses` is true.
fn refusing(
    refuses: impl Fn(&Value) -> bool + Send + 'static,
    words: &'static str,
    mut answers: Vec<Answer>,
) -> ScriptedServer {
    ScriptedServer::for_anything(move |request: &RecordedRequest| {
        if refuses(&choice(&request.body)) {
            return Answer::error(400, words, None);
        }
        answers.remove(0)
    })
}

#[test]
fn c_37_8_a_refused_demand_is_left_out_and_remembered() {
    for (form, key) in FORMS {
        let words = if form == "gemini" {
            "Function calling mode ANY is not supported for this model"
        } else {
            "Thinking may not be enabled when tool_choice forces tool use."
        };
        let answers = vec![
            Answer::text("a"),
            Answer::text("b"),
            Answer::text("c"),
            finish("done"),
            Answer::text("d"),
            finish("more"),
        ];
        let server = refusing(|choice| !choice.is_null(), words, answers);
        let sandbox = agent(form, &server, "", REQUIRED);
        assert_eq!(run(&sandbox, key, &[]).expect_code(0).stdout, "done\n", "{form}");
        let refused = |server: &ScriptedServer| {
            choices(server).iter().filter(|choice| !choice.is_null()).count()
        };
        assert_eq!((server.requests().len(), refused(&server)), (5, 1), "{form}");
        let options = records(&sandbox)[3]["wire"]["options"]["forced_call"].clone();
        assert_eq!(options, "omitted", "{form}");
        // The process that continues the run knows it too, from the last call.
        let again = ["continue", "r", "-w", "work", "-m", "more"];
        sandbox.delta(again).env(key, "k").output().expect_code(0);
        assert_eq!(sandbox.events("THOUGHT").len(), 6);
        assert_eq!(refused(&server), 1, "{form}");
    }
}

#[test]
fn c_37_8_an_endpoint_that_knows_words_only_gets_the_word() {
    let words = "Invalid tool_choice type: 'object'. Supported string values: none, auto, required";
    let answers = vec![Answer::text("a"), finish("done")];
    let server = refusing(Value::is_object, words, answers);
    let sandbox = agent("openai", &server, "", REQUIRED);
    run(&sandbox, "OPENAI_API_KEY", &[]).expect_code(0);
    let [named, any] = demands("openai", "finish");
    assert_eq!(choices(&server), [Value::Null, named, any]);
}

#[test]
fn c_37_8_what_agent_yaml_demands_is_not_left_out() {
    let words = "deepseek-reasoner does not support this tool_choice";
    let server = refusing(|choice| !choice.is_null(), words, vec![Answer::text("a")]);
    let sandbox = agent("openai", &server, "\n  tool_choice: {then: required}", "");
    run(&sandbox, "OPENAI_API_KEY", &[]).expect_code(0);
    let again = ["continue", "r", "-w", "work", "-m", "more"];
    let ran = sandbox.delta(again).env("OPENAI_API_KEY", "k").output().expect_code(1);
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn c_37_8_tool_choice_has_a_value_for_the_first_request_and_one_for_the_others() {
    for (form, key) in FORMS {
        let [_, any] = demands(form, "");
        let auto = match form {
            "anthropic" => json!({"type": "auto"}),
            "gemini" => json!({"mode": "AUTO"}),
            _ => json!("auto"),
        };
        let cases = [
            ("required", any.clone(), any.clone()),
            ("{first: required}", any.clone(), Value::Null),
            ("{then: required}", Value::Null, any.clone()),
            ("{first: required, then: auto}", any.clone(), auto),
        ];
        for (value, first, then) in cases {
            let answers = vec![
                Answer::call("echo", json!({"text": "x"})),
                Answer::call("echo", json!({"text": "y"})),
                finish("done"),
            ];
            let server = ScriptedServer::start(answers);
            let sandbox = agent(form, &server, &format!("\n  tool_choice: {value}"), "");
            run(&sandbox, key, &[]).expect_code(0);
            assert_eq!(choices(&server), [first, then.clone(), then], "{form} {value}");
            assert_eq!(server.violations(), Vec::<String>::new(), "{form} {value}");
        }
    }
    // The endpoint's own keys go out as they are.
    let server = ScriptedServer::start(vec![finish("done")]);
    let own = "\n  tool_choice: {first: {type: tool, name: finish}}";
    let sandbox = agent("anthropic", &server, own, "");
    run(&sandbox, "ANTHROPIC_API_KEY", &[]).expect_code(0);
    assert_eq!(choices(&server), [json!({"type": "tool", "name": "finish"})]);
    for (value, message) in [
        ("{first: required, type: any}", "`type` cannot be next to `first` and `then`"),
        ("[required]", "`tool_choice`"),
    ] {
        let sandbox = agent("openai", &server, &format!("\n  tool_choice: {value}"), "");
        let ran = run(&sandbox, "OPENAI_API_KEY", &[]).expect_code(126);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}
