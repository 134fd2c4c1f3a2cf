//! One process for each run (C-13.1), the janitor (C-13.2), and `run --ensure` (C-11.2).

use super::DELTA;
use super::runs::{
    TOOLS, edit_journal, in_state, reseal_journal, resume, resume_command, snapshot,
};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::process::{Child, Command};
use test_support::normal::normal;
use test_support::running::{Running, send_signal};
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{until, until_line};

/// `hold` says that it runs, and ends when somebody writes into the fifo `gate`.
const HOLD: &str = "  - name: hold\n    shell: echo held > held; cat gate\n  \
                    - name: note\n    shell: echo ${text} >> ledger\n  \
                    - name: stop\n    shell: kill -TERM $PPID; sleep 1000\n  \
                    - name: die\n    shell: kill -9 $PPID; exec sleep 1000\n";

/// What is said of a run that another process works on.
fn active(sandbox: &Sandbox, pid: u32) -> String {
    let workspace = sandbox.path("work").display().to_string();
    format!(
        "error: Run r is still active (PID {pid}).\nCannot continue while original process is running.\n\
         help: watch it with `delta show r -w {workspace} --follow`; `delta tell r -w {workspace} TEXT` sends it a message\n"
    )
}

fn holding(turns: &str) -> Sandbox {
    holding_with(HOLD, turns)
}

/// An agent with tools that read the pipe `gate`.
pub fn holding_with(tools: &str, turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    fs::create_dir(sandbox.path("work")).unwrap();
    let made = Command::new("mkfifo").arg(sandbox.path("work/gate")).status();
    assert!(made.unwrap().success());
    sandbox
}

pub fn release(sandbox: &Sandbox) {
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

/// Changes the ENGINE_STARTs of the journal.
fn edit_start(sandbox: &Sandbox, edit: impl Fn(&mut Value)) {
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
    reseal_journal(sandbox);
}

/// When a process started, in milliseconds since 1970, as a run would have recorded it.
fn start_time(pid: u32) -> i64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks: i64 =
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let boot = fs::read_to_string("/proc/stat").unwrap();
    let boot: i64 =
        boot.lines().find_map(|line| line.strip_prefix("btime ")).unwrap().parse().unwrap();
    boot * 1000 + ticks * 10
}

#[test]
fn c_13_1_a_run_that_is_worked_on_is_refused() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let child = sandbox.run_command("task", &["--format", "raw"]).spawn();
    until_line(&sandbox.path("work/held"));
    let before = snapshot(&sandbox);
    let expected = active(&sandbox, child.id());
    for more in [&[][..], &["-m", "x"], &["--force"], &["--force", "-m", "x"]] {
        resume(&sandbox, more).expect(1, "", &expected);
    }
    // Neither another host nor a lost pid makes a held lock less held.
    let json = ["continue", "--run-id", "r", "-w", "work", "--format", "json"];
    let result = sandbox.delta(json).output().expect_code(1).json();
    assert_eq!(result["error"]["type"], "run_active");
    assert_eq!(snapshot(&sandbox), before);
    // Without the lock there are the pid, its start time and its name.
    fs::remove_file(sandbox.path("work/.delta/r/lock")).unwrap();
    for more in [&[][..], &["--force"]] {
        resume(&sandbox, more).expect(1, "", &expected);
    }
    assert_eq!(snapshot(&sandbox), before);
    release(&sandbox);
    assert_eq!(end(child).expect_code(0).stdout, "done\n");
}

#[test]
fn c_13_2_a_dead_process_leaves_an_interrupted_run() {
    let sandbox = in_state("RUNNING");
    let pid = sandbox.metadata()["pid"].clone();
    assert_eq!(sandbox.metadata()["status"], "RUNNING");
    let ran = resume(&sandbox, &[]).expect_code(0);
    let line = format!(
        "! [Janitor] Cleaned up orphaned run: Process {pid} no longer exists\n  \
         the last process of the run died after iteration 1\n"
    );
    assert!(ran.stderr.contains(&line), "{}", ran.stderr);
    assert!(!ran.stderr.contains("INTERRUPTED"), "its end is not the one of this process");
    let ends: Vec<Value> =
        sandbox.events("ENGINE_END").iter().map(|event| event["status"].clone()).collect();
    assert_eq!(ends, [json!("INTERRUPTED"), json!("COMPLETED")]);
    assert_ne!(sandbox.metadata()["pid"], pid, "the pid is refreshed");
}

