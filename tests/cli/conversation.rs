//! The conversation with a run: the text of `continue` (C-11.2), the prompt between its answers and the line below its work
//! (C-33.16 to C-33.20).

use super::DELTA;
use super::ownership::{holding_with, release};
use super::runs::{in_state, snapshot};
use rustix::process::Signal;
use std::fs;
use test_support::pty::Terminal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until_line;

fn continued(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["continue", "-w", "work", "--format", "raw"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

#[test]
fn c_11_2_continue_takes_the_run_and_the_text_as_arguments() {
    for words in [
        &["look at parser.c"] as &[&str],
        &["r", "look at parser.c"],
        &["last", "look at parser.c"],
        &["work/.delta/r", "look at parser.c"],
        &["--run-id", "r", "look at parser.c"],
        &["r", "-m", "look at parser.c"],
        &["-m", "look at parser.c"],
    ] {
        let sandbox = in_state("COMPLETED");
        let ran = continued(&sandbox, words).expect_code(0);
        assert_eq!(ran.stdout, "seen look at parser.c\n", "{words:?}");
    }
    let sandbox = in_state("COMPLETED");
    let piped = sandbox.delta(["continue", "-w", "work", "--format", "raw", "-"]).stdin("more\n");
    assert_eq!(piped.output().expect_code(0).stdout, "seen more\n");
}

#[test]
fn c_11_2_a_word_that_names_no_run_is_not_sent_to_another_run() {
    let sandbox = in_state("COMPLETED");
    let ran = continued(&sandbox, &["yes"]).expect_code(1);
    assert!(ran.stderr.starts_with("error: there is no run yes in "), "{}", ran.stderr);
    let hint = "\n      if it is a message: `delta continue last yes`\n";
    assert!(ran.stderr.ends_with(hint), "{}", ran.stderr);
    assert_eq!(sandbox.events("USER_MESSAGE").len(), 1);
    assert_eq!(continued(&sandbox, &["last", "yes"]).expect_code(0).stdout, "seen yes\n");
    for option in ["--yolo", "-x"] {
        let ran = continued(&sandbox, &["r", option]);
        assert_eq!(ran.code, 2, "an unknown option is not a text: {}", ran.stderr);
    }
    // No run has such an id.
    let sandbox = in_state("COMPLETED");
    assert_eq!(continued(&sandbox, &["done!"]).expect_code(0).stdout, "seen done!\n");
}

#[test]
fn c_33_16_the_command_that_continues_a_completed_run_comes_last_at_a_terminal() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: all done\n");
    let here = ["run", "--agent", "../agent", "-w", ".", "--run-id", "r", "hi"];
    fs::create_dir(sandbox.path("work")).unwrap();
    let ran = sandbox.delta(here).cwd(sandbox.path("work")).wholly_at_terminal().end();
    let shown = ran.expect_code(0).stderr;
    assert!(shown.ends_with("all done\n\nsay more: delta continue\n"), "{shown}");

    let sandbox = Sandbox::scripted(DELTA, "", "- say: all done\n");
    let shown = sandbox.run_command("hi", &[]).wholly_at_terminal().end().expect_code(0).stderr;
    let last =
        format!("say more: delta continue --run-id r -w {}\n", sandbox.path("work").display());
    assert!(shown.ends_with(&last), "{shown}");

    for (options, ci) in [(&["-q"] as &[&str], ""), (&["--format", "json"], ""), (&[], "1")] {
        let sandbox = Sandbox::scripted(DELTA, "", "- say: all done\n");
        let command = sandbox.run_command("hi", options).env("CI", ci);
        let shown = command.wholly_at_terminal().end().expect_code(0).stderr;
        assert!(!shown.contains("say more"), "{shown}");
    }
}

/// `hold` waits until the fifo `gate` is written to, and `note` does not.
const TOOLS: &str = "  - name: hold\n    shell: echo held > held; cat gate\n  \
     - name: note\n    shell: echo noted\n";

fn holding(turns: &str) -> Sandbox {
    holding_with(TOOLS, turns)
}

/// `delta run` without a text at a terminal of 80 columns and 24 lines.
fn conversation(sandbox: &Sandbox, more: &[&str]) -> Terminal {
    let fixed = ["run", "--agent", "agent", "-w", "work", "--run-id", "r"];
    let command = sandbox.delta(fixed.iter().chain(more).copied()).env("NO_COLOR", "1");
    command.wholly_at_terminal_of(80, 24)
}

/// A run with a task at the same terminal, when its tool holds and the line of input is open.
fn held(sandbox: &Sandbox) -> Terminal {
    let command = sandbox.run_command("task", &[]).env("NO_COLOR", "1");
    let mut terminal = command.wholly_at_terminal_of(80, 24);
    until_line(&sandbox.path("work/held"));
    terminal.expect_screen(|lines| is_last(lines, ">"));
    terminal
}

fn is_last(lines: &[String], line: &str) -> bool {
    lines.last().is_some_and(|last| last == line)
}

fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|shown| shown == line)
}

