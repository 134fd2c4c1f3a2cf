//! What calls cost, and where the prices come from (C-23.3).

use super::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// An answer whose usage is 1,000 tokens in, of them 600 cached and 300 written, and 50 out, of them 20 reasoning.
fn detailed_answer() -> Answer {
    let usage = json!({
        "prompt_tokens": 1000, "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 300},
        "completion_tokens_details": {"reasoning_tokens": 20},
    });
    let message = json!({"role": "assistant", "content": "ok"});
    let body = json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage});
    Answer::raw(200, body.to_string())
}

/// An agent with `llm` that asks a server once.
fn asks_once(llm: &str) -> (ScriptedServer, Sandbox) {
    let server = ScriptedServer::start(vec![detailed_answer()]);
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  stream: false\n  base_url: {}{llm}", server.url()), "");
    (server, sandbox)
}

/// With an own key, OpenRouter's figure is what it charges itself, mostly nothing.
#[test]
fn c_12_7_the_cost_with_an_own_key_has_what_the_vendor_bills() {
    let cost_of = |details: Value| {
        let mut usage = json!({"prompt_tokens": 100, "completion_tokens": 20, "cost": 0.0625});
        usage.as_object_mut().unwrap().extend(details.as_object().unwrap().clone());
        let server = ScriptedServer::start(vec![Answer::text("ok").usage_of(&usage)]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), "");
        let ran = sandbox.run("hi", &["--format", "json"]).expect_code(0);
        ran.json()["metrics"]["usage"]["total_cost_usd"].clone()
    };
    let upstream = json!({"upstream_inference_cost": 0.25});
    assert_eq!(cost_of(json!({"is_byok": true, "cost_details": upstream})), 0.3125);
    assert_eq!(cost_of(json!({"is_byok": false, "cost_details": upstream})), 0.0625);
    assert_eq!(cost_of(json!({"cost_details": upstream})), 0.0625);
    assert_eq!(cost_of(json!({"is_byok": true, "cost_details": null})), Value::Null);
}

#[test]
fn c_23_3_the_cost_counts_what_was_written_to_the_cache_and_reasoned() {
    let pricing = "\n  pricing: {input: 1000, cached_input: 100, cache_write: 2000, output: 10000, reasoning: 20000}";
    let (_server, sandbox) = asks_once(pricing);
    let ran = sandbox.run("hi", &["--format", "json"]).expect_code(0);
    // 100 fresh, 600 cached, 300 written, 30 out, 20 reasoned.
    let cost = json!(0.1 + 0.06 + 0.6 + 0.3 + 0.4);
    let used = &ran.json()["metrics"]["usage"]["model_usage"]["m"];
    let counts = json!({
        "input_tokens": 1000, "cached_input_tokens": 600, "output_tokens": 50, "cost_usd": cost,
        "cache_write_tokens": 300, "reasoning_tokens": 20,
    });
    assert_eq!(used, &counts);
    let summary = "1000 tokens in (60% cached, 30% written to the cache), 50 out, 1.4600 USD";
    assert!(ran.stderr.contains(summary), "{}", ran.stderr);

    let thought = &sandbox.events("THOUGHT")[0]["usage"];
    assert_eq!(
        (&thought["cache_write_tokens"], &thought["reasoning_tokens"]),
        (&json!(300), &json!(20))
    );
    let end = &sandbox.events("ENGINE_END")[0]["usage"];
    assert_eq!((&end["cache_write_tokens"], &end["reasoning_tokens"]), (&json!(300), &json!(20)));
    let listed = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output().json();
    assert_eq!(
        (&listed[0]["cache_write_tokens"], &listed[0]["reasoning_tokens"]),
        (&json!(300), &json!(20))
    );

    let export = |format: &str| {
        sandbox.delta(["export", "r", "-w", "work", "--to", format]).output().expect_code(0)
    };
    let trajectory = export("atif").json();
    let extra = json!({"cache_write_tokens": 300, "reasoning_tokens": 20});
    assert_eq!(trajectory["final_metrics"]["extra"], extra);
    assert_eq!(trajectory["steps"].as_array().unwrap().last().unwrap()["metrics"]["extra"], extra);
    let spans = export("otlp").stdout;
    for attribute in [
        r#"{"key":"gen_ai.usage.cache_creation.input_tokens","value":{"intValue":"300"}}"#,
        r#"{"key":"gen_ai.usage.reasoning.output_tokens","value":{"intValue":"20"}}"#,
    ] {
        assert_eq!(spans.matches(attribute).count(), 1, "{spans}");
    }
    assert!(export("markdown").stdout.contains("| `m` | 1000 | 600 | 300 | 50 | 20 | 1.4600 |"));
}

