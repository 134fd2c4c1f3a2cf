//! What the LLM sees: exactly what context.yaml says, in its order.

use super::DELTA;
use serde_json::{Value, json};
use test_support::normal::normal;
use test_support::sandbox::{Ran, Sandbox};

const TOOLS: &str = "  - name: say\n    exec: printf %s ${text}\n";

/// An agent with the given sources.
fn sandbox(sources: &str, turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.write("agent/context.yaml", format!("sources:\n{sources}"));
    sandbox
}

/// The messages of the given LLM call, counted from 1.
pub fn messages(sandbox: &Sandbox, call: usize) -> Value {
    let name = &sandbox.files("work/.delta/r/io/invocations")[call - 1];
    let record: Value =
        serde_json::from_str(&sandbox.read(&format!("work/.delta/r/io/invocations/{name}")))
            .unwrap();
    serde_json::from_str(&normal(sandbox, &record["request"]["messages"].to_string())).unwrap()
}

pub fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

#[track_caller]
pub fn failed(sandbox: &Sandbox, message: &str) -> Ran {
    let ran = sandbox.run("hi", &["--format", "json"]).normal(sandbox).expect_code(1);
    let result = ran.json();
    assert_eq!(
        (&result["error"]["type"], &result["error"]["message"]),
        (&json!("context"), &json!(message))
    );
    assert!(ran.stderr.contains(&format!("error: {message}\n")), "{}", ran.stderr);
    assert_eq!(sandbox.metadata()["status"], "FAILED");
    assert_eq!(
        sandbox.files("work/.delta/r/io/invocations"),
        Vec::<String>::new(),
        "the LLM is not asked"
    );
    ran
}

#[test]
fn c_8_1_files_in_their_order_with_their_ids() {
    let sources = "  - {type: file, path: '${CWD}/DELTA.md'}
  - {type: file, id: rules, path: docs/rules.md}
  - {type: journal}
  - {type: file, id: gone, path: '${CWD}/gone.md', on_missing: skip}
  - {type: file, id: prompt, path: '${AGENT_HOME}/system_prompt.md', on_missing: error}
";
    let sandbox = sandbox(sources, "- say: ok\n");
    sandbox.write("work/DELTA.md", "# Guide\n\nUse tabs: \t.");
    sandbox.write("agent/docs/rules.md", b"one\r\ntwo \xff\n");
    let ran = sandbox.run("do it", &[]).expect_code(0);
    let warning = "! context source `rules`: bytes that are not UTF-8 left out\n";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    assert_eq!(
        messages(&sandbox, 1),
        json!([
            system("# Context Block: DELTA.md\n\n# Guide\n\nUse tabs: \t."),
            system("# Context Block: rules\n\none\r\ntwo \u{fffd}\n"),
            {"role": "user", "content": "do it"},
            system("# Context Block: prompt\n\nYou are a test.\n"),
        ])
    );
}

// A file in UTF-16 reached the LLM as a text with a NUL after each letter, and nobody was told.
#[test]
fn c_8_1_a_file_with_nul_bytes_is_not_sent() {
    let utf16 = b"\xff\xfeN\0o\0\n\0";
    let expected = |name: &str| {
        format!(
            "context source `{name}`: could not read DIR/{name}: it is not UTF-8 text: it contains a NUL byte"
        )
    };
    let sandbox = sandbox(
        "  - {type: file, path: rules.md, id: agent/rules.md}\n  - {type: journal}\n",
        "- say: ok\n",
    );
    sandbox.write("agent/rules.md", utf16);
    failed(&sandbox, &expected("agent/rules.md"));
    let generated = "  - {type: computed_file, id: work/list, output_path: '${CWD}/list', generator: {command: [cp, '${AGENT_HOME}/rules.md', list]}}\n";
    let sandbox = self::sandbox(generated, "- say: ok\n");
    sandbox.write("agent/rules.md", utf16);
    failed(&sandbox, &expected("work/list"));
}

