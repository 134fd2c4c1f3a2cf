//! What is tried again, what is told, and what a failure says.

use super::*;
use delta_llm::llm::endpoint::ApiKey;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use test_support::server::{Answer, RecordedRequest};

fn error(status: u16) -> Answer {
    Answer::error(status, "not now", None)
}

#[test]
fn c_7_3_retry_after_is_honoured() {
    let server = ScriptedServer::start(vec![
        Answer::error(429, "slow down", None).header("Retry-After", "0.7"),
        Answer::error(503, "busy", None).header("Retry-After", "Sun, 06 Nov 1994 08:49:37 GMT"),
        Answer::text("ok"),
    ]);
    let began = Instant::now();
    let outcome = ask(&mut client(&server, true));
    assert_eq!(content(&outcome), "ok");
    assert!(began.elapsed() >= Duration::from_millis(1_450));
    let told: Vec<_> = outcome.1.iter().map(|a| (a.status, &*a.error, a.retry_in_ms)).collect();
    let first = "the endpoint answered 429 Too Many Requests: slow down";
    let second = "the endpoint answered 503 Service Unavailable: busy";
    assert_eq!(told[0], (Some(429), first, Some(700)));
    assert_eq!((told[1].0, told[1].1), (Some(503), second));
    // A date in the past leaves the own pause.
    assert!((750..=1250).contains(&told[1].2.unwrap()), "{told:?}");
}

#[test]
fn c_37_4_a_pause_that_is_too_long_ends_the_tries_with_its_time() {
    let words = |text: &str| json!({"error": {"message": text}}).to_string();
    for (answer, pause) in [
        (error(429).header("Retry-After", "86400"), "24h"),
        (error(503).header("retry-after-ms", "660000"), "11m"),
        (Answer::raw(429, words("Please try again in 2h0m0s.")), "2h"),
        (Answer::raw(429, words("try again in 4 days 20 hours 9 minutes.")), "116h 09m"),
        (Answer::raw(429, words("try again in 1 hour and 5 minutes.")), "1h 05m"),
        (Answer::raw(429, words("Your quota will reset after 18h31m10s.")), "18h 31m"),
        (
            error(429)
                .header("x-ratelimit-remaining-requests", "0")
                .header("x-ratelimit-reset-requests", "1d2h3m"),
            "26h 03m",
        ),
        (
            Answer::event_stream(format!("data: {}\n\n", words("retry after 700 seconds"))),
            "11m 40s",
        ),
    ] {
        let server = ScriptedServer::start(vec![answer]);
        let outcome = ask(&mut client(&server, true));
        assert_eq!((outcome.1.len(), outcome.1[0].retry_in_ms), (1, None), "{pause}");
        let (message, _, _) = failure(outcome);
        assert!(message.contains(&format!("; it asks for a pause of {pause}")), "{message}");
        assert!(message.contains(", until 2"), "{message}");
    }
}

/// Accounts without money were asked for as long as the run could wait.
#[test]
fn c_37_3_what_no_attempt_changes_is_asked_once_in_whichever_frame_it_comes() {
    let account = "the account's quota is exhausted: add credit or raise its limit at the provider";
    let context = delta_llm::llm::CONTEXT_LENGTH_HINT;
    for (text, expected) in [
        ("insufficient balance", account),
        ("This model's maximum prompt length is 9 but the request contains 10 tokens.", context),
    ] {
        let body = json!({"error": {"message": text}}).to_string();
        for answer in [
            Answer::raw(500, body.clone()),
            Answer::raw(422, body.clone()),
            Answer::raw(200, body.clone()),
            Answer::event_stream(format!("data: {body}\n\n")),
            Answer::event_stream(format!("event: error\ndata: {body}\n\n")),
        ] {
            let server = ScriptedServer::start(vec![answer]);
            let (message, hint, _) = failure(ask(&mut client(&server, true)));
            assert_eq!(hint, expected, "{message}");
            assert!(message.contains(text), "{message}");
        }
    }
    // Where there is no status that says so, the type of the error does.
    for kind in ["invalid_request_error", "permission_error"] {
        let body = json!({"error": {"type": kind, "message": "no"}}).to_string();
        for answer in
            [Answer::raw(200, body.clone()), Answer::event_stream(format!("data: {body}\n\n"))]
        {
            let server = ScriptedServer::start(vec![answer]);
            let (_, attempts) = ask(&mut client(&server, true));
            assert_eq!((attempts.len(), attempts[0].retry_in_ms), (1, None), "{kind}");
        }
    }
}

