//! Sandboxes around runs: what `delta init` writes works on machines that refuse namespaces, a run that may not begin leaves
//! nothing, and `delta sandbox` looks at sandboxes without a run.

use super::DELTA;
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::Sandbox;

const TOOLS: &str = "  - {name: sh, description: Runs a script., shell: 'sh -c ${script}'}\n";

/// An agent whose list of hosts only namespaces can enforce; its LLM calls a tool once.
fn networker() -> Sandbox {
    let turns = "- call: [{tool: sh, args: {script: echo a}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("sandbox: {{net: [example.com]}}\n{yaml}"));
    sandbox
}

#[test]
fn c_22_4_a_run_that_may_not_begin_leaves_nothing() {
    let Some(sandbox) = networker().without_namespaces() else { return };
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("cannot be enforced here: net"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--sandbox-without net"), "{}", ran.stderr);
    assert!(!sandbox.path("work").exists());
    sandbox.write("work/file", "as it was");
    sandbox.run("go", &[]).expect_code(126);
    assert_eq!(sandbox.files("work"), ["file"]);
    sandbox.delta(["run", "--agent", "agent", "-m", "go"]).output().expect_code(126);
    assert!(!sandbox.path("agent/workspaces/W001").exists());
}

#[test]
fn c_22_4_a_replay_that_may_not_begin_leaves_nothing() {
    let Some(sandbox) = networker().without_namespaces() else { return };
    sandbox.run("go", &["--sandbox-without", "all"]).expect_code(0);
    sandbox.unverified("the replay has no sandbox either");
    let replay = ["replay", "--mode", "tools", "r", "-w", "work", "--into", "again"];
    sandbox.delta(replay).output().expect_code(126);
    assert!(!sandbox.path("again").exists());
}

#[test]
fn c_22_4_templates_work_without_namespaces() {
    for template in ["minimal", "hello-world", "file-ops", "api-tester", "coding"] {
        let Some(sandbox) = Sandbox::new(DELTA).without_namespaces() else { return };
        let ran = sandbox.delta(["init", "-t", template, "made"]).output().expect_code(0);
        // Whether this machine has sockets that Landlock cannot close, which come and go, is not what is tested.
        let is_noted = ran.stderr.contains("Note:");
        assert!(!is_noted || ran.stderr.contains("sandbox (sockets)"), "{}", ran.stderr);
        let test = sandbox.delta(["test", "made", "--sandbox-without", "sockets"]);
        test.output().expect_code(0);
    }
}

#[test]
fn c_11_4_init_reports_a_machine_that_cannot_enforce_the_sandbox() {
    let Some(sandbox) = Sandbox::new(DELTA).without_namespaces() else { return };
    // Landlock gives no such guarantee.
    sandbox.write("policy.yaml", "require: [metadata]\n");
    let init = sandbox.delta(["init", "-t", "hello-world", "made"]);
    let ran = init.env("DELTA_SANDBOX", "./policy.yaml").output().expect_code(0);
    let note = "Note: this machine cannot enforce the agent's sandbox (metadata";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert!(sandbox.path("made/agent.yaml").exists());
}

/// An agent with a tool in a sandbox and one in none.
fn two_tools() -> Sandbox {
    let tools = "  - {name: look, shell: 'cat ${file}', sandbox: reader, env: {MARK: '1'}}\n  - {name: free, shell: 'true'}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- say: done\n");
    sandbox.write("work/file", "in the workspace\n");
    sandbox.write("home/.ssh/id", "the key\n");
    sandbox
}

/// Whether this machine has namespaces.
fn has_namespaces(sandbox: &Sandbox) -> bool {
    let checked = sandbox.delta(["sandbox", "check", "--agent", "agent"]).output();
    let has = checked.code == 0 && !checked.stdout.contains("no namespaces");
    if !has {
        needs::skip(format!("{}{}", checked.stdout, checked.stderr));
    }
    has
}

#[test]
fn c_22_4_a_check_names_what_hides_nothing() {
    let tools =
        "  - {name: look, shell: 'cat ${file}', sandbox: {hide: [secrts, ~/.ssh, gone, later?]}}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- say: done\n");
    sandbox.write("work/secrets", "the key\n");
    sandbox.write("home/.ssh/id", "the key\n");
    if !has_namespaces(&sandbox) {
        return;
    }
    let check = ["sandbox", "check", "--agent", "agent", "-w", "work"];
    let checked = sandbox.delta(check).output().expect_code(0);
    let expected = "
nothing to hide: `secrts` does not exist; did you mean `secrets`? write
    `secrts?` if it may be missing
nothing to hide: `gone` does not exist; write `gone?` if it may be missing
";
    assert!(checked.stdout.ends_with(expected), "{}", checked.stdout);
}

