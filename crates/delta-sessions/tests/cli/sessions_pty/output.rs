//! `read`: new output, the screen, and waiting for them.

use super::PtyFixture;
use serde_json::json;

#[test]
fn c_14_5_output_is_reported_once() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["cat"]);
    fixture.write(&id, "one\\n");
    assert_eq!(fixture.report(&["read", &id]), json!({"output": "one\none\n", "status": "active"}));
    let nothing = json!({"output": "", "status": "active"});
    assert_eq!(fixture.report(&["read", &id, "--timeout", "0ms"]), nothing);
    fixture.write(&id, "two\\n");
    // Looking at the screen or at the last lines marks nothing as read.
    assert_eq!(fixture.rows(&id, "two\ntwo"), ["one", "one", "two", "two"]);
    assert_eq!(fixture.report(&["read", &id, "--lines", "3"])["output"], "one\ntwo\ntwo\n");
    assert_eq!(fixture.report(&["status", &id])["unread_bytes"], 8);
    assert_eq!(fixture.report(&["read", &id])["output"], "two\ntwo\n");
    // The raw form does not report it again either.
    assert_eq!(fixture.report(&["read", &id, "--raw", "--timeout-ms", "0"]), nothing);
}

/// As npm and other programs of node write their line again.
#[test]
fn c_14_5_an_erased_line_is_gone() {
    let fixture = PtyFixture::new();
    let script =
        r"printf 'Installing\033[2K\033[1GInstalled 3\r\nPass\033[2;5Hword:\033[20Gx'; sleep 1000";
    let id = fixture.start(&["sh", "-c", script]);
    let read = fixture.report(&["read", &id, "--wait", "Password:"]);
    assert_eq!(read["output"], "Installed 3\nPassword:          x");
}

#[test]
fn c_14_5_read_waits_for_a_text() {
    let fixture = PtyFixture::new();
    let id =
        fixture.start(&["sh", "-c", "stty -echo; read go; echo 'one (1)'; read go; echo two; cat"]);
    let late = fixture.report(&["read", &id, "--wait", "one", "--timeout", "50ms"]);
    assert_eq!(late, json!({"output": "", "timed_out": true, "status": "active"}));
    let waiting = fixture.command(&["read", &id, "--wait", "(1)", "--timeout", "30000ms"]).spawn();
    fixture.write(&id, "\\n");
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.stdout, b"{\"output\":\"one (1)\\n\",\"status\":\"active\"}\n");
    fixture.write(&id, "\\n");
    let regex = ["read", &id, "--wait", "^t[a-z]o$", "--regex", "--timeout", "30000ms"];
    assert_eq!(fixture.report(&regex)["output"], "two\n");
    // Without --regex it is plain text.
    let text =
        fixture.report(&["read", &id, "--screen", "--wait", "^t[a-z]o$", "--timeout", "50ms"]);
    assert_eq!((&text["screen"], &text["timed_out"]), (&"one (1)\ntwo".into(), &true.into()));
    let wrong = fixture.error(&["read", &id, "--wait", "(", "--regex"]);
    assert!(wrong.starts_with("`(` is not a regular expression: "), "{wrong}");
    fixture.usage_error(&["read", &id, "--regex"]);
    fixture.usage_error(&["read", &id, "--screen", "--lines", "2"]);
}

#[test]
fn c_14_5_the_end_of_the_program_ends_a_read() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["sh", "-c", "read go; echo last; exit 3"]);
    let waiting =
        fixture.command(&["read", &id, "--wait", "never", "--timeout", "60000ms"]).spawn();
    // The answer is the same whether `read` connects before or after the end.
    fixture.write(&id, "\\n");
    let waited = waiting.wait_with_output().unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(
        answer,
        json!({"output": "\nlast\n", "timed_out": true, "status": "ended", "exit_code": 3})
    );
    assert_eq!(
        fixture.report(&["read", &id]),
        json!({"output": "", "status": "ended", "exit_code": 3})
    );
}

#[test]
fn c_14_5_long_output_is_cut_and_reported() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["sh", "-c", "seq 1 400000; echo end; cat"]);
    let shown = fixture.screen(&id, "\nend");
    assert_eq!(shown["screen"].as_str().unwrap().lines().count(), 23);
    let all: String = (1..=400_000).map(|n| format!("{n}\n")).collect::<String>() + "end\n";
    let read = fixture.report(&["read", &id]);
    let output = read["output"].as_str().unwrap();
    assert_eq!(output, &all[all.len() - 24 * 1024..]);
    assert_eq!(read["omitted_bytes"], all.len() - 24 * 1024);
    let kept = fixture.report(&["read", &id, "--lines", "1000000"]);
    assert_eq!(kept["output"].as_str().unwrap(), &all[all.len() - (1 << 20)..]);
}

#[test]
fn c_14_5_output_is_followed_until_the_end() {
    let fixture = PtyFixture::new();
    let script = r"stty -echo; printf '\033[1mbold\033[0m\n'; read go; seq 1 100000; exit 4";
    let id = fixture.start(&["sh", "-c", script]);
    fixture.screen(&id, "bold");
    let text = fixture.command(&["read", &id, "--follow"]).spawn();
    let raw = fixture.command(&["read", &id, "--follow", "--raw"]).spawn();
    let some = fixture.command(&["read", &id, "--follow", "--timeout", "500ms"]).output();
    assert_eq!(some.expect_code(0).stdout, "bold\n");
    fixture.write(&id, "\\n");
    let numbers: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let followed = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(followed(text), format!("bold\n{numbers}"));
    let numbers = numbers.replace('\n', "\r\n");
    assert_eq!(followed(raw), format!("\u{1b}[1mbold\u{1b}[0m\r\n{numbers}"));
    // Following marks nothing as read.
    assert_eq!(fixture.report(&["status", &id])["unread_bytes"], 588_900);
    let again = fixture.command(&["read", &id, "--follow", "--lines", "2"]).output();
    assert_eq!(again.expect_code(0).stdout, "99999\n100000\n");
}
