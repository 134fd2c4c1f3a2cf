//! Calls that become tasks of a server: polled, and never sent again.

use super::{Server, turn};
use test_support::needs;
use test_support::wait::until;

const OUTCOME_UNKNOWN: &str = "its outcome is unknown";

fn count_of(server: &Server, name: &str) -> usize {
    server.noted(name).len()
}

#[test]
fn c_30_15_a_task_is_polled_to_its_end() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("modern", "", "");
    let mut call = server.sandbox.delta(["mcp", "call", "--agent", "agent", "s", "job"]).spawn();
    server.until_noted("gets", "task 1");
    server.release();
    assert!(call.wait().unwrap().success());
    assert_eq!(
        (server.noted("calls"), server.noted("tasks")),
        (vec!["job".into()], vec!["task 1".into()])
    );
    server.expect_ended();
}

#[test]
fn c_30_15_a_task_survives_the_engine_and_its_result_is_taken_once() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for keys in ["", "    idempotent: [job]\n"] {
        let server = Server::locked("modern", keys, &turn(&[("job", ""), ("count", "")]));
        let mut run = server.sandbox.run_command("go", &[]).spawn();
        server.until_noted("gets", "task 1");
        run.kill().unwrap();
        run.wait().unwrap();
        server.release();
        server.resume().expect_code(0);
        assert_eq!(server.noted("calls"), ["job", "count"], "the call was not sent again");
        assert_eq!(server.sandbox.observations(), ["result of task 1\n", "1\n"]);
        assert_eq!(server.sandbox.events("ACTION_RESULT").len(), 2);
        assert_eq!(count_of(&server, "cancelled"), 0);
        server.until_nothing_runs();
    }
}

#[test]
fn c_30_15_a_task_survives_its_server_and_every_engine() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("modern", "", &turn(&[("job", "")]));
    let mut run = server.sandbox.run_command("go", &[]).spawn();
    let tries = ["continue", "r", "-w", "work"];
    for _ in 0..2 {
        server.until_noted("gets", "task 1");
        let polls = count_of(&server, "gets");
        server.kill("server.py");
        until("a poll of a new server", || (count_of(&server, "gets") > polls).then_some(()));
        run.kill().unwrap();
        run.wait().unwrap();
        run = server.sandbox.delta(tries).spawn();
    }
    server.release();
    assert!(run.wait().unwrap().success());
    assert_eq!(server.noted("calls"), ["job"]);
    assert_eq!(server.sandbox.observations(), ["result of task 1\n"]);
    server.until_nothing_runs();
}

#[test]
fn c_30_15_a_task_that_the_server_forgot_is_not_called_again() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("modern forgets", "", &turn(&[("job", ""), ("count", "")]));
    let mut run = server.sandbox.run_command("go", &[]).spawn();
    server.until_noted("gets", "task 1");
    run.kill().unwrap();
    run.wait().unwrap();
    server.release();
    server.resume().expect_code(0);
    assert_eq!(server.noted("calls"), ["job", "count"]);
    let observations = server.sandbox.observations();
    assert!(observations[0].contains("no such task"), "{}", observations[0]);
    assert!(observations[0].contains(OUTCOME_UNKNOWN), "{}", observations[0]);
    server.until_nothing_runs();
}

#[test]
fn c_30_15_the_end_of_a_task_has_an_exit_code() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let cases = [
        ("fails", 3, "error -32603: the job failed"),
        ("cancels", 3, "the server has cancelled the task"),
        ("asks", 5, "asks for input"),
    ];
    for (options, code, expected) in cases {
        let server = Server::locked(&format!("modern {options}"), "", "");
        let ran = server.call(&["s", "job"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{options}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{options}: {}", ran.stderr);
        assert_eq!(count_of(&server, "cancelled"), usize::from(options == "asks"), "{options}");
    }
    let server = Server::locked("modern asks", "", "");
    server.release();
    let ran = server.call(&["s", "job", "--input", "which={\"action\": \"accept\"}"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "result of task 1\n"), "{}", ran.stderr);
}

#[test]
fn c_30_15_a_task_ends_with_the_patience_of_its_caller() {
    if !needs::programs(&["python3"]) {
        return;
    }
    // The first call starts the server, which may take a while.
    let turns = turn(&[("count", ""), ("job", ""), ("count", "")]);
    let server = Server::locked("modern", "    timeout_ms: 3000\n", &turns);
    server.run().expect_code(0);
    assert_eq!(server.sandbox.observations()[2], "2\n");
    assert_eq!(server.noted("cancelled"), ["task 2"]);
    // Outside of a run, the command itself gives up.
    let ran = server.call(&["s", "job"]);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("did not end in time"), "{}", ran.stderr);
    assert!(ran.stderr.contains(OUTCOME_UNKNOWN), "{}", ran.stderr);
    assert_eq!(count_of(&server, "cancelled"), 2);
}

#[test]
fn c_30_15_a_script_with_several_calls_gets_the_result_of_each() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let tools = "tools:\n  - {name: two, shell: 'delta mcp call s job; delta mcp call s job'}\n";
    let turns = format!("{}\n- call: [{{tool: two}}]", turn(&[("count", "")]));
    let server = Server::locked("modern", tools, &turns);
    server.release();
    let bin = server.sandbox.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(super::DELTA, bin.join("delta")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    server.sandbox.run_command("go", &[]).env("PATH", path).output().expect_code(0);
    assert_eq!(server.sandbox.observations()[1], "result of task 2\nresult of task 3\n");
}