#[test]
fn c_23_3_a_limit_reserves_the_dearest_kind_of_input() {
    let reserved = |pricing: &str| {
        let (server, sandbox) = asks_once(&format!("\n  max_tokens: 50\n  pricing: {pricing}"));
        sandbox.run("hi", &["--max-cost", "100000"]).expect_code(0);
        let ledger = sandbox.read("work/.delta/r/budget.jsonl");
        let lines = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let amounts: Vec<f64> = lines.filter_map(|line| line["cost_usd"].as_f64()).collect();
        (amounts, server.requests()[0].bytes.len() as f64)
    };
    let close = |one: f64, other: f64| (one - other).abs() < 1e-6;
    let (amounts, bytes) =
        reserved("{input: 1000, cached_input: 100, cache_write: 2000, output: 10000}");
    assert!(close(amounts[0], bytes * 0.002 + 0.5), "{amounts:?} {bytes}");
    assert!(close(amounts[1], 0.1 + 0.06 + 0.6 + 0.5), "{amounts:?}");
    // A tier that the request may reach, and one that it cannot.
    let (amounts, bytes) = reserved(
        "{input: 1000, output: 10000, above: [{tokens: 100, input: 3000}, {tokens: 1M, input: 9000}]}",
    );
    assert!(close(amounts[0], bytes * 0.003 + 0.5), "{amounts:?} {bytes}");
    assert!(close(amounts[1], 3.0 + 0.5), "{amounts:?}");
}

/// A price file with the model `m`: 1,000 USD per million tokens of input, 100 cached, 2,000 written, 10,000 out.
const PRICES: &str = r#"{
  "sample_spec": {"input_cost_per_token": 0.0, "max_tokens": "LEGACY", "mode": "one of: chat"},
  "m": {"input_cost_per_token": 1e-03, "cache_read_input_token_cost": 1e-04, "cache_creation_input_token_cost": "2e-03",
        "output_cost_per_token": 1e-02, "max_output_tokens": 700, "litellm_provider": "openai", "mode": "chat"},
  "m-2025-01-01": {"input_cost_per_token": 1, "output_cost_per_token": 1, "litellm_provider": "openai", "mode": "chat"}
}"#;

/// Runs the agent of `sandbox` with the price file in DELTA_PRICES.
fn run_priced(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.write("prices.json", PRICES);
    let prices = sandbox.path("prices.json");
    sandbox.run_command("hi", more).env("DELTA_PRICES", prices).output()
}

fn recorded_prices(sandbox: &Sandbox) -> Value {
    sandbox.events("ENGINE_START").last().unwrap()["config"]["llm"]["pricing"].clone()
}

#[test]
fn c_23_3_prices_come_from_the_file_of_the_operator() {
    let (_server, sandbox) = asks_once("");
    let ran = run_priced(&sandbox, &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["total_cost_usd"], json!(1.26));
    let sha256 = delta_base::hex::sha256_hex(PRICES);
    let expected = json!({
        "from": "file", "sha256": sha256, "model": "m", "input": 1000.0, "cached_input": 100.0,
        "cache_write": 2000.0, "output": 10000.0, "reasoning": 10000.0, "max_output": 700,
    });
    assert_eq!(recorded_prices(&sandbox), expected);

    // In config.yaml, relative to it.
    let (_server, sandbox) = asks_once("");
    sandbox.write("home/.config/delta/prices.json", PRICES);
    sandbox.write("home/.config/delta/config.yaml", "pricing: prices.json\n");
    let ran = sandbox.run("hi", &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["total_cost_usd"], json!(1.26));
    let listed = sandbox.delta(["config"]).output().expect_code(0).stdout;
    let line = listed.lines().find(|line| line.starts_with("pricing ")).unwrap();
    assert!(
        line.contains("/home/.config/delta/prices.json ") && line.ends_with("config.yaml:1"),
        "{line}"
    );

    // Never from a file that others may have written.
    let (_server, sandbox) = asks_once("");
    sandbox.write("prices.json", PRICES);
    let path = sandbox.path("prices.json");
    sandbox.write("agent/.env", format!("DELTA_PRICES={}\n", path.display()));
    let ran = sandbox.run("hi", &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["total_cost_usd"], Value::Null);
}

