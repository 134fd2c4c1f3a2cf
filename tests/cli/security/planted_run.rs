//! A run that came with a repository, or that another user made, is data (C-20.4, C-20.7): a planted run passed for a real
//! one, so that `--ensure` printed the attacker's result and `continue` loaded the attacker's agent.

use crate::DELTA;
use crate::runs::{edit_journal, kinds};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use test_support::needs;
use test_support::sandbox::{Delta, Ran, Sandbox};

/// The attacker's agent leaves a file in the workspace when anything of it runs.
const ATTACK: &str = "  - name: attack\n    description: Does harm\n    shell: echo pwned > pwned\n    sandbox: off\n";

/// A workspace with run `r` of an attacker, whose agent directory came with it, and the operator's own agent.
fn planted(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, ATTACK, turns);
    fs::create_dir(sandbox.path("attacker")).unwrap();
    let code = by_attacker(sandbox.run_command("task", &[]), &sandbox).output().code;
    assert!([0, 130].contains(&code), "{code}");
    fs::rename(sandbox.path("agent"), sandbox.path("work/evil")).unwrap();
    edit_journal(&sandbox, |journal| {
        let evil = sandbox.path("work/evil").display().to_string();
        journal.replace(&sandbox.path("agent").display().to_string(), &evil)
    });
    let _ = fs::remove_file(sandbox.path("work/pwned"));
    sandbox.write("agent/system_prompt.md", "You are a test.\n");
    sandbox.write("agent/context.yaml", test_support::sandbox::CONTEXT);
    sandbox.agent("provider: script\n  model: script.yaml", "");
    sandbox.write(
        "agent/script.yaml",
        "turns:\n- say: unused\n- say: unused\n- say: mine\n- say: mine\n- say: mine\n",
    );
    sandbox.unverified("the journal is edited");
    sandbox
}

/// The command with the key of another operator.
fn by_attacker(delta: Delta, sandbox: &Sandbox) -> Delta {
    delta.env("HOME", sandbox.path("attacker"))
}

fn delta(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().copied()).output()
}

#[track_caller]
fn refused(ran: &Ran, words: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (126, ""), "{}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{word} is missing: {}", ran.stderr);
    }
}

#[test]
fn c_20_4_a_planted_result_is_not_the_result_of_ensure() {
    let sandbox = planted("- say: deploy the attacker's image\n");
    let ran = sandbox.run("task", &["--ensure"]);
    refused(&ran, &["run r is foreign", "delta trust r -w"]);
    assert!(!ran.stderr.contains("deploy the attacker"), "{}", ran.stderr);
}

#[test]
fn c_20_4_the_agent_directory_that_a_planted_journal_names_is_not_loaded() {
    let sandbox =
        planted("- call: [{tool: attack}]\n- say: done\n- call: [{tool: attack}]\n- say: x\n");
    let commands: [&[&str]; 4] = [
        &["continue", "r", "-w", "work", "-m", "more"],
        &["fork", "r", "-w", "work", "--at", "1", "--continue"],
        &["fork", "r", "-w", "work", "--at", "1", "--into", "new"],
        &["replay", "r", "-w", "work", "--mode", "tools", "--into", "replayed"],
    ];
    for command in commands {
        refused(&delta(&sandbox, command), &["work/evil", "--agent DIR"]);
    }
    let found: Vec<_> =
        sandbox.files("").into_iter().filter(|name| name.ends_with("pwned")).collect();
    assert!(found.is_empty(), "{found:?}");
    // With an agent of the operator it goes on, and is the operator's from then on.
    let more = ["continue", "r", "-w", "work", "--agent", "agent", "-m", "more", "--format", "raw"];
    delta(&sandbox, &more).expect_code(0);
    let again = ["continue", "r", "-w", "work", "-m", "more", "-q", "--format", "raw"];
    delta(&sandbox, &again).expect_code(0);
}

#[test]
fn c_20_7_a_planted_run_can_be_read_without_a_key() {
    let sandbox = planted("- call: [{tool: attack}]\n- say: done\n");
    let commands: [&[&str]; 9] = [
        &["show", "r"],
        &["view", "r", "-o", "-"],
        &["list-runs"],
        &["replay", "r"],
        &["export", "r", "--to", "markdown"],
        &["diff", "r", "r"],
        &["context", "show", "r"],
        &["tool", "lint", "work/evil"],
        &["tool", "expand", "work/evil"],
    ];
    for command in commands {
        let workspace = if command[0] == "tool" { [].as_slice() } else { &["-w", "work"] };
        let mut delta = sandbox.delta(command.iter().chain(workspace).copied());
        delta.command().env_remove("HOME");
        let ran = delta.output();
        // The edited lines break the chain, which is what replay reports.
        let code = if command[0] == "replay" { 3 } else { 0 };
        assert_eq!(ran.code, code, "{command:?}: {}{}", ran.stdout, ran.stderr);
    }
    assert!(!sandbox.path("work/pwned").exists(), "no reading command starts a tool");
    assert!(!sandbox.path("home/.local").exists(), "and none needs a key");
}

