//! `delta inbox`: what waits, in all workspaces below a directory.

use super::{TOOLS, notes, noting, paste};
use crate::DELTA;
use rustix::process::Signal;
use serde_json::{Value, json};
use test_support::normal::normal;
use test_support::sandbox::Sandbox;

/// Two runs that wait, in this order, and two that do not.
fn waiting() -> Sandbox {
    let sandbox = noting("ask", &["a"]);
    sandbox.write(
        "agent/question.yaml",
        "turns:\n- call: [{tool: ask_human, args: {prompt: \"Which\\e[2J colour?\\nred or blue\"}}]\n- say: 'I heard ${last}'\n",
    );
    sandbox.write("agent/done.yaml", "turns:\n- say: done\n");
    let run = |work: &str, id: &str, more: &[&str], code: i32| {
        let fixed = ["run", "--agent", "agent", "-w", work, "--run-id", id, "-q", "-m", "task"];
        sandbox.delta([&fixed[..], more].concat()).output().expect_code(code);
    };
    run("b/deep", "calls", &[], 101);
    run("a", "done", &["--model", "script:agent/done.yaml"], 0);
    run("a", "asks", &["--model", "script:agent/question.yaml"], 101);
    run("a/node_modules/x", "elsewhere", &[], 101);
    sandbox
}

#[test]
fn c_21_4_the_inbox_lists_what_waits_and_how_to_answer() {
    let sandbox = waiting();
    let ran = sandbox.delta(["inbox"]).output().expect_code(0);
    let stdout = normal(&sandbox, &ran.stdout);
    let (calls, asks) = stdout.split_once("\n\n").unwrap();
    let (heading, rest) = calls.split_once('\n').unwrap();
    assert!(heading.starts_with("calls  test-agent  DIR/b/deep  waits "), "{heading}");
    assert_eq!(
        rest,
        "  \"task\"\n  ? approve note: sh -c 'echo \"$1\" >> notes; echo noted \"$1\"' -- a\n  \
         delta approve calls -w DIR/b/deep --request-id REQUEST\n  \
         delta deny calls -w DIR/b/deep --request-id REQUEST -m REASON"
    );
    let (heading, rest) = asks.split_once('\n').unwrap();
    assert!(heading.starts_with("asks  test-agent  DIR/a  waits "), "{heading}");
    assert_eq!(
        rest,
        "  \"task\"\n  ? Which\\u{1b}[2J colour?\n    red or blue\n  \
         delta answer asks -w DIR/a --request-id REQUEST TEXT\n"
    );

    let listed = |dirs: &[&str]| -> Vec<String> {
        let ran = sandbox.delta([&["inbox", "--json"], dirs].concat()).output().expect_code(0);
        let runs: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
        runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(&[]), ["calls", "asks"], "the longest wait first");
    assert_eq!(listed(&["a", "b"]), ["calls", "asks"]);
    assert_eq!(listed(&["a"]), ["asks"]);
    assert_eq!(listed(&["-r"]), ["calls", "asks"], "as `delta list-runs -r`");
    assert_eq!(listed(&["-r", "a"]), ["asks"]);
    assert_eq!(listed(&["home"]), Vec::<String>::new());
    let ran = sandbox.delta(["inbox", "--json", "b"]).output().expect_code(0);
    let runs: Value = serde_json::from_str(&ran.stdout).unwrap();
    let run = &runs[0];
    assert!(run["waiting_since"].is_string());
    assert_eq!(run["workspace"], json!(sandbox.path("b/deep")));
    assert_eq!(
        (&run["kind"], &run["tool"], &run["arguments"], &run["argv"][0]),
        (&json!("approval"), &json!("note"), &json!({"text": "a"}), &json!("sh"))
    );
    assert!(run["commands"][0].as_str().unwrap().starts_with("delta approve calls -w "));
}

