//! What delta opens below a run directory stays below it (C-20.5): a symlink in `io/` had `view` embed a file from outside,
//! and one in `agent/` had `continue` delete and write elsewhere.

use crate::DELTA;
use crate::runs::edit_journal;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

/// What must be on no page and in no answer.
const OUTSIDE: &str = "a secret outside of the run";

/// Run `r`, done, with a tool whose output is in a file of its own, and the directory `outside/`.
fn finished() -> Sandbox {
    let tools = "  - name: t\n    shell: head -c 100000 /dev/zero | tr '\\\\0' x\n";
    let turns = "- call: [{tool: t}]\n- say: done\n- say: more\n- say: again\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("task", &[]).expect_code(0);
    sandbox.write("outside/keep", OUTSIDE);
    sandbox.unverified("its files are replaced");
    sandbox
}

/// Moves `part` of the run to `outside/moved`, where every file has other content, and puts a symlink in its place.
fn redirect(sandbox: &Sandbox, part: &str) {
    let (inside, outside) =
        (sandbox.path("work/.delta/r").join(part), sandbox.path("outside/moved"));
    fs::rename(&inside, &outside).unwrap();
    for file in sandbox.files("outside/moved") {
        let path = outside.join(file);
        let length = fs::metadata(&path).unwrap().len() as usize;
        fs::write(&path, OUTSIDE.repeat(length / OUTSIDE.len() + 1)).unwrap();
    }
    symlink(&outside, &inside).unwrap();
}

/// The files below a directory with their contents.
fn contents(sandbox: &Sandbox, dir: &str) -> Vec<(String, Vec<u8>)> {
    let read = |file: String| {
        let bytes = fs::read(sandbox.path(dir).join(&file)).unwrap();
        (file, bytes)
    };
    sandbox.files(dir).into_iter().map(read).collect()
}

fn delta(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().copied()).output()
}

/// Fails if a reading command shows what is outside of the run.
#[track_caller]
fn nothing_leaks(sandbox: &Sandbox) {
    let commands: [&[&str]; 9] = [
        &["show", "r", "--all"],
        &["show", "r", "--request", "1"],
        &["view", "r", "-o", "-"],
        &["replay", "r"],
        &["export", "r", "--to", "markdown"],
        &["export", "r", "--to", "openai"],
        &["export", "r", "--to", "atif"],
        &["context", "show", "r"],
        &["list-runs"],
    ];
    for command in commands {
        let args: Vec<&str> = command.iter().chain(&["-w", "work"]).copied().collect();
        let ran = delta(sandbox, &args);
        let is_shown = ran.stdout.contains(OUTSIDE) || ran.stderr.contains(OUTSIDE);
        assert!(!is_shown, "{command:?} shows a file from outside");
    }
}

#[test]
fn c_20_5_no_symlink_below_a_run_brings_a_file_from_outside() {
    for part in ["io", "io/tool_executions", "io/invocations", "agent"] {
        let sandbox = finished();
        redirect(&sandbox, part);
        nothing_leaks(&sandbox);
    }
}

#[test]
fn c_20_5_a_copied_run_is_read_without_leaving_it() {
    let sandbox = finished();
    redirect(&sandbox, "io/tool_executions");
    fs::rename(sandbox.path("work/.delta/r"), sandbox.path("copied")).unwrap();
    for command in ["view", "show", "replay"] {
        let output: &[&str] = if command == "view" { &["-o", "-"] } else { &[] };
        let args: Vec<&str> = [command, "./copied"].iter().chain(output).copied().collect();
        let ran = delta(&sandbox, &args);
        assert!(!ran.stdout.contains(OUTSIDE), "{command}: {}", ran.stdout);
    }
}

#[test]
fn c_20_5_a_name_in_a_journal_leads_to_no_file_outside() {
    for part in ["invocation", "execution"] {
        let sandbox = finished();
        let outside = sandbox.path("outside/keep").display().to_string();
        // A record of the attacker names another file in turn.
        let names = [
            outside.clone(),
            "io/../../../../outside/keep".to_owned(),
            "../../../outside/keep".to_owned(),
        ];
        for name in names {
            edit_journal(&sandbox, |journal| {
                let mut lines = journal.lines().map(|line| {
                    let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
                    if event.get(part).is_some() {
                        event[part] = name.clone().into();
                    }
                    format!("{event}\n")
                });
                lines.by_ref().collect()
            });
            nothing_leaks(&sandbox);
        }
    }
}

#[test]
fn c_20_5_a_name_in_a_record_leads_to_no_file_outside() {
    let sandbox = finished();
    let records = sandbox.path("work/.delta/r/io/tool_executions");
    let record = sandbox.files("work/.delta/r/io/tool_executions");
    let record = record.iter().find(|name| name.ends_with(".json")).unwrap();
    let text = fs::read_to_string(records.join(record)).unwrap();
    let outside = sandbox.path("outside/keep").display().to_string();
    let stem = record.trim_end_matches(".json");
    for name in [outside.as_str(), "../../../../../outside/keep"] {
        let edited = text.replace(&format!("{stem}.stdout"), name);
        assert_ne!(edited, text);
        fs::write(records.join(record), edited).unwrap();
        nothing_leaks(&sandbox);
    }
}

