//! Conditions, caches and pipelines: when a source is there, when its commands run, and what they leave.

use super::DELTA;
use super::context::{failed, messages, system};
use serde_json::{Value, json};
use test_support::normal::normal;
use test_support::sandbox::Sandbox;

/// Three iterations, each of which writes a file.
const TURNS: &str = "- call: [{tool: note, args: {name: one}}]\n- call: [{tool: note, args: {name: two}}]\n- say: ok\n";
const NOTE: &str = "  - name: note\n    shell: echo written > ${name}.txt\n";

fn sandbox(sources: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, NOTE, TURNS);
    sandbox.write("agent/context.yaml", format!("sources:\n{sources}"));
    sandbox.write("agent/guide.md", "the guide\n");
    sandbox.write("work/.keep", "");
    sandbox
}

/// `context` in the record of the given LLM call, without sizes.
fn blocks(sandbox: &Sandbox, call: usize) -> Vec<Value> {
    let name = &sandbox.files("work/.delta/r/io/invocations")[call - 1];
    let record = normal(sandbox, &sandbox.read(&format!("work/.delta/r/io/invocations/{name}")));
    let Value::Array(mut blocks) =
        serde_json::from_str::<Value>(&record).unwrap()["context"].take()
    else {
        panic!("no list")
    };
    for block in &mut blocks {
        let block = block.as_object_mut().unwrap();
        assert!(block.remove("bytes").is_some() && block.remove("tokens").is_some());
    }
    blocks
}

fn shown(source: &str, kind: &str) -> Value {
    json!({"source": source, "type": kind, "messages": 1})
}

fn skipped(source: &str, kind: &str, why: &str) -> Value {
    json!({"source": source, "type": kind, "messages": 0, "skipped": why})
}

#[test]
fn c_8_4_a_byte_order_mark_of_a_file_is_not_sent() {
    let sandbox =
        sandbox("  - {type: file, path: system_prompt.md}\n  - {type: file, path: guide.md}\n");
    sandbox.write("agent/system_prompt.md", "\u{feff}You help.\n");
    sandbox.write("agent/guide.md", "\u{feff}the \u{feff}guide\n");
    sandbox.run("hi", &[]).expect_code(0);
    let sent = messages(&sandbox, 1).to_string();
    assert!(sent.contains("You help.") && sent.contains("the \u{feff}guide"), "{sent}");
    assert_eq!(sent.matches('\u{feff}').count(), 1, "{sent}");
}

#[test]
fn c_8_4_a_source_is_there_when_its_condition_holds() {
    let sources = "  - {type: file, id: api, path: guide.md, condition: {when: task_contains, pattern: '(?i)api|endpoint'}}
  - {type: file, id: cats, path: guide.md, condition: {when: task_contains, pattern: '^cat'}}
  - {type: file, id: made, path: '${CWD}/one.txt', condition: {when: file_exists, path: '${CWD}/one.txt'}}
  - {type: file, id: late, path: guide.md, condition: {when: iteration_at_least, iteration: 3}}
  - {type: computed_file, id: never, generator: {command: ['false']}, output_path: '${RUN_DIR}/x', condition: {when: file_exists, path: nowhere}}
  - {type: journal, condition: {when: iteration_at_least, iteration: 2}}
";
    let sandbox = sandbox(sources);
    sandbox.run("call the API", &[]).expect_code(0);
    let no_cat = skipped("cats", "file", "the task does not match `^cat`");
    let no_file = skipped("made", "file", "there is no DIR/work/one.txt");
    let early = |n: u32| skipped("late", "file", &format!("iteration {n} comes before 3"));
    let never = skipped("never", "computed_file", "there is no DIR/agent/nowhere");
    let early_journal = skipped("journal", "journal", "iteration 1 comes before 2");
    let journal =
        |messages: u32| json!({"source": "journal", "type": "journal", "messages": messages});
    let api = shown("api", "file");
    let made = shown("made", "file");
    let all = [blocks(&sandbox, 1), blocks(&sandbox, 2), blocks(&sandbox, 3)];
    let expected = [
        vec![api.clone(), no_cat.clone(), no_file, early(1), never.clone(), early_journal],
        vec![api.clone(), no_cat.clone(), made.clone(), early(2), never.clone(), journal(3)],
        vec![api, no_cat, made, shown("late", "file"), never, journal(5)],
    ];
    assert_eq!(all, expected);
    assert_eq!(messages(&sandbox, 1), json!([system("# Context Block: api\n\nthe guide\n")]));
    let third = messages(&sandbox, 3);
    assert_eq!(third[1], system("# Context Block: made\n\nwritten\n"));
    assert_eq!(third[2], system("# Context Block: late\n\nthe guide\n"));
}

