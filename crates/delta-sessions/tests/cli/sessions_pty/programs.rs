//! Programs that need a terminal, driven as an agent would.

use super::PtyFixture;
use test_support::needs;

#[test]
fn c_14_5_vim_edits_a_file() {
    if !needs::programs(&["vim"]) {
        return;
    }
    let fixture = PtyFixture::new();
    fixture.sandbox.write("work/notes.txt", "first\nsecond\n");
    let id = fixture.start(&["vim", "-u", "NONE", "-i", "NONE", "notes.txt"]);
    let rows = fixture.rows(&id, "notes.txt");
    assert_eq!(rows[..3], ["first", "second", "~"]);
    fixture.write(&id, "Gothird\\e");
    fixture.keys(&id, &["Up", "Up", "Home", "x"]);
    let rows = fixture.rows(&id, "third");
    assert_eq!(rows[..4], ["irst", "second", "third", "~"]);
    let screen = fixture.screen(&id, "irst");
    assert_eq!(screen["cursor"], serde_json::json!({"row": 1, "col": 1}));
    fixture.keys(&id, &[":", "w", "Enter"]);
    fixture.rows(&id, "written");
    assert_eq!(fixture.sandbox.read("work/notes.txt"), "irst\nsecond\nthird\n");
    fixture.write(&id, ":q\\r");
    let status = fixture.until_ended(&id);
    assert_eq!((&status["status"], &status["exit_code"]), (&"ended".into(), &0.into()));
}

#[test]
fn c_14_5_top_shows_its_columns_and_quits() {
    if !needs::programs(&["top"]) {
        return;
    }
    let fixture = PtyFixture::new();
    let id = fixture.start(&["--cols", "100", "top", "-d", "60"]);
    let screen = fixture.screen(&id, "COMMAND");
    let text = screen["screen"].as_str().unwrap();
    assert!(text.starts_with("top - "), "{text}");
    assert!(text.contains("load average:") && text.contains("Tasks:"), "{text}");
    // The whole head of the table is in inverse video.
    let head = screen["highlighted"][0]["text"].as_str().unwrap();
    assert!(head.starts_with("PID USER") && head.ends_with("COMMAND"), "{head}");
    fixture.write(&id, "q");
    assert_eq!(fixture.until_ended(&id)["exit_code"], 0);
}

#[test]
fn c_14_5_less_pages_and_searches() {
    if !needs::programs(&["less"]) {
        return;
    }
    let fixture = PtyFixture::new();
    let text: String = (1..=200).map(|n| format!("line {n}\n")).collect();
    fixture.sandbox.write("work/long.txt", text);
    let id = fixture.start(&["--rows", "10", "less", "long.txt"]);
    assert_eq!(fixture.rows(&id, "long.txt")[..2], ["line 1", "line 2"]);
    fixture.keys(&id, &["PageDown"]);
    let rows = fixture.rows(&id, "line 18");
    assert_eq!((rows[0].as_str(), rows[8].as_str(), rows.len()), ("line 10", "line 18", 10));
    fixture.write(&id, "/line 77\\n");
    assert_eq!(fixture.rows(&id, "line 85")[0], "line 77");
    fixture.keys(&id, &["End"]);
    let screen = fixture.screen(&id, "(END)");
    assert_eq!(screen["highlighted"].as_array().unwrap().last().unwrap()["text"], "(END)");
    fixture.keys(&id, &["Home"]);
    assert_eq!(fixture.rows(&id, "line 9")[0], "line 1");
    fixture.write(&id, "q");
    assert_eq!(fixture.until_ended(&id)["exit_code"], 0);
}

#[test]
fn c_14_5_a_python_prompt_remembers() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let fixture = PtyFixture::new();
    let id = fixture.start(&["python3", "-q"]);
    assert_eq!(fixture.wait(&id, ">>> "), ">>> ");
    fixture.write(&id, "def double(n):\\n    return 2 * n\\n\\n");
    let shown = fixture.wait(&id, "... \n>>> ");
    assert_eq!(shown, "def double(n):\n...     return 2 * n\n... \n>>> ");
    fixture.write(&id, "double(21)\\n");
    assert_eq!(fixture.wait(&id, "42\n>>> "), "double(21)\n42\n>>> ");
    fixture.write(&id, "while True: pass\\n\\n");
    fixture.wait(&id, "pass\n");
    fixture.keys(&id, &["C-c"]);
    assert!(fixture.wait(&id, "KeyboardInterrupt\n>>> ").contains("Traceback"));
    fixture.write(&id, "exit(3)\\n");
    assert_eq!(fixture.until_ended(&id)["exit_code"], 3);
}

#[test]
fn c_14_5_a_bash_with_colours_is_text() {
    let fixture = PtyFixture::new();
    let id = fixture.start_bash();
    fixture.write(&id, "PS1='\\\\e[32m$\\\\e[0m '; printf '\\\\e[31m%s\\\\e[0m\\\\n' r'e'd\\n");
    assert!(fixture.wait(&id, "\nred\n$ ").ends_with("\nred\n$ "));
    fixture.write(&id, "printf '\\\\e[31m%s\\\\e[0m\\\\n' ag'a'in\\n");
    let raw =
        fixture.report(&["read", &id, "--raw", "--wait", "\nagain\n$ ", "--timeout", "30000ms"]);
    let raw = raw["output"].as_str().unwrap();
    assert!(raw.contains("\u{1b}[31magain\u{1b}[0m\r\n"), "{raw:?}");
    // Job control works on a real terminal.
    fixture.write(&id, "bash -c 'echo rea\"\"dy; read line; echo got $line'\\r");
    fixture.wait(&id, "\nready\n");
    fixture.keys(&id, &["C-z"]);
    fixture.wait(&id, "Stopped");
    fixture.write(&id, "fg\\r");
    fixture.wait(&id, "line'\n");
    fixture.write(&id, "this\\r");
    fixture.wait(&id, "\ngot this\n$ ");
    fixture.write(&id, "exit 6\\r");
    assert_eq!(fixture.until_ended(&id)["exit_code"], 6);
}
