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

/// They were errors without a hint, and the run was continued with the same request.
#[test]
fn c_7_5_a_full_context_is_named_in_the_words_of_each_server() {
    for (status, words) in [
        (
            413,
            "Request body too large for gpt-4o model. Max size: 8000 tokens. (tokens_limit_reached)",
        ),
        (
            400,
            "Input length (163853 tokens) exceeds the maximum allowed length (131066 tokens). Use a shorter input.",
        ),
        (
            400,
            "Request prompt has 5120 tokens in total, larger than the model input length limit 4096.",
        ),
        (
            400,
            "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
        ),
        (
            400,
            "The provided prompt is 9500 tokens long, but the maximum supported sequence length is just 8192!",
        ),
        (400, "prompt tokens too long"),
        (400, "the input token count is 32774 but model only supports up to 32768."),
        (400, "Number of prompt tokens: 5000 exceeds model max length: 4096"),
        (400, "Prompt exceeds the model max input size: 200000"),
        (400, "max tokens of 128000 exceeded"),
        (
            400,
            "The sum of prompt length (4100.0), query length (0) should not exceed max_num_tokens (4096)",
        ),
        (400, "This request requires 40000 tokens, but the model supports at most 32768 tokens."),
        (400, "Input length 5000 exceeds maximum allowed token size 4096"),
        (422, "Prompt has 300000 tokens, which is over the limit of 262144"),
        (
            400,
            "The request exceeded the maximum number of input tokens. Please shorten your prompt.",
        ),
        (400, "Total tokens of image and text exceed max message tokens."),
        (400, "The input length 9000 exceeds the session_len 8192"),
        (400, "Conversation is too long"),
        (400, "输入内容过长，请减少输入内容"),
    ] {
        assert_eq!(refused(rejection(status, &message(words))).1, CONTEXT_LENGTH_HINT, "{words}");
    }
    for words in [
        "Invalid 'input[3].name': string too long. Expected a string with maximum length 64",
        "stop: the sequence length exceeds the maximum of 64",
        "Invalid 'tools': array too long. Expected an array with maximum length 128",
        "Your prompt has been refused: too many violations",
    ] {
        assert_ne!(refused(rejection(400, &message(words))).1, CONTEXT_LENGTH_HINT, "{words}");
    }
}

/// They were asked again until the run could wait no longer, and `fallback` called them overloaded.
#[test]
fn c_37_3_an_account_that_is_used_up_is_asked_once_in_the_words_of_each_vendor() {
    use Unavailability::OutOfQuota;
    let coded = |code: &str| json!({"error": {"message": "no", "code": code, "type": code}});
    for (status, body) in [
        (
            429,
            json!({"error": "you (x) have reached your weekly usage limit, upgrade for higher limits"}),
        ),
        (
            429,
            message("you've reached your hourly usage limit, please wait or upgrade to continue"),
        ),
        (429, coded("usage_limit_reached")),
        (
            429,
            json!({"message": "You are using a Trial key, which is limited to 1000 API calls / month."}),
        ),
        (
            429,
            message(
                "Quota exceeded for metric: free_tier_requests, limit: 0, model: m\nPlease retry in 1.5s.",
            ),
        ),
        (429, message("Tokens per day limit exceeded - too many tokens processed.")),
        (
            429,
            message(
                "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 requests",
            ),
        ),
        (
            429,
            json!({"errors": [{"message": "you have used up your daily free allocation of 10,000 neurons"}]}),
        ),
        (429, message("You've hit your weekly limit")),
        (429, coded("budget_exceeded")),
        (400, coded("budget_exceeded")),
        (403, message("You've reached your usage limit for this billing cycle.")),
        (403, coded("AllocationQuota.FreeTierOnly")),
        (403, coded("insufficient_user_quota")),
        (401, message("该令牌额度已用尽")),
    ] {
        let server = ScriptedServer::start(vec![rejection(status, &body)]);
        let outcome = ask(&mut client(&server, true));
        assert_eq!(outcome.1.len(), 1, "{body}");
        let (_, hint, _) = failure(outcome);
        assert!(hint.starts_with("the account's "), "{body}: {hint}");
        assert_eq!(unavailability(rejection(status, &body)), Some(OutOfQuota), "{body}");
    }
    // What passes soon is asked again, and so is a period whose end is named and near.
    for words in [
        "Rate limit exceeded: 10 requests per minute, 1000 requests per day",
        "Rate limit reached for m on requests per day (RPD): Limit 100, Used 100. Please try again in 0.1s.",
        "You exceeded your current rate limit, please slow down",
        "Too many requests",
    ] {
        let server =
            ScriptedServer::start(vec![rejection(429, &message(words)), Answer::text("ok")]);
        assert_eq!(content(&ask(&mut client(&server, true))), "ok", "{words}");
    }
    let far =
        "usage limit exceeded, 5-hour usage limit reached, resets at 2126-12-01T20:00:00Z (2056)";
    let (text, _) = refused(rejection(429, &message(far)));
    assert!(text.contains("; it asks for a pause of "), "{text}");
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
    let (message, hint) =
        refused(rejection(200, &json!({"code": 401, "msg": "no such key", "data": null})));
    let mixed = json!({"code": 0, "error_code": 336000, "error_msg": "Internal error"});
    assert_eq!(refused(rejection(200, &mixed)).0, "the endpoint reported an error: Internal error");
    assert_eq!(message, "the endpoint reported an error: no such key");
    assert!(hint.contains("set a valid key in DELTA_API_KEY"), "{hint}");
}

#[test]
fn c_37_3_what_says_that_all_is_well_is_not_an_error() {
    let well = json!({"code": 0, "msg": "success", "data": null});
    let (message, _) = refused(rejection(200, &well));
    assert!(message.starts_with("the response has no choices"), "{message}");
    let piece =
        json!({"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]});
    let words = [
        json!({"code": "0", "msg": "success"}),
        json!({"error_code": 0, "error_msg": "ok"}),
        json!({"msg": "started"}),
        well,
    ];
    for well in words {
        let answer = format!("data: {well}\n\ndata: {piece}\n\ndata: [DONE]\n\n");
        let server = ScriptedServer::start(vec![Answer::event_stream(answer)]);
        assert_eq!(content(&ask(&mut single(&server, true))), "ok");
    }
}

/// With Groq, the next answer is often one that it can read.
#[test]
fn c_7_3_a_call_that_the_server_cannot_read_is_asked_for_again() {
    let error =
        json!({"error": {"message": "Failed to call a function.", "code": "tool_use_failed"}});
    let mut numbered = error.clone();
    numbered["error"]["code"] = json!(400);
    numbered["error"]["type"] = json!("tool_use_failed");
    for refusal in [rejection(400, &error), event(&error), event(&numbered)] {
        let server = ScriptedServer::start(vec![refusal, Answer::text("ok")]);
        assert_eq!(content(&ask(&mut client(&server, true))), "ok");
    }
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
