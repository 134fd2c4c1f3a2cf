//! Answers that break off: what had arrived is in the record of the attempt, and counts.

use super::{DELTA, ECHO, records};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

#[test]
fn c_37_5_what_had_arrived_of_a_broken_answer_is_recorded_and_counts() {
    for form in ["openai", "anthropic", "responses", "gemini"] {
        let text = "word ".repeat(60);
        let broken = Answer::text(&text).break_off(3000);
        let server = ScriptedServer::start(vec![broken, Answer::text("done")]);
        let sandbox = Sandbox::new(DELTA);
        let llm = format!(
            "provider: {form}\n  model: test-model\n  max_retries: 0\n  base_url: {}",
            server.url()
        );
        sandbox.agent(&llm, ECHO);
        sandbox.run("task", &["--max-tokens", "1M"]).expect_code(1);
        let attempt = records(&sandbox)[0]["attempts"][0].clone();
        let arrived = attempt["arrived"]["text"].as_str().unwrap();
        assert!(arrived.len() > 10 && text.starts_with(arrived), "{form}: {attempt}");
        let used = &attempt["usage"];
        let tokens = |name: &str| used[name].as_u64().unwrap();
        assert!(tokens("output_tokens") >= arrived.len() as u64 / 4, "{form}: {attempt}");
        let error = &sandbox.events("ERROR")[0]["error_details"];
        assert_eq!(&error["discarded_usage"][0], used, "{form}: {error}");
        let budget = sandbox.read("work/.delta/r/budget.jsonl");
        let settled = format!("\"tokens\":{}", tokens("input_tokens") + tokens("output_tokens"));
        assert!(budget.contains(&settled), "{form}: {settled} in {budget}");
        let args = ["continue", "r", "-w", "work"];
        sandbox.delta(args).output().expect_code(0);
    }
}
