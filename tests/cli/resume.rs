//! `delta continue` (C-11.2, C-10.2): what it does in each state, with and without a message.

use super::DELTA;
use super::runs::{STATES, TOOLS, in_state, kinds, resume, resume_command, snapshot, text};
use serde_json::json;
use std::fs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const UNKNOWN: &str = "[the engine stopped during this call; whether it took effect is unknown, and it was not run again]";

/// What the LLM was told last, and so says, when a state is continued.
fn seen(state: &str, message: Option<&str>) -> String {
    let last = match (state, message) {
        (_, Some(message)) => message,
        ("INTERRUPTED", None) => "[interrupted: a person or the system stopped the engine]",
        ("RUNNING", None) => UNKNOWN,
        (other, None) => panic!("{other} takes a message"),
    };
    let end = if last.ends_with('\n') { "" } else { "\n" };
    format!("seen {last}{end}")
}

#[test]
fn c_11_2_what_is_said_of_a_workspace_that_looks_like_an_option_can_be_pasted() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: ok\n- say: more");
    let place = "--work-dir=-odd";
    sandbox.write("-odd/x", "");
    let args = ["run", "--agent", "agent", place, "--run-id", "r", "-m", "go"];
    sandbox.delta(args).output().expect_code(0);
    let refused = sandbox.delta(["continue", "r", place]).output();
    let hint = "help: delta continue --run-id r -w ./-odd -m \"Now do something else\"\n";
    assert!(refused.stderr.ends_with(hint), "{}", refused.stderr);
    let pasted = ["continue", "--run-id", "r", "-w", "./-odd", "-m", "Now do something else"];
    sandbox.delta(pasted).output().expect_code(0);
}

#[test]
fn c_11_2_completed_and_failed_take_a_message_and_nothing_else() {
    for (state, next) in [("COMPLETED", "Now do something else"), ("FAILED", "Try again")] {
        let sandbox = in_state(state);
        let before = snapshot(&sandbox);
        let expected = format!(
            "error: Run is {state}. To continue, provide a message using -m/--message\n\
             help: delta continue --run-id r -w work -m \"{next}\"\n"
        );
        resume(&sandbox, &[]).expect(1, "", &expected);
        let ran = resume(&sandbox, &["--format", "json"]);
        assert_eq!(ran.code, 2, "--format twice");
        assert_eq!(snapshot(&sandbox), before, "{state}");
        resume(&sandbox, &["-m", "more"]).expect_code(0);
        let tail = "ENGINE_START USER_MESSAGE THOUGHT ENGINE_END";
        let first = if state == "FAILED" { "ERROR" } else { "THOUGHT" };
        let expected = format!("ENGINE_START USER_MESSAGE {first} ENGINE_END {tail}");
        assert_eq!(kinds(&sandbox), expected, "{state}");
        assert_eq!(text(&sandbox.events("USER_MESSAGE")[1], "content"), "more");
    }
}

#[test]
fn c_11_2_interrupted_and_orphaned_runs_go_on_where_they_stopped() {
    for state in ["INTERRUPTED", "RUNNING"] {
        for message in [None, Some("more")] {
            let sandbox = in_state(state);
            let args: Vec<&str> = message.iter().flat_map(|text| ["-m", text]).collect();
            let ran = resume(&sandbox, &args).expect_code(0);
            assert_eq!(ran.stdout, seen(state, message), "{state}");
            let said = message.map_or("", |_| " USER_MESSAGE");
            let expected = match state {
                "INTERRUPTED" => format!(
                    "ENGINE_START USER_MESSAGE THOUGHT ACTION_REQUEST ACTION_RESULT ENGINE_END ENGINE_START{said} \
                     THOUGHT ENGINE_END"
                ),
                _ => format!(
                    "ENGINE_START USER_MESSAGE THOUGHT ACTION_REQUEST ENGINE_END ENGINE_START{said} ACTION_RESULT \
                     THOUGHT ENGINE_END"
                ),
            };
            assert_eq!(kinds(&sandbox), expected, "{state}");
            let janitor = "[Janitor] Cleaned up orphaned run: Process ";
            assert_eq!(ran.stderr.contains(janitor), state == "RUNNING", "{}", ran.stderr);
        }
    }
}

