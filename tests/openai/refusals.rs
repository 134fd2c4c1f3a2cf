//! What an endpoint means by the words of a refusal, in the words of each vendor.

use super::*;
use delta_llm::llm::{CONTEXT_LENGTH_HINT, SHARED_CONTEXT_HINT};
use delta_words::Unavailability;
use test_support::server::Answer;

/// A stream whose only event is `event`.
fn event(event: &Value) -> Answer {
    Answer::event_stream(format!("data: {event}\n\n"))
}

fn rejection(status: u16, body: &Value) -> Answer {
    Answer::raw(status, body.to_string())
}

fn message(text: &str) -> Value {
    json!({"error": {"message": text}})
}

/// Message and hint of the failure of one try.
fn refused(answer: Answer) -> (String, String) {
    let server = ScriptedServer::start(vec![answer]);
    let (message, hint, _) = failure(ask(&mut single(&server, true)));
    (message, hint)
}

/// Why another model may answer after one try.
fn unavailability(answer: Answer) -> Option<Unavailability> {
    let server = ScriptedServer::start(vec![answer]);
    match ask(&mut single(&server, true)).0.unwrap_err() {
        LlmError::Failed { unavailable, .. } => unavailable,
        error => panic!("{error}"),
    }
}

/// "Too many tokens" ended the run as a full context.
#[test]
fn c_7_3_the_words_of_a_throttled_account_are_no_full_context() {
    let words = "Too many tokens, please wait before trying again.";
    let minute = "Tokens per minute limit exceeded - too many tokens processed.";
    let cerebras = json!({"error": {"message": minute, "type": "too_many_tokens_error", "code": "token_quota_exceeded"}});
    for answer in [
        rejection(503, &json!({"message": words})),
        event(&message(words)),
        event(&cerebras),
        event(&json!({"error": {"message": words, "type": "throttling_error"}})),
    ] {
        let server = ScriptedServer::start(vec![answer, Answer::text("ok")]);
        let outcome = ask(&mut client(&server, true));
        assert_eq!((content(&outcome), outcome.1.len()), ("ok", 1));
        assert!(outcome.1[0].error.to_lowercase().contains("too many tokens"), "{:?}", outcome.1);
    }
}

#[test]
fn c_37_3_what_a_refusal_repeats_of_the_request_has_no_meaning() {
    let task = "What if the context window is exceeded, or the insufficient balance of a key?";
    let request = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": format!("First line\n{task}")}]});
    let echo = format!("internal error in [{{'role': 'user', 'content': 'First line\\n{task}'}}]");
    let input = json!({"detail": [{"type": "x", "loc": ["body", "tools"], "msg": "Extra inputs are not permitted",
                                   "input": {"text": "the maximum context length, with max_tokens"}}]});
    let schema = "Invalid schema for function 'f': the description 'sets the context size of the editor' ...";
    let ask = |answers: Vec<Answer>| {
        let server = ScriptedServer::start(answers);
        let cancel = CancelToken::manual().unwrap();
        ask_with(&mut client(&server, true), &request.to_string(), &cancel)
    };
    for answer in [rejection(500, &message(&echo)), Answer::raw(500, echo.clone())] {
        let outcome = ask(vec![answer, Answer::text("ok")]);
        assert_eq!((content(&outcome), outcome.1.len()), ("ok", 1));
    }
    for answer in [rejection(422, &input), rejection(400, &message(schema))] {
        assert_eq!(failure(ask(vec![answer])).1, "");
    }
    // The same words in an error that says them itself.
    let full = format!("{task}: the prompt exceeds the context window");
    let (_, hint, _) = failure(ask(vec![rejection(400, &message(&full))]));
    assert_eq!(hint, CONTEXT_LENGTH_HINT);
}

