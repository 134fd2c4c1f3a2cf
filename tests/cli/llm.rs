//! The LLM through the program (C-7): what is sent, what becomes of answers and errors, and every way to reach one.

use super::DELTA;
use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddrV4};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const ECHO: &str = "  - name: echo\n    exec: echo ${text}\n";

/// Runs an agent against a server; `llm` are more lines of its section, indented by two.
fn asked(answers: Vec<Answer>, llm: &str, more: &[&str]) -> (ScriptedServer, Sandbox, Ran) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: test-model\n  base_url: {}{llm}", server.url()), ECHO);
    let ran = sandbox.run("hello", more);
    (server, sandbox, ran)
}

fn error_of(ran: &Ran) -> (String, String) {
    let error = &ran.json()["error"];
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    (text("type"), text("message"))
}

fn records(sandbox: &Sandbox) -> Vec<Value> {
    let dir = "work/.delta/r/io/invocations";
    let read =
        |name: &String| serde_json::from_str(&sandbox.read(&format!("{dir}/{name}"))).unwrap();
    sandbox.files(dir).iter().map(read).collect()
}

#[test]
fn c_7_1_streamed_or_whole_the_run_is_the_same() {
    let answers = || {
        vec![
            Answer::call("echo", json!({"text": "Grüße 😀"})).saying("so"),
            Answer::text("the end").usage(5, 6),
        ]
    };
    let mut seen = Vec::new();
    for (llm, streamed) in [("", true), ("\n  stream: false", false)] {
        let (server, sandbox, ran) = asked(answers(), llm, &["--format", "raw"]);
        assert_eq!(ran.expect_code(0).stdout, "the end\n");
        for request in server.requests() {
            assert_eq!(request.body["stream"] == true, streamed);
            assert_eq!(request.body["stream_options"].is_object(), streamed);
            assert_eq!(request.connection, 1, "keep-alive");
        }
        let stable = |mut event: Value| {
            for field in [
                "timestamp",
                "agent_home",
                "work_dir",
                "pid",
                "start_time_unix",
                "invocation",
                "record_sha256",
                "estimated_tokens",
                "execution",
                "duration_ms",
                // The agents differ in one line, and so do the records, the chain and the seals.
                "config",
                "agent_tree",
                "chain",
                "seal",
            ] {
                event.as_object_mut().unwrap().remove(field);
            }
            event
        };
        seen.push(sandbox.journal().into_iter().map(stable).collect::<Vec<_>>());
        assert_eq!(server.violations(), Vec::<String>::new());
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn c_1_5_every_other_key_goes_into_the_request_as_it_is() {
    let llm = "\n  temperature: 0.7\n  zeta: {b: [1, 2.5, null], a: \"no: yes\"}\n  max_tokens: 77\n  alpha: true\n  x-mine: 1\n  reasoning_effort: high";
    let (server, _sandbox, ran) = asked(vec![Answer::text("ok")], llm, &[]);
    ran.expect_code(0);
    let text = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
    let expected = r#""temperature":0.7,"zeta":{"b":[1,2.5,null],"a":"no: yes"},"max_tokens":77,"alpha":true,"reasoning_effort":"high","messages":["#;
    assert!(text.contains(expected), "{text}");
    let keys: Vec<_> = server.requests()[0].body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys[..2], ["model", "tools"]);
    assert_eq!(keys[keys.len() - 3..], ["messages", "stream", "stream_options"]);
    assert!(!text.contains("x-mine") && !text.contains("base_url"));
}

#[test]
fn c_2_10_tools_and_their_parameters_keep_the_files_order() {
    let tools = "  - name: zulu\n    exec: echo ${z} ${a} ${m}\n  - name: alpha\n    description: The first letter\n    exec: echo\n";
    let server = ScriptedServer::start(vec![Answer::call("alpha", json!({})), Answer::text("ok")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("hello", &[]).expect_code(0);
    let requests = server.requests();
    assert_eq!(requests[0].body["tools"].to_string(), requests[1].body["tools"].to_string());
    let tools = requests[0].body["tools"].as_array().unwrap();
    let names: Vec<_> =
        tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["zulu", "alpha", "finish", "ask_human"]);
    let zulu = &tools[0]["function"];
    assert_eq!(
        zulu["parameters"]["properties"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["z", "a", "m"]
    );
    assert_eq!(
        (&zulu["parameters"]["additionalProperties"], &zulu["description"]),
        (&json!(false), &json!("echo ${z} ${a} ${m}"))
    );
    assert_eq!(tools[1]["function"]["description"], "The first letter");
}

#[test]
fn c_7_3_failed_tries_are_told_recorded_and_repeated() {
    let soon = |answer: Answer| answer.header("Retry-After", "0");
    let answers = vec![
        soon(Answer::error(429, "slow down", None)),
        soon(Answer::error(503, "overloaded", None)),
        Answer::text("cut off in the middle").break_off(300),
        Answer::text("at last"),
    ];
    let (server, sandbox, ran) = asked(answers, "", &["--format", "raw"]);
    let ran = ran.expect_code(0);
    assert_eq!((&*ran.stdout, server.requests().len()), ("at last\n", 4));
    let log = sandbox.read("work/.delta/r/engine.log");
    for told in
        ["429 Too Many Requests: slow down", "503 Service Unavailable: overloaded", "broke off"]
    {
        let count = |text: &str| {
            text.lines()
                .filter(|line| {
                    line.contains(told) && (line.contains(": try ") || line.starts_with("! try "))
                })
                .count()
        };
        assert_eq!((count(&ran.stderr), count(&log)), (1, 1), "{told}");
    }
    let record = records(&sandbox).remove(0);
    let statuses: Vec<_> = record["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| attempt["status"].clone())
        .collect();
    assert_eq!(statuses, [json!(429), json!(503), json!(200)]);
    assert_eq!((&record["status"], &record["error"]), (&json!(200), &Value::Null));
    assert_eq!(record["response"]["choices"][0]["message"]["content"], "at last");
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    assert!(!journal.contains("cut off"), "C-7.4");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_7_3_after_the_last_try_the_providers_words_are_shown() {
    let answers = vec![
        Answer::error(500, "the bits fell out", None).header("Retry-After", "0"),
        Answer::error(500, "the bits fell out again", None),
    ];
    let (server, sandbox, ran) = asked(answers, "\n  max_retries: 1", &["--format", "json"]);
    let ran = ran.expect_code(1);
    assert_eq!(server.requests().len(), 2);
    let (kind, message) = error_of(&ran);
    assert_eq!((&*kind, message.contains("the bits fell out again")), ("llm", true));
    assert!(ran.stderr.contains(
        "error: the endpoint answered 500 Internal Server Error: the bits fell out again"
    ));
    let error = &sandbox.events("ERROR")[0];
    assert_eq!(
        (&error["error_details"]["type"], &error["error_details"]["status"]),
        (&json!("llm"), &json!(500))
    );
    let record: Value = serde_json::from_str(&sandbox.read(&format!(
        "work/.delta/r/{}",
        error["error_details"]["invocation"].as_str().unwrap()
    )))
    .unwrap();
    assert_eq!(record["response"]["error"]["message"], "the bits fell out again");
    assert_eq!(sandbox.metadata()["status"], "FAILED");
    assert_eq!(sandbox.journal().pop().unwrap()["status"], "FAILED");
}

#[test]
fn c_7_3_other_refusals_are_not_repeated() {
    for (status, message) in
        [(400, "bad"), (401, "who are you"), (403, "no"), (404, "no such model"), (422, "odd")]
    {
        let (server, _sandbox, ran) =
            asked(vec![Answer::error(status, message, None)], "", &["--format", "json"]);
        let ran = ran.expect_code(1);
        assert_eq!(server.requests().len(), 1, "{status}");
        assert!(error_of(&ran).1.contains(message), "{status}");
    }
}

#[test]
fn c_7_3_a_local_server_that_does_not_run_is_reported_at_once() {
    // A socket that does not listen keeps the port from the servers of other tests.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = SocketAddrV4::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap().port();
    for (llm, tries) in [("", 2), ("\n  max_retries: 2", 3), ("\n  max_retries: 0", 1)] {
        let sandbox = Sandbox::asking(DELTA, &format!("http://127.0.0.1:{port}/v1{llm}"), "");
        let ran = sandbox.run("hello", &["--format", "json"]).expect_code(1);
        let details = &ran.json()["error"]["details"];
        assert!(details.as_str().unwrap().starts_with("nothing listens there: start"), "{details}");
        let attempts = records(&sandbox)[0]["attempts"].as_array().unwrap().len();
        assert_eq!(attempts, tries, "{llm}");
        let announced = ran.stderr.contains(&format!("try 2 of {tries} in "));
        assert_eq!(announced, tries > 1, "{}", ran.stderr);
    }
}

#[test]
fn c_7_5_a_context_that_is_too_long_gets_a_hint() {
    let message = "This model's maximum context length is 8192 tokens.";
    let answer = |status| Answer::error(status, message, Some("context_length_exceeded"));
    // C-26.3: a result of the agent, whatever the status; asking again would change nothing.
    for status in [400, 413, 500] {
        let (server, _sandbox, ran) =
            asked(vec![answer(status), answer(status)], "", &["--format", "json"]);
        assert_eq!(error_of(&ran.expect_code(1)).0, "context_length");
        assert_eq!(server.requests().len(), 1, "{status}");
    }
    let (_server, _sandbox, ran) = asked(vec![answer(400)], "", &[]);
    let ran = ran.expect_code(1);
    let hint = ran.stderr.lines().find(|line| line.starts_with("help: ")).unwrap();
    assert!(
        hint.contains("context.yaml")
            && hint.contains("max_iterations")
            && hint.contains("max_tokens"),
        "{hint}"
    );
}

#[test]
fn c_7_7_reasoning_is_kept_shown_on_request_and_sent_back_with_calls() {
    let answers = || {
        vec![
            Answer::call("echo", json!({"text": "x"})).thinking("because of reasons"),
            Answer::text("ok"),
        ]
    };
    for llm in ["", "\n  echo_reasoning: true"] {
        let (server, sandbox, ran) = asked(answers(), llm, &["-v"]);
        assert!(ran.expect_code(0).stderr.contains("because of reasons"));
        assert_eq!(records(&sandbox)[0]["reasoning"], "because of reasons");
        let sent = server.requests()[1].body["messages"][2]["reasoning_content"].clone();
        assert_eq!(sent, "because of reasons");
        assert_eq!(server.violations(), Vec::<String>::new());
    }
    let (_server, _sandbox, ran) = asked(answers(), "", &[]);
    assert!(!ran.expect_code(0).stderr.contains("because of reasons"));
}

#[test]
fn c_7_8_what_is_withheld_or_cut_off_is_no_success() {
    let refusal = json!({"choices": [{"message": {"content": null, "refusal": "I will not"}, "finish_reason": "stop"}]});
    let cases = [
        (Answer::raw(200, refusal.to_string()), "refusal", "I will not"),
        (Answer::text("No, I cannot").finish_reason(Some("refusal")), "refusal", "No, I cannot"),
        (Answer::calls(vec![]).finish_reason(Some("content_filter")), "content_filter", "withheld"),
        (
            Answer::text("The first half").finish_reason(Some("content_filter")),
            "content_filter",
            "cut off",
        ),
        (Answer::text("The first half").finish_reason(Some("length")), "length", "max_tokens"),
        (Answer::calls(vec![]).finish_reason(Some("length")), "length", "before any answer"),
        (Answer::text("Half").finish_reason(Some("model_length")), "length", "model_length"),
        (Answer::text("Half").finish_reason(Some("MAX_TOKENS")), "length", "MAX_TOKENS"),
        (Answer::text("Half").finish_reason(Some("cancelled")), "llm", "`cancelled`"),
        (Answer::text("Half").finish_reason(Some("repetition")), "llm", "`repetition`"),
        (Answer::text("Half").finish_reason(Some("sensitive")), "content_filter", "cut off"),
        (
            Answer::text("Half").finish_reason(Some("content_filter: PROHIBITED_CONTENT")),
            "content_filter",
            "cut off",
        ),
        (Answer::calls(vec![]).finish_reason(Some("SPII")), "content_filter", "withheld"),
        (
            Answer::text("Half").finish_reason(Some("max_output_tokens")),
            "length",
            "max_output_tokens",
        ),
        (
            Answer::text("Half").finish_reason(Some("model_context_window_exceeded")),
            "context_length",
            "does not fit",
        ),
    ];
    for (answer, kind, words) in cases {
        let (server, sandbox, ran) = asked(vec![answer], "", &["--format", "json"]);
        let ran = ran.expect_code(1);
        let (found, message) = error_of(&ran);
        assert!(found == kind && message.contains(words), "{kind}: {found}: {message}");
        let thoughts = sandbox.events("THOUGHT");
        assert_eq!(server.requests().len(), 1, "{kind}");
        // Only a text that was cut off is kept; its THOUGHT names the record.
        let is_kept = thoughts.iter().any(|thought| thought["cut_off"] == true);
        assert_eq!(is_kept, kind == "length" && words != "before any answer", "{kind}");
        let record = &sandbox.events("ERROR")[0]["error_details"]["invocation"];
        assert_eq!((thoughts.len() == 1, record.is_null()), (is_kept, is_kept), "{kind}");
    }
}

#[test]
fn c_7_8_no_call_of_an_answer_that_was_withheld_is_run() {
    let call =
        json!({"id": "c", "type": "function", "function": {"name": "wipe", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": null, "refusal": "I will not", "tool_calls": [call]});
    let refusal = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
    let wipe = |reason: &str| Answer::call("wipe", json!({})).finish_reason(Some(reason));
    let cases = [
        (wipe("content_filter"), "content_filter"),
        (wipe("refusal"), "refusal"),
        (Answer::raw(200, refusal.to_string()), "refusal"),
        (wipe("cancelled"), "llm"),
    ];
    for (answer, kind) in cases {
        let server = ScriptedServer::start(vec![answer]);
        let tools = "  - name: wipe\n    shell: echo gone >> wiped\n";
        let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
        let ran = sandbox.run("hello", &["--format", "json"]).expect_code(1);
        assert_eq!(error_of(&ran).0, kind);
        assert!(!sandbox.path("work/wiped").exists(), "{kind}");
    }
}

#[test]
fn c_7_8_an_answer_that_the_endpoint_broke_off_is_asked_for_again() {
    for reason in [
        "error",
        "abort",
        "insufficient_system_resource",
        "network_error",
        "MALFORMED_FUNCTION_CALL",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
    ] {
        let half = Answer::text("Half").finish_reason(Some(reason)).usage(100, 7);
        let answers = vec![half, Answer::text("whole").usage(100, 5)];
        let (server, sandbox, ran) = asked(answers, "", &["--format", "raw"]);
        assert_eq!(ran.expect_code(0).stdout, "whole\n", "{reason}");
        assert_eq!(server.requests().len(), 2, "{reason}");
        // What broke off was paid for.
        let discarded = &sandbox.events("THOUGHT")[0]["discarded_usage"][0];
        assert_eq!(discarded["output_tokens"], 7, "{reason}");
    }
}

#[test]
fn c_7_8_an_unknown_end_of_an_answer_is_named() {
    for (reason, is_known) in [("weird", false), ("eos_token", true), ("STOP", true)] {
        let answers = vec![Answer::text("whole").finish_reason(Some(reason))];
        let (_server, _sandbox, ran) = asked(answers, "", &["--format", "raw"]);
        let ran = ran.expect_code(0);
        let warning = "! the finish_reason `weird` of the answer is unknown; delta treats the answer as complete\n";
        assert_eq!((&*ran.stdout, ran.stderr.contains(warning)), ("whole\n", !is_known));
    }
}

#[test]
fn c_7_8_a_call_that_was_cut_off_is_an_observation() {
    let tools =
        "  - name: wipe\n    shell: echo gone >> wiped\n  - name: echo\n    exec: echo ${text}\n";
    let cut = |name: &str, arguments: &str| {
        Answer::raw_call("", name, arguments).finish_reason(Some("length"))
    };
    let answers = vec![
        cut("echo", "{\"text\": \"ab"),
        cut("wipe", ""),
        cut("wipe", "{}"),
        cut("finish", "{\"resu"),
        cut("ask_human", ""),
        Answer::text("ok"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("hello", &[]).expect_code(0);
    let seen = sandbox.observations();
    for at in [0, 1, 3, 4] {
        assert!(seen[at].contains("cut off at the token limit"), "{at}: {}", seen[at]);
    }
    // Of a call that is whole nothing was cut off.
    assert_eq!((&*seen[2], &*sandbox.read("work/wiped")), ("[no output]", "gone\n"));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_7_9_the_next_turn_follows_from_the_journal() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Which?}}]\n- say: one\n- say: two\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("go", &[]).expect_code(101);
    for expected in ["one\n", "two\n"] {
        let args = ["continue", "--run-id", "r", "-w", "work", "-m", "next", "--format", "raw"];
        assert_eq!(sandbox.delta(args).output().expect_code(0).stdout, expected);
    }
}

#[test]
fn c_7_9_the_script_says_that_it_is_one() {
    let sandbox = Sandbox::scripted(
        DELTA,
        ECHO,
        "- {when: never, say: no}\n- {when: '^he(l+)o', call: [{tool: echo, args: {text: '${1}'}}]}\n- say: '${task} ${last}'",
    );
    let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "hello ll\n");
    assert!(ran.stderr.contains("the LLM is a script (script.yaml)"), "{}", ran.stderr);
    let ran = Sandbox::scripted(DELTA, "", "- error: out of tokens")
        .run("hello", &["--format", "json"])
        .expect_code(1);
    assert_eq!(error_of(&ran), ("llm".to_owned(), "out of tokens".to_owned()));
    let ran = Sandbox::scripted(DELTA, "", "[]").run("hello", &[]);
    assert_ne!(ran.code, 0);
}

/// An agent whose LLM is a shell script in the workspace.
fn commanded(script: &str, llm: &str, more: &[&str]) -> (Sandbox, Ran) {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(
        &format!("provider: command\n  model: some-model\n  command: [./llm.sh, an argument]{llm}"),
        ECHO,
    );
    sandbox.write_program("work/llm.sh", &format!("#!/bin/sh\n{script}\n"));
    let ran =
        sandbox.run_command("hello", more).env("DELTA_API_KEY", "sk-of-the-operator").output();
    (sandbox, ran)
}

#[test]
fn c_7_10_an_answer_of_a_command_is_read_as_that_of_an_endpoint() {
    let script = "if grep -q '\"role\":\"tool\"'; then\n\
        echo '{\"error\":{\"message\":\"out of quota\"}}'\n\
        else echo '{\"choices\":[{\"message\":{\"content\":null,\"function_call\":{\"name\":\"echo\",\"arguments\":\"{\\\"text\\\":\\\"x\\\"}\"}}}]}'; fi";
    let (sandbox, ran) = commanded(script, "", &["--format", "json"]);
    let message = ran.expect_code(1).json()["error"]["message"].to_string();
    assert_eq!(sandbox.observations(), ["x\n"]);
    assert!(
        message.contains("no choices[0].message: ") && message.contains("out of quota"),
        "{message}"
    );
}

#[test]
fn c_7_10_the_llm_can_be_a_command() {
    let script = "cat > request.json\ntest -n \"$DELTA_API_KEY\" && touch has_key\necho \"thinking about $1\" >&2\n\
        if grep -q '\"role\":\"tool\"' request.json; then\n\
        echo '{\"choices\":[{\"message\":{\"content\":\"from a command\"}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}'\n\
        else echo '{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"echo\",\"arguments\":\"{\\\"text\\\":\\\"x\\\"}\"}}]}}]}'; fi";
    let llm = "\n  top_k: 3\n  api_key_env: DELTA_API_KEY";
    let (sandbox, ran) = commanded(script, llm, &["--format", "json"]);
    let ran = ran.expect_code(0);
    assert_eq!(ran.json()["result"], "from a command");
    assert_eq!(ran.json()["metrics"]["usage"]["input_tokens"], 3);
    let request: Value = serde_json::from_str(&sandbox.read("work/request.json")).unwrap();
    let keys: Vec<_> = request.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model", "tools", "top_k", "messages"]);
    assert_eq!(
        (&request["model"], request["messages"].as_array().unwrap().len()),
        (&json!("some-model"), 4)
    );
    assert!(sandbox.path("work/has_key").exists(), "the agent names the key");
    assert_eq!(records(&sandbox)[0]["provider"], "command");
}

#[test]
fn c_20_3_a_command_of_the_agent_gets_no_key_of_the_operator_that_it_does_not_name() {
    let answer = r#"echo "{\"choices\":[{\"message\":{\"content\":\"key: $DELTA_API_KEY$OPENAI_API_KEY\"}}]}""#;
    let (sandbox, ran) = commanded(answer, "", &["--format", "raw"]);
    assert_eq!(ran.expect_code(0).stdout, "key: \n");
    // The key of the agent itself.
    sandbox.write("agent/.env", "DELTA_API_KEY=sk-of-the-agent\n");
    let args = ["run", "--agent", "agent", "-w", "work", "-m", "hi", "--format", "raw"];
    let ran = sandbox.delta(args).env("OPENAI_API_KEY", "sk-of-the-operator").output();
    assert_eq!(ran.expect_code(0).stdout, "key: [redacted]\n");
}

/// It was sent to the library for HTTP, which failed again and again with words about a response.
#[test]
fn c_7_2_a_key_that_no_header_can_have_is_a_mistake_of_the_configuration() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m\n  base_url: http://127.0.0.1:1/v1", "");
    for key in ["sk-ключ", "sk-ü", "sk-a\nb", "sk-\u{7f}"] {
        let ran = sandbox.run_command("hi", &["-q"]).env("DELTA_API_KEY", key).output();
        let error = "error: DELTA_API_KEY: the API key has a character that an HTTP header cannot contain\n\
                     help: set it to the key alone, without line breaks\n";
        ran.expect(126, "", error);
    }
}

#[test]
fn c_7_10_a_command_that_fails_says_why() {
    let answer = "echo '{\"choices\":[]}'";
    let cases = [
        ("echo 'no model loaded' >&2; exit 3", "exited with code 3: no model loaded"),
        ("echo garbage", "did not print JSON"),
        ("exit 0", "did not print JSON"),
        (answer, "did not print a response"),
        ("kill -KILL $$", "killed by SIGKILL"),
        ("echo begun >&2; sleep 1000 & sleep 1000", "did not respond within 300 ms: begun"),
    ];
    for (script, expected) in cases {
        let (sandbox, ran) = commanded(script, "\n  timeout_ms: 300", &["--format", "json"]);
        let ran = ran.expect_code(1);
        let (kind, message) = error_of(&ran);
        assert!(kind == "llm" && message.contains(expected), "{script}: {message}");
        let run_dir = format!("RUN_DIR={}", sandbox.path("work/.delta/r").display());
        assert_eq!(test_support::wait::processes_with(&[&run_dir]), Vec::<i32>::new());
    }
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: command\n  model: m\n  command: [no-such-llm]", "");
    let ran = sandbox.run("hello", &["--format", "json"]).expect_code(1);
    assert!(error_of(&ran).1.contains("`no-such-llm` was not found"), "{}", ran.stdout);
}

#[test]
fn c_7_10_the_operator_chooses_the_model() {
    let (server, sandbox, ran) =
        asked(vec![Answer::text("ok")], "", &["--model", "openai:llama3:8b"]);
    ran.expect_code(0);
    assert_eq!(server.requests()[0].body["model"], "llama3:8b");
    assert_eq!(
        sandbox.journal()[0]["config"]["llm"],
        json!({"provider": "openai", "model": "llama3:8b", "option": "openai:llama3:8b"})
    );
    assert_eq!(records(&sandbox)[0]["model"], "llama3:8b");

    let sandbox = Sandbox::asking(DELTA, "http://127.0.0.1:9/v1", "");
    sandbox.write("other.yaml", "turns: [{say: scripted}]\n");
    let ran =
        sandbox.run("hello", &["--model", "script:other.yaml", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "scripted\n");

    let server = ScriptedServer::start(vec![Answer::text("asked")]);
    let sandbox = Sandbox::scripted(DELTA, "", "- say: scripted");
    let ran = sandbox
        .run_command("hello", &["--model", "openai:gpt-x", "--format", "raw"])
        .env("DELTA_BASE_URL", server.url());
    assert_eq!(ran.output().expect_code(0).stdout, "asked\n");
    assert_eq!(server.requests()[0].body["model"], "gpt-x");
}

#[test]
fn c_12_7_usage_and_cost() {
    let usage = |ran: Ran| ran.expect_code(0).json()["metrics"]["usage"].clone();
    let answers = || {
        vec![
            Answer::call("echo", json!({"text": "x"})).usage(1_000_000, 10),
            Answer::text("ok").usage(500_000, 20),
        ]
    };
    let pricing = "\n  pricing: {input: 2, output: 100}";
    let (_server, sandbox, ran) = asked(answers(), pricing, &["--format", "json"]);
    let found = usage(ran);
    assert_eq!((&found["input_tokens"], &found["output_tokens"]), (&json!(1_500_000), &json!(30)));
    assert!((found["total_cost_usd"].as_f64().unwrap() - 3.003).abs() < 1e-9, "{found}");
    assert_eq!(
        found["model_usage"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["test-model"]
    );
    assert_eq!(sandbox.events("THOUGHT")[0]["usage"]["input_tokens"], 1_000_000);
    let (_server, _sandbox, ran) = asked(answers(), "", &["--format", "json"]);
    assert_eq!(usage(ran)["total_cost_usd"], Value::Null, "unknown, not 0");
    let (_server, _sandbox, ran) =
        asked(vec![Answer::text("ok").no_usage()], pricing, &["--format", "json"]);
    assert_eq!(usage(ran)["total_cost_usd"], Value::Null, "nothing was reported");
    let body = json!({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.25}});
    let (_server, _sandbox, ran) =
        asked(vec![Answer::raw(200, body.to_string())], "", &["--format", "json"]);
    assert_eq!(usage(ran)["total_cost_usd"], 0.25);
}

#[test]
fn c_1_2_an_address_or_a_proxy_that_is_none_leaves_nothing_behind() {
    for (name, value) in [
        ("DELTA_BASE_URL", "localhost:1"),
        ("DELTA_BASE_URL", "http://"),
        ("HTTP_PROXY", "ftp://somewhere"),
        ("DELTA_API_KEY", "two\nlines"),
    ] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent("model: m", "");
        // A proxy is for other hosts than this one.
        let address = "http://llm.invalid/v1";
        let key = ("DELTA_API_KEY", "sk-0123456789");
        let variables = [("DELTA_BASE_URL", address), key, (name, value)];
        let mut command = sandbox.run_command("task", &[]);
        for (name, value) in variables {
            command = command.env(name, value);
        }
        let ran = command.output().expect_code(126);
        assert!(ran.stderr.contains("error: "), "{name}: {}", ran.stderr);
        assert!(!sandbox.path("work").exists(), "{name}");
    }
}

#[test]
fn c_7_6_a_proxy_is_used() {
    let proxied = ScriptedServer::start(|_: &RecordedRequest| Answer::text("never"));
    let sandbox = Sandbox::asking(DELTA, "http://llm.invalid/v1\n  max_retries: 0", "");
    let address = proxied.url().replace("/v1", "");
    let ran = sandbox
        .run_command("hello", &["--format", "json"])
        .env("HTTP_PROXY", address)
        .env("DELTA_TRUST_ENDPOINT", "llm.invalid")
        .env("DELTA_API_KEY", "sk-0123456789");
    ran.output().expect_code(1);
    let target = proxied.requests()[0].target.clone();
    assert!(target.contains("llm.invalid"), "{target}");
}

/// The proxy would ask itself, and see the key without encryption.
#[test]
fn c_7_6_no_proxy_gets_what_is_for_this_machine() {
    let proxy = ScriptedServer::start(|_: &RecordedRequest| Answer::text("from the proxy"));
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("from here"));
    for host in ["127.0.0.1", "localhost"] {
        let url = server.url().replace("127.0.0.1", host);
        let sandbox = Sandbox::asking(DELTA, &url, "");
        let mut run = sandbox.run_command("hello", &["--format", "raw"]);
        for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
            run = run.env(variable, proxy.url().replace("/v1", ""));
        }
        let ran = run.env("DELTA_API_KEY", "sk-0123456789").output().expect_code(0);
        assert_eq!(ran.stdout, "from here\n");
    }
    assert_eq!(proxy.requests().len(), 0);
}

#[test]
fn c_7_2_a_call_is_recorded_with_its_request_answer_tries_and_usage() {
    let answers = vec![
        Answer::error(503, "busy with sk-0123456789", None).header("Retry-After", "0"),
        Answer::text("done with sk-0123456789").usage(11, 7),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    sandbox.run_command("task", &[]).env("DELTA_API_KEY", "sk-0123456789").output().expect_code(0);
    let names = sandbox.files("work/.delta/r/io/invocations");
    assert_eq!(names.len(), 1, "one record for a call, its tries in it: {names:?}");
    let text = sandbox.read(&format!("work/.delta/r/io/invocations/{}", names[0]));
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["status"], 200);
    assert_eq!(record["attempts"][0]["status"], 503);
    let refusal = record["attempts"][0]["error"].as_str().unwrap();
    assert!(refusal.contains("busy with [redacted]"), "{refusal}");
    assert_eq!(record["request"], server.requests()[1].body);
    let content = &record["response"]["choices"][0]["message"]["content"];
    assert_eq!(content, "done with [redacted]");
    assert_eq!(record["response"]["choices"][0]["finish_reason"], "stop");
    assert_eq!(record["usage"]["input_tokens"], 11);
    assert_eq!(record["usage"]["output_tokens"], 7);
    assert!(record["duration_ms"].is_u64() && record["started_at"].is_string());
    assert!(!text.contains("sk-0123456789"), "the key is in no record");
}

/// The first of the list was taken, though in a stream it is the one with the index 0.
#[test]
fn c_7_1_a_whole_answer_is_the_choice_that_a_stream_would_have() {
    let choice = |index: u64, content: &str| {
        let message = json!({"role": "assistant", "content": content});
        json!({"index": index, "message": message, "finish_reason": "stop"})
    };
    let body = json!({"choices": [choice(1, "second"), choice(0, "first")]});
    let answer = Answer::raw(200, body.to_string());
    let (_server, _sandbox, ran) = asked(vec![answer], "\n  stream: false", &["--format", "json"]);
    assert_eq!(ran.json()["result"], "first");
}
