//! The examples that are to be copied do what they say: the gate of `examples/command-gate` lets nobody around it.

use super::DELTA;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

/// A sandbox in which the example is the agent.
fn example(name: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    std::fs::remove_dir_all(sandbox.path("agent")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    let mut copy = Command::new("cp");
    assert!(copy.arg("-r").arg(example).arg(sandbox.path("agent")).status().unwrap().success());
    sandbox
}

/// command-gate with its sample as the workspace, and a secret beside that.
fn review() -> Sandbox {
    let sandbox = example("command-gate");
    std::fs::rename(sandbox.path("agent/sample"), sandbox.path("work")).unwrap();
    sandbox.write("secret", "the secret\n");
    sandbox
}

/// A run of the agent in which the LLM makes these calls, all in one answer.
fn calls(sandbox: &Sandbox, calls: &[Value]) -> Ran {
    let turns = json!({"turns": [{"call": calls}, {"say": "done"}]});
    sandbox.write("calls.yaml", turns.to_string());
    sandbox.run("go", &["--model", "script:calls.yaml"])
}

fn run(program: &str, arguments: &[&str]) -> Value {
    json!({"tool": "run", "args": {"program": program, "arguments": arguments}})
}

/// The programs that were started, with their arguments.
fn started(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.events("ACTION_REQUEST").iter().filter_map(|event| event.get("argv").cloned()).collect()
}

#[test]
fn c_9_4_the_gate_of_command_gate_lets_through_what_is_on_its_list() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = review();
    sandbox.write("work/src/a b\n", "one\n");
    sandbox.write("work/src/-n", "two\n");
    calls(
        &sandbox,
        &[
            run("cat", &["src/a b\n"]),
            run("cat", &["-n", "--", "src/a b\n", "src/../src/-n"]),
            run("grep", &["-r", "-c", "-e", "--", "--", "src/average.py"]),
            run("grep", &["-e", "-f", "src/average.py"]),
            // One name below src, whatever it looks like.
            run("cat", &["src/average.py ../../secret"]),
            json!({"tool": "write_review", "args": {"text": "good\n"}}),
        ],
    )
    .expect_code(0);
    assert_eq!(
        sandbox.observations(),
        [
            "one\n",
            "     1\tone\n     2\ttwo\n",
            "0\n[exit code: 1]",
            "[exit code: 1]",
            "[stderr]\ncat: 'src/average.py ../../secret': No such file or directory\n[exit code: 1]",
            "good\n"
        ]
    );
    assert_eq!(sandbox.read("work/review.md"), "good\n");
}

#[test]
fn c_9_4_there_is_no_way_around_the_gate_of_command_gate() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = review();
    let secret = sandbox.path("secret").display().to_string();
    let inside = sandbox.path("work/src/average.py").display().to_string();
    let itself = sandbox.path("agent/tools/run").display().to_string();
    symlink("../../secret", sandbox.path("work/src/link")).unwrap();
    symlink("/", sandbox.path("work/src/root")).unwrap();
    symlink("../secret", sandbox.path("work/review.md")).unwrap();
    sandbox.write("work/srcs/other", "the secret\n");
    sandbox.write("work/PATH...", "the secret\n");
    let below_root = format!("src/root{secret}");
    let denied = [
        // Another place: above, absolute, by a link, by a name that begins alike, the records of the run itself.
        run("cat", &["../secret"]),
        run("cat", &["src/../../secret"]),
        run("cat", &["src/nowhere/../../../secret"]),
        run("cat", &[&secret]),
        run("cat", &[&inside]),
        run("cat", &["/proc/self/cwd/src/average.py"]),
        run("cat", &["src/link"]),
        run("cat", &[&below_root]),
        run("cat", &["srcs/other"]),
        run("cat", &[".delta/r/journal.jsonl"]),
        run("cat", &["src/average.py", "../secret"]),
        run("cat", &["src/average.py\n/../../../secret"]),
        run("cat", &[""]),
        run("cat", &["sr*"]),
        // No path: many programs take the whole directory, or what they are given.
        run("cat", &[]),
        run("cat", &["--"]),
        run("cat", &["-"]),
        run("grep", &["-r", "-e", "secret"]),
        // Other options: long, bundled, glued together, behind a path, with a value that is none.
        run("grep", &["-f", "../secret", "--", "src"]),
        run("grep", &["--file=../secret", "--", "src"]),
        run("grep", &["-nr", "-e", "x", "--", "src"]),
        run("grep", &["-n -r", "-e", "x", "--", "src"]),
        run("grep", &["-R", "-e", "x", "--", "src"]),
        run("grep", &["-e:", "x", "--", "src"]),
        run("grep", &["-e", "x", "src", "-f", "../secret"]),
        run("grep", &["-e"]),
        run("wc", &["--files0-from=../secret", "src"]),
        // What a rule allows to one program it allows to no other.
        run("tee", &["--", "src/average.py"]),
        run("cat", &["review.md"]),
        // Another program: by its path, by the same tool once more, by a shell, by the words of a comment.
        run("rm", &["--", "src/average.py"]),
        run("/bin/cat", &["--", "src/average.py"]),
        run(&itself, &["cat", "--", "../secret"]),
        run("sh", &["-c", "cat ../secret"]),
        run("env", &["cat", "../secret"]),
        run("cat\n", &["src/average.py"]),
        run("cat src/average.py; cat ../secret", &["src/average.py"]),
        run("$(touch made)", &["'; touch made; '"]),
        run("#", &["--", "PATH..."]),
        run("", &[]),
        // The author's own tool, through a link that the project brought.
        json!({"tool": "write_review", "args": {"text": "overwritten\n"}}),
    ];
    calls(&sandbox, &denied).expect_code(0);
    let observations = sandbox.observations();
    let start = "Denied by the hook pre_tool_execution; the tool was not run.\n\
         It is not on the list of what is allowed";
    for (call, observation) in denied.iter().zip(&observations) {
        assert!(observation.starts_with(start), "{call}: {observation}");
    }
    assert_eq!(observations.len(), denied.len());
    assert_eq!(started(&sandbox), Vec::<Value>::new());
    assert_eq!(sandbox.read("secret"), "the secret\n");
    assert!(!sandbox.path("work/made").exists());
}

