//! When hooks run, how often, and what becomes of them when the engine dies (C-9.6, C-13).

use super::hooks::{TOOLS, TURNS, hooked, resume};
use serde_json::Value;
use test_support::needs;
use test_support::wait::until_line;

#[test]
fn c_9_6_on_run_end_runs_once_for_every_way_to_end() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let keep = "jq -r '.status + \" \" + (.error.type // .result // .interaction.prompt // \"-\")' >> ended";
    let ask =
        "- call: [{tool: ask_human, args: {prompt: Really?}}]\n- say: done\n- error: broken\n";
    let sandbox = hooked("", ask, &[("on_run_end", keep)]);
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(sandbox.read("work/ended"), "WAITING_FOR_INPUT Really?\n");
    resume(&sandbox, &["-m", "yes"]).output().expect_code(0);
    resume(&sandbox, &["-m", "more"]).output().expect_code(1);
    resume(&sandbox, &["-m", "more", "--max-iterations", "1"]).output().expect_code(1);
    assert_eq!(
        sandbox.read("work/ended"),
        "WAITING_FOR_INPUT Really?\nCOMPLETED done\nFAILED llm\nFAILED llm\n"
    );
    let kinds: Vec<Value> =
        sandbox.journal().into_iter().map(|event| event["type"].clone()).collect();
    let ends = kinds.windows(2).filter(|pair| pair[1] == "ENGINE_END").collect::<Vec<_>>();
    assert_eq!(ends.len(), 4);
    assert!(ends.iter().all(|pair| pair[0] == "HOOK_EXECUTION"), "{kinds:?}");
    let turns = "- call: [{tool: t, args: {text: a}}]\n- call: [{tool: t, args: {text: a}}]\n";
    let sandbox = hooked(TOOLS, turns, &[("on_run_end", keep)]);
    sandbox.run("go", &["--max-iterations", "1"]).expect_code(1);
    assert_eq!(sandbox.read("work/ended"), "FAILED max_iterations\n");
    let sandbox = hooked("", "- say: done\n", &[("on_run_end", keep)]);
    sandbox.write("agent/context.yaml", "sources: [{type: file, path: nowhere}]\n");
    sandbox.run("go", &[]).expect_code(1);
    assert_eq!(sandbox.read("work/ended"), "FAILED context\n");
    let tools = "  - {name: t, shell: 'kill -TERM $PPID; exec sleep 60'}\n";
    let sandbox = hooked(tools, "- call: [{tool: t}]\n", &[("on_run_end", keep)]);
    sandbox.run("go", &[]).expect_code(130);
    assert_eq!(sandbox.read("work/ended"), "INTERRUPTED -\n");
}

#[test]
fn c_9_3_on_run_end_gets_the_call_that_waits_for_an_approval() {
    let tools = "  - {name: t, exec: 'echo ${text}', approve: ask}\n";
    let turns = "- call: [{tool: t, args: {text: a}}]\n- say: done\n";
    let sandbox = hooked(tools, turns, &[("on_run_end", "cat > end.json")]);
    let ran = sandbox.run("go", &["--format", "json"]).expect_code(101).json();
    let given: Value = serde_json::from_str(&sandbox.read("work/end.json")).unwrap();
    assert_eq!(given["interaction"], ran["interaction"]);
    assert_eq!(given["interaction"]["argv"], serde_json::json!(["echo", "a"]));
    resume(&sandbox, &["-m", "yes"]).output().expect_code(0);
    let given: Value = serde_json::from_str(&sandbox.read("work/end.json")).unwrap();
    assert_eq!((given["interaction"].clone(), &given["result"]), (Value::Null, &"done".into()));
}

#[test]
fn c_9_6_a_failing_on_run_end_does_not_take_a_question_away() {
    let ask = "- call: [{tool: ask_human, args: {prompt: Really?}}]\n- say: 'so: ${last}'\n";
    let sandbox = hooked("", ask, &[("on_run_end,on_failure: fail", "exit 1")]);
    let ran = sandbox.run("go", &[]).expect_code(101);
    assert!(ran.stderr.contains("! the hook on_run_end left with exit code 1"), "{}", ran.stderr);
    sandbox.write_program("agent/on_run_end.sh", "#!/bin/sh\nexit 0\n");
    assert_eq!(resume(&sandbox, &["-m", "yes"]).output().expect_code(0).stdout, "so: yes\n");
}

#[test]
fn c_9_6_on_error_tells_of_the_engines_errors_and_of_tools_that_could_not_start() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let keep = "jq -c .error >> errors; echo \"$ERROR_MESSAGE\" >> messages";
    let tools = "  - name: t\n    exec: no-such-program ${text}\n  - name: f\n    exec: 'false'\n";
    let turns = "- call: [{tool: t, args: {text: a}}, {tool: f}]\n- error: the model is out\n";
    let sandbox = hooked(tools, turns, &[("on_error", keep)]);
    sandbox.run("go", &[]).expect_code(1);
    let first = "the tool t could not be started: program `no-such-program` was not found in PATH";
    assert_eq!(
        sandbox.read("work/errors"),
        format!(
            "{{\"type\":\"tool_not_started\",\"message\":\"{first}\"}}\n{{\"type\":\"llm\",\"message\":\"the model is out\"}}\n"
        )
    );
    assert_eq!(sandbox.read("work/messages"), format!("{first}\nthe model is out\n"));
    let journal = sandbox.journal();
    let before: Vec<&Value> = journal
        .windows(2)
        .filter(|pair| pair[1]["type"] == "HOOK_EXECUTION")
        .map(|pair| &pair[0]["type"])
        .collect();
    assert_eq!(before, ["ACTION_RESULT", "ERROR"]);
    // Its own failure is not told to itself.
    let sandbox = hooked(tools, turns, &[("on_error,on_failure: fail", "echo x >> times; exit 1")]);
    let ran = sandbox.run("go", &["--format", "json"]).expect_code(1);
    assert_eq!(ran.json()["error"]["type"], "hook");
    assert_eq!(sandbox.read("work/times"), "x\n");
}