#[test]
fn c_20_5_continue_changes_nothing_through_a_symlink() {
    for part in ["agent", "io", "io/invocations", "io/tool_executions", "interaction"] {
        let sandbox = finished();
        if part == "interaction" {
            fs::create_dir(sandbox.path("work/.delta/r/interaction")).unwrap();
        }
        redirect(&sandbox, part);
        // The directory to which the next process would copy the changed agent.
        sandbox.write("outside/moved/2/keep", OUTSIDE);
        sandbox.write("outside/moved/response.txt", "yes\n");
        sandbox.write("agent/system_prompt.md", "You are another test.\n");
        let before = contents(&sandbox, "outside");
        delta(&sandbox, &["continue", "r", "-w", "work", "-m", "more"]);
        assert!(contents(&sandbox, "outside") == before, "{part}: a file outside was changed");
    }
}

#[test]
fn c_20_5_a_record_is_not_written_through_a_symlink_that_a_tool_made() {
    let script = "rm -r $RUN_DIR/io/invocations; ln -s $PWD/../outside $RUN_DIR/io/invocations";
    let tools = format!("  - name: t\n    shell: {script}\n");
    let sandbox = Sandbox::scripted(DELTA, &tools, "- call: [{tool: t}]\n- say: done\n");
    fs::create_dir(sandbox.path("outside")).unwrap();
    sandbox.unverified("a tool replaces its records");
    let ran = sandbox.run("task", &[]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("symlink"), "{}", ran.stderr);
    assert!(sandbox.files("outside").is_empty());
}

/// Gives a directory to another user; false where this is not root.
fn give(path: &Path, user: u32) -> bool {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        needs::skip("needs root, which gives a directory to another user");
        return false;
    }
    chown(path, Some(user), Some(user)).unwrap();
    true
}

#[test]
fn c_20_5_a_control_directory_of_another_user_is_refused() {
    let sandbox = finished();
    if !give(&sandbox.path("work/.delta"), 65534) {
        return;
    }
    let commands: [&[&str]; 4] = [
        &["continue", "r", "-w", "work", "-m", "more"],
        &["run", "--agent", "agent", "-w", "work", "-m", "more"],
        &["rollback", "r", "-w", "work", "--to", "0"],
        &["trust", "r", "-w", "work"],
    ];
    let before = contents(&sandbox, "work");
    for command in commands {
        let ran = delta(&sandbox, command).expect_code(126);
        let reason = "work/.delta belongs to user 65534, and this process is user 0";
        let is_explained = ran.stderr.contains(reason) && ran.stderr.contains("chown -R 0 ");
        assert!(is_explained, "{command:?}: {}", ran.stderr);
    }
    assert!(contents(&sandbox, "work") == before, "nothing is written there");
    // Its runs are foreign: they can be read, and forked with an agent of the operator.
    delta(&sandbox, &["list-runs", "-w", "work"]).expect_code(0);
    delta(&sandbox, &["show", "r", "-w", "work"]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--at", "0", "--into", "new", "-q", "--continue"];
    let ran = delta(&sandbox, &fork).expect_code(126);
    assert!(ran.stderr.contains("is foreign"), "{}", ran.stderr);
    delta(&sandbox, &[&fork[..], &["--agent", "agent"]].concat()).expect_code(0);
}

#[test]
fn c_20_5_a_control_directory_of_root_is_taken_unless_others_write_there() {
    let sandbox = finished();
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        needs::skip("needs root, which gives a directory to another user");
        return;
    }
    let chmod = |mode: &str| {
        let mut command = Command::new("chmod");
        assert!(command.args([mode, "-R"]).arg(sandbox.path("")).status().unwrap().success());
    };
    for (mode, reason) in [("a=rX,u+w", "Permission denied"), ("a=rwX", "belongs to user 0")] {
        chmod(mode);
        let program = sandbox.path("delta");
        sandbox.copy_program(DELTA, "delta");
        chmod(mode);
        Command::new("chmod").args(["755"]).arg(&program).status().unwrap();
        let mut command = Command::new(&program);
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        command.args(["rollback", "r", "--to", "0", "-w"]).arg(sandbox.path("work"));
        let stderr = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
        assert!(stderr.contains(reason), "{mode}: {stderr}");
    }
}

#[test]
fn c_20_5_sessions_stay_in_their_directory() {
    let sandbox = Sandbox::new(DELTA);
    let sessions = test_support::sibling("delta-sessions");
    let run = |args: &[&str]| {
        let mut command = Command::new(&sessions);
        command.args(args).current_dir(sandbox.path("work"));
        let output = command.output().unwrap();
        Ran::of(output.status, &output.stdout, &output.stderr)
    };
    fs::create_dir(sandbox.path("work")).unwrap();
    let started = run(&["start", "bash"]).expect_code(0);
    let id = started.json()["session_id"].as_str().unwrap().to_owned();
    sandbox.write("outside/keep", OUTSIDE);
    let session = sandbox.path("work/.sessions").join(&id);
    fs::remove_dir_all(session.join("output")).unwrap();
    symlink(sandbox.path("outside"), session.join("output")).unwrap();
    run(&["exec", &id, "echo hello"]);
    assert_eq!(sandbox.files("outside"), ["keep"]);
    if give(&sandbox.path("work/.sessions"), 65534) {
        for args in [["exec", &id, "echo hello"].as_slice(), &["list"], &["start", "bash"]] {
            let ran = run(args);
            assert_ne!(ran.code, 0, "{args:?}");
            let shown = format!("{}{}", ran.stdout, ran.stderr);
            assert!(shown.contains("belongs to user 65534"), "{args:?}: {shown}");
        }
    }
}
