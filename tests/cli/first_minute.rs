//! The first minute with delta: no arguments, `delta demo`, `delta --version --json`.

use super::DELTA;
use std::fs;
use test_support::sandbox::Sandbox;

#[test]
fn c_11_12_without_arguments_a_terminal_shows_what_to_do_first() {
    let sandbox = Sandbox::new(DELTA);
    let piped = sandbox.delta([""; 0]).output().expect_code(2);
    assert!(piped.stderr.contains("Usage: delta <COMMAND>"), "{}", piped.stderr);
    assert!(!piped.stderr.contains("Start with one of these"), "{}", piped.stderr);
    assert_eq!(piped.stdout, "");
    // The result would go elsewhere: a script, not a person.
    let half = sandbox.delta([""; 0]).at_terminal().end();
    assert!(half.stderr.contains("list-runs"), "{}", half.stderr);

    let shown = sandbox.delta([""; 0]).wholly_at_terminal().end();
    assert_eq!(shown.code, 2);
    for line in [
        "  delta demo ",
        "  delta init my-agent ",
        "  delta run \"TASK\" ",
        "export DELTA_MODEL=gpt-4o DELTA_API_KEY=...",
        "`delta doctor` checks this machine",
    ] {
        assert!(shown.stderr.contains(line), "{line}: {}", shown.stderr);
    }
    assert!(shown.stderr.lines().all(|line| line.chars().count() < 80), "{}", shown.stderr);
    let ready = sandbox.delta([""; 0]).env("DELTA_MODEL", "m").env("DELTA_API_KEY", "k");
    let ready = ready.wholly_at_terminal().end();
    assert!(!ready.stderr.contains("DELTA_API_KEY"), "{}", ready.stderr);
}

#[test]
fn c_11_12_the_version_as_json_has_the_commit_and_the_features() {
    let sandbox = Sandbox::new(DELTA);
    for arguments in [["--version", "--json"], ["--json", "--version"], ["-V", "--json"]] {
        let ran = sandbox.delta(arguments).output().expect_code(0);
        let build = ran.json();
        assert_eq!(build["name"], "delta");
        assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
        assert!(build["target"].as_str().unwrap().contains('-'), "{build}");
        let commit = &build["commit"];
        assert!(commit.is_null() || commit.as_str().unwrap().len() == 40, "{build}");
        assert!(build["features"].is_array(), "{build}");
    }
    sandbox.delta(["--json"]).output().expect_code(2);
    let plain = sandbox.delta(["--version"]).output().expect_code(0);
    assert_eq!(plain.stdout, concat!("delta ", env!("CARGO_PKG_VERSION"), "\n"));
}

const RESULT: &str = "# Most frequent words

      2 journal
      1 else
      1 everything
      1 follows
      1 from
";

#[test]
fn c_11_11_the_demo_runs_the_example_and_names_the_next_steps() {
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["demo"]).output().expect_code(0);
    assert!(ran.stdout.contains(RESULT), "{}", ran.stdout);
    let command = "$ delta run --agent delta-demo/agent -w delta-demo/work -m 'The journal is the run; everything";
    assert!(ran.stderr.starts_with(command), "{}", ran.stderr);
    for next in
        ["delta show -v -w delta-demo/work", "delta view -w delta-demo/work", "delta init my-agent"]
    {
        assert!(ran.stderr.contains(next), "{}", ran.stderr);
    }
    // What is proposed works.
    sandbox.delta(["show", "-v", "-w", "delta-demo/work"]).output().expect_code(0);
    sandbox.delta(["test", "delta-demo/agent"]).output().expect_code(0);
    let lint = sandbox.delta(["tool", "lint", "delta-demo/agent"]).output().expect_code(0);
    assert_eq!(lint.stdout, "");
    for file in
        ["agent.yaml", "context.yaml", "script.yaml", "system_prompt.md", "tests/counts.yaml"]
    {
        let example = fs::read_to_string(format!("examples/hello-world/{file}")).unwrap();
        assert_eq!(sandbox.read(&format!("delta-demo/agent/{file}")), example);
    }
}

#[test]
fn c_11_11_a_second_demo_runs_the_agent_as_it_is() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.delta(["demo", "a b"]).output().expect_code(0);
    sandbox.write("a b/agent/script.yaml", "turns:\n- say: changed\n");
    let ran = sandbox.delta(["demo", "a b"]).output().expect_code(0);
    assert!(ran.stdout.contains("changed"), "{}", ran.stdout);
    assert!(ran.stderr.contains("--agent 'a b/agent'"), "{}", ran.stderr);
    // What the first run has left would count.
    assert!(ran.stderr.contains("-w 'a b/work-2'"), "{}", ran.stderr);
    for work in ["a b/work", "a b/work-2"] {
        let listed = sandbox.delta(["list-runs", "-w", work, "--format", "json"]).output();
        assert_eq!(listed.json().as_array().unwrap().len(), 1);
    }
    // The exit code is the one of the run.
    sandbox.write("a b/agent/script.yaml", "turns:\n- error: broken\n");
    sandbox.delta(["demo", "a b"]).output().expect_code(1);
}

#[test]
fn c_11_11_the_demo_overwrites_nothing() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("mine/notes", "keep");
    sandbox.write("file", "keep");
    for dir in ["mine", "file"] {
        let ran = sandbox.delta(["demo", dir]).output().expect_code(1);
        assert!(ran.stderr.contains("no agent of `delta demo`"), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("help: name a new directory: `delta demo DIR`"),
            "{}",
            ran.stderr
        );
    }
    assert_eq!(sandbox.files("mine"), ["notes"]);
    // A name like an option is a directory still.
    sandbox.delta(["demo", "--", "-x"]).output().expect_code(0);
    assert!(sandbox.path("-x/work/report.md").exists());
}

#[test]
fn c_11_11_the_demo_runs_where_namespaces_are_refused() {
    let Some(sandbox) = Sandbox::new(DELTA).without_namespaces() else { return };
    let ran = sandbox.delta(["demo"]).output().expect_code(0);
    assert!(ran.stdout.contains(RESULT), "{}", ran.stdout);
    // landlock_create_ruleset, without which nothing enforces a sandbox.
    let Some(sandbox) = sandbox.without_system_call([444, 444], None) else { return };
    let ran = sandbox.delta(["demo", "bare"]).output().expect_code(0);
    assert!(ran.stdout.contains(RESULT), "{}", ran.stdout);
    assert!(ran.stderr.contains("Note: this machine cannot enforce"), "{}", ran.stderr);
}
