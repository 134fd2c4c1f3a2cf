//! `delta diff RUN_A RUN_B`: where two runs part (C-16.8).

use super::DELTA;
use super::runs::TOOLS;
use regex::Regex;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};

const TURNS: &str = "\
- say: one
  call: [{tool: note, args: {text: a}}]
- say: two
  call: [{tool: note, args: {text: b}}]
- say: done
";

/// Run `r` in `work/`, done, and its fork `f` at an iteration, in `new/`.
fn forked(at: &str, more: &[&str]) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.run("task", &[]).expect_code(0);
    fork(&sandbox, at, more);
    sandbox
}

fn fork(sandbox: &Sandbox, at: &str, more: &[&str]) {
    let fixed = ["fork", "r", "-w", "work", "--run-id", "f", "--into", "new", "--at", at, "-q"];
    sandbox.delta(fixed.iter().chain(more).copied()).output().expect_code(0);
}

/// `delta diff` of both, with the times of work left out.
fn diff(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["diff", "r", "new/.delta/f", "-w", "work"];
    let ran = sandbox.delta(fixed.iter().chain(more).copied()).output();
    let span = Regex::new(r", \d[\d.]*m?s(;|\n)").unwrap();
    Ran { stdout: span.replace_all(&ran.stdout, ", SPAN$1").into_owned(), ..ran }
}

#[test]
fn c_16_8_a_fork_is_the_same_up_to_where_it_was_made() {
    let sandbox = forked("1", &[]);
    let expected = "\
a r: COMPLETED after 3 iterations, SPAN
b f: INTERRUPTED after 1 iteration, SPAN; forked from r at iteration 1

the first iteration is the same; the runs diverge in iteration 2: a continues, b is INTERRUPTED

a r
   2 • two
     → note text=b
       noted b
   3 • done
     = COMPLETED

b f
     = INTERRUPTED
";
    diff(&sandbox, &[]).expect(1, expected, "");
    sandbox.delta(["continue", "f", "-w", "new", "-q"]).output().expect_code(0);
    let expected = "\
a r: COMPLETED after 3 iterations, SPAN
b f: COMPLETED after 3 iterations, SPAN; forked from r at iteration 1

no differences
";
    diff(&sandbox, &[]).expect(0, expected, "");
    let equal = diff(&sandbox, &["--format", "json"]).json();
    assert_eq!(
        (&equal["equal"], &equal["same_iterations"], &equal["parts"], &equal["a"]["steps"]),
        (&json!(true), &json!(3), &Value::Null, &json!([]))
    );
}

#[test]
fn c_16_8_what_differs_first_is_shown_with_both_texts() {
    let sandbox = forked("1", &["-m", "and then"]);
    let message = diff(&sandbox, &[]).expect_code(1).stdout;
    assert!(
        message.contains("diverge in iteration 2: a continues, b gets a message\n\na r\n"),
        "{message}"
    );
    assert!(message.contains("\nb f\n   2 > and then\n     • two\n"), "{message}");

    let sandbox = forked("0", &[]);
    let other = TURNS.replace("text: b", "text: 'b\\nc'").replace("say: two", "say: TWO");
    sandbox.write("agent/other.yaml", format!("turns:\n{other}"));
    let go_on = ["continue", "f", "-w", "new", "-q", "--model", "script:other.yaml"];
    sandbox.delta(go_on).output().expect_code(0);
    let answer = diff(&sandbox, &[]).expect_code(1).stdout;
    let expected = "the first iteration is the same; the runs diverge in iteration 2: different answers\n\n\
                    --- a r\n+++ b f\n@@ -1 +1 @@\n-two\n+TWO\n\na r\n   2 • two\n";
    assert!(answer.contains(expected), "{answer}");

    let sandbox = forked("0", &[]);
    let other = TURNS.replace("{text: b}", "{text: 'b c'}");
    sandbox.write("agent/other.yaml", format!("turns:\n{other}"));
    sandbox.delta(go_on).output().expect_code(0);
    let arguments = diff(&sandbox, &[]).expect_code(1).stdout;
    let expected = "the runs diverge in iteration 2: different arguments of note\n\n\
                    --- a r\n+++ b f\n@@ -1,4 +1,4 @@\n note\n {\n-  \"text\": \"b\"\n+  \"text\": \"b c\"\n }\n\n\
                    a r\n   2 → note text=b\n       noted b\n";
    assert!(arguments.contains(expected), "{arguments}");
    let parts = diff(&sandbox, &["--format", "json"]).expect_code(1).json()["parts"].clone();
    let step = |text: &str| json!({"iteration": 2, "what": "call", "tool": "note", "text": text});
    let expected = json!({"iteration": 2, "a": step("{\n  \"text\": \"b\"\n}"), "b": step("{\n  \"text\": \"b c\"\n}")});
    assert_eq!(parts, expected);
}

