//! Limits of one run (C-12.8): the call that could exceed one is not made, and the run goes on with a higher one.

use super::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

const ECHO: &str = "  - name: echo\n    exec: echo ${text}\n  - name: sleep\n    exec: sleep 600\n";

/// An agent that asks a server; `llm` and `more` are further lines of agent.yaml.
fn served(answers: Vec<Answer>, llm: &str, more: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: m\n  base_url: {}\n  max_tokens: 50{llm}", server.url());
    sandbox.agent(&llm, &format!("{ECHO}{more}"));
    (server, sandbox)
}

fn again(sandbox: &Sandbox, more: &[&str]) -> Ran {
    let fixed = ["continue", "--run-id", "r", "-w", "work", "--format", "json", "-m", "go on"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

/// The type and the message of the error of a FAILED run.
fn limit(ran: Ran) -> String {
    let result = ran.expect_code(1).json();
    assert_eq!((&result["status"], &result["error"]["type"]), (&json!("FAILED"), &json!("limit")));
    result["error"]["message"].as_str().unwrap().to_owned()
}

/// The lines of the run's ledger.
fn ledger(sandbox: &Sandbox) -> Vec<Value> {
    let text = sandbox.read("work/.delta/r/budget.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn echo() -> Answer {
    Answer::call("echo", json!({"text": "x"}))
}

#[test]
fn c_12_8_the_call_that_could_exceed_the_tokens_is_not_made() {
    let answers = || vec![echo().usage(2600, 20), Answer::text("done").usage(2700, 10)];
    for (flags, yaml) in
        [(&["--max-tokens", "3000"][..], ""), (&[], "limits: {max_tokens: 3000}\n")]
    {
        let (server, sandbox) = served(answers(), "", yaml);
        let ran = sandbox.run("hello", &[flags, &["--format", "json"]].concat());
        assert!(
            ran.stderr.contains("! 2620 of the limit of 3000 tokens are used\n"),
            "{}",
            ran.stderr
        );
        let message = limit(ran);
        let begin = "the limit of 3000 tokens does not allow another call: 2620 are used, 380 are left, and the call could take ";
        assert!(message.starts_with(begin), "{message}");
        assert!(message.ends_with("for the request and 50 for the answer)"), "{message}");
        let error = &sandbox.events("ERROR")[0]["error_details"];
        let option = error["limit_option"].as_str().unwrap();
        let hint = format!("continue with `-m` and `{option}`; the limit applies to the whole run");
        assert_eq!(error, &json!({"type": "limit", "hint": hint, "limit_option": option}));
        let (flag, proposed) = option.split_once(' ').unwrap();
        assert_eq!((flag, proposed.parse::<u64>().unwrap() > 3000), ("--max-tokens", true));
        // Without a higher limit it fails again at once, and a lower one than what is used is no other.
        assert!(limit(again(&sandbox, &[])).starts_with("the limit of 3000 tokens does not"));
        assert!(
            limit(again(&sandbox, &["--max-tokens", "9"])).contains("2620 are used, 0 are left")
        );
        assert_eq!(server.requests().len(), 1);
        let result = again(&sandbox, &["--max-tokens", "100000"]).expect_code(0).json();
        assert_eq!((&result["result"], server.requests().len()), (&json!("done"), 2));
        assert_eq!(result["metrics"]["usage"]["input_tokens"], 5300);
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
        let share = "5330 of 100000 tokens are used, by this run and its child runs\n";
        assert!(shown.contains(share), "{shown}");
    }
}

#[test]
fn c_12_8_what_a_call_could_take_is_reserved_before_it_and_settled_after_it() {
    let (server, sandbox) =
        served(vec![echo().usage(300, 20), Answer::text("done").usage(350, 10)], "", "");
    sandbox.run("hello", &["--max-tokens", "5000"]).expect_code(0);
    let bytes: Vec<usize> = server.requests().iter().map(|request| request.bytes.len()).collect();
    let seen: Vec<(Value, Value)> = ledger(&sandbox)
        .into_iter()
        .map(|line| (line["type"].clone(), line["tokens"].clone()))
        .collect();
    // Every byte could be a token; what the first request took is known at the second one.
    let expected = [
        (json!("limits"), Value::Null),
        (json!("reserve"), json!(bytes[0] + 50)),
        (json!("settle"), json!(320)),
        (json!("reserve"), json!(300 + bytes[1] - bytes[0] + 50)),
        (json!("settle"), json!(360)),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn c_12_8_the_call_that_could_exceed_the_cost_is_not_made() {
    let pricing = "\n  pricing: {input: 10, cached_input: 1, output: 1000}";
    let answers = vec![echo().usage(1000, 20), Answer::text("done").usage(1100, 10)];
    // 0.03 USD are used, and an answer alone could cost 0.05.
    let (server, sandbox) = served(answers, pricing, "limits: {max_cost: 9}\n");
    let ran = sandbox.run("hello", &["--max-cost", "0.08", "--format", "json"]);
    let message = limit(ran);
    let begin = "the limit of 0.08 USD does not allow another call: 0.03 are used, 0.05 are left, and the call could take 0.06";
    assert!(message.starts_with(begin), "{message}");
    // What was said once holds on, also before what agent.yaml says.
    assert!(limit(again(&sandbox, &[])).starts_with("the limit of 0.08 USD"));
    assert_eq!(server.requests().len(), 1);
    again(&sandbox, &["--max-cost", "0.2"]).expect_code(0);
    let used = ledger(&sandbox).last().unwrap().clone();
    assert_eq!(
        used,
        json!({"type": "settle", "call": 6, "run_id": "r", "tokens": 1110, "cost_usd": 0.021})
    );
}

#[test]
fn c_12_8_the_command_after_a_refused_call_raises_the_limit_enough() {
    let pricing = "\n  pricing: {input: 10, cached_input: 1, output: 1000}";
    let cases = [("--max-tokens", "3000", "", 2600), ("--max-cost", "0.08", pricing, 1000)];
    for (flag, value, pricing, used) in cases {
        let answers = vec![echo().usage(used, 20), Answer::text("done").usage(1100, 10)];
        let (server, sandbox) = served(answers, pricing, "");
        let ran = sandbox.run("hello", &[flag, value]).expect_code(1);
        let (_, command) = ran.stderr.trim_end().rsplit_once("Continue with: delta ").unwrap();
        assert!(command.contains(&format!(" {flag} ")), "{command}");
        let words = command.replace("\"Try again\"", "again");
        sandbox.delta(words.split(' ')).output().expect_code(0);
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn c_12_8_an_answer_is_not_longer_than_the_model_can_make_it() {
    let bound = |llm: &str| {
        let server = ScriptedServer::start(vec![]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: m\n  base_url: {}{llm}", server.url()), "");
        let ran = sandbox.run("hello", &["--max-tokens", "10", "--format", "json"]);
        let has_note = ran.stderr.contains("Note: without `llm.max_tokens`");
        let message = limit(ran);
        let (_, answer) = message.rsplit_once(" and ").unwrap();
        (answer.split(' ').next().unwrap().parse::<u64>().unwrap(), has_note)
    };
    let pricing =
        |max_output| format!("\n  pricing: {{input: 1, output: 2, max_output: {max_output}}}");
    assert_eq!(bound(""), (4096, true));
    assert_eq!(bound(&pricing("32k")), (32_000, false));
    assert_eq!(bound(&format!("\n  max_tokens: 200000{}", pricing("8192"))), (8192, false));
    assert_eq!(bound(&format!("\n  max_tokens: 50{}", pricing("8192"))), (50, false));
}

#[test]
fn c_12_8_a_run_that_had_no_limit_counts_from_its_journal() {
    let (server, sandbox) = served(vec![Answer::text("one").usage(900, 50)], "", "");
    sandbox.run("hello", &[]).expect_code(0);
    assert!(!sandbox.path("work/.delta/r/budget.jsonl").exists());
    let message = limit(again(&sandbox, &["--max-tokens", "1000"]));
    assert!(message.contains("950 are used, 50 are left"), "{message}");
    // So does one whose ledger is gone, and a line that was torn off never counted.
    std::fs::remove_file(sandbox.path("work/.delta/r/budget.jsonl")).unwrap();
    assert!(limit(again(&sandbox, &["--max-tokens", "1000"])).contains("950 are used"));
    let text = sandbox.read("work/.delta/r/budget.jsonl");
    sandbox.write(
        "work/.delta/r/budget.jsonl",
        format!("{text}{{\"type\":\"use\",\"run_id\":\"r\",\"tok"),
    );
    assert!(limit(again(&sandbox, &[])).contains("950 are used"));
    let damaged = text.replacen("{\"type\":\"limits\"", "{\"type\":\"nothing\"", 1);
    sandbox.write("work/.delta/r/budget.jsonl", format!("{damaged}{text}"));
    let ran = again(&sandbox, &[]).expect_code(1);
    let error = ran.json()["error"]["message"].as_str().unwrap().to_owned();
    let path = sandbox.path("work/.delta/r/budget.jsonl");
    let begin =
        format!("the budget {} is damaged at line 1: unknown value `nothing`", path.display());
    assert!(error.starts_with(&begin), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn c_12_8_limits_of_options_hold_without_the_ledger() {
    for damage in ["rm budget.jsonl", ": > budget.jsonl", "echo nothing > budget.jsonl"] {
        let answers = vec![echo().usage(2600, 20), Answer::text("done").usage(2700, 10)];
        let (server, sandbox) = served(answers, "", "");
        let ran = sandbox.run("hello", &["--max-tokens", "3000", "--format", "json"]);
        assert!(limit(ran).contains("2620 are used"));
        let damage = format!("cd work/.delta/r && {damage}");
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", &damage]).current_dir(sandbox.path(""));
        assert!(shell.status().unwrap().success());
        let message = limit(again(&sandbox, &[]));
        assert!(message.starts_with("the limit of 3000 tokens"), "{damage}: {message}");
        assert!(message.contains("2620 are used, 380 are left"), "{damage}: {message}");
        assert_eq!(server.requests().len(), 1);
        assert_eq!(
            sandbox.events("ENGINE_START")[1]["config"]["limits"],
            json!({"max_tokens": 3000})
        );
        // A fork is another run: what options said to this one does not count for it.
        let fork = ["fork", "r", "-w", "work", "-m", "go on", "--format", "json"];
        sandbox.delta(fork).output().expect_code(0);
    }
}

#[test]
fn c_12_8_a_later_process_knows_the_tokens_of_the_request_before_and_another_model_does_not() {
    for (model, is_changed) in [("m", false), ("m", true), ("other", false)] {
        let answers = vec![Answer::text("one").usage(300, 20), Answer::text("two").usage(350, 10)];
        let (server, sandbox) = served(answers, "", "");
        sandbox.run("hello", &[]).expect_code(0);
        if is_changed {
            // A tool without a sandbox can write there.
            sandbox.unverified("its record is changed");
            let record = sandbox.events("THOUGHT")[0]["invocation"].as_str().unwrap().to_owned();
            let record = format!("work/.delta/r/{record}");
            let lower = sandbox.read(&record).replace("\"input_tokens\":300", "\"input_tokens\":1");
            assert_ne!(lower, sandbox.read(&record));
            sandbox.write(&record, lower);
        }
        again(&sandbox, &["--max-tokens", "9000", "--model", model]).expect_code(0);
        let bytes: Vec<usize> =
            server.requests().iter().map(|request| request.bytes.len()).collect();
        let reserved = &ledger(&sandbox).into_iter().find(|line| line["type"] == "reserve");
        let is_known = model == "m" && !is_changed;
        let bound = if is_known { 300 + bytes[1] - bytes[0] } else { bytes[1] };
        assert_eq!(reserved.as_ref().unwrap()["tokens"], bound + 50, "{model} {is_changed}");
    }
}

/// Without a reported usage a process went by an estimate, and the one that continued it by the bytes.
#[test]
fn c_12_8_a_process_that_continues_reserves_as_the_first_one_would_have() {
    let tool = "  - {name: asked, exec: echo x, approve: ask}\n";
    for has_usage in [false, true] {
        let reserved = |options: &[&str]| {
            let call = Answer::call("asked", json!({}));
            let call = if has_usage { call.usage(300, 20) } else { call };
            let (_server, sandbox) = served(vec![call, Answer::text("done")], "", tool);
            let ran = sandbox.run("hello", &[&["--max-tokens", "90000"], options].concat());
            if options.is_empty() {
                ran.expect_code(101);
                sandbox.delta(["approve", "r", "-w", "work"]).output().expect_code(0);
            } else {
                ran.expect_code(0);
            }
            let lines = ledger(&sandbox).into_iter().filter(|line| line["type"] == "reserve");
            lines.map(|line| line["tokens"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        let at_once = reserved(&["--approve-all"]);
        assert_eq!(at_once.len(), 2);
        assert_eq!(reserved(&[]), at_once, "{has_usage}");
    }
}

#[test]
fn c_12_8_time_that_is_over_ends_what_runs() {
    let answers = || vec![Answer::call("sleep", json!({})), Answer::text("done")];
    let (_server, sandbox) = served(answers(), "", "limits: {max_duration_ms: 300}\n");
    let ran = sandbox.run("hello", &["--format", "json"]);
    assert_eq!(limit(ran), "the time limit of 300ms has expired");
    let seen = sandbox.observations();
    assert_eq!(seen, ["[interrupted: the time limit of the run is over]"]);
    assert_eq!(sandbox.events("ENGINE_END")[0]["status"], "FAILED");
    let name = &sandbox.files("work/.delta/r/io/tool_executions")[0];
    let record = sandbox.read(&format!("work/.delta/r/io/tool_executions/{name}"));
    assert!(record.contains("\"ended\":\"out of time\""), "{record}");
    // The time is that of a process.
    assert_eq!(again(&sandbox, &["--max-duration", "10m"]).expect_code(0).json()["result"], "done");

    let (_server, sandbox) = served(vec![Answer::hang()], "", "");
    let ran = sandbox.run("hello", &["--max-duration", "300ms", "--format", "json"]);
    assert_eq!(limit(ran), "the time limit of 300ms has expired");
    let hint = sandbox.events("ERROR")[1]["error_details"]["hint"].clone();
    assert_eq!(
        hint,
        "continue with `-m`: the time starts again with each process; `--max-duration` sets the limit"
    );
}

#[test]
fn c_12_8_an_answer_that_broke_off_counts_its_request() {
    let broken = Answer::text("cut off in the middle").break_off(300).header("Retry-After", "0");
    let (server, sandbox) = served(vec![broken, Answer::text("done").usage(100, 5)], "", "");
    sandbox.run("hello", &["--max-tokens", "5000"]).expect_code(0);
    let read = server.requests()[0].bytes.len().div_ceil(4);
    let settled = ledger(&sandbox).into_iter().filter(|line| line["type"] == "settle");
    let settled: Vec<Value> = settled.map(|line| line["tokens"].clone()).collect();
    assert_eq!(settled, [json!(read), json!(105)]);
}

/// A stream whose answer has this usage and breaks off with an error.
fn billed_failure(input: u64, output: u64) -> Answer {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output});
    let piece = json!({"choices": [{"index": 0, "delta": {"content": "half"}}], "usage": usage});
    let error = json!({"error": {"message": "it broke", "code": 500}});
    Answer::event_stream(format!("data: {piece}\n\ndata: {error}\n\n"))
}

/// One reservation stood for all attempts of a call, so each retry could use as much once more.
#[test]
fn c_12_8_a_retry_that_could_exceed_a_limit_is_not_made() {
    let answers = || {
        vec![
            billed_failure(400, 50),
            Answer::error(503, "busy", None),
            billed_failure(400, 50),
            Answer::text("done").usage(400, 50),
        ]
    };
    let (server, sandbox) = served(answers(), "", "");
    let ran = sandbox.run("hello", &["--max-tokens", "90000", "--format", "json"]).expect_code(0);
    let bound = server.requests()[0].bytes.len() + 50;
    let seen = |sandbox: &Sandbox| {
        let lines = ledger(sandbox).into_iter();
        let name = |line: &Value| line["type"].as_str().unwrap().to_owned();
        lines.map(|line| (name(&line), line["tokens"].as_u64())).skip(1).collect::<Vec<_>>()
    };
    let reserve = ("reserve".to_owned(), Some(bound as u64));
    let settle = ("settle".to_owned(), Some(450));
    // An attempt that used nothing keeps what is reserved.
    let attempt = [reserve, settle];
    assert_eq!(seen(&sandbox), [attempt.clone(), attempt.clone(), attempt.clone()].concat());
    assert_eq!(ran.json()["metrics"]["usage"]["input_tokens"], 1200);

    let (server, sandbox) = served(answers(), "", "");
    let most = (450 + bound).to_string();
    let ran = sandbox.run("hello", &["--max-tokens", &most, "--format", "json"]);
    let used = &ran.json()["metrics"]["usage"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(800), &json!(100)));
    let message = limit(ran);
    let begin = format!("the limit of {most} tokens does not allow another call: 900 are used, ");
    assert!(message.starts_with(&begin), "{message}");
    assert_eq!(server.requests().len(), 3);
    assert_eq!(seen(&sandbox), [attempt.clone(), attempt].concat());
    // The next process knows all of it.
    assert!(limit(again(&sandbox, &[])).contains(": 900 are used, "));

    let pricing = "\n  pricing: {input: 10, output: 1000}";
    let (server, sandbox) = served(answers(), pricing, "");
    let ran = sandbox.run("hello", &["--max-cost", "0.1", "--format", "json"]);
    let begin = "the limit of 0.1 USD does not allow another call: 0.054 are used, 0.046 are left";
    let message = limit(ran);
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(server.requests().len(), 1);
}

/// Gateways of Claude count the request without what the cache has read and written.
#[test]
fn c_12_8_cached_tokens_that_are_not_in_the_count_of_the_request_count() {
    let usage = json!({
        "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 5000},
    });
    let answer = |text: u8| Answer::call("echo", json!({"text": text.to_string()}));
    let answers = (0..9).map(|text| answer(text).usage_of(&usage)).collect();
    let (server, sandbox) = served(answers, "", "");
    let ran = sandbox.run("hello", &["--max-tokens", "16000", "--format", "json"]);
    let message = limit(ran);
    assert!(message.contains(": 15045 are used, "), "{message}");
    assert_eq!(server.requests().len(), 3);
    let used = &sandbox.events("THOUGHT")[0]["usage"];
    assert_eq!((&used["input_tokens"], &used["cached_input_tokens"]), (&json!(5010), &json!(5000)));
}

/// Ollama counts 0 tokens of a request that it has in its cache.
#[test]
fn c_12_8_a_request_of_zero_tokens_is_estimated() {
    let usage = json!({"prompt_tokens": 0, "completion_tokens": 7, "total_tokens": 7});
    let pricing = "\n  pricing: {input: 4, output: 1000}";
    let (server, sandbox) = served(vec![Answer::text("done").usage_of(&usage)], pricing, "");
    sandbox.run("hello", &["--max-tokens", "5000"]).expect_code(0);
    let read = server.requests()[0].bytes.len().div_ceil(4);
    assert_eq!(ledger(&sandbox).last().unwrap()["tokens"], json!(read + 7));
    let used = &sandbox.events("THOUGHT")[0]["usage"];
    assert_eq!((&used["input_tokens"], &used["output_tokens"]), (&json!(read), &json!(7)));
    let cost = (read * 4 + 7 * 1000) as f64 / 1e6;
    assert!((used["cost_usd"].as_f64().unwrap() - cost).abs() < 1e-9, "{used}");
}

#[test]
fn c_12_8_a_limit_that_cannot_be_is_refused() {
    let (server, sandbox) = served(vec![], "", "");
    for (flag, value, help) in [
        ("--max-cost", "1,50", "expected an amount in US dollars, such as 1.50"),
        ("--max-cost", "-1", "expected an amount in US dollars, such as 1.50"),
        ("--max-tokens", "0", "expected a whole number from 1 to 9007199254740991"),
        ("--max-tokens", "1K", "expected a whole number from 1 to 9007199254740991"),
        ("--max-duration", "0s", "expected a time from 1ms to 12725d"),
        ("--max-duration", "1.5", "expected a time with a unit, such as 90s, 10m, 2h or 3d"),
        ("--max-duration", "90", "a time needs a unit: write 90s, or 90ms for milliseconds"),
    ] {
        let ran = sandbox.run("hello", &[&format!("{flag}={value}")]).expect_code(2);
        assert!(ran.stderr.contains(help) && ran.stderr.contains(flag), "{}", ran.stderr);
    }
    let ran = sandbox.run("hello", &["--max-cost", "1"]).expect_code(126);
    assert_eq!(
        ran.stderr,
        "error: `--max-cost` requires the price of m\nhelp: write the price of tokens into `llm:`, in USD per million, such as `pricing: {input: 2.5, output: 10}`; zeros if the model is free; or name a price file in DELTA_PRICES; `delta models prices --fetch URL` fetches a list\n"
    );
    sandbox.write(
        "agent/agent.yaml",
        "name: a\nllm: {model: m, base_url: 'http://localhost:1'}\nlimits:\n  max_cost: 1\n  max_tokens: 0\n  max_time: 1\n",
    );
    let ran = sandbox.run("hello", &[]).expect_code(126);
    for line in [
        "`max_tokens` must be a whole number from 1 to 9007199254740991",
        "unknown key `max_time` in `limits`",
    ] {
        assert!(ran.stderr.contains(line), "{line}:\n{}", ran.stderr);
    }
    assert_eq!((server.requests().len(), sandbox.path("work").exists()), (0, false));
}

#[test]
fn c_12_8_an_answer_without_a_limit_of_its_own_is_taken_to_be_4096_tokens_long() {
    let server = ScriptedServer::start(vec![Answer::text("done")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    let ran = sandbox.run("hello", &["--max-tokens", "4000", "--format", "json"]);
    let note = "Note: without `llm.max_tokens` or `max_output` in `llm.pricing`, the limits assume answers of at most 4096 tokens; a longer answer may exceed them\n";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert!(limit(ran).ends_with("and 4096 for the answer)"));
    assert_eq!(server.requests().len(), 0);
}
