//! Messages to runs that work, wait or have died (C-33): each is received once, or its sender knows that it is not.

use super::DELTA;
use super::runs::{in_state, resume, snapshot};
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Command};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::{until, until_line};

/// `hold` says that it runs, and ends when somebody writes into the fifo `gate`; `wait` only says it.
const TOOLS: &str = "  - name: hold\n    shell: echo held > held; cat gate\n  \
     - name: wait\n    shell: echo held > held; exec sleep 1000\n  \
     - name: note\n    shell: echo noted >> ledger\n  \
     - name: stop\n    shell: kill -TERM $PPID; sleep 1000\n  \
     - name: die\n    shell: kill -9 $PPID; exec sleep 1000\n";

const MAILBOX: &str = "work/.delta/r/messages";

fn scripted(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    fs::create_dir(sandbox.path("work")).unwrap();
    let made = Command::new("mkfifo").arg(sandbox.path("work/gate")).status();
    assert!(made.unwrap().success());
    sandbox
}

/// Starts run `r`, which waits in a tool.
fn start(sandbox: &Sandbox, more: &[&str]) -> Child {
    let child = sandbox.run_command("task", &[&["--format", "raw"], more].concat()).spawn();
    until_line(&sandbox.path("work/held"));
    child
}

fn release(sandbox: &Sandbox) {
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

fn tell(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["tell", "-w", "work"].iter().chain(more).copied()).output()
}

/// The messages that the run has received, in order.
fn received(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.events("USER_MESSAGE").into_iter();
    let texts = events.map(|event| event["content"].as_str().unwrap().to_owned());
    texts.skip(1).collect()
}

fn types(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.journal().into_iter();
    events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn c_33_1_a_working_run_receives_each_message_once_in_the_order_of_its_sender() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: 'seen ${last}'\n");
    let child = start(&sandbox, &[]);
    let ran = tell(&sandbox, &["r", "look at parser.c", "--id", "first-message"]);
    ran.expect(0, "r  RUNNING  message first-me waits for the next LLM call\n", "");
    tell(&sandbox, &["two"]).expect_code(0);
    // Repeated, as after a failure that its sender has seen.
    tell(&sandbox, &["r", "look at parser.c", "--id", "first-message"]).expect_code(0);
    let ran = sandbox.delta(["tell", "-w", "work", "r", "-", "--format", "json"]).stdin("three\n");
    let told = ran.output().expect_code(0).json();
    assert_eq!(
        [&told["run_id"], &told["status"], &told["active"], &told["received"]],
        [&Value::from("r"), &Value::from("RUNNING"), &Value::from(true), &Value::from(false)]
    );
    assert_eq!(sandbox.files(MAILBOX).len(), 3);
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "seen three\n");
    assert_eq!(received(&sandbox), ["look at parser.c", "two", "three"]);
    let source = &sandbox.events("USER_MESSAGE")[1]["source"];
    assert_eq!(
        [&source["id"], &source["by"], &source["when"]],
        [&Value::from("first-message"), &Value::from("command"), &Value::from("next")]
    );
    assert!(!sandbox.path(MAILBOX).exists(), "a COMPLETED run has no mailbox");
    // The journal has it, although the run has ended.
    let again = tell(&sandbox, &["r", "look at parser.c", "--id", "first-message"]);
    again.expect(0, "r  COMPLETED  message first-me was received\n", "");
    assert_eq!(received(&sandbox).len(), 3);
}