#[test]
fn c_10_2_a_waiting_run_takes_its_answer_from_the_message_stdin_or_the_file() {
    let response = "work/.delta/r/interaction/response.txt";
    let args: [(&[&str], &str, Option<&str>, &str); 5] = [
        (&["-m", "yes"], "", None, "yes"),
        (&["-m", "-"], "by\nstdin\n", None, "by\nstdin"),
        (&[], "", Some("by file\n\n"), "by file\n"),
        (&[], "", Some("\u{feff}windows\r\n"), "windows"),
        (&["-m", "wins"], "", Some("loses\n"), "wins"),
    ];
    for (args, stdin, file, answer) in args {
        let sandbox = in_state("WAITING_FOR_INPUT");
        if let Some(file) = file {
            sandbox.write(response, file);
        }
        let ran = resume_command(&sandbox, args).stdin(stdin).output().expect_code(0);
        assert_eq!(ran.stdout.trim_end(), format!("seen {answer}").trim_end());
        assert_eq!(text(&sandbox.events("HUMAN_INPUT_RECEIVED")[0], "response"), answer);
        assert_eq!(sandbox.observations(), [answer]);
        assert_eq!(sandbox.events("USER_MESSAGE").len(), 1, "an answer is a tool result only");
        assert!(!sandbox.path("work/.delta/r/interaction").exists());
    }
}

#[test]
fn c_10_2_without_an_answer_a_waiting_run_is_left_as_it_was() {
    let sandbox = in_state("WAITING_FOR_INPUT");
    let before = snapshot(&sandbox);
    let expected = "error: Run is WAITING_FOR_INPUT: Really?\n\
                    help: answer with -m/--message, or write the answer to DIR/work/.delta/r/interaction/response.txt\n";
    resume(&sandbox, &[]).normal(&sandbox).expect(1, "", expected);
    let empty = "error: the message on stdin is empty\nhelp: pipe the text into delta, or write it in place of `-`, such as `-m TEXT`\n";
    resume_command(&sandbox, &["-m", "-"]).stdin("\n").output().expect(2, "", empty);
    let json =
        ["continue", "--run-id", "r", "-w", "work", "--format", "json", "--max-iterations", "3"];
    let result = sandbox.delta(json).output().expect_code(1).json();
    assert_eq!(
        (&result["run_id"], &result["status"], &result["error"]["type"]),
        (&json!("r"), &json!("FAILED"), &json!("message_missing"))
    );
    assert_eq!(snapshot(&sandbox), before);
}

/// A writer that has only opened the file had answered with an empty text.
#[test]
fn c_10_2_a_file_that_is_no_answer_is_refused_with_the_reason() {
    let sandbox = in_state("WAITING_FOR_INPUT");
    let path = sandbox.path("work/.delta/r/interaction/response.txt");
    let refused = |reason: &str| {
        let ran = resume(&sandbox, &[]).expect_code(1);
        let expected = format!(
            "error: interaction/response.txt is not the answer of a person, because {reason}\n"
        );
        assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
        assert_eq!(sandbox.metadata()["status"], "WAITING_FOR_INPUT");
    };
    fs::write(&path, "").unwrap();
    refused("it is empty, as when its writer has only opened it");
    // Other characters were put in place of its bytes, and a long answer was cut.
    fs::write(&path, b"y\xffs\n").unwrap();
    refused("it is not UTF-8");
    fs::File::create(&path).unwrap().set_len((64 << 20) + 1).unwrap();
    refused("it is larger than 64 MiB");
    fs::remove_file(&path).unwrap();
    sandbox.write("answer", "yes\n");
    std::os::unix::fs::symlink(sandbox.path("answer"), &path).unwrap();
    refused("it is a symlink");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("it is not a regular file");
    fs::remove_dir(&path).unwrap();
    fs::rename(sandbox.path("answer"), &path).unwrap();
    assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen yes\n");
}

#[test]
fn c_10_2_the_answers_file_goes_only_after_the_answer_is_in_the_journal() {
    let sandbox = in_state("WAITING_FOR_INPUT");
    sandbox.write("work/.delta/r/interaction/response.txt", "mine\n");
    // The agent is not there: the run cannot be taken up.
    fs::rename(sandbox.path("agent"), sandbox.path("gone")).unwrap();
    resume(&sandbox, &[]).expect_code(126);
    assert_eq!(sandbox.read("work/.delta/r/interaction/response.txt"), "mine\n");
    fs::rename(sandbox.path("gone"), sandbox.path("agent")).unwrap();
    assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen mine\n");
}