#[test]
fn c_20_4_trust_accepts_a_run_as_it_is() {
    let sandbox = planted("- say: theirs\n- say: more\n");
    let trusted = delta(&sandbox, &["trust", "r", "-w", "work"]).expect_code(0);
    assert!(trusted.stdout.contains("work/evil"), "{}", trusted.stdout);
    assert!(kinds(&sandbox).ends_with("ENGINE_END RUN_TRUSTED"), "{}", kinds(&sandbox));
    let ensured = sandbox.run("task", &["--ensure", "--format", "raw"]).expect_code(0);
    assert_eq!(ensured.stdout, "theirs\n");
    let more = ["continue", "r", "-w", "work", "-m", "more", "--format", "raw", "-q"];
    delta(&sandbox, &more).expect(0, "more\n", "");
}

/// Run `r` of the operator, done.
fn own() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: first\n- say: second\n- say: third\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox
}

#[test]
fn c_20_4_the_own_result_is_taken_and_an_edited_one_is_not() {
    let sandbox = own();
    sandbox.run("task", &["--ensure", "--format", "raw"]).expect(0, "first\n", "");
    edit_journal(&sandbox, |journal| journal.replace("first", "edited"));
    sandbox.unverified("the journal is edited");
    let ran = sandbox.run("task", &["--ensure"]);
    refused(&ran, &["its journal was changed after delta sealed it", "delta trust r -w"]);
    // The operator's own edit is continued, with a line that says so.
    let more = ["continue", "r", "-w", "work", "-m", "more", "--format", "raw"];
    let ran = delta(&sandbox, &more).expect_code(0);
    assert!(ran.stderr.contains("the journal was changed after delta sealed it"), "{}", ran.stderr);
    // The new end seals all of it.
    sandbox.run("task", &["--ensure", "--format", "raw"]).expect(0, "second\n", "");
}

#[test]
fn c_20_4_a_seal_fits_one_run_and_one_agent_directory() {
    for edit in ["agent", "seal", "id", "appended"] {
        let sandbox = own();
        sandbox.unverified("the journal is edited");
        let mut run = "r";
        let evil = sandbox.path("evil").display().to_string();
        let agent = format!("\"agent_home\":\"{}\"", sandbox.path("agent").display());
        match edit {
            "agent" => edit_journal(&sandbox, |journal| {
                journal.replace(&agent, &format!("\"agent_home\":\"{evil}\""))
            }),
            "seal" => {
                edit_journal(&sandbox, |journal| journal.replace("\"seal\":\"", "\"seal\":\"0"))
            }
            "id" => {
                run = "other";
                let control = sandbox.path("work/.delta");
                fs::rename(control.join("r"), control.join(run)).unwrap();
            }
            // A second ENGINE_START with the first one's seal.
            _ => edit_journal(&sandbox, |journal| {
                let start = journal.lines().next().unwrap().replace("\"seq\":1,", "\"seq\":5,");
                let start = start.replace(&agent, &format!("\"agent_home\":\"{evil}\""));
                format!("{journal}{start}\n")
            }),
        }
        let ran = delta(&sandbox, &["continue", run, "-w", "work", "-m", "more"]);
        refused(&ran, &["is foreign", "--agent DIR"]);
    }
}

#[test]
fn c_20_4_a_renamed_run_can_be_trusted() {
    let sandbox = own();
    fs::rename(sandbox.path("work/.delta/r"), sandbox.path("work/.delta/other")).unwrap();
    sandbox.unverified("the run is not the one that its metadata names");
    delta(&sandbox, &["trust", "other", "-w", "work"]).expect_code(0);
    delta(&sandbox, &["continue", "other", "-w", "work", "-m", "x", "-q"]).expect_code(0);
}

#[test]
fn c_20_4_a_fork_of_an_own_run_is_an_own_run() {
    let sandbox = own();
    let forked = ["fork", "r", "-w", "work", "--into", "new", "--run-id", "f", "--at", "0", "-q"];
    delta(&sandbox, &forked).expect_code(0);
    delta(&sandbox, &["continue", "f", "-w", "new", "-q"]).expect_code(0);
    // The key of another operator does not make it theirs.
    let other = sandbox.delta(["continue", "f", "-w", "new", "-m", "more"]);
    refused(&by_attacker(other, &sandbox).output(), &["run f is foreign"]);
    assert!(!sandbox.path("attacker").exists() || sandbox.path("attacker/.local").exists());
}

#[test]
fn c_20_4_a_killed_run_of_the_operator_goes_on_without_a_question() {
    let tools = "  - name: die\n    shell: kill -9 $PPID; exec sleep 1000\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: die}]\n- say: on\n");
    sandbox.run("task", &[]).expect_code(-1);
    let ran = delta(&sandbox, &["continue", "r", "-w", "work", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "on\n");
    assert!(!ran.stderr.contains("sealed"), "{}", ran.stderr);
}

