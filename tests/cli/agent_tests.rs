//! Tests of agents (C-17): what a test may say, what comes of it, and how it is told.

use super::DELTA;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use test_support::needs;
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::{is_alive, until, until_line};

const TOOLS: &str = "  - name: save\n    exec: \"tee -- ${file}\"\n    stdin: text\n  - name: sh\n    shell: eval \"$(cat)\"\n    stdin: code\n";

/// An agent that asks an endpoint which is not there, with these tests.
fn agent(tests: &[(&str, &str)]) -> Sandbox {
    let sandbox = Sandbox::asking(DELTA, "http://127.0.0.1:9/v1", TOOLS);
    sandbox.write("tmp/.keep", "");
    std::fs::remove_file(sandbox.path("tmp/.keep")).unwrap();
    for (name, text) in tests {
        sandbox.write(&format!("agent/tests/{name}.yaml"), text);
    }
    sandbox
}

/// `delta test agent`, with what differs from run to run replaced.
fn delta_test(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let args = ["test", "agent"].iter().chain(more).copied();
    let ran = sandbox.delta(args).env("TMPDIR", sandbox.path("tmp")).output();
    plain(ran.normal(sandbox))
}

fn plain(mut ran: Ran) -> Ran {
    for text in [&mut ran.stdout, &mut ran.stderr] {
        for (pattern, by) in [
            (r"delta-test-[0-9a-f]{8}", "delta-test-ID"),
            (r"\d+\.\d s\)", "TIME)"),
            (r#"time="\d+\.\d{3}""#, "time=\"TIME\""),
            (r#""duration_ms": \d+"#, "\"duration_ms\": 0"),
        ] {
            *text = regex::Regex::new(pattern).unwrap().replace_all(text, by).into_owned();
        }
    }
    ran
}

const HELLO: &str = "task: Say hello\nllm: {turns: [{say: hello}]}\nexpect: {result: hello}\n";

#[test]
fn c_17_1_a_test_is_a_file_and_its_name_is_the_file_s() {
    let sandbox = agent(&[("b", HELLO), ("a", HELLO), ("a b", HELLO)]);
    sandbox.write("agent/tests/notes.txt", "not a test");
    sandbox.write("agent/tests/.hidden.yaml", "not a test");
    sandbox.write("agent/tests/more/c.yaml", "not a test");
    let told = "ok    a b  (TIME)\nok    a  (TIME)\nok    b  (TIME)\n3 tests: 3 passed (TIME)\n";
    delta_test(&sandbox, &[]).expect(0, told, "");
    let told = "ok    a b  (TIME)\nok    a  (TIME)\n2 tests: 2 passed (TIME)\n";
    delta_test(&sandbox, &["a*"]).expect(0, told, "");
    let ran = delta_test(&sandbox, &["a", "bb"]);
    assert!(ran.stderr.starts_with("error: there is no test `bb`; did you mean `b`?"), "{ran:?}");
    assert_eq!(ran.code, 2);
    assert_eq!(sandbox.files("tmp"), [""; 0], "nothing is left of tests that passed");
}

#[test]
fn c_17_1_a_name_in_the_place_of_the_directory_is_told() {
    let sandbox = agent(&[("writes", HELLO)]);
    let here = |name| sandbox.delta(["test", name]).cwd(sandbox.path("agent")).output();
    here("writes").expect(
        126,
        "",
        "error: there is no agent `writes`\n\
         help: name the directory before the tests: `delta test . writes`\n",
    );
    let other =
        "error: there is no agent `reads`\nhelp: name an agent directory: `delta test DIR`\n";
    here("reads").expect(126, "", other);
}

#[test]
fn c_17_1_every_mistake_of_every_test_is_told_at_once() {
    let sandbox = agent(&[
        ("fine", HELLO),
        ("a", "tusk: x\nexpect: {}\n"),
        ("b", "task: ' '\nfiles: {../x: y, /etc/x: y, .: y}\nllm: {}\nexpect: {result: {}}\n"),
        ("c", "task: x\nllm: {turns: [{sey: x}], script: y}\nexpect: {status: DONE}\n"),
        ("d", "task: x\nllm: {script: nowhere.yaml}\nexpect: {result: {contains: a, match: b}}\n"),
        (
            "e",
            "task: x\nllm: {turns: [{say: x}], strict: true}\nexpect: {result: {matches: '('}}\n",
        ),
        (
            "f",
            "task: x\nfrom: nowhere\nllm: {turns: [{say: x}]}\nexpect: {files: {a: {exists: false, contains: x}}}\n",
        ),
        (
            "g",
            "task: x\nllm: {turns: [{sey: x}]}\nexpect: {journal: [{type: THOGHT}], calls: [{args: 1}]}\n",
        ),
        ("h", "task: x\nenv: {a=b: c}\nexpect: {stderr: }\n"),
        ("i", "- x\n"),
        ("k", "task: x\nexpect: {result: x}\n"),
        ("l", "task: x\nllm: {cassette: ../../out.jsonl}\nexpect: {result: x}\n"),
        ("m", "task: x\nllm: {cassette: ../agent.yaml}\nexpect: {result: x}\n"),
    ]);
    sandbox.write("agent/tests/j.yml", HELLO);
    sandbox.write("agent/tests/cassettes/k.jsonl", "{}\n");
    let ran = delta_test(&sandbox, &[]).expect_code(126);
    let errors: Vec<&str> =
        ran.stderr.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let places: Vec<&str> = ran
        .stderr
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--> agent/tests/"))
        .collect();
    let told: Vec<String> =
        errors.iter().zip(&places).map(|(error, place)| format!("{place}: {error}")).collect();
    assert_eq!(
        told,
        [
            "j.yml: the name of a test must end with `.yaml`",
            "a.yaml:1:1: unknown key `tusk` in a test",
            "a.yaml:2:9: `expect` is empty",
            "b.yaml:1:7: `task` is empty",
            "b.yaml:2:9: `../x` is not in the workspace",
            "b.yaml:2:18: `/etc/x` is not in the workspace",
            "b.yaml:2:29: `.` is not in the workspace",
            "b.yaml:3:6: `llm` has none of `turns`, `script` and `cassette`",
            "b.yaml:4:18: `result` is empty",
            "c.yaml:2:6: `llm` has more than one of `turns`, `script` and `cassette`",
            "c.yaml:3:18: `status` must be `COMPLETED`, `FAILED`, `WAITING_FOR_INPUT` or `INTERRUPTED`",
            "d.yaml:2:15: could not read the script agent/tests/nowhere.yaml: No such file or directory (os error 2)",
            "d.yaml:3:32: unknown key `match` in `result`",
            "e.yaml:2:34: `strict` applies only to `cassette`",
            "e.yaml:3:28: not a regular expression: unclosed group",
            "f.yaml:2:7: agent/tests/nowhere is not a directory",
            "f.yaml:4:21: `a` has `exists: false`, but also expects content",
            "g.yaml:2:16: unknown key `sey` in a turn",
            "g.yaml:3:27: `type` must be `ENGINE_START`, `USER_MESSAGE`, `THOUGHT`, `ACTION_REQUEST`, `ACTION_RESULT`, `HUMAN_INPUT_REQUEST`, `HUMAN_INPUT_RECEIVED`, `APPROVAL_REQUEST`, `APPROVAL_DECISION`, `ERROR`, `HOOK_EXECUTION` or `ENGINE_END`",
            "g.yaml:3:46: an expected call has no `tool`",
            "g.yaml:3:52: `args` must be a mapping (`key: value`), not a number",
            "h.yaml:2:7: `a=b` is not the name of an environment variable",
            "h.yaml:3:10: `stderr` has no value",
            "i.yaml:1:1: a test must be a mapping (`key: value`), not a list",
            "l.yaml:2:17: `../../out.jsonl` is not in the agent directory",
            "m.yaml:2:17: `../agent.yaml` does not end with `.jsonl`",
            "cassettes/k.jsonl:1:1: expected the header of a cassette: there is no `cassette`",
        ],
        "{}",
        ran.stderr
    );
    assert_eq!((errors.len(), places.len()), (told.len(), told.len()));
    assert_eq!((ran.stdout.as_str(), sandbox.files("tmp")), ("", Vec::new()));
    let lint = ["tool", "lint", "agent", "--level", "error", "--format", "json"];
    let found = sandbox.delta(lint).output().expect_code(1).json();
    assert_eq!(found.as_array().unwrap().len(), told.len());
    // With the mistakes of the agent itself.
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{main}tulls: []\n"));
    let ran = delta_test(&sandbox, &[]).expect_code(126);
    assert_eq!(ran.stderr.matches("error: ").count(), told.len() + 1, "{}", ran.stderr);
}

#[test]
fn c_17_2_the_workspace_is_what_the_test_says() {
    let list = "ls -A; cat a b/c d; ls -l e | cut -c4; echo $OWN";
    let text = format!(
        "task: x\nfrom: given\nfiles: {{b/c: \"new\\n\", link: kept}}\nenv: {{OWN: mine}}\nllm: {{turns: [{{call: [{{tool: sh, args: {{code: '{list}'}}}}]}}, {{say: done}}]}}\nexpect:\n  called: [{{tool: sh, observation: \".delta\\na\\nb\\nd\\ne\\nlink\\na\\nnew\\na\\nx\\nmine\\n\"}}]\n  files: {{link: kept, .delta: {{exists: true}}}}\n"
    );
    let sandbox = agent(&[("x", &text)]);
    sandbox.write("agent/tests/given/a", "a\n");
    sandbox.write("agent/tests/given/b/c", "old\n");
    sandbox.write_program("agent/tests/given/e", "#!/bin/sh\n");
    std::os::unix::fs::symlink("a", sandbox.path("agent/tests/given/d")).unwrap();
    sandbox.write("outside", "untouched");
    std::os::unix::fs::symlink(sandbox.path("outside"), sandbox.path("agent/tests/given/link"))
        .unwrap();
    delta_test(&sandbox, &[]).expect(0, "ok    x  (TIME)\n1 test: 1 passed (TIME)\n", "");
    assert_eq!(sandbox.read("outside"), "untouched");
}

/// The run was where no test looked: "the script has 1 turn that the run did not use".
#[test]
fn c_17_2_the_runs_of_tests_are_in_their_workspaces_wherever_others_are() {
    let sandbox = agent(&[("a", HELLO)]);
    let test = |name: &str, value: PathBuf| {
        let delta = sandbox.delta(["test", "agent"]).env("TMPDIR", sandbox.path("tmp"));
        delta.env(name, value).output().expect_code(0);
        assert!(!sandbox.path("runs").exists(), "{name}");
    };
    test("DELTA_RUNS_DIR", sandbox.path("runs"));
    sandbox.write(
        "config/delta/config.yaml",
        format!("runs_dir: {}\n", sandbox.path("runs").display()),
    );
    test("XDG_CONFIG_HOME", sandbox.path("config"));
}

#[test]
fn c_17_1_no_path_leads_out_of_the_workspace_through_a_symlink() {
    let text = "task: x\nfrom: given\nfiles: {out/x: y}\nllm: {turns: [{say: x}]}\nexpect: {files: {out/y: {exists: true}}}\n";
    let sandbox = agent(&[("x", text), ("y", &text.replace("files: {out/x: y}\n", ""))]);
    sandbox.write("agent/tests/given/a", "a\n");
    sandbox.write("elsewhere/y", "y");
    std::os::unix::fs::symlink(sandbox.path("elsewhere"), sandbox.path("agent/tests/given/out"))
        .unwrap();
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    let out = "the workspace could not be created: could not write DIR/tmp/delta-test-ID/x/work/out/x: a symlink leads out of the workspace\n";
    assert!(ran.stdout.contains(out), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("y.yaml:4: file out/y is outside the workspace, through a symlink\n"),
        "{}",
        ran.stdout
    );
    assert_eq!(sandbox.files("elsewhere"), ["y"]);
}

#[test]
fn c_17_2_what_a_setup_script_leaves_running_ends_with_the_test() {
    let test = "task: x\nsetup: 'setsid sleep 1000 >/dev/null 2>&1 & echo $! > pid'\nllm: {turns: [{say: x}]}\nexpect: {result: RESULT}\n";
    let sandbox = agent(&[("fails", &test.replace("RESULT", "y"))]);
    delta_test(&sandbox, &[]).expect_code(1);
    let files = sandbox.files("tmp");
    let pid = files.iter().find(|file| file.ends_with("/work/pid")).unwrap();
    let pid = sandbox.read(&format!("tmp/{pid}"));
    assert!(!is_alive(pid.trim().parse().unwrap()), "{pid}");
}

#[test]
fn c_17_2_a_script_prepares_the_workspace() {
    let setup = r#"
setup: |
  read -r first < a
  echo "$first $OWN $DELTA_API_KEY${AGENT_HOME##*/}" > b
  echo noise >&2
  echo more noise
"#;
    let text = format!(
        "task: x\nfiles: {{a: one}}\nenv: {{OWN: mine}}\nllm: {{turns: [{{say: x}}]}}{setup}expect: {{files: {{b: \"one mine agent\\n\"}}, stderr: {{matches: '\\A[^z]'}}}}\n"
    );
    let failing = |code: &str| {
        format!("task: x\nsetup: '{code}'\nllm: {{turns: [{{say: x}}]}}\nexpect: {{result: x}}\n")
    };
    let sandbox = agent(&[("works", &text.replace("{a: one}", "{a: \"one\\n\"}"))]);
    sandbox
        .delta(["test", "agent"])
        .env("TMPDIR", sandbox.path("tmp"))
        .env("DELTA_API_KEY", "sk-secret-secret")
        .output()
        .expect_code(0);

    let sandbox = agent(&[
        ("fails", &failing("echo why >&2; false; touch never")),
        ("slow", &failing("sleep 1000").replace("setup", "timeout_ms: 200\nsetup")),
    ]);
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    let fails = "FAIL  fails  (TIME)\n      `setup` exited with 1\n      stderr ended with:\n        | why\n";
    assert!(ran.stdout.starts_with(fails), "{}", ran.stdout);
    let slow = "      `setup` exceeded the timeout `timeout_ms` of the test\n";
    assert!(ran.stdout.contains(slow), "{}", ran.stdout);
    let kept = sandbox.files("tmp");
    assert!(!kept.iter().any(|file| file.contains("never") || file.contains(".delta")), "{kept:?}");
}

#[test]
fn c_17_2_no_key_is_there_unless_answers_are_recorded() {
    let code = "echo \"$DELTA_API_KEY$OPENAI_API_KEY$MY_KEY$OTHER\"";
    let text = format!(
        "task: x\nllm: {{turns: [{{call: [{{tool: sh, args: {{code: '{code}'}}}}]}}, {{say: x}}]}}\nexpect: {{called: [{{tool: sh, observation: \"other\\n\"}}]}}\n"
    );
    let sandbox = agent(&[("x", &text)]);
    let yaml = sandbox.read("agent/agent.yaml").replace("llm:\n", "llm:\n  api_key_env: MY_KEY\n");
    let yaml = yaml.replace(
        "    stdin: code\n",
        "    stdin: code\n    pass_env: [MY_KEY, DELTA_API_KEY, OPENAI_API_KEY]\n",
    );
    sandbox.write("agent/agent.yaml", yaml);
    let mut command = sandbox.delta(["test", "agent"]).env("TMPDIR", sandbox.path("tmp"));
    for name in ["DELTA_API_KEY", "OPENAI_API_KEY", "MY_KEY"] {
        command = command.env(name, "sk-secret-secret");
    }
    command.env("OTHER", "other").output().expect_code(0);
}

/// Each of the two waits for the other: with one job at a time neither would end.
#[test]
fn c_17_2_tests_run_at_the_same_time_and_are_told_in_their_order() {
    let text = |code: &str| {
        format!(
            "task: x\nllm: {{turns: [{{call: [{{tool: sh, args: {{code: '{code}'}}}}]}}, {{say: x}}]}}\nexpect: {{called: [{{tool: sh, exit_code: 0}}]}}\n"
        )
    };
    let sandbox = agent(&[
        ("a", &text("cat \"$AGENT_HOME/fifo\"; echo x > \"$AGENT_HOME/back\"")),
        ("b", &text("echo x > \"$AGENT_HOME/fifo\"; cat \"$AGENT_HOME/back\"")),
        ("c", HELLO),
    ]);
    for name in ["fifo", "back"] {
        let made = Command::new("mkfifo").arg(sandbox.path(&format!("agent/{name}"))).status();
        assert!(made.unwrap().success());
    }
    let told = "ok    a  (TIME)\nok    b  (TIME)\nok    c  (TIME)\n3 tests: 3 passed (TIME)\n";
    delta_test(&sandbox, &["--jobs", "3"]).expect(0, told, "");
}

#[test]
fn c_17_2_with_keep_the_directory_of_every_test_remains() {
    let sandbox = agent(&[("a", HELLO), ("b", HELLO)]);
    for (more, count) in [(&[][..], 0), (&["--keep"], 2)] {
        delta_test(&sandbox, more).expect_code(0);
        let journals =
            sandbox.files("tmp").iter().filter(|file| file.ends_with("/journal.jsonl")).count();
        assert_eq!(journals, count);
    }
}

#[test]
fn c_17_2_the_time_of_a_test_is_up() {
    let slow = "task: x\ntimeout_ms: 200\nllm: {turns: [{say: x, delay_ms: 600000}]}\nexpect: {result: x}\n";
    let sandbox = agent(&[("slow", slow)]);
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    let told = "FAIL  slow  (TIME)\n      the run exceeded the timeout `timeout_ms` of the test\n";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);
}

/// The process of the run of the test `name`, in the directory of temporary files.
fn run_of_test(sandbox: &Sandbox, name: &str) -> i32 {
    let end = format!("/{name}/work/.delta/test/journal.jsonl");
    let journal = sandbox.files("tmp").into_iter().find(|file| file.ends_with(&end)).unwrap();
    let journal = sandbox.read(&format!("tmp/{journal}"));
    let start: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    start["pid"].as_i64().unwrap().try_into().unwrap()
}

#[test]
fn c_17_2_nothing_of_a_test_lives_on_when_it_is_stopped() {
    let wait = "task: x\nllm: {turns: [{call: [{tool: sh, args: {code: 'sleep 1000 & echo $! > \"$AGENT_HOME/pid\"; setsid sh -c \"echo \\$\\$ > \\$AGENT_HOME/other; exec sleep 1000\"'}}]}]}\nexpect: {result: x}\n";
    let signals = [("INT", 130), ("TERM", 130), ("KILL", -1)];
    for (survives, (signal, code)) in
        [false, true].into_iter().flat_map(|one| signals.map(|two| (one, two)))
    {
        let sandbox = agent(&[("a", HELLO), ("b", wait)]);
        let yaml = sandbox.read("agent/agent.yaml");
        let tool = format!("stdin: code\n    survive: {survives}\n");
        sandbox.write("agent/agent.yaml", yaml.replace("stdin: code\n", &tool));
        let args = ["test", "agent", "-j", "1"];
        let child = sandbox.delta(args).env("TMPDIR", sandbox.path("tmp")).spawn();
        let files = ["agent/pid", "agent/other"];
        let tools = files.map(|file| until_line(&sandbox.path(file)).parse::<i32>().unwrap());
        let run = run_of_test(&sandbox, "b");
        assert!(send_signal(signal, child.id()));
        let output = child.wait_with_output().unwrap();
        let ran = plain(Ran::of(output.status, &output.stdout, &output.stderr)).expect_code(code);
        assert!(ran.stdout.starts_with("ok    a  (TIME)\n"), "{}", ran.stdout);
        for process in tools.into_iter().chain([run]) {
            until("the end of a process", || (!is_alive(process)).then_some(()));
        }
        if code == 130 {
            assert_eq!(ran.stderr, "error: interrupted after 1 of 2 tests\n");
            assert_eq!(sandbox.files("tmp"), [""; 0]);
        }
    }
}

/// Nothing but the kernel is left to end a tool where the run is killed too.
#[test]
fn c_17_2_no_tool_lives_on_when_the_run_of_a_test_is_killed_too() {
    let wait = "task: x\nllm: {turns: [{call: [{tool: sh, args: {code: 'echo $$ > \"$AGENT_HOME/pid\"; exec sleep 1000'}}]}]}\nexpect: {result: x}\n";
    let sandbox = agent(&[("a", wait)]);
    let yaml = sandbox.read("agent/agent.yaml");
    let surviving = yaml.replace("stdin: code\n", "stdin: code\n    survive: true\n");
    sandbox.write("agent/agent.yaml", surviving);
    let mut child = sandbox.delta(["test", "agent"]).env("TMPDIR", sandbox.path("tmp")).spawn();
    let tool: i32 = until_line(&sandbox.path("agent/pid")).parse().unwrap();
    let run = run_of_test(&sandbox, "a").cast_unsigned();
    // So that it has no time to end anything itself.
    assert!(
        send_signal("STOP", run) && send_signal("KILL", child.id()) && send_signal("KILL", run)
    );
    child.wait().unwrap();
    until("the end of the tool", || (!is_alive(tool)).then_some(()));
}

const WRONG: &str = r#"task: Do it
files: {kept: "one\ntwo\n"}
llm:
  turns:
    - call:
        - {tool: save, args: {file: out, text: "a\nb\n"}}
        - {tool: sh, args: {code: "exit 3"}}
    - call: [{tool: finish, args: {result: {count: 2, name: x}}}]
    - say: never
expect:
  exit_code: 5
  result: {includes: {count: 3}}
  files:
    out: "a\nc\n"
    kept: {contains: three, matches: '^x'}
    none: x
    work: {exists: true}
  calls:
    - {tool: save, args: {file: out}}
    - {tool: sh, exit_code: 4}
    - {tool: finish}
  called:
    - {tool: other}
    - {tool: save, args: {file: other}}
  not_called: [sh]
  journal:
    - {type: ERROR}
    - {type: ACTION_RESULT, fields: {exit_code: 3}, count: 2}
  stderr: {contains: warning}
"#;

#[test]
fn c_17_3_everything_that_is_not_as_expected_is_told() {
    let sandbox = agent(&[("wrong", WRONG)]);
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    let calls = "the calls were:
        | save {\"file\":\"out\",\"text\":\"a\\nb\\n\"}
        | sh {\"code\":\"exit 3\"}
        | finish {\"result\":{\"count\":2,\"name\":\"x\"}}";
    let (before, after) = ran.stdout.split_once("      wrong.yaml:28: journal").unwrap();
    assert_eq!(
        before,
        format!(
            "FAIL  wrong  (TIME)
      wrong.yaml:11: exit code is 0, not 5
      wrong.yaml:12: result at .count is 2, not 3
      wrong.yaml:14: file out differs (`-` expected, `+` actual):
        |  a
        | -c
        | +b
      wrong.yaml:15: file kept does not contain \"three\"; it is:
        | one
        | two
      wrong.yaml:15: file kept does not match \"^x\"; it is:
        | one
        | two
      wrong.yaml:16: file none does not exist
      wrong.yaml:17: file work does not exist
      wrong.yaml:20: call 2 has the exit code 3, not 4; its observation is:
        | [exit code: 3]
      wrong.yaml:23: call of other was not made
      wrong.yaml:24: call of save has other arguments: at .file is \"out\", not \"other\"
      wrong.yaml:25: call of sh was made; {calls}
      wrong.yaml:27: journal has 0 matching ERROR events, not at least 1
"
        )
    );
    let closest = " has 1 matching ACTION_RESULT events, not 2; of the 3 events of this type, the closest are:\n        | {\"type\":\"ACTION_RESULT\",";
    assert!(after.starts_with(closest), "{after}");
    assert_eq!(after.matches("\"ACTION_RESULT\"").count(), 1, "{after}");
    let told = "      wrong.yaml:29: stderr does not contain \"warning\"; it is:\n        | test-agent test\n";
    let end = "      the script has 1 turn that the run did not use\n      look: delta show test -w DIR/tmp/delta-test-ID/wrong/work\n1 test: 0 passed, 1 failed (TIME)\n";
    assert!(after.contains(told) && after.ends_with(end), "{after}");
}

#[test]
fn c_17_3_a_run_may_be_expected_to_fail_or_to_ask() {
    let failing = "task: x\nllm: {turns: [{error: too busy}]}\nexpect: {error: {type: llm, message: {contains: busy}}, exit_code: 1}\n";
    let asking = "task: x\nllm: {turns: [{call: [{tool: ask_human, args: {prompt: 'Which?'}}]}, {say: '${last}'}]}\n";
    let sandbox = agent(&[
        ("fails", failing),
        ("asks", &format!("{asking}expect: {{question: 'Which?', exit_code: 101}}\n")),
        ("answered", &format!("{asking}answers: [This.]\nexpect: {{result: This.}}\n")),
        (
            "limited",
            "task: x\nmax_iterations: 1\nllm: {turns: [{call: [{tool: sh, args: {code: ''}}]}]}\nexpect: {error: {type: max_iterations}}\n",
        ),
    ]);
    // The script of `asks` ends before its last turn, which was for the answer.
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    assert!(ran.stdout.starts_with("ok    answered  (TIME)\nFAIL  asks  (TIME)\n      the script has 1 turn that the run did not use\n"), "{}", ran.stdout);
    assert!(
        ran.stdout
            .contains("ok    fails  (TIME)\nok    limited  (TIME)\n4 tests: 3 passed, 1 failed"),
        "{}",
        ran.stdout
    );

    let sandbox = agent(&[
        ("broken", "task: x\nllm: {turns: [{error: too busy}]}\nexpect: {result: x}\n"),
        (
            "other",
            "task: x\nllm: {turns: [{say: x}]}\nanswers: [a, b]\nexpect: {question: 'Which?'}\n",
        ),
    ]);
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    let told = "FAIL  broken  (TIME)\n      broken.yaml:3: status is FAILED, not COMPLETED (llm):\n        | too busy\n      stderr ended with:\n";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);
    let told = "FAIL  other  (TIME)\n      other.yaml:4: status is COMPLETED, not WAITING_FOR_INPUT\n      the test has 2 answers, but the run asked for 0\n";
    assert!(ran.stdout.contains(told), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("      look: delta show test -w DIR/tmp/delta-test-ID/other/work\n"),
        "{}",
        ran.stdout
    );
    assert_eq!(std::fs::read_dir(sandbox.path("tmp")).unwrap().count(), 1);
}

#[test]
fn c_17_4_reports_for_programs() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = agent(&[
        ("a<&\"'>\u{1b}[1m", HELLO),
        ("wrong", &HELLO.replace("result: hello", "result: 'a]]>\u{7}b'")),
    ]);
    let ran = delta_test(&sandbox, &["--format", "json"]).expect_code(1);
    let kept = ran.json()["tests"][1]["kept"].as_str().unwrap().to_owned();
    assert_eq!(
        ran.json(),
        json!({"passed": 1, "failed": 1, "tests": [
            {"name": "a<&\"'>\u{1b}[1m", "file": "agent/tests/a<&\"'>\u{1b}[1m.yaml", "passed": true,
                "duration_ms": 0, "failures": [], "notes": [], "kept": null},
            {"name": "wrong", "file": "agent/tests/wrong.yaml", "passed": false, "duration_ms": 0,
                "failures": [{"line": 3, "what": "result", "message": "is \"hello\", not \"a]]>\\u0007b\""}],
                "notes": [], "kept": kept},
        ]})
    );
    let ran = delta_test(&sandbox, &["--format", "junit"]).expect_code(1);
    let read = "import sys, json, xml.etree.ElementTree as t\nr = t.fromstring(sys.stdin.buffer.read())\nprint(json.dumps([[r.tag, r[0].get('name'), r[0].get('tests'), r[0].get('failures')]] + [[c.get('name'), c.get('classname'), [f.get('message') for f in c.findall('failure')], len(c.findall('system-err'))] for c in r.iter('testcase')]))";
    let mut python = Command::new("python3")
        .args(["-c", read])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut python.stdin.take().unwrap(), ran.stdout.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        found,
        json!([
            ["testsuites", "test-agent", "2", "1"],
            ["a<&\"'>\u{fffd}[1m", "test-agent", [], 0],
            ["wrong", "test-agent", ["wrong.yaml:3: result is \"hello\", not \"a]]>\\u0007b\""], 1],
        ])
    );
}

#[test]
fn c_17_4_no_tests_are_no_success() {
    let sandbox = agent(&[]);
    let hint = "error: there are no tests in DIR/agent/tests\nhelp: create a test file such as tests/hello.yaml:\n        task: Say hello\n        llm: {turns: [{say: hello}]}\n        expect: {result: hello}\n";
    delta_test(&sandbox, &[]).expect(1, "", hint);
    sandbox.write("agent/agent.yaml", "llm: {model: x}\n");
    sandbox.write("agent/tests/x.yaml", "task: x\n");
    let ran = delta_test(&sandbox, &[]).expect_code(126);
    assert!(ran.stderr.contains("agent.yaml has no `name`"), "{}", ran.stderr);
    assert!(ran.stderr.contains("a test has no `expect`"), "{}", ran.stderr);
    let ran = sandbox.delta(["test", "work"]).output().expect_code(126);
    assert_eq!(
        ran.stderr,
        "error: there is no agent `work`\nhelp: name an agent directory: `delta test DIR`\n"
    );
}

const TAPED: &str = "task: Save it\nfiles: {note: one}\nexpect:\n  result: \"It is saved: [redacted]\"\n  files: {out: \"kept\\n\"}\n";

/// A test that was recorded, and the server that is gone.
fn recorded(test: &str) -> Sandbox {
    let server = ScriptedServer::start(vec![
        Answer::calls(vec![
            ("save", json!({"file": "out", "text": "kept\n"})),
            ("sh", json!({"code": "pwd; cat note"})),
        ]),
        Answer::text("It is saved: sk-secret-secret"),
    ]);
    let sandbox = agent(&[("taped", test), ("scripted", HELLO)]);
    sandbox.agent(
        &format!(
            "model: test-model\n  base_url: {}\n  pricing: {{input: 100, output: 100}}",
            server.url()
        ),
        TOOLS,
    );
    let args = ["test", "agent", "--record"];
    let command = sandbox.delta(args).env("TMPDIR", sandbox.path("tmp"));
    let ran = plain(command.env("DELTA_API_KEY", "sk-secret-secret").output());
    assert_eq!(server.violations(), Vec::<String>::new());
    let told = "ok    taped  (TIME)\n      note: recorded 2 answers in agent/tests/cassettes/taped.jsonl, which cost $0.0036\n1 test: 1 passed (TIME)\n";
    ran.expect(0, told, "recording the answers of test-model for 1 test\n");
    sandbox
}

#[test]
fn c_17_2_a_setup_script_has_no_key_while_answers_are_recorded_either() {
    recorded(&format!("{TAPED}setup: '! printenv DELTA_API_KEY'\n"));
}

#[test]
fn c_17_5_answers_are_recorded_once_and_replayed_without_key_and_network() {
    let sandbox = recorded(TAPED);
    let tape = sandbox.read("agent/tests/cassettes/taped.jsonl");
    let lines: Vec<Value> = tape.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines[0],
        json!({"cassette": 1, "agent": "test-agent", "provider": "openai", "model": "test-model"})
    );
    assert_eq!(
        (lines.len(), &lines[1]["iteration"], &lines[2]["iteration"]),
        (3, &json!(1), &json!(2))
    );
    assert_eq!(lines[2]["response"]["choices"][0]["message"]["content"], "It is saved: [redacted]");
    assert!(!tape.contains("sk-secret"), "{tape}");
    // In another temporary directory, and with the server gone: the requests are the same ones.
    let told = "ok    scripted  (TIME)\nok    taped  (TIME)\n2 tests: 2 passed (TIME)\n";
    sandbox.write(
        "agent/tests/taped.yaml",
        format!("{TAPED}llm: {{cassette: cassettes/taped.jsonl, strict: true}}\n"),
    );
    let other = sandbox.path("other/tmp");
    std::fs::create_dir_all(&other).unwrap();
    let ran = sandbox.delta(["test", "agent"]).env("TMPDIR", other).output();
    plain(ran).expect(0, told, "");
}

