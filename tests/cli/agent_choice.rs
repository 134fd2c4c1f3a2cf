//! Which agent `delta run` runs without `--agent`.

use super::DELTA;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use test_support::sandbox::{CONTEXT, Delta, Sandbox};

const STATE: &str = "home/.local/state/delta/builtin";

/// A sandbox with a project, and a script that plays the LLM outside of it.
fn project() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("project/a.txt", "hello\n");
    sandbox.write("turns.yaml", "turns:\n  - call: [{tool: list}]\n  - say: done\n");
    sandbox
}

/// `delta run` in the project.
fn run_here(sandbox: &Sandbox, args: &[&str]) -> Delta {
    sandbox.delta(["run"].iter().chain(args).copied()).cwd(sandbox.path("project"))
}

/// An agent without `llm` that says its name.
fn write_agent(sandbox: &Sandbox, dir: &str, name: &str) {
    sandbox.write(&format!("{dir}/agent.yaml"), format!("name: {name}\n"));
    sandbox.write(&format!("{dir}/system_prompt.md"), "You are a test.\n");
    sandbox.write(&format!("{dir}/context.yaml"), CONTEXT);
}

/// The last run in a workspace: its ENGINE_START.
fn last_start(sandbox: &Sandbox, workspace: &str) -> Value {
    let delta = sandbox.path(workspace).join(".delta");
    let mut runs: Vec<_> =
        fs::read_dir(delta).unwrap().map(|entry| entry.unwrap().path()).collect();
    runs.retain(|run| run.join("journal.jsonl").is_file());
    runs.sort_by_key(|run| fs::metadata(run.join("journal.jsonl")).unwrap().modified().unwrap());
    let journal = fs::read_to_string(runs.pop().unwrap().join("journal.jsonl")).unwrap();
    serde_json::from_str(journal.lines().next().unwrap()).unwrap()
}