#[test]
fn c_10_2_an_old_answer_never_answers_a_new_question() {
    // An engine that died between the answer's event and taking its file away leaves the file behind.
    let turns = "- call: [{tool: ask_human, args: {prompt: First?}}]\n\
                 - call: [{tool: leave}]\n\
                 - call: [{tool: ask_human, args: {prompt: Second?}}]\n\
                 - say: 'seen ${last}'\n";
    let leave = "  - name: leave\n    shell: mkdir -p ${RUN_DIR}/interaction && echo old > ${RUN_DIR}/interaction/response.txt\n";
    let sandbox = Sandbox::scripted(DELTA, leave, turns);
    sandbox.run("task", &[]).expect_code(101);
    resume(&sandbox, &["-m", "one"]).expect_code(101);
    let ran = resume(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("Run is WAITING_FOR_INPUT: Second?"), "{}", ran.stderr);
    assert_eq!(resume(&sandbox, &["-m", "two"]).expect_code(0).stdout, "seen two\n");
}

#[test]
fn c_13_2_an_orphan_with_an_open_question_asks_it_again() {
    // Died after the question's event, before request.json and ENGINE_END.
    let sandbox = in_state("WAITING_FOR_INPUT");
    super::runs::edit_journal(&sandbox, |journal| {
        let lines: Vec<&str> = journal.lines().collect();
        lines[..lines.len() - 1].join("\n") + "\n"
    });
    fs::remove_dir_all(sandbox.path("work/.delta/r/interaction")).unwrap();
    resume(&sandbox, &[]).expect_code(101);
    assert_eq!(sandbox.metadata()["status"], "WAITING_FOR_INPUT");
    assert!(sandbox.path("work/.delta/r/interaction/request.json").is_file());
    assert_eq!(sandbox.events("HUMAN_INPUT_REQUEST").len(), 1, "it was asked already");
    assert_eq!(resume(&sandbox, &["-m", "yes"]).expect_code(0).stdout, "seen yes\n");
}

#[test]
fn c_13_3_a_run_whose_task_was_torn_off_takes_it_by_message() {
    // ENGINE_START and the task are one write; a torn one may keep the first alone.
    let cut = || {
        let sandbox = in_state("COMPLETED");
        super::runs::edit_journal(&sandbox, |journal| {
            journal.split_inclusive('\n').next().unwrap().to_owned() + "{\"type\":\"USER_MES"
        });
        sandbox.write("agent/script.yaml", "turns:\n- say: 'seen ${last}'\n");
        sandbox
    };
    let sandbox = cut();
    let before = snapshot(&sandbox);
    let expected = "error: run r has no task: its process died before it was recorded\n\
                    help: pass the task with -m/--message\n";
    resume(&sandbox, &[]).expect(1, "", expected);
    assert_eq!(snapshot(&sandbox), before);
    assert_eq!(resume(&sandbox, &["-m", "task"]).expect_code(0).stdout, "seen task\n");
    assert_eq!(sandbox.metadata()["initial_message"], "task");
    let sandbox = cut();
    let ran = sandbox.run("task", &["--ensure", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "seen task\n");
}

#[test]
fn c_11_2_an_empty_message_is_none() {
    for (state, _) in STATES {
        let sandbox = in_state(state);
        let before = snapshot(&sandbox);
        let ran = resume(&sandbox, &["-m", ""]);
        if state == "WAITING_FOR_INPUT" {
            assert_eq!(ran.expect_code(0).stdout, "seen \n", "an empty answer is one");
            continue;
        }
        let expected = "error: the message is empty\nhelp: write a message after -m, or omit -m\n";
        ran.expect(1, "", expected);
        assert_eq!(snapshot(&sandbox), before, "{state}");
    }
}

#[test]
fn c_6_2_continue_allows_n_more_iterations() {
    let note = |n: usize| format!("- call: [{{tool: note, args: {{text: n{n}}}}}]\n");
    let turns: String = (1..=6).map(note).chain(["- say: done\n".to_owned()]).collect();
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns);
    sandbox.run("task", &["--max-iterations", "2"]).expect_code(1);
    let ran = resume(&sandbox, &["-m", "on", "--max-iterations", "3"]).expect_code(1);
    assert!(ran.stderr.contains("the task is not finished after 3 iterations"), "{}", ran.stderr);
    assert_eq!(sandbox.metadata()["iterations"], 5);
    assert_eq!(resume(&sandbox, &["-m", "on"]).expect_code(0).stdout, "done\n");
    assert_eq!(sandbox.read("work/ledger"), "n1\nn2\nn3\nn4\nn5\nn6\n");
    let allowed: Vec<_> =
        sandbox.events("ENGINE_START").iter().map(|e| e["max_iterations"].clone()).collect();
    assert_eq!(allowed, [2, 3, 30]);
    assert_eq!(sandbox.events("ERROR").len(), 2);
    resume(&sandbox, &["--max-iterations", "0"]).expect_code(2);
}

