//! Many sessions, many commands on one, and sessions started by a run.

use super::{PTY, PtyFixture};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use test_support::sandbox::Sandbox;

#[test]
fn c_14_5_ten_sessions_start_at_once() {
    let fixture = PtyFixture::new();
    let children: Vec<_> = (0..10).map(|_| fixture.command(&["start", "cat"]).spawn()).collect();
    let id = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["session_id"].as_str().unwrap().to_owned()
    };
    let ids: BTreeSet<String> = children.into_iter().map(id).collect();
    assert_eq!(ids.len(), 10);
    for id in &ids {
        fixture.write(id, &format!("{id}\\n"));
    }
    for id in &ids {
        assert_eq!(fixture.wait(id, &format!("{id}\n{id}\n")), format!("{id}\n{id}\n"));
    }
    assert_eq!(fixture.report(&["list"]).as_array().unwrap().len(), 10);
    let removed = fixture.report(&["cleanup", "--all"]);
    assert_eq!(removed["removed"], Value::from_iter(ids));
}

#[test]
fn c_14_5_a_long_path_is_no_obstacle() {
    let fixture = PtyFixture::new();
    let deep = fixture.sandbox.path("work").join("a-directory-with-a-long-name/".repeat(8));
    std::fs::create_dir_all(&deep).unwrap();
    let started = fixture.command(&["start", "pwd"]).cwd(&deep).output().expect_code(0).json();
    let id = started["session_id"].as_str().unwrap();
    let read = ["read", id, "--wait", "long-name", "--timeout", "30000ms"];
    let answer = fixture.command(&read).cwd(&deep).output().expect_code(0).json();
    assert_eq!(
        answer["output"].as_str().unwrap().trim_end(),
        deep.to_str().unwrap().trim_end_matches('/')
    );
}

#[test]
fn c_14_5_silent_and_malformed_clients_block_nobody() {
    let fixture = PtyFixture::new();
    let id = fixture.start(&["sh", "-c", "stty -echo; cat"]);
    // An absolute path is short enough for a socket here.
    let directory = fixture.sandbox.path(&format!("work/.sessions-pty/{id}"));
    let socket = directory.join("socket");
    let silent: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut torn = UnixStream::connect(&socket).unwrap();
    torn.write_all(b"\0\0\0\x20\0\0\0\0{\"Wr").unwrap();
    let mut wrong = UnixStream::connect(&socket).unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // The holder hangs up.
    assert_eq!(wrong.read(&mut [0]).unwrap_or(0), 0);
    let mut slow = UnixStream::connect(&socket).unwrap();
    let follow = br#"{"Follow":{"raw":true,"lines":null}}"#;
    slow.write_all(
        &[&[0, 0, 0, u8::try_from(follow.len()).unwrap(), 0, 0, 0, 0], &follow[..]].concat(),
    )
    .unwrap();
    let line = "x".repeat(1000);
    for _ in 0..3 {
        let text = format!("{line}\n").repeat(500) + "done\n";
        fixture.command(&["write", &id]).stdin(text).output().expect_code(0);
        let read = fixture.report(&["read", &id, "--wait", "done\n", "--timeout", "30000ms"]);
        assert_eq!(read.get("timed_out"), None);
    }
    drop((silent, torn, slow));
    assert_eq!(fixture.report(&["end", &id])["status"], "terminated");
}

#[test]
fn c_14_5_a_session_lives_on_when_the_run_that_started_it_ends() {
    let tools = format!(
        "  - {{name: begin, description: d, exec: '{} start cat', background: keep}}\n  - {{name: hang, description: d, exec: 'sleep 1000', timeout_ms: 50}}",
        *PTY
    );
    let turns = "- call: [{tool: begin, args: {}}]\n- call: [{tool: hang, args: {}}]\n- say: done";
    let sandbox = Sandbox::scripted(&test_support::sibling("delta"), &tools, turns);
    sandbox.run("start one", &[]).expect_code(0);
    let begun = sandbox.observations().remove(0);
    let (report, left) = begun.split_once("[still running: ").expect("the session is named");
    assert!(left.starts_with("1 background process: ") || left.starts_with("2 "), "{left}");
    let started: Value = serde_json::from_str(report).unwrap();
    let id = started["session_id"].as_str().unwrap();
    let pty = |args: &[&str]| {
        let mut command = std::process::Command::new(&*PTY);
        let output = command.args(args).current_dir(sandbox.path("work")).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(pty(&["status", id])["status"], "active");
    pty(&["write", id, "still here\\n"]);
    let read = pty(&["read", id, "--wait", "here\nstill here\n", "--timeout", "30000ms"]);
    assert_eq!(read["output"], "still here\nstill here\n");
    assert_eq!(pty(&["cleanup", "--all"])["removed"], serde_json::json!([id]));
}
