//! mcp.lock.json: what the LLM is told, and what is never called.

use super::{Server, turn};
use test_support::needs;

fn lock(server: &Server, more: &[&str]) -> test_support::sandbox::Ran {
    let arguments = ["mcp", "lock", "--agent", "agent"].iter().chain(more).copied();
    server.sandbox.delta(arguments).output()
}

#[test]
fn c_30_5_a_lock_is_looked_at_and_then_written() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::unlocked("", "", &turn(&[("count", "")]));
    let ran = server.run();
    assert_eq!(ran.code, 126, "{}", ran.stderr);
    assert!(ran.stderr.contains("the MCP server `s` is not locked"), "{}", ran.stderr);
    assert!(ran.stderr.contains("delta mcp lock --agent"), "{}", ran.stderr);
    assert_eq!(server.noted("starts"), [""; 0]);
    let ran = lock(&server, &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.starts_with("--- a/mcp.lock.json\n+++ b/mcp.lock.json\n"), "{}", ran.stdout);
    assert!(!server.sandbox.path("agent/mcp.lock.json").exists());
    assert_eq!(lock(&server, &["--write"]).code, 0);
    let ran = lock(&server, &["s"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    server.run().expect_code(0);
}

#[test]
fn c_30_5_a_changed_command_or_an_edited_file_is_refused() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    let path = "agent/mcp.lock.json";
    let text = std::fs::read_to_string(server.sandbox.path(path)).unwrap();
    server.sandbox.write(path, text.replace("Does count.", "Does something else."));
    let ran = server.run();
    assert_eq!(ran.code, 126);
    assert!(ran.stderr.contains("`count` does not match its `sha256`"), "{}", ran.stderr);
    server.sandbox.write(path, text.replace("python3", "python4"));
    let ran = server.run();
    assert_eq!(ran.code, 126);
    assert!(ran.stderr.contains("locked with another `command` or `url`"), "{}", ran.stderr);
    for damaged in ["{}", "<<<<<<< HEAD\n", &text[..text.len() / 2]] {
        server.sandbox.write(path, damaged);
        let ran = server.run().expect_code(126);
        assert!(ran.stderr.contains("run `delta mcp lock --agent DIR`"), "{}", ran.stderr);
        // That command named itself as the remedy.
        let ran = lock(&server, &[]).expect_code(1);
        assert!(ran.stderr.starts_with("warning: could not use the lock file: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("help: restore the file"), "{}", ran.stderr);
        assert!(ran.stdout.contains("+      \"command\""), "{}", ran.stdout);
        assert_eq!(server.sandbox.read(path), damaged);
        assert_eq!(lock(&server, &["--write"]).code, 0);
    }
    assert_eq!(server.run().code, 0);
}

#[test]
fn c_30_6_a_description_that_changed_is_never_called() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("changes", "", &turn(&[("echo", "text: a"), ("count", "")]));
    let ran = server.run();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let observations = server.sandbox.observations();
    let expected =
        "the server `s` now describes `echo` in another way than was locked; it was not called";
    assert!(observations[0].contains(expected), "{}", observations[0]);
    assert!(observations[0].contains("[exit code: 6]"), "{}", observations[0]);
    assert!(!observations[0].contains("--write"), "the LLM is not told how to accept it");
    assert_eq!(observations[1], "1\n");
    assert_eq!(server.noted("calls"), ["count"]);
    let ran = lock(&server, &[]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stdout.contains("+          \"description\": \"Sends everything"),
        "{}",
        ran.stdout
    );
}

#[test]
fn c_30_6_a_list_that_changes_during_a_run_is_checked_again() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let turns = turn(&[("count", ""), ("relist", ""), ("count", ""), ("echo", "text: a")]);
    let server = Server::locked("", "", &turns);
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    assert_eq!(observations[..2], ["1\n", "relisted\n"]);
    assert!(observations[2].contains("[exit code: 6]"), "{}", observations[2]);
    assert_eq!(observations[3], "a\n");
    assert_eq!(server.noted("calls"), ["count", "relist", "echo"]);
}

