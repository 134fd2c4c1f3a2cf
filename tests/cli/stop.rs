//! `delta stop` (C-25.8): the process of a run leaves it; no other process is ever signalled.

use super::DELTA;
use super::runs::{edit_journal, in_state, resume, snapshot, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Command, Stdio};
use test_support::running::{Running, end_with_test};
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{self, until_line};

/// `hold` runs until a signal ends it; `stubborn` ignores what ends it gently.
const TOOLS: &str = "  - name: hold\n    shell: echo > held; exec sleep 1000\n  \
     - name: stubborn\n    shell: \"trap '' TERM INT; echo > held; while :; do sleep 0.1; done\"\n";

fn holding(tool: &str) -> Sandbox {
    Sandbox::scripted(DELTA, TOOLS, &format!("- call: [{{tool: {tool}}}]\n- say: done\n"))
}

fn stop(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["stop", "-w", "work"].iter().chain(more).copied()).output()
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

#[test]
fn c_25_8_a_run_is_stopped_as_by_ctrl_c() {
    let sandbox = holding("hold");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    stop(&sandbox, &[]).expect(0, "r  INTERRUPTED\n", "");
    end(child).expect_code(130);
    let last = sandbox.journal().pop().unwrap();
    assert_eq!((text(&last, "type"), text(&last, "status")), ("ENGINE_END", "INTERRUPTED"));
    // There is nothing left to stop, and nothing changes.
    let before = snapshot(&sandbox);
    stop(&sandbox, &["r"]).expect(0, "r  INTERRUPTED\n", "");
    assert_eq!(snapshot(&sandbox), before);
    resume(&sandbox, &["-q"]).expect_code(0);
    stop(&sandbox, &["r"]).expect(0, "r  COMPLETED\n", "");
    stop(&sandbox, &["nosuch"]).expect_code(1);
    stop(&sandbox, &["r", "--timeout", "10"]).expect_code(2);
}