#[test]
fn c_20_4_the_key_is_the_operators_alone_and_never_in_the_workspace() {
    let sandbox = own();
    let key = sandbox.path("home/.local/state/delta/seal.key");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&key), mode(key.parent().unwrap())), (0o600, 0o700));
    let text = fs::read_to_string(&key).unwrap();
    for file in sandbox.files("work") {
        let bytes = fs::read(sandbox.path("work").join(&file)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(text.trim()), "{file}");
    }
}

#[test]
fn c_20_4_the_key_can_be_kept_elsewhere_and_a_run_without_one_says_so() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: first\n- say: second\n- say: third\n");
    let without_home = |args: &[&str]| {
        let mut delta = sandbox.delta(args.iter().copied());
        delta.command().env_remove("HOME");
        delta
    };
    let run = |id| ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "task"];
    let places =
        [("DELTA_STATE_DIR", "state"), ("XDG_STATE_HOME", "xdg"), ("DELTA_SEAL_KEY_FILE", "key")];
    for (variable, name) in places {
        let place = sandbox.path(name);
        let ran = without_home(&run(name)).env(variable, &place).output().expect_code(0);
        assert!(!ran.stderr.contains("sealed"), "{}", ran.stderr);
        let ensured = without_home(&run(name)).args(["--ensure"]).env(variable, &place).output();
        ensured.expect_code(0);
    }
    let kept = ["state/seal.key", "xdg/delta/seal.key", "key"];
    assert!(kept.iter().all(|file| sandbox.read(file).trim().len() == 64));
    let ran = without_home(&run("bare")).output().expect_code(0);
    let note = "this run is not sealed (neither HOME nor DELTA_STATE_DIR is set)";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    // A relative path would lead into the current directory, which may be a cloned repository.
    sandbox.write("planted/seal.key", "planted-planted-planted");
    for (variable, path) in
        [("DELTA_STATE_DIR", "planted"), ("DELTA_SEAL_KEY_FILE", "planted/seal.key")]
    {
        let mut delta = without_home(&run(variable)).env("HOME", sandbox.path("home"));
        delta = delta.env(variable, path);
        let ran = delta.output().expect_code(0);
        let note = format!("this run is not sealed ({variable} is not an absolute path)");
        assert!(ran.stderr.contains(&note), "{}", ran.stderr);
    }
    sandbox.write("work/.env", "A=1\n");
    let ran = without_home(&["trust", "work"]).env("DELTA_STATE_DIR", "planted").output();
    refused(&ran, &["DELTA_STATE_DIR is not an absolute path"]);
    let _ = fs::remove_file(sandbox.path("work/.env"));
    let quiet = without_home(&run("quiet")).args(["-q"]).output().expect_code(0);
    assert_eq!(quiet.stderr, "");
    refused(&without_home(&run("bare")).args(["--ensure"]).output(), &["delta trust"]);
    refused(&without_home(&["continue", "bare", "-w", "work", "-m", "x"]).output(), &["--agent"]);
}

#[test]
fn c_20_4_no_run_starts_with_a_key_file_that_has_no_key() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: first\n");
    for content in ["\n\n", "", "short\n"] {
        sandbox.write("seal.key", content);
        let run = sandbox.run_command("task", &["-q"]);
        let ran = run.env("DELTA_SEAL_KEY_FILE", sandbox.path("seal.key")).output();
        let stderr = ran.expect_code(126).stderr;
        assert!(stderr.contains("seal.key has no key for seals: it has fewer than"), "{stderr}");
        assert!(!sandbox.path("work/.delta/r/journal.jsonl").exists());
    }
}

#[test]
fn c_20_4_a_run_directory_of_another_user_is_foreign() {
    let sandbox = own();
    let run = sandbox.path("work/.delta/r");
    if fs::metadata(&run).unwrap().uid() != 0 {
        needs::skip("needs root, which gives a directory to another user");
        return;
    }
    chown(&run, Some(65534), Some(65534)).unwrap();
    let ran = delta(&sandbox, &["continue", "r", "-w", "work", "-m", "more"]);
    refused(&ran, &["belongs to user 65534", "--agent DIR"]);
    refused(&sandbox.run("task", &["--ensure"]), &["belongs to user 65534"]);
    delta(&sandbox, &["show", "r", "-w", "work"]).expect_code(0);
    let more = ["continue", "r", "-w", "work", "-m", "more", "--agent", "agent", "-q"];
    delta(&sandbox, &more).expect_code(0);
}

#[test]
fn c_20_4_the_seals_of_a_journal_are_signatures_with_their_key() {
    let sandbox = own();
    let seal = |event: &Value| event["seal"].as_str().map(str::len);
    let sealed: Vec<_> = sandbox.journal().iter().filter_map(seal).collect();
    assert_eq!(sealed, [138, 138], "ENGINE_START and ENGINE_END");
}
