//! Repositories and archives of attackers.

use super::*;

#[test]
fn c_36_14_filters_hooks_and_attributes_of_a_repository_do_not_act() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    let touch = format!("touch {}", sandbox.path("started").display());
    let attributes =
        "* filter=evil text eol=crlf ident export-subst\nsystem_prompt.md export-ignore\n";
    sandbox.write("reviewer/.gitattributes", attributes);
    sandbox.write("reviewer/notes.txt", "$Format:%H$ $Id$\n");
    sandbox.write("home/attributes", "notes.txt export-ignore\n");
    sandbox.write("reviewer/.gitconfig", format!("[filter \"evil\"]\n  smudge = {touch}\n"));
    let tree = named_tree(&add(&sandbox, &["reviewer"]).expect_code(3));
    let url = repository(&sandbox, "reviewer");
    git(&sandbox, "reviewer", &["config", "filter.evil.smudge", &touch]);
    git(&sandbox, "reviewer", &["config", "uploadpack.packObjectsHook", &touch]);
    for hook in ["post-checkout", "reference-transaction", "pre-receive", "post-merge"] {
        sandbox.write_program(
            &format!("reviewer/.git/hooks/{hook}"),
            &format!("#!/bin/sh\n{touch}\n"),
        );
    }
    // What the operator's own git would do does not count either.
    let config = format!(
        "[core]\n hooksPath = {}\n attributesFile = {}\n[filter \"evil\"]\n smudge = {touch}\n",
        sandbox.path("reviewer/.git/hooks").display(),
        sandbox.path("home/attributes").display()
    );
    sandbox.write("home/.gitconfig", config);
    let ran = add_command(&sandbox, &[&url])
        .env("GIT_SSH_COMMAND", touch.clone())
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "core.fsmonitor")
        .env("GIT_CONFIG_VALUE_0", touch)
        .output();
    assert_eq!(named_tree(&ran.expect_code(3)), tree);
    assert!(!sandbox.path("started").exists());
}

#[test]
fn c_36_14_git_fetches_one_commit_and_checks_out_nothing() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    let url = repository(&sandbox, "reviewer");
    sandbox.write("reviewer/system_prompt.md", "Review again.\n");
    commit(&sandbox, "reviewer");
    let log = sandbox.path("log").display().to_string();
    let program = "#!/bin/sh\nPATH=${PATH#*:}\ngit \"$@\" || exit\n\
        case \"$*\" in *fetch*) git \"$1\" rev-list --count FETCH_HEAD ;; *checkout*) echo \"$*\" ;; esac >> ";
    sandbox.write_program("bin/git", &format!("{program}{log}\n"));
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    add_command(&sandbox, &[&url]).env("PATH", path).output().expect_code(3);
    assert_eq!(sandbox.read("log"), "1\n");
}

/// A repository whose commit has the tree that `entries` describe, as `git mktree` reads them.
fn with_tree(sandbox: &Sandbox, entries: &[(&str, &str, &str)]) -> String {
    sandbox.write("repo/README", "x\n");
    repository(sandbox, "repo");
    let blob = |text: &str| {
        git_with_input(sandbox, "repo", &["hash-object", "-w", "--stdin"], text.as_bytes())
    };
    let mut tree: Vec<u8> = Vec::new();
    let agent = [("100644", "agent.yaml", AGENT)];
    for (mode, name, text) in agent.iter().chain(entries) {
        let id = if *mode == "160000" { "1".repeat(40) } else { blob(text) };
        let id: Vec<u8> =
            (0..20).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()).collect();
        tree.extend([mode.as_bytes(), b" ", name.as_bytes(), b"\0", &id].concat());
    }
    let write = ["hash-object", "-t", "tree", "--literally", "-w", "--stdin"];
    let tree = git_with_input(sandbox, "repo", &write, &tree);
    let commit = git(sandbox, "repo", &["commit-tree", "-m", "evil", &tree]);
    git(sandbox, "repo", &["update-ref", "refs/heads/evil", &commit]);
    format!("file://{}@evil", sandbox.path("repo").display())
}

