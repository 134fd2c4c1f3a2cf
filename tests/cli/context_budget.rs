//! Budgets: what is left out of a request when there is no room for all of it, and how everybody is told.

use super::DELTA;
use super::context::{failed, messages, system};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const TOOLS: &str = "  - name: say\n    exec: printf %s ${text}\n";

/// A tokenizer that counts bytes. With it an iteration of [`turns`] is 26 tokens, the task `the task` 12, and the notice
/// about 115: a message is its text and 4.
const BYTES: &str = "tokenizer: {command: [wc, -c]}\n";

/// An agent with the given context.yaml.
fn sandbox(context: &str, turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.write("agent/context.yaml", context);
    sandbox
}

/// So many calls of `say` with `t1`, `t2`, ..., and an answer.
fn turns(count: usize) -> String {
    let calls = (1..=count).map(|n| format!("- call: [{{tool: say, args: {{text: t{n}}}}}]\n"));
    calls.collect::<String>() + "- say: ok\n"
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The two messages of the iteration `n` of [`turns`].
fn iteration(n: usize) -> [Value; 2] {
    let id = format!("call_{n}_1");
    let function = json!({"name": "say", "arguments": format!("{{\"text\":\"t{n}\"}}")});
    [
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]}),
        json!({"role": "tool", "tool_call_id": id, "content": format!("t{n}")}),
    ]
}

fn conversation(
    head: impl IntoIterator<Item = Value>,
    iterations: impl IntoIterator<Item = usize>,
) -> Value {
    head.into_iter().chain(iterations.into_iter().flat_map(iteration)).collect()
}

fn notice(source: &str, what: &str) -> Value {
    system(&format!(
        "# Context Block: {source}\n\n[{what} left out of the conversation: there is no room for more]"
    ))
}

/// What each THOUGHT says was left out.
fn left_out(sandbox: &Sandbox) -> Vec<u64> {
    let events = sandbox.events("THOUGHT");
    events.iter().map(|event| event["left_out"].as_u64().unwrap_or(0)).collect()
}

/// `context` in the record of the given LLM call.
fn blocks(sandbox: &Sandbox, call: usize) -> Value {
    let name = &sandbox.files("work/.delta/r/io/invocations")[call - 1];
    let record = sandbox.read(&format!("work/.delta/r/io/invocations/{name}"));
    serde_json::from_str::<Value>(&record).unwrap()["context"].clone()
}

fn warnings(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("left out")).collect()
}