#[test]
fn c_7_5_an_answer_that_may_be_too_long_names_max_tokens() {
    let vllm = "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is 32768 \
                tokens and your request has 30 input tokens (40000 > 32768 - 30).";
    let body = json!({"object": "error", "message": vllm, "type": "BadRequestError", "code": 400});
    let (message, hint) = refused(rejection(400, &body));
    assert!(
        hint.contains("lower `llm.max_tokens`") && !hint.contains("context.yaml"),
        "{message}: {hint}"
    );
    for words in [
        "input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000",
        "This model's maximum context length is 4096 tokens. However, you requested 4500 tokens (500 in the messages, 4000 \
         in the completion).",
    ] {
        let (message, hint) = refused(rejection(400, &super::refusals::message(words)));
        assert_eq!(hint, SHARED_CONTEXT_HINT, "{message}");
        assert!(
            hint.contains("lower `llm.max_tokens`") && hint.contains("max_iterations"),
            "{hint}"
        );
    }
    for words in [
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        "Cannot truncate prompt with n_keep (8300) >= n_ctx (4096)",
    ] {
        let (message, hint) = refused(rejection(400, &json!({"error": words})));
        assert_eq!(hint, CONTEXT_LENGTH_HINT, "{message}");
    }
}

/// `fallback` was not used for them.
#[test]
fn c_37_10_an_account_or_a_model_is_missing_in_the_words_of_each_vendor() {
    use Unavailability::{Gone, OutOfQuota, Overloaded};
    let typed = |kind: &str, text: &str| json!({"error": {"type": kind, "message": text}});
    let coded = |code: &str| json!({"error": {"message": "no", "code": code}});
    for (answer, expected) in [
        (
            rejection(
                400,
                &typed(
                    "invalid_request_error",
                    "You have reached your specified API usage limits. You will \
                      regain access on 2026-12-01 at 00:00 UTC.",
                ),
            ),
            Some(OutOfQuota),
        ),
        (
            rejection(400, &typed("invalid_request_error", "You're out of extra usage")),
            Some(OutOfQuota),
        ),
        (rejection(402, &message("no")), Some(OutOfQuota)),
        (rejection(400, &coded("model_decommissioned")), Some(Gone)),
        (event(&coded("model_decommissioned")), Some(Gone)),
        (
            rejection(
                400,
                &json!({"error": {"message": "A is not a valid model ID", "code": 400}}),
            ),
            Some(Gone),
        ),
        (rejection(403, &coded("model_not_found")), Some(Gone)),
        (rejection(404, &message("no")), Some(Gone)),
        (rejection(498, &coded("capacity_exceeded")), Some(Overloaded)),
        (
            rejection(400, &message("Server is overloaded, please try again later")),
            Some(Overloaded),
        ),
        (rejection(403, &coded("rate_limit_exceeded")), Some(Overloaded)),
        (rejection(400, &message("This model's maximum context length is 9 tokens")), None),
        (rejection(400, &message("no such parameter")), None),
        (rejection(401, &message("no")), None),
    ] {
        let said = format!("{answer:?}");
        assert_eq!(unavailability(answer), expected, "{said}");
    }
    let (_, hint) = refused(rejection(400, &message("You will regain access on 2026-12-01")));
    assert!(hint.contains("the account's quota is exhausted"), "{hint}");
    let (_, hint) = refused(rejection(400, &message("m is not a valid model ID")));
    assert!(hint.contains("the model name (m)"), "{hint}");
}

