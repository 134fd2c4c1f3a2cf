//! `delta replay`: a run that is only looked at, one whose tools run again, one whose LLM is asked again.

use super::DELTA;
use super::runs::{in_state, seal_of, snapshot};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use test_support::alone::is_alone;
use test_support::cpu_time::children_cpu_time;
use test_support::normal::normal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const TOOLS: &str = "  - name: note\n    shell: echo ${text} >> ledger; cat ledger\n  \
     - name: much\n    exec: seq 20000\n";

const TURNS: &str = "- say: looking\n  call: [{tool: note, args: {text: one}}, {tool: much}]\n\
     - call: [{tool: ask_human, args: {prompt: Really?}}]\n\
     - say: 'done: ${last}'\n- say: more\n";

/// A run with everything in it: tools, much output, a question, an answer, a second message.
fn whole() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("the task", &[]).expect_code(101);
    for (message, code) in [("yes", 0), ("again", 0)] {
        sandbox.delta(["continue", "r", "-w", "work", "-m", message]).output().expect_code(code);
    }
    sandbox
}

fn replay(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["replay", "r", "-w", "work"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

fn record(sandbox: &Sandbox, dir: &str, end: &str) -> String {
    let dir = format!("work/.delta/r/io/{dir}");
    let names = sandbox.files(&dir);
    let name = names.iter().find(|name| name.ends_with(end));
    format!("{dir}/{}", name.unwrap_or_else(|| panic!("no {end} in {names:?}")))
}

#[test]
fn c_16_9_a_run_is_verified_without_its_agent_and_workspace() {
    let sandbox = whole();
    let equal = "run r matches its records: 20 lines, 4 requests, 3 calls, 11 files\n";
    let before = snapshot(&sandbox);
    replay(&sandbox, &[]).expect(0, equal, "");
    assert_eq!(snapshot(&sandbox), before);
    let elsewhere = Sandbox::new(DELTA);
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(sandbox.path("work/.delta")).arg(elsewhere.path("home"));
    assert!(copy.status().unwrap().success());
    fs::remove_dir_all(sandbox.path("agent")).unwrap();
    fs::remove_dir_all(sandbox.path("work")).unwrap();
    elsewhere.delta(["replay", "r", "-w", "home"]).output().expect(0, equal, "");
    let seen = elsewhere.delta(["replay", "r", "-w", "home", "--format", "json"]).output();
    let expected = json!({
        "run_id": "r", "mode": "verify", "equal": true, "differences": [], "not_checked": [],
        "checked": {"lines": 20, "requests": 4, "calls": 3, "files": 11},
    });
    assert_eq!(seen.expect_code(0).json(), expected);
}

#[test]
fn c_16_9_an_agent_that_changes_while_a_run_stands_is_kept_for_each_process() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Really?}}]\n- say: done\n- say: more\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.write(
        "agent/schema.json",
        r#"{"type": "object", "properties": {"x": {"type": "integer"}}}"#,
    );
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write(
        "agent/agent.yaml",
        format!("{yaml}finish: {{schema: schema.json}}\nsystem_prompt: prompts/own.md\n"),
    );
    sandbox.write("agent/prompts/own.md", "You are the first.\n");
    let context = sandbox.read("agent/context.yaml").replace("system_prompt.md", "prompts/own.md");
    sandbox.write("agent/context.yaml", context);
    sandbox.run("the task", &[]).expect_code(101);
    sandbox.write("agent/prompts/own.md", "You are the second.\n");
    sandbox.delta(["continue", "r", "-w", "work", "-m", "yes"]).output().expect_code(0);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "again"]).output().expect_code(0);
    assert_eq!(sandbox.read("work/.delta/r/agent/system_prompt.md"), "You are the first.\n");
    assert_eq!(sandbox.read("work/.delta/r/agent/2/system_prompt.md"), "You are the second.\n");
    let kept = |start: &serde_json::Value| start["config"]["kept"]["dir"].clone();
    let kept: Vec<_> = sandbox.events("ENGINE_START").iter().map(kept).collect();
    assert_eq!(kept, [json!("agent"), json!("agent/2"), json!("agent/2")]);
    let equal = "run r matches its records: 15 lines, 3 requests, 1 call, 12 files\n";
    replay(&sandbox, &[]).expect(0, equal, "");
}

