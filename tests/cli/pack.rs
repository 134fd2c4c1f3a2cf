//! `delta pack` and `unpack` (C-25.8): one file for the records, which every command reads; the same bytes back; nothing is
//! lost at any point.

use super::DELTA;
use super::runs::{in_state, resume, resume_command, snapshot};
use std::fs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until_line;

/// `loud` prints more than a record holds; `note` prints little.
const TOOLS: &str = "  - name: loud\n    shell: seq 1 30000; seq 1 20000 >&2\n  \
     - name: note\n    shell: echo ${text} >> ledger; echo noted ${text}\n";

/// A run of ten iterations with hooks, large streams and a failed call.
fn ten_iterations() -> Sandbox {
    let mut turns = String::from("- say: first\n  call: [{tool: loud}, {tool: nothing}]\n");
    for index in 2..10 {
        turns.push_str(&format!("- call: [{{tool: note, args: {{text: '{index}'}}}}]\n"));
    }
    turns.push_str("- say: done\n- say: 'more ${last}'\n");
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns);
    sandbox.write("agent/hooks.yaml", "on_iteration_start: {command: ['true']}\n");
    sandbox.run("task", &["-q", "--snapshots"]).expect_code(0);
    sandbox
}

fn pack(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["pack", "-w", "work"].iter().chain(more).copied()).output()
}

fn unpack(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["unpack", "-w", "work"].iter().chain(more).copied()).output()
}

/// What every reading command prints about run `r`.
fn read_all(sandbox: &Sandbox) -> Vec<(String, Ran)> {
    let commands: [&[&str]; 17] = [
        &["show", "r"],
        &["show", "r", "--format", "json"],
        &["show", "r", "--request", "1"],
        &["show", "r", "--request", "9"],
        &["replay", "r"],
        &["replay", "r", "--format", "json"],
        &["replay", "r", "--mode", "tools"],
        &["export", "r", "--to", "otlp", "--content=all"],
        &["export", "r", "--to", "atif"],
        &["export", "r", "--to", "openai"],
        &["export", "r", "--to", "markdown"],
        &["context", "show", "r"],
        &["context", "diff", "r", "1", "9"],
        &["diff", "r", "0", "5"],
        &["diff", "r", "r", "--format", "json"],
        &["view", "r", "-o", "-"],
        &["list-runs", "--format", "json"],
    ];
    let read = |command: &&[&str]| {
        let mut ran = sandbox.delta(command.iter().chain(&["-w", "work"]).copied()).output();
        if command.contains(&"tools") {
            // The second line and stderr name the workspace of the repetition, a new one each time.
            ran.stdout.truncate(ran.stdout.find('\n').unwrap() + 1);
            ran.stderr.clear();
        }
        if command[0] == "view" {
            let made_at = ran.stdout.find("\"made_at\":\"").unwrap();
            ran.stdout.replace_range(made_at..made_at + 40, "");
        }
        (command.join(" "), ran)
    };
    commands.iter().map(read).collect()
}

#[test]
fn c_25_8_ten_iterations_leave_six_files_and_every_command_reads_them() {
    let sandbox = ten_iterations();
    fs::remove_file(sandbox.path("agent/hooks.yaml")).unwrap();
    let before = snapshot(&sandbox);
    let read_before = read_all(&sandbox);
    for (command, ran) in &read_before {
        assert!(ran.code == 0 || command == "diff r 0 5", "{command}: {}", ran.stderr);
        assert!(!ran.stdout.is_empty(), "{command}");
    }
    let ran = pack(&sandbox, &["r"]).expect_code(0);
    assert!(
        ran.stderr.starts_with("Packed ") && ran.stderr.ends_with(" bytes) of run r\n"),
        "{}",
        ran.stderr
    );
    let files = sandbox.files("work/.delta/r");
    let files: Vec<&String> = files.iter().filter(|file| !file.starts_with("snapshots/")).collect();
    let agent =
        ["agent/agent.yaml", "agent/context.yaml", "agent/hooks.yaml", "agent/system_prompt.md"];
    let rest = ["io.pack", "journal.jsonl", "metadata.json"];
    assert_eq!(files, [&agent[..], &rest[..]].concat());
    for ((command, before), (_, after)) in read_before.iter().zip(read_all(&sandbox)) {
        assert_eq!(before.stdout, after.stdout, "{command}");
        assert_eq!((before.code, &before.stderr), (after.code, &after.stderr), "{command}");
    }
    pack(&sandbox, &["r", "-q"]).expect(0, "", "");
    unpack(&sandbox, &["r"]).expect_code(0);
    assert_eq!(snapshot(&sandbox), before);
    assert!(!sandbox.path("work/.delta/r/io.pack").exists());
    unpack(&sandbox, &["r"]).expect(0, "", "Run r is not packed\n");
}

