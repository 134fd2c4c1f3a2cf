//! Tools and hooks that end a run.

use super::DELTA;
use super::hooks::{hooked, resume};
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const SUBMIT: &str = "  - name: note\n    shell: echo ${text} >> ledger\n    idempotent: true\n  - name: submit\n    shell: echo ${text}; exit ${code}\n    idempotent: true\n    ends_run: {exit_code: 0}\n    parameters: [{name: text}, {name: code, type: integer, default: 0}]\n";

#[test]
fn c_28_3_a_call_ends_the_run_with_its_observation() {
    let turns = "- call: [{tool: submit, args: {text: no, code: 3}}]\n- call: [{tool: note, args: {text: a}}, {tool: submit, args: {text: 'yes'}}, {tool: note, args: {text: b}}, {tool: finish, args: {result: other}}]\n- say: never\n- say: again\n";
    let sandbox = Sandbox::scripted(DELTA, SUBMIT, turns);
    let ran = sandbox.run("go", &["--format", "json"]).expect_code(0).json();
    assert_eq!((&ran["status"], &ran["result"]), (&json!("COMPLETED"), &json!("yes\n")));
    assert_eq!(sandbox.read("work/ledger"), "a\n");
    let seen = sandbox.observations();
    assert_eq!(seen[0], "no\n[exit code: 3]");
    for refused in &seen[3..5] {
        assert_eq!(refused, "The run has its result already, from a call before this one.");
    }
    assert_eq!(sandbox.events("ACTION_RESULT")[2]["result"], "yes\n");
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains("→ submit text=yes\n  │ yes\n"), "{shown}");
    // A message continues the run as usual.
    let again = resume(&sandbox, &["-m", "more"]).output().expect_code(0);
    assert_eq!(again.stdout, "never\n");
}

#[test]
fn c_28_3_every_exit_of_its_own_ends_the_run_and_no_other() {
    let tools = "  - name: quit\n    shell: kill -s ${signal} $$; echo over; exit 7\n    ends_run: true\n  - name: gone\n    exec: no-such-program\n    ends_run: true\n";
    let turns = "- call: [{tool: quit, args: {signal: TERM}}]\n- call: [{tool: gone}]\n- call: [{tool: quit, args: {signal: CONT}}]\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "over\n[exit code: 7]\n");
    assert_eq!(sandbox.observations().len(), 3);
}

/// A result keeps every digit, as the arguments of other tools do: a tree of JSON has numbers of 64 bits.
#[test]
fn c_28_3_a_result_keeps_every_digit() {
    let exact = r#"{"id":12345678901234567890123,"price":0.12345678901234567890,"n":[1.50]}"#;
    let tools = format!(
        "  - name: submit\n    shell: printf '%s ' '{exact}'\n    output: json\n    ends_run: true\n"
    );
    let sandbox = Sandbox::scripted(DELTA, &tools, "- call: [{tool: submit}]\n");
    let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, format!("{exact}\n"));

    let finished = |arguments: &str, finish: &str| {
        let server = ScriptedServer::start(vec![Answer::raw_call("c1", "finish", arguments)]);
        let sandbox = Sandbox::new(DELTA);
        let llm = format!("{{provider: openai, model: m, base_url: '{}'}}", server.url());
        sandbox.write("agent/agent.yaml", format!("name: a\nllm: {llm}\ntools: []\n{finish}"));
        let ran = sandbox.run("go", &["--format", "json"]).expect_code(0);
        assert!(ran.stdout.contains(&format!("\"result\":{exact},")), "{}", ran.stdout);
        let journal = sandbox.read("work/.delta/r/journal.jsonl");
        assert!(journal.contains(&format!("\"result\":{exact}")), "{journal}");
        // What is printed of a run that has ended comes from its journal.
        let shown = sandbox.delta(["show", "r", "-w", "work", "--format", "raw"]).output();
        assert_eq!(shown.expect_code(0).stdout, format!("{exact}\n"));
        let spans = ["export", "r", "-w", "work", "--to", "otlp", "--content"];
        let spans = sandbox.delta(spans).output().expect_code(0).stdout;
        assert!(spans.contains("12345678901234567890123"), "{spans}");
    };
    finished(&format!("{{\"result\": {exact}}}"), "");
    let schema = "{type: object, properties: {id: {type: integer}, price: {type: number}}}";
    finished(exact, &format!("finish: {{schema: {schema}}}\n"));
}

/// A hook that ends the run at the tool or request in which the word `stop` is.
fn ending(hook: &str, end: &str) -> Sandbox {
    let script = format!("if grep -q stop; then printf '%s' '{{\"end\": {end}}}'; fi");
    let turns = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: note, args: {text: stop}}, {tool: note, args: {text: c}}]\n- say: after all\n- say: again\n";
    let tools = "  - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n    idempotent: true\n";
    hooked(tools, turns, &[(hook, &script)])
}

