//! What a person sees on stderr while a run goes on.

use super::DELTA;
use super::output::scripted;
use super::runs::resume;
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, ScriptedServer};

#[test]
fn c_12_5_plain_lines_where_nobody_watches() {
    let sandbox = scripted(
        "- say: \"Two things:\\n\\n- one\\n- two\"\n  call:\n  - {tool: say, args: {text: \"x\\\\ny\"}}\n  - {tool: fail, args: {}}\n- call: [{tool: finish, args: {result: all done}}]\n",
    );
    let ran = sandbox.run("first line\nsecond line", &["--format", "raw"]).normal(&sandbox);
    let expected = "\
test-agent r
workspace DIR/work
the LLM is a script (script.yaml); everything else is real

> first line
  second line

• Two things:

  - one
  - two
→ say text=x\\ny
  │ x
  │ y
→ fail
  │ 1
  │ 2
  │ … 24 more lines, -v shows all
  │ 27
  │ 28
  │ 29
  │ 30
  │ [exit code: 3]
→ finish result=\"all done\"

COMPLETED after 2 iterations, SPAN
";
    ran.expect(0, "all done\n", expected);
}

/// It was the time of the last process, after the iterations and tokens of all.
#[test]
fn c_25_5_the_last_line_has_the_time_of_all_processes() {
    let sandbox = scripted(
        "- say: \"\"\n  call: [{tool: fail, args: {}}]\n- delay_ms: 1100\n  say: one\n- say: two\n",
    );
    sandbox.run("hi", &[]).expect_code(0);
    let next = ["continue", "r", "-w", "work", "-m", "more", "--format", "json"];
    let ran = sandbox.delta(next).output().expect_code(0);
    let metrics = ran.json()["metrics"].clone();
    let time = |name: &str| metrics[name].as_u64().unwrap();
    let total = time("total_duration_ms");
    assert!(total > 1100 && time("duration_ms") < 1000, "{metrics}");
    let expected =
        format!("COMPLETED after 3 iterations, {}.{}s", total / 1000, total % 1000 / 100);
    assert_eq!(ran.stderr.lines().last(), Some(&*expected), "{}", ran.stderr);
    let show = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    assert_eq!(show.stdout.lines().last(), Some(&*expected), "{}", show.stdout);
}

#[test]
fn c_12_5_quiet_and_verbose() {
    let turns = "- say: thinking aloud\n  call: [{tool: fail, args: {}}]\n- say: ok\n";
    scripted(turns).run("hi", &["-q", "--format", "raw"]).expect(0, "ok\n", "");
    scripted("- error: none\n").run("hi", &["-q", "--format", "raw"]).expect(
        1,
        "",
        "error: none\n",
    );
    let verbose = scripted(turns).run("hi", &["-v"]).expect_code(0).stderr;
    assert!(
        verbose.contains("  │ 29\n  │ 30\n  │ [exit code: 3]\n") && !verbose.contains("more lines"),
        "{verbose}"
    );

    let server = ScriptedServer::start(vec![
        Answer::text("ok").thinking("first I think"),
        Answer::text("ok").thinking("first I think"),
    ]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    let verbose = sandbox.run("hi", &["-v"]).expect_code(0).stderr;
    assert!(verbose.contains("~ first I think\n"), "{verbose}");
    let normal = sandbox
        .delta(["run", "--agent", "agent", "-w", "work", "-m", "hi"])
        .output()
        .expect_code(0)
        .stderr;
    assert!(!normal.contains("first I think"), "{normal}");
}

/// A tab went to the next stop of the terminal, so that a line of 80 columns broke; `10%\r20%` was `10%20%`.
#[test]
fn c_12_5_tabs_and_lines_that_a_tool_writes_again() {
    let tool = "  - name: t\n    shell: |-\n      printf 'a\\tb\\n10%%\\r20%%\\r100%%\\r\\nx\\t%078d\\n' 1\n";
    let sandbox = Sandbox::scripted(DELTA, tool, "- call: [{tool: t}]\n- say: ok\n");
    let (code, lines) =
        sandbox.run_command("hi", &["--format", "json"]).at_terminal_of(80, 24).end_with_screen();
    assert_eq!(code, 0);
    let start = lines.iter().position(|line| line == "→ t").unwrap() + 1;
    let long = format!("  │ x       {}…", "0".repeat(67));
    assert_eq!(lines[start..start + 4], ["  │ a       b", "  │ 100%", &*long, ""]);
    assert_eq!(sandbox.observations()[0].lines().next(), Some("a\tb"), "the LLM gets all of it");
}

const HOSTILE: &str = "a\\e[31mred\\e[0m \\e]0;title\\a\\u009b2Jb\\rc\\bd\\u202e";

#[test]
fn c_15_5_terminal_controls_reach_nobody() {
    let turns = format!(
        "- say: \"{HOSTILE}\"\n  call: [{{tool: say, args: {{text: \"{HOSTILE}\"}}}}, {{tool: \"{HOSTILE}\", args: {{\"{HOSTILE}\": 1}}}}]\n- call: [{{tool: ask_human, args: {{prompt: \"{HOSTILE}\"}}}}]\n"
    );
    let sandbox = scripted(&turns);
    let ran = sandbox.run("hi\x1b[2J", &[]).expect_code(101);
    for (name, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
        let control = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(control), "{name}: {text:?}");
        assert!(text.contains("ared bcd"), "{name}: {text:?}");
    }
    let failed = scripted(&format!("- error: \"{HOSTILE}\"\n")).run("hi", &[]).expect_code(1);
    assert!(
        failed.stdout.contains("ared bcd\n") && failed.stderr.contains("error: ared bcd\n"),
        "{failed:?}"
    );
    let done = scripted(&format!("- say: \"{HOSTILE}\"\n")).run("hi", &[]).expect_code(0);
    assert!(done.stdout.contains("Result:\nared bcd\n"), "{:?}", done.stdout);
}