#[test]
fn c_6_1_each_process_has_one_start_and_one_end_and_counts_the_epoch_up() {
    let sandbox = in_state("RUNNING");
    sandbox.write("agent/script.yaml", "turns:\n- say: x\n- call: [{tool: stop}]\n- say: end\n");
    resume(&sandbox, &[]).expect_code(130);
    resume(&sandbox, &[]).expect_code(0);
    resume(&sandbox, &["-m", "no turn is left"]).expect_code(1);
    let ends: Vec<String> =
        sandbox.events("ENGINE_END").iter().map(|e| text(e, "status").to_owned()).collect();
    assert_eq!(ends, ["INTERRUPTED", "INTERRUPTED", "COMPLETED", "FAILED"]);
    let epochs: Vec<_> =
        sandbox.events("ENGINE_START").iter().map(|e| e["epoch"].clone()).collect();
    assert_eq!(epochs, [1, 2, 3, 4]);
    let order: Vec<String> = sandbox
        .journal()
        .iter()
        .map(|e| text(e, "type").to_owned())
        .filter(|kind| kind.starts_with("ENGINE_"))
        .collect();
    assert_eq!(order.join(" "), ["ENGINE_START ENGINE_END"; 4].join(" "));
}

#[test]
fn c_10_3_the_other_calls_of_the_answer_keep_their_order() {
    let turns = "- call: [{tool: note, args: {text: a}}, {tool: ask_human, args: {prompt: Really?}}, \
                 {tool: note, args: {text: b}}, {tool: ask_human, args: {prompt: And?}}, {tool: note, args: {text: c}}]\n\
                 - say: 'seen ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &[]).expect_code(101);
    assert_eq!(sandbox.read("work/ledger"), "a\n");
    resume(&sandbox, &["-m", "yes"]).expect_code(101);
    assert_eq!(sandbox.read("work/ledger"), "a\nb\n");
    resume(&sandbox, &["-m", "well"]).expect_code(0);
    assert_eq!(sandbox.observations(), ["noted a\n", "yes", "noted b\n", "well", "noted c\n"]);
}

#[test]
fn c_11_2_the_agent_has_moved() {
    let sandbox = in_state("INTERRUPTED");
    fs::rename(sandbox.path("agent"), sandbox.path("moved")).unwrap();
    let before = snapshot(&sandbox);
    let expected = "error: there is no agent `DIR/agent`\nhelp: if it has moved, name its new directory with `--agent DIR`\n";
    resume(&sandbox, &[]).normal(&sandbox).expect(126, "", expected);
    assert_eq!(snapshot(&sandbox), before);
    resume(&sandbox, &["--agent", "nowhere"]).expect_code(126);
    assert_eq!(snapshot(&sandbox), before);
    resume(&sandbox, &["--agent", "moved"]).expect_code(0);
    let home = sandbox.path("moved").to_string_lossy().into_owned();
    assert_eq!(sandbox.metadata()["agent_home"], *home);
    resume(&sandbox, &["-m", "more"]).expect_code(1);
    assert_eq!(sandbox.metadata()["agent_home"], *home, "it is found there from now on");
}

#[test]
fn c_11_2_the_agent_has_changed_between() {
    let turns = "- call: [{tool: stop}]\n- call: [{tool: fresh}]\n- say: 'seen ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &[]).expect_code(130);
    sandbox
        .agent("provider: script\n  model: script.yaml", "  - name: fresh\n    exec: echo new\n");
    assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen new\n");
}

