//! `delta export`: a run as spans, as a trajectory, as a conversation and as a document; whatever its state.

use super::DELTA;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const FORMATS: [&str; 4] = ["otlp", "atif", "openai", "markdown"];

const TOOLS: &str = "  - name: note\n    shell: printf 'noted %s\\n' ${text}\n  - name: fail\n    shell: echo no; exit 3\n  - name: slow\n    shell: sleep 100\n    timeout_ms: 50\n";

pub fn export(sandbox: &Sandbox, format: &str, more: &[&str]) -> Ran {
    let fixed = ["export", "r", "-w", "work", "--to", format];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

/// The spans of lines of OTLP/JSON; every line is held to the form that a receiver reads.
fn spans(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for line in text.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let [resource] = &request["resourceSpans"].as_array().unwrap()[..] else {
            panic!("{line}")
        };
        let [scope] = &resource["scopeSpans"].as_array().unwrap()[..] else { panic!("{line}") };
        assert_eq!(scope["schemaUrl"], "https://opentelemetry.io/schemas/1.41.0");
        assert_eq!(scope["scope"], json!({"name": "delta", "version": env!("CARGO_PKG_VERSION")}));
        found.extend(scope["spans"].as_array().unwrap().iter().cloned());
    }
    for span in &found {
        check_span(span);
    }
    found
}

fn check_span(span: &Value) {
    let hex = |name: &str, length: usize| {
        let text = span[name].as_str().unwrap();
        let digits = text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
        assert!(digits && text.len() == length, "{name}: {text}");
    };
    hex("traceId", 32);
    hex("spanId", 16);
    if span.get("parentSpanId").is_some() {
        hex("parentSpanId", 16);
    }
    let nanos = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    assert!(nanos("startTimeUnixNano") > 1_700_000_000_000_000_000);
    assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
}

/// A value of OTLP as it is meant.
fn plain(value: &Value) -> Value {
    let (kind, inner) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "intValue" => json!(inner.as_str().unwrap().parse::<i64>().unwrap()),
        "arrayValue" => inner["values"].as_array().unwrap().iter().map(plain).collect(),
        "stringValue" | "doubleValue" | "boolValue" => inner.clone(),
        other => panic!("{other}"),
    }
}

fn attributes(span: &Value) -> BTreeMap<String, Value> {
    let pair = |pair: &Value| (pair["key"].as_str().unwrap().to_owned(), plain(&pair["value"]));
    span["attributes"].as_array().unwrap().iter().map(pair).collect()
}

/// Each span on a line: its depth, its name, its kind, what it failed of, its attributes.
fn outline(spans: &[Value]) -> String {
    let parent = |span: &Value| {
        let id = span.get("parentSpanId")?;
        spans.iter().find(|other| &other["spanId"] == id)
    };
    let line = |span: &Value| {
        let depth = std::iter::successors(parent(span), |span| parent(span)).count();
        let status = &span["status"];
        let error = match status["code"].as_u64() {
            Some(2) => format!(" ({})", status["message"].as_str().unwrap()),
            _ => String::new(),
        };
        let hidden = ["gen_ai.operation.name", "gen_ai.conversation.id", "gen_ai.provider.name"];
        let shown = attributes(span).into_iter().filter(|(key, _)| !hidden.contains(&&**key));
        let shown: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
        let (name, kind) = (span["name"].as_str().unwrap(), &span["kind"]);
        format!("{}{name} [{kind}]{error} {}\n", "  ".repeat(depth), shown.join(" "))
    };
    spans.iter().map(line).collect()
}

