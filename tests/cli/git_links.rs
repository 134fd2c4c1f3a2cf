//! Workspaces whose git directory is elsewhere: what works in a copy or a stage of one changes neither it nor its branches.

use super::DELTA;
use std::path::Path;
use std::process::Command;
use test_support::sandbox::Sandbox;

fn git(sandbox: &Sandbox, dir: &str, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
    command.args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]);
    let output = command.args(args).current_dir(sandbox.path(dir)).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes `work` a work tree with a commit, in one of the ways of git.
fn make_work_tree(sandbox: &Sandbox, way: &str) {
    sandbox.write("repo/f", "base\n");
    git(sandbox, "repo", &["init", "-q"]);
    git(sandbox, "repo", &["add", "f"]);
    git(sandbox, "repo", &["commit", "-qm", "base"]);
    match way {
        "worktree" => {
            drop(git(sandbox, "repo", &["worktree", "add", "-q", "../work", "-b", "side"]))
        }
        "submodule" => {
            sandbox.write("outer/.keep", "");
            git(sandbox, "outer", &["init", "-q"]);
            git(sandbox, "outer", &["submodule", "--quiet", "add", "../repo", "work"]);
            std::os::unix::fs::symlink("outer/work", sandbox.path("work")).unwrap();
        }
        "separate" => {
            std::fs::rename(sandbox.path("repo"), sandbox.path("work")).unwrap();
            git(sandbox, "work", &["init", "-q", "--separate-git-dir", "../elsewhere"]);
        }
        "plain" => std::fs::rename(sandbox.path("repo"), sandbox.path("work")).unwrap(),
        "subdirectory" => {
            sandbox.write("repo/sub/f", "base\n");
            git(sandbox, "repo", &["add", "."]);
            git(sandbox, "repo", &["commit", "-qm", "sub"]);
            std::os::unix::fs::symlink("repo/sub", sandbox.path("work")).unwrap();
        }
        _ => unreachable!(),
    }
}

/// A run that commits once with each turn.
fn sandbox(way: &str, keys: &str) -> Sandbox {
    let commit = "git -c user.name=a -c user.email=a@example.org commit -qam step && git log --format=%s | tr '\\n' ' '";
    let tools = format!("  - name: commit\n    shell: date +%N >> f && {commit}\n{keys}");
    let turns = "- call: [{tool: commit}]\n- say: ok\n- call: [{tool: commit}]\n- say: ok\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    let config = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", config + "snapshots: true\n");
    make_work_tree(&sandbox, way);
    sandbox
}

fn state(sandbox: &Sandbox) -> [String; 3] {
    [&["rev-parse", "HEAD"][..], &["status", "--short"], &["for-each-ref"]]
        .map(|args| git(sandbox, "work", args))
}

#[test]
fn c_38_1_a_fork_commits_in_a_git_directory_of_its_own() {
    for way in ["worktree", "submodule"] {
        let sandbox = sandbox(way, "");
        sandbox.run("hi", &[]).expect_code(0);
        let before = state(&sandbox);
        let fork = ["fork", "r", "-w", "work", "--into", "copy", "--run-id", "f", "-m", "go on"];
        let ran = sandbox.delta(fork).output().expect_code(0);
        assert!(ran.stderr.contains("Note: .git is a copy of the git directory"), "{}", ran.stderr);
        assert_eq!(state(&sandbox), before, "{way}");
        assert_eq!(git(&sandbox, "copy", &["log", "--format=%s"]), "step\nstep\nbase\n", "{way}");
        assert_eq!(git(&sandbox, "copy", &["status", "--short"]), "", "{way}");
        git(&sandbox, "copy", &["fsck"]);
    }
}

#[test]
fn c_38_1_a_fork_says_what_it_shares() {
    let sandbox = sandbox("separate", "");
    sandbox.run("hi", &[]).expect_code(0);
    let ran = sandbox.delta(["fork", "r", "-w", "work", "--into", "copy"]).output().expect_code(0);
    let shared = sandbox.path("elsewhere").canonicalize().unwrap();
    let note = format!("change {}, which it shares", shared.display());
    assert!(ran.stderr.contains(&note), "{}", ran.stderr);
}

