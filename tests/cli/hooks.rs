//! What hooks get, what they may answer, and what is recorded of it (C-9.2, C-9.3, C-9.5).

use super::DELTA;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, ScriptedServer};

pub const TOOLS: &str = "  - name: t\n    shell: echo ${text} >> trace; echo said ${text}\n";
pub const TURNS: &str = "- call: [{tool: t, args: {text: a}}]\n- say: 'last: ${last}'\n";

/// An agent with hooks, each a script of its own.
pub fn hooked(tools: &str, turns: &str, hooks: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    give(&sandbox, hooks);
    sandbox
}

/// Gives an agent hooks. A name may be followed by more entries of its configuration.
pub fn give(sandbox: &Sandbox, hooks: &[(&str, &str)]) {
    let mut text = String::new();
    for (name, script) in hooks {
        let (name, more) = name.split_once(',').unwrap_or((name, "timeout_ms: 60000"));
        text.push_str(&format!("{name}: {{command: ['${{AGENT_HOME}}/{name}.sh'], {more}}}\n"));
        sandbox.write_program(&format!("agent/{name}.sh"), &format!("#!/bin/sh\n{script}\n"));
    }
    sandbox.write("agent/hooks.yaml", text);
}

pub fn resume(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied())
}

/// The record of the hook that ran as number `index`.
pub fn record(sandbox: &Sandbox, index: usize) -> Value {
    let event = &sandbox.events("HOOK_EXECUTION")[index];
    let name = event["record"].as_str().unwrap();
    serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{name}"))).unwrap()
}

/// What a hook wrote of its input into a file of the workspace.
fn given(sandbox: &Sandbox, file: &str) -> Value {
    serde_json::from_str(&sandbox.read(&format!("work/{file}"))).unwrap()
}

fn variables(sandbox: &Sandbox, file: &str) -> BTreeMap<String, String> {
    let text = sandbox.read(&format!("work/{file}"));
    let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn c_20_2_hooks_and_tools_get_of_a_file_in_the_workspace_what_agent_yaml_names() {
    let sandbox = hooked(
        "  - name: t\n    shell: echo \"$FROM_WORK $FROM_AGENT\"\n",
        "- call: [{tool: t}]\n- say: '${last}'\n",
        &[("pre_tool_execution", "echo \"<$FROM_WORK> <$FROM_AGENT>\" > ${0%/*}/seen")],
    );
    sandbox.write("work/.env", "FROM_WORK=work\nFROM_AGENT=work\n");
    sandbox.write("agent/.env", "FROM_AGENT=agent\n");
    let run = |id: &str| {
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "task"];
        let run = sandbox.delta(args).args(["--format", "raw"]).env("DELTA_TRUST", "work");
        run.output().expect_code(0).stdout
    };
    assert_eq!(run("one"), " agent\n");
    assert_eq!(sandbox.read("agent/seen"), "<> <agent>\n");
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}env_file: [FROM_WORK]\n"));
    assert_eq!(run("two"), "work agent\n");
    assert_eq!(sandbox.read("agent/seen"), "<work> <agent>\n");
}