/// A run against an endpoint that fails once, with calls that fail in every way.
pub fn eventful() -> (Sandbox, ScriptedServer) {
    let answers = vec![
        Answer::error(503, "busy", None).header("Retry-After-Ms", "0"),
        Answer::calls(vec![
            ("note", json!({"text": "a"})),
            ("fail", json!({})),
            ("slow", json!({})),
            ("missing", json!({})),
        ])
        .saying("looking")
        .usage(100, 20),
        Answer::call("finish", json!({"result": "all is said"})).usage(150, 5),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.agent(
        &format!(
            "model: test-model\n  base_url: {}\n  temperature: 0.5\n  pricing: {{input: 1000, output: 2000}}",
            server.url()
        ),
        TOOLS,
    );
    sandbox.run("the task", &[]).expect_code(0);
    (sandbox, server)
}

#[test]
fn c_19_1_a_run_gives_the_same_bytes_each_time_and_is_not_changed() {
    let (sandbox, _server) = eventful();
    let before: Vec<String> = state(&sandbox);
    for format in FORMATS {
        let first = export(&sandbox, format, &[]).expect_code(0);
        assert_eq!(first.stderr, "", "{format}");
        assert!(first.stdout.ends_with('\n'), "{format}");
        assert_eq!(export(&sandbox, format, &[]), first, "{format}");
        // Into a file, which is there already the second time.
        for _ in 0..2 {
            export(&sandbox, format, &["-o", "out"]).expect(0, "", "");
            assert_eq!(sandbox.read("out"), first.stdout, "{format}");
        }
    }
    assert_eq!(state(&sandbox), before);
    let twice = sandbox.delta(["export", "r", "r", "-w", "work", "--to", "openai"]).output();
    assert_eq!(twice.stdout, export(&sandbox, "openai", &[]).stdout.repeat(2));
    let missing = export(&sandbox, "atif", &["-o", "no/such/dir"]).expect_code(1);
    assert!(missing.stderr.starts_with("error: could not create"), "{}", missing.stderr);
    let device = export(&sandbox, "atif", &["-o", "/dev/null"]).expect_code(126);
    assert_eq!(
        device.stderr,
        "error: /dev/null is not a regular file\nhelp: name a regular file, or omit `-o` and redirect stdout\n"
    );
}

/// Of a run that asks another model, each call names the one that was asked and the one that answered.
#[test]
fn c_37_10_the_spans_name_the_model_that_was_asked_and_the_one_that_answered() {
    let server = ScriptedServer::start(vec![
        Answer::text("cut off in the middle").break_off(300),
        Answer::event_stream(
            "data: {\"model\": \"second-2026\", \"choices\": [{\"delta\": {\"content\": \"done\"}, \"finish_reason\": \"stop\"}], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": 2}}\n\ndata: [DONE]\n\n",
        ),
    ]);
    let sandbox = Sandbox::new(DELTA);
    let url = server.url();
    sandbox.agent(
        &format!("model: first\n  max_retries: 0\n  base_url: {url}\n  fallback: [second]"),
        "",
    );
    sandbox.run("hi", &[]).expect_code(0);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
    let spans = spans(&export(&sandbox, "otlp", &[]).expect_code(0).stdout);
    let named = spans.iter().map(|span| {
        let attributes = attributes(span);
        let named = ["gen_ai.request.model", "gen_ai.response.model", "error.type"];
        (text(span.get("name")), named.map(|name| text(attributes.get(name))))
    });
    let chats: Vec<_> = named.filter(|(name, _)| name.starts_with("chat")).collect();
    let chat = |name: &str, of: [&str; 3]| (name.to_owned(), of.map(str::to_owned));
    let expected = [
        chat("chat first", ["first", "first", "fallback"]),
        chat("chat second", ["second", "second-2026", ""]),
    ];
    assert_eq!(chats, expected);
}

/// The answers that are discarded were paid for, and were in the totals alone.
#[test]
fn c_19_1_the_parts_add_up_to_the_totals_where_an_answer_was_discarded() {
    let empty = |tokens| Answer::calls(vec![]).usage(tokens, 10);
    let ends: [(Vec<Answer>, i32); 3] = [
        (vec![empty(1000), Answer::text("ok").usage(150, 5)], 0),
        (vec![empty(1000), empty(150).usage(150, 5)], 1),
        (vec![empty(1000), Answer::error(400, "no", None)], 1),
    ];
    for (answers, code) in ends {
        let server = ScriptedServer::start(answers);
        let sandbox = Sandbox::new(DELTA);
        let pricing = "pricing: {input: 1000, output: 2000}";
        let llm = format!("model: test-model\n  base_url: {}\n  {pricing}", server.url());
        sandbox.agent(&llm, "");
        sandbox.run("the task", &[]).expect_code(code);
        let usage = &sandbox.events("ENGINE_END")[0]["usage"];
        let total = ["input_tokens", "output_tokens"].map(|name| usage[name].as_u64().unwrap());

        let spans = spans(&export(&sandbox, "otlp", &[]).stdout);
        let used = |span: &Value| {
            let attributes = attributes(span);
            ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"]
                .map(|name| attributes.get(name).map_or(0, |count| count.as_u64().unwrap()))
        };
        let add = |one: [u64; 2], other: [u64; 2]| [one[0] + other[0], one[1] + other[1]];
        let chats = spans.iter().filter(|span| attributes(span)["gen_ai.operation.name"] == "chat");
        assert_eq!(chats.map(used).fold([0, 0], add), total);
        assert_eq!(used(&spans[0]), total, "the run");
        let ids: BTreeSet<&str> =
            spans.iter().map(|span| span["spanId"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), spans.len());

        let trajectory = export(&sandbox, "atif", &[]).json();
        let metrics = &trajectory["final_metrics"];
        let names = ["total_prompt_tokens", "total_completion_tokens"];
        assert_eq!(names.map(|name| metrics[name].as_u64().unwrap()), total);
        let steps = trajectory["steps"].as_array().unwrap();
        let step = |step: &Value| {
            ["prompt_tokens", "completion_tokens"]
                .map(|name| step["metrics"][name].as_u64().unwrap_or(0))
        };
        assert_eq!(steps.iter().map(step).fold([0, 0], add), total);
        let costs = steps.iter().filter_map(|step| step["metrics"]["cost_usd"].as_f64());
        let (sum, cost) = (costs.sum::<f64>(), metrics["total_cost_usd"].as_f64().unwrap());
        assert!((sum - cost).abs() < 1e-9, "{sum} {cost}");
    }
}

