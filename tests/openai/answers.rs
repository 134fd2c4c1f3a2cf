//! What is sent, and how the answers are read.

use super::*;
use delta_llm::llm::endpoint::ApiKey;
use test_support::server::{Answer, RecordedRequest};

#[test]
fn c_7_1_streamed_and_whole_answers_are_the_same() {
    let script = || {
        let calls =
            Answer::calls(vec![("read_file", json!({"path": "ä€😀.txt"})), ("now", json!({}))]);
        vec![
            Answer::text("Grüße 😀").thinking("hm, ja").usage(3, 4),
            calls.saying("both"),
            Answer::text("x").no_usage(),
        ]
    };
    let (streaming, whole) = (ScriptedServer::start(script()), ScriptedServer::start(script()));
    let (mut of_stream, mut of_whole) = (client(&streaming, true), client(&whole, false));
    for _ in 0..3 {
        let (streamed, whole) =
            (ask(&mut of_stream).0.unwrap(), ask_whole(&mut of_whole).0.unwrap());
        let summary = |reply: &Reply| Reply { response: Default::default(), ..reply.clone() };
        assert_eq!(summary(&streamed), summary(&whole));
        let (of_stream, of_whole) = (streamed.response.to_value(), whole.response.to_value());
        assert_eq!(of_stream["object"], "chat.completion");
        assert_eq!(of_stream["choices"], of_whole["choices"]);
        assert_eq!(of_stream["usage"], of_whole["usage"]);
        assert_eq!((streamed.status, streamed.sent_body), (Some(200), None));
    }
    assert_eq!((streaming.violations(), whole.violations()), (vec![], vec![]));
}

