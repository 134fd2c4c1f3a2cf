//! The template `coding`: its tools keep every byte, and a scripted LLM repairs three small projects with them as a real one
//! would, wrong turns included.

use super::DELTA;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use test_support::effort::cases;
use test_support::needs;
use test_support::sandbox::Sandbox;

/// A sandbox in which `made` is the coding agent.
fn coding() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.delta(["init", "-t", "coding", "made"]).output().expect_code(0);
    sandbox
}

/// Runs the answers of the LLM, each a list of `(tool, arguments)`, in `work/`; returns the observations.
#[track_caller]
fn run_calls(sandbox: &Sandbox, answers: &[&[(&str, Value)]]) -> Vec<String> {
    let mut turns: Vec<Value> = answers
        .iter()
        .map(|calls| {
            let calls = calls.iter().map(|(tool, args)| json!({"tool": tool, "args": args}));
            json!({"call": calls.collect::<Vec<_>>()})
        })
        .collect();
    turns.push(json!({"say": "done"}));
    sandbox.write("made/turns.yaml", json!({"turns": turns}).to_string());
    let ran = sandbox
        .delta(["run", "--agent", "made", "--model", "script:turns.yaml", "-w", "work"])
        .args(["--run-id", "r", "-q", "--format", "raw", "-m", "go"])
        .args(["--approve-all", "--max-calls-per-answer", "100"])
        .output()
        .expect_code(0);
    assert_eq!(ran.stdout, "done\n", "{}", ran.stderr);
    sandbox.observations()
}

/// The same for the calls of one answer.
#[track_caller]
fn run_answer(sandbox: &Sandbox, calls: &[(&str, Value)]) -> Vec<String> {
    run_calls(sandbox, &[calls])
}