#[test]
fn c_9_4_the_gate_of_command_gate_stays_shut_when_the_place_itself_is_a_link() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = review();
    std::fs::rename(sandbox.path("work/src"), sandbox.path("elsewhere")).unwrap();
    symlink("../elsewhere", sandbox.path("work/src")).unwrap();
    calls(&sandbox, &[run("cat", &["src/average.py"])]).expect_code(0);
    assert_eq!(started(&sandbox), Vec::<Value>::new());
}

#[test]
fn c_9_4_the_gate_of_command_gate_fails_shut() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let broken = [
        // A list that is not there, is empty, or whose rules are none.
        ("allow.txt", None),
        ("allow.txt", Some("")),
        ("allow.txt", Some("cat src\ncat -n src\ncat --src\n#cat -- src\ncat -- ..\ncat -- .\n")),
        ("allow.txt", Some("cat -- src\r\n")),
        // A program that it needs fails.
        ("jq", Some("#!/bin/sh\nexit 1\n")),
        ("realpath", Some("#!/bin/sh\nexit 1\n")),
        ("jq", Some("#!/bin/sh\n")),
    ];
    for (name, content) in broken {
        let sandbox = review();
        sandbox.write("bin/.keep", "");
        match (name, content) {
            (_, None) => std::fs::remove_file(sandbox.path("agent/hooks/allow.txt")).unwrap(),
            ("allow.txt", Some(text)) => sandbox.write("agent/hooks/allow.txt", text),
            (_, Some(text)) => sandbox.write_program(&format!("bin/{name}"), text),
        }
        let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
        let turns =
            json!({"turns": [{"call": [run("cat", &["src/average.py"])]}, {"say": "done"}]});
        sandbox.write("calls.yaml", turns.to_string());
        let more = ["--model", "script:calls.yaml"];
        sandbox.run_command("go", &more).env("PATH", path).output().expect_code(0);
        assert_eq!(started(&sandbox), Vec::<Value>::new(), "{name}: {content:?}");
        let seen = sandbox.observations().concat();
        assert!(seen.starts_with("Denied by the hook pre_tool_execution"), "{name}: {seen}");
    }
    let sandbox = review();
    sandbox.write("agent/hooks/allow.txt", "cat -- src/");
    calls(&sandbox, &[run("cat", &["src/average.py"])]).expect_code(0);
    assert_eq!(
        started(&sandbox),
        Vec::<Value>::new(),
        "a path is written without a slash at its end"
    );
}

#[test]
fn c_9_6_the_report_of_command_gate_replaces_a_link_and_follows_none() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = review();
    symlink("../secret", sandbox.path("work/calls.md")).unwrap();
    calls(&sandbox, &[run("cat", &["`x`\n# y"])]).expect_code(0);
    assert_eq!(sandbox.read("secret"), "the secret\n");
    assert_eq!(
        sandbox.read("work/calls.md"),
        "# What the reviewer did\n\n- `run {\"program\":\"cat\",\"arguments\":[\" x \\n# y\"]}`: not run\n"
    );
    assert_eq!(sandbox.files("work").iter().filter(|name| name.starts_with("calls")).count(), 1);
}