#[test]
fn c_7_1_calls_come_with_their_whole_arguments() {
    let answer = Answer::calls(vec![("a", json!({"text": "one two three"})), ("b", json!({}))]);
    let server = ScriptedServer::start(vec![answer]);
    let reply = ask(&mut client(&server, true)).0.unwrap();
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|c| (&*c.function.name, c.function.arguments.as_str()))
        .collect();
    assert_eq!(calls, [("a", r#"{"text":"one two three"}"#), ("b", "{}")]);
    assert_eq!(reply.tool_calls[0].id, "call_1");
    assert_eq!(reply.finish_reason.as_deref(), Some("tool_calls"));
    assert_eq!((reply.content, reply.usage.map(|usage| usage.input_tokens)), (None, Some(11)));
}

#[test]
fn c_7_1_a_stream_may_be_cut_anywhere() {
    let stream = "\u{feff}: hello\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"Gr\u{fc}\u{df}e \"}}]}\r\n\r\n\
                  data:{\"choices\":[{\"delta\":\r\ndata:{\"content\":\"\u{1f600}\"},\"finish_reason\":\"stop\"}]}\r\n\r\n\
                  data: [DONE]\r\n\r\n";
    let sizes = [1, 2, 3, 5, 7];
    let server = ScriptedServer::start(
        sizes.map(|size| Answer::event_stream(stream).in_pieces(size)).to_vec(),
    );
    let mut client = client(&server, true);
    for _ in sizes {
        assert_eq!(content(&ask(&mut client)), "Gr\u{fc}\u{df}e \u{1f600}");
    }
}

#[test]
fn c_7_1_a_whole_answer_is_taken_where_a_stream_was_asked_for() {
    let whole = json!({"choices": [{"message": {"content": "plain"}}]}).to_string();
    let event =
        "data: {\"choices\":[{\"delta\":{\"content\":\"events\"},\"finish_reason\":\"stop\"}]}\n\n";
    let unnamed = Answer::raw(200, event).header("Content-Type", "text/plain");
    let server = ScriptedServer::start(vec![Answer::raw(200, whole), unnamed]);
    let mut client = client(&server, true);
    assert_eq!(content(&ask(&mut client)), "plain");
    assert_eq!(content(&ask(&mut client)), "events");
}

#[test]
fn c_7_1_the_request_is_sent_as_it_is() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("ok"));
    let api_key = Some(ApiKey::new("sk-secret-key".to_owned()));
    let mut with_key =
        provider(Endpoint { api_key, ..endpoint(&format!("{}//", server.url()), true) });
    server.forbid("sk-secret-key");
    let spaced = r#"{"model":"m",  "messages":[{"role":"user","content":"\u00e4"}],"stream":true}"#;
    ask_with(&mut with_key, spaced, &CancelToken::manual().unwrap()).0.unwrap();
    ask_whole(&mut client(&server, false)).0.unwrap();
    let requests = server.requests();
    assert_eq!(requests[0].bytes, spaced.as_bytes());
    assert_eq!(requests[0].target, "POST /v1/chat/completions");
    let header = |at: usize, name: &str| requests[at].header(name);
    assert_eq!(header(0, "authorization"), Some("Bearer sk-secret-key"));
    assert_eq!(header(0, "accept"), Some("text/event-stream"));
    assert_eq!(header(0, "content-type"), Some("application/json"));
    assert_eq!(header(0, "user-agent"), Some(concat!("delta/", env!("CARGO_PKG_VERSION"))));
    assert_eq!((header(0, "accept-encoding"), header(0, "cookie")), (Some("identity"), None));
    assert_eq!(header(1, "authorization"), None);
    assert_eq!(header(1, "accept"), Some("application/json"));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_7_1_an_endpoint_that_refuses_stream_options_is_asked_without() {
    let handler = |request: &RecordedRequest| match request.body.get("stream_options") {
        Some(_) => {
            Answer::error(400, "Unrecognized request argument supplied: stream_options", None)
        }
        None => Answer::text("ok"),
    };
    let server = ScriptedServer::start(handler);
    let mut client = single(&server, true);
    let outcome = ask(&mut client);
    assert_eq!(content(&outcome), "ok");
    assert_eq!((outcome.1.len(), outcome.1[0].retry_in_ms), (1, Some(0)));
    let sent = outcome.0.unwrap().sent_body.unwrap();
    assert_eq!(sent.as_bytes(), server.requests()[1].bytes);
    assert_eq!(*sent, body(true).replace(r#","stream_options":{"include_usage":true}"#, ""));
    // The rest of the provider's life: nothing is refused any more.
    let outcome = ask(&mut client);
    assert_eq!((content(&outcome), outcome.1.len()), ("ok", 0));
    assert!(outcome.0.unwrap().sent_body.is_some());
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn c_7_1_a_body_beyond_64_mib_is_refused() {
    let server =
        ScriptedServer::start(|_: &RecordedRequest| Answer::raw(200, vec![b' '; (64 << 20) + 1]));
    assert_eq!(failure(ask(&mut single(&server, true))).0, "the response is longer than 64 MiB");
}

#[test]
fn c_4_4_lone_surrogates_in_an_answer_do_no_harm() {
    let whole = r#"{"choices":[{"message":{"content":"a\ud800b"}}]}"#;
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\\ud800b\"},\"finish_reason\":\"stop\"}]}\n\n";
    let server = ScriptedServer::start(vec![Answer::raw(200, whole), Answer::event_stream(event)]);
    let mut client = single(&server, true);
    assert_eq!(content(&ask(&mut client)), "a\u{fffd}b");
    assert_eq!(content(&ask(&mut client)), "a\u{fffd}b");
}

/// Gateways in JavaScript cut a text between the two halves of an emoji.
#[test]
fn c_4_4_an_emoji_that_two_events_share_arrives_whole() {
    let event = |text: &str, reason: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":{reason}}}]}}\n\n"
        )
    };
    let events = event("a\\ud83d", "null") + &event("\\ude00b", "\"stop\"");
    let server = ScriptedServer::start(vec![Answer::event_stream(events)]);
    assert_eq!(content(&ask(&mut single(&server, true))), "a\u{1f600}b");
}

/// A gzipped answer was "the stream ended before it was finished".
#[test]
fn c_7_3_an_answer_in_an_encoding_that_was_not_asked_for_is_named() {
    let packed = |status| Answer::raw(status, "\u{1f}\u{8b}").header("Content-Encoding", "gzip");
    let plain = Answer::text("ok").header("Content-Encoding", "identity");
    let server = ScriptedServer::start(vec![packed(200), packed(401), plain]);
    let mut client = client(&server, true);
    let (message, hint, _) = failure(ask(&mut client));
    assert_eq!(
        message,
        "the endpoint's response has the encoding `gzip`, but delta accepts only `identity`"
    );
    assert!(hint.contains("compression"), "{hint}");
    let refused = "the endpoint answered 401 Unauthorized: its message has the encoding `gzip`";
    assert_eq!(failure(ask(&mut client)).0, refused);
    assert_eq!(content(&ask(&mut client)), "ok");
}

/// The path went behind the query.
#[test]
fn c_7_1_the_query_of_an_address_stays_at_its_end() {
    let server = ScriptedServer::for_anything(|_: &RecordedRequest| Answer::text("ok"));
    let base = format!("{}/?api-version=2024-10-21&x=/y#part", server.url());
    ask(&mut provider(endpoint(&base, true))).0.unwrap();
    let target = "POST /v1/chat/completions?api-version=2024-10-21&x=/y";
    assert_eq!(server.requests()[0].target, target);
}

/// Groq streams its usage in a place of its own, LiteLLM says the cost in a header.
#[test]
fn c_12_7_usage_and_cost_are_read_where_gateways_put_them() {
    let groq = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}],\"usage\":null,\
                \"x_groq\":{\"id\":\"r\",\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}}\n\ndata: [DONE]\n\n";
    let whole = |usage: Value| {
        let message = json!({"role": "assistant", "content": "a"});
        let body =
            json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage});
        Answer::raw(200, body.to_string())
    };
    let counted = json!({"prompt_tokens": 7, "completion_tokens": 3});
    let priced = json!({"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.5});
    let header = |answer: Answer, cost: &str| answer.header("x-litellm-response-cost", cost);
    let cases = [
        (Answer::event_stream(groq), None),
        (header(Answer::event_stream(groq), "0.0"), None),
        (header(Answer::event_stream(groq), "0.25"), Some(0.25)),
        (header(whole(counted.clone()), "1.5e-05"), Some(1.5e-5)),
        (header(whole(counted.clone()), "0.0"), Some(0.0)),
        (header(whole(counted.clone()), "None"), None),
        (header(whole(counted), "-1"), None),
        (header(whole(priced), "0.25"), Some(0.5)),
    ];
    for (at, (answer, cost)) in cases.into_iter().enumerate() {
        let server = ScriptedServer::start(vec![answer]);
        let usage = ask(&mut single(&server, true)).0.unwrap().usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cost_usd), (7, 3, cost), "{at}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_at_once() {
    let refused =
        |endpoint: Endpoint| EndpointProvider::new(endpoint, "m").err().unwrap().to_string();
    let good = || endpoint("http://127.0.0.1:1/v1", false);
    assert!(refused(endpoint("ftp://example.org", false)).contains("ftp://example.org"));
    assert!(refused(endpoint("", false)).contains("expected a URL"));
    let message =
        refused(Endpoint { api_key: Some(ApiKey::new("line\nbreak".to_owned())), ..good() });
    assert!(message.contains("API key") && !message.contains("break"), "{message}");
    let message = refused(Endpoint { proxy: Some("ftp://user:secret@host".to_owned()), ..good() });
    assert!(message.contains("PROXY") && !message.contains("secret"), "{message}");
}

#[test]
fn the_server_of_these_tests_is_strict() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("ok"));
    server.forbid("sk-leaked");
    let cancel = CancelToken::manual().unwrap();
    let refused = [
        body(false).replace("hi", "sk-leaked"),
        body(false).replace("user", "narrator"),
        "{".to_owned(),
    ];
    for (at, body) in refused.iter().enumerate() {
        let outcome = ask_with(&mut client(&server, false), body, &cancel);
        let (message, _, response) = failure(outcome);
        assert!(message.starts_with("the endpoint answered 400 Bad Request: "), "{message}");
        assert_eq!(response["error"]["type"], "invalid_request_error");
        assert!(message.ends_with(&server.violations()[at]), "{message}");
    }
    ask(&mut client(&server, true)).0.unwrap();
    assert_eq!(server.violations().len(), 3);
}

