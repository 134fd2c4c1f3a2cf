//! Programs that need a terminal, driven as an agent would.

use super::Place;

#[test]
fn c_14_5_vim_edits_a_file() {
    let place = Place::new();
    place.sandbox.write("work/notes.txt", "first\nsecond\n");
    let id = place.start(&["vim", "-u", "NONE", "-i", "NONE", "notes.txt"]);
    let rows = place.rows(&id, "notes.txt");
    assert_eq!(rows[..3], ["first", "second", "~"]);
    place.write(&id, "Gothird\\e");
    place.keys(&id, &["Up", "Up", "Home", "x"]);
    let rows = place.rows(&id, "third");
    assert_eq!(rows[..4], ["irst", "second", "third", "~"]);
    let screen = place.screen(&id, "irst");
    assert_eq!(screen["cursor"], serde_json::json!({"row": 1, "col": 1}));
    place.keys(&id, &[":", "w", "Enter"]);
    place.rows(&id, "written");
    assert_eq!(place.sandbox.read("work/notes.txt"), "irst\nsecond\nthird\n");
    place.write(&id, ":q\\r");
    let status = place.until_ended(&id);
    assert_eq!((&status["status"], &status["exit_code"]), (&"ended".into(), &0.into()));
}

#[test]
fn c_14_5_top_shows_its_columns_and_quits() {
    let place = Place::new();
    let id = place.start(&["--cols", "100", "top", "-d", "60"]);
    let screen = place.screen(&id, "COMMAND");
    let text = screen["screen"].as_str().unwrap();
    assert!(text.starts_with("top - "), "{text}");
    assert!(text.contains("load average:") && text.contains("Tasks:"), "{text}");
    // The head of the table stands in inverse video, from its first column to its last.
    let head = screen["highlighted"][0]["text"].as_str().unwrap();
    assert!(head.starts_with("PID USER") && head.ends_with("COMMAND"), "{head}");
    place.write(&id, "q");
    assert_eq!(place.until_ended(&id)["exit_code"], 0);
}

#[test]
fn c_14_5_less_pages_and_searches() {
    let place = Place::new();
    let text: String = (1..=200).map(|n| format!("line {n}\n")).collect();
    place.sandbox.write("work/long.txt", text);
    let id = place.start(&["--rows", "10", "less", "long.txt"]);
    assert_eq!(place.rows(&id, "long.txt")[..2], ["line 1", "line 2"]);
    place.keys(&id, &["PageDown"]);
    let rows = place.rows(&id, "line 18");
    assert_eq!((rows[0].as_str(), rows[8].as_str(), rows.len()), ("line 10", "line 18", 10));
    place.write(&id, "/line 77\\n");
    assert_eq!(place.rows(&id, "line 85")[0], "line 77");
    place.keys(&id, &["End"]);
    let screen = place.screen(&id, "(END)");
    assert_eq!(screen["highlighted"].as_array().unwrap().last().unwrap()["text"], "(END)");
    place.keys(&id, &["Home"]);
    assert_eq!(place.rows(&id, "line 9")[0], "line 1");
    place.write(&id, "q");
    assert_eq!(place.until_ended(&id)["exit_code"], 0);
}

#[test]
fn c_14_5_a_python_prompt_remembers() {
    let place = Place::new();
    let id = place.start(&["python3", "-q"]);
    assert_eq!(place.wait(&id, ">>> "), ">>> ");
    place.write(&id, "def double(n):\\n    return 2 * n\\n\\n");
    let shown = place.wait(&id, "... \n>>> ");
    assert_eq!(shown, "def double(n):\n...     return 2 * n\n... \n>>> ");
    place.write(&id, "double(21)\\n");
    assert_eq!(place.wait(&id, "42\n>>> "), "double(21)\n42\n>>> ");
    place.write(&id, "while True: pass\\n\\n");
    place.wait(&id, "pass\n");
    place.keys(&id, &["C-c"]);
    assert!(place.wait(&id, "KeyboardInterrupt\n>>> ").contains("Traceback"));
    place.write(&id, "exit(3)\\n");
    assert_eq!(place.until_ended(&id)["exit_code"], 3);
}

#[test]
fn c_14_5_a_bash_with_colours_is_text() {
    let place = Place::new();
    let id = place.start_bash();
    place.write(&id, "PS1='\\\\e[32m$\\\\e[0m '; printf '\\\\e[31m%s\\\\e[0m\\\\n' r'e'd\\n");
    assert!(place.wait(&id, "\nred\n$ ").ends_with("\nred\n$ "));
    place.write(&id, "printf '\\\\e[31m%s\\\\e[0m\\\\n' ag'a'in\\n");
    let raw = place.says(&["read", &id, "--raw", "--wait", "\nagain\n$ ", "--timeout", "30000"]);
    let raw = raw["output"].as_str().unwrap();
    assert!(raw.contains("\u{1b}[31magain\u{1b}[0m\r\n"), "{raw:?}");
    // Job control works, for it is a real terminal.
    place.write(&id, "bash -c 'echo rea\"\"dy; read line; echo got $line'\\r");
    place.wait(&id, "\nready\n");
    place.keys(&id, &["C-z"]);
    place.wait(&id, "Stopped");
    place.write(&id, "fg\\r");
    place.wait(&id, "line'\n");
    place.write(&id, "this\\r");
    place.wait(&id, "\ngot this\n$ ");
    place.write(&id, "exit 6\\r");
    assert_eq!(place.until_ended(&id)["exit_code"], 6);
}
