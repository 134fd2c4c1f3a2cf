//! `delta send` and `delta receive` (C-36.6 to C-36.12): a run moves to another place, or is copied.

use super::DELTA;
use super::runs::TOOLS;
use super::seals::public_key;
use super::verify::edit_lines;
use super::{staged, surviving};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// A question in the middle: the run waits, and has files.
const TURNS: &str = "\
- call: [{tool: note, args: {text: one}}]
- call: [{tool: ask_human, args: {prompt: Really?}}]
- call: [{tool: note, args: {text: two}}]
- say: done
- say: again
";

/// A command of the other operator, on what is another host as far as delta can tell.
fn there(sandbox: &Sandbox, args: &[&str]) -> Delta {
    fs::create_dir_all(sandbox.path("there/home")).unwrap();
    let command = sandbox.delta(args.iter().copied());
    command.env("HOME", sandbox.path("there/home")).cwd(sandbox.path("there"))
}

fn here(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().copied()).output()
}

/// A run that waits for an answer, with a file of its own and one that was there.
fn waiting() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.write("work/there before", "b\n");
    sandbox.write("agent/.env", "SOME_API_KEY=1234567890\n");
    sandbox.run("task", &["-q"]).expect_code(101);
    sandbox
}

fn key_there(sandbox: &Sandbox) -> String {
    there(sandbox, &["trust", "--new-key"]).output().expect_code(0);
    public_key(there(sandbox, &["config", "--format", "json"]))
}

/// The operator there accepts the key of this one.
fn accept_there(sandbox: &Sandbox) {
    let key = public_key(sandbox.delta(["config", "--format", "json"]));
    there(sandbox, &["trust", "--key", &key, "--name", "me"]).output().expect_code(0);
}

fn send(sandbox: &Sandbox, more: &[&str]) -> Ran {
    here(sandbox, &[&["send", "r", "-w", "work", "-o", "r.tgz"], more].concat())
}

const RECEIVE: [&str; 4] = ["receive", "../r.tgz", "-w", "work"];

#[test]
fn c_36_6_a_run_that_was_sent_is_closed_here_and_continues_there() {
    let sandbox = waiting();
    accept_there(&sandbox);
    let worked = || {
        let shown = here(&sandbox, &["show", "r", "-w", "work", "--format", "json"]);
        shown.json()["metrics"]["total_duration_ms"].as_u64().unwrap()
    };
    let before = worked();
    let ran = send(&sandbox, &[]).expect_code(0);
    assert!(before > 0);
    assert_eq!(worked(), before, "of the processes, none of which is `send`");
    assert!(ran.stdout.is_empty() && ran.stderr.contains("Not sent: keys, .env of the agent"));
    let lines = sandbox.journal();
    let [sent, end] = &lines[lines.len() - 2..] else { panic!("{lines:?}") };
    assert_eq!([&sent["type"], &end["type"]], ["SENT", "ENGINE_END"]);
    assert_eq!(end["status"], "WAITING_FOR_INPUT");
    let place = sandbox.path("r.tgz").display().to_string();
    assert_eq!(sent["place"], *place);
    let commands: [&[&str]; 8] = [
        &["continue", "r", "-w", "work", "yes"],
        &["continue", "r", "-w", "work", "yes", "--agent", "agent"],
        &["tell", "r", "-w", "work", "more"],
        &["stop", "r", "-w", "work"],
        &["rollback", "r", "-w", "work", "--to", "0"],
        &["trust", "r", "-w", "work"],
        &["rm", "r", "-w", "work", "-y"],
        &["pack", "r", "-w", "work"],
    ];
    for command in commands {
        let ran = here(&sandbox, command).expect_code(1);
        assert!(ran.stderr.contains(&place), "{command:?}: {ran:?}");
    }
    let ensured = sandbox.run("task", &["--ensure"]).expect_code(1);
    assert!(ensured.stderr.contains(&format!("run r was sent to {place}")), "{ensured:?}");
    assert_eq!(sandbox.journal().len(), lines.len());
    let listed = here(&sandbox, &["list-runs", "-w", "work", "--format", "json"]).json();
    assert_eq!(listed[0]["moved_to"], *place);
    let listed = here(&sandbox, &["list-runs", "-w", "work", "--resumable"]).expect_code(0);
    assert!(listed.stdout.is_empty() && here(&sandbox, &["inbox", "-w", "work"]).stdout.is_empty());
    here(&sandbox, &["show", "r", "-w", "work"]).expect_code(0);
    here(&sandbox, &["verify", "r", "-w", "work"]).expect_code(0);
    here(&sandbox, &["fork", "r", "-w", "work", "--run-id", "f", "--into", "forked"])
        .expect_code(0);

    there(&sandbox, &RECEIVE).output().expect_code(0);
    assert_eq!(continue_there(&sandbox).expect_code(0).stdout, "done\n");
}

