//! `provider: gemini`: `generateContent`, of AI Studio and of Vertex.

use super::{DELTA, ECHO, agent_of, bodies, in_process, records};
use delta_base::hex::sha256_hex;
use delta_words::WireForm;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// The documented signature of calls that the model did not make.
const FOREIGN: &str = "skip_thought_signature_validator";

fn echo(text: &str) -> Answer {
    Answer::call("echo", json!({"text": text}))
}

/// Two calls at once, one alone, and the end.
fn two_steps() -> Vec<Answer> {
    let both = vec![("echo", json!({"text": "Grüße 😀"})), ("echo", json!({"text": "two"}))];
    let first = Answer::calls(both).saying("so").thinking("first this");
    vec![first, echo("three"), Answer::text("the end").usage(5, 6)]
}

fn asked(answers: Vec<Answer>, more: &[&str]) -> (ScriptedServer, Sandbox, Ran) {
    let server = ScriptedServer::start(answers);
    let sandbox = agent_of("gemini", &server, "");
    let ran = sandbox.run("hello", more);
    (server, sandbox, ran)
}

#[track_caller]
fn no_violations(server: &ScriptedServer) {
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// The first signature of each answer in the last request.
fn signatures(server: &ScriptedServer) -> Vec<Option<String>> {
    let last = bodies(server).pop().unwrap();
    let contents = last["contents"].as_array().unwrap();
    let models = contents.iter().filter(|content| content["role"] == "model");
    let first = |content: &Value| {
        let parts = content["parts"].as_array().unwrap();
        parts.iter().find_map(|part| part["thoughtSignature"].as_str().map(str::to_owned))
    };
    models.map(first).collect()
}

fn resume(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied())
}

/// The tokens of an answer after which delta asks again were in no event.
#[test]
fn c_23_3_an_answer_that_broke_off_and_is_asked_for_again_was_paid_for() {
    let malformed = Answer::text("x").finish_reason(Some("MALFORMED_RESPONSE")).usage(1000, 50);
    let (_server, sandbox, ran) =
        asked(vec![malformed, Answer::text("ok").usage(5, 6)], &["--format", "json"]);
    let ran = ran.expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["input_tokens"], json!(1005));
    let thought = &sandbox.events("THOUGHT")[0];
    assert_eq!(thought["usage"]["input_tokens"], json!(5));
    assert_eq!(thought["discarded_usage"][0]["input_tokens"], json!(1000));
}

#[test]
fn c_23_1_streamed_or_whole_a_run_is_the_same() {
    for (llm, method, query) in
        [("", "streamGenerateContent", "?alt=sse"), ("\n  stream: false", "generateContent", "")]
    {
        let server = ScriptedServer::start(two_steps());
        let llm = format!(
            "{llm}\n  max_tokens: 4k\n  temperature: 0.5\n  generationConfig: {{thinkingConfig: {{thinkingLevel: low}}}}"
        );
        let sandbox = agent_of("gemini", &server, &llm);
        let ran = sandbox.run_command("hello", &["--format", "raw"]).env("GEMINI_API_KEY", "k-1");
        assert_eq!(ran.output().expect_code(0).stdout, "the end\n");
        no_violations(&server);
        for request in server.requests() {
            assert_eq!(request.target, format!("POST /v1beta/models/test-model:{method}{query}"));
            assert_eq!(request.header("x-goog-api-key"), Some("k-1"));
            assert_eq!(request.header("authorization"), None);
            let expected = json!({"thinkingConfig": {"thinkingLevel": "low"}, "temperature": 0.5, "maxOutputTokens": 4000});
            assert_eq!(request.body["generationConfig"], expected);
            assert_eq!(request.connection, 1, "keep-alive");
        }
        assert_eq!(sandbox.observations(), ["Grüße 😀\n", "two\n", "three\n"]);
        let bodies = bodies(&server);
        let contents = bodies[2]["contents"].as_array().unwrap();
        let parts: Vec<_> =
            contents.iter().map(|content| content["parts"].as_array().unwrap().len()).collect();
        assert_eq!(parts, [1, 4, 2, 1, 1]);
        let thoughts = sandbox.events("THOUGHT");
        assert_eq!(thoughts[0]["native"]["form"], "gemini");
        assert_eq!(thoughts[0]["native"]["parts"], contents[1]["parts"]);
        assert_eq!(thoughts[1]["native"]["parts"], contents[3]["parts"]);
        assert_eq!(thoughts[0]["finish_reason"], "tool_calls");
        assert_eq!(thoughts[2]["usage"]["input_tokens"], 5);
        assert_eq!(thoughts[2]["usage"]["output_tokens"], 6);
        let records = records(&sandbox);
        let wire = &records[0]["wire"];
        assert_eq!(wire["form"], "gemini");
        assert_eq!(wire["response"]["candidates"][0]["content"]["parts"], contents[1]["parts"]);
        let sent = String::from_utf8(server.requests()[0].bytes.clone()).unwrap();
        assert_eq!(wire["request_sha256"], sha256_hex(&sent));
        assert_eq!(records[0]["response"]["choices"][0]["message"]["content"], "so");
    }
}

