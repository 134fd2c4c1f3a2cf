//! The server, its holder, the call and the engine, killed at each step of a call: no call is sent twice, and no process is
//! left.

use super::{DELTA, Server, turn};
use std::process::Child;
use test_support::needs;
use test_support::wait::until;

/// A process that can die.
const ENGINE: &str = "delta run";
const HOLDER: &str = "delta mcp hold s";
const CALL: &str = "delta mcp call s ";
const SERVER: &str = "server.py";

/// A tool of the agent itself that is under way until everything is released.
const GATE: &str = "tools:\n  - {name: gate, shell: 'touch ../state/gate; until [ -e ../state/release ]; do sleep 0.02; done'}\n";

/// Kills a process of a run, lets the run come to its end, and returns what the engine observed.
fn end_after_kill(server: &Server, mut run: Child, victim: &str) -> Vec<String> {
    if victim == ENGINE {
        run.kill().unwrap();
        run.wait().unwrap();
        // What has the engine as its parent dies with it; what it was told to end is found by the next process.
        server.release();
        server.resume().expect_code(0);
    } else {
        server.kill(victim);
        server.release();
        assert!(run.wait().unwrap().success(), "{victim}");
    }
    server.until_nothing_runs();
    server.sandbox.observations()
}

#[test]
fn c_30_10_a_call_is_sent_once_whoever_dies_during_it() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for options in ["", "modern"] {
        for victim in [SERVER, HOLDER, CALL, ENGINE] {
            let server = Server::locked(options, "", &turn(&[("hold", ""), ("count", "")]));
            let run = server.start_until_called("hold");
            let observations = end_after_kill(&server, run, victim);
            assert_eq!(server.noted("calls"), ["hold", "count"], "{victim}");
            let expected = match victim {
                SERVER | HOLDER => "its outcome is unknown\n[exit code: 4]",
                CALL => "[killed by SIGKILL]",
                _ => "whether it took effect is unknown, and it was not run again",
            };
            assert!(observations[0].contains(expected), "{victim}: {}", observations[0]);
            assert!(observations[1].ends_with("1\n"), "{victim}: {}", observations[1]);
            let was_restarted = observations[1].starts_with("[the server s was started again");
            assert_eq!(was_restarted, options.is_empty() && victim != CALL, "{victim}");
        }
    }
}

#[test]
fn c_30_10_what_dies_between_calls_is_started_again() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for victim in [SERVER, HOLDER, ENGINE] {
        let turns = format!(
            "{}\n- call: [{{tool: gate}}]\n{}",
            turn(&[("count", "")]),
            turn(&[("count", "")])
        );
        let server = Server::locked("", GATE, &turns);
        let run = server.sandbox.run_command("go", &[]).spawn();
        until("the gate", || server.sandbox.path("state/gate").exists().then_some(()));
        let observations = end_after_kill(&server, run, victim);
        assert_eq!(server.noted("calls"), ["count", "count"], "{victim}");
        let note = "[the server s was started again: what it held in memory is gone]\n1\n";
        assert_eq!((observations[0].as_str(), observations[2].as_str()), ("1\n", note), "{victim}");
    }
}

/// As the call of the engine does where the engine has not noticed yet that the holder is dead.
#[test]
fn c_30_10_a_call_without_its_holder_says_that_the_server_is_another() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let tool = GATE.replace("; done'", &format!("; done; {DELTA} mcp call s count'"));
    let turns = format!("{}\n- call: [{{tool: gate}}]", turn(&[("count", "")]));
    let server = Server::locked("", &tool, &turns);
    let run = server.sandbox.run_command("go", &[]).spawn();
    until("the gate", || server.sandbox.path("state/gate").exists().then_some(()));
    let observations = end_after_kill(&server, run, HOLDER);
    let note = "[the server s was started again: what it held in memory is gone]\n1\n";
    assert_eq!(observations, ["1\n", note]);
}

#[test]
fn c_30_10_what_dies_while_the_server_starts_has_sent_nothing() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for victim in [SERVER, HOLDER, CALL, ENGINE] {
        let server = Server::locked("waits", "", &turn(&[("count", ""), ("count", "")]));
        let starts = server.noted("starts").len();
        let run = server.sandbox.run_command("go", &[]).spawn();
        until("the start", || (server.noted("starts").len() > starts).then_some(()));
        let observations = end_after_kill(&server, run, victim);
        assert_eq!(server.noted("calls"), ["count"], "{victim}");
        assert!(!observations[0].starts_with('1'), "{victim}: {}", observations[0]);
        assert!(observations[1].ends_with("1\n"), "{victim}: {}", observations[1]);
    }
}

#[test]
fn c_30_10_only_a_call_that_may_run_again_is_sent_again() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    idempotent: [hold]\n";
    let server = Server::locked("", keys, &turn(&[("hold", ""), ("count", "")]));
    let run = server.start_until_called("hold");
    let observations = end_after_kill(&server, run, ENGINE);
    assert_eq!(server.noted("calls"), ["hold", "hold", "count"]);
    assert!(observations[0].ends_with("held\n"), "{}", observations[0]);
    // The word of the author is about a dead engine; a live one tells the LLM what happened.
    let server = Server::locked("", keys, &turn(&[("hold", ""), ("count", "")]));
    let run = server.start_until_called("hold");
    let observations = end_after_kill(&server, run, SERVER);
    assert_eq!(server.noted("calls"), ["hold", "count"]);
    assert!(observations[0].contains("its outcome is unknown"), "{}", observations[0]);
}

/// A server whose parent dies notices the end of its input late or never, as programs behind `npx` do.
#[test]
fn c_30_9_no_descendant_of_a_server_is_left() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for victim in [HOLDER, ENGINE] {
        let server = Server::unlocked("", "", &turn(&[("hold", ""), ("count", "")]));
        let agent = server.sandbox.read("agent/agent.yaml");
        let behind_shell = agent
            .replace("command: [python3, ", "command: [sh, -c, \'\"$@\"; exit 0\', sh, python3, ");
        assert_ne!(agent, behind_shell);
        server.sandbox.write("agent/agent.yaml", behind_shell);
        server
            .sandbox
            .delta(["mcp", "lock", "--agent", "agent", "--write"])
            .output()
            .expect_code(0);
        let run = server.start_until_called("hold");
        end_after_kill(&server, run, victim);
        assert_eq!(server.noted("calls"), ["hold", "count"], "{victim}");
    }
}
