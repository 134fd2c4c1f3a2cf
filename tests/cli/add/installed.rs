//! Agents that are installed: their runs, updates, lock files and statements.

use super::*;

fn run(sandbox: &Sandbox, id: &str, more: &[&str]) -> Ran {
    // Where no directory has the name.
    fs::create_dir_all(sandbox.path("elsewhere")).unwrap();
    let args = ["run", "--agent", "reviewer", "-w", "../work", "--run-id", id, "-m", "go", "-q"];
    let command = sandbox.delta(args.iter().chain(more).copied());
    command.cwd(sandbox.path("elsewhere")).output()
}

fn start_of(sandbox: &Sandbox, id: &str) -> Value {
    let journal = sandbox.read(&format!("work/.delta/{id}/journal.jsonl"));
    serde_json::from_str(journal.lines().next().unwrap()).unwrap()
}

#[test]
fn c_36_15_a_run_continues_with_its_first_tree() {
    let sandbox = with_agent();
    let turns = "turns:\n- call: [{tool: ask_human, args: {prompt: Really?}}]\n- say: first\n";
    sandbox.write("reviewer/script.yaml", turns);
    let tree = install(&sandbox, &["reviewer"]);
    run(&sandbox, "r", &[]).expect_code(101);
    let start = start_of(&sandbox, "r");
    assert_eq!(start["agent_tree"], tree);
    let home = sandbox.path(AGENTS).join(".trees").join(&tree);
    assert_eq!(start["agent_home"], home.display().to_string());
    sandbox.write("reviewer/script.yaml", "turns:\n- say: second\n");
    add(&sandbox, &["--update"]).expect_code(0);
    assert_eq!(run(&sandbox, "s", &[]).expect_code(0).stdout, "second\n");
    let ran = sandbox.delta(["continue", "r", "-w", "work", "yes", "-q"]).output();
    assert_eq!(ran.expect_code(0).stdout, "first\n");
    add(&sandbox, &["--remove", "reviewer"]).expect_code(0);
    run(&sandbox, "t", &[]).expect_code(126);
    let ran = sandbox.delta(["continue", "r", "-w", "work", "more", "-q"]).output();
    assert!(!ran.stderr.contains("there is no agent"), "{ran:?}");
    add(&sandbox, &["--remove", "reviewer"]).expect_code(126);
    // What is installed cannot be changed.
    let files = ["agent.yaml", "tools/check", "tools"].map(|name| home.join(name));
    for file in files {
        assert!(fs::metadata(&file).unwrap().permissions().readonly(), "{}", file.display());
    }
    let link = fs::symlink_metadata(sandbox.path(AGENTS).join("reviewer"));
    assert!(link.is_err(), "{link:?}");
}

#[test]
fn c_36_16_a_lock_file_installs_the_same_agents_elsewhere() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    let url = repository(&sandbox, "reviewer");
    let tree = install(&sandbox, &[&format!("{url}@trunk")]);
    fs::copy(sandbox.path(LOCK), sandbox.path("agents.lock.json")).unwrap();
    // The branch has moved, and has more rights.
    sandbox.write("reviewer/agent.yaml", format!("{AGENT}{WIDER}"));
    commit(&sandbox, "reviewer");
    let there = |args: &[&str]| {
        let command = add_command(&sandbox, args).env("HOME", sandbox.path("there"));
        command.output()
    };
    fs::create_dir(sandbox.path("there")).unwrap();
    // The help named `--as`, which there is not for `--locked`.
    sandbox.write("there/.local/share/delta/agents/reviewer/agent.yaml", "name: other\n");
    let ran = there(&["--locked", "agents.lock.json"]).expect_code(1);
    let hint = format!("help: give it another name: `delta add {url}@trunk --as NAME`\n");
    assert!(ran.stderr.ends_with(&hint), "{ran:?}");
    fs::remove_dir_all(sandbox.path("there/.local/share/delta/agents/reviewer")).unwrap();
    sandbox.write("agents.lock.json", format!("\u{feff}{}", sandbox.read(LOCK)));
    there(&["--locked", "agents.lock.json"]).expect_code(0);
    let installed = sandbox.read("there/.local/share/delta/agents.lock.json");
    assert_eq!(installed, sandbox.read(LOCK));
    there(&["--locked", "agents.lock.json"]).expect_code(0);
    there(&["--update"]).expect_code(3);

    let forged = installed.replace(&tree, &"0".repeat(64));
    sandbox.write("agents.lock.json", forged);
    let ran = there(&["--locked", "agents.lock.json"]).expect_code(1);
    assert!(ran.stderr.contains("is the tree"), "{ran:?}");
    for (text, reason) in [
        ("{}", "expected the version"),
        (r#"{"delta_agents":2,"agents":{}}"#, "found 2"),
        (
            r#"{"delta_agents":1,"agents":{"../x":{"source":"x","tree":"TREE","rights":{}}}}"#,
            "not an agent name",
        ),
        (
            r#"{"delta_agents":1,"agents":{"x":{"source":"\u202e","tree":"TREE","rights":{}}}}"#,
            "hidden characters",
        ),
        (
            r#"{"delta_agents":1,"agents":{"x":{"source":"--upload-pack=x","tree":"TREE","rights":{}}}}"#,
            "there is no directory",
        ),
    ] {
        sandbox.write("agents.lock.json", text.replace("TREE", &tree));
        let ran = there(&["--locked", "agents.lock.json"]);
        assert!(ran.code != 0 && ran.stderr.contains(reason), "{text}: {ran:?}");
    }
    there(&["--locked", "missing"]).expect_code(126);
}