/// Their words were nowhere in the run.
#[test]
fn c_37_3_a_refusal_without_an_error_is_shown_and_recorded() {
    let minimax = json!({"id": "1", "choices": null, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}});
    let baidu = json!({"error_code": 17, "error_msg": "Open api daily request limit reached"});
    for (body, words) in
        [(&minimax, "insufficient balance"), (&baidu, "Open api daily request limit reached")]
    {
        for answer in [rejection(200, body), event(body)] {
            let server = ScriptedServer::start(vec![answer]);
            let outcome = ask(&mut client(&server, true));
            assert_eq!(outcome.1.len(), 1, "asked once");
            let (message, hint, response) = failure(outcome);
            assert_eq!(message, format!("the endpoint reported an error: {words}"));
            assert!(hint.contains("the account's quota is exhausted"), "{hint}");
            assert!(response.to_string().contains(&body.to_string()), "{response}");
        }
    }
    let limit = json!({"choices": null, "base_resp": {"status_code": 1002, "status_msg": "rate limit exceeded(RPM)"}});
    let server = ScriptedServer::start(vec![event(&limit), Answer::text("ok")]);
    assert_eq!(content(&ask(&mut client(&server, true))), "ok");
    // An answer in another form.
    for body in [
        json!({"message": {"role": "assistant", "content": "native"}, "done": true}),
        json!({"type": "message", "content": [{"type": "text", "text": "anthropic"}]}),
        json!({"object": "response", "output": []}),
    ] {
        for answer in [rejection(200, &body), event(&body)] {
            let server = ScriptedServer::start(vec![answer]);
            let (message, _, response) = failure(ask(&mut single(&server, true)));
            assert_eq!(message, format!("the response has no choices[0].message: {body}"));
            assert_eq!(response, body);
        }
    }
    // MiniMax sends `base_resp` with each answer; the code 0 is success.
    let whole = json!({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}],
                       "base_resp": {"status_code": 0, "status_msg": ""}});
    let server = ScriptedServer::start(vec![rejection(200, &whole)]);
    assert_eq!(content(&ask(&mut client(&server, true))), "ok");
}

#[test]
fn c_7_3_a_403_says_what_it_refuses() {
    let key = "DELTA_API_KEY";
    for (answer, expected, has_key) in [
        (
            rejection(403, &json!({"error": {"code": 403, "message": "Your input was flagged"}})),
            "change the message",
            false,
        ),
        (
            rejection(
                403,
                &json!({"error": {"code": "unsupported_country_region_territory",
                                             "message": "Country, region, or territory not supported"}}),
            ),
            "does not serve this country",
            false,
        ),
        (
            Answer::raw(
                403,
                "<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>",
            ),
            "a page answered",
            false,
        ),
        (
            rejection(403, &json!({"error": {"code": "rate_limit_exceeded", "message": "slow"}})),
            "later",
            false,
        ),
        (
            rejection(403, &json!({"error": {"code": "model_not_found", "message": "no"}})),
            "model name",
            false,
        ),
        (
            rejection(403, &json!({"error": {"type": "permission_error", "message": "no"}})),
            "may use the model m",
            true,
        ),
        (rejection(401, &message("no")), "set a valid key", true),
    ] {
        let (message, hint) = refused(answer);
        assert!(hint.contains(expected), "{message}: {hint}");
        assert_eq!(hint.contains(key), has_key, "{message}: {hint}");
    }
}

#[test]
fn c_37_3_a_refusal_says_what_helps() {
    let words = "This model is only supported in v1/responses and not in v1/chat/completions.";
    let (_, hint) = refused(rejection(404, &message(words)));
    assert!(hint.contains("`provider: responses`"), "{hint}");
    let body = json!({"error": {"message": "See 'failed_generation' for more details.", "code": "tool_use_failed",
                                "failed_generation": "<function=say{\"text\": \"x\"}</function>"}});
    let (message, hint) = refused(rejection(400, &body));
    assert!(
        message.ends_with("for more details. (<function=say{\"text\": \"x\"}</function>)"),
        "{message}"
    );
    assert!(hint.contains("the model wrote a call that its server cannot read"), "{hint}");
}

#[test]
fn c_37_4_a_member_or_a_date_names_the_pause() {
    let codex = json!({"error": {"type": "usage_limit_reached", "message": "no", "resets_in_seconds": 7200}});
    let (message, _) = refused(rejection(429, &codex));
    assert!(message.contains("; it asks for a pause of 2h 00m, until "), "{message}");
    // Zhipu names the time of Beijing.
    let text = "Usage limit reached for 5 hour. Your limit will reset at 2050-11-30 18:25:58";
    let (message, _) =
        refused(rejection(429, &json!({"error": {"code": "1308", "message": text}})));
    assert!(message.contains(", until 2050-11-30T10:25:5"), "{message}");
}