#[test]
fn c_23_3_the_prices_of_the_agent_win_and_the_bill_of_the_endpoint_beats_the_file() {
    let (_server, sandbox) = asks_once("\n  pricing: {input: 1, output: 0}");
    let ran = run_priced(&sandbox, &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["total_cost_usd"], json!(0.001));
    let prices = recorded_prices(&sandbox);
    // What the agent does not say is from the file.
    assert_eq!((&prices["from"], &prices["max_output"]), (&json!("agent"), &json!(700)));

    let body = json!({
        "choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "cost": 0.5},
    });
    let server = ScriptedServer::start(vec![Answer::raw(200, body.to_string())]);
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  stream: false\n  base_url: {}", server.url()), "");
    let ran = run_priced(&sandbox, &["--format", "json", "--max-cost", "100000"]).expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["total_cost_usd"], json!(0.5));
    let ledger = sandbox.read("work/.delta/r/budget.jsonl");
    assert!(ledger.lines().last().unwrap().contains("\"cost_usd\":0.5"), "{ledger}");
}

#[test]
fn c_8_6_a_difference_of_requests_costs_what_the_price_file_said() {
    let answers = vec![Answer::call("again", json!({})).no_usage(), Answer::text("ok").no_usage()];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!("model: m\n  base_url: {}", server.url());
    sandbox.agent(&llm, "  - {name: again, exec: echo again}\n");
    run_priced(&sandbox, &[]).expect_code(0);
    let args = ["context", "diff", "r", "1", "2", "-w", "work", "--format", "json"];
    let diff = sandbox.delta(args).output().expect_code(0).json();
    for (part, price) in [("cacheable", 100.0), ("behind", 2000.0)] {
        let tokens = diff[part]["tokens"].as_f64().unwrap();
        assert!(tokens > 0.0);
        assert!(
            (diff["cost_usd"][part].as_f64().unwrap() - tokens * price / 1e6).abs() < 1e-9,
            "{diff}"
        );
    }
}

#[test]
fn c_23_3_ensure_needs_no_file_for_a_run_that_has_prices() {
    let server = ScriptedServer::start(vec![Answer::call("die", json!({})), detailed_answer()]);
    let sandbox = Sandbox::new(DELTA);
    let tools = "  - {name: die, shell: 'kill -9 $PPID; sleep 10'}\n";
    sandbox.agent(&format!("model: m\n  stream: false\n  base_url: {}", server.url()), tools);
    assert_eq!(run_priced(&sandbox, &["--ensure"]).code, -1);
    let ran = sandbox.run("hi", &["--ensure", "--format", "json"]).expect_code(0);
    let used = &ran.json()["metrics"]["usage"]["model_usage"]["m"];
    assert!(used["cost_usd"].as_f64().unwrap() > 1.0, "{used}");
}