#[test]
fn c_23_1_ids_go_back_where_the_model_gave_them_and_nowhere_else() {
    for (model, has_ids) in [("test-ids", true), ("test-model", false)] {
        let (server, sandbox, ran) = asked(two_steps(), &["--model", model]);
        ran.expect_code(0);
        no_violations(&server);
        let contents = bodies(&server)[2]["contents"].to_string();
        assert_eq!(contents.matches("\"id\":").count(), if has_ids { 6 } else { 0 }, "{contents}");
        assert_eq!(sandbox.observations().len(), 3);
    }
}

#[test]
fn c_23_1_an_answer_of_text_and_plain_calls_has_nothing_to_go_back() {
    let (server, sandbox, ran) = asked(two_steps(), &["--model", "test-plain"]);
    ran.expect_code(0);
    no_violations(&server);
    assert!(sandbox.events("THOUGHT").iter().all(|thought| thought["native"].is_null()));
}

#[test]
fn c_23_1_what_a_hook_changes_is_sent_as_it_is_now() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let server = ScriptedServer::start(two_steps());
    let sandbox = agent_of("gemini", &server, "");
    let change = "jq -c '{response: (.response | .choices[0].message.content |= \"changed\")}'";
    sandbox.write_program("agent/change.sh", &format!("#!/bin/sh\n{change}\n"));
    sandbox
        .write("agent/hooks.yaml", "post_llm_response: {command: ['${AGENT_HOME}/change.sh']}\n");
    sandbox.run("hello", &[]).expect_code(0);
    no_violations(&server);
    let contents = bodies(&server)[2]["contents"].clone();
    assert_eq!(contents[1]["parts"][0], json!({"text": "changed"}));
    assert_eq!(signatures(&server), [Some(FOREIGN.to_owned()), Some(FOREIGN.to_owned())]);
}

#[test]
fn c_23_1_a_hook_may_take_the_opaque_parts_out_of_a_request() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let server = ScriptedServer::start(two_steps());
    let sandbox = agent_of("gemini", &server, "");
    let change = "jq -c '{messages: [.request.messages[] | del(.native)]}'";
    sandbox.write_program("agent/change.sh", &format!("#!/bin/sh\n{change}\n"));
    sandbox.write("agent/hooks.yaml", "pre_llm_request: {command: ['${AGENT_HOME}/change.sh']}\n");
    sandbox.run("hello", &[]).expect_code(0);
    no_violations(&server);
    assert_eq!(signatures(&server), [Some(FOREIGN.to_owned()), Some(FOREIGN.to_owned())]);
}

