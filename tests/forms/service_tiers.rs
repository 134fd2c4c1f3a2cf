//! The service tier that the operator asks for, what an endpoint makes of it, and what an answer costs in it.

use super::{agent_of, records};
use serde_json::{Value, json};
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const PRICING: &str =
    "\n  stream: false\n  pricing: {input: 2, output: 4, flex: {input: 1, output: 2}}";

/// The answer of an endpoint that read a million tokens in a tier, as each form has it.
fn answer(form: &str, tier: Option<&str>) -> Answer {
    let mut body = match form {
        "openai" => json!({
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1_000_000, "completion_tokens": 0},
        }),
        "responses" => json!({
            "status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}],
            "usage": {"input_tokens": 1_000_000, "output_tokens": 0},
        }),
        _ => json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1_000_000, "candidatesTokenCount": 0},
        }),
    };
    match (form, tier) {
        (_, None) => {}
        ("gemini", Some(tier)) => body["usageMetadata"]["serviceTier"] = tier.into(),
        (_, Some(tier)) => body["service_tier"] = tier.into(),
    }
    Answer::raw(200, body.to_string())
}

fn run(sandbox: &Sandbox, options: &[&str]) -> Delta {
    keyed(sandbox.run_command("task", options))
}

fn keyed(command: Delta) -> Delta {
    command.env("OPENAI_API_KEY", "k").env("GOOGLE_API_KEY", "k").env("ANTHROPIC_API_KEY", "k")
}

/// The tier that each request asked for.
fn asked(server: &ScriptedServer) -> Vec<Value> {
    let tier = |request: RecordedRequest| {
        let body = request.body;
        body.get("service_tier").or(body.get("serviceTier")).cloned().unwrap_or_default()
    };
    server.requests().into_iter().map(tier).collect()
}

/// The tier and the cost of each answer, in the journal.
fn answered(sandbox: &Sandbox) -> Vec<(Value, Value)> {
    let thoughts = sandbox.events("THOUGHT").into_iter();
    thoughts.map(|it| (it["usage"]["tier"].clone(), it["usage"]["cost_usd"].clone())).collect()
}

#[test]
fn c_35_5_an_answer_is_priced_with_the_prices_of_the_tier_that_gave_it() {
    for form in ["openai", "responses", "gemini"] {
        let standard = if form == "gemini" { "STANDARD" } else { "default" };
        for (reported, tier, cost) in [
            (Some("flex"), "flex", json!(1.0)),
            (Some(standard), "direct", json!(2.0)),
            (Some("priority"), "priority", Value::Null),
            (None, "unknown", Value::Null),
        ] {
            let server = ScriptedServer::for_anything(vec![answer(form, reported)]);
            let sandbox = agent_of(form, &server, PRICING);
            run(&sandbox, &["--tier", "flex"]).output().expect_code(0);
            assert_eq!(asked(&server), ["flex"], "{form}");
            assert_eq!(answered(&sandbox), [(json!(tier), cost)], "{form} {reported:?}");
            assert_eq!(records(&sandbox)[0]["wire"]["options"]["tier"], "flex");
            let args = ["show", "r", "-w", "work", "--request", "1", "--wire"];
            let body = sandbox.delta(args).output().expect_code(0).json();
            assert_eq!(body, server.requests()[0].body, "{form}");
        }
    }
}

/// 1.99 USD are left for the second call by the prices of `flex`, and 0.01 by those of `direct`.
#[test]
fn c_35_11_an_answer_without_a_price_counts_by_the_dearest_one() {
    for (reported, is_allowed) in [(Some("flex"), true), (None, false)] {
        let answers = vec![answer("openai", reported), answer("openai", reported)];
        let server = ScriptedServer::for_anything(answers);
        let sandbox = agent_of("openai", &server, PRICING);
        let limited = ["--tier", "flex", "--max-cost", "2.01"];
        run(&sandbox, &limited).output().expect_code(0);
        let args = ["continue", "r", "-w", "work", "-m", "more"];
        let ran = keyed(sandbox.delta(args.into_iter().chain(limited))).output();
        assert_eq!(ran.code == 0, is_allowed, "{}", ran.stderr);
        assert_eq!(server.requests().len(), if is_allowed { 2 } else { 1 });
    }
}

