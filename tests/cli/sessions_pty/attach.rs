//! A person at a session.

use super::Place;
use rustix::process::Signal;
use serde_json::json;

/// What leaves a session: Control and `]`.
const LEAVE: &str = "\x1d";

#[test]
fn c_14_5_a_person_sits_down_at_a_session_and_leaves_it() {
    let place = Place::new();
    let id = place.start_bash();
    place.write(&id, "echo bef''ore\\n");
    place.screen(&id, "before\n$");
    let mut person = place.command(&["attach", &id]).wholly_at_terminal();
    person.expect("\x1b[?1049h").expect(&format!("{id}: Control and ] leaves")).expect("before");
    // It has the size of the person's terminal while that is there.
    person.type_in("stty size | tr ' ' x\r").expect("40x100");
    assert!(!person.is_as_at_a_prompt());
    assert_eq!(place.says(&["status", &id])["attached"], true);
    person.resize(90, 30);
    place.write(&id, "\\n");
    test_support::wait::until("the size of the terminal", || {
        (place.says(&["status", &id])["cols"] == 90).then_some(())
    });
    // Both type, both see.
    place.write(&id, "echo from''elsewhere\\n");
    person.expect("fromelsewhere");
    person.type_in("echo by''hand\r").expect("byhand");
    let error = "another terminal is attached: `delta-sessions-pty detach` detaches it";
    let second = place.command(&["attach", &id]).wholly_at_terminal().end();
    assert_eq!((second.code, second.stderr), (1, json!({"error": error}).to_string() + "\n"));
    person.type_in(LEAVE).wait();
    assert!(person.is_as_at_a_prompt());
    let left = person.end();
    assert_eq!(left.code, 0);
    let last = format!("\x1b[?1049l\x1b[23;0tdetached from {id}, which goes on\n");
    assert!(left.stderr.ends_with(&last), "{:?}", left.stderr);
    let status = place.says(&["status", &id]);
    assert_eq!((&status["cols"], &status["rows"]), (&80.into(), &24.into()));
    assert_eq!(status["attached"], false);
    place.wait(&id, "byhand");
}

#[test]
fn c_14_5_a_terminal_is_as_it_was_however_it_is_left() {
    let place = Place::new();
    let id = place.start(&[
        "sh",
        "-c",
        "stty -echo; echo ready; while read line; do echo \"got-$line\"; done; exit 5",
    ]);
    let attach = || {
        let mut person = place.command(&["attach", &id]).wholly_at_terminal();
        person.expect("ready");
        person
    };
    let mut person = attach();
    assert_eq!(place.says(&["detach", &id]), json!({"session_id": id, "detached": true}));
    assert!(person.wait().is_as_at_a_prompt());
    assert!(person.end().stderr.ends_with("which goes on\n"));
    assert_eq!(place.says(&["detach", &id]), json!({"session_id": id, "detached": false}));
    let mut person = attach();
    person.signal(Signal::TERM).wait();
    assert!(person.is_as_at_a_prompt());
    assert!(person.end().stderr.ends_with("which goes on\n"));
    let mut person = attach();
    person.type_in("text\n").expect("got-text");
    person.type_in("\x04").wait();
    assert!(person.is_as_at_a_prompt());
    let last = format!("the session {id} has ended with exit code 5\n");
    let left = person.end();
    assert_eq!(left.code, 0);
    assert!(left.stderr.ends_with(&last), "{:?}", left.stderr);
    let error = "the program of the session `ID` has ended: `read` shows what it left, `start` starts another";
    let again = place.command(&["attach", &id]).wholly_at_terminal().end();
    assert_eq!(again.stderr, json!({"error": error.replace("ID", &id)}).to_string() + "\n");
}

#[test]
fn c_14_5_attach_needs_a_terminal() {
    let place = Place::new();
    let id = place.start(&["cat"]);
    assert_eq!(
        place.refuses(&["attach", &id]),
        "stdin and stdout must be a terminal: `read --screen` and `write` do without one"
    );
    assert_eq!(place.says(&["status", &id])["attached"], false);
}
