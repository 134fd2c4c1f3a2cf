//! What becomes of rejections, and of errors in a response.

use super::super::in_process::{Outcome, ask, ask_about, endpoint};
use super::{agent, bodies};
use delta_endpoint::endpoint_provider::EndpointProvider;
use delta_llm::llm::{Endpoint, LlmError};
use delta_words::WireForm;
use serde_json::{Value, json};
use test_support::server::{Answer, ScriptedServer};

/// A provider that tries twice.
fn patient(server: &ScriptedServer) -> EndpointProvider {
    let endpoint = Endpoint { max_retries: 1, ..endpoint(WireForm::Responses, &server.url()) };
    EndpointProvider::new(endpoint, "m").unwrap()
}

/// An error as OpenAI words it.
fn rejection(status: u16, message: &str, code: Option<&str>, param: Option<&str>) -> Answer {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    Answer::raw(status, json!({"error": error}).to_string())
}

fn failed_event(code: &str, message: &str) -> Answer {
    let response = json!({"status": "failed", "error": {"code": code, "message": message}});
    let event = json!({"type": "response.failed", "response": response});
    Answer::event_stream(format!("data: {event}\n\n"))
}

/// The number of failed attempts, and the hint of the failure.
fn failure(outcome: Outcome) -> (usize, String) {
    match outcome {
        (Err(LlmError::Failed { hint, .. }), attempts) => {
            (attempts.len(), hint.unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

fn fail(answer: &Answer) -> (usize, String) {
    let server = ScriptedServer::start(vec![answer.clone(), answer.clone()]);
    failure(ask(&mut patient(&server), "m"))
}

#[test]
fn c_7_3_the_server_decides_what_is_tried_again() {
    let soon = |answer: Answer| answer.header("retry-after-ms", "1");
    let error = |status| rejection(status, "x", None, None);
    assert_eq!(fail(&soon(error(500))).0, 2);
    assert_eq!(fail(&soon(error(500)).header("x-should-retry", "false")).0, 1);
    assert_eq!(fail(&error(400)).0, 1);
    assert_eq!(fail(&soon(error(400)).header("x-should-retry", "true")).0, 2);
    assert_eq!(fail(&soon(error(400)).header("x-should-retry", "perhaps")).0, 1);
    let server = ScriptedServer::start(vec![
        error(429).header("retry-after-ms", "700").header("retry-after", "60"),
        failed_event("rate_limit_exceeded", "Limit 30000. Please try again in 4ms. Visit x."),
    ]);
    let (_, attempts) = ask(&mut patient(&server), "m");
    assert_eq!(attempts[0].retry_in_ms, Some(700));
    let server = ScriptedServer::start(vec![
        failed_event("rate_limit_exceeded", "Please try again in 0.8s."),
        Answer::text("ok"),
    ]);
    let (result, attempts) = ask(&mut patient(&server), "m");
    assert_eq!((result.is_ok(), attempts[0].retry_in_ms), (true, Some(800)));
}

#[test]
fn c_7_3_an_account_without_money_is_not_asked_again() {
    let quota = "the account's quota is exhausted: add credit or raise its limit at the provider";
    let retried = |answer: Answer| answer.header("x-should-retry", "true");
    let answers = [
        retried(rejection(
            429,
            "You exceeded your current quota",
            Some("insufficient_quota"),
            None,
        )),
        retried(rejection(402, "Insufficient credits", None, None)),
        rejection(403, "inactive", Some("billing_not_active"), None),
        failed_event("insufficient_quota", "You exceeded your current quota"),
    ];
    for answer in answers {
        assert_eq!(fail(&answer), (1, quota.to_owned()), "{answer:?}");
    }
}

#[test]
fn c_7_5_a_conversation_that_is_too_long_has_its_hint() {
    let message = "Your input exceeds the context window of this model.";
    let code = Some("context_length_exceeded");
    for answer in [
        rejection(400, message, code, Some("input")),
        failed_event("context_length_exceeded", message),
    ] {
        let (attempts, hint) = fail(&answer);
        assert!(attempts == 1 && hint.contains("`max_iterations`"), "{hint}");
    }
}

#[test]
fn c_7_3_the_parameter_that_a_model_does_not_accept_is_named() {
    let hint = |code: Option<&str>, param: &str| fail(&rejection(400, "no", code, Some(param))).1;
    let expected = |key: &str| {
        format!(
            "models accept different parameters: change or remove `{key}` in `llm`, or see the page of the model"
        )
    };
    assert_eq!(hint(Some("unsupported_value"), "reasoning.effort"), expected("reasoning"));
    assert_eq!(hint(Some("unsupported_parameter"), "temperature"), expected("temperature"));
    assert_eq!(hint(None, "max_output_tokens"), expected("max_tokens"));
    assert_eq!(hint(None, "input[3].content"), "");
    let unknown = hint(Some("model_not_found"), "model");
    assert_eq!(unknown, "check the name of the model, and `llm.base_url`");
    assert_eq!(fail(&failed_event("invalid_prompt", "flagged")).0, 1);
}

#[test]
fn c_7_3_a_longer_answer_than_the_model_gives_is_asked_for_once() {
    let server = ScriptedServer::start(vec![
        rejection(
            400,
            "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 8192, but got 32000 instead.",
            Some("integer_above_max_value"),
            Some("max_output_tokens"),
        ),
        Answer::call("echo", json!({"text": "a"})),
        Answer::text("end"),
    ]);
    let sandbox = agent(&server, "\n  max_tokens: 32000\n  max_retries: 0");
    let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "end\n");
    assert_eq!(ran.stderr.matches("Expected a value <= 8192").count(), 1, "{}", ran.stderr);
    let sent: Vec<_> =
        bodies(&server).iter().map(|body| body["max_output_tokens"].clone()).collect();
    assert_eq!(sent, [json!(32000), json!(8192), json!(8192)]);
    // A message without a number that could be the limit changes nothing.
    let other = "Unsupported parameter: 'max_output_tokens' is not supported with gpt-4.";
    assert_eq!(fail(&rejection(400, other, None, Some("max_output_tokens"))).0, 1);
}

#[test]
fn c_23_2_reasoning_is_left_out_once_whatever_the_endpoint_calls_it() {
    let parts = json!([
        {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "message", "id": "msg_9", "role": "assistant", "content": [{"type": "output_text", "text": "so"}]},
    ]);
    let native =
        json!({"form": "responses", "model": "m", "endpoint": "127.0.0.1", "parts": parts});
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "so", "native": native},
        {"role": "user", "content": "and?"},
    ]);
    let rejections = [
        rejection(400, "x", Some("invalid_encrypted_content"), None),
        rejection(400, "The encrypted content gA could not be verified.", None, None),
        rejection(
            400,
            "Item 'rs_9' of type 'reasoning' was provided without its required following item.",
            None,
            Some("input"),
        ),
        rejection(
            404,
            "Item with id 'rs_9' not found. Items are not persisted when `store` is set to false.",
            None,
            Some("input"),
        ),
        failed_event("invalid_encrypted_content", "x"),
    ];
    for rejection in rejections {
        let server = ScriptedServer::for_anything(vec![
            rejection.clone(),
            Answer::text("ok"),
            rejection.clone(),
            rejection.clone(),
        ]);
        let endpoint = Endpoint { max_retries: 0, ..endpoint(WireForm::Responses, &server.url()) };
        let mut provider = EndpointProvider::new(endpoint, "m").unwrap();
        let (result, attempts) = ask_about(&mut provider, "m", &messages);
        assert_eq!(result.unwrap().content.as_deref(), Some("ok"));
        assert_eq!((attempts.len(), attempts[0].retry_in_ms), (1, Some(0)));
        let has_reasoning = |body: &Value| body["input"].to_string().contains("rs_9");
        let sent: Vec<_> = bodies(&server).iter().map(has_reasoning).collect();
        assert_eq!(sent, [true, false]);
        // Nothing is left that could be left out.
        let (result, attempts) = ask_about(&mut provider, "m", &messages);
        assert!(result.is_err());
        assert_eq!(attempts.len(), 1);
        assert!(!has_reasoning(&bodies(&server)[2]));
    }
}