#[test]
fn c_33_1_other_content_with_the_id_of_a_message_is_refused() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: 'seen ${last}'\n");
    let child = start(&sandbox, &[]);
    let limits =
        ["r", "--max-tokens", "100k", "--max-iterations", "9", "--reason", "why", "--id", "l"];
    let refuse = |more: &[&str], id: &str, has: &str| {
        let error = format!(
            "error: message {id} of run r has other content: {has}\n\
             help: send this message without `--id`, or with another id\n"
        );
        tell(&sandbox, &[more, &["--id", id]].concat()).expect(1, "", &error);
    };
    let check = |fate: &str| {
        let text = format!("\"one \\\"text\\\"\" {fate}");
        refuse(&["r", "another"], "m", &text);
        refuse(&["r", "--max-tokens", "5"], "m", &text);
        let options = "`--max-tokens 100000 --max-iterations 9 --reason \"why\"`";
        let options = format!("{options} {fate}");
        refuse(&["r", "text"], "l", &options);
        refuse(&["r", "--max-tokens", "100k", "--max-iterations", "8"], "l", &options);
        tell(&sandbox, &["r", "one \"text\"", "--id", "m"]).expect_code(0);
        tell(&sandbox, &limits).expect_code(0);
    };
    tell(&sandbox, &["r", "one \"text\"", "--id", "m"]).expect_code(0);
    tell(&sandbox, &limits).expect_code(0);
    check("waits for the next LLM call");
    let waits = "\"one \\\"text\\\"\" waits for the next LLM call";
    refuse(&["r", "one \"text\"", "--now"], "m", waits);
    assert_eq!(sandbox.files(MAILBOX).len(), 2);
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "seen one \"text\"\n");
    check("was received");
}

#[test]
fn c_33_2_waiting_messages_are_received_in_order_before_the_next_call() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: 'seen ${last}'\n- say: late\n");
    let child = start(&sandbox, &[]);
    for text in ["one", "two"] {
        tell(&sandbox, &["r", text]).expect_code(0);
    }
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "seen two\n");
    assert_eq!(received(&sandbox), ["one", "two"]);
}

#[test]
fn c_33_2_a_run_is_not_completed_while_a_message_waits() {
    let sandbox = scripted("- say: first\n- say: 'seen ${last}'\n");
    let hold = "on_iteration_end:\n  command: [sh, -c, 'test -e held || { echo held > held; cat gate; }']\n";
    sandbox.write("agent/hooks.yaml", hold);
    let child = start(&sandbox, &[]);
    tell(&sandbox, &["r", "one more thing"]).expect_code(0);
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "seen one more thing\n");
    assert_eq!(sandbox.metadata()["iterations"], 2);
}

#[test]
fn c_33_2_a_message_at_the_limit_of_iterations_waits_for_the_next_process() {
    let sandbox = scripted("- say: first\n- say: 'seen ${last}'\n");
    let hold = "on_iteration_end:\n  command: [sh, -c, 'test -e held || { echo held > held; cat gate; }']\n";
    sandbox.write("agent/hooks.yaml", hold);
    let child = start(&sandbox, &["--max-iterations", "1"]);
    tell(&sandbox, &["r", "one more thing"]).expect_code(0);
    release(&sandbox);
    let ran = end(child).expect_code(1);
    assert!(ran.stderr.contains("1 message waits: delta continue --run-id r"), "{}", ran.stderr);
    assert_eq!(received(&sandbox), [""; 0]);
    // It waits, and the run needs no other message.
    assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen one more thing\n");
}

#[test]
fn c_33_3_a_run_that_has_ended_refuses_a_message_and_names_the_command_that_takes_it() {
    for status in ["COMPLETED", "FAILED"] {
        let sandbox = in_state(status);
        let before = snapshot(&sandbox);
        let ran = tell(&sandbox, &["r", "look at parser.c"]);
        let error = format!(
            "error: run r is {status}\n\
             help: delta continue --run-id r -w work -m \"look at parser.c\"\n"
        );
        ran.expect(1, "", &error);
        assert_eq!(snapshot(&sandbox), before);
        assert!(!sandbox.path(MAILBOX).exists());
    }
}

