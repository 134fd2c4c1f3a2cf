//! A person is asked: later, through files, or now, at the terminal.

use super::DELTA;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};

const TOOLS: &str =
    "  - name: mark\n    exec: touch ${file}\n  - name: cat\n    exec: cat\n    stdin: text\n";

/// An agent that asks with the given arguments, and says what it was answered.
fn asking(args: &str) -> Sandbox {
    Sandbox::scripted(
        DELTA,
        TOOLS,
        &format!("- call: [{{tool: ask_human, args: {args}}}]\n- say: 'I heard ${{last}}'\n"),
    )
}

fn interactive(sandbox: &Sandbox, more: &[&str]) -> Delta {
    sandbox.run_command("hi", &[&["-i", "--format", "raw"], more].concat())
}

#[test]
fn c_10_1_a_question_waits_in_a_file() {
    let sandbox = asking("{prompt: 'Which key?', input_type: password}");
    let ran = sandbox.run("hi", &[]).normal(&sandbox).expect_code(101);
    assert_eq!(
        ran.stderr,
        "\
test-agent r
workspace DIR/work
the LLM is a script (script.yaml); everything else is real

> hi
→ ask_human input_type=password
? Which key?

WAITING_FOR_INPUT after 1 iteration, SPAN
The agent is waiting for your answer. Give it in one of two ways:
  delta continue --run-id r -w DIR/work --request-id REQUEST -m ANSWER
  write it to DIR/work/.delta/r/interaction/response.txt
    and then: delta continue --run-id r -w DIR/work --request-id REQUEST
"
    );
    let rule = "-------------------\n";
    assert_eq!(
        ran.stdout,
        format!(
            "--- Run Summary ---\nRun ID:     r\nStatus:     WAITING_FOR_INPUT\nDuration:   SPAN\n{rule}Waiting for input:\nWhich key?\n{rule}"
        )
    );
    let request = sandbox.read("work/.delta/r/interaction/request.json");
    assert_eq!(
        test_support::normal::normal(&sandbox, &request),
        "{\n  \"request_id\": \"UUID\",\n  \"prompt\": \"Which key?\",\n  \"input_type\": \"password\",\n  \"sensitive\": true,\n  \"timestamp\": \"TIME\"\n}\n"
    );
    assert_eq!(sandbox.files("work/.delta/r/interaction"), ["request.json"]);
    let metadata = sandbox.metadata();
    assert_eq!(
        (&metadata["status"], &metadata["error"]),
        (&json!("WAITING_FOR_INPUT"), &Value::Null)
    );
    assert!(metadata["end_time"].is_string());
    let kinds: Vec<Value> =
        sandbox.journal().into_iter().map(|event| event["type"].clone()).collect();
    assert_eq!(
        kinds,
        [
            "ENGINE_START",
            "USER_MESSAGE",
            "THOUGHT",
            "ACTION_REQUEST",
            "HUMAN_INPUT_REQUEST",
            "ENGINE_END"
        ]
    );
    let question = &sandbox.events("HUMAN_INPUT_REQUEST")[0];
    assert_eq!(
        (
            &question["iteration"],
            &question["prompt"],
            &question["input_type"],
            &question["sensitive"]
        ),
        (&json!(1), &json!("Which key?"), &json!("password"), &json!(true))
    );
}

#[test]
fn c_10_1_paths_on_stderr_are_words_of_a_shell() {
    let sandbox = asking("{prompt: 'Who?'}");
    let ran = sandbox
        .delta(["run", "--agent", "agent", "-w", "it's here", "--run-id", "r", "-m", "hi", "-q"])
        .output()
        .normal(&sandbox);
    assert_eq!(
        ran.stderr,
        "\
? Who?
The agent is waiting for your answer. Give it in one of two ways:
  delta continue --run-id r -w \"DIR/it's here\" --request-id REQUEST -m ANSWER
  write it to DIR/it's here/.delta/r/interaction/response.txt
    and then: delta continue --run-id r -w \"DIR/it's here\" --request-id REQUEST
"
    );
}