/// Makes `work/` a repository with everything in it committed.
fn commit_all(sandbox: &Sandbox) {
    for args in [
        vec!["init", "-q", "-b", "main"],
        vec!["add", "-A"],
        vec!["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "first"],
    ] {
        let mut git = Command::new("git");
        git.args(args).current_dir(sandbox.path("work")).env("HOME", sandbox.path("home"));
        assert!(git.status().unwrap().success());
    }
}

fn bytes(sandbox: &Sandbox, file: &str) -> Vec<u8> {
    std::fs::read(sandbox.path("work").join(file)).unwrap()
}

fn failed(message: &str) -> String {
    format!("[stderr]\n{message}\n[exit code: 1]")
}

#[test]
fn c_25_3_an_edit_changes_its_text_and_no_other_byte() {
    let sandbox = coding();
    // The file, its content, `old`, `new`, the content afterwards.
    type EditCase<'a> = (&'a str, &'a [u8], &'a str, &'a str, &'a [u8]);
    let cases: [EditCase<'_>; 13] = [
        ("plain", b"one\ntwo\nthree\n", "two\n", "2\n2b\n", b"one\n2\n2b\nthree\n"),
        ("no-end", b"one\ntwo", "two", "2", b"one\n2"),
        ("end-added", b"one\ntwo", "two", "two\n", b"one\ntwo\n"),
        ("end-removed", b"one\ntwo\n", "two\n", "two", b"one\ntwo"),
        ("all", b"one", "one", "", b""),
        ("dos", b"one\r\ntwo\r\nthree", "one\ntwo", "1\n2\n3", b"1\r\n2\r\n3\r\nthree"),
        ("mixed", b"one\r\ntwo\nthree\r\n", "two\nthree", "2\n3", b"one\r\n2\n3\r\n"),
        ("carriage", b"a\rb\n\r\n", "b\n", "c\n", b"a\rc\n\r\n"),
        ("umlaut-ä", "größe\n\u{1f980}\n".as_bytes(), "ö", "oe", "groeße\n\u{1f980}\n".as_bytes()),
        ("latin1", b"caf\xe9 one\n", "one", "two", b"caf\xe9 two\n"),
        ("-rf", b"--help\n", "--help", "-n\\n\\\\1 & $1", b"-n\\n\\\\1 & $1\n"),
        ("a b's \"c\"", b"x\\ty\n", "\\t", "\\\\", b"x\\\\y\n"),
        ("deep/er/number", b"10\n1e1\n", "1e1", "010", b"10\n010\n"),
    ];
    let mut calls = Vec::new();
    for (file, before, old, new, _) in &cases {
        sandbox.write(&format!("work/{file}"), before);
        calls.push(("edit", json!({"path": file, "old": old, "new": new})));
    }
    let observations = run_answer(&sandbox, &calls);
    for ((file, .., after), observation) in cases.iter().zip(&observations) {
        assert_eq!(bytes(&sandbox, file), *after, "{file}: {observation}");
        assert!(observation.starts_with(&format!("{file}, line ")), "{observation}");
    }
    assert_eq!(observations[0], "plain, line 2:\n-two\n+2\n+2b\n");
    let left: Vec<_> =
        sandbox.files("work").into_iter().filter(|file| file.contains(".delta-write")).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn c_25_3_an_edit_that_fails_says_why_and_changes_nothing() {
    let sandbox = coding();
    let text = "fn one() {\n\tcall(1);\n}\n\nfn two() {\n\tcall(1);\n}\n";
    sandbox.write("work/a.rs", text);
    sandbox.write("work/binary", b"\x7fELF\0\0");
    sandbox.write("work/dir/file", "");
    let edit = |old: &str, new: &str| ("edit", json!({"path": "a.rs", "old": old, "new": new}));
    let cases = [
        (
            edit("\tcall(1);", "x"),
            "the text is 2 times in a.rs, at lines 2, 6; add lines around it to `old`, or set `replace_all`",
        ),
        (
            edit("fn two() {\n    call(1);\n}", "x"),
            "the text is not in a.rs; line 6 differs in its white space:\nfile: \\tcall(1);\nold:      call(1);",
        ),
        (
            edit("fn two() {\n\tcall(1);\n\tcall(2);\n", "x"),
            "the text is not in a.rs; line 7 is the first that differs:\nfile: }\nold:  \\tcall(2);",
        ),
        (edit("fn two(x)", "x"), "the text is not in a.rs. The nearest line is 5:\nfn two() {"),
        (edit("nothing like it", "x"), "the text is not in a.rs"),
        (
            edit("     2\t\tcall(1);", "x"),
            "the text is not in a.rs; leave out the line numbers, which `read` adds",
        ),
        (edit("", "x"), "`old` is empty; `write` replaces a whole file"),
        (edit("}", "}"), "`old` and `new` are the same text"),
        (
            ("edit", json!({"path": "binary", "old": "ELF", "new": "x"})),
            "binary is a binary file of 6 bytes",
        ),
        (
            ("edit", json!({"path": "dir", "old": "a", "new": "x"})),
            "dir is a directory; `list` shows what is in it",
        ),
        (("edit", json!({"path": "none", "old": "a", "new": "x"})), "there is no file none"),
        (("write", json!({"path": "dir", "content": "x"})), "dir is a directory"),
    ];
    let calls: Vec<_> = cases.iter().map(|(call, _)| call.clone()).collect();
    let observations = run_answer(&sandbox, &calls);
    for ((call, message), observation) in cases.iter().zip(observations) {
        assert_eq!(observation, failed(message), "{call:?}");
    }
    assert_eq!(sandbox.read("work/a.rs"), text);
}

#[test]
fn c_25_3_replace_all_replaces_each_occurrence_once() {
    let sandbox = coding();
    sandbox.write("work/a", "aXXXa\naXa\n\nX");
    sandbox.write("work/lines", "x\nx\nx\ny\nx\nx");
    let all = |path: &str, old: &str, new: &str| {
        ("edit", json!({"path": path, "old": old, "new": new, "replace_all": true}))
    };
    let observations =
        run_answer(&sandbox, &[all("a", "X", "XX"), all("lines", "x\nx", "x"), all("a", "Y", "")]);
    assert_eq!(observations[0], "a: replaced 5 times, at lines 1, 2, 4\n");
    assert_eq!(observations[1], "lines: replaced 2 times, at lines 1, 5\n");
    assert_eq!(observations[2], failed("the text is not in a"));
    assert_eq!(sandbox.read("work/a"), "aXXXXXXa\naXXa\n\nXX");
    assert_eq!(sandbox.read("work/lines"), "x\nx\ny\nx");
}

#[test]
fn c_25_3_large_files_come_out_right() {
    let sandbox = coding();
    let context = sandbox.read("made/context.yaml");
    sandbox.write("made/context.yaml", context.replace("total_max_tokens: 100k", ""));
    let lines = cases(50_000, 500_000);
    let mut text: String = (1..=lines).map(|number| format!("{number:>8} grüße\r\n")).collect();
    text.push_str("the last line");
    sandbox.write("work/lines", &text);
    let one_line = "0123456789".repeat(cases(1 << 17, 1 << 20));
    sandbox.write("work/one", &one_line);
    let observations = run_answer(
        &sandbox,
        &[
            (
                "edit",
                json!({"path": "lines", "old": format!("{:>8} grüße\n{lines:>8}", lines - 1), "new": "       x"}),
            ),
            ("edit", json!({"path": "one", "old": "90", "new": "-", "replace_all": true})),
            ("read", json!({"path": "lines", "offset": lines - 2, "limit": 5})),
            ("read", json!({"path": "one"})),
            ("write", json!({"path": "copy", "content": text.as_str()})),
        ],
    );
    let expected = text.replace(&format!("{:>8} grüße\r\n{lines:>8}", lines - 1), "       x");
    assert!(bytes(&sandbox, "lines") == expected.as_bytes(), "{}", observations[0]);
    let expected = one_line.replace("90", "-");
    assert!(bytes(&sandbox, "one") == expected.as_bytes(), "{}", observations[1]);
    assert_eq!(
        observations[2],
        format!(
            "{0:>6}\t{0:>8} grüße\n{1:>6}\t       x grüße\n{lines:>6}\tthe last line\n\
             [no newline at the end of the file]\n[the line ends are CRLF]\n",
            lines - 2,
            lines - 1
        )
    );
    assert!(observations[3].contains(" more bytes in this line]\n"), "{}", observations[3]);
    assert!(observations[3].len() < 3000);
    assert!(bytes(&sandbox, "copy") == text.as_bytes(), "{}", observations[4]);
}

#[test]
fn c_25_3_a_write_keeps_the_mode_and_follows_symlinks_inside() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let sandbox = coding();
    sandbox.write_program("work/tool.sh", "#!/bin/sh\necho 1\n");
    symlink("tool.sh", sandbox.path("work/link")).unwrap();
    symlink("new/there", sandbox.path("work/dangling")).unwrap();
    let observations = run_answer(
        &sandbox,
        &[
            ("edit", json!({"path": "link", "old": "1", "new": "2"})),
            ("write", json!({"path": "dangling", "content": ""})),
            ("write", json!({"path": "-n", "content": "ä\r\n\n"})),
            ("write", json!({"path": "-n", "content": "-e \\n"})),
            ("read", json!({"path": "-n"})),
            ("read", json!({"path": "dangling"})),
        ],
    );
    assert_eq!(sandbox.read("work/tool.sh"), "#!/bin/sh\necho 2\n");
    let mode = |path: &str| std::fs::metadata(sandbox.path(path)).unwrap().permissions().mode();
    assert_eq!(mode("work/tool.sh") & 0o777, 0o755);
    assert!(sandbox.path("work/link").is_symlink());
    assert_eq!(bytes(&sandbox, "new/there"), b"");
    // As the umask says.
    assert_eq!(mode("work/-n"), mode("made/agent.yaml"));
    assert_eq!(
        observations[1..],
        [
            "created dangling: 0 lines, 0 bytes\n",
            "created -n: 2 lines, 5 bytes\n",
            "replaced -n: 0 lines, 5 bytes\n",
            "     1\t-e \\n\n[no newline at the end of the file]\n",
            "[the file is empty]\n",
        ]
    );
}

