//! What is durable before what (C-6.6, C-12.3), as the kernel sees it: the system calls of a run under strace(1).

use super::DELTA;
use serde_json::json;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

/// What of a run's system calls matters here, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Act {
    /// These types of events were written to the journal.
    Written(Vec<String>),
    /// The journal was synced.
    Synced,
    /// The tool was started.
    Started,
    /// A request was sent.
    Asked,
    /// Something was written to stdout.
    Printed,
}

/// Reads strace's log. A call that another thread's interrupted counts when it began, a sync when it ended.
fn acts(log: &str) -> Vec<Act> {
    let mut journal = None;
    let mut syncing = None;
    let mut acts = Vec::new();
    for line in log.lines() {
        let (pid, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        let on_journal = |call: &str, name: &str| {
            journal.as_ref().is_some_and(|fd: &String| {
                call.strip_prefix(name).is_some_and(|rest| {
                    rest.starts_with(&format!("({fd},"))
                        || rest.starts_with(&format!("({fd})"))
                        || rest.starts_with(&format!("({fd} "))
                })
            })
        };
        if (call.starts_with("openat(") || call.starts_with("openat2("))
            && call.contains("/journal.jsonl\"")
        {
            journal = Some(call.rsplit_once("= ").unwrap().1.trim().to_owned());
        } else if on_journal(call, "write") {
            let types = call.split("\\\"type\\\":\\\"").skip(1);
            let types = types.map(|rest| rest.split('\\').next().unwrap().to_owned());
            acts.push(Act::Written(
                types
                    .filter(|kind| kind.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
                    .collect(),
            ));
        } else if on_journal(call, "fdatasync") {
            if call.contains("unfinished") {
                syncing = Some(pid.to_owned());
            } else {
                assert!(call.ends_with("= 0"), "{call}");
                acts.push(Act::Synced);
            }
        } else if call.starts_with("<... fdatasync resumed") && syncing.as_deref() == Some(pid) {
            syncing = None;
            acts.push(Act::Synced);
        } else if call.starts_with("execve(") && call.contains("/work/tool.sh\"") {
            acts.push(Act::Started);
        } else if (call.starts_with("sendto(") || call.starts_with("write("))
            && call.contains("POST /v1/chat")
        {
            acts.push(Act::Asked);
        } else if call.starts_with("write(1, ") && call.contains("the result") {
            acts.push(Act::Printed);
        }
    }
    acts
}

/// Whether a journal write with `kind` was synced before the `nth` act of this sort.
#[track_caller]
fn durable_before(acts: &[Act], kind: &str, written: usize, act: &Act, nth: usize) {
    let holds =
        |act: &Act| matches!(act, Act::Written(kinds) if kinds.iter().any(|one| one == kind));
    let at = |found: &dyn Fn(&Act) -> bool, nth: usize| {
        let mut places = acts.iter().enumerate().filter(|(_, act)| found(act));
        places.nth(nth).unwrap_or_else(|| panic!("{kind}, {act:?} {nth}: {acts:#?}")).0
    };
    let (write, act) = (at(&holds, written), at(&|one| one == act, nth));
    let sync =
        acts.iter().enumerate().position(|(index, one)| index > write && *one == Act::Synced);
    assert!(sync.is_some_and(|sync| sync < act), "{kind} is not durable before: {acts:#?}");
}

#[test]
fn c_6_6_every_event_is_durable_before_what_follows_from_it() {
    if !needs::programs(&["strace"]) {
        return;
    }
    let answers = vec![
        Answer::calls(vec![("tool", json!({})), ("tool", json!({}))]),
        Answer::text("the result"),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "  - name: tool\n    exec: ./tool.sh\n");
    sandbox.write_program("work/tool.sh", "#!/bin/sh\necho ran\n");
    let log = sandbox.path("strace.log");
    let mut strace = Command::new("strace");
    strace.args([
        "-f",
        "-s",
        "100000",
        "-e",
        "trace=execve,write,sendto,openat,openat2,fdatasync",
        "-e",
        "signal=none",
        "-o",
    ]);
    strace
        .arg(&log)
        .arg(DELTA)
        .args(["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "hello"]);
    strace.current_dir(sandbox.path("")).env("HOME", sandbox.path("home"));
    let output = strace.output().expect("strace is installed (apt-get install strace)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let acts = acts(&sandbox.read("strace.log"));
    durable_before(&acts, "ENGINE_START", 0, &Act::Asked, 0);
    durable_before(&acts, "USER_MESSAGE", 0, &Act::Asked, 0);
    durable_before(&acts, "THOUGHT", 0, &Act::Started, 0);
    durable_before(&acts, "ACTION_REQUEST", 0, &Act::Started, 0);
    durable_before(&acts, "ACTION_RESULT", 0, &Act::Started, 1);
    durable_before(&acts, "ACTION_REQUEST", 1, &Act::Started, 1);
    durable_before(&acts, "ACTION_RESULT", 1, &Act::Asked, 1);
    durable_before(&acts, "ENGINE_END", 0, &Act::Printed, 0);
    assert_eq!(acts.iter().filter(|act| **act == Act::Printed).count(), 1, "C-12.1");
    assert_eq!(acts.last(), Some(&Act::Printed), "C-12.3");
}
