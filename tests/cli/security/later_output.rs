//! Files get what background processes print after their call, and the observation names them (C-38.2).

use crate::DELTA;
use std::path::PathBuf;
use test_support::running::send_signal;
use test_support::sandbox::Sandbox;
use test_support::wait::{processes_in, until, until_line};

const KEY: &str = "sk-operator-0123456789";

/// Prints a part of a key, and the rest of it when the other call has written into `go`.
const SERVER: &str = "\
#!/bin/sh
printf 'a sk-operator-'
read -r _ < go
echo '0123456789 b' && echo trouble >&2 && echo written > came
read -r _ < go
";

/// Ends what a test keeps running when it is dropped.
struct Kept<'a>(&'a Sandbox);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for pid in processes_in(&self.0.path("work")) {
            let _ = send_signal("KILL", pid);
        }
    }
}

fn with_server(background: &str, more: &str, turns: &str) -> Sandbox {
    let tools = format!(
        "  - name: start\n    shell: mkfifo go came; \"$AGENT_HOME\"/../server & echo $! > pid\n    background: {background}\n{more}"
    );
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    sandbox.write_program("server", SERVER);
    sandbox
}

/// The files that an observation names for what is printed from now on.
fn later_files(sandbox: &Sandbox, observation: &str) -> Vec<PathBuf> {
    let line = observation.lines().last().unwrap_or_default();
    let names = line
        .strip_prefix("[background output from now on: ")
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or_else(|| panic!("no files: {observation}"));
    names.split(", ").map(|name| sandbox.path("work").join(name)).collect()
}

fn read(file: &PathBuf) -> String {
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn c_38_2_a_process_that_outlives_its_call_keeps_its_streams() {
    for background in ["run", "keep"] {
        let use_it =
            "  - name: use\n    shell: echo > go; cat came; kill -0 \"$(cat pid)\" && echo alive\n";
        let turns = "- call: [{tool: start}]\n- call: [{tool: use}]\n- say: done";
        let sandbox = with_server(background, use_it, turns);
        let _kept = Kept(&sandbox);
        let run = sandbox.run_command("hello", &[]).env("DELTA_API_KEY", KEY);
        run.output().expect_code(0);
        let seen = sandbox.observations();
        assert_eq!(seen[1], "written\nalive\n");
        // What may be the start of a key is shown with what follows it.
        assert!(seen[0].starts_with("a "), "{}", seen[0]);
        assert!(!seen[0].contains("sk-"), "{}", seen[0]);
        let files = later_files(&sandbox, &seen[0]);
        let [stdout, stderr] = &files[..] else { panic!("{files:?}") };
        until("the relayed output", || {
            (read(stdout) == "[redacted] b\n" && read(stderr) == "trouble\n").then_some(())
        });
        assert_eq!(background == "keep", !processes_in(&sandbox.path("work")).is_empty());
    }
}

#[test]
fn c_38_2_streams_outlive_a_killed_engine() {
    let sandbox = with_server(
        "keep",
        "  - name: kill\n    shell: kill -KILL $PPID\n",
        "- call: [{tool: start}]\n- call: [{tool: kill}]\n- say: done",
    );
    let _kept = Kept(&sandbox);
    sandbox.run("hello", &[]).expect_code(-1);
    let files = later_files(&sandbox, &sandbox.observations()[0]);
    std::fs::write(sandbox.path("work/go"), "\n").unwrap();
    until_line(&sandbox.path("work/came"));
    until("the relayed output", || (read(&files[1]) == "trouble\n").then_some(()));
}

#[test]
fn c_38_2_only_streams_that_are_held_have_files_and_a_limit() {
    let tools = "  - name: quiet\n    shell: sleep 1000 >/dev/null 2>&1 &\n    background: run\n  \
        - name: loud\n    shell: mkfifo go; (read -r _ < go; seq 100000; echo > came) 2>/dev/null &\n    background: run\n  \
        - name: wake\n    shell: echo > go; until test -e came; do :; done\n";
    let turns = "- call: [{tool: quiet}, {tool: loud}]\n- call: [{tool: wake}]\n- say: done";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("hello", &["--max-disk", "1M"]).expect_code(0);
    let seen = sandbox.observations();
    assert_eq!(seen[0], "[no output]");
    let files = later_files(&sandbox, &seen[1]);
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    // The files are complete when the run is left.
    assert_eq!(files.len(), 1);
    let kept = read(&files[0]);
    assert!(expected.starts_with(&kept));
    assert!((400_000..=1 << 19).contains(&kept.len()), "{} bytes", kept.len());
}
