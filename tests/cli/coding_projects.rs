//! A scripted LLM repairs three small projects with the coding agent as a real one would: it looks around, reads parts of
//! files, makes the mistakes that models make with exact replacements, and runs the tests.

use super::DELTA;
use serde_json::{Value, json};
use std::process::Command;
use test_support::sandbox::Sandbox;

/// A git repository in `work/` with these files, and the coding agent in `made`.
fn project(files: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.delta(["init", "-t", "coding", "made"]).output().expect_code(0);
    for (path, text) in files {
        sandbox.write(&format!("work/{path}"), text);
    }
    git(&sandbox, &["init", "-q", "-b", "main"]);
    git(&sandbox, &["add", "-A"]);
    git(&sandbox, &["commit", "-q", "-m", "first"]);
    sandbox
}

fn git(sandbox: &Sandbox, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
    let git = git.current_dir(sandbox.path("work")).env("HOME", sandbox.path("home"));
    let output = git.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A call of the LLM, and a part of what it must see as the result.
type Step<'a> = (&'a str, Value, &'a str);

/// Runs the answers of the LLM; every call must show what the next one relies on.
#[track_caller]
fn work(sandbox: &Sandbox, answers: &[&[Step<'_>]]) {
    let turns = answers.iter().map(|calls| {
        let calls = calls.iter().map(|(tool, args, _)| json!({"tool": tool, "args": args}));
        json!({"call": calls.collect::<Vec<_>>()})
    });
    let finish = json!({"call": [{"tool": "finish", "args": {"result": "fixed"}}]});
    let turns: Vec<Value> = turns.chain([finish]).collect();
    sandbox.write("made/turns.yaml", json!({"turns": turns}).to_string());
    let ran = sandbox
        .delta(["run", "--agent", "made", "--model", "script:turns.yaml", "-w", "work"])
        .args(["--run-id", "r", "-q", "--format", "raw", "--approve-all", "Fix the failing test"])
        .output();
    ran.expect(0, "fixed\n", "");
    let observations = sandbox.observations();
    for ((tool, args, part), observation) in
        answers.iter().flat_map(|calls| calls.iter()).zip(observations)
    {
        assert!(observation.contains(part), "{tool} {args}: {observation}");
    }
}

/// A shell project: a word count that counts empty lines.
#[test]
fn c_25_3_a_shell_project_is_repaired() {
    let filler: String =
        (1..=900).map(|number| format!("# line {number} of the licence\n")).collect();
    let source = format!(
        "#!/bin/sh\n{filler}\ncount_words() {{\n\tset -f\n\tset -- $1\n\techo $(($# + 1))\n}}\n\ncount_lines() {{\n\tprintf '%s' \"$1\" | wc -l\n\techo $(($# + 1))\n}}\n"
    );
    let sandbox = project(&[
        ("lib/count.sh", &source),
        (
            "test/run.sh",
            ". lib/count.sh\n[ \"$(count_words 'a b c')\" = 3 ] || { echo FAIL: count_words; exit 1; }\necho passed\n",
        ),
        ("AGENTS.md", "Run `sh test/run.sh` before you finish.\n"),
        (".gitignore", "build/\n"),
        ("build/count.sh", "count_words() { :; }\n"),
    ]);
    work(
        &sandbox,
        &[
            &[
                ("list", json!({}), "lib/count.sh\ntest/run.sh\n"),
                ("run", json!({"command": "sh test/run.sh"}), "FAIL: count_words\n[exit code: 1]"),
            ],
            &[(
                "search",
                json!({"pattern": r"count_words\s*\("}),
                "lib/count.sh:903:count_words() {\n",
            )],
            &[(
                "read",
                json!({"path": "lib/count.sh", "offset": 900, "limit": 9}),
                "   906\t\techo $(($# + 1))\n",
            )],
            // The same line is in another function.
            &[(
                "edit",
                json!({"path": "lib/count.sh", "old": "echo $(($# + 1))", "new": "echo $#"}),
                "the text is 2 times in lib/count.sh, at lines 906, 911;",
            )],
            // Spaces instead of the tab.
            &[(
                "edit",
                json!({"path": "lib/count.sh", "old": "set -- $1\n    echo $(($# + 1))", "new": "set -- $1\n    echo $#"}),
                "line 906 differs in its white space:\nfile: \\techo",
            )],
            &[(
                "edit",
                json!({"path": "lib/count.sh", "old": "set -- $1\n\techo $(($# + 1))", "new": "set -- $1\n\techo $#"}),
                "lib/count.sh, line 906:\n-\techo $(($# + 1))\n+\techo $#\n",
            )],
            &[
                ("run", json!({"command": "sh test/run.sh"}), "passed\n"),
                (
                    "run",
                    json!({"command": "git diff --stat"}),
                    "1 file changed, 1 insertion(+), 1 deletion(-)",
                ),
            ],
        ],
    );
    assert_eq!(git(&sandbox, &["diff", "--name-only"]), "lib/count.sh\n");
    // What the repository says is in the context.
    let request = sandbox.delta(["show", "r", "-w", "work", "--request", "1"]).output();
    assert!(
        request.stdout.contains("Run `sh test/run.sh` before you finish."),
        "{}",
        request.stdout
    );
    assert!(request.stdout.contains("Git: branch main, 0 changed files"), "{}", request.stdout);
}

/// A C project whose files have DOS line ends: a buffer that is one byte too small, in two places.
#[test]
fn c_25_3_a_c_project_with_dos_line_ends_is_repaired() {
    let source = "#include \"join.h\"\r\n#include <stdlib.h>\r\n#include <string.h>\r\n\r\n/* a, \",\" and b: größer als beide */\r\nchar *join(const char *a, const char *b) {\r\n    size_t size = strlen(a) + strlen(b);\r\n    char *out = malloc(size + 2);\r\n    strcpy(out, a);\r\n    strcat(out, b);\r\n    return out;\r\n}\r\n";
    let sandbox = project(&[
        ("src/join.c", source),
        ("src/join.h", "char *join(const char *a, const char *b);\r\n"),
        (
            "tests/join test.c",
            "#include \"../src/join.h\"\n#include <stdio.h>\n#include <string.h>\nint main(void) {\n    char *out = join(\"a\", \"b\");\n    if (strcmp(out, \"a,b\") != 0) {\n        printf(\"expected a,b, found %s\\n\", out);\n        return 1;\n    }\n    puts(\"ok\");\n}\n",
        ),
        ("check", "cc -o out.bin src/join.c 'tests/join test.c' && ./out.bin\n"),
        (".gitignore", "*.bin\n"),
    ]);
    work(
        &sandbox,
        &[
            &[(
                "run",
                json!({"command": "sh check", "timeout": 60}),
                "expected a,b, found ab\n[exit code: 1]",
            )],
            &[
                (
                    "search",
                    json!({"pattern": "join(", "literal": true, "glob": "*.{c,h}"}),
                    "tests/join test.c:5:",
                ),
                ("read", json!({"path": "src/join.c"}), "    10\t    strcat(out, b);\n"),
                ("read", json!({"path": "src/join.cc"}), "there is no file src/join.cc"),
            ],
            &[(
                "edit",
                json!({"path": "src/join.c", "old": "    10\t    strcat(out, b);", "new": "x"}),
                "leave out the line numbers, which `read` adds",
            )],
            // One line becomes two; both end as the file does.
            &[(
                "edit",
                json!({"path": "src/join.c", "old": "    strcat(out, b);\n    return out;", "new": "    strcat(out, \",\");\n    strcat(out, b);\n    return out;"}),
                "src/join.c, line 10:\n+    strcat(out, \",\");\n",
            )],
            &[
                ("run", json!({"command": "sh check", "timeout": 60}), "ok\n"),
                ("run", json!({"command": "git status --short"}), " M src/join.c\n"),
            ],
        ],
    );
    let expected =
        source.replace("    strcat(out, b);", "    strcat(out, \",\");\r\n    strcat(out, b);");
    assert_eq!(sandbox.read("work/src/join.c"), expected);
}

/// A report in awk: a name is to be changed everywhere, a file to be added, and a test that never ends.
#[test]
fn c_25_3_an_awk_project_is_repaired() {
    let data: String = (1..=3000).map(|number| format!("item{number};{number}\n")).collect();
    let sandbox = project(&[
        (
            "report.awk",
            "BEGIN { FS = \";\" }\n{ totl += $2 }\nEND { print \"total\", totl / totl_count }",
        ),
        ("data/items.csv", &data),
        (
            "test.sh",
            "while [ ! -f expected.txt ]; do sleep 1; done\nawk -f report.awk data/items.csv | diff expected.txt - && echo same\n",
        ),
    ]);
    work(
        &sandbox,
        &[
            &[(
                "run",
                json!({"command": "sh test.sh", "timeout": 1}),
                "[timed out after 1 s]\n[exit code: 124]",
            )],
            &[
                (
                    "read",
                    json!({"path": "data/items.csv"}),
                    "[lines 1 to 500 of 3000; to continue: offset 501]",
                ),
                (
                    "search",
                    json!({"pattern": "^item", "path": "data"}),
                    "more matches; 3000 in all, in 1 files",
                ),
                ("read", json!({"path": "report.awk"}), "[no newline at the end of the file]"),
            ],
            &[
                (
                    "edit",
                    json!({"path": "report.awk", "old": "totl / totl_count", "new": "totl"}),
                    "report.awk, line 3:\n",
                ),
                (
                    "edit",
                    json!({"path": "report.awk", "old": "totl", "new": "total", "replace_all": true}),
                    "report.awk: replaced 2 times, at lines 2, 3\n",
                ),
                (
                    "write",
                    json!({"path": "expected.txt", "content": "total 4501500\n"}),
                    "created expected.txt: 1 lines, 14 bytes\n",
                ),
            ],
            &[("run", json!({"command": "sh test.sh", "timeout": 30}), "same\n")],
        ],
    );
    assert_eq!(
        sandbox.read("work/report.awk"),
        "BEGIN { FS = \";\" }\n{ total += $2 }\nEND { print \"total\", total }"
    );
}
