//! Answers as endpoints really send them, through the program.

use super::*;
use crate::agent_of;
use crate::images::{FORMS, png};

/// A chunk with one piece of a call.
fn call_piece(piece: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
}

/// What the endpoint reports about the tokens of a streamed answer is recorded as of a whole one.
#[test]
fn the_log_probabilities_of_a_stream_are_recorded() {
    let token =
        |token: &str| json!({"token": token, "logprob": -0.5, "bytes": null, "top_logprobs": []});
    let choice = |delta: Value, logprobs: Value| json!({"choices": [{"index": 0, "delta": delta, "logprobs": logprobs}]});
    let content = |tokens: &[Value]| json!({"content": tokens, "refusal": null});
    let chunks = [
        choice(json!({"role": "assistant", "content": ""}), Value::Null),
        choice(json!({"content": "so"}), content(&[token("s"), token("o")])),
        choice(json!({"content": " be it"}), content(&[token(" be it")])),
        choice(json!({}), content(&[])),
    ];
    let server = ScriptedServer::start(vec![streamed(&chunks, "stop")]);
    let sandbox = agent_for(&server, "\n  logprobs: true");
    sandbox.run("hello", &[]).expect_code(0);
    let recorded = &records(&sandbox)[0]["response"]["choices"][0];
    assert_eq!(recorded["message"]["content"], "so be it");
    let tokens = [token("s"), token("o"), token(" be it")];
    assert_eq!(recorded["logprobs"]["content"], json!(tokens), "{recorded}");
}

#[test]
fn c_37_1_calls_run_with_the_arguments_that_were_sent_or_not_at_all() {
    let named = |index: Value, id: &str, arguments: &str| {
        call_piece(
            json!({"index": index, "id": id, "function": {"name": "echo", "arguments": arguments}}),
        )
    };
    let rest = |index: Value, arguments: &str| {
        call_piece(json!({"index": index, "function": {"arguments": arguments}}))
    };
    let (whole, zero) = ("{\"text\":\"x\"}", json!(0));
    let cases = [
        (
            "twice",
            vec![named(zero.clone(), "a", whole), named(zero.clone(), "a", whole)],
            vec!["x"],
        ),
        ("empty first", vec![named(zero.clone(), "a", "{}"), rest(zero.clone(), whole)], vec!["x"]),
        ("all at once", vec![named(zero.clone(), "a", &format!("{{}}{whole}"))], vec!["x"]),
        (
            "cumulative",
            vec![
                named(zero.clone(), "a", "{\"te"),
                named(zero.clone(), "a", "{\"text\":\"x"),
                named(zero.clone(), "a", whole),
            ],
            vec!["x"],
        ),
        (
            "a number that drifts",
            vec![
                named(zero.clone(), "a", "{\"text\":"),
                rest(zero.clone(), "\"x\"}"),
                named(zero.clone(), "b", "{\"text\":"),
                rest(json!(1), "\"y\"}"),
            ],
            vec!["x", "y"],
        ),
        (
            "one id for all",
            vec![named(zero.clone(), "a", whole), named(json!(1), "a", "{\"text\":\"y\"}")],
            vec!["x", "y"],
        ),
        (
            "two in one",
            vec![named(zero.clone(), "a", whole), rest(zero, "{\"text\":\"y\"}")],
            vec![],
        ),
    ];
    for (name, chunks, expected) in cases {
        let server =
            ScriptedServer::start(vec![streamed(&chunks, "tool_calls"), Answer::text("done")]);
        let sandbox = agent_for(&server, "");
        sandbox.run("hello", &[]).expect_code(0);
        let results = sandbox.events("ACTION_RESULT").into_iter();
        let ran: Vec<_> = results.filter(|result| result["exit_code"] == 0).collect();
        let texts: Vec<_> =
            ran.iter().map(|it| it["observation_content"].as_str().unwrap().trim()).collect();
        assert_eq!(texts, expected, "{name}");
        assert_eq!(server.violations(), Vec::<String>::new(), "{name}");
    }
}