#[test]
fn c_37_4_a_whole_answer_may_take_all_of_its_time() {
    let server = ScriptedServer::start(vec![Answer::text("ok")]);
    // It would expire at once.
    let endpoint =
        Endpoint { idle_timeout_ms: 0, max_retries: 0, ..endpoint(&server.url(), false) };
    assert_eq!(content(&ask_whole(&mut provider(endpoint))), "ok");
}

#[test]
fn c_37_3_a_newer_name_of_max_tokens_is_asked_for_once_and_kept() {
    let body = |stream: bool| {
        let mut body: Value = serde_json::from_str(&super::body(stream)).unwrap();
        body["max_tokens"] = json!(40);
        body.to_string()
    };
    let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    let server = ScriptedServer::start(|request: &RecordedRequest| {
        if request.body.get("max_tokens").is_some() {
            Answer::error(400, message, None)
        } else {
            assert_eq!(request.body["max_completion_tokens"], 40);
            Answer::text("ok")
        }
    });
    let mut client = client(&server, true);
    for tries in [1, 0] {
        let outcome = ask_with(&mut client, &body(true), &CancelToken::manual().unwrap());
        assert_eq!((content(&outcome), outcome.1.len()), ("ok", tries));
    }
    assert_eq!(server.requests().len(), 3);
    let server = ScriptedServer::start(vec![Answer::error(400, "temperature is too hot", None)]);
    let (_, hint, _) = failure(ask(&mut single(&server, true)));
    assert!(hint.contains("change or remove `temperature` in `llm`"), "{hint}");
}

#[test]
fn c_7_3_what_may_pass_is_tried_again() {
    for status in [408, 409, 429, 500, 502, 503, 529] {
        let server = ScriptedServer::start(vec![error(status), Answer::text("ok")]);
        assert_eq!(content(&ask(&mut client(&server, true))), "ok", "{status}");
        assert_eq!(server.requests().len(), 2, "{status}");
    }
}

