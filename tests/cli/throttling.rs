//! Endpoints that refuse requests because there are too many, and errors that `--ensure` tries again.

use super::DELTA;
use super::output::scripted;
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// An answer that throttles for so many milliseconds.
fn throttled(status: u16, delay_ms: u32) -> Answer {
    Answer::error(status, "slow down", None).header("retry-after-ms", &delay_ms.to_string())
}

fn broken() -> Answer {
    Answer::error(500, "broken", None).header("retry-after-ms", "0")
}

/// An agent that asks the endpoint and tries a call twice.
fn trying_twice(server: &ScriptedServer) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: test-model\n  max_retries: 1\n  base_url: {}", server.url());
    sandbox.agent(&llm, "");
    sandbox
}

#[test]
fn c_7_3_a_run_with_a_time_limit_waits_for_an_endpoint_that_throttles() {
    let answers = [429, 529, 429].map(|status| throttled(status, 20)).to_vec();
    let server = ScriptedServer::start([answers, vec![Answer::text("done")]].concat());
    let sandbox = trying_twice(&server);
    let ran = sandbox.run("hi", &["--max-duration", "10m", "--format", "json"]).expect_code(0);
    let tries: Vec<_> = ran.stderr.lines().filter(|line| line.contains("try ")).collect();
    assert_eq!(tries.len(), 3, "{tries:?}");
    assert!(tries[0].starts_with("! try 2 in ") && tries[0].ends_with(": slow down"), "{tries:?}");
    assert!(tries[1].starts_with("! try 3 in ") && tries[1].contains(": 529"), "{tries:?}");
    let lost = sandbox.events("THOUGHT")[0]["throttled_ms"].as_u64().unwrap();
    assert!(lost >= 60, "{lost}");
    let metrics = &ran.json()["metrics"];
    assert_eq!(metrics["throttled_ms"], lost);
    assert!(metrics["total_duration_ms"].as_u64().unwrap() >= lost);
}

