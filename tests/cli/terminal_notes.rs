//! What commands print at a terminal only, and usage errors that name what to type.

use super::DELTA;
use test_support::sandbox::Sandbox;

#[test]
fn a_clean_agent_has_no_findings() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.delta(["demo"]).output().expect_code(0);
    let lint = || sandbox.delta(["tool", "lint", "delta-demo/agent"]);
    let piped = lint().output().expect_code(0);
    assert_eq!((piped.stdout, piped.stderr), (String::new(), String::new()));
    assert_eq!(lint().wholly_at_terminal().end().expect_code(0).stderr, "no findings\n");
}

#[test]
fn a_server_at_a_terminal_names_what_it_waits_for() {
    let sandbox = Sandbox::scripted(DELTA, "", "  - say: done\n");
    let serve = || sandbox.delta(["mcp", "serve", "--agent", "agent", "-w", "work"]);
    let mut server = serve().at_terminal();
    server.expect("; an MCP client starts this command; Ctrl-C ends it");
    server.type_in("\u{4}");
    let ran = server.end().expect_code(0);
    assert!(ran.stderr.starts_with("serving "), "{}", ran.stderr);
    assert_eq!(serve().stdin("").output().expect_code(0).stderr, "");
}

#[test]
fn a_manual_page_at_a_terminal_goes_through_man() {
    let sandbox = Sandbox::new(DELTA);
    let piped = sandbox.delta(["man", "sweep", "plan"]).output().expect_code(0).stdout;
    assert!(piped.starts_with(".TH \"DELTA\\-SWEEP\\-PLAN\" 1"), "{piped}");
    let joined = sandbox.delta(["man", "sweep-plan"]).output().expect_code(0).stdout;
    assert_eq!(joined, piped);
    sandbox.delta(["man", "sweep-none"]).output().expect_code(2);
    sandbox.write_program("bin/man", "#!/bin/sh\necho \"man $*\"; head -n 1\n");
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    let shown = sandbox.delta(["man", "run"]).env("PATH", path).wholly_at_terminal().end();
    let expected = "man -l -\n.TH \"DELTA\\-RUN\" 1";
    assert!(shown.stderr.starts_with(expected), "{}", shown.stderr);
    assert!(!shown.stderr.contains(".SH"), "{}", shown.stderr);
    // One that shows nothing, as on a minimal system.
    sandbox.write_program("bin/man", "#!/bin/sh\nexit 1\n");
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    let shown = sandbox.delta(["man", "run"]).env("PATH", path).wholly_at_terminal().end();
    assert!(shown.stderr.contains(".SH SYNOPSIS"), "{}", shown.stderr);
}

#[test]
fn usage_errors_name_what_to_type() {
    let sandbox = Sandbox::new(DELTA);
    for (args, expected) in [
        (&["run", ""][..], "the task is empty"),
        (&["run", "-m", ""], "the task is empty"),
        (&["run", "-m", " \n\t"], "the task is empty"),
        (&["fork", "r", "-m", " "], "the message is empty"),
        (&["run", "--since", "3d", "x"], "`--since` is an option of `delta list-runs`"),
        (&["run", "--older-than", "3d", "x"], "`--older-than` is an option of `delta rm`"),
        (
            &["list-runs", "--message", "x"],
            "is an option of `delta run`, `delta continue` and others",
        ),
        (&["rm", "--all"], "use `--older-than 0s`"),
        (&["stop", "--all"], "unexpected argument '--all' found\n\nUsage"),
        (&["list-runs", "--statu", "x"], "a similar argument exists: '--status'"),
        (&["tool", "lint", "--agent", "."], "the agent directory is an argument"),
        (&["test", "--agent", "."], "the agent directory is an argument: `delta test DIR`"),
        (&["sandbox", "check", "my agent"], "write `--agent 'my agent'`"),
        (&["skill", "list", "."], "write `--agent .`"),
        (&["export", "--format", "otlp"], "use `--to FORMAT`"),
        (&["answer", "last", "yes", "-m", "no"], "the argument '[TEXT]' cannot be used with"),
        (&["deny", "last", "not now", "-m", "no"], "the argument '[REASON]' cannot be used with"),
        (&["pack", "r", "-r", "."], "cannot be used with '--recursive [<DIR>...]'"),
        (&["schema"], "the possible values are agent, context, hooks, script, test"),
    ] {
        let ran = sandbox.delta(args.iter().copied()).output().expect_code(2);
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
    }
}