#[test]
fn c_9_6_iterations_begin_and_end_once_also_when_a_person_is_asked_between() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let keep = "jq -c '[.hook, .iteration]' >> seen";
    let turns = "- call: [{tool: t, args: {text: a}}, {tool: ask_human, args: {prompt: Really?}}, {tool: t, args: {text: b}}]\n- say: done\n";
    let hooks = [("on_iteration_start", keep), ("on_iteration_end", keep)];
    let sandbox = hooked(TOOLS, turns, &hooks);
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(sandbox.read("work/seen"), "[\"on_iteration_start\",1]\n");
    resume(&sandbox, &["-m", "yes"]).output().expect_code(0);
    assert_eq!(
        sandbox.read("work/seen"),
        "[\"on_iteration_start\",1]\n[\"on_iteration_end\",1]\n[\"on_iteration_start\",2]\n[\"on_iteration_end\",2]\n"
    );
}

#[test]
fn c_9_6_the_journal_is_whole_when_a_hook_reads_it() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let keep = "tail -n 1 \"$JOURNAL_PATH\" | jq -r .type >> last";
    let hooks = ["pre_tool_execution", "on_iteration_end", "on_run_end"].map(|name| (name, keep));
    let sandbox = hooked(TOOLS, TURNS, &hooks);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/last"), "THOUGHT\nACTION_RESULT\nTHOUGHT\nHOOK_EXECUTION\n");
}

/// A call that is run again after a crash passes its gate again.
#[test]
fn c_13_4_a_call_that_is_repeated_asks_its_gate_again() {
    let tools = "  - name: t\n    shell: echo ${text} >> trace; test -e once && exit 0; touch once; kill -9 $PPID; exec sleep 60\n    idempotent: true\n";
    let sandbox = hooked(tools, TURNS, &[("pre_tool_execution", "exit 0")]);
    assert_eq!(sandbox.run("go", &[]).code, -1);
    sandbox.write_program("agent/pre_tool_execution.sh", "#!/bin/sh\necho no more >&2; exit 1\n");
    resume(&sandbox, &[]).output().expect_code(0);
    assert_eq!(sandbox.read("work/trace"), "a\n");
    assert_eq!(
        sandbox.observations(),
        [
            "Denied by the hook pre_tool_execution; the tool was not run again; whether it took effect before is unknown.\nno more"
        ]
    );
}

#[test]
fn c_13_5_what_a_hook_leaves_running_is_ended_when_the_run_goes_on() {
    let leave = "setsid sh -c 'echo $$ > stray; exec sleep 1000' > /dev/null 2>&1 &\nuntil test -s stray; do :; done; kill -9 $PPID";
    let sandbox = hooked(TOOLS, TURNS, &[("pre_tool_execution", leave)]);
    assert_eq!(sandbox.run("go", &[]).code, -1);
    let stray: i32 = until_line(&sandbox.path("work/stray")).parse().unwrap();
    assert!(test_support::wait::is_alive(stray));
    sandbox.write_program("agent/pre_tool_execution.sh", "#!/bin/sh\nexit 0\n");
    let ran = resume(&sandbox, &[]).output().expect_code(0);
    assert!(!test_support::wait::is_alive(stray));
    // The hook itself may still be dying.
    let counts = ["ended 1 process ", "ended 2 processes"];
    assert!(counts.iter().any(|count| ran.stderr.contains(count)), "{}", ran.stderr);
}

#[test]
fn c_8_3_generators_find_the_run_in_their_environment() {
    let sandbox = hooked("", "- say: done\n", &[]);
    std::fs::remove_file(sandbox.path("agent/hooks.yaml")).unwrap();
    let command = "[sh, -c, 'echo \"$DELTA_RUN_ID $ITERATION_COUNT $DELTA_API_KEY\" | tee seen > \"$RUN_DIR/out\"']";
    for (more, expected) in [("", "r 1 \n"), (", pass_env: [DELTA_API_KEY]", "r 1 sk-0123456789\n")]
    {
        sandbox.write("agent/context.yaml", format!("sources:\n  - type: computed_file\n    generator: {{command: {command}{more}}}\n    output_path: '${{RUN_DIR}}/out'\n  - type: journal\n"));
        let _ = std::fs::remove_dir_all(sandbox.path("work"));
        let run = sandbox.run_command("go", &[]).env("DELTA_API_KEY", "sk-0123456789");
        run.output().expect_code(0);
        assert_eq!(sandbox.read("work/seen"), expected);
    }
}