#[test]
fn c_16_8_what_came_of_a_call_counts() {
    let tools = "  - name: look\n    shell: cat there\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: look}]\n- say: seen\n");
    sandbox.write("work/there", "one\ntwo\nthree\n");
    sandbox.run("task", &[]).expect_code(0);
    fork(&sandbox, "0", &[]);
    sandbox.write("new/there", "one\n2\nthree\n");
    sandbox.delta(["continue", "f", "-w", "new", "-q"]).output().expect_code(0);
    let shown = diff(&sandbox, &[]).expect_code(1).stdout;
    let expected = "the runs diverge in iteration 1: different results of look\n\n\
                    --- a r\n+++ b f\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n\n";
    assert!(shown.contains(expected), "{shown}");
    std::fs::remove_file(sandbox.path("new/there")).unwrap();
    let again = ["fork", "r", "-w", "work", "--run-id", "g", "--into", "other", "--at", "0", "-q"];
    std::fs::remove_file(sandbox.path("work/there")).unwrap();
    sandbox.delta(again.iter().chain(&["--continue"]).copied()).output().expect_code(0);
    let failed = sandbox.delta(["diff", "r", "other/.delta/g", "-w", "work"]).output();
    assert!(failed.stdout.contains("+[exit code 1]\n"), "{}", failed.stdout);
}

#[test]
fn c_16_8_a_sensitive_answer_stays_hidden() {
    let turns = "- call: [{tool: ask_human, args: {prompt: Pass?, sensitive: true}}]\n- say: 'got ${last}'\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &[]).expect_code(101);
    fork(&sandbox, "0", &[]);
    let answer = |id: &str, work: &str, text: &str| {
        let go_on = ["continue", id, "-w", work, "-q", "-m", text];
        sandbox.delta(go_on).output().expect_code(0);
    };
    answer("r", "work", "swordfish");
    sandbox.delta(["continue", "f", "-w", "new", "-q"]).output().expect_code(101);
    answer("f", "new", "tunafish");
    let shown = diff(&sandbox, &[]).expect_code(1).stdout;
    assert!(!shown.contains("fish") && shown.contains("[hidden]"), "{shown}");
}

#[test]
fn c_16_8_what_cannot_be_compared_leaves_with_2() {
    let sandbox = forked("1", &[]);
    let expected = "error: there is no run nope in DIR/work\n\
                    help: `delta list-runs -w DIR/work` lists the runs there; `-w DIR` names another workspace\n";
    let gone = sandbox.delta(["diff", "r", "nope", "-w", "work"]).output();
    gone.normal(&sandbox).expect(2, "", expected);
    let expected = "error: new/.delta is not a run directory\n\
                    help: name the run by its id or by its path, WORKSPACE/.delta/RUN\n";
    let wrong = sandbox.delta(["diff", "r", "new/.delta", "-w", "work"]).output();
    wrong.normal(&sandbox).expect(2, "", expected);
}

/// `delta diff` of run `r` and a second run `s` of the same agent in the same workspace.
fn diff_again(sandbox: &Sandbox) -> Ran {
    sandbox.run("task", &[]).expect_code(0);
    let again = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "-m", "task"];
    sandbox.delta(again).output().expect_code(0);
    sandbox.delta(["diff", "r", "s", "-w", "work"]).output()
}

#[test]
fn c_16_8_the_paths_and_times_of_outputs_do_not_count() {
    let tools =
        "  - {name: sh, exec: 'sh -c ${c}'}\n  - {name: made, exec: 'sh -c ${c}', output: file}\n";
    for (tool, script) in [("sh", "seq 30000"), ("sh", "printf 'a\\0b'"), ("made", "echo kept")] {
        let call = json!({"c": script});
        let turns = format!(
            "- call: [{{tool: {tool}, args: {call}}}]\n\
             - call: [{{tool: sh, args: {{c: 'echo \"${{last}}\"'}}}}]\n- say: 'done ${{last}}'\n"
        );
        let sandbox = Sandbox::scripted(DELTA, tools, &turns);
        let ran = diff_again(&sandbox).expect_code(0);
        assert!(ran.stdout.ends_with("\nno differences\n"), "{}", ran.stdout);
    }
}

#[test]
fn c_16_8_texts_that_differ_in_control_characters_are_shown_with_escapes() {
    for (character, escape) in [("\u{1b}[1m", "\\u{1b}[1m"), ("\u{202e}", "\\u{202e}")] {
        let tools = "  - {name: look, shell: 'cat text; rm text'}\n";
        let turns = "- call: [{tool: look}]\n- say: seen\n";
        let sandbox = Sandbox::scripted(DELTA, tools, turns);
        sandbox.write("work/text", format!("a{character}b\n"));
        sandbox.run("task", &[]).expect_code(0);
        sandbox.write("work/text", "ab\n");
        let again = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "-m", "task"];
        sandbox.delta(again).output().expect_code(0);
        let ran = sandbox.delta(["diff", "r", "s", "-w", "work"]).output().expect_code(1);
        let expected = format!("@@ -1 +1 @@\n-a{escape}b\n+ab\n");
        assert!(ran.stdout.contains(&expected), "{}", ran.stdout);
    }
}