#[test]
fn c_8_4_a_condition_on_the_task_looks_at_the_first_message_only() {
    let source = "  - {type: file, id: api, path: guide.md, condition: {when: task_contains, pattern: API}}\n";
    let sandbox = sandbox(source);
    sandbox.write("agent/script.yaml", "turns: [{say: a}, {say: b}]\n");
    sandbox.run("no such word", &[]).expect_code(0);
    let more = ["continue", "-w", "work", "--run-id", "r", "-m", "the API"];
    sandbox.delta(more).output().expect_code(0);
    assert_eq!(messages(&sandbox, 2), json!([]));
}

/// A source whose generator counts its runs in work/ledger and shows `one.txt` and `two.txt`.
fn cached(cache: &str, output: &str) -> Sandbox {
    let sandbox = sandbox(&format!(
        "  - {{type: computed_file, id: s, generator: {{command: ['${{AGENT_HOME}}/gen', '{output}']}}, output_path: '{output}', cache: {cache}}}\n"
    ));
    sandbox.write_program(
        "agent/gen",
        "#!/bin/sh\necho \"$ITERATION_COUNT\" >>ledger; cat one.txt two.txt 2>/dev/null >\"$1\"; true\n",
    );
    sandbox
}

#[test]
fn c_8_4_a_cache_by_content_holds_while_the_files_are_the_same() {
    let sandbox = cached("{strategy: file_hash, invalidate_on: ['*.txt']}", "${RUN_DIR}/out");
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), "1\n2\n3\n", "each iteration wrote a file");
    assert_eq!(messages(&sandbox, 3), json!([system("# Context Block: s\n\nwritten\nwritten\n")]));

    // `ledger` itself is none of the files; `two.txt` is only written anew.
    let sandbox = cached(
        "{strategy: file_hash, invalidate_on: ['sub/**/*.txt', '${CWD}/one.txt', 'no/such/*']}",
        "${RUN_DIR}/out",
    );
    sandbox.write("work/one.txt", "written\n");
    sandbox.write("work/sub/deep/er/three.txt", "3");
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), "1\n");
    assert_eq!(messages(&sandbox, 3), json!([system("# Context Block: s\n\nwritten\n")]));
}

/// Its own output was one of the files, so that every output was stale at once.
#[test]
fn c_8_4_what_a_command_writes_is_none_of_the_files_that_its_cache_looks_at() {
    let sandbox = cached("{strategy: file_hash, invalidate_on: ['*.txt*']}", "${CWD}/out.txt");
    sandbox.write("work/one.txt", "written\n");
    sandbox.write("work/two.txt", "written\n");
    assert!(ran_again(&sandbox), "there is nothing yet");
    assert!(!ran_again(&sandbox));
    sandbox.write("work/two.txt", "other\n");
    assert!(ran_again(&sandbox));
}

/// Runs the agent anew and says whether its generator ran.
fn ran_again(sandbox: &Sandbox) -> bool {
    sandbox.write("agent/script.yaml", "turns: [{say: ok}]\n");
    sandbox.write("work/ledger", "");
    let run = ["run", "--agent", "agent", "-w", "work", "-m", "again"];
    sandbox.delta(run).output().expect_code(0);
    !sandbox.read("work/ledger").is_empty()
}

#[test]
fn c_8_4_what_was_made_before_will_do_only_if_it_is_that_very_thing() {
    let sandbox = cached("{strategy: file_hash, invalidate_on: ['src/*']}", "${CWD}/out");
    sandbox.write("work/src/a", "1");
    assert!(ran_again(&sandbox), "there is nothing yet");
    assert!(!ran_again(&sandbox));
    sandbox.write("work/src/b", "1");
    assert!(ran_again(&sandbox), "a file more");
    sandbox.write("work/src/b", "2");
    assert!(ran_again(&sandbox), "other content");
    sandbox.write("work/src/b", "2");
    assert!(!ran_again(&sandbox), "the same content, at another time");
    std::fs::rename(sandbox.path("work/src/b"), sandbox.path("work/src/c")).unwrap();
    assert!(ran_again(&sandbox), "another name");
    std::fs::remove_file(sandbox.path("work/src/c")).unwrap();
    assert!(ran_again(&sandbox), "a file less");
    std::fs::remove_file(sandbox.path("work/out")).unwrap();
    assert!(ran_again(&sandbox), "its output is gone");
    sandbox.write("work/out", "tampered");
    assert!(ran_again(&sandbox), "its output is not what was made");
    assert!(!ran_again(&sandbox));
    let record = sandbox.read("work/out.cache.json");
    sandbox.write("work/out.cache.json", "{");
    assert!(ran_again(&sandbox), "nobody knows what it was made of");
    let keys: Vec<String> =
        serde_json::from_str::<serde_json::Map<_, _>>(&record).unwrap().keys().cloned().collect();
    assert_eq!(keys, ["of_sha256", "output_sha256", "at"]);
    let context = sandbox.read("agent/context.yaml");
    sandbox.write("agent/context.yaml", context.replace("'${CWD}/out']", "'${CWD}/out', more]"));
    assert!(ran_again(&sandbox), "another command");
    assert!(!ran_again(&sandbox));
}

