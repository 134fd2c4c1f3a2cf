//! `delta export` to an OTLP endpoint: what is sent, what is sent again, and what is said of it.

use super::DELTA;
use super::export::{eventful, export};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};
use test_support::wait::until;

#[test]
fn c_19_4_spans_are_sent_and_what_becomes_of_them_is_said() {
    let (sandbox, _server) = eventful();
    let collector = ScriptedServer::for_anything(vec![
        Answer::raw(503, "").header("Retry-After", "0.7"),
        Answer::raw(200, "{\"partialSuccess\":{}}"),
    ]);
    let port = collector.port();
    let url = format!("http://127.0.0.1:{port}");
    let sent = export(&sandbox, "otlp", &["--endpoint", &url]);
    sent.expect(
        0,
        "",
        &format!(
            "warning: the endpoint answered 503 Service Unavailable; retrying in 700ms\nsent 8 spans to {url}/v1/traces\n"
        ),
    );
    let requests = collector.requests();
    let bodies: Vec<&[u8]> = requests.iter().map(|request| &request.bytes[..]).collect();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(requests[0].target, "POST /v1/traces");
}

/// The fields of a message in protobuf: their numbers, and what they hold as bytes.
fn fields(mut message: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(message: &mut &[u8]) -> u64 {
        let length = message.iter().position(|byte| *byte < 0x80).unwrap() + 1;
        let (number, rest) = message.split_at(length);
        *message = rest;
        number.iter().rev().fold(0, |all, byte| all << 7 | u64::from(byte & 0x7f))
    }
    let mut found = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        let length = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut message).to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)).unwrap(),
            other => panic!("layout {other}"),
        };
        let (value, rest) = message.split_at(length);
        found.push((key >> 3, value.to_vec()));
        message = rest;
    }
    found
}

/// What a field of a message holds, the first time that it is there.
fn field(message: &[u8], number: u64) -> Vec<u8> {
    fields(message).into_iter().find(|(found, _)| *found == number).unwrap().1
}

/// Arize Phoenix and others take protobuf alone, which is also the default of OpenTelemetry.
#[test]
fn c_19_4_spans_are_sent_as_protobuf_or_as_json() {
    let (sandbox, _server) = eventful();
    let collector = ScriptedServer::for_anything(|request: &RecordedRequest| {
        match request.header("content-type") {
            Some("application/x-protobuf") => Answer::raw(200, "\n\u{9}\u{8}\u{2}\u{12}\u{5}older")
                .header("Content-Type", "application/x-protobuf"),
            _ => Answer::raw(200, "{}"),
        }
    });
    let url = format!("http://127.0.0.1:{}", collector.port());
    let send = |protocol: &str| {
        let fixed = ["export", "r", "-w", "work", "--to", "otlp", "--endpoint", &url];
        sandbox.delta(fixed).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol).output()
    };
    let sent = send("").expect_code(1);
    assert!(sent.stderr.starts_with("the endpoint reports: older\n"), "{}", sent.stderr);
    assert!(sent.stderr.contains("accepted 6 spans and rejected 2"), "{}", sent.stderr);
    send("http/json").expect_code(0);
    let refused = send("grpc").expect_code(126);
    assert!(
        refused.stderr.contains("expected `http/protobuf` or `http/json`"),
        "{}",
        refused.stderr
    );
    let warned = send("x").expect_code(1);
    assert!(warned.stderr.starts_with("warning: OTEL_EXPORTER_OTLP_PROTOCOL is `x`"));
    let requests = collector.requests();
    let types: Vec<_> = requests.iter().map(|it| it.header("content-type").unwrap()).collect();
    let binary = "application/x-protobuf";
    assert_eq!(types, [binary, "application/json", binary]);
    let json = export(&sandbox, "otlp", &[]).stdout;
    assert_eq!(String::from_utf8_lossy(&requests[1].bytes), json);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = json["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let scope_spans = field(&field(&requests[0].bytes, 1), 2);
    let spans: Vec<_> =
        fields(&scope_spans).into_iter().filter(|(number, _)| *number == 2).collect();
    assert_eq!(spans.len(), expected.len());
    for ((_, span), expected) in spans.iter().zip(expected) {
        let text = |number| String::from_utf8(field(span, number)).unwrap();
        assert_eq!(text(5), expected["name"].as_str().unwrap());
        let hex: String = field(span, 2).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected["spanId"].as_str().unwrap());
        let start = u64::from_le_bytes(field(span, 7).try_into().unwrap());
        assert_eq!(start.to_string(), expected["startTimeUnixNano"].as_str().unwrap());
        let attributes = fields(span).into_iter().filter(|(number, _)| *number == 9);
        let keys: Vec<_> =
            attributes.map(|(_, pair)| String::from_utf8(field(&pair, 1)).unwrap()).collect();
        let known = expected["attributes"].as_array().unwrap().iter();
        assert_eq!(keys, known.map(|pair| pair["key"].as_str().unwrap()).collect::<Vec<_>>());
    }
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
            "the endpoint reports: too old\nerror: {url} accepted 5 spans and rejected 3; sending them again would not help\n"
        ),
    );
    let named = |name: &str, value: &str| {
        let fixed = ["export", "r", "-w", "work", "--to", "otlp", "--send"];
        sandbox.delta(fixed).env(name, value).output()
    };
    named("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &url).expect(
        0,
        "",
        &format!("sent 8 spans to {url}\n"),
    );
    let wrong = named("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:1").expect_code(126);
    assert!(wrong.stderr.contains("expected a URL such as"), "{}", wrong.stderr);
}

