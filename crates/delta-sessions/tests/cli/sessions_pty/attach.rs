//! `attach` and `detach`.

use super::PtyFixture;
use rustix::process::Signal;
use serde_json::json;

/// Control and `]`.
const DETACH_KEY: &str = "\x1d";

#[test]
fn c_14_5_a_person_attaches_and_detaches() {
    let fixture = PtyFixture::new();
    let id = fixture.start_bash();
    fixture.write(&id, "echo bef''ore\\n");
    fixture.screen(&id, "before\n$");
    let mut person = fixture.command(&["attach", &id]).wholly_at_terminal();
    person.expect("\x1b[?1049h").expect(&format!("{id}: press Ctrl-] to detach")).expect("before");
    // The session has the size of the attached terminal.
    person.type_in("stty size | tr ' ' x\r").expect("40x100");
    assert!(!person.is_as_at_a_prompt());
    assert_eq!(fixture.report(&["status", &id])["attached"], true);
    person.resize(90, 30);
    fixture.write(&id, "\\n");
    test_support::wait::until("the size of the terminal", || {
        (fixture.report(&["status", &id])["cols"] == 90).then_some(())
    });
    // Input from both sides is shown on both.
    fixture.write(&id, "echo from''elsewhere\\n");
    person.expect("fromelsewhere");
    person.type_in("echo by''hand\r").expect("byhand");
    let error = "another terminal is attached: `delta-sessions-pty detach` detaches it";
    let second = fixture.command(&["attach", &id]).wholly_at_terminal().end();
    assert_eq!((second.code, second.stderr), (1, json!({"error": error}).to_string() + "\n"));
    person.type_in(DETACH_KEY).wait();
    assert!(person.is_as_at_a_prompt());
    let left = person.end();
    assert_eq!(left.code, 0);
    let last = format!("\x1b[?1049l\x1b[23;0tdetached from {id}; the program keeps running\n");
    assert!(left.stderr.ends_with(&last), "{:?}", left.stderr);
    let status = fixture.report(&["status", &id]);
    assert_eq!((&status["cols"], &status["rows"]), (&80.into(), &24.into()));
    assert_eq!(status["attached"], false);
    fixture.wait(&id, "byhand");
}

#[test]
fn c_14_5_the_terminal_is_restored_however_attach_ends() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&[
        "sh",
        "-c",
        "stty -echo; echo ready; while read line; do echo \"got-$line\"; done; exit 5",
    ]);
    let attach = || {
        let mut person = fixture.command(&["attach", &id]).wholly_at_terminal();
        person.expect("ready");
        person
    };
    let mut person = attach();
    assert_eq!(fixture.report(&["detach", &id]), json!({"session_id": id, "detached": true}));
    assert!(person.wait().is_as_at_a_prompt());
    assert!(person.end().stderr.ends_with("the program keeps running\n"));
    assert_eq!(fixture.report(&["detach", &id]), json!({"session_id": id, "detached": false}));
    let mut person = attach();
    person.signal(Signal::TERM).wait();
    assert!(person.is_as_at_a_prompt());
    assert!(person.end().stderr.ends_with("the program keeps running\n"));
    let mut person = attach();
    person.type_in("text\n").expect("got-text");
    person.type_in("\x04").wait();
    assert!(person.is_as_at_a_prompt());
    let last = format!("session {id} has ended with exit code 5\n");
    let left = person.end();
    assert_eq!(left.code, 0);
    assert!(left.stderr.ends_with(&last), "{:?}", left.stderr);
    let error = "the program of session `ID` has ended: `delta-sessions-pty read ID` prints its last output";
    let again = fixture.command(&["attach", &id]).wholly_at_terminal().end();
    assert_eq!(again.stderr, json!({"error": error.replace("ID", &id)}).to_string() + "\n");
}

#[test]
fn c_14_5_attach_needs_a_terminal() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["cat"]);
    assert_eq!(
        fixture.error(&["attach", &id]),
        "stdin and stdout must be a terminal: without one, use `delta-sessions-pty read --screen` and `write`"
    );
    assert_eq!(fixture.report(&["status", &id])["attached"], false);
}