#[test]
fn c_13_2_a_pid_that_was_given_to_another_process_is_not_the_run() {
    // A stranger with the pid and even the start time; and a `delta` with the pid that began later.
    let stranger = Running::start(Command::new("sleep").arg("1000"));
    let other = holding("- call: [{tool: hold}]\n- say: done\n");
    let delta = other.run_command("task", &[]).spawn();
    until_line(&other.path("work/held"));
    let cases = [
        (stranger.id(), start_time(stranger.id())),
        (stranger.id(), 0),
        (delta.id(), start_time(delta.id()) - 60_000),
    ];
    for (pid, start) in cases {
        let sandbox = in_state("RUNNING");
        edit_start(&sandbox, |event| {
            (event["pid"], event["start_time_unix"]) = (json!(pid), json!(start));
        });
        resume(&sandbox, &[]).expect_code(0);
    }
    // A living `delta` with this pid and start time is the run's, whoever holds the lock.
    let sandbox = in_state("RUNNING");
    let start = start_time(delta.id());
    edit_start(&sandbox, |event| {
        (event["pid"], event["start_time_unix"]) = (json!(delta.id()), json!(start));
    });
    let before = snapshot(&sandbox);
    let expected = active(&sandbox, delta.id());
    resume(&sandbox, &[]).expect(1, "", &expected);
    resume(&sandbox, &["--force"]).expect(1, "", &expected);
    assert_eq!(snapshot(&sandbox), before);
    release(&other);
    end(delta).expect_code(0);
    resume(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_26_1_a_free_lock_on_a_local_disk_proves_that_the_process_is_dead() {
    // A container that was started again with another name, and the disk of a machine that died.
    for boot_id in [None, Some("00000000-0000-0000-0000-000000000000")] {
        for command in ["continue", "ensure", "stop"] {
            let sandbox = in_state("RUNNING");
            edit_start(&sandbox, |event| {
                assert_eq!(event["lease"], "flock");
                event["hostname"] = json!("elsewhere.invalid");
                event["pid"] = json!(std::process::id());
                if let Some(boot_id) = boot_id {
                    event["boot_id"] = json!(boot_id);
                } else {
                    // As an earlier version recorded it.
                    event
                        .as_object_mut()
                        .unwrap()
                        .retain(|key, _| key != "lease" && key != "boot_id");
                }
            });
            let lock = File::open(sandbox.path("work/.delta/r/lock")).unwrap();
            lock.lock().unwrap();
            let ran = resume(&sandbox, &[]).expect_code(1);
            assert!(ran.stderr.starts_with("error: Run r is still active (PID "), "{}", ran.stderr);
            drop(lock);
            if command == "stop" {
                let ran = sandbox.delta(["stop", "r", "-w", "work"]).output().expect_code(1);
                assert!(
                    ran.stderr.contains("its process died without leaving it"),
                    "{}",
                    ran.stderr
                );
                continue;
            }
            let ran = match command {
                "continue" => resume(&sandbox, &[]),
                _ => sandbox.run("task", &["--ensure"]),
            };
            let ran = ran.expect_code(0);
            assert!(ran.stderr.contains("[Janitor] Cleaned up orphaned run"), "{}", ran.stderr);
        }
    }
}

#[test]
fn c_13_2_a_free_lock_proves_the_death_of_a_process_of_another_host() {
    let sandbox = in_state("RUNNING");
    // The pid means nothing there: it is alive here.
    edit_start(&sandbox, |event| {
        (event["hostname"], event["pid"]) = (json!("elsewhere.invalid"), json!(std::process::id()));
    });
    let lock = File::open(sandbox.path("work/.delta/r/lock")).unwrap();
    lock.lock().unwrap();
    let before = snapshot(&sandbox);
    let refused = resume(&sandbox, &[]).expect_code(1);
    assert!(refused.stderr.starts_with("error: Run r is still active"), "{}", refused.stderr);
    assert_eq!(snapshot(&sandbox), before);
    lock.unlock().unwrap();
    let ran = resume(&sandbox, &[]).expect_code(0);
    assert!(ran.stderr.contains("! [Janitor] Cleaned up orphaned run"), "{}", ran.stderr);
}

#[test]
fn c_13_2_a_run_of_another_host_takes_force() {
    // Its process reached the run through a mount whose locks are not the ones of this kernel.
    let elsewhere = |pid: u32| {
        let sandbox = in_state("RUNNING");
        edit_start(&sandbox, |event| {
            (event["hostname"], event["pid"]) = (json!("elsewhere.invalid"), json!(pid));
            event["lease"] = json!("shared-flock");
        });
        sandbox
    };
    // The pid means nothing there: it may well be alive here.
    let sandbox = elsewhere(std::process::id());
    let before = snapshot(&sandbox);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let expected = format!(
        "error: Run r was started on host 'elsewhere.invalid'.\nCannot verify process status from host '{}'.\n\
         If you're certain the original process is dead, use --force.\n",
        host.trim()
    );
    resume(&sandbox, &[]).expect(1, "", &expected);
    resume(&sandbox, &["-m", "x"]).expect(1, "", &expected);
    let ensured = sandbox.run("task", &["--ensure"]);
    let advice = "If you're certain the original process is dead, use --force.\n";
    let command = "delta continue r -w DIR/work --force";
    let expected = expected.replace(
        advice,
        &format!("help: if you are certain that the original process is dead: `{command}`\n"),
    );
    assert_eq!((ensured.code, normal(&sandbox, &ensured.stderr)), (1, expected));
    assert_eq!(snapshot(&sandbox), before);
    // A lock that is held here is stronger than `--force`.
    let lock = File::open(sandbox.path("work/.delta/r/lock")).unwrap();
    lock.lock().unwrap();
    let ran = resume(&sandbox, &["--force"]).expect_code(1);
    assert!(ran.stderr.starts_with("error: Run r is still active (PID "), "{}", ran.stderr);
    lock.unlock().unwrap();
    assert_eq!(snapshot(&sandbox), before);
    resume(&sandbox, &["--force"]).expect_code(0);
    assert_eq!(sandbox.metadata()["hostname"], host.trim());
    // A run that ended there has no process to ask for.
    let sandbox = in_state("INTERRUPTED");
    edit_start(&sandbox, |event| event["hostname"] = json!("elsewhere.invalid"));
    resume(&sandbox, &[]).expect_code(0);
}

#[test]
fn c_13_1_of_twenty_that_continue_at_once_one_does() {
    let sandbox = holding("- call: [{tool: stop}]\n- call: [{tool: hold}]\n- say: done\n");
    sandbox.run("task", &[]).expect_code(130);
    let mut children: Vec<Child> =
        (0..20).map(|_| resume_command(&sandbox, &["-m", "on"]).spawn()).collect();
    until_line(&sandbox.path("work/held"));
    until("nineteen refusals", || {
        let ended = children.iter_mut().filter_map(|child| child.try_wait().unwrap()).count();
        (ended == 19).then_some(())
    });
    let held = sandbox.read("work/.delta/r/journal.jsonl");
    assert_eq!(sandbox.events("USER_MESSAGE").len(), 2, "the task, and one message");
    assert_eq!(sandbox.events("ENGINE_START").len(), 2);
    release(&sandbox);
    let ends: Vec<Ran> = children.into_iter().map(end).collect();
    let (done, refused): (Vec<&Ran>, Vec<&Ran>) = ends.iter().partition(|ran| ran.code == 0);
    assert_eq!((done.len(), refused.len()), (1, 19));
    assert_eq!(done[0].stdout, "done\n");
    for ran in refused {
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(ran.stderr.starts_with("error: Run r is still active (PID "), "{}", ran.stderr);
        let rest = active(&sandbox, 0).split_once('\n').unwrap().1.to_owned();
        assert!(ran.stderr.ends_with(&rest), "{}", ran.stderr);
    }
    assert!(sandbox.read("work/.delta/r/journal.jsonl").starts_with(&held));
    assert_eq!(sandbox.events("ENGINE_END").len(), 2);
}

#[test]
fn c_11_2_ensure_does_the_work_once_however_many_ask_and_die() {
    let turns = "- call: [{tool: note, args: {text: a}}]\n- call: [{tool: die}]\n\
                 - call: [{tool: note, args: {text: b}}]\n- say: done\n";
    let sandbox = holding(turns);
    let all = || {
        let ensure = |_| sandbox.run_command("task", &["--ensure", "--format", "raw"]).spawn();
        let children: Vec<Child> = (0..20).map(ensure).collect();
        children.into_iter().map(end).collect::<Vec<Ran>>()
    };
    let first = all();
    let died = first.iter().filter(|ran| ran.code == -1).count();
    assert_eq!(died, 1, "the one whose tool kills it");
    for ran in first.iter().filter(|ran| ran.code != -1).chain(&all()) {
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"), "{}", ran.stderr);
    }
    assert_eq!(sandbox.read("work/ledger"), "a\nb\n");
    assert_eq!(sandbox.events("ENGINE_START").len(), 2);
    assert_eq!(sandbox.events("USER_MESSAGE").len(), 1);
}

#[test]
fn c_13_5_waiting_for_another_process_can_be_stopped() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let working = sandbox.run_command("task", &["--format", "raw"]).spawn();
    until_line(&sandbox.path("work/held"));
    let waiting = sandbox.run_command("task", &["--ensure", "--format", "raw"]).spawn();
    until("its signal handler", || {
        let status = fs::read_to_string(format!("/proc/{}/status", waiting.id())).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"))?;
        (u64::from_str_radix(caught, 16).ok()? & (1 << 14) != 0).then_some(())
    });
    let before = snapshot(&sandbox);
    send_signal("TERM", waiting.id());
    end(waiting).expect(
        130,
        "",
        "error: interrupted while waiting for the process that works on run r\n",
    );
    assert_eq!(snapshot(&sandbox), before);
    release(&sandbox);
    assert_eq!(end(working).expect_code(0).stdout, "done\n");
}

#[test]
fn c_13_1_the_refusal_for_a_copy_names_the_original() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let working = sandbox.run_command("go", &["--format", "raw"]).spawn();
    until_line(&sandbox.path("work/held"));
    fs::create_dir_all(sandbox.path("copy/.delta")).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(sandbox.path("work/.delta/r")).arg(sandbox.path("copy/.delta/r"));
    assert!(copy.status().unwrap().success());
    let ran = sandbox.delta(["continue", "r", "-w", "copy"]).output().expect_code(1);
    let original = sandbox.path("work").display().to_string();
    let help = format!(
        "help: it works on the original of this copy: watch it with `delta show r -w {original} --follow`\n"
    );
    assert!(ran.stderr.ends_with(&help), "{}", ran.stderr);
    release(&sandbox);
    assert_eq!(end(working).expect_code(0).stdout, "done\n");
}

