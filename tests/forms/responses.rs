//! `provider: responses`: OpenAI's Responses, without state at the endpoint.

mod conversations;
mod failures;
mod streams;

use super::{DELTA, ECHO, bodies, records};
use delta_base::hex::sha256_hex;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};
use test_support::wait::until;

/// An agent of the provider; `llm` are more lines of its section, indented by two.
fn agent(server: &ScriptedServer, llm: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    configure(&sandbox, "responses", &server.url(), llm);
    sandbox
}

fn configure(sandbox: &Sandbox, provider: &str, url: &str, llm: &str) {
    sandbox
        .agent(&format!("provider: {provider}\n  model: test-model\n  base_url: {url}{llm}"), ECHO);
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied())
}

fn echo(text: &str) -> Answer {
    Answer::call("echo", json!({"text": text}))
}

/// The types of the items of a request; of messages, the role.
fn kinds(body: &Value) -> Vec<&str> {
    let items = body["input"].as_array().unwrap().iter();
    let kinds = items.map(|item| match item["type"].as_str() {
        None | Some("message") => item["role"].as_str().unwrap(),
        Some(kind) => kind,
    });
    kinds.collect()
}

/// The reasoning items of a request.
fn reasoning(body: &Value) -> Vec<&Value> {
    let items = body["input"].as_array().unwrap().iter();
    items.filter(|item| item["type"] == "reasoning").collect()
}

#[test]
fn c_23_1_streamed_or_whole_a_run_is_the_same() {
    let answers = || {
        let calls = vec![("echo", json!({"text": "Grüße 😀"})), ("echo", json!({"text": "two"}))];
        vec![
            Answer::calls(calls).saying("so").thinking("first this"),
            Answer::text("the end").usage(5, 6),
        ]
    };
    for (llm, is_streamed) in [("", true), ("\n  stream: false", false)] {
        let server = ScriptedServer::start(answers());
        let sandbox = agent(&server, llm);
        let ran = sandbox.run_command("hello", &["--format", "raw"]).env("OPENAI_API_KEY", "k-1");
        assert_eq!(ran.output().expect_code(0).stdout, "the end\n");
        assert_eq!(server.violations(), Vec::<String>::new());
        for request in &server.requests() {
            assert_eq!(request.target, "POST /v1/responses");
            assert_eq!(request.header("authorization"), Some("Bearer k-1"));
            assert_eq!(request.body["stream"] == true, is_streamed);
            assert_eq!(request.body["prompt_cache_key"], "r");
            assert_eq!(request.connection, 1, "keep-alive");
        }
        assert_eq!(sandbox.observations(), ["Grüße 😀\n", "two\n"]);
        let bodies = bodies(&server);
        assert_eq!(kinds(&bodies[0]), ["developer", "user"]);
        let answered = [
            "developer",
            "user",
            "reasoning",
            "assistant",
            "function_call",
            "function_call",
            "function_call_output",
            "function_call_output",
        ];
        assert_eq!(kinds(&bodies[1]), answered);
        let input = bodies[1]["input"].as_array().unwrap();
        assert_eq!(input[3]["phase"], "commentary");
        let thought = &sandbox.events("THOUGHT")[0];
        assert_eq!(thought["content"], "so");
        assert_eq!(thought["native"]["form"], "responses");
        assert_eq!(thought["native"]["model"], "test-model");
        assert_eq!(thought["native"]["parts"], json!(input[2..6]));
        assert_eq!(sandbox.events("THOUGHT")[1]["native"], Value::Null);
        let record = &records(&sandbox)[0];
        assert_eq!(record["wire"]["form"], "responses");
        assert_eq!(record["wire"]["response"]["output"], json!(input[2..6]));
        assert_eq!(record["reasoning"], "first this");
        let message = &record["response"]["choices"][0]["message"];
        assert_eq!(message["content"], "so");
        assert_eq!(message["tool_calls"][1]["function"]["arguments"], "{\"text\":\"two\"}");
        assert_eq!(sandbox.events("THOUGHT")[1]["usage"]["output_tokens"], 6);
    }
}

