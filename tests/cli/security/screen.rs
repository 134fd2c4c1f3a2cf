//! What reaches a person's screen is what there is (C-15.5): bidirectional overrides and invisible characters hid text, and
//! one long line in a journal took all memory.

use crate::DELTA;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Command;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// Characters that reorder text or are not seen.
const MISLEADING: [char; 14] = [
    '\u{202a}',
    '\u{202e}',
    '\u{2066}',
    '\u{2069}',
    '\u{200e}',
    '\u{200f}',
    '\u{61c}',
    '\u{200b}',
    '\u{200d}',
    '\u{feff}',
    '\u{ad}',
    '\u{2060}',
    '\u{e0041}',
    '\u{e007f}',
];

fn misleading_text() -> String {
    MISLEADING.iter().map(|c| format!("x{c}y")).collect()
}

fn is_misleading(text: &str) -> bool {
    text.contains(MISLEADING)
}

#[test]
fn c_15_5_text_that_misleads_is_shown_as_escapes_at_a_terminal_in_every_format() {
    let text = misleading_text();
    let answer = text.clone();
    let server = ScriptedServer::for_anything(move |_: &RecordedRequest| Answer::text(&answer));
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    for format in ["text", "raw", "json", "jsonl"] {
        let args = ["run", "--agent", "agent", "-w", "work", "-q", "-m", "go", "--format", format];
        let shown = sandbox.delta(args).wholly_at_terminal().end().expect_code(0).stderr;
        assert!(!is_misleading(&shown), "{format}: {shown:?}");
        if format.starts_with("json") {
            let line = shown.lines().last().unwrap();
            let result: Value = serde_json::from_str(line).unwrap();
            assert_eq!(result["result"], text.as_str(), "{format}");
        } else {
            assert!(shown.contains("x\\u{202e}y") && shown.contains("x\\u{e0041}y"), "{shown:?}");
        }
    }
    // A program gets every byte.
    let raw = ["run", "--agent", "agent", "-w", "work", "-q", "-m", "go", "--format", "raw"];
    assert_eq!(sandbox.delta(raw).output().expect_code(0).stdout, format!("{text}\n"));
    let json = ["run", "--agent", "agent", "-w", "work", "-q", "-m", "go", "--format", "json"];
    assert!(is_misleading(&sandbox.delta(json).output().expect_code(0).stdout));
}

#[test]
fn c_15_5_reading_commands_show_escapes_too() {
    let text = misleading_text();
    let answer = text.clone();
    let server = ScriptedServer::for_anything(move |_: &RecordedRequest| Answer::text(&answer));
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    sandbox.run(&text, &["-q"]).expect_code(0);
    let commands: [&[&str]; 6] = [
        &["show", "r"],
        &["show", "r", "--format", "json"],
        &["list-runs"],
        &["list-runs", "--format", "json"],
        &["export", "r", "--to", "markdown"],
        &["export", "r", "--to", "openai"],
    ];
    for command in commands {
        let args = command.iter().chain(&["-w", "work"]).copied();
        let shown = sandbox.delta(args).wholly_at_terminal().end().expect_code(0).stderr;
        assert!(!is_misleading(&shown), "{command:?}: {shown:?}");
        assert!(shown.contains("202e"), "{command:?}: {shown:?}");
    }
}

/// A usage error quotes arguments, which can be the names of files that came with a repository.
#[test]
fn c_15_5_errors_and_commands_that_quote_a_name_show_escapes() {
    let name = "q\u{1b}]52;c;QUJD\u{7}\u{202e}z\u{9b}2J";
    let is_safe = |shown: &str| {
        !shown.contains(['\u{7}', '\u{202e}', '\u{9b}']) && !shown.contains("\u{1b}]")
    };
    let asks = "- call: [{tool: ask_human, args: {prompt: 'Which?'}}]\n- say: done";
    let sandbox = Sandbox::scripted(DELTA, "", asks);
    let unknown_option = format!("--{name}");
    let commands: [&[&str]; 5] = [
        &[name],
        &["show", name],
        &["continue", "--run-id", name, "-m", "x"],
        &["run", "-m", "x", name],
        &["run", &unknown_option],
    ];
    for command in commands {
        let shown = sandbox.delta(command.iter().copied()).wholly_at_terminal().end().stderr;
        assert!(is_safe(&shown) && shown.contains("\\u{202e}"), "{command:?}: {shown:?}");
    }
    let run = ["run", "--agent", "agent", "--run-id", "r", "-m", "go", "-w", name];
    sandbox.delta(run).output().expect_code(101);
    let show = ["show", "r", "-w", name];
    let shown = sandbox.delta(show).wholly_at_terminal().end().expect_code(0).stderr;
    assert!(shown.contains("answer with: delta continue"), "{shown:?}");
    assert!(is_safe(&shown), "{shown:?}");
}

#[test]
fn c_15_5_a_journal_line_of_any_length_costs_a_list_of_runs_no_memory() {
    const LINE_BYTES: usize = 300 << 20;
    const LIMIT_KIB: usize = 200 << 10;
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox.unverified("its journal has a line of 300 MiB");
    let path = sandbox.path("work/.delta/r/journal.jsonl");
    let mut journal = fs::File::options().append(true).open(&path).unwrap();
    let head = "{\"type\":\"USER_MESSAGE\",\"seq\":5,\"timestamp\":\"2025-10-13T14:35:22.123Z\",\"content\":\"";
    journal.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..LINE_BYTES / piece.len() {
        journal.write_all(&piece).unwrap();
    }
    journal.write_all(b"\"}\n").unwrap();
    let script = format!("ulimit -v {LIMIT_KIB}; exec \"$0\" list-runs -w work");
    let output = Command::new("sh")
        .args(["-c", &script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .output();
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("COMPLETED") && stdout.contains("\"task\""), "{stdout}");
}