#[test]
fn c_23_3_ensure_needs_no_file_for_a_run_with_a_limit() {
    let server = ScriptedServer::start(vec![Answer::call("die", json!({})), detailed_answer()]);
    let sandbox = Sandbox::new(DELTA);
    let tools = "  - {name: die, shell: 'kill -9 $PPID; sleep 10'}\n";
    let llm = "model: m\n  stream: false\n  base_url: ";
    sandbox.agent(&format!("{llm}{}\nlimits: {{max_cost: 100000}}", server.url()), tools);
    // Without prices no run begins.
    let ensure = ["--ensure", "--format", "json"];
    let refused = sandbox.run("hi", &ensure).expect_code(126);
    assert!(refused.stderr.contains("`max_cost` requires the price of m\n"), "{}", refused.stderr);
    assert!(!sandbox.path("work").exists());
    assert_eq!(run_priced(&sandbox, &["--ensure"]).code, -1);
    let ran = sandbox.run("hi", &ensure).expect_code(0).json();
    assert_eq!(
        ran["metrics"]["usage"]["total_cost_usd"].as_f64().map(|cost| cost > 1.0),
        Some(true)
    );
    // The stored result needs no price, and costs no request.
    let stored = sandbox.run("hi", &ensure).expect_code(0).json();
    assert_eq!(stored["metrics"]["usage"], ran["metrics"]["usage"]);
    assert_eq!(server.requests().len(), 2);
    // A run that recorded none does not continue without one.
    sandbox.write("work/.delta/r/journal.jsonl", "");
    std::fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
    let refused = sandbox.run("hi", &ensure).expect_code(126);
    assert!(refused.stderr.contains("`max_cost` requires the price of m"), "{}", refused.stderr);
    sandbox.unverified("its journal was emptied");
}

#[test]
fn c_23_3_a_limit_holds_with_the_prices_of_the_file() {
    // The request alone could cost more.
    let (server, sandbox) = asks_once("\nlimits: {max_cost: 8}");
    let refused = run_priced(&sandbox, &["--format", "json"]).expect_code(1).json();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the limit of 8 USD does not allow another call: "), "{message}");
    // The longest answer is the model's, which the file has.
    assert!(message.ends_with(" tokens for the request and 700 for the answer)"), "{message}");
    assert_eq!(server.requests().len(), 0);
    // The next process needs no file.
    let fixed = ["continue", "r", "-w", "work", "-m", "again", "--format", "json"];
    let again = |more: &[&str]| sandbox.delta(fixed.iter().chain(more).copied()).output();
    let still = again(&[]).expect_code(1).json();
    assert_eq!(still["error"]["type"], "limit");
    let done = again(&["--max-cost", "100000"]).expect_code(0).json();
    assert_eq!(done["metrics"]["usage"]["total_cost_usd"], json!(1.26));
    assert_eq!(recorded_prices(&sandbox)["from"], "file");
    // Another model has another price.
    let other = again(&["--model", "other"]).expect_code(126);
    assert!(
        other.stderr.contains("error: `max_cost` requires the price of other\n"),
        "{}",
        other.stderr
    );
}

#[test]
fn c_23_3_a_price_that_is_not_known_is_no_limit_and_no_zero() {
    let (server, sandbox) = asks_once("");
    sandbox.write(
        "agent/agent.yaml",
        sandbox.read("agent/agent.yaml").replace("model: m\n", "model: m-2025\n"),
    );
    let ran = run_priced(&sandbox, &["--max-cost", "5"]).expect_code(126);
    let path = sandbox.path("prices.json");
    let message = format!(
        "error: `--max-cost` requires the price of m-2025, which is not in {}: no chat model `m-2025`; similar names: ",
        path.display()
    );
    assert!(ran.stderr.starts_with(&message), "{}", ran.stderr);
    assert!(!sandbox.path("work/.delta/r").exists());
    assert_eq!(server.requests().len(), 0);
    let ran = run_priced(&sandbox, &["--format", "json"]).expect_code(0);
    assert_eq!(ran.json()["metrics"]["usage"]["total_cost_usd"], Value::Null);
}

