//! `delta acp` (C-29.7): an agent for an editor. A session is a run.

use super::mcp_serve::Client;
use super::{DELTA, staged_calls};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::{processes_in, until, until_line};

const TOOLS: &str = "  - name: note\n    shell: echo noted >> notes; echo noted\n  \
     - name: ask\n    shell: echo asked >> asked; echo asked\n    approve: ask\n  \
     - name: hold\n    shell: echo held >> held; until [ -e go ]; do sleep 0.02; done\n";

/// An editor with an open session.
struct Editor {
    client: Client,
    session: String,
    /// The updates of the session since the last prompt.
    updates: Vec<Value>,
}

fn agent(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    std::fs::create_dir(sandbox.path("work")).unwrap();
    sandbox
}

fn connect(sandbox: &Sandbox, capabilities: Value) -> Client {
    let mut client = Client::start(sandbox, &["acp"], &[]);
    let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
    let opened = client.request("initialize", params);
    assert_eq!(opened["result"]["protocolVersion"], 1, "{opened}");
    assert_eq!(opened["result"]["agentInfo"]["title"], "test-agent");
    client
}

impl Editor {
    fn open(sandbox: &Sandbox, capabilities: Value) -> Self {
        let mut client = connect(sandbox, capabilities);
        let params = json!({"cwd": sandbox.path("work"), "mcpServers": []});
        let created = client.request("session/new", params);
        let session = created["result"]["sessionId"].as_str().unwrap().to_owned();
        Self { client, session, updates: Vec::new() }
    }

    fn begin(&mut self, text: &str) -> i64 {
        self.updates.clear();
        let prompt = json!([{"type": "text", "text": text}]);
        self.client.begin("session/prompt", json!({"sessionId": self.session, "prompt": prompt}))
    }

    /// The next request of the agent, or the answer to the prompt.
    fn next(&mut self) -> Value {
        loop {
            let message = self.client.receive();
            if message["method"] != "session/update" {
                return message;
            }
            assert_eq!(message["params"]["sessionId"], self.session.as_str());
            self.updates.push(message["params"]["update"].clone());
        }
    }

    #[track_caller]
    fn expect_stop(&mut self, id: i64, reason: &str) {
        let answer = self.next();
        assert_eq!(
            (&answer["id"], &answer["result"]["stopReason"]),
            (&json!(id), &json!(reason)),
            "{answer}"
        );
    }

    #[track_caller]
    fn prompt(&mut self, text: &str) {
        let id = self.begin(text);
        self.expect_stop(id, "end_turn");
    }

