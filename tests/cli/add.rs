//! `delta add` (C-36.14 to C-36.16): agents from directories, archives and repositories.

use super::DELTA;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use test_support::file_server::{start_file_server, start_server};
use test_support::needs;
use test_support::sandbox::{CONTEXT, Delta, Ran, Sandbox};

mod hostile;
mod installed;
mod sources;

/// A tool that would leave a trace, in a sandbox.
const AGENT: &str = "\
name: reviewer
llm: {provider: script, model: script.yaml}
sandbox: workspace
tools:
  - {name: look, shell: \"echo ${text} >> ledger\"}
";
/// What an update adds.
const WIDER: &str =
    "  - {name: post, sandbox: off, pass_env: [GH_TOKEN], shell: \"echo post >> ledger\"}\n";
/// Where the links are.
const AGENTS: &str = "home/.local/share/delta/agents";
const LOCK: &str = "home/.local/share/delta/agents.lock.json";

/// An agent in `dir`, with what does not belong to it.
fn write_agent(sandbox: &Sandbox, dir: &str) {
    sandbox.write(&format!("{dir}/agent.yaml"), AGENT);
    sandbox.write(&format!("{dir}/context.yaml"), CONTEXT);
    sandbox.write(&format!("{dir}/system_prompt.md"), "Review.\n");
    sandbox.write(&format!("{dir}/script.yaml"), "turns:\n- say: first\n");
    sandbox.write_program(&format!("{dir}/tools/check"), "#!/bin/sh\ntouch ../started\n");
    sandbox.write(&format!("{dir}/.env"), "SOME_API_KEY=1234567890\n");
    sandbox.write(&format!("{dir}/tests/one.yaml"), "task: it\n");
    std::os::unix::fs::symlink("tools/check", sandbox.path(dir).join("link")).unwrap();
}

fn with_agent() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    write_agent(&sandbox, "reviewer");
    sandbox
}

fn add(sandbox: &Sandbox, args: &[&str]) -> Ran {
    add_command(sandbox, args).output()
}

fn add_command(sandbox: &Sandbox, args: &[&str]) -> Delta {
    sandbox.delta([&["add"], args].concat())
}

/// The tree that stderr names for a person to decide.
fn named_tree(ran: &Ran) -> String {
    let (_, tree) = ran.stderr.split_once("--tree ").expect(&ran.stderr);
    tree[..64].to_owned()
}

/// Installs a source without a terminal, after a look at it; returns its tree.
fn install(sandbox: &Sandbox, source: &[&str]) -> String {
    let tree = named_tree(&add(sandbox, source).expect_code(3));
    add(sandbox, &[source, &["--tree", &tree]].concat()).expect_code(0);
    tree
}

fn lock(sandbox: &Sandbox) -> Value {
    serde_json::from_str(&sandbox.read(LOCK)).unwrap()
}

fn git(sandbox: &Sandbox, dir: &str, args: &[&str]) -> String {
    git_with_input(sandbox, dir, args, b"")
}