#[test]
fn c_23_3_a_price_file_that_cannot_be_read_is_an_error_before_anything_is_created() {
    let (_server, sandbox) = asks_once("");
    let error = |value: &str| {
        let ran =
            sandbox.run_command("hi", &[]).env("DELTA_PRICES", value).output().expect_code(126);
        assert!(!sandbox.path("work").exists());
        ran.normal(&sandbox).stderr
    };
    assert_eq!(
        error("prices.json"),
        "error: DELTA_PRICES is not an absolute path: prices.json\nhelp: export DELTA_PRICES=\"$PWD\"/FILE\n"
    );
    let path = sandbox.path("prices.json");
    let path = path.to_str().unwrap();
    assert_eq!(
        error(path),
        "error: could not read the price file DIR/prices.json: No such file or directory (os error 2)\nhelp: DELTA_PRICES names it\n"
    );
    sandbox.write("prices.json", "[]");
    let form = "\nhelp: it needs the form of LiteLLM's model_prices_and_context_window.json\n";
    let said = error(path);
    let start = "error: could not use the price file DIR/prices.json: expected a JSON object with an entry for each model: ";
    assert!(said.starts_with(start) && said.ends_with(form), "{said}");
    sandbox.write(
        "prices.json",
        r#"{"m": {"input_cost_per_token": [1], "output_cost_per_token": 1}}"#,
    );
    assert_eq!(
        error(path),
        format!(
            "error: could not use the price file DIR/prices.json: expected a price per token such as 2.5e-06 as `input_cost_per_token` of the entry `m`, found `[1]`{form}"
        )
    );
    // A run that needs no price does not read it.
    let scripted = Sandbox::scripted(DELTA, "", "- say: done\n");
    scripted.run_command("hi", &[]).env("DELTA_PRICES", path).output().expect_code(0);
}

#[test]
fn c_23_3_prices_are_of_the_model_that_they_are_written_for() {
    let (_server, sandbox) = asks_once("\n  pricing: {input: 1000, output: 10000}");
    let other = ["--model", "openai:another", "--max-cost", "5"];
    let note = "Note: `pricing` in agent.yaml is the price of m, and does not apply to another;";
    let ran = sandbox.run("hi", &other).expect_code(126);
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("error: `--max-cost` requires the price of another"),
        "{}",
        ran.stderr
    );
    let priced = ["--llm", "pricing={input: 1, output: 1}", "--format", "json"];
    let ran = sandbox.run("hi", &[&other[..], &priced].concat()).expect_code(0);
    let used = &ran.json()["metrics"]["usage"]["model_usage"]["another"];
    assert_eq!(used["cost_usd"], json!(0.00105), "{used}");
    assert!(!ran.stderr.contains(note), "{}", ran.stderr);
}

/// The prices of the agent's model were taken for those of any model that `--llm` names.
#[test]
fn c_23_3_prices_are_not_of_the_model_that_a_setting_names() {
    let note = "Note: `pricing` in agent.yaml is the price of m, and does not apply to another;";
    let used = |ran: &Ran, model: &str| {
        ran.json()["metrics"]["usage"]["model_usage"][model]["cost_usd"].clone()
    };
    let pricing = "\n  temperature: 0.5\n  pricing: {input: 1000, output: 10000}";
    let (server, sandbox) = asks_once(pricing);
    let another = ["--llm", "model=another", "--format", "json"];
    let limited = sandbox.run("hi", &[&another[..], &["--max-cost", "5"]].concat());
    assert!(limited.expect_code(126).stderr.contains(note));
    let ran = sandbox.run("hi", &another).expect_code(0);
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(used(&ran, "another"), Value::Null);
    let start = &sandbox.events("ENGINE_START")[0]["config"]["llm"];
    assert_eq!(start["pricing"], Value::Null);
    assert!(!sandbox.read("work/.delta/r/agent/agent.yaml").contains("pricing"));
    // The other keys are settings of the agent.
    assert_eq!(server.requests()[0].body["temperature"], 0.5);

    let priced: [&[&str]; 2] = [
        &["--llm", "model=m"],
        &["--llm", "model=another", "--llm", "pricing={input: 1, output: 1}"],
    ];
    for more in priced {
        let (_server, sandbox) = asks_once(pricing);
        let ran = sandbox.run("hi", &[more, &["--format", "json"]].concat()).expect_code(0);
        assert!(!ran.stderr.contains(note), "{}", ran.stderr);
        assert!(ran.json()["metrics"]["usage"]["total_cost_usd"].is_f64(), "{}", ran.stdout);
    }
}

/// The start of the process, as the journal has it, of an agent that asks `model` once, with these variables and options.
fn asks_model(sandbox: &Sandbox, model: &str, more: &[&str]) -> (ScriptedServer, Ran) {
    let server = ScriptedServer::start(vec![detailed_answer()]);
    sandbox.agent(&format!("model: {model}\n  stream: false\n  base_url: {}", server.url()), "");
    let ran = sandbox.run("hi", more);
    (server, ran)
}

