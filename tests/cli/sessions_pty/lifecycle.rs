//! From start to cleanup, and what is left when something goes wrong.

use super::{PTY, Place};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use test_support::running::Running;
use test_support::wait::{is_alive, processes_with, until};

fn kill(pid: i32, signal: &str) {
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn c_14_5_from_start_to_cleanup() {
    let place = Place::new();
    let started = place.says(&["start", "--rows", "10", "cat", "-", "--", "-"]);
    let id = started["session_id"].as_str().unwrap();
    assert!(id.starts_with("sess_") && id.len() == 13, "{id}");
    let work_dir = place.sandbox.path("work").display().to_string();
    assert_eq!(
        started,
        json!({"session_id": id, "command": "cat - -- -", "work_dir": work_dir, "status": "active"})
    );
    let status = place.says(&["status", id]);
    let (pid, created) = (status["pid"].clone(), status["created_at"].clone());
    let expected = json!({
        "session_id": id, "command": "cat - -- -", "created_at": created, "status": "active",
        "work_dir": work_dir, "cols": 80, "rows": 10, "pid": pid, "attached": false, "unread_bytes": 0,
    });
    assert_eq!(status, expected);
    let line = |status: &str| json!({"session_id": id, "command": "cat - -- -", "status": status, "created_at": created});
    assert_eq!(place.says(&["list"]), json!([line("active")]));
    assert_eq!(place.says(&["cleanup"]), json!({"removed": []}));
    let holder = place.holder(id);
    for _ in 0..2 {
        assert_eq!(place.says(&["end", id]), json!({"status": "terminated", "session_id": id}));
    }
    let mut ended = line("terminated");
    ended["exit_code"] = 129.into();
    assert_eq!(place.says(&["list"]), json!([ended]));
    assert_eq!(
        place.refuses(&["write", id, "x"]),
        format!("the session `{id}` was ended: start another with `delta-sessions-pty start`")
    );
    assert_eq!(place.says(&["cleanup"]), json!({"removed": [id]}));
    assert_eq!(place.says(&["list"]), json!([]));
    assert_eq!(place.sandbox.files("work"), Vec::<String>::new());
    until("the end of the holder", || (!is_alive(holder)).then_some(()));
    assert!(!is_alive(pid.as_i64().unwrap().try_into().unwrap()));
}

#[test]
fn c_14_5_what_does_not_start_leaves_nothing() {
    let place = Place::new();
    place.sandbox.write("work/text", "no program\n");
    place.sandbox.write_program("work/lost", "#!/no/such/interpreter\n");
    for (command, error) in [
        (&["no-such-program", "-x"][..], "program `no-such-program` was not found in PATH"),
        (&["./text"], "`./text` is not executable (no x permission)"),
        (&["./lost"], "the interpreter `/no/such/interpreter` of `./lost` was not found"),
        (&[" "], "there is no command: give it as the argument behind the id, or on stdin"),
    ] {
        assert_eq!(place.refuses(&[&["start"], command].concat()), error);
    }
    assert_eq!(place.sandbox.files("work"), ["lost", "text"]);
    assert_eq!(place.says(&["list"]), json!([]));
    assert!(place.misused(&["start", "--cols", "1001"]).contains("a number from 1 to 1000"));
}

#[test]
fn c_14_5_a_start_that_was_killed_leaves_nothing() {
    let place = Place::new();
    let begun = place.sandbox.path("work/.sessions-pty/.sess_begun");
    std::fs::create_dir_all(&begun).unwrap();
    // Nobody hears that the session is there.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let holder = ["holder", "sess_begun", "--cols", "80", "--rows", "24", "--", "cat"];
    let mut holder = place.sandbox.delta(holder).cwd(&begun);
    let status = holder.command().stdout(writer).stdin(std::process::Stdio::null()).status();
    assert!(status.unwrap().success());
    assert_eq!(place.sandbox.files("work"), Vec::<String>::new());
    // What was begun and has no holder is removed when it is old.
    for (name, age) in [(".sess_old", "2 minutes ago"), (".sess_new", "now")] {
        let dir = place.sandbox.path(&format!("work/.sessions-pty/{name}"));
        std::fs::create_dir(&dir).unwrap();
        let touched = std::process::Command::new("touch").args(["-d", age]).arg(dir).status();
        assert!(touched.unwrap().success());
    }
    assert_eq!(place.says(&["list"]), json!([]));
    assert_eq!(place.says(&["cleanup"]), json!({"removed": []}));
    let left = std::fs::read_dir(place.sandbox.path("work/.sessions-pty")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".sess_new"]);
}

