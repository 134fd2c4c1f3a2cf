//! Damaged runs (C-13.3, C-5.4, C-15.2): what can be mended is, what cannot is refused with nothing changed.

use super::DELTA;
use super::runs::{TOOLS, edit_journal, in_state, reseal_journal, resume, snapshot, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use test_support::needs;
use test_support::normal::normal;
use test_support::sandbox::Sandbox;

const JOURNAL: &str = "work/.delta/r/journal.jsonl";
const METADATA: &str = "work/.delta/r/metadata.json";

fn sh(sandbox: &Sandbox, dir: &str, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(sandbox.path(dir)).status();
    assert!(status.unwrap().success(), "{script}");
}

fn listed(sandbox: &Sandbox) -> Value {
    sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output().expect_code(0).json()
}

#[test]
fn c_13_3_a_torn_tail_is_set_aside() {
    let whole = b"{\"type\":\"USER_MESSAGE\",\"seq\":7,\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"content\":\"x\"}";
    let tails: [&[u8]; 5] =
        [b"{\"type\":\"THOUGHT\",\"se", &[0; 4096], b"garbage\n", b"\n", whole.as_slice()];
    for tail in tails {
        let sandbox = in_state("INTERRUPTED");
        let journal = fs::read(sandbox.path(JOURNAL)).unwrap();
        sandbox.write(JOURNAL, [&journal, tail].concat());
        let ran = resume(&sandbox, &[]).expect_code(0).normal(&sandbox);
        let warning = "! the journal's last line was incomplete and is not used; it is saved as journal.torn-STAMP\n";
        assert!(ran.stderr.contains(warning), "{}", ran.stderr);
        let aside: Vec<String> = sandbox.files("work/.delta/r");
        let aside: Vec<&String> = aside.iter().filter(|name| name.contains("torn-")).collect();
        assert_eq!(aside.len(), 1);
        assert_eq!(fs::read(sandbox.path("work/.delta/r").join(aside[0])).unwrap(), tail);
        assert!(fs::read(sandbox.path(JOURNAL)).unwrap().starts_with(&journal));
        assert!(sandbox.journal().iter().enumerate().all(|(at, event)| event["seq"] == at + 1));
        let again = resume(&sandbox, &["-m", "more"]);
        assert!(!again.stderr.contains("torn"), "{}", again.stderr);
    }
}

/// It was set aside as a torn end, and the run continued from before it.
#[test]
fn c_13_3_a_whole_last_line_with_an_unknown_event_is_refused() {
    let sandbox = in_state("INTERRUPTED");
    sandbox.unverified("the last event is unknown");
    let seq = sandbox.journal().len() + 1;
    edit_journal(&sandbox, |journal| {
        let time = "2026-01-01T00:00:00.000Z";
        format!(
            "{journal}{{\"type\":\"OF_A_LATER_VERSION\",\"seq\":{seq},\"timestamp\":\"{time}\",\"chain\":\"\"}}\n"
        )
    });
    reseal_journal(&sandbox);
    let before = snapshot(&sandbox);
    let ran = resume(&sandbox, &["-m", "go on"]).expect_code(1);
    let damaged = format!("journal.jsonl is damaged at line {seq}: it is not an event (");
    assert!(ran.stderr.contains(&damaged), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("help: its chain value shows that delta wrote it"),
        "{}",
        ran.stderr
    );
    assert_eq!(snapshot(&sandbox), before);
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output();
    assert!(shown.stderr.contains(&damaged), "{}", shown.stderr);
}

#[test]
fn c_13_3_zeros_before_the_last_line_are_refused_with_what_removes_them() {
    let sandbox = in_state("INTERRUPTED");
    let journal = fs::read(sandbox.path(JOURNAL)).unwrap();
    let last = journal.split_inclusive(|byte| *byte == b'\n').next_back().unwrap();
    sandbox.write(JOURNAL, [&journal, &[0; 512][..], b"}\n", last].concat());
    let ran = resume(&sandbox, &[]).expect_code(1);
    let remedy = ran.stderr.split_once("to continue without it and what follows: ").unwrap().1;
    sh(&sandbox, "", remedy);
    assert_eq!(fs::read(sandbox.path(JOURNAL)).unwrap(), journal);
    resume(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_13_3_damage_before_the_end_is_refused_by_its_line_number() {
    let damages: [(&str, &str); 6] = [
        ("garbage", "it is not an event (not JSON)"),
        ("", "it is not an event (incomplete JSON)"),
        ("{}", "it is not an event (there is no `seq`)"),
        ("TWICE", "expected `seq` 3, found 2"),
        (
            r#"{"type":"SNAPSHOT","seq":3,"timestamp":"2026-01-01T00:00:00.000Z","iteration":1,"tree":"../x","files":0,"bytes":0,"written":0}"#,
            "it is not an event (`../x` is not a snapshot id: expected 64 hexadecimal digits)",
        ),
        (
            r#"{"type":"FORK","seq":3,"timestamp":"2026-01-01T00:00:00.000Z","run_id":"../x"}"#,
            "it is not an event (`../x` is not a run id: expected 1 to 128 letters, digits, `.`, `_` or `-`, starting with a letter or digit (and not `VERSION`))",
        ),
    ];
    for (damage, reason) in damages {
        let sandbox = in_state("INTERRUPTED");
        sandbox.unverified("its journal is damaged");
        edit_journal(&sandbox, |journal| {
            let mut lines: Vec<&str> = journal.lines().collect();
            lines[2] = if damage == "TWICE" { lines[1] } else { damage };
            lines.join("\n") + "\n"
        });
        let before = snapshot(&sandbox);
        let expected = format!(
            "error: DIR/work/.delta/r/journal.jsonl is damaged at line 3: {reason}\n\
             help: restore the file from a backup; to see what can be read: delta view DIR/work/.delta/r\n"
        );
        for more in [&[][..], &["-m", "x"], &["--force"]] {
            resume(&sandbox, more).normal(&sandbox).expect(1, "", &expected);
        }
        let ensured = sandbox.run("task", &["--ensure"]).normal(&sandbox);
        assert_eq!((ensured.code, ensured.stderr.as_str()), (1, expected.as_str()));
        let exists = sandbox.run("task", &[]).expect_code(1).stderr;
        assert!(exists.contains("run r already exists"), "{exists}");
        assert_eq!(snapshot(&sandbox), before);
        assert_eq!(listed(&sandbox)[0]["status"], "DAMAGED");
    }
}

#[test]
fn c_5_4_metadata_is_rebuilt_from_the_journal() {
    let other = in_state("FAILED").read(METADATA).replace("\"r\"", "\"q\"");
    let damages =
        [None, Some(""), Some("garbage"), Some("{}"), Some("{\"run_id\": \"r"), Some(&*other)];
    for damage in damages {
        let sandbox = in_state("INTERRUPTED");
        let (metadata, before) = (sandbox.metadata(), listed(&sandbox));
        match damage {
            Some(text) => sandbox.write(METADATA, text),
            None => fs::remove_file(sandbox.path(METADATA)).unwrap(),
        }
        assert_eq!(listed(&sandbox), before, "{damage:?}");
        resume(&sandbox, &[]).expect_code(0);
        let rebuilt = sandbox.metadata();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&rebuilt), keys(&metadata));
        let changed = ["status", "updated_at", "end_time", "iterations", "pid", "start_time_unix"];
        for key in keys(&metadata).iter().filter(|key| !changed.contains(&key.as_str())) {
            assert_eq!(rebuilt[key], metadata[key], "{key} after {damage:?}");
        }
        assert_eq!(rebuilt["status"], "COMPLETED");
    }
}

#[test]
fn c_5_4_metadata_is_rebuilt_also_when_the_run_stays_as_it_is() {
    let sandbox = in_state("COMPLETED");
    let whole = sandbox.read(METADATA);
    // Missing, damaged, and as a process leaves it that dies right after its last event.
    for damage in [None, Some("garbage"), Some(&*whole.replace("COMPLETED", "RUNNING"))] {
        for ensure in [false, true] {
            match damage {
                Some(text) => sandbox.write(METADATA, text),
                None => fs::remove_file(sandbox.path(METADATA)).unwrap(),
            }
            match ensure {
                true => sandbox.run("task", &["--ensure"]).expect_code(0),
                false => resume(&sandbox, &[]).expect_code(1),
            };
            assert_eq!(sandbox.read(METADATA), whole, "{damage:?}");
        }
    }
}

#[test]
fn c_11_3_metadata_that_lags_behind_the_journal_is_not_believed() {
    // An engine that dies between its ENGINE_START and the metadata leaves COMPLETED there.
    let sandbox = in_state("COMPLETED");
    let metadata = sandbox.read(METADATA);
    sandbox.write("agent/script.yaml", "turns:\n- say: x\n- call: [{tool: die}]\n");
    resume(&sandbox, &["-m", "more"]).expect_code(-1);
    sandbox.write(METADATA, &metadata);
    let past = ["-d", "2001-01-01", METADATA];
    assert!(
        Command::new("touch").args(past).current_dir(sandbox.path("")).status().unwrap().success()
    );
    assert_eq!(listed(&sandbox)[0]["status"], "RUNNING");
}

#[test]
fn c_13_3_a_run_directory_born_half_is_taken_over_by_run() {
    let births: [(&str, Option<&[u8]>); 5] = [
        ("lock", None),
        ("empty journal", Some(b"")),
        ("half a line", Some(b"{\"type\":\"ENGINE_START\",\"seq\":1,\"time")),
        ("zeros", Some(&[0; 100])),
        ("one line of garbage", Some(b"garbage\n")),
    ];
    for (name, journal) in births {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
        sandbox.write("work/.delta/r/lock", "");
        sandbox.write("work/.delta/r/agent/agent.yaml", "half of i");
        if let Some(bytes) = journal {
            sandbox.write(JOURNAL, bytes);
        }
        let before = snapshot(&sandbox);
        let expected = "error: the run never began: DIR/work/.delta/r/journal.jsonl contains no complete event\n\
                        help: repeat the `delta run` command with `--run-id r`\n";
        for more in [&[][..], &["-m", "x", "--force"]] {
            resume(&sandbox, more).normal(&sandbox).expect(1, "", expected);
        }
        assert_eq!(snapshot(&sandbox), before, "{name}");
        let list = listed(&sandbox);
        assert_eq!((&list[0]["run_id"], &list[0]["status"]), (&json!("r"), &json!("DAMAGED")));
        sandbox.run("task", &[]).expect_code(0);
        assert_eq!(sandbox.metadata()["status"], "COMPLETED");
        assert_eq!(
            sandbox.read("work/.delta/r/agent/agent.yaml"),
            sandbox.read("agent/agent.yaml")
        );
        let torn = sandbox.files("work/.delta/r").iter().filter(|n| n.contains("torn-")).count();
        assert_eq!(torn, usize::from(journal.is_some_and(|bytes| !bytes.is_empty())), "{name}");
    }
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    sandbox.write("work/.delta/r/lock", "");
    sandbox.run("task", &["--ensure"]).expect_code(0);
}

#[test]
fn c_13_3_a_rewritten_journal_is_refused_and_the_printed_command_mends_it() {
    if !needs::programs(&["jq"]) {
        return;
    }
    for filter in ["-s .", "-sc .", "."] {
        let sandbox = in_state("INTERRUPTED");
        let events = sandbox.journal();
        sh(
            &sandbox,
            "work/.delta/r",
            &format!("jq {filter} journal.jsonl > x; mv x journal.jsonl"),
        );
        let before = snapshot(&sandbox);
        let ran = resume(&sandbox, &[]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert_eq!(snapshot(&sandbox), before);
        let said = normal(&sandbox, &ran.stderr);
        assert!(
            said.starts_with("error: DIR/work/.delta/r/journal.jsonl is damaged at line 1: "),
            "{said}"
        );
        let (_, command) = ran.stderr.split_once("to restore its lines: ").unwrap();
        sh(&sandbox, "home", command);
        assert_eq!(sandbox.journal(), events);
        resume(&sandbox, &[]).expect_code(0);
    }
}

#[test]
fn c_15_2_symlinks_are_not_followed_to_a_run() {
    for link in ["work/.delta", "work/.delta/r", JOURNAL, "work/.delta/r/lock"] {
        let sandbox = in_state("INTERRUPTED");
        fs::rename(sandbox.path(link), sandbox.path("elsewhere")).unwrap();
        symlink(sandbox.path("elsewhere"), sandbox.path(link)).unwrap();
        let ran = resume(&sandbox, &[]);
        assert!([1, 126].contains(&ran.code), "{link}: {ran:?}");
        assert!(
            ran.stderr.contains(link) && ran.stderr.contains("symlink") || link.ends_with("lock"),
            "{ran:?}"
        );
        let list = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output();
        match link {
            "work/.delta" => assert_eq!(list.code, 126, "{list:?}"),
            "work/.delta/r" | JOURNAL => assert_eq!(list.json()[0]["status"], "DAMAGED", "{link}"),
            _ => {}
        }
        fs::remove_file(sandbox.path(link)).unwrap();
        fs::rename(sandbox.path("elsewhere"), sandbox.path(link)).unwrap();
        resume(&sandbox, &[]).expect_code(0);
    }
}

#[test]
fn c_15_2_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting() {
    let files = [
        (JOURNAL, "DAMAGED", 126),
        (METADATA, "INTERRUPTED", 0),
        ("work/.delta/r/lock", "INTERRUPTED", 126),
        ("work/.delta/r/engine.log", "INTERRUPTED", 126),
        ("work/.delta/VERSION", "INTERRUPTED", 0),
    ];
    for (file, status, code) in files {
        let sandbox = in_state("INTERRUPTED");
        fs::rename(sandbox.path(file), sandbox.path("kept")).unwrap();
        assert!(Command::new("mkfifo").arg(sandbox.path(file)).status().unwrap().success());
        assert_eq!(listed(&sandbox)[0]["status"], status, "{file}");
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output();
        assert_eq!(shown.code, if file == JOURNAL { 126 } else { 0 }, "{file}: {shown:?}");
        let ran = resume(&sandbox, &[]).expect_code(code);
        if code != 0 {
            let why = format!("{}: it is not a regular file\n", sandbox.path(file).display());
            assert!(ran.stderr.contains(&why), "{ran:?}");
            fs::rename(sandbox.path("kept"), sandbox.path(file)).unwrap();
            resume(&sandbox, &[]).expect_code(0);
        }
    }
}

#[test]
fn c_13_6_a_journal_that_cannot_be_written_or_read() {
    let sandbox = in_state("INTERRUPTED");
    fs::rename(sandbox.path(JOURNAL), sandbox.path("kept")).unwrap();
    fs::create_dir(sandbox.path(JOURNAL)).unwrap();
    let expected =
        "error: could not read DIR/work/.delta/r/journal.jsonl: Is a directory (os error 21)\n";
    resume(&sandbox, &[]).normal(&sandbox).expect(126, "", expected);
    fs::remove_dir(sandbox.path(JOURNAL)).unwrap();
    fs::rename(sandbox.path("kept"), sandbox.path(JOURNAL)).unwrap();

    // Root may write what nobody may; what is immutable it may not.
    let chattr = |flag: &str| {
        let mut command = Command::new("chattr");
        command.arg(flag).arg(sandbox.path(JOURNAL)).output().is_ok_and(|out| out.status.success())
    };
    if chattr("+i") {
        let before = snapshot(&sandbox);
        let ran = resume(&sandbox, &[]).normal(&sandbox);
        let unchanged = snapshot(&sandbox) == before;
        assert!(chattr("-i"));
        let expected = "error: could not open DIR/work/.delta/r/journal.jsonl: Operation not permitted (os error 1)\n";
        ran.expect(126, "", expected);
        assert!(unchanged);
    } else {
        needs::skip("needs `chattr +i`");
    }
    resume(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_5_1_a_run_of_which_parts_are_missing_goes_on() {
    let sandbox = in_state("RUNNING");
    for part in ["io", "agent", "metadata.json", "engine.log", "lock"] {
        sh(&sandbox, "work/.delta/r", &format!("rm -r {part}"));
    }
    let ran = resume(&sandbox, &[]).expect_code(0);
    assert!(ran.stdout.starts_with("seen [the engine stopped during this call"), "{}", ran.stdout);
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
}

#[test]
fn c_13_2_a_run_can_be_handed_on() {
    // Whole, and the journal alone.
    for copy in
        ["cp -r work/.delta/r other/.delta/r", "cp -r work/.delta/r/journal.jsonl other/.delta/r/"]
    {
        let sandbox = in_state("INTERRUPTED");
        fs::create_dir_all(sandbox.path("other/.delta")).unwrap();
        if copy.ends_with('/') {
            fs::create_dir_all(sandbox.path("other/.delta/r")).unwrap();
        }
        sh(&sandbox, "", copy);
        let before = snapshot(&sandbox);
        let ran = sandbox.delta(["continue", "--run-id", "r", "-w", "other"]).output();
        ran.expect_code(0);
        let metadata: Value =
            serde_json::from_str(&sandbox.read("other/.delta/r/metadata.json")).unwrap();
        assert_eq!(text(&metadata, "work_dir"), sandbox.path("other").to_string_lossy());
        assert_eq!(
            (&metadata["status"], &metadata["workspace_id"]),
            (&json!("COMPLETED"), &json!("other"))
        );
        assert_eq!(snapshot(&sandbox), before, "the one it was copied from stays as it was");
    }
}
