//! Runs outside of their workspaces: `--runs-dir`, DELTA_RUNS_DIR, `runs_dir` in config.yaml.

use super::DELTA;
use super::mcp_serve::{Client, run_of, text_of};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Delta, Sandbox};
use test_support::wait::until_line;

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
fn c_28_4_the_runs_of_a_workspace_that_was_moved_can_be_read() {
    let sandbox = sandbox();
    for workspace in ["work", "other"] {
        let run = ["run", "--agent", "agent", "-w", workspace, "--run-id", "r", "-m", "go", "-q"];
        outside(&sandbox, &[&run[..], &["--snapshots"]].concat()).output().expect_code(101);
    }
    let names = entries(&sandbox, "runs");
    let name = names.iter().find(|name| name.starts_with("work-")).unwrap();
    let run = format!("runs/{name}/.delta/r");
    let moved = || fs::rename(sandbox.path("work"), sandbox.path("moved")).unwrap();
    let removed = || fs::remove_dir_all(sandbox.path("moved")).unwrap();
    let linked = || symlink("other", sandbox.path("work")).unwrap();
    for lose in [&moved as &dyn Fn(), &removed, &linked] {
        lose();
        for command in ["show", "verify", "view", "replay", "context show", "diff"] {
            let named = [&*run, "r -w work --runs-dir runs", "last -w work --runs-dir runs"];
            // With `-w`, a symlink is the workspace to which it leads.
            let is_linked = sandbox.path("work").is_symlink();
            for run in &named[..if is_linked { 1 } else { 3 }] {
                let more = if command == "diff" { " 0 1" } else { "" };
                let command = format!("{command} {run}{more}");
                sandbox.delta(command.split(' ')).output().expect_code(0);
            }
        }
        for command in ["verify", "export --to atif", "view -o all.html", "list-runs"] {
            let ran = sandbox.delta(format!("{command} -r runs").split(' ')).output();
            assert_eq!(ran.expect_code(0).stderr, "", "{command}");
        }
        let exported = sandbox.delta(["export", "--to", "atif", "-r", "runs"]).output();
        assert_eq!(exported.stdout.lines().count(), 2);
    }
    let linked = sandbox.delta(["continue", &run]).output().expect_code(126).normal(&sandbox);
    let replaced = "error: the workspace DIR/work is a symlink to DIR/other now\n";
    assert!(linked.stderr.starts_with(replaced), "{}", linked.stderr);
    fs::remove_file(sandbox.path("work")).unwrap();
    let refused = "error: could not open the workspace DIR/work: there is no such directory\n\
        help: its runs are in DIR/runs/NAME/.delta, where commands that only read find them;\n      \
        for others, move it back, or create that directory\n";
    for command in ["continue", "fork", "rm", "send -o file"] {
        let command = format!("{command} {run}");
        let ran = sandbox.delta(command.split(' ')).output().expect_code(126).normal(&sandbox);
        assert_eq!(ran.stderr.replace(name, "NAME"), refused, "{command}");
    }
    fs::create_dir(sandbox.path("work")).unwrap();
    sandbox.delta(["rm", &run]).output().expect_code(0);
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

/// Without it, the command would look into the workspace, where the run is not.
#[test]
fn c_28_4_every_command_that_is_printed_has_the_option() {
    let tools = "  - name: note\n    shell: echo noted > note\n  - name: fail\n    shell: exit 1\n";
    let turns = "- call: [{tool: note}]\n- say: done\n- error: broken\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    fs::create_dir(sandbox.path("work")).unwrap();
    let delta = |command: &str| {
        let args: Vec<&str> = command.split(' ').chain(["-w", "work", "--runs-dir", "D"]).collect();
        let ran = sandbox.delta(args).output();
        format!("{}\n{}", ran.stdout, ran.stderr)
    };
    let mut printed = 0;
    for command in [
        "run --agent agent --run-id r -m go --stage",
        "show r",
        "apply r",
        "rollback r --to 0",
        "discard r",
        "show nothing",
        "continue r -m more",
        "show r",
        "run --agent agent --run-id r -m go --ensure",
        "rm r --dry-run",
        "cost r",
    ] {
        let text = delta(command);
        let named: Vec<&str> = text.split(" -w ").skip(1).collect();
        printed += named.len();
        for rest in named {
            let line = rest.lines().next().unwrap();
            assert!(line.contains(" --runs-dir "), "{command} prints -w {line}");
        }
    }
    assert!(printed >= 10, "only {printed} commands");
}

/// What `.delta` in the workspace shows is in the directory for all runs.
#[test]
fn c_28_4_the_directory_for_runs_and_other_paths_lead_to_the_same_workspace() {
    let sandbox = sandbox();
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
    outside(&sandbox, &run).output().expect_code(101);
    let place = format!("runs/{}", entries(&sandbox, "runs").remove(0));
    let root = sandbox.path("work").canonicalize().unwrap().display().to_string();
    for dir in ["runs", &place] {
        let waiting = sandbox.delta(["inbox", dir]).output().expect_code(0).stdout;
        let command = format!("-w {root} --runs-dir ");
        assert!(waiting.contains(&command), "{waiting}");
        let listed = sandbox.delta(["list-runs", "-r", dir, "--format", "json"]).output();
        assert_eq!(listed.expect_code(0).json()[0]["workspace"], root);
    }
    // Tools would work among the records.
    for command in [&["answer", "r", "yes"] as &[&str], &["list-runs"]] {
        let ran = sandbox.delta([command, &["-w", &place]].concat()).output().expect_code(126);
        assert!(ran.stderr.contains(&format!("-w {root} --runs-dir ")), "{}", ran.stderr);
    }
    let noted = sandbox.delta(["list-runs", "-r", "."]).output().expect_code(0).stderr;
    assert!(noted.contains(&format!("-w {root} --runs-dir ")), "{noted}");
}

#[test]
fn c_28_4_a_run_at_work_is_seen_from_everywhere_and_is_no_copy() {
    let tools = "  - name: note\n    shell: echo noted > note\n  - name: hold\n    shell: echo held > held; cat gate\n\
                 snapshots: true\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: note}]\n- say: done\n");
    sandbox.write("agent/hold.yaml", "turns: [{call: [{tool: hold}]}, {say: done}]\n");
    fs::create_dir_all(sandbox.path("work/sub")).unwrap();
    assert!(Command::new("mkfifo").arg(sandbox.path("work/sub/gate")).status().unwrap().success());
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
    outside(&sandbox, &run).output().expect_code(0);
    let nested = ["run", "--agent", "agent", "-w", "work/sub", "--run-id", "n", "-m", "go", "-q"];
    let at_work =
        outside(&sandbox, &[&nested[..], &["--model", "script:hold.yaml"]].concat()).spawn();
    until_line(&sandbox.path("work/sub/held"));
    // Its directory would be deleted.
    let refused = outside(&sandbox, &["rollback", "r", "-w", "work", "--to", "0"]).output();
    assert!(refused.expect_code(1).stderr.contains("run n is active in "));
    let again = outside(&sandbox, &["continue", "n", "-w", "work/sub", "-m", "x"]).output();
    let refused = again.expect_code(1).stderr;
    assert!(refused.contains("sends it a message") && !refused.contains("copy"), "{refused}");
    fs::write(sandbox.path("work/sub/gate"), "go\n").unwrap();
    assert!(at_work.wait_with_output().unwrap().status.success());
    // Through a link too, and by a relative path.
    std::os::unix::fs::symlink("work", sandbox.path("link")).unwrap();
    let root = sandbox.path("work").canonicalize().unwrap();
    let listed = outside(&sandbox, &["list-runs", "-w", "link", "--format", "json"]).output();
    assert_eq!(listed.expect_code(0).json()[0]["workspace"], root.display().to_string());
}