/// The messages after the task, each with where it came from and when it was to be received.
fn received(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.events("USER_MESSAGE").into_iter().skip(1);
    let texts = events.map(|event| {
        let source = &event["source"];
        let words = [&event["content"], &source["by"], &source["when"]];
        words.map(|word| word.as_str().unwrap_or("-").to_owned()).join(" / ")
    });
    texts.collect()
}

#[test]
fn c_33_16_without_a_text_delta_asks_for_one_and_for_the_next() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "",
        "- say: 'one: ${last}'\n- say: 'two: ${last}'\n- error: no more\n",
    );
    let mut terminal = conversation(&sandbox, &[]);
    terminal.expect_screen(|lines| is_last(lines, ">")).type_in("first things\n");
    terminal.expect_screen(|lines| has(lines, "one: first things") && is_last(lines, ">"));
    // A prompt has the screen for itself: nothing of the line that was typed is left.
    terminal.type_in("and second").expect_screen(|lines| is_last(lines, "> and second"));
    terminal.type_in("\n").expect_screen(|lines| {
        let start = lines.iter().position(|line| line == "> and second").unwrap_or(0);
        lines[start..].starts_with(&["> and second".to_owned(), String::new()])
            && lines.iter().filter(|line| line.starts_with("test-agent")).count() == 1
            && has(lines, "two: and second")
            && is_last(lines, ">")
    });
    terminal.type_in("third\n").expect_screen(|lines| {
        lines.iter().any(|line| line.starts_with("Continue with:")) && is_last(lines, ">")
    });
    terminal.type_in("\x04");
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 1, "the code of the last status");
    assert!(!has(&lines, ">"), "{lines:#?}");
    let starts = sandbox.events("ENGINE_START");
    assert_eq!(starts.len(), 3);
    assert!(starts.iter().all(|start| start["process"]["pid"] == starts[0]["process"]["pid"]));
    assert_eq!(received(&sandbox), ["and second / - / -", "third / - / -"]);
}

#[test]
fn c_33_16_an_interrupted_run_is_followed_by_the_prompt_too() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: 'then: ${last}'\n");
    let mut terminal = conversation(&sandbox, &[]);
    terminal.expect_screen(|lines| is_last(lines, ">")).type_in("task\n");
    until_line(&sandbox.path("work/held"));
    terminal.type_in("a draft").expect_screen(|lines| is_last(lines, "> a draft"));
    terminal.type_in("\x03").expect_screen(|lines| {
        lines.iter().any(|line| line.starts_with("Continue with:")) && is_last(lines, "> a draft")
    });
    // The draft became the text of the prompt.
    terminal
        .type_in("\x15go on\n")
        .expect_screen(|lines| has(lines, "then: go on") && is_last(lines, ">"));
    terminal.type_in("left\x03");
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 130);
    assert!(is_last(&lines, "not sent: left"), "{lines:#?}");
    assert_eq!(received(&sandbox), ["go on / - / -"]);
}

