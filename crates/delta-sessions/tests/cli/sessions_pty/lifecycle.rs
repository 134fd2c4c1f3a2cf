//! From `start` to `cleanup`, and what remains after failures.

use super::{PTY, PtyFixture};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use test_support::needs;
use test_support::running::{Running, send_signal};
use test_support::wait::{is_alive, processes_with, until};

#[test]
fn c_14_5_from_start_to_cleanup() {
    let fixture = PtyFixture::new();
    let started = fixture.report(&["start", "--rows", "10", "cat", "-", "--", "-"]);
    let id = started["session_id"].as_str().unwrap();
    assert!(id.starts_with("sess_") && id.len() == 13, "{id}");
    let work_dir = fixture.sandbox.path("work").display().to_string();
    assert_eq!(
        started,
        json!({"session_id": id, "command": "cat - -- -", "work_dir": work_dir, "status": "active"})
    );
    let status = fixture.report(&["status", id]);
    let (pid, created) = (status["pid"].clone(), status["created_at"].clone());
    let expected = json!({
        "session_id": id, "command": "cat - -- -", "created_at": created, "status": "active",
        "work_dir": work_dir, "cols": 80, "rows": 10, "pid": pid, "attached": false, "unread_bytes": 0,
    });
    assert_eq!(status, expected);
    let line = |status: &str| json!({"session_id": id, "command": "cat - -- -", "status": status, "created_at": created});
    assert_eq!(fixture.report(&["list"]), json!([line("active")]));
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": []}));
    let holder = fixture.holder(id);
    for _ in 0..2 {
        assert_eq!(fixture.report(&["end", id]), json!({"status": "terminated", "session_id": id}));
    }
    let mut ended = line("terminated");
    ended["exit_code"] = 129.into();
    assert_eq!(fixture.report(&["list"]), json!([ended]));
    assert_eq!(
        fixture.error(&["write", id, "x"]),
        format!("session `{id}` has ended: start a new one with `delta-sessions-pty start`")
    );
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": [id]}));
    assert_eq!(fixture.report(&["list"]), json!([]));
    assert_eq!(fixture.sandbox.files("work"), [".sessions-pty/.gitignore"]);
    until("the end of the holder", || (!is_alive(holder)).then_some(()));
    assert!(!is_alive(pid.as_i64().unwrap().try_into().unwrap()));
}

#[test]
fn c_14_5_a_failed_start_leaves_nothing() {
    let fixture = PtyFixture::new();
    fixture.sandbox.write("work/text", "no program\n");
    fixture.sandbox.write_program("work/lost", "#!/no/such/interpreter\n");
    for (command, error) in [
        (&["no-such-program", "-x"][..], "program `no-such-program` was not found in PATH"),
        (&["./text"], "`./text` is not executable (no x permission)"),
        (&["./lost"], "the interpreter `/no/such/interpreter` of `./lost` was not found"),
        (&[" "], "missing command: pass the program to start, with its arguments"),
    ] {
        assert_eq!(fixture.error(&[&["start"], command].concat()), error);
    }
    assert_eq!(fixture.sandbox.files("work"), [".sessions-pty/.gitignore", "lost", "text"]);
    assert_eq!(fixture.report(&["list"]), json!([]));
    assert!(fixture.usage_error(&["start", "--cols", "1001"]).contains("a number from 1 to 1000"));
}

#[test]
fn c_14_5_a_killed_start_leaves_nothing() {
    let fixture = PtyFixture::new();
    let begun = fixture.sandbox.path("work/.sessions-pty/.sess_begun");
    std::fs::create_dir_all(&begun).unwrap();
    // Nothing reads the answer of the holder.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let holder = ["holder", "sess_begun", "--cols", "80", "--rows", "24", "--", "cat"];
    let mut holder = fixture.sandbox.delta(holder).cwd(&begun);
    let status = holder.command().stdout(writer).stdin(std::process::Stdio::null()).status();
    assert!(status.unwrap().success());
    assert_eq!(fixture.sandbox.files("work"), Vec::<String>::new());
    // Old unfinished directories without a holder are removed.
    for (name, age) in [(".sess_old", "2 minutes ago"), (".sess_new", "now")] {
        let dir = fixture.sandbox.path(&format!("work/.sessions-pty/{name}"));
        std::fs::create_dir(&dir).unwrap();
        let touched = std::process::Command::new("touch").args(["-d", age]).arg(dir).status();
        assert!(touched.unwrap().success());
    }
    assert_eq!(fixture.report(&["list"]), json!([]));
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": []}));
    let left = std::fs::read_dir(fixture.sandbox.path("work/.sessions-pty")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".sess_new"]);
}

