//! read: what came, what stands on the screen, and waiting for it.

use super::Place;
use serde_json::json;

#[test]
fn c_14_5_each_output_is_read_once() {
    let place = Place::new();
    let id = place.start(&["cat"]);
    place.write(&id, "one\\n");
    assert_eq!(place.says(&["read", &id]), json!({"output": "one\none\n", "status": "active"}));
    let nothing = json!({"output": "", "status": "active"});
    assert_eq!(place.says(&["read", &id, "--timeout", "0"]), nothing);
    place.write(&id, "two\\n");
    // To look at the screen or at the last lines is not to read.
    assert_eq!(place.rows(&id, "two\ntwo"), ["one", "one", "two", "two"]);
    assert_eq!(place.says(&["read", &id, "--lines", "3"])["output"], "one\ntwo\ntwo\n");
    assert_eq!(place.says(&["status", &id])["unread_bytes"], 8);
    assert_eq!(place.says(&["read", &id])["output"], "two\ntwo\n");
    // Nor is it read again in another form.
    assert_eq!(place.says(&["read", &id, "--raw", "--timeout", "0"]), nothing);
}

#[test]
fn c_14_5_a_text_is_waited_for() {
    let place = Place::new();
    let id =
        place.start(&["sh", "-c", "stty -echo; read go; echo 'one (1)'; read go; echo two; cat"]);
    let late = place.says(&["read", &id, "--wait", "one", "--timeout", "50"]);
    assert_eq!(late, json!({"output": "", "timed_out": true, "status": "active"}));
    let waiting = place.command(&["read", &id, "--wait", "(1)", "--timeout", "30000"]).spawn();
    place.write(&id, "\\n");
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.stdout, b"{\"output\":\"one (1)\\n\",\"status\":\"active\"}\n");
    place.write(&id, "\\n");
    let regex = ["read", &id, "--wait", "^t[a-z]o$", "--regex", "--timeout", "30000"];
    assert_eq!(place.says(&regex)["output"], "two\n");
    // As a text it is none.
    let text = place.says(&["read", &id, "--screen", "--wait", "^t[a-z]o$", "--timeout", "50"]);
    assert_eq!((&text["screen"], &text["timed_out"]), (&"one (1)\ntwo".into(), &true.into()));
    let wrong = place.refuses(&["read", &id, "--wait", "(", "--regex"]);
    assert!(wrong.starts_with("`(` is no regular expression: "), "{wrong}");
    place.misused(&["read", &id, "--regex"]);
    place.misused(&["read", &id, "--screen", "--lines", "2"]);
}

#[test]
fn c_14_5_a_reader_that_waits_hears_of_the_end() {
    let place = Place::new();
    let id = place.start(&["sh", "-c", "read go; echo last; exit 3"]);
    let waiting = place.command(&["read", &id, "--wait", "never", "--timeout", "60000"]).spawn();
    // Whether it comes before the end or after it, the answer is the same.
    place.write(&id, "\\n");
    let waited = waiting.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(
        answer,
        json!({"output": "\nlast\n", "timed_out": true, "status": "ended", "exit_code": 3})
    );
    assert_eq!(
        place.says(&["read", &id]),
        json!({"output": "", "status": "ended", "exit_code": 3})
    );
}

#[test]
fn c_14_5_much_output_is_bounded_and_says_so() {
    let place = Place::new();
    let id = place.start(&["sh", "-c", "seq 1 400000; echo end; cat"]);
    let shown = place.screen(&id, "\nend");
    assert_eq!(shown["screen"].as_str().unwrap().lines().count(), 23);
    let all: String = (1..=400_000).map(|n| format!("{n}\n")).collect::<String>() + "end\n";
    let read = place.says(&["read", &id]);
    let output = read["output"].as_str().unwrap();
    assert_eq!(output, &all[all.len() - 24 * 1024..]);
    assert_eq!(read["omitted_bytes"], all.len() - 24 * 1024);
    let kept = place.says(&["read", &id, "--lines", "1000000"]);
    assert_eq!(kept["output"].as_str().unwrap(), &all[all.len() - (1 << 20)..]);
}

#[test]
fn c_14_5_output_is_followed_until_the_end() {
    let place = Place::new();
    let script = r"stty -echo; printf '\033[1mbold\033[0m\n'; read go; seq 1 100000; exit 4";
    let id = place.start(&["sh", "-c", script]);
    place.screen(&id, "bold");
    let text = place.command(&["read", &id, "--follow"]).spawn();
    let raw = place.command(&["read", &id, "--follow", "--raw"]).spawn();
    let some = place.command(&["read", &id, "--follow", "--timeout", "20"]).output();
    assert_eq!(some.expect_code(0).stdout, "bold\n");
    place.write(&id, "\\n");
    let numbers: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let followed = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(followed(text), format!("bold\n{numbers}"));
    let numbers = numbers.replace('\n', "\r\n");
    assert_eq!(followed(raw), format!("\u{1b}[1mbold\u{1b}[0m\r\n{numbers}"));
    // Nothing of that was read.
    assert_eq!(place.says(&["status", &id])["unread_bytes"], 588_900);
    let again = place.command(&["read", &id, "--follow", "--lines", "2"]).output();
    assert_eq!(again.expect_code(0).stdout, "99999\n100000\n");
}
