//! Servers over HTTP, in both eras: headers, redirects, sessions, and answers that break.

use super::{DELTA, turn};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, Gate, RecordedRequest, ScriptedServer};

/// The session of a legacy server.
const SESSION: &str = "mcp-session-id";

/// A server and an agent with its tools `echo` and `count`.
pub(super) struct Remote {
    pub(super) sandbox: Sandbox,
    server: ScriptedServer,
}

impl Remote {
    /// `answer_call` answers the calls; `keys` are more keys of the server in agent.yaml, each line indented by four.
    pub(super) fn new(
        is_modern: bool,
        keys: &str,
        turns: &str,
        answer_call: impl FnMut(&RecordedRequest) -> Answer + Send + 'static,
    ) -> Self {
        let remote = Self::unlocked(is_modern, keys, turns, answer_call);
        remote.delta(&["mcp", "lock", "--agent", "agent", "--write"]).expect_code(0);
        remote
    }

    /// A legacy server that answers what is not of its era with `first`.
    pub(super) fn legacy_with_first_answer(first: fn(&RecordedRequest) -> Answer) -> Self {
        Self::with_stranger(false, "", "", first, echo)
    }

    fn unlocked(
        is_modern: bool,
        keys: &str,
        turns: &str,
        answer_call: impl FnMut(&RecordedRequest) -> Answer + Send + 'static,
    ) -> Self {
        Self::with_stranger(
            is_modern,
            keys,
            turns,
            |_| Answer::raw(400, "Bad Request"),
            answer_call,
        )
    }

    fn with_stranger(
        is_modern: bool,
        keys: &str,
        turns: &str,
        stranger: fn(&RecordedRequest) -> Answer,
        mut answer_call: impl FnMut(&RecordedRequest) -> Answer + Send + 'static,
    ) -> Self {
        let mut sessions = 0;
        let server = ScriptedServer::for_anything(move |request: &RecordedRequest| {
            if request.target.starts_with("DELETE ") {
                return Answer::raw(405, "");
            }
            let params = &request.body["params"];
            let is_request_modern =
                params["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
            match request.body["method"].as_str().unwrap_or_default() {
                "notifications/initialized" | "notifications/cancelled" => Answer::raw(202, ""),
                _ if is_request_modern != is_modern => stranger(request),
                "server/discover" => result(
                    request,
                    json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}),
                ),
                "initialize" => {
                    sessions += 1;
                    let opened = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
                    result(request, opened).header("Mcp-Session-Id", &format!("session-{sessions}"))
                }
                "tools/list" => {
                    let text =
                        json!({"type": "object", "properties": {"text": {"type": "string"}}});
                    let tools =
                        ["echo", "count"].map(|name| json!({"name": name, "inputSchema": text}));
                    result(request, json!({"tools": tools}))
                }
                _ => answer_call(request),
            }
        });
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("work/.keep", "");
        sandbox.write("agent/script.yaml", format!("turns:\n{turns}\n- say: done\n"));
        let url = server.root_url();
        sandbox.write(
            "agent/agent.yaml",
            format!("name: test-agent\nllm: {{provider: script, model: script.yaml}}\nmcp:\n  s:\n    url: {url}/mcp\n{keys}"),
        );
        Self { sandbox, server }
    }

    pub(super) fn delta(&self, arguments: &[&str]) -> Ran {
        self.sandbox.delta(arguments.iter().copied()).env("TRACKER_TOKEN", "t0ken").output()
    }

    pub(super) fn call(&self, more: &[&str]) -> Ran {
        let arguments = ["mcp", "call", "--agent", "agent", "s"].iter().chain(more).copied();
        self.delta(&arguments.collect::<Vec<_>>())
    }

    pub(super) fn run(&self) -> Ran {
        self.sandbox.run_command("go", &[]).env("TRACKER_TOKEN", "t0ken").output()
    }

    /// The requests with this method.
    pub(super) fn requests(&self, method: &str) -> Vec<RecordedRequest> {
        let requests = self.server.requests();
        requests.into_iter().filter(|request| request.body["method"] == method).collect()
    }
}

fn result(request: &RecordedRequest, result: Value) -> Answer {
    let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
    Answer::raw(200, answer.to_string())
}

pub(super) fn text_result(request: &RecordedRequest, text: &str) -> Answer {
    result(request, json!({"content": [{"type": "text", "text": text}]}))
}

fn echo(request: &RecordedRequest) -> Answer {
    text_result(request, request.body["params"]["arguments"]["text"].as_str().unwrap_or("nothing"))
}