#[test]
fn c_10_3_calls_before_the_question_have_run_and_those_after_it_have_not() {
    let turns = "- call:\n  - {tool: mark, args: {file: before}}\n  - {tool: ask_human, args: {prompt: 'Go on?'}}\n  - {tool: mark, args: {file: after}}\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("hi", &[]).expect_code(101);
    assert!(sandbox.path("work/before").exists() && !sandbox.path("work/after").exists());
    assert_eq!(sandbox.events("ACTION_RESULT").len(), 1);

    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let mut terminal = interactive(&sandbox, &[]).at_terminal();
    terminal.expect("answer> ");
    assert!(sandbox.path("work/before").exists() && !sandbox.path("work/after").exists());
    assert_eq!(sandbox.metadata()["status"], "RUNNING");
    terminal.type_in("yes\n");
    assert_eq!(terminal.end().expect_code(0).stdout, "done\n");
    assert!(sandbox.path("work/after").exists());
}

#[test]
fn c_10_1_an_agents_own_tool_of_that_name_stands_in_its_place() {
    let tools = "  - name: ask_human\n    shell: echo \"the oracle hears ${prompt}\"\n";
    let sandbox = Sandbox::scripted(
        DELTA,
        tools,
        "- call: [{tool: ask_human, args: {prompt: me}}]\n- say: '${last}'\n",
    );
    let ran = sandbox.run("hi", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "the oracle hears me\n");
    assert!(!sandbox.path("work/.delta/r/interaction").exists());
}

#[test]
fn c_10_1_invalid_arguments_are_an_observation() {
    let check = |args: &str, why: &str| {
        let sandbox = asking(args);
        sandbox.run("hi", &[]).expect_code(0);
        let seen = &sandbox.observations()[0];
        assert!(
            seen.starts_with("Invalid arguments for tool `ask_human`; nobody was asked:\n- "),
            "{seen}"
        );
        assert!(seen.contains(why), "{seen}");
        assert!(!sandbox.path("work/.delta/r/interaction").exists());
        assert_eq!(sandbox.events("HUMAN_INPUT_REQUEST").len(), 0);
    };
    check("{}", "there is no `prompt`\n");
    check("{prompt: 1}", "invalid type: integer `1`; expected here: a string\n");
    check(
        "{prompt: x, input_type: number}",
        "unknown value `number`; known here: `text`, `password`, `confirmation`\n",
    );
    check(
        "{prompt: x, sensitive: 'yes'}",
        "invalid type: string \"yes\"; expected here: a boolean\n",
    );
    check(
        "{prompt: x, nonsense: 1}",
        "unknown key `nonsense`; known here: `prompt`, `input_type`, `sensitive`\n",
    );
}

#[test]
fn c_10_1_an_answer_at_the_terminal() {
    let sandbox = asking("{prompt: \"Who are you?\\nYour name, please.\"}");
    let mut terminal = interactive(&sandbox, &[]).at_terminal();
    terminal
        .expect("Who are you?")
        .expect(" Your name, please.")
        .expect("answer> ")
        .type_in("  Ada Lovelace \n");
    let ran = terminal.end().expect_code(0);
    assert_eq!(ran.stdout, "I heard   Ada Lovelace\n");
    assert_eq!(sandbox.observations(), ["  Ada Lovelace "]);
    assert!(!sandbox.path("work/.delta/r/interaction").exists(), "no files are used");
    assert_eq!(sandbox.events("HUMAN_INPUT_RECEIVED")[0]["response"], "  Ada Lovelace ");
    let statuses: Vec<Value> =
        sandbox.events("ENGINE_END").into_iter().map(|event| event["status"].clone()).collect();
    assert_eq!(statuses, ["COMPLETED"]);
}

