//! `delta mcp list` and `delta mcp call` outside of runs.

use super::Server;
use test_support::needs;

#[test]
fn c_30_1_a_tool_is_called_once_in_both_eras() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for options in ["", "modern"] {
        let server = Server::locked(options, "", "");
        let ran = server.call(&["s", "echo", "--arg", "text=ab", "--arg", "times=2"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "abab\n"), "{options}: {}", ran.stderr);
        assert_eq!(server.noted("calls"), ["echo"], "{options}");
        server.expect_ended();
        assert_eq!(server.noted("ends").len(), server.noted("starts").len(), "{options}");
    }
}

#[test]
fn c_30_2_every_outcome_has_its_exit_code() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "    timeout_ms: 1000\n", "");
    let cases = [
        ("count", 0, "1\n", ""),
        ("error", 1, "it did not work\n", ""),
        ("structured", 0, "{\"sum\":3}\n", ""),
        ("garbage", 0, "clean\n", ""),
        ("half", 0, "two halves\n", ""),
        ("refuse", 3, "", "error -32602: nothing fits"),
        ("die", 4, "", "the server exited before it answered; the end of its stderr:\nI am dying"),
        ("hang", 4, "", "did not answer in time"),
        ("ask", 5, "", "asks for input"),
        ("nope", 6, "", "`nope` of the server `s` is not locked"),
    ];
    for (tool, code, stdout, stderr) in cases {
        let ran = server.call(&["s", tool]);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, stdout), "{tool}: {}", ran.stderr);
        assert!(ran.stderr.contains(stderr), "{tool}: {}", ran.stderr);
        server.expect_ended();
    }
    assert!(server.call(&["s", "die"]).stderr.contains("its outcome is unknown"));
    assert_eq!(server.noted("cancelled").len(), 1);
}

#[test]
fn c_30_2_usage_errors_start_nothing() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    let before = server.noted("starts");
    for arguments in [&["s"][..], &["s", "echo", "--arg", "text"]] {
        assert_eq!(server.call(arguments).code, 2, "{arguments:?}");
    }
    let ran = server.sandbox.delta(["mcp", "call", "--", "cat"]).output().expect_code(2);
    assert!(ran.stderr.contains("expected SERVER and TOOL, or TOOL and"), "{}", ran.stderr);
    let ran = server.call(&["other", "echo", "--arg", "text=a"]);
    assert_eq!(ran.code, 126, "{}", ran.stderr);
    let input = |text: &str| {
        let arguments = ["mcp", "call", "--agent", "agent", "s", "echo"];
        server.sandbox.delta(arguments).stdin(text).output()
    };
    for text in ["[1]", "{", "5"] {
        assert_eq!(input(text).code, 2, "{text}");
    }
    assert_eq!(server.noted("starts"), before);
    assert_eq!(input("{\"text\": \"from stdin\"}").stdout, "from stdin\n");
}

#[test]
fn c_30_2_input_can_be_given_to_a_modern_server() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("modern", "", "");
    let ran = server.call(&["s", "ask", "--json"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stdout.contains("\"which\""), "{}", ran.stdout);
    let ran = server.call(&["s", "ask", "--input", "which={\"action\": \"accept\"}"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "{\"which\": {\"action\": \"accept\"}}\n"));
    assert_eq!(server.noted("calls"), ["ask", "ask", "ask"]);
}

#[test]
fn c_30_2_progress_is_printed_only_with_v() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    assert_eq!(server.call(&["s", "slow"]).stderr, "");
    let ran = server.call(&["-v", "s", "slow"]);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("slow\n", "1/3\n2/3\n3/3\n"));
}

#[test]
fn c_30_3_what_is_no_answer_is_an_error_at_once() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "    timeout_ms: 2000\n", "");
    for (how, code, stdout, stderr) in [
        ("nothing", 3, "", "expected `method`, `result` or `error`"),
        ("text", 3, "", "expected an object as `result`"),
        ("empty", 3, "", "expected an object as `result`"),
        ("bytes", 0, "gr\u{fffd}\u{fffd}e\n", ""),
        // JSON.stringify writes half of an emoji so.
        ("surrogate", 0, "a\u{fffd}, \u{1f600}\n", ""),
        ("other ids", 0, "its own\n", ""),
        ("stray", 4, "", "in time; it sent an error for no request: error 7: db is locked"),
        // Its id cannot be read.
        ("deep", 4, "", "did not answer in time; a line of it could not be read: "),
    ] {
        let ran = server.call(&["s", "invalid", "--arg", &format!("how={how}")]);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, stdout), "{how}: {}", ran.stderr);
        assert!(ran.stderr.contains(stderr), "{how}: {}", ran.stderr);
        assert_eq!(ran.stderr.contains("its outcome is unknown"), code != 0, "{how}");
        server.expect_ended();
    }
    // It could not read the call, so it has not begun it.
    let ran = server.call(&["s", "invalid", "--arg", "how=unread"]).expect_code(3);
    assert!(
        ran.stderr.contains("Parse error") && !ran.stderr.contains("unknown"),
        "{}",
        ran.stderr
    );
}