#[test]
fn c_25_3_long_results_say_what_is_left_out() {
    let sandbox = coding();
    for number in 0..600 {
        sandbox.write(&format!("work/many/{number:03}.txt"), "needle\n");
    }
    sandbox.write("work/src/deep/a.c", "int x;\n".repeat(3));
    let observations = run_answer(
        &sandbox,
        &[
            ("list", json!({})),
            ("list", json!({"dir": "many"})),
            ("list", json!({"glob": "*.{c,h}"})),
            ("search", json!({"pattern": "needle"})),
            ("search", json!({"pattern": "NEEDLE", "ignore_case": true, "glob": "many/00*"})),
            ("search", json!({"pattern": "int.x", "literal": true})),
            ("search", json!({"pattern": "(", "path": "src"})),
            ("read", json!({"path": "src/deep/a.c", "offset": 2, "limit": 1})),
            ("read", json!({"path": "src/deep/a.c", "offset": 4})),
        ],
    );
    assert_eq!(
        observations[0],
        "many/ (600 files)\nsrc/ (1 file)\n[depth 1, because 2 has too many lines; name a directory or a glob]\n"
    );
    assert!(observations[1].starts_with("many/000.txt\nmany/001.txt\n"), "{}", observations[1]);
    assert!(
        observations[1]
            .ends_with("many/399.txt\n[... 200 more lines; name a directory or a glob]\n"),
        "{}",
        observations[1]
    );
    assert_eq!(observations[2], "src/deep/a.c\n");
    assert!(observations[3].ends_with("many/199.txt:1:needle\n[... 400 more matches; 600 in all, in 600 files; narrow the pattern, the path or the glob]\n"), "{}", observations[3]);
    assert_eq!(observations[4].lines().count(), 10);
    assert_eq!(observations[5], "no match\n");
    assert!(observations[6].ends_with("[exit code: 2]"), "{}", observations[6]);
    assert_eq!(observations[7], "     2\tint x;\n[lines 2 to 2 of 3; to continue: offset 3]\n");
    assert_eq!(observations[8], failed("src/deep/a.c has only 3 lines"));
}

/// What the tool `search` prints in `work/` if there is no rg.
fn search_without_rg(sandbox: &Sandbox, pattern: &str) -> String {
    let bin = sandbox.path("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for name in
        ["awk", "find", "git", "grep", "head", "realpath", "sed", "sh", "sort", "xargs", "uniq"]
    {
        let file = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|at| at.exists());
        let _ = std::os::unix::fs::symlink(file.unwrap(), bin.join(name));
    }
    let agent = sandbox.path("made");
    let mut search = Command::new("sh");
    search.arg(agent.join("tools/search")).args([pattern, ".", "", "false", "false"]);
    search.current_dir(sandbox.path("work")).env("AGENT_HOME", &agent).env("PATH", &bin);
    search.env("HOME", sandbox.path("home"));
    let output = search.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    String::from_utf8(output.stdout).unwrap()
}