#[test]
fn c_8_4_a_pattern_that_names_a_directory_is_for_everything_below_it() {
    for pattern in ["src", "src/", "src/**", "${CWD}/src", "s*/**", "**"] {
        let cache = format!("{{strategy: file_hash, invalidate_on: ['{pattern}']}}");
        let sandbox = cached(&cache, "${AGENT_HOME}/out");
        sandbox.write("work/src/deep/er/a", "1");
        assert!(ran_again(&sandbox), "{pattern}: there is nothing yet");
        if pattern != "**" {
            assert!(!ran_again(&sandbox), "{pattern}");
        }
        sandbox.write("work/src/deep/er/a", "2");
        assert!(ran_again(&sandbox), "{pattern}: other content");
        sandbox.write("work/src/.new", "2");
        assert!(ran_again(&sandbox), "{pattern}: a file more");
    }
    // A pattern with a wildcard at its end is for what it matches.
    let sandbox = cached("{strategy: file_hash, invalidate_on: ['src/*']}", "${AGENT_HOME}/out");
    sandbox.write("work/src/a", "1");
    assert!(ran_again(&sandbox));
    sandbox.write("work/src/deep/a", "1");
    assert!(!ran_again(&sandbox));
}

#[test]
fn c_8_4_a_pattern_that_matches_no_file_is_a_warning() {
    let patterns = "['src', 'none/**', '${AGENT_HOME}/*.md', '${AGENT_HOME}/x', '${RUN_DIR}/y']";
    let cache = format!("{{strategy: file_hash, invalidate_on: {patterns}}}");
    let sandbox = cached(&cache, "${RUN_DIR}/out");
    sandbox.write("work/src/a", "1");
    let ran = sandbox.run("go", &[]).expect_code(0);
    let warnings: Vec<_> = ran.stderr.lines().filter(|it| it.contains("no file")).collect();
    let warning = |pattern: &str| {
        format!("Warning: context source `s`: `{pattern}` in `invalidate_on` matches no file")
    };
    assert_eq!(warnings, [warning("none/**"), warning("${AGENT_HOME}/x")]);
    let lint = sandbox.delta(["tool", "lint", "agent", "--format", "json"]).output().json();
    let found: Vec<_> = lint
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["rule"] == "unmatched-pattern")
        .map(|finding| finding["message"].as_str().unwrap().split('`').nth(1).unwrap().to_owned())
        .collect();
    // The workspace is not known to lint.
    assert_eq!(found, ["src", "none/**", "${AGENT_HOME}/x"]);
    // A new workspace has no files yet.
    let run = ["run", "--agent", "agent", "-y", "-m", "again"];
    let ran = sandbox.delta(run).output().expect_code(0);
    assert_eq!(ran.stderr.matches("matches no file").count(), 1, "{}", ran.stderr);
}

#[test]
fn c_8_4_a_workspace_may_have_the_name_of_a_pattern() {
    let sandbox = cached("{strategy: file_hash, invalidate_on: ['src/*']}", "${RUN_DIR}/out");
    sandbox.write("w[1]*/src/a", "1");
    let run = |id: &str| {
        let args = ["run", "--agent", "agent", "-w", "w[1]*", "--run-id", id, "-m", "go"];
        sandbox.delta(args).output().expect_code(0);
    };
    run("a");
    assert_eq!(sandbox.read("w[1]*/ledger"), "1\n");
    // Its own files count.
    sandbox.agent(
        "provider: script\n  model: script.yaml",
        "  - {name: note, shell: 'echo x >>src/a'}\n",
    );
    sandbox.write("agent/script.yaml", "turns: [{call: [{tool: note}]}, {say: ok}]\n");
    run("b");
    assert_eq!(sandbox.read("w[1]*/ledger"), "1\n1\n2\n");
}