#[test]
fn c_23_1_the_request_has_the_words_of_the_form() {
    let server = ScriptedServer::start(vec![echo("a"), Answer::text("done")]);
    let llm = "\n  reasoning: {effort: high, summary: auto}\n  max_tokens: 4k\n  temperature: 1.50";
    let sandbox = agent(&server, llm);
    let context = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  - {type: journal}\n  \
                   - {type: file, path: '${AGENT_HOME}/last.md', id: last}\n";
    sandbox.write("agent/context.yaml", context);
    sandbox.write("agent/last.md", "Be brief.");
    sandbox.run("hello", &["-q"]).expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    let requests = server.requests();
    let body = &requests[1].body;
    let keys: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "model",
        "reasoning",
        "temperature",
        "max_output_tokens",
        "tools",
        "input",
        "store",
        "include",
        "prompt_cache_key",
        "stream",
    ];
    assert_eq!(keys, expected);
    assert_eq!(body["reasoning"], json!({"effort": "high", "summary": "auto"}));
    assert_eq!(body["max_output_tokens"], 4000);
    let tool = &body["tools"][0];
    assert_eq!((&tool["name"], &tool["strict"]), (&json!("echo"), &json!(false)));
    let developer = |text: &str| json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]});
    assert_eq!(
        body["input"],
        json!([
            developer("# Context Block: system_prompt.md\n\nYou are a test.\n"),
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
            {"type": "function_call", "call_id": "call_1", "name": "echo", "arguments": "{\"text\":\"a\"}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "a\n"},
            developer("# Context Block: last\n\nBe brief."),
        ])
    );
    let sent = String::from_utf8(requests[1].bytes.clone()).unwrap();
    assert_eq!(records(&sandbox)[1]["wire"]["request_sha256"], sha256_hex(&sent));
}

