//! What a terminal shows while an answer is generated and while a tool runs (C-25.4): the screen, as an emulator has it.

use super::DELTA;
use super::output::scripted;
use serde_json::json;
use std::time::Duration;
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// A stream whose first events are `pieces` of the content, and which then stalls or ends.
fn streamed(pieces: &[&str]) -> String {
    let event = |piece: &&str| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": piece}}]}))
    };
    pieces.iter().map(event).collect()
}

const END: &str = "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n";

/// A stream of `pieces` that stays open after them.
fn stalled(pieces: &[&str]) -> Answer {
    let body = streamed(pieces);
    let length = body.len();
    Answer::event_stream(body).stall(length)
}

/// The whole stream of `pieces`.
fn complete(pieces: &[&str]) -> Answer {
    Answer::event_stream(streamed(pieces) + END)
}

fn asking(answers: Vec<Answer>, tools: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    (server, sandbox)
}

/// Whether a line is exactly `line`.
fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|shown| shown == line)
}

fn has_part(lines: &[String], part: &str) -> bool {
    lines.iter().any(|shown| shown.contains(part))
}

#[test]
fn c_25_4_the_text_of_an_answer_appears_before_it_is_complete() {
    let (_server, sandbox) = asking(vec![stalled(&["Hello", ", wor", "ld"])], "");
    let mut terminal = sandbox.run_command("hi", &[]).at_terminal();
    terminal.expect_screen(|lines| has(lines, "• Hello, world"));
    terminal.type_in("\x03");
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 130);
    // What has appeared stays, without the echo of the key, and nothing else of the live output.
    assert!(has(&lines, "• Hello, world") && !has_part(&lines, "thinking"), "{lines:#?}");
    assert!(!sandbox.read("work/.delta/r/journal.jsonl").contains("Hello"));
}

#[test]
fn c_25_4_the_screen_after_a_run_is_the_calm_one() {
    let text = "First *line* with some words that wrap at eighty columns, because there are many of them.\n\n\
                - 日本語のテキストは幅が二倍です。日本語のテキストは幅が二倍です 日本語のテキスト\n- ends\n\n";
    let pieces: Vec<String> = text.chars().map(String::from).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    for (columns, lines) in [(80, 24), (200, 50), (40, 10)] {
        let mut screens = Vec::new();
        for term in ["xterm-256color", "dumb"] {
            let call = Answer::call("say", json!({})).saying("I look first.");
            let (_server, sandbox) =
                asking(vec![call, complete(&pieces)], "  - name: say\n    shell: seq 3\n");
            let command = sandbox.run_command("hi", &["--format", "json"]).env("TERM", term);
            let (code, screen) = command.at_terminal_of(columns, lines).end_with_screen();
            assert_eq!(code, 0);
            let dir = sandbox.path("").display().to_string();
            let stable = screen
                .iter()
                .filter(|line| !line.contains("COMPLETED") && !line.contains(" out, "));
            screens.push(stable.map(|line| line.replace(&dir, "DIR/")).collect::<Vec<_>>());
        }
        let [live, calm] = &screens[..] else { panic!("two screens") };
        // Above, the path of the sandbox may be broken at another place.
        let from_task = |lines: &[String]| {
            lines[lines.iter().position(|l| l == "> hi").unwrap_or(0)..].to_vec()
        };
        assert_eq!(from_task(live), from_task(calm), "{columns}x{lines}");
        assert!(has_part(live, "日本語"), "{live:#?}");
    }
}

#[test]
fn c_25_4_text_that_is_longer_than_the_screen_scrolls() {
    let text: Vec<String> = (1..=60).map(|number| format!("line {number}\n")).collect();
    let pieces: Vec<&str> = text.iter().map(String::as_str).collect();
    let (_server, sandbox) = asking(vec![complete(&pieces).every(Duration::from_millis(2))], "");
    let command = sandbox.run_command("hi", &["--format", "json"]).env("NO_COLOR", "1");
    let ran = command.at_terminal_of(80, 12).end().expect_code(0);
    // Each line is on the screen or above it, once.
    for number in [1, 2, 30, 59, 60] {
        let line = format!("line {number}\n");
        assert_eq!(ran.stderr.matches(&line).count(), 1, "{line:?} in {:?}", ran.stderr);
    }
}