#[test]
fn c_7_10_no_hint_repeats_the_model_of_the_last_process() {
    let asks = "- call: [{tool: ask_human, args: {prompt: Who?}}]\n- say: bye\n";
    let sandbox = Sandbox::scripted(DELTA, "", "- say: not asked\n");
    sandbox.write("agent/other.yaml", format!("turns:\n{asks}"));
    let next = |id: &str, place: &str| format!("delta continue --run-id {id} -w {place}");
    sandbox.run("go", &["--model", "script:other.yaml"]).expect_code(101);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().normal(&sandbox).stdout;
    let expected = format!(
        "? Who?\n\nWAITING_FOR_INPUT after 1 iteration, SPAN\nanswer with: {} --request-id REQUEST -m ANSWER\n",
        next("r", "work")
    );
    assert!(shown.ends_with(&expected), "{shown}");
    let made = ["fork", "r", "-w", "work", "--at", "0", "--run-id", "f", "--into", "new"];
    let made = sandbox.delta(made).output().normal(&sandbox).expect_code(0).stderr;
    assert!(made.ends_with(&format!("Continue with: {}\n", next("f", "DIR/new"))), "{made}");
    let shown = sandbox.delta(["show", "f", "-w", "new"]).output().expect_code(0).stdout;
    assert!(shown.ends_with(&format!("continue with: {}\n", next("f", "new"))), "{shown}");
    resume(&sandbox, &["-m", "me", "-q", "--model", "script:other.yaml"]).expect_code(0);
    let refused = resume(&sandbox, &[]).expect_code(1).stderr;
    let expected = format!("help: {} -m \"Now do something else\"\n", next("r", "work"));
    assert!(refused.ends_with(&expected), "{refused}");
}

#[test]
fn c_7_10_another_llm_than_the_last_process_asked_is_told() {
    let sandbox = in_state("INTERRUPTED");
    sandbox.write("agent/other.yaml", "turns:\n- say: passed\n- say: from the other\n");
    let note = "Note: the last process called script.yaml; this one calls other.yaml\n";
    let ran = resume(&sandbox, &["--model", "script:other.yaml"]).expect_code(0);
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    let ran = resume(&sandbox, &["-m", "more", "--model", "script:other.yaml"]);
    assert!(!ran.stderr.contains("Note:"), "{}", ran.stderr);
}

#[test]
fn c_7_10_another_model_for_one_process() {
    let sandbox = in_state("INTERRUPTED");
    sandbox.write("agent/other.yaml", "turns:\n- say: passed\n- say: from the other\n");
    let ran = resume(&sandbox, &["--model", "script:other.yaml"]).expect_code(0);
    assert_eq!(ran.stdout, "from the other\n", "the place in the script is the journal's");
    let starts = sandbox.events("ENGINE_START");
    let models: Vec<_> = starts.iter().map(|e| e["config"]["llm"]["model"].clone()).collect();
    assert_eq!(models, ["script.yaml", "other.yaml"]);
}

#[test]
fn c_11_2_no_such_run() {
    let sandbox = in_state("COMPLETED");
    let command = |id: &str, dir: &str| {
        sandbox.delta(["continue", "--run-id", id, "-w", dir]).output().normal(&sandbox)
    };
    let lost = "error: there is no run q in DIR/work\n\
                help: `delta list-runs -w DIR/work` lists the runs there; `-w DIR` names another workspace\n";
    command("q", "work").expect(1, "", lost);
    command("r", ".").expect(1, "", "error: there is no run r in DIR\nhelp: add -w DIR/work\n");
    fs::create_dir_all(sandbox.path("a b/.delta/r")).unwrap();
    let two = "error: there is no run r in DIR\nhelp: add -w 'DIR/a b'\n      or  -w DIR/work\n";
    command("r", ".").expect(1, "", two);
    let nowhere =
        "error: could not open the workspace nowhere: there is no such directory\n".to_owned();
    command("r", "nowhere").expect(126, "", &nowhere);
    sandbox.write("notes", "");
    let file = "error: could not open the workspace notes: it is not a directory\n";
    command("r", "notes").expect(126, "", file);
    for bad in ["", "..", "a/b", "../work/.delta/r", "VERSION"] {
        let before = snapshot(&sandbox);
        let ran = sandbox.delta(["continue", &format!("--run-id={bad}"), "-w", "work"]).output();
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{bad:?}: {}", ran.stderr);
        assert_eq!(snapshot(&sandbox), before);
    }
}

