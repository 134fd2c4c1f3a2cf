//! `delta replay --mode tools`: what counts as the same, and what is not repeated (C-16.11).

use super::DELTA;
use serde_json::{Value, json};
use std::fs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

const TOOLS: &str =
    "  - {name: sh, exec: 'sh -c ${c}'}\n  - {name: made, exec: 'sh -c ${c}', output: file}\n";

fn turns(tool: &str, scripts: &[&str]) -> String {
    let turn =
        |script: &&str| format!("- call: [{{tool: {tool}, args: {}}}]\n", json!({"c": script}));
    scripts.iter().map(turn).collect::<String>() + "- say: 'done ${last}'\n- say: more\n"
}

fn replay_tools(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["replay", "r", "-w", "work", "--mode", "tools"];
    sandbox.delta(fixed.iter().chain(more).copied()).output().normal(sandbox)
}

fn expect_same(sandbox: &Sandbox, counts: &str) {
    let ran = replay_tools(sandbox, &["--into", "fresh"]);
    let first = format!("the tools of run r did the same: {counts}");
    assert_eq!((ran.code, ran.stdout.lines().next()), (0, Some(&*first)), "{}", ran.stdout);
}

#[test]
fn c_16_11_the_paths_of_outputs_and_workspaces_do_not_count() {
    for (tool, script) in [
        ("sh", "printf 'a\\0b'"),
        ("sh", "seq 30000"),
        ("made", "echo kept"),
        ("sh", "pwd; echo \"$PWD/x\" > where; cat where"),
    ] {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(tool, &[script]));
        sandbox.run("go", &["--snapshots"]).expect_code(0);
        expect_same(&sandbox, "2 answers, 1 call");
    }
    // The same file at another place is another observation.
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns("sh", &["pwd; ls"]));
    sandbox.write("work/there", "");
    sandbox.run("go", &[]).expect_code(0);
    replay_tools(&sandbox, &["--into", "fresh"]).expect_code(3);
}

#[test]
fn c_16_11_another_exit_code_is_named() {
    let script = "test ! -e seen; code=$?; touch seen; exit $code";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns("sh", &[script]));
    sandbox.run("go", &[]).expect_code(0);
    sandbox.write("fresh/seen", "");
    let ran = replay_tools(&sandbox, &["--into", "fresh", "--format", "json"]).expect_code(3);
    let differences = ran.json()["differences"].clone();
    let codes = differences.as_array().unwrap().iter().find(|difference| {
        difference["what"].as_str().unwrap().starts_with("the exit code of call ")
    });
    let codes = ["recorded", "now"].map(|key| codes.unwrap()[key].clone());
    assert_eq!(codes, ["0", "1"]);
}

#[test]
fn c_16_11_a_message_after_a_process_without_an_answer_is_repeated() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns("sh", &["echo one"]));
    let yaml = sandbox.read("agent/context.yaml");
    sandbox.write("agent/context.yaml", format!("{yaml}  - {{type: file, path: ./needed.md}}\n"));
    sandbox.run("go", &[]).expect_code(1);
    sandbox.write("agent/needed.md", "here\n");
    sandbox.delta(["continue", "r", "-w", "work", "-m", "hint"]).output().expect_code(0);
    expect_same(&sandbox, "2 answers, 1 call");
    let replayed = sandbox.files("fresh/.delta");
    let journal = replayed.iter().find(|file| file.ends_with("journal.jsonl")).unwrap();
    let messages = sandbox.read(&format!("fresh/.delta/{journal}"));
    assert_eq!(messages.matches("\"type\":\"USER_MESSAGE\"").count(), 2, "{messages}");
}

#[test]
fn c_16_11_a_replay_ends_before_a_rollback_and_says_so() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns("sh", &["echo 1 >> x", "echo 2 >> x"]));
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    sandbox.delta(["rollback", "r", "-w", "work", "--to", "1"]).output().expect_code(0);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "again"]).output().expect_code(0);
    let expected = "the tools of run r did the same: 3 answers, 2 calls\n\
        not checked: what follows the rollback to iteration 1: a replay does not repeat it\n\
        the tools ran in DIR/fresh, as run ID\n";
    let ran = replay_tools(&sandbox, &["--into", "fresh"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, expected), "{}", ran.stderr);
    assert_eq!(sandbox.read("fresh/x"), "1\n2\n");
}