#[test]
fn c_11_8_an_agent_that_writes_agents_mends_what_lint_finds() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = example("agent-generator");
    // Tools have a /tmp of their own, in which they do not see this build.
    sandbox.write("work/bin/.keep", "");
    sandbox.copy_program(DELTA, "work/bin/delta");
    let path = format!("{}:{}", sandbox.path("work/bin").display(), std::env::var("PATH").unwrap());
    let ran = sandbox.run_command("An agent", &["--format", "raw"]).env("PATH", path).output();
    let said = "The agent is in word-finder. Of three lines with two cats it said: \"2 lines hold the word.\"\n";
    assert_eq!(ran.expect_code(0).stdout, said);
    let observations = sandbox.observations();
    let [.., first, saved, second, tried, _finished] = &observations[..] else { panic!() };
    assert!(first.starts_with("warning[option-injection]: "), "{first}");
    assert!(first.ends_with("\n1 warning\n[exit code: 1]"), "{first}");
    assert_eq!((saved.as_str(), second.as_str()), ("wrote 198 bytes\n", "[no output]"));
    assert_eq!(tried, "{\"status\":\"COMPLETED\",\"result\":\"2 lines hold the word.\"}\n");
    let inner = sandbox.read("work/try/word-finder/.delta/r.3.call_3_1/agent/agent.yaml");
    assert_eq!(inner, sandbox.read("work/word-finder/agent.yaml"));
}

#[test]
fn c_15_1_the_names_of_new_agents_are_plain() {
    let sandbox = example("agent-generator");
    let names = ["../out", "/tmp", "a/b", "-p", "", ".delta", "A", "a\nb", "a;b"];
    let call = |name: &&str| {
        let args = json!({"agent": name, "file": "agent.yaml", "content": "x"});
        json!({"tool": "write_file", "args": args})
    };
    calls(&sandbox, &names.iter().map(call).collect::<Vec<_>>()).expect_code(0);
    let refused = "[stderr]\na name has lower-case letters, digits and -, and does not begin with -\n[exit code: 1]";
    assert_eq!(sandbox.observations(), names.map(|_| refused));
}

#[test]
fn c_17_1_every_example_passes_its_own_tests() {
    let sandbox = Sandbox::new(DELTA);
    let own = Path::new(DELTA).parent().unwrap().display().to_string();
    let path = format!("{own}:{}", std::env::var("PATH").unwrap());
    let mut count = 0;
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap()
    {
        let example = entry.unwrap().path();
        // A sweep has its agent in a directory.
        let agent =
            if example.join("agent.yaml").exists() { example } else { example.join("fixer") };
        count += 1;
        let missing = needs::missing_in_text(&needs::text_of_agent(&agent));
        if !missing.is_empty() {
            needs::skip_part(format!("{} needs {}", agent.display(), missing.join(", ")));
            continue;
        }
        let ran =
            sandbox.delta(["test".into(), agent.into_os_string()]).env("PATH", &path).output();
        assert!(ran.expect_code(0).stdout.ends_with("s)\n"));
    }
    assert!(count > 4, "where are the examples?");
}

// The command line in a question has quotes around a path that needs them.
#[test]
fn c_17_3_the_tests_of_bug_fixer_pass_below_any_path() {
    if !needs::programs(&["python3"]) {
        return;
    }
    for name in ["it's a", "plain"] {
        let sandbox = example("bug-fixer");
        std::fs::rename(sandbox.path("agent"), sandbox.path(name)).unwrap();
        sandbox.delta(["test", name, "asks-*"]).output().expect_code(0);
    }
}

/// The names of the files become ids of runs, which have no blanks, and their texts messages, which are not empty.
#[test]
fn map_reduce_reads_texts_of_any_name() {
    let sandbox = example("map-reduce");
    for (name, text) in
        [("My notes", "a b\n"), ("über", "a\n"), ("it's", "c\n"), ("plain", "b\n"), ("empty", "\n")]
    {
        sandbox.write(&format!("texts/{name}.txt"), text);
    }
    let bin = Path::new(DELTA).parent().unwrap().to_str().unwrap();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let mut reduce = Command::new("agent/run.sh");
    reduce.args(["texts", "work"]).current_dir(sandbox.path(".")).env("PATH", path);
    let ran = reduce.env("HOME", sandbox.path("home")).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "2 a\n2 b\n1 c\n");
}

/// Windows leaves Thumbs.db beside pictures; SQLite knows numbers that JSON does not.
#[test]
fn data_analyst_names_what_is_no_database() {
    if !needs::programs(&["python3", "sqlite3"]) {
        return;
    }
    let sandbox = example("data-analyst");
    sandbox.write("work/Thumbs.db", "pictures");
    let mut create = Command::new("sqlite3");
    create.args(["z.db", "CREATE TABLE t(a); INSERT INTO t VALUES (1e999)"]);
    assert!(create.current_dir(sandbox.path("work")).status().unwrap().success());
    let query = json!({"tool": "query", "args": {"database": "z.db", "sql": "SELECT a FROM t"}});
    calls(&sandbox, &[query]).expect_code(0);
    assert_eq!(sandbox.observations()[0], r#"{"columns":["a"],"rows":[["inf"]],"count":1}"#);
    let request = sandbox.delta(["show", "r", "-w", "work", "--request", "1"]).output();
    let request = request.expect_code(0).stdout;
    assert!(request.contains("Thumbs.db\\n\\nError: file is not a database"), "{request}");
    assert!(request.contains("t: 1 rows"), "{request}");
}