    fn respond(&mut self, request: &Value, result: Value) {
        self.client.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// The texts of the agent since the last prompt.
    fn said(&self) -> Vec<&str> {
        let chunks =
            self.updates.iter().filter(|one| one["sessionUpdate"] == "agent_message_chunk");
        chunks.map(|chunk| chunk["content"]["text"].as_str().unwrap()).collect()
    }
}

#[test]
fn c_29_7_a_session_is_a_run_and_its_events_are_updates() {
    let sandbox =
        agent("- call: [{tool: note}]\n  say: I note\n- say: 'done ${last}'\n- say: more\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.prompt("go");
    assert_eq!(editor.said(), ["I note", "done noted"]);
    let calls: Vec<&Value> =
        editor.updates.iter().filter(|one| one.get("toolCallId").is_some()).collect();
    assert_eq!((calls.len(), &calls[0]["title"]), (2, &json!("note")));
    assert_eq!(calls[0]["toolCallId"], calls[1]["toolCallId"]);
    assert_eq!(
        (&calls[0]["status"], &calls[1]["status"]),
        (&json!("in_progress"), &json!("completed"))
    );
    editor.prompt("and");
    assert_eq!(editor.said(), ["more"]);
    let session = editor.session.clone();
    editor.client.close().expect_code(0);
    sandbox.delta(["show", &session, "-w", "work"]).output().expect_code(0);
    // Another editor finds it, and shows it.
    let mut client = connect(&sandbox, json!({}));
    let work = sandbox.path("work");
    let list = client.request("session/list", json!({"cwd": work}));
    assert_eq!(list["result"]["sessions"][0]["sessionId"], session.as_str(), "{list}");
    assert_eq!(list["result"]["sessions"][0]["title"], "go");
    let params = json!({"sessionId": session, "cwd": work, "mcpServers": []});
    let loaded = client.request("session/load", params);
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "ask");
    let shown: Vec<String> = client
        .notifications
        .iter()
        .filter_map(|message| message["params"]["update"]["content"]["text"].as_str())
        .map(str::to_owned)
        .collect();
    assert_eq!(shown, ["go", "I note", "done noted", "and", "more"]);
    client.close();
}

#[test]
fn c_29_7_a_call_is_approved_in_the_editor() {
    for (outcome, expected, is_run) in [
        (json!({"outcome": "selected", "optionId": "yes"}), "got asked", true),
        (
            json!({"outcome": "selected", "optionId": "no"}),
            "got Denied by the operator; the tool was not run.",
            false,
        ),
    ] {
        let sandbox = agent("- call: [{tool: ask}]\n- say: 'got ${last}'\n");
        let mut editor = Editor::open(&sandbox, json!({}));
        let id = editor.begin("go");
        let asked = editor.next();
        assert_eq!(asked["method"], "session/request_permission", "{asked}");
        let pending = editor.updates.iter().find(|one| one["status"] == "pending").unwrap();
        assert_eq!(pending["toolCallId"], asked["params"]["toolCall"]["toolCallId"]);
        editor.respond(&asked, json!({"outcome": outcome}));
        editor.expect_stop(id, "end_turn");
        assert_eq!(editor.said(), [expected]);
        assert_eq!(sandbox.path("work/asked").exists(), is_run);
        editor.client.close();
    }
    // Who cancels decides nothing: the next prompt is the reason of a denial.
    let sandbox = agent("- call: [{tool: ask}]\n- say: 'got ${last}'\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    let id = editor.begin("go");
    let asked = editor.next();
    editor.respond(&asked, json!({"outcome": {"outcome": "cancelled"}}));
    editor.expect_stop(id, "cancelled");
    editor.prompt("use another tool");
    assert!(editor.said()[0].contains("use another tool"), "{:?}", editor.said());
    assert!(!sandbox.path("work/asked").exists());
    editor.client.close();
}

/// Asks for two calls of `ask` and one of `also`, each for an approval.
const ASKING_TURNS: &str = "- call: [{tool: ask}, {tool: ask}, {tool: also}]\n- say: done\n- call: [{tool: ask}]\n- say: again\n- call: [{tool: ask}]\n- say: end\n";

fn asking_editor() -> (Sandbox, Editor) {
    let tools = format!("{TOOLS}  - name: also\n    shell: echo also\n    approve: ask\n");
    let sandbox = Sandbox::scripted(DELTA, &tools, ASKING_TURNS);
    std::fs::create_dir(sandbox.path("work")).unwrap();
    let editor = Editor::open(&sandbox, json!({}));
    (sandbox, editor)
}

#[test]
fn c_29_7_a_tool_that_is_allowed_once_asks_again() {
    let (_sandbox, mut editor) = asking_editor();
    let id = editor.begin("go");
    for tool in ["ask", "ask", "also"] {
        let asked = editor.next();
        assert_eq!(asked["params"]["toolCall"]["title"], tool, "{asked}");
        let once = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
        editor.respond(&asked, once);
    }
    editor.expect_stop(id, "end_turn");
    editor.client.close();
}

#[test]
fn c_29_7_an_approval_has_the_diff_of_a_preview() {
    let tools = "  - name: put\n    exec: tee ${path}\n    stdin: content\n    approve: ask\n    \
                 preview: {path: path, content: content}\n";
    let turns = "- call: [{tool: put, args: {path: f, content: \"two\\n\"}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("work/f", "one\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.begin("go");
    let asked = editor.next();
    let text = asked["params"]["toolCall"]["content"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("```diff\n") && text.contains("\n-one\n+two\n"), "{text}");
    editor.client.close();
}

#[test]
fn c_29_7_a_tool_that_is_always_allowed_asks_once_in_a_session() {
    let (sandbox, mut editor) = asking_editor();
    let id = editor.begin("go");
    let always = json!({"outcome": {"outcome": "selected", "optionId": "always"}});
    for tool in ["ask", "also"] {
        let asked = editor.next();
        assert_eq!(asked["params"]["toolCall"]["title"], tool, "{asked}");
        let kinds = asked["params"]["options"].as_array().unwrap().iter().map(|one| &one["kind"]);
        assert!(kinds.eq(["allow_once", "allow_always", "reject_once"]), "{asked}");
        editor.respond(&asked, always.clone());
    }
    editor.expect_stop(id, "end_turn");
    editor.prompt("again");
    assert_eq!(editor.said(), ["again"]);
    let journal = sandbox.read(&format!("work/.delta/{}/journal.jsonl", editor.session));
    assert_eq!(journal.matches("\"APPROVAL_DECISION\"").count(), 4, "each is recorded");
    // Who loads the session is asked again.
    let work = sandbox.path("work");
    let params = json!({"sessionId": editor.session, "cwd": work, "mcpServers": []});
    editor.client.request("session/load", params);
    editor.client.notifications.clear();
    editor.begin("more");
    assert_eq!(editor.next()["method"], "session/request_permission");
    editor.client.close();
}

#[test]
fn c_29_7_a_mode_approves_every_call() {
    let (_sandbox, mut editor) = asking_editor();
    let set_mode = |editor: &mut Editor, mode: &str| {
        let params = json!({"sessionId": editor.session, "modeId": mode});
        editor.client.request("session/set_mode", params)
    };
    let refused = set_mode(&mut editor, "yolo");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("expected `ask` or `approve-all`"), "{refused}");
    assert_eq!(set_mode(&mut editor, "approve-all")["result"], json!({}));
    editor.prompt("go");
    assert_eq!(editor.said(), ["done"]);
    assert_eq!(set_mode(&mut editor, "ask")["result"], json!({}));
    editor.begin("again");
    assert_eq!(editor.next()["method"], "session/request_permission");
    editor.client.close();
}

#[test]
fn c_32_8_the_editor_shows_what_a_staged_call_has_changed() {
    if staged_calls::waiting("", "echo two >> f").is_none() {
        return;
    }
    for (option, expected) in [("yes", "one\ntwo\n```\n"), ("no", "one\n")] {
        let turns = staged_calls::turns(&["echo two >> f; echo '```' >> f"]);
        let sandbox = Sandbox::scripted(DELTA, &staged_calls::tools(""), &turns);
        sandbox.write("work/f", "one\n");
        let mut editor = Editor::open(&sandbox, json!({}));
        let id = editor.begin("go");
        let asked = editor.next();
        assert_eq!(asked["method"], "session/request_permission", "{asked}");
        let text = &asked["params"]["toolCall"]["content"][0]["content"]["text"];
        let text = text.as_str().unwrap();
        assert!(text.starts_with("Apply the changes of do: sh -c "), "{text}");
        assert!(text.contains("\n\n````diff\nchanged file: f\ndiff --git a/f b/f\n"), "{text}");
        assert!(text.ends_with("\n one\n+two\n+```\n````"), "{text}");
        // The call is announced once.
        let updates: Vec<&str> = editor
            .updates
            .iter()
            .filter(|one| one["toolCallId"] == asked["params"]["toolCall"]["toolCallId"])
            .filter_map(|one| one["sessionUpdate"].as_str())
            .collect();
        assert_eq!(updates[0], "tool_call", "{updates:?}");
        assert!(updates[1..].iter().all(|kind| *kind == "tool_call_update"), "{updates:?}");
        assert_eq!(sandbox.read("work/f"), "one\n");
        editor.respond(&asked, json!({"outcome": {"outcome": "selected", "optionId": option}}));
        editor.expect_stop(id, "end_turn");
        assert_eq!(sandbox.read("work/f"), expected);
        editor.client.close();
    }
}

#[test]
fn c_29_7_a_question_is_a_form_or_the_end_of_the_turn() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Which?}}]\n- say: 'got ${last}'\n";
    let sandbox = agent(turns);
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.prompt("go");
    assert_eq!(editor.said(), ["Which?"]);
    editor.prompt("this");
    assert_eq!(editor.said(), ["got this"]);
    editor.client.close();
    let mut editor = Editor::open(&sandbox, json!({"elicitation": {"form": {}}}));
    let id = editor.begin("go");
    let asked = editor.next();
    assert_eq!(
        (&asked["method"], &asked["params"]["message"]),
        (&json!("elicitation/create"), &json!("Which?"))
    );
    editor.respond(&asked, json!({"action": "accept", "content": {"answer": "that"}}));
    editor.expect_stop(id, "end_turn");
    assert_eq!(editor.said(), ["got that"]);
    // An editor that refuses the form gets the question as a text, and forms no more.
    let params = json!({"cwd": sandbox.path("work"), "mcpServers": []});
    let created = editor.client.request("session/new", params);
    editor.session = created["result"]["sessionId"].as_str().unwrap().to_owned();
    let id = editor.begin("go");
    let asked = editor.next();
    let error = json!({"code": -32601, "message": "no forms"});
    editor.client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    editor.expect_stop(id, "end_turn");
    assert_eq!(editor.said(), ["Which?"]);
    editor.prompt("this");
    assert_eq!(editor.said(), ["got this"]);
    editor.client.close();
    let sandbox = agent(
        "- call: [{tool: ask_human, args: {prompt: 'Key?', input_type: password}}]\n- say: fine\n",
    );
    let mut editor = Editor::open(&sandbox, json!({"elicitation": {"form": {}}}));
    editor.prompt("go");
    assert!(editor.said()[0].contains("at a terminal"), "{:?}", editor.said());
    editor.client.close();
}