#[test]
fn c_33_16_continue_asks_where_a_run_needs_a_text() {
    let sandbox = in_state("COMPLETED");
    let command = || sandbox.delta(["continue", "-w", "work"]).wholly_at_terminal_of(80, 24);
    let before = snapshot(&sandbox);
    let mut terminal = command();
    terminal.expect_screen(|lines| has(lines, "run r is COMPLETED") && lines.len() > 1);
    terminal.type_in("\n");
    let (code, lines) = terminal.end_with_screen();
    assert_eq!((code, lines), (0, vec!["run r is COMPLETED".to_owned()]));
    assert_eq!(snapshot(&sandbox), before);
    let mut terminal = command();
    terminal.expect_screen(|lines| lines.len() > 1).type_in("more\n");
    terminal.expect_screen(|lines| has(lines, "seen more")).type_in("\n");
    assert_eq!(terminal.end().code, 0);
    // A run that was interrupted needs none.
    let sandbox = in_state("INTERRUPTED");
    let mut terminal = sandbox.delta(["continue", "-w", "work"]).wholly_at_terminal_of(80, 24);
    terminal.expect("COMPLETED").expect("seen ").expect("> ").type_in("\x04");
    assert_eq!(terminal.end().code, 0);
    assert_eq!(sandbox.events("USER_MESSAGE").len(), 1);
}

#[test]
fn c_33_17_typed_lines_are_messages_that_are_shown_while_they_wait() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: first\n- say: 'seen ${last}'\n");
    let mut terminal = held(&sandbox);
    terminal.type_in("look at 日本.c\n").expect_screen(|lines| {
        lines.ends_with(&["  waits: look at 日本.c", ">"].map(str::to_owned))
    });
    // A character in two reads, corrected, and for the end.
    terminal.type_in("then tests語\x7f").expect_screen(|lines| is_last(lines, "> then tests"));
    terminal.type_in("\x1b\n").expect_screen(|lines| {
        let rows = ["  waits: look at 日本.c", "  for the end: then tests", ">"];
        lines.ends_with(&rows.map(str::to_owned))
    });
    release(&sandbox);
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    assert!(has(&lines, "seen then tests") && !lines.join("").contains("waits"), "{lines:#?}");
    let messages = ["look at 日本.c / terminal / next", "then tests / terminal / end"];
    assert_eq!(received(&sandbox), messages);
}

// What is printed on stdout at the end was erased, or never printed, although the run continued with a message.
#[test]
fn c_33_17_an_answer_that_a_message_follows_is_shown() {
    for first in [
        "- say: the answer is 42\n",
        "- call: [{tool: finish, args: {result: the answer is 42}}]\n",
        "- call: [{tool: result}]\n",
    ] {
        let tools = format!(
            "{TOOLS}  - name: result\n    exec: echo the answer is 42\n    ends_run: true\n"
        );
        let turns = format!("- call: [{{tool: hold}}]\n{first}- say: 'seen ${{last}}'\n");
        let sandbox = holding_with(&tools, &turns);
        let mut terminal = held(&sandbox);
        terminal.type_in("then tests").expect_screen(|lines| is_last(lines, "> then tests"));
        // The prompt is free before the message is sent.
        terminal.type_in("\x1b\n").expect_screen(|lines| has(lines, "  for the end: then tests"));
        release(&sandbox);
        let (code, lines) = terminal.end_with_screen();
        assert_eq!(code, 0);
        let expected =
            ["• the answer is 42", "", "> then tests", "", "COMPLETED after 3 iterations"];
        let at = lines.iter().position(|line| line == expected[0]).unwrap_or_default();
        assert!(lines[at..at + 4] == expected[..4], "{lines:#?}");
        assert_eq!(lines.join("\n").matches("• the answer is 42").count(), 1, "{lines:#?}");
        assert_eq!(lines.iter().filter(|line| line.contains("seen then tests")).count(), 1);
    }
}

#[test]
fn c_33_17_an_answer_is_shown_also_where_the_run_fails_with_a_message() {
    let sandbox =
        Sandbox::scripted(DELTA, TOOLS, "- say: the answer is 42\n  delay_ms: 1500\n- say: more\n");
    let command = sandbox.run_command("task", &["--max-iterations", "1"]).env("NO_COLOR", "1");
    let mut terminal = command.wholly_at_terminal_of(80, 24);
    terminal.expect_screen(|lines| is_last(lines, ">")).type_in("and more\n");
    terminal.expect_screen(|lines| has(lines, "• the answer is 42"));
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 1, "{lines:#?}");
}