#[test]
fn c_12_7_usage_is_summed_over_processes_and_the_conversation_stays_strict() {
    let answers = vec![
        Answer::calls(vec![("stop", json!({})), ("note", json!({"text": "later"}))]),
        Answer::text("done"),
        Answer::text("again"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.run("task", &[]).expect_code(130);
    resume(&sandbox, &["-m", "also this"]).expect_code(0);
    let args = ["continue", "--run-id", "r", "-w", "work", "-m", "and this", "--format", "json"];
    let result = sandbox.delta(args).output().expect_code(0).json();
    assert_eq!(server.violations(), Vec::<String>::new());
    let usage = &result["metrics"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(33), &json!(21)));
    assert_eq!(result["metrics"]["iterations"], 3);
    assert_eq!(sandbox.read("work/ledger"), "later\n");
    let kinds = kinds(&sandbox);
    let second = "ENGINE_START USER_MESSAGE ACTION_REQUEST ACTION_RESULT THOUGHT ENGINE_END";
    assert!(kinds.contains(second), "the message is there before the next THOUGHT: {kinds}");
    let roles = |index: usize| -> Vec<String> {
        let body = &server.requests()[index].body;
        body["messages"].as_array().unwrap().iter().map(|m| text(m, "role").to_owned()).collect()
    };
    assert_eq!(roles(1), ["system", "user", "assistant", "tool", "tool", "user"]);
}

#[test]
fn c_15_4_a_sensitive_answer_stays_hidden_when_it_comes_with_continue() {
    let turns = "- call: [{tool: ask_human, args: {prompt: 'Key?', sensitive: true}}]\n- say: 'got ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("task", &[]).expect_code(101);
    let fixed = ["continue", "--run-id", "r", "-w", "work", "-m", "hunter2secret"];
    let ran = sandbox.delta(fixed).output().expect_code(0);
    assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("hunter2secret"), "{ran:?}");
    assert!(ran.stderr.contains("[hidden]"), "{ran:?}");
    assert!(!sandbox.read("work/.delta/r/engine.log").contains("hunter2secret"));
    assert_eq!(sandbox.observations(), ["hunter2secret"], "the journal has it, as the design says");
    assert!(!ran.stderr.contains("too short"), "{ran:?}");
    // Hidden everywhere, it would take words with it.
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("task", &[]).expect_code(101);
    let fixed = ["continue", "--run-id", "r", "-w", "work", "-m", "got"];
    let ran = sandbox.delta(fixed).output().expect_code(0);
    let note = "! the answer is too short to be hidden in other texts: fewer than 4 characters\n";
    assert!(ran.stderr.contains(note) && ran.stdout.contains("got got"), "{ran:?}");
    assert!(ran.stderr.contains("  │ [hidden]\n"), "{ran:?}");
}

#[test]
fn c_10_1_a_confirmation_wants_yes_or_no_also_from_continue() {
    let turns = "- call: [{tool: ask_human, args: {prompt: 'Delete?', input_type: confirmation}}]\n- say: 'got ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("task", &[]).expect_code(101);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "raw", "-m"];
    for wrong in ["maybe", "", "yes please"] {
        let ran = sandbox.delta(fixed.iter().copied().chain([wrong])).output().expect_code(1);
        assert_eq!(
            ran.stderr,
            "error: expected `yes` or `no`: Delete?\nhelp: answer y, yes, n or no; the run is still waiting\n"
        );
    }
    assert_eq!(sandbox.read("work/.delta/r/journal.jsonl"), journal);
    let ran = sandbox.delta(fixed.iter().copied().chain(["No"])).output().expect_code(0);
    assert_eq!(ran.stdout, "got No\n");
}

#[test]
fn c_12_2_a_refused_answer_leaves_the_question_open() {
    let turns =
        "- call: [{tool: ask_human, args: {prompt: 'Delete?', input_type: confirmation}}]\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("task", &[]).expect_code(101);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let json = ["continue", "r", "-w", "work", "--format", "json", "-m", "perhaps"];
    let result = sandbox.delta(json).output().expect_code(1).json();
    assert_eq!(
        (&result["run_id"], &result["status"], &result["error"]),
        (&json!("r"), &json!("WAITING_FOR_INPUT"), &json!(null))
    );
    let interaction = &result["interaction"];
    let question = json!({"request_id": interaction["request_id"], "prompt": "Delete?", "input_type": "confirmation", "sensitive": false});
    assert_eq!(*interaction, question);
    assert_eq!(sandbox.read("work/.delta/r/journal.jsonl"), journal);
}