#[test]
fn c_17_5_a_cassette_plays_in_any_run() {
    let sandbox = recorded(TAPED);
    let ran = sandbox
        .run(
            "anything",
            &["--model", "recorded:agent/tests/cassettes/taped.jsonl", "--format", "raw"],
        )
        .expect_code(0);
    assert_eq!(ran.stdout, "It is saved: [redacted]\n");
    assert!(
        ran.stderr.contains("the LLM is a recording of test-model; everything else is real\n"),
        "{}",
        ran.stderr
    );
    assert_eq!(sandbox.read("work/out"), "kept\n");
    let ran = sandbox.run_command("x", &["--model", "recorded:nowhere"]).output();
    let told = "error: could not read the cassette DIR/agent/nowhere: No such file or directory (os error 2)\n  --> --model recorded:nowhere\n  = help: for the `recorded` provider, `model` is the path of a cassette; `delta test --record` records one\n";
    ran.normal(&sandbox).expect(126, "", told);
    sandbox.agent("provider: recorded\n  model: tests/cassettes/taped.jsonl", TOOLS);
    std::fs::remove_dir_all(sandbox.path("work")).unwrap();
    let ran = sandbox.run("x", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "It is saved: [redacted]\n");
    let config = &sandbox.events("ENGINE_START")[0]["config"]["llm"];
    assert_eq!(
        config,
        &json!({"provider": "recorded", "model": "test-model", "recorded": "openai"})
    );
}