#[test]
fn c_8_4_a_pattern_looks_into_the_runs_only_when_it_begins_there() {
    let count = |pattern: &str| {
        let cache = format!("{{strategy: file_hash, invalidate_on: ['{pattern}']}}");
        let sandbox = cached(&cache, "${RUN_DIR}/out");
        sandbox.write("work/ledger", "");
        sandbox.write(
            "agent/script.yaml",
            "turns: [{call: [{tool: note, args: {name: x}}]}, {say: ok}]\n",
        );
        sandbox.run("go", &[]).expect_code(0);
        sandbox.read("work/ledger").lines().count()
    };
    assert_eq!(count("**/*.jsonl"), 1);
    assert_eq!(count("${RUN_DIR}/journal.jsonl"), 2);
}

#[test]
fn c_8_4_a_cache_never_waits_for_a_pipe() {
    let sandbox = cached("{strategy: age, max_age_ms: 3600000}", "${CWD}/out");
    let made =
        std::process::Command::new("mkfifo").arg(sandbox.path("work/out.cache.json")).status();
    assert!(made.unwrap().success());
    sandbox.run("go", &[]).expect_code(0);
    let record: Value = serde_json::from_str(&sandbox.read("work/out.cache.json")).unwrap();
    assert!(record["at"].is_string());
}

#[test]
fn c_8_4_a_cache_by_age_holds_for_its_time() {
    let sandbox = cached("{strategy: age, max_age_ms: 3600000}", "${CWD}/out");
    assert!(ran_again(&sandbox));
    sandbox.write("work/one.txt", "new");
    assert!(!ran_again(&sandbox), "it looks at no files");
    let stamp = |at: &str| {
        let record = sandbox.read("work/out.cache.json");
        let mut record: Value = serde_json::from_str(&record).unwrap();
        record["at"] = json!(at);
        sandbox.write("work/out.cache.json", record.to_string());
    };
    stamp("2020-01-01T00:00:00.000Z");
    assert!(ran_again(&sandbox), "too old");
    assert!(!ran_again(&sandbox));
    stamp("2999-01-01T00:00:00.000Z");
    assert!(ran_again(&sandbox), "a clock was wrong");
}

#[test]
fn c_8_4_a_generator_that_failed_leaves_nothing_to_be_taken_for_its_answer() {
    let source = "  - {type: computed_file, id: s, generator: {command: [sh, -c, 'echo half >out; test -e well']}, output_path: '${CWD}/out', cache: {strategy: age, max_age_ms: 3600000}}\n";
    let sandbox = sandbox(source);
    failed(&sandbox, "context source `s`: the generator `sh` exited with code 1");
    assert_eq!(sandbox.files("work").iter().filter(|name| name.contains("cache")).count(), 0);
    sandbox.write("work/well", "");
    sandbox.delta(["continue", "-w", "work", "--run-id", "r", "-m", "on"]).output().expect_code(0);
    assert_eq!(messages(&sandbox, 1), json!([system("# Context Block: s\n\nhalf\n")]));
}

/// A pipeline of the given stages.
fn pipeline(stages: &str, more: &str) -> Sandbox {
    sandbox(&format!("  - type: pipeline\n    id: docs\n    stages:\n{stages}{more}"))
}

#[test]
fn c_8_4_the_stages_of_a_pipeline_run_in_order() {
    let stages = "      - {generator: [sh, -c, 'echo \"b $ITERATION_COUNT\" >\"$1\"; echo a >>\"$1\"; echo 1 >>ledger', sh, '${RUN_DIR}/found'], output: '${RUN_DIR}/found'}
      - {id: rank, generator: [sh, -c, 'sort \"$RUN_DIR/found\" >\"$1\"; echo 2 >>ledger', sh, '${RUN_DIR}/ranked'], output: '${RUN_DIR}/ranked', timeout_ms: 60000, pass_env: [MY_KEY]}
      - {generator: [cp, '${RUN_DIR}/ranked', '${CWD}/docs.md'], output: '${CWD}/docs.md'}
";
    let sandbox = pipeline(stages, "");
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(messages(&sandbox, 1), json!([system("# Context Block: docs\n\na\nb 1\n")]));
    assert_eq!(messages(&sandbox, 3), json!([system("# Context Block: docs\n\na\nb 3\n")]));
    assert_eq!(sandbox.read("work/ledger"), "1\n2\n".repeat(3));
    assert_eq!(blocks(&sandbox, 1), [shown("docs", "pipeline")]);
}