/// A change of one byte, and the first line that says where it is.
fn named(path: &str, from: &str, to: &str, first: &str) {
    let sandbox = whole();
    sandbox.unverified("a byte of it is changed");
    let path = match path.split_once('*') {
        Some((dir, end)) => record(&sandbox, dir, end),
        None => format!("work/.delta/r/{path}"),
    };
    let text = sandbox.read(&path);
    let at = text.find(from).unwrap_or_else(|| panic!("{from} is not in {path}"));
    assert_eq!(from.len(), to.len());
    let changed = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
    sandbox.write(&path, changed);
    let ran = replay(&sandbox, &[]).expect_code(3);
    let said = normal(&sandbox, &ran.stdout);
    assert!(said.lines().any(|line| line == first), "{first}\nis not said of {path}:\n{said}");
    let seen = replay(&sandbox, &["--format", "json"]).expect_code(3).json();
    assert_eq!(seen["equal"], false);
    assert!(!seen["differences"].as_array().unwrap().is_empty());
}

#[test]
fn c_16_10_a_changed_byte_of_the_configuration_is_named() {
    named(
        "agent/system_prompt.md",
        "test",
        "tent",
        "then: iteration 1, the request, message 1, source `system_prompt.md`, byte 1076",
    );
    named("agent/agent.yaml", "seq", "sed", "first: agent/agent.yaml");
    named("agent/context.yaml", "journal", "jornaul", "first: agent/context.yaml");
}

#[test]
fn c_16_10_the_cost_of_lines_that_are_no_events_is_that_of_their_number() {
    if !is_alone() {
        return;
    }
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.unverified("its journal gets lines");
    sandbox.run("go", &[]).expect_code(0);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let cost = |count: usize| {
        sandbox.write("work/.delta/r/journal.jsonl", format!("{journal}{}", "x\n".repeat(count)));
        let before = children_cpu_time();
        replay(&sandbox, &[]).expect_code(3);
        children_cpu_time() - before
    };
    let (few, many) = (cost(1_000), cost(8_000));
    // Eight times the lines: with the square it was sixty times the cost.
    assert!(many < 20 * few.max(10), "{few} and {many} hundredths of a second");
}

#[test]
fn c_16_10_a_changed_byte_of_the_journal_is_named() {
    named("journal.jsonl", "the task", "the tusk", "first: journal.jsonl, line 2");
    named(
        "journal.jsonl",
        "the task",
        "the tusk",
        "then: iteration 1, the request, message 2, source `journal`, byte 1115",
    );
    named("journal.jsonl", "looking", "looming", "then: iteration 1, the answer's content, byte 4");
    named(
        "journal.jsonl",
        ",\"argv\":[\"sh\"",
        ",\"argv\":[\"su\"",
        "then: iteration 1, the argv of call call_1_1 (note), byte 3",
    );
    named(
        "journal.jsonl",
        "_content\":\"one",
        "_content\":\"ons",
        "first: iteration 1, journal.jsonl, line 5",
    );
    named("journal.jsonl", "\"duration_ms\":", "\"duration_mz\":", "first: journal.jsonl, line 5");
    named(
        "journal.jsonl",
        "\"status\":\"WAITING",
        "\"status\":\"WAITINK",
        "first: journal.jsonl, line 11",
    );
    named(
        "journal.jsonl",
        "\"timestamp\":\"2",
        "\"timestamp\":\"3",
        "first: journal.jsonl, line 1",
    );
}

