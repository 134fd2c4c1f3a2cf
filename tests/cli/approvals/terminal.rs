//! A person at a terminal is shown a call and decides.

use super::{approvals, notes, noting, resume};
use crate::DELTA;
use serde_json::json;
use test_support::sandbox::{Delta, Sandbox};

const KEYS: &str = "y yes, n no, a yes to every call of note in this process, v view> ";

fn interactive(sandbox: &Sandbox) -> Delta {
    sandbox.run_command("go", &["-i", "--format", "raw"])
}

#[test]
fn c_21_2_yes_and_no_and_the_reason() {
    let sandbox = noting("ask", &["a", "b", "c"]);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal
        .expect(" approve ")
        .expect("    text  a")
        .expect("    $ sh -c 'echo \"$1\" >> notes; echo noted \"$1\"' -- a")
        .expect(KEYS);
    assert!(notes(&sandbox).is_empty());
    for other in ["", "maybe", "yess"] {
        terminal.type_in(&format!("{other}\n"));
        terminal.expect("expected `y`, `n`, `a` or `v`, and Enter").expect(KEYS);
    }
    terminal.type_in("y\n").expect("text  b").expect(KEYS).type_in("n\n");
    terminal.expect("reason, or Enter for none> ").type_in("not b, please\n");
    terminal.expect("text  c").expect(KEYS).type_in("n\n").expect("none> ").type_in("\n");
    terminal.end().expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
    assert_eq!(
        sandbox.observations(),
        [
            "noted a\n",
            "Denied by the operator; the tool was not run.\nnot b, please",
            "Denied by the operator; the tool was not run."
        ]
    );
    assert_eq!(approvals(&sandbox), [json!(["terminal", null])]);
    let decision = &sandbox.events("APPROVAL_DECISION")[0];
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["approval"]["at"], decision["timestamp"]);
    assert!(!sandbox.path("work/.delta/r/interaction").exists(), "no files are used");
}

#[test]
fn c_21_2_yes_to_every_call_of_a_tool_holds_for_the_process() {
    let turns = "- call: [{tool: note, args: {text: a}}, {tool: note, args: {text: b}}]\n- say: one\n- call: [{tool: note, args: {text: c}}]\n- say: two\n";
    let sandbox = Sandbox::scripted(DELTA, &super::TOOLS.replace("APPROVE", "ask"), turns);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(KEYS).type_in("a\n");
    let ran = terminal.end().expect_code(0);
    assert_eq!(ran.stderr.matches(" approve ").count(), 1, "{}", ran.stderr);
    assert_eq!(notes(&sandbox), ["a", "b"]);
    let decision = &sandbox.events("APPROVAL_DECISION")[0];
    assert_eq!(decision["for_tool"], true);
    for request in sandbox.events("ACTION_REQUEST") {
        assert_eq!(request["approval"], json!({"by": "terminal", "at": decision["timestamp"]}));
    }
    resume(&sandbox, &["-m", "more"]).expect_code(101);
}

#[test]
fn c_21_2_view_shows_the_change_of_a_file() {
    let put = |args: &str| {
        let turns = format!("- call: [{{tool: put, args: {args}}}]\n- say: done\n");
        Sandbox::scripted(DELTA, &super::TOOLS.replace("APPROVE", "ask"), &turns)
    };
    let keys = "y yes, n no, a yes to every call of put in this process, v view> ";
    let sandbox = put("{path: list, content: \"milk\\nbread\\n\"}");
    sandbox.write("work/list", "milk\nbutter\n");
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(keys).type_in("v\n");
    terminal
        .expect("--- a/list")
        .expect("+++ b/list")
        .expect(" milk")
        .expect("-butter")
        .expect("+bread")
        .expect("$ tee list")
        .expect(keys)
        .type_in("y\n");
    terminal.end().expect_code(0);
    assert_eq!(sandbox.read("work/list"), "milk\nbread\n");

    let shown = |args: &str, expected: &str| {
        let sandbox = put(args);
        sandbox.write("work/list", "milk\n");
        sandbox.write("outside", "secret\n");
        std::os::unix::fs::symlink("../outside", sandbox.path("work/link")).unwrap();
        let mut terminal = interactive(&sandbox).at_terminal();
        terminal.expect(keys).type_in("v\n").expect(expected).expect(keys).type_in("n\n");
        terminal.expect("none> ").type_in("\n");
        let ran = terminal.end().expect_code(0);
        assert!(!ran.stderr.contains("secret"), "{}", ran.stderr);
    };
    shown("{path: new, content: \"milk\\n\"}", "--- /dev/null");
    shown("{path: list, content: \"milk\\n\"}", "list does not change");
    shown("{path: ../outside, content: x}", "no preview: could not read ../outside: ");
    shown("{path: link, content: x}", "no preview: could not read link: ");
}