#[test]
fn c_36_6_a_run_that_was_sent_keeps_its_result() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    sandbox.run("task", &["-q"]).expect_code(0);
    send(&sandbox, &[]).expect_code(0);
    let ran = sandbox.run("task", &["--ensure", "-q", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
}

#[test]
fn c_36_8_a_received_run_verifies_and_continues_with_the_agent_that_came_with_it() {
    let sandbox = waiting();
    accept_there(&sandbox);
    send(&sandbox, &[]).expect_code(0);
    let ran = there(&sandbox, &RECEIVE).output().expect_code(0);
    assert!(ran.stderr.contains("tools  die, note, stop"), "{ran:?}");
    assert_eq!(sandbox.read("there/work/there before"), "b\n");
    let received = sandbox.read("there/work/.delta/r/journal.jsonl");
    assert!(received.starts_with(&sandbox.read("work/.delta/r/journal.jsonl")));
    there(&sandbox, &["verify", "r", "-w", "work"]).output().expect_code(0);
    fs::rename(sandbox.path("agent"), sandbox.path("agent elsewhere")).unwrap();
    assert_eq!(continue_there(&sandbox).expect_code(0).stdout, "done\n");
    assert_eq!(sandbox.read("there/work/ledger"), "one\ntwo\n");
    // C-36.11: neither keys nor the agent's `.env` have left.
    let files = sandbox.files("there");
    assert!(!files.iter().any(|file| file.ends_with(".env")), "{files:?}");
    let agent = files.iter().find(|file| file.ends_with("/agent.yaml") && file.contains(".trees"));
    let mode = fs::metadata(sandbox.path("there").join(agent.unwrap())).unwrap().permissions();
    assert!(mode.readonly());
    fs::rename(sandbox.path("agent elsewhere"), sandbox.path("agent")).unwrap();
}

#[test]
fn c_36_8_a_run_of_an_unknown_key_is_foreign_until_it_is_trusted() {
    let sandbox = waiting();
    send(&sandbox, &[]).expect_code(0);
    let ran = there(&sandbox, &RECEIVE).output().expect_code(0);
    assert!(ran.stderr.contains("It is foreign"), "{ran:?}");
    let answer = ["continue", "r", "-w", "work", "yes", "-q"];
    let ran = there(&sandbox, &answer).output().expect_code(126);
    assert!(ran.stderr.contains("run r is foreign"), "{ran:?}");
    there(&sandbox, &["trust", "r", "-w", "work"]).output().expect_code(0);
    assert_eq!(there(&sandbox, &answer).output().expect_code(0).stdout, "done\n");
}

#[test]
fn c_36_9_a_file_is_received_once_and_by_the_named_key() {
    let sandbox = waiting();
    let key = key_there(&sandbox);
    send(&sandbox, &["--to", &key]).expect_code(0);
    let ran = here(&sandbox, &["receive", "r.tgz", "-w", "own"]).expect_code(126);
    assert!(ran.stderr.contains("which is not yours"), "{ran:?}");
    // The file was lost: it is written again, with the same transfer.
    fs::remove_file(sandbox.path("r.tgz")).unwrap();
    send(&sandbox, &[]).expect_code(0);
    fs::copy(sandbox.path("r.tgz"), sandbox.path("again.tgz")).unwrap();
    there(&sandbox, &RECEIVE).output().expect_code(0);
    for file in ["../r.tgz", "../again.tgz"] {
        for work in ["work", "other"] {
            let ran = there(&sandbox, &["receive", file, "-w", work]).output().expect_code(1);
            assert!(ran.stderr.contains("was received already, in"), "{ran:?}");
        }
    }
    assert!(sandbox.files("there/other").iter().all(|file| !file.contains("journal")));
}

#[test]
fn c_36_6_a_run_comes_back_over_its_closed_original() {
    let sandbox = waiting();
    accept_there(&sandbox);
    send(&sandbox, &[]).expect_code(0);
    there(&sandbox, &RECEIVE).output().expect_code(0);
    there(&sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).output().expect_code(0);
    let back = ["send", "r", "-w", "work", "-o", "../back.tgz"];
    there(&sandbox, &back).output().expect_code(0);
    // C-36.10: what was changed here meanwhile is a conflict, and stays.
    sandbox.write("work/ledger", "mine\n");
    let receive = ["receive", "back.tgz", "-w", "work"];
    let ran = here(&sandbox, &receive).expect_code(1);
    assert!(ran.stderr.contains("differ from the files of run r: ledger"), "{ran:?}");
    assert_eq!(sandbox.read("work/ledger"), "mine\n");
    here(&sandbox, &["continue", "r", "-w", "work", "yes"]).expect_code(1);
    sandbox.write("work/mine", "another file\n");
    let ran = here(&sandbox, &[&receive[..], &["--overwrite"]].concat()).expect_code(0);
    assert!(ran.stderr.contains("It is foreign"), "the last process was there: {ran:?}");
    let (_, undo) =
        ran.stderr.trim_end().split_once("Restore the replaced files with: delta ").unwrap();
    let undo: Vec<&str> = undo.split(' ').collect();
    assert_eq!(sandbox.read("work/ledger"), "one\ntwo\n");
    assert_eq!(sandbox.read("work/mine"), "another file\n");
    here(&sandbox, &["trust", "r", "-w", "work"]).expect_code(0);
    // Without its own snapshots too, the run names it.
    let ran = here(&sandbox, &["rollback", "r", "-w", "work"]).expect_code(1);
    assert!(ran.stderr.contains(&format!("`{} {}`", undo[4], undo[5])), "{undo:?} {ran:?}");
    here(&sandbox, &undo).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), "mine\n");
    let ran = here(&sandbox, &["continue", "r", "-w", "work", "-m", "more", "-q"]).expect_code(0);
    assert_eq!(ran.stdout, "again\n");
}