#[test]
fn c_8_4_the_oldest_iterations_go_and_the_llm_the_journal_and_stderr_say_so() {
    let context = format!("{BYTES}sources:\n  - {{type: journal, max_tokens: 220}}\n");
    let sandbox = sandbox(&context, &turns(9));
    let ran = sandbox.run("the task", &[]).expect_code(0);
    // 12 + 26 * 8 = 220: all of it has room. Then a quarter of the room is freed, 165 are left of 220.
    assert_eq!(messages(&sandbox, 9), conversation([user("the task")], 1..=8));
    let told = notice("journal", "the 8 oldest iterations are");
    assert_eq!(messages(&sandbox, 10), conversation([told, user("the task")], 9..=9));
    assert_eq!(left_out(&sandbox), [0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    assert_eq!(
        warnings(&ran.stderr),
        ["! context source `journal`: the 8 oldest iterations left out to fit the budget"]
    );
    let log = sandbox.read("work/.delta/r/engine.log");
    assert_eq!(warnings(&log).len(), 1, "{log}");
    let block = &blocks(&sandbox, 10)[0];
    assert_eq!(
        (&block["source"], &block["type"], &block["messages"], &block["cut"]),
        (&json!("journal"), &json!("journal"), &json!(4), &json!("the 8 oldest iterations"))
    );
}

#[test]
fn c_8_4_a_cut_holds_until_there_is_no_room_again() {
    let context = format!("{BYTES}sources:\n  - {{type: journal, id: j, max_tokens: 400}}\n");
    let sandbox = sandbox(&context, &turns(24));
    let ran = sandbox.run("t", &["--max-iterations", "30"]).expect_code(0);
    let left_out = left_out(&sandbox);
    let steps: Vec<u64> = left_out
        .iter()
        .zip(&left_out[1..])
        .filter(|(before, after)| before != after)
        .map(|(_, after)| *after)
        .collect();
    assert!(steps.len() >= 2 && steps.is_sorted(), "{left_out:?}");
    let expected: Vec<String> = steps
        .iter()
        .map(|count| {
            format!(
                "! context source `j`: the {count} oldest iterations left out to fit the budget"
            )
        })
        .collect();
    assert_eq!(warnings(&ran.stderr), expected, "one for each cut");
    for call in 1..=25 {
        let used = blocks(&sandbox, call)[0]["tokens"].as_u64().unwrap();
        assert!(used <= 400, "{used} in call {call}");
    }
}

#[test]
fn c_8_4_the_journal_takes_what_the_other_sources_leave() {
    let sources = "total_max_tokens: 400\nsources:\n  - {type: file, id: prompt, path: system_prompt.md}\n  - {type: journal}\n  - {type: file, id: after, path: '${CWD}/after'}\n";
    let sandbox = sandbox(&format!("{BYTES}{sources}"), &turns(9));
    // The prompt takes 45, this one 278: 77 are left.
    sandbox.write("work/after", "x".repeat(250));
    sandbox.run("the task", &[]).expect_code(1);
    let sizes = |call| -> Vec<u64> {
        let blocks = blocks(&sandbox, call);
        blocks.as_array().unwrap().iter().map(|block| block["tokens"].as_u64().unwrap()).collect()
    };
    assert_eq!(sizes(1), [45, 12, 278]);
    assert_eq!(sizes(3), [45, 64, 278]);
    let end = sandbox.metadata();
    assert_eq!(
        end["error"],
        "context: the task and the last iteration take 153 tokens, but only 77 are available; shorten the task, raise `total_max_tokens` or `max_tokens` in context.yaml, or lower `max_output_bytes` of the tools"
    );
}

#[test]
fn c_8_4_several_journals_have_a_budget_each() {
    let context = format!(
        "{BYTES}sources:\n  - {{type: journal, id: short, max_tokens: 170}}\n  - {{type: journal, id: long, max_tokens: 1000}}\n"
    );
    let sandbox = sandbox(&context, &turns(7));
    sandbox.run("the task", &[]).expect_code(0);
    let short =
        conversation([notice("short", "the 6 oldest iterations are"), user("the task")], 7..=7);
    let long = conversation([user("the task")], 1..=7);
    let both: Value =
        short.as_array().unwrap().iter().chain(long.as_array().unwrap()).cloned().collect();
    assert_eq!(messages(&sandbox, 8), both);
}

#[test]
fn c_8_4_what_a_person_said_between_goes_with_its_answer() {
    let budget =
        |tokens: usize| format!("{BYTES}sources:\n  - {{type: journal, max_tokens: {tokens}}}\n");
    let sandbox = sandbox(&budget(400), "- say: one\n- say: two\n- say: three\n- say: four\n");
    sandbox.run("the task", &[]).expect_code(0);
    let go_on = |message: &str| {
        let more = sandbox.delta(["continue", "-w", "work", "--run-id", "r", "-m", message]);
        more.output().expect_code(0);
    };
    let long = "x".repeat(180);
    go_on(&long);
    go_on("more é");
    assert_eq!(
        messages(&sandbox, 3),
        json!([
            user("the task"),
            {"role": "assistant", "content": "one"},
            user(&long),
            {"role": "assistant", "content": "two"},
            user("more é"),
        ])
    );
    sandbox.write("agent/context.yaml", budget(210));
    go_on("the end");
    assert_eq!(
        messages(&sandbox, 4),
        json!([
            notice("journal", "the 2 oldest iterations are"),
            user("the task"),
            user("more é"),
            {"role": "assistant", "content": "three"},
            user("the end"),
        ])
    );
}

#[test]
fn c_8_2_a_budget_keeps_the_message_that_is_worked_on() {
    let context = format!("{BYTES}sources:\n  - {{type: journal, max_tokens: 220}}\n");
    let sandbox = sandbox(&context, &format!("- say: one\n{}", turns(9)));
    sandbox.run("the task", &[]).expect_code(0);
    let more = sandbox.delta(["continue", "-w", "work", "--run-id", "r", "-m", "new"]);
    more.output().expect_code(0);
    let requests = sandbox.files("work/.delta/r/io/invocations").len();
    for call in 2..=requests {
        let seen = messages(&sandbox, call);
        assert!(seen.as_array().unwrap().contains(&user("new")), "request {call}: {seen:#}");
        assert!(blocks(&sandbox, call)[0]["tokens"].as_u64() <= Some(220));
    }
    assert!(left_out(&sandbox).last() > Some(&1), "{:?}", left_out(&sandbox));
    sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
}

#[test]
fn c_8_4_a_file_is_cut_at_its_end() {
    let context = format!(
        "{BYTES}sources:\n  - {{type: file, id: guide, path: '${{CWD}}/guide', max_tokens: 120}}\n  - {{type: computed_file, id: list, generator: {{command: [sh, -c, 'seq 100 >\"$1\"', sh, '${{RUN_DIR}}/list']}}, output_path: '${{RUN_DIR}}/list', max_tokens: 110}}\n  - {{type: journal}}\n"
    );
    let sandbox = sandbox(&context, &turns(1));
    sandbox.write("work/guide", "é".repeat(200));
    let ran = sandbox.run("hi", &[]).expect_code(0);
    let rest =
        |room: usize| format!("\n[the rest is left out: this source may take {room} tokens]");
    let seen = messages(&sandbox, 1);
    let guide = seen[0]["content"].as_str().unwrap();
    let kept = guide.strip_prefix("# Context Block: guide\n\n").unwrap();
    let kept = kept.strip_suffix(rest(120).as_str()).unwrap();
    assert_eq!(kept, "é".repeat(kept.chars().count()), "whole characters");
    assert!((116 - 3..=116).contains(&guide.len()), "{} bytes", guide.len());
    let list = seen[1]["content"].as_str().unwrap();
    assert!(list.starts_with("# Context Block: list\n\n1\n2\n3\n"), "{list}");
    assert!(list.ends_with(&rest(110)) && (103..=106).contains(&list.len()), "{list}");
    assert_eq!(seen[2], user("hi"));
    assert_eq!(
        warnings(&ran.stderr),
        [
            "! context source `guide`: what is beyond 120 tokens left out",
            "! context source `list`: what is beyond 110 tokens left out",
        ],
        "once, for two requests"
    );
    assert_eq!(blocks(&sandbox, 2)[0]["cut"], "what is beyond 120 tokens");
}

#[test]
fn c_8_4_what_does_not_fit_at_all_fails_the_run() {
    let refused = |context: &str, why: &str| {
        let sandbox = sandbox(&format!("{BYTES}{context}"), &turns(1));
        failed(&sandbox, why);
    };
    let prompt = "{type: file, id: prompt, path: system_prompt.md";
    refused(
        &format!("total_max_tokens: 40\nsources:\n  - {prompt}}}\n  - {{type: journal}}\n"),
        "context: the sources other than the journal take 45 tokens, but `total_max_tokens` is 40; raise it, or set `max_tokens` for one of them",
    );
    refused(
        &format!("sources:\n  - {prompt}, max_tokens: 30}}\n"),
        "context source `prompt`: `max_tokens: 30` is too small for the heading of the source",
    );
    refused(
        "sources:\n  - {type: journal, max_tokens: 5}\n",
        "context: the task and the last iteration take 6 tokens, but only 5 are available; shorten the task, raise `total_max_tokens` or `max_tokens` in context.yaml, or lower `max_output_bytes` of the tools",
    );
}

#[test]
fn c_8_4_a_tokenizer_that_does_not_count_fails_the_run() {
    let refused = |tokenizer: &str, why: &str| {
        let context = format!(
            "tokenizer: {{{tokenizer}}}\nsources:\n  - {{type: journal, max_tokens: 100}}\n"
        );
        failed(&sandbox(&context, &turns(1)), &format!("context: the tokenizer {why}"));
    };
    refused(
        "command: [sh, -c, 'echo no vocabulary >&2; exit 3']",
        "`sh` exited with code 3:\nno vocabulary",
    );
    refused("command: [echo, about 7]", "`echo` printed `about 7`; expected a number of tokens");
    refused("command: ['true']", "`true` printed ``; expected a number of tokens");
    refused("command: [echo, '-1']", "`echo` printed `-1`; expected a number of tokens");
    refused(
        "command: [echo, '18446744073709551615']",
        "`echo` printed `18446744073709551615`; expected a number of tokens",
    );
    refused("command: [sleep, '60'], timeout_ms: 100", "`sleep` timed out after 100 ms");
    refused(
        "command: [no-such-program]",
        "could not be started: program `no-such-program` was not found in PATH",
    );
}

#[test]
fn c_8_4_a_text_is_counted_once() {
    let context = "tokenizer: {command: ['${AGENT_HOME}/count']}\nsources:\n  - {type: file, id: prompt, path: system_prompt.md}\n  - {type: journal, max_tokens: 1000}\n";
    let sandbox = sandbox(context, &turns(3));
    sandbox.write_program(
        "agent/count",
        "#!/bin/sh\necho \"$RUN_DIR $ITERATION_COUNT\" >>\"$CWD/ledger\"; wc -w\n",
    );
    sandbox.run("hi there", &[]).expect_code(0);
    let run = sandbox.path("work/.delta/r").display().to_string();
    let asked = [1, 1, 2, 2, 3, 3, 4, 4].map(|iteration| format!("{run} {iteration}\n"));
    // The prompt and the task; then for each iteration the answer and the result.
    assert_eq!(sandbox.read("work/ledger"), asked.concat());
}

/// A generator that writes nothing, so that its source is left out, and that sends a signal to the engine in the middle
/// of each third iteration, once.
fn gate(sandbox: &Sandbox, signal: Option<&str>) -> &'static str {
    let kill = signal.map(|signal| {
        format!("if [ $((ITERATION_COUNT % 3)) = 0 ] && ! [ -e \"gate.$ITERATION_COUNT\" ]; then\n  : >\"gate.$ITERATION_COUNT\"; kill -{signal} $PPID; exec sleep 60\nfi\n")
    });
    sandbox.write("agent/gate", kill.unwrap_or_default());
    "  - {type: computed_file, generator: {command: [sh, '${AGENT_HOME}/gate']}, output_path: '${RUN_DIR}/none', on_missing: skip}\n"
}

/// Runs to the end, however often the engine is stopped on the way. Gives how often.
fn persist(sandbox: &Sandbox) -> usize {
    let mut ran = sandbox.run("go", &["--max-iterations", "99"]);
    for stops in 0..20 {
        if ran.code == 0 {
            return stops;
        }
        assert!([-1, 130].contains(&ran.code), "{ran:?}");
        let args = ["continue", "-w", "work", "--run-id", "r", "--max-iterations", "99"];
        ran = sandbox.delta(args).output();
    }
    panic!("it never ends: {ran:?}");
}

#[test]
fn c_6_5_a_budget_cuts_the_same_after_a_restart_and_after_a_kill() {
    let sent = |signal: Option<&str>| {
        let sandbox = sandbox("", &turns(14));
        let gate = gate(&sandbox, signal);
        let journal = "  - {type: journal, id: j, max_tokens: 300}\n";
        sandbox.write("agent/context.yaml", format!("{BYTES}sources:\n{gate}{journal}"));
        assert_eq!(persist(&sandbox), if signal.is_some() { 5 } else { 0 }, "at 3, 6, ..., 15");
        assert!(left_out(&sandbox).last() > Some(&5), "{:?}", left_out(&sandbox));
        (1..=15).map(|call| messages(&sandbox, call)).collect::<Vec<_>>()
    };
    let whole = sent(None);
    assert_eq!(sent(Some("INT")), whole);
    assert_eq!(sent(Some("KILL")), whole);
}

/// The number of messages of each request when the endpoint reports `times` as many tokens as were estimated.
fn requests(times: Option<u64>, signal: Option<&str>) -> Vec<usize> {
    let mut calls = 0;
    let server = ScriptedServer::start(move |request: &RecordedRequest| {
        calls += 1;
        let answer = match calls {
            9 => Answer::text("done"),
            // No call repeats the one before.
            number => Answer::call("say", json!({"text": number.to_string()})),
        };
        match times {
            Some(times) => answer.usage((request.bytes.len() as u64).div_ceil(4) * times, 1),
            None => answer.no_usage(),
        }
    });
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    let gate = gate(&sandbox, signal);
    let journal = "  - {type: journal, max_tokens: 450}\n";
    sandbox.write("agent/context.yaml", format!("sources:\n{gate}{journal}"));
    assert_eq!(persist(&sandbox), if signal.is_some() { 3 } else { 0 });
    assert_eq!(server.violations(), Vec::<String>::new());
    let count = |request: &RecordedRequest| request.body["messages"].as_array().unwrap().len();
    server.requests().iter().map(count).collect()
}

#[test]
fn c_8_4_an_estimate_is_corrected_by_the_usage_that_was_reported() {
    let uncut = [1, 3, 5, 7, 9, 11, 13, 15, 17];
    assert_eq!(requests(None, None), uncut, "four bytes are a token");
    assert_eq!(requests(Some(1), None), uncut);
    let halved = requests(Some(2), None);
    assert_eq!(halved, [1, 3, 5, 7, 9, 6, 8, 6, 8]);
    // The ratio is in the journal: another process cuts alike.
    assert_eq!(requests(Some(2), Some("KILL")), halved);
}