#[test]
fn c_30_7_hidden_characters_are_visible_in_the_lock() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::unlocked("hidden", "", "");
    let ran = lock(&server, &["--write"]);
    assert!(ran.stdout.contains("Does echo.\\u200b\\udb40\\udc41"), "{}", ran.stdout);
    let warning =
        "warning: the definition of `echo` of the server `s` has characters that only the LLM sees";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    let text = std::fs::read_to_string(server.sandbox.path("agent/mcp.lock.json")).unwrap();
    assert!(text.contains("Does echo.\\u200b\\udb40\\udc41"));
    let starts = server.noted("starts");
    let ran = server.sandbox.delta(["tool", "lint", "agent"]).output();
    assert!(
        ran.stdout.contains("error[mcp-hidden-text]: the definition of `s__echo`"),
        "{}",
        ran.stdout
    );
    assert_eq!(server.noted("starts"), starts, "lint starts nothing");
}

/// Such a tool answers every call of delta with an error.
#[test]
fn c_30_5_a_tool_that_needs_tasks_of_an_old_version_is_named() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for (options, is_named) in [("experiments", true), ("experiments modern", false)] {
        let server = Server::unlocked(options, "", "");
        let ran = lock(&server, &["--write"]).expect_code(0);
        let warning = "warning: `count` of the server `s` can only be called as a task";
        assert_eq!(ran.stderr.contains(warning), is_named, "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("warning").count(), usize::from(is_named));
    }
}

/// The endpoint refused every request of the agent, and nothing had said so.
#[test]
fn c_30_5_a_parameter_that_an_endpoint_refuses_is_named() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::unlocked("odd-names", "", "");
    let ran = lock(&server, &["--write"]).expect_code(0);
    for name in
        ["the parameter `$filter` of `search` of the server `s`", "` of `page` of the server"]
    {
        assert_eq!(ran.stderr.matches(name).count(), 1, "{}", ran.stderr);
    }
    assert_eq!(ran.stderr.matches("warning: ").count(), 2, "{}", ran.stderr);
    let server = Server::unlocked("odd-names", "    tools: [count]\n", "");
    let ran = lock(&server, &["--write"]).expect_code(0);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
}

/// Whoever locks a server reads at once what every run would end with.
#[test]
fn c_30_5_a_lock_that_no_run_begins_with_is_named() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::unlocked("unusable", "", "");
    let locked = lock(&server, &["--write"]).expect_code(0);
    let run = server.run();
    assert_eq!(run.code, 126, "{}", run.stderr);
    let reasons = [
        "the MCP server `s` offers two tools named `count`",
        "leave both out: name the other tools in `tools:`",
        "the schema of `remote` of the MCP server `s`",
    ];
    for reason in reasons {
        assert_eq!(locked.stderr.matches(reason).count(), 1, "{}", locked.stderr);
        assert_eq!(run.stderr.matches(reason).count(), 1, "{}", run.stderr);
    }
    assert!(!run.stderr.contains("rename"), "{}", run.stderr);
    assert_eq!(locked.stderr.matches("warning: ").count(), 2, "{}", locked.stderr);
}

#[test]
fn c_30_8_names_are_chosen_by_the_author() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    tools: [echo, odd.name]\n";
    let server = Server::locked("", keys, "");
    server.run().expect_code(0);
    let start = &server.sandbox.events("ENGINE_START")[0];
    assert_eq!(start["config"]["tools"], serde_json::json!(["s__echo", "odd"]));
    let agent = std::fs::read_to_string(server.sandbox.path("agent/agent.yaml")).unwrap();
    let with = |before: &str, after: &str| {
        server.sandbox.write("agent/agent.yaml", agent.replace(before, after));
        let ran = server.run();
        assert_eq!(ran.code, 126, "{after}");
        ran.stderr
    };
    let cases = [
        ("rename: {odd.name: odd}", "idempotent: []", "`s__odd.name` is not a tool name"),
        ("{odd.name: odd}", "{odd.name: finish}", "`finish` is a tool of delta itself"),
        ("{odd.name: odd}", "{odd.name: s__echo}", "two tools are named `s__echo`"),
        ("[echo, odd.name]", "[ecko, odd.name]", "did you mean `echo`?"),
        ("{odd.name: odd}", "{odd.nam: odd}", "names `odd.nam`, which is not locked"),
        ("  s:\n", "  S:\n", "`S` is not the name of a server"),
    ];
    for (before, after, expected) in cases {
        let stderr = with(before, after);
        assert!(stderr.contains(expected), "{after}: {stderr}");
    }
}
