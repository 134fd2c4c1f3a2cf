//! `sandbox:` and the operator's limits, through the program: what a tool cannot do, what the journal and the LLM read.
//!
//! Where the machine has no user namespaces, these tests report that and end; `tests` of delta-sandbox have the other grade.

use super::DELTA;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

const TOOLS: &str = "  - {name: sh, description: Runs a script., shell: 'sh -c ${script}'}
  - {name: free, shell: 'sh -c ${script}', sandbox: off}
";

/// An agent in the sandbox `setting`, whose LLM makes these calls; `None` if this machine has no namespaces.
pub fn agent(setting: &str, calls: &[(&str, &str)]) -> Option<Sandbox> {
    let sandbox = declared_agent(setting, calls);
    let check = sandbox.delta(["sandbox", "check", "--agent", "agent", "-w", "work"]).output();
    if check.stdout.contains("no namespaces") || check.stderr.contains("namespaces") {
        needs::skip(format!("{}{}", check.stdout, check.stderr));
        return None;
    }
    Some(sandbox)
}

fn declared_agent(setting: &str, calls: &[(&str, &str)]) -> Sandbox {
    let turns: String = calls
        .iter()
        .map(|(tool, script)| {
            format!("- call: [{{tool: {tool}, args: {{script: {}}}}}]\n", json!(script))
        })
        .collect();
    let sandbox = Sandbox::not_in_memory(DELTA);
    sandbox.script(TOOLS, &format!("{turns}- say: done\n"));
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{setting}\n{yaml}"));
    std::fs::create_dir_all(sandbox.path("work")).unwrap();
    sandbox
}

/// Whether this machine has sockets that Landlock cannot close is not what is tested.
const WITHOUT_SOCKETS: [&str; 2] = ["--sandbox-without", "sockets"];

fn started(sandbox: &Sandbox) -> Value {
    sandbox.events("ENGINE_START")[0]["config"]["sandbox"].clone()
}

pub fn expect_done(ran: Ran) {
    ran.expect_code(0);
}

#[test]
fn c_22_4_a_tool_changes_only_the_workspace() {
    let script = "echo a > in; echo b > ../outside; echo c >> .delta/r/journal.jsonl; cat in";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    expect_done(sandbox.run("go", &[]));
    let observation = &sandbox.observations()[0];
    assert!(observation.starts_with("a\n"), "{observation}");
    assert!(observation.contains("Read-only file system"), "{observation}");
    assert!(!sandbox.path("outside").exists());
    let record = started(&sandbox);
    let profile = &record["profiles"]["p1"];
    assert_eq!(record["tools"], json!({"sh": "p1"}));
    assert_eq!(profile["by"], "namespaces");
    assert_eq!(profile["net"], "none");
    assert!(profile["holds"].as_array().unwrap().contains(&json!("journal")));
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["sandbox"], "p1");
}

#[test]
fn c_22_4_secrets_are_hidden_and_the_home_is_a_copy() {
    let script = "cat ~/.ssh/id; echo x > ~/new && cat ~/new; echo \"[$A_TOKEN]\"";
    let calls = [("sh", script), ("free", "cat ~/.ssh/id")];
    let Some(sandbox) = agent("sandbox: workspace", &calls) else { return };
    sandbox.write("home/.ssh/id", "the key");
    expect_done(sandbox.run_command("go", &[]).env("A_TOKEN", "t").output());
    let seen = sandbox.observations();
    assert!(seen[0].starts_with("x\n[]\n") && !seen[0].contains("the key"), "{}", seen[0]);
    assert_eq!(seen[1], "the key");
    assert!(!sandbox.path("home/new").exists());
    assert_eq!(sandbox.events("ACTION_REQUEST")[1]["sandbox"], "off");
}

