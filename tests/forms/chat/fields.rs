//! Fields of answers that have to go back as they came.

use super::*;
use test_support::needs;

/// An answer with a call as a vendor sends it, streamed and whole, and what its message has in the next request.
struct VendorAnswer {
    name: &'static str,
    deltas: Vec<Value>,
    message: Value,
    returned: Value,
}

fn vendor_answers() -> Vec<VendorAnswer> {
    let call = echo_call("call_x");
    let long_call = echo_call(&format!("call_x__thought__{}", "Sig+/".repeat(2000)));
    let signed_call = || {
        let mut call = echo_call("call_x");
        call["extra_content"] = json!({"google": {"thought_signature": "Sig+/="}});
        call
    };
    let detail = |fields: Value| {
        let mut detail =
            json!({"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0});
        detail.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        detail
    };
    let encrypted =
        json!({"type": "reasoning.encrypted", "data": "eA==", "id": "rs_1", "index": 1});
    let details = json!([detail(json!({"text": "Let me", "signature": "Sig"})), encrypted]);
    let blocks = json!([
        {"type": "thinking", "thinking": "Let me", "signature": "Sig"},
        {"type": "redacted_thinking", "data": "eA=="}
    ]);
    let thinking =
        |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
    let parts = json!([thinking("Let me"), {"type": "text", "text": "So:"}]);
    vec![
        VendorAnswer {
            name: "gemini",
            deltas: vec![json!({"role": "assistant", "tool_calls": [signed_call()]})],
            message: json!({"role": "assistant", "content": null, "tool_calls": [signed_call()]}),
            returned: json!({"tool_calls": [{"extra_content": {"google": {"thought_signature": "Sig+/="}}}]}),
        },
        VendorAnswer {
            name: "openrouter",
            deltas: vec![
                json!({"content": "", "reasoning": "Let", "reasoning_details": [detail(json!({"text": "Let"}))]}),
                json!({"content": "", "reasoning": " me", "reasoning_details": [detail(json!({"text": " me"}))]}),
                json!({"content": "", "reasoning_details": [detail(json!({"signature": "Sig"}))]}),
                json!({"content": "", "reasoning_details": [encrypted]}),
                json!({"tool_calls": [call]}),
            ],
            message: json!({"role": "assistant", "content": "", "reasoning": "Let me", "reasoning_details": details, "tool_calls": [call]}),
            returned: json!({"reasoning_details": details}),
        },
        VendorAnswer {
            name: "litellm",
            deltas: vec![
                json!({"reasoning_content": "Let", "thinking_blocks": [{"type": "thinking", "thinking": "Let", "signature": ""}]}),
                json!({"reasoning_content": " me", "thinking_blocks": [{"type": "thinking", "thinking": " me", "signature": ""}]}),
                json!({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "Sig"}]}),
                json!({"thinking_blocks": [{"type": "redacted_thinking", "data": "eA=="}]}),
                json!({"tool_calls": [call]}),
            ],
            message: json!({"role": "assistant", "content": null, "reasoning_content": "Let me", "thinking_blocks": blocks, "tool_calls": [call]}),
            returned: json!({"reasoning_content": "Let me", "thinking_blocks": blocks}),
        },
        VendorAnswer {
            name: "deepseek",
            deltas: vec![
                json!({"content": null, "reasoning_content": "Let"}),
                json!({"content": null, "reasoning_content": " me"}),
                json!({"tool_calls": [call]}),
            ],
            message: json!({"role": "assistant", "content": "", "reasoning_content": "Let me", "tool_calls": [call]}),
            returned: json!({"reasoning_content": "Let me"}),
        },
        VendorAnswer {
            name: "vllm",
            deltas: vec![
                json!({"reasoning": "Let"}),
                json!({"reasoning": " me"}),
                json!({"tool_calls": [call]}),
            ],
            message: json!({"role": "assistant", "content": null, "reasoning": "Let me", "tool_calls": [call]}),
            returned: json!({"reasoning": "Let me"}),
        },
        VendorAnswer {
            name: "mistral",
            deltas: vec![
                json!({"content": [thinking("Let")]}),
                json!({"content": [thinking(" me")]}),
                json!({"content": "So"}),
                json!({"content": ":"}),
                json!({"tool_calls": [call]}),
            ],
            message: json!({"role": "assistant", "content": parts, "tool_calls": [call]}),
            returned: json!({"content": parts}),
        },
        VendorAnswer {
            name: "signed id",
            deltas: vec![json!({"reasoning": "Let me"}), json!({"tool_calls": [long_call]})],
            message: json!({"role": "assistant", "content": null, "reasoning": "Let me", "tool_calls": [long_call]}),
            returned: json!({"tool_calls": [{"id": long_call["id"]}]}),
        },
    ]
}

/// Whether `value` has everything that `expected` has.
fn contains(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Object(fields), Value::Object(expected)) => {
            expected.iter().all(|(name, expected)| {
                fields.get(name).is_some_and(|value| contains(value, expected))
            })
        }
        (Value::Array(items), Value::Array(expected)) => {
            items.len() == expected.len() && items.iter().zip(expected).all(|(a, b)| contains(a, b))
        }
        (value, expected) => value == expected,
    }
}