/// `--max-cost` was an error for every model until the user had found and written down its price.
#[test]
fn c_35_1_a_known_model_has_a_dated_price_without_any_file() {
    let sandbox = Sandbox::new(DELTA);
    let limited = ["--max-cost", "5", "--format", "json"];
    let (_server, ran) = asks_model(&sandbox, "gpt-4o", &limited);
    let used = ran.expect_code(0).json()["metrics"]["usage"].clone();
    let mut prices = recorded_prices(&sandbox);
    let date = prices["date"].take();
    assert!(regex::Regex::new(r"^\d{4}-\d\d-\d\d$").unwrap().is_match(date.as_str().unwrap()));
    let expected = json!({
        "from": "built-in", "date": null, "entry": "gpt-4o", "input": 2.5, "cached_input": 1.25, "cache_write": 2.5,
        "output": 10.0, "reasoning": 10.0, "other_tiers": null, "max_output": 16384, "max_input": 128_000,
    });
    // An answer can be in a tier that the request did not ask for.
    let tiers = prices["other_tiers"].take();
    assert!(tiers["priority"]["input"].as_f64() > Some(2.5), "{tiers}");
    assert_eq!(prices, expected);
    // 100 fresh, 600 cached, 300 written, 50 out.
    let cost = (100.0 * 2.5 + 600.0 * 1.25 + 300.0 * 2.5 + 50.0 * 10.0) / 1e6;
    assert!((used["total_cost_usd"].as_f64().unwrap() - cost).abs() < 1e-9, "{used}");
    // In agent.yaml too, and a model that nobody knows is still refused.
    let sandbox = Sandbox::new(DELTA);
    let (server, _) = asks_model(&sandbox, "gpt-4o\nlimits: {max_cost: 0.00001}\nx-rest:", &[]);
    assert_eq!(server.requests().len(), 0);
    let sandbox = Sandbox::new(DELTA);
    let (_server, ran) = asks_model(&sandbox, "gpt-4o-unknown", &limited);
    let message = "error: `--max-cost` requires the price of gpt-4o-unknown\n";
    assert!(ran.expect_code(126).stderr.contains(message));
}

/// A fetched list with the model `m`, of the day `date`.
fn write_fetched(sandbox: &Sandbox, date: &str, model: &str) {
    let entry = json!({"input_cost_per_token": 3e-6, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "chat"});
    let list = json!({
        "source": "https://prices.example/l.json", "fetched_at": format!("{date}T01:02:03.000Z"), "sha256": "00",
        "models": {model: entry},
    });
    sandbox.write("home/.local/share/delta/prices.json", list.to_string());
}

#[test]
fn c_23_3_the_file_of_the_operator_precedes_the_fetched_list() {
    let sandbox = Sandbox::new(DELTA);
    write_fetched(&sandbox, "2026-11-20", "gpt-4o");
    sandbox.write("home/.config/delta/prices.json", PRICES.replace("\"m\"", "\"gpt-4o\""));
    sandbox.write("home/.config/delta/config.yaml", "pricing: prices.json\n");
    let (_server, ran) = asks_model(&sandbox, "gpt-4o", &[]);
    ran.expect_code(0);
    let prices = recorded_prices(&sandbox);
    assert_eq!((&prices["from"], &prices["input"]), (&json!("file"), &json!(1000.0)));
}

#[test]
fn c_35_1_every_other_source_precedes_the_table() {
    let from = |sandbox: &Sandbox| {
        let prices = recorded_prices(sandbox);
        (prices["from"].clone(), prices["input"].clone())
    };
    let sandbox = Sandbox::new(DELTA);
    write_fetched(&sandbox, "2026-11-20", "gpt-4o");
    let (_server, ran) = asks_model(&sandbox, "gpt-4o", &[]);
    ran.expect_code(0);
    assert_eq!(from(&sandbox), (json!("fetched"), json!(3.0)));
    assert_eq!(recorded_prices(&sandbox)["date"], "2026-11-20");

    let sandbox = Sandbox::new(DELTA);
    let (_server, ran) = asks_model(&sandbox, "gpt-4o\n  pricing: {input: 7, output: 7}", &[]);
    ran.expect_code(0);
    assert_eq!(from(&sandbox), (json!("agent"), json!(7.0)));
    // What the agent does not say is from the table.
    assert_eq!(recorded_prices(&sandbox)["max_output"], 16384);

    // A list that is broken is named, before anything is created.
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("home/.local/share/delta/prices.json", "[]");
    let (_server, ran) = asks_model(&sandbox, "gpt-4o", &[]);
    let ran = ran.expect_code(126);
    assert!(ran.stderr.contains("error: could not use the fetched prices in "), "{}", ran.stderr);
    assert!(!sandbox.path("work").exists());
}