/// Every file of the run with its content.
fn state(sandbox: &Sandbox) -> Vec<String> {
    let dir = "work/.delta/r";
    let content = |name: &String| format!("{name}: {}", sandbox.read(&format!("{dir}/{name}")));
    sandbox.files(dir).iter().map(content).collect()
}

#[test]
fn c_19_1_a_run_is_exported_however_it_stands() {
    let (sandbox, _server) = eventful();
    sandbox.unverified("its journal is cut by hand");
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    // As if the engine had been killed after each event in turn, and with it the records had gone.
    for kept in 1..lines.len() {
        sandbox.write("work/.delta/r/journal.jsonl", lines[..kept].concat());
        if kept > 3 {
            std::fs::remove_dir_all(sandbox.path("work/.delta/r/io")).unwrap_or_default();
        }
        let trajectory = export(&sandbox, "atif", &[]).expect_code(0).json();
        assert_eq!(trajectory["extra"]["status"], "RUNNING");
        assert!(!trajectory["steps"].as_array().unwrap().is_empty());
        let found = spans(&export(&sandbox, "otlp", &["--content"]).expect_code(0).stdout);
        assert_eq!(attributes(&found[0])["delta.run.status"], "RUNNING");
        export(&sandbox, "markdown", &[]).expect_code(0);
        export(&sandbox, "openai", &[]).expect_code(0);
    }
    sandbox.write("work/.delta/r/journal.jsonl", lines[..7].concat());
    let found = spans(&export(&sandbox, "otlp", &[]).expect_code(0).stdout);
    let last = found.last().unwrap();
    assert_eq!(last["name"], "execute_tool fail");
    assert_eq!(attributes(last).get("delta.call.unfinished"), None);
    sandbox.write("work/.delta/r/journal.jsonl", lines[..6].concat());
    let found = spans(&export(&sandbox, "otlp", &[]).expect_code(0).stdout);
    assert_eq!(attributes(found.last().unwrap())["delta.call.unfinished"], true);
    let said = export(&sandbox, "openai", &[]).expect_code(0);
    assert_eq!(
        said.stderr,
        "warning: could not read the last request of run r; the export has no system messages and no tools\n"
    );
}

#[test]
fn c_19_2_a_run_is_a_tree_of_spans() {
    let (sandbox, _server) = eventful();
    let found = spans(&export(&sandbox, "otlp", &[]).expect_code(0).stdout);
    assert_eq!(
        outline(&found),
        "invoke_agent test-agent [1] delta.cost_usd=0.3 delta.run.iterations=2 delta.run.status=\"COMPLETED\" \
         gen_ai.agent.name=\"test-agent\" gen_ai.request.model=\"test-model\" gen_ai.usage.input_tokens=250 \
         gen_ai.usage.output_tokens=25\n  \
         chat test-model [3] delta.cost_usd=0.14 delta.iteration=1 gen_ai.request.model=\"test-model\" \
         gen_ai.request.stream=true gen_ai.request.temperature=0.5 gen_ai.response.finish_reasons=[\"tool_calls\"] \
         gen_ai.response.id=\"chatcmpl-scripted\" gen_ai.response.model=\"test-model\" gen_ai.usage.input_tokens=100 \
         gen_ai.usage.output_tokens=20\n  \
         execute_tool note [1] delta.iteration=1 gen_ai.tool.call.id=\"call_1\" gen_ai.tool.name=\"note\" \
         gen_ai.tool.type=\"function\" process.exit.code=0\n  \
         execute_tool fail [1] (exit code 3) delta.iteration=1 error.type=\"exit_code\" \
         gen_ai.tool.call.id=\"call_2\" gen_ai.tool.name=\"fail\" gen_ai.tool.type=\"function\" process.exit.code=3\n  \
         execute_tool slow [1] (timed out) delta.iteration=1 error.type=\"timeout\" gen_ai.tool.call.id=\"call_3\" \
         gen_ai.tool.name=\"slow\" gen_ai.tool.type=\"function\"\n  \
         execute_tool missing [1] (nothing was started) delta.iteration=1 error.type=\"refused\" \
         gen_ai.tool.call.id=\"call_4\" gen_ai.tool.name=\"missing\" gen_ai.tool.type=\"function\"\n  \
         chat test-model [3] delta.cost_usd=0.16 delta.iteration=2 gen_ai.request.model=\"test-model\" \
         gen_ai.request.stream=true gen_ai.request.temperature=0.5 gen_ai.response.finish_reasons=[\"tool_calls\"] \
         gen_ai.response.id=\"chatcmpl-scripted\" gen_ai.response.model=\"test-model\" gen_ai.usage.input_tokens=150 \
         gen_ai.usage.output_tokens=5\n  \
         execute_tool finish [1] delta.iteration=2 gen_ai.tool.call.id=\"call_5\" gen_ai.tool.name=\"finish\" \
         gen_ai.tool.type=\"function\"\n"
    );
    let of_chat = attributes(&found[1]);
    assert_eq!(of_chat["gen_ai.operation.name"], "chat");
    assert_eq!(of_chat["gen_ai.provider.name"], "openai");
    assert_eq!(of_chat["gen_ai.conversation.id"], "r");
    let [failed] = &found[1]["events"].as_array().unwrap()[..] else { panic!("{}", found[1]) };
    assert_eq!(failed["name"], "delta.attempt_failed");
    assert_eq!(attributes(failed)["http.response.status_code"], 503);
    let events: Vec<&Value> = found[0]["events"].as_array().unwrap().iter().collect();
    let names: Vec<&Value> = events.iter().map(|event| &event["name"]).collect();
    assert_eq!(names, ["delta.engine_start", "delta.engine_end"]);
}

