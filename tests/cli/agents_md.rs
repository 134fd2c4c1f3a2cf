//! The source `agents_md`: the instructions of a repository, from its root down to the workspace.

use super::DELTA;
use super::context::messages;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

const INTRODUCTION: &str = "# Context Block: AGENTS.md\n\nInstructions of this repository, from its root to the workspace. Where two files disagree, the later one counts.\n";

/// An agent whose only source besides the conversation is `agents_md` with these keys, and a repository in `repo`.
fn sandbox(keys: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: ok\n- say: again\n");
    let context = format!("sources:\n  - {{type: agents_md{keys}}}\n  - {{type: journal}}\n");
    sandbox.write("agent/context.yaml", context);
    sandbox.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.write("repo/a/deep/.keep", "");
    sandbox
}

/// What the LLM sees with the workspace `dir`: the first message, and the warnings on stderr.
#[track_caller]
fn seen_in(sandbox: &Sandbox, dir: &str) -> (String, String) {
    let ran = run_in(sandbox, dir).expect_code(0);
    let record = sandbox.files(&format!("{dir}/.delta/r/io/invocations"))[0].clone();
    let record = sandbox.read(&format!("{dir}/.delta/r/io/invocations/{record}"));
    let record: Value = serde_json::from_str(&record).unwrap();
    let message = &record["request"]["messages"][0];
    let warnings = ran.stderr.lines().filter(|line| line.contains("context source"));
    let warnings = warnings.map(|line| format!("{line}\n")).collect();
    fs::remove_dir_all(sandbox.path(&format!("{dir}/.delta/r"))).unwrap();
    let text = message["content"].as_str().unwrap().to_owned();
    (if message["role"] == "system" { text } else { String::new() }, warnings)
}

fn run_in(sandbox: &Sandbox, dir: &str) -> Ran {
    let run = ["run", "--agent", "agent", "-w", dir, "--run-id", "r", "-m", "hi"];
    sandbox.delta(run).output()
}

/// The repository's own path would be in a reason.
fn without_root(sandbox: &Sandbox, text: &str) -> String {
    text.replace(sandbox.path("").to_str().unwrap().trim_end_matches('/'), "DIR")
}

#[test]
fn c_24_2_the_files_of_a_repository_come_from_its_root_to_the_workspace() {
    let sandbox = sandbox("");
    sandbox.write("AGENTS.md", "outside\n");
    sandbox.write("repo/AGENTS.md", "# Rules\n\nUse tabs.\n\n\n");
    sandbox.write("repo/CLAUDE.md", "another name\n");
    sandbox.write("repo/a/deep/AGENTS.md", "b\u{fc}ndig\n");
    sandbox.write("repo/a/deep/er/AGENTS.md", "below the workspace\n");
    let all = format!(
        "{INTRODUCTION}\n## ../../AGENTS.md\n\n# Rules\n\nUse tabs.\n\n## AGENTS.md\n\nb\u{fc}ndig\n"
    );
    assert_eq!(seen_in(&sandbox, "repo/a/deep"), (all, String::new()));
    // The directory between them has none, and is a workspace of its own.
    let root_only = format!("{INTRODUCTION}\n## ../AGENTS.md\n\n# Rules\n\nUse tabs.\n");
    assert_eq!(seen_in(&sandbox, "repo/a"), (root_only, String::new()));
    // The root of a worktree or submodule has a file `.git`.
    sandbox.write("repo/a/.git", "gitdir: ../.git/worktrees/a\n");
    let nearest = format!("{INTRODUCTION}\n## AGENTS.md\n\nb\u{fc}ndig\n");
    assert_eq!(seen_in(&sandbox, "repo/a/deep"), (nearest, String::new()));
}

#[test]
fn c_24_2_without_a_repository_only_the_workspace_counts() {
    let sandbox = sandbox("");
    fs::remove_dir_all(sandbox.path("repo/.git")).unwrap();
    sandbox.write("repo/AGENTS.md", "above\n");
    let ran = run_in(&sandbox, "repo/a").expect_code(0);
    assert!(!ran.stderr.contains("context source"), "{}", ran.stderr);
    let show = ["context", "show", "-w", "repo/a", "r"];
    let table = without_root(&sandbox, &sandbox.delta(show).output().expect_code(0).stdout);
    let skipped = "skipped: no AGENTS.md with text from DIR/repo/a to the workspace\n";
    assert!(table.contains(skipped), "{table}");
    sandbox.write("repo/a/deep/AGENTS.md", "here");
    let text = format!("{INTRODUCTION}\n## AGENTS.md\n\nhere\n");
    assert_eq!(seen_in(&sandbox, "repo/a/deep"), (text, String::new()));
}