#[test]
fn c_35_1_a_limit_that_relies_on_old_prices_says_so() {
    let note = "Note: the limit relies on prices of gpt-4o, which are ";
    let said = |date: &str, more: &[&str]| {
        let sandbox = Sandbox::new(DELTA);
        write_fetched(&sandbox, date, "gpt-4o");
        asks_model(&sandbox, "gpt-4o", more).1.expect_code(0).stderr
    };
    let stderr = said("2020-01-01", &["--max-cost", "5"]);
    assert!(
        stderr.contains(note) && stderr.contains("`delta models prices --fetch URL`"),
        "{stderr}"
    );
    assert!(!said("2020-01-01", &[]).contains(note));
    assert!(!said("2999-01-01", &["--max-cost", "5"]).contains(note));
}

/// A list of ten models in LiteLLM's form, with this price of input in USD per million.
fn price_list(input: f64) -> String {
    let entry = json!({
        "input_cost_per_token": input / 1e6, "output_cost_per_token": 1e-5, "litellm_provider": "openai", "mode": "chat",
    });
    let models = (0..9).map(|number| (format!("new-{number}"), entry.clone()));
    let models = models.chain([("gpt-4o".to_owned(), entry.clone())]);
    Value::from(models.collect::<serde_json::Map<_, _>>()).to_string()
}

#[test]
fn c_35_2_prices_are_fetched_from_a_named_address_only_and_without_a_key() {
    let server =
        ScriptedServer::for_anything(|request: &RecordedRequest| match request.target.as_str() {
            "GET /list" => Answer::raw(200, price_list(5.0)),
            "GET /dear" => Answer::raw(200, price_list(30.0)),
            "GET /few" => Answer::raw(200, "{}"),
            "GET /cut" => Answer::raw(200, &price_list(5.0)[..200]),
            _ => Answer::raw(404, "no"),
        });
    let sandbox = Sandbox::new(DELTA);
    let fetch = |args: &[&str]| {
        let fixed = ["models", "prices", "--fetch"];
        let command = sandbox.delta(fixed.iter().chain(args).copied());
        command.env("DELTA_API_KEY", "k").env("OPENAI_API_KEY", "k").output().normal(&sandbox)
    };
    let list = "home/.local/share/delta/prices.json";
    let address = |path: &str| format!("{}/{path}", server.root_url());
    // The table in the program says 2.5.
    let ran = fetch(&[&address("list")]).expect_code(0);
    let expected = "  gpt-4o input_cost_per_token: 2.5 -> 5 USD per million\n";
    assert!(
        ran.stdout.starts_with("10 models from http") && ran.stdout.ends_with(expected),
        "{}",
        ran.stdout
    );
    let written: Value = serde_json::from_str(&sandbox.read(list)).unwrap();
    assert_eq!(written["sha256"], delta_base::hex::sha256_hex(price_list(5.0)));
    assert_eq!(
        (&written["source"], written["models"].as_object().unwrap().len()),
        (&json!(address("list")), 10)
    );
    for request in server.requests() {
        for header in ["authorization", "x-api-key", "api-key", "x-goog-api-key"] {
            assert_eq!(request.header(header), None);
        }
    }
    let prices = sandbox.delta(["models", "prices", "openai:new-3"]).output().expect_code(0).stdout;
    assert!(prices.contains("  from `new-3` in the prices of 2"), "{prices}");

    // A refused list changes nothing.
    let before = sandbox.read(list);
    for (source, message) in [
        (address("few"), "expected the prices of at least 10 chat models, found 0"),
        (address("cut"), "expected a JSON object: EOF"),
        (address("gone"), "answered 404 Not Found"),
        ("http://prices.example/l.json".to_owned(), "over http can be changed on the way"),
        ("http://127.0.0.1:1/l.json".to_owned(), "could not connect to"),
        ("missing.json".to_owned(), "No such file or directory"),
    ] {
        let ran = fetch(&[&source]).expect_code(126);
        assert!(
            ran.stderr.starts_with("error: ")
                && ran.stderr.contains(message)
                && ran.stderr.matches(&source).count() == 1,
            "{}",
            ran.stderr
        );
        assert_eq!(sandbox.read(list), before);
    }
    let negative =
        price_list(5.0).replacen("output_cost_per_token\":", "output_cost_per_token\":-", 1);
    sandbox.write("negative.json", negative);
    let ran = fetch(&["negative.json"]).expect_code(126);
    assert!(
        ran.stderr.contains("expected a price from 0 as `output_cost_per_token` of "),
        "{}",
        ran.stderr
    );
    assert_eq!(fetch(&[&address("dear")]).expect_code(0).stdout.matches("5 -> 30").count(), 10);
    // More than ten times as much.
    let before = sandbox.read(list);
    sandbox.write("dearer.json", price_list(301.0));
    let ran = fetch(&["dearer.json"]).expect_code(126);
    assert!(
        ran.stderr.contains("10 of 10 prices changed by more than ten times, such as "),
        "{}",
        ran.stderr
    );
    assert_eq!(sandbox.read(list), before);
    fetch(&["dearer.json", "--accept"]).expect_code(0);

    // Without an address, it is the one in config.yaml.
    assert!(
        fetch(&[]).expect_code(126).stderr.contains("write `prices_url: URL` into config.yaml")
    );
    sandbox.write("home/.config/delta/config.yaml", format!("prices_url: {}\n", address("list")));
    assert!(fetch(&["--accept"]).expect_code(0).stdout.contains("301 -> 5"));
}