#[test]
fn c_22_4_keys_are_hidden_by_what_they_are() {
    let script = "rev \"$AGENT_HOME/.env\"; echo \"[$PGPASSWORD$DB$PEM]$PLAIN\"";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    sandbox.write("agent/.env", "DELTA_API_KEY=sk-abcdefgh\n");
    let command = sandbox.run_command("go", &[]).env("PGPASSWORD", "one").env("PLAIN", "plain");
    let command = command.env("DB", "postgres://u:two@h/d");
    expect_done(command.env("PEM", "-----BEGIN PRIVATE KEY-----").output());
    let seen = &sandbox.observations()[0];
    assert!(seen.contains("[]plain") && !seen.contains("hgfedcba"), "{seen}");
}

#[test]
fn c_22_4_a_failure_has_its_reason() {
    let Some(sandbox) = agent("sandbox: reader", &[("sh", "echo a > in")]) else { return };
    expect_done(sandbox.run("go", &[]));
    let observation = &sandbox.observations()[0];
    assert!(observation.ends_with("\n[sandbox: only /tmp can be written]"), "{observation}");
    let line = &started(&sandbox)["profiles"]["p1"]["line"];
    assert_eq!(line, "Sandbox: writes only in /tmp; HOME is read-only; no network.");
}

/// A refused connection to a port of the machine had no reason: nothing said that the tool has a loopback of its own.
#[test]
fn c_22_4_a_connection_that_the_own_loopback_refuses_has_its_reason() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let connect = format!("bash -c '(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null'");
    let calls = [("sh", &*connect), ("sh", &*format!("{connect}; {connect}; true"))];
    let Some(sandbox) = agent("sandbox: workspace", &calls) else { return };
    expect_done(sandbox.run("go", &[]));
    let reason = "the sandbox has its own localhost, which refused a connection";
    assert_eq!(
        sandbox.observations(),
        [format!("[exit code: 1]\n[sandbox: {reason}]"), "[no output]".to_owned()]
    );
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listed = format!("localhost:{}", other.local_addr().unwrap().port());
    let setting = format!("sandbox: {{net: ['{listed}']}}");
    let Some(sandbox) = agent(&setting, &[("sh", &connect)]) else { return };
    expect_done(sandbox.run("go", &[]));
    assert_eq!(
        sandbox.observations(),
        [format!("[exit code: 1]\n[sandbox: the network reaches {listed}; {reason}]")]
    );
}

/// A program in /tmp was said to lack its interpreter.
#[test]
fn c_22_4_a_program_in_the_tmp_of_the_machine_has_its_reason() {
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", "true")]) else { return };
    let outside = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let program = outside.path().join("program");
    let name = program.to_str().unwrap();
    sandbox.write_program("work/program", "#!/bin/sh\necho here\n");
    std::fs::copy(sandbox.path("work/program"), &program).unwrap();
    let reason = format!("/tmp is the sandbox's own, without {name} of the machine");
    let exec = |command: &[&str]| {
        let start = ["sandbox", "exec", "--agent", "agent", "-w", "work", "--"];
        sandbox.delta([&start[..], command].concat()).output()
    };
    exec(&["./program"]).expect(0, "here\n", "");
    let note = format!("Note: {reason}; copy it into the workspace\n");
    let missing = format!("`{name}`, or its interpreter `/bin/sh`, is not in the sandbox");
    exec(&[name]).expect(127, "", &format!("error: {missing}\n{note}"));
    let ran = exec(&["sh", name]);
    assert!(ran.code != 0 && ran.stderr.ends_with(&note), "{}", ran.stderr);
    sandbox.write("agent/script.yaml", "turns: [{call: [{tool: run}]}, {say: done}]\n");
    let tools = format!("  - {{name: run, exec: {name}}}\n");
    sandbox.agent("provider: script\n  model: script.yaml", &tools);
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("sandbox: workspace\n{yaml}"));
    expect_done(sandbox.run("go", &[]));
    assert_eq!(
        sandbox.observations(),
        [format!(
            "The tool could not be started: {missing}.\n[exit code: 127]\n[sandbox: {reason}]"
        )]
    );
}

