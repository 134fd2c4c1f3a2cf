//! The task as an argument, and what is piped into stdin (C-25.2).

use super::DELTA;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use test_support::running::end_with_test;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// An agent that repeats its task.
fn sandbox() -> Sandbox {
    Sandbox::scripted(DELTA, "", "- say: '<${task}>'\n")
}

fn run(sandbox: &Sandbox, more: &[&str]) -> Delta {
    let fixed = ["run", "--agent", "agent", "-w", "work", "--format", "raw", "-q"];
    sandbox.delta(fixed.iter().chain(more).copied())
}

/// Runs a shell script in which `$run` is `delta run` of the agent.
fn script(sandbox: &Sandbox, script: &str, stdin: Stdio) -> Child {
    let mut command = Command::new("bash");
    let run = format!("run='{DELTA} run --agent agent -w work --format raw'\n{script}");
    command.args(["-c", &run]).current_dir(sandbox.path("")).env("HOME", sandbox.path("home"));
    end_with_test(&mut command);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn output(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

fn ran(sandbox: &Sandbox, text: &str) -> Ran {
    output(script(sandbox, text, Stdio::null())).expect_code(0)
}

#[test]
fn c_25_2_the_task_is_an_argument() {
    let sandbox = sandbox();
    run(&sandbox, &["fix the test"]).output().expect(0, "<fix the test>\n", "");
    run(&sandbox, &["--", "-x"]).output().expect(0, "<-x>\n", "");
    run(&sandbox, &["-"]).stdin("from stdin\n").output().expect(0, "<from stdin>\n", "");
    for wrong in [&["fix", "it"] as &[&str], &["fix", "-m", "it"], &[""], &[]] {
        run(&sandbox, wrong).output().expect_code(2);
    }
    assert!(run(&sandbox, &["fix", "it's"]).output().stderr.contains("delta run \"fix it's\""));
}

#[test]
fn c_25_2_stdin_is_added_below_an_empty_line() {
    let sandbox = sandbox();
    for task in [&["review this"] as &[&str], &["-m", "review this"]] {
        let with = |input: &str| run(&sandbox, task).stdin(input).output().expect_code(0).stdout;
        assert_eq!(with("  a diff\n+b\n\n"), "<review this\n\n  a diff\n+b>\n");
        assert_eq!(with(""), "<review this>\n");
        assert_eq!(with(" \n\n"), "<review this>\n");
    }
    sandbox.write("notes", "one\ntwo\n");
    for script in [
        "$run review < notes",
        "cat notes | $run review",
        "cat notes | timeout 60 $run review",
        "mkfifo pipe; cat notes > pipe & $run review < pipe",
    ] {
        let ran = ran(&sandbox, script);
        assert_eq!(ran.stdout, "<review\n\none\ntwo>\n", "{script}: {}", ran.stderr);
    }
    assert_eq!(ran(&sandbox, "$run review").stdout, "<review>\n");
    assert_eq!(ran(&sandbox, "$run review <&-").stdout, "<review>\n");
}

#[test]
fn c_25_2_the_input_of_a_caller_stays_its_own() {
    let sandbox = sandbox();
    sandbox.write("list", "a\nb\nc\n");
    let each = "<a>\n<b>\n<c>\n";
    for script in [
        "while read -r line; do $run -q \"$line\"; done < list",
        "cat list | while read -r line; do $run -q \"$line\"; done",
        "cat list | while read -r line; do timeout 60 $run -q \"$line\"; done",
        "exec 3< list; while read -r line <&3; do $run -q \"$line\" <&3; done",
    ] {
        assert_eq!(ran(&sandbox, script).stdout, each, "{script}");
    }
    // As `curl ... | bash`: the rest of the script is on stdin.
    let script_on_stdin =
        format!("echo '{DELTA} run --agent agent -w work --format raw x\necho rest' | bash");
    let piped = ran(&sandbox, &script_on_stdin);
    assert_eq!(piped.stdout, "<x>\nrest\n");
    assert!(
        piped.stderr.contains("Note: stdin is not added to the task, because process "),
        "{}",
        piped.stderr
    );
    assert!(
        piped.stderr.contains(
            " (bash) may read it too; `delta run \"TEXT $(cat)\"` adds it, and `< /dev/null` ends this note\n"
        ),
        "{}",
        piped.stderr
    );
    // Nothing hides that input is left out, also where its writer is slower than delta.
    for script in [
        "printf diff | bash -c \"$run -q review; true\"",
        "mkfifo gate; { read -r line < gate; echo diff; } | bash -c \"$run -q review; echo > gate\"",
    ] {
        let quiet = ran(&sandbox, script);
        assert_eq!(quiet.stdout, "<review>\n");
        assert!(quiet.stderr.contains(" (bash) may read it too; "), "{script}: {}", quiet.stderr);
    }
    let without = ran(&sandbox, "printf diff | bash -c \"$run -q review < /dev/null; true\"");
    assert_eq!((&*without.stdout, &*without.stderr), ("<review>\n", ""));
    let script_in_file = format!("{DELTA} run --agent agent -w work --format raw x\necho rest\n");
    sandbox.write("script", script_in_file);
    assert_eq!(ran(&sandbox, "bash < script").stdout, "<x>\nrest\n");
}

#[test]
fn c_25_2_a_caller_that_leaves_stdin_open_does_not_hang_the_run() {
    let sandbox = sandbox();
    let mut command = run(&sandbox, &["go"]);
    command.command().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.command().spawn().unwrap();
    let held = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "<go>\n");
    drop(held);
    let note = "Note: stdin is not added to the task, because nothing was written to it for 3 s; ";
    assert!(String::from_utf8_lossy(&output.stderr).starts_with(note), "{output:?}");
    // A pipe that the caller of the caller holds, as in cron, CI and ssh.
    let mut child = script(&sandbox, "$run go; true", Stdio::piped());
    let held = child.stdin.take();
    assert_eq!(output_of(child), "<go>\n");
    drop(held);
}

fn output_of(child: Child) -> String {
    output(child).expect_code(0).stdout
}

#[test]
fn c_25_2_a_slow_command_of_a_pipeline_is_waited_for() {
    let sandbox = sandbox();
    let mut child =
        script(&sandbox, "mkfifo gate; { cat gate; echo late; } | $run review", Stdio::null());
    let mut stderr = child.stderr.take().unwrap();
    read_waiting_note(&mut stderr);
    fs::OpenOptions::new().write(true).open(sandbox.path("gate")).unwrap().write_all(b"").unwrap();
    let drain = std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    assert_eq!(output_of(child), "<review\n\nlate>\n");
    drain.join().unwrap().unwrap();
}

/// Reads as far as the note that the end of stdin is awaited.
fn read_waiting_note(stderr: &mut impl Read) {
    let mut noted = String::new();
    while !noted.contains("waiting for the end of stdin") {
        let mut byte = [0];
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "{noted}");
        noted.push(byte[0].into());
    }
}

