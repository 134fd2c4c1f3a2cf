//! The loop (C-3, C-5.2, C-6): what is recorded, in which order, and when a run ends.

use super::DELTA;
use serde_json::{Value, json};
use std::collections::HashSet;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const ECHO: &str = "  - name: echo\n    exec: echo ${text}\n";

/// An agent for a server with these answers; run with `hello`.
fn served(answers: Vec<Answer>, tools: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    (server, sandbox)
}

/// The same with answers that are not streamed, so that they can be any JSON.
fn served_whole(messages: &[Value], tools: &str) -> (ScriptedServer, Sandbox) {
    let answer = |message: &Value| {
        Answer::raw(200, json!({"choices": [{"index": 0, "message": message}]}).to_string())
    };
    let server = ScriptedServer::start(messages.iter().map(answer).collect::<Vec<_>>());
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  stream: false\n  base_url: {}", server.url()), tools);
    (server, sandbox)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no text {field} in {value}"))
}

fn keys(event: &Value) -> String {
    event.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn kinds(sandbox: &Sandbox) -> Vec<String> {
    sandbox.journal().iter().map(|event| text(event, "type").to_owned()).collect()
}

#[test]
fn c_6_1_events_have_their_fields_to_the_letter() {
    let answers = vec![Answer::call("echo", json!({"text": "hi"})), Answer::text("done")];
    let (server, sandbox) = served(answers, ECHO);
    sandbox.run("hello", &[]).expect_code(0);
    let journal = sandbox.journal();
    let process = "pid hostname start_time_unix process_name";
    let expected = [
        format!(
            "type seq timestamp run_id epoch agent_home agent_name agent_tree work_dir workspace_id max_iterations calls_per_answer repeats config {process} boot_id lease engine_version seal chain"
        ),
        "type seq timestamp content chain".to_owned(),
        "type seq timestamp iteration content tool_calls finish_reason usage estimated_tokens invocation record_sha256 chain".to_owned(),
        "type seq timestamp iteration call_id tool_name tool_args argv execution chain".to_owned(),
        "type seq timestamp iteration call_id tool_name observation_content exit_code duration_ms execution record_sha256 truncated chain"
            .to_owned(),
        "type seq timestamp iteration content tool_calls finish_reason usage estimated_tokens invocation record_sha256 chain".to_owned(),
        "type seq timestamp run_id status final_iteration agent_name usage seal chain".to_owned(),
    ];
    assert_eq!(journal.iter().map(keys).collect::<Vec<_>>(), expected);
    let expected =
        "ENGINE_START USER_MESSAGE THOUGHT ACTION_REQUEST ACTION_RESULT THOUGHT ENGINE_END";
    assert_eq!(kinds(&sandbox).join(" "), expected);
    for (index, event) in journal.iter().enumerate() {
        assert_eq!(event["seq"], index + 1);
        let stamp = text(event, "timestamp");
        let shape: String =
            stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
        assert!(index == 0 || stamp >= text(&journal[index - 1], "timestamp"));
    }
    check_values(&sandbox, &journal);
    assert_eq!(server.violations(), Vec::<String>::new());
}

fn check_values(sandbox: &Sandbox, journal: &[Value]) {
    let [start, message, thought, request, result, last, end] = journal else { panic!() };
    let path = |relative| sandbox.path(relative).to_string_lossy().into_owned();
    assert_eq!((text(start, "run_id"), &start["epoch"]), ("r", &json!(1)));
    assert_eq!(
        (text(start, "agent_home"), text(start, "work_dir")),
        (&*path("agent"), &*path("work"))
    );
    assert_eq!(start["max_iterations"], 30);
    assert!(start["pid"].is_u64() && start["start_time_unix"].is_u64());
    assert_eq!(text(start, "process_name"), "delta");
    assert_eq!(text(start, "engine_version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(text(message, "content"), "hello");
    assert_eq!((&thought["iteration"], text(thought, "content")), (&json!(1), ""));
    let call = json!([{"id": "call_1", "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"hi\"}"}}]);
    assert_eq!(thought["tool_calls"], call);
    assert_eq!(
        (&thought["usage"]["input_tokens"], &thought["usage"]["output_tokens"]),
        (&json!(11), &json!(7))
    );
    assert_eq!((text(request, "call_id"), text(request, "tool_name")), ("call_1", "echo"));
    assert_eq!(
        (&request["tool_args"], &request["argv"]),
        (&json!({"text": "hi"}), &json!(["echo", "hi"]))
    );
    assert_eq!((text(result, "call_id"), text(result, "observation_content")), ("call_1", "hi\n"));
    assert_eq!((&result["exit_code"], &result["truncated"]), (&json!(0), &json!(false)));
    assert_eq!((&last["iteration"], text(last, "content")), (&json!(2), "done"));
    assert_eq!(
        (text(end, "run_id"), text(end, "status"), &end["final_iteration"]),
        ("r", "COMPLETED", &json!(2))
    );
    let usage = json!({"input_tokens": 22, "cached_input_tokens": 0, "output_tokens": 14});
    assert_eq!((text(end, "agent_name"), &end["usage"]), ("test-agent", &usage));
    for (event, field) in [(thought, "invocation"), (request, "execution"), (result, "execution")] {
        let name = text(event, field);
        assert!(sandbox.path("work/.delta/r").join(name).is_file(), "{name}");
    }
}

#[test]
fn c_3_4_calls_of_one_answer_run_one_after_the_other() {
    let tools =
        "  - name: log\n    shell: echo begin ${n} >> log; echo end ${n} >> log; echo did ${n}\n";
    let calls = ["1", "2", "3"].map(|n| ("log", json!({"n": n}))).to_vec();
    let (server, sandbox) = served(vec![Answer::calls(calls), Answer::text("ok")], tools);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/log"), "begin 1\nend 1\nbegin 2\nend 2\nbegin 3\nend 3\n");
    assert_eq!(sandbox.observations(), ["did 1\n", "did 2\n", "did 3\n"]);
    let expected = "ENGINE_START USER_MESSAGE THOUGHT ACTION_REQUEST ACTION_RESULT ACTION_REQUEST ACTION_RESULT \
                    ACTION_REQUEST ACTION_RESULT THOUGHT ENGINE_END";
    assert_eq!(kinds(&sandbox).join(" "), expected);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_3_3_an_unknown_tool_is_answered_with_the_nearest_names() {
    let answers = vec![
        Answer::call("ehco", json!({})),
        Answer::raw_call("", "../../bin/sh", "{\"x\": 1}"),
        Answer::raw_call("", "rm -rf \u{1b}[2J", "broken"),
        Answer::raw_call("", " echo\u{0}", "{}"),
        Answer::text("ok"),
    ];
    let (server, sandbox) = served(answers, ECHO);
    sandbox.run("hello", &[]).expect_code(0);
    let seen = sandbox.observations();
    assert_eq!(seen[0], "There is no tool `ehco`; did you mean `echo`?");
    assert!(
        seen[1].starts_with("There is no tool `../../bin/sh`; known here: `echo`"),
        "{}",
        seen[1]
    );
    assert!(!seen[2].contains('\u{1b}'), "{}", seen[2]);
    assert_eq!(seen[3], "There is no tool ` echo\\u{0}`; did you mean `echo`?");
    assert!(sandbox.events("ACTION_REQUEST").iter().all(|event| event.get("argv").is_none()));
    assert_eq!(sandbox.files("work/.delta/r/io/tool_executions"), Vec::<String>::new());
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_3_1_bad_arguments_never_reach_a_process() {
    let tools = "  - name: make\n    command: [touch]\n    parameters:\n      - {name: file, inject_as: argument}\n      \
                 - {name: count, type: integer, required: false, inject_as: argument}\n      \
                 - {name: mode, enum: [a, b], required: false, inject_as: argument}\n      \
                 - {name: list, type: array, required: false, inject_as: argument}\n";
    let bad = [
        ("not json", "not JSON"),
        (r#"{"file": "x""#, "not JSON"),
        ("[1]", "an array"),
        (r#""x""#, "a string"),
        ("null", "missing required parameter `file`"),
        ("", "missing required parameter `file`"),
        ("{}", "missing required parameter `file`"),
        (r#"{"file": null}"#, "`file`"),
        (r#"{"file": "x", "fiel": 1}"#, "unknown parameter `fiel`"),
        (r#"{"file": ["x"]}"#, "must be a string, not an array"),
        (r#"{"file": "x", "count": "many"}"#, "must be an integer"),
        (r#"{"file": "x", "count": 1.5}"#, "must be an integer"),
        (r#"{"file": "x", "mode": "c"}"#, "must be one of"),
        (r#"{"file": "x", "list": [[1]]}"#, "array of strings"),
        (r#"{"file": "x\u0000y"}"#, "NUL"),
    ];
    let mut answers: Vec<_> =
        bad.iter().map(|(args, _)| Answer::raw_call("", "make", args)).collect();
    answers.push(Answer::text("ok"));
    let (server, sandbox) = served(answers, tools);
    sandbox.run("hello", &[]).expect_code(0);
    for ((args, expected), seen) in bad.iter().zip(sandbox.observations()) {
        assert!(seen.contains(expected), "{args}: {seen}");
    }
    assert_eq!(sandbox.observations().len(), bad.len());
    assert_eq!(sandbox.files("work/.delta/r/io/tool_executions"), Vec::<String>::new());
    let visible: Vec<_> =
        sandbox.files("work").into_iter().filter(|file| !file.starts_with(".delta/")).collect();
    assert_eq!(visible, Vec::<String>::new());
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A call with this id and this name; null for none.
fn raw_call(id: Value, name: Value) -> Value {
    let mut call = json!({"type": "function", "function": {"arguments": "{\"text\":\"x\"}"}});
    if !id.is_null() {
        call["id"] = id;
    }
    if !name.is_null() {
        call["function"]["name"] = name;
    }
    call
}

#[test]
fn c_3_4_hostile_ids_and_names_are_data() {
    let long = "x".repeat(5000);
    let first: Vec<_> = [
        json!(null),
        json!(""),
        json!("same"),
        json!("same"),
        json!("../x"),
        json!("a\nb\u{0}"),
        json!(long),
        json!(7),
    ]
    .into_iter()
    .map(|id| raw_call(id, json!("echo")))
    .collect();
    let second: Vec<_> = [
        json!(null),
        json!(""),
        json!("../../../etc/passwd"),
        json!("a b"),
        json!("e".repeat(300)),
        json!("echo\n"),
    ]
    .into_iter()
    .map(|name| raw_call(json!("same"), name))
    .collect();
    let messages = [
        json!({"role": "assistant", "content": null, "tool_calls": first}),
        json!({"role": "assistant", "content": "", "tool_calls": second}),
        json!({"role": "assistant", "content": "ok"}),
    ];
    let (server, sandbox) = served_whole(&messages, ECHO);
    sandbox.run("hello", &[]).expect_code(0);
    let requests = sandbox.events("ACTION_REQUEST");
    let ids: HashSet<&str> = requests.iter().map(|event| text(event, "call_id")).collect();
    assert_eq!((requests.len(), ids.len()), (14, 14));
    assert!(ids.contains("same") && ids.contains("../x"));
    assert_eq!(sandbox.observations().iter().filter(|seen| *seen == "x\n").count(), 8);
    let records = sandbox.files("work/.delta/r/io/tool_executions");
    assert_eq!(records.len(), 8);
    assert!(
        records.iter().all(|name| name.contains("Z_echo") && name.ends_with(".json")),
        "{records:?}"
    );
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_6_2_an_unfinished_task_never_looks_like_success() {
    let looping = |_: &RecordedRequest| Answer::call("echo", json!({"text": "again"}));
    let server = ScriptedServer::start(looping);
    let sandbox = Sandbox::asking(DELTA, &server.url(), &format!("{ECHO}max_iterations: 1\n"));
    let ran = sandbox.run("hello", &["--max-iterations", "3", "--format", "json"]).expect_code(1);
    let result = ran.json();
    assert_eq!(
        (&result["status"], &result["error"]["type"]),
        (&json!("FAILED"), &json!("max_iterations"))
    );
    assert_eq!(result["metrics"]["iterations"], 3);
    assert!(result.get("result").is_none());
    assert_eq!((server.requests().len(), sandbox.observations().len()), (3, 3));
    let error = &sandbox.events("ERROR")[0];
    assert_eq!(error["error_details"]["type"], "max_iterations");
    let end = &sandbox.events("ENGINE_END")[0];
    assert_eq!((&end["status"], &end["final_iteration"]), (&json!("FAILED"), &json!(3)));
    assert_eq!(sandbox.metadata()["status"], "FAILED");

    let second = Sandbox::asking(DELTA, &server.url(), &format!("{ECHO}max_iterations: 1\n"));
    second.run("hello", &[]).expect_code(1);
    assert_eq!(second.events("THOUGHT").len(), 1);
}

#[test]
fn c_6_3_an_empty_answer_is_asked_for_once_more() {
    let nothing = || Answer::calls(vec![]);
    let asking = |answers: Vec<Answer>, policy: &str| {
        let server = ScriptedServer::start(answers);
        let sandbox = Sandbox::new(DELTA);
        let llm = format!("model: m\n  base_url: {}\n  on_empty: {policy}", server.url());
        sandbox.agent(&llm, "");
        (server, sandbox)
    };
    // C-37.7: the same bytes would have the same answer, so a reminder follows.
    let (server, sandbox) = served(vec![nothing(), Answer::text("there")], "");
    let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "there\n");
    assert!(
        ran.stderr.contains("! the LLM's answer was empty; it is asked again"),
        "{}",
        ran.stderr
    );
    let thought = &sandbox.events("THOUGHT")[0];
    assert_eq!((&thought["content"], thought["reminder"].is_string()), (&json!(""), true));
    let messages = server.requests()[1].body["messages"].as_array().unwrap().clone();
    let [.., task, note] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((&task["content"], &note["role"]), (&json!("hello"), &json!("user")));
    assert_eq!(note["content"], "[Your answer was empty. Call a tool, or write the answer.]");
    assert_eq!(server.violations(), Vec::<String>::new());
    let (server, sandbox) = asking(vec![nothing(), Answer::text("late")], "fail");
    sandbox.run("hello", &[]).expect_code(1);
    assert_eq!(server.requests().len(), 1);

    let (server, sandbox) = asking(vec![nothing(), Answer::text("there")], "retry");
    let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "there\n");
    assert!(ran.stderr.contains("retrying once"), "{}", ran.stderr);
    assert_eq!(sandbox.events("THOUGHT")[0]["iteration"], 1);
    assert_eq!(sandbox.files("work/.delta/r/io/invocations").len(), 2);
    assert_eq!(server.requests()[0].bytes, server.requests()[1].bytes);

    for empty in [nothing(), Answer::text(" \n\t ")] {
        let (server, sandbox) = served(vec![empty, nothing(), Answer::text("too late")], "");
        let ran = sandbox.run("hello", &["--format", "json"]).expect_code(1);
        assert_eq!(ran.json()["error"]["type"], "empty_response");
        assert_eq!((server.requests().len(), sandbox.events("THOUGHT").len()), (2, 1));
        let details = &sandbox.events("ERROR")[0]["error_details"];
        assert_eq!(details["type"], "empty_response");
        let record = sandbox.path("work/.delta/r").join(text(details, "invocation"));
        assert!(record.is_file(), "the error names the call");
    }
}

/// The output in the record that `finish` leaves.
fn finish_output(sandbox: &Sandbox) -> Value {
    let dir = "work/.delta/r/io/tool_executions";
    let files = sandbox.files(dir);
    let file = files.iter().find(|name| name.ends_with("_finish.json")).expect("a record");
    let record: Value = serde_json::from_str(&sandbox.read(&format!("{dir}/{file}"))).unwrap();
    record["output"].clone()
}

#[test]
fn c_6_4_finish_takes_a_text_or_an_object() {
    for result in [json!("all done"), json!({"b": 1, "a": [true, null]})] {
        let (server, sandbox) = served(vec![Answer::call("finish", json!({"result": result}))], "");
        let ran = sandbox.run("hello", &["--format", "json"]).expect_code(0);
        assert_eq!((&ran.json()["status"], &ran.json()["result"]), (&json!("COMPLETED"), &result));
        assert_eq!(finish_output(&sandbox), result);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
    let wrong = [
        json!({}),
        json!({"result": 5}),
        json!({"result": "x", "more": 1}),
        json!({"result": null}),
    ];
    let mut answers: Vec<_> =
        wrong.iter().map(|args| Answer::call("finish", args.clone())).collect();
    answers.push(Answer::raw_call("", "finish", "no json"));
    answers.push(Answer::call("finish", json!({"result": "right"})));
    let (server, sandbox) = served(answers, "");
    assert_eq!(sandbox.run("hello", &["--format", "raw"]).expect_code(0).stdout, "right\n");
    assert!(sandbox.observations()[..5].iter().all(|seen| seen.contains("the run goes on")));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_6_4_finish_with_a_schema_takes_what_is_valid() {
    let schema = "{\"type\": \"object\", \"properties\": {\"count\": {\"type\": \"integer\", \"minimum\": 3}}, \"required\": [\"count\"]}";
    for finish in
        [format!("finish: {{schema: {schema}}}\n"), "finish: {schema: result.json}\n".to_owned()]
    {
        let answers = vec![
            Answer::call("finish", json!({"count": "many"})),
            Answer::call("finish", json!({})),
            Answer::call("finish", json!({"count": 2})),
            Answer::call("finish", json!({"count": 7, "note": "x"})),
        ];
        let (server, sandbox) = served(answers, &format!("{ECHO}{finish}"));
        sandbox.write("agent/result.json", schema);
        let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
        assert_eq!(
            serde_json::from_str::<Value>(&ran.stdout).unwrap(),
            json!({"count": 7, "note": "x"})
        );
        let seen = sandbox.observations();
        assert!(seen[0].contains("/count") && seen[0].contains("integer"), "{}", seen[0]);
        assert!(seen[1].contains("count") && seen[1].contains("required"), "{}", seen[1]);
        assert!(seen[2].contains("minimum"), "{}", seen[2]);
        assert_eq!(finish_output(&sandbox)["count"], 7);
        let tools = server.requests()[0].body["tools"].clone();
        let finish = tools
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["function"]["name"] == "finish")
            .unwrap();
        assert_eq!(
            finish["function"]["parameters"],
            serde_json::from_str::<Value>(schema).unwrap()
        );
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

fn offered(server: &ScriptedServer) -> Vec<String> {
    let body = &server.requests()[0].body;
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| text(&tool["function"], "name").to_owned()).collect()
}

#[test]
fn c_6_4_finish_can_be_taken_away_or_replaced() {
    let answers = vec![Answer::call("finish", json!({"result": "x"})), Answer::text("by text")];
    let (server, sandbox) = served(answers, &format!("{ECHO}finish: false\n"));
    assert_eq!(sandbox.run("hello", &["--format", "raw"]).expect_code(0).stdout, "by text\n");
    assert!(sandbox.observations()[0].starts_with("There is no tool `finish`"));
    assert_eq!(offered(&server), ["echo", "ask_human"]);

    let tools =
        "  - name: finish\n    exec: echo own ${what}\n  - name: echo\n    exec: echo ${text}\n";
    let calls = vec![("finish", json!({"what": "tool"})), ("echo", json!({"text": "second"}))];
    let (server, sandbox) = served(vec![Answer::calls(calls), Answer::text("end")], tools);
    assert_eq!(sandbox.run("hello", &["--format", "raw"]).expect_code(0).stdout, "end\n");
    assert_eq!(sandbox.observations(), ["own tool\n", "second\n"]);
    assert_eq!(offered(&server), ["finish", "echo", "ask_human"]);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_6_4_calls_beside_finish_run_first() {
    let calls = vec![
        ("finish", json!({"result": "first"})),
        ("echo", json!({"text": "beside"})),
        ("finish", json!({"result": "second"})),
        ("nothing", json!({})),
    ];
    let (_server, sandbox) = served(vec![Answer::calls(calls)], ECHO);
    assert_eq!(sandbox.run("hello", &["--format", "raw"]).expect_code(0).stdout, "first\n");
    let results = sandbox.events("ACTION_RESULT");
    let order: Vec<_> = results.iter().map(|event| text(event, "tool_name")).collect();
    assert_eq!(order, ["echo", "nothing", "finish", "finish"]);
    assert!(text(&results[3], "observation_content").contains("already"));
    assert_eq!(sandbox.events("THOUGHT").len(), 1);
    let records = sandbox.files("work/.delta/r/io/tool_executions");
    assert_eq!(records.iter().filter(|name| name.contains("_finish")).count(), 1);
}