#[test]
fn c_22_4_the_operator_limits_a_tool_without_a_sandbox() {
    let Some(sandbox) = agent("", &[("free", "echo a > in"), ("sh", "echo b > in")]) else {
        return;
    };
    expect_done(sandbox.run("go", &["--sandbox", "reader"]));
    assert!(!sandbox.path("work/in").exists());
    let record = started(&sandbox);
    assert_eq!(record["policy"], json!([{"file": "reader"}]));
    assert_eq!(record["tools"], json!({"free": "p1", "sh": "p1"}));
}

/// The note was also there if no tool could write in the directory.
#[test]
fn c_20_3_only_an_agent_that_can_change_its_directory_is_reported() {
    let Some(_) = agent("sandbox: reader", &[]) else { return };
    let placed = |setting: &str, tools: &str| {
        let sandbox = Sandbox::scripted(DELTA, tools, "- say: done\n");
        let yaml = sandbox.read("agent/agent.yaml");
        sandbox.write("agent/agent.yaml", format!("{setting}\n{yaml}"));
        std::fs::create_dir(sandbox.path("place")).unwrap();
        std::fs::rename(sandbox.path("agent"), sandbox.path("place/agent")).unwrap();
        sandbox
    };
    let is_reported = |sandbox: Sandbox, more: &[&str]| {
        let args = ["run", "--agent", "place/agent", "-w", "place", "-m", "go"];
        let ran = sandbox.delta([&args[..], more].concat()).output().expect_code(0);
        ran.stderr.contains("the agent can change its own directory")
    };
    let tool = "  - {name: sh, shell: 'sh -c ${script}'}\n";
    assert!(is_reported(placed("", tool), &[]));
    assert!(is_reported(placed("sandbox: reader", TOOLS), &[]), "a tool has no sandbox");
    assert!(!is_reported(placed("sandbox: reader", tool), &[]));
    assert!(!is_reported(placed("sandbox: workspace", tool), &[]));
    assert!(!is_reported(placed("", TOOLS), &["--sandbox", "reader"]));
    let write = "sandbox: {write: ['${AGENT_HOME}']}";
    assert!(is_reported(placed(write, tool), &[]));
    for (setting, expected) in [("sandbox: workspace", true), ("sandbox: reader", false)] {
        let Some(sandbox) = placed(setting, tool).without_namespaces() else { continue };
        assert_eq!(
            is_reported(sandbox, &WITHOUT_SOCKETS),
            expected,
            "{setting} without namespaces"
        );
    }
}

#[test]
fn c_22_4_a_run_without_a_sandbox_records_nothing_of_it() {
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS.replace(", sandbox: off", "").as_str(),
        "- call: [{tool: sh, args: {script: echo a}}]\n- say: done\n",
    );
    expect_done(sandbox.run("go", &[]));
    assert!(!sandbox.journal().iter().any(|event| event.to_string().contains("sandbox")));
}

#[test]
fn c_22_4_mistakes_have_a_position_and_a_help() {
    let check = |setting: &str, expected: &[&str]| {
        let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
        let yaml = sandbox.read("agent/agent.yaml");
        sandbox.write("agent/agent.yaml", format!("{setting}\n{yaml}"));
        let ran = sandbox.run("go", &[]).expect_code(126);
        for text in expected {
            assert!(ran.stderr.contains(text), "{text}: {}", ran.stderr);
        }
        assert!(!sandbox.path("work/.delta/r").exists());
    };
    check("sandbox: workspce", &["there is no sandbox `workspce`", "agent.yaml:1:10", "workspace"]);
    check("sandbox: {wirte: []}", &["unknown key `wirte`", "write"]);
    check("sandbox: {net: ['https://crates.io']}", &["write the host alone: `crates.io`"]);
    check("sandbox: {limits: {memory: 4}}", &["expected an amount with a unit"]);
    check("sandboxes: {off: {}}", &["`off` is a sandbox of delta"]);
    check("sandbox: {write: [nowhere]}", &["`nowhere` in `write`", "nowhere?"]);
    check("sandbox: {write: [.delta]}", &["`.delta`, which no tool changes"]);
}