#[test]
fn c_21_4_an_empty_inbox_and_a_directory_that_is_missing() {
    let sandbox = noting("ask", &[]);
    let ran = sandbox.delta(["inbox"]).output().expect_code(0);
    assert_eq!(
        (&*ran.stdout, &*ran.stderr),
        ("", "Note: no run in these directories waits for an answer\n")
    );
    let ran = sandbox.delta(["inbox", "nowhere"]).output().expect_code(126);
    assert!(ran.stderr.contains("nowhere"), "{}", ran.stderr);
    let ran = sandbox.delta(["inbox", "-i"]).output().expect_code(2);
    assert!(ran.stderr.contains("`-i` needs a terminal"), "{}", ran.stderr);
    sandbox.delta(["inbox", "-i", "--json"]).output().expect_code(2);
}

/// A run whose process ended at the question, in each way, was missing from the inbox, although it could be answered.
#[test]
fn c_21_4_a_question_of_a_process_that_was_interrupted_or_killed_is_listed() {
    let listed = |sandbox: &Sandbox| -> Vec<Value> {
        let ran = sandbox.delta(["inbox", "--json"]).output().expect_code(0);
        serde_json::from_str(&ran.stdout).unwrap()
    };
    let ids = |sandbox: &Sandbox| -> Vec<Value> {
        listed(sandbox).iter().map(|run| run["run_id"].clone()).collect()
    };
    for (signal, status) in [(Signal::INT, "INTERRUPTED"), (Signal::KILL, "RUNNING")] {
        let sandbox = noting("ask", &["a"]);
        let mut terminal = sandbox.run_command("go", &["-i"]).at_terminal();
        terminal.expect("v view> ");
        let asking = listed(&sandbox).remove(0);
        let pid = &sandbox.metadata()["pid"];
        assert_eq!((&asking["run_id"], &asking["terminal_process"]), (&json!("r"), pid));
        assert_eq!(asking["commands"], json!([]));
        let text = sandbox.delta(["inbox"]).output().expect_code(0).stdout;
        let line = format!("  asked at the terminal of process {pid}: answer it there\n");
        assert!(text.ends_with(&line), "{text}");
        terminal.signal(signal).wait();
        assert_eq!(sandbox.metadata()["status"], status);
        assert_eq!(ids(&sandbox), [json!("r")], "{status}");
        assert_eq!(listed(&sandbox)[0]["terminal_process"], Value::Null);
        sandbox.delta(["approve", "r", "-w", "work"]).output().expect_code(0);
        assert_eq!(sandbox.read("work/notes"), "a\n");
        assert_eq!(ids(&sandbox), Vec::<Value>::new());
    }
    // The end of input at a question makes the run fail, and the question stays open.
    let sandbox = waiting();
    let again = ["continue", "asks", "-w", "a", "-i"];
    let mut terminal = sandbox.delta(again).at_terminal();
    terminal.expect("answer> ").type_in("\x04");
    terminal.end().expect_code(1);
    assert_eq!(ids(&sandbox), ["calls", "asks"].map(|id| json!(id)));
    let mut terminal = sandbox.delta(["inbox", "-i", "a"]).at_terminal();
    terminal.expect("red or blue").expect("answer").type_in("red\n").expect("I heard red");
    terminal.end().expect_code(0);
}

#[test]
fn c_21_4_the_inbox_is_answered_one_after_the_other() {
    let sandbox = waiting();
    let mut terminal = sandbox.delta(["inbox", "-i"]).at_terminal();
    let keys = "y yes, n no, v view, s skip, q quit> ";
    terminal.expect("2 runs wait for you. An answered run continues at once");
    terminal.expect("[1/2] calls").expect("task: \"").expect("approve note").expect(keys);
    terminal.type_in("v\n");
    terminal.expect("text:").expect("$ sh -c").expect(keys).type_in("s\n");
    terminal
        .expect("[2/2] asks")
        .expect("red or blue")
        .expect("answer, Enter skips, Ctrl-D quits> ");
    terminal.type_in("red\n").expect("I heard red");
    terminal.end().expect_code(0);
    assert!(!sandbox.path("b/deep/notes").exists());

    let mut terminal = sandbox.delta(["inbox", "-i"]).at_terminal();
    terminal
        .expect("[1/1] calls")
        .expect(keys)
        .type_in("n\n")
        .expect("none> ")
        .type_in("no: way\n");
    terminal.expect("Denied by the operator").expect("no: way");
    terminal.end().expect_code(0);

    for (typed, code) in [("q\n", 0), ("\x04", 0), ("\x03", 130)] {
        let sandbox = waiting();
        let mut terminal = sandbox.delta(["inbox", "-i"]).at_terminal();
        terminal.expect("[1/2] calls").expect(keys).type_in(typed);
        let ran = terminal.end().expect_code(code);
        assert!(!ran.stderr.contains("[2/2]"), "{}", ran.stderr);
        assert!(!sandbox.path("b/deep/notes").exists());
    }
}