#[test]
fn c_17_5_a_recorded_run_may_ask_a_person() {
    let server = ScriptedServer::start(vec![
        Answer::call("ask_human", json!({"prompt": "Which?"})),
        Answer::text("Thanks."),
    ]);
    let text = "task: Ask\nanswers: [This.]\nllm: {cassette: ../of/asks.jsonl, strict: true}\nexpect: {result: Thanks., called: [{tool: ask_human, observation: {contains: This.}}]}\n";
    let sandbox = agent(&[("asks", text)]);
    sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), TOOLS);
    // What is there and is no cassette is no reason not to record one.
    sandbox.write("agent/of/asks.jsonl", "damaged");
    delta_test(&sandbox, &[]).expect_code(126);
    delta_test(&sandbox, &["--record", "asks"]).expect_code(0);
    drop(server);
    let ran = delta_test(&sandbox, &[]).expect_code(0);
    assert_eq!(ran.stdout, "ok    asks  (TIME)\n1 test: 1 passed (TIME)\n");
}

#[test]
fn c_17_5_a_run_without_answers_is_not_recorded() {
    let server = ScriptedServer::start(vec![Answer::error(401, "no such key", None)]);
    let sandbox = agent(&[("taped", TAPED)]);
    sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), TOOLS);
    sandbox.write(
        "agent/tests/cassettes/taped.jsonl",
        "{\"cassette\":1,\"agent\":\"\",\"provider\":\"\",\"model\":\"\"}\n",
    );
    let before = sandbox.read("agent/tests/cassettes/taped.jsonl");
    let ran = delta_test(&sandbox, &["--record", "taped"]).expect_code(1);
    assert!(
        ran.stdout.contains("      the cassette was not recorded: the LLM gave no answer: "),
        "{}",
        ran.stdout
    );
    assert_eq!(sandbox.read("agent/tests/cassettes/taped.jsonl"), before);

    let sandbox = agent(&[("scripted", HELLO)]);
    let none = "error: no test has a cassette to record; all use scripts\nhelp: a test without `llm:` uses the cassette tests/cassettes/NAME.jsonl\n";
    delta_test(&sandbox, &["--record"]).expect(1, "", none);
    let ran = delta_test(&sandbox, &["--record", "scripted"]).expect_code(2);
    assert!(
        ran.stderr
            .starts_with("error: test `scripted` uses a script and has no answers to record\n"),
        "{}",
        ran.stderr
    );
}