#[test]
fn c_36_15_a_statement_has_the_source_and_the_commit_of_an_installed_agent() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    let url = repository(&sandbox, "reviewer");
    let commit = git(&sandbox, "reviewer", &["rev-parse", "HEAD"]);
    let tree = install(&sandbox, &[&format!("{url}@trunk")]);
    run(&sandbox, "r", &[]).expect_code(0);
    let source = json!({"source": url, "ref": "trunk", "commit": commit});
    assert_eq!(start_of(&sandbox, "r")["agent_source"], source);
    let ran = sandbox.delta(["export", "r", "-w", "work", "--to", "in-toto", "--unsigned"]);
    let statement = ran.output().expect_code(0).json();
    assert_eq!(
        statement["predicate"]["buildDefinition"]["resolvedDependencies"][0],
        json!({"name": "agent", "digest": {"deltaTree": tree, "gitCommit": commit},
               "annotations": {"agent": "reviewer", "source": url, "ref": "trunk"}})
    );
}

/// The run named the commit for files that were not those of the commit.
#[test]
fn c_36_15_an_installed_agent_whose_files_were_changed_has_no_source() {
    let sandbox = with_agent();
    let tree = install(&sandbox, &["reviewer"]);
    run(&sandbox, "before", &[]).expect_code(0);
    assert!(start_of(&sandbox, "before")["agent_source"].is_object());
    let dir = format!("home/.local/share/delta/agents/.trees/{tree}");
    let file = sandbox.path(&format!("{dir}/system_prompt.md"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&file, "Do something else.\n").unwrap();
    let args = ["run", "--agent", "reviewer", "-w", "../work", "--run-id", "after", "-m", "go"];
    let ran = sandbox.delta(args).cwd(sandbox.path("elsewhere")).output().expect_code(0);
    let start = start_of(&sandbox, "after");
    assert!(start["agent_source"].is_null() && start["agent_tree"] != tree.as_str(), "{start}");
    assert!(ran.stderr.contains("were changed after it was installed"), "{ran:?}");
    let ran = sandbox.delta(["export", "after", "-w", "work", "--to", "in-toto", "--unsigned"]);
    let statement = ran.output().expect_code(0).json();
    let agent = &statement["predicate"]["buildDefinition"]["resolvedDependencies"][0];
    assert_eq!(agent["digest"], json!({"deltaTree": start["agent_tree"]}));
    assert_eq!(agent["annotations"], json!({"agent": "reviewer"}));
}

/// `allow`, `net` and `approve` of config.yaml are for the name in the store.
#[test]
fn c_36_18_an_installed_agent_has_the_name_of_its_link() {
    let sandbox = with_agent();
    install(&sandbox, &["reviewer", "--as", "strict"]);
    let config = "net:\n  - {agent: strict, dir: WORK, hosts: [index.crates.io]}\n  - {agent: reviewer, dir: WORK, hosts: [static.crates.io]}\n";
    fs::create_dir(sandbox.path("work")).unwrap();
    let work = sandbox.path("work").canonicalize().unwrap();
    sandbox.write("home/.config/delta/config.yaml", config.replace("WORK", work.to_str().unwrap()));
    let args = ["run", "--agent", "strict", "-w", "work", "--run-id", "r", "-m", "go", "-q"];
    let ran = sandbox.delta(args).output();
    if ran.code == 126 {
        return; // This machine has no sandboxes.
    }
    assert_eq!(start_of(&sandbox, "r")["config"]["sandbox"]["hosts"], json!(["index.crates.io"]));
}

/// The names remain links, but which source they have is lost: the hint was refused, as names from elsewhere.
#[test]
fn c_36_15_after_a_damaged_lock_file_is_removed_its_agents_are_installed_again() {
    let sandbox = with_agent();
    let tree = install(&sandbox, &["reviewer"]);
    install(&sandbox, &["reviewer", "--as", "strict"]);
    for text in ["", "{}"] {
        sandbox.write(LOCK, text);
        let ran = add(&sandbox, &["reviewer", "--tree", &tree]).expect_code(1);
        assert!(ran.stderr.contains("or remove it and install the agents again"), "{ran:?}");
    }
    run(&sandbox, "r", &[]).expect_code(0);
    fs::remove_file(sandbox.path(LOCK)).unwrap();
    add(&sandbox, &["reviewer", "--tree", &tree]).expect_code(0);
    assert_eq!(add(&sandbox, &["--list"]).expect_code(0).stdout.lines().count(), 1);
    run(&sandbox, "s", &[]).expect_code(0);
}