#[test]
fn c_16_10_a_changed_byte_of_what_was_recorded_is_named() {
    named(
        "invocations*_1.json",
        "You are",
        "You wre",
        "first: iteration 1, io/invocations/STAMP_1.json",
    );
    named(
        "invocations*_1.json",
        "looking\"",
        "looming\"",
        "then: iteration 1, the answer's content, byte 4",
    );
    named(
        "tool_executions*_note.json",
        "\"stdout\":\"one",
        "\"stdout\":\"ona",
        "then: iteration 1, the observation of call call_1_1 (note), byte 2",
    );
    // Behind what the LLM was shown of it.
    named(
        "tool_executions*_much.stdout",
        "\n10000\n",
        "\n10900\n",
        "first: io/tool_executions/STAMP_much.stdout",
    );
    named("metadata.json", "the task", "the tusk", "first: metadata.json, byte 257");
}

#[test]
fn c_16_10_any_changed_byte_of_a_journal_is_found() {
    let sandbox = whole();
    sandbox.unverified("its journal is changed");
    let path = "work/.delta/r/journal.jsonl";
    let whole = fs::read(sandbox.path(path)).unwrap();
    // Every one would be thousands of processes; the unit tests have them all for one line.
    for at in (0..whole.len()).step_by(whole.len() / 60).chain([whole.len() - 1]) {
        let mut changed = whole.clone();
        changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
        sandbox.write(path, &changed);
        let ran = replay(&sandbox, &[]);
        let line = whole[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        let said = format!("journal.jsonl, line {line}\n");
        assert!(ran.code == 3 && ran.stdout.contains(&said), "byte {at}: {}", ran.stdout);
    }
}

#[test]
fn c_16_10_lines_that_the_end_of_a_journal_has_lost_are_found() {
    let sandbox = whole();
    sandbox.unverified("its journal is cut");
    let path = "work/.delta/r/journal.jsonl";
    let whole = sandbox.read(path);
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for kept in 1..lines.len() {
        sandbox.write(path, lines[..kept].concat());
        let ran = replay(&sandbox, &[]);
        assert!(ran.code == 3 && ran.stdout.contains("metadata.json"), "{kept}: {}", ran.stdout);
    }
}

#[test]
fn c_16_9_what_is_no_file_of_the_run_is_not_read() {
    let sandbox = whole();
    sandbox.unverified("a record is a pipe");
    let path = sandbox.path(&record(&sandbox, "tool_executions", "_note.json"));
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let ran = replay(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains("recorded: it is not a regular file\n"), "{}", ran.stdout);
    // Also one that no event names.
    fs::rename(&path, path.with_file_name("another.json")).unwrap();
    let ran = replay(&sandbox, &[]).expect_code(3);
    assert!(ran.stdout.contains("another.json\n"), "{}", ran.stdout);
    sandbox.delta(["export", "r", "-w", "work", "--to", "atif"]).output().expect_code(0);
}

#[test]
fn c_16_9_what_cannot_be_checked_is_said_and_is_no_difference() {
    let sandbox = in_state("RUNNING");
    let ran = replay(&sandbox, &[]).expect_code(0);
    let expected = "run r matches its records: 4 lines, 1 request, 1 call, 4 files\n\
        not checked: metadata.json: the run has no end\n";
    assert_eq!(ran.stdout, expected);
    // As a process leaves it that is killed between the journal and metadata.json.
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- call: [{tool: copy}]\n- say: done\n");
    sandbox.agent(
        "provider: script\n  model: script.yaml",
        "  - name: copy\n    shell: cp .delta/r/metadata.json ../before\n",
    );
    sandbox.run("task", &[]).expect_code(0);
    sandbox.write("work/.delta/r/metadata.json", sandbox.read("before"));
    let ran = replay(&sandbox, &[]).expect_code(0);
    let told = "not checked: metadata.json: of an earlier event\n";
    assert!(ran.stdout.ends_with(told), "{}", ran.stdout);
    // As a power failure may leave the records, which are not synced.
    let sandbox = whole();
    let lost = record(&sandbox, "tool_executions", "_note.json");
    fs::remove_file(sandbox.path(&lost)).unwrap();
    let ran = replay(&sandbox, &[]).expect_code(0);
    let said = normal(&sandbox, &ran.stdout);
    assert!(said.ends_with("not checked: io/tool_executions/STAMP_note.json: missing\n"), "{said}");
    // A journal as the first versions wrote it, without check values.
    let path = "work/.delta/r/journal.jsonl";
    let older: String = sandbox
        .read(path)
        .lines()
        .map(|line| format!("{}}}\n", line.rsplit_once(",\"chain\":").unwrap().0))
        .collect();
    // They had no hashes, and sealed less of ENGINE_START.
    let without = |line: &str, from: &str, to: &str| {
        let Some((start, rest)) = line.split_once(from) else { return line.to_owned() };
        format!("{start}{}", rest.split_once(to).unwrap().1)
    };
    let line = |line: &str| {
        let line = without(line, ",\"record_sha256\":\"", "\"");
        let line = &*without(&line, ",\"sha256\":{", "}");
        let event: Value = serde_json::from_str(line).unwrap();
        if event["type"] != "ENGINE_START" {
            return format!("{line}\n");
        }
        let home = event["agent_home"].as_str().unwrap();
        let seal = seal_of(&sandbox, &["delta run", "r", home]);
        line.replacen(event["seal"].as_str().unwrap(), &seal, 1) + "\n"
    };
    sandbox.write(path, older.lines().map(line).collect::<String>());
    let ran = replay(&sandbox, &[]).expect_code(0);
    let said = "not checked: 20 lines of the journal from 1 to 20: no checksum\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "more"]).output().expect_code(1);
}

#[test]
fn c_16_9_a_run_that_is_not_there_or_cannot_be_read_is_an_error() {
    let sandbox = whole();
    let ran = sandbox.delta(["replay", "other", "-w", "work"]).output();
    assert!(ran.expect_code(1).stderr.starts_with("error: there is no run other in "));
    let cases = [
        (
            &["--into", "x"][..],
            "error: `--into` has no effect with `--mode verify`\nhelp: use it with `--mode tools`\n",
        ),
        (
            &["--agent", "x"],
            "error: `--agent` has no effect with `--mode verify`\nhelp: use it with `--mode tools` and `--mode model`\n",
        ),
        (
            &["--mode", "tools", "--model", "x"],
            "error: `--model` has no effect with `--mode tools`\nhelp: use it with `--mode model`\n",
        ),
    ];
    for (more, expected) in cases {
        replay(&sandbox, more).expect(2, "", expected);
    }
}

#[test]
fn c_16_11_tools_run_again_in_a_workspace_of_their_own() {
    let sandbox = whole();
    let before = snapshot(&sandbox);
    let ran = replay(&sandbox, &["--mode", "tools", "--into", "fresh"]).normal(&sandbox);
    let equal = "the tools of run r did the same: 4 answers, 3 calls\nthe tools ran in DIR/fresh, as run ID\n";
    // What is left out of much output lies in the run's own directory, which the LLM is told, and which is another.
    assert_eq!((ran.stdout.as_str(), ran.code), (equal, 0), "{}", ran.stderr);
    let empty = "Note: DIR/fresh is empty: run r has no snapshot of its initial files\n";
    assert_eq!(ran.stderr, empty);
    let told = replay(&sandbox, &["--mode", "tools", "--into", "other", "-v"]).expect_code(0);
    let who = "the LLM is the recording of run r; everything else is real\n";
    assert!(told.stderr.contains(who), "{}", told.stderr);
    assert_eq!(sandbox.read("fresh/ledger"), "one\n");
    assert_eq!(snapshot(&sandbox), before);
    assert_eq!(sandbox.read("work/ledger"), "one\n");
}

#[test]
fn c_16_11_tools_that_do_the_same_are_equal_and_others_are_named() {
    let answers = vec![Answer::call("note", json!({"text": "one"})), Answer::text("done")];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.run("the task", &[]).expect_code(0);
    assert_eq!(server.requests().len(), 2);
    drop(server);
    let (before, tools) = (snapshot(&sandbox), ["--mode", "tools", "--into", "fresh"]);
    let ran = replay(&sandbox, &tools).normal(&sandbox);
    let ran_in = "the tools ran in DIR/fresh, as run ID\n";
    assert_eq!(ran.stdout, format!("the tools of run r did the same: 2 answers, 1 call\n{ran_in}"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // The world is another one: the ledger has a line already.
    let ran = replay(&sandbox, &tools).normal(&sandbox);
    let expected = format!(
        "the tools of run r did not do the same: 1 difference\n\
         first: iteration 1, the observation of call call_1 (note), byte 4\n  \
           recorded: one\\n\n  now:      one\\none\\n\n{ran_in}\
         requests that differ: 2\n"
    );
    assert_eq!((ran.code, ran.stdout), (3, expected));
    let seen = replay(&sandbox, &["--mode", "tools", "--format", "json"]).expect_code(0).json();
    let place = seen["replayed_as"]["work_dir"].as_str().unwrap();
    assert!(place.ends_with("/agent/workspaces/W001"), "{place}");
    assert!(!sandbox.path("agent/workspaces/LAST_USED").exists());
    assert_eq!(snapshot(&sandbox), before);
}

#[test]
fn c_16_10_a_journal_that_was_emptied_is_found() {
    let sandbox = whole();
    sandbox.unverified("its journal is emptied");
    let path = "work/.delta/r/journal.jsonl";
    let lost = |evidence: &str| {
        let ran = replay(&sandbox, &[]).expect_code(3);
        let expected = format!(
            "first: journal.jsonl\n  recorded: no ENGINE_START\n  expected: a run{evidence}\n"
        );
        assert!(ran.stdout.contains(&expected), "{}", ran.stdout);
    };
    for emptied in ["", "{\"type\":\"ENGINE_START\",\"seq\":1,\"time"] {
        sandbox.write(path, emptied);
        lost(" that is COMPLETED, see metadata.json");
    }
    fs::remove_file(sandbox.path(path)).unwrap();
    lost(" that is COMPLETED, see metadata.json");
    fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
    lost(", see its records in io/");
    // A directory in which nothing was ever recorded is one of a run that never began.
    fs::remove_dir_all(sandbox.path("work/.delta/r/io")).unwrap();
    let ran = replay(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.starts_with("error: the run never began: "), "{}", ran.stderr);
}

#[test]
fn c_16_11_a_run_that_waits_is_replayed_up_to_its_question() {
    let ask =
        |prompt: &str| format!("- call: [{{tool: ask_human, args: {{prompt: '{prompt}'}}}}]\n");
    let turns = format!("{}{}- say: done\n", ask("First?"), ask("Second?"));
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns);
    sandbox.run("the task", &[]).expect_code(101);
    for (into, answers) in [("one", 1), ("two", 2)] {
        let seen = replay(&sandbox, &["--mode", "tools", "--into", into, "--format", "json"])
            .normal(&sandbox);
        let seen = seen.expect_code(0).json();
        assert_eq!((&seen["equal"], &seen["differences"]), (&json!(true), &json!([])));
        let id = seen["replayed_as"]["run_id"].clone();
        let shown = sandbox.delta(["list-runs", "-w", into, "--format", "json"]).output().json();
        assert_eq!(
            (&shown[0]["status"], &shown[0]["iterations"], shown[0]["run_id"] == id),
            (&json!("WAITING_FOR_INPUT"), &json!(answers), id != "ID")
        );
        let more = sandbox.delta(["continue", "r", "-w", "work", "-m", "yes"]).output();
        assert_eq!(more.code, if answers == 1 { 101 } else { 0 });
    }
}

#[test]
fn c_16_11_each_process_of_a_run_is_replayed_with_the_model_that_it_asked() {
    let server = ScriptedServer::start(vec![
        Answer::call("ask_human", json!({"prompt": "Really?"})),
        Answer::call("note", json!({"text": "one"})),
        Answer::text("done"),
        Answer::text("more"),
    ]);
    let tools = "  - name: note\n    shell: echo noted ${text}\n";
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("the task", &[]).expect_code(101);
    for (message, model) in [("yes", "second"), ("again", "third")] {
        let fixed = ["continue", "r", "-w", "work", "-m", message, "--model", model];
        sandbox.delta(fixed).output().expect_code(0);
    }
    let models: Vec<_> =
        server.requests().iter().map(|request| request.body["model"].clone()).collect();
    assert_eq!(models, ["test-model", "second", "second", "third"]);
    let ran = replay(&sandbox, &["--mode", "tools", "--into", "fresh"]).normal(&sandbox);
    let equal = "the tools of run r did the same: 4 answers, 2 calls\nthe tools ran in DIR/fresh, as run ID\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, equal), "{}", ran.stderr);
}

#[test]
fn c_16_11_tools_begin_with_the_files_of_the_first_snapshot() {
    let turns = "- call: [{tool: note, args: {text: one}}]\n- say: done\n";
    let tools = "  - name: note\n    description: Keeps it\n    shell: echo ${text} >> ledger; cat ledger\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("work/ledger", "zero\n");
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    let before = snapshot(&sandbox);
    let ran = replay(&sandbox, &["--mode", "tools", "--into", "fresh"]).normal(&sandbox);
    let equal = "the tools of run r did the same: 2 answers, 1 call\nthe tools ran in DIR/fresh, as run ID\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, equal), "{}", ran.stderr);
    assert_eq!(ran.stderr, "Restored the initial files of run r in DIR/fresh\n");
    assert_eq!(sandbox.read("fresh/ledger"), "zero\none\n");
    // Files that are there are never taken away.
    let ran = replay(&sandbox, &["--mode", "tools", "--into", "fresh"]).normal(&sandbox);
    let kept = "Note: the tools run on the existing files in DIR/fresh, not on the initial files of run r\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (3, kept));
    // What no observation tells, the last snapshot does.
    let other = tools.replace("cat ledger", "cat ledger; echo two >> ledger; touch new");
    sandbox.write("agent/agent.yaml", sandbox.read("agent/agent.yaml").replace(tools, &other));
    let ran = replay(&sandbox, &["--mode", "tools", "--into", "again"]).normal(&sandbox);
    let expected = "the tools of run r did not do the same: 2 differences\n\
        first: the file ledger, byte 9\n  recorded: zero\\none\\n\n  now:      zero\\none\\ntwo\\n\n\
        then: the file new\n  recorded: missing\n  now:      a file of 0 bytes, mode 644\n\
        the tools ran in DIR/again, as run ID\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (3, expected), "{}", ran.stderr);
    assert_eq!(snapshot(&sandbox), before);
}

#[test]
fn c_16_11_the_replay_of_a_fork_tells_its_own_account_only() {
    let turns = "- call: [{tool: note, args: {text: one}}]\n\
                 - call: [{tool: note, args: {text: two}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    let fork =
        ["fork", "r", "-w", "work", "--at", "1", "--into", "forked", "--run-id", "f", "-m", "go"];
    sandbox.delta(fork).output().expect_code(0);
    let again = ["replay", "f", "-w", "forked", "--mode", "tools", "--into", "fresh"];
    let ran = sandbox.delta(again).output().normal(&sandbox);
    let equal = "the tools of run f did the same: 3 answers, 2 calls\nthe tools ran in DIR/fresh, as run ID\n";
    let begins = "Restored the initial files of run f in DIR/fresh\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, equal, begins));
}

/// Asks as `answers` say, after a run whose answers were others; gives what the replay printed, and how often it asked.
fn asked_again(answers: Vec<Answer>) -> (Ran, Vec<RecordedRequest>) {
    let first = vec![
        Answer::call("note", json!({"text": "one"})).saying("so"),
        Answer::call("note", json!({"text": "two"})),
        Answer::text("done"),
    ];
    let tools = "  - name: note\n    shell: echo ${text} >> ledger; cat ledger\n    parameters:\n      - {name: text}\n";
    let server = ScriptedServer::start(first);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("the task", &[]).expect_code(0);
    let other = ScriptedServer::start(answers);
    sandbox.agent(&format!("model: other-model\n  base_url: {}", other.url()), tools);
    sandbox.write("agent/system_prompt.md", "You are another test.\n");
    let before = (snapshot(&sandbox), sandbox.read("work/ledger"));
    let ran = replay(&sandbox, &["--mode", "model", "--model", "a-third"]);
    assert_eq!((snapshot(&sandbox), sandbox.read("work/ledger")), before);
    assert_eq!(other.violations(), Vec::<String>::new());
    (ran, other.requests())
}

#[test]
fn c_16_12_another_llm_is_asked_with_the_recorded_results() {
    let (ran, requests) = asked_again(vec![
        Answer::call("note", json!({"text": "one"})).saying("in other words"),
        Answer::call("note", json!({"text": "two"})),
        Answer::text("the end").usage(5, 6),
    ]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(
        ran.stdout.starts_with(
            "the LLM made the same calls as in run r: 3 answers\nasked a-third for 3 answers: "
        ),
        "{}",
        ran.stdout
    );
    let last = &requests[2].body;
    assert_eq!(last["model"], "a-third");
    assert_eq!(
        last["messages"][0]["content"],
        "# Context Block: system_prompt.md\n\nYou are another test.\n"
    );
    // What was said and done then, not what is said now.
    assert_eq!(last["messages"][2]["content"], "so");
    assert_eq!(last["messages"][5]["content"], "one\ntwo\n");
}

#[test]
fn c_16_12_the_first_call_that_differs_ends_it() {
    let (ran, requests) = asked_again(vec![
        Answer::call("note", json!({"text": "one"})),
        Answer::call("note", json!({"text": "three"})),
    ]);
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let expected = "the LLM did not make the same calls as in run r\nfirst: iteration 2, call 1\n  \
        recorded: note {\"text\":\"two\"}\n  now:      note {\"text\":\"three\"}\nasked a-third for 2 answers: ";
    assert!(ran.stdout.starts_with(expected), "{}", ran.stdout);
    assert_eq!(requests.len(), 2);
    let (ran, _) = asked_again(vec![Answer::text("at once")]);
    let expected = "first: iteration 1, call 1\n  recorded: note {\"text\":\"one\"}\n  now:      no call: it ends the run\n";
    assert!(ran.code == 3 && ran.stdout.contains(expected), "{}", ran.stdout);
}

/// They were only "not checked", and the run agreed.
#[test]
fn c_16_10_an_emptied_record_or_output_file_is_found() {
    let sandbox = whole();
    sandbox.unverified("its records are emptied");
    let names = sandbox.files("work/.delta/r/io");
    for (name, expected) in [
        ("invocations/", "bytes with SHA-256 "),
        ("_much.json", "bytes with SHA-256 "),
        ("_much.stdout", "108894 bytes"),
    ] {
        let file = names.iter().find(|file| file.contains(name)).unwrap();
        let path = format!("work/.delta/r/io/{file}");
        let before = fs::read(sandbox.path(&path)).unwrap();
        sandbox.write(&path, "");
        let ran = replay(&sandbox, &[]).expect_code(3);
        let line = format!("io/{file}\n  recorded: an empty file\n  expected: {expected}");
        assert!(ran.stdout.contains(&line), "{name}: {}", ran.stdout);
        sandbox.write(&path, before);
    }
    replay(&sandbox, &[]).expect_code(0);
}