#[test]
fn c_25_8_a_plain_agent_leaves_at_most_six_files() {
    let turns: String =
        (1..10).map(|n| format!("- call: [{{tool: note, args: {{text: '{n}'}}}}]\n")).collect();
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("{turns}- say: done\n"));
    sandbox.run("task", &["-q"]).expect_code(0);
    pack(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.files("work/.delta/r").len(), 6);
}

#[test]
fn c_25_8_all_ended_runs_below_a_directory_are_packed_verified_and_unpacked() {
    let turns = "- when: ask\n  call: [{tool: ask_human, args: {prompt: Who?}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    for (work, task, code) in [("all/a", "go", 0), ("all/deep/b", "go", 0), ("all/c", "ask", 101)] {
        let args = ["run", "--agent", "agent", "-w", work, "--run-id", "r", "-q", "-m", task];
        sandbox.delta(args).output().expect_code(code);
    }
    let each = |command: &str| sandbox.delta([command, "-r", "all"]).output().expect_code(0);
    let is_packed = || {
        ["a", "deep/b", "c"]
            .map(|work| sandbox.path(&format!("all/{work}/.delta/r/io.pack")).exists())
    };
    assert_eq!(each("pack").stderr.matches("Packed ").count(), 2);
    assert_eq!(is_packed(), [true, true, false], "a run that waits has not ended");
    assert_eq!(each("pack").stderr, "");
    assert_eq!(each("verify").stdout.matches("run r ").count(), 3);
    assert_eq!(each("unpack").stderr.matches("Unpacked ").count(), 2);
    assert_eq!(is_packed(), [false; 3]);
    assert_eq!(each("stop").stderr, "", "no process works on them");
    let ran = sandbox.delta(["verify", "-r", "home"]).output().expect_code(1);
    assert!(ran.stderr.contains("these directories have no runs"), "{}", ran.stderr);
}

