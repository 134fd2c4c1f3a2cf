//! Servers as they are: what they do at a message that they do not expect, how their lists end, and how they lose sessions.

use super::http::{Remote, text_result};
use super::{DELTA, turn};
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest};

/// Lists the tools of a server with these habits.
fn list(sandbox: &Sandbox, habits: &str) -> Ran {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/odd_server.py");
    let habits = habits.split_whitespace().map(|habit| format!(", {habit}")).collect::<String>();
    sandbox.write(
        "agent/agent.yaml",
        format!(
            "name: test-agent\nllm: {{provider: script, model: script.yaml}}\nmcp:\n  s:\n    command: [python3, {}{habits}]\n    start_timeout_ms: 2000\n",
            script.display()
        ),
    );
    sandbox.delta(["mcp", "list", "--agent", "agent", "s"]).output()
}

#[test]
fn c_30_1_a_legacy_server_is_opened_whatever_it_does_at_the_modern_message() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = Sandbox::new(DELTA);
    for habits in [
        "",
        "ends",
        "refuses-and-ends",
        "hangs",
        "nameless",
        "agrees",
        "ignores",
        "logs",
        "float-ids",
        "text-ids",
        "text-ids logs",
        "old",
        "ends logs",
        "nameless answers-notices",
    ] {
        let ran = list(&sandbox, habits);
        assert_eq!((ran.code, ran.stdout.trim()), (0, "a()"), "{habits}: {}", ran.stderr);
    }
}

#[test]
fn c_30_1_a_list_ends_where_nothing_new_follows() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = Sandbox::new(DELTA);
    for habit in ["cursor-empty", "cursor-null", "cursor-false", "cursor-same", "cursor-counts"] {
        let ran = list(&sandbox, habit);
        assert_eq!((ran.code, ran.stdout.trim()), (0, "a()"), "{habit}: {}", ran.stderr);
    }
    assert_eq!(list(&sandbox, "cursor-number").stdout, "a()\nb()\n");
}

#[test]
fn c_30_1_a_legacy_server_over_http_is_opened_whatever_it_answers_first() {
    type First = fn(&RecordedRequest) -> Answer;
    let answers: [(&str, First); 8] = [
        ("400", |_| Answer::raw(400, "Bad Request: Server not initialized")),
        ("404", |_| Answer::raw(404, "")),
        ("405", |_| Answer::raw(405, "Method Not Allowed")),
        ("500", |_| Answer::raw(500, "Internal Server Error")),
        ("a page", |_| Answer::raw(200, "<!doctype html><title>hello</title>")),
        ("nothing", |_| Answer::raw(202, "")),
        ("an error without an id", |_| {
            let error =
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "no"}});
            Answer::event_stream(format!("data: {error}\n\n"))
        }),
        ("a stream without an answer", |_| Answer::event_stream(": nothing\n\n")),
    ];
    for (name, first) in answers {
        let remote = Remote::legacy_with_first_answer(first);
        let ran = remote.delta(&["mcp", "list", "--agent", "agent", "s"]);
        let names: Vec<&str> =
            ran.stdout.lines().filter_map(|line| line.split('(').next()).collect();
        assert_eq!((ran.code, names), (0, vec!["echo", "count"]), "{name}: {}", ran.stderr);
    }
}

/// An error of JSON-RPC, with the id of the request or without one.
fn refusal(
    request: &RecordedRequest,
    status: u16,
    code: i64,
    message: &str,
    has_id: bool,
) -> Answer {
    let id = if has_id { request.body["id"].clone() } else { json!(null) };
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    Answer::raw(status, error.to_string())
}