/// Enter alone, pressed by mistake, was an answer, and the run continued with it.
#[test]
fn c_10_1_a_text_is_asked_again_until_it_is_not_empty() {
    let sandbox = asking("{prompt: 'Anything else?'}");
    let mut terminal = interactive(&sandbox, &[]).at_terminal();
    for empty in ["\n", "  \n"] {
        terminal.expect("answer> ").type_in(empty).expect("expected an answer; Ctrl-C leaves");
    }
    terminal.expect("answer> ").type_in("no\n");
    terminal.end().expect_code(0);
    assert_eq!(sandbox.observations(), ["no"]);

    // An option cannot be empty by mistake.
    let sandbox = asking("{prompt: 'Anything else?'}");
    sandbox.run("hi", &["-q"]).expect_code(101);
    let answer = ["continue", "--run-id", "r", "-w", "work", "-q", "-m", ""];
    sandbox.delta(answer).output().expect_code(0);
    assert_eq!(sandbox.observations(), [""]);
}

#[test]
fn c_10_1_a_confirmation_is_asked_again_until_it_is_one() {
    for (last, kept) in [("y", "y"), ("YES", "YES"), (" n ", "n"), ("No", "No")] {
        let sandbox = asking("{prompt: 'Deploy?', input_type: confirmation}");
        let mut terminal = interactive(&sandbox, &[]).at_terminal();
        for wrong in ["", "maybe", "yess"] {
            terminal.expect("answer (yes/no)> ").type_in(&format!("{wrong}\n"));
        }
        terminal.expect("answer (yes/no)> ").type_in(&format!("{last}\n"));
        terminal.end().expect_code(0);
        assert_eq!(sandbox.observations(), [kept]);
    }
}

// A shell sets its own modes while a job is stopped: the password was shown, below no prompt.
#[test]
fn c_10_1_a_password_is_not_shown_after_a_stop() {
    if !Path::new("/bin/bash").exists() {
        return needs::skip("needs bash");
    }
    let sandbox = asking("{prompt: 'Key?', input_type: password}");
    let delta = format!("{DELTA} run --agent agent -w work --run-id r -m hi");
    let script =
        format!("set -m; {delta}; stty sane; echo stopped; read x; echo back; fg > /dev/null");
    let shell = Sandbox::new("bash");
    let command = shell.delta(["-c", &script]).cwd(sandbox.path(""));
    let command = command.env("HOME", sandbox.path("home")).env("NO_COLOR", "1");
    let mut terminal = command.wholly_at_terminal_of(80, 24);
    let is_last =
        |text: &'static str| move |lines: &[String]| lines.last().is_some_and(|line| line == text);
    terminal.expect_screen(is_last("answer (hidden)>")).expect_hidden();
    terminal.type_in("\x1a").expect_screen(is_last("stopped"));
    terminal.type_in("\n").expect_screen(is_last("answer (hidden)>")).expect_hidden();
    terminal
        .expect_screen(|lines| lines.iter().filter(|line| line.contains("(hidden)")).count() == 2);
    terminal.type_in("hunter2-secret\n");
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    assert!(!lines.join("\n").contains("hunter2"), "{lines:#?}");
    assert_eq!(sandbox.observations(), ["hunter2-secret"]);
}

/// The first line was the answer, and the next ones were shown and sent to the agent.
#[test]
fn c_10_1_what_is_pasted_at_once_is_one_answer() {
    let pasted = "-----BEGIN KEY-----\nSECRET2\nSECRET3\n-----END KEY-----";
    for (args, prompt, end) in [
        ("{prompt: 'Key?', sensitive: true}", "answer (hidden)> ", "\n"),
        ("{prompt: 'Key?', sensitive: true}", "answer (hidden)> ", ""),
        ("{prompt: 'Which?'}", "answer> ", "\n"),
    ] {
        let sandbox = asking(args);
        let mut terminal = interactive(&sandbox, &[]).at_terminal();
        terminal.expect(prompt).type_in(&format!("{pasted}{end}"));
        let ran = terminal.end().expect_code(0);
        assert_eq!(
            ran.stderr.contains("SECRET"),
            end == "\n" && prompt == "answer> ",
            "{}",
            ran.stderr
        );
        assert_eq!(sandbox.observations(), [pasted]);
        assert_eq!(sandbox.events("USER_MESSAGE").len(), 1);
    }
}

