//! A call that a client repeats after a crash (C-29.2): one run, and nothing twice.

use super::client::{Client, run_of, text_of};
use super::{DELTA, HOLDING, NOTING, events_of, run_ids, serving, until_idle};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::wait::{processes_with, until, until_line};

/// A call as Codex sends it.
fn named(message: &str, call: &str) -> Value {
    json!({
        "name": "test-agent",
        "arguments": {"message": message},
        "_meta": {"threadId": "thread", "callId": call},
    })
}

/// Ends the process that works on a run, at once.
fn kill_run(sandbox: &Sandbox, run: &str) {
    let pid = until("the engine", || {
        // A tool of the run, whose parent is the engine. Other tests have runs with this id.
        let mark = format!("RUN_DIR={}", sandbox.path(&format!("work/.delta/{run}")).display());
        let tool = processes_with(&[&mark]).first().copied()?;
        let stat = std::fs::read_to_string(format!("/proc/{tool}/stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        rustix::process::Pid::from_raw(parent)
    });
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn c_29_2_a_repeated_call_finds_its_run() {
    let sandbox = serving(NOTING);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let first = client.call_with(named("go", "1"));
    let run = run_of(&first);
    assert!(run.starts_with("mcp-") && run.len() == 24, "{run}");
    assert_eq!(client.call_with(named("go", "1")), first);
    client.close();
    let mut next = Client::legacy(&sandbox, json!({}), &[]);
    assert_eq!(next.call_with(named("go", "1"))["structuredContent"], first["structuredContent"]);
    assert_eq!(sandbox.read("work/notes"), "noted\n");
    assert_ne!(run_of(&next.call_with(named("go", "2"))), run);
    assert_eq!(run_ids(&sandbox).len(), 2);
    next.close();
}

#[test]
fn c_29_2_a_repeated_message_is_delivered_once() {
    let sandbox = serving(NOTING);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let run = run_of(&client.call_with(named("go", "1")));
    let mut more = named("and", "2");
    more["arguments"]["run_id"] = run.clone().into();
    assert_eq!(text_of(&client.call_with(more.clone())), "more");
    assert_eq!(text_of(&client.call_with(more.clone())), "more");
    client.close();
    let mut next = Client::legacy(&sandbox, json!({}), &[]);
    assert_eq!(text_of(&next.call_with(more)), "more");
    assert_eq!(events_of(&sandbox, &run, "USER_MESSAGE").len(), 2);
    next.close();
}

#[test]
fn c_29_2_a_repeated_answer_is_not_the_answer_to_the_next_question() {
    let turns = "- call: [{tool: ask_human, args: {prompt: One?}}]\n\
                 - call: [{tool: ask_human, args: {prompt: Two?}}]\n- say: 'got ${last}'\n";
    let sandbox = serving(turns);
    let mut client = Client::legacy(&sandbox, json!({}), &[]);
    let run = run_of(&client.call_with(named("go", "1")));
    let answer = |text: &str, call: &str| {
        json!({
            "name": "test-agent_answer",
            "arguments": {"run_id": run, "answer": text},
            "_meta": {"threadId": "thread", "callId": call},
        })
    };
    for _ in 0..2 {
        let asked = client.call_with(answer("first", "2"));
        assert!(text_of(&asked).contains("Two?"), "{asked}");
    }
    assert_eq!(text_of(&client.call_with(answer("second", "3"))), "got second");
    assert_eq!(events_of(&sandbox, &run, "HUMAN_INPUT_RECEIVED").len(), 2);
    client.close();
}

#[test]
fn c_29_2_after_the_death_of_the_server_or_the_run_no_call_is_made_twice() {
    for kills_server in [true, false] {
        let sandbox = serving(HOLDING);
        let mut client = Client::legacy(&sandbox, json!({}), &[]);
        let id = client.begin("tools/call", named("go", "1"));
        until_line(&sandbox.path("work/held"));
        let run = run_ids(&sandbox).pop().unwrap();
        if kills_server {
            client.kill();
            until_idle(&sandbox);
            client = Client::legacy(&sandbox, json!({}), &[]);
        } else {
            kill_run(&sandbox, &run);
            let died = client.answer_to(id)["result"].clone();
            assert_eq!((&died["isError"], run_of(&died)), (&json!(true), run.clone()), "{died}");
        }
        let result = client.call_with(named("go", "1"));
        assert_eq!((text_of(&result), run_of(&result)), ("done", run.clone()));
        // What became of the call is unknown to the agent, which decides.
        assert_eq!(sandbox.read("work/held"), "held\n");
        assert_eq!(events_of(&sandbox, &run, "ACTION_REQUEST").len(), 1);
        assert_eq!(run_ids(&sandbox), [run]);
        client.close();
        until_idle(&sandbox);
    }
}

#[test]
fn c_29_2_a_server_that_is_killed_at_any_step_leaves_one_run_and_no_process() {
    let journal = |sandbox: &Sandbox| {
        let run = run_ids(sandbox).pop()?;
        std::fs::read_to_string(sandbox.path(&format!("work/.delta/{run}/journal.jsonl"))).ok()
    };
    let steps = ["", "ENGINE_START", "THOUGHT", "ACTION_REQUEST", "ACTION_RESULT", "ENGINE_END"];
    for step in steps {
        let sandbox = serving(NOTING);
        let mut client = Client::legacy(&sandbox, json!({}), &[]);
        client.begin("tools/call", named("go", "1"));
        if !step.is_empty() {
            until(step, || journal(&sandbox).filter(|text| text.contains(step)));
        }
        client.kill();
        until_idle(&sandbox);
        let mut next = Client::legacy(&sandbox, json!({}), &[]);
        let result = next.call_with(named("go", "1"));
        assert_eq!(result.get("isError"), None, "{step}: {result}");
        let run = run_of(&result);
        assert_eq!(run_ids(&sandbox), std::slice::from_ref(&run));
        assert_eq!(events_of(&sandbox, &run, "USER_MESSAGE").len(), 1);
        let notes = std::fs::read_to_string(sandbox.path("work/notes")).unwrap_or_default();
        assert!(notes.len() <= "noted\n".len(), "{step}: {notes}");
        next.close().expect_code(0);
        until_idle(&sandbox);
    }
}

/// A client with forms, as most have them; tasks too, if it polls.
fn forms_client(sandbox: &Sandbox, polls: bool) -> Client {
    if polls {
        let extensions = json!({"io.modelcontextprotocol/tasks": {}});
        return Client::modern(sandbox, json!({"elicitation": {}, "extensions": extensions}), &[]);
    }
    Client::legacy(sandbox, json!({"elicitation": {}}), &["--wait-ms", "60000"])
}

#[test]
fn c_29_2_a_question_survives_the_server_and_is_answered_once() {
    let approved = "  - name: note\n    shell: echo noted >> notes; echo noted\n    approve: ask\n";
    let asking = "- call: [{tool: ask_human, args: {prompt: Which?}}]\n- call: [{tool: note}]\n- say: 'got ${last}'\n";
    let plain = "  - name: note\n    shell: echo noted >> notes; echo noted\n";
    let approving = "- call: [{tool: note}]\n- say: 'got ${last}'\n";
    for (tools, turns, content) in [
        (approved, approving, json!({"approve": true})),
        (plain, asking, json!({"answer": "this"})),
    ] {
        let sandbox = Sandbox::scripted(DELTA, tools, turns);
        // Killed with the form open, then after its answer, before the run has worked on it or after.
        let mut client = forms_client(&sandbox, false);
        client.begin("tools/call", named("go", "1"));
        assert_eq!(client.receive()["method"], "elicitation/create");
        client.kill();
        until_idle(&sandbox);
        let mut client = forms_client(&sandbox, false);
        client.begin("tools/call", named("go", "1"));
        let asked = client.receive();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let result = json!({"action": "accept", "content": content});
        client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        let run = run_ids(&sandbox).pop().unwrap();
        until("the answer", || {
            let kinds = ["HUMAN_INPUT_RECEIVED", "APPROVAL_DECISION"];
            kinds.iter().any(|kind| !events_of(&sandbox, &run, kind).is_empty()).then_some(())
        });
        client.kill();
        until_idle(&sandbox);
        let mut last = forms_client(&sandbox, false);
        let result = last.call_with(named("go", "1"));
        assert_eq!((run_of(&result), result.get("isError")), (run.clone(), None), "{result}");
        let decided = events_of(&sandbox, &run, "HUMAN_INPUT_RECEIVED").len()
            + events_of(&sandbox, &run, "APPROVAL_DECISION").len();
        assert_eq!((decided, run_ids(&sandbox).len()), (1, 1));
        let notes = std::fs::read_to_string(sandbox.path("work/notes")).unwrap_or_default();
        assert!(notes.len() <= "noted\n".len(), "{notes}");
        last.close().expect_code(0);
        until_idle(&sandbox);
    }
}

#[test]
fn c_29_4_a_task_survives_the_death_of_its_server_and_of_its_run() {
    for kills_server in [true, false] {
        let sandbox = serving(HOLDING);
        let mut client = forms_client(&sandbox, true);
        let id = client.begin("tools/call", named("go", "1"));
        let task = client.answer_to(id)["result"].clone();
        assert_eq!(task["resultType"], "task", "{task}");
        let run = task["taskId"].as_str().unwrap().to_owned();
        until_line(&sandbox.path("work/held"));
        if kills_server {
            client.kill();
            client = forms_client(&sandbox, true);
        } else {
            kill_run(&sandbox, &run);
        }
        let done = until("the end of the task", || {
            let state = client.request("tasks/get", json!({"taskId": run}))["result"].clone();
            (state["status"] != "working").then_some(state)
        });
        assert_eq!(done["status"], "completed", "{done}");
        assert_eq!(text_of(&done["result"]), "done");
        // The call that asks again finds the run, and starts none.
        assert_eq!(run_of(&client.call_with(named("go", "1"))), run);
        assert_eq!((sandbox.read("work/held").as_str(), run_ids(&sandbox).len()), ("held\n", 1));
        client.close();
        until_idle(&sandbox);
    }
}

#[test]
fn c_29_2_two_clients_that_make_one_call_share_its_run() {
    let sandbox = serving(HOLDING);
    let mut one = Client::legacy(&sandbox, json!({}), &[]);
    let mut two = Client::legacy(&sandbox, json!({}), &[]);
    let first = one.begin("tools/call", named("go", "1"));
    let second = two.begin("tools/call", named("go", "1"));
    until_line(&sandbox.path("work/held"));
    sandbox.write("work/go", "");
    let first = one.answer_to(first)["result"].clone();
    let second = two.answer_to(second)["result"].clone();
    assert_eq!((text_of(&first), run_of(&first)), ("done", run_of(&second)), "{second}");
    assert_eq!(text_of(&second), "done", "{second}");
    assert_eq!((sandbox.read("work/held").as_str(), run_ids(&sandbox).len()), ("held\n", 1));
    one.close();
    two.close();
    until_idle(&sandbox);
}

#[test]
fn c_29_2_a_hundred_clients_each_get_their_run() {
    let sandbox = serving(NOTING);
    let mut clients: Vec<Client> =
        (0..100).map(|_| Client::legacy(&sandbox, json!({}), &[])).collect();
    // Each call is made by two clients.
    let calls: Vec<i64> = clients
        .iter_mut()
        .enumerate()
        .map(|(index, client)| client.begin("tools/call", named("go", &(index / 2).to_string())))
        .collect();
    let mut runs = Vec::new();
    for (client, id) in clients.iter_mut().zip(calls) {
        let result = client.answer_to(id)["result"].clone();
        let run = run_of(&result);
        let journal = format!("work/.delta/{run}/journal.jsonl");
        assert!(text_of(&result).starts_with("done"), "{result}\n{}", sandbox.read(&journal));
        runs.push(run);
    }
    assert!(runs.chunks(2).all(|pair| pair[0] == pair[1]), "{runs:?}");
    assert_eq!(run_ids(&sandbox).len(), 50);
    assert_eq!(sandbox.read("work/notes").lines().count(), 50);
    clients.into_iter().for_each(|client| drop(client.close()));
    until_idle(&sandbox);
}