const FIELDS: [&str; 4] = ["reasoning", "reasoning_details", "thinking_blocks", "extra_content"];

#[test]
fn c_23_1_the_fields_of_every_vendor_go_back_streamed_or_whole() {
    for VendorAnswer { name, deltas, message, returned } in vendor_answers() {
        let mut journals = Vec::new();
        for (llm, first) in
            [("", streamed(&deltas, "tool_calls")), ("\n  stream: false", whole(&message))]
        {
            let server = ScriptedServer::for_anything(vec![
                first,
                Answer::call("echo", json!({"text": "y"})),
                Answer::text("done"),
            ]);
            let sandbox = agent_for(&server, llm);
            sandbox.run("hello", &[]).expect_code(0);
            let requests = messages_of(&server, &FIELDS);
            for request in &requests[1..] {
                assert!(contains(&request[2], &returned), "{name}{llm}: {:#}", request[2]);
                assert!(request.iter().all(|message| message.get("native").is_none()));
                let id = &request[2]["tool_calls"][0]["id"];
                assert_eq!(&request[3]["tool_call_id"], id, "{name}{llm}");
            }
            let result = &sandbox.events("ACTION_RESULT")[0]["call_id"];
            assert!(result.as_str().unwrap().len() <= 128, "{name}: {result}");
            let later = requests[2][4].get("reasoning_content").cloned();
            let has_reasoning = returned.get("reasoning_content").is_some();
            assert_eq!(
                later,
                has_reasoning.then(|| json!("")),
                "{name}: the answer without reasoning"
            );
            let native = sandbox.events("THOUGHT")[0]["native"].clone();
            assert_eq!(
                (&native["form"], &native["model"], &native["endpoint"]),
                (&json!("openai"), &json!("test-model"), &json!("127.0.0.1"))
            );
            let records = records(&sandbox);
            assert_eq!(records[0]["wire"], Value::Null, "the first request was sent as it was");
            assert_eq!(records[1]["wire"]["form"], "openai");
            assert_eq!(records[0]["response"]["choices"][0]["message"]["native"], native);
            if name != "gemini" {
                assert_eq!(records[0]["reasoning"], "Let me", "{name}");
            }
            journals.push(native["parts"].clone());
        }
        assert_eq!(journals[0], journals[1], "{name}");
    }
}

#[test]
fn c_23_1_an_answer_without_such_fields_costs_nothing() {
    let server = ScriptedServer::start(vec![
        Answer::call("echo", json!({"text": "x"})).saying("so"),
        Answer::text("done"),
        Answer::text("again"),
    ]);
    let sandbox = agent_for(&server, "");
    sandbox.run("hello", &[]).expect_code(0);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(0);
    assert!(sandbox.events("THOUGHT").iter().all(|thought| thought.get("native").is_none()));
    assert!(records(&sandbox).iter().all(|record| record["wire"].is_null()));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_23_1_another_model_or_endpoint_gets_no_foreign_fields() {
    let answer = || vendor_answers().remove(1);
    let first = ScriptedServer::for_anything(vec![
        streamed(&answer().deltas, "tool_calls"),
        Answer::text("done"),
        Answer::text("other model"),
        Answer::text("back"),
    ]);
    let other = ScriptedServer::start(vec![Answer::text("other endpoint")]);
    let sandbox = agent_for(&first, "");
    sandbox.run("hello", &[]).expect_code(0);
    let proceed = |more: &[&str]| {
        let args = ["continue", "r", "-w", "work", "-m", "more"].iter().chain(more).copied();
        sandbox.delta(args).output().expect_code(0);
    };
    proceed(&["--model", "openai:another"]);
    let localhost = other.url().replace("127.0.0.1", "localhost");
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", yaml.replace(&first.url(), &localhost));
    proceed(&["--model", "openai:test-model"]);
    sandbox.write("agent/agent.yaml", yaml);
    proceed(&["--model", "openai:test-model"]);
    assert_eq!(other.violations(), Vec::<String>::new());
    let requests = messages_of(&first, &FIELDS);
    let has_details = |at: usize| requests[at][2].get("reasoning_details").is_some();
    assert!(has_details(1) && !has_details(2) && has_details(3));
}

#[test]
fn c_23_1_a_hook_that_changes_the_answer_drops_what_belongs_to_it() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let answer = || vendor_answers().remove(1);
    for (filter, keeps) in [
        (".response", true),
        (".response | .id = \"mine\"", true),
        (".response | .choices[0].message.content = \"mine\"", false),
        (
            ".response | .choices[0].message.tool_calls[0].function.arguments = \"{\\\"text\\\":\\\"z\\\"}\"",
            false,
        ),
        (".response | del(.choices[0].message.native)", false),
    ] {
        let server = ScriptedServer::for_anything(vec![
            streamed(&answer().deltas, "tool_calls"),
            Answer::text("done"),
        ]);
        let sandbox = agent_for(&server, "");
        let answer = format!("{{response: ({filter})}}");
        let filter_calls =
            format!("if .response.choices[0].message.tool_calls then {answer} else {{}} end");
        sandbox.write("agent/filter.jq", filter_calls);
        let hook = "post_llm_response: {command: [jq, -c, -f, '${AGENT_HOME}/filter.jq']}\n";
        sandbox.write("agent/hooks.yaml", hook);
        sandbox.run("hello", &[]).expect_code(0);
        let returned = server.requests()[1].body["messages"][2].get("reasoning_details").is_some();
        assert_eq!(returned, keeps, "{filter}");
        assert_eq!(sandbox.events("THOUGHT")[0].get("native").is_some(), keeps, "{filter}");
    }
}