#[test]
fn c_10_1_an_answer_that_is_not_whole_is_asked_again() {
    for (typed, problem) in [
        ("x".repeat(6000) + "end\n", "the terminal cuts a line at 4095 bytes"),
        ("中".repeat(2000) + "\n", "the terminal cuts a line at 4095 bytes"),
        ("one\n".to_owned() + &"y".repeat(1 << 20), "the text is longer than 1 MiB"),
    ] {
        let sandbox = asking("{prompt: 'Key?', input_type: password}");
        let mut terminal = interactive(&sandbox, &[]).at_terminal();
        terminal.expect("answer (hidden)> ").type_in(&typed).expect(problem);
        // Ctrl-D ends a text that has more than a line, and is not in it.
        terminal.expect("answer (hidden)> ").type_in("one\ntwo\x04");
        terminal.end().expect_code(0);
        assert_eq!(sandbox.observations(), ["one\ntwo"]);
    }
}

#[test]
fn c_33_18_the_modes_of_the_shell_return_if_a_hidden_prompt_is_killed() {
    for end in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let sandbox = asking("{prompt: 'Key?', input_type: password}");
        sandbox.unverified("SIGQUIT ends the engine");
        let mut terminal = interactive(&sandbox, &[]).at_terminal();
        terminal.expect("answer (hidden)> ").expect_hidden().signal(end).wait();
        assert!(terminal.is_as_at_a_prompt(), "{end:?}");
    }
}

