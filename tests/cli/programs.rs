//! `delta NAME` becomes the program `delta-NAME`: where it is looked for, what it gets, and what is said of one that is missing
//! or of another build.

use super::DELTA;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use test_support::sandbox::{Ran, Sandbox};

/// A sandbox with a copy of delta in `bin/`, and nothing beside it.
fn with_copy() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("bin/.keep", "");
    sandbox.copy_program(DELTA, "bin/delta");
    sandbox
}

/// A program that says by which file it was started, with which arguments, and in which process.
const HELLO: &str = "#!/bin/sh\necho \"$0: $*\" \"$DELTA_RUNS_DIR $DELTA_LEASE $DELTA_LEASE_TTL\"\necho $$ > pid\nexit 7\n";

/// The copy of delta in `bin/`, with a PATH.
fn delta(sandbox: &Sandbox, path: &str, args: &[&str]) -> Ran {
    let mut command = Command::new(sandbox.path("bin/delta"));
    command.args(args).current_dir(sandbox.path("")).env_clear();
    let output = command.env("PATH", path).env("HOME", sandbox.path("home")).output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr).normal(sandbox)
}

#[test]
fn c_11_13_a_program_beside_delta_becomes_a_command() {
    let sandbox = with_copy();
    sandbox.write_program("bin/delta-hello", HELLO);
    sandbox.write_program("elsewhere/delta-hello", "#!/bin/sh\necho wrong\n");
    let path = format!("{}:/usr/bin:/bin", sandbox.path("elsewhere").display());
    let ran = delta(&sandbox, &path, &["hello", "a b", "--json", "-h", "--"]);
    ran.expect(7, "DIR/bin/delta-hello: a b --json -h --   \n", "");
    // Options of every command before the name, and nothing after it, are for delta.
    let ran = delta(&sandbox, &path, &["--runs-dir", "r", "--lease=turns", "hello", "--runs-dir"]);
    ran.expect(7, "DIR/bin/delta-hello: --runs-dir r turns \n", "");
    delta(&sandbox, &path, &["help", "hello", "x"]).expect(
        7,
        "DIR/bin/delta-hello: x --help   \n",
        "",
    );
    // Through a link, too: the directory is the one of delta itself.
    fs::create_dir(sandbox.path("links")).unwrap();
    symlink(sandbox.path("bin/delta"), sandbox.path("links/delta")).unwrap();
    let mut command = Command::new(sandbox.path("links/delta"));
    command.arg("hello").current_dir(sandbox.path("")).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert_eq!(sandbox.read("pid").trim(), child.id().to_string(), "it is another process");
}

#[test]
fn c_11_13_programs_are_found_in_absolute_directories_of_path_alone() {
    let sandbox = with_copy();
    sandbox.write_program("tools/delta-hello", HELLO);
    sandbox.write_program("delta-hello", "#!/bin/sh\necho wrong\n");
    sandbox.write_program("work/delta-hello", "#!/bin/sh\necho wrong\n");
    let tools = sandbox.path("tools").display().to_string();
    let run = |path: &str| delta(&sandbox, path, &["hello"]);
    let found = |ran: Ran| ran.expect(7, "DIR/tools/delta-hello:    \n", "");
    found(run(&format!(":.:work:/usr/bin:/bin:{tools}")));
    for path in ["", ":/usr/bin:/bin:", ".:/usr/bin", "work:/bin", "./work:/bin"] {
        let ran = run(path).expect_code(2);
        assert!(ran.stderr.starts_with("error: unrecognized subcommand 'hello'\n"), "{path}");
    }
    // What is no program is passed over.
    sandbox.write("first/delta-hello", "not executable");
    fs::create_dir_all(sandbox.path("second/delta-hello")).unwrap();
    let first = sandbox.path("first").display().to_string();
    let second = sandbox.path("second").display().to_string();
    found(run(&format!("{first}:{second}:{tools}:/usr/bin:/bin")));
}

#[test]
fn c_11_13_only_plain_names_are_programs_and_no_command_of_delta_is_one() {
    let sandbox = with_copy();
    for name in ["Hello", "a.b", "a_b", "-x", "run", "mcp", "tool", "help", "\u{e4}"] {
        sandbox.write_program(&format!("bin/delta-{name}"), "#!/bin/sh\necho wrong\n");
    }
    sandbox.write_program("bin/delta-up/hello", "#!/bin/sh\necho wrong\n");
    let lines = [
        &["Hello"][..],
        &["a.b"],
        &["a_b"],
        &["-x"],
        &["--", "-x"],
        &["up/hello"],
        &["../bin/delta-run"],
        &["\u{e4}"],
        &[""],
        &["mcp", "nope"],
        &["tool", "nope"],
        &["help", "tool", "nope"],
        &["help", "-x"],
    ];
    for line in lines {
        let ran = delta(&sandbox, "/usr/bin:/bin", line).expect_code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error: "), "{line:?}: {ran:?}");
    }
    delta(&sandbox, "/usr/bin:/bin", &["run", "--help"]).expect_code(0);
    let help = delta(&sandbox, "/usr/bin:/bin", &["help"]).expect_code(0).stdout;
    assert!(!help.contains("Other programs"), "{help}");
}