/// git names another repository in its own as one path; `search` found its files, and `list` did not.
#[test]
fn c_25_3_the_list_has_the_files_of_repositories_in_the_repository() {
    let sandbox = coding();
    sandbox.write("other/.gitignore", "ignored\n");
    sandbox.write("other/a.py", "");
    sandbox.write("other/ignored", "");
    sandbox.write("work/top.py", "");
    sandbox.write("work/gone.py", "");
    git(&sandbox, "other", &["init", "-q"]);
    git(&sandbox, "other", &["add", "-A"]);
    git(&sandbox, "other", &["commit", "-qm", "x"]);
    commit_all(&sandbox);
    let submodule =
        ["-c", "protocol.file.allow=always", "submodule", "add", "-q", "../other", "libs/sub"];
    git(&sandbox, "work", &submodule);
    for (from, to) in [("../other", "nested"), ("../other", "nested/in it")] {
        git(&sandbox, "work", &["clone", "-q", from, to]);
        sandbox.write(&format!("work/{to}/ignored"), "");
    }
    std::fs::remove_file(sandbox.path("work/gone.py")).unwrap();
    let calls = [
        ("list", json!({"glob": "*.py"})),
        ("list", json!({})),
        ("list", json!({"dir": "nested"})),
    ];
    let observations = run_answer(&sandbox, &calls);
    let nested = "nested/.gitignore\nnested/a.py\n";
    assert_eq!(observations[0], "libs/sub/a.py\nnested/a.py\nnested/in it/a.py\ntop.py\n");
    let all =
        format!(".gitmodules\nlibs/sub/ (2 files)\n{nested}nested/in it/ (2 files)\ntop.py\n");
    assert_eq!(observations[1], all);
    assert_eq!(observations[2], format!("{nested}nested/in it/.gitignore\nnested/in it/a.py\n"));
    // Without rg, git grep searches, and knows one repository.
    for dir in ["libs/sub", "nested", "nested/in it"] {
        sandbox.write(&format!("work/{dir}/a.py"), "NEEDLE\n");
        sandbox.write(&format!("work/{dir}/ignored"), "NEEDLE\n");
    }
    let found = search_without_rg(&sandbox, "NEEDLE");
    let lines = ["libs/sub/a.py:1:NEEDLE", "nested/a.py:1:NEEDLE", "nested/in it/a.py:1:NEEDLE"];
    assert_eq!(found.lines().collect::<Vec<_>>(), lines);
    assert_eq!(search_without_rg(&sandbox, "NOTHERE"), "no match\n");
    // A submodule that was not fetched has no files, and a symlink in its place leads nowhere.
    git(&sandbox, "work", &["submodule", "deinit", "-q", "-f", "libs/sub"]);
    for is_link in [false, true] {
        if is_link {
            std::fs::remove_dir(sandbox.path("work/libs/sub")).unwrap();
            std::os::unix::fs::symlink("../../other", sandbox.path("work/libs/sub")).unwrap();
        }
        std::fs::remove_dir_all(sandbox.path("work/.delta")).unwrap();
        let observations = run_answer(&sandbox, &calls[..1]);
        assert_eq!(observations[0], "nested/a.py\nnested/in it/a.py\ntop.py\n");
    }
}

