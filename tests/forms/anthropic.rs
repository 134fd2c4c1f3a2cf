//! `provider: anthropic`: Messages.

use super::{DELTA, ECHO, agent_of, bodies, records};
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::until;

#[test]
fn c_23_1_streamed_or_whole_a_run_is_the_same() {
    let answers = || {
        vec![
            Answer::calls(vec![
                ("echo", json!({"text": "Grüße 😀"})),
                ("echo", json!({"text": "two"})),
            ])
            .saying("so")
            .thinking("first this"),
            Answer::text("the end").usage(5, 6),
        ]
    };
    for (llm, is_streamed) in [("", true), ("\n  stream: false", false)] {
        let server = ScriptedServer::start(answers());
        let sandbox = agent_of("anthropic", &server, llm);
        let ran =
            sandbox.run_command("hello", &["--format", "raw"]).env("ANTHROPIC_API_KEY", "k-1");
        assert_eq!(ran.output().expect_code(0).stdout, "the end\n");
        assert_eq!(server.violations(), Vec::<String>::new());
        let requests = server.requests();
        for request in &requests {
            assert_eq!(request.target, "POST /v1/messages");
            assert_eq!(request.header("x-api-key"), Some("k-1"));
            assert_eq!(request.header("anthropic-version"), Some("2026-10-21"));
            assert_eq!(request.body["stream"] == true, is_streamed);
            assert_eq!(request.body["max_tokens"], 32_000);
            assert_eq!(request.connection, 1, "keep-alive");
        }
        let keys: Vec<_> = requests[0].body.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys[..5], ["model", "max_tokens", "tools", "system", "messages"]);
        assert_eq!(sandbox.observations(), ["Grüße 😀\n", "two\n"]);
        let bodies = bodies(&server);
        let [user, answer, results] = bodies[1]["messages"].as_array().unwrap().as_slice() else {
            panic!("{}", bodies[1]["messages"])
        };
        assert_eq!((&user["role"], &user["content"][0]["text"]), (&json!("user"), &json!("hello")));
        let kinds: Vec<_> =
            answer["content"].as_array().unwrap().iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
        let results: Vec<_> =
            results["content"].as_array().unwrap().iter().map(|block| &block["content"]).collect();
        assert_eq!(results, ["Grüße 😀\n", "two\n"]);
        let thought = &sandbox.events("THOUGHT")[0];
        assert_eq!(thought["native"]["form"], "anthropic");
        assert_eq!(thought["native"]["parts"], answer["content"]);
        assert_eq!(sandbox.events("THOUGHT")[1]["native"], Value::Null);
        let record = &records(&sandbox)[0];
        assert_eq!(record["wire"]["form"], "anthropic");
        assert_eq!(record["wire"]["response"]["content"], answer["content"]);
        assert_eq!(record["response"]["choices"][0]["message"]["content"], "so");
    }
}

/// An agent of this form, with `llm` as more lines of its section.
fn agent(server: &ScriptedServer, llm: &str) -> Sandbox {
    agent_of("anthropic", server, llm)
}

/// The options of a recorded call, without the markers for the cache.
fn options(record: &Value) -> Value {
    let mut options = record["wire"]["options"].clone();
    options.as_object_mut().unwrap().shift_remove("cache");
    options
}

fn echo(text: &str) -> Answer {
    Answer::call("echo", json!({"text": text})).thinking(&format!("about {text}"))
}

/// The thinking in a request, each with the index of its message.
fn thinking_of(body: &Value) -> Vec<String> {
    let blocks = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap());
    blocks.filter_map(|block| block["thinking"].as_str()).map(str::to_owned).collect()
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied())
}

