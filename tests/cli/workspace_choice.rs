//! Which workspace a run without `-w` gets, when a person can be asked.

use super::workspaces::{run_own, sandbox};
use serde_json::json;
use std::fs;
use test_support::sandbox::Sandbox;

const QUESTION: &str =
    "Workspace?\r\n  1) W002  (last used)\r\n  2) W001\r\n  n) create a new one\r\nchoose [n]> ";

/// A sandbox with two workspaces, the second one used last.
fn with_two() -> Sandbox {
    let sandbox = sandbox();
    for name in ["W001", "W002"] {
        fs::create_dir_all(sandbox.path("agent/workspaces").join(name)).unwrap();
    }
    sandbox.write("agent/workspaces/LAST_USED", "W002\n");
    sandbox
}

/// The workspace that is used when a person at a terminal answers so.
#[track_caller]
fn chosen(sandbox: &Sandbox, answers: &[(&str, &str)]) -> String {
    let mut terminal = run_own(sandbox, &[]).at_terminal();
    for (question, answer) in answers {
        terminal.expect(question).type_in(answer);
    }
    let result = terminal.end().expect_code(0).json();
    let path = result["metadata"]["workspace_path"].as_str().unwrap();
    path.rsplit('/').next().unwrap().to_owned()
}

#[test]
fn c_5_5_a_person_chooses_the_workspace() {
    let sandbox = with_two();
    assert_eq!(chosen(&sandbox, &[(QUESTION, "1\n")]), "W002");
    assert_eq!(chosen(&sandbox, &[(QUESTION, "W001\n")]), "W001");
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W001\n");
    assert_eq!(chosen(&sandbox, &[("  1) W001  (last used)\r\n  2) W002\r\n", " 2 \n")]), "W002");
    assert_eq!(chosen(&sandbox, &[(QUESTION, "w001\n")]), "W001");
    assert_eq!(
        chosen(
            &sandbox,
            &[("choose [n]> ", "0\n"), ("expected a number, a name or n, found `0`> ", "n\n")]
        ),
        "W003"
    );
    assert_eq!(
        chosen(
            &sandbox,
            &[
                ("choose [n]> ", "7\n"),
                ("a name or n, found `7`> ", "../x\n"),
                ("found `../x`> ", "\n")
            ]
        ),
        "W004"
    );
}

#[test]
fn c_5_5_nobody_is_asked_without_need() {
    let sandbox = with_two();
    assert_eq!(
        run_own(&sandbox, &["-y"]).at_terminal().end().expect_code(0).json()["status"],
        "COMPLETED"
    );
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W003\n");
    run_own(&sandbox, &["-w", "work"]).at_terminal().end().expect_code(0);
    // The first workspace of an agent is no question either.
    let fresh = super::workspaces::sandbox();
    assert_eq!(chosen(&fresh, &[]), "W001");
}

#[test]
fn c_11_5_without_a_terminal_the_workspace_is_a_new_one() {
    let sandbox = with_two();
    let ran = run_own(&sandbox, &[]).output().expect_code(0);
    assert!(!ran.stderr.contains("Workspace?"), "{}", ran.stderr);
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W003\n");
}

#[test]
fn c_11_5_end_of_input_at_the_choice_is_an_error_and_no_run() {
    let sandbox = with_two();
    let before = sandbox.files("");
    let mut terminal = run_own(&sandbox, &[]).at_terminal();
    terminal.expect(QUESTION).type_in("\x04");
    let ran = terminal.end();
    assert!(ran.stderr.ends_with("error: no workspace was chosen: end of input\nhelp: pass `-w DIR`, or `-y` for a new one\n"), "{}", ran.stderr);
    let result = ran.expect_code(1).json();
    assert_eq!(
        (&result["status"], &result["error"]["type"]),
        (&json!("FAILED"), &json!("interaction"))
    );
    assert_eq!(sandbox.files(""), before);
}

#[test]
fn c_12_4_an_interrupt_at_the_choice_is_an_interruption_and_no_run() {
    let sandbox = with_two();
    let before = sandbox.files("");
    let mut terminal = run_own(&sandbox, &[]).at_terminal();
    terminal.expect(QUESTION).type_in("\x03");
    let result = terminal.end().expect_code(130).json();
    assert_eq!(
        (&result["status"], &result["error"]["type"]),
        (&json!("INTERRUPTED"), &json!("interrupted"))
    );
    assert_eq!(sandbox.files(""), before);
}