#[test]
fn c_25_9_ensure_reports_the_stored_error_of_a_failed_run() {
    let sandbox = in_state("FAILED");
    for more in [&["-q"][..], &["-q", "--format", "raw"], &["--format", "json"], &[]] {
        let ran = sandbox.run("task", &[&["--ensure"], more].concat()).expect_code(1);
        let expected = "error: run r FAILED earlier: broken\nhelp: to continue it: ";
        assert!(ran.stderr.starts_with(expected), "{more:?}: {}", ran.stderr);
        // An error of a script is a turn of it, which is not tried again.
        assert!(!ran.stderr.contains("--retry"), "{}", ran.stderr);
    }
    // With the hint of the error.
    let turns = "- call: [{tool: note, args: {text: a}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &["--max-iterations", "1"]).expect_code(1);
    let ran = sandbox.run("task", &["--ensure", "-q"]).expect_code(1);
    let expected = "error: run r FAILED earlier: the task is not finished after 1 iteration\nhelp: continue with `-m`";
    assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    // Of other runs there is nothing to report.
    for (state, code) in [("COMPLETED", 0), ("WAITING_FOR_INPUT", 101)] {
        let sandbox = in_state(state);
        assert_eq!(sandbox.run("task", &["--ensure", "-q"]).expect_code(code).stderr, "");
    }
}