#[test]
fn c_22_4_a_mistake_of_the_operator_starts_nothing() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    let ran = sandbox.run("go", &["--sandbox", "raeder"]).expect_code(126);
    assert!(ran.stderr.contains("there is no sandbox `raeder`"), "{}", ran.stderr);
    let ran = sandbox.run("go", &["--sandbox-without", "nett"]).expect_code(2);
    assert!(ran.stderr.contains("`nett` is not a guarantee"), "{}", ran.stderr);
    assert!(!sandbox.path("work/.delta/r").exists());
}

#[test]
fn c_22_4_an_agent_in_a_sandbox_runs_where_namespaces_are_refused() {
    let script = "echo a > in; echo b > ../outside; cat in";
    let calls = [("sh", script)];
    let sandbox = declared_agent("sandbox: workspace", &calls).without_namespaces();
    let Some(sandbox) = sandbox else { return };
    expect_done(sandbox.run("go", &WITHOUT_SOCKETS));
    let observation = &sandbox.observations()[0];
    assert!(observation.starts_with("a\n") && !sandbox.path("outside").exists(), "{observation}");
    let profile = &started(&sandbox)["profiles"]["p1"];
    assert_eq!((&profile["by"], &profile["watched"]), (&json!("landlock"), &json!(["journal"])));
    assert!(!profile["holds"].as_array().unwrap().contains(&json!("journal")), "{profile}");
    let check = ["sandbox", "check", "--agent", "agent", "-w", "work"];
    let checked = sandbox.delta(check).args(WITHOUT_SOCKETS).output().expect_code(0);
    let line = "\n  watched: journal (the run ends at a change)\n";
    assert!(checked.stdout.contains(line), "{}", checked.stdout);
    assert!(checked.stdout.contains("\n  keep (not enforced): "), "{}", checked.stdout);
}