#[test]
fn c_30_16_every_request_has_the_token_and_the_headers_and_no_file_has_the_token() {
    for is_modern in [false, true] {
        let keys = "    token_env: TRACKER_TOKEN\n    headers: {X-Team: core}\ntools:\n  - {name: look, shell: 'env'}\n";
        let turns = format!("{}\n- call: [{{tool: look}}]", turn(&[("echo", "text: hello")]));
        let remote = Remote::new(is_modern, keys, &turns, echo);
        remote.run().expect_code(0);
        let observations = remote.sandbox.observations();
        assert_eq!(observations[0], "hello\n");
        assert!(!observations[1].contains("TRACKER_TOKEN"), "{}", observations[1]);
        for request in remote.server.requests() {
            assert_eq!(request.header("authorization"), Some("Bearer t0ken"));
            assert_eq!(request.header("x-team"), Some("core"));
            let is_end = request.target == "DELETE /mcp" && !is_modern;
            assert!(request.target == "POST /mcp" || is_end, "{}", request.target);
        }
        let call = &remote.requests("tools/call")[0];
        let expected = if is_modern { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(call.header("mcp-protocol-version"), Some(expected));
        assert_eq!(call.header("mcp-name"), is_modern.then_some("echo"));
        assert_eq!(call.header(SESSION).is_some(), !is_modern);
        for file in remote.sandbox.files("work") {
            let bytes = std::fs::read(remote.sandbox.path("work").join(&file)).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("t0ken"), "{file} has the token");
        }
        let ran = remote.sandbox.delta(["mcp", "call", "--agent", "agent", "s", "echo"]).output();
        assert!(ran.code == 126 && ran.stderr.contains("`TRACKER_TOKEN` is not set"), "{ran:?}");
    }
}

#[test]
fn c_30_16_a_redirect_is_not_followed() {
    for status in [301, 302, 307, 308] {
        for is_modern in [false, true] {
            let other = ScriptedServer::for_anything(|request: &RecordedRequest| echo(request));
            let location = format!("{}/elsewhere", other.root_url());
            let keys = "    token_env: TRACKER_TOKEN\n";
            let remote = Remote::new(is_modern, keys, "", {
                let location = location.clone();
                move |_| Answer::raw(status, "").header("Location", &location)
            });
            let ran = remote.call(&["echo"]);
            assert_eq!(ran.code, 3, "{}", ran.stderr);
            let expected = format!("error {status}: it redirects to {location}");
            assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
            assert_eq!(other.connections(), 0, "the other host got something");
            assert_eq!(remote.requests("tools/call").len(), 1);
        }
    }
}

