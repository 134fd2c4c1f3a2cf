//! `delta mcp serve` (C-29): an agent as an MCP server.

mod client;
mod crashes;
mod questions;
mod tasks;

pub use client::{Client, run_of, text_of};

use super::DELTA;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::wait::{processes_in, until, until_line};

/// `note` leaves a line in a file; `hold` does so too, and runs until `work/go` exists.
const TOOLS: &str = "  - name: note\n    shell: echo noted >> notes; echo noted\n  \
     - name: hold\n    shell: echo held >> held; until [ -e go ]; do sleep 0.02; done\n";
const NOTING: &str = "- call: [{tool: note}]\n- say: 'done ${last}'\n- say: more\n";
const HOLDING: &str = "- call: [{tool: hold}]\n- say: done\n";

fn serving(turns: &str) -> Sandbox {
    Sandbox::scripted(DELTA, TOOLS, turns)
}

/// The runs of the workspace.
fn run_ids(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("work/.delta")).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// The events of a type in the journal of a run.
fn events_of(sandbox: &Sandbox, run: &str, kind: &str) -> Vec<Value> {
    let journal = sandbox.read(&format!("work/.delta/{run}/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["type"] == kind).collect()
}

/// Waits until nothing works in the sandbox.
fn until_idle(sandbox: &Sandbox) {
    let dir = sandbox.path("");
    until("all processes to end", || processes_in(&dir).is_empty().then_some(()));
}

#[test]
fn c_29_1_both_eras_run_the_agent_and_continue_its_run() {
    for is_modern in [false, true] {
        let sandbox = serving(NOTING);
        let mut client = if is_modern {
            Client::modern(&sandbox, json!({}), &[])
        } else {
            Client::legacy(&sandbox, json!({}), &[])
        };
        let list = client.request("tools/list", json!({}))["result"].clone();
        let names: Vec<&str> = list["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["test-agent", "test-agent_wait", "test-agent_answer", "test-agent_stop"]
        );
        let result = client.call("test-agent", json!({"message": "go"}));
        assert_eq!(text_of(&result), "done noted");
        assert_eq!(result["structuredContent"]["status"], "COMPLETED");
        assert_eq!(result.get("isError"), None);
        let run = run_of(&result);
        let next = client.call("test-agent", json!({"message": "and", "run_id": run}));
        assert_eq!((text_of(&next), run_of(&next)), ("more", run.clone()));
        let waited = client.call("test-agent_wait", json!({"run_id": run}));
        assert_eq!(text_of(&waited), "more");
        for result in [&list, &result, &next, &waited] {
            let kind = is_modern.then(|| json!("complete"));
            assert_eq!(result.get("resultType"), kind.as_ref(), "{result}");
        }
        assert_eq!(sandbox.read("work/notes"), "noted\n");
        // A run like any other.
        sandbox.delta(["show", &run, "-w", "work"]).output().expect_code(0);
        client.close().expect_code(0);
    }
}

#[test]
fn c_29_1_a_modern_request_says_its_version_and_capabilities() {
    let sandbox = serving(NOTING);
    let mut client = Client::modern(&sandbox, json!({}), &[]);
    let found = client.request("server/discover", json!({}))["result"].clone();
    assert_eq!(found["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(found["capabilities"]["extensions"], json!({"io.modelcontextprotocol/tasks": {}}));
    for meta in [
        json!({"io.modelcontextprotocol/protocolVersion": "2030-01-01"}),
        json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}),
    ] {
        let params = json!({"_meta": meta});
        client.send(&json!({"jsonrpc": "2.0", "id": 70, "method": "tools/list", "params": params}));
        let refused = client.answer_to(70);
        let code = refused["error"]["code"].as_i64().unwrap();
        assert!([-32022, -32602].contains(&code), "{refused}");
    }
    for removed in ["initialize", "ping", "logging/setLevel"] {
        assert_eq!(client.request(removed, json!({}))["error"]["code"], -32601, "{removed}");
    }
    client.close();
}

#[test]
fn c_29_1_what_is_no_message_is_refused_and_the_next_one_answered() {
    let sandbox = serving(NOTING);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    client.send_line("{\"jsonrpc\":");
    assert_eq!(client.receive()["error"]["code"], -32700);
    client.send_line("[]");
    assert_eq!(client.receive()["error"]["code"], -32600);
    client.send_line("");
    assert_eq!(client.request("no/such", json!({}))["error"]["code"], -32601);
    let unknown = client.request("tools/call", json!({"name": "test-agent_x"}));
    assert_eq!(unknown["error"]["code"], -32602);
    for arguments in [
        json!({}),
        json!({"message": " "}),
        json!({"message": 5}),
        json!({"message": "x", "more": 1}),
        json!({"message": "x", "run_id": "../../etc"}),
        json!({"message": "x", "run_id": "nosuch"}),
    ] {
        let result = client.call("test-agent", arguments.clone());
        assert_eq!(result["isError"], true, "{arguments}: {result}");
    }
    assert_eq!(
        client.call("test-agent_wait", json!({"run_id": "a", "wait_ms": -1}))["isError"],
        true
    );
    client.close().expect_code(0);
    assert_eq!(run_ids(&sandbox), [""; 0]);
}

#[test]
fn c_29_1_the_name_and_the_options_are_checked() {
    let sandbox = serving(NOTING);
    for arguments in [["--name", "a b"], ["--wait-ms", "x"], ["--max-runs", "0"]] {
        sandbox.delta(["mcp", "serve", "--agent", "agent"]).args(arguments).output().expect_code(2);
    }
    sandbox.delta(["mcp", "serve", "--agent", "nosuch"]).output().expect_code(126);
    let mut client = Client::legacy(&sandbox, json!({}), &["--name", "ask"]);
    assert_eq!(text_of(&client.call("ask", json!({"message": "go"}))), "done noted");
    client.close();
}

#[test]
fn c_29_1_a_failed_run_is_an_error_that_says_how_to_continue() {
    let sandbox = serving("- call: [{tool: note}]\n");
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let failed = client.call("test-agent", json!({"message": "go"}));
    assert_eq!(
        (&failed["isError"], &failed["structuredContent"]["status"]),
        (&json!(true), &json!("FAILED"))
    );
    assert!(text_of(&failed).contains("call test-agent with this run_id"), "{failed}");
    // A run that cannot start says why.
    sandbox.write("agent/agent.yaml", "name: test-agent\nllm: {}\n");
    let refused = client.call("test-agent", json!({"message": "go"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(text_of(&refused).contains("agent.yaml"), "{refused}");
    client.close();
    sandbox.unverified("the agent was changed");
}

#[test]
fn c_29_1_progress_has_one_notification_for_each_iteration() {
    let sandbox = serving(NOTING);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let result = client.call_with(
        json!({"name": "test-agent", "arguments": {"message": "go"}, "_meta": {"progressToken": "p"}}),
    );
    let run = run_of(&result);
    let seen: Vec<(u64, String)> = client
        .notifications
        .iter()
        .map(|message| &message["params"])
        .map(|params| {
            (params["progress"].as_u64().unwrap(), params["message"].as_str().unwrap().to_owned())
        })
        .collect();
    let line = |count, text: &str| (count, text.to_owned());
    assert_eq!(seen, [line(0, &format!("run {run}")), line(1, "note"), line(2, "done noted")]);
    client.close();
}

#[test]
fn c_29_5_a_long_run_is_waited_for_and_stopped_and_continued() {
    let sandbox = serving(HOLDING);
    let mut client = Client::legacy(&sandbox, json!({}), &["--wait-ms", "0", "--max-runs", "1"]);
    let first = client.call("test-agent", json!({"message": "go"}));
    assert!(text_of(&first).contains("still working: call test-agent_wait"), "{first}");
    // Codex shows its LLM the structured content only.
    assert_eq!(first["structuredContent"]["message"], text_of(&first));
    let run = run_of(&first);
    until_line(&sandbox.path("work/held"));
    let busy = client.call("test-agent", json!({"message": "another"}));
    assert!(
        text_of(&busy).contains("1 runs are working") || text_of(&busy).contains("1 run"),
        "{busy}"
    );
    assert_eq!(busy["isError"], true);
    let early = client.call("test-agent", json!({"message": "more", "run_id": run}));
    assert_eq!(early["isError"], true, "{early}");
    let stopped = client.call("test-agent_stop", json!({"run_id": run}));
    let wait = json!({"run_id": run, "wait_ms": 60_000});
    let waited = client.call("test-agent_wait", wait.clone());
    for result in [&stopped, &waited] {
        assert!(
            text_of(result).contains("stopped") || text_of(result).contains("working"),
            "{result}"
        );
    }
    assert_eq!(waited["structuredContent"]["status"], "INTERRUPTED", "{waited}");
    sandbox.write("work/go", "");
    client.call("test-agent", json!({"message": "continue", "run_id": run}));
    assert_eq!(text_of(&client.call("test-agent_wait", wait)), "done");
    assert_eq!(run_ids(&sandbox), [run]);
    client.close().expect_code(0);
}

#[test]
fn c_29_5_a_cancelled_call_stops_its_run_and_a_cancelled_wait_does_not() {
    let sandbox = serving(HOLDING);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let id =
        client.begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
    until_line(&sandbox.path("work/held"));
    let run = run_ids(&sandbox).pop().unwrap();
    let wait = json!({"name": "test-agent_wait", "arguments": {"run_id": run}});
    let cancel = |client: &mut Client, id: i64| {
        let params = json!({"requestId": id});
        client.send(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
        );
    };
    let waiting = client.begin("tools/call", wait.clone());
    cancel(&mut client, waiting);
    let still = client.call("test-agent_wait", json!({"run_id": run, "wait_ms": 0}));
    assert_eq!(still["structuredContent"]["status"], "RUNNING", "{still}");
    cancel(&mut client, id);
    let stopped = client.call_with(wait);
    assert_eq!(stopped["structuredContent"]["status"], "INTERRUPTED", "{stopped}");
    client.close();
    until_idle(&sandbox);
}

#[test]
fn c_29_5_runs_end_with_the_client_unless_they_keep_going() {
    for signals in [false, true] {
        let sandbox = serving(HOLDING);
        let mut client = Client::legacy(&sandbox, json!({}), &[]);
        client.begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
        until_line(&sandbox.path("work/held"));
        if signals {
            let pid = Pid::from_raw(i32::try_from(client.pid()).unwrap()).unwrap();
            kill_process(pid, Signal::TERM).unwrap();
        }
        client.close().expect_code(0);
        until_idle(&sandbox);
        let run = run_ids(&sandbox).pop().unwrap();
        let line = format!("Interrupted run {run}. Continue with: delta continue --run-id {run}");
        assert!(sandbox.read("server.err").contains(&line), "{}", sandbox.read("server.err"));
        assert_eq!(events_of(&sandbox, &run, "ENGINE_END")[0]["status"], "INTERRUPTED");
        sandbox.write("work/go", "");
        let mut next = Client::legacy(&sandbox, json!({}), &[]);
        // The next server continues it.
        assert_eq!(text_of(&next.call("test-agent_wait", json!({"run_id": run}))), "done");
        next.close();
    }
    let sandbox = serving(HOLDING);
    let mut client = Client::legacy(&sandbox, json!({}), &["--keep-going"]);
    client.begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
    until_line(&sandbox.path("work/held"));
    client.close().expect_code(0);
    let run = run_ids(&sandbox).pop().unwrap();
    assert_eq!(sandbox.read("server.err"), format!("Run {run} keeps working.\n"));
    let mut next = Client::legacy(&sandbox, json!({}), &["--keep-going"]);
    let working = next.call("test-agent_wait", json!({"run_id": run, "wait_ms": 0}));
    assert_eq!(working["structuredContent"]["status"], "RUNNING", "{working}");
    sandbox.write("work/go", "");
    assert_eq!(text_of(&next.call("test-agent_wait", json!({"run_id": run}))), "done");
    next.close();
    assert_eq!(sandbox.read("work/held"), "held\n");
    until_idle(&sandbox);
}

#[test]
fn c_29_6_a_run_of_another_agent_or_of_nobody_is_not_touched() {
    let sandbox = serving(NOTING);
    sandbox.write("other/system_prompt.md", "You are another.\n");
    sandbox.write("other/context.yaml", test_support::sandbox::CONTEXT);
    sandbox.write(
        "other/agent.yaml",
        "name: other\nllm:\n  provider: script\n  model: s.yaml\ntools: []\n",
    );
    sandbox.write("other/s.yaml", "turns:\n- say: theirs\n- say: again\n");
    let words = ["run", "--agent", "other", "-w", "work", "--run-id", "r", "-m", "x", "-q"];
    sandbox.delta(words).output().expect_code(0);
    // A run of the served agent, with the seal of another operator, that waits.
    let script = sandbox.read("agent/script.yaml");
    let asking = "turns:\n- call: [{tool: ask_human, args: {prompt: theirs}}]\n";
    sandbox.write("agent/script.yaml", asking);
    let words = ["run", "--agent", "agent", "-w", "work", "--run-id", "f", "-m", "theirs", "-q"];
    sandbox.delta(words).env("HOME", sandbox.path("elsewhere")).output().expect_code(101);
    sandbox.write("agent/script.yaml", script);
    let journals =
        || ["r", "f"].map(|run| sandbox.read(&format!("work/.delta/{run}/journal.jsonl")));
    let before = journals();
    let mut client =
        Client::modern(&sandbox, json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}), &[]);
    for (tool, arguments) in [
        ("test-agent", json!({"run_id": "r", "message": "x"})),
        ("test-agent_wait", json!({"run_id": "r"})),
        ("test-agent_answer", json!({"run_id": "r", "answer": "x"})),
        ("test-agent", json!({"run_id": "f", "message": "x"})),
        ("test-agent_wait", json!({"run_id": "f"})),
        ("test-agent_answer", json!({"run_id": "f", "answer": "x"})),
        ("test-agent_wait", json!({"run_id": "nosuch"})),
    ] {
        let result = client.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        assert!(!result.to_string().contains("theirs"), "{result}");
    }
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        for task in ["r", "f", "nosuch", "../r"] {
            let params = json!({"taskId": task, "inputResponses": {}});
            assert_eq!(client.request(method, params)["error"]["code"], -32602, "{method} {task}");
        }
    }
    client.close();
    assert_eq!(journals(), before);
}