#[test]
fn c_21_2_view_shows_a_replacement_and_whole_values() {
    let tools =
        "  - name: edit\n    shell: 'true'\n    parameters: [{name: path, inject_as: argument}]\n";
    let tools = tools.replace("    shell: 'true'\n    parameters: [{name: path, inject_as: argument}]\n", "    exec: \"true ${path} ${old} ${new}\"\n    approve: ask\n    preview: {path: path, content: new, replaces: old}\n");
    let keys = "y yes, n no, a yes to every call of edit in this process, v view> ";
    let turns = "- call: [{tool: edit, args: {path: f, old: two, new: '2'}}, {tool: edit, args: {path: f, old: o, new: '0'}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    sandbox.write("work/f", "one two three\n");
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(keys).type_in("v\n").expect("-one two three").expect("+one 2 three");
    terminal.expect(keys).type_in("y\n");
    terminal.expect(keys).type_in("v\n").expect("no preview: f has the text of `old` 2 times");
    terminal.expect(keys).type_in("y\n");
    terminal.end().expect_code(0);

    let long = "x".repeat(300);
    let sandbox = noting("ask", &[&long]);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect("… cut; v shows all of it").expect(KEYS).type_in("v\n");
    terminal.expect("text:").expect(&long[..90]).expect(KEYS).type_in("y\n");
    terminal.end().expect_code(0);
}

#[test]
fn c_21_2_a_call_cannot_disguise_itself() {
    let sandbox = noting("ask", &[]);
    sandbox.write(
        "agent/script.yaml",
        "turns:\n- call: [{tool: note, args: {text: \"rm\\e[2K\\rls \\u202e\"}}]\n- say: done\n",
    );
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(r"rm\u{1b}[2K\u{d}ls \u{202e}").expect(r"-- $'rm\x1b[2K\rls \U0000202e'");
    terminal.expect(KEYS).type_in("n\n").expect("none> ").type_in("\n");
    terminal.end().expect_code(0);
}

#[test]
fn c_21_2_the_end_of_input_leaves_the_run_waiting() {
    let sandbox = noting("ask", &["a"]);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(KEYS).type_in("\x04");
    terminal.end().expect_code(101);
    assert_eq!(sandbox.metadata()["status"], "WAITING_FOR_INPUT");
    assert!(sandbox.path("work/.delta/r/interaction/request.json").exists());
    // Asked again at a terminal, and not recorded again.
    let again = ["continue", "r", "-w", "work", "-i"];
    let mut terminal = sandbox.delta(again).at_terminal();
    terminal.expect(" approve ").expect(KEYS).type_in("y\n");
    terminal.end().expect_code(0);
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 1);
    assert_eq!(notes(&sandbox), ["a"]);
    assert!(!sandbox.path("work/.delta/r/interaction").exists());
}

#[test]
fn c_21_2_an_interrupt_keeps_the_question() {
    let sandbox = noting("ask", &["a"]);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(KEYS).type_in("\x03");
    let ran = terminal.end().expect_code(130).normal(&sandbox);
    assert!(
        ran.stderr.ends_with(
            "The agent still waits for your approval:\n  delta approve r -w DIR/work --request-id REQUEST\n  \
             delta deny r -w DIR/work --request-id REQUEST -m REASON\n  \
             delta continue --run-id r -w DIR/work -i\n"
        ),
        "{}",
        ran.stderr
    );
    assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
    let ran = resume(&sandbox, &[]).expect_code(101);
    assert!(ran.stderr.contains("? approve note\n"), "{}", ran.stderr);
    resume(&sandbox, &["-m", "y"]).expect_code(0);
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 1);
}