#[test]
fn c_25_8_a_packed_run_is_continued_forked_and_rolled_back() {
    let sandbox = ten_iterations();
    pack(&sandbox, &["r"]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--at", "3", "--into", "other", "--run-id", "f", "-q"];
    sandbox.delta(fork).output().expect_code(0);
    assert!(sandbox.path("work/.delta/r/io.pack").exists(), "a fork only reads");
    let copied = sandbox.files("other/.delta/f/io");
    assert!(copied.iter().any(|file| file.ends_with("_loud.stdout")), "{copied:?}");
    sandbox.delta(["rollback", "r", "-w", "work", "--to", "2"]).output().expect_code(0);
    pack(&sandbox, &["r"]).expect_code(0);
    resume(&sandbox, &["-m", "go on", "-q"]).expect_code(0);
    assert!(!sandbox.path("work/.delta/r/io.pack").exists());
    assert!(
        sandbox.read("work/.delta/r/engine.log").matches("start").count() >= 2,
        "its log is whole"
    );
}

/// The files of the run as packing finds them.
fn files_of(sandbox: &Sandbox) -> Vec<(String, Vec<u8>)> {
    let files = sandbox.files("work/.delta/r").into_iter();
    files
        .map(|file| {
            let bytes = fs::read(sandbox.path("work/.delta/r").join(&file)).unwrap();
            (file, bytes)
        })
        .collect()
}

#[test]
fn c_25_8_what_a_crash_leaves_is_read_and_completed() {
    let sandbox = ten_iterations();
    let loose = files_of(&sandbox);
    let whole = snapshot(&sandbox);
    pack(&sandbox, &["r"]).expect_code(0);
    let shown = read_all(&sandbox);
    let write = |file: &str, bytes: &[u8]| sandbox.write(&format!("work/.delta/r/{file}"), bytes);
    let records: Vec<&(String, Vec<u8>)> =
        loose.iter().filter(|(file, _)| file.starts_with("io/")).collect();
    // Packing was killed while it removed the files; unpacking was killed in the middle of one; a power failure emptied it.
    for cut in [usize::MAX, 10, 0] {
        for (file, bytes) in records.iter().skip(3) {
            write(file, &bytes[..bytes.len().min(cut)]);
        }
        write("io.pack.tmp", b"half of a pack");
        write("io/invocations/x.json.tmp", b"half");
        assert_eq!(read_all(&sandbox), shown, "{cut}");
        if cut == 0 {
            unpack(&sandbox, &["r"]).expect_code(0);
            fs::remove_file(sandbox.path("work/.delta/r/io.pack.tmp")).unwrap();
            fs::remove_file(sandbox.path("work/.delta/r/io/invocations/x.json.tmp")).unwrap();
            assert_eq!(snapshot(&sandbox), whole);
        } else {
            pack(&sandbox, &["r"]).expect_code(0);
            assert_eq!(read_all(&sandbox), shown, "{cut}");
            assert!(!sandbox.path("work/.delta/r/io").exists());
        }
    }
}

#[test]
fn c_25_8_only_a_run_that_has_ended_is_packed() {
    let waiting = in_state("WAITING_FOR_INPUT");
    let refused = pack(&waiting, &["r"]).expect_code(1).stderr;
    assert!(
        refused.starts_with(
            "error: run r is WAITING_FOR_INPUT; delta packs only runs that have ended\n"
        ),
        "{refused}"
    );
    let dead = in_state("RUNNING");
    pack(&dead, &["r"]).expect_code(1);
    for state in ["FAILED", "INTERRUPTED"] {
        pack(&in_state(state), &["r"]).expect_code(0);
    }
    let tools = "  - name: hold\n    shell: echo > held; cat gate\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: hold}]\n- say: done\n");
    fs::create_dir(sandbox.path("work")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(sandbox.path("work/gate")).status();
    assert!(fifo.unwrap().success());
    let child = sandbox.run_command("x", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let refused = pack(&sandbox, &["r", "nosuch"]).expect_code(1).stderr;
    assert!(
        refused.contains("error: run r is active (process ")
            && refused.contains("help: stop it with `delta stop r -w ")
            && refused.contains("no run nosuch"),
        "{refused}"
    );
    unpack(&sandbox, &["r"]).expect_code(1);
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    pack(&sandbox, &["r"]).expect_code(0);
}

#[test]
fn c_25_8_a_damaged_pack_is_named_and_stays() {
    let sandbox = ten_iterations();
    sandbox.unverified("its pack is damaged");
    pack(&sandbox, &["r"]).expect_code(0);
    let path = sandbox.path("work/.delta/r/io.pack");
    let bytes = fs::read(&path).unwrap();
    let data = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let refuse = |bytes: &[u8], reason: &str| {
        fs::write(&path, bytes).unwrap();
        let refused = unpack(&sandbox, &["r"]);
        assert!(
            refused.code != 0 && refused.stderr.contains(reason),
            "{reason}: {}",
            refused.stderr
        );
        assert_eq!(fs::read(&path).unwrap(), bytes);
    };
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    refuse(&flipped, "do not match their SHA-256");
    assert_eq!(sandbox.delta(["replay", "r", "-w", "work"]).output().code, 3);
    refuse(&bytes[..bytes.len() - 1], "are missing");
    refuse(&bytes[..20], "its index is cut off");
    refuse(b"", "its index is cut off");
    let text = |from: &str, to: &str| {
        let header = String::from_utf8(bytes[..data].to_vec()).unwrap().replacen(from, to, 1);
        [header.as_bytes(), &bytes[data..]].concat()
    };
    refuse(&text("\"version\":1", "\"version\":2"), "does not read version 2");
    refuse(
        &text("\"name\":\"engine.log\"", "\"name\":\"journal.jsonl\""),
        "journal.jsonl is not a file of io/",
    );
    refuse(&text("\"name\":\"io/hooks/", "\"name\":\"io/../../x/"), "leads out of the directory");
    refuse(&text("\"offset\":0", "\"offset\":18446744073709551615"), "are missing");
    // A record that cannot be read is reported, and the rest is shown.
    sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    sandbox.delta(["view", "r", "-w", "work", "-o", "-"]).output().expect_code(0);
    resume_command(&sandbox, &["-m", "x", "-q"]).output().expect_code(126);
    fs::write(&path, &bytes).unwrap();
    unpack(&sandbox, &["r"]).expect_code(0);
    resume(&sandbox, &["-m", "x", "-q"]).expect_code(0);
}

// The good files beside a damaged pack were removed, and `pack` reported success.
#[test]
fn c_25_8_no_file_is_removed_while_the_pack_is_damaged() {
    let sandbox = ten_iterations();
    sandbox.unverified("its pack is damaged");
    let loose = files_of(&sandbox);
    pack(&sandbox, &["r"]).expect_code(0);
    let path = sandbox.path("work/.delta/r/io.pack");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    let files = || {
        let mut files = sandbox.files("work/.delta/r");
        files.retain(|file| file != "lock");
        files
    };
    let refuse = || {
        let before = files();
        let refused = pack(&sandbox, &["r"]).expect_code(126).stderr;
        assert!(refused.contains("do not match their SHA-256"), "{refused}");
        assert_eq!(files(), before);
        refused
    };
    assert!(!refuse().contains("help: "), "there is nothing to use in its place");
    for (file, bytes) in &loose {
        if file.starts_with("io/") || file == "engine.log" {
            sandbox.write(&format!("work/.delta/r/{file}"), bytes);
        }
    }
    let refused = refuse();
    // A file that is only outside of it does not make a new pack that has the damage.
    sandbox.write("work/.delta/r/io/hooks/more.json", "{}");
    refuse();
    fs::remove_file(sandbox.path("work/.delta/r/io/hooks/more.json")).unwrap();
    let (_, help) = refused.split_once("help: ").unwrap();
    let command = help.split('`').nth(1).unwrap();
    let moved = std::process::Command::new("sh").args(["-c", command]).status();
    assert!(moved.unwrap().success(), "{command}");
    assert_eq!(sandbox.delta(["replay", "r", "-w", "work"]).output().code, 0);
    pack(&sandbox, &["r"]).expect_code(0);
}

#[test]
fn c_20_5_a_symlink_in_io_is_not_packed() {
    let sandbox = ten_iterations();
    sandbox.unverified("a tool has put a symlink into its records");
    sandbox.write("secret", "mine\n");
    std::os::unix::fs::symlink(
        sandbox.path("secret"),
        sandbox.path("work/.delta/r/io/hooks/x.json"),
    )
    .unwrap();
    let before = sandbox.files("work/.delta/r");
    let refused = pack(&sandbox, &["r"]);
    assert!(
        refused.code != 0 && refused.stderr.contains("io/hooks/x.json: it is not a regular file"),
        "{}",
        refused.stderr
    );
    assert_eq!(sandbox.files("work/.delta/r"), before);
    // The log was passed over without a word.
    fs::remove_file(sandbox.path("work/.delta/r/io/hooks/x.json")).unwrap();
    let log = sandbox.path("work/.delta/r/engine.log");
    fs::remove_file(&log).unwrap();
    std::os::unix::fs::symlink(sandbox.path("secret"), &log).unwrap();
    let refused = pack(&sandbox, &["r"]).expect_code(1).stderr;
    assert!(refused.contains("engine.log: it is not a regular file"), "{refused}");
    fs::remove_file(&log).unwrap();
    pack(&sandbox, &["r"]).expect_code(0);
}