#[test]
fn c_14_5_a_session_is_private_and_found_where_it_was_started() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["cat"]);
    let mode = |path: &str| {
        let path = fixture.sandbox.path(&format!("work/.sessions-pty{path}"));
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode(&format!("/{id}"))), (0o700, 0o700));
    for name in ["socket", "lock", "metadata.json"] {
        assert_eq!(mode(&format!("/{id}/{name}")), 0o600, "{name}");
    }
    let elsewhere = fixture.sandbox.path("home").display().to_string();
    let refused = fixture.command(&["status", &id]).cwd(&elsewhere).output().expect_code(1).json();
    let error = format!(
        "there is no session `{id}` in {elsewhere}: sessions are found only in the directory where they were started (`delta-sessions-pty list`)"
    );
    assert_eq!(refused, json!({"error": error}));
    assert_eq!(
        fixture.error(&["read", "../x"]),
        "`../x` is not a session id: expected the `session_id` that `delta-sessions-pty start` printed, such as `sess_a1b2c3d4`"
    );
    std::os::unix::fs::symlink(
        fixture.sandbox.path("work/.sessions-pty"),
        fixture.sandbox.path("home/.sessions-pty"),
    )
    .unwrap();
    for command in [&["list"][..], &["start", "cat"], &["status", &id]] {
        let refused = fixture.command(command).cwd(&elsewhere).output().expect_code(1).json();
        let error = refused["error"].as_str().unwrap();
        let expected = match command[0] {
            "status" => format!("there is no session `{id}` in {elsewhere}"),
            "list" => {
                format!("{elsewhere}/.sessions-pty is not a directory (symlinks are not followed)")
            }
            _ => format!("the directory {elsewhere}/.sessions-pty: it is a symlink"),
        };
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn c_14_5_a_session_that_ended_by_itself_can_be_read() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["sh", "-c", "echo said; read go; echo more; exit 7"]);
    let holder = fixture.holder(&id);
    fixture.wait(&id, "said");
    fixture.write(&id, "\\n");
    let status = fixture.until_ended(&id);
    assert_eq!((&status["status"], &status["exit_code"]), (&"ended".into(), &7.into()));
    assert!(status["ended_at"].as_str().unwrap().ends_with('Z'));
    until("the end of the holder", || (!is_alive(holder)).then_some(()));
    let error = format!(
        "the program of session `{id}` has ended: `delta-sessions-pty read {id}` prints its last output"
    );
    assert_eq!(fixture.error(&["write-key", &id, "q"]), error);
    assert_eq!(fixture.error(&["resize", &id, "--cols", "10"]), error);
    let ended = |output: &str| json!({"output": output, "status": "ended", "exit_code": 7});
    assert_eq!(fixture.report(&["read", &id, "--lines", "1"]), ended("more\n"));
    assert_eq!(fixture.report(&["read", &id, "--wait", "more"]), ended("\nmore\n"));
    assert_eq!(fixture.report(&["read", &id]), ended(""));
    assert_eq!(fixture.rows(&id, "more"), ["said", "", "more"]);
    assert_eq!(fixture.report(&["end", &id])["status"], "terminated");
    assert_eq!(fixture.report(&["list"])[0]["exit_code"], 7);
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": [id]}));
}

/// The kernel first looks for output, then whether the terminal was closed. When a program printed its last line and ended in
/// between, the holder's read failed and the line was lost. strace reproduces this: it stops the holder until the program has
/// ended, then makes the first read fail.
#[test]
fn c_14_5_the_last_output_survives_a_closing_terminal() {
    if !needs::programs(&["strace"]) {
        return;
    }
    let fixture = PtyFixture::new();
    let id = "sess_12345678";
    let begun = fixture.sandbox.path(&format!("work/.sessions-pty/.{id}"));
    std::fs::create_dir_all(&begun).unwrap();
    let log = fixture.sandbox.path("strace.log");
    let mut strace = std::process::Command::new("strace");
    strace.args(["-P", "/dev/ptmx", "-P", "/dev/pts/ptmx", "-e", "trace=read,?poll,ppoll"]);
    strace.args(["-e", "inject=?poll,ppoll:signal=SIGSTOP:when=1"]);
    strace.args(["-e", "inject=read:error=EIO:when=1", "-o"]).arg(&log).arg(&*PTY);
    strace.args(["holder", id, "--cols", "80", "--rows", "24", "--", "echo", "said"]);
    strace.current_dir(&begun).stdout(std::process::Stdio::null());
    let mut strace = Running::start(&mut strace);
    let traced = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    until("the holder to stop", || traced("--- stopped by SIGSTOP ---").then_some(()));
    let metadata = fixture.sandbox.read(&format!("work/.sessions-pty/{id}/metadata.json"));
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let pid = metadata["pid"].as_i64().unwrap().try_into().unwrap();
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    assert!(send_signal("CONT", fixture.holder(id)));
    assert!(strace.wait().unwrap().success());
    assert!(traced("(INJECTED)"), "{}", fixture.sandbox.read("strace.log"));
    let ended = json!({"output": "said\n", "status": "ended", "exit_code": 0});
    assert_eq!(fixture.report(&["read", id]), ended);
}