#[test]
fn c_9_2_hooks_find_the_run_in_their_environment() {
    let keep = "cat > /dev/null; cat /proc/self/environ > env.$HOOK_NAME";
    let sandbox = hooked(
        "  - name: t\n    exec: 'no-such-program ${text}'\n",
        TURNS,
        &[("pre_tool_execution", keep), ("post_tool_execution", keep), ("on_error", keep)],
    );
    let mut run = sandbox.run_command("go", &[]);
    for (name, value) in [("DELTA_API_KEY", "sk-0123456789"), ("DELTA_CALL_ID", "outer")] {
        run = run.env(name, value);
    }
    run.env("HOOK_NAME", "outer").env("TOOL_RESULT", "outer").output().expect_code(0);
    let path = |name: &str| sandbox.path(name).display().to_string();
    let common = [
        ("RUN_DIR", path("work/.delta/r")),
        ("JOURNAL_PATH", path("work/.delta/r/journal.jsonl")),
        ("ITERATION_COUNT", "1".to_owned()),
        ("DELTA_RUN_ID", "r".to_owned()),
        ("DELTA_AGENT_HOME", path("agent")),
        ("AGENT_HOME", path("agent")),
        ("DELTA_CWD", path("work")),
        ("CWD", path("work")),
    ];
    let reason = "program `no-such-program` was not found in PATH";
    let result = format!("The tool could not be started: {reason}.\n[exit code: 127]");
    let error = format!("the tool t could not be started: {reason}");
    let (name, args) = (("TOOL_NAME", "t"), ("TOOL_ARGS", "{\"text\":\"a\"}"));
    let own: [(&str, &[(&str, &str)]); 3] = [
        ("pre_tool_execution", &[name, args]),
        ("post_tool_execution", &[name, args, ("TOOL_RESULT", &result), ("TOOL_EXIT_CODE", "127")]),
        ("on_error", &[("ERROR_MESSAGE", &error)]),
    ];
    let all = ["TOOL_NAME", "TOOL_ARGS", "TOOL_RESULT", "TOOL_EXIT_CODE", "ERROR_MESSAGE"];
    for (hook, expected) in own {
        let found = variables(&sandbox, &format!("env.{hook}"));
        for (name, value) in &common {
            assert_eq!(found.get(*name), Some(value), "{hook} {name}");
        }
        assert_eq!(found["HOOK_NAME"], hook);
        assert!(!found.contains_key("DELTA_API_KEY"), "{hook} has the key");
        let found: Vec<_> = all.iter().filter_map(|name| found.get_key_value(*name)).collect();
        let found: Vec<_> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, expected, "{hook}");
    }
}

#[test]
fn c_15_3_a_hook_gets_a_key_only_by_name() {
    let keep = "echo \"key: $DELTA_API_KEY $OPENAI_API_KEY\" | tee key >&2";
    for (entry, kept) in [
        ("on_run_end", "key:  \n"),
        ("on_run_end,pass_env: [DELTA_API_KEY]", "key: sk-0123456789 \n"),
    ] {
        let sandbox = hooked("", "- say: done\n", &[(entry, keep)]);
        let run = sandbox.run_command("go", &[]).env("DELTA_API_KEY", "sk-0123456789");
        run.env("OPENAI_API_KEY", "sk-abcdefghij").output().expect_code(0);
        assert_eq!(sandbox.read("work/key"), kept);
        let shown = kept.replace("sk-0123456789", "[redacted]");
        assert_eq!(record(&sandbox, 0)["stderr"], shown);
    }
}

#[test]
fn c_9_2_a_call_that_runs_again_has_the_same_id() {
    let tools = "  - name: t\n    shell: echo $DELTA_CALL_ID >> ids; test -e once && exit 0; touch once; kill -9 $PPID; exec sleep 60\n    idempotent: true\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: t}]\n- say: done\n");
    assert_eq!(sandbox.run("go", &[]).code, -1);
    resume(&sandbox, &[]).output().expect_code(0);
    let id = &sandbox.events("ACTION_RESULT")[0]["call_id"];
    let line = format!("{}\n", id.as_str().unwrap());
    assert_eq!(sandbox.read("work/ids"), line.repeat(2));
}

#[test]
fn c_9_2_large_values_are_cut_in_the_environment_and_whole_on_standard_input() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let keep = "cat > input; printf %s \"$TOOL_RESULT\" > cut";
    let tools = "  - name: t\n    shell: |-\n      head -c 200001 /dev/zero | sed 's/\\x0/ä/g'; printf 'acb'; : ${text}\n    max_output_bytes: 1000000\n";
    let sandbox = hooked(tools, TURNS, &[("post_tool_execution", keep)]);
    sandbox.run("go", &[]).expect_code(0);
    let whole = sandbox.observations().remove(0);
    assert_eq!(whole.len(), 400_005);
    assert_eq!(given(&sandbox, "input")["result"], whole);
    assert_eq!(sandbox.read("work/cut"), whole[..65536]);
    let record = record(&sandbox, 0);
    let file = record["stdin"]["file"].as_str().unwrap();
    assert_eq!(sandbox.read(&format!("work/.delta/r/io/hooks/{file}")), sandbox.read("work/input"));
    // What the observation leaves out is in the record, which the hook can read.
    let tools = tools.replace("max_output_bytes: 1000000", "max_output_bytes: 1000");
    let read = "file=$(jq -r .execution); jq -r .stdout.file \"$RUN_DIR/$file\" > name; \
        wc -c < \"$RUN_DIR/${file%/*}/$(cat name)\" > size";
    let sandbox = hooked(&tools, TURNS, &[("post_tool_execution", read)]);
    sandbox.run("go", &[]).expect_code(0);
    assert!(sandbox.observations()[0].len() < 2000);
    assert_eq!(sandbox.read("work/size").trim(), "400005");
    // A NUL would keep the hook from starting; it is not in the observation.
    let tools = "  - name: t\n    shell: printf 'a\\000b'; true ${text}\n";
    let sandbox = hooked(tools, TURNS, &[("post_tool_execution", keep)]);
    sandbox.run("go", &[]).expect_code(0);
    let seen = sandbox.observations().remove(0);
    assert!(seen.starts_with("[binary output: 3 bytes, "), "{seen}");
    assert_eq!(sandbox.read("work/cut"), seen);
    assert_eq!(given(&sandbox, "input")["result"], seen);
}

