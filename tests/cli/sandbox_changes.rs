//! What changes while a run works: secrets that appear, directories that are replaced, a machine that gets weaker. The next
//! call of a tool is in a sandbox that fits, or does not start.

use super::sandbox::{agent, expect_done};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};
use test_support::needs;
use test_support::sandbox::Sandbox;

#[test]
fn c_22_4_a_secret_that_appears_or_goes_is_hidden_from_the_next_call() {
    let calls = [
        ("free", "mkdir -p ~/.config/gh; echo secret | tee ~/.netrc ~/.config/gh/hosts.yml ~/key"),
        ("sh", "cat ~/.netrc ~/.config/gh/hosts.yml ~/key || echo hidden"),
        ("free", "rm -r ~/.netrc ~/.config/gh"),
        ("sh", "echo x > ~/.netrc && cat ~/.netrc"),
    ];
    let Some(sandbox) = agent("sandbox: {hide: ['~/key']}", &calls) else { return };
    expect_done(sandbox.run("go", &[]));
    let seen = sandbox.observations();
    assert!(seen[1].contains("hidden") && !seen[1].contains("secret"), "{}", seen[1]);
    assert_eq!(seen[3], "x\n");
}

#[test]
fn c_22_4_a_directory_that_was_replaced_is_the_one_that_is_written() {
    let calls = [
        ("sh", "echo a > out/first; mv out other; echo b > not"),
        ("free", "mv out old; mkdir out"),
        ("sh", "echo a > out/second"),
        ("free", "rm -r out; ln -s .. out"),
        ("sh", "echo a > out/third"),
    ];
    let Some(sandbox) = agent("sandbox: {write: [out]}", &calls) else { return };
    sandbox.write("work/out/.keep", "");
    expect_done(sandbox.run("go", &[]));
    assert_eq!(sandbox.read("work/old/first"), "a\n");
    assert!(!sandbox.path("work/not").exists() && !sandbox.path("third").exists());
    let seen = sandbox.observations();
    assert_eq!(seen[2], "[no output]");
    assert!(!sandbox.path("work/old/second").exists());
    assert!(seen[4].contains("leads through a symlink in the workspace"), "{}", seen[4]);
}

/// The journal says by what the run is enforced.
#[test]
fn c_22_4_a_machine_that_gets_weaker_starts_nothing() {
    let calls = [
        ("sh", "echo a > out/first"),
        ("free", "mv out old; mkdir out; echo 0 > /proc/sys/user/max_user_namespaces"),
        ("sh", "echo a > out/second"),
    ];
    let Some(sandbox) = agent("sandbox: {write: [out]}", &calls) else { return };
    sandbox.write("work/out/.keep", "");
    // A limit of its own.
    let sandbox = sandbox.started_by("unshare --user --map-root-user");
    if sandbox.delta(["--version"]).output().code != 0 {
        return needs::skip("needs user namespaces");
    }
    sandbox.run("go", &["--sandbox-without", "sockets"]).expect_code(0);
    if sandbox.events("ENGINE_START")[0]["config"]["sandbox"]["profiles"]["p1"]["by"]
        != "namespaces"
    {
        return needs::skip("needs user namespaces in user namespaces");
    }
    let last = &sandbox.observations()[2];
    assert!(
        last.contains("enforced by namespaces and can only be enforced by landlock now"),
        "{last}"
    );
    assert!(!sandbox.path("work/out/second").exists());
}

#[test]
fn c_22_4_a_temporary_directory_in_the_workspace_is_not_open_to_tools() {
    let script = "ls -A tmp/*/ | grep .; echo x > $(echo tmp/delta-sandbox-*)/new; \
                  rm -rf tmp/*/tmp && ln -s ../../.. $(echo tmp/delta-sandbox-*)/tmp; \
                  echo a > /tmp/a && cat /tmp/a && echo b > ~/b";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script), ("sh", "cat /tmp/a")]) else {
        return;
    };
    sandbox.write("work/tmp/.keep", "");
    let run = sandbox.run_command("go", &[]).env("TMPDIR", sandbox.path("work/tmp"));
    expect_done(run.output());
    let seen = sandbox.observations();
    assert!(seen[0].starts_with("a\n"), "{}", seen[0]);
    assert_eq!(seen[1], "a\n");
    assert_eq!(sandbox.files("work/tmp"), [".keep"]);
}