#[test]
fn c_19_2_texts_are_in_the_spans_only_when_they_are_asked_for() {
    let (sandbox, _server) = eventful();
    let without = export(&sandbox, "otlp", &[]).expect_code(0).stdout;
    for text in ["the task", "looking", "noted a", "You are a test", "all is said"] {
        assert!(!without.contains(text), "{text}");
    }
    let found = spans(&export(&sandbox, "otlp", &["--content"]).expect_code(0).stdout);
    let read = |span: usize, key: &str| -> Value {
        serde_json::from_str(attributes(&found[span])[key].as_str().unwrap()).unwrap()
    };
    let task = json!({"role": "user", "parts": [{"type": "text", "content": "the task"}]});
    assert_eq!(read(0, "gen_ai.input.messages"), json!([task]));
    let end = json!([{"role": "assistant", "parts": [{"type": "text", "content": "all is said"}], "finish_reason": "stop"}]);
    assert_eq!(read(0, "gen_ai.output.messages"), end);
    let input = read(1, "gen_ai.input.messages");
    assert_eq!((&input[0]["role"], &input[1]), (&json!("system"), &task));
    let output = read(1, "gen_ai.output.messages");
    assert_eq!(output[0]["finish_reason"], "tool_call");
    assert_eq!(output[0]["parts"][0], json!({"type": "text", "content": "looking"}));
    assert_eq!(
        output[0]["parts"][1],
        json!({"type": "tool_call", "id": "call_1", "name": "note", "arguments": {"text": "a"}})
    );
    assert_eq!(read(1, "gen_ai.tool.definitions")[0]["name"], "note");
    let of_note = attributes(&found[2]);
    assert_eq!(of_note["gen_ai.tool.call.arguments"], "{\"text\":\"a\"}");
    assert_eq!(of_note["gen_ai.tool.call.result"], "noted a\n");
    let answered = read(6, "gen_ai.input.messages");
    let results: Vec<&Value> = answered
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| &message["parts"][0])
        .collect();
    assert_eq!(
        results[0],
        &json!({"type": "tool_call_response", "id": "call_1", "response": "noted a\n"})
    );
    assert_eq!(results.len(), 4);
}

#[test]
fn c_19_2_a_run_that_failed_and_a_hook_have_spans_too() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- error: out of order\n");
    sandbox.write("agent/hooks.yaml", "on_error: {command: ['sh', '-c', 'exit 4']}\n");
    sandbox.run("x", &["--max-iterations", "1"]).expect_code(1);
    let found = spans(&export(&sandbox, "otlp", &[]).expect_code(0).stdout);
    assert_eq!(
        outline(&found),
        "invoke_agent test-agent [1] (out of order) delta.run.iterations=0 delta.run.status=\"FAILED\" \
         error.type=\"llm\" gen_ai.agent.name=\"test-agent\" gen_ai.request.model=\"script.yaml\"\n  \
         chat script.yaml [3] (out of order) error.type=\"llm\" gen_ai.request.model=\"script.yaml\"\n  \
         hook on_error [1] (exit code 4) delta.hook.name=\"on_error\" error.type=\"exit_code\" process.exit.code=4\n"
    );
}