/// As in HOME, where the keys of vendors and of delta are.
#[test]
fn c_22_4_what_landlock_cannot_hide_is_named() {
    let sandbox = declared_agent("sandbox: {hide: [in/key]}", &[("sh", "true")]);
    sandbox.write("work/in/key", "SECRET");
    let Some(sandbox) = sandbox.without_namespaces() else { return };
    let ran = sandbox.run("go", &WITHOUT_SOCKETS).expect_code(126);
    let path = sandbox.path("work/in/key").display().to_string();
    let reason = format!("Landlock cannot hide {path} in a writable directory\n");
    assert!(ran.stderr.contains(&reason), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: work in a directory without it, or "), "{}", ran.stderr);
}

#[test]
fn c_22_4_a_run_ends_when_a_tool_changes_its_journal() {
    let ends = |attack: &str, reason: &str, is_cut_back: bool| {
        let calls = [("sh", attack), ("sh", "touch started")];
        let sandbox = declared_agent("sandbox: workspace", &calls).without_namespaces();
        let Some(sandbox) = sandbox else { return };
        sandbox.unverified("a tool changes the journal");
        let ran = sandbox.run("go", &WITHOUT_SOCKETS).expect_code(1);
        let expected = format!("journal.jsonl: another process has changed it: {reason}");
        assert!(ran.stderr.contains(&expected), "{attack}: {}", ran.stderr);
        assert!(!sandbox.path("work/started").exists(), "{attack}");
        if is_cut_back {
            sandbox
                .delta(["continue", "r", "-w", "work"])
                .args(WITHOUT_SOCKETS)
                .output()
                .expect_code(0);
            assert!(!sandbox.read("work/.delta/r/journal.jsonl").contains("\n{\"forged"));
        }
    };
    let journal = ".delta/r/journal.jsonl";
    ends(&format!("echo '{{\"forged\": 1}}' >> {journal}"), "it has ", true);
    ends(&format!("sed -i 's/go/no/' {journal}"), "it is another file now", false);
    ends(&format!("printf x | dd of={journal} conv=notrunc"), "it has the same length", false);
    ends(&format!("mv {journal} .delta/r/old"), "it cannot be opened now", false);
    ends("mv .delta .other", "it cannot be opened now", false);
    ends(&format!(": > {journal}"), "it has 0 bytes", false);
}

#[test]
fn c_22_4_a_change_that_leaves_the_journal_as_it_is_ends_no_run() {
    let script = "chmod 640 .delta/r/journal.jsonl && touch .delta/r/journal.jsonl && echo ok";
    let calls = [("sh", script)];
    let sandbox = declared_agent("sandbox: workspace", &calls).without_namespaces();
    let Some(sandbox) = sandbox else { return };
    expect_done(sandbox.run("go", &WITHOUT_SOCKETS));
    assert_eq!(sandbox.observations()[0], "ok\n");
}

#[test]
fn c_22_4_what_git_follows_cannot_be_changed_and_is_named_when_it_appears() {
    let script = "for dir in .git .git/modules/m .git/worktrees/w; do echo x >> $dir/config; \
                  echo x >> $dir/commondir; mv $dir $dir.old; done; echo . > .git/commondir; \
                  mkdir .git/hooks";
    let calls =
        [("sh", script), ("sh", "rm .git/commondir"), ("sh", "rmdir .git/hooks && echo gone")];
    let Some(sandbox) = agent("sandbox: workspace", &calls) else { return };
    for dir in [".git", ".git/modules/m", ".git/worktrees/w"] {
        for name in ["HEAD", "config"] {
            sandbox.write(&format!("work/{dir}/{name}"), "[core]\n");
        }
    }
    sandbox.write("work/.git/worktrees/w/commondir", "../..\n");
    let ran = sandbox.run("go", &[]).expect_code(0);
    for dir in [".git", ".git/modules/m", ".git/worktrees/w"] {
        assert_eq!(sandbox.read(&format!("work/{dir}/config")), "[core]\n");
    }
    assert_eq!(sandbox.read("work/.git/worktrees/w/commondir"), "../..\n");
    let observations = sandbox.observations();
    let git = sandbox.path("work/.git");
    let git = git.display();
    let both = format!("{git}/commondir and {git}/hooks");
    let hint = format!("[sandbox: {both} must not be created; remove them]");
    assert!(observations[0].ends_with(&hint), "{}", observations[0]);
    assert_eq!(observations[1], format!("[sandbox: {git}/hooks must not be created; remove it]"));
    assert_eq!(observations[2], "gone\n");
    let warning = format!("has made {both}, which git follows: look at them before you use git");
    assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
}

/// The agent on a machine that refuses system calls, by numbers and errors of x86-64, or that has Landlock domains.
fn agent_with_refused_calls(filters: &str, calls: &[(&str, &str)]) -> Sandbox {
    let sandbox = declared_agent("sandbox: workspace", calls);
    sandbox.write("bin/refuse.py", include_str!("security/refused_system_calls.py"));
    let launcher = format!("python3 {} {filters} --", sandbox.path("bin/refuse.py").display());
    sandbox.started_by(&launcher)
}

#[cfg(target_arch = "x86_64")]
#[test]
fn c_22_4_a_filter_of_system_calls_leaves_the_grade_below_or_an_error() {
    if !needs::programs(&["python3"]) {
        return;
    }
    // Containers refuse these with EPERM or, if they do not know them, with ENOSYS.
    for (name, number) in [
        ("unshare", 272),
        ("setns", 308),
        ("mount", 165),
        ("open_tree", 428),
        ("mount_setattr", 442),
    ] {
        for error in [libc::EPERM, libc::ENOSYS] {
            let calls = [("sh", "echo a > in; echo b > ../outside; cat in")];
            let sandbox = agent_with_refused_calls(&format!("{number}:{error}"), &calls);
            let ran = sandbox.run("go", &WITHOUT_SOCKETS).expect_code(0);
            assert_eq!(started(&sandbox)["profiles"]["p1"]["by"], "landlock", "{name}: {ran:?}");
            assert!(sandbox.path("work/in").exists() && !sandbox.path("outside").exists());
        }
    }
}

#[test]
fn c_22_4_a_landlock_domain_too_many_is_an_error() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for layers in [15, 16] {
        let calls = [("sh", "touch in; touch ../outside")];
        let sandbox = agent_with_refused_calls(&format!("layers:{layers}"), &calls);
        if sandbox.delta(["--version"]).output().code != 0 {
            return needs::skip("needs Landlock that controls signals");
        }
        let ran = sandbox.run("go", &WITHOUT_SOCKETS);
        let is_error = ran.stderr.contains("16 Landlock domains are around this process");
        let is_in = sandbox.path("work/in").exists();
        assert_eq!(ran.code, if layers == 16 { 126 } else { 0 }, "{layers}: {}", ran.stderr);
        assert_eq!((is_error, is_in), (layers == 16, layers != 16), "{}", ran.stderr);
        assert!(!sandbox.path("outside").exists());
    }
}

