//! Sessions of Python, and of commands without a state (C-14.3).

use super::{PYTHON, Session};
use serde_json::{Value, json};
use test_support::needs;

fn answer(stdout: &str, stderr: &str, exit_code: i32) -> Value {
    json!({"stdout": stdout, "stderr": stderr, "exit_code": exit_code})
}

#[test]
fn c_14_3_names_that_cannot_be_kept_are_named() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start(&[&PYTHON]);
    let answer = session.exec("import threading\nx = 1\nlock = threading.Lock()\ngen = (i for i in [])\nnested = {'a': [lock]}\nf = open('/dev/null')");
    let lost = json!(["f", "gen", "lock", "nested"]);
    assert_eq!(answer, json!({"stdout": "", "stderr": "", "exit_code": 0, "not_preserved": lost}));
    assert_eq!(
        session.stdout_of("x, 'lock' in globals(), threading.__name__"),
        "(1, False, 'threading')\n"
    );
    // So are names that can be pickled but not unpickled.
    let text = "class E(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\ne = E(1, 2)";
    assert_eq!(session.exec(text)["not_preserved"], json!(["e"]));
    assert_eq!(session.stdout_of("E.__name__, x"), "('E', 1)\n");
}

/// The interpreter crashed when it saved them, and all of the command was lost.
#[test]
fn c_14_3_objects_too_deep_to_be_pickled_are_named_under_any_recursion_limit() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start(&[&PYTHON]);
    let text = "import sys\nsys.setrecursionlimit(10 ** 6)\nclass Node:\n    pass\ndef chain(n):\n    head = None\n    for _ in range(n):\n        node = Node()\n        node.next, head = head, node\n    return head\n";
    let answer = session.exec(&format!("{text}x = 1\ndeep = chain(50000)\nlong = chain(1000)"));
    assert_eq!((&answer["exit_code"], &answer["not_preserved"]), (&json!(0), &json!(["deep"])));
    let text = "n = 0\nwhile long:\n    n, long = n + 1, long.next\nn, x, sys.getrecursionlimit()";
    assert_eq!(session.stdout_of(text), "(1000, 1, 1000000)\n");
}

#[test]
fn c_14_3_only_the_last_value_is_shown() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start(&[&PYTHON]);
    assert_eq!(session.stdout_of("1\n2\nx = 3\nx + 1"), "4\n");
    assert_eq!(session.stdout_of("x\ny = 1"), "");
    assert_eq!(session.stdout_of("for i in range(2):\n    i"), "");
    assert_eq!(session.stdout_of(""), "");
}

#[test]
fn c_14_3_exit_codes_and_exceptions() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start(&[&PYTHON]);
    assert_eq!(session.exec("a = 1\nexit(3)"), answer("", "", 3));
    assert_eq!(session.exec("b = a + 1\nraise SystemExit('why')"), answer("", "why\n", 1));
    let trace = "Traceback (most recent call last):\n  File \"<stdin>\", line 2, in <module>\nZeroDivisionError: division by zero\n";
    let failed = session.exec("c = b + 1\n1 / 0\nd = 1");
    assert_eq!((&failed["stderr"], &failed["exit_code"]), (&json!(trace), &json!(1)));
    let wrong = session.exec("c = 100\nd = = 1");
    assert!(wrong["stderr"].as_str().unwrap().contains("SyntaxError"), "{wrong}");
    assert_eq!(session.stdout_of("a, b, c, 'd' in globals()"), "(1, 2, 3, False)\n");
    let note = "the interpreter did not exit normally (a signal, `os._exit`, `os.exec*` or a full disk); the session keeps its previous state";
    let mut expected = answer("", "", 4);
    expected["note"] = json!(note);
    assert_eq!(session.exec("import os\na = 2\nos._exit(4)"), expected);
    assert_eq!(session.stdout_of("a"), "1\n");
}

