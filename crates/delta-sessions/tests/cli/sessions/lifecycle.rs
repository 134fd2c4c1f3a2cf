//! `start`, `exec`, `end`, `list`, `cleanup`: what they print and what they leave.

use super::{PYTHON, SESSIONS, Session};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};

#[test]
fn c_14_1_from_start_to_cleanup() {
    let session = Session::start(&[]);
    let id = session.id.as_str();
    assert!(id.starts_with("sess_") && id.len() == 13, "{id}");
    assert_eq!(session.stdout_of("echo hello"), "hello\n");
    assert_eq!(session.run(&["exec", id, "(exit 3)"]).expect_code(0).json()["exit_code"], 3);
    let listed = session.run(&["list"]).expect_code(0).json();
    let created = listed[0]["created_at"].clone();
    assert!(created.as_str().unwrap().ends_with('Z'));
    let line = |status: &str| json!({"session_id": id, "command": "bash", "status": status, "created_at": created});
    assert_eq!(listed, json!([line("active")]));
    assert_eq!(session.run(&["cleanup"]).expect_code(0).json(), json!({"removed": []}));
    for _ in 0..2 {
        let ended = session.run(&["end", id]).expect_code(0).json();
        assert_eq!(ended, json!({"status": "terminated", "session_id": id}));
    }
    assert_eq!(session.states(), Vec::<String>::new());
    assert_eq!(session.run(&["list"]).json(), json!([line("terminated")]));
    let refused = session.run(&["exec", id, "true"]).expect_code(1).json();
    let error = format!("session `{id}` has ended: start a new one with `delta-sessions start`");
    assert_eq!(refused, json!({"error": error}));
    assert_eq!(session.run(&["cleanup"]).expect_code(0).json(), json!({"removed": [id]}));
    assert_eq!(session.run(&["list"]).expect_code(0).json(), json!([]));
    assert_eq!(session.sandbox.files("work"), [".sessions/.gitignore"]);
}