#[test]
fn c_30_9_a_daemon_of_a_server_ends_with_a_lone_call() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    std::fs::remove_file(server.sandbox.path("state/starts")).unwrap();
    server.call(&["s", "daemon"]).expect_code(0);
    assert_eq!(server.noted("starts").len(), 2, "the server and its daemon");
    server.expect_ended();
}

#[test]
fn c_30_3_a_server_that_is_silent_or_absent_is_reported() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::unlocked("silent", "    start_timeout_ms: 300\n", "");
    let ran = server.sandbox.delta(["mcp", "list", "--agent", "agent", "s"]).output();
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    server.expect_ended();
    let list = |command: &[&str]| {
        let arguments = ["mcp", "list", "--"].iter().chain(command).copied();
        server.sandbox.delta(arguments).output()
    };
    let ran = list(&["no-such-program"]);
    assert!(ran.code == 4 && ran.stderr.contains("was not found in PATH"), "{}", ran.stderr);
    let ended = list(&["sh", "-c", "echo why >&2; exit 1"]);
    assert!(ended.code == 4 && ended.stderr.contains("the end of its stderr:\nwhy"), "{ended:?}");
}

#[test]
fn c_30_3_greetings_and_noise_do_not_matter() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("greets", "", "");
    assert_eq!(server.call(&["s", "count"]).stdout, "1\n");
}

#[test]
fn c_30_4_a_server_gets_the_listed_variables_and_no_others() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    env: {EXTRA: '${CWD}'}\n    pass_env: [PASSED]\n";
    let server = Server::locked("", keys, "");
    let arguments = ["mcp", "call", "--agent", "agent", "s", "env"];
    let delta = server.sandbox.delta(arguments);
    let ran = delta
        .env("SECRET", "s")
        .env("PASSED", "p")
        .env("DELTA_API_KEY", "k")
        .env("EDITOR", "e")
        .output();
    let has = |name: &str| ran.stdout.lines().any(|line| line == name);
    // The program that starts Python may add variables of its own.
    for name in ["EXTRA", "HOME", "LANG", "PASSED", "PATH"] {
        assert!(has(name), "{name} is missing: {}", ran.stdout);
    }
    for name in ["SECRET", "DELTA_API_KEY", "DELTA_RUN_ID", "RUN_DIR", "EDITOR"] {
        assert!(!has(name), "{name} was passed on");
    }
}

#[test]
fn c_30_17_arguments_are_checked_and_names_of_the_llm_known() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    let starts = server.noted("starts").len();
    let ran = server.call(&["s", "echo", "--arg", "text=5", "--arg", "times=x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    for expected in ["schema of `echo`", "/text: must be a string, not 5", "/times: must be"] {
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    assert_eq!(server.call(&["s", "s__echo"]).code, 2);
    assert_eq!(server.noted("starts").len(), starts, "nothing was started");
    for (name, expected) in [("odd", "odd.name\n"), ("odd.name", "odd.name\n"), ("s__count", "1\n")]
    {
        assert_eq!(server.call(&["s", name]).stdout, expected, "{name}");
    }
    assert_eq!(server.noted("calls"), ["odd.name", "odd.name", "count"]);
    assert_eq!(server.call(&["s", "s__odd.name"]).code, 6, "it has another name");
}

#[test]
fn c_30_17_the_servers_of_an_agent_are_listed_without_a_start() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::unlocked("hidden", "    tools: [echo, odd.name]\n", "");
    let list = |more: &[&str]| {
        let arguments = ["mcp", "list", "--agent", "agent"].iter().chain(more).copied();
        server.sandbox.delta(arguments).output()
    };
    let ran = list(&[]).expect_code(0);
    assert!(ran.stdout.starts_with("s (not locked): python3 "), "{}", ran.stdout);
    assert_eq!(server.noted("starts"), [""; 0]);
    server.sandbox.delta(["mcp", "lock", "--agent", "agent", "--write"]).output().expect_code(0);
    let starts = server.noted("starts").len();
    let ran = list(&[]).expect_code(0);
    let (first, rest) = ran.stdout.split_once('\n').unwrap();
    assert!(first.starts_with("s: python3 ") && first.ends_with(" hidden"), "{first}");
    assert_eq!(
        rest,
        "  s__echo(text, [times])  Does echo.\\u{200b}\\u{e0041}\n  odd()  Does odd.name.\n"
    );
    let listed = list(&["--json"]).expect_code(0).json();
    let tools = serde_json::json!([{"name": "s__echo", "tool": "echo"}, {"name": "odd", "tool": "odd.name"}]);
    assert_eq!(listed["servers"]["s"]["tools"], tools);
    assert_eq!(server.noted("starts").len(), starts);
    server.sandbox.write(
        "agent/agent.yaml",
        "name: test-agent\nllm: {provider: script, model: script.yaml}\n",
    );
    let ran = list(&[]);
    assert!(ran.code == 126 && ran.stderr.contains("has no MCP servers"), "{ran:?}");
}