// The test that ended last replaced the answers of the other one, and both were reported as recorded.
#[test]
fn c_17_5_tests_with_the_same_cassette_are_not_recorded_together() {
    let server = ScriptedServer::start(vec![Answer::text("hello")]);
    let test = |cassette: &str| {
        format!("task: x\nllm: {{cassette: {cassette}}}\nexpect: {{result: hello}}\n")
    };
    let tests = [test("cassettes/all.jsonl"), test("./cassettes/../cassettes/all.jsonl")];
    let sandbox = agent(&[("one", &tests[0]), ("two", &tests[1]), ("third", HELLO)]);
    sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), TOOLS);
    let told = "error: test `one` and test `two` have the same cassette, agent/tests/./cassettes/../cassettes/all.jsonl\n  --> agent/tests/two.yaml\n  = help: give each its own with `llm: {cassette: FILE}`, or name one of them to record\n";
    delta_test(&sandbox, &["--record"]).expect(126, "", told);
    delta_test(&sandbox, &["--record", "*o*"]).expect(126, "", told);
    delta_test(&sandbox, &["--record", "one"]).expect_code(0);
    delta_test(&sandbox, &[]).expect_code(0);
    // Two links to one file are one cassette too.
    std::os::unix::fs::symlink("all.jsonl", sandbox.path("agent/tests/cassettes/two.jsonl"))
        .unwrap();
    sandbox.write("agent/tests/two.yaml", "task: x\nexpect: {result: hello}\n");
    delta_test(&sandbox, &["--record"]).expect_code(126);
}

