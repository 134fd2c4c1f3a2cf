//! `echo_reasoning: false`: what of the reasoning of earlier answers goes back nevertheless.

use super::forced_calls::agent;
use super::images::FORMS;
use serde_json::json;
use test_support::server::{Answer, ScriptedServer};

#[test]
fn c_7_7_reasoning_is_kept_out_in_every_form_as_far_as_its_vendor_permits() {
    for (form, key) in FORMS {
        let echo = |text: &str, thought: &str| {
            Answer::call("echo", json!({"text": text})).thinking(thought)
        };
        let server = ScriptedServer::start(vec![
            echo("a", "thought-one"),
            Answer::text("first").thinking("thought-two"),
            echo("b", "thought-three"),
            Answer::text("second").thinking("thought-four"),
        ]);
        let sandbox = agent(form, &server, "\n  echo_reasoning: false", "");
        sandbox.run_command("hello", &[]).env(key, "k").output().expect_code(0);
        let again = ["continue", "r", "-w", "work", "-m", "more"];
        sandbox.delta(again).env(key, "k").output().expect_code(0);
        assert_eq!(server.violations(), Vec::<String>::new(), "{form}");
        let sent: Vec<String> = server
            .requests()
            .iter()
            .map(|it| String::from_utf8(it.bytes.clone()).unwrap())
            .collect();
        let thoughts = |index: usize| {
            let names = ["thought-one", "thought-two", "thought-three", "thought-four"];
            names.map(|name| sent[index].contains(name))
        };
        let none = [false; 4];
        // Anthropic rejects the results of calls without the thinking of the turn.
        let is_kept = form == "anthropic";
        assert_eq!(thoughts(1), [is_kept, false, false, false], "{form}");
        assert_eq!(thoughts(2), none, "{form}");
        assert_eq!(thoughts(3), [false, false, is_kept, false], "{form}");
        let signatures = |index: usize| sent[index].matches("thoughtSignature").count();
        if form == "gemini" {
            assert!(signatures(1) > 0 && signatures(3) > 0, "{sent:?}");
            assert_eq!(signatures(2), 0, "{sent:?}");
        }
        if form == "responses" {
            assert!(sent.iter().all(|body| !body.contains("\"type\":\"reasoning\"")), "{sent:?}");
        }
    }
}