// `git add -A` committed the state of sessions; `git clean -fd` and `git stash -u` removed it.
#[test]
fn c_14_1_git_passes_over_sessions() {
    let session = Session::start(&[]);
    let path = session.sandbox.path("work/.sessions/.gitignore");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "*\n");
    // An older session gets it with its next command.
    std::fs::remove_file(&path).unwrap();
    session.stdout_of("true");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "*\n");
    assert_eq!(session.run(&["list"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn c_14_1_start_reports_the_session() {
    let sandbox = Sandbox::new(SESSIONS);
    let work_dir = sandbox.path("").display().to_string();
    let work_dir = work_dir.trim_end_matches('/');
    for (given, command) in [
        (vec![], "bash"),
        (vec!["bash"], "bash"),
        (vec!["cat -n"], "cat -n"),
        (vec!["cat", "-n"], "cat -n"),
    ] {
        let started =
            sandbox.delta(["start"].iter().chain(&given).copied()).output().expect_code(0);
        assert_eq!(started.stdout.lines().count(), 1);
        let id = started.json()["session_id"].clone();
        assert_eq!(
            started.json(),
            json!({"session_id": id, "command": command, "work_dir": work_dir, "status": "active"})
        );
    }
    let refused =
        |args: &[&str]| sandbox.delta(args.iter().copied()).output().expect_code(1).json();
    assert_eq!(
        refused(&["start", "no-such-program"]),
        json!({"error": "program `no-such-program` was not found in PATH"})
    );
    assert_eq!(
        refused(&["start", "bash", "-i"]),
        json!({"error": "`bash` takes no arguments in a session: start it with `delta-sessions start bash`"})
    );
    assert_eq!(
        sandbox.files(".sessions").iter().filter(|file| file.ends_with("metadata.json")).count(),
        4
    );
}

#[test]
fn c_14_1_the_command_is_an_argument_or_stdin() {
    let session = Session::start(&[]);
    let script =
        "cat <<'X'\nit's \"here\" $HOME\nX\nfor i in 1 2; do\n  echo \"Number: $i\"\ndone\n";
    let by_stdin =
        session.command(&["exec", &session.id]).stdin(script).output().expect_code(0).json();
    assert_eq!(by_stdin["stdout"], "it's \"here\" $HOME\nNumber: 1\nNumber: 2\n");
    assert_eq!(session.exec(script)["stdout"], by_stdin["stdout"]);
    // Longer than an argument can be.
    let long = format!("v='{}'\necho ${{#v}}", "x".repeat(1 << 20));
    let answer = session.command(&["exec", &session.id]).stdin(long).output().expect_code(0).json();
    assert_eq!(answer["stdout"], "1048576\n");
    assert_eq!(session.stdout_of("echo ${#v}"), "1048576\n");
    let nul =
        session.command(&["exec", &session.id]).stdin("echo a\0b").output().expect_code(1).json();
    assert_eq!(
        nul,
        json!({"error": "the command contains a NUL byte, which source text cannot hold"})
    );
}

#[test]
fn c_14_1_session_files_are_private() {
    let session = Session::start(&[]);
    session.stdout_of("mkdir d && cd d && SECRET=1");
    let metadata = session.metadata();
    let at = |name: &str| metadata[name].clone();
    let work_dir = session.sandbox.path("work/d").display().to_string();
    assert_eq!(
        [at("session_id"), at("command"), at("status"), at("work_dir"), at("execution_count")],
        [json!(session.id), json!("bash"), json!("active"), json!(work_dir), json!(1)]
    );
    assert!(at("last_executed_at").as_str() > at("created_at").as_str());
    assert_eq!(session.states(), [format!("state.{}", at("state"))]);
    for file in session.sandbox.files("work/.sessions") {
        let path = session.sandbox.path(&format!("work/.sessions/{file}"));
        let (own, parent) = (path.metadata().unwrap(), path.parent().unwrap().metadata().unwrap());
        let modes = (own.permissions().mode() & 0o077, parent.permissions().mode() & 0o777);
        // Files that bash writes are in a directory that only the owner can enter.
        assert_eq!(modes.1, 0o700, "{file}");
        assert!(modes.0 == 0 || file.contains("/state."), "{file}");
    }
}

#[test]
fn c_14_1_damaged_sessions_are_listed_and_cleaned_up() {
    let session = Session::start(&[]);
    session.sandbox.write("work/.sessions/sess_torn/metadata.json", "{\"session_id\":");
    let listed = session.run(&["list"]).expect_code(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!([&listed[1]["session_id"], &listed[1]["status"]], ["sess_torn", "damaged"]);
    assert!(
        listed[1]["error"].as_str().unwrap().contains("could not parse metadata.json"),
        "{listed}"
    );
    let refused = session.run(&["exec", "sess_torn", "true"]).expect_code(1).json();
    assert_eq!(refused["error"], listed[1]["error"]);
    assert_eq!(session.run(&["cleanup"]).json(), json!({"removed": ["sess_torn"]}));
    assert_eq!(session.stdout_of("echo fine"), "fine\n");
    assert_eq!(session.run(&["cleanup", "--all"]).json(), json!({"removed": [session.id]}));
}

#[test]
fn c_14_1_malformed_and_unknown_ids_are_refused() {
    let session = Session::start(&[]);
    let error = |id: &str| {
        session.run(&["exec", id, "true"]).expect_code(1).json()["error"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for id in ["../work", "a b", "", ".hidden"] {
        assert!(error(id).starts_with(&format!("`{id}` is not a session id: ")), "{}", error(id));
    }
    assert!(error("sess_00000000").starts_with("there is no session `sess_00000000` in "));
    std::fs::remove_dir_all(session.sandbox.path("work/.sessions")).unwrap();
    std::os::unix::fs::symlink("/", session.sandbox.path("work/.sessions")).unwrap();
    assert!(error("tmp").contains(".sessions is not a directory"), "{}", error("tmp"));
    session.run(&["list"]).expect_code(1);
    session.run(&["cleanup", "--all"]).expect_code(1);
}

#[test]
fn c_14_1_usage_is_checked_first() {
    let sandbox = Sandbox::new(SESSIONS);
    let ran = sandbox.delta(["exec"]).output().expect_code(2);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("<SESSION_ID>"), "{}", ran.stderr);
}

#[test]
fn c_15_3_a_key_is_in_no_file_of_a_session() {
    if !needs::programs(&["python3"]) {
        return;
    }
    const KEY: &str = "sk-0123456789abcdef";
    // A key whose variable the agent chose.
    const OTHER: &str = "sk-fedcba9876543210";
    for (command, show, copy) in [
        (
            "bash",
            "echo \"key: $DELTA_API_KEY\"",
            "export COPY=$DELTA_API_KEY; f() { echo \"$COPY\"; }",
        ),
        (
            &**PYTHON,
            "import os\nprint('key:', os.environ.get('DELTA_API_KEY', ''))",
            "copy = os.environ['DELTA_API_KEY']; n = 1",
        ),
    ] {
        let keys = |delta: Delta| {
            let delta = delta.env("DELTA_API_KEY", KEY).env("MY_KEY", OTHER);
            delta.env("DELTA_KEY_NAMES", "MY_KEY $(nothing)")
        };
        let session = Session::start_with(&[command], keys);
        assert_eq!(session.stdout_of(show).trim_end(), "key:");
        let with_key = |text: &str| {
            keys(session.command(&["exec", &session.id, text])).output().expect_code(0).json()
        };
        // A tool that receives the key can use it; reports and files do not contain it.
        assert_eq!(with_key(show)["stdout"], "key: [redacted]\n");
        assert_eq!(with_key(&show.replace("DELTA_API", "MY"))["stdout"], "key: [redacted]\n");
        let copied = with_key(copy);
        let lost: Value = if command == "bash" { Value::Null } else { json!(["copy"]) };
        assert_eq!(copied.get("not_preserved").cloned().unwrap_or_default(), lost);
        for file in session.sandbox.files("work/.sessions") {
            let bytes =
                std::fs::read(session.sandbox.path(&format!("work/.sessions/{file}"))).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(KEY) && !text.contains(OTHER), "{command}: {file}");
        }
        assert_eq!(session.stdout_of(show).trim_end(), "key:");
    }
}