/// With a mistake in the file, every command looked into the workspace and said that there was no run.
#[test]
fn c_28_4_a_configuration_with_a_mistake_hides_no_run() {
    let sandbox = sandbox();
    let config = |text: &str| sandbox.write("home/.config/delta/config.yaml", text);
    config("runs_dir: kept\n");
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
    sandbox.delta(run).output().expect_code(101);
    let commands: [&[&str]; 4] =
        [&["list-runs"], &["show", "r"], &["stop", "r"], &["rm", "r", "-y", "--dry-run"]];
    let ran = |command: &[&str]| sandbox.delta([command, &["-w", "work"]].concat()).output();
    // A mistake in another key is for the commands that need that key.
    config("nonsense: 1\nruns_dir: kept\n");
    for command in commands {
        let ran = ran(command).expect_code(0);
        assert!(ran.stdout.contains('r') || ran.stderr.contains('r'), "{command:?}");
    }
    sandbox.delta(run).output().expect_code(126);
    // Where the runs are cannot be read from it.
    for text in ["runs_dir: kept\nmodel: [\n", "runs_dir: [kept]\n"] {
        config(text);
        for command in commands {
            let refused = ran(command).expect_code(126).stderr;
            assert!(refused.contains("config.yaml:"), "{refused}");
        }
        let given = ["list-runs", "-w", "work", "--runs-dir", "home/.config/delta/kept"];
        assert!(sandbox.delta(given).output().expect_code(0).stdout.contains('r'));
    }
    // A file that names no directory hides nothing.
    config("model: [\n");
    assert_eq!(ran(&["list-runs"]).expect_code(0).stdout.lines().count(), 0);
}