#[test]
fn c_38_1_a_replay_of_tools_commits_in_a_git_directory_of_its_own() {
    for way in ["worktree", "submodule"] {
        let sandbox = sandbox(way, "");
        sandbox.run("hi", &[]).expect_code(0);
        let before = state(&sandbox);
        let replay = ["replay", "r", "-w", "work", "--mode", "tools", "--into", "copy"];
        let ran = sandbox.delta(replay).output();
        assert_eq!(state(&sandbox), before, "{way}: {}", ran.stderr);
        // It begins with the commits that are there now.
        assert_eq!(git(&sandbox, "copy", &["log", "--format=%s"]), "step\nstep\nbase\n", "{way}");
        assert!(!ran.stdout.contains(".git"), "{}", ran.stdout);
    }
}

/// In a hook, git says where its repository is, and the commits of a tool in another one went there.
#[test]
fn c_38_1_git_variables_lead_no_tool_into_another_repository() {
    let sandbox = sandbox("separate", "");
    sandbox.write("user/f", "mine\n");
    git(&sandbox, "user", &["init", "-q"]);
    git(&sandbox, "user", &["add", "f"]);
    git(&sandbox, "user", &["commit", "-qm", "mine"]);
    let user = sandbox.path("user").canonicalize().unwrap();
    let places = ["rev-parse HEAD", "for-each-ref", "ls-files -s"];
    let user_state =
        || places.map(|args| git(&sandbox, "user", &args.split(' ').collect::<Vec<_>>()));
    let before = user_state();
    let agent = sandbox.path("agent").display().to_string();
    let run = ["run", "--agent", &agent, "-w", "../work", "--run-id", "r", "-m", "hi"];
    let run = sandbox.delta(run).cwd(&user).env("GIT_DIR", user.join(".git"));
    run.env("GIT_INDEX_FILE", user.join(".git/index")).output().expect_code(0);
    assert_eq!(user_state(), before);
    assert_eq!(git(&sandbox, "work", &["log", "--format=%s"]), "step\nbase\n");
}

/// So did the commits of a fork, into the original.
#[test]
fn c_38_1_git_variables_lead_no_fork_into_the_original() {
    let sandbox = sandbox("plain", "");
    sandbox.run("hi", &[]).expect_code(0);
    let before = state(&sandbox);
    let fork = ["fork", "r", "-w", "work", "--into", "copy", "--run-id", "f", "-m", "go on"];
    let git_dir = sandbox.path("work/.git").canonicalize().unwrap();
    sandbox.delta(fork).env("GIT_DIR", &git_dir).output().expect_code(0);
    assert_eq!(state(&sandbox), before);
    assert_eq!(git(&sandbox, "copy", &["log", "--format=%s"]), "step\nstep\nbase\n");
}

/// A hook of the repository itself asks about the index that its commit is made of.
#[test]
fn c_38_1_git_variables_of_the_repository_of_the_workspace_stay() {
    let sandbox = sandbox("plain", "");
    sandbox.script("  - {name: show, exec: env}\n", "- call: [{tool: show}]\n- say: ok\n");
    sandbox.write("work/inner/f", "");
    let agent = sandbox.path("agent").display().to_string();
    for work_dir in [".", "inner"] {
        let args = ["run", "--agent", &agent, "-w", work_dir, "--run-id", "s", "-m", "hi"];
        let run = sandbox.delta(args).cwd(sandbox.path("work")).env("GIT_DIR", ".git");
        run.env("GIT_INDEX_FILE", "/an/index").output().expect_code(0);
        let journal = sandbox.read(&format!("work/{work_dir}/.delta/s/journal.jsonl"));
        for variable in ["GIT_DIR=.git", "GIT_INDEX_FILE=/an/index"] {
            assert!(journal.contains(&format!("\\n{variable}\\n")), "{work_dir}: {journal}");
        }
    }
}