/// The answer was empty, or an error was reported that nobody had sent.
#[test]
fn c_7_1_an_answer_is_read_however_odd_its_frame_is() {
    let chunk = |delta: Value, more: Value| {
        let mut chunk = json!({"choices": [{"index": 0, "delta": delta}]});
        chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        chunk
    };
    let none = || json!({});
    let stream = |chunks: &[Value], start: &str, mark: &str| {
        let end =
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "error": ""});
        let events = chunks.iter().chain([&end]).map(|chunk| format!("data: {chunk}\n\n"));
        Answer::event_stream(format!("{start}{}data: {mark}\n\n", events.collect::<String>()))
    };
    let text = || chunk(json!({"content": "so be it"}), none());
    let part = json!({"type": "text", "text": "so be it"});
    let item = json!({"type": "message", "role": "assistant", "content": "so be it"});
    let response = |output: Value, more: Value| {
        let mut response = json!({"status": "completed", "model": "m", "output": output});
        response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let event = json!({"type": "response.completed", "response": response});
        Answer::event_stream(format!("event: response.completed\ndata: {event}\n\n"))
    };
    for (name, form, answer) in [
        ("a banner", "openai", stream(&[text()], "Proxy banner\n\n", "[DONE]")),
        ("a mark as JSON", "openai", stream(&[text()], "", "\"[DONE]\"")),
        ("a small mark", "openai", stream(&[text()], "", "[done]")),
        (
            "an empty error",
            "openai",
            stream(&[chunk(json!({"content": "so be it"}), json!({"error": {}}))], "", "[DONE]"),
        ),
        (
            "strings",
            "openai",
            stream(&[chunk(json!({"content": ["so be", " it"]}), none())], "", "[DONE]"),
        ),
        ("a part", "openai", stream(&[chunk(json!({"content": part}), none())], "", "[DONE]")),
        ("a whole part", "openai", whole(&json!({"role": "assistant", "content": part}))),
        ("a text", "responses", response(json!([item]), none())),
        ("the text of SDKs", "responses", response(json!([]), json!({"output_text": "so be it"}))),
    ] {
        let server = ScriptedServer::start(vec![answer]);
        let sandbox = Sandbox::new(DELTA);
        let llm =
            format!("provider: {form}\n  model: m\n  max_retries: 0\n  base_url: {}", server.url());
        sandbox.agent(&llm, ECHO);
        let ran = sandbox.run_command("hello", &["--format", "raw"]).env("OPENAI_API_KEY", "k");
        let ran = ran.output().expect_code(0);
        assert_eq!(ran.stdout, "so be it\n", "{name}");
        assert!(!ran.stderr.contains("error after its answer"), "{name}: {}", ran.stderr);
    }
    // Without an answer, the banner may say why.
    let banner = Answer::event_stream("The model is away\n\ndata: {\"choices\": []}\n\n");
    let server = ScriptedServer::start(vec![banner]);
    let sandbox = agent_for(&server, "\n  max_retries: 0");
    let ran = sandbox.run("hello", &[]).expect_code(1);
    assert!(ran.stderr.contains("The model is away"), "{}", ran.stderr);
}