#[test]
fn c_29_7_a_cancelled_prompt_stops_the_run_and_the_next_one_continues_it() {
    let sandbox = agent("- call: [{tool: hold}]\n- say: done\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    let id = editor.begin("go");
    until_line(&sandbox.path("work/held"));
    let busy = editor.client.begin(
        "session/prompt",
        json!({"sessionId": editor.session, "prompt": [{"type": "text", "text": "x"}]}),
    );
    let refused = editor.next();
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(busy), &json!(-32600)),
        "{refused}"
    );
    let params = json!({"sessionId": editor.session});
    editor.client.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    editor.expect_stop(id, "cancelled");
    sandbox.write("work/go", "");
    editor.prompt("continue");
    assert_eq!(editor.said(), ["done"]);
    // An editor that goes away leaves no process.
    let sandbox = agent("- call: [{tool: hold}]\n- say: done\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.begin("go");
    until_line(&sandbox.path("work/held"));
    editor.client.close().expect_code(0);
    until("all processes to end", || processes_in(&sandbox.path("")).is_empty().then_some(()));
}

#[test]
fn c_29_7_what_cannot_be_done_is_an_error_with_its_reason() {
    let sandbox = agent("- call: [{tool: note}]\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    let id = editor.begin("go");
    let failed = editor.next();
    assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(id), &json!(-32603)), "{failed}");
    let work = sandbox.path("work");
    let text = json!([{"type": "text", "text": "x"}]);
    for (method, params) in [
        ("session/new", json!({"cwd": "work", "mcpServers": []})),
        ("session/new", json!({"cwd": work.join("nosuch"), "mcpServers": []})),
        ("session/load", json!({"sessionId": "nosuch", "cwd": work, "mcpServers": []})),
        ("session/load", json!({"sessionId": "../x", "cwd": work, "mcpServers": []})),
        ("session/prompt", json!({"sessionId": "nosuch", "prompt": text})),
        ("session/prompt", json!({"sessionId": editor.session, "prompt": []})),
        (
            "session/prompt",
            json!({"sessionId": editor.session, "prompt": [{"type": "image", "data": "AAAA"}]}),
        ),
    ] {
        let refused = editor.client.request(method, params.clone());
        assert_eq!(refused["error"]["code"], -32602, "{method} {params}: {refused}");
    }
    assert_eq!(editor.client.request("no/such", json!({}))["error"]["code"], -32601);
    editor.client.close().expect_code(0);
}