// The thread that reads keys missed the end of the run, and delta waited for it forever.
#[test]
fn c_33_17_a_message_that_meets_the_end_of_the_run_keeps_delta_from_nothing() {
    let sandbox = holding("- say: the result\n");
    let hook = "on_run_end:\n  command: [sh, -c, 'echo held > held; cat gate']\n";
    sandbox.write("agent/hooks.yaml", hook);
    let mut terminal = held(&sandbox);
    terminal.type_in("too late\n").expect_screen(|lines| has(lines, "  sending: too late"));
    release(&sandbox);
    terminal.expect_screen(|lines| has(lines, "the result"));
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    assert!(has(&lines, "not sent: too late"), "{lines:#?}");
}

// The second Enter was dropped, and the two lines became one word.
#[test]
fn c_33_16_lines_that_are_typed_ahead_stay_apart() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: 'one: ${last}'\n- say: 'two: ${last}'\n");
    let mut terminal = conversation(&sandbox, &[]);
    terminal.expect_screen(|lines| is_last(lines, ">")).type_in("first\nsecond\nthird");
    terminal.expect_screen(|lines| has(lines, "one: first"));
    terminal.expect_screen(|lines| is_last(lines, "> second↵third")).type_in("\n");
    terminal.expect_screen(|lines| has(lines, "two: second")).type_in("\x04");
    assert_eq!(terminal.end().code, 0);
    assert_eq!(received(&sandbox), ["second\nthird / - / -"]);
}

#[test]
fn c_33_17_escape_ends_what_is_at_work_for_what_is_typed_or_waits() {
    let sandbox =
        holding("- call: [{tool: hold}]\n- call: [{tool: hold}]\n- say: 'seen ${last}'\n");
    let mut terminal = held(&sandbox);
    fs::remove_file(sandbox.path("work/held")).unwrap();
    terminal.type_in("stop that\x1b").expect_screen(|lines| has(lines, "> stop that"));
    until_line(&sandbox.path("work/held"));
    terminal.type_in("and this\n").expect_screen(|lines| has(lines, "  waits: and this"));
    terminal.type_in("\x1b");
    let ran = terminal.end().expect_code(0);
    assert!(ran.stderr.contains("seen and this"), "{}", ran.stderr);
    let interrupted = "[interrupted: the operator sent a message]";
    assert_eq!(sandbox.observations(), [interrupted; 2]);
    // Sent again to be urgent, it is the same message.
    let messages = ["stop that / terminal / now", "and this / terminal / next"];
    assert_eq!(received(&sandbox), messages);
}

#[test]
fn c_33_17_a_question_gets_no_earlier_key_and_returns_the_draft() {
    let turns = "- call: [{tool: hold}]\n\
                 - call: [{tool: ask_human, args: {prompt: Colour?}}]\n\
                 - call: [{tool: hold}]\n- say: 'seen ${last}'\n";
    let sandbox = holding(turns);
    let mut terminal = held(&sandbox);
    terminal.type_in("a draft").expect_screen(|lines| is_last(lines, "> a draft"));
    release(&sandbox);
    terminal.expect_screen(|lines| is_last(lines, "answer>") && !has(lines, "> a draft"));
    assert!(terminal.is_as_at_a_prompt());
    terminal.type_in("blue\n").expect_screen(|lines| is_last(lines, "> a draft"));
    release(&sandbox);
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    assert!(is_last(&lines, "not sent: a draft"), "{lines:#?}");
    assert_eq!(sandbox.observations(), ["go\n", "blue", "go\n"]);
    assert_eq!(received(&sandbox), [""; 0]);
}

