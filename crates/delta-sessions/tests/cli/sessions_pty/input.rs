//! `write`, `write-key` and `resize`.

use super::PtyFixture;
use serde_json::json;

/// Prints `ready`, then each byte that it receives.
const BYTES: &str = "stty raw -echo; echo ready; exec stdbuf -i0 -o0 od -An -v -w1 -tx1";

impl PtyFixture {
    /// Starts a program that prints each byte. Returns the session id.
    fn start_byte_printer(&self, script: &str) -> String {
        let id = self.start(&["sh", "-c", script]);
        self.wait(&id, "ready");
        id
    }

    /// The bytes that the program received, up to a `!`.
    #[track_caller]
    fn received(&self, id: &str) -> String {
        self.write(id, "!");
        self.wait(id, " 21\n").split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn c_14_5_what_is_written_reaches_the_program() {
    let fixture = PtyFixture::new();
    let id = fixture.start_byte_printer(BYTES);
    let written = fixture.report(&["write", &id, r"a\n\r\t\e\x00\xff\\n"]);
    assert_eq!(written, json!({"session_id": id, "written_bytes": 9}));
    assert_eq!(fixture.received(&id), "61 0a 0d 09 1b 00 ff 5c 6e 21");
    fixture.report(&["write", &id, "--raw", r"\n"]);
    assert_eq!(fixture.received(&id), "5c 6e 21");
    fixture.report(&["write", &id, "-n"]);
    assert_eq!(fixture.received(&id), "2d 6e 21");
    fixture.command(&["write", &id]).stdin(&b"\\n\x04\xe9"[..]).output().expect_code(0);
    assert_eq!(fixture.received(&id), "5c 6e 04 e9 21");
    fixture.keys(&id, &["Enter", "Up", "C-c", "M-x", "F5", "-", "S-Tab", "ä", "C-Right"]);
    assert_eq!(
        fixture.received(&id),
        "0d 1b 5b 41 03 1b 78 1b 5b 31 35 7e 2d 1b 5b 5a c3 a4 1b 5b 31 3b 35 43 21"
    );
    assert_eq!(
        fixture.error(&["write", &id, r"\q"]),
        r"`\q` is not an escape: use \n, \r, \t, \e, \xHH or \\, or `--raw` to type the text unchanged"
    );
    assert_eq!(
        fixture.error(&["write-key", &id, "a", "Entr"]),
        "`Entr` is not a key: expected a character, a name such as Enter, Esc, Tab, Up, PageDown or F1, or one of them after C-, M- or S- (did you mean `enter`?)"
    );
    assert_eq!(fixture.received(&id), "21");
}

#[test]
fn c_14_5_cursor_keys_follow_the_mode_of_the_program() {
    let fixture = PtyFixture::new();
    let id = fixture.start_byte_printer(&format!("printf '\\033[?1h'; {BYTES}"));
    fixture.keys(&id, &["Up", "Home", "PageUp"]);
    assert_eq!(fixture.received(&id), "1b 4f 41 1b 4f 48 1b 5b 35 7e 21");
}

#[test]
fn c_14_5_terminal_queries_are_answered() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&[
        "sh",
        "-c",
        r#"stty -echo raw; printf 'ab\033[6n'; dd bs=1 count=6 2>/dev/null | od -An -c"#,
    ]);
    assert!(fixture.wait(&id, "R").contains("033 [ 1 ; 3 R".replace(' ', "   ").as_str()));
}

#[test]
fn c_14_5_a_program_sees_its_size() {
    let fixture = PtyFixture::new();
    let id = fixture.start_bash();
    fixture.write(&id, "trap 'echo now: $(stty size)' WINCH; stty size\\n");
    fixture.wait(&id, "\n24 80\n");
    let resized = fixture.report(&["resize", &id, "--cols", "132"]);
    assert_eq!(resized, json!({"session_id": id, "cols": 132, "rows": 24}));
    fixture.write(&id, "\\n");
    fixture.wait(&id, "now: 24 132");
    assert_eq!(fixture.report(&["resize", &id, "--rows", "5"])["rows"], 5);
    fixture.write(&id, "stty size; echo $TERM ${COLUMNS-} ${LINES-}\\n");
    fixture.wait(&id, "5 132\nxterm-256color 132 5\n");
    assert_eq!(fixture.report(&["status", &id])["cols"], 132);
    for wrong in [&["--cols", "0"][..], &["--rows", "1001"], &["--cols", "x"], &[]] {
        fixture.usage_error(&[&["resize", &id], wrong].concat());
    }
}

#[test]
fn c_14_5_a_program_that_does_not_read_blocks_nobody() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["sh", "-c", "stty raw -echo; echo ready; sleep 1000"]);
    fixture.wait(&id, "ready");
    let mebibyte = vec![b'x'; 1 << 20];
    let write = |bytes: &[u8]| fixture.command(&["write", &id]).stdin(bytes).output();
    assert_eq!(write(&mebibyte).expect_code(0).json()["written_bytes"], 1 << 20);
    write(&mebibyte).expect_code(0);
    assert_eq!(
        write(b"x").expect_code(1).json(),
        json!({"error": "the program is not reading its input; nothing was written"})
    );
    assert_eq!(
        write(&[&mebibyte[..], b"x"].concat()).expect_code(1).json(),
        json!({"error": "the text is longer than 1048576 bytes: write it in parts"})
    );
    assert_eq!(fixture.report(&["status", &id])["status"], "active");
    assert_eq!(fixture.report(&["end", &id])["status"], "terminated");
}

/// The terminal drops what is longer, so the program would have got a part of the line.
#[test]
fn c_14_5_a_line_that_the_terminal_would_cut_is_refused() {
    let fixture = PtyFixture::new();
    let lines =
        "stty -echo; echo ready; read x; echo ${#x}; read x; echo ${#x}; stty raw; echo now; cat";
    let id = fixture.start(&["bash", "-c", lines]);
    fixture.wait(&id, "ready");
    let write = |bytes: &[u8]| fixture.command(&["write", "--raw", &id]).stdin(bytes).output();
    let longest = [&[b'a'; 4095][..], b"\n"].concat();
    write(&longest).expect_code(0);
    fixture.wait(&id, "4095\n");
    let refused = |length| {
        json!({"error": format!("the terminal takes lines of at most 4095 bytes while the program reads whole lines, and this \
            line has {length}; nothing was written: type shorter lines, or write the text to a file that the program reads")})
    };
    assert_eq!(write(&[b"x\na", &longest[..], b"y"].concat()).expect_code(1).json(), refused(4096));
    // The parts of a line count together.
    write(&[b'a'; 3000]).expect_code(0);
    assert_eq!(write(&[b'a'; 1096]).expect_code(1).json(), refused(4096));
    write(b"\n").expect_code(0);
    fixture.wait(&id, "3000\nnow");
    write(&[b'a'; 5000]).expect_code(0);
    write(&[b'a'; 5000]).expect_code(0);
}