#[test]
fn c_16_11_the_call_of_a_killed_engine_is_not_compared() {
    let turns = "- call: [{tool: die}]\n- say: 'seen ${last}'\n";
    let tools = "  - {name: die, exec: \"sh -c '. \\\"$DELTA_AGENT_HOME/do\\\"'\"}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("agent/do", "kill -9 $PPID; exec sleep 1000\n");
    sandbox.run("go", &["--snapshots"]).expect_code(-1);
    sandbox.delta(["continue", "r", "-w", "work"]).output().expect_code(0);
    sandbox.write("agent/do", "echo alive\n");
    let ran = replay_tools(&sandbox, &["--into", "fresh", "--format", "json"]);
    let seen: Value = ran.expect_code(0).json();
    let reasons = [
        "iteration 1, the result of call call_1_1 (die): the engine died or was stopped before it ended",
        "the final files: the engine died or was stopped during a call",
    ];
    assert_eq!((&seen["equal"], &seen["not_checked"]), (&json!(true), &json!(reasons)));
}

/// Both texts had no line ends, and looked alike.
#[test]
fn c_16_11_an_excerpt_has_every_character_in_which_the_texts_differ() {
    let sandbox =
        Sandbox::scripted(DELTA, TOOLS, &turns("sh", &["cat \"$DELTA_AGENT_HOME/text\""]));
    let differing = |then: &str, now: &str| {
        let _ = fs::remove_dir_all(sandbox.path("work"));
        sandbox.write("agent/text", then);
        sandbox.run("go", &[]).expect_code(0);
        sandbox.write("agent/text", now);
        let text = replay_tools(&sandbox, &[]).expect_code(3).stdout;
        let json = replay_tools(&sandbox, &["--format", "json"]).expect_code(3).json();
        let first = &json["differences"][0];
        assert_eq!((&first["recorded"], &first["now"]), (&json!(then), &json!(now)));
        text.lines().skip(2).take(2).map(|line| line[12..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(differing("aaa\nbbb\nc", "aaa\tbbb\nc"), ["aaa\\nbbb\\nc", "aaa\\tbbb\\nc"]);
    assert_eq!(differing("a\u{1b}[1mb", "ab"), ["a\\u{1b}[1mb", "ab"]);
    assert_eq!(differing("a\u{202e}b", "a b"), ["a\\u{202e}b", "a b"]);
    assert_eq!(differing("a\nb", "a\\nb"), ["a\\nb", "a\\\\nb"]);
}

#[test]
fn c_16_11_a_run_whose_first_snapshot_was_deleted_is_replayed_without_it() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns("sh", &["echo 1 > x"]));
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    fs::remove_dir_all(sandbox.path("work/.delta/r/snapshots")).unwrap();
    sandbox.delta(["continue", "r", "-w", "work", "-m", "on"]).output().expect_code(0);
    let ran = replay_tools(&sandbox, &["--into", "fresh"]).expect_code(0);
    let note = "Note: DIR/fresh is empty: the snapshot of the initial files of run r was deleted\n";
    assert_eq!(ran.stderr, note);
    for command in [&["diff", "r", "0", "1"][..], &["rollback", "r", "--to", "0"]] {
        let args = command.iter().chain(&["-w", "work"]).copied();
        let ran = sandbox.delta(args).output();
        let message = "error: the snapshot of the state before the run was deleted\n\
                       help: the first state that the run still has is 1\n";
        assert_eq!(ran.stderr, message, "{command:?}");
    }
    sandbox.delta(["diff", "r", "1", "now", "-w", "work"]).output().expect(0, "", "");
}

/// The tool ran in the replay, with `[redacted]` in the place of the key.
#[test]
fn c_15_3_a_call_with_a_key_is_not_run_in_a_replay_either() {
    let key = "sk-operator/0123456789";
    let server = ScriptedServer::start(vec![
        Answer::calls(vec![("sh", json!({"c": format!("echo {key} > seen")}))]),
        Answer::text("done"),
    ]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.run_command("go", &[]).env("DELTA_API_KEY", key).output().expect_code(0);
    expect_same(&sandbox, "2 answers, 1 call");
    assert!(!sandbox.path("fresh/seen").exists());
}