#[test]
fn c_19_2_many_spans_are_several_requests() {
    let calls = "{tool: missing, args: {}}, ".repeat(600);
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("- call: [{calls}]\n- say: done\n"));
    sandbox.run("x", &[]).expect_code(0);
    let text = export(&sandbox, "otlp", &[]).expect_code(0).stdout;
    let counts: Vec<usize> = text.lines().map(|line| spans(line).len()).collect();
    assert_eq!(counts, [512, 91]);
    let ids: BTreeSet<String> =
        spans(&text).iter().map(|span| span["spanId"].to_string()).collect();
    assert_eq!(ids.len(), 603);
}

#[test]
fn c_19_3_a_run_that_another_started_is_a_part_of_its_trace() {
    let parent =
        Sandbox::scripted(DELTA, TOOLS, "- call: [{tool: note, args: {text: a}}]\n- say: done\n");
    parent.run("x", &[]).expect_code(0);
    let of_parent = spans(&export(&parent, "otlp", &[]).expect_code(0).stdout);
    let call = of_parent.iter().find(|span| span["name"] == "execute_tool note").unwrap();
    let call_id = attributes(call)["gen_ai.tool.call.id"].as_str().unwrap().to_owned();

    let child = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    child.run("y", &[]).expect_code(0);
    let alone = spans(&export(&child, "otlp", &[]).expect_code(0).stdout);
    assert_ne!(alone[0]["traceId"], of_parent[0]["traceId"], "the same id, and another run");
    let run_dir = parent.path("work/.delta/r");
    let above = json!({"run_id": "r", "call_id": call_id, "run_dir": run_dir}).to_string();
    name_parent(&child, &above);
    let found = spans(&export(&child, "otlp", &[]).expect_code(0).stdout);
    assert_eq!(found.len(), alone.len());
    assert!(found.iter().all(|span| span["traceId"] == of_parent[0]["traceId"]));
    assert_eq!(found[0]["parentSpanId"], call["spanId"]);
    assert_eq!(found[1]["parentSpanId"], found[0]["spanId"]);
    assert_eq!(attributes(&found[0])["delta.parent.run_id"], "r");
    let trajectory = export(&child, "atif", &[]).expect_code(0).json();
    assert_eq!(trajectory["extra"]["parent"], json!({"run_id": "r", "call_id": call_id}));
    let page = export(&child, "markdown", &[]).expect_code(0).stdout;
    assert!(page.contains(&format!("- Started by: call `{call_id}` of run `r`\n")), "{page}");

    // One that a hook or a generator of the other started.
    name_parent(&child, &json!({"run_id": "r", "run_dir": run_dir}).to_string());
    let found = spans(&export(&child, "otlp", &[]).expect_code(0).stdout);
    assert_eq!(found[0]["parentSpanId"], of_parent[0]["spanId"]);
    // A parent that is gone, and one that names itself.
    std::fs::remove_dir_all(&run_dir).unwrap();
    let orphan = spans(&export(&child, "otlp", &[]).expect_code(0).stdout);
    assert!(orphan[0].get("parentSpanId").is_some_and(|id| *id != alone[0]["spanId"]));
    let own = child.path("work/.delta/r");
    name_parent(&child, &json!({"run_id": "r", "call_id": "c", "run_dir": own}).to_string());
    spans(&export(&child, "otlp", &[]).expect_code(0).stdout);
}

/// Writes into the journal which run started the one in `sandbox`.
fn name_parent(sandbox: &Sandbox, parent: &str) {
    sandbox.unverified("its first line is changed");
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let (first, rest) = journal.split_once('\n').unwrap();
    let first = first.split(",\"parent\":").next().unwrap().trim_end_matches('}');
    sandbox.write("work/.delta/r/journal.jsonl", format!("{first},\"parent\":{parent}}}\n{rest}"));
}