fn no_violations(server: &ScriptedServer) {
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_23_1_thinking_goes_back_unchanged_after_a_kill_and_in_a_run_that_is_continued() {
    let answers = vec![
        echo("a"),
        echo("b"),
        Answer::hang(),
        echo("c"),
        Answer::text("done").thinking("finally"),
        Answer::text("more"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = agent(&server, "");
    let mut child = sandbox.run_command("go", &[]).spawn();
    until("the third request", || (server.requests().len() == 3).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    resume(&sandbox, &[]).output().expect_code(0);
    resume(&sandbox, &["-m", "and now?"]).output().expect_code(0);
    no_violations(&server);
    let bodies = bodies(&server);
    assert_eq!(bodies.len(), 6);
    assert_eq!(thinking_of(&bodies[2]), ["about a", "about b"]);
    assert_eq!(bodies[3], bodies[2], "the request of the process that was killed");
    assert_eq!(thinking_of(&bodies[5]), ["about a", "about b", "about c", "finally"]);
    let bases: Vec<_> = sandbox
        .events("THOUGHT")
        .iter()
        .map(|thought| thought["native"]["basis"].clone())
        .collect();
    assert!(bases[..4].iter().all(Value::is_string) && bases[4].is_null(), "{bases:?}");
}

#[test]
fn c_23_1_an_answer_that_a_hook_changes_is_sent_as_it_is_now() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let server = ScriptedServer::start(vec![
        echo("a").saying("secret plan"),
        echo("b"),
        Answer::text("done"),
    ]);
    let sandbox = agent(&server, "");
    sandbox.write(
        "agent/hooks.yaml",
        "post_llm_response: {command: ['${AGENT_HOME}/hook.sh'], timeout_ms: 60000}\n",
    );
    sandbox.write_program(
        "agent/hook.sh",
        "#!/bin/sh\njq -c '{response: (.response | .choices[0].message.content |= (. // \"\" | sub(\"secret \"; \"\")))}'\n",
    );
    sandbox.run("go", &[]).expect_code(0);
    no_violations(&server);
    let last = &bodies(&server)[2];
    assert_eq!(last["messages"][1]["content"][0], json!({"type": "text", "text": "plan"}));
    assert_eq!(thinking_of(last), ["about b"]);
}

#[test]
fn c_23_1_thinking_that_a_window_unbinds_costs_one_try_and_is_left_out_from_then_on() {
    let server = ScriptedServer::start(vec![
        echo("a"),
        echo("b"),
        echo("c"),
        echo("d"),
        Answer::text("done"),
    ]);
    let sandbox = agent(&server, "");
    sandbox.write("agent/context.yaml", "sources:\n  - {type: journal, max_iterations: 1}\n");
    let ran = sandbox.run("go", &[]).expect_code(0);
    let violations = server.violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].contains("bound to a different conversation"));
    let sent: Vec<_> = bodies(&server).iter().map(thinking_of).collect();
    let expected: [&[&str]; 6] = [&[], &["about a"], &["about b"], &[], &[], &[]];
    assert_eq!(sent, expected);
    let tries = |text: &str| text.matches("bound to a different conversation").count();
    assert_eq!(tries(&ran.stderr), 1, "{}", ran.stderr);
    let records = records(&sandbox);
    let failed: Vec<_> =
        records.iter().map(|record| record["attempts"].as_array().unwrap().len()).collect();
    assert_eq!(failed, [0, 0, 1, 0, 0]);
    assert_eq!(options(&records[1]), json!({}));
    assert_eq!(options(&records[2]), json!({"drops_unbound_native": true}));
    assert_eq!(records[2]["attempts"][0]["retry_in_ms"], 0);
}

#[test]
fn c_23_1_an_endpoint_that_accepts_no_thinking_back_does_not_end_the_run() {
    let refusal = || {
        Answer::raw(
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "messages.1.content.0: Invalid `signature` in `thinking` block"}})
            .to_string(),
        )
    };
    let server = ScriptedServer::start(vec![
        echo("a"),
        refusal(),
        refusal(),
        echo("b"),
        Answer::text("done"),
    ]);
    let sandbox = agent(&server, "\n  max_retries: 0");
    sandbox.run("go", &[]).expect_code(0);
    let sent: Vec<_> = bodies(&server).iter().map(|body| thinking_of(body).len()).collect();
    assert_eq!(sent, [0, 1, 1, 0, 0]);
    assert_eq!(
        options(&records(&sandbox)[2]),
        json!({"drops_unbound_native": true, "drops_native": true, "constant_messages": 1})
    );
}

#[test]
fn c_23_1_a_length_that_the_model_does_not_have_is_lowered_once() {
    let message = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for test-model";
    let refusal =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    let answers = vec![Answer::raw(400, refusal.to_string()), echo("a"), Answer::text("done")];
    let server = ScriptedServer::start(answers);
    let sandbox = agent(&server, "\n  max_retries: 0");
    let ran = sandbox.run("go", &[]).expect_code(0);
    assert_eq!(ran.stderr.matches("which is the maximum").count(), 1, "{}", ran.stderr);
    let asked: Vec<_> = bodies(&server).iter().map(|body| body["max_tokens"].clone()).collect();
    assert_eq!(asked, [32_000, 8192, 8192]);
    assert_eq!(options(&records(&sandbox)[0]), json!({"max_tokens": 8192, "constant_messages": 1}));
}