/// The questions that came after the first one of a run had no keys to skip and to quit.
#[test]
fn c_21_4_skip_and_quit_work_at_every_question_of_a_run() {
    let keys = "y yes, n no, v view, s skip, q quit> ";
    for (typed, has_next) in [("s\n", true), ("q\n", false), ("\x04", false)] {
        let sandbox = noting("ask", &["a", "b"]);
        sandbox.run("go", &[]).expect_code(101);
        let other =
            ["run", "--agent", "agent", "-w", "work", "--run-id", "later", "-q", "-m", "go"];
        sandbox.delta(other).output().expect_code(101);
        let mut terminal = sandbox.delta(["inbox", "-i"]).at_terminal();
        terminal.expect("[1/2] r").expect(keys).type_in("x\n");
        terminal.expect("expected `y`, `n`, `v`, `s` or `q`, and Enter").expect(keys);
        terminal.type_in("y\n").expect("text  b").expect(keys).type_in(typed);
        if has_next {
            terminal.expect("[2/2] later").expect(keys).type_in("q\n");
        }
        let ran = terminal.end().expect_code(0);
        assert_eq!(ran.stderr.contains("[2/2]"), has_next, "{}", ran.stderr);
        assert_eq!(sandbox.read("work/notes"), "a\n");
        assert_eq!(sandbox.metadata()["status"], "WAITING_FOR_INPUT");
    }
}

#[test]
fn c_21_4_an_answer_does_not_reach_another_question() {
    let sandbox = waiting();
    let mut terminal = sandbox.delta(["inbox", "-i", "b"]).at_terminal();
    terminal.expect("[1/1] calls").expect("q quit> ");
    sandbox.delta(["deny", "calls", "-w", "b/deep"]).output().expect_code(0);
    terminal.type_in("y\n").expect("run calls does not wait for the answer to ");
    terminal.end().expect_code(0);
    assert!(!sandbox.path("b/deep/notes").exists());
}

/// The lines of a text that are commands of delta.
fn commands(text: &str) -> Vec<String> {
    let starts = text.lines().filter_map(|line| line.find("delta ").map(|at| &line[at..]));
    starts.filter(|command| command.contains(" -w ")).map(str::to_owned).collect()
}

#[test]
fn c_21_4_what_is_printed_can_be_pasted() {
    let sandbox = waiting();
    let inbox = sandbox.delta(["inbox"]).output().expect_code(0).stdout;
    let printed = commands(&inbox);
    assert_eq!(printed.len(), 3, "{inbox}");
    let denied = paste(&sandbox, &printed[1], &[]).expect_code(0);
    assert!(denied.stderr.contains("REASON"), "{}", denied.stderr);
    let answered = paste(&sandbox, &printed[2], &[]).expect_code(0);
    assert!(answered.stdout.contains("I heard TEXT"), "{}", answered.stdout);

    let sandbox = waiting();
    let shown = sandbox.delta(["show", "asks", "-w", "a"]).output().expect_code(0).stdout;
    let answered = paste(&sandbox, commands(&shown).last().unwrap(), &[]).expect_code(0);
    assert!(answered.stdout.contains("I heard ANSWER"), "{}", answered.stdout);
}

