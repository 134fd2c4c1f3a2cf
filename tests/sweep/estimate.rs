//! What a sweep will cost, against the bill of endpoints that cache.

use super::{DELTA, result_lines, sweep, write_sweep};
use serde_json::{Value, json};
use test_support::prompt_cache::PromptCache;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, Gate, RecordedRequest, ScriptedServer};
use test_support::wait::until;

/// An endpoint whose runs make three calls before their result.
fn serve(cache: PromptCache) -> ScriptedServer {
    cache.serve(|request| {
        let messages = request.body["messages"].as_array().map_or(0, Vec::len);
        if messages < 7 {
            Answer::call("echo", json!({"text": "a line of text ".repeat(messages * 20)}))
        } else {
            Answer::text("done")
        }
    })
}

/// An agent with a long prompt that asks the endpoint for these prices.
fn asking(server: &ScriptedServer, form: &str, pricing: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let url = if form == "anthropic" { server.root_url() } else { server.url() };
    let llm = format!(
        "provider: {form}\n  model: test-model\n  base_url: {url}\n  pricing: {{{pricing}}}"
    );
    sandbox.agent(&llm, "  - name: echo\n    exec: echo ${text}\n");
    sandbox.write("agent/system_prompt.md", "Keep to the facts, and to the task. ".repeat(300));
    sandbox
}

/// The bill of the whole sweep.
fn bill(sandbox: &Sandbox) -> f64 {
    result_lines(sandbox).iter().map(|line| line["cost_usd"].as_f64().unwrap()).sum()
}

#[test]
fn c_35_19_the_bill_of_an_endpoint_that_caches_lies_within_the_estimate() {
    let marked = "input: 4, output: 20, cached_input: 0.2, cache_write: 5";
    let automatic =
        "input: 2, output: 8, cached_input: 0.5, flex: {input: 1, output: 4, cached_input: 0.25}";
    for (form, cache, pricing) in [
        ("anthropic", PromptCache::new(1024, 1), marked),
        ("openai", PromptCache::new(1024, 1).automatic(), automatic),
        // No entry is read again.
        ("anthropic", PromptCache::new(1024, 400), marked),
    ] {
        let server = serve(cache);
        let sandbox = asking(&server, form, pricing);
        write_sweep(&sandbox, 12, 1, "");
        let args = ["estimate", "sweep.yaml", "--pilot", "2", "--jobs", "2", "-q"];
        let ran = sweep(&sandbox, &[&args[..], &["--format", "json"]].concat()).expect_code(0);
        let estimate: Value = ran.json();
        assert_eq!((&estimate["runs"], &estimate["done"]), (&json!(12), &json!(2)));
        assert_eq!(result_lines(&sandbox).len(), 2, "the first runs are paid once");
        let end = |tier: &str, end: &str| estimate["tiers"][tier][end].as_f64();
        sweep(&sandbox, &["run", "s", "--jobs", "2", "-q"]).expect_code(0);
        let bill = bill(&sandbox);
        let (low, high) = (end("direct", "low").unwrap(), end("direct", "high").unwrap());
        assert!(low <= bill && bill <= high, "{form}: {bill}, not {low} to {high}");
        // Here an entry can be read at once, so only the first run finds nothing: the forecast below its margin of 5 %.
        let forecast = low / 0.95;
        assert!((bill - forecast).abs() <= 0.05 * bill, "{form}: {bill}, not about {forecast}");
        let has_flex = pricing.contains("flex");
        assert_eq!(end("flex", "high").is_some(), has_flex);
        assert_eq!(estimate["cheapest"], if has_flex { "flex" } else { "direct" });
        assert_eq!(end("batch", "low"), None, "no list has the price");
        let text = sweep(&sandbox, &["estimate", "s", "--pilot", "0"]).expect_code(0).stdout;
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let reason = "unknown: test-model has no price of the tier `batch`";
        assert!(text.contains(reason) && text.contains("12 of 12 runs done"), "{text}");
    }
}

#[test]
fn c_35_19_without_a_price_or_a_run_the_estimate_says_so_and_spends_nothing_more() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"));
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    write_sweep(&sandbox, 4, 1, "budget: {max_tokens: 10}\n");
    // The budget allows no call at all.
    let ran = sweep(&sandbox, &["estimate", "sweep.yaml", "--pilot", "2"]).expect_code(3);
    assert!(ran.stderr.contains("the sweep's budget of 10 tokens"), "{}", ran.stderr);
    assert!(ran.stdout.contains("unknown: no run of the setting was measured"), "{}", ran.stdout);
    assert_eq!(server.requests().len(), 0);
    write_sweep(&sandbox, 4, 1, "");
    let ran = sweep(&sandbox, &["estimate", "sweep.yaml", "--pilot", "2", "-q"]).expect_code(0);
    assert!(ran.stdout.contains("unknown: no price of test-model is known"), "{}", ran.stdout);
    assert!(ran.stdout.contains("  tokens "), "{}", ran.stdout);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn c_35_17_one_run_writes_what_runs_share_and_the_others_wait_for_its_answer() {
    let (gate, mut calls) = (Gate::new(), 0);
    let held = gate.clone();
    let server = PromptCache::new(1024, 1).serve(move |_| {
        calls += 1;
        if calls == 2 { Answer::text("done").after(&held) } else { Answer::text("done") }
    });
    let pricing = "input: 4, output: 20, cached_input: 0.2, cache_write: 5";
    let sandbox = asking(&server, "anthropic", pricing);
    write_sweep(&sandbox, 5, 1, "rate: {warm: auto}\n");
    sweep(&sandbox, &["estimate", "sweep.yaml", "--pilot", "1", "-q"]).expect_code(0);
    let pool = sandbox.delta(["sweep", "run", "s", "--jobs", "4", "-q"]).spawn();
    until("three runs that wait for the request of one", || {
        let logs = sandbox.files("s/runs").into_iter().filter(|name| name.ends_with("engine.log"));
        let texts = logs.map(|name| sandbox.read(&format!("s/runs/{name}")));
        let waiting = texts.filter(|text| text.contains("waiting for the rate of calls"));
        (waiting.count() == 3 && server.requests().len() > 1).then_some(())
    });
    assert_eq!(server.requests().len(), 2, "the finished run, and the first of the others");
    gate.open();
    assert!(pool.wait_with_output().unwrap().status.success());
    assert_eq!(server.requests().len(), 5);
    let lines = result_lines(&sandbox);
    let waited = lines.iter().filter(|line| line["throttled_ms"].as_u64() > Some(0)).count();
    assert_eq!(waited, 3, "{lines:?}");
}
