//! Questions and approvals of a served agent (C-29.3).

use super::client::{Client, run_of, text_of};
use super::{DELTA, events_of, run_ids, serving};
use crate::staged_calls;
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;

const ASKING: &str = "- call: [{tool: ask_human, args: {prompt: Which?}}]\n- say: 'got ${last}'\n";
const CONFIRMING: &str = "- call: [{tool: ask_human, args: {prompt: 'Sure?', input_type: confirmation}}]\n- say: 'got ${last}'\n";
const SECRET: &str =
    "- call: [{tool: ask_human, args: {prompt: 'Password?', input_type: password}}]\n- say: fine\n";
const APPROVED_TOOL: &str =
    "  - name: note\n    shell: echo noted >> notes; echo noted\n    approve: ask\n";
const APPROVING: &str = "- call: [{tool: note}]\n- say: 'got ${last}'\n";

fn forms() -> Value {
    json!({"elicitation": {}})
}

fn respond(client: &mut Client, asked: &Value, result: Value) {
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
}

#[test]
fn c_29_3_a_client_without_forms_answers_with_a_tool() {
    for (turns, wrong, answer, expected) in
        [(ASKING, None, "this", "got this"), (CONFIRMING, Some("maybe"), "yes", "got yes")]
    {
        let sandbox = serving(turns);
        let mut client = Client::legacy(&sandbox, json!({"elicitation": {"url": {}}}), &[]);
        let asked = client.call("test-agent", json!({"message": "go"}));
        assert!(text_of(&asked).contains("Call test-agent_answer"), "{asked}");
        assert_eq!(asked["structuredContent"]["status"], "WAITING_FOR_INPUT");
        let run = run_of(&asked);
        let early = client.call("test-agent", json!({"message": "more", "run_id": run}));
        assert_eq!(early["isError"], true, "{early}");
        if let Some(wrong) = wrong {
            let refused = client.call("test-agent_answer", json!({"run_id": run, "answer": wrong}));
            assert_eq!(refused["isError"], true, "{refused}");
        }
        let arguments = json!({"run_id": run, "answer": answer});
        let result = client.call("test-agent_answer", arguments.clone());
        assert_eq!(text_of(&result), expected);
        let late = client.call("test-agent_answer", arguments);
        assert_eq!(late["isError"], true, "{late}");
        client.close();
    }
}

#[test]
fn c_29_3_a_legacy_client_with_forms_asks_its_user() {
    for (turns, schema, content, expected) in [
        (ASKING, "string", json!({"answer": "this"}), "got this"),
        (CONFIRMING, "boolean", json!({"answer": false}), "got no"),
    ] {
        let sandbox = serving(turns);
        let mut client = Client::legacy(&sandbox, forms(), &["--wait-ms", "60000"]);
        let id = client
            .begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
        let asked = client.receive();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        assert_eq!(asked["params"]["requestedSchema"]["properties"]["answer"]["type"], schema);
        respond(&mut client, &asked, json!({"action": "accept", "content": content}));
        let answer = client.answer_to(id);
        assert_eq!(text_of(&answer["result"]), expected);
        client.close();
    }
}

#[test]
fn c_29_3_a_declined_question_stays_open() {
    let sandbox = serving(ASKING);
    for refusal in [json!({"action": "decline"}), json!({"action": "cancel"})] {
        let mut client = Client::legacy(&sandbox, forms(), &[]);
        let id = client
            .begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
        let asked = client.receive();
        respond(&mut client, &asked, refusal);
        let result = client.answer_to(id)["result"].clone();
        assert_eq!(result["structuredContent"]["status"], "WAITING_FOR_INPUT", "{result}");
        client.close();
    }
}