#[test]
fn c_11_1_the_run_is_a_word_or_an_option() {
    let sandbox = in_state("INTERRUPTED");
    let continued =
        |more: &[&str]| sandbox.delta([&["continue", "-w", "work"], more].concat()).output();
    for wrong in [&["r", "x", "--run-id", "r"] as &[&str], &["r", "--run-id", "r", "-m", "x"]] {
        assert_eq!(continued(wrong).code, 2, "{wrong:?}");
    }
    let ran = continued(&["r", "--format", "raw"]).expect_code(0);
    assert!(ran.stdout.starts_with("seen [interrupted: "), "{}", ran.stdout);
}

#[test]
fn c_11_1_a_word_too_many_gets_a_tip() {
    let sandbox = in_state("INTERRUPTED");
    for (words, tip) in [
        (&["agent", "-m", "x"] as &[&str], "\n  tip: name the agent with `--agent agent`\n"),
        (&["agent"], "\n  tip: name the agent with `--agent agent`\n"),
        (&["tidy", "it", "-y", "up"], "\n  tip: quote it: `delta run 'tidy it up'`\n"),
        (&[], "\n  tip: write `delta run TEXT`, or `delta run -` to read it from stdin\n"),
    ] {
        let ran = sandbox.delta([&["run"], words].concat()).output().expect_code(2);
        assert!(ran.stderr.contains(tip), "{}", ran.stderr);
    }
    let ran = sandbox.delta(["run", "-m", "x", "--max-iterations", "0"]).output().expect_code(2);
    let wanted = "invalid value '0' for '--max-iterations <N>': expected a whole number from 1 to 2147483647; no value means `no limit`: write a large number\n";
    assert!(ran.stderr.contains(wanted), "{}", ran.stderr);
}

#[test]
fn c_23_5_a_script_of_the_command_line_is_found_from_any_directory() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m", "");
    sandbox.write("plays.yaml", "turns:\n  - say: one\n  - say: two\n");
    sandbox.run("go", &["--model", "script:plays.yaml"]).expect_code(0);
    let elsewhere = sandbox.delta(["continue", "r", "-m", "more", "--format", "raw"]);
    let ran = elsewhere.cwd(sandbox.path("work")).output().expect_code(0);
    assert_eq!(ran.stdout, "two\n");
    assert!(!ran.stderr.contains("the last process called"), "{}", ran.stderr);
    let option = format!("script:{}", sandbox.path("plays.yaml").display());
    for start in sandbox.events("ENGINE_START") {
        assert_eq!(start["config"]["llm"]["option"], option);
    }
}

/// A request that the endpoint refuses, it refuses again: asking again without a change only costs.
#[test]
fn c_11_2_a_refused_request_is_repeated_only_with_a_change_or_on_demand() {
    for status in [400, 401, 403, 404, 413, 422] {
        let server = ScriptedServer::start(vec![
            Answer::error(status, "bad", None),
            Answer::error(status, "bad still", None),
            Answer::text("good"),
        ]);
        let sandbox = Sandbox::asking(DELTA, &server.url(), "");
        sandbox.run("hi", &["-q"]).expect_code(1);
        let next = "delta continue --run-id r -w work --retry llm";
        let expected = format!(
            "error: Run is FAILED. To continue, provide a message using -m/--message\nhelp: {next}\n"
        );
        resume(&sandbox, &[]).expect(1, "", &expected);
        assert_eq!(server.requests().len(), 1, "{status}");
        resume(&sandbox, &["--retry", "llm"]).expect_code(1);
        assert_eq!(resume(&sandbox, &["--llm", "temperature=0"]).expect_code(0).stdout, "good\n");
        assert_eq!(sandbox.events("USER_MESSAGE").len(), 1, "no message was invented");
    }
    // What passes by itself, or gives no answer at all, is asked again as before.
    for status in [408, 409, 429, 503] {
        let refusal = || Answer::error(status, "later", None).header("retry-after", "0");
        let server = ScriptedServer::start(vec![refusal(), Answer::text("good")]);
        let sandbox = Sandbox::new(DELTA);
        let llm = format!("model: test-model\n  max_retries: 0\n  base_url: {}", server.url());
        sandbox.agent(&llm, "");
        sandbox.run("hi", &["-q"]).expect_code(1);
        assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "good\n", "{status}");
    }
}