/// rg exits with 2 for a file that it cannot read, as for a wrong pattern, and it looked into .delta; it reads a pipe without
/// end.
#[test]
fn c_25_3_a_search_without_a_match_says_so_whatever_cannot_be_read() {
    let sandbox = coding();
    sandbox.write("work/a", "hello\n");
    let stage = sandbox.path("work/.delta/old/stage/work");
    let locked = [stage, sandbox.path("work/locked")];
    for dir in &locked {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::set_permissions(dir, Permissions::from_mode(0o000)).unwrap();
    }
    let pipe = Command::new("mkfifo").arg(sandbox.path("work/pipe")).status().unwrap();
    assert!(pipe.success());
    let calls = [
        ("search", json!({"pattern": "NOTHERE"})),
        ("search", json!({"pattern": "hello"})),
        ("search", json!({"pattern": "("})),
        ("search", json!({"pattern": "x", "path": "pipe"})),
    ];
    let observations = run_answer(&sandbox, &calls);
    for dir in &locked {
        std::fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::remove_dir_all(sandbox.path("work/.delta/old")).unwrap();
    assert!(observations[0].starts_with("no match\n"), "{}", observations[0]);
    assert!(observations[1].starts_with("a:1:hello\n"), "{}", observations[1]);
    for observation in &observations[..2] {
        assert!(!observation.contains(".delta"), "{observation}");
        assert!(!observation.contains("exit code"), "{observation}");
    }
    assert!(observations[2].ends_with("[exit code: 2]"), "{}", observations[2]);
    assert_eq!(observations[3], failed("pipe is not a regular file"));
}

/// git, and programs that look at the environment, must not wait for a key.
#[test]
fn c_25_3_commands_run_without_a_terminal_and_end_in_time() {
    let sandbox = coding();
    sandbox.write("work/a", "1\n");
    commit_all(&sandbox);
    let run =
        |command: &str, timeout: u32| ("run", json!({"command": command, "timeout": timeout}));
    let observations = run_answer(
        &sandbox,
        &[
            run("git log --format=%s; echo \"$CI $PAGER $TERM\"; cat; read x || echo end", 60),
            run("echo out; echo err >&2; echo out; exit 3", 60),
            run("echo begins; sleep 1000", 1),
            run("-x", 0),
            run("seq 1 100000", 60),
            run("cd /; x=1", 60),
            run("pwd; echo \"[$x]\"", 60),
        ],
    );
    assert_eq!(observations[0], "first\n1 cat dumb\nend\n");
    assert_eq!(observations[1], "out\nerr\nout\n[exit code: 3]");
    assert_eq!(observations[2], "begins\n[timed out after 1 s]\n[exit code: 124]");
    assert!(observations[3].contains("timeout must be 1 to 1800 seconds"), "{}", observations[3]);
    assert!(observations[4].contains("bytes left out"), "{}", observations[4]);
    assert!(observations[4].len() < 26_000, "{}", observations[4].len());
    assert_eq!(observations[6], format!("{}\n[]\n", sandbox.path("work").display()));
}

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

/// Runs git in a directory below the sandbox, and returns what it prints.
fn git(sandbox: &Sandbox, dir: &str, args: &[&str]) -> String {
    let mut git = Command::new("git");
    let name = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    git.args(name).args(args).current_dir(sandbox.path(dir)).env("HOME", sandbox.path("home"));
    let output = git.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
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
    // A name that is no text.
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

/// With rg, git grep and grep, the same search has the same result.
#[test]
fn c_25_3_every_search_program_finds_the_same() {
    let sandbox = coding();
    sandbox.write("work/src/a.c", "int a1;\nint  b;\n");
    sandbox.write("work/src/é x.h", "int a22;\r\n");
    sandbox.write("work/.hidden", "int a3;\n");
    sandbox.write("work/binary", b"int a4;\0\n");
    sandbox.write("work/ignored/b.c", "int a5;\n");
    sandbox.write("work/.gitignore", "ignored\n");
    let calls = [
        ("search", json!({"pattern": r"\bint\s+a\d+"})),
        ("search", json!({"pattern": "a5", "path": "ignored"})),
        ("search", json!({"pattern": "a1", "path": "src/a.c"})),
    ];
    let tracked = ".hidden:1:int a3;\nsrc/a.c:1:int a1;\nsrc/é x.h:1:int a22;\n";
    let outside =
        ".hidden:1:int a3;\nignored/b.c:1:int a5;\nsrc/a.c:1:int a1;\nsrc/é x.h:1:int a22;\n";
    let plain = run_answer(&sandbox, &calls);
    assert_eq!(plain, [outside, "ignored/b.c:1:int a5;\n", "src/a.c:1:int a1;\n"]);
    std::fs::remove_dir_all(sandbox.path("work/.delta")).unwrap();
    commit_all(&sandbox);
    let with_git = run_answer(&sandbox, &calls);
    assert_eq!(with_git, [tracked, "ignored/b.c:1:int a5;\n", "src/a.c:1:int a1;\n"]);
}

/// rg ignores files that git knows, and has .ignore, a file of its own that says what to ignore.
#[test]
fn c_25_3_search_and_list_have_the_files_of_git() {
    let sandbox = coding();
    sandbox.write("work/.gitignore", "dist\n");
    sandbox.write("work/dist/app.js", "needle\n");
    sandbox.write("work/dist/link.js", "");
    sandbox.write("work/a", "needle\n");
    sandbox.write("work/.ignore", "a\n");
    sandbox.write("work/sub/sparse", "needle\n");
    sandbox.write("work/sub/mine", "needle\n");
    git(&sandbox, "work", &["init", "-q", "-b", "main"]);
    git(&sandbox, "work", &["add", "-f", "."]);
    git(&sandbox, "work", &["commit", "-qm", "x"]);
    git(&sandbox, "work", &["update-index", "--skip-worktree", "sub/sparse", "sub/mine"]);
    std::fs::remove_file(sandbox.path("work/sub/sparse")).unwrap();
    sandbox.write("work/dist/untracked.js", "needle\n");
    // Nothing is searched through a symlink.
    sandbox.write("outside", "needle\n");
    std::fs::remove_file(sandbox.path("work/dist/link.js")).unwrap();
    std::os::unix::fs::symlink("../../outside", sandbox.path("work/dist/link.js")).unwrap();
    let calls =
        [("search", json!({"pattern": "needle"})), ("list", json!({"glob": "{sub,dist}/*"}))];
    let observations = run_answer(&sandbox, &calls);
    let found = "a:1:needle\nsub/mine:1:needle\ndist/app.js:1:needle\n";
    assert_eq!(observations, [found, "dist/app.js\ndist/link.js\nsub/mine\n"]);
    assert_eq!(search_without_rg(&sandbox, "needle"), found);
    assert_eq!(search_without_rg(&sandbox, "NOTHERE"), "no match\n");
}

/// git refuses the repository of another user, as root finds one in a container.
#[test]
fn c_25_3_the_repository_of_another_user_is_one() {
    if !rustix::process::geteuid().is_root() {
        needs::skip("needs root, which gives files to another user");
        return;
    }
    let sandbox = coding();
    sandbox.write("work/.gitignore", "node_modules\n");
    sandbox.write("work/node_modules/z", "needle\n");
    sandbox.write("work/y", "needle\n");
    commit_all(&sandbox);
    std::os::unix::fs::chown(sandbox.path("work"), Some(1234), Some(1234)).unwrap();
    std::os::unix::fs::chown(sandbox.path("work/.git"), Some(1234), Some(1234)).unwrap();
    let calls = [("search", json!({"pattern": "needle"})), ("list", json!({}))];
    let observations = run_answer(&sandbox, &calls);
    assert_eq!(observations, ["y:1:needle\n", ".gitignore\ny\n"]);
    let request = sandbox.delta(["show", "r", "-w", "work", "--request", "1"]).output();
    let git = "Git: branch main, 0 changed files at the start; it belongs to another user, so that git refuses it until";
    let request = request.expect_code(0).stdout;
    assert!(request.contains(git), "{request}");
}

/// Which commands start without a question. `--approve-all` approves the others, and the journal says who did.
#[test]
fn c_25_3_only_plain_commands_that_look_start_unasked() {
    let sandbox = coding();
    sandbox.write("work/src/a.c", "int x;\n");
    sandbox.write("work/.env", "KEY=secret\n");
    commit_all(&sandbox);
    let harmless = [
        "pwd",
        "ls",
        "ls -la -R",
        "git status",
        "git status --short -b",
        "git diff",
        "git diff --stat HEAD -- src/a.c",
        "git diff HEAD~1..HEAD",
        "git diff main...main -- src",
        "git diff -U5 -- src/a.c",
        "git diff --cached",
        "git log --oneline -5 --graph main",
        "git log -n 5 -p src/a.c",
        "git show HEAD:src/a.c",
        "git show HEAD^",
        "git blame -L 1,2 src/a.c",
        "git branch -a",
        "git branch --show-current",
        "git rev-parse --abbrev-ref HEAD",
        "git ls-files src",
        "git log main..HEAD -- .",
        "git log -10 -- \"src/a.c\"",
        "git log 'main'",
        " git  status ",
    ];
    let asked = [
        // Other programs, and options of git that write, run or read something else.
        "touch PWNED",
        "git -c core.pager=touch log",
        "git -c alias.log=!touch log",
        "git --exec-path=src log",
        "git -C src status",
        "git --git-dir=src status",
        "git log --output=PWNED",
        "git diff --output PWNED",
        "git diff --outp=PWNED",
        "git diff --ext-diff",
        "git diff --textconv",
        "git diff -OPWNED",
        "git diff -O PWNED",
        "git show --show-signature",
        "git blame --contents PWNED src/a.c",
        "git blame -S PWNED src/a.c",
        "git grep -Otouch x",
        "git branch new",
        "git branch -D main",
        "git branch -a new",
        "git tag new",
        "git stash",
        "git stash list -p",
        "git reflog delete HEAD@",
        "git status --ignore-submodules=x",
        "git config --list",
        "ls --color=auto",
        "ls --hyperlink",
        "find . -name x -exec touch PWNED",
        "env touch PWNED",
        "date -s now",
        "uname -a PWNED",
        // Outside of a repository, two paths are two files.
        "git diff src/a.c src/b.c",
        "git diff -- src/a.c src/b.c",
        "git diff --stat src/a.c src/b.c",
        "git diff --no-index src/a.c",
        "ls src",
        // What got past the lists of other agents.
        "git -p status",
        "git --paginate log",
        "git log --format=%G?",
        "git log --pretty=%G?",
        "git difftool -y -x touch",
        "git diff-index --output=PWNED HEAD",
        "git show --output PWNED",
        "git config --get-urlmatch a b",
        "git help -m git",
        "git archive --remote=. HEAD",
        "git ls-remote --upload-pack=touch .",
        "git rev-parse --parseopt",
        "git branch --edit-description",
        "git branch --format=x",
        "git tag -l --sort=x",
        "git stash list --output=PWNED",
        "git log --exec-path",
        "git status --no-optional-locks=x",
        "GIT_PAGER=touch git log",
        "GIT_EXTERNAL_DIFF=touch git diff",
        "GIT_DIR=src git status",
        "PATH=. ls",
        "LS_COLORS=x ls",
        "cd src && git status",
        "sort -o PWNED src/a.c",
        "sort --compress-program=touch src/a.c",
        "sed -i s/x/y/ src/a.c",
        "sed w\\ PWNED src/a.c",
        "sed 1e src/a.c",
        "rg --pre touch x",
        "rg --hostname-bin touch x",
        "man -P touch ls",
        "man --html=touch ls",
        "less src/a.c",
        "xargs touch",
        "xargs -a src/a.c touch",
        "env -S touch",
        "date -f .env",
        "date --file=src/a.c",
        "date -r src/a.c",
        "tree -o PWNED",
        "file -C -m src/a.c",
        "file -f src/a.c",
        "awk 1 src/a.c",
        "find src -delete",
        "find src -fprintf PWNED x",
        "tail -f src/a.c",
        "wc --files0-from=.env",
        "cat src/a.c",
        "echo x",
        "printf -v x y",
        "test -v x",
        "true",
        "uniq src/a.c PWNED",
        "tee PWNED",
        "hostname x",
        "uname -a -a PWNED",
        "command git status",
        "builtin pwd",
        "exec pwd",
        "eval pwd",
        "time pwd",
        "nice pwd",
        "busybox ls",
        "alias ls=touch",
        "export PATH",
        "ls --",
        "pwd -P",
        "history -s x",
        // What a shell reads as more than words.
        "git status; touch PWNED",
        "git status && touch PWNED",
        "git status || touch PWNED",
        "git status | touch PWNED",
        "git status & touch PWNED",
        "git status\ntouch PWNED",
        "git status\r\ntouch PWNED",
        "pwd\n",
        "git log $(touch PWNED)",
        "git log `touch PWNED`",
        "git log <(touch PWNED)",
        "git log > PWNED",
        "git log >PWNED",
        "git log 2>&1",
        "git log ${x}",
        "git log $x",
        "git log \\a",
        "git log src/*",
        "git log src/?.c",
        "git log [a-z]",
        "git log {a,--output=PWNED}",
        "git log #",
        "git log !!",
        "git log a\ttouch",
        "git log a\u{a0}b",
        "git log \u{200b}",
        "git log 'a\u{202e}b'",
        "git log a\\\ntouch",
        "git log 'a\n'",
        "git log $'a'",
        "git log $\"a\"",
        "git log \"$x\"",
        "git log \"`touch PWNED`\"",
        "git log \"a\\\"b",
        "git log 'a",
        "git log 'a;touch PWNED'",
        "git log '$(touch PWNED)'",
        "git log '-x'",
        "git log --\"output=PWNED\"",
        "git log '--output=PWNED'",
        "git 'log' --output=PWNED",
        "'git' log",
        "\"git log\"",
        "git log &",
        "git log |& touch PWNED",
        "git log <<< a",
        "git log << a",
        "! git log",
        "( git log )",
        "{ git log; }",
        "if git log",
        "git log () touch",
        "function git log",
        "git log a=~root",
        "git log ~+",
        "git log {1..3}",
        "git log +(a)",
        "x=1 git log",
        "ls x=~root",
        "GIT status",
        // Paths to what the other tools do not show.
        "ls /etc",
        "ls ~",
        "ls ~root",
        "ls ..",
        "ls src/..",
        "ls src/../..",
        "ls .git",
        "ls src/.env",
        "git diff /etc/passwd src/a.c",
        "git diff ../x src/a.c",
        "git show HEAD:.env",
        "git show HEAD:../x",
        "git show HEAD:'.env'",
        "git show HEAD:/x",
        "git log src/.env",
        "git log -L :x:.env",
        "git diff src/../.env",
        "git diff .env src/a.c",
        "./ls",
        "src/a.c",
        "/bin/ls",
        "",
    ];
    let calls: Vec<_> = harmless
        .iter()
        .chain(&asked)
        .map(|command| ("run", json!({"command": command, "timeout": 20})))
        .collect();
    let answers: Vec<&[(&str, Value)]> = calls.chunks(50).collect();
    run_calls(&sandbox, &answers);
    let requests = sandbox.events("ACTION_REQUEST");
    assert_eq!(requests.len(), calls.len());
    for (index, request) in requests.iter().enumerate() {
        let by = if index < harmless.len() { "rule" } else { "flag" };
        assert_eq!(request["approval"]["by"], by, "{}", request["argv"]);
    }
}

#[test]
fn c_25_3_a_command_waits_for_an_approval_and_an_edit_shows_its_diff() {
    let sandbox = coding();
    sandbox.write("work/a.txt", "one\ntwo\n");
    let turns = json!({"turns": [
        {"call": [{"tool": "run", "args": {"command": "echo hello > b.txt"}}]},
        {"call": [{"tool": "edit", "args": {"path": "a.txt", "old": "two", "new": "2"}}]},
        {"say": "done"},
    ]});
    sandbox.write("made/turns.yaml", turns.to_string());
    let delta = |args: &[&str]| {
        let model = ["--model", "script:turns.yaml", "-q", "--format", "raw"];
        sandbox.delta(args.iter().chain(&model).copied())
    };
    let run =
        ["run", "--agent", "made", "-w", "work", "--run-id", "r", "--approve", "edit=ask", "go"];
    assert_eq!(delta(&run).output().code, 101);
    assert!(!sandbox.path("work/b.txt").exists());
    assert_eq!(delta(&["deny", "r", "-w", "work", "-m", "not here"]).output().code, 101);
    assert!(!sandbox.path("work/b.txt").exists());
    assert!(sandbox.observations()[0].contains("not here"), "{:?}", sandbox.observations());
    let request = sandbox.read("work/.delta/r/interaction/request.json");
    assert!(request.contains("-two") && request.contains("+2"), "{request}");
    delta(&["approve", "r", "-w", "work"]).output().expect(0, "done\n", "");
    assert_eq!(sandbox.read("work/a.txt"), "one\n2\n");
}

/// An option in the help of a command of git.
struct GitOption {
    name: String,
    /// Its names, with its value.
    usage: String,
    description: String,
}

fn git_options(command: &[&str]) -> Vec<GitOption> {
    let output = Command::new("git").args(command).arg("-h").output().unwrap();
    let help = [output.stdout, output.stderr].concat();
    let mut options: Vec<GitOption> = Vec::new();
    for line in String::from_utf8_lossy(&help).lines() {
        let text = line.trim_start();
        // The description comes after two blanks, or on the next line.
        let (usage, description) = text.split_once("  ").unwrap_or((text, ""));
        if !text.starts_with('-') {
            if let Some(last) = options.last_mut() {
                last.description.push_str(text);
            }
            continue;
        }
        for name in usage.split(", ") {
            let name = name.replacen("[no-]", "", 1);
            let end = name.find(['[', '=', '<', ' ', '(']).unwrap_or(name.len());
            options.push(GitOption {
                name: name[..end].to_owned(),
                usage: usage.to_owned(),
                description: description.to_owned(),
            });
        }
    }
    options
}

/// Of what git's help lists, only options that change how something looks, or choose what is shown, start without a question:
/// none that writes, runs a program or takes the name of a file.
#[test]
fn c_38_4_options_of_git_that_do_more_than_look_ask() {
    use delta_agent::tool::{ToolSyntax, read_tool_file};
    use delta_words::CallArguments;
    use delta_yaml::yaml::YamlDocument;
    let sandbox = coding();
    let doc = YamlDocument::parse("agent.yaml", sandbox.read("made/agent.yaml")).unwrap();
    let tools = read_tool_file(&doc, &mut delta_yaml::diagnostic::DiagnosticReport::default());
    let run = tools.iter().find(|tool| tool.name == "run").unwrap();
    assert_eq!(run.syntax, ToolSyntax::Exec);
    let starts = |command: &str| {
        let arguments = CallArguments::new(json!({"command": command}).to_string());
        let arguments = run.check_arguments(&arguments).unwrap();
        run.approval_policy().verdict(&run.parameters, &arguments).rule.is_some()
    };
    let takes_file =
        regex::Regex::new("<(file|path|cmd|command|program|tool|dir|directory|template)>");
    let does_more = regex::Regex::new(
        r"(?i)\b(execute|run|program|external|helper|signature|gpg|sign|textconv|editor|delete|force|create|write)\b",
    );
    let (takes_file, does_more) = (takes_file.unwrap(), does_more.unwrap());
    let looking = [
        ("status", "-s -b -v --short --branch --porcelain"),
        (
            "log",
            "-p -w -b -s -n -L -S -G -U --stat --name-only --name-status --no-patch --all --reverse --follow",
        ),
        ("show", "-p -w -b -s -U --stat --name-only --name-status --no-patch"),
        ("diff", "-p -w -b -U --stat --name-only --name-status --no-patch --check --cached"),
        ("blame", "-w -s -l -e -f -L -C -M"),
        ("ls-files", "-c -d -m -o -u -s"),
        ("branch", "-a -v -r --show-current"),
        ("tag", ""),
        ("stash", ""),
        ("rev-parse", ""),
    ];
    let mut seen = 0;
    for (command, looking) in looking {
        let mut options = git_options(&[command]);
        if ["log", "show", "diff"].contains(&command) {
            options.extend(git_options(&["diff", "--no-index"]));
            options.extend(git_options(&["rev-list"]));
        }
        for GitOption { name, usage, description } in options {
            seen += 1;
            if looking.split(' ').any(|option| option == name) {
                let is_more = takes_file.is_match(&usage) || does_more.is_match(&description);
                assert!(!is_more, "git {command} {usage} does more than look: {description}");
                continue;
            }
            for form in [
                format!("git {command} {name}"),
                format!("git {command} {name}=PWNED"),
                format!("git {command} {name}PWNED"),
                format!("git {command} {name}3"),
                format!("git {command} x {name} PWNED"),
                format!("git {name} {command}"),
            ] {
                assert!(!starts(&form), "{form}: {description}");
            }
        }
    }
    assert!(seen > 200, "git's help has only {seen} options");
    let commands = Command::new("git").arg("--list-cmds=main,others,alias").output().unwrap();
    let commands = String::from_utf8(commands.stdout).unwrap();
    for name in commands.lines().filter(|name| !looking.iter().any(|(known, _)| known == name)) {
        for form in [format!("git {name}"), format!("git {name} x"), format!("git {name} -p")] {
            assert!(!starts(&form), "{form}");
        }
    }
}