#[test]
fn c_11_13_the_help_lists_programs_without_starting_them() {
    let sandbox = with_copy();
    let started = "#!/bin/sh\ntouch started\necho wrong\n";
    for name in ["hello", "sweep", "sessions", "sessions-pty", "run"] {
        sandbox.write_program(&format!("bin/delta-{name}"), started);
    }
    sandbox.write_program("tools/delta-zebra", started);
    sandbox.write("tools/delta-text", "no program");
    sandbox.write_program("delta-here", started);
    let path = format!(":{}:/usr/bin:/bin", sandbox.path("tools").display());
    for line in [&["help"][..], &["--help"], &["-h"]] {
        let help = delta(&sandbox, &path, line).expect_code(0).stdout;
        let sweep =
            "\n  sweep        Plan and run many runs: agents, models and parameters on inputs\n";
        assert!(help.contains(sweep), "{help}");
        let others = "\nOther programs:\n  hello\n  sessions     Keep the state of bash, Python or another command between calls\n  zebra\n\n";
        assert!(help.contains(others), "{help}");
    }
    let typo = delta(&sandbox, &path, &["zebr"]).expect_code(2).stderr;
    assert!(typo.contains("tip: use `delta zebra`\n"), "{typo}");
    assert!(!sandbox.path("started").exists(), "a program was started");
}

/// The first line of the help of a program of its own is what the help of delta says of it.
#[test]
fn c_11_13_the_summaries_are_those_of_the_programs() {
    let help = Sandbox::new(DELTA).delta(["help"]).output().expect_code(0).stdout;
    for name in ["sweep", "sessions"] {
        let program = Sandbox::new(&test_support::sibling(&format!("delta-{name}")));
        let own = program.delta(["--help"]).output().expect_code(0).stdout;
        let line = format!("\n  {name:<13}{}\n", own.lines().next().unwrap());
        assert!(help.contains(&line), "{line} is not in {help}");
    }
}

#[test]
fn c_11_13_a_program_of_delta_that_is_missing_is_named() {
    let sandbox = with_copy();
    for (name, sources) in [("sweep", "crates/delta-sweep"), ("sessions", "crates/delta-sessions")]
    {
        let expected = format!(
            "error: the program `delta-{name}`, which comes with delta, is missing: it is neither in DIR/bin nor in PATH\nhelp: every package of delta has it; from the sources: `cargo install --locked --path {sources}`\n"
        );
        for line in [&[name, "list"][..], &["help", name], &["man", name]] {
            delta(&sandbox, "/usr/bin:/bin", line).expect(2, "", &expected);
        }
        let help = delta(&sandbox, "/usr/bin:/bin", &["help"]).expect_code(0).stdout;
        assert!(!help.contains(&format!("\n  {name} ")), "{help}");
    }
    let pages = delta(&sandbox, "/usr/bin:/bin", &["man", "--all", "pages"]).expect_code(0);
    assert!(pages.stderr.starts_with("Wrote "), "{}", pages.stderr);
    assert!(!sandbox.path("pages/delta-sweep.1").exists());
}

/// In a checkout only what was asked for is compiled, so that the rest is one command away.
#[test]
fn c_11_13_in_a_checkout_the_command_that_compiles_it_is_named() {
    for (profile, option) in [("debug", ""), ("release", " --profile release")] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("bin/.keep", "");
        sandbox.write("crates/delta-sweep/Cargo.toml", "");
        sandbox.write(&format!("target/{profile}/.keep"), "");
        sandbox.copy_program(DELTA, &format!("target/{profile}/delta"));
        symlink(sandbox.path(&format!("target/{profile}/delta")), sandbox.path("bin/delta"))
            .unwrap();
        let ran = delta(&sandbox, "/usr/bin:/bin", &["sweep", "list"]).expect_code(2);
        let help = format!(
            "help: here `cargo build{option} --manifest-path DIR/crates/delta-sweep/Cargo.toml` makes it\n"
        );
        assert!(ran.stderr.ends_with(&help), "{}", ran.stderr);
    }
}

#[test]
fn c_11_13_a_program_that_cannot_start_is_an_error() {
    let sandbox = with_copy();
    sandbox.write_program("bin/delta-hello", "#!/nowhere/sh\n");
    let ran = delta(&sandbox, "/usr/bin:/bin", &["hello"]).expect_code(126);
    assert!(
        ran.stderr.starts_with("error: DIR/bin/delta-hello does not start: No such file"),
        "{}",
        ran.stderr
    );
}

/// delta and `delta-sweep` tell each other which build they are.
#[test]
fn c_11_14_a_program_of_another_build_is_refused() {
    let sandbox = with_copy();
    let refused = |ran: Ran, program: &str| {
        let ran = ran.expect_code(2);
        assert!(ran.stdout.is_empty() && ran.stderr.lines().count() == 1, "{ran:?}");
        assert!(
            ran.stderr.starts_with(&format!("error: `{program}` is of another build, "))
                && ran.stderr.contains(" 0.0.1 (older): install both from one release"),
            "{}",
            ran.stderr
        );
    };
    // An older delta would hand its build over so.
    for program in [DELTA, &test_support::sibling("delta-sweep")] {
        let name = Path::new(program).file_name().unwrap().to_str().unwrap();
        let older = Sandbox::new(program);
        let ran = older.delta(["sweep", "list"]).env("DELTA_STARTED_BY", "0.0.1 (older)").output();
        refused(ran, name);
    }
    // What it says about itself is for the program alone, not for what that starts.
    sandbox.write_program("bin/delta-sweep", "#!/bin/sh\necho \"$DELTA_STARTED_BY: $*\"\n");
    let built = delta(&sandbox, "/usr/bin:/bin", &["sweep", "list"]).expect_code(0).stdout;
    assert!(
        built.starts_with(concat!(env!("CARGO_PKG_VERSION"), ", ")) || built.contains(" ("),
        "{built}"
    );
    assert!(built.ends_with(": sweep list\n"), "{built}");
    sandbox.write_program("bin/delta-hello", "#!/bin/sh\necho \"<$DELTA_STARTED_BY>\"\n");
    delta(&sandbox, "/usr/bin:/bin", &["hello"]).expect(0, "<>\n", "");
}
