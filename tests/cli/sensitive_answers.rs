//! Answers to sensitive questions: hidden wherever a person or another program reads a run, in whatever form they are there.

use super::DELTA;
use serde_json::Value;
use test_support::sandbox::{Ran, Sandbox};

const ASK: &str = "- call: [{tool: ask_human, args: {prompt: 'Token?', input_type: password, sensitive: true}}]\n";

const TOOLS: &str = "  - {name: sh, shell: sh, stdin: c}\nsnapshots: true\n";

/// A run that is asked for a token, and gets `answer`. What it prints then, whatever its exit code.
fn answered(turns: &str, answer: &str) -> (Sandbox, Ran) {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("{ASK}{turns}"));
    let ran = give_answer(&sandbox, answer);
    (sandbox, ran)
}

fn give_answer(sandbox: &Sandbox, answer: &str) -> Ran {
    sandbox.run("task", &[]).expect_code(101);
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    sandbox
        .delta(["continue", "r", "-w", "work", &format!("-m={answer}")])
        .env("PATH", path)
        .output()
}

/// What `delta` prints to both streams.
fn printed(sandbox: &Sandbox, args: &[&str]) -> String {
    let ran = sandbox.delta(args.iter().copied()).output();
    assert!(!ran.stdout.is_empty(), "{args:?}: {}", ran.stderr);
    format!("{}{}", ran.stdout, ran.stderr)
}

/// Every export of a run, and its page, with their names.
fn exports(sandbox: &Sandbox, run: &str) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for format in ["otlp --content=all", "atif", "openai", "markdown", "in-toto --unsigned"] {
        let options = format.split(' ');
        let fixed = ["export", run, "-w", "work", "--to"];
        let text = printed(sandbox, &fixed.into_iter().chain(options).collect::<Vec<_>>());
        texts.push((format!("{run} {format}"), text));
    }
    sandbox.delta(["view", run, "-w", "work", "-o", "page.html"]).output().expect_code(0);
    texts.push((format!("{run} page"), sandbox.read("page.html")));
    texts
}

fn hidden_in(name: &str, text: &str, secret: &str) {
    assert!(!text.contains(secret), "{name}: {text}");
}

/// `jq` and `curl` print an answer as JSON, where a quote or a line break is escaped.
#[test]
fn c_15_4_an_answer_is_hidden_where_a_tool_prints_it_as_json() {
    let turns = "\
- call: [{tool: sh, args: {c: \"jq -nc --arg p '${last}' '{password: $p}'\"}}]
- error: 'refused: ${last}'
";
    for answer in ["Tr0ub\"dor", "Tr0ub\\", "Tr0ub\tdor"] {
        let (sandbox, ran) = answered(turns, answer);
        assert!(ran.stderr.contains("  │ {\"password\":\"[hidden]\"}\n"), "{}", ran.stderr);
        let log = sandbox.read("work/.delta/r/engine.log");
        let shown = printed(&sandbox, &["show", "r", "-w", "work", "-v"]);
        let fork = ["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into", "other"];
        sandbox.delta(fork).output().expect_code(0);
        let compared = printed(&sandbox, &["diff", "r", "other/.delta/f", "-w", "work"]);
        for (name, text) in
            [("stderr", &ran.stderr), ("log", &log), ("show", &shown), ("diff", &compared)]
        {
            hidden_in(name, text, "Tr0ub");
            assert!(text.contains("[hidden]"), "{name}: {text}");
        }
    }
}

/// A later question, and the task and the error of a run in a list.
#[test]
fn c_15_4_lists_of_runs_show_no_answer() {
    let question = "- call: [{tool: ask_human, args: {prompt: 'Is ${last} right?'}}]\n";
    let (sandbox, _) = answered(question, "hunter2-secret");
    let listed = printed(&sandbox, &["inbox", "work"]);
    assert!(listed.contains("? Is [hidden] right?"), "{listed}");
    hidden_in("inbox", &listed, "hunter2");
    let (sandbox, ran) = answered("- error: 'refused ${last}'\n", "hunter2-secret");
    hidden_in("stderr", &ran.stderr, "hunter2");
    let listed = printed(&sandbox, &["list-runs", "-w", "work"]);
    assert!(listed.contains("refused [hidden]"), "{listed}");
    hidden_in("list-runs", &listed, "hunter2");
    let shown = sandbox.delta(["show", "r", "-w", "work", "--format", "raw"]).output();
    assert!(shown.stderr.contains("refused [hidden]"), "{}", shown.stderr);
}