#[test]
fn c_23_1_a_continued_run_sends_the_signatures_of_its_earlier_processes() {
    let mut answers = two_steps();
    answers.extend([echo("four"), Answer::text("really")]);
    let (server, sandbox, ran) = asked(answers, &[]);
    ran.expect_code(0);
    let first = signatures(&server);
    assert_eq!(resume(&sandbox, &["-m", "more"]).output().expect_code(0).stdout, "really\n");
    no_violations(&server);
    let last = signatures(&server);
    assert_eq!(last[..2], first);
    assert_eq!(last.iter().flatten().count(), 4, "{last:?}");
    assert!(!last.iter().flatten().any(|signature| signature == FOREIGN));
}

#[test]
fn c_23_2_another_provider_continues_a_run_and_the_first_one_again() {
    let again = |text: &str| vec![echo(text), Answer::text("done")];
    let mut answers = two_steps();
    answers.extend(again("x").into_iter().chain(again("y")));
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    // The version of the address is that of Chat Completions too.
    sandbox.agent(
        &format!("provider: gemini\n  model: test-model\n  base_url: {}", server.url()),
        ECHO,
    );
    sandbox.run("hello", &[]).expect_code(0);
    let first = signatures(&server);
    let other =
        resume(&sandbox, &["-m", "and you", "--model", "openai:gpt"]).output().expect_code(0);
    assert!(
        other.stderr.contains("the last process called test-model; this one calls gpt"),
        "{}",
        other.stderr
    );
    assert!(!String::from_utf8_lossy(&server.requests()[4].bytes).contains("native"));
    resume(&sandbox, &["-m", "back", "--model", "gemini:test-model"]).output().expect_code(0);
    no_violations(&server);
    let last = signatures(&server);
    assert_eq!(last[..2], first, "what the provider made itself is used again");
    assert_eq!(last[3..5], [None, None], "a turn that is over needs no signature: {last:?}");
}

#[test]
fn c_23_2_a_fork_asks_another_model_after_every_iteration() {
    for (from, to) in [
        ("openai:gpt", "gemini:test-model"),
        ("gemini:test-model", "gemini:test-ids"),
        ("gemini:test-model", "openai:gpt"),
    ] {
        let mut answers = two_steps();
        answers.extend([
            echo("after one"),
            Answer::text("one"),
            echo("after two"),
            Answer::text("two"),
        ]);
        let server = ScriptedServer::start(answers);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("provider: openai\n  model: m\n  base_url: {}", server.url()), ECHO);
        sandbox.run("hello", &["--model", from]).expect_code(0);
        for at in ["1", "2"] {
            let id = format!("f{at}");
            let into = format!("new{at}");
            let fork = [
                "fork", "r", "-w", "work", "--run-id", &id, "--into", &into, "--at", at, "--model",
                to,
            ];
            sandbox.delta(fork).output().expect_code(0);
            no_violations(&server);
            if to.starts_with("gemini") {
                let last = signatures(&server);
                let count: usize = at.parse().unwrap();
                assert_eq!(last[..count], vec![Some(FOREIGN.to_owned()); count]);
                assert_ne!(last[count].as_deref(), Some(FOREIGN), "the model's own call");
            }
        }
    }
}