/// The end of the terminal was taken for a failure of the run, and the question was lost.
#[test]
fn c_13_5_a_terminal_that_is_closed_keeps_the_question() {
    let sandbox = noting("ask", &["a"]);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect(KEYS);
    assert_eq!(terminal.hang_up(), 130);
    assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
    assert!(sandbox.events("ERROR").is_empty());
    let ran = resume(&sandbox, &[]).expect_code(101);
    assert!(ran.stderr.contains("? approve note\n"), "{}", ran.stderr);
    resume(&sandbox, &["-m", "y"]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
}

#[test]
fn c_21_2_where_a_person_can_be_asked_the_hint_names_the_option_that_asks() {
    let sandbox = noting("ask", &["a"]);
    let ran =
        sandbox.run_command("go", &["--format", "raw", "--no-interactive"]).at_terminal().end();
    let ran = ran.expect_code(101).normal(&sandbox);
    let end = "delta continue --run-id r -w DIR/work -i   # decide here, call by call\n";
    assert!(ran.stderr.ends_with(end), "{}", ran.stderr);
}

#[test]
fn c_21_2_what_was_typed_before_the_question_does_not_answer_it() {
    let tools = super::TOOLS.replace("APPROVE", "ask");
    let tools = format!(
        "{tools}  - name: slow\n    shell: \"echo; until test -e typed; do sleep 0.05; done\"\n"
    );
    let turns = "- call: [{tool: slow}, {tool: note, args: {text: a}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    let mut terminal = interactive(&sandbox).at_terminal();
    terminal.expect("→ slow").type_in("y\n").expect("y");
    sandbox.write("work/typed", "");
    terminal.expect(" approve ").expect(KEYS).type_in("n\n").expect("none> ").type_in("\n");
    terminal.end().expect_code(0);
    assert!(notes(&sandbox).is_empty());
}

/// A run that may be asked about, in a terminal for stdin and stderr.
fn begun(sandbox: &Sandbox, more: &[&str]) -> Delta {
    sandbox.run_command("go", &[&["--format", "raw"], more].concat())
}

#[test]
fn c_10_1_a_person_at_a_terminal_is_asked_without_an_option() {
    let sandbox = noting("ask", &["a"]);
    let mut terminal = begun(&sandbox, &[]).at_terminal();
    terminal.expect(KEYS).type_in("y\n");
    terminal.end().expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
    // The last of the two options counts.
    let sandbox = noting("ask", &["a"]);
    let mut terminal = begun(&sandbox, &["--no-interactive", "-i"]).at_terminal();
    terminal.expect(KEYS).type_in("y\n");
    terminal.end().expect_code(0);
}

#[test]
fn c_10_1_a_run_that_nobody_watches_waits() {
    for more in [&["--no-interactive"][..], &["-q"], &["-i", "--no-interactive"]] {
        let sandbox = noting("ask", &["a"]);
        begun(&sandbox, more).at_terminal().end().expect_code(101);
    }
    let sandbox = noting("ask", &["a"]);
    begun(&sandbox, &[]).env("CI", "true").at_terminal().end().expect_code(101);
    let sandbox = noting("ask", &["a"]);
    sandbox.write("input", "");
    begun(&sandbox, &[]).at_terminal_reading(&sandbox.path("input")).end().expect_code(101);
    // A background job of a shell: reading from the terminal would be an error.
    let sandbox = noting("ask", &["a"]);
    let run = format!("'{DELTA}' run --agent agent -w work --run-id r -m go");
    let script = format!("set -m; {run} & wait $!; echo \"code $?\"");
    let shell = Sandbox::new("/bin/sh");
    let job = shell.delta(["-c", &script]).cwd(sandbox.path(""));
    let ran = job.env("HOME", sandbox.path("home")).wholly_at_terminal().end();
    assert!(ran.stderr.ends_with("code 101\n"), "{}", ran.stderr);
}

#[test]
fn c_21_2_what_is_cut_names_what_shows_all_of_it() {
    let long = "x".repeat(3000);
    let sandbox = noting("ask", &[&long]);
    let ran = begun(&sandbox, &["--no-interactive"]).at_terminal().end().expect_code(101);
    let command = format!("delta show r -w {} -v", sandbox.path("work").display());
    assert!(ran.stderr.contains(&format!("… cut; `{command}` shows all of it")), "{}", ran.stderr);
    assert!(!ran.stderr.contains(&long[..1100]));
    let shown = sandbox.delta(command.split(' ').skip(1)).output().expect_code(0);
    assert_eq!(shown.stdout.matches(&long).count(), 2, "the argument and the command line");
    let cut = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    assert!(cut.stdout.contains("… cut; -v shows all of it"), "{}", cut.stdout);
}
