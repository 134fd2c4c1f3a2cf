//! Repositories that came from elsewhere: what their configuration names does not start, and what they lead to is not shown.

use super::{coding, commit_all, git, run_answer};
use serde_json::json;
use std::process::Command;
use test_support::sandbox::Sandbox;

/// A directory that looks like a repository has a configuration of its own, which could start programs.
#[test]
fn c_25_3_what_looks_like_a_repository_starts_nothing() {
    let sandbox = coding();
    sandbox.write("work/.keep", "");
    commit_all(&sandbox);
    sandbox.write("work/bare/HEAD", "ref: refs/heads/main\n");
    sandbox.write("work/bare/refs/x", "");
    sandbox.write("work/bare/objects/x", "");
    let config =
        "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"touch ../PWNED; false\"\n";
    sandbox.write("work/bare/config", config);
    let observations = run_answer(
        &sandbox,
        &[
            ("list", json!({"dir": "bare"})),
            ("search", json!({"pattern": "fsmonitor", "path": "bare"})),
            ("run", json!({"command": "cd bare && git status"})),
        ],
    );
    assert!(observations[1].starts_with("bare/config:4:"), "{}", observations[1]);
    assert!(!sandbox.path("work/PWNED").exists(), "{observations:?}");
}

/// Lets the configuration of the repository in `dir` name a program wherever a command that looks would start one; `driver`
/// is the name of its filter and of its way to show differences.
fn name_programs(sandbox: &Sandbox, dir: &str, driver: &str) {
    let program = format!("touch {}; cat", sandbox.path("work/PWNED").display());
    for (key, value) in [
        (&*format!("filter.{driver}.clean"), program.as_str()),
        (&format!("filter.{driver}.required"), "true"),
        (&format!("diff.{driver}.textconv"), &program),
        ("diff.external", &program),
        ("diff.submodule", "diff"),
        ("status.submoduleSummary", "true"),
        ("log.showSignature", "true"),
        ("gpg.program", &program),
        ("core.pager", &program),
        ("pager.log", &program),
        ("blame.ignoreRevsFile", "../secret"),
    ] {
        git(sandbox, dir, &["config", key, value]);
    }
}

/// The configuration of a repository that came from elsewhere names programs and files; so does that of a submodule, which
/// git reads for itself.
#[test]
fn c_38_3_commands_that_start_unasked_start_nothing_that_a_configuration_names() {
    let sandbox = coding();
    let drivers = [("work", "x"), ("work/sub", "y"), ("work/loud", "z")];
    for (dir, driver) in drivers {
        sandbox.write(&format!("{dir}/a.md"), "1\n");
        let attributes = format!("*.md filter={driver} diff={driver}\n");
        sandbox.write(&format!("{dir}/.gitattributes"), attributes);
    }
    // Asks for the changes in a submodule, whatever the default.
    let modules = "[submodule \"l\"]\n\tpath = loud\n\turl = ./loud\n\tignore = none\n";
    sandbox.write("work/.gitmodules", modules);
    for dir in ["work/sub", "work/loud", "work"] {
        git(&sandbox, dir, &["init", "-q"]);
        git(&sandbox, dir, &["add", "-A"]);
        git(&sandbox, dir, &["commit", "-q", "-m", "first"]);
    }
    sandbox.write("secret", "SECRET\n");
    // A stash and a branch whose commit has a signature.
    let head = git(&sandbox, "work", &["rev-parse", "HEAD"]);
    let tree = git(&sandbox, "work", &["rev-parse", "HEAD^{tree}"]);
    sandbox.write(
        "work/commit",
        format!(
            "tree {tree}\nparent {head}\nparent {head}\nauthor t <t@e> 1 +0000\ncommitter t <t@e> 1 +0000\n\
             gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\nsigned\n"
        ),
    );
    let signed = git(&sandbox, "work", &["hash-object", "-t", "commit", "-w", "commit"]);
    git(&sandbox, "work", &["stash", "store", "-m", "s", &signed]);
    git(&sandbox, "work", &["branch", "signed", &signed]);
    for (dir, driver) in drivers {
        name_programs(&sandbox, dir, driver);
        sandbox.write(&format!("{dir}/a.md"), "2\n");
    }
    // A name that is not UTF-8.
    sandbox.write("work/.gitattributes", b"*.md filter=x diff=x\n*.txt filter=\xff diff=\xff\n");
    sandbox.write("work/b.txt", "1\n");
    git(&sandbox, "work", &["add", "b.txt"]);
    let program = format!("touch {}; cat", sandbox.path("work/PWNED").display());
    let sections = [("filter", "clean"), ("diff", "textconv")].map(|(section, key)| {
        [
            format!("[{section} \"").as_bytes(),
            b"\xff",
            format!("\"]\n\t{key} = \"{program}\"\n").as_bytes(),
        ]
        .concat()
    });
    let config = std::fs::read(sandbox.path("work/.git/config")).unwrap();
    sandbox.write("work/.git/config", [&config[..], &sections.concat()].concat());
    sandbox.write("work/b.txt", "2\n");
    // The commands here may have started them.
    let _ = std::fs::remove_file(sandbox.path("work/PWNED"));
    let commands = [
        "git status",
        "git status -v",
        "git diff",
        "git diff HEAD",
        "git diff --cached",
        "git log -p",
        "git log -p signed -- x--no-index a.md",
        "git  'log' signed",
        "git show signed",
        "git blame a.md",
        "git ls-files -m",
        "git branch -vv",
        "git stash list",
        "git tag",
        "git rev-parse HEAD",
    ];
    let calls: Vec<_> =
        commands.iter().map(|command| ("run", json!({"command": command}))).collect();
    let observations = run_answer(&sandbox, &calls);
    assert!(!sandbox.path("work/PWNED").exists(), "{observations:?}");
    for request in sandbox.events("ACTION_REQUEST") {
        assert_eq!(request["approval"]["by"], "rule", "{request}");
    }
    assert!(observations[2].contains("+2"), "{observations:?}");
    assert!(observations.iter().all(|text| !text.contains("SECRET")), "{observations:?}");
}