#[test]
fn c_14_5_a_session_is_private_and_found_where_it_was_started() {
    let place = Place::new();
    let id = place.start(&["cat"]);
    let mode = |path: &str| {
        let path = place.sandbox.path(&format!("work/.sessions-pty{path}"));
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode(&format!("/{id}"))), (0o700, 0o700));
    for name in ["socket", "lock", "metadata.json"] {
        assert_eq!(mode(&format!("/{id}/{name}")), 0o600, "{name}");
    }
    let elsewhere = place.sandbox.path("home").display().to_string();
    let refused = place.command(&["status", &id]).cwd(&elsewhere).output().expect_code(1).json();
    let error = format!(
        "there is no session `{id}` in {elsewhere}: sessions are found in the directory in which they were started (`delta-sessions-pty list`)"
    );
    assert_eq!(refused, json!({"error": error}));
    assert_eq!(
        place.refuses(&["read", "../x"]),
        "`../x` is not a session id: write what `delta-sessions-pty start` gave as `session_id`, such as `sess_a1b2c3d4`"
    );
    std::os::unix::fs::symlink(
        place.sandbox.path("work/.sessions-pty"),
        place.sandbox.path("home/.sessions-pty"),
    )
    .unwrap();
    for command in [&["list"][..], &["start", "cat"], &["status", &id]] {
        let refused = place.command(command).cwd(&elsewhere).output().expect_code(1).json();
        let error = format!(
            "{elsewhere}/.sessions-pty is not a directory: sessions are not led elsewhere by what stands there"
        );
        assert_eq!(refused, json!({"error": error}));
    }
}

#[test]
fn c_14_5_a_session_that_ended_by_itself_can_be_read() {
    let place = Place::new();
    let id = place.start(&["sh", "-c", "echo said; read go; echo more; exit 7"]);
    let holder = place.holder(&id);
    place.wait(&id, "said");
    place.write(&id, "\\n");
    let status = place.until_ended(&id);
    assert_eq!((&status["status"], &status["exit_code"]), (&"ended".into(), &7.into()));
    assert!(status["ended_at"].as_str().unwrap().ends_with('Z'));
    until("the end of the holder", || (!is_alive(holder)).then_some(()));
    let error = format!(
        "the program of the session `{id}` has ended: `read` shows what it left, `start` starts another"
    );
    assert_eq!(place.refuses(&["write-key", &id, "q"]), error);
    assert_eq!(place.refuses(&["resize", &id, "--cols", "10"]), error);
    let ended = |output: &str| json!({"output": output, "status": "ended", "exit_code": 7});
    assert_eq!(place.says(&["read", &id, "--lines", "1"]), ended("more\n"));
    assert_eq!(place.says(&["read", &id, "--wait", "more"]), ended("\nmore\n"));
    assert_eq!(place.says(&["read", &id]), ended(""));
    assert_eq!(place.rows(&id, "more"), ["said", "", "more"]);
    assert_eq!(place.says(&["end", &id])["status"], "terminated");
    assert_eq!(place.says(&["list"])[0]["exit_code"], 7);
    assert_eq!(place.says(&["cleanup"]), json!({"removed": [id]}));
}

/// The kernel looks for output first, and then whether the terminal was closed. A program that printed its last line and
/// ended between the two had the holder's read fail although the line was there, and it was lost. strace makes the moment:
/// it stops the holder until its program has ended, and then lets its first read fail.
#[test]
fn c_14_5_what_a_program_printed_last_is_not_lost_with_its_terminal() {
    let place = Place::new();
    let id = "sess_12345678";
    let begun = place.sandbox.path(&format!("work/.sessions-pty/.{id}"));
    std::fs::create_dir_all(&begun).unwrap();
    let log = place.sandbox.path("strace.log");
    let mut strace = std::process::Command::new("strace");
    strace.args(["-P", "/dev/ptmx", "-P", "/dev/pts/ptmx", "-e", "trace=read,?poll,ppoll"]);
    strace.args(["-e", "inject=?poll,ppoll:signal=SIGSTOP:when=1"]);
    strace.args(["-e", "inject=read:error=EIO:when=1", "-o"]).arg(&log).arg(PTY);
    strace.args(["holder", id, "--cols", "80", "--rows", "24", "--", "echo", "said"]);
    strace.current_dir(&begun).stdout(std::process::Stdio::null());
    let mut strace = Running::start(&mut strace);
    let traced = |text: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
    until("the holder to stop", || traced("--- stopped by SIGSTOP ---").then_some(()));
    let metadata = place.sandbox.read(&format!("work/.sessions-pty/{id}/metadata.json"));
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let pid = metadata["pid"].as_i64().unwrap().try_into().unwrap();
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    kill(place.holder(id), "-CONT");
    assert!(strace.wait().unwrap().success());
    assert!(traced("(INJECTED)"), "{}", place.sandbox.read("strace.log"));
    let ended = json!({"output": "said\n", "status": "ended", "exit_code": 0});
    assert_eq!(place.says(&["read", id]), ended);
}

