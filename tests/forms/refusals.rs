//! What an endpoint, or a server in front of it, sends in place of an answer.

use super::agent_of;
use super::images::FORMS;
use serde_json::json;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

/// Runs an agent of the form at `base_url`, which is refused.
fn refused(form: (&str, &str), base_url: &str, more: &[&str]) -> (Sandbox, Ran) {
    let (form, key) = form;
    let sandbox = Sandbox::new(super::DELTA);
    let llm = format!("provider: {form}\n  model: m\n  base_url: {base_url}\n  max_retries: 0");
    sandbox.agent(&llm, super::ECHO);
    let ran = sandbox.run_command("hello", more).env(key, "k-1").output();
    (sandbox, ran.expect_code(1))
}

#[test]
fn c_37_5_a_refusal_with_status_200_counts_nothing() {
    let error = json!({"error": {"code": 429, "message": "Provider returned error"}}).to_string();
    // FastAPI names what is wrong in the request.
    let repeated = json!({"detail": [{"msg": "no", "input": {"messages": [{"content": "hi"}]}}]});
    let refusals = || {
        [
            Answer::raw(200, error.clone()),
            Answer::raw(200, "<!DOCTYPE html><title>Log in</title>"),
            Answer::raw(200, "upstream connect error"),
            Answer::raw(200, "{}"),
            Answer::raw(200, ""),
            Answer::raw(204, ""),
            Answer::event_stream(""),
            Answer::event_stream(format!(": waiting\n\ndata: {error}\n\n")),
            Answer::event_stream(format!("event: error\ndata: {error}\n\n")),
            Answer::event_stream(format!(
                "event: ping\ndata: {{\"type\": \"ping\"}}\n\nevent: error\ndata: {error}\n\n"
            )),
            Answer::raw(200, repeated.to_string()),
            Answer::raw(200, json!({"code": 500, "response": {"status": 500}}).to_string()),
        ]
    };
    for form in FORMS {
        for (at, refusal) in refusals().into_iter().enumerate() {
            let server = ScriptedServer::for_anything(vec![refusal]);
            let (sandbox, _) = refused(form, &server.root_url(), &["--max-tokens", "1M"]);
            let details = sandbox.events("ERROR")[0]["error_details"].clone();
            assert_eq!(details.get("discarded_usage"), None, "{form:?} {at}: {details}");
            let budget = sandbox.read("work/.delta/r/budget.jsonl");
            let settled = r#""settle","call":2,"run_id":"r","tokens":0,"#;
            assert!(budget.contains(settled), "{form:?} {at}: {budget}");
        }
    }
}

#[test]
fn c_37_5_a_refusal_after_the_beginning_of_an_answer_counts() {
    let error = json!({"code": 502, "message": "it broke"});
    let begun = json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}]});
    let choice = json!({"choices": [{"index": 0, "delta": {"content": ""}}], "error": error});
    let used = json!({"error": error, "usage": {"prompt_tokens": 7, "completion_tokens": 1}});
    for answer in [
        Answer::event_stream(format!("data: {begun}\n\ndata: {{\"error\":{error}}}\n\n")),
        Answer::event_stream(format!("data: {choice}\n\n")),
        Answer::event_stream(format!("data: {begun}\n\n")),
        Answer::raw(200, choice.to_string()),
        Answer::raw(200, used.to_string()),
        Answer::raw(200, "{\"choices\": [{\"message\": {\"content\": \"ha"),
        // A gateway has wrapped the answer.
        Answer::raw(200, json!({"code": 0, "data": begun}).to_string()),
        Answer::raw(200, json!({"result": {"response": "ok"}}).to_string()),
    ] {
        let server = ScriptedServer::for_anything(vec![answer]);
        let (sandbox, _) = refused(FORMS[0], &server.root_url(), &["--max-tokens", "1M"]);
        let usage = sandbox.events("ERROR")[0]["error_details"]["discarded_usage"][0].clone();
        assert!(usage["input_tokens"].as_u64() > Some(0), "{usage}");
    }
}

#[test]
fn c_37_5_the_tokens_that_an_error_reports_are_counted() {
    let error = json!({"code": 500, "message": "it broke"});
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 4000});
    let alone = json!({"error": error, "usage": usage});
    let choice = |member: &str| {
        let choice =
            json!({"index": 0, member: {"content": "a"}, "finish_reason": "error", "error": error});
        json!({"choices": [choice], "usage": usage})
    };
    for answer in [
        Answer::raw(200, alone.to_string()),
        Answer::raw(200, choice("message").to_string()),
        Answer::raw(500, alone.to_string()),
        Answer::event_stream(format!("data: {alone}\n\n")),
        Answer::event_stream(format!("data: {}\n\n", choice("delta"))),
    ] {
        let server = ScriptedServer::for_anything(vec![answer]);
        let (sandbox, _) = refused(FORMS[0], &server.root_url(), &[]);
        let usage = sandbox.events("ERROR")[0]["error_details"]["discarded_usage"][0].clone();
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&1000.into(), &4000.into()));
    }
}