/// The directories of the built-in agent.
fn versions(sandbox: &Sandbox) -> Vec<String> {
    let dirs = fs::read_dir(sandbox.path(STATE)).unwrap();
    dirs.map(|dir| dir.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn c_25_3_what_the_built_in_agent_did_since_the_last_message_can_be_undone() {
    let sandbox = project();
    sandbox.write(
        "turns.yaml",
        "turns:\n  - call: [{tool: write, args: {path: a.txt, content: changed}}]\n  - say: done\n",
    );
    sandbox.write("project/node_modules/x", "x\n");
    let model = format!("script:{}", sandbox.path("turns.yaml").display());
    let ran = run_here(&sandbox, &["--model", &model, "--run-id", "r", "go"]).output();
    ran.expect_code(0);
    assert_eq!(sandbox.read("project/a.txt"), "changed");
    let back = sandbox.delta(["rollback"]).cwd(sandbox.path("project")).output().expect_code(0);
    let expected = "restored the workspace to the state before the last message: 1 changed, 0 created, 0 deleted\n";
    assert_eq!(back.stdout, expected);
    assert_eq!(sandbox.read("project/a.txt"), "hello\n");
    let journal = sandbox.read("project/.delta/r/journal.jsonl");
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let files: Vec<Value> = events.map(|event| event["files"].clone()).collect();
    assert_eq!(files.iter().find(|files| !files.is_null()), Some(&Value::from(1)));
}

#[test]
fn c_25_3_the_built_in_agent_works_in_the_current_directory() {
    let sandbox = project();
    let model = format!("script:{}", sandbox.path("turns.yaml").display());
    let ran = run_here(&sandbox, &["--model", &model, "--format", "raw", "look"]).output();
    assert_eq!(ran.stdout, "done\n", "{}", ran.stderr);
    assert!(ran.stderr.starts_with("Agent: coding (built in)\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("│ a.txt"), "{}", ran.stderr);
    let version = versions(&sandbox);
    assert_eq!(version.len(), 1);
    let home = format!("{STATE}/{}/coding", version[0]);
    let start = last_start(&sandbox, "project");
    assert_eq!(start["agent_home"], sandbox.path(&home).to_str().unwrap());
    assert_eq!(start["work_dir"], sandbox.path("project").to_str().unwrap());
    // It is what `init` writes, and nobody else can look.
    sandbox.delta(["init", "-t", "coding", "coding"]).output().expect_code(0);
    assert_eq!(sandbox.files(&home), sandbox.files("coding"));
    for file in sandbox.files(&home) {
        assert_eq!(
            sandbox.read(&format!("{home}/{file}")),
            sandbox.read(&format!("coding/{file}"))
        );
    }
    for dir in ["", &version[0]] {
        let mode = fs::metadata(sandbox.path(STATE).join(dir)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
    // It is written once, and again where something is missing or changed.
    let modified = |file: &str| fs::metadata(sandbox.path(&home).join(file)).unwrap().modified();
    let first = modified("agent.yaml").unwrap();
    let ran = run_here(&sandbox, &["--model", &model, "-q", "--format", "raw", "look"]).output();
    ran.expect(0, "done\n", "");
    assert_eq!(modified("agent.yaml").unwrap(), first);
    sandbox.write(&format!("{home}/tools/inside"), "#!/bin/sh\nexit 0\n");
    fs::remove_file(sandbox.path(&home).join("context.yaml")).unwrap();
    let ran = run_here(&sandbox, &["--model", &model, "-q", "--format", "raw", "look"]).output();
    ran.expect(0, "done\n", "");
    assert_eq!(sandbox.read(&format!("{home}/tools/inside")), sandbox.read("coding/tools/inside"));
    assert_eq!(versions(&sandbox), version);
    // A run continues with the same files.
    let ran = sandbox.delta(["continue", "last", "-w", "project", "-m", "again", "-q"]);
    let ran = ran.args(["--model", &model, "--format", "raw"]).output();
    assert_eq!(ran.code, 1, "the script has no more turns: {}", ran.stderr);
}

#[test]
fn c_25_3_the_built_in_agent_needs_a_state_directory() {
    let sandbox = project();
    let mut command = run_here(&sandbox, &["--model", "gpt-4o", "look"]);
    command.command().env_remove("HOME");
    command.output().expect(
        126,
        "",
        "error: the built-in agent cannot be written: neither HOME nor DELTA_STATE_DIR is set\n\
         help: set DELTA_STATE_DIR, or write the agent elsewhere: `delta init -t coding DIR`, and run it with `--agent DIR`\n",
    );
    assert_eq!(sandbox.files("project"), ["a.txt"]);
}

#[test]
fn c_25_3_the_current_directory_then_the_operator_chooses_the_agent() {
    let sandbox = project();
    write_agent(&sandbox, "home/.local/share/delta/agents/mine", "mine");
    write_agent(&sandbox, "data/delta/agents/other", "other");
    write_agent(&sandbox, "elsewhere", "elsewhere");
    // A name that the repository also has does not count.
    write_agent(&sandbox, "project/mine", "trap");
    let script = format!("script:{}", sandbox.path("say.yaml").display());
    sandbox.write("say.yaml", "turns:\n  - say: done\n");
    let agent = |args: &[&str], data: Option<&str>| {
        let mut command =
            run_here(&sandbox, &[&["--model", &script, "-y"], args, &["go"]].concat());
        if let Some(data) = data {
            command = command.env("XDG_DATA_HOME", sandbox.path(data));
        }
        let ran = command.output().expect_code(0);
        let origin = ran.stderr.lines().next().unwrap().to_owned();
        let name =
            ran.stderr.lines().find(|line| line.split(' ').count() == 2 && line.contains('_'));
        (origin, name.unwrap().split(' ').next().unwrap().to_owned())
    };
    let home = |path: &str| format!("Agent: {}", sandbox.path(path).display());
    let config = "home/.config/delta/config.yaml";
    sandbox.write(config, "default_agent: mine\n");
    let mine = home("home/.local/share/delta/agents/mine");
    assert_eq!(agent(&[], None), (mine, "mine".to_owned()));
    sandbox.write(config, format!("default_agent: {}\n", sandbox.path("elsewhere").display()));
    assert_eq!(agent(&[], None), (home("elsewhere"), "elsewhere".to_owned()));
    // An agent that is not named by a path works in the current directory.
    assert_eq!(last_start(&sandbox, "project")["agent_name"], "elsewhere");
    let other = home("data/delta/agents/other");
    assert_eq!(agent(&["--agent", "other"], Some("data")), (other, "other".to_owned()));
    // Every command with `--agent` finds it.
    let ran = sandbox.delta(["continue", "last", "-w", "project", "--agent", "other", "-m", "go"]);
    let ran = ran.args(["--model", &script, "-q"]).env("XDG_DATA_HOME", sandbox.path("data"));
    let ran = ran.output();
    assert!(ran.stderr.contains("has no more turns that match"), "{}", ran.stderr);
    // The current directory comes first where it is named.
    assert_eq!(agent(&["--agent", "mine"], None).1, "trap");
    write_agent(&sandbox, "project", "here");
    assert_eq!(agent(&[], None).1, "here");
    fs::remove_file(sandbox.path("project/agent.yaml")).unwrap();
    sandbox.write(config, "default_agent: a/b\n");
    let ran = run_here(&sandbox, &["--model", &script, "go"]).output().expect_code(126);
    assert!(
        ran.stderr.contains("name of an agent as `default_agent`, found `a/b`"),
        "{}",
        ran.stderr
    );
    let ran = run_here(&sandbox, &["--agent", "nothing", "go"]).output().expect_code(126);
    let data = sandbox.path("home/.local/share/delta/agents");
    let searched = format!("delta searched ./nothing and {}/nothing;", data.display());
    assert!(ran.stderr.starts_with("error: there is no agent `nothing`\nhelp: delta searched"));
    assert!(ran.stderr.contains(&searched), "{}", ran.stderr);
    let ran = run_here(&sandbox, &["--agent", "mien", "go"]).output().expect_code(126);
    assert!(ran.stderr.contains("help: did you mean `mine`? delta searched"), "{}", ran.stderr);
}

#[test]
fn c_25_3_without_a_model_the_error_says_what_to_type() {
    let sandbox = project();
    let config = sandbox.path("home/.config/delta/config.yaml");
    let error = format!(
        "error: no model is chosen for the built-in agent\n\
         help: pass `--model gpt-4o`, or set DELTA_MODEL=gpt-4o, or write `model: gpt-4o` in {}\n",
        config.display()
    );
    let key = "      the environment has no API key either: export DELTA_API_KEY=..., or for a local server DELTA_BASE_URL=http://localhost:11434/v1\n";
    let with_key = run_here(&sandbox, &["look"]).env("DELTA_API_KEY", "sk-test").output();
    let models = "      `delta models` lists what your endpoint offers\n";
    with_key.expect(126, "", &format!("{error}{models}"));
    let error = error + key;
    run_here(&sandbox, &["look"]).output().expect(126, "", &error);
    assert_eq!(sandbox.files("project"), ["a.txt"]);
    let ran = run_here(&sandbox, &["look"]).env("DELTA_MODEL", "gpt-4o").output().expect_code(126);
    assert!(
        ran.stderr.contains("error: no API key for https://api.openai.com/v1"),
        "{}",
        ran.stderr
    );
}

// The fork copied the project into the operator's state directory.
#[test]
fn c_16_6_a_fork_of_an_agent_without_workspaces_is_next_to_the_run() {
    let sandbox = project();
    write_agent(&sandbox, "home/.local/share/delta/agents/mine", "mine");
    let model = format!("script:{}", sandbox.path("turns.yaml").display());
    for (agent, fork) in [(&[][..], "project-fork"), (&["--agent", "mine"], "project-fork-2")] {
        let model = ["--model", if agent.is_empty() { &model } else { "script:../say.yaml" }];
        sandbox.write("say.yaml", "turns:\n  - say: done\n");
        run_here(&sandbox, &[agent, &model, &["-q", "look"]].concat()).output().expect_code(0);
        let forked = sandbox.delta(["fork", "last"]).cwd(sandbox.path("project")).output();
        // The built-in agent has a snapshot.
        let dir = sandbox.path(fork).display().to_string();
        let copied = format!("to {dir}; the run");
        let restored = format!("Restored the files of iteration 2 in {dir}");
        let expected = if agent.is_empty() { restored } else { copied };
        assert!(forked.expect_code(0).stderr.contains(&expected), "{expected}");
        assert_eq!(sandbox.read(&format!("{fork}/a.txt")), "hello\n");
    }
    let home = format!("{STATE}/{}/coding", versions(&sandbox)[0]);
    assert!(!sandbox.path(&home).join("workspaces").exists());
}