#[test]
fn c_8_1_files_are_read_anew_for_every_call() {
    let sandbox = sandbox(
        "  - {type: file, id: notes, path: '${CWD}/notes'}\n",
        "- call: [{tool: write, args: {}}]\n- say: ok\n",
    );
    sandbox.agent(
        "provider: script\n  model: script.yaml",
        "  - {name: write, shell: 'echo new > notes'}\n",
    );
    sandbox.write("work/notes", "old");
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(messages(&sandbox, 1), json!([system("# Context Block: notes\n\nold")]));
    assert_eq!(messages(&sandbox, 2), json!([system("# Context Block: notes\n\nnew\n")]));
}

#[test]
fn c_8_1_a_file_that_is_missing_is_an_error_by_default() {
    let missing = "No such file or directory (os error 2) (`on_missing: skip` omits it)";
    failed(
        &sandbox("  - {type: file, id: guide, path: '${CWD}/x.md'}\n", "- say: x\n"),
        &format!("context source `guide`: could not read DIR/work/x.md: {missing}"),
    );
    failed(
        &sandbox("  - {type: file, path: sub/x.md, on_missing: error}\n", "- say: x\n"),
        &format!("context source `x.md`: could not read DIR/agent/sub/x.md: {missing}"),
    );
    // Skipping is for what is not there, not for what cannot be read.
    let sandbox = sandbox("  - {type: file, path: '${CWD}', on_missing: skip}\n", "- say: x\n");
    failed(
        &sandbox,
        "context source `work`: could not read DIR/work: Is a directory (os error 21)",
    );
}

#[test]
fn c_8_2_the_conversation_in_the_llms_own_form() {
    let turns = "- say: I look.\n  call: [{tool: say, args: {text: a}}, {tool: nix, args: {}}]\n- call: [{tool: say, args: {text: b}}]\n- say: ok\n";
    let sandbox = sandbox("  - {type: journal, id: history}\n", turns);
    sandbox.run("do it", &[]).expect_code(0);
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let seen = messages(&sandbox, 3);
    assert_eq!(seen[0], json!({"role": "user", "content": "do it"}));
    assert_eq!(
        seen[1],
        json!({"role": "assistant", "content": "I look.", "tool_calls": [call("call_1_1", "say", "{\"text\":\"a\"}"), call("call_1_2", "nix", "{}")]})
    );
    assert_eq!(seen[2], json!({"role": "tool", "tool_call_id": "call_1_1", "content": "a"}));
    assert_eq!((&seen[3]["role"], &seen[3]["tool_call_id"]), (&json!("tool"), &json!("call_1_2")));
    assert_eq!(
        seen[4],
        json!({"role": "assistant", "content": null, "tool_calls": [call("call_2_1", "say", "{\"text\":\"b\"}")]})
    );
    assert_eq!(seen[5], json!({"role": "tool", "tool_call_id": "call_2_1", "content": "b"}));
    assert_eq!(seen.as_array().unwrap().len(), 6);
}

#[test]
fn c_8_2_the_last_iterations_and_always_the_task() {
    let turns: String =
        (1..=4).map(|n| format!("- call: [{{tool: say, args: {{text: t{n}}}}}]\n")).collect();
    for (limit, kept) in [(1, 4..5), (2, 3..5), (3, 2..5), (4, 1..5), (9, 1..5)] {
        let sandbox = sandbox(
            &format!("  - {{type: journal, max_iterations: {limit}}}\n"),
            &format!("{turns}- say: ok\n"),
        );
        sandbox.run("the task", &[]).expect_code(0);
        let seen = messages(&sandbox, 5);
        let roles: Vec<&str> = seen
            .as_array()
            .unwrap()
            .iter()
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        let results: Vec<String> = kept.clone().map(|n| format!("t{n}")).collect();
        let shown: Vec<&str> = seen
            .as_array()
            .unwrap()
            .iter()
            .filter(|m| m["role"] == "tool")
            .map(|m| m["content"].as_str().unwrap())
            .collect();
        assert_eq!(shown, results, "limit {limit}");
        assert_eq!(roles[0], "user");
        assert_eq!(roles[1..], ["assistant", "tool"].repeat(kept.len())[..]);
        assert_eq!(seen[0]["content"], "the task");
    }
}