#[test]
fn c_14_5_a_dead_holder_is_reported_and_cleaned() {
    let place = Place::new();
    let (dead, other) = (place.start(&["cat"]), place.start(&["cat"]));
    let pid = place.pid(&dead);
    kill(place.holder(&dead), "-KILL");
    // The kernel hangs up.
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    let status = place.says(&["status", &dead]);
    assert_eq!((&status["status"], &status["pid"]), (&"dead".into(), &pid.into()));
    let error = format!(
        "the holder of the session `{dead}` is gone, and the program with its terminal: `delta-sessions-pty cleanup` removes what is left, `start` starts another"
    );
    for command in [&["read", &dead][..], &["write", &dead, "x"], &["detach", &dead]] {
        assert_eq!(place.refuses(command), error);
    }
    let state = |id: &str| {
        let listed = place.says(&["list"]);
        let found = listed.as_array().unwrap().iter().find(|one| one["session_id"] == id);
        found.map_or(Value::Null, |one| one["status"].clone())
    };
    assert_eq!((state(&dead), state(&other)), ("dead".into(), "active".into()));
    assert_eq!(place.says(&["cleanup"]), json!({"removed": [dead]}));
    assert_eq!((state(&dead), state(&other)), (Value::Null, "active".into()));
    // A damaged one is told of by its name.
    std::fs::create_dir(place.sandbox.path("work/.sessions-pty/sess_damaged")).unwrap();
    assert_eq!(state("sess_damaged"), "damaged");
    assert_eq!(place.says(&["cleanup"]), json!({"removed": ["sess_damaged"]}));
    assert_eq!(place.says(&["cleanup", "--all"]), json!({"removed": [other]}));
}

#[test]
fn c_14_5_the_end_takes_what_the_program_started_and_who_does_not_listen() {
    let place = Place::new();
    let script = "trap '' HUP TERM; (trap '' HUP TERM; sleep 1000) & echo started; while :; do sleep 1000; done";
    let id = place.start(&["bash", "-c", script]);
    place.wait(&id, "started");
    let mark = format!("DELTA_SESSION_ID={id}");
    let of_session = || processes_with(&[&mark]);
    assert!(of_session().len() >= 3, "{:?}", of_session());
    assert_eq!(place.says(&["end", &id])["status"], "terminated");
    until("the end of all", || of_session().iter().all(|pid| !is_alive(*pid)).then_some(()));
    assert_eq!(place.says(&["status", &id])["exit_code"], 137);
}

#[test]
fn c_14_5_a_session_whose_directory_is_removed_ends() {
    let place = Place::new();
    let id = place.start(&["cat"]);
    let pid = place.pid(&id);
    std::fs::remove_dir_all(place.sandbox.path("work/.sessions-pty")).unwrap();
    until("the end of the program", || (!is_alive(pid)).then_some(()));
    assert_eq!(place.says(&["list"]), json!([]));
}

#[test]
fn c_14_5_the_key_is_not_in_the_environment() {
    let place = Place::new();
    let secret = "sk-0123456789abcdef";
    let mut start = place.command(&["start", "sh", "-c", "env; echo end; cat"]);
    for name in
        ["DELTA_API_KEY", "OPENAI_API_KEY", "DELTA_RUN_ID", "DELTA_CALL_ID", "RUN_DIR", "COLUMNS"]
    {
        start = start.env(name, secret);
    }
    let started = start.env("KEPT", "kept").output().expect_code(0).json();
    let id = started["session_id"].as_str().unwrap();
    let shown = place.wait(id, "\nend\n");
    assert!(!shown.contains(secret), "{shown}");
    for line in ["KEPT=kept", "TERM=xterm-256color", &format!("DELTA_SESSION_ID={id}")] {
        assert!(shown.lines().any(|one| one == line), "{line} is not in {shown}");
    }
    assert!(processes_with(&[&format!("DELTA_API_KEY={secret}"), "KEPT=kept"]).is_empty());
}