#[test]
fn c_9_3_each_hook_gets_one_object_on_standard_input() {
    let keep = "cat > in.$HOOK_NAME; cat >> in.$HOOK_NAME";
    let hooks = [
        "pre_llm_request",
        "post_llm_response",
        "pre_tool_execution",
        "post_tool_execution",
        "on_run_end",
        "on_iteration_start",
        "on_iteration_end",
    ];
    let turns = "- call: [{tool: t, args: {text: a}}]\n- say: done\n";
    let sandbox = hooked(TOOLS, turns, &hooks.map(|name| (name, keep)));
    sandbox.run("go", &[]).expect_code(0);
    let call = json!({"hook": "pre_tool_execution", "run_id": "r", "iteration": 1, "call_id": "call_1_1", "tool": "t", "arguments": {"text": "a"}, "argv": ["sh", "-c", "echo \"$1\" >> trace; echo said \"$1\"", "--", "a"]});
    assert_eq!(given(&sandbox, "in.pre_tool_execution"), call);
    let execution = &sandbox.events("ACTION_RESULT")[0]["execution"];
    let result = json!({"hook": "post_tool_execution", "run_id": "r", "iteration": 1, "call_id": "call_1_1", "tool": "t", "arguments": {"text": "a"}, "result": "said a\n", "exit_code": 0, "execution": execution});
    assert_eq!(given(&sandbox, "in.post_tool_execution"), result);
    let end = json!({"hook": "on_run_end", "run_id": "r", "iteration": 2, "status": "COMPLETED", "result": "done"});
    assert_eq!(given(&sandbox, "in.on_run_end"), end);
    for hook in ["on_iteration_start", "on_iteration_end"] {
        let expected = json!({"hook": hook, "run_id": "r", "iteration": 2});
        assert_eq!(given(&sandbox, &format!("in.{hook}")), expected);
    }
    let request = given(&sandbox, "in.pre_llm_request");
    let shown = sandbox.delta(["show", "r", "-w", "work", "--request", "2"]).output();
    assert_eq!(request["request"], serde_json::from_str::<Value>(&shown.stdout).unwrap());
    let response = given(&sandbox, "in.post_llm_response");
    assert_eq!(response["response"]["choices"][0]["message"]["content"], "done");
}

#[test]
fn c_9_3_a_call_is_denied_with_a_reason() {
    let deny = "echo '{\"decision\": \"deny\", \"reason\": \"Not on Sundays.\"}'";
    let sandbox = hooked(TOOLS, TURNS, &[("pre_tool_execution", deny)]);
    let ran = sandbox.run("go", &[]).normal(&sandbox).expect_code(0);
    assert_eq!(
        ran.stderr,
        "\
test-agent r
workspace DIR/work
the LLM is a script (script.yaml); everything else is real

> go
→ t text=a
  │ Denied by the hook pre_tool_execution; the tool was not run.
  │ Not on Sundays.

• last: Denied by the hook pre_tool_execution; the tool was not run.
  Not on Sundays.

COMPLETED after 2 iterations, SPAN
"
    );
    assert!(!sandbox.path("work/trace").exists());
    let request = &sandbox.events("ACTION_REQUEST")[0];
    assert_eq!((request.get("argv"), &request["tool_args"]), (None, &json!({"text": "a"})));
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains("→ t text=a\n  │ Denied by the hook pre_tool_execution"), "{shown}");
}