#[test]
fn c_23_2_reasoning_goes_back_unchanged_after_a_kill_too() {
    let answers = vec![
        echo("1").thinking("one"),
        echo("2").saying("next").thinking("two"),
        Answer::hang(),
        echo("3"),
        Answer::text("first end").thinking("three"),
        echo("4").thinking("four"),
        Answer::text("second end"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = agent(&server, "");
    let mut killed = sandbox.run_command("hello", &["-q"]).spawn();
    until("the third request", || (server.requests().len() == 3).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    resume(&sandbox, &[]).output().expect_code(0);
    let ran = resume(&sandbox, &["-m", "and now"]).output().expect_code(0);
    assert_eq!(ran.stdout, "second end\n");
    assert_eq!(server.violations(), Vec::<String>::new());
    let bodies = bodies(&server);
    let counts: Vec<_> = bodies.iter().map(|body| reasoning(body).len()).collect();
    assert_eq!(counts, [0, 1, 2, 2, 2, 3, 4]);
    let thoughts = sandbox.events("THOUGHT");
    for index in [0, 1, 3, 4] {
        let parts = thoughts[index]["native"]["parts"].as_array().unwrap();
        let input = bodies[6]["input"].as_array().unwrap();
        assert!(input.windows(parts.len()).any(|items| items == parts), "{index}");
    }
}

#[test]
fn c_23_2_an_answer_that_a_hook_changed_goes_back_in_neutral_form() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let change = "jq '{response: (.response | .choices[0].message.content = \"changed\")}'";
    let server = ScriptedServer::start(vec![
        echo("1").saying("original").thinking("one"),
        Answer::text("original"),
    ]);
    let sandbox = agent(&server, "");
    let hooks = "post_llm_response: {command: ['${AGENT_HOME}/hook.sh'], timeout_ms: 60000}\n";
    sandbox.write_program("agent/hook.sh", &format!("#!/bin/sh\n{change}\n"));
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox.run("hello", &["-q"]).expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    let input = &bodies(&server)[1]["input"];
    assert_eq!(
        kinds(&bodies(&server)[1])[2..],
        ["assistant", "function_call", "function_call_output"]
    );
    assert_eq!(input[2], json!({"role": "assistant", "content": "changed"}));
    assert_eq!(input[3].get("id"), None);
}

#[test]
fn c_23_2_a_window_leaves_the_reasoning_of_what_remains() {
    let answers: Vec<_> = (1..=4).map(|number| echo(&number.to_string()).thinking("why")).collect();
    let server = ScriptedServer::start([answers, vec![Answer::text("end")]].concat());
    let sandbox = agent(&server, "");
    let context = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}\n  - {type: journal, max_iterations: 2}\n";
    sandbox.write("agent/context.yaml", context);
    sandbox.run("hello", &["-q"]).expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    let counts: Vec<_> = bodies(&server).iter().map(|body| reasoning(body).len()).collect();
    assert_eq!(counts, [0, 1, 2, 2, 2]);
}

/// Another organisation cannot read what an endpoint encrypted.
#[test]
fn c_23_2_reasoning_that_the_endpoint_does_not_accept_is_left_out_at_once() {
    let first =
        ScriptedServer::start(vec![echo("1").thinking("one"), Answer::text("end").thinking("two")]);
    let sandbox = agent(&first, "");
    sandbox.run("hello", &["-q"]).expect_code(0);
    let second = ScriptedServer::start(vec![
        echo("2").thinking("three"),
        echo("3").thinking("four"),
        Answer::text("end"),
    ]);
    configure(&sandbox, "responses", &second.url(), "\n  max_retries: 0");
    let ran = resume(&sandbox, &["-m", "more"]).output().expect_code(0);
    assert_eq!(ran.stdout, "end\n");
    let refused = "input[2]: The encrypted content for item rs_1 could not be verified.";
    assert_eq!(second.violations(), [refused]);
    // What the endpoint made itself is sent from then on.
    let counts: Vec<_> = bodies(&second).iter().map(|body| reasoning(body).len()).collect();
    assert_eq!(counts, [2, 0, 1, 2]);
    let records = records(&sandbox);
    let attempt = &records[2]["attempts"][0];
    assert_eq!((&attempt["status"], &attempt["retry_in_ms"]), (&json!(400), &json!(0)));
    assert!(attempt["error"].as_str().unwrap().contains("could not be verified"));
    assert!(records[2]["wire"]["options"]["rejected_native"].is_string());
    assert_eq!(records[4]["attempts"], json!([]));
}

#[test]
fn c_23_2_another_model_or_provider_gets_the_neutral_form_and_coming_back_uses_the_reasoning_again()
{
    let server = ScriptedServer::start(vec![
        echo("1").thinking("one"),
        Answer::text("first"),
        Answer::text("other model"),
        Answer::text("other form"),
        Answer::text("back"),
    ]);
    let sandbox = agent(&server, "");
    sandbox.run("hello", &["-q"]).expect_code(0);
    let models = ["responses:other-model", "openai:chat-model", "responses:test-model"];
    for model in models {
        resume(&sandbox, &["-m", "more", "--model", model]).output().expect_code(0);
    }
    assert_eq!(server.violations(), Vec::<String>::new());
    let requests = server.requests();
    let counts = [2, 4].map(|index: usize| reasoning(&requests[index].body).len());
    assert_eq!(counts, [0, 1]);
    assert_eq!(requests[3].target, "POST /v1/chat/completions");
    assert!(!String::from_utf8_lossy(&requests[3].bytes).contains("gAAAA"));
}

#[test]
fn c_23_2_a_fork_to_another_model_has_the_texts_and_the_calls() {
    let server = ScriptedServer::start(vec![
        echo("1").saying("so").thinking("one"),
        Answer::text("first"),
        Answer::text("forked"),
    ]);
    let sandbox = agent(&server, "");
    sandbox.run("hello", &["-q"]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--at", "1", "--into", "new", "--run-id", "f", "-q"];
    sandbox
        .delta(fork.iter().copied().chain(["--model", "responses:other"]))
        .output()
        .expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    let body = &bodies(&server)[2];
    let expected = ["developer", "user", "assistant", "function_call", "function_call_output"];
    assert_eq!(kinds(body)[..5], expected);
    assert_eq!((&body["model"], &body["prompt_cache_key"]), (&json!("other"), &json!("f")));
}

/// Azure, OpenRouter, DeepSeek and Bedrock speak the form at addresses of their own.
#[test]
fn c_23_1_a_vendor_is_an_address_and_a_key() {
    let message = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]});
    let answer = json!({"status": "completed", "output": [message]}).to_string();
    let server =
        ScriptedServer::for_anything(move |_: &RecordedRequest| Answer::raw(200, answer.clone()));
    let vendors = [
        (
            "/openai/v1?api-version=preview",
            "\n  auth: api-key\n  api_key_env: AZURE_KEY",
            "/openai/v1/responses?api-version=preview",
            ("api-key", "k"),
        ),
        (
            "/openai/v1/",
            "\n  api_key_env: AZURE_KEY",
            "/openai/v1/responses",
            ("authorization", "Bearer k"),
        ),
        (
            "/api/v1",
            "\n  api_key_env: OPENROUTER_API_KEY",
            "/api/v1/responses",
            ("authorization", "Bearer k"),
        ),
        ("", "\n  api_key_env: DEEPSEEK_API_KEY", "/responses", ("authorization", "Bearer k")),
        (
            "/v1/responses",
            "\n  api_key_env: AWS_BEARER_TOKEN_BEDROCK\n  headers: {x-project: p}",
            "/v1/responses",
            ("x-project", "p"),
        ),
    ];
    for (at, (base, llm, path, (header, value))) in vendors.into_iter().enumerate() {
        let sandbox = Sandbox::new(DELTA);
        configure(&sandbox, "responses", &format!("{}{base}", server.root_url()), llm);
        let mut command = sandbox.run_command("hello", &["--format", "raw"]);
        for name in
            ["AZURE_KEY", "OPENROUTER_API_KEY", "DEEPSEEK_API_KEY", "AWS_BEARER_TOKEN_BEDROCK"]
        {
            command = command.env(name, "k");
        }
        assert_eq!(command.output().expect_code(0).stdout, "ok\n");
        let request = &server.requests()[at];
        assert_eq!(request.target, format!("POST {path}"));
        assert_eq!(request.header(header), Some(value));
        let has_bearer = request.header("authorization").is_some();
        assert_eq!(has_bearer, header != "api-key");
    }
}

#[test]
fn c_23_1_keys_that_delta_writes_are_refused() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let server = ScriptedServer::start(vec![Answer::text("unused")]);
    for key in ["input", "instructions", "store", "include", "previous_response_id", "conversation"]
    {
        let sandbox = agent(&server, &format!("\n  {key}: x"));
        let ran = sandbox.run("hello", &[]).expect_code(126);
        assert!(ran.stderr.contains(&format!("`{key}` is set by the engine")), "{}", ran.stderr);
    }
    // A hook cannot write them either.
    let sandbox = agent(&server, "");
    sandbox
        .write_program("agent/hook.sh", "#!/bin/sh\njq '{request: (.request | .store = true)}'\n");
    sandbox.write(
        "agent/hooks.yaml",
        "pre_llm_request: {command: ['${AGENT_HOME}/hook.sh'], timeout_ms: 60000}\n",
    );
    let ran = sandbox.run("hello", &[]).expect_code(1);
    let error = "the request cannot be sent to responses: `store` is set by delta";
    assert!(ran.stderr.contains(error), "{}", ran.stderr);
    assert_eq!(server.requests().len(), 0);
}