/// A directory of runs in the workspace, or in a path that a tool may write, is as much out of reach as `.delta`.
#[test]
fn c_28_4_tools_in_a_sandbox_do_not_change_runs_wherever_they_are() {
    for (sandboxed, runs) in
        [("workspace", "work/runs"), ("{write: [\"~/shared\"]}", "home/shared/runs")]
    {
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("work/file", "");
        sandbox.write("home/shared/file", "");
        sandbox.write(&format!("{runs}/other-0/file"), "");
        let place = sandbox.path(runs).display().to_string();
        let script = format!(
            "cd {place} && echo x >> \"$RUN_DIR/journal.jsonl\"; echo x > new; rm -r other-0 \"$RUN_DIR\"; mv {place} {place}2"
        );
        sandbox.agent(
            &format!("provider: script\n  model: script.yaml\nsandbox: {sandboxed}"),
            "  - name: sh\n    exec: sh -c ${script}\n",
        );
        let turns = json!({"turns": [{"call": [{"tool": "sh", "args": {"script": script}}]}, {"say": "done"}]});
        sandbox.write("agent/script.yaml", turns.to_string());
        let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
        let ran = sandbox.delta(run).env("DELTA_RUNS_DIR", &place).output();
        if ran.stderr.contains("namespaces") {
            needs::skip(&ran.stderr);
            continue;
        }
        ran.expect_code(0);
        let replay = ["replay", "r", "-w", "work"];
        sandbox.delta(replay).env("DELTA_RUNS_DIR", &place).output().expect_code(0);
        assert!(sandbox.path(&format!("{runs}/other-0/file")).exists());
        assert!(!sandbox.path(&format!("{runs}/new")).exists(), "{runs}");
    }
}

/// A mount of the workspace that nothing can write through, until it is dropped.
struct ReadOnly<'a>(&'a Sandbox);