#[test]
fn c_24_2_the_first_of_the_names_that_a_directory_has_counts() {
    let sandbox =
        sandbox(", id: rules, names: [AGENTS.override.md, AGENTS.md, .github/instructions.md]");
    sandbox.write("repo/AGENTS.md", "general\n");
    sandbox.write("repo/AGENTS.override.md", "mine\n");
    sandbox.write("repo/a/.github/instructions.md", "in a\n");
    let (text, _) = seen_in(&sandbox, "repo/a");
    assert!(text.starts_with("# Context Block: rules\n\nInstructions"), "{text}");
    assert!(
        text.ends_with(
            "\n## ../AGENTS.override.md\n\nmine\n\n## .github/instructions.md\n\nin a\n"
        ),
        "{text}"
    );
    // An empty file is there, and has nothing to say.
    sandbox.write("repo/AGENTS.override.md", " \n\n");
    let (text, warnings) = seen_in(&sandbox, "repo/a");
    assert!(text.ends_with("counts.\n\n## .github/instructions.md\n\nin a\n"), "{text}");
    assert_eq!(warnings, "");
}

#[test]
fn c_24_2_the_nearest_files_get_the_bytes_first() {
    let sandbox = sandbox(", max_bytes: 10");
    sandbox.write("repo/AGENTS.md", "general rules\n");
    // The seventh byte is in the middle of a character.
    sandbox.write("repo/a/AGENTS.md", "12345\u{20ac}789\n");
    sandbox.write("repo/a/deep/AGENTS.md", "xyz\n");
    let (text, warnings) = seen_in(&sandbox, "repo/a/deep");
    let rest = "[the rest of this file is left out]";
    let expected = format!(
        "{INTRODUCTION}\n## ../../AGENTS.md\n\n\n\n{rest}\n\n## ../AGENTS.md\n\n12345\n\n{rest}\n\n## AGENTS.md\n\nxyz\n"
    );
    assert_eq!(text, expected);
    let left_out = "! context source `AGENTS.md`: the end of ../AGENTS.md (beyond 10 bytes), the end of ../../AGENTS.md (beyond 10 bytes) left out\n";
    assert_eq!(warnings, left_out);
    // Exactly the limit is whole.
    sandbox.write("repo/a/deep/AGENTS.md", "123456789\n");
    fs::remove_file(sandbox.path("repo/a/AGENTS.md")).unwrap();
    fs::remove_file(sandbox.path("repo/AGENTS.md")).unwrap();
    let whole = format!("{INTRODUCTION}\n## AGENTS.md\n\n123456789\n");
    assert_eq!(seen_in(&sandbox, "repo/a/deep"), (whole, String::new()));
}

#[test]
fn c_24_2_no_file_of_a_repository_fails_a_run() {
    let sandbox = sandbox("");
    let path = sandbox.path("repo/AGENTS.md");
    let cases: [(&str, &dyn Fn(), &str); 5] = [
        ("a directory", &|| fs::create_dir(&path).unwrap(), "Is a directory (os error 21)"),
        (
            "a symlink to nothing",
            &|| symlink("nowhere", &path).unwrap(),
            "No such file or directory (os error 2)",
        ),
        (
            "binary",
            &|| fs::write(&path, b"a\0b").unwrap(),
            "it is not UTF-8 text: it contains a NUL byte",
        ),
        (
            "a device",
            &|| symlink("/dev/zero", &path).unwrap(),
            "it is a symlink that leads out of the repository",
        ),
        (
            "sparse",
            &|| fs::File::create(&path).unwrap().set_len(1 << 40).unwrap(),
            "it is not UTF-8 text: it contains a NUL byte",
        ),
    ];
    for (name, create, reason) in cases {
        create();
        let (text, warnings) = seen_in(&sandbox, "repo");
        let warning = format!("! context source `AGENTS.md`: AGENTS.md ({reason}) left out\n");
        assert_eq!((text.as_str(), warnings), ("", warning), "{name}");
        fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)).unwrap();
    }
    // Bytes that are not UTF-8 are replaced.
    fs::write(&path, b"gr\xfc\xdfe\n").unwrap();
    let (text, warnings) = seen_in(&sandbox, "repo");
    assert!(text.ends_with("## AGENTS.md\n\ngr\u{fffd}\u{fffd}e\n"), "{text}");
    let replaced = "! context source `AGENTS.md`: bytes that are not UTF-8 of AGENTS.md left out\n";
    assert_eq!(warnings, replaced);
    let is_root = fs::metadata(&path).unwrap().uid() == 0;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    let (_, warnings) = seen_in(&sandbox, "repo");
    // Root may read it.
    assert_eq!(warnings.contains("Permission denied"), !is_root, "{warnings}");
}