#[test]
fn c_8_2_a_window_keeps_the_message_that_is_worked_on() {
    let calls: String =
        (1..=4).map(|n| format!("- call: [{{tool: say, args: {{text: t{n}}}}}]\n")).collect();
    let sandbox = sandbox(
        "  - {type: journal, max_iterations: 2}\n",
        &format!("- say: one\n{calls}- say: two\n- say: three\n"),
    );
    sandbox.run("the task", &[]).expect_code(0);
    for message in ["the new task", "the last task"] {
        let more = sandbox.delta(["continue", "-w", "work", "--run-id", "r", "-m", message]);
        more.output().expect_code(0);
    }
    let seen = |call| -> Vec<String> {
        let messages = messages(&sandbox, call);
        let text = |message: &Value| {
            let role = message["role"].as_str().unwrap();
            format!("{role} {}", message["content"].as_str().unwrap_or("-"))
        };
        messages.as_array().unwrap().iter().map(text).collect()
    };
    let head = ["user the task", "user the new task"];
    for call in 4..=6 {
        let kept = [call - 3, call - 2].map(|n| ["assistant -".to_owned(), format!("tool t{n}")]);
        let expected = [&head.map(str::to_owned)[..], &kept.concat()].concat();
        assert_eq!(seen(call), expected, "request {call}");
    }
    let last = ["assistant -", "tool t4", "assistant two", "user the last task"];
    assert_eq!(seen(7), [&head[..], &last].concat());
}

/// A source whose generator is the given program of the agent.
fn generated(program: &str, more: &str) -> Sandbox {
    let source = format!(
        "  - {{type: computed_file, id: summary, generator: {{command: ['${{AGENT_HOME}}/gen', '${{RUN_DIR}}/out']{more}}}, output_path: '${{RUN_DIR}}/out'}}\n"
    );
    let sandbox = sandbox(&source, "- call: [{tool: say, args: {text: x}}]\n- say: ok\n");
    sandbox.write_program("agent/gen", program);
    sandbox
}

#[test]
fn c_8_3_a_generator_writes_a_block_for_every_call() {
    let sandbox = generated(
        "#!/bin/sh\necho noise; echo \"iteration $ITERATION_COUNT in $(pwd)\" > \"$1\"\n",
        "",
    );
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(
        messages(&sandbox, 1),
        json!([system("# Context Block: summary\n\niteration 1 in DIR/work\n")])
    );
    assert_eq!(
        messages(&sandbox, 2),
        json!([system("# Context Block: summary\n\niteration 2 in DIR/work\n")])
    );
}

#[test]
fn c_9_2_a_generator_has_the_runs_variables_and_no_key() {
    let sandbox = generated("#!/bin/sh\nenv | sort > \"$1\"\n", "");
    let command = sandbox
        .run_command("hi", &[])
        .env("DELTA_API_KEY", "sk-d-0123456789")
        .env("OPENAI_API_KEY", "sk-o-0123456789");
    command.env("MINE", "kept").output().expect_code(0);
    let seen = messages(&sandbox, 1)[0]["content"].as_str().unwrap().to_owned();
    for line in [
        "AGENT_HOME=DIR/agent",
        "CWD=DIR/work",
        "DELTA_AGENT_HOME=DIR/agent",
        "DELTA_CWD=DIR/work",
        "DELTA_RUN_ID=r",
        "ITERATION_COUNT=1",
        "JOURNAL_PATH=DIR/work/.delta/r/journal.jsonl",
        "MINE=kept",
        "RUN_DIR=DIR/work/.delta/r",
    ] {
        assert!(seen.lines().any(|seen| seen == line), "{line} in {seen}");
    }
    assert!(!seen.contains("API_KEY"), "{seen}");
}

