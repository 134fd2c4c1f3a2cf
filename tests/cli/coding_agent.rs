//! The template `coding`: its tools keep every byte, and a scripted LLM repairs three small projects with them as a real one
//! would, wrong turns included.

mod repositories;
mod unasked;

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

/// Runs git in a directory below the sandbox, and returns what it prints.
fn git(sandbox: &Sandbox, dir: &str, args: &[&str]) -> String {
    let mut git = Command::new("git");
    let name = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    git.args(name).args(args).current_dir(sandbox.path(dir)).env("HOME", sandbox.path("home"));
    let output = git.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
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