#[test]
fn c_14_5_a_dead_holder_is_reported_and_cleaned() {
    let fixture = PtyFixture::new();
    let (dead, other) = (fixture.start(&["cat"]), fixture.start(&["cat"]));
    let pid = fixture.pid(&dead);
    assert!(send_signal("KILL", fixture.holder(&dead)));
    // The kernel hangs up.
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    let status = fixture.report(&["status", &dead]);
    assert_eq!((&status["status"], &status["pid"]), (&"dead".into(), &pid.into()));
    let error = format!(
        "the holder process of session `{dead}` is gone, and the program with it: `delta-sessions-pty cleanup` removes the session"
    );
    for command in [&["read", &dead][..], &["write", &dead, "x"], &["detach", &dead]] {
        assert_eq!(fixture.error(command), error);
    }
    let state = |id: &str| {
        let listed = fixture.report(&["list"]);
        let found = listed.as_array().unwrap().iter().find(|one| one["session_id"] == id);
        found.map_or(Value::Null, |one| one["status"].clone())
    };
    assert_eq!((state(&dead), state(&other)), ("dead".into(), "active".into()));
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": [dead]}));
    assert_eq!((state(&dead), state(&other)), (Value::Null, "active".into()));
    // A damaged session is listed by the name of its directory.
    std::fs::create_dir(fixture.sandbox.path("work/.sessions-pty/sess_damaged")).unwrap();
    assert_eq!(state("sess_damaged"), "damaged");
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": ["sess_damaged"]}));
    // One whose program still runs was left, although its error names this command.
    let held = fixture.start(&["cat"]);
    let pid = fixture.pid(&held);
    fixture.sandbox.write(&format!("work/.sessions-pty/{held}/metadata.json"), "{");
    assert_eq!(state(&held), "damaged");
    assert_eq!(fixture.report(&["cleanup"]), json!({"removed": [held]}));
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    assert_eq!(fixture.report(&["cleanup", "--all"]), json!({"removed": [other]}));
}

#[test]
fn c_14_5_end_kills_children_and_processes_that_ignore_signals() {
    let fixture = PtyFixture::new();
    let script = "trap '' HUP TERM; (trap '' HUP TERM; sleep 1000) & echo started; while :; do sleep 1000; done";
    let id = fixture.start(&["bash", "-c", script]);
    fixture.wait(&id, "started");
    let mark = format!("DELTA_SESSION_ID={id}");
    let of_session = || processes_with(&[&mark]);
    assert!(of_session().len() >= 3, "{:?}", of_session());
    assert_eq!(fixture.report(&["end", &id])["status"], "terminated");
    until("the end of all", || of_session().iter().all(|pid| !is_alive(*pid)).then_some(()));
    assert_eq!(fixture.report(&["status", &id])["exit_code"], 137);
}

#[test]
fn c_14_5_a_session_whose_directory_is_removed_ends() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["cat"]);
    let pid = fixture.pid(&id);
    std::fs::remove_dir_all(fixture.sandbox.path("work/.sessions-pty")).unwrap();
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    assert_eq!(fixture.report(&["list"]), json!([]));
}

#[test]
fn c_14_5_the_key_is_not_in_the_environment() {
    let fixture = PtyFixture::new();
    let secret = "sk-0123456789abcdef";
    let mut start = fixture.command(&["start", "sh", "-c", "env; echo end; cat"]);
    for name in
        ["DELTA_API_KEY", "OPENAI_API_KEY", "DELTA_RUN_ID", "DELTA_CALL_ID", "RUN_DIR", "COLUMNS"]
    {
        start = start.env(name, secret);
    }
    let started = start.env("KEPT", "kept").output().expect_code(0).json();
    let id = started["session_id"].as_str().unwrap();
    let shown = fixture.wait(id, "\nend\n");
    assert!(!shown.contains(secret), "{shown}");
    for line in ["KEPT=kept", "TERM=xterm-256color", &format!("DELTA_SESSION_ID={id}")] {
        assert!(shown.lines().any(|one| one == line), "{line} is not in {shown}");
    }
    assert!(processes_with(&[&format!("DELTA_API_KEY={secret}"), "KEPT=kept"]).is_empty());
}
