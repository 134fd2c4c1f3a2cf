//! Tools of MCP servers in runs: one server for a run, its end, its death, and what of a call is recorded.

use super::{Server, turn};
use rustix::process::{Pid, Signal, kill_process};
use test_support::needs;

#[test]
fn c_30_9_one_server_for_a_run_and_none_after_it() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let turns = turn(&[("count", ""), ("count", ""), ("echo", "text: hello, times: 2")]);
    let server = Server::locked("", "", &turns);
    let before = server.noted("starts").len();
    server.run().expect_code(0);
    assert_eq!(server.sandbox.observations(), ["1\n", "2\n", "hellohello\n"]);
    assert_eq!(server.noted("starts").len(), before + 1);
    server.expect_ended();
    assert_eq!(server.noted("ends").len(), before + 1, "the input of the server ended");
    let start = &server.sandbox.events("ENGINE_START")[0];
    assert_eq!(start["config"]["mcp"]["s"].as_str().map(str::len), Some(64));
    let request = &server.sandbox.events("ACTION_REQUEST")[0];
    assert_eq!(request["argv"], serde_json::json!(["delta", "mcp", "call", "s", "count"]));
}

#[test]
fn c_30_9_a_run_without_a_call_starts_no_server() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    let before = server.noted("starts").len();
    server.run().expect_code(0);
    assert_eq!(server.noted("starts").len(), before);
    // The arguments are checked before anything is started.
    let server = Server::locked("", "", &turn(&[("echo", "text: 5"), ("echo", "times: 1")]));
    let before = server.noted("starts").len();
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    assert!(observations[0].contains("/text: must be a string, not 5"), "{}", observations[0]);
    assert!(observations[1].contains("it was not run"), "{}", observations[1]);
    assert_eq!(server.noted("starts").len(), before);
}

#[test]
fn c_30_10_a_server_that_dies_is_started_again_and_no_call_is_repeated() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let turns = turn(&[("count", ""), ("die", ""), ("count", ""), ("count", "")]);
    let server = Server::locked("", "", &turns);
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    assert!(observations[1].contains("its outcome is unknown"), "{}", observations[1]);
    assert!(observations[1].contains("[exit code: 4]"), "{}", observations[1]);
    let note = "[the server s was started again: what it held in memory is gone]\n1\n";
    assert_eq!(observations[2], note);
    assert_eq!(observations[3], "2\n");
    assert_eq!(server.noted("calls"), ["count", "die", "count", "count"]);
    server.expect_ended();
}

#[test]
fn c_30_10_the_timeout_of_a_call_cancels_it_and_keeps_the_server() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    timeout_ms: 3000\n";
    let server = Server::locked("", keys, &turn(&[("count", ""), ("hang", ""), ("count", "")]));
    let before = server.noted("starts").len();
    server.run().expect_code(0);
    assert_eq!(server.sandbox.observations()[2], "2\n");
    assert_eq!(server.noted("cancelled").len(), 1);
    // The end of the call is noticed although the server is alive.
    let duration = server.sandbox.events("ACTION_RESULT")[1]["duration_ms"].as_u64().unwrap();
    assert!(duration < 8000, "{duration} ms");
    assert_eq!(server.noted("starts").len(), before + 1);
}

#[test]
fn c_30_3_a_call_of_a_run_that_times_out_has_the_reason() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let turns = turn(&[("count", ""), ("invalid", "how: broken"), ("hold", "")]);
    let server = Server::locked("", "    timeout_ms: 3000\n", &turns);
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    let reason = "; a line of it could not be read: expected a JSON";
    assert!(observations[1].contains(reason), "{}", observations[1]);
    for observation in &observations[1..] {
        let rest = "\nthe call was sent, and its outcome is unknown\n[timed out after 3000 ms]";
        // The call ends itself or is ended, whichever is first.
        let words =
            ["error: the server had not answered", "error: the server did not answer in time"];
        assert!(words.iter().any(|words| observation.contains(words)), "{observation}");
        assert!(observation.ends_with(rest), "{observation}");
    }
}

#[test]
fn c_30_3_a_call_of_a_run_that_is_interrupted_has_the_reason() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", &turn(&[("hold", "")]));
    let mut run = server.start_until_called("hold");
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(130));
    let observations = server.sandbox.observations();
    assert!(observations[0].contains("error: the server had not answered"), "{observations:?}");
}

#[test]
fn c_30_11_results_are_limited_and_images_are_files() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    max_output_bytes: 100\n";
    let turns = turn(&[("large", "bytes: 3000000"), ("image", ""), ("error", "")]);
    let server = Server::locked("", keys, &turns);
    server.run().expect_code(0);
    let observations = server.sandbox.observations();
    assert!(observations[0].len() < 1000, "{}", observations[0].len());
    let stored = server.sandbox.files("work").into_iter().find(|file| file.ends_with(".png"));
    let stored = stored.expect("the image is in the run directory");
    assert!(stored.contains("/io/mcp/"), "{stored}");
    let text = format!(
        "[image: image/png, 8 bytes: {}]\n",
        server.sandbox.path("work").join(&stored).display()
    );
    assert_eq!(observations[1], text);
    assert!(observations[2].starts_with("it did not work\n"), "{}", observations[2]);
}

#[test]
fn c_30_12_calls_ask_for_approval_like_those_of_other_tools() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    approve: [{match: {text: '^safe'}, do: allow}, {do: ask}]\n";
    let turns = turn(&[("echo", "text: safe"), ("echo", "text: other")]);
    let server = Server::locked("", keys, &turns);
    assert_eq!(server.run().code, 101);
    assert_eq!(server.noted("calls"), ["echo"]);
    server.expect_ended();
    let run = server.sandbox.metadata()["run_id"].as_str().unwrap().to_owned();
    server.sandbox.delta(["approve", run.as_str(), "-w", "work"]).output().expect_code(0);
    assert_eq!(server.noted("calls"), ["echo", "echo"]);
    let observations = server.sandbox.observations();
    assert!(observations[1].ends_with("other\n"), "{}", observations[1]);
    server.expect_ended();
    // A rule for a parameter that no tool has would never apply.
    let agent =
        server.sandbox.read("agent/agent.yaml").replace("{text: '^safe'}", "{txt: '^safe'}");
    server.sandbox.write("agent/agent.yaml", agent);
    let ran = server.run().expect_code(126);
    assert!(ran.stderr.contains("unknown parameter `txt` in `approve` of the MCP server"));
    assert!(ran.stderr.contains("help: did you mean `text`?"), "{}", ran.stderr);
}

#[test]
fn c_30_13_imports_bring_servers() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", &turn(&[("count", "")]));
    let agent = std::fs::read_to_string(server.sandbox.path("agent/agent.yaml")).unwrap();
    let (head, servers) = agent.split_once("mcp:").unwrap();
    server.sandbox.write("agent/agent.yaml", format!("{head}imports: [servers.yaml]\n"));
    server.sandbox.write("agent/servers.yaml", format!("mcp:{servers}"));
    server.run().expect_code(0);
    assert_eq!(server.sandbox.observations(), ["1\n"]);
}
