//! How a run ends for the person at the terminal: its last line, failed tries of the LLM, and what to type next.

use super::DELTA;
use super::output::scripted;
use delta_base::time::Timestamp;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use test_support::normal::normal;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// The last line of the process on stderr.
fn end_line(sandbox: &Sandbox, stderr: &str) -> String {
    let stderr = normal(sandbox, stderr);
    stderr.lines().rfind(|line| line.contains(" after ")).unwrap_or_default().to_owned()
}

#[test]
fn c_25_5_the_last_line_has_tokens_cost_and_time() {
    let answers = || {
        vec![Answer::call("say", json!({})).usage(12_000, 400), Answer::text("ok").usage(500, 20)]
    };
    let server = ScriptedServer::start([answers(), answers()].concat());
    let sandbox = Sandbox::asking(DELTA, &server.url(), "  - name: say\n    shell: echo\n");
    let ran = sandbox.run("hi", &[]).expect_code(0);
    let expected = "COMPLETED after 2 iterations, 12.5k tokens in, 420 out, SPAN";
    assert_eq!(end_line(&sandbox, &ran.stderr), expected);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    assert_eq!(normal(&sandbox, &shown.stdout).lines().last(), Some(expected));

    let priced = "model: test-model\n  pricing: {input: 2, output: 10}\n  base_url: ";
    sandbox.agent(&format!("{priced}{}", server.url()), "  - name: say\n    shell: echo\n");
    let arguments = ["run", "--agent", "agent", "-w", "work", "--run-id", "p", "-m", "hi"];
    let ran = sandbox.delta(arguments).output().expect_code(0);
    let expected = "COMPLETED after 2 iterations, 12.5k tokens in, 420 out, 0.0292 USD, SPAN";
    assert_eq!(end_line(&sandbox, &ran.stderr), expected);
}

#[test]
fn c_25_5_the_cached_share_and_unknown_usage_are_named() {
    let usage = json!({"prompt_tokens": 2000, "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1500}});
    let cached = json!({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}], "usage": usage});
    let call = Answer::call("say", json!({})).no_usage();
    let server = ScriptedServer::start(vec![
        Answer::raw(200, cached.to_string()),
        call,
        Answer::raw(200, cached.to_string()),
    ]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "  - name: say\n    shell: echo\n");
    let ran = sandbox.run("hi", &[]).expect_code(0);
    let expected = "COMPLETED after 1 iteration, 2000 tokens in (75% cached), 5 out, SPAN";
    assert_eq!(end_line(&sandbox, &ran.stderr), expected);
    let arguments = ["run", "--agent", "agent", "-w", "work", "-m", "hi"];
    let ran = sandbox.delta(arguments).output().expect_code(0);
    let expected =
        "COMPLETED after 2 iterations, at least 2000 tokens in (75% cached), 5 out, SPAN";
    assert_eq!(end_line(&sandbox, &ran.stderr), expected);
    // A script reports no tokens.
    let sandbox = scripted("- say: ok\n");
    let ran = sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(end_line(&sandbox, &ran.stderr), "COMPLETED after 1 iteration, SPAN");
}

#[test]
fn c_25_6_in_a_log_each_failed_try_is_a_line_and_the_last_error_is_told_once() {
    let soon = |text: &str| Answer::error(429, text, None).header("Retry-After", "0");
    let server = ScriptedServer::start(vec![soon("one"), soon("two"), soon("three")]);
    let sandbox = Sandbox::new(DELTA);
    sandbox
        .agent(&format!("model: test-model\n  max_retries: 2\n  base_url: {}", server.url()), "");
    let ran = sandbox.run("hi", &["--format", "raw"]).normal(&sandbox);
    let expected = "\
test-agent r
workspace DIR/work
model test-model

> hi
! try 2 of 3 in SPAN: 429 Too Many Requests: one
! try 3 of 3 in SPAN: 429 Too Many Requests: two
error: the endpoint answered 429 Too Many Requests: three

FAILED after 0 iterations, SPAN
Continue with: delta continue --run-id r -w DIR/work
";
    ran.expect(1, "", expected);
    let log = sandbox.read("work/.delta/r/engine.log");
    assert_eq!(log.matches("three").count(), 1, "{log}");
}