#[test]
fn c_19_5_a_trajectory_has_every_step() {
    let (sandbox, _server) = eventful();
    let trajectory = export(&sandbox, "atif", &[]).expect_code(0).normal(&sandbox).json();
    let mut shown = trajectory.clone();
    let definitions = shown["agent"]["tool_definitions"].take();
    assert_eq!(definitions[0]["function"]["name"], "note");
    let result = |id: &str, text: &str, extra: Value| json!({"source_call_id": id, "content": text, "extra": extra});
    let call = |id: &str, tool: &str, arguments: Value| json!({"tool_call_id": id, "function_name": tool, "arguments": arguments});
    let missing = shown["steps"][2]["observation"]["results"][3]["content"].take();
    assert!(missing.as_str().unwrap().contains("missing"), "{missing}");
    let expected = json!({
        "schema_version": "ATIF-v1.8",
        "session_id": "r",
        "trajectory_id": "r",
        "agent": {"name": "test-agent", "version": env!("CARGO_PKG_VERSION"), "model_name": "test-model",
            "tool_definitions": null, "extra": {"engine": "delta"}},
        "steps": [
            {"step_id": 1, "source": "system",
                "message": "# Context Block: system_prompt.md\n\nYou are a test.\n"},
            {"step_id": 2, "timestamp": "TIME", "source": "user", "message": "the task"},
            {"step_id": 3, "timestamp": "TIME", "source": "agent", "message": "looking",
                "model_name": "test-model",
                "tool_calls": [call("call_1", "note", json!({"text": "a"})), call("call_2", "fail", json!({})),
                    call("call_3", "slow", json!({})), call("call_4", "missing", json!({}))],
                "observation": {"results": [
                    result("call_1", "noted a\n", json!({"duration_ms": 0, "exit_code": 0})),
                    result("call_2", "no\n[exit code: 3]", json!({"duration_ms": 0, "exit_code": 3})),
                    result("call_3", "[timed out after 50 ms]", json!({"duration_ms": 0})),
                    {"source_call_id": "call_4", "content": null, "extra": {"duration_ms": 0}}]},
                "metrics": {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 0, "cost_usd": 0.14},
                "llm_call_count": 1, "extra": {"iteration": 1}},
            {"step_id": 4, "timestamp": "TIME", "source": "agent", "message": "", "model_name": "test-model",
                "tool_calls": [call("call_5", "finish", json!({"result": "all is said"}))],
                "observation": {"results": [result("call_5", "[the run is finished]",
                    json!({"duration_ms": 0, "exit_code": 0}))]},
                "metrics": {"prompt_tokens": 150, "completion_tokens": 5, "cached_tokens": 0, "cost_usd": 0.16},
                "llm_call_count": 1, "extra": {"iteration": 2}}],
        "final_metrics": {"total_steps": 4, "total_prompt_tokens": 250, "total_completion_tokens": 25,
            "total_cached_tokens": 0, "total_cost_usd": 0.3},
        "extra": {"status": "COMPLETED", "result": "all is said"},
    });
    assert_eq!(shown, expected);
}

#[test]
fn c_19_6_the_conversation_is_what_the_llm_saw_and_whole() {
    let (sandbox, server) = eventful();
    let line = export(&sandbox, "openai", &[]).expect_code(0).json();
    let last = server.requests().pop().unwrap().body;
    let sent = last["messages"].as_array().unwrap();
    let told = line["messages"].as_array().unwrap();
    assert_eq!(told[..sent.len()], sent[..]);
    assert_eq!(line["tools"], last["tools"]);
    assert_eq!(told.len(), sent.len() + 2, "the last answer and its result");
    assert_eq!(told[sent.len()]["tool_calls"][0]["function"]["name"], "finish");
    assert_eq!(line.as_object().unwrap().len(), 2);
}

#[test]
fn c_19_6_what_a_budget_left_out_of_the_requests_is_there() {
    let turns = "- call: [{tool: note, args: {text: one}}]\n- call: [{tool: note, args: {text: two}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let context = "sources:\n  - type: file\n    path: system_prompt.md\n  - type: journal\n    max_iterations: 1\n  - type: file\n    path: '${AGENT_HOME}/system_prompt.md'\n    id: again\n";
    sandbox.write("agent/context.yaml", context);
    sandbox.run("the task", &[]).expect_code(0);
    let line = export(&sandbox, "openai", &[]).expect_code(0).json();
    let told = line["messages"].as_array().unwrap();
    let roles: Vec<&str> = told.iter().map(|message| message["role"].as_str().unwrap()).collect();
    let expected =
        ["system", "system", "user", "assistant", "tool", "assistant", "tool", "assistant"];
    assert_eq!(roles, expected);
}

/// Everything that could steer what shows the document.
const HOSTILE: &str = "````\n# out\n<script>alert(1)</script> ![x](http://evil/x.png) [y](javascript:z)\n```\u{1b}[2J\n~~~\n| a |\n`````````";