#[test]
fn c_25_4_the_result_is_on_the_screen_once() {
    for (columns, lines, count) in [(80, 40, 5), (80, 12, 30)] {
        let text: Vec<String> = (1..=count).map(|number| format!("line {number}\n")).collect();
        let pieces: Vec<&str> = text.iter().map(String::as_str).collect();
        let (_server, sandbox) = asking(vec![complete(&pieces)], "");
        let command = sandbox.run_command("hi", &["--format", "raw"]).env("NO_COLOR", "1");
        let (code, screen) = command.wholly_at_terminal_of(columns, lines).end_with_screen();
        assert_eq!(code, 0);
        let last = format!("line {count}");
        assert_eq!(screen.last(), Some(&last));
        assert_eq!(screen.iter().filter(|line| line.ends_with(&last)).count(), 1, "{screen:#?}");
        assert!(!has_part(&screen, "•"), "{screen:#?}");
    }
}

#[test]
fn c_25_4_a_broken_off_answer_that_is_tried_again_is_reported() {
    let broken = Answer::event_stream(streamed(&["Half of", " it"]))
        .header("Retry-After", "0")
        .break_off(streamed(&["Half of", " it"]).len());
    let (_server, sandbox) = asking(vec![broken, complete(&["All of it"])], "");
    let command = sandbox.run_command("hi", &["--format", "json"]);
    let (code, lines) = command.at_terminal().end_with_screen();
    assert_eq!(code, 0);
    let position = |text: &str| lines.iter().position(|line| line.starts_with(text));
    let order = ["• Half of it", "! this answer broke off and is ignored: ", "• All of it"];
    let order = order.map(position);
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{lines:#?}");
}

#[test]
fn c_25_6_at_a_terminal_failed_tries_are_one_line() {
    let failed =
        |text: &str, delay: &str| Answer::error(429, text, None).header("Retry-After", delay);
    let answers = vec![failed("one", "0"), failed("two", "0"), failed("three", "600")];
    let (_server, sandbox) = asking(answers, "");
    let mut terminal = sandbox.run_command("hi", &[]).at_terminal();
    terminal.expect_screen(|lines| {
        let last = lines.last().map(String::as_str).unwrap_or_default();
        last.starts_with("! try 4 of 6 in ") && last.ends_with(" s: 429 Too Many Requests: three")
    });
    terminal.expect_screen(|lines| !has_part(lines, ": one") && !has_part(lines, ": two"));
    terminal.type_in("\x03");
    terminal.end().expect_code(130);

    let (_server, sandbox) =
        asking(vec![failed("one", "0"), failed("two", "0"), complete(&["done"])], "");
    let command = sandbox.run_command("hi", &["--format", "json"]);
    let (_, lines) = command.at_terminal().end_with_screen();
    assert!(has(&lines, "! 2 tries failed, the last: 429 Too Many Requests: two"), "{lines:#?}");
    assert!(!has_part(&lines, "Requests: one") && has(&lines, "• done"), "{lines:#?}");
}

/// A tool that prints, and ends when somebody writes into the fifo.
fn printing(print: &str) -> Sandbox {
    let tool = format!("  - name: work\n    shell: \"{print}; cat fifo; exit 3\"\n");
    let sandbox = Sandbox::scripted(DELTA, &tool, "- call: [{tool: work}]\n- say: ok\n");
    sandbox.write("work/x", "");
    let fifo = sandbox.path("work/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    sandbox
}

#[test]
fn c_25_4_the_last_lines_of_a_tool_appear_and_are_replaced_when_it_ends() {
    let sandbox = printing("seq 20; printf '10%%\\\\r20%%' >&2");
    let mut terminal = sandbox.run_command("hi", &["--format", "json"]).at_terminal();
    terminal.expect_screen(|lines| {
        let start = lines.iter().position(|line| line == "→ work").map_or(0, |at| at + 1);
        let expected = ["  │ 17", "  │ 18", "  │ 19", "  │ 20", "  │ 20%"];
        lines[start..].starts_with(&expected.map(str::to_owned)) && has_part(lines, "running")
    });
    std::fs::write(sandbox.path("work/fifo"), "").unwrap();
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    let start = lines.iter().position(|line| line == "→ work").unwrap() + 1;
    assert_eq!(lines[start..start + 2], ["  │ 1", "  │ 2"]);
    let ends = lines.iter().filter(|line| line.ends_with("20%")).count();
    assert!(ends == 1 && !has_part(&lines, "running"), "{lines:#?}");
    assert!(has_part(&lines, "more lines") && has(&lines, "  │ [exit code: 3]"), "{lines:#?}");
}

#[test]
fn c_25_4_verbose_shows_all_of_the_output() {
    let sandbox = printing("seq 20");
    let mut terminal = sandbox.run_command("hi", &["-v", "--format", "json"]).at_terminal();
    terminal.expect_screen(|lines| has(lines, "  │ 1") && has(lines, "  │ 20"));
    std::fs::write(sandbox.path("work/fifo"), "").unwrap();
    let (_, lines) = terminal.end_with_screen();
    assert_eq!(lines.iter().filter(|line| *line == "  │ 7").count(), 1, "{lines:#?}");
}

#[test]
fn c_25_4_reasoning_is_live_with_verbose_only() {
    for (options, is_shown) in
        [(&["-v", "--format", "json"][..], true), (&["--format", "json"], false)]
    {
        let reasoning =
            json!({"choices": [{"index": 0, "delta": {"reasoning_content": "first I think"}}]});
        let body = format!("data: {reasoning}\n\n{}{END}", streamed(&["then I speak"]));
        let (_server, sandbox) = asking(vec![Answer::event_stream(body)], "");
        let (_, lines) = sandbox.run_command("hi", options).at_terminal().end_with_screen();
        let count = |line: &str| lines.iter().filter(|shown| *shown == line).count();
        assert_eq!(
            (count("~ first I think"), count("• then I speak")),
            (usize::from(is_shown), 1),
            "{lines:#?}"
        );
    }
}

#[test]
fn c_25_4_nothing_live_without_a_terminal_that_can_show_it() {
    let answers = || vec![complete(&["so ", "calm"])];
    let run = |options: &[&str], term: &str| {
        let (_server, sandbox) = asking(answers(), "");
        let command = sandbox.run_command("hi", options).env("TERM", term);
        command.at_terminal().end().expect_code(0).stderr
    };
    assert_eq!(run(&["-q", "--format", "json"], "xterm"), "");
    let dumb = run(&["--format", "json"], "dumb");
    assert!(!dumb.contains(['\x1b', '\r']) && dumb.contains("• so calm\n"), "{dumb:?}");
    let (_server, sandbox) = asking(answers(), "");
    let piped = sandbox.run("hi", &[]).expect_code(0).stderr;
    assert!(!piped.contains(['\x1b', '\r']), "{piped:?}");
    assert_eq!(piped.matches("so calm").count(), 1, "{piped:?}");
}

#[test]
fn c_25_4_no_color_means_no_colours_of_live_text_either() {
    let (_server, sandbox) = asking(vec![complete(&["a", "b", "c"])], "");
    let command = sandbox.run_command("hi", &["--format", "json"]).env("NO_COLOR", "1");
    let shown = command.at_terminal().end().expect_code(0).stderr;
    let colour = regex::Regex::new("\x1b\\[[0-9;]*m").unwrap();
    assert!(!colour.is_match(&shown) && shown.contains("• a"), "{shown:?}");
}

#[test]
fn c_15_5_live_text_controls_no_terminal() {
    let hostile = ["a\x1b[", "2Jred\x1b]0;ti", "tle\x07 \u{202e}b", "\x1b[31mc"];
    let (_server, sandbox) = asking(vec![stalled(&hostile)], "");
    let mut terminal = sandbox.run_command("hi", &[]).env("NO_COLOR", "1").at_terminal();
    terminal.expect_screen(|lines| has(lines, "• ared \\u{202e}bc") && has(lines, "> hi"));
    terminal.type_in("\x03");
    let shown = terminal.end().expect_code(130).stderr;
    assert!(!shown.contains("\x1b[31m") && !shown.contains('\x07'), "{shown:?}");
}

#[test]
fn c_15_3_secrets_are_redacted_in_live_text_however_they_are_split() {
    let (_server, sandbox) = asking(vec![stalled(&["the key is sk-se", "cret-12", "345, ok"])], "");
    let command = sandbox.run_command("hi", &[]).env("DELTA_API_KEY", "sk-secret-12345");
    let mut terminal = command.at_terminal();
    terminal.expect_screen(|lines| has(lines, "• the key is [redacted], ok"));
    terminal.type_in("\x03");
    let shown = terminal.end().expect_code(130).stderr;
    assert!(!shown.contains("sk-se"), "{shown:?}");
}

#[test]
fn c_25_4_sensitive_answers_are_hidden_in_live_output() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Code?, sensitive: true}}]\n- call: [{tool: work}]\n- say: ok\n";
    let tool = "  - name: work\n    shell: \"printf 'code hunter2 ok\\\\n'; cat fifo\"\n";
    let sandbox = Sandbox::scripted(DELTA, tool, turns);
    sandbox.write("work/x", "");
    let fifo = sandbox.path("work/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut terminal = sandbox.run_command("hi", &["-i", "--format", "json"]).at_terminal();
    terminal.expect("answer").expect_hidden().type_in("hunter2\n");
    terminal.expect_screen(|lines| has(lines, "  │ code [hidden] ok"));
    std::fs::write(fifo, "").unwrap();
    let shown = terminal.end().expect_code(0).stderr;
    assert!(!shown.contains("hunter2"), "{shown:?}");
}