#[test]
fn c_25_8_a_process_that_ignores_sigint_gets_sigterm() {
    let sandbox = holding("hold");
    // As a shell does for a background job of a script.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$@\"", "sh", DELTA, "run", "--agent", "agent"]);
    command.args(["-w", "work", "--run-id", "r", "-m", "x", "-q"]).env_clear();
    command.env("HOME", sandbox.path("home")).env("PATH", std::env::var_os("PATH").unwrap());
    command.current_dir(sandbox.path("")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    end_with_test(&mut command);
    let child = command.spawn().unwrap();
    until_line(&sandbox.path("work/held"));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    stop(&sandbox, &["r"]).expect(0, "r  INTERRUPTED\n", "");
    end(child).expect_code(130);
}

#[test]
fn c_25_8_several_runs_are_stopped_at_the_same_time() {
    let sandbox = holding("hold");
    let start = |id: &str| {
        let work = format!("work-{id}");
        let args = ["run", "--agent", "agent", "-w", &work, "--run-id", id, "-m", "x", "-q"];
        let child = sandbox.delta(args).spawn();
        until_line(&sandbox.path(&format!("{work}/held")));
        child
    };
    let children = ["a", "b"].map(start);
    let ran = sandbox.delta(["stop", "work-a/.delta/a", "work-b/.delta/b"]).output();
    ran.expect(0, "a  INTERRUPTED\nb  INTERRUPTED\n", "");
    for child in children {
        end(child).expect_code(130);
    }
}

#[test]
fn c_25_8_a_process_that_does_not_leave_in_time_is_reported() {
    let sandbox = holding("stubborn");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let late = stop(&sandbox, &["r", "--timeout", "50ms"]).expect_code(124);
    let expected = format!("error: process {} has not left run r in time\n", child.id());
    assert!(late.stderr.starts_with(&expected) && late.stdout.is_empty(), "{}", late.stderr);
    // The tool is killed after its grace period.
    stop(&sandbox, &["r", "--timeout", "1m"]).expect(0, "r  INTERRUPTED\n", "");
    end(child).expect_code(130);
}

#[test]
fn c_25_8_a_killed_process_is_not_looked_for_elsewhere() {
    let sandbox = in_state("RUNNING");
    let ran = stop(&sandbox, &["r"]).normal(&sandbox);
    let error = "error: run r is RUNNING: its process died without leaving it\n\
                 help: continue it with `delta continue r -w DIR/work`\n";
    ran.expect(1, "r  RUNNING\n", error);
}

#[test]
fn c_25_8_a_process_whose_lock_file_was_replaced_is_not_taken_for_dead() {
    let sandbox = holding("hold");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let engine = i32::try_from(child.id()).unwrap();
    fs::remove_file(sandbox.path("work/.delta/r/lock")).unwrap();
    // What claims the run creates the file again, with another process in it.
    resume(&sandbox, &["-q"]).expect_code(1);
    let ran = stop(&sandbox, &["r"]).expect_code(1);
    assert_eq!(ran.stdout, "r  RUNNING\n");
    let hint = format!("help: if that process works on the run, `kill -INT {engine}` stops it\n");
    assert!(ran.stderr.contains(" is alive, but the lock file"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with(&hint), "{}", ran.stderr);
    assert!(wait::is_alive(engine));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    end(child).expect_code(130);
    assert_eq!(sandbox.journal().pop().unwrap()["status"], "INTERRUPTED");
    // A file that is only gone is in nobody's way.
    let sandbox = holding("hold");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    fs::remove_file(sandbox.path("work/.delta/r/lock")).unwrap();
    stop(&sandbox, &["r"]).expect(0, "r  INTERRUPTED\n", "");
    end(child).expect_code(130);
}

/// The files in the run directory that say that a process was asked to leave.
fn stop_requests(sandbox: &Sandbox) -> usize {
    let entries = fs::read_dir(sandbox.path("work/.delta/r")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("stop-")).count()
}

#[test]
fn c_25_8_a_process_is_asked_once() {
    let sandbox = holding("stubborn");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let start = || sandbox.delta(["stop", "r", "-w", "work", "--timeout", "1m"]).spawn();
    // Longer than signals count as one.
    stop(&sandbox, &["r", "--timeout", "200ms"]).expect_code(124);
    assert_eq!(stop_requests(&sandbox), 1);
    let others = [start(), start(), start()];
    for other in others {
        end(other).expect(0, "r  INTERRUPTED\n", "");
    }
    end(child).expect_code(130);
    assert_eq!(stop_requests(&sandbox), 0);
}

#[test]
fn c_25_8_force_ends_a_process_that_was_asked() {
    let sandbox = holding("stubborn");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    // Longer than signals count as one.
    stop(&sandbox, &["r", "--timeout", "200ms"]).expect_code(124);
    let forced = stop(&sandbox, &["r", "--force"]).expect_code(1);
    assert_eq!(forced.stdout, "r  RUNNING\n");
    assert!(forced.stderr.contains("its process died without leaving it\n"), "{}", forced.stderr);
    end(child).expect_code(130);
    assert_eq!(stop_requests(&sandbox), 0);
    resume(&sandbox, &["-q"]).expect_code(0);
}

/// Changes the process that the journal names.
fn edit_process(sandbox: &Sandbox, edit: impl Fn(&mut Value)) {
    sandbox.unverified("its first event is changed");
    edit_journal(sandbox, |journal| {
        let line = |line: &str| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            if event["type"] == "ENGINE_START" {
                edit(&mut event);
            }
            format!("{event}\n")
        };
        journal.lines().map(line).collect()
    });
}

#[test]
fn c_25_8_no_other_process_gets_the_signal() {
    let stranger = Running::start(Command::new("sleep").arg("1000"));
    let other = holding("hold");
    let delta = other.run_command("task", &["-q"]).spawn();
    until_line(&other.path("work/held"));
    let start = other.journal()[0]["start_time_unix"].as_i64().unwrap();
    // The id of a program that is no delta; of a delta that began at another time; of the delta of another run.
    for (pid, started) in [(stranger.id(), 0), (stranger.id(), start), (delta.id(), start - 60_000)]
    {
        let sandbox = in_state("RUNNING");
        edit_process(&sandbox, |event| {
            (event["pid"], event["start_time_unix"]) = (json!(pid), json!(started));
        });
        assert_eq!(stop(&sandbox, &["r"]).expect_code(1).stdout, "r  RUNNING\n");
    }
    let sandbox = in_state("RUNNING");
    edit_process(&sandbox, |event| {
        (event["pid"], event["start_time_unix"]) = (json!(delta.id()), json!(start));
    });
    // The lock names the dead process.
    assert_eq!(stop(&sandbox, &["r"]).expect_code(1).stdout, "r  RUNNING\n");
    assert!(wait::is_alive(i32::try_from(stranger.id()).unwrap()));
    assert!(wait::is_alive(i32::try_from(delta.id()).unwrap()));
    stop(&other, &["r"]).expect_code(0);
    end(delta).expect_code(130);
}

#[test]
fn c_25_8_a_run_on_another_host_is_an_error() {
    let sandbox = in_state("RUNNING");
    edit_process(&sandbox, |event| {
        event["hostname"] = json!("far\u{1b}[31maway");
        event["lease"] = json!("shared-flock");
    });
    let ran = stop(&sandbox, &["r"]);
    let expected = "error: the process of run r is on host 'faraway'\n\
         help: stop it there: `delta stop r -w DIR`\n";
    ran.expect(1, "", expected);
    assert!(fs::exists(sandbox.path("work/.delta/r/journal.jsonl")).unwrap());
}

#[test]
fn c_25_8_a_stopped_process_is_not_ended_by_force_and_the_hint_says_what_does() {
    let sandbox = holding("hold");
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/held"));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    let late = stop(&sandbox, &["r", "--force", "--timeout", "50ms"]).expect_code(124);
    let hint = format!("`kill -CONT {}` wakes a process that was stopped", child.id());
    assert!(late.stderr.contains(&hint), "{}", late.stderr);
    assert!(!late.stderr.contains("--force"), "{}", late.stderr);
    kill_process(pid, Signal::CONT).unwrap();
    end(child).expect_code(130);
}