#[test]
fn c_29_3_a_modern_client_is_asked_in_the_result_and_calls_again() {
    let sandbox = serving(ASKING);
    let mut client = Client::modern(&sandbox, forms(), &[]);
    let call = json!({"name": "test-agent", "arguments": {"message": "go"}});
    let asked = client.call_with(call.clone());
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert_eq!(asked["inputRequests"]["answer"]["params"]["message"], "Which?");
    let mut again = call;
    again["requestState"] = asked["requestState"].clone();
    // Without an answer it is asked again, and an answer to another question is none.
    assert_eq!(client.call_with(again.clone())["resultType"], "input_required");
    again["inputResponses"] = json!({"answer": {"action": "accept", "content": {"answer": 5}}});
    assert_eq!(client.call_with(again.clone())["isError"], true);
    again["inputResponses"] =
        json!({"answer": {"action": "accept", "content": {"answer": "this"}}});
    let result = client.call_with(again.clone());
    assert_eq!(text_of(&result), "got this");
    // Repeated, it is not delivered again.
    assert_eq!(client.call_with(again.clone())["structuredContent"], result["structuredContent"]);
    let run = run_of(&result);
    assert_eq!(events_of(&sandbox, &run, "HUMAN_INPUT_RECEIVED").len(), 1);
    for state in ["", "x", "nosuch:1", "../x:1", &format!("{run}:x")] {
        again["requestState"] = state.into();
        let answer = client.request("tools/call", again.clone());
        let is_refused = answer["error"]["code"] == -32602 || answer["result"]["isError"] == true;
        assert!(is_refused, "{answer}");
    }
    client.close();
}

#[test]
fn c_29_3_a_secret_goes_through_no_client() {
    let sandbox = serving(SECRET);
    for is_modern in [false, true] {
        let mut client = if is_modern {
            Client::modern(&sandbox, forms(), &[])
        } else {
            Client::legacy(&sandbox, forms(), &[])
        };
        let asked = client.call("test-agent", json!({"message": "go"}));
        assert!(
            text_of(&asked).contains("at a terminal, so that no client sees it: delta continue"),
            "{asked}"
        );
        let run = run_of(&asked);
        let refused = client.call("test-agent_answer", json!({"run_id": run, "answer": "x"}));
        assert_eq!(refused["isError"], true, "{refused}");
        // A person answers at a terminal, and the client waits for the run.
        let words = ["continue", "--run-id", &run, "-w", "work", "-m", "hidden", "-q"];
        sandbox.delta(words).output().expect_code(0);
        assert_eq!(text_of(&client.call("test-agent_wait", json!({"run_id": run}))), "fine");
        client.close();
    }
}