const DONE: &str = r#"{"status": "COMPLETED", "result": {"found": 2}}"#;

#[test]
fn c_28_3_each_hook_with_an_answer_can_end_the_run() {
    for (hook, ledger) in [
        ("pre_llm_request", "a\nstop\nc\n"),
        ("post_llm_response", "a\n"),
        ("pre_tool_execution", "a\n"),
        ("post_tool_execution", "a\nstop\n"),
    ] {
        let sandbox = ending(hook, DONE);
        let ran = sandbox.run("go", &["--format", "json"]).expect_code(0).json();
        assert_eq!(ran["result"], json!({"found": 2}), "{hook}");
        assert_eq!(sandbox.read("work/ledger"), ledger, "{hook}");
        let ends: Vec<_> = sandbox.events("HOOK_EXECUTION");
        assert_eq!(ends.last().unwrap()["end"]["result"], json!({"found": 2}), "{hook}");
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
        let line = format!("  hook {hook} ended the run\n");
        assert_eq!(shown.matches(&line).count(), 1, "{shown}");
        let document = sandbox.delta(["export", "r", "-w", "work", "--to", "markdown"]).output();
        let line = format!("Hook `{hook}`: exit code 0, ended the run.\n");
        assert_eq!(document.expect_code(0).stdout.matches(&line).count(), 1, "{hook}");
        let refused = "A hook has ended the run; this call was not run.";
        let expected = sandbox.observations().iter().filter(|text| *text == refused).count();
        let count = ["pre_llm_request", "post_tool_execution", "pre_tool_execution"];
        let count = count.iter().position(|name| *name == hook).unwrap_or(2);
        assert_eq!(expected, count, "{hook}: {:?}", sandbox.observations());
    }
}

#[test]
fn c_28_3_a_hook_can_end_the_run_as_failed_and_a_message_continues_it() {
    let sandbox = ending("post_tool_execution", r#"{"status": "FAILED", "result": "too much"}"#);
    let ran = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
    assert_eq!(ran["error"]["type"], "ended_by_hook");
    assert_eq!(ran["error"]["message"], "too much");
    let again = resume(&sandbox, &["-m", "go on"]).output().expect_code(0);
    assert_eq!(again.stdout, "after all\n");
}

#[test]
fn c_28_3_an_end_that_is_not_one_is_an_invalid_answer() {
    for (end, expected) in [
        (r#"{"status": "RUNNING", "result": "x"}"#, "a `status` other than COMPLETED and FAILED"),
        (
            r#"{"status": "COMPLETED", "result": 5}"#,
            "a `result` that is neither a text nor an object",
        ),
        (r#"{"status": "FAILED", "result": {}}"#, "a `result` that is not a text"),
        (r#"{"status": "COMPLETED"}"#, "there is no `result`"),
    ] {
        let sandbox = ending("pre_tool_execution", end);
        let ran = sandbox.run("go", &["--format", "raw"]).expect_code(0);
        assert_eq!(ran.stdout, "after all\n");
        assert!(sandbox.observations()[1].contains(expected), "{:?}", sandbox.observations());
        assert_eq!(sandbox.read("work/ledger"), "a\nc\n");
    }
}

/// The engine can die after every event: the next process ends the run with the same result.
#[test]
fn c_28_3_the_end_survives_a_crash_after_every_event() {
    let tool = || {
        Sandbox::scripted(
            DELTA,
            SUBMIT,
            "- call: [{tool: submit, args: {text: yes}}, {tool: note, args: {text: b}}]\n- say: never\n",
        )
    };
    let hooks = ["pre_llm_request", "pre_tool_execution", "post_tool_execution"];
    let hooks =
        hooks.into_iter().map(|hook| ending(hook, r#"{"status": "FAILED", "result": "no"}"#));
    for sandbox in hooks.chain([tool()]) {
        sandbox.unverified("the journal is cut");
        let whole = sandbox.run("go", &["--format", "json"]);
        let (code, whole) = (whole.code, whole.json());
        let journal = sandbox.read("work/.delta/r/journal.jsonl");
        let lines: Vec<&str> = journal.lines().collect();
        for count in 2..lines.len() {
            let cut = lines[..count].join("\n") + "\n";
            sandbox.write("work/.delta/r/journal.jsonl", cut);
            let ran = sandbox
                .delta(["continue", "--run-id", "r", "-w", "work", "--format", "json"])
                .output()
                .expect_code(code)
                .json();
            assert_eq!(ran["result"], whole["result"], "{count}: {}", lines[count - 1]);
            assert_eq!(ran["error"]["message"], whole["error"]["message"], "{count}");
        }
    }
}