/// Some endpoints answer 200, and say in the answer that there are too many requests.
#[test]
fn c_7_3_an_answer_that_throttles_is_waited_for_like_its_status() {
    let code = json!({"error": {"code": 429, "message": "Please try again in 1ms."}}).to_string();
    let name = json!({"error": {"type": "overloaded_error", "message": "try again in 1ms"}});
    let answers = vec![
        Answer::raw(200, code.clone()),
        Answer::event_stream(format!("data: {code}\n\n")),
        Answer::event_stream(format!("data: {name}\n\n")),
        Answer::text("done"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = trying_twice(&server);
    let ran = sandbox.run("hi", &["--max-duration", "10m", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn c_7_3_without_a_time_limit_the_number_of_tries_is_the_limit() {
    let server = ScriptedServer::start(vec![throttled(429, 1), throttled(429, 1)]);
    let sandbox = trying_twice(&server);
    let ran = sandbox.run("hi", &["--format", "json"]).expect_code(1);
    assert_eq!(ran.json()["error"]["type"], "llm");
    assert!(ran.json()["metrics"]["throttled_ms"].as_u64().unwrap() >= 1);
    assert_eq!(server.requests().len(), 2);
}

/// The message named the limit alone, although the endpoint had failed all the time.
#[test]
fn c_7_3_a_time_limit_does_not_hide_the_error_of_the_endpoint() {
    let failing = Answer::error(500, "broken", None).header("retry-after-ms", "600000");
    let server = ScriptedServer::start(vec![broken(), failing]);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: test-model\n  max_retries: 5\n  base_url: {}", server.url());
    sandbox.agent(&llm, "");
    let ran = sandbox.run("hi", &["--max-duration", "1s", "--format", "json"]).expect_code(1);
    let error = &ran.json()["error"];
    assert_eq!(error["type"], "limit");
    let expected = "the time limit of 1.0s has expired; the last error of the LLM: the endpoint answered 500 Internal Server Error: broken (2 tries)";
    assert_eq!(error["message"], expected);
    assert!(
        error["details"].as_str().unwrap().contains("`--max-duration` sets the limit"),
        "{error}"
    );
    assert_eq!(sandbox.events("ERROR")[0]["error_details"]["status"], 500);
}

#[test]
fn c_7_3_throttling_does_not_count_as_a_failed_try() {
    let passes = vec![throttled(429, 0), broken(), throttled(429, 0), Answer::text("done")];
    let fails = vec![broken(), throttled(429, 0), broken()];
    let server = ScriptedServer::start([passes, fails].concat());
    let sandbox = trying_twice(&server);
    sandbox.run("hi", &["--max-duration", "10m"]).expect_code(0);
    let second = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "hi"];
    let ran = sandbox.delta(second).args(["--max-duration", "10m"]).output().expect_code(1);
    assert!(ran.stderr.contains("500 Internal Server Error: broken"), "{}", ran.stderr);
}

#[test]
fn c_7_3_a_time_limit_that_ends_in_throttling_is_a_failure_of_the_endpoint() {
    let server = ScriptedServer::start(vec![throttled(429, 60_000), Answer::text("done")]);
    let sandbox = trying_twice(&server);
    let ran = sandbox.run("hi", &["--max-duration", "300ms", "--format", "json"]).expect_code(1);
    let result = ran.json();
    assert_eq!(result["status"], "FAILED");
    assert_eq!(result["error"]["type"], "llm");
    let expected = "the endpoint answered 429 Too Many Requests: slow down (1 try); the time limit of 300ms has expired";
    assert_eq!(result["error"]["message"], expected);
    assert_eq!(result["error"]["details"], "`--max-duration` sets how long to wait");
    let lost = result["metrics"]["throttled_ms"].as_u64().unwrap();
    let total = result["metrics"]["total_duration_ms"].as_u64().unwrap();
    assert!(0 < lost && lost <= total, "{lost} of {total}");
    // It can be asked again, like every endpoint that failed.
    let next = ["continue", "r", "-w", "work", "--max-duration", "10m", "--format", "raw"];
    let continued = sandbox.delta(next).output().expect_code(0);
    assert_eq!(continued.stdout, "done\n");
}

/// `run --ensure` of the run `r`, with more options.
fn ensured(sandbox: &Sandbox, more: &[&str], code: i32) -> String {
    let options = [&["--ensure", "-q", "--format", "raw"], more].concat();
    sandbox.run("hi", &options).expect_code(code).stdout
}

#[test]
fn c_11_2_ensure_tries_again_after_the_errors_that_it_is_told() {
    // A refusal, and an error that delta would retry.
    for status in [400, 503] {
        let failed = || Answer::error(status, "bad", None);
        let server = ScriptedServer::start(vec![failed(), failed(), Answer::text("done")]);
        let sandbox = Sandbox::new(DELTA);
        let llm = format!("model: m\n  max_retries: 0\n  base_url: {}", server.url());
        sandbox.agent(&llm, "");
        ensured(&sandbox, &["--retry", "llm"], 1);
        ensured(&sandbox, &[], 1);
        ensured(&sandbox, &["--retry", "io,context"], 1);
        assert_eq!(server.requests().len(), 1, "it was not asked to try again");
        ensured(&sandbox, &["--retry", "io,llm"], 1);
        assert_eq!(ensured(&sandbox, &["--retry", "llm"], 0), "done\n");
        assert_eq!(ensured(&sandbox, &["--retry", "llm"], 0), "done\n");
        assert_eq!(server.requests().len(), 3);
        assert_eq!(sandbox.events("USER_MESSAGE").len(), 1, "no message was invented");
    }
}

#[test]
fn c_11_2_ensure_tries_a_source_of_the_context_again() {
    let sandbox = scripted("- say: done\n");
    let source = "- {type: computed_file, id: s, generator: {command: [cp, ready, out]}, output_path: '${CWD}/out'}\n";
    sandbox.write("agent/context.yaml", format!("sources:\n{source}"));
    ensured(&sandbox, &["--retry", "llm"], 1);
    assert_eq!(sandbox.events("ERROR")[0]["error_details"]["type"], "context");
    sandbox.write("work/ready", "");
    ensured(&sandbox, &["--retry", "llm"], 1);
    assert_eq!(ensured(&sandbox, &["--retry", "context"], 0), "done\n");
}

#[test]
fn c_11_2_ensure_never_tries_an_outcome_of_the_agent_again() {
    let sandbox = scripted("- error: the script fails\n- say: done\n");
    ensured(&sandbox, &["--retry", "llm,io,context"], 1);
    ensured(&sandbox, &["--retry", "llm,io,context"], 1);
    assert_eq!(sandbox.events("ENGINE_START").len(), 1, "a turn of a script is an answer");
    let refused = sandbox.run("hi", &["--ensure", "--retry", "hook"]).expect_code(2);
    assert!(
        refused.stderr.contains(
            "[possible values: llm, io, context, length, empty_response, max_iterations]"
        ),
        "{}",
        refused.stderr
    );
    let alone = sandbox.run("hi", &["--retry", "llm"]).expect_code(2);
    assert!(alone.stderr.contains("--ensure"), "{}", alone.stderr);
}