#[test]
fn c_23_1_a_signature_that_is_not_accepted_is_replaced_at_once() {
    let mut answers = VecAnswers(two_steps());
    let server = ScriptedServer::start(move |request: &RecordedRequest| {
        let text = String::from_utf8_lossy(&request.bytes);
        if text.contains("c2lnbmF0dXJl0000") {
            let error = json!([{"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}}]);
            return Answer::raw(400, error.to_string());
        }
        answers.next()
    });
    let sandbox = agent_of("gemini", &server, "");
    let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "the end\n");
    no_violations(&server);
    assert_eq!(server.requests().len(), 4, "one rejected request in the process");
    let records = records(&sandbox);
    assert_eq!(records[1]["attempts"][0]["retry_in_ms"], 0);
    let options = &records[1]["wire"]["options"];
    assert!(options["rejected_native"].is_string(), "{options}");
    assert_eq!(&records[2]["wire"]["options"], options, "for the rest of the process");
    let own = Some("c2lnbmF0dXJl0001".to_owned());
    assert_eq!(signatures(&server), [Some(FOREIGN.to_owned()), own]);
    assert_eq!(records[0]["wire"]["options"], json!({}));
}

/// Answers in order, for a closure.
struct VecAnswers(Vec<Answer>);

impl VecAnswers {
    fn next(&mut self) -> Answer {
        self.0.remove(0)
    }
}

fn error(status: u16, message: &str, details: Value) -> Answer {
    let error = json!({"code": status, "message": message, "status": "X", "details": details});
    Answer::raw(status, json!([{"error": error}]).to_string())
}

#[test]
fn c_7_3_the_delay_is_the_one_in_the_body() {
    let retry = |delay: &str| json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]);
    let (server, sandbox, ran) = asked(
        vec![
            error(429, "slow down", retry("0.701s")),
            error(503, "overloaded", retry("0.017s")),
            Answer::text("x").finish_reason(Some("MALFORMED_FUNCTION_CALL")),
            Answer::text("at last"),
        ],
        &["--format", "raw"],
    );
    assert_eq!(ran.expect_code(0).stdout, "at last\n");
    no_violations(&server);
    let attempts = records(&sandbox)[0]["attempts"].clone();
    assert_eq!(attempts[0]["retry_in_ms"], 701, "longer than delta would wait");
    assert!(attempts[1]["retry_in_ms"].as_u64() > Some(500), "never shorter: {attempts}");
    let message = attempts[2]["error"].as_str().unwrap();
    assert!(message.contains("MALFORMED_FUNCTION_CALL"), "{message}");
}

#[test]
fn c_7_3_what_another_try_would_not_change_fails_the_run_at_once() {
    let day = json!([
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "18s"},
    ]);
    let blocked = "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n";
    let cases = [
        (
            error(429, "You exceeded your quota.", day),
            "You exceeded your quota.",
            "the account's quota for the day",
        ),
        (
            error(404, "models/x is not found", json!([])),
            "models/x is not found",
            "`delta models` lists the names",
        ),
        (
            Answer::text("x").finish_reason(Some("CONTINUATION")),
            "the model stopped with `CONTINUATION`",
            "",
        ),
        (
            Answer::text("x").finish_reason(Some("content_filter")),
            "the endpoint's content filter cut off the answer",
            "",
        ),
        (Answer::event_stream(blocked), "the endpoint's content filter withheld the answer", ""),
        (Answer::text("x").finish_reason(Some("length")), "raise `llm.max_tokens`", ""),
        (
            error(
                400,
                "The input token count (2845475) exceeds the maximum number of tokens allowed (1048576).",
                json!([]),
            ),
            "input token count",
            "exceeds the model's context",
        ),
    ];
    for (answer, message, hint) in cases {
        let (server, sandbox, ran) = asked(vec![answer], &[]);
        let ran = ran.expect_code(1);
        no_violations(&server);
        assert_eq!(server.requests().len(), 1, "{message}");
        let error = sandbox.events("ERROR")[0].to_string();
        assert!(error.contains(message), "{message}: {error}");
        assert!(ran.stderr.contains(hint), "{hint}: {}", ran.stderr);
    }
}