#[test]
fn c_23_1_an_endpoint_that_rejects_the_fields_gets_none() {
    let answer = vendor_answers().remove(3);
    let rejection = "'messages.2': property 'reasoning_content' is unsupported";
    let server = ScriptedServer::for_anything(vec![
        streamed(&answer.deltas, "tool_calls"),
        Answer::error(400, rejection, None),
        Answer::call("echo", json!({"text": "y"})),
        Answer::text("done"),
    ]);
    let sandbox = agent_for(&server, "");
    sandbox.run("hello", &[]).expect_code(0);
    let requests = messages_of(&server, &FIELDS);
    let returned: Vec<_> = requests[1..]
        .iter()
        .map(|messages| messages[2].get("reasoning_content").is_some())
        .collect();
    assert_eq!(returned, [true, false, false]);
    let record = &records(&sandbox)[1];
    assert_eq!(record["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(record["wire"]["options"]["drops_unbound_native"], true);

    let required = "The `reasoning_content` in the thinking mode must be passed back to the API";
    let server = ScriptedServer::for_anything(vec![
        streamed(&answer.deltas, "tool_calls"),
        Answer::error(400, required, None),
    ]);
    let sandbox = agent_for(&server, "");
    let ran = sandbox.run("hello", &[]).expect_code(1);
    assert!(ran.stderr.contains(required), "{}", ran.stderr);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn c_7_7_the_reasoning_of_texts_goes_back_too_unless_it_is_kept_out() {
    for (llm, echoed) in [
        ("", json!("Let me")),
        ("\n  echo_reasoning: true", json!("Let me")),
        ("\n  echo_reasoning: false", Value::Null),
    ] {
        let server = ScriptedServer::start(vec![
            Answer::text("first").thinking("Let me"),
            Answer::call("echo", json!({"text": "x"})),
            Answer::text("done"),
        ]);
        let sandbox = agent_for(&server, llm);
        sandbox.run("hello", &[]).expect_code(0);
        sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(0);
        assert_eq!(server.requests()[1].body["messages"][2]["reasoning_content"], echoed);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[test]
fn c_23_1_ids_of_calls_fit_the_endpoint() {
    let server = ScriptedServer::start(vec![
        Answer::raw_call("call_of_another_model", "echo", "{\"text\":\"x\"}"),
        Answer::raw_call("aB3456789", "echo", "{\"text\":\"y\"}"),
        Answer::text("done"),
    ]);
    let sandbox = agent_for(&server, "\n  call_ids: 9");
    sandbox.run("hello", &[]).expect_code(0);
    let last = server.requests()[2].body["messages"].clone();
    let ids: Vec<_> = [2, 4].map(|at| last[at]["tool_calls"][0]["id"].as_str().unwrap()).into();
    assert!(
        ids.iter().all(|id| id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric())),
        "{ids:?}"
    );
    assert_eq!(
        (&last[3]["tool_call_id"], &last[5]["tool_call_id"]),
        (&json!(ids[0]), &json!(ids[1]))
    );
    assert_eq!(ids[1], "aB3456789");
    assert_eq!(server.requests()[1].body["messages"][2]["tool_calls"][0]["id"], json!(ids[0]));
    assert_eq!(sandbox.events("THOUGHT")[0]["tool_calls"][0]["id"], "call_of_another_model");
    assert_eq!(server.violations(), Vec::<String>::new());
    let sandbox = agent_for(&server, "\n  call_ids: 8");
    let ran = sandbox.run("hello", &[]).expect_code(126);
    assert!(ran.stderr.contains("call_ids"), "{}", ran.stderr);
}

#[test]
fn c_15_3_a_key_in_the_fields_is_not_kept() {
    let mut answer = vendor_answers().remove(3);
    answer.deltas[0] = json!({"reasoning_content": "the key sk-secret-123 is"});
    let server = ScriptedServer::for_anything(vec![
        streamed(&answer.deltas, "tool_calls"),
        Answer::text("done"),
    ]);
    let sandbox = agent_for(&server, "");
    sandbox.run_command("hello", &[]).env("DELTA_API_KEY", "sk-secret-123").output().expect_code(0);
    assert!(sandbox.events("THOUGHT")[0].get("native").is_none());
    for file in sandbox.files("work/.delta") {
        assert!(!sandbox.read(&format!("work/.delta/{file}")).contains("sk-secret-123"), "{file}");
    }
}