#[test]
fn c_7_3_a_stream_that_ends_early_is_a_failed_try() {
    let answer = || Answer::call("echo", json!({"text": "x"})).saying("now").thinking("hm");
    let whole = {
        let server = ScriptedServer::start(vec![answer(), Answer::text("done")]);
        let sandbox = agent(&server, "");
        sandbox.run("go", &[]).expect_code(0);
        records(&sandbox)[0]["response"].clone()
    };
    // About the length of an event; the codec's own tests cut after each byte.
    const STEP: usize = 90;
    let mut failed = 0;
    for length in (1..).map(|step| step * STEP) {
        let server = ScriptedServer::start(vec![answer().break_off(length), Answer::text("done")]);
        let sandbox = agent(&server, "\n  max_retries: 0");
        let ran = sandbox.run("go", &[]);
        if ran.code == 0 {
            assert_eq!(records(&sandbox)[0]["response"], whole);
            break;
        }
        failed += 1;
        assert!(ran.stderr.contains("broke off"), "{}", ran.stderr);
        assert_eq!(sandbox.events("THOUGHT"), Vec::<Value>::new(), "after {length} bytes");
    }
    assert!(failed > 15, "{failed}");
}

fn error_answer(status: u16, kind: &str, message: &str) -> Answer {
    let error = json!({"type": kind, "message": message});
    Answer::raw(status, json!({"type": "error", "error": error, "request_id": "req_1"}).to_string())
}

#[test]
fn c_23_1_what_is_tried_again() {
    let soon = |answer: Answer| answer.header("retry-after", "0");
    let overloaded = r#"event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded in the middle"}}

"#;
    let answers = vec![
        soon(error_answer(529, "overloaded_error", "Overloaded")),
        soon(error_answer(400, "api_error", "odd").header("x-should-retry", "true")),
        Answer::event_stream(overloaded),
        Answer::text("at last"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = agent(&server, "");
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert_eq!((&*ran.stdout, server.requests().len()), ("at last\n", 4));
    for told in ["529", "400 Bad Request: odd", "Overloaded in the middle"] {
        assert!(ran.stderr.contains(told), "{}", ran.stderr);
    }
}

#[test]
fn c_23_1_what_is_not_tried_again_and_what_to_do_about_it() {
    let cases = [
        (
            error_answer(529, "overloaded_error", "Overloaded").header("x-should-retry", "false"),
            "Overloaded",
        ),
        (error_answer(402, "billing_error", "no credit"), "add credit to the account"),
        (error_answer(429, "billing_error", "no credit"), "add credit to the account"),
        (error_answer(404, "not_found_error", "model: test-model"), "check `llm.base_url`"),
        (error_answer(401, "authentication_error", "invalid x-api-key"), "ANTHROPIC_API_KEY"),
        (
            error_answer(413, "request_too_large", "Request exceeds the maximum size"),
            "in context.yaml",
        ),
        (
            error_answer(400, "invalid_request_error", "prompt is too long: 9 > 8"),
            "in context.yaml",
        ),
        (
            error_answer(
                400,
                "invalid_request_error",
                "\"thinking.type.disabled\" is not supported",
            ),
            "what a model takes differs",
        ),
    ];
    for (answer, hint) in cases {
        let server = ScriptedServer::start(vec![answer]);
        let sandbox = agent(&server, "");
        let ran = sandbox.run("go", &[]).expect_code(1);
        assert!(ran.stderr.contains(hint), "{hint}:\n{}", ran.stderr);
        assert_eq!(server.requests().len(), 1, "{hint}");
    }
}

#[test]
fn c_23_1_an_answer_that_no_run_can_continue_with_ends_it() {
    let cases = [
        ("pause_turn", "take the endpoint's own tools"),
        ("model_context_window_exceeded", "in context.yaml"),
        ("refusal", "refused"),
        ("guardrail_intervened", "content filter"),
    ];
    for (stop_reason, hint) in cases {
        let server =
            ScriptedServer::start(vec![Answer::text("half").finish_reason(Some(stop_reason))]);
        let sandbox = agent(&server, "");
        let ran = sandbox.run("go", &[]).expect_code(1);
        assert!(ran.stderr.contains(hint), "{hint}:\n{}", ran.stderr);
        assert_eq!(sandbox.events("THOUGHT"), Vec::<Value>::new());
    }
}

/// The tokens of such an answer were in no event, and in no limit.
#[test]
fn c_23_3_an_answer_that_no_run_can_continue_with_was_paid_for() {
    let paused = || Answer::text("half").finish_reason(Some("pause_turn")).usage(1000, 50);
    for llm in ["", "\n  stream: false"] {
        let server =
            ScriptedServer::start(vec![paused(), paused(), Answer::text("ok").usage(5, 6)]);
        let sandbox = agent(&server, &format!("{llm}\n  pricing: {{input: 1000, output: 2000}}"));
        let ran = sandbox.run("go", &["--format", "json", "--max-tokens", "200k"]).expect_code(1);
        let used = &ran.json()["metrics"]["usage"];
        assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(1000), &json!(50)));
        assert_eq!(used["total_cost_usd"], json!(1.1));
        let details = &sandbox.events("ERROR")[0]["error_details"];
        let usage = json!({
            "model": "test-model", "input_tokens": 1000, "cached_input_tokens": 0,
            "cache_write_tokens": Value::Null, "output_tokens": 50, "cost_usd": 1.1,
        });
        let recorded = &details["discarded_usage"][0];
        for (name, expected) in usage.as_object().unwrap() {
            assert_eq!(&recorded[name], expected, "{name}: {recorded}");
        }
        let record = &records(&sandbox)[0];
        assert_eq!(&record["usage"], recorded);
        assert_eq!(&record["attempts"][0]["usage"], recorded);
        let end = &sandbox.events("ENGINE_END")[0]["usage"];
        assert_eq!(end["input_tokens"], json!(1000));
        // The ledger has what was reported, and not an estimate of the request.
        let ledger = sandbox.read("work/.delta/r/budget.jsonl");
        assert!(ledger.contains("1050"), "{ledger}");

        resume(&sandbox, &[]).output().expect_code(1);
        resume(&sandbox, &[]).output().expect_code(0);
        let end = sandbox.events("ENGINE_END").pop().unwrap();
        assert_eq!(end["usage"]["input_tokens"], json!(2005));
    }
}

