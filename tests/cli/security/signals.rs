//! Signals that a read or write causes never end the engine (C-22.3).

use crate::DELTA;
use serde_json::json;
use std::process::{Command, Stdio};
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::until_line;

fn in_shell(sandbox: &Sandbox, before: &str) -> Ran {
    let script = format!(
        "{before}; exec \"$0\" run --agent agent -w work --run-id r -m hello --format json"
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

#[test]
fn c_22_3_the_limit_on_the_size_of_files_is_an_error() {
    let tools = "  - name: t\n    shell: head -c 25000 /dev/zero | tr '\\0' x\n";
    let turns = "- call: [{tool: t}, {tool: t}, {tool: t}]\n- say: done";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let ran = in_shell(&sandbox, "ulimit -f 128").expect_code(1);
    let error = &ran.json()["error"];
    assert_eq!((&ran.json()["status"], &error["type"]), (&json!("FAILED"), &json!("io")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("File too large") && message.contains("ulimit -f"), "{message}");
    let more = ["continue", "r", "-w", "work", "-m", "on", "--format", "raw"];
    let ran = sandbox.delta(more).output();
    assert_eq!((ran.code, &*ran.stdout), (0, "done\n"), "{}", ran.stderr);
}

#[test]
fn c_22_3_the_signals_end_or_stop_no_engine() {
    let tools =
        "  - name: t\n    shell: echo $PPID > engine; until test -e go; do :; done; echo end\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: t}]\n- say: done");
    let child = sandbox.run_command("hello", &["--format", "raw"]).spawn();
    let engine = until_line(&sandbox.path("work/engine"));
    for signal in ["XFSZ", "PIPE", "TTIN", "TTOU"] {
        assert!(send_signal(signal, &engine));
    }
    sandbox.write("work/go", "");
    let output = child.wait_with_output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
}

#[test]
fn c_22_3_a_tool_gets_the_actions_that_the_caller_had() {
    let tools = "  - name: t\n    shell: for s in TTIN TTOU XFSZ; do sh -c \"kill -s $s \\$\\$; echo ignored $s\" & wait $!; done 2>/dev/null\n    timeout_ms: 1500\n";
    let make = || Sandbox::scripted(DELTA, tools, "- call: [{tool: t}]\n- say: done");
    let sandbox = make();
    in_shell(&sandbox, "trap '' TTIN TTOU XFSZ").expect_code(0);
    assert_eq!(sandbox.observations(), ["ignored TTIN\nignored TTOU\nignored XFSZ\n"]);
    let tool = "  - name: t\n    shell: kill -s XFSZ $$; echo ignored\n";
    let sandbox = Sandbox::scripted(DELTA, tool, "- call: [{tool: t}]\n- say: done");
    in_shell(&sandbox, ":").expect_code(0);
    assert_eq!(sandbox.observations(), ["[killed by SIGXFSZ]"]);
}

/// The overflow of a small stack ended the program with a signal and without a word.
#[test]
fn c_22_3_a_stack_that_is_too_small_is_an_error() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    let expected =
        "error: the stack is limited to 128 KiB, and delta needs 1024 KiB\nhelp: ulimit -s 8192\n";
    in_shell(&sandbox, "ulimit -s 128").expect(126, "", expected);
    in_shell(&sandbox, "ulimit -s 1024").expect_code(0);
}