#[test]
fn c_25_4_sensitive_answers_are_hidden_in_live_text() {
    let question = Answer::call("ask_human", json!({"prompt": "Code?", "sensitive": true}));
    let answers = vec![question, stalled(&["the code is hun", "ter2, ok"])];
    let (_server, sandbox) = asking(answers, "");
    let mut terminal = sandbox.run_command("hi", &["-i"]).at_terminal();
    terminal.expect("answer").expect_hidden().type_in("hunter2\n");
    terminal.expect_screen(|lines| has(lines, "• the code is [hidden], ok"));
    terminal.type_in("\x03");
    let shown = terminal.end().expect_code(130).stderr;
    assert!(!shown.contains("hunter2"), "{shown:?}");
}

#[test]
fn c_25_4_a_resized_terminal_wraps_the_text_anew() {
    let words = "word ".repeat(30);
    let (_server, sandbox) = asking(vec![stalled(&[&words, "end"])], "");
    let mut terminal = sandbox.run_command("hi", &[]).env("NO_COLOR", "1").at_terminal_of(60, 30);
    terminal.expect_screen(|lines| has(lines, format!("• {}", "word ".repeat(11)).trim_end()));
    terminal.resize(120, 30);
    terminal.expect_screen(|lines| {
        lines.iter().filter(|line| line.contains("word")).count() == 2 && has_part(lines, "end")
    });
    terminal.type_in("\x03");
    let (_, lines) = terminal.end_with_screen();
    assert!(has(&lines, "> hi") && has(&lines, "test-agent r"), "{lines:#?}");
}