/// git writes `core.worktree` for GIT_WORK_TREE, and its commands in a copy changed the files of the original.
#[test]
fn c_38_1_a_copy_whose_configuration_names_the_original_has_its_own_files() {
    for has_worktree_config in [false, true] {
        let sandbox = sandbox("plain", "");
        let work = sandbox.path("work").canonicalize().unwrap().display().to_string();
        if has_worktree_config {
            git(&sandbox, "work", &["config", "extensions.worktreeConfig", "true"]);
            git(&sandbox, "work", &["config", "--worktree", "core.worktree", &work]);
        } else {
            git(&sandbox, "work", &["config", "core.worktree", &work]);
        }
        sandbox.run("hi", &[]).expect_code(0);
        sandbox.write("work/f", "precious\n");
        let fork = ["fork", "r", "-w", "work", "--into", "copy", "--run-id", "f", "-m", "go on"];
        let ran = sandbox.delta(fork).output().expect_code(0);
        let top = git(&sandbox, "copy", &["rev-parse", "--show-toplevel"]);
        assert_eq!(Path::new(top.trim()), sandbox.path("copy").canonicalize().unwrap());
        assert_eq!(git(&sandbox, "copy", &["show", "HEAD:f"]), sandbox.read("copy/f"));
        let note =
            format!("Note: .git named the files in {work}, and names the files of the copy now");
        assert!(ran.stderr.contains(&note), "{}", ran.stderr);
        let replay = ["replay", "r", "-w", "work", "--mode", "tools", "--into", "replayed"];
        let ran = sandbox.delta(replay).output();
        assert!(!ran.stdout.contains(".git/config"), "{}", ran.stdout);
        git(&sandbox, "replayed", &["reset", "-q", "--hard"]);
        assert_eq!(sandbox.read("work/f"), "precious\n");
    }
}

#[test]
fn c_38_1_files_elsewhere_that_a_copy_shares_are_named() {
    let sandbox = sandbox("plain", "");
    sandbox.run("hi", &[]).expect_code(0);
    sandbox.write("elsewhere/f", "");
    let elsewhere = sandbox.path("elsewhere").canonicalize().unwrap().display().to_string();
    git(&sandbox, "work", &["config", "core.worktree", &elsewhere]);
    let ran = sandbox.delta(["fork", "r", "-w", "work", "--into", "copy"]).output().expect_code(0);
    assert!(!ran.stderr.contains("Note: .git"), "{}", ran.stderr);
    // With the files of the iteration, the configuration is the one of then.
    let config = sandbox.read("agent/agent.yaml").replace("snapshots: true\n", "");
    sandbox.write("agent/agent.yaml", config);
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "-m", "hi"];
    sandbox.delta(run).output();
    let ran = sandbox.delta(["fork", "s", "-w", "work", "--into", "now"]).output().expect_code(0);
    let note = format!("change the files in {elsewhere}, which .git names");
    assert!(ran.stderr.contains(&note), "{}", ran.stderr);
}

/// A path from the directory of the objects leads elsewhere from a copy, and no command of git worked there.
#[test]
fn c_38_1_a_copy_reads_the_objects_of_the_same_repository() {
    let sandbox = sandbox("plain", "");
    std::fs::rename(sandbox.path("work"), sandbox.path("base")).unwrap();
    git(&sandbox, "", &["clone", "-qs", "base", "work"]);
    let alternates = "work/.git/objects/info/alternates";
    sandbox.write(alternates, "../../../base/.git/objects\n");
    sandbox.run("hi", &[]).expect_code(0);
    let fork = ["fork", "r", "-w", "work", "--into", "a/deep/copy", "--run-id", "f", "-m", "go on"];
    sandbox.delta(fork).output().expect_code(0);
    assert_eq!(git(&sandbox, "a/deep/copy", &["log", "--format=%s"]), "step\nstep\nbase\n");
    assert_eq!(sandbox.read(alternates), "../../../base/.git/objects\n");
}