/// A stream with these pieces of an answer, which stays open after them, or ends.
fn stream(pieces: &[&str], ends: bool) -> Answer {
    let event = |piece: &&str| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": piece}}]}))
    };
    let mut body: String = pieces.iter().map(event).collect();
    if ends {
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        body.push_str(&format!("data: {end}\n\ndata: [DONE]\n\n"));
        return Answer::event_stream(body);
    }
    let length = body.len();
    Answer::event_stream(body).stall(length)
}

#[test]
fn c_29_7_an_answer_appears_in_the_editor_before_it_is_complete() {
    let answers = vec![stream(&["I ", "think"], false), stream(&["all ", "done"], true)];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({}));
    let id = editor.begin("go");
    while editor.said().concat() != "I think" {
        let update = editor.client.receive();
        assert_eq!(update["method"], "session/update", "{update}");
        editor.updates.push(update["params"]["update"].clone());
    }
    let params = json!({"sessionId": editor.session});
    editor.client.send(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}));
    editor.expect_stop(id, "cancelled");
    // What came piece by piece is not repeated as a whole.
    editor.prompt("again");
    assert_eq!(editor.said().concat(), "all done");
    editor.client.close();
}

#[test]
fn c_29_7_the_output_of_a_call_appears_in_the_editor_while_it_runs() {
    let tools = "  - name: talk\n    shell: printf 'one\\n'; until [ -e go ]; do sleep 0.02; done; echo two\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: talk}]\n- say: done\n");
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({}));
    let id = editor.begin("go");
    let output = |update: &Value| update["content"][0]["content"]["text"].clone();
    loop {
        let update = editor.client.receive()["params"]["update"].clone();
        if output(&update) == "one\n" {
            assert_eq!(update["sessionUpdate"], "tool_call_update");
            break;
        }
    }
    sandbox.write("work/go", "");
    editor.expect_stop(id, "end_turn");
    let last = editor.updates.iter().rfind(|update| update["status"] == "completed").unwrap();
    assert_eq!(output(last), "one\ntwo\n");
    editor.client.close();
}