#[test]
fn c_35_3_a_run_below_has_the_prices_of_its_parent() {
    let server = ScriptedServer::start(vec![
        Answer::call("ask", json!({})).usage(100, 0),
        Answer::call("ask", json!({})).usage(200, 0),
        Answer::text("leaf").usage(400, 0),
        Answer::text("inner").usage(800, 0),
        Answer::text("outer").usage(1600, 0),
    ]);
    let sandbox = super::run_tree::sandbox(&server);
    let priced =
        ["--llm", "pricing={input: 1000, output: 1}", "--max-cost", "100000", "--format", "json"];
    let command = sandbox.run_command("go", &priced);
    let result = super::run_tree::with_path(&sandbox, command).expect_code(0).json();
    assert_eq!(result["metrics"]["tree"]["usage"]["total_cost_usd"], json!(3.1));
    for (run, from) in [("inner-x", "r"), ("leaf-x", "r")] {
        let journal = sandbox.read(&format!("work/.delta/{run}/journal.jsonl"));
        let start: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
        let prices = &start["config"]["llm"]["pricing"];
        assert_eq!(
            (&prices["from"], &prices["run_id"]),
            (&json!("parent"), &json!(from)),
            "{prices}"
        );
    }
    let prices: Value = serde_json::from_str(&sandbox.read("work/.delta/r/prices.json")).unwrap();
    assert_eq!(prices["127.0.0.1 test-model"]["pricing"]["input"], 1000.0, "{prices}");
}

#[test]
fn c_35_4_a_script_is_free() {
    let turns = "- {say: done, usage: {input_tokens: 10, output_tokens: 5}}\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    let used = sandbox.run("hi", &["--format", "json"]).expect_code(0).json();
    assert_eq!(used["metrics"]["usage"]["total_cost_usd"], json!(0.0));
    assert!(!sandbox.path("work/.delta/r/prices.json").exists());
    // Without usage it is as an endpoint that reports none.
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    let unused = sandbox.run("hi", &["--format", "json"]).expect_code(0).json();
    assert_eq!(unused["metrics"]["usage"]["total_cost_usd"], Value::Null);
}
