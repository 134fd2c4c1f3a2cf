//! A model of another vendor that answers in place of the first one, in the middle of a conversation.

use super::{DELTA, ECHO, bodies};
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const FORMS: [&str; 4] = ["openai", "anthropic", "responses", "gemini"];

#[test]
fn c_37_10_another_vendor_gets_nothing_that_only_the_first_one_understands() {
    for from in FORMS {
        for to in FORMS.into_iter().filter(|to| *to != from) {
            let call = Answer::call("echo", json!({"text": "the-result"})).thinking("secret-idea");
            let first = ScriptedServer::start(vec![call, Answer::error(529, "overloaded", None)]);
            // The server takes only what its vendor takes: foreign signatures and ids of calls are violations.
            let second = ScriptedServer::start(vec![Answer::text("done")]);
            let sandbox = Sandbox::new(DELTA);
            let llm = format!(
                "provider: {from}\n  model: first\n  max_retries: 0\n  base_url: {}\n  fallback: [{{provider: {to}, model: second, base_url: {}}}]",
                first.url(),
                second.url()
            );
            sandbox.agent(&llm, ECHO);
            let ran = sandbox.run("hello", &["--format", "raw"]).expect_code(0);
            assert_eq!(ran.stdout, "done\n", "{from} to {to}");
            for server in [&first, &second] {
                assert_eq!(server.violations(), Vec::<String>::new(), "{from} to {to}");
            }
            let body = bodies(&second).pop().unwrap().to_string();
            assert!(body.contains("the-result"), "{from} to {to}: {body}");
            assert!(!body.contains("secret-idea"), "{from} to {to}: {body}");
            assert!(!body.contains("scripted/"), "{from} to {to}: {body}");
        }
    }
}