#[test]
fn c_11_2_ensure_in_every_state() {
    for (state, code) in [
        ("COMPLETED", 0),
        ("FAILED", 1),
        ("WAITING_FOR_INPUT", 101),
        ("INTERRUPTED", 0),
        ("RUNNING", 0),
    ] {
        let sandbox = in_state(state);
        let before = snapshot(&sandbox);
        let ran = sandbox.run("task", &["--ensure", "--format", "json"]).expect_code(code);
        let unchanged = snapshot(&sandbox) == before;
        assert_eq!(unchanged, code != 0 || state == "COMPLETED", "{state}");
        let result = ran.json();
        let expected = if code == 0 { "COMPLETED" } else { state };
        assert_eq!(result["status"], expected, "{state}");
        let again = sandbox.run("task", &["--ensure", "--format", "json"]).expect_code(code);
        assert_eq!(again.json()["result"], result["result"]);
    }
    let sandbox = in_state("COMPLETED");
    let args = ["--ensure", "--format", "raw"];
    let note = "Note: run r already has another task, which it keeps: task\n";
    let other = sandbox.run("something else", &args).expect_code(0);
    assert_eq!((other.stdout, other.stderr.as_str()), (sandbox.run("task", &args).stdout, note));
    assert_eq!(sandbox.run("something else", &["--ensure", "-q"]).stderr, "");
    // Whose result it is, if it is not the one of this agent.
    for file in ["agent.yaml", "system_prompt.md", "context.yaml", "script.yaml"] {
        sandbox.write(&format!("other/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let ensure =
        ["run", "--agent", "other", "-w", "work", "--run-id", "r", "-m", "task", "--ensure"];
    let note = "Note: run r is a run of another agent, test-agent in DIR/agent: a stored result is from that agent\n";
    for more in [&[][..], &["-q"], &["-q", "--model", "openai:gpt-4o"]] {
        let ran = sandbox.delta(ensure.iter().chain(more).copied()).output();
        let ran = ran.normal(&sandbox).expect_code(0);
        assert!(ran.stderr.starts_with(note), "{more:?}: {}", ran.stderr);
    }
    assert_eq!(sandbox.run("task", &["--ensure", "-q"]).stderr, "");
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/system_prompt.md", "Another prompt.\n");
    let ran = sandbox.run("task", &["--ensure", "-q"]).expect_code(0);
    let changed =
        "Note: the agent has changed since run r: its stored result is from the agent as it was\n";
    assert_eq!(ran.stderr, changed);
    sandbox.write("agent/agent.yaml", yaml.replace("test-agent", "renamed"));
    let ran = sandbox.run("task", &["--ensure", "-q"]).normal(&sandbox).expect_code(0);
    assert_eq!(ran.stderr, note);
    // What is stored needs no key.
    let sandbox = in_state("COMPLETED");
    let stored = sandbox.run("task", &args).expect_code(0).stdout;
    let ran = sandbox.run("task", &[&args[..], &["--model", "openai:gpt-4o"]].concat());
    assert_eq!(ran.expect_code(0).stdout, stored);
    let sandbox = in_state("WAITING_FOR_INPUT");
    let ran = sandbox.run("task", &args).expect_code(101);
    assert!(ran.stderr.starts_with("Run is WAITING_FOR_INPUT: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("-m ANSWER\n"), "{}", ran.stderr);
    sandbox.write("work/.delta/r/interaction/response.txt", "yes\n");
    let ran = sandbox.run("task", &["--ensure", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "seen yes\n");
}

#[test]
fn c_5_3_fifty_runs_in_one_workspace_at_once() {
    let turns = "- call: [{tool: note, args: {text: x}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let run = |_| {
        let args = ["run", "--agent", "agent", "-w", "work", "-m", "go", "--format", "raw"];
        sandbox.delta(args).spawn()
    };
    let children: Vec<Child> = (0..50).map(run).collect();
    for child in children {
        assert_eq!(end(child).expect_code(0).stdout, "done\n");
    }
    assert_eq!(sandbox.read("work/ledger"), "x\n".repeat(50));
    let list = ["list-runs", "-w", "work", "--format", "json", "--status", "completed"];
    let list = sandbox.delta(list).output().expect_code(0).json();
    assert_eq!(list.as_array().unwrap().len(), 50);
}

#[test]
fn c_5_3_one_id_twice_at_once() {
    let sandbox = holding("- call: [{tool: hold}]\n- say: done\n");
    let mut children: Vec<Child> =
        (0..8).map(|_| sandbox.run_command("go", &["--format", "raw"]).spawn()).collect();
    until_line(&sandbox.path("work/held"));
    until("seven refusals", || {
        let ended = children.iter_mut().filter_map(|child| child.try_wait().unwrap()).count();
        (ended == 7).then_some(())
    });
    release(&sandbox);
    let mut ends: Vec<Ran> = children.into_iter().map(end).collect();
    ends.sort_by_key(|ran| ran.code);
    assert_eq!((ends[0].code, ends[0].stdout.as_str()), (0, "done\n"));
    for ran in &ends[1..] {
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("run r already exists in "), "{}", ran.stderr);
    }
    assert_eq!(sandbox.events("ENGINE_START").len(), 1);
}