/// The outputs of calls that run at the same time came as the output of one of them.
#[test]
fn c_29_7_each_of_simultaneous_calls_has_its_own_output() {
    let tools = "  - name: talk\n    shell: printf '%s\\n' ${word}; until [ -e go ]; do sleep 0.02; done\n    parallel: true\n";
    let turns =
        "- call: [{tool: talk, args: {word: one}}, {tool: talk, args: {word: two}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({}));
    let id = editor.begin("go");
    let mut seen = std::collections::BTreeMap::new();
    while seen.len() < 2 {
        let update = editor.client.receive()["params"]["update"].clone();
        if let Some(text) = update["content"][0]["content"]["text"].as_str() {
            seen.insert(update["toolCallId"].as_str().unwrap().to_owned(), text.to_owned());
        }
    }
    assert!(seen.values().eq(["one\n", "two\n"]), "{seen:?}");
    sandbox.write("work/go", "");
    editor.expect_stop(id, "end_turn");
    editor.client.close();
}

#[test]
fn c_29_7_a_secret_is_in_no_update_of_a_loaded_session() {
    let tools = "  - name: repeat\n    shell: echo ${text}\n";
    let turns = "- call: [{tool: ask_human, args: {prompt: 'Key?', input_type: password}}]\n\
                 - {when: '(.+)', call: [{tool: repeat, args: {text: '${1}'}}]}\n- say: 'it is ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.prompt("go");
    let session = editor.session.clone();
    let answer = ["continue", session.as_str(), "-w", "work", "-m", "a-secret-key"];
    sandbox.delta(answer).output().expect_code(0);
    editor.client.notifications.clear();
    let params = json!({"sessionId": session, "cwd": sandbox.path("work"), "mcpServers": []});
    editor.client.request("session/load", params);
    let updates = json!(editor.client.notifications).to_string();
    assert!(!updates.contains("a-secret-key"), "{updates}");
    assert!(updates.contains("it is [hidden]"), "{updates}");
    editor.client.close();
}