#[test]
fn c_35_12_a_run_changes_tiers_between_turns() {
    let answers = [Some("flex"), Some("default"), None].map(|tier| answer("openai", tier));
    let server = ScriptedServer::for_anything(answers.to_vec());
    let sandbox = agent_of("openai", &server, PRICING);
    run(&sandbox, &["--tier", "flex"]).output().expect_code(0);
    for tier in [Some("flex-or-direct"), None] {
        let args = ["continue", "r", "-w", "work", "-m", "more"];
        let args = args.into_iter().chain(tier.into_iter().flat_map(|tier| ["--tier", tier]));
        keyed(sandbox.delta(args)).output().expect_code(0);
    }
    assert_eq!(asked(&server), [json!("flex"), json!("flex"), Value::Null]);
    let expected =
        [(json!("flex"), json!(1.0)), (json!("direct"), json!(2.0)), (Value::Null, json!(2.0))];
    assert_eq!(answered(&sandbox), expected);
}

/// OpenAI's words: no capacity, and a model without the tier.
#[test]
fn c_35_12_a_refusal_of_the_tier_is_asked_directly_or_retried_as_the_operator_chooses() {
    let busy = || Answer::error(429, "Resource Unavailable", Some("resource_unavailable"));
    let unknown = || Answer::error(400, "Invalid service_tier argument", Some("invalid_value"));
    for (refusal, tier, expected) in [
        (busy(), "flex-or-direct", json!(["flex", null])),
        (unknown(), "flex-or-direct", json!(["flex", null])),
        (busy(), "flex", json!(["flex", "flex"])),
        (unknown(), "flex", json!(["flex"])),
    ] {
        let given = if expected[1] == "flex" { "flex" } else { "default" };
        let server = ScriptedServer::for_anything(vec![refusal, answer("openai", Some(given))]);
        let sandbox = agent_of("openai", &server, PRICING);
        let ran = run(&sandbox, &["--tier", tier]).output();
        assert_eq!(json!(asked(&server)), expected, "{tier}: {}", ran.stderr);
        let has_answer = expected.as_array().unwrap().len() == 2;
        assert_eq!(ran.code == 0, has_answer, "{}", ran.stderr);
    }
}

#[test]
fn c_35_12_cheapest_is_flex_where_the_model_costs_less_in_it() {
    for (pricing, expected) in [
        ("{input: 2, output: 4, flex: {input: 1, output: 2}}", json!("flex")),
        ("{input: 2, output: 4, flex: {input: 1, output: 5}}", Value::Null),
        ("{input: 2, output: 4}", Value::Null),
    ] {
        let server = ScriptedServer::for_anything(vec![answer("openai", Some("flex"))]);
        let llm = format!("\n  stream: false\n  pricing: {pricing}");
        let sandbox = agent_of("openai", &server, &llm);
        run(&sandbox, &["--tier", "cheapest"]).output().expect_code(0);
        assert_eq!(asked(&server), [expected], "{pricing}");
    }
    let server = ScriptedServer::start(vec![Answer::text("done")]);
    let sandbox = agent_of("anthropic", &server, "");
    let ran = run(&sandbox, &["--tier", "flex"]).output().expect_code(126);
    assert_eq!(
        ran.stderr,
        "error: the provider `anthropic` has no service tier `flex`\n\
         help: `cheapest` asks in the tier `flex` where a model has it for less, and directly elsewhere\n"
    );
    run(&sandbox, &["--tier", "cheapest"]).output().expect_code(0);
    assert_eq!(server.requests()[0].body.get("service_tier"), None);
}