/// The command at a terminal; what it showed.
fn shown(command: Delta) -> String {
    command.at_terminal().end().expect_code(0).stderr
}

#[test]
fn c_12_5_colour_at_a_terminal_unless_no_color() {
    let sandbox = scripted("- say: hm\n  call: [{tool: say, args: {text: x}}]\n- say: ok\n");
    let coloured = shown(sandbox.run_command("hi", &[]));
    assert!(coloured.contains("\x1b[1mtest-agent\x1b[0m"), "{coloured:?}");
    let sandbox = scripted("- say: hm\n  call: [{tool: say, args: {text: x}}]\n- say: ok\n");
    let plain = shown(sandbox.run_command("hi", &[]).env("NO_COLOR", "1"));
    let sgr = regex::Regex::new("\x1b\\[[0-9;]*m").unwrap();
    assert!(!sgr.is_match(&plain), "{plain:?}");
    assert!(plain.contains("test-agent r\n"), "{plain:?}");
}

#[test]
fn c_12_5_a_spinner_turns_while_the_llm_thinks_and_while_a_tool_runs() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: wait\n    exec: cat ${file}\n",
        "- delay_ms: 300\n  call: [{tool: wait, args: {file: fifo}}]\n- say: ok\n",
    );
    sandbox.write("work/x", "");
    let fifo = sandbox.path("work/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut terminal = sandbox.run_command("hi", &[]).at_terminal();
    terminal.expect("thinking").expect("→ wait").expect("running");
    std::fs::write(fifo, "let go\n").unwrap();
    let ran = terminal.end().expect_code(0);
    assert!(ran.stderr.contains("│ let go"), "{:?}", ran.stderr);
}

#[test]
fn c_12_5_an_echoed_interrupt_leaves_no_spinner_behind() {
    let sandbox = Sandbox::scripted(DELTA, "", "- {say: late, delay_ms: 1000000}");
    let mut terminal = sandbox.run_command("hi", &[]).env("NO_COLOR", "1").at_terminal();
    terminal.expect("thinking 0s").type_in("\x03");
    let seen = terminal.end().expect_code(130).stderr;
    // The line ends with its text: at the terminal's edge the echo would go to the next one, out of reach.
    let (_, echoed) = seen.rsplit_once("thinking 0s").unwrap();
    assert!(echoed.starts_with("^C\r\x1b[2K") || echoed.starts_with("\r\x1b[2K"), "{seen:?}");
}