#[test]
fn c_22_4_a_run_names_what_the_sandbox_of_the_operator_does_not_hide() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    sandbox.write("work/secrets", "the key\n");
    sandbox.write("limits.yaml", "hide: [secrts, gone?, secrets]\n");
    let ran = sandbox.run("go", &["--sandbox", "./limits.yaml", "--sandbox-without", "all"]);
    let note = "Note: the operator's sandbox hides `secrts`, which does not exist; did you mean `secrets`? \
                write `secrts?` if it may be missing\n";
    let ran = ran.expect_code(0);
    assert_eq!(ran.stderr.matches("hides").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
}

#[test]
fn c_1_3_a_variable_of_a_shell_in_a_sandbox_is_refused() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    for (entry, help) in [
        ("$HOME/.keys", "help: write `~/.keys`\n"),
        ("/home/$USER/.keys?", "help: write the value of USER\n"),
    ] {
        sandbox.write("limits.yaml", format!("hide: ['{entry}']\n"));
        let ran = sandbox.run("go", &["--sandbox", "./limits.yaml"]).expect_code(126);
        let message = format!(
            "error: `{entry}` in `hide` has a variable of a shell, which delta does not replace\n"
        );
        assert!(ran.stderr.contains(&message) && ran.stderr.ends_with(help), "{}", ran.stderr);
    }
}

#[test]
fn c_22_4_without_home_the_account_says_where_it_is() {
    let account = Command::new("sh").args(["-c", "eval echo \"~$(id -un)\""]).output().unwrap();
    let home = String::from_utf8(account.stdout).unwrap();
    let Some(home) = Path::new(home.trim()).canonicalize().ok().filter(|it| *it != *"/") else {
        return needs::skip(format!("the account has no home directory: {home}"));
    };
    let tools = "  - {name: look, shell: 'true', sandbox: {write: ['${CWD}', '~']}}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- say: done\n");
    sandbox.write("work/file", "");
    for variable in ["", "relative", "/nowhere"] {
        let check = sandbox.delta(["sandbox", "check", "--agent", "agent", "-w", "work"]);
        let check = check.env("HOME", variable).args(["--sandbox-without", "all"]);
        let checked = check.output().expect_code(0);
        let home = home.display().to_string();
        let write = checked.stdout.lines().find_map(|line| line.strip_prefix("  write: ")).unwrap();
        assert!(write.split(", ").any(|path| path == home), "{variable:?}: {write}");
    }
}

#[test]
fn c_22_4_a_check_names_a_git_directory_that_does_not_lead_back() {
    let sandbox = two_tools();
    for (name, args) in [("plain", vec![]), ("apart", vec!["--separate-git-dir", "git dir"])] {
        let mut git = Command::new("git");
        git.args(["init", "-q"]).args(args).arg(name).current_dir(sandbox.path(""));
        assert!(git.status().unwrap().success());
        let check = ["sandbox", "check", "--agent", "agent", "-w", name];
        let check = sandbox.delta(check).args(["--sandbox-without", "all"]);
        let text = check.output().normal(&sandbox).expect_code(0).stdout.replace("\n    ", " ");
        let line = "not `git`: DIR/git dir does not lead back to the workspace; write: [\"${CWD}\", git, DIR/git dir] lets tools commit\n";
        assert_eq!(text.contains(line), name == "apart", "{text}");
    }
    // Named, it can be written but for what git follows.
    let git = sandbox.path("git dir").canonicalize().unwrap().display().to_string();
    let tools = format!(
        "  - {{name: look, shell: 'true', sandbox: {{write: ['${{CWD}}', git, '{git}']}}}}\n"
    );
    sandbox.script(&tools, "- say: done\n");
    let check = ["sandbox", "check", "--agent", "agent", "-w", "apart"];
    let check = sandbox.delta(check).args(["--sandbox-without", "all"]).output().expect_code(0);
    let text = check.stdout.replace("\n    ", " ");
    assert!(!text.contains("not `git`"), "{text}");
    let keep = text.lines().find_map(|line| line.strip_prefix("  keep: ")).unwrap();
    for name in ["config", "hooks"] {
        assert!(keep.split(", ").any(|path| path == format!("{git}/{name}")), "{keep}");
    }
}

#[test]
fn c_22_4_a_word_for_no_sandbox_gets_the_right_one() {
    let sandbox = two_tools();
    for (word, right) in [("none", "off"), ("true", "workspace")] {
        let check = ["sandbox", "check", "--agent", "agent", "--sandbox", word];
        let ran = sandbox.delta(check).output().expect_code(126);
        let help = format!("help: write `{right}`\n");
        assert!(ran.stderr.ends_with(&help), "{}", ran.stderr);
    }
}