#[test]
fn c_22_4_a_workspace_in_the_home_directory_is_not_a_copy() {
    let script = "echo a > ~/ws/in && echo b > ~/copied && cat ~/copied ~/.ssh/id";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    sandbox.write("home/ws/.keep", "");
    sandbox.write("home/.ssh/id", "the key");
    let ran = sandbox.delta(["run", "--agent", "agent", "-w", "home/ws", "-m", "go"]).output();
    let ran = ran.expect_code(0);
    assert_eq!(sandbox.read("home/ws/in"), "a\n", "{}", ran.stderr);
    assert!(!sandbox.path("home/copied").exists() && !ran.stderr.contains("the key"));
}

#[test]
fn c_22_4_an_agent_in_its_workspace_cannot_change_itself() {
    let script = "echo x >> agent/agent.yaml; echo x > agent/new; mv agent other; rm -r agent; \
                  mkdir -p agent/sub; echo a > in";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    std::fs::rename(sandbox.path("agent"), sandbox.path("work/agent")).unwrap();
    let yaml = sandbox.read("work/agent/agent.yaml");
    let run = ["run", "--agent", "work/agent", "-w", "work", "-m", "go"];
    sandbox.delta(run).output().expect_code(0);
    assert_eq!(sandbox.read("work/in"), "a\n");
    assert_eq!(sandbox.read("work/agent/agent.yaml"), yaml);
    assert!(!sandbox.path("work/agent/new").exists() && !sandbox.path("work/other").exists());
}

fn git_in_workspace(sandbox: &Sandbox, args: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.args(["-c", "user.name=n", "-c", "user.email=n", "-c", "protocol.file.allow=always"]);
    let output = git.args(args).current_dir(sandbox.path("work")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Links, `~`, an include whose condition does not hold, and the `.git` of a submodule lead git on.
#[test]
fn c_38_3_what_leads_git_to_a_file_cannot_be_written() {
    const KEPT: [&str; 8] = [
        "hook",
        "hooks/run",
        "user.conf",
        "home.conf",
        "attributes",
        "team.conf",
        "sub/.git",
        "old/.git/config",
    ];
    let write = "for f in attributes hook hooks/run user.conf home.conf team.conf sub/.git old/.git/config; do echo planted > $f; done; mkdir new; echo planted > new/conf; git checkout -q -b two";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", write)]) else { return };
    let git = |args: &[&str]| git_in_workspace(&sandbox, args);
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&["clone", "-q", ".", "old"]);
    git(&["submodule", "--quiet", "add", "./old", "old"]);
    git(&["submodule", "--quiet", "add", "--name", "other", "./old", "sub"]);
    for file in &KEPT[..6] {
        sandbox.write(&format!("work/{file}"), "# as it was\n");
    }
    sandbox.write("work/branch.conf", "[include]\n\tpath = team.conf\n");
    git(&["config", "includeIf.onbranch:two.path", "../branch.conf"]);
    git(&["config", "--add", "include.path", "../new/conf"]);
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(sandbox.path(target), sandbox.path(name)).unwrap();
    };
    link("work/hook", "work/.git/hooks/pre-commit");
    let user =
        "[include]\n\tpath = ~/../work/home.conf\n\tpath = linked\n[core]\n\thooksPath = hooks\n";
    sandbox.write("home/.gitconfig", user);
    link("work/user.conf", "home/linked");
    std::fs::create_dir_all(sandbox.path("home/.config/git")).unwrap();
    link("work/attributes", "home/.config/git/attributes");
    let before = KEPT.map(|file| sandbox.read(&format!("work/{file}")));
    let ran = sandbox.run("go", &[]).expect_code(0);
    for (file, before) in KEPT.iter().zip(before) {
        assert_eq!(sandbox.read(&format!("work/{file}")), before, "{file}");
    }
    assert!(ran.stderr.contains("/new/conf, which git follows"), "{}", ran.stderr);
}