#[test]
fn c_11_2_show_tells_a_denial_once_and_a_hook_that_failed_all_the_same() {
    for (more, script, told) in [
        ("timeout_ms: 60000", "echo no >&2; exit 1", ""),
        ("on_failure: ignore", "exit 1", "  hook pre_tool_execution exited with code 1\n"),
    ] {
        let hook = format!("pre_tool_execution,{more}");
        let sandbox = hooked(TOOLS, TURNS, &[(&hook, script)]);
        sandbox.run("go", &["-q"]).expect_code(0);
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
        assert!(shown.contains(&format!("\n{told}→ t text=a\n")), "{shown}");
        assert_eq!(shown.contains("exited with"), !told.is_empty(), "{shown}");
    }
}

#[test]
fn c_9_3_arguments_are_changed_before_the_request() {
    let change = "echo '{\"arguments\": {\"text\": \"b; touch hacked\"}}'";
    let sandbox = hooked(TOOLS, TURNS, &[("pre_tool_execution", change)]);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/trace"), "b; touch hacked\n");
    assert!(!sandbox.path("work/hacked").exists());
    let request = &sandbox.events("ACTION_REQUEST")[0];
    assert_eq!(request["tool_args"], json!({"text": "b; touch hacked"}));
    assert_eq!(request["argv"][4], "b; touch hacked");
    let asked = &sandbox.events("THOUGHT")[0]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(*asked, "{\"text\":\"a\"}", "what the LLM asked for stays in its answer");
    let record = record(&sandbox, 0);
    assert_eq!((&record["changed"], &record["decision"]), (&json!("arguments"), &json!("allow")));
    assert_eq!(sandbox.events("HOOK_EXECUTION")[0]["changed"], true);
}

#[test]
fn c_9_3_an_observation_is_changed_and_its_record_keeps_what_was_printed() {
    let change = "echo '{\"observation\": \"nothing to see\"}'";
    let sandbox = hooked(TOOLS, TURNS, &[("post_tool_execution", change)]);
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "last: nothing to see\n");
    let result = &sandbox.events("ACTION_RESULT")[0];
    assert_eq!(
        (&result["observation_content"], &result["exit_code"]),
        (&json!("nothing to see"), &json!(0))
    );
    let name = result["execution"].as_str().unwrap();
    let execution: Value =
        serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{name}"))).unwrap();
    assert_eq!(execution["stdout"], "said a\n");
    assert!(ran.stderr.contains("hook post_tool_execution made a change"), "{}", ran.stderr);
}

#[test]
fn c_9_3_text_that_is_no_answer_is_only_logged() {
    let sandbox = hooked(
        TOOLS,
        TURNS,
        &[
            ("post_tool_execution", "echo looks good"),
            ("post_llm_response", "printf '\\377\\376'"),
            ("on_run_end", "echo '{\"decision\": \"deny\"}'"),
        ],
    );
    let ran = sandbox.run("go", &[]).expect_code(0);
    assert!(!ran.stderr.contains("hook"), "{}", ran.stderr);
    assert_eq!(sandbox.observations(), ["said a\n"]);
    let printed = sandbox.events("HOOK_EXECUTION").len();
    let records: Vec<Value> =
        (0..printed).map(|index| record(&sandbox, index)["stdout"].clone()).collect();
    assert_eq!(records[1], "looks good\n");
    assert_eq!(records[3], "{\"decision\": \"deny\"}\n");
    let file = records[0]["file"].as_str().unwrap();
    let bytes = std::fs::read(sandbox.path(&format!("work/.delta/r/io/hooks/{file}"))).unwrap();
    assert_eq!(bytes, [0xff, 0xfe]);
}

