//! write, write-key and resize.

use super::Place;
use serde_json::json;

/// A program that says each byte that it is given, once it has said that it is ready.
const BYTES: &str = "stty raw -echo; echo ready; exec stdbuf -i0 -o0 od -An -v -w1 -tx1";

impl Place {
    /// Starts a program that shows each byte; gives its session.
    fn start_bytes(&self, script: &str) -> String {
        let id = self.start(&["sh", "-c", script]);
        self.wait(&id, "ready");
        id
    }

    /// What the program that shows bytes is given, up to a `!`.
    #[track_caller]
    fn given(&self, id: &str) -> String {
        self.write(id, "!");
        self.wait(id, " 21\n").split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn c_14_5_what_is_written_reaches_the_program() {
    let place = Place::new();
    let id = place.start_bytes(BYTES);
    let written = place.says(&["write", &id, r"a\n\r\t\e\x00\xff\\n"]);
    assert_eq!(written, json!({"session_id": id, "written_bytes": 9}));
    assert_eq!(place.given(&id), "61 0a 0d 09 1b 00 ff 5c 6e 21");
    place.says(&["write", &id, "--raw", r"\n"]);
    assert_eq!(place.given(&id), "5c 6e 21");
    place.says(&["write", &id, "-n"]);
    assert_eq!(place.given(&id), "2d 6e 21");
    place.command(&["write", &id]).stdin(&b"\\n\x04\xe9"[..]).output().expect_code(0);
    assert_eq!(place.given(&id), "5c 6e 04 e9 21");
    place.keys(&id, &["Enter", "Up", "C-c", "M-x", "F5", "-", "S-Tab", "ä", "C-Right"]);
    assert_eq!(
        place.given(&id),
        "0d 1b 5b 41 03 1b 78 1b 5b 31 35 7e 2d 1b 5b 5a c3 a4 1b 5b 31 3b 35 43 21"
    );
    assert_eq!(
        place.refuses(&["write", &id, r"\q"]),
        r"`\q` is no escape: write \n, \r, \t, \e, \xHH or \\, or give `--raw` for a text without escapes"
    );
    assert_eq!(
        place.refuses(&["write-key", &id, "a", "Entr"]),
        "`Entr` is no key: write a character, a name such as Enter, Esc, Tab, Up, PageDown, F1, or one with C-, M- or S- before it (did you mean `enter`?)"
    );
    assert_eq!(place.given(&id), "21");
}

#[test]
fn c_14_5_cursor_keys_are_those_that_the_program_asked_for() {
    let place = Place::new();
    let id = place.start_bytes(&format!("printf '\\033[?1h'; {BYTES}"));
    place.keys(&id, &["Up", "Home", "PageUp"]);
    assert_eq!(place.given(&id), "1b 4f 41 1b 4f 48 1b 5b 35 7e 21");
}

#[test]
fn c_14_5_a_program_that_asks_its_terminal_is_answered() {
    let place = Place::new();
    let id = place.start(&[
        "sh",
        "-c",
        r#"stty -echo raw; printf 'ab\033[6n'; dd bs=1 count=6 2>/dev/null | od -An -c"#,
    ]);
    assert!(place.wait(&id, "R").contains("033 [ 1 ; 3 R".replace(' ', "   ").as_str()));
}

#[test]
fn c_14_5_a_program_sees_its_size() {
    let place = Place::new();
    let id = place.start_bash();
    place.write(&id, "trap 'echo now: $(stty size)' WINCH; stty size\\n");
    place.wait(&id, "\n24 80\n");
    let resized = place.says(&["resize", &id, "--cols", "132"]);
    assert_eq!(resized, json!({"session_id": id, "cols": 132, "rows": 24}));
    place.write(&id, "\\n");
    place.wait(&id, "now: 24 132");
    assert_eq!(place.says(&["resize", &id, "--rows", "5"])["rows"], 5);
    place.write(&id, "stty size; echo $TERM ${COLUMNS-} ${LINES-}\\n");
    place.wait(&id, "5 132\nxterm-256color 132 5\n");
    assert_eq!(place.says(&["status", &id])["cols"], 132);
    for wrong in [&["--cols", "0"][..], &["--rows", "1001"], &["--cols", "x"], &[]] {
        place.misused(&[&["resize", &id], wrong].concat());
    }
}

#[test]
fn c_14_5_a_program_that_does_not_read_keeps_nobody_waiting() {
    let place = Place::new();
    let id = place.start(&["sh", "-c", "stty raw -echo; echo ready; sleep 1000"]);
    place.wait(&id, "ready");
    let mebibyte = vec![b'x'; 1 << 20];
    let write = |bytes: &[u8]| place.command(&["write", &id]).stdin(bytes).output();
    assert_eq!(write(&mebibyte).expect_code(0).json()["written_bytes"], 1 << 20);
    write(&mebibyte).expect_code(0);
    assert_eq!(
        write(b"x").expect_code(1).json(),
        json!({"error": "the program does not read what is typed; nothing was written"})
    );
    assert_eq!(
        write(&[&mebibyte[..], b"x"].concat()).expect_code(1).json(),
        json!({"error": "at most 1048576 bytes are written at once: write the text in parts"})
    );
    assert_eq!(place.says(&["status", &id])["status"], "active");
    assert_eq!(place.says(&["end", &id])["status"], "terminated");
}
