//! What a run marks for the cache of `provider: anthropic`.

use super::{agent_of, records};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

fn echo(text: &str) -> Answer {
    Answer::call("echo", json!({"text": text}))
}

fn answers() -> Vec<Answer> {
    vec![echo("one"), echo("two"), Answer::text("done")]
}

/// The texts of the marked blocks of a request, `system` for a block of the system prompt.
fn marked_blocks(body: &Value) -> Vec<String> {
    let is_marked = |block: &&Value| block.get("cache_control").is_some();
    let system = body["system"].as_array().into_iter().flatten().filter(is_marked);
    let system = system.map(|_| "system".to_owned());
    let messages = body["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    let texts = blocks.filter(is_marked).map(|block| {
        let text = block["text"].as_str().or(block["content"].as_str());
        text.unwrap().trim().to_owned()
    });
    system.chain(texts).collect()
}

fn marked(server: &ScriptedServer) -> Vec<Vec<String>> {
    server.requests().iter().map(|request| marked_blocks(&request.body)).collect()
}

fn run(sandbox: &Sandbox, options: &[&str]) {
    let ran = sandbox.run_command("task", options).env("ANTHROPIC_API_KEY", "k").output();
    ran.expect_code(0);
}

#[test]
fn c_23_1_what_the_last_request_showed_to_be_stable_is_marked() {
    let server = ScriptedServer::start(answers());
    let sandbox = agent_of("anthropic", &server, "");
    run(&sandbox, &[]);
    let expected =
        [vec!["system", "task"], vec!["system", "task", "one"], vec!["system", "one", "two"]];
    assert_eq!(marked(&server), expected);
    let options = &records(&sandbox)[2]["wire"]["options"]["cache"];
    assert_eq!(*options, json!({"blocks": [0, 3, 5], "lifetime": "5m"}));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn c_23_1_the_operator_of_the_agent_chooses_how_long_or_never() {
    for (llm, ttl) in [
        ("\n  cache: off", None),
        ("\n  cache: auto", Some(Value::Null)),
        ("\n  cache: {ttl: 5m}", Some(Value::Null)),
        ("\n  cache: {ttl: 1h}", Some(json!("1h"))),
    ] {
        let server = ScriptedServer::start(vec![Answer::text("done")]);
        let sandbox = agent_of("anthropic", &server, llm);
        run(&sandbox, &[]);
        let body = &server.requests()[0].body;
        let marker = body["system"][0].get("cache_control");
        assert_eq!(marker.map(|marker| marker["ttl"].clone()), ttl, "{llm}");
        assert!(body.get("cache").is_none(), "{llm}");
    }
}

#[test]
fn c_8_6_the_cost_of_a_difference_follows_what_the_request_marked() {
    for (cache, cached, fresh) in
        [("auto", 1.0, 12.5), ("{ttl: 1h}", 1.0, 20.0), ("off", 10.0, 10.0)]
    {
        let server = ScriptedServer::start(answers());
        let prices = "{input: 10, cached_input: 1, output: 30}";
        let llm = format!("\n  cache: {cache}\n  pricing: {prices}");
        let sandbox = agent_of("anthropic", &server, &llm);
        run(&sandbox, &[]);
        let args = ["context", "diff", "r", "1", "2", "-w", "work", "--format", "json"];
        let diff = sandbox.delta(args).output().expect_code(0).json();
        for (part, price) in [("cacheable", cached), ("behind", fresh)] {
            let tokens = diff[part]["tokens"].as_f64().unwrap();
            let cost = diff["cost_usd"][part].as_f64().unwrap();
            assert!((cost - tokens * price / 1e6).abs() < 1e-12, "{cache}, {part}: {diff}");
        }
    }
}

#[test]
fn c_23_1_a_cache_of_another_kind_is_an_error_of_the_file() {
    let server = ScriptedServer::start(Vec::<Answer>::new());
    for llm in ["\n  cache: always", "\n  cache: {ttl: 2h}"] {
        let sandbox = agent_of("anthropic", &server, llm);
        let ran = sandbox.run_command("task", &[]).env("ANTHROPIC_API_KEY", "k").output();
        assert!(ran.expect_code(126).stderr.contains("cache"), "{llm}");
    }
}

#[test]
fn c_23_1_a_later_process_begins_with_what_the_records_show() {
    let server = ScriptedServer::start(
        answers().into_iter().chain([Answer::text("again")]).collect::<Vec<_>>(),
    );
    let sandbox = agent_of("anthropic", &server, "");
    run(&sandbox, &[]);
    let ran = sandbox.delta(["continue", "--run-id", "r", "-w", "work", "-m", "more"]);
    ran.env("ANTHROPIC_API_KEY", "k").output().expect_code(0);
    assert_eq!(marked(&server)[3], ["system", "two", "more"]);
}

#[test]
fn c_23_1_an_endpoint_that_reports_no_hit_is_not_paid_twice() {
    let write = |answer: Answer, written: u64| {
        answer.usage_of(&json!({
            "prompt_tokens": 4000 + written, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": written},
        }))
    };
    let server =
        ScriptedServer::start(vec![write(echo("one"), 400_000), echo("two"), Answer::text("done")]);
    let sandbox = agent_of("anthropic", &server, "");
    run(&sandbox, &[]);
    let marked = marked(&server);
    assert_eq!(marked[0], ["system", "task"]);
    assert!(marked[1].len() <= 1 && !marked[1].contains(&"one".to_owned()), "{marked:?}");
}