#[test]
fn c_17_6_a_request_that_is_not_the_recorded_one_is_told() {
    let sandbox = recorded(TAPED);
    sandbox.write("agent/system_prompt.md", "You are another.\n");
    let told = "ok    taped  (TIME)\n      note: the cassette differs in 2 requests, first in request 1: the prompt, the task, the tools or the model changed\n1 test: 1 passed (TIME)\n";
    delta_test(&sandbox, &["taped"]).expect(0, told, "");
    let strict = format!("{TAPED}llm: {{cassette: cassettes/taped.jsonl, strict: true}}\n");
    sandbox.write("agent/tests/taped.yaml", strict);
    let ran = delta_test(&sandbox, &["taped"]).expect_code(1);
    let told = "FAIL  taped  (TIME)\n      the cassette differs in 2 requests, first in request 1: the prompt, the task, the tools or the model changed; record it with `delta test --record DIR/agent taped`\n";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);
}

#[test]
fn c_17_6_a_tool_that_prints_something_else_changes_the_next_request() {
    let sandbox = recorded(TAPED);
    sandbox.write("agent/tests/taped.yaml", TAPED.replace("note: one", "note: two"));
    let told = "ok    taped  (TIME)\n      note: the cassette differs in request 2: the output of a tool or a generator changed\n1 test: 1 passed (TIME)\n";
    delta_test(&sandbox, &["taped"]).expect(0, told, "");
}

