//! `llm.fallback`: the models that are asked when the one before does not answer.

use super::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, ScriptedServer};

const PRICED: &str = "{model: second, pricing: {input: 1000, output: 2000}}";

/// An agent of the model `first` with this `fallback`, which tries no call again.
fn agent(server: &ScriptedServer, fallback: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let llm = format!(
        "model: first\n  max_retries: 0\n  base_url: {}\n  fallback: {fallback}",
        server.url()
    );
    sandbox.agent(&llm, "  - name: echo\n    exec: echo ${text}\n");
    sandbox
}

/// The models that the server was asked for.
fn models(server: &ScriptedServer) -> Vec<String> {
    let requests = server.requests().into_iter();
    requests.map(|request| request.body["model"].as_str().unwrap().to_owned()).collect()
}

fn next(sandbox: &Sandbox, more: &[&str]) -> Delta {
    sandbox.delta(["continue", "r", "-w", "work"].iter().chain(more).copied())
}

/// The changes of the model that the journal has.
fn changes(sandbox: &Sandbox) -> Vec<Value> {
    let errors = sandbox.events("ERROR").into_iter();
    let details = errors.map(|event| event["error_details"].clone());
    details.filter(|details| details["type"] == "fallback").collect()
}

#[test]
fn c_37_10_the_next_model_answers_where_the_one_before_does_not() {
    let server = ScriptedServer::start(vec![
        Answer::error(529, "overloaded", None),
        Answer::error(404, "no such model", Some("model_not_found")),
        Answer::call("echo", json!({"text": "hello"})),
        Answer::text("done"),
        Answer::text("done again"),
    ]);
    let sandbox = agent(&server, "[second, third]");
    let ran = sandbox.run("hi", &["-q", "--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(models(&server), ["first", "second", "third", "third"]);
    let changes = changes(&sandbox);
    let change = |number, from, model, reason| json!({"number": number, "from": from, "model": model, "provider": "openai", "reason": reason});
    assert_eq!(changes[0]["fallback"], change(1, "first", "second", "overloaded"));
    assert_eq!(changes[1]["fallback"], change(2, "second", "third", "gone"));
    assert_eq!(changes[0]["status"], 529);
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert!(lines[0].starts_with("! first: the endpoint answered 529"), "{lines:?}");
    assert!(lines[0].ends_with("; second is asked in its place"), "{lines:?}");
    assert!(lines[1].ends_with("; third is asked in its place"), "{lines:?}");
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    assert!(shown.stdout.contains("third is asked in its place"), "{}", shown.stdout);
    assert_eq!(sandbox.events("THOUGHT")[0]["usage"]["model"], "third");
    // The first model gets the next message.
    next(&sandbox, &["-m", "again"]).output().expect_code(0);
    assert_eq!(models(&server)[4], "first");
}

#[test]
fn c_37_10_only_what_another_model_may_do_better_changes_it() {
    let quota = |status| Answer::error(status, "no money", Some("insufficient_quota"));
    let cases = [
        (Answer::error(429, "slow down", None), Some("overloaded")),
        (Answer::error(503, "busy", None), Some("overloaded")),
        (
            Answer::event_stream("data: {\"error\": {\"message\": \"Overloaded\"}}\n\n"),
            Some("overloaded"),
        ),
        (quota(429), Some("out_of_quota")),
        (Answer::error(402, "pay", None), Some("out_of_quota")),
        (Answer::error(404, "not found", None), Some("gone")),
        (Answer::error(500, "broken", None), Some("gone")),
        (Answer::close(), Some("gone")),
        (Answer::text("cut off in the middle").break_off(300), Some("gone")),
        (Answer::error(400, "wrong", None), None),
        (Answer::error(401, "who?", None), None),
        (Answer::error(400, "maximum context length", None), None),
    ];
    for (number, (answer, reason)) in cases.into_iter().enumerate() {
        let server = ScriptedServer::start(vec![answer, Answer::text("done")]);
        let sandbox = agent(&server, "[second]");
        sandbox.run("hi", &[]).expect_code(i32::from(reason.is_none()));
        let changes = changes(&sandbox);
        let reasons: Vec<_> = changes.iter().map(|change| &change["fallback"]["reason"]).collect();
        assert_eq!(reasons, Vec::from_iter(reason), "case {number}");
    }
}

#[test]
fn c_37_10_a_server_that_does_not_run_is_gone() {
    let server = ScriptedServer::start(vec![Answer::text("done")]);
    let sandbox = Sandbox::new(DELTA);
    // Nothing listens at the discard port.
    let llm = format!(
        "model: first\n  max_retries: 0\n  base_url: http://127.0.0.1:9/v1\n  fallback: [{{model: second, base_url: {}}}]",
        server.url()
    );
    sandbox.agent(&llm, "");
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(changes(&sandbox)[0]["fallback"]["reason"], "gone");
    assert_eq!(models(&server), ["second"]);
}

#[test]
fn c_37_10_a_run_goes_on_with_the_model_that_its_journal_names() {
    let server = ScriptedServer::start(vec![
        Answer::error(503, "busy", None),
        Answer::call("ask_human", json!({"prompt": "Really?"})),
        Answer::text("done"),
    ]);
    let sandbox = agent(&server, "[second]");
    sandbox.run("hi", &[]).expect_code(101);
    next(&sandbox, &["-m", "yes"]).output().expect_code(0);
    assert_eq!(models(&server), ["first", "second", "second"]);
}

#[test]
fn c_37_10_after_the_last_model_the_run_has_failed_and_begins_with_the_first() {
    let busy = |_| Answer::error(503, "busy", None);
    let answers = [0; 2].map(busy).into_iter().chain([Answer::text("done")]);
    let server = ScriptedServer::start(answers.collect::<Vec<_>>());
    let sandbox = agent(&server, "[second]");
    sandbox.run("hi", &[]).expect_code(1);
    next(&sandbox, &[]).output().expect_code(0);
    assert_eq!(models(&server), ["first", "second", "first"]);
}

/// With a time limit, delta waits for an endpoint that throttles: not where another model can answer.
#[test]
fn c_37_10_a_time_limit_does_not_make_the_run_wait_for_the_first_model() {
    let throttled = || Answer::error(429, "slow down", None).header("retry-after-ms", "0");
    let server = ScriptedServer::start(vec![throttled(), Answer::text("done")]);
    let sandbox = agent(&server, "[second]");
    sandbox.run("hi", &["--max-duration", "10m"]).expect_code(0);
    assert_eq!(models(&server), ["first", "second"]);
}

#[test]
fn c_37_10_a_long_pause_of_the_first_model_is_not_waited_for() {
    let throttled = Answer::error(429, "slow down", None).header("retry-after", "120");
    let server = ScriptedServer::start(vec![throttled, Answer::text("done")]);
    let sandbox = agent(&server, "[second]");
    let agent_yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", agent_yaml.replace("max_retries: 0", "max_retries: 5"));
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(models(&server), ["first", "second"]);
    assert_eq!(changes(&sandbox)[0]["fallback"]["reason"], "overloaded");
}

#[test]
fn c_37_10_prices_and_budgets_are_those_of_the_model_that_answers() {
    let server =
        ScriptedServer::start(vec![Answer::error(503, "busy", None), Answer::text("done")]);
    let sandbox = agent(&server, &format!("[{PRICED}]"));
    let agent_yaml = sandbox.read("agent/agent.yaml");
    sandbox.write(
        "agent/agent.yaml",
        agent_yaml.replace("  fallback", "  pricing: {input: 1, output: 1}\n  fallback"),
    );
    let ran = sandbox.run("hi", &["--max-cost", "100", "--format", "json"]).expect_code(0);
    let used = &ran.json()["metrics"]["usage"]["model_usage"];
    assert_eq!(used["second"]["cost_usd"], json!(0.025), "{used}");
    let budget = sandbox.read("work/.delta/r/budget.jsonl");
    assert!(
        budget.lines().any(|line| line.contains("\"settle\"") && line.contains("0.025")),
        "{budget}"
    );
}

#[test]
fn c_37_10_a_model_without_a_price_is_an_error_before_the_run() {
    let server = ScriptedServer::start(Vec::new());
    let sandbox = agent(&server, "[second]");
    let agent_yaml = sandbox.read("agent/agent.yaml");
    sandbox.write(
        "agent/agent.yaml",
        agent_yaml.replace("  fallback", "  pricing: {input: 1, output: 1}\n  fallback"),
    );
    let ran = sandbox.run("hi", &["--max-cost", "1"]).expect_code(126);
    assert!(ran.stderr.contains("`--max-cost` requires the price of second"), "{}", ran.stderr);
    assert!(!sandbox.path("work/.delta").exists());
}

#[test]
fn c_37_10_the_key_of_a_model_goes_to_its_own_endpoint_alone() {
    let first = ScriptedServer::start(vec![Answer::error(503, "busy", None)]);
    let second =
        ScriptedServer::start(vec![Answer::call("variables", json!({})), Answer::text("done")]);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!(
        "model: first\n  max_retries: 0\n  base_url: {}\n  fallback: [{{model: second, base_url: {}, api_key_env: SECOND}}]",
        first.url(),
        second.url()
    );
    sandbox.agent(&llm, "  - name: variables\n    shell: env; echo the-second-secret\n");
    let command = sandbox.run_command("hi", &[]);
    let command = command.env("OPENAI_API_KEY", "the-first-secret");
    command.env("SECOND", "the-second-secret").output().expect_code(0);
    for (server, key) in [(&first, "the-first-secret"), (&second, "the-second-secret")] {
        let requests = server.requests();
        let expected = format!("Bearer {key}");
        assert!(requests.iter().all(|it| it.header("authorization") == Some(&*expected)), "{key}");
    }
    let observation = &sandbox.observations()[0];
    assert!(observation.contains("PATH="), "{observation}");
    assert!(!observation.contains("secret") && !observation.contains("SECOND="), "{observation}");
}

#[test]
fn c_37_10_mistakes_in_the_list_are_found_before_the_run() {
    for (llm, message) in [
        ("model: m\n  fallback: [\"\"]", "`fallback` is empty"),
        ("model: m\n  fallback: [{provider: anthropic}]", "`llm` has no `model`"),
        ("model: m\n  fallback: [{model: a, timeout_ms: x}]", "`timeout_ms`"),
        (
            "model: m\n  fallback: [{model: a, fallback: [b]}]",
            "an entry of `fallback` has no `fallback`",
        ),
        (
            "model: m\n  fallback: [{model: a, provider: script}]",
            "requires the provider of an endpoint, found `script`",
        ),
        ("model: m\n  fallback: b", "`fallback`"),
        ("model: m\n  fallback: [{model: a, on_empty: fail}]", "`on_empty` applies to all models"),
        ("model: m\n  fallback: [{model: a, api_key: sk-x}]", "`api_key`"),
        (
            "model: m\n  fallback: [{model: a, base_url: 'https://u:pass@h.example/v1'}]",
            "the address contains",
        ),
        ("model: m\n  fallback: [{model: a, temprature: 1}]", "did you mean `temperature`?"),
        (
            "provider: script\n  model: s.yaml\n  fallback: [b]",
            "`fallback` requires the provider of an endpoint",
        ),
    ] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("agent/s.yaml", "turns:\n  - say: x\n");
        sandbox.agent(llm, "");
        let ran = sandbox.delta(["tool", "lint", "agent"]).output();
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert_ne!(ran.code, 0, "{llm}");
        assert!(text.contains(message), "{llm}: {text}");
    }
}

/// Of `gpt-4o` and `gpt-4o-mini`, the table in the program has the prices.
#[test]
fn c_35_1_every_model_of_a_fallback_has_its_built_in_price() {
    for limit in [&[][..], &["--max-cost", "5"]] {
        let answers =
            vec![Answer::error(503, "busy", None), Answer::text("done").usage(1_000_000, 100_000)];
        let server = ScriptedServer::start(answers);
        let sandbox = agent(&server, "[gpt-4o-mini]");
        let agent_yaml = sandbox.read("agent/agent.yaml");
        sandbox.write(
            "agent/agent.yaml",
            agent_yaml.replace("first\n", "gpt-4o\n  max_tokens: 100\n"),
        );
        let options = [&["--format", "json"], limit].concat();
        let ran = sandbox.run("hi", &options).expect_code(0);
        assert_eq!(models(&server), ["gpt-4o", "gpt-4o-mini"]);
        // USD 0.15 for a million tokens of the request, 0.60 of the answer.
        let used = &ran.json()["metrics"]["usage"];
        assert_eq!(used["model_usage"]["gpt-4o-mini"]["cost_usd"], json!(0.21), "{used}");
        let llm = sandbox.events("ENGINE_START")[0]["config"]["llm"].clone();
        for (model, name) in [(&llm, "gpt-4o"), (&llm["fallback"][0], "gpt-4o-mini")] {
            let pricing = &model["pricing"];
            assert_eq!((&pricing["from"], &pricing["entry"]), (&json!("built-in"), &json!(name)));
        }
        let prices: Value =
            serde_json::from_str(&sandbox.read("work/.delta/r/prices.json")).unwrap();
        assert_eq!(prices["127.0.0.1 gpt-4o"]["pricing"], llm["pricing"]);
        assert_eq!(prices["127.0.0.1 gpt-4o-mini"]["pricing"], llm["fallback"][0]["pricing"]);
        let ledger = sandbox.path("work/.delta/r/budget.jsonl");
        assert_eq!(ledger.exists(), !limit.is_empty());
        if !limit.is_empty() {
            let budget = std::fs::read_to_string(ledger).unwrap();
            let is_settled = |line: &str| line.contains("\"settle\"") && line.contains("0.21");
            assert!(budget.lines().any(is_settled), "{budget}");
        }
    }
}

#[test]
fn c_35_3_a_run_below_has_the_price_of_any_model_of_its_parent() {
    let server = ScriptedServer::start(vec![
        Answer::call("ask", json!({})),
        Answer::text("inner").usage(100, 0),
        Answer::text("outer"),
    ]);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: first\n  base_url: {}\n  fallback: [{PRICED}]", server.url());
    let ask = format!(
        "  - name: ask\n    exec: {DELTA} run --agent ${{CWD}}/inner -w ${{CWD}} -q --run-id inner -m go\n"
    );
    sandbox.agent(&llm, &ask);
    let inner =
        format!("name: inner\nllm:\n  model: second\n  base_url: {}\ntools: []\n", server.url());
    sandbox.write("work/inner/agent.yaml", inner);
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("work/inner/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    sandbox.run("hi", &[]).expect_code(0);
    let journal = sandbox.read("work/.delta/inner/journal.jsonl");
    let start: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    let pricing = &start["config"]["llm"]["pricing"];
    assert_eq!((&pricing["from"], &pricing["run_id"]), (&json!("parent"), &json!("r")));
    assert_eq!(pricing["input"], 1000.0);
}