fn git_with_input(sandbox: &Sandbox, dir: &str, args: &[&str], input: &[u8]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"]);
    git.args(args).current_dir(sandbox.path(dir)).env("HOME", sandbox.path("home"));
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes a repository of a directory; returns its address.
fn repository(sandbox: &Sandbox, dir: &str) -> String {
    git(sandbox, dir, &["init", "-q"]);
    commit(sandbox, dir);
    format!("file://{}", sandbox.path(dir).display())
}

fn commit(sandbox: &Sandbox, dir: &str) -> String {
    git(sandbox, dir, &["add", "-A", "-f"]);
    git(sandbox, dir, &["commit", "-q", "-m", "one"]);
    git(sandbox, dir, &["rev-parse", "HEAD"])
}

fn tar(sandbox: &Sandbox, args: &[&str]) {
    let tar = Command::new("tar").args(args).current_dir(sandbox.path("")).status().unwrap();
    assert!(tar.success(), "{args:?}");
}

#[test]
fn c_36_14_add_shows_what_the_agent_may_do_and_starts_nothing() {
    let sandbox = with_agent();
    sandbox.write(
        "reviewer/hooks.yaml",
        "pre_tool_execution: {command: [touch, started], pass_env: [HOOK_KEY]}\n",
    );
    sandbox.write("reviewer/agent.yaml", format!("{AGENT}{WIDER}  - {{name: net, sandbox: {{net: [index.crates.io]}}, approve: ask, shell: \"true\"}}\n"));
    let mut terminal = add_command(&sandbox, &["./reviewer"]).at_terminal();
    terminal.expect("install? y yes, n no, v view> ").type_in("v\r");
    terminal.expect("+name: reviewer").expect("install? ").type_in("x\r");
    terminal.expect("expected `y`, `n` or `v`").type_in("n\r");
    let ran = terminal.end().expect_code(1);
    for shown in [
        "tools  look, post; net (asks)",
        "without a sandbox  hook pre_tool_execution, post",
        "network  net: index.crates.io",
        "keys  hook pre_tool_execution: HOOK_KEY; post: GH_TOKEN",
        "files  look, net: reads all",
        "Not installed",
    ] {
        assert!(ran.stderr.contains(shown), "{shown}: {ran:?}");
    }
    assert!(!sandbox.path(LOCK).exists());
    let left = sandbox.files("home");
    assert!(!left.iter().any(|file| file.contains(".trees")), "{left:?}");
    let mut terminal = add_command(&sandbox, &["./reviewer"]).at_terminal();
    terminal.expect("install? ").type_in("y\r");
    terminal.end().expect_code(0);
    assert!(!sandbox.path("started").exists() && !sandbox.path("reviewer/started").exists());
    assert_eq!(lock(&sandbox)["agents"]["reviewer"]["rights"]["keys"]["post"], json!(["GH_TOKEN"]));
    let agent = sandbox.read("reviewer/agent.yaml");
    sandbox.write("reviewer/agent.yaml", agent + &WIDER.replace("name: post", "name: more"));
    let mut terminal = add_command(&sandbox, &["--update"]).at_terminal();
    terminal.expect("  + without a sandbox  more").expect("install? ").type_in("n\r");
    terminal.end().expect_code(1);
}

#[test]
fn c_36_16_without_a_terminal_the_tree_is_named_or_an_update_is_no_wider() {
    let sandbox = with_agent();
    let ran = add(&sandbox, &["reviewer"]).expect_code(3);
    let tree = named_tree(&ran);
    let other = "0".repeat(64);
    add(&sandbox, &["reviewer", "--tree", &other]).expect_code(1);
    assert!(!sandbox.path(LOCK).exists());
    let ran = add(&sandbox, &["reviewer", "--tree", &tree]).expect_code(0);
    assert_eq!(ran.stdout, "reviewer\n");
    add(&sandbox, &["--update"]).expect_code(0);

    sandbox.write("reviewer/system_prompt.md", "Review well.\n");
    let ran = add(&sandbox, &["--update", "reviewer"]).expect_code(0);
    assert!(ran.stderr.contains("~ changed file: system_prompt.md"), "{ran:?}");
    let second = lock(&sandbox)["agents"]["reviewer"]["tree"].clone();
    assert_ne!(second, tree);
    for wider in [
        WIDER,
        "  - {name: net, sandbox: {net: [index.crates.io]}, shell: \"true\"}\n",
        "  - {name: home, sandbox: {home: write}, shell: \"true\"}\n",
    ] {
        sandbox.write("reviewer/agent.yaml", format!("{AGENT}{wider}"));
        let ran = add(&sandbox, &["--update"]).expect_code(3);
        assert!(ran.stderr.contains("  + "), "{ran:?}");
        assert_eq!(lock(&sandbox)["agents"]["reviewer"]["tree"], second);
    }
    // A tool that asked before.
    sandbox.write("reviewer/agent.yaml", AGENT.replace("look,", "look, approve: ask,"));
    add(&sandbox, &["--update"]).expect_code(0);
    sandbox.write("reviewer/agent.yaml", AGENT);
    let ran = add(&sandbox, &["--update"]).expect_code(3);
    assert!(ran.stderr.contains("  + tools  look"), "{ran:?}");
}

/// The engine itself reads the files of context.yaml, in no sandbox, and sends them to the LLM: an update once did so with a key
/// of the operator's, and nothing was asked.
#[test]
fn c_36_16_an_update_whose_context_reads_other_files_is_wider() {
    let sandbox = with_agent();
    install(&sandbox, &["reviewer"]);
    let update = |source: &str| {
        sandbox.write("reviewer/context.yaml", format!("{CONTEXT}  - {source}\n"));
        add(&sandbox, &["--update"])
    };
    let generator = "generator: {command: [\"true\"], pass_env: [GH_TOKEN]}";
    let computed =
        |path: &str| format!("{{type: computed_file, {generator}, output_path: '{path}'}}");
    for inner in ["notes.md", "${AGENT_HOME}/notes.md", "${CWD}/docs/.notes", "${RUN_DIR}/notes.md"]
    {
        update(&format!("{{type: file, path: '{inner}', on_missing: skip}}")).expect_code(0);
    }
    let home = sandbox.path("home").display().to_string();
    for outer in [
        &format!("{home}/.ssh/id_rsa"),
        "${AGENT_HOME}/../../../../../.ssh/id_rsa",
        "notes/../../x",
        "${CWD}-other/x",
        "${RUN_DIR}/../x",
        "${CWD}/.env",
    ] {
        let condition = format!("condition: {{when: file_exists, path: '{outer}'}}");
        for source in [
            format!("{{type: file, path: '{outer}', on_missing: skip}}"),
            computed(outer),
            format!("{{type: file, path: notes.md, {condition}, on_missing: skip}}"),
        ] {
            let ran = update(&source).expect_code(3);
            let (_, wider) = ran.stderr.split_once("  + files  context.yaml: ").expect(&ran.stderr);
            let wider = wider.lines().next().unwrap();
            assert!(wider.contains(&format!("reads {outer}")), "{outer}: {ran:?}");
        }
    }
    let ran = update(&computed("${RUN_DIR}/notes.md")).expect_code(3);
    assert!(ran.stderr.contains("  + keys  context.yaml: GH_TOKEN\n"), "{ran:?}");
}

#[test]
fn c_36_16_an_update_that_asks_about_less_is_wider() {
    let sandbox = with_agent();
    let write = |keys: &str| {
        sandbox.write("reviewer/agent.yaml", AGENT.replace("look,", &format!("look, {keys}")));
    };
    write("stage: ask,");
    let first = add(&sandbox, &["reviewer"]).expect_code(3);
    assert!(first.stderr.contains("tools  look (asks before changes are applied)\n"), "{first:?}");
    install(&sandbox, &["reviewer"]);
    // Its changes were then applied without a question.
    write("");
    let ran = add(&sandbox, &["--update"]).expect_code(3);
    assert!(ran.stderr.contains("  + tools  look\n"), "{ran:?}");
    let tree = named_tree(&ran);
    add(&sandbox, &["reviewer", "--tree", &tree]).expect_code(0);
    for narrower in ["stage: ask,", "approve: [{do: ask}],", "approve: ask,"] {
        write(narrower);
        let ran = add(&sandbox, &["--update"]);
        assert!(ran.code == 0 && !ran.stderr.contains("  + "), "{narrower}: {ran:?}");
        if narrower != "approve: ask," {
            write("");
            let ran = add(&sandbox, &["--update"]).expect_code(3);
            add(&sandbox, &["reviewer", "--tree", &named_tree(&ran)]).expect_code(0);
        }
    }
}

/// What a sandbox hides was forgotten where it lists what can be read.
#[test]
fn c_36_16_an_update_that_hides_less_is_wider() {
    let sandbox = with_agent();
    let update = |keys: &str| {
        let agent = AGENT.replace("sandbox: workspace", &format!("sandbox: {{{keys}}}"));
        sandbox.write("reviewer/agent.yaml", agent);
    };
    update("read: [/srv/fs], home: hidden, hide: [/srv/fs/secret]");
    install(&sandbox, &["reviewer"]);
    update("read: [/srv/fs], home: hidden");
    let ran = add(&sandbox, &["--update"]).expect_code(3);
    let wider = "  + files  look: reads /srv/fs, writes ${CWD}, writes git\n";
    assert!(ran.stderr.contains(wider), "{ran:?}");
}

#[test]
fn c_36_14_a_run_installs_nothing() {
    let sandbox = with_agent();
    let ran = add_command(&sandbox, &["reviewer"]).env("DELTA_RUN_ID", "r").output();
    assert!(ran.expect_code(126).stderr.contains("that is for its operator"));
}
