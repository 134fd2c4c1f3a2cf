//! What a run tells `provider: responses` about its cache: nothing, or not to write what nothing reads again.

use super::{DELTA, ECHO, records};
use serde_json::{Value, json};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// The system prompt, a block that is another one in each request, and the conversation.
const UNSTABLE: &str = "\
sources:
  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}
  - {type: computed_file, generator: {command: [sh, -c, 'echo x >> number']}, output_path: '${CWD}/number'}
  - {type: journal}
";

/// Four answers of an endpoint that has written `written` tokens to its cache for each request.
fn answers(written: Option<u64>) -> Vec<Answer> {
    let usage = json!({
        "prompt_tokens": 5000, "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": written},
    });
    let echo = || Answer::call("echo", json!({"text": "one"})).usage_of(&usage);
    vec![echo(), echo(), echo(), Answer::text("done").usage_of(&usage)]
}

fn responses_agent(server: &ScriptedServer, llm: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let url = server.url();
    let llm = format!("provider: responses\n  model: test-model\n  base_url: {url}{llm}");
    sandbox.agent(&llm, ECHO);
    sandbox
}

fn run(sandbox: &Sandbox) -> Ran {
    sandbox.run_command("task", &[]).env("OPENAI_API_KEY", "k").output().expect_code(0)
}

fn cache_options(server: &ScriptedServer) -> Vec<Value> {
    let requests = server.requests().into_iter();
    requests.map(|request| request.body["prompt_cache_options"].clone()).collect()
}

/// An agent whose requests begin with the number of the request.
fn unstable(server: &ScriptedServer, llm: &str) -> Sandbox {
    let sandbox = responses_agent(server, llm);
    sandbox.write("agent/context.yaml", UNSTABLE);
    sandbox
}

#[test]
fn c_23_1_a_write_that_nothing_reads_is_avoided_where_the_endpoint_charges_for_it() {
    let explicit = json!({"mode": "explicit"});
    for (written, llm, expected) in [
        (Some(4000), "", explicit.clone()),
        (Some(4000), "\n  cache: off", Value::Null),
        (Some(4000), "\n  prompt_cache_options: {ttl: 12h}", json!({"ttl": "12h"})),
        (Some(0), "", Value::Null),
        (None, "", Value::Null),
    ] {
        let server = ScriptedServer::start(answers(written));
        let sandbox = unstable(&server, llm);
        run(&sandbox);
        let options = cache_options(&server);
        let first = if expected == explicit { Value::Null } else { expected.clone() };
        assert_eq!(
            options,
            [first, expected.clone(), expected.clone(), expected],
            "{written:?} {llm}"
        );
        assert_eq!(server.violations(), Vec::<String>::new());
        let args = ["show", "r", "-w", "work", "--request", "2", "--wire"];
        let body = sandbox.delta(args).output().expect_code(0).json();
        assert_eq!(body, server.requests()[1].body, "{llm}");
        if llm.is_empty() && written == Some(4000) {
            assert_eq!(records(&sandbox)[1]["wire"]["options"]["avoids_cache_write"], true);
        }
    }
}

#[test]
fn c_23_1_requests_that_extend_each_other_are_left_to_the_endpoint() {
    let server = ScriptedServer::start(answers(Some(4000)));
    run(&responses_agent(&server, ""));
    assert_eq!(cache_options(&server), vec![Value::Null; 4]);
}

#[test]
fn c_23_1_a_beginning_that_stays_long_enough_is_left_to_the_endpoint() {
    let server = ScriptedServer::start(answers(Some(4000)));
    let sandbox = unstable(&server, "");
    sandbox.write("agent/system_prompt.md", "It stays. ".repeat(500));
    run(&sandbox);
    assert_eq!(cache_options(&server), vec![Value::Null; 4]);
}

#[test]
fn c_23_1_an_endpoint_that_does_not_know_the_options_is_asked_without_them() {
    let mut answers = answers(Some(4000)).into_iter();
    let server = ScriptedServer::start(move |request: &RecordedRequest| {
        if request.body.get("prompt_cache_options").is_some() {
            let message = "Unknown parameter: 'prompt_cache_options'.";
            return Answer::error(400, message, Some("unknown_parameter"));
        }
        answers.next().unwrap()
    });
    let sandbox = unstable(&server, "");
    run(&sandbox);
    let sent = cache_options(&server).iter().map(Value::is_null).collect::<Vec<_>>();
    assert_eq!(sent, [true, false, true, true, true], "refused once, then left out");
}

#[test]
fn c_35_15_runs_with_a_long_constant_prefix_have_one_cache_key() {
    for (prompt, is_shared) in [("It stays. ".repeat(500), true), ("Short.".to_owned(), false)] {
        let server = ScriptedServer::start(vec![Answer::text("done"), Answer::text("done")]);
        let sandbox = responses_agent(&server, "");
        sandbox.write("agent/system_prompt.md", prompt);
        for run in ["one", "two"] {
            let args = ["run", "--agent", "agent", "-w", run, "--run-id", run, "-m", run];
            sandbox.delta(args).env("OPENAI_API_KEY", "k").output().expect_code(0);
        }
        let requests = server.requests().into_iter();
        let keys: Vec<_> = requests.map(|it| it.body["prompt_cache_key"].clone()).collect();
        if is_shared {
            assert_eq!(keys[0], keys[1]);
        } else {
            assert_eq!(keys, [json!("one"), json!("two")]);
        }
        let args = ["show", "two", "-w", "two", "--request", "1", "--wire"];
        let body = sandbox.delta(args).output().expect_code(0).json();
        assert_eq!(body, server.requests()[1].body);
    }
}

/// OpenAI's models that charge for writes keep prefixes that a request marks exactly.
#[test]
fn c_35_15_a_breakpoint_ends_the_constant_prefix_where_writes_are_charged() {
    let long = "It stays. ".repeat(500);
    let charged = "\n  pricing: {input: 4, cached_input: 0.4, cache_write: 5, output: 20}";
    for (written, llm, prompt, expected) in [
        (None, charged, long.as_str(), [true, true, true, true]),
        (Some(4000), "", &long, [false, true, true, true]),
        (None, "", &long, [false; 4]),
        (Some(4000), charged, "Short.", [false; 4]),
        (Some(4000), "\n  cache: off", &long, [false; 4]),
    ] {
        let server = ScriptedServer::start(answers(written));
        let sandbox = responses_agent(&server, llm);
        sandbox.write("agent/system_prompt.md", prompt);
        run(&sandbox);
        let breakpoint = |body: &Value| {
            let marked = body["input"][0]["content"][0]["prompt_cache_breakpoint"].clone();
            let count = body.to_string().matches("prompt_cache_breakpoint").count();
            assert_eq!(count, usize::from(!marked.is_null()));
            marked == json!({"mode": "explicit"})
        };
        let requests = server.requests();
        let marked: Vec<_> = requests.iter().map(|it| breakpoint(&it.body)).collect();
        assert_eq!(marked, expected, "{written:?} {llm}");
        assert_eq!(server.violations(), Vec::<String>::new());
        let args = ["show", "r", "-w", "work", "--request", "2", "--wire"];
        let body = sandbox.delta(args).output().expect_code(0).json();
        assert_eq!(body, requests[1].body, "{llm}");
    }
}