/// Images, citations and transcripts of a stream were in no file.
#[test]
fn c_7_2_all_that_a_streamed_answer_has_is_recorded() {
    let stream = |deltas: &[Value]| {
        let mut text = String::new();
        for delta in deltas {
            text += &format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
        }
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        Answer::event_stream(format!("{text}data: {end}\n\ndata: [DONE]\n\n"))
    };
    let reply = |answer: Answer| {
        let server = ScriptedServer::start(vec![answer]);
        ask(&mut single(&server, true)).0.unwrap()
    };
    let image =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let citation = json!({"type": "url_citation", "url_citation": {"url": "https://e.org/cited"}});
    let answer = reply(stream(&[
        json!({"role": "assistant", "content": "See", "audio": null}),
        json!({"images": [image]}),
        json!({"annotations": [citation]}),
        json!({"audio": {"id": "a", "transcript": "spoken "}}),
        json!({"audio": {"id": "a", "transcript": "words", "data": "AAAA"}}),
        json!({"annotations": [citation], "channel": "final"}),
        json!({"channel": "final"}),
    ]));
    let message = &answer.response.to_value()["choices"][0]["message"];
    assert_eq!(answer.content.as_deref(), Some("See"));
    assert_eq!(message["images"], json!([image]));
    assert_eq!(message["annotations"], json!([citation, citation]));
    assert_eq!(message["audio"], json!({"id": "a", "transcript": "spoken words", "data": "AAAA"}));
    assert_eq!(message["channel"], "final");
    // Nothing but a transcript or an image is an answer too.
    let transcript = json!({"audio": {"id": "a", "transcript": "spoken words", "data": "AAAA"}});
    let only_image = json!({"content": null, "images": [image]});
    let part = json!({"content": [image]});
    for (delta, expected) in [
        (&transcript, "spoken words"),
        (&only_image, "[The answer is an image, which is in the record of the call.]"),
        (&part, "[The answer is an image, which is in the record of the call.]"),
    ] {
        let whole = json!({"choices": [{"message": delta, "finish_reason": "stop"}]});
        for answer in [stream(std::slice::from_ref(delta)), Answer::raw(200, whole.to_string())] {
            let answer = reply(answer);
            assert_eq!(answer.content.as_deref(), Some(expected), "{delta}");
            let response = answer.response.to_value();
            for (name, value) in delta.as_object().unwrap() {
                assert_eq!(&response["choices"][0]["message"][name], value, "{response}");
            }
        }
    }
}