#[test]
fn c_22_4_a_command_can_look_around_in_a_sandbox() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    let exec = |arguments: &[&str]| {
        let command = ["sandbox", "exec", "-w", "work"].iter().chain(arguments);
        sandbox.delta(command.copied()).stdin("typed\n").output()
    };
    let ran = exec(&["--", "sh", "-c", "cat; cat ~/.ssh/id; echo new > made; exit 7"]);
    let ran = ran.expect_code(7);
    assert_eq!(ran.stdout, "typed\n");
    assert!(ran.stderr.contains("No such file"), "{}", ran.stderr);
    assert_eq!(sandbox.read("work/made"), "new\n");
    let script = "cat file; echo $MARK; echo new > refused";
    let ran = exec(&["--agent", "agent", "--tool", "look", "--", "sh", "-c", script]);
    assert_eq!(ran.expect_code(2).stdout, "in the workspace\n1\n");
    exec(&["--sandbox", "reader", "--", "touch", "refused"]).expect_code(1);
    assert!(!sandbox.path("work/refused").exists());
    exec(&["--", "sh", "-c", "kill -9 $$"]).expect_code(137);
    exec(&["--", "no-such-program"]).expect_code(127);
    let temporary = sandbox.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let echo = sandbox.delta(["sandbox", "exec", "-w", "work", "--", "true"]);
    echo.env("TMPDIR", temporary.to_str().unwrap()).output().expect_code(0);
    assert!(sandbox.files("temporary").is_empty());
}

#[test]
fn c_22_4_exec_needs_a_sandbox() {
    let sandbox = two_tools();
    let exec = |arguments: &[&str]| {
        let command = ["sandbox", "exec", "--agent", "agent", "-w", "work"];
        let command = command.iter().chain(arguments).chain(&["--", "touch", "started"]);
        let ran = sandbox.delta(command.copied()).output().expect_code(126);
        assert!(!sandbox.path("work/started").exists());
        ran.stderr
    };
    assert!(exec(&["--tool", "free"]).contains("the tool `free` has no sandbox"));
    assert!(exec(&[]).contains("the agent has no sandbox"));
    assert!(exec(&["--tool", "lok"]).contains("did you mean `look`?"));
    assert!(exec(&["--sandbox", "./none.yaml"]).contains("could not read"));
}

#[test]
fn c_22_4_check_lists_tools_with_the_same_sandbox_together() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    let check = ["sandbox", "check", "--agent", "agent", "-w", "work", "--sandbox", "workspace"];
    let ran = sandbox.delta(check).output().expect_code(0);
    assert!(ran.stdout.contains("\n\nfree\n  by: namespaces\n  write: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n\nlook\n  by: namespaces\n  write: none\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("/home/.ssh"), "{}", ran.stdout);
    assert!(ran.stdout.lines().all(|line| line.contains('/') || line.len() <= 80));
    let ran = sandbox.delta(&check[..6]).output().expect_code(0);
    assert!(ran.stdout.ends_with("\n\nfree\n  by: off\n"), "{}", ran.stdout);
}

#[test]
fn c_22_4_a_directory_of_another_user_in_tmpdir_is_named() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    sandbox.write("occupied", "not a directory");
    let check = sandbox.delta(["sandbox", "check", "--agent", "agent", "-w", "work"]);
    let occupied = sandbox.path("occupied");
    let ran = check.env("TMPDIR", occupied.to_str().unwrap()).output().expect_code(126);
    assert!(ran.stderr.contains("could not create the directory"), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: set TMPDIR to a directory"), "{}", ran.stderr);
}

#[test]
fn c_22_4_a_command_for_the_llm_can_have_a_sandbox() {
    let sandbox = Sandbox::new(DELTA);
    let answer = r#"echo out > refused; echo '{"choices":[{"message":{"content":"done"}}]}'"#;
    let llm = "provider: command\n  model: none\n  command: [./llm.sh]\n  sandbox: reader";
    sandbox.agent(llm, "  - {name: free, shell: 'true'}\n");
    if !has_namespaces(&sandbox) {
        return;
    }
    sandbox.write_program("work/llm.sh", &format!("#!/bin/sh\n{answer}\n"));
    sandbox.run("go", &[]).expect_code(0);
    assert!(!sandbox.path("work/refused").exists());
    assert_eq!(sandbox.events("ENGINE_START")[0]["config"]["sandbox"]["llm"], "p1");
    sandbox.agent(
        "model: none\n  base_url: http://127.0.0.1:9\n  sandbox: reader",
        "  - {name: free, shell: 'true'}\n",
    );
    let ran = sandbox.delta(["sandbox", "check", "--agent", "agent"]).output().expect_code(126);
    assert!(ran.stderr.contains("is for `provider: command`"), "{}", ran.stderr);
}

#[test]
fn c_22_4_tests_of_an_agent_have_the_sandbox_of_the_operator() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    let test = "task: go\nllm:\n  turns:\n    - call: [{tool: free, args: {}}]\n    - say: done\nexpect: {calls: [{tool: free, exit_code: 1}]}\n";
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", yaml.replace("shell: 'true'", "shell: 'touch made'"));
    sandbox.write("agent/tests/free.yaml", test);
    sandbox.write("policy.yaml", "write: []\n");
    sandbox.delta(["test", "agent"]).output().expect_code(1);
    for policy in ["reader", "policy.yaml"] {
        sandbox.delta(["test", "agent", "--sandbox", policy]).output().expect_code(0);
    }
}