/// The run that asked has given its answer to a run that it started, and to the name of a file.
#[test]
fn c_19_8_an_answer_is_in_no_export_of_the_runs_inside() {
    let tree = "- call: [{tool: sh, args: {c: \"delta run --agent ../inner -w . --run-id k -q 'use ${last}'; echo x > '${last}.txt'; echo y > plain\"}}]\n- say: ok\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("{ASK}{tree}"));
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    sandbox.write(
        "inner/agent.yaml",
        "name: inner\nllm: {provider: script, model: script.yaml}\ntools: []\n",
    );
    sandbox.write("inner/script.yaml", "turns: [{say: 'inside ${task}'}]\n");
    sandbox.write("inner/system_prompt.md", "You are inside.\n");
    sandbox.write("inner/context.yaml", test_support::sandbox::CONTEXT);
    give_answer(&sandbox, "hunter2-secret").expect_code(0);
    for (name, text) in exports(&sandbox, "r") {
        hidden_in(&name, &text, "hunter2");
    }
    let statement =
        printed(&sandbox, &["export", "r", "-w", "work", "--to", "in-toto", "--unsigned"]);
    let statement: Value = serde_json::from_str(&statement).unwrap();
    assert_eq!(statement["subject"].as_array().unwrap().len(), 1, "{statement}");
    assert!(statement.to_string().contains("[hidden].txt"), "{statement}");
    for (name, text) in exports(&sandbox, "k") {
        hidden_in(&name, &text, "hunter2");
    }
    for args in [&["list-runs", "-w", "work"][..], &["show", "k", "-w", "work"]] {
        let text = printed(&sandbox, args);
        assert!(text.contains("use [hidden]"), "{text}");
        hidden_in(args[0], &text, "hunter2");
    }
}

#[test]
fn c_19_8_the_result_of_a_hook_is_redacted() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("{ASK}- say: 'sent ${{last}}'\n"));
    sandbox.write("agent/hooks.yaml", "post_llm_response: {command: [sh, -c, \"grep -q sent && echo '{\\\"end\\\": {\\\"status\\\": \\\"COMPLETED\\\", \\\"result\\\": \\\"took hunter2-secret\\\"}}'; true\"]}\n");
    give_answer(&sandbox, "hunter2-secret").expect_code(0);
    for (name, text) in exports(&sandbox, "r") {
        hidden_in(&name, &text, "hunter2");
        assert!(
            name.contains("openai") || name.contains("in-toto") || text.contains("took [hidden]"),
            "{name}: {text}"
        );
    }
}

/// An answer is in the arguments of a call in JSON inside of JSON, and once more where they repeat an output.
#[test]
fn c_19_8_an_answer_is_hidden_in_json_inside_of_json() {
    let turns = "\
- call: [{tool: sh, args: {c: \"jq -nc --arg p '${last}' '{k: $p}' | tee kept\"}}]
- call: [{tool: sh, args: {c: \"cat <<'E'\\n${last}\\nE\\n\"}}]
- say: '${last}'
";
    for answer in ["Tr0ub\"dor", "Tr0ub\\x", "Tr0ub\ndor22\n\tdor23", "ends Tr0ub\""] {
        let (sandbox, ran) = answered(turns, answer);
        ran.expect_code(0);
        for (name, text) in exports(&sandbox, "r") {
            hidden_in(&name, &text, "Tr0ub");
            hidden_in(&name, &text, "dor2");
        }
        let atif = sandbox.delta(["export", "r", "-w", "work", "--to", "atif"]).output().json();
        let calls: Vec<&Value> = atif["steps"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|step| step["tool_calls"].as_array())
            .flatten()
            .collect();
        assert_eq!(calls.len(), 3);
        for call in &calls[1..] {
            let command = call["arguments"]["c"].as_str().unwrap_or_default();
            assert!(command.contains("[hidden]") && call.get("extra").is_none(), "{call}");
        }
    }
}

#[test]
fn c_18_4_the_lines_of_an_answer_are_hidden_in_a_diff() {
    let turns = "- call: [{tool: sh, args: {c: \"printf '%s\\\\n' before '${last}' after > key.pem\"}}]\n- say: ok\n";
    let key = "-----BEGIN KEY-----\nMIIEfirst\nMIIEsecond\n-----END KEY-----";
    let (sandbox, ran) = answered(turns, key);
    ran.expect_code(0);
    assert!(sandbox.read("work/key.pem").contains("MIIEsecond"));
    sandbox.delta(["view", "r", "-w", "work"]).output().expect_code(0);
    let page = sandbox.read("r.html");
    hidden_in("page", &page, "MIIE");
    assert!(page.contains("+before\\n+[hidden]\\n+[hidden]\\n"), "{page}");
}