#[test]
fn c_36_10_what_is_damaged_or_in_the_way_changes_no_file() {
    let sandbox = waiting();
    accept_there(&sandbox);
    send(&sandbox, &[]).expect_code(0);
    let whole = fs::read(sandbox.path("r.tgz")).unwrap();
    let untouched = |why: &str| {
        assert_eq!(
            sandbox.files("there/work").iter().filter(|f| !f.contains(".delta")).count(),
            1,
            "{why}"
        );
        assert_eq!(sandbox.read("there/work/ledger"), "other\n", "{why}");
        assert!(!sandbox.path("there/work/.delta/r").exists(), "{why}");
    };
    sandbox.write("there/work/ledger", "other\n");
    let ran = there(&sandbox, &RECEIVE).output().expect_code(1);
    assert!(ran.stderr.contains("differ from the files of run r: ledger"), "{ran:?}");
    untouched("a conflict");
    // The last member is missing, or the archive is cut anywhere before it.
    for cut in [0, 100, whole.len() / 2, whole.len() - 400] {
        sandbox.write("r.tgz", &whole[..cut]);
        there(&sandbox, &[&RECEIVE[..], &["--overwrite"]].concat()).output().expect_code(1);
        untouched(&format!("cut at {cut}"));
    }
    sandbox.write("r.tgz", &whole);
    there(&sandbox, &[&RECEIVE[..], &["--overwrite"]].concat()).output().expect_code(0);
    assert_eq!(sandbox.read("there/work/ledger"), "one\n");
}