/// `.git/config` names more files that git follows, and a stopped rebase has a list of commands.
#[test]
fn c_38_3_what_git_follows_cannot_be_written() {
    let write = "for f in .husky/pre-commit .husky/_/h team.conf tools/clean; do echo planted > $f; done; mkdir .git/rebase-merge; mv team.conf other";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", write)]) else { return };
    for file in [".husky/pre-commit", ".husky/_/h", "tools/clean"] {
        sandbox.write(&format!("work/{file}"), "as it was\n");
    }
    sandbox.write("work/team.conf", "[filter \"x\"]\n\tclean = sh tools/clean %f\n");
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        let output = git.args(args).current_dir(sandbox.path("work")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "-q"]);
    git(&["config", "core.hooksPath", ".husky/_"]);
    git(&["config", "include.path", "../team.conf"]);
    let ran = sandbox.run("go", &[]).expect_code(0);
    for file in [".husky/pre-commit", ".husky/_/h", "tools/clean"] {
        assert_eq!(sandbox.read(&format!("work/{file}")), "as it was\n");
    }
    assert!(sandbox.read("work/team.conf").starts_with("[filter"));
    assert!(ran.stderr.contains("/.git/rebase-merge, which git follows"), "{}", ran.stderr);
}

/// What git follows could be written if its name was not UTF-8.
#[test]
fn c_38_3_what_git_follows_has_a_name_of_any_bytes() {
    let write = "for f in .h*/pre-commit inc*; do echo planted > \"$f\"; done";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", write)]) else { return };
    git_in_workspace(&sandbox, &["init", "-q"]);
    let config = b"[core]\n\thooksPath = .h\xff\n[include]\n\tpath = \"../inc\xff\"\n";
    let git_config = sandbox.path("work/.git/config");
    let before = std::fs::read(&git_config).unwrap();
    std::fs::write(&git_config, [&before[..], config].concat()).unwrap();
    let hooks = sandbox.path("work").join(OsStr::from_bytes(b".h\xff"));
    std::fs::create_dir(&hooks).unwrap();
    let files =
        [hooks.join("pre-commit"), sandbox.path("work").join(OsStr::from_bytes(b"inc\xff"))];
    files.iter().for_each(|file| std::fs::write(file, "# as it was\n").unwrap());
    sandbox.run("go", &[]).expect_code(0);
    for file in files {
        assert_eq!(std::fs::read(&file).unwrap(), b"# as it was\n", "{}", file.display());
    }
}

/// "not a git repository": the workspace was on another file system than the directories above it.
#[test]
fn c_22_4_git_works_in_a_subdirectory_of_a_repository() {
    for (declared, options) in [("sandbox: workspace", &[][..]), ("", &["--stage"])] {
        let calls = [("sh", "git log --format=%s && git rev-parse --show-prefix")];
        let Some(sandbox) = agent(declared, &calls) else { return };
        git_in_workspace(&sandbox, &["init", "-q", ".."]);
        git_in_workspace(&sandbox, &["commit", "-q", "--allow-empty", "-m", "one"]);
        let home = sandbox.path("work").parent().unwrap().to_owned();
        sandbox.run_command("go", options).env("HOME", home).output().expect_code(0);
        assert_eq!(sandbox.observations(), ["one\nwork/\n"], "{declared}{options:?}");
    }
}