#[test]
fn c_38_1_a_copy_that_is_in_no_repository_any_more_says_so() {
    let sandbox = sandbox("subdirectory", "");
    sandbox.run("hi", &[]).expect_code(0);
    let ran = sandbox.delta(["fork", "r", "-w", "work", "--into", "copy"]).output().expect_code(0);
    let tree = sandbox.path("repo").canonicalize().unwrap();
    let note = format!(
        "Note: git does not work in the new workspace, which is outside of the repository {}",
        tree.display()
    );
    assert!(ran.stderr.contains(&note), "{}", ran.stderr);
    let inside = ["fork", "r", "-w", "work", "--into", "repo/other"];
    let ran = sandbox.delta(inside).output().expect_code(0);
    assert!(!ran.stderr.contains("git does not work"), "{}", ran.stderr);
}

#[test]
fn c_38_1_a_stage_does_not_let_commits_through() {
    for way in ["worktree", "submodule", "separate"] {
        for keys in ["    stage: ask\n", "    stage: ask\nsandbox: workspace\n"] {
            let sandbox = sandbox(way, keys);
            let before = state(&sandbox);
            let ran = sandbox.run("hi", &["--no-interactive"]);
            assert_eq!(state(&sandbox)[2], before[2], "{way} {keys}: {}", ran.stderr);
            sandbox.delta(["deny", "r", "-w", "work", "-m", "no"]).output();
            assert_eq!(state(&sandbox), before, "{way} {keys}");
            let said = ran.stderr + &sandbox.read("work/.delta/r/journal.jsonl");
            // A sandbox has a /tmp of its own, without the directory of the test.
            let refusals = ["Read-only file system", "fatal: not a git repository"];
            assert!(refusals.iter().any(|refusal| said.contains(refusal)), "{way}: {said}");
        }
        let sandbox = sandbox(way, "");
        let before = state(&sandbox);
        sandbox.run("hi", &["--stage"]).expect_code(0);
        assert_eq!(state(&sandbox), before, "{way}");
    }
}

#[test]
fn c_38_1_a_rollback_says_what_it_does_not_restore() {
    let sandbox = sandbox("worktree", "");
    sandbox.run("hi", &[]).expect_code(0);
    let ran = sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output().expect_code(0);
    let linked = sandbox.path("repo/.git/worktrees/work").canonicalize().unwrap();
    let note = format!("{} is outside of the workspace and stays as it is", linked.display());
    assert!(ran.stderr.contains(&note), "{}", ran.stderr);
}

#[test]
fn c_38_1_symlinks_of_a_copy_do_not_lead_into_the_original() {
    let tools = "  - name: add\n    shell: echo line | tee -a absolute new up >/dev/null\n";
    let turns = "- call: [{tool: add}]\n- say: ok\n- call: [{tool: add}]\n- say: ok\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let config = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", config + "snapshots: true\n");
    for name in ["real", "second"] {
        sandbox.write(&format!("work/{name}"), "");
    }
    let link = |target: &Path, name: &str| {
        std::os::unix::fs::symlink(target, sandbox.path("work").join(name)).unwrap();
    };
    link(&sandbox.path("work/real"), "absolute");
    link(&sandbox.path("work/later"), "new");
    link(Path::new("../work/second"), "up");
    sandbox.run("hi", &[]).expect_code(0);
    let read = || ["real", "later", "second"].map(|name| sandbox.read(&format!("work/{name}")));
    assert_eq!(read(), ["line\n"; 3]);
    let ran = sandbox.delta(["replay", "r", "-w", "work", "--mode", "tools"]).output();
    assert_eq!(read(), ["line\n"; 3], "{}", ran.stderr);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let fork = ["fork", "r", "-w", "work", "--into", "copy", "-m", "go on"];
    let ran = sandbox.delta(fork).output().expect_code(0);
    assert_eq!(read(), ["line\n"; 3]);
    assert_eq!(sandbox.read("copy/real"), "line\nline\n");
    assert!(ran.stderr.contains("Note: the symlink up led into"), "{}", ran.stderr);
}