#[test]
fn c_37_2_done_without_a_reason_is_asked_again() {
    let half = "data: {\"choices\":[{\"delta\":{\"content\":\"I will now\"}}]}\n\ndata: [DONE]\n\n";
    let server = ScriptedServer::start(vec![Answer::event_stream(half), Answer::text("the whole")]);
    let sandbox = agent_for(&server, "\n  max_retries: 1");
    let ran = sandbox.run("hello", &[]).expect_code(0);
    assert!(
        ran.stdout.contains("the whole") && !ran.stdout.contains("I will now"),
        "{}",
        ran.stdout
    );
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn c_37_3_the_words_of_an_error_are_shown_in_every_frame() {
    let start = "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n";
    let words = "the engine has died";
    let error = json!({"message": words, "code": 400});
    for (name, text) in [
        ("line", format!("{start}error: {error}\n\n")),
        ("named", format!("{start}event: error\ndata: {error}\n\n")),
        ("bare", format!("{start}{}\n\n", json!({"error": error}))),
        ("bare alone", json!({"error": error}).to_string()),
        (
            "without a member",
            format!(
                "{start}data: {}\n\n",
                json!({"object": "error", "message": words, "code": 400})
            ),
        ),
        ("page", format!("<html><head><title>{words}</title></head></html>")),
    ] {
        let server = ScriptedServer::start(vec![Answer::event_stream(text)]);
        let sandbox = agent_for(&server, "\n  max_retries: 0");
        let ran = sandbox.run("hello", &[]).expect_code(1);
        assert!(ran.stderr.contains(words), "{name}: {}", ran.stderr);
        let event = &sandbox.events("ERROR")[0];
        assert!(event["error_message"].as_str().unwrap().contains(words), "{name}: {event}");
        assert_eq!(server.requests().len(), 1, "{name}");
    }
    // Whole, in each form.
    for (form, key) in FORMS {
        for body in
            [json!({"object": "error", "message": words, "code": 400}), json!({"detail": words})]
        {
            let server = ScriptedServer::for_anything(vec![Answer::raw(200, body.to_string())]);
            let sandbox =
                agent_of(form, &server, "\n  max_retries: 0\n  max_tokens: 100\n  stream: false");
            let ran = sandbox.run_command("hello", &[]).env(key, "k-1").output().expect_code(1);
            assert!(ran.stderr.contains(words), "{form}: {}", ran.stderr);
        }
    }
}

#[test]
fn c_37_3_an_error_after_the_answer_does_not_undo_it() {
    let body = "data: {\"choices\":[{\"delta\":{\"content\":\"done\"},\"finish_reason\":\"stop\"}]}\n\n\
                data: {\"error\":{\"message\":\"no usage today\"}}\n\n";
    let server = ScriptedServer::start(vec![Answer::event_stream(body)]);
    let sandbox = agent_for(&server, "");
    let ran = sandbox.run("hello", &[]).expect_code(0);
    assert!(ran.stdout.contains("done") && ran.stderr.contains("no usage today"), "{}", ran.stderr);
}

#[test]
fn c_37_2_a_whole_answer_that_is_announced_as_a_stream_counts() {
    let message = json!({"role": "assistant", "content": "done"});
    let body = json!({"choices": [{"index": 0, "message": message}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}});
    for text in [body.to_string(), serde_json::to_string_pretty(&body).unwrap()] {
        let server = ScriptedServer::start(vec![Answer::event_stream(text)]);
        let ran = agent_for(&server, "").run("hello", &[]).expect_code(0);
        assert!(ran.stdout.contains("done"), "{}", ran.stdout);
    }
}

#[test]
fn c_37_5_tokens_count_wherever_they_are() {
    let chunk = |usage: Value, at_choice: bool| {
        let mut chunk = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        if at_choice {
            chunk["choices"][0]["usage"] = usage;
        } else {
            chunk["usage"] = usage;
        }
        chunk
    };
    let counts = json!({"prompt_tokens": 77, "completion_tokens": 5, "cached_tokens": 40});
    let zeros = json!({"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0});
    for usages in
        [vec![chunk(counts.clone(), true)], vec![chunk(counts, false), chunk(zeros, false)]]
    {
        let text = json!({"choices": [{"index": 0, "delta": {"content": "done"}}]});
        let server =
            ScriptedServer::start(vec![streamed(&[&[text], &usages[..]].concat(), "stop")]);
        let sandbox = agent_for(&server, "");
        sandbox.run("hello", &[]).expect_code(0);
        let usage = &sandbox.events("THOUGHT")[0]["usage"];
        let read = ["input_tokens", "cached_input_tokens", "output_tokens"]
            .map(|name| usage[name].as_u64());
        assert_eq!(read, [Some(77), Some(40), Some(5)]);
    }
}

/// An endpoint whose template takes one system message, at the beginning.
fn one_system_message(mut answers: Vec<Answer>) -> ScriptedServer {
    ScriptedServer::for_anything(move |request: &RecordedRequest| {
        let messages = request.body["messages"].as_array().unwrap().iter().skip(1);
        if messages.clone().any(|message| message["role"] == "system") {
            return Answer::error(400, "System message must be at the beginning.", None);
        }
        answers.remove(0)
    })
}

#[test]
fn c_8_1_an_endpoint_with_one_system_message_is_refused_once_and_remembered() {
    let refusals = |server: &ScriptedServer| {
        let requests = server.requests();
        let is_refused = |request: &&RecordedRequest| {
            let messages = request.body["messages"].as_array().unwrap();
            messages.iter().skip(1).any(|message| message["role"] == "system")
        };
        requests.iter().filter(is_refused).count()
    };
    for (llm, refused) in [("", 1), ("\n  system_messages: merged", 0)] {
        let server = one_system_message(vec![
            Answer::call("echo", json!({"text": "x"})),
            Answer::text("first"),
            Answer::text("second"),
            Answer::text("of the fork"),
        ]);
        let sandbox = agent_for(&server, llm);
        sandbox.write(
            "agent/context.yaml",
            "sources:\n  - {type: file, id: system_prompt, path: system_prompt.md}\n  - {type: file, id: more, path: system_prompt.md}\n  - {type: journal}\n  - {type: file, id: last, path: system_prompt.md}\n",
        );
        sandbox.run("hello", &[]).expect_code(0);
        sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(0);
        let fork = ["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into", "work"];
        sandbox.delta(fork).output().expect_code(0);
        sandbox.delta(["continue", "f", "-w", "work", "-m", "other"]).output().expect_code(0);
        assert_eq!(refusals(&server), refused, "{llm}");
        let requests = server.requests();
        let body = &requests.last().unwrap().body;
        let messages = body["messages"].as_array().unwrap();
        let first = messages[0]["content"].as_str().unwrap();
        assert!(first.contains("system_prompt") && first.contains("more"), "{first}");
        let last = messages.last().unwrap();
        assert_eq!(last["role"], "user");
        assert!(last["content"].as_str().unwrap().starts_with("[system]\n"), "{last}");
    }
    let server = one_system_message(vec![]);
    let sandbox = agent_for(&server, "\n  system_messages: separate");
    sandbox.write(
        "agent/context.yaml",
        "sources:\n  - {type: file, id: a, path: system_prompt.md}\n  - {type: file, id: b, path: system_prompt.md}\n  - {type: journal}\n",
    );
    sandbox.run("hello", &[]).expect_code(1);
    assert_eq!(server.requests().len(), 1);
}

/// An endpoint whose template counts roles as those of Devstral do: user and assistant in turn, but for calls and results.
fn roles_in_turn(mut answers: Vec<Answer>) -> ScriptedServer {
    ScriptedServer::for_anything(move |request: &RecordedRequest| {
        let messages = request.body["messages"].as_array().unwrap();
        let spoken = messages
            .iter()
            .skip(1)
            .filter(|message| message["role"] != "tool" && message.get("tool_calls").is_none());
        let roles: Vec<_> = spoken.map(|message| message["role"].as_str().unwrap()).collect();
        let is_in_turn = |(at, role): (usize, &&str)| *role == ["user", "assistant"][at % 2];
        if roles.iter().enumerate().all(is_in_turn) {
            return answers.remove(0);
        }
        let words = "\n------------\nError: Jinja Exception: After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results.";
        Answer::error(500, words, None)
    })
}

#[test]
fn c_3_5_an_endpoint_that_wants_the_roles_in_turn_gets_them_and_is_remembered() {
    let server = roles_in_turn(vec![
        Answer::call("echo", json!({"text": "x"})),
        Answer::calls(vec![]),
        Answer::text("first"),
        Answer::text("second"),
    ]);
    let sandbox = agent_for(&server, "");
    sandbox.write(
        "agent/context.yaml",
        "sources:\n  - {type: file, id: a, path: system_prompt.md}\n  - {type: file, id: b, path: system_prompt.md}\n  - {type: journal}\n  - {type: file, id: last, path: system_prompt.md}\n",
    );
    let ran = sandbox.run("hello", &[]).expect_code(0);
    let words = "500 Internal Server Error: ------------ Error: Jinja Exception: After the";
    assert!(ran.stderr.contains(words), "{}", ran.stderr);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(0);
    let requests = server.requests();
    assert_eq!(requests.len(), 6, "one refusal of the system messages, and one of the order");
    let roles_of = |at: usize| -> Vec<String> {
        let messages = requests[at].body["messages"].as_array().unwrap().iter();
        messages.map(|message| message["role"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(roles_of(2), ["system", "user"]);
    assert_eq!(roles_of(3), ["system", "user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(requests[3].body["messages"][4]["content"], "OK.");
    // The reminder after the empty answer and the last source are one message.
    assert_eq!(roles_of(4), roles_of(3));
}

#[test]
fn c_3_5_the_image_of_a_result_reaches_an_endpoint_that_wants_the_roles_in_turn() {
    let server = roles_in_turn(vec![Answer::call("shot", json!({})), Answer::text("seen")]);
    let sandbox = Sandbox::asking(
        DELTA,
        &server.url(),
        "  - name: shot\n    exec: cat ${AGENT_HOME}/a.png\n    output: image\n",
    );
    sandbox.write("agent/a.png", png(64, 48));
    assert_eq!(sandbox.run("look", &["--format", "raw"]).expect_code(0).stdout, "seen\n");
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    let messages = requests[2].body["messages"].as_array().unwrap();
    assert_eq!(messages[messages.len() - 2]["content"], "OK.");
    assert_eq!(messages[messages.len() - 1]["content"][1]["type"], "image_url");
}

#[test]
fn c_3_1_a_long_list_of_texts_is_taken_whole_or_refused() {
    let tools = "  - name: sum\n    exec: wc -w\n    stdin: n\n    parameters:\n      - {name: n, type: array, items: {type: integer}}\n";
    for (count, is_taken) in [(51, true), (10_000, true), (10_001, false)] {
        let texts: Vec<String> = (0..count).map(|n: u32| n.to_string()).collect();
        let server = ScriptedServer::start(vec![
            Answer::call("sum", json!({"n": texts})),
            Answer::text("done"),
        ]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: test-model\n  base_url: {}", server.url()), tools);
        sandbox.run("hello", &[]).expect_code(0);
        let was_run = sandbox.events("ACTION_RESULT")[0].get("exit_code").is_some();
        assert_eq!(was_run, is_taken, "{count}");
    }
}

#[test]
fn c_3_1_texts_of_what_the_tool_wants_are_taken_and_named() {
    let tools = "  - name: add\n    exec: echo ${n} ${deep} ${list} ${word}\n    parameters:\n      - {name: n, type: integer}\n      - {name: deep, type: boolean}\n      - {name: list, type: array}\n      - {name: word, type: string, required: false}\n";
    let nearly =
        json!({"n": "12345678901234567", "deep": "true", "list": "[\"a\",\"b\"]", "word": "5"});
    let right =
        json!({"n": 12_345_678_901_234_567_u64, "deep": true, "list": ["a", "b"], "word": "5"});
    let cases = [
        (nearly.to_string(), json!(["n", "deep", "list"]), right.clone()),
        (json!(right.to_string()).to_string(), json!(["n", "deep", "list", "word"]), right.clone()),
        (right.to_string(), Value::Null, right.clone()),
    ];
    for (arguments, coerced, taken) in cases {
        let server = ScriptedServer::start(vec![
            Answer::raw_call("a", "add", &arguments),
            Answer::text("done"),
        ]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: test-model\n  base_url: {}", server.url()), tools);
        sandbox.run("hello", &[]).expect_code(0);
        let request = &sandbox.events("ACTION_REQUEST")[0];
        assert_eq!((&request["coerced"], &request["tool_args"]), (&coerced, &taken), "{arguments}");
        assert_eq!(sandbox.events("ACTION_RESULT")[0]["exit_code"], 0);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
    for (llm, arguments) in [
        ("\n  strict_arguments: true", nearly.to_string()),
        ("", json!({"n": "5 apples", "deep": "true", "list": "[]"}).to_string()),
        ("", json!({"n": "5", "deep": "yes", "list": "[]"}).to_string()),
        ("", json!({"n": "5", "deep": "null", "list": "[]"}).to_string()),
    ] {
        let server = ScriptedServer::start(vec![
            Answer::raw_call("a", "add", &arguments),
            Answer::text("done"),
        ]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: test-model\n  base_url: {}{llm}", server.url()), tools);
        sandbox.run("hello", &[]).expect_code(0);
        assert!(sandbox.events("ACTION_RESULT")[0].get("exit_code").is_none(), "{arguments}");
    }
}

#[test]
fn c_3_1_only_arguments_that_are_wrong_are_named() {
    let add = "  - name: add\n    exec: echo ${n} ${d} ${o}\n    parameters:\n      - {name: n, type: integer}\n      - {name: d, type: boolean}\n      - {name: o, type: object, required: false, properties: {a: {type: integer}, b: {type: integer}}}\n";
    let whole = "  - name: add\n    exec: cat\n    schema: {type: object, properties: {n: {type: integer}, d: {type: boolean}, o: {type: array, items: {type: integer}}}}\n";
    let finish = "  - name: other\n    exec: 'true'\nfinish: {schema: {type: object, properties: {n: {type: integer}, d: {type: boolean}}}}\n";
    let quoted = json!(json!({"n": "7", "d": "True"}).to_string());
    for (tools, tool, arguments, wrong) in [
        (
            add,
            "add",
            json!({"n": "7", "d": "True"}),
            vec!["parameter `d` must be a boolean, not a string"],
        ),
        (
            add,
            "add",
            json!({"n": "[7]", "d": "True"}),
            vec!["`n` must be an integer, not a string", "`d` must be a boolean"],
        ),
        (
            add,
            "add",
            json!({"n": "7", "d": "true", "o": {"a": "1", "b": "x"}}),
            vec!["parameter `o`: "],
        ),
        (add, "add", quoted.clone(), vec!["parameter `d` must be a boolean"]),
        (
            whole,
            "add",
            json!({"n": "7", "d": "True", "o": ["1", "x", "2"]}),
            vec!["/d: must be", "/o/1: must be"],
        ),
        (finish, "finish", json!({"n": "7", "d": "True"}), vec!["/d: must be"]),
    ] {
        let call = Answer::raw_call("a", tool, &arguments.to_string());
        let server = ScriptedServer::start(vec![call, Answer::text("done")]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: test-model\n  base_url: {}", server.url()), tools);
        sandbox.run("hello", &[]).expect_code(0);
        let observation = sandbox.observations().remove(0);
        let lines: Vec<&str> = observation.lines().filter(|line| line.starts_with("- ")).collect();
        assert_eq!(lines.len(), wrong.len(), "{observation}");
        for (line, wrong) in lines.iter().zip(wrong) {
            assert!(line.contains(wrong), "{wrong}: {observation}");
        }
    }
}

#[test]
fn c_38_8_a_program_gets_no_repeated_name_at_any_depth() {
    let digits = "12345678901234567890123";
    let repeated =
        format!(r#"{{"path":"/etc/shadow","p\u0061th":"ok.txt","l":[{{"n":1,"n":{digits}}}]}}"#);
    let once = format!(r#"{{"p\u0061th":"ok.txt","l":[{{"n":{digits}}}]}}"#);
    let schema = "    exec: cat\n    schema: {type: object, properties: {o: {type: object}}}\n";
    let parameter = "    exec: echo ${o}\n    parameters:\n      - {name: o, type: object}\n";
    for (tool, printed) in [(schema, format!("{{\"o\":{once}}}")), (parameter, once.clone())] {
        for text in [repeated.clone(), json!(repeated).to_string()] {
            let call = Answer::raw_call("a", "t", &format!("{{\"o\": {text}}}"));
            let server = ScriptedServer::start(vec![call, Answer::text("done")]);
            let sandbox = Sandbox::new(DELTA);
            let llm = format!("model: test-model\n  base_url: {}", server.url());
            sandbox.agent(&llm, &format!("  - name: t\n{tool}"));
            sandbox.run("hello", &[]).expect_code(0);
            assert_eq!(sandbox.observations()[0].trim_end(), printed, "{text}");
        }
    }
}