#[test]
fn c_17_6_a_cassette_that_has_too_few_answers_or_none_fails_the_test() {
    let sandbox = recorded(TAPED);
    let tape = sandbox.read("agent/tests/cassettes/taped.jsonl");
    let lines: Vec<&str> = tape.lines().collect();
    sandbox.write("agent/tests/cassettes/taped.jsonl", format!("{}\n{}\n", lines[0], lines[1]));
    let ran = delta_test(&sandbox, &["taped"]).expect_code(1);
    let told = "FAIL  taped  (TIME)\n      taped.yaml:4: status is FAILED, not COMPLETED (llm):\n        | the recording has no more responses (1 used)\n      the cassette has only 1 answer, but the run asked for more; record it with `delta test --record DIR/agent taped`\n";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);
    sandbox.write("agent/tests/cassettes/taped.jsonl", format!("{tape}{}\n", lines[2]));
    let ran = delta_test(&sandbox, &["taped"]).expect_code(0);
    assert!(
        ran.stdout.contains("note: the cassette has 3 answers, but the run used only 2\n"),
        "{}",
        ran.stdout
    );
    std::fs::remove_file(sandbox.path("agent/tests/cassettes/taped.jsonl")).unwrap();
    let ran = delta_test(&sandbox, &["taped"]).expect_code(1);
    let told = "FAIL  taped  (TIME)\n      the cassette agent/tests/cassettes/taped.jsonl does not exist; record it with `delta test --record DIR/agent taped`, or write `llm: {turns: ...}` in the test\n";
    assert!(ran.stdout.starts_with(told), "{}", ran.stdout);
}

#[test]
fn c_17_3_calls_that_were_not_made_as_often_and_tools_that_are_none_are_told() {
    let test = "task: go\nllm: {turns: [{call: [{tool: sh, args: {code: exit 3}}]}, {say: done}]}\nexpect:\n  called:\n    - {tool: sh, exit_code: 3}\n    - {tool: sh}\n  not_called: [shh]\n";
    let sandbox = agent(&[("twice", test)]);
    let ran = delta_test(&sandbox, &[]).expect_code(1);
    for told in [
        "twice.yaml:6: call of sh was made fewer times than expected",
        "twice.yaml:7: tool shh is not a tool of the agent",
    ] {
        assert!(ran.stdout.contains(told), "{}", ran.stdout);
    }
}