#[test]
fn c_30_16_plain_http_reaches_loopback_addresses_only() {
    let remote = Remote::unlocked(true, "", "", echo);
    let ran = remote.delta(&["mcp", "list", "http://192.0.2.1/mcp"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("expected `https:` for `192.0.2.1`"), "{}", ran.stderr);
}

#[test]
fn c_30_16_a_session_that_ended_is_followed_by_a_new_one() {
    let restarts = Arc::new(Mutex::new(0));
    let remote = Remote::new(false, "", &turn(&[("count", ""), ("count", ""), ("count", "")]), {
        let restarts = Arc::clone(&restarts);
        move |request| {
            let mut calls = restarts.lock().unwrap();
            *calls += 1;
            // Before the second call the server was started again, and knows no session.
            if *calls == 2 {
                Answer::raw(404, "")
            } else {
                text_result(request, &calls.to_string())
            }
        }
    });
    remote.run().expect_code(0);
    let note = "[the server s began a new session: what it held in memory is gone]\n3\n";
    assert_eq!(remote.sandbox.observations(), ["1\n", note, "4\n"]);
    let calls = remote.requests("tools/call");
    let sessions: Vec<&str> = calls.iter().filter_map(|call| call.header(SESSION)).collect();
    assert_eq!(sessions, ["session-2", "session-2", "session-3", "session-3"]);
    // A server that refuses every session is not asked forever.
    let remote = Remote::new(false, "", "", |_| Answer::raw(404, ""));
    let ran = remote.call(&["count"]);
    assert!(ran.code == 4 && ran.stderr.contains("ended the session"), "{ran:?}");
    assert_eq!(remote.requests("tools/call").len(), 2);
}

#[test]
fn c_30_16_the_end_of_a_process_ends_its_session() {
    let remote = Remote::new(false, "", &turn(&[("count", ""), ("count", "")]), echo);
    let ended = || {
        let requests = remote.server.requests();
        let ends = requests.iter().filter(|request| request.target == "DELETE /mcp");
        ends.map(|end| end.header(SESSION).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ended(), ["session-1"], "of `mcp lock`");
    remote.run().expect_code(0);
    assert_eq!(ended(), ["session-1", "session-2"]);
    remote.call(&["count"]).expect_code(0);
    remote.delta(&["mcp", "list", "--agent", "agent", "s"]).expect_code(0);
    assert_eq!(ended().len(), 4);
    let requests = remote.server.requests();
    assert_eq!(requests.last().unwrap().header("mcp-protocol-version"), Some("2025-11-25"));
    // There is no session without the legacy opening.
    let remote = Remote::new(true, "", "", echo);
    remote.call(&["count"]).expect_code(0);
    assert!(remote.server.requests().iter().all(|request| request.target == "POST /mcp"));
}

#[test]
fn c_30_18_simultaneous_calls_over_http_have_one_session() {
    for is_modern in [false, true] {
        let keys = "    parallel: [echo]\n";
        let turns = turn(&[("echo", "text: a"), ("echo", "text: b"), ("echo", "text: c")]);
        let gate = Gate::new();
        let mut calls = 0;
        let remote = Remote::new(is_modern, keys, &turns, move |request| {
            calls += 1;
            if calls == 3 {
                gate.open();
            }
            echo(request).after(&gate)
        });
        remote.run().expect_code(0);
        assert_eq!(remote.sandbox.observations(), ["a\n", "b\n", "c\n"]);
        let calls = remote.requests("tools/call");
        let session = (!is_modern).then_some("session-2");
        assert!(calls.iter().all(|call| call.header(SESSION) == session));
        // The lock, and the run.
        assert_eq!(remote.requests("tools/list").len(), 2);
    }
}

#[test]
fn c_30_16_an_answer_that_breaks_off_is_an_unknown_outcome() {
    let whole = |request: &RecordedRequest| {
        let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {"content": []}});
        format!("event: message\ndata: {answer}\n\n")
    };
    type Broken = fn(&str) -> Answer;
    let answers: [(&str, Broken); 7] = [
        ("a stream that is cut", |text| Answer::event_stream(text).break_off(20)),
        ("a stream that ends early", |_| Answer::event_stream(": nothing\n\n")),
        ("an event that is no JSON", |text| Answer::event_stream(text.replace("[]", "NaN"))),
        ("JSON that is cut", |text| Answer::raw(200, text).break_off(20)),
        ("no answer", |_| Answer::close()),
        ("garbage", |_| Answer::garbage("HTTP/9 what\r\n\r\n")),
        ("a gateway without a server", |_| Answer::raw(502, "<html>Bad Gateway</html>")),
    ];
    for is_modern in [false, true] {
        for (name, answer) in answers {
            let remote = Remote::new(is_modern, "", "", move |request| answer(&whole(request)));
            let ran = remote.call(&["echo"]);
            assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{name}: {}", ran.stderr);
            assert_eq!(
                ran.stderr.matches("its outcome is unknown").count(),
                1,
                "{name}: {}",
                ran.stderr
            );
            assert_eq!(remote.requests("tools/call").len(), 1, "{name}");
            for (of, words) in [
                ("an event that is no JSON", "an event of it could not be read: "),
                ("a gateway without a server", "502 Bad Gateway"),
            ] {
                assert!(name != of || ran.stderr.contains(words), "{}", ran.stderr);
            }
        }
    }
}

/// The server may have made the call: the LLM has to know that.
#[test]
fn c_30_3_an_invalid_answer_over_http_is_an_unknown_outcome() {
    let answers = [
        ("broken JSON", 200, "{\"jsonrpc\": \"2.0\", \"id\": 3, \"result\": {"),
        ("nothing", 200, ""),
        ("a reception", 202, ""),
        ("a page", 200, "<!doctype html><title>hello</title>"),
    ];
    for is_modern in [false, true] {
        for (name, status, text) in answers {
            let remote = Remote::new(is_modern, "", "", move |_| Answer::raw(status, text));
            let ran = remote.call(&["echo"]);
            assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{name}: {}", ran.stderr);
            for part in ["does not follow the protocol: ", "its outcome is unknown"] {
                assert_eq!(ran.stderr.matches(part).count(), 1, "{name}: {}", ran.stderr);
            }
        }
    }
}

