//! Calls of tools that the author calls `parallel`: the server has them at the same time, and their answers come in any order.

use super::{Server, turn};
use test_support::needs;
use test_support::wait::until;

const PARALLEL: &str = "    parallel: [meet, count, job]\n";

/// Calls of `meet`, each with its group and the size of the group; the answer of one is its number.
fn meetings(groups: &[(&str, usize)]) -> String {
    let numbered = groups.iter().enumerate();
    let arguments: Vec<String> = numbered
        .map(|(number, (group, size))| format!("group: {group}, size: {size}, text: n{number}"))
        .collect();
    turn(&arguments.iter().map(|arguments| ("meet", arguments.as_str())).collect::<Vec<_>>())
}

fn until_called(server: &Server, count: usize) {
    until("the calls", || (server.noted("calls").len() == count).then_some(()));
}

#[test]
fn c_30_18_calls_of_parallel_tools_are_with_the_server_at_the_same_time() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for options in ["", "modern"] {
        let groups = [("a", 3), ("b", 1), ("a", 3), ("a", 3)];
        let server = Server::locked(options, PARALLEL, &meetings(&groups));
        server.run().expect_code(0);
        assert_eq!(server.sandbox.observations(), ["n0\n", "n1\n", "n2\n", "n3\n"]);
        assert_eq!(server.noted("starts").len(), 2, "one for the lock, one for the run");
        server.until_nothing_runs();
    }
}

#[test]
fn c_30_18_without_the_word_of_the_author_a_server_has_one_call_at_a_time() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    timeout_ms: 4000\n    parallel: [count]\n";
    let server = Server::locked("", keys, &meetings(&[("a", 2), ("a", 2)]));
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    assert!(observations[0].contains("[timed out after "), "{}", observations[0]);
    assert_eq!(observations[1], "n1\n");
}

#[test]
fn c_30_18_a_call_that_is_late_does_not_disturb_the_others() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = format!("    timeout_ms: 4000\n{PARALLEL}");
    let turns = format!("{}\n{}", meetings(&[("late", 2), ("b", 1)]), turn(&[("count", "")]));
    let server = Server::locked("", &keys, &turns);
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    assert!(observations[0].contains("[timed out after "), "{}", observations[0]);
    assert_eq!(observations[1..], ["n1\n", "1\n"]);
    let cancelled = server.noted("notifications");
    assert_eq!(cancelled.iter().filter(|it| *it == "notifications/cancelled").count(), 1);
    assert_eq!(server.noted("starts").len(), 2, "the server lived on");
}

#[test]
fn c_30_18_whoever_dies_no_simultaneous_call_is_sent_twice() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for victim in ["server.py", "delta mcp hold s", "delta run"] {
        let turns = format!("{}\n{}", meetings(&[("a", 9); 3]), turn(&[("count", "")]));
        let server = Server::locked("", PARALLEL, &turns);
        let mut run = server.sandbox.run_command("go", &[]).spawn();
        until_called(&server, 3);
        if victim == "delta run" {
            run.kill().unwrap();
            run.wait().unwrap();
            server.resume().expect_code(0);
        } else {
            server.kill(victim);
            assert!(run.wait().unwrap().success(), "{victim}");
        }
        server.until_nothing_runs();
        assert_eq!(server.noted("calls"), ["meet", "meet", "meet", "count"], "{victim}");
        let observations = server.sandbox.observations();
        for observation in &observations[..3] {
            assert!(observation.contains("unknown"), "{victim}: {observation}");
        }
        assert!(observations[3].ends_with("1\n"), "{victim}: {}", observations[3]);
    }
}

#[test]
fn c_30_18_simultaneous_tasks_survive_the_engine() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let turns = format!("{}\n{}", turn(&[("job", ""), ("job", "")]), turn(&[("count", "")]));
    let server = Server::locked("modern", PARALLEL, &turns);
    let mut run = server.sandbox.run_command("go", &[]).spawn();
    server.until_noted("gets", "task 1");
    server.until_noted("gets", "task 2");
    run.kill().unwrap();
    run.wait().unwrap();
    server.release();
    server.resume().expect_code(0);
    let mut results = server.sandbox.observations();
    results.sort_unstable();
    assert_eq!(results[1..], ["result of task 1\n", "result of task 2\n"]);
    let calls = server.noted("calls");
    assert_eq!(calls.iter().filter(|it| *it == "job").count(), 2, "{calls:?}");
    server.until_nothing_runs();
}

#[test]
fn c_30_18_a_name_that_is_not_locked_is_an_error() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    let agent = server.sandbox.read("agent/agent.yaml");
    server.sandbox.write("agent/agent.yaml", agent + "    parallel: [coun]\n");
    let ran = server.run();
    assert!(
        ran.code == 126 && ran.stderr.contains("`parallel` of the MCP server `s` names `coun`")
    );
    assert!(ran.stderr.contains("did you mean `count`?"), "{}", ran.stderr);
}
