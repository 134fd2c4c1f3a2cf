//! `delta add`, killed or failed at each of its durable operations: a name is the old tree or the new one.

use super::failpoints::{check_fault, operations};
use super::*;
use std::path::PathBuf;
use test_support::sandbox::CONTEXT;

const LOCK: &str = "home/.local/share/delta/agents.lock.json";

fn link(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("home/.local/share/delta/agents/it")
}

fn add(sandbox: &Sandbox, args: &[&str]) -> Delta {
    sandbox.delta([&["add"], args].concat())
}

/// An agent, and the hash of its files.
fn with_agent() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("source/agent.yaml", "name: it\nllm: {provider: script, model: script.yaml}\n");
    sandbox.write("source/context.yaml", CONTEXT);
    sandbox.write("source/system_prompt.md", "Work.\n");
    sandbox.write("source/script.yaml", "turns:\n- say: first\n");
    sandbox
}

fn tree_of_source(sandbox: &Sandbox) -> String {
    fs::create_dir_all(sandbox.path("other")).unwrap();
    let ran = add(sandbox, &["source", "--as", "unknown"]).env("HOME", sandbox.path("other"));
    let ran = ran.output().expect_code(3);
    let (_, tree) = ran.stderr.split_once("--tree ").unwrap();
    tree[..64].to_owned()
}

fn first_install(sandbox: &Sandbox) -> Delta {
    add(sandbox, &["source", "--tree", &tree_of_source(sandbox)])
}

fn installed() -> Sandbox {
    let sandbox = with_agent();
    first_install(&sandbox).output().expect_code(0);
    sandbox
}

fn changed() -> Sandbox {
    let sandbox = installed();
    sandbox.write("source/script.yaml", "turns:\n- say: second\n");
    sandbox
}

/// The tree that the name leads to, all of whose files are there; empty if there is none.
fn named_tree(sandbox: &Sandbox) -> String {
    let Ok(target) = fs::read_link(link(sandbox)) else { return String::new() };
    assert!(link(sandbox).join("script.yaml").exists());
    target.file_name().unwrap().to_str().unwrap().to_owned()
}

fn locked_tree(sandbox: &Sandbox) -> String {
    let Ok(text) = fs::read_to_string(sandbox.path(LOCK)) else { return String::new() };
    let lock: Value = serde_json::from_str(&text).unwrap();
    lock["agents"]["it"]["tree"].as_str().unwrap_or_default().to_owned()
}

fn at_operations(
    prepare: fn() -> Sandbox,
    command: fn(&Sandbox) -> Delta,
    check: fn(&Sandbox, &[String; 2], &str),
) {
    let sandbox = prepare();
    let before = named_tree(&sandbox);
    let count = operations(&sandbox, command(&sandbox));
    let states = [before, named_tree(&sandbox)];
    check(&sandbox, &states, "without a fault");
    for mode in ["abort", "torn", "enospc"] {
        each((1..=count).collect(), |number| {
            let sandbox = prepare();
            let fault = format!("{mode}:{number}");
            let ran = command(&sandbox).env("DELTA_FAILPOINT", &fault).output();
            if mode != "torn" {
                check_fault(mode, 0, &ran);
            }
            assert!(states.contains(&named_tree(&sandbox)), "{fault}: {ran:?}");
            add(&sandbox, &["--list"]).output().expect_code(0);
            assert_eq!(named_tree(&sandbox), locked_tree(&sandbox), "{fault}: {ran:?}");
            check(&sandbox, &states, &fault);
        });
    }
}

fn check_installed(sandbox: &Sandbox, states: &[String; 2], at: &str) {
    first_install(sandbox).output().expect_code(0);
    assert_eq!([named_tree(sandbox), locked_tree(sandbox)], [&*states[1], &*states[1]], "{at}");
    let agents = sandbox.files("home/.local/share/delta/agents");
    assert!(!agents.iter().any(|file| file.contains(".new-")), "{at}: {agents:?}");
}

fn check_removed(sandbox: &Sandbox, _: &[String; 2], at: &str) {
    let ran = add(sandbox, &["--remove", "it"]).output();
    assert!(ran.code == 0 || ran.code == 126, "{at}: {ran:?}");
    assert_eq!([named_tree(sandbox), locked_tree(sandbox)], ["", ""], "{at}");
}

#[test]
fn c_36_15_an_install_that_fails_anywhere_is_finished_by_the_next_one() {
    at_operations(with_agent, first_install, check_installed);
}

#[test]
fn c_36_15_an_update_that_fails_anywhere_leaves_the_old_tree_or_the_new_one() {
    at_operations(changed, |sandbox| add(sandbox, &["--update"]), check_installed);
}

#[test]
fn c_36_15_a_removal_that_fails_anywhere_is_finished_by_the_next_one() {
    at_operations(installed, |sandbox| add(sandbox, &["--remove", "it"]), check_removed);
}