/// Outside of a repository, `git diff` reads any two files.
#[test]
fn c_25_3_a_command_of_git_that_looks_needs_a_repository() {
    let sandbox = coding();
    sandbox.write("work/app/.env", "KEY=secret\n");
    sandbox.write("work/none/x", "x\n");
    sandbox.write("work/z--no-index/x", "x\n");
    sandbox.write("work/z --no-index z/x", "x\n");
    let commands =
        ["git diff none -- app", "git diff z--no-index -- app", "git diff 'z --no-index z' -- app"];
    let calls = commands.map(|command| ("run", json!({"command": command})));
    for observation in run_answer(&sandbox, &calls) {
        assert!(observation.contains("not a git repository"), "{observation}");
        assert!(!observation.contains("secret"), "{observation}");
    }
}

/// git prints the lines of its own files that it does not understand, and such a file can be a link.
#[test]
fn c_25_3_a_command_of_git_that_looks_reads_no_file_through_a_link_in_the_repository() {
    let sandbox = coding();
    sandbox.write("work/.env", "KEY=SECRET\nOTHER=SECRET\n");
    sandbox.write("work/a", "1\n");
    commit_all(&sandbox);
    let commands =
        ["git status", "git log", "git branch -v", "git tag", "git stash list", "git blame a"];
    let mut calls = commands.map(|command| ("run", json!({"command": command}))).to_vec();
    calls.push(("search", json!({"pattern": "1"})));
    let config = ["config", "core.attributesFile", ".env"];
    git(&sandbox, "work", &config);
    std::fs::rename(sandbox.path("work/.git/info"), sandbox.path("info")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("info"), sandbox.path("work/.git/info")).unwrap();
    let files = [
        "shallow",
        "packed-refs",
        // In a directory that is a link.
        "info/grafts",
        "objects/info/alternates",
        "rebase-merge/git-rebase-todo",
    ];
    for file in files {
        let file = sandbox.path("work/.git").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(sandbox.path("work/.env"), &file).unwrap();
        if file.ends_with("git-rebase-todo") {
            sandbox.write("work/.git/rebase-merge/interactive", "");
        }
        let observations = run_answer(&sandbox, &calls);
        assert!(observations.iter().all(|text| !text.contains("SECRET")), "{observations:?}");
        std::fs::remove_file(file).unwrap();
        std::fs::remove_dir_all(sandbox.path("work/.delta")).unwrap();
    }
    let observations = run_answer(&sandbox, &calls);
    assert!(observations[5].contains(") 1\n"), "{observations:?}");
}