/// A file of another program is named as one, not as an archive that was cut.
#[test]
fn c_36_10_a_file_that_no_sender_has_written_is_named() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("empty", "");
    sandbox.write("text", "no archive\n");
    sandbox.write("other/file", "content\n");
    for pack in ["tar czf other.tgz other/file", "gzip -k text", "mkdir dir"] {
        let status = Command::new("sh").args(["-c", pack]).current_dir(sandbox.path("")).status();
        assert!(status.unwrap().success(), "{pack}");
    }
    for (file, reason) in [
        ("empty", "it is empty"),
        ("text", "it is not gzip"),
        ("text.gz", "it is not a tar.gz"),
        ("other.tgz", "expected the file `transfer.json`, found `other/file`"),
        ("dir", "Is a directory (os error 21)"),
    ] {
        let ran = here(&sandbox, &["receive", file, "-w", "work"]).expect_code(1);
        let expected = format!(
            "error: this is not a file that `delta send` has written: {reason}\n\
             help: name the file that `delta send RUN -o FILE` has written\n"
        );
        assert_eq!(ran.stderr, expected, "{file}");
    }
}

#[test]
fn c_36_11_keys_and_variables_of_the_agent_never_leave() {
    let sandbox = waiting();
    sandbox.write("agent/sub/.env", "OTHER_API_KEY=1234567890\n");
    sandbox.write("work/.sessions/s/x", "");
    let ran = send(&sandbox, &["--files", "none"]).expect_code(0);
    let left = ["keys", ".env of the agent", "sessions", "files of the workspace"];
    assert!(ran.stderr.starts_with(&format!("Not sent: {}\n", left.join(", "))), "{ran:?}");
    assert_eq!(sandbox.events("SENT")[0]["left"], serde_json::json!(left));
    fs::create_dir(sandbox.path("unpacked")).unwrap();
    let unpack = ["xzf", "r.tgz", "-C", "unpacked"];
    let status = Command::new("tar").args(unpack).current_dir(sandbox.path("")).status();
    assert!(status.unwrap().success());
    let files = sandbox.files("unpacked");
    assert!(files.iter().any(|file| file.starts_with("objects/")), "{files:?}");
    for file in files {
        let content = fs::read(sandbox.path("unpacked").join(&file)).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("1234567890"), "{file}");
    }
}