impl<'a> ReadOnly<'a> {
    fn new(sandbox: &'a Sandbox) -> Option<Self> {
        let work = sandbox.path("work");
        let mount = |options: &str| {
            let mut mount = Command::new("mount");
            mount.args(["-o", options]).args([&work, &work]);
            mount.output().is_ok_and(|output| output.status.success())
        };
        if !mount("bind") {
            needs::skip("needs root, which mounts");
            return None;
        }
        let mounted = Self(sandbox);
        assert!(mount("remount,bind,ro"));
        Some(mounted)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path("work")).status();
    }
}

#[test]
fn c_28_4_a_read_only_workspace_can_be_worked_on() {
    let tools = "  - name: look\n    shell: cat file; echo x > new || echo refused\n";
    let turns = "- call: [{tool: look}]\n- call: [{tool: ask_human, args: {prompt: Really?}}]\n- say: done\n- say: again\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("work/file", "content\n");
    let Some(mounted) = ReadOnly::new(&sandbox) else { return };
    // Without the setting, there is no place for the run.
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
    sandbox.delta(run).output().expect_code(126);
    let with_snapshots = [&run[..], &["--snapshots"]].concat();
    outside(&sandbox, &with_snapshots).output().expect_code(101);
    let answer = ["answer", "r", "yes", "-w", "work", "-q", "--format", "raw"];
    assert_eq!(outside(&sandbox, &answer).output().expect_code(0).stdout, "done\n");
    let shown = outside(&sandbox, &["show", "r", "-w", "work", "--format", "json"]).output();
    let shown = shown.expect_code(0).json();
    let seen = shown["iterations"][0]["calls"][0]["result"]["observation"].as_str().unwrap();
    assert!(seen.starts_with("content\nrefused\n"), "{seen}");
    for args in [&["replay", "r", "-w", "work"][..], &["list-runs", "-w", "work"]] {
        outside(&sandbox, args).output().expect_code(0);
    }
    drop(mounted);
    assert_eq!(entries(&sandbox, "work"), ["file"]);
}

#[test]
fn c_28_4_a_staged_run_has_its_stage_with_the_runs() {
    let tools = "  - name: change\n    shell: echo two >> file; echo x > new; ls -A\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: change}]\n- say: done\n");
    sandbox.write("work/file", "one\n");
    let run =
        ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go", "-q", "--stage"];
    let ran = outside(&sandbox, &run).output();
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return;
    }
    ran.expect_code(0);
    assert_eq!(entries(&sandbox, "work"), ["file"]);
    assert_eq!(sandbox.read("work/file"), "one\n");
    let diff = outside(&sandbox, &["diff", "r", "-w", "work"]).output().expect_code(1).stdout;
    assert!(diff.contains("+two"), "{diff}");
    outside(&sandbox, &["apply", "r", "-w", "work"]).output().expect_code(0);
    assert_eq!(entries(&sandbox, "work"), ["file", "new"]);
    assert_eq!(sandbox.read("work/file"), "one\ntwo\n");
    outside(&sandbox, &["replay", "r", "-w", "work"]).output().expect_code(0);
    assert!(!entries(&sandbox, "work").contains(&".delta".to_owned()));
}

#[test]
fn c_28_4_a_served_agent_keeps_its_runs_there() {
    let sandbox = sandbox();
    sandbox.write("home/.config/delta/config.yaml", "runs_dir: kept\n");
    let mut client = Client::modern(&sandbox, json!({}), &[]);
    let result = client.call("test-agent", json!({"message": "go"}));
    let run = run_of(&result);
    assert_eq!(result["structuredContent"]["status"], "WAITING_FOR_INPUT");
    let answered = client.call("test-agent_answer", json!({"run_id": run, "answer": "yes"}));
    assert_eq!(text_of(&answered), "done");
    client.close().expect_code(0);
    assert_eq!(entries(&sandbox, "work"), ["file"]);
    let place = entries(&sandbox, "home/.config/delta/kept").remove(0);
    let journal = format!("home/.config/delta/kept/{place}/.delta/{run}/journal.jsonl");
    assert!(sandbox.path(&journal).exists());
}