#[test]
fn c_14_3_a_timeout_keeps_the_previous_state() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start(&[&PYTHON]);
    session.stdout_of("a = 1");
    let late = session.exec_with("a = 2\nimport time\ntime.sleep(600)", &["--timeout-ms", "1500"]);
    assert_eq!((&late["exit_code"], &late["timed_out"]), (&json!(124), &json!(true)));
    assert_eq!(session.stdout_of("a"), "1\n");
}

#[test]
fn c_14_3_a_removed_directory_and_a_future_import_persist() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start(&[&PYTHON]);
    session.stdout_of(
        "from __future__ import annotations\nimport os\nos.makedirs('a/b')\nos.chdir('a/b')",
    );
    std::fs::remove_dir_all(session.sandbox.path("work/a")).unwrap();
    assert_eq!(
        session.stdout_of("def f(x: undefined): return 1\nf(0), os.path.exists('f')"),
        "(1, False)\n"
    );
    assert!(!session.sandbox.path("work/a").exists());
    assert_eq!(session.stdout_of("os.chdir('/')\nos.getcwd()"), "'/'\n");
}

/// The interpreter starts in a directory of the session, and its programs took that for theirs.
#[test]
fn c_14_3_pwd_names_the_directory_of_the_session() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let session = Session::start_with(&[&PYTHON], |delta| delta.env("PWD", "/tmp"));
    let work = session.sandbox.path("work").canonicalize().unwrap().display().to_string();
    for _ in 0..2 {
        assert_eq!(session.stdout_of("import os\nprint(os.environ['PWD'])"), format!("{work}\n"));
    }
    assert_eq!(session.stdout_of("os.environ['PWD'] = 'x'"), "");
    assert_eq!(session.stdout_of("print(os.environ['PWD'])"), "x\n");
}

#[test]
fn c_14_3_any_other_command_gets_the_text_on_stdin() {
    let session = Session::start_with(&["sh", "-s"], |delta| delta.env("GIVEN", "yes"));
    assert_eq!(session.stdout_of("x=1; echo $GIVEN ${PWD##*/} $x"), "yes work 1\n");
    // Only files outlive such a command.
    assert_eq!(session.stdout_of("cd /; echo kept > \"$OLDPWD/file\"; echo ${x-unset}"), "unset\n");
    assert_eq!(session.stdout_of("cat file; echo ${PWD##*/} ${OTHER-unset}"), "kept\nwork unset\n");
    let counting = Session::start(&["wc -c"]);
    assert_eq!(counting.stdout_of("12345").trim(), "5");
    let failing = Session::start(&["sh"]);
    assert_eq!(failing.exec("exit 9"), answer("", "", 9));
}

#[test]
fn c_14_3_a_database_keeps_only_what_it_writes() {
    if !needs::programs(&["sqlite3"]) {
        return;
    }
    let session = Session::start(&["sqlite3", "notes.db"]);
    assert_eq!(
        session.stdout_of("create table notes(text);\ninsert into notes values ('milk');"),
        ""
    );
    assert_eq!(session.stdout_of("select text from notes;"), "milk\n");
    // Transactions, temporary tables and settings end with the command.
    assert_eq!(session.stdout_of("begin; insert into notes values ('lost');\n.mode line"), "");
    let temporary = "create temp table t(x); insert into t values (1); select x from t;";
    assert_eq!(session.stdout_of(temporary), "1\n");
    assert_eq!(session.stdout_of("select count(*), 'x' from notes;"), "1|x\n");
    for wrong in ["select x from t;", "insert into notes values ('after'); nonsense;"] {
        let failed = session.exec(wrong);
        assert_ne!((&failed["stderr"], &failed["exit_code"]), (&json!(""), &json!(0)), "{wrong}");
    }
    // The statements before the wrong one took effect.
    assert_eq!(session.stdout_of("select text from notes;"), "milk\nafter\n");
    assert_eq!(session.metadata()["execution_count"], 8);
}