/// A file `.git` can name any repository; those that git makes are named by it too.
#[test]
fn c_25_3_a_command_of_git_that_looks_reads_the_repository_of_its_directory() {
    let sandbox = coding();
    // The sandbox would hide the other directories.
    let agent = sandbox.read("made/agent.yaml");
    sandbox.write("made/agent.yaml", agent.replace("sandbox: workspace", "sandbox: off"));
    sandbox.write("private/notes.txt", "SECRET\n");
    for args in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]] {
        git(&sandbox, "private", args);
    }
    let private = sandbox.path("private/.git").display().to_string();
    let looks = |sandbox: &Sandbox| {
        let observation = run_answer(sandbox, &[("run", json!({"command": "git log -p"}))]);
        std::fs::remove_dir_all(sandbox.path("work/.delta")).unwrap();
        observation[0].clone()
    };
    sandbox.write("work/.git", format!("gitdir: {private}\n"));
    let refused = looks(&sandbox);
    assert!(refused.contains("does not name this directory"), "{refused}");
    std::fs::remove_file(sandbox.path("work/.git")).unwrap();
    // A linked work tree that is forged.
    git(&sandbox, "work", &["init", "-q"]);
    // The commits and the branches of another one.
    let alternates = format!("{private}/objects\n");
    sandbox.write("work/.git/objects/info/alternates", alternates);
    std::fs::remove_dir_all(sandbox.path("work/.git/refs")).unwrap();
    std::os::unix::fs::symlink(format!("{private}/refs"), sandbox.path("work/.git/refs")).unwrap();
    sandbox.write("work/.git/HEAD", sandbox.read("private/.git/HEAD"));
    assert!(looks(&sandbox).contains("does not name this directory"));
    std::fs::remove_dir_all(sandbox.path("work/.git")).unwrap();
    git(&sandbox, "work", &["init", "-q"]);
    sandbox.write("work/.git/commondir", format!("{private}\n"));
    sandbox.write("work/.git/HEAD", sandbox.read("private/.git/HEAD"));
    assert!(!looks(&sandbox).contains("SECRET"));
    std::fs::remove_dir_all(sandbox.path("work")).unwrap();
    // One that git made, and a submodule.
    git(&sandbox, "private", &["worktree", "add", "-q", "../work"]);
    assert!(looks(&sandbox).contains("+SECRET"));
    std::fs::remove_dir_all(sandbox.path("work")).unwrap();
    let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", "./.git", "sub"];
    git(&sandbox, "private", &add);
    std::fs::rename(sandbox.path("private"), sandbox.path("work")).unwrap();
    let sub = ["run", "--agent", "made", "--model", "script:turns.yaml", "-w", "work/sub"];
    let options = ["--run-id", "r", "-q", "--approve-all", "-m", "go"];
    sandbox.delta(sub).args(options).output().expect_code(0);
    let journal = sandbox.read("work/sub/.delta/r/journal.jsonl");
    assert!(journal.contains("+SECRET"), "{journal}");
}

/// A repository can say that its files are elsewhere.
#[test]
fn c_25_3_a_command_of_git_that_looks_reads_the_files_here() {
    let sandbox = coding();
    sandbox.write("outside/notes.txt", "SECRET\n");
    sandbox.write("work/notes.txt", "x\n");
    commit_all(&sandbox);
    git(&sandbox, "work", &["config", "core.worktree", "../../outside"]);
    // The sandbox would hide the directory.
    let agent = sandbox.read("made/agent.yaml");
    sandbox.write("made/agent.yaml", agent.replace("sandbox: workspace", "sandbox: off"));
    let run = |command: &str| ("run", json!({"command": command}));
    let observations = run_answer(&sandbox, &[run("git diff"), run("git status -s")]);
    assert!(observations.iter().all(|text| !text.contains("notes.txt")), "{observations:?}");
}

/// Without a sandbox too, `edit` and `write` leave alone what git follows.
#[test]
fn c_38_3_the_file_tools_leave_alone_what_git_follows() {
    let sandbox = coding();
    sandbox.write("work/.husky/_/h", "as it was\n");
    sandbox.write("work/team.conf", "");
    commit_all(&sandbox);
    for [key, value] in [["core.hooksPath", ".husky/_"], ["include.path", "../team.conf"]] {
        let mut config = Command::new("git");
        config.args(["config", key, value]).current_dir(sandbox.path("work"));
        assert!(config.status().unwrap().success());
    }
    let agent = sandbox.read("made/agent.yaml");
    sandbox.write("made/agent.yaml", agent.replace("sandbox: workspace", "sandbox: off"));
    let write = |path: &str| ("write", json!({"path": path, "content": "planted\n"}));
    let paths = [".husky/_/h", ".husky/pre-commit", "team.conf", "other"];
    let observations = run_answer(&sandbox, &paths.map(write));
    for refused in &observations[..3] {
        assert!(refused.contains("git reads or runs"), "{observations:?}");
    }
    assert!(sandbox.path("work/other").exists());
    assert_eq!(sandbox.read("work/.husky/_/h"), "as it was\n");
}

/// A hook that `core.hooksPath` puts into the workspace could have been edited.
#[test]
fn c_25_3_commands_that_start_unasked_start_no_hook() {
    let sandbox = coding();
    sandbox.write("work/a", "1\n");
    commit_all(&sandbox);
    let mut config = Command::new("git");
    config.args(["config", "core.hooksPath", "hooks"]).current_dir(sandbox.path("work"));
    assert!(config.status().unwrap().success());
    std::fs::create_dir(sandbox.path("work/hooks")).unwrap();
    sandbox.write_program("work/hooks/post-index-change", "#!/bin/sh\ntouch PWNED\n");
    // The time in the index differs from the time of the file.
    let touch = ("write", json!({"path": "a", "content": "1\n"}));
    let run = |command: &str| ("run", json!({"command": command}));
    run_answer(
        &sandbox,
        &[
            touch.clone(),
            run("git status"),
            touch.clone(),
            run("git diff"),
            touch,
            ("list", json!({})),
        ],
    );
    for request in sandbox.events("ACTION_REQUEST") {
        assert_ne!(request["approval"]["by"], "flag", "{request}");
    }
    assert!(!sandbox.path("work/PWNED").exists());
}