#[test]
fn c_22_4_the_file_that_names_the_git_directory_stays() {
    let script = "echo 'gitdir: evil' > .git; mv .git other; rm .git; echo x > f; git add f && \
                  git -c user.name=a -c user.email=a commit -qm one && echo committed";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    git(&sandbox, &["init", "-q", "main"]);
    git(&sandbox, &["-C", "main", "commit", "-q", "--allow-empty", "-m", "first"]);
    fs::remove_dir(sandbox.path("work")).unwrap();
    git(&sandbox, &["-C", "main", "worktree", "add", "-q", "../work"]);
    let before = sandbox.read("work/.git");
    expect_done(sandbox.run("go", &[]));
    assert_eq!(sandbox.read("work/.git"), before);
    let seen = &sandbox.observations()[0];
    assert!(seen.contains("committed"), "{seen}");
}

/// git takes a directory with `HEAD`, `objects` and `refs` for a bare repository, whose configuration names programs, also the
/// work tree around a `.git` that is none any more.
#[test]
fn c_38_3_a_work_tree_that_becomes_a_git_directory_is_named() {
    let config = "[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"touch PWNED; false\"\n";
    let plant = "plant() { rm -f .git/HEAD; mkdir -p objects refs; echo 'ref: refs/heads/x' > HEAD; \
                 cp \"$1\" config; }; plant planted; (cd lib; plant ../planted)";
    let calls = [
        ("sh", "mkdir -p objects refs config; echo a file > HEAD.txt"),
        ("sh", "rm -r config"),
        ("sh", plant),
        ("sh", "rm HEAD lib/HEAD"),
        ("sh", "rm -r objects refs; echo .git > commondir; echo 'ref: refs/heads/x' > HEAD"),
    ];
    let Some(sandbox) = agent("sandbox: workspace", &calls) else { return };
    sandbox.write("work/planted", config);
    for tree in ["work", "work/lib"] {
        git(&sandbox, &["init", "-q", tree]);
    }
    let ran = sandbox.run("go", &[]).expect_code(0);
    let work = sandbox.path("work").canonicalize().unwrap();
    let work = work.display();
    let seen = sandbox.observations();
    let named = format!("{work}/HEAD and {work}/lib/HEAD");
    assert_eq!(seen[2], format!("[sandbox: {named} must not be created; remove them]"));
    assert_eq!(seen[4], format!("[sandbox: {work}/HEAD must not be created; remove it]"));
    for index in [0, 1, 3] {
        assert!(!seen[index].contains("must not be created"), "{}", seen[index]);
    }
    assert!(ran.stderr.contains(&format!("has made {named}, which git follows")), "{}", ran.stderr);
}

#[test]
fn c_38_3_what_git_follows_in_a_bare_repository_stays() {
    let script = "cd store.git; for path in config hooks/update objects/x refs/x; do \
                  echo x >> $path; done; mv hooks other; rm HEAD";
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", script)]) else { return };
    git(&sandbox, &["init", "-q", "--bare", "work/store.git"]);
    sandbox.write("work/store.git/hooks/update", "#!/bin/sh\n");
    let config = sandbox.read("work/store.git/config");
    expect_done(sandbox.run("go", &[]));
    assert_eq!(sandbox.read("work/store.git/config"), config);
    assert_eq!(sandbox.read("work/store.git/hooks/update"), "#!/bin/sh\n");
    for path in ["objects/x", "refs/x"] {
        assert_eq!(sandbox.read(&format!("work/store.git/{path}")), "x\n");
    }
}

fn git(sandbox: &Sandbox, arguments: &[&str]) {
    let mut command = std::process::Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a"]).args(arguments);
    let output = command.current_dir(sandbox.path(".")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn c_22_4_a_name_that_is_no_text_is_an_error_at_once() {
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", "echo a > in")]) else { return };
    let work = sandbox.path(".").join(OsStr::from_bytes(b"w\xff"));
    if fs::create_dir(&work).is_err() {
        return needs::skip("needs a file system with names that are no text");
    }
    let began = Instant::now();
    let mut run = sandbox.delta(["run", "--agent", "agent", "-m", "go", "-w"]);
    run.command().arg(&work);
    let ran = run.output();
    assert!(began.elapsed() < Duration::from_secs(20), "{ran:?}");
    // Either it works, or it says why not.
    let is_done = fs::read_to_string(work.join("in")).is_ok_and(|text| text == "a\n");
    assert!(is_done || ran.code == 126 && ran.stderr.contains("UTF-8"), "{ran:?}");
}