#[test]
fn c_33_17_a_paste_is_one_text_and_a_long_line_scrolls() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: 'seen ${last}'\n");
    let mut terminal = held(&sandbox);
    terminal.type_in("\x1b[200~one\ntwo\nthree\x1b[201~");
    terminal.expect_screen(|lines| is_last(lines, "> one↵two↵three"));
    let long = "words ".repeat(20);
    terminal.type_in(&format!("\n{long}X")).expect_screen(|lines| {
        let rows = ["  waits: one↵two↵three".to_owned(), format!("> …s {}X", "words ".repeat(12))];
        lines.ends_with(&rows)
    });
    terminal.resize(20, 24).expect_screen(|lines| is_last(lines, "> …s words words X"));
    terminal.type_in("\x01").expect_screen(|lines| is_last(lines, "> words words word…"));
    terminal.resize(120, 24).expect_screen(|lines| {
        lines.last().is_some_and(|line| line.len() > 100 && line.starts_with("> words"))
    });
    terminal.type_in("\x0b").expect_screen(|lines| is_last(lines, ">"));
    release(&sandbox);
    terminal.end().expect_code(0);
    assert_eq!(received(&sandbox), ["one\ntwo\nthree / terminal / next"]);
}

#[test]
fn c_33_17_show_follow_has_the_line_too() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: 'seen ${last}'\n");
    let run = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let follow = sandbox.delta(["show", "r", "-w", "work", "--follow"]).env("NO_COLOR", "1");
    let mut terminal = follow.wholly_at_terminal_of(80, 24);
    terminal.expect_screen(|lines| is_last(lines, ">")).type_in("look here\n");
    terminal.expect_screen(|lines| has(lines, "  waits: look here") && is_last(lines, ">"));
    release(&sandbox);
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    assert!(has(&lines, "> look here") && has(&lines, "• seen look here"), "{lines:#?}");
    assert_eq!(received(&sandbox), ["look here / terminal / next"]);
    assert!(run.wait_with_output().unwrap().status.success());
}

#[test]
fn c_33_18_the_modes_of_the_shell_return_however_delta_ends() {
    for end in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
        sandbox.unverified("SIGQUIT ends the engine");
        let mut terminal = held(&sandbox);
        assert!(!terminal.is_as_at_a_prompt());
        terminal.type_in("draft").expect_screen(|lines| is_last(lines, "> draft"));
        terminal.signal(end).wait();
        assert!(terminal.is_as_at_a_prompt(), "{end:?}");
    }
    // A tool that reports the first Ctrl-C later than a burst of signals takes: the second one ends the process at once.
    let deaf = "  - name: hold\n    shell: |\n      trap 'sleep 0.3; echo heard > heard' INT TERM\n      \
                echo held > held; while :; do sleep 0.1; done\n";
    let sandbox = Sandbox::scripted(DELTA, deaf, "- call: [{tool: hold}]\n- say: done\n");
    sandbox.unverified("the second signal ends the engine");
    let mut terminal = held(&sandbox);
    terminal.type_in("\x03").expect("stopping; Ctrl-C again to stop at once");
    until_line(&sandbox.path("work/heard"));
    terminal.type_in("\x03").wait();
    assert!(terminal.is_as_at_a_prompt());
}

/// A shell at the same terminal, which runs `script`; `$DELTA` is delta with a run of the sandbox.
fn shell(sandbox: &Sandbox, script: &str) -> Terminal {
    let delta = format!("{DELTA} run --agent agent -w work --run-id r -m task");
    let shell = Sandbox::new("bash");
    let command = shell.delta(["-c", &script.replace("DELTA", &delta)]).cwd(sandbox.path(""));
    let command = command.env("HOME", sandbox.path("home")).env("NO_COLOR", "1");
    command.wholly_at_terminal_of(80, 24)
}

#[test]
fn c_33_18_what_is_pending_when_delta_starts_is_for_the_shell() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let mut terminal = shell(&sandbox, "read x; DELTA; read y; echo \"shell got $y\"");
    terminal.type_in("go\nfor the shell\n");
    until_line(&sandbox.path("work/held"));
    terminal.expect_screen(|lines| lines.iter().any(|line| line.contains("running")));
    terminal.expect_screen(|lines| lines.last().is_some_and(|line| line.contains("running")));
    release(&sandbox);
    let (_, lines) = terminal.end_with_screen();
    assert!(is_last(&lines, "shell got for the shell"), "{lines:#?}");
    assert_eq!(received(&sandbox), [""; 0]);
}

