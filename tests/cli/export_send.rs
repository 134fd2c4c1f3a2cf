//! `delta export` to an OTLP endpoint: what is sent, what is sent again, and what is said of it.

use super::DELTA;
use super::export::{eventful, export};
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

#[test]
fn c_19_4_spans_are_sent_and_what_becomes_of_them_is_said() {
    let (sandbox, _server) = eventful();
    let collector = ScriptedServer::for_anything(vec![
        Answer::raw(503, "").header("Retry-After", "0"),
        Answer::raw(200, "{\"partialSuccess\":{}}"),
    ]);
    let port = collector.port();
    let url = format!("http://127.0.0.1:{port}");
    let sent = export(&sandbox, "otlp", &["--endpoint", &url]);
    sent.expect(
        0,
        "",
        &format!(
            "warning: the endpoint answered 503 Service Unavailable; again in 0ms\n8 spans sent to {url}/v1/traces\n"
        ),
    );
    let requests = collector.requests();
    let bodies: Vec<&[u8]> = requests.iter().map(|request| &request.bytes[..]).collect();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(String::from_utf8_lossy(bodies[0]), export(&sandbox, "otlp", &[]).stdout);
    assert_eq!(requests[0].target, "POST /v1/traces");
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
}

#[test]
fn c_19_4_a_part_that_is_refused_is_an_error() {
    let (sandbox, _server) = eventful();
    let partial = "{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"too old\"}}";
    let collector =
        ScriptedServer::for_anything(vec![Answer::raw(200, partial), Answer::raw(200, "{}")]);
    let url = format!("http://127.0.0.1:{}/v1/traces", collector.port());
    export(&sandbox, "otlp", &["--endpoint", &url]).expect(
        1,
        "",
        &format!(
            "the endpoint says: too old\nError: {url} took 5 spans and refused 3; nothing is gained by sending them again\n"
        ),
    );
    let named = |name: &str, value: &str| {
        let fixed = ["export", "r", "-w", "work", "--to", "otlp", "--send"];
        sandbox.delta(fixed).env(name, value).output()
    };
    named("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url).expect(
        0,
        "",
        &format!("8 spans sent to {url}\n"),
    );
    let wrong = named("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:1").expect_code(126);
    assert!(wrong.stderr.contains("is not an address"), "{}", wrong.stderr);
}

#[test]
fn c_19_4_headers_are_sent_and_never_shown() {
    let (sandbox, _server) = eventful();
    let refuse = |request: &RecordedRequest| {
        let token = request.header("authorization").unwrap_or_default().replace("Basic ", "");
        Answer::raw(
            401,
            json!({"code": 16, "message": format!("not a token: {token}")}).to_string(),
        )
    };
    let collector = ScriptedServer::for_anything(refuse);
    let url = format!("http://127.0.0.1:{}", collector.port());
    let sent = |headers: &str| {
        let fixed = ["export", "r", "-w", "work", "--to", "otlp", "--send"];
        let command = sandbox.delta(fixed).env("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
        command.env("OTEL_EXPORTER_OTLP_HEADERS", headers).output()
    };
    sent("authorization=Basic%20c2VjcmV0LXRva2Vu, x-team = blue").expect(
        1,
        "",
        "Error: the endpoint answered 401 Unauthorized: not a token: [redacted]\n\
         Hint: `--endpoint URL` names the endpoint, OTEL_EXPORTER_OTLP_HEADERS=name=value its headers\n",
    );
    let requests = collector.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("authorization"), Some("Basic c2VjcmV0LXRva2Vu"));
    assert_eq!(requests[0].header("x-team"), Some("blue"));
    sent("c2VjcmV0LXRva2Vu").expect(
        126,
        "",
        "Error: header 1 of OTEL_EXPORTER_OTLP_HEADERS has no `=`: write `name=value,name=value`\n",
    );
    // What the agent can write says nothing of where its texts go.
    sandbox.write("work/.env", format!("OTEL_EXPORTER_OTLP_ENDPOINT={url}\n"));
    let fixed = ["export", "r", "-w", "work", "--to", "otlp", "--endpoint", "http://127.0.0.1:1"];
    let refused = sandbox.delta(fixed).output().expect_code(1);
    let lines: Vec<&str> = refused.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "two further tries, the error and its hint: {lines:?}");
    assert_eq!(collector.requests().len(), 1);
}

#[test]
fn c_19_4_options_of_sending_are_for_spans_alone() {
    let sandbox = Sandbox::new(DELTA);
    for option in ["--content", "--send"] {
        let ran = export(&sandbox, "atif", &[option]).expect_code(2);
        let said = format!("error: `{option}` is for `--to otlp`");
        assert!(ran.stderr.starts_with(&said), "{}", ran.stderr);
    }
}