/// What makes a `continue` fail, its end, and whether the message is recorded.
type Failure = (&'static str, fn(&Sandbox), fn(&Sandbox), bool);

const METADATA_DRAFT: &str = "work/.delta/r/metadata.json.tmp";
const SNAPSHOTS: &str = "work/.delta/r/snapshots";
const CONFIG: &str = "home/.config/delta/config.yaml";

const FAILURES: [Failure; 5] = [
    (
        "a directory is in the place of metadata.json",
        |sandbox| {
            let _ = fs::remove_file(sandbox.path(METADATA_DRAFT));
            fs::create_dir(sandbox.path(METADATA_DRAFT)).unwrap();
        },
        |sandbox| fs::remove_dir(sandbox.path(METADATA_DRAFT)).unwrap(),
        true,
    ),
    (
        "nothing listens at the address of the LLM",
        |sandbox| {
            let agent = sandbox.read("agent/agent.yaml");
            sandbox.write("agent/agent.yaml", agent.replace("http://", "http://127.0.0.1:1/"));
        },
        |sandbox| {
            let agent = sandbox.read("agent/agent.yaml");
            sandbox.write("agent/agent.yaml", agent.replace("http://127.0.0.1:1/", "http://"));
        },
        true,
    ),
    (
        "the snapshots are no directory",
        |sandbox| {
            fs::rename(sandbox.path(SNAPSHOTS), sandbox.path("kept")).unwrap();
            sandbox.write(SNAPSHOTS, "");
        },
        |sandbox| {
            fs::remove_file(sandbox.path(SNAPSHOTS)).unwrap();
            fs::rename(sandbox.path("kept"), sandbox.path(SNAPSHOTS)).unwrap();
        },
        true,
    ),
    (
        "an MCP server has no token",
        |sandbox| {
            fs::rename(sandbox.path("agent/.env"), sandbox.path("kept")).unwrap();
        },
        |sandbox| {
            fs::rename(sandbox.path("kept"), sandbox.path("agent/.env")).unwrap();
        },
        false,
    ),
    (
        "what the operator allows cannot be read",
        |sandbox| sandbox.write(CONFIG, "allow: 3\n"),
        |sandbox| fs::remove_file(sandbox.path(CONFIG)).unwrap(),
        false,
    ),
];

// The message was recorded and the error named no command: whoever repeated it sent the message twice. Without a key, the
// command that was named did not work, because a run without a seal needs `--agent`.
#[test]
fn c_11_2_what_a_failed_continue_says_to_repeat_sends_its_message_once() {
    for ((what, cause, mend, is_recorded), has_key) in
        FAILURES.iter().flat_map(|failure| [(failure, true), (failure, false)])
    {
        let server = ScriptedServer::start(vec![Answer::text("one"), Answer::text("two")]);
        let url = server.url();
        let llm = format!(
            "model: test-model\n  max_retries: 0\n  base_url: {url}\nsnapshots: true\nmcp: {{s: {{url: 'https://mcp.invalid', token_env: TOKEN}}}}"
        );
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&llm, "");
        sandbox.write("agent/.env", "TOKEN=t0ken\n");
        let locked = json!({"url": "https://mcp.invalid", "era": "legacy", "protocol": "2025-11-25", "server": {"name": "s", "version": "1"}, "tools": []});
        let lock = json!({"lock": 1, "servers": {"s": locked}});
        sandbox.write("agent/mcp.lock.json", lock.to_string());
        let delta = |args: &[&str]| {
            let delta = sandbox.delta(args.iter().copied());
            if has_key { delta } else { delta.env("DELTA_STATE_DIR", "relative") }.output()
        };
        delta(&["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "hello", "-q"])
            .expect_code(0);
        let agent: &[&str] = if has_key { &[] } else { &["--agent", "agent"] };
        let failing = [&["continue", "r", "-w", "work", "-m", "more"], agent].concat();
        cause(&sandbox);
        let failed = delta(&failing);
        mend(&sandbox);
        assert_ne!(failed.code, 0, "{what}: {failed:?}");
        assert_eq!(sandbox.events("USER_MESSAGE").len(), 1 + usize::from(*is_recorded), "{what}");
        let named = failed.stderr.lines().find_map(|line| line.split_once(": delta "));
        assert_eq!(named.is_some(), *is_recorded, "{what}: {}", failed.stderr);
        let next = named.map_or(failing, |(_, next)| next.split(' ').collect());
        delta(&next).expect_code(0);
        let requests = server.requests();
        let bodies: Vec<String> = requests.iter().map(|it| it.body.to_string()).collect();
        let got: Vec<usize> = bodies.iter().map(|body| body.matches("\"more\"").count()).collect();
        assert_eq!(got, [0, 1], "{what}");
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}