/// The commands for a run that another operator has made did not name the agent, without which it is not continued.
#[test]
fn c_20_4_a_command_for_a_foreign_run_names_the_agent_and_warns() {
    let sandbox = noting("ask", &["a", "b"]);
    let state = sandbox.path("other state");
    sandbox.run_command("go", &[]).env("DELTA_STATE_DIR", &state).output().expect_code(101);
    let agent = sandbox.path("agent").display().to_string();
    let warning = format!("no seal of yours covers its agent: look at {agent} before you load it");
    let inbox = sandbox.delta(["inbox"]).output().expect_code(0).stdout;
    assert!(inbox.contains(&format!("  ! {warning}\n")), "{inbox}");
    // A script gets no command that loads what only the journal names.
    let listed = sandbox.delta(["inbox", "--json"]).output().expect_code(0).json();
    assert_eq!(listed[0]["needs_agent"], true);
    let command = listed[0]["commands"][0].as_str().unwrap();
    assert!(paste(&sandbox, command, &[]).expect_code(126).stderr.contains("is foreign"));
    paste(&sandbox, &commands(&inbox)[0], &[]).expect_code(101);
    assert_eq!(notes(&sandbox), ["a"]);
    // This operator's process has sealed the run.
    let inbox = sandbox.delta(["inbox"]).output().expect_code(0).stdout;
    assert!(!inbox.contains("--agent") && !inbox.contains('!'), "{inbox}");
    paste(&sandbox, &commands(&inbox)[0], &[]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a", "b"]);

    let sandbox = noting("ask", &["a"]);
    let state = sandbox.path("other state");
    sandbox.run_command("go", &[]).env("DELTA_STATE_DIR", &state).output().expect_code(101);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains("no seal of yours covers its agent"), "{shown}");
    let approve = commands(&shown).into_iter().find(|line| line.contains("approve")).unwrap();
    paste(&sandbox, &approve, &[]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
}

#[test]
fn c_20_4_without_a_key_the_commands_of_a_run_name_its_agent() {
    let sandbox = noting("ask", &["a"]);
    let no_key = [("DELTA_STATE_DIR", "/proc/no")];
    let mut run = sandbox.run_command("go", &[]);
    run.command().envs(no_key);
    let ran = run.output().expect_code(101);
    let approve = commands(&ran.stderr).into_iter().find(|line| line.contains("approve")).unwrap();
    assert!(approve.contains(" --agent "), "{approve}");
    paste(&sandbox, &approve, &no_key).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
}

#[test]
fn c_21_4_a_run_whose_agent_has_moved_asks_for_its_directory() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    std::fs::rename(sandbox.path("agent"), sandbox.path("moved")).unwrap();
    let inbox = sandbox.delta(["inbox"]).output().expect_code(0).stdout;
    let home = sandbox.path("agent").display().to_string();
    let warning = format!("  ! there is no agent {home}: replace AGENT with its new directory\n");
    assert!(inbox.contains(&warning), "{inbox}");
    let approve = commands(&inbox)[0].replace("--agent AGENT", "--agent moved");
    paste(&sandbox, &approve, &[]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
}

#[test]
fn c_21_4_view_shows_the_change_of_a_file() {
    let turns = "- call: [{tool: put, args: {path: f, content: \"b\\n\"}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &TOOLS.replace("APPROVE", "ask"), turns);
    sandbox.write("work/f", "a\n");
    sandbox.run("go", &[]).expect_code(101);
    let mut terminal = sandbox.delta(["inbox", "-i"]).at_terminal();
    terminal.expect("q quit> ").type_in("v\n").expect("-a").expect("+b").expect("$ tee f");
    terminal.expect("q quit> ").type_in("y\n");
    terminal.end().expect_code(0);
    assert_eq!(sandbox.read("work/f"), "b\n");
}

/// The answer was asked for, and refused once it was typed.
#[test]
fn c_21_4_a_run_that_could_not_be_continued_is_not_asked_about() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    let foreign = ["run", "--agent", "agent", "-w", "work", "--run-id", "f", "-q", "go"];
    sandbox.delta(foreign).env("HOME", "/proc/nohome").output().expect_code(101);
    let mut terminal = sandbox.delta(["inbox", "-i"]).at_terminal();
    terminal.expect("[1/2] r").expect("q quit> ").type_in("s\n").expect("[2/2] f");
    terminal.expect("not answered here:").expect("no seal of yours").expect("delta approve f -w ");
    terminal.expect("error: 1 run can only be answered with `--agent`");
    let ran = terminal.end().expect_code(1);
    assert_eq!(ran.stderr.matches("q quit> ").count(), 1, "{}", ran.stderr);
}