#[test]
fn c_8_3_a_generator_reads_the_journal_as_it_is_so_far() {
    let sandbox = generated("#!/bin/sh\ngrep -c . \"$JOURNAL_PATH\" > \"$1\"\n", "");
    sandbox.run("hi", &[]).expect_code(0);
    let count = |call| {
        messages(&sandbox, call)[0]["content"]
            .as_str()
            .unwrap()
            .rsplit("\n\n")
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!((count(1), count(2)), ("2".to_owned(), "5".to_owned()));
}

#[test]
fn c_8_3_a_generator_that_fails_fails_the_run() {
    let check = |program: &str, more: &str, why: &str| {
        let sandbox = generated(program, more);
        failed(&sandbox, &format!("context source `summary`: {why}"));
    };
    check(
        "#!/bin/sh\necho x > \"$1\"; echo 'no index' >&2; exit 3\n",
        "",
        "the generator `DIR/agent/gen` exited with code 3:\nno index",
    );
    check("#!/bin/sh\nkill -9 $$\n", "", "the generator `DIR/agent/gen` was killed by SIGKILL");
    check(
        "#!/bin/sh\necho 'I hang' >&2; exec cat < /dev/zero > /dev/null\n",
        ", timeout_ms: 300",
        "the generator `DIR/agent/gen` timed out after 300 ms:\nI hang",
    );
    check(
        "#!/bin/sh\n:\n",
        "",
        "could not read DIR/work/.delta/r/out: No such file or directory (os error 2) (`on_missing: skip` omits it)",
    );
    let sandbox = sandbox(
        "  - {type: computed_file, generator: {command: [no-such-program]}, output_path: out.md}\n",
        "- say: x\n",
    );
    failed(
        &sandbox,
        "context source `out.md`: the generator could not be started: program `no-such-program` was not found in PATH",
    );
}

#[test]
fn c_8_3_skip_is_for_a_file_that_is_not_there_never_for_a_failure() {
    let source = |command: &str| {
        format!(
            "  - {{type: computed_file, id: s, generator: {{command: [{command}]}}, output_path: '${{RUN_DIR}}/out', on_missing: skip}}\n"
        )
    };
    let quiet = sandbox(&source("'true'"), "- say: ok\n");
    quiet.run("hi", &[]).expect_code(0);
    assert_eq!(messages(&quiet, 1), json!([]));
    failed(
        &sandbox(&source("'false'"), "- say: ok\n"),
        "context source `s`: the generator `false` exited with code 1",
    );
}

#[test]
fn c_8_3_an_old_output_is_not_an_answer() {
    let source = "  - {type: computed_file, id: s, generator: {command: ['true']}, output_path: '${CWD}/out', on_missing: skip}\n";
    let sandbox = sandbox(source, "- say: ok\n");
    sandbox.write("work/out", "of another day");
    failed(&sandbox, "context source `s`: the generator `true` did not write DIR/work/out");
    assert_eq!(sandbox.read("work/out"), "of another day");
}

#[test]
fn c_8_3_the_same_content_written_again_is_an_answer() {
    let sandbox = generated("#!/bin/sh\necho same > \"$1\"\n", "");
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(messages(&sandbox, 2), json!([system("# Context Block: summary\n\nsame\n")]));
}

/// A tool had put a pipe where context.yaml looks for a file, and the engine waited for somebody to write into it, deaf to
/// signals; with a link to /dev/zero it took all the memory there was.
#[test]
fn c_8_1_only_a_regular_file_is_read() {
    let sources = "- {type: file, path: '${CWD}/notes.md', on_missing: skip}\n- {type: journal}\n";
    for (make, why) in [
        ("mkfifo notes.md", "it is not a regular file"),
        ("ln -s /dev/zero notes.md", "it is a symlink that leads out of the workspace"),
        ("truncate -s 1T notes.md", "it is larger than 64 MiB"),
    ] {
        let sandbox = sandbox(sources, "- say: done\n");
        sandbox.write("work/other.md", "");
        let mut shell = std::process::Command::new("sh");
        let made = shell.args(["-c", make]).current_dir(sandbox.path("work")).status().unwrap();
        assert!(made.success(), "{make}");
        let message = "context source `notes.md`: could not read DIR/work/notes.md";
        failed(&sandbox, &format!("{message}: {why}"));
    }
}