/// A policy of which the keys were lost or commented out limited nothing.
#[test]
fn c_22_4_a_policy_without_keys_is_an_error_or_the_workspace() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    let exec = |policy: &str| {
        sandbox.write("policy.yaml", policy);
        let command = ["sandbox", "exec", "--sandbox", "./policy.yaml", "-w", "work", "--"];
        sandbox.delta(command.iter().copied().chain(["touch", "../escaped"])).output()
    };
    for empty in ["", "# write: []\n", "null\n"] {
        let ran = exec(empty).expect_code(126);
        let begin = "error: the file is empty: it would limit nothing\n";
        assert!(ran.stderr.starts_with(begin), "{}", ran.stderr);
    }
    for key in ["write", "require", "home", "limits"] {
        let ran = exec(&format!("{key}:\n")).expect_code(126);
        let begin = format!("error: `{key}` has no value\n");
        assert!(ran.stderr.starts_with(&begin), "{}", ran.stderr);
    }
    for policy in ["require: []\n", "require: [files]\n", "{}\n"] {
        exec(policy);
        assert!(!sandbox.path("escaped").exists(), "{policy}");
    }
    exec("write: ['..']\n").expect_code(0);
    assert!(sandbox.path("escaped").exists());
}

#[test]
fn c_22_4_a_policy_that_only_requires_is_recorded() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    sandbox.write("policy.yaml", "require: [files]\n");
    sandbox.run("go", &["--sandbox", "./policy.yaml"]).expect_code(0);
    let record = &sandbox.events("ENGINE_START")[0]["config"]["sandbox"];
    assert!(record["policy"][0]["file"].as_str().unwrap().ends_with("/policy.yaml"), "{record}");
    // It limits the tool with `sandbox: off` too, as `workspace` does.
    assert_eq!(record["tools"], serde_json::json!({"look": "p1", "free": "p2"}));
}

#[test]
fn c_22_4_a_preview_has_the_descriptions_of_sandboxes() {
    let sandbox = two_tools();
    if !has_namespaces(&sandbox) {
        return;
    }
    sandbox.run("go", &[]).expect_code(0);
    let sent = sandbox.delta(["show", "r", "-w", "work", "--request", "1"]).output();
    let preview = ["context", "preview", "--agent", "agent", "-m", "go", "--request"];
    for workspace in [&["-w", "work"][..], &[]] {
        let preview = preview.iter().chain(workspace).copied();
        let previewed = sandbox.delta(preview).output().expect_code(0).stdout;
        assert_eq!(previewed, sent.stdout);
        assert!(previewed.contains("Sandbox: writes only in /tmp; HOME is read-only"));
    }
}

#[test]
fn c_22_4_the_commands_that_continue_a_run_name_the_sandbox_of_the_operator() {
    let turns = "- call: [{tool: sh, args: {script: 'echo 1 >> log'}}]\n- say: '${last}'\n";
    let reader = ["--sandbox", "reader", "--sandbox-without", "sockets"];
    for (more, is_lost) in [(&[][..], true), (&reader, false)] {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
        let run = [&reader[..], &["--approve", "ask", "--no-interactive"]].concat();
        let ran = sandbox.run("go", &run).expect_code(101);
        let (_, command) = ran.stderr.split_once("delta approve r ").unwrap();
        assert!(command.lines().next().unwrap().contains(" --sandbox reader"), "{command}");
        let args = ["approve", "r", "-w", "work", "-q", "--format", "raw"];
        let ran = sandbox.delta(args.iter().chain(more).copied()).output().expect_code(0);
        let warning =
            "! the last process had the sandbox reader; this one has no sandbox of the operator";
        assert_eq!(ran.stderr.contains(warning), is_lost, "{}", ran.stderr);
        assert_eq!(ran.stdout.contains("[no output]"), is_lost, "{}", ran.stdout);
    }
}