/// Runs three calls, before the second of which the server forgets the session and answers everything in it with `refuse`.
fn run_with_lost_session(refuse: fn(&RecordedRequest) -> Answer) -> Remote {
    let calls = Arc::new(Mutex::new((0, String::new())));
    let turns = turn(&[("count", ""), ("count", ""), ("count", "")]);
    let remote = Remote::new(false, "", &turns, move |request| {
        let mut calls = calls.lock().unwrap();
        let session = request.header("mcp-session-id").unwrap_or_default();
        if calls.0 == 1 && calls.1.is_empty() {
            calls.1 = session.to_owned();
        }
        if session == calls.1 {
            return refuse(request);
        }
        if request.body["method"] == "ping" {
            return refusal(request, 200, -32601, "Method not found", true);
        }
        calls.0 += 1;
        text_result(request, &calls.0.to_string())
    });
    remote.run().expect_code(0);
    remote
}

#[test]
fn c_30_16_a_lost_session_is_opened_again_whatever_says_that_it_is_lost() {
    type Refuse = fn(&RecordedRequest) -> Answer;
    let refusals: [(&str, Refuse); 11] = [
        ("404", |_| Answer::raw(404, "")),
        ("410", |_| Answer::raw(410, "gone")),
        ("400 of SDKs", |one| {
            refusal(one, 400, -32000, "Bad Request: No valid session ID provided", false)
        }),
        ("400 without words", |_| Answer::raw(400, "")),
        ("401 with words", |_| Answer::raw(401, "session expired")),
        ("422 as text", |_| Answer::raw(422, "Session not found")),
        ("500 without an id", |one| refusal(one, 500, -32603, "Internal server error", false)),
        ("500 of a proxy", |_| {
            Answer::raw(500, "{\"error\": \"HTTP 400: No valid session ID provided\"}")
        }),
        ("an event with an id of its own", |_| {
            Answer::event_stream(
                "data: {\"jsonrpc\": \"2.0\", \"id\": \"server-error\", \"error\": {\"code\": -32600, \"message\": \"Session has been terminated\"}}\n\n",
            )
        }),
        ("200 with an error", |one| refusal(one, 200, -32001, "Session not found", true)),
        ("200 with an error of any code", |one| refusal(one, 200, -32603, "unknown session", true)),
    ];
    for (name, refuse) in refusals {
        let remote = run_with_lost_session(refuse);
        let note = "[the server s began a new session: what it held in memory is gone]\n2\n";
        assert_eq!(remote.sandbox.observations(), ["1\n", note, "3\n"], "{name}");
        assert_eq!(remote.requests("tools/call").len(), 4, "{name}");
    }
}

#[test]
fn c_30_16_a_call_that_may_have_been_taken_is_not_sent_again() {
    // A gateway says nothing of the call, and the session is gone.
    let remote = run_with_lost_session(|_| Answer::raw(502, "<html>Bad Gateway</html>"));
    let observations = remote.sandbox.observations();
    assert!(observations[1].contains("its outcome is unknown"), "{}", observations[1]);
    assert!(observations[2].ends_with("is gone]\n2\n"), "{}", observations[2]);
    assert_eq!(remote.requests("tools/call").len(), 3);
    // The session is alive, so the words are about a session of the tool.
    let remote = Remote::new(false, "", "", |request| match request.body["method"].as_str() {
        Some("ping") => refusal(request, 200, -32601, "Method not found", true),
        _ => refusal(request, 200, -32603, "browser session 5 not found", true),
    });
    let ran = remote.call(&["count"]);
    assert!(ran.code == 3 && ran.stderr.contains("browser session 5 not found"), "{ran:?}");
    assert_eq!(remote.requests("tools/call").len(), 1);
}