#[test]
fn c_37_3_the_reason_why_an_answer_is_withheld_is_named_with_its_words() {
    let prompt = |feedback: Value| json!({"promptFeedback": feedback});
    let candidate = |candidate: Value| json!({"candidates": [candidate]});
    let rating = |category: &str, is_blocked: bool| json!({"category": category, "probability": "LOW", "blocked": is_blocked});
    let ratings = json!([
        rating("HARM_CATEGORY_HARASSMENT", false),
        rating("HARM_CATEGORY_HATE_SPEECH", true)
    ]);
    let parts = json!({"role": "model", "parts": [{"text": "so"}]});
    let filter = "the endpoint's content filter";
    for (response, kind, message) in [
        (
            prompt(json!({"blockReason": "PROHIBITED_CONTENT"})),
            "content_filter",
            format!("{filter} withheld the answer: `PROHIBITED_CONTENT`"),
        ),
        (
            prompt(json!({"blockReason": "MODEL_ARMOR", "blockReasonMessage": "Blocked by policy x."})),
            "content_filter",
            format!("{filter} withheld the answer: `MODEL_ARMOR`, Blocked by policy x."),
        ),
        (
            candidate(json!({"finishReason": "SAFETY", "safetyRatings": ratings, "content": parts})),
            "content_filter",
            format!("{filter} cut off the answer: `SAFETY` (HARM_CATEGORY_HATE_SPEECH)"),
        ),
        (
            candidate(json!({"finishReason": "SPII", "finishMessage": "It has a number."})),
            "content_filter",
            format!("{filter} withheld the answer: `SPII`, It has a number."),
        ),
        (
            candidate(json!({"finishReason": "RECITATION", "content": parts})),
            "content_filter",
            "the endpoint cut off the answer, which repeats a text of its training data: `RECITATION`".to_owned(),
        ),
        (
            candidate(json!({"finishReason": "LANGUAGE", "finishMessage": "Not supported."})),
            "refusal",
            "the model refused: `LANGUAGE`, Not supported.".to_owned(),
        ),
    ] {
        for answer in [
            Answer::raw(200, response.to_string()),
            Answer::event_stream(format!("data: {response}\n\n")),
        ] {
            let (_server, sandbox, ran) = asked(vec![answer], &[]);
            let ran = ran.expect_code(1);
            let error = &sandbox.events("ERROR")[0];
            assert_eq!((&error["error_details"]["type"], &error["error_message"]), (&json!(kind), &json!(message)));
            assert_eq!(ran.stderr.matches(&message).count(), 1, "{}", ran.stderr);
        }
    }
}

#[test]
fn c_23_1_vertex_has_the_model_in_the_middle_of_its_address() {
    let cases =
        [("", "x-goog-api-key", "k-1"), ("\n  auth: bearer", "authorization", "Bearer k-1")];
    for (auth, header, value) in cases {
        let server = ScriptedServer::start(two_steps());
        let sandbox = Sandbox::new(DELTA);
        let place = "v1/projects/p/locations/l/publishers/google/models";
        let llm = format!(
            "provider: gemini\n  model: test-model\n  base_url: '{}/{place}/{{model}}:{{method}}'\n  api_key_env: VERTEX_KEY{auth}",
            server.root_url()
        );
        sandbox.agent(&llm, ECHO);
        sandbox.run_command("hello", &[]).env("VERTEX_KEY", "k-1").output().expect_code(0);
        no_violations(&server);
        let request = &server.requests()[0];
        assert_eq!(
            request.target,
            format!("POST /{place}/test-model:streamGenerateContent?alt=sse")
        );
        assert_eq!(request.header(header), Some(value));
    }
}

#[test]
fn c_1_5_keys_that_the_engine_writes_are_mistakes_of_the_file() {
    for (llm, message) in [
        ("contents: []", "`contents` is set by the engine"),
        ("systemInstruction: {}", "`systemInstruction` is set by the engine"),
        ("generationConfig: {maxOutputTokens: 5}", "write `max_tokens: N` in `llm`"),
        (
            "generationConfig: {candidateCount: 2}",
            "`generationConfig` cannot contain `candidateCount`",
        ),
    ] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("provider: gemini\n  model: m\n  {llm}"), ECHO);
        let ran = sandbox.run("hello", &[]).expect_code(126);
        assert!(ran.stderr.contains(message), "{message}: {}", ran.stderr);
        sandbox.agent(
            &format!("model: m\n  base_url: http://127.0.0.1:9\n  max_retries: 0\n  {llm}"),
            ECHO,
        );
        sandbox.run("hello", &[]).expect_code(1);
    }
}