#[test]
fn c_12_5_prose_is_wrapped_at_the_terminals_width() {
    let sandbox = scripted(&format!(
        "- say: {}\n  call: [{{tool: say, args: {{text: {}}}}}]\n- say: ok\n",
        "word ".repeat(30),
        "x".repeat(300)
    ));
    let seen = shown(sandbox.run_command("hi", &[]).env("NO_COLOR", "1"));
    let visible = regex::Regex::new("\x1b\\[[0-9;?]*[A-Za-z]|.*\r").unwrap();
    let visible = visible.replace_all(&seen, "");
    for line in visible.lines().filter(|line| line.starts_with([' ', '→', '•'])) {
        assert!(line.chars().count() <= 100, "{line:?}");
    }
    assert!(visible.contains("• word word") && visible.contains("\n  word word"), "{visible}");
    assert!(visible.contains(&format!("  │ {}…\n", "x".repeat(95))), "{visible}");
}

#[test]
fn c_12_5_a_result_has_its_call_above_it_also_in_the_process_that_continues() {
    let turns =
        "- call: [{tool: ask_human, args: {prompt: \"Which one?\"}}, {tool: die}]\n- say: done\n";
    let die = "  - name: die\n    shell: kill -9 $PPID; exec sleep 1000\n";
    let sandbox = Sandbox::scripted(DELTA, die, turns);
    sandbox.run("task", &[]).expect_code(101);
    let answered = resume(&sandbox, &["-m", "the blue one"]);
    let shown = "→ ask_human prompt=\"Which one?\"\n  │ the blue one\n→ die\n";
    assert!(answered.stderr.contains(shown), "{}", answered.stderr);
    let settled = resume(&sandbox, &[]).expect_code(0);
    let shown = "→ die\n  │ [the engine stopped during this call; whether it took effect is unknown, and it was \
                 not run again]\n";
    assert!(settled.stderr.contains(shown), "{}", settled.stderr);
}

#[test]
fn c_12_5_a_sentence_of_delta_is_complete_in_a_narrow_terminal() {
    let die = "  - name: die\n    shell: kill -9 $PPID; exec sleep 1000\n";
    let sandbox = Sandbox::scripted(DELTA, die, "- call: [{tool: die}]\n- say: done\n");
    sandbox.run("task", &[]);
    let command = sandbox.delta(["continue", "-w", "work", "--run-id", "r"]);
    let (code, screen) = command.at_terminal_of(60, 40).end_with_screen();
    assert_eq!(code, 0);
    let rows: Vec<&str> = screen.iter().filter_map(|line| line.strip_prefix("  │ ")).collect();
    let sentence = "[the engine stopped during this call; whether it took effect is unknown, and it was not run again]";
    assert_eq!(rows.join(" "), sentence, "{screen:#?}");
}

/// An approval escapes what would change the screen; the line of the call left it out.
#[test]
fn c_15_5_the_line_of_a_call_shows_what_was_approved() {
    let tool = "  - name: t\n    shell: echo ${text}\n";
    let turns =
        r#"- call: [{tool: t, args: {text: "rm\e[8m -rf\rok"}}]"#.to_owned() + "\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tool, &turns);
    let ran = sandbox.run("task", &[]).expect_code(0);
    assert!(ran.stderr.contains(r#"→ t text="rm\u{1b}[8m -rf\u{d}ok""#), "{}", ran.stderr);
}

/// The note about the bytes was among the folded lines, and `-v` was said to show all.
#[test]
fn c_25_4_what_an_observation_leaves_out_is_printed_and_not_promised() {
    let tools = "  - name: big\n    shell: seq 100000\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: big}]\n- say: done\n");
    let ran = sandbox.run("go", &[]).expect_code(0);
    let note = "bytes left out; the whole lies in .delta/r/io/tool_executions/";
    assert!(ran.stderr.contains(" more lines, -v shows them\n"), "{}", ran.stderr);
    let whole = ran.stderr.replace("\n  │ ", " ");
    assert!(whole.contains(note) && whole.contains(" ...]"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("shows all"), "{}", ran.stderr);
}
