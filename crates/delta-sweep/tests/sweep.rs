//! A sweep whose program is started by hand. With the same name as the tests of sweeps through delta: `cargo test --test sweep`
//! builds the program for both.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may")]

use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};

/// The built program.
const SWEEP: &str = env!("CARGO_BIN_EXE_delta-sweep");

/// A sandbox with a planned sweep of one run, and a copy of the program in `bin/`.
fn planned() -> Sandbox {
    let sandbox = Sandbox::new(SWEEP);
    sandbox.script("", "  - say: done");
    sandbox.write("sweep.yaml", "name: s\nagents: [agent]\ninputs: [{id: a, task: b}]\n");
    sandbox.delta(["plan"]).output().expect_code(0);
    sandbox.write("bin/.keep", "");
    sandbox.copy_program(SWEEP, "bin/delta-sweep");
    sandbox
}

/// `delta-sweep run s` of the copy.
fn run_copy(sandbox: &Sandbox) -> Ran {
    let mut command = Command::new(sandbox.path("bin/delta-sweep"));
    command.args(["run", "s"]).current_dir(sandbox.path("")).env_clear();
    let output = command.env("PATH", "/usr/bin:/bin").env("HOME", sandbox.path("home")).output();
    let output = output.unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

#[test]
fn c_11_14_the_program_starts_the_delta_beside_it() {
    let sandbox = planned();
    let alone = run_copy(&sandbox).expect_code(126);
    assert!(alone.stderr.contains("the program delta, which works on the runs, is missing: "));
    assert!(alone.stderr.contains("help: install `delta` and `delta-sweep` in one directory\n"));
    // The delta in its directory gets the build that starts it, and refuses to work for another one.
    sandbox.write_program("bin/delta", "#!/bin/sh\necho \"$DELTA_STARTED_BY\" > starter\nexit 2\n");
    let other = run_copy(&sandbox);
    assert_ne!(other.code, 0, "{other:?}");
    let starters: Vec<String> =
        sandbox.files("").into_iter().filter(|file| file.ends_with("starter")).collect();
    let [starter] = &starters[..] else { panic!("{starters:?} {other:?}") };
    assert!(sandbox.read(starter).starts_with(env!("CARGO_PKG_VERSION")));
    std::fs::remove_file(sandbox.path(starter)).unwrap();
    sandbox.copy_program(test_support::sibling("delta"), "bin/delta");
    run_copy(&sandbox).expect_code(0);
    let status = sandbox.delta(["status", "s", "--format", "json"]).output().expect_code(0).json();
    assert_eq!((&status["runs"], &status["settled"]), (&1.into(), &1.into()), "{status}");
}