/// The updates had `[hidden]`, and the result of `finish` the secret.
#[test]
fn c_29_7_a_secret_is_not_in_the_result_of_finish() {
    let turns = "- call: [{tool: ask_human, args: {prompt: 'Key?', input_type: password}}]\n- say: fine\n\
                 - call: [{tool: finish, args: {result: it is a-secret-key}}]\n\
                 - call: [{tool: ask_human, args: {prompt: 'Is it a-secret-key?'}}]\n\
                 - call: [{tool: ask, args: {word: a-secret-key}}]\n";
    let tools = "  - name: ask\n    shell: echo ${word}\n    approve: ask\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({"elicitation": {"form": {}}}));
    editor.prompt("go");
    let answer = ["continue", editor.session.as_str(), "-w", "work", "-m", "a-secret-key"];
    sandbox.delta(answer).output().expect_code(0);
    editor.prompt("more");
    assert_eq!(editor.said().last(), Some(&"it is [hidden]"), "{:?}", editor.updates);
    let id = editor.begin("more");
    let asked = editor.next();
    assert_eq!(asked["params"]["message"], "Is it [hidden]?", "{asked}");
    editor.respond(&asked, json!({"action": "accept", "content": {"answer": "yes"}}));
    let asked = editor.next();
    assert_eq!(asked["params"]["toolCall"]["rawInput"]["word"], "[hidden]", "{asked}");
    assert!(!asked.to_string().contains("a-secret-key"), "{asked}");
    editor.respond(&asked, json!({"outcome": {"outcome": "cancelled"}}));
    editor.expect_stop(id, "cancelled");
    editor.client.close();
}

/// Of a loaded session, each result of `finish` was missing.
#[test]
fn c_29_7_a_loaded_session_has_the_result_of_finish() {
    let turns = "- call: [{tool: finish, args: {result: first result}}]\n\
                 - say: I note\n  call: [{tool: note}, {tool: finish, args: {result: {n: 2}}}]\n- say: plain\n";
    let sandbox = agent(turns);
    let mut editor = Editor::open(&sandbox, json!({}));
    let mut live = Vec::new();
    for prompt in ["one", "two", "three"] {
        editor.prompt(prompt);
        live.extend(editor.said().into_iter().map(str::to_owned));
    }
    assert_eq!(live, ["first result", "I note", "{\"n\":2}", "plain"]);
    editor.client.notifications.clear();
    let params =
        json!({"sessionId": editor.session, "cwd": sandbox.path("work"), "mcpServers": []});
    editor.client.request("session/load", params);
    let updates = editor.client.notifications.iter().map(|one| &one["params"]["update"]);
    editor.updates = updates.cloned().collect();
    assert_eq!(editor.said(), live);
    editor.client.close();
}

/// The editor kept the dialog of the answered question, and a click there cancelled the prompt.
#[test]
fn c_29_7_after_an_approval_elsewhere_the_next_question_is_asked() {
    let (sandbox, mut editor) = asking_editor();
    let id = editor.begin("go");
    let first = editor.next();
    let approve = ["approve", editor.session.as_str(), "-w", "work", "-q"];
    sandbox.delta(approve).output().expect_code(101);
    let second = editor.next();
    assert_eq!(second["method"], "session/request_permission", "{second}");
    assert_ne!(
        first["params"]["toolCall"]["toolCallId"],
        second["params"]["toolCall"]["toolCallId"]
    );
    // The late answer to the first question decides nothing.
    let once = json!({"outcome": {"outcome": "selected", "optionId": "yes"}});
    let denied = json!({"outcome": {"outcome": "selected", "optionId": "no"}});
    editor.respond(&first, denied);
    editor.respond(&second, once.clone());
    let third = editor.next();
    assert_eq!(third["params"]["toolCall"]["title"], "also", "{third}");
    editor.respond(&third, once);
    editor.expect_stop(id, "end_turn");
    assert_eq!(sandbox.read("work/asked"), "asked\nasked\n");
    editor.client.close();
}

/// The turn ended without a text.
#[test]
fn c_29_7_a_prompt_that_is_no_answer_to_a_confirmation_is_refused_and_asked_again() {
    let turns = "- call: [{tool: ask_human, args: {prompt: 'Sure?', input_type: confirmation}}]\n- say: 'got ${last}'\n";
    let sandbox = agent(turns);
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.prompt("go");
    for _ in 0..2 {
        editor.prompt("maybe");
        assert_eq!(editor.said(), ["Expected `yes` or `no`.\n\n", "Sure?"]);
    }
    editor.prompt("Y");
    assert_eq!(editor.said(), ["got Y"]);
    editor.client.close();
}