#[test]
fn c_7_3_what_would_fail_again_is_not_tried_again() {
    for status in [301, 307, 400, 401, 403, 404, 405, 413, 422] {
        let answer = move |_: &RecordedRequest| {
            error(status).header("Location", "http://127.0.0.1:1/elsewhere")
        };
        let server = ScriptedServer::start(answer);
        let outcome = ask(&mut client(&server, true));
        assert_eq!((outcome.1.len(), outcome.1[0].retry_in_ms), (1, None), "{status}");
        let (message, hint, _) = failure(outcome);
        assert!(message.starts_with(&format!("the endpoint answered {status}")), "{message}");
        assert_eq!(
            status < 400,
            message.ends_with(": it redirects to http://127.0.0.1:1/elsewhere"),
            "{message}"
        );
        assert_eq!(status < 400, hint.contains("llm.base_url") && status != 404, "{hint}");
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[test]
fn c_7_3_the_tries_are_limited() {
    let server = ScriptedServer::start(|_: &RecordedRequest| error(500));
    let outcome = ask(&mut client(&server, false));
    let waits: Vec<_> = outcome.1.iter().map(|attempt| attempt.retry_in_ms).collect();
    assert!((375..=625).contains(&waits[0].unwrap()), "{waits:?}");
    assert!((750..=1250).contains(&waits[1].unwrap()), "{waits:?}");
    assert_eq!((waits.len(), waits[2]), (3, None));
    assert!(matches!(outcome.0, Err(LlmError::Failed { status: Some(500), .. })));
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn c_7_3_the_own_wait_grows_and_varies() {
    let server = ScriptedServer::start(vec![Answer::error(500, "x", None), Answer::text("ok")]);
    let outcome = ask(&mut client(&server, true));
    assert_eq!(content(&outcome), "ok");
    let wait = outcome.1[0].retry_in_ms.unwrap();
    assert!((375..=625).contains(&wait), "{wait}");
}

#[test]
fn c_7_4_nothing_of_a_broken_off_answer_comes_out() {
    let whole = json!({"choices": [{"message": {"content": "WRONG"}}]}).to_string();
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"WRONG\"}}]}\n\n";
    let broken: Vec<Answer> = vec![
        Answer::text("WRONG WRONG").break_off(400),
        Answer::call("WRONG", json!({"a": "WRONG"})).break_off(600),
        Answer::raw(200, whole).break_off(30),
        // A stream that ends properly, but too early.
        Answer::event_stream(event),
        Answer::event_stream(&event[..20]),
    ];
    for (at, answer) in broken.into_iter().enumerate() {
        let server = ScriptedServer::start(vec![answer.clone(), Answer::text("right")]);
        let outcome = ask(&mut client(&server, true));
        assert_eq!((content(&outcome), outcome.1.len()), ("right", 1), "{at}: {:?}", outcome.1);
        assert!(outcome.1[0].error.contains("broke off"), "{at}: {:?}", outcome.1);
        assert_eq!(outcome.1[0].status, Some(200));
        let server = ScriptedServer::start(vec![answer]);
        let (message, _, response) = failure(ask(&mut single(&server, true)));
        assert!(!message.contains("WRONG") && response.is_null(), "{at}: {message}");
    }
}

#[test]
fn c_7_4_a_stream_that_is_cut_anywhere_gives_a_whole_answer_or_none() {
    let (mut whole, mut none) = (0, 0);
    for cut in (0..1_800).step_by(23) {
        let answer = Answer::call("tool", json!({"a": "bcdefgh"})).break_off(cut);
        let server = ScriptedServer::start(vec![answer]);
        match ask(&mut single(&server, true)).0 {
            Ok(reply) => {
                assert_eq!(
                    reply.tool_calls[0].function.arguments.as_str(),
                    r#"{"a":"bcdefgh"}"#,
                    "cut at {cut}"
                );
                whole += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("broke off"), "cut at {cut}: {error}");
                none += 1;
            }
        }
    }
    assert!(whole > 1 && none > 50, "{whole} and {none}");
}

#[test]
fn c_7_3_an_answer_that_is_none_is_tried_again() {
    let check = |answer: Answer, expected: &str| {
        let server = ScriptedServer::start(vec![answer, Answer::text("ok")]);
        let outcome = ask(&mut client(&server, true));
        assert_eq!(content(&outcome), "ok", "{expected}");
        assert!(outcome.1[0].error.contains(expected), "{:?}", outcome.1[0].error);
    };
    check(Answer::raw(200, "<html>hello"), "is not JSON: an HTML page, \"hello\"");
    check(Answer::raw(200, r#"{"object":"list"}"#), "no choices[0].message");
    check(
        Answer::raw(200, r#"{"error":{"message":"overloaded"}}"#),
        "reported an error: overloaded",
    );
    check(
        Answer::event_stream("data: {\"error\":{\"message\":\"gone\"}}\n\n"),
        "reported an error: gone",
    );
    check(Answer::event_stream("data: garbage\n\n"), "is not JSON: garbage");
    check(Answer::garbage("SSH-2.0-x\r\n\r\n"), "broke off");
    check(Answer::close(), "closed the connection without a response");
}

#[test]
fn c_7_3_a_refused_connection_is_tried_again_and_explained() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let base = format!("http://user:word@127.0.0.1:{port}/v1");
    let outcome = ask(&mut provider(endpoint(&base, true)));
    assert_eq!((outcome.1.len(), outcome.1[0].status, outcome.1[1].retry_in_ms), (2, None, None));
    let (message, hint, _) = failure(outcome);
    let expected = format!(
        "could not connect to http://user:[redacted]@127.0.0.1:{port}/v1/chat/completions: Connection refused"
    );
    assert!(message.starts_with(&expected), "{message}");
    assert!(hint.contains("nothing listens there: start the server"), "{hint}");
}

#[test]
fn c_7_3_a_local_server_that_answered_before_may_be_restarting() {
    let server = ScriptedServer::start(vec![Answer::text("ok").then_close()]);
    let mut client = client(&server, true);
    assert_eq!(content(&ask(&mut client)), "ok");
    drop(server);
    let outcome = ask(&mut client);
    let retried = outcome.1.iter().filter(|attempt| attempt.error.contains("refused")).count();
    assert_eq!(retried, 3, "one try and `max_retries`: {:?}", outcome.1);
}

#[test]
fn c_7_3_a_silent_endpoint_is_tried_again_and_explained() {
    for answer in
        [Answer::hang(), Answer::text("WRONG").stall(300), Answer::raw(200, "{}").stall(1)]
    {
        let server = ScriptedServer::start(move |_: &RecordedRequest| answer.clone());
        let endpoint =
            Endpoint { idle_timeout_ms: 60, max_retries: 1, ..endpoint(&server.url(), true) };
        let outcome = ask(&mut provider(endpoint));
        assert_eq!(outcome.1.len(), 2);
        let (message, hint, _) = failure(outcome);
        assert!(message.starts_with("nothing received from http://127.0.0.1:"), "{message}");
        assert!(
            message.ends_with(" for 60ms") && hint.contains("llm.idle_timeout_ms"),
            "{message}; {hint}"
        );
    }
}

#[test]
fn c_7_3_the_total_timeout_ends_an_answer_that_trickles() {
    let text = "x".repeat(100_000);
    let answer = Answer::text(text).every(Duration::from_millis(2));
    let server = ScriptedServer::start(move |_: &RecordedRequest| answer.clone());
    let endpoint = Endpoint { timeout_ms: 100, max_retries: 0, ..endpoint(&server.url(), true) };
    let (message, hint, _) = failure(ask(&mut provider(endpoint)));
    assert!(
        message.starts_with("no complete response from http://")
            && message.ends_with("within 100ms"),
        "{message}"
    );
    assert!(hint.contains("llm.timeout_ms"), "{hint}");
}

#[test]
fn c_7_3_errors_carry_the_words_of_the_provider() {
    let check = |answer: Answer, message: &str, hints: &[&str]| {
        let server = ScriptedServer::start(vec![answer]);
        let (said, hint, _) = failure(ask(&mut single(&server, true)));
        assert_eq!(said, message);
        assert!(hints.iter().all(|part| hint.contains(part)), "{said}: {hint}");
    };
    let key = "the endpoint answered 401 Unauthorized: Incorrect API key provided";
    let keys = ["DELTA_API_KEY", "OPENAI_API_KEY", "llm.api_key_env"];
    check(Answer::error(401, "Incorrect API key provided", Some("invalid_api_key")), key, &keys);
    check(Answer::raw(403, r#"{"detail":"no"}"#), "the endpoint answered 403 Forbidden: no", &keys);
    let unknown = "the endpoint answered 404 Not Found: model not found";
    check(Answer::raw(404, r#"{"error":"model not found"}"#), unknown, &["llm.base_url", "(m)"]);
    let text = "x".repeat(1000);
    check(
        Answer::raw(400, &*text),
        &format!("the endpoint answered 400 Bad Request: {}", &text[..500]),
        &[],
    );
    let html = Answer::raw(400, "<html><title>Not here</title><p>More");
    check(html, "the endpoint answered 400 Bad Request: an HTML page, \"Not here\"", &[]);
    check(Answer::raw(418, ""), "the endpoint answered 418 I'm a teapot", &[]);
    let server = ScriptedServer::start(vec![Answer::error(400, "no", Some("c"))]);
    assert_eq!(failure(ask(&mut single(&server, true))).2["error"]["code"], "c");
}

#[test]
fn c_7_3_an_empty_account_is_not_asked_again() {
    let answer = |_: &RecordedRequest| {
        Answer::error(429, "You exceeded your quota", Some("insufficient_quota"))
    };
    let server = ScriptedServer::start(answer);
    let (message, hint, _) = failure(ask(&mut client(&server, true)));
    assert!(
        message.contains("You exceeded your quota") && hint.contains("quota is exhausted"),
        "{message}; {hint}"
    );
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn c_7_5_a_conversation_that_is_too_long_is_explained() {
    let too_long = [
        Answer::error(400, "too long", Some("context_length_exceeded")),
        Answer::error(400, "This model's maximum context length is 8192 tokens.", None),
        Answer::raw(413, r#"{"message":"Prompt is too long"}"#),
        Answer::raw(400, "the request exceeds the available context size"),
    ];
    for answer in too_long {
        let server = ScriptedServer::start(vec![answer]);
        let (message, hint, _) = failure(ask(&mut client(&server, true)));
        for part in ["context.yaml", "max_iterations", "`max_tokens`", "total_max_tokens"] {
            assert!(hint.contains(part), "{message}: {hint}");
        }
    }
    let server = ScriptedServer::start(vec![Answer::error(400, "no such parameter", None)]);
    assert_eq!(failure(ask(&mut client(&server, true))).1, "");
}

#[test]
fn c_15_3_a_key_that_the_endpoint_repeats_is_not_shown() {
    let answer =
        |_: &RecordedRequest| Answer::error(401, "Incorrect API key provided: sk-secret-key", None);
    let server = ScriptedServer::start(answer);
    let api_key = Some(ApiKey::new("sk-secret-key".to_owned()));
    let outcome = ask(&mut provider(Endpoint { api_key, ..endpoint(&server.url(), true) }));
    assert!(!format!("{outcome:?}").contains("sk-secret-key"), "{outcome:?}");
    assert!(failure(outcome).0.ends_with("[redacted]"));
}
