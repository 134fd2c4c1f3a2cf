//! Headings of blocks, the template of the first message, and reasoning inside of texts.

use super::DELTA;
use super::context::messages;
use super::hooks::resume;
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const TEMPLATE: &str = "sources:\n  - {type: file, path: '${AGENT_HOME}/system_prompt.md', heading: false}\n  - {type: file, path: '${AGENT_HOME}/notes.md', heading: '## Notes'}\n  - {type: file, path: '${AGENT_HOME}/notes.md', heading: true}\n  - type: journal\n    template: |-\n      Solve this:\n      <task>${message}</task>\n      Begin.\n";

#[test]
fn c_28_6_blocks_have_the_heading_and_the_first_message_the_template_of_the_author() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: one\n- say: two\n- say: three\n");
    sandbox.write("agent/context.yaml", TEMPLATE);
    sandbox.write("agent/notes.md", "note\n");
    sandbox.run("count ${message}", &[]).expect_code(0);
    let system = |content: &str| json!({"role": "system", "content": content});
    let task = "Solve this:\n<task>count ${message}</task>\nBegin.";
    let first = messages(&sandbox, 1);
    assert_eq!(
        first,
        json!([
            system("You are a test.\n"),
            system("## Notes\n\nnote\n"),
            system("# Context Block: notes.md\n\nnote\n"),
            {"role": "user", "content": task},
        ])
    );
    assert_eq!(sandbox.events("USER_MESSAGE")[0]["content"], "count ${message}");
    // A later message is not the first one, and another template does not change the first request.
    sandbox.write("agent/context.yaml", TEMPLATE.replace("Begin.", "Later."));
    resume(&sandbox, &["-m", "more"]).output().expect_code(0);
    let second = messages(&sandbox, 2);
    assert_eq!(second[3]["content"], task);
    assert_eq!(second[5]["content"], "more");
    let path = |name: &str| sandbox.path(name).to_string_lossy().into_owned();
    let (work, forked) = (path("work"), path("forked"));
    let args = ["fork", "r", "-w", &work, "--at", "0", "--into", &forked, "--run-id", "f"];
    sandbox.delta(args).output().expect_code(0);
    let args = ["continue", "f", "-w", &forked];
    sandbox.delta(args).output().expect_code(0);
    let shown = sandbox.delta(["show", "f", "-w", &forked, "--request", "1"]).output();
    assert!(shown.expect_code(0).stdout.contains("<task>count"));
}

#[test]
fn c_28_6_mistakes_in_templates_and_headings_are_errors() {
    for (source, expected) in [
        ("{type: journal, template: no variable}", "the template does not contain `${message}`"),
        ("{type: file, path: x, heading: [a]}", "`heading` must be a boolean or a text"),
        ("{type: journal, heading: false}", "unknown key `heading` in a `journal` source"),
    ] {
        let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
        sandbox.write("agent/context.yaml", format!("sources:\n  - {source}\n"));
        let stderr = sandbox.run("go", &[]).expect_code(126).stderr;
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn c_28_6_reasoning_in_the_text_is_not_part_of_the_answer() {
    let server = ScriptedServer::start(vec![
        Answer::call("t", json!({})).saying("<think>first\nplan</think>\n\nI call."),
        Answer::text("<think>nothing else</think>"),
        Answer::text("plan</think>Done <think>not this</think>"),
    ]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "  - name: t\n    exec: echo ok\n");
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", main.replace("llm:\n", "llm:\n  strip_think: true\n"));
    let ran = sandbox.run("go", &["--format", "raw", "-v"]).expect_code(0);
    assert_eq!(ran.stdout, "Done <think>not this</think>\n");
    assert!(ran.stderr.contains("first"), "{}", ran.stderr);
    let sent = &server.requests()[1].body["messages"];
    let answer = sent.as_array().unwrap().iter().find(|message| message["role"] == "assistant");
    assert_eq!(answer.unwrap()["content"], "I call.");
    assert_eq!(sandbox.events("THOUGHT")[0]["content"], "I call.");
    assert!(ran.stderr.contains("the LLM's answer was empty; it is asked again"), "{}", ran.stderr);
}