#[test]
fn c_33_18_nothing_that_was_typed_reaches_the_shell() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let mut terminal = shell(&sandbox, "DELTA; read -t 0 && echo LEAKED; echo over");
    until_line(&sandbox.path("work/held"));
    terminal.expect_screen(|lines| is_last(lines, ">"));
    terminal.type_in("rm -rf x").expect_screen(|lines| is_last(lines, "> rm -rf x"));
    release(&sandbox);
    let (_, lines) = terminal.end_with_screen();
    assert!(is_last(&lines, "over") && has(&lines, "not sent: rm -rf x"), "{lines:#?}");
    assert!(!has(&lines, "LEAKED"), "{lines:#?}");
}

#[test]
fn c_33_18_a_run_that_was_stopped_sets_its_modes_again() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let script = "set -m; DELTA; stty sane; echo stopped; read x; echo back; fg > /dev/null";
    let mut terminal = shell(&sandbox, script);
    until_line(&sandbox.path("work/held"));
    terminal.expect_screen(|lines| is_last(lines, ">"));
    terminal.type_in("abc").expect_screen(|lines| is_last(lines, "> abc"));
    terminal.type_in("\x1a").expect_screen(|lines| is_last(lines, "stopped"));
    assert!(terminal.is_as_at_a_prompt());
    terminal.type_in("\n").expect_screen(|lines| is_last(lines, "> abc"));
    terminal.type_in("def").expect_screen(|lines| is_last(lines, "> abcdef"));
    terminal.expect_screen(|lines| has(lines, "stopped") && has(lines, "back"));
    release(&sandbox);
    let (_, lines) = terminal.end_with_screen();
    assert!(has(&lines, "not sent: abcdef"), "{lines:#?}");
}

#[test]
fn c_33_19_elsewhere_there_is_neither_a_line_nor_a_prompt() {
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r"];
    for (more, env) in [
        (&["-q"] as &[&str], ("CI", "")),
        (&["--no-interactive"], ("CI", "")),
        (&["--format", "json"], ("CI", "")),
        (&[], ("CI", "1")),
        (&["-i"], ("CI", "1")),
        (&[], ("TERM", "dumb")),
    ] {
        let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
        let command = |words: &[&str]| {
            sandbox.delta(run.iter().chain(more).chain(words).copied()).env(env.0, env.1)
        };
        let ran = command(&[]).wholly_at_terminal().end();
        assert_eq!(ran.code, 2, "{more:?} {env:?} {}", ran.stderr);
        assert!(ran.stderr.contains("the task is missing"), "{}", ran.stderr);
        let shown = command(&["task"]).wholly_at_terminal().end().expect_code(0).stderr;
        assert!(!shown.contains("\x1b[?2004h"), "{shown:?}");
    }
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    // stdout is a pipe.
    let ran = sandbox.delta(run).at_terminal().end();
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let shown = sandbox.run_command("task", &[]).at_terminal().end().expect_code(0).stderr;
    assert!(!shown.contains("\x1b[?2004h"), "{shown:?}");
}

#[test]
fn c_33_20_a_habit_is_not_sent_and_gets_what_delta_has() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: 'seen ${last}'\n");
    let mut terminal = held(&sandbox);
    terminal.type_in("/clear\n").expect_screen(|lines| {
        lines.iter().any(|line| line.starts_with("! /clear was not sent: `delta run`"))
            && is_last(lines, ">")
    });
    terminal.type_in(" /clear\n").expect_screen(|lines| has(lines, "  waits:  /clear"));
    release(&sandbox);
    terminal.end().expect_code(0);
    assert_eq!(received(&sandbox), [" /clear / terminal / next"]);

    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let mut terminal = conversation(&sandbox, &[]);
    terminal.expect_screen(|lines| is_last(lines, ">")).type_in("/help\n");
    terminal.expect_screen(|lines| lines.iter().any(|line| line.starts_with("! /help was not")));
    terminal.type_in("\n");
    assert_eq!(terminal.end().code, 0);
    assert!(!sandbox.path("work").exists());
}