#[test]
fn c_9_3_a_request_is_changed_and_the_journal_is_not() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let server = ScriptedServer::start(vec![Answer::text("one"), Answer::text("two")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    give(
        &sandbox,
        &[(
            "pre_llm_request",
            "jq -c '{messages: (.request.messages + [{role: \"user\", content: \"be brief\"}])}'",
        )],
    );
    sandbox.run("go", &[]).expect_code(0);
    give(
        &sandbox,
        &[(
            "pre_llm_request",
            "jq -c '{request: (.request | .model = \"other\" | .top_k = 7 | .messages |= .[-1:])}'",
        )],
    );
    resume(&sandbox, &["-m", "more"]).output().expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    let sent: Vec<Value> = server.requests().into_iter().map(|request| request.body).collect();
    let texts = |request: &Value| -> Vec<String> {
        let messages = request["messages"].as_array().unwrap();
        messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(&sent[0])[1..], ["go", "be brief"]);
    assert_eq!((&sent[0]["model"], &sent[0]["stream"]), (&json!("test-model"), &json!(true)));
    assert_eq!(texts(&sent[1]), ["more"]);
    assert_eq!((&sent[1]["model"], &sent[1]["top_k"]), (&json!("other"), &json!(7)));
    for (iteration, sent) in ["1", "2"].iter().zip(server.requests()) {
        let shown = sandbox.delta(["show", "r", "-w", "work", "--request", iteration]).output();
        assert_eq!(
            shown.expect_code(0).stdout.as_bytes(),
            sent.bytes,
            "the record is what was sent"
        );
    }
    assert!(!sandbox.read("work/.delta/r/journal.jsonl").contains("be brief"));
    assert_eq!(record(&sandbox, 0)["changed"], "messages");
    assert_eq!(record(&sandbox, 1)["changed"], "request");
}

#[test]
fn c_9_3_messages_that_no_endpoint_accepts_are_not_sent() {
    let messages = r#"[{"role": "tool", "tool_call_id": "x", "content": ""}]"#;
    let request = format!(r#"{{"model": "m", "messages": {messages}}}"#);
    for (key, value) in [("messages", messages), ("request", &request)] {
        let server = ScriptedServer::start(Vec::new());
        let sandbox = Sandbox::asking(DELTA, &server.url(), "");
        give(&sandbox, &[("pre_llm_request", &format!("echo '{{\"{key}\": {value}}}'"))]);
        let ran = sandbox.run("go", &[]).expect_code(1);
        assert!(ran.stderr.contains("the result of no call before it"), "{}", ran.stderr);
        assert_eq!(server.requests().len(), 0);
    }
}

#[test]
fn c_9_3_a_response_is_changed_before_it_is_a_thought() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let change = "jq -c '{response: (.response | .choices[0].message.content = \"changed\")}'";
    let sandbox = hooked("", "- say: first\n- say: second\n", &[("post_llm_response", change)]);
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "changed\n");
    assert_eq!(sandbox.events("THOUGHT")[0]["content"], "changed");
    let name = sandbox.events("THOUGHT")[0]["invocation"].as_str().unwrap().to_owned();
    let invocation: Value =
        serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{name}"))).unwrap();
    assert_eq!(invocation["response"]["choices"][0]["message"]["content"], "first");
    // The script goes on where it was.
    sandbox.write_program("agent/post_llm_response.sh", "#!/bin/sh\nexit 0\n");
    let ran = resume(&sandbox, &["-m", "again"]).output().expect_code(0);
    assert_eq!(ran.stdout, "second\n");
    // A call that the hook takes out of the answer was never made.
    let change = "jq -c '{response: (.response | .choices[0].message = {role: \"assistant\", content: \"no call\"})}'";
    let sandbox = hooked(TOOLS, TURNS, &[("post_llm_response", change)]);
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "no call\n");
    assert!(!sandbox.path("work/trace").exists());
}