/// The answer was there before the question.
#[test]
fn c_10_1_what_was_typed_before_a_question_does_not_answer_it() {
    let tools = "  - name: wait\n    shell: read line < ${CWD}/gate\n";
    let turns = "- call: [{tool: wait}]\n\
                 - call: [{tool: ask_human, args: {prompt: 'Delete all?', input_type: confirmation}}]\n\
                 - say: 'I heard ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("work/.keep", "");
    let gate = sandbox.path("work/gate");
    assert!(Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let mut terminal = interactive(&sandbox, &[]).env("TERM", "dumb").at_terminal();
    terminal.expect("→ wait").type_in("y\n");
    fs::write(&gate, "go\n").unwrap();
    terminal.expect("answer (yes/no)> ").type_in("no\n");
    terminal.end().expect_code(0);
    assert_eq!(sandbox.observations()[1], "no");
}

#[test]
fn c_10_1_a_password_is_not_shown() {
    for args in ["{prompt: 'Key?', input_type: password}", "{prompt: 'Key?', sensitive: true}"] {
        let sandbox = asking(args);
        let mut terminal = interactive(&sandbox, &[]).at_terminal();
        terminal.expect("answer (hidden)> ").expect_hidden().type_in("hunter2-secret\n");
        let ran = terminal.end().expect_code(0);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
        assert!(ran.stderr.contains("│ [hidden]"), "{}", ran.stderr);
        assert_eq!(sandbox.observations(), ["hunter2-secret"], "the LLM and the journal have it");
        assert_eq!(ran.stdout, "I heard hunter2-secret\n", "raw is for programs");
    }
}

#[test]
fn c_15_4_a_sensitive_answer_is_hidden_wherever_a_person_looks() {
    let turns = "\
- call: [{tool: ask_human, args: {prompt: 'Key?', sensitive: true}}]
- say: 'The key is ${last}.'
  call: [{tool: cat, args: {text: 'key=${last}'}}]
- say: 'It was ${last}.'
";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let mut terminal = sandbox.run_command("hi", &["-i", "-v"]).at_terminal();
    terminal.expect("answer (hidden)> ").expect_hidden().type_in("hunter2-secret\n");
    let ran = terminal.end().expect_code(0);
    let log = sandbox.read("work/.delta/r/engine.log");
    for (name, text) in [("stderr", &ran.stderr), ("stdout", &ran.stdout), ("engine.log", &log)] {
        assert!(!text.contains("hunter2"), "{name}: {text}");
    }
    assert!(ran.stdout.contains("It was key=[hidden].\n"), "{}", ran.stdout);
    assert!(ran.stderr.contains("The key is [hidden]."), "{}", ran.stderr);
    assert!(
        sandbox.read("work/.delta/r/journal.jsonl").contains("hunter2-secret"),
        "the design keeps it there"
    );
}

#[test]
fn c_15_4_an_error_does_not_tell_a_sensitive_answer() {
    let turns = "- call: [{tool: ask_human, args: {prompt: 'Key?', sensitive: true}}]\n- error: 'refused: ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let mut terminal = sandbox.run_command("hi", &["-i"]).at_terminal();
    terminal.expect("answer (hidden)> ").expect_hidden().type_in("hunter2-secret\n");
    let ran = terminal.end().expect_code(1);
    let log = sandbox.read("work/.delta/r/engine.log");
    for text in [&ran.stderr, &ran.stdout, &log] {
        assert!(!text.contains("hunter2") && text.contains("refused: [hidden]"), "{text}");
    }
}

#[test]
fn c_11_5_end_of_input_is_never_an_answer() {
    for (args, prompt) in [
        ("{prompt: 'Who?'}", "answer> "),
        ("{prompt: 'Who?', input_type: confirmation}", "answer (yes/no)> "),
        ("{prompt: 'Who?', sensitive: true}", "answer (hidden)> "),
    ] {
        let sandbox = asking(args);
        let mut terminal = sandbox.run_command("hi", &["-i", "--format", "json"]).at_terminal();
        terminal.expect(prompt).type_in("\x04");
        let ran = terminal.end().expect_code(1);
        let result = ran.json();
        assert_eq!(
            (&result["status"], &result["error"]["type"]),
            (&json!("FAILED"), &json!("interaction"))
        );
        assert_eq!(result["error"]["message"], "the question was not answered: end of input");
        assert_eq!(sandbox.metadata()["status"], "FAILED");
        assert!(
            ran.stderr.contains("the question was not answered: end of input\n"),
            "{:?}",
            ran.stderr
        );
        assert_eq!(sandbox.events("ACTION_RESULT").len(), 0);
    }
}

#[test]
fn c_13_5_an_interrupt_at_the_question_keeps_the_question() {
    let sandbox = asking("{prompt: 'Key?', sensitive: true}");
    let mut terminal = interactive(&sandbox, &[]).at_terminal();
    terminal.expect("answer (hidden)> ").expect_hidden().type_in("\x03");
    terminal.end().expect_code(130);
    assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
    assert_eq!(sandbox.events("HUMAN_INPUT_RECEIVED").len(), 0);
}

#[test]
fn c_10_1_a_question_stands_once_above_the_prompt_of_whoever_is_asked() {
    let sandbox = asking("{prompt: 'Which colour?'}");
    let resumed = |more: &[&str]| {
        sandbox.delta([&["continue", "--run-id", "r", "-w", "work", "-q"], more].concat())
    };
    // It waits; then the terminal says that its person went away, and then that it was interrupted.
    sandbox.run("hi", &["-q"]).expect_code(101);
    for (keys, code) in [("\x04", 1), ("\x03", 130), ("red\n", 0)] {
        let mut terminal = resumed(&["-i"]).at_terminal();
        terminal.expect("Which colour?").expect("answer> ").type_in(keys);
        let ran = terminal.end().expect_code(code);
        assert_eq!(ran.stderr.matches("Which colour?").count(), 1, "{}", ran.stderr);
        if code == 130 {
            let ran = resumed(&[]).output().expect_code(101);
            assert!(
                ran.stderr.starts_with("? Which colour?\nThe agent is waiting "),
                "{}",
                ran.stderr
            );
        }
    }
    assert_eq!(sandbox.observations(), ["red"]);
}

#[test]
fn c_7_10_the_commands_that_are_shown_leave_out_the_llm_that_was_recorded() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m", "");
    sandbox.write("a script.yaml", "turns:\n- call: [{tool: ask_human, args: {prompt: Who?}}]\n- {say: late, delay_ms: 3600000}\n");
    let chosen = ["--model", "script:a script.yaml"];
    let ran = sandbox.run("hi", &[&["-q"], &chosen[..]].concat()).normal(&sandbox);
    let next = "delta continue --run-id r -w DIR/work";
    let named = " --request-id REQUEST";
    assert_eq!(
        ran.expect_code(101).stderr,
        format!(
            "? Who?\nThe agent is waiting for your answer. Give it in one of two ways:\n  {next}{named} -m ANSWER\n  \
             write it to DIR/work/.delta/r/interaction/response.txt\n    and then: {next}{named}\n"
        )
    );
    let again = ["continue", "--run-id", "r", "-w", "work", "-i", "--format", "json"];
    let mut terminal = sandbox.delta([&again, &chosen[..]].concat()).at_terminal();
    terminal.expect("answer> ").type_in("\x04");
    let ran = terminal.end().normal(&sandbox).expect_code(1);
    assert!(ran.stderr.ends_with(&format!("Continue with: {next} -i\n")), "{}", ran.stderr);
    assert_eq!(ran.json()["error"]["details"], format!("`{next} -i` asks again"));
    let mut terminal = sandbox.delta([&again, &chosen[..]].concat()).at_terminal();
    terminal.expect("answer> ").type_in("\x03");
    let ran = terminal.end().normal(&sandbox).expect_code(130);
    let answer = next.replace("continue --run-id", "answer");
    let hint =
        format!("The agent still waits for your answer:\n  {answer}{named} TEXT\n  {next} -i");
    assert!(ran.stderr.ends_with(&format!("{hint}\n")), "{}", ran.stderr);
    assert_eq!(ran.json()["error"]["details"], hint);
}