#[test]
fn c_23_2_a_run_changes_its_provider_and_its_model_and_comes_back() {
    let server = ScriptedServer::start(vec![
        echo("a"),
        Answer::text("one"),
        Answer::raw_call("call:2", "echo", r#"{"text":"b"}"#).thinking("chat"),
        Answer::text("two"),
        Answer::text("three"),
        Answer::text("four"),
    ]);
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(
        &format!("provider: anthropic\n  model: test-model\n  base_url: {}", server.url()),
        ECHO,
    );
    sandbox.run("go", &[]).expect_code(0);
    resume(&sandbox, &["-m", "2", "--model", "openai:other"]).output().expect_code(0);
    resume(&sandbox, &["-m", "3", "--model", "anthropic:other"]).output().expect_code(0);
    resume(&sandbox, &["-m", "4", "--model", "anthropic:test-model"]).output().expect_code(0);
    no_violations(&server);
    let requests = server.requests();
    let targets: Vec<_> = requests.iter().map(|request| request.target.clone()).collect();
    let (messages, chat) = ("POST /v1/messages", "POST /v1/chat/completions");
    assert_eq!(targets, [messages, messages, chat, chat, messages, messages]);
    assert!(
        requests[2].body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .all(|message| message["native"].is_null())
    );
    assert_eq!(requests[2].body["max_tokens"], Value::Null);
    assert_eq!(thinking_of(&requests[4].body), Vec::<String>::new());
    assert_eq!(thinking_of(&requests[5].body), ["about a"]);
    let text = requests[5].body["messages"].to_string();
    assert!(!text.contains("call:2") && text.matches("\"d_").count() == 2, "{text}");
}

#[test]
fn c_23_2_a_fork_sends_what_was_thought_before_it() {
    let server =
        ScriptedServer::start(vec![echo("a"), echo("b"), Answer::text("one"), Answer::text("two")]);
    let sandbox = agent(&server, "");
    sandbox.run("go", &[]).expect_code(0);
    let args = ["fork", "r", "-w", "work", "--at", "2", "-m", "otherwise"];
    sandbox.delta(args).output().expect_code(0);
    no_violations(&server);
    assert_eq!(thinking_of(&bodies(&server)[3]), ["about a", "about b"]);
}

#[test]
fn c_23_1_a_model_in_the_address_is_not_in_the_body() {
    let server = ScriptedServer::start(vec![Answer::text("ok")]);
    let sandbox = Sandbox::new(DELTA);
    let path = "v1/projects/p/locations/global/publishers/anthropic/models/{model}:{method}";
    let llm = format!(
        "provider: anthropic\n  model: claude@1\n  base_url: {}/{path}\n  auth: bearer\n  api_key_env: TOKEN",
        server.root_url()
    );
    sandbox.agent(&llm, "");
    sandbox.run_command("go", &[]).env("TOKEN", "t-1").output().expect_code(0);
    no_violations(&server);
    let request = &server.requests()[0];
    assert_eq!(
        request.target,
        format!(
            "POST /{}",
            path.replace("{model}", "claude@1").replace("{method}", "streamRawPredict")
        )
    );
    assert_eq!(request.header("authorization"), Some("Bearer t-1"));
    assert_eq!(
        (request.body.get("model"), &request.body["anthropic_version"]),
        (None, &json!("2026-10-21"))
    );
}

#[test]
fn c_1_5_the_keys_of_the_file_reach_the_endpoint_in_its_order() {
    let server = ScriptedServer::start(vec![Answer::text("ok")]);
    let sandbox = agent(
        &server,
        "\n  thinking: {type: adaptive}\n  max_tokens: 2k\n  output_config: {effort: high}\n  headers: {anthropic-beta: some-beta}\n  api_version: \"2023-06-01\"\n  temperature: 0.5",
    );
    sandbox.run("go", &[]).expect_code(0);
    no_violations(&server);
    let request = &server.requests()[0];
    assert_eq!(
        (request.header("anthropic-version"), request.header("anthropic-beta")),
        (Some("2023-06-01"), Some("some-beta"))
    );
    let text = String::from_utf8(request.bytes.clone()).unwrap();
    let expected = r#"{"model":"test-model","max_tokens":2000,"thinking":{"type":"adaptive"},"output_config":{"effort":"high"},"temperature":0.5,"tools":["#;
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn c_1_5_keys_that_this_form_does_not_take_are_errors_of_the_file() {
    let server = ScriptedServer::start(Vec::<Answer>::new());
    let sandbox = agent(&server, "\n  temperature: 0\n  top_k: 5\n  system: x");
    let ran = sandbox.run("go", &[]).expect_code(126);
    for said in [
        "`temperature` is not taken since API version 2026-10-21",
        "`top_k` is not taken since API version 2026-10-21",
        "take it out, or write `api_version: \"2023-06-01\"`",
        "`system` is set by the engine",
    ] {
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn c_15_3_tools_do_not_get_the_key_of_the_provider_and_no_file_has_it() {
    let key = "sk-ant-not-a-real-key-0123";
    let answers = vec![
        Answer::call("keys", json!({})).thinking("what is it?"),
        Answer::text(format!("it is {key}")).thinking(&format!("it is {key}")),
        Answer::text("bye"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    let llm =
        format!("provider: anthropic\n  model: test-model\n  base_url: {}", server.root_url());
    sandbox.agent(
        &llm,
        "  - name: keys\n    shell: echo \"<$ANTHROPIC_API_KEY$ANTHROPIC_AUTH_TOKEN>\"\n",
    );
    let with_keys = |command: Delta| {
        command.env("ANTHROPIC_API_KEY", key).env("ANTHROPIC_AUTH_TOKEN", "token-0123456789")
    };
    with_keys(sandbox.run_command("go", &[])).output().expect_code(0);
    with_keys(resume(&sandbox, &["-m", "more"])).output().expect_code(0);
    no_violations(&server);
    assert_eq!(sandbox.observations(), ["<>\n"]);
    assert_eq!(server.requests()[0].header("x-api-key"), Some(key));
    for file in sandbox.files("work/.delta/r") {
        assert!(!sandbox.read(&format!("work/.delta/r/{file}")).contains(key), "{file}");
    }
    // Redacted, the thinking would not be what the endpoint gave.
    assert_eq!(thinking_of(&bodies(&server)[2]), ["what is it?"]);
}