#[test]
fn c_36_14_what_no_agent_has_is_refused_in_a_repository() {
    if !needs::programs(&["git"]) {
        return;
    }
    for (entry, reason) in [
        (("160000", "module", ""), "`module` is a submodule"),
        (("120000", "out", "/etc/passwd"), "`out` is a link that leads out of the agent"),
        (("120000", "out", "../secret"), "`out` is a link that leads out of the agent"),
        (("100644", "..", "x"), "`..` leads out of the agent"),
        (("100644", "../../x", "x"), "leads out of the agent"),
        (("100644", "a\u{202e}b", "x"), "has hidden characters in its name"),
        (("100644", "agent.yaml", "x"), "`agent.yaml` is there twice"),
        (("120000", "a\nb", "x"), "has hidden characters in its name"),
    ] {
        let sandbox = Sandbox::new(DELTA);
        let url = with_tree(&sandbox, &[entry]);
        let ran = add(&sandbox, &[&url]).expect_code(126);
        assert!(ran.stderr.contains(reason), "{entry:?}: {ran:?}");
        let left = sandbox.files("home");
        assert!(left.iter().all(|file| file.ends_with(".lock")), "{left:?}");
    }
}

/// A tree in a tree, 2^40 files: git would list them for days.
#[test]
fn c_36_14_a_repository_that_is_a_bomb_is_refused() {
    if !needs::programs(&["git"]) {
        return;
    }
    let sandbox = with_agent();
    let url = repository(&sandbox, "reviewer");
    let mktree =
        |lines: String| git_with_input(&sandbox, "reviewer", &["mktree"], lines.as_bytes());
    let blob = git_with_input(&sandbox, "reviewer", &["hash-object", "-w", "--stdin"], b"x");
    let mut tree = mktree(format!("100644 blob {blob}\ta\n100644 blob {blob}\tb\n"));
    for _ in 0..40 {
        tree = mktree(format!("040000 tree {tree}\ta\n040000 tree {tree}\tb\n"));
    }
    let tree = mktree(format!("100644 blob {blob}\tagent.yaml\n040000 tree {tree}\tz\n"));
    let commit = git(&sandbox, "reviewer", &["commit-tree", "-m", "bomb", &tree]);
    git(&sandbox, "reviewer", &["update-ref", "refs/heads/bomb", &commit]);
    let ran = add(&sandbox, &[&format!("{url}@bomb")]).expect_code(126);
    assert!(ran.stderr.contains("at most 2000 files"), "{ran:?}");
}

/// An archive with an agent and what a script of tar makes.
fn archive_with(script: &str) -> Ran {
    let sandbox = with_agent();
    fs::remove_file(sandbox.path("reviewer/link")).unwrap();
    let shell =
        Command::new("sh").args(["-ec", script]).current_dir(sandbox.path("reviewer")).status();
    assert!(shell.unwrap().success(), "{script}");
    let ran = add(&sandbox, &["evil.tgz"]);
    assert!(!sandbox.path("outside").exists() && !Path::new("/tmp/delta-outside").exists());
    let left = sandbox.files("home");
    assert!(left.iter().all(|file| file.ends_with(".lock")), "{left:?}");
    ran
}