/// A proxy that asks for a login answers everything with 200.
#[test]
fn c_19_4_a_page_accepts_no_spans() {
    let (sandbox, _server) = eventful();
    let page = |kind: &str| {
        Answer::raw(200, "<!DOCTYPE html><html>log in</html>").header("Content-Type", kind)
    };
    for kind in ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"] {
        let collector = ScriptedServer::for_anything(vec![page(kind)]);
        let url = format!("http://127.0.0.1:{}", collector.port());
        let sent = export(&sandbox, "otlp", &["--endpoint", &url]).expect_code(1);
        let reason = "the endpoint answered 200 OK: a page in HTML, so it is not a collector";
        assert!(sent.stderr.contains(reason), "{}", sent.stderr);
        assert!(!sent.stderr.contains("sent 8 spans"), "{}", sent.stderr);
    }
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
        "error: the endpoint answered 401 Unauthorized: not a token: [redacted]\n\
         help: `--endpoint URL` names another collector, and OTEL_EXPORTER_OTLP_HEADERS=name=value sets headers\n",
    );
    let requests = collector.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("authorization"), Some("Basic c2VjcmV0LXRva2Vu"));
    assert_eq!(requests[0].header("x-team"), Some("blue"));
    sent("c2VjcmV0LXRva2Vu").expect(
        126,
        "",
        "error: header 1 in OTEL_EXPORTER_OTLP_HEADERS has no `=`: expected `name=value,name=value`\n",
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

/// The names and the ids of the spans in a request in JSON.
fn names_and_ids(request: &Value) -> Vec<(String, String)> {
    let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    spans.iter().map(|span| (text(&span["name"]), text(&span["spanId"]))).collect()
}

fn received(collector: &ScriptedServer) -> Vec<(String, String)> {
    collector.requests().iter().flat_map(|request| names_and_ids(&request.body)).collect()
}

fn follow(sandbox: &Sandbox, args: &[&str]) -> Delta {
    let fixed = ["export", "--to", "otlp", "--follow"];
    let command = sandbox.delta(fixed.iter().chain(args).copied());
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
}

/// The agent calls the tool `gate`, which waits until a test writes into `work/gate`, and is done.
fn waiting_sandbox() -> Sandbox {
    let gate = "  - name: gate\n    shell: mkfifo gate; read x < gate\n";
    let sandbox = Sandbox::scripted(DELTA, gate, "- {call: [{tool: gate}]}\n- say: done\n");
    sandbox.write("work/x", "");
    sandbox
}

#[test]
fn c_33_23_each_span_is_sent_when_it_is_complete() {
    let sandbox = waiting_sandbox();
    // The collector does not take the first request, whatever is in it.
    let is_open = AtomicBool::new(false);
    let collector = ScriptedServer::for_anything(move |_: &RecordedRequest| {
        if is_open.swap(true, Ordering::SeqCst) {
            Answer::raw(200, "{}")
        } else {
            Answer::raw(400, "not yet")
        }
    });
    let url = format!("http://127.0.0.1:{}", collector.port());
    let mut run = sandbox.run_command("task", &["-q"]).spawn();
    until("the call", || sandbox.path("work/gate").exists().then_some(()));
    let following = follow(&sandbox, &["-r", "work", "--endpoint", &url]).spawn();
    let at_gate =
        until("the second request", || Some(received(&collector)).filter(|spans| spans.len() >= 2));
    let names: BTreeSet<&str> = at_gate.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["chat script.yaml"]), "of what is not complete, nothing");
    fs::write(sandbox.path("work/gate"), "x\n").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let output = following.wait_with_output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
    assert!(ran.stderr.contains("400 Bad Request: not yet; delta tries again\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(&format!("sent 4 spans to {url}/v1/traces\n")), "{}", ran.stderr);
    let exported = export(&sandbox, "otlp", &[]).json();
    let mut all = names_and_ids(&exported);
    all.sort();
    // The first one is what the collector refused.
    let mut sent = received(&collector)[1..].to_vec();
    sent.sort();
    assert_eq!(sent, all);
    // Again, it sends the same; without a collector it prints the same.
    follow(&sandbox, &["r", "-w", "work", "--endpoint", &url]).output().expect_code(0);
    let mut again = received(&collector)[5..].to_vec();
    again.sort();
    assert_eq!(again, all);
    assert_eq!(follow(&sandbox, &["r", "-w", "work"]).output().expect_code(0).json(), exported);
}

#[test]
fn c_33_23_a_signal_ends_it_and_what_was_not_delivered_is_an_error() {
    let sandbox = waiting_sandbox();
    let mut run = sandbox.run_command("task", &["-q"]).spawn();
    until("the call", || sandbox.path("work/gate").exists().then_some(()));
    let mut following = follow(&sandbox, &["r", "-w", "work"]).wholly_at_terminal_of(80, 24);
    following.expect("chat script.yaml").type_in("\x03");
    assert_eq!(following.end().code, 130);
    fs::write(sandbox.path("work/gate"), "x\n").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let collector = ScriptedServer::for_anything(|_: &RecordedRequest| Answer::raw(400, "no"));
    let url = format!("http://127.0.0.1:{}", collector.port());
    let refused = follow(&sandbox, &["-r", "work", "--endpoint", &url]).output();
    assert!(
        refused
            .expect_code(1)
            .stderr
            .contains("error: the endpoint answered 400 Bad Request: no\n")
    );
    let usage = sandbox.delta(["export", "r", "-w", "work", "--to", "atif", "--follow"]).output();
    assert!(usage.expect_code(2).stderr.contains("`--follow` is for `--to otlp`"));
    // Of all runs below, without following them.
    let below = sandbox.delta(["export", "-r", "--to", "otlp"]).output().expect_code(0);
    assert_eq!(below.json(), export(&sandbox, "otlp", &[]).json());
}
