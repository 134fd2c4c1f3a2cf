//! Runs outside of their workspaces: `--runs-dir`, DELTA_RUNS_DIR, `runs_dir` in config.yaml.

use super::DELTA;
use serde_json::{Value, json};
use std::fs;
use test_support::sandbox::{Delta, Sandbox};

const TOOLS: &str = "  - name: look\n    shell: test -d \"$RUN_DIR/io\" && ls -A; head -c 70000 /dev/zero | tr '\\0' x\n";
const TURNS: &str = "- call: [{tool: look}]\n- call: [{tool: ask_human, args: {prompt: Really?}}]\n- say: done\n- say: again\n";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    sandbox.write("work/file", "");
    sandbox
}

/// A command with the directory in the environment.
fn outside(sandbox: &Sandbox, args: &[&str]) -> Delta {
    sandbox.delta(args.iter().copied()).env("DELTA_RUNS_DIR", sandbox.path("runs"))
}

fn entries(sandbox: &Sandbox, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path(dir)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn c_28_4_nothing_is_written_into_the_workspace_and_every_command_finds_the_run() {
    let sandbox = sandbox();
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
    outside(&sandbox, &run).output().expect_code(101);
    assert_eq!(entries(&sandbox, "work"), ["file"]);
    let place = entries(&sandbox, "runs").remove(0);
    assert!(place.starts_with("work-"), "{place}");
    let root = sandbox.path("work").canonicalize().unwrap();
    assert_eq!(sandbox.read(&format!("runs/{place}/workspace")), format!("{}\n", root.display()));
    let listed = outside(&sandbox, &["list-runs", "-w", "work", "--format", "json"]).output();
    assert_eq!(listed.expect_code(0).json()[0]["run_id"], "r");
    let waiting = outside(&sandbox, &["inbox", ".", "--json"]).output().expect_code(0).json();
    assert_eq!(waiting[0]["run_id"], "r");
    for args in [
        &["show", "last", "-w", "work"][..],
        &["replay", "r", "-w", "work"],
        &["export", "r", "-w", "work", "--to", "atif"],
    ] {
        outside(&sandbox, args).output().expect_code(0);
    }
    let elsewhere = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output();
    assert_eq!(elsewhere.expect_code(0).json(), json!([]));
    let answer = ["answer", "r", "yes", "-w", "work", "-q", "--format", "raw"];
    assert_eq!(outside(&sandbox, &answer).output().expect_code(0).stdout, "done\n");
    // The path of the run is enough, without the setting.
    let path = sandbox.path(&format!("runs/{place}/.delta/r")).display().to_string();
    let shown = sandbox.delta(["show", &path, "--format", "json"]).output().expect_code(0).json();
    assert_eq!(shown["metadata"]["workspace_path"], root.display().to_string());
    let seen = shown["iterations"][0]["calls"][0]["result"]["observation"].as_str().unwrap();
    let file = seen.split("the whole lies in ").nth(1).unwrap().split(" ...]").next().unwrap();
    assert_eq!(fs::metadata(file).unwrap().len(), 70_005);
    let args = ["fork", "r", "-w", "work", "--at", "1", "--into", "forked", "--run-id", "f"];
    outside(&sandbox, &args).output().expect_code(0);
    assert_eq!(entries(&sandbox, "forked"), ["file"]);
    let listed = outside(&sandbox, &["list-runs", "-r", ".", "--format", "json"]).output();
    let Value::Array(runs) = listed.expect_code(0).json() else { panic!("an array") };
    assert_eq!(runs.len(), 2);
}

#[test]
fn c_28_4_the_option_and_the_configuration_name_the_directory() {
    let sandbox = sandbox();
    sandbox.write("home/.config/delta/config.yaml", "runs_dir: kept\n");
    let run = ["run", "--agent", "agent", "-w", "work", "-m", "go", "-q"];
    sandbox.delta(run).output().expect_code(101);
    assert_eq!(entries(&sandbox, "home/.config/delta/kept").len(), 1);
    let option = [&run[..], &["--runs-dir", "chosen"]].concat();
    outside(&sandbox, &option).output().expect_code(101);
    assert_eq!(entries(&sandbox, "chosen").len(), 1);
    assert!(!sandbox.path("runs").exists());
    assert_eq!(entries(&sandbox, "work"), ["file"]);
    let listed = sandbox.delta(["list-runs", "-w", "work", "--runs-dir", "chosen"]).output();
    assert_eq!(listed.expect_code(0).stdout.lines().count(), 1);
}