/// The process was interrupted before it had recorded the prompt, and the next one began the run.
#[test]
fn c_29_7_a_prompt_that_is_cancelled_at_once_is_not_lost() {
    let sandbox = agent(&"- say: done\n".repeat(4));
    let mut editor = Editor::open(&sandbox, json!({}));
    for prompt in ["one", "two", "three"] {
        let id = editor.begin(prompt);
        let params = json!({"sessionId": editor.session});
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params});
        editor.client.send(&cancel);
        // A script may have answered before the cancellation was read.
        let stop = editor.next();
        let reason = stop["result"]["stopReason"].as_str();
        assert!(stop["id"] == id && matches!(reason, Some("cancelled" | "end_turn")), "{stop}");
    }
    // What the editor gives at its end is not lost either.
    editor.begin("four");
    editor.client.close().expect_code(0);
    let journal = sandbox.path(&format!("work/.delta/{}/journal.jsonl", editor.session));
    let journal = std::fs::read_to_string(journal).unwrap();
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages = events.filter(|event| event["type"] == "USER_MESSAGE");
    let messages: Vec<String> =
        messages.map(|event| event["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(messages, ["one", "two", "three", "four"]);
}

/// Without a directory, the list had only the sessions of the server's own.
#[test]
fn c_29_7_the_list_without_a_directory_has_the_sessions_of_the_server() {
    let sandbox = agent("- say: done\n");
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.prompt("go");
    let list = editor.client.request("session/list", json!({}));
    assert_eq!(list["result"]["sessions"][0]["sessionId"], editor.session.as_str(), "{list}");
    assert_eq!(list["result"]["sessions"].as_array().unwrap().len(), 1, "{list}");
    let elsewhere = json!({"cwd": sandbox.path("")});
    let list = editor.client.request("session/list", elsewhere);
    assert_eq!(list["result"]["sessions"], json!([]), "{list}");
    editor.client.close();
}

/// The text was dropped without a word.
#[test]
fn c_29_7_a_prompt_while_a_secret_is_asked_for_says_that_it_was_not_sent() {
    let turns =
        "- call: [{tool: ask_human, args: {prompt: 'Key?', input_type: password}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({}));
    editor.prompt("go");
    editor.prompt("look at the tests");
    let said = editor.said().concat();
    assert!(said.contains("this prompt was not sent to it"), "{said}");
    assert!(said.contains("Key?"), "{said}");
    editor.client.close();
}

#[test]
fn c_29_7_an_image_in_a_prompt_reaches_the_model_and_a_loaded_session() {
    let server = ScriptedServer::start((0..4).map(|_| Answer::text("a dot")).collect::<Vec<_>>());
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    let mut editor = Editor::open(&sandbox, json!({}));
    // A PNG of one pixel.
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let image = json!({"type": "image", "mimeType": "image/png", "data": data});
    let pdf = json!({"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "AAAA"});
    let prompts = [
        json!([image]),
        json!([{"type": "text", "text": "What is this?"}, image]),
        json!([{"type": "resource", "resource": {"uri": "file:///a.png", "mimeType": "image/png", "blob": data}}]),
        json!([{"type": "resource", "resource": pdf}]),
    ];
    for (index, prompt) in prompts.into_iter().enumerate() {
        let params = json!({"sessionId": editor.session, "prompt": prompt});
        let id = editor.client.begin("session/prompt", params);
        editor.expect_stop(id, "end_turn");
        let request = server.requests()[index].body.to_string();
        assert_eq!(request.matches(data).count(), (index + 1).min(3), "{request}");
    }
    let request = server.requests()[3].body.to_string();
    assert!(request.contains("file:///a.pdf: application/pdf, 3 bytes"), "{request}");
    editor.client.notifications.clear();
    let params =
        json!({"sessionId": editor.session, "cwd": sandbox.path("work"), "mcpServers": []});
    editor.client.request("session/load", params);
    let shown = editor.client.notifications.iter().map(|one| &one["params"]["update"]["content"]);
    assert!(shown.into_iter().any(|content| *content == image));
    editor.client.close();
}