#[test]
fn c_37_3_a_wrong_address_is_asked_once_also_with_status_200() {
    let unknown = r#"{"error":"Unexpected endpoint or method. (POST /chat/completions)"}"#;
    let invalid = r#"{"error":{"message":"Invalid URL (POST /chat/completions)"}}"#;
    for answer in [Answer::raw(200, unknown), Answer::raw(200, invalid), Answer::raw(404, "")] {
        for (path, mentions) in [("", true), ("/v1", false)] {
            let server = ScriptedServer::for_anything(vec![answer.clone()]);
            let sandbox = agent_of("openai", &server, path);
            let ran = sandbox.run("hello", &[]).expect_code(1);
            assert_eq!(server.requests().len(), 1, "{}", ran.stderr);
            let help = ran.stderr.lines().find(|line| line.starts_with("help: ")).unwrap();
            assert!(help.contains("check `llm.base_url`"), "{help}");
            assert_eq!(help.contains("`/v1`"), mentions, "{help}");
        }
    }
}

/// Words about a route or a size in what a gateway says of a server that is away, or of a rate.
#[test]
fn c_37_3_words_of_a_wrong_address_stop_no_attempt_that_may_help() {
    let page =
        "<html>The requested endpoint was not found on this server, it may be starting</html>";
    for refusal in [
        Answer::raw(503, r#"{"error":{"message":"upstream not ready: route not found"}}"#),
        Answer::raw(502, page),
        Answer::raw(200, r#"{"error":{"message":"route not found, try again","code":503}}"#),
        Answer::raw(
            429,
            r#"{"error":{"message":"Rate limit: request body size per minute exceeded"}}"#,
        )
        .header("retry-after", "0"),
    ] {
        let server = ScriptedServer::start(vec![refusal, Answer::text("ok")]);
        let sandbox = agent_of("openai", &server, "/v1");
        assert_eq!(sandbox.run("hello", &["--format", "raw"]).expect_code(0).stdout, "ok\n");
    }
}

#[test]
fn c_37_3_a_limit_of_bytes_is_named_in_each_form() {
    let nginx = "<html><head><title>413 Request Entity Too Large</title></head></html>";
    let own = r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#;
    for form in FORMS {
        for (status, body) in [(413, nginx), (413, own), (200, own), (413, "")] {
            let server = ScriptedServer::for_anything(vec![Answer::raw(status, body)]);
            let (_, ran) = refused(form, &server.root_url(), &[]);
            let bytes = server.requests()[0].bytes.len();
            let help = format!("limits the bytes of a request, and this one has {bytes}:");
            assert!(ran.stderr.contains(&help), "{form:?}: {}", ran.stderr);
            assert!(!ran.stderr.contains("the model's context"), "{form:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn c_37_3_an_encoding_that_names_no_coding_leaves_the_body_as_it_is() {
    for encoding in ["", "identity", "UTF-8", "utf8", "none", " None ", "identity, identity"] {
        let answer = Answer::text("ok").header("content-encoding", encoding);
        let server = ScriptedServer::start(vec![answer]);
        let sandbox = agent_of("openai", &server, "/v1");
        assert_eq!(sandbox.run("hello", &["--format", "raw"]).expect_code(0).stdout, "ok\n");
    }
    let (server, encoding) = (Answer::text("ok").header("content-encoding", "br"), "`br`");
    let server = ScriptedServer::start(vec![server]);
    let (_, ran) = refused(FORMS[0], &server.url(), &[]);
    assert!(ran.stderr.contains(encoding), "{}", ran.stderr);
}

#[test]
fn c_37_3_an_empty_response_is_called_empty() {
    for (status, body) in [(200, ""), (200, " \n"), (204, "")] {
        let server = ScriptedServer::start(vec![Answer::raw(status, body)]);
        let (_, ran) = refused(FORMS[0], &server.url(), &[]);
        assert!(ran.stderr.contains("the endpoint's response is empty\n"), "{}", ran.stderr);
    }
}

#[test]
fn c_37_3_a_page_with_status_200_is_a_sign_of_a_wrong_address() {
    let page = "<!DOCTYPE html><html><head><title>New API</title></head></html>";
    for form in FORMS {
        let server = ScriptedServer::for_anything(vec![Answer::raw(200, page)]);
        let (_, ran) = refused(form, &server.root_url(), &[]);
        let help = format!(
            "a page answered, and not the API: check `llm.base_url` ({}",
            server.root_url()
        );
        assert!(ran.stderr.contains(&help), "{form:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("New API"), "{}", ran.stderr);
    }
}