#[test]
fn c_24_2_a_symlink_counts_within_the_repository_only() {
    let sandbox = sandbox("");
    sandbox.write("secret", "outside\n");
    sandbox.write("repo/docs/agents.txt", "linked\n");
    sandbox.write("repo/.env", "TOKEN=1\n");
    sandbox.write("repo/a/.git", "a submodule\n");
    let link = sandbox.path("repo/AGENTS.md");
    symlink("docs/agents.txt", &link).unwrap();
    let (text, _) = seen_in(&sandbox, "repo");
    assert!(text.ends_with("## AGENTS.md\n\nlinked\n"), "{text}");
    for (target, reason) in [
        ("../secret", "it is a symlink that leads out of the repository"),
        (".env", "it is a symlink to a private file"),
        (".git/HEAD", "it is a symlink to a private file"),
    ] {
        fs::remove_file(&link).unwrap();
        symlink(target, &link).unwrap();
        let (text, warnings) = seen_in(&sandbox, "repo");
        assert_eq!(text, "");
        assert!(warnings.contains(reason), "{target}: {warnings}");
    }
}

/// The next request sees a changed file, and the recorded one can still be replayed: each dropped sandbox does that.
#[test]
fn c_24_2_above_the_workspace_a_file_of_another_user_does_not_count() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        needs::skip("needs root, which writes the files of another user");
        return;
    }
    let sandbox = sandbox("");
    sandbox.write("repo/AGENTS.md", "planted\n");
    chown(sandbox.path("repo/AGENTS.md"), Some(65534), None).unwrap();
    let (text, warnings) = seen_in(&sandbox, "repo/a");
    let reason = "(it belongs to another user) left out\n";
    assert!(text.is_empty() && warnings.ends_with(reason), "{text}{warnings}");
    // In a repository of that user it counts, and so does one in the workspace itself.
    chown(sandbox.path("repo/a"), Some(65534), None).unwrap();
    assert!(seen_in(&sandbox, "repo/a").0.ends_with("planted\n"));
    assert!(seen_in(&sandbox, "repo").0.ends_with("planted\n"));
}

#[test]
fn c_24_2_a_change_is_seen_by_the_next_request() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - {name: learn, shell: 'echo \"Run make.\" >> AGENTS.md'}\n",
        "- call: [{tool: learn, args: {}}]\n- say: done\n",
    );
    sandbox.write("agent/context.yaml", "sources: [{type: agents_md}, {type: journal}]\n");
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(messages(&sandbox, 1)[0]["role"], "user");
    let content = messages(&sandbox, 2)[0]["content"].as_str().unwrap().to_owned();
    assert_eq!(content, format!("{INTRODUCTION}\n## AGENTS.md\n\nRun make.\n"));
}

#[test]
fn c_24_2_a_name_that_is_a_path_elsewhere_is_refused() {
    let sandbox = sandbox(", names: [ok.md, ../x.md, /etc/passwd, ''], max_bytes: 0");
    let ran = sandbox.run("hi", &[]).expect_code(126);
    for refused in ["`../x.md`", "`/etc/passwd`", "``"] {
        let message = format!("{refused} is not the name of a file below a directory");
        assert!(ran.stderr.contains(&message), "{}", ran.stderr);
    }
    assert!(!ran.stderr.contains("`ok.md`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`max_bytes`"), "{}", ran.stderr);
}