#[test]
fn c_9_5_every_execution_is_recorded() {
    let sandbox = hooked("", "- say: done\n", &[("on_run_end", "echo out; echo err >&2; exit 3")]);
    let ran = sandbox.run("go", &["-v"]).expect_code(0);
    assert!(ran.stderr.contains("  hook on_run_end exited with code 3\n"), "{}", ran.stderr);
    let files = sandbox.files("work/.delta/r/io/hooks");
    assert_eq!(files.len(), 1);
    let noted = format!("#4 hook on_run_end exit code 3 (io/hooks/{})\n", files[0]);
    assert!(sandbox.read("work/.delta/r/engine.log").contains(&noted));
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains("  hook on_run_end exited with code 3\n"), "{shown}");
    let stamp = files[0].strip_prefix("on_run_end_").unwrap().strip_suffix(".json").unwrap();
    assert!(stamp.len() == 19 && stamp.ends_with('Z') && &stamp[8..9] == "T", "{stamp}");
    let mut record = record(&sandbox, 0);
    let times = record.as_object_mut().unwrap();
    assert!(times.remove("started_at").unwrap().is_string());
    assert!(times.remove("duration_ms").unwrap().is_u64());
    assert_eq!(times.remove("crc").unwrap().as_str().unwrap().len(), 8);
    let stdin = "{\"hook\":\"on_run_end\",\"run_id\":\"r\",\"iteration\":1,\"status\":\"COMPLETED\",\"result\":\"done\"}\n";
    let expected = json!({
        "run_id": "r",
        "iteration": 1,
        "hook": "on_run_end",
        "command": [sandbox.path("agent/on_run_end.sh")],
        "cwd": sandbox.path("work"),
        "stdin": stdin,
        "exit_code": 3,
        "ended": null,
        "stdout": "out\n",
        "stderr": "err\n",
        "changed": null,
        "decision": null,
        "failure": "left with exit code 3:\nerr",
    });
    assert_eq!(record, expected);
    let mut event = sandbox.events("HOOK_EXECUTION").remove(0);
    let fields = event.as_object_mut().unwrap();
    assert!(fields.remove("timestamp").is_some() && fields.remove("chain").is_some());
    assert_eq!(fields.remove("record_sha256").unwrap().as_str().unwrap().len(), 64);
    let name = format!("io/hooks/{}", files[0]);
    assert_eq!(
        event,
        json!({"type": "HOOK_EXECUTION", "seq": 4, "iteration": 1, "hook": "on_run_end", "exit_code": 3, "record": name, "changed": false})
    );
}

#[test]
fn c_9_5_the_record_of_a_call_has_the_request_after_the_hook() {
    let answer = r#"echo '{"messages": [{"role": "user", "content": "be brief"}]}'"#;
    let sandbox = hooked("", "- say: done\n", &[("pre_llm_request", answer)]);
    sandbox.run("go", &[]).expect_code(0);
    let request = sandbox.delta(["show", "r", "-w", "work", "--request", "1"]).output().json();
    assert_eq!(request["messages"], json!([{"role": "user", "content": "be brief"}]));
}

#[test]
fn c_9_5_much_that_a_hook_prints_lies_beside_its_record() {
    let much = "head -c 300000 /dev/zero | tr '\\0' x >&2; head -c 100000 /dev/zero | tr '\\0' y";
    let sandbox = hooked("", "- say: done\n", &[("on_run_end", much)]);
    sandbox.run("go", &[]).expect_code(0);
    let record = record(&sandbox, 0);
    for (stream, bytes) in [("stdout", 100_000), ("stderr", 300_000)] {
        assert_eq!(record[stream]["bytes"], bytes);
        let file = record[stream]["file"].as_str().unwrap();
        assert_eq!(sandbox.read(&format!("work/.delta/r/io/hooks/{file}")).len(), bytes);
    }
}

#[test]
fn c_9_3_what_goes_through_a_hook_may_be_large() {
    if !needs::programs(&["jq"]) {
        return;
    }
    // One hook gives back what it gets, one reads nothing of it.
    let hooks = [("pre_llm_request", "jq -c '{request}'"), ("post_llm_response", "exec <&-")];
    let sandbox = hooked("", "- say: 'last: ${last}'\n", &hooks);
    let text = "0123456789abcde\n".repeat(200_000);
    let run = sandbox.delta(["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "-"]);
    run.stdin(text.clone()).output().expect_code(0);
    let said = format!("last: {}", text.trim_end());
    assert!(sandbox.events("THOUGHT")[0]["content"] == said, "the text is not what it was");
    let record = record(&sandbox, 0);
    for stream in ["stdin", "stdout"] {
        assert!(record[stream]["bytes"].as_u64().unwrap() > 3_200_000);
    }
}