#[test]
fn c_19_7_foreign_text_stays_in_its_fence() {
    let answers = vec![
        Answer::call("note", json!({"text": HOSTILE})).saying(HOSTILE),
        Answer::raw_call("`]()<b>", "``](http://evil)<img src=x>\n# out", HOSTILE),
        Answer::text(HOSTILE),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.run(HOSTILE, &[]).expect_code(0);
    let page = export(&sandbox, "markdown", &[]).expect_code(0).stdout;
    assert!(!page.contains('\u{1b}'));
    // Read as CommonMark reads fences: what stands outside of them is the engine's own.
    let (mut outside, mut fence) = (Vec::new(), None::<usize>);
    for line in page.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            None if ticks >= 3 && !line[ticks..].contains('`') => fence = Some(ticks),
            None => outside.push(line),
            Some(open) if ticks >= open && line[ticks..].trim().is_empty() => fence = None,
            Some(_) => {}
        }
    }
    assert_eq!(fence, None, "every fence is closed");
    let outside: Vec<&str> = outside.into_iter().filter(|line| !line.is_empty()).collect();
    let foreign: Vec<&&str> = outside.iter().filter(|line| line.contains("evil")).collect();
    assert_eq!(foreign, [&"Tool call ``` ``](http://evil)<img src=x> # out ```:"]);
    assert_eq!(outside.iter().filter(|line| line.starts_with("# ")).count(), 1, "{outside:#?}");
    assert!(!outside.iter().any(|line| line.contains("alert")), "{outside:#?}");
}

#[test]
fn c_19_7_the_account_is_a_document() {
    let (sandbox, _server) = eventful();
    let page = export(&sandbox, "markdown", &[]).expect_code(0);
    let durations = regex::Regex::new(r"(?m), \d+(\.\d+)?m?s(, cut)?:$").unwrap();
    let page = durations.replace_all(&page.normal(&sandbox).stdout, ", SPAN:").into_owned();
    let start = "# Run `r` of `test-agent`\n\n- Status: COMPLETED\n- Model: `test-model`\n- Workspace: `DIR/work`\n\
                 - Started: TIME\n- Last event: TIME\n- Iterations: 2\n\n## Task\n\n```text\nthe task\n```\n\n\
                 ## Iteration 1\n\n```text\nlooking\n```\n\nTool call `note`:\n\n```json\n{\n  \"text\": \"a\"\n}\n```\n\n\
                 Result, SPAN:\n\n```text\nnoted a\n```\n\nTool call `fail`:\n\n```json\n{}\n```\n\n\
                 Result, exit code 3, SPAN:\n\n```text\nno\n[exit code: 3]\n```\n";
    assert!(page.starts_with(start), "{page}");
    let end = "## Result\n\n```text\nall is said\n```\n\n## Cost\n\n\
               | model | tokens in | cached | written | tokens out | reasoning | USD |\n|---|---:|---:|---:|---:|---:|---:|\n\
               | `test-model` | 250 | 0 | 0 | 25 | 0 | 0.3000 |\n| total | 250 | 0 | 0 | 25 | 0 | 0.3000 |\n";
    assert!(page.ends_with(end), "{page}");
}

#[test]
fn c_19_7_what_people_look_for_stands_by_itself() {
    let turns = "- call: [{tool: note, args: {text: \"one\\n\\\"two\\\"\\n\"}}]\n- say: done\n";
    let tools = "  - name: note\n    shell: mkdir -p in; cat > in/note\n    stdin: text\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    sandbox.write("work/new", "");
    sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output().expect_code(0);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(1);
    let page = export(&sandbox, "markdown", &[]).expect_code(0).stdout;
    let call = "Tool call `note`:\n\nArgument `text`:\n\n```text\none\n\"two\"\n```\n\n";
    let back = "\nWorkspace rolled back to the beginning of the run.\n";
    for expected in [call, "\nChanged files: `in/note`.\n", back, "\n## Error\n\n"] {
        assert!(page.contains(expected), "{expected}\n{page}");
    }
    let fork = ["fork", "r", "-w", "work", "--at", "2", "--into", "other", "--run-id", "f"];
    sandbox.delta(fork).output().expect_code(0);
    let page = sandbox.delta(["export", "f", "-w", "other", "--to", "markdown"]).output();
    let page = page.expect_code(0).stdout;
    assert!(page.contains("\nForked from `r` at iteration 2.\n"), "{page}");
    assert!(page.contains("## Iteration 2\n\nThe LLM answered with the result.\n"), "{page}");
    assert_eq!(page.matches("\ndone\n").count(), 1, "{page}");
}

/// The input of each call of the LLM: its messages, how many it repeats, and whether it has tools.
fn span_inputs(sandbox: &Sandbox, option: &str) -> Vec<(Vec<Value>, Option<Value>, bool)> {
    let found = spans(&export(sandbox, "otlp", &[option]).expect_code(0).stdout);
    let chats = found.iter().filter(|span| span["name"].as_str().unwrap().starts_with("chat"));
    let chats = chats.map(attributes).map(|attributes| {
        let messages = attributes["gen_ai.input.messages"].as_str().unwrap();
        let has_tools = attributes.contains_key("gen_ai.tool.definitions");
        let repeated = attributes.get("delta.input.messages.repeated").cloned();
        (serde_json::from_str(messages).unwrap(), repeated, has_tools)
    });
    chats.collect()
}