#[test]
fn c_30_2_half_an_emoji_in_an_answer_over_http_is_replaced() {
    let answer = |request: &RecordedRequest| {
        let id = &request.body["id"];
        let text = r#"{"content": [{"type": "text", "text": "a\ud83d, \ud83d\ude00"}]}"#;
        format!(r#"{{"jsonrpc": "2.0", "id": {id}, "result": {text}}}"#)
    };
    type Sent = fn(String) -> Answer;
    let sent: [Sent; 2] =
        [|text| Answer::raw(200, text), |text| Answer::event_stream(format!("data: {text}\n\n"))];
    for send in sent {
        let remote = Remote::new(false, "", "", move |request| send(answer(request)));
        let ran = remote.call(&["echo"]);
        assert_eq!(ran.stdout, "a\u{fffd}, \u{1f600}\n", "{}", ran.stderr);
    }
}

#[test]
fn c_30_16_a_silent_server_costs_its_time_and_no_more() {
    for is_modern in [false, true] {
        let remote = Remote::new(is_modern, "    timeout_ms: 500\n", "", |_| Answer::hang());
        let ran = remote.call(&["echo"]);
        assert_eq!(ran.code, 4, "{}", ran.stderr);
        assert!(ran.stderr.contains("did not answer in time"), "{}", ran.stderr);
        // The closed connection is the cancellation of a modern request.
        let cancelled = remote.requests("notifications/cancelled");
        assert_eq!(cancelled.len(), usize::from(!is_modern));
        let call = &remote.requests("tools/call")[0];
        for notice in cancelled {
            assert_eq!(notice.body["params"]["requestId"], call.body["id"]);
        }
    }
    let silent = ScriptedServer::for_anything(|_: &RecordedRequest| Answer::hang());
    let remote =
        Remote::unlocked(true, "    start_timeout_ms: 300\n    timeout_ms: 60000\n", "", echo);
    let agent = remote.sandbox.read("agent/agent.yaml");
    let agent = agent.replace(&remote.server.root_url(), &silent.root_url());
    remote.sandbox.write("agent/agent.yaml", agent);
    let refused = remote.delta(&["mcp", "lock", "--agent", "agent"]).expect_code(4).stderr;
    assert!(refused.contains("error: the MCP server `s`: the server did not"), "{refused}");
}

#[test]
fn c_30_16_a_server_that_is_gone_got_no_call() {
    let remote = Remote::new(true, "", &turn(&[("echo", "text: a")]), echo);
    let Remote { sandbox, server } = remote;
    drop(server);
    sandbox.run("go", &[]).expect_code(0);
    let observation = &sandbox.observations()[0];
    assert!(observation.contains("[exit code: 4]"), "{observation}");
    assert!(!observation.contains("outcome is unknown"), "{observation}");
}

#[test]
fn c_30_16_access_that_is_refused_is_explained() {
    for (status, is_modern) in [(401, true), (403, false)] {
        let remote = Remote::new(is_modern, "", "", move |_| Answer::raw(status, "no"));
        let ran = remote.call(&["echo"]);
        assert_eq!(ran.code, 3);
        assert!(
            ran.stderr.contains("access is refused") && ran.stderr.contains("`token_env`"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn c_30_16_an_answer_has_at_most_64_mib() {
    const LIMIT: usize = 64 * 1024 * 1024;
    for is_stream in [false, true] {
        let remote = Remote::new(true, "", "", move |request| {
            let id = &request.body["id"];
            let (before, after) = if is_stream { ("data: ", "\n\n") } else { ("", "") };
            let start = format!(
                "{before}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
            );
            let end = format!("\"}}]}}}}{after}");
            let surplus = usize::from(request.body["params"]["arguments"]["text"] == "more");
            let filling = "x".repeat(LIMIT + surplus - start.len() - end.len());
            let body = start + &filling + &end;
            if is_stream { Answer::event_stream(body) } else { Answer::raw(200, body) }
        });
        let ran = remote.call(&["echo", "--arg", "text=just"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.len() > LIMIT - 200);
        let ran = remote.call(&["echo", "--arg", "text=more"]);
        assert_eq!(ran.code, 3, "{}", ran.stderr);
        assert!(ran.stderr.contains("longer than 64 MiB"), "{}", ran.stderr);
    }
}

#[test]
fn c_30_16_events_and_requests_in_a_stream_are_read() {
    for is_modern in [false, true] {
        let remote = Remote::new(is_modern, "", "", |request| {
            if request.body["method"] != "tools/call" {
                return Answer::raw(202, "");
            }
            let token = &request.body["params"]["_meta"]["progressToken"];
            let lines = [
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}),
                json!({"jsonrpc": "2.0", "id": "ask", "method": "roots/list"}),
                json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {"content": [{"type": "text", "text": "done"}]}}),
            ];
            let events: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
            Answer::event_stream(events).in_pieces(7)
        });
        let ran = remote.call(&["echo", "-v"]);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("done\n", "1\n"), "{is_modern}");
        let requests = remote.server.requests();
        let answer = requests.iter().find(|request| request.body["id"] == "ask").unwrap();
        assert_eq!(answer.body["result"]["roots"], json!([]));
    }
}