/// Whoever obeyed "must not be created; remove it" lost the rebase.
#[test]
fn c_38_3_the_list_of_a_stopped_rebase_is_not_to_be_removed() {
    let rebase = "git checkout -qb other HEAD~ && git commit -q --allow-empty -m c && echo 3 > f && git commit -qam d; git rebase -q main; touch .git/commondir";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", rebase)]) else { return };
    let git = |args: &[&str]| git_in_workspace(&sandbox, args);
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "user.name", "n"]);
    git(&["config", "user.email", "n"]);
    for content in ["1", "2"] {
        sandbox.write("work/f", content);
        git(&["add", "f"]);
        git(&["commit", "-qm", content]);
    }
    let ran = sandbox.run("go", &[]).expect_code(0);
    assert!(sandbox.path("work/.git/rebase-merge").is_dir(), "{:?}", sandbox.observations());
    assert!(ran.stderr.contains(".git/rebase-merge, which git follows"), "{}", ran.stderr);
    let seen = &sandbox.observations()[0];
    assert!(seen.contains(".git/commondir must not be created; remove it; git follows "), "{seen}");
    assert!(seen.contains(".git/rebase-merge, which is new]"), "{seen}");
}

/// Only submodules whose name is their path were found, and of a symlink what it leads to was kept, but not the symlink.
#[test]
fn c_38_3_what_git_follows_in_other_repositories_and_through_symlinks_cannot_change() {
    const KEPT: [&str; 7] = [
        "hooked",
        "vendor/x/.git/config",
        "moved/.git",
        "apart/.git",
        "meta/config",
        "real.conf",
        "shared/pre-commit",
    ];
    const LINKS: [(&str, &str); 6] = [
        ("hook", "hooked"),
        ("shared/post-commit", "../hook"),
        ("link.conf", "via"),
        ("via", "real.conf"),
        ("linked/.git", "../meta"),
        (".git/hooks", "../shared"),
    ];
    let write = "for f in hooked vendor/x/.git/config moved/.git apart/.git meta/config real.conf shared/pre-commit; do echo planted > $f; done; mv vendor gone; mv linked gone; for l in hook via linked/.git .git/hooks link.conf; do mv $l gone; rm -f $l; ln -sfn planted $l; done";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", write)]) else { return };
    let git = |args: &[&str]| git_in_workspace(&sandbox, args);
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&["clone", "-q", ".", "vendor/x"]);
    git(&["submodule", "--quiet", "add", "./vendor/x", "sub"]);
    git(&["mv", "sub", "moved"]);
    git(&["init", "-q", "--separate-git-dir", "meta", "apart"]);
    sandbox.write("work/real.conf", "# as it was\n");
    for hook in ["hooked", "shared/pre-commit"] {
        sandbox.write(&format!("work/{hook}"), "# as it was\n");
    }
    std::fs::create_dir(sandbox.path("work/linked")).unwrap();
    std::fs::remove_dir_all(sandbox.path("work/.git/hooks")).unwrap();
    for (link, target) in LINKS {
        std::os::unix::fs::symlink(target, sandbox.path("work").join(link)).unwrap();
    }
    git(&["config", "include.path", "../link.conf"]);
    let before = KEPT.map(|file| sandbox.read(&format!("work/{file}")));
    sandbox.run("go", &[]).expect_code(0);
    for (file, before) in KEPT.iter().zip(before) {
        assert_eq!(sandbox.read(&format!("work/{file}")), before, "{file}");
    }
    for (link, target) in LINKS {
        let now = std::fs::read_link(sandbox.path("work").join(link));
        assert_eq!(now.unwrap(), std::path::Path::new(target), "{link}");
    }
    let observation = &sandbox.observations()[0];
    assert!(observation.contains("cannot be replaced, moved or removed here"), "{observation}");
}