#[test]
fn c_8_4_a_stage_that_fails_is_named() {
    let first = "      - {generator: [sh, -c, 'echo x >one'], output: '${CWD}/one'}\n";
    let check = |second: &str, why: &str| {
        let third =
            "      - {generator: [touch, ran-all-the-same], output: '${CWD}/ran-all-the-same'}\n";
        let sandbox = pipeline(&format!("{first}      - {second}\n{third}"), "");
        failed(&sandbox, &format!("context source `docs`: stage 2{why}"));
        assert_eq!(sandbox.files("work").iter().filter(|name| name.starts_with("ran")).count(), 0);
    };
    check(
        "{id: rank, generator: [sh, -c, 'echo no model >&2; exit 3'], output: x}",
        " (`rank`): the generator `sh` exited with code 3:\nno model",
    );
    check(
        "{generator: [sleep, '60'], output: x, timeout_ms: 100}",
        ": the generator `sleep` timed out after 100 ms",
    );
    check(
        "{generator: [no-such-program], output: x}",
        ": the generator could not be started: program `no-such-program` was not found in PATH",
    );
    check(
        "{generator: ['true'], output: '${CWD}/one'}",
        ": the generator `true` did not write DIR/work/one",
    );
    check("{generator: ['true'], output: '${CWD}/two'}", ": it left no DIR/work/two");
}

#[test]
fn c_8_4_a_pipeline_may_leave_nothing_and_may_be_cached() {
    let nothing = "      - {generator: ['true'], output: '${CWD}/none'}\n";
    let sandbox = pipeline(nothing, "    on_missing: skip\n");
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(blocks(&sandbox, 1), [skipped("docs", "pipeline", "there is no DIR/work/none")]);
    failed(
        &pipeline(nothing, ""),
        "context source `docs`: could not read DIR/work/none: No such file or directory (os error 2) (`on_missing: skip` omits it)",
    );

    let counted = "      - {generator: [sh, -c, 'echo x >\"$1\"; echo 1 >>ledger', sh, '${RUN_DIR}/a'], output: '${RUN_DIR}/a'}\n      - {generator: [cp, '${RUN_DIR}/a', '${RUN_DIR}/b'], output: '${RUN_DIR}/b'}\n";
    let cache =
        "    cache: {strategy: file_hash, invalidate_on: [one.txt]}\n    max_tokens: 1000\n";
    let sandbox = pipeline(counted, cache);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/ledger"), "1\n1\n", "one.txt is new in the second iteration");
    assert_eq!(messages(&sandbox, 3), json!([system("# Context Block: docs\n\nx\n")]));
}

/// A tool, or the author of a repository, could have made the link.
#[test]
fn c_22_4_a_link_in_the_workspace_shows_the_llm_nothing_outside() {
    let source = |skip: &str| {
        format!(
            "  - {{type: file, id: guide, path: '${{CWD}}/DELTA.md'{skip}}}\n  - {{type: journal, id: j}}\n"
        )
    };
    let run_with = |skip: &str, target: &str| {
        let sandbox = sandbox(&source(skip));
        sandbox.write("outside/key", "the secret\n");
        sandbox.write("work/docs/guide.md", "the guide\n");
        std::os::unix::fs::symlink(target, sandbox.path("work/DELTA.md")).unwrap();
        let ran = sandbox.run("go", &[]);
        let requests = sandbox.files("work/.delta/r/io/invocations");
        let sent: String = requests
            .iter()
            .map(|name| sandbox.read(&format!("work/.delta/r/io/invocations/{name}")))
            .collect();
        assert!(!sent.contains("the secret"), "{sent}");
        (ran, sent)
    };
    let (ran, sent) = run_with("", "docs/guide.md");
    assert!(ran.code == 0 && sent.contains("the guide"), "{}", ran.stderr);
    // The workspace that delta makes is in the agent directory.
    let sandbox = sandbox(&source(", on_missing: skip"));
    sandbox.write("outside/key", "the secret\n");
    sandbox.write("agent/workspaces/W001/file", "");
    let link = sandbox.path("agent/workspaces/W001/DELTA.md");
    std::os::unix::fs::symlink("../../../outside/key", link).unwrap();
    let args = ["run", "--agent", "agent", "-w", "agent/workspaces/W001", "-m", "go"];
    let ran = sandbox.delta(args).output().expect_code(1);
    assert!(ran.stderr.contains("a symlink that leads out of the workspace"), "{}", ran.stderr);
    for skip in ["", ", on_missing: skip"] {
        let (ran, _) = run_with(skip, "../outside/key");
        let reason = "it is a symlink that leads out of the workspace";
        assert!(ran.code == 1 && ran.stderr.contains(reason), "{}", ran.stderr);
    }
}