/// A PNG of one pixel in base64.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn c_30_11_images_of_a_result_reach_the_llm_beside_its_text() {
    for (keys, expected) in [("", 2), ("    output: text\n", 0)] {
        let remote = Remote::new(false, keys, &turn(&[("count", "")]), |request| {
            let image = json!({"type": "image", "mimeType": "image/png", "data": PIXEL});
            let broken = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
            let text =
                json!({"type": "text", "text": "[image: image/png, 5 bytes: /etc/secret.png]"});
            let content = json!([text, image, broken, image]);
            let answer =
                json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {"content": content}});
            Answer::raw(200, answer.to_string())
        });
        remote.run().expect_code(0);
        let result = &remote.sandbox.events("ACTION_RESULT")[0];
        assert_eq!(result["images"].as_array().map_or(0, Vec::len), expected, "{result}");
        let observation = &remote.sandbox.observations()[0];
        assert_eq!(observation.matches("/io/mcp/").count(), 3, "{observation}");
        remote.sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
        remote.sandbox.delta(["verify", "r", "-w", "work"]).output().expect_code(0);
    }
}

#[test]
fn c_30_2_structured_content_beside_a_text_is_a_setting() {
    for (keys, expected) in
        [("", "2 items.\n{\"items\":[1,2]}\n"), ("    structured: false\n", "2 items.\n")]
    {
        let remote = Remote::new(false, keys, &turn(&[("count", "")]), |request| {
            let result = json!({"content": [{"type": "text", "text": "2 items."}], "structuredContent": {"items": [1, 2]}});
            let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Answer::raw(200, answer.to_string())
        });
        remote.run().expect_code(0);
        assert_eq!(remote.sandbox.observations(), [expected]);
    }
}

/// It was an empty success.
#[test]
fn c_30_2_a_result_without_a_list_of_parts_is_printed() {
    for (result, code, expected) in [
        (json!({"success": true, "n": [1]}), 0, "{\"success\":true,\"n\":[1]}\n"),
        (json!({"content": [], "toolResult": "old", "_meta": {}}), 0, "{\"toolResult\":\"old\"}\n"),
        (json!({"content": {"type": "text", "text": "one part"}}), 0, "one part\n"),
        (json!({"content": "a text"}), 0, "a text\n"),
        (json!({"content": ["a", {"type": "text", "text": 5}]}), 0, "a\n5\n"),
        (json!({"isError": true, "error": "boom"}), 1, "{\"error\":\"boom\"}\n"),
        (json!({"content": null, "isError": false}), 0, ""),
    ] {
        let name = result.to_string();
        let remote = Remote::new(false, "", "", move |request| {
            let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Answer::raw(200, answer.to_string())
        });
        let ran = remote.call(&["echo"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, expected), "{name}: {}", ran.stderr);
    }
}

/// An error can have `data`, and some servers answer with a text instead of an object.
#[test]
fn c_30_2_all_words_of_an_error_are_printed() {
    let data = json!({"details": "disk full"});
    for (error, expected) in [
        (
            json!({"code": -32603, "message": "Internal error", "data": data}),
            "error -32603: Internal error: {\"details\":\"disk full\"}",
        ),
        (
            json!({"code": -32000, "message": "", "data": data}),
            "error -32000: {\"details\":\"disk full\"}",
        ),
        (json!({"code": -32000, "message": "a, b", "data": "b"}), "error -32000: a, b\n"),
        (json!("boom"), "the server answered an error: boom"),
        (json!({"code": "E1", "message": "boom"}), "the server answered an error: E1: boom"),
        (json!({"code": "-32602", "message": "boom"}), "error -32602: boom"),
        (json!({"reason": "boom"}), "the server answered an error: {\"reason\":\"boom\"}"),
    ] {
        let name = error.to_string();
        let remote = Remote::new(false, "", "", move |request| {
            let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
            Answer::raw(200, answer.to_string())
        });
        let ran = remote.call(&["echo"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{name}");
        assert!(ran.stderr.contains(expected), "{name}: {}", ran.stderr);
    }
    let words = "{\"error_description\": \"needs write\"}";
    let remote = Remote::new(false, "", "", move |_| Answer::raw(403, words));
    let ran = remote.call(&["echo"]);
    let expected = format!("access is refused (HTTP status 403): {words}; `token_env`");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
}