/// A process that the caller is just starting has the pipe open for a moment, as another command of a pipeline would.
#[test]
fn c_25_2_a_run_does_not_hang_after_a_neighbour_has_closed_the_pipe_of_its_caller() {
    let sandbox = sandbox();
    let (stdin, held) = std::io::pipe().unwrap();
    let mut neighbour = Command::new("cat");
    neighbour.stdin(Stdio::piped()).stdout(held.try_clone().unwrap());
    let mut neighbour = neighbour.spawn().unwrap();
    let mut command =
        sandbox.delta(["run", "--agent", "agent", "-w", "work", "--format", "raw", "go"]);
    command.command().stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.command().spawn().unwrap();
    drop(command);
    let mut stderr = child.stderr.take().unwrap();
    read_waiting_note(&mut stderr);
    drop(neighbour.stdin.take());
    neighbour.wait().unwrap();
    let note = "stdin is not added to the task, because nothing was written to it for 3 s; ";
    assert!(std::io::read_to_string(stderr).unwrap().contains(note));
    assert_eq!(output_of(child), "<go>\n");
    drop(held);
}

#[test]
fn c_25_2_at_most_64_mib_of_text() {
    let sandbox = sandbox();
    let too_large = "error: stdin has more than 64 MiB, the most that a message takes\n\
                     help: put it in a file of the workspace, and name the file in the message\n";
    let mut text = "0123456789abcde\n".repeat((64 << 20) / 16);
    // The task is read before the agent.
    let no_agent = sandbox.delta(["run", "--agent", "nowhere", "review"]).stdin(text.as_str());
    assert!(no_agent.output().expect_code(126).stderr.contains("nowhere"));
    text.push('x');
    for task in ["review", "-"] {
        run(&sandbox, &[task]).stdin(text.as_str()).output().expect(126, "", too_large);
    }
    let binary = run(&sandbox, &["review"]).stdin(b"ab\xff").output();
    binary.expect(126, "", "error: stdin is not UTF-8 text: byte 3 is 0xff\nhelp: put it in a file of the workspace, and name the file in the message\n");
    assert!(!sandbox.path("work").exists(), "nothing was created");
}