#[test]
fn c_33_4_a_message_to_a_run_without_a_process_waits_for_the_next_one() {
    for state in ["INTERRUPTED", "RUNNING"] {
        let sandbox = in_state(state);
        let ran = tell(&sandbox, &["r", "go on"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let note = "note: no process works on run r; `delta continue --run-id r -w work` receives the message\n";
        assert_eq!(ran.stderr, note);
        let listed = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output();
        assert_eq!(listed.json()[0]["waiting_messages"], 1);
        let listed = sandbox.delta(["list-runs", "-w", "work"]).output();
        assert!(listed.stdout.contains("1 message)"), "{}", listed.stdout);
        let shown = sandbox.delta(["show", "r", "-w", "work", "--format", "json"]).output();
        assert_eq!(shown.json()["waiting_messages"], 1);
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output();
        let line = "1 message waits: delta continue --run-id r -w work";
        assert!(shown.stdout.contains(line), "{}", shown.stdout);
        assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen go on\n");
        let shown = sandbox.delta(["show", "r", "-w", "work", "--format", "json"]).output();
        assert!(shown.json().get("waiting_messages").is_none());
    }
}

#[test]
fn c_33_4_the_result_counts_the_messages_that_wait() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: done\n");
    let limited = ["--format", "json", "--max-iterations", "1"];
    let child = sandbox.run_command("task", &limited).spawn();
    until_line(&sandbox.path("work/held"));
    tell(&sandbox, &["r", "go on"]).expect_code(0);
    release(&sandbox);
    assert_eq!(end(child).expect_code(1).json()["waiting_messages"], 1);
}

#[test]
fn c_33_5_a_message_is_no_approval() {
    let tools = "  - {name: note, shell: 'echo noted >> ledger', approve: ask}\n";
    let turns = "- call: [{tool: note}]\n- say: 'seen ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("task", &[]).expect_code(101);
    tell(&sandbox, &["r", "yes"]).expect_code(0);
    resume(&sandbox, &[]).expect_code(1);
    assert!(sandbox.events("APPROVAL_DECISION").is_empty());
    assert!(!sandbox.path("work/ledger").exists());
    assert_eq!(resume(&sandbox, &["-m", "yes"]).expect_code(0).stdout, "seen yes\n");
    assert_eq!(received(&sandbox), ["yes"]);
}

/// A text like an option, in the command that sends it.
#[test]
fn c_25_6_the_command_for_a_text_with_a_dash_works_as_it_is_printed() {
    let sandbox = in_state("COMPLETED");
    let refused = tell(&sandbox, &["r", "--", "-x"]).expect_code(1).stderr;
    let (_, command) = refused.split_once("delta ").unwrap();
    let words = command.lines().next().unwrap().trim_matches('`').split(' ');
    let ran = sandbox.delta(words.chain(["--format", "raw"])).output().expect_code(0);
    assert_eq!(ran.stdout, "seen -x\n");
}

#[test]
fn c_33_5_a_message_is_no_answer() {
    let sandbox = in_state("WAITING_FOR_INPUT");
    let ran = tell(&sandbox, &["r", "yes"]).expect_code(0);
    let note = "note: run r waits for an answer, and a message is not an answer\n\
                The agent still waits for your answer:\n  delta answer r -w work --request-id ";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().stdout;
    assert!(shown.contains("\n1 message waits until the run has its answer\n"), "{shown}");
    resume(&sandbox, &[]).expect_code(1);
    let ran = resume(&sandbox, &["-m", "certainly"]).expect_code(0);
    assert_eq!(ran.stdout, "seen yes\n");
    assert_eq!(sandbox.observations(), ["certainly"]);
    assert_eq!(received(&sandbox), ["yes"]);
}

#[test]
fn c_33_6_a_message_that_does_not_wait_ends_the_calls_of_the_answer() {
    let sandbox = scripted("- call: [{tool: wait}, {tool: note}]\n- say: 'seen ${last}'\n");
    let child = start(&sandbox, &[]);
    tell(&sandbox, &["r", "and this"]).expect_code(0);
    tell(&sandbox, &["r", "at the end", "--at-end"]).expect_code(0);
    tell(&sandbox, &["r", "not that", "--now", "--id", "n"]).expect(
        0,
        "r  RUNNING  message n ends what is at work\n",
        "",
    );
    assert_eq!(end(child).expect_code(0).stdout, "seen not that\n");
    assert_eq!(
        sandbox.observations(),
        ["[interrupted: the operator sent a message]", "[not run: the operator sent a message]"]
    );
    assert!(!sandbox.path("work/ledger").exists());
    assert_eq!(received(&sandbox), ["and this", "at the end", "not that"]);
}

#[test]
fn c_33_6_a_message_that_does_not_wait_ends_the_request() {
    let server = ScriptedServer::start(vec![Answer::hang(), Answer::text("done")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    let child = sandbox.run_command("task", &["--format", "raw"]).spawn();
    until("the request", || (server.requests().len() == 1).then_some(()));
    tell(&sandbox, &["r", "not that", "--now"]).expect_code(0);
    assert_eq!(end(child).expect_code(0).stdout, "done\n");
    let last = server.requests().pop().unwrap();
    let messages = last.body["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["content"], "not that");
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
}

#[test]
fn c_33_6_a_call_that_comes_after_the_message_does_not_start() {
    let sandbox = scripted("- call: [{tool: die}, {tool: note}]\n- say: 'seen ${last}'\n");
    sandbox.run("task", &[]).expect_code(-1);
    tell(&sandbox, &["r", "not that", "--now"]).expect_code(0);
    assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen not that\n");
    assert_eq!(sandbox.observations()[1], "[not run: the operator sent a message]");
    assert!(!sandbox.path("work/ledger").exists());
}

#[test]
fn c_33_7_a_message_for_the_end_waits_for_the_result() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: first\n- say: 'seen ${last}'\n");
    let child = start(&sandbox, &[]);
    tell(&sandbox, &["r", "then the tests", "--at-end", "--id", "e"]).expect(
        0,
        "r  RUNNING  message e waits for the result\n",
        "",
    );
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "seen then the tests\n");
    let told = types(&sandbox);
    let thoughts: Vec<usize> = (0..told.len()).filter(|at| told[*at] == "THOUGHT").collect();
    let message = told.iter().rposition(|kind| kind == "USER_MESSAGE").unwrap();
    assert!(thoughts[1] < message && message < thoughts[2], "{told:?}");
}

#[test]
fn c_33_8_only_a_sealed_message_to_this_run_is_received() {
    let plant = "  - name: plant\n    shell: |-\n      cd .delta/r/messages\n      \
         for f in *-copied.json; do cp $f 000007-copied.json; cp $f 000008-other.json; done\n      \
         sed s/copied/forged/ 000008-other.json > 000009-forged.json\n      \
         mkdir 000010-dir.json; ln -s /etc/passwd 000011-link.json; mkfifo 000012-pipe.json\n      \
         echo '{}' > 000013-x.json\n";
    let sandbox = scripted("- call: [{tool: hold}, {tool: plant}]\n- say: 'seen ${last}'\n");
    sandbox.agent("provider: script\n  model: script.yaml", &(TOOLS.to_owned() + plant));
    let child = start(&sandbox, &[]);
    tell(&sandbox, &["r", "mine", "--id", "copied"]).expect_code(0);
    release(&sandbox);
    let ran = end(child).expect_code(0);
    assert_eq!(ran.stdout, "seen mine\n");
    assert_eq!(received(&sandbox), ["mine"], "copies have the id of the message");
    let warned =
        ran.stderr.matches("was removed: it is not a message of this run's operator").count();
    assert_eq!(warned, 5, "{}", ran.stderr);
    assert!(!sandbox.path(MAILBOX).exists());
}

#[test]
fn c_33_8_a_foreign_run_and_a_run_around_the_caller_are_refused() {
    let sandbox = in_state("INTERRUPTED");
    let ran = sandbox
        .delta(["tell", "-w", "work", "r", "x"])
        .env("DELTA_STATE_DIR", sandbox.path("other").into_os_string())
        .output()
        .expect_code(126);
    assert!(ran.stderr.contains("run r is foreign"), "{}", ran.stderr);
    // With its environment, and without it.
    let agent = "  - name: a\n    shell: \"'DELTA' tell r x -w . || echo $?\"\n  \
         - name: b\n    shell: \"env -i HOME=$HOME 'DELTA' tell r x -w . || echo $?\"\n";
    let agent = agent.replace("DELTA", DELTA);
    let turns = "- call: [{tool: a}, {tool: b}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &agent, turns);
    sandbox.run("task", &[]).expect_code(0);
    for seen in sandbox.observations() {
        assert!(seen.starts_with("126\n"), "{seen}");
        assert!(seen.contains("a call of run r cannot send it a message"), "{seen}");
    }
    assert_eq!(received(&sandbox), [""; 0]);
}

#[test]
fn c_33_9_a_long_message_and_too_many_messages_are_refused() {
    let sandbox = in_state("INTERRUPTED");
    let long = "x".repeat(64 * 1024 + 1);
    let ran = sandbox.delta(["tell", "-w", "work", "r", "-"]).stdin(long).output().expect_code(1);
    assert!(ran.stderr.contains("65537 bytes, and a message has at most 65536"), "{}", ran.stderr);
    let most = "x".repeat(64 * 1024);
    sandbox.delta(["tell", "-w", "work", "r", "-"]).stdin(most).output().expect_code(0);
    for number in 2..=100 {
        sandbox.write(&format!("{MAILBOX}/{number:06}-x.json"), "");
    }
    let ran = tell(&sandbox, &["r", "x"]).expect_code(1);
    assert!(ran.stderr.starts_with("error: 100 messages wait for run r\n"), "{}", ran.stderr);
    tell(&sandbox, &["r", " "]).expect_code(2);
    tell(&sandbox, &["r"]).expect_code(2);
    tell(&sandbox, &["r", "x", "--now", "--at-end"]).expect_code(2);
    tell(&sandbox, &["r", "x", "--id", "a/b"]).expect_code(2);
}

#[test]
fn c_33_10_a_run_that_is_owned_by_turns_receives_messages() {
    let turns = ["--lease", "turns"];
    let sandbox =
        scripted("- call: [{tool: hold}]\n- call: [{tool: die}]\n- say: 'seen ${last}'\n");
    let child = start(&sandbox, &turns);
    tell(&sandbox, &["r", "one"]).expect_code(0);
    release(&sandbox);
    assert_eq!(end(child).code, -1);
    assert_eq!(sandbox.files(MAILBOX), [""; 0]);
    tell(&sandbox, &["r", "two"]).expect_code(0);
    assert_eq!(resume(&sandbox, &turns).expect_code(0).stdout, "seen two\n");
    let read = sandbox.delta(["show", "r", "-w", "work", "--format", "json"]).output().json();
    let texts: Vec<&Value> =
        read["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(texts, ["task", "one", "two"]);
}

#[test]
fn c_33_13_a_fork_receives_no_message_of_its_base() {
    let sandbox = in_state("INTERRUPTED");
    tell(&sandbox, &["r", "go on"]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into", "work"];
    sandbox.delta(fork).output().expect_code(0);
    sandbox.delta(["continue", "f", "-w", "work", "-m", "other"]).output().expect_code(0);
    assert_eq!(sandbox.files(MAILBOX).len(), 1);
    assert_eq!(resume(&sandbox, &[]).expect_code(0).stdout, "seen go on\n");
    sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
    sandbox.delta(["verify", "r", "-w", "work"]).output().expect_code(0);
}

#[test]
fn c_33_13_a_received_message_is_replayed_and_exported_as_any_other() {
    let sandbox = in_state("WAITING_FOR_INPUT");
    tell(&sandbox, &["r", "look at parser.c"]).expect_code(0);
    resume(&sandbox, &["-m", "certainly"]).expect_code(0);
    let on_run = |command: &[&str]| {
        let fixed = [command[0], "r", "-w", "work"];
        sandbox.delta(fixed.iter().chain(&command[1..]).copied()).output().expect_code(0).stdout
    };
    for command in [&["replay"] as &[&str], &["verify"]] {
        on_run(command);
    }
    let replayed = on_run(&["replay", "--mode", "tools", "--into", "again"]);
    assert!(replayed.starts_with("the tools of run r did the same: 2 answers"), "{replayed}");
    let exported = on_run(&["export", "--to", "markdown"]);
    assert!(exported.contains("## Message\n\n```text\nlook at parser.c\n```\n"), "{exported}");
}

#[test]
fn c_33_11_the_limits_of_a_working_run_change_and_later_processes_keep_them() {
    let turns = "- call: [{tool: hold}]\n- call: [{tool: note}]\n- say: done\n- say: more\n";
    let sandbox = scripted(turns);
    let child = start(&sandbox, &["--max-iterations", "2", "--max-tokens", "1000000"]);
    let told = ["r", "--max-iterations", "3", "--max-tokens", "1", "--reason", "approved"];
    tell(&sandbox, &told).expect_code(0);
    tell(&sandbox, &["r", "--max-tokens", "2000000"]).expect_code(0);
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "done\n");
    let events = sandbox.events("LIMITS_CHANGED");
    assert_eq!(events[0]["limits"], json!({"max_tokens": 1}));
    assert_eq!(events[0]["before"], json!({"max_tokens": 1_000_000, "max_iterations": 2}));
    assert_eq!(
        [&events[0]["max_iterations"], &events[0]["reason"]],
        [&json!(3), &json!("approved")]
    );
    assert_eq!(events[1]["before"], json!({"max_tokens": 1}));
    assert!(events.iter().all(|event| event["seal"].is_string() && event["source"].is_object()));
    resume(&sandbox, &["-m", "and"]).expect_code(0);
    let start = sandbox.events("ENGINE_START").pop().unwrap();
    assert_eq!(start["max_iterations"], 3);
    assert_eq!(start["config"]["limits"], json!({"max_tokens": 2_000_000}));
    sandbox.delta(["verify", "r", "-w", "work"]).output().expect_code(0);
}

#[test]
fn c_33_11_a_run_beyond_its_new_limit_says_how_many_iterations_it_had() {
    let sandbox = scripted("- call: [{tool: note}]\n- call: [{tool: hold}]\n- say: done\n");
    let child = start(&sandbox, &[]);
    tell(&sandbox, &["r", "--max-iterations", "1"]).expect_code(0);
    release(&sandbox);
    let ran = end(child).expect_code(1);
    assert!(ran.stderr.contains("the task is not finished after 2 iterations"), "{}", ran.stderr);
}

#[test]
fn c_33_11_a_limit_of_a_run_without_a_ledger_binds_its_next_call() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: done\n");
    let child = start(&sandbox, &[]);
    assert!(!sandbox.path("work/.delta/r/budget.jsonl").exists());
    tell(&sandbox, &["r", "--max-tokens", "1"]).expect_code(0);
    release(&sandbox);
    let ran = end(child).expect_code(1);
    assert!(
        ran.stderr.contains("the limit of 1 tokens does not allow another call"),
        "{}",
        ran.stderr
    );
    let ledger = sandbox.read("work/.delta/r/budget.jsonl");
    assert!(
        ledger.contains("\"max_tokens\":1,") || ledger.contains("\"max_tokens\":1}"),
        "{ledger}"
    );
    // The next process has it too.
    resume(&sandbox, &["-m", "again"]).expect_code(1);
    let raised = resume(&sandbox, &["-m", "again", "--max-tokens", "1000000"]).expect_code(0);
    assert_eq!(raised.stdout, "done\n");
}

#[test]
fn c_33_11_a_time_limit_counts_from_the_start_of_the_process() {
    let sandbox = scripted("- call: [{tool: hold}]\n- say: done\n");
    let child = start(&sandbox, &["--max-duration", "1h"]);
    tell(&sandbox, &["r", "--max-duration", "1ms"]).expect_code(0);
    release(&sandbox);
    let ran = end(child).expect_code(1);
    assert!(ran.stderr.contains("the time limit of 1ms has expired"), "{}", ran.stderr);
    tell(&sandbox, &["r", "x", "--max-cost", "1"]).expect_code(2);
    tell(&sandbox, &["r", "x", "--reason", "because"]).expect_code(2);
}