#[test]
fn c_25_6_the_command_after_a_failure_continues_the_run() {
    let server = ScriptedServer::start(vec![Answer::error(400, "bad", None), Answer::text("good")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    let ran = sandbox.run("hi", &[]).expect_code(1);
    let (_, command) = ran.stderr.trim_end().rsplit_once("Continue with: delta ").unwrap();
    let continued = sandbox.delta(command.split(' ')).output().expect_code(0);
    assert!(continued.stdout.contains("good"), "{}", continued.stdout);
    assert_eq!(sandbox.events("USER_MESSAGE").len(), 1, "the LLM sees nothing of the failure");
    let [failed, repeated] = server.requests().try_into().unwrap();
    assert_eq!(failed.body, repeated.body);
    let quiet = ScriptedServer::start(vec![Answer::error(400, "bad", None), Answer::text("more")]);
    let sandbox = Sandbox::asking(DELTA, &quiet.url(), "");
    let ran = sandbox.run("hi", &["-q"]).expect_code(1);
    assert_eq!(ran.stderr, "error: the endpoint answered 400 Bad Request: bad\n");
    // A schedule does not ask again, a person can, with a message too.
    sandbox.run("hi", &["--ensure", "-q"]).expect_code(1);
    assert_eq!(quiet.requests().len(), 1);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    assert!(
        shown.stdout.ends_with("continue with: delta continue --run-id r -w work --retry llm\n")
    );
    let message = ["continue", "r", "-w", "work", "-q", "--format", "raw", "-m", "shorter"];
    assert_eq!(sandbox.delta(message).output().expect_code(0).stdout, "more\n");
    assert_eq!(sandbox.events("USER_MESSAGE").len(), 2);
}

#[test]
fn c_25_6_at_a_terminal_the_error_is_told_once_and_the_command_comes_last() {
    let server = ScriptedServer::start(vec![Answer::error(400, "so bad", None)]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    let ran = sandbox.run_command("hi", &[]).wholly_at_terminal().end().expect_code(1);
    let shown = normal(&sandbox, &ran.stderr);
    assert_eq!(shown.matches("so bad").count(), 1, "{shown}");
    let last = "Continue with: delta continue --run-id r -w DIR/work --retry llm\n";
    assert!(shown.ends_with(last), "{shown}");
}

/// The screen of a run that has its three streams at one terminal, without colours.
fn screen_of(turns: &str, more: &[&str]) -> (i32, String) {
    let sandbox = scripted(turns);
    let command = sandbox.run_command("hi", more).env("NO_COLOR", "1");
    // So wide that the path of a temporary directory fits into a line.
    let (code, lines) = command.wholly_at_terminal_of(240, 40).end_with_screen();
    (code, normal(&sandbox, &lines.join("\n")))
}

#[test]
fn c_12_1_a_terminal_that_shows_the_progress_shows_the_result_once() {
    let done = "- say: I look.\n  call: [{tool: say, args: {text: x}}]\n- call: [{tool: finish, args: {result: all done}}]\n";
    let (code, screen) = screen_of(done, &[]);
    assert_eq!(code, 0);
    let expected = "• I look.\n→ say text=x\n  │ x\n\nCOMPLETED after 2 iterations, SPAN\n\nall done\n\n\
         say more: delta continue --run-id r -w DIR/work";
    assert!(screen.ends_with(expected), "{screen}");

    let (code, screen) = screen_of("- error: no more\n", &[]);
    assert_eq!((code, screen.matches("no more").count()), (1, 1), "{screen}");
    assert!(screen.ends_with("-w DIR/work -m \"Try again\""), "{screen}");

    let asks = "- call: [{tool: ask_human, args: {prompt: red or blue}}]\n";
    let (code, screen) = screen_of(asks, &["--no-interactive"]);
    assert_eq!((code, screen.matches("red or blue").count()), (101, 1), "{screen}");
    assert!(!screen.contains("Run Summary"), "{screen}");

    // With `-q` the result is all there is, or the error.
    let (code, screen) = screen_of(done, &["-q"]);
    assert_eq!((code, screen.trim_end()), (0, "all done"));
    let (code, screen) = screen_of("- error: no more\n", &["-q"]);
    assert_eq!((code, screen.trim_end()), (1, "error: no more"));
}

#[test]
fn c_12_1_a_finish_that_is_rejected_has_its_line() {
    let turns = "- call: [{tool: finish, args: {}}]\n- say: ok\n";
    let (code, screen) = screen_of(turns, &[]);
    assert_eq!(code, 0);
    assert!(screen.contains("→ finish\n  │ "), "{screen}");
}

#[test]
fn c_25_5_the_total_time_is_that_of_all_processes() {
    let sandbox = scripted("- say: one\n- say: two\n");
    sandbox.run("hi", &[]).expect_code(0);
    let more = ["continue", "r", "-w", "work", "-m", "more", "--format", "json"];
    let metrics = sandbox.delta(more).output().expect_code(0).json()["metrics"].clone();
    let millis = |event: &serde_json::Value| {
        Timestamp::parse(event["timestamp"].as_str().unwrap()).unwrap().as_millis()
    };
    let times = |kind| sandbox.events(kind).iter().map(millis).collect::<Vec<_>>();
    let spans = times("ENGINE_START").into_iter().zip(times("ENGINE_END"));
    let spans: Vec<i64> = spans.map(|(start, end)| end - start).collect();
    assert_eq!(metrics["duration_ms"], spans[1]);
    assert_eq!(metrics["total_duration_ms"], spans[0] + spans[1]);
}

#[test]
fn c_25_6_an_html_error_is_told_as_its_title() {
    let page = "<!DOCTYPE html>\n<html><head><title>Bad gateway | proxy.example</title></head>\n<body>long</body></html>";
    let html = |status| Answer::raw(status, page).header("Content-Type", "text/html");
    for (status, expected) in [
        (404, "the endpoint answered 404 Not Found: an HTML page, \"Bad gateway | proxy.example\""),
        (200, "the endpoint's response is not JSON: an HTML page, \"Bad gateway | proxy.example\""),
    ] {
        let server = ScriptedServer::start(vec![html(status)]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(
            &format!("model: test-model\n  max_retries: 0\n  base_url: {}", server.url()),
            "",
        );
        let ran = sandbox.run("hi", &["--format", "json"]).expect_code(1);
        assert_eq!(ran.json()["error"]["message"], expected);
        assert!(ran.stderr.contains(&format!("error: {expected}\n")), "{}", ran.stderr);
    }
}

/// A server that sends these bytes to the first connection, whatever it receives, and closes it.
fn answer_once(bytes: &'static [u8]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The request is read, so that the connection is closed and not reset.
        let _ = stream.read(&mut [0; 65536]);
        let _ = stream.write_all(bytes);
    });
    (url, server)
}

#[test]
fn c_25_6_plain_http_on_an_https_address_is_named_and_the_reverse() {
    let (url, server) = answer_once(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let sandbox = Sandbox::asking(DELTA, &url.replace("http://", "https://"), "");
    let ran = sandbox.run_command("hi", &[]).env("DELTA_API_KEY", "unused-key").output();
    let stderr = &ran.expect_code(1).stderr;
    assert!(stderr.contains("begins with https, but the server speaks plain HTTP\n"), "{stderr}");
    assert!(stderr.contains("help: if the server speaks plain HTTP, write `http://`"), "{stderr}");
    assert!(!stderr.contains("! try"), "a retry would change nothing: {stderr}");
    server.join().unwrap();

    // What a server of TLS sends in answer to plain HTTP: an alert, decode_error.
    let alert = Answer::garbage([0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x32]);
    let words = Answer::raw(400, "The plain HTTP request was sent to HTTPS port");
    for (answer, message) in [
        (alert, "is an address of plain HTTP, but the server speaks TLS"),
        (words, "400 Bad Request: The plain HTTP request was sent to HTTPS port"),
    ] {
        let server = ScriptedServer::start(vec![answer]);
        let ran = Sandbox::asking(DELTA, &server.url(), "").run("hi", &[]).expect_code(1);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
        let help = "help: if the server speaks TLS, write `https://` in `llm.base_url`";
        assert!(ran.stderr.contains(help), "{}", ran.stderr);
    }
}

#[test]
fn c_25_6_a_server_that_closes_plain_http_without_a_word_may_speak_tls() {
    let (url, server) = answer_once(b"");
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: test-model\n  max_retries: 0\n  base_url: {url}"), "");
    let ran = sandbox.run("hi", &[]).expect_code(1);
    assert!(ran.stderr.contains("closed the connection without a response"), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: if the server speaks TLS"), "{}", ran.stderr);
    server.join().unwrap();
}

#[test]
fn c_25_10_a_run_begins_with_a_warning_for_each_missing_program() {
    let tools = "  - name: one\n    exec: surely-not-installed ${x}\n  - name: two\n    shell: cd . && surely-not-installed | also-not-there\n  - name: three\n    x-lint-allow: [program-not-found]\n    exec: allowed-to-be-missing\n  - name: four\n    shell: echo ok\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- say: ok\n- say: again\n");
    let ran = sandbox.run("hi", &[]).normal(&sandbox).expect_code(0);
    let warnings: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("! ")).collect();
    let help = "install it on the machine that runs the agent, or write its path";
    assert_eq!(
        warnings,
        [
            format!(
                "! program `surely-not-installed` was not found in PATH (agent.yaml:7); {help}"
            ),
            format!("! program `also-not-there` was not found in PATH (agent.yaml:9); {help}"),
        ]
    );
    // Only the first process of a run begins it.
    let continued = ["continue", "--run-id", "r", "-w", "work", "-m", "more"];
    let ran = sandbox.delta(continued).output().expect_code(0);
    assert!(!ran.stderr.contains("not found in PATH"), "{}", ran.stderr);
    let quiet = ["run", "--agent", "agent", "-w", "work", "-q", "-m", "hi"];
    assert_eq!(sandbox.delta(quiet).output().expect_code(0).stderr, "");
}

#[test]
fn c_25_10_a_program_is_looked_for_where_its_tool_looks() {
    let tools = "  - name: own\n    exec: mytool\n    env: {PATH: '${AGENT_HOME}/bin:/usr/bin'}\n  - name: none\n    exec: mytool\n    env: {PATH: /usr/bin}\n  - name: later\n    exec: mytool\n    env: {PATH: '${RUN_DIR}'}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: own}]\n- say: ok\n");
    sandbox.write_program("agent/bin/mytool", "#!/bin/sh\necho mine\n");
    let ran = sandbox.run("hi", &[]).normal(&sandbox).expect_code(0);
    let warnings = ran.stderr.lines().filter(|line| line.starts_with("! "));
    assert_eq!(warnings.count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("(agent.yaml:10)"), "{}", ran.stderr);
    assert!(sandbox.observations()[0].contains("mine"), "{:?}", sandbox.observations());
}

/// A command was printed that continued nothing.
#[test]
fn c_13_6_a_run_whose_directory_is_gone_names_no_command_that_continues_it() {
    let tools = "  - name: wipe\n    shell: rm -rf .delta\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: wipe}]\n- say: done\n");
    sandbox.unverified("its journal is gone");
    let ran = sandbox.run("go", &[]).expect_code(1);
    assert!(ran.stderr.contains("nothing is left to continue: the journal "), "{}", ran.stderr);
    assert!(!ran.stderr.contains("delta continue"), "{}", ran.stderr);
}