/// Records above 128 KiB refer to the messages of the record before them, and the export reads only what is new in them.
#[test]
fn c_19_2_what_is_new_in_a_request_is_the_same_however_it_is_recorded() {
    for journal in ["{type: journal}", "{type: journal, max_iterations: 2}"] {
        let tools = "  - {name: big, exec: seq 20000, max_output_bytes: 200000}\n";
        let work = "- call: [{tool: big}]\n".repeat(3) + "- say: done\n";
        let sandbox = Sandbox::scripted(DELTA, tools, &work.repeat(3));
        sandbox.write("agent/context.yaml", format!("sources: [{journal}]\n"));
        sandbox.run("go", &[]).expect_code(0);
        for _ in 0..2 {
            let more = ["continue", "--run-id", "r", "-w", "work", "-m", "more"];
            sandbox.delta(more).output().expect_code(0);
        }
        let records = sandbox.files("work/.delta/r/io/invocations");
        let last = format!("work/.delta/r/io/invocations/{}", records.last().unwrap());
        assert!(sandbox.read(&last).contains("\"same_as\""), "{journal}");
        let new = span_inputs(&sandbox, "--content=new");
        let all = span_inputs(&sandbox, "--content=all");
        assert_eq!((new.len(), all.len()), (12, 12));
        let mut before: Vec<Value> = Vec::new();
        for ((new, repeated, _), (all, ..)) in new.into_iter().zip(all) {
            let mut expected = all.clone();
            expected.retain(|message| {
                let same = before.iter().position(|earlier| earlier == message);
                same.map(|same| before.remove(same)).is_none()
            });
            assert!(new == expected, "{journal}: {} {}", new.len(), expected.len());
            assert_eq!(repeated, Some(json!(all.len() - expected.len())), "{journal}");
            before = all;
        }
    }
}

/// The spans of 3,000 iterations were 1.25 GB, for each had its whole request.
#[test]
fn c_19_2_content_is_what_is_new_of_each_request_or_all() {
    let (sandbox, _server) = eventful();
    let new = span_inputs(&sandbox, "--content=new");
    let all = span_inputs(&sandbox, "--content=all");
    assert_eq!((span_inputs(&sandbox, "--content"), new.len()), (new.clone(), all.len()));
    assert!(all.len() > 1 && all.iter().all(|(_, repeated, tools)| repeated.is_none() && *tools));
    let mut before: &[Value] = &[];
    for ((new, repeated, has_tools), (all, ..)) in new.iter().zip(&all) {
        assert_eq!(new, &all[before.len()..]);
        assert_eq!((repeated, *has_tools), (&Some(json!(before.len())), before.is_empty()));
        before = all;
    }
}

#[test]
fn c_19_8_a_sensitive_answer_is_in_no_export() {
    for secret in ["hunter\"hunts", "hunter-hunts"] {
        let answers = move |request: &RecordedRequest| {
            let messages = request.body["messages"].as_array().unwrap();
            let last = messages.last().unwrap()["content"].as_str().unwrap_or_default().to_owned();
            match messages.len() {
                2 => Answer::call("ask_human", json!({"prompt": "Key?", "sensitive": true})),
                4 => Answer::call("note", json!({"text": format!("<{last}>")}))
                    .saying(&format!("so it is {last}")),
                // What goes back to the endpoint has no quotes in names.
                6 => Answer::call(&secret.replace("hunter\"hunts", "missing"), json!({secret: 1})),
                _ => Answer::text(format!("done with {last}")),
            }
        };
        let server = ScriptedServer::start(answers);
        let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
        sandbox.run("x", &[]).expect_code(101);
        let waiting = export(&sandbox, "markdown", &[]).expect_code(0).stdout;
        let question = "## Waiting for an answer\n\n```text\nKey?\n```\n";
        assert!(waiting.contains(question), "{waiting}");
        let answer = ["continue", "--run-id", "r", "-w", "work", "-m", secret];
        sandbox.delta(answer).output().expect_code(0);
        for format in FORMATS {
            let more: &[&str] = if format == "otlp" { &["--content"] } else { &[] };
            let text = export(&sandbox, format, more).expect_code(0).stdout;
            assert!(!text.contains("hunter") && !text.contains("hunts"), "{format}: {text}");
            assert!(text.matches("[hidden]").count() >= 3, "{format}: {text}");
        }
    }
}