#[test]
fn c_1_8_only_a_key_of_google_goes_to_google() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: gemini\n  model: m", ECHO);
    let ran =
        sandbox.run_command("hello", &[]).env("DELTA_API_KEY", "k").env("OPENAI_API_KEY", "k");
    let stderr = ran.output().expect_code(126).stderr;
    assert!(
        stderr.contains("no API key for https://generativelanguage.googleapis.com"),
        "{stderr}"
    );
    assert!(stderr.contains("export GOOGLE_API_KEY=...   # or GEMINI_API_KEY"), "{stderr}");
}

/// A tool whose name the form does not take, an image of results, a text behind them.
#[test]
fn c_23_1_every_tool_can_be_called() {
    let server = ScriptedServer::start(vec![
        Answer::call("_2nd-try", json!({"text": "a"})),
        Answer::text("ok"),
    ]);
    let sandbox = Sandbox::new(DELTA);
    let url = server.root_url();
    let tool = "  - name: 2nd-try\n    exec: echo ${text}\n";
    sandbox.agent(&format!("provider: gemini\n  model: test-model\n  base_url: {url}"), tool);
    sandbox.run("hello", &[]).expect_code(0);
    no_violations(&server);
    assert_eq!(sandbox.observations(), ["a\n"]);
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["tool_name"], "2nd-try");
}

/// A stream that breaks off has no answer, wherever it does; behind the reason to stop it has everything but the counts.
#[test]
fn c_7_1_a_stream_may_break_off_after_every_byte() {
    let answer =
        || Answer::calls(vec![("a", json!({"x": 1})), ("b", json!({}))]).saying("ä").thinking("hm");
    let ask = |answer: Answer| {
        let server = ScriptedServer::start(vec![answer]);
        let mut provider = in_process::provider(WireForm::Gemini, &server.root_url());
        let reply = in_process::ask(&mut provider, "m").0;
        no_violations(&server);
        reply
    };
    let whole = ask(answer()).unwrap();
    let mut outcomes = Vec::new();
    for after in 0.. {
        let reply = ask(answer().break_off(after));
        if reply.as_ref().is_ok_and(|reply| reply.usage.is_some()) {
            break;
        }
        if let Ok(reply) = &reply {
            assert_eq!((&reply.tool_calls, &reply.native), (&whole.tool_calls, &whole.native));
        }
        outcomes.push(reply.is_ok());
    }
    assert!(outcomes.len() > 400, "{}", outcomes.len());
    assert!(outcomes.is_sorted(), "once the reason is there, the answer is complete");
}

/// A server that sends a reason to stop with each event; an early one is no end.
#[test]
fn c_37_2_a_reason_with_each_event_is_no_end() {
    let event = |text: &str| {
        let content = json!({"role": "model", "parts": [{"text": text}]});
        let candidate = json!({"content": content, "finishReason": "STOP"});
        let usage = json!({"promptTokenCount": 5, "candidatesTokenCount": 2});
        format!("data: {}\n\n", json!({"candidates": [candidate], "usageMetadata": usage}))
    };
    let events = ["first, ", "second,", " third."].map(event);
    let length = events[0].len();
    let answer = || Answer::event_stream(events.concat()).in_pieces(length);
    // Longer than delta waits for the end of a stream whose answer is complete.
    let slow = answer().every(std::time::Duration::from_millis(700));
    let (server, _sandbox, ran) =
        asked(vec![answer().break_off(2 * length), slow], &["--format", "raw"]);
    assert_eq!(ran.expect_code(0).stdout, "first, second, third.\n");
    assert_eq!(server.requests().len(), 2);
}