#[test]
fn c_29_3_a_call_is_approved_by_the_user_of_the_client_and_never_by_its_llm() {
    for (response, expected) in [
        (json!({"action": "accept", "content": {"approve": true}}), "got noted"),
        (
            json!({"action": "accept", "content": {"approve": false, "reason": "too loud"}}),
            "too loud",
        ),
        (json!({"action": "decline"}), "Denied by the operator"),
    ] {
        let sandbox = Sandbox::scripted(DELTA, APPROVED_TOOL, APPROVING);
        let mut client = Client::legacy(&sandbox, forms(), &[]);
        let id = client
            .begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
        let asked = client.receive();
        assert!(asked["params"]["message"].as_str().unwrap().contains("echo noted"), "{asked}");
        respond(&mut client, &asked, response.clone());
        let result = client.answer_to(id)["result"].clone();
        assert!(text_of(&result).contains(expected), "{result}");
        let is_noted = sandbox.path("work/notes").exists();
        assert_eq!(is_noted, expected == "got noted");
        client.close();
    }
    let sandbox = Sandbox::scripted(DELTA, APPROVED_TOOL, APPROVING);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let asked = client.call("test-agent", json!({"message": "go"}));
    assert!(text_of(&asked).contains("waits for a person to approve"), "{asked}");
    let run = run_of(&asked);
    let refused = client.call("test-agent_answer", json!({"run_id": run, "answer": "yes"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(!sandbox.path("work/notes").exists());
    sandbox.delta(["approve", &run, "-w", "work", "-q"]).output().expect_code(0);
    assert_eq!(text_of(&client.call("test-agent_wait", json!({"run_id": run}))), "got noted");
    client.close();
}

#[test]
fn c_29_3_an_approval_has_the_diff_of_a_preview() {
    let tools = "  - name: put\n    exec: tee ${path}\n    stdin: content\n    approve: ask\n    \
                 preview: {path: path, content: content}\n";
    let turns = "- call: [{tool: put, args: {path: f, content: \"two\\n\"}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("work/f", "one\n");
    let mut client = Client::legacy(&sandbox, forms(), &[]);
    client.begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
    let asked = client.receive();
    assert!(asked["params"]["message"].as_str().unwrap().ends_with("\n-one\n+two"), "{asked}");
    client.close();
}

#[test]
fn c_32_8_the_user_of_the_client_sees_what_a_staged_call_has_changed() {
    if staged_calls::waiting("", "echo two >> f").is_none() {
        return;
    }
    let tools = staged_calls::tools("");
    let turns = staged_calls::turns(&["echo two >> f"]);
    for (approve, expected) in [(true, "one\ntwo\n"), (false, "one\n")] {
        let sandbox = Sandbox::scripted(DELTA, &tools, &turns);
        sandbox.write("work/f", "one\n");
        let mut client = Client::legacy(&sandbox, forms(), &[]);
        let call = json!({"name": "test-agent", "arguments": {"message": "go"}});
        let id = client.begin("tools/call", call);
        let asked = client.receive();
        let message = asked["params"]["message"].as_str().unwrap();
        assert!(message.starts_with("Apply the changes of do: "), "{asked}");
        assert!(message.ends_with("\n one\n+two"), "{asked}");
        let field = &asked["params"]["requestedSchema"]["properties"]["approve"];
        assert_eq!(field["description"], "Whether the changes are applied");
        assert_eq!(sandbox.read("work/f"), "one\n");
        let content = json!({"approve": approve, "reason": "not so"});
        respond(&mut client, &asked, json!({"action": "accept", "content": content}));
        assert_eq!(text_of(&client.answer_to(id)["result"]), "done");
        assert_eq!(sandbox.read("work/f"), expected);
        client.close();
    }
    // Without forms the result has the diff, and a person decides at a terminal.
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns);
    sandbox.write("work/f", "one\n");
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let asked = client.call("test-agent", json!({"message": "go"}));
    assert!(text_of(&asked).contains("\n+two\n\nAt a terminal: "), "{asked}");
    let run = run_of(&asked);
    sandbox.delta(["approve", &run, "-w", "work", "-q"]).output().expect_code(0);
    assert_eq!(text_of(&client.call("test-agent_wait", json!({"run_id": run}))), "done");
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    client.close();
}

#[test]
fn c_29_3_stderr_repeats_no_question_that_the_client_gets() {
    for (tools, turns) in [("", ASKING), (APPROVED_TOOL, APPROVING)] {
        let sandbox = Sandbox::scripted(DELTA, tools, turns);
        let mut client = Client::legacy(&sandbox, json!({}), &[]);
        client.call("test-agent", json!({"message": "go"}));
        client.close().expect_code(0);
        assert_eq!(sandbox.read("server.err"), "");
    }
}

/// The form of the answered question stayed, and the next one was asked only after an answer to it.
#[test]
fn c_29_3_after_an_approval_elsewhere_the_client_is_asked_the_next_question() {
    let turns = "- call: [{tool: note}, {tool: note}]\n- say: 'got ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, APPROVED_TOOL, turns);
    std::fs::create_dir(sandbox.path("work")).unwrap();
    let mut client = Client::legacy(&sandbox, forms(), &["--wait-ms", "60000"]);
    let id =
        client.begin("tools/call", json!({"name": "test-agent", "arguments": {"message": "go"}}));
    client.receive();
    let run = run_ids(&sandbox).remove(0);
    sandbox.delta(["approve", run.as_str(), "-w", "work", "-q"]).output().expect_code(101);
    let second = client.receive();
    assert_eq!(second["method"], "elicitation/create", "{second}");
    respond(&mut client, &second, json!({"action": "accept", "content": {"approve": true}}));
    assert_eq!(text_of(&client.answer_to(id)["result"]), "got noted");
    client.close();
}

/// It named the tool for answers, which takes no approval.
#[test]
fn c_29_3_a_message_to_a_run_that_waits_says_what_it_waits_for() {
    for (turns, expected) in
        [(APPROVING, "At a terminal: delta continue"), (CONFIRMING, "Call test-agent_answer with")]
    {
        let sandbox = Sandbox::scripted(DELTA, APPROVED_TOOL, turns);
        std::fs::create_dir(sandbox.path("work")).unwrap();
        let mut client = Client::legacy(&sandbox, json!({}), &[]);
        let run = run_of(&client.call("test-agent", json!({"message": "go"})));
        let refused = client.call("test-agent", json!({"message": "more", "run_id": run}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(text_of(&refused).contains(expected), "{refused}");
        client.close();
    }
}