// With the message on stdin, `-i` had no effect at a real terminal: "no effect without a terminal", exit 101.
#[test]
fn c_10_1_with_the_message_on_stdin_the_terminal_is_asked_all_the_same() {
    for (kind, prompt) in [("text", "answer> "), ("password", "answer (hidden)> ")] {
        let sandbox = asking(&format!("{{prompt: 'Who?', input_type: {kind}}}"));
        sandbox.write("task.txt", "greet me\n");
        let fixed = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "--format", "raw"];
        let command = sandbox.delta(fixed).args(["-m", "-", "-i"]);
        let mut terminal = command.at_terminal_reading(&sandbox.path("task.txt"));
        terminal.expect(prompt);
        if kind == "password" {
            terminal.expect_hidden();
        }
        terminal.type_in("Ann\n");
        let ran = terminal.end();
        assert_eq!((ran.code, &*ran.stdout), (0, "I heard Ann\n"), "{}", ran.stderr);
        assert_eq!(sandbox.events("USER_MESSAGE")[0]["content"], "greet me");
        // What is typed, the answer, and what the LLM says of it; of a hidden one the last alone.
        let shown = if kind == "text" { 3 } else { 1 };
        assert_eq!(ran.stderr.matches("Ann").count(), shown, "{}", ran.stderr);
    }
}

/// Turns off the built-in tool.
fn turn_off(sandbox: &Sandbox) {
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{main}ask_human: false\n"));
}

#[test]
fn c_10_1_ask_human_false_takes_the_tool_away() {
    let sandbox = asking("{prompt: 'Which key?'}");
    turn_off(&sandbox);
    sandbox.run("hi", &[]).expect_code(0);
    let name = &sandbox.files("work/.delta/r/io/invocations")[0];
    let record = sandbox.read(&format!("work/.delta/r/io/invocations/{name}"));
    let record: Value = serde_json::from_str(&record).unwrap();
    let tools = record["request"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["mark", "cat", "finish"]);
    assert_eq!(sandbox.events("ENGINE_START")[0]["config"]["builtins"], json!(["finish"]));
    let observation = &sandbox.observations()[0];
    assert_eq!(observation, "There is no tool `ask_human`; known here: `mark`, `cat`, `finish`");
    assert_eq!(sandbox.events("HUMAN_INPUT_REQUEST"), Vec::<Value>::new());
}

/// A question of an earlier process is answered, also if the agent may not ask any more.
#[test]
fn c_10_1_an_open_question_outlives_ask_human_false() {
    let sandbox = asking("{prompt: 'Which key?'}");
    sandbox.run("hi", &[]).expect_code(101);
    turn_off(&sandbox);
    let next = ["continue", "r", "-w", "work", "-m", "blue", "-q", "--format", "raw"];
    sandbox.delta(next).output().expect(0, "I heard blue\n", "");
}