#[test]
fn c_36_14_what_no_agent_has_is_refused_in_an_archive() {
    if !needs::programs(&["tar", "mkfifo"]) {
        return;
    }
    for (script, reason) in [
        ("mkfifo pipe; tar czf ../evil.tgz .", "`pipe` is neither a file"),
        ("ln -s / out; tar czf ../evil.tgz .", "`out` is a link that leads out"),
        (
            "mkdir n; echo n > n/n; ln -s n a; tar cf ../e.tar a n; rm a; mkdir a; echo x > a/outside; tar rf ../e.tar a/outside agent.yaml; gzip -c ../e.tar > ../evil.tgz",
            "`a` is a file and a directory",
        ),
        (
            "tar czPf ../evil.tgz --transform 's|^script.yaml|/tmp/delta-outside|' agent.yaml script.yaml",
            "`/tmp/delta-outside` leads out",
        ),
        (
            "tar czPf ../evil.tgz --transform 's|^script.yaml|../../outside|' agent.yaml script.yaml",
            "leads out of the agent",
        ),
        (
            "tar cf ../e.tar agent.yaml; tar rf ../e.tar agent.yaml; gzip -c ../e.tar > ../evil.tgz",
            "`agent.yaml` is there twice",
        ),
        (
            "mkdir n; cd n; seq 2100 | xargs touch; cd ..; tar czf ../evil.tgz .",
            "at most 2000 files and 64 MiB",
        ),
        ("truncate -s 65M big; tar czf ../evil.tgz .", "at most 2000 files and 64 MiB"),
        ("truncate -s 300M big; tar czf ../evil.tgz .", "at most 2000 files and 64 MiB"),
        ("tar cf - . | gzip | head -c 300 > ../evil.tgz", "the archive is damaged"),
        ("echo no archive > ../evil.tgz", "the archive is damaged"),
    ] {
        let ran = archive_with(script).expect_code(126);
        assert!(ran.stderr.contains(reason), "{script}: {ran:?}");
    }
    // A second name of a file is a copy.
    archive_with("ln tools/check second; tar czf ../evil.tgz .").expect_code(3);
}

#[test]
fn c_36_14_a_directory_with_a_pipe_or_an_outer_link_is_refused() {
    let sandbox = with_agent();
    std::os::unix::fs::symlink("/etc", sandbox.path("reviewer/etc")).unwrap();
    let ran = add(&sandbox, &["reviewer"]).expect_code(126);
    assert!(ran.stderr.contains("`etc` is a link that leads out of the agent"), "{ran:?}");
    fs::remove_file(sandbox.path("reviewer/etc")).unwrap();
    sandbox.write("reviewer/a\u{202e}b", "x");
    let ran = add(&sandbox, &["reviewer"]).expect_code(126);
    assert!(ran.stderr.contains(r"a\u{202e}b"), "{ran:?}");
}

#[test]
fn c_36_14_a_name_of_another_agent_is_not_taken() {
    let sandbox = with_agent();
    install(&sandbox, &["reviewer"]);
    write_agent(&sandbox, "evil");
    let ran = add(&sandbox, &["evil"]).expect_code(1);
    assert!(
        ran.stderr.contains("the name `reviewer` is refused: it is the name of an agent from /"),
        "{ran:?}"
    );
    for name in ["coding", "../x", ".trees", "a/b", ""] {
        let ran = add(&sandbox, &["evil", "--as", name]);
        assert!(ran.stderr.contains("is refused"), "{name}: {ran:?}");
    }
    sandbox.write(&format!("{AGENTS}/mine/agent.yaml"), AGENT);
    std::os::unix::fs::symlink("mine", sandbox.path(AGENTS).join("mine-too")).unwrap();
    for name in ["mine", "mine-too"] {
        let ran = add(&sandbox, &["evil", "--as", name]).expect_code(1);
        assert!(ran.stderr.contains("from elsewhere"), "{ran:?}");
    }
    install(&sandbox, &["evil", "--as", "other"]);
    let listed = add(&sandbox, &["--list"]).expect_code(0).stdout;
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["other", "reviewer", "mine", "mine-too"]);
}

/// What was outside changed without an update: tools, keys and skills that no review had shown.
#[test]
fn c_36_14_an_agent_with_files_elsewhere_is_refused() {
    let sandbox = with_agent();
    sandbox.write("elsewhere/x.yaml", "tools: [{name: x, exec: echo safe}]\n");
    sandbox.write("elsewhere/skills/one/SKILL.md", "---\nname: one\ndescription: d\n---\nDo.\n");
    let elsewhere = sandbox.path("elsewhere");
    for key in ["imports: [DIR/x.yaml]", "skills: [DIR/skills]"] {
        let key = key.replace("DIR", &elsewhere.to_string_lossy());
        sandbox.write("reviewer/agent.yaml", format!("{AGENT}{key}\n"));
        let command = add_command(&sandbox, &["reviewer"]).env("DELTA_IMPORT_PATH", &elsewhere);
        let ran = command.output().expect_code(126);
        assert!(ran.stderr.contains("outside"), "{ran:?}");
        assert!(ran.stderr.contains("has all its files in its directory"), "{ran:?}");
    }
}