#[test]
fn c_36_12_a_copy_closes_nothing_and_is_only_read_and_forked() {
    let sandbox = waiting();
    accept_there(&sandbox);
    let before = sandbox.journal();
    send(&sandbox, &["--copy"]).expect_code(0);
    assert_eq!(sandbox.journal(), before);
    // It cannot be rolled back: the snapshot that `--overwrite` takes would restore nothing.
    sandbox.write("there/work/ledger", "other\n");
    let ran = there(&sandbox, &[&RECEIVE[..], &["--overwrite"]].concat()).output().expect_code(1);
    assert!(ran.stderr.contains("what a copy replaces cannot be restored"), "{ran:?}");
    assert_eq!(sandbox.read("there/work/ledger"), "other\n");
    fs::remove_file(sandbox.path("there/work/ledger")).unwrap();
    there(&sandbox, &RECEIVE).output().expect_code(0);
    there(&sandbox, &["show", "r", "-w", "work"]).output().expect_code(0);
    let ran = there(&sandbox, &["continue", "r", "-w", "work", "yes"]).output().expect_code(1);
    assert!(ran.stderr.contains("this is a copy of run r, which is at"), "{ran:?}");
    let fork = ["fork", "r", "-w", "work", "--agent", "../agent", "--into", "f", "--at", "1"];
    there(&sandbox, &fork).output().expect_code(101);
    let ran = here(&sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
}

#[test]
fn c_36_6_a_run_that_cannot_leave_is_refused_with_the_command_that_helps() {
    let sandbox = waiting();
    let ran = send(&sandbox, &["--files", "changed"]).expect_code(1);
    assert!(ran.stderr.contains("help: send all files: `--files all`"), "{ran:?}");
    sandbox.write("exists", "");
    let ran = here(&sandbox, &["send", "r", "-w", "work", "-o", "exists"]).expect_code(1);
    assert!(ran.stderr.contains("exists exists"), "{ran:?}");
    here(&sandbox, &["tell", "r", "-w", "work", "more"]).expect_code(0);
    let ran = send(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("1 messages wait for it"), "{ran:?}");
    fs::remove_dir_all(sandbox.path("work/.delta/r/messages")).unwrap();
    edit_lines(&sandbox, |lines| {
        lines[2] = lines[2].replacen("\"iteration\":1", "\"iteration\": 1", 1);
    });
    sandbox.unverified("its journal is edited");
    let ran = send(&sandbox, &[]).expect_code(126);
    assert!(ran.stderr.contains("`delta trust r -w"), "{ran:?}");
}

/// The commands that delta names helped nothing: the run was refused as long as it had a stage.
#[test]
fn c_36_6_a_run_with_staged_changes_is_applied_or_discarded_before_it_leaves() {
    if !staged::can_stage() {
        return;
    }
    let sandbox = staged::staged(&["echo new > n", "cat n"]);
    accept_there(&sandbox);
    let ran = send(&sandbox, &[]).expect_code(1);
    let reason = "it has staged changes\nhelp: `delta apply r -w ";
    assert!(ran.stderr.contains(reason), "{ran:?}");
    staged::apply(&sandbox, &[]).expect_code(0);
    send(&sandbox, &[]).expect_code(0);
    there(&sandbox, &RECEIVE).output().expect_code(0);
    there(&sandbox, &["continue", "r", "-w", "work", "-m", "more", "-q"]).output().expect_code(0);
    // A run that has staged nothing leaves too.
    let sandbox = staged::staged(&["true"]);
    send(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_36_6_a_call_at_work_keeps_its_run_here() {
    let sandbox = surviving::building();
    surviving::kill(surviving::start(&sandbox));
    let ran = send(&sandbox, &[]).expect_code(1);
    let reason = "build is at work\nhelp: wait for it, or end it with `delta stop r -w ";
    assert!(ran.stderr.contains(reason), "{ran:?}");
    here(&sandbox, &["stop", "r", "-w", "work"]).expect_code(0);
    send(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_36_6_an_inner_run_leaves_after_the_end_of_the_run_that_started_it() {
    let run = "run --agent ${AGENT_HOME}/inner -w . --run-id i -q -m go";
    let tools = format!("  - {{name: inner, exec: '{DELTA} {run}'}}\n");
    let ask = "- call: [{tool: ask_human, args: {prompt: Really?}}]\n";
    let sandbox =
        Sandbox::scripted(DELTA, &tools, &format!("- call: [{{tool: inner}}]\n{ask}- say: done\n"));
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("agent/inner/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let agent = "name: inner\nllm: {provider: script, model: script.yaml}\n";
    sandbox.write("agent/inner/agent.yaml", agent);
    sandbox.write("agent/inner/script.yaml", "turns:\n- say: done\n");
    sandbox.run("task", &["-q"]).expect_code(101);
    let send_inner = || here(&sandbox, &["send", "i", "-w", "work", "-o", "i.tgz"]);
    let ran = send_inner().expect_code(1);
    assert!(ran.stderr.contains("the run that started it has not ended"), "{ran:?}");
    here(&sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).expect_code(0);
    send_inner().expect_code(0);
}

/// Only what the run has changed leaves, and meets a workspace with the same beginning.
#[test]
fn c_36_10_changed_files_are_merged_into_the_same_beginning() {
    let sandbox = Sandbox::scripted(DELTA, &format!("{TOOLS}snapshots: true\n"), TURNS);
    sandbox.write("work/large", vec![b'x'; 300_000]);
    sandbox.write("there/work/large", vec![b'x'; 300_000]);
    sandbox.write("there/work/more", "of the other\n");
    sandbox.run("task", &["-q"]).expect_code(101);
    accept_there(&sandbox);
    send(&sandbox, &["--files", "changed", "--records", "none"]).expect_code(0);
    there(&sandbox, &RECEIVE).output().expect_code(0);
    assert_eq!(sandbox.read("there/work/ledger"), "one\n");
    assert_eq!(sandbox.read("there/work/more"), "of the other\n");
    sandbox.unverified("its records were not sent");
    let ran = there(&sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).output();
    assert_eq!(ran.expect_code(0).stdout, "done\n");
}

/// A program instead of ssh: it starts the command on the other host. `filter` is a part of a shell script, and `"$2"` the
/// command.
fn rsh(sandbox: &Sandbox, filter: &str) -> Delta {
    fs::create_dir_all(sandbox.path("there/home")).unwrap();
    let there = sandbox.path("there");
    let [there, programs] = [&*there, Path::new(DELTA).parent().unwrap()].map(Path::display);
    sandbox.write_program(
        "bin/rsh",
        &format!(
            "#!/bin/sh\nexport PATH={programs}:$PATH HOME={there}/home\ncd {there}\n{filter}\n"
        ),
    );
    let send = sandbox.delta(["send", "r", "-w", "work", "host:work"]);
    send.env("DELTA_RSH", sandbox.path("bin/rsh"))
}

/// Passes everything, and keeps copies.
const LOGGED: &str = "tee ../stream | sh -c \"$2\" | tee ../replies";

/// How far before its end an archive is cut in its last entry, which ends with two blocks of zeros.
const IN_LAST_ENTRY: usize = 1500;

/// Passes so many bytes, each at once.
fn cut_after(bytes: usize) -> String {
    format!("dd bs=1 count={bytes} status=none | sh -c \"$2\"")
}

fn is_closed(sandbox: &Sandbox) -> bool {
    let events = sandbox.journal();
    let last = |kind: &str| events.iter().rposition(|event| event["type"] == kind);
    last("SENT") > last("RUN_TRUSTED")
}

fn continue_there(sandbox: &Sandbox) -> Ran {
    there(sandbox, &["continue", "r", "-w", "work", "yes", "-q"]).output()
}

#[test]
fn c_36_6_over_a_connection_a_run_arrives_once() {
    let sandbox = waiting();
    accept_there(&sandbox);
    let ran = rsh(&sandbox, "exec sh -c \"$2\"").output().expect_code(0);
    assert!(ran.stderr.contains("tools  die, note, stop"), "{ran:?}");
    assert_eq!(sandbox.events("SENT")[0]["place"], "host:work");
    let again = || rsh(&sandbox, "exec sh -c \"$2\"");
    let ran = again().output().expect_code(0);
    assert!(ran.stderr.contains("Run r is at host:work already"), "{ran:?}");
    let others: [&[&str]; 3] = [&["other:work"], &["host:elsewhere"], &["-o", "r.tgz"]];
    for other in others {
        let ran = here(&sandbox, &[&["send", "r", "-w", "work"], other].concat()).expect_code(1);
        assert!(ran.stderr.contains("the run was sent to host:work"), "{ran:?}");
    }
    let cancel = again().args(["--cancel"]);
    cancel.output().expect_code(2);
    let rsh = sandbox.path("bin/rsh");
    let cancel = ["send", "r", "-w", "work", "--cancel"];
    let ran = sandbox.delta(cancel).env("DELTA_RSH", rsh).output().expect_code(1);
    assert!(ran.stderr.contains("run r has arrived at host:work"), "{ran:?}");
    assert_eq!(continue_there(&sandbox).expect_code(0).stdout, "done\n");
    for host in ["-oProxyCommand=x:y", "a/b:c", ":c", "host:"] {
        let send = ["send", "r", "-w", "work", "--", host];
        assert_eq!(here(&sandbox, &send).code, 2, "{host}");
    }
}

#[test]
fn c_36_7_a_file_is_written_again_as_the_same_transfer() {
    let sandbox = waiting();
    send(&sandbox, &[]).expect_code(0);
    let unpack = || {
        let mut tar = Command::new("tar");
        tar.args(["xzOf", "r.tgz"]).current_dir(sandbox.path("")).output().unwrap().stdout
    };
    let first = unpack();
    fs::remove_file(sandbox.path("r.tgz")).unwrap();
    send(&sandbox, &[]).expect_code(0);
    assert!(!first.is_empty() && first == unpack());
}

#[test]
fn c_36_7_a_connection_that_is_cut_anywhere_is_continued_without_complete_members() {
    let sandbox = waiting();
    rsh(&sandbox, LOGGED).output().expect_code(0);
    let length = fs::read(sandbox.path("stream")).unwrap().len();
    let needed = |sandbox: &Sandbox| -> Vec<String> {
        let replies = sandbox.read("replies");
        let reply: Value = serde_json::from_str(replies.lines().next().unwrap()).unwrap();
        serde_json::from_value(reply["need"].clone()).unwrap()
    };
    let all = needed(&sandbox).len();
    let forward = [0, 300, length / 2, length * 9 / 10, length - IN_LAST_ENTRY]
        .map(|cut| (cut_after(cut), cut));
    // The shell itself has the pipe, too.
    let replies = [("true", 0), ("sed -u 1q", 0), ("sed -u 2q", length)];
    let replies =
        replies.map(|(filter, cut)| (format!("sh -c \"$2\" | {{ {filter}; kill -9 $$; }}"), cut));
    for (filter, cut) in forward.into_iter().chain(replies) {
        let sandbox = waiting();
        accept_there(&sandbox);
        rsh(&sandbox, &filter).output().expect_code(1);
        let has_arrived = sandbox.path("there/work/.delta/r").exists();
        assert!(is_closed(&sandbox) || !has_arrived, "{filter}");
        rsh(&sandbox, LOGGED).output().expect_code(0);
        if cut > length * 8 / 10 && !has_arrived {
            assert!(needed(&sandbox).len() < all / 2, "{filter}: {:?}", needed(&sandbox));
        }
        here(&sandbox, &["continue", "r", "-w", "work", "yes"]).expect_code(1);
        assert_eq!(continue_there(&sandbox).expect_code(0).stdout, "done\n", "{filter}");
    }
}

/// The server of an ssh connection whose other end is gone notices nothing, and its `delta receive` waits for more: it kept the
/// next one from receiving the run, for hours.
#[test]
fn c_36_7_a_receiver_that_waits_for_a_dead_connection_is_replaced() {
    let sandbox = waiting();
    rsh(&sandbox, LOGGED).output().expect_code(0);
    let count = fs::read(sandbox.path("stream")).unwrap().len() * 9 / 10;
    let sandbox = waiting();
    accept_there(&sandbox);
    let waits = format!(
        "mkfifo ../input; sh -c \"$2\" < ../input 2>/dev/null | sed -u 1q & exec 9> ../input\n\
         dd bs=1 count={count} status=none >&9\n\
         (exec sleep 60) <&- >/dev/null 2>&1 & echo $! > ../holder; kill -9 $$"
    );
    rsh(&sandbox, &waits).output().expect_code(1);
    let holder = sandbox.read("holder");
    let ran = rsh(&sandbox, "exec sh -c \"$2\"").output();
    let status = Command::new("kill").arg(holder.trim()).status().unwrap();
    assert!(status.success(), "the earlier connection was still there");
    ran.expect_code(0);
    assert_eq!(continue_there(&sandbox).expect_code(0).stdout, "done\n");
}

#[test]
fn c_36_6_a_transfer_is_cancelled_where_it_has_not_arrived() {
    let sandbox = waiting();
    rsh(&sandbox, LOGGED).output().expect_code(0);
    let length = fs::read(sandbox.path("stream")).unwrap().len();
    let sandbox = waiting();
    accept_there(&sandbox);
    rsh(&sandbox, &cut_after(length - IN_LAST_ENTRY)).output().expect_code(1);
    assert!(is_closed(&sandbox), "the lines that close the run have not arrived");
    let _ = rsh(&sandbox, "exec sh -c \"$2\"");
    let cancel = ["send", "r", "-w", "work", "--cancel"];
    let cancel = || sandbox.delta(cancel).env("DELTA_RSH", sandbox.path("bin/rsh")).output();
    cancel().expect_code(0);
    assert!(!is_closed(&sandbox));
    assert!(cancel().expect_code(1).stderr.contains("run r was not sent"));
    here(&sandbox, &["verify", "r", "-w", "work"]).expect_code(0);
    rsh(&sandbox, "exec sh -c \"$2\"").output().expect_code(0);
    assert_eq!(continue_there(&sandbox).expect_code(0).stdout, "done\n");
}