#[test]
fn c_25_4_a_hook_that_changes_the_answer_changes_the_screen() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let (_server, sandbox) = asking(vec![complete(&["the original"])], "");
    sandbox.write(
        "agent/hooks.yaml",
        "post_llm_response: {command: [jq, -c, '{response: (.response | .choices[0].message.content = \"the changed\")}']}\n",
    );
    let command = sandbox.run_command("hi", &["--format", "json"]);
    let (code, lines) = command.at_terminal().end_with_screen();
    assert_eq!(code, 0, "{lines:#?}");
    assert!(has(&lines, "• the changed"), "{lines:#?}");
}

#[test]
fn c_25_4_the_record_is_the_same_with_and_without_live_output() {
    let answers = || vec![Answer::call("say", json!({})).saying("hm"), complete(&["so ", "be it"])];
    let journal = |live: bool| {
        let (_server, sandbox) = asking(answers(), "  - name: say\n    shell: seq 3\n");
        let command = sandbox.run_command("hi", &["--format", "raw"]);
        let ran = if live { command.at_terminal().end() } else { command.output() };
        assert_eq!(ran.expect_code(0).stdout, "so be it\n");
        let events = sandbox.journal().into_iter();
        let texts = events.map(|event| {
            json!([event["type"], event["content"], event["observation_content"], event["usage"]])
        });
        texts.collect::<Vec<_>>()
    };
    assert_eq!(journal(true), journal(false));
}

#[test]
fn c_25_4_the_first_text_does_not_wait_for_the_next_update() {
    // The stream stays open: an update that waited for more would never come.
    let (_server, sandbox) = asking(vec![stalled(&["now"])], "");
    let mut terminal = sandbox.run_command("hi", &[]).env("NO_COLOR", "1").at_terminal();
    terminal.expect("• now");
    terminal.type_in("\x03");
    terminal.end().expect_code(130);
}

#[test]
fn c_25_4_show_stays_calm_at_a_terminal() {
    let sandbox = scripted("- say: ok\n");
    sandbox.run("hi", &[]).expect_code(0);
    let command = sandbox.delta(["show", "r", "-w", "work"]).env("NO_COLOR", "1");
    let shown = command.wholly_at_terminal().end().expect_code(0).stderr;
    assert!(!shown.contains('\x1b'), "{shown:?}");
}
